/* errors.c - bad input: the exit code, one line that names the culprit, no file written. */
#include <hdf5.h>
#include <sys/stat.h>

#include "tests/support/command.h"

typedef struct bad_case {
  const char *arguments;
  int exit_code;
  const char *says; /* on stderr */
} bad_case;

static void expect_all(const bad_case *cases, size_t count) {
  for (size_t i = 0; i < count; i++) {
    const int entries = fixture_entries();
    command_run(cases[i].arguments, &result);
    cr_expect(result.exit_code == cases[i].exit_code, "attnlab %s: exit %d instead of %d\n%s",
              cases[i].arguments, result.exit_code, cases[i].exit_code, result.err);
    cr_expect(command_diagnostics(&result) == 1, "attnlab %s: one line expected\n%s", cases[i].arguments,
              result.err);
    cr_expect(strncmp(result.err, "attnlab", 7) == 0, "attnlab %s: %s", cases[i].arguments, result.err);
    cr_expect(strstr(result.err, cases[i].says), "attnlab %s: '%s' is not in\n%s", cases[i].arguments,
              cases[i].says, result.err);
    cr_expect(result.out[0] == '\0', "attnlab %s: printed\n%s", cases[i].arguments, result.out);
    cr_expect(fixture_entries() == entries, "attnlab %s: left a file", cases[i].arguments);
  }
}

#define EXPECT_ALL(cases) expect_all(cases, sizeof cases / sizeof cases[0])

#define QKV " --q q.npy --k k.npy --v v.npy -o out.npy"

static void write_matrix(const char *name, int rows, int columns, float first) {
  float values[256];
  char dictionary[100];
  for (int i = 0; i < rows * columns; i++) values[i] = i ? (float)(i % 7) : first;
  snprintf(dictionary, sizeof dictionary, "{'descr': '<f4', 'fortran_order': False, 'shape': (%d, %d), }",
           rows, columns);
  command_write_npy(name, dictionary, values, (size_t)(rows * columns) * sizeof values[0]);
}

static void enter(void) {
  command_enter();
  write_matrix("q.npy", 8, 4, 1);
  write_matrix("k.npy", 8, 4, 2);
  write_matrix("v.npy", 8, 4, 3);
}

TestSuite(cli_errors, .init = enter, .fini = command_leave);

Test(cli_errors, command_line) {
  static const bad_case cases[] = {
      {"", 2, "command is missing"},
      {"nosuch", 2, "'nosuch'"},
      {"--nosuch", 2, "'--nosuch'"},
      {"apply --nosuch", 2, "--nosuch"},
      {"apply", 2, "SPEC"},
      {"apply tiled full" QKV, 2, "'full'"},
      {"apply tiled --q q.npy --k k.npy -o out.npy", 2, "--v"},
      {"apply tiled --q q.npy --k k.npy --v v.npy", 2, "-o"},
      {"apply tiled --in x.h5" QKV, 2, "--in"},
      {"matrix tiled --q q.npy -o out.npy", 2, "--k"},
      {"matrix tiled" QKV, 2, "--v"},
      {"pattern longformer -o out.npy", 2, "--n"},
      {"capture --text q.npy --layer 0 -o out.h5", 2, "MODEL"},
      {"capture . --layer 0 -o out.h5", 2, "--text"},
      {"capture . --text q.npy -o out.h5", 2, "--layer"},
      {"list nosuch", 2, "'nosuch'"},
      {"describe", 2, "NAME"},
      {"describe nosuch", 2, "'nosuch'"},
      {"check", 2, "RESULTS.h5"},
      {"export results.h5", 2, "--csv"},
      {"report results.h5", 2, "-o"},
      {"report -o report.html", 2, "RESULTS.h5"},
      {"merge -o out.h5", 2, "JOURNAL"},
      {"merge a.jsonl", 2, "-o"},
      {"info extra", 2, "many arguments"},
  };
  EXPECT_ALL(cases);
}

