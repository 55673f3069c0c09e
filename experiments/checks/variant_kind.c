/* variant_kind.c - see variant_kind.h. A variant that describes neither features nor a projection is held for
 * a softmax over its keys, so that the check of its rounding says what is not described. */
#include "experiments/checks/variant_kind.h"

#include "core/cache/attn_kv_cache.h"
#include "core/expression/attn_expression.h"

static bool is_any(const attn_view *v) { return v; }
static bool takes_halves(const attn_view *v) { return v->caps & ATTN_CAP_HALF; }
static bool is_padded(const attn_view *v) { return v->caps & ATTN_CAP_PADDING; }
static bool gives_lse(const attn_view *v) { return v->caps & ATTN_CAP_LSE; }
static bool gives_gradients(const attn_view *v) { return v->gradients; }
static bool takes_transforms(const attn_view *v) { return v->caps & ATTN_CAP_SCORE && !v->normaliser; }
static bool is_softmax(const attn_view *v) {
  return !v->features && !v->projection && !v->low_rank && !v->residual && !v->expression && !v->store &&
         !v->latent && !v->relocation && !v->recurrence && !v->toeplitz && !v->pooling && !v->normaliser;
}
static bool gives_softmax_gradients(const attn_view *v) { return is_softmax(v) && v->gradients; }
static bool is_whole(const attn_view *v) { return is_softmax(v) && !(v->rounding.block > 0); }
static bool is_online(const attn_view *v) { return is_softmax(v) && v->rounding.block > 0; }
static bool is_exact(const attn_view *v) { return v->caps & ATTN_CAP_EXACT; }
static bool is_short(const attn_view *v) { return is_softmax(v) && v->rounding.operand > 0; }
static bool has_pattern(const attn_view *v) { return v->pattern; }
static bool rolls(const attn_view *v) { return v->pattern && v->pattern->cache > 0; }
static bool has_selector(const attn_view *v) { return v->selector; }
static bool encloses(const attn_view *v) { return v->selector && v->selector->enclose; }
static bool keeps_some(const attn_view *v) { return (v->pattern && !v->relocation) || v->selector; }
static bool weights_keys(const attn_view *v) { return v->selector && v->selector->weighted; }
static bool counts_keys(const attn_view *v) {
  return weights_keys(v) && v->selector->log_weight && !v->selector->moments;
}
static bool draws_keys(const attn_view *v) { return weights_keys(v) && !counts_keys(v); }
static bool promises(const attn_view *v) { return draws_keys(v) && v->selector->epsilon > 0; }
static bool ranks_keys(const attn_view *v) {
  return v->selector && v->selector->grain == 1 && !v->selector->score && !v->selector->margins &&
         !weights_keys(v);
}
static bool ranks_by_score(const attn_view *v) {
  return v->selector && v->selector->grain > 0 && (v->selector->score || v->selector->margins) &&
         !weights_keys(v);
}
static bool ranks_by_index(const attn_view *v) {
  return v->selector && v->selector->grain > 0 && v->selector->index.heads > 0;
}
static bool keeps_the_heavy(const attn_view *v) { return v->selector && v->selector->least > 0; }
static bool takes_pages(const attn_view *v) {
  return v->selector && v->selector->grain > 1 && !weights_keys(v);
}
static bool hashes(const attn_view *v) { return v->selector && v->selector->hashes > 0; }
static bool gives_up_keys(const attn_view *v) { return v->cache && v->selector; }
static bool may_give_up_keys(const attn_view *v) { return v->cache || v->store; }
static bool is_cached(const attn_view *v) {
  const uint32_t whole = ATTN_CAP_CAUSAL | ATTN_CAP_POSITIONS | ATTN_CAP_PADDING;
  return may_give_up_keys(v) || (v->latent && v->latent->prompt) ||
         (is_softmax(v) && attn_kv_cache_reads(v) && (v->caps & whole) == whole);
}
static bool stores_tensors(const attn_view *v) { return v->store; }
static bool stores_exact(const attn_view *v) { return v->store && !v->store->reader; }
static bool takes_a_mean(const attn_view *v) { return stores_exact(v) && v->store->smooth; }
static bool is_drawn(const attn_kv_law *l) { return l->bits || l->signs; }
static bool draws_codes(const attn_view *v) {
  return v->store && v->seed && (is_drawn(&v->store->k_scheme.law) || is_drawn(&v->store->v_scheme.law));
}
static bool has_latents(const attn_view *v) { return v->latent; }
static bool recurs(const attn_view *v) { return v->recurrence; }
static bool normalises(const attn_view *v) { return v->normaliser; }
static bool divides(const attn_view *v) { return v->normaliser && v->normaliser->sums; }
static bool drops(const attn_view *v) { return v->normaliser && v->normaliser->reach > 0; }
static bool convolves(const attn_view *v) { return v->toeplitz; }
static bool takes_means(const attn_view *v) { return v->pooling; }
static bool relocates(const attn_view *v) { return v->relocation; }
static bool has_features(const attn_view *v) { return v->features; }
static bool has_features_of(const attn_view *v, attn_features_kind kind) {
  return v->features && v->features->law.kind == kind;
}
static bool has_fixed_features(const attn_view *v) { return has_features_of(v, ATTN_FEATURES_FIXED); }
static bool has_random_features(const attn_view *v) { return has_features(v) && !has_fixed_features(v); }
static bool has_trig_features(const attn_view *v) { return has_features_of(v, ATTN_FEATURES_TRIG); }
static bool has_other_features(const attn_view *v) {
  return has_features_of(v, ATTN_FEATURES_RELU) || has_features_of(v, ATTN_FEATURES_OTHER);
}
static bool has_polynomial(const attn_view *v) {
  return has_fixed_features(v) && v->features->law.degree > 0;
}
static bool has_projection(const attn_view *v) { return v->projection; }
static bool pools(const attn_view *v) {
  return v->projection && v->projection->law == ATTN_PROJECTION_AVERAGES;
}
static bool is_reduced(const attn_view *v) { return v->features || v->projection; }
static bool is_best(const attn_view *v) { return v->low_rank && v->low_rank->best; }
static bool has_rank(const attn_view *v) {
  return is_reduced(v) || (v->low_rank && v->low_rank->best != ATTN_BEST_SCORES && !v->low_rank->own);
}
static bool has_best_scores(const attn_view *v) { return is_best(v) && !has_rank(v); }
static bool picks(const attn_view *v) { return v->low_rank && v->low_rank->pick; }
static bool clusters(const attn_view *v) {
  return picks(v) && v->low_rank->picked == ATTN_PICKED_CLUSTERS && !v->low_rank->own;
}
static bool has_points(const attn_view *v) { return picks(v) && v->low_rank->picked == ATTN_PICKED_POINTS; }
static bool has_kernel(const attn_view *v) {
  return has_points(v) || (picks(v) && v->low_rank->picked == ATTN_PICKED_KEYS);
}
static bool clusters_beside_own(const attn_view *v) { return picks(v) && v->low_rank->own; }
static bool has_landmarks(const attn_view *v) { return v->low_rank && v->low_rank->segment; }
static bool has_middle(const attn_view *v, attn_middle middle) {
  return has_landmarks(v) && v->low_rank->middle == middle;
}
static bool iterates(const attn_view *v) { return has_middle(v, ATTN_MIDDLE_NEWTON); }
static bool inverts(const attn_view *v) { return has_middle(v, ATTN_MIDDLE_PINV); }
static bool chains(const attn_view *v) { return has_middle(v, ATTN_MIDDLE_AGENTS); }
static bool is_of(const attn_view *v, attn_expression_kind kind) {
  return v->expression && v->expression->kind == kind;
}
static bool is_sum(const attn_view *v) { return is_of(v, ATTN_EXPRESSION_SUM); }
static bool is_dyadic(const attn_view *v) { return is_of(v, ATTN_EXPRESSION_DYADIC); }
static bool has_residual(const attn_view *v) { return v->residual; }
static bool is_stochastic(const attn_view *v) { return v->caps & ATTN_CAP_STOCHASTIC; }
static bool is_convex(const attn_view *v) { return v->caps & ATTN_CAP_CONVEX; }
static bool is_permutable(const attn_view *v) { return v->caps & ATTN_CAP_PERMUTATION; }
static bool is_shiftable(const attn_view *v) { return v->caps & ATTN_CAP_SHIFT; }

