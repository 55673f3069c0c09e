/* length.c - PROP-LEN and PROP-LONG: at lengths beside those of tiles, chunks and slices, and at one that has
 * many of them, the output is that of the definition. */
#include "experiments/properties/definition.h"

#include <math.h>
#include <stdlib.h>

/* The row with the largest error in units of what rounding may do. */
typedef struct worst {
  double ratio, expected, got;
  int64_t rows; /* that were judged */
  attn_problem problem;
  int64_t batch, head, row, component;
} worst;

/* At most so much may a row's rounding be amplified for the row to be judged. */
static const double amplified_max = 1e3;

static void judge_row(definition *d, const char *o, int64_t i, double rounding, double *own, worst *w) {
  const attn_problem *p = d->e.problem;
  const double amplified = definition_row(d, i, own);
  double most = 0;
  if (!(amplified < (definition_divides(d->e.view) ? amplified_max : (double)INFINITY))) return;
  for (int64_t l = 0; l < p->d_v; l++) most = fmax(most, fabs(own[l]));
  w->rows++;
  for (int64_t l = 0; l < p->d_v; l++) {
    const double got = attn_get(o, ((d->head.batch * p->heads + d->head.head) * p->n_q + i) * p->d_v + l,
                                p->dtype),
                 ratio = fabs(got - own[l]) / (rounding * amplified * fmax(most, sqrt(3)));
    if (ratio <= w->ratio) continue;
    *w = (worst){
        isnan(ratio) ? (double)INFINITY : ratio, own[l], got, w->rows, *p, d->head.batch, d->head.head, i, l};
  }
}

/* Rows of each head: the first, the last, and others that differ from head to head. */
static attn_status judge_length(const trial *t, const attn_plan *plan, const trial_inputs *in, const char *o,
                                worst *w) {
  const attn_problem *p = &in->problem;
  attn_view view;
  attn_status status = attn_plan_inspect(plan, &view);
  double *own = region_take(t->memory, p->d_v, sizeof *own);
  if (!status) status = region_status(t->memory, "for a row");
  for (int64_t line = 0; !status && line < p->batch * p->heads; line++) {
    definition d;
    const int64_t n = p->n_q,
                  rows[] = {0, n - 1, (n / 3 + 7 * line) % n, (n / 2 + 11 * line) % n, 64 * (1 + line) % n};
    if ((status = definition_make(plan, &view, in, line / p->heads, line % p->heads, &d))) break;
    for (size_t r = 0; r < sizeof rows / sizeof *rows; r++)
      judge_row(&d, o, rows[r], trial_rounding(t), own, w);
    definition_free(&d);
  }
  return status;
}

/* A run of a problem on the trial's numbers. */
static attn_status judge_other(const trial *t, const attn_problem *p, const int64_t *kv_len, worst *w) {
  attn_options options = t->options;
  trial_inputs in = {.padded = false};
  attn_plan *plan = NULL;
  char *o = NULL;
  attn_status status = trial_inputs_gather(t->memory, &t->in, p, 0, &in);
  in.padded = kv_len;
  for (int64_t b = 0; !status && kv_len && b < p->batch; b++) in.kv_len[b] = kv_len[b];
  if (!status) status = attn_plan_create_spec(&plan, &in.problem, t->spec, &options);
  if (!status) status = trial_execute(t->memory, plan, &in, POISON_NAN, &o);
  if (!status) status = judge_length(t, plan, &in, o, w);
  attn_plan_destroy(plan);
  return status == ATTN_EUNSUPPORTED || status == ATTN_EINVAL ? ATTN_OK
                                                              : status; /* a problem it does not take */
}

static attn_status judge_shorter(const trial *t, int64_t n, worst *w) {
  attn_problem p = t->in.problem;
  p.n_q = p.n_kv = n;
  p.batch = 1;
  return judge_other(t, &p, NULL, w);
}

/* What the trial has not: groups of three heads and one key head for all, more batch entries, padding, fewer
 * queries than keys down to the one of a step of generation. */
