/* row.c - the columns of the results schema: one table over result_row. */
#include "experiments/results/row.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "experiments/support/names.h"

const char *const run_status_names[] = {"ok",      "failed",      "timeout", "oom",
                                        "crashed", "unsupported", "skipped", NULL};
const char *const check_kind_names[] = {"hard", "prob", "model", "report", "property", NULL};
const char *const check_verdict_names[] = {"pass",           "consistent", "violated",  "uncertifiable",
                                           "not_applicable", "error",      "unchecked", NULL};
static const char *const ref_kind_names[] = {"exact_f64", "exact_same_dtype", NULL};

#define EPOCH "seconds since 1970-01-01T00:00:00Z"
#define FIELD(column, type_, field, units_, text, ...)                                     \
  {                                                                                        \
    .name = column, .type = type_, .offset = offsetof(result_row, field), .units = units_, \
    .long_name = text, __VA_ARGS__                                                         \
  }
#define COUNTED .least = 0, .most = (double)INFINITY
#define OWN_TEXT(name, text) FIELD(#name, COLUMN_TEXT, name, NULL, text, .flags = NULL)
#define TEXT(name, text) FIELD(#name, COLUMN_TEXT, name, NULL, text, .kept = true)
#define DATE(name, text) FIELD(#name, COLUMN_F64, name, EPOCH, text, .varies = true)
#define SMALL(name, text) FIELD(#name, COLUMN_I32, name, "1", text, COUNTED)
#define FLAG(name, field, names, text, ...) \
  FIELD(name, COLUMN_FLAG, field, "1", text, .flags = names, __VA_ARGS__)
