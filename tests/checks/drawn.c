/* drawn.c - LIN-7: the law of projections. Correct draws are seldom surprising, over seeds; each fault is
 * found. */
#include "tests/support/checks_fake.h"

static attn_problem shape(void) { return case_problem(1, 4, 2, 40, 8, 8, false, ATTN_F32); }

/* -- real projections: p-values over seeds are uniform or too large -- */

static void expect_seldom_of(const char *name, const char *parameters) {
  enum { RUNS = 50 };
  int at[3] = {0};
  double mean = 0, squares = 0;
  const double level[3] = {0.5, 0.2, 0.05};
  for (int seed = 0; seed < RUNS; seed++) {
    const char *spec = text_of("linformer:%s,seed=%d", parameters, 1000 * seed);
    const result_bound b = case_judge(spec, shape(), 1, name);
    cr_assert(b.verdict == VERDICT_CONSISTENT && b.kind == KIND_PROB, "%s: %d, %g, %s", spec, (int)b.verdict,
              b.measured, b.message);
    cr_assert_gt(b.p_value, 1e-4, "%s: %g", spec, b.p_value);
    for (int i = 0; i < 3; i++) at[i] += b.p_value <= level[i];
    mean += b.margin / RUNS;
    squares += b.margin * b.margin / RUNS;
  }
  for (int i = 0; i < 3; i++)
    cr_expect_leq(at[i], RUNS * level[i] + 4 * sqrt(RUNS * level[i] * (1 - level[i])), "%s: %d of %d at %g",
                  parameters, at[i], RUNS, level[i]);
  /* What is measured has the mean that is stated beside it. */
  cr_expect_leq(fabs(mean - 1), 5 * sqrt(fmax(0, squares - mean * mean) / RUNS) + 1e-6, "%s, %s: %g", name,
                parameters, mean);
}

static void expect_seldom(const char *parameters) {
  expect_seldom_of("LIN-1", parameters);
  expect_seldom_of("LIN-7", parameters);
}

Test(checks_drawn, gaussian) { expect_seldom("k=8"); }
Test(checks_drawn, gaussian_apart) { expect_seldom("k=4,share=none,share_heads=no"); }
Test(checks_drawn, rademacher_apart) { expect_seldom("k=4,projection=rademacher,share=none,share_heads=no"); }
Test(checks_drawn, srht) { expect_seldom("k=24,projection=srht"); }
Test(checks_drawn, srht_apart) { expect_seldom("k=16,projection=srht,share=none,share_heads=no"); }
Test(checks_drawn, dct_apart) { expect_seldom("k=16,projection=dct,share=none,share_heads=no"); }

Test(checks_drawn, shapes) {
  static const char *const specs[] = {"k=1",
                                      "k=1,projection=srht",
                                      "k=1,projection=dct",
                                      "k=40,projection=srht",
                                      "k=40,projection=dct,share=none",
                                      "k=2,projection=rademacher"};
  for (size_t s = 0; s < sizeof specs / sizeof *specs; s++) {
    const char *spec = text_of("linformer:%s", specs[s]);
    expect_gaussian(spec, shape(), 1, "LIN-7", VERDICT_CONSISTENT, spec);
  }
  expect_gaussian("linformer:k=5,projection=pool", shape(), 1, "LIN-7", VERDICT_NOT_APPLICABLE, "pool");
}

/* -- faults -- */

typedef enum {
  NONE,
  PERIOD,    /* the draws repeat every 256 keys */
  UNSCALED,  /* entries are not divided by sqrt(k) */
  TOO_LARGE, /* by 2 % */
  UNIFORM,   /* of the right variance */
  SEED_IGNORED,
  SEED_HALVED,   /* two neighbours draw the same */
  HEADS_ALIKE,   /* one draw for all kv heads */
  SIDES_ALIKE,   /* F = E */
  HEADS_OVERLAP, /* a head's columns are those of the next, moved by 7 */
  SLOTS_ALIKE,   /* two slots are one draw */
  ROWS_BIASED,   /* rows of the transform below n alone */
  ROWS_REPEATED, /* with replacement */
  ROWS_SORTED,
  ROWS_SHARED,  /* E and F have the same rows */
  SIGNS_SHARED, /* E and F have the same signs */
  SIGNS_MISSING,
} fault_kind;

