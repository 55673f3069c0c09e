/* time.c - tensors to time variants on, and the processor time of one thread, which other programs disturb
 * least. */
#include "experiments/claims/claim.h"

#include <math.h>
#include <stdlib.h>
#include <time.h>

enum { REPEATS = 3 };
static const double least_sample = 5e-3, most_sampled = 5e-2; /* seconds */

attn_status claim_tensors(const claim_options *o, int64_t n, data_qkv *in) {
  const data_request request = {1, 1, 1, n, n, 64, 64, ATTN_F32, o->seed};
  if (!o->captured) return data_source_make("gaussian", &request, in, NULL);
  attn_status status = data_qkv_read_hdf5(&(data_reading){.in = o->captured, .limit = n}, in);
  if (!status) status = data_qkv_convert(in, ATTN_F32);
  return status;
}

const char *claim_tensors_name(const claim_options *o) {
  return o->captured ? "captured" : "standard normal";
}

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

typedef struct subject {
  attn_plan *plan;
  void *o, *work;
} subject;

static attn_status prepare(const char *spec, const data_qkv *in, subject *s) {
  const attn_problem p = data_qkv_problem(in);
  const attn_options alone = {.threads = 1};
  attn_status status = attn_plan_create(&s->plan, &p, spec, &alone);
  if (status) return status;
  s->o = malloc((size_t)(p.batch * p.heads * p.n_q * p.d_v) * attn_dtype_size(p.dtype));
  s->work = malloc(attn_plan_work_size(s->plan) + 1);
  if (!s->o || !s->work) return attn_fail(ATTN_ENOMEM, "no memory to time %s", spec);
  return attn_plan_execute(s->plan, in->q, in->k, in->v, NULL, s->o, s->work); /* touches its pages */
}

/* The shortest of a few samples, each of as many executions as fill it; of long ones there is one. */
static attn_status sample(const subject *s, const data_qkv *in, double *seconds) {
  *seconds = (double)INFINITY;
  const double begin = now();
  for (int i = 0; i < REPEATS && (!i || now() - begin < most_sampled); i++) {
    const double start = now();
    double spent = 0;
    int64_t done = 0;
    for (; spent < least_sample; spent = now() - start, done++) {
      attn_status status = attn_plan_execute(s->plan, in->q, in->k, in->v, NULL, s->o, s->work);
      if (status) return status;
    }
    *seconds = fmin(*seconds, spent / (double)done);
  }
  return ATTN_OK;
}

attn_status claim_times(const claim_options *o, const char *const *specs, int count, const int64_t *n,
                        int lengths, double *seconds) {
  data_qkv *in = calloc((size_t)lengths, sizeof *in);
  subject *subjects = calloc((size_t)(count * lengths), sizeof *subjects);
  attn_status status = in && subjects ? ATTN_OK : attn_fail(ATTN_ENOMEM, "no memory to time variants");
  for (int l = 0; l < lengths && !status; l++) {
    status = claim_tensors(o, n[l], &in[l]);
    for (int v = 0; v < count && !status; v++) status = prepare(specs[v], &in[l], &subjects[v * lengths + l]);
  }
  for (int round = 0; round < CLAIM_ROUNDS && !status; round++)
    for (int i = 0; i < count * lengths && !status; i++)
      status = sample(&subjects[i], &in[i % lengths],
                      &seconds[(i / lengths * CLAIM_ROUNDS + round) * lengths + i % lengths]);
  for (int i = 0; subjects && i < count * lengths; i++) {
    attn_plan_destroy(subjects[i].plan);
    free(subjects[i].o);
    free(subjects[i].work);
  }
  for (int l = 0; in && l < lengths; l++) data_qkv_free(&in[l]);
  free(subjects);
  free(in);
  return status;
}

attn_status claim_operations(const char *spec, int64_t n, double *flops) {
  const attn_problem p = attn_problem_make(1, 1, n, 64);
  attn_plan *plan = NULL;
  attn_status status = attn_plan_create(&plan, &p, spec, NULL);
  if (!status) *flops = 2 * attn_plan_cost(plan).mul_add;
  attn_plan_destroy(plan);
  return status;
}
