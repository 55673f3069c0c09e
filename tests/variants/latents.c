/* latents.c - both paths of latents are exact attention to what their factors give, whatever the problem
 * hides or adds, and a prompt's queries attend to what is given; what is not finite stays in its batch
 * entry. */
#include "tests/support/call_positions.h"

/* The inputs with C W^T in place of keys and values, by the variant's factors. */
static inputs expanded(const inputs *in, const char *spec) {
  attn_view view;
  attn_plan *plan = plan_inspected(&in->problem, spec, NULL, &view);
  const attn_problem *p = &in->problem;
  const attn_latent *law = view.latent;
  const int64_t width = p->kv_heads * (p->d_qk + p->d_v), r = law->rank;
  inputs out = inputs_copy(in);
  double *x = kept_memory(malloc((size_t)(p->n_kv * width) * sizeof *x)),
         *c = kept_memory(malloc((size_t)(p->n_kv * r) * sizeof *c)),
         *w = kept_memory(malloc((size_t)(width * r) * sizeof *w));
  void *room = kept_memory(aligned_alloc(64, (attn_latent_room(law, p) + 63) / 64 * 64));
  cr_assert(x && c && w && room);
  for (int64_t b = 0; b < p->batch; b++) {
    const int64_t keys = inputs_keys(in, b);
    for (int pass = 0; pass < 2; pass++) {
      for (int64_t i = 0; i < keys * width; i++) {
        const int64_t j = i / width, at = i % width, values = p->kv_heads * p->d_qk;
        const tensor t = at < values ? TENSOR_K : TENSOR_V;
        const int64_t place = at < values ? at : at - values, d = at < values ? p->d_qk : p->d_v;
        if (pass == 0) {
          x[i] = inputs_get(in, t, b, place / d, j, place % d);
          continue;
        }
        double sum = 0;
        for (int64_t e = 0; e < r; e++) sum += c[e * keys + j] * w[e * width + at];
        inputs_set(&out, t, b, place / d, j, place % d, sum);
      }
      if (pass == 0) attn_latent_factor(law, attn_plan_context(plan), keys, x, c, w, room);
    }
  }
  attn_plan_destroy(plan);
  return out;
}

static output output_of(const char *spec, const inputs *in) {
  attn_plan *plan = plan_kept(&in->problem, spec, NULL);
  output x = output_make(&in->problem, true);
  EXPECT_STATUS(
      run(plan, &(attn_tensors){.q = in->q, .k = in->k, .v = in->v, .kv_len = in->padded ? in->kv_len : NULL},
          &x),
      ATTN_OK);
  return x;
}

static void expect_alike(const attn_problem *p, const output *a, const output *b, double off) {
  const int64_t rows = p->batch * p->heads * p->n_q;
  for (int64_t i = 0; i < rows * p->d_v; i++)
    if (!near(attn_get(a->o, i, p->dtype), attn_get(b->o, i, p->dtype), off))
      note_failure("output %d is %.17g, expected %.17g", (int)i, attn_get(a->o, i, p->dtype),
                   attn_get(b->o, i, p->dtype));
  for (int64_t i = 0; i < rows; i++)
    if (!near(a->lse[i], b->lse[i], off))
      note_failure("log-sum-exp %d is %.17g, expected %.17g", (int)i, a->lse[i], b->lse[i]);
}

static const case_shape shapes[] = {
    {2, 4, 2, 37, 37, 17, 9, true, true}, {3, 6, 2, 5, 12, 7, 5, false, false},
    {2, 4, 1, 1, 90, 5, 11, true, true},  {1, 3, 3, 40, 70, 16, 16, true, false},
    {1, 2, 2, 6, 3, 4, 4, true, false},
};
enum { SHAPES = sizeof shapes / sizeof *shapes };

enum { PLAIN, CAPPED, LEAKY, SUNK, BIASED, BLOCKS, KINDS };

static attn_problem with(attn_problem p, int kind) {
  static const double sinks[] = {2, -1, 0.5, 0, 3, 1}, table[] = {-1, -0.5, 0, 0.25, 2};
  if (kind == CAPPED) p.score.softcap = 1.5;
  if (kind == LEAKY) p.score.leaky = 0.2;
  if (kind == SUNK) p.score.sink = sinks;
  if (kind == BIASED) p.score = (attn_score){.relative = table, .relative_heads = 1, .span = 5, .zero = 2};
  if (kind == BLOCKS) p.mask = (attn_mask){.kind = ATTN_MASK_BLOCK_CAUSAL, .size = 4};
  return p;
}

/* Rows whose positions are before the prompt's end, of the other output. */
static void take_given(const attn_problem *p, int64_t prompt, const output *given, output *o) {
  for (int64_t x = 0; x < p->batch * p->heads * p->n_q; x++) {
    if (attn_problem_position(p, x % p->n_q) >= prompt) continue;
    o->lse[x] = given->lse[x];
    for (int64_t l = 0; l < p->d_v; l++)
      attn_set(o->o, x * p->d_v + l, p->dtype, attn_get(given->o, x * p->d_v + l, p->dtype));
  }
}

