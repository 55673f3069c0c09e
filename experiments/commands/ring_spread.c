/* ring_spread.c - attnlab ring under mpirun: what was measured, as a table from the first process. */
#include <inttypes.h>
#include <mpi.h>

#include "experiments/checks/check.h"
#include "experiments/commands/cli.h"
#include "experiments/ring/spread.h"
#include "experiments/support/table.h"

static void add_range(text_table *s, double least, double most) {
  char a[SHORT_TEXT], b[SHORT_TEXT];
  table_add(s, "%s ... %s", short_time(least, a), short_time(most, b));
}

static void add_bound(text_table *s, const result_bound *b) {
  char text[SHORT_TEXT];
  table_add(s, "%s", short_number(b->measured, text));
  table_add(s, "%s", short_number(b->value, text));
}

static attn_status print_table(const spread_result *r) {
  static const char *const titles[] = {"processes", "time",  "speedup",    "computing", "waiting", "sent",
                                       "error",     "bound", "from alone", "bound",     "verdict"};
  enum { COLUMNS = sizeof titles / sizeof *titles };
  char text[SHORT_TEXT];
  text_table s = {.columns = COLUMNS, .left = 1};
  for (size_t i = 0; i < COLUMNS; i++) table_add(&s, "%s", titles[i]);
  table_add(&s, "alone");
  table_add(&s, "%s", short_time(r->alone, text));
  for (int i = 0; i < 4; i++) table_add(&s, "");
  add_bound(&s, &r->alone_exact);
  for (int i = 0; i < 2; i++) table_add(&s, "");
  table_add(&s, "%s", check_verdict_names[r->alone_exact.verdict]);
  for (int i = 0; i < r->count; i++) {
    const spread_row *row = &r->rows[i];
    table_add(&s, "%d", row->ranks);
    table_add(&s, "%s", short_time(row->time, text));
    table_add(&s, "%.2f", r->alone / row->time);
    add_range(&s, row->compute_least, row->compute_most);
    add_range(&s, row->wait_least, row->wait_most);
    table_add(&s, "%s", short_bytes((double)row->sent, text));
    add_bound(&s, &row->exact);
    add_bound(&s, &row->apart);
    const result_bound both[] = {row->exact, row->apart};
    table_add(&s, "%s", check_verdict_names[bounds_worst(both, 2)]);
  }
  const attn_problem *p = &r->problem;
  printf("Exact attention, n = %" PRId64 ", %" PRId64 " heads, %" PRId64 " key heads, d %" PRId64
         ", %s%s\n\n",
         p->n_kv, p->heads, p->kv_heads, p->d_qk, attn_numbers[p->dtype].name, p->causal ? ", causal" : "");
  const attn_status status = table_print(stdout, &s, TABLE_TEXT);
  table_free(&s);
  return status;
}

static int exit_code_of(const spread_result *r) {
  result_bound all[1 + 2 * SPREAD_MAX] = {r->alone_exact};
  int count = 1;
  for (int i = 0; i < r->count; i++) {
    all[count++] = r->rows[i].exact;
    all[count++] = r->rows[i].apart;
  }
  const check_verdict worst = bounds_worst(all, count);
  return cli_verdict_code(worst == VERDICT_VIOLATED, worst != VERDICT_PASS);
}

int spread_command(const char *name, const spread_options *options) {
  int level, rank;
  MPI_Init_thread(NULL, NULL, MPI_THREAD_FUNNELED, &level);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  static spread_result result;
  attn_status status = spread_measure(options, &result);
  int code = status ? cli_exit_code(status) : exit_code_of(&result);
  /* Every process has the same status; only the first one prints it. */
  if (rank == 0) {
    if (!status) status = print_table(&result);
    if (status) code = cli_report(name, status);
  }
  MPI_Finalize();
  return code;
}
