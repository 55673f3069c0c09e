/* ring.c - attnlab ring: exact attention of one sequence over several processes, measured and judged, or
 * modelled. */
#include "experiments/commands/commands.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "experiments/commands/cli.h"
#include "experiments/ring/ring_model.h"
#include "experiments/ring/spread.h"

typedef struct arguments {
  spread_options options;
  value_ints n, nodes;
  ring_machine machine;
  int64_t seed;
  bool model;
  const char *for_model, *for_made; /* an option that was given and that only the model uses */
} arguments;

static const cli_option options[] = {
    {"n", 'n', "N",
     "Positions (default 4Ki; of a file, all); with --model a list (default 1, 10 and 100 million)",
     CLI_READ},
    {"heads", 0, "N", "Query heads (default 8)", CLI_READ},
    {"kv-heads", 0, "N", "Key heads (default: as many)", CLI_READ},
    {"d", 'd', "D", "Width of a head (default 64)", CLI_READ},
    {"causal", 0, NULL, "Query i sees key j iff j <= i", CLI_SET(CLI_FLAG, options.causal)},
    {"dtype", 0, "f32|f64", "Precision (default: the file's, else f32)", CLI_READ},
    {"seed", 0, "N", "Seed of the Gaussian data and of the rows compared (default 0)",
     CLI_RANGE(seed, 0, INT64_MAX)},
    {"in", 0, "FILE", "Queries, keys and values from the tensors q, k, v of an HDF5 or safetensors file",
     CLI_SET(CLI_TEXT, options.in)},
    {"threads", 0, "N", "OpenMP threads of a process", CLI_SET(CLI_THREADS, options.threads)},
    {"model", 0, NULL, "Compute nothing; predict the time, for lists of --n and --nodes",
     CLI_SET(CLI_FLAG, model)},
    {"nodes", 0, "LIST", "Numbers of nodes (default 8:1024:x2)", CLI_READ},
    {"link", 0, "BYTES/S", "Bandwidth of a node in each direction (default 12.5e9: 100 Gbit/s)", CLI_READ},
    {"rate", 0, "FLOP/S", "Speed of attention on one node (default 1e12: two server processors, fp32)",
     CLI_READ},
    {"latency", 0, "S", "Latency of a message, seconds (default 5e-6)", CLI_READ},
    {NULL, 0, NULL, "variant", CLI_READ},
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
    cli_fail(state);
  tree_free(tree);
}

static double read_positive(struct argp_state *state, const char *name, const char *text, bool or_zero) {
  const double x = cli_real(state, name, text);
  if (!(x > 0 || (or_zero && x == 0))) argp_error(state, "%s '%s': expected a positive number", name, text);
  return x;
}

/* Options that only computing has. */
static void read_made(struct argp_state *state, arguments *a, const char *option, const char *text) {
  data_request *r = &a->options.request;
  a->for_made = option;
  if (strcmp(option, "--heads") == 0)
    r->heads = cli_int(state, option, text, 1, 1 << 16);
  else if (strcmp(option, "--kv-heads") == 0)
    r->kv_heads = cli_int(state, option, text, 1, 1 << 16);
  else
    r->d_qk = r->d_v = cli_int(state, option, text, 1, 1 << 16);
}

/* Options that only the model has. */
static void read_modelled(struct argp_state *state, arguments *a, const char *option, const char *text) {
  a->for_model = option;
  if (strcmp(option, "--nodes") == 0)
    read_list(state, option, text, INT64_C(1) << 24, &a->nodes);
  else if (strcmp(option, "--link") == 0)
    a->machine.link = read_positive(state, option, text, false);
  else if (strcmp(option, "--rate") == 0)
    a->machine.rate = read_positive(state, option, text, false);
  else
    a->machine.latency = read_positive(state, option, text, true);
}

static void read_other(struct argp_state *state, void *input, const char *option, char *text) {
  arguments *a = input;
  if (!option) {
    a->options.spec = text;
  } else if (strcmp(option, "--n") == 0) {
    read_list(state, option, text, INT64_C(1) << 40, &a->n);
  } else if (strcmp(option, "--dtype") == 0) {
    a->options.request.dtype = cli_dtype(state, option, text, "f32 or f64");
    a->options.has_dtype = true;
  } else if (strcmp(option, "--heads") == 0 || strcmp(option, "--kv-heads") == 0 ||
             strcmp(option, "--d") == 0) {
    read_made(state, a, option, text);
  } else {
    read_modelled(state, a, option, text);
  }
}

static void complete(struct argp_state *state, void *input) {
  arguments *a = input;
  data_request *r = &a->options.request;
  r->seed = (uint64_t)a->seed;
  if (!a->model && a->for_model) argp_error(state, "%s: only with --model", a->for_model);
  if (!a->model && a->n.count > 1) argp_error(state, "--n: a list only with --model");
  if (!a->model && a->n.count && a->n.items[0] > INT64_C(1) << 30)
    argp_error(state, "--n %" PRId64 ": more than 2^30 only with --model", a->n.items[0]);
  const char *measured = cli_given(state, (const char *const[]){"threads", "seed", NULL});
  if (a->model && measured) argp_error(state, "--model computes nothing: it takes no --%s", measured);
  if (a->model && a->options.spec)
    argp_error(state, "%s: excludes --model, whose attention is exact", a->options.spec);
  if (!a->options.spec) a->options.spec = "tiled";
  if (a->options.in && a->model) argp_error(state, "--in %s: excludes --model", a->options.in);
  if (a->options.in && a->for_made) argp_error(state, "--in %s: excludes %s", a->options.in, a->for_made);
  if (r->kv_heads == 0) r->kv_heads = r->heads;
  if (r->heads % r->kv_heads) argp_error(state, "--kv-heads: expected a divisor of --heads");
  a->options.n = a->n.count ? a->n.items[0] : 0;
  r->n_q = r->n_kv = a->n.count ? a->n.items[0] : 4096;
  if (a->model && !a->n.count) read_list(state, "--n", "1000000, 10000000, 100000000", INT64_MAX, &a->n);
  if (!a->nodes.count) read_list(state, "--nodes", "8:1024:x2", INT64_MAX, &a->nodes);
}

static const cli_command parser = {
    .usage = "[SPEC]",
    .options = options,
    .read = read_other,
    .complete = complete,
    .doc = "Computes exact attention of one sequence over 2, 4, 8 ... and all processes of mpirun, compares "
           "it with one process and with fp64 within bounds of rounding, and times it; with --model, "
           "predicts its time.\v"
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
          "--preset release (--model needs none)\n",
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
  arguments a = {.options = {.request = {.batch = 1, .heads = 8, .d_qk = 64, .d_v = 64}},
                 .machine = {.rate = 1e12, .link = 12.5e9, .latency = 5e-6}};
  cli_parse(&parser, argc, argv, &a);
  const int code = a.model ? print_model(argv[0], &a) : measure(argv[0], &a);
  value_ints_free(&a.n);
  value_ints_free(&a.nodes);
  return code;
}
