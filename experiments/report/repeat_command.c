/* repeat_command.c - commands that repeat a run. */
#include "experiments/report/repeat_command.h"

#include <stdlib.h>
#include <string.h>

#include "attn_variant.h"
#include "data/data.h"
#include "experiments/evidence/null.h"
#include "experiments/support/escape.h"
#include "experiments/support/label.h"

/* With all parameters and the seed of this run. */
static const char *spec_of(const result_row *row) {
  const char *spec = strstr(row->key, " variant=");
  return spec ? spec + strlen(" variant=") : row->label && *row->label ? row->label : row->variant;
}

static void put_plugin(FILE *out, const result_row *row) {
  if (!row->plugin || !*row->plugin) return;
  fputs(" --plugin ", out);
  escape_put_word(out, row->plugin);
}

/* ---- run ----------------------------------------------------------------------------------------------- */

/* Axes of a section of a configuration, each after a comma. The seed is part of the spec. What differs most
 * between runs comes last, so that the commands of a page begin alike. */
static void put_axes(FILE *out, const char *section, const char *separator, const result_row *row) {
  char text[AXIS_TEXT];
  for (int a = AXES; a-- > 0;) {
    if (a == AXIS_seed || !axes[a].section || strcmp(axes[a].section, section) != 0) continue;
    fprintf(out, "%s%s: %s", separator, axes[a].name, axis_print((axis_id)a, row->axis[a], text));
    separator = ", ";
  }
}

static void put_target(FILE *out, const char *name, const char *text) {
  if (!text || !*text) return;
  fprintf(out, "%s: [", name);
  escape_put_yaml(out, text);
  fputs("], ", out);
}

char *repeat_run(const result_row *row) {
  char *text = NULL;
  size_t size;
  if (null_find(row->variant)) return strdup("");
  FILE *out = open_memstream(&text, &size);
  if (!out) return NULL;
  fputs("printf '%s\\n' '{schema: 1", out); /* echo of dash and zsh reads backslashes */
  put_axes(out, "", ", ", row);
  fputs(", nulls: no, datasets: [", out);
  escape_put_yaml(out, row->dataset);
  fputs("], grid: {", out);
  for (text_axis_id t = 0; t < TEXT_AXES; t++)
    if (text_axis_in_grid(t)) put_target(out, text_axes[t].name, row->text[t]);
  put_axes(out, "grid", "", row);
  fputs("}, variants: [", out);
  escape_put_yaml(out, spec_of(row));
  fputs("]}' >one.yaml && ATTN_ISA=", out);
  escape_put_word(out, row->isa);
  fputs(" attnlab run one.yaml -o one.h5", out);
  put_plugin(out, row);
  attn_stream_text(out, &text);
  return text;
}

/* ---- apply --------------------------------------------------------------------------------------------- */

/* Items of a list "a=1,b" as options " --a 1 --b". Names stay, except that of the one file of a
 * dataset. false: no memory. */
static bool put_options(FILE *out, const char *list) {
  while (*list) {
    const size_t length = strcspn(list, ","), name = strcspn(list, "=,");
    const bool file = name == 4 && strncmp(list, "file", name) == 0;
    fprintf(out, " --%.*s", file ? 2 : (int)name, file ? "in" : list);
    if (name < length) {
      char *value = strndup(list + name + 1, length - name - 1);
      if (!value) return false;
      putc(' ', out);
      escape_put_word(out, value);
      free(value);
    }
    list += length + (list[length] == ',');
  }
  return true;
}

attn_status repeat_reads_files(const char *dataset, bool *files) {
  const data_source *source = NULL;
  const attn_status status = data_source_parse(dataset, &source, NULL);
  if (status == ATTN_ENOMEM) return status;
  *files = false;
  for (const attn_param *p = status ? NULL : source->params; p && p->name; p++)
    *files = *files || p->type == ATTN_TEXT;
  return ATTN_OK;
}

static bool put_apply(FILE *out, const result_row *row, const char *spec, const char *dataset) {
  fputs("attnlab apply ", out);
  escape_put_word(out, spec);
  bool whole = put_options(out, dataset);
  if (!strstr(dataset, ",dtype=")) fprintf(out, " --dtype %s", dtype_names[row->dtype]);
  if (row->causal) fputs(" --causal", out);
  whole = whole && put_options(out, row->score ? row->score : "");
  if (row->mask && *row->mask) {
    fputs(" --mask ", out);
    escape_put_word(out, row->mask);
  }
  put_plugin(out, row);
  fputs(" -o out.npy", out);
  return whole;
}

char *repeat_apply(const result_row *row) {
  char *text = NULL, *spec = NULL;
  size_t size;
  bool files;
  if (repeat_reads_files(row->dataset, &files)) return NULL;
  const char *colon = strchr(row->dataset, ':'), *own = colon ? colon + 1 : "",
             *dataset = files ? own : "file=" REPEAT_YOURS;
  const bool half = strstr(dataset, ",dtype="); /* bf16, which is computed in f32 */
  if (null_find(row->variant) || row->n_kv != row->n ||
      attn_dtype_size((attn_dtype)row->dtype) < sizeof(float) ||
      (half && attn_dtype_size((attn_dtype)row->dtype) > sizeof(float)))
    return strdup("");
  if (label_of_text(spec_of(row), &spec)) return NULL;
  FILE *out = open_memstream(&text, &size);
  const bool whole = out && put_apply(out, row, spec, dataset);
  free(spec);
  attn_stream_text(out, &text);
  if (whole) return text;
  free(text);
  return NULL;
}
