/* steps.c - the steps that a text goes through. What `tokenizers` (Hugging Face) does is the definition. */
#include "data/tokens/steps.h"

#include <unigbrk.h>
#include <uninorm.h>
#include <unistr.h>

#include "data/tokens/buffer.h"
#include "data/tokens/tokenizer.h"
#include "data/tokens/utf8.h"

static attn_status pass(const passage *p, const uint8_t *text, size_t bytes, bool first) {
  if (!bytes) return ATTN_OK;
  if (p->next == p->end) return p->finish(p->context, text, bytes, first);
  passage rest = *p;
  rest.next++;
  rest.first = first;
  return p->next->apply(p->next, &rest, text, bytes);
}

/* The end of a step that wrote a text. */
static attn_status pass_buffer(attn_status status, const passage *rest, buffer *b, bool first) {
  if (!status) status = pass(rest, b->at, b->bytes, first);
  free(b->at);
  return status;
}

attn_status steps_run(const step_list *l, pattern_work *match, step_finish *finish, void *context,
                      const uint8_t *text, size_t bytes, bool first) {
  const passage p = {
      .next = l->item, .end = l->item + l->count, .match = match, .finish = finish, .context = context};
  return pass(&p, text, bytes, first);
}

static void step_free(step *s) {
  pattern_free(s->cuts);
  charsmap_free(s->map);
  free(s->text);
}

void steps_free(step_list *l) {
  for (int i = 0; i < l->count; i++) step_free(&l->item[i]);
}

attn_status steps_add(step_list *l, const char *place, step s, const char *cuts) {
  attn_status status = ATTN_OK;
  if (l->count == STEPS_MAX)
    status = attn_fail(ATTN_EUNSUPPORTED, "%s: more than %d steps", place, STEPS_MAX);
  if (!status && cuts) status = pattern_make(place, cuts, &s.cuts);
  if (!status)
    l->item[l->count++] = s;
  else
    step_free(&s);
  return status;
}

/* ---- cutting ------------------------------------------------------------------------------------------- */

typedef struct splitting {
  const step *s;
  const passage *rest;
  const uint8_t *text, *piece; /* the piece may still grow */
  size_t bytes;
  bool matched; /* its last part */
} splitting;

static attn_status give_piece(const splitting *c) {
  if (c->matched && c->s->rule == CUT_REMOVED) return ATTN_OK;
  return pass(c->rest, c->piece, c->bytes, c->rest->first && c->piece == c->text);
}

static bool joins(cut_rule rule, bool before, bool now) {
  if (rule == CUT_CONTIGUOUS) return before == now;
  return rule == CUT_WITH_PREVIOUS ? now && !before : rule == CUT_WITH_NEXT && before && !now;
}

static attn_status take_piece(void *context, const uint8_t *at, size_t bytes, bool matched) {
  splitting *c = context;
  attn_status status = ATTN_OK;
  matched = matched != c->s->invert;
  if (c->bytes && joins(c->s->rule, c->matched, matched)) {
    c->bytes += bytes;
  } else {
    status = give_piece(c);
    c->piece = at;
    c->bytes = bytes;
  }
  c->matched = matched;
  return status;
}

attn_status step_split(const step *s, const passage *rest, const uint8_t *text, size_t bytes) {
  splitting c = {.s = s, .rest = rest, .text = text, .piece = text};
  const attn_status status = pattern_split(s->cuts, rest->match, text, bytes, take_piece, &c);
  return status ? status : give_piece(&c);
}

/* ---- rewriting ----------------------------------------------------------------------------------------- */

typedef struct rewriting {
  const char *by;
  buffer out;
  bool lost; /* the beginning of the text became nothing */
} rewriting;

static attn_status put(rewriting *r, const void *at, size_t bytes) {
  r->lost = r->lost || (!bytes && !r->out.bytes);
  return buffer_put(&r->out, at, bytes);
}

static attn_status replace_piece(void *context, const uint8_t *at, size_t bytes, bool matched) {
  rewriting *r = context;
  return matched ? put(r, r->by, strlen(r->by)) : put(r, at, bytes);
}

