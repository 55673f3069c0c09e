/* ranks.c - attn_ring on the ranks that mpirun starts: its rows against the oracle and against one process,
 * within the bound of its roundings; the same bits from any number of threads; nothing of later keys in a
 * causal row. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "attn_ring.h"
#include "tests/support/oracle.h"
#include "tests/ring/refusals.h"
#include "experiments/ring/ring_model.h"

static int rank, ranks;

/* Lengths that 2P divides for all P here, and some that it does not; the shortest for four ranks. */
static const case_shape shapes[] = {
    {1, 2, 2, 48, 48, 8, 8, false, false},   {2, 4, 2, 101, 101, 16, 9, false, false},
    {1, 6, 1, 8, 8, 5, 7, false, false},     {2, 3, 3, 131, 131, 20, 33, false, false},
    {1, 4, 2, 310, 310, 7, 4, false, false},
};
enum { SHAPES = sizeof shapes / sizeof *shapes };

/* This rank's rows of one tensor of the whole sequence. */
static void *local_rows(const void *all, int64_t heads, int64_t n, size_t row, int64_t *local) {
  int64_t first[2], count[2];
  attn_ring_rows(n, ranks, rank, first, count);
  *local = count[0] + count[1];
  char *out = malloc((size_t)(heads * *local) * row), *to = out;
  for (int64_t h = 0; h < heads; h++)
    for (int i = 0; i < 2; i++) {
      memcpy(to, (const char *)all + (size_t)(h * n + first[i]) * row, (size_t)count[i] * row);
      to += (size_t)count[i] * row;
    }
  return out;
}

static double largest_norm(const inputs *in, tensor which) {
  const attn_problem *p = &in->problem;
  int64_t heads = which == TENSOR_Q ? p->heads : p->kv_heads;
  double most = 0;
  for (int64_t r = 0; r < p->batch * heads * p->n_q; r++) {
    double sum = 0;
    for (int64_t l = 0; l < p->d_qk; l++) {
      double x = inputs_get(in, which, r / p->n_q / heads, r / p->n_q % heads, r % p->n_q, l);
      sum += x * x;
    }
    most = fmax(most, sqrt(sum));
  }
  return most;
}

/* At least the |lse| of any row. */
static double largest_lse(const inputs *in) {
  const attn_problem *p = &in->problem;
  return fabs(p->scale) * largest_norm(in, TENSOR_Q) * largest_norm(in, TENSOR_K) + log((double)p->n_kv);
}

/* Local output of the ring, or NULL with a failure noted. */
static void *run_ring(const inputs *in, const char *spec, int threads, attn_rounding *rounding) {
  const attn_problem *p = &in->problem;
  attn_problem plain = *p;
  plain.q = plain.k = plain.v = plain.o = (attn_stride){0};
  size_t e = attn_dtype_size(p->dtype);
  attn_options options = {.threads = threads};
  attn_ring *ring = NULL;
  EXPECT_STATUS(attn_ring_create(&ring, MPI_COMM_WORLD, &plain, spec, &options), ATTN_OK);
  if (!ring) return NULL;
  int64_t local;
  void *q = local_rows(in->q, p->batch * p->heads, p->n_q, e * (size_t)p->d_qk, &local);
  void *k = local_rows(in->k, p->batch * p->kv_heads, p->n_q, e * (size_t)p->d_qk, &local);
  void *v = local_rows(in->v, p->batch * p->kv_heads, p->n_q, e * (size_t)p->d_v, &local);
  void *o = malloc((size_t)(p->batch * p->heads * local * p->d_v) * e);
  EXPECT_STATUS(attn_ring_execute(ring, q, k, v, o), ATTN_OK);
  *rounding = attn_ring_rounding(ring, largest_lse(in));
  const ring_model model = ring_model_of(&plain, ranks, &(ring_machine){.rate = 1, .link = 1});
  EXPECT((double)attn_ring_last(ring).sent == (ranks - 1) * model.sent);
  attn_ring_destroy(ring);
  free(q);
  free(k);
  free(v);
  return o;
}

