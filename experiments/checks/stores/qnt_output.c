/* qnt_output.c - QNT-0 ... QNT-2: a variant that attends to stored keys and values attends to those of the
 * definition of their types (mathematics/store_law.h) or as their schemes decode them, these are within a
 * step of the given ones or what the law of the scheme says (scheme_law.h), and the error of the output
 * follows. */
#include "experiments/checks/check_table.h"
#include "experiments/checks/stores/qnt_versions.h"
#include "experiments/evidence/cache.h"
#include "experiments/evidence/rows.h"
#include "experiments/evidence/stored_copies.h"
#include "experiments/mathematics/scheme_law.h"
#include "experiments/mathematics/store_law.h"
#include "experiments/mathematics/vector.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { EXACT_ROWS = 8, JUDGED_ROWS = 4096 };

static attn_status no_memory(void) { return attn_fail(ATTN_ENOMEM, "no memory for stored keys and values"); }

/* ---- QNT-0 -------------------------------------------------------------------------------------------- */

/* Does the check hold the output against exact arithmetic? Others may look at selections alone. */
static bool is_of_output(const check *c) { return c == &check_fp1 || c == &check_fp2 || c == &check_fp6; }

/* The hard checks of what reads, on the tensors that it has read: the first that is violated, else one that
 * has failed, or that holds the output and cannot be certified, else that with the largest margin. */
static attn_status run_checks(const evidence *of, result_bound *bound) {
  result_bound worst, own;
  bool open = false;
  bound_begin(&worst, bound->name, bound->kind);
  bound_not_applicable(&worst, "no check of what reads the store can be certified");
  for (const check *const *c = checks_all; *c && worst.verdict != VERDICT_VIOLATED; c++) {
    if ((*c)->kind != KIND_HARD || !(*c)->of->holds(of->view)) continue;
    check_evaluate(*c, of, &own);
    const bool passes = own.verdict == VERDICT_PASS, violated = own.verdict == VERDICT_VIOLATED,
               unsure =
                   own.verdict == VERDICT_ERROR || (is_of_output(*c) && own.verdict == VERDICT_UNCERTIFIABLE);
    if (violated || (passes && !open && !(worst.verdict == VERDICT_PASS && own.margin <= worst.margin)))
      bound_hard(&worst, own.measured, own.value);
    else if (unsure && !open)
      bound_excuse(&worst, own.verdict, own.message);
    else
      continue;
    open = open || unsure;
    bound_say(&worst, passes ? "%s" : "%s: %s", (*c)->name, own.message);
  }
  *bound = worst;
  return ATTN_OK;
}

/* The run's output as that of the reader alone, on copies by the law. */
static attn_status judge_on_copies(const evidence *e, result_bound *bound) {
  const attn_problem *p = e->problem;
  attn_plan *plan = NULL;
  attn_view view;
  evidence own = *e;
  exact_rows *exact = NULL;
  stored_copies copies;
  if (e->view->store->residual) return store_versions_judge(e, bound);
  own.cache = block_cache_create();
  attn_status status = stored_copies_make(p, e->view->store, e->k, e->v, e->kv_len, &copies);
  if (!status) status = own.cache ? stored_reader_plan(e->plan, &plan) : no_memory();
  if (!status) status = attn_plan_inspect(plan, &view);
  own.plan = plan;
  own.view = &view;
  own.k = copies.k;
  own.v = copies.v;
  if (!status) status = exact_rows_draw(p, e->q, own.k, own.v, e->kv_len, e->seed, EXACT_ROWS, &exact);
  own.exact = exact;
  if (!status) status = run_checks(&own, bound);
  facts_forget(own.cache);
  exact_rows_free(exact);
  block_cache_free(own.cache);
  attn_plan_destroy(plan);
  stored_copies_free(&copies);
  return status;
}

/* ---- QNT-1 -------------------------------------------------------------------------------------------- */

typedef struct row_room {
  double *x, *kept, *step, *back; /* [d]; of step [2 d] */
  void *single, *codes;
  scheme_levels levels;
} row_room;

