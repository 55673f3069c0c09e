/* drawn_problem.h - a problem of attnlab test as a list of numbers: what it is, and how it is run; and that
 * as a text that the command reads back. */
#ifndef EXPERIMENTS_CONFORMANCE_DRAWN_PROBLEM_H
#define EXPERIMENTS_CONFORMANCE_DRAWN_PROBLEM_H

#include "attn_variant.h"

typedef enum {
  FIELD_N_Q,
  FIELD_N_KV,
  FIELD_D,
  FIELD_D_V,
  FIELD_BATCH,
  FIELD_HEADS,
  FIELD_KV_HEADS,
  FIELD_DTYPE,   /* attn_dtype */
  FIELD_CAUSAL,  /* 0 or 1, as are lse, watched and later */
  FIELD_PADDING, /* problem_padding */
  FIELD_SCORE,   /* problem_score */
  FIELD_MASK,    /* attn_mask_kind */
  FIELD_SCALE,   /* problem_scale */
  FIELD_VALUES,  /* problem_values */
  FIELD_LAYOUT,  /* layout_kind */
  FIELD_LSE,     /* the log-sum-exp is wanted */
  FIELD_WATCHED, /* by attn_plan_verify */
  FIELD_LATER,   /* the plan has been executed on other numbers */
  FIELD_THREADS,
  FIELD_ISA, /* place in attn_isa_list */
  FIELD_SEED,
  FIELDS
} problem_field;

typedef enum { PADDING_NONE, PADDING_EACH, PADDING_LAST, PADDING_EMPTY, PADDINGS } problem_padding;
/* far: scores of which exponentials without their maximum overflow. */
typedef enum { SCALE_ROOT, SCALE_ZERO, SCALE_NEGATIVE, SCALE_LARGE, SCALE_FAR, SCALES } problem_scale;
typedef enum {
  VALUES_ORDINARY,
  VALUES_LARGE,
  VALUES_SMALL,
  VALUES
} problem_values; /* a million times as ... */
typedef enum {
  SCORE_NONE,
  SCORE_SOFTCAP,
  SCORE_LEAKY,
  SCORE_ALIBI,    /* a bias of the distance for each head */
  SCORE_RELATIVE, /* one for all heads, of few distances */
  SCORE_BIAS,     /* dense, the same for all heads */
  SCORE_HIDDEN, /* dense, of each batch entry and head, with -Inf: here and there, in stretches, everywhere */
  SCORE_SINK,
  SCORE_SOFTCAP_BIAS,
  SCORE_LEAKY_ALIBI_SINK,
  SCORE_SOFTCAP_HIDDEN,
  SCORE_SOFTCAP_ALIBI,
  SCORE_SOFTCAP_SINK,
  SCORE_BIAS_SINK, /* the bias is of each head, the same for all batch entries */
  SCORE_HIDDEN_RELATIVE,
  SCORES
} problem_score;

typedef struct problem {
  int64_t value[FIELDS];
} problem;

/* One query and key of one head, of width 1, and nothing else. */
problem problem_plain(void);

enum { PROBLEM_TEXT = 320 };
/* "n_q=1,n_kv=3,d=1,d_v=1,causal=yes": what differs from the plain one, and these sizes always. */
void problem_print(const problem *, char[PROBLEM_TEXT]);
/* EINVAL names what is wrong. */
attn_status problem_parse(const char *, problem *);
/* The same for readers: "n_q = 1, n_kv = 3, d = 1, d_v = 1, causal". */
void problem_words(const problem *, char[PROBLEM_TEXT]);
/* Do its heads divide? EINVAL. */
attn_status problem_check(const problem *);

#endif
