/* train_file.c - see train_file.h. */
#include "experiments/training/train_file.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "attn_gradients.h"
#include "data/support/json_text.h"
#include "experiments/grid/spec_files.h"
#include "experiments/results/row_json.h"
#include "experiments/runner/provenance.h"

#define BEGINNING "{\"attnlab\":\"training\""

static bool is_training(const char *path, const file_map *content) {
  (void)path;
  return file_begins(content, BEGINNING);
}

static const output_kind kind_training = {"a file of attnlab train", is_training};

/* Takes the value over. */
static attn_status line_of(json_t *value, bool ok, char **line, size_t *bytes) {
  json_t *whole = json_whole(value, ok);
  const attn_status status =
      whole ? result_json_line(whole, line, bytes) : attn_fail(ATTN_ENOMEM, "no memory for a line");
  json_decref(whole);
  return status;
}

/* What the variants are made from beside this program. */
static attn_status find_files(const train_study *s, spec_made *made) {
  spec_files *files = NULL;
  spec_made own;
  attn_status status = spec_files_make(&files);
  for (int64_t v = 0; !status && v < s->spec_count; v++) {
    if ((status = spec_files_find(files, s->specs[v], &own))) break;
    spec_digest_add(made->plugin_sha256, own.plugin_sha256);
    spec_digest_add(made->files_sha256, own.files_sha256);
  }
  spec_files_free(files);
  return status;
}

static attn_status make_head(train_study *s) {
  char build[65];
  bool ok = true;
  size_t bytes;
  attn_options filled;
  spec_made made = {.plugin = NULL};
  attn_status status = provenance_build(build);
  if (!status) status = find_files(s, &made);
  if (!status) status = attn_options_fill(NULL, ATTN_F64, s->settings.width, s->settings.width, &filled);
  if (status) return status;
  json_t *head = json_object(), *tasks = json_array(), *steps = json_array(), *specs = json_array();
  for (int64_t t = 0; t < s->task_count; t++) json_add(tasks, json_string(s->tasks[t]->name), &ok);
  for (int64_t t = 0; t < s->task_count; t++)
    json_add(steps, json_integer(train_steps(s->tasks[t], &s->settings)), &ok);
  for (int64_t v = 0; v < s->spec_count; v++) json_add(specs, json_string(s->specs[v]->text), &ok);
  json_put(head, "attnlab", json_string("training"), &ok);
  json_put(head, "schema", json_integer(1), &ok);
  json_put(head, "tasks", tasks, &ok);
  json_put(head, "variants", specs, &ok);
  json_put(head, "seeds", json_integer(s->seeds), &ok);
  json_put(head, "steps", steps, &ok);
  json_put(head, "isa", json_string(filled.isa), &ok);
  json_put(head, "build", json_string(build), &ok);
  json_put(head, "plugins", json_string(made.plugin_sha256), &ok);
  json_put(head, "files", json_string(made.files_sha256), &ok);
  return line_of(head, ok, &s->head, &bytes);
}

/* -- reading -- */

static attn_status broken(const train_study *s) {
  return attn_fail(ATTN_EINVAL, "%s: a line is damaged: choose another name, or remove the file", s->path);
}

static bool read_score(const json_t *row, const char *loss, const char *accuracy, train_score *out) {
  return result_json_read_number(json_object_get(row, loss), &out->loss) &&
         result_json_read_number(json_object_get(row, accuracy), &out->accuracy) && out->accuracy >= 0 &&
         out->accuracy <= 1;
}

static bool read_curve(const json_t *row, int64_t spans, double *out) {
  const json_t *curve = json_object_get(row, "curve");
  bool ok = (int64_t)json_array_size(curve) == spans;
  for (int64_t i = 0; ok && i < spans; i++)
    ok = result_json_read_number(json_array_get(curve, (size_t)i), &out[i]);
  return ok;
}

