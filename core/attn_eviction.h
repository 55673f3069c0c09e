/* attn_eviction.h - which keys a cache of keys and values gives up when its budget is spent: a rule is a
 * score of the keys that are held, a budget, and how many of the newest are safe. Part of attn_variant.h,
 * which includes it. */
#ifndef ATTN_EVICTION_H
#define ATTN_EVICTION_H

/* The keys of a kv head that are held when one more arrives, by ascending position. */
typedef struct attn_kv_held {
  int64_t d, count;
  const int64_t *position; /* [count] */
  const double *keys;      /* of d elements; held key j is row row[j], or row j where this is NULL */
  const int64_t *row;
  /* With attn_kv_score.values: of d_v elements, in the same rows; else NULL. */
  int64_t d_v;
  const double *values;
  uint64_t seed;
  int64_t kv_head, recent; /* attn_kv_rule.recent */
  const double *filter;    /* [d], with attn_kv_score.filters: of the kv head */
  /* With attn_kv_score.window: of the last queries attn_kv_weights has the softmax over the keys that each
   * saw, a mean over the query heads of the kv head. A key that came after the query has 0. */
  int64_t queries;
  int64_t window, weights_row, newest; /* how they lie: a ring */
  const double *weights;
  /* With attn_kv_score.products: of these queries attn_kv_query_products has the products with all held keys
   * in each of the heads that share them. */
  int64_t heads;
  /* With attn_kv_score.sums: of each key the sum of such weights over all queries that saw it, and how many
   * these are. */
  const double *sum;
  const int64_t *seen;
  /* With attn_kv_score.future: of the key at each position the weight that it will have, over all keys, for
   * the queries from the arriving position on: a sum over these of means over the query heads. */
  const double *later;
} attn_kv_held;

/* What the law of a score looks at: all positions of a kv head, and what was held when. */
typedef struct attn_kv_history {
  int64_t d, n;       /* elements of a key; positions */
  const double *keys; /* [n - first, d]: attn_kv_key */
  int64_t d_v;
  const double *values;  /* [n, d_v], where the score reads them */
  int64_t first;         /* 0; where a score is fixed, the only key that may be asked for */
  const bool *held;      /* [n, n]: does the query at position t see key j? */
  const double *weights; /* [n, n]: what it gave it, as attn_kv_weights; NULL where the score reads none */
  int64_t heads;
  const double *products; /* [heads, n, n]: scale q.k of the query at a position and a key; NULL likewise */
  const double *later;    /* [n, n]: attn_kv_held.later by key when position t arrives; NULL likewise */
  uint64_t seed;
  int64_t kv_head, recent;
  const double *filter;
} attn_kv_history;

static inline const double *attn_kv_key(const attn_kv_history *h, int64_t j) {
  return h->keys + (j - h->first) * h->d;
}

/* What a policy ranks by. The keys of the least score go; of equal ones that of the higher position, and NaN
 * is less than every number. */
typedef struct attn_kv_score {
  const char *name, *summary, *cite;
  bool fixed;     /* a key's score depends on the key, its position and the seed alone */
  int64_t window; /* queries whose weights it reads; 0: none */
  bool sums;      /* it reads sum and seen */
  bool future;    /* it reads later: an oracle, which no cache can ask */
  bool products;  /* with window: it reads products scale q.k of these queries, not weights */
  bool filters;   /* it reads a vector of each kv head, from a file */
  bool values;    /* it reads values; no fixed score does */
  void (*score)(const attn_kv_held *, double *score);
  /* The definition, which checks hold score against: of a held key when position t arrives, in fp64. NULL: it
   * is not said. */
  double (*law)(const attn_kv_history *, int64_t t, int64_t key);
} attn_kv_score;

/* Weights of the held keys, [count]; query 0 is the newest. */
static inline const double *attn_kv_weights(const attn_kv_held *h, int64_t query) {
  return h->weights + (h->newest + h->window - query) % h->window * h->weights_row;
}

/* Products with the held keys, [count], in one of the heads that share them. */
static inline const double *attn_kv_query_products(const attn_kv_held *h, int64_t query, int64_t head) {
  return h->weights + ((h->newest + h->window - query) % h->window * h->heads + head) * h->weights_row;
}

static inline bool attn_kv_observes(const attn_kv_score *s) { return s->window > 0 || s->sums; }

