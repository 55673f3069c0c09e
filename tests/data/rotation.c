/* rotation.c - Rotary positions, and captures whose queries and keys still wait for them. */
#include "tests/support/data_fixture.h"

#include <hdf5.h>

#include "data/formats/hdf5_input.h"
#include "data/formats/qkv.h"

TestSuite(data_rotation, .init = fixture_begin, .fini = fixture_end);

#define BUNDLED TEST_SOURCE_DIR "/data/bytelm"

Test(data_rotation, rotation_turns_halves_and_keeps_angles_at_far_positions) {
  /* 10^6 + 3 and 3: an fp32 angle would be off by 0.02 rad. */
  float a[4] = {1, 2, 3, 4}, b[4] = {1, 2, 3, 4};
  double frequency[2];
  data_rope_frequencies(&(data_rope){.theta = 10000}, 4, 1, frequency);
  data_rope_f32(a, 1, 4, 4, 1000003, frequency, 1);
  for (int i = 0; i < 2; i++) {
    double angle = 1000003 * (i == 0 ? 1.0 : 0.01), c = cos(angle), s = sin(angle);
    cr_assert(fabs((double)a[i] - ((double)b[i] * c - (double)b[i + 2] * s)) <= 5 * 0x1p-24);
    cr_assert(fabs((double)a[i + 2] - ((double)b[i + 2] * c + (double)b[i] * s)) <= 5 * 0x1p-24);
  }
  data_rope_f32(b, 1, 4, 4, 0, frequency, 1);
  cr_assert_arr_eq(b, ((float[]){1, 2, 3, 4}), sizeof b);
}

/* The share of theta^(-2i/64) that these components keep, from the formulas by hand: a context of 4096 that
 * is made 4 times as long. */
Test(data_rotation, stretched_frequencies_are_those_of_the_papers) {
  enum { D = 64, KEPT = 6 };
  static const int64_t at[KEPT] = {0, 8, 16, 20, 24, 31};
  static const struct {
    data_rope_kind kind;
    int64_t n;
    double share[KEPT];
  } cases[] = {{DATA_ROPE_LINEAR, 1, {0.25, 0.25, 0.25, 0.25, 0.25, 0.25}},
               {DATA_ROPE_YARN, 1, {1, 1, 0.6538, 0.4231, 0.25, 0.25}},
               {DATA_ROPE_LONGROPE, 4096, {1, 0.9259, 0.8621, 0.8333, 0.8065, 0.7634}},
               {DATA_ROPE_LONGROPE, 4097, {1, 0.1111, 0.0588, 0.0476, 0.04, 0.0312}},
               {DATA_ROPE_LLAMA3, 1, {1, 1, 1, 0.5154, 0.25, 0.25}},
               {DATA_ROPE_DYNAMIC, 4096, {1, 1, 1, 1, 1, 1}},
               /* base 10000 * 13^(64/62): the lowest frequency is 1/13 of what it was */
               {DATA_ROPE_DYNAMIC, 16384, {1, 0.5159, 0.2661, 0.1911, 0.1373, 0.0769}}};
  double lists[D]; /* 1 + i/100, and 1 + i */
  for (int i = 0; i < D; i++) lists[i] = i < D / 2 ? 1 + i / 100.0 : 1 + i - D / 2;
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    double f[D / 2];
    data_rope r = {.kind = cases[i].kind, .theta = 10000, .factor = 4, .original = 4096, .low = 1, .high = 4};
    r.beta_fast = 32, r.beta_slow = 1, r.divisors = r.kind == DATA_ROPE_LONGROPE ? lists : NULL;
    data_rope_frequencies(&r, D, cases[i].n, f);
    for (int k = 0; k < KEPT; k++) {
      const double share = f[at[k]] / pow(10000, -2 * (double)at[k] / D);
      cr_expect_float_eq(share, cases[i].share[k], 5.1e-5, "%d: %g of component %d", (int)i, share,
                         (int)at[k]);
    }
  }
}

/* Reads the root dataset `name`, of `count` elements, of a capture. */
static void read_raw(const char *path, const char *name, size_t count, float *to) {
  hid_t file = H5Fopen(path, H5F_ACC_RDONLY, H5P_DEFAULT), set = H5Dopen2(file, name, H5P_DEFAULT);
  hid_t space = H5Dget_space(set);
  cr_assert_eq((size_t)H5Sget_simple_extent_npoints(space), count);
  cr_assert(H5Dread(set, H5T_NATIVE_FLOAT, H5S_ALL, H5S_ALL, H5P_DEFAULT, to) >= 0);
  H5Sclose(space);
  H5Dclose(set);
  H5Fclose(file);
}

