/* evidence.c - row samples, error columns and their interval, explanation columns. */
#include "tests/support/checks_fake.h"

#include "experiments/evidence/columns.h"
#include "experiments/mathematics/vector.h"

static attn_problem shape(int64_t heads, int64_t n) {
  attn_problem p = attn_problem_make(1, heads, n, 8);
  p.d_v = 5;
  return p;
}

static result_row errors_of(const evidence *e) {
  result_row row = {0};
  cr_assert_eq(evidence_errors(e, &row), ATTN_OK, "%s", attn_last_error());
  return row;
}

/* 64 rows a head, four in each sixteenth, ascending, of another choice for another seed. */
Test(checks_evidence, long_problems_take_a_stratified_sample) {
  attn_problem p = shape(2, 2111);
  p.causal = true;
  run_case *c = case_make(p, 1, 1);
  exact_rows *a, *b, *again;
  cr_assert_eq(exact_rows_compute(&p, c->q, c->k, c->v, NULL, 1, &a), ATTN_OK);
  cr_assert_eq(exact_rows_compute(&p, c->q, c->k, c->v, NULL, 1, &again), ATTN_OK);
  cr_assert_eq(exact_rows_compute(&p, c->q, c->k, c->v, NULL, 2, &b), ATTN_OK);
  cr_assert(!a->complete && a->count == 128);
  int64_t same = 0;
  for (int64_t r = 0; r < 128; r++) {
    cr_expect_eq(a->rows[r].head, r / 64);
    cr_expect(a->rows[r].i >= r % 64 / 4 * 2111 / 16 && a->rows[r].i < (r % 64 / 4 + 1) * 2111 / 16);
    cr_expect(r % 64 == 0 || a->rows[r].i > a->rows[r - 1].i);
    cr_expect_eq(a->keys[r], a->rows[r].i + 1);
    cr_expect_eq(a->rows[r].i, again->rows[r].i);
    same += a->rows[r].i == b->rows[r].i;
  }
  cr_expect_lt(same, 20);
  cr_expect_arr_eq(a->o, again->o, 128 * 5 * sizeof(double));
  /* Besides, the ends and neighbours at multiples of 64 or 96. */
  for (int64_t r = 128, ends = 0; r < a->judged; r++) {
    const sample_row *at = &a->rows[r];
    ends += at->i == 0 || at->i == 2110;
    cr_expect(at->i == 0 || at->i == 2110 || (at->i % 32 == 0 && at[-1].i == at->i - 1) ||
                  (at->i % 32 == 31 && at[1].i == at->i + 1),
              "%d", (int)at->i);
    cr_expect(r + 1 < a->judged || (ends == 4 && a->judged >= 136 && a->judged <= 140));
  }
  exact_rows_free(a);
  exact_rows_free(again);
  exact_rows_free(b);
  exact_rows_free(NULL);
}

/* A head has all its rows where that takes no more than 4 Mi weights, else about as many as are wanted, as
 * far as 16 Mi go. Each row is in one stratum. */
Test(checks_evidence, strata_part_the_rows_within_the_memory) {
  static const int64_t lengths[] = {64, 65, 700, 4096, 4097, 1 << 16},
                       keys[] = {1, 1024, 1025, 1 << 16, 1 << 20}, wants[] = {0, 1, 3, 4, 30, 700};
  for (int i = 0; i < 6 * 5 * 6 * 2; i++) {
    const int64_t heads = i % 2 ? 1 : 4, n = lengths[i / 2 % 6], want = wants[i / 12 % 6],
                  n_kv = keys[i / 72], room = (16 << 20) / heads / n_kv;
    attn_problem p = shape(heads, n_kv);
    p.n_q = n;
    const sampling s = sampling_of(&p, want);
    const int64_t rows = s.bins * s.per_stratum, most = want ? want : 64;
    const bool all = want ? want >= n && n <= room : heads * n <= 4096 && heads * n * n_kv <= 4 << 20;
    cr_expect(all ? s.bins == 1 && rows == n : rows <= most && (rows > most - 4 || rows > room - 4),
              "%d heads, %d queries, %d keys, %d wanted: %d", (int)heads, (int)n, (int)n_kv, (int)want,
              (int)rows);
    cr_expect(rows == n || rows <= 4 || rows <= room);
    for (int64_t r = 0; r < n; r += 1 + (n > 5000)) {
      const int64_t bin = sampling_bin(&s, n, r);
      cr_assert(sampling_start(&s, n, bin) <= r && r < sampling_start(&s, n, bin + 1) && bin < s.bins);
    }
  }
}

