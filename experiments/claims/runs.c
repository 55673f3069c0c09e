/* runs.c - outputs and errors of variants on generated inputs, and figures of a claim. */
#include "experiments/claims/claim.h"

#include <gsl/gsl_cdf.h>
#include <gsl/gsl_fit.h>
#include <gsl/gsl_statistics_double.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "data/data.h"

static claim_figure *add(claim_report *r, const char *what, va_list arguments) {
  claim_figure *f = &r->figures[r->count < CLAIM_FIGURES ? r->count++ : CLAIM_FIGURES - 1];
  *f = (claim_figure){.low = (double)NAN, .high = (double)NAN};
  vsnprintf(f->what, sizeof f->what, what, arguments);
  return f;
}

claim_figure *claim_value(claim_report *r, double value, double said, const char *what, ...) {
  va_list arguments;
  va_start(arguments, what);
  claim_figure *f = add(r, what, arguments);
  va_end(arguments);
  f->value = value;
  f->said = said;
  return f;
}

claim_figure *claim_mean(claim_report *r, const double *values, int count, double said, const char *what,
                         ...) {
  va_list arguments;
  va_start(arguments, what);
  claim_figure *f = add(r, what, arguments);
  va_end(arguments);
  const double mean = gsl_stats_mean(values, 1, (size_t)count);
  const double half = gsl_cdf_tdist_Pinv(0.975, count - 1) * gsl_stats_sd_m(values, 1, (size_t)count, mean) /
                      sqrt((double)count);
  f->value = mean;
  f->low = mean - half;
  f->high = mean + half;
  f->said = said;
  return f;
}

double claim_slope(const double *x, const double *y, int count) {
  double a[CLAIM_FIGURES], b[CLAIM_FIGURES], c0, c1, v00, v01, v11, rest;
  for (int i = 0; i < count; i++) {
    a[i] = log(x[i]);
    b[i] = log(y[i]);
  }
  gsl_fit_linear(a, 1, b, 1, (size_t)count, &c0, &c1, &v00, &v01, &v11, &rest);
  return c1;
}

static attn_status execute(const attn_problem *p, const char *spec, const data_qkv *in, double **o) {
  attn_plan *plan = NULL;
  void *work = NULL;
  double *out = calloc((size_t)(p->n_q * p->d_v), sizeof *out);
  attn_status status = attn_plan_create(&plan, p, spec, NULL);
  if (status) goto out;
  work = malloc(attn_plan_work_size(plan) + 1);
  status = work && out ? attn_plan_execute(plan, in->q, in->k, in->v, NULL, out, work)
                       : attn_fail(ATTN_ENOMEM, "no memory to execute %s", spec);
out:
  attn_plan_destroy(plan);
  free(work);
  if (status) free(out);
  if (!status) *o = out;
  return status;
}

static attn_status make(const claim_run *r, data_qkv *in) {
  const data_request request = {1, 1, 1, r->n, r->n, r->d, r->d, ATTN_F64, r->seed};
  attn_status status = data_source_make(r->data, &request, in, NULL);
  if (!status && r->reshape) r->reshape(in->q, in->k, r->n, r->d);
  return status;
}

attn_status claim_output(const claim_run *r, const char *spec, double **o) {
  data_qkv in = {0};
  attn_status status = make(r, &in);
  const attn_problem p = data_qkv_problem(&in);
  if (!status) status = execute(&p, spec, &in, o);
  data_qkv_free(&in);
  return status;
}

attn_status claim_error(const claim_run *r, const char *spec, claim_norm norm, double *error) {
  double *exact = NULL, *o = NULL, off = 0, all = 0;
  attn_status status = claim_output(r, "full", &exact);
  if (!status) status = claim_output(r, spec, &o);
  for (int64_t i = 0; !status && i < r->n * r->d; i++) {
    const double e = o[i] - exact[i];
    off += norm == NORM_L1 ? fabs(e) : e * e;
    all += norm == NORM_L1 ? fabs(exact[i]) : exact[i] * exact[i];
  }
  if (!status) *error = norm == NORM_L1 ? off / all : sqrt(off / all);
  free(exact);
  free(o);
  return status;
}

attn_status claim_errors(const claim_run *r, const char *spec, claim_norm norm, double errors[CLAIM_SEEDS]) {
  const size_t length = strlen(spec);
  const bool draws = length > 0 && spec[length - 1] == '=';
  attn_status status = ATTN_OK;
  for (int s = 0; s < CLAIM_SEEDS && !status; s++) {
    char drawn[160];
    claim_run run = *r;
    run.seed += (uint64_t)s;
    snprintf(drawn, sizeof drawn, draws ? "%s%d" : "%s", spec, s);
    status = claim_error(&run, drawn, norm, &errors[s]);
  }
  return status;
}
