/* maps.c - attention maps: cells of the weights, exact and implied, against sums over the exact rows. */
#include "tests/support/checks_fake.h"
#include "tests/support/data_fixture.h"

#include "experiments/evidence/columns.h"

static attn_problem shape(int64_t n, attn_dtype dtype) { return case_problem(1, 2, 2, n, 8, 5, true, dtype); }

/* Kept. */
static result_row map_of(const run_case *c) {
  result_row row = row_empty();
  row.n = row.n_kv = c->problem.n_q;
  cr_assert_eq(evidence_map(&c->e, &row), ATTN_OK, "%s", attn_last_error());
  /* Another run of the block: the exact weights are in the cache. */
  result_row again = row;
  again.map = NULL;
  cr_assert_eq(evidence_map(&c->e, &again), ATTN_OK, "%s", attn_last_error());
  if (row.map) cr_expect_arr_eq(row.map, again.map, 2 * result_map_size(&row) * sizeof *row.map);
  result_row_free(&again);
  return *(result_row *)keep_copy(&row, sizeof row, row_end);
}

/* What the cell should hold of weights w(i, j) p_ij, rows summing to 1. */
static double cell_of(const run_case *c, int64_t row, int64_t column, bool keep(int64_t i, int64_t j)) {
  const int64_t n = c->problem.n_q, cells = result_map_cells(n);
  double sum = 0;
  int64_t queries = 0;
  for (int64_t i = 0; i < n; i++) {
    double kept = 0, cell = 0;
    if (i * cells / n != row) continue;
    for (int64_t j = 0; j < n; j++) {
      const double p = keep(i, j) ? c->exact->p[i * n + j] : 0; /* the first rows are those of head 0 */
      kept += p;
      if (j * cells / n == column) cell += p;
    }
    sum += cell / kept;
    queries++;
  }
  return sum / (double)queries;
}

static bool all(int64_t i, int64_t j) {
  (void)i, (void)j;
  return true;
}

static bool within_8(int64_t i, int64_t j) { return j >= i - 8 && j <= i + 8; }

/* Up to 128 positions the map is the matrix; 200 and 300 do not divide by 128, 256 does. */
Test(checks_maps, cells_are_sums_over_keys_and_means_over_queries) {
  static const int64_t lengths[] = {1, 7, 128, 200, 256, 300};
  for (size_t l = 0; l < sizeof lengths / sizeof *lengths; l++)
    for (int dtype = ATTN_F32; dtype <= ATTN_F64; dtype++) {
      run_case *full = case_gaussian("full", shape(lengths[l], (attn_dtype)dtype), 1);
      run_case *local =
          case_gaussian("longformer:window=16,global=0", shape(lengths[l], (attn_dtype)dtype), 1);
      result_row a = map_of(full), b = map_of(local);
      cr_assert(full->exact->complete && a.map && b.map);
      const int64_t cells = result_map_cells(lengths[l]), count = cells * cells;
      for (int64_t i = 0; i < count; i++) {
        const double exact = cell_of(full, i / cells, i % cells, all);
        const double near = cell_of(full, i / cells, i % cells, within_8);
        cr_assert_float_eq(a.map[i], exact, 1e-7);
        cr_assert_eq(b.map[i], a.map[i]);
        cr_assert_float_eq(a.map[count + i], exact, 1e-5);
        cr_assert_float_eq(b.map[count + i], near, 1e-5, "n = %lld, cell %lld: %g, not %g",
                           (long long)lengths[l], (long long)i, (double)b.map[count + i], near);
      }
      case_free(full);
      case_free(local);
    }
}

static bool even_or_itself(int64_t i, int64_t j) { return j % 2 == 0 || j == i; }

/* A file of a graph for each head makes no plan of one head: all compute, and the first is shown. */
Test(checks_maps, of_a_variant_that_needs_all_heads, .init = fixture_begin, .fini = fixture_end) {
  enum { N = 40 };
  uint8_t seen[2 * N * N];
  for (int i = 0; i < 2 * N * N; i++) seen[i] = i >= N * N || even_or_itself(i / N, i % N);
  attn_graph_reader_set(data_graph_read);
  const char *spec =
      text_of("graph:kind=file,file=%s", fixture_npy("seen.npy", "|u1", "2, 40, 40", seen, sizeof seen));
  run_case *c = case_gaussian(spec, shape(N, ATTN_F64), 1);
  result_row row = map_of(c);
  cr_assert_not_null(row.map);
  for (int64_t i = 0; i < N * N; i++)
    cr_expect_float_eq(row.map[N * N + i], cell_of(c, i / N, i % N, even_or_itself), 1e-7);
}

Test(checks_maps, are_the_same_for_any_number_of_threads) {
  result_row rows[2];
  for (int i = 0; i < 2; i++) {
    case_threads = 1 + 2 * i;
    run_case *c = case_gaussian("performer:features=32", shape(300, ATTN_F32), 1);
    rows[i] = map_of(c);
  }
  cr_expect_arr_eq(rows[0].map, rows[1].map, 2 * result_map_size(&rows[0]) * sizeof *rows[0].map);
}

static void all_nan(const attn_call *c) {
  const attn_problem *p = c->context->problem;
  for (int64_t i = 0; i < p->batch * p->heads * p->n_q * p->d_v; i++) ((float *)c->o)[i] = NAN;
}

Test(checks_maps, a_variant_that_writes_nan_has_none) {
  fake_reset(NULL);
  fake.execute = all_nan;
  run_case *c = case_gaussian("fake", shape(40, ATTN_F32), 1);
  result_row row = map_of(c);
  cr_expect_null(row.map);
}
