/* verify.c - attn_plan_verify: the same bits as an execution, of every variant; and each thing that a variant
 * may do to memory is found, by the name of the function and the place. */
#include "tests/support/core.h"

/* -- sound variants -- */

static void *verified(const attn_plan *plan, const inputs *in) {
  attn_tensors x = tensors_of(in);
  x.o = calloc(output_count(&in->problem), 8);
  cr_assert_not_null(x.o);
  if (verify_tensors(plan, x)) note_failure("%s", attn_last_error());
  return x.o;
}

static void every_setting(case_shape shape, attn_dtype dtype) {
  attn_problem problem = shape_problem(shape, dtype);
  for (size_t v = 0; v < attn_variant_count(); v++) {
    spec_list specs = specs_for(attn_variant_at(v), &problem, 64);
    inputs in = inputs_make(&problem, shape.padded && attn_variant_at(v)->caps & ATTN_CAP_PADDING, 9, 1);
    for (int s = 0; s < specs.count; s++) {
      note_context("%s %s %s", specs.text[s], shape_text(shape), dtype == ATTN_F64 ? "f64" : "f32");
      attn_options options = {.threads = 1 + s % 3};
      attn_plan *plan = plan_or_note(&problem, specs.text[s], &options);
      expect_same_outputs(&problem, run_plain(plan, &in), verified(plan, &in), "under watch");
      attn_plan_destroy(plan);
    }
    spec_list_free(&specs);
    inputs_free(&in);
  }
}

Test(core_verify, sound_variants_give_the_same_bits) {
  every_setting((case_shape){2, 4, 2, 130, 130, 13, 11, false, true}, ATTN_F32);
  every_setting((case_shape){1, 2, 1, 130, 130, 16, 9, true, false}, ATTN_F64);
  every_setting((case_shape){1, 1, 1, 3, 250, 8, 5, false, true}, ATTN_F32);
  every_setting((case_shape){1, 1, 1, 300, 300, 8, 8, true, true}, ATTN_F32);
}

/* -- faults -- */

typedef enum {
  SOUND,
  /* of a map */
  COLUMN_LEFT,
  ROW_LEFT,
  COLUMN_MORE,
  ROW_MORE,
  SCALE_LEFT,
  SCALE_MORE,
  /* of a projection */
  SLOT_LEFT,
  SLOT_MORE,
  WIDER,
  BEFORE_SLOTS,
  SCRATCH_MORE,
  SCRATCH_READ,
  TOO_MANY,
  NEGATIVE,
  /* of a pattern */
  CHANGING,
  BY_HEAD,
  /* of an execute */
  O_COLUMN_LEFT,
  O_ROW_LEFT,
  SLICE_MORE,
  WORK_MORE,
  WORK_BEFORE,
  WORK_READ,
  INPUT_CHANGED,
  LSE_LEFT,
} fault;

static fault planted;
static int64_t
    changed; /* elements of q, k and v in a row that INPUT_CHANGED changes, counted from the last */
enum { COLUMNS = 5, SLOTS = 4, SCRATCH = 100, BATCH = 2, HEADS = 2, N = 40, D = 13 };

static void map(const void *state, const attn_context *c, const attn_feature_rows *x, void *f, int64_t f_row,
                double *scale) {
  (void)state;
  attn_dtype t = c->problem->dtype;
  const bool query = x->side == ATTN_QUERY;
  const fault own =
      x->head == 1 && query == (planted == ROW_LEFT || planted == COLUMN_MORE) ? planted : SOUND;
  int64_t rows = x->rows, last = rows - 1, more = own == ROW_MORE;
  for (int64_t i = 0; i < rows + more; i++)
    for (int64_t l = 0; l < COLUMNS + (own == COLUMN_MORE); l++) {
      if ((own == COLUMN_LEFT && l == 3) || (own == ROW_LEFT && i == last)) continue;
      attn_set(f, i * f_row + l, t, 1);
    }
  for (int64_t i = 0; scale && i < rows + (own == SCALE_MORE); i++)
    if (own != SCALE_LEFT || i != last) scale[i] = 0;
}

