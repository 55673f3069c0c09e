/* record.c - columns of an evaluation, and how they are computed (record.h). */
#include "experiments/quality/record.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "data/support/file.h"
#include "experiments/mathematics/statistics.h"
#include "experiments/results/row.h"

#define FIELD(column, type_, field, units_, text, ...)                                         \
  {                                                                                            \
    .name = column, .type = type_, .offset = offsetof(quality_record, field), .units = units_, \
    .long_name = text, __VA_ARGS__                                                             \
  }
#define TEXT(name, text) FIELD(#name, COLUMN_TEXT, name, NULL, text, .flags = NULL)
#define COUNT(name, from, text) \
  FIELD(#name, COLUMN_I64, name, "1", text, .least = (from), .most = (double)INFINITY)
#define MEASURE(name, units, text) FIELD(#name, COLUMN_F64, name, units, text, .measure = true)
/* A measure that is never negative. */
#define SIZE(name, text) \
  FIELD(#name, COLUMN_F64, name, "1", text, .measure = true, .least = 0, .most = (double)INFINITY)
/* Of time, and of the runs beside it. */
#define VARYING(name, units, text) \
  FIELD(#name, COLUMN_F64, name, units, text, .measure = true, .varies = true)
#define FLAG(name, field, names, text, ...) \
  FIELD(name, COLUMN_FLAG, field, "1", text, .flags = names, __VA_ARGS__)

const result_column quality_columns[] = {
    TEXT(key, "canonical text of everything that defines the run"),
    TEXT(variant, "attention variant"),
    TEXT(spec, "variant with all its parameters"),
    TEXT(model, "model"),
    TEXT(model_sha256, "SHA-256 of the model's weights"),
    TEXT(config_sha256, "SHA-256 of the file that says how the weights are used"),
    TEXT(data, "text or token ids"),
    TEXT(data_sha256, "SHA-256 of that file"),
    TEXT(tokens_sha256, "SHA-256 of the token ids of all windows, and of which of them are scored"),
    TEXT(task, "what the model was asked, with all parameters"),
    TEXT(layers, "layers whose attention was replaced"),
    TEXT(heads, "query heads whose attention was replaced"),
    TEXT(phase, "queries whose attention was replaced"),
    COUNT(n, 0, "positions of a window"),
    COUNT(windows, 0, "windows, the units of every interval"),
    COUNT(bos, -1, "token that begins each window; -1: none"),
    COUNT(seed, 0, "seed of the windows"),
    MEASURE(mix, "1", "o = o_exact + mix (o_variant - o_exact)"),
    TEXT(isa, "instruction set of the kernels"),
    COUNT(block_q, 0, "queries that share keys, where no variant sets it"),
    COUNT(block_k, 0, "keys of an online step, where no variant sets it"),
    TEXT(plugin_sha256, "SHA-256 of the shared objects that the variants were loaded from; empty: none"),
    TEXT(files_sha256, "SHA-256 of the files that the variants' parameters name"),
    TEXT(build, "SHA-256 of the program"),
    COUNT(session, 0, "index into /provenance"),
    FIELD("end_time", COLUMN_F64, end_time, "seconds since 1970-01-01 00:00:00", "end of the run",
          .varies = true),
    FLAG("status", status, run_status_names, "how the run ended", .varies = true),
    TEXT(message, "why the run did not end well"),
    SIZE(density, "share of causal pairs that was read; NaN: neither a pattern, a selection nor exact"),
    SIZE(mass_left, "exact weight of the keys that are not read, mean over queries at scored positions"),
    MEASURE(kv_bits, "1", "bits of a cache after the last position, for an element of each key and value"),
    SIZE(attention_error, "relative error of the replaced attention's output, in the model as it runs"),
    VARYING(attention_time, "s", "time in the variant, over all windows and layers"),
    MEASURE(nll_uniform, "1", "negative log-likelihood of the uniform distribution, nats a token"),
    MEASURE(nll_unigram, "1", "that of the scored tokens' own frequencies"),
    MEASURE(nll_exact, "1", "negative log-likelihood of the exact model, nats a token"),
    MEASURE(nll, "1", "negative log-likelihood, nats a token"),
    MEASURE(dnll, "1", "nll - nll_exact, mean over windows"),
    MEASURE(dnll_lo, "1", "lower end of the 95 % t-interval of dnll over windows"),
    MEASURE(dnll_hi, "1", "upper end of the 95 % t-interval of dnll over windows"),
    MEASURE(ppl_ratio, "1", "perplexity over the exact model's: exp(dnll)"),
    MEASURE(kl, "1", "Kullback-Leibler divergence from the exact distribution, nats, mean"),
    MEASURE(kl_lo, "1", "lower end of the 95 % t-interval of kl over windows"),
    MEASURE(kl_hi, "1", "upper end of the 95 % t-interval of kl over windows"),
    MEASURE(kl_median, "1", "median over positions of the divergence"),
    MEASURE(kl_p99, "1", "99 % quantile over positions of the divergence"),
    MEASURE(kl_max, "1", "largest divergence of a position"),
    SIZE(top1, "share of positions whose most likely token stays"),
    MEASURE(top1_lo, "1", "lower end of the 95 % t-interval of top1 over windows"),
    MEASURE(top1_hi, "1", "upper end of the 95 % t-interval of top1 over windows"),
    SIZE(top1_certified, "share of positions where it must: the margin is above the range of the change"),
    SIZE(dp_rms, "root mean square change of the probability of the token that follows"),
    SIZE(range_median, "median over positions of max - min of the change of the logits"),
    SIZE(right_exact, "share of scored tokens that are the exact model's most likely"),
    SIZE(right, "share of scored tokens that are the most likely"),
    SIZE(score_exact, "share of windows whose scored tokens all are, exact model"),
    MEASURE(score_exact_lo, "1", "lower end of its 95 % Clopper-Pearson interval"),
    MEASURE(score_exact_hi, "1", "upper end of its 95 % Clopper-Pearson interval"),
    SIZE(score, "share of windows whose scored tokens all are the most likely"),
    MEASURE(score_lo, "1", "lower end of its 95 % Clopper-Pearson interval"),
    MEASURE(score_hi, "1", "upper end of its 95 % Clopper-Pearson interval"),
    MEASURE(score_diff, "1", "score - score_exact"),
    MEASURE(score_diff_lo, "1", "lower end of its 95 % interval: bootstrap over pairs of windows"),
    MEASURE(score_diff_hi, "1", "upper end of its 95 % interval"),
    SIZE(lost, "windows that the exact model answers and the replaced one does not; NaN: no answers"),
    SIZE(won, "windows that the replaced model answers and the exact one does not"),
    SIZE(score_p, "two-sided p of McNemar's exact test on lost and won"),
    FIELD("score_p_holm", COLUMN_F64, score_p_holm, "1",
          "score_p after Holm's correction over the runs on the same windows", .measure = true,
          .varies = true, .least = 0, .most = (double)INFINITY),
    MEASURE(margin, "1", "what counts as no worse, nats a token"),
    FLAG("word", word, quality_words, "dnll's interval against the margin", .measure = false),
    VARYING(word_p, "1", "two-sided p of Student's test that dnll is the margin"),
    FLAG("word_holm", word_holm, quality_words,
         "what word_p says at 5 % after Holm's correction over the runs on the same windows", .varies = true),
    FIELD("doubt", COLUMN_BOOL, doubt, "1",
          "the likelihood is better, and the distribution another: dnll's interval below 0, kl's above the "
          "margin",
          .flags = NULL),
    VARYING(sensitivity, "1", "kl / attention_error^2"),
    MEASURE(kl_budget, "1", "divergence that error_allowed is for, nats"),
    VARYING(error_allowed, "1",
            "attention error that these m of all L layers may have: sqrt(kl_budget m / (L sensitivity))"),
    VARYING(additivity, "1", "sum of the layers' kl, replaced one by one, over the kl of all"),
    FLAG("verdict", verdict, check_verdict_names, "worst verdict of the run's checks", .varies = true),
    {.name = NULL}};

#define SERIES(group, dimension, about, by, name, field, long_name) \
  { group, dimension, about, name, long_name, offsetof(quality_record, field), by }
#define WINDOW(name, long_name) \
  SERIES("by_window", "window", "number of the window", BY_WINDOW, #name, window_##name, long_name)
#define BIN(name, long_name)                                                                              \
  SERIES("by_position", "position", "upper end of a bin of the position, as a power of n", BY_BIN, #name, \
         bin_##name, long_name)

const quality_series quality_series_list[QUALITY_SERIES] = {
    WINDOW(dnll, "change of the negative log-likelihood, nats a token"),
    WINDOW(kl, "Kullback-Leibler divergence, nats"),
    WINDOW(top1, "share of positions whose most likely token stays"),
    BIN(nll, "negative log-likelihood of the exact model, nats a token"),
    BIN(dnll, "change of the negative log-likelihood, nats a token"),
    BIN(kl, "Kullback-Leibler divergence, nats"),
    BIN(top1, "share of positions whose most likely token stays"),
    SERIES("by_layer", "layer", "number of the layer", BY_LAYER, "error", layer_error,
           "relative error of the attention's output"),
};

double *quality_series_values(const quality_record *r, const quality_series *s) {
  double *at;
  memcpy(&at, (const char *)r + s->offset, sizeof at);
  return at;
}

int64_t quality_series_length(const quality_record *r, const quality_series *s) {
  if (!quality_series_values(r, s)) return 0;
  return s->by == BY_WINDOW ? r->windows : s->by == BY_BIN ? QUALITY_BINS : r->layer_count;
}

attn_status quality_record_init(quality_record *r) {
  *r = (quality_record){.verdict = VERDICT_UNCHECKED};
  result_bound empty[QUALITY_CHECKS];
  quality_checks_begin(empty);
  for (int i = 0; i < QUALITY_CHECKS; i++)
    if (bounds_add(&r->checks, &r->check_count, &empty[i])) {
      quality_record_free(r);
      return ATTN_ENOMEM;
    }
  for (const result_column *c = quality_columns; c->name; c++) {
    if (c->type == COLUMN_F64) result_column_set_f64(r, c, (double)NAN);
    if (c->type == COLUMN_TEXT && result_column_set_text(r, c, "")) {
      quality_record_free(r);
      return attn_fail(ATTN_ENOMEM, "no memory for a run's record");
    }
  }
  return ATTN_OK;
}

attn_status quality_record_take_checks(quality_record *r, const result_bound *cells, int count) {
  attn_status status = ATTN_OK;
  for (int i = 0; !status && i < count; i++) {
    int place = 0;
    while (place < QUALITY_CHECKS && strcmp(quality_checks[place].name, cells[i].name) != 0) place++;
    if (place < QUALITY_CHECKS)
      r->checks[place] = cells[i];
    else if (check_find(cells[i].name) && !bound_is_empty(&cells[i]))
      status = bounds_add(&r->checks, &r->check_count, &cells[i]);
  }
  return status;
}

void quality_record_free(quality_record *r) {
  for (const result_column *c = quality_columns; c->name; c++)
    if (c->type == COLUMN_TEXT) free(*(char **)((char *)r + c->offset));
  for (int i = 0; i < QUALITY_SERIES; i++) free(quality_series_values(r, &quality_series_list[i]));
  free(r->checks);
  *r = (quality_record){0};
}

/* What stands between the variant and what keys did not have at first. */
#define LATER " isa="

attn_status quality_record_name(quality_record *r) {
  free(r->key);
  r->key =
      text_format("model=%.16s data=%.16s task=%s n=%lld windows=%lld bos=%lld seed=%lld layers=%s heads=%s "
                  "phase=%s mix=%.17g variant=%s" LATER "%s blocks=%lldx%lld config=%.16s tokens=%.16s",
                  r->model_sha256, r->data_sha256, r->task, (long long)r->n, (long long)r->windows,
                  (long long)r->bos, (long long)r->seed, r->layers, r->heads, r->phase, r->mix, r->spec,
                  r->isa, (long long)r->block_q, (long long)r->block_k, r->config_sha256, r->tokens_sha256);
  return r->key ? ATTN_OK : ATTN_ENOMEM;
}

bool quality_keys_match(const char *a, const char *b) {
  const size_t lengths[] = {strlen(a), strlen(b)}, both = lengths[lengths[1] < lengths[0]];
  const char *rest = lengths[1] < lengths[0] ? a + both : b + both;
  return memcmp(a, b, both) == 0 && (!*rest || strncmp(rest, LATER, strlen(LATER)) == 0);
}

identity quality_identity(const quality_record *r) {
  return (identity){"", r->plugin_sha256, r->files_sha256, r->build};
}

/* -- series -- */

/* The bin of a position: factors of n^(1 / QUALITY_BINS). */
static int64_t bin_of(int64_t position, int64_t n) {
  const double at = log((double)position + 1) / log((double)n + 1) * QUALITY_BINS;
  return at < QUALITY_BINS ? (int64_t)at : QUALITY_BINS - 1;
}

static attn_status make_series(quality_record *r, const quality_data *d) {
  r->layer_count = d->layers;
  for (int i = 0; i < QUALITY_SERIES; i++) {
    const quality_series *s = &quality_series_list[i];
    const int64_t count = s->by == BY_WINDOW ? d->windows : s->by == BY_BIN ? QUALITY_BINS : d->layers;
    double *values = calloc((size_t)count, sizeof *values);
    if (!values) return attn_fail(ATTN_ENOMEM, "no memory for a run's series");
    memcpy((char *)r + s->offset, &values, sizeof values);
  }
  return ATTN_OK;
}

static void fill_series(quality_record *r, const quality_data *d, const quality_windows *text, int64_t swap) {
  double count[QUALITY_BINS] = {0};
  for (int64_t w = 0; w < d->windows; w++)
    for (int64_t i = 0; i < d->scored[w]; i++) {
      const int64_t at = w * d->positions + i, bin = bin_of(text->first[w] + i, text->n);
      const quality_point *p = &d->points[swap * d->windows * d->positions + at];
      const double share = 1 / (double)d->scored[w];
      r->window_dnll[w] += share * (double)p->dnll;
      r->window_kl[w] += share * (double)p->kl;
      r->window_top1[w] += share * p->same_top;
      count[bin]++;
      r->bin_nll[bin] += d->nll[at];
      r->bin_dnll[bin] += (double)p->dnll;
      r->bin_kl[bin] += (double)p->kl;
      r->bin_top1[bin] += p->same_top;
    }
  for (int b = 0; b < QUALITY_BINS; b++) { /* 0 / 0 is the NaN of an empty bin */
    r->bin_nll[b] /= count[b];
    r->bin_dnll[b] /= count[b];
    r->bin_kl[b] /= count[b];
    r->bin_top1[b] /= count[b];
  }
  for (int64_t l = 0; l < d->layers; l++) {
    const quality_layer *layer = &d->layer[swap * d->layers + l];
    r->layer_error[l] = sqrt(layer->error / layer->size);
  }
}

attn_status quality_record_fill(quality_record *r, const quality_data *d, const quality_windows *text,
                                int64_t swap) {
  quality_row row;
  quality_exact exact;
  attn_status status = quality_summarise(d, swap, &row);
  if (!status) status = quality_summarise_exact(d, &exact);
  if (!status) status = make_series(r, d);
  if (status) return status;
  fill_series(r, d, text, swap);
  const struct {
    interval from;
    double *at, *lo, *hi;
  } intervals[] = {{row.dnll, &r->dnll, &r->dnll_lo, &r->dnll_hi},
                   {row.kl, &r->kl, &r->kl_lo, &r->kl_hi},
                   {row.top1, &r->top1, &r->top1_lo, &r->top1_hi},
                   {row.whole, &r->score, &r->score_lo, &r->score_hi},
                   {row.whole_change, &r->score_diff, &r->score_diff_lo, &r->score_diff_hi},
                   {exact.whole, &r->score_exact, &r->score_exact_lo, &r->score_exact_hi}};
  for (size_t i = 0; i < sizeof intervals / sizeof *intervals; i++) {
    *intervals[i].at = intervals[i].from.at;
    *intervals[i].lo = intervals[i].from.lo;
    *intervals[i].hi = intervals[i].from.hi;
  }
  if (text->answers) {
    r->lost = (double)row.lost;
    r->won = (double)row.won;
    r->score_p = hits_p_value(row.lost, row.lost + row.won, 0.5, 0.5);
  }
  r->density = row.density;
  r->mass_left = row.mass_left;
  r->kv_bits = row.kv_bits;
  r->attention_error = row.error;
  r->attention_time = row.seconds;
  r->nll_exact = exact.nll.at;
  r->nll = exact.nll.at + row.dnll.at;
  r->ppl_ratio = row.ppl_ratio.at;
  r->kl_median = row.kl_median;
  r->kl_p99 = row.kl_p99;
  r->kl_max = row.kl_max;
  r->top1_certified = row.top1_certified;
  r->dp_rms = row.dp_rms;
  r->range_median = row.range_median;
  r->right_exact = exact.right.at;
  r->right = row.right.at;
  r->status = RUN_OK;
  return ATTN_OK;
}
