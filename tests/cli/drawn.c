/* drawn.c - the problems that attnlab test draws: pairs and triples of their fields are covered, and usual
 * ones are there. What they find is in cases/drawn.txt. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "experiments/conformance/covering.h"
#include "experiments/conformance/drawn.h"
#include "experiments/conformance/inputs.h"

TestSuite(cli_drawn, .timeout = 600);

static bool not_both_last(const void *context, const int *row) {
  (void)context;
  return !(row[0] == 2 && row[1] == 3);
}

Test(cli_drawn, pairs_and_triples_are_covered) {
  const covering_plan plan = {
      .factors = 6, .levels = {3, 4, 2, 5, 3, 1}, .triples = 4, .allowed = not_both_last};
  int *rows, *again;
  int64_t count, same;
  cr_assert(covering_make(&plan, 5, &rows, &count) == ATTN_OK);
  cr_assert(covering_make(&plan, 5, &again, &same) == ATTN_OK);
  cr_expect(count == same && memcmp(rows, again, (size_t)count * 6 * sizeof *rows) == 0);
  cr_expect(count < 4 * 5 * 3 * 2, "%lld rows are all there are", (long long)count);
  for (int x = 0; x < 6; x++)
    for (int y = x + 1; y < 6; y++)
      for (int z = y; z < 6; z++)
        for (int a = 0; a < plan.levels[x]; a++)
          for (int b = 0; b < plan.levels[y]; b++)
            for (int c = 0; c < plan.levels[z]; c++) {
              bool met = (z > y && z >= 4) || (z == y && b != c) || (x == 0 && y == 1 && a == 2 && b == 3);
              for (int64_t r = 0; r < count && !met; r++)
                met = rows[r * 6 + x] == a && rows[r * 6 + y] == b && rows[r * 6 + z] == c;
              cr_expect(met, "factors %d, %d, %d: levels %d, %d, %d do not meet", x, y, z, a, b, c);
            }
  free(rows);
  free(again);
}

Test(cli_drawn, problems_have_what_is_declared_only) {
  const drawn_scope scope = drawn_scope_all(ATTN_CAP_CAUSAL | ATTN_CAP_MASK);
  problem *list, back;
  int64_t count;
  char text[PROBLEM_TEXT];
  cr_assert(drawn_problems(&scope, 1, &list, &count) == ATTN_OK);
  for (int64_t i = 0; i < count; i++) {
    const int64_t *v = list[i].value;
    cr_expect(v[FIELD_N_Q] == v[FIELD_N_KV] && !v[FIELD_PADDING] && !v[FIELD_SCORE] && !v[FIELD_LSE]);
    problem_print(&list[i], text);
    cr_assert(problem_parse(text, &back) == ATTN_OK, "%s: %s", text, attn_last_error());
    cr_expect(memcmp(&back, &list[i], sizeof back) == 0, "%s", text);
  }
  free(list);
}

/* The names of its parts are the name of a score. */
Test(cli_drawn, scores_have_the_parts_of_their_names) {
  for (int64_t s = 0; s < SCORES; s++) {
    char text[PROBLEM_TEXT];
    problem p = problem_plain();
    problem_inputs x;
    p.value[FIELD_SCORE] = s;
    problem_print(&p, text);
    const char *name = strstr(text, "score=");
    cr_assert(problem_inputs_make(&p, &x) == ATTN_OK, "%s", attn_last_error());
    const attn_score *has = &x.in.problem.score;
    const bool relative = name && (strstr(name, "alibi") || strstr(name, "relative")),
               dense = name && (strstr(name, "bias") || strstr(name, "hidden"));
    cr_expect((has->softcap > 0) == (name && strstr(name, "softcap")) &&
                  (has->leaky > 0) == (name && strstr(name, "leaky")) && !has->relative == !relative &&
                  (has->span > 0) == relative && !has->dense.at == !dense &&
                  !has->sink == !(name && strstr(name, "sink")),
              "%s", text);
    region_free(&x.memory);
  }
}

