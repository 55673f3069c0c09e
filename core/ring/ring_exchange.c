/* ring_exchange.c - the ring: what each rank computes of each block, and the exchange of blocks behind it.
 *
 * In step t rank r has the keys of rank s = r - t mod P. Under a causal mask and zigzag ownership a step is
 * one rectangle:
 *   s = r   the local rows are in the order of the sequence, so the mask among them is the ordinary causal
 *           one;
 *   s < r   all queries see the first chunk of s and none the second: r < 2P - 1 - r < 2P - 1 - s as chunks,
 *           and s < r;
 *   s > r   the queries of the second chunk, 2P - 1 - r, see both of s, and those of the first none.
 * Parts are joined in the order of t, whenever their messages came. Between the heads of a step MPI is asked
 * to go on: many of its transports move data only while the program is inside a call. */
#include "attn_ring.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/ring/agree.h"
#include "core/ring/lse_join.h"

enum { OWN, BEFORE, AFTER, PARTS };                       /* s = r (or any, without a mask), s < r, s > r */
enum { MESSAGE_BYTES = 1 << 28, EXCHANGE_TAG = 1 << 10 }; /* MPI counts are int */

struct attn_ring {
  MPI_Comm comm;
  int rank, ranks, threads;
  attn_problem problem; /* of the whole sequence, resolved */
  int64_t chunk;        /* most rows of any rank's chunk */
  int64_t rows[2], local;
  attn_plan *parts[PARTS]; /* for the query heads of one kv head; NULL: no such part */
  char *block[2];          /* keys [batch, kv_heads, 2 chunk, d_qk], then values: present and next */
  size_t block_bytes;
  int request_count; /* of one direction */
  MPI_Request *requests;
  ring_sums sums;
  void *o;     /* of one part */
  double *lse; /* ... */
  void *work;
  attn_ring_meter meter;
};

void attn_ring_rows(int64_t n, int ranks, int rank, int64_t *first, int64_t *count) {
  if (!first || !count || ranks < 1) return;
  int64_t chunks = 2 * (int64_t)ranks, own[] = {rank, chunks - 1 - rank};
  for (int i = 0; i < 2; i++) {
    /* floor(c n / chunks), without c n */
    int64_t whole = n / chunks, rest = n % chunks, c = own[i];
    first[i] = c * whole + c * rest / chunks;
    count[i] = (c + 1) * whole + (c + 1) * rest / chunks - first[i];
  }
}

static attn_status plan_part(attn_ring *ring, int part, int64_t n_q, int64_t n_kv, bool causal,
                             const char *spec, const attn_options *options) {
  attn_problem p = ring->problem;
  p.heads /= p.kv_heads;
  p.batch = p.kv_heads = 1;
  p.n_q = n_q;
  p.n_kv = n_kv;
  p.causal = causal;
  /* Heads are as far apart as those of the local tensors, of which a part may have the last rows. */
  p.q = (attn_stride){p.heads * ring->local * p.d_qk, ring->local * p.d_qk, p.d_qk, 0};
  p.k = p.v = p.o = (attn_stride){0};
  attn_status status = attn_plan_create(&ring->parts[part], &p, spec, options);
  if (status) return status;
  attn_view view;
  status = attn_plan_inspect(ring->parts[part], &view);
  if (status) return status;
  if (view.caps & ATTN_CAP_EXACT && view.caps & ATTN_CAP_LSE) return ATTN_OK;
  return attn_fail(ATTN_EUNSUPPORTED, "ring: %s is not exact with a log-sum-exp", spec);
}

static attn_status make_plans(attn_ring *ring, const char *spec, const attn_options *options) {
  const attn_problem *p = &ring->problem;
  if (!p->causal) return plan_part(ring, OWN, ring->local, 2 * ring->chunk, false, spec, options);
  attn_status status = plan_part(ring, OWN, ring->local, ring->local, true, spec, options);
  if (!status && ring->rank > 0)
    status = plan_part(ring, BEFORE, ring->local, ring->chunk, false, spec, options);
  if (!status && ring->rank + 1 < ring->ranks)
    status = plan_part(ring, AFTER, ring->rows[1], 2 * ring->chunk, false, spec, options);
  return status;
}

