/* drawn.c - the problems that attnlab test draws: pairs and triples of their fields are covered, and usual
 * ones are there. What they find is in cases/drawn.txt. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "experiments/conformance/covering.h"
#include "experiments/conformance/drawn.h"
#include "experiments/conformance/inputs.h"
#include "experiments/properties/placement.h"
#include "tests/support/basics/kept.h"

TestSuite(cli_drawn, .timeout = 600);

static void release_problems(void *kept) { free(*(problem **)kept); }

/* Kept. */
static problem *drawn(const drawn_scope *scope, uint64_t seed, int64_t *count) {
  problem *list;
  cr_assert(drawn_problems(scope, seed, &list, count) == ATTN_OK);
  keep_copy(&list, sizeof(problem *), release_problems);
  return list;
}

static bool not_both_last(const void *context, const int *row) {
  (void)context;
  return !(row[0] == 2 && row[1] == 3);
}

Test(cli_drawn, pairs_and_triples_are_covered) {
  const covering_plan plan = {
      .factors = 6, .levels = {3, 4, 2, 5, 3, 1}, .triples = 4, .allowed = not_both_last};
  for (uint64_t seed = 0; seed < 20; seed++) {
    int *rows, *again;
    int64_t count, same;
    cr_assert_eq(covering_make(&plan, seed, &rows, &count), ATTN_OK);
    cr_assert_eq(covering_make(&plan, seed, &again, &same), ATTN_OK);
    cr_expect(count == same && memcmp(rows, again, (size_t)count * 6 * sizeof *rows) == 0);
    cr_expect(count <= 60, "%lld rows; the largest three factors have 55 triples", (long long)count);
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
    free(rows), free(again);
  }
}

Test(cli_drawn, problems_have_what_is_declared_only) {
  const drawn_scope scopes[] = {drawn_scope_all(ATTN_CAP_MASK),
                                {.caps = ATTN_CAP_CAUSAL | ATTN_CAP_CROSS, .in_turn = true}};
  for (int s = 0; s < 2; s++) {
    int64_t count, crosses = 0, later = 0; /* of 40, half of the half that is not causal */
    const problem *list = drawn(&scopes[s], 1, &count);
    for (int64_t i = 0; i < count; i++) {
      const int64_t *v = list[i].value;
      char text[PROBLEM_TEXT];
      problem_print(&list[i], text);
      cr_expect(!v[FIELD_PADDING] && !v[FIELD_SCORE] && !v[FIELD_LSE] && (!s || !v[FIELD_MASK]), "%s", text);
      cr_expect(s ? v[FIELD_D] == v[FIELD_D_V] && v[FIELD_HEADS] == v[FIELD_KV_HEADS] &&
                        (!v[FIELD_CAUSAL] || v[FIELD_N_Q] <= v[FIELD_N_KV])
                  : !v[FIELD_CAUSAL],
                "%s", text);
      crosses += v[FIELD_N_Q] != v[FIELD_N_KV];
      later += i < 40 && v[FIELD_LATER] && !v[FIELD_CAUSAL];
    }
    cr_expect(s ? crosses > 0 && later > 5 && later < 15 : crosses == 0);
  }
}

/* Each has other numbers, can be given as a case and is done in a moment, apart from the longest; each value
 * of a field that has names is met. */
