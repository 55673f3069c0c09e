/* test_case.c - see test_case.h. */
#include "experiments/commands/test_case.h"

#include "attn_variant.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "data/data.h"
#include "experiments/verification/check_plan.h"
#include "experiments/support/region.h"

static const char *const input_names[] = {"ordinary scores", "peaked scores", "one key of a large score",
                                          "keys all alike", "large norms"};
static const double deviations[] = {1, 2.5, 1, 1, 20};

/* Batch, heads, kv heads, length: from what serves best to what takes least of a variant. */
static const int64_t shapes[][4] = {{2, 4, 2, 197}, {2, 2, 2, 256}, {1, 1, 1, 389}, {1, 1, 1, 512}};
enum { SHAPES = sizeof shapes / sizeof *shapes };

int test_cases_list(bool in_turn, const char *score, const char *mask, const char *only, uint64_t seed,
                    test_case out[TEST_CASES]) {
  static const struct {
    attn_dtype dtype;
    bool causal;
    test_input input;
    int64_t d, d_v;
  } all[] = {{ATTN_F32, false, INPUT_ORDINARY, 32, 32}, {ATTN_F64, false, INPUT_ORDINARY, 80, 48},
             {ATTN_F32, true, INPUT_ORDINARY, 32, 32},  {ATTN_F64, true, INPUT_ORDINARY, 33, 17},
             {ATTN_F32, false, INPUT_PEAKED, 33, 17},   {ATTN_F64, false, INPUT_PEAKED, 32, 32},
             {ATTN_F32, true, INPUT_PEAKED, 80, 48},    {ATTN_F64, true, INPUT_PEAKED, 32, 32},
             {ATTN_F32, false, INPUT_NEEDLE, 32, 32},   {ATTN_F64, true, INPUT_NEEDLE, 33, 17},
             {ATTN_F32, true, INPUT_FLAT, 32, 32},      {ATTN_F64, false, INPUT_FLAT, 33, 17},
             {ATTN_F32, false, INPUT_LARGE, 33, 17},    {ATTN_F64, true, INPUT_LARGE, 32, 32}};
  const char *const *isas = attn_isa_list();
  int count = 0;
  for (int i = 0; isas[i] && !(in_turn && i); i++)
    for (size_t c = 0; c < sizeof all / sizeof *all && count < TEST_CASES; c++) {
      /* Kernels of the other instruction sets, of each type once. */
      if (i > 0 && (all[c].input != INPUT_ORDINARY || all[c].causal != (all[c].dtype == ATTN_F64))) continue;
      out[count++] = (test_case){all[c].dtype, all[c].causal, all[c].input, all[c].d, all[c].d_v,
                                 isas[i],      score,         mask,         only,     seed};
    }
  return count;
}

void test_cases_print(const test_case *cases, int count) {
  printf("%d problems: f32 and f64, causal and not;", count);
  for (size_t i = 0; i < sizeof input_names / sizeof *input_names; i++)
    printf("%s %s", i ? "," : "", input_names[i]);
  printf(";");
  for (int c = 0; c < count; c++)
    if (!c || strcmp(cases[c].isa, cases[c - 1].isa) != 0) printf("%s %s", c ? "," : "", cases[c].isa);
  if (*cases->score) printf("; score %s", cases->score);
  if (*cases->mask) printf("; mask %s", cases->mask);
  printf("\n\n");
  fflush(stdout);
}

void test_case_name(const test_case *c, char out[TEST_CASE_NAME]) {
  snprintf(out, TEST_CASE_NAME, "%s, %s, %s, d = %d, d_v = %d, %s", attn_numbers[c->dtype].name,
           c->causal ? "causal" : "not causal", input_names[c->input], (int)c->d, (int)c->d_v, c->isa);
}

static void *draw(region *memory, int64_t count, attn_dtype type, double std, uint64_t tensor,
                  uint64_t seed) {
  void *at = region_take(memory, count, attn_dtype_size(type));
  attn_rng rng;
  attn_rng_init(&rng, tensor, 1, seed - 1);
  for (int64_t i = 0; at && i < count; i++) attn_set(at, i, type, std * attn_rng_normal(&rng));
  return at;
}

/* Each head has a needle at another place: a key along the first axis, along which every query lies, too. Its
 * score is about 100 (4 x 25 sqrt(d), times 1/sqrt(d)). */
