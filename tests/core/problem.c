/* problem.c - validity of problems, sizes that overflow, estimates, arguments of execute; and one call. */
#include "tests/support/core.h"

static attn_problem good(void) {
  return shape_problem((case_shape){2, 4, 2, 5, 7, 3, 6, false, false}, ATTN_F32);
}

static void expect_invalid(attn_problem p, const char *field) {
  attn_problem before = p;
  EXPECT_STATUS(attn_problem_resolve(&p), ATTN_EINVAL);
  EXPECT(memcmp(&p, &before, sizeof p) == 0);
  if (!strstr(attn_last_error(), field)) note_failure("\"%s\" does not name %s", attn_last_error(), field);
  expect_no_plan(&before, "tiled", ATTN_EINVAL, "");
  EXPECT_STATUS(attn_estimate(&before, "tiled", NULL, NULL, NULL), ATTN_EINVAL);
}

/* A valid problem with one change is refused with a message that names the field. */
#define REFUSED(field, ...)   \
  do {                        \
    attn_problem p = good();  \
    __VA_ARGS__;              \
    expect_invalid(p, field); \
  } while (0)

Test(core_problem, zero_strides_become_contiguous) {
  attn_problem p = good();
  cr_assert_eq(attn_problem_resolve(&p), ATTN_OK);
  cr_assert(p.q.row == 3 && p.q.head == 15 && p.q.batch == 60);
  cr_assert(p.k.row == 3 && p.k.head == 21 && p.k.batch == 42);
  cr_assert(p.v.row == 6 && p.v.head == 42 && p.v.batch == 84);
  cr_assert(p.o.row == 6 && p.o.head == 30 && p.o.batch == 120);
  attn_problem made = attn_problem_make(1, 2, 10, 16);
  cr_assert(made.kv_heads == 2 && made.n_q == 10 && made.d_v == 16 && made.dtype == ATTN_F32 && !made.causal);
  cr_assert_float_eq(made.scale, 0.25, 0);
}

Test(core_problem, sizes_below_one) {
  for (int64_t bad = -1; bad <= 0; bad++) {
    REFUSED("batch", p.batch = bad);
    REFUSED("heads", p.heads = bad);
    REFUSED("kv_heads", p.kv_heads = bad);
    REFUSED("n_q", p.n_q = bad);
    REFUSED("n_kv", p.n_kv = bad);
    REFUSED("d_qk", p.d_qk = bad);
    REFUSED("d_v", p.d_v = bad);
  }
}

Test(core_problem, other_fields) {
  REFUSED("kv_heads", p.kv_heads = 3);
  REFUSED("kv_heads", p.kv_heads = 8);
  REFUSED("scale", p.scale = (double)NAN);
  REFUSED("scale", p.scale = -(double)INFINITY);
  REFUSED("dtype", p.dtype = (attn_dtype)7);
  REFUSED("q", p.q.row = -3);
  REFUSED("k", p.k = (attn_stride){100, -1, 3, 0});
}

/* Rows of an output that lie on one another would be written twice, by two threads at once. */
Test(core_problem, outputs_that_overlap) {
  REFUSED("o", p.o = (attn_stride){120, 30, 5, 0});
  REFUSED("o", p.o = (attn_stride){120, 30, 0, 0});
  REFUSED("o", p.o = (attn_stride){120, 0, 6, 0});
  REFUSED("o", p.o = (attn_stride){0, 30, 6, 0});
  REFUSED("o", p.o = (attn_stride){100, 30, 6, 0});
  attn_problem interleaved = good();
  interleaved.o = (attn_stride){120, 6, 24, 0};
  EXPECT_STATUS(attn_problem_resolve(&interleaved), ATTN_OK);
}

/* An input that is read many times may: one K for all heads. */
Test(core_problem, inputs_that_broadcast) {
  attn_problem p = shape_problem((case_shape){1, 2, 2, 9, 9, 4, 4, false, false}, ATTN_F32);
  p.k = (attn_stride){36, 0, 4, 0};
  inputs in = inputs_make(&p, false, 3, 1);
  attn_problem apart = shape_problem((case_shape){1, 2, 2, 9, 9, 4, 4, false, false}, ATTN_F32);
  inputs copy = inputs_gather(&in, &apart, 0);
  expect_same_outputs(&apart, run_spec("tiled", NULL, &in), run_spec("tiled", NULL, &copy),
                      "a head stride of 0");
}

