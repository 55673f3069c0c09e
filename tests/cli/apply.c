/* apply.c - apply, matrix and pattern against the definition of attention, through the program itself. */
#include <hdf5.h>

#include "tests/support/command.h"
#include "tests/support/data_fixture.h"

TestSuite(cli_apply, .init = command_enter, .fini = command_leave);

static double draw(uint64_t *state) { /* in (-2, 2); Knuth's MMIX generator */
  *state = *state * 6364136223846793005u + 1442695040888963407u;
  return (double)(*state >> 11) / (double)(UINT64_C(1) << 51) - 2;
}

static data_array make(attn_dtype dtype, int rank, const int64_t *shape, uint64_t seed) {
  data_array a = array_make(dtype, rank, shape);
  for (int64_t i = 0; i < data_array_count(&a); i++)
    if (dtype == ATTN_F64)
      ((double *)a.at)[i] = draw(&seed);
    else
      ((float *)a.at)[i] = (float)draw(&seed);
  return a;
}

static double at(const data_array *a, int64_t i) {
  return a->dtype == ATTN_F64 ? ((const double *)a->at)[i] : (double)((const float *)a->at)[i];
}

/* What is asked for: shapes [batch, heads, n, d], mask and scale. */
typedef struct shape {
  int64_t batch, heads, kv_heads, n_q, n_kv, d, d_v;
  int causal;
  int64_t kv_len;
  double scale;
} shape;

/* The definition, in fp64 loops: weights [batch, heads, n_q, n_kv]. */
static double *weights(const shape *s, const data_array *q, const data_array *k) {
  double *p = calloc((size_t)(s->batch * s->heads * s->n_q * s->n_kv), sizeof *p);
  for (int64_t slice = 0; slice < s->batch * s->heads; slice++) {
    const int64_t b = slice / s->heads, h = slice % s->heads;
    const int64_t kv = b * s->kv_heads + h / (s->heads / s->kv_heads);
    for (int64_t i = 0; i < s->n_q; i++) {
      double *row = p + (slice * s->n_q + i) * s->n_kv, sum = 0;
      for (int64_t j = 0; j < s->kv_len && (!s->causal || j <= i + s->n_kv - s->n_q); j++) {
        double score = 0;
        for (int64_t l = 0; l < s->d; l++)
          score += at(q, (slice * s->n_q + i) * s->d + l) * at(k, (kv * s->n_kv + j) * s->d + l);
        sum += row[j] = exp(s->scale * score);
      }
      for (int64_t j = 0; j < s->n_kv && sum > 0; j++) row[j] /= sum;
    }
  }
  return p;
}

/* Relative Frobenius distance of an output from p v. */
static double distance(const shape *s, const double *p, const data_array *v, const data_array *o) {
  double difference = 0, norm = 0;
  for (int64_t row = 0; row < s->batch * s->heads * s->n_q; row++) {
    const int64_t slice = row / s->n_q, b = slice / s->heads, h = slice % s->heads;
    const int64_t kv = b * s->kv_heads + h / (s->heads / s->kv_heads);
    for (int64_t l = 0; l < s->d_v; l++) {
      double exact = 0;
      for (int64_t j = 0; j < s->n_kv; j++)
        exact += p[row * s->n_kv + j] * at(v, (kv * s->n_kv + j) * s->d_v + l);
      difference += pow(at(o, row * s->d_v + l) - exact, 2);
      norm += exact * exact;
    }
  }
  return sqrt(difference / norm);
}

/* It prints nothing, or how tensors were read in one line. */
static void run(const char *arguments) {
  command_run_good(arguments);
  const char *end = strchr(result.err, '\n');
  cr_expect((!end || (!end[1] && strstr(result.err, " read as ["))) && result.out[0] == '\0',
            "attnlab %s: printed\n%s%s", arguments, result.err, result.out);
}

/* Applies `tiled` with further options to draws of these shapes and compares output and matrix with the
 * definition. The tolerance in f32 is the one that this project promises against NumPy; f64 has 2^29 times
 * finer roundings. */