static void shape_keys(const attn_problem *p, test_input input, void *q, void *k) {
  const int64_t d = p->d_qk, lines = p->batch * p->kv_heads;
  for (int64_t i = 0; input == INPUT_NEEDLE && i < p->batch * p->heads * p->n_q; i++)
    attn_set(q, i * d, p->dtype, 4 + 0.25 * attn_get(q, i * d, p->dtype));
  for (int64_t line = 0; line < lines; line++) {
    const int64_t needle = p->n_kv * (line + 1) / (lines + 1);
    for (int64_t j = 0; j < p->n_kv; j++)
      for (int64_t l = 0; l < d; l++) {
        const int64_t at = (line * p->n_kv + j) * d + l;
        if (input == INPUT_FLAT) attn_set(k, at, p->dtype, attn_get(k, line * p->n_kv * d + l, p->dtype));
        if (input == INPUT_NEEDLE && j == needle) attn_set(k, at, p->dtype, l ? 0 : 25 * sqrt((double)d));
      }
  }
}

static attn_status make_problem(const test_case *c, const int64_t *shape, attn_problem *out,
                                data_target **target) {
  attn_problem p = attn_problem_make(shape[0], shape[1], shape[3], c->d);
  p.d_v = c->d_v;
  p.kv_heads = shape[2];
  p.dtype = c->dtype;
  p.causal = c->causal;
  attn_status status = data_target_make(c->score, c->mask, &p, target);
  if (!status) *out = p;
  return status;
}

attn_status test_case_check(const test_case *c) {
  attn_status status = ATTN_OK;
  for (size_t s = SHAPES; s--;) {
    attn_problem p;
    data_target *target = NULL;
    status = make_problem(c, shapes[s], &p, &target);
    data_target_free(target);
    if (status != ATTN_EINVAL) return status;
  }
  return status;
}

/* The case at one of the shapes: its plan, and tensors with the output. */
typedef struct case_run {
  attn_plan *plan;
  data_target *target;
  region memory;
  attn_tensors x;
} case_run;

static attn_status execute(const test_case *c, case_run *r) {
  const attn_problem *p = attn_plan_problem(r->plan);
  const double std = deviations[c->input];
  const int64_t q_count = p->batch * p->heads * p->n_q, k_count = p->batch * p->kv_heads * p->n_kv;
  void *q = draw(&r->memory, q_count * p->d_qk, p->dtype, std, 1, c->seed),
       *k = draw(&r->memory, k_count * p->d_qk, p->dtype, std, 2, c->seed);
  r->x = (attn_tensors){.q = q,
                        .k = k,
                        .v = draw(&r->memory, k_count * p->d_v, p->dtype, 1, 3, c->seed),
                        .o = draw(&r->memory, q_count * p->d_v, p->dtype, 1, 4, c->seed),
                        .work = region_take(&r->memory, 1, attn_plan_verify_size(r->plan))};
  if (r->memory.refused) return attn_fail(ATTN_ENOMEM, "no memory to test %s", attn_plan_spec(r->plan));
  shape_keys(p, c->input, q, k);
  return attn_plan_verify(r->plan, &r->x);
}

static attn_status run_shape(const attn_spec *spec, const test_case *c, const int64_t *shape, case_run *r) {
  const attn_options options = {.isa = c->isa};
  attn_problem p;
  *r = (case_run){.plan = NULL};
  attn_status status = make_problem(c, shape, &p, &r->target);
  if (!status) status = attn_plan_create_spec(&r->plan, &p, spec, &options);
  if (status == ATTN_EINVAL) status = attn_fail(ATTN_EUNSUPPORTED, "%s", attn_last_error());
  return status ? status : execute(c, r);
}

attn_status test_case_judge(const attn_spec *spec, const test_case *c, test_case_told *told, void *to,
                            bool *taken) {
  const check_request request = {.seed = 7,
                                 .rows = -1,
                                 .properties = c->input == INPUT_ORDINARY,
                                 .only = c->only,
                                 .told = told,
                                 .to = to};
  case_run r;
  attn_status status = run_shape(spec, c, shapes[0], &r);
  for (size_t s = 1; s < SHAPES && status == ATTN_EUNSUPPORTED; s++)
    status = run_shape(spec, c, shapes[s], &r);
  *taken = status != ATTN_EUNSUPPORTED;
  if (!status) {
    result_row row;
    result_row_init(&row);
    r.x.work = NULL;
    status = check_plan(r.plan, &r.x, &request, &row);
  }
  return status;
}
