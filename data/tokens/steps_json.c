/* steps_json.c - normalizer and pre_tokenizer of a tokenizer.json: two lists of steps. A type is a line of a
 * table: a step as it stands, or a function that reads the type's keys. */
#include <uninorm.h>

#include "data/support/file.h"
#include "data/tokens/tokenizer_json.h"

enum { KEYS = 6 };

/* One object that is read. */
typedef struct reading {
  data_tokenizer *t;
  step_list *to;
  const char *place;
  json_t *object;
} reading;

typedef struct step_type {
  const char *name;
  attn_status (*read)(const reading *); /* NULL: the step below */
  const char *keys[KEYS];               /* besides type */
  step as;
  const char *cuts;
} step_type;

/* A blank; a digit; a mark of punctuation, as `tokenizers` knows them: ASCII's symbols are punctuation; and
 * words or what stands between them and is no blank. */
#define BLANKS "\\s"
#define DIGITS "\\p{N}"
#define MARKS "[!-/:-@\\[-`{-~\\p{P}]"
#define WORD                                                                                 \
  "\\p{L}\\p{M}\\p{Nd}\\p{Nl}\\p{Pc}\u24b6-\u24e9\U0001f130-\U0001f149\U0001f150-\U0001f169" \
  "\U0001f170-\U0001f189\u200c\u200d"
#define WORDS "[" WORD "]+|[^" WORD "\\s]+"

static attn_status add(const reading *r, step s, const char *cuts) {
  return steps_add(r->to, r->place, s, cuts);
}

/* The text of a key; presets an absent one, unless the preset is NULL. */
static attn_status read_text(const reading *r, const char *key, const char *preset, const char **out) {
  json_t *value = json_given(r->object, key);
  if (value && !json_is_string(value)) return attn_fail(ATTN_EINVAL, "%s.%s is not a text", r->place, key);
  if (!value && !preset) return attn_fail(ATTN_EINVAL, "%s: %s is missing", r->place, key);
  *out = value ? json_string_value(value) : preset;
  return ATTN_OK;
}

/* false, or what an absent key means. */
static attn_status read_flag(const reading *r, const char *key, bool preset, bool *out) {
  *out = preset;
  return json_given(r->object, key) ? json_flag(r->place, r->object, key, out) : ATTN_OK;
}

/* One that has to be there. */
static attn_status read_needed(const reading *r, const char *key, bool *out) {
  if (!json_given(r->object, key)) return attn_fail(ATTN_EINVAL, "%s: %s is missing", r->place, key);
  return json_flag(r->place, r->object, key, out);
}

/* A regular expression that matches a text and nothing else; release with free. */
static attn_status quote(const reading *r, const char *text, char **out) {
  char *to = malloc(2 * strlen(text) + 1);
  if (!to) return attn_fail(ATTN_ENOMEM, "%s: no memory for a pattern", r->place);
  *out = to;
  for (; *text; *to++ = *text++)
    if (strchr("!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~", *text)) *to++ = '\\';
  *to = '\0';
  return ATTN_OK;
}

/* A step that finds a text. */
static attn_status add_for_text(const reading *r, step s, const char *text) {
  char *cuts = NULL;
  attn_status status = quote(r, text, &cuts);
  if (status)
    free(s.text);
  else
    status = add(r, s, cuts);
  free(cuts);
  return status;
}

/* A step with a text. */
static attn_status copy_text(const reading *r, const char *text, step *s) {
  s->text = text_format("%s", text);
  return s->text ? ATTN_OK : attn_fail(ATTN_ENOMEM, "%s: no memory for a text", r->place);
}

/* pattern: {"String": ..} or {"Regex": ..}. unless: what a pattern that may match nothing cannot do, or
 * NULL. */
