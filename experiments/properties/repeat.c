/* repeat.c - PROP-REPEAT, PROP-THREADS, PROP-PAD: the same bits in a second run, by more threads, and whatever
 * stands in the padding. */
#include "experiments/properties/property.h"

#include <math.h>
#include <stdlib.h>

static void compare_all(const trial *t, const char *expected, const char *got, difference *found) {
  const attn_problem *p = &t->in.problem;
  for (int64_t b = 0; b < p->batch; b++)
    for (int64_t h = 0; h < p->heads; h++)
      difference_rows(found, &t->in, got, b, h, 0, p->n_q, &t->in, expected, b);
}

static attn_status run_again(const trial *t, int threads, trial_poison poison, const char *what,
                             result_bound *bound) {
  difference found = {.count = 0};
  char *o = NULL;
  const attn_status status = trial_run(t, &t->in, threads, poison, &o);
  if (status) return status;
  compare_all(t, t->o, o, &found);
  free(o);
  return difference_settle(&found, 0, what, bound);
}

static attn_status repeat_judge(const trial *t, result_bound *bound) {
  return run_again(t, 1, POISON_HUGE, "a second run with other memory", bound);
}

static attn_status threads_judge(const trial *t, result_bound *bound) {
  return run_again(t, 3, POISON_NAN, "with 3 threads", bound);
}

static attn_status pad_judge(const trial *t, result_bound *bound) {
  const attn_problem *p = &t->in.problem;
  const double fills[] = {0, (double)NAN, p->dtype == ATTN_F64 ? 1e300 : 1e30};
  difference found = {.count = 0};
  trial_inputs in;
  char *first = NULL;
  attn_status status = trial_inputs_copy(&t->in, &in);
  if (status) return status;
  in.padded = true;
  for (int64_t b = 0; b < p->batch; b++) in.kv_len[b] = b ? p->n_kv - 1 : 2 * p->n_kv / 3;
  for (int f = 0; !status && f < 3; f++) {
    char *o = NULL;
    for (int64_t b = 0; b < p->batch; b++)
      for (int64_t h = 0; h < p->kv_heads; h++)
        for (int64_t j = in.kv_len[b]; j < p->n_kv; j++) {
          trial_row_fill(&in, ATTN_KEY, b, h, j, fills[f]);
          trial_row_fill(&in, ATTN_VALUE, b, h, j, fills[f]);
        }
    status = trial_run(t, &in, 1, POISON_NAN, &o);
    if (!status && first) compare_all(t, first, o, &found);
    if (first)
      free(o);
    else
      first = o;
  }
  free(first);
  trial_inputs_free(&in);
  return status ? status : difference_settle(&found, 0, "other values in the padding changed it", bound);
}

PROPERTY(repeat)
const check check_prop_repeat = {
    .name = "PROP-REPEAT",
    .of = &of_any,
    .kind = KIND_PROPERTY,
    .statement = "a second run gives the same bits, whatever was in its output and work memory before",
    .source = "the interface: execute is a function of the plan and its inputs (attn.h)",
    .formula = "Output and work memory filled with NaN in one run, with huge numbers in the other.",
    .assumes = "Nothing.",
    .cause =
        "an output component or a part of the work memory is read before it is written, or never written; or "
        "the output is kept from an earlier call",
    .nulls = PROPERTY_BLIND,
    .evaluate = repeat_evaluate,
};

PROPERTY(threads)
const check check_prop_threads = {
    .name = "PROP-THREADS",
    .of = &of_any,
    .kind = KIND_PROPERTY,
    .statement = "more threads give the same bits",
    .source = "the interface: bitwise the same for any number of threads (attn.h)",
    .formula = "One thread against three.",
    .assumes = "Nothing.",
    .cause = "threads share a piece of the work memory, or a sum is cut by the number of threads",
    .nulls = PROPERTY_BLIND,
    .evaluate = threads_evaluate,
};

PROPERTY(pad)
const check check_prop_pad = {
    .name = "PROP-PAD",
    .of = &of_padded,
    .kind = KIND_PROPERTY,
    .statement = "whatever stands in the padding, the output stays bitwise the same",
    .source = "the interface: keys from kv_len on do not exist (attn.h)",
    .formula = "Keys and values from kv_len on are 0, NaN and huge; kv_len differs between batch entries.",
    .assumes = "Declared: padding.",
    .cause =
        "padding is multiplied by a weight of zero, which keeps NaN, or enters a maximum, mean or projection",
    .nulls = PROPERTY_BLIND,
    .evaluate = pad_evaluate,
};
