/* drawn.c - attnlab test: drawn problems find what shows for some shapes only (plugins/planted_shape.c), make
 * it small and repeat it; right variants of unlike style pass (plugins/styles.c); what is slow is not called
 * wrong. */
#include "tests/support/command.h"

#include "experiments/conformance/covering.h"
#include "experiments/conformance/drawn.h"

TestSuite(cli_drawn, .init = command_enter, .fini = command_leave, .timeout = 600);

#define PLUGIN(name) " --plugin " TEST_BINARY_DIR "/tests/plugins/" name ".so"

static void expect(const char *arguments, int code, const char *told) {
  command_run(arguments, &result);
  cr_expect_eq(result.exit_code, code, "%s: exit %d\n%s%s", arguments, result.exit_code, result.out,
               result.err);
  cr_expect(strstr(result.out, told), "%s: '%s' is missing from\n%s", arguments, told, result.out);
}

/* Each fault, and what its smallest problem must have. */
static const char *const faults[][2] = {
    {"width_64", "d = 64,"},
    {"width_128", "d = 128,"},
    {"decode", "least: n_q = 1, n_kv = 2, d = 1, d_v = 1, causal: "},
    {"one_key_head", "heads = 2"},
    {"many_heads", "kv_heads = "},
    {"fourth_entry", "batch = 4: batch 3,"},
    {"last_length", "batch = 4, padding: "},
    {"lse_output", "where the log-sum-exp is wanted: "},
    {"wide_values", "d = 1, d_v = 2: "},
    {"ignored_scores", "least: n_q = 1, n_kv = "},
    {"far_keys", "n_kv = 409"},
    {"late_position", "n_kv = 3001, d = 1, d_v = 1: "},
    {"third_head", "heads = 3: batch 0, head 2,"},
    {"multiple_of_64", "n_kv = 64, d = 1, d_v = 1: "},
    {"multiple_of_128", "n_kv = 128, d = 1, d_v = 1: "},
    {"narrow_values", "d_v = 1: "},
    {"key_stride", "layout: "},
    {"output_stride", "layout: "},
    {"second_call", "in a later call of the plan: "},
    {"idle_threads", "threads = "},
    {"more_queries", "least: n_q = 2, n_kv = 1, d = 1, d_v = 1, causal: "},
    {"hidden_first", "by the definition 0"},
    {"negative_scale", "scale: negative: "},
    {"zero_scale", "scale: zero: "},
    {"cap_and_bias", "score: softcap_"},
    {"many_lines", "heads = "},
    {"watched", "watched (attn_plan_verify): "},
    {"double_groups", "f64: "},
    {"no_keys", "by the definition 0 ("},
    {"sink_far", "head 1,"},
    {"documents", "mask: documents: "},
    {"graph_causal", "causal, mask: graph: "},
    {"lse_sink", "lse is "},
    {"prompt_chunk", "n_kv = 3, d = 1, d_v = 1, causal: "},
    {"crash", "d = 17, d_v = 3: it crashed: Segmentation fault"}};

/* Faults of sizes, numbers, biases and masks that few problems have. */
static const char *const rare_faults[][2] = {{"query_heads_32", "kv_heads = "},
                                             {"width_512", "d = 257, d_v = 1"},
                                             {"length_192", "n_kv = 192, d = 1, d_v = 1: "},
                                             {"length_1000", "n_kv = 1000, d = 1, d_v = 1: "},
                                             {"two_queries", "n_q = 2, n_kv = 3, d = 1, d_v = 1: "},
                                             {"index_16", "n_kv = 6"},
                                             {"no_maximum", "scale: far: "},
                                             {"hidden_block", "score: "},
                                             {"bias_stride", "score: b"},
                                             {"bias_type", "score: softcap_bias: "},
                                             {"bias_heads", "batch = 2, "},
                                             {"graph_heads", "heads = 2, mask: graph: "},
                                             {"five_documents", "mask: documents: "},
                                             {"block_of_one", "mask: block_causal: "},
                                             {"cap_and_sink", "score: softcap_sink"},
                                             {"wide_cap", "score: softcap"},
                                             {"room", "layout: roomy: "},
                                             {"half_values", "values: large: "},
                                             {"small_values", "by the definition "},
                                             {"later_empty", "padding: empty"},
                                             {"plain_decode", "d = 64, d_v = 1, heads = 2: "}};

