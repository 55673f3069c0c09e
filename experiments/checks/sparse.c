/* sparse.c - SP-0, SP-1, SP-2: attention on a pattern S of keys, T the others.
 *
 *   o_S - o = t (o_S - o_T),  t = sum of exact weights on T
 *
 * SP-0 looks at what an algorithm reads: it rejects the mean of V and random keys, which read outside S, and
 * is blind to an algorithm that writes zeros whatever it reads. SP-1 compares the output with the identity:
 * it rejects all three wherever they differ from o_S by more than rounding. SP-2 is a bound on the error:
 * when t is not small it is wide, and blind to all three (on Gaussian inputs none of them violates it); where
 * the pattern holds nearly all the mass (keys that match their own query only) it rejects all three. */
#include "checks/table.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static bool has_pattern(const evidence *e, result_bound *bound) {
  if (e->view->pattern) return true;
  bound_not_applicable(bound, "no pattern: every key is kept");
  return false;
}

/* -- SP-0 -- */

enum { TRIES = 16, SMALL = 1024 };
static const uint64_t purpose_poison = 0x706f6973; /* "pois" */

/* Marks the keys that row i of any query head of a key/value line sees. Returns how many of the keys it
 * spares. */
static int64_t line_spares(const evidence *e, int64_t line, int64_t i, attn_run *runs, bool *keep) {
  const attn_problem *p = e->problem;
  int64_t group = p->heads / p->kv_heads, first = line % p->kv_heads * group, count = 0;
  memset(keep, 0, (size_t)p->n_kv * sizeof *keep);
  for (int64_t head = first; head < first + group; head++) {
    int64_t found = attn_pattern_row(e->view->pattern, p, head, i, runs);
    for (int64_t r = 0; r < found; r++)
      for (int64_t c = 0; c < runs[r].count; c++) keep[runs[r].first + c * runs[r].step] = true;
  }
  for (int64_t j = 0; j < p->n_kv; j++) count += !keep[j];
  return count;
}

static void poison_row(void *at, attn_dtype type, int64_t row, int64_t d, double poison) {
  for (int64_t l = row * d; l < (row + 1) * d; l++) {
    if (type == ATTN_F64)
      ((double *)at)[l] = poison;
    else
      ((float *)at)[l] = (float)poison;
  }
}

typedef struct poisoned {
  void *k, *v, *o, *work;
  attn_run *runs;
  bool *keep;
  int64_t *row; /* per key/value line, or -1 */
} poisoned;

/* Chooses a row per line, and poisons the keys and values that it must not read. Returns whether there are
 * any. */
static bool poison_lines(const evidence *e, poisoned *s, uint64_t round, double poison) {
  const attn_problem *p = e->problem;
  bool any = false;
  for (int64_t line = 0; line < p->batch * p->kv_heads; line++) {
    attn_rng rng;
    attn_rng_init(&rng, e->seed, purpose_poison, round * 0x10000u + (uint64_t)line);
    s->row[line] = -1;
    for (int attempt = 0; attempt < TRIES && s->row[line] < 0; attempt++) {
      int64_t i = attn_rng_below(&rng, p->n_q);
      if (line_spares(e, line, i, s->runs, s->keep) > 0) s->row[line] = i;
    }
    if (s->row[line] < 0) continue;
    any = true;
    for (int64_t j = 0; j < p->n_kv; j++) {
      if (s->keep[j]) continue;
      poison_row(s->k, p->dtype, line * p->n_kv + j, p->d_qk, poison);
      poison_row(s->v, p->dtype, line * p->n_kv + j, p->d_v, poison);
    }
  }
  return any;
}

static int64_t rows_changed(const evidence *e, const poisoned *s) {
  const attn_problem *p = e->problem;
  int64_t group = p->heads / p->kv_heads, changed = 0;
  size_t bytes = (size_t)p->d_v * attn_dtype_size(p->dtype);
  for (int64_t line = 0; line < p->batch * p->kv_heads; line++)
    for (int64_t head = 0; head < group && s->row[line] >= 0; head++) {
      size_t at = (size_t)((line * group + head) * p->n_q + s->row[line]) * bytes;
      changed += memcmp((const char *)s->o + at, (const char *)e->o + at, bytes) != 0;
    }
  return changed;
}

