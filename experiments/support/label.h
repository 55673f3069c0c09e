/* label.h - how tables and plots name settings: by what is not left at its default. */
#ifndef EXPERIMENTS_SUPPORT_LABEL_H
#define EXPERIMENTS_SUPPORT_LABEL_H

#include "attn.h"

/* *out: the canonical text without the parameters that have their defaults; the one that buys accuracy
 * (attn_variant.budget), in which the settings of a method mostly differ, is kept. seed: so is a seed that is
 * not the default. To be freed. ENOMEM */
attn_status label_make(const attn_spec *, bool seed, char **out);
/* The same of a text in a results file; where its variant is missing, a copy of the text. */
attn_status label_of_text(const char *spec, char **out);

/* *out: the label of an expression without its parameter number `place`, counted over all terms from 0, to be
 * freed; NULL: there is no such parameter. ENOMEM */
attn_status label_without(const attn_spec *, int64_t place, char **out);

/* *out: the label of a variant without the parameter that buys accuracy, to be freed; the label itself of an
 * expression, or where the variant is missing. ENOMEM */
attn_status label_method(const char *label, const char *variant, char **out);

#endif