Test(core_problem, products_that_overflow) {
  int64_t factors[] = {INT64_C(1) << 32, INT64_C(1) << 31, 2};
  size_t out = 77;
  EXPECT_STATUS(attn_size_product("the thing", factors, 3, &out), ATTN_EINVAL);
  EXPECT(strstr(attn_last_error(), "the thing") && out == 77);
  int64_t negative[] = {3, -1};
  EXPECT_STATUS(attn_size_product("the thing", negative, 2, &out), ATTN_EINVAL);
  int64_t zero[] = {INT64_MAX, 0, INT64_MAX};
  if (!attn_size_product("the thing", zero, 3, &out)) EXPECT(out == 0);
  EXPECT_STATUS(attn_size_product("the thing", factors, 1, &out), ATTN_OK);
  EXPECT(out == (size_t)1 << 32);
  EXPECT_STATUS(attn_size_product("the thing", NULL, 0, &out), ATTN_OK);
  EXPECT(out == 1);
  REFUSED("", p.batch = INT64_C(1) << 40; p.heads = p.kv_heads = INT64_C(1) << 30);
  REFUSED("", p.n_kv = INT64_MAX);
  REFUSED("q: size", p.q = (attn_stride){INT64_MAX / 2, INT64_MAX / 2, 3, 0});
  attn_problem widest = shape_problem((case_shape){1, 1, 1, 1, 1, 3, 6, false, false}, ATTN_F32);
  widest.q =
      (attn_stride){INT64_MAX / 16, INT64_MAX / 32, INT64_MAX / 8 - INT64_MAX / 16 - INT64_MAX / 32, 0};
  EXPECT_STATUS(attn_problem_resolve(&widest), ATTN_OK);
  REFUSED("q: strides overflow", p = widest; p.q.row++);
}

/* Problems that are valid, though no machine holds them: refused, or counted without wrapping round, so that
 * a larger problem never seems smaller. */
static void expect_monotone(const attn_variant *variant, bool wide) {
  size_t before = 0;
  for (int shift = 10; shift <= 58; shift++) {
    attn_problem p = attn_problem_make(1, 1, wide ? 16 : INT64_C(1) << shift, wide ? INT64_C(1) << shift : 1);
    size_t bytes = 0;
    attn_cost cost = {0};
    attn_options options = {.threads = 2};
    p.causal = causal_only(variant);
    note_context("%s at %s = 2^%d", variant->name, wide ? "d" : "n", shift);
    attn_status status = attn_estimate(&p, variant->name, &options, &bytes, &cost);
    if (status) {
      EXPECT(status == ATTN_EINVAL || status == ATTN_EUNSUPPORTED);
      continue;
    }
    EXPECT(isfinite(cost.mul_add) && cost.mul_add >= ldexp(1, shift));
    EXPECT(bytes >= before && bytes <= PTRDIFF_MAX);
    before = bytes;
  }
}

Test(core_problem, estimates_do_not_wrap) {
  for (size_t v = 0; v < attn_variant_count(); v++) {
    expect_monotone(attn_variant_at(v), false);
    expect_monotone(attn_variant_at(v), true);
  }
}

static attn_cost cost_of(attn_problem p, const char *spec, const char *factor, int64_t times) {
  attn_cost cost = {0};
  if (strchr(factor, 'b')) p.batch *= times;
  if (strchr(factor, 'h')) p.heads *= times;
  if (strchr(factor, 'k')) p.kv_heads *= times;
  if (strchr(factor, 'n')) p.n_q *= times, p.n_kv *= times;
  if (strchr(factor, 'q')) p.d_qk *= times;
  if (strchr(factor, 'v')) p.d_v *= times;
  EXPECT_STATUS(attn_estimate(&p, spec, NULL, NULL, &cost), ATTN_OK);
  return cost;
}

static bool has_any(const char *spec, const char *words) {
  char word[24];
  for (int size; sscanf(words, "%23s%n", word, &size) == 1; words += size)
    if (strstr(spec, word)) return true;
  return false;
}

