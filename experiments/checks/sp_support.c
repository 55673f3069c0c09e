/* sp_support.c - SP-0: which keys a sparse algorithm reads, and which its pattern gives a row.
 *
 * Keys and values outside S(i) are poisoned, and row i must not change in a bit; S(i) itself is compared with
 * the membership that the variant states apart from it (attn_pattern.sees, .candidate). It rejects the mean
 * of V and random keys, which read outside S, and is blind to an algorithm that writes zeros whatever it
 * reads. */
#include "experiments/checks/check_table.h"

#include "experiments/evidence/rows.h"
#include "experiments/reference/visible.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { TRIES = 16, SMALL = 1024, GENERATED = 1 << 22, ROWS_LEAST = 8 };
static const uint64_t purpose_poison = 0x706f6973; /* "pois" */

/* Marks the keys that row i of any query head of a key/value line sees. Returns how many of the keys it
 * spares. one: [n_kv]. */
static int64_t line_spares(const evidence *e, int64_t line, int64_t i, attn_run *runs, bool *one,
                           bool *keep) {
  const attn_problem *p = e->problem;
  int64_t group = p->heads / p->kv_heads, first = line % p->kv_heads * group, count = 0;
  memset(keep, 0, (size_t)p->n_kv * sizeof *keep);
  for (int64_t head = first; head < first + group; head++) {
    visible_mark(e->view->pattern, p, line / p->kv_heads, head, i, p->n_kv, runs, one);
    for (int64_t j = 0; j < p->n_kv; j++) keep[j] |= one[j];
  }
  for (int64_t j = 0; j < p->n_kv; j++) count += !keep[j];
  return count;
}

static void poison_row(void *at, attn_dtype type, int64_t row, int64_t d, double poison) {
  for (int64_t l = row * d; l < (row + 1) * d; l++) attn_set(at, l, type, poison);
}

