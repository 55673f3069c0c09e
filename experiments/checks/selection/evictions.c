/* evictions.c - EVICT-1 and EVICT-2: what a cache holds shrinks, and what goes is what the score's
 * definition ranks last. Both are judged on what the run selects for the first queries of some kv heads,
 * one after the other. */
#include "experiments/checks/check_table.h"
#include "experiments/evidence/head.h"
#include "experiments/evidence/rows.h"
#include "experiments/reference/transform.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Positions of a head that are judged, and heads; about how many positions are judged by definitions that
 * read all keys, which take long. */
enum { MOST_STEPS = 512, MOST_LINES = 4, RANKED_STEPS = 24 };

/* The first queries of a kv head: positions first ... n - 1 have one, that of `first` is query `skipped`. */
typedef struct watched {
  const evidence *e;
  int64_t batch, kv_head, keys, first, n, skipped;
  head_data head;
  bool *held;              /* [n, n] */
  double *weights, *later; /* [n, n], or NULL: attn_kv_history */
  double *products;        /* [heads, n, n], or NULL */
} watched;

static void watched_free(watched *w) {
  if (w->head.k) head_data_return(w->e, &w->head);
  free(w->held);
  free(w->weights);
  free(w->later);
  free(w->products);
}

static attn_status mark_held(watched *w) {
  const attn_problem *p = w->e->problem;
  const int64_t count = w->n - w->first, runs = w->e->view->selector->max_runs;
  int64_t *rows = malloc((size_t)count * sizeof *rows), *counts = malloc((size_t)count * sizeof *counts);
  attn_run *all = malloc((size_t)(count * runs) * sizeof *all);
  attn_picks picks = {.max_runs = runs, .runs = all, .counts = counts};
  attn_status status = rows && counts && all ? ATTN_OK : attn_fail(ATTN_ENOMEM, "no memory for a cache");
  for (int64_t r = 0; !status && r < count; r++) rows[r] = w->skipped + r;
  const attn_row_set set = {w->batch, w->kv_head * (p->heads / p->kv_heads), count, rows};
  if (!status) status = attn_plan_select(w->e->plan, w->e->q, w->e->k, w->e->v, w->e->kv_len, &set, &picks);
  for (int64_t r = 0; !status && r < count; r++)
    for (int64_t i = 0; i < counts[r]; i++)
      for (int64_t j = 0; j < all[r * runs + i].count; j++) {
        const int64_t key = all[r * runs + i].first + j;
        if (key >= 0 && key <= w->first + r && key < w->keys) w->held[(w->first + r) * w->n + key] = true;
      }
  free(rows);
  free(counts);
  free(all);
  return status;
}

/* Adds the weights of the query at position t, a mean over the heads of the kv head, to sums of its keys.
 * seen: of keys 0 ... t, NULL: all; q: [d]; own: [t + 1]. */
static void add_weights(const watched *w, int64_t t, const bool *seen, double *q, double *own, double *sums) {
  const attn_problem *p = w->e->problem;
  const int64_t group = p->heads / p->kv_heads, d = p->d_qk, keys = t < w->keys ? t + 1 : w->keys;
  for (int64_t g = 0; g < group; g++) {
    const sample_row row = {w->batch, w->kv_head * group + g, w->skipped + t - w->first};
    double most = -(double)INFINITY, sum = 0;
    row_widen(w->e->q, p->dtype, row_offset(p, &row, d), d, q);
    for (int64_t j = 0; j < keys; j++) {
      double product = 0;
      if (seen && !seen[j]) continue;
      for (int64_t l = 0; l < d; l++) product += q[l] * w->head.k[j * d + l];
      own[j] = transform_score(p, w->batch, row.head, row.i, j, p->scale * product).score;
      most = fmax(most, own[j]);
    }
    for (int64_t j = 0; j < keys; j++)
      if (!seen || seen[j]) sum += exp(own[j] - most);
    for (int64_t j = 0; j < keys; j++)
      if (!seen || seen[j]) sums[j] += exp(own[j] - most) / sum / (double)group;
  }
}

