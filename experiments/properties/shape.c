/* shape.c - PROP-PREFIX, PROP-BATCH, PROP-GQA: the same rows within a longer sequence, among other batch
 * entries, and with keys and values repeated for every head. */
#include "experiments/properties/property.h"

#include <math.h>
#include <stdlib.h>

double trial_rounding(const trial *t) {
  const attn_rounding *r = &t->view.rounding;
  return sqrt(attn_numbers[t->in.problem.dtype].unit) + 16 * r->operand + 4 * r->weight;
}

double trial_apart(const trial *t) {
  return trial_exempt(t, ATTN_EXEMPT_BITS) ? trial_rounding(t) * sqrt(3) : 0;
}

/* A run of a problem like the trial's, on its first rows, from a batch entry on. UNSUPPORTED: none. */
static attn_status run_part(const trial *t, attn_problem p, int64_t first, trial_inputs *in, char **o) {
  const attn_status status = trial_inputs_gather(t->memory, &t->in, &p, first, in);
  return status ? status : trial_run(t, in, 1, POISON_NAN, o);
}

static attn_status prefix_judge(const trial *t, result_bound *bound) {
  const int64_t n = t->in.problem.n_q, lengths[] = {1, 33, 64, 97, 130, n - 1};
  const char *exempt = trial_exempt(t, ATTN_EXEMPT_PREFIX | ATTN_EXEMPT_LOOKAHEAD);
  if (!t->in.problem.causal)
    return bound_not_applicable(bound, "not causal: every row sees the whole sequence");
  if (exempt) return bound_not_applicable(bound, exempt);
  difference found = {.count = 0};
  int compared = 0;
  for (size_t m = 0; m < sizeof lengths / sizeof *lengths; m++) {
    attn_problem p = t->in.problem;
    trial_inputs in;
    char *o;
    p.n_q = p.n_kv = lengths[m];
    if (lengths[m] >= n || lengths[m] < 1) continue;
    const attn_status status = run_part(t, p, 0, &in, &o);
    if (status == ATTN_EUNSUPPORTED) continue;
    if (status) return status;
    compared++;
    difference here = {.count = 0};
    difference_all(&here, &in, o, &t->in, t->o);
    here.in = &t->in;
    if (here.largest > found.largest) found = here;
  }
  if (!compared) return bound_not_applicable(bound, "the variant takes no shorter sequence");
  return difference_settle(&found, trial_rounding(t) * sqrt(3), "without the tokens behind it", bound);
}

/* A run with the log-sum-exps, where the variant gives them. */
static attn_status run_sums(const trial *t, trial_inputs *in, char **o) {
  const attn_problem *p = &in->problem;
  in->lse = NULL;
  if (t->view.caps & ATTN_CAP_LSE)
    in->lse = region_zeros(t->memory, p->batch * p->heads * p->n_q, sizeof *in->lse);
  const attn_status status = region_status(t->memory, "for the sums of a trial");
  return status ? status : trial_run(t, in, 1, POISON_NAN, o);
}

/* The largest difference of the log-sum-exps of entry b among others and alone. */
static double sums_apart(const trial_inputs *whole, const trial_inputs *alone, int64_t b) {
  const int64_t rows = whole->problem.heads * whole->problem.n_q;
  double most = 0;
  for (int64_t i = 0; whole->lse && i < rows; i++) {
    const double x = whole->lse[b * rows + i], y = alone->lse[i];
    if (x < y || x > y || isnan(x) != isnan(y))
      most = fmax(most, isfinite(x - y) ? fabs(x - y) : (double)INFINITY);
  }
  return most;
}

/* Entries among others and alone, of the lengths in turn; NULL: whole. */
static attn_status judge_entries(const trial *t, const int64_t lengths[2], result_bound *bound) {
  difference found = {.count = 0};
  double sums = 0;
  trial_inputs whole = t->in;
  char *o, *own;
  whole.padded = lengths;
  for (int64_t b = 0; lengths && b < whole.problem.batch; b++) whole.kv_len[b] = lengths[b % 2];
  attn_status status = run_sums(t, &whole, &o);
  for (int64_t b = 0; !status && b < whole.problem.batch; b++) {
    attn_problem p = whole.problem;
    trial_inputs in;
    p.batch = 1;
    if ((status = trial_inputs_gather(t->memory, &whole, &p, b, &in))) break;
    in.padded = whole.padded;
    in.kv_len[0] = whole.kv_len[b];
    if ((status = run_sums(t, &in, &own))) break;
    for (int64_t h = 0; h < p.heads; h++) difference_rows(&found, &whole, o, b, h, 0, p.n_q, &in, own, 0);
    sums = fmax(sums, sums_apart(&whole, &in, b));
  }
  /* Who refuses such lengths is judged by whole entries. */
  if (status == ATTN_EUNSUPPORTED) return lengths ? ATTN_OK : bound_not_applicable(bound, attn_last_error());
  if (status) return status;
  difference_settle(&found, trial_apart(t), "among other batch entries", bound);
  if (bound->verdict == VERDICT_VIOLATED || sums <= trial_apart(t)) return ATTN_OK;
  bound_property(bound, sums, trial_apart(t));
  bound_say(bound, "among other batch entries a log-sum-exp is another, by %.7g", sums);
  return ATTN_OK;
}

