/* advise.c - attnlab advise: settings that are what apply computes, the least that are within the error, and
 * honest about what is drawn, impossible or meaningless. Nothing is asked of times. */
#include <hdf5.h>
#include <inttypes.h>

#include "attn_variant.h"
#include "tests/support/command_json.h"
#include "tests/support/data_fixture.h"

TestSuite(cli_advise, .init = command_enter, .fini = command_leave);

enum { N = 96, D = 8 };
#define FAULT TEST_BINARY_DIR "/tests/fault.so"

static void write_inputs(double std) {
  const hid_t file = H5Fcreate("qkv.h5", H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
  static const char *const names[] = {"q", "k", "v", "index_q", "decay", "index_k"};
  for (int t = 0; t < 6; t++) {
    const hsize_t shape[] = {1, 2, N, t == 4 ? 1 : D};
    float x[2 * N * D];
    attn_rng rng = rng_of(1, 2, (uint64_t)t);
    for (int i = 0; i < 2 * N * D; i++) x[i] = (float)(attn_rng_normal(&rng) * (t < 2 ? std : 1));
    for (int i = 0; t == 4 && i < 2 * N * D; i++) x[i] = -fabsf(x[i]);
    const hid_t space = H5Screate_simple(t < 5 ? 4 : 2, t < 5 ? shape : shape + 2, NULL),
                data =
                    H5Dcreate2(file, names[t], H5T_IEEE_F32LE, space, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
    cr_assert(H5Dwrite(data, H5T_NATIVE_FLOAT, H5S_ALL, H5S_ALL, H5P_DEFAULT, x) >= 0);
    H5Dclose(data), H5Sclose(space);
  }
  H5Fclose(file);
}

/* The setting of a variant; NULL: there is none. */
static const json_t *setting_of(const json_t *all, const char *variant) {
  const json_t *settings = json_object_get(all, "settings");
  for (size_t i = 0; i < json_array_size(settings); i++) {
    const json_t *one = json_array_get(settings, i);
    const char *spec = json_text(one, "spec");
    if (strncmp(spec, variant, strlen(variant)) == 0 && strchr(":", spec[strlen(variant)])) return one;
  }
  return NULL;
}

/* What is within the error comes first, by time, but last of it what reads all keys; then the others by
 * error. The best is the first that is surely faster than exact attention; one sample may be half or twice
 * its time. */
static void expect_choice(const json_t *all) {
  const json_t *settings = json_object_get(all, "settings"), *exact = json_object_get(all, "exact");
  const char *said = json_string_value(json_object_get(all, "best")), *best = NULL;
  const double once = number(exact, "time_s") / 2, exact_lo = number(exact, "time_lo_s");
  double last = 0;
  for (int64_t i = 0, before = 0; i < (int64_t)json_array_size(settings); i++) {
    const json_t *s = json_array_get(settings, (size_t)i);
    const bool within = json_is_true(json_object_get(s, "within")),
               own = json_is_true(json_object_get(s, "exact"));
    const int64_t group = !within ? 2 : !own && number(s, "keys_read") >= 1;
    const double x = number(s, group < 2 ? "time_s" : "error"), hi = number(s, "time_hi_s");
    cr_expect(group > before || (group == before && !(x < last)), "%s", result.out);
    if (!best && !group && (isnan(hi) ? 2 * x : hi) < (isnan(exact_lo) ? once : exact_lo))
      best = json_text(s, "spec");
    before = group;
    last = x;
  }
  cr_expect_str_eq(said ? said : "none", best ? best : "none", "%s", result.out);
}

/* Relative distance of what a spec computes from exact attention, through apply; options may follow it. */
static double apply(const char *spec) {
  double gap = 0, size = 0;
  command_run_good(text_of("apply %s --in qkv.h5 -o o.npy", spec));
  command_run_good(text_of("apply full%s --in qkv.h5 -o exact.npy", spec + strcspn(spec, " ")));
  const data_array o = array_read("o.npy"), exact = array_read("exact.npy");
  for (int64_t i = 0; i < data_array_count(&o); i++) {
    gap += pow(attn_get(o.at, i, o.dtype) - attn_get(exact.at, i, o.dtype), 2);
    size += pow(attn_get(exact.at, i, o.dtype), 2);
  }
  return sqrt(gap / size);
}

/* Two heads of keys and values of 8 numbers; codes have blocks of 32. A position takes 4 rows of 32 bytes in
 * f32, of 16 in f16, of 34, 18 and 12 in q8_0, q4_0 and int2: as many as fit into 2 KiB are held. */
Test(cli_advise, a_cache_fits_into_its_bytes) {
  static const struct {
    const char *store;
    int bytes;
  } types[] = {{"", 128},
               {"store:k=f16,v=f16", 64},
               {"store", 136},
               {"store:v=q4_0", 104},
               {"store:k=q4_0,v=q4_0", 72},
               {"store:k=int2,v=int2", 48}};
  write_inputs(0.5);
  json_t *all = ask("advise --in qkv.h5 --causal --kv-bytes 2KiB -q --json evict:score=tova,recent=3");
  const json_t *settings = json_object_get(all, "settings");
  cr_assert_eq(json_array_size(settings), 6);
  for (size_t t = 0, found = 0; t < 6; t++, found = 0) {
    const char *spec = text_of("evict:score=tova,budget=%d,recent=3%s%s", 2048 / types[t].bytes,
                               t ? " | " : "", types[t].store);
    for (size_t i = 0; i < 6; i++)
      found += strcmp(json_string_value(json_object_get(json_array_get(settings, i), "spec")), spec) == 0;
    cr_expect_eq(found, 1, "%s: %s", spec, result.out);
  }
  for (size_t i = 1; i < 6; i++)
    cr_expect(number(json_array_get(settings, i - 1), "error") <=
              number(json_array_get(settings, i), "error"));
  const json_t *first = json_array_get(settings, 0);
  const char *best = json_text(first, "spec"), *row;
  cr_expect_str_eq(json_text(all, "best"), best);
  cr_expect(number(first, "error") > 0 && number(first, "certain") >= number(first, "error"));
  /* People are told the same. */
  command_run_good("advise --in qkv.h5 --causal --kv-bytes 2KiB evict:score=tova,recent=3");
  int end = 0;
  char word[2][9];
  const char *said = text_of("%s errs least of 6 caches of at most 2.00 KiB on this input: error ", best);
  const bool led = strstr(result.out, said) == result.out && (row = strstr(result.out, "\nsetting "));
  cr_assert(led && strstr(result.out, ", certain: nothing is drawn and every row was compared.\n"), "%s",
            said);
  sscanf(row, " setting <= 10 %% error 95 %% worst keys read time 95 %% of exact memory doubts%n", &end);
  cr_expect_eq(row[end], '\n', "%s", result.out);
  for (size_t i = 0; i < 6; i++) {
    double error;
    const json_t *s = json_array_get(settings, i);
    said = text_of("\n%s  ", json_text(s, "spec"));
    cr_assert((row = strstr(result.out, said)) &&
              sscanf(row + strlen(said), "%8s %lf %% %8s", word[0], &error, word[1]) == 3);
    cr_expect(fabs(error / 100 - number(s, "error")) <= 0.05 * number(s, "error") && !strcmp(word[0], "no") &&
                  !strcmp(word[1], "certain"),
              "%s", row);
  }
  for (int i = 0; i < 4; i++) { /* of 96 * 128; however long each took */
    all = ask("advise --in qkv.h5 --causal --kv-bytes 12287 -q --json evict:score=tova");
    cr_expect_str_eq(json_text(all, "best"), "store:k=f16,v=f16");
  }
  command_run("advise --in qkv.h5 --causal --kv-bytes 12288 -q --json evict:score=tova", &result);
  cr_expect(result.exit_code == 2 && strstr(result.err, "all 96 positions fit"), "%s", result.err);
  command_run_good("advise --in qkv.h5 --causal --kv-bytes 2KiB evict:recent=64");
  expect_says(result.out, "No cache of at most 2.00 KiB could be made with a finite output.\n");
}

Test(cli_advise, what_is_said_is_what_apply_does) {
  write_inputs(0.5);
  json_t *all = ask("advise --in qkv.h5 --error 0.3 --json");
  const json_t *input = json_object_get(all, "input");
  cr_expect(number(input, "heads") == 2 && number(input, "n_kv") == N && number(all, "error") == 0.3);
  const json_t *window = setting_of(all, "longformer");
  cr_assert(window && json_is_true(json_object_get(window, "within")));
  const char *spec = json_text(window, "spec");
  /* Exact attention rounds to some 1e-6. */
  cr_expect_float_eq(apply(spec), number(window, "error"), 1e-5, "%s", spec);
  cr_expect(number(window, "error") <= 0.3 && number(window, "certain") >= number(window, "error"));
  cr_expect(number(window, "left_out_mean") > 0 &&
            number(window, "left_out_most") > number(window, "left_out_mean"));
  expect_choice(all);
  /* The least window: the next smaller one that a bisection to a sixteenth may leave is not within. */
  int64_t keys = 0;
  cr_assert(sscanf(spec, "longformer:window=%" SCNd64, &keys) == 1, "%s", spec);
  const char *less = text_of("longformer:window=%" PRId64, (keys - 2 - keys / 8) / 2 * 2);
  cr_expect(apply(less) > 0.3, "%s is within, but %s was found", less, spec);
  /* What is drawn is estimated. */
  const json_t *drawn = setting_of(all, "performer");
  cr_assert(drawn && number(drawn, "draws") == 5 && json_is_null(json_object_get(drawn, "certain")));
  cr_expect(number(drawn, "error_lo") < number(drawn, "error") &&
            number(drawn, "error") < number(drawn, "error_hi") &&
            number(drawn, "error_worst") >= number(drawn, "error"));
  for (size_t i = 0; i < json_array_size(json_object_get(all, "settings")); i++) {
    const json_t *s = json_array_get(json_object_get(all, "settings"), i);
    cr_expect(number(s, "time_s") > 0 && number(s, "memory_bytes") >= 0);
    cr_expect(!json_is_true(json_object_get(s, "within")) || number(s, "error_worst") <= 0.3);
  }
  /* What cannot be is said, and of whom: these are causal alone. */
  const json_t *unsupported = json_object_get(all, "unsupported");
  static const char *const causal[] = {
      "streaming", "streaming_cache", "evict",  "recurrent", "sparse_transformer",
      "magicpig",  "vattention",      "pooled", "forget",    "nsa"};
  cr_expect_eq(json_array_size(unsupported), sizeof causal / sizeof *causal + 1, "and svd");
  for (size_t c = 0; c < sizeof causal / sizeof *causal; c++) {
    bool found = false;
    const char *start = text_of("variant %s: ", causal[c]);
    for (size_t i = 0; i < json_array_size(unsupported); i++) {
      const char *why = json_string_value(json_array_get(unsupported, i));
      found |= strncmp(why, start, strlen(start)) == 0 && strstr(why, "only causal attention");
    }
    cr_expect(found, "%s", causal[c]);
  }
}

/* Another seed has other draws, the same seed the same: those of the seeds that follow it, all of which
 * count. */
Test(cli_advise, draws_follow_the_seed) {
  double error[3], high = 0;
  write_inputs(0.5);
  for (int i = 0; i < 3; i++) {
    json_t *all = ask(i < 2 ? "advise performer:features=64 --in qkv.h5 --json --draws 3 --limit 0"
                            : "advise performer:features=64 --in qkv.h5 --json --draws 3 --seed 9");
    const json_t *s = setting_of(all, "performer");
    cr_assert(s && number(s, "draws") == 3);
    cr_expect_str_eq(json_text(s, "spec"), "performer:features=64");
    error[i] = number(s, "error");
    high = i ? high : number(s, "error_hi");
  }
  cr_expect(error[0] == error[1] && error[0] != error[2], "%g %g %g", error[0], error[1], error[2]);
  json_t *two = ask("advise performer:features=64,seed=1 --in qkv.h5 --json --draws 2");
  cr_expect(number(setting_of(two, "performer"), "error_lo") < number(setting_of(two, "performer"), "error"));
  const double one[] = {apply("performer:features=64"), apply("performer:features=64,seed=1"),
                        apply("performer:features=64,seed=2")},
               mean = (one[0] + one[1] + one[2]) / 3,
               squares = pow(one[0] - mean, 2) + pow(one[1] - mean, 2) + pow(one[2] - mean, 2);
  cr_expect_float_eq(error[0], mean, 1e-5, "%g, not %g", error[0], mean);
  /* Student's quantile of two degrees of freedom */
  cr_expect_float_eq(high - mean, 4.302652729911275 * sqrt(squares / 2 / 3), 1e-4, "%g", high - mean);
}

/* So do a sweep's runs, of which one takes longer than its samples may. */
Test(cli_advise, tensors_beside_the_values_are_read) {
  write_inputs(0.5);
  for (int i = 0; i < 2; i++) {
    const char *spec = i ? "forget" : "topk:k=9,by=index";
    const json_t *all = ask(text_of("advise %s --in qkv.h5 --causal --json", spec));
    const double error = number(setting_of(all, i ? spec : "topk"), "error");
    cr_expect_float_eq(apply(text_of("%s --causal", spec)), error, 1e-5, "%s: %g", spec, error);
  }
  command_write_text("x.yaml",
                     "schema: 1\ngrid: {n: 96, causal: yes}\nvariants: [forget, 'topk:k=9,by=index']\n"
                     "datasets: [hdf5: {file: qkv.h5}]\ntiming: {min_time: 0, max_time: 0}\n");
  command_run_good("run x.yaml -o x.h5");
}

/* The command that is printed runs, whether or not something is faster than exact attention. */
Test(cli_advise, a_command_to_paste) {
  write_inputs(0.5);
  command_run_good("advise longformer topk --in qkv.h5 --error 0.3 --causal --softcap 20");
  expect_says(result.out, " is the cheapest within 30 % on this input");
  const char *at = strstr(result.out, "\n  attnlab apply ");
  cr_assert(at, "%s", result.out);
  const char *command = text_of("%.*s", (int)strcspn(at + 11, "\n"), at + 11);
  cr_expect(strstr(command, " --causal --in qkv.h5 --softcap 20 -o out.npy"), "%s", command);
  command_run_good(command);
  command_run_good("advise linformer --in qkv.h5 --causal");
  expect_says(result.out, "Exact attention is the cheapest");
  expect_says(result.out, "left out:\n  variant linformer: causal attention is impossible");
  command_replace("qkv.h5", "$x.h5");
  command_run_good("advise evict fault:mode=none --in $x.h5 --causal --error 1e-9 -P " FAULT);
  expect_says(result.out, "Nothing is within 1.0e-9 on this input, not even exact attention");
  expect_says(result.out, "attnlab apply tiled --plugin " FAULT " --causal --in '$x.h5' -o out.npy\n");
  cr_expect(!strstr(result.out, "no budget could be tried"), "fewer keys than the recent ones: %s",
            result.out);
}

/* Equal scores: the mean of V is exact attention, and an error below it is nothing. */
Test(cli_advise, an_input_that_the_mean_of_v_fits) {
  write_inputs(0);
  command_run_good("advise longformer --in qkv.h5 --error 0.3");
  expect_says(result.out, "It ignores the keys, so an error within 30 % is uninformative here.");
}

/* The share of the keys is counted, and a window of all of them is no answer, however accurate. */
Test(cli_advise, keys_that_are_read) {
  write_inputs(0.5);
  json_t *all = ask(
      "advise streaming:sink=4,window=92 streaming:sink=0,window=48 performer --in qkv.h5 --causal --json");
  const json_t *settings = json_object_get(all, "settings");
  const json_t *whole = setting_of(all, "streaming"), *drawn = setting_of(all, "performer");
  const json_t *half = NULL;
  for (size_t i = 0; i < json_array_size(settings); i++) {
    const json_t *one = json_array_get(settings, i);
    if (number(one, "keys_read") < 1) half = one;
  }
  cr_expect(json_is_true(json_object_get(whole, "within")) && number(whole, "keys_read") == 1);
  cr_expect(json_is_null(json_object_get(all, "best")), "reads all keys");
  /* Row i has min(i + 1, 48) keys of i + 1. */
  cr_expect_float_eq(half ? number(half, "keys_read") : (double)NAN,
                     (48 * 49 / 2 + 48 * 48) / (96 * 97 / 2.0), 1e-12);
  cr_expect(drawn && isnan(number(drawn, "keys_read")));
  cr_expect(number(all, "threads") >= 1 && number(all, "processors") >= 1);
  command_run_good("advise streaming:sink=4,window=92 --in qkv.h5 --causal");
  expect_says(result.out, "What else is within it reads all keys.");
  expect_says(result.out, "\nstreaming:window=92: reads all keys: exact attention in disguise");
  const char *times = strstr(result.out, "\nTimes: ");
  cr_expect(times && strchr(times + 1, '\n')[-1] == '.', "%s", result.out);
  /* Values end where their titles do. */
  const char *head = strstr(result.out, "\nsetting "), *row = strstr(result.out, "\nstreaming:window=92 ");
  const char *title = head ? strstr(head, "keys read") : NULL;
  cr_assert(title && row && title < strchr(head + 1, '\n'), "%s", result.out);
  cr_expect_arr_eq(row + (title - head) + strlen("keys read") - 4, " all", 4, "%s", result.out);
}

/* An output with a NaN has no error, and nothing about it is certain. */
Test(cli_advise, an_output_that_is_not_finite) {
  write_inputs(0.5);
  command_run_good("advise fault:mode=one_nan --in qkv.h5 --plugin " FAULT);
  expect_says(result.out, "No other setting has a finite output.");
  expect_says(result.out, "     NaN  not finite  ");
  expect_says(result.out, "fault:mode=one_nan: output[");
}

/* Where all features of a query are zero, which depends on the draw, its output is NaN: in whichever of the
 * draws, the setting is not within the error. */
Test(cli_advise, a_draw_that_is_not_finite) {
  int found = 0;
  write_inputs(0.5);
  for (int seed = 0; seed < 2; seed++) {
    json_t *all = ask(text_of(
        "advise performer:features=9,kernel=relu,eps=0 --in qkv.h5 --error 99%% --json --seed %d", seed));
    const json_t *s = setting_of(all, "performer");
    cr_assert(s);
    const bool told = isnan(number(s, "error"));
    cr_expect(!told || !json_is_true(json_object_get(s, "within")), "%s", result.out);
    cr_expect(!told || isnan(number(s, "error_worst")), "%s", result.out);
    found += told;
  }
  cr_expect(found > 0);
}

/* Of the same variant with other budgets, named: none within the error reads clearly fewer keys, and where
 * none is within, none is closer. A budget of all keys costs less than a selection of most of them, and is no
 * answer. */
Test(cli_advise, no_budget_is_passed_over) {
  static const char *const asked[2][3] = {
      {"topk", " topk:k=16 topk:k=32 topk:k=40 topk:k=48 topk:k=56", "--error 0.35 --causal"},
      {"nystrom", " nystrom:landmarks=8 nystrom:landmarks=16", "--error 1e-9"}};
  write_inputs(0.5);
  for (int i = 0; i < 2; i++) {
    json_t *all = ask(text_of("advise %s --in qkv.h5 %s -q --json", asked[i][0], asked[i][2]));
    cr_expect_str_eq(strchr(result.err, '\n'), "\n", "more than how the file is read: %s", result.err);
    const json_t *found = setting_of(all, asked[i][0]);
    cr_assert(found && json_is_true(json_object_get(found, "within")) == (i == 0));
    cr_expect(i || number(found, "keys_read") < 1);
    cr_expect_eq(json_is_true(json_object_get(json_object_get(all, "exact"), "within")), i == 0);
    json_t *rest = ask(text_of("advise%s --in qkv.h5 %s -q --json", asked[i][1], asked[i][2])), *one;
    size_t s, within = 0;
    json_array_foreach(json_object_get(rest, "settings"), s, one) {
      const char *spec = json_text(one, "spec");
      const bool counts = i || json_is_true(json_object_get(one, "within"));
      within += counts;
      cr_expect(!counts || (i ? number(found, "error") <= number(one, "error")
                              : 0.85 * number(found, "keys_read") < number(one, "keys_read")),
                "%s", spec);
    }
    cr_expect(within && s > 1);
  }
}

/* What is the best of its rank is no method: it is tried if it is named. */
Test(cli_advise, an_oracle_is_named_to_be_tried) {
  write_inputs(0.5);
  json_t *all = ask("advise --in qkv.h5 --error 50% --limit 0 --json"), *why,
         *lines = json_object_get(all, "unsupported");
  size_t i;
  bool told = false;
  json_array_foreach(lines, i, why) told |= strstr(json_string_value(why), "variant svd: an oracle") != NULL;
  cr_expect(told && !setting_of(all, "svd"));
  all = ask("advise svd --in qkv.h5 --error 50% --json");
  cr_expect(setting_of(all, "svd"));
}

/* A plug-in is sized as a built-in variant of the same pattern is. */
Test(cli_advise, a_plug_in_with_a_budget) {
  int64_t half = 0, window = 0;
  write_inputs(0.5);
  json_t *all =
      ask("advise longformer planted_budget --in qkv.h5 --error 0.3 --json --plugin " TEST_BINARY_DIR
          "/tests/plugins/planted_budget.so");
  const json_t *own = setting_of(all, "planted_budget"), *known = setting_of(all, "longformer");
  cr_assert(own && known);
  cr_assert(sscanf(json_text(own, "spec"), "planted_budget:half=%" SCNd64, &half) == 1 &&
            sscanf(json_text(known, "spec"), "longformer:window=%" SCNd64, &window) == 1);
  cr_expect(window == 2 * half && number(own, "error") == number(known, "error") &&
            number(own, "error") <= 0.3);
}

/* Plug-ins that end their process, loop, wait, or write where they may not: each is left out, and the
 * others are measured. late: at an execution that is timed. */
Test(cli_advise, what_breaks_down_is_left_out, .timeout = 300) {
  static const char *const faults[][2] = {{"fault:mode=crash", "crashed: Aborted"},
                                          {"fault:mode=quit", "left the program with exit code 42"},
                                          {"fault:mode=fail", "fails as told"},
                                          {"fault:mode=hang", "it used no processor time"},
                                          {"fault:mode=before_output", "wrote before its output"},
                                          {"fault:mode=behind_output", "crashed: Segmentation fault"},
                                          {"fault:mode=before_work", "wrote before its work memory"},
                                          {"fault:mode=into_values", "crashed: Segmentation fault"},
                                          {"fault:mode=crash_late", "crashed: Aborted"},
                                          {"fault:mode=behind_late", "crashed: Segmentation fault"},
                                          {"planted:fault=loop", "did not come to an end within"},
                                          {"planted:fault=fork", "started a process (fork)"},
                                          {"rude:mode=applicable", "crashed: Segmentation fault"},
                                          {"rude:mode=scribble", "wrote to a descriptor"}};
  enum { FAULTS = sizeof faults / sizeof *faults };
  char command[1600] = "advise";
  write_inputs(0.5);
  for (int i = 0; i < FAULTS; i++)
    snprintf(command + strlen(command), sizeof command - strlen(command), " %s", faults[i][0]);
  strcat(command, " longformer:window=64 rude --in qkv.h5 --causal --limit 1 --threads 1 "
                  "--json --plugin " TEST_BINARY_DIR "/tests/fault.so --plugin " TEST_BINARY_DIR
                  "/tests/rude.so --plugin " TEST_BINARY_DIR "/tests/plugins/planted.so");
  json_t *all = ask(command), *lines = json_object_get(all, "unsupported");
  cr_expect(setting_of(all, "longformer") && setting_of(all, "rude"), "%s", result.out);
  for (int i = 0; i < FAULTS; i++) {
    bool told = false;
    for (size_t l = 0; l < json_array_size(lines); l++) {
      const char *line = json_string_value(json_array_get(lines, l));
      told |= strncmp(line, faults[i][0], strlen(faults[i][0])) == 0 && strstr(line, faults[i][1]);
      told |= strncmp(line, "variant fault: ", 15) == 0 && strstr(line, faults[i][1]);
    }
    cr_expect(told, "%s: not %s\n%s", faults[i][0], faults[i][1], result.out);
  }
}

/* Settings that leave nothing out err by rounding, as exact attention does, and never by nothing. */
Test(cli_advise, rounding_is_an_error) {
  write_inputs(0.5);
  json_t *all =
      ask("advise full longformer:window=190 streaming:sink=1,window=96 --in qkv.h5 --causal --json");
  const double exact = number(json_object_get(all, "exact"), "error");
  cr_expect(exact > 0x1p-26 && exact < 0x1p-18, "%g", exact);
  for (int i = 0; i < 3; i++) {
    const json_t *s = setting_of(all, i == 0 ? "full" : i == 1 ? "longformer" : "streaming");
    cr_assert(s && number(s, "error") > 0x1p-26 && number(s, "error") < 0x1p-18, "%g", number(s, "error"));
    cr_expect(number(s, "error_hi") == number(s, "error") && number(s, "certain") == number(s, "error"));
  }
}

/* Of many rows, too, errors are those against fp64 on all of them; with values near their mean all are
 * within. */
Test(cli_advise, many_rows_are_all_compared) {
  static const char *const names[] = {"q.npy", "k.npy", "v.npy"};
  for (int t = 0; t < 3; t++) {
    data_array x = array_make(ATTN_F32, 3, (int64_t[]){3, 1500, 8});
    attn_rng rng = rng_of((uint64_t)t, 1, 0);
    for (int i = 0; i < 3 * 1500 * 8; i++)
      ((float *)x.at)[i] = (float)(attn_rng_normal(&rng) + (t == 2 ? 3 : 0));
    cr_assert(!data_npy_write(names[t], &x));
  }
  json_t *all =
      ask("advise longformer:window=256 longformer:window=64 longformer:window=16 --q q.npy --k k.npy "
          "--v v.npy --error 50% --json");
  const json_t *s = setting_of(all, "longformer"), *exact = json_object_get(all, "exact");
  for (size_t i = 0; i < 3; i++)
    cr_expect(json_is_true(json_object_get(json_array_get(json_object_get(all, "settings"), i), "within")));
  expect_choice(all);
  cr_expect(number(s, "error_hi") == number(s, "error") && number(s, "certain") == number(s, "error"));
  cr_expect(number(exact, "error_hi") == number(exact, "error") && number(exact, "error") < 1e-5);
  /* Of a stride near the root of the rows' number a row reads the fewest keys. */
  all = ask("advise sparse_transformer --q q.npy --k k.npy --v v.npy --error 50% --causal --json");
  s = setting_of(all, "sparse_transformer");
  cr_expect(s && number(s, "keys_read") < 0.11, "%s: 8 read 0.13", result.out);
}

/* Of queries and keys of opposite signs relu leaves nothing: 0/0. */
Test(cli_advise, nothing_is_certain_of_nan) {
  static const char *const names[] = {"q.npy", "k.npy", "v.npy"};
  for (int t = 0; t < 3; t++) {
    data_array x = array_make(ATTN_F32, 2, (int64_t[]){6, 4});
    for (int i = 0; i < 24; i++) ((float *)x.at)[i] = t == 0 && i < 20 ? 1 : t == 1 ? -1 : (float)(i % 5);
    cr_assert(!data_npy_write(names[t], &x));
  }
  json_t *all = ask("advise linear:feature=relu --q q.npy --k k.npy --v v.npy --json");
  const json_t *s = setting_of(all, "linear");
  cr_assert(s && json_is_false(json_object_get(s, "within")));
  for (int i = 0; i < 4; i++) {
    static const char *const null[] = {"error", "error_lo", "error_hi", "certain"};
    cr_expect(json_is_null(json_object_get(s, null[i])), "%s: %g", null[i], number(s, null[i]));
  }
  const char *place = json_string_value(json_object_get(s, "nonfinite"));
  cr_expect_str_eq(place ? place : "", "output[0,0,0,0] is nan, the first of 24 that are not finite");
  command_run_good("advise linear:feature=relu --q q.npy --k k.npy --v v.npy");
  cr_expect(!strstr(result.out, "certain") && strstr(result.out, "NaN") &&
                strstr(result.out, "output[0,0,0,0] is nan"),
            "%s", result.out);
}

#define ON_MODEL                                                                                             \
  "advise --model " TEST_SOURCE_DIR "/data/bytelm --text " TEST_SOURCE_DIR "/tests/fixtures/held.txt -n 64 " \
  "streaming:sink=0,window=8 streaming:sink=0,window=16 streaming:sink=0,window=32 topk:k=4 topk:k=8 "

/* What the layers are predicted to cost together is what the model with them does, within the spread of
 * bytelm's windows, and within the budget; another budget has another assignment. */
Test(cli_advise, layers_of_a_model) {
  double predicted[2], kl[2];
  int end = 0;
  command_run_good(ON_MODEL "--kl 0.02 -o x.h5");
  const char *at[] = {strstr(result.out, "\nstreaming "), strstr(result.out, "\ntopk ")}, *head;
  cr_expect((head = strstr(result.out, "\nmethod ")) &&
                !sscanf(head, " method read %% KL predicted KL 95 %% prediction%n", &end) &&
                at[0] == head + end,
            "%s", result.out);
  for (int m = 0; m < 2; m++) {
    double read;
    cr_assert(at[m] && sscanf(strchr(at[m] + 1, ' '), "%lf %lf %lf", &read, &predicted[m], &kl[m]) == 3, "%s",
              result.out);
    cr_expect(predicted[m] > 0 && predicted[m] <= 0.02 && kl[m] < 0.04, "%s", result.out);
    cr_expect(kl[m] > predicted[m] / 3 && kl[m] < 3 * predicted[m], "%g, %g", predicted[m], kl[m]);
  }
  cr_expect(strstr(result.out, "held") && strstr(result.out, "-v 'topk:k="), "%s", result.out);
  command_run(ON_MODEL "--kl 1e-9 -o x.h5", &result);
  cr_expect(result.exit_code == 0 && strstr(result.out, "topk: no setting is close enough in any layer"),
            "%s", result.out);
}
