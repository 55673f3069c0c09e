/* cases.c - problems, inputs and comparisons. Random numbers: splitmix64 (Steele, Lea, Flood 2014). */
#include "tests/support/cases.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/basics/kept.h"

enum { FAILURES_PRINTED = 20 };

static int failures;
static char context[256] = "";

void note_context(const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(context, sizeof context, format, arguments);
  va_end(arguments);
}

void note_failure(const char *format, ...) {
  if (failures++ >= FAILURES_PRINTED) return;
  va_list arguments;
  va_start(arguments, format);
  fprintf(stderr, "[%s] ", context);
  vfprintf(stderr, format, arguments);
  fprintf(stderr, "\n");
  va_end(arguments);
  if (failures == 1) fail_test();
}

int failures_noted(void) { return failures; }

void expect_status(attn_status got, attn_status expected, const char *call, const char *file, int line) {
  if (got != expected)
    note_failure("%s:%d: %s gave %s (%s), expected %s", file, line, call, attn_status_name(got),
                 got ? attn_last_error() : "", attn_status_name(expected));
  if (!got) return;
  const char *message = attn_last_error();
  if (message[0] == '\0' || strchr(message, '\n'))
    note_failure("%s:%d: %s left the message \"%s\", expected one line", file, line, call, message);
}

const char *const *isas_under_test(void) {
  static const char *one[2];
  one[0] = getenv("ATTN_ISA");
  return one[0] && *one[0] ? one : attn_isa_list();
}

/* batch heads kv_heads n_q n_kv d_qk d_v causal padded */
const case_shape property_shapes[] = {
    {1, 1, 1, 33, 33, 8, 8, false, false},    {1, 2, 2, 70, 70, 16, 16, true, false},
    {2, 4, 2, 37, 37, 9, 5, false, true},     {3, 2, 1, 29, 29, 7, 18, true, true},
    {1, 2, 2, 19, 67, 12, 12, false, false},  {2, 2, 1, 21, 50, 10, 11, true, true},
    {1, 2, 2, 61, 23, 6, 33, true, false},    {1, 1, 1, 131, 131, 32, 17, false, false},
    {1, 1, 1, 140, 140, 24, 16, true, false}, {1, 1, 1, 1, 1, 1, 1, false, false},
};
const int property_shape_count = (int)(sizeof property_shapes / sizeof *property_shapes);

attn_problem shape_problem(case_shape s, attn_dtype dtype) {
  attn_problem p = attn_problem_make(s.batch, s.heads, s.n_kv, s.d_qk);
  p.kv_heads = s.kv_heads;
  p.n_q = s.n_q;
  p.d_v = s.d_v;
  p.causal = s.causal;
  p.dtype = dtype;
  return p;
}

const char *shape_text(case_shape s) {
  return text_of("b%d h%d/%d n%dx%d d%d,%d%s%s", (int)s.batch, (int)s.heads, (int)s.kv_heads, (int)s.n_q,
                 (int)s.n_kv, (int)s.d_qk, (int)s.d_v, s.causal ? " causal" : "", s.padded ? " padded" : "");
}

