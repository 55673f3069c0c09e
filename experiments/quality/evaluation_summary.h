/* evaluation_summary.h - an evaluation in numbers: windows are the units, swaps are compared on the same
 * windows. */
#ifndef EXPERIMENTS_QUALITY_EVALUATION_SUMMARY_H
#define EXPERIMENTS_QUALITY_EVALUATION_SUMMARY_H

#include "experiments/mathematics/intervals.h"
#include "experiments/quality/evaluate.h"

/* dnll against the margin: the whole interval below, above, or neither. */
typedef enum { QUALITY_OPEN, QUALITY_NO_WORSE, QUALITY_WORSE } quality_word;
extern const char *const quality_words[]; /* by quality_word */
quality_word quality_word_of(interval dnll, double margin);

typedef struct quality_row {
  interval dnll, kl, top1; /* nats, nats, a share; Student's over windows */
  interval ppl_ratio;      /* exp of dnll */
  interval right;          /* share of positions whose token is the most likely, of the swap */
  interval whole;          /* Clopper and Pearson's: windows of which all scored tokens are */
  interval whole_change;   /* of that share, by the swap; bootstrap over windows */
  int64_t lost, won;       /* windows that only the exact model answers wholly, and only the swap */
  double top1_certified;   /* share of positions whose token provably stays */
  double kl_median, kl_p99, kl_max, dp_rms, range_median;
  double density;   /* share of causal pairs read; NaN: neither pattern, selection nor exact */
  double mass_left; /* exact weight of keys that are not read, a mean over scored positions */
  double kv_bits;   /* of a cache (density.h), a mean over the layers that are replaced */
  double seconds;   /* in the variant */
  double error;     /* relative, of the replaced attention outputs, over layers */
} quality_row;

/* The exact model: mean negative log-likelihood, nats a token, and as in quality_row. */
typedef struct quality_exact {
  interval nll, right, whole;
} quality_exact;
attn_status quality_summarise_exact(const quality_data *, quality_exact *out);
/* The negative log-likelihood that the scored tokens' own frequencies give them, nats a token: what knowing
 * the tokens, and nothing of their order, is worth. ENOMEM */
attn_status quality_unigram(const quality_windows *, int64_t vocab, double *out);
/* NaN where a stream gave NaN. ENOMEM */
attn_status quality_summarise(const quality_data *, int64_t swap, quality_row *out);

#endif
