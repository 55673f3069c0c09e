/* agree.h - one status for all ranks of a communicator. */
#ifndef ATTN_CORE_RING_AGREE_H
#define ATTN_CORE_RING_AGREE_H

#include "attn_ring.h"

enum { RING_FIELDS_MAX = 16 };

/* Collective. As attn_ring_agree, and EINVAL unless the fields (at most RING_FIELDS_MAX), named in this
 * order, are the same on all ranks. */
attn_status ring_agree_same(MPI_Comm, attn_status, const char *const *names, const int64_t *fields,
                            int count);

/* ATTN_OK for MPI_SUCCESS, else EFOREIGN with MPI's message; what: "MPI_Comm_dup". */
attn_status ring_check(int mpi_code, const char *what);

#endif
