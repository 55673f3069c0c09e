/* made.c - the variant that executes an expression. */
#include "core/expression/expression.h"

#include <stdlib.h>
#include <string.h>

typedef struct made {
  attn_variant variant; /* first: what is given away */
  char *name;
} made;

static const attn_param no_params[] = {{.name = NULL}};
static const attn_param seed_params[] = {
    {"seed", ATTN_INT, 0, 0, 1e15, "0", NULL, "of the draws of all terms"}, {.name = NULL}};

static const attn_spec *first_drawn(const attn_expression *e) {
  if (e->kind == ATTN_EXPRESSION_ATOM) return e->atom->variant->seed ? e->atom : NULL;
  const attn_spec *found = NULL;
  for (int64_t t = 0; t < e->count && !found; t++) found = first_drawn(e->terms[t]);
  return found;
}

int64_t expression_seed(const attn_expression *e) {
  const attn_spec *spec = first_drawn(e);
  return spec ? (int64_t)attn_spec_number(spec, spec->variant->seed) : 0;
}

static bool in_name(void *context, const attn_spec *atom, const attn_param *p, bool preset) {
  const char *seed = atom->variant->seed;
  (void)context;
  return !preset && !(seed && strcmp(seed, p->name) == 0);
}

attn_status expression_make(const attn_expression *e, attn_variant **out) {
  static const char *const summaries[] = {
      [ATTN_EXPRESSION_ATOM] = "another name",
      [ATTN_EXPRESSION_JOIN] = "one softmax over the keys of its terms, each of which takes of what is left",
      [ATTN_EXPRESSION_SUM] = "a weighted sum of the outputs of its terms",
      [ATTN_EXPRESSION_DYADIC] = "causal attention by halves, exact on the diagonal",
      [ATTN_EXPRESSION_STORED] = "attention to keys and values as a store holds them"};
  const bool draws = first_drawn(e);
  made *m = calloc(1, sizeof *m);
  if (!m) return attn_fail(ATTN_ENOMEM, "no memory for an expression");
  attn_status status = expression_print(e, in_name, NULL, &m->name);
  if (status) {
    free(m);
    return status;
  }
  m->variant = (attn_variant){.abi = ATTN_ABI,
                              .size = sizeof(attn_variant),
                              .name = m->name,
                              .summary = summaries[e->kind],
                              .cite = "an expression; its terms have sources",
                              .caps = expression_caps(e),
                              .params = draws ? seed_params : no_params,
                              .params_size = draws ? sizeof(int64_t) : 0,
                              .seed = draws ? "seed" : NULL,
                              .applicable = attn_expression_applicable,
                              .describe = attn_expression_describe,
                              .cost = attn_expression_cost};
  *out = &m->variant;
  return ATTN_OK;
}

void expression_unmake(const attn_variant *v) {
  if (!v) return;
  made *m = (made *)(uintptr_t)v;
  free(m->name);
  free(m);
}