Test(cli_errors, values) {
  static const bad_case cases[] = {
      {"apply nosuch" QKV, 2, "nosuch"},
      {"apply tiled:nosuch=1" QKV, 2, "nosuch"},
      {"apply longformer:window=abc" QKV, 2, "abc"},
      {"apply longformer:window=-2" QKV, 2, "window"},
      {"apply longformer:window=99999999999999999999" QKV, 2, "window"},
      {"apply linformer:projection=nosuch" QKV, 2, "nosuch"},
      {"apply linformer:k=4 --causal" QKV, 2, "causal"},
      {"apply tiled --threads 0" QKV, 2, "--threads"},
      {"apply tiled --threads x" QKV, 2, "'x'"},
      {"apply tiled --threads 2x" QKV, 2, "'2x'"},
      {"apply tiled --scale nan" QKV, 2, "'nan'"},
      {"apply tiled --scale 1,5" QKV, 2, "'1,5'"},
      {"apply tiled --dtype f16" QKV, 2, "expected f32, f64 or bf16; half precision is read without it"},
      {"apply tiled --dtype f8" QKV, 2, "'f8': expected f32, f64 or bf16"},
      {"advise --q q.npy --k k.npy --v v.npy --error 5", 2, "write 5%, or a share below 1"},
      {"advise --q q.npy --k k.npy --v v.npy --error 5%x", 2, "expected a share, such as 5% or 0.05"},
      {"advise --q q.npy --k k.npy --v v.npy --error 100%", 2, "between 0 and 1"},
      {"apply tiled --kv-len 9" QKV, 2, "--kv-len"},
      {"apply tiled --kv-len -1" QKV, 2, "--kv-len"},
      {"apply tiled --kv-len 3,4" QKV, 2, "--kv-len"},
      {"apply tiled --kv-len 3," QKV, 2, "--kv-len"},
      {"pattern longformer --n 0 -o out.npy", 2, "--n"},
      {"pattern longformer --n 8Zi -o out.npy", 2, "'8Zi'"},
      {"pattern performer --n 8 -o out.npy", 2, "pattern"},
  };
  EXPECT_ALL(cases);
}

Test(cli_errors, environment) {
  static const bad_case isa[] = {{"apply tiled" QKV, 2, "nosuch"}, {"info", 2, "nosuch"}};
  setenv("ATTN_ISA", "nosuch", 1);
  EXPECT_ALL(isa);
  unsetenv("ATTN_ISA");
  static const bad_case plugin[] = {{"list", 2, "/nosuch.so"}};
  setenv("ATTN_PLUGIN_PATH", "/nosuch.so", 1);
  EXPECT_ALL(plugin);
  unsetenv("ATTN_PLUGIN_PATH");
  static const bad_case option[] = {{"apply tiled --plugin ./q.npy" QKV, 2, "q.npy"}};
  EXPECT_ALL(option);
}

