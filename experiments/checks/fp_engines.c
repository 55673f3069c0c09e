/* fp_engines.c - FP-6 for linear and compression engines: the run's own output against the same algorithm,
 * with the same draws, in exact arithmetic. Their other checks run in fp64; this one ties the run to them.
 *
 * Linear (Performer kernels). With u the run's unit roundoff, a computed feature differs from f_r(x) by at
 * most positive, hyperbolic  f_r (e^eta - 1) + 2^-126,  eta = gamma_(d+2) |w_r||x| + 6 u |ln f_r| + 6 u trig
 * gamma_(d+2) |w_r||x| + 4 u         relu  gamma_(d+2) |w_r||x|; with weights of a (attn_feature_law)
 * |a||w_r|^2 more in place of |w_r||x|, which is times sqrt(1 - 4a) (the largest exponent of a row is common
 * to its f and its scale, and cancels). Each weight is then off by at most sum_r D_q |f_k| + |f_q| D_k + D_q
 * D_k, and by gamma_(2n+m+64) of its magnitude from the sums, so that |o^_l - o_l| <= sum_j err_j (|v_jl| +
 * |o_l|) / (|Z| - sum_j err_j). Compression: FP-1 on the slots and gamma of the projection's chain for means;
 * for projections of mixed sign no useful bound exists (|E||K| is sqrt(n/k) times |K|), and the difference is
 * reported. Features that are not drawn: against the kernel that their law states (probe_kernel). Rejects
 * zeros, the mean of V and random keys where they differ from the algorithm's output by more than
 * rounding. */
#include "experiments/checks/check_table.h"

#include "experiments/evidence/rows.h"
#include "experiments/evidence/feature_draws.h"

#include <math.h>
#include <stdlib.h>

#include "experiments/mathematics/vector.h"

enum { ROWS = 4 };

typedef struct reduced {
  const evidence *e;
  const probe *p;
  double unit, tiny, huge; /* unit roundoff; the least normal number and the largest */
  bool relative;           /* feature errors are, as those of exponentials; else `absolute` is added */
  double absolute;
  const double *length; /* [m] |w_r| sqrt(scale (1 - 4a)) */
  const double *weight; /* [m] |a| |w_r|^2 */
  int64_t m;
  bool fixed; /* features that are not drawn: by their kernel */
} reduced;

/* Errors of the computed features of a row of norm |x|, times factor. */
static void feature_errors(const reduced *x, const double *f, double norm, double factor, double *error) {
  double chain = gamma_of(x->p->problem.d_qk + 2, x->unit), smallest = 6 * x->unit * (1 - log(x->tiny));
  for (int64_t c = 0; c < x->p->features.columns; c++) {
    double product = chain * (norm * x->length[c % x->m] + x->weight[c % x->m]);
    if (!x->relative) {
      error[c] = factor * (product + x->absolute);
      continue;
    }
    double eta = product + smallest;
    /* e^eta - 1 <= eta + eta^2 up to eta = 1. */
    error[c] = factor * (f[c] * (eta <= 1 ? eta + eta * eta : expm1(eta)) + 2 * x->tiny);
  }
}

/* Sets s->slack to err_j of every key of the support, relative to the largest scale. */
static void weight_errors(const reduced *x, int64_t r, double *q_error, double *k_error, row_space *s) {
  const probe_features *f = &x->p->features;
  int64_t columns = f->columns, d = x->p->problem.d_qk;
  double eps = x->p->view.features->eps, top = -(double)INFINITY, q_norm = vector_norm(s->q, d);
  double growth = gamma_of(2 * x->p->problem.n_kv + columns + 64, x->unit);
  const double *q = f->query + r * columns;
  feature_errors(x, q, q_norm, 1, q_error);
  for (int64_t a = 0; a < s->count; a++) top = fmax(top, f->key_scale[s->index[a]]);
  for (int64_t a = 0; a < s->count; a++) {
    const double *k = f->key + s->index[a] * columns;
    double factor = exp(f->key_scale[s->index[a]] - top),
           k_norm = vector_norm(x->p->head.k + s->index[a] * d, d), sum = 0;
    feature_errors(x, k, k_norm, factor, k_error);
    for (int64_t c = 0; c < columns; c++) {
      double fq = fabs(q[c]) + eps, fk = factor * fabs(k[c]) + eps;
      sum += q_error[c] * fk + fq * k_error[c] + q_error[c] * k_error[c] +
             growth * (fq + q_error[c]) * (fk + k_error[c]) + x->tiny;
    }
    s->slack[a] = sum;
  }
}

