/* term.c - see term.h. A pattern and attention to every key are selections, too: of the runs that the query
 * sees. */
#include "core/expression/term.h"

#include <stdio.h>
#include <string.h>

/* The last failure again, at the term's place. */
static attn_status fail_here(const term *t, attn_status status) {
  char why[400];
  if (status == ATTN_ENOMEM) return status;
  snprintf(why, sizeof why, "%s", attn_last_error());
  return expression_refuse_part(status, t->of, why);
}

/* Terms are joined in runs of step 1. */
static attn_status check_pieces(const term *t, const attn_run *runs, int64_t count, int64_t query) {
  int64_t pieces = 0;
  for (int64_t r = 0; r < count; r++) pieces += runs[r].step == 1 ? 1 : runs[r].count;
  if (t->pattern.max_pieces || pieces <= t->max_runs) return ATTN_OK;
  return attn_fail(
      ATTN_EINVAL,
      "variant %s: the keys of query %lld are %lld runs of step 1, and max_runs = %lld: a pattern "
      "whose runs have other steps states max_pieces to be a term",
      t->context.variant->name, (long long)query, (long long)pieces, (long long)t->max_runs);
}

/* Rows as the engine reads those of a pattern alone: what breaks the contract is refused before anybody
 * follows it. */
static attn_status check_pattern(attn_builder *b, const term *t) {
  const attn_problem *p = t->context.problem;
  const char *name = t->context.variant->name;
  attn_status status = ATTN_OK;
  void *memory = attn_builder_scratch(b, 1, attn_pattern_reader_bytes(&t->pattern, p));
  if (!memory) return ATTN_ENOMEM;
  const attn_pattern_reader reader = attn_pattern_reader_make(name, &t->pattern, p, memory);
  int64_t count;
  for (int64_t head = 0; head < (t->pattern.per_head ? p->heads : 1) && !status; head++)
    for (int64_t i = 0; i < p->n_q && !status; i++) {
      status = attn_pattern_read(&reader, head, i, &count);
      if (!status) status = check_pieces(t, reader.runs, count, i);
    }
  return status;
}

/* What attends to every key says that it is exact. */
static attn_status take_parts(term *t, const attn_parts *p) {
  t->kind = TERM_EVERY;
  t->caps = p->caps;
  t->exempt = p->exempt;
  t->pattern = p->pattern;
  t->features = p->features;
  t->max_runs = 1;
  switch (attn_parts_kinds(p)) {
  case ATTN_PART_FEATURES:
    t->kind = TERM_FEATURES;
    return ATTN_OK;
  case ATTN_PART_PATTERN:
    t->kind = TERM_PATTERN;
    t->max_runs = p->pattern.max_pieces ? p->pattern.max_pieces : p->pattern.max_runs;
    return ATTN_OK;
  case ATTN_PART_SELECTOR:
    /* A selector that takes every key is not asked, and its weights are none of the join's. */
    if (p->selector.every) return ATTN_OK;
    t->kind = TERM_SELECTOR;
    t->selector = p->selector;
    t->max_runs = p->selector.max_runs;
    return ATTN_OK;
  case 0:
    if (p->caps & ATTN_CAP_EXACT) return ATTN_OK;
  }
  return attn_fail(ATTN_EINVAL, "cannot restrict itself to the keys that remain");
}

attn_status term_describe(attn_builder *outer, const attn_context *c, const attn_expression *atom,
                          term *out) {
  const attn_spec *spec = atom->atom;
  attn_parts parts;
  *out = (term){.of = atom, .context = *c};
  out->context.variant = spec->variant;
  out->context.params = spec->params;
  out->context.expression = spec->expression;
  attn_builder own = {.context = out->context};
  if (outer) own.arena = outer->arena, own.scratch = outer->scratch;
  attn_status status = attn_context_check(&out->context);
  if (!status) status = attn_describe(outer ? &own : NULL, &out->context, &parts);
  if (!status) status = take_parts(out, &parts);
  if (!status && outer && out->kind == TERM_PATTERN) status = check_pattern(outer, out);
  return status ? fail_here(out, status) : ATTN_OK;
}

attn_call term_call(const term *t, const attn_call *outer, attn_context *own) {
  attn_call call = *outer;
  *own = t->context;
  call.context = own;
  return call;
}

/* Its runs among the keys that query i of the block sees. */
static void take_runs(const term *t, const term_request *x, int64_t i, attn_picks *out) {
  const attn_problem p = attn_call_problem(x->call, x->block->batch, x->block->head);
  const int64_t query = term_query(x, i);
  int64_t begin, end, count;
  run_set set = {.runs = out->runs + i * out->max_runs, .most = out->max_runs};
  attn_visible_keys(x->call, x->block->batch, x->block->head, query, &begin, &end);
  if (t->kind == TERM_EVERY) {
    run_add(&set, begin, end, 0);
  } else {
    count = t->pattern.row(t->pattern.state, x->block->head, attn_problem_position(&p, query), x->raw);
    if (p.positions.key) attn_visible_positions(&p, query, &begin, &end);
    if (count >= 0 && count <= t->pattern.max_runs)
      run_add_any(&set, x->raw, count, begin, end);
    else
      set.count = ATTN_PICKS_NOTED + ATTN_PICKS_MANY; /* now: as planned there were others */
  }
  if (set.count <= set.most) set.count = attn_runs_to_keys(&p, set.runs, set.count);
  out->counts[i] = set.count;
}

/* Selections from number i on, of some queries of the block. */
static attn_picks part_of(const attn_picks *x, int64_t i) {
  attn_picks part = *x;
  part.runs += i * x->max_runs;
  part.counts += i;
  if (x->log_weights) part.log_weights += i * x->max_runs;
  return part;
}

static void select_for_term(const term *t, const term_request *x, const attn_block *block, int64_t i,
                            attn_picks *out) {
  attn_context own;
  const attn_call call = term_call(t, x->call, &own);
  attn_picks part = part_of(out, i), owned;
  const int64_t selections = term_shares(t) ? 1 : block->count;
  part.log_weights = t->selector.weighted ? part.log_weights : NULL;
  part.owned = NULL;
  if (x->owned && t->selector.restricts) {
    owned = part_of(x->owned, i);
    part.owned = &owned;
  }
  if (part.log_weights)
    memset(part.log_weights, 0, (size_t)(selections * part.max_runs) * sizeof *part.log_weights);
  t->selector.select(t->selector.state, &call, block, x->prepared, &part, x->scratch);
}

void term_select(const term *t, const term_request *x, attn_picks *out) {
  const attn_problem *p = t->context.problem;
  const int64_t group = p->heads / p->kv_heads, count = x->block->count;
  attn_picks own = *out;
  own.max_runs = t->max_runs;
  if (t->kind != TERM_SELECTOR) {
    for (int64_t i = 0; i < count; i++) take_runs(t, x, i, &own);
  } else if (term_shares(t)) {
    select_for_term(t, x, x->block, 0, &own);
  } else {
    const int64_t rows = x->order ? 1 : t->selector.rows;
    for (int64_t i = 0; i < count; i += rows) {
      const attn_block part = {.batch = x->block->batch,
                               .head = t->selector.share == ATTN_SHARE_GROUP ? x->block->head / group * group
                                                                             : x->block->head,
                               .first = term_query(x, i),
                               .count = attn_min(rows, count - i)};
      select_for_term(t, x, &part, i, &own);
    }
  }
  *out = own;
}
