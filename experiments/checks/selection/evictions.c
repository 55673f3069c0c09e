/* evictions.c - EVICT-1 and EVICT-2: what a cache holds shrinks, and what goes is what the score's
 * definition ranks last. */
#include "experiments/checks/check_table.h"
#include "experiments/checks/selection/watched_heads.h"

#include <math.h>
#include <stdio.h>

/* About how many positions are judged by definitions that read all keys, which take long. */
enum { RANKED_STEPS = 24 };

/* Is it decided at position t whether the key is admitted? */
static bool judged_at(const attn_kv_rule *r, int64_t t, int64_t j) {
  return attn_kv_admits(r) && (t > r->prompt ? t - j == r->recent : t == r->prompt && t - j >= r->recent);
}

/* ---- EVICT-1 ------------------------------------------------------------------------------------------ */

static const char *wrong_at(const watched *w, const attn_kv_rule *r, int64_t t, int64_t j, int64_t count) {
  const bool now = w->held[t * w->n + j];
  if (now && t > w->first && j < t && !w->held[(t - 1) * w->n + j]) return "returns";
  if (!now && t < r->prompt) return "went before the prompt was over";
  if (!now && t - j < r->recent) return "is recent, and went";
  if (!now && t < r->budget && !attn_kv_admits(r)) return "went before the budget was spent";
  if (now != w->held[t * w->n + j - j % r->chunk]) return "is parted from its chunk";
  return now && t >= r->prompt && count > r->budget ? "is one too many" : NULL;
}

/* Chunks that stay where keys go, without a recent key. */
static int64_t due_chunks(const attn_kv_rule *r) {
  return (r->budget - r->recent + 1) / r->chunk - (r->every + r->chunk - 1) / r->chunk;
}

/* Keys at position t where `before` were held: those that stay, and what is not ranked. With admit as many as
 * there are, `count`, except where the budget takes some that were admitted. */
static int64_t due_at(const attn_kv_rule *r, int64_t t, int64_t before, int64_t count, int64_t revised) {
  if (attn_kv_admits(r)) return revised ? r->budget : count;
  return t < r->prompt || before < r->budget
             ? before + 1
             : due_chunks(r) * r->chunk + t + 1 - (t - r->recent + 1) / r->chunk * r->chunk;
}

static int64_t count_held(const watched *w, int64_t t) {
  int64_t count = 0;
  for (int64_t j = 0; j <= t; j++) count += w->held[t * w->n + j];
  return count;
}

/* The rule with the budget of the head, by what it holds after the prompt. */
static attn_kv_rule rule_of(const watched *w) {
  attn_kv_rule r = *w->e->view->cache;
  const int64_t t = r.prompt > w->first ? r.prompt : w->first;
  if (r.shared > 0 && t < w->n && t < w->keys) r.budget += count_held(w, t) - attn_kv_count(&r, t);
  return r;
}

static outcome judge_shrinking(const watched *w, head_pool *all, char *text, size_t size) {
  const attn_kv_rule r = rule_of(w), *equal = w->e->view->cache;
  int64_t faults = 0, before = 0;
  all->more += r.budget - equal->budget;
  if (equal->shared > 0 &&
      ((double)r.budget < (double)equal->budget * (1 - equal->shared) || r.budget > r.prompt) && !faults++)
    snprintf(text, size, "its share of the budget is %lld", (long long)r.budget);
  for (int64_t t = w->first; t < w->n && t < w->keys; t++) {
    int64_t count = 0, revised = 0;
    for (int64_t j = 0; j <= t; j++) {
      const bool now = w->held[t * w->n + j], went = t > w->first && w->held[(t - 1) * w->n + j] && !now;
      count += now;
      revised += went && !judged_at(&r, t, j);
      const char *wrong = wrong_at(w, &r, t, j, count);
      if (wrong && !faults++)
        snprintf(text, size, "query at position %lld: key %lld %s", (long long)t, (long long)j, wrong);
    }
    const int64_t due = t > w->first ? due_at(&r, t, before, count, revised) : count;
    if (count != due && !faults++)
      snprintf(text, size, "query at position %lld: %lld keys are held, and should be %lld", (long long)t,
               (long long)count, (long long)due);
    before = count;
  }
  return (outcome){.measured = (double)faults};
}

static outcome judge_sum(const head_pool *all, char *text, size_t size) {
  snprintf(text, size, "they hold %lld keys beyond the sum of their budgets", (long long)all->more);
  return (outcome){.measured = fabs((double)all->more)};
}