static int64_t project(const void *state, const attn_context *c, const attn_slab *x, void *scratch) {
  (void)state;
  attn_dtype t = c->problem->dtype;
  const bool value = x->side == ATTN_VALUE;
  const fault own = x->head == 1 && value == (planted == SLOT_LEFT || planted == WIDER) ? planted : SOUND;
  for (int64_t i = 0; i < SLOTS + (own == SLOT_MORE); i++)
    for (int64_t l = 0; l < x->d + (own == WIDER); l++)
      if (own != SLOT_LEFT || i != 2 || l != 1)
        attn_set(x->y, i * x->y_row + l, t, attn_get(own == SCRATCH_READ ? scratch : x->x, l % x->d, t));
  if (own == BEFORE_SLOTS) attn_set(x->y, -1, t, 1);
  memset(scratch, 1, SCRATCH + (own == SCRATCH_MORE));
  return own == TOO_MANY ? SLOTS + 1 : own == NEGATIVE ? -1 : SLOTS;
}

static int64_t row(const void *state, int64_t head, int64_t position, attn_run *runs) {
  static int64_t calls;
  (void)state, (void)position;
  runs[0] = (attn_run){0, planted == CHANGING ? 1 + calls++ % 3 : planted == BY_HEAD ? 1 + head : 3, 1};
  return 1;
}

static const attn_feature_map features = {.columns = COLUMNS, .map = map};
static const attn_projection projection = {.slots = SLOTS, .project = project, .scratch = SCRATCH};
static const attn_pattern pattern = {.row = row, .max_runs = 1};

/* Zeros, by way of a slice of the work memory for each head; faults are of the last one. */
static attn_status execute(const void *state, const attn_call *call) {
  (void)state;
  const attn_problem *p = call->context->problem;
  size_t bytes = (size_t)p->d_v * sizeof(float);
  const int64_t lines = p->batch * p->heads;
  attn_carver carver = attn_carver_at(call, call->work);
  attn_slices slices = attn_carve_slices(&carver, lines, bytes);
  for (int64_t h = 0; h < lines; h++) {
    const fault own = h == lines - 1 ? planted : SOUND;
    float *mine = attn_slice(slices, h);
    if (own != WORK_READ) memset(mine, 0, bytes + (own == SLICE_MORE));
    for (int64_t i = 0; i < p->n_q - (own == O_ROW_LEFT); i++)
      memcpy((float *)call->o + (h * p->n_q + i) * p->d_v, mine, bytes - (own == O_COLUMN_LEFT ? 4 : 0));
    for (int64_t i = 0; call->lse && i < p->n_q - (own == LSE_LEFT); i++) call->lse[h * p->n_q + i] = 0;
  }
  if (planted == WORK_MORE) ((char *)call->work)[carver.used] = 1;
  if (planted == WORK_BEFORE) ((char *)call->work)[-1] = 1;
  const void *const given[] = {call->q, call->k, call->v};
  if (planted == INPUT_CHANGED)
    ((float *)(uintptr_t)given[changed % 3])[BATCH * HEADS * N * D - 1 - changed / 3] += 1;
  return ATTN_OK;
}

static attn_status work_size(const attn_context *c, const attn_parts *parts, size_t *bytes) {
  attn_carver carver = attn_carver_count(c);
  (void)parts;
  attn_carve_slices(&carver, c->problem->batch * c->problem->heads, (size_t)c->problem->d_v * sizeof(float));
  *bytes = carver.used;
  return ATTN_OK;
}

static attn_status describe(attn_builder *b, const attn_context *c, attn_parts *out) {
  static const attn_method method = {.work_size = work_size, .execute = execute};
  (void)b, (void)c;
  if (planted < SLOT_LEFT)
    out->features = features;
  else if (planted < CHANGING)
    out->projection = projection;
  else if (planted < O_COLUMN_LEFT)
    out->pattern = pattern;
  else
    out->method = &method;
  return ATTN_OK;
}
static attn_cost cost(const attn_context *c) { return (attn_cost){.mul_add = (double)c->problem->n_q}; }

ATTN_VARIANT(planted, TOY, .caps = ATTN_CAP_LSE | ATTN_CAP_PADDING, .describe = describe, .cost = cost)

