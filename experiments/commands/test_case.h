/* test_case.h - the problems of attnlab test: types, masks, inputs, instruction sets. */
#ifndef EXPERIMENTS_COMMANDS_TEST_CASE_H
#define EXPERIMENTS_COMMANDS_TEST_CASE_H

#include "experiments/results/row.h"

#include "attn.h"

typedef enum {
  INPUT_ORDINARY, /* normal */
  INPUT_PEAKED,   /* normal, of deviation 2.5 */
  INPUT_NEEDLE,   /* one key of a score far above the others */
  INPUT_FLAT,     /* all keys the same */
  INPUT_LARGE     /* normal, of deviation 20 */
} test_input;

typedef struct test_case {
  attn_dtype dtype;
  bool causal;
  test_input input;
  int64_t d, d_v;
  const char *isa;
  const char *score, *mask; /* as a configuration has them; "": none */
  const char *only;         /* the one check that is asked; NULL: all are */
  uint64_t seed;            /* of the tensors */
} test_case;

/* Every input under the best instruction set, ordinary ones of each type under each other. in_turn:
 * under the best alone. Returns how many. */
enum { TEST_CASES = 48, TEST_CASE_NAME = 112 };
int test_cases_list(bool in_turn, const char *score, const char *mask, const char *only, uint64_t seed,
                    test_case[TEST_CASES]);
/* EINVAL, EFOREIGN: no problem can have this score and mask, with the reason. */
attn_status test_case_check(const test_case *);
/* A line on stdout that says what is run. */
void test_cases_print(const test_case *, int count);
void test_case_name(const test_case *, char[TEST_CASE_NAME]);

/* Tells of the cells of a case, each as soon as it is judged. *taken: the variant takes such a problem.
 * What it allocates is left to the end of the process, of which a case has one. */
typedef void test_case_told(void *to, const result_bound *);
attn_status test_case_judge(const attn_spec *spec, const test_case *, test_case_told *, void *to,
                            bool *taken);

#endif
