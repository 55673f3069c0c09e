/* nulls.c - the null approximations - all zeros, the mean of V, a quarter of the keys at random - in place of
 * a variant's own algorithm, under its own parameters, view and bounds: each check rejects them on the input
 * recorded here, or is as blind to them as it declares, while the variant itself passes. */
#include "tests/support/checks_fake.h"
#include "tests/support/checks_shown.h"
#include "tests/support/spec.h"

#include "core/expression/attn_expression.h"
#include "experiments/results/set.h"

extern const attn_variant attn_variant_planted_sample; /* plugins/planted_sample.c */

typedef enum { GAUSSIAN, POSITIVE, MATCHING, BLOCKS, TWO_KINDS, CAUSAL } input_kind;

typedef struct record {
  const char *check, *variant, *parameters;
  input_kind input;
  double std; /* of queries and keys; TWO_KINDS: their norm */
} record;

static const record records[] = {
    {"FP-0", "full", "", GAUSSIAN, 1},
    {"FP-1", "full", "", GAUSSIAN, 1},
    {"FP-2", "tiled", "path=fma", GAUSSIAN, 1},
    {"FP-3", "tiled", "path=fma", GAUSSIAN, 1},
    {"FP-4", "tiled", "precision=bf16", GAUSSIAN, 0.5},
    {"FP-5", "tiled", "path=fma", GAUSSIAN, 1},
    {"FP-6", "performer", "features=16", GAUSSIAN, 0.7},
    {"SP-0", "longformer", "window=8", GAUSSIAN, 1},
    {"SP-1", "longformer", "window=8", GAUSSIAN, 1},
    {"SP-2", "longformer", "window=8", MATCHING, 0.05},
    {"SP-3", "bigbird", "block=16,random=0,global=0", BLOCKS, 0.05},
    {"SP-4", "bigbird", "block=8,random=2", GAUSSIAN, 1},
    {"SP-5", "bigbird", "block=8,random=2", GAUSSIAN, 1},
    {"SP-6", "longformer", "window=8", GAUSSIAN, 1},
    {"GR-1", "longformer", "window=8", GAUSSIAN, 1},
    {"STR-0", "streaming", "sink=2,window=8", CAUSAL, 1},
    {"POS-1", "streaming_cache", "sink=2,window=8", CAUSAL, 1},
    {"POOL-1", "pooled", "block=8,window=8", CAUSAL, 1},
    {"TOEP", "toeplitz", "block=16", GAUSSIAN, 1},
    {"REC-1", "recurrent", "chunk=16", CAUSAL, 1},
    {"REC-3", "recurrent", "chunk=16", CAUSAL, 1},
    {"ENT-0", "normaliser", "kind=sparsemax", GAUSSIAN, 1},
    {"ENT-1", "normaliser", "kind=entmax15", GAUSSIAN, 1},
    {"ENT-2", "normaliser", "kind=sparsemax", GAUSSIAN, 2},
    {"SEL-0", "topk", "k=8", GAUSSIAN, 1},
    {"SEL-1", "topk", "k=8", GAUSSIAN, 1},
    {"SEL-2", "pages", "page=4,budget=12", GAUSSIAN, 1},
    {"SEL-3", "pages", "page=4,budget=12", GAUSSIAN, 1},
    {"LAW-1", "planted_sample", "", GAUSSIAN, 1},
    {"LAW-2", "planted_sample", "window=88,sample=4", CAUSAL, 1},
    {"LAW-3", "planted_sample", "window=88,sample=4", CAUSAL, 1},
    {"LAW-4", "planted_sample", "", GAUSSIAN, 1},
    {"LAW-5", "planted_sample", "", GAUSSIAN, 1},
    {"VA-1", "planted_sample", "promise=2", GAUSSIAN, 1},
    {"LN-1", "longnet", "segments=12+48,dilations=1+3", GAUSSIAN, 1},
    {"LSH-1", "lsh", "rounds=2,buckets=8", GAUSSIAN, 1},
    {"TK-1", "topk", "k=8,by=sparq,r=4", GAUSSIAN, 1},
    {"TK-2", "topk", "k=8,by=index", GAUSSIAN, 1},
    {"SEL-5", "topk", "k=8", GAUSSIAN, 1},
    {"SEL-6", "topk", "k=8", GAUSSIAN, 1},
    {"EVICT-1", "evict", "budget=24,recent=4", CAUSAL, 1},
    {"EVICT-2", "evict", "budget=24,recent=4", CAUSAL, 1},
    {"QNT-0", "store", "", GAUSSIAN, 1},
    {"QNT-1", "store", "", GAUSSIAN, 1},
    {"QNT-2", "store", "", GAUSSIAN, 1},
    {"QNT-3", "turbo", "", GAUSSIAN, 1},
    {"QNT-4", "sage", "", GAUSSIAN, 1},
    {"CACHE-1", "tiled", "", CAUSAL, 1},
    {"CACHE-2", "tiled", "", CAUSAL, 1},
    {"CACHE-3", "evict", "budget=24,recent=4", CAUSAL, 1},
    {"CACHE-5", "evict", "budget=24,recent=4", CAUSAL, 1},
    {"MLA-1", "latent", "rank=16", GAUSSIAN, 1},
    {"MLA-2", "latent", "rank=16", GAUSSIAN, 1},
    {"MLA-3", "latent", "", GAUSSIAN, 1},
    {"SKIP-1", "tiled", "skip=0.3,block_q=2,block_k=4", GAUSSIAN, 1},
    {"FAV-1", "performer", "features=64", GAUSSIAN, 0.3},
    {"FAV-3", "performer", "features=16", GAUSSIAN, 0.7},
    {"FAV-4a", "performer", "features=64", GAUSSIAN, 0.7},
    {"FAV-4b", "performer", "features=262144,orthogonal=no", TWO_KINDS, 0.7},
    {"FAV-5", "performer", "features=32768", TWO_KINDS, 1.4},
    {"FAV-6", "performer", "features=16", GAUSSIAN, 1},
    {"FAV-7", "performer", "features=8192,orthogonal=no,kernel=trig", TWO_KINDS, 1.4},
    {"FAV-8", "performer", "features=64,orthogonal=no,kernel=relu,eps=0", GAUSSIAN, 0.7},
    {"FAV-9", "performer", "features=16", GAUSSIAN, 0.7},
    {"FAV-10", "performer", "features=16", GAUSSIAN, 0.7},
    {"PHI-1", "linear", "", GAUSSIAN, 1},
    {"TAY-1", "linear", "feature=taylor", GAUSSIAN, 0.3},
    {"AS-1", "linear", "feature=taylor", GAUSSIAN, 0.3},
    {"LIN-1", "linformer", "k=16", GAUSSIAN, 1},
    {"LIN-2", "linformer", "k=16", GAUSSIAN, 1},
    {"LIN-3", "linformer", "k=16", GAUSSIAN, 1},
    {"RES-1", "scatterbrain", "window=8,features=64", GAUSSIAN, 0.5},
    {"RES-2", "scatterbrain", "window=8,features=64", GAUSSIAN, 0.5},
    {"LOW-1", "svd", "r=16", GAUSSIAN, 0.7},
    {"LOW-2", "svd", "r=8,of=scores", GAUSSIAN, 0.7},
    {"NYS-1", "nystrom", "landmarks=8", GAUSSIAN, 0.7},
    {"NYS-2", "nystrom", "landmarks=8,middle=pinv", GAUSSIAN, 0.7},
    {"LOW-3", "cluster", "clusters=4,topk=3", GAUSSIAN, 1},
    {"CL-1", "cluster", "clusters=96,topk=0", GAUSSIAN, 1},
    {"CL-2", "cluster", "clusters=96,topk=3", GAUSSIAN, 1},
    {"COR-1", "coreset", "keys=96", GAUSSIAN, 1},
    {"SKY-1", "skyformer", "landmarks=192", GAUSSIAN, 1},
    {"NYS-3", "nystrom", "landmarks=8,middle=agents", GAUSSIAN, 0.7},
    {"LIN-5", "linformer", "k=12,projection=pool", GAUSSIAN, 1},
    {"LIN-6", "linformer", "k=16", GAUSSIAN, 1},
    {"LIN-7", "linformer", "k=16", GAUSSIAN, 1},
    {"SUM-1", "0.5*(tiled) + 0.5*topk", "", GAUSSIAN, 1},
    {"DYA-1", "dyadic(tiled,base=16)", "", CAUSAL, 1},
    {"PROP-ONES", "full", "", GAUSSIAN, 1},
    {"PROP-HULL", "full", "", POSITIVE, 1},
    {"PROP-PERM", "full", "", GAUSSIAN, 1},
    {"PROP-SHIFT", "full", "", GAUSSIAN, 1},
    {"PROP-DOB", "full", "", GAUSSIAN, 1},
};

