/* guard.c - memory between forbidden pages: placing, what is noticed, what is fatal. */
#include <criterion/criterion.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "experiments/instruments/guard.h"

Test(guard, blocks_are_aligned_and_end_where_nothing_follows) {
  static const size_t sizes[] = {1, 63, 64, 65, 100, 4095, 4096, 4097, 1000000};
  for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
    for (size_t alignment = 1; alignment <= 4096; alignment *= 64) {
      guard g;
      cr_assert_eq(guard_open(&g, sizes[i], alignment), ATTN_OK);
      cr_expect_eq((uintptr_t)g.at % alignment, 0);
      cr_expect_eq(g.bytes, sizes[i]);
      cr_expect((size_t)(g.end - g.at) - g.bytes < alignment);
      for (size_t b = 0; b < g.bytes; b++) cr_assert_eq(g.at[b], 0);
      memset(g.at, 0xff, g.bytes);
      cr_expect_eq(guard_check(&g), GUARD_INTACT);
      for (unsigned char *c = g.first; c < g.end; c++) {
        if (c == g.at) c += g.bytes;
        if (c == g.end) break;
        *c ^= 1;
        cr_assert_eq(guard_check(&g), c < g.at ? GUARD_BEFORE : GUARD_BEHIND);
        guard_reset(&g);
        cr_assert_eq(guard_check(&g), GUARD_INTACT);
      }
      guard_close(&g);
      cr_expect_null(g.at);
    }
  guard g;
  cr_expect_eq(guard_open(&g, SIZE_MAX - 10, 64), ATTN_ENOMEM);
}

/* The signal must kill the process, not a sanitizer's report. */
static void write_to(unsigned char *place) {
  signal(SIGSEGV, SIG_DFL);
  *(volatile unsigned char *)place = 1;
}

Test(guard, a_write_behind_is_fatal, .signal = SIGSEGV) {
  guard g;
  cr_assert_eq(guard_open(&g, 4096, 64), ATTN_OK);
  write_to(g.end);
}

Test(guard, a_write_before_is_fatal, .signal = SIGSEGV) {
  guard g;
  cr_assert_eq(guard_open(&g, 4096, 64), ATTN_OK);
  write_to(g.first - 1);
}

static guard adopted(void) {
  guard g;
  void *memory = malloc(3);
  cr_assert_not_null(memory);
  memcpy(memory, "abc", 3);
  cr_assert(guard_adopt(&g, &memory, 3, 64) == ATTN_OK && !memory);
  return g;
}

Test(guard, what_is_adopted_can_be_read) {
  guard g = adopted();
  cr_expect_eq(g.bytes, 3);
  cr_expect_eq(memcmp(g.at, "abc", 3), 0);
  cr_assert_eq(guard_thaw(&g), ATTN_OK);
  cr_expect_eq(++g.at[0], 'b', "it can be written again");
  guard_close(&g);
}

Test(guard, what_is_adopted_cannot_be_written, .signal = SIGSEGV) { write_to(adopted().at); }

/* The first of several, to the byte. */
Test(guard, what_is_watched_notes_the_first_touch) {
  for (int t = 0; t < 4; t++) {
    guard g[2];
    const guard *const blocks[GUARD_WATCHED + 1] = {&g[0], &g[1], &g[1], &g[1]};
    cr_assert(guard_open(&g[0], 4090, 8) == ATTN_OK && guard_open(&g[1], 8200, 64) == ATTN_OK);
    cr_expect_eq(guard_watch(blocks, GUARD_WATCHED + 1), ATTN_EINVAL);
    cr_assert_eq(guard_watch(blocks, GUARD_WATCHED), ATTN_OK);
    const guard *of = &g[t % 2];
    const unsigned char *at = t < 2 ? of->end + 4095 * (t % 2) : of->first - 1 - 4095 * (t % 2);
    cr_expect_eq(*(const volatile unsigned char *)at, 0);
    cr_expect_eq(*(const volatile unsigned char *)g[0].end, 0);
    const guard_touch found = guard_unwatch();
    cr_expect(found.block == t % 2 && found.byte == at - of->at, "%d, %d", found.block, (int)found.byte);
    for (int b = 0; b < 2; b++) guard_close(&g[b]);
  }
  cr_assert_eq(guard_watch(NULL, 0), ATTN_OK);
  cr_expect_eq(guard_unwatch().block, -1);
}
