/* internal.h - what the files of core/ share and variants do not see. */
#ifndef ATTN_CORE_INTERNAL_H
#define ATTN_CORE_INTERNAL_H

#include "core/kernels/kernels.h"

#include "attn_variant.h"

/* A growing region released as a whole; every piece is 64-byte aligned. */
typedef struct attn_arena {
  attn_allocator allocator;
  struct arena_chunk *chunks;
  struct arena_handle *handles; /* foreign ones, released first */
  size_t bytes;                 /* obtained from the allocator */
} attn_arena;

void *attn_arena_alloc(attn_arena *, int64_t count, size_t size); /* NULL with the error recorded */
void attn_arena_free(attn_arena *);
/* Released with the arena, or at once if this fails. */
attn_status attn_arena_own(attn_arena *, void *handle, void (*release)(void *handle));

struct attn_builder {
  attn_context context;
  attn_arena *arena, *scratch;
};

/* As attn_builder_plan and attn_context_estimate, of a parsed spec. */
attn_status attn_builder_plan_spec(attn_builder *, const attn_problem *, const attn_spec *,
                                   const attn_plan **);
attn_status attn_context_estimate_spec(const attn_context *, const attn_problem *, const attn_spec *,
                                       size_t *work_size, attn_cost *);

extern const attn_allocator attn_allocator_libc;

/* The kernels and the number of threads that options (or NULL) ask for. */
attn_status attn_options_resolve(const attn_options *, attn_dtype, const attn_kernels **, int *threads);

/* The block sizes that options (or NULL) ask for, else those that fit this machine's caches; EINVAL: the
 * options' are out of range. */
attn_status attn_blocks_resolve(const attn_options *, const attn_kernels *, int64_t d_qk, int64_t d_v,
                                attn_blocks *);
/* Those that fit caches of l1 and l2 bytes. */
attn_blocks attn_blocks_for(const attn_kernels *, int64_t d_qk, int64_t d_v, int64_t l1, int64_t l2);

/* The size that the C library reported if a cache can have it, else that in the files directory/index*, else
 * an assumed one. */
attn_cache attn_cache_decide(int level, int64_t reported, const char *directory);

/* Check the numbers of a problem's score and mask: scalars; those in arrays. EINVAL names the field. */
/* Whether elements of a tensor of these counts and strides have addresses. */
attn_status attn_strides_fit(const char *name, int64_t extents[3][2]);
attn_status attn_score_check(const attn_problem *);
attn_status attn_mask_check(const attn_problem *);
attn_status attn_score_check_arrays(const attn_problem *);
/* Copies into the arena what a plan keeps of them. */
attn_status attn_score_keep(attn_problem *, attn_arena *);
/* Reads the filters of a rule, if its score has any, into the arena. EINVAL: the file is of other heads. */
attn_status attn_kv_read_filters(attn_kv_rule *, const attn_problem *, attn_arena *);
/* The mean scores of the chunks that may go when this position arrives, by ascending position; keys as for
 * attn_kv_arrive. */
void attn_kv_chunk_scores(attn_kv_head *, int64_t position, const double *keys, double *out);
/* The budgets of kv heads that share, from these scores when position `prompt` arrives: those of a head are a
 * row of the given length, and are sorted. */
void attn_kv_share(const attn_kv_rule *, int64_t heads, int64_t row, double *scores, int64_t *budget);

/* The variant whose name is the first letters of a text; whether there is one. */
bool attn_variant_find_part(const char *name, size_t length, const attn_variant **);
attn_status attn_variant_not_found(const char *name, size_t length); /* ENOTFOUND, with the near name */

/* The problem with outputs packed in the type of the arithmetic, if they are stored in another: of parts,
 * which are rounded once, joined. And from there, [batch, heads, n_q, d_v], to where the call wants them. */
attn_problem attn_problem_unrounded(const attn_problem *);
void attn_store_outputs(const attn_call *, const void *o);

/* The strides of attn_gradients.d_o, resolved; EINVAL: they are not strides, or of another type. */
attn_status attn_gradient_stride(const attn_problem *, attn_stride *);

/* -- the gradients by biases (engines/softmax/bias_back.c), of one head after the other, or of those that
 * share a tile, and of their queries in slices -- */

