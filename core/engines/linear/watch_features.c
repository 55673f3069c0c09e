/* watch_features.c - a feature map under attn_plan_verify. The rooms for features and scales have CHUNK rows:
 * what lies behind the rows that are mapped, and between their ends and the next, must stay as it was. */
#include "core/engines/linear/linear_engine.h"
#include "core/plan/verify.h"

static void judge(const linear_shape *s, const verify_canvas *c, const char *what, int64_t head,
                  attn_side side) {
  const char *name = s->c->variant->name, *of = side == ATTN_QUERY ? "queries" : "keys";
  int64_t row, column;
  if (!verify_canvas_intact(c))
    attn_guards_fault(s->guards, ATTN_EFOREIGN,
                      "variant %s: map wrote outside its %s, %lld rows of %lld (%s of kv head %lld)", name,
                      what, (long long)c->rows, (long long)c->columns, of, (long long)head);
  else if (verify_canvas_unwritten(c, &row, &column))
    attn_guards_fault(
        s->guards, ATTN_EFOREIGN,
        "variant %s: map left its %s unwritten at row %lld of %lld, column %lld (%s of kv head %lld)", name,
        what, (long long)row, (long long)c->rows, (long long)column, of, (long long)head);
}

void linear_map_watched(const linear_shape *s, const attn_feature_rows *x, void *f, double *scale) {
  const verify_canvas features = {f, x->rows, s->columns, s->f_row, CHUNK, s->t},
                      scales = {scale, x->rows, 1, 1, CHUNK, ATTN_F64};
  verify_canvas_prepare(&features, false);
  if (scale) verify_canvas_prepare(&scales, false);
  s->map->map(s->map->state, s->c, x, f, s->f_row, scale);
  judge(s, &features, "features", x->head, x->side);
  if (scale) judge(s, &scales, "scale", x->head, x->side);
}
