/* kv_memory.h - the memory of a cache of keys and values (attn_kv_cache.h), of its allocator and counted. */
#ifndef ATTN_CORE_CACHE_KV_MEMORY_H
#define ATTN_CORE_CACHE_KV_MEMORY_H

#include "core/internal.h"

#include "core/cache/attn_kv_cache.h"

/* What a cache may hold of each key: arrays [batch, kv_heads, rows], whose rows have `bytes` bytes, 0 of what
 * it does not hold. */
typedef enum kv_field {
  KV_KEYS,
  KV_VALUES,
  KV_WIDE_KEYS, /* again in fp64, where scores or queries read them */
  KV_WIDE_VALUES,
  KV_POSITIONS, /* int64_t, where keys go; kept by the heads */
  KV_FIELDS
} kv_field;

/* Where the cache holds latents (kv_latents.c): as keys of one kv head, which are its values, too. */
typedef struct kv_latents {
  attn_latent law;       /* rank 0: it holds keys and values */
  attn_problem given;    /* of what arrives and is asked */
  attn_kv_cache *prompt; /* keys and values as they are given, until more than the prompt's have arrived */
  double *w, *row;       /* [batch][rank, width]; of each thread [rank + width] */
} kv_latents;

struct attn_kv_cache {
  attn_allocator allocator;
  attn_options options;
  attn_problem problem; /* resolved; k.stored and v.stored as the cache holds them; of latents' queries */
  kv_latents latents;
  attn_dtype k_given, v_given;
  attn_arena arrays; /* that its score and mask point to */
  attn_spec *reader;
  bool evicts;
  attn_kv_rule rule;
  int64_t most, rows; /* keys that a kv head may hold, and for how many there is room */
  struct {
    void *at;
    size_t bytes;
  } field[KV_FIELDS];
  attn_kv_head *head;             /* [batch, kv_heads], where keys go */
  char *state;                    /* of these */
  size_t state_bytes;             /* of one */
  int64_t *length, *held, *first; /* [batch]: positions; the most keys that a kv head holds; of a call */
  int64_t *went;                  /* [batch, kv_heads]: the last position for which a key went */
  char *code;                     /* where keys go, of each head the row of an arriving key as it is held */
  int64_t *budget;                /* [kv_heads], while they are divided */
  double *scores;                 /* by which they are: [kv_heads, most]; NULL where kv heads share none */
  double *row;                    /* [heads / kv_heads + 1, d_qk] */
  attn_plan *plan;
  void *work;
  size_t bytes;
};

static inline int64_t kv_lines(const attn_kv_cache *c) { return c->problem.batch * c->problem.kv_heads; }
/* Keys that a kv head holds. */
static inline int64_t kv_count(const attn_kv_cache *c, int64_t line) {
  return c->evicts ? c->head[line].count : c->length[line / c->problem.kv_heads];
}
static inline bool kv_shares(const attn_kv_cache *c) { return c->evicts && c->rule.shared > 0; }
/* May kv heads of a sequence hold different numbers of keys? */
static inline bool kv_ragged(const attn_kv_cache *c) {
  return kv_shares(c) || (c->evicts && attn_kv_admits(&c->rule));
}
static inline int64_t kv_group(const attn_kv_cache *c) { return c->problem.heads / c->problem.kv_heads; }

/* Row i of a kv head; NULL: there is none. */
static inline void *kv_row(const attn_kv_cache *c, kv_field f, int64_t line, int64_t i) {
  return c->field[f].at ? (char *)c->field[f].at + (size_t)(line * c->rows + i) * c->field[f].bytes : NULL;
}

/* The appended tensors of a call. */
typedef struct kv_arrivals {
  int64_t n;
  const int64_t *length;
  const char *q, *k, *v;
} kv_arrivals;
static inline int64_t kv_arriving(const kv_arrivals *a, int64_t batch) {
  return a->length ? a->length[batch] : a->n;
}

void *kv_take(attn_kv_cache *, int64_t count, size_t size); /* NULL with the error recorded */
void kv_give(attn_kv_cache *, void *at, int64_t count, size_t size);
void kv_drop_plan(attn_kv_cache *);
/* What a cache without keys has, of its problem and its rule. Released by kv_free, also where it fails. */
attn_status kv_begin(attn_kv_cache *);
void kv_free(attn_kv_cache *);
/* Room for that many keys of each head; the cache is as it was where there is no memory. */
attn_status kv_grow(attn_kv_cache *, int64_t wanted);
/* Closes the gaps that keys leave in the rows of a head which had `count`. */
void kv_close_gaps(attn_kv_cache *, int64_t line, int64_t count, const int64_t *gone, int64_t n);
/* Sets held. */
void kv_count_held(attn_kv_cache *);
/* Keys, positions and what heads know, to a cache of the same problem, rule and rows. */
void kv_copy(const attn_kv_cache *, attn_kv_cache *);
/* A plan for n queries, made where n is another than before, its work memory included; attention to the rows
 * that are held. */
size_t kv_work_bytes(const attn_kv_cache *, const attn_plan *);
attn_status kv_plan(attn_kv_cache *, int64_t n);
attn_status kv_run(attn_kv_cache *, const void *q, void *o, double *lse);

/* The cache is one of such latents. What a cache of them does besides: their memory in kv_begin, what
 * arrives, queries, positions that are taken back. */
attn_status kv_latents_take(attn_kv_cache *, const attn_latent *);
attn_status kv_latents_begin(attn_kv_cache *);
void kv_latents_free(attn_kv_cache *);
attn_status kv_latents_copy(const attn_kv_cache *, attn_kv_cache *);
attn_status kv_latents_append(attn_kv_cache *, const kv_arrivals *);
size_t kv_latents_work(const attn_kv_cache *, int64_t n);
attn_status kv_latents_attend(attn_kv_cache *, int64_t n, const void *q, void *o, double *lse);
attn_status kv_latents_truncate(attn_kv_cache *, const int64_t *length);

#endif