static void try_fault(fault which, bool lse, attn_status expected, const char *word) {
  attn_problem p = attn_problem_make(BATCH, HEADS, N, D);
  static double sums[BATCH * HEADS * N];
  planted = which;
  cr_assert_eq(attn_variant_register(&attn_variant_planted), ATTN_OK);
  note_context("fault %d, '%s'", (int)which, word);
  inputs in = inputs_make(&p, false, 3, 1);
  attn_plan *plan_of = plan_kept(&p, "planted", &(attn_options){.threads = 2});
  attn_tensors x = tensors_of(&in);
  x.o = malloc(output_count(&p) * 4);
  cr_assert_not_null(x.o);
  if (lse) x.lse = sums;
  EXPECT_STATUS(verify_tensors(plan_of, x), expected);
  if (expected && (!strstr(attn_last_error(), word) || !strstr(attn_last_error(), "variant planted")))
    note_failure("'%s' does not say '%s'", attn_last_error(), word);
  free(x.o);
}

Test(core_verify, maps) {
  try_fault(SOUND, false, ATTN_OK, "");
  try_fault(COLUMN_LEFT, false, ATTN_EFOREIGN,
            "map left its features unwritten at row 0 of 40, column 3 (keys of kv head 1)");
  try_fault(ROW_LEFT, false, ATTN_EFOREIGN,
            "features unwritten at row 39 of 40, column 0 (queries of kv head 1)");
  try_fault(COLUMN_MORE, false, ATTN_EFOREIGN, "outside its features, 40 rows of 5 (queries of kv head 1)");
  try_fault(ROW_MORE, false, ATTN_EFOREIGN,
            "map wrote outside its features, 40 rows of 5 (keys of kv head 1)");
  try_fault(SCALE_LEFT, false, ATTN_EFOREIGN, "map left its scale unwritten at row 39 of 40, column 0 (keys");
  try_fault(SCALE_MORE, false, ATTN_EFOREIGN, "map wrote outside its scale, 40 rows of 1 (keys");
}

Test(core_verify, projections) {
  try_fault(SLOT_LEFT, false, ATTN_EFOREIGN,
            "left slot 2 unwritten at column 1 (values of kv head 1, rows 0 .. 39)");
  try_fault(SLOT_MORE, false, ATTN_EFOREIGN, "wrote outside its slots (keys of kv head 1, rows 0 .. 39)");
  try_fault(WIDER, false, ATTN_EFOREIGN, "project wrote outside its slots");
  try_fault(BEFORE_SLOTS, false, ATTN_EFOREIGN, "project wrote outside its slots");
  try_fault(SCRATCH_MORE, false, ATTN_EFOREIGN, "project wrote outside its scratch");
  try_fault(SCRATCH_READ, false, ATTN_EFOREIGN, "unwritten");
  try_fault(TOO_MANY, false, ATTN_EFOREIGN, "project returns 5 slots, expected 0 ... 4");
  try_fault(NEGATIVE, false, ATTN_EFOREIGN, "project returns -1 slots");
}

Test(core_verify, patterns) {
  try_fault(CHANGING, false, ATTN_EFOREIGN, "pattern row of query 0 (head 0) gives other runs");
  try_fault(BY_HEAD, false, ATTN_EFOREIGN, "per_head");
}

Test(core_verify, executions) {
  try_fault(LSE_LEFT, false, ATTN_OK, "");
  try_fault(LSE_LEFT, true, ATTN_EFOREIGN,
            "left lse unwritten, or took it from memory that nothing wrote "
            "(batch entry 1, head 1, query 39, column 0)");
  try_fault(O_COLUMN_LEFT, false, ATTN_EFOREIGN, "(batch entry 1, head 1, query 0, column 12)");
  try_fault(O_ROW_LEFT, false, ATTN_EFOREIGN,
            "left o unwritten, or took it from memory that nothing wrote "
            "(batch entry 1, head 1, query 39, column 0)");
  try_fault(SLICE_MORE, false, ATTN_EFOREIGN, "execute wrote behind a piece of its work memory");
  try_fault(WORK_MORE, false, ATTN_EFOREIGN, "execute wrote behind its work memory");
  try_fault(WORK_BEFORE, false, ATTN_EFOREIGN, "execute wrote before its work memory");
  try_fault(WORK_READ, false, ATTN_EFOREIGN, "memory that nothing wrote");
  /* Each of a row's elements, in the eights and behind them. */
  static const char *const names[] = {"changed its input q", "changed its input k", "changed its input v"};
  for (changed = 0; changed < 3 * D; changed++)
    try_fault(INPUT_CHANGED, false, ATTN_EFOREIGN, names[changed % 3]);
}
