/* text_stream.c - a text that was printed into a stream of POSIX's open_memstream. */
#include <stdlib.h>

#include "attn_tools.h"

bool attn_stream_text(FILE *stream, char **text) {
  if (!stream) return false;
  const bool lost = fclose(stream) != 0;
  if (!lost && *text) return true;
  free(*text); /* glibc may close a stream, and have no text */
  *text = NULL;
  return false;
}
