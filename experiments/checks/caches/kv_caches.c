/* kv_caches.c - CACHE-1, CACHE-2, CACHE-3 and CACHE-5: a cache that decodes a run's first positions
 * (decoding.h) gives what the plan of its spec gives on the whole sequence, reports the memory that it has,
 * reads what it holds and nothing else, and goes back and is copied without a trace. CACHE-3 is two
 * statements in one: a cache with gaps is dense attention with the other keys masked, and values that went
 * are not read. */
#include "experiments/checks/caches/decoding.h"
#include "experiments/checks/check_table.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct finding {
  outcome worst;
  char text[160]; /* where */
} finding;

static void keep(finding *f, outcome own, const char *text) {
  if (outcome_worsen(&f->worst, own)) snprintf(f->text, sizeof f->text, "%s", text);
}

/* A cache that a decoding could make, and that fails later, is wrong. */
static attn_status evaluate(const evidence *e, attn_status (*judge)(const decoding *, finding *),
                            result_bound *bound) {
  decoding d;
  finding f = {.worst = OUTCOME_NONE};
  attn_status status = decoding_make(e, &d);
  if (status == ATTN_EUNSUPPORTED || status == ATTN_EINVAL)
    status = bound_not_applicable(bound, attn_last_error());
  else if (!status && !d.finite)
    status = bound_uncertifiable(bound, row_reason(ROW_INFINITE));
  else if (!status) {
    status = judge(&d, &f);
    if (status && status != ATTN_ENOMEM) {
      keep(&f, (outcome){.measured = (double)INFINITY}, attn_last_error());
      status = ATTN_OK;
    }
    if (!status) outcome_to_verdict(&f.worst, bound);
    if (bound->verdict == VERDICT_VIOLATED) bound_say(bound, "%s", f.text);
  }
  decoding_free(&d);
  return status;
}

/* Of the last query of each sequence. */
static int64_t last_elements(const decoding *d) {
  return d->problem.batch * d->problem.heads * d->problem.d_v;
}
static char *last_make(const decoding *d) {
  return malloc((size_t)last_elements(d) * attn_dtype_size(d->problem.dtype));
}

/* Elements that are not the same bits. */
static outcome compare(const decoding *d, const char *a, const char *b) {
  const size_t bytes = attn_dtype_size(d->problem.dtype);
  int64_t count = 0;
  for (int64_t i = 0; i < last_elements(d); i++)
    count += memcmp(a + (size_t)i * bytes, b + (size_t)i * bytes, bytes) != 0;
  return (outcome){.measured = (double)count};
}

static const int64_t start[DECODED_ENTRIES];

/* o: of the last query of a cache that is given `length` positions at once. */
static attn_status decode_at_once(const decoding *d, const int64_t *length, char *o) {
  attn_kv_cache *c = NULL;
  int64_t last[DECODED_ENTRIES];
  attn_status status = o ? decoding_cache(d, NULL, &c) : attn_fail(ATTN_ENOMEM, "no memory for an output");
  for (int64_t b = 0; b < d->problem.batch; b++) last[b] = length[b] - 1;
  if (!status) status = decoding_append(d, c, start, length);
  if (!status) status = decoding_attend(d, c, last, 1, o);
  attn_kv_cache_destroy(c);
  return status;
}

/* ---- CACHE-1 ------------------------------------------------------------------------------------------ */

static attn_status judge_sequence(const decoding *d, finding *f) {
  decoded r;
  char *o = last_make(d);
  attn_status status = decoding_run(d, &r);
  if (!status) status = decoding_judge(d, &r, false, &f->worst, f->text, sizeof f->text);
  if (!status) status = decode_at_once(d, r.length, o);
  if (!status) keep(f, compare(d, r.last, o), "not the bits of a cache that was given all positions at once");
  decoded_free(&r);
  free(o);
  return status;
}

static attn_status sequence_evaluate(const evidence *e, result_bound *bound) {
  return evaluate(e, judge_sequence, bound);
}

