/* evaluation_tables.c - tables of an evaluation (evaluation_tables.h). */
#include "experiments/quality/evaluation_tables.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "data/support/json_text.h"
#include "experiments/results/row.h"
#include "experiments/results/row_json.h"
#include "experiments/support/escape.h"
#include "experiments/support/label.h"
#include "experiments/support/table.h"

static void add_interval(text_table *t, double at, double lo, double hi, const char *format) {
  char text[3][32];
  const double v[] = {at, lo, hi};
  for (int i = 0; i < 3; i++) snprintf(text[i], sizeof text[i], format, v[i]);
  table_add(t, "%s", text[0]);
  table_add(t, lo <= hi ? "%s .. %s" : "-", text[1], text[2]);
}

static void add_number(text_table *t, double x) {
  char text[SHORT_TEXT];
  table_add(t, "%s", isfinite(x) ? short_number(x, text) : "-");
}

/* variant, layers, heads, and mix if any run has another than 1. */
static void add_name(text_table *t, const quality_record *r, bool mixed) {
  char *spec = NULL;
  if (!strchr(r->spec, '@') && label_of_text(r->spec, &spec)) t->failed = true;
  table_add(t, "%s", spec ? spec : r->spec);
  free(spec);
  table_add(t, "%s", r->layers);
  table_add(t, "%s", r->heads);
  if (mixed) table_add(t, "%g", r->mix);
}

static void add_header(text_table *t, bool mixed, const char *const *titles, size_t count) {
  static const char *const name[] = {"variant", "layers", "heads", "mix"};
  const size_t own = mixed ? 4 : 3;
  *t = (text_table){.columns = own + count, .left = 3};
  for (size_t i = 0; i < own; i++) table_add(t, "%s", name[i]);
  for (size_t i = 0; i < count; i++) table_add(t, "%s", titles[i]);
}

static void add_run(text_table *t, const quality_record *r, bool mixed, bool answers) {
  add_name(t, r, mixed);
  table_add(t, r->density <= 1 ? "%.2f" : "-", 100 * r->density);
  add_number(t, 100 * r->mass_left);
  add_number(t, r->kv_bits);
  add_interval(t, r->dnll, r->dnll_lo, r->dnll_hi, "%+.4f");
  add_interval(t, r->kl, r->kl_lo, r->kl_hi, "%.4g");
  table_add(t, "%.2f", 100 * r->top1);
  table_add(t, "%.1f", 100 * r->right);
  table_add(t, "%.1f", 100 * r->score);
  table_add(t, "%.4g", r->ppl_ratio);
  add_number(t, r->attention_error);
  table_add(t, "%s", quality_words[r->word_holm]);
  if (!answers) return;
  const double numbers[] = {r->lost, r->won, r->score_p, r->score_p_holm};
  for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) add_number(t, numbers[i]);
}

static bool is_part(const quality_record *r) { return r->mix != 1 || strcmp(r->layers, "all") != 0; }

/* What a change of the attention costs, layer by layer and mix by mix. */
static attn_status print_answers(FILE *out, const quality_record *const *runs, size_t count, bool mixed,
                                 table_format format) {
  static const char *const titles[] = {"KL",         "KL/mix^2",      "error",
                                       "KL/error^2", "error allowed", "additivity"};
  text_table t;
  attn_status status = ATTN_OK;
  const quality_record *any = NULL;
  bool one = true;
  add_header(&t, mixed, titles, sizeof titles / sizeof *titles);
  for (size_t i = 0; i < count; i++) {
    const quality_record *r = runs[i];
    if (r->status != RUN_OK || !(is_part(r) || isfinite(r->additivity))) continue;
    one = one && (!any || (r->kl_budget >= any->kl_budget && r->kl_budget <= any->kl_budget));
    any = r;
    add_name(&t, r, mixed);
    add_number(&t, r->kl);
    add_number(&t, r->kl / (r->mix * r->mix));
    add_number(&t, r->attention_error);
    add_number(&t, r->sensitivity);
    add_number(&t, r->error_allowed);
    add_number(&t, r->additivity);
  }
  if (any) {
    fprintf(out, "\nerror allowed: what the attention of these layers may have if all layers together may ");
    fprintf(out, one ? "cost KL %g\n\n" : "cost what --kl allowed each run\n\n", any->kl_budget);
    status = table_print(out, &t, format);
  }
  table_free(&t);
  return status;
}

static void print_doubts(FILE *out, const quality_record *const *runs, size_t count) {
  for (size_t i = 0; i < count; i++)
    if (runs[i]->doubt)
      fprintf(out,
              "doubt: %s (layers %s): perplexity says better, %.4f nats, and the distribution is another, KL "
              "%.4f\n",
              runs[i]->spec, runs[i]->layers, runs[i]->dnll, runs[i]->kl);
  for (size_t i = 0; i < count; i++)
    for (const result_bound *b = runs[i]->checks; b < runs[i]->checks + runs[i]->check_count; b++)
      if (b->kind == KIND_MODEL && b->measured > b->value)
        fprintf(out, "doubt: %s (layers %s): %s: %g, at most %g expected: %s\n", runs[i]->spec,
                runs[i]->layers, b->name, b->measured, b->value, quality_check_find(b->name)->statement);
}

