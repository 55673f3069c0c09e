/* coin.c - a foreign weighted selector that states a false law (plugins/planted_coin.c): attnlab test reports
 * it, as do a sweep and attnlab check of its results. */
#include "tests/support/command.h"

TestSuite(cli_coin, .init = command_enter, .fini = command_leave, .timeout = 300);

#define PLUGIN " --plugin " TEST_BINARY_DIR "/tests/plugins/planted_coin.so"

/* seen: what attnlab check says. slow: attnlab test takes its time over it. early: the grid is not laid out,
 * and the sweep says why. */
static const struct {
  const char *spec, *seen;
  bool slow, early;
} lies[] = {
    {"streaming:window=8+planted_coin:fault=many", "has more than max_runs runs", false, false},
    {"streaming:window=8+planted_coin:fault=again", "a term before it owns", false, false},
    {"planted_coin:fault=delta", "selector.delta = 2", false, true},
    {"planted_coin:fault=order", "a query that does not exist", false, false},
    {"planted_coin:fault=frozen", "LAW-1", false, false},
    {"planted_coin:fault=law_nan", "LAW-4", true, false},
    {"planted_coin:fault=law_wide", "LAW-1", true, false},
    {"planted_coin:fault=weight_huge", "are NaN, although the inputs are finite", true, false},
    {"planted_coin:fault=other", "LAW-4", true, false},
    {"planted_coin:fault=law_sure", "LAW-5", true, false},
    {"planted_coin:fault=order_row", "LAW-1", true, false},
};

static void expect(const char *arguments, bool good, const char *told) {
  command_run(arguments, &result);
  cr_expect_eq(result.exit_code == 0, good, "%s: exit %d\n%s%s", arguments, result.exit_code, result.out,
               result.err);
  cr_expect(strstr(result.out, told) || strstr(result.err, told), "%s: '%s' is missing from\n%s%s", arguments,
            told, result.out, result.err);
}

Test(cli_coin, a_sound_coin_passes) {
  expect("test streaming:window=8+planted_coin" PLUGIN, true, ": 0 of ");
}

Test(cli_coin, lies_are_told_by_test) {
  for (size_t i = 0; i < sizeof lies / sizeof *lies; i++) {
    char arguments[400];
    if (lies[i].slow) continue;
    snprintf(arguments, sizeof arguments, "test %s --problems fixed" PLUGIN, lies[i].spec);
    expect(arguments, false, lies[i].seen);
  }
}

Test(cli_coin, lies_are_told_by_a_sweep) {
  for (size_t i = 0; i < sizeof lies / sizeof *lies; i++) {
    char text[400], arguments[400];
    snprintf(text, sizeof text,
             "schema: 1\ngrid: {n: 128, d: 16, heads: 1, causal: yes, seed: [0, 1]}\nvariants: ['%s']\n"
             "datasets: [gaussian]\ntiming: {min_time: 0.001, max_time: 0.002, warmup: 0.0002}\n",
             lies[i].spec);
    command_write_text("x.yaml", text);
    snprintf(arguments, sizeof arguments, "run x.yaml -o %zu.h5" PLUGIN, i);
    expect(arguments, false, lies[i].early ? lies[i].seen : "5 runs, ");
    if (lies[i].early) continue;
    snprintf(arguments, sizeof arguments, "check %zu.h5", i);
    expect(arguments, false, lies[i].seen);
  }
}
