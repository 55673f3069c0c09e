/* charsmap.h - SentencePiece's compiled map of characters. Internal to data/. */
#ifndef DATA_TOKENS_CHARSMAP_H
#define DATA_TOKENS_CHARSMAP_H

#include "attn.h"

typedef struct charsmap charsmap;

/* From its bytes in base64 (tokenizer.json's precompiled_charsmap). where: the file and the key, for
 * messages. EINVAL: not such a map. */
attn_status charsmap_make(const char *where, const char *base64, charsmap **);
void charsmap_free(charsmap *);

/* What stands for the shortest key that begins the text; NULL: there is none. */
const char *charsmap_find(const charsmap *, const uint8_t *text, size_t bytes);

#endif
