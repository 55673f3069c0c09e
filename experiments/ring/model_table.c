/* model_table.c - the model's figures as a table. */
#include <inttypes.h>
#include <math.h>

#include "experiments/ring/ring_model.h"
#include "experiments/support/table.h"

static void add_row(text_table *s, int64_t n, int64_t ranks, const ring_model *m) {
  char text[SHORT_TEXT];
  table_add(s, "%" PRId64, n);
  table_add(s, "%" PRId64, ranks);
  table_add(s, "%" PRId64, n / ranks);
  table_add(s, "%s", short_time(m->compute, text));
  table_add(s, "%s", ranks > 1 ? short_time(m->send, text) : "");
  table_add(s, "%s", ranks > 1 ? short_bytes(m->sent, text) : "");
  table_add(s, "%s", short_time(m->time, text));
  table_add(s, "%.1f %%", 100 * m->efficiency);
  table_add(s, "%s", ranks == 1 ? "" : m->compute >= m->send ? "computation" : "link");
  table_add(s, "%s", short_bytes(m->memory, text));
}

static void print_assumptions(const attn_problem *p, const ring_machine *machine, double hidden) {
  char text[SHORT_TEXT];
  printf("Exact attention, %" PRId64 " heads, %" PRId64 " key heads, d %" PRId64
         ", %s%s, on a ring of nodes, each of\n"
         "%.3g flop/s, sending %.3g bytes/s after %s.\n",
         p->heads, p->kv_heads, p->d_qk, attn_numbers[p->dtype].name, p->causal ? ", causal" : "",
         machine->rate, machine->link, short_time(machine->latency, text));
  printf("The link hides behind the computation from n/nodes = %.0f on.\n\n", ceil(hidden));
}

attn_status ring_model_print(const attn_problem *problem, const value_ints *n, const value_ints *ranks,
                             const ring_machine *machine) {
  static const char *const titles[] = {"n",    "nodes", "n/nodes",    "computing a step", "sending a step",
                                       "sent", "time",  "efficiency", "limited by",       "memory of a node"};
  enum { COLUMNS = sizeof titles / sizeof *titles };
  text_table s = {.columns = COLUMNS};
  attn_status status = ATTN_OK;
  ring_model m = {0};
  for (size_t i = 0; i < COLUMNS; i++) table_add(&s, "%s", titles[i]);
  for (size_t i = 0; i < n->count && !status; i++)
    for (size_t j = 0; j < ranks->count && !status; j++) {
      attn_problem p = *problem;
      p.n_q = p.n_kv = n->items[i];
      if (n->items[i] / 2 < ranks->items[j]) {
        status = attn_fail(ATTN_EINVAL, "n = %" PRId64 ": fewer than 2 rows for each of %" PRId64 " nodes",
                           n->items[i], ranks->items[j]);
        break;
      }
      m = ring_model_of(&p, ranks->items[j], machine);
      add_row(&s, n->items[i], ranks->items[j], &m);
    }
  if (!status) {
    print_assumptions(problem, machine, m.hidden);
    status = table_print(stdout, &s, TABLE_TEXT);
  }
  table_free(&s);
  return status;
}
