/* spread.c - the first process makes or reads the tensors, deals their rows to the others, gathers the
 * output and judges it. Errors of MPI end the program, which is the default of MPI. */
#include "experiments/ring/spread.h"

#include <mpi.h>
#include <stdlib.h>
#include <string.h>

#include "attn_ring.h"
#include "experiments/ring/ring_judge.h"

enum { TIMES_MAX = 5 };
static const double time_enough = 1; /* seconds */

/* State of the first process. */
typedef struct whole {
  data_qkv qkv;
  void *alone, *o; /* outputs of one process and of a ring */
  attn_plan *plan;
  attn_view view; /* of the plan */
  exact_rows *exact;
  struct block_cache *cache;
  double lse;
} whole;

static void whole_free(whole *w) {
  exact_rows_free(w->exact);
  block_cache_free(w->cache);
  attn_plan_destroy(w->plan);
  free(w->alone);
  free(w->o);
  data_qkv_free(&w->qkv);
}

static void *get(const int64_t *factors, size_t count, attn_status *status) {
  size_t bytes = 0;
  if (!*status) *status = attn_size_product("tensor", factors, count, &bytes);
  void *at = *status ? NULL : malloc(bytes);
  if (!*status && !at) *status = attn_fail(ATTN_ENOMEM, "out of memory for a tensor of %zu bytes", bytes);
  return at;
}

/* Repeats until the times sum to time_enough. All processes of `comm` make the same decision. */
static bool again(double spent, int count) { return count < TIMES_MAX && spent < time_enough; }

static attn_status run_alone(whole *w, const spread_options *o, spread_result *out) {
  const attn_problem *p = attn_plan_problem(w->plan);
  attn_status status = ATTN_OK;
  void *work = get((int64_t[]){(int64_t)attn_plan_work_size(w->plan) + 1}, 1, &status);
  double spent = 0;
  for (int i = 0; !status && (i == 0 || again(spent, i)); i++) {
    double begun = MPI_Wtime();
    status = attn_plan_execute(w->plan, w->qkv.q, w->qkv.k, w->qkv.v, NULL, w->alone, work);
    double time = MPI_Wtime() - begun;
    if (i == 0 || time < out->alone) out->alone = time;
    spent += time;
  }
  free(work);
  if (!status) status = exact_rows_compute(p, w->qkv.q, w->qkv.k, w->qkv.v, NULL, o->request.seed, &w->exact);
  return status;
}

/* The tensors, and the output of one process without a ring. */
static attn_status prepare(const spread_options *o, whole *w, spread_result *out) {
  attn_status status = o->in ? data_qkv_read(&(data_reading){.in = o->in, .limit = o->n}, &w->qkv)
                             : data_source_make("gaussian", &o->request, &w->qkv, NULL);
  if (!status && o->has_dtype) status = data_qkv_convert(&w->qkv, o->request.dtype);
  if (status) return status;
  attn_problem p = data_qkv_problem(&w->qkv);
  p.causal = o->causal;
  out->problem = p;
  status = attn_plan_create(&w->plan, &p, o->spec, &(attn_options){.threads = o->threads});
  if (!status) status = attn_plan_inspect(w->plan, &w->view);
  int64_t shape[] = {p.batch, p.heads, p.n_q, p.d_v, (int64_t)attn_dtype_size(p.dtype)};
  w->alone = get(shape, 5, &status);
  w->o = get(shape, 5, &status);
  if (!status && !(w->cache = block_cache_create()))
    status = attn_fail(ATTN_ENOMEM, "no memory for the cache of the checks");
  if (status) return status;
  w->lse = ring_lse_bound(&p, w->qkv.q, w->qkv.k);
  return run_alone(w, o, out);
}

/* One tensor between the whole [lines, n, row], which the first process holds, and the local rows of every
 * process. */
