/* row.h - one run of an experiment as the journal, the HDF5 file and the tables see it.
 *
 * result_row holds every column of the results schema; result_columns and result_bound_columns, the tables
 * over its fields, drive the journal, the HDF5 file, the CSV export and the reports. */
#ifndef EXPERIMENTS_RESULTS_ROW_H
#define EXPERIMENTS_RESULTS_ROW_H

#include "experiments/results/axes.h"
#include "experiments/results/column.h"

#define RESULT_SCHEMA "attnlab-results"
#define RESULT_SCHEMA_VERSION 2

/* Flag values are the positions in these lists; the file stores them as flag_meanings. */
typedef enum {
  RUN_OK,
  RUN_FAILED,
  RUN_TIMEOUT,
  RUN_OOM,
  RUN_CRASHED,
  RUN_UNSUPPORTED,
  RUN_SKIPPED
} run_status;
typedef enum {
  KIND_HARD,
  KIND_PROB,
  KIND_MODEL,
  KIND_REPORT,
  KIND_PROPERTY /* of every variant, whatever it computes */
} check_kind;
typedef enum {
  VERDICT_PASS,
  VERDICT_CONSISTENT,
  VERDICT_VIOLATED,
  VERDICT_UNCERTIFIABLE,
  VERDICT_NOT_APPLICABLE,
  VERDICT_ERROR,
  VERDICT_UNCHECKED, /* of a row: no check of its variant could say anything */
  VERDICTS           /* their number */
} check_verdict;
typedef enum { REF_EXACT_F64, REF_EXACT_SAME_DTYPE } ref_kind;

/* One bound checked on one run: a cell of /bounds. */
typedef struct result_bound {
  const char *name; /* of the check, or from names_keep */
  check_kind kind;
  check_verdict verdict;
  double value;        /* the bound */
  double measured;     /* what it bounds */
  double margin;       /* measured / value: below 1 is inside */
  double p_value;      /* PROB only, else NaN */
  double p_repeat;     /* of the one repetition with fresh seeds, above 0; NaN or 0: not repeated */
  const char *message; /* from names_keep, so that a million cells share it; never NULL in a row */
} result_bound;

/* One value of a variant's parameter, as column p_<name>: of an integer or a real a number; of a choice, a
 * list or a file a text, as a spec has it. */
typedef struct result_param {
  const char *name; /* of the variant's table, or from names_keep */
  double value;     /* NaN of a text */
  const char *text; /* from names_keep; NULL of a number */
} result_param;

/* The cells of the properties of a setting: verified once, and the same for all rows of that setting. */
typedef struct result_properties {
  int count;
  result_bound cells[];
} result_properties;

enum { RESULT_PROFILE_BINS = 64, RESULT_MAP_CELLS = 128 };

