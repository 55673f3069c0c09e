/* plan.h - what the files of plans share. */
#ifndef CORE_PLAN_PLAN_H
#define CORE_PLAN_PLAN_H

#include "core/internal.h"

struct attn_plan {
  attn_arena arena; /* of an inner plan: empty, it is in the outer plan's */
  const attn_spec *spec;
  attn_problem problem;
  attn_context context;
  attn_parts parts;
  void *state;
  size_t work_size;
  bool gradients;
};

enum { PLAN_ALIGNMENT = 64 };
static inline void *plan_align(void *work) {
  return work ? (void *)(((uintptr_t)work + PLAN_ALIGNMENT - 1) & ~(uintptr_t)(PLAN_ALIGNMENT - 1)) : NULL;
}

/* The parts' work memory, and room to align the caller's pointer. */
attn_status plan_work_size(const attn_context *, const attn_parts *, size_t *out);
/* The arguments of an execution that needs work_size bytes. */
attn_status plan_check_call(const attn_plan *, const attn_call *, size_t work_size);
attn_call plan_call(const attn_context *, const attn_tensors *);
/* The call of a plan within another's, with the tensors of that, except outputs and work memory. */
attn_call plan_inner_call(const attn_call *outer, const attn_plan *, void *o, double *lse, void *work);

#endif
