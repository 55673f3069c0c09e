/* read_groups.c - /samples, /profile, /maps, /bounds and /provenance of a results file. */
#include "experiments/results/hdf5/groups.h"

#include "experiments/results/bound.h"
#include "experiments/support/names.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Opens a group; *out is absent (group < 0) where the file has none. */
attn_status results_open_group(const h5_source *root, const char *name, const char *label, h5_source *out) {
  *out = (h5_source){.group = -1, .path = root->path, .name = label};
  if (!h5_has(root, name)) return ATTN_OK;
  out->group = H5Gopen2(root->group, name, H5P_DEFAULT);
  return out->group >= 0 ? ATTN_OK : attn_fail(ATTN_EINVAL, "%s: %s: not a group", root->path, label);
}

/* A run's samples and their rounds, if they were kept. */
static attn_status take_samples(const h5_source *s, const double *wall, const int32_t *rounds, size_t room,
                                result_row *row) {
  if (row->n_samples <= 0 || (size_t)row->n_samples > room || (isnan(wall[0]) && rounds[0] < 0))
    return ATTN_OK;
  const size_t count = (size_t)row->n_samples;
  if (rounds[0] >= 0) row->rounds = calloc(count, sizeof *row->rounds);
  row->samples = calloc(count, sizeof *row->samples);
  if (!row->samples || (rounds[0] >= 0 && !row->rounds))
    return attn_fail(ATTN_ENOMEM, "%s: out of memory for samples", s->path);
  memcpy(row->samples, wall, count * sizeof *wall);
  if (row->rounds) memcpy(row->rounds, rounds, count * sizeof *rounds);
  return ATTN_OK;
}

attn_status results_read_samples(const h5_source *root, result_set *set) {
  h5_source s;
  size_t lengths[2];
  attn_status status = results_open_group(root, "samples", "/samples/", &s);
  if (status || s.group < 0) return status;
  status = h5_lengths(&s, "time_wall", 2, lengths);
  while (!status && h5_next_rows(&s, set->count)) {
    double *wall = NULL;
    int32_t *rounds = NULL;
    lengths[0] = s.rows;
    status = h5_read_f64(&s, "time_wall", 2, lengths, &wall);
    if (!status) status = h5_read_i32(&s, "round", 2, lengths, &rounds);
    for (size_t i = 0; !status && i < s.rows; i++)
      status = take_samples(&s, wall + i * lengths[1], rounds + i * lengths[1], lengths[1],
                            &set->rows[s.first + i]);
    free(wall);
    free(rounds);
  }
  H5Gclose(s.group);
  return status;
}

attn_status results_read_profile(const h5_source *root, result_set *set) {
  h5_source s;
  attn_status status = results_open_group(root, "profile", "/profile/", &s);
  if (status || s.group < 0) return status;
  while (!status && h5_next_rows(&s, set->count)) {
    const size_t lengths[2] = {s.rows, RESULT_PROFILE_BINS};
    double *l2 = NULL, *max = NULL;
    status = h5_read_f64(&s, "err_rel_l2", 2, lengths, &l2);
    if (!status) status = h5_read_f64(&s, "err_max", 2, lengths, &max);
    for (size_t i = 0; !status && i < s.rows; i++) {
      result_row *row = &set->rows[s.first + i];
      memcpy(row->profile_l2, l2 + i * RESULT_PROFILE_BINS, sizeof row->profile_l2);
      memcpy(row->profile_max, max + i * RESULT_PROFILE_BINS, sizeof row->profile_max);
    }
    free(l2);
    free(max);
  }
  H5Gclose(s.group);
  return status;
}

/* ---- /maps --------------------------------------------------------------------------------------------- */

/* Takes the cells of a map that belong to a row's n; lengths are those of the variable. */
static attn_status take_map(const h5_source *s, const size_t *lengths, const float *exact,
                            const float *approx, result_row *row) {
  const size_t count = result_map_size(row), columns = count ? (size_t)result_map_cells(row->n_kv) : 0;
  if (row->map || count == 0 || columns > lengths[2] || count / columns > lengths[1])
    return attn_fail(ATTN_EINVAL, "%s: %smap_run: run %s has another map, or not the lengths of this one",
                     s->path, s->name, row->key);
  if (!(row->map = calloc(2 * count, sizeof *row->map)))
    return attn_fail(ATTN_ENOMEM, "%s: out of memory for /maps", s->path);
  for (size_t i = 0; i < count; i++) {
    const size_t at = i / columns * lengths[2] + i % columns;
    row->map[i] = exact[at];
    row->map[count + i] = approx[at];
    if (!isfinite(exact[at]) || !isfinite(approx[at]))
      return attn_fail(ATTN_EINVAL, "%s: %sthe map of run %s has weights that are not finite", s->path,
                       s->name, row->key);
  }
  return ATTN_OK;
}