static attn_status add_pattern(const reading *r, step s, const char *unless) {
  json_t *given = json_given(r->object, "pattern");
  json_t *text = json_given(given, "String"), *regex = json_given(given, "Regex");
  attn_status status;
  if (json_is_string(regex))
    status = add(r, s, json_string_value(regex));
  else if (json_is_string(text))
    status = add_for_text(r, s, json_string_value(text));
  else {
    free(s.text);
    return attn_fail(ATTN_EINVAL, "%s: pattern is neither a String nor a Regex", r->place);
  }
  if (!status && unless && pattern_may_be_empty(r->to->item[r->to->count - 1].cuts))
    return attn_fail(ATTN_EUNSUPPORTED, "%s: a pattern that may match nothing is not supported, %s", r->place,
                     unless);
  return status;
}

/* ---- normalisers --------------------------------------------------------------------------------------- */

static attn_status read_bert(const reading *r) {
  bool clean = true, apart = true, lower = true, strip = true;
  attn_status status = read_flag(r, "clean_text", true, &clean);
  if (!status) status = read_flag(r, "handle_chinese_chars", true, &apart);
  if (!status) status = read_flag(r, "lowercase", true, &lower);
  if (!status) status = read_flag(r, "strip_accents", lower, &strip);
  if (!status && clean) status = add(r, (step){.apply = step_each, .each = character_clean}, NULL);
  if (!status && apart) status = add(r, (step){.apply = step_each, .each = character_apart}, NULL);
  if (!status && strip) status = add(r, (step){.apply = step_form, .form = UNINORM_NFD}, NULL);
  if (!status && strip) status = add(r, (step){.apply = step_each, .each = character_without_accents}, NULL);
  if (!status && lower) status = add(r, (step){.apply = step_each, .each = character_lower}, NULL);
  return status;
}

static attn_status read_strip(const reading *r) {
  step s = {.apply = step_strip};
  attn_status status = read_needed(r, "strip_left", &s.left);
  if (!status) status = read_needed(r, "strip_right", &s.right);
  return status ? status : add(r, s, NULL);
}

static attn_status read_prepend(const reading *r) {
  step s = {.apply = step_prepend, .where = PREPEND_ALWAYS};
  const char *text = NULL;
  attn_status status = read_text(r, "prepend", NULL, &text);
  if (!status) status = copy_text(r, text, &s);
  if (!status) r->t->prefix = true;
  return status ? status : add(r, s, NULL);
}

static attn_status read_replace(const reading *r) {
  step s = {.apply = step_replace};
  const char *text = NULL;
  attn_status status = read_text(r, "content", NULL, &text);
  if (!status) status = copy_text(r, text, &s);
  return status ? status : add_pattern(r, s, "in Replace");
}

static attn_status read_charsmap(const reading *r) {
  step s = {.apply = step_charsmap};
  const char *text = NULL;
  char *where = text_format("%s.precompiled_charsmap", r->place);
  if (!where) return ATTN_ENOMEM;
  attn_status status = read_text(r, "precompiled_charsmap", NULL, &text);
  if (!status) status = charsmap_make(where, text, &s.map);
  free(where);
  return status ? status : add(r, s, NULL);
}

static const step_type normalisers[] = {
    {"NFC", .as = {.apply = step_form, .form = UNINORM_NFC}},
    {"NFD", .as = {.apply = step_form, .form = UNINORM_NFD}},
    {"NFKC", .as = {.apply = step_form, .form = UNINORM_NFKC}},
    {"NFKD", .as = {.apply = step_form, .form = UNINORM_NFKD}},
    {"Lowercase", .as = {.apply = step_each, .each = character_lower}},
    {"StripAccents", .as = {.apply = step_each, .each = character_without_marks}},
    {"Nmt", .as = {.apply = step_each, .each = character_nmt}},
    {"BertNormalizer", .read = read_bert,
     .keys = {"clean_text", "handle_chinese_chars", "strip_accents", "lowercase"}},
    {"Strip", .read = read_strip, .keys = {"strip_left", "strip_right"}},
    {"Prepend", .read = read_prepend, .keys = {"prepend"}},
    {"Replace", .read = read_replace, .keys = {"pattern", "content"}},
    {"Precompiled", .read = read_charsmap, .keys = {"precompiled_charsmap"}},
    {.name = NULL}};

