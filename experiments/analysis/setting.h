/* setting.h - how the tables name a run's variant and parameters. */
#ifndef EXPERIMENTS_ANALYSIS_SETTING_H
#define EXPERIMENTS_ANALYSIS_SETTING_H

#include "experiments/results/row_json.h"

/* A variant with its parameters, without a seed: the subject of one line of a table. */
typedef struct setting {
  const result_row *row; /* one of the runs */
  json_t *params;        /* object, without "seed" */
  size_t rank;           /* of the variant among those registered; their number: none of them */
  bool exact;            /* the variant is stated to be: its error is rounding */
  bool oracle; /* of every run no as many keys could keep more, and some are left out: set by model_make */
  bool expression; /* made of several variants, whose parameters stand in its name */
  bool drawn;      /* its output may depend on draws: false only of a variant at hand that draws nothing */
} setting;

attn_status setting_make(const result_row *,
                         setting *); /* ENOMEM; parameters that are no JSON object count as none */
void setting_free(setting *);

/* Order of the tables: 0 for runs that share one, where everything but variant, parameters, seed and n is the
 * same. machine: instruction set and threads, too. */
int setting_group_compare(const result_row *, const result_row *, bool machine);

/* "d = 64, 4 heads, causal, f32, score alibi, mask prefix:64": what the runs of a table have in common beside
 * dataset and instruction set; rest: without the axes that have a menu. To be freed; NULL: no memory. */
char *setting_title(const result_row *, bool rest);

/* Order of the lines: registered variants as registered, then others by name; then by the parameters'
 * values. */
int setting_compare(const setting *, const setting *);

/* Whether a parameter of a registered variant has its default. */
bool setting_is_preset(const char *variant, const char *name, const json_t *value);

/* Whether its variant is exact with its parameters. */
bool setting_exact(const result_row *);

/* The run's label, "longformer:window=256"; of a row without one, the variant. */
const char *setting_label(const setting *);

/* Methods, each to be freed: settings of one are points of one curve. Of a registered variant it is the label
 * without the parameter that buys accuracy; of expressions, the label without the one parameter in which most
 * of these settings differ; equal ones beside each other count once. methods[0 ...
 * count - 1] is NULL before. ENOMEM. */
attn_status setting_methods(const setting *, size_t count, char **methods);

#endif
