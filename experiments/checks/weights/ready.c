/* ready.c - see ready.h. */
#include "experiments/checks/weights/ready.h"

attn_status probe_ready(const evidence *e, result_bound *bound, probe **out) {
  const attn_view *view = e->view;
  if (view->residual)
    return bound_not_applicable(bound, "keys are weighed exactly or by features: RES-1 holds their weights");
  if (view->toeplitz)
    return bound_not_applicable(bound, "transforms mix the weights of all keys: TOEP holds their quotients");
  if (view->normaliser && !view->normaliser->weight)
    return bound_not_applicable(bound, "the variant describes no law of its weights");
  if (!view->features && !view->projection && !(view->rounding.unit > 0))
    return bound_not_applicable(bound, "the variant describes no rounding");
  if (view->projection && !(view->caps & ATTN_CAP_CONVEX))
    return bound_uncertifiable(bound, "projection weights of mixed sign: no bound on their rounding");
  probe *p;
  attn_status status = probe_get(e, &p);
  if (status) return status;
  if (view->features) {
    status = probe_map(p);
    if (status == ATTN_EUNSUPPORTED) return bound_uncertifiable(bound, attn_last_error());
    if (status) return status;
  }
  if (view->projection) {
    status = probe_compress(p);
    if (status) return status;
  }
  *out = p;
  return ATTN_OK;
}
