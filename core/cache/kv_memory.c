/* kv_memory.c - see kv_memory.h; and what of it a caller may look at. */
#include "core/cache/kv_memory.h"

#include <string.h>

enum { FIRST_ROWS = 64 };

void *kv_take(attn_kv_cache *c, int64_t count, size_t size) {
  size_t bytes = 0;
  if (attn_size_product("a cache's memory", (int64_t[]){count, (int64_t)size}, 2, &bytes)) return NULL;
  void *at = c->allocator.alloc(c->allocator.context, bytes);
  if (!at) attn_fail(ATTN_ENOMEM, "cache: no memory for %zu bytes", bytes);
  if (at) c->bytes += bytes;
  return at;
}

void kv_give(attn_kv_cache *c, void *at, int64_t count, size_t size) {
  if (!at) return;
  c->allocator.release(c->allocator.context, at, (size_t)count * size);
  c->bytes -= (size_t)count * size;
}

size_t kv_work_bytes(const attn_kv_cache *c, const attn_plan *plan) {
  return attn_size_sum(attn_plan_work_size(plan) + 1, kv_latents_work(c, attn_plan_problem(plan)->n_q));
}

void kv_drop_plan(attn_kv_cache *c) {
  if (!c->plan) return;
  kv_give(c, c->work, 1, kv_work_bytes(c, c->plan));
  c->bytes -= attn_plan_bytes(c->plan);
  attn_plan_destroy(c->plan);
  c->plan = NULL;
  c->work = NULL;
}

/* ---- rows -------------------------------------------------------------------------------------------- */

static void give_rows(attn_kv_cache *c) {
  for (kv_field f = 0; f < KV_FIELDS; f++)
    kv_give(c, c->field[f].at, kv_lines(c) * c->rows, c->field[f].bytes);
}

/* To the same cache with more room. */
static void move_rows(const attn_kv_cache *from, const attn_kv_cache *to) {
  for (kv_field f = 0; f < KV_FIELDS; f++)
    for (int64_t line = 0; line < kv_lines(to) && from->field[f].at; line++)
      memcpy(kv_row(to, f, line, 0), kv_row(from, f, line, 0),
             (size_t)kv_count(from, line) * from->field[f].bytes);
}

attn_status kv_grow(attn_kv_cache *c, int64_t wanted) {
  int64_t rows = c->rows ? c->rows : FIRST_ROWS;
  while (rows < wanted) rows *= 2;
  rows = attn_min(rows, c->most);
  if (rows <= c->rows) return ATTN_OK;
  attn_kv_cache larger = *c;
  larger.rows = rows;
  for (kv_field f = 0; f < KV_FIELDS; f++) larger.field[f].at = NULL;
  for (kv_field f = 0; f < KV_FIELDS; f++) {
    const size_t bytes = c->field[f].bytes;
    if (!bytes || (larger.field[f].at = kv_take(&larger, kv_lines(c) * rows, bytes))) continue;
    give_rows(&larger);
    return ATTN_ENOMEM;
  }
  move_rows(c, &larger);
  c->bytes = larger.bytes;
  give_rows(c);
  larger.bytes = c->bytes;
  *c = larger;
  for (int64_t line = 0; line < kv_lines(c) && c->evicts; line++)
    c->head[line].position = kv_row(c, KV_POSITIONS, line, 0);
  kv_drop_plan(c);
  return ATTN_OK;
}

void kv_close_gaps(attn_kv_cache *c, int64_t line, int64_t count, const int64_t *gone, int64_t n) {
  for (kv_field f = 0; f < KV_POSITIONS; f++)
    for (int64_t g = 0; g < n && c->field[f].at; g++) {
      const int64_t end = g + 1 < n ? gone[g + 1] : count;
      memmove(kv_row(c, f, line, gone[g] - g), kv_row(c, f, line, gone[g] + 1),
              (size_t)(end - gone[g] - 1) * c->field[f].bytes);
    }
}

void kv_count_held(attn_kv_cache *c) {
  for (int64_t b = 0; b < c->problem.batch; b++) c->held[b] = 0;
  for (int64_t line = 0; line < kv_lines(c); line++) {
    int64_t *held = &c->held[line / c->problem.kv_heads];
    *held = attn_max(*held, kv_count(c, line));
  }
}

/* ---- the state --------------------------------------------------------------------------------------- */

static int64_t length_elements(const attn_kv_cache *c) {
  return 3 * c->problem.batch + kv_lines(c) + c->problem.kv_heads;
}

static int64_t score_elements(const attn_kv_cache *c) {
  return kv_shares(c) ? c->problem.kv_heads * c->most : 0;
}

static int64_t row_elements(const attn_kv_cache *c) {
  return kv_lines(c) * (kv_group(c) + 1) * c->problem.d_qk;
}

