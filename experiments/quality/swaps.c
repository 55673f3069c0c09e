/* swaps.c - sets of layers and heads, and the runs that they make (swaps.h). */
#include "experiments/quality/swaps.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "attn_variant.h"
#include "core/expression/attn_expression.h"
#include "data/support/file.h"
#include "experiments/grid/value_texts.h"

enum { SPEC_BYTES = 1 << 20 /* of a file */ };

/* One number below limit, and where it ends. */
static bool read_number(const char **text, int64_t limit, int64_t *out) {
  char *end;
  if (**text < '0' || **text > '9') return false;
  if (**text == '0' && (*text)[1] >= '0' && (*text)[1] <= '9') return false; /* another name of a layer */
  errno = 0;
  *out = strtoll(*text, &end, 10);
  *text = end;
  return !errno && *out < limit;
}

/* Marks the members of 0,3-5 among count. */
static bool read_list(const char *text, int64_t count, unsigned char *member) {
  memset(member, 0, (size_t)count);
  for (;;) {
    int64_t first, last;
    if (!read_number(&text, count, &first)) return false;
    last = first;
    if (*text == '-') {
      text++;
      if (!read_number(&text, count, &last) || last < first) return false;
    }
    memset(member + first, 1, (size_t)(last - first + 1));
    if (!*text) return true;
    if (*text++ != ',') return false;
  }
}

/* A set of layers or heads: the runs it makes, and the members of each. */
typedef struct member_set {
  const char *text;
  int64_t count, runs;
  unsigned char *member; /* [count], of a set that is one run */
} member_set;

static attn_status read_set(const char *what, const char *text, int64_t count, member_set *out) {
  *out = (member_set){.text = text, .count = count, .runs = strcmp(text, "each") == 0 ? count : 1};
  if (!(out->member = malloc((size_t)count))) return attn_fail(ATTN_ENOMEM, "no memory for %s", what);
  memset(out->member, 1, (size_t)count);
  if (strcmp(text, "all") == 0 || strcmp(text, "each") == 0 || read_list(text, count, out->member))
    return ATTN_OK;
  return attn_fail(ATTN_EINVAL,
                   "%s '%s': expected all, each, or numbers and ranges from 0 to %lld such as 0,2-%lld", what,
                   text, (long long)(count - 1), (long long)(count - 1));
}

static bool is_member(const member_set *s, int64_t run, int64_t at) {
  return s->runs == 1 ? s->member[at] : at == run;
}

static attn_status name_set(const member_set *s, int64_t run, char **out) {
  *out = s->runs == 1 ? text_format("%s", s->text) : text_format("%lld", (long long)run);
  return *out ? ATTN_OK : ATTN_ENOMEM;
}

static attn_status read_phase(const char *text, int64_t n, data_llama_swap *out) {
  static const struct {
    const char *name;
    data_llama_phase phase;
  } phases[] = {{"prefill:", DATA_LLAMA_PREFILL}, {"decode:", DATA_LLAMA_DECODE}};
  if (strcmp(text, "both") == 0) {
    out->phase = DATA_LLAMA_BOTH;
    return ATTN_OK;
  }
  for (int i = 0; i < 2; i++) {
    const char *rest = text + strlen(phases[i].name);
    if (strncmp(text, phases[i].name, strlen(phases[i].name)) != 0) continue;
    out->phase = phases[i].phase;
    if (read_number(&rest, n, &out->decode) && !*rest && out->decode > 0) return ATTN_OK;
  }
  return attn_fail(ATTN_EINVAL,
                   "phase '%s': expected both, prefill:M or decode:M, M from 1 to %lld the last queries",
                   text, (long long)(n - 1));
}

/* -- the variants of a run -- */

/* What a run is made of, and where its chain of swaps ends. */
typedef struct maker {
  const swap_request *r;
  bool cache;
  const member_set *layers, *heads;
  int64_t layer, head;
  double mix;
  data_llama_swap *end; /* .spec NULL: the first, which is not made yet */
} maker;

/* A variant in those layers of the run that are in own, too (NULL: all); shares the spec. */
static attn_status add_part(maker *m, const attn_spec *spec, bool mean, const unsigned char *own) {
  const int64_t layers = m->layers->count, heads = m->heads->count;
  unsigned char *where = malloc((size_t)(layers * heads));
  data_llama_swap *more = m->end->spec ? calloc(1, sizeof *more) : m->end;
  if (!where || !more) {
    free(where);
    if (more != m->end) free(more);
    return attn_fail(ATTN_ENOMEM, "no memory for the heads of a model");
  }
  for (int64_t l = 0; l < layers; l++)
    for (int64_t h = 0; h < heads; h++)
      where[l * heads + h] =
          is_member(m->layers, m->layer, l) && (!own || own[l]) && is_member(m->heads, m->head, h);
  /* Of finite queries and keys all scores round to 0 before the softmax. */
  *more = (data_llama_swap){
      .spec = attn_spec_share(spec), .where = where, .mix = m->mix, .scale = mean ? 0x1p-100 : 0};
  if (more != m->end) m->end->next = more;
  m->end = more;
  return read_phase(m->r->phase, m->r->n, more);
}