/* Batch entries are alike, and kv heads with their queries; more heads of either kind and longer rows take no
 * less, unless longer keys are met more rarely. */
static void expect_costs_of_alike(const attn_problem *p, const char *spec) {
  static const char *const alike[] = {"b", "hk"}, *const more[] = {"h", "k", "q", "v", "n"};
  static const char of_all_heads[] = "=index, ,whole=no,top= latent:";
  const attn_cost one = cost_of(*p, spec, "", 1);
  attn_problem given = *p;
  EXPECT_STATUS(attn_problem_resolve(&given), ATTN_OK);
  note_context("%s: %g bytes of %g", spec, one.bytes, attn_problem_bytes(&given));
  EXPECT(one.bytes >= attn_problem_bytes(&given));
  for (int i = 0; i < (has_any(spec, of_all_heads) ? 1 : 2); i++) {
    const attn_cost all = cost_of(*p, spec, alike[i], 4);
    note_context("%s, %s", spec, alike[i]);
    EXPECT(fabs(all.mul_add - 4 * one.mul_add) <= 1e-12 * all.mul_add);
    EXPECT(fabs(all.exp - 4 * one.exp) <= 1e-12 * all.exp);
    EXPECT(fabs(all.bytes - 4 * one.bytes) <= 1e-12 * all.bytes);
  }
  for (int i = 0; i < 5; i++) {
    const attn_cost other = cost_of(*p, spec, more[i], 2);
    note_context("%s, %s", spec, more[i]);
    if (strcmp(more[i], "q") == 0 && strstr(spec, ",centre=")) continue;
    EXPECT(other.mul_add >= one.mul_add && other.exp >= one.exp && other.bytes > one.bytes);
  }
}

Test(core_problem, costs_are_of_heads_that_are_alike) {
  for (size_t v = 0; v < attn_variant_count(); v++) {
    const attn_variant *variant = attn_variant_at(v);
    attn_problem p = shape_problem((case_shape){41, 6, 3, 66, 66, 12, 20, false, false}, ATTN_F32);
    for (int causal = causal_only(variant); causal <= (variant->caps & ATTN_CAP_CAUSAL ? 1 : 0); causal++) {
      p.causal = causal;
      spec_list specs = specs_for(variant, &p, 64);
      for (int s = 0; s < specs.count; s++) expect_costs_of_alike(&p, specs.text[s]);
      spec_list_free(&specs);
    }
  }
}

/* Of n numbers, there and back, and the products. */
static double transform(double n) { return n * (2.5 * log2(n) + 3); }

#define POOL ",budget=16,recent=4,prompt=20,shared=0.5"

