/* repeat.c - PROP-REPEAT, PROP-THREADS, PROP-REENTRANT, PROP-PAD: the same bits in a second run, by more
 * threads, in two calls at the same time, and whatever stands in the padding. */
#include "experiments/properties/property.h"

#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

static attn_status run_again(const trial *t, int threads, trial_poison poison, const char *what,
                             result_bound *bound) {
  difference found = {.count = 0};
  char *o = NULL;
  const attn_status status = trial_run(t, &t->in, threads, poison, &o);
  if (status) return status;
  difference_all(&found, &t->in, o, &t->in, t->o);
  return difference_settle(&found, trial_apart(t), what, bound);
}

/* Copies of every tensor's numbers, negated and in the opposite order, at the addresses of the old ones. */
static void reverse_all(const trial_inputs *in) {
  const attn_problem *p = &in->problem;
  char *const tensors[] = {in->q, in->k, in->v};
  const int64_t counts[] = {p->batch * p->heads * p->n_q * p->d_qk,
                            p->batch * p->kv_heads * p->n_kv * p->d_qk,
                            p->batch * p->kv_heads * p->n_kv * p->d_v};
  for (int s = 0; s < 3; s++)
    for (int64_t i = 0; i < (counts[s] + 1) / 2; i++) {
      const int64_t j = counts[s] - 1 - i;
      const double a = attn_get(tensors[s], i, p->dtype), b = attn_get(tensors[s], j, p->dtype);
      attn_set(tensors[s], i, p->dtype, -b);
      attn_set(tensors[s], j, p->dtype, -a);
    }
}

/* Of NaN alone nothing tells whether it was computed again, nor, of a selector, of the zeros of rows for
 * which it chose no key. */
static bool has_numbers(const trial *t, const char *o, int64_t batch, int64_t head) {
  const attn_problem *p = &t->in.problem;
  const int64_t count = p->n_q * p->d_v, first = (batch * p->heads + head) * count;
  for (int64_t i = first; i < first + count; i++)
    if (t->view.selector ? fabs(attn_get(o, i, p->dtype)) > 0 : !isnan(attn_get(o, i, p->dtype))) return true;
  return false;
}

/* A (batch entry, head) whose output is the same numbers for other Q, K and V. */
static bool is_deaf(const trial *t, const char *other, int64_t *batch, int64_t *head) {
  const attn_problem *p = &t->in.problem;
  for (*batch = 0; *batch < p->batch; ++*batch)
    for (*head = 0; *head < p->heads; ++*head) {
      difference found = {.count = 0};
      difference_rows(&found, &t->in, other, *batch, *head, 0, p->n_q, &t->in, t->o, *batch);
      if (!found.count && has_numbers(t, other, *batch, *head)) return true;
    }
  return false;
}

static attn_status settle_deaf(int64_t batch, int64_t head, result_bound *bound) {
  bound_property(bound, 1, 0);
  bound_say(
      bound,
      "batch %lld, head %lld: a new plan gives for other Q, K and V bitwise the output of the first ones",
      (long long)batch, (long long)head);
  return ATTN_OK;
}

/* One plan on some inputs, on others at the same addresses, and on the first again, against a separate plan
 * for the others, and the trial's output. */
static attn_status judge_stale(const trial *t, result_bound *bound) {
  static const char *const what[] = {"an earlier call shows", "stale, not of the present Q, K, V"};
  attn_plan *fresh = NULL;
  trial_inputs in = {.padded = false};
  char *expected = NULL;
  attn_status status = trial_inputs_copy(t->memory, &t->in, &in);
  if (!status) {
    reverse_all(&in);
    status = attn_plan_create_spec(&fresh, &in.problem, t->spec, &t->options);
  }
  if (!status) status = trial_execute(t->memory, fresh, &in, POISON_NAN, &expected);
  int64_t batch = 0, head = 0;
  if (!status && is_deaf(t, expected, &batch, &head)) {
    status = settle_deaf(batch, head, bound);
    goto out;
  }
  if (!status) reverse_all(&in);
  for (int again = 0; !status && again < 3; again++) {
    difference found = {.count = 0};
    char *o = NULL;
    status = trial_run(t, &in, 1, POISON_NAN, &o);
    if (!status) {
      difference_all(&found, &t->in, o, &t->in, again == 1 ? expected : t->o);
      status = difference_settle(&found, trial_apart(t), what[again == 1], bound);
    }
    if (status || bound->verdict == VERDICT_VIOLATED) break;
    reverse_all(&in);
  }
out:
  attn_plan_destroy(fresh);
  return status;
}

