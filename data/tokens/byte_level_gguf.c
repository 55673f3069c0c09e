/* byte_level_gguf.c - byte-level BPE of a GGUF file. How a text is cut into pieces stands in no file: the key
 * tokenizer.ggml.pre has a name for the patterns that the model's tokenizer.json has. */
#include <inttypes.h>
#include <string.h>

#include "data/support/config_value.h"
#include "data/tokens/tokenizer.h"

/* A digit, a letter of either case, and what follows words. */
#define WORDS "[^\\r\\n\\p{L}\\p{N}]?\\p{L}+"
#define REST "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
#define ENDINGS "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
#define UPPER "[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]"
#define LOWER "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]"
#define BEFORE "[^\\r\\n\\p{L}\\p{N}]?"
#define CASES(ending) BEFORE UPPER "*" LOWER "+" ending "|" BEFORE UPPER "+" LOWER "*" ending
#define CASES_REST "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"

#define LLAMA3 ENDINGS "|" WORDS "|\\p{N}{1,3}" REST

/* names: of the patterns, each with a blank behind it. */
typedef struct cutting {
  const char *names;
  bool digits_first; /* every digit is a piece */
  bool whole;        /* a piece that is a token is not merged */
  bool begins;       /* a text begins with the first token, where no key says otherwise */
  const char *cuts;  /* NULL: GPT-2's */
} cutting;

static const cutting known[] = {
    {"gpt-2 gpt2 phi-2 olmo mpt jais dolly jina-v2-en ", .cuts = NULL},
    {"smollm starcoder refact command-r exaone codeshell minerva-7b ", .digits_first = true},
    {"llama-bpe llama3 llama-v3 falcon3 ", .whole = true, .begins = true, .cuts = LLAMA3},
    {"dbrx smaug-bpe ", .cuts = LLAMA3},
    {"qwen2 deepseek-r1-qwen stablelm2 megrez ", .cuts = ENDINGS "|" WORDS "|\\p{N}" REST},
    {"tekken ", .whole = true, .begins = true, .cuts = CASES("") "|\\p{N}" CASES_REST},
    {"gpt-4o llama4 ", .cuts = CASES(ENDINGS "?") "|\\p{N}{1,3}" CASES_REST},
};

static const cutting *find_cutting(setting name) {
  for (size_t i = 0; i < sizeof known / sizeof *known; i++)
    for (const char *at = known[i].names; *at; at += strcspn(at, " ") + 1)
      if (name.kind == SETTING_TEXT && name.bytes == strcspn(at, " ") &&
          memcmp(at, name.text, name.bytes) == 0)
        return &known[i];
  return NULL;
}

bool byte_level_begins(const gguf *file) {
  const cutting *c = find_cutting(gguf_get(file, "tokenizer.ggml.pre"));
  return c && c->begins;
}

static attn_status cut_as(data_tokenizer *t, setting name, bool prefix) {
  static const char key[] = "tokenizer.ggml.pre";
  const cutting *c = find_cutting(name);
  if (name.kind != SETTING_TEXT)
    return attn_fail(ATTN_EUNSUPPORTED, "%s: %s is missing: nothing says how a text is cut", t->file, key);
  if (!c)
    return attn_fail(ATTN_EUNSUPPORTED, "%s: %s is %.*s, whose patterns are not known", t->file, key,
                     (int)(name.bytes < 64 ? name.bytes : 64), name.text);
  t->ignore_merges = c->whole;
  const attn_status status =
      c->digits_first ? steps_add(&t->cutter, t->file, (step){.apply = step_split}, "\\p{N}") : ATTN_OK;
  return status ? status : byte_level_steps(&t->cutter, t->file, prefix, c->cuts ? c->cuts : byte_level_gpt2);
}

static attn_status add_merges(data_tokenizer *t, gguf_list list) {
  static const char key[] = "tokenizer.ggml.merges";
  if (!list.at) return attn_fail(ATTN_EINVAL, "%s: %s is missing, or no list", t->file, key);
  attn_status status = bpe_merges(t, list.count);
  for (size_t i = 0, count = list.count; !status && i < count; i++) {
    const setting s = gguf_next(&list);
    if (s.kind != SETTING_TEXT) return attn_fail(ATTN_EINVAL, "%s: %s[%zu] is not a text", t->file, key, i);
    status = bpe_merge_text(t, key, i, s.text, s.bytes);
  }
  return status;
}

attn_status byte_level_open_gguf(const gguf *file, const data_sentencepiece *s, data_tokenizer **out) {
  data_tokenizer *t = NULL;
  attn_status status = tokenizer_begin(s->file, &byte_level, &t);
  if (!status) status = tokenizer_pieces(t, s);
  if (!status) status = cut_as(t, gguf_get(file, "tokenizer.ggml.pre"), s->prefix);
  if (!status) status = add_merges(t, gguf_get_list(file, "tokenizer.ggml.merges"));
  if (status) {
    data_tokenizer_close(t);
    return status;
  }
  t->model = bpe_encode;
  *out = t;
  return ATTN_OK;
}
