/* place.c - PROP-STRIDES and PROP-BOUNDS: the same bits wherever the numbers stand, and nothing else is read
 * or written. */
#include "experiments/properties/placement.h"

#include <stdio.h>
#include <stdlib.h>

static void say_touch(const layout *x, const guard_touch *touch, result_bound *bound) {
  static const char *const names[] = {"Q", "K", "V"};
  const guard *const blocks[] = {&x->q, &x->k, &x->v};
  const int64_t size = (int64_t)blocks[touch->block]->bytes;
  const char *name = touch->block == 1 && x->kind == LAYOUT_SHARED ? "K and V" : names[touch->block];
  bound_property(bound, 1, 0);
  if (touch->byte < 0)
    bound_say(bound, "%s: reads or writes %s %lld bytes before its first element", layout_names[x->kind],
              name, -(long long)touch->byte);
  else
    bound_say(
        bound,
        "%s: reads or writes %s %lld bytes behind the end of its last row that exists (%lld queries, %lld "
        "keys)",
        layout_names[x->kind], name, (long long)(touch->byte - size), (long long)x->problem.n_q,
        (long long)x->problem.n_kv);
}

/* One layout of some inputs against the contiguous output of the same. */
static attn_status judge_layout(const trial *t, const trial_inputs *in, layout_kind kind,
                                const char *expected, result_bound *bound) {
  layout x;
  char *o = NULL;
  bool gap = false;
  guard_touch touch = {.block = -1};
  attn_status status = layout_make(in, kind, &x);
  if (status) return status;
  status = layout_run(t, in, &x, &o, &touch, &gap);
  if (!status && touch.block >= 0) {
    say_touch(&x, &touch, bound);
  } else if (!status && gap) {
    bound_property(bound, 1, 0);
    bound_say(bound, "%s: writes to O between or behind its rows", layout_names[kind]);
  } else if (!status) {
    difference found = {.count = 0};
    difference_all(&found, in, o, in, expected);
    status = difference_settle(&found, 0, layout_names[kind], bound);
  }
  layout_free(&x);
  return status;
}

static attn_status strides_judge(const trial *t, result_bound *bound) {
  const char *exempt = trial_exempt(t, ATTN_EXEMPT_BITS);
  if (exempt) return bound_not_applicable(bound, exempt);
  attn_status status = ATTN_OK;
  for (layout_kind kind = LAYOUT_INTERLEAVED; !status && kind < LAYOUTS; kind++) {
    status = judge_layout(t, &t->in, kind, t->o, bound);
    if (status == ATTN_EUNSUPPORTED) return bound_not_applicable(bound, attn_last_error());
    if (bound->verdict == VERDICT_VIOLATED) break;
  }
  return status;
}

/* Of the last batch entry, whose padding does not exist in memory. */
static attn_status bounds_judge(const trial *t, result_bound *bound) {
  const char *exempt = trial_exempt(t, ATTN_EXEMPT_BITS);
  if (exempt) return bound_not_applicable(bound, exempt);
  const attn_problem *p = &t->in.problem;
  trial_inputs in;
  char *expected = NULL;
  attn_status status = judge_layout(t, &t->in, LAYOUT_PLAIN, t->o, bound);
  if (status || bound->verdict == VERDICT_VIOLATED || !(t->view.caps & ATTN_CAP_PADDING)) return status;
  if ((status = trial_inputs_copy(t->memory, &t->in, &in))) return status;
  in.padded = true;
  for (int64_t b = 0; b < p->batch; b++) in.kv_len[b] = b < p->batch - 1 ? p->n_kv / 3 : 2 * p->n_kv / 3 - 1;
  status = trial_run(t, &in, 1, POISON_NAN, &expected);
  if (!status) status = judge_layout(t, &in, LAYOUT_PLAIN, expected, bound);
  return status;
}

PROPERTY(strides)
const check check_prop_strides = {
    .name = "PROP-STRIDES",
    .of = &of_any,
    .kind = KIND_PROPERTY,
    .statement =
        "wherever the strides of the problem put the rows, the output stays bitwise the same, and what "
        "lies between rows is neither used nor written",
    .source = "the interface: element strides of Q, K, V and O are given in the problem (attn.h)",
    .formula =
        "Q, K, V, O as [batch, n, heads, d]; K and V side by side in one buffer; gaps of odd lengths, which "
        "hold NaN, behind rows, heads and batch entries. Forbidden pages end each buffer.",
    .assumes = "The variant takes strides; if it refuses them, not applicable.",
    .cause =
        "row i of a head is sought at i * d instead of i * stride.row (attn_rows gives row 0 of a head), or "
        "V with the stride of K",
    .nulls = PROPERTY_BLIND,
    .evaluate = strides_evaluate,
};

PROPERTY(bounds)
const check check_prop_bounds = {
    .name = "PROP-BOUNDS",
    .of = &of_any,
    .kind = KIND_PROPERTY,
    .statement = "nothing behind the last element of Q, K and V is read, nor what is padding",
    .source =
        "the interface: the tensors end with their last element, and keys from kv_len on are never read "
        "(attn.h)",
    .formula =
        "Q, K and V end where a page begins that may not be touched, with their last row or, in the last "
        "batch entry, with the last key that exists; the first access to it is noted.",
    .assumes = "Nothing; padding where it is declared.",
    .cause = "a loop over vectors or tiles that does not stop at the last column or the last key that exists "
             "(attn_call_keys)",
    .nulls = PROPERTY_BLIND,
    .evaluate = bounds_evaluate,
};
