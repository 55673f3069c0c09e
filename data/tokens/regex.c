/* regex.c - regular expressions of tokenizer.json, by PCRE2.
 *
 * They are written for Oniguruma in its Ruby syntax, which for most of what tokenizers use is PCRE2's. Where
 * it is not, the pattern is refused, except for \s and \d, which are rewritten as the Unicode properties that
 * Oniguruma means by them.
 *
 * A match is looked for in a window of the text, which grows only if the match could go on beyond it. What an
 * attempt costs is so bounded by the window; how often windows grow is bounded by the length of the text: no
 * pattern takes quadratic time. */
#define PCRE2_CODE_UNIT_WIDTH 8
#include "data/tokens/regex.h"

#include <pcre2.h>
#include <stdlib.h>
#include <string.h>

#include "data/support/file.h"
#include "data/tokens/utf8.h"

struct pattern {
  char *where;
  pcre2_code *code;
};

struct pattern_work {
  pcre2_match_data *found;
  pcre2_match_context *limits;
};

enum { WINDOW = 1024, STEPS_PER_BYTE = 100, MOST_STEPS = 1 << 24, HEAP_KIB = 1 << 16, PATTERN_MAX = 1 << 14 };

/* ---- from Oniguruma's syntax --------------------------------------------------------------------------- */

typedef struct translation {
  const char *where, *at;
  char *out;
  bool in_class;
} translation;

static attn_status refuse(const translation *t, size_t length) {
  return attn_fail(ATTN_EUNSUPPORTED, "%s: '%.*s' in a regular expression is not supported", t->where,
                   (int)length, t->at);
}

static attn_status replace(translation *t, const char *text, size_t length, size_t read) {
  memcpy(t->out, text, length);
  t->out += length;
  t->at += read;
  return ATTN_OK;
}

static attn_status copy(translation *t, size_t length) { return replace(t, t->at, length, length); }

/* \p{..}: general categories alone. Scripts are sets of other characters in PCRE2. */
static attn_status take_property(translation *t) {
  const char *name = t->at + 3;
  if (t->at[2] != '{' || !*name || !strchr("CLMNPSZ", *name)) return refuse(t, strcspn(t->at, "}"));
  const size_t length = name[1] >= 'a' && name[1] <= 'z' ? 2 : 1;
  return name[length] == '}' ? copy(t, 4 + length) : refuse(t, strcspn(t->at, "}"));
}

static attn_status take_escape(translation *t) {
  static const struct {
    char letter;
    const char *means;
  } classes[] = {{'s', "\\p{White_Space}"}, {'S', "\\P{White_Space}"}, {'d', "\\p{Nd}"}, {'D', "\\P{Nd}"}};
  const char next = t->at[1];
  if (next == 'p' || next == 'P') return take_property(t);
  if (next == 'r' || next == 'n' || next == 't') return copy(t, 2);
  for (size_t i = 0; i < sizeof classes / sizeof *classes; i++)
    if (next == classes[i].letter) return replace(t, classes[i].means, strlen(classes[i].means), 2);
  return next > ' ' && strchr("!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~", next) ? copy(t, 2)
                                                                          : refuse(t, next ? 2 : 1);
}

static attn_status take_in_class(translation *t) {
  if (*t->at == '[') return refuse(t, 1);
  if (t->at[0] == '&' && t->at[1] == '&') return refuse(t, 2);
  t->in_class = *t->at != ']';
  return copy(t, 1);
}

/* A class may not begin with its end. */
static attn_status take_class(translation *t) {
  const size_t length = t->at[1] == '^' ? 2 : 1;
  if (t->at[length] == ']') return refuse(t, length + 1);
  t->in_class = true;
  return copy(t, length);
}

static attn_status take_group(translation *t) {
  static const char *const known[] = {"(?:", "(?=", "(?!", "(?<=", "(?<!", "(?>", "(?i:"};
  if (t->at[1] == '*') return refuse(t, 2);
  if (t->at[1] != '?') return copy(t, 1);
  for (size_t i = 0; i < sizeof known / sizeof *known; i++)
    if (strncmp(t->at, known[i], strlen(known[i])) == 0) return copy(t, strlen(known[i]));
  return refuse(t, t->at[2] ? 3 : 2);
}

/* {n}, {n,} or {n,m}; what follows it must not be a + or a ?, which mean other things. */
static attn_status take_count(translation *t) {
  static const char digits[] = "0123456789";
  size_t length = 1 + strspn(t->at + 1, digits);
  const bool counted = length > 1;
  if (t->at[length] == ',') length += 1 + strspn(t->at + length + 1, digits);
  if (!counted || t->at[length] != '}') return refuse(t, length);
  const char next = t->at[length + 1];
  return next == '+' || next == '?' ? refuse(t, length + 2) : copy(t, length + 1);
}

static attn_status translate(const char *where, const char *text, char *out) {
  translation t = {.where = where, .at = text, .out = out};
  attn_status status = ATTN_OK;
  while (!status && *t.at) {
    if (*t.at == '\\')
      status = take_escape(&t);
    else if (t.in_class)
      status = take_in_class(&t);
    else if (*t.at == '[')
      status = take_class(&t);
    else if (*t.at == '(')
      status = take_group(&t);
    else if (*t.at == '{')
      status = take_count(&t);
    else
      status = strchr("^$}]", *t.at) ? refuse(&t, 1) : copy(&t, 1);
  }
  *t.out = '\0';
  return status;
}

