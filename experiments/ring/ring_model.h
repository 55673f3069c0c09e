/* ring_model.h - what a ring of ranks (core/ring) would take for one sequence: computation against
 * communication.
 *
 * P ranks have n/P queries and keys each. In each of P steps a rank computes with one block of keys while it
 * sends that block on and receives the next; the last step sends nothing. With c = 1, causal 1/2 (zigzag
 * ownership leaves every rank the same half), H query heads, G key heads, e bytes an element, a rank of R
 * flop/s that sends B bytes/s after a delay of L seconds:
 *
 *   computing a step  A = 2 c (n/P)^2 H (d_qk + d_v) / R
 *   sending a block   S = L + 2 ceil(n / 2P) G (d_qk + d_v) e / B       a block has room for two of the
 *                     longest chunks
 *   time              T = (P - 1) max(A, S) + A
 *   efficiency        P A / T                                           against one rank of the same speed,
 *                     n^2 work
 *
 * The link is hidden where A >= S: from x = n/P on with a x^2 = b x + L, a = A / (n/P)^2, b = G (d_qk + d_v)
 * e / B:
 *
 *   x = (b + sqrt(b^2 + 4 a L)) / 2a,  without delay  x = R e G / (2 c H B)
 *
 * whatever n, P and the width of a head. Left out: how the tensors reach the ranks, several messages on one
 * wire, softmax (the rate R is that of attention as a whole). */
#ifndef EXPERIMENTS_RING_RING_MODEL_H
#define EXPERIMENTS_RING_RING_MODEL_H

#include "experiments/grid/value_texts.h"

typedef struct ring_machine {
  double rate;    /* flop/s of attention on one rank */
  double link;    /* bytes/s that a rank sends, while it receives as many */
  double latency; /* seconds before the first byte */
} ring_machine;

typedef struct ring_model {
  double compute, send; /* seconds of a step */
  double sent;          /* bytes of a step */
  double time, efficiency;
  double hidden; /* the number of rows of a rank from which on the link is hidden */
  /* bytes of a rank: its tensors and the allocations of attn_ring_create, without the work memory of the
   * plans */
  double memory;
} ring_model;

/* n >= 2 ranks >= 2, rate and link > 0, latency >= 0. */
ring_model ring_model_of(const attn_problem *, int64_t ranks, const ring_machine *);

/* A table of all lengths and numbers of ranks, for problems that differ from the given one in n alone.
 * EINVAL: fewer than two rows for each rank. */
attn_status ring_model_print(const attn_problem *, const value_ints *n, const value_ints *ranks,
                             const ring_machine *);

#endif
