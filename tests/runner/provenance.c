/* provenance.c - what rows were made from: plug-ins and files that change are run again, and named. */
#include <hdf5.h>
#include <jansson.h>
#include <unistd.h>

#include "experiments/instruments/machine.h"
#include "experiments/runner/provenance.h"
#include "tests/support/files.h"
#include "tests/support/sweep_fixture.h"

TestSuite(provenance, .init = command_enter, .fini = command_leave, .timeout = 120);

static int64_t session_of(const char *part) {
  result_set set = read_results("x.h5");
  const result_row *row = find_row(&set, part);
  expect_status(row, RUN_OK);
  return row->session;
}

Test(provenance, rows_of_a_plug_in_that_changed_are_run_again_and_no_others) {
  static const char command[] = "run x.yaml -o x.h5 -q --plugin ./fault.so";
  command_write_text("x.yaml", "schema: 1\ngrid: {n: 16, heads: 1, d: 8}\nvariants: [full, fault]\n"
                               "datasets: gaussian\nthreads: 1\nnulls: no\n" TIMING);
  command_replace(TEST_BINARY_DIR "/tests/fault.so", "fault.so");
  cr_assert_eq(run(command), 0, "%s", result.err);
  command_replace(TEST_BINARY_DIR "/tests/fault.so", "fault.so"); /* another file of the same content */
  cr_assert_eq(run(command), 0, "%s", result.err);
  cr_expect_eq(session_of("variant=fault"), 0);
  FILE *plugin = fopen("fault.so", "ab");
  cr_assert(plugin && fputs("changed", plugin) >= 0 && fclose(plugin) == 0);
  cr_assert_eq(run("run x.yaml -o x.h5 -q --keep-stale --plugin ./fault.so"), 0, "%s", result.err);
  cr_expect_eq(session_of("variant=fault"), 0);
  cr_assert_eq(run(command), 0, "%s", result.err);
  cr_expect_eq(session_of("variant=fault"), 1);
  cr_expect_eq(session_of("variant=full"), 0);
}

/* Every plug-in of an expression, not the first alone. */
Test(provenance, any_plug_in_of_an_expression_counts) {
  static const char command[] = "run x.yaml -o x.h5 -q --plugin ./fault.so --plugin ./planted.so";
  static const char *const files[] = {"fault.so", "planted.so"};
  command_write_text("x.yaml", "schema: 1\ngrid: {n: 16, heads: 1, d: 8}\n"
                               "variants: [\"0.5*fault + 0.5*planted\"]\ndatasets: gaussian\nthreads: 1\n"
                               "nulls: no\n" TIMING);
  command_replace(TEST_BINARY_DIR "/tests/fault.so", "fault.so");
  command_replace(TEST_BINARY_DIR "/tests/plugins/planted.so", "planted.so");
  cr_assert_eq(run(command), 0, "%s", result.err);
  cr_assert_eq(run(command), 0, "%s", result.err);
  cr_expect_eq(session_of("variant=0.5*fault"), 0);
  for (int i = 0; i < 2; i++) {
    FILE *plugin = fopen(files[i], "ab");
    cr_assert(plugin && fputs("changed", plugin) >= 0 && fclose(plugin) == 0);
    cr_assert_eq(run(command), 0, "%s", result.err);
    cr_expect_eq(session_of("variant=0.5*fault"), i + 1, "%s changed", files[i]);
  }
}

Test(provenance, a_violation_names_its_files_and_the_command_its_plug_in) {
  command_write_text("x.yaml", "schema: 1\ngrid: {n: 16, heads: 1, d: 8}\nvariants: [fault: {mode: wrong}]\n"
                               "datasets: gaussian\nthreads: 1\nnulls: no\n" TIMING);
  command_replace(TEST_BINARY_DIR "/tests/fault.so", "fault.so");
  cr_assert_eq(run("run x.yaml -o x.h5 -q --plugin ./fault.so"), 1, "%s", result.err);
  cr_assert_eq(run("check x.h5"), 1);
  expect_says(result.out, "--plugin ./fault.so");
  expect_says(result.out, "Files of the plug-in: SHA-256 ");
}

