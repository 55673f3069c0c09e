/* probe.c - foreign code in a probe: each item's end is told, and the items after it are worked on. */
#include <criterion/criterion.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "data/support/file.h"
#include "data/support/forked_probe.h"

TestSuite(data_probe, .timeout = 120);

typedef enum { ANSWER, ABORT, LEAVE, LOOP, FORK, STRAY, SILENT, CLOSE, LAST } deed;
enum { ITEMS = LAST + 1 };

typedef struct record {
  int taken[ITEMS], lost[ITEMS], known; /* known: how many were taken or lost before */
  char text[ITEMS][PROBE_TEXT];
} record;

static void work(void *context, size_t item, int to) {
  const record *r = context;
  static volatile int turns;
  if (item == ABORT) abort();
  if (item == LEAVE) _exit(7);
  while (item == LOOP) turns = 1 - turns;
  if (item == FORK) (void)fork();
  if (item == STRAY) (void)file_write_all(to, "{}", 2);
  if (item == CLOSE) close(to);
  while (item == CLOSE) turns = 1 - turns;
  if (item != SILENT) (void)probe_send(to, &r->known, sizeof r->known);
}

static bool take(void *context, size_t item, const void *message) {
  cr_expect_eq((uintptr_t)message % _Alignof(max_align_t), 0, "it is read as a structure");
  record *r = context;
  int known;
  memcpy(&known, message, sizeof known);
  /* A child knows what was noted when it began. */
  if (item == LAST) cr_expect_eq(known, 7);
  r->taken[item]++;
  r->known++;
  return true;
}

static bool lose(void *context, size_t item, const probe_result *result) {
  record *r = context;
  r->lost[item]++;
  r->known++;
  memcpy(r->text[item], result->text, sizeof r->text[item]);
  return true;
}

Test(data_probe, each_item_ends_by_itself) {
  static const char *const told[ITEMS] = {[ABORT] = "crashed: Aborted",
                                          [LEAVE] = "left the program with exit code 7",
                                          [LOOP] = "did not come to an end within 0.5 s of processor time",
                                          [FORK] = "started a process (fork)",
                                          [STRAY] = "wrote to a descriptor that is not its own",
                                          [CLOSE] = "did not come to an end within 0.5 s of processor time"};
  record r = {.known = 0};
  probe_job job = {.items = ITEMS, .message = sizeof(int), .limit = 0.5, .context = &r};
  job.work = work, job.take = take, job.lost = lose;
  probe_result end;
  cr_assert_eq(probe_run(&job, &end), ATTN_OK);
  cr_expect_eq(end.end, PROBE_WHOLE);
  cr_expect(end.seconds >= 0.5 && end.seconds < 5, "%g", end.seconds); /* LOOP took half of one */
  for (int i = 0; i < ITEMS; i++) {
    cr_expect_eq(r.taken[i], !told[i] && i != SILENT, "item %d", i);
    cr_expect_eq(r.lost[i], told[i] != NULL, "item %d", i);
    if (told[i]) cr_expect(strncmp(r.text[i], told[i], strlen(told[i])) == 0, "item %d: %s", i, r.text[i]);
  }
  /* Without lost the first loss is the end. */
  r = (record){.known = 0};
  job.lost = NULL;
  cr_assert_eq(probe_run(&job, &end), ATTN_OK);
  cr_expect(end.end == PROBE_LOST && r.taken[ANSWER] == 1 && !r.taken[LAST]);
}
