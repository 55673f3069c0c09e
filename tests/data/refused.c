/* refused.c - what reads files, draws data or computes a model, with one of its allocations refused, or all
 * from there on: the result is the same, or there is an error. Not what uses HDF5, which crashes itself. */
#include "tests/data/tokens_fixture.h"
#include "tests/support/refuse.h"

TestSuite(data_refused, .init = fixture_begin, .fini = fixture_end, .timeout = 300);

static attn_status draw(const char *spec, char sum[65]) {
  const data_request r = source_request(2, 1, 160, 16);
  data_qkv x = {0};
  const attn_status status = data_source_make(spec, &r, &x, NULL);
  if (!status) data_sha256(x.k, sizeof(float) * 160 * 16, sum);
  data_qkv_free(&x);
  return status;
}

static attn_status read_tensors(const char *names, char sum[65]) {
  const data_reading files = {.q = fixture_path("x.npy"),
                              .k = fixture_path("x.npy"),
                              .v = fixture_path("x.npy")},
                     one = {.in = fixture_path("x.safetensors"), .names = names};
  data_qkv x = {0};
  const attn_status status = data_qkv_read(*names ? &one : &files, &x);
  if (!status) data_sha256(x.q, sizeof(float) * 2 * 3 * 4, sum);
  data_qkv_free(&x);
  return status;
}

static attn_status read_graph(const char *name, char sum[65]) {
  const attn_graph_request want = {.heads = 2, .rows = 3, .columns = 4};
  attn_graph g = {0};
  const attn_status status = data_graph_read(fixture_path(name), &want, &g);
  if (!status) data_sha256(g.spans, (size_t)g.starts[g.heads * g.rows] * sizeof *g.spans, sum);
  free(g.starts);
  free(g.spans);
  return status;
}

static attn_status make_target(const char *mask, char sum[65]) {
  attn_problem p = attn_problem_make(1, 2, 6, 4);
  data_target *t = NULL;
  const attn_status status = data_target_make("alibi", mask, &p, &t);
  if (!status)
    data_sha256(p.score.relative, sizeof(double) * (size_t)(p.score.relative_heads * p.score.span), sum);
  data_target_free(t);
  return status;
}

static attn_status tokenize(const char *text, char sum[65]) {
  data_tokenizer *t = NULL;
  int64_t *ids = NULL, count = 0;
  char *again = NULL;
  size_t bytes;
  attn_status status = data_tokenizer_open(fixture_directory, &t);
  if (!status) status = data_tokenizer_encode(t, "text", text, strlen(text), &ids, &count);
  if (!status) status = data_tokenizer_decode(t, ids, count, &again, &bytes);
  if (!status) data_sha256(ids, (size_t)count * sizeof *ids, sum);
  free(again);
  free(ids);
  data_tokenizer_close(t);
  return status;
}

static attn_status compute(const char *model, char sum[65]) {
  static float logits[2][256];
  data_llama *m = NULL;
  data_llama_decoder *d = NULL;
  attn_status status = data_llama_open(model, &m);
  if (!status) status = data_llama_logits(m, (int64_t[]){'a', 'b'}, 2, logits[0]);
  if (!status) status = data_llama_decoder_make(m, 1, 2, &d);
  if (!status) status = data_llama_decoder_step(d, (int64_t[]){'a'}, logits[0]);
  if (!status) data_sha256(logits, sizeof logits, sum);
  data_llama_decoder_free(d);
  data_llama_close(m);
  return status;
}

static void refuse_each(attn_status (*job)(const char *, char[65]), const char *of) {
  enum { PLACES = 60 };
  char usual[65] = "", sum[65];
  refuse_from(-1, false);
  assert_ok(job(of, usual));
  const long calls = refuse_calls(), places = calls < PLACES ? calls : PLACES;
  cr_expect_gt(calls, 0, "%s", of);
  for (int after = 0; after < 2; after++)
    for (long k = 0; k < places; k++) {
      *sum = '\0';
      attn_fail(ATTN_OK, "nothing recorded");
      refuse_from(k * calls / places, after);
      const attn_status status = job(of, sum);
      refuse_from(-1, false);
      if (status)
        cr_expect(status == ATTN_ENOMEM && strcmp(attn_last_error(), "nothing recorded"),
                  "%s, allocation %ld of %ld: status %d, %s", of, k * calls / places, calls, (int)status,
                  attn_last_error());
      else
        cr_expect_str_eq(sum, usual, "%s, allocation %ld of %ld", of, k * calls / places, calls);
    }
}

Test(data_refused, datasets) {
  for (size_t i = 0; i < data_source_count(); i++) {
    const data_source *s = data_source_at(i);
    bool file = false;
    for (const attn_param *p = s->params; p->name; p++) file |= p->type == ATTN_TEXT;
    if (!file) refuse_each(draw, s->name);
  }
}

Test(data_refused, targets) {
  static const char *const masks[] = {"", "prefix:2", "documents:0+4"};
  for (int i = 0; i < 3; i++) refuse_each(make_target, masks[i]);
}

Test(data_refused, tokenizers) {
  static const char *const merges[] = {"h e", "l l", "he ll", NULL};
  tokens_write(tokens_file(GPT2_STEPS, merges));
  refuse_each(tokenize, "hello, 42 worlds");
  tokens_write(tokens_file(SPLIT_STEPS(LLAMA3_PATTERN), merges));
  refuse_each(tokenize, "hello, 42 worlds");
}

#define TENSOR(name, first, end) \
  "\"" name "\":{\"dtype\":\"F32\",\"shape\":[2,3,4],\"data_offsets\":[" first "," end "]}"

Test(data_refused, files) {
  static const char header[] =
      "{" TENSOR("q", "0", "96") "," TENSOR("k", "96", "192") "," TENSOR("v", "192", "288") "}";
  enum { HEADER = sizeof header - 1 };
  unsigned char file[8 + HEADER + 288] = {HEADER & 255, HEADER >> 8};
  float x[3 * 24];
  for (int i = 0; i < 3 * 24; i++) x[i] = (float)i;
  memcpy(file + 8, header, HEADER);
  memcpy(file + 8 + HEADER, x, sizeof x);
  fixture_write(fixture_path("x.safetensors"), file, sizeof file);
  assert_ok(data_npy_write(fixture_path("x.npy"), &(data_array){ATTN_F32, 3, {2, 3, 4}, x}));
  assert_ok(data_npy_write_u8(fixture_path("mask.npy"), 2, (int64_t[]){3, 4},
                              (uint8_t[]){0, 1, 1, 0, 0, 0, 0, 0, 1, 0, 0, 1}));
  refuse_each(read_tensors, "");
  refuse_each(read_tensors, "q,k,v");
  refuse_each(read_graph, "mask.npy");
}

Test(data_refused, models) { refuse_each(compute, TEST_SOURCE_DIR "/data/bytelm"); }
