/* criterion/criterion.h - as much of Criterion's interface as the tests of the core use, for builds whose
 * programs run under an emulator, where Criterion's sandbox cannot start processes, or under ThreadSanitizer,
 * which leaves it no memory. Tests enter a list before main, which runs each in a child process (plain.c). */
#ifndef TESTS_PLAIN_CRITERION_CRITERION_H
#define TESTS_PLAIN_CRITERION_CRITERION_H

#include <math.h>
#include <stddef.h>
#include <string.h>

struct criterion_test_params {
  void *at;
  size_t size, count;
};
#define cr_make_param_array(type, array, length) \
  (struct criterion_test_params) { array, sizeof(type), length }

typedef struct plain_test {
  const char *suite, *name;
  void (*run)(void *param);
  struct criterion_test_params (*params)(void); /* NULL: none, one run */
  struct plain_test *next;
} plain_test;

void plain_register(plain_test *);
/* Prints where and what, and ends the test. */
_Noreturn void plain_fail(const char *file, int line, const char *condition, const char *format, ...);

#define PLAIN_REGISTER(suite, name, params_)                                                      \
  static void suite##_##name##_run(void *);                                                       \
  static plain_test suite##_##name##_test = {#suite, #name, suite##_##name##_run, params_, NULL}; \
  static __attribute__((constructor)) void suite##_##name##_register(void) {                      \
    plain_register(&suite##_##name##_test);                                                       \
  }

#define Test(suite, name)                         \
  static void suite##_##name(void);               \
  PLAIN_REGISTER(suite, name, NULL)               \
  static void suite##_##name##_run(void *param) { \
    (void)param;                                  \
    suite##_##name();                             \
  }                                               \
  static void suite##_##name(void)

#define ParameterizedTestParameters(suite, name) \
  static struct criterion_test_params suite##_##name##_params(void)
#define ParameterizedTest(param, suite, name)                        \
  static void suite##_##name(param);                                 \
  PLAIN_REGISTER(suite, name, suite##_##name##_params)               \
  static void suite##_##name##_run(void *at) { suite##_##name(at); } \
  static void suite##_##name(param)

#define cr_assert(condition, ...) \
  ((condition) ? (void)0 : plain_fail(__FILE__, __LINE__, #condition, "" __VA_ARGS__))
#define cr_expect cr_assert
#define cr_assert_eq(a, b, ...) cr_assert((a) == (b), __VA_ARGS__)
#define cr_expect_eq(a, b, ...) cr_assert((a) == (b), __VA_ARGS__)
#define cr_assert_neq(a, b, ...) cr_assert((a) != (b), __VA_ARGS__)
#define cr_expect_gt(a, b, ...) cr_assert((a) > (b), __VA_ARGS__)
#define cr_assert_leq(a, b, ...) cr_assert((a) <= (b), __VA_ARGS__)
#define cr_assert_not_null(a, ...) cr_assert((a) != NULL, __VA_ARGS__)
#define cr_assert_str_eq(a, b, ...) cr_assert(strcmp(a, b) == 0, __VA_ARGS__)
#define cr_assert_arr_eq(a, b, bytes, ...) cr_assert(memcmp(a, b, bytes) == 0, __VA_ARGS__)
#define cr_assert_float_eq(a, b, error, ...) cr_assert(fabs((a) - (b)) <= (error), __VA_ARGS__)

#endif
