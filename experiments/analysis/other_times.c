/* other_times.c - reading times of others, and finding the runs that they are of. */
#include "experiments/analysis/other_times.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "attn_tools.h"
#include "data/support/file.h"
#include "data/support/json_text.h"
#include "experiments/grid/value_texts.h"
#include "experiments/support/label.h"
#include "experiments/support/names.h"

enum { SETTING, DEVICE, SOURCE, MILLISECONDS, OWN, COLUMNS = OWN + AXES };
static const char *column_name(int c) {
  static const char *const own[] = {"setting", "device", "source", "milliseconds"};
  return c < OWN ? own[c] : axes[c - OWN].name;
}

/* number: of the line. columns: those that the first line names. */
typedef struct times_file {
  const char *path;
  size_t number;
  int columns[COLUMNS], count;
  other_times times;
} times_file;

/* Cuts a line into its fields, in place; -1: too many, or a quote that is not closed before a comma. */
static int cut(char *at, char *fields[COLUMNS]) {
  for (int count = 0; count < COLUMNS; at++) {
    char *end = fields[count++] = at;
    if (*at == '"') {
      for (at++; *at && (*at != '"' || at[1] == '"'); *end++ = *at++) at += *at == '"';
      if (!*at || (*++at && *at != ',')) return -1;
    } else {
      end = at += strcspn(at, ",\"");
      if (*at == '"') return -1;
    }
    const bool last = !*at;
    *end = '\0';
    if (last) return count;
  }
  return -1;
}

/* 0 is a seed; of others it is no value of a row, but stands for one in a configuration. */
static int64_t least_of(const struct axis *x) { return x->max == axes[AXIS_seed].max ? 0 : 1; }

static bool read_field(int column, const char *text, other_time *out) {
  if (!*text) return true;
  if (column == MILLISECONDS) return value_real(text, &out->seconds) && (out->seconds *= 1e-3) > 0;
  if (column < OWN) return (out->texts[column] = names_keep(text));
  const struct axis *x = &axes[column - OWN];
  int64_t *value = &out->axis[column - OWN];
  if (x->choices && (*value = attn_choice_find(x->choices, text)) >= 0) return true;
  return axis_numbers((axis_id)(column - OWN)) && attn_int_parse(text, value) && *value >= least_of(x);
}

/* line NULL: it has a NUL byte. */
static attn_status read_line(times_file *file, char *line) {
  char *fields[COLUMNS];
  const int count = line ? cut(line, fields) : -1;
  other_time one = {.number = file->number, .texts = {[SOURCE] = ""}}, *items = file->times.items;
  memset(one.axis, -1, sizeof one.axis);
  if (count < 0 || (file->number > 1 && count != file->count))
    return attn_fail(ATTN_EINVAL,
                     line ? "%s:%zu: expected a field for each column, quoted if it has a comma"
                          : "%s:%zu: a NUL byte",
                     file->path, file->number);
  file->count = count;
  for (int i = 0, c; i < count; i++) {
    for (c = file->number > 1 ? file->columns[i] : 0;
         c < COLUMNS && file->number == 1 && strcmp(column_name(c), fields[i]) != 0;)
      c++;
    if (c == COLUMNS)
      return attn_fail(ATTN_EINVAL, "%s:%zu: unknown column '%s'", file->path, file->number, fields[i]);
    for (int before = 0; file->number == 1 && before < i; before++)
      if (file->columns[before] == c)
        return attn_fail(ATTN_EINVAL, "%s:1: column '%s' twice", file->path, fields[i]);
    if (file->number > 1 && !read_field(c, fields[i], &one))
      return attn_fail(ATTN_EINVAL, "%s:%zu: %s '%s': expected %s", file->path, file->number, column_name(c),
                       fields[i],
                       c >= OWN && axes[c - OWN].choices       ? "a name that it has in configurations"
                       : c >= OWN && !least_of(&axes[c - OWN]) ? "a number of at least 0"
                                                               : "a number above 0");
    file->columns[i] = c;
  }
  if (file->number == 1) return ATTN_OK;
  if (!one.texts[SETTING] || !one.texts[DEVICE] || one.axis[AXIS_n] < 0 || !(one.seconds > 0))
    return attn_fail(ATTN_EINVAL, "%s:%zu: expected a setting, a device, n and milliseconds", file->path,
                     file->number);
  if (!(items = realloc(items, (file->times.count + 1) * sizeof one)))
    return attn_fail(ATTN_ENOMEM, "out of memory for times of others");
  file->times.items = items;
  items[file->times.count++] = one;
  return ATTN_OK;
}

attn_status other_times_read(const char *path, other_times *out) {
  times_file file = {.path = path};
  char *line = NULL;
  size_t room = 0, bytes;
  int fd = -1;
  attn_status status = file_open(path, &fd, &bytes);
  FILE *in = status ? NULL : fdopen(fd, "r");
  for (ssize_t length; in && !status && (length = getline(&line, &room, in)) >= 0;) {
    const bool whole = strlen(line) == (size_t)length;
    line[strcspn(line, "\r\n")] = '\0';
    file.number++;
    status = read_line(&file, whole ? line : NULL);
  }
  if (!status && (!in || ferror(in)))
    status = attn_fail(ATTN_EFOREIGN, "%s: cannot read: %s", path, strerror(errno));
  if (!status && file.times.count == 0) status = attn_fail(ATTN_EINVAL, "%s: no line of a time", path);
  if (in)
    fclose(in);
  else if (fd >= 0)
    close(fd);
  free(line);
  if (status)
    free(file.times.items);
  else
    *out = file.times;
  return status;
}

/* Adds the cells with a run that the time is of, or says why there are none: of the nearest run. */
static bool add_cells(other_time *one, const char *label, const results_model *m, json_t *out) {
  char why[64] = "no run is of this setting";
  bool found = false, ok = true;
  int nearest = 0;
  for (size_t i = 0, c = 0; i < m->set->count; i++) {
    int a = 0;
    if (i == m->cells[c].first + m->cells[c].count) c++;
    if (strcmp(setting_label(&m->settings[m->setting_of[i]]), label) != 0) continue;
    while (a < AXES && (one->axis[a] < 0 || one->axis[a] == m->rows[i]->axis[a])) a++;
    if (a == AXES && m->cells[c].ok) {
      const size_t first = m->cells[c].first;
      json_t *seconds = result_json_number(one->seconds), *source = result_json_text(one->texts[SOURCE]);
      json_add(
          out,
          json_pack("[I,o,o,o]", (json_int_t)first, result_json_text(one->texts[DEVICE]), seconds, source),
          &ok);
      found = true;
      i = first + m->cells[c].count - 1;
    }
    if (a < nearest) continue;
    nearest = a;
    snprintf(why, sizeof why, "no run of this setting %s%s", a < AXES ? "agrees in " : "ended well",
             a < AXES ? axes[a].name : "");
  }
  one->unmatched = found ? NULL : names_keep(why);
  return ok && (found || one->unmatched);
}

json_t *other_times_json(const other_times *times, const results_model *m) {
  json_t *out = json_array();
  bool ok = true;
  for (size_t i = 0; ok && i < times->count; i++) {
    char *label = NULL;
    ok = !label_of_text(times->items[i].texts[SETTING], &label) && add_cells(&times->items[i], label, m, out);
    free(label);
  }
  return json_whole(out, ok);
}