/* Each variant's cost by the formula that its head gives, of a problem of which no two sizes are alike. */
Test(core_problem, costs_are_those_of_the_formulas) {
  enum { H = 6, G = 3, Q = 40, N = 66, D = 12, V = 20, ROW = D + V, M = 8, PAIRS = H * Q * N };
  const double rows = H * Q + G * N, low = H * (N + Q + M) * M * ROW, once = H * Q, kept = G * N * ROW,
               seen = H * 1860, clt = once * 4 * (exp(1) - 1) * pow(0.6744897501960817, 2),
               slash = once * (N * (1 - (1 - 5.0 / N) * (1 - 7.0 / (N + Q - 1))) + 5),
               hyper = once * (N / 5.0 + N * (1 - pow(1 - 1.0 / N, 8)) * 4 / 5),
               halves = once * (3 + (N - 3) / 2.0),
               hull = once * (3 + (N - 3) * (1 - pow(1 - 1 / sqrt(8 * acos(-1) * log(64)), 2)));
  const struct {
    const char *spec;
    double mul_add, exp;
  } costs[] = {
      {"tiled", PAIRS * ROW, PAIRS},
      {"columns", PAIRS * (D / 2 + V), PAIRS},
      {"turbo", PAIRS * ROW + 2 * (D * D + V * V) * G * N, PAIRS},
      {"cluster:clusters=8,topk=5,iterations=3", once * M * D * 3 + H * M * N * ROW + once * 5 * ROW,
       H * M * N + once * 5},
      {"coreset:keys=8", H * M * (2 * (Q + N) * D + (Q + 2 * N) * M / 2 + (Q + N) * (V + 1)),
       H * M * (Q + 2 * N)},
      {"skyformer:landmarks=8", H * (Q + N) * M * (ROW + M / 2 + 1), H * (Q + N) * M},
      {"svd:r=4", PAIRS * ROW + once * (Q * N / 2 + 5 * Q * Q), PAIRS},
      {"svd:r=4,of=scores", PAIRS * ROW + H * ((N + 2 * Q) * D * D + 15 * D * D * D), PAIRS},
      {"linformer:k=8", once * M * ROW + kept * M, once * M},
      {"linformer:k=8,projection=pool", once * M * ROW + kept, once * M},
      {"linformer:k=8,projection=srht", once * M * ROW + G * ROW * 128 * 7 / 2, once * M},
      {"nystrom:landmarks=8,iterations=3", low + H * 12 * M * M * M + rows * D / 2, H * M * (N + Q + M)},
      {"nystrom:landmarks=8,middle=pinv", low + H * 41 * M * M * M + rows * D / 2, H * M * (N + Q + M)},
      {"nystrom:landmarks=8,middle=agents,by=sample", low, H * M * (N + Q + M)},
      {"sample:count=9", once * 9 * ROW, once * 9},
      {"sample:guarantee=bernstein,base=7", PAIRS * ROW + once * D * (7 + N), PAIRS},
      {"sample:guarantee=clt,eps=0.5,delta=0.5,base=7", clt * ROW + once * D * 7, clt},
      {"linear:feature=identity", rows * D * (V + 1), 0},
      {"performer:features=24", rows * 24 * (ROW + 1), rows * 24},
      {"topk:k=9", once * 9 * ROW + PAIRS * D + G * N * D, once * 9},
      {"topk:k=9,by=loki", once * 9 * ROW + PAIRS * D + G * N * D + G * (2 * N + 5 * D) * D * D, once * 9},
      {"pages:page=4,budget=16", once * 16 * ROW + PAIRS * 2 * D / 4 + G * N * D, once * 16},
      {"vslash:vertical=5,slash=7,last=9,sink=3,window=2", slash * ROW + H * 9 * N * D, slash + H * 9 * N},
      {"lsh:rounds=2,buckets=4,window=3", once * (3 + (N - 3) * 7 / 16.0) * ROW + D * rows * 4,
       once * (3 + (N - 3) * 7 / 16.0)},
      {"lsh:rounds=2,buckets=64,window=3,seed=2", hull * (2 + V) + 2 * rows * 64, hull}, /* d = seed */
      {"lsh:rounds=2,buckets=4,window=3,seed=1", halves * (1 + V) + rows * 4, halves},
      {"toeplitz:feature=identity,slope=1,block=8", H * D * (V + 1) * transform(108), H * 108},
      {"hyper:block=16,sample=8,exact_below=0,bits=3", hyper * ROW + D * rows * 3, hyper},
      {"hyper:block=16,sample=8,exact_below=0,bits=3,sampling=values",
       hyper * ROW + D * rows * 3 + G * N * (V + 1) * (V + 1), hyper},
      {"latent:rank=5", PAIRS * 10 + G * ROW * N * (N / 2 + 5) + 5 * N * N * N + once * ROW * 5, PAIRS},
      {"longformer:window=8", once * ROW * (9 - 20.0 / N), once * (9 - 20.0 / N)},
      {"bigbird:block=4,window=3,random=2,global=1", H * (36 * 24 + 4 * N) * ROW, H * (36 * 24 + 4 * N)},
      {"longnet:segments=8+16,dilations=1+2", once * 12 * ROW, once * 12},
      {"pooled:block=4,window=8", H * 785 * ROW + kept, H * 785}, /* the first that is causal */
      {"linear:feature=identity", rows * D * (V + 1) + once * 97 / 2 * (ROW + 1), 0},
      {"toeplitz:feature=identity,slope=1,block=8,normalise=no",
       once * 8 * ROW + H * D * V * (4 * transform(15) + 2 * transform(32) + transform(64) + transform(128)),
       once * 4 + H * (15 + 32 + 64 + 128)},
      {"latent:rank=5,prompt=33",
       seen * (10 + 0.75 * ROW) + 96 * (33 * 48 + N * 5 + 5 * 96 * 96) + once * ROW * 5, seen},
      {"recurrent:chunk=8", H * ((N - 1) * D * V + Q * (D * V + 16 * ROW)), H * N * 3},
      {"recurrent:rule=kda,chunk=8", H * ((N - 1) * D * V + (N + Q) * (D * V + 4 * ROW) + N * 4 * 2 * D),
       H * N * D},
      {"evict:score=h2o,budget=16,recent=4", H * 936 * (ROW + D), H * 936 * 2}, /* of all queries */
      {"evict:score=keydiff,budget=16,recent=4", H * 936 * ROW + G * (N - 16) * 16 * 2 * D, H * 936},
      {"evict:score=expected,budget=16,recent=4", H * 936 * (ROW + D + 256) + H * N * 64 * D, H * 936 * 2},
      {"evict:score=lagkv,budget=16,recent=4", H * 936 * ROW + G * (N - 16) * 16 * 2 * ROW, H * 936},
      {"evict:score=keydiff" POOL, H * 946 * ROW + G * ((N - 20) * 16 + G * 20) * 2 * D, H * 946},
      {"evict:score=snapkv" POOL, H * 946 * ROW + H * (946 + G * 210) * D, H * (946 * 2 + G * 210)},
      {"evict:score=exact" POOL, H * 946 * ROW + H * (1 + G) * N * (N + 1) * D,
       H * (946 + (1 + G) * N * (N + 1))},
  };
  attn_problem p = shape_problem((case_shape){2, H, G, Q, N, D, V, false, false}, ATTN_F32);
  for (size_t c = 0; c < sizeof costs / sizeof *costs; c++) {
    p.causal |= strstr(costs[c].spec, "pooled") != NULL;
    p.d_qk = strstr(costs[c].spec, "seed=1") ? 1 : strstr(costs[c].spec, "seed=2") ? 2 : D;
    p.n_q = strstr(costs[c].spec, "evict") ? N : Q;
    const attn_cost got = cost_of(p, costs[c].spec, "", 1);
    if (!(fabs(got.mul_add - 2 * costs[c].mul_add) <= 1e-9 * got.mul_add &&
          fabs(got.exp - 2 * costs[c].exp) <= 1e-9 * got.exp))
      note_failure("%s: %.12g and %.12g, expected %.12g and %.12g", costs[c].spec, got.mul_add / 2,
                   got.exp / 2, costs[c].mul_add, costs[c].exp);
  }
}

