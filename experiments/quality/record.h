/* record.h - a run of an evaluation as one record: a model, what it was asked, what was replaced, and what
 * that did. One table over it drives the journal, the file and the texts. */
#ifndef EXPERIMENTS_QUALITY_RECORD_H
#define EXPERIMENTS_QUALITY_RECORD_H

#include "experiments/quality/evaluation_checks.h"
#include "experiments/quality/evaluation_summary.h"
#include "experiments/results/identity.h"

enum { QUALITY_BINS = 24 /* of the position, in steps of a factor */ };

typedef struct quality_record {
  /* What defines the run. Texts are owned. */
  char *key, *variant, *spec, *model, *model_sha256, *data, *data_sha256, *task, *layers, *heads, *phase;
  int64_t n, windows, bos, seed;
  double mix;
  char *config_sha256, *tokens_sha256, *isa;  /* "" of a file that is older than these columns, and */
  int64_t block_q, block_k;                   /* 0 */
  char *plugin_sha256, *files_sha256, *build; /* not in the key (quality_identity) */

  int64_t session; /* of the program, as in journals */
  double end_time; /* seconds since the epoch */
  int status;      /* run_status of results/row.h */
  char *message;
  double density, mass_left, kv_bits, attention_error, attention_time;
  double nll_uniform, nll_unigram, nll_exact, nll, dnll, dnll_lo, dnll_hi, ppl_ratio, kl, kl_lo, kl_hi,
      kl_median, kl_p99, kl_max;
  double top1, top1_lo, top1_hi, top1_certified, dp_rms, range_median;
  double right_exact, right, score_exact, score_exact_lo, score_exact_hi, score, score_lo, score_hi;
  double score_diff, score_diff_lo, score_diff_hi;
  double lost, won, score_p; /* NaN: the task asks for no answers */
  double margin;
  int word; /* quality_word */
  /* Of quality_relate. */
  double word_p, score_p_holm, sensitivity, kl_budget, error_allowed, additivity;
  int word_holm, doubt;
  int verdict;          /* check_verdict, the worst of the checks */
  result_bound *checks; /* [check_count]: QUALITY_CHECKS, then those of its layers */
  int check_count;

  int64_t layer_count;
  double *window_dnll, *window_kl, *window_top1;  /* [windows] */
  double *bin_nll, *bin_dnll, *bin_kl, *bin_top1; /* [QUALITY_BINS], NaN where no position is */
  double *layer_error;                            /* [layer_count], NaN where nothing was replaced */
} quality_record;

extern const result_column quality_columns[]; /* ends with a name of NULL */

/* A series of each run, along a dimension of its group. */
typedef struct quality_series {
  const char *group, *dimension, *about; /* of the coordinate */
  const char *name, *long_name;
  size_t offset; /* of a double * in the record */
  enum { BY_WINDOW, BY_BIN, BY_LAYER } by;
} quality_series;

enum { QUALITY_SERIES = 8, QUALITY_GROUPS = 3 };
extern const quality_series quality_series_list[QUALITY_SERIES]; /* those of a group side by side */

/* NULL and 0: the run has none, since it did not end well. */
double *quality_series_values(const quality_record *, const quality_series *);
int64_t quality_series_length(const quality_record *, const quality_series *);

/* Takes the cells of checks that this program knows. ENOMEM */
attn_status quality_record_take_checks(quality_record *, const result_bound *, int count);

/* Everything but the series is NaN, 0 or "". ENOMEM */
attn_status quality_record_init(quality_record *);
void quality_record_free(quality_record *);

/* "model=... task=... n=... variant=... tokens=...": what defines the run, in its key. */
attn_status quality_record_name(quality_record *);
/* Are they of the same run? A key of an older program ends with the variant. */
bool quality_keys_match(const char *, const char *);
identity quality_identity(const quality_record *);

/* What a swap did, into the record. */
attn_status quality_record_fill(quality_record *, const quality_data *, const quality_windows *,
                                int64_t swap);

#endif
