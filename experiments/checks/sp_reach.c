/* sp_reach.c - SP-6: how far a change at one position spreads through layers.
 *
 * Query, key and value of position j are changed, and outputs are fed forward as queries, keys and values of
 * the next layer (keys and values of a group take the output of its first query head; widths are met by
 * repetition). After L layers only rows that a path of L steps i <- S(i) <- ... <- j connects with j may
 * change, in any bit; for a window of w keys at distance D without global tokens these lie within |i - j| <=
 * L D w / 2 (Beltagy et al. 2020, section 3.1). It rejects the mean of V and random keys, which read outside
 * of S; an algorithm that writes zeros changes nowhere: blind to it. */
#include "experiments/checks/check_table.h"

#include "experiments/evidence/rows.h"
#include "experiments/reference/visible.h"

#include <stdlib.h>
#include <string.h>

enum { TRIES = 16, LAYERS = 3, SMALL = 1024 }; /* keys up to which more than one layer is run */
static const uint64_t purpose_reach = 0x72656163;

typedef struct layer {
  void *q, *k, *v, *o;
} layer;

typedef struct stack {
  const evidence *e;
  layer own, other; /* own: unchanged inputs, from the second layer on */
  void *work;
  attn_run *runs;
  int64_t *before;  /* [n_kv + 1] changed positions before each */
  int64_t first;    /* position, 0 or that of a query before the first key */
  bool *now, *next; /* of the positions first ... n_kv - 1 */
  int64_t half;     /* of a plain window in positions, or 0 */
} stack;

/* Which rows depend on the changed positions: those that see one, and their own. */
static int64_t spread(stack *s) {
  const attn_problem *p = s->e->problem;
  int64_t reached = 0;
  const bool *changed = s->now - s->first; /* of keys */
  for (int64_t j = 0; j < p->n_kv; j++) s->before[j + 1] = s->before[j] + changed[j];
  memcpy(s->next, s->now, (size_t)(p->n_kv - s->first) * sizeof *s->next);
  for (int64_t head = 0; head < (s->e->view->pattern->per_head ? p->heads : 1); head++)
    for (int64_t i = 0; i < p->n_q; i++) {
      bool *row = &s->next[attn_problem_position(p, i) - s->first];
      int64_t found = *row ? 0 : visible_runs(s->e->view->pattern, p, head, i, p->n_kv, s->runs);
      for (int64_t r = 0; r < found && !*row; r++) {
        const attn_run *run = &s->runs[r];
        if (run->step == 1) *row = s->before[run->first + run->count] > s->before[run->first];
        for (int64_t c = 0; c < run->count && run->step > 1 && !*row; c++)
          *row = changed[run->first + c * run->step];
      }
    }
  memcpy(s->now, s->next, (size_t)(p->n_kv - s->first) * sizeof *s->now);
  for (int64_t i = attn_problem_position(p, 0); i < p->n_kv; i++) reached += changed[i];
  return reached;
}

/* Chooses a position that one layer does not carry everywhere; -1 if none was found. */
static int64_t position_choose(stack *s) {
  const attn_problem *p = s->e->problem;
  attn_rng rng;
  attn_rng_init(&rng, s->e->seed, purpose_reach, 0);
  for (int attempt = 0; attempt < TRIES; attempt++) {
    int64_t j = attn_rng_below(&rng, p->n_kv);
    memset(s->now, 0, (size_t)(p->n_kv - s->first) * sizeof *s->now);
    s->now[j - s->first] = true;
    if (spread(s) < p->n_q) return j;
  }
  return -1;
}

static void change(void *at, attn_dtype type, int64_t heads, int64_t n, int64_t d, int64_t row) {
  for (int64_t h = 0; h < heads && row >= 0; h++)
    for (int64_t l = (h * n + row) * d; l < (h * n + row + 1) * d; l++)
      attn_set(at, l, type, 1 - 2 * attn_get(at, l, type));
}

/* Outputs become the next layer's inputs. */
static void feed(const attn_problem *p, const layer *from, void *to, int64_t heads, int64_t d) {
  for (int64_t h = 0; h < p->batch * heads; h++)
    for (int64_t i = 0; i < p->n_q; i++)
      for (int64_t l = 0; l < d; l++)
        attn_set(to, (h * p->n_q + i) * d + l, p->dtype,
                 attn_get(from->o, (h * (p->heads / heads) * p->n_q + i) * p->d_v + l % p->d_v, p->dtype));
}

static attn_status run_layer(const stack *s, const layer *x, bool first) {
  const attn_problem *p = s->e->problem;
  if (!first) {
    feed(p, x, x->q, p->heads, p->d_qk);
    feed(p, x, x->k, p->kv_heads, p->d_qk);
    feed(p, x, x->v, p->kv_heads, p->d_v);
  }
  return attn_plan_execute(s->e->plan, x->q ? x->q : s->e->q, x->k, x->v, s->e->kv_len, x->o, s->work);
}