/* Against the oracle and one process, all local rows. */
static void check_rows(const inputs *in, const char *spec, const void *o, attn_rounding ring_rounding) {
  const attn_problem *p = &in->problem;
  attn_plan *plan = plan_or_note(p, spec, NULL);
  attn_view view;
  EXPECT_STATUS(attn_plan_inspect(plan, &view), ATTN_OK);
  void *alone = run_plain(plan, in);
  int64_t first[2], count[2], local, *keys = malloc((size_t)p->n_kv * sizeof *keys);
  attn_ring_rows(p->n_kv, ranks, rank, first, count);
  local = count[0] + count[1];
  double exact[64], bound[64], bound_alone[64];
  for (int64_t h = 0; h < p->batch * p->heads; h++)
    for (int64_t r = 0; r < local; r++) {
      int64_t i = r < count[0] ? first[0] + r : first[1] + r - count[0], b = h / p->heads,
              head = h % p->heads;
      int64_t seen = oracle_keys(in, NULL, b, head, i, keys);
      oracle_row(in, &ring_rounding, NULL, b, head, i, keys, seen, true, exact, bound);
      oracle_row(in, &view.rounding, NULL, b, head, i, keys, seen, true, exact, bound_alone);
      for (int64_t l = 0; l < p->d_v; l++) {
        size_t at = (size_t)((h * local + r) * p->d_v + l);
        double x = p->dtype == ATTN_F64 ? ((const double *)o)[at] : (double)((const float *)o)[at];
        double y = output_get(p, alone, b, head, i, l), most = bound[l];
        if (!(fabs(x - exact[l]) <= most) || !(fabs(x - y) <= most + bound_alone[l]))
          note_failure("rank %d, head %lld, row %lld, column %lld: %.17g, exact %.17g, alone %.17g, bound %g",
                       rank, (long long)h, (long long)i, (long long)l, x, exact[l], y, most);
      }
    }
  free(keys);
  free(alone);
  attn_plan_destroy(plan);
}

static void try_shape(case_shape shape, attn_dtype dtype, bool causal, const char *spec) {
  shape.causal = causal;
  attn_problem problem = shape_problem(shape, dtype);
  note_context("%d ranks %s %s %s", ranks, spec, dtype == ATTN_F64 ? "f64" : "f32", shape_text(shape));
  inputs in = inputs_make(&problem, false, 11, 1.5);
  attn_rounding rounding;
  void *o = run_ring(&in, spec, 1, &rounding), *again = run_ring(&in, spec, 3, &rounding);
  int64_t first[2], count[2];
  attn_ring_rows(problem.n_kv, ranks, rank, first, count);
  size_t bytes =
      (size_t)(problem.batch * problem.heads * (count[0] + count[1]) * problem.d_v) * attn_dtype_size(dtype);
  if (o && again) {
    check_rows(&in, spec, o, rounding);
    EXPECT(!memcmp(o, again, bytes));
  }
  free(o);
  free(again);
  inputs_free(&in);
}

/* The last key is NaN, and an earlier one has a score that leaves the others nothing. */
static void try_not_finite(void) {
  enum { N = 50 };
  attn_problem problem = shape_problem((case_shape){1, 1, 1, N, N, 4, 3, true, false}, ATTN_F32);
  note_context("%d ranks, not finite", ranks);
  inputs in = inputs_make(&problem, false, 5, 1);
  inputs_set_row(&in, TENSOR_K, 0, 0, N - 1, (double)NAN);
  inputs_set_row(&in, TENSOR_K, 0, 0, 20, 200);
  attn_rounding rounding;
  float *o = run_ring(&in, "tiled", 1, &rounding);
  int64_t first[2], count[2];
  attn_ring_rows(N, ranks, rank, first, count);
  for (int64_t r = 0; o && r < count[0] + count[1]; r++) {
    bool last = (r < count[0] ? first[0] + r : first[1] + r - count[0]) == N - 1;
    for (int l = 0; l < 3; l++) EXPECT(last ? isnan(o[r * 3 + l]) : isfinite(o[r * 3 + l]));
  }
  free(o);
  inputs_free(&in);
}

void fail_test(void) {} /* main sums the failures of all ranks */

int main(int argc, char **argv) {
  int level;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &level);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  for (int s = 0; s < SHAPES; s++)
    for (attn_dtype dtype = ATTN_F32; dtype <= ATTN_F64; dtype++)
      for (int causal = 0; causal < 2; causal++) {
        try_shape(shapes[s], dtype, causal, "tiled");
        try_shape(shapes[s], dtype, causal, "tiled:block_q=5,block_k=16");
      }
  try_not_finite();
  try_refusals();
  int mine = failures_noted(), all = 0;
  MPI_Allreduce(&mine, &all, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  if (rank == 0) printf("%d ranks: %d failures\n", ranks, all);
  MPI_Finalize();
  return all != 0;
}