typedef struct deck {
  MPI_Comm comm;
  int64_t lines, n;
  size_t row; /* bytes */
  char *all, *local;
  bool gather; /* local rows to the whole; else the other way */
} deck;

static void move_stretch(const deck *d, int owner, char *all, char *local, int64_t count, int rank,
                         MPI_Datatype type) {
  if (owner == 0)
    memcpy(d->gather ? all : local, d->gather ? local : all, (size_t)count * d->row);
  else if ((rank == 0) == d->gather)
    MPI_Recv(rank == 0 ? all : local, (int)count, type, rank == 0 ? owner : 0, 0, d->comm, MPI_STATUS_IGNORE);
  else
    MPI_Send(rank == 0 ? all : local, (int)count, type, rank == 0 ? owner : 0, 0, d->comm);
}

static void move_rows(const deck *d) {
  int rank, ranks;
  MPI_Comm_rank(d->comm, &rank);
  MPI_Comm_size(d->comm, &ranks);
  MPI_Datatype type;
  MPI_Type_contiguous((int)d->row, MPI_BYTE, &type);
  MPI_Type_commit(&type);
  for (int owner = rank; owner < (rank ? rank + 1 : ranks); owner++) {
    int64_t first[2], count[2];
    attn_ring_rows(d->n, ranks, owner, first, count);
    for (int64_t line = 0; line < d->lines; line++)
      for (int i = 0; i < 2; i++) {
        char *local = d->local + (size_t)(line * (count[0] + count[1]) + (i ? count[0] : 0)) * d->row;
        char *all = rank ? NULL : d->all + (size_t)(line * d->n + first[i]) * d->row;
        move_stretch(d, owner, all, local, count[i], rank, type);
      }
  }
  MPI_Type_free(&type);
}

static attn_status execute(attn_ring *ring, MPI_Comm comm, void *const local[4], spread_row *row) {
  attn_status status = ATTN_OK;
  double spent = 0;
  for (int i = 0; !status && (i == 0 || again(spent, i)); i++) {
    MPI_Barrier(comm);
    double time = MPI_Wtime();
    status = attn_ring_execute(ring, local[0], local[1], local[2], local[3]);
    attn_ring_meter m = attn_ring_last(ring);
    double most[] = {MPI_Wtime() - time, m.compute, m.wait, -m.compute, -m.wait};
    MPI_Allreduce(MPI_IN_PLACE, most, 5, MPI_DOUBLE, MPI_MAX, comm);
    MPI_Allreduce(MPI_IN_PLACE, &m.sent, 1, MPI_INT64_T, MPI_MAX, comm);
    spent += most[0];
    if (i > 0 && most[0] >= row->time) continue;
    row->time = most[0];
    row->compute_most = most[1];
    row->wait_most = most[2];
    row->compute_least = -most[3];
    row->wait_least = -most[4];
    row->sent = m.sent;
  }
  return status;
}

static attn_status judge(whole *w, attn_rounding rounding, const void *o, result_bound *exact,
                         result_bound *apart) {
  attn_view view = w->view;
  view.rounding = rounding;
  evidence e = {.problem = attn_plan_problem(w->plan),
                .view = &view,
                .q = w->qkv.q,
                .k = w->qkv.k,
                .v = w->qkv.v,
                .o = o,
                .exact = w->exact,
                .cache = w->cache};
  return ring_judge(&e, w->alone, &w->view.rounding, exact, apart);
}