Test(cli_errors, npy) {
  const float zeros[32] = {0};
  write_matrix("wide.npy", 8, 6, 1);
  write_matrix("long.npy", 9, 4, 1);
  write_matrix("nan.npy", 8, 4, NAN);
  command_write_npy("short.npy", "{'descr': '<f4', 'fortran_order': False, 'shape': (8, 4), }", zeros, 127);
  command_write_npy("int.npy", "{'descr': '<i4', 'fortran_order': False, 'shape': (8, 4), }", zeros, 128);
  command_write_npy("huge.npy",
                    "{'descr': '<f4', 'fortran_order': False, 'shape': (4611686018427387904, 4), }", zeros,
                    128);
  command_write_npy("deep.npy", "{'descr': '<f4', 'fortran_order': False, 'shape': (1,1,1,8,4), }", zeros,
                    128);
  command_write_npy("heads3.npy", "{'descr': '<f4', 'fortran_order': False, 'shape': (3,2,4), }", zeros, 96);
  command_write_npy("heads2.npy", "{'descr': '<f4', 'fortran_order': False, 'shape': (2,2,4), }", zeros, 64);
  command_write_text("text.npy", "not an array");
  command_write_text("empty.npy", "");
  static const bad_case cases[] = {
      {"apply tiled --q nosuch.npy --k k.npy --v v.npy -o out.npy", 74, "nosuch.npy"},
      {"apply tiled --q q.npy --k short.npy --v v.npy -o out.npy", 2, "short.npy"},
      {"apply tiled --q q.npy --k k.npy --v int.npy -o out.npy", 2, "int.npy"},
      {"apply tiled --q huge.npy --k k.npy --v v.npy -o out.npy", 2, "huge.npy"},
      {"apply tiled --q deep.npy --k k.npy --v v.npy -o out.npy", 2, "deep.npy"},
      {"apply tiled --q text.npy --k k.npy --v v.npy -o out.npy", 2, "text.npy"},
      {"apply tiled --q empty.npy --k k.npy --v v.npy -o out.npy", 2, "empty.npy"},
      {"apply tiled --q q.npy --k wide.npy --v v.npy -o out.npy", 2, "wide.npy"},
      {"apply tiled --q q.npy --k k.npy --v long.npy -o out.npy", 2, "long.npy"},
      {"apply tiled --q heads3.npy --k heads2.npy --v heads2.npy -o out.npy", 2, "heads"},
      {"apply tiled --q heads2.npy --k k.npy --v v.npy -o out.npy", 2, "k.npy"},
      {"apply tiled --check-finite --q q.npy --k nan.npy --v v.npy -o out.npy", 2, "nan.npy"},
      {"matrix tiled --check-finite --q nan.npy --k k.npy -o out.npy", 2, "nan.npy"},
      {"apply tiled --q q.npy --k k.npy --v v.npy -o nosuch/out.npy", 74, "nosuch/out.npy"},
      {"apply tiled --q . --k k.npy --v v.npy -o out.npy", 2, ".:"},
      {"apply tiled --q q.npy --k k.npy --v v.npy -o .", 2, ".:"},
      {"matrix tiled --q q.npy --k k.npy -o nosuch/out.npy", 74, "nosuch/out.npy"},
      {"pattern longformer --n 8 -o nosuch/out.npy", 74, "nosuch/out.npy"},
  };
  EXPECT_ALL(cases);
  command_run("apply tiled --q q.npy --k nan.npy --v v.npy -o out.npy", &result);
  cr_expect(result.exit_code == 0, "without --check-finite: %s", result.err);
}

