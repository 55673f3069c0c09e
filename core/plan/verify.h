/* verify.h - what attn_plan_verify watches: redzones, poison, and the first fault of any thread. */
#ifndef ATTN_CORE_VERIFY_H
#define ATTN_CORE_VERIFY_H

#include "core/internal.h"

/* Around the work memory. */
enum { VERIFY_MARGIN = 4096 };

/* Executes the context's variant by its method in call->work, of `bytes` and a margin on both sides. */
attn_status attn_verify_execute(const attn_method *, const void *state, const attn_call *, size_t bytes);

/* Records a failure, unless there is one already; from any thread. */
void attn_guards_fault(attn_guards *, attn_status, const char *format, ...);

/* rows x columns elements, `row` apart, that a variant's function is to fill, in a room of room_rows whole
 * rows. */
typedef struct verify_canvas {
  void *at;
  int64_t rows, columns, row, room_rows;
  attn_dtype t;
} verify_canvas;

/* Poisons the elements unless they are to be added to, and paints what lies between and behind. */
void verify_canvas_prepare(const verify_canvas *, bool keep);
/* What was painted is as it was. */
bool verify_canvas_intact(const verify_canvas *);
/* The first element that is still poisoned; false: there is none. */
bool verify_canvas_unwritten(const verify_canvas *, int64_t *row, int64_t *column);

/* The same of plain memory. */
void verify_paint(void *, size_t bytes);
bool verify_painted(const void *, size_t bytes);
void verify_poison(void *, size_t bytes);

#endif