static double number(hid_t file, const char *name) {
  double value = -1;
  hid_t attribute = hdf5_open_scalar(file, name);
  cr_assert(attribute >= 0 && H5Aread(attribute, H5T_NATIVE_DOUBLE, &value) >= 0, "%s", name);
  H5Aclose(attribute);
  return value;
}

Test(data_rotation, a_pending_rotation_is_said_refused_and_can_be_done) {
  /* Two windows: the forward pass of the second is local, its rotation global. */
  enum { N = 4096 + 32, COUNT = 4 * N * 64 };
  data_capture_request r = {.ids.model = BUNDLED "/",
                            .ids.text = TEST_SOURCE_DIR "/LICENSE",
                            .layer = 0,
                            .n = N,
                            .output = fixture_path("r.h5")};
  data_qkv x = {0}, y = {0};
  assert_ok(data_capture(&r, NULL));
  assert_ok(data_qkv_read(&(data_reading){.in = r.output}, &x));
  r.pre_rope = true;
  r.output = fixture_path("pending.h5");
  assert_ok(data_capture(&r, NULL));

  hid_t file = H5Fopen(r.output, H5F_ACC_RDONLY, H5P_DEFAULT);
  cr_assert(hdf5_has_text(file, "rope", "pending"));
  double frequency[32];
  data_rope_frequencies(&(data_rope){.theta = number(file, "rope_theta")}, 64, N, frequency);
  const int64_t first = (int64_t)number(file, "first_position");
  H5Fclose(file);
  static const char *const names[] = {"q", "k", "v"};
  const float *rotated[] = {x.q, x.k, x.v};
  float *at = kept_memory(malloc(COUNT * sizeof *at));
  for (int t = 0; t < 3; t++) {
    read_raw(r.output, names[t], COUNT, at);
    cr_expect((memcmp(at, rotated[t], COUNT * sizeof *at) == 0) == (t == 2), "%s", names[t]);
    if (t < 2)
      for (int h = 0; h < 4; h++) data_rope_f32(at + (size_t)h * N * 64, N, 64, 64, first, frequency, 1);
    cr_expect_eq(memcmp(at, rotated[t], COUNT * sizeof *at), 0, "%s", names[t]);
  }

  const data_request request = {1, 4, 4, 64, 64, 64, 64, ATTN_F32, 0};
  assert_refused(data_qkv_read(&(data_reading){.in = r.output}, &y), ATTN_EUNSUPPORTED, "rope=pending");
  static const char *const sources[] = {"captured", "hdf5"};
  for (int s = 0; s < 2; s++)
    assert_refused(data_source_make(text_of("%s:file=%s", sources[s], r.output), &request, &y, NULL),
                   ATTN_EUNSUPPORTED, "no variant rotates them");
  data_qkv_free(&x);
}

Test(data_rotation, a_list_of_texts_about_rotation_says_nothing) {
  static const char text[9][200] = {"pending"};
  const hsize_t nine = 9;
  float zeros[4] = {0};
  data_qkv x = {.batch = 1, .heads = 1, .kv_heads = 1, .q = zeros, .k = zeros, .v = zeros}, y = {0};
  x.n_q = x.n_kv = x.d_qk = x.d_v = 2;
  assert_ok(hdf5_write_qkv(fixture_path("list.h5"), &x, NULL, 0));
  hid_t file = H5Fopen(fixture_path("list.h5"), H5F_ACC_RDWR, H5P_DEFAULT), type = H5Tcopy(H5T_C_S1);
  hid_t space = H5Screate_simple(1, &nine, NULL);
  cr_assert(file >= 0 && H5Tset_size(type, 200) >= 0);
  hid_t attribute = H5Acreate2(file, "rope", type, space, H5P_DEFAULT, H5P_DEFAULT);
  cr_assert(H5Awrite(attribute, type, text) >= 0);
  H5Aclose(attribute);
  H5Sclose(space);
  H5Tclose(type);
  H5Fclose(file);
  assert_ok(data_qkv_read(&(data_reading){.in = fixture_path("list.h5")}, &y));
  data_qkv_free(&y);
}