static void *get(bool *enough, int64_t count, int64_t width, size_t size) {
  int64_t factors[] = {count, width, (int64_t)size};
  size_t bytes;
  void *at = attn_size_product("ring: memory", factors, 3, &bytes) ? NULL : malloc(bytes ? bytes : 1);
  *enough &= at != NULL;
  return at;
}

static attn_status make_room(attn_ring *ring) {
  const attn_problem *p = &ring->problem;
  size_t e = attn_dtype_size(p->dtype), work = 0;
  int64_t heads = p->heads / p->kv_heads, rows = p->batch * p->heads * ring->local;
  int64_t factors[] = {p->batch, p->kv_heads, 2 * ring->chunk, p->d_qk + p->d_v, (int64_t)e};
  attn_status status = attn_size_product("ring: block", factors, 5, &ring->block_bytes);
  if (status) return status;
  for (int i = 0; i < PARTS; i++)
    if (ring->parts[i] && attn_plan_work_size(ring->parts[i]) > work)
      work = attn_plan_work_size(ring->parts[i]);
  ring->request_count = (int)((ring->block_bytes - 1) / MESSAGE_BYTES + 1);
  bool enough = true;
  for (int i = 0; i < 2; i++) ring->block[i] = get(&enough, (int64_t)ring->block_bytes, 1, 1);
  ring->requests = get(&enough, 2 * (int64_t)ring->request_count, 1, sizeof(MPI_Request));
  ring->sums = (ring_sums){get(&enough, rows, p->d_v, sizeof(double)), get(&enough, rows, 1, sizeof(double)),
                           get(&enough, rows, 1, sizeof(double)), p->d_v};
  ring->o = get(&enough, heads * ring->local, p->d_v, e);
  ring->lse = get(&enough, heads * ring->local, 1, sizeof(double));
  ring->work = get(&enough, (int64_t)work, 1, 1);
  if (!enough)
    return attn_fail(ATTN_ENOMEM, "ring: out of memory for blocks of %zu bytes", ring->block_bytes);
  /* Rows past a shorter chunk travel too. */
  for (int i = 0; i < 2; i++) memset(ring->block[i], 0, ring->block_bytes);
  return ATTN_OK;
}

static attn_status prepare(attn_ring *ring, const attn_problem *problem, const char *spec,
                           const attn_options *options) {
  attn_problem p = *problem;
  attn_options filled;
  const attn_stride *strides[] = {&p.q, &p.k, &p.v, &p.o};
  for (int i = 0; i < 4; i++)
    if (strides[i]->batch || strides[i]->head || strides[i]->row)
      return attn_fail(ATTN_EINVAL, "ring: strides must be 0: local tensors are contiguous");
  attn_status status = attn_problem_resolve(&p);
  if (!status &&
      !attn_problem_plain(&p)) /* each part would take a sink for itself, and its own places for positions */
    status = attn_fail(ATTN_EUNSUPPORTED,
                       "ring: takes scores as they are, without a mask, bias, soft cap or sink");
  if (!status && (p.q.stored || p.k.stored || p.v.stored || p.o.stored))
    status = attn_fail(ATTN_EUNSUPPORTED, "ring: takes tensors of fp32 and fp64, not in another type");
  if (!status) status = attn_options_fill(options, p.dtype, p.d_qk, p.d_v, &filled);
  if (status) return status;
  if (p.n_q != p.n_kv)
    return attn_fail(ATTN_EINVAL, "ring: n_q = %lld, expected n_kv = %lld", (long long)p.n_q,
                     (long long)p.n_kv);
  if (p.n_kv < 2 * (int64_t)ring->ranks)
    return attn_fail(ATTN_EINVAL, "ring: n = %lld, expected at least 2 rows for each of %d ranks",
                     (long long)p.n_kv, ring->ranks);
  int64_t first[2];
  attn_ring_rows(p.n_kv, ring->ranks, ring->rank, first, ring->rows);
  ring->problem = p;
  ring->threads = filled.threads;
  ring->local = ring->rows[0] + ring->rows[1];
  ring->chunk = (p.n_kv - 1) / (2 * (int64_t)ring->ranks) + 1;
  status = make_plans(ring, spec, options);
  return status ? status : make_room(ring);
}

