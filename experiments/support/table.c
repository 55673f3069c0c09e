/* table.c - printing tables of texts. */
#include "experiments/support/table.h"

#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "experiments/support/escape.h"

void table_add(text_table *s, const char *format, ...) {
  if (s->failed) return;
  if (s->count == s->room) {
    const size_t room = s->room ? 2 * s->room : 256;
    char **cells = realloc(s->cells, room * sizeof *cells);
    if (!cells) {
      s->failed = true;
      return;
    }
    s->cells = cells;
    s->room = room;
  }
  va_list list;
  va_start(list, format);
  const int length = vsnprintf(NULL, 0, format, list);
  va_end(list);
  char *text = length < 0 ? NULL : malloc((size_t)length + 1);
  if (!text) {
    s->failed = true;
    return;
  }
  va_start(list, format);
  vsnprintf(text, (size_t)length + 1, format, list);
  va_end(list);
  char *harmless = escape_text(text);
  free(text);
  if (harmless)
    s->cells[s->count++] = harmless;
  else
    s->failed = true;
}

void table_free(text_table *s) {
  for (size_t i = 0; i < s->count; i++) free(s->cells[i]);
  free(s->cells);
  *s = (text_table){0};
}

/* Columns on a terminal: bytes that do not continue a UTF-8 character. In Markdown | stands as \|. */
static size_t width_of(const char *text, bool markdown) {
  size_t width = 0;
  for (; *text; text++) {
    if (((unsigned char)*text & 0xC0) != 0x80) width++;
    if (markdown && *text == '|') width++;
  }
  return width;
}

/* Spaces wait until something follows them, so that no line ends with one. */
typedef struct writer {
  FILE *file;
  size_t spaces;
} writer;

static void put_char(writer *w, char c) {
  if (c == ' ') {
    w->spaces++;
    return;
  }
  for (; w->spaces > 0 && c != '\n'; w->spaces--) putc(' ', w->file);
  w->spaces = 0;
  putc(c, w->file);
}

static void put(writer *w, const char *text) {
  while (*text) put_char(w, *text++);
}

static bool is_left(const text_table *s, size_t column) {
  return column < s->left || (s->last_left && column + 1 == s->columns);
}

static void put_cell(writer *w, const char *text, size_t width, bool left, bool markdown) {
  const size_t space = width - width_of(text, markdown);
  if (!left) w->spaces += space;
  for (; *text; text++) {
    if (markdown && *text == '|') put_char(w, '\\');
    put_char(w, *text);
  }
  if (left) w->spaces += space;
}

static void put_rule(writer *w, const text_table *s, const size_t *width) {
  for (size_t c = 0; c < s->columns; c++) {
    put(w, is_left(s, c) ? "|:" : "|-");
    for (size_t i = 0; i < width[c]; i++) put_char(w, '-');
    put_char(w, is_left(s, c) ? '-' : ':');
  }
  put(w, "|\n");
}

attn_status table_print(FILE *file, const text_table *s, table_format format) {
  const bool markdown = format == TABLE_MARKDOWN;
  writer w = {file, 0};
  size_t *width = s->failed ? NULL : calloc(s->columns, sizeof *width);
  if (!width) return attn_fail(ATTN_ENOMEM, "out of memory for a table");
  for (size_t i = 0; i < s->count; i++)
    if (width_of(s->cells[i], markdown) > width[i % s->columns])
      width[i % s->columns] = width_of(s->cells[i], markdown);
  for (size_t i = 0; i < s->count; i++) {
    const size_t c = i % s->columns;
    const bool last = c + 1 == s->columns;
    if (markdown) put(&w, c ? " " : "| ");
    put_cell(&w, s->cells[i], width[c], is_left(s, c), markdown);
    put(&w, markdown ? " |" : last ? "" : "  ");
    if (last) put_char(&w, '\n');
    if (i + 1 == s->columns && markdown) put_rule(&w, s, width);
  }
  free(width);
  return ATTN_OK;
}

const char *short_number(double x, char out[SHORT_TEXT]) {
  if (isnan(x) || isinf(x)) {
    snprintf(out, SHORT_TEXT, "%s", isnan(x) ? "-" : x > 0 ? "inf" : "-inf");
  } else if (x == 0 || (fabs(x) >= 0.000995 && fabs(x) < 9950)) {
    const int whole = x == 0 ? 0 : (int)floor(log10(fabs(x) * 1.005));
    const int decimals = x == 0 || whole >= 1 ? 0 : 1 - whole;
    snprintf(out, SHORT_TEXT, "%.*f", decimals, x);
  } else {
    snprintf(out, SHORT_TEXT, "%.1e", x);
    char *exponent = strchr(out, 'e'); /* 3.1e-07 becomes 3.1e-7 */
    snprintf(exponent, 8, "e%ld", strtol(exponent + 1, NULL, 10));
  }
  return out;
}

typedef struct unit {
  double scale, from; /* from: the least value, rounding included, that is printed in it */
  const char *name;
} unit;

/* Three digits in the last of the units, which ascend, that the value reaches. */
static const char *short_quantity(double value, const unit *units, size_t count, char *out) {
  size_t u = 0;
  if (!(value >= 0) || isinf(value)) {
    snprintf(out, SHORT_TEXT, "-");
    return out;
  }
  while (u + 1 < count && value >= units[u + 1].from) u++;
  const double x = value / units[u].scale;
  snprintf(out, SHORT_TEXT, "%.*f %s", x < 9.995 ? 2 : x < 99.95 ? 1 : 0, x, units[u].name);
  return out;
}

const char *short_time(double seconds, char out[SHORT_TEXT]) {
  /* Two minutes and more are read in minutes, two hours in hours. */
  static const unit units[] = {{1e-9, 0, "ns"},    {1e-6, 999.5e-9, "us"}, {1e-3, 999.5e-6, "ms"},
                               {1, 999.5e-3, "s"}, {60, 119.5, "min"},     {3600, 7170, "h"}};
  return short_quantity(seconds, units, sizeof units / sizeof *units, out);
}

const char *short_bytes(double bytes, char out[SHORT_TEXT]) {
  static const unit units[] = {{1, 0, "B"},
                               {0x1p10, 999.5, "KiB"},
                               {0x1p20, 999.5 * 0x1p10, "MiB"},
                               {0x1p30, 999.5 * 0x1p20, "GiB"},
                               {0x1p40, 999.5 * 0x1p30, "TiB"}};
  return short_quantity(bytes, units, sizeof units / sizeof *units, out);
}
