/* target.h - scores and masks parsed from their texts. Internal to data/sources. */
#ifndef DATA_SOURCES_TARGET_H
#define DATA_SOURCES_TARGET_H

#include "data/data.h"

typedef struct target_score_params {
  double softcap, leaky;
  int alibi;
  const char *t5, *bias, *sink; /* "": none */
} target_score_params;

/* kind says which of the others is meant. */
typedef struct target_mask_params {
  attn_mask_kind kind;
  int64_t size;
  attn_int_list at; /* one: the size of every document; more: where each begins */
  const char *file;
} target_mask_params;

/* *out: NULL of none. */
attn_status target_score_read(const char *text, target_score_params **out);
attn_status target_mask_read(const char *text, target_mask_params **out);
void target_score_free(target_score_params *);
void target_mask_free(target_mask_params *);

/* Where a number or a file may stand: is it a number? */
bool target_number(const char *text, double *number);

#endif