const variant_kind of_any = {"of every kind", is_any};
const variant_kind of_halves = {"that take tensors stored in 16 bits", takes_halves};
const variant_kind of_padded = {"that take padding", is_padded};
const variant_kind of_lse = {"that give the log-sum-exp of their rows", gives_lse};
const variant_kind of_gradients = {"that give their gradients", gives_gradients};
const variant_kind of_softmax_gradients = {"that give the gradients of a softmax over keys",
                                           gives_softmax_gradients};
const variant_kind of_transforms = {"that take transforms of scores", takes_transforms};
const variant_kind of_softmax = {"without features and projection", is_softmax};
const variant_kind of_whole_softmax = {"that sum a row at once", is_whole};
const variant_kind of_online_softmax = {"that sum a row block by block", is_online};
const variant_kind of_exact = {"that equal full attention up to rounding", is_exact};
const variant_kind of_short_operands = {"that round their operands to a shorter format", is_short};
const variant_kind of_patterns = {"with a pattern", has_pattern};
const variant_kind of_rolling = {"with a pattern that a cache of fixed size decodes", rolls};
const variant_kind of_selectors = {"that select keys from Q and K", has_selector};
const variant_kind of_proxies = {"that bound the scores of what they rank", encloses};
const variant_kind of_kept = {"with a pattern or a selection of keys", keeps_some};
const variant_kind of_rankings = {"that select the keys of largest score", ranks_keys};
const variant_kind of_scored_rankings = {"that select by a score of their own", ranks_by_score};
const variant_kind of_indexes = {"that rank by an index", ranks_by_index};
const variant_kind of_thresholds = {"that leave out keys of small weight", keeps_the_heavy};
const variant_kind of_weighted = {"that draw keys and give them weights", draws_keys};
const variant_kind of_multiplicities = {"that count keys several times", counts_keys};
const variant_kind of_promises = {"whose draws promise how near the denominator is", promises};
const variant_kind of_pages = {"that select units of several keys", takes_pages};
const variant_kind of_hashes = {"that select keys by random hashes", hashes};
const variant_kind of_caches = {"whose keys are those that a cache of bounded size holds", gives_up_keys};
const variant_kind of_cached = {"that a cache of keys and values decodes", is_cached};
const variant_kind of_held = {"that a cache decodes which may give up keys", may_give_up_keys};
const variant_kind of_stores = {"that read keys and values as a cache stores them", stores_tensors};
const variant_kind of_exact_stores = {"that attend exactly to keys and values as a cache stores them",
                                      stores_exact};