#define CUT                                                                                          \
  "The first positions of the first two batch entries: 192, or 48 more than a policy or a prompt "   \
  "holds, at most 512, and fewer where many heads are wide. The run is causal, without a mask or a " \
  "bias of single scores; its inputs are finite. "

const check check_cache1 = {
    .name = "CACHE-1",
    .of = &of_cached,
    .kind = KIND_HARD,
    .statement = "a cache whose keys arrive in any parts gives what the plan gives on the whole sequence",
    .source = "definition of a cache (core/cache/attn_kv_cache.h)",
    .formula =
        "After each drawn part the last queries' |o^_l - o_l| <= the bound of FP-1 or FP-2, o the softmax "
        "over the keys that the plan sees on the whole sequence, as the store holds them, or of MLA-1 for "
        "a query of latents; and the bits of the last one are those of a cache that was given all positions "
        "at once.",
    .cause =
        "queries that are observed before their key, rows that are lost as memory grows, positions counted "
        "in the cache, sequences of different lengths",
    .assumes = CUT "And what FP-1 assumes.",
    .nulls = CHECK_REJECTS_ALL("Gaussian inputs of std 1, n = 96"),
    .evaluate = sequence_evaluate,
};

/* ---- CACHE-2 ------------------------------------------------------------------------------------------ */

/* Bits of an element by the definitions of the types, and of what a block of 32 has besides. */
static const struct {
  int64_t element, block;
} type_bits[] = {[ATTN_F32] = {32, 0},  [ATTN_F64] = {64, 0},  [ATTN_F16] = {16, 0},  [ATTN_BF16] = {16, 0},
                 [ATTN_FP8] = {8, 0},   [ATTN_Q8_0] = {8, 16}, [ATTN_Q4_0] = {4, 16}, [ATTN_INT1] = {1, 32},
                 [ATTN_INT2] = {2, 32}, [ATTN_INT3] = {3, 32}, [ATTN_INT4] = {4, 32}, [ATTN_INT5] = {5, 32},
                 [ATTN_INT6] = {6, 32}, [ATTN_INT7] = {7, 32}, [ATTN_INT8] = {8, 32}};

static int64_t row_bits(attn_dtype type, int64_t d) {
  const int64_t whole = type < ATTN_FP8 ? d : (d + 31) / 32 * 32;
  return whole * type_bits[type].element + whole / 32 * type_bits[type].block;
}

/* Of a cache that gives up nothing: by how many bytes more or fewer than its rows take it has grown. */
static attn_status judge_growth(const decoding *d, finding *f) {
  const attn_problem *p = &d->problem;
  const attn_kv_store none = {.reader = NULL}, *store = d->e->view->store ? d->e->view->store : &none;
  const attn_latent *latent = d->view.latent;
  const int64_t all[DECODED_ENTRIES] = {p->n_kv, p->n_kv},
                rows = p->batch * p->n_kv * (latent ? 1 : p->kv_heads),
                bits = latent ? row_bits(p->dtype, latent->rank)
                              : row_bits(store->k ? store->k : p->dtype, p->d_qk) +
                                    row_bits(store->v ? store->v : p->dtype, p->d_v);
  attn_kv_cache *c = NULL;
  attn_status status = decoding_cache(d, NULL, &c);
  const size_t empty = attn_kv_cache_bytes(c);
  if (!status) status = decoding_append(d, c, start, all);
  const double grown = (double)(attn_kv_cache_bytes(c) - empty), due = (double)(rows * bits) / 8;
  if (!status)
    keep(f, (outcome){.measured = fabs(grown - due)}, "it grows by other than the bits of its types");
  attn_kv_cache_destroy(c);
  return status;
}

static attn_status judge_bytes(const decoding *d, finding *f) {
  decoded r;
  attn_status status = decoding_run(d, &r);
  if (!status)
    keep(f, (outcome){.measured = (double)r.wrong}, "it reports other bytes than the allocator has given");
  const attn_latent *latent = d->view.latent;
  if (!status && !d->view.cache && !(latent && d->problem.n_kv <= latent->prompt))
    status = judge_growth(d, f);
  decoded_free(&r);
  return status;
}