/* A bound is to tell something: it is at most 2^14 times what it is held against, as of roundings, which are
 * far from the worst, and of some checks 20 times; those grow as they like that grow with a condition. */
static double most_loose(const char *of_check) {
  static const char
      *const near = " FP-4 SP-2 SP-3 SP-5 SEL-3 SKIP-1 QNT-0 QNT-1 QNT-2 MLA-2 FAV-5 REC-3 LOW-1 LOW-2 "
                    "SUM-1 DYA-1 PROP-HULL PROP-DOB ",
             *const conditioned = " NYS-1 NYS-2 LOW-3 CL-2 COR-1 SKY-1 LAW-5 ";
  char name[32];
  snprintf(name, sizeof name, " %s ", of_check);
  return strstr(near, name) ? 20 : strstr(conditioned, name) ? (double)INFINITY : 0x1p14;
}

/* Queries and keys of one direction per group of `width` positions. */
static void group_rows(run_case *c, void *at, int64_t rows, int64_t width, double length) {
  const attn_problem *p = &c->problem;
  for (int64_t r = 0; r < rows; r++) {
    attn_rng rng;
    attn_rng_init(&rng, 17, 17, (uint64_t)(r % p->n_kv / width));
    double direction[64], norm = 0;
    for (int64_t l = 0; l < p->d_qk; l++) {
      direction[l] = attn_rng_normal(&rng);
      norm += direction[l] * direction[l];
    }
    for (int64_t l = 0; l < p->d_qk; l++)
      case_set(c, at, r * p->d_qk + l, case_get(c, at, r * p->d_qk + l) + length * direction[l] / sqrt(norm));
  }
}