const variant_kind of_drawn_stores = {"that store rows by codes of drawn rotations or products", draws_codes};
const variant_kind of_smoothed_stores = {"that attend exactly to keys which are stored less their mean",
                                         takes_a_mean};
const variant_kind of_latents = {"whose keys and values are products of latent vectors", has_latents};
const variant_kind of_pooled = {"that attend to last keys and to means of blocks", takes_means};
const variant_kind of_relocations = {"whose queries meet keys elsewhere than where they stand", relocates};
const variant_kind of_recurrences = {"that carry a state from key to key", recurs};
const variant_kind of_toeplitz = {"with features and a bias of the distance", convolves};
const variant_kind of_normalisers = {"whose weights are another function of the scores than softmax",
                                     normalises};
const variant_kind of_simplex_normalisers = {"that give a row weights of sum 1 by another function", divides};
const variant_kind of_sparse_normalisers = {"whose weights are 0 far below a row's largest score", drops};
const variant_kind of_features = {"with features", has_features};
const variant_kind of_random_features = {"with random features", has_random_features};
const variant_kind of_trig_features = {"with trigonometric features", has_trig_features};
const variant_kind of_other_features = {"with random features of another kernel than softmax's",
                                        has_other_features};
const variant_kind of_fixed_features = {"with features that are not drawn", has_fixed_features};
const variant_kind of_taylor = {"whose kernel is a Taylor polynomial of softmax's", has_polynomial};
const variant_kind of_projections = {"with a projection", has_projection};
const variant_kind of_poolings = {"that pool blocks of keys", pools};
const variant_kind of_reduced = {"with features or a projection", is_reduced};
const variant_kind of_bounded_rank = {"whose weights are of bounded rank", has_rank};
const variant_kind of_best_scores = {"of the best scores of a rank", has_best_scores};
const variant_kind of_newton = {"with landmarks and an iterated inverse", iterates};
const variant_kind of_inverses = {"with landmarks and a pseudo-inverse", inverts};
const variant_kind of_chains = {"with landmarks of queries that queries and keys meet", chains};
const variant_kind of_picked = {"whose weights are made of rows that they pick", picks};
const variant_kind of_clusters = {"whose queries share weights in clusters", clusters};
const variant_kind of_kernels = {"whose picked rows stand for all by a positive kernel", has_kernel};
const variant_kind of_points = {"with a kernel of landmarks among queries and keys", has_points};
const variant_kind of_own_clusters = {"whose queries share weights in clusters, but of a few keys",
                                      clusters_beside_own};
const variant_kind of_sums = {"that add up the outputs of others", is_sum};
const variant_kind of_dyadic = {"that join parts of causal attention by halves", is_dyadic};
const variant_kind of_residuals = {"of exact keys and features of the rest", has_residual};
const variant_kind of_stochastic = {"whose weights of a row sum to 1", is_stochastic};
const variant_kind of_convex = {"whose outputs lie in the hull of V", is_convex};
const variant_kind of_permutable = {"for which the order of the keys does not matter", is_permutable};
const variant_kind of_shiftable = {"for which a vector added to every key changes nothing", is_shiftable};

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
  fprintf(out, "%s, %lld keys at a time", x->law ? "states its gates" : "none stated", (long long)x->chunk);
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
