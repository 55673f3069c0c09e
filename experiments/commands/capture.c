/* capture.c - attnlab capture: Q, K and V of one layer of a trained model on a text. */
#include "experiments/commands/commands.h"

#include <inttypes.h>
#include <stdio.h>

#include "data/data.h"
#include "experiments/commands/cli.h"
#include "experiments/support/escape.h"

typedef data_capture_request arguments;

static const cli_option options[] = {
    {NULL, 0, NULL, "model", CLI_NEED(ids.model, "MODEL")},
    {"text", 0, "FILE",
     "Feed this text, encoded by the model's tokenizer, or as bytes if those are its vocabulary",
     CLI_SET(CLI_TEXT, ids.text)},
    {"tokens", 0, "FILE", "Feed these token ids: an int32 or int64 .npy of any rank, flattened in C order",
     CLI_SET(CLI_TEXT, ids.tokens)},
    {"bos", 0, "ID|none",
     "Begin with this token, and every window; by default a text that a tokenizer encodes begins with "
     "the model's, bytes and --tokens stay as they are",
     CLI_SET(CLI_TEXT, ids.bos)},
    {"layer", 0, "L", "The layer, counted from 0", CLI_INT, offsetof(arguments, layer), 0, INT32_MAX,
     "--layer L"},
    {"n", 'n', "N", "Use the first N positions (default: all)", CLI_RANGE(n, 1, INT32_MAX)},
    {"pre-rope", 0, NULL, "Take queries and keys before the rotary embedding; no variant reads them yet",
     CLI_SET(CLI_FLAG, pre_rope)},
    {"output", 'o', "FILE", "HDF5 file with the datasets q, k, v [heads,n,d] f4",
     CLI_NEED(output, "-o FILE")},
    {0}};

static void complete(struct argp_state *state, void *input) {
  const data_capture_request *r = input;
  if (!r->ids.text == !r->ids.tokens) argp_error(state, "expected either --text FILE or --tokens FILE");
}

static const cli_command parser = {
    .usage = "MODEL",
    .options = options,
    .complete = complete,
    .doc =
        "Saves queries, keys and values of one layer of a language model on a text.\v"
        "MODEL is a GGUF file (F32, F16, BF16, F64, the Q formats of 2 to 8 bits, IQ2_XXS, IQ4_NL, IQ4_XS, "
        "MXFP4, "
        "TQ1_0, TQ2_0), the first of several, or a "
        "directory in Hugging Face layout (config.json and safetensors; tokenizer.json for a text): Llama, "
        "Mistral, Qwen2, Qwen3, Gemma 2 and 3, OLMo 2, SmolLM 3, Phi-3, Granite, StableLM, GPT-2, GPT-NeoX, "
        "or, "
        "as a directory and with --tokens, an encoder, BERT or ModernBERT, whose attention is not causal.\n\n"
        "Queries and keys are taken after the rotary embedding. With --pre-rope they are taken before it, "
        "the attribute rope is `pending', and rope_theta, rotary_dim and first_position say how to rotate "
        "them, or "
        "rope_frequencies and rope_attention_factor where a model's positions are stretched. "
        "Beyond the model's trained context the "
        "text is captured in independent windows, which an attribute records.\n\n"
        "  attnlab capture data/bytelm --text LICENSE --layer 3 --n 8Ki -o qkv.h5"};

int cmd_capture(int argc, char **argv) {
  data_capture_request request = {0};
  data_qkv x = {0};
  cli_parse(&parser, argc, argv, &request);
  const attn_status status = data_capture(&request, &x);
  if (!status) {
    fprintf(stderr, "%s: ", argv[0]);
    escape_put(stderr, request.output);
    fprintf(stderr,
            ": q [%" PRId64 ",%" PRId64 ",%" PRId64 "], k and v [%" PRId64 ",%" PRId64 ",%" PRId64
            "], f32, layer %" PRId64 "\n",
            x.heads, x.n_q, x.d_qk, x.kv_heads, x.n_kv, x.d_v, request.layer);
  }
  data_qkv_free(&x);
  return cli_report(argv[0], status);
}
