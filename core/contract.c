/* contract.c - what a pattern's row promises: at most max_runs runs of keys that exist, in ascending order of
 * their first keys, none of which has a key of another. The engine counts on it: a step of 0 is a division by
 * zero, and a key of two runs has twice its weight. */
#include "core/internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Room for a row that writes too many runs: as many as there are keys, within reason. Of these the first is
 * looked at. */
enum { BEHIND = 64, BEHIND_MAX = 1 << 16 };
static const attn_run paint = {INT64_MIN + 1, INT64_MIN + 2, INT64_MIN + 3};

size_t attn_pattern_reader_bytes(const attn_pattern *p, const attn_problem *x) {
  size_t runs = p ? (size_t)p->max_runs : 1, behind = (size_t)attn_min(x->n_kv, BEHIND_MAX) + BEHIND;
  return attn_size_times(runs, sizeof(attn_run) + sizeof(int64_t)) + behind * sizeof(attn_run);
}

attn_pattern_reader attn_pattern_reader_make(const char *variant, const attn_pattern *p,
                                             const attn_problem *x, void *memory) {
  int64_t *open = memory;
  attn_run *runs = (attn_run *)(void *)(open + (p ? p->max_runs : 1));
  if (p) runs[p->max_runs] = paint;
  return (attn_pattern_reader){variant, p, x, runs, open};
}

static int64_t last_key(attn_run r) { return r.first + (r.count - 1) * r.step; }

static void print_run(attn_run r, char *text, size_t size) {
  if (r.step == 1)
    snprintf(text, size, "keys %lld..%lld", (long long)r.first, (long long)last_key(r));
  else
    snprintf(text, size, "keys %lld..%lld by %lld", (long long)r.first, (long long)last_key(r),
             (long long)r.step);
}

static attn_status refuse(const attn_pattern_reader *x, int64_t head, int64_t i, const char *what) {
  return attn_fail(ATTN_EINVAL, "variant %s: pattern row of query %lld (head %lld): %s", x->variant,
                   (long long)i, (long long)head, what);
}

/* A run by itself; NULL: it is one. */
static const char *run_wrong(attn_run r, int64_t n) {
  if (r.count < 0) return "has a negative count";
  if (r.step < 1) return "has a step below 1";
  if (r.first < 0) return "begins before key 0";
  if (r.first >= n || r.count - 1 > (n - 1 - r.first) / r.step) return "goes beyond the last key";
  return NULL;
}

/* The first key that two runs share, b beginning after a; -1: none. */
static int64_t shared_key(attn_run a, attn_run b) {
  int64_t end = attn_min(last_key(a), last_key(b));
  if (a.step == b.step && (b.first - a.first) % a.step) return -1;
  /* Residues of b's keys repeat after a.step of them. */
  int64_t key = b.first;
  for (int64_t t = 0; t < a.step && key <= end; t++, key += b.step)
    if ((key - a.first) % a.step == 0) return key;
  return -1;
}

/* Run r against those before it. open: those that may have keys from its first on; a run of one key has
 * none. */
static attn_status check_order(const attn_pattern_reader *x, int64_t head, int64_t i, int64_t r,
                               int64_t before, int64_t *open_count) {
  const attn_run run = x->runs[r];
  char mine[80], other[80], text[240];
  print_run(run, mine, sizeof mine);
  if (before >= 0 && run.first <= x->runs[before].first) {
    print_run(x->runs[before], other, sizeof other);
    snprintf(text, sizeof text, "run %lld (%s) does not begin after run %lld (%s)", (long long)r, mine,
             (long long)before, other);
    return refuse(x, head, i, text);
  }
  int64_t kept = 0;
  for (int64_t o = 0; o < *open_count; o++) {
    const attn_run earlier = x->runs[x->open[o]];
    if (last_key(earlier) < run.first) continue;
    int64_t key = shared_key(earlier, run);
    if (key >= 0) {
      print_run(earlier, other, sizeof other);
      snprintf(text, sizeof text, "run %lld (%s) overlaps run %lld (%s) in key %lld", (long long)r, mine,
               (long long)x->open[o], other, (long long)key);
      return refuse(x, head, i, text);
    }
    x->open[kept++] = x->open[o];
  }
  if (run.count > 1) x->open[kept++] = r;
  *open_count = kept;
  return ATTN_OK;
}