Test(core_problem, execute_checks_its_arguments) {
  inputs in = inputs_shaped((case_shape){2, 1, 1, 5, 6, 3, 3, false, false}, ATTN_F32, 1, 1);
  attn_plan *plan = plan_made(&in.problem, "tiled", NULL);
  float *o = kept_memory(calloc(30, sizeof *o));
  void *work = kept_memory(malloc(attn_plan_work_size(plan)));
  static const int64_t too_many[] = {6, 7}, negative[] = {-1, 6}, fine[] = {6, 0};
  EXPECT_STATUS(attn_plan_execute(plan, in.q, in.k, in.v, too_many, o, work), ATTN_EINVAL);
  EXPECT(strstr(attn_last_error(), "kv_len"));
  EXPECT_STATUS(attn_plan_execute(plan, in.q, in.k, in.v, negative, o, work), ATTN_EINVAL);
  for (int k = 0; k < 30; k++) EXPECT(o[k] <= 0 && o[k] >= 0);
  EXPECT_STATUS(attn_plan_execute(plan, in.q, in.k, in.v, fine, o, work), ATTN_OK);
  attn_plan_destroy(plan), attn_plan_destroy(NULL);
}

Test(core_problem, options) {
  attn_problem p = good();
  attn_plan *plan = NULL;
  attn_options options = {.threads = 4096};
  EXPECT_STATUS(attn_estimate(&p, "tiled", &options, NULL, NULL), ATTN_OK);
  for (options.threads = -1; options.threads <= 4097; options.threads += 4098)
    EXPECT_STATUS(attn_plan_create(&plan, &p, "tiled", &options), ATTN_EINVAL);
  options = (attn_options){.isa = "nosuch"};
  EXPECT_STATUS(attn_plan_create(&plan, &p, "tiled", &options), ATTN_EINVAL);
  EXPECT(strstr(attn_last_error(), "nosuch") && strstr(attn_last_error(), "scalar"));
  options = (attn_options){.isa = "scalar", .threads = 3};
  EXPECT_STATUS(attn_plan_create(&plan, &p, "tiled", &options), ATTN_OK);
  cr_assert_not_null(plan);
  EXPECT(strcmp(attn_plan_isa(plan), "scalar") == 0);
  EXPECT(strcmp(attn_plan_spec(plan),
                "tiled:precision=f32,path=auto,block_q=0,block_k=0,skip=0,order=forward") == 0);
  EXPECT(attn_plan_problem(plan)->q.row == 3 && attn_plan_context(plan)->threads == 3);
  EXPECT(strcmp(attn_plan_variant(plan)->name, "tiled") == 0);
  attn_plan_destroy(plan);
}

