/* tell.c - what an advice says to people, and to programs. */
#include "experiments/advice/tell.h"

#include <math.h>
#include <string.h>

#include "data/support/json_text.h"
#include "experiments/analysis/doubts.h"
#include "experiments/support/escape.h"
#include "experiments/support/table.h"

enum { DOUBTS_TEXT = 128 };

/* -- for people -- */

static const char *percent(double x, char out[SHORT_TEXT]) {
  if (isnan(x)) return "NaN";
  if (!(x >= 1e-5)) return short_number(x, out);
  snprintf(out, SHORT_TEXT, x < 0.995 ? "%.2g %%" : "%.0f %%", 100 * x);
  return out;
}

static const char *on_average(const advice_setting *s, char out[160]) {
  char most[SHORT_TEXT], mean[SHORT_TEXT];
  *out = '\0';
  if (!isnan(s->left_mean))
    snprintf(out, 160,
             ", the keys left out hold %s of the weight on average and at most %s in the rows looked at",
             percent(fmax(0, s->left_mean), mean), percent(fmax(0, s->left_most), most));
  return out;
}

static void put_command(FILE *out, const char *spec, const char *operands) {
  fputs("\n  attnlab apply ", out);
  escape_put_word(out, spec);
  fprintf(out, "%s\n", operands);
}

static void print_best(FILE *out, const advice_request *r, const advice *a, const char *operands) {
  const advice_setting *s = &a->settings[a->best];
  char goal[SHORT_TEXT], error[SHORT_TEXT], half[SHORT_TEXT], worst[SHORT_TEXT], time[SHORT_TEXT],
      exact[SHORT_TEXT], keys[160];
  fprintf(out, "%s is the cheapest within %s on this input: ", s->spec, percent(r->error, goal));
  if (s->exact)
    fprintf(out, "exact, ");
  else if (s->draws)
    fprintf(out, "error %s ± %s over %d draws, ", percent(s->error, error),
            percent((s->error_hi - s->error_lo) / 2, half), s->draws);
  else
    fprintf(out, "error %s, ", percent(s->error, error));
  fprintf(out, "%s against %s of exact attention, %.2g times as fast; ", short_time(s->time, time),
          short_time(a->exact.time, exact), a->exact.time / s->time);
  if (s->draws)
    fprintf(out, "estimated: the worst of the draws is off by %s.\n", percent(s->worst, worst));
  else
    fprintf(out, "certain: nothing is drawn and every row was compared%s.\n", on_average(s, keys));
  put_command(out, s->spec, operands);
}

/* The cache of least error, and what is known of that. */
static void print_cache(FILE *out, const advice_request *r, const advice *a, const char *operands) {
  const advice_setting *s = &a->settings[a->best];
  char error[SHORT_TEXT], bytes[SHORT_TEXT];
  fprintf(out, "%s errs least of %lld caches of at most %s on this input: error %s, ", s->spec,
          (long long)a->count, short_bytes((double)r->kv_bytes, bytes), percent(s->error, error));
  fprintf(out,
          s->draws ? "estimated from draws.\n" : "certain: nothing is drawn and every row was compared.\n");
  put_command(out, s->spec, operands);
}

/* Why nothing is better than exact attention. */
static void print_none(FILE *out, const advice_request *r, const advice *a, const char *operands) {
  const advice_setting *s = a->count ? &a->settings[0] : NULL;
  char goal[SHORT_TEXT], exact[SHORT_TEXT], error[SHORT_TEXT], time[SHORT_TEXT];
  if (r->kv_bytes) {
    fprintf(out, "No cache of at most %s could be made with a finite output.\n",
            short_bytes((double)r->kv_bytes, goal));
    return;
  }
  fprintf(out,
          a->exact.within ? "Exact attention is the cheapest within %s on this input: %s, %s."
                          : "Nothing is within %s on this input, not even exact attention: %s, %s.",
          percent(r->error, goal), a->exact.spec, short_time(a->exact.time, exact));
  if (s && s->within && !advice_reads_all(s))
    fprintf(out, " The fastest other setting within it, %s, takes %s, which is %s.", s->spec,
            short_time(s->time, time), s->time > a->exact.time ? "more" : "not clearly less");
  else if (s && s->within)
    fprintf(out, " What else is within it reads all keys.");
  else if (s && isnan(s->error))
    fprintf(out, " No other setting has a finite output.");
  else if (s)
    fprintf(out, " The closest other setting, %s, is off by %s.", s->spec, percent(s->error, error));
  putc('\n', out);
  put_command(out, a->exact.spec, operands);
}

