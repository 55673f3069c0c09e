/* specs.c - specs as objects: owners, parameters by name, copies with other values, terms as specs. */
#include "tests/support/core.h"
#include "tests/support/spec.h"

#include "attn_expression.h"

#include <stdlib.h>
#include <string.h>

/* Takes the spec. */
static void expect_equal(attn_status status, attn_spec *got, const char *expected) {
  const attn_spec *same = spec_of(expected);
  EXPECT_STATUS(status, ATTN_OK);
  if (!attn_spec_equal(got, same)) note_failure("'%s', expected '%s'", got ? got->text : "", same->text);
  EXPECT(got && !strcmp(got->variant->name, same->variant->name) && !got->expression == !same->expression);
  EXPECT(got && (!got->expression || !strcmp(got->expression->text, same->expression->text)));
  attn_spec_destroy(got);
}

/* Values of every type, in every term that has the parameter, and in what a name abbreviates. */
Test(expression_specs, copies_with_another_value) {
  const struct {
    const char *text, *name, *value, *made; /* made: NULL: refused */
  } cases[] = {
      {"lsh:rounds=3,seed=5", "seed", "9", "lsh:rounds=3,seed=9"},
      {"streaming:sink=2 + lsh:rounds=3,seed=5", "seed", "9", "streaming:sink=2 + lsh:rounds=3,seed=9"},
      {"0.5*(bigbird:seed=5 + lsh:seed=5) - 2*dyadic(lsh:rounds=1,seed=5,base=64)", "seed", "9",
       "0.5*(bigbird:seed=9 + lsh:seed=9) - 2*dyadic(lsh:rounds=1,seed=9,base=64)"},
      {"graph:kind=file,file=a/b.h5", "kind", "documents", "graph:kind=documents,file=a/b.h5"},
      {"graph:kind=file,file=a/b.h5", "file", "c", "graph:kind=file,file=c"},
      {"longformer:window=64,global_at=3+17+40", "window", "2Ki", "longformer:window=2048,global_at=3+17+40"},
      {"longformer:window=64,global_at=3+17+40", "global_at", "5", "longformer:window=64,global_at=5"},
      {"magicpig:l=7", "l", "9", "magicpig:l=9"},
      {"lsh:seed=5", "features", "9", NULL},
      {"streaming + lsh:seed=5", "features", "9", NULL},
      {"lsh:seed=5", NULL, "9", NULL},
      {"lsh:seed=5", "seed", "-1", NULL},
      {"streaming + lsh:seed=5", "seed", "x", NULL},
      {"lsh:seed=5", "seed", "9,rounds=2", NULL},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    const attn_spec *spec = spec_of(cases[i].text);
    attn_spec *out = NULL;
    note_context("%s with %s = %s", cases[i].text, cases[i].name ? cases[i].name : "NULL", cases[i].value);
    const attn_status status = attn_spec_with(spec, cases[i].name, cases[i].value, &out);
    EXPECT(!cases[i].made || (out && attn_spec_names(out, cases[i].name)));
    if (cases[i].made)
      expect_equal(status, out, cases[i].made);
    else
      EXPECT(status == ATTN_EINVAL && !out);
    EXPECT(!strcmp(spec->text, spec_of(cases[i].text)->text)); /* as it was */
  }
}

/* Seeds beyond the last begin again. */
Test(expression_specs, seeds_go_round) {
  static const char last[] = "1000000000000000";
  static const char *const texts[] = {"lsh:seed=%s", "streaming:sink=2 + lsh:seed=%s", "magicpig:seed=%s"};
  attn_spec *out = NULL;
  for (int i = 0; i < 3; i++)
    for (int step = 0; step < 3; step++) {
      char text[96], want[96];
      snprintf(text, sizeof text, texts[i], last);
      snprintf(want, sizeof want, texts[i], step == 0 ? last : step == 1 ? "0" : "7918");
      const attn_spec *spec = spec_of(text);
      const int64_t seed = (int64_t)attn_spec_number(spec, "seed") + (step == 2 ? 7919 : step);
      const attn_status status = attn_spec_with_seed(spec, "seed", seed, &out);
      expect_equal(status, out, want);
    }
  EXPECT_STATUS(attn_spec_with_seed(spec_of("lsh"), NULL, 1, &out), ATTN_EINVAL);
  EXPECT(isnan(attn_spec_number(spec_of("lsh"), "features")));
}

