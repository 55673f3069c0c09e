/* null.c - every function of the public headers with NULL for each pointer that must not be: EINVAL with the
 * name of the argument, and never a crash. */
#include "attn_expression.h"
#include "attn_kv_cache.h"
#include "tests/support/core.h"

#include <ctype.h>

static attn_problem problem;
static attn_plan *plan;
static attn_kv_cache *cache;
static attn_transform *transform;
static float x[64 * 64];
static double numbers[64];
static void *refuse_alloc(void *context, size_t bytes) {
  (void)context, (void)bytes;
  return NULL;
}

static void set_up(void) {
  problem = attn_problem_make(1, 1, 8, 4);
  cr_assert_eq(attn_plan_create(&plan, &problem, "tiled", NULL), ATTN_OK);
  cr_assert_eq(attn_transform_create(&transform, ATTN_WALSH, 8, ATTN_F32), ATTN_OK);
}

#define REFUSES(call, name)                                                                   \
  do {                                                                                        \
    attn_fail(ATTN_OK, "untouched");                                                          \
    EXPECT_STATUS(call, ATTN_EINVAL);                                                         \
    if (!strstr(attn_last_error(), name)) note_failure("%s: '%s'", #call, attn_last_error()); \
  } while (0)

static attn_status see_nothing(void *context, const attn_spec *atom) {
  (void)context, (void)atom;
  return ATTN_OK;
}

static void callers(void) {
  size_t bytes;
  int64_t factors[] = {1, 2}, list;
  double number, *values;
  const attn_variant *found;
  attn_spec *spec;
  void *params;
  char *text;
  static const attn_param table[] = {{.name = NULL}};
  const attn_allocator no_release = {refuse_alloc, NULL, NULL}, no_alloc = {NULL, NULL, NULL};
  REFUSES(attn_problem_resolve(NULL), "problem");
  REFUSES(attn_alibi(1, 4, NULL), "table");
  REFUSES(attn_t5_bucket(1, true, 32, 128, NULL), "bucket");
  REFUSES(attn_size_product(NULL, factors, 2, &bytes), "what");
  REFUSES(attn_size_product("it", NULL, 2, &bytes), "factors");
  REFUSES(attn_size_product("it", factors, 2, NULL), "result");
  REFUSES(attn_attention(NULL, x, x, x, &problem, "tiled"), "q must");
  REFUSES(attn_attention(x, NULL, x, x, &problem, "tiled"), "k must");
  REFUSES(attn_attention(x, x, NULL, x, &problem, "tiled"), "v must");
  REFUSES(attn_attention(x, x, x, NULL, &problem, "tiled"), "o must");
  REFUSES(attn_attention(x, x, x, x, NULL, "tiled"), "problem");
  REFUSES(attn_attention(x, x, x, x, &problem, NULL), "spec");
  REFUSES(attn_options_fill(NULL, ATTN_F32, 4, 4, NULL), "result");
  REFUSES(attn_plan_create(NULL, &problem, "tiled", NULL), "plan");
  REFUSES(attn_plan_create(&plan, NULL, "tiled", NULL), "problem");
  REFUSES(attn_plan_create(&plan, &problem, NULL, NULL), "spec");
  REFUSES(attn_plan_create(&plan, &problem, "tiled", &(attn_options){.allocator = &no_release}), "release");
  REFUSES(attn_plan_create(&plan, &problem, "tiled", &(attn_options){.allocator = &no_alloc}), "alloc");
  REFUSES(attn_kv_cache_create(&cache, &problem, "tiled", &(attn_options){.allocator = &no_release}),
          "release");
  REFUSES(attn_plan_execute(NULL, x, x, x, NULL, x, x), "plan");
  REFUSES(attn_plan_execute(plan, NULL, x, x, NULL, x, x), "q must");
  REFUSES(attn_plan_execute(plan, x, NULL, x, NULL, x, x), "k must");
  REFUSES(attn_plan_execute(plan, x, x, NULL, NULL, x, x), "v must");
  REFUSES(attn_plan_execute(plan, x, x, x, NULL, NULL, x), "o must");
  REFUSES(attn_plan_execute(plan, x, x, x, NULL, x, NULL), "work must");
  REFUSES(attn_plan_run(NULL, &(attn_tensors){0}), "plan");
  REFUSES(attn_plan_run(plan, NULL), "tensors");
  REFUSES(attn_plan_execute_lse(NULL, x, x, x, NULL, x, numbers, x), "plan");
  REFUSES(attn_plan_execute_lse(plan, x, x, x, NULL, x, NULL, x), "lse");
  REFUSES(attn_plan_verify(NULL, &(attn_tensors){.q = x}), "plan");
  REFUSES(attn_plan_verify(plan, NULL), "tensors");
  REFUSES(attn_plan_verify(plan, &(attn_tensors){.q = x, .k = x, .o = x, .work = x}), "v must");
  REFUSES(attn_plan_verify(plan, &(attn_tensors){.q = x, .k = x, .v = x, .o = x}), "work must");
  size_t behind = 0;
  attn_tensors given = {.q = x, .k = x, .v = x, .o = x, .work = x};
  attn_gradients wanted = {.d_o = x};
  REFUSES(attn_plan_backward(NULL, &given, &wanted), "plan");
  REFUSES(attn_plan_backward(plan, NULL, &wanted), "tensors");
  REFUSES(attn_plan_backward(plan, &given, NULL), "gradients");
  REFUSES(attn_plan_backward(plan, &given, &(attn_gradients){.dq = x}), "d_o");
  REFUSES(attn_plan_backward(plan, &given, &wanted), "lse");
  given.lse = numbers;
  wanted.d_o_at = (attn_stride){.stored = ATTN_F16};
  REFUSES(attn_plan_backward(plan, &given, &wanted), "d_o: stored in another type than f32");
  wanted.d_o_at = (attn_stride){.row = -4};
  REFUSES(attn_plan_backward(plan, &given, &wanted), "d_o: negative stride");
  given.work = NULL;
  REFUSES(attn_plan_backward(plan, &given, &wanted), "work must");
  REFUSES(attn_plan_backward_size(NULL, &behind), "plan");
  REFUSES(attn_plan_backward_size(plan, NULL), "bytes");
  REFUSES(attn_estimate(NULL, "tiled", NULL, NULL, NULL), "problem");
  REFUSES(attn_estimate(&problem, NULL, NULL, NULL, NULL), "spec");
  REFUSES(attn_peak(NULL, ATTN_PEAK_F32, 0, NULL), "result");
  REFUSES(attn_read_bandwidth(NULL, NULL, sizeof x, 0, &number), "buffer");
  REFUSES(attn_read_bandwidth(NULL, x, sizeof x, 0, NULL), "result");
  REFUSES(attn_variant_find(NULL, &found), "name");
  REFUSES(attn_variant_find("tiled", NULL), "variant");
  REFUSES(attn_variant_register(NULL), "variant");
  REFUSES(attn_plugin_load(NULL), "path");
  EXPECT_STATUS(attn_plugin_load_path(NULL), ATTN_OK);
  attn_matrix_reader_set(NULL);
  attn_graph_reader_set(NULL);
  attn_graph graph = {.heads = 1};
  REFUSES(attn_graph_read(NULL, &(attn_graph_request){.rows = 1}, &graph), "path");
  REFUSES(attn_graph_read("it", NULL, &graph), "request");
  REFUSES(attn_graph_read("it", &(attn_graph_request){.rows = 1}, NULL), "graph");
  REFUSES(attn_params_parse(NULL, table, 0, "", &params, &text), "owner");
  REFUSES(attn_params_parse("it", NULL, 0, "", &params, &text), "table");
  REFUSES(attn_params_parse("it", table, 0, "", NULL, &text), "params");
  REFUSES(attn_params_parse("it", table, 0, "", &params, NULL), "canonical");
  REFUSES(attn_spec_parse(NULL, "tiled"), "spec");
  REFUSES(attn_spec_parse(&spec, NULL), "text");
  const attn_spec *tiled = attn_plan_parsed_spec(plan);
  REFUSES(attn_plan_create_spec(NULL, &problem, tiled, NULL), "plan");
  REFUSES(attn_plan_create_spec(&plan, NULL, tiled, NULL), "problem");
  REFUSES(attn_plan_create_spec(&plan, &problem, NULL, NULL), "spec");
  REFUSES(attn_estimate_spec(NULL, tiled, NULL, NULL, NULL), "problem");
  REFUSES(attn_estimate_spec(&problem, NULL, NULL, NULL, NULL), "spec");
  REFUSES(attn_spec_with(NULL, "path", "fma", &spec), "spec");
  REFUSES(attn_spec_with(tiled, NULL, "fma", &spec), "parameter");
  REFUSES(attn_spec_with(tiled, "path", NULL, &spec), "value");
  REFUSES(attn_spec_with(tiled, "path", "fma", NULL), "result");
  REFUSES(attn_spec_with_int(NULL, "path", 1, &spec), "spec");
  REFUSES(attn_spec_with_seed(NULL, "path", 1, &spec), "spec");
  REFUSES(attn_spec_print(NULL, NULL, NULL, &text), "spec");
  REFUSES(attn_spec_print(tiled, NULL, NULL, NULL), "text");
  REFUSES(attn_spec_each(NULL, false, see_nothing, NULL), "spec");
  REFUSES(attn_spec_each(tiled, false, NULL, NULL), "visitor");
  REFUSES(attn_spec_at(NULL, &spec), "expression");
  REFUSES(attn_spec_at(&(attn_expression){.kind = ATTN_EXPRESSION_ATOM}, NULL), "spec");
  REFUSES(attn_matrix_read(NULL, &list, &list, &values), "path");
  REFUSES(attn_matrix_read("it", NULL, &list, &values), "rows");
  REFUSES(attn_matrix_read("it", &list, NULL, &values), "columns");
  REFUSES(attn_matrix_read("it", &list, &list, NULL), "values");
}

static void callers_without_a_status(void) {
  const attn_param table[] = {{"a", ATTN_INT, 0, 0, 1, "0", NULL, ""}, {.name = NULL}};
  char text[8];
  attn_plan_destroy(NULL);
  attn_spec_destroy(NULL);
  EXPECT(!attn_spec_share(NULL) && !attn_spec_names(NULL, "a") && isnan(attn_spec_number(NULL, "a")));
  EXPECT(!attn_spec_equal(NULL, NULL) && !attn_plan_parsed_spec(NULL));
  attn_params_free(NULL, NULL);
  attn_graph_free(NULL);
  attn_graph graph = {.heads = 1};
  attn_run run;
  EXPECT(isnan(attn_pattern_pairs(NULL, &problem)) && !attn_graph_sees(NULL, 0, 0, 0));
  EXPECT(!attn_graph_row(NULL, 0, 0, 1, 1, &run) && !attn_graph_row(&graph, 0, 0, 1, 1, NULL));
  EXPECT(!attn_graph_ancestors(NULL, 0, &run) && !attn_graph_ancestors(&graph, 0, NULL));
  EXPECT(attn_graph_parent(NULL, 0) == -1);
  REFUSES(attn_graph_forest(NULL, &graph), "path");
  REFUSES(attn_graph_forest("it", NULL), "graph");
  REFUSES(attn_graph_keep(NULL, &graph), "builder");
  static const char *const some[] = {"one", NULL};
  attn_nearest near = {.name = NULL};
  int64_t integer = 0;
  attn_nearest_try(NULL, "it");
  attn_nearest_try(&near, "it");
  EXPECT(!*attn_nearest_hint(NULL) && !*attn_nearest_hint(&near));
  EXPECT(!attn_int_parse(NULL, &integer) && !attn_int_parse("1", NULL));
  EXPECT(attn_choice_find(NULL, "one") == -1 && attn_choice_find(some, NULL) == -1);
  char *lost = NULL;
  EXPECT(!attn_stream_text(NULL, &lost) && !attn_stream_text(tmpfile(), NULL));
  attn_params_free(table, NULL);
  attn_params_free(NULL, x);
  attn_param_print(NULL, x, text, sizeof text);
  attn_param_print(table, NULL, text, sizeof text);
  attn_param_print(table, x, NULL, sizeof text);
  EXPECT(isnan(attn_param_number(NULL, x)) && isnan(attn_param_number(table, NULL)));
  EXPECT(!attn_plan_work_size(NULL) && !attn_plan_state_size(NULL) && !attn_plan_verify_size(NULL) &&
         !attn_plan_bytes(NULL));
  EXPECT(!(attn_plan_cost(NULL).mul_add > 0) && !attn_plan_problem(NULL) && !attn_plan_spec(NULL));
  EXPECT(!attn_plan_isa(NULL) && !attn_sizeof(NULL) && !attn_variant_at(SIZE_MAX));
  int64_t first = -7, end = -7;
  attn_visible_span(NULL, 0, &first, &end);
  attn_visible_span(&problem, 0, NULL, &end);
  attn_visible_span(&problem, 0, &first, NULL);
  attn_score_row(NULL, 0, 0, 0, 0, 1, x);
  attn_score_row(&(attn_call){.context = attn_plan_context(plan)}, 0, 0, 0, 0, 1, NULL);
  EXPECT(!attn_call_problem(NULL, 0, 0).batch);
  EXPECT(!attn_document_begins(NULL, 0));
  EXPECT(!attn_call_extra(NULL, "decay") && !attn_call_extra_row(NULL, NULL, 0, 0, 0));
  EXPECT(!attn_extra_row(NULL, 0, 0, 0) && attn_extra_find(NULL) < 0 && attn_extra_find("decays") < 0);
  EXPECT(attn_extra_check("here", NULL, NULL) == ATTN_EINVAL);
  EXPECT(first == -7 && end == -7 && isnan(attn_score_of(NULL, 0, 0, 0, 0, 1)) &&
         !attn_score_hides(NULL, 0, 0, 0, 0));
  attn_run one;
  int64_t key;
  EXPECT(!attn_seen_keys(NULL, 0, 0, 0, 1, &one, &key) && !attn_seen_keys(&problem, 0, 0, 0, 1, NULL, &key) &&
         !attn_seen_keys(&problem, 0, 0, 0, 1, &one, NULL));
  EXPECT(attn_cache_size(0).bytes == 0 && attn_cache_size(4).bytes == 0 && attn_cache_size(1).bytes > 0);
  EXPECT(attn_reference_row(NULL, NULL, x, x, x, NULL, 0, 0, 0, NULL, NULL, numbers) == -1);
  EXPECT(attn_reference_row(&problem, NULL, NULL, x, x, NULL, 0, 0, 0, NULL, NULL, numbers) == -1);
  EXPECT(attn_reference_row(&problem, NULL, x, x, x, NULL, 0, 0, 0, NULL, NULL, NULL) == -1);
  EXPECT_STATUS(attn_fail(ATTN_EINVAL, NULL), ATTN_EINVAL);
  EXPECT(attn_status_name((attn_status)99) && attn_variant_count() && *attn_isa_list() && !*attn_isa_wrong());
  EXPECT(attn_abi() == ATTN_ABI && attn_version());
}

static void authors(void) {
  attn_view view;
  const void *kept;
  attn_selector selector;
  const attn_feature_map map = {.columns = 1};
  const attn_ranker ranker = {.unit = 1};
  const attn_context *c = attn_plan_context(plan);
  REFUSES(attn_plan_inspect(NULL, &view), "plan");
  REFUSES(attn_plan_inspect(plan, NULL), "view");
  const attn_plan *inner;
  attn_kv_scheme scheme;
  const attn_sign_tables *tables;
  const attn_sign_order *sorted;
  attn_builder *builder = (attn_builder *)(void *)numbers; /* refused before it is looked at */
  REFUSES(attn_call_run(NULL, plan, x, NULL, x), "call");
  REFUSES(attn_call_backward(NULL, plan, x, NULL, &(attn_gradients){.d_o = x}, x), "call");
  const attn_normaliser softmax = attn_softmax_normaliser();
  const attn_call call = {.context = c};
  REFUSES(attn_normaliser_back_size(NULL, c, &(size_t){0}), "normaliser");
  REFUSES(attn_normaliser_back_size(&softmax, NULL, &(size_t){0}), "context");
  REFUSES(attn_normaliser_back_size(&softmax, c, NULL), "bytes");
  REFUSES(attn_normaliser_backward(NULL, &call, &(attn_gradients){.d_o = x}), "normaliser");
  REFUSES(attn_normaliser_backward(&softmax, NULL, &(attn_gradients){.d_o = x}), "call");
  REFUSES(attn_normaliser_backward(&softmax, &call, NULL), "gradients");
  EXPECT(isnan(attn_score_slope(NULL, 1)));
  REFUSES(attn_call_run(&(attn_call){.context = attn_plan_context(plan)}, NULL, x, NULL, x), "plan");
  REFUSES(attn_builder_plan(NULL, &problem, "tiled", &inner), "builder");
  REFUSES(attn_builder_plan(builder, NULL, "tiled", &inner), "problem");
  REFUSES(attn_builder_plan(builder, &problem, NULL, &inner), "spec");
  REFUSES(attn_builder_plan(builder, &problem, "tiled", NULL), "plan");
  REFUSES(attn_context_estimate(NULL, &problem, "tiled", NULL, NULL), "context");
  REFUSES(attn_context_estimate(attn_plan_context(plan), NULL, "tiled", NULL, NULL), "problem");
  REFUSES(attn_context_estimate(attn_plan_context(plan), &problem, NULL, NULL, NULL), "spec");
  REFUSES(attn_builder_own(NULL, x, NULL), "builder");
  REFUSES(attn_transform_create(NULL, ATTN_WALSH, 8, ATTN_F32), "transform");
  attn_run run;
  int64_t picked, first = 0;
  attn_picks picks = {.runs = &run, .counts = &picked};
  const attn_row_set set = {.count = 1, .rows = &first};
  const attn_tensors given = {.q = x, .k = x, .v = x};
  REFUSES(attn_plan_select(NULL, &given, &set, &picks), "plan");
  REFUSES(attn_plan_select(plan, NULL, &set, &picks), "tensors");
  REFUSES(attn_plan_select(plan, &(attn_tensors){.k = x, .v = x}, &set, &picks), "q must");
  REFUSES(attn_plan_select(plan, &given, &set, &(attn_picks){.counts = &picked}), "runs");
  REFUSES(attn_plan_select(plan, &given, &set, &(attn_picks){.runs = &run}), "counts");
  REFUSES(attn_plan_select(plan, &given, NULL, &picks), "rows");
  EXPECT_STATUS(attn_plan_select(plan, &given, &set, &picks), ATTN_EUNSUPPORTED);
  EXPECT(isnan(attn_rank_error(NULL, 1, 1)) && isnan(attn_rank_score(NULL, 0, 1, NULL)) &&
         isnan(attn_index_score(NULL, NULL, 0, 1, NULL)));
  REFUSES(attn_ranker_describe(NULL, NULL, &ranker, &selector), "context");
  REFUSES(attn_ranker_describe(NULL, c, NULL, &selector), "ranker");
  REFUSES(attn_ranker_describe(NULL, c, &ranker, NULL), "selector");
  REFUSES(attn_builder_keep(NULL, NULL, 8, &kept), "value");
  REFUSES(attn_builder_keep(NULL, x, 8, NULL), "kept");
  EXPECT(!attn_builder_keep(NULL, x, 8, &kept) && !kept && !(attn_features_cost(NULL).exp > 0));
  EXPECT(attn_ranker_cost(c, NULL).mul_add <= 0 && !attn_ranker_selector(NULL, NULL).select);
  const attn_fixed_features fixed = {.weights = ""};
  attn_kv_rule rule = {.budget = 8, .recent = 1, .every = 1, .chunk = 1};
  attn_parts parts;
  REFUSES(attn_kv_applicable(NULL, &rule), "context");
  REFUSES(attn_kv_applicable(c, NULL), "rule");
  REFUSES(attn_kv_applicable(c, &rule), "no score");
  rule.score = attn_kv_score_at(0);
  rule.chunk = 0;
  REFUSES(attn_kv_applicable(c, &rule), "every 1 and chunk 0");
  attn_kv_score odd = *rule.score;
  rule.score = &odd;
  rule.chunk = 1;
  odd.values = true;
  REFUSES(attn_kv_applicable(c, &rule), "is fixed, and reads values");
  odd.fixed = odd.values = false;
  odd.products = true;
  REFUSES(attn_kv_applicable(c, &rule), "needs a window");
  REFUSES(attn_fixed_features_check(NULL, &fixed), "context");
  REFUSES(attn_fixed_features_check(c, NULL), "parameters");
  REFUSES(attn_fixed_features_describe(NULL, NULL, &fixed, &parts), "context");
  REFUSES(attn_fixed_features_describe(NULL, c, NULL, &parts), "parameters");
  REFUSES(attn_fixed_features_describe(NULL, c, &fixed, NULL), "parts");
  REFUSES(attn_kv_describe(NULL, c, NULL, &parts), "rule");
  REFUSES(attn_kv_describe(NULL, c, &rule, NULL), "parts");
  REFUSES(attn_kv_codes(NULL, 4, 1, 0, 1, 2, NULL), "scheme");
  REFUSES(attn_kv_codes(NULL, 2, 1, 0, 1, 2, &scheme), "1 bits and 0 signs of 2 elements");
  REFUSES(attn_orthogonalise(1, NULL, numbers, numbers), "a");
  REFUSES(attn_orthogonalise(1, numbers, NULL, numbers), "scratch");
  REFUSES(attn_orthogonalise(1, numbers, numbers, NULL), "q");
  REFUSES(attn_sign_tables_plan(NULL, 4, 4, 0, 0, &tables), "builder");
  REFUSES(attn_sign_tables_plan(builder, 4, 4, 0, 0, NULL), "result");
  REFUSES(attn_sign_tables_plan(builder, 33, 4, 0, 0, &tables), "k = 33");
  REFUSES(attn_sign_order_plan(NULL, 4, 0, 0, &sorted), "builder");
  REFUSES(attn_sign_order_plan(builder, 4, 0, 0, NULL), "result");
  REFUSES(attn_sign_order_plan(builder, 33, 0, 0, &sorted), "33 bits");
  EXPECT(!(attn_residual_cost(NULL, &map, 1).mul_add > 0) && !(attn_residual_cost(c, NULL, 1).mul_add > 0));
  EXPECT(!attn_builder_context(NULL) && !attn_builder_alloc(NULL, 1, 1) && !attn_builder_scratch(NULL, 1, 1));
  EXPECT(!attn_plan_context(NULL) && !attn_plan_variant(NULL) && !attn_call_keys(NULL, 0) &&
         !attn_last_keys(NULL, 0, 0, 0, 1));
  EXPECT(!attn_rows(NULL, (attn_stride){1, 1, 1, 0}, 1, 1, ATTN_F32));
  EXPECT(attn_pattern_row(NULL, NULL, 0, 0, (attn_run *)(void *)x) == -1);
  EXPECT(attn_pattern_row(NULL, &problem, 0, 0, NULL) == -1);
  EXPECT(!attn_load_rows(NULL, ATTN_F16, x, 4, 1, 4, x).at);
  attn_load_row(NULL, ATTN_F16, 1, x, x);
  attn_store_row(NULL, ATTN_F16, 1, x, x);
  attn_convert(NULL, ATTN_F16, 1, ATTN_F32, x);
  EXPECT(!attn_dtype_find(NULL, NULL));
  EXPECT(isnan(attn_problem_bytes(NULL)));
  EXPECT(attn_all_finite(NULL, 1, 4, 4, ATTN_F32));
  EXPECT(!(attn_visible_pairs(NULL) > 0) && !(attn_softmax_cost(NULL, 1).exp > 0) &&
         !(attn_kv_store_cost(NULL).exp > 0) && !(attn_recurrent_cost(NULL).exp > 0) &&
         !(attn_kv_cost(c, NULL).exp > 0));
  attn_join_row(NULL, NULL, NULL, NULL, 0);
  EXPECT(!(attn_toeplitz_cost(NULL).exp > 0) && attn_softmax_normaliser().sums);
  EXPECT(!(attn_linear_cost(NULL, &map).exp > 0) && !(attn_compression_cost(NULL, 1, 1).exp > 0));
  EXPECT(!attn_softmax_row_rounding(NULL).score && !attn_kv_coded(NULL, true, 4, 5));
}

/* Those that return nothing do nothing. */
static void authors_without_a_status(void) {
  const attn_context *c = attn_plan_context(plan);
  const attn_kernels *k = c->kernels;
  const attn_call call = {.context = c};
  int64_t first, end;
  const attn_matrix none = {NULL, 4, 1}, some = {x, 4, 1};
  const attn_packed nothing_packed = {NULL, 4, 4};
  attn_kv_block(2, 4, NULL);
  attn_kv_groups(NULL, ATTN_F32, 4, 1, x, numbers);
  attn_guards_piece(NULL, x, 1, 64);
  attn_transform_destroy(NULL);
  attn_transform_rows(NULL, k, &(attn_transform_job){0}, x);
  attn_transform_rows(transform, NULL, &(attn_transform_job){0}, x);
  attn_transform_rows(transform, k, NULL, x);
  attn_transform_rows(transform, k, &(attn_transform_job){0}, x);
  attn_transform_transposed(NULL, k, &(attn_transform_job){0}, x);
  attn_transform_transposed(transform, k, NULL, x);
  attn_transform_transposed(transform, k, &(attn_transform_job){0}, x);
  EXPECT(attn_transform_scratch(ATTN_WALSH, 8, 8, ATTN_F32) > 0);
  attn_rng_init(NULL, 1, 2, 3);
  EXPECT(!attn_rng_bits(NULL) && isnan(attn_rng_uniform(NULL)) && isnan(attn_rng_normal(NULL)));
  EXPECT(!attn_rng_below(NULL, 7) && !attn_rng_below(&(attn_rng){{1, 2, 3, 4}}, 0));
  EXPECT(!attn_gemm_scratch(NULL) && !attn_gemm_packed_bytes(NULL, 4, 4) && attn_gemm_scratch(k));
  attn_gemm(NULL, 4, 4, 4, some, some, false, x, 4, x);
  attn_gemm(k, 4, 4, 4, none, some, false, x, 4, x);
  attn_gemm(k, 4, 4, 4, some, some, false, NULL, 4, x);
  attn_gemm(k, 4, 4, 4, some, some, false, x, 4, NULL);
  EXPECT(!attn_gemm_pack(k, 4, 4, some, NULL).at && !attn_gemm_pack(NULL, 4, 4, some, x).at);
  attn_gemm_packed(k, 4, 4, 4, some, nothing_packed, false, x, 4, x);
  attn_product(k, 4, 4, 4, some, NULL, 4, false, x, 4);
  attn_product(NULL, 4, 4, 4, some, x, 4, false, x, 4);
  const void *rows[] = {x};
  attn_weight_product(NULL, ATTN_WEIGHT_F32, 1, 1, 4, rows, x, 4, false, x, 1);
  attn_weight_product(k, ATTN_WEIGHT_F32, 1, 1, 4, NULL, x, 4, false, x, 1);
  attn_weight_product(k, ATTN_WEIGHT_NONE, 1, 1, 4, rows, x, 4, false, x, 1);
  attn_exp_rows(k, 1, 4, NULL, 4, NULL);
  attn_exp_row_vjp(k, 4, NULL, x, 0);
  attn_trig_row(k, 4, NULL, x, x);
  attn_trig_row(k, 4, x, NULL, x);
  attn_scale_row(k, 4, 2, NULL, x);
  attn_add_row(k, 4, 2, NULL, x);
  attn_relu_row(k, 4, NULL);
  attn_elu_row(k, 4, NULL);
  attn_multiply_row(k, 4, x, NULL, x);
  attn_pairs_row(k, 4, NULL, x);
  attn_rng_normals(NULL, 1, ATTN_F32, x, 0, 1);
  attn_rng_normals(&(attn_rng){{1, 2, 3, 4}}, 1, ATTN_F32, NULL, 0, 1);
  attn_visible_keys(NULL, 0, 0, 0, &first, &end);
  attn_visible_keys(&call, 0, 0, 0, NULL, &end);
  attn_visible_keys(&call, 0, 0, 0, &first, NULL);
  attn_picks_add(NULL, 0, 0, 1, 0);
  attn_picks_add(&(attn_picks){.max_runs = 1}, 0, 0, 1, 0);
  EXPECT(attn_sign_tables_bytes(NULL, 4, 4) == SIZE_MAX && attn_sign_tables_scratch(NULL, 4, 4) == SIZE_MAX);
  EXPECT(attn_sign_order_scratch(NULL, 4, 4) == SIZE_MAX);
  attn_sign_order_sort(NULL, c, x, problem.k, 1, (int64_t *)(void *)numbers, x);
  EXPECT(!attn_sign_order_place(NULL, &problem, x, ATTN_F32));
  attn_sign_tables_fill(NULL, c, 1, numbers, x, x);
  attn_sign_tables_words(NULL, c, 1, numbers, (uint32_t *)(void *)x, x);
  attn_sign_tables_count(NULL, c, x, (uint32_t *)(void *)x, 1, 0, 1, (uint8_t *)x, x);
  EXPECT(attn_landmark_cost(NULL, &(attn_low_rank){.rank = 2}).mul_add == 0);
  EXPECT(!attn_kernels_f64(NULL));
  EXPECT(!attn_gauss_column(1, 1, 1, NULL, NULL, 0, 0, 0, numbers, numbers));
  EXPECT(!attn_gauss_column(1, 1, 1, numbers, NULL, 0, 0, 0, NULL, numbers));
  EXPECT(!attn_gauss_column(1, 1, 1, numbers, NULL, 0, 0, 0, numbers, NULL));
  EXPECT(attn_unit_scale(1, NULL) - 1 == 0);
  const attn_latent latent = {.rank = 2};
  EXPECT(!attn_latent_room(NULL, &problem) && !attn_latent_room(&latent, NULL));
  EXPECT(!attn_latent_problem(&latent, NULL).batch);
  attn_latent_factor(&latent, NULL, 1, numbers, numbers, numbers, numbers);
  attn_latent_project(&latent, &problem, NULL, numbers, 0, numbers, 1);
  attn_latent_load(&problem, NULL, x, 0, 0, numbers);
  attn_latent_absorb(&latent, &problem, NULL, x, 0, x, numbers);
  attn_latent_expand(&latent, &problem, NULL, x, 0, x, numbers);
  EXPECT(!attn_eigen(1, NULL, numbers, numbers, numbers) && !attn_eigen(1, numbers, NULL, numbers, numbers));
  EXPECT(!attn_eigen(1, numbers, numbers, NULL, numbers) && !attn_eigen(1, numbers, numbers, numbers, NULL));
  EXPECT(isnan(attn_square_row(k, 4, NULL)) && isnan(attn_square_row(NULL, 4, x)));
  attn_softmax_row(k, 4, NULL, 1);
  attn_wht(k, 4, 4, NULL);
}

Test(core_null, arguments) {
  set_up();
  callers();
  callers_without_a_status();
  authors();
  authors_without_a_status();
  attn_transform_destroy(transform);
  attn_plan_destroy(plan);
}

static char *read_source(const char *path) {
  const char *name = text_of("%s/%s", TEST_SOURCE_DIR, path);
  FILE *f = fopen(name, "r");
  char *text = calloc(1, 1 << 18);
  cr_assert(f && text, "%s", name);
  cr_assert(fread(text, 1, (1 << 18) - 1, f) > 0);
  fclose(f);
  return text;
}

/* Every function that a header declares stands above. Returns how many. */
static int check_header(const char *header, const char *tested) {
  char *text = read_source(header);
  int declared = 0;
  for (char *at = text; (at = strstr(at, "\nATTN_API ")); at++) {
    char *open = at + strcspn(at, "(;"), *name = open, call[80];
    while (name > at && (name[-1] == '_' || isalnum((unsigned char)name[-1]))) name--;
    snprintf(call, sizeof call, "%.*s(", (int)(open - name), name);
    if (*open != '(' || !strcmp(call, "attn_plugin(")) continue; /* a plug-in's own */
    declared++;
    if (!strstr(tested, call)) note_failure("%s declares %s), which no line tries", header, call);
  }
  free(text);
  return declared;
}

Test(core_null, every_function_is_tried) {
  char *tested = read_source("tests/core/null.c");
  EXPECT(check_header("core/attn.h", tested) > 20);
  EXPECT(check_header("core/attn_arithmetic.h", tested) > 20);
  EXPECT(check_header("core/attn_gradients.h", tested) > 1);
  EXPECT(check_header("core/attn_variant.h", tested) > 10);
  EXPECT(check_header("core/attn_engines.h", tested) > 10);
  EXPECT(check_header("core/attn_selector.h", tested) > 4);
  EXPECT(check_header("core/attn_lowrank.h", tested) > 8);
  EXPECT(check_header("core/attn_tools.h", tested) > 4);
  free(tested);
}
