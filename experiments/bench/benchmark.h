/* benchmark.h - the benchmark: meters, sets of meters that are measured side by side, and rows of a table of
 * ratios.
 *
 * A meter is something whose time can be taken: an execution of a plan, the processor's peak, a library's
 * routine. The meters of a set are measured one directly after the other, and the set's limit (peak or
 * bandwidth) before, between and after them, because the clock of a machine wanders within seconds. The sets
 * take turns in rounds of random order (timing.h). A row is the median over the rounds of a ratio between
 * meters of one set, with its 95 % bootstrap interval, against a target.
 *
 * Groups build meters, sets and rows; bench_measure runs the rounds; bench_print and bench_json report.
 * Errors of building stay in the bench (bench.status) so that a group reads as a list. */
#ifndef EXPERIMENTS_BENCH_BENCHMARK_H
#define EXPERIMENTS_BENCH_BENCHMARK_H

#include <jansson.h>
#include <stdio.h>

#include "data/data.h"
#include "data/support/output.h"
#include "experiments/bench/targets.h"
#include "experiments/grid/value_texts.h"

typedef struct bench_options {
  const char *isa;  /* the instruction set in use */
  bool one_isa;     /* the user named it, so no other is compared */
  int threads;      /* > 0 */
  attn_dtype dtype; /* of what is in bench.in and out, and so of all problems */
  bool quick;
  int64_t rounds;           /* at least */
  double budget;            /* seconds of all rounds; the obligatory ones may exceed it */
  uint64_t seed;            /* seed of the order of the rounds */
  value_ints n, d;          /* lengths and head sizes in place of a group's own; empty: the group's own */
  value_texts others;       /* variants to compare: the first with each of the others */
  const char *against;      /* another build of the program, to compare each of them with; or NULL */
  const char *model;        /* file or directory of the group `model`; or NULL */
  bool causal;              /* so are the problems on which they are compared */
  const char *score, *mask; /* of these problems, as texts (data.h, part 5) */
} bench_options;

typedef struct bench bench;
typedef struct bench_meter bench_meter;
struct bench_meter {
  char name[192]; /* what is measured: the canonical spec of a plan */
  const char *isa;
  int threads;
  attn_blocks blocks;          /* of a plan, if its spec does not set them */
  int64_t n, d;                /* of the problem; 0: none */
  double flops, bytes, tokens; /* of one execution; 0: not counted */
  double memory;               /* bytes that a plan and its work memory take */
  bench *owner;
  /* Seconds of one execution, from measurements of about `span` seconds. */
  attn_status (*measure)(bench_meter *, double span, double *seconds);
  /* Called before and after the first measurement: fills the output with NaN, and verifies the output.
   * NULL: there is no output to verify. */
  void (*clear)(bench_meter *);
  attn_status (*verify)(bench_meter *);
  void (*release)(void *state); /* NULL: none */
  void *state;
  double *seconds, *limit; /* by round: of one execution; the limit's rate around it (0 without one) */
  int64_t count;
};

enum { BENCH_SET_MAX = 16 };

typedef struct bench_set {
  const char *group;
  bench_meter *limit; /* or NULL */
  bench_meter *meters[BENCH_SET_MAX];
  int64_t count;
} bench_set;

/* What a row compares; A and B are meters, and the limit is that of A's set. If both have limits, a time
 * is counted in units of the work that the limit would have done in it. This cancels the clock rate. */
typedef enum {
  ROW_RATE,        /* A's flops (or bytes) per second, no ratio */
  ROW_OVER_LIMIT,  /* A's flops (or bytes) per second over the limit's */
  ROW_FLOPS_RATIO, /* flops per second, A over B */
  ROW_TIME_RATIO,  /* time, A over B, or over the sum of B and C */
  ROW_TOKEN_RATIO, /* time per token, A over B */
  ROW_VALUE,       /* a value that is given, not measured */
} bench_kind;

typedef struct bench_row {
  const char *group;
  char what[192], note[192]; /* note: the reason why there is no figure */
  int64_t n, d;
  bench_kind kind;
  const bench_meter *a, *b, *c;
  bench_target target;
  double ratio, low, high;   /* median and interval over rounds; NaN: none */
  char figure[32];           /* A's median rate or time */
  struct crossing *crossing; /* ROW_VALUE that follows from many meters (group_crossover.c); owned; or NULL */
} bench_row;

struct bench {
  bench_options options;
  attn_status status; /* the first failure of building; attn_last_error is its message */
  const char *group;  /* the group that is being built */
  bench_meter **meters;
  bench_set **sets;
  bench_row *rows;
  size_t meter_count, set_count, row_count;
  size_t inputs, outputs, work; /* needed by the meters: elements, elements, bytes */
  data_target **targets;        /* what problems point to */
  size_t target_count;
  void *in, *out;            /* in: N(0, 1) */
  double elapsed, processor; /* seconds of all threads in limits: elapsed time, and processor time */
  void *scratch;
};

/* Resolves isa and threads. */
attn_status bench_machine(bench_options *);

/* ---- building (benchmark.c). After a failure everything is a no-op and pointers are NULL. ---- */

/* Adds a meter to the bench, to be filled in. It is in no set yet. */
bench_meter *bench_meter_add(bench *, const char *name);
bench_set *bench_set_add(bench *, bench_meter *limit);
/* Puts a meter that may be NULL into a set; returns it. */
bench_meter *bench_put(bench *, bench_set *, bench_meter *);
/* A meter needs this much of bench.in, out and scratch. */
void bench_need(bench *, size_t inputs, size_t outputs, size_t work);
/* what: printf-style. If a meter of a row is NULL, the row is "unavailable" with the last error. */
bench_row *bench_row_add(bench *, bench_kind, const bench_meter *a, const bench_meter *b, bench_target,
                         const char *what, ...);