static row_room row_room_make(region *memory, int64_t d) {
  return (row_room){.x = region_take(memory, d, sizeof(double)),
                    .kept = region_take(memory, d, sizeof(double)),
                    .step = region_take(memory, 2 * d, sizeof(double)),
                    .back = region_take(memory, d, sizeof(double)),
                    .single = region_take(memory, d, sizeof(double)),
                    .codes = region_take(memory, d + 8, sizeof(double))}; /* no code is as long as fp64 */
}

/* What the library stores, and what is read of it, against the law's. */
static outcome compare(int64_t count, const row_room *r) {
  outcome worst = OUTCOME_NONE;
  for (int64_t l = 0; l < count; l++) {
    const double read = attn_get(r->single, l, ATTN_F32);
    const bool same = (r->back[l] == r->kept[l] && read == r->kept[l]) ||
                      (isnan(r->back[l]) && isnan(read) && isnan(r->kept[l]));
    if (!same)
      outcome_worsen(&worst, (outcome){.measured = (double)INFINITY, .value = r->step[l]});
    else if (isfinite(r->kept[l]))
      outcome_worsen(&worst, (outcome){.measured = fabs(r->back[l] - r->x[l]), .value = r->step[l]});
  }
  return worst;
}

/* A row: the library's code of it, as the run's kernels read it too. */
static outcome judge_row(const attn_kernels *kernels, attn_dtype type, int64_t d, row_room *r) {
  store_law(type, r->x, d, r->kept, r->step);
  attn_convert(r->x, ATTN_F64, d, ATTN_F32, r->single);
  attn_convert(r->single, ATTN_F32, d, type, r->codes);
  attn_convert(r->codes, type, d, ATTN_F64, r->back);
  attn_load_row(kernels, type, d, r->codes, r->single);
  return compare(d, r);
}

/* A channel of `count` keys that are coded together. */
static outcome judge_block(attn_dtype type, int64_t count, row_room *r) {
  const int bits = (int)type - (int)ATTN_INT1 + 1;
  store_law_block(bits, r->x, count, r->kept, r->step);
  attn_convert(r->x, ATTN_F64, count, ATTN_F32, r->single);
  attn_kv_block(bits, count, r->single);
  attn_convert(r->single, ATTN_F32, count, ATTN_F64, r->back);
  return compare(count, r);
}

/* All keys of a head whose groups have one scale each. */
static outcome judge_groups(const attn_kv_store *store, int64_t keys, int64_t d, row_room *r) {
  store_law_groups(store, r->x, keys, d, r->kept, r->step, r->codes);
  attn_convert(r->x, ATTN_F64, keys * d, ATTN_F32, r->single);
  attn_kv_groups(store, ATTN_F32, keys, d, r->single, r->codes);
  attn_convert(r->single, ATTN_F32, keys * d, ATTN_F64, r->back);
  return compare(keys * d, r);
}

/* A row under a scheme: the same again once another row has been decoded, and what the law says. */
static outcome judge_scheme(const attn_kv_scheme *scheme, int64_t d, row_room *r) {
  const size_t bytes = (size_t)d * sizeof(double);
  double *again = r->codes, *room = r->single;
  memcpy(room, r->x, bytes);
  scheme->decode(scheme->state, d, room, r->back);
  for (int64_t l = 0; l < d; l++) room[l] = 1 - 2 * r->x[d - 1 - l];
  scheme->decode(scheme->state, d, room, again);
  memcpy(room, r->x, bytes);
  scheme->decode(scheme->state, d, room, again);
  for (int64_t l = 0; l < d; l++)
    if (!(again[l] == r->back[l] || (isnan(again[l]) && isnan(r->back[l]))))
      return (outcome){.measured = (double)INFINITY, .value = 0x1p-30 * fabs(r->x[l])};
  if (!scheme_law_stated(&scheme->law)) return (outcome){.measured = 0, .value = 0x1p-30};
  if (!scheme_law_row(&scheme->law, &r->levels, r->x, r->kept, r->step)) return (outcome)OUTCOME_NONE;
  const double norm = vector_norm(r->x, d);
  outcome worst = OUTCOME_NONE;
  for (int64_t l = 0; l < d; l++)
    if (!isnan(r->kept[l]) || !isnan(r->back[l]))
      outcome_worsen(&worst, (outcome){.measured = fabs(r->back[l] - r->kept[l]), .value = 0x1p-30 * norm});
  return worst;
}

