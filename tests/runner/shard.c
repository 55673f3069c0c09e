/* shard.c - which shard a process is, by its option or its environment; and shards against the whole. */
#include <sys/wait.h>

#include "tests/support/sweep_fixture.h"
#include "experiments/grid/shard.h"

static const char *environment; /* "NAME=VALUE NAME=VALUE" */

static char *look(const char *name) {
  static char value[32];
  const size_t length = strlen(name);
  for (const char *e = environment; (e = strstr(e, name)); e += length)
    if (e[length] == '=' && (e == environment || e[-1] == ' '))
      return sscanf(e + length, "=%31s", value) == 1 ? value : NULL;
  return NULL;
}

#define ARRAY(id, min, count) \
  "SLURM_ARRAY_TASK_ID=" #id " SLURM_ARRAY_TASK_MIN=" #min " SLURM_ARRAY_TASK_COUNT=" #count
#define STEP(step) " SLURM_ARRAY_TASK_STEP=" #step
#define TASK(rank, count) " SLURM_PROCID=" #rank " SLURM_STEP_NUM_TASKS=" #count

static const struct shard_case {
  const char *text, *variables;
  int64_t index, count;
  const char *refused; /* NULL: it is not */
} cases[] = {
    {"0/1", "", 0, 1, NULL},
    {"3/4", "", 3, 4, NULL},
    {"999999/1000000", "", 999999, 1000000, NULL},
    {"1/2", "OMPI_COMM_WORLD_RANK=3 OMPI_COMM_WORLD_SIZE=4", 1, 2, NULL},
    {"00000000000000000000000000/1", "", 0, 0, "expected I/N"},
    {"auto", "", 0, 1, NULL},
    {"auto", "OMPI_COMM_WORLD_RANK=3 OMPI_COMM_WORLD_SIZE=4", 3, 4, NULL},
    {"auto", "OMPI_COMM_WORLD_RANK=4 OMPI_COMM_WORLD_SIZE=4", 0, 0,
     "RANK '4': expected an integer from 0 to 3"},
    {"auto", "OMPI_COMM_WORLD_SIZE=4", 0, 0, "OMPI_COMM_WORLD_RANK is not set"},
    {"auto", "PMI_RANK=1 PMI_SIZE=3", 1, 3, NULL},
    {"auto", "PMI_RANK=x PMI_SIZE=3", 0, 0, "PMI_RANK 'x'"},
    {"auto", "PMI_RANK=0 PMI_SIZE=0", 0, 0, "PMI_SIZE '0': expected an integer from 1 to 1000000"},
    {"auto", "OMPI_COMM_WORLD_RANK=0 OMPI_COMM_WORLD_SIZE=2 PMI_RANK=1 PMI_SIZE=3", 0, 2, NULL},
    {"auto", TASK(2, 3), 2, 3, NULL},
    {"auto", "SLURM_PROCID=0 SLURM_NTASKS=3", 0, 1, NULL}, /* the batch script itself */
    {"auto", "PMI_RANK=1 PMI_SIZE=3" TASK(0, 1), 1, 3, NULL},
    {"auto", ARRAY(7, 1, 5) STEP(2), 3, 5, NULL},
    {"auto", ARRAY(7, 1, 5) STEP(0), 0, 0, "SLURM_ARRAY_TASK_STEP '0': expected an integer from 1"},
    {"auto", ARRAY(6, 1, 5) STEP(2), 0, 0, "ID 6 is not MIN + i STEP"},
    {"auto", ARRAY(2, 0, 4), 2, 4, NULL},
    {"auto", ARRAY(4, 0, 4), 0, 0, "ID 4 is not MIN + i STEP with i below COUNT 4"},
    {"auto", ARRAY(0, 1, 4), 0, 0, "ID '0': expected an integer from 1"},
    {"auto", ARRAY(0, -1, 4), 0, 0, "MIN '-1': expected an integer from 0"},
    {"auto", ARRAY(0, 0, 0), 0, 0, "COUNT '0': expected an integer from 1 to 1000000"},
    {"auto", ARRAY(2, 0, 4) TASK(1, 2), 5, 8, NULL},
    {"auto", ARRAY(2, 0, 500000) TASK(1, 2), 5, 1000000, NULL},
    {"auto", ARRAY(2, 0, 500001) TASK(1, 2), 0, 0, "more than 1000000 shards"},
    {"auto", ARRAY(2, 0, 4) " PMI_RANK=1 PMI_SIZE=2", 2, 4, NULL},
    {"auto", "SLURM_ARRAY_TASK_ID=9", 0, 0, "SLURM_ARRAY_TASK_COUNT is not set"},
};