Test(cli_drawn, problems_are_cases_of_every_kind) {
  static const char *const none[] = {"n_kv",  "n_kv=3x", "n_kv=0",     "n_kv=131073",
                                     "lse=2", "isa=",    "threads=65", "seed=9223372036854775807"};
  const drawn_scope scope = drawn_scope_all(~UINT32_C(0));
  problem back;
  int64_t count, known = 0, longest = 0, met[FIELDS] = {0};
  const problem *list = drawn(&scope, 7, &count);
  for (int64_t i = 0; i < count; i++) {
    const int64_t *v = list[i].value, rows = v[FIELD_BATCH] * v[FIELD_HEADS] * v[FIELD_N_Q],
                  keys = v[FIELD_BATCH] * v[FIELD_KV_HEADS] * v[FIELD_N_KV],
                  width = v[FIELD_D] + v[FIELD_D_V];
    char text[PROBLEM_TEXT];
    problem_print(&list[i], text);
    cr_assert(problem_parse(text, &back) == ATTN_OK, "%s: %s", text, attn_last_error());
    cr_expect(memcmp(&back, &list[i], sizeof back) == 0 && v[FIELD_SEED] == 70000 + i, "%s", text);
    longest += rows * v[FIELD_N_KV] * (width + 16) > 5000000 || (rows + keys) * width > 1200000;
    for (int f = FIELD_BATCH; f <= FIELD_ISA; f++)
      if (f == FIELD_BATCH || f >= FIELD_DTYPE) met[f] |= INT64_C(1) << v[f];
  }
  while (attn_isa_list()[known]) known++;
  const int64_t all[FIELDS] = {[FIELD_BATCH] = 0x22e,
                               [FIELD_DTYPE] = 3,
                               [FIELD_CAUSAL] = 3,
                               [FIELD_PADDING] = (1 << PADDINGS) - 1,
                               [FIELD_SCORE] = (1 << SCORES) - 1,
                               [FIELD_MASK] = (2 << ATTN_MASK_PATTERN) - 1,
                               [FIELD_SCALE] = (1 << SCALES) - 1,
                               [FIELD_VALUES] = (1 << VALUES) - 1,
                               [FIELD_LAYOUT] = (1 << LAYOUTS) - 1,
                               [FIELD_LSE] = 3,
                               [FIELD_WATCHED] = 3,
                               [FIELD_LATER] = 3,
                               [FIELD_THREADS] = 0x1021e,
                               [FIELD_ISA] = (INT64_C(1) << known) - 1};
  for (int f = 0; f < FIELDS; f++) cr_expect(met[f] == all[f], "field %d: %llx", f, (long long)met[f]);
  cr_expect(longest <= 6, "%lld are long", (long long)longest);
  for (size_t i = 0; i < sizeof none / sizeof *none; i++)
    cr_expect(problem_parse(none[i], &back) == ATTN_EINVAL, "%s", none[i]);
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

/* Entries end after a share of the keys, or one does, or one has none and another one; what is behind is NaN.
 * Documents follow one another from the first key to the last, biases vary, and values are of their size. */
Test(cli_drawn, inputs_are_those_of_the_problem) {
  enum { BATCH = 3, KV_HEADS = 2, KEYS = 11, WIDTH = 3, VALUE_WIDTH = 2 };
  for (int64_t i = 0; i < 2 * PADDINGS; i++) {
    problem p;
    problem_inputs x;
    char text[PROBLEM_TEXT];
    cr_assert(
        problem_parse("n_q=5,n_kv=11,d=3,d_v=2,batch=3,heads=4,kv_heads=2,dtype=f64,score=hidden_relative,"
                      "mask=documents,values=small,later=yes",
                      &p) == ATTN_OK);
    p.value[FIELD_PADDING] = i % PADDINGS;
    p.value[FIELD_SCALE] = i % SCALES;
    p.value[FIELD_SEED] = 2 + i;
    problem_print(&p, text);
    cr_assert(problem_inputs_make(&p, &x) == ATTN_OK, "%s", attn_last_error());
    const attn_problem *made = &x.in.problem;
    const int64_t empty = (BATCH - (2 + i) % BATCH) % BATCH,
                  ends[PADDINGS][BATCH] = {{11, 11, 11}, {3, 6, 9}, {11, 11, 8}, {9, 9, 9}};
    cr_expect(made->batch == BATCH && made->n_q == 5 && made->n_kv == KEYS && made->d_qk == WIDTH &&
                  made->d_v == VALUE_WIDTH && made->heads == 4 && made->kv_heads == KV_HEADS &&
                  made->dtype == ATTN_F64 && !made->causal && made->mask.kind == ATTN_MASK_DOCUMENTS,
              "%s", text);
    const double by = made->scale * sqrt(WIDTH), least[SCALES] = {1, 0, -1, 1.1, 99};
    cr_expect(by >= least[i % SCALES] - 1e-9 && (i % SCALES > 2 || by <= least[i % SCALES] + 1e-9));
    double largest = 0;
    for (int64_t b = 0; b < BATCH; b++) {
      int64_t end = ends[i % PADDINGS][b];
      if (i % PADDINGS == PADDING_EMPTY && b == empty) end = 0;
      if (i % PADDINGS == PADDING_EMPTY && b == (empty + 1) % BATCH) end = 1;
      cr_expect(i % PADDINGS ? x.in.kv_len[b] == end : !x.in.padded, "%s: entry %d", text, (int)b);
      for (int64_t j = 0; j < KV_HEADS * KEYS; j++) {
        const double *k = (const double *)x.in.k + (b * KV_HEADS * KEYS + j) * WIDTH,
                     *v = (const double *)x.in.v + (b * KV_HEADS * KEYS + j) * VALUE_WIDTH;
        for (int64_t l = 0; l < WIDTH; l++)
          cr_expect(isnan(k[l]) == (j % KEYS >= end) && isnan(v[l % 2]) == isnan(k[l]), "%s", text);
        largest = fmax(largest, fabs(v[0]));
      }
    }
    cr_expect(largest < 4 * 0x1p-20 && largest > 0x1p-21 && ((const double *)x.other.v)[0] != 0, "%g",
              largest);
    cr_expect(x.offsets[0] == 0 && made->mask.offsets[made->mask.count] == KEYS);
    for (int64_t d = 0; d < made->mask.count; d++)
      cr_expect_lt(made->mask.offsets[d], made->mask.offsets[d + 1]);
    cr_expect(made->score.zero == 2 && made->score.span == 7 && made->score.relative[0] != 0 &&
              made->score.relative[6] != 0);
    region_free(&x.memory);
  }
}

/* All, none, some with the first, a part at the beginning, at the end, between them. */
Test(cli_drawn, biases_hide_keys_in_every_way) {
  enum { ROWS = 64, KEYS = 9 };
  problem p;
  problem_inputs x;
  int met[6] = {0};
  cr_assert(!problem_parse("n_q=64,n_kv=9,heads=2,kv_heads=2,batch=2,score=hidden", &p) &&
            !problem_inputs_make(&p, &x));
  const attn_bias *bias = &x.in.problem.score.dense;
  cr_assert(bias->row == KEYS && bias->head == ROWS * KEYS && bias->batch == 2 * bias->head);
  for (int64_t i = 0; i < 2 * 2 * ROWS; i++) {
    unsigned hidden = 0;
    for (int j = 0; j < KEYS; j++)
      hidden |= (unsigned)(attn_get(bias->at, i * KEYS + j, bias->dtype) < -10) << j;
    const bool apart = (hidden + (hidden & (0 - hidden))) & hidden, first = hidden & 1, last = hidden >> 8;
    cr_expect(!apart || first);
    met[first && last && !apart ? 0 : !hidden ? 1 : apart ? 2 : first ? 3 : last ? 4 : 5]++;
  }
  for (int i = 0; i < 6; i++) cr_expect(met[i] > (i ? 0 : 16), "%d: %d", i, met[i]);
  region_free(&x.memory);
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

/* Patterns name keys one after the other, in no more runs than they say, up to the query's own. */
Test(cli_drawn, patterns_name_each_key_once) {
  problem p = problem_plain();
  problem_inputs x;
  p.value[FIELD_MASK] = ATTN_MASK_PATTERN;
  p.value[FIELD_N_KV] = 20;
  for (p.value[FIELD_SEED] = 1; p.value[FIELD_SEED] < 8; p.value[FIELD_SEED]++) {
    cr_assert(problem_inputs_make(&p, &x) == ATTN_OK, "%s", attn_last_error());
    const attn_pattern *by = x.in.problem.mask.pattern;
    for (int64_t i = 0; i < 2 * p.value[FIELD_N_KV]; i++) {
      attn_run runs[3] = {{-1, -1, -1}, {-1, -1, -1}, {-1, -1, -1}};
      const int64_t count = by->row(by->state, i % 2, i / 2, runs);
      cr_expect(count <= by->max_runs && (count > 0 || i % 2));
      cr_expect(!count || i / 2 >= 20 || runs[count - 1].first + runs[count - 1].count > i / 2);
      for (int64_t r = 0, end = 0; r < count; end = runs[r].first + runs[r].count, r++)
        cr_expect(runs[r].first >= end && runs[r].count > 0 && runs[r].step == 1);
    }
    region_free(&x.memory);
  }
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
  int64_t count, plain = 0, decode = 0;
  const problem *list = drawn(&scope, 3, &count);
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
}

static bool is_small(const int64_t *v, int64_t n, int64_t heads, int64_t kv_heads, int64_t batch) {
  return v[FIELD_N_Q] == n && v[FIELD_N_KV] == n && v[FIELD_D] == v[FIELD_D_V] && v[FIELD_HEADS] == heads &&
         v[FIELD_KV_HEADS] == kv_heads && v[FIELD_BATCH] == batch;
}

Test(cli_drawn, what_is_called_in_turn_begins_with_the_smallest) {
  static const int64_t heads[][2] = {{1, 1}, {2, 2}, {4, 2}};
  drawn_scope scope = drawn_scope_all(ATTN_CAP_CAUSAL | ATTN_CAP_PADDING);
  int64_t count;
  scope.in_turn = true;
  const problem *list = drawn(&scope, 1, &count);
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
}