static run_case *make_input(const record *x) {
  attn_problem p = attn_problem_make(1, 2, 96, 16);
  if (x->input == TWO_KINDS) {
    p = attn_problem_make(1, 1, 24, 4);
    p.n_q = p.d_v = 1;
  }
  p.causal = x->input == CAUSAL;
  run_case *c = case_make(p, x->input == TWO_KINDS ? 0.01 : x->std, 100);
  for (int64_t i = 0; i < case_count_v(&p) && x->input == POSITIVE; i++)
    case_set(c, c->v, i, 1 + fabs(case_get(c, c->v, i)));
  if (x->input == MATCHING || x->input == BLOCKS) {
    int64_t width = x->input == BLOCKS ? 16 : 1;
    group_rows(c, c->q, 2 * p.n_q, width, 16);
    group_rows(c, c->k, 2 * p.n_kv, width, 16);
  }
  /* Keys for and against the query, told apart by their values. */
  for (int64_t j = 0; j < p.n_kv && x->input == TWO_KINDS; j++) {
    double kind = j % 3 == 0 ? 1 : -1;
    for (int64_t l = 0; l < 4 && j == 0; l++) case_set(c, c->q, l, x->std / 2);
    for (int64_t l = 0; l < 4; l++) case_set(c, c->k, 4 * j + l, x->std / 2 * kind);
    case_set(c, c->v, j, 2 + kind);
  }
  return c;
}

/* A name for the expression. */
static attn_variant named(const char *expression) {
  static const attn_param none[] = {{.name = NULL}};
  const attn_variant v = {.abi = ATTN_ABI,
                          .size = sizeof v,
                          .summary = "an expression",
                          .cite = "none",
                          .caps = spec_of(expression)->variant->caps,
                          .params = none,
                          ATTN_EXPRESSION(expression)};
  return v;
}

enum { MOST = 32 };
static attn_variant impostors[MOST];
static const char *of[MOST];

