/* spec.c - specs: a variant with its parameters, or an expression of such; names of expressions. */
#define _POSIX_C_SOURCE 200809L
#include "attn_tools.h"
#include "core/decimal.h"
#include "core/expression/expression.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LEVELS = 4 };

typedef struct kept_spec {
  attn_spec spec; /* first: what is given away */
  char *named;    /* the parameters of a variant as they were written */
  atomic_int owners;
} kept_spec;

static attn_status no_memory(const attn_variant *v) {
  return attn_fail(ATTN_ENOMEM, "variant %s: out of memory for its spec", v->name);
}

/* -- names for expressions -- */

/* The value of the parameter {name}, whose text begins here; the place behind it, or NULL. */
static const char *write_value(FILE *to, const attn_spec *spec, const char *name) {
  for (const attn_param *p = spec->variant->params; p->name; p++) {
    const size_t length = strlen(p->name);
    char value[320];
    if (strncmp(name, p->name, length) != 0 || name[length] != '}') continue;
    if (p->type == ATTN_TEXT) {
      fputs(*(char *const *)((const char *)spec->params + p->offset), to);
    } else {
      attn_param_print(p, spec->params, value, sizeof value);
      fputs(value, to);
    }
    return name + length + 1;
  }
  return NULL;
}

/* The template with the values of the parameters. */
static attn_status fill_template(const attn_spec *spec, char **out) {
  const attn_variant *v = spec->variant;
  char *text = NULL;
  size_t size;
  attn_status status = ATTN_OK;
  FILE *stream = open_memstream(&text, &size);
  if (!stream) return no_memory(v);
  for (const char *at = v->expression; *at && !status;) {
    if (*at != '{') {
      fputc(*at++, stream);
      continue;
    }
    const char *behind = write_value(stream, spec, at + 1);
    if (!behind)
      status = attn_fail(ATTN_EINVAL, "variant %s: its expression has %.*s}, which is not a parameter",
                         v->name, (int)strcspn(at, "}"), at);
    else
      at = behind;
  }
  if (!attn_stream_text(stream, &text) && !status) status = no_memory(v);
  if (status)
    free(text);
  else
    *out = text;
  return status;
}

/* As a variant's file names them. */
static void name_caps(uint32_t caps, char *out, size_t size) {
  static const char *const names[] = {"EXACT",  "CAUSAL",      "CROSS",     "PADDING", "STOCHASTIC",
                                      "CONVEX", "PERMUTATION", "SHIFT",     "LSE",     "SCORE",
                                      "MASK",   "DATA",        "POSITIONS", "HALF"};
  size_t used = 0;
  *out = '\0';
  for (size_t bit = 0; bit < sizeof names / sizeof *names; bit++)
    if (caps >> bit & 1)
      used += (size_t)snprintf(out + used, size - used, "%sATTN_CAP_%s", used ? ", " : "", names[bit]);
  caps >>= sizeof names / sizeof *names;
  if (caps) snprintf(out + used, size - used, "%sbits that mean nothing", used ? ", " : "");
}

static attn_status check_preset(const attn_variant *v, const attn_expression *e) {
  /* What it is made of is asked of its expression. */
  const uint32_t made_of = ATTN_CAP_KEYS | ATTN_CAP_FEATURES | ATTN_CAP_STORE,
                 more = v->caps & ~expression_caps(e) & ~made_of;
  char names[320];
  attn_status status = expression_check(e);
  if (status || !more) return status;
  name_caps(more, names, sizeof names);
  return attn_fail(ATTN_EINVAL, "it states %s, which its expression does not keep", names);
}

static attn_status expand(attn_spec *spec, int level) {
  const attn_variant *v = spec->variant;
  char *text = NULL, why[400];
  attn_expression *e = NULL;
  attn_status status = fill_template(spec, &text);
  if (status) return status;
  status = level < LEVELS ? expression_parse(text, level + 1, &e)
                          : attn_fail(ATTN_EINVAL, "too many names for expressions within each other");
  if (!status) status = check_preset(v, e);
  if (status) {
    snprintf(why, sizeof why, "%s", attn_last_error());
    attn_fail(status, "variant %s: %s, in '%s'", v->name, why, text);
    expression_free(e);
  } else {
    spec->expression = e;
  }
  free(text);
  return status;
}

