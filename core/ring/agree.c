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

attn_status ring_agree_same(MPI_Comm comm, attn_status mine, const char *const *names, const int64_t *fields,
                            int count) {
  attn_status status = attn_ring_agree(comm, mine);
  if (status) return status;
  int64_t least[RING_FIELDS_MAX], most[RING_FIELDS_MAX];
  status = ring_check(MPI_Allreduce(fields, least, count, MPI_INT64_T, MPI_MIN, comm), "MPI_Allreduce");
  if (!status)
    status = ring_check(MPI_Allreduce(fields, most, count, MPI_INT64_T, MPI_MAX, comm), "MPI_Allreduce");
  for (int i = 0; i < count && !status; i++)
    if (least[i] != most[i])
      status = attn_fail(ATTN_EINVAL, "ring: %s differs between ranks (%lld here)", names[i],
                         (long long)fields[i]);
  return status;
}