/* The sum of a query's features. */
static double query_size(const probe *p, int64_t r) {
  const probe_features *f = &p->features;
  double sum = 0;
  for (int64_t c = 0; c < f->columns; c++) sum += fabs(f->query[r * f->columns + c]) + p->view.features->eps;
  return sum;
}

/* May a feature, a sum of features and values, or a row of it exceed the run's range? Features are relative
 * to scales that are at most the row's, whatever keys came first. */
static bool overflows(const reduced *x, double query, const row_space *s) {
  const probe *p = x->p;
  const probe_features *f = &p->features;
  double eps = p->view.features->eps, keys = 0, least = fmax(1, p->head.v_max);
  for (int64_t a = 0; a < s->count; a++) {
    double most = 0;
    for (int64_t c = 0; c < f->columns; c++) most = fmax(most, fabs(f->key[s->index[a] * f->columns + c]));
    keys += (most + eps) * least;
  }
  return !(fmax(query, 1) * fmax(keys, 1) < x->huge / 4);
}

static outcome judge_linear(const reduced *x, int64_t r, double *errors, row_space *s) {
  const probe *p = x->p;
  int64_t d_v = p->problem.d_v;
  row_verdict verdict = probe_bound(p, &p->head, NULL, r, s);
  if (verdict != ROW_OK) return (outcome){.why = row_reason(verdict)};
  if (s->count == 0) return outcome_components(s->given, s->o, s->bound, d_v);
  const double query = query_size(p, r);
  if (overflows(x, query, s)) return (outcome){.why = row_reason(ROW_OVERFLOW)};
  /* Z again: probe_bound leaves the weights relative to the same scale. */
  double sum = 0, off = 0;
  for (int64_t a = 0; a < s->count; a++) sum += s->weight[a];
  weight_errors(x, r, errors, errors + p->features.columns, s);
  for (int64_t a = 0; a < s->count; a++) off += s->slack[a];
  if (!(fabs(sum) > 2 * off)) return (outcome){.why = row_reason(ROW_CANCELLED)};
  for (int64_t l = 0; l < d_v; l++) {
    /* What underflow takes from products of a key's features and a value. */
    double moved = (double)s->count * x->tiny * ((double)p->features.columns + 4 * query);
    for (int64_t a = 0; a < s->count; a++)
      moved += s->slack[a] * (fabs(p->head.v[s->index[a] * d_v + l]) + fabs(s->o[l]));
    s->bound[l] += moved / (fabs(sum) - off) + x->tiny;
  }
  return outcome_components(s->given, s->o, s->bound, d_v);
}

static outcome judge_fixed(const reduced *x, int64_t r, attn_dtype run, row_space *s) {
  row_verdict verdict = probe_kernel(x->p, run, r, s);
  if (verdict != ROW_OK) return (outcome){.why = row_reason(verdict)};
  return outcome_components(s->given, s->o, s->bound, x->p->problem.d_v);
}

static outcome judge_compression(const reduced *x, int64_t r, row_space *s) {
  const probe *p = x->p;
  int64_t most = p->slots.keys > 0 ? (p->head.keys - 1) / p->slots.keys + 1 : 0;
  row_widen(p->q, ATTN_F64, r * p->problem.d_qk, p->problem.d_qk, s->q);
  row_support(&p->slots, NULL, r, s);
  row_verdict verdict = probe_compression_bound(p, &p->slots, x->unit, most + 3, NULL, s);
  if (verdict != ROW_OK) return (outcome){.why = row_reason(verdict)};
  if (!((double)p->head.keys * p->head.v_max < x->huge / 4))
    return (outcome){.why = row_reason(ROW_OVERFLOW)};
  /* Every product and sum may lose a subnormal part: of the projection, of the slots, and in their scores. */
  double lost = (double)(most + 4 * p->slots.keys + 16) * x->tiny * x->unit;
  for (int64_t l = 0; l < p->problem.d_v; l++) s->bound[l] += lost * 4;
  return outcome_components(s->given, s->o, s->bound, p->problem.d_v);
}

/* A row of the probe, as the run computed it. */
static outcome judge_row(void *context, int64_t place, int64_t r, row_space *s) {
  const reduced *x = context;
  const probe *p = x->p;
  const attn_dtype run = x->e->problem->dtype;
  (void)place;
  row_widen(x->e->o, run, p->rows[r] * p->problem.d_v, p->problem.d_v, s->given);
  if (x->fixed) return judge_fixed(x, r, run, s);
  if (!p->view.features) return judge_compression(x, r, s);
  double *errors = malloc((size_t)(2 * p->features.columns) * sizeof *errors);
  const outcome found =
      errors ? judge_linear(x, r, errors, s) : (outcome){.why = "no memory for the errors of features"};
  free(errors);
  return found;
}