static attn_status take_row(train_study *s, const json_t *json) {
  const char *task = json_string_value(json_object_get(json, "task")),
             *spec = json_string_value(json_object_get(json, "variant"));
  const json_t *number = json_object_get(json, "seed");
  const json_int_t seed = json_is_integer(number) ? json_integer_value(number) : -1;
  int64_t t = 0, v = 0;
  train_row row = {.done = true};
  while (task && t < s->task_count && strcmp(s->tasks[t]->name, task) != 0) t++;
  while (spec && v < s->spec_count && strcmp(s->specs[v]->text, spec) != 0) v++;
  if (!task || !spec || t == s->task_count || v == s->spec_count || seed < 0 || seed >= s->seeds ||
      !read_score(json, "loss", "accuracy", &row.trained) ||
      !read_score(json, "swapped_loss", "swapped_accuracy", &row.swapped) ||
      !read_curve(json, train_spans(s->tasks[t], &s->settings), row.curve) ||
      train_study_row(s, t, v, seed)->done)
    return broken(s);
  *train_study_row(s, t, v, seed) = row;
  return ATTN_OK;
}

/* Maps the file, if there is one; it must be of this study. */
static attn_status map_own(const train_study *s, file_map *map) {
  struct stat about;
  if (stat(s->path, &about) || !S_ISREG(about.st_mode) || !about.st_size) return ATTN_OK;
  attn_status status = file_map_open(s->path, map);
  if (status || file_begins(map, s->head)) return status;
  file_map_close(map);
  return attn_fail(ATTN_EINVAL,
                   "%s: of other tasks, variants, seeds or steps, or of another build of the program, a "
                   "plug-in or a file that a variant names: choose another name, or remove it",
                   s->path);
}

attn_status train_file_read(train_study *s) {
  file_map map = {0};
  attn_status status = make_head(s);
  if (status || (status = output_check(s->path, &kind_training, NULL, 0))) return status;
  output_clean(s->path);
  if ((status = map_own(s, &map)) || !map.at) return status;
  const char *at = (const char *)map.at + strlen(s->head), *end = (const char *)map.at + map.bytes;
  while (!status && at < end) {
    const char *newline = memchr(at, '\n', (size_t)(end - at));
    json_t *row = NULL;
    json_error_t error;
    if (!newline) {
      status = broken(s);
      break;
    }
    status = json_parse(at, (size_t)(newline - at), &error, &row);
    if (status == ATTN_EINVAL) status = broken(s);
    if (!status) status = take_row(s, row);
    json_decref(row);
    at = newline + 1;
  }
  file_map_close(&map);
  return status;
}

/* -- writing -- */

static attn_status row_line(const train_study *s, int64_t task, int64_t spec, int64_t seed, char **line,
                            size_t *bytes) {
  const train_row *row = train_study_row(s, task, spec, seed);
  json_t *json = json_object();
  bool ok = true;
  json_put(json, "task", json_string(s->tasks[task]->name), &ok);
  json_put(json, "variant", json_string(s->specs[spec]->text), &ok);
  json_put(json, "seed", json_integer(seed), &ok);
  json_put(json, "loss", result_json_number(row->trained.loss), &ok);
  json_put(json, "accuracy", result_json_number(row->trained.accuracy), &ok);
  json_put(json, "swapped_loss", result_json_number(row->swapped.loss), &ok);
  json_put(json, "swapped_accuracy", result_json_number(row->swapped.accuracy), &ok);
  json_put(json, "curve", result_numbers_json(row->curve, train_spans(s->tasks[task], &s->settings)), &ok);
  return line_of(json, ok, line, bytes);
}

attn_status train_file_write(const train_study *s) {
  const int64_t all = s->task_count * s->spec_count * s->seeds;
  file_part *parts = calloc((size_t)all + 1, sizeof *parts);
  size_t count = 0;
  attn_status status = parts ? ATTN_OK : attn_fail(ATTN_ENOMEM, "no memory for %ld lines", (long)all);
  if (!status) parts[count++] = (file_part){s->head, strlen(s->head)};
  for (int64_t i = 0; !status && i < all; i++) {
    char *line;
    size_t bytes;
    if (!s->rows[i].done) continue;
    status = row_line(s, i / (s->spec_count * s->seeds), i / s->seeds % s->spec_count, i % s->seeds, &line,
                      &bytes);
    if (!status) parts[count++] = (file_part){line, bytes};
  }
  file_map there = {0}; /* another process may have begun a study there meanwhile */
  if (!status) status = map_own(s, &there);
  file_map_close(&there);
  if (!status) status = output_write(s->path, &kind_training, parts, count);
  for (size_t i = 1; i < count; i++) free((void *)(uintptr_t)parts[i].at);
  free(parts);
  return status;
}
