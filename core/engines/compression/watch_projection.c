/* watch_projection.c - a projection under attn_plan_verify. It fills separate slots and scratch, with paint
 * around them and between the rows, because the engine's own lie between the slots of other threads. */
#include "core/engines/compression/compression.h"
#include "core/plan/verify.h"

#include <stdlib.h>
#include <string.h>

enum { MARGIN = 1024, GAP = 3 }; /* bytes; elements between rows */

/* Memory with a margin on both sides. */
typedef struct room {
  char *at; /* aligned as the work memory is */
  size_t bytes;
  void *block;
} room;

static bool room_make(room *r, size_t bytes) {
  *r = (room){.bytes = bytes};
  r->block = aligned_alloc(64, (bytes + 2 * MARGIN + 63) / 64 * 64);
  if (!r->block) return false;
  r->at = (char *)r->block + MARGIN;
  verify_paint(r->block, bytes + 2 * MARGIN);
  return true;
}

static bool room_intact(const room *r) {
  return verify_painted(r->block, MARGIN) && verify_painted(r->at + r->bytes, MARGIN);
}

static void copy_slots(const attn_slab *from, const attn_slab *to, int64_t slots, attn_dtype t) {
  for (int64_t i = 0; i < slots; i++)
    memcpy(attn_at(to->y, i * to->y_row, t), attn_at(from->y, i * from->y_row, t),
           (size_t)from->d * attn_dtype_size(t));
}

static void judge(const attn_call *call, const attn_slab *slab, const verify_canvas *slots, const room *y,
                  const room *scratch, int64_t used) {
  const char *name = call->context->variant->name, *of = slab->side == ATTN_VALUE ? "values" : "keys";
  int64_t row, column;
  verify_canvas written = *slots;
  if (used >= 0 && used < written.rows) written.rows = used; /* slots that are not in use need no numbers */
  const char *outside = !room_intact(y) || !verify_canvas_intact(slots) ? "slots"
                        : !room_intact(scratch)                         ? "scratch"
                                                                        : NULL;
  if (outside)
    attn_guards_fault(call->guards, ATTN_EFOREIGN,
                      "variant %s: project wrote outside its %s (%s of kv head %lld, rows %lld .. %lld)",
                      name, outside, of, (long long)slab->head, (long long)slab->first,
                      (long long)(slab->first + slab->rows - 1));
  else if (verify_canvas_unwritten(&written, &row, &column))
    attn_guards_fault(call->guards, ATTN_EFOREIGN,
                      "variant %s: project left slot %lld unwritten at column %lld (%s of kv head %lld, rows "
                      "%lld .. %lld)",
                      name, (long long)row, (long long)column, of, (long long)slab->head,
                      (long long)slab->first, (long long)(slab->first + slab->rows - 1));
}

int64_t compression_project_watched(const attn_projection *e, const attn_call *call, const attn_slab *slab) {
  attn_dtype t = call->context->problem->dtype;
  attn_slab own = *slab;
  own.y_row = slab->d + GAP;
  room y = {0}, scratch = {0};
  int64_t used = 0;
  if (!room_make(&y, (size_t)(e->slots * own.y_row) * attn_dtype_size(t)) ||
      !room_make(&scratch, e->scratch)) {
    attn_guards_fault(call->guards, ATTN_ENOMEM, "variant %s: no memory to watch project",
                      call->context->variant->name);
    goto out;
  }
  own.y = y.at;
  const verify_canvas slots = {y.at, e->slots, slab->d, own.y_row, e->slots, t};
  if (slab->accumulate) copy_slots(slab, &own, e->slots, t);
  verify_canvas_prepare(&slots, slab->accumulate);
  verify_poison(scratch.at, e->scratch);
  used = e->project(e->state, call->context, &own, scratch.at);
  judge(call, slab, &slots, &y, &scratch, used);
  copy_slots(&own, slab, e->slots, t);
out:
  free(y.block);
  free(scratch.block);
  return used;
}
