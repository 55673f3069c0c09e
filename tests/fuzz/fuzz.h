/* fuzz.h - what the targets share. A target (fuzz_NAME.c) gives libFuzzer
 * (https://llvm.org/docs/LibFuzzer.html) the function that tries one input. Beyond the sanitizers it demands
 * what every fallible function promises: a failure leaves one line of explanation and its results untouched,
 * and what is accepted survives being written and read again.
 *
 * Results files have no target: libhdf5 itself is known to crash on damaged ones, long before attnlab sees
 * anything. */
#ifndef TESTS_FUZZ_FUZZ_H
#define TESTS_FUZZ_FUZZ_H

#include <stddef.h>
#include <stdint.h>

#include "attn.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Stops the fuzzer, which then keeps the input. */
#define REQUIRE(condition) ((condition) ? (void)0 : fuzz_stop(#condition, __FILE__, __LINE__))
_Noreturn void fuzz_stop(const char *condition, const char *file, int line);

/* Before the call: forgets the last message, and marks the result. */
void fuzz_prepare(void *result, size_t size);
/* After it: whether it succeeded; if not, a message must be there and the result must still be marked. */
bool fuzz_succeeded(attn_status, const void *result, size_t size);

/* The input as a string that ends at its first NUL; free it. */
char *fuzz_text(const uint8_t *data, size_t size);

/* The input as a file of this name in a directory of this process; the path stays valid. One name per
 * process. */
const char *fuzz_file(const char *name, const uint8_t *data, size_t size);
const char *fuzz_directory(void);

#endif