/* Each column of /provenance, but those that the file's own sessions have. */
Test(provenance, a_session_knows_what_files_tell_of_it) {
  sweep("-q", 0,
        "schema: 1\ngrid: {n: 16, heads: 1, d: 8}\nvariants: full\ndatasets: gaussian\n"
        "nulls: no\n" TIMING);
  FILE *lines = fopen("x.jsonl", "r");
  cr_assert(lines);
  json_t *head = json_loadf(lines, JSON_DISABLE_EOF_CHECK, NULL);
  fclose(lines);
  const hid_t file = H5Fopen("x.h5", H5F_ACC_RDONLY, H5P_DEFAULT);
  char name[64];
  int count = 0;
  for (hsize_t i = 0; H5Lget_name_by_idx(file, "provenance", H5_INDEX_NAME, H5_ITER_INC, i, name, sizeof name,
                                         H5P_DEFAULT) > 0;
       i++, count++)
    cr_expect(strstr(" session build end_time load_end ", name) ||
                  json_object_get(json_object_get(head, "provenance"), name),
              "%s", name);
  cr_expect(count > 20, "%d columns", count);
  H5Fclose(file);
  json_decref(head);
}

/* As commands of the system tell them. */
Test(provenance, facts_of_the_machine) {
  static const char *const known[][2] = {
      {"cpu_model", "sed -n 's/^\\(model name\\|Model\\)[[:space:]]*:[[:space:]]*//p' /proc/cpuinfo"},
      {"cpu_flags", "sed -n 's/^\\(flags\\|Features\\)[[:space:]]*:[[:space:]]*//p' /proc/cpuinfo"},
      {"governor", "cat /sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"},
      {"boost", "cd /sys/devices/system/cpu; cat cpufreq/boost || tr 01 10 <intel_pstate/no_turbo"},
      {"smt", "cat /sys/devices/system/cpu/smt/control"},
      {"aslr", "cat /proc/sys/kernel/randomize_va_space"},
      {"kernel", "uname -srm"},
      {"hostname", "uname -n"}};
  json_t *facts = machine_facts();
  for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
    char want[8192] = "unknown";
    FILE *told = popen(text_of("{ %s; } 2>/dev/null", known[i][1]), "r");
    if (told && fgets(want, sizeof want, told)) want[strcspn(want, "\n")] = '\0';
    pclose(told);
    cr_expect_str_eq(json_string_value(json_object_get(facts, known[i][0])), want, "%s", known[i][0]);
  }
  const double pages = (double)sysconf(_SC_PHYS_PAGES) * (double)sysconf(_SC_PAGESIZE);
  cr_expect(machine_memory() > pages / 2 && machine_memory() < 2 * pages && machine_load() >= 0);
  cr_expect_eq(json_integer_value(json_object_get(facts, "n_cores")), sysconf(_SC_NPROCESSORS_ONLN));
  json_decref(facts);
}

/* The batch job, and the variables that concern threads and kernels. */
Test(provenance, what_is_collected) {
  static const char *const jobs[] = {"PBS_JOBID", "LSB_JOBID", "SLURM_JOB_ID", "SLURM_ARRAY_JOB_ID"};
  char words[] = "attnlab\0run\0x.yaml", *argv[] = {words, words + 8, words + 12};
  setenv("OMP_A", "1", 1), setenv("KMP_B", "2", 1), setenv("ATTN_C", "3", 1), setenv("NOMP_D", "4", 1);
  for (int i = 0; i < 4; i++) {
    json_t *json;
    if (i < 3) unsetenv(jobs[i + 1]), unsetenv(jobs[i ? i - 1 : 3]);
    setenv(jobs[i], jobs[i], 1);
    cr_assert_eq(provenance_collect(3, argv, "abc", i > 0, &json), ATTN_OK);
    const char *text = json_string_value(json_object_get(json, "env_omp"));
    cr_expect(strstr(text, "OMP_A=1 ") && strstr(text, "KMP_B=2 ") && strstr(text, "ATTN_C=3 ") &&
              !strstr(text, "D=4"));
    cr_expect_str_eq(json_string_value(json_object_get(json, "job_id")), jobs[i]);
    cr_expect_str_eq(json_string_value(json_object_get(json, "argv")), "attnlab run x.yaml");
    cr_expect_eq(*json_string_value(json_object_get(json, "hostname")) != '\0', i > 0);
    json_decref(json);
  }
}

static void write_matrix(bool data, double value) {
  double x[16 * 8];
  const int rows = data ? 16 : 2, columns = data ? 8 : 16;
  for (int i = 0; i < rows * columns; i++) x[i] = value * (double)(i % 5);
  fixture_npy(data ? "q.npy" : "e.npy", "<f8", text_of("%d, %d", rows, columns), x,
              (size_t)(rows * columns) * sizeof *x);
}