/* -- specs -- */

static attn_spec *make_spec(const attn_variant *v) {
  kept_spec *kept = calloc(1, sizeof *kept);
  if (!kept) {
    no_memory(v);
    return NULL;
  }
  atomic_init(&kept->owners, 1);
  kept->spec.variant = v;
  return &kept->spec;
}

attn_spec *attn_spec_share(const attn_spec *spec) {
  attn_spec *shared = (attn_spec *)(uintptr_t)spec;
  if (spec) atomic_fetch_add(&((kept_spec *)shared)->owners, 1);
  return shared;
}

const char *expression_named(const attn_spec *atom) { return ((const kept_spec *)atom)->named; }

static attn_status set_text(attn_spec *spec, const char *params) {
  const char *name = spec->variant->name;
  const size_t size = strlen(name) + strlen(params) + 2;
  if (!(spec->text = malloc(size))) return no_memory(spec->variant);
  snprintf(spec->text, size, "%s%s%s", name, *params ? ":" : "", params);
  return ATTN_OK;
}

attn_status expression_parse_atom(const char *text, int level, attn_spec **out) {
  const size_t length = strcspn(text, ":");
  const attn_variant *v;
  if (!attn_variant_find_part(text, length, &v)) return attn_variant_not_found(text, length);
  const char *params = text[length] ? text + length + 1 : "";
  char owner[128], *printed = NULL;
  snprintf(owner, sizeof owner, "variant %s", v->name);
  attn_spec *spec = make_spec(v);
  if (!spec) return ATTN_ENOMEM;
  attn_status status = attn_params_parse(owner, v->params, v->params_size, params, &spec->params, &printed);
  if (!status && !(((kept_spec *)spec)->named = strdup(params))) status = no_memory(v);
  if (!status) status = set_text(spec, printed);
  if (!status && v->expression) status = expand(spec, level);
  free(printed);
  if (status)
    attn_spec_destroy(spec);
  else
    *out = spec;
  return status;
}

attn_status expression_spec(attn_expression *e, attn_spec **out) {
  attn_variant *made = NULL;
  attn_spec *spec = NULL;
  char seed[40] = "", *printed = NULL;
  attn_status status = expression_check(e);
  if (!status) status = expression_make(e, &made);
  if (!status && !(spec = make_spec(made))) status = ATTN_ENOMEM;
  if (status) {
    expression_unmake(made);
    expression_free(e);
    return status;
  }
  spec->expression = e;
  if (!(spec->text = strdup(e->text))) status = no_memory(made);
  if (made->seed) snprintf(seed, sizeof seed, "%s=%lld", made->seed, (long long)expression_seed(e));
  if (!status)
    status = attn_params_parse(made->name, made->params, made->params_size, seed, &spec->params, &printed);
  free(printed);
  if (status)
    attn_spec_destroy(spec);
  else
    *out = spec;
  return status;
}

static attn_status parse(const char *text, attn_spec **out) {
  if (!expression_is(text)) return expression_parse_atom(text, 0, out);
  attn_expression *e = NULL;
  attn_status status = expression_parse(text, 0, &e);
  if (status) return status;
  if (e->kind != ATTN_EXPRESSION_ATOM) return expression_spec(e, out);
  *out = e->atom;
  e->atom = NULL;
  expression_free(e);
  return ATTN_OK;
}

attn_status attn_spec_parse(attn_spec **out, const char *text) {
  if (!out) return attn_null("spec", "spec");
  if (!text) return attn_null("spec", "text");
  const attn_locale outer = attn_locale_enter();
  const attn_status status = parse(text, out);
  attn_locale_leave(outer);
  return status;
}

void attn_spec_destroy(attn_spec *spec) {
  if (!spec || atomic_fetch_sub(&((kept_spec *)spec)->owners, 1) > 1) return;
  attn_params_free(spec->variant->params, spec->params);
  if (spec->expression && !spec->variant->expression) expression_unmake(spec->variant);
  expression_free((attn_expression *)(uintptr_t)spec->expression);
  free(spec->text);
  free(((kept_spec *)spec)->named);
  free(spec);
}
