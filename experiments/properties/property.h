/* property.h - what every variant must keep, whatever it computes: a property is a check (checks/check.h)
 * that runs the variant on small separate problems, made from the plan of the run alone, and compares bits.
 *
 * A trial is such a problem with its inputs and the output that the others are compared with. Several heads
 * and batch entries, groups of heads, lengths beside the powers of two, several tiles and chunks. */
#ifndef EXPERIMENTS_PROPERTIES_PROPERTY_H
#define EXPERIMENTS_PROPERTIES_PROPERTY_H

#include "experiments/checks/check_table.h"

enum { TRIAL_BATCH = 9 }; /* at most */

/* Contiguous tensors, of the types that the problem says. */
typedef struct trial_inputs {
  attn_problem problem; /* resolved */
  char *q, *k, *v;
  int64_t kv_len[TRIAL_BATCH];
  bool padded;
  double *lse; /* [batch, heads, n_q], written by a run; NULL: nobody asks for the log-sum-exp */
} trial_inputs;

typedef struct trial {
  const attn_spec *spec; /* the run's */
  attn_options options;
  attn_plan *plan;
  attn_view view;
  trial_inputs in;
  char *o;
  region *memory; /* of the property that is judged: of outputs and other inputs */
} trial;

/* The trial of a run's plan: its spec, widths, type, mask and instruction set; the plan is to be destroyed,
 * also after a failure. EUNSUPPORTED: the variant takes no problem of the kind. */
attn_status trial_make(const evidence *, region *, trial *);

/* Uniform with mean 0 and variance 1, rounded to the types of the tensors. */
attn_status trial_inputs_draw(region *, const attn_problem *, uint64_t seed, trial_inputs *);
attn_status trial_inputs_copy(region *, const trial_inputs *, trial_inputs *);
/* Batch entries from `first` on, the first rows, and heads repeated, as the problem says. */
attn_status trial_inputs_gather(region *, const trial_inputs *, const attn_problem *, int64_t first,
                                trial_inputs *);
/* Address of a row of Q, K or V: ATTN_QUERY, ATTN_KEY, ATTN_VALUE. */
void *trial_row(const trial_inputs *, attn_side, int64_t batch, int64_t head, int64_t row);
void trial_row_fill(const trial_inputs *, attn_side, int64_t batch, int64_t head, int64_t row, double value);

/* Executes the trial's variant on inputs, their problem its own or another, with `threads` threads. Output
 * and work memory are filled with `poison` before. EFOREIGN: it wrote beside its output. */
typedef enum { POISON_NAN, POISON_HUGE } trial_poison;
attn_status trial_run(const trial *, const trial_inputs *, int threads, trial_poison, char **o);

/* The same of a plan for the inputs' problem. */
attn_status trial_execute(region *, const attn_plan *, const trial_inputs *, trial_poison, char **o);

/* The numbers of two outputs that differ: NaNs are alike. `what` names the second in messages. */
typedef struct difference {
  const trial_inputs *in; /* whose problem it is */
  int64_t count;
  int64_t batch, head, row, component; /* of the first of the largest */
  double largest, expected, got;
} difference;

/* Compares rows [from, to) of one batch entry and head of `got` with rows of `expected`, at the same places
 * except the batch entry and the number of rows. */
void difference_rows(difference *, const trial_inputs *in, const char *got, int64_t batch, int64_t head,
                     int64_t from, int64_t to, const trial_inputs *of, const char *expected,
                     int64_t expected_batch);
/* The same of all rows of `in`. */
void difference_all(difference *, const trial_inputs *in, const char *got, const trial_inputs *of,
                    const char *expected);
/* The verdict: at most `allowed`, with a message of where and by how much. */
attn_status difference_settle(const difference *, double allowed, const char *what, result_bound *);

/* Why the variant need not keep the property, or NULL. */
const char *trial_exempt(const trial *, uint32_t properties);

typedef attn_status property_judge(const trial *, result_bound *);
/* A check's evaluate: judges its trial, or that of all properties. */
attn_status property_evaluate(const evidence *, property_judge *, result_bound *);

#define PROPERTY(name)                                                         \
  static attn_status name##_evaluate(const evidence *e, result_bound *bound) { \
    return property_evaluate(e, name##_judge, bound);                          \
  }
#define PROPERTY_BLIND                                                                                  \
  CHECK_BLIND("zeros, means and keys chosen by position keep it: it judges what an output depends on, " \
              "not what it is")

/* How far two ways to compute the same row may be apart, in units of the values. */
double trial_rounding(const trial *);
/* How far what must have the same bits may be apart: 0, unless the variant is exempt (ATTN_EXEMPT_BITS). */
double trial_apart(const trial *);

/* All properties on one trial, in the order of the table, appended to the row. e->cache must not be NULL.
 * ENOMEM. */
attn_status properties_run(const evidence *, result_row *);

#endif