static attn_status judge_crowds(const trial *t, worst *w) {
  static const struct {
    int64_t batch, heads, kv_heads, n_q, n_kv, kv_len[TRIAL_BATCH];
  } crowds[] = {{3, 6, 2, 40, 67, {67, 44, 66}},
                {5, 8, 1, 1, 130, {130, 1, 128, 77, 129}},
                {4, 3, 3, 5, 64, {64, 63, 5, 33}}};
  attn_status status = ATTN_OK;
  for (size_t c = 0; !status && c < sizeof crowds / sizeof *crowds; c++) {
    attn_problem p = t->in.problem;
    p.batch = crowds[c].batch;
    p.heads = crowds[c].heads;
    p.kv_heads = p.kv_heads < t->in.problem.heads ? crowds[c].kv_heads : p.heads;
    p.n_kv = crowds[c].n_kv;
    p.n_q = t->view.caps & ATTN_CAP_CROSS ? crowds[c].n_q : p.n_kv;
    status = judge_other(t, &p, t->view.caps & ATTN_CAP_PADDING ? crowds[c].kv_len : NULL, w);
  }
  return status;
}

static const char undefined[] =
    "no definition: the variant describes no pattern, selector, features, recurrence, projection or low rank";

static attn_status settle(const worst *w, result_bound *bound) {
  if (!w->rows) return bound_uncertifiable(bound, "the weights of every row cancel");
  bound_property(bound, w->ratio, 1);
  if (bound->verdict == VERDICT_VIOLATED)
    bound_say(bound,
              "%lld queries, %lld keys, %lld heads on %lld: batch %lld, head %lld, row %lld, component %lld "
              "is %.7g, by the definition %.7g",
              (long long)w->problem.n_q, (long long)w->problem.n_kv, (long long)w->problem.heads,
              (long long)w->problem.kv_heads, (long long)w->batch, (long long)w->head, (long long)w->row,
              (long long)w->component, w->got, w->expected);
  return ATTN_OK;
}

static attn_status length_judge(const trial *t, result_bound *bound) {
  static const int64_t lengths[] = {1, 65, 130};
  const char *exempt = trial_exempt(t, ATTN_EXEMPT_LENGTH);
  if (exempt) return bound_not_applicable(bound, exempt);
  if (!definition_exists(&t->view)) return bound_excuse(bound, VERDICT_UNCHECKED, undefined);
  worst w = {.ratio = 0};
  attn_status status = judge_length(t, t->plan, &t->in, t->o, &w);
  for (size_t m = 0; !status && m < sizeof lengths / sizeof *lengths; m++)
    status = judge_shorter(t, lengths[m], &w);
  if (!status) status = judge_crowds(t, &w);
  if (status) return status;
  return settle(&w, bound);
}

/* -- one long head -- */

/* Rows at the edges of tiles, chunks, slices and steps, of which there are many here, and between them. */
enum { LONG_ROWS = 80 };

static attn_status judge_long(const trial *t, const attn_plan *plan, const trial_inputs *in, const char *o,
                              worst *w) {
  const int64_t n = in->problem.n_q, edges[] = {1, 256, 288, 384, 512, 768, 1024, 1056, 1536, 2048, n};
  int64_t rows[LONG_ROWS], count = 0;
  attn_view view;
  attn_rng rng;
  definition d;
  double *own = region_take(t->memory, in->problem.d_v, sizeof *own);
  attn_status status = region_status(t->memory, "for a row");
  if (!status) status = attn_plan_inspect(plan, &view);
  if (!status) status = definition_make(plan, &view, in, 0, 0, &d);
  if (status) return status;
  for (size_t e = 0; e < sizeof edges / sizeof *edges; e++)
    for (int64_t i = edges[e] - 1; i <= edges[e] && i < n && edges[e] <= n; i++) rows[count++] = i;
  attn_rng_init(&rng, 7, 0, 0);
  rows_spread(&rng, n, LONG_ROWS - count, rows + count);
  for (int r = 0; r < LONG_ROWS; r++) judge_row(&d, o, rows[r], trial_rounding(t), own, w);
  definition_free(&d);
  return ATTN_OK;
}