static const struct {
  const char *spec;
  int64_t prompt;
  bool exact; /* of full rank, or with a prompt that does not end */
} settings[] = {{"latent", 0, true},
                {"latent:rank=1", 0, false},
                {"latent:rank=5", 0, false},
                {"latent:rank=20", 0, false},
                {"latent:rank=1000", 0, true},
                {"latent:rank=7,shared=4", 0, false},
                {"latent:rank=5,prompt=9", 9, false},
                {"latent:rank=6,shared=3,prompt=12", 12, false},
                {"latent:prompt=9", 9, true},
                {"latent:rank=5,prompt=1000", 1000, true}};

Test(variants_latents, paths_are_exact_attention_to_what_the_factors_give) {
  for (int s = 0; s < SHAPES; s++)
    for (int kind = 0; kind < KINDS; kind++)
      for (size_t i = 0; i < sizeof settings / sizeof *settings; i++) {
        attn_problem p = with(shape_problem(shapes[s], ATTN_F64), kind);
        p.causal = p.causal || settings[i].prompt;
        const char *spec = settings[i].spec;
        inputs in = inputs_make(&p, shapes[s].padded, 3, 1), of = expanded(&in, spec);
        const char *naive = text_of("%s%cpath=naive", spec, strchr(spec, ':') ? ',' : ':');
        output want = output_of("tiled", &of), absorbed = output_of(spec, &in), own = output_of(naive, &in),
               given = output_of("tiled", &in);
        note_context("%s, shape %d, kind %d", spec, s, kind);
        if (settings[i].prompt) take_given(&in.problem, settings[i].prompt, &given, &want);
        expect_alike(&in.problem, &absorbed, &want, 1e-11);
        expect_alike(&in.problem, &own, &want, 1e-11);
        if (settings[i].exact) expect_alike(&in.problem, &own, &given, 1e-11);
        inputs_free(&in), inputs_free(&of);
      }
}

/* Five columns of rank 2, one of them zeros. */
Test(variants_latents, a_rank_above_that_of_the_matrix_is_exact) {
  inputs in = inputs_shaped((case_shape){1, 2, 1, 30, 30, 3, 2, false, false}, ATTN_F64, 5, 1);
  for (int64_t j = 0; j < 30; j++) {
    inputs_set(&in, TENSOR_K, 0, 0, j, 2, 2 * inputs_get(&in, TENSOR_K, 0, 0, j, 0));
    inputs_set(&in, TENSOR_V, 0, 0, j, 0, inputs_get(&in, TENSOR_K, 0, 0, j, 1));
    inputs_set(&in, TENSOR_V, 0, 0, j, 1, 0);
  }
  output want = output_of("tiled", &in);
  static const char *const specs[] = {"latent:rank=2", "latent:rank=3", "latent:rank=2,path=naive", "latent"};
  for (size_t i = 0; i < sizeof specs / sizeof *specs; i++) {
    output own = output_of(specs[i], &in);
    note_context("%s", specs[i]);
    expect_alike(&in.problem, &own, &want, 1e-12);
  }
}

/* A NaN or an infinity makes its entry NaN wherever a query sees a key, and no other entry. */
Test(variants_latents, what_is_not_finite_stays_in_its_entry) {
  static const char *const specs[] = {"latent:rank=5", "latent:rank=5,path=naive"};
  attn_problem p = shape_problem((case_shape){3, 4, 2, 9, 6, 7, 5, true, false}, ATTN_F32);
  for (size_t i = 0; i < sizeof specs / sizeof *specs; i++) {
    inputs in = inputs_make(&p, false, 7, 1);
    void *before = run_spec(specs[i], NULL, &in);
    inputs_set(&in, TENSOR_K, 1, 0, 5, 2, (double)NAN);
    inputs_set(&in, TENSOR_V, 2, 1, 0, 4, (double)INFINITY);
    void *after = run_spec(specs[i], NULL, &in);
    cr_assert(before && after);
    note_context("%s", specs[i]);
    expect_same_rows(&in.problem, before, after, 0, 0, 9, "entry 0");
    for (int64_t b = 1; b < 3; b++)
      for (int64_t h = 0; h < 4; h++)
        for (int64_t q = 0; q < 9; q++)
          for (int64_t l = 0; l < 5; l++) {
            const double o = output_get(&in.problem, after, b, h, q, l);
            EXPECT(q < 3 ? o == 0 : isnan(o)); /* the first three see no key */
          }
    free(before), free(after);
    inputs_free(&in);
  }
}

Test(variants_latents, what_no_prompt_or_key_can_be_is_refused) {
  attn_problem p = attn_problem_make(1, 2, 8, 4);
  expect_no_plan(&p, "latent:prompt=4", ATTN_EUNSUPPORTED, "prompt=4: only causal attention");
  expect_no_plan(&p, "latent:shared=5", ATTN_EINVAL, "shared=5 of keys of 4 numbers");
}

Test(variants_latents, long_decompositions_are_refused) {
  attn_problem p = attn_problem_make(1, 16, 2049, 65);
  expect_no_plan(&p, "latent", ATTN_EUNSUPPORTED, "2049 keys of 2080 numbers");
  p.n_kv = p.n_q = 2048;
  size_t work;
  EXPECT_STATUS(attn_estimate(&p, "latent", NULL, &work, NULL), ATTN_OK);
}