/* The environment's choice, and an option that overrules it. Each test is a separate process. */
Test(core_problem, environment_forces_an_instruction_set) {
  attn_problem p = good();
  attn_plan *plan = NULL;
  cr_assert_eq(setenv("ATTN_ISA", "nosuch", 1), 0);
  expect_no_plan(&p, "tiled", ATTN_EINVAL, "");
  cr_assert_eq(setenv("ATTN_ISA", "scalar", 1), 0);
  EXPECT_STATUS(attn_plan_create(&plan, &p, "tiled", NULL), ATTN_OK);
  cr_assert_not_null(plan);
  EXPECT(strcmp(attn_plan_isa(plan), "scalar") == 0);
  attn_plan_destroy(plan);
  attn_options options = {.isa = attn_isa_list()[0]};
  plan = plan_kept(&p, "tiled", &options);
  EXPECT(strcmp(attn_plan_isa(plan), attn_isa_list()[0]) == 0);
}

/* What a variant cannot do is refused with its reason. */
Test(core_problem, unsupported_features_are_refused) {
  for (size_t v = 0; v < attn_variant_count(); v++) {
    const attn_variant *variant = attn_variant_at(v);
    attn_problem p = attn_problem_make(1, 1, 300, 8);
    p.causal = causal_only(variant);
    note_context("%s", variant->name);
    attn_plan_destroy(plan_or_note(&p, variant->name, NULL));
    p.causal = true;
    if (!(variant->caps & ATTN_CAP_CAUSAL)) {
      expect_no_plan(&p, variant->name, ATTN_EUNSUPPORTED, variant->name);
      EXPECT(strstr(attn_last_error(), "causal"));
      EXPECT_STATUS(attn_estimate(&p, variant->name, NULL, NULL, NULL), ATTN_EUNSUPPORTED);
    }
  }
}

/* A list of specs, each with a word of its reason. */
static void expect_refusals(const attn_problem *p, attn_status status, const char *list) {
  char spec[80], word[80];
  for (int size; sscanf(list, "%79[^|]|%79[^;];%n", spec, word, &size) == 2; list += size)
    expect_no_plan(p, spec, status, word);
}

