/* refusals.h - wrong arguments to attn_ring: an error on every rank, and no rank waits. */
#ifndef TESTS_RING_REFUSALS_H
#define TESTS_RING_REFUSALS_H

/* Collective over MPI_COMM_WORLD; notes failures. */
void try_refusals(void);

#endif
