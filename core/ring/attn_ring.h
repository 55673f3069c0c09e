/* attn_ring.h - exact attention of one sequence whose rows are spread over the processes of an MPI
 * communicator.
 *
 * Ring schedule (Liu et al. 2023, arXiv:2310.01889): every rank keeps its queries; blocks of keys and values
 * travel round the ranks, the next one while the present one is computed with. What a rank's queries see of a
 * block is attention over part of the keys, (o_b, lse_b) of attn_plan_execute_lse, and the parts are joined
 * in fp64:
 *
 *   o = sum_b w_b o_b / sum_b w_b,  w_b = exp(lse_b - max lse)
 *
 * Rows. The sequence is cut into 2 P chunks, chunk c from row floor(c n / 2P) on; rank r owns chunks r and 2P
 * - 1 - r (zigzag), so that a causal mask leaves every rank about the same work. Its local rows are those of
 * the two chunks, in this order.
 *
 * Memory of a rank: two blocks of keys and values, and for the local rows an output in fp64: O(n / P).
 *
 * Every function that takes part in communication is collective: all ranks of the communicator call it, and
 * all get the same status. If an argument is wrong on some ranks, all fail, and attn_last_error() of each has
 * the message of the lowest of those ranks. Only where MPI itself fails on some ranks may the others wait for
 * ever. */
#ifndef ATTN_RING_H
#define ATTN_RING_H

#include <mpi.h>

#include "attn_variant.h"

typedef struct attn_ring attn_ring;

/* Prepares the ring. problem: of the whole sequence, the same on all ranks: n_q = n_kv = n >= 2P, strides
 * zero (local tensors are contiguous), scores as they are, no mask besides causal. spec: "tiled" with
 * parameters, or another exact variant with ATTN_CAP_LSE. options: as in attn_plan_create, may be NULL;
 * threads, isa and the allocator may differ between ranks, and nothing else may: EINVAL names the argument
 * that does. The communicator is duplicated; MPI must be initialised (MPI_THREAD_FUNNELED is enough). EINVAL,
 * EUNSUPPORTED, ENOMEM; EFOREIGN: MPI failed. A NULL communicator or one between two groups is refused
 * without communication. */
ATTN_API attn_status attn_ring_create(attn_ring **, MPI_Comm, const attn_problem *problem, const char *spec,
                                      const attn_options *options);

/* Collective, since it releases a communicator. */
ATTN_API void attn_ring_destroy(attn_ring *);

/* Two stretches of rows of the whole sequence that rank `rank` of `ranks` owns; first and count [2]. */
ATTN_API void attn_ring_rows(int64_t n, int ranks, int rank, int64_t *first, int64_t *count);

/* o [batch, heads, local rows, d_v] from the local q [batch, heads, ...], k and v [batch, kv_heads, ...]. All
 * memory is the ring's: one execution at a time. Bitwise the same whatever the threads and the order in which
 * messages arrive; another number of ranks changes the order of sums. Not finite: as attn_plan_execute, but
 * an infinite value may stay so where its weight vanishes beside keys of another rank alone. */
ATTN_API attn_status attn_ring_execute(attn_ring *, const void *q, const void *k, const void *v, void *o);

/* What the last execution cost this rank. */
typedef struct attn_ring_meter {
  double compute, wait; /* seconds: in attention and joining; in waiting for others */
  int64_t sent;         /* bytes of keys and values */
} attn_ring_meter;
ATTN_API attn_ring_meter attn_ring_last(const attn_ring *);

/* How rounding enters, as in attn_view: of the parts and their joining, whose weights w_b err with |lse|.
 * lse: at least that of any row, such as |scale| max |q_i| max |k_j| + log n. */
ATTN_API attn_rounding attn_ring_rounding(const attn_ring *, double lse);

/* Collective. ATTN_OK if all ranks pass it; else, on all, the status and the message of the lowest rank that
 * does not. A rank that failed alone would leave the others waiting. */
ATTN_API attn_status attn_ring_agree(MPI_Comm, attn_status);

/* What all ranks must be given alike. */
typedef enum { ATTN_RING_NUMBER, ATTN_RING_REAL, ATTN_RING_TEXT } attn_ring_kind;
typedef struct attn_ring_argument {
  const char *name;
  attn_ring_kind kind;
  int64_t number;
  double real;
  const char *text;
} attn_ring_argument;

/* Collective. As attn_ring_agree, and then EINVAL, with the name and both values, for the first of the
 * arguments that some rank was given otherwise than rank 0. */
ATTN_API attn_status attn_ring_agree_on(MPI_Comm, attn_status, const attn_ring_argument *, int count);

#endif