/* A known error: every element off by delta, one by ten times as much. */
Test(checks_evidence, error_columns_are_what_they_say) {
  run_case *c = case_gaussian("full", case_problem(2, 2, 1, 32, 8, 5, false, ATTN_F64), 1);
  double above = 0, below = 0, mean = 0, most = 0, cosine = 1, size = 0; /* of third rows */
  for (int64_t i = 0; i < 640; i++)
    case_set(c, c->o, i, case_get(c, c->exact->o, i) + (i == 333 ? 0.1 : 0.01));
  for (int64_t r = 0; r < 128; r++) {
    double x = 0, y = 0, z = 0, xy = 0;
    for (int64_t l = 0; l < 5; l++) {
      double o = c->exact->o[r * 5 + l], d = r * 5 + l == 333 ? 0.1 : 0.01;
      x += d * d, y += o * o, z += (o + d) * (o + d), xy += o * (o + d);
    }
    above += x, below += y, mean += sqrt(x / y) / 128, size += r % 32 == 2 ? y : 0;
    most = fmax(most, sqrt(x / y));
    cosine = fmin(cosine, xy / sqrt(y * z));
  }
  result_row row = errors_of(&c->e);
  cr_expect_float_eq(row.err_rel_fro, sqrt(above / below), 1e-12);
  cr_expect(row.err_rel_fro_lo == row.err_rel_fro && row.err_rel_fro_hi == row.err_rel_fro);
  cr_expect_float_eq(row.err_max_abs, 0.1, 1e-12);
  cr_expect_float_eq(row.err_rel_l2_mean, mean, 1e-12);
  cr_expect_float_eq(row.err_rel_l2_max, most, 1e-12);
  cr_expect_float_eq(row.err_cos_min, cosine, 1e-12);
  cr_expect(row.rows_sampled == 128 && row.ref == REF_EXACT_F64);
  cr_expect_float_eq(row.profile_max[4], 0.1, 1e-12); /* element 333 is of row 66, the third of a line */
  cr_expect_float_eq(row.profile_max[6], 0.01, 1e-12);
  cr_expect_float_eq(row.profile_l2[4], sqrt((19 * 1e-4 + 1e-2) / size), 1e-12);
  cr_expect_lt(row.err_row_l1_max, 1e-12);
  cr_expect(fabs(row.err_kl_mean) < 1e-12);

  evidence bare = {.problem = &c->problem, .o = c->o, .exact = c->exact};
  attn_problem_resolve(&c->problem);
  row = errors_of(&bare);
  cr_expect(isnan(row.err_row_l1_max) && isnan(row.err_kl_mean) && row.err_max_abs > 0.09);

  case_set(c, c->o, 17, (double)NAN);
  row = errors_of(&c->e);
  cr_expect(isnan(row.err_rel_fro) && isnan(row.err_rel_fro_lo) && isnan(row.err_rel_fro_hi) &&
            isnan(row.err_max_abs) && isnan(row.err_rel_l2_mean) && isnan(row.err_rel_l2_max) &&
            isnan(row.err_cos_min));
}

/* Of weights that may be negative, rows that are not finite are counted, and errors are of the others. */
Test(checks_evidence, rows_whose_weights_cancel) {
  run_case *c = case_gaussian("performer:features=16,kernel=trig",
                              case_problem(1, 2, 2, 64, 8, 5, false, ATTN_F64), 0.5);
  const result_row whole = errors_of(&c->e);
  case_set(c, c->o, 17, (double)NAN);
  case_set(c, c->o, 400, (double)INFINITY);
  const result_row row = errors_of(&c->e);
  cr_expect(whole.rows_degenerate == 0 && row.rows_degenerate == 2 && row.rows_sampled == whole.rows_sampled);
  cr_expect(row.err_rel_fro > 0 && row.err_rel_fro <= 2 * whole.err_rel_fro &&
            row.err_max_abs <= whole.err_max_abs);
}

