/* model.c - the runs of a results file, sorted into groups, lines and cells. */
#include "experiments/analysis/model.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "data/support/file.h"
#include "experiments/analysis/against_exact.h"
#include "experiments/analysis/doubts.h"
#include "experiments/evidence/null.h"
#include "experiments/mathematics/statistics.h"

typedef struct entry {
  const result_row *row;
  setting setting;
  size_t index; /* the index of the setting among the distinct ones */
  bool machine; /* results_model.machine */
} entry;

/* Those of several files are apart. */
static int setting_order(const setting *a, const setting *b) {
  const int order = setting_compare(a, b);
  return order ? order : strcmp(text_or_none(a->row->source), text_or_none(b->row->source));
}

static int by_setting(const void *a, const void *b) {
  return setting_order(&((const entry *)a)->setting, &((const entry *)b)->setting);
}

static int by_place(const void *a, const void *b) {
  const entry *x = a, *y = b;
  const int group = setting_group_compare(x->row, y->row, x->machine);
  if (group) return group;
  if (x->index != y->index) return x->index < y->index ? -1 : 1;
  if (x->row->n != y->row->n) return x->row->n < y->row->n ? -1 : 1;
  if (x->row->seed != y->row->seed) return x->row->seed < y->row->seed ? -1 : 1;
  return strcmp(x->row->key, y->row->key);
}

/* Numbers the settings in their order and moves one of each into the model. */
static attn_status name_settings(results_model *m, entry *entries, size_t count) {
  qsort(entries, count, sizeof *entries, by_setting);
  for (size_t i = 0; i < count; i++) {
    entry *e = &entries[i];
    if (i == 0 || setting_order(&m->settings[m->settings_count - 1], &e->setting) != 0)
      m->settings[m->settings_count++] = e->setting;
    else
      setting_free(&e->setting);
    e->setting = (setting){0};
    e->index = m->settings_count - 1;
  }
  for (size_t i = 0; i < m->settings_count; i++) m->labels[i] = setting_label(&m->settings[i]);
  return setting_methods(m->settings, m->settings_count, m->methods);
}

/* ---- cells --------------------------------------------------------------------------------------------- */

static void widen(fit_interval *x, double lo, double hi) {
  x->lo = fmin(x->lo, lo); /* fmin and fmax pass over NaN */
  x->hi = fmax(x->hi, hi);
}

/* numbers: room for QUANTITIES times the rows of the cell. */
enum { QUANTITIES = 6 };
static void fill_cell(const results_model *m, model_cell *c, double *numbers) {
  double *errors = numbers, *times = numbers + c->count, *memory = times + c->count;
  double *keys = memory + c->count, *left_out = keys + c->count, *regret = left_out + c->count;
  const fit_interval unknown = {(double)NAN, (double)NAN, (double)NAN};
  bool ceiling = true;
  c->error = c->time = c->memory = c->speedup = unknown;
  c->status = m->rows[c->first]->status;
  for (size_t i = 0; i < c->count; i++) {
    const result_row *row = m->rows[c->first + i];
    c->violated = c->violated || row->verdict == VERDICT_VIOLATED;
    if (row->status != RUN_OK) continue;
    c->unchecked = c->unchecked || row->verdict == VERDICT_UNCHECKED;
    c->judged = c->judged || row->verdict != VERDICT_NOT_APPLICABLE;
    c->doubts |= doubts_of(row);
    widen(&c->error, fmin(row->err_rel_fro, row->err_rel_fro_lo),
          fmax(row->err_rel_fro, row->err_rel_fro_hi));
    widen(&c->time, fmin(row->time_median, row->time_ci_lo), fmax(row->time_median, row->time_ci_hi));
    widen(&c->memory, row->peak_alloc, row->peak_alloc);
    errors[c->ok] = row->err_rel_fro;
    times[c->ok] = row->time_median;
    keys[c->ok] = row->keys_mean;
    left_out[c->ok] = 1 - row->kept_mass_mean;
    regret[c->ok] = row->regret_mean;
    ceiling = ceiling && !isnan(row->err_rel_fro_cert_hi);
    c->ceiling = fmax(c->ceiling, row->err_rel_fro_cert_hi);
    memory[c->ok++] = row->peak_alloc;
  }
  if (c->ok) c->status = RUN_OK;
  c->judged = c->judged && !c->unchecked;
  c->error.mid = median_of(errors, c->ok);
  c->time.mid = median_of(times, c->ok);
  c->memory.mid = median_of(memory, c->ok);
  c->keys = median_of(keys, c->ok);
  c->left_out = median_of(left_out, c->ok);
  c->regret = median_of(regret, c->ok);
  if (!ceiling || !c->ok) c->ceiling = (double)NAN;
  c->offered = c->judged && !c->violated && c->ok == c->count && !isnan(c->error.mid) && !isnan(c->time.mid);
}

