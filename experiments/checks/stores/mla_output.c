/* mla_output.c - MLA-1 ... MLA-3: a variant of latents attends to the keys and values that its factors give,
 * whichever path it takes, these are the best of their rank, and the error of the output follows.
 *
 * MLA-1, rounding. In one path k^_jl = sum_e W_le c_je is rounded and then multiplied with q_l, in the other
 * sum_l W_le q_l and then with c_je: either way each product q_l W_le c_je goes through the roundings of two
 * sums, so that a score is off by at most gamma |c| sum_le |q_l||W_le||c_je|, gamma of the chain that the
 * variant states. FP-3 with this in place of |q||k_j|, and with sum_e |W_le||c_je| in place of |v_jl|.
 *
 * MLA-2. With G = X^T X, X = [K | V], and leading eigenvectors W of G + E, which is what an eigensolver
 * gives, |X - X W W^T|_F^2 = tr G - tr W^T G W <= sum over j > r of sigma_j^2 + 2 r |E|, for W's are the
 * largest r eigenvalues of G + E and each is within |E| of G's. Rounding C and W to unit u adds (2 u + u^2)
 * sum_e |c_e||w_e| to the norm. The same of X X^T. With a prompt C is X W, W already rounded: X (W W^T -
 * W' W'^T), |W - W'|_F <= u sqrt(r), adds u (1 + u) sqrt(r) |X|_F. What is shared is fitted by its mean, of
 * which the squares about it are left. A later key x has c = W'^T x + f, |f| <= u |c|, so that W'^T (x - W'
 * c) = (1 - W'^T W') W'^T x - W'^T W' f, |1 - W'^T W'| <= 2 u sqrt(r) + u^2 r: 0 up to (2 sqrt(r) + 2) u |x|.
 *
 * MLA-3 is QNT-2 with what the factors leave in place of the steps of a type; nothing is left for queries of
 * a prompt, whose rounding is FP-3's. */
#include "experiments/checks/check_table.h"
#include "experiments/evidence/cache.h"
#include "experiments/evidence/latent_copies.h"
#include "experiments/evidence/rows.h"
#include "experiments/mathematics/spectrum.h"
#include "experiments/mathematics/vector.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>

enum { EXACT_ROWS = 8, SIDE_MOST = 640 };

static attn_status no_memory(void) { return attn_fail(ATTN_ENOMEM, "no memory for the factors of latents"); }

/* ---- outputs ------------------------------------------------------------------------------------------ */

typedef struct latents {
  const evidence *e;
  latent_run run;
  double *residual; /* [d_v] of a head: the largest |v^_jl - v_jl| */
} latents;

static void latents_free(latents *x) {
  latent_run_free(&x->run);
  free(x->residual);
}

static attn_status latents_make(const evidence *e, latents *x) {
  *x = (latents){.e = e, .residual = calloc((size_t)e->problem->d_v, sizeof *x->residual)};
  if (!x->residual) return no_memory();
  return latent_run_make(e->plan, e->view, e->k, e->v, e->kv_len, &x->run);
}

static bool reads_latents(const latents *x, const row_case *c) {
  return latent_reads(x->e->view->latent, x->e->problem, c->row->i);
}

/* What every row is judged by: support and scores of the head's own keys, and rounding. */
static row_verdict prepare_row(const latents *x, const row_case *c, prior *rounding, double *v_reach) {
  row_support(c->head, NULL, c->row->i, c->space);
  return latent_row_bound(&x->run, c->head, c->space, rounding, v_reach);
}

static outcome judge_product(const row_case *c) {
  const latents *x = c->context;
  row_space *s = c->space;
  prior rounding;
  double v_reach;
  if (!reads_latents(x, c)) return (outcome)OUTCOME_NONE;
  const row_verdict verdict = prepare_row(x, c, &rounding, &v_reach);
  if (verdict != ROW_OK) return (outcome){.why = row_reason(verdict)};
  for (int64_t l = 0; l < x->e->problem->d_v; l++)
    s->bound[l] = latent_off(&rounding, row_range(c->head, l), v_reach);
  return outcome_components(s->given, c->o, s->bound, x->e->problem->d_v);
}

