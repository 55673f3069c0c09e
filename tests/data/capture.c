/* capture.c - Captures, the files they become, datasets from files, and the hash that names their sources. */
#include "tests/support/data_fixture.h"
#include "tests/support/llama_models.h"

#include <hdf5.h>
#include <omp.h>

#include "data/formats/hdf5_input.h"
#include "data/formats/qkv.h"
#include "data/support/sha256.h"

TestSuite(data_capture, .init = fixture_begin, .fini = fixture_end);

#define BUNDLED TEST_SOURCE_DIR "/data/bytelm"
#define HELD TEST_SOURCE_DIR "/tests/fixtures/held.txt"

enum { HEADS = 6, KV = 2, D = 4, LAYER = 2 }; /* of model_random */

/* Captures the last layer of a random model with windows of `context`. */
static data_qkv capture(const reference_model *like, int64_t context, const int64_t *tokens, int64_t n) {
  data_qkv *x = kept_qkv();
  reference_model m = *like;
  m.context = context;
  model_write(&m, STORE_F32, 1);
  data_llama *llama = model_open(fixture_directory);
  assert_ok(data_llama_capture(llama, tokens, n, LAYER, false, x));
  cr_assert(x->heads == HEADS && x->kv_heads == KV && x->n_q == n && x->n_kv == n && x->d_qk == D &&
            x->d_v == D);
  cr_assert(x->batch == 1 && x->rank == 3 && x->dtype == ATTN_F32 && x->description);
  return *x;
}

static const float *row(const void *x, int64_t n, int64_t head, int64_t i) {
  return (const float *)x + (head * n + i) * D;
}

Test(data_capture, windows_are_independent_and_rotated_at_global_positions) {
  enum { N = 20, WINDOW = 8 };
  double q[WINDOW * HEADS * D], k[WINDOW * KV * D], v[WINDOW * KV * D];
  reference_model m = model_random(0);
  data_qkv x = capture(&m, WINDOW, some_tokens, N);
  for (int64_t first = 0; first < N; first += WINDOW) {
    int64_t n = N - first < WINDOW ? N - first : WINDOW;
    /* Attention depends on differences of positions alone: the window at global positions throughout is the
     * same model. */
    reference_forward(&m, LAYER + 1, some_tokens + first, n, first, NULL, q, k, v);
    for (int64_t i = 0; i < n; i++)
      for (int64_t c = 0; c < D; c++) {
        /* 1e-4 as for logits; these numbers are of order 1 to 10. */
        for (int64_t h = 0; h < HEADS; h++)
          cr_assert(fabs((double)row(x.q, N, h, first + i)[c] - q[(i * HEADS + h) * D + c]) <= 1e-4);
        for (int64_t h = 0; h < KV; h++) {
          cr_assert(fabs((double)row(x.k, N, h, first + i)[c] - k[(i * KV + h) * D + c]) <= 1e-4);
          cr_assert(fabs((double)row(x.v, N, h, first + i)[c] - v[(i * KV + h) * D + c]) <= 1e-4);
        }
      }
  }
}

Test(data_capture, the_first_window_is_the_capture_without_windows) {
  reference_model m = model_random(0);
  data_qkv all = capture(&m, 8, some_tokens, 20), one = capture(&m, 64, some_tokens, 8);
  for (int64_t h = 0; h < HEADS; h++) cr_assert_arr_eq(row(all.q, 20, h, 0), row(one.q, 8, h, 0), 8 * D * 4);
  for (int64_t h = 0; h < KV; h++) {
    cr_assert_arr_eq(row(all.k, 20, h, 0), row(one.k, 8, h, 0), 8 * D * 4);
    cr_assert_arr_eq(row(all.v, 20, h, 0), row(one.v, 8, h, 0), 8 * D * 4);
  }
}

