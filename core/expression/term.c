/* term.c - see term.h. A pattern and attention to every key are selections, too: of the runs that the query sees. */
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

/* What the engine says to whom asks for the work memory. */
static attn_status measure_engine(term *t) {
  const attn_variant *v = t->context.variant;
  attn_probe probe = {0};
  t->context.probe = &probe;
  const unsigned failures = attn_fail_count();
  const size_t bytes = v->work_size(&t->context);
  t->context.probe = NULL;
  if (bytes == SIZE_MAX && attn_fail_count() != failures) return attn_last_status();
  if (probe.maps && v->execute == attn_linear_execute) {
    t->kind = TERM_FEATURES;
    t->features = probe.features;
    return ATTN_OK;
  }
  t->kind = probe.selects ? TERM_SELECTOR : TERM_EVERY;
  t->max_runs = 1;
  if (probe.selects ? probe.selector.every : probe.every) {
    t->kind = TERM_EVERY;
    return ATTN_OK;
  }
  if (!probe.selects && (v->execute == attn_softmax_execute || !(v->caps & ATTN_CAP_EXACT)))
    return attn_fail(ATTN_EUNSUPPORTED, "cannot restrict itself to the keys that remain");
  if (!probe.selects) return ATTN_OK;
  t->selector = probe.selector;
  t->max_runs = probe.selector.max_runs;
  t->prepared = probe.prepared;
  t->scratch = probe.scratch;
  return ATTN_OK;
}

static attn_status measure_pattern(term *t) {
  const attn_variant *v = t->context.variant;
  attn_pattern p = {0};
  attn_status status = v->pattern(NULL, &t->context, &p);
  if (!status && !p.row) return measure_engine(t);
  t->kind = TERM_PATTERN;
  t->pattern = p;
  t->max_runs = p.max_pieces ? p.max_pieces : p.max_runs;
  return status;
}

attn_status term_measure(const attn_context *outer, const attn_expression *atom, term *out) {
  const attn_spec *spec = atom->atom;
  *out = (term){.of = atom, .context = *outer};
  out->context.variant = spec->variant;
  out->context.params = spec->params;
  out->context.expression = spec->expression;
  out->context.probe = NULL;
  attn_status status = attn_context_check(&out->context);
  if (!status) status = spec->variant->pattern ? measure_pattern(out) : measure_engine(out);
  return status ? fail_here(out, status) : ATTN_OK;
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

/* Rows as the engine reads those of a pattern alone: what breaks the contract is refused before anybody follows it. */
static attn_status check_pattern(attn_builder *b, const term *t) {
  const attn_problem *p = t->context.problem;
  const char *name = t->context.variant->name;
  attn_status status = attn_pattern_check(name, &t->pattern);
  void *memory = status ? NULL : attn_builder_scratch(b, 1, attn_pattern_reader_bytes(&t->pattern, p));
  if (!memory) return status ? status : ATTN_ENOMEM;
  const attn_pattern_reader reader = attn_pattern_reader_make(name, &t->pattern, p, memory);
  int64_t count;
  for (int64_t head = 0; head < (t->pattern.per_head ? p->heads : 1) && !status; head++)
    for (int64_t i = 0; i < p->n_q && !status; i++) {
      status = attn_pattern_read(&reader, head, i, &count);
      if (!status) status = check_pieces(t, reader.runs, count, i);
    }
  return status;
}

/* What the join was made for is what work_size stated. */
static attn_status take_selector(term *t, const attn_selector *x) {
  const attn_selector *s = &t->selector;
  if (!x) return attn_fail(ATTN_EINVAL, "variant %s: inspect names no selector", t->context.variant->name);
  if (s->share != x->share || s->rows != x->rows || s->max_runs != x->max_runs ||
      s->weighted != x->weighted || s->restricts != x->restricts || !s->order != !x->order)
    return attn_fail(ATTN_EINVAL,
                     "variant %s: plan states another selector than work_size: share, rows, max_runs, "
                     "weighted, restricts or order",
                     t->context.variant->name);
  t->selector = *x;
  return ATTN_OK;
}

static attn_status take_features(term *t, const attn_feature_map *x) {
  if (!x) return attn_fail(ATTN_EINVAL, "variant %s: inspect names no features", t->context.variant->name);
  t->features = *x;
  return ATTN_OK;
}

attn_status term_plan(attn_builder *outer, term *t) {
  const attn_variant *v = t->context.variant;
  attn_builder own = {.context = t->context, .arena = outer->arena, .scratch = outer->scratch};
  void *state = NULL;
  attn_status status = ATTN_OK;
  t->view = (attn_view){.caps = v->caps, .exempt = v->exempt};
  if (t->kind == TERM_PATTERN) {
    status = v->pattern(&own, &own.context, &t->pattern);
    if (!status) status = check_pattern(outer, t);
  } else if (t->kind != TERM_EVERY) {
    status = v->plan(&own, &state);
    if (!status && v->inspect) v->inspect(state, &t->context, &t->view);
    if (!status) status = attn_view_check(v, &t->view);
    if (!status && t->kind == TERM_SELECTOR) status = take_selector(t, t->view.selector);
    if (!status && t->kind == TERM_FEATURES) status = take_features(t, t->view.features);
  }
  if (status) return fail_here(t, status);
  t->planned = true;
  return ATTN_OK;
}

static attn_context context_of(const term *t, const attn_context *outer) {
  attn_context own = t->context;
  own.verify = outer->verify;
  return own;
}

size_t term_prepared_bytes(const term *t, const attn_context *outer) {
  const attn_context own = context_of(t, outer);
  if (t->kind != TERM_SELECTOR) return 0;
  if (!t->planned) return t->prepared;
  return t->selector.prepared_bytes ? t->selector.prepared_bytes(t->selector.state, &own) : 0;
}

size_t term_scratch_bytes(const term *t, const attn_context *outer) {
  const attn_context own = context_of(t, outer);
  if (t->kind != TERM_SELECTOR) return 0;
  if (!t->planned) return t->scratch;
  return t->selector.scratch_bytes ? t->selector.scratch_bytes(t->selector.state, &own) : 0;
}

attn_call term_call(const term *t, const attn_call *outer, attn_context *own) {
  attn_call call = *outer;
  *own = context_of(t, outer->context);
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

static void ask(const term *t, const term_request *x, const attn_block *block, int64_t i, attn_picks *out) {
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
    ask(t, x, x->block, 0, &own);
  } else {
    const int64_t rows = x->order ? 1 : t->selector.rows;
    for (int64_t i = 0; i < count; i += rows) {
      const attn_block part = {.batch = x->block->batch,
                               .head = t->selector.share == ATTN_SHARE_GROUP ? x->block->head / group * group
                                                                             : x->block->head,
                               .first = term_query(x, i),
                               .count = attn_min(rows, count - i)};
      ask(t, x, &part, i, &own);
    }
  }
  *out = own;
}