static uint64_t splitmix(uint64_t *state) {
  uint64_t z = (*state += 0x9e3779b97f4a7c15u);
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

double uniform_draw(uint64_t *state) { return (double)(splitmix(state) >> 11) * 0x1p-53; }

/* The sum of four uniform numbers: as good as normal here, and four times as fast. */
double normal_draw(uint64_t *state) {
  double sum = -2;
  for (int k = 0; k < 4; k++) sum += uniform_draw(state);
  return sum * 1.7320508075688772;
}

typedef struct extent {
  attn_stride stride;
  int64_t heads, rows, columns;
} extent;

static extent tensor_extent(const attn_problem *p, tensor which) {
  switch (which) {
  case TENSOR_Q:
    return (extent){p->q, p->heads, p->n_q, p->d_qk};
  case TENSOR_K:
    return (extent){p->k, p->kv_heads, p->n_kv, p->d_qk};
  case TENSOR_V:
    return (extent){p->v, p->kv_heads, p->n_kv, p->d_v};
  default:
    return (extent){p->o, p->heads, p->n_q, p->d_v};
  }
}

size_t tensor_bytes(const attn_problem *p, tensor which) {
  extent e = tensor_extent(p, which);
  int64_t last =
      (p->batch - 1) * e.stride.batch + (e.heads - 1) * e.stride.head + (e.rows - 1) * e.stride.row;
  return (size_t)(last + e.columns) * attn_dtype_size(attn_stored(e.stride, p->dtype));
}

static int64_t element(extent e, int64_t b, int64_t h, int64_t i) {
  return b * e.stride.batch + h * e.stride.head + i * e.stride.row;
}

static unsigned char *tensor_base(const inputs *in, tensor which) {
  return which == TENSOR_Q ? in->q : which == TENSOR_K ? in->k : in->v;
}

double inputs_get(const inputs *in, tensor which, int64_t b, int64_t h, int64_t i, int64_t l) {
  extent e = tensor_extent(&in->problem, which);
  return attn_get(tensor_base(in, which), element(e, b, h, i) + l, attn_stored(e.stride, in->problem.dtype));
}

void inputs_set(inputs *in, tensor which, int64_t b, int64_t h, int64_t i, int64_t l, double value) {
  extent e = tensor_extent(&in->problem, which);
  attn_set(tensor_base(in, which), element(e, b, h, i) + l, attn_stored(e.stride, in->problem.dtype), value);
}

void inputs_set_row(inputs *in, tensor which, int64_t b, int64_t h, int64_t i, double value) {
  extent e = tensor_extent(&in->problem, which);
  for (int64_t l = 0; l < e.columns; l++) inputs_set(in, which, b, h, i, l, value);
}

static void *must_alloc(size_t bytes) {
  void *block = aligned_alloc(64, (bytes + 127) / 64 * 64);
  if (!block) abort();
  return block;
}

static void *tensor_alloc(size_t bytes) { return kept_memory(must_alloc(bytes)); }

static unsigned char *tensor_fill(const inputs *in, tensor which, uint64_t seed, double std) {
  const attn_problem *p = &in->problem;
  extent e = tensor_extent(p, which);
  const attn_dtype t = attn_stored(e.stride, p->dtype);
  size_t bytes = tensor_bytes(p, which), size = attn_dtype_size(t);
  unsigned char *base = tensor_alloc(bytes);
  for (size_t index = 0; index < bytes / size; index++) attn_set(base, (int64_t)index, t, (double)NAN);
  uint64_t state = seed * 3 + (uint64_t)which;
  for (int64_t b = 0; b < p->batch; b++)
    for (int64_t h = 0; h < e.heads; h++)
      for (int64_t i = 0; i < e.rows; i++)
        for (int64_t l = 0; l < e.columns; l++)
          attn_set(base, element(e, b, h, i) + l, t, std * normal_draw(&state));
  return base;
}

inputs inputs_make(const attn_problem *problem, bool padded, uint64_t seed, double std) {
  inputs in = {.problem = *problem, .padded = padded};
  if (attn_problem_resolve(&in.problem)) note_failure("resolve: %s", attn_last_error());
  in.q = tensor_fill(&in, TENSOR_Q, seed, std);
  in.k = tensor_fill(&in, TENSOR_K, seed, std);
  in.v = tensor_fill(&in, TENSOR_V, seed, 1);
  for (int64_t b = 0; b < problem->batch && b < MAX_BATCH; b++)
    in.kv_len[b] = b == 1 ? 0 : (2 * problem->n_kv + 2 - b) / 3;
  return in;
}

inputs inputs_shaped(case_shape shape, attn_dtype dtype, uint64_t seed, double std) {
  const attn_problem problem = shape_problem(shape, dtype);
  return inputs_make(&problem, shape.padded, seed, std);
}

inputs inputs_copy(const inputs *from) {
  inputs in = *from;
  unsigned char **to[] = {&in.q, &in.k, &in.v};
  for (tensor t = TENSOR_Q; t <= TENSOR_V; t++) {
    size_t bytes = tensor_bytes(&in.problem, t);
    unsigned char *copy = tensor_alloc(bytes);
    memcpy(copy, *to[t], bytes);
    *to[t] = copy;
  }
  return in;
}

inputs inputs_gather(const inputs *from, const attn_problem *to, int64_t first) {
  inputs in = inputs_make(to, from->padded, 0, 0);
  for (tensor t = TENSOR_Q; t <= TENSOR_V; t++) {
    extent e = tensor_extent(&in.problem, t), source = tensor_extent(&from->problem, t);
    int64_t repeat = e.heads / source.heads;
    for (int64_t b = 0; b < to->batch; b++)
      for (int64_t h = 0; h < e.heads; h++)
        for (int64_t i = 0; i < e.rows; i++)
          for (int64_t l = 0; l < e.columns; l++)
            inputs_set(&in, t, b, h, i, l, inputs_get(from, t, first + b, h / repeat, i, l));
  }
  for (int64_t b = 0; b < to->batch; b++) in.kv_len[b] = from->kv_len[first + b];
  return in;
}

void inputs_free(inputs *in) {
  let_object_go(in->q);
  let_object_go(in->k);
  let_object_go(in->v);
  *in = (inputs){0};
}

void inputs_quantise(inputs *in, tensor which, int bits) {
  const attn_problem *p = &in->problem;
  extent e = tensor_extent(p, which);
  for (int64_t b = 0; b < p->batch; b++)
    for (int64_t h = 0; h < e.heads; h++)
      for (int64_t i = 0; i < e.rows; i++)
        for (int64_t l = 0; l < e.columns; l++)
          inputs_set(in, which, b, h, i, l,
                     ldexp(nearbyint(ldexp(inputs_get(in, which, b, h, i, l), bits)), -bits));
}

double inputs_most(const inputs *in, tensor which) {
  const attn_problem *p = &in->problem;
  const extent e = tensor_extent(p, which);
  double most = 0;
  for (int64_t x = 0; x < p->batch * e.heads * e.rows * e.columns; x++)
    most =
        fmax(most, fabs(inputs_get(in, which, x / e.columns / e.rows / e.heads,
                                   x / e.columns / e.rows % e.heads, x / e.columns % e.rows, x % e.columns)));
  return most;
}

int64_t inputs_keys(const inputs *in, int64_t batch) {
  return in->padded ? in->kv_len[batch] : in->problem.n_kv;
}

attn_plan *plan_or_note(const attn_problem *problem, const char *spec, const attn_options *options) {
  attn_plan *plan = NULL;
  if (attn_plan_create(&plan, problem, spec, options)) {
    note_failure("plan of \"%s\": %s", spec, attn_last_error());
    return NULL;
  }
  return plan;
}

enum { GUARD = 256, CANARY = 0xC5, UNWRITTEN = 0xFF }; /* bytes 0xFF are a NaN in either dtype */

typedef struct guarded {
  unsigned char *block, *at;
  size_t bytes;
} guarded;

static guarded guarded_make(size_t bytes, size_t shift, const void *content) {
  guarded g = {.block = must_alloc(bytes + shift + 2 * (size_t)GUARD), .bytes = bytes};
  g.at = g.block + GUARD + shift;
  memset(g.block, CANARY, bytes + shift + 2 * (size_t)GUARD);
  if (content)
    memcpy(g.at, content, bytes);
  else
    memset(g.at, UNWRITTEN, bytes);
  return g;
}

static bool guarded_intact(const guarded *g) {
  for (const unsigned char *c = g->block; c < g->at; c++)
    if (*c != CANARY) return false;
  for (const unsigned char *c = g->at + g->bytes; c < g->at + g->bytes + GUARD; c++)
    if (*c != CANARY) return false;
  return true;
}

static bool unwritten(const unsigned char *at, size_t size) {
  for (size_t k = 0; k < size; k++)
    if (at[k] != UNWRITTEN) return false;
  return true;
}

/* Gathers the output rows and notes unwritten elements; what remains of the buffer must still be
 * unwritten. */
static void *gather_output(const attn_problem *p, guarded *o) {
  size_t size = attn_dtype_size(attn_stored(p->o, p->dtype)), row = (size_t)p->d_v * size;
  unsigned char *out = must_alloc(output_count(p) * size), *to = out;
  extent e = tensor_extent(p, TENSOR_O);
  for (int64_t b = 0; b < p->batch; b++)
    for (int64_t h = 0; h < e.heads; h++)
      for (int64_t i = 0; i < e.rows; i++, to += row) {
        unsigned char *from = o->at + (size_t)element(e, b, h, i) * size;
        memcpy(to, from, row);
        for (int64_t l = 0; l < e.columns; l++)
          if (unwritten(to + (size_t)l * size, size))
            note_failure("output %d,%d,%d,%d was not written", (int)b, (int)h, (int)i, (int)l);
        memset(from, UNWRITTEN, row);
      }
  if (!unwritten(o->at, o->bytes)) note_failure("a gap between output rows was written");
  return out;
}

void *run_guarded(const attn_plan *plan, const inputs *in, placement place) {
  const attn_problem *p = &in->problem;
  const unsigned char *source[] = {in->q, in->k, in->v};
  guarded copy[3];
  for (tensor t = TENSOR_Q; t <= TENSOR_V; t++)
    copy[t] = guarded_make(tensor_bytes(p, t), place.input, source[t]);
  guarded o = guarded_make(tensor_bytes(p, TENSOR_O), place.output, NULL);
  guarded work = guarded_make(attn_plan_work_size(plan), place.work, NULL);
  void *out = NULL;
  attn_status status = attn_plan_execute(plan, copy[0].at, copy[1].at, copy[2].at,
                                         in->padded ? in->kv_len : NULL, o.at, work.at);
  if (status) note_failure("execute of \"%s\": %s", attn_plan_spec(plan), attn_last_error());
  for (tensor t = TENSOR_Q; t <= TENSOR_V; t++)
    if (!guarded_intact(&copy[t]) || memcmp(copy[t].at, source[t], copy[t].bytes) != 0)
      note_failure("execute changed input %c or memory beside it", "QKV"[t]);
  if (!guarded_intact(&o)) note_failure("execute wrote beside the output");
  if (!guarded_intact(&work)) note_failure("execute wrote beside its work memory");
  if (!status) out = gather_output(p, &o);
  for (tensor t = TENSOR_Q; t <= TENSOR_V; t++) free(copy[t].block);
  free(o.block);
  free(work.block);
  return out;
}

void *run_spec(const char *spec, const attn_options *options, const inputs *in) {
  attn_plan *plan = plan_or_note(&in->problem, spec, options);
  if (!plan) return NULL;
  void *o = run_plain(plan, in);
  attn_plan_destroy(plan);
  return o;
}

attn_tensors tensors_of(const inputs *in) {
  return (attn_tensors){.q = in->q, .k = in->k, .v = in->v, .kv_len = in->padded ? in->kv_len : NULL};
}

attn_status run_tensors(const attn_plan *plan, attn_tensors x) {
  void *work = x.work = must_alloc(attn_plan_work_size(plan));
  const attn_status status = attn_plan_run(plan, &x);
  free(work);
  return status;
}

attn_status verify_tensors(const attn_plan *plan, attn_tensors x) {
  void *work = x.work = must_alloc(attn_plan_verify_size(plan));
  const attn_status status = attn_plan_verify(plan, &x);
  free(work);
  return status;
}

void expect_no_plan(const attn_problem *problem, const char *spec, attn_status status, const char *word) {
  attn_plan *plan = NULL;
  expect_status(attn_plan_create(&plan, problem, spec, NULL), status, spec, __FILE__, __LINE__);
  if (plan || !strstr(attn_last_error(), word))
    note_failure("\"%s\": '%s' does not say '%s'", spec, attn_last_error(), word);
  attn_plan_destroy(plan);
}

const attn_param no_params[] = {{.name = NULL}};

attn_cost no_cost(const attn_context *c) {
  (void)c;
  return (attn_cost){0};
}

double output_get(const attn_problem *p, const void *o, int64_t b, int64_t h, int64_t i, int64_t l) {
  return attn_get(o, ((b * p->heads + h) * p->n_q + i) * p->d_v + l, attn_stored(p->o, p->dtype));
}

size_t output_count(const attn_problem *p) { return (size_t)(p->batch * p->heads * p->n_q * p->d_v); }

void expect_same_rows(const attn_problem *p, const void *a, const void *b, int64_t batch, int64_t from,
                      int64_t to, const char *what) {
  if (!a || !b) return; /* the missing run is noted already */
  size_t row = (size_t)p->d_v * attn_dtype_size(attn_stored(p->o, p->dtype));
  for (int64_t h = 0; h < p->heads; h++)
    for (int64_t i = from; i < to; i++) {
      size_t at = (size_t)((batch * p->heads + h) * p->n_q + i) * row;
      if (memcmp((const char *)a + at, (const char *)b + at, row) != 0) {
        note_failure("%s: batch %d head %d row %d differs, first element %a and %a", what, (int)batch, (int)h,
                     (int)i, output_get(p, a, batch, h, i, 0), output_get(p, b, batch, h, i, 0));
        return;
      }
    }
}

void expect_same(const attn_problem *p, const void *a, const void *b, const char *what) {
  for (int64_t batch = 0; batch < p->batch; batch++) expect_same_rows(p, a, b, batch, 0, p->n_q, what);
}

void expect_same_outputs(const attn_problem *p, void *a, void *b, const char *what) {
  expect_same(p, a, b, what);
  free(a);
  free(b);
}