/* Narrow rows where the variant takes them; the sizes of blocks are those of any run. */
static attn_status plan_long(const trial *t, attn_problem *p, attn_plan **plan) {
  static const int64_t lengths[] = {2309, 2304, 2048};
  attn_options options = t->options;
  attn_status status = ATTN_OK;
  options.blocks = (attn_blocks){0, 0};
  for (int wide = 0; wide < 2; wide++)
    for (size_t l = 0; l < sizeof lengths / sizeof *lengths; l++) {
      *p = t->in.problem;
      p->batch = p->heads = p->kv_heads = 1;
      p->q = p->k = p->v = p->o = (attn_stride){0};
      p->n_q = p->n_kv = lengths[l];
      if (!wide && p->d_qk > 16) p->d_qk = 16;
      if (!wide && p->d_v > 9) p->d_v = 9;
      status = attn_plan_create_spec(plan, p, t->spec, &options);
      if (status != ATTN_EUNSUPPORTED && status != ATTN_EINVAL) return status;
    }
  return attn_fail(ATTN_EUNSUPPORTED, "%s", attn_last_error());
}

static attn_status long_judge(const trial *t, result_bound *bound) {
  const char *exempt = trial_exempt(t, ATTN_EXEMPT_LENGTH);
  if (exempt) return bound_not_applicable(bound, exempt);
  if (!definition_exists(&t->view)) return bound_excuse(bound, VERDICT_UNCHECKED, undefined);
  worst w = {.ratio = 0};
  attn_problem p;
  attn_plan *plan = NULL;
  trial_inputs in = {.padded = false};
  char *o = NULL;
  attn_status status = plan_long(t, &p, &plan);
  if (status == ATTN_EUNSUPPORTED) return bound_not_applicable(bound, attn_last_error());
  if (!status) status = trial_inputs_draw(t->memory, &p, 5, &in);
  if (!status) status = trial_execute(t->memory, plan, &in, POISON_NAN, &o);
  if (!status) status = judge_long(t, plan, &in, o, &w);
  attn_plan_destroy(plan);
  return status ? status : settle(&w, bound);
}

PROPERTY(length)
const check check_prop_len = {
    .name = "PROP-LEN",
    .of = &of_any,
    .kind = KIND_PROPERTY,
    .statement =
        "at odd lengths, with grouped heads and padding, the output is that of the variant's definition",
    .source = "the definition: softmax over the pattern's or the selected keys, the quotient of feature "
              "products, or softmax over projected keys, in fp64",
    .formula =
        "measured: |o^ - o| in units of sqrt(u) max(|o|, 1.7) (sum |w_j| / |sum w_j|), the largest "
        "over rows at the edges and inside, for every head, at n = 1, 65, 130 and the trial's own "
        "length; of 40 queries over 67 keys with three batch entries and groups of three heads, of one query "
        "over 130 keys with five entries and eight heads on one, and of 5 over 64, with padding, as far as "
        "declared.",
    .assumes = "The view has a pattern, a selector, features, a projection or a low rank, or declares that "
               "the variant is exact; else unchecked. Rows whose weights cancel a thousandfold are left out.",
    .cause = "the last keys of a length that is no multiple of the block are lost, a sum is not normalised, "
             "or the wrong head's keys, draws or state are used; with fewer queries than keys: query i has "
             "position i + n_kv - n_q",
    .nulls = CHECK_BLIND("it runs the variant on separate problems, and looks at no output of the run"),
    .evaluate = length_evaluate,
};

PROPERTY(long)
const check check_prop_long = {
    .name = "PROP-LONG",
    .of = &of_any,
    .kind = KIND_PROPERTY,
    .statement =
        "over a long sequence, of many tiles and chunks, the output is that of the variant's definition",
    .source = "as PROP-LEN",
    .formula = "measured: as PROP-LEN, of 80 rows of one narrow head at n = 2309 (or 2304, 2048): the first, "
               "the last, those at edges of blocks of the usual sizes, and others between.",
    .assumes = "As PROP-LEN.",
    .cause = "something is sized, drawn or carried over for a few blocks only: a state that is not passed on "
             "to the next chunk, an index that wraps, a limit on the number of runs or steps",
    .nulls = CHECK_BLIND("it runs the variant on separate problems, and looks at no output of the run"),
    .evaluate = long_evaluate,
};