static void compare(const shape *s, attn_dtype dtype, int rank, const char *options, double tolerance) {
  const int64_t q_shape[] = {s->batch, s->heads, s->n_q, s->d};
  const int64_t k_shape[] = {s->batch, s->kv_heads, s->n_kv, s->d};
  const int64_t v_shape[] = {s->batch, s->kv_heads, s->n_kv, s->d_v};
  data_array q = make(dtype, rank, q_shape + 4 - rank, 1), k = make(dtype, rank, k_shape + 4 - rank, 2);
  data_array v = make(dtype, rank, v_shape + 4 - rank, 3);
  cr_assert(!data_npy_write("q.npy", &q) && !data_npy_write("k.npy", &k) && !data_npy_write("v.npy", &v));
  run(text_of("apply tiled --q q.npy --k k.npy --v v.npy -o o.npy %s", options));
  run(text_of("matrix tiled --q q.npy --k k.npy -o p.npy %s", options));
  data_array o = array_read("o.npy"), matrix = array_read("p.npy");
  cr_expect(o.rank == rank && o.dtype == dtype && matrix.rank == rank && matrix.dtype == dtype,
            "rank or dtype");
  const int64_t o_shape[] = {s->batch, s->heads, s->n_q, s->d_v};
  cr_expect(memcmp(o.shape, o_shape + 4 - rank, (size_t)rank * sizeof *o_shape) == 0, "shape of the output");
  double *p = weights(s, &q, &k), worst = 0;
  const double error = distance(s, p, &v, &o);
  cr_expect(error <= tolerance, "apply %s: relative error %g", options, error);
  for (int64_t i = 0; i < data_array_count(&matrix); i++) worst = fmax(worst, fabs(at(&matrix, i) - p[i]));
  cr_expect(worst <= tolerance, "matrix %s: error %g", options, worst);
  free(p);
}

#define F32_TOLERANCE 2e-6
#define F64_TOLERANCE (2e-6 / (1 << 29))

Test(cli_apply, one_head) {
  const shape s = {1, 1, 1, 300, 300, 64, 64, 0, 300, 0.125};
  compare(&s, ATTN_F32, 2, "", F32_TOLERANCE);
  compare(&s, ATTN_F64, 2, "--threads 2", F64_TOLERANCE);
}

Test(cli_apply, grouped_heads_causal_cross_padded) {
  const shape s = {1, 4, 2, 37, 301, 16, 24, 1, 290, 0.25};
  compare(&s, ATTN_F32, 3, "--causal --kv-len 290", F32_TOLERANCE);
}

Test(cli_apply, batch_and_scale) {
  const shape s = {2, 2, 2, 33, 33, 8, 8, 0, 33, 0.5};
  compare(&s, ATTN_F32, 4, "--scale 0.5 --kv-len 33,33 --check-finite", F32_TOLERANCE);
}

Test(cli_apply, dtype_converts) {
  const int64_t shape2[] = {9, 4};
  data_array q = make(ATTN_F32, 2, shape2, 7);
  cr_assert(!data_npy_write("q.npy", &q));
  run("apply full --q q.npy --k q.npy --v q.npy --dtype f64 -o o.npy");
  data_array o = array_read("o.npy");
  cr_expect(o.dtype == ATTN_F64);
}

enum { N = 20, H = 3, D = 4 };