/* ---- fronts -------------------------------------------------------------------------------------------- */

const model_cell *model_cell_at(const model_line *line, int64_t n) {
  for (size_t i = 0; i < line->count; i++)
    if (line->cells[i].n == n) return &line->cells[i];
  return NULL;
}

/* Marks what errs as much as a baseline that looks at no key: zeros are off by 1, whether or not they were
 * run. */
static void mark_no_better(const results_model *m, model_group *g, model_cell *c) {
  const char *title = null_find("null_zeros")->title;
  double error = 1;
  for (size_t i = 0; i < g->count; i++) {
    const null_baseline *null = null_find(m->settings[g->lines[i].setting].row->variant);
    const model_cell *cell = null && !null->keys ? model_cell_at(&g->lines[i], c->n) : NULL;
    if (!cell || !(cell->error.mid < error)) continue;
    error = cell->error.mid;
    title = null->title;
  }
  if (!(c->judged && c->error.mid >= error)) return;
  c->no_better = title;
  c->offered = false;
}

static void mark_group(const results_model *m, model_group *g) {
  for (size_t l = 0; l < g->count; l++)
    for (size_t c = 0; c < g->lines[l].count && !m->settings[g->lines[l].setting].exact; c++)
      mark_no_better(m, g, &g->lines[l].cells[c]);
}

/* Settings whose keys keep as much of exact attention as so few can, to within rounding, in every run that
 * left some out. */
static void mark_oracles(results_model *m) {
  static const double rounding = 1e-5;
  for (size_t i = 0; i < m->set->count; i++)
    if (1 - m->rows[i]->kept_mass_mean > rounding) m->settings[m->setting_of[i]].oracle = true;
  for (size_t i = 0; i < m->set->count; i++)
    if (fabs(m->rows[i]->regret_mean) > rounding) m->settings[m->setting_of[i]].oracle = false;
}

/* Errors of exact variants are rounding; they do not rank the variants. */
static double rank_error(const results_model *m, const model_line *line, const model_cell *c) {
  return m->settings[line->setting].exact ? 0 : c->error.mid;
}

/* Differences from another in error and in cost: as good in both, and better in one. NaN beats nothing. */
static bool beats(double error, double cost) { return error <= 0 && cost <= 0 && (error < 0 || cost < 0); }

static void mark_fronts(const results_model *m, model_group *g) {
  for (size_t i = 0; i < g->count; i++)
    for (size_t k = 0; k < g->lines[i].count; k++) {
      model_cell *c = &g->lines[i].cells[k];
      const double error = rank_error(m, &g->lines[i], c);
      c->front_time = c->front_memory = c->offered;
      c->front_keys = c->offered && !isnan(c->keys);
      for (size_t j = 0; j < g->count; j++) {
        const model_cell *other = model_cell_at(&g->lines[j], c->n);
        if (!other || other == c || !other->offered) continue;
        const double distance = rank_error(m, &g->lines[j], other) - error;
        c->front_time = c->front_time && !beats(distance, other->time.mid - c->time.mid);
        c->front_memory = c->front_memory && !beats(distance, other->memory.mid - c->memory.mid);
        c->front_keys = c->front_keys && !beats(distance, other->keys - c->keys);
      }
    }
}