static void expect_witnesses(const char *const of[][2], size_t count) {
  char command[300];
  for (size_t i = 0; i < count; i++) {
    snprintf(command, sizeof command, "test planted_shape:fault=%s --problems drawn" PLUGIN("planted_shape"),
             of[i][0]);
    expect(command, 1, "drawn         FAILED");
    cr_expect(strstr(result.out, of[i][1]), "%s: '%s' is missing from\n%s", of[i][0], of[i][1], result.out);
  }
}

Test(cli_drawn, faults_of_some_shapes_have_a_small_witness) {
  expect_witnesses(faults, sizeof faults / sizeof *faults);
}

Test(cli_drawn, faults_of_rare_shapes_have_a_witness) {
  expect_witnesses(rare_faults, sizeof rare_faults / sizeof *rare_faults);
}

/* The command that a failure prints repeats it, and passes where there is no fault. */
Test(cli_drawn, a_failure_is_repeated_by_its_command) {
  char one[400], command[900];
  expect("test planted_shape:fault=documents --problems drawn" PLUGIN("planted_shape"), 1,
         "the same alone: ");
  const char *at = strstr(result.out, "--case ");
  cr_assert(at, "%s", result.out);
  snprintf(one, sizeof one, "%.*s", (int)strcspn(at, "\n"), at);
  snprintf(command, sizeof command, "test planted_shape:fault=documents %s" PLUGIN("planted_shape"), one);
  expect(command, 1, "mask: documents: batch ");
  snprintf(command, sizeof command, "test planted_shape %s" PLUGIN("planted_shape"), one);
  expect(command, 0, "drawn         pass (1 of 1 problems)");
}

Test(cli_drawn, right_variants_pass) {
  expect("test planted_shape --problems drawn --seed 2 --time 2" PLUGIN("planted_shape"), 0,
         "drawn         pass");
  expect("test topk:k=5,window=4 --problems drawn --time 2", 0, "refused, though declared");
  static const char *const styles[] = {
      "sum=single", "sum=kahan,power=expf,described=0", "pass=online,step=1,power=exp2",
      "sum=single,pass=online,step=64,end=break", "sum=single,pass=keys,threads=1"};
  char command[300];
  for (size_t i = 0; i < sizeof styles / sizeof *styles; i++) {
    snprintf(command, sizeof command, "test styles:%s --problems drawn --time 1" PLUGIN("styles"), styles[i]);
    expect(command, 0, "drawn         pass");
  }
}

Test(cli_drawn, limits_are_of_processor_time) {
  expect("test planted_shape:fault=slow --problems drawn --time 1" PLUGIN("planted_shape"), 0, "slow: ");
  expect("test planted_shape:fault=loop --problems drawn --limit 1" PLUGIN("planted_shape"), 1,
         "did not come to an end within 1 s of processor time");
  expect("test planted_shape:fault=sleep --problems drawn --limit 1" PLUGIN("planted_shape"), 1,
         "used no processor time");
}

/* -- the array -- */

static bool not_both_last(const void *context, const int *row) {
  (void)context;
  return !(row[0] == 2 && row[1] == 3);
}

