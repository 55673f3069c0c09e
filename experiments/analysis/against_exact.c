/* against_exact.c - each line of a group against exact attention: log ratios of times, paired by round. */
#include "experiments/analysis/against_exact.h"

#include <math.h>
#include <stdlib.h>

/* The mean log time of a round; NaN if it has none. */
static double round_log(const result_row *row, int32_t round) {
  double sum = 0;
  int64_t count = 0;
  for (int64_t i = 0; i < row->n_samples; i++)
    if (row->rounds[i] == round && row->samples[i] > 0) {
      sum += log(row->samples[i]);
      count++;
    }
  return count ? sum / (double)count : (double)NAN;
}

static bool has_rounds(const result_row *row) { return row->samples && row->rounds && row->n_samples > 0; }

/* Rounds are of the runs on one draw of the data, in one session. */
static bool share_rounds(const result_row *a, const result_row *b) {
  return has_rounds(a) && has_rounds(b) && a->data_seed == b->data_seed && a->session == b->session;
}

/* Appends the ratios of a run, one for each round that both runs have. Without such it is the ratio of the
 * medians. */
static size_t add_ratios(const result_row *row, const result_row *exact, double *out) {
  size_t count = 0;
  if (share_rounds(row, exact))
    for (int64_t i = 0; i < row->n_samples; i++) {
      if (i > 0 && row->rounds[i] == row->rounds[i - 1]) continue;
      const double ratio = round_log(row, row->rounds[i]) - round_log(exact, row->rounds[i]);
      if (!isnan(ratio)) out[count++] = ratio;
    }
  const double ratio = log(row->time_median / exact->time_median);
  if (count == 0 && isfinite(ratio)) out[count++] = ratio;
  return count;
}

static bool timed(const result_row *row) { return row->status == RUN_OK && row->time_median > 0; }

/* The exact run that shares rounds with a run, of its seed if there is one; else the first: exact variants
 * draw nothing and run once for all seeds. */
static const result_row *partner(const results_model *m, const model_cell *exact, const result_row *of) {
  const result_row *first = NULL, *shared = NULL;
  for (size_t i = 0; i < exact->count; i++) {
    const result_row *row = m->rows[exact->first + i];
    if (!timed(row)) continue;
    if (!first) first = row;
    if (share_rounds(of, row) && (!shared || row->seed == of->seed)) shared = row;
  }
  return shared ? shared : first;
}

static attn_status fill_ratios(const results_model *m, const model_cell *c, const model_cell *exact,
                               fit_ratios *out) {
  size_t room = 0, count = 0;
  for (size_t i = 0; i < c->count; i++) {
    const int64_t samples = m->rows[c->first + i]->n_samples;
    room += 1 + (samples > 0 ? (size_t)samples : 0);
  }
  double *log_ratios = calloc(room, sizeof *log_ratios);
  if (!log_ratios) return attn_fail(ATTN_ENOMEM, "out of memory for the speed-ups of a report");
  for (size_t i = 0; i < c->count; i++) {
    const result_row *row = m->rows[c->first + i], *other = partner(m, exact, row);
    if (other && timed(row)) count += add_ratios(row, other, log_ratios + count);
  }
  *out = (fit_ratios){(double)c->n, log_ratios, count};
  return ATTN_OK;
}

/* Compares a line with the exact one at the lengths at which both were timed. */
static attn_status compare_line(const results_model *m, model_line *line, const model_line *exact) {
  attn_status status = ATTN_OK;
  fit_ratios *ratios = calloc(line->count, sizeof *ratios);
  fit_interval *speedups = calloc(line->count, sizeof *speedups);
  model_cell **cells = calloc(line->count, sizeof *cells);
  size_t used = 0;
  if (!ratios || !speedups || !cells)
    status = attn_fail(ATTN_ENOMEM, "out of memory for the speed-ups of a report");
  for (size_t i = 0, j = 0; !status && i < line->count; i++) {
    while (j < exact->count && exact->cells[j].n < line->cells[i].n) j++;
    if (j == exact->count || exact->cells[j].n != line->cells[i].n) continue;
    status = fill_ratios(m, &line->cells[i], &exact->cells[j], &ratios[used]);
    if (status) break;
    if (ratios[used].count == 0)
      free(ratios[used].log);
    else
      cells[used++] = &line->cells[i];
  }
  if (!status) status = fit_cross(ratios, used, &line->crossing, speedups);
  for (size_t i = 0; i < used; i++) {
    if (!status) cells[i]->speedup = speedups[i];
    free(ratios[i].log);
  }
  free(ratios);
  free(speedups);
  free(cells);
  return status;
}

/* The exact line of a file with the most timed lengths. Of several, the one with the least times. */
static size_t choose_exact(const results_model *m, const model_group *g, const char *file) {
  size_t best = g->count, most = 0;
  double least = 0;
  for (size_t l = 0; l < g->count; l++) {
    size_t count = 0;
    double sum = 0;
    const setting *of = &m->settings[g->lines[l].setting];
    if (!of->exact || of->row->source != file) continue;
    for (size_t c = 0; c < g->lines[l].count; c++)
      if (g->lines[l].cells[c].time.mid > 0) {
        count++;
        sum += log(g->lines[l].cells[c].time.mid);
      }
    if (count > most || (count == most && count > 0 && sum < least)) {
      best = l;
      most = count;
      least = sum;
    }
  }
  return best;
}

attn_status compare_group(const results_model *m, model_group *g) {
  attn_status status = ATTN_OK;
  for (size_t l = 0; !status && l < g->count; l++) {
    model_line *line = &g->lines[l];
    line->exact = choose_exact(m, g, m->settings[line->setting].row->source);
    if (line->exact < g->count && line->exact != l) status = compare_line(m, line, &g->lines[line->exact]);
  }
  return status;
}
