/* verify.c - one execution under watch.
 *
 * Poison is a quiet NaN of the dtype that no arithmetic makes, so what is never written is told from a NaN
 * that was computed. Paint is a number, since what lies between rows is multiplied in passing. */
#include "core/plan/verify.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PAINT = 0x3f, MESSAGE = 400 };
static const uint32_t poison = 0xfffafffa; /* a quiet NaN of each type, repeated or in part */

/* Paint behind a piece of the work memory. */
typedef struct zone {
  char *piece;
  size_t bytes, whole; /* of the piece; with its redzone */
} zone;

struct attn_guards {
  const attn_variant *variant;
  char *work;
  zone *zones;
  size_t count, capacity;
  attn_status status;
  char message[MESSAGE];
};

void attn_guards_fault(attn_guards *g, attn_status status, const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
#pragma omp critical(attn_guards_message)
  if (!g->status) {
    g->status = status;
    vsnprintf(g->message, sizeof g->message, format, arguments);
  }
  va_end(arguments);
}

void verify_paint(void *at, size_t bytes) { memset(at, PAINT, bytes); }

bool verify_painted(const void *at, size_t bytes) {
  const unsigned char *c = at;
  return bytes == 0 || (*c == PAINT && memcmp(c, c + 1, bytes - 1) == 0);
}

void verify_poison(void *at, size_t bytes) {
  const size_t count = bytes / sizeof poison;
  for (size_t i = 0; i < count; i++) memcpy((char *)at + i * sizeof poison, &poison, sizeof poison);
  memcpy((char *)at + count * sizeof poison, &poison, bytes % sizeof poison);
}

static bool poisoned(const void *element, attn_dtype t) {
  const uint32_t parts[2] = {poison, poison};
  return !memcmp(element, parts, attn_dtype_size(t));
}

void verify_canvas_prepare(const verify_canvas *c, bool keep) {
  size_t e = attn_dtype_size(c->t), row = (size_t)c->row * e, used = (size_t)c->columns * e;
  for (int64_t i = 0; i < c->room_rows; i++) {
    char *at = attn_at(c->at, i * c->row, c->t);
    if (i < c->rows && !keep) verify_poison(at, used);
    if (i < c->rows)
      verify_paint(at + used, row - used);
    else
      verify_paint(at, row);
  }
}

bool verify_canvas_intact(const verify_canvas *c) {
  size_t e = attn_dtype_size(c->t), row = (size_t)c->row * e;
  for (int64_t i = 0; i < c->room_rows; i++) {
    size_t used = i < c->rows ? (size_t)c->columns * e : 0;
    if (!verify_painted((const char *)attn_at(c->at, i * c->row, c->t) + used, row - used)) return false;
  }
  return true;
}

/* May a row hold poison? Without a branch, since hardly any does. */
static bool suspect(const void *row, size_t bytes) {
  const size_t count = bytes / sizeof poison;
  uint32_t found = 0;
  for (size_t i = 0; i < count; i++) {
    uint32_t part;
    memcpy(&part, (const char *)row + i * sizeof part, sizeof part);
    found |= part == poison;
  }
  return found || bytes % sizeof poison != 0;
}

bool verify_canvas_unwritten(const verify_canvas *c, int64_t *row, int64_t *column) {
  const size_t used = (size_t)c->columns * attn_dtype_size(c->t);
  for (int64_t i = 0; i < c->rows; i++)
    for (int64_t l = suspect(attn_at(c->at, i * c->row, c->t), used) ? 0 : c->columns; l < c->columns; l++)
      if (poisoned(attn_at(c->at, i * c->row + l, c->t), c->t)) {
        *row = i;
        *column = l;
        return true;
      }
  return false;
}

static void check_zone(attn_guards *g, const zone *z) {
  if (verify_painted(z->piece + z->bytes, z->whole - z->bytes)) return;
  size_t at = (size_t)(z->piece - g->work);
  attn_guards_fault(g, ATTN_EFOREIGN,
                    "variant %s: execute wrote behind a piece of its work memory, bytes %zu .. %zu",
                    g->variant->name, at, at + z->bytes);
}

