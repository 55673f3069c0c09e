/* repeat.c - the commands by which a page and `attnlab check` repeat a run do: on the run's own tensors, in
 * their layout, with its score and mask. */
#include <sys/wait.h>

#include "attn_arithmetic.h"
#include "experiments/report/repeat_command.h"
#include "tests/support/basics/rng.h"
#include "tests/support/command.h"
#include "tests/support/data_fixture.h"
#include "tests/support/results_fixture.h"

enum { ROWS = 24, HEADS = 2, WIDTH = 16 };

static void write_tensor(const char *path, int64_t heads, uint64_t seed) {
  const int64_t shape[] = {1, ROWS, heads, WIDTH};
  data_array a = array_make(ATTN_F32, 4, shape);
  attn_rng rng = rng_of(seed, 0, 0);
  for (int64_t i = 0; i < data_array_count(&a); i++) ((float *)a.at)[i] = (float)attn_rng_normal(&rng);
  cr_assert(!data_npy_write(path, &a));
}

static void enter(void) {
  command_enter();
  write_tensor("my \\ q.npy", HEADS, 1);
  write_tensor("k.npy", 1, 2);
  write_tensor("v.npy", 1, 3);
}

TestSuite(cli_repeat, .init = enter, .fini = command_leave, .timeout = 120);

static void shell(const char *command) {
  const int status =
      system(text_of("export PATH=" TEST_BINARY_DIR "/experiments:$PATH; %s >log 2>&1", command));
  cr_assert(WIFEXITED(status) && WEXITSTATUS(status) == 0, "%s", command);
}

static result_row *row_of(const char *path, const char *variant) {
  const result_set set = read_results(path);
  for (size_t i = 0; i < set.count; i++)
    if (strcmp(set.rows[i].variant, variant) == 0) return &set.rows[i];
  cr_assert_fail("%s: no %s", path, variant);
  return NULL;
}

Test(cli_repeat, a_run_of_own_tensors_is_repeated_on_them) {
  command_write_text(
      "own.yaml",
      "schema: 1\n"
      "grid: {n: 24, heads: 2, kv_heads: 1, d: 16, causal: yes, dtype: f64, score: \"softcap=5,alibi\","
      " mask: \"documents:0+9\"}\n"
      "variants: [bigbird: {block: 4, seed: 3}, tiled]\n"
      "datasets: [npy: {q: my \\ q.npy, k: k.npy, v: v.npy, layout: bnhd}]\n"
      "timing: {min_time: 0.0005, max_time: 0.002, warmup: 0.0002, sample_time: 1e-4}\n");
  command_run_good("run own.yaml -o own.h5");
  result_row *row = row_of("own.h5", "bigbird");
  char *apply = repeat_apply(row), *run = repeat_run(row);
  cr_expect(strncmp(apply, "attnlab apply bigbird:block=4,", 30) == 0, "%s", apply);
  cr_expect(strstr(apply, ",seed=3 --q 'my \\ q.npy' --k k.npy --v v.npy --layout bnhd --dtype f64 --causal "
                          "--softcap 5 --alibi --mask documents:0+9 -o out.npy"),
            "%s", apply);
  shell(apply);
  const data_array out = array_read("out.npy");
  cr_expect(out.rank == 4 && out.shape[1] == ROWS && out.shape[2] == HEADS && out.dtype == ATTN_F64);
  shell(run);
  const result_row *repeated = row_of("one.h5", "bigbird");
  cr_expect_str_eq(repeated->key, row->key);
  cr_expect(same_number(repeated->err_rel_fro, row->err_rel_fro) && repeated->err_rel_fro > 0);
  free(apply), free(run);
  command_run_good("report own.h5 --error 5% --time 0.002 --memory 8 -o own.html");
  shell("grep -q '\"limits\":{\"error\":\"5\",\"time\":\"2\",\"memory\":\"8\"}' own.html");
  command_run("report own.h5 --error 5 -o own.html", &result);
  cr_expect(result.exit_code == 2 && strstr(result.err, "5%"), "%s", result.err);
  row = row_of("own.h5", "null_mean_v");
  apply = repeat_apply(row);
  run = repeat_run(row);
  cr_expect(!*apply && !*run, "a baseline is no variant: %s, %s", apply, run);
  free(apply), free(run);
}

/* Every kind of dataset: as the row has it, and what the command reads. */
Test(cli_repeat, every_dataset_has_its_options) {
  static const struct {
    const char *dataset;
    int64_t n_kv, dtype;
    const char *options; /* NULL: no command */
  } cases[] = {
      {"captured:file=a b.h5", 512, ATTN_F32, " --in 'a b.h5' --dtype f32"},
      {"hdf5:file=x.h5,names=query+key+value,layout=bnhd", 512, ATTN_F32,
       " --in x.h5 --names query+key+value --layout bnhd --dtype f32"},
      {"safetensors:file=x.safetensors", 512, ATTN_F64, " --in x.safetensors --dtype f64"},
      {"npy:q=x.npz:q,k=x.npz:k,v=x.npz:v,dtype=bf16", 512, ATTN_F32,
       " --q x.npz:q --k x.npz:k --v x.npz:v --dtype bf16"},
      {"npy:q=x.npz:q,k=x.npz:k,v=x.npz:v,dtype=bf16", 512, ATTN_F64, NULL},
      {"captured:file=a.h5", 1024, ATTN_F32, NULL},
      {"gaussian:std_q=1,std_k=1,std_v=1", 512, ATTN_F32, " --in " REPEAT_YOURS " --dtype f32"},
      {"of an older program", 512, ATTN_F32, " --in " REPEAT_YOURS " --dtype f32"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    result_row row = fixture_row(2);
    free(row.key);
    row.dataset = cases[i].dataset;
    row.key = strdup("dataset=x variant=longformer:window=8,dilation=1,global=0,global_at=");
    row.causal = 0;
    row.n_kv = cases[i].n_kv;
    row.dtype = cases[i].dtype;
    const char *given = cases[i].options;
    char *apply = repeat_apply(&row);
    cr_expect_str_eq(apply, given ? text_of("attnlab apply longformer:window=8%s -o out.npy", given) : "");
    free(apply), result_row_free(&row);
  }
}
