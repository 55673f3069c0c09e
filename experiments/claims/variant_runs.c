/* variant_runs.c - inputs, outputs and errors of variants in fp64. */
#include "experiments/claims/claim.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "attn_variant.h"

attn_status claim_inputs(const claim_run *r, uint64_t seed, data_qkv *in) {
  const data_request request = {1, 1, 1, r->n_q, r->n, r->d, r->d, ATTN_F64, seed};
  attn_status status = data_source_make(r->data, &request, in, NULL);
  if (!status && r->reshape) r->reshape(in->q, in->k, r->n, r->d);
  return status;
}

static attn_status output_of(const data_qkv *in, bool causal, const char *spec, void **o) {
  attn_problem p = data_qkv_problem(in);
  p.causal = causal;
  void *out = calloc((size_t)(p.heads * p.n_q * p.d_v), attn_dtype_size(p.dtype));
  if (!out) return attn_fail(ATTN_ENOMEM, "no memory for the output of %s", spec);
  const attn_status status = attn_attention(in->q, in->k, in->v, out, &p, spec);
  if (status)
    free(out);
  else
    *o = out;
  return status;
}

attn_status claim_output(const data_qkv *in, const char *spec, void **o) {
  return output_of(in, false, spec, o);
}

attn_status claim_causal_error(const data_qkv *in, const char *spec, double *error) {
  void *exact = NULL, *o = NULL;
  double off = 0, all = 0;
  attn_status status = output_of(in, true, "tiled", &exact);
  if (!status) status = output_of(in, true, spec, &o);
  for (int64_t i = 0; i < in->heads * in->n_q * in->d_v && !status; i++) {
    const double x = attn_get(exact, i, in->dtype), e = attn_get(o, i, in->dtype) - x;
    off += e * e;
    all += x * x;
  }
  if (!status) *error = sqrt(off / all);
  free(exact);
  free(o);
  return status;
}

static attn_status error_of(const data_qkv *in, const char *spec, const double *exact, claim_norm norm,
                            double *error) {
  void *output = NULL;
  double off = 0, all = 0;
  const int64_t count = in->n_q * in->d_v;
  attn_status status = claim_output(in, spec, &output);
  if (status) return status;
  const double *o = output;
  for (int64_t i = 0; i < count; i++) {
    const double e = o[i] - exact[i];
    off += norm == NORM_L1 ? fabs(e) : e * e;
    all += norm == NORM_L1 ? fabs(exact[i]) : exact[i] * exact[i];
  }
  *error = norm == NORM_MSE ? off / (double)count : norm == NORM_L1 ? off / all : sqrt(off / all);
  free(output);
  return ATTN_OK;
}

attn_status claim_errors(const claim_options *options, const claim_run *r, const char *const *specs,
                         int count, claim_norm norm, int seeds, double *errors) {
  attn_status status = ATTN_OK;
  for (int s = 0; s < seeds && !status; s++) {
    const uint64_t seed = claim_seed(options, s);
    data_qkv in = {0};
    void *exact = NULL;
    status = claim_inputs(r, seed, &in);
    if (!status) status = claim_output(&in, "tiled", &exact);
    for (int v = 0; v < count && !status; v++) {
      const size_t length = strlen(specs[v]);
      char drawn[160];
      snprintf(drawn, sizeof drawn, length && specs[v][length - 1] == '=' ? "%s%llu" : "%s", specs[v],
               (unsigned long long)seed);
      status = error_of(&in, drawn, exact, norm, &errors[v * seeds + s]);
    }
    free(exact);
    data_qkv_free(&in);
  }
  return status;
}