static attn_status bytes_evaluate(const evidence *e, result_bound *bound) {
  return evaluate(e, judge_bytes, bound);
}

const check check_cache2 = {
    .name = "CACHE-2",
    .of = &of_cached,
    .kind = KIND_HARD,
    .statement =
        "a cache reports the bytes that the allocator has given it, and its rows take the bits of their "
        "types",
    .source = "definition of attn_kv_cache_bytes; of the types (core/kernels/codes.h)",
    .formula =
        "After each append and each query |reported - given| = 0, also when all is returned; where no key "
        "goes, the growth of a full cache is batch x kv_heads x positions x (bits of a key and a value), "
        "scales and least values included, of latents batch x positions x (bits of one). measured: bytes.",
    .cause = "memory that is not counted, or counted twice, as a cache grows or plans anew",
    .assumes = CUT,
    .nulls = CHECK_BLIND("it counts memory, and looks at no output"),
    .evaluate = bytes_evaluate,
};

/* ---- CACHE-3 ------------------------------------------------------------------------------------------ */

/* The decoding's values, with NaN in those that are not held in the end; *gone: how many these are. */
static char *poison(const decoding *d, const decoded *r, int64_t *gone) {
  const attn_problem *p = &d->problem;
  const int64_t n = p->n_kv, lines = p->batch * p->kv_heads;
  const size_t bytes = (size_t)(lines * n * p->d_v) * attn_dtype_size(p->dtype);
  char *v = malloc(bytes);
  *gone = 0;
  if (v) memcpy(v, d->v, bytes);
  for (int64_t x = 0; v && x < lines * n; x++) {
    const int64_t line = x / n, last = r->length[line / p->kv_heads] - 1;
    if (x % n > last || r->held[(line * n + last) * n + x % n]) continue;
    for (int64_t l = 0; l < p->d_v; l++) attn_set(v, x * p->d_v + l, p->dtype, (double)NAN);
    ++*gone;
  }
  return v;
}

static attn_status judge_gaps(const decoding *d, finding *f) {
  decoding poisoned = *d;
  decoded r;
  int64_t gone = 0;
  if (!d->view.cache) return ATTN_OK;
  attn_status status = decoding_run(d, &r);
  char *o = last_make(d), *v = status ? NULL : poison(d, &r, &gone);
  poisoned.v = v;
  if (!status && !v) status = attn_fail(ATTN_ENOMEM, "no memory for values");
  if (!status && gone) status = decoding_judge(d, &r, true, &f->worst, f->text, sizeof f->text);
  /* Where scores read values, those that went have chosen what is held. */
  const bool unread = gone && !d->view.cache->score->values;
  if (!status && unread) status = decode_at_once(&poisoned, r.length, o);
  if (!status && unread) keep(f, compare(d, r.last, o), "values of keys that went are read");
  decoded_free(&r);
  free(o);
  free(v);
  return status;
}

static attn_status gaps_evaluate(const evidence *e, result_bound *bound) {
  return evaluate(e, judge_gaps, bound);
}

const check check_cache3 = {
    .name = "CACHE-3",
    .of = &of_held,
    .kind = KIND_HARD,
    .statement = "a cache attends to the keys that it says it holds, where they stood, and reads no other",
    .source = "definition of a cache (core/cache/attn_kv_cache.h)",
    .formula =
        "|o^_l - o_l| <= the bound of FP-2, o the softmax over the positions that attn_kv_cache_look gives "
        "after each drawn part, with the scores that these positions have; and, unless the policy's score "
        "reads values, the last output has the same bits where those of all other positions are NaN.",
    .cause =
        "positions counted among the held keys, gaps that are closed in keys and not in values, a head that "
        "reads its neighbour's positions",
    .assumes = CUT "Some key goes within them. And what FP-2 assumes.",
    .nulls = CHECK_BLIND("it runs caches, and looks at no output of the run"),
    .evaluate = gaps_evaluate,
};