attn_status quality_print(FILE *out, const quality_record *const *runs, size_t count, table_format format) {
  static const char *const titles[] = {"read %", "left %",  "bits",    "dNLL",  "95 %",   "KL",
                                       "95 %",   "top-1 %", "right %", "all %", "PPL x",  "error",
                                       "",       "lost",    "won",     "p",     "p, Holm"};
  enum { OF_ANSWERS = 4 /* the last */ };
  text_table t;
  const quality_record *first = NULL;
  bool mixed = false, answers = false, one = true;
  for (size_t i = count; i-- > 0;)
    if (runs[i]->status == RUN_OK) {
      one = one && (!first || (runs[i]->margin >= first->margin && runs[i]->margin <= first->margin));
      first = runs[i];
      mixed = mixed || first->mix != 1;
      answers = answers || !isnan(first->score_p);
    }
  if (!first) return ATTN_OK;
  add_header(&t, mixed, titles, sizeof titles / sizeof *titles - (answers ? 0 : OF_ANSWERS));
  for (size_t i = 0; i < count; i++)
    if (runs[i]->status == RUN_OK) add_run(&t, runs[i], mixed, answers);
  fprintf(out,
          "%s: %s, %lld windows of %lld\n"
          "exact: %.4f nats a token, perplexity %.4g, %.1f %% of tokens right, all of them in %.1f %% of "
          "windows; "
          "token frequencies alone: %.4f, uniform: %.4f nats\n\n",
          first->model, first->task, (long long)first->windows, (long long)first->n, first->nll_exact,
          exp(first->nll_exact), 100 * first->right_exact, 100 * first->score_exact, first->nll_unigram,
          first->nll_uniform);
  if (answers)
    fprintf(out,
            "lost, won: windows that only the exact model answers, and only the replaced one; p: McNemar's "
            "exact test\n\n");
  if (!one) fprintf(out, "no_worse, worse and open: by the margin that was given for each run\n\n");
  attn_status status = table_print(out, &t, format);
  table_free(&t);
  if (!status) status = print_answers(out, runs, count, mixed, format);
  print_doubts(out, runs, count);
  fprintf(out, "\n");
  return status;
}

/* A line of JSON for each run, every column by its name. */
static attn_status print_json(FILE *out, const quality_record *const *runs, size_t count) {
  attn_status status = ATTN_OK;
  for (size_t i = 0; !status && i < count; i++) {
    json_t *run = json_object();
    bool ok = run;
    for (const result_column *c = quality_columns; ok && c->name; c++)
      ok = !json_object_set_new(run, c->name, result_column_json(runs[i], c));
    char *text = ok ? json_print(run, JSON_COMPACT) : NULL;
    if (text)
      fprintf(out, "%s\n", text);
    else
      status = attn_fail(ATTN_ENOMEM, "no memory for a run as JSON");
    free(text);
    json_decref(run);
  }
  return status;
}

size_t quality_print_cells(FILE *out, const char *command, const quality_record *r, check_verdict verdict) {
  size_t count = 0;
  for (int c = 0; c < r->check_count; c++) {
    const result_bound *b = &r->checks[c];
    if (b->verdict != verdict) continue;
    count++;
    if (command) fprintf(out, "%s: ", command);
    fprintf(out, "%s: %s %s: %g, at most %g: %s%s", r->spec, b->name, check_verdict_names[verdict],
            b->measured, b->value, quality_check_find(b->name)->statement, *b->message ? ": " : "");
    escape_put(out, b->message);
    fputc('\n', out);
  }
  return count;
}

void quality_tell_note(void *to, const char *line) {
  const quality_teller *t = to;
  fprintf(t->errors, "%s: ", t->command);
  escape_put(t->errors, line);
  fputc('\n', t->errors);
}

attn_status quality_tell(void *to, const quality_set *set, const quality_record *const *runs, size_t count) {
  quality_teller *t = to;
  (void)set;
  for (size_t i = 0; i < count; i++) {
    if (runs[i]->status == RUN_OK) {
      t->violated += quality_print_cells(t->errors, t->command, runs[i], VERDICT_VIOLATED);
      t->failed += quality_print_cells(t->errors, t->command, runs[i], VERDICT_ERROR);
    } else {
      t->failed++;
      fprintf(t->errors, "%s: %s: %s\n", t->command, runs[i]->spec, runs[i]->message);
    }
  }
  return t->json ? print_json(t->out, runs, count) : quality_print(t->out, runs, count, TABLE_TEXT);
}
