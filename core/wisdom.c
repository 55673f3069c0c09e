/* wisdom.c - block sizes that were measured to be fastest, in a text that the program keeps (FFTW's habit;
 * Frigo and Johnson 2005). attn.h has the format. */
#define _POSIX_C_SOURCE 200809L
#include "core/internal.h"

#include <stdio.h>
#include <string.h>

enum { CAPACITY = 256, LINE = 256, NAME = 16, WORDS = 6, D_MAX = 1 << 20 };

typedef struct entry {
  char isa[NAME];
  attn_dtype dtype;
  int64_t d_qk, d_v;
  attn_block_sizes blocks;
} entry;

static entry entries[CAPACITY];
static size_t entry_count;

static bool same_case(const entry *a, const entry *b) {
  return !strcmp(a->isa, b->isa) && a->dtype == b->dtype && a->d_qk == b->d_qk && a->d_v == b->d_v;
}

static const entry *find(const entry *list, size_t count, const entry *wanted) {
  for (size_t i = 0; i < count; i++)
    if (same_case(&list[i], wanted)) return &list[i];
  return NULL;
}

static int64_t octave(int64_t d) {
  int64_t power = 1;
  while (power < d && power < D_MAX) power *= 2;
  return power;
}

bool attn_wisdom_find(const attn_kernels *k, int64_t d_qk, int64_t d_v, attn_block_sizes *out) {
  entry wanted = {.dtype = k->dtype, .d_qk = octave(d_qk), .d_v = octave(d_v)};
  snprintf(wanted.isa, sizeof wanted.isa, "%s", k->isa);
  const entry *found = find(entries, entry_count, &wanted);
  if (found) *out = found->blocks;
  return found != NULL;
}

void attn_wisdom_forget(void) { entry_count = 0; }
size_t attn_wisdom_count(void) { return entry_count; }

/* 1 ... most; anything else is 0. */
static int64_t parse_number(const char *text, int64_t most) {
  int64_t value = 0;
  size_t length = strlen(text);
  if (length == 0 || length > 9 || strspn(text, "0123456789") != length) return 0;
  for (size_t i = 0; i < length; i++) value = 10 * value + (text[i] - '0');
  return value <= most ? value : 0;
}

/* Cuts a line at single blanks; the number of words, WORDS + 1 for more. */
static int split(char *line, char *words[WORDS]) {
  int count = 0;
  for (char *at = line; at; count++) {
    if (count == WORDS) return WORDS + 1;
    words[count] = at;
    at = strchr(at, ' ');
    if (at) *at++ = '\0';
  }
  return count;
}

static attn_status parse_entry(char *line, int number, entry *out) {
  char *w[WORDS];
  if (split(line, w) != WORDS)
    return attn_fail(ATTN_EINVAL, "line %d: expected 'isa dtype d_qk d_v block_q block_k'", number);
  size_t length = strspn(w[0], "abcdefghijklmnopqrstuvwxyz0123456789_");
  if (length == 0 || length >= NAME || w[0][length])
    return attn_fail(ATTN_EINVAL, "line %d: the first word is no instruction set", number);
  bool f64 = !strcmp(w[1], "f64");
  if (!f64 && strcmp(w[1], "f32"))
    return attn_fail(ATTN_EINVAL, "line %d: dtype: expected f32 or f64", number);
  entry e = {.dtype = f64 ? ATTN_F64 : ATTN_F32,
             .d_qk = parse_number(w[2], D_MAX),
             .d_v = parse_number(w[3], D_MAX),
             .blocks = {parse_number(w[4], ATTN_BLOCK_MAX), parse_number(w[5], ATTN_BLOCK_MAX)}};
  if (!e.d_qk || !e.d_v || octave(e.d_qk) != e.d_qk || octave(e.d_v) != e.d_v)
    return attn_fail(ATTN_EINVAL, "line %d: d_qk and d_v: expected powers of two up to %d", number, D_MAX);
  if (!e.blocks.query || !e.blocks.key)
    return attn_fail(ATTN_EINVAL, "line %d: block_q and block_k: expected 1 ... %d", number, ATTN_BLOCK_MAX);
  memcpy(e.isa, w[0], length + 1);
  *out = e;
  return ATTN_OK;
}

static attn_status parse_line(char *line, int number, const char *cpu, entry *list, size_t *count) {
  static const char about[] = "cpu ";
  if (number == 1)
    return strcmp(line, "attnlab wisdom 1") ? attn_fail(ATTN_EINVAL, "line 1: expected 'attnlab wisdom 1'")
                                            : ATTN_OK;
  if (number == 2) {
    if (strncmp(line, about, sizeof about - 1))
      return attn_fail(ATTN_EINVAL, "line 2: expected 'cpu ' and the processor's name");
    return cpu && strcmp(line + sizeof about - 1, cpu)
               ? attn_fail(ATTN_EUNSUPPORTED, "made for another processor, %s", line + sizeof about - 1)
               : ATTN_OK;
  }
  if (!*line || *line == '#') return ATTN_OK;
  entry e;
  attn_status status = parse_entry(line, number, &e);
  if (status) return status;
  if (find(list, *count, &e))
    return attn_fail(ATTN_EINVAL, "line %d: a second entry for the same case", number);
  if (*count == CAPACITY) return attn_fail(ATTN_EINVAL, "line %d: more than %d entries", number, CAPACITY);
  list[(*count)++] = e;
  return ATTN_OK;
}

attn_status attn_wisdom_import(const char *text, const char *cpu) {
  entry list[CAPACITY];
  size_t count = 0;
  int number = 0;
  for (const char *at = text; *at || number < 2; number++) {
    char line[LINE];
    size_t length = strcspn(at, "\n");
    if (length >= sizeof line)
      return attn_fail(ATTN_EINVAL, "line %d: longer than %d characters", number + 1, LINE - 1);
    for (size_t i = 0; i < length; i++)
      if (at[i] < ' ' || at[i] > '~')
        return attn_fail(ATTN_EINVAL, "line %d: character %zu is not printable ASCII", number + 1, i + 1);
    memcpy(line, at, length);
    line[length] = '\0';
    attn_status status = parse_line(line, number + 1, cpu, list, &count);
    if (status) return status;
    at += length + (at[length] == '\n');
  }
  memcpy(entries, list, count * sizeof *list);
  entry_count = count;
  return ATTN_OK;
}
