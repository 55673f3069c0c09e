/* estimated_sums.c - claims about denominators and outputs that are estimated from drawn keys: vAttention's
 * budget, MagicPIG's weights. */
#include "experiments/claims/estimators.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "attn_variant.h"
#include "experiments/claims/kept.h"
#include "experiments/mathematics/vector.h"

void estimate_free(estimate *e) {
  free(e->o);
  free(e->lse);
  *e = (estimate){NULL, NULL};
}

attn_status estimate_make(const data_qkv *in, bool causal, const char *spec, estimate *out) {
  attn_problem p = data_qkv_problem(in);
  attn_plan *plan = NULL;
  void *work = NULL;
  const size_t rows = (size_t)(p.batch * p.heads * p.n_q);
  p.causal = causal;
  *out = (estimate){calloc(rows * (size_t)p.d_v, attn_dtype_size(p.dtype)), calloc(rows, sizeof(double))};
  attn_status status = attn_plan_create(&plan, &p, spec, NULL);
  if (status) goto out;
  work = malloc(attn_plan_work_size(plan) + 1);
  status = work && out->o && out->lse
               ? attn_plan_execute_lse(plan, in->q, in->k, in->v, NULL, out->o, out->lse, work)
               : attn_fail(ATTN_ENOMEM, "no memory to execute %s", spec);
out:
  attn_plan_destroy(plan);
  free(work);
  return status;
}

/* ---- vAttention -------------------------------------------------------------------------------------- */

#define EPS 0.1
#define DELTA 0.1
enum { DRAWS = 20 };

/* Rows whose denominator is off by more than EPS of it, and of the others those whose output is. */
typedef struct misses {
  int rows, beyond, outputs;
} misses;

static void count_misses(const data_qkv *in, const estimate *exact, const estimate *own, int64_t first,
                         misses *m) {
  const int64_t d = in->d_v;
  for (int64_t row = 0; row < in->heads * in->n_q; row++) {
    if (row % in->n_q < first) continue;
    const bool off = !(fabs(expm1(own->lse[row] - exact->lse[row])) <= EPS);
    double moved = 0, size = 0;
    for (int64_t l = row * d; l < (row + 1) * d; l++) {
      const double x = attn_get(exact->o, l, in->dtype);
      moved += pow(attn_get(own->o, l, in->dtype) - x, 2);
      size += x * x;
    }
    m->rows++;
    m->beyond += off;
    m->outputs += !off && !(sqrt(moved) <= EPS * sqrt(size));
  }
}

/* Over DRAWS seeds; of causal rows those from `first` on. */
static attn_status miss(const claim_options *options, const data_qkv *in, bool causal, int64_t first,
                        const char *spec, misses *m) {
  estimate exact = {NULL, NULL}, own = {NULL, NULL};
  attn_status status = estimate_make(in, causal, "tiled", &exact);
  *m = (misses){0, 0, 0};
  for (int s = 0; s < DRAWS && !status; s++) {
    char seeded[200];
    snprintf(seeded, sizeof seeded, "%s,seed=%llu", spec, (unsigned long long)claim_seed(options, s));
    status = estimate_make(in, causal, seeded, &own);
    if (!status) count_misses(in, &exact, &own, first, m);
    estimate_free(&own);
  }
  estimate_free(&exact);
  return status;
}

#define HEAVY "topk:k=64 + sample:eps=0.1,delta=0.1,base=48,guarantee="

/* Scores N(0, 1): log-normal weights. */
static attn_status vattention_delta(const claim_options *options, claim_report *r) {
  static const struct {
    const char *name, *spec;
  } rules[] = {{"one-sided quantile, as its code", HEAVY "clt,quantile=one"},
               {"two-sided quantile", HEAVY "clt,quantile=two"},
               {"Bernstein's inequality", HEAVY "bernstein"}};
  const claim_run run = {"gaussian", 64, 4096, 64, NULL};
  const claim_figure *share[3] = {NULL};
  data_qkv in = {0};
  attn_status status = claim_inputs(&run, claim_seed(options, 0), &in);
  for (int i = 0; i < 3 && !status; i++) {
    misses m;
    status = miss(options, &in, false, 0, rules[i].spec, &m);
    if (!status)
      share[i] = figure_share(claim_add(r, i ? CLAIM_UNSAID : DELTA, "share of rows with |D~ - D| > %g D, %s",
                                        EPS, rules[i].name),
                              m.beyond, m.rows, "rows and draws");
  }
  data_qkv_free(&in);
  if (status) return status;
  if (share[0]->low > DELTA) r->word = CLAIM_DERIVED;
  return ATTN_OK;
}
const claim claim_vattention_delta = {
    "vattention-delta",
    "by the one-sided quantile of vAttention's code more than a share delta of the rows have a denominator "
    "that is off by more than eps",
    "the code of Desai et al. 2025 (arXiv:2510.05688); its guarantee as recalled", vattention_delta};

