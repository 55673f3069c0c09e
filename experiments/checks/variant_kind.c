/* variant_kind.c - see variant_kind.h. A variant that describes neither features nor a projection is held for
 * a softmax over its keys, so that the check of its rounding says what is not described. */
#include "experiments/checks/variant_kind.h"

#include "core/cache/attn_kv_cache.h"
#include "core/expression/attn_expression.h"

static bool weights_keys(const attn_view *v) { return v->selector && v->selector->weighted; }
static bool takes_sequences(const attn_view *v) {
  const uint32_t whole = ATTN_CAP_CAUSAL | ATTN_CAP_POSITIONS | ATTN_CAP_PADDING;
  return (v->caps & whole) == whole;
}
static bool is_drawn(const attn_kv_law *l) { return l->bits || l->signs; }
static bool has_features_of(const attn_view *v, attn_features_kind kind) {
  return v->features && v->features->law.kind == kind;
}
static bool is_best(const attn_view *v) { return v->low_rank && v->low_rank->best; }
static bool has_landmarks(const attn_view *v) { return v->low_rank && v->low_rank->segment; }
static bool has_middle(const attn_view *v, attn_middle middle) {
  return has_landmarks(v) && v->low_rank->middle == middle;
}
static bool is_of(const attn_view *v, attn_expression_kind kind) {
  return v->expression && v->expression->kind == kind;
}

