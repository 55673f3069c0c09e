/* survey.h - settings searched and timed in child processes: a variant that crashes, loops, or writes
 * where it may not is left out, with the reason. Internal to advice/. */
#ifndef EXPERIMENTS_ADVICE_SURVEY_H
#define EXPERIMENTS_ADVICE_SURVEY_H

#include "experiments/advice/advice.h"

/* Fills exact, mean_v, settings and unsupported of the advice, whose threads are set. *limit: seconds of
 * processor time after which an execution is held to be endless. The process must not have computed in
 * several threads. */
attn_status survey_search(const advice_request *, attn_spec *const *specs, size_t count, advice *,
                          double *limit);
/* Fills the times of those within the error; another setting keeps that of its first execution. */
attn_status survey_time(const advice_request *, double limit, advice *);

/* Of those asked for, or of all variants. */
const char *advice_spec_text(const advice_request *, size_t);
/* A line of `unsupported`. ENOMEM */
attn_status advice_leave_out(advice *, const char *spec, const char *why);
void advice_setting_free(advice_setting *);

/* What timing takes at the end, in searches of a variant: a guess for the progress. */
enum { TIMING_SHARE = 2 };

#endif