enum { SLOTS = 32, LONGEST = 1 << 11 };
static fault_kind wrong;
static attn_projection projection;

static uint64_t draw_of(bool alike, int64_t head, attn_side side) {
  uint64_t h = wrong == HEADS_ALIKE ? 0 : (uint64_t)head;
  return 2 * h + (!projection.shared && side == ATTN_VALUE && wrong != SIDES_ALIKE && !alike);
}

static double dense_entry(uint64_t seed, uint64_t draw, int64_t s, int64_t j) {
  if (wrong == PERIOD) j %= 256;
  if (wrong == SLOTS_ALIKE && s == 5) s = 4;
  if (wrong == HEADS_OVERLAP) {
    j += 7 * (int64_t)(draw / 2);
    draw %= 2;
  }
  attn_rng rng = rng_of(seed, draw + 1, (uint64_t)(j * SLOTS + s));
  if (projection.law == ATTN_PROJECTION_RADEMACHER) return attn_rng_bits(&rng) >> 63 ? 1 : -1;
  if (wrong == UNIFORM) return sqrt(12) * (attn_rng_uniform(&rng) - 0.5);
  return attn_rng_normal(&rng) * (wrong == TOO_LARGE ? 1.02 : 1);
}

static int by_place(const void *a, const void *b) {
  return (*(const int *)a > *(const int *)b) - (*(const int *)a < *(const int *)b);
}

static void transform_draw(uint64_t seed, int64_t head, attn_side side, int64_t n, int64_t order,
                           int rows[SLOTS], double *sign) {
  static int all[LONGEST];
  attn_rng rng = rng_of(seed, 77, draw_of(wrong == SIGNS_SHARED, head, side));
  for (int64_t j = 0; j < n; j++) sign[j] = wrong == SIGNS_MISSING || attn_rng_bits(&rng) >> 63 ? 1 : -1;
  attn_rng_init(&rng, seed, 78, draw_of(wrong == ROWS_SHARED, head, side));
  int64_t most = wrong == ROWS_BIASED ? n : order;
  for (int i = 0; i < order; i++) all[i] = i;
  for (int s = 0; s < SLOTS; s++) {
    int64_t pick = wrong == ROWS_REPEATED ? attn_rng_below(&rng, most) : s + attn_rng_below(&rng, most - s);
    rows[s] = all[pick];
    if (wrong == ROWS_REPEATED) continue;
    all[pick] = all[s];
  }
  if (wrong == ROWS_SORTED) qsort(rows, SLOTS, sizeof *rows, by_place);
}

static double walsh(int64_t common) {
  int bits = 0;
  for (; common; common &= common - 1) bits++;
  return bits % 2 ? -1 : 1;
}

static int64_t project(const void *state, const attn_context *c, const attn_slab *in, void *scratch) {
  uint64_t seed = (uint64_t)((const fake_params *)c->params)->r;
  if (wrong == SEED_IGNORED || wrong == SEED_HALVED) seed = wrong == SEED_IGNORED ? 0 : seed / 2;
  int64_t n = c->problem->n_kv, order = 1;
  const double *x = in->x;
  double *y = in->y, sign[LONGEST];
  int rows[SLOTS];
  (void)state, (void)scratch;
  while (order < n) order *= 2;
  if (projection.law == ATTN_PROJECTION_SRHT) transform_draw(seed, in->head, in->side, n, order, rows, sign);
  for (int64_t s = 0; s < SLOTS && !in->accumulate; s++)
    for (int64_t l = 0; l < in->d; l++) y[s * in->y_row + l] = 0;
  for (int64_t j = 0; j < in->rows; j++)
    for (int64_t s = 0; s < SLOTS; s++) {
      bool used = false; /* most rows of a unit slab are zeros */
      for (int64_t l = 0; l < in->d; l++) used = used || x[j * in->x_row + l] != 0;
      if (!used) break;
      int64_t key = in->first + j;
      double e = projection.law == ATTN_PROJECTION_SRHT
                     ? sign[key] * walsh(rows[s] & key)
                     : dense_entry(seed, draw_of(false, in->head, in->side), s, key);
      if (wrong != UNSCALED) e /= sqrt(SLOTS);
      for (int64_t l = 0; l < in->d; l++) y[s * in->y_row + l] += e * x[j * in->x_row + l];
    }
  return SLOTS;
}

