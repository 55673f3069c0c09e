/* agree.c - one status for all ranks of a communicator: a rank that failed alone would leave the others
 * waiting. */
#include "core/ring/agree.h"

#include <stdio.h>
#include <string.h>

enum { MESSAGE = 512 };

attn_status ring_check(int code, const char *what) {
  if (code == MPI_SUCCESS) return ATTN_OK;
  char text[MPI_MAX_ERROR_STRING] = "";
  int length = 0;
  MPI_Error_string(code, text, &length);
  return attn_fail(ATTN_EFOREIGN, "ring: %s: %s", what, text);
}

attn_status attn_ring_agree(MPI_Comm comm, attn_status mine) {
  int rank, ranks, failed, first;
  MPI_Comm_rank(comm, &rank);
  MPI_Comm_size(comm, &ranks);
  failed = mine ? rank : ranks;
  attn_status status = ring_check(MPI_Allreduce(&failed, &first, 1, MPI_INT, MPI_MIN, comm), "MPI_Allreduce");
  if (status || first == ranks) return status;
  /* The status travels in front of its message. */
  char said[MESSAGE] = "";
  if (rank == first) {
    said[0] = (char)mine;
    snprintf(said + 1, sizeof said - 1, "%s", attn_last_error());
  }
  if ((status = ring_check(MPI_Bcast(said, MESSAGE, MPI_CHAR, first, comm), "MPI_Bcast"))) return status;
  return rank == first ? mine : attn_fail((attn_status)said[0], "rank %d: %s", first, said + 1);
}

/* FNV-1a; 0 for NULL. */
static int64_t digest(const char *text) {
  uint64_t hash = text ? UINT64_C(0xcbf29ce484222325) : 0;
  for (; text && *text; text++) hash = (hash ^ (unsigned char)*text) * UINT64_C(0x100000001b3);
  return (int64_t)(hash >> 1);
}

static int64_t bits_of(const attn_ring_argument *a) {
  int64_t bits = a->number;
  if (a->kind == ATTN_RING_REAL) memcpy(&bits, &a->real, sizeof bits);
  return a->kind == ATTN_RING_TEXT ? digest(a->text) : bits;
}

static attn_status differs(const attn_ring_argument *a, int64_t first) {
  double real;
  memcpy(&real, &first, sizeof real);
  if (a->kind == ATTN_RING_TEXT)
    return attn_fail(ATTN_EINVAL, "ring: %s differs between ranks: '%s' is not that of rank 0", a->name,
                     a->text ? a->text : "");
  if (a->kind == ATTN_RING_REAL)
    return attn_fail(ATTN_EINVAL, "ring: %s differs between ranks: %.17g, on rank 0 %.17g", a->name, a->real,
                     real);
  return attn_fail(ATTN_EINVAL, "ring: %s differs between ranks: %lld, on rank 0 %lld", a->name,
                   (long long)a->number, (long long)first);
}

attn_status attn_ring_agree_on(MPI_Comm comm, attn_status mine, const attn_ring_argument *arguments,
                               int count) {
  if (!mine && !arguments && count) mine = attn_fail(ATTN_EINVAL, "ring: arguments must not be NULL");
  attn_status status = attn_ring_agree(comm, mine);
  for (int i = 0; i < count && !status; i++) {
    int64_t own = bits_of(&arguments[i]), first = own;
    status = ring_check(MPI_Bcast(&first, 1, MPI_INT64_T, 0, comm), "MPI_Bcast");
    if (!status && first != own) status = differs(&arguments[i], first);
    status = attn_ring_agree(comm, status);
  }
  return status;
}