typedef struct result_row {
  /* identity */
  char *key; /* canonical text of everything that defines the run; owned, as the message is */
  /* The others are from names_keep: rows share them. NULL is "". */
  const char *variant;
  const char *label;          /* the shortest spec of variant and parameters, without the seed of the draws */
  const char *params;         /* JSON object, values as written */
  const char *dataset_sha256; /* of the files it was read from; "": none */
  const char *plugin;         /* path of the shared object that the variant is from; "": the library */
  const char *plugin_sha256;  /* of that */
  const char *files_sha256;   /* of the files that the spec and the score name; "": none */
  const char *path;
  union {
    const char *text[TEXT_AXES];
    struct {
#define TEXT_AXIS(name, ...) const char *name;
#include "experiments/results/axes.def"
    };
  };
  union {
    int64_t axis[AXES];
    struct {
#define AXIS(name, ...) int64_t name;
#include "experiments/results/axes.def"
    };
  };
  const char
      *source; /* the file that it was read from, of a set of several (results_join); NULL; in no file */
  int64_t shard, session;
  result_param *p;
  int p_count;
  /* status */
  run_status status;
  char *message;
  double start_time, end_time; /* seconds since the epoch */
  double run_time, load;
  /* timing, seconds */
  double time_min, time_median, time_mean, time_std, time_mad, time_ci_lo, time_ci_hi;
  int64_t n_samples, iters_per_sample, n_outliers;
  double drift_ratio;
  double *samples; /* n_samples wall times, or NULL */
  int32_t *rounds; /* the round of each, or NULL */
  /* cost */
  double flops, bytes_moved, gflops, peak_rss, peak_alloc, work_bytes;
  double cycles, instructions, llc_misses, energy_pkg;
  double est_time, est_run, est_memory; /* beforehand (estimate.h) */
  /* error against the fp64 reference */
  double err_rel_fro, err_rel_fro_lo, err_rel_fro_hi, err_rel_fro_cert_lo, err_rel_fro_cert_hi, err_max_abs;
  double err_rel_l2_mean, err_rel_l2_mean_lo, err_rel_l2_mean_hi, err_rel_l2_max, err_cos_min, err_max_tail;
  double err_row_l1_max, err_row_l1_tail, err_kl_mean, err_kl_mean_lo, err_kl_mean_hi;
  int64_t rows_sampled, rows_degenerate;
  ref_kind ref;
  double profile_l2[RESULT_PROFILE_BINS], profile_max[RESULT_PROFILE_BINS]; /* error by position */
  float *map; /* weights of head 0, exact and then the variant's: 2 result_map_size(), all finite; or NULL */
  /* gradients against those of exact attention, where they are asked for; seconds of one backward pass */
  double grad_err_q, grad_err_k, grad_err_v, grad_cos_q, grad_cos_k, grad_cos_v, grad_time;
  /* properties of the input that explain errors */
  double row_entropy_mean, top16_mass_mean, eff_rank, score_osc;
  /* sizes that theory requires on this input */
  double tail_mass, eps_share, feature_ess, rank_ratio;
  double keys_mean, keys_max, kept_mass_mean, regret_mean; /* of a pattern or a selection */
  double select_share, drawn_share;                        /* of a selection */
  double budget_used, need_10pct, need_1pct, best_10pct, best_1pct, err_predicted;
  /* bounds */
  check_verdict verdict;       /* the worst of what is proven and of properties (result_row_judge) */
  check_verdict model_verdict; /* the worst of KIND_MODEL; not applicable without one */
  result_bound *bounds;        /* of this run */
  int bounds_count;
  const result_properties *properties; /* of its setting, shared and never freed; NULL: none */
} result_row;

/* Everything NaN, zero or empty; status RUN_SKIPPED, verdicts not_applicable. */
void result_row_init(result_row *);
void result_row_free(result_row *); /* frees what the row owns and initialises it again */
/* The value of a text axis; "" where the row has none. */
static inline const char *result_text(const result_row *row, text_axis_id t) {
  return row->text[t] ? row->text[t] : "";
}
/* Append; ENOMEM. */
attn_status result_row_add_param(result_row *, const char *name, double value);
attn_status result_row_add_text(result_row *, const char *name, const char *text);
attn_status result_row_add_bound(result_row *, const result_bound *);
attn_status bounds_add(result_bound **, int *count, const result_bound *);

/* Its setting as far as properties depend on it: the variant's parameters except the seed, the widths, the
 * type, the mask and the instruction set. To be freed; NULL: no memory. */
char *result_row_setting(const result_row *);
/* Moves the cells of properties from the bounds to the one copy that all rows of the setting refer to.
 * ENOMEM. */
attn_status result_row_refer(result_row *);
/* The cells of a row: those of its bounds, then those of its setting's properties. */
int result_row_cells(const result_row *);
const result_bound *result_row_cell(const result_row *, int);

/* A map has min(n, 128) cells along an axis: index i is in cell i * cells / n. A cell holds the mean over its
 * queries of the sum over its keys of the weights, so that a row of exact cells sums to 1. */
int64_t result_map_cells(int64_t n);
/* Cells of one matrix, row-major; 0 where the row has no n or n_kv. */
size_t result_map_size(const result_row *);

extern const char *const run_status_names[]; /* NULL-terminated, in enum order, as are the others */
extern const char *const check_kind_names[];
extern const char *const check_verdict_names[];

/* Columns in schema order, and the fields of a bound; each ends with a NULL name. p_<name> columns not
 * included. */
extern const result_column result_columns[], result_bound_columns[];
const result_column *result_column_named(const char *name); /* of result_columns, where it is */

/* An axis of a file that is older than its column: as the key has it, else as result_row_init leaves it. */
void result_row_recover(result_row *, const result_column *);

/* The parameters as the column params has them: texts as texts, numbers as numbers. Others stay. ENOMEM. */
attn_status result_row_settle_params(result_row *);

/* Of a row that was read without these columns: its parameters are settled and its label found, the one with
 * all parameters but a "seed"; its verdicts are judged from the bounds. ENOMEM. */
attn_status result_row_complete(result_row *, bool label, bool model_verdict);

#endif
