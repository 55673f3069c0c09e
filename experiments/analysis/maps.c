/* maps.c - the attention maps of a model: pictures of one byte a cell, and the numbers that tell them apart.
 *
 * {"pictures": [{"rows", "columns", "cells": base64, "numbers": [weight, near, first, negative] or null}],
 *  "of": [[group, line, cell, exact, approx, difference, moved, most moved]]}
 * A byte is 128 for a value within 1e-4 of 0, else 128 plus or minus 1 to 127, linear in log |value| up to 1.
 * The numbers are means over rows of a row's sum, of its part within n / 16 of the row's own position, of
 * that on the first sixteenth of the keys, and of that below 0; moved is the mean (and largest) total
 * variation distance of exact and implied rows. */
#include "experiments/analysis/maps.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "experiments/support/base64.h"

enum { SIDE_MIN = 16, BYTES_MAX = 4 << 20 };

typedef struct matrix {
  const float *cells;
  int64_t rows, columns;
} matrix;

static unsigned char shade(double value) {
  const double size = fabs(value), level = size > 0 ? round(127 * (1 + log10(size) / 4)) : 0;
  const int step = level > 127 ? 127 : level > 0 ? (int)level : 0;
  return (unsigned char)(value < 0 ? 128 - step : 128 + step);
}

/* The picture of a matrix with at most `side` cells along an axis: further means over rows, sums over
 * columns. */
static json_t *picture(const matrix *m, int64_t side) {
  const int64_t rows = m->rows < side ? m->rows : side, columns = m->columns < side ? m->columns : side;
  const size_t count = (size_t)(rows * columns);
  double *sums = calloc(count, sizeof *sums);
  unsigned char *bytes = malloc(count);
  json_t *out = NULL;
  char *text = NULL;
  if (!sums || !bytes) goto out;
  for (int64_t r = 0; r < m->rows; r++) {
    const int64_t to = r * rows / m->rows;
    const int64_t joined = ((to + 1) * m->rows + rows - 1) / rows - (to * m->rows + rows - 1) / rows;
    for (int64_t c = 0; c < m->columns; c++)
      sums[to * columns + c * columns / m->columns] += (double)m->cells[r * m->columns + c] / (double)joined;
  }
  for (size_t i = 0; i < count; i++) bytes[i] = shade(sums[i]);
  if ((text = base64_encode(bytes, count)))
    out = json_pack("{s:I, s:I, s:s, s:n}", "rows", (json_int_t)rows, "columns", (json_int_t)columns, "cells",
                    text, "numbers");
out:
  free(text);
  free(bytes);
  free(sums);
  return out;
}

static json_t *numbers(const matrix *m) {
  double weight = 0, near = 0, first = 0, negative = 0;
  for (int64_t r = 0; r < m->rows; r++)
    for (int64_t c = 0; c < m->columns; c++) {
      const double w = (double)m->cells[r * m->columns + c] / (double)m->rows;
      const double away = ((double)c + 0.5) / (double)m->columns - ((double)r + 0.5) / (double)m->rows;
      weight += w;
      if (fabs(away) <= 1.0 / 16) near += w;
      if (16 * c < m->columns) first += w;
      if (w < 0) negative += w;
    }
  return json_pack("[f, f, f, f]", weight, near, first, negative);
}

/* The number of a new picture in the list; -1: no memory. */
static json_int_t add_picture(json_t *pictures, const matrix *m, int64_t side, bool weights) {
  json_t *one = picture(m, side);
  if (!one || (weights && json_object_set_new(one, "numbers", numbers(m))) ||
      json_array_append(pictures, one)) {
    json_decref(one);
    return -1;
  }
  json_decref(one);
  return (json_int_t)json_array_size(pictures) - 1;
}

/* The first seed of a cell that has a map. */
static const result_row *mapped_row(const results_model *m, const model_cell *c) {
  for (size_t i = 0; i < c->count; i++)
    if (m->rows[c->first + i]->map) return m->rows[c->first + i];
  return NULL;
}

/* Runs of a group on the same data have the same exact map, which is shown once. */
typedef struct shown_exact {
  const result_row *row;
  json_int_t picture;
} shown_exact;

static bool same_exact(const result_row *a, const result_row *b) {
  return a->n == b->n && memcmp(a->map, b->map, result_map_size(a) * sizeof *a->map) == 0;
}

/* Appends to both arrays what the page needs of one map. */
static bool add_map(const result_row *row, int64_t side, json_int_t exact, json_t *pictures, json_t *place) {
  const size_t count = result_map_size(row);
  const int64_t columns = result_map_cells(row->n_kv), rows = result_map_cells(row->n);
  const matrix approx = {row->map + count, rows, columns};
  float *difference = malloc(count * sizeof *difference);
  double moved = 0, most = 0;
  if (!difference) return false;
  for (int64_t r = 0; r < rows; r++) {
    double distance = 0;
    for (int64_t i = r * columns; i < (r + 1) * columns; i++) {
      difference[i] = row->map[(int64_t)count + i] - row->map[i];
      distance += fabs((double)difference[i]) / 2;
    }
    moved += distance / (double)rows;
    most = fmax(most, distance);
  }
  const json_int_t own = add_picture(pictures, &approx, side, true);
  const json_int_t less = add_picture(pictures, &(matrix){difference, rows, columns}, side, false);
  free(difference);
  return own >= 0 && less >= 0 && !json_array_append_new(place, json_integer(exact)) &&
         !json_array_append_new(place, json_integer(own)) &&
         !json_array_append_new(place, json_integer(less)) &&
         !json_array_append_new(place, json_real(moved)) && !json_array_append_new(place, json_real(most));
}

/* The maps of a group; exacts has room for one of each cell. */
static bool add_group(const results_model *m, size_t g, int64_t side, shown_exact *exacts, json_t *pictures,
                      json_t *of) {
  const model_group *group = &m->groups[g];
  size_t known = 0;
  for (size_t l = 0; l < group->count; l++)
    for (size_t c = 0; c < group->lines[l].count; c++) {
      const result_row *row = mapped_row(m, &group->lines[l].cells[c]);
      if (!row) continue;
      size_t e = 0;
      while (e < known && !same_exact(exacts[e].row, row)) e++;
      if (e == known) {
        const matrix exact = {row->map, result_map_cells(row->n), result_map_cells(row->n_kv)};
        exacts[known++] = (shown_exact){row, add_picture(pictures, &exact, side, true)};
        if (exacts[e].picture < 0) return false;
      }
      json_t *place = json_pack("[I, I, I]", (json_int_t)g, (json_int_t)l, (json_int_t)c);
      if (!place || !add_map(row, side, exacts[e].picture, pictures, place) || json_array_append(of, place)) {
        json_decref(place);
        return false;
      }
      json_decref(place);
    }
  return true;
}

json_t *maps_json(const results_model *m) {
  size_t maps = 0;
  for (size_t i = 0; i < m->set->count; i++) maps += m->rows[i]->map != NULL;
  int64_t side = RESULT_MAP_CELLS;
  while (side > SIDE_MIN && 2 * maps * (size_t)(side * side) > BYTES_MAX) side /= 2;
  json_t *pictures = json_array(), *of = json_array();
  shown_exact *exacts = calloc(maps + 1, sizeof *exacts);
  bool good = pictures && of && exacts;
  for (size_t g = 0; good && g < m->groups_count; g++) good = add_group(m, g, side, exacts, pictures, of);
  free(exacts);
  if (good) return json_pack("{s:o, s:o}", "pictures", pictures, "of", of);
  json_decref(pictures);
  json_decref(of);
  return NULL;
}
