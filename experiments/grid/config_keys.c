/* config_keys.c - finding, naming and explaining the keys of a configuration (config_keys.h). */
#include "experiments/grid/config_keys.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "attn_tools.h"

const config_key *config_key_find(const config_key *keys, size_t count, const char *section,
                                  const char *name) {
  for (size_t k = 0; k < count; k++)
    if (strcmp(keys[k].section, section) == 0 && strcmp(keys[k].name, name) == 0) return &keys[k];
  return NULL;
}

static bool axis_of(axis_id a, const char *section) {
  return axes[a].section && strcmp(axes[a].section, section) == 0;
}

attn_status config_key_unknown(const tree_node *key, const char *section, const config_key *keys,
                               size_t count) {
  char *known = NULL;
  size_t size;
  FILE *out = open_memstream(&known, &size);
  if (!out) return attn_fail(ATTN_ENOMEM, "no memory for the list of keys");
  const char *separator = "";
  attn_nearest near = {.name = key->text};
  for (size_t i = 0; i < AXES + count; i++) {
    const config_key *k = i < AXES ? NULL : &keys[i - AXES];
    if (k ? strcmp(k->section, section) != 0 : !axis_of((axis_id)i, section)) continue;
    const char *name = k ? k->name : axes[i].name;
    fprintf(out, "%s%s", separator, name);
    attn_nearest_try(&near, name);
    separator = ", ";
  }
  if (!attn_stream_text(out, &known)) return attn_fail(ATTN_ENOMEM, "no memory for the list of keys");
  const attn_status status = tree_fail(key, "unknown key '%s'%s%s%s, known: %s", key->text,
                                       attn_nearest_hint(&near), *section ? " in " : "", section, known);
  free(known);
  return status;
}

enum { NAME = 14, PRESET = 12, TEXT = 70 };

/* "  name          preset      text", the text wrapped at blanks. */
static void print_line(FILE *out, const char *section, const char *name, const char *preset,
                       const char *help) {
  const int indent = *section ? 2 : 0;
  fprintf(out, "%*s%-*s %-*s", indent, "", NAME - indent, name, PRESET, preset);
  int column = 0;
  for (size_t length; *help; help += length + (help[length] == ' ')) {
    length = strcspn(help, " ");
    if (column + (int)length >= TEXT) {
      fprintf(out, "\n%*s", NAME + PRESET + 1, "");
      column = 0;
    }
    column += fprintf(out, " %.*s", (int)length, help);
  }
  fputc('\n', out);
}

static void print_axis(FILE *out, axis_id a) {
  const struct axis *x = &axes[a];
  char preset[AXIS_TEXT] = "(needed)", help[200];
  if (x->same_as < AXES)
    snprintf(preset, sizeof preset, "as %s", axes[x->same_as].name);
  else if (x->preset >= x->min)
    axis_print(a, x->preset, preset);
  snprintf(help, sizeof help, "%s", x->help);
  for (int i = 0; x->choices && x->choices[i]; i++) {
    const size_t used = strlen(help);
    snprintf(help + used, sizeof help - used, "%s%s", i ? " | " : ": ", x->choices[i]);
  }
  if (x->choices && axis_numbers(a)) strncat(help, " | N", sizeof help - strlen(help) - 1);
  print_line(out, x->section, x->name, preset, help);
}

static void print_axes(FILE *out, const char *section) {
  for (axis_id a = 0; a < AXES; a++)
    if (axis_of(a, section)) print_axis(out, a);
}

static void print_key(FILE *out, const config_key *k, const void *defaults) {
  const void *at = (const char *)defaults + k->offset;
  char preset[AXIS_TEXT];
  if (k->preset)
    snprintf(preset, sizeof preset, "%s", *k->preset ? k->preset : "(needed)");
  else if (k->type == KEY_REAL)
    snprintf(preset, sizeof preset, "%g", *(const double *)at);
  else if (k->type == KEY_YES_NO)
    snprintf(preset, sizeof preset, "%s", yes_no_names[*(const bool *)at]);
  else if (*(const int64_t *)at >= 1 << 20)
    snprintf(preset, sizeof preset, "%" PRId64 "Mi", *(const int64_t *)at >> 20);
  else
    snprintf(preset, sizeof preset, "%" PRId64, *(const int64_t *)at);
  print_line(out, k->section, k->name, preset, k->help);
}

void config_keys_print(FILE *out, const char *section, const config_key *keys, size_t count,
                       const void *defaults) {
  if (*section) print_axes(out, section);
  for (size_t k = 0; k < count; k++) {
    if (strcmp(keys[k].section, section) != 0) continue;
    print_key(out, &keys[k], defaults);
    if (keys[k].type == KEY_MAP) config_keys_print(out, keys[k].name, keys, count, defaults);
  }
  if (!*section) print_axes(out, section);
}