static attn_status compile(const char *where, const char *text, pcre2_code **out) {
  int error;
  PCRE2_SIZE offset;
  pcre2_compile_context *context = pcre2_compile_context_create(NULL);
  if (!context) return attn_fail(ATTN_ENOMEM, "%s: no memory for a regular expression", where);
  pcre2_set_newline(context, PCRE2_NEWLINE_LF);
  pcre2_code *made =
      pcre2_compile((PCRE2_SPTR)text, PCRE2_ZERO_TERMINATED, PCRE2_UTF, &error, &offset, context);
  pcre2_compile_context_free(context);
  if (!made) {
    PCRE2_UCHAR reason[160] = "";
    pcre2_get_error_message(error, reason, sizeof reason);
    return attn_fail(ATTN_EINVAL, "%s: not a regular expression: %s", where, (const char *)reason);
  }
  *out = made;
  return ATTN_OK;
}

attn_status pattern_make(const char *where, const char *text, pattern **out) {
  const size_t length = strlen(text);
  if (length > PATTERN_MAX)
    return attn_fail(ATTN_EUNSUPPORTED, "%s: a regular expression of %zu bytes, more than %d", where, length,
                     PATTERN_MAX);
  pattern *p = calloc(1, sizeof *p);
  char *ours = malloc(8 * length + 1); /* of two bytes become 15 at most */
  attn_status status = ATTN_OK;
  if (p) p->where = text_format("%s", where);
  if (!p || !ours || !p->where)
    status = attn_fail(ATTN_ENOMEM, "%s: no memory for a regular expression", where);
  if (!status) status = translate(where, text, ours);
  if (!status) status = compile(where, ours, &p->code);
  free(ours);
  if (status)
    pattern_free(p);
  else
    *out = p;
  return status;
}

void pattern_free(pattern *p) {
  if (!p) return;
  pcre2_code_free(p->code);
  free(p->where);
  free(p);
}

bool pattern_may_be_empty(const pattern *p) {
  uint32_t empty = 1;
  return pcre2_pattern_info(p->code, PCRE2_INFO_MATCHEMPTY, &empty) != 0 || empty != 0;
}

/* ---- cutting ------------------------------------------------------------------------------------------- */

attn_status pattern_work_make(pattern_work **out) {
  pattern_work *w = calloc(1, sizeof *w);
  if (w) {
    w->found = pcre2_match_data_create(1, NULL);
    w->limits = pcre2_match_context_create(NULL);
  }
  if (!w || !w->found || !w->limits) {
    pattern_work_free(w);
    return attn_fail(ATTN_ENOMEM, "no memory for regular expressions");
  }
  pcre2_set_heap_limit(w->limits, HEAP_KIB);
  *out = w;
  return ATTN_OK;
}

void pattern_work_free(pattern_work *w) {
  if (!w) return;
  pcre2_match_data_free(w->found);
  pcre2_match_context_free(w->limits);
  free(w);
}

/* The end of the window that begins at `at`: no character is cut. */
static size_t window_end(const uint8_t *text, size_t bytes, size_t at, size_t window) {
  if (bytes - at <= window) return bytes;
  size_t end = at + window;
  while ((text[end] & 0xc0) == 0x80) end--;
  return end;
}

static attn_status failed(const pattern *p, int error) {
  if (error == PCRE2_ERROR_NOMEMORY)
    return attn_fail(ATTN_ENOMEM, "%s: no memory to match a regular expression", p->where);
  PCRE2_UCHAR reason[160] = "";
  pcre2_get_error_message(error, reason, sizeof reason);
  return attn_fail(ATTN_EINVAL, "%s: the regular expression takes too long on this text: %s", p->where,
                   (const char *)reason);
}

/* The next match at or after `at`, if there is one. *spent: bytes of windows that grew, so far. A window that
 * grew is for the place alone where it begins. */
static attn_status next_match(const pattern *p, pattern_work *w, const uint8_t *text, size_t bytes, size_t at,
                              size_t *spent, size_t *begin, size_t *end) {
  const PCRE2_SIZE *place = pcre2_get_ovector_pointer(w->found);
  for (size_t window = WINDOW; at < bytes;) {
    const size_t stop = window_end(text, bytes, at, window);
    const uint32_t options =
        PCRE2_NO_UTF_CHECK | (stop < bytes ? PCRE2_PARTIAL_HARD : 0) | (window > WINDOW ? PCRE2_ANCHORED : 0);
    pcre2_set_match_limit(w->limits, (uint32_t)(window < MOST_STEPS ? window : MOST_STEPS) * STEPS_PER_BYTE);
    const int code = pcre2_match(p->code, text, stop, at, options, w->found, w->limits);
    if (code >= 0) {
      *begin = place[0];
      *end = place[1];
      return ATTN_OK;
    }
    if (code == PCRE2_ERROR_NOMATCH) {
      at = window > WINDOW ? utf8_end(text, bytes, at) : stop;
      window = WINDOW;
    } else if (code == PCRE2_ERROR_PARTIAL) {
      at = place[0];
      window *= 2;
      *spent += window;
      /* A long piece costs four times its length. */
      if (*spent / 64 > bytes + WINDOW)
        return attn_fail(ATTN_EINVAL,
                         "%s: the regular expression looks too far ahead, too often, on this text", p->where);
    } else {
      return failed(p, code);
    }
  }
  return ATTN_OK;
}

attn_status pattern_split(const pattern *p, pattern_work *w, const uint8_t *text, size_t bytes,
                          pattern_piece *piece, void *context) {
  size_t done = 0, at = 0, spent = 0;
  while (done < bytes) {
    size_t begin = bytes, end = bytes;
    attn_status status = next_match(p, w, text, bytes, at, &spent, &begin, &end);
    if (!status && begin > done) status = piece(context, text + done, begin - done, false);
    if (!status && end > begin) status = piece(context, text + begin, end - begin, true);
    if (status) return status;
    done = end;
    at = end > begin ? end : utf8_end(text, bytes, end);
  }
  return ATTN_OK;
}