static attn_status name_budget(void *context, const attn_spec *of) {
  const char **name = context;
  if (!*name) *name = of->variant->budget.parameter;
  return ATTN_OK;
}

const char *swap_budget_name(const attn_spec *spec) {
  const char *name = NULL;
  return attn_spec_each(spec, false, name_budget, &name) ? NULL : name;
}

/* A part for each layer. */
static attn_status add_pyramid(maker *m, const attn_spec *spec, const char *name, double ratio) {
  const int64_t layers = m->layers->count;
  const char *budget = swap_budget_name(spec);
  unsigned char *own = calloc((size_t)layers, 1);
  attn_status status = own ? ATTN_OK : attn_fail(ATTN_ENOMEM, "no memory for layers");
  if (!status && !budget) status = attn_fail(ATTN_EINVAL, "%s@pyramid: it has no budget", name);
  const double named = attn_spec_number(spec, "recent"), recent = named > 0 ? named : 0,
               kept = status ? 0 : attn_spec_number(spec, budget) - recent,
               most = fmin(2 * kept - kept / ratio, fmax((double)m->r->n - recent, kept)),
               step = layers > 1 ? 2 * (most - kept) / (double)(layers - 1) : 0;
  if (!status && !(kept >= 0))
    status = attn_fail(ATTN_EINVAL, "%s@pyramid: fewer keys than recent=%g", spec->text, recent);
  for (int64_t l = 0; !status && l < layers; l++) {
    attn_spec *of_layer = NULL;
    const double more = layers > 1 ? most - (double)l * step : kept;
    status = attn_spec_with_int(spec, budget, (int64_t)(recent + more + 0.5), &of_layer);
    own[l] = 1;
    if (!status) status = add_part(m, of_layer, false, own);
    own[l] = 0;
    attn_spec_destroy(of_layer);
  }
  free(own);
  return status;
}

/* The spec; of a cache, with the windows' prompt where it is a policy that names none. */
static attn_status parse_spec(const maker *m, const char *text, attn_spec **out) {
  attn_status status = attn_spec_parse(out, text);
  if (status || !m->cache || isnan(attn_spec_number(*out, "prompt")) || attn_spec_names(*out, "prompt"))
    return status;
  attn_spec *cut = NULL;
  status = attn_spec_with_int(*out, "prompt", m->r->prompt, &cut);
  attn_spec_destroy(*out);
  *out = cut;
  return status;
}

/* One variant, in the layers of the run that `text` names after an @, or in all of them. */
static attn_status add_item(maker *m, const char *text, char **canonical) {
  static const char pyramid[] = "pyramid=";
  char *spec = text_format("%s", text), *at = spec ? strrchr(spec, '@') : NULL;
  member_set own = {0};
  attn_spec *parsed = NULL;
  double ratio = 0;
  attn_status status = spec ? ATTN_OK : ATTN_ENOMEM;
  const bool falls = at && strncmp(at + 1, pyramid, sizeof pyramid - 1) == 0;
  if (at && !falls && (!at[1] || at[1 + strspn(at + 1, "0123456789,-")])) at = NULL; /* of a file's name */
  if (at) *at++ = '\0';
  if (falls && !(value_real(at + sizeof pyramid - 1, &ratio) && ratio >= 1))
    status = attn_fail(ATTN_EINVAL, "'%s': expected a number of at least 1 after pyramid=", text);
  if (!status && at && !falls) status = read_set("layers", at, m->layers->count, &own);
  const bool mean = spec && strcmp(spec, SWAP_MEAN) == 0;
  if (!status) status = parse_spec(m, mean ? "tiled" : spec, &parsed);
  if (!status) {
    const char *name = mean ? SWAP_MEAN : parsed->text;
    *canonical = at ? text_format("%s@%s", name, at) : text_format("%s", name);
    if (!*canonical) status = ATTN_ENOMEM;
  }
  if (!status)
    status = falls ? add_pyramid(m, parsed, mean ? SWAP_MEAN : parsed->text, ratio)
                   : add_part(m, parsed, mean, own.member);
  attn_spec_destroy(parsed);
  free(own.member);
  free(spec);
  return status;
}

