/* refusals.c - wrong arguments, on one rank or on all: every rank gets the same status, and a message that
 * names the rank at fault. The time limit of the test catches a rank that waits for ever. */
#include "tests/ring/refusals.h"

#include <string.h>

#include "attn_ring.h"
#include "tests/support/cases.h"

static int rank, ranks;

static void refused(MPI_Comm comm, const attn_problem *p, const char *spec, const attn_options *options,
                    attn_status expected, const char *part_of_message) {
  attn_ring *ring = NULL;
  EXPECT_STATUS(attn_ring_create(&ring, comm, p, spec, options), expected);
  EXPECT(!ring);
  if (!strstr(attn_last_error(), part_of_message))
    note_failure("'%s' does not say '%s'", attn_last_error(), part_of_message);
}

/* A problem of which a member is another, on all ranks or on some. */
#define OTHER(here, change, expected, part_of_message)                     \
  do {                                                                     \
    attn_problem p = good;                                                 \
    if (here) p.change;                                                    \
    refused(MPI_COMM_WORLD, &p, "tiled", NULL, expected, part_of_message); \
  } while (0)

/* Faults that are the same on all ranks. */
static void try_common(void) {
  attn_problem good = attn_problem_make(1, 2, 64, 8);
  refused(MPI_COMM_NULL, &good, "tiled", NULL, ATTN_EINVAL, "MPI_COMM_NULL");
  refused(MPI_COMM_WORLD, NULL, "tiled", NULL, ATTN_EINVAL, "problem must not be NULL");
  refused(MPI_COMM_WORLD, &good, NULL, NULL, ATTN_EINVAL, "spec must not be NULL");
  EXPECT_STATUS(attn_ring_create(NULL, MPI_COMM_WORLD, &good, "tiled", NULL), ATTN_EINVAL);
  EXPECT_STATUS(attn_ring_execute(NULL, &good, &good, &good, &good), ATTN_EINVAL);
  EXPECT(attn_ring_last(NULL).sent == 0 && attn_ring_rounding(NULL, 1).score == 0);
  attn_ring_rows(8, 1, 0, NULL, NULL);
  refused(MPI_COMM_WORLD, &good, "tilde", NULL, ATTN_ENOTFOUND, "tilde");
  refused(MPI_COMM_WORLD, &good, "full", NULL, ATTN_EUNSUPPORTED, "log-sum-exp");
  refused(MPI_COMM_WORLD, &good, "tiled:skip=0.1", NULL, ATTN_EUNSUPPORTED, "not exact");
  OTHER(true, n_q = 32, ATTN_EINVAL, "n_q");
  OTHER(true, n_q = p.n_kv = 2 * ranks - 1, ATTN_EINVAL, "at least 2 rows");
  OTHER(true, k = ((attn_stride){2048, 1024, 16, 0}), ATTN_EINVAL, "strides");
  OTHER(true, kv_heads = 3, ATTN_EINVAL, "kv_heads");
  OTHER(true, score.sink = ((const double[]){1, 2}), ATTN_EUNSUPPORTED, "sink");
  OTHER(true, dtype = ATTN_F16, ATTN_EUNSUPPORTED, "not in another type");
  OTHER(true, k.stored = ATTN_Q8_0, ATTN_EUNSUPPORTED, "not in another type");
  OTHER(true, mask = ((attn_mask){.kind = ATTN_MASK_PREFIX, .size = 3}), ATTN_EUNSUPPORTED, "without a mask");
}

/* Faults of the last rank alone, which all ranks report. */
static void try_one_rank(void) {
  const bool at_fault = rank == ranks - 1;
  attn_problem good = attn_problem_make(1, 2, 64, 8);
  attn_options options = {.threads = at_fault ? -1 : 1};
  refused(MPI_COMM_WORLD, &good, at_fault ? "tiled:block_q=x" : "tiled", NULL, ATTN_EINVAL, "block_q");
  refused(MPI_COMM_WORLD, &good, "tiled", &options, ATTN_EINVAL, "threads");
  refused(MPI_COMM_WORLD, at_fault ? NULL : &good, "tiled", NULL, ATTN_EINVAL, "problem must not be NULL");
  if (ranks == 1) return;
  /* What differs is named, though it makes this rank fail, or the others. */
  OTHER(at_fault, n_q = p.n_kv = 1, ATTN_EINVAL, "n differs between ranks: 1, on rank 0 64");
  OTHER(!at_fault, n_q = p.n_kv = 1, ATTN_EINVAL, "n differs between ranks: 64, on rank 0 1");
  OTHER(at_fault, n_q = p.n_kv = 66, ATTN_EINVAL, "n differs");
  OTHER(at_fault, kv_heads = 3, ATTN_EINVAL, "kv_heads differs");
  OTHER(at_fault, d_qk = INT64_C(1) << 40, ATTN_EINVAL, "d_qk differs");
  OTHER(at_fault, dtype = ATTN_F64, ATTN_EINVAL, "dtype differs");
  OTHER(at_fault, causal = true, ATTN_EINVAL, "causal differs");
  OTHER(true, scale = at_fault ? 0.5 : 0.25, ATTN_EINVAL, "scale differs between ranks: 0.5, on rank 0 0.25");
  attn_options blocks = {.blocks.key = at_fault ? 32 : 0};
  refused(MPI_COMM_WORLD, &good, "tiled", &blocks, ATTN_EINVAL, "blocks.key differs");
  refused(MPI_COMM_WORLD, &good, at_fault ? "full" : "tiled", NULL, ATTN_EINVAL, "spec differs");
  refused(MPI_COMM_WORLD, &good, at_fault ? "tiled:block_k=32" : "tiled", NULL, ATTN_EINVAL, "spec differs");
}

/* A NULL tensor on one rank; the ring is as good as before. */
static void try_execute(void) {
  attn_problem p = attn_problem_make(1, 1, 2 * ranks, 2);
  float x[2 * 2] = {0}, o[2 * 2] = {7, 7, 7, 7};
  attn_ring *ring = NULL;
  EXPECT_STATUS(attn_ring_create(&ring, MPI_COMM_WORLD, &p, "tiled", NULL), ATTN_OK);
  if (!ring) return;
  EXPECT_STATUS(attn_ring_execute(ring, x, rank == ranks - 1 ? NULL : x, x, o), ATTN_EINVAL);
  for (int i = 0; i < 4; i++) EXPECT(o[i] == 7.0f);
  EXPECT_STATUS(attn_ring_execute(ring, x, x, x, o), ATTN_OK);
  for (int i = 0; i < 4; i++) EXPECT(o[i] == 0.0f);
  attn_ring_destroy(ring);
  attn_ring_destroy(NULL);
}

void try_refusals(void) {
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  note_context("refusals");
  try_common();
  try_one_rank();
  try_execute();
}
