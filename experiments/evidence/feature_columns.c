/* feature_columns.c - how well random features carry a run: the share of eps in its weights (FAV-6), and how
 * many vectors the normaliser rests on, (sum Y_r)^2 / sum Y_r^2 (Kish 1965); and how near its weights are to
 * the best of their rank. */
#include "experiments/evidence/columns.h"

#include "experiments/evidence/probe.h"
#include "experiments/mathematics/feature_law.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { ROWS = 8 };

typedef struct quality {
  const probe *p;
  int64_t vectors; /* of which columns r and, of two kinds, vectors + r are made */
  double share[ROWS], effective[ROWS];
} quality;

static void quality_visit(void *context, int64_t place, int64_t r, row_space *s) {
  quality *x = context;
  const probe_features *f = &x->p->features;
  const double *q = f->query + r * f->columns;
  double eps = x->p->view.features->eps, *sums = calloc((size_t)x->vectors, sizeof *sums),
         top = -(double)INFINITY, product = 0, extra = 0, squares = 0;
  x->share[place] = x->effective[place] = (double)NAN;
  row_support(&x->p->head, NULL, r, s);
  for (int64_t a = 0; a < s->count; a++) top = fmax(top, f->key_scale[s->index[a]]);
  for (int64_t a = 0; a < s->count && sums; a++) {
    const double *k = f->key + s->index[a] * f->columns;
    double factor = exp(f->key_scale[s->index[a]] - top);
    for (int64_t c = 0; c < f->columns; c++) {
      sums[c % x->vectors] += factor * q[c] * k[c];
      extra += eps * (q[c] + factor * k[c] + eps);
    }
  }
  for (int64_t c = 0; c < x->vectors && sums; c++) {
    product += sums[c];
    squares += sums[c] * sums[c];
  }
  if (sums && s->count > 0) {
    x->share[place] = extra / (product + extra);
    x->effective[place] = product * product / squares;
  }
  free(sums);
}

attn_status evidence_features(const evidence *e, result_row *row) {
  probe *p;
  feature_law law;
  if (!e->view->features) return ATTN_OK;
  attn_status status = probe_get(e, &p);
  if (!status) status = probe_map(p);
  if (status == ATTN_EUNSUPPORTED) return ATTN_OK;
  if (status) return status;
  quality x = {.p = p,
               .vectors =
                   feature_law_of(e->view->features, e->problem->d_qk, &law) ? p->features.columns : law.m};
  int64_t n = p->problem.n_q, count = n < ROWS ? n : ROWS, rows[ROWS];
  for (int64_t r = 0; r < count; r++) rows[r] = (2 * r + 1) * n / (2 * count);
  if ((status = probe_rows(p, rows, count, quality_visit, &x))) return status;
  row->eps_share = row->feature_ess = (double)NAN;
  for (int64_t r = 0; r < count; r++) { /* NaNs are passed over */
    row->eps_share = fmax(row->eps_share, x.share[r]);
    row->feature_ess = fmin(row->feature_ess, x.effective[r]);
  }
  return ATTN_OK;
}

void evidence_rank_ratio(result_row *row) {
  row->rank_ratio = (double)NAN;
  for (int i = 0; i < row->bounds_count; i++) {
    const result_bound *b = &row->bounds[i];
    if (strcmp(b->name, "LIN-3") == 0 && b->measured > 0) row->rank_ratio = sqrt(b->value / b->measured);
  }
}