/* The ranks compute one thing: the same problem by the same spec. Before they prepare it, since what differs
 * may fail on some ranks alone. */
static attn_status compare(MPI_Comm comm, attn_status mine, const attn_problem *problem,
                           const attn_spec *spec, const attn_options *options) {
  attn_problem p = {0};
  attn_blocks b = {0};
  if (!mine) p = *problem;
  if (!mine && options) b = options->blocks;
  const attn_ring_argument arguments[] = {
      {.name = "n", .number = p.n_kv},
      {.name = "n_q", .number = p.n_q},
      {.name = "batch", .number = p.batch},
      {.name = "heads", .number = p.heads},
      {.name = "kv_heads", .number = p.kv_heads},
      {.name = "d_qk", .number = p.d_qk},
      {.name = "d_v", .number = p.d_v},
      {.name = "dtype", .number = p.dtype},
      {.name = "causal", .number = p.causal},
      {.name = "scale", .kind = ATTN_RING_REAL, .real = p.scale},
      {.name = "spec", .kind = ATTN_RING_TEXT, .text = mine ? "" : spec->text},
      {.name = "blocks.query", .number = b.query},
      {.name = "blocks.key", .number = b.key}};
  return attn_ring_agree_on(comm, mine, arguments, sizeof arguments / sizeof *arguments);
}

static attn_status check_arguments(attn_ring *const *out, const attn_problem *problem, const char *text,
                                   attn_spec **spec) {
  if (!out) return attn_fail(ATTN_EINVAL, "ring: ring must not be NULL");
  if (!problem) return attn_fail(ATTN_EINVAL, "ring: problem must not be NULL");
  if (!text) return attn_fail(ATTN_EINVAL, "ring: spec must not be NULL");
  return attn_spec_parse(spec, text);
}

attn_status attn_ring_create(attn_ring **out, MPI_Comm comm, const attn_problem *problem, const char *spec,
                             const attn_options *options) {
  int ready = 0, between = 0;
  MPI_Initialized(&ready);
  if (!ready) return attn_fail(ATTN_EINVAL, "ring: MPI is not initialised");
  if (comm == MPI_COMM_NULL) return attn_fail(ATTN_EINVAL, "ring: the communicator is MPI_COMM_NULL");
  MPI_Comm_test_inter(comm, &between);
  if (between) return attn_fail(ATTN_EINVAL, "ring: the communicator is between two groups");
  MPI_Comm own;
  attn_status status = ring_check(MPI_Comm_dup(comm, &own), "MPI_Comm_dup");
  if (status) return status;
  MPI_Comm_set_errhandler(own, MPI_ERRORS_RETURN);
  attn_ring *ring = calloc(1, sizeof *ring);
  attn_spec *parsed = NULL;
  status =
      ring ? check_arguments(out, problem, spec, &parsed) : attn_fail(ATTN_ENOMEM, "ring: out of memory");
  status = compare(own, status, problem, parsed, options);
  attn_spec_destroy(parsed);
  if (status) {
    free(ring);
    MPI_Comm_free(&own);
    return status;
  }
  ring->comm = own;
  MPI_Comm_rank(own, &ring->rank);
  MPI_Comm_size(own, &ring->ranks);
  status = attn_ring_agree(own, prepare(ring, problem, spec, options));
  if (status)
    attn_ring_destroy(ring);
  else
    *out = ring;
  return status;
}

