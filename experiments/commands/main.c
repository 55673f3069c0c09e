/* main.c - the attnlab command: one table of subcommands, and what all of them need done first. */
#include "experiments/commands/commands.h"

#include <argp.h>
#include <gsl/gsl_errno.h>
#include <locale.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "attn_tools.h"
#include "data/data.h"
#include "experiments/commands/cli.h"
#include "experiments/grid/config_keys.h"
#include "experiments/quality/configuration.h"
#include "experiments/runner/provenance.h"
#include "experiments/support/point.h"

typedef struct subcommand {
  const char *name, *help; /* help: one line; NULL hides the command from users */
  int (*function)(int argc, char **argv);
  bool outlives_pipes; /* a closed pipe is an error to handle: the journal must be kept */
} subcommand;

static const subcommand subcommands[] = {
#define COMMAND(name, help, outlives_pipes) {#name, help, cmd_##name, outlives_pipes},
#include "experiments/commands/commands.def"
};

enum { SUBCOMMANDS = sizeof subcommands / sizeof subcommands[0] };

static void print_help(void) {
  puts("Usage: attnlab COMMAND [ARGUMENT...]\n"
       "A laboratory for efficient attention on long sequences.\n");
  for (int i = 0; i < SUBCOMMANDS; i++)
    if (subcommands[i].help) printf("  %-10s %s\n", subcommands[i].name, subcommands[i].help);
  puts("\n`attnlab help COMMAND' explains one, `attnlab help config' the keys of an experiment. A variant is "
       "written with its parameters:\n"
       "  attnlab apply longformer:window=256,global=4 --in qkv.h5 -o out.npy\n"
       "\nEnvironment:\n"
       "  ATTN_ISA          instruction set to use (see `attnlab info')\n"
       "  ATTN_PLUGIN_PATH  colon-separated shared objects with further variants\n"
       "  OMP_NUM_THREADS   threads, without --threads");
}

static int usage_error(const char *what, const char *name) {
  attn_nearest near = {.name = name};
  for (int i = 0; name && i < SUBCOMMANDS; i++)
    if (subcommands[i].help) attn_nearest_try(&near, subcommands[i].name);
  fprintf(stderr, "attnlab: %s%s%s%s%s\nTry `attnlab --help' for the list of commands.\n", what,
          name ? " '" : "", name ? name : "", name ? "'" : "", attn_nearest_hint(&near));
  return EXIT_USAGE;
}

static bool wants_help(int argc, char **argv) {
  for (int i = 1; i < argc; i++)
    if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-?") == 0 || strcmp(argv[i], "--usage") == 0)
      return true;
  return false;
}

/* A thread of OpenMP that waits for work spins for some milliseconds with GCC's presets: two processes on the
 * same cores then take three to five times as long as one alone. This is some 50 microseconds. OpenMP reads
 * it when it is loaded, so that the program begins again; workers inherit it, and provenance records it. */
static void wait_briefly(char **argv) {
  char *program = NULL;
  if (getenv("OMP_WAIT_POLICY") || getenv("GOMP_SPINCOUNT") || provenance_program(&program)) return;
  if (!setenv("GOMP_SPINCOUNT", "2000", 0)) execv(program, argv);
  free(program);
}

static void warn_of_processor(void) {
  for (const char *const *isa = attn_isa_wrong(); *isa; isa++)
    fprintf(stderr,
            "attnlab: warning: this processor's %s does not compute what its manual says; %s is used\n", *isa,
            *attn_isa_list());
}

static int run_subcommand(const subcommand *command, int argc, char **argv) {
  char title[32];
  snprintf(title, sizeof title, "attnlab %s", command->name);
  const attn_status status = attn_plugin_load_path(getenv("ATTN_PLUGIN_PATH"));
  if (status) return cli_report(title, status);
  if (command->function != cmd_worker) warn_of_processor();
  /* argp breaks the "Try ..." line of a diagnostic at the margin of the help text. A wider margin keeps it
   * on one line. */
  if (!wants_help(argc, argv) && command->function != cmd_help) setenv("ARGP_HELP_FMT", "rmargin=120", 0);
  if (command->outlives_pipes) signal(SIGPIPE, SIG_IGN);
  argv[0] = title;
  return cli_close_stdout(title, command->function(argc, argv));
}

static const subcommand *find_subcommand(const char *name) {
  for (int i = 0; i < SUBCOMMANDS; i++)
    if (strcmp(name, subcommands[i].name) == 0) return &subcommands[i];
  return NULL;
}

static void print_config_help(void) {
  puts("An experiment is a YAML file for `attnlab run'. Its keys, defaults and meanings:\n"
       "a value may be a list, and numbers a range: 512:8Ki:x2 (doubling), 0:4, 0.1:0.5:0.1. Sizes may be\n"
       "written 16384, 16k or 16Ki; yes and no also true and false.\n");
  config_print_help(stdout);
  puts("\nAn evaluation of a model has schema, variants and, in place of the rest:\n\neval");
  quality_configuration_print_help(stdout);
  puts("\n  schema: 1\n  grid: {n: [512:8Ki:x2], causal: yes}\n  variants: [tiled, longformer: {window: "
       "[128, 256]}]\n"
       "  datasets: [gaussian, captured: {file: qkv.h5}]");
}

int cmd_help(int argc, char **argv) {
  char asks[] = "--help", *arguments[] = {NULL, asks, NULL};
  if (argc > 2) return usage_error("help takes one name, not also", argv[2]);
  const subcommand *of = argc > 1 ? find_subcommand(argv[1]) : NULL;
  if (of && of->function != cmd_help) return run_subcommand(of, 2, arguments);
  if (argc > 1 && strcmp(argv[1], "config") == 0)
    print_config_help();
  else if (of || argc < 2 || strcmp(argv[1], asks) == 0)
    print_help();
  else
    return usage_error("unknown command", argv[1]);
  return 0;
}

int main(int argc, char **argv) {
  wait_briefly(argv);
  /* Every number is read and written with a decimal point, even if a library sets another locale. */
  setlocale(LC_ALL, "C");
  point_fix();
  gsl_set_error_handler_off();
  signal(SIGXFSZ, SIG_IGN); /* a write beyond the limit of a file's size fails, as on a full disk */
  attn_matrix_reader_set(data_matrix_read);
  attn_graph_reader_set(data_graph_read);
  argp_err_exit_status = EXIT_USAGE;

  if (argc < 2) return usage_error("a command is missing", NULL);
  const char *name = argv[1];
  if (strcmp(name, "--help") == 0 || strcmp(name, "-?") == 0 || strcmp(name, "-h") == 0) {
    print_help();
    return cli_close_stdout("attnlab", 0);
  }
  if (strcmp(name, "--version") == 0 || strcmp(name, "-V") == 0) {
    puts("attnlab " ATTNLAB_VERSION);
    return cli_close_stdout("attnlab", 0);
  }
  const subcommand *command = find_subcommand(name);
  if (command) return run_subcommand(command, argc - 1, argv + 1);
  return usage_error(name[0] == '-' ? "unknown option" : "unknown command", name);
}