attn_status kv_begin(attn_kv_cache *c) {
  const attn_problem *p = &c->problem;
  const int64_t batch = p->batch;
  const bool wide = c->evicts && !c->rule.score->fixed, wide_v = c->evicts && c->rule.score->values;
  c->field[KV_KEYS].bytes = attn_row_bytes(p->d_qk, attn_stored(p->k, p->dtype));
  c->field[KV_VALUES].bytes = c->latents.law.rank ? 0 : attn_row_bytes(p->d_v, attn_stored(p->v, p->dtype));
  c->field[KV_WIDE_KEYS].bytes = wide ? (size_t)p->d_qk * sizeof(double) : 0;
  c->field[KV_WIDE_VALUES].bytes = wide_v ? (size_t)p->d_v * sizeof(double) : 0;
  c->field[KV_POSITIONS].bytes = c->evicts ? sizeof(int64_t) : 0;
  c->length = kv_take(c, length_elements(c), sizeof(int64_t));
  if (!c->length) return ATTN_ENOMEM;
  c->held = c->length + batch;
  c->first = c->held + batch;
  c->went = c->first + batch;
  c->budget = c->went + kv_lines(c);
  for (int64_t b = 0; b < batch; b++) c->length[b] = c->held[b] = 0;
  for (int64_t line = 0; line < kv_lines(c); line++) c->went[line] = -1;
  if (c->latents.law.rank) return kv_latents_begin(c);
  if (!c->evicts) return ATTN_OK;
  c->state_bytes = (attn_kv_head_bytes(&c->rule, &c->problem, c->most) + 63) / 64 * 64;
  if (!(c->head = kv_take(c, kv_lines(c), sizeof *c->head))) return ATTN_ENOMEM;
  if (!(c->state = kv_take(c, kv_lines(c), c->state_bytes))) return ATTN_ENOMEM;
  const int64_t scores = score_elements(c);
  if (scores && !(c->scores = kv_take(c, scores, sizeof *c->scores))) return ATTN_ENOMEM;
  c->row = kv_take(c, row_elements(c), sizeof *c->row);
  if (!c->row || !(c->code = kv_take(c, kv_lines(c), c->field[KV_KEYS].bytes))) return ATTN_ENOMEM;
  for (int64_t line = 0; line < kv_lines(c); line++)
    attn_kv_head_begin(&c->head[line], &c->rule, &c->problem, line % c->problem.kv_heads, c->most, false,
                       NULL, c->state + (size_t)line * c->state_bytes);
  return ATTN_OK;
}

void kv_free(attn_kv_cache *c) {
  kv_drop_plan(c);
  kv_latents_free(c);
  give_rows(c);
  kv_give(c, c->length, length_elements(c), sizeof(int64_t));
  kv_give(c, c->scores, score_elements(c), sizeof *c->scores);
  kv_give(c, c->head, kv_lines(c), sizeof *c->head);
  kv_give(c, c->state, kv_lines(c), c->state_bytes);
  kv_give(c, c->row, row_elements(c), sizeof *c->row);
  kv_give(c, c->code, kv_lines(c), c->field[KV_KEYS].bytes);
  attn_spec_destroy(c->reader);
  attn_arena_free(&c->arrays);
}

void kv_copy(const attn_kv_cache *from, attn_kv_cache *to) {
  const size_t rows = (size_t)(kv_lines(to) * to->rows);
  memcpy(to->length, from->length, (size_t)length_elements(to) * sizeof *to->length);
  for (kv_field f = 0; f < KV_FIELDS; f++)
    if (to->field[f].at) memcpy(to->field[f].at, from->field[f].at, rows * to->field[f].bytes);
  if (!to->evicts) return;
  memcpy(to->state, from->state, (size_t)kv_lines(to) * to->state_bytes);
  for (int64_t line = 0; line < kv_lines(to); line++) {
    to->head[line].rule.budget = from->head[line].rule.budget;
    to->head[line].count = from->head[line].count;
    to->head[line].queries = from->head[line].queries;
    to->head[line].newest = from->head[line].newest;
  }
}

attn_status attn_kv_cache_look(const attn_kv_cache *c, int64_t batch, int64_t kv_head,
                               attn_kv_cache_view *out) {
  if (!c) return attn_null("cache", "cache");
  if (!out) return attn_null("cache", "view");
  const int64_t kv_heads = c->latents.law.rank ? c->latents.given.kv_heads : c->problem.kv_heads;
  if (batch < 0 || batch >= c->problem.batch || kv_head < 0 || kv_head >= kv_heads)
    return attn_fail(ATTN_EINVAL, "cache: no kv head %lld of batch entry %lld", (long long)kv_head,
                     (long long)batch);
  const int64_t line = batch * c->problem.kv_heads + (c->latents.law.rank ? 0 : kv_head);
  *out = (attn_kv_cache_view){
      .length = c->length[batch], .held = kv_count(c, line), .position = kv_row(c, KV_POSITIONS, line, 0)};
  return ATTN_OK;
}

size_t attn_kv_cache_bytes(const attn_kv_cache *c) {
  return c ? c->bytes + attn_kv_cache_bytes(c->latents.prompt) : 0;
}
