/* swaps.c - sets of layers and heads, and the runs that they make (swaps.h). */
#include "experiments/quality/swaps.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "data/support/file.h"

/* One number below limit, and where it ends. */
static bool read_number(const char **text, int64_t limit, int64_t *out) {
  char *end;
  if (**text < '0' || **text > '9') return false;
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

/* One variant, in the layers of a run that `text` names after an @, or in all of them. */
static attn_status make_part(const swap_request *r, const char *text, const member_set *layers, int64_t layer,
                             const member_set *heads, int64_t head, double mix, data_llama_swap *out,
                             char **canonical) {
  char *spec = text_format("%s", text), *at = spec ? strrchr(spec, '@') : NULL;
  unsigned char *where = malloc((size_t)(layers->count * heads->count));
  member_set own = {0};
  attn_spec *parsed = NULL;
  attn_status status = spec && where ? ATTN_OK : attn_fail(ATTN_ENOMEM, "no memory for the heads of a model");
  *out = (data_llama_swap){.where = where, .mix = mix};
  if (at && (!at[1] || at[1 + strspn(at + 1, "0123456789,-")])) at = NULL; /* of a file's name */
  if (!status && at) {
    *at++ = '\0';
    status = read_set("layers", at, layers->count, &own);
  }
  for (int64_t l = 0; !status && l < layers->count; l++)
    for (int64_t h = 0; h < heads->count; h++)
      where[l * heads->count + h] =
          is_member(layers, layer, l) && (!at || own.member[l]) && is_member(heads, head, h);
  const bool mean = spec && strcmp(spec, SWAP_MEAN) == 0;
  if (!status) status = attn_spec_parse(&parsed, mean ? "tiled" : spec);
  if (!status) {
    const char *name = mean ? SWAP_MEAN : parsed->text;
    *canonical = at ? text_format("%s@%s", name, at) : text_format("%s", name);
    out->spec = parsed;
    if (!*canonical) status = ATTN_ENOMEM;
  }
  out->scale = mean ? 0x1p-100 : 0; /* of finite queries and keys all scores round to 0 before the softmax */
  if (!status) status = read_phase(r->phase, r->n, out);
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

static attn_status make_run(const swap_request *r, const char *spec, double mix, const member_set *layers,
                            int64_t layer, const member_set *heads, int64_t head, swap_run *out) {
  char *copy = text_format("%s", spec);
  data_llama_swap *to = &out->swap;
  attn_status status = copy ? ATTN_OK : ATTN_ENOMEM;
  out->phase = r->phase;
  for (char *item = copy, *next; !status && item; item = next) {
    char *canonical = NULL;
    if ((next = strchr(item, ';'))) *next++ = '\0';
    if (item > copy) {
      data_llama_swap *more = calloc(1, sizeof *more);
      if (!more) {
        status = attn_fail(ATTN_ENOMEM, "no memory for a swap");
        break;
      }
      to->next = more;
      to = more;
    }
    status = make_part(r, item, layers, layer, heads, head, mix, to, &canonical);
    if (!status) {
      char *longer = out->spec ? text_format("%s;%s", out->spec, canonical) : text_format("%s", canonical);
      free(out->spec);
      if (!(out->spec = longer)) status = ATTN_ENOMEM;
    }
    free(canonical);
  }
  free(copy);
  if (!status) status = refuse_overlap(&out->swap, layers->count, heads->count, spec);
  if (!status) status = name_set(layers, layer, &out->layers);
  return status ? status : name_set(heads, head, &out->heads);
}

attn_status swap_list_make(const swap_request *r, const data_llama_config *c, swap_list *out) {
  swap_list made = {0};
  member_set layers = {0}, heads = {0};
  attn_status status = read_set("layers", r->layers, c->layers, &layers);
  if (!status) status = read_set("heads", r->heads, c->heads, &heads);
  if (!status && !(made.runs = calloc((size_t)(r->count * layers.runs * heads.runs * r->mix_count + 1),
                                      sizeof *made.runs)))
    status = attn_fail(ATTN_ENOMEM, "no memory for the runs of an evaluation");
  for (int64_t s = 0; !status && s < r->count; s++)
    for (int64_t l = 0; !status && l < layers.runs; l++)
      for (int64_t h = 0; !status && h < heads.runs; h++)
        for (int64_t m = 0; !status && m < r->mix_count; m++)
          status = make_run(r, r->specs[s], r->mixes[m], &layers, l, &heads, h, &made.runs[made.count++]);
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