/* ---- pre-tokenisers ------------------------------------------------------------------------------------ */

static attn_status read_rule(const reading *r, const char *preset, cut_rule *out) {
  static const char *const names[] = {"Isolated", "Removed", "MergedWithPrevious", "MergedWithNext",
                                      "Contiguous"};
  const char *name = NULL;
  attn_status status = read_text(r, "behavior", preset, &name);
  for (size_t i = 0; !status && i < sizeof names / sizeof *names; i++) {
    *out = (cut_rule)i;
    if (strcmp(name, names[i]) == 0) return ATTN_OK;
  }
  return status ? status : attn_fail(ATTN_EUNSUPPORTED, "%s: behavior %s is not supported", r->place, name);
}

static attn_status read_split(const reading *r) {
  step s = {.apply = step_split};
  attn_status status = read_rule(r, NULL, &s.rule);
  if (!status) status = read_flag(r, "invert", false, &s.invert);
  return status ? status : add_pattern(r, s, s.rule > CUT_REMOVED ? "where matches join others" : NULL);
}

static attn_status read_punctuation(const reading *r) {
  step s = {.apply = step_split};
  const attn_status status = read_rule(r, "Isolated", &s.rule);
  return status ? status : add(r, s, MARKS);
}

static attn_status read_digits(const reading *r) {
  bool alone = false;
  const attn_status status = read_flag(r, "individual_digits", false, &alone);
  const step s = {.apply = step_split, .rule = alone ? CUT_ISOLATED : CUT_CONTIGUOUS};
  return status ? status : add(r, s, DIGITS);
}

static attn_status read_delimiter(const reading *r) {
  const char *text = NULL;
  attn_status status = read_text(r, "delimiter", NULL, &text);
  if (!status && !*text) status = attn_fail(ATTN_EINVAL, "%s.delimiter is empty", r->place);
  return status ? status : add_for_text(r, (step){.apply = step_split, .rule = CUT_REMOVED}, text);
}

static attn_status add_bert(const reading *r) {
  const attn_status status = add(r, (step){.apply = step_split, .rule = CUT_REMOVED}, BLANKS);
  return status ? status : add(r, (step){.apply = step_split, .rule = CUT_ISOLATED}, MARKS);
}

static attn_status add_prefix(const reading *r, const char *text, prepend_rule where) {
  step s = {.apply = step_prepend, .where = where};
  const attn_status status = copy_text(r, text, &s);
  return status ? status : add(r, s, NULL);
}

static attn_status read_metaspace(const reading *r) {
  static const char preset[] = "\u2581";
  const char *text = NULL, *scheme = NULL;
  bool prefix = true, cut = true;
  step blanks = {.apply = step_replace};
  attn_status status = read_text(r, "replacement", preset, &text);
  if (!status) status = read_flag(r, "add_prefix_space", true, &prefix);
  if (!status) status = read_text(r, "prepend_scheme", prefix ? "always" : "never", &scheme);
  if (!status) status = read_flag(r, "split", true, &cut);
  if (status) return status;
  const bool always = strcmp(scheme, "always") == 0;
  if (!*text) return attn_fail(ATTN_EINVAL, "%s.replacement is empty", r->place);
  if (!always && strcmp(scheme, "first") != 0 && strcmp(scheme, "never") != 0)
    return attn_fail(ATTN_EUNSUPPORTED, "%s: prepend_scheme %s is not supported", r->place, scheme);
  prefix = strcmp(scheme, "never") != 0;
  r->t->prefix = r->t->prefix || prefix;
  status = copy_text(r, text, &blanks);
  if (!status) status = add(r, blanks, " ");
  if (!status && prefix) status = add_prefix(r, text, always ? PREPEND_UNLESS_THERE : PREPEND_TO_FIRST);
  if (status || !cut) return status;
  return add_for_text(r, (step){.apply = step_split, .rule = CUT_WITH_NEXT}, text);
}

