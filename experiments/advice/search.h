/* search.h - the least budget of a variant within an error. Internal to advice/. */
#ifndef EXPERIMENTS_ADVICE_SEARCH_H
#define EXPERIMENTS_ADVICE_SEARCH_H

#include "experiments/advice/attempt.h"

/* Of a spec that names its budget, or has none: that setting. Else the least budget that is within the error,
 * or the closest that was tried. EINVAL, EUNSUPPORTED, ENOMEM: the variant cannot do the problem. */
attn_status search_setting(const attempts *, const attn_spec *, advice_setting *);

#endif
