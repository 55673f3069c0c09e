/* grammar.c - expressions as texts: what is canonical, what is refused, where and why; and that other specs
 * are what they were. */
#include "tests/support/core.h"
#include "tests/support/spec.h"

#include "attn_expression.h"

#include <stdlib.h>
#include <string.h>

static void expect_text(const char *text, const char *canonical) {
  attn_spec *spec = NULL, *again = NULL;
  note_context("\"%s\"", text);
  EXPECT_STATUS(attn_spec_parse(&spec, text), ATTN_OK);
  if (!spec) {
    note_failure("%s", attn_last_error());
    return;
  }
  if (strcmp(spec->text, canonical) != 0) note_failure("'%s', expected '%s'", spec->text, canonical);
  EXPECT_STATUS(attn_spec_parse(&again, spec->text), ATTN_OK);
  EXPECT(again && !strcmp(again->text, canonical));
  attn_spec_destroy(again);
  attn_spec_destroy(spec);
}

static void expect_refusal(const char *text, attn_status status, const char *place, const char *reason) {
  attn_spec *spec = NULL;
  note_context("\"%s\"", text);
  EXPECT_STATUS(attn_spec_parse(&spec, text), status);
  EXPECT(!spec);
  if (!strstr(attn_last_error(), place) || !strstr(attn_last_error(), reason))
    note_failure("'%s' does not say '%s' and '%s'", attn_last_error(), place, reason);
  attn_spec_destroy(spec);
}

static const char *canonical(const char *atom) { return spec_of(atom)->text; }

static char *joined(const char *format, const char *a, const char *b) {
  static char text[1000];
  snprintf(text, sizeof text, format, canonical(a), canonical(b));
  return text;
}

Test(expression_grammar, canonical_texts) {
  static const char *const same[] = {"full + topk:k=8",     "full+topk:k=8",       "  full  +  topk:k=8 ",
                                     "(full) + (topk:k=8)", "((full + topk:k=8))", "full\n  + topk:k=8\n"};
  for (size_t i = 0; i < sizeof same / sizeof *same; i++)
    expect_text(same[i], joined("%s + %s", "full", "topk:k=8"));
  expect_text("longformer:global_at=3+17 + full", joined("%s + %s", "longformer:global_at=3+17", "full"));
  expect_text("longformer:global_at=3+17+full", joined("%s + %s", "longformer:global_at=3+17", "full"));
  expect_text(".5*full - 1e-1*topk:k=8", joined("0.5*%s - 0.1*%s", "full", "topk:k=8"));
  expect_text("0.5 * full + -0.1 * topk:k=8", joined("0.5*%s - 0.1*%s", "full", "topk:k=8"));
  expect_text("-2*full - -0.1*topk:k=8", joined("-2*%s + 0.1*%s", "full", "topk:k=8"));
  expect_text("1*full", joined("1*%s", "full", "full"));
  expect_text("gate * full - gate*topk:k=8", joined("gate*%s - gate*%s", "full", "topk:k=8"));
  expect_text("-gate*full+0.5*topk:k=8", joined("-gate*%s + 0.5*%s", "full", "topk:k=8"));
  expect_text("0.5*full - - gate*topk:k=8", joined("0.5*%s + gate*%s", "full", "topk:k=8"));
}

Test(expression_grammar, parentheses_and_dyadic) {
  const char *text =
      text_of("0.5*(%s + %s) + 0.5*%s", canonical("streaming"), canonical("lsh"), canonical("full"));
  expect_text("0.5*(streaming+lsh)+.5*(full)", text);
  text = text_of("%s + %s + %s", canonical("streaming"), canonical("lsh"), canonical("full"));
  expect_text("streaming + (lsh + full)", text);
  expect_text("(streaming + lsh) + full", text);
  text = text_of("dyadic(%s,base=1024)", canonical("tiled"));
  expect_text("dyadic(tiled)", text);
  expect_text("dyadic ( tiled , base=1Ki )", text);
  /* Whose term has a parameter of this name, too. */
  expect_text("dyadic(sample:count=4,base=8)", text_of("dyadic(%s,base=8)", canonical("sample:count=4")));
  text = text_of("dyadic(%s,base=8)", canonical("sample:base=64,count=4"));
  expect_text("dyadic(sample:base=64,count=4 , base=8 )", text);
  expect_text("dyadic(sample:base=64,count=4,base=8)", text);
  text = text_of("dyadic(%s + %s,base=64)", canonical("lsh:rounds=2"), canonical("topk"));
  expect_text("dyadic(lsh:rounds=2+topk,base=64)", text);
}

