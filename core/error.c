/* error.c - status names and the thread's last error message. */
#define _POSIX_C_SOURCE 200809L
#include "core/decimal.h"
#include "core/internal.h"

#include <stdarg.h>
#include <stdio.h>

static _Thread_local char message[512] = "no error";

const char *attn_status_name(attn_status s) {
  static const char *const names[] = {
      "ok",     "invalid argument", "unsupported", "out of memory",  "not found",
      "exists", "wrong interface",  "numeric",     "foreign failure"};
  return (unsigned)s < sizeof names / sizeof *names ? names[s] : "unknown status";
}

const char *attn_last_error(void) { return message; }

attn_status attn_null(const char *function, const char *argument) {
  return attn_fail(ATTN_EINVAL, "%s: %s must not be NULL", function, argument);
}

attn_status attn_fail(attn_status status, const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  /* Formatted into a copy, because an argument may be the last message itself. */
  char text[sizeof message];
  const attn_locale outer = attn_locale_enter();
  vsnprintf(text, sizeof text, format ? format : "no message", arguments);
  attn_locale_leave(outer);
  va_end(arguments);
  for (size_t i = 0; i < sizeof text; i++) {
    /* Text of a file or an argument must not contain line breaks or the terminal's control codes. */
    const bool control = (unsigned char)text[i] < ' ' || text[i] == 127;
    message[i] = control && text[i] ? ' ' : text[i];
    if (!text[i]) break;
  }
  return status;
}