static attn_status judge_products(const evidence *e, result_bound *bound) {
  latents x;
  evidence own = *e;
  exact_rows *exact = NULL;
  attn_status status = latents_make(e, &x);
  own.k = x.run.kept.k;
  own.v = x.run.kept.v;
  own.cache = block_cache_create();
  if (!status && !own.cache) status = no_memory();
  if (!status)
    status = exact_rows_draw(e->problem, e->q, own.k, own.v, e->kv_len, e->seed, EXACT_ROWS, &exact);
  own.exact = exact;
  if (!status)
    status = rows_check_with(&own, row_cost(e), &(rows_judge){.context = &x, .judge = judge_product}, bound);
  exact_rows_free(exact);
  block_cache_free(own.cache);
  latents_free(&x);
  return status;
}

/* -- what is left -- */

static double kept_key(const latents *x, const head_data *h, int64_t j, int64_t l) {
  const attn_problem *p = x->e->problem;
  const int64_t line = h->batch * p->kv_heads + h->head / (p->heads / p->kv_heads);
  return attn_get(x->run.kept.k, (line * p->n_kv + j) * p->d_qk + l, p->dtype);
}

static attn_status find_residuals(void *context, const head_data *h) {
  const latents *x = context;
  const attn_problem *p = x->e->problem;
  const int64_t line = h->batch * p->kv_heads + h->head / (p->heads / p->kv_heads), d = p->d_v;
  for (int64_t l = 0; l < d; l++) x->residual[l] = 0;
  for (int64_t i = 0; i < h->keys * d; i++) {
    const double kept = attn_get(x->run.kept.v, line * p->n_kv * d + i, p->dtype);
    x->residual[i % d] = fmax(x->residual[i % d], fabs(kept - h->v[i]));
  }
  return ATTN_OK;
}

static outcome judge_error(const row_case *c) {
  const latents *x = c->context;
  const attn_problem *p = x->e->problem;
  row_space *s = c->space;
  prior rounding;
  double v_reach, apart = 0;
  const row_verdict verdict = prepare_row(x, c, &rounding, &v_reach);
  if (verdict != ROW_OK) return (outcome){.why = row_reason(verdict)};
  const bool latent = reads_latents(x, c);
  for (int64_t a = 0; a < (latent ? s->count : 0); a++) {
    const int64_t j = s->index[a];
    double off = 0;
    for (int64_t l = 0; l < p->d_qk; l++)
      off += s->q[l] * (kept_key(x, c->head, j, l) - c->head->k[j * p->d_qk + l]);
    apart = fmax(apart, fabs(p->scale * off));
  }
  for (int64_t l = 0; l < p->d_v; l++) {
    const double range = row_range(c->head, l), left = latent ? x->residual[l] : 0;
    s->bound[l] = tanh(apart / 2) * range + left + latent_off(&rounding, range + 2 * left, v_reach);
  }
  return outcome_components(s->given, c->o, s->bound, p->d_v);
}

static attn_status judge_errors(const evidence *e, result_bound *bound) {
  latents x;
  attn_status status = latents_make(e, &x);
  if (!status)
    status = rows_check_with(e, row_cost(e), &(rows_judge){&x, find_residuals, judge_error}, bound);
  latents_free(&x);
  return status;
}

/* ---- factors ------------------------------------------------------------------------------------------ */

/* |X - C W^T|_F^2, |X|_F^2, and sum_e |c_e||w_e|, of the keys to which W is fitted. */
static attn_status residual_of(const latent_factors *f, double *off, double *size, double *terms) {
  double *row = malloc((size_t)f->width * sizeof *row);
  if (!row) return no_memory();
  for (int64_t j = 0; j < f->fitted; j++) {
    const double *x = f->x + j * f->width;
    latent_row(f, j, row);
    *off += vector_distance(x, row, f->width) * vector_distance(x, row, f->width);
    *size += vector_dot_fast(x, x, f->width);
  }
  for (int64_t e = 0; e < f->rank; e++)
    *terms += vector_norm(f->c + e * f->keys, f->fitted) * vector_norm(f->w + e * f->width, f->width);
  free(row);
  return ATTN_OK;
}

static bool is_shared(const attn_latent *law, const attn_problem *p, int64_t at) {
  return at < p->kv_heads * p->d_qk && at % p->d_qk >= p->d_qk - law->shared;
}

/* Squares of the singular values of X, zeros for what is shared, of its fewer rows or columns, with a prompt
 * of its columns. */
