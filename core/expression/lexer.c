/* lexer.c - where the parts of an expression end. A '+' between two keys of a list, or in a path, joins
 * nothing: it separates terms before a name, a number with '*', or a parenthesis, and in the value of a text
 * only between blanks and before a variant's name. */
#include "core/expression/expression.h"

#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Also the end of a line: a text that is long may have several. */
static bool blank(char c) { return c && strchr(" \t\r\n", c); }

const char *expression_skip(const char *at) {
  while (blank(*at)) at++;
  return at;
}

size_t expression_name(const char *at) { return strspn(at, "abcdefghijklmnopqrstuvwxyz0123456789_"); }

const char *expression_given(const char *at) {
  enum { LENGTH = 4 };
  at = expression_skip(at + (*at == '-'));
  if (expression_name(at) != LENGTH || strncmp(at, "gate", LENGTH) != 0) return NULL;
  at = expression_skip(at + LENGTH);
  return *at == '*' ? at + 1 : NULL;
}

const char *expression_gate(const char *at, double *gate) {
  const bool minus = *at == '-';
  const char *given = expression_given(at);
  *gate = minus ? -1 : 1;
  if (given) return given;
  const char *digits = expression_skip(at + minus);
  char *end;
  if (!isdigit((unsigned char)*digits) && *digits != '.') return NULL;
  if (digits[strspn(digits, "0")] == 'x' || digits[strspn(digits, "0")] == 'X') return NULL;
  const double value = strtod(digits, &end);
  const char *star = expression_skip(end);
  if (end == digits || *star != '*') return NULL;
  const bool lost = !(value > 0) && strchr("123456789", digits[strspn(digits, "0.")]);
  *gate = lost ? (double)NAN : minus ? -value : value;
  return star + 1;
}

const char *expression_dyadic(const char *at) {
  enum { LENGTH = 6 };
  if (expression_name(at) != LENGTH || strncmp(at, "dyadic", LENGTH) != 0) return NULL;
  at = expression_skip(at + LENGTH);
  return *at == '(' ? at + 1 : NULL;
}

const char *expression_base(const char *at) {
  static const char base[] = "base=";
  if (*at != ',') return NULL;
  at = expression_skip(at + 1);
  return strncmp(at, base, sizeof base - 1) == 0 ? at + sizeof base - 1 : NULL;
}

static bool variant_ends_here(const char *at) {
  const size_t length = expression_name(at);
  const attn_variant *known;
  return length && strchr(": \t\r\n),+-|", at[length]) && attn_variant_find_part(at, length, &known);
}

/* Does a new term begin behind this '+' or '-' among parameters? text: in the value of one that is a text. */
static bool separates(const char *begin, const char *at, bool text) {
  const char *after = expression_skip(at + 1);
  const bool apart = at > begin && blank(at[-1]), minus = *at == '-';
  double gate;
  if (at > begin && at[-1] == '=') return false; /* a sign */
  if (expression_gate(after, &gate) || (*after == '(' && !minus)) return !text || apart;
  if (*after == '(' || expression_dyadic(after)) return apart;
  if (text) return apart && blank(at[1]) && variant_ends_here(after);
  return (!minus || apart) && (*after == '_' || islower((unsigned char)*after));
}

static bool is_text(const attn_variant *v, const char *name) {
  for (const attn_param *p = v ? v->params : NULL; p && p->name; p++) {
    const size_t length = strlen(p->name);
    if (strncmp(name, p->name, length) == 0 && name[length] == '=') return p->type == ATTN_TEXT;
  }
  return false;
}

static bool has_base(const attn_variant *v) {
  for (const attn_param *p = v ? v->params : NULL; p && p->name; p++)
    if (strcmp(p->name, "base") == 0) return true;
  return false;
}

/* Is ",base=" here dyadic's? Of a variant that has such a parameter, too, only the last before the
 * parenthesis is. */
static bool ends_in_base(const char *at, const attn_variant *v) {
  const char *value = expression_base(at);
  return value && (!has_base(v) || *expression_skip(value + strcspn(value, " \t\r\n,)")) == ')');
}

const char *expression_params(const char *begin, expression_place place) {
  const char *at = begin;
  bool text = is_text(place.variant, at);
  for (int64_t nested = 0; *at; at++) {
    if (nested == 0 && *at == ')' && (place.inside || !text)) break;
    if (nested == 0 && place.dyadic && ends_in_base(at, place.variant)) break;
    if (nested == 0 && (*at == '+' || *at == '-') && separates(begin, at, text)) break;
    if (nested == 0 && *at == '|' && (!text || separates(begin, at, text))) break;
    if (*at == ',') text = is_text(place.variant, at + 1);
    nested += *at == '(' ? 1 : *at == ')' && nested ? -1 : 0;
  }
  while (at > begin && blank(at[-1])) at--;
  return at;
}

bool expression_is(const char *text) {
  const char *at = expression_skip(text);
  expression_place place = {NULL, false, false};
  double gate;
  if (*at == '(' || *at == '+' || expression_dyadic(at) || expression_gate(at, &gate)) return true;
  const size_t length = expression_name(at);
  if (!length) return false;
  attn_variant_find_part(at, length, &place.variant);
  const char *end = at + length;
  if (*end == ':') end = expression_params(end + 1, place);
  end = expression_skip(end);
  return *end && strchr("+-()*|", *end);
}