/* Sparse attention: |p_S - p|_1 = 2t and KL(p_S || p) = -ln(1 - t). */
Test(checks_evidence, weight_columns_of_a_pattern) {
  run_case *c = case_gaussian("longformer:window=8", shape(1, 64), 1);
  double most = 0, kl = 0;
  for (int64_t i = 0; i < 64; i++) {
    double t = 0;
    for (int64_t j = 0; j < 64; j++)
      if (llabs(i - j) > 4) t += c->exact->p[i * 64 + j];
    most = fmax(most, 2 * t);
    kl -= log(1 - t) / 64;
  }
  result_row row = errors_of(&c->e);
  cr_expect_float_eq(row.err_row_l1_max, most, 1e-5);
  cr_expect_float_eq(row.err_kl_mean, kl, 1e-5);
  c = case_gaussian("linformer:k=8", shape(1, 64), 1);
  row = errors_of(&c->e);
  cr_expect(row.err_row_l1_max > 0 && isnan(row.err_kl_mean)); /* weights of mixed sign */
}

/* Tensors that give a key another weight for each column of V leave no weights to compare. */
Test(checks_evidence, weights_of_each_column_are_none) {
  static const char *const specs[] = {"gate*tiled", "recurrent:rule=gated_delta2"};
  static double ones[64 * 5];
  for (int i = 0; i < 64 * 5; i++) ones[i] = 1;
  for (int s = 0; s < 2; s++) {
    attn_problem p = shape(1, 64);
    p.causal = true;
    run_case *c = case_gaussian(specs[s], p, 1);
    attn_extra extra = {s ? "write" : "gate", ATTN_F64, ones, 1, 1, 64, 5};
    c->e.extra = &extra;
    c->e.extras = 1;
    cr_expect(isnan(errors_of(&c->e).err_row_l1_max), "%s", specs[s]);
    extra.columns = 1;
    cr_expect(s || errors_of(&c->e).err_row_l1_max < 1e-5);
  }
  cr_expect(isnan(errors_of(&case_gaussian("latent:rank=9", shape(1, 64), 1)->e).err_row_l1_max), "V = I");
  cr_expect(errors_of(&case_gaussian("store:v=f16", shape(1, 64), 1)->e).err_row_l1_max < 0.1);
}

Test(checks_evidence, rows_without_keys_do_not_divide) {
  attn_problem p = shape(1, 12);
  p.n_kv = 8;
  p.causal = true;
  run_case *c = case_gaussian("tiled", p, 1);
  result_row row = errors_of(&c->e);
  cr_expect(row.err_rel_l2_max < 1e-5 && row.err_max_abs < 1e-5 && row.err_cos_min > 0.999);
  case_set(c, c->o, 0, 3);
  cr_expect_eq(errors_of(&c->e).err_max_abs, 3);
}

/* The interval covers the true ratio: skewed errors that grow with the position, 95 % nominal. */
Test(checks_evidence, the_interval_covers) {
  enum { TRIALS = 200, N = 4200 };
  attn_problem p = attn_problem_make(1, 1, N, 1);
  p.n_kv = 1;
  p.dtype = ATTN_F64;
  run_case *c = case_make(p, 1, 1);
  attn_rng rng = rng_of(4, 4, 4);
  double above = 0, below = 0;
  double *exact = kept_memory(malloc(N * sizeof *exact)), *x = c->o;
  for (int64_t i = 0; i < N; i++) {
    double g = attn_rng_normal(&rng);
    exact[i] = 1 + 0.3 * attn_rng_normal(&rng);
    x[i] = exact[i] + 0.1 * g * (1 + 3 * (double)i / N);
    above += (x[i] - exact[i]) * (x[i] - exact[i]);
    below += exact[i] * exact[i];
  }
  int covered = 0;
  double widths = 0, truth = sqrt(above / below);
  for (int t = 0; t < TRIALS; t++) {
    exact_rows *rows;
    cr_assert_eq(exact_rows_compute(&p, c->q, c->k, c->v, NULL, (uint64_t)t, &rows), ATTN_OK);
    cr_assert(!rows->complete && rows->count == 64);
    for (int64_t r = 0; r < rows->count; r++) rows->o[r] = exact[rows->rows[r].i];
    result_row row = errors_of(&(evidence){.problem = &p, .o = c->o, .exact = rows});
    covered += row.err_rel_fro_lo <= truth && truth <= row.err_rel_fro_hi;
    cr_expect(row.err_rel_fro_lo <= row.err_rel_fro && row.err_rel_fro <= row.err_rel_fro_hi);
    widths += (row.err_rel_fro_hi - row.err_rel_fro_lo) / TRIALS;
    exact_rows_free(rows);
  }
  /* Squares of normal errors are skewed, so a little below 190 of 200 is to be expected; 170 is 85 %. */
  cr_expect(covered >= 170, "%d of %d", covered, TRIALS);
  cr_expect_lt(widths, truth);
}