/* The variant's or the dataset's. What was measured stays when they are gone. */
Test(provenance, a_run_of_files_is_run_again_when_one_changes) {
  static const double values[][2] = {{0.25, 0.25}, {0.25, 0.25}, {0.5, 0.25}, {0.5, 0.5}, {0, 0}};
  static const int64_t sessions[] = {0, 0, 1, 2, 2};
  command_write_text("x.yaml", "schema: 1\ngrid: {n: 16, heads: 1, d: 8}\nnulls: no\nthreads: 1\n"
                               "variants: [linformer: {k: 2, projection: file, projection_file: e.npy}]\n"
                               "datasets: [npy: {q: q.npy, k: q.npy, v: q.npy}]\n" TIMING);
  for (int i = 0; i < 5; i++) {
    for (int data = 0; data < 2 && i < 4; data++) write_matrix(data, values[i][data]);
    if (i == 4) unlink("e.npy"), unlink("q.npy");
    cr_assert_eq(run("run x.yaml -o x.h5 -q"), 0, "%s", result.err);
    cr_expect_eq(session_of("variant=linformer"), sessions[i], "%d", i);
  }
}

/* Every reason once, with the number of its runs. */
Test(provenance, a_sweep_that_measured_nothing_says_why) {
  command_write_text("x.yaml", "schema: 1\ngrid: {n: 16, heads: [1, 2], d: 8, causal: yes}\n"
                               "variants: [linformer: {k: 2, seed: [1, 2]}]\ndatasets: gaussian\n" TIMING);
  cr_expect_eq(run("run x.yaml -o x.h5 -q"), 3, "%s", result.err);
  expect_says(result.err, "4 runs unsupported: ");
  cr_expect_eq(command_diagnostics(&result), 1, "%s", result.err);
  cr_expect_eq(run("run x.yaml -o y.h5 -q --set grid.causal=no,yes"), 0, "%s", result.err);
}

/* Contradictions are no rows, and do not stop the rest of a product; the dry run has them as well. */
Test(provenance, contradictions_are_refused_before_the_sweep) {
  command_write_text("x.yaml", "schema: 1\ngrid: {n: [16, 18], heads: 1, d: 8, causal: yes}\n"
                               "variants: [lsh_tail: {l: [1, 2], hits: [1, 2]}, magicpig: {l: 1, hits: 2},\n"
                               "  \"bigbird:tail=uniform,random=0\", \"graph:kind=natten,width=4\",\n"
                               "  \"sparse_transformer:mode=fixed,stride=2,summary=3\",\n"
                               "  \"0.5*full + 0.5*lsh_tail:l=1,hits=2\"]\n"
                               "datasets: gaussian\n" TIMING);
  cr_expect_eq(run("run x.yaml -o x.h5 --dry-run"), 0, "%s", result.err);
  expect_says(result.err, "hits = 2 > l = 1");
  expect_says(result.err, "summary=3, expected at most");
  cr_expect(!strstr(result.out, "l=1,hits=2"), "%s", result.out);
  cr_expect_eq(run("run x.yaml -o x.h5"), 0, "%s", result.err);
  expect_says(result.err, "4 runs refused: variant lsh_tail: hits = 2 > l = 1");
  expect_says(result.err, "random=0 draws nothing");
  expect_says(result.err, "1 runs refused: variant graph: natten needs a width that divides n_kv = 18");
  expect_says(result.err, ": 13 runs, 0 with a violated bound, 0 failed\n");
  command_write_text("z.yaml", "schema: 1\ngrid: {n: 16, causal: yes}\nvariants: \"lsh_tail:l=1,hits=2\"\n"
                               "datasets: gaussian\n");
  cr_expect_eq(run("run z.yaml -o y.h5"), 2, "%s", result.err);
  expect_says(result.err, "every run is refused: variant lsh_tail: hits = 2 > l = 1");
}

/* Of a generator no file says which shapes it has. */
Test(provenance, a_dry_run_names_datasets_that_do_not_fit) {
  static const char *const bad[][2] = {
      {"rope", "an even d_qk, not 7"},        {"lowrank:rank=8", "rank=8 exceeds"},
      {"outlier:channels=8", "exceeds"},      {"duplicate:distinct=16", "not below"},
      {"needle:distance=16", "not below"},    {"needle:distance=3,gap=2", "a gap needs"},
      {"hopfield", "d_qk=7 and d_v=5 differ"}};
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
    command_write_text("x.yaml", text_of("schema: 1\ngrid: {n: 16, heads: 1, d: 7, d_v: 5}\nvariants: full\n"
                                         "datasets: \"%s\"\n" TIMING,
                                         bad[i][0]));
    cr_expect_eq(run("run x.yaml -o x.h5 --dry-run"), 0, "%s", result.err);
    cr_expect(strstr(result.out, bad[i][1]) && strstr(result.err, "nothing will run"), "%s: %s %s", bad[i][0],
              result.out, result.err);
  }
  cr_expect_eq(run("run x.yaml -o x.h5 --dry-run --set datasets=gat --set grid.d=1"), 0, "%s", result.err);
  expect_says(result.out, "d_qk of 2 or more");
}

