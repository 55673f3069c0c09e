/* performer_features.c - the random features of performer, as its plan makes them. */
#include "experiments/claims/claim.h"

#include <math.h>
#include <stdlib.h>

#include "attn_variant.h"

attn_status claim_feature_plan(const char *spec, int64_t d, attn_plan **plan) {
  attn_problem p = attn_problem_make(1, 1, 1, d);
  p.dtype = ATTN_F64;
  p.scale = 1; /* x is q itself */
  return attn_plan_create(plan, &p, spec, NULL);
}

attn_status claim_features(const attn_plan *plan, int side, const double *x, int64_t rows, int64_t *columns,
                           double **f) {
  attn_view view;
  attn_status status = attn_plan_inspect(plan, &view);
  if (status) return status;
  const attn_feature_map *m = view.features;
  const int64_t d = attn_plan_problem(plan)->d_qk;
  double *out = malloc((size_t)(rows * m->columns) * sizeof *out),
         *scale = malloc((size_t)rows * sizeof *scale);
  if (out && scale) {
    const attn_feature_rows given = {0, (attn_side)side, x, d, 0, rows};
    m->map(m->state, attn_plan_context(plan), &given, out, m->columns, scale);
    for (int64_t i = 0; i < rows * m->columns; i++) out[i] *= exp(scale[i / m->columns]);
    *columns = m->columns;
    *f = out;
    out = NULL;
  } else
    status = attn_fail(ATTN_ENOMEM, "no memory for features");
  free(out);
  free(scale);
  return status;
}

attn_status claim_products(const char *spec, int64_t d, const double *x, const double *y, int64_t vectors,
                           double *products) {
  attn_plan *plan = NULL;
  double *a = NULL, *b = NULL;
  int64_t columns = 0;
  attn_status status = claim_feature_plan(spec, d, &plan);
  if (!status) status = claim_features(plan, ATTN_QUERY, x, 1, &columns, &a);
  if (!status) status = claim_features(plan, ATTN_KEY, y, 1, &columns, &b);
  for (int64_t r = 0; !status && r < vectors; r++) {
    products[r] = 0;
    for (int64_t c = r; c < columns; c += vectors) products[r] += a[c] * b[c];
  }
  free(a);
  free(b);
  attn_plan_destroy(plan);
  return status;
}
