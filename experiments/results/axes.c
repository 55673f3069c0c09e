/* axes.c - functions over the table of axes. */
#include "experiments/results/axes.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "attn_tools.h"
#include "experiments/results/row.h"

const char *const yes_no_names[] = {"no", "yes", NULL};
const char *const dtype_names[] = {"f32", "f64", "f16", "bf16", NULL};
const char *const cache_state_names[] = {"warm", "cold", NULL};
const char *const rows_names[] = {"auto", "all", NULL};

const struct axis axes[AXES] = {
#define AXIS(name, section, column, type, choices, min, max, preset, same_as, key, shown, title, menu, \
             about)                                                                                    \
  {#name, section, (type) == COLUMN_BOOL, choices, min, max, preset, same_as, key, shown, title, menu, about},
#include "experiments/results/axes.def"
};

const struct text_axis text_axes[TEXT_AXES] = {
#define TEXT_AXIS(name, section, about) {#name, section},
#include "experiments/results/axes.def"
};

bool text_axis_in_grid(text_axis_id t) {
  return text_axes[t].section && strcmp(text_axes[t].section, "grid") == 0;
}

text_axis_id text_axis_find(const char *name) {
  text_axis_id t = 0;
  while (t < TEXT_AXES && !(text_axis_in_grid(t) && strcmp(text_axes[t].name, name) == 0)) t++;
  return t;
}

static int64_t axis_names(axis_id a) {
  int64_t count = 0;
  while (axes[a].choices && axes[a].choices[count]) count++;
  return count;
}

bool axis_numbers(axis_id a) { return axes[a].max >= axis_names(a); }

axis_id axis_find(const char *section, const char *name) {
  axis_id a = 0;
  while (a < AXES && (!axes[a].section || strcmp(axes[a].name, name) != 0 ||
                      (section && strcmp(axes[a].section, section) != 0)))
    a++;
  return a;
}

const char *axis_print(axis_id a, int64_t value, char text[AXIS_TEXT]) {
  if (value < axis_names(a))
    snprintf(text, AXIS_TEXT, "%s", axes[a].choices[value]);
  else
    snprintf(text, AXIS_TEXT, "%" PRId64, value);
  return text;
}

void axis_write_key(FILE *out, axis_id a, int64_t value) {
  char text[AXIS_TEXT];
  const char *key = axes[a].key;
  if (key && *key)
    fprintf(out, "%s%s", key, axis_print(a, value, text));
  else if (!key && value != axes[a].preset)
    fprintf(out, " %s=%s", axes[a].name, axis_print(a, value, text));
}

bool axis_read_key(axis_id a, const char *key, int64_t *value) {
  char name[AXIS_TEXT + 2], text[AXIS_TEXT], *end;
  snprintf(name, sizeof name, " %s=", axes[a].name);
  const char *at = strstr(key, name);
  if (!at) return false;
  at += strlen(name);
  snprintf(text, sizeof text, "%.*s", (int)strcspn(at, " "), at);
  for (int64_t i = 0; axes[a].choices && axes[a].choices[i]; i++)
    if (strcmp(axes[a].choices[i], text) == 0) {
      *value = i;
      return true;
    }
  const int64_t number = strtoll(text, &end, 10);
  if (!axis_numbers(a) || end == text || *end || number < 0 || number > axes[a].max) return false;
  *value = number;
  return true;
}

bool axis_default(axis_id a, const int64_t values[AXES]) {
  const axis_id same = axes[a].same_as;
  return values[a] == (same < AXES ? values[same] : axes[a].preset);
}

static void write_title(FILE *out, axis_id a, int64_t value) {
  char text[AXIS_TEXT];
  const char *title = axes[a].title;
  if (axes[a].yes_no && !value) fputs("not ", out);
  for (const char *c = title; *c; c++) {
    if (*c == '@')
      fputs(axis_print(a, value, text), out);
    else if (c[0] != 's' || c[1] || axes[a].choices || value != 1)
      putc(*c, out);
  }
}

char *axes_title(const int64_t values[AXES], bool rest) {
  char *text = NULL;
  size_t size;
  FILE *out = open_memstream(&text, &size);
  if (!out) return NULL;
  const char *separator = "";
  for (axis_id a = 0; a < AXES; a++) {
    if (axes[a].shown == AXIS_NEVER || (rest && axes[a].menu) ||
        (axes[a].shown == AXIS_UNLESS_DEFAULT && axis_default(a, values)))
      continue;
    fputs(separator, out);
    write_title(out, a, values[a]);
    separator = ", ";
  }
  attn_stream_text(out, &text);
  return text;
}
