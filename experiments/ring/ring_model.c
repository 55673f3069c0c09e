/* ring_model.c - the formulas of ring_model.h. */
#include "experiments/ring/ring_model.h"

#include <math.h>

ring_model ring_model_of(const attn_problem *p, int64_t ranks, const ring_machine *machine) {
  double rows = (double)p->n_kv / (double)ranks, share = p->causal ? 0.5 : 1,
         e = (double)attn_dtype_size(p->dtype), heads = (double)(p->batch * p->heads),
         kv_heads = (double)(p->batch * p->kv_heads), group = heads / kv_heads,
         width = (double)(p->d_qk + p->d_v);
  double block_rows = 2 * (double)((p->n_kv - 1) / (2 * ranks) + 1);
  double square = 2 * share * heads * width / machine->rate, line = kv_heads * width * e / machine->link;
  ring_model m = {.compute = square * rows * rows, .sent = block_rows * kv_heads * width * e};
  m.send = machine->latency + m.sent / machine->link;
  m.time = (double)(ranks - 1) * fmax(m.compute, m.send) + m.compute;
  m.efficiency = (double)ranks * m.compute / m.time;
  m.hidden = (line + sqrt(line * line + 4 * square * machine->latency)) / (2 * square);
  double tensors = rows * e * width * (heads + kv_heads), blocks = 2 * m.sent,
         sums = heads * rows * (double)(p->d_v + 2) * 8, part = group * rows * ((double)p->d_v * e + 8);
  m.memory = tensors + blocks + sums + part;
  return m;
}
