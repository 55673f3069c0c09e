/* gates.c - a key of a recurrence by the law. Of T = I - k c^T, c = b . k, the eigenvalues of T^T T in the
 * span of k and c have the sum 2 - 2 k.c + |k|^2 |c|^2 and the product (1 - k.c)^2, and are 1 elsewhere;
 * where c is b k the norm is max(1, |1 - b |k|^2|). */
#include "experiments/checks/recurrences/gates.h"

#include <math.h>

#include "experiments/mathematics/vector.h"

static double norm_of(double size, double asks, double product) {
  const double sum = 2 - 2 * product + pow(size * asks, 2), of_both = pow(1 - product, 2);
  return sqrt(fmax(1, (sum + sqrt(fmax(0, sum * sum - 4 * of_both))) / 2));
}

void recurrent_turn(const attn_recurrence *x, const double *angles, double sign, double *to) {
  for (int64_t l = 0; l < x->turns; l++) {
    const double c = cos(angles[l]), s = sign * sin(angles[l]), one = to[l], two = to[l + x->turns];
    to[l] = c * one - s * two;
    to[l + x->turns] = s * one + c * two;
  }
}

double recurrent_query_scale(const attn_problem *p, const attn_recurrence *x, const double *q) {
  return p->scale * (x->query_scale ? x->query_scale(x->state, p->d_qk, vector_dot(q, q, p->d_qk)) : 1);
}

int64_t recurrent_last(const attn_recurrence *x, int64_t position, int64_t keys) {
  const int64_t last = position - x->before;
  return last < 0 ? -1 : last < keys ? last : keys - 1;
}

bool recurrent_key_make(const evidence *e, const head_data *head, int64_t t, double *k, double *a,
                        double *betas, recurrent_key *out) {
  const attn_problem *p = e->problem;
  const attn_recurrence *x = e->view->recurrence;
  const attn_call call = evidence_call(e);
  const int64_t d = p->d_qk, width = x->columns ? d : 1;
  const double *own = head->k + t * d,
               scale = x->key_scale ? x->key_scale(x->state, d, vector_dot(own, own, d)) : 1;
  double asks = 0, product = 0;
  bool shrinks = true;
  *betas = 1;
  x->law(x->state, &call, head->batch, head->head, t, a, betas);
  *out = (recurrent_key){.size = fabs(scale) * vector_norm(own, d), .norm = 1};
  for (int64_t l = 0; l < d; l++) {
    const double c = betas[recurrent_vectors(x) ? l : 0] * (k[l] = scale * own[l]);
    asks += c * c;
    product += c * k[l];
  }
  out->asks = sqrt(asks);
  if (x->delta) out->norm = norm_of(out->size, out->asks, product);
  for (int64_t l = 0; l < width; l++) {
    shrinks = shrinks && a[l] <= 0;
    if (attn_document_begins(p, t)) a[l] = -(double)INFINITY;
    out->least = fmin(out->least, a[l]);
    a[l] = exp(a[l]);
    out->most = fmax(out->most, a[l]);
  }
  return shrinks;
}