/* An output is far from exact in rows whose denominator is not: V is random, so |o| is far below |V|. */
static attn_status vattention_output(const claim_options *options, claim_report *r) {
  const claim_run run = {"gaussian", 64, 4096, 64, NULL};
  const claim_figure *share[2] = {NULL};
  attn_status status = ATTN_OK;
  for (int i = 0; i < 2 && !status; i++) {
    misses m;
    data_qkv in = {0};
    status = i ? claim_tensors(options, 1024, &in) : claim_inputs(&run, claim_seed(options, 0), &in);
    if (!status) status = miss(options, &in, i, i ? 512 : 0, HEAVY "clt", &m);
    if (!status)
      share[i] = figure_share(
          claim_add(r, CLAIM_UNSAID, "share of rows with |o~ - o| > %g |o| though |D~ - D| <= %g D, %s", EPS,
                    EPS, i ? claim_tensors_name(options) : "normal scores and values"),
          m.outputs, m.rows - m.beyond, "rows and draws");
    data_qkv_free(&in);
  }
  if (status) return status;
  if (share[0]->low > DELTA && share[1]->low > DELTA)
    r->word = CLAIM_DERIVED;
  else if (share[0]->low > DELTA)
    claim_holds_under(r, "values about 0, as drawn ones are");
  return ATTN_OK;
}
const claim claim_vattention_output = {
    "vattention-output",
    "a denominator within eps leaves the output off by more than eps of the output's norm in more than a "
    "share "
    "delta of the rows",
    "about the guarantee of Desai et al. 2025 (arXiv:2510.05688), as recalled", vattention_output};

/* ---- MagicPIG ---------------------------------------------------------------------------------------- */

enum { SEEDS = 200 };
#define FEW_TABLES "lsh_tail:k=7,l=4,hits=1,centre=no,seed="

/* Of a draw: the means over rows of D~/D - 1, of (N~ - D~ o).o / (D |o|^2), whose mean over draws is 0 where
 * both are unbiased, and of o~.o / |o|^2 - 1, the bias of their ratio. */
static attn_status biases_of(const data_qkv *in, const estimate *exact, const char *spec, double *out) {
  estimate own;
  attn_status status = estimate_make(in, false, spec, &own);
  const double *o = exact->o, *e = own.o;
  out[0] = out[1] = out[2] = 0;
  for (int64_t i = 0; i < in->n_q && !status; i++) {
    const double share = exp(own.lse[i] - exact->lse[i]),
                 size = vector_dot(o + i * in->d_v, o + i * in->d_v, in->d_v),
                 along = vector_dot(e + i * in->d_v, o + i * in->d_v, in->d_v) / size - 1;
    out[0] += (share - 1) / (double)in->n_q;
    out[1] += share * along / (double)in->n_q;
    out[2] += along / (double)in->n_q;
  }
  estimate_free(&own);
  return status;
}