Test(core_problem, settings_are_refused_just_beyond_their_limits) {
  const char *admitted =
      "linformer:k=100 longformer:global_at=99 latent:shared=8 longnet:segments=8,dilations=8 "
      "lsh_tail:hits=2,l=2 bigbird:tail=uniform,random=1 linear:feature=dpfp,nu=15 linear:feature=cos,M=100 "
      "linear:feature=relu2,eps=0.1";
  char spec[80];
  attn_problem p = attn_problem_make(1, 1, 100, 8), wide = p;
  expect_refusals(
      &p, ATTN_EINVAL,
      "linformer:k=101|k=101 is above;linformer:k=8,projection=file|together;longformer:window=3|window;"
      "longformer:global_at=100|global_at;longformer:global=1,global_at=5|not both;linear:rows=4|no weights;"
      "linear:feature=elu,eps=0.1|eps;linear:feature=dpfp,nu=16|nu = 16;linear:feature=cos,M=99|M = 99;"
      "linear:feature=exp,normalise=no|normalise;bigbird:window=2|window;bigbird:tail=uniform,random=0|tail;"
      "longnet:segments=8|1 segments and 3 dilations;longnet:segments=,dilations=|0 segments and 0 dilations;"
      "longnet:segments=8+9+10,dilations=1+2+11|dilation 11 is more than;latent:shared=9|shared=9;"
      "lsh:buckets=3|even;lsh_tail:hits=2,l=1|hits;performer:kernel=trig,eps=0.1|eps;toeplitz:feature=exp|"
      "sums;tiled:precision=bf16,path=fma|path=fma;kivi:residual=33,group=32|no multiple;"
      "store:k=f32,v=f32|change;rotated:k=f32,v=f32|rotated;"
      "sparse_transformer:mode=fixed,stride=9,summary=10|summary=10;");
  expect_refusals(&p, ATTN_EUNSUPPORTED, "latent:prompt=4|only causal;");
  wide.dtype = ATTN_F64;
  expect_refusals(&wide, ATTN_EUNSUPPORTED, "kivi|fp32;sage|fp32;store|fp32;tiled:precision=bf16|fp32;");
  for (int size; sscanf(admitted, "%79s%n", spec, &size) == 1; admitted += size)
    attn_plan_destroy(plan_or_note(&p, spec, NULL));
  p.causal = true;
  attn_plan_destroy(plan_or_note(&p, "sparse_transformer:mode=fixed,stride=9,summary=9", NULL));
  p.n_q = 101;
  expect_refusals(
      &p, ATTN_EUNSUPPORTED,
      "longnet|n_q > n_kv;bigbird|n_q > n_kv;longformer|n_q > n_kv;"
      "graph:kind=documents|n_q > n_kv;linear:feature=cos|n_q > n_kv;evict:score=h2o|101 of 100;");
  p.n_q = 99;
  expect_refusals(&p, ATTN_EUNSUPPORTED, "evict:score=h2o|99 of 100;evict:score=exact|99 of 100;");
}

/* ---- attention in one call is what a plan of the same spec computes, and fails as that does ---- */

Test(core_attention, one_call_is_a_plan_executed_once) {
  static const char *const specs[] = {"full", "tiled", "longformer:window=4", "linformer:k=3",
                                      "performer:features=8"};
  attn_problem p = shape_problem((case_shape){2, 4, 2, 9, 9, 8, 4, false, false}, ATTN_F32);
  inputs in = inputs_make(&p, false, 1, 1);
  for (size_t s = 0; s < sizeof specs / sizeof *specs; s++) {
    note_context("%s", specs[s]);
    void *planned = run_spec(specs[s], NULL, &in), *o = calloc(output_count(&p), sizeof(float));
    cr_assert(planned && o);
    EXPECT_STATUS(attn_attention(in.q, in.k, in.v, o, &p, specs[s]), ATTN_OK);
    expect_same_outputs(&p, planned, o, "one call");
  }
}

Test(core_attention, errors_are_those_of_plans) {
  const float x[8] = {1, 2, 3, 4, 5, 6, 7, 8};
  float o[8] = {0};
  attn_problem p = attn_problem_make(1, 1, 4, 2);
  EXPECT_STATUS(attn_attention(x, x, x, o, &p, "longfromer"), ATTN_ENOTFOUND);
  EXPECT(strstr(attn_last_error(), "did you mean 'longformer'?"));
  EXPECT_STATUS(attn_attention(x, x, x, o, &p, "longformer:window=x"), ATTN_EINVAL);
  EXPECT(strstr(attn_last_error(), "window=x"));
  p.causal = true;
  EXPECT_STATUS(attn_attention(x, x, x, o, &p, "linformer"), ATTN_EUNSUPPORTED);
  p.heads = 0;
  EXPECT_STATUS(attn_attention(x, x, x, o, &p, "tiled"), ATTN_EINVAL);
  EXPECT(strstr(attn_last_error(), "heads"));
  for (int i = 0; i < 8; i++) EXPECT(o[i] <= 0 && o[i] >= 0);
}