attn_status step_replace(const step *s, const passage *rest, const uint8_t *text, size_t bytes) {
  rewriting r = {.by = s->text};
  const attn_status status = pattern_split(s->cuts, rest->match, text, bytes, replace_piece, &r);
  return pass_buffer(status, rest, &r.out, rest->first && !r.lost);
}

attn_status step_prepend(const step *s, const passage *rest, const uint8_t *text, size_t bytes) {
  const size_t length = strlen(s->text);
  const bool there = bytes >= length && memcmp(text, s->text, length) == 0;
  buffer out = {0};
  if (s->where != PREPEND_ALWAYS && (there || (s->where == PREPEND_TO_FIRST && !rest->first)))
    return pass(rest, text, bytes, rest->first);
  attn_status status = buffer_put(&out, s->text, length);
  if (!status) status = buffer_put(&out, text, bytes);
  return pass_buffer(status, rest, &out, rest->first);
}

attn_status step_strip(const step *s, const passage *rest, const uint8_t *text, size_t bytes) {
  const uint8_t *begin = text, *end = text + bytes, *previous;
  ucs4_t c;
  int length;
  while (s->left && begin < end && (length = u8_mbtouc_unsafe(&c, begin, (size_t)(end - begin))) > 0 &&
         character_is_space(c))
    begin += length;
  while (s->right && begin < end && (previous = u8_prev(&c, end, begin)) && character_is_space(c))
    end = previous;
  return pass(rest, begin, (size_t)(end - begin), rest->first && begin == text);
}

attn_status step_each(const step *s, const passage *rest, const uint8_t *text, size_t bytes) {
  rewriting r = {.by = NULL};
  attn_status status = ATTN_OK;
  ucs4_t c;
  for (size_t at = 0; !status && at < bytes;) {
    uint32_t becomes[CHARACTERS_MOST];
    uint8_t written[6 * CHARACTERS_MOST];
    int used = 0;
    at += (size_t)u8_mbtouc_unsafe(&c, text + at, bytes - at);
    const size_t count = s->each(c, becomes);
    for (size_t i = 0; i < count; i++) used += u8_uctomb(written + used, becomes[i], 6);
    status = put(&r, written, (size_t)used);
  }
  return pass_buffer(status, rest, &r.out, rest->first && !r.lost);
}

attn_status step_form(const step *s, const passage *rest, const uint8_t *text, size_t bytes) {
  buffer out = {0};
  out.at = u8_normalize(s->form, text, bytes, NULL, &out.bytes);
  if (!out.at) return attn_fail(ATTN_ENOMEM, "no memory to normalise a text of %zu bytes", bytes);
  return pass_buffer(ATTN_OK, rest, &out, rest->first);
}

attn_status step_letters(const step *s, const passage *rest, const uint8_t *text, size_t bytes) {
  buffer out = {0};
  attn_status status = ATTN_OK;
  (void)s;
  for (size_t i = 0; !status && i < bytes; i++) {
    char letter[2];
    status = buffer_put(&out, letter, byte_level_letter(text[i], letter));
  }
  return pass_buffer(status, rest, &out, rest->first);
}

/* A grapheme of less than six bytes is looked up as a whole, of which the map finds a prefix; what is longer
 * or not found is looked up character by character. */
attn_status step_charsmap(const step *s, const passage *rest, const uint8_t *text, size_t bytes) {
  enum { WHOLE = 6 };
  buffer out = {0};
  attn_status status = ATTN_OK;
  for (const uint8_t *at = text, *end = text + bytes, *next; !status && at < end; at = next) {
    next = u8_grapheme_next(at, end);
    const size_t length = (size_t)(next - at);
    const char *by = length < WHOLE ? charsmap_find(s->map, at, length) : NULL;
    if (by) {
      status = buffer_put(&out, by, strlen(by));
      continue;
    }
    for (size_t i = 0, one; !status && i < length; i = one) {
      one = utf8_end(at, length, i);
      by = charsmap_find(s->map, at + i, one - i);
      status = buffer_put(&out, by ? (const void *)by : at + i, by ? strlen(by) : one - i);
    }
  }
  return pass_buffer(status, rest, &out, rest->first);
}
