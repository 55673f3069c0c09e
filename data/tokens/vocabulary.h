/* vocabulary.h - the tokens of a model: texts with ids, found by either. Internal to data/. */
#ifndef DATA_TOKENS_VOCABULARY_H
#define DATA_TOKENS_VOCABULARY_H

#include "data/tokens/token_map.h"

/* Longer texts are refused, so that the time to look one up is bounded. */
enum { TOKEN_BYTES_MAX = 4096, TOKENS_MAX = 1 << 28 };

/* The kind of a token; the numbers are those of GGUF and SentencePiece. */
typedef enum token_kind {
  TOKEN_NORMAL = 1,
  TOKEN_UNKNOWN,
  TOKEN_CONTROL, /* has no text */
  TOKEN_LITERAL, /* its text as it stands */
  TOKEN_UNUSED,
  TOKEN_BYTE
} token_kind;

typedef struct token {
  const char *text;
  uint32_t bytes;
  int32_t id;
  token_kind kind;
  uint32_t rank; /* of a merge into this token, where scores decide: the least comes first */
  bool added;    /* no piece of a text becomes it: the text is only cut at it */
  bool lstrip, rstrip, single_word; /* what it takes with it of blanks on either side; never part of a word */
} token;

typedef struct vocabulary {
  token *token; /* ascending in id once it is complete */
  size_t count, capacity;
  char *pool; /* the texts */
  size_t used, pool_bytes;
  uint32_t longest;  /* text, in bytes */
  token_map by_text; /* indices into token */
} vocabulary;

/* For `count` tokens whose texts have `bytes` bytes. where: the file, for messages. */
attn_status vocabulary_begin(vocabulary *, const char *where, size_t count, size_t bytes);
/* EINVAL: the text is too long. */
attn_status vocabulary_add(vocabulary *, const char *where, const char *text, size_t bytes, int64_t id,
                           token_kind);
/* EINVAL: an id, or a text that is not empty, stands there twice. */
attn_status vocabulary_end(vocabulary *, const char *where);
void vocabulary_free(vocabulary *);

/* The token of this text or id; NULL: there is none. */
token *vocabulary_find(const vocabulary *, const void *text, size_t bytes);
const token *vocabulary_at(const vocabulary *, int64_t id);

/* The largest id + 1. */
int64_t vocabulary_size(const vocabulary *);

#endif