/* Parameters that contradict the problem: where n has room for them they are run. What a variant lacks is
 * a row. */
Test(provenance, what_contradicts_the_problem_is_refused) {
  static const char *const refused[] = {"linformer: k=20 is above n_kv = 16",
                                        "longformer: global_at=19, expected below n_kv = 16",
                                        "graph: offsets=...19, expected below n_kv = 16",
                                        "linear: M = 20, but there are 24 positions",
                                        "linear: nu = 20, expected less than the 16",
                                        "tiled: steps are passed over with path=fma alone",
                                        "sums without a denominator cannot be joined"};
  enum { REFUSED = sizeof refused / sizeof *refused };
  command_write_text("x.yaml",
                     "schema: 1\ngrid: {n: [16, 24], heads: 1, d: 8}\n"
                     "variants: [\"linformer:k=20\", \"longformer:global_at=19\", hyper: {sample: 4},\n"
                     "  \"graph:offsets=0+19\", \"linear:feature=cos,M=20\", \"linear:feature=dpfp,nu=20\",\n"
                     "  \"tiled:skip=0.1,path=split\", \"topk:k=4 + linear:normalise=no\",\n"
                     "  \"0.5*linformer:k=20 + 0.5*tiled\", streaming]\n"
                     "datasets: gaussian\nnulls: no\n" TIMING);
  for (int dry = 1; dry >= 0; dry--) {
    cr_expect_eq(run(dry ? "run x.yaml -o x.h5 --dry-run" : "run x.yaml -o x.h5"), 0, "%s", result.err);
    for (int i = 0; i < REFUSED; i++)
      cr_expect(strstr(result.err, refused[i]), "%s\n%s", refused[i], result.err);
  }
  /* Of n = 16 and 24: hyper twice; streaming is causal alone; the others once. */
  expect_says(result.err, ": 9 runs, 0 with a violated bound, 0 failed, 2 unsupported\n");
}

/* Whichever part of an expression refuses them. */
Test(provenance, scores_and_masks_under_dyadic_are_refused) {
  static const char *const targets[] = {"mask: \"documents:2\"", "mask: \"prefix:5\"", "score: alibi",
                                        "score: sink=0", "score: softcap=5"};
  for (size_t i = 0; i < sizeof targets / sizeof *targets; i++) {
    command_write_text("x.yaml",
                       text_of("schema: 1\ngrid: {n: 40, heads: 2, d: 8, causal: yes, %s}\nvariants: "
                               "[\"dyadic(topk:k=4,base=8)\", \"0.5*dyadic(lsh,base=4) + 0.5*full\"]"
                               "\ndatasets: gaussian\nnulls: no\n" TIMING,
                               targets[i]));
    cr_expect_eq(run("run x.yaml -o x.h5"), 2, "%s", result.err);
    expect_says(result.err, "every run is refused: ");
    expect_says(result.err, "dyadic takes scores as they are");
  }
}

Test(provenance, a_dry_run_names_files_that_are_missing) {
  command_write_text("x.yaml",
                     "schema: 1\ngrid: {n: 16, heads: 1, d: 8}\n"
                     "variants: [full, linformer: {k: 2, projection: file, projection_file: e.npy}]\n"
                     "datasets: [gaussian, npy: {q: q.npy, k: q.npy, v: q.npy}]\n" TIMING);
  cr_expect_eq(run("run x.yaml -o x.h5 -q --dry-run"), 74, "%d %s", result.exit_code, result.err);
  expect_says(result.err, "q.npy");
  expect_says(result.err, "e.npy");
}

static bool file_has(const char *path, const char *text) { return strstr(fixture_text(path), text); }

/* Threads that wait for work spin briefly, unless the user says how they wait. */
Test(provenance, how_threads_wait_is_said) {
  unsetenv("GOMP_SPINCOUNT");
  unsetenv("OMP_WAIT_POLICY");
  sweep("-q", 0, "schema: 1\ngrid: {n: 16, heads: 1, d: 8}\nvariants: full\ndatasets: gaussian\n" TIMING);
  cr_expect(file_has("x.jsonl", "GOMP_SPINCOUNT=2000 "));
  setenv("GOMP_SPINCOUNT", "7", 1);
  cr_expect_eq(run("run x.yaml -o y.h5 -q"), 0, "%s", result.err);
  cr_expect(file_has("y.jsonl", "GOMP_SPINCOUNT=7 "));
  unsetenv("GOMP_SPINCOUNT");
  setenv("OMP_WAIT_POLICY", "active", 1);
  cr_expect_eq(run("run x.yaml -o z.h5 -q"), 0, "%s", result.err);
  cr_expect_not(file_has("z.jsonl", "GOMP_SPINCOUNT"));
}