void attn_ring_destroy(attn_ring *ring) {
  if (!ring) return;
  for (int i = 0; i < PARTS; i++) attn_plan_destroy(ring->parts[i]);
  void *all[] = {ring->block[0], ring->block[1], ring->requests, ring->sums.o, ring->sums.max,
                 ring->sums.sum, ring->o,        ring->lse,      ring->work};
  for (size_t i = 0; i < sizeof all / sizeof *all; i++) free(all[i]);
  MPI_Comm_free(&ring->comm);
  free(ring);
}

static size_t key_bytes(const attn_ring *ring) {
  const attn_problem *p = &ring->problem;
  return ring->block_bytes / (size_t)(p->d_qk + p->d_v) * (size_t)p->d_qk;
}

/* The local keys and values as a block. */
static void pack(attn_ring *ring, const void *k, const void *v) {
  const attn_problem *p = &ring->problem;
  size_t e = attn_dtype_size(p->dtype);
  for (int side = 0; side < 2; side++) {
    size_t row = e * (size_t)(side ? p->d_v : p->d_qk), rows = row * (size_t)ring->local;
    char *to = ring->block[0] + (side ? key_bytes(ring) : 0);
    for (int64_t h = 0; h < p->batch * p->kv_heads; h++)
      memcpy(to + (size_t)h * row * (size_t)(2 * ring->chunk),
             (const char *)(side ? v : k) + (size_t)h * rows, rows);
  }
}

/* Sends the present block on and receives the next one. */
static attn_status begin_exchange(attn_ring *ring, int present) {
  int to = (ring->rank + 1) % ring->ranks, from = (ring->rank + ring->ranks - 1) % ring->ranks,
      n = ring->request_count;
  attn_status status = ATTN_OK;
  for (int i = 0; i < n && !status; i++) {
    size_t at = (size_t)i * MESSAGE_BYTES, left = ring->block_bytes - at;
    int bytes = (int)(left < MESSAGE_BYTES ? left : MESSAGE_BYTES), tag = EXCHANGE_TAG + i;
    status = ring_check(
        MPI_Irecv(ring->block[!present] + at, bytes, MPI_BYTE, from, tag, ring->comm, &ring->requests[i]),
        "MPI_Irecv");
    if (!status)
      status = ring_check(
          MPI_Isend(ring->block[present] + at, bytes, MPI_BYTE, to, tag, ring->comm, &ring->requests[n + i]),
          "MPI_Isend");
    if (!status) ring->meter.sent += bytes;
  }
  return status;
}

/* The part of every head that the block of rank s makes, added to the sums. */
static attn_status take_block(attn_ring *ring, int s, const void *q, const char *block) {
  const attn_problem *p = &ring->problem;
  int part = !p->causal || s == ring->rank ? OWN : s < ring->rank ? BEFORE : AFTER, ignored;
  const attn_plan *plan = ring->parts[part];
  int64_t first[2], count[2], heads = p->heads / p->kv_heads, skip = part == AFTER ? ring->rows[0] : 0;
  attn_ring_rows(p->n_kv, ring->ranks, s, first, count);
  int64_t keys = part == BEFORE ? count[0] : count[0] + count[1], rows = ring->local - skip;
  size_t e = attn_dtype_size(p->dtype), room = e * (size_t)(2 * ring->chunk);
  for (int64_t h = 0; h < p->batch * p->kv_heads; h++) {
    const char *k = block + (size_t)(h * p->d_qk) * room,
               *v = block + key_bytes(ring) + (size_t)(h * p->d_v) * room;
    const char *from = (const char *)q + (size_t)((h * heads * ring->local + skip) * p->d_qk) * e;
    attn_status status = attn_plan_execute_lse(plan, from, k, v, &keys, ring->o, ring->lse, ring->work);
    if (status) return status;
    for (int64_t g = 0; g < heads; g++)
      ring_sums_add(ring->sums, (h * heads + g) * ring->local + skip, rows,
                    (const char *)ring->o + (size_t)(g * rows * p->d_v) * e, ring->lse + g * rows, p->dtype,
                    ring->threads);
    status = ring_check(MPI_Testall(2 * ring->request_count, ring->requests, &ignored, MPI_STATUSES_IGNORE),
                        "MPI_Testall");
    if (status) return status;
  }
  return ATTN_OK;
}

