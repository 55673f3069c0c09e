/* projections.c - projections of sequences of several slices, and the generator below all draws. That entries
 * are those which a projection's name promises is for LIN-5 and LIN-7 (experiments/checks). */
#include "tests/support/core.h"

/* Sequences of several slices, cut into parts and, for transforms and pooling, blocks of columns: the parts'
 * sums are the projection of the whole, for any number of threads. */
Test(variants_projections, linformer_parts) {
  static const char *const specs[] = {"linformer:k=20", "linformer:k=20,share=none,share_heads=no",
                                      "linformer:k=20,projection=dct", "linformer:k=20,projection=srht",
                                      "linformer:k=20,projection=pool"};
  static const case_shape shapes[] = {{1, 1, 1, 5, 1025, 17, 35, false, false},
                                      {2, 4, 2, 5, 1100, 6, 20, false, true}};
  for (size_t k = 0; k < sizeof specs / sizeof *specs; k++)
    for (size_t t = 0; t < sizeof shapes / sizeof *shapes; t++)
      for (attn_dtype dtype = ATTN_F32; dtype <= ATTN_F64; dtype++) {
        inputs in = inputs_shaped(shapes[t], dtype, 3, 0.5);
        attn_plan *plan = plan_made(&in.problem, specs[k], &(attn_options){.threads = 1});
        note_context("%s of %d keys", specs[k], (int)in.problem.n_kv);
        oracle expected = oracle_of_run(plan, &in);
        void *one = run_plain(plan, &in), *three = run_spec(specs[k], &(attn_options){.threads = 3}, &in);
        expect_within(&in.problem, one, &expected, "parts");
        expect_same(&in.problem, one, three, "three threads");
        oracle_free(&expected);
        free(one), free(three);
        attn_plan_destroy(plan);
        inputs_free(&in);
      }
}

/* -- the generator -- */

Test(variants_projections, streams) {
  attn_rng a, b;
  enum { DRAWS = 100000 };
  attn_rng_init(&a, 1, 2, 3);
  attn_rng_init(&b, 1, 2, 3);
  for (int k = 0; k < 100; k++) EXPECT(attn_rng_bits(&a) == attn_rng_bits(&b));
  static const uint64_t others[][3] = {{2, 2, 3}, {1, 3, 3}, {1, 2, 4}, {3, 2, 1}, {2, 1, 3}};
  for (size_t k = 0; k < sizeof others / sizeof *others; k++) {
    int equal = 0;
    attn_rng_init(&a, 1, 2, 3);
    attn_rng_init(&b, others[k][0], others[k][1], others[k][2]);
    for (int t = 0; t < 100; t++) equal += attn_rng_bits(&a) == attn_rng_bits(&b);
    EXPECT(equal == 0);
  }
  double mean = 0, square = 0, uniform = 0;
  int counts[7] = {0};
  for (int k = 0; k < DRAWS; k++) {
    double x = attn_rng_normal(&a), u = attn_rng_uniform(&a);
    int64_t below = attn_rng_below(&a, 7);
    mean += x / DRAWS;
    square += x * x / DRAWS;
    uniform += u / DRAWS;
    EXPECT(u > 0 && u < 1 && below >= 0 && below < 7);
    counts[below]++;
  }
  /* Six deviations each. */
  EXPECT(fabs(mean) <= 6 / sqrt(DRAWS) && fabs(square - 1) <= 6 * sqrt(2.0 / DRAWS));
  EXPECT(fabs(uniform - 0.5) <= 6 * sqrt(1.0 / 12 / DRAWS));
  for (int k = 0; k < 7; k++) EXPECT(fabs(counts[k] - DRAWS / 7.0) <= 6 * sqrt(DRAWS * 6.0 / 49));
  EXPECT(attn_rng_below(&a, 1) == 0);
}

/* Normal draws in CELLS cells of equal probability: the sum of (count - mean)^2 / mean has mean CELLS - 1 and
 * deviation sqrt(2 (CELLS - 1)). Edges fall inside every layer of the ziggurat, and the outer cells lie in
 * its tail. */
Test(variants_projections, normal_cells) {
  enum { CELLS = 4000, DRAWS = 4000000 };
  static int counts[CELLS];
  attn_rng rng = rng_of(5, 6, 7);
  for (int k = 0; k < DRAWS; k++) {
    double u = erfc(-attn_rng_normal(&rng) / sqrt(2)) / 2;
    int cell = (int)(u * CELLS);
    counts[cell < CELLS ? cell : CELLS - 1]++;
  }
  double sum = 0, mean = (double)DRAWS / CELLS;
  for (int c = 0; c < CELLS; c++) sum += (counts[c] - mean) * (counts[c] - mean) / mean;
  if (!(fabs(sum - (CELLS - 1)) <= 6 * sqrt(2.0 * (CELLS - 1)))) note_failure("chi^2 is %g", sum);
}