static attn_status repeat_judge(const trial *t, result_bound *bound) {
  const attn_status status = run_again(t, 1, POISON_HUGE, "a second run with other memory", bound);
  return status || bound->verdict == VERDICT_VIOLATED ? status : judge_stale(t, bound);
}

static attn_status threads_judge(const trial *t, result_bound *bound) {
  const char *exempt = trial_exempt(t, ATTN_EXEMPT_BITS);
  if (exempt) return bound_not_applicable(bound, exempt);
  return run_again(t, 3, POISON_NAN, "with 3 threads", bound);
}

/* Calls of one plan. The message of a failure is its thread's, and kept for the other. */
enum { CALLERS = 2, CALLS = 3 };
typedef struct caller {
  const trial *t;
  char *o[CALLS];
  region memory; /* of the thread's own */
  attn_status status;
  char message[192];
} caller;

static void *call_thrice(void *opaque) {
  caller *c = opaque;
  for (int k = 0; !c->status && k < CALLS; k++)
    c->status = trial_execute(&c->memory, c->t->plan, &c->t->in, POISON_NAN, &c->o[k]);
  if (c->status) snprintf(c->message, sizeof c->message, "%s", attn_last_error());
  return NULL;
}

static attn_status reentrant_judge(const trial *t, result_bound *bound) {
  const char *exempt = trial_exempt(t, ATTN_EXEMPT_BITS);
  if (exempt) return bound_not_applicable(bound, exempt);
  caller callers[CALLERS] = {{.t = t}, {.t = t}};
  pthread_t threads[CALLERS];
  difference found = {.count = 0};
  attn_status status = ATTN_OK;
  int started = 0;
  while (started < CALLERS && pthread_create(&threads[started], NULL, call_thrice, &callers[started]) == 0)
    started++;
  for (int k = 0; k < started; k++) pthread_join(threads[k], NULL);
  if (started < CALLERS) status = attn_fail(ATTN_EFOREIGN, "pthread_create failed");
  for (int k = 0; k < CALLERS; k++) {
    if (!status && callers[k].status) status = attn_fail(callers[k].status, "%s", callers[k].message);
    for (int c = 0; !status && c < CALLS; c++) difference_all(&found, &t->in, callers[k].o[c], &t->in, t->o);
    region_free(&callers[k].memory);
  }
  return status ? status
                : difference_settle(&found, trial_apart(t), "beside another call of the same plan", bound);
}

static attn_status pad_judge(const trial *t, result_bound *bound) {
  const attn_problem *p = &t->in.problem;
  const double fills[] = {0, (double)NAN, attn_numbers[p->dtype].largest * 1e-8};
  difference found = {.count = 0};
  trial_inputs in;
  char *first = NULL;
  attn_status status = trial_inputs_copy(t->memory, &t->in, &in);
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
    if (!status && first) difference_all(&found, &t->in, o, &t->in, first);
    if (!first) first = o;
  }
  return status ? status
                : difference_settle(&found, trial_apart(t), "other values in the padding changed it", bound);
}

PROPERTY(repeat)
const check check_prop_repeat = {
    .name = "PROP-REPEAT",
    .of = &of_any,
    .kind = KIND_PROPERTY,
    .statement = "a run follows from its inputs alone: not from what was in its output and work memory "
                 "before, nor from earlier runs",
    .source = "the interface: execute is a function of the plan and its inputs (attn.h)",
    .formula = "Output and work memory filled with NaN in one run, with huge numbers in the other. Then the "
               "plan runs on Q, K, V, on others written over them, and on the first again; a plan of its own "
               "says what the others give.",
    .assumes = "Nothing.",
    .cause =
        "an output component or a part of the work memory is read before it is written, or never written; or "
        "the output is stale: it, or a part of the computation, is kept from an earlier call (in the state, "
        "in static variables) and not computed again for the present Q, K and V",
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

PROPERTY(reentrant)
const check check_prop_reentrant = {
    .name = "PROP-REENTRANT",
    .of = &of_any,
    .kind = KIND_PROPERTY,
    .statement =
        "calls of one plan at the same time, each with its own work and output, give the bits of one alone",
    .source = "the interface: a plan may be executed by several threads at once (attn.h)",
    .formula = "Two threads, three calls each. Calls that disturb each other are met by chance.",
    .assumes = "Nothing.",
    .cause = "execute writes to the plan's state or to static variables: what a call needs belongs into its "
             "work memory",
    .nulls = PROPERTY_BLIND,
    .evaluate = reentrant_evaluate,
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
