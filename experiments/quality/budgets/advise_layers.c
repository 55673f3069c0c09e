/* advise_layers.c - settings for layers, predicted and tried (advise_layers.h). */
#include "experiments/quality/budgets/advise_layers.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "data/support/file.h"
#include "experiments/quality/budgets/share_budget.h"
#include "experiments/support/label.h"
#include "experiments/support/table.h"

/* A run that was asked for. */
typedef struct setting {
  char *spec, *variant;
  int64_t layer; /* of a run over one; -1: of all */
  double density, time, sensitivity, kl, kl_lo, kl_hi;
  double *error; /* [layers] */
} setting;

typedef struct advice {
  const quality_request *r;
  quality_store *store;
  FILE *out;
  setting *runs;
  size_t count;
  int64_t layers, budget; /* budget 0: within kl_budget */
} advice;

/* A method's settings, the layers they are for, and what that is predicted to cost. */
typedef struct assignment {
  const char *variant;
  int64_t *chosen; /* [layers] run, or -1: exact */
  double predicted;
  char *spec;    /* NULL: every layer stays exact */
  char *uniform; /* the budget in every layer; NULL: there is no budget */
} assignment;

static void clear(advice *a) {
  for (size_t i = 0; i < a->count; i++) {
    free(a->runs[i].spec);
    free(a->runs[i].variant);
    free(a->runs[i].error);
  }
  free(a->runs);
}

static attn_status keep(advice *a, const quality_record *r) {
  setting *more = realloc(a->runs, (a->count + 1) * sizeof *more);
  if (!more) return attn_fail(ATTN_ENOMEM, "no memory for a run");
  a->runs = more;
  a->layers = r->layer_count;
  setting *s = &more[a->count++];
  *s = (setting){.spec = text_format("%s", r->spec),
                 .variant = text_format("%s", r->variant),
                 .layer = strcmp(r->layers, "all") == 0 ? -1 : strtoll(r->layers, NULL, 10),
                 .density = r->density,
                 .time = r->attention_time,
                 .sensitivity = r->sensitivity,
                 .kl = r->kl,
                 .kl_lo = r->kl_lo,
                 .kl_hi = r->kl_hi,
                 .error = malloc((size_t)r->layer_count * sizeof *s->error)};
  if (!s->spec || !s->variant || !s->error) return attn_fail(ATTN_ENOMEM, "no memory for a run");
  memcpy(s->error, r->layer_error, (size_t)r->layer_count * sizeof *s->error);
  return ATTN_OK;
}

static attn_status collect(void *to, const quality_set *set, const quality_record *const *runs,
                           size_t count) {
  attn_status status = ATTN_OK;
  (void)set;
  for (size_t i = 0; !status && i < count; i++)
    if (runs[i]->status == RUN_OK) status = keep(to, runs[i]);
  return status;
}

static attn_status run_all(advice *a, const char *const *specs, int64_t count, const char *layers) {
  static const double whole = 1;
  quality_request r = *a->r;
  r.specs = specs;
  r.spec_count = count;
  r.layers = layers;
  r.heads = "all";
  r.phase = "both";
  r.mixes = &whole;
  r.mix_count = 1;
  r.bare = true;
  return quality_answer(&r, a->store, collect, a);
}

/* -- what was found -- */

static bool is_first_of_method(const advice *a, size_t run) {
  for (size_t i = 0; i < run; i++)
    if (strcmp(a->runs[i].variant, a->runs[run].variant) == 0) return false;
  return true;
}

/* The middle one of the settings that were asked for; the first runs are those of all layers. */
static const char *middle(const advice *a, const char *variant) {
  size_t count = 0, at = 0;
  for (size_t i = 0; i < a->count; i++) count += strcmp(a->runs[i].variant, variant) == 0;
  for (size_t i = 0; i < a->count; i++)
    if (strcmp(a->runs[i].variant, variant) == 0 && at++ == count / 2) return a->runs[i].spec;
  return NULL;
}

static double sensitivity_of(const advice *a, const char *variant, int64_t layer) {
  for (size_t i = 0; i < a->count; i++)
    if (a->runs[i].layer == layer && strcmp(a->runs[i].variant, variant) == 0) return a->runs[i].sensitivity;
  return (double)NAN;
}

/* Does a read less than b, or take less time where that is not known? */
static bool is_cheaper(const setting *a, const setting *b) {
  return isfinite(a->density) && isfinite(b->density) ? a->density < b->density : a->time < b->time;
}

