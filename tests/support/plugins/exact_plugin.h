/* exact_plugin.h - what plug-ins that are made to fail share: exact attention, slowly, in fp64. */
#ifndef TESTS_SUPPORT_PLUGINS_EXACT_PLUGIN_H
#define TESTS_SUPPORT_PLUGINS_EXACT_PLUGIN_H

#include <stdlib.h>

#include "tests/support/method.h"

/* To keys at k, times a factor. */
static inline void exact_output(const attn_call *call, const void *k, double factor) {
  const attn_problem *p = call->context->problem;
  double *row = malloc((size_t)(p->d_v + p->n_kv) * sizeof *row);
  for (int64_t b = 0; b < p->batch; b++)
    for (int64_t h = 0; h < p->heads; h++)
      for (int64_t i = 0; row && i < p->n_q; i++) {
        float *o = (float *)call->o + b * p->o.batch + h * p->o.head + i * p->o.row;
        attn_reference_row(p, NULL, call->q, k, call->v, call->kv_len, b, h, i, NULL, row, row + p->d_v);
        for (int64_t l = 0; l < p->d_v; l++) o[l] = (float)(factor * row[l]);
      }
  free(row);
}

/* In fp64, rounded once: chains of at most d, n and n additions. */
static inline attn_rounding exact_rounding(const attn_problem *p) {
  return (attn_rounding){.unit = 0x1p-24,
                         .score = p->d_qk,
                         .value = p->n_kv,
                         .sum = p->n_kv,
                         .exp_error = 0x1p-24,
                         .kappa_s = 1,
                         .kappa_d = 1};
}

#endif
