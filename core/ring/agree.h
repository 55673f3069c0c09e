/* agree.h - what MPI answers, as a status. */
#ifndef ATTN_CORE_RING_AGREE_H
#define ATTN_CORE_RING_AGREE_H

#include "attn_ring.h"

/* ATTN_OK for MPI_SUCCESS, else EFOREIGN with MPI's message; what: "MPI_Comm_dup". */
attn_status ring_check(int mpi_code, const char *what);

#endif
