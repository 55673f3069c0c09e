/* text_stream.c - a text that was printed into a stream of POSIX's open_memstream. */
#include <stdlib.h>

#include "attn_tools.h"

bool attn_stream_text(FILE *stream, char **text) {
  if (!stream) return false;
  const bool whole = fclose(stream) == 0 && text && *text; /* glibc may close a stream, and have no text */
  if (whole || !text) return whole;
  free(*text);
  *text = NULL;
  return false;
}