/* The library's, and their names as choices of a parameter. */
enum { ATTN_KV_SCORES = 12 };
ATTN_API extern const char *const attn_kv_score_names[ATTN_KV_SCORES + 1];
ATTN_API const attn_kv_score *attn_kv_score_at(int64_t index);

/* score: by which keys go; budget: keys of a kv head after one has arrived, at most; recent: of these the
 * newest, its own included, that do not go; prompt: nothing goes before this position. Positions c chunk ...
 * c chunk + chunk - 1 are a chunk, whose keys go together: chunks of the least mean score, none with a recent
 * key. Where a key would be one too many, enough go for attn_kv_period keys to find room, `every` in whole
 * chunks: of those without a recent key attn_kv_kept stay. 1 <= recent <= budget; attn_kv_kept >= 0.
 *
 * shared: the part of the budget, 0 ... 1, that the kv heads of a batch entry pool (Feng et al. 2024,
 * arXiv:2407.11550, with the safeguard alpha = 1 - shared). When the prompt is over each head keeps the best
 * of its chunks, except as many as it pooled; of all others the largest scores of all heads stay, as many as
 * were pooled, of equal ones those of the lower head. From then on a head has the budget by which it keeps
 * that many (attn_kv_share), at most `prompt`. shared > 0 needs prompt > budget.
 *
 * admit: not 0, the least score of a key that stays when it is recent no more (KV admission: Huang et al.
 * 2025, arXiv:2512.17452). When a position arrives the newest key that is not recent is judged, and when the
 * prompt is over all such keys: those that score less go, and those that stay are not judged again. Then the
 * budget takes what is too many of the others. It needs every = 1, chunk = 1 and shared = 0. */
typedef struct attn_kv_rule {
  const attn_kv_score *score;
  int64_t budget, recent, prompt, every, chunk;
  double shared, admit;
  uint64_t seed;
  const char *filters_file; /* with attn_kv_score.filters: its path, npy [kv_heads, d_qk]; else NULL or "" */
  const double *filters;    /* what is read of it: the library's */
} attn_kv_rule;

static inline int64_t attn_kv_period(const attn_kv_rule *r) {
  return (r->every + r->chunk - 1) / r->chunk * r->chunk;
}
static inline int64_t attn_kv_kept(const attn_kv_rule *r) {
  return (r->budget - r->recent + 1) / r->chunk - attn_kv_period(r) / r->chunk;
}

/* Of the chunks that stay in a kv head those that it pools. */
static inline int64_t attn_kv_pooled(const attn_kv_rule *r) {
  const int64_t chunks = (int64_t)(r->shared * (double)r->budget) / r->chunk, kept = attn_kv_kept(r);
  return chunks < kept ? chunks : kept;
}

static inline bool attn_kv_admits(const attn_kv_rule *r) { return r->admit < 0 || r->admit > 0; }

/* The first position for which a key may go. */
static inline int64_t attn_kv_first(const attn_kv_rule *r) {
  const int64_t least = attn_kv_admits(r) ? r->recent : r->budget;
  return r->prompt > least ? r->prompt : least;
}

/* Keys that are held after the one at this position has arrived, in the mean of kv heads; with admit the most
 * that may be. */
ATTN_API int64_t attn_kv_count(const attn_kv_rule *, int64_t position);

/* Parameters of a rule that is the member `rule` of a variant's parameters: budget, recent, prompt, every,
 * chunk, shared and admit. */
