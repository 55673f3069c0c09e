/* plain.c - runs the tests of a program one by one, each in a child process (criterion/criterion.h in this
 * folder). */
#include "tests/plain/criterion/criterion.h"

#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

static plain_test *first, **last = &first;

void plain_register(plain_test *test) {
  *last = test;
  last = &test->next;
}

void plain_fail(const char *file, int line, const char *condition, const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  fprintf(stderr, "%s:%d: %s is false. ", file, line, condition);
  vfprintf(stderr, format, arguments);
  fprintf(stderr, "\n");
  va_end(arguments);
  exit(EXIT_FAILURE);
}

static bool passes(const plain_test *test, void *param) {
  fflush(NULL);
  pid_t child = fork();
  if (child == 0) {
    test->run(param);
    exit(EXIT_SUCCESS);
  }
  int status = 0;
  if (child < 0 || waitpid(child, &status, 0) != child) {
    perror("plain: a test could not be started");
    return false;
  }
  if (WIFSIGNALED(status)) fprintf(stderr, "%s::%s: signal %d\n", test->suite, test->name, WTERMSIG(status));
  return WIFEXITED(status) && WEXITSTATUS(status) == EXIT_SUCCESS;
}

int main(void) {
  int tested = 0, failing = 0;
  for (const plain_test *test = first; test; test = test->next) {
    struct criterion_test_params params = {NULL, 0, 1};
    if (test->params) params = test->params();
    for (size_t k = 0; k < params.count; k++, tested++)
      if (!passes(test, (char *)params.at + k * params.size)) {
        printf("[FAIL] %s::%s (%zu)\n", test->suite, test->name, k);
        failing++;
      }
  }
  printf("Tested: %d | Failing: %d\n", tested, failing);
  return failing ? EXIT_FAILURE : EXIT_SUCCESS;
}