#define MEASURE(name, units, text) FIELD(#name, COLUMN_F64, name, units, text, .measure = true)
/* A measure that is never negative, and one of parts of a whole. */
#define SIZE(name, units, text) FIELD(#name, COLUMN_F64, name, units, text, .measure = true, COUNTED)
#define SHARE(name, text) FIELD(#name, COLUMN_F64, name, "1", text, .measure = true, .least = 0, .most = 1)
#define TALLY(name, text) FIELD(#name, COLUMN_I64, name, "1", text, .measure = true, COUNTED)
/* What clocks, counters and the machine say. */
#define METERED(name, units, text) \
  FIELD(#name, COLUMN_F64, name, units, text, .measure = true, .varies = true, COUNTED)
#define METERED_TALLY(name, text) \
  FIELD(#name, COLUMN_I64, name, "1", text, .measure = true, .varies = true, COUNTED)

const result_column result_columns[] = {
    OWN_TEXT(key, "canonical text of everything that defines the run"),
    TEXT(variant, "attention variant"),
    TEXT(label, "variant with the parameters that differ from their defaults and the one that buys accuracy, "
                "without a seed: a line of a plot"),
    TEXT(params, "parameters of the variant as a JSON object"),
#define TEXT_AXIS(name, section, about) TEXT(name, about),
#include "experiments/results/axes.def"
    TEXT(dataset_sha256, "SHA-256 of the files that the dataset was read from"),
    TEXT(plugin, "shared object that the variant was loaded from; empty: it is the library's"),
    TEXT(plugin_sha256, "SHA-256 of that object"),
    TEXT(files_sha256, "SHA-256 of the files that the variant's parameters and the score name"),
#define AXIS(name, section, column, type, choices, min, max, preset, same_as, key, shown, title, menu, \
             about)                                                                                    \
  FIELD(column, type, name, (type) == COLUMN_TEXT ? NULL : "1", about,                                 \
        .flags = (type) == COLUMN_I64 ? NULL : choices, .axis = true, .least = 0, .most = (double)(max)),
#include "experiments/results/axes.def"
    TEXT(path, "arithmetic of the products: fma, split or bf16 (core/README.md); empty without a choice"),
    SMALL(shard, "index of the process that ran it"),
    SMALL(session, "index into /provenance"),

    FLAG("status", status, run_status_names, "how the run ended", .varies = true),
    OWN_TEXT(message, "why the run did not end well"),
    DATE(start_time, "start of the run"),
    DATE(end_time, "end of the run"),
    METERED(run_time, "s", "time spent in the run: verification and all turns of timing"),
    METERED(load, "1", "load average over a minute at the end of the run"),

    METERED(time_min, "s", "shortest time of one execution"),
    METERED(time_median, "s", "median time of one execution"),
    METERED(time_mean, "s", "mean time of one execution"),
    METERED(time_std, "s", "standard deviation of the times"),
    METERED(time_mad, "s", "median absolute deviation of the times"),
    METERED(time_ci_lo, "s", "lower end of the 95 % bootstrap interval of the median"),
    METERED(time_ci_hi, "s", "upper end of the 95 % bootstrap interval of the median"),
    METERED_TALLY(n_samples, "number of time samples"),
    METERED_TALLY(iters_per_sample, "executions in one sample"),
    METERED_TALLY(n_outliers, "samples outside Tukey's fences, all kept"),
    METERED(drift_ratio, "1", "time of a fixed computation after the block over before it"),

    SIZE(flops, "1", "floating-point operations by the variant's formula"),
    SIZE(bytes_moved, "byte", "compulsory memory traffic by the variant's formula"),
    METERED(gflops, "1e9 s-1", "flops over median time"),
    METERED(peak_rss, "byte",
            "peak resident memory of the process during its verification, without what others left"),
    METERED(peak_alloc, "byte", "peak memory of plan and work, counted by the allocator"),
    SIZE(work_bytes, "byte", "work memory of one execution"),
    METERED(cycles, "1", "processor cycles of one execution"),
    METERED(instructions, "1", "instructions of one execution"),
    METERED(llc_misses, "1", "last-level cache misses of one execution"),
    METERED(energy_pkg, "J", "package energy of one execution"),
    METERED(est_time, "s", "time of one execution as estimated before the run"),
    METERED(est_run, "s", "run_time as estimated before the run"),
    METERED(est_memory, "byte", "tensors and work memory as estimated before the run"),

    SIZE(err_rel_fro, "1", "relative Frobenius error against exact attention"),
    MEASURE(err_rel_fro_lo, "1", "lower end of the 95 % t-interval of err_rel_fro over sampled rows"),
    MEASURE(err_rel_fro_hi, "1", "upper end of the 95 % t-interval of err_rel_fro over sampled rows"),
    MEASURE(err_rel_fro_cert_lo, "1", "lower end of the certified 95 % interval of err_rel_fro"),
    MEASURE(err_rel_fro_cert_hi, "1", "upper end of the certified 95 % interval of err_rel_fro"),
    SIZE(err_max_abs, "1", "largest absolute error of an output element"),
    SIZE(err_rel_l2_mean, "1", "mean over rows of the relative l2 error"),
    MEASURE(err_rel_l2_mean_lo, "1", "lower end of the 95 % t-interval of err_rel_l2_mean"),
    MEASURE(err_rel_l2_mean_hi, "1", "upper end of the 95 % t-interval of err_rel_l2_mean"),
    SIZE(err_rel_l2_max, "1", "maximum over rows of the relative l2 error"),
    MEASURE(err_cos_min, "1", "minimum over rows of the cosine of output and exact output"),
    SHARE(err_max_tail,
          "95 % upper limit on the share of rows beyond a maximum or minimum over sampled rows"),
    SIZE(err_row_l1_max, "1", "maximum over rows of the l1 distance of the attention weights"),
    SHARE(err_row_l1_tail, "as err_max_tail, of the rows of the first head, for err_row_l1_max"),
    MEASURE(err_kl_mean, "1", "mean over rows of the Kullback-Leibler divergence of the attention weights"),
    MEASURE(err_kl_mean_lo, "1", "lower end of the 95 % t-interval of err_kl_mean"),
    MEASURE(err_kl_mean_hi, "1", "upper end of the 95 % t-interval of err_kl_mean"),
    TALLY(rows_sampled, "rows compared with the reference"),
    TALLY(rows_degenerate, "rows compared whose output is not finite where the exact one is, of weights that "
                           "may be negative: their denominator is lost. Errors leave them out"),
    FLAG("ref_kind", ref, ref_kind_names, "what the errors refer to", .measure = true),

    SIZE(grad_err_q, "1",
         "relative Frobenius error of the gradient by the queries against exact attention's"),
    SIZE(grad_err_k, "1", "the same by the keys"),
    SIZE(grad_err_v, "1", "the same by the values"),
    MEASURE(grad_cos_q, "1", "cosine of the gradient by the queries and exact attention's"),
    MEASURE(grad_cos_k, "1", "the same by the keys"),
    MEASURE(grad_cos_v, "1", "the same by the values"),
    METERED(grad_time, "s", "wall time of one backward pass"),

    MEASURE(row_entropy_mean, "1", "mean entropy of the exact attention rows, in nats"),
    MEASURE(top16_mass_mean, "1", "mean exact attention mass on the 16 heaviest keys"),
    MEASURE(eff_rank, "1", "effective rank of the exact attention matrix"),
    SIZE(score_osc, "1", "mean over rows of the range of the scores"),

    MEASURE(tail_mass, "1", "mean exact attention mass on the keys that a pattern leaves out"),
    SIZE(keys_mean, "1", "mean keys of a row under a pattern or a selection"),
    SIZE(keys_max, "1", "most keys of a row under a pattern or a selection"),
    MEASURE(kept_mass_mean, "1", "mean exact attention mass on the keys of a pattern or a selection"),
    MEASURE(regret_mean, "1", "mean of the mass that as many of the heaviest keys hold, less what is kept"),
    METERED(select_share, "1",
            "share of an execution's time that selecting keys takes; none where keys are left out while they "
            "are attended to"),
    MEASURE(drawn_share, "1",
            "mean over rows of the keys drawn over those that their weights make them stand for; 1: all are "
            "taken"),
    MEASURE(eps_share, "1", "largest share of eps in the weights of a row (lambda of FAV-6)"),
    MEASURE(feature_ess, "1", "least number of random features that a row's normaliser rests on"),
    MEASURE(rank_ratio, "1", "error of the weights over that of the best matrix of their rank"),

    MEASURE(budget_used, "1", "random features, projected rows, or mean keys that a row keeps"),
    MEASURE(need_10pct, "1", "the size that theory requires for a relative error (or tail mass) of 10 %"),
    MEASURE(need_1pct, "1", "the same for 1 %"),
    MEASURE(best_10pct, "1", "least rank, or kept keys, with which any variant reaches 10 %"),
    MEASURE(best_1pct, "1", "the same for 1 %"),
    MEASURE(err_predicted, "1", "relative Frobenius error that theory predicts for budget_used"),

    /* Holm's correction and the properties that other runs of the setting found enter them. */
    FLAG("verdict", verdict, check_verdict_names,
         "the worst verdict of what is proven, surely or with a probability, and of properties",
         .measure = true, .varies = true),
    FLAG("model_verdict", model_verdict, check_verdict_names,
         "the worst verdict of bounds that rest on an unproven model; never violated", .measure = true,
         .varies = true),
    {.name = NULL},
};

#undef FIELD
#define FIELD(field, type_, text, ...) \
  { .name = #field, .type = type_, .offset = offsetof(result_bound, field), .long_name = text, __VA_ARGS__ }
#define NUMBER(field, measured, text) FIELD(field, COLUMN_F64, text, .units = "1", .measure = measured)

const result_column result_bound_columns[] = {
    FIELD(kind, COLUMN_FLAG, "kind of statement", .units = "1", .flags = check_kind_names),
    FIELD(verdict, COLUMN_FLAG, "verdict, after Holm's correction", .units = "1",
          .flags = check_verdict_names, .measure = true),
    NUMBER(value, true, "value of the bound"),
    NUMBER(measured, true, "measured value of the bounded quantity"),
    NUMBER(margin, true, "measured over value: below 1 is inside"),
    NUMBER(p_value, true, "p-value of a probabilistic check"),
    NUMBER(p_repeat, false, "p-value of its repetition with fresh seeds"),
    FIELD(message, COLUMN_TEXT, "reason for the verdict, if it needs one", .kept = true),
    {.name = NULL},
};

const result_column *result_column_named(const char *name) {
  const result_column *c = result_columns;
  while (strcmp(c->name, name) != 0) c++;
  return c;
}

void result_row_recover(result_row *row, const result_column *c) {
  const axis_id a = (axis_id)((c->offset - offsetof(result_row, axis)) / sizeof *row->axis);
  /* The axes stand between the texts of the dataset and of the variant, which may hold anything. */
  const size_t begin = strlen("dataset=") + (row->dataset ? strlen(row->dataset) : 0);
  if (row->key && strlen(row->key) > begin) (void)axis_read_key(a, row->key + begin, &row->axis[a]);
}

int64_t result_map_cells(int64_t n) { return n < RESULT_MAP_CELLS ? n : RESULT_MAP_CELLS; }

size_t result_map_size(const result_row *row) {
  if (row->n <= 0 || row->n_kv <= 0) return 0;
  return (size_t)result_map_cells(row->n) * (size_t)result_map_cells(row->n_kv);
}

void result_row_init(result_row *row) {
  *row = (result_row){
      .status = RUN_SKIPPED, .verdict = VERDICT_NOT_APPLICABLE, .model_verdict = VERDICT_NOT_APPLICABLE};
  for (const result_column *c = result_columns; c->name; c++)
    if (c->type == COLUMN_F64) result_column_set_f64(row, c, (double)NAN);
  for (axis_id a = 0; a < AXES; a++)
    if (!axes[a].key) row->axis[a] = axes[a].preset;
  for (int i = 0; i < RESULT_PROFILE_BINS; i++) row->profile_l2[i] = row->profile_max[i] = (double)NAN;
}

void result_row_free(result_row *row) {
  if (!row) return;
  for (const result_column *c = result_columns; c->name; c++)
    if (c->type == COLUMN_TEXT && !c->axis && !c->kept) free(*(char **)((char *)row + c->offset));
  free(row->p);
  free(row->bounds);
  free(row->samples);
  free(row->rounds);
  free(row->map);
  result_row_init(row);
}

/* Room for one element more; the array has room for the next power of two. */
static void *grow(void *items, int count, size_t size) {
  if (count & (count - 1)) return items;
  void *grown = realloc(items, 2 * (size_t)(count ? count : 1) * size);
  if (!grown) attn_fail(ATTN_ENOMEM, "out of memory for a result row");
  return grown;
}

static attn_status add_param(result_row *row, result_param param) {
  result_param *p = grow(row->p, row->p_count, sizeof *p);
  if (!p) return ATTN_ENOMEM;
  row->p = p;
  row->p[row->p_count++] = param;
  return ATTN_OK;
}

attn_status result_row_add_param(result_row *row, const char *name, double value) {
  return add_param(row, (result_param){name, value, NULL});
}

attn_status result_row_add_text(result_row *row, const char *name, const char *text) {
  const char *kept = names_keep(text);
  if (!kept) return attn_fail(ATTN_ENOMEM, "out of memory for the parameter %s of a run", name);
  return add_param(row, (result_param){name, (double)NAN, kept});
}

attn_status bounds_add(result_bound **list, int *count, const result_bound *bound) {
  result_bound *bounds = grow(*list, *count, sizeof *bounds);
  if (!bounds) return ATTN_ENOMEM;
  *list = bounds;
  bounds[*count] = *bound;
  if (!bound->message) bounds[*count].message = "";
  ++*count;
  return ATTN_OK;
}

attn_status result_row_add_bound(result_row *row, const result_bound *bound) {
  return bounds_add(&row->bounds, &row->bounds_count, bound);
}