/* A piece may be handed out again, to the next task of a thread, or its memory as other pieces. */
static bool known(attn_guards *g, const char *piece, size_t bytes, size_t whole) {
  for (size_t i = 0; i < g->count;) {
    zone *z = &g->zones[i];
    if (piece >= z->piece + z->whole || z->piece >= piece + whole) {
      i++;
      continue;
    }
    check_zone(g, z);
    if (z->piece == piece && z->bytes == bytes && z->whole == whole) return true;
    *z = g->zones[--g->count];
  }
  return false;
}

static void watch(attn_guards *g, char *piece, size_t bytes, size_t whole) {
  if (known(g, piece, bytes, whole)) return;
  if (g->count == g->capacity) {
    size_t capacity = g->capacity ? 2 * g->capacity : 64;
    zone *more = realloc(g->zones, capacity * sizeof *more);
    if (!more) {
      attn_guards_fault(g, ATTN_ENOMEM, "variant %s: no memory for the redzones of its work memory",
                        g->variant->name);
      return;
    }
    g->zones = more;
    g->capacity = capacity;
  }
  verify_paint(piece + bytes, whole - bytes);
  g->zones[g->count++] = (zone){piece, bytes, whole};
}

void attn_guards_piece(attn_guards *g, void *piece, size_t bytes, size_t with_redzone) {
  if (!g || !piece) return;
#pragma omp critical(attn_guards_zones)
  watch(g, piece, bytes, with_redzone);
}

/* -- tensors -- */

typedef struct tensor {
  const char *name;
  void *at;
  attn_stride stride;
  int64_t heads, rows, d; /* rows: those that may be read, of one batch entry */
} tensor;

enum { LANES = 4 };

/* What a tensor holds, row by row: FNV-1a of 64-bit words, in lanes that do not wait for each other. */
static uint64_t digest(const tensor *x, int64_t batch, attn_dtype t, uint64_t hash) {
  static const uint64_t prime = UINT64_C(0x100000001b3);
  uint64_t lane[LANES];
  for (uint64_t i = 0; i < LANES; i++) lane[i] = hash ^ i;
  for (int64_t h = 0; h < x->heads; h++)
    for (int64_t i = 0; i < x->rows; i++) {
      const char *row = attn_at(attn_rows(x->at, x->stride, batch, h, t), i * x->stride.row, t);
      const size_t bytes = attn_row_bytes(x->d, t);
      size_t at = 0;
      for (; at + sizeof lane <= bytes; at += sizeof lane) {
        uint64_t words[LANES];
        memcpy(words, row + at, sizeof words);
        for (int l = 0; l < LANES; l++) {
          lane[l] = (lane[l] ^ words[l]) * prime;
          lane[l] ^= lane[l] >> 29;
        }
      }
      for (; at < bytes; at += sizeof hash) {
        uint64_t word = 0;
        memcpy(&word, row + at, bytes - at < sizeof word ? bytes - at : sizeof word);
        lane[0] = (lane[0] ^ word) * prime;
        lane[0] ^= lane[0] >> 29;
      }
    }
  for (int l = 0; l < LANES; l++) hash = (hash ^ lane[l]) * prime;
  return hash;
}

enum { INPUTS = 3 };

static void digest_inputs(const attn_call *call, uint64_t out[INPUTS]) {
  const attn_problem *p = call->context->problem;
  for (int x = 0; x < INPUTS; x++) out[x] = UINT64_C(0xcbf29ce484222325);
  for (int64_t b = 0; b < p->batch; b++) {
    int64_t keys = attn_call_keys(call, b);
    const tensor inputs[INPUTS] = {
        {"q", (void *)(uintptr_t)call->q, p->q, p->heads, p->n_q, p->d_qk},
        {"k", (void *)(uintptr_t)call->k, p->k, p->kv_heads, keys, p->d_qk},
        {"v", (void *)(uintptr_t)call->v, p->v, p->kv_heads, keys, p->d_v},
    };
    for (int x = 0; x < INPUTS; x++)
      out[x] = digest(&inputs[x], b, attn_stored(inputs[x].stride, p->dtype), out[x]);
  }
}

