/* cases.h - problems, inputs and guarded runs that the tests of the core share.
 *
 * No test framework in here: a failed expectation is counted and printed by note_failure, and the program's
 * own fail_test makes the running test fail. So the same cases also serve a driver without Criterion. */
#ifndef TESTS_SUPPORT_CASES_H
#define TESTS_SUPPORT_CASES_H

#include "attn_variant.h"
#include "tests/support/basics/rng.h"
#include "tests/support/basics/text.h"

enum { MAX_BATCH = 4 };

/* Prints one line (the first 20 of a program) and counts it; the context set last is printed before it. */
void note_failure(const char *format, ...);
void note_context(const char *format, ...);
int failures_noted(void);
void fail_test(void); /* called at the first failure; core.h has that of Criterion */

#define EXPECT(condition)                                                        \
  do {                                                                           \
    if (!(condition)) note_failure("%s:%d: %s", __FILE__, __LINE__, #condition); \
  } while (0)
/* Expects a status and a message of one non-empty line. */
#define EXPECT_STATUS(call, expected) expect_status(call, expected, #call, __FILE__, __LINE__)
void expect_status(attn_status got, attn_status expected, const char *call, const char *file, int line);

/* Instruction sets to test: the environment's ATTN_ISA, else all of this machine, best first;
 * NULL-terminated. */
const char *const *isas_under_test(void);

/* -- problems -- */

typedef struct case_shape {
  int64_t batch, heads, kv_heads, n_q, n_kv, d_qk, d_v;
  bool causal, padded;
} case_shape;

/* Shapes for the property suite: every feature of a problem, alone and with others, odd sizes throughout. */
extern const case_shape property_shapes[];
extern const int property_shape_count;

/* Scale 1/sqrt(d_qk), contiguous. */
attn_problem shape_problem(case_shape, attn_dtype);
const char *shape_text(case_shape);

/* -- inputs -- */

typedef struct inputs {
  attn_problem problem; /* resolved */
  unsigned char *q, *k, *v;
  bool padded;
  int64_t kv_len[MAX_BATCH]; /* meaningful if padded */
} inputs;

typedef enum { TENSOR_Q, TENSOR_K, TENSOR_V, TENSOR_O } tensor;

/* Mean 0, deviation std, nearly normal in every element; NaN in the gaps that strides leave. padded: batch
 * entries have about 2/3 of the keys, the second none. The same seed gives the same values whatever the
 * strides and the dtype (up to rounding). */
inputs inputs_make(const attn_problem *, bool padded, uint64_t seed, double std);
/* Of a contiguous problem of this shape, padded where the shape is. */
inputs inputs_shaped(case_shape, attn_dtype, uint64_t seed, double std);
inputs inputs_copy(const inputs *);
void inputs_free(inputs *); /* where many are made: else they go with the process */

/* The same values under another problem: batch entries from `first` on, other strides, or more kv heads, each
 * head then repeated. */
inputs inputs_gather(const inputs *from, const attn_problem *to, int64_t first);

/* Element of a tensor of the inputs. */
double inputs_get(const inputs *, tensor, int64_t batch, int64_t head, int64_t row, int64_t column);
double inputs_most(const inputs *, tensor); /* the largest magnitude */
void inputs_set(inputs *, tensor, int64_t batch, int64_t head, int64_t row, int64_t column, double value);
void inputs_set_row(inputs *, tensor, int64_t batch, int64_t head, int64_t row, double value);
/* Rounds every element of a tensor to a multiple of 2^-bits, so that small sums of such numbers are exact. */
void inputs_quantise(inputs *, tensor, int bits);
int64_t inputs_keys(const inputs *, int64_t batch); /* keys that exist */

/* Bytes from the first element of a tensor to the end of its last. */
size_t tensor_bytes(const attn_problem *, tensor);

double uniform_draw(uint64_t *state); /* in [0, 1) */
double normal_draw(uint64_t *state);  /* nearly: mean 0, variance 1, within 3.5 */

/* -- guarded runs -- */

typedef struct placement {
  size_t input, output, work; /* bytes added to a 64-byte aligned address */
} placement;

/* Makes a plan; notes a failure and returns NULL if that fails. */
attn_plan *plan_or_note(const attn_problem *, const char *spec, const attn_options *);

/* Executes with canaries round copies of the inputs, the output and the work memory, output and work
 * pre-filled with NaN; notes a failure if a canary, an input or a gap changed or an output was left
 * unwritten. Returns the output as contiguous [batch, heads, n_q, d_v] (free it), or NULL with a failure
 * noted. */
void *run_guarded(const attn_plan *, const inputs *, placement);
static inline void *run_plain(const attn_plan *plan, const inputs *in) {
  return run_guarded(plan, in, (placement){0, 0, 0});
}
/* Plan, run, destroy. */
void *run_spec(const char *spec, const attn_options *, const inputs *);
/* The call on these inputs, without an output; attn_plan_run and attn_plan_verify in new work memory. */
attn_tensors tensors_of(const inputs *);
attn_status run_tensors(const attn_plan *, attn_tensors);
attn_status verify_tensors(const attn_plan *, attn_tensors);
/* No plan is made: this status, and a message with the word. */
void expect_no_plan(const attn_problem *, const char *spec, attn_status, const char *word);

/* Element of what run_guarded returned. */
double output_get(const attn_problem *, const void *o, int64_t batch, int64_t head, int64_t row,
                  int64_t column);
size_t output_count(const attn_problem *);
/* Notes a failure unless rows [from, to) of every head of a batch entry are bitwise the same. */
void expect_same_rows(const attn_problem *, const void *a, const void *b, int64_t batch, int64_t from,
                      int64_t to, const char *what);
void expect_same(const attn_problem *, const void *a, const void *b, const char *what);
/* The same of outputs that it frees. */
void expect_same_outputs(const attn_problem *, void *a, void *b, const char *what);

/* -- specs -- */

typedef struct spec_list {
  int count;
  char *text[64];
} spec_list;

/* Settings of a variant that this problem admits: a first one, as near to the presets as the problem allows,
 * and each choice and a few values of each parameter in turn. Notes a failure on statuses that mean neither
 * yes nor no. */
spec_list specs_for(const attn_variant *, const attn_problem *, int limit);
void spec_list_free(spec_list *);

/* Whether the variant takes no problem but causal ones. */
bool causal_only(const attn_variant *);

/* What else a variant of a test declares: ATTN_VARIANT(toy, TOY, .caps = ..., .describe = ..., ...). */
#define TOY .summary = "a toy", .cite = "none", .params = no_params
extern const attn_param no_params[];
attn_cost no_cost(const attn_context *);

#endif