/* Values are the keys, so that outputs are not about 0. */
static attn_status magicpig_unbiased(const claim_options *options, claim_report *r) {
  static const char *const names[] = {"bias of the denominator", "bias of the numerator along the output",
                                      "bias of the output along itself, their ratio"};
  const claim_run run = {"gaussian", 32, 128, 32, NULL};
  const claim_figure *f[3];
  double bias[3][SEEDS], own[3];
  data_qkv in = {0};
  estimate exact = {NULL, NULL};
  attn_status status = claim_inputs(&run, claim_seed(options, 0), &in);
  if (!status) memcpy(in.v, in.k, (size_t)(in.n_kv * in.d_v) * sizeof(double));
  if (!status) status = estimate_make(&in, false, "tiled", &exact);
  for (int s = 0; s < SEEDS && !status; s++) {
    char spec[120];
    snprintf(spec, sizeof spec, FEW_TABLES "%llu",
             (unsigned long long)options->seed * SEEDS + (unsigned long long)s);
    status = biases_of(&in, &exact, spec, own);
    for (int i = 0; i < 3; i++) bias[i][s] = own[i];
  }
  estimate_free(&exact);
  data_qkv_free(&in);
  if (status) return status;
  r->level = 0.9999;
  for (int i = 0; i < 3; i++) f[i] = figure_mean(claim_add(r, 0, "%s", names[i]), bias[i], SEEDS, "draws");
  r->telling = 2;
  if (!figure_holds(f[0], 0) || !figure_holds(f[1], 0))
    r->word = CLAIM_REFUTED;
  else if (figure_holds(f[2], 0))
    r->word = CLAIM_REPRODUCED;
  else
    claim_holds_under(r, "numerator and denominator each; not their ratio, the output");
  return ATTN_OK;
}
const claim claim_magicpig_unbiased = {"magicpig-unbiased",
                                       "sampling by hashing with exact weights is unbiased",
                                       "Chen et al. 2024 (arXiv:2410.16179), as recalled", magicpig_unbiased};

/* Errors of rows with the weights of the kept keys and without. */
typedef struct compared {
  double *log_ratio;
  int count;
} compared;

static void compare(const kept_subject *s, int64_t r, const bool *inside, const double *log_weights,
                    void *context) {
  compared *c = context;
  const data_qkv *in = &s->in;
  const sample_row *row = &s->x->rows[r];
  const double *p = s->x->p + r * s->p.n_kv, *o = s->x->o + r * in->d_v;
  const void *v = attn_at(in->v, (row->head / (in->heads / in->kv_heads)) * in->n_kv * in->d_v, in->dtype);
  double *sums = calloc((size_t)(2 * in->d_v), sizeof *sums), mass[2] = {0, 0}, off[2] = {0, 0};
  for (int64_t j = 0; sums && j < s->x->keys[r]; j++)
    for (int side = 0; side < 2 && inside[j]; side++) {
      const double w = p[j] * (side ? 1 : exp(log_weights[j]));
      mass[side] += w;
      for (int64_t l = 0; l < in->d_v; l++)
        sums[side * in->d_v + l] += w * attn_get(v, j * in->d_v + l, in->dtype);
    }
  for (int side = 0; sums && side < 2; side++)
    for (int64_t l = 0; l < in->d_v; l++) off[side] += pow(sums[side * in->d_v + l] / mass[side] - o[l], 2);
  if (sums) c->log_ratio[c->count++] = log(sqrt(off[1] / off[0]));
  free(sums);
}

static attn_status magicpig_weights(const claim_options *options, claim_report *r) {
  kept_subject s;
  compared c = {NULL, 0};
  attn_status status = kept_subject_make(options, &s);
  if (!status && !(c.log_ratio = calloc((size_t)s.x->count + 1, sizeof *c.log_ratio)))
    status = attn_fail(ATTN_ENOMEM, "no memory for the rows of a claim");
  if (!status) status = kept_rows(&s, "streaming:sink=4,window=64 + lsh_tail:k=10,l=150", compare, &c);
  if (!status) {
    const claim_figure *f =
        figure_mean(claim_add(r, CLAIM_UNSAID, "log of the error without weights over that with them, %s",
                              claim_tensors_name(options)),
                    c.log_ratio, c.count, "rows");
    if (f->low > log(2))
      r->word = CLAIM_REPRODUCED;
    else if (f->low > 0)
      claim_holds_under(r, "less than a factor of two: the kept keys count, hardly their weights");
  }
  free(c.log_ratio);
  kept_subject_free(&s);
  return status;
}
const claim claim_magicpig_weights = {"magicpig-weights-matter",
                                      "the weights of sampled keys, not the choice of keys alone, make the "
                                      "output near to exact (half the error)",
                                      "Chen et al. 2024 (arXiv:2410.16179), as recalled", magicpig_weights};
