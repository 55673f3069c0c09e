/* results_fixture.h - rows with every column set, and journals of them. */
#ifndef TESTS_SUPPORT_RESULTS_FIXTURE_H
#define TESTS_SUPPORT_RESULTS_FIXTURE_H

#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "experiments/analysis/model.h"
#include "experiments/results/set.h"
#include "experiments/results/write_journal.h"
#include "experiments/support/names.h"
#include "tests/support/basics/kept.h"
#include "tests/support/basics/text.h"
#include "tests/support/files.h"

static inline result_bound fixture_bound(const char *name, check_kind kind, check_verdict verdict, double p) {
  result_bound b = {.name = name,
                    .kind = kind,
                    .verdict = verdict,
                    .value = 0.5,
                    .measured = 0.125,
                    .margin = 0.25,
                    .p_value = p,
                    .p_repeat = (double)NAN};
  return b;
}

static inline void fixture_must(attn_status status) {
  if (status) abort();
}

/* The bound, for a test to change. */
static inline result_bound *fixture_add_bound(result_row *row, const char *name, check_kind kind,
                                              check_verdict verdict, double p) {
  const result_bound b = fixture_bound(name, kind, verdict, p);
  fixture_must(result_row_add_bound(row, &b));
  return &row->bounds[row->bounds_count - 1];
}

/* Weights about the diagonal; the variant's are wider, lack some keys, and are below zero in a corner. */
static inline float *fixture_map(const result_row *row, int64_t width) {
  const int64_t rows = result_map_cells(row->n), columns = result_map_cells(row->n_kv);
  float *map = calloc(2 * (size_t)(rows * columns), sizeof *map), *approx = map + rows * columns;
  for (int64_t r = 0; map && r < rows; r++)
    for (int64_t c = 0; c < columns; c++) {
      const double away = fabs((double)(r - c)) / (double)columns;
      map[r * columns + c] = (float)(exp(-20 * away) / 4);
      approx[r * columns + c] = r < 3 && c < 3 ? -0.01F
                                : away > 0.4   ? 0
                                               : (float)(exp(-away * (double)width) / 8);
    }
  return map;
}

/* Row i of a sweep: 6 variants, 5 lengths, 2 datasets, then seeds; every seventh is unsupported, without
 * samples. The first seed has maps at n = 512. */
static inline result_row fixture_row(int64_t i) {
  static const char *const variants[] = {"full", "tiled", "longformer", "bigbird", "linformer", "performer"};
  static const char *const params[] = {"{}",
                                       "{\"block_q\":64}",
                                       "{\"window\":256,\"global_at\":\"16\"}",
                                       "{\"block\":64,\"projection\":2.5}",
                                       "{\"k\":128,\"projection\":\"srht\",\"projection_file\":\"\"}",
                                       "{\"features\":256}"};
  static const char *const labels[] = {"full",
                                       "tiled:block_q=64",
                                       "longformer:window=256,global_at=16",
                                       "bigbird:block=64,projection=2.5",
                                       "linformer:k=128,projection=srht",
                                       "performer:features=256"};
  static const char *const budgets[] = {"", "block_q", "window", "block", "k", "features"};
  static const double values[] = {0, 64, 256, 64, 128, 256};
  const int64_t v = i % 6, size = i / 6 % 5, source = i / 30 % 2, seed = i / 60;
  result_row row;
  result_row_init(&row);
  row.key = strdup(text_of("run %08lld", (long long)i));
  row.variant = variants[v];
  row.params = params[v];
  row.label = labels[v];
  row.dataset = source ? "gaussian:std_q=1,std_k=1" : "captured";
  row.isa = "avx2";
  row.seed = seed;
  row.n = row.n_kv = (int64_t)512 << size;
  row.d = row.d_v = 64;
  row.heads = row.kv_heads = 4;
  row.batch = 1;
  row.causal = i % 2;
  row.threads = 2;
  row.block_q = 256;
  row.block_k = 96 + v;
  row.start_time = 1.7e9 + (double)i;
  row.end_time = row.start_time + 0.5;
  if (v > 0) {
    fixture_must(result_row_add_param(&row, budgets[v], values[v]));
  }
  /* A list that reads as a number, a name that is a number of one variant and a text of another, an empty
   * text. */
  if (v == 2) fixture_must(result_row_add_text(&row, "global_at", "16"));
  if (v == 3) fixture_must(result_row_add_param(&row, "projection", 2.5));
  if (v == 4) fixture_must(result_row_add_text(&row, "projection", "srht"));
  if (v == 4) fixture_must(result_row_add_text(&row, "projection_file", ""));
  if (i % 7 == 6) {
    row.status = RUN_UNSUPPORTED;
    row.message = strdup("the projection mixes the future, \"causal\" is refused");
    return row;
  }
  row.status = RUN_OK;
  for (const result_column *c = result_columns; c->name; c++)
    if (c->type == COLUMN_F64 && c->measure)
      *(double *)(void *)((char *)&row + c->offset) = (double)(i + 1) / 3e3;
  row.cycles = row.instructions = row.llc_misses = row.energy_pkg = (double)NAN;
  row.kept_mass_mean = 1 - 1 / (double)(2 + v); /* a share */
  row.regret_mean = v == 1 ? 0 : 0.01;
  row.err_max_abs = i % 11 == 3 ? (double)INFINITY : 1.5;
  row.iters_per_sample = 4;
  row.rows_sampled = 2048;
  row.n_samples = 20 + i % 3;
  row.samples = calloc((size_t)row.n_samples, sizeof *row.samples);
  row.rounds = calloc((size_t)row.n_samples, sizeof *row.rounds);
  for (int64_t s = 0; s < row.n_samples; s++) {
    row.samples[s] = row.time_median * (1 + (double)s / 100);
    row.rounds[s] = (int32_t)(s / 10);
  }
  for (int b = 0; b < RESULT_PROFILE_BINS; b++) {
    row.profile_l2[b] = (b + 1) * row.err_rel_fro;
    row.profile_max[b] = (b + 2) * row.err_rel_fro;
  }
  if (seed == 0 && size == 0) row.map = fixture_map(&row, 20 + v);
  fixture_add_bound(&row, "FP-1", KIND_HARD, VERDICT_PASS, (double)NAN);
  if (v == 4) fixture_add_bound(&row, "LIN-1", KIND_PROB, VERDICT_CONSISTENT, 0.3);
  if (v == 5) fixture_add_bound(&row, "FAV-5", KIND_HARD, VERDICT_UNCERTIFIABLE, (double)NAN);
  row.verdict = v == 5 ? VERDICT_UNCERTIFIABLE : v == 4 ? VERDICT_CONSISTENT : VERDICT_PASS;
  return row;
}