Test(expression_grammar, other_specs_are_what_they_were) {
  static const char *const paths[] = {"graph:kind=file,file=a+b.npy", "graph:kind=file,file=a + b.npy",
                                      "graph:kind=file,file=a-full",  "graph:kind=file,file=a(1).npy",
                                      "graph:kind=file,file=a)b",     "graph:kind=file,file=x "};
  for (size_t i = 0; i < sizeof paths / sizeof *paths; i++) {
    const attn_spec *spec = spec_of(paths[i]);
    note_context("%s", paths[i]);
    EXPECT(!spec->expression &&
           strstr(spec->text, strstr(paths[i], "file=a") ? strstr(paths[i], "file=a") : "file=x "));
  }
  expect_text("graph:kind=file,file=a+b.npy + topk",
              joined("%s + %s", "graph:kind=file,file=a+b.npy", "topk"));
  expect_refusal("full ", ATTN_ENOTFOUND, "'full '", "tiled");
  expect_refusal(" full", ATTN_ENOTFOUND, "' full'", "tiled");
}

Test(expression_grammar, refusals_with_their_place) {
  expect_refusal("full + 0.5*topk", ATTN_EINVAL, "at 8 (\"0.5*topk\")", "do not mix");
  expect_refusal("0.5*full + topk", ATTN_EINVAL, "at 12 (\"topk\")", "do not mix");
  expect_refusal("full - topk", ATTN_EINVAL, "at 8 (\"topk\")", "a number before every term");
  expect_refusal("streaming:sink=4 + lhs:rounds=2", ATTN_ENOTFOUND, "at 20 (\"lhs:rounds=2\")",
                 "did you mean 'lsh'?");
  expect_refusal("full + topk:byx=8", ATTN_ENOTFOUND, "at 8 (\"topk:byx=8\")", "did you mean 'by'?");
  expect_refusal("topk:yb=loki", ATTN_ENOTFOUND, "unknown parameter 'yb', known", "k, p, by");
  expect_refusal("nsh", ATTN_ENOTFOUND, "did you mean 'lsh'?", "nsa");
  expect_refusal("tixxd", ATTN_ENOTFOUND, "unknown variant 'tixxd', known", "tiled");
  expect_refusal("0x2*full", ATTN_ENOTFOUND, "at 1 (\"0x2\")", "unknown variant '0x2'");
  expect_refusal("dyadic(tiled,base=2Gi)", ATTN_EINVAL, "at 19 (\"2Gi)\")", "an integer from 1");
  expect_refusal("full + streaming:sink=x", ATTN_EINVAL, "at 8 (\"streaming:si...\")", "sink=x");
  expect_refusal("full + (topk", ATTN_EINVAL, "at 8 (\"(topk\")", "not closed");
  expect_refusal("full + topk)", ATTN_EINVAL, "at 12 (\")\")", "not opened");
  expect_refusal("full + ", ATTN_EINVAL, "at 8 (the end)", "missing");
  expect_refusal("full + + topk", ATTN_EINVAL, "at 8 (\"+ topk\")", "expected a term");
  expect_refusal("()", ATTN_EINVAL, "at 2 (\")\")", "expected a term");
  expect_refusal("0.5*", ATTN_EINVAL, "at 5 (the end)", "missing");
  expect_refusal("full (topk)", ATTN_EINVAL, "at 6 (\"(topk)\")", "expected '+'");
  expect_refusal("1e999*full", ATTN_EINVAL, "at 1 (\"1e999*full\")", "out of range");
  expect_refusal("1e-400*full", ATTN_EINVAL, "at 1 (\"1e-400*full\")", "out of range");
  expect_refusal("0.5*full + 2*3*topk", ATTN_EINVAL, "at 14 (\"3*topk\")", "one gate");
  expect_refusal("gate*full + topk", ATTN_EINVAL, "at 13 (\"topk\")", "do not mix");
  expect_refusal("gates*full", ATTN_ENOTFOUND, "at 1 (\"gates\")", "unknown variant");
  expect_refusal("gate*full + 0.5*(0.5*full + 0.5*(gate*full))", ATTN_EUNSUPPORTED,
                 "at 18 (\"0.5*full + 0...\")", "gates within gates");
  expect_refusal("+ full", ATTN_EINVAL, "at 1 (\"+ full\")", "expected a term");
  expect_refusal("dyadic(tiled,base=0)", ATTN_EINVAL, "at 19 (\"0)\")", "an integer from 1");
  expect_refusal("dyadic(tiled,base=4,k=3)", ATTN_EINVAL, "at 20 (\",k=3)\")", "expected ')'");
  expect_refusal("dyadic(tiled", ATTN_EINVAL, "at 7 (\"(tiled\")", "not closed");
  expect_refusal("(((((((((full)))))))))", ATTN_EINVAL, "at 9 (\"(full)))))))...\")", "at most 8");
  expect_refusal("full + linformer:k=4", ATTN_EUNSUPPORTED, "at 8 (\"linformer:k=...\")",
                 "cannot restrict itself to the keys that remain");
  expect_refusal("full + dyadic(tiled)", ATTN_EUNSUPPORTED, "at 8 (\"dyadic(tiled...\")", "restrict itself");
  expect_refusal("(1*full + 1*full) + topk", ATTN_EUNSUPPORTED, "at 2 (\"1*full + 1*f...\")", "itself");
  expect_refusal("full + linear + topk", ATTN_EUNSUPPORTED, "at 17 (\"topk:", "nothing remains");
  expect_refusal("scatterbrain + topk", ATTN_EUNSUPPORTED, "at 16 (\"topk:", "nothing remains");
  expect_refusal("linear + performer", ATTN_EUNSUPPORTED, "at 10 (\"performer:", "nothing remains");
  expect_refusal("dyadic(dyadic(tiled))", ATTN_EUNSUPPORTED, "at 8 (\"dyadic(tiled...\")", "causality");
  expect_refusal("dyadic(linear)", ATTN_EUNSUPPORTED, "at 8 (\"linear:", "log-sum-exps");
  expect_refusal("dyadic(0.5*full)", ATTN_EUNSUPPORTED, "at 8 (\"0.5*full\")", "log-sum-exps");
}