/* Runs of which each begins behind the end of the last, as most rows have: sound at a glance. */
static bool apart(const attn_run *runs, int64_t count, int64_t n) {
  int64_t end = -1;
  for (int64_t r = 0; r < count; r++) {
    const attn_run run = runs[r];
    if (run.first <= end || run.first >= n || run.count < 1 || run.step < 1) return false;
    int64_t room = n - 1 - run.first;
    if (run.count - 1 > (run.step == 1 ? room : room / run.step)) return false;
    end = last_key(run);
  }
  return true;
}

static attn_status check_runs(const attn_pattern_reader *x, int64_t head, int64_t i, int64_t count) {
  char text[240];
  if (apart(x->runs, count, x->problem->n_kv)) return ATTN_OK;
  int64_t open = 0, before = -1;
  for (int64_t r = 0; r < count; r++) {
    const attn_run run = x->runs[r];
    if (run.count == 0) continue;
    const char *wrong = run_wrong(run, x->problem->n_kv);
    if (wrong) {
      snprintf(text, sizeof text, "run %lld {first %lld, count %lld, step %lld} %s (n_kv = %lld)",
               (long long)r, (long long)run.first, (long long)run.count, (long long)run.step, wrong,
               (long long)x->problem->n_kv);
      return refuse(x, head, i, text);
    }
    attn_status status = check_order(x, head, i, r, before, &open);
    if (status) return status;
    before = r;
  }
  return ATTN_OK;
}

attn_status attn_pattern_read(const attn_pattern_reader *x, int64_t head, int64_t i, int64_t *count) {
  const attn_problem *p = x->problem;
  if (!x->pattern) {
    *count = attn_pattern_row(NULL, p, head, i, x->runs);
    return ATTN_OK;
  }
  char text[120];
  int64_t most = x->pattern->max_runs,
          given = x->pattern->row(x->pattern->state, head, attn_problem_position(p, i), x->runs);
  if (memcmp(&x->runs[most], &paint, sizeof paint) != 0) {
    x->runs[most] = paint;
    snprintf(text, sizeof text, "row writes more than max_runs = %lld runs", (long long)most);
    return refuse(x, head, i, text);
  }
  if (given < 0 || given > most) {
    snprintf(text, sizeof text, "row returns %lld runs, expected 0 ... max_runs = %lld", (long long)given,
             (long long)most);
    return refuse(x, head, i, text);
  }
  attn_status status = check_runs(x, head, i, given);
  if (!status) *count = attn_pattern_clip(p, i, x->runs, given);
  return status;
}

/* -- verification -- */

static bool same(const attn_run *a, const attn_run *b, int64_t count) {
  for (int64_t r = 0; r < count; r++)
    if (a[r].first != b[r].first || a[r].count != b[r].count || a[r].step != b[r].step) return false;
  return true;
}

static attn_status read_twice(const attn_pattern_reader *x, const attn_pattern_reader *again, int64_t head,
                              int64_t i) {
  int64_t count = 0, other = 0;
  attn_status status = attn_pattern_read(x, head, i, &count);
  if (!status) status = attn_pattern_read(again, head, i, &other);
  if (status) return status;
  if (count != other || !same(x->runs, again->runs, count))
    return attn_fail(ATTN_EFOREIGN,
                     "variant %s: pattern row of query %lld (head %lld) gives other runs when "
                     "it is called again",
                     x->variant, (long long)i, (long long)head);
  if (x->pattern->per_head || x->problem->heads == 1) return ATTN_OK;
  if ((status = attn_pattern_read(again, x->problem->heads - 1, i, &other))) return status;
  if (count != other || !same(x->runs, again->runs, count))
    return attn_fail(ATTN_EFOREIGN,
                     "variant %s: pattern row of query %lld depends on the head, but per_head "
                     "is false",
                     x->variant, (long long)i);
  return ATTN_OK;
}

attn_status attn_pattern_verify(const char *variant, const attn_pattern *pattern, const attn_problem *p) {
  size_t bytes = attn_pattern_reader_bytes(pattern, p);
  char *memory = bytes < PTRDIFF_MAX / 2 ? malloc(2 * bytes) : NULL;
  if (!memory) return attn_fail(ATTN_ENOMEM, "variant %s: no memory for a row of its pattern", variant);
  attn_pattern_reader x = attn_pattern_reader_make(variant, pattern, p, memory),
                      again = attn_pattern_reader_make(variant, pattern, p, memory + bytes);
  attn_status status = ATTN_OK;
  for (int64_t head = 0; head < (pattern->per_head ? p->heads : 1) && !status; head++)
    for (int64_t i = 0; i < p->n_q && !status; i++) status = read_twice(&x, &again, head, i);
  free(memory);
  return status;
}
