/* spec.h - parameters that a view names (attn_view.seed, .budget), in the canonical spec of a plan; of an expression, in every
 * term that has them. */
#ifndef EXPERIMENTS_SUPPORT_SPEC_H
#define EXPERIMENTS_SUPPORT_SPEC_H

#include "data/support/output.h"

bool spec_names(const char *spec, const char *name);
/* The integer that the spec gives to a parameter; 0 if it names none such. */
int64_t spec_number(const char *spec, const char *name);
/* *out: the text of a parameter's value, to be freed. EINVAL: it names none such. */
attn_status spec_value(const char *spec, const char *name, char **out);
/* *out: the spec with another value of the parameter, to be freed. EINVAL: it names none such. */
attn_status spec_with(const char *spec, const char *name, int64_t value, char **out);
/* The same of a seed for other draws: those that the parameter takes go round, so that any number names one. */
attn_status spec_seed(const char *spec, const char *name, int64_t value, char **out);

/* *out: the spec without a parameter, which it need not name (NULL: none), to be freed. ENOMEM */
attn_status spec_without(const char *spec, const char *name, char **out);

/* *out: a canonical spec without the parameters that have their presets, but with the one that buys accuracy
 * (attn_variant.budget), in which the settings of a method mostly differ; to be freed. Of a variant that is not there:
 * the spec as it is. ENOMEM */
attn_status spec_short(const char *spec, char **out);

/* *out: the same of an expression without its parameter number `place`, counted over all terms from 0; NULL: it has none
 * such, or the spec is no expression. ENOMEM */
attn_status spec_short_without(const char *spec, int64_t place, char **out);

/* Of each variant that a spec is made of: it, or the terms of an expression. */
typedef attn_status (*spec_visitor)(void *context, const attn_spec *atom);
attn_status spec_each(const attn_spec *, spec_visitor, void *context);
/* The same, and of each variant in what a name for an expression stands for. */
attn_status spec_each_within(const attn_spec *, spec_visitor, void *context);

/* output_check against the files that a spec names; or the text of one, by the parameters of the table that hold texts. */
attn_status spec_check_files(const attn_spec *, const char *output, const output_kind *);
attn_status spec_check_output(const char *spec, const attn_param *table, const char *output,
                              const output_kind *);

#endif