/* A kind, and of a view whether it is of it. */
#define KIND(name, text, ...)                                          \
  static bool name##_holds(const attn_view *v) { return __VA_ARGS__; } \
  const variant_kind name = {text, name##_holds};

KIND(of_any, "of every kind", v)
KIND(of_halves, "that take tensors stored in 16 bits", (v->caps & ATTN_CAP_HALF))
KIND(of_padded, "that take padding", (v->caps & ATTN_CAP_PADDING))
KIND(of_lse, "that give the log-sum-exp of their rows", (v->caps & ATTN_CAP_LSE))
KIND(of_gradients, "that give their gradients", v->gradients)
KIND(of_transforms, "that take transforms of scores", (v->caps & ATTN_CAP_SCORE) && !v->normaliser)
KIND(of_softmax, "without features and projection",
     !v->features && !v->projection && !v->low_rank && !v->residual && !v->expression && !v->store &&
         !v->latent && !v->relocation && !v->recurrence && !v->toeplitz && !v->pooling && !v->normaliser)
KIND(of_softmax_gradients, "that give the gradients of a softmax over keys",
     (of_softmax_holds(v) || v->store) && v->gradients)
KIND(of_whole_softmax, "that sum a row at once", of_softmax_holds(v) && !(v->rounding.block > 0))
KIND(of_online_softmax, "that sum a row block by block", of_softmax_holds(v) && v->rounding.block > 0)
KIND(of_exact, "that equal full attention up to rounding", (v->caps & ATTN_CAP_EXACT))
KIND(of_short_operands, "that round their operands to a shorter format",
     of_softmax_holds(v) && v->rounding.operand > 0)
KIND(of_patterns, "with a pattern", v->pattern)
KIND(of_rolling, "with a pattern that a cache of fixed size decodes", v->pattern && v->pattern->cache > 0)
KIND(of_selectors, "that select keys from Q and K", v->selector)
KIND(of_proxies, "that bound the scores of what they rank", v->selector && v->selector->enclose)
KIND(of_kept, "with a pattern or a selection of keys", (v->pattern && !v->relocation) || v->selector)
KIND(of_multiplicities, "that count keys several times",
     weights_keys(v) && v->selector->log_weight && !v->selector->moments)
KIND(of_weighted, "that draw keys and give them weights", weights_keys(v) && !of_multiplicities_holds(v))
KIND(of_promises, "whose draws promise how near the denominator is",
     of_weighted_holds(v) && v->selector->epsilon > 0)
KIND(of_rankings, "that select the keys of largest score",
     v->selector && v->selector->grain == 1 && !v->selector->score && !v->selector->margins &&
         !weights_keys(v))
KIND(of_scored_rankings, "that select by a score of their own",
     v->selector && v->selector->grain > 0 && (v->selector->score || v->selector->margins) &&
         !weights_keys(v))
KIND(of_indexes, "that rank by an index",
     v->selector && v->selector->grain > 0 && v->selector->index.heads > 0)
KIND(of_thresholds, "that leave out keys of small weight", v->selector && v->selector->least > 0)
KIND(of_pages, "that select units of several keys", v->selector && v->selector->grain > 1 && !weights_keys(v))
KIND(of_hashes, "that select keys by random hashes", v->selector && v->selector->hashes > 0)
KIND(of_caches, "whose keys are those that a cache of bounded size holds", v->cache && v->selector)
KIND(of_held, "that a cache decodes which may give up keys", v->cache || v->store)
KIND(of_cached, "that a cache of keys and values decodes",
     of_held_holds(v) || (v->latent && v->latent->prompt) ||
         (of_softmax_holds(v) && attn_kv_cache_reads(v) && takes_sequences(v)))
KIND(of_stores, "that read keys and values as a cache stores them", v->store)
KIND(of_exact_stores, "that attend exactly to keys and values as a cache stores them",
     v->store && !v->store->reader)
KIND(of_smoothed_stores, "that attend exactly to keys which are stored less their mean",
     of_exact_stores_holds(v) && v->store->smooth)
KIND(of_drawn_stores, "that store rows by codes of drawn rotations or products",
     v->store && v->seed && (is_drawn(&v->store->k_scheme.law) || is_drawn(&v->store->v_scheme.law)))
KIND(of_latents, "whose keys and values are products of latent vectors", v->latent)
KIND(of_recurrences, "that carry a state from key to key", v->recurrence)
KIND(of_normalisers, "whose weights are another function of the scores than softmax", v->normaliser)
KIND(of_simplex_normalisers, "that give a row weights of sum 1 by another function",
     v->normaliser && v->normaliser->sums)
KIND(of_sparse_normalisers, "whose weights are 0 far below a row's largest score",
     v->normaliser && v->normaliser->reach > 0)
KIND(of_toeplitz, "with features and a bias of the distance", v->toeplitz)
KIND(of_pooled, "that attend to last keys and to means of blocks", v->pooling)
KIND(of_relocations, "whose queries meet keys elsewhere than where they stand", v->relocation)
KIND(of_features, "with features", v->features)
KIND(of_fixed_features, "with features that are not drawn", has_features_of(v, ATTN_FEATURES_FIXED))
KIND(of_random_features, "with random features", of_features_holds(v) && !of_fixed_features_holds(v))
KIND(of_trig_features, "with trigonometric features", has_features_of(v, ATTN_FEATURES_TRIG))
KIND(of_other_features, "with random features of another kernel than softmax's",
     has_features_of(v, ATTN_FEATURES_RELU) || has_features_of(v, ATTN_FEATURES_OTHER))
KIND(of_taylor, "whose kernel is a Taylor polynomial of softmax's",
     of_fixed_features_holds(v) && v->features->law.degree > 0)
KIND(of_projections, "with a projection", v->projection)
KIND(of_poolings, "that pool blocks of keys", v->projection && v->projection->law == ATTN_PROJECTION_AVERAGES)
KIND(of_reduced, "with features or a projection", v->features || v->projection)
KIND(of_bounded_rank, "whose weights are of bounded rank",
     of_reduced_holds(v) || (v->low_rank && v->low_rank->best != ATTN_BEST_SCORES && !v->low_rank->own))
KIND(of_best_scores, "of the best scores of a rank", is_best(v) && !of_bounded_rank_holds(v))
KIND(of_picked, "whose weights are made of rows that they pick", v->low_rank && v->low_rank->pick)
KIND(of_clusters, "whose queries share weights in clusters",
     of_picked_holds(v) && v->low_rank->picked == ATTN_PICKED_CLUSTERS && !v->low_rank->own)
KIND(of_points, "with a kernel of landmarks among queries and keys",
     of_picked_holds(v) && v->low_rank->picked == ATTN_PICKED_POINTS)
KIND(of_kernels, "whose picked rows stand for all by a positive kernel",
     of_points_holds(v) || (of_picked_holds(v) && v->low_rank->picked == ATTN_PICKED_KEYS))
KIND(of_own_clusters, "whose queries share weights in clusters, but of a few keys",
     of_picked_holds(v) && v->low_rank->own)
KIND(of_newton, "with landmarks and an iterated inverse", has_middle(v, ATTN_MIDDLE_NEWTON))
KIND(of_inverses, "with landmarks and a pseudo-inverse", has_middle(v, ATTN_MIDDLE_PINV))
KIND(of_chains, "with landmarks of queries that queries and keys meet", has_middle(v, ATTN_MIDDLE_AGENTS))
KIND(of_sums, "that add up the outputs of others", is_of(v, ATTN_EXPRESSION_SUM))
KIND(of_sum_gradients, "that give the gradients of a sum", of_sums_holds(v) && v->gradients)
KIND(of_dyadic, "that join parts of causal attention by halves", is_of(v, ATTN_EXPRESSION_DYADIC))
KIND(of_residuals, "of exact keys and features of the rest", v->residual)
KIND(of_stochastic, "whose weights of a row sum to 1", (v->caps & ATTN_CAP_STOCHASTIC))
KIND(of_convex, "whose outputs lie in the hull of V", (v->caps & ATTN_CAP_CONVEX))
KIND(of_permutable, "for which the order of the keys does not matter", (v->caps & ATTN_CAP_PERMUTATION))
KIND(of_shiftable, "for which a vector added to every key changes nothing", (v->caps & ATTN_CAP_SHIFT))

void law_print_pattern(FILE *out, const void *pattern) {
  const attn_pattern *p = pattern;
  fprintf(out, "%s", p->sees ? "states which keys a query must see" : "none stated");
  if (p->cache) fprintf(out, "; a cache of %lld keys decodes it", (long long)p->cache);
  if (p->reach) fprintf(out, "; at most %lld positions away", (long long)p->reach);
  if (p->grain)
    fprintf(out, "; blocks of %lld%s", (long long)p->grain, p->global ? ", some seen by all" : "");
  if (p->candidate && p->drawn) fprintf(out, "; %lld drawn for a block of queries", (long long)p->drawn);
}

static bool selects_by_law(const attn_selector *x) { return x->grain || x->hashes || x->least > 0; }

void law_print_selector(FILE *out, const void *selector) {
  const attn_selector *x = selector;
  if (x->log_weight && !x->moments)
    fprintf(out, "states which keys are taken, and how often each counts");
  else if (x->margins)
    fprintf(out, "those of a positive margin");
  else if (x->grain && x->mass > 0)
    fprintf(out, "those of the largest scores that have the mass %g", x->mass);
  else if (x->grain)
    fprintf(out, "%lld of the largest scores", (long long)x->kept);
  else if (x->hashes)
    fprintf(out, "by %lld hashes of %lld buckets", (long long)x->hashes, (long long)x->buckets);
  else if (x->least > 0)
    fprintf(out, "leaves out keys of less than %g of the heaviest weight", x->least);
  else if (!x->weighted)
    fprintf(out, "none stated");
  if (x->weighted && x->moments)
    fprintf(out, "%sdrawn with weights of mean 1, whose products have known means%s",
            selects_by_law(x) ? "; " : "", x->repeats ? "; a key may be drawn twice" : "");
  else if (x->weighted && !x->log_weight)
    fprintf(out, "%sdrawn, no law of their weights stated", selects_by_law(x) ? "; " : "");
  if (x->epsilon > 0)
    fprintf(out, "; the denominator within %g except with probability %g", x->epsilon, x->delta);
  if (x->grain > 1) fprintf(out, "; units of %lld keys", (long long)x->grain);
  if (x->always && !(x->log_weight && !x->moments)) fprintf(out, "; some always kept");
  if (x->index.heads)
    fprintf(out, "; by an index of %lld heads of %lld", (long long)x->index.heads, (long long)x->index.width);
  if (x->enclose) fprintf(out, "; states where the scores of a unit lie");
}

void law_print_features(FILE *out, const void *of) {
  const attn_feature_law *law = of;
  static const char *const kinds[] = {[ATTN_FEATURES_UNKNOWN] = "none stated",
                                      [ATTN_FEATURES_POSITIVE] = "positive",
                                      [ATTN_FEATURES_HYPERBOLIC] = "hyperbolic",
                                      [ATTN_FEATURES_TRIG] = "trigonometric",
                                      [ATTN_FEATURES_RELU] = "rectified",
                                      [ATTN_FEATURES_OTHER] = "of another kernel",
                                      [ATTN_FEATURES_FIXED] =
                                          "nothing drawn; of a kernel that is stated pair by pair"};
  fprintf(out, "%s", kinds[law->kind]);
  if (law->a != 0) fprintf(out, ", weights exp(a |w|^2) of a = %.4g", law->a);
  if (law->degree)
    fprintf(out, ", the Taylor polynomial of degree %lld of softmax's", (long long)law->degree);
  if (law->kind != ATTN_FEATURES_UNKNOWN && law->kind != ATTN_FEATURES_FIXED)
    fprintf(out, "; %lld vectors, %s%s%s; %s", (long long)law->vectors,
            law->orthogonal ? "orthogonal in blocks" : "independent",
            law->fixed_length ? " and of length sqrt(d)" : "",
            law->heads == ATTN_DRAWS_SHARED  ? ", kv heads alike"
            : law->heads == ATTN_DRAWS_APART ? ", kv heads apart"
                                             : "",
            law->softmax ? "estimate the softmax kernel" : "another kernel than softmax's");
}

void law_print_low_rank(FILE *out, const void *low_rank) {
  const attn_low_rank *x = low_rank;
  static const char *const middles[] = {[ATTN_MIDDLE_NEWTON] = "an iterated inverse between them",
                                        [ATTN_MIDDLE_PINV] = "a pseudo-inverse between them",
                                        [ATTN_MIDDLE_AGENTS] = "of queries, which queries and keys meet"};
  static const char *const picked[] = {
      [ATTN_PICKED_CLUSTERS] = "%lld clusters of queries, which have the weights of their mean",
      [ATTN_PICKED_KEYS] = "%lld picked keys stand for all by their kernel",
      [ATTN_PICKED_POINTS] = "%lld picked queries and keys stand for all by a Gaussian kernel, not divided"};
  if (x->best)
    fprintf(out, "the best %s of rank %lld", x->best == ATTN_BEST_SCORES ? "scores" : "weights",
            (long long)x->rank);
  else if (x->pick)
    fprintf(out, picked[x->picked], (long long)x->rank);
  else if (x->segment)
    fprintf(out, "%lld landmarks, %s", (long long)x->rank, middles[x->middle]);
  else
    fprintf(out, "rank %lld", (long long)x->rank);
  if (x->segment && x->middle == ATTN_MIDDLE_NEWTON) fprintf(out, ", %lld steps", (long long)x->iterations);
  if (x->own) fprintf(out, "; of its first %lld keys a query's own", (long long)x->own);
}

void law_print_latent(FILE *out, const void *latent) {
  const attn_latent *x = latent;
  fprintf(out, "keys and values of all heads are products of %lld numbers a token, their best approximation",
          (long long)x->rank);
  if (x->prompt) fprintf(out, " at the first %lld keys", (long long)x->prompt);
  if (x->shared) fprintf(out, "; the last %lld are means over kv heads", (long long)x->shared);
}

void law_print_relocation(FILE *out, const void *relocation) {
  (void)relocation;
  fprintf(out, "states which keys a query must see, and what it meets in their place");
}

void law_print_recurrence(FILE *out, const void *recurrence) {
  const attn_recurrence *x = recurrence;
  fprintf(out, "%s, %lld keys at a time%s", x->law ? "states its gates" : "none stated", (long long)x->chunk,
          x->normalised ? "; divided by the sum of a row's weights, where that is above 1" : "");
}

void law_print_normaliser(FILE *out, const void *normaliser) {
  const attn_normaliser *x = normaliser;
  fprintf(out, "%s, %s", x->weight ? "states the weight of a score" : "none stated",
          x->sums ? "which sum to 1" : "which need not sum to 1");
  if (x->reach > 0) fprintf(out, "; none %g below the largest", x->reach);
  if (x->gates) fprintf(out, "; states gates between query and key");
}

void law_print_projection(FILE *out, const void *projection) {
  const attn_projection *p = projection;
  static const char *const laws[] = {[ATTN_PROJECTION_UNKNOWN] = "none stated",
                                     [ATTN_PROJECTION_GAUSSIAN] = "Gaussian entries",
                                     [ATTN_PROJECTION_RADEMACHER] = "random signs",
                                     [ATTN_PROJECTION_SRHT] = "rows of a Walsh-Hadamard transform",
                                     [ATTN_PROJECTION_DCT] = "rows of a cosine transform",
                                     [ATTN_PROJECTION_AVERAGES] = "means of consecutive keys"};
  fprintf(out, "%s; keys and values %s, kv heads %s", laws[p->law], p->shared ? "alike" : "apart",
          p->per_head ? "apart" : "alike");
}