static attn_status squares_of(region *memory, const latent_factors *f, const attn_latent *law,
                              const attn_problem *p, int64_t side, double *squares) {
  const int64_t length = f->fitted * f->width / side;
  const bool tall = side == f->width;
  double *turned = region_take(memory, f->fitted * f->width, sizeof *turned);
  const double **rows = region_take(memory, side, sizeof *rows);
  if (region_status(memory, "for the factors of latents")) return ATTN_ENOMEM;
  for (int64_t i = 0; i < f->fitted * f->width; i++) {
    const int64_t j = i / f->width, at = i % f->width;
    turned[tall ? at * f->fitted + j : i] = is_shared(law, p, at) ? 0 : f->x[i];
  }
  for (int64_t i = 0; i < side; i++) rows[i] = turned + i * length;
  return spectrum_squares(rows, side, length, squares);
}

/* Squared distances of what is shared from its mean over kv heads. */
static double apart_of(const latent_factors *f, const attn_latent *law, const attn_problem *p) {
  double sum = 0;
  for (int64_t i = 0; i < f->fitted * law->shared; i++) {
    const double *k = f->x + i / law->shared * f->width + p->d_qk - 1 - i % law->shared;
    double mean = 0;
    for (int64_t h = 0; h < p->kv_heads; h++) mean += k[h * p->d_qk] / (double)p->kv_heads;
    for (int64_t h = 0; h < p->kv_heads; h++) sum += (k[h * p->d_qk] - mean) * (k[h * p->d_qk] - mean);
  }
  return sum;
}

/* Of keys behind the prompt the worst |W^T (x - W c)| / |W_e|, which is 0 of the nearest vector in W's span.
 */
static attn_status judge_later(const latent_factors *f, attn_dtype type, result_bound *bound) {
  const double r = sqrt((double)f->rank), u = attn_numbers[type].unit,
               share = (2 * r + 2) * u * (1 + 4 * r * u) + 16 * (double)f->width * DBL_EPSILON * r;
  double *row = malloc((size_t)f->width * sizeof *row);
  outcome worst = OUTCOME_NONE;
  for (int64_t j = f->fitted; row && j < f->keys; j++) {
    const double *x = f->x + j * f->width, size = vector_norm(x, f->width);
    double sum = 0;
    latent_row(f, j, row);
    for (int64_t l = 0; l < f->width; l++) row[l] = x[l] - row[l];
    for (int64_t e = 0; e < f->rank; e++) {
      const double *w = f->w + e * f->width;
      sum = hypot(sum, vector_dot(w, row, f->width) / vector_norm(w, f->width));
    }
    outcome_worsen(&worst, (outcome){sum, share * size + 8 * r * attn_numbers[type].subnormal,
                                     isfinite(size) ? NULL : "keys or values are not finite"});
  }
  free(row);
  return row ? outcome_to_verdict(&worst, bound) : no_memory();
}

static attn_status judge_residual(const latent_factors *f, const attn_latent *law, const attn_problem *p,
                                  int64_t side, const double *squares, result_bound *bound) {
  const double n = (double)side, u = attn_numbers[p->dtype].unit;
  double off = 0, size = 0, terms = 0, tail = apart_of(f, law, p);
  const attn_status status = residual_of(f, &off, &size, &terms);
  if (status) return status;
  const double solved = spectrum_error(side, f->fitted * f->width / side, size),
               turned = law->prompt ? u * (1 + u) * sqrt((double)f->rank * size) : 0;
  for (int64_t e = side - 1; e >= f->rank - law->shared; e--) tail += squares[e];
  const double rounded = (2 * u + u * u) * terms + turned + 16 * n * DBL_EPSILON * sqrt(size) +
                         attn_numbers[p->dtype].subnormal * sqrt((double)(f->keys * f->width)) * (1 + terms),
               far = sqrt(tail + 3 * n * solved) + rounded,
               near = fmax(0, sqrt(fmax(0, tail - n * solved)) - rounded);
  if (!isfinite(off) || !isfinite(far)) return bound_uncertifiable(bound, "keys or values are not finite");
  if (sqrt(off) < near) return bound_hard(bound, near, sqrt(off));
  bound_hard(bound, sqrt(off), far);
  if (bound->verdict != VERDICT_PASS) return ATTN_OK;
  if (f->keys > f->fitted) return judge_later(f, p->dtype, bound);
  if (size > 0) bound_say(bound, "%.3g of |[K|V]| is left", sqrt(off / size));
  return ATTN_OK;
}

