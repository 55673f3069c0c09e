/* plugin_bad.c - plug-ins that the registry must refuse; BAD names the fault. */
#include "attn_variant.h"

#include <string.h>

static attn_cost cost(const attn_context *c) { return (attn_cost){.mul_add = (double)c->problem->n_q}; }
static attn_status describe(attn_builder *b, const attn_context *c, attn_parts *out) {
  (void)b, (void)c, (void)out;
  return ATTN_OK;
}

static const attn_param table[] = {{.name = NULL}};
static attn_variant variant = {.abi = ATTN_ABI,
                               .size = sizeof(attn_variant),
                               .name = "bad",
                               .summary = "a plug-in with a fault",
                               .cite = "none",
                               .params = table,
                               .describe = describe,
                               .cost = cost};

/* A function of the library that the plug-in needs. */
unsigned BAD_SYMBOL(void);
extern unsigned (*const bad_needs)(void);
unsigned (*const bad_needs)(void) = BAD_SYMBOL;

const attn_variant *BAD_ENTRY(void);
const attn_variant *BAD_ENTRY(void) {
  if (strcmp(BAD, "abi") == 0) variant.abi = ATTN_ABI + 1;
  if (strcmp(BAD, "old") == 0) variant.abi = 7;
  if (strcmp(BAD, "size") == 0) variant.size -= 8;
  if (strcmp(BAD, "duplicate") == 0) variant.name = "tiled";
  if (strcmp(BAD, "name") == 0) variant.name = "Bad name";
  if (strcmp(BAD, "nameless") == 0) variant.name = NULL;
  if (strcmp(BAD, "incomplete") == 0) variant.describe = NULL;
  if (strcmp(BAD, "law") == 0) variant.seed = "draws";
  return strcmp(BAD, "null") == 0 ? NULL : &variant;
}
