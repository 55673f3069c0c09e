/* repeat_command.h - commands that repeat a run. Each is one line for the shell, to be freed; NULL: no
 * memory. */
#ifndef EXPERIMENTS_REPORT_REPEAT_COMMAND_H
#define EXPERIMENTS_REPORT_REPEAT_COMMAND_H

#include "experiments/results/set.h"

/* What stands for tensors in repeat_apply where the dataset was generated. */
#define REPEAT_YOURS "YOUR_QKV.h5"

/* Writes a configuration of this run alone and runs it. "" of a baseline, which runs beside any variant. */
char *repeat_run(const result_row *);

/* attnlab apply by the run's variant, with its score, mask and precision, on the whole of the files that its
 * dataset was read from; of a generated dataset, on REPEAT_YOURS. "": apply cannot, or not on the tensors of
 * the run: a baseline, or another number of keys than of queries, which a sweep cuts from a file that may
 * have as many. */
char *repeat_apply(const result_row *);

/* Whether a dataset is read from files; of a source that is not known here it is not said. ENOMEM */
attn_status repeat_reads_files(const char *dataset, bool *files);

#endif