/* The names of the doubts, separated by blanks. */
static const char *doubt_names(unsigned doubts, char out[DOUBTS_TEXT]) {
  *out = '\0';
  for (int d = 0; doubt_list[d].name; d++) {
    const size_t used = strlen(out);
    if (doubts >> d & 1)
      snprintf(out + used, DOUBTS_TEXT - used, "%s%s", used ? " " : "", doubt_list[d].name);
  }
  return out;
}

static const char *certainty(const advice_setting *s, char out[2 * SHORT_TEXT + 8]) {
  char x[SHORT_TEXT], y[SHORT_TEXT];
  if (isnan(s->error)) return "not finite";
  if (s->draws == 1) return "one draw";
  if (!s->draws) return s->exact ? "exact" : "certain";
  snprintf(out, 2 * SHORT_TEXT + 8, "[%s, %s]", percent(s->error_lo, x), percent(s->error_hi, y));
  return out;
}

/* common: doubts that are not repeated. */
static void add_row(text_table *t, const advice *a, const advice_setting *s, unsigned common) {
  char x[SHORT_TEXT], y[SHORT_TEXT], interval[2 * SHORT_TEXT + 8], names[DOUBTS_TEXT];
  table_add(t, "%s", s->spec);
  table_add(t, s->within ? "yes" : "no");
  table_add(t, "%s", percent(s->error, x));
  table_add(t, "%s", certainty(s, interval));
  table_add(t, "%s", s->draws > 1 ? percent(s->worst, x) : "");
  table_add(t, "%s", isnan(s->keys_read) ? "-" : s->keys_read >= 1 ? "all" : percent(s->keys_read, x));
  table_add(t, "%s", short_time(s->time, x));
  if (isnan(s->time_lo))
    table_add(t, "once");
  else
    table_add(t, "[%s, %s]", short_time(s->time_lo, x), short_time(s->time_hi, y));
  table_add(t, "%s", short_number(s->time / a->exact.time, x));
  table_add(t, "%s", short_bytes(s->memory, x));
  table_add(t, "%s", doubt_names(s->doubts & ~common, names));
}

static bool is_timed(const advice_setting *s) { return !isnan(s->time_lo); }

/* Doubts of every setting that was timed in turns. */
static unsigned common_doubts(const advice *a) {
  unsigned common = is_timed(&a->exact) ? a->exact.doubts : 0;
  for (int64_t i = 0; i < a->count; i++)
    if (is_timed(&a->settings[i])) common &= a->settings[i].doubts;
  return common;
}

/* Under which conditions the times were measured, and why they may mislead. */
static void print_times(FILE *out, const advice *a, unsigned common) {
  unsigned any = a->exact.doubts;
  for (int64_t i = 0; i < a->count; i++) any |= a->settings[i].doubts;
  fprintf(out, "Times: %d thread%s on %d processor%s.", a->threads, a->threads == 1 ? "" : "s", a->cores,
          a->cores == 1 ? "" : "s");
  if (doubts_of_load(a->load, a->threads, a->cores))
    fprintf(out,
            " The load average was %.1f before the search: threads had to wait for processors, and times and "
            "their intervals are doubtful.",
            a->load);
  putc('\n', out);
  for (int d = 0; doubt_list[d].name; d++)
    if (any >> d & 1)
      fprintf(out, "  %s%s: %s\n", doubt_list[d].name, common >> d & 1 ? " (all)" : "", doubt_list[d].text);
}

/* What a row of the table has no room for. */
static void print_notes(FILE *out, const advice *a) {
  for (int64_t i = 0; i < a->count; i++) {
    const advice_setting *s = &a->settings[i];
    const char *notes[4];
    int count = 0;
    if (advice_reads_all(s)) notes[count++] = "reads all keys: exact attention in disguise";
    if (*s->nonfinite) notes[count++] = s->nonfinite;
    if (s->error >= a->mean_v) notes[count++] = "no better than the mean of V";
    if (s->ended) notes[count++] = s->ended;
    if (!count) continue;
    fprintf(out, "%s: ", s->spec);
    for (int n = 0; n < count; n++)
      fprintf(out, "%s%s%s", n ? "; " : "",
              notes[n] != s->ended ? ""
              : s->within          ? "a smaller budget may do, but "
                                   : "no larger budget was tried: ",
              notes[n]);
    putc('\n', out);
  }
  if (a->unsupported_count) fprintf(out, "left out:\n");
  for (int64_t i = 0; i < a->unsupported_count; i++) fprintf(out, "  %s\n", a->unsupported[i]);
}

