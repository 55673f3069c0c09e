/* recheck.h - are later executions of a plan as right as the one that was verified?
 *
 * An output is remembered by a digest of its bits, since executions are bitwise reproducible. Q, K and V are
 * mirrored in place now and then: element i becomes minus element N-1-i, at the same addresses, except a few
 * at either end (of V less than a row), so that whoever compares only the first or last elements sees nothing
 * new. A variant that
 * hands out an earlier result, keeps a part of its work between executions, or does not write, then has the
 * wrong bits. It would have the right ones if it compared all its inputs with those of an earlier
 * execution. */
#ifndef EXPERIMENTS_RUNNER_RECHECK_H
#define EXPERIMENTS_RUNNER_RECHECK_H

#include "attn.h"

/* Contiguous tensors; as they are and mirrored (0, 1) they have these outputs. */
typedef struct recheck {
  void *q, *k, *v, *o;
  size_t q_bytes, k_bytes, v_bytes, o_bytes;
  attn_dtype dtype;
  int64_t d_v;   /* elements of a row of V and O */
  int64_t ends;  /* of N elements N / ends at most at either end stay; 0: recheck_begin was not called */
  bool mirrored; /* what Q, K and V are now */
  bool known[2];
  uint64_t digest[2];
} recheck;

/* Draws what cannot be foreseen. The tensors are filled in. */
void recheck_begin(recheck *);

/* Fills the output with NaNs of a kind that no arithmetic makes. */
void recheck_poison(const recheck *);
/* Elements that still hold it. */
int64_t recheck_unwritten(const recheck *);

/* Mirrors Q, K and V, which must be writable, or restores them. */
void recheck_mirror(recheck *);

/* Learns the output of the present inputs. ENUMERIC: that of other inputs is bitwise the same, without such a
 * reason as values of 0. */
attn_status recheck_learn(recheck *);

/* ENUMERIC says how the output differs from what was learned. execution: its number, for the message. */
attn_status recheck_output(const recheck *, int64_t execution);

#endif