#define ATTN_KV_PARAM(params, rule, name, least, preset, help) \
  { #name, ATTN_INT, offsetof(params, rule.name), least, 1 << 30, preset, NULL, help }
#define ATTN_KV_SHARED(params, rule)                                        \
  {                                                                         \
    "shared", ATTN_REAL, offsetof(params, rule.shared), 0, 1, "0", NULL,    \
        "part of the budget that kv heads share by score, 0.8 in the paper" \
  }
#define ATTN_KV_ADMIT(params, rule)                                           \
  {                                                                           \
    "admit", ATTN_REAL, offsetof(params, rule.admit), -1e12, 1e12, "0", NULL, \
        "not 0: least score of a key that stays when it is recent no more"    \
  }
#define ATTN_KV_PARAMS(params, rule)                                                                        \
  ATTN_KV_PARAM(params, rule, budget, 1, "512", "keys that a kv head's cache holds"),                       \
      ATTN_KV_PARAM(params, rule, recent, 1, "min(32,budget)", "newest of these, which do not go"),         \
      ATTN_KV_PARAM(params, rule, prompt, 0, "0", "positions whose queries see all keys, before any goes"), \
      ATTN_KV_PARAM(params, rule, every, 1, "1", "keys that go at a time, once the budget is spent"),       \
      ATTN_KV_PARAM(params, rule, chunk, 1, "1", "positions whose keys go together"),                       \
      ATTN_KV_SHARED(params, rule), ATTN_KV_ADMIT(params, rule)
/* A variant that is a rule: attention, query by query, to the keys that a cache under the rule holds
 * (experiments/examples/policy.c). The functions of a rule that rule_of makes of a context, and what such a
 * variant declares. */
ATTN_API attn_status attn_kv_applicable(const attn_context *, const attn_kv_rule *);
ATTN_API attn_status attn_kv_describe(attn_builder *, const attn_context *, const attn_kv_rule *,
                                      attn_parts *);
ATTN_API attn_cost attn_kv_cost(const attn_context *, const attn_kv_rule *);
#define ATTN_KV_FUNCTIONS(rule_of)                                                          \
  static attn_status kv_applicable(const attn_context *c) {                                 \
    const attn_kv_rule r = rule_of(c);                                                      \
    return attn_kv_applicable(c, &r);                                                       \
  }                                                                                         \
  static attn_status kv_describe(attn_builder *b, const attn_context *c, attn_parts *out) { \
    const attn_kv_rule r = rule_of(c);                                                      \
    return attn_kv_describe(b, c, &r, out);                                                 \
  }                                                                                         \
  static attn_cost kv_cost(const attn_context *c) {                                         \
    const attn_kv_rule r = rule_of(c);                                                      \
    return attn_kv_cost(c, &r);                                                             \
  }
#define ATTN_CAP_KV_RULE \
  ((ATTN_CAP_SOFTMAX & ~(uint32_t)(ATTN_CAP_SHIFT | ATTN_CAP_MASK)) | ATTN_CAP_LSE | ATTN_CAP_DATA)

/* One kv head under a rule: keys arrive, queries are observed, keys go. */
typedef struct attn_kv_head {
  attn_kv_rule rule;
  int64_t kv_head, d, d_v, heads, capacity, count;
  bool by_position; /* the key of a position is that row of keys, not the row of its number among the held */
  int64_t *position, *seen;
  double *sum, *fixed;
  double *weights; /* [window][capacity], a ring; of products [window][heads][capacity] */
  double *query;   /* of products: scale q, [window][heads][d] */
  int64_t queries, newest;
  double *score, *own, *mean;   /* of the held keys: scores, a query's weights in one head and in all */
  const double *values, *later; /* of attn_kv_held; the caller's, between arrivals */
  struct attn_kv_rank *rank;
  int64_t *gone, *gone_position; /* of the last arrival: numbers of held keys, as they were before it */
} attn_kv_head;

/* Bytes of a head that holds at most `capacity` keys, and the head in that memory, 64-byte aligned.
 * position: [capacity], for the positions of held keys. */
ATTN_API size_t attn_kv_head_bytes(const attn_kv_rule *, const attn_problem *, int64_t capacity);
ATTN_API void attn_kv_head_begin(attn_kv_head *, const attn_kv_rule *, const attn_problem *, int64_t kv_head,
                                 int64_t capacity, bool by_position, int64_t *position, void *memory);

/* Makes room for the key of this position, and takes it. Returns how many keys went, ascending in h->gone.
 * keys: the rows of those that are held, of a score that is not fixed; own: the new one's. */
ATTN_API int64_t attn_kv_arrive(attn_kv_head *, int64_t position, const double *keys, const double *own);

/* The query at this position, which has been given the keys up to its own: its softmax over the held keys in
 * each of `heads` query heads from `head` on, q [heads][d] and keys in fp64, enters what scores read. Nothing
 * where they read none. */
ATTN_API void attn_kv_observe(attn_kv_head *, const attn_problem *, int64_t batch, int64_t head,
                              int64_t heads, const double *q, const double *keys, int64_t position);

#endif