/* ---- CACHE-5 ------------------------------------------------------------------------------------------ */

static attn_status append_to(const decoding *d, attn_kv_cache *c, int64_t from, int64_t count) {
  const int64_t first[DECODED_ENTRIES] = {from, from}, all[DECODED_ENTRIES] = {count, count};
  return count ? decoding_append(d, c, first, all) : ATTN_OK;
}

/* Positions that may be taken back from a cache of `length`, with `more` to come. */
static int64_t retractable(const decoding *d, int64_t length, int64_t more) {
  const attn_kv_rule *r = d->view.cache;
  const int64_t whole = decoding_whole(&d->view), left = whole - length;
  if (!whole || (d->view.latent && left < 0)) return more; /* latents are taken back one by one */
  return (r && attn_kv_observes(r->score)) || left < 0 ? 0 : left < more ? left : more;
}

/* A third of the positions; then, of the cache, others that are taken back, and the rest; of its copy the
 * first positions again. There is room for what should have been taken back. */
static attn_status judge_copy(const decoding *d, finding *f) {
  const int64_t n = d->problem.n_kv, head = (n + 2) / 3, back = retractable(d, head, (n - head) / 2),
                rest = n - head - back, last = head + rest - 1, to[DECODED_ENTRIES] = {head, head},
                all[DECODED_ENTRIES] = {last + 1, last + 1}, query[DECODED_ENTRIES] = {last, last};
  attn_kv_cache *c = NULL, *copy = NULL, *fresh = NULL;
  char *own = last_make(d), *due = last_make(d);
  attn_status status =
      own && due ? decoding_cache(d, NULL, &c) : attn_fail(ATTN_ENOMEM, "no memory for outputs");
  if (!status) status = append_to(d, c, 0, head);
  if (!status) status = attn_kv_cache_copy(c, &copy);
  if (!status) status = append_to(d, c, 0, back);
  if (!status && back) status = attn_kv_cache_truncate(c, to);
  if (!status) status = append_to(d, c, head, rest);
  if (!status) status = append_to(d, copy, 0, rest);
  if (!status) status = decoding_attend(d, c, query, 1, own);
  if (!status) status = decode_at_once(d, all, due);
  if (!status) keep(f, compare(d, own, due), "what was taken back, or given to its copy, is still there");
  if (!status) status = decoding_cache(d, NULL, &fresh);
  if (!status) status = append_to(d, fresh, 0, head);
  if (!status) status = append_to(d, fresh, 0, rest);
  if (!status) status = decoding_attend(d, copy, query, 1, own);
  if (!status) status = decoding_attend(d, fresh, query, 1, due);
  if (!status) keep(f, compare(d, own, due), "its copy is not a cache that was given the same");
  attn_kv_cache_destroy(copy);
  attn_kv_cache_destroy(c);
  attn_kv_cache_destroy(fresh);
  free(own);
  free(due);
  return status;
}

static attn_status copy_evaluate(const evidence *e, result_bound *bound) {
  return evaluate(e, judge_copy, bound);
}

const check check_cache5 = {
    .name = "CACHE-5",
    .of = &of_cached,
    .kind = KIND_HARD,
    .statement =
        "positions that are taken back were never there, and a cache and its copy do not see each other",
    .source = "definition of attn_kv_cache_truncate and attn_kv_cache_copy",
    .formula =
        "Bits of the last output that differ from those of a cache of the same positions alone: of one that "
        "was copied, and given others that were taken back; and of the copy, given others again. measured: "
        "elements.",
    .cause = "memory that a copy shares or lacks, state that outlives the positions from which it came",
    .assumes = CUT "Positions are taken back before keys go, and not where a policy has observed queries.",
    .nulls = CHECK_BLIND("it runs caches, and looks at no output of the run"),
    .evaluate = copy_evaluate,
};