Test(expression_grammar, limits) {
  char *text = kept_memory(malloc(6000));
  cr_assert_not_null(text);
  snprintf(text, 6000, "full");
  for (int i = 1; i < 17; i++) strcat(text, "+full");
  expect_refusal(text, ATTN_EINVAL, "at 81", "more than 16 terms");
  strcpy(text, "full + graph:kind=file,file=");
  memset(text + strlen(text), 'x', 5000);
  text[5030] = '\0';
  expect_refusal(text, ATTN_EINVAL, "5028 characters", "at most 4096");
}

Test(expression_grammar, variants_of_expressions) {
  const attn_spec *spec = spec_of("streaming:sink=4+lsh:rounds=3,seed=7");
  note_context("%s", spec->variant->name);
  EXPECT(!strcmp(spec->variant->name, "streaming + lsh:rounds=3"));
  EXPECT(spec->variant->seed && !strcmp(spec->variant->seed, "seed") && *(const int64_t *)spec->params == 7);
  EXPECT(spec->variant->caps & ATTN_CAP_CAUSAL && spec->variant->caps & ATTN_CAP_DATA);
  EXPECT(spec->expression->kind == ATTN_EXPRESSION_JOIN && spec->expression->count == 2);
  EXPECT(spec->expression->terms[1]->column == 18);
  const uint32_t tiled = spec_of("tiled")->variant->caps, shift = ATTN_CAP_SHIFT,
                 of_dyadic = ATTN_CAP_PADDING | ATTN_CAP_CROSS | ATTN_CAP_STOCHASTIC | ATTN_CAP_CONVEX |
                             ATTN_CAP_SHIFT | ATTN_CAP_LSE | ATTN_CAP_HALF | ATTN_CAP_CAUSAL,
                 kinds = ATTN_CAP_KEYS | ATTN_CAP_FEATURES | ATTN_CAP_STORE,
                 of_stored = kinds | ATTN_CAP_EXACT | ATTN_CAP_STOCHASTIC | ATTN_CAP_CONVEX | ATTN_CAP_SHIFT;
  const struct {
    const char *text;
    uint32_t has, lacks;
  } caps[] = {
      {"0.5*tiled + 0.5*full", ATTN_CAP_STOCHASTIC | ATTN_CAP_CONVEX, ATTN_CAP_LSE | ATTN_CAP_EXACT},
      {"1.5*tiled - 0.5*full", ATTN_CAP_STOCHASTIC | ATTN_CAP_CROSS, ATTN_CAP_CONVEX},
      {"0.1*tiled+0.1*tiled+0.1*tiled+0.7*tiled", ATTN_CAP_CONVEX, 0},
      {"1*tiled - 0.5*full", ATTN_CAP_PERMUTATION, ATTN_CAP_STOCHASTIC | ATTN_CAP_CONVEX},
      {"1e16*tiled - 1e16*full + 1*full", 0, ATTN_CAP_STOCHASTIC | ATTN_CAP_CONVEX},
      {"1e308*tiled + 1e308*full", 0, ATTN_CAP_STOCHASTIC | ATTN_CAP_CONVEX},
      {"gate*tiled", ATTN_CAP_CAUSAL | ATTN_CAP_PERMUTATION, ATTN_CAP_STOCHASTIC | ATTN_CAP_CONVEX},
      {"0.5*tiled + 0.5*linear", 0, ATTN_CAP_SCORE | ATTN_CAP_MASK},
      {"dyadic(tiled)", of_dyadic, ~of_dyadic},
      {"dyadic(topk)", (of_dyadic & ~shift) | ATTN_CAP_DATA, ~of_dyadic & ~(uint32_t)ATTN_CAP_DATA},
      {"tiled | store", tiled & ~of_stored, of_stored},
      {"tiled + tiled", tiled & ~kinds, kinds | ATTN_CAP_DATA},
      {"tiled + topk", ATTN_CAP_EXACT | ATTN_CAP_LSE | ATTN_CAP_CONVEX, ATTN_CAP_SHIFT},
      {"streaming + linear", ATTN_CAP_STOCHASTIC | ATTN_CAP_LSE, ATTN_CAP_CONVEX | ATTN_CAP_SCORE},
  };
  for (size_t i = 0; i < sizeof caps / sizeof *caps; i++) {
    note_context("%s", caps[i].text);
    spec = spec_of(caps[i].text);
    EXPECT((spec->variant->caps & caps[i].has) == caps[i].has && !(spec->variant->caps & caps[i].lacks));
  }
}

