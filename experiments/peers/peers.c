/* peers.c - the peers of run.sh that are libraries of C, by the protocol of README.md over standard input and
 * output.
 *
 * SPEC      a variant of libattn
 * products  (Q K^T) V as `full` multiplies, without its softmax, as a variant
 * flash     OpenBLAS: online softmax (Dao et al. 2022) over blocks of 256 queries and 512 keys, as in ATen's
 *           cpu_flash_attention: S = Q K^T and O += P V by sgemm, one thread per (head, query block), softmax
 *           between. Compiled for this machine, its exponential in vectors: the loop is meant to be as good
 *           as this design gets.
 * sgemm     OpenBLAS: (Q K^T) V with the n x n matrix in memory, one thread per head and rows block */
#include "attn_variant.h"
#include "data/data.h"

#include <cblas.h>
#include <float.h>
#include <math.h>
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

typedef struct peer_problem {
  data_qkv in;
  bool causal;
  int threads;
  float *o; /* [heads, n_q, d_v] */
} peer_problem;

enum { PEER_TEXT = 256 }; /* bytes of a description */

typedef struct peer_methods {
  /* Prepares for a problem, fp32 and one batch entry, that stays as it is until unload. description: one
   * line, what computes it. */
  attn_status (*load)(const peer_problem *, char description[PEER_TEXT]);
  attn_status (*run)(const peer_problem *); /* what is timed: o from q, k, v */
  void (*unload)(void);                     /* also after a load that failed */
} peer_methods;

/* -- products, a variant: K^T and V packed once a head, S = Q K^T and O = S V for blocks of rows -- */

enum { ROWS = 96 }; /* of one task, as in full */

/* The workspace: of each head the whole of S, K^T and V; of each thread. */
typedef struct layout {
  attn_slices s, k, v, scratch;
} layout;

static layout lay_out(const attn_context *c, attn_carver *carver) {
  const attn_problem *p = c->problem;
  const size_t s = attn_size_times((size_t)p->n_q, (size_t)p->n_kv * sizeof(float));
  return (layout){
      .s = attn_carve_slices(carver, p->heads, s),
      .k = attn_carve_slices(carver, p->heads, attn_gemm_packed_bytes(c->kernels, p->d_qk, p->n_kv)),
      .v = attn_carve_slices(carver, p->heads, attn_gemm_packed_bytes(c->kernels, p->n_kv, p->d_v)),
      .scratch = attn_carve_slices(carver, c->threads, attn_gemm_scratch(c->kernels))};
}

static attn_status work_size(const attn_context *c, const attn_parts *parts, size_t *bytes) {
  attn_carver counter = attn_carver_count(c);
  (void)parts;
  lay_out(c, &counter);
  *bytes = counter.used;
  return ATTN_OK;
}

static attn_cost cost(const attn_context *c) {
  const attn_problem *p = c->problem;
  return (attn_cost){.mul_add =
                         (double)p->heads * (double)p->n_q * (double)p->n_kv * (double)(p->d_qk + p->d_v)};
}

static attn_status applicable(const attn_context *c) {
  const attn_problem *p = c->problem;
  if (attn_dtype_size(p->dtype) == sizeof(float) && !p->causal && p->batch == 1 && p->heads == p->kv_heads)
    return ATTN_OK;
  return attn_fail(ATTN_EUNSUPPORTED, "products: fp32, one batch entry, no groups, not causal");
}

static attn_status execute(const void *state, const attn_call *call) {
  (void)state;
  const attn_context *c = call->context;
  const attn_problem *p = c->problem;
  attn_carver carver = attn_carver_at(call, call->work);
  const layout l = lay_out(c, &carver);
  const int64_t blocks = (p->n_q + ROWS - 1) / ROWS;
#pragma omp parallel num_threads(c->threads)
  {
#pragma omp for schedule(dynamic, 1)
    for (int64_t head = 0; head < p->heads; head++) {
      attn_gemm_pack(c->kernels, p->d_qk, p->n_kv,
                     (attn_matrix){attn_rows(call->k, p->k, 0, head, p->dtype), 1, p->k.row},
                     attn_slice(l.k, head));
      attn_gemm_pack(c->kernels, p->n_kv, p->d_v,
                     (attn_matrix){attn_rows(call->v, p->v, 0, head, p->dtype), p->v.row, 1},
                     attn_slice(l.v, head));
    }
    void *scratch = attn_slice(l.scratch, omp_get_thread_num());
#pragma omp for schedule(dynamic, 1)
    for (int64_t task = 0; task < p->heads * blocks; task++) {
      const int64_t head = task / blocks, i0 = task % blocks * ROWS;
      const int64_t rows = p->n_q - i0 < ROWS ? p->n_q - i0 : ROWS;
      const attn_packed k = {attn_slice(l.k, head), p->d_qk, p->n_kv},
                        v = {attn_slice(l.v, head), p->n_kv, p->d_v};
      const float *q = attn_rows(call->q, p->q, 0, head, p->dtype);
      float *s = (float *)attn_slice(l.s, head) + i0 * p->n_kv;
      float *o = (float *)call->o + head * p->o.head + i0 * p->o.row;
      attn_gemm_packed(c->kernels, rows, p->n_kv, p->d_qk, (attn_matrix){q + i0 * p->q.row, p->q.row, 1}, k,
                       false, s, p->n_kv, scratch);
      attn_gemm_packed(c->kernels, rows, p->d_v, p->n_kv, (attn_matrix){s, p->n_kv, 1}, v, false, o, p->o.row,
                       scratch);
    }
  }
  return ATTN_OK;
}

