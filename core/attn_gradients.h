/* attn_gradients.h - the backward pass: from the gradient of a loss by a plan's outputs to those by its
 * inputs. What is differentiated is the function that the plan computes, draws and selections held fixed, and
 * a row that a store rounds is the row and a constant; it is not the gradient of exact attention, unless the
 * plan is exact. */
#ifndef ATTN_GRADIENTS_H
#define ATTN_GRADIENTS_H

#include "attn.h"

#ifdef __cplusplus
extern "C" {
#endif

/* All tensors of the problem's dtype (fp32 where q, k and v are stored in fewer bits), results contiguous;
 * what is NULL is not given or not wanted. Results are overwritten, also where they are zero: those of
 * padding, of keys that no query sees and of queries that see no key.
 *   d_o    by the outputs [batch, heads, n_q, d_v], as d_o_at says. All strides 0: contiguous; one that is 0
 *          beside others: an axis has one gradient for all
 *   dlse   by attn_tensors.lse [batch, heads, n_q]; NULL: zeros
 *   dq     [batch, heads, n_q, d_qk]
 *   dk     [batch, kv_heads, n_kv, d_qk], summed over the query heads that share a key
 *   dv     [batch, kv_heads, n_kv, d_v]
 *   dsink  [heads], by attn_score.sink
 *   drelative  [relative_heads, span], by attn_score.relative
 *   ddense     [batch or 1, heads or 1, n_q, n_kv], by attn_score.dense, 1 where it is the same for all
 *          (stride 0): the sum over them. 0 of pairs that are not seen. In attn_call_backward it is added to,
 *          and so is drelative
 *   dextra [attn_tensors.extras]: for each extra tensor, in their order, the gradient by it in its shape,
 *          summed over what shares its rows, or NULL. Zeros of a tensor that only chooses keys: the choice is
 *          held fixed. In attn_call_backward it is added to */
typedef struct attn_gradients {
  const void *d_o;
  attn_stride d_o_at;
  const double *dlse;
  void *dq, *dk, *dv;
  double *dsink, *drelative, *ddense;
  double *const *dextra;
} attn_gradients;

/* The gradients at the tensors of an execution: q, k, v and the others as they were given to it, o and lse as
 * it left them (another o or lse gives another result, unnoticed), work of attn_plan_backward_size bytes.
 * With s = scale q.k and what the problem makes of it (y), p = exp(y - lse), D_i = d_o_i.o_i - dlse_i:
 *   dy_ij = p_ij (d_o_i.v_j - D_i), ds = dy s', dq_i = scale sum_j ds_ij k_j, dk_j = scale sum_i ds_ij q_i,
 *   dv_j = sum_i p_ij d_o_i, dsink = -sum_i exp(sink - lse_i) D_i, and by a bias the sum of the dy that it is
 *   added to
 * (Dao et al. 2022, arXiv:2205.14135, appendix B). A leaky slope counts as that of negative scores at 0. A
 * recurrence is differentiated from its last key to its first; it gives no lse, and a call that is given a
 * state, or leaves one, has no gradient.
 *   Does not allocate; bitwise the same for any number of threads. A pair that is masked out is not
 * multiplied: what is NaN or infinite reaches what depends on it. EUNSUPPORTED names the variant that has no
 * gradient, or none by biases. EINVAL: the gradient by a bias that the problem has not. */
ATTN_API attn_status attn_plan_backward(const attn_plan *, const attn_tensors *, const attn_gradients *);

/* *bytes: of its work memory. EUNSUPPORTED: there is no gradient, with the reason. */
ATTN_API attn_status attn_plan_backward_size(const attn_plan *, size_t *bytes);

#ifdef __cplusplus
}
#endif
#endif