static result_bound judged(const char *name, attn_projection_law law, fault_kind fault) {
  fake_reset(NULL);
  projection = (attn_projection){.slots = SLOTS,
                                 .slice = law == ATTN_PROJECTION_SRHT ? 0 : 128,
                                 .project = project,
                                 .law = law,
                                 .per_head = true};
  wrong = fault;
  fake.view.projection = &projection;
  return case_judge("fake", shape(), 1, name);
}

/* With its repetition about 1e-9: below the level of one of 25 groups of a sweep, from one seed. */
static void expect_found(attn_projection_law law, const fault_kind *faults, size_t count) {
  for (size_t i = 0; i < count; i++) {
    result_bound b = judged("LIN-7", law, faults[i]);
    if (faults[i] == NONE)
      cr_expect(b.verdict == VERDICT_CONSISTENT && b.p_value > 1e-3, "%g %s", b.p_value, b.message);
    else
      cr_expect(b.verdict == VERDICT_VIOLATED || b.p_value < 1e-5, "law %d, fault %d: %d, p %g", (int)law,
                (int)faults[i], (int)b.verdict, b.p_value);
  }
}

#define FOUND(law, ...)                                \
  expect_found(law, (const fault_kind[]){__VA_ARGS__}, \
               sizeof((fault_kind[]){__VA_ARGS__}) / sizeof(fault_kind))

Test(checks_drawn, faults_of_gaussian_draws) {
  FOUND(ATTN_PROJECTION_GAUSSIAN, NONE, PERIOD, UNSCALED, TOO_LARGE, UNIFORM, SEED_IGNORED, HEADS_ALIKE,
        SIDES_ALIKE, HEADS_OVERLAP, SLOTS_ALIKE);
}

Test(checks_drawn, faults_of_signs) {
  FOUND(ATTN_PROJECTION_RADEMACHER, NONE, PERIOD, UNSCALED, SEED_IGNORED, HEADS_ALIKE, SIDES_ALIKE,
        HEADS_OVERLAP, SLOTS_ALIKE);
}

Test(checks_drawn, faults_of_transforms) {
  FOUND(ATTN_PROJECTION_SRHT, NONE, UNSCALED, SEED_IGNORED, SEED_HALVED, HEADS_ALIKE, SIDES_ALIKE,
        ROWS_BIASED, ROWS_REPEATED, ROWS_SORTED, ROWS_SHARED, SIGNS_SHARED, SIGNS_MISSING);
}

/* LIN-1 sees what changes the product's error: sizes, draws that are not independent. */
Test(checks_drawn, errors_of_faulty_draws) {
  static const attn_projection_law laws[] = {ATTN_PROJECTION_GAUSSIAN, ATTN_PROJECTION_RADEMACHER,
                                             ATTN_PROJECTION_SRHT};
  for (int l = 0; l < 3; l++) {
    result_bound b = judged("LIN-1", laws[l], NONE);
    cr_expect(b.verdict == VERDICT_CONSISTENT && b.p_value > 1e-3 && fabs(b.margin - 1) < 0.2,
              "law %d: p %g, %g of %g, %s", l, b.p_value, b.measured, b.value, b.message);
    cr_expect_lt(judged("LIN-1", laws[l], UNSCALED).p_value, 1e-20);
    cr_expect_lt(judged("LIN-1", laws[l], SEED_IGNORED).p_value, 1e-7);
  }
}