static attn_status describe_products(attn_builder *b, const attn_context *c, attn_parts *out) {
  static const attn_method method = {.work_size = work_size, .execute = execute};
  (void)b, (void)c;
  out->method = &method;
  return ATTN_OK;
}

static const attn_param table[] = {{.name = NULL}};

static const attn_variant products = {
    .abi = ATTN_ABI,
    .size = sizeof(attn_variant),
    .name = "products",
    .summary = "(Q K^T) V",
    .cite = "",
    .params = table,
    .applicable = applicable,
    .describe = describe_products,
    .cost = cost,
};

/* -- libattn -- */

static const char *spec;
static attn_plan *made;
static void *work;

static attn_status load_variant(const peer_problem *problem, char description[PEER_TEXT]) {
  attn_problem p = data_qkv_problem(&problem->in);
  p.causal = problem->causal;
  attn_status status = attn_plan_create(&made, &p, spec, &(attn_options){.threads = problem->threads});
  if (status) return status;
  size_t bytes = attn_plan_work_size(made);
  work = malloc(bytes + 1);
  if (!work) return attn_fail(ATTN_ENOMEM, "no memory for %zu bytes of work", bytes);
  snprintf(description, PEER_TEXT, "%s, %s", attn_plan_spec(made), attn_plan_isa(made));
  return ATTN_OK;
}

static attn_status run_variant(const peer_problem *p) {
  return attn_plan_execute(made, p->in.q, p->in.k, p->in.v, NULL, p->o, work);
}

static void unload_variant(void) {
  attn_plan_destroy(made);
  free(work);
  made = NULL, work = NULL;
}

/* -- OpenBLAS -- */

enum {
  QUERIES = 256,
  KEYS = 512,
  PRODUCT_ROWS = 512, /* 128 is slower, 256 and more are alike */
};

/* exp for x <= 0: 2^k times a polynomial of degree 6 in r, |r| <= ln(2) / 2 (Taylor, error below 2e-7). Below
 * the smallest normal it gives 0. */
static inline float exponential(float x) {
  float k = rintf(x * 0x1.715476p+0f), r = fmaf(k, -0x1.62e400p-1f, x);
  r = fmaf(k, -0x1.7f7d1cp-20f, r);
  float p = 1.0f / 720;
  p = fmaf(p, r, 1.0f / 120);
  p = fmaf(p, r, 1.0f / 24);
  p = fmaf(p, r, 1.0f / 6);
  p = fmaf(p, r, 0.5f);
  p = fmaf(p, r, 1.0f);
  p = fmaf(p, r, 1.0f);
  union {
    int32_t bits;
    float value;
  } power = {.bits = (int32_t)(k + 127) * (1 << 23)};
  return x < -87.0f ? 0.0f : p * power.value;
}

/* x <- exp(scale x - max), returns the sum */
static float exponentials(int count, float *x, float scale, float max) {
  float sum = 0;
#pragma omp simd reduction(+ : sum)
  for (int j = 0; j < count; j++) {
    x[j] = exponential(fmaf(scale, x[j], -max));
    sum += x[j];
  }
  return sum;
}

static float maximum(int count, const float *x) {
  float max = -FLT_MAX;
#pragma omp simd reduction(max : max)
  for (int j = 0; j < count; j++) max = x[j] > max ? x[j] : max;
  return max;
}

static void multiply(float *x, int count, float factor) {
#pragma omp simd
  for (int j = 0; j < count; j++) x[j] *= factor;
}

/* What a thread needs for its block of queries. */
typedef struct block {
  float s[QUERIES * KEYS];
  float max[QUERIES], sum[QUERIES];
} block;

