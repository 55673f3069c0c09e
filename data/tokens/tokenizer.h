/* tokenizer.h - a tokenizer as its parts share it: one of tokenizer.json, whose text goes through steps to a
 * model, or SentencePiece's BPE. Internal to data/. */
#ifndef DATA_TOKENS_TOKENIZER_H
#define DATA_TOKENS_TOKENIZER_H

#include "data/data.h"
#include "data/formats/gguf.h"
#include "data/tokens/buffer.h"
#include "data/tokens/literals.h"
#include "data/tokens/merge_pairs.h"
#include "data/tokens/steps.h"

typedef struct merge_pair {
  int32_t left, right; /* ids: the key of a table, 8 bytes */
  int32_t into;
} merge_pair;

typedef struct encoder encoder;
typedef attn_status piece_model(encoder *, const uint8_t *text, size_t bytes);

/* A way to encode and decode. */
typedef struct tokenizer_kind {
  piece_model *encode; /* a whole text */
  /* Appends a token's bytes. */
  attn_status (*decode)(const data_tokenizer *, const token *, buffer *);
} tokenizer_kind;

struct data_tokenizer {
  const tokenizer_kind *kind;
  char *file; /* for messages */
  vocabulary words;
  int64_t bos;          /* or -1 */
  int64_t unknown;      /* or -1 */
  int32_t byte_id[256]; /* the token of a byte, or -1 */
  literals plain;       /* looked for in a text as it is */
  bool prefix;          /* a blank is put before a text */
  /* tokenizer.json */
  step_list normaliser, cutter;
  literals normalised; /* looked for after the normaliser */
  char *normalised_text;
  piece_model *model;
  /* BPE */
  bool ignore_merges, fuse_unknown;
  char *continuing, *ending; /* put before all characters of a piece but the first, and behind the last; or
                              * NULL. The first is WordPiece's, too. */
  merge_pair *pair;          /* in the order of their ranks */
  size_t pairs;
  token_map by_pair;
  /* WordPiece, Unigram */
  literals pieces, continued; /* where a piece begins, and later, without the prefix */
  int64_t characters;         /* a longer piece is unknown */
  double *score;              /* by id */
  double unknown_score;
};

/* One text on its way to ids. */
struct encoder {
  const data_tokenizer *t;
  merge_work merge;
  pattern_work *match;
  const uint8_t *whole; /* where the text begins; and where its first piece does after the normaliser */
  const uint8_t *start;
  int64_t *id;
  size_t count, capacity;
};

attn_status encoder_put(encoder *, int64_t id);
/* EINVAL: there is no such token; the character of the text goes into the message. */
attn_status encoder_put_unknown(encoder *, const uint8_t *character, size_t bytes);
/* Whether each byte has a token; then these are put. */
bool encoder_has_bytes(const encoder *, const uint8_t *at, size_t bytes);

/* Cuts at literals, whose ids it puts; the pieces between them go to encode. */
attn_status encoder_cut(encoder *, const literals *, const uint8_t *text, size_t bytes, piece_model *encode);

/* A tokenizer without tokens. */
attn_status tokenizer_begin(const char *file, const tokenizer_kind *, data_tokenizer **);

/* The token that a piece, or part of one, can become. */
const token *tokenizer_find(const data_tokenizer *, const void *text, size_t bytes);

/* tokenizer_json.c: ENOTFOUND if the directory has no tokenizer.json; tokenizer_gguf.c */
attn_status tokenizer_open_json(const char *directory, data_tokenizer **);
attn_status tokenizer_open_gguf(const char *path, data_tokenizer **);

/* The models: each puts the ids of a piece. */
attn_status bpe_encode(encoder *, const uint8_t *text, size_t bytes);       /* bpe.c */
attn_status wordpiece_encode(encoder *, const uint8_t *text, size_t bytes); /* wordpiece.c */
attn_status unigram_encode(encoder *, const uint8_t *text, size_t bytes);   /* unigram.c */

/* The text through normaliser and cutter to the model. */
attn_status encode_by_steps(encoder *, const uint8_t *text, size_t bytes);

/* bpe_parts.c: what ByteLevel does, cuts being its pattern or NULL; room for merges, then each, "a b" or in
 * two texts. `where`: the key of the list, for messages. */
attn_status byte_level_steps(step_list *, const char *place, bool prefix, const char *cuts);
extern const char byte_level_gpt2[]; /* GPT-2's pattern */
attn_status bpe_merges(data_tokenizer *, size_t count);
attn_status bpe_merge(data_tokenizer *, const char *where, size_t i, const char *left, size_t left_bytes,
                      const char *right, size_t right_bytes);
attn_status bpe_merge_text(data_tokenizer *, const char *where, size_t i, const char *text, size_t bytes);

/* byte_level_gguf.c: of the pieces of a GGUF file, which have no scores. */
attn_status byte_level_open_gguf(const gguf *, const data_sentencepiece *, data_tokenizer **);
/* Whether a text begins with the first token where tokenizer.ggml.add_bos_token does not say. */
bool byte_level_begins(const gguf *);

/* byte_level.c: GPT-2's alphabet, the character that encodes a byte, as UTF-8 of 1 or 2 bytes. Returns the
 * length. */
size_t byte_level_letter(uint8_t byte, char out[2]);
extern const tokenizer_kind byte_level;

/* sentencepiece.c: the tokens, and which of them a text is cut at; the byte that "<0xNN>" names, or -1. */
attn_status tokenizer_pieces(data_tokenizer *, const data_sentencepiece *);
int piece_byte(const char *text, size_t bytes);
attn_status piece_decode(const data_tokenizer *, const token *, buffer *);

#endif