/* ---- fits ---------------------------------------------------------------------------------------------- */

/* Standard error of the log, from a 95 % interval; 0 where there is none. */
static double log_sigma(const fit_interval *x) {
  return x->hi > x->lo && x->lo > 0 ? log(x->hi / x->lo) / (2 * 1.96) : 0;
}

static attn_status fit_line(model_line *line) {
  double *n = calloc(5 * line->count, sizeof *n);
  if (!n) return attn_fail(ATTN_ENOMEM, "out of memory for the fits of the report");
  double *time = n + line->count, *time_sigma = time + line->count, *memory = time_sigma + line->count;
  double *memory_sigma = memory + line->count;
  for (size_t i = 0; i < line->count; i++) {
    const model_cell *c = &line->cells[i];
    n[i] = (double)c->n;
    time[i] = c->time.mid;
    time_sigma[i] = c->time.hi > c->time.lo ? log_sigma(&c->time) : (double)NAN;
    memory[i] = c->memory.mid;
    memory_sigma[i] = log_sigma(&c->memory);
  }
  attn_status status = fit_exponent(n, time, time_sigma, line->count, &line->time);
  if (!status) status = fit_exponent(n, memory, memory_sigma, line->count, &line->memory);
  free(n);
  return status;
}

/* ---- lengths ------------------------------------------------------------------------------------------- */

/* The place of n among the lengths of a group, which ascend. A length that is missing is inserted. */
static model_length *length_of(model_group *g, int64_t n) {
  size_t at = 0;
  while (at < g->lengths_count && g->lengths[at].n < n) at++;
  if (at == g->lengths_count || g->lengths[at].n != n) {
    memmove(&g->lengths[at + 1], &g->lengths[at], (g->lengths_count++ - at) * sizeof *g->lengths);
    g->lengths[at] = (model_length){.n = n, .process = (double)NAN};
  }
  return &g->lengths[at];
}

static attn_status fill_lengths(const results_model *m, model_group *g) {
  for (size_t l = 0; l < g->count; l++)
    for (size_t c = 0; c < g->lines[l].count; c++) {
      const model_cell *cell = &g->lines[l].cells[c];
      model_length *length = length_of(g, cell->n);
      for (size_t i = 0; i < cell->count; i++)
        length->process = fmax(length->process, m->rows[cell->first + i]->peak_rss);
    }
  double *n = calloc(3 * g->lengths_count, sizeof *n);
  if (!n) return attn_fail(ATTN_ENOMEM, "out of memory for the fits of the report");
  double *process = n + g->lengths_count, *sigma = process + g->lengths_count;
  for (size_t i = 0; i < g->lengths_count; i++) {
    n[i] = (double)g->lengths[i].n;
    process[i] = g->lengths[i].process;
  }
  const attn_status status = fit_exponent(n, process, sigma, g->lengths_count, &g->process);
  free(n);
  return status;
}

/* ---- the whole ----------------------------------------------------------------------------------------- */

/* Cuts the sorted rows where the group, the setting or n changes. */
static void cut(results_model *m) {
  size_t cells = 0, lines = 0;
  for (size_t i = 0; i < m->set->count; i++) {
    const bool group = i == 0 || setting_group_compare(m->rows[i - 1], m->rows[i], m->machine) != 0;
    const bool line = group || m->setting_of[i - 1] != m->setting_of[i];
    if (group)
      m->groups[m->groups_count++] = (model_group){.lines = &m->lines[lines], .lengths = &m->lengths[cells]};
    model_group *g = &m->groups[m->groups_count - 1];
    if (line) {
      m->lines[lines++] = (model_line){.setting = m->setting_of[i], .cells = &m->cells[cells]};
      g->count++;
    }
    model_line *l = &m->lines[lines - 1];
    if (line || m->rows[i - 1]->n != m->rows[i]->n) {
      m->cells[cells++] = (model_cell){.first = i, .n = m->rows[i]->n};
      l->count++;
    }
    m->cells[cells - 1].count++;
  }
}