static attn_status shrinking_evaluate(const evidence *e, result_bound *bound) {
  return watched_heads_check(e, judge_shrinking, judge_sum, bound);
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
        "go, floor((budget - recent + 1) / chunk) - ceil(every / chunk) chunks without a recent key stay. "
        "With admit a key may go when it is recent no more, or the prompt is over, and later only where the "
        "budget is full. With shared > 0 a head's budget is what it holds after the prompt: (1 - shared) "
        "budget ... prompt, and "
        "kv_heads budget in sum. measured: keys and positions, of the first 512 of some kv heads, that break "
        "it.",
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
static outcome judge_step(const watched *w, const attn_kv_history *h, int64_t t, head_pool *all,
                          int64_t *gone, int64_t *kept) {
  const attn_kv_rule *r = w->e->view->cache;
  const bool *before = w->held + (t - 1) * w->n, *now = w->held + t * w->n;
  const int64_t c = r->chunk, keys = t < w->keys ? t : w->keys;
  double went = -(double)INFINITY, stayed = (double)INFINITY, largest = 0;
  int64_t more = -due_chunks(r);
  *gone = *kept = -1;
  for (int64_t j = 0; j < keys; j++) *gone = before[j] && !now[j] ? j : *gone;
  if (*gone < 0) return (outcome)OUTCOME_NONE;
  for (int64_t u = 0; u < keys; u += c) {
    double own = 0;
    if (!before[u] || (now[u] && t - (u + c - 1) < r->recent)) continue;
    for (int64_t j = u; j < u + c && j < keys; j++) own += r->score->law(h, t, j) / (double)c;
    if (isfinite(own)) largest = fmax(largest, fabs(own));
    more += now[u];
    const bool refused = judged_at(r, t, u) && own < r->admit + tolerance(w, fabs(r->admit));
    if (!now[u] && !refused && own > went) went = own, *gone = u;
    if (now[u] && own < stayed) stayed = own, *kept = u;
  }
  if (t == r->prompt) {
    if (more < (r->prompt - r->budget) / c) all->went = fmax(all->went, went);
    if ((double)more > -floor(r->shared * (double)r->budget / (double)c))
      all->stayed = fmin(all->stayed, stayed);
    all->tolerance = fmax(all->tolerance, tolerance(w, largest));
  }
  if (*kept < 0) return (outcome)OUTCOME_NONE;
  return (outcome){.measured = fmax(0, went - stayed), .value = tolerance(w, largest)};
}

/* Of the keys of which it is decided at position t whether they are admitted: by how much one that is scores
 * less than admit, or one that is not, where the budget has room, no less. */
static outcome judge_admission(const watched *w, const attn_kv_history *h, int64_t t, int64_t *key) {
  const attn_kv_rule *r = w->e->view->cache;
  const bool *before = w->held + (t - 1) * w->n, *now = w->held + t * w->n,
             full = count_held(w, t) == r->budget;
  outcome worst = OUTCOME_NONE;
  for (int64_t j = 0; j < t; j++) {
    if (!before[j] || !judged_at(r, t, j) || (full && !now[j])) continue;
    const double own = r->score->law(h, t, j), off = now[j] ? r->admit - own : own - r->admit,
                 wrong = isnan(own) && now[j] ? (double)INFINITY : fmax(0, off),
                 size = isfinite(own) ? fmax(fabs(own), fabs(r->admit)) : 0;
    if (outcome_worsen(&worst, (outcome){.measured = wrong, .value = tolerance(w, size)})) *key = j;
  }
  return worst;
}

static outcome judge_pool(const head_pool *all, char *text, size_t size) {
  snprintf(text, size, "after the prompt a key of score %g went, and one of %g stayed", all->went,
           all->stayed);
  return (outcome){.measured = fmax(0, all->went - all->stayed), .value = all->tolerance};
}

static outcome judge_ranking(const watched *w, head_pool *all, char *text, size_t size) {
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
  int64_t next = w->first + 1, gone = -1, kept = -1;
  for (int64_t t = next; t < w->n && t < w->keys; t++) {
    if (outcome_worsen(&worst, judge_admission(w, &h, t, &gone)))
      snprintf(text, size, "position %lld: key %lld is %s against its score", (long long)t, (long long)gone,
               w->held[t * w->n + gone] ? "admitted" : "refused");
    if (t < next && t != w->e->view->cache->prompt) continue;
    if (outcome_worsen(&worst, judge_step(w, &h, t, all, &gone, &kept)))
      snprintf(text, size, "position %lld: key %lld went, and key %lld of a smaller score stayed",
               (long long)t, (long long)gone, (long long)kept);
    if (gone >= 0) next = t + every;
  }
  return worst;
}

static attn_status ranking_evaluate(const evidence *e, result_bound *bound) {
  if (!e->view->cache->score->law)
    return bound_excuse(bound, VERDICT_UNCHECKED, "the score states no law (attn_kv_score.law)");
  return watched_heads_check(e, judge_ranking, judge_pool, bound);
}

const check check_evict2 = {
    .name = "EVICT-2",
    .of = &of_caches,
    .kind = KIND_HARD,
    .statement = "the keys that a cache gives up are those that the score's definition ranks last",
    .source = "the score's paper",
    .formula =
        "max score of the keys that went when position t arrived - min score of those that stayed and "
        "are not recent <= rounding of fp64, with the score by its definition on what was held before "
        "(attn_kv_score.law), of a chunk the mean, and weights by the textbook's softmax; with admit a key "
        "that is recent no more scores at least admit if it stays, less if it goes while the budget has "
        "room, and what scores less is not ranked; with shared > 0, "
        "when the prompt is over, also of a kv head that holds less than `prompt` against one that holds "
        "more than its own. measured: that difference, over some of the first 512 positions of some kv "
        "heads.",
    .assumes = "The score states a law, and the inputs are finite.",
    .cause = "the law is of another score, weights of keys that went are not taken out, or sums, means and "
             "windows are mixed up",
    .nulls = CHECK_BLIND("it judges what is selected, and looks at no output"),
    .evaluate = ranking_evaluate,
};
