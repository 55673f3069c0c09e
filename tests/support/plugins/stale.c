/* stale.c - a plug-in variant that is right when it is verified, and not later, as its parameter says. */
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/plugins/exact_plugin.h"

#define FAULTS(FAULT)                                                                 \
  FAULT(none),             /* right */                                                \
      FAULT(copy),         /* a plan's first output, ever after */                    \
      FAULT(copy_process), /* the process's first output of this size */              \
      FAULT(late),         /* the last output, after some executions */               \
      FAULT(odd),          /* every other execution is wrong */                       \
      FAULT(addresses),    /* an earlier output where all addresses are alike */      \
      FAULT(corner),       /* ... where the first elements of Q, K and V are alike */ \
      FAULT(keys),         /* a plan's first keys */                                  \
      FAULT(keys_process), /* the keys that were first at their address */            \
      FAULT(idle)          /* writes once */
CHOOSE_FAULT("mode", "what is kept");

static attn_status work_size(const attn_context *c, const attn_parts *parts, size_t *bytes) {
  (void)parts;
  *bytes = (size_t)c->problem->n_q * sizeof(float);
  return ATTN_OK;
}

typedef struct memory {
  const void *address[4];
  float first[3];
  void *kept;
  int64_t executions;
  size_t bytes; /* of what is kept */
} memory;

static attn_status plan(attn_builder *b, const attn_parts *parts, void **out) {
  (void)parts;
  memory *own = calloc(1, sizeof *own);
  if (!own) return ATTN_ENOMEM;
  *out = own;
  return attn_builder_own(b, own, free);
}

static void forget(memory *m) {
  free(m->kept);
  m->kept = NULL;
}

/* Keeps a copy of the first memory it is given. */
static const void *keep(memory *m, const void *at, size_t bytes) {
  if (!m->kept && (m->kept = malloc(bytes))) {
    memcpy(m->kept, at, bytes);
    m->bytes = bytes;
  }
  return m->kept;
}

static bool is_known(memory *m, const attn_call *c, bool by_address) {
  const void *address[4] = {c->q, c->k, c->v, c->o};
  const float first[3] = {*(const float *)c->q, *(const float *)c->k, *(const float *)c->v};
  const bool known = m->executions > 0 && (by_address ? memcmp(address, m->address, sizeof address) == 0
                                                      : memcmp(first, m->first, sizeof first) == 0);
  memcpy(m->address, address, sizeof address);
  memcpy(m->first, first, sizeof first);
  if (!known) forget(m);
  return known;
}

static attn_status answer(const void *state, const attn_call *call) {
  static memory shared[F_idle + 1];
  const fault mode = fault_of(call->context);
  const attn_problem *p = call->context->problem;
  const size_t out = (size_t)(p->batch * p->heads * p->n_q * p->d_v) * sizeof(float),
               in = (size_t)((p->batch - 1) * p->k.batch + (p->kv_heads - 1) * p->k.head +
                             (p->n_kv - 1) * p->k.row + p->d_qk) *
                    sizeof(float);
  const bool own = mode == F_copy || mode == F_late || mode == F_odd || mode == F_keys || mode == F_idle;
  memory *m = own ? (memory *)(uintptr_t)state : &shared[mode];
  bool stale = (mode == F_copy || mode == F_copy_process || mode == F_idle) && m->executions > 0;
  if (mode == F_late) stale = m->executions > 3;
  if (mode == F_addresses || mode == F_corner) stale = is_known(m, call, mode == F_addresses);
  const int64_t execution = m->executions++;
  if (stale && mode == F_idle) return ATTN_OK;
  if (stale && m->kept && m->bytes == out) {
    memcpy(call->o, m->kept, out);
    return ATTN_OK;
  }
  if (mode == F_keys || mode == F_keys_process) {
    if (m->executions > 1 && m->address[1] != call->k) forget(m);
    m->address[1] = call->k;
    exact_output(call, keep(m, call->k, in), 1);
    return ATTN_OK;
  }
  exact_output(call, call->k, 1);
  if (mode == F_odd && execution % 2) *(float *)call->o += 1;
  if (mode == F_late) forget(m);
  keep(m, call->o, out);
  return ATTN_OK;
}

/* A check executes from several threads at once: what is kept must be stale, never corrupt. */
static attn_status execute(const void *state, const attn_call *call) {
  static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
  pthread_mutex_lock(&lock);
  const attn_status st = answer(state, call);
  pthread_mutex_unlock(&lock);
  return st;
}

static DESCRIBE_METHOD(describe, exact_rounding(c->problem), .work_size = work_size, .plan = plan,
                       .execute = execute);

ATTN_VARIANT(stale, .summary = "right once", .cite = "none",
             .caps = ATTN_CAP_EXACT | ATTN_CAP_CAUSAL | ATTN_CAP_STOCHASTIC | ATTN_CAP_CONVEX,
             .params = table, .params_size = sizeof(params), .describe = describe, .cost = exact_cost)