attn_status attn_ring_execute(attn_ring *ring, const void *q, const void *k, const void *v, void *o) {
  if (!ring) return attn_fail(ATTN_EINVAL, "ring: ring must not be NULL");
  const char *missing = !q ? "q" : !k ? "k" : !v ? "v" : !o ? "o" : NULL;
  attn_status status = missing ? attn_fail(ATTN_EINVAL, "ring: %s must not be NULL", missing) : ATTN_OK;
  if ((status = attn_ring_agree(ring->comm, status))) return status;
  const attn_problem *p = &ring->problem;
  int64_t rows = p->batch * p->heads * ring->local;
  pack(ring, k, v);
  ring_sums_clear(ring->sums, rows);
  ring->meter = (attn_ring_meter){0};
  for (int t = 0, present = 0; t < ring->ranks; t++, present = !present) {
    for (int i = 0; i < 2 * ring->request_count; i++) ring->requests[i] = MPI_REQUEST_NULL;
    attn_status moved = t + 1 < ring->ranks ? begin_exchange(ring, present) : ATTN_OK;
    double begun = MPI_Wtime();
    /* A rank that failed keeps sending, because the others wait for it. */
    if (!status)
      status = take_block(ring, (ring->rank + ring->ranks - t) % ring->ranks, q, ring->block[present]);
    double computed = MPI_Wtime();
    attn_status waited =
        ring_check(MPI_Waitall(2 * ring->request_count, ring->requests, MPI_STATUSES_IGNORE), "MPI_Waitall");
    ring->meter.compute += computed - begun;
    ring->meter.wait += MPI_Wtime() - computed;
    if (!status) status = moved ? moved : waited;
  }
  double done = MPI_Wtime();
  if ((status = attn_ring_agree(ring->comm, status))) return status;
  ring->meter.wait += MPI_Wtime() - done;
  ring_sums_finish(ring->sums, rows, o, p->dtype, ring->threads);
  return ATTN_OK;
}

attn_ring_meter attn_ring_last(const attn_ring *ring) { return ring ? ring->meter : (attn_ring_meter){0}; }

attn_rounding attn_ring_rounding(const attn_ring *ring, double lse) {
  attn_rounding all = {0};
  if (!ring) return all;
  for (int i = 0; i < PARTS; i++) {
    attn_view view;
    if (!ring->parts[i] || attn_plan_inspect(ring->parts[i], &view)) continue;
    attn_rounding r = view.rounding;
    if (all.value > r.value) r.value = all.value;
    if (all.sum > r.sum) r.sum = all.sum;
    if (all.score > r.score) r.score = all.score;
    if (all.block && all.block < r.block) r.block = all.block;
    all = r;
  }
  /* Each part is divided and stored, then scaled and added once for every part after it; the row is divided
   * and stored. */
  all.value += 2 * ring->ranks + 1;
  all.sum += 2 * ring->ranks + 1;
  all.kappa_d += 2;
  /* A key's part has at most one step more after it than the whole has: steps begin elsewhere. 2 + R <= 2 (1
   * + R). */
  all.exp_error *= 2;
  /* w_b: lse is a quotient, a logarithm and a sum; then a difference, an exponential and, with a running
   * maximum, a second pair. */
  all.weight += expm1(0x1p-53 * (12 * fabs(lse) + 12));
  return all;
}