static double cost_of(const advice *a, const setting *s, int64_t layer) {
  return sensitivity_of(a, s->variant, layer) * s->error[layer] * s->error[layer];
}

/* Layers of one setting, as in 0,3-5. */
static char *name_layers(const assignment *x, int64_t layers, int64_t chosen) {
  char *text = text_format("%s", "");
  for (int64_t l = 0; text && l < layers; l++) {
    int64_t last = l;
    if (x->chosen[l] != chosen) continue;
    while (last + 1 < layers && x->chosen[last + 1] == chosen) last++;
    char *longer = last > l
                       ? text_format("%s%s%lld-%lld", text, *text ? "," : "", (long long)l, (long long)last)
                       : text_format("%s%s%lld", text, *text ? "," : "", (long long)l);
    free(text);
    text = longer;
    l = last;
  }
  return text;
}

static attn_status write_spec(const advice *a, assignment *x) {
  for (int64_t l = 0; l < a->layers; l++) {
    int64_t before = 0;
    while (before < l && x->chosen[before] != x->chosen[l]) before++;
    if (before < l || x->chosen[l] < 0) continue;
    char *layers = name_layers(x, a->layers, x->chosen[l]);
    char *longer = layers ? text_format("%s%s%s@%s", x->spec ? x->spec : "", x->spec ? ";" : "",
                                        a->runs[x->chosen[l]].spec, layers)
                          : NULL;
    free(layers);
    free(x->spec);
    if (!(x->spec = longer)) return attn_fail(ATTN_ENOMEM, "no memory for an assignment");
  }
  return ATTN_OK;
}

static attn_status assign(const advice *a, const char *variant, assignment *x) {
  const double share = a->r->kl_budget / (double)a->layers;
  *x = (assignment){.variant = variant, .chosen = malloc((size_t)a->layers * sizeof *x->chosen)};
  if (!x->chosen) return attn_fail(ATTN_ENOMEM, "no memory for an assignment");
  for (int64_t l = 0; l < a->layers; l++) {
    x->chosen[l] = -1;
    for (size_t i = 0; i < a->count; i++) {
      const setting *s = &a->runs[i];
      if (s->layer >= 0 || strcmp(s->variant, variant) != 0 || !(cost_of(a, s, l) <= share)) continue;
      if (x->chosen[l] < 0 || is_cheaper(s, &a->runs[x->chosen[l]])) x->chosen[l] = (int64_t)i;
    }
    if (x->chosen[l] >= 0) x->predicted += cost_of(a, &a->runs[x->chosen[l]], l);
  }
  return write_spec(a, x);
}

/* *parsed: the setting's spec; *budget: the parameter's name. */
static attn_status read_budget(const setting *s, attn_spec **parsed, const char **budget) {
  attn_status status = attn_spec_parse(parsed, s->spec);
  if (status) return status;
  *budget = swap_budget_name(*parsed);
  if (*budget && attn_spec_number(*parsed, *budget) >= 0) return ATTN_OK;
  attn_spec_destroy(*parsed);
  return attn_fail(ATTN_EINVAL, "%s: it has no budget", s->spec);
}

static double kl_of(const advice *a, const char *spec, int64_t layer) {
  for (size_t i = 0; i < a->count; i++)
    if (a->runs[i].layer == layer && strcmp(a->runs[i].spec, spec) == 0) return a->runs[i].kl;
  return (double)NAN;
}

/* Of the first `settings` runs, which are those of all layers. */
static attn_status assign_within(const advice *a, const char *variant, size_t settings, assignment *x) {
  int64_t *run = calloc(settings, sizeof *run), *budget = calloc(settings, sizeof *budget), count = 0;
  double *cost = calloc(settings * (size_t)a->layers, sizeof *cost);
  *x = (assignment){.variant = variant, .chosen = malloc((size_t)a->layers * sizeof *x->chosen)};
  attn_status status =
      run && budget && cost && x->chosen ? ATTN_OK : attn_fail(ATTN_ENOMEM, "no memory for an assignment");
  for (size_t i = 0; !status && i < settings; i++) {
    attn_spec *spec = NULL, *even = NULL;
    const char *name;
    if (strcmp(a->runs[i].variant, variant) != 0) continue;
    if ((status = read_budget(&a->runs[i], &spec, &name))) break;
    run[count] = (int64_t)i;
    budget[count++] = (int64_t)attn_spec_number(spec, name);
    if (!x->uniform) {
      status = attn_spec_with_int(spec, name, a->budget, &even);
      if (!status && !(x->uniform = text_format("%s", even->text))) status = ATTN_ENOMEM;
    }
    attn_spec_destroy(even);
    attn_spec_destroy(spec);
  }
  for (int64_t l = 0; !status && l < a->layers; l++)
    for (int64_t s = 0; s < count; s++) cost[l * count + s] = kl_of(a, a->runs[run[s]].spec, l);
  if (!status)
    status = share_budget(a->layers, count, budget, cost, a->layers * a->budget, x->chosen, &x->predicted);
  if (status == ATTN_EINVAL)
    status = attn_fail(status, "%s, %lld keys a layer: %s", variant, (long long)a->budget, attn_last_error());
  for (int64_t l = 0; !status && l < a->layers; l++) x->chosen[l] = run[x->chosen[l]];
  free(run);
  free(budget);
  free(cost);
  return status ? status : write_spec(a, x);
}