static attn_status judge_factors(const evidence *e, result_bound *bound) {
  const attn_problem *p = e->problem;
  const attn_latent *law = e->view->latent;
  const int64_t batch = (int64_t)(e->seed % (uint64_t)p->batch), keys = evidence_keys(e, batch),
                width = p->kv_heads * (p->d_qk + p->d_v), side = law->prompt || keys > width ? width : keys;
  latent_factors f = {.x = NULL};
  if (!keys) return bound_not_applicable(bound, "no keys");
  if (side > SIDE_MOST)
    return bound_uncertifiable(bound, "more than 640 rows and columns: singular values would cost too much");
  double *squares = region_zeros(e->memory, side, sizeof *squares);
  attn_status status = region_status(e->memory, "for the factors of latents");
  if (!status) status = latent_factors_make(e->plan, law, e->k, e->v, batch, keys, &f);
  if (!status) status = squares_of(e->memory, &f, law, p, side, squares);
  if (status == ATTN_ENUMERIC)
    status = bound_uncertifiable(bound, "keys or values are not finite");
  else if (!status)
    status = judge_residual(&f, law, p, side, squares, bound);
  latent_factors_free(&f);
  return status;
}

#define FACTORS                                                                                              \
  "X = [K | V] of a batch entry, all kv heads side by side, is factored as C W^T; k^_jl = sum_e W_le c_je, " \
  "v^_jl likewise; for a query of the prompt they are k_jl and v_jl. "

const check check_mla1 = {
    .name = "MLA-1",
    .of = &of_latents,
    .kind = KIND_HARD,
    .statement =
        "whichever path is taken, the output is exact attention to the keys and values that the factors give",
    .source = "derived: FP-3, of products of three numbers",
    .formula = FACTORS
    "|o^_l - o_l| <= tanh(H/2) (max_j v^_jl - min_j v^_jl) + G max_jl sum_e |W_le||c_je|, o exact "
    "attention to k^ and v^, H and G as in FP-3 with |c| sum_le |q_l||W_le| max_j |c_je| in "
    "place of |c||q||k_j|, of chains that are longer by d_qk + r + 2 and r + 2 roundings.",
    .cause =
        "W of another head or batch entry, keys and values changed for each other, or another scale in the "
        "space of latents",
    .assumes = "What FP-1 assumes.",
    .nulls = CHECK_REJECTS_ALL("rank 16, Gaussian inputs of std 1, n = 96"),
    .evaluate = judge_products,
};

const check check_mla2 = {
    .name = "MLA-2",
    .of = &of_latents,
    .kind = KIND_HARD,
    .statement = "what the factors leave of keys and values is what the best of their rank leaves, and later "
                 "keys are moved to the nearest vector in their span",
    .source = "Eckart and Young 1936",
    .formula =
        FACTORS "|X - C W^T|_F^2 = sum over e > r of sigma_e(X)^2, up to the roundings of C and W, and of "
                "eigenvalues, X without the s shared columns, whose squares about the mean over kv heads "
                "are added. With a prompt of its keys; of each later one, x = [k | v], |W^T (x - W c)| <= "
                "(2 sqrt(r) + 2) u |x|, columns of W taken as unit vectors. Of one batch entry.",
    .cause =
        "another rank than the one described, other vectors than the leading ones, or latents of another "
        "key",
    .assumes =
        "At most 640 keys, or numbers of a token in all heads, with a prompt the latter; keys and values "
        "are finite.",
    .nulls = CHECK_BLIND("it looks at the factors, not at the output"),
    .evaluate = judge_factors,
};

const check check_mla3 = {
    .name = "MLA-3",
    .of = &of_latents,
    .kind = KIND_HARD,
    .statement = "the output differs from exact attention by no more than what the factors leave allows",
    .source =
        "derived: total variation of two softmaxes whose scores differ by at most H is at most tanh(H/2)",
    .formula =
        FACTORS "|o^_l - o_l| <= tanh(H/2) (max_j v_jl - min_j v_jl) + max_j |v^_jl - v_jl|, and rounding "
                "as in MLA-1, for a query of the prompt as in FP-3; H = max_j |c q.(k^_j - k_j)|.",
    .assumes = "What FP-1 assumes.",
    .nulls = CHECK_REJECTS_ALL("full rank, Gaussian inputs of std 1, n = 96"),
    .evaluate = judge_errors,
};