/* What scores read of queries: what each gave the keys that were held, or what all later ones give all. */
static attn_status weigh(watched *w) {
  const int64_t n = w->n, all = w->e->problem->n_kv;
  double *q = malloc((size_t)w->e->problem->d_qk * sizeof *q), *own = malloc((size_t)all * sizeof *own),
         *sums = calloc((size_t)all, sizeof *sums), *table = calloc((size_t)(n * n), sizeof *table);
  attn_status status = q && own && sums && table ? ATTN_OK : attn_fail(ATTN_ENOMEM, "no memory for a cache");
  if (status || !w->e->view->cache->score->future) {
    for (int64_t t = w->first; !status && t < n; t++)
      add_weights(w, t, w->held + t * n, q, own, table + t * n);
    w->weights = table;
  } else {
    for (int64_t t = w->keys - 1; t >= 0; t--) {
      add_weights(w, t, NULL, q, own, sums);
      if (t < n) memcpy(table + t * n, sums, (size_t)n * sizeof *sums);
    }
    w->later = table;
  }
  free(q);
  free(own);
  free(sums);
  return status;
}

/* What scores read that take products. */
static attn_status multiply(watched *w) {
  const attn_problem *p = w->e->problem;
  const int64_t n = w->n, d = p->d_qk, group = p->heads / p->kv_heads;
  double *q = malloc((size_t)d * sizeof *q);
  w->products = calloc((size_t)(group * n * n), sizeof *w->products);
  if (!q || !w->products) {
    free(q);
    return attn_fail(ATTN_ENOMEM, "no memory for a cache");
  }
  for (int64_t i = 0; i < group * (n - w->first); i++) {
    const int64_t head = i / (n - w->first), t = w->first + i % (n - w->first);
    const sample_row row = {w->batch, w->kv_head * group + head, w->skipped + t - w->first};
    row_widen(w->e->q, p->dtype, row_offset(p, &row, d), d, q);
    for (int64_t j = 0; j < n; j++)
      for (int64_t l = 0; l < d; l++)
        w->products[(head * n + t) * n + j] += p->scale * q[l] * w->head.k[j * d + l];
  }
  free(q);
  return ATTN_OK;
}

static attn_status watch(const evidence *e, int64_t line, watched *w) {
  const attn_problem *p = e->problem;
  *w = (watched){.e = e, .batch = line / p->kv_heads, .kv_head = line % p->kv_heads};
  w->keys = e->kv_len ? e->kv_len[w->batch] : p->n_kv;
  w->first = attn_problem_position(p, 0) > 0 ? attn_problem_position(p, 0) : 0;
  w->skipped = w->first - attn_problem_position(p, 0); /* before the first key */
  w->n = p->n_kv;
  if (w->n > MOST_STEPS) w->n = MOST_STEPS;
  attn_status status = head_data_borrow(e, w->batch, w->kv_head * (p->heads / p->kv_heads), &w->head);
  if (status || w->first >= w->n) return status;
  w->held = calloc((size_t)(w->n * w->n), sizeof *w->held);
  if (!w->held) return attn_fail(ATTN_ENOMEM, "no memory for a cache");
  const attn_kv_score *score = e->view->cache->score;
  status = mark_held(w);
  if (!status && score->products) return multiply(w);
  return !status && (attn_kv_observes(score) || score->future) ? weigh(w) : status;
}

/* A judge of the steps of a head; says what is wrong at the first, and returns what is the worst. */
typedef outcome head_judge(const watched *, char *text, size_t size);