/* Rows that changed though they are out of reach. */
static int64_t strays(const stack *s, int64_t position, int64_t layers) {
  const attn_problem *p = s->e->problem;
  size_t row = (size_t)p->d_v * attn_dtype_size(p->dtype);
  const char *own = s->own.o ? s->own.o : s->e->o, *other = s->other.o;
  int64_t count = 0;
  for (int64_t h = 0; h < p->batch * p->heads; h++)
    for (int64_t i = 0; i < p->n_q; i++) {
      int64_t at = attn_problem_position(p, i);
      size_t offset = (size_t)(h * p->n_q + i) * row;
      bool near = s->half == 0 || llabs(at - position) <= layers * s->half;
      if (s->now[at - s->first] && near) continue;
      count += memcmp(own + offset, other + offset, row) != 0;
    }
  return count;
}

static void *copied(const evidence *e, const void *from, int64_t numbers) {
  const size_t bytes = (size_t)(e->problem->batch * numbers) * attn_dtype_size(e->problem->dtype);
  void *out = region_take(e->memory, 1, bytes);
  return out ? memcpy(out, from, bytes) : NULL;
}

/* Queries are changed and fed only in a stack of several layers. */
static attn_status layer_make(const evidence *e, bool several, layer *out) {
  const attn_problem *p = e->problem;
  *out = (layer){.q = several ? copied(e, e->q, p->heads * p->n_q * p->d_qk) : NULL,
                 .k = copied(e, e->k, p->kv_heads * p->n_kv * p->d_qk),
                 .v = copied(e, e->v, p->kv_heads * p->n_kv * p->d_v),
                 .o = copied(e, e->o, p->heads * p->n_q * p->d_v)};
  return region_status(e->memory, "for the layers of a stack");
}

static attn_status stack_run(stack *s, int64_t position, int64_t layers, result_bound *bound) {
  const attn_problem *p = s->e->problem;
  int64_t wrong = 0, done = 0;
  attn_status status = ATTN_OK;
  if (layers > 1)
    change(s->other.q, p->dtype, p->batch * p->heads, p->n_q, p->d_qk,
           position - attn_problem_position(p, 0));
  change(s->other.k, p->dtype, p->batch * p->kv_heads, p->n_kv, p->d_qk, position);
  change(s->other.v, p->dtype, p->batch * p->kv_heads, p->n_kv, p->d_v, position);
  for (; done < layers; done++) {
    if (done > 0 && spread(s) == p->n_q) break;
    status = run_layer(s, &s->other, done == 0);
    if (!status && done > 0) status = run_layer(s, &s->own, false);
    if (status) return status;
    wrong += strays(s, position, done + 1);
  }
  bound_hard(bound, (double)wrong, 0);
  bound_say(bound, "%lld layer%s, position %lld changed", (long long)done, done == 1 ? "" : "s",
            (long long)position);
  return ATTN_OK;
}

static attn_status reach_evaluate(const evidence *e, result_bound *bound) {
  const attn_problem *p = e->problem;
  int64_t layers = p->n_q == p->n_kv && p->n_kv <= SMALL ? LAYERS : 1, position = -1;
  const int64_t first = attn_min(attn_problem_position(p, 0), 0);
  stack s = {.e = e,
             .first = first,
             .work = region_take(e->memory, 1, attn_plan_work_size(e->plan) + 1),
             .runs = region_zeros(e->memory, e->view->pattern->max_runs, sizeof *s.runs),
             .before = region_zeros(e->memory, p->n_kv + 1, sizeof *s.before),
             .now = region_zeros(e->memory, p->n_kv - first, sizeof *s.now),
             .next = region_zeros(e->memory, p->n_kv - first, sizeof *s.next)};
  attn_status status = region_status(e->memory, "for the reach of a pattern");
  if (status) return status;
  s.half = e->view->pattern->reach;
  position = position_choose(&s);
  if (position < 0)
    return bound_not_applicable(bound, "one layer carries every position that was drawn everywhere");
  status = layer_make(e, layers > 1, &s.other);
  if (!status && layers > 1) status = layer_make(e, true, &s.own);
  return status ? status : stack_run(&s, position, layers, bound);
}

const check check_sp6 = {
    .name = "SP-6",
    .of = &of_patterns,
    .kind = KIND_HARD,
    .statement =
        "a change at one position changes no bit of a row that no path of L steps of the pattern leads to",
    .source = "Beltagy et al. 2020, section 3.1, for windows; derived: composition of supports",
    .formula = "After L layers, row i may differ from that of unchanged inputs only if i is in R_L, R_0 = "
               "{j}, R_l = R_(l-1) and all i whose S(i) meets R_(l-1); without global tokens only if |i - "
               "j| <= L D w/2. L up to 3: outputs are fed forward as queries, keys and values.",
    .assumes = "A pattern that leaves keys out; L = 1 where n_q is not n_kv or n > 1024.",
    .nulls[CHECK_ZEROS].blind = "an algorithm that writes zeros changes nowhere; SP-1 rejects it",
    .nulls[CHECK_MEAN_V].rejected_on =
        "a window of 9 of 96 keys claimed, an algorithm that averages all of V",
    .nulls[CHECK_RANDOM_KEYS].rejected_on =
        "a window of 9 of 96 keys claimed, an algorithm that keeps one key in four at random",
    .evaluate = reach_evaluate,
};