Test(data_capture, equal_windows_differ_by_their_rotation_alone) {
  /* The same five tokens in each window of 5. V is the same; <R_a q, R_b k> depends on b - a, so that scores
   * inside every window agree, and a score across windows is that of the distance. */
  enum { N = 15, W = 5 };
  int64_t tokens[N];
  for (int i = 0; i < N; i++) tokens[i] = some_tokens[i % W];
  reference_model m = model_random(0);
  data_qkv x = capture(&m, W, tokens, N);
  for (int64_t h = 0; h < KV; h++)
    for (int64_t i = W; i < N; i++) {
      cr_assert_arr_eq(row(x.v, N, h, i), row(x.v, N, h, i - W), D * 4);
      cr_assert(memcmp(row(x.k, N, h, i), row(x.k, N, h, i - W), D * 4) != 0, "not rotated");
    }
  for (int64_t h = 0; h < HEADS; h++)
    for (int64_t i = W; i < N; i++)
      for (int64_t j = W; j < N; j++) {
        const float *q1 = row(x.q, N, h, i), *q0 = row(x.q, N, h, i - W);
        const float *k1 = row(x.k, N, h / 3, j), *k0 = row(x.k, N, h / 3, j - W);
        double here = 0, there = 0, q = 0, k = 0;
        for (int c = 0; c < D; c++) {
          here += (double)q1[c] * (double)k1[c];
          there += (double)q0[c] * (double)k0[c];
          q += (double)q1[c] * (double)q1[c];
          k += (double)k1[c] * (double)k1[c];
        }
        /* The four rows are each rounded once, by 2^-24 of their norm; twice that for the second order. */
        cr_assert(fabs(here - there) <= 8 * 0x1p-24 * sqrt(q * k));
      }
}

static void check_text(hid_t file, const char *name, const char *wanted) {
  cr_assert(hdf5_has_text(file, name, wanted), "%s is not %s", name, wanted);
}

Test(data_capture, a_capture_says_where_it_comes_from) {
  char hex[65];
  size_t size;
  unsigned char *text = fixture_bytes(HELD, &size);
  data_sha256(text, size, hex);
  data_capture_request r = {
      .ids.model = BUNDLED "/", .ids.text = HELD, .layer = 1, .n = 300, .output = fixture_path("c.h5")};
  assert_ok(data_capture(&r, NULL));
  hid_t file = H5Fopen(r.output, H5F_ACC_RDONLY, H5P_DEFAULT);
  check_text(file, "model", "bytelm");
  /* From the model's card. */
  check_text(file, "model_sha256", "0104295a6429dd99e6dd7805fbba6c9b6225c40d2bd016ef8b67a0e626953e3b");
  check_text(file, "text", "held.txt");
  check_text(file, "text_sha256", hex);
  H5Fclose(file);
  /* The tensors are those of the independent forward pass. */
  reference_model m = model_bundled(BUNDLED "/model.safetensors");
  int64_t tokens[48];
  for (int i = 0; i < 48; i++) tokens[i] = text[i];
  double *q = kept_memory(malloc(3 * sizeof *q * 48 * 256)), *k = q + 48 * 256, *v = k + 48 * 256;
  reference_forward(&m, 2, tokens, 48, 0, NULL, q, k, v);
  data_qkv x = {0};
  assert_ok(data_qkv_read(&(data_reading){.in = r.output}, &x));
  cr_assert(x.rank == 3 && x.heads == 4 && x.kv_heads == 4 && x.n_q == 300 && x.d_qk == 64 &&
            x.dtype == ATTN_F32);
  for (int h = 0; h < 4; h++)
    for (int i = 0; i < 48; i++)
      for (int c = 0; c < 64; c++) {
        size_t at = (size_t)(i * 4 + h) * 64 + (size_t)c, to = (size_t)(h * 300 + i) * 64 + (size_t)c;
        cr_assert(fabs((double)((float *)x.q)[to] - q[at]) <= 1e-4 &&
                  fabs((double)((float *)x.k)[to] - k[at]) <= 1e-4 &&
                  fabs((double)((float *)x.v)[to] - v[at]) <= 1e-4);
      }
  data_qkv_free(&x);
  /* The same request gives the same bytes, whatever the number of threads. */
  size_t n1, n2;
  unsigned char *one = kept_memory(fixture_bytes(r.output, &n1));
  r.output = fixture_path("again.h5");
  omp_set_num_threads(3);
  assert_ok(data_capture(&r, NULL));
  unsigned char *two = kept_memory(fixture_bytes(r.output, &n2));
  cr_assert(n1 == n2 && memcmp(one, two, n1) == 0);
  free(text);
}

Test(data_capture, token_ids_serve_any_vocabulary) {
  reference_model m = model_random(0);
  m.context = 8;
  model_write(&m, STORE_BF16, 2);
  fixture_npy("ids.npy", "<i8", "20", some_tokens, sizeof some_tokens);
  data_capture_request r = {.ids.model = fixture_directory,
                            .ids.tokens = fixture_path("ids.npy"),
                            .layer = LAYER,
                            .output = fixture_path("c.h5")};
  assert_ok(data_capture(&r, NULL));
  hid_t file = H5Fopen(r.output, H5F_ACC_RDONLY, H5P_DEFAULT);
  check_text(file, "tokens", "ids.npy");
  H5Fclose(file);
}