static void write_h5(const char *path, const char *const name[3], const hsize_t dims[3], hid_t type,
                     float x[3][H * N * D]) {
  const hid_t file = H5Fcreate(path, H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
  const hid_t space = H5Screate_simple(3, dims, NULL);
  for (int t = 0; t < 3; t++) {
    const hid_t data = H5Dcreate2(file, name[t], type, space, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
    cr_assert(H5Dwrite(data, H5T_NATIVE_FLOAT, H5S_ALL, H5S_ALL, H5P_DEFAULT, x[t]) >= 0);
    H5Dclose(data);
  }
  H5Sclose(space);
  H5Fclose(file);
}

static int64_t turned(int64_t h, int64_t i, int64_t l) { return (i * H + h) * D + l; }

/* The same numbers with positions before heads, in half precision and under other names, give the same output
 * in that layout. */
Test(cli_apply, positions_before_heads) {
  static const char *const plain[] = {"q", "k", "v"}, *const named[] = {"query", "key", "value"};
  static const hsize_t bhnd[] = {H, N, D}, bnhd[] = {N, H, D};
  float heads[3][H * N * D], rows[3][H * N * D];
  uint64_t seed = 9;
  for (int t = 0; t < 3; t++)
    for (int64_t at = 0; at < H * N * D; at++) {
      heads[t][at] = (float)floor(64 * draw(&seed)) / 64;
      rows[t][turned(at / D / N, at / D % N, at % D)] = heads[t][at];
    }
  const hid_t half = H5Tcopy(H5T_IEEE_F32BE);
  cr_assert(H5Tset_fields(half, 15, 10, 5, 0, 10) >= 0 && H5Tset_size(half, 2) >= 0 &&
            H5Tset_ebias(half, 15) >= 0);
  write_h5("heads.h5", plain, bhnd, H5T_IEEE_F64BE, heads);
  write_h5("rows.h5", named, bnhd, half, rows);
  H5Tclose(half);
  run("apply full --in heads.h5 --dtype f32 -o heads.npy");
  run("apply full --in rows.h5 --names query,key,value --layout bnhd -o rows.npy");
  cr_expect(!strstr(result.err, "warning"), "%s", result.err);
  expect_says(result.err, "rows.h5 read as [n, heads, d]: 1 batch, 3 heads of 20 rows, width 4, f32\n");
  data_array a = array_read("heads.npy"), b = array_read("rows.npy");
  cr_expect(a.dtype == ATTN_F32 && b.dtype == ATTN_F32, "of f8 with --dtype f32, and of f2");
  cr_assert(b.rank == 3 && b.shape[0] == N && b.shape[1] == H && b.shape[2] == D);
  for (int64_t i = 0; i < H * N * D; i++)
    cr_assert_float_eq(at(&a, i), at(&b, turned(i / D / N, i / D % N, i % D)), 0);
  run("matrix full --in rows.h5 --names query,key,value --layout bnhd -o p.npy");
  a = array_read("p.npy");
  cr_assert(a.shape[0] == H && a.shape[1] == N && a.shape[2] == N);
  command_run_good("apply full --in rows.h5 --names query,key,value -o rows.npy");
  expect_says(
      result.err,
      "attnlab apply: warning: more heads than keys: if the file has [n, heads, d], add --layout bnhd\n");
}

/* An output that is not finite where the inputs are, and inputs that are not. */
Test(cli_apply, what_is_not_finite_is_told) {
  const int64_t sizes[] = {5, 3};
  data_array ones = make(ATTN_F32, 2, sizes, 1), negative = make(ATTN_F32, 2, sizes, 1);
  for (int i = 0; i < 15; i++) ((float *)ones.at)[i] = 1;
  for (int i = 0; i < 15; i++) ((float *)negative.at)[i] = -1;
  cr_assert(!data_npy_write("q.npy", &ones) && !data_npy_write("k.npy", &negative));
  command_run_good("apply linear:feature=relu --q q.npy --k k.npy --v k.npy -o o.npy");
  expect_says(result.err, "warning: output[0,0] is nan, the first of 15 that are not finite, although q, k "
                          "and v are finite\n");
  command_run_good("apply tiled --q q.npy --k k.npy --v k.npy -o o.npy");
  cr_expect(!strstr(result.err, "warning"), "%s", result.err);
  ((float *)ones.at)[4] = -(float)NAN;
  cr_assert(!data_npy_write("q.npy", &ones));
  command_run_good("apply tiled --q q.npy --k k.npy --v k.npy -o o.npy");
  expect_says(result.err, "warning: q[0,0,1,1] is nan, and so is what depends on it\n");
}

Test(cli_apply, pattern_is_where_the_matrix_is_not_zero) {
  const int64_t shape2[] = {48, 8};
  data_array q = make(ATTN_F32, 2, shape2, 5);
  cr_assert(!data_npy_write("q.npy", &q));
  static const char *const specs[] = {"longformer:window=6,dilation=2,global=3",
                                      "bigbird:block=8,random=1,global=1", "tiled"};
  for (int i = 0; i < 3; i++)
    for (int causal = 0; causal < 2; causal++) {
      const char *mask_option = causal ? "--causal" : "";
      run(text_of("matrix %s --q q.npy --k q.npy -o p.npy %s", specs[i], mask_option));
      run(text_of("pattern %s --n 48 -o m.npy %s", specs[i], mask_option));
      data_array p = array_read("p.npy");
      unsigned char mask[48 * 48];
      FILE *file = fopen("m.npy", "rb");
      cr_assert(file && fseek(file, -(long)sizeof mask, SEEK_END) == 0 &&
                fread(mask, 1, sizeof mask, file) == sizeof mask);
      fclose(file);
      int seen = 0;
      for (int64_t cell = 0; cell < 48 * 48; cell++) {
        cr_expect(mask[cell] == (at(&p, cell) != 0), "%s: element %d", specs[i], (int)cell);
        seen += mask[cell];
      }
      cr_expect(seen >= 48, "%s: %d keys seen", specs[i], seen);
    }
}

Test(cli_apply, capture_feeds_apply) {
  command_run_good("capture " TEST_SOURCE_DIR "/data/bytelm --text " TEST_SOURCE_DIR
                   "/LICENSE --layer 1 --n 128 -o qkv.h5");
  cr_expect_str_eq(result.err, "attnlab capture: qkv.h5: q [4,128,64], k and v [4,128,64], f32, layer 1\n");
  run("apply full --in qkv.h5 --causal -o full.npy");
  run("apply tiled --in qkv.h5 --causal -o tiled.npy");
  data_array full = array_read("full.npy"), tiled = array_read("tiled.npy");
  cr_expect(full.rank == 3 && full.shape[0] == 4 && full.shape[1] == 128 && full.shape[2] == 64);
  double difference = 0, norm = 0;
  for (int64_t i = 0; i < data_array_count(&full); i++) {
    difference += pow(at(&full, i) - at(&tiled, i), 2);
    norm += pow(at(&full, i), 2);
  }
  cr_expect(difference <= pow(2 * F32_TOLERANCE, 2) * norm, "full and tiled differ by %g",
            sqrt(difference / norm));
}