static attn_status check_heads(const evidence *e, head_judge *judge, result_bound *bound) {
  const attn_problem *p = e->problem;
  const int64_t lines = p->batch * p->kv_heads, some = lines < MOST_LINES ? lines : MOST_LINES;
  outcome worst = OUTCOME_NONE;
  char text[160] = "";
  attn_status status = ATTN_OK;
  for (int64_t i = 0; !status && i < some; i++) {
    const int64_t line = some > 1 ? i * (lines - 1) / (some - 1) : 0;
    char own[128] = "";
    watched w;
    status = watch(e, line, &w);
    if (!status && w.held && w.head.finite && outcome_worsen(&worst, judge(&w, own, sizeof own)))
      snprintf(text, sizeof text, "batch entry %lld, kv head %lld, %s", (long long)w.batch,
               (long long)w.kv_head, own);
    watched_free(&w);
  }
  if (status) return status;
  status = outcome_to_verdict(&worst, bound);
  if (bound->verdict == VERDICT_VIOLATED) bound_say(bound, "%s", text);
  return status;
}

/* ---- EVICT-1 ------------------------------------------------------------------------------------------ */

static const char *wrong_at(const watched *w, int64_t t, int64_t j, int64_t count) {
  const attn_kv_rule *r = w->e->view->cache;
  const bool now = w->held[t * w->n + j];
  if (now && t > w->first && j < t && !w->held[(t - 1) * w->n + j]) return "returns";
  if (!now && t < r->prompt) return "went before the prompt was over";
  if (!now && t - j < r->recent) return "is recent, and went";
  if (!now && t < r->budget) return "went before the budget was spent";
  if (now != w->held[t * w->n + j - j % r->chunk]) return "is parted from its chunk";
  return now && t >= r->prompt && count > r->budget ? "is one too many" : NULL;
}

/* Keys at position t where `before` were held: those that stay, and what is not ranked. */
static int64_t due_at(const attn_kv_rule *r, int64_t t, int64_t before) {
  const int64_t c = r->chunk, stay = (r->budget - r->recent + 1) / c - (r->every + c - 1) / c;
  return t < r->prompt || before < r->budget ? before + 1 : stay * c + t + 1 - (t - r->recent + 1) / c * c;
}

static outcome judge_shrinking(const watched *w, char *text, size_t size) {
  int64_t faults = 0, before = 0;
  for (int64_t t = w->first; t < w->n && t < w->keys; t++) {
    int64_t count = 0;
    for (int64_t j = 0; j <= t; j++) {
      count += w->held[t * w->n + j];
      const char *wrong = wrong_at(w, t, j, count);
      if (wrong && !faults++)
        snprintf(text, size, "query at position %lld: key %lld %s", (long long)t, (long long)j, wrong);
    }
    const int64_t due = t > w->first ? due_at(w->e->view->cache, t, before) : count;
    if (count != due && !faults++)
      snprintf(text, size, "query at position %lld: %lld keys are held, and should be %lld", (long long)t,
               (long long)count, (long long)due);
    before = count;
  }
  return (outcome){.measured = (double)faults};
}

static attn_status shrinking_evaluate(const evidence *e, result_bound *bound) {
  return check_heads(e, judge_shrinking, bound);
}

const check check_evict1 = {
    .name = "EVICT-1",
    .of = &of_caches,
    .kind = KIND_HARD,
    .statement =
        "a key that a cache gave up does not return, the budget is kept, keys go when and as many as "
        "the rule says, and the newest stay",
    .source = "definition of a cache under a budget",
    .formula =
        "S_t within S_(t-1) and t; |S_t| <= budget from the prompt's end on; the `recent` newest keys in "
        "S_t; all keys before the prompt's end and while the budget is not spent; chunks whole; where keys "
        "go, "
        "floor((budget - recent + 1) / chunk) - ceil(every / chunk) chunks without a recent key stay. "
        "measured: keys and positions, of the first 512 of some kv heads, that break it.",
    .assumes = "Finite inputs.",
    .cause = "survivors are chosen anew at each step, or positions are counted within the cache",
    .nulls = CHECK_BLIND("it judges what is selected, and looks at no output"),
    .evaluate = shrinking_evaluate,
};

/* ---- EVICT-2 ------------------------------------------------------------------------------------------ */

/* How far a definition in fp64 may be off: sums of at most n weights, each with some dozens of roundings. */
static double tolerance(const watched *w, double largest) {
  return (double)(w->e->problem->n_kv + w->e->problem->d_qk + 64) * 0x1p-50 * largest;
}