attn_status advice_print(FILE *out, const advice_request *r, const advice *a, const char *operands) {
  char goal[SHORT_TEXT], mean[SHORT_TEXT], within[64];
  const unsigned common = common_doubts(a);
  text_table t = {.columns = 11, .left = 1, .last_left = true};
  (a->best < 0 ? print_none : r->kv_bytes ? print_cache : print_best)(out, r, a, operands);
  fprintf(out, "\nOff by: zeros 100 %%, the mean of V %s.", percent(a->mean_v, mean));
  if (a->mean_v <= r->error)
    fprintf(out, " It ignores the keys, so an error within %s is uninformative here.",
            percent(r->error, goal));
  fprintf(out, "\n\n");
  snprintf(within, sizeof within, "<= %s", percent(r->error, goal));
  const char *const titles[] = {"setting", within, "error",    "95 %",   "worst", "keys read",
                                "time",    "95 %", "of exact", "memory", "doubts"};
  for (size_t i = 0; i < sizeof titles / sizeof *titles; i++) table_add(&t, "%s", titles[i]);
  add_row(&t, a, &a->exact, common);
  for (int64_t i = 0; i < a->count; i++) add_row(&t, a, &a->settings[i], common);
  const attn_status status = table_print(out, &t, TABLE_TEXT);
  table_free(&t);
  fprintf(out, "\n");
  print_times(out, a, common);
  print_notes(out, a);
  return status;
}

/* -- for programs -- */

/* What JSON has no number for is null. */
static void put(json_t *to, const char *name, double x, bool *ok) {
  json_put(to, name, isfinite(x) ? json_real(x) : json_null(), ok);
}

static json_t *setting_json(const advice_setting *s, bool reference) {
  char names[DOUBTS_TEXT];
  json_t *to = json_pack("{s:s, s:b, s:b, s:i}", "spec", s->spec, "within", s->within, "exact", s->exact,
                         "draws", s->draws);
  const struct {
    const char *name;
    double value;
  } numbers[] = {{"error", s->error},
                 {"error_lo", s->error_lo},
                 {"error_hi", s->error_hi},
                 {"error_worst", s->worst},
                 {"certain", s->draws || reference ? (double)NAN : s->error_hi},
                 {"left_out_mean", s->left_mean},
                 {"left_out_most", s->left_most},
                 {"time_s", s->time},
                 {"time_lo_s", s->time_lo},
                 {"time_hi_s", s->time_hi},
                 {"memory_bytes", s->memory},
                 {"keys_read", s->keys_read}};
  bool ok = to;
  for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
    put(to, numbers[i].name, numbers[i].value, &ok);
  json_put(to, "nonfinite", *s->nonfinite ? json_string(s->nonfinite) : json_null(), &ok);
  json_put(to, "ended", s->ended ? json_string(s->ended) : json_null(), &ok);
  json_put(to, "doubts", json_string(doubt_names(s->doubts, names)), &ok);
  return json_whole(to, ok);
}

static json_t *input_json(const advice_request *r) {
  const data_qkv *x = r->input;
  return json_pack("{s:s, s:s, s:s, s:b, s:I, s:I, s:I, s:I, s:I, s:I, s:I}", "from", x->description,
                   "layout", data_layout_names[x->layout], "dtype", attn_numbers[x->dtype].name, "causal",
                   r->problem->causal, "batch", (json_int_t)x->batch, "heads", (json_int_t)x->heads,
                   "kv_heads", (json_int_t)x->kv_heads, "n_q", (json_int_t)x->n_q, "n_kv",
                   (json_int_t)x->n_kv, "d_qk", (json_int_t)x->d_qk, "d_v", (json_int_t)x->d_v);
}

json_t *advice_json(const advice_request *r, const advice *a) {
  json_t *all = json_object(), *settings = json_array(), *not_possible = json_array();
  bool ok = all;
  json_put(all, "input", input_json(r), &ok);
  put(all, "error", r->error, &ok);
  put(all, "kv_bytes", r->kv_bytes ? (double)r->kv_bytes : (double)NAN, &ok);
  json_put(all, "exact", setting_json(&a->exact, true), &ok);
  put(all, "mean_v_error", a->mean_v, &ok);
  put(all, "load", a->load, &ok);
  json_put(all, "threads", json_integer(a->threads), &ok);
  json_put(all, "processors", json_integer(a->cores), &ok);
  json_put(all, "best", a->best < 0 ? json_null() : json_string(a->settings[a->best].spec), &ok);
  for (int64_t i = 0; i < a->count; i++) json_add(settings, setting_json(&a->settings[i], false), &ok);
  for (int64_t i = 0; i < a->unsupported_count; i++)
    json_add(not_possible, json_string(a->unsupported[i]), &ok);
  json_put(all, "settings", settings, &ok);
  json_put(all, "unsupported", not_possible, &ok);
  return json_whole(all, ok);
}
