/* witness.c - see witness.h. */
#include "experiments/conformance/witness.h"

#include <stdlib.h>

#include "data/data.h"
#include "data/support/file.h"
#include "data/support/json_text.h"
#include "experiments/conformance/inputs.h"

static attn_status write_tensor(const char *directory, const char *name, const attn_problem *p, void *at,
                                int64_t heads, int64_t n, int64_t d) {
  char *path = file_join(directory, name);
  const data_array x = {.dtype = p->dtype, .rank = 4, .shape = {p->batch, heads, n, d}, .at = at};
  const attn_status status = path ? data_npy_write(path, &x) : ATTN_ENOMEM;
  free(path);
  return status;
}

static attn_status write_all(const attn_spec *spec, problem_inputs *x, const char *directory) {
  const attn_problem *p = &x->in.problem;
  const attn_options options = {.threads = 1};
  attn_plan *plan = NULL;
  char *o = NULL;
  attn_status status = write_tensor(directory, "q.npy", p, x->in.q, p->heads, p->n_q, p->d_qk);
  if (!status) status = write_tensor(directory, "k.npy", p, x->in.k, p->kv_heads, p->n_kv, p->d_qk);
  if (!status) status = write_tensor(directory, "v.npy", p, x->in.v, p->kv_heads, p->n_kv, p->d_v);
  if (status) return status;
  if (!attn_plan_create_spec(&plan, p, spec, &options) &&
      !trial_execute(&x->memory, plan, &x->in, POISON_NAN, &o))
    status = write_tensor(directory, "o.npy", p, o, p->heads, p->n_q, p->d_v);
  attn_plan_destroy(plan);
  return status;
}

attn_status witness_write(const attn_spec *spec, const problem *of, const char *directory) {
  problem_inputs x;
  attn_status status = problem_inputs_make(of, &x);
  if (!status) status = write_all(spec, &x, directory);
  region_free(&x.memory);
  return status;
}

json_t *witness_json(const problem *of) {
  problem_inputs x;
  json_t *one = json_object();
  bool ok = one && !problem_inputs_make(of, &x);
  if (!ok) {
    if (one) region_free(&x.memory);
    json_decref(one);
    return NULL;
  }
  json_t *lengths = x.in.padded ? json_array() : json_null();
  for (int64_t b = 0; x.in.padded && b < x.in.problem.batch; b++)
    json_add(lengths, json_integer(x.in.kv_len[b]), &ok);
  json_put(one, "causal", json_boolean(x.in.problem.causal), &ok);
  json_put(one, "scale", json_real(x.in.problem.scale), &ok);
  json_put(one, "kv_len", lengths, &ok);
  region_free(&x.memory);
  return json_whole(one, ok);
}