/* A layer that two parts name. */
static attn_status refuse_overlap(const data_llama_swap *first, int64_t layers, int64_t heads,
                                  const char *spec) {
  for (const data_llama_swap *a = first; a; a = a->next)
    for (const data_llama_swap *b = a->next; b; b = b->next)
      for (int64_t l = 0; l < layers; l++)
        for (int64_t h = 0; h < heads; h++)
          if (a->where[l * heads + h] && b->where[l * heads + h])
            return attn_fail(ATTN_EINVAL, "'%s': layer %lld is named twice", spec, (long long)l);
  return ATTN_OK;
}

static bool replaces_any(const data_llama_swap *part, int64_t heads) {
  while (part && part->where && !memchr(part->where, 1, (size_t)heads)) part = part->next;
  return part;
}

/* The spec, or after an @ the line of a file. */
static attn_status read_spec(const char *spec, char **out) {
  file_map file;
  if (*spec != '@') return (*out = text_format("%s", spec)) ? ATTN_OK : ATTN_ENOMEM;
  attn_status status = file_map_open(spec + 1, &file);
  if (status) return status;
  const char *text = (const char *)file.at;
  const size_t length = file.bytes - (text[file.bytes - 1] == '\n');
  if (length == 0 || length > SPEC_BYTES || memchr(text, '\n', length) || memchr(text, '\0', length))
    status = attn_fail(ATTN_EINVAL, "%s: expected one line, the settings of layers", spec + 1);
  else if (!(*out = text_format("%.*s", (int)length, text)))
    status = ATTN_ENOMEM;
  file_map_close(&file);
  return status;
}

static attn_status make_run(maker *m, const char *spec, swap_run *out) {
  char *copy = NULL;
  attn_status status = read_spec(spec, &copy);
  m->end = &out->swap;
  out->phase = m->r->phase;
  for (char *item = copy, *next; !status && item; item = next) {
    char *canonical = NULL;
    if ((next = strchr(item, ';'))) *next++ = '\0';
    status = add_item(m, item, &canonical);
    if (!status) {
      char *longer = out->spec ? text_format("%s;%s", out->spec, canonical) : text_format("%s", canonical);
      free(out->spec);
      if (!(out->spec = longer)) status = ATTN_ENOMEM;
    }
    free(canonical);
  }
  free(copy);
  if (!status) status = refuse_overlap(&out->swap, m->layers->count, m->heads->count, spec);
  if (!status && !replaces_any(&out->swap, m->layers->count * m->heads->count))
    status = attn_fail(ATTN_EINVAL, "'%s': none of its layers is among those of --layers", spec);
  if (!status) status = name_set(m->layers, m->layer, &out->layers);
  return status ? status : name_set(m->heads, m->head, &out->heads);
}

attn_status swap_list_make(const swap_request *r, const data_llama_config *c, swap_list *out) {
  swap_list made = {0};
  member_set layers = {0}, heads = {0};
  attn_status status = read_set("layers", r->layers, c->layers, &layers);
  if (!status) status = read_set("heads", r->heads, c->heads, &heads);
  const int64_t specs = r->count + r->cache_count;
  if (!status &&
      !(made.runs = calloc((size_t)(specs * layers.runs * heads.runs * r->mix_count + 1), sizeof *made.runs)))
    status = attn_fail(ATTN_ENOMEM, "no memory for the runs of an evaluation");
  for (int64_t s = 0; !status && s < specs; s++)
    for (int64_t l = 0; !status && l < layers.runs; l++)
      for (int64_t h = 0; !status && h < heads.runs; h++)
        for (int64_t x = 0; !status && x < r->mix_count; x++) {
          maker m = {r, s >= r->count, &layers, &heads, l, h, r->mixes[x], NULL};
          status = make_run(&m, m.cache ? r->caches[s - r->count] : r->specs[s], &made.runs[made.count++]);
        }
  free(layers.member);
  free(heads.member);
  if (status)
    swap_list_free(&made);
  else
    *out = made;
  return status;
}

static void free_part(const data_llama_swap *s) {
  free((void *)s->where);
  attn_spec_destroy((attn_spec *)s->spec);
}

static void free_run(swap_run *r) {
  free_part(&r->swap);
  for (const data_llama_swap *part = r->swap.next, *next; part; part = next) {
    next = part->next;
    free_part(part);
    free((void *)part);
  }
  free(r->spec);
  free(r->layers);
  free(r->heads);
}

void swap_list_share(swap_list *l, int64_t first, int64_t shards) {
  int64_t kept = 0;
  for (int64_t i = 0; i < l->count; i++) {
    if ((i - first) % shards == 0)
      l->runs[kept++] = l->runs[i];
    else
      free_run(&l->runs[i]);
  }
  l->count = kept;
}

void swap_list_free(swap_list *l) {
  for (int64_t i = 0; i < l->count; i++) free_run(&l->runs[i]);
  free(l->runs);
  *l = (swap_list){0};
}