static attn_status support_evaluate(const evidence *e, result_bound *bound) {
  if (!has_pattern(e, bound)) return ATTN_OK;
  const attn_problem *p = e->problem;
  size_t size = attn_dtype_size(p->dtype), lines = (size_t)(p->batch * p->kv_heads), n = (size_t)p->n_kv;
  size_t k_bytes = lines * n * (size_t)p->d_qk * size, v_bytes = lines * n * (size_t)p->d_v * size;
  const double poisons[] = {p->dtype == ATTN_F64 ? 1e300 : 1e30, (double)NAN};
  uint64_t rounds = p->n_kv <= SMALL ? 2 : 1;
  poisoned s = {.k = malloc(k_bytes),
                .v = malloc(v_bytes),
                .o = malloc((size_t)(p->batch * p->heads * p->n_q * p->d_v) * size),
                .work = malloc(attn_plan_work_size(e->plan) + 1),
                .runs = calloc((size_t)e->view->pattern->max_runs, sizeof *s.runs),
                .keep = calloc(n, sizeof *s.keep),
                .row = calloc(lines, sizeof *s.row)};
  attn_status status = ATTN_OK;
  int64_t changed = 0, runs = 0;
  if (!s.k || !s.v || !s.o || !s.work || !s.runs || !s.keep || !s.row) {
    status = attn_fail(ATTN_ENOMEM, "no memory to poison keys and values");
    goto out;
  }
  for (uint64_t round = 0; round < 2 * rounds; round++) {
    memcpy(s.k, e->k, k_bytes);
    memcpy(s.v, e->v, v_bytes);
    if (!poison_lines(e, &s, round / 2, poisons[round % 2])) continue;
    status = attn_plan_execute(e->plan, e->q, s.k, s.v, e->kv_len, s.o, s.work);
    if (status != ATTN_OK) goto out;
    changed += rows_changed(e, &s);
    runs++;
  }
  if (runs > 0)
    bound_hard(bound, (double)changed, 0);
  else
    bound_not_applicable(bound, "the pattern keeps every key of every row that was drawn");
out:
  free(s.k);
  free(s.v);
  free(s.o);
  free(s.work);
  free(s.runs);
  free(s.keep);
  free(s.row);
  return status;
}

/* -- SP-1 and SP-2 -- */

/* What is known of a row after the split of its keys. */
typedef struct split {
  double mass; /* t */
  prior exact; /* fp64 error of an exact output */
} split;

/* Sets space->bound and space->o to the rounding bounds and o_S, and t. Returns why it cannot, or NULL. */
static const char *row_split(const row_case *c, split *out) {
  row_space *s = c->space;
  row_support(c->head, c->e->view->pattern, c->row->i, s);
  row_verdict verdict = row_bound(c->head, &c->e->view->rounding, false, NULL, s);
  if (verdict != ROW_OK) return row_reason(verdict);
  double norm = 0;
  for (int64_t l = 0; l < c->e->problem->d_qk; l++) norm += s->q[l] * s->q[l];
  attn_rounding own = row_reference_rounding(c->e->problem, c->keys);
  verdict = row_prior(c->head, &own, sqrt(norm), c->keys, &out->exact);
  if (verdict != ROW_OK) return row_reason(verdict);
  out->mass = 0;
  for (int64_t j = 0; j < c->keys; j++)
    if (!s->inside[j]) out->mass += c->p[j];
  return NULL;
}

/* fp64 error of a component of an exact output. */
static double exact_error(const row_case *c, const prior *exact, int64_t l) {
  const head_data *h = c->head;
  return exact->spread * (h->high[l] - h->low[l]) + exact->growth * fmax(fabs(h->low[l]), fabs(h->high[l])) +
         exact->floor;
}

/* space->kept = o_S and space->left = t o_T by the exact weights, which owe nothing to space->o; but where
 * the kept weights are too small to be normal numbers, o_S is space->o. */
static void weighted_means(const row_case *c) {
  int64_t d_v = c->e->problem->d_v;
  row_space *s = c->space;
  double inside = 0;
  for (int64_t a = 0; a < s->count; a++) inside += c->p[s->index[a]];
  memset(s->kept, 0, (size_t)d_v * sizeof *s->kept);
  memset(s->left, 0, (size_t)d_v * sizeof *s->left);
  for (int64_t j = 0; j < c->keys; j++) {
    const double *v = c->head->v + j * d_v;
    double weight = s->inside[j] ? c->p[j] / inside : c->p[j], *to = s->inside[j] ? s->kept : s->left;
    for (int64_t l = 0; l < d_v; l++) to[l] += weight * v[l];
  }
  if (!(inside > 1e-200)) memcpy(s->kept, s->o, (size_t)d_v * sizeof *s->kept);
}