static attn_status judge_codes(const evidence *e, result_bound *bound) {
  const attn_problem *p = e->problem;
  const attn_kv_store *store = e->view->store;
  const bool whole = store->group && !store->residual;
  const int64_t lines = p->batch * p->kv_heads, d_most = p->d_qk > p->d_v ? p->d_qk : p->d_v,
                group = !whole && store->group <= p->n_kv ? store->group : 0;
  outcome worst = OUTCOME_NONE;
  char text[160] = "";
  row_room room = row_room_make(e->memory, whole ? p->n_kv * d_most : d_most > group ? d_most : group);
  if (region_status(e->memory, "for rows of a store")) return ATTN_ENOMEM;
  for (int i = 0; i < 2; i++) {
    const stored_side side = stored_side_of(p, store, i);
    const bool heads = whole && !i;
    const int64_t d = side.d, channels = i || !group ? 0 : d,
                  rows = channels ? lines * (p->n_kv / group) * channels
                         : heads  ? lines
                                  : lines * p->n_kv,
                  most = heads ? (JUDGED_ROWS + p->n_kv - 1) / p->n_kv : JUDGED_ROWS,
                  some = rows < most ? rows : most;
    if (!attn_kv_changes(side.type, side.scheme) || (!i && !whole && store->group > p->n_kv)) continue;
    if (side.scheme->decode) scheme_levels_make(side.scheme->law.bits, d, &room.levels);
    for (int64_t s = 0; s < some; s++) {
      const int64_t at = some > 1 ? s * (rows - 1) / (some - 1) : 0, of = channels ? at / channels : at,
                    per = p->n_kv / (channels ? group : 1),
                    r = channels ? of / per * p->n_kv + of % per * group
                        : heads  ? of * p->n_kv
                                 : of,
                    keys = evidence_keys(e, r / p->n_kv / p->kv_heads);
      for (int64_t l = 0; l < (channels ? group : heads ? keys * d : d); l++)
        room.x[l] = attn_get(i ? e->v : e->k, channels ? (r + l) * d + at % channels : r * d + l, p->dtype);
      if (outcome_worsen(&worst, heads      ? judge_groups(store, keys, d, &room)
                                 : channels ? judge_block(side.type, group, &room)
                                 : side.scheme->decode
                                     ? judge_scheme(side.scheme, d, &room)
                                     : judge_row(attn_plan_context(e->plan)->kernels, side.type, d, &room)))
        snprintf(text, sizeof text, "%s row %lld (batch entry %lld, kv head %lld), as %s", i ? "v" : "k",
                 (long long)(r % p->n_kv), (long long)(r / p->n_kv / p->kv_heads),
                 (long long)(r / p->n_kv % p->kv_heads),
                 side.scheme->decode ? "its scheme decodes it" : attn_numbers[side.type].name);
    }
  }
  outcome_to_verdict(&worst, bound);
  if (bound->verdict == VERDICT_VIOLATED) bound_say(bound, "%s", text);
  return ATTN_OK;
}

/* ---- QNT-2 -------------------------------------------------------------------------------------------- */

/* Of a head what storing adds to its keys and values. */
typedef struct changes_walk {
  const evidence *e;
  double *k;               /* [n_kv, d_qk], of the head */
  double *group;           /* [3 group + d] */
  double *v, *kept, *room; /* [d_v], the largest magnitude of each component; [d], [2 d] */
  double k_reach, v_reach; /* the largest norm of k, the largest of v */
} changes_walk;

/* The larger, or NaN. */
static double larger(double a, double b) { return isnan(a) || a >= b ? a : b; }