static attn_status estimate(results_model *m, double *numbers) {
  attn_status status = ATTN_OK;
  for (size_t g = 0; !status && g < m->groups_count; g++) {
    model_group *group = &m->groups[g];
    for (size_t l = 0; !status && l < group->count; l++) {
      for (size_t c = 0; c < group->lines[l].count; c++) fill_cell(m, &group->lines[l].cells[c], numbers);
      status = fit_line(&group->lines[l]);
    }
    mark_group(m, group);
    mark_fronts(m, group);
    if (!status) status = fill_lengths(m, group);
    if (!status) status = compare_group(m, group);
  }
  return status;
}

/* Does a file have runs of several instruction sets or numbers of threads? Else the file tells machines
 * apart. */
static bool differ_within_a_file(const result_set *set) {
  for (size_t i = 1; i < set->count; i++) {
    const result_row *a = &set->rows[i - 1], *b = &set->rows[i];
    if (a->source == b->source && (a->threads != b->threads || strcmp(a->isa, b->isa) != 0)) return true;
  }
  return false;
}

/* Rows beside each other often share their texts, and then the setting that these make. */
static attn_status shared_setting(const result_row *row, const setting *last, setting *out) {
  if (!last || last->row->variant != row->variant || last->row->params != row->params)
    return setting_make(row, out);
  *out = *last;
  out->row = row;
  json_incref(out->params);
  return ATTN_OK;
}

attn_status model_make(const result_set *set, results_model *out) {
  const int64_t room = (int64_t)set->count + 1;
  region own = {.last = NULL};
  results_model m = {.set = set, .machine = differ_within_a_file(set)};
  m.rows = region_zeros(&m.memory, room, sizeof *m.rows);
  m.setting_of = region_zeros(&m.memory, room, sizeof *m.setting_of);
  m.settings = region_zeros(&m.memory, room, sizeof *m.settings);
  m.labels = region_zeros(&m.memory, room, sizeof *m.labels);
  m.methods = region_zeros(&m.memory, room, sizeof *m.methods);
  m.cells = region_zeros(&m.memory, room, sizeof *m.cells);
  m.lines = region_zeros(&m.memory, room, sizeof *m.lines);
  m.lengths = region_zeros(&m.memory, room, sizeof *m.lengths);
  m.groups = region_zeros(&m.memory, room, sizeof *m.groups);
  entry *entries = region_zeros(&own, room, sizeof *entries);
  double *numbers = region_zeros(&own, QUANTITIES * room, sizeof *numbers);
  attn_status status = ATTN_OK;
  size_t made = 0;
  if (m.memory.refused || own.refused)
    status = attn_fail(ATTN_ENOMEM, "out of memory for a report of %zu runs", set->count);
  for (; !status && made < set->count; made += !status) {
    entries[made].row = &set->rows[made];
    entries[made].machine = m.machine;
    status =
        shared_setting(&set->rows[made], made ? &entries[made - 1].setting : NULL, &entries[made].setting);
  }
  if (!status) status = name_settings(&m, entries, made);
  if (!status) {
    qsort(entries, made, sizeof *entries, by_place);
    for (size_t i = 0; i < made; i++) {
      m.rows[i] = entries[i].row;
      m.setting_of[i] = entries[i].index;
    }
    cut(&m);
    mark_oracles(&m);
    status = estimate(&m, numbers);
  }
  for (size_t i = 0; entries && i < made; i++) setting_free(&entries[i].setting);
  region_free(&own);
  if (status)
    model_free(&m);
  else
    *out = m;
  return status;
}

void model_free(results_model *m) {
  for (size_t i = 0; i < m->settings_count; i++) {
    setting_free(&m->settings[i]);
    free(m->methods[i]);
  }
  region_free(&m->memory);
  *m = (results_model){0};
}