/* The best chunk of those that went when position t arrived against the worst of those that stayed and need
 * not; by their first keys. */
static outcome judge_step(const watched *w, const attn_kv_history *h, int64_t t, int64_t *gone,
                          int64_t *kept) {
  const attn_kv_rule *r = w->e->view->cache;
  const bool *before = w->held + (t - 1) * w->n, *now = w->held + t * w->n;
  const int64_t c = r->chunk, keys = t < w->keys ? t : w->keys;
  double went = -(double)INFINITY, stayed = (double)INFINITY, largest = 0;
  *gone = *kept = -1;
  for (int64_t j = 0; j < keys; j++) *gone = before[j] && !now[j] ? j : *gone;
  if (*gone < 0) return (outcome)OUTCOME_NONE;
  for (int64_t u = 0; u < keys; u += c) {
    double own = 0;
    if (!before[u] || (now[u] && t - (u + c - 1) < r->recent)) continue;
    for (int64_t j = u; j < u + c && j < keys; j++) own += r->score->law(h, t, j) / (double)c;
    if (isfinite(own)) largest = fmax(largest, fabs(own));
    if (!now[u] && own > went) went = own, *gone = u;
    if (now[u] && own < stayed) stayed = own, *kept = u;
  }
  if (*kept < 0) return (outcome)OUTCOME_NONE;
  return (outcome){.measured = fmax(0, went - stayed), .value = tolerance(w, largest)};
}

static outcome judge_ranking(const watched *w, char *text, size_t size) {
  const double *filters = w->e->view->cache->filters;
  const attn_kv_history h = {.d = w->e->problem->d_qk,
                             .n = w->n,
                             .keys = w->head.k,
                             .d_v = w->e->problem->d_v,
                             .values = w->head.v,
                             .held = w->held,
                             .weights = w->weights,
                             .heads = w->e->problem->heads / w->e->problem->kv_heads,
                             .products = w->products,
                             .later = w->later,
                             .seed = w->e->view->cache->seed,
                             .kv_head = w->kv_head,
                             .recent = w->e->view->cache->recent,
                             .filter = filters ? filters + w->kv_head * w->e->problem->d_qk : NULL};
  outcome worst = OUTCOME_NONE;
  const int64_t every = w->weights ? 1 : (w->n - w->first) / RANKED_STEPS + 1;
  int64_t next = w->first + 1, gone, kept;
  for (int64_t t = next; t < w->n && t < w->keys; t++) {
    if (t < next && t != w->e->view->cache->prompt) continue;
    if (outcome_worsen(&worst, judge_step(w, &h, t, &gone, &kept)))
      snprintf(text, size, "position %lld: key %lld went, and key %lld of a smaller score stayed",
               (long long)t, (long long)gone, (long long)kept);
    if (gone >= 0) next = t + every;
  }
  return worst;
}

static attn_status ranking_evaluate(const evidence *e, result_bound *bound) {
  if (!e->view->cache->score->law)
    return bound_excuse(bound, VERDICT_UNCHECKED, "the score states no law (attn_kv_score.law)");
  return check_heads(e, judge_ranking, bound);
}

const check check_evict2 = {
    .name = "EVICT-2",
    .of = &of_caches,
    .kind = KIND_HARD,
    .statement = "the keys that a cache gives up are those that the score's definition ranks last",
    .source = "the score's paper",
    .formula = "max score of the keys that went when position t arrived - min score of those that stayed and "
               "are not recent <= rounding of fp64, with the score by its definition on what was held before "
               "(attn_kv_score.law), of a chunk the mean, and weights by the textbook's softmax. measured: "
               "that difference, over "
               "some of the first 512 positions of some kv heads.",
    .assumes = "The score states a law, and the inputs are finite.",
    .cause = "the law is of another score, weights of keys that went are not taken out, or sums, means and "
             "windows are mixed up",
    .nulls = CHECK_BLIND("it judges what is selected, and looks at no output"),
    .evaluate = ranking_evaluate,
};