static const char *const none[] = {"0/1000001", "4/4", "0/0",   "a/b",  "-1/4", "/4",
                                   "1/",        "1",   "1/2/3", "1/2x", "",     "automatic"};

Test(shard, is_found_in_the_option_or_the_environment) {
  const size_t texts = sizeof none / sizeof *none;
  for (size_t i = 0; i < texts + sizeof cases / sizeof *cases; i++) {
    const struct shard_case refused = {i < texts ? none[i] : "", "", 0, 0, "expected I/N"},
                            *c = i < texts ? &refused : &cases[i - texts];
    int64_t index = -5, count = -5;
    environment = c->variables;
    const attn_status status = shard_parse(c->text, look, &index, &count);
    cr_expect_eq(status, c->refused ? ATTN_EINVAL : ATTN_OK, "case %zu: %s", i, attn_last_error());
    cr_expect(index == (c->refused ? -5 : c->index) && count == (c->refused ? -5 : c->count),
              "case %zu: %d/%d", i, (int)index, (int)count);
    if (c->refused)
      cr_expect(strstr(attn_last_error(), "--shard") && strstr(attn_last_error(), c->refused), "%s: %s",
                c->text, attn_last_error());
  }
}

TestSuite(shards, .init = command_enter, .fini = command_leave, .timeout = 120);

static void expect_same_row(const result_row *a, const result_row *b) {
  for (const result_column *c = result_columns; c->name; c++) {
    if (c->varies || strcmp(c->name, "shard") == 0 || strcmp(c->name, "session") == 0) continue;
    if (c->type == COLUMN_TEXT)
      cr_expect_str_eq(result_column_text(a, c), result_column_text(b, c), "%s", c->name);
    else if (c->type == COLUMN_F64)
      cr_expect(same_number(result_column_f64(a, c), result_column_f64(b, c)), "%s %s", a->key, c->name);
    else
      cr_expect_eq(result_column_int(a, c), result_column_int(b, c), "%s %s", a->key, c->name);
  }
  cr_expect(a->status == b->status && a->verdict == b->verdict && a->model_verdict == b->model_verdict);
  const bool map = a->n <= 40 && strncmp(a->variant, "null_", 5) != 0 &&
                   (a->seed == 0 || strcmp(a->variant, "performer") != 0);
  cr_assert(map == !!a->map && map == !!b->map, "%s", a->key);
  if (map) cr_expect_arr_eq(a->map, b->map, 2 * result_map_size(a) * sizeof *a->map);
  cr_assert_eq(result_row_cells(a), result_row_cells(b));
  for (int i = 0; i < result_row_cells(a); i++)
    cr_expect(same_bound(result_row_cell(a, i), result_row_cell(b, i)), "%s", result_row_cell(a, i)->name);
}

Test(shards, together_equal_the_whole_but_for_times) {
  command_write_text("x.yaml",
                     "schema: 1\ngrid: {n: [16, 33, 48], heads: 2, d: 8, causal: [no, yes], seed: 0:1}\n"
                     "variants: [full, longformer: {window: 8}, performer: {features: 8}]\n"
                     "datasets: gaussian\nthreads: 1\nmaps: 40\n"
                     "timing: {min_time: 0.001, max_time: 0.01, warmup: 0.0005, samples: 4}\n");
  command_run_good("run x.yaml -o whole.h5 -q");
  for (int i = 0; i < 4; i++) command_run_good(text_of("run x.yaml -o x.h5 -q --shard %d/4", i));
  command_run_good("merge -o all.h5 x.3-of-4.jsonl x.1-of-4.jsonl x.0-of-4.jsonl x.2-of-4.jsonl");
  result_set whole = read_results("whole.h5"), all = read_results("all.h5");
  cr_assert_eq(whole.count, all.count);
  cr_expect(whole.count > 3 * 2 * 3);
  unsigned shards = 0;
  for (size_t i = 0; i < whole.count; i++, shards |= 1u << all.rows[i - 1].shard)
    expect_same_row(&whole.rows[i], &all.rows[i]);
  cr_expect(shards == 15 && size_of("x.h5") < 0);
}
