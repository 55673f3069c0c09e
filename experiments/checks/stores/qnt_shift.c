/* qnt_shift.c - QNT-4: one vector w added to all keys is in their mean, and codes of what is less the mean
 * stay as they are, except at ties.
 *
 * In exact arithmetic x_j = k_j - mean, and x'_j is that of the shifted keys k'_j = round(k_j + w); A and A'
 * are the largest |x| and |x'| of a group, u = 2^-24. With E = max |x' - x| + 5 u (max |mean| + max |mean'| +
 * A + A') the computed differences of both are within E of x, and their scales within E / top of A / top. The
 * quotients that codes round are therefore within R = 2 E / s + 4 u top of x top / A, s = (A - E) / top, and
 * codes differ by no more than there are half-integers in that interval, so that each component of
 * k^'_j - k^_j - (m' - m) is at most
 *   D_jl = 2 E + (half-integers within R) (A + E) / top,
 * what the sum with m rounds included. m' - m is the same for every key. With H_j = |c| sum |q_l| D_jl, the
 * weights p'_j = p_j e^(h_j) / sum p e^h of |h_j| <= H_j, and sum p_j (v_j - o) = 0,
 *   |o' - o| <= sum p_j (e^(H_j) - 1) |v_j - o| / sum p_j e^(-H_j). */
#include "experiments/checks/check_table.h"
#include "experiments/evidence/probe.h"
#include "experiments/evidence/rows.h"
#include "experiments/evidence/stored_copies.h"

#include <math.h>
#include <string.h>

enum { ROWS = 16 };
static const uint64_t purpose_shift = 0x736d6f6f7468; /* "smooth" */

typedef struct shifted {
  const probe *p;
  stored_copies copies[2];
  head_data stored, moved; /* as the store keeps the probe's keys, and these with w; values alike */
  double *k;               /* [n_kv, d_qk] with w */
  void *given;             /* the same in the probe's type */
  double *reach, *mean;    /* [n_kv, d_qk] D; [2 d_qk] */
  double *o;               /* [n_q, d_v] of them */
} shifted;

static void shifted_free(shifted *x) {
  for (int i = 0; i < 2; i++) stored_copies_free(&x->copies[i]);
  head_data_free(&x->stored);
  head_data_free(&x->moved);
}

static void find_reach(const attn_kv_store *store, int64_t keys, int64_t d, const double *k, shifted *x) {
  const double top = ldexp(1, (int)store->k - (int)ATTN_INT1) - 1;
  double *mean = x->mean, far = 0;
  for (int64_t l = 0; l < d; l++) {
    mean[l] = mean[d + l] = 0;
    for (int64_t i = l; i < keys * d; i += d) mean[l] += k[i], mean[d + l] += x->k[i];
    mean[l] /= (double)keys;
    mean[d + l] /= (double)keys;
    far = fmax(far, fabs(mean[l]) + fabs(mean[d + l]));
  }
  for (int64_t first = 0; first < keys; first += store->group) {
    const int64_t end = (keys - first < store->group ? keys : first + store->group) * d;
    double most = 0, moved = 0, apart = 0;
    for (int64_t i = first * d; i < end; i++) {
      const double own = k[i] - mean[i % d], other = x->k[i] - mean[d + i % d];
      most = fmax(most, fabs(own));
      moved = fmax(moved, fabs(other));
      apart = fmax(apart, fabs(other - own));
    }
    const double error = apart + 5 * 0x1p-24 * (far + most + moved) + 0x1p-140, least = (most - error) / top,
                 room = 2 * error / least + 0x1p-22 * top, all = most + moved + 4 * error;
    for (int64_t i = first * d; i < end; i++) {
      const double quotient = (k[i] - mean[i % d]) * top / most,
                   steps = floor(quotient + room + 0.5) - ceil(quotient - room - 0.5);
      x->reach[i] = least > 0 ? fmin(all, 2 * error + steps * (most + error) / top) : all;
    }
  }
}

/* Fills k and given: w is of the size of the keys, and padding is far from them. */
static void add_vector(shifted *x) {
  const attn_problem *p = &x->p->problem;
  const head_data *h = &x->p->head;
  const int64_t d = p->d_qk, count = p->n_kv * d;
  double size = 0;
  attn_rng rng;
  attn_rng_init(&rng, x->p->e.seed, purpose_shift, 0);
  for (int64_t i = 0; i < h->keys * d; i++) size = fmax(size, fabs(h->k[i]));
  for (int64_t l = 0; l < d; l++) x->mean[l] = size * (attn_rng_uniform(&rng) - 0.5) * 2;
  for (int64_t i = 0; i < count; i++) x->k[i] = i < h->keys * d ? h->k[i] + x->mean[i % d] : 256 * size;
  attn_convert(x->k, ATTN_F64, count, p->dtype, x->given);
  attn_convert(x->given, p->dtype, count, ATTN_F64, x->k);
}