Test(expression_specs, what_a_text_names) {
  static const char *const seeded[] = {"lsh:rounds=2,seed=0", "streaming:sink=4+lsh:rounds=2,seed=3",
                                       "lsh:seed=3 + topk"},
                           *const bare[] = {"lsh", "graph:file=a:seed=3", "streaming + lsh:rounds=2"};
  for (int i = 0; i < 3; i++)
    EXPECT(attn_spec_names(spec_of(seeded[i]), "seed") && !attn_spec_names(spec_of(bare[i]), "seed"));
}

/* A plan does not parse again: its spec is the object that it was made of, and terms are the whole's. */
Test(expression_specs, plans_share_their_spec) {
  attn_spec *spec = NULL, *term = NULL, *same = NULL;
  attn_plan *plan = NULL;
  attn_problem p = attn_problem_make(1, 1, 64, 8);
  p.causal = true;
  cr_assert_eq(attn_spec_parse(&spec, "0.5*(streaming + topk:k=8) + 0.5*topk:k=4"), ATTN_OK);
  EXPECT(attn_spec_share(spec) == spec);
  attn_spec_destroy(spec); /* the second owner */
  EXPECT_STATUS(attn_plan_create_spec(&plan, &p, spec, NULL), ATTN_OK);
  EXPECT(attn_plan_parsed_spec(plan) == spec && attn_plan_spec(plan) == spec->text);
  EXPECT_STATUS(attn_spec_at(spec->expression->terms[1], &same), ATTN_OK);
  EXPECT(same == spec->expression->terms[1]->atom);
  EXPECT_STATUS(attn_spec_at(spec->expression->terms[0], &term), ATTN_OK);
  EXPECT(term && term->expression->terms[0]->atom == spec->expression->terms[0]->terms[0]->atom);
  attn_spec_destroy(spec); /* the plan is left */
  EXPECT(!strcmp(attn_plan_spec(plan), attn_plan_parsed_spec(plan)->text));
  attn_plan_destroy(plan);
  expect_equal(attn_plan_create_spec(&plan, &p, term, NULL), term, "streaming + topk:k=8");
  expect_equal(ATTN_OK, same, "topk:k=4");
  attn_plan_destroy(plan);
}

static attn_status see(void *context, const attn_spec *atom) {
  strcat(context, atom->variant->name);
  return strlen(context) > 16 ? attn_fail(ATTN_EFOREIGN, "enough") : ATTN_OK;
}

Test(expression_specs, the_variants_of_a_spec) {
  const struct {
    const char *text, *names;
    bool within;
    attn_status status;
  } cases[] = {{"0.5*(streaming + lsh) + 0.5*dyadic(tiled)", "streaminglshtiled", false, ATTN_EFOREIGN},
               {"lsh", "lsh", false, ATTN_OK},
               {"scatterbrain", "scatterbrain", false, ATTN_OK},
               {"scatterbrain", "scatterbrainlongformer", true, ATTN_EFOREIGN}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    char names[100] = "";
    EXPECT_STATUS(attn_spec_each(spec_of(cases[i].text), cases[i].within, see, names), cases[i].status);
    if (strcmp(names, cases[i].names) != 0) note_failure("%s: %s", cases[i].text, names);
  }
}

static bool not_preset(void *context, const attn_spec *of, const attn_param *p, bool preset) {
  (void)context, (void)of, (void)p;
  return !preset;
}

Test(expression_specs, texts_with_some_parameters) {
  static const char *const texts[] = {
      "0.5*(streaming + lsh:rounds=3) - 2*dyadic(longformer:global_at=3+17,base=8)", "lsh:rounds=3", "full"};
  for (int i = 0; i < 3; i++) {
    char *text = NULL;
    EXPECT_STATUS(attn_spec_print(spec_of(texts[i]), not_preset, NULL, &text), ATTN_OK);
    EXPECT(text && !strcmp(text, texts[i]));
    free(text);
  }
}