static attn_status prepare_changes(void *context, const head_data *h) {
  changes_walk *w = context;
  const attn_problem *p = h->problem;
  const attn_kv_store *store = w->e->view->store;
  const stored_side keys = stored_side_of(p, store, 0), values = stored_side_of(p, store, 1);
  if (store->group) stored_groups(store, p->d_qk, h->keys, h->k, w->k, w->group);
  w->k_reach = w->v_reach = 0;
  memset(w->v, 0, (size_t)p->d_v * sizeof *w->v);
  for (int64_t j = 0; j < h->keys; j++) {
    double *own = w->k + j * p->d_qk;
    if (!store->group) stored_row(&keys, h->k + j * p->d_qk, own, w->room);
    for (int64_t l = 0; l < p->d_qk; l++) own[l] -= h->k[j * p->d_qk + l];
    w->k_reach = larger(w->k_reach, vector_norm(own, p->d_qk));
    stored_row(&values, h->v + j * p->d_v, w->kept, w->room);
    for (int64_t l = 0; l < p->d_v; l++) {
      w->v[l] = larger(w->v[l], fabs(w->kept[l] - h->v[j * p->d_v + l]));
      w->v_reach = larger(w->v_reach, w->v[l]);
    }
  }
  return ATTN_OK;
}

static outcome judge_error(const row_case *c) {
  const changes_walk *w = c->context;
  const attn_problem *p = c->e->problem;
  row_space *s = c->space;
  head_data stored = *c->head;
  prior rounding;
  double most = 0, least = 0;
  row_extremes scores;
  if (!isfinite(w->k_reach) || !isfinite(w->v_reach))
    return (outcome){.why = "a number is too large for the code in which it is stored"};
  row_support(c->head, NULL, c->row->i, s);
  const row_verdict certain = row_attend(c->head, NULL, s, &scores);
  stored.k_max += w->k_reach;
  stored.v_max += w->v_reach;
  const row_verdict bounded = row_apriori_bound(&stored, &c->e->view->rounding, vector_norm(s->q, p->d_qk),
                                                scores.bias, s->count, &rounding);
  if (certain != ROW_OK || bounded != ROW_OK)
    return (outcome){.why = row_reason(certain != ROW_OK ? certain : bounded)};
  const int64_t coded_k = stored_before(p, c->e->view->store, 0, c->row->i, c->head->keys),
                coded_v = stored_before(p, c->e->view->store, 1, c->row->i, c->head->keys);
  for (int64_t i = 0; i < s->count; i++) {
    if (s->index[i] >= coded_k) continue;
    const double change = p->scale * vector_dot(s->q, w->k + s->index[i] * p->d_qk, p->d_qk);
    most = fmax(most, change);
    least = fmin(least, change);
  }
  const double apart = (most - least) * fmax(1, p->score.leaky);
  for (int64_t l = 0; l < p->d_v; l++) {
    const double range = row_range(c->head, l);
    s->bound[l] = tanh(apart / 4) * range + (coded_v > 0 ? w->v[l] : 0) +
                  rounding.spread * (range + 2 * w->v_reach) + rounding.growth * stored.v_max +
                  rounding.floor + 0x1p-40 * stored.v_max;
  }
  return outcome_components(s->given, c->o, s->bound, p->d_v);
}

static attn_status judge_errors(const evidence *e, result_bound *bound) {
  const attn_problem *p = e->problem;
  const int64_t d = p->d_qk > p->d_v ? p->d_qk : p->d_v;
  changes_walk w = {.e = e,
                    .k = region_take(e->memory, p->n_kv * p->d_qk, sizeof *w.k),
                    .group = region_take(e->memory, 3 * e->view->store->group + d, sizeof *w.group),
                    .v = region_take(e->memory, p->d_v, sizeof *w.v),
                    .kept = region_take(e->memory, d, sizeof *w.kept),
                    .room = region_take(e->memory, 2 * d, sizeof *w.room)};
  const attn_status status = region_status(e->memory, "for the rows of a store");
  return status ? status
                : rows_check_with(e, row_cost(e), &(rows_judge){&w, prepare_changes, judge_error}, bound);
}