Test(data_capture, wrong_requests_leave_nothing_behind) {
  reference_model m = model_random(0);
  model_write(&m, STORE_F32, 1);
  fixture_npy("ids.npy", "<i8", "20", some_tokens, sizeof some_tokens);
  int before = fixture_entries();
  data_capture_request r = {
      .ids.model = fixture_directory, .ids.text = HELD, .layer = 0, .output = fixture_path("c.h5")};
  assert_refused(data_capture(&r, NULL), ATTN_EUNSUPPORTED, "--tokens");
  r.ids.tokens = fixture_path("ids.npy");
  assert_refused(data_capture(&r, NULL), ATTN_EINVAL, "either");
  r.ids.text = NULL;
  r.layer = 3;
  assert_refused(data_capture(&r, NULL), ATTN_EINVAL, "layer 3");
  r.layer = 0;
  r.n = 21;
  assert_refused(data_capture(&r, NULL), ATTN_EINVAL, "20 positions");
  r.n = -1;
  assert_refused(data_capture(&r, NULL), ATTN_EINVAL, "n=-1");
  r.n = 0;
  r.output = fixture_path("absent/c.h5");
  assert_refused(data_capture(&r, NULL), ATTN_EFOREIGN, "absent/c.h5");
  r.output = fixture_path("c.h5");
  r.ids.tokens = fixture_path("none.npy");
  assert_refused(data_capture(&r, NULL), ATTN_EFOREIGN, "none.npy");
  r.ids.model = fixture_path("nowhere");
  assert_refused(data_capture(&r, NULL), ATTN_ENOTFOUND, "nowhere");
  cr_assert_eq(fixture_entries(), before);
}