static void write_hdf5(const char *name, const char *attribute, int version) {
  const hid_t file = H5Fcreate(name, H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
  const hid_t space = H5Screate(H5S_SCALAR);
  if (attribute) {
    const hid_t type = H5Tcopy(H5T_C_S1);
    H5Tset_size(type, strlen(attribute) + 1);
    const hid_t text = H5Acreate2(file, "schema", type, space, H5P_DEFAULT, H5P_DEFAULT);
    cr_assert(H5Awrite(text, type, attribute) >= 0);
    H5Aclose(text);
    H5Tclose(type);
    const hid_t number = H5Acreate2(file, "schema_version", H5T_STD_I32LE, space, H5P_DEFAULT, H5P_DEFAULT);
    cr_assert(H5Awrite(number, H5T_NATIVE_INT, &version) >= 0);
    H5Aclose(number);
  }
  H5Sclose(space);
  H5Fclose(file);
}

Test(cli_errors, tensor_files) {
  write_hdf5("empty.h5", NULL, 0);
  command_write_text("cut.h5", "\x89HDF\r\n\x1a\n");
  command_write_text("plain.txt", "neither one nor the other");
  /* A header that claims 2^40 bytes; one whose tensors overlap; one that points past the end. */
  fixture_write("long.safetensors", "\0\0\0\0\0\1\0\0{}", 10);
  command_write_safetensors("overlap.safetensors",
                            "{\"q\":{\"dtype\":\"F32\",\"shape\":[1,2,2],\"data_offsets\":[0,16]},"
                            "\"k\":{\"dtype\":\"F32\",\"shape\":[1,2,2],\"data_offsets\":[8,24]},"
                            "\"v\":{\"dtype\":\"F32\",\"shape\":[1,2,2],\"data_offsets\":[24,40]}}",
                            40);
  command_write_safetensors("beyond.safetensors",
                            "{\"q\":{\"dtype\":\"F32\",\"shape\":[1,2,2],\"data_offsets\":[0,16]},"
                            "\"k\":{\"dtype\":\"F32\",\"shape\":[1,2,2],\"data_offsets\":[16,32]},"
                            "\"v\":{\"dtype\":\"F32\",\"shape\":[1,2,2],\"data_offsets\":[32,48]}}",
                            40);
  command_write_safetensors("noq.safetensors",
                            "{\"k\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}", 4);
  static const bad_case cases[] = {
      {"apply tiled --in nosuch.h5 -o out.npy", 74, "nosuch.h5"},
      {"apply tiled --in empty.h5 -o out.npy", 2, "empty.h5"},
      {"apply tiled --in cut.h5 -o out.npy", 2, "cut.h5"},
      {"apply tiled --in plain.txt -o out.npy", 2, "plain.txt"},
      {"apply tiled --in long.safetensors -o out.npy", 2, "long.safetensors"},
      {"apply tiled --in overlap.safetensors -o out.npy", 2, "overlap.safetensors"},
      {"apply tiled --in beyond.safetensors -o out.npy", 2, "beyond.safetensors"},
      {"apply tiled --in noq.safetensors -o out.npy", 2, "noq.safetensors"},
  };
  EXPECT_ALL(cases);
}

Test(cli_errors, models) {
  mkdir("gpt2", 0777);
  command_write_text("gpt2/config.json",
                     "{\"model_type\": \"gpt2\", \"architectures\": [\"GPT2LMHeadModel\"]}");
  mkdir("broken", 0777);
  command_write_text("broken/config.json", "{");
  command_write_text("text", "abc");
  command_write_text("empty.txt", "");
  static const char key[] =
      "GGUF\3\0\0\0\0\0\0\0\0\0\0\0\1\0\0\0\0\0\0\0\24\0\0\0\0\0\0\0general.architecture"
      "\10\0\0\0\4\0\0\0\0\0\0\0gpt2";
  fixture_write("gpt2.gguf", key, sizeof key - 1);
  fixture_write("cut.gguf", key, sizeof key - 2);
  static const bad_case cases[] = {
      {"capture gpt2.gguf --text text --layer 0 -o out.h5", 2, "general.architecture is gpt2"},
      {"capture cut.gguf --text text --layer 0 -o out.h5", 2, "cut.gguf: byte 64: the value of key 0"},
      {"capture text --text text --layer 0 -o out.h5", 2, "text: not a GGUF file"},
      {"capture nosuch --text text --layer 0 -o out.h5", 2, "nosuch"},
      {"capture " TEST_SOURCE_DIR "/data/bytelm --text text --layer 0 --bos 256 -o out.h5", 2, "bos '256'"},
      {"capture " TEST_SOURCE_DIR "/data/bytelm --text empty.txt --layer 0 -o out.h5", 2, "empty.txt"},
      {"capture gpt2 --text text --layer 0 -o out.h5", 2, "gpt2"},
      {"capture broken --text text --layer 0 -o out.h5", 2, "broken"},
      {"capture " TEST_SOURCE_DIR "/data/bytelm --text nosuch --layer 0 -o out.h5", 74, "nosuch"},
      {"capture " TEST_SOURCE_DIR "/data/bytelm --text text --layer 4 -o out.h5", 2, "layer"},
      {"capture " TEST_SOURCE_DIR "/data/bytelm --text text --layer 0 --n 4 -o out.h5", 2, "text"},
      {"capture " TEST_SOURCE_DIR "/data/bytelm --text text --layer 0 -o nosuch/out.h5", 74, "nosuch/out.h5"},
  };
  EXPECT_ALL(cases);
}

Test(cli_errors, results_files) {
  write_hdf5("newer.h5", "attnlab-results", 99);
  write_hdf5("other.h5", "something-else", 1);
  write_hdf5("plain.h5", NULL, 0);
  command_write_text("bad.jsonl", "{\"schema\": \"attnlab-journal\"}\n");
  command_write_text("text.h5", "text");
  static const bad_case cases[] = {
      {"check nosuch.h5", 74, "nosuch.h5"},
      {"check newer.h5", 2, "newer.h5"},
      {"check other.h5", 2, "other.h5"},
      {"check plain.h5", 2, "plain.h5"},
      {"check text.h5", 2, "text.h5"},
      {"export --csv newer.h5", 2, "newer.h5"},
      {"report newer.h5 -o report.html", 2, "newer.h5"},
      {"merge -o out.h5 bad.jsonl", 2, "bad.jsonl:1"},
      {"merge -o out.h5 nosuch.jsonl", 74, "nosuch.jsonl"},
  };
  EXPECT_ALL(cases);
}

#define HEAD "schema: 1\ngrid: {n: [16], heads: [1], d: [4]}\n"

Test(cli_errors, configurations) {
  command_write_text("key.yaml", HEAD "variants: [full]\nnosuch: 1\ndatasets: [gaussian]\n");
  command_write_text("variant.yaml", HEAD "variants: [full, nosuch]\ndatasets: [gaussian]\n");
  command_write_text("parameter.yaml", HEAD "variants:\n  - tiled: {nosuch: [1]}\ndatasets: [gaussian]\n");
  command_write_text("range.yaml", HEAD "variants:\n  - longformer: {window: [-2]}\ndatasets: [gaussian]\n");
  command_write_text("dataset.yaml", HEAD "variants: [full]\ndatasets: [nosuch]\n");
  command_write_text("double.yaml", HEAD "variants: [full]\nvariants: [tiled]\ndatasets: [gaussian]\n");
  command_write_text("syntax.yaml", HEAD "variants: [full\n");
  command_write_text("tab.yaml", "schema: 1\ngrid:\n\tn: 16\nvariants: [full]\ndatasets: [gaussian]\n");
  command_write_text("number.yaml", "schema: 1\ngrid: {n: [x]}\nvariants: [full]\ndatasets: [gaussian]\n");
  command_write_text("newer.yaml", "schema: 99\ngrid: {n: [16]}\nvariants: [full]\ndatasets: [gaussian]\n");
  command_write_text("good.yaml", HEAD "variants: [full]\ndatasets: [gaussian]\n");
  static const bad_case cases[] = {
      {"run nosuch.yaml -o out.h5", 74, "nosuch.yaml"},
      {"run key.yaml -o out.h5", 2, "key.yaml:4:1"},
      {"run variant.yaml -o out.h5", 2, "variant.yaml:3:18"},
      {"run parameter.yaml -o out.h5", 2, "parameter.yaml:4:"},
      {"run range.yaml -o out.h5", 2, "range.yaml:4:"},
      {"run dataset.yaml -o out.h5", 2, "dataset.yaml:4:12"},
      {"run double.yaml -o out.h5", 2, "double.yaml:4:1"},
      {"run syntax.yaml -o out.h5", 2, "syntax.yaml:"},
      {"run tab.yaml -o out.h5", 2, "tab.yaml:3:1: a tab in the indentation; indent with spaces"},
      {"run number.yaml -o out.h5", 2, "number.yaml:2:"},
      {"run newer.yaml -o out.h5", 2, "newer.yaml:1:"},
      {"run good.yaml -o nosuch/out.h5", 74, "nosuch/out"},
      {"run good.yaml", 2, "-o"},
      {"run good.yaml -o out.h5 --set grid.nosuch=1", 2, "nosuch"},
      {"run good.yaml -o out.h5 --shard 2/2", 2, "--shard '2/2'"},
  };
  EXPECT_ALL(cases);
}