static attn_status batch_judge(const trial *t, result_bound *bound) {
  const int64_t n = t->in.problem.n_kv, lengths[][2] = {{n - 5, n / 3}, {0, n}};
  const char *exempt = trial_exempt(t, ATTN_EXEMPT_BATCH);
  if (exempt) return bound_not_applicable(bound, exempt);
  if (t->in.problem.batch < 2) return bound_not_applicable(bound, "the variant takes one batch entry alone");
  attn_status status = judge_entries(t, NULL, bound);
  for (int l = 0; l < 2 && t->view.caps & ATTN_CAP_PADDING; l++)
    if (!status && bound->verdict == VERDICT_PASS) status = judge_entries(t, lengths[l], bound);
  return status;
}

static attn_status group_judge(const trial *t, result_bound *bound) {
  attn_problem p = t->in.problem;
  const char *exempt = trial_exempt(t, ATTN_EXEMPT_GROUPS);
  trial_inputs in;
  char *o;
  if (exempt) return bound_not_applicable(bound, exempt);
  if (p.kv_heads == p.heads) return bound_not_applicable(bound, "the variant takes no grouped heads");
  p.kv_heads = p.heads;
  const attn_status status = run_part(t, p, 0, &in, &o);
  if (status == ATTN_EUNSUPPORTED) return bound_not_applicable(bound, attn_last_error());
  if (status) return status;
  difference found = {.count = 0};
  difference_all(&found, &t->in, t->o, &in, o);
  return difference_settle(&found, trial_apart(t), "with grouped heads", bound);
}

PROPERTY(prefix)
const check check_prop_prefix = {
    .name = "PROP-PREFIX",
    .of = &of_any,
    .kind = KIND_PROPERTY,
    .statement = "the first rows of a causal sequence are those of the sequence that ends with them",
    .source = "the definition of a causal mask; generation token by token relies on it",
    .formula = "Rows 0 ... m - 1 of the run at n against the run at n' = m, for m = 1, 33, 64, 97, 130, n - "
               "1: bitwise, or within sqrt(u) max |V| where a shorter sequence is summed in another order.",
    .assumes =
        "Causal, and no exemption (ATTN_EXEMPT_PREFIX, ATTN_EXEMPT_LOOKAHEAD). Block sizes are pinned.",
    .cause = "draws, landmarks or block borders depend on the length: draw by position, head and block alone",
    .nulls = PROPERTY_BLIND,
    .evaluate = prefix_evaluate,
};

PROPERTY(batch)
const check check_prop_batch = {
    .name = "PROP-BATCH",
    .of = &of_any,
    .kind = KIND_PROPERTY,
    .statement = "a batch entry alone gives bitwise what it gives among others",
    .source = "batch entries are independent",
    .formula =
        "Each entry is run alone; entries have different inputs, so that one that is ignored shows, and, "
        "where the variant takes padding, also different lengths, of which one is 0. The log-sum-exp "
        "likewise, where it is given.",
    .assumes = "The variant declares no exemption (ATTN_EXEMPT_BATCH).",
    .cause = "an offset without the batch entry's stride, or draws and work memory indexed by the entry",
    .nulls = PROPERTY_BLIND,
    .evaluate = batch_evaluate,
};

PROPERTY(group)
const check check_prop_gqa = {
    .name = "PROP-GQA",
    .of = &of_any,
    .kind = KIND_PROPERTY,
    .statement = "heads that share keys and values give bitwise what they give with copies of their own",
    .source = "Ainslie et al. 2023, arXiv:2305.13245: query head h reads key head h / group",
    .formula = "heads over kv_heads against heads over heads with K and V repeated.",
    .assumes = "No exemption (ATTN_EXEMPT_GROUPS): with draws of its own for each kv head a variant computes "
               "something else for repeated heads.",
    .cause = "a head reads the key head of its own number instead of h / group",
    .nulls = PROPERTY_BLIND,
    .evaluate = group_evaluate,
};