Test(data_capture, datasets_from_files_take_the_positions_asked_for) {
  reference_model m = model_random(0);
  data_qkv x = capture(&m, 64, some_tokens, 20), y = {0};
  const hdf5_attribute attribute[] = {{.name = "model", .text = "tiny"}, {.name = "layer", .integer = LAYER}};
  char *canonical = NULL;
  assert_ok(hdf5_write_qkv(fixture_path("c.h5"), &x, attribute, 2));
  assert_ok(hdf5_write_qkv(fixture_path("plain.h5"), &x, NULL, 0));
  const char *spec = text_of("captured:file=%s", fixture_path("c.h5"));
  data_request r = {1, HEADS, KV, 5, 12, D, D, ATTN_F64, 0};
  assert_ok(data_source_make(spec, &r, &y, &canonical));
  cr_assert_str_eq(canonical, spec);
  cr_assert_str_eq(y.description, "tiny layer 2");
  cr_assert(y.n_q == 5 && y.n_kv == 12 && y.dtype == ATTN_F64);
  /* Keys are the first 12 positions, queries the last 5 of those. */
  for (int64_t h = 0; h < HEADS; h++)
    for (int64_t i = 0; i < 5 * D; i++)
      cr_assert_float_eq(((double *)y.q)[h * 5 * D + i], (double)row(x.q, 20, h, 7)[i], 0);
  for (int64_t h = 0; h < KV; h++)
    for (int64_t i = 0; i < 12 * D; i++) {
      cr_assert_float_eq(((double *)y.k)[h * 12 * D + i], (double)row(x.k, 20, h, 0)[i], 0);
      cr_assert_float_eq(((double *)y.v)[h * 12 * D + i], (double)row(x.v, 20, h, 0)[i], 0);
    }
  data_qkv_free(&y), free(canonical);
  r = (data_request){1, HEADS, KV, 12, 5, D, D, ATTN_F32, 0};
  assert_ok(data_source_make(spec, &r, &y, NULL)); /* more queries than keys, and the first of both */
  cr_assert(y.n_q == 12 && y.n_kv == 5 && !memcmp(y.q, x.q, (size_t)(12 * D) * sizeof(float)));
  data_qkv_free(&y);

  r = (data_request){1, HEADS, KV, 21, 21, D, D, ATTN_F32, 0};
  assert_refused(data_source_make(spec, &r, &y, NULL), ATTN_EUNSUPPORTED, "first 21 positions");
  r = (data_request){1, 2, 2, 8, 8, D, D, ATTN_F32, 0};
  assert_refused(data_source_make(spec, &r, &y, NULL), ATTN_EUNSUPPORTED, "heads=6, not 2");
  r = (data_request){1, HEADS, KV, 8, 8, 8, D, ATTN_F32, 0};
  assert_refused(data_source_make(spec, &r, &y, NULL), ATTN_EUNSUPPORTED, "d=4, not 8");
  r = (data_request){2, HEADS, KV, 8, 8, D, D, ATTN_F32, 0};
  assert_refused(data_source_make(spec, &r, &y, NULL), ATTN_EUNSUPPORTED, "batch=1, not 2");

  r = (data_request){1, HEADS, KV, 20, 20, D, D, ATTN_F32, 0};
  spec = text_of("captured:file=%s", fixture_path("plain.h5"));
  assert_refused(data_source_make(spec, &r, &y, NULL), ATTN_EINVAL, "not a capture");
  spec = text_of("hdf5:file=%s", fixture_path("plain.h5"));
  assert_ok(data_source_make(spec, &r, &y, NULL));
  cr_assert_arr_eq(y.q, x.q, HEADS * 20 * D * 4);
  data_qkv_free(&y);
  /* A dataset of an extra tensor's name is one, and is cut as keys are. */
  const hid_t file = H5Fopen(fixture_path("plain.h5"), H5F_ACC_RDWR, H5P_DEFAULT),
              space = H5Screate_simple(2, (const hsize_t[]){KV, 20}, NULL),
              beta = H5Dcreate2(file, "beta", H5T_NATIVE_FLOAT, space, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
  cr_assert(H5Dwrite(beta, H5T_NATIVE_FLOAT, H5S_ALL, H5S_ALL, H5P_DEFAULT, x.v) >= 0);
  H5Dclose(beta);
  H5Sclose(space);
  H5Fclose(file);
  for (int64_t n = 12; n <= 20; n += 8) {
    r.n_q = r.n_kv = n;
    assert_ok(data_source_make(spec, &r, &y, NULL));
    const data_array *read = &y.extra[attn_extra_find("beta")];
    cr_assert(read->rank == 4 && read->shape[1] == KV && read->shape[2] == n && read->shape[3] == 1);
    for (int64_t i = 0; i < KV * n; i++)
      cr_assert_float_eq(attn_get(read->at, i, read->dtype), (double)((float *)x.v)[i / n * 20 + i % n], 0);
    data_qkv_free(&y);
  }

  static const char *const names[] = {"q.npy", "k.npy", "v.npy"};
  const void *at[] = {x.q, x.k, x.v};
  for (int t = 0; t < 3; t++) {
    data_array a = {ATTN_F32, 3, {t == 0 ? HEADS : KV, 20, D}, (void *)(uintptr_t)at[t]};
    assert_ok(data_npy_write(fixture_path(names[t]), &a));
  }
  spec = text_of("npy:q=%s,k=%s,v=%s", fixture_path("q.npy"), fixture_path("k.npy"), fixture_path("v.npy"));
  r.n_q = r.n_kv = 3;
  assert_ok(data_source_make(spec, &r, &y, NULL));
  for (int64_t h = 0; h < KV; h++) cr_assert_arr_eq(row(y.v, 3, h, 0), row(x.v, 20, h, 0), 3 * D * 4);
  data_qkv_free(&y);
  r.n_q = 21;
  assert_refused(data_source_make(spec, &r, &y, NULL), ATTN_EUNSUPPORTED, "20 queries");

  assert_refused(data_source_make("npy:q=a,v=b", &r, &y, NULL), ATTN_EINVAL, "k=PATH");
  assert_refused(data_source_make("captured", &r, &y, NULL), ATTN_EINVAL, "file=PATH");
  assert_refused(data_source_make("hdf5:file=/nowhere/x.h5", &r, &y, NULL), ATTN_EFOREIGN, "/nowhere/x.h5");
  assert_refused(data_source_make("safetensors:file=/nowhere/x", &r, &y, NULL), ATTN_EFOREIGN, "/nowhere/x");
}

Test(data_capture, sha256_gives_the_digests_of_the_standard) {
  char hex[65], *million = kept_memory(malloc(1000000));
  data_sha256("abc", 3, hex);
  cr_assert_str_eq(hex, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  data_sha256("", 0, hex);
  cr_assert_str_eq(hex, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  data_sha256("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq", 56, hex);
  cr_assert_str_eq(hex, "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  memset(million, 'a', 1000000);
  data_sha256(million, 1000000, hex);
  cr_assert_str_eq(hex, "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
  /* Any cut into two parts gives the same, round the ends of the padding. */
  for (size_t length = 50; length < 70; length++)
    for (size_t cut = 0; cut <= length; cut++) {
      char whole[65], parts[65];
      sha256 h;
      data_sha256(million, length, whole);
      sha256_begin(&h);
      sha256_add(&h, million, cut);
      sha256_add(&h, million + cut, length - cut);
      sha256_end(&h, parts);
      cr_assert_str_eq(whole, parts);
    }
}