Test(cli_drawn, sinks_are_near_and_far) {
  problem p = problem_plain();
  problem_inputs x;
  int met[3] = {0};
  p.value[FIELD_SCORE] = SCORE_SINK;
  p.value[FIELD_HEADS] = 64;
  cr_assert(problem_inputs_make(&p, &x) == ATTN_OK, "%s", attn_last_error());
  for (int h = 0; h < 64; h++) met[x.sink[h] < -100 ? 0 : x.sink[h] < 30 ? 1 : 2]++;
  cr_expect(met[0] > 4 && met[1] > 4 && met[2] > 4, "%d, %d, %d", met[0], met[1], met[2]);
  region_free(&x.memory);
}

static bool is_plain(const int64_t *v) { return !v[FIELD_SCORE] && !v[FIELD_MASK] && !v[FIELD_PADDING]; }

static bool is_there(const problem *list, int64_t count, int64_t n_kv, int64_t width) {
  for (int64_t i = 0; i < count; i++) {
    const int64_t *v = list[i].value;
    if (is_plain(v) &&
        (n_kv ? v[FIELD_N_Q] == 1 && v[FIELD_N_KV] == n_kv : v[FIELD_D] == width && v[FIELD_D_V] == width))
      return true;
  }
  return false;
}

Test(cli_drawn, usual_sizes_and_plain_problems_are_there) {
  static const int64_t lengths[] = {16, 48, 192, 256, 512, 1000, 1024, 2048, 4096, 70001},
                       sizes[] = {32, 96, 112, 192, 512, 576};
  const drawn_scope scope =
      drawn_scope_all(ATTN_CAP_SOFTMAX | ATTN_CAP_LSE | ATTN_CAP_CROSS | ATTN_CAP_SCORE | ATTN_CAP_MASK);
  problem *list;
  int64_t count, plain = 0, decode = 0;
  cr_assert(drawn_problems(&scope, 3, &list, &count) == ATTN_OK);
  for (size_t l = 0; l < sizeof lengths / sizeof *lengths; l++)
    cr_expect(is_there(list, count, lengths[l], 0), "one query over %lld keys", (long long)lengths[l]);
  for (size_t w = 0; w < sizeof sizes / sizeof *sizes; w++)
    cr_expect(is_there(list, count, 0, sizes[w]), "width %lld", (long long)sizes[w]);
  for (int64_t i = 0; i < count; i++) {
    const int64_t *v = list[i].value;
    if (v[FIELD_SCORE] || v[FIELD_MASK]) continue;
    plain++;
    decode +=
        v[FIELD_N_Q] == 1 && v[FIELD_D] == 128 && v[FIELD_D_V] == 128 && v[FIELD_HEADS] > v[FIELD_KV_HEADS];
  }
  cr_expect(3 * plain > count && 3 * plain < 2 * count && decode > 0, "%lld of %lld, %lld", (long long)plain,
            (long long)count, (long long)decode);
  free(list);
}

static bool is_small(const int64_t *v, int64_t n, int64_t heads, int64_t kv_heads, int64_t batch) {
  return v[FIELD_N_Q] == n && v[FIELD_N_KV] == n && v[FIELD_D] == v[FIELD_D_V] && v[FIELD_HEADS] == heads &&
         v[FIELD_KV_HEADS] == kv_heads && v[FIELD_BATCH] == batch;
}

Test(cli_drawn, what_is_called_in_turn_begins_with_the_smallest) {
  static const int64_t heads[][2] = {{1, 1}, {2, 2}, {4, 2}};
  drawn_scope scope = drawn_scope_all(ATTN_CAP_CAUSAL | ATTN_CAP_PADDING);
  problem *list;
  int64_t count;
  scope.in_turn = true;
  cr_assert(drawn_problems(&scope, 1, &list, &count) == ATTN_OK);
  for (int64_t n = 1; n <= 3; n++)
    for (size_t h = 0; h < sizeof heads / sizeof *heads; h++)
      for (int64_t batch = 1; batch <= 2; batch++) {
        uint32_t met = 0; /* by mask and padding */
        for (int64_t i = 0; i < DRAWN_SMALL && i < count; i++) {
          const int64_t *v = list[i].value;
          if (is_small(v, n, heads[h][0], heads[h][1], batch))
            met |= UINT32_C(1) << (v[FIELD_CAUSAL] * PADDINGS + v[FIELD_PADDING]);
        }
        cr_expect(met == (UINT32_C(1) << 2 * PADDINGS) - 1, "n = %lld, %lld heads, batch %lld: %x",
                  (long long)n, (long long)heads[h][0], (long long)batch, met);
      }
  free(list);
}