/* -- what is said -- */

static const char *word_of(const setting *s, double budget) {
  if (!(s->kl_lo <= s->kl_hi)) return s->kl <= budget ? "held (few windows)" : "failed (few windows)";
  return s->kl_hi <= budget ? "held" : s->kl_lo > budget ? "failed" : "open";
}

static attn_status print_layers(const advice *a, const assignment *all, size_t count, FILE *out) {
  text_table t = {.columns = 1 + count, .left = 1};
  table_add(&t, "layer");
  for (size_t m = 0; m < count; m++) table_add(&t, "%s", all[m].variant);
  for (int64_t l = 0; l < a->layers; l++) {
    table_add(&t, "%lld", (long long)l);
    for (size_t m = 0; m < count; m++) {
      char *name = NULL;
      const bool known = all[m].chosen[l] >= 0 && !label_of_text(a->runs[all[m].chosen[l]].spec, &name);
      table_add(&t, "%s (%.3g)", known ? name : "exact",
                a->budget ? kl_of(a, a->runs[all[m].chosen[l]].spec, l)
                          : sqrt(a->r->kl_budget / (double)a->layers / sensitivity_of(a, all[m].variant, l)));
      free(name);
    }
  }
  fprintf(out, a->budget
                   ? "\nthe setting of each layer, and the KL of replacing this layer:\n\n"
                   : "\nthe cheapest setting of each layer, and the error that its attention may have:\n\n");
  attn_status status = table_print(out, &t, TABLE_TEXT);
  table_free(&t);
  return status;
}

static const setting *find(const advice *a, size_t first, const char *spec) {
  for (size_t i = first; i < a->count; i++)
    if (strcmp(a->runs[i].spec, spec) == 0) return &a->runs[i];
  return NULL;
}

static void add_kl(text_table *t, const setting *s) {
  table_add(t, "%.4g", s->kl);
  if (s->kl_lo <= s->kl_hi)
    table_add(t, "%.4g .. %.4g", s->kl_lo, s->kl_hi);
  else
    table_add(t, "-");
}

/* Of all keys, over the layers: exact ones read everything. */
static double read_share(const advice *a, const assignment *x) {
  double read = 0;
  for (int64_t l = 0; l < a->layers; l++)
    read += (x->chosen[l] < 0 ? 1 : a->runs[x->chosen[l]].density) / (double)a->layers;
  return read;
}

static attn_status print_outcome(const advice *a, const assignment *all, size_t count, size_t first,
                                 FILE *out) {
  static const char *const titles[] = {"method", "read %", "KL predicted", "KL", "95 %", "prediction"};
  text_table t = {.columns = sizeof titles / sizeof *titles, .left = 1};
  for (size_t i = 0; i < t.columns; i++) table_add(&t, "%s", titles[i]);
  for (size_t m = 0; m < count; m++) {
    const setting *s = all[m].spec ? find(a, first, all[m].spec) : NULL;
    if (!s) continue;
    table_add(&t, "%s", all[m].variant);
    const double read = read_share(a, &all[m]);
    table_add(&t, read <= 1 ? "%.2f" : "-", 100 * read);
    table_add(&t, "%.4g", all[m].predicted);
    add_kl(&t, s);
    table_add(&t, "%s", word_of(s, a->r->kl_budget));
  }
  fprintf(out, "\nthe model with these settings; a prediction held if KL is at most %g:\n\n",
          a->r->kl_budget);
  attn_status status = table_print(out, &t, TABLE_TEXT);
  for (size_t m = 0; m < count; m++)
    fprintf(out, all[m].spec ? "-v '%s'\n" : "%s: no setting is close enough in any layer\n",
            all[m].spec ? all[m].spec : all[m].variant);
  table_free(&t);
  return status;
}