static result_row described(run_case *c) {
  result_row row = {0};
  cr_assert_eq(evidence_describe_input(&c->e, &row), ATTN_OK);
  return row;
}

Test(checks_evidence, peaked_attention) {
  attn_problem p = attn_problem_make(1, 1, 32, 32);
  run_case *c = case_make(p, 0, 1);
  /* Half of the queries look at the first key: a singular value of 4, and 16 of 1. */
  for (int64_t i = 0; i < 32; i++) {
    case_set(c, c->q, i * 32 + (i < 16 ? 0 : i), 40);
    case_set(c, c->k, i * 33, 40);
  }
  case_run(c, "tiled", NULL);
  const result_row row = described(c);
  cr_expect_lt(row.row_entropy_mean, 1e-9);
  cr_expect_float_eq(row.top16_mass_mean, 1, 1e-12);
  cr_expect_float_eq(row.eff_rank, pow(5, 0.2) * pow(20, 0.8), 1e-4); /* roots of rounding errors of 0 */
  cr_expect_float_eq(row.score_osc, 1600 / sqrt(32), 1e-9);
}

/* Of grouped causal heads, wider than a part of a product, by definition. */
Test(checks_evidence, columns_of_an_input) {
  attn_problem p = case_problem(2, 4, 2, 40, 70, 5, true, ATTN_F32);
  run_case *c = case_gaussian("tiled", p, 1);
  double entropy = 0, mass = 0, range = 0;
  for (int64_t r = 0; r < 320; r++) {
    double top[40], low = (double)INFINITY, high = -low;
    memcpy(top, c->exact->p + r * 40, sizeof top);
    for (int64_t j = 0; j <= r % 40; j++) {
      const int64_t q = r * 70, k = (r / 40 / 2 * 40 + j) * 70;
      double s = 0;
      for (int64_t l = 0; l < 70; l++) s += case_get(c, c->q, q + l) * case_get(c, c->k, k + l) / sqrt(70);
      low = fmin(low, s), high = fmax(high, s), entropy -= top[j] * log(top[j]) / 320;
    }
    vector_descend(top, 40);
    for (int j = 0; j < 16; j++) mass += top[j] / 320;
    range += (high - low) / 320;
  }
  const result_row row = described(c);
  cr_expect_float_eq(row.row_entropy_mean, entropy, 1e-12);
  cr_expect_float_eq(row.top16_mass_mean, mass, 1e-12);
  cr_expect_float_eq(row.score_osc, range, 1e-12);
}

Test(checks_evidence, inputs_that_are_not_finite_do_not_hang) {
  run_case *c = case_make(shape(1, 20), 1, 1);
  case_set(c, c->k, 5, (double)NAN);
  case_run(c, "tiled", NULL);
  cr_expect(isnan(described(c).eff_rank));
  cr_expect(isnan(errors_of(&c->e).err_max_abs));
  result_row row = case_checks(c);
  cr_expect_eq(bounds_worst(row.bounds, row.bounds_count), VERDICT_UNCERTIFIABLE);
}

Test(checks_evidence, every_variant_survives_inputs_that_are_not_finite) {
  char specs[] = "full;longformer:window=4;bigbird:block=4;linformer:k=5;linformer:k=5,projection=pool;"
                 "performer:features=7;performer:features=7,kernel=trig;lsh_tail:k=3,l=10;sample:count=5;"
                 "sample:guarantee=clt,base=6,eps=0.3;sample:guarantee=bernstein,base=6,eps=0.9;"
                 "hyper:exact_below=0,block=4,sample=5;hyper:exact_below=0,block=4,sample=5,sampling=values;"
                 "bigbird:block=4,random=1,tail=uniform;scatterbrain:window=4,features=16";
  for (const char *spec = strtok(specs, ";"); spec; spec = strtok(NULL, ";"))
    for (int kind = 0; kind < 3; kind++) {
      run_case *c = case_make(shape(1, 20), 1, 1);
      case_set(c, kind == 2 ? c->v : c->k, 5, kind ? (double)INFINITY : (double)NAN);
      case_run(c, spec, NULL);
      result_row row = case_checks(c);
      for (const result_bound *b = row.bounds; b < row.bounds + row.bounds_count; b++)
        cr_expect(b->verdict != VERDICT_ERROR && b->verdict != VERDICT_VIOLATED, "%s kind %d %s: %d %g %g %s",
                  spec, kind, b->name, (int)b->verdict, b->measured, b->value, b->message);
    }
}