/* Sets the value of a ROW_VALUE. */
void bench_row_value(bench_row *, double);
void bench_free(bench *);

/* ---- meters (meter_*.c, remote.c) */

/* A batch of one. */
static inline attn_problem bench_problem(int64_t heads, int64_t n, int64_t d, bool causal) {
  attn_problem p = attn_problem_make(1, heads, n, d);
  p.causal = causal;
  return p;
}

/* Heads where time grows with the square of n: long sequences have one, so that rounds stay short. */
static inline int64_t bench_heads(int64_t n) { return n > 8192 ? 1 : 8; }

/* The gates that a plan of a recurrence is executed with; none of others. False: out of memory. */
typedef struct bench_gates {
  attn_extra of[ATTN_EXTRA_KINDS];
  int64_t count;
} bench_gates;
bool bench_gates_make(const attn_plan *, bench_gates *);
void bench_gates_free(bench_gates *);

/* isa NULL and threads 0: those of the options. NULL without an error if the variant, the problem or the
 * machine does not support it. */
bench_meter *bench_plan(bench *, const char *spec, const attn_problem *, const char *isa, int threads);
/* A call of a recurrence that begins with a state and leaves the next in its place; its bytes are theirs. */
bench_meter *bench_step(bench *, const char *spec, const attn_problem *);
/* The backward pass of a plan that was executed once. NULL as above, also where the variant has no
 * gradient. */
bench_meter *bench_backward(bench *, const char *spec, const attn_problem *, int threads);
/* A token more in a cache under the spec that holds `held` keys of each head, of a batch of one. Where the
 * problem has one position more (n_kv), the token is taken back; else a key goes for it. */
bench_meter *bench_arrival(bench *, const char *spec, const attn_problem *, int64_t held);
bench_meter *bench_peak(bench *, const char *isa, int threads, attn_peak_kind);
bench_meter *bench_bandwidth(bench *, int threads);
/* FFTW's DCT-II down the columns of `count` matrices [n, d], and the Walsh-Hadamard transform of as many. */
bench_meter *bench_dct(bench *, int64_t n, int64_t d, int64_t count);
bench_meter *bench_wht(bench *, int64_t n, int64_t d, int64_t count);
/* FFTW's transforms of `count` sequences of n numbers of fp64, to the spectrum and back. */
bench_meter *bench_convolutions(bench *, int64_t n, int64_t count);
/* The two products of full attention, Q K^T and P V, for one head of length n: by the engines' own gemm in
 * blocks of rows, and by OpenBLAS (NULL without an error if it is not installed). */
bench_meter *bench_gemm(bench *, int64_t n, int64_t d);
bench_meter *bench_openblas(bench *, int64_t n, int64_t d);
/* Exact attention in fp64 on all rows, as errors are measured by (census.h), of tensors with as many key
 * heads as heads; on the machine's best instruction set. */
bench_meter *bench_census(bench *, const attn_problem *);

/* The same execution as `like`, in a process of another build of the program, which verifies the output.
 * NULL without an error if like is NULL. A program that cannot be run is an error. */
bench_meter *bench_remote(bench *, const char *program, const char *spec, const bench_meter *like);
/* The other side of bench_remote: answers until `in` ends. */
attn_status bench_serve(bench *, FILE *in, FILE *out);

/* Calls execute until `span` seconds are spent, after one call to warm the caches unless that took as
 * long. */
attn_status bench_repeat(bench_meter *, attn_status (*execute)(bench_meter *), double span, double *seconds);

/* An approximate variant and its target. */
typedef struct bench_contender {
  const char *spec;    /* NULL ends the list */
  bool causal, linear; /* linear: the cost of a token does not grow with n */
  bench_target target;
} bench_contender;
extern const bench_contender bench_contenders[]; /* group_variants.c */

/* ---- groups: one function each, in the file of its name ---- */

/* The group's own lengths or head sizes, or those of the options; *count of them. */
const int64_t *bench_list(const value_ints *given, const int64_t *own, size_t own_count, size_t *count);
/* Instruction sets to compare, NULL-terminated: all usable ones but plain C, unless one was asked for. */
const char *const *bench_isas(const bench *);

void bench_peaks(bench *);
void bench_exact(bench *);
void bench_variants(bench *);
void bench_decode(bench *);
void bench_cache(bench *);
void bench_recurrent(bench *);
void bench_model(bench *); /* options.model */
void bench_gradients(bench *);
void bench_score(bench *);
void bench_select(bench *);
void bench_crossover(bench *);
void bench_long(bench *);    /* executes immediately */
void bench_compare(bench *); /* options.others */
/* The problem of bench_compare, in bench.status if it cannot be. */
attn_problem bench_compare_problem(bench *, int64_t n, int64_t d);

/* ---- running and reporting (rounds.c, bench_table.c) ---- */
attn_status bench_room(bench *);    /* allocates in, out and scratch, and fills in */
attn_status bench_measure(bench *); /* runs the rounds and fills the rows */
attn_status crossover_settle(bench_row *);
attn_status bench_print(const bench *, bool markdown);
extern const output_kind kind_bench;
attn_status bench_json(const bench *, const char *path, json_t *provenance); /* provenance is borrowed */

#endif