/* What the budget buys, shared and in every layer alike. */
static attn_status print_shares(const advice *a, const assignment *all, size_t count, size_t first,
                                FILE *out) {
  static const char *const titles[] = {"method", "KL predicted", "KL", "95 %", "in every layer", "95 %"};
  text_table t = {.columns = sizeof titles / sizeof *titles, .left = 1};
  for (size_t i = 0; i < t.columns; i++) table_add(&t, "%s", titles[i]);
  for (size_t m = 0; m < count; m++) {
    const setting *shared = find(a, first, all[m].spec), *even = find(a, first, all[m].uniform);
    if (!shared || !even) continue;
    table_add(&t, "%s", all[m].variant);
    table_add(&t, "%.4g", all[m].predicted);
    add_kl(&t, shared);
    add_kl(&t, even);
  }
  fprintf(out,
          "\nthe model with these settings, %lld keys on average over layers, and with %lld in each:\n\n",
          (long long)a->budget, (long long)a->budget);
  const attn_status status = table_print(out, &t, TABLE_TEXT);
  for (size_t m = 0; m < count; m++) fprintf(out, "-v '%s'\n", all[m].spec);
  table_free(&t);
  return status;
}

/* The assignment that reads least of those whose KL is within kl_budget, if one is; else, and of those that
 * share a budget, the one of the least KL. Of runs from first on. */
static attn_status copy_best(const advice *a, const assignment *all, size_t count, size_t first, char **out) {
  const setting *best = NULL;
  bool held = false;
  double least = 0;
  for (size_t m = 0; m < count; m++) {
    const setting *s = all[m].spec ? find(a, first, all[m].spec) : NULL;
    if (!s) continue;
    const double read = read_share(a, &all[m]);
    const bool holds = !a->budget && s->kl <= a->r->kl_budget && isfinite(read);
    const double cost = holds ? read : s->kl;
    if (best && (holds == held ? !(cost < least) : held)) continue;
    best = s;
    held = holds;
    least = cost;
  }
  *out = best ? text_format("%s", best->spec) : NULL;
  return *out || !best ? ATTN_OK : ATTN_ENOMEM;
}

attn_status quality_advise(const quality_request *r, quality_store *store, int64_t budget, FILE *out,
                           char **best) {
  advice a = {.r = r, .store = store, .out = out, .budget = budget};
  attn_status status = run_all(&a, r->specs, r->spec_count, "all");
  const size_t settings = a.count;
  const char **middles = calloc(settings + 1, sizeof *middles),
             **wholes = calloc(2 * settings + 1, sizeof *wholes);
  assignment *all = calloc(settings + 1, sizeof *all);
  size_t methods = 0;
  int64_t whole = 0;
  if (!status && settings == 0) status = attn_fail(ATTN_EUNSUPPORTED, "no setting could be run in the model");
  if (!middles || !wholes || !all) status = attn_fail(ATTN_ENOMEM, "no memory for assignments");
  for (size_t i = 0; !status && i < settings; i++)
    if (is_first_of_method(&a, i)) {
      all[methods].variant = a.runs[i].variant;
      middles[methods++] = middle(&a, a.runs[i].variant);
    }
  if (!status)
    status = budget ? run_all(&a, r->specs, r->spec_count, "each")
                    : run_all(&a, middles, (int64_t)methods, "each");
  for (size_t m = 0; !status && m < methods; m++) {
    const char *variant = all[m].variant;
    status = budget ? assign_within(&a, variant, settings, &all[m]) : assign(&a, variant, &all[m]);
    if (!status && all[m].spec) wholes[whole++] = all[m].spec;
    if (!status && all[m].uniform) wholes[whole++] = all[m].uniform;
  }
  const size_t known = a.count;
  if (!status && whole > 0) status = run_all(&a, wholes, whole, "all");
  if (!status) status = print_layers(&a, all, methods, out);
  if (!status)
    status =
        budget ? print_shares(&a, all, methods, known, out) : print_outcome(&a, all, methods, known, out);
  *best = NULL;
  if (!status) status = copy_best(&a, all, methods, known, best);
  for (size_t m = 0; all && m < methods; m++) {
    free(all[m].chosen);
    free(all[m].spec);
    free(all[m].uniform);
  }
  free(all);
  free(middles);
  free(wholes);
  clear(&a);
  return status;
}