static outcome judge_identity(const row_case *c) {
  split x;
  const char *why = row_split(c, &x);
  if (why) return (outcome){.why = why};
  row_space *s = c->space;
  weighted_means(c);
  /* left becomes o + t (o_S - o_T). Four fp64 results enter: o, o_S, t o_S and t o_T. */
  for (int64_t l = 0; l < c->e->problem->d_v; l++) {
    s->left[l] = c->o[l] + (x.mass * s->kept[l] - s->left[l]);
    s->bound[l] += 4 * exact_error(c, &x.exact, l);
  }
  return outcome_components(s->given, s->left, s->bound, c->e->problem->d_v);
}

static outcome judge_tail(const row_case *c) {
  split x;
  const char *why = row_split(c, &x);
  if (why) return (outcome){.why = why};
  int64_t d_v = c->e->problem->d_v;
  double error = 0, rounding = 0, far = 0;
  for (int64_t l = 0; l < d_v; l++) {
    double diff = c->space->given[l] - c->o[l], slack = c->space->bound[l] + exact_error(c, &x.exact, l);
    error += diff * diff;
    rounding += slack * slack;
  }
  for (int64_t j = 0; j < c->keys; j++) {
    if (c->space->inside[j]) continue;
    double distance = 0;
    for (int64_t l = 0; l < d_v; l++) {
      double diff = c->head->v[j * d_v + l] - c->space->o[l];
      distance += diff * diff;
    }
    far = fmax(far, distance);
  }
  return (outcome){sqrt(error), x.mass * sqrt(far) + sqrt(rounding), NULL};
}

static double split_cost(const evidence *e) {
  return row_cost(e) + (double)e->problem->n_kv * (double)e->problem->d_v;
}

static attn_status identity_evaluate(const evidence *e, result_bound *bound) {
  return has_pattern(e, bound) ? rows_check(e, split_cost(e), judge_identity, bound) : ATTN_OK;
}

static attn_status tail_evaluate(const evidence *e, result_bound *bound) {
  return has_pattern(e, bound) ? rows_check(e, split_cost(e), judge_tail, bound) : ATTN_OK;
}

const check check_sp0 = {
    .name = "SP-0",
    .kind = KIND_HARD,
    .statement =
        "huge values and NaN in the keys and values outside a row's pattern change no bit of the row",
    .source = "definition of a sparse pattern; blind to an output of zeros",
    .formula = "memcmp(row with K, V outside S(i) set to 1e30 or NaN, row) = 0, of rows drawn at random; "
               "S(i) is the pattern's.",
    .assumes = "The variant has a pattern, and some row leaves a key out.",
    .nulls[CHECK_ZEROS].blind =
        "an algorithm that writes zeros reads nothing, so that no poison reaches it; SP-1 rejects it",
    .nulls[CHECK_MEAN_V].rejected_on =
        "a window of 9 keys claimed, an algorithm that averages all of V: it reads outside",
    .nulls[CHECK_RANDOM_KEYS].rejected_on =
        "a window of 9 keys claimed, an algorithm that keeps one key in four at random: it reads outside",
    .evaluate = support_evaluate,
};

const check check_sp1 = {
    .name = "SP-1",
    .kind = KIND_HARD,
    .statement = "the output is o + t (o_S - o_T), t the exact mass left out, to within rounding",
    .source = "derived: law of total expectation under the exact weights",
    .formula = "S the keys of a row's pattern, T the others, p exact weights, t = sum of p over T: o = "
               "(1 - t) o_S + t o_T, hence o_S = o + t (o_S - o_T). |o^_l - o_Sl| <= FP-1's bound on S "
               "plus four fp64 errors.",
    .assumes = "The variant has a pattern and FP-1's hypotheses hold on it. An equality, so that it is "
               "as sharp for large t as for small.",
    .nulls = CHECK_REJECTS_ALL("Gaussian inputs of std 1, a window of 9 of 96 keys"),
    .evaluate = identity_evaluate,
};

const check check_sp2 = {
    .name = "SP-2",
    .kind = KIND_HARD,
    .statement = "the error of a row is at most t max |v_j - o_S| over the keys left out, plus rounding",
    .source = "derived from SP-1; where t is large, blind to zeros, the mean of V and random keys",
    .formula = "S the keys of a row's pattern, T the others, p exact weights, t = sum of p over T: |o^ - "
               "o| <= t max over j in T of |v_j - o_S| + rounding; attained where V is constant on S and "
               "on T.",
    .assumes = "As SP-1. Wide where t is large: on Gaussian inputs blind to all three nulls (no row "
               "violates it).",
    .nulls = CHECK_REJECTS_ALL(
        "keys that match their own query alone (norm 16), a window of 9 of 96 keys: the window "
        "holds all the mass"),
    .evaluate = tail_evaluate,
};