enum { ATTN_BIAS_SLICES = 16 };
typedef struct attn_bias_sums {
  int64_t lines;    /* of a slice: heads with tables apart */
  double *relative; /* [slice][line][span] of the heads that are taken */
} attn_bias_sums;
static inline bool attn_biases_wanted(const attn_gradients *g) { return g->drelative || g->ddense; }
/* EINVAL: the problem has no such bias. */
attn_status attn_biases_check(const attn_problem *, const attn_gradients *);
void attn_biases_clear(const attn_problem *, const attn_gradients *);
/* heads: most that are taken at a time. */
attn_bias_sums attn_biases_carve(const attn_problem *, int64_t heads, attn_carver *);
/* By all threads of a team: before the first heads, and after each `heads` of them from `first` on. */
void attn_biases_begin(const attn_bias_sums *, const attn_problem *);
void attn_biases_end(const attn_bias_sums *, const attn_problem *, const attn_gradients *, int64_t first,
                     int64_t heads);
/* dy by the score of a pair. The problem has the positions of its batch entry and head. */
void attn_biases_add(const attn_bias_sums *, const attn_problem *, const attn_gradients *, int64_t slice,
                     int64_t batch, int64_t first, int64_t head, int64_t i, int64_t key, double dy);

/* Does a variant take the problem of its context? */
attn_status attn_context_check(const attn_context *);

/* As attn_plan_backward_size, where that is more than *bytes. */
attn_status attn_plan_backward_most(const attn_plan *, size_t *bytes);

/* -- parts and engines (described_parts.c) -- */

/* One way to compute attention from parts; core/engines.def lists them. At most one accepts any parts. */
typedef struct attn_engine {
  const char *name;
  bool (*accepts)(const attn_parts *); /* of the kinds of parts alone */
  attn_method method;
} attn_engine;

enum { /* attn_parts_kinds */
       ATTN_PART_PATTERN = 1u << 0,
       ATTN_PART_SELECTOR = 1u << 1,
       ATTN_PART_FEATURES = 1u << 2,
       ATTN_PART_PROJECTION = 1u << 3,
       ATTN_PART_STORE = 1u << 4,
       ATTN_PART_RECURRENCE = 1u << 5,
       ATTN_PART_TOEPLITZ = 1u << 6,
       ATTN_PART_NORMALISER = 1u << 7,
       ATTN_PART_PICKED = 1u << 8,
       ATTN_PART_LANDMARKS = 1u << 9,
       ATTN_PART_POOLING = 1u << 10,
};
unsigned attn_parts_kinds(const attn_parts *);
/* The parts of the context's variant, checked, with their method. builder: NULL for their sizes. */
attn_status attn_describe(attn_builder *, const attn_context *, attn_parts *);
attn_status attn_parts_work_size(const attn_context *, const attn_parts *, size_t *bytes);
/* Lists of exemptions as one, in the plan's memory; NULL if they are empty. */
attn_status attn_join_exemptions(attn_builder *, const attn_exemption *const *lists, int64_t count,
                                 const attn_exemption **);
/* What there is to see of parts, before their method's inspect adds to it. */
attn_view attn_parts_view(const attn_variant *, const attn_parts *);

/* EINVAL: "execute: q must not be NULL". */
attn_status attn_null(const char *function, const char *argument);

/* Before threads are started: refused in a process that was forked when there were some, of which it has
 * none. */
attn_status attn_threads_enter(int threads);

/* What to change in a variant for an older interface. */
#define ATTN_ABI_CHANGE                                                         \
  "since interface 9 .describe takes the place of .pattern, .features, .plan, " \
  ".work_size, .execute and .inspect"
/* EINVAL where what a variant says of itself cannot be followed; EABI: it was built for another interface. */
attn_status attn_variant_check(const attn_variant *);
attn_status attn_pattern_check(const char *variant, const attn_pattern *);
attn_status attn_view_check(const attn_variant *, const attn_view *);
attn_status attn_rounding_check(const char *variant, const attn_problem *, const attn_rounding *);

/* Where a pattern's row writes its runs, with room behind them in which one too many is seen. */
typedef struct attn_pattern_reader {
  const char *variant;
  const attn_pattern *pattern; /* NULL: every key */
  const attn_problem *problem;
  attn_run *runs;
  int64_t *open;
} attn_pattern_reader;
size_t attn_pattern_reader_bytes(const attn_pattern *, const attn_problem *);
/* memory: attn_pattern_reader_bytes bytes, aligned for int64_t. */
attn_pattern_reader attn_pattern_reader_make(const char *variant, const attn_pattern *, const attn_problem *,
                                             void *memory);
