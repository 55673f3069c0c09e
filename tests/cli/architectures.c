/* architectures.c - attnlab capture and eval on small random models of each architecture, and on an
 * encoder. */
#include "experiments/results/row.h"
#include "tests/models/architectures.h"
#include "tests/support/command.h"
#include "tests/support/quality_sets.h"

static void begin(void) {
  architectures_begin();
  command_enter();
}
static void end(void) {
  command_leave();
  architectures_end();
}
TestSuite(cli_architectures, .init = begin, .fini = end, .timeout = 300);

enum { TOKENS = 160 };

static void write_tokens(void) {
  int64_t tokens[TOKENS];
  for (int64_t i = 0; i < TOKENS; i++) tokens[i] = (i * i + 3 * i + i / 7) % 11;
  command_write_npy("ids.npy", "{'descr': '<i8', 'fortran_order': False, 'shape': (160,), }", tokens,
                    sizeof tokens);
}

static void run(const char *format) { command_run(text_of(format, fixture_directory), &result); }

/* Against the model's own attention: what sees at least as much changes nothing, what sees less does. */
Test(cli_architectures, decoders_are_evaluated_against_their_own_attention) {
  static const char *const names[] = {"yarn",  "mistral", "qwen2",   "qwen3", "gemma2",
                                      "olmo2", "smollm3", "granite", "gpt2",  "pythia"};
  write_tokens();
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
    reference_model m = architecture_write(names[i]);
    run("eval %s --tokens ids.npy -n 16 -w 2 --task text:skip=2 -v streaming:sink=0,window=5 -o x.h5");
    cr_assert_eq(result.exit_code, 0, "%s: %s", names[i], result.err);
    quality_set set = quality_set_of("x.h5");
    cr_expect(quality_run_of(&set, "full")->kl < 1e-6, "%s: %g", names[i], quality_run_of(&set, "full")->kl);
    cr_expect(quality_run_of(&set, "null_mean_v")->kl > 1e-5, "%s", names[i]);
    cr_expect_eq(quality_run_of(&set, "streaming:sink=0,window=5")->kl < 1e-6,
                 strcmp(names[i], "mistral") == 0, "%s", names[i]);
    cr_assert(remove("x.h5") == 0 && remove("x.jsonl") == 0);
    reference_free(&m);
  }
}

Test(cli_architectures, every_decoder_is_captured) {
  const char *name;
  json_t *about;
  write_tokens();
  json_object_foreach(architecture_cases, name, about) {
    const bool turns = strcmp(name, "gpt2") != 0 && strcmp(name, "bert") != 0;
    reference_model m = architecture_write(name);
    run("capture %s --tokens ids.npy -n 16 --layer 1 -o c.h5");
    cr_assert_eq(result.exit_code, 0, "%s: %s", name, result.err);
    run("capture %s --tokens ids.npy -n 16 --layer 1 --pre-rope -o pending.h5");
    cr_assert_eq(result.exit_code, turns ? 0 : 2, "%s: %s", name, result.err);
    reference_free(&m);
  }
}

static void check_refused(const char *format, const char *says) {
  run(format);
  cr_expect(result.exit_code == 2 && command_diagnostics(&result) == 1 && strstr(result.err, says),
            "exit %d, %s", result.exit_code, result.err);
}

Test(cli_architectures, an_encoder_is_captured_and_not_evaluated) {
  data_qkv x = {0};
  reference_model m = architecture_write("bert");
  write_tokens();
  command_write_text("text", "words");
  run("capture %s --tokens ids.npy -n 32 --layer 1 -o c.h5");
  cr_assert_eq(result.exit_code, 0, "%s", result.err);
  assert_ok(data_qkv_read(&(data_reading){.in = "c.h5"}, &x));
  cr_expect(x.heads == 3 && x.kv_heads == 3 && x.n_q == 32 && x.d_qk == 4);
  data_qkv_free(&x);
  check_refused("capture %s --tokens ids.npy --layer 1 -o d.h5",
                "160 tokens, expected 1 to 32, the encoder's positions");
  check_refused("capture %s --tokens ids.npy -n 32 --layer 2 -o d.h5", "layer 2: the layers of");
  check_refused("capture %s --tokens ids.npy -n 32 --layer 1 --pre-rope -o d.h5",
                "so --pre-rope does not apply");
  check_refused("capture %s --text text --layer 1 -o d.h5", "--tokens");
  check_refused("eval %s --tokens ids.npy -n 16 -w 8 -v topk:k=2", "model_type is bert, an encoder");
  reference_free(&m);
}