static inline json_t *fixture_provenance(double start) {
  return json_pack("{s:s, s:b, s:s, s:f, s:i, s:s, s:s, s:s}", "git_commit", "0123abc", "git_dirty", 1,
                   "compiler", "gcc 12", "start_time", start, "n_cores", 2, "argv",
                   "attnlab run x.yaml -o x.h5", "config_text", "schema: 1\n", "weather", "fine");
}

/* The first `count` rows as results_read would give them. */
static inline result_set fixture_set(int64_t count) {
  result_set set;
  result_set_init(&set);
  set.rows = calloc((size_t)count + 1, sizeof *set.rows);
  set.sessions = json_pack("[o]", fixture_provenance(1.7e9));
  if (!set.rows || !set.sessions) abort();
  for (set.count = 0; set.count < (size_t)count; set.count++) {
    result_row *row = &set.rows[set.count];
    *row = fixture_row((int64_t)set.count);
    if (!row->message) row->message = strdup("");
    if (!row->path) row->path = "";
  }
  return set;
}

static inline void scale_time(result_row *row, double by) {
  row->time_median *= by;
  row->time_ci_lo *= by;
  row->time_ci_hi *= by;
}

/* A new journal with rows first, first + step, ... (count of them) of one session. */
static inline attn_status fixture_journal(const char *path, int64_t first, int64_t step, int64_t count,
                                          double start) {
  journal *j = NULL;
  json_t *provenance = fixture_provenance(start);
  attn_status status = journal_open(path, &rows_of_sweep, "build one", provenance, &j);
  for (int64_t i = 0; !status && i < count; i++) {
    result_row row = fixture_row(first + i * step);
    status = journal_append(j, &row);
    result_row_free(&row);
  }
  journal_close(j);
  json_decref(provenance);
  return status;
}

static inline void release_row(void *row) { result_row_free(row); }

/* A row that is freed at the end of the process. Tests may set its numbers, not the pointers that it owns. */
static inline result_row kept_row(result_row row) {
  return *(result_row *)keep_copy(&row, sizeof row, release_row);
}

static inline void release_set(void *set) { result_set_free(set); }

/* A set that is freed at the end. The test may change its rows, and not how many there are. */
static inline result_set kept_set(result_set set) {
  keep_copy(&set, sizeof set, release_set);
  return set;
}

/* The rows of a journal, of a results file, and of several; kept. */
static inline result_set load_results(const char *path) {
  result_set set;
  cr_assert_eq(results_load(&path, 1, &set), ATTN_OK, "%s", attn_last_error());
  return kept_set(set);
}
static inline result_set read_results(const char *path) {
  result_set set;
  cr_assert_eq(results_read(path, &set), ATTN_OK, "%s", attn_last_error());
  return kept_set(set);
}
static inline result_set join_results(const char *const *paths, size_t count) {
  result_set set;
  cr_assert_eq(results_join(paths, count, &set), ATTN_OK, "%s", attn_last_error());
  return kept_set(set);
}

static inline void release_model(void *model) { model_free(model); }

/* The model of a set; kept. */
static inline results_model model_of(const result_set *set) {
  results_model model;
  cr_assert_eq(model_make(set, &model), ATTN_OK, "%s", attn_last_error());
  return *(results_model *)keep_copy(&model, sizeof model, release_model);
}

/* As fixture_text. */
static inline char *fixture_printed(attn_status (*print)(FILE *, const result_set *), const result_set *set) {
  const char *path = fixture_path("printed");
  FILE *file = fopen(path, "w");
  cr_assert(file && !print(file, set), "%s", attn_last_error());
  fclose(file);
  return fixture_text(path);
}