static outcome judge(void *context, int64_t place, int64_t r, row_space *s) {
  shifted *x = context;
  const attn_problem *p = &x->p->problem;
  row_extremes scores;
  double sum = 0;
  row_verdict verdict = probe_bound(x->p, &x->moved, NULL, r, s);
  memcpy(s->kept, s->bound, (size_t)p->d_v * sizeof *s->kept);
  if (verdict == ROW_OK) verdict = row_attend(&x->stored, NULL, s, &scores);
  (void)place;
  if (verdict != ROW_OK) return (outcome){.why = row_reason(verdict)};
  memset(s->bound, 0, (size_t)p->d_v * sizeof *s->bound);
  for (int64_t a = 0; a < s->count; a++) {
    const int64_t j = s->index[a];
    double apart = 0;
    for (int64_t l = 0; l < p->d_qk; l++) apart += fabs(p->scale * s->q[l]) * x->reach[j * p->d_qk + l];
    sum += s->weight[a] * exp(-apart);
    for (int64_t l = 0; l < p->d_v; l++)
      s->bound[l] += s->weight[a] * expm1(apart) * fabs(x->stored.v[j * p->d_v + l] - s->o[l]);
  }
  for (int64_t l = 0; l < p->d_v; l++) {
    s->bound[l] = s->kept[l] + (s->count ? s->bound[l] / sum : 0) + 0x1p-40 * x->stored.v_max;
    if (!isfinite(s->bound[l])) return (outcome){.why = outcome_vacuous};
  }
  return outcome_components(x->o + r * p->d_v, s->o, s->bound, p->d_v);
}

static attn_status run_shifted(region *memory, shifted *x, result_bound *bound) {
  const attn_problem *p = &x->p->problem;
  const head_data *h = &x->p->head;
  const int64_t count = p->n_kv * p->d_qk;
  x->k = region_take(memory, count, sizeof *x->k);
  x->given = region_take(memory, count, sizeof(double));
  x->reach = region_take(memory, count, sizeof *x->reach);
  x->mean = region_take(memory, 2 * p->d_qk, sizeof *x->mean);
  x->o = region_take(memory, p->n_q * p->d_v, sizeof *x->o);
  attn_status status = region_status(memory, "to shift the keys of a probe");
  if (status) return status;
  add_vector(x);
  find_reach(x->p->view.store, h->keys, p->d_qk, h->k, x);
  status = probe_execute(x->p, x->k, h->v, x->o);
  if (!status) status = probe_stored(x->p, x->p->k, &x->copies[0], &x->stored);
  if (!status) status = probe_stored(x->p, x->given, &x->copies[1], &x->moved);
  return status ? status : probe_check(x->p, ROWS, judge, x, bound);
}

static attn_status evaluate(const evidence *e, result_bound *bound) {
  shifted x = {.p = NULL};
  probe *p = NULL;
  if (!(e->view->rounding.unit > 0)) return bound_not_applicable(bound, "the variant describes no rounding");
  attn_status status = probe_get(e, &p);
  if (status) return status;
  if (!p->head.keys) return bound_not_applicable(bound, "no keys");
  if (!p->head.finite) return bound_uncertifiable(bound, "keys or values are not finite");
  x.p = p;
  status = run_shifted(e->memory, &x, bound);
  shifted_free(&x);
  return status;
}

const check check_qnt4 = {
    .name = "QNT-4",
    .of = &of_smoothed_stores,
    .kind = KIND_HARD,
    .statement =
        "adding one vector to all keys before they are stored changes the output by rounding, and by "
        "codes at ties, alone",
    .source =
        "derived: softmax ignores a constant added to a row of scores, and the mean takes the vector away "
        "before codes are chosen (Zhang et al. 2024, arXiv:2410.02367, section 4.2)",
    .formula =
        "|o^(K + 1w') - o|_l <= sum_j p_j (e^(H_j) - 1) |v_jl - o_l| / sum_j p_j e^(-H_j), and rounding as "
        "in FP-1, for a random w of the size of the keys; o and p exact attention to the stored K, H_j = "
        "|c| sum_l |q_l| D_jl. D_jl = 2 E, and (A + E) / (2^(b-1) - 1) for each half-integer within 2 E / s "
        "+ 2^-22 (2^(b-1) - 1) of the exact quotient x_jl / s, a tie of codes; x = k less the mean, A = max "
        "|x| of the group, s its scale, E = what rounding K + 1w' changes of x, and 5 2^-24 (|mean| + "
        "|mean'| + A + A').",
    .cause =
        "a scale that is not that of the keys less their mean, or a mean of other keys: of another head, or "
        "of padding",
    .assumes =
        "Declared: codes are of keys less their mean. Nothing is said of KIVI's channels, whose least value "
        "z is rounded to f16: that moves a key by up to 2^-11 (|z| + |z + w|), which is more than rounding. "
        "Runs the algorithm again on a probe, in which padding is large.",
    .nulls = CHECK_REJECTS_ALL("Gaussian inputs of std 1, n = 96"),
    .evaluate = evaluate,
};
