/* attnlab.c - a variant of libattn, by its spec, as a participant of the comparison. */
#include <stdio.h>
#include <stdlib.h>

#include "experiments/peers/products.h"

static const char *spec;
static attn_plan *plan;
static void *work;

static attn_status load(const peer_problem *problem, char description[PEER_TEXT]) {
  attn_problem p = data_qkv_problem(&problem->in);
  p.causal = problem->causal;
  attn_status status = attn_plan_create(&plan, &p, spec, &(attn_options){.threads = problem->threads});
  if (status) return status;
  size_t bytes = attn_plan_work_size(plan);
  work = malloc(bytes + 1);
  if (!work) return attn_fail(ATTN_ENOMEM, "no memory for %zu bytes of work", bytes);
  snprintf(description, PEER_TEXT, "%s, %s", attn_plan_spec(plan), attn_plan_isa(plan));
  return ATTN_OK;
}

static attn_status run(const peer_problem *p) {
  return attn_plan_execute(plan, p->in.q, p->in.k, p->in.v, NULL, p->o, work);
}

static void unload(void) {
  attn_plan_destroy(plan);
  free(work);
  plan = NULL, work = NULL;
}

int main(int count, char **arguments) {
  if (count != 2) {
    fputs("Usage: peer_attnlab SPEC\n", stderr);
    return 2;
  }
  spec = arguments[1];
  if (attn_variant_register(&products)) {
    fprintf(stderr, "peer_attnlab: %s\n", attn_last_error());
    return 70;
  }
  return peer_serve(&(peer_methods){load, run, unload});
}