static inline size_t fixture_read(const char *path, char **bytes) {
  size_t size;
  *bytes = fixture_bytes(path, &size);
  return size;
}

static inline void expect_same_bytes(const char *a, const char *b) {
  char *first, *second;
  const size_t size = fixture_read(a, &first);
  cr_assert_eq(fixture_read(b, &second), size, "%s and %s", a, b);
  cr_assert_eq(memcmp(first, second, size), 0, "%s and %s", a, b);
  free(first);
  free(second);
}

/* -- whether two rows are the same, bit for bit; all NaN are alike -- */

static inline bool same_number(double a, double b) {
  return (isnan(a) && isnan(b)) || memcmp(&a, &b, sizeof a) == 0;
}

static inline bool same_bound(const result_bound *a, const result_bound *b) {
  return strcmp(a->name, b->name) == 0 && strcmp(a->message, b->message) == 0 && a->kind == b->kind &&
         a->verdict == b->verdict && same_number(a->value, b->value) &&
         same_number(a->measured, b->measured) && same_number(a->margin, b->margin) &&
         same_number(a->p_value, b->p_value) && same_number(a->p_repeat, b->p_repeat);
}

static inline const result_bound *bound_named(const result_row *row, const char *name) {
  for (int i = 0; i < result_row_cells(row); i++)
    if (strcmp(result_row_cell(row, i)->name, name) == 0) return result_row_cell(row, i);
  return NULL;
}

static inline double param_named(const result_row *row, const char *name) {
  for (int i = 0; i < row->p_count; i++)
    if (strcmp(row->p[i].name, name) == 0) return row->p[i].value;
  return (double)NAN;
}

/* "(none)" if there is none, "(number)" of a number. */
static inline const char *text_named(const result_row *row, const char *name) {
  for (int i = 0; i < row->p_count; i++)
    if (strcmp(row->p[i].name, name) == 0) return row->p[i].text ? row->p[i].text : "(number)";
  return "(none)";
}

/* The name of something that differs, or "". Bounds and parameters may come in any order. */
static inline const char *rows_difference(const result_row *a, const result_row *b) {
  for (const result_column *c = result_columns; c->name; c++) {
    if (c->type == COLUMN_TEXT && strcmp(result_column_text(a, c), result_column_text(b, c)) != 0)
      return c->name;
    if (c->type == COLUMN_F64 && !same_number(result_column_f64(a, c), result_column_f64(b, c)))
      return c->name;
    if (c->type != COLUMN_TEXT && c->type != COLUMN_F64 && result_column_int(a, c) != result_column_int(b, c))
      return c->name;
  }
  if (a->p_count != b->p_count) return "number of parameters";
  for (int i = 0; i < a->p_count; i++)
    if (!same_number(a->p[i].value, param_named(b, a->p[i].name)) ||
        strcmp(text_named(a, a->p[i].name), text_named(b, a->p[i].name)) != 0)
      return a->p[i].name;
  if (!a->samples != !b->samples || !a->rounds != !b->rounds) return "presence of samples";
  for (int64_t i = 0; a->samples && i < a->n_samples; i++)
    if (!same_number(a->samples[i], b->samples[i]) || a->rounds[i] != b->rounds[i]) return "samples";
  for (int i = 0; i < RESULT_PROFILE_BINS; i++)
    if (!same_number(a->profile_l2[i], b->profile_l2[i]) ||
        !same_number(a->profile_max[i], b->profile_max[i]))
      return "profile";
  if (!a->map != !b->map || (a->map && memcmp(a->map, b->map, 2 * result_map_size(a) * sizeof *a->map) != 0))
    return "map";
  if (result_row_cells(a) != result_row_cells(b)) return "number of bounds";
  for (int i = 0; i < result_row_cells(a); i++) {
    const result_bound *cell = result_row_cell(a, i), *other = bound_named(b, cell->name);
    if (!other || !same_bound(cell, other)) return cell->name;
  }
  return "";
}

/* The file of journals, as attnlab merge makes it; *torn, unless NULL: lines left out. */
static inline attn_status results_merge(const char *path, const char *const *journals, size_t count,
                                        size_t *torn) {
  result_set set;
  result_set_init(&set);
  attn_status status = results_load(journals, count, &set);
  if (!status) status = results_write(path, &set);
  if (torn) *torn = set.torn;
  result_set_free(&set);
  return status;
}

/* The results file NAME.h5 of rows first, first + 1, ... in the journal NAME.jsonl. */
static inline const char *fixture_results(const char *name, int64_t first, int64_t count) {
  char source[64], file[64];
  snprintf(source, sizeof source, "%s.jsonl", name);
  snprintf(file, sizeof file, "%s.h5", name);
  const char *from = fixture_path(source), *to = fixture_path(file);
  unlink(from);
  unlink(to);
  cr_assert_eq(fixture_journal(from, first, 1, count, 1e9), ATTN_OK);
  cr_assert_eq(results_merge(to, &from, 1, NULL), ATTN_OK, "%s", attn_last_error());
  return to;
}

#endif
