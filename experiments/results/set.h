/* set.h - sets of rows, and what is done with them: each function is in the file named by its verb.
 *
 * A set is what the tables, the exports and the file are made from. It comes from journals (results_load:
 * Holm's correction applied, last row of a key kept) or from a results file (results_read), and is sorted by
 * key. The same journals, in whatever order, give the same set and the same bytes. */
#ifndef EXPERIMENTS_RESULTS_SET_H
#define EXPERIMENTS_RESULTS_SET_H

#include <stdio.h>

#include "data/support/output.h"
#include "experiments/results/kind.h"
#include "experiments/results/row_json.h"

struct result_set {
  const row_kind *kind; /* NULL: rows of a sweep */
  union {        /* of the kind; ascending by key (of results_join, by file and key), if the kind does not */
    void *items; /* order them; their texts are never NULL */
    result_row *rows;
    struct quality_record *records; /* of an evaluation (quality/record.h) */
  };
  size_t count;
  json_t *sessions; /* array of objects by session number: the provenance, "build" and "end_time" of each */
  char uuid[37];    /* of the journals' content */
  size_t torn;      /* last lines of journals that a crash cut short, and that were left out */
  bool lent;        /* of a journal that is still open (journal_set): the rows own their bounds alone */
};

void result_set_init(result_set *);
void result_set_free(result_set *);

/* Reads one or several journals into a set (to be freed). Sessions are numbered anew over all journals, in
 * the order of their start. Errors as in journal_read. */
attn_status results_load(const char *const *journals, size_t count, result_set *out);
/* The same of journals of another kind. */
attn_status rows_load(const row_kind *, const char *const *journals, size_t count, result_set *out);

/* Writes a results file (HDF5 that netCDF-4 readers understand, hdf5/write.c): whole, or not at all (the old
 * one stays). EFOREIGN: a system call or HDF5 failed. */
attn_status results_write(const char *path, const result_set *);

extern const output_kind kind_results;

/* Reads a results file into a set (to be freed). EINVAL: not a results file, of a newer schema, or malformed.
 * EFOREIGN: a system call failed, such as opening it. */
attn_status results_read(const char *path, result_set *out);

/* Reads several results files into one set (to be freed), whose rows and sessions say which file they are of:
 * its name without directories and .h5, or its path where names are alike. Rows of different files stay
 * apart, whatever their keys, and each file's verdicts are what they were. Errors as in results_read. */
attn_status results_join(const char *const *paths, size_t count, result_set *out);

/* A verdict, and the row that it is of: of a property the first that refers to it. */
typedef struct result_cell {
  const result_row *row;
  const result_bound *bound;
} result_cell;

/* What was verified, each once: the bounds of every run, and the properties of every setting. */
typedef struct result_verdicts {
  result_cell *cells; /* to be freed; by rows */
  size_t count, bounds, properties,
      settings; /* count: bounds and properties together; settings that have properties */
} result_verdicts;
attn_status results_verdicts(const result_set *, result_verdicts *); /* ENOMEM */

/* One line of names and one line per row: the columns of the schema, p_<name>, and for each bound its value,
 * measured, margin, p_value and verdict as <bound>_value and so on. Missing numbers are empty. RFC 4180 with
 * '\n'. */
attn_status results_export_csv(FILE *, const result_set *);
/* What these columns are, a line each: column, type (number or text), units, long_name, and the names that a
 * flag or a choice may have. */
attn_status results_export_columns(FILE *, const result_set *);

/* Judges all PROB cells at level alpha: seeds of one check, variant and parameters together, and those by
 * Holm's step-down correction (holm.c has the derivation). Cells that a rejection rests on become VIOLATED,
 * and the verdict of their run follows. A cell whose p-value is NaN becomes ERROR. At RESULTS_ALPHA two
 * hundred sweeps of correct variants stay silent with probability 0.998. */
#define RESULTS_ALPHA 1e-5
#define RESULTS_REPEAT 1e-3 /* below this a run is repeated with fresh seeds, and both p-values count */
attn_status results_holm(result_row *rows, size_t count, double alpha); /* ENOMEM */

#endif
