/* depth_maps.c - see depth_maps.h. */
#include "experiments/quality/depth_maps.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "experiments/results/row.h"
#include "experiments/support/label.h"

/* A task around its depth; at NULL: it has none. */
typedef struct split_task {
  const char *at, *rest;
  double depth;
} split_task;

static split_task split(const char *task) {
  static const char name[] = "depth=";
  split_task s = {.at = strstr(task, name)};
  if (!s.at || s.at == task || !strchr(":,", s.at[-1])) return (split_task){.at = NULL};
  char *end;
  s.depth = strtod(s.at + sizeof name - 1, &end);
  s.rest = end;
  return s.depth >= 0 && s.depth <= 1 ? s : (split_task){.at = NULL};
}

static bool same_map(const quality_record *a, const quality_record *b) {
  const split_task x = split(a->task), y = split(b->task);
  return a->status == RUN_OK && b->status == RUN_OK && x.at && y.at && x.at - a->task == y.at - b->task &&
         strncmp(a->task, b->task, (size_t)(x.at - a->task)) == 0 && strcmp(x.rest, y.rest) == 0 &&
         a->windows == b->windows && a->seed == b->seed && a->bos == b->bos && !(a->mix < b->mix) &&
         !(a->mix > b->mix) && strcmp(a->model_sha256, b->model_sha256) == 0 &&
         strcmp(a->config_sha256, b->config_sha256) == 0 && strcmp(a->data_sha256, b->data_sha256) == 0 &&
         strcmp(a->layers, b->layers) == 0 && strcmp(a->heads, b->heads) == 0 &&
         strcmp(a->phase, b->phase) == 0;
}

/* A number among ascending ones, once. */
static void insert(double x, double *all, size_t *count) {
  size_t at = 0;
  while (at < *count && all[at] < x) at++;
  if (at < *count && !(all[at] > x)) return;
  memmove(all + at + 1, all + at, (*count - at) * sizeof *all);
  all[at] = x;
  ++*count;
}

/* The runs of a map, and where they lie in it. */
typedef struct depth_map {
  const quality_record **runs;
  double *depths, *lengths;
  size_t count, columns, rows;
} depth_map;

/* spec NULL: any. */
static const quality_record *find(const depth_map *m, const char *spec, double depth, double n) {
  for (size_t i = 0; i < m->count; i++) {
    const quality_record *r = m->runs[i];
    const double apart = fabs(split(r->task).depth - depth) + fabs((double)r->n - n);
    if (!(apart > 0) && (!spec || strcmp(r->spec, spec) == 0)) return r;
  }
  return NULL;
}

static attn_status add_rows(text_table *t, const depth_map *m, const char *spec) {
  char *label = NULL;
  const attn_status status = spec ? label_of_text(spec, &label) : ATTN_OK;
  for (size_t y = 0; !status && y < m->rows; y++) {
    table_add(t, "%s", spec ? label : "exact model");
    table_add(t, "%g", m->lengths[y]);
    for (size_t x = 0; x < m->columns; x++) {
      const quality_record *r = find(m, spec, m->depths[x], m->lengths[y]);
      table_add(t, r ? "%.0f" : "-", r ? 100 * (spec ? r->score : r->score_exact) : 0);
    }
  }
  free(label);
  return status;
}

/* Nothing of one depth. */
static attn_status print_map(FILE *out, depth_map *m, table_format format) {
  const quality_record *first = m->runs[0];
  const split_task task = split(first->task);
  m->columns = m->rows = 0;
  for (size_t i = 0; i < m->count; i++) {
    insert(split(m->runs[i]->task).depth, m->depths, &m->columns);
    insert((double)m->runs[i]->n, m->lengths, &m->rows);
  }
  if (m->columns < 2) return ATTN_OK;
  text_table t = {.columns = 2 + m->columns, .left = 1};
  table_add(&t, "variant");
  table_add(&t, "n");
  for (size_t x = 0; x < m->columns; x++) table_add(&t, "%g %%", 100 * m->depths[x]);
  attn_status status = add_rows(&t, m, NULL);
  for (size_t i = 0; !status && i < m->count; i++) {
    size_t before = 0;
    while (before < i && strcmp(m->runs[before]->spec, m->runs[i]->spec) != 0) before++;
    if (before == i) status = add_rows(&t, m, m->runs[i]->spec);
  }
  fprintf(out,
          "%s: %.*s...%s (layers %s, heads %s): %% of %lld windows answered, by the answer's depth and n\n\n",
          first->model, (int)(task.at - first->task), first->task, task.rest, first->layers, first->heads,
          (long long)first->windows);
  if (!status) status = table_print(out, &t, format);
  table_free(&t);
  fprintf(out, "\n");
  return status;
}

attn_status quality_print_depths(FILE *out, const quality_set *set, table_format format) {
  double *room = calloc(2 * set->count + 2, sizeof *room);
  depth_map m = {calloc(set->count + 1, sizeof *m.runs), room, room ? room + set->count + 1 : NULL, 0, 0, 0};
  attn_status status =
      m.runs && room ? ATTN_OK : attn_fail(ATTN_ENOMEM, "no memory for %zu runs", set->count);
  for (size_t first = 0; !status && first < set->count; first++) {
    size_t i = 0;
    while (i < first && !same_map(&set->records[i], &set->records[first])) i++;
    if (i < first) continue;
    for (m.count = 0; i < set->count; i++)
      if (same_map(&set->records[first], &set->records[i])) m.runs[m.count++] = &set->records[i];
    if (m.count > 1) status = print_map(out, &m, format);
  }
  free((void *)m.runs);
  free(room);
  return status;
}