Test(cli_drawn, pairs_and_triples_are_covered) {
  const covering_plan plan = {
      .factors = 6, .levels = {3, 4, 2, 5, 3, 1}, .triples = 4, .allowed = not_both_last};
  int *rows, *again;
  int64_t count, same;
  cr_assert(covering_make(&plan, 5, &rows, &count) == ATTN_OK);
  cr_assert(covering_make(&plan, 5, &again, &same) == ATTN_OK);
  cr_expect(count == same && memcmp(rows, again, (size_t)count * 6 * sizeof *rows) == 0);
  cr_expect(count < 4 * 5 * 3 * 2, "%lld rows are all there are", (long long)count);
  for (int x = 0; x < 6; x++)
    for (int y = x + 1; y < 6; y++)
      for (int z = y; z < 6; z++)
        for (int a = 0; a < plan.levels[x]; a++)
          for (int b = 0; b < plan.levels[y]; b++)
            for (int c = 0; c < plan.levels[z]; c++) {
              bool met = (z > y && z >= 4) || (z == y && b != c) || (x == 0 && y == 1 && a == 2 && b == 3);
              for (int64_t r = 0; r < count && !met; r++)
                met = rows[r * 6 + x] == a && rows[r * 6 + y] == b && rows[r * 6 + z] == c;
              cr_expect(met, "factors %d, %d, %d: levels %d, %d, %d do not meet", x, y, z, a, b, c);
            }
  free(rows);
  free(again);
}

Test(cli_drawn, problems_have_what_is_declared_only) {
  problem *list, back;
  int64_t count;
  char text[PROBLEM_TEXT];
  cr_assert(drawn_problems(ATTN_CAP_CAUSAL | ATTN_CAP_MASK, 1, &list, &count) == ATTN_OK);
  for (int64_t i = 0; i < count; i++) {
    const int64_t *v = list[i].value;
    cr_expect(v[FIELD_N_Q] == v[FIELD_N_KV] && !v[FIELD_PADDING] && !v[FIELD_SCORE] && !v[FIELD_LSE]);
    problem_print(&list[i], text);
    cr_assert(problem_parse(text, &back) == ATTN_OK, "%s: %s", text, attn_last_error());
    cr_expect(memcmp(&back, &list[i], sizeof back) == 0, "%s", text);
  }
  free(list);
}

static bool is_plain(const int64_t *v) { return !v[FIELD_SCORE] && !v[FIELD_MASK] && !v[FIELD_PADDING]; }

static bool is_there(const problem *list, int64_t count, int64_t n_kv, int64_t width) {
  for (int64_t i = 0; i < count; i++) {
    const int64_t *v = list[i].value;
    if (is_plain(v) &&
        (n_kv ? v[FIELD_N_Q] == 1 && v[FIELD_N_KV] == n_kv : v[FIELD_D] == width && v[FIELD_D_V] == width))
      return true;
  }
  return false;
}

Test(cli_drawn, usual_sizes_and_plain_problems_are_there) {
  static const int64_t lengths[] = {16, 48, 192, 256, 512, 1000, 1024, 2048, 4096, 70001},
                       sizes[] = {32, 96, 112, 192, 512, 576};
  problem *list;
  int64_t count, plain = 0, decode = 0;
  cr_assert(drawn_problems(ATTN_CAP_SOFTMAX | ATTN_CAP_LSE, 3, &list, &count) == ATTN_OK);
  for (size_t l = 0; l < sizeof lengths / sizeof *lengths; l++)
    cr_expect(is_there(list, count, lengths[l], 0), "one query over %lld keys", (long long)lengths[l]);
  for (size_t w = 0; w < sizeof sizes / sizeof *sizes; w++)
    cr_expect(is_there(list, count, 0, sizes[w]), "width %lld", (long long)sizes[w]);
  for (int64_t i = 0; i < count; i++) {
    const int64_t *v = list[i].value;
    if (v[FIELD_SCORE] || v[FIELD_MASK]) continue;
    plain++;
    decode +=
        v[FIELD_N_Q] == 1 && v[FIELD_D] == 128 && v[FIELD_D_V] == 128 && v[FIELD_HEADS] > v[FIELD_KV_HEADS];
  }
  cr_expect(3 * plain > count && decode > 0, "%lld of %lld, %lld", (long long)plain, (long long)count,
            (long long)decode);
  free(list);
}
