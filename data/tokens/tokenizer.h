/* tokenizer.h - a tokenizer as its parts share it: byte-level BPE and SentencePiece's BPE. Internal to
 * data/. */
#ifndef DATA_TOKENS_TOKENIZER_H
#define DATA_TOKENS_TOKENIZER_H

#include "data/data.h"
#include "data/formats/gguf.h"
#include "data/tokens/literals.h"
#include "data/tokens/merge_pairs.h"
#include "data/tokens/regex.h"

enum { STEPS_MAX = 16 };

/* A step of cutting a text into pieces that are encoded by themselves. */
typedef struct split_step {
  bool prefix;   /* a piece that does not begin with a blank gets one */
  pattern *cuts; /* or NULL */
} split_step;

typedef struct merge_pair {
  int32_t left, right; /* ids: the key of a table, 8 bytes */
  int32_t into;
} merge_pair;

typedef struct encoder encoder;

/* One of the two ways to encode. */
typedef struct tokenizer_kind {
  attn_status (*encode)(encoder *, const uint8_t *text, size_t bytes);
  /* Appends a token's bytes. */
  attn_status (*decode)(const data_tokenizer *, const token *, void *to);
} tokenizer_kind;

struct data_tokenizer {
  const tokenizer_kind *kind;
  char *file; /* for messages */
  vocabulary words;
  int64_t bos;          /* or -1 */
  int32_t byte_id[256]; /* the token of a byte, or -1 */
  literals plain;       /* looked for in a text as it is */
  /* byte-level BPE */
  literals normalised; /* looked for after Unicode's normalisation */
  bool nfc, ignore_merges;
  split_step step[STEPS_MAX];
  int steps;
  merge_pair *pair; /* in the order of their ranks */
  size_t pairs;
  token_map by_pair;
  /* SentencePiece */
  bool prefix;
  int64_t unknown; /* or -1 */
};

/* One text on its way to ids. */
struct encoder {
  const data_tokenizer *t;
  merge_work merge;
  pattern_work *match;
  int64_t *id;
  size_t count, capacity;
};

attn_status encoder_put(encoder *, int64_t id);

/* Cuts at literals, whose ids it puts; the pieces between them go to encode. */
attn_status encoder_cut(encoder *, const literals *, const uint8_t *text, size_t bytes,
                        attn_status (*encode)(encoder *, const uint8_t *, size_t));

/* Appends to what a text is decoded to. */
attn_status decoder_put(void *to, const void *at, size_t bytes);

/* A tokenizer without tokens. */
attn_status tokenizer_begin(const char *file, const tokenizer_kind *, data_tokenizer **);

/* sentencepiece.c: the tokens, and which of them a text is cut at. */
attn_status tokenizer_pieces(data_tokenizer *, const data_sentencepiece *);

/* tokenizer_json.c: ENOTFOUND if the directory has no tokenizer.json; tokenizer_gguf.c */
attn_status tokenizer_open_json(const char *directory, data_tokenizer **);
attn_status tokenizer_open_gguf(const char *path, data_tokenizer **);

extern const tokenizer_kind byte_level; /* byte_level.c */

/* GPT-2's pattern. */
extern const char byte_level_gpt2[];

/* byte_level_parts.c, of which files give a tokenizer's parts: a step behind those that are there, which cuts
 * nothing if cuts is NULL; room for merges, then each, "a b" or in two texts; the tokens of bytes. `where`:
 * the key of the list, for messages. */
attn_status byte_level_step(data_tokenizer *, const char *place, bool prefix, const char *cuts);
attn_status byte_level_merges(data_tokenizer *, size_t count);
attn_status byte_level_merge(data_tokenizer *, const char *where, size_t i, const char *left,
                             size_t left_bytes, const char *right, size_t right_bytes);
attn_status byte_level_merge_text(data_tokenizer *, const char *where, size_t i, const char *text,
                                  size_t bytes);
void byte_level_bytes(data_tokenizer *);

/* byte_level_gguf.c: of the pieces of a GGUF file, which have no scores. */
attn_status byte_level_open_gguf(const gguf *, const data_sentencepiece *, data_tokenizer **);

/* GPT-2's alphabet: the character that encodes a byte, as UTF-8 of 1 or 2 bytes. Returns the length. */
size_t byte_level_letter(uint8_t byte, char out[2]);

#endif