/* The runs of query row i, as attn_pattern_row gives them, if they keep the contract of attn_pattern.row;
 * else EINVAL with the query and the run. */
attn_status attn_pattern_read(const attn_pattern_reader *, int64_t head, int64_t i, int64_t *count);
/* Every row of every head twice: EINVAL as above, EFOREIGN where it is not the same again. */
attn_status attn_pattern_verify(const char *variant, const attn_pattern *, const attn_problem *);
/* The softmax engine within others. pattern: NULL for every key; the context's problem may be an inner
 * one. */
attn_status attn_softmax_prepare(attn_builder *, const attn_pattern *, attn_tiling, void **state);
size_t attn_softmax_size(const attn_context *, const attn_pattern *, attn_tiling);
attn_status attn_softmax_execute(const void *state, const attn_call *);
/* Its gradients, from the call's o and lse; and the bytes of work memory that they need. */
attn_status attn_softmax_backward(const void *state, const attn_call *, const attn_gradients *);
size_t attn_softmax_back_size(const attn_context *, const attn_pattern *, attn_tiling);
/* Asks for the selections of an execution again, one after the other: its prepared keys are still in the
 * call's work memory. */
typedef struct attn_picker {
  const attn_call *call; /* NULL: not made yet */
  const void *state;
  void *memory, *scratch;
  attn_picks picks;
  attn_block block; /* whose picks these are */
} attn_picker;
/* The names and shapes of a call's extra tensors; index: that of its selector. */
attn_status attn_extras_check(const attn_index *index, const attn_call *);
/* Does a plan heed attn_call.settled? */
bool attn_plan_settles(const attn_plan *);
/* The problem whose keys and values are stored, one row after the other; those of schemes as they are
 * decoded, in the type of the arithmetic; with a residual, as they are given. */
attn_problem attn_stored_problem(const attn_problem *, const attn_kv_store *);
/* Multiply-adds of its schemes: each row is multiplied by R and S, and by their transposes. */
double attn_kv_products(const attn_problem *, const attn_kv_store *);
extern const attn_engine attn_engine_softmax, attn_engine_selection, attn_engine_residual;
size_t attn_selection_picker_bytes(const attn_context *, const attn_selector *);
attn_picker attn_selection_picker(const void *state, const attn_call *, void *memory);
/* The runs of query row i, causality included. Returns their number. */
int64_t attn_picker_row(attn_picker *, int64_t batch, int64_t head, int64_t i, attn_run *runs);
/* What is wrong with a selection. OWNED: it says to mind what terms before it own, and does not. */
typedef enum attn_picks_fault {
  ATTN_PICKS_SOUND,
  ATTN_PICKS_NEGATIVE,
  ATTN_PICKS_MANY,
  ATTN_PICKS_STEP,
  ATTN_PICKS_EMPTY,
  ATTN_PICKS_ORDER,
  ATTN_PICKS_BEYOND,
  ATTN_PICKS_WEIGHT,
  ATTN_PICKS_KEYS,
  ATTN_PICKS_OWNED,
  ATTN_PICKS_FAULTS
} attn_picks_fault;
/* Of selection i. A join that finds a term's selection at fault stores NOTED + the fault instead of its
 * number of runs. */
#define ATTN_PICKS_NOTED (INT64_MIN / 2)
attn_picks_fault attn_picks_check(const attn_selector *, int64_t n_kv, const attn_picks *, int64_t i);
/* The same in words; NULL: it is sound. */
const char *attn_picks_error_text(const attn_selector *, int64_t n_kv, const attn_picks *, int64_t i);
/* What causality leaves of `count` runs of a pattern, as attn_pattern_row gives them, and of a selection, in
 * place. Return their number. */
int64_t attn_pattern_clip(const attn_problem *, int64_t i, attn_run *runs, int64_t count);
int64_t attn_picks_clip(const attn_problem *, int64_t i, attn_run *runs, int64_t count);
/* From runs of positions to those of the keys that stand there, in place; only runs of step 1, the others
 * stay. Returns their number. */
int64_t attn_runs_to_keys(const attn_problem *, attn_run *runs, int64_t count);
/* Is the mask a user's graph that gives each query one run of keys, in all heads the same? */
bool attn_mask_is_band(const attn_mask *);
/* The positions *first ... *end - 1 of attn_visible_span; the first key that stands at a position or after
 * it. */
void attn_visible_positions(const attn_problem *, int64_t i, int64_t *first, int64_t *end);
int64_t attn_key_at(const attn_problem *, int64_t position);

#endif