/* Plans what it stands in for, and shows that; executes the fake. */
static attn_status impostor_plan(attn_builder *b, const attn_parts *parts, void **state) {
  (void)parts;
  return shown_plan_of(b, of[attn_builder_context(b)->variant - impostors], state);
}

static void impostor_inspect(const void *state, const attn_context *c, attn_view *view) {
  (void)c;
  cr_assert_eq(attn_plan_inspect(state, view), ATTN_OK, "%s", attn_last_error());
}

static DESCRIBE_METHOD(impostor_describe, NO_ROUNDING, .plan = impostor_plan, .execute = fake_execute,
                       .inspect = impostor_inspect);

/* The variant, or the expression, with its algorithm replaced by the fake's. */
static const char *impostor_of(const char *name) {
  static char names[MOST][16];
  const attn_variant *real;
  for (int i = 0; i < MOST; i++) {
    if (of[i] && strcmp(of[i], name) == 0) return names[i];
    if (of[i]) continue;
    of[i] = name;
    snprintf(names[i], sizeof names[i], "impostor%d", i);
    if (strchr(name, '('))
      impostors[i] = named(name);
    else if (!attn_variant_find(name, &real))
      impostors[i] = *real;
    impostors[i].name = names[i];
    impostors[i].describe = impostor_describe;
    cr_assert_eq(attn_variant_register(&impostors[i]), ATTN_OK, "%s", attn_last_error());
    return names[i];
  }
  return NULL;
}

static bool rejects(const check *c, const result_bound *b) {
  if (c->kind == KIND_PROB || b->kind == KIND_PROB)
    return b->verdict == VERDICT_VIOLATED || b->p_value < RESULTS_REPEAT;
  if (c->kind == KIND_MODEL) return strncmp(b->message, "warning", 7) == 0;
  return b->verdict == VERDICT_VIOLATED;
}

static result_bound judged(const record *x, const char *variant) {
  char spec[200];
  snprintf(spec, sizeof spec, "%s%s%s", variant, *x->parameters ? ":" : "", x->parameters);
  run_case *c = make_input(x);
  case_run(c, spec, NULL);
  result_bound b = case_check(&c->e, x->check);
  case_free(c);
  return b;
}

static void try_nulls(const record *x) {
  double (*const weights[CHECK_NULLS])(int64_t, int64_t, double) = {
      [CHECK_ZEROS] = NULL, [CHECK_MEAN_V] = weight_equal, [CHECK_RANDOM_KEYS] = weight_random};
  const check *c = check_find(x->check);
  cr_assert_not_null(c, "%s", x->check);
  result_bound b = judged(x, x->variant);
  cr_expect(!rejects(c, &b) &&
                (b.verdict == VERDICT_PASS || b.verdict == VERDICT_CONSISTENT || b.kind == KIND_REPORT),
            "%s on %s itself: verdict %d, %g of %g, p %g, %s", x->check, x->variant, (int)b.verdict,
            b.measured, b.value, b.p_value, b.message);
  cr_expect(b.kind != KIND_HARD || b.measured <= 0 || b.value <= most_loose(x->check) * b.measured,
            "%s on %s: a bound of %g tells nothing of %g", x->check, x->variant, b.value, b.measured);
  for (int null = 0; null < CHECK_NULLS; null++) {
    fake_reset(weights[null]);
    b = judged(x, impostor_of(x->variant));
    cr_expect_eq(rejects(c, &b), c->nulls[null].rejected_on != NULL,
                 "%s, null %d: verdict %d, %g of %g, p %g, %s", x->check, null, (int)b.verdict, b.measured,
                 b.value, b.p_value, b.message);
  }
}

/* Every check but properties has a record, and every record holds. */
Test(checks_nulls, the_table) {
  cr_assert_eq(attn_variant_register(&attn_variant_planted_sample), ATTN_OK);
  for (const check *const *c = checks_all; *c; c++) {
    if ((*c)->kind == KIND_PROPERTY) continue; /* they look at no run's output */
    bool found = false;
    for (size_t r = 0; r < sizeof records / sizeof *records; r++) {
      if (strcmp(records[r].check, (*c)->name) != 0) continue;
      found = true;
      try_nulls(&records[r]);
    }
    cr_expect(found, "%s: no input is recorded for the null approximations", (*c)->name);
  }
}