/* The ring on the processes of comm. */
static attn_status run_ring(MPI_Comm comm, const spread_options *o, const attn_problem *p, whole *w,
                            spread_row *row) {
  int rank;
  MPI_Comm_rank(comm, &rank);
  MPI_Comm_size(comm, &row->ranks);
  attn_ring *ring = NULL;
  void *local[4] = {0};
  void *const all[] = {w->qkv.q, w->qkv.k, w->qkv.v, w->o};
  attn_status status = attn_ring_create(&ring, comm, p, o->spec, &(attn_options){.threads = o->threads});
  if (status) return status;
  int64_t first[2], count[2], e = (int64_t)attn_dtype_size(p->dtype);
  attn_ring_rows(p->n_kv, row->ranks, rank, first, count);
  deck decks[4];
  for (int i = 0; i < 4; i++) {
    int64_t heads = i == 0 || i == 3 ? p->heads : p->kv_heads, d = i < 2 ? p->d_qk : p->d_v;
    local[i] = get((int64_t[]){p->batch, heads, count[0] + count[1], d, e}, 5, &status);
    decks[i] = (deck){comm, p->batch * heads, p->n_kv, (size_t)(d * e), all[i], local[i], i == 3};
  }
  if ((status = attn_ring_agree(comm, status))) goto out;
  for (int i = 0; i < 3; i++) move_rows(&decks[i]);
  if ((status = execute(ring, comm, local, row))) goto out;
  move_rows(&decks[3]);
  if (rank == 0) status = judge(w, attn_ring_rounding(ring, w->lse), w->o, &row->exact, &row->apart);
  status = attn_ring_agree(comm, status);
out:
  attn_ring_destroy(ring);
  for (int i = 0; i < 4; i++) free(local[i]);
  return status;
}

/* The ring on the first `ranks` processes. */
static attn_status run_some(int ranks, const spread_options *o, whole *w, spread_result *out) {
  int rank;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm some;
  MPI_Comm_split(MPI_COMM_WORLD, rank < ranks ? 0 : MPI_UNDEFINED, rank, &some);
  attn_status status = ATTN_OK;
  spread_row *row = &out->rows[out->count];
  *row = (spread_row){0};
  if (some != MPI_COMM_NULL) {
    status = run_ring(some, o, &out->problem, w, row);
    MPI_Comm_free(&some);
  }
  out->count++;
  return attn_ring_agree(MPI_COMM_WORLD, status);
}

/* What the first process is told, all are: it alone reads tensors, and the others would not notice. */
static attn_status agree_on_options(const spread_options *o) {
  const data_request *r = &o->request;
  const attn_ring_argument arguments[] = {{.name = "--n", .number = o->in ? o->n : r->n_q},
                                          {.name = "--heads", .number = r->heads},
                                          {.name = "--kv-heads", .number = r->kv_heads},
                                          {.name = "--d", .number = r->d_qk},
                                          {.name = "--causal", .number = o->causal},
                                          {.name = "--dtype", .number = o->has_dtype ? 1 + (int)r->dtype : 0},
                                          {.name = "--seed", .number = (int64_t)r->seed},
                                          {.name = "--in", .kind = ATTN_RING_TEXT, .text = o->in},
                                          {.name = "the variant", .kind = ATTN_RING_TEXT, .text = o->spec}};
  return attn_ring_agree_on(MPI_COMM_WORLD, ATTN_OK, arguments, sizeof arguments / sizeof *arguments);
}

attn_status spread_measure(const spread_options *o, spread_result *out) {
  int rank, ranks;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  spread_result result = {0};
  whole w = {0};
  result_bound none;
  attn_status status = agree_on_options(o);
  if (!status && rank == 0) status = prepare(o, &w, &result);
  if (!status && rank == 0) status = judge(&w, w.view.rounding, w.alone, &result.alone_exact, &none);
  if ((status = attn_ring_agree(MPI_COMM_WORLD, status))) goto out;
  MPI_Bcast(&result.problem, sizeof result.problem, MPI_BYTE, 0, MPI_COMM_WORLD);
  for (int some = 2; !status && some < ranks; some *= 2) status = run_some(some, o, &w, &result);
  if (!status) status = run_some(ranks, o, &w, &result);
  if (status) goto out;
  MPI_Bcast(&result, sizeof result, MPI_BYTE, 0, MPI_COMM_WORLD);
  *out = result;
out:
  whole_free(&w);
  return status;
}
