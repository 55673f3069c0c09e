/* capture.c - attnlab capture: Q, K (after rotation) and V of one layer of a trained model on a text. */
#include "experiments/commands/commands.h"

#include "data/data.h"
#include "experiments/commands/cli.h"

enum { KEY_TEXT = 256, KEY_TOKENS, KEY_LAYER };

static const struct argp_option options[] = {
    {"text", KEY_TEXT, "FILE", 0, "Feed the bytes of this file (models whose vocabulary is the 256 bytes)",
     0},
    {"tokens", KEY_TOKENS, "FILE", 0, "Feed these token ids, an int64 .npy", 0},
    {"layer", KEY_LAYER, "L", 0, "The layer, counted from 0", 0},
    {"n", 'n', "N", 0, "Use the first N positions; all by default", 0},
    {"output", 'o', "FILE", 0, "HDF5 file with the datasets q, k, v [heads,n,d] f4", 0},
    {0}};

static error_t parse(int key, char *arg, struct argp_state *state) {
  data_capture_request *r = state->input;
  switch (key) {
  case KEY_TEXT:
    r->text = arg;
    break;
  case KEY_TOKENS:
    r->tokens = arg;
    break;
  case KEY_LAYER:
    r->layer = cli_int(state, "--layer", arg, 0, INT32_MAX);
    break;
  case 'n':
    r->n = cli_int(state, "--n", arg, 1, INT32_MAX);
    break;
  case 'o':
    r->output = arg;
    break;
  case ARGP_KEY_INIT:
    r->layer = -1;
    break;
  case ARGP_KEY_ARG:
    cli_argument(state, &r->model, "model directory", arg);
    break;
  case ARGP_KEY_END:
    cli_require(state, r->model, "MODEL_DIR");
    if (!r->text == !r->tokens) argp_error(state, "one of --text FILE and --tokens FILE is expected");
    if (r->layer < 0) argp_error(state, "--layer L is missing");
    cli_require(state, r->output, "-o FILE");
    break;
  default:
    return ARGP_ERR_UNKNOWN;
  }
  return 0;
}

static const struct argp parser = {
    .options = options,
    .parser = parse,
    .args_doc = "MODEL_DIR",
    .doc = "Queries, keys and values of one layer of a Llama-architecture model (Hugging Face layout) on a "
           "text.\v"
           "Queries and keys are taken after the rotary embedding. Beyond the model's trained context the "
           "text is "
           "captured "
           "in independent windows; an attribute says so.\n\n"
           "  attnlab capture data/bytelm --text LICENSE --layer 3 --n 8Ki -o qkv.h5"};

int cmd_capture(int argc, char **argv) {
  data_capture_request request = {0};
  argp_parse(&parser, argc, argv, 0, NULL, &request);
  return cli_report(argv[0], data_capture(&request));
}