#define TYPES "The types' definitions are those of `attnlab describe store`."

const check check_qnt0 = {
    .name = "QNT-0",
    .of = &of_stores,
    .kind = KIND_HARD,
    .statement = "the output is what its reader makes of keys and values as the definitions of their types "
                 "store them, or as their schemes decode them",
    .source = "derived: the hard checks of the reader, on the stored tensors",
    .formula =
        "What is hard of the reader (of exact attention FP-1 or FP-2, and FP-3), where K and V are "
        "dec(enc(K)) and dec(enc(V)), each row by the definition of its type, computed apart from the "
        "library, or by its scheme. Measured and bound are those of the check with the largest margin, "
        "which is named. Of a store with a residual: row by row FP-1 or FP-2, on the rows that are due for "
        "the query as dec(enc(.)), and the others as they are given.",
    .cause = "codes of a neighbour block or head, a scale that is not the block's, a bias or sink that the "
             "reader of codes leaves out",
    .assumes = TYPES " And what these checks assume.",
    .nulls = CHECK_REJECTS_ALL("Gaussian inputs of std 1, n = 96"),
    .evaluate = judge_on_copies,
};

const check check_qnt1 = {
    .name = "QNT-1",
    .of = &of_stores,
    .kind = KIND_HARD,
    .statement = "every stored number is that of its type's definition and within a step of the given one; a "
                 "scheme decodes a row to the same whatever came before, and by its law where it states one",
    .source =
        "the definitions of the types (core/kernels/codes.h); derived: half a step, and what f16 rounds of "
        "scales and least values; of schemes attn_kv_law",
    .formula =
        "|x^ - x| <= D. f16, bf16, fp8: half a unit in the last place. int<b>: scale / 2 + (2^b - 1/2) "
        "r(scale) + r(least), scale = (max - min) / (2^b - 1), r the rounding of f16. q8_0: scale / 2 + "
        "127 r(scale); q4_0: scale + 8 r(scale), for it has a code for -8 and none for 8. Schemes with a "
        "law: "
        "|x^_l - (|x| (R' c(R u) + g sqrt(pi/2) / m S' sign(S e)))_l| <= 2^-30 |x|, with R and S of the "
        "plan, "
        "the nearest of all levels, which are computed apart; or |x^ - H dec(enc(H x))| likewise, H entry by "
        "entry. Keys in groups: int<b>, of the block that a "
        "channel of the group is; where a group has one scale, scale / 2 + 2^-22 (max |x - m| + |m|), scale "
        "= "
        "max |x - m| / (2^(b-1) - 1), m the mean of the head's keys or 0.",
    .cause = "a norm of another vector, a rotation that is not taken back, a row that is coded with what is "
             "left of another",
    .assumes = TYPES
    " Numbers are finite and fit the type; of those that do not, the definitions say what they become. Rows "
    "with a coordinate or a product within 2^-36 of a threshold are passed over.",
    .nulls = CHECK_BLIND("it looks at what is stored, not at the output"),
    .evaluate = judge_codes,
};

const check check_qnt2 = {
    .name = "QNT-2",
    .of = &of_exact_stores,
    .kind = KIND_HARD,
    .statement = "the output differs from exact attention by no more than what storing changes allows",
    .source =
        "derived: the total variation of two softmaxes whose scores differ by numbers within an interval "
        "of length L is at most tanh(L/4)",
    .formula = "|o^_l - o_l| <= tanh(L/4) (max_j v_jl - min_j v_jl) + max_j |v^_jl - v_jl|, and rounding as "
               "in FP-3; L "
               "= max_j h_j - min_j h_j over the keys that the query sees and 0, h_j = c q.(k^_j - k_j), k^ "
               "and v^ as "
               "in QNT-0; 0 of what the query reads as it is given.",
    .cause = "numbers that are read otherwise than they are stored",
    .assumes = TYPES " And what FP-1 assumes.",
    .nulls = CHECK_REJECTS_ALL("Gaussian inputs of std 1, n = 96"),
    .evaluate = judge_errors,
};
