/* plugin_bad.c - plug-ins that the registry must refuse; BAD names the fault. */
#include "attn_variant.h"

#include <string.h>

static size_t work_size(const attn_context *c) { return (size_t)c->problem->n_q; }
static attn_cost cost(const attn_context *c) { return (attn_cost){.mul_add = (double)c->problem->n_q}; }
static attn_status plan(attn_builder *b, void **state) {
  (void)b;
  *state = NULL;
  return ATTN_OK;
}
static attn_status execute(const void *state, const attn_call *call) {
  (void)state, (void)call;
  return ATTN_OK;
}

static const attn_param table[] = {{.name = NULL}};
static attn_variant variant = {.abi = ATTN_ABI,
                               .size = sizeof(attn_variant),
                               .name = "bad",
                               .summary = "a plug-in with a fault",
                               .cite = "none",
                               .params = table,
                               .work_size = work_size,
                               .cost = cost,
                               .plan = plan,
                               .execute = execute};

const attn_variant *BAD_ENTRY(void);
const attn_variant *BAD_ENTRY(void) {
  if (strcmp(BAD, "abi") == 0) variant.abi = ATTN_ABI + 1;
  if (strcmp(BAD, "size") == 0) variant.size -= 8;
  if (strcmp(BAD, "duplicate") == 0) variant.name = "tiled";
  if (strcmp(BAD, "name") == 0) variant.name = "Bad name";
  if (strcmp(BAD, "nameless") == 0) variant.name = NULL;
  if (strcmp(BAD, "incomplete") == 0) variant.execute = NULL;
  if (strcmp(BAD, "law") == 0) variant.seed = "draws";
  return strcmp(BAD, "null") == 0 ? NULL : &variant;
}