/* No bound: the largest difference from the fp64 run, and the largest element of that. */
static void reduced_report(const evidence *e, const probe *p, result_bound *bound) {
  double most = 0, size = 0;
  for (int64_t r = 0; r < p->problem.n_q; r++)
    for (int64_t l = 0; l < p->problem.d_v; l++) {
      double own = 0, wide = ((const double *)p->o)[r * p->problem.d_v + l];
      row_widen(e->o, e->problem->dtype, p->rows[r] * p->problem.d_v + l, 1, &own);
      most = fabs(own - wide) <= most ? most : fabs(own - wide);
      size = fmax(size, fabs(wide));
    }
  bound_report(bound, most, size);
}

static attn_status linear_evaluate(const evidence *e, probe *p, reduced *x, result_bound *bound) {
  feature_law law;
  x->fixed = e->view->features->law.kind == ATTN_FEATURES_FIXED;
  if (x->fixed) return probe_check(p, ROWS, judge_row, x, bound);
  const char *why = feature_law_of(e->view->features, e->problem->d_qk, &law);
  if (!why && law.kind == ATTN_FEATURES_OTHER) why = "random vectors cannot be read off these features";
  if (why) {
    reduced_report(e, p, bound);
    bound_say(bound, "%s", why);
    return stated_demand(e, bound);
  }
  draws w = {.m = law.m, .d = law.d};
  double *length = calloc(2 * (size_t)w.m + 1, sizeof *length);
  attn_status status =
      length ? probe_map(p) : attn_fail(ATTN_ENOMEM, "no memory for the lengths of random vectors");
  if (!status) status = draws_read(p, &law, &w);
  if (status == ATTN_EUNSUPPORTED) {
    bound_uncertifiable(bound, attn_last_error());
    status = ATTN_OK;
  } else if (!status) {
    for (int64_t r = 0; r < w.m; r++) {
      const double norm = vector_norm(w.w + r * w.d, w.d);
      length[r] = sqrt(p->problem.scale * (1 - 4 * law.a)) * norm;
      length[w.m + r] = fabs(law.a) * norm * norm;
    }
    x->relative = law.kind == ATTN_FEATURES_POSITIVE || law.kind == ATTN_FEATURES_HYPERBOLIC;
    x->absolute = law.kind == ATTN_FEATURES_TRIG ? 4 * x->unit : 0;
    x->length = length;
    x->weight = length + w.m;
    x->m = w.m;
    status = probe_check(p, ROWS, judge_row, x, bound);
  }
  free(length);
  free(w.w);
  return status;
}

static attn_status precision_evaluate(const evidence *e, result_bound *bound) {
  probe *p;
  attn_status status = probe_get(e, &p);
  if (status) return status;
  const attn_number *number = &attn_numbers[e->problem->dtype];
  reduced x = {.e = e, .p = p, .unit = number->unit, .tiny = number->normal, .huge = number->largest / 2};
  if (e->view->features) return linear_evaluate(e, p, &x, bound);
  if (!(e->view->caps & ATTN_CAP_CONVEX)) {
    reduced_report(e, p, bound);
    return ATTN_OK;
  }
  status = probe_compress(p);
  return status ? status : probe_check(p, ROWS, judge_row, &x, bound);
}

const check check_fp6 = {
    .name = "FP-6",
    .of = &of_reduced,
    .kind = KIND_HARD,
    .statement =
        "the run's output is that of the same algorithm and draws in exact arithmetic, to within rounding",
    .source = "derived: errors of features and sums; reported only for projections of mixed sign",
    .formula = "|o^_l - o_l| <= sum_j err_j (|v_jl| + |o_l|) / (|Z| - sum_j err_j), o the fp64 output of the "
               "same features, err_j what the rounding of features and sums adds to a weight; for "
               "projections, FP-1 on the slots and gamma of the projection's chain.",
    .assumes = "The random vectors can be read off the feature map, the law states the kernel, or the "
               "projection's weights are means; reported only otherwise. The denominator is not lost to "
               "cancellation, and no sum of features and values exceeds the run's range. fp32 against fp64 "
               "of the same draws, whose features FAV-9 holds against their definition.",
    .nulls[CHECK_ZEROS].rejected_on =
        "Gaussian inputs of std 0.7, for Performer and for pooling: every row that is looked at",
    .nulls[CHECK_MEAN_V].rejected_on =
        "Gaussian inputs of std 0.7, for Performer and for pooling: every row that is looked at",
    .nulls[CHECK_RANDOM_KEYS].rejected_on =
        "Gaussian inputs of std 0.7, for Performer and for pooling: every row that is looked at",
    .evaluate = precision_evaluate,
};