typedef struct poisoned {
  void *k, *v, *o, *work;
  attn_run *runs;
  bool *keep, *one;
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
      if (line_spares(e, line, i, s->runs, s->one, s->keep) > 0) s->row[line] = i;
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

/* Blocks of keys that are drawn whole or not at all, as many as the law says. */
static int64_t blocks_mistaken(const attn_pattern *p, int64_t n, int64_t head, int64_t position,
                               const bool *inside) {
  int64_t wrong = 0, drawn = 0, candidates = 0;
  for (int64_t first = 0; first < n; first += p->grain) {
    int64_t end = first + p->grain < n ? first + p->grain : n, seen = 0;
    if (p->sees(p->state, head, position, first)) continue;
    for (int64_t j = first; j < end; j++) seen += inside[j];
    bool candidate = p->candidate(p->state, head, position, first / p->grain);
    candidates += candidate;
    if (!candidate)
      wrong += seen;
    else if (seen > 0)
      wrong += end - first - seen, drawn++;
  }
  return wrong + llabs(drawn - (p->drawn < candidates ? p->drawn : candidates));
}

/* How many keys a row sees though it must not, or does not see though it must, or sees twice, and by how many
 * blocks the draw is short. inside: n_kv. */
static int64_t row_mistaken(const evidence *e, int64_t head, int64_t i, attn_run *runs, bool *inside) {
  const attn_pattern *p = e->view->pattern;
  int64_t n = e->problem->n_kv, position = i + n - e->problem->n_q, wrong = 0;
  bool draws = p->candidate && p->grain > 0;
  int64_t found = visible_runs(p, e->problem, head, i, n, runs);
  memset(inside, 0, (size_t)n * sizeof *inside);
  for (int64_t r = 0; r < found; r++)
    for (int64_t c = 0; c < runs[r].count; c++) {
      bool *key = &inside[runs[r].first + c * runs[r].step];
      wrong += *key;
      *key = true;
    }
  for (int64_t j = 0; j < n; j++) {
    bool must = p->sees(p->state, head, position, j) && !(e->problem->causal && j > position);
    if (must || !draws) wrong += inside[j] != must;
    wrong += inside[j] && p->reach > 0 && llabs(j - position) > p->reach;
  }
  return draws ? wrong + blocks_mistaken(p, n, head, position, inside) : wrong;
}

/* Over evenly spaced rows of every head, the first and the last among them. */
static int64_t keys_mistaken(const evidence *e, attn_run *runs, bool *inside) {
  const attn_problem *p = e->problem;
  int64_t heads = e->view->pattern->per_head ? p->heads : 1, wrong = 0;
  int64_t rows = GENERATED / p->n_kv / heads, n = p->n_q;
  if (rows < ROWS_LEAST) rows = ROWS_LEAST;
  if (rows > n) rows = n;
  for (int64_t head = 0; head < heads; head++)
    for (int64_t r = 0; r < rows; r++)
      wrong += row_mistaken(e, head, r * (n - 1) / attn_max(rows - 1, 1), runs, inside);
  return wrong;
}

static attn_status support_evaluate(const evidence *e, result_bound *bound) {
  const attn_problem *p = e->problem;
  size_t size = attn_dtype_size(p->dtype), lines = (size_t)(p->batch * p->kv_heads), n = (size_t)p->n_kv;
  size_t k_bytes = lines * n * (size_t)p->d_qk * size, v_bytes = lines * n * (size_t)p->d_v * size;
  const double poisons[] = {attn_numbers[p->dtype].largest * 1e-8, (double)NAN};
  uint64_t rounds = p->n_kv <= SMALL ? 2 : 1;
  poisoned s = {.k = region_take(e->memory, 1, k_bytes),
                .v = region_take(e->memory, 1, v_bytes),
                .o = region_take(e->memory, p->batch * p->heads * p->n_q * p->d_v, size),
                .work = region_take(e->memory, 1, attn_plan_work_size(e->plan) + 1),
                .runs = region_zeros(e->memory, visible_most_runs(e->view->pattern, p), sizeof *s.runs),
                .keep = region_zeros(e->memory, (int64_t)n, sizeof *s.keep),
                .one = region_zeros(e->memory, (int64_t)n, sizeof *s.one),
                .row = region_zeros(e->memory, (int64_t)lines, sizeof *s.row)};
  attn_status status = region_status(e->memory, "to poison keys and values");
  int64_t changed = 0, runs = 0, wrong = 0;
  bool known = e->view->pattern->sees;
  if (status) return status;
  for (uint64_t round = 0; round < 2 * rounds; round++) {
    memcpy(s.k, e->k, k_bytes);
    memcpy(s.v, e->v, v_bytes);
    if (!poison_lines(e, &s, round / 2, poisons[round % 2])) continue;
    status = attn_plan_execute(e->plan, e->q, s.k, s.v, e->kv_len, s.o, s.work);
    if (status) return status;
    changed += rows_changed(e, &s);
    runs++;
  }
  if (known) wrong = keys_mistaken(e, s.runs, s.keep);
  if (runs > 0 || known)
    bound_hard(bound, (double)(changed + wrong), 0);
  else
    bound_not_applicable(bound, "the pattern keeps every key of every row that was drawn");
  if (changed + wrong > 0)
    bound_say(bound, "%lld rows read keys outside their pattern; %lld keys contradict the law",
              (long long)changed, (long long)wrong);
  else if (!known)
    stated_demand(e, bound);
  return ATTN_OK;
}

const check check_sp0 = {
    .name = "SP-0",
    .of = &of_patterns,
    .kind = KIND_HARD,
    .statement = "a row's keys are those of its law; huge values and NaN in all other keys change no "
                 "bit of it",
    .source = "definition of a sparse pattern",
    .formula =
        "memcmp(row with K, V outside S(i) set to 1e30 or NaN, row) = 0, of rows drawn at random. S(i) "
        "against the membership that the variant states apart: the keys that i must see, plus min(drawn, "
        "blocks left) whole blocks among its candidates; causal: j <= i. No key twice, none beyond the "
        "reach.",
    .assumes =
        "The variant has a pattern. Where it states no membership, the pattern itself says what S(i) is, and "
        "the "
        "run is unchecked; an expression, or a pattern within a user's graph, has the laws of its parts.",
    .nulls[CHECK_ZEROS].blind =
        "an algorithm that writes zeros reads nothing, so that no poison reaches it; SP-1 rejects it",
    .nulls[CHECK_MEAN_V].rejected_on =
        "a window of 9 keys claimed, an algorithm that averages all of V: it reads outside",
    .nulls[CHECK_RANDOM_KEYS].rejected_on =
        "a window of 9 keys claimed, an algorithm that keeps one key in four at random: it reads outside",
    .evaluate = support_evaluate,
};