/* Keys j0 .. j0 + keys for queries i0 .. i0 + rows. */
static void online_step(const peer_problem *p, block *b, const float *q, const float *k, const float *v,
                        float *o, int i0, int rows, int j0, int keys) {
  const int d = (int)p->in.d_qk, d_v = (int)p->in.d_v;
  const float scale = 1 / sqrtf((float)d);
  cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, rows, keys, d, 1, q, d, k + (int64_t)j0 * d, d, 0,
              b->s, KEYS);
  for (int i = 0; i < rows; i++) {
    float *s = b->s + i * KEYS;
    int seen = p->causal && i0 + i + 1 - j0 < keys ? i0 + i + 1 - j0 : keys;
    if (seen < 0) seen = 0;
    float max = fmaxf(b->max[i], scale * maximum(seen, s)), old = exponential(b->max[i] - max);
    b->sum[i] = old * b->sum[i] + exponentials(seen, s, scale, max);
    b->max[i] = max;
    memset(s + seen, 0, (size_t)(keys - seen) * sizeof *s);
    if (j0 > 0) multiply(o + i * d_v, d_v, old);
  }
  cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, rows, d_v, keys, 1, b->s, KEYS,
              v + (int64_t)j0 * d_v, d_v, j0 > 0, o, d_v);
}

static block *blocks; /* one a thread */

static attn_status flash(const peer_problem *p) {
  const int n_q = (int)p->in.n_q, n_kv = (int)p->in.n_kv, d = (int)p->in.d_qk, d_v = (int)p->in.d_v;
  const int per_head = (n_q + QUERIES - 1) / QUERIES;
#pragma omp parallel for num_threads(p->threads) schedule(dynamic, 1)
  for (int task = (int)p->in.heads * per_head - 1; task >= 0; task--) {
    block *b = blocks + omp_get_thread_num();
    int64_t head = task / per_head;
    int i0 = task % per_head * QUERIES, rows = n_q - i0 < QUERIES ? n_q - i0 : QUERIES;
    int limit = p->causal && i0 + rows < n_kv ? i0 + rows : n_kv;
    float *o = p->o + (head * n_q + i0) * d_v;
    for (int i = 0; i < rows; i++) b->max[i] = -FLT_MAX, b->sum[i] = 0;
    for (int j0 = 0; j0 < limit; j0 += KEYS)
      online_step(p, b, (const float *)p->in.q + (head * n_q + i0) * d,
                  (const float *)p->in.k + head * n_kv * d, (const float *)p->in.v + head * n_kv * d_v, o, i0,
                  rows, j0, limit - j0 < KEYS ? limit - j0 : KEYS);
    for (int i = 0; i < rows; i++) multiply(o + i * d_v, d_v, 1 / b->sum[i]);
  }
  return ATTN_OK;
}

static float *matrix; /* [heads, n_q, n_kv] */

static attn_status multiply_matrices(const peer_problem *p) {
  const int n_q = (int)p->in.n_q, n_kv = (int)p->in.n_kv, d = (int)p->in.d_qk, d_v = (int)p->in.d_v;
  const int per_head = (n_q + PRODUCT_ROWS - 1) / PRODUCT_ROWS;
#pragma omp parallel for num_threads(p->threads) schedule(dynamic, 1)
  for (int task = 0; task < (int)p->in.heads * per_head; task++) {
    int64_t head = task / per_head;
    int i0 = task % per_head * PRODUCT_ROWS, rows = n_q - i0 < PRODUCT_ROWS ? n_q - i0 : PRODUCT_ROWS;
    float *s = matrix + (head * n_q + i0) * n_kv;
    cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, rows, n_kv, d, 1,
                (const float *)p->in.q + (head * n_q + i0) * d, d, (const float *)p->in.k + head * n_kv * d,
                d, 0, s, n_kv);
    cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, rows, d_v, n_kv, 1, s, n_kv,
                (const float *)p->in.v + head * n_kv * d_v, d_v, 0, p->o + (head * n_q + i0) * d_v, d_v);
  }
  return ATTN_OK;
}

/* "OpenBLAS 0.3.21 SkylakeX"; its length */
static int describe(char description[PEER_TEXT]) {
  const char *configuration = openblas_get_config(), *version = strchr(configuration, ' ');
  const int name = version ? (int)(version - configuration + 1 + (int)strcspn(version + 1, " ")) : 0;
  return snprintf(description, PEER_TEXT, "%.*s %s", name, configuration, openblas_get_corename());
}

static attn_status load_flash(const peer_problem *p, char description[PEER_TEXT]) {
  openblas_set_num_threads(1); /* its callers are the threads */
  blocks = aligned_alloc(64, (size_t)p->threads * sizeof *blocks);
  const int used = describe(description);
  snprintf(description + used, (size_t)(PEER_TEXT - used), ", query block %d, key block %d", QUERIES, KEYS);
  return blocks ? ATTN_OK : attn_fail(ATTN_ENOMEM, "no memory");
}

