/* ring.c - attnlab ring: exact attention of one sequence over several processes, measured and judged, or
 * modelled. */
#include "experiments/commands/commands.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "experiments/commands/cli.h"
#include "experiments/ring/model.h"
#include "experiments/ring/spread.h"

typedef struct arguments {
  spread_options options;
  value_ints n, nodes;
  ring_machine machine;
  bool model;
  const char *for_model, *for_made; /* an option that was given and that only the model uses */
} arguments;

enum {
  KEY_HEADS = 1000,
  KEY_KV_HEADS,
  KEY_CAUSAL,
  KEY_DTYPE,
  KEY_SEED,
  KEY_IN,
  KEY_THREADS,
  KEY_MODEL,
  KEY_NODES,
  KEY_LINK,
  KEY_RATE,
  KEY_LATENCY
};

static const struct argp_option options[] = {
    {"n", 'n', "N", 0,
     "Positions (default 4Ki; of a file, all); with --model a list (default 1, 10 and 100 million)", 0},
    {"heads", KEY_HEADS, "N", 0, "Query heads (default 8)", 0},
    {"kv-heads", KEY_KV_HEADS, "N", 0, "Key heads (default: as many)", 0},
    {"d", 'd', "D", 0, "Width of a head (default 64)", 0},
    {"causal", KEY_CAUSAL, NULL, 0, "Query i sees key j iff j <= i", 0},
    {"dtype", KEY_DTYPE, "f32|f64", 0, "Precision (default: the file's, else f32)", 0},
    {"seed", KEY_SEED, "N", 0,
     "Of Gaussian queries, keys and values, and of the rows that are compared (default 0)", 0},
    {"in", KEY_IN, "FILE", 0,
     "Queries, keys and values from the tensors q, k, v of an HDF5 or safetensors file", 0},
    {"threads", KEY_THREADS, "N", 0, "OpenMP threads of a process", 0},
    {"model", KEY_MODEL, NULL, 0,
     "Compute nothing: what it would take by the model, for lists of --n and --nodes", 0},
    {"nodes", KEY_NODES, "LIST", 0, "Numbers of nodes (default 8:1024:x2)", 0},
    {"link", KEY_LINK, "BYTES/S", 0,
     "What a node sends while it receives as much (default 12.5e9: 100 Gbit/s)", 0},
    {"rate", KEY_RATE, "FLOP/S", 0, "Of attention on one node (default 1e12: two server processors, fp32)",
     0},
    {"latency", KEY_LATENCY, "S", 0, "Before the first byte of a message (default 5e-6)", 0},
    {0}};

/* Numbers and ranges, as in a configuration. */
static void read_list(struct argp_state *state, const char *name, const char *text, int64_t max,
                      value_ints *out) {
  char list[256];
  tree_node *tree = NULL;
  const int length = snprintf(list, sizeof list, "[%s]", text);
  if (length >= (int)sizeof list)
    argp_error(state, "%s: a list of at most %zu characters", name, sizeof list - 3);
  value_ints_free(out);
  if (tree_parse(name, list, strlen(list), &tree) || values_read_ints(tree, name, 1, max, out))
    argp_error(state, "%s", attn_last_error());
  tree_free(tree);
}

static double read_positive(struct argp_state *state, const char *name, const char *text, bool or_zero) {
  const double x = cli_real(state, name, text);
  if (!(x > 0 || (or_zero && x == 0))) argp_error(state, "%s '%s': expected a positive number", name, text);
  return x;
}

static error_t parse_model(int key, char *text, struct argp_state *state) {
  arguments *a = state->input;
  switch (key) {
  case KEY_NODES:
    read_list(state, a->for_model = "--nodes", text, INT64_C(1) << 24, &a->nodes);
    return 0;
  case KEY_LINK:
    a->machine.link = read_positive(state, a->for_model = "--link", text, false);
    return 0;
  case KEY_RATE:
    a->machine.rate = read_positive(state, a->for_model = "--rate", text, false);
    return 0;
  case KEY_LATENCY:
    a->machine.latency = read_positive(state, a->for_model = "--latency", text, true);
    return 0;
  default:
    return ARGP_ERR_UNKNOWN;
  }
}

