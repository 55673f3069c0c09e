/* threads.c - threads and fork(). A forked process has one thread. OpenMP does not know, and would wait for
 * those of the parent for ever. */
#define _POSIX_C_SOURCE 200809L
#include "core/internal.h"

#include <pthread.h>
#include <stdatomic.h>

static atomic_bool forked;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void note_fork(void) { atomic_store(&forked, true); }
static void watch_forks(void) { pthread_atfork(NULL, NULL, note_fork); }

attn_status attn_threads_enter(int threads) {
  if (threads <= 1) return ATTN_OK;
  pthread_once(&once, watch_forks);
  if (!atomic_load(&forked)) return ATTN_OK;
  return attn_fail(ATTN_EUNSUPPORTED,
                   "this process was forked after attention had used threads, which fork() does not copy: "
                   "start a program (exec), or plan with threads = 1");
}