static verify_canvas output_row(const attn_call *call, int64_t line, int64_t i) {
  const attn_problem *p = call->context->problem;
  void *row = attn_row(call->o, p->o, line / p->heads, line % p->heads, i, p->dtype);
  return (verify_canvas){row, 1, p->d_v, p->d_v, 1, attn_stored(p->o, p->dtype)};
}

static void poison_outputs(const attn_call *call) {
  const attn_problem *p = call->context->problem;
  for (int64_t line = 0; line < p->batch * p->heads; line++)
    for (int64_t i = 0; i < p->n_q; i++) {
      verify_canvas row = output_row(call, line, i);
      verify_canvas_prepare(&row, false);
    }
  if (call->lse) verify_poison(call->lse, (size_t)(p->batch * p->heads * p->n_q) * sizeof(double));
}

static void check_outputs(attn_guards *g, const attn_call *call) {
  const attn_problem *p = call->context->problem;
  for (int64_t line = 0; line < p->batch * p->heads && !g->status; line++)
    for (int64_t i = 0; i < p->n_q && !g->status; i++) {
      verify_canvas row = output_row(call, line, i);
      int64_t ignored, column;
      const char *name = verify_canvas_unwritten(&row, &ignored, &column) ? "o" : NULL;
      if (!name && call->lse && poisoned(&call->lse[line * p->n_q + i], ATTN_F64)) {
        name = "lse";
        column = 0;
      }
      if (name)
        attn_guards_fault(g, ATTN_EFOREIGN,
                          "variant %s: execute left %s unwritten, or took it from memory that nothing wrote "
                          "(batch entry %lld, head %lld, query %lld, column %lld)",
                          g->variant->name, name, (long long)(line / p->heads), (long long)(line % p->heads),
                          (long long)i, (long long)column);
    }
}

static void check_inputs(attn_guards *g, const attn_call *call, const uint64_t before[INPUTS]) {
  static const char *const names[INPUTS] = {"q", "k", "v"};
  uint64_t after[INPUTS];
  digest_inputs(call, after);
  for (int x = 0; x < INPUTS; x++)
    if (after[x] != before[x])
      attn_guards_fault(g, ATTN_EFOREIGN, "variant %s: execute changed its input %s", g->variant->name,
                        names[x]);
}

attn_status attn_verify_execute(const attn_method *method, const void *state, const attn_call *given,
                                size_t bytes) {
  const attn_variant *variant = given->context->variant;
  attn_guards g = {.variant = variant};
  attn_call call = *given;
  char *margin = call.work;
  uint64_t before[INPUTS];
  if (bytes) call.work = g.work = margin + VERIFY_MARGIN;
  call.guards = &g;
  if (bytes) {
    verify_paint(margin, VERIFY_MARGIN);
    verify_poison(g.work, bytes);
    verify_paint(g.work + bytes, VERIFY_MARGIN);
  }
  poison_outputs(&call);
  digest_inputs(&call, before);
  attn_status status = method->execute(state, &call);
  /* Pieces first: they say best where it was. */
  for (size_t i = 0; i < g.count; i++) check_zone(&g, &g.zones[i]);
  if (bytes && !verify_painted(margin, VERIFY_MARGIN))
    attn_guards_fault(&g, ATTN_EFOREIGN, "variant %s: execute wrote before its work memory of %zu bytes",
                      variant->name, bytes);
  if (bytes && !verify_painted(g.work + bytes, VERIFY_MARGIN))
    attn_guards_fault(&g, ATTN_EFOREIGN, "variant %s: execute wrote behind its work memory of %zu bytes",
                      variant->name, bytes);
  check_inputs(&g, &call, before);
  if (!status) check_outputs(&g, &call);
  free(g.zones);
  return g.status ? attn_fail(g.status, "%s", g.message) : status;
}