Test(expression_grammar, null_arguments) {
  attn_parts parts;
  EXPECT_STATUS(attn_expression_describe(NULL, NULL, &parts), ATTN_EINVAL);
  EXPECT_STATUS(attn_expression_applicable(NULL), ATTN_EINVAL);
  EXPECT(!(attn_expression_cost(NULL).mul_add > 0));
}

/* Any text is refused with one line, or has a canonical text that parses to itself. */
Test(expression_grammar, any_text) {
  static const char *const tokens[] = {"tiled",      "topk",        "streaming:sink=4",
                                       "lsh",        ":rounds=2",   "graph:kind=file,file=",
                                       " ",          "+",           " + ",
                                       "-",          " - ",         "0.5*",
                                       "2 * ",       "1e3*",        "(",
                                       ")",          "dyadic(",     ",base=",
                                       "64",         "3+17",        "*",
                                       ",",          "=",           "longformer:global_at=",
                                       "nosuch",     "linear",      "_",
                                       "a/b-c",      "linformer",   "-.5*",
                                       "gate*",      "-gate *",     "sample:count=4",
                                       "vattention", ",base=8",     "\n",
                                       "hyper",      "scatterbrain"};
  uint64_t state = 7;
  int good = 0;
  for (int k = 0; k < 40000; k++) {
    char text[400] = "";
    const int parts = 1 + (int)(9 * uniform_draw(&state));
    for (int i = 0; i < parts; i++)
      strcat(text, tokens[(size_t)((double)(sizeof tokens / sizeof *tokens) * uniform_draw(&state))]);
    attn_spec *spec = NULL, *again = NULL;
    if (attn_spec_parse(&spec, text)) {
      if (spec || !*attn_last_error() || strchr(attn_last_error(), '\n')) note_failure("'%s'", text);
      continue;
    }
    good++;
    if (attn_spec_parse(&again, spec->text) || strcmp(again->text, spec->text) != 0)
      note_failure("'%s' is '%s', and that is '%s'", text, spec->text,
                   again ? again->text : attn_last_error());
    attn_spec_destroy(spec);
    attn_spec_destroy(again);
  }
  EXPECT(good > 1000);
}
