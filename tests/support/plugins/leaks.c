/* leaks.c - to be preloaded behind LeakSanitizer, which looks at a process that ends by exit: a child that
 * ends by _exit is looked at, too, and a leak ends in its exit code. */
#define _GNU_SOURCE /* syscall */
#include <sys/syscall.h>
#include <unistd.h>

int __lsan_do_recoverable_leak_check(void);

void _exit(int code) {
  for (;;) syscall(SYS_exit_group, code || !__lsan_do_recoverable_leak_check() ? code : 23);
}