static attn_status read_byte_level(const reading *r) {
  bool prefix = true, cut = true;
  attn_status status = read_needed(r, "add_prefix_space", &prefix);
  if (!status) status = read_flag(r, "use_regex", true, &cut);
  return status ? status : byte_level_steps(r->to, r->place, prefix, cut ? byte_level_gpt2 : NULL);
}

static const step_type cutters[] = {
    {"ByteLevel", .read = read_byte_level, .keys = {"add_prefix_space", "trim_offsets", "use_regex"}},
    {"Split", .read = read_split, .keys = {"pattern", "behavior", "invert"}},
    {"Metaspace", .read = read_metaspace,
     .keys = {"replacement", "add_prefix_space", "prepend_scheme", "split", "str_rep"}},
    {"BertPreTokenizer", .read = add_bert},
    {"Whitespace", .as = {.apply = step_split, .rule = CUT_REMOVED, .invert = true}, .cuts = WORDS},
    {"WhitespaceSplit", .as = {.apply = step_split, .rule = CUT_REMOVED}, .cuts = BLANKS},
    {"Digits", .read = read_digits, .keys = {"individual_digits"}},
    {"Punctuation", .read = read_punctuation, .keys = {"behavior"}},
    {"CharDelimiterSplit", .read = read_delimiter, .keys = {"delimiter"}},
    {.name = NULL}};

/* ---- lists --------------------------------------------------------------------------------------------- */

static attn_status read_one(const reading *r, const step_type *type) {
  const char *known[KEYS + 1] = {"type"};
  for (int i = 0; i + 1 < KEYS && type->keys[i]; i++) known[i + 1] = type->keys[i];
  const attn_status status = json_check_keys(r->place, r->object, known);
  if (status) return status;
  return type->read ? type->read(r) : add(r, type->as, type->cuts);
}

/* sequence: the key of a Sequence's list. */
static attn_status read_list(const reading *r, const step_type *types, const char *sequence) {
  size_t i;
  json_t *each, *list = json_given(r->object, sequence);
  attn_status status = ATTN_OK;
  const char *name = json_string_value(json_given(r->object, "type"));
  if (!name) return attn_fail(ATTN_EINVAL, "%s: type is missing", r->place);
  for (const step_type *type = types; type->name; type++)
    if (strcmp(name, type->name) == 0) return read_one(r, type);
  if (strcmp(name, "Sequence") != 0)
    return attn_fail(ATTN_EUNSUPPORTED, "%s: type %s is not supported", r->place, name);
  if (!json_is_array(list)) return attn_fail(ATTN_EINVAL, "%s.%s is not a list", r->place, sequence);
  json_array_foreach(list, i, each) {
    char *inner = status ? NULL : text_format("%s[%zu]", r->place, i);
    if (!status)
      status = inner ? read_list(&(reading){r->t, r->to, inner, each}, types, sequence) : ATTN_ENOMEM;
    free(inner);
  }
  return status;
}

static attn_status read_part(data_tokenizer *t, json_t *file, const char *key, step_list *to,
                             const step_type *types, const char *sequence) {
  char place[JSON_PLACE];
  json_t *object = json_given(file, key);
  snprintf(place, sizeof place, "%s: %s", t->file, key);
  return object ? read_list(&(reading){t, to, place, object}, types, sequence) : ATTN_OK;
}

attn_status read_steps(data_tokenizer *t, json_t *file) {
  const attn_status status = read_part(t, file, "normalizer", &t->normaliser, normalisers, "normalizers");
  return status ? status : read_part(t, file, "pre_tokenizer", &t->cutter, cutters, "pretokenizers");
}