attn_status results_read_maps(const h5_source *root, result_set *set) {
  h5_source s;
  size_t lengths[3];
  float *exact = NULL, *approx = NULL;
  int64_t *runs = NULL;
  attn_status status = results_open_group(root, "maps", "/maps/", &s);
  if (status || s.group < 0) return status;
  status = h5_lengths(&s, "attn_exact", 3, lengths);
  if (!status) status = h5_read_i64(&s, "map_run", 1, lengths, &runs);
  if (!status) status = h5_read_f32(&s, "attn_exact", 3, lengths, &exact);
  if (!status) status = h5_read_f32(&s, "attn_approx", 3, lengths, &approx);
  for (size_t m = 0; !status && m < lengths[0]; m++) {
    const size_t first = m * lengths[1] * lengths[2];
    if (runs[m] < 0 || (uint64_t)runs[m] >= set->count)
      status =
          attn_fail(ATTN_EINVAL, "%s: %smap_run: there is no run %lld", s.path, s.name, (long long)runs[m]);
    else
      status = take_map(&s, lengths, exact + first, approx + first, &set->rows[runs[m]]);
  }
  free(runs);
  free(exact);
  free(approx);
  H5Gclose(s.group);
  return status;
}

/* ---- /bounds ------------------------------------------------------------------------------------------- */

/* Cells of some runs; the last columns of the schema that the file lacks stay as bound_begin leaves them. */
static attn_status read_cells(const h5_source *s, const char *const *found, size_t count, result_bound *cells,
                              const row_layout *l, char *rows) {
  const size_t lengths[2] = {s->rows, count};
  attn_status status = ATTN_OK;
  for (size_t i = 0; i < s->rows * count; i++) bound_begin(&cells[i], found[i % count], KIND_HARD);
  for (const result_column *c = result_bound_columns; !status && c->name; c++)
    status = h5_column_read(s, c, 2, lengths, cells, sizeof *cells);
  for (size_t i = 0; !status && i < s->rows; i++)
    status = l->take(rows + i * l->kind->size, &cells[i * count], (int)count);
  return status;
}

/* The names of the bounds, kept. */
static attn_status read_names(const h5_source *s, const char *bound, size_t count, const char ***out) {
  char **texts = NULL;
  attn_status status = h5_read_texts(s, bound, 1, &count, &texts);
  const char **kept = status ? NULL : calloc(count + 1, sizeof *kept);
  for (size_t b = 0; kept && b < count; b++)
    if (!(kept[b] = names_keep(texts[b]))) status = ATTN_ENOMEM;
  h5_texts_free(texts, texts ? count : 0);
  if (!status && !kept) status = ATTN_ENOMEM;
  if (status == ATTN_ENOMEM) attn_fail(status, "%s: out of memory for /bounds", s->path);
  if (status)
    free((void *)kept);
  else
    *out = kept;
  return status;
}

attn_status results_read_bounds(const h5_source *root, const row_layout *l, result_set *set) {
  h5_source s;
  size_t count = 0, bytes;
  const char **found = NULL;
  result_bound *cells = NULL;
  attn_status status = results_open_group(root, l->bounds, "/bounds/", &s);
  if (status || s.group < 0) return status;
  status = h5_lengths(&s, l->bound, 1, &count);
  if (!status) status = read_names(&s, l->bound, count, &found);
  while (!status && count && h5_next_rows(&s, set->count)) {
    const int64_t factors[] = {(int64_t)s.rows, (int64_t)count, (int64_t)sizeof *cells};
    status = attn_size_product("/bounds", factors, 3, &bytes);
    if (!status && !(cells = malloc(bytes + 1)))
      status = attn_fail(ATTN_ENOMEM, "%s: out of memory for /bounds", s.path);
    if (!status)
      status = read_cells(&s, found, count, cells, l, (char *)set->items + s.first * l->kind->size);
    free(cells);
    cells = NULL;
  }
  free((void *)found);
  H5Gclose(s.group);
  return status;
}

/* ---- /provenance --------------------------------------------------------------------------------------- */

static attn_status read_about(const h5_source *s, const char *name, size_t count, json_t *sessions) {
  char **texts = NULL;
  double *numbers = NULL;
  /* Text, else a number; git_dirty is the one truth value. */
  attn_status status = h5_read_texts(s, name, 1, &count, &texts);
  if (status) status = h5_read_f64(s, name, 1, &count, &numbers);
  for (size_t i = 0; !status && i < count; i++) {
    json_t *value = texts                            ? result_json_text(texts[i])
                    : strcmp(name, "git_dirty") == 0 ? json_boolean(numbers[i] > 0)
                                                     : result_json_number(numbers[i]);
    if (json_object_set_new(json_array_get(sessions, i), name, value))
      status = attn_fail(ATTN_ENOMEM, "%s: out of memory for /provenance", s->path);
  }
  h5_texts_free(texts, count);
  free(numbers);
  return status;
}

attn_status results_read_provenance(const h5_source *root, result_set *set) {
  h5_source s;
  size_t lengths[2] = {0, 1}, count = 0;
  char **members = NULL;
  attn_status status = results_open_group(root, "provenance", "/provenance/", &s);
  set->sessions = json_array();
  if (!status && s.group >= 0) status = h5_lengths(&s, "session", 1, lengths);
  if (!status && s.group >= 0) status = h5_members(&s, &members, &count);
  for (size_t i = 0; !status && i < lengths[0]; i++)
    if (json_array_append_new(set->sessions, json_object()))
      status = attn_fail(ATTN_ENOMEM, "%s: out of memory for /provenance", s.path);
  for (size_t i = 0; !status && i < count; i++)
    if (strcmp(members[i], "session") != 0) status = read_about(&s, members[i], lengths[0], set->sessions);
  h5_texts_free(members, count);
  if (s.group >= 0) H5Gclose(s.group);
  return status;
}