static void complete(arguments *a, struct argp_state *state) {
  data_request *r = &a->options.request;
  if (!a->model && a->for_model) argp_error(state, "%s: only with --model", a->for_model);
  if (!a->model && a->n.count > 1) argp_error(state, "--n: a list only with --model");
  if (!a->model && a->n.count && a->n.items[0] > INT64_C(1) << 30)
    argp_error(state, "--n %" PRId64 ": more than 2^30 only with --model", a->n.items[0]);
  if (a->options.in && a->model) argp_error(state, "--in %s: excludes --model", a->options.in);
  if (a->options.in && a->for_made) argp_error(state, "--in %s: excludes %s", a->options.in, a->for_made);
  if (r->kv_heads == 0) r->kv_heads = r->heads;
  if (r->heads % r->kv_heads) argp_error(state, "--kv-heads: expected a divisor of --heads");
  a->options.n = a->n.count ? a->n.items[0] : 0;
  r->n_q = r->n_kv = a->n.count ? a->n.items[0] : 4096;
  if (a->model && !a->n.count) read_list(state, "--n", "1000000, 10000000, 100000000", INT64_MAX, &a->n);
  if (!a->nodes.count) read_list(state, "--nodes", "8:1024:x2", INT64_MAX, &a->nodes);
}

static error_t parse(int key, char *text, struct argp_state *state) {
  arguments *a = state->input;
  data_request *r = &a->options.request;
  switch (key) {
  case 'n':
    read_list(state, "--n", text, INT64_C(1) << 40, &a->n);
    break;
  case KEY_HEADS:
    r->heads = cli_int(state, a->for_made = "--heads", text, 1, 1 << 16);
    break;
  case KEY_KV_HEADS:
    r->kv_heads = cli_int(state, a->for_made = "--kv-heads", text, 1, 1 << 16);
    break;
  case 'd':
    r->d_qk = r->d_v = cli_int(state, a->for_made = "--d", text, 1, 1 << 16);
    break;
  case KEY_CAUSAL:
    a->options.causal = true;
    break;
  case KEY_DTYPE:
    if (strcmp(text, "f32") != 0 && strcmp(text, "f64") != 0)
      argp_error(state, "--dtype '%s': expected f32 or f64", text);
    r->dtype = strcmp(text, "f64") == 0 ? ATTN_F64 : ATTN_F32;
    a->options.has_dtype = true;
    break;
  case KEY_SEED:
    r->seed = (uint64_t)cli_int(state, "--seed", text, 0, INT64_MAX);
    break;
  case KEY_IN:
    a->options.in = text;
    break;
  case KEY_THREADS:
    a->options.threads = (int)cli_int(state, "--threads", text, 1, 4096);
    break;
  case KEY_MODEL:
    a->model = true;
    break;
  case ARGP_KEY_ARG:
    a->options.spec = text;
    break;
  case ARGP_KEY_END:
    complete(a, state);
    break;
  default:
    return parse_model(key, text, state);
  }
  return 0;
}

static const struct argp parser = {
    .options = options,
    .parser = parse,
    .args_doc = "[SPEC]",
    .doc = "Exact attention of one sequence spread over the processes of mpirun: computed by 2, 4, 8 ... and "
           "all of "
           "them, "
           "compared with one process and with fp64 within bounds of rounding, and timed; or, with --model, "
           "what it "
           "would "
           "take.\v"
           "SPEC is an exact variant with parameters (default tiled). Exit code 1: a bound is violated.\n\n"
           "  mpirun -n 4 attnlab ring --n 16Ki --causal\n"
           "  attnlab ring --model --n 1000000,10000000 --nodes 8:1024:x2 --link 25e9 --rate 5e13"};

#ifdef ATTN_MPI
static int measure(const char *name, const arguments *a) { return spread_command(name, &a->options); }
#else
static int measure(const char *name, const arguments *a) {
  (void)a;
  fprintf(stderr,
          "%s: this program was built without MPI: cmake --preset release -DATTN_MPI=ON && cmake --build "
          "--preset "
          "release (--model needs none)\n",
          name);
  return EXIT_USAGE;
}
#endif

static int print_model(const char *name, const arguments *a) {
  const data_request *r = &a->options.request;
  attn_problem p = attn_problem_make(1, r->heads, 1, r->d_qk);
  p.kv_heads = r->kv_heads;
  p.causal = a->options.causal;
  p.dtype = r->dtype;
  return cli_report(name, ring_model_print(&p, &a->n, &a->nodes, &a->machine));
}

int cmd_ring(int argc, char **argv) {
  arguments a = {.options = {.spec = "tiled", .request = {.batch = 1, .heads = 8, .d_qk = 64, .d_v = 64}},
                 .machine = {.rate = 1e12, .link = 12.5e9, .latency = 5e-6}};
  argp_parse(&parser, argc, argv, 0, NULL, &a);
  const int code = a.model ? print_model(argv[0], &a) : measure(argv[0], &a);
  value_ints_free(&a.n);
  value_ints_free(&a.nodes);
  return code;
}
