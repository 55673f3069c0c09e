/* variant_kind.h - the kinds of variants that checks speak of, told by what a plan lets be seen, and that in
 * words. */
#ifndef EXPERIMENTS_CHECKS_VARIANT_KIND_H
#define EXPERIMENTS_CHECKS_VARIANT_KIND_H

#include <stdio.h>

#include "attn_variant.h"

typedef struct variant_kind {
  const char *text; /* completes "of variants ..." */
  bool (*holds)(const attn_view *);
} variant_kind;

extern const variant_kind of_any, of_halves, of_padded, of_lse, of_gradients, of_softmax_gradients,
    of_transforms;
extern const variant_kind of_softmax, of_whole_softmax, of_online_softmax, of_exact, of_short_operands;
extern const variant_kind of_patterns, of_rolling, of_selectors, of_proxies, of_kept, of_rankings,
    of_scored_rankings, of_indexes, of_pooled, of_thresholds, of_weighted, of_multiplicities, of_promises,
    of_pages, of_hashes, of_caches, of_cached, of_held, of_stores, of_exact_stores, of_drawn_stores,
    of_smoothed_stores, of_latents, of_features, of_random_features, of_trig_features, of_other_features,
    of_fixed_features, of_taylor, of_projections, of_poolings, of_reduced, of_bounded_rank, of_best_scores,
    of_newton, of_inverses, of_chains, of_picked, of_clusters, of_own_clusters, of_kernels, of_points;
extern const variant_kind of_sums, of_sum_gradients, of_dyadic;
extern const variant_kind of_residuals, of_relocations, of_recurrences, of_toeplitz, of_normalisers,
    of_simplex_normalisers, of_sparse_normalisers;
extern const variant_kind of_stochastic, of_convex, of_permutable, of_shiftable;

/* In words, what a variant states of itself, part of a line: of the attn_pattern, attn_selector,
 * attn_feature_law, attn_projection, attn_low_rank, attn_latent, attn_relocation, attn_recurrence or
 * attn_normaliser given. */
void law_print_pattern(FILE *, const void *pattern);
void law_print_selector(FILE *, const void *selector);
void law_print_features(FILE *, const void *feature_law);
void law_print_projection(FILE *, const void *projection);
void law_print_low_rank(FILE *, const void *low_rank);
void law_print_latent(FILE *, const void *latent);
void law_print_relocation(FILE *, const void *relocation);
void law_print_recurrence(FILE *, const void *recurrence);
void law_print_normaliser(FILE *, const void *normaliser);

#endif