static attn_status load_sgemm(const peer_problem *p, char description[PEER_TEXT]) {
  openblas_set_num_threads(1);
  if (p->causal) return attn_fail(ATTN_EUNSUPPORTED, "sgemm: not causal");
  matrix = malloc((size_t)(p->in.heads * p->in.n_q * p->in.n_kv) * sizeof *matrix);
  describe(description);
  return matrix ? ATTN_OK : attn_fail(ATTN_ENOMEM, "no memory");
}

static void unload_blas(void) {
  free(blocks);
  free(matrix);
  blocks = NULL, matrix = NULL;
}

/* -- the protocol -- */

enum { LINE = 4096 };

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void clear(const peer_methods *methods, peer_problem *problem) {
  if (!problem->o) return;
  methods->unload();
  free(problem->o);
  data_qkv_free(&problem->in);
  *problem = (peer_problem){.o = NULL};
}

static attn_status read_tensors(const char *directory, data_qkv *in) {
  char path[3][LINE + 8];
  for (int t = 0; t < 3; t++) snprintf(path[t], sizeof path[t], "%s/%c.npy", directory, "qkv"[t]);
  attn_status status = data_qkv_read(&(data_reading){.q = path[0], .k = path[1], .v = path[2]}, in);
  if (status) return status;
  if (attn_dtype_size(in->dtype) == sizeof(float) && in->batch == 1) return ATTN_OK;
  data_qkv_free(in);
  return attn_fail(ATTN_EUNSUPPORTED, "%s: not one batch entry of f4", directory);
}

/* "CAUSAL THREADS DIRECTORY" */
static attn_status load(const peer_methods *methods, peer_problem *problem, const char *arguments,
                        char description[PEER_TEXT]) {
  clear(methods, problem);
  int causal, threads, used = 0;
  if (sscanf(arguments, "%d %d %n", &causal, &threads, &used) != 2 || !used || threads < 1)
    return attn_fail(ATTN_EINVAL, "load: expected CAUSAL THREADS DIRECTORY");
  data_qkv in;
  attn_status status = read_tensors(arguments + used, &in);
  if (status) return status;
  size_t bytes = (size_t)(in.heads * in.n_q * in.d_v) * sizeof(float);
  *problem = (peer_problem){.in = in, .causal = causal != 0, .threads = threads, .o = malloc(bytes)};
  if (!problem->o) {
    data_qkv_free(&problem->in);
    return attn_fail(ATTN_ENOMEM, "no memory for the output");
  }
  memset(problem->o, 0xff, bytes); /* NaN: what a peer does not write is seen */
  status = methods->load(problem, description);
  if (status) clear(methods, problem);
  return status;
}

static attn_status save(const peer_problem *problem, const char *path) {
  data_array o = {.dtype = ATTN_F32, .rank = 3, .at = problem->o};
  o.shape[0] = problem->in.heads, o.shape[1] = problem->in.n_q, o.shape[2] = problem->in.d_v;
  return data_npy_write(path, &o);
}

static attn_status answer(const peer_methods *methods, peer_problem *problem, const char *line,
                          char text[PEER_TEXT]) {
  text[0] = '\0';
  if (!strncmp(line, "load ", 5)) return load(methods, problem, line + 5, text);
  if (!problem->o) return attn_fail(ATTN_EINVAL, "nothing is loaded");
  if (!strncmp(line, "save ", 5)) return save(problem, line + 5);
  if (strcmp(line, "run") != 0) return attn_fail(ATTN_EINVAL, "unknown request '%s'", line);
  double start = now();
  attn_status status = methods->run(problem);
  snprintf(text, PEER_TEXT, "%.9g", now() - start);
  return status;
}

/* Serves standard input until its end. */
static void serve(const peer_methods *methods) {
  peer_problem problem = {.o = NULL};
  char line[LINE], text[PEER_TEXT];
  while (fgets(line, sizeof line, stdin)) {
    line[strcspn(line, "\n")] = '\0';
    if (!answer(methods, &problem, line, text))
      printf("ok %s\n", text);
    else
      printf("no %s\n", attn_last_error());
    fflush(stdout);
  }
  clear(methods, &problem);
}

int main(int count, char **arguments) {
  const peer_methods flash_loop = {load_flash, flash, unload_blas},
                     sgemm = {load_sgemm, multiply_matrices, unload_blas},
                     variant = {load_variant, run_variant, unload_variant};
  if (count != 2) {
    fputs("Usage: peers SPEC|products|flash|sgemm\n", stderr);
    return 2;
  }
  if (attn_variant_register(&products)) {
    fprintf(stderr, "peers: %s\n", attn_last_error());
    return 70;
  }
  spec = arguments[1];
  serve(!strcmp(spec, "flash") ? &flash_loop : !strcmp(spec, "sgemm") ? &sgemm : &variant);
  return 0;
}
