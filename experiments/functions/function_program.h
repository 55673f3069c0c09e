/* function_program.h - the program that computes a function: what it declares, and calls of it. */
#ifndef EXPERIMENTS_FUNCTIONS_FUNCTION_PROGRAM_H
#define EXPERIMENTS_FUNCTIONS_FUNCTION_PROGRAM_H

#include "attn_variant.h"
#include "experiments/instruments/dialogue.h"

enum { FUNCTION_NAME = 48, FUNCTION_SPEC = 512, FUNCTION_LINE = 4096, FUNCTION_DIGEST = 65, PROPERTIES = 9 };

/* What a function takes. */
enum {
  TAKES_CAUSAL = 1 << 0,
  TAKES_FULL = 1 << 1,   /* attention that is not causal */
  TAKES_CROSS = 1 << 2,  /* another number of queries than of keys */
  TAKES_GROUPS = 1 << 3, /* fewer heads of keys than of queries */
  TAKES_WIDTHS = 1 << 4, /* values of another width than keys */
  TAKES_SCALE = 1 << 5,  /* another scale than 1/sqrt(d) */
  TAKES_KV_LEN = 1 << 6,
  TAKES_LAST = 1 << 7, /* under a causal mask the last query stands at the last key */
  TAKES_F32 = 1 << 8,
  TAKES_F64 = 1 << 9,
  TAKES_EMPTY = 1 << 10, /* batch entries without a key, with kv_len */
  TAKES_F16 = 1 << 11,   /* f32, which is rounded to these at any step */
  TAKES_BF16 = 1 << 12,
  TAKES_SEES = 1 << 13,       /* it says which keys a query sees */
  TAKES_SEES_HEADS = 1 << 14, /* ... others in each head */
  TAKES_DRAWN = 1 << 15,      /* outputs are draws, of which the mean alone is known */
};

typedef struct function_program {
  dialogue talk;
  int file;     /* the memory that is shared with the program */
  char *memory; /* as far as it is mapped */
  size_t mapped;
  double limit;
  uint32_t takes;
  attn_exemption exempt[PROPERTIES + 1];         /* ends with one of no reason */
  char *reasons;                                 /* of these */
  attn_dtype arithmetic;                         /* of f32: ATTN_F32, or the 16 bits that it is rounded to */
  char digest[FUNCTION_DIGEST];                  /* of its source, as the program says; "": it does not */
  char name[FUNCTION_NAME], spec[FUNCTION_SPEC]; /* spec: that it claims to be; "": exact attention */
} function_program;

/* EINVAL, EFOREIGN: what it answered is no declaration. Nothing is to be ended after a failure. */
attn_status function_program_start(const char *operand, double limit, function_program *);
/* The exit code of the program, 0 where it has none. */
int function_program_end(function_program *);

/* One call. EUNSUPPORTED: the function refuses the problem, with its reason; EFOREIGN: it broke its contract,
 * did not answer, or ended. */
attn_status function_program_call(function_program *, const attn_call *);
/* out [n, n] <- 1 where the query at position i of a head sees key j, else 0, as the function says. */
attn_status function_program_sees(function_program *, int64_t n, int64_t head, uint8_t *out);
/* Has it ended, or not answered a call, of this process or a forked one? Then it is called no more. */
bool function_program_lost(const function_program *);

#endif
