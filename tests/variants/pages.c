/* pages.c - the variant pages against its definition: which pages are kept, written here key by key in long
 * double, and what covers everything. */
#include "tests/variants/picks.h"

enum { BATCH = 2, HEADS = 4, N_Q = 75, N_KV = 90, D = 16, D_V = 7 };

typedef struct setting {
  const char *score, *share;
  int64_t page, budget, first, last;
} setting;

static const attn_dtype types[] = {ATTN_F32, ATTN_F64};

/* Elements are multiples of 1/2 so that products are exact, and many are equal. */
static inputs make(attn_dtype t, bool causal) {
  inputs in = inputs_shaped((case_shape){BATCH, HEADS, 2, N_Q, N_KV, D, D_V, causal, true}, t, 17, 1);
  inputs_quantise(&in, TENSOR_Q, 1);
  inputs_quantise(&in, TENSOR_K, 1);
  return in;
}

/* Of the keys begin ... end - 1 for one query, scale included. */
static long double page_score(const inputs *in, const char *score, int64_t b, int64_t h, int64_t i,
                              int64_t begin, int64_t end) {
  const int64_t g = h / (in->problem.heads / in->problem.kv_heads), count = end - begin;
  long double box = 0, mean = 0, length = 0, far = 0, most = -(long double)INFINITY, mass = 0, middle[D];
  for (int64_t l = 0; l < D; l++) {
    const long double q = (long double)inputs_get(in, TENSOR_Q, b, h, i, l) * (long double)in->problem.scale;
    long double best = -(long double)INFINITY, sum = 0;
    for (int64_t j = begin; j < end; j++) {
      const long double k = (long double)inputs_get(in, TENSOR_K, b, g, j, l);
      best = fmaxl(best, q * k);
      sum += k;
    }
    box += best;
    middle[l] = sum / (long double)count;
    mean += q * middle[l];
    length += q * q;
  }
  for (int64_t j = begin; j < end; j++) {
    long double away = 0, s = 0;
    for (int64_t l = 0; l < D; l++) {
      const long double k = (long double)inputs_get(in, TENSOR_K, b, g, j, l);
      away += (k - middle[l]) * (k - middle[l]);
      s += k * (long double)inputs_get(in, TENSOR_Q, b, h, i, l) * (long double)in->problem.scale;
    }
    far = fmaxl(far, away);
    most = fmaxl(most, s);
    mass += expl(s);
  }
  return !strcmp(score, "box")    ? box
         : !strcmp(score, "mean") ? mean
         : !strcmp(score, "ball") ? mean + sqrtl(length) * sqrtl(far)
         : !strcmp(score, "max")  ? most
                                  : logl(mass);
}

/* The rows of heads that share a selection with a row: heads h0 ..., rows i0 .... */
typedef struct sharing {
  int64_t head, heads, row, rows;
} sharing;

static sharing sharing_of(const setting *s, const inputs *in, int64_t h, int64_t i) {
  const int64_t group = in->problem.heads / in->problem.kv_heads;
  if (!strcmp(s->share, "group")) return (sharing){h / group * group, group, i, 1};
  if (strcmp(s->share, "tile")) return (sharing){h, 1, i, 1};
  return (sharing){h, 1, i / 64 * 64, i / 64 * 64 + 64 < N_Q ? 64 : N_Q - i / 64 * 64};
}

/* 1: the page must be kept, 0: must not, -1: rounding decides. */
static void expect(const setting *s, const inputs *in, int64_t b, int64_t h, int64_t i, int *wanted) {
  const sharing with = sharing_of(s, in, h, i);
  int64_t keys[N_KV];
  const int64_t seen_by_first = oracle_keys(in, NULL, b, h, with.row, keys),
                seen = oracle_keys(in, NULL, b, h, with.row + with.rows - 1, keys),
                exist = inputs_keys(in, b), pages = (seen + s->page - 1) / s->page;
  int64_t ranked_end = pages, left = (s->budget + s->page - 1) / s->page - s->first;
  if (in->problem.causal) {
    const int64_t own = (seen_by_first + s->page - 1) / s->page;
    left -= s->last;
    ranked_end = own - s->last;
    while (ranked_end > 0 && ranked_end * s->page > seen_by_first) ranked_end--;
  }
  long double score[N_KV];
  for (int64_t page = 0; page < pages; page++) {
    wanted[page] = page < s->first || page >= ranked_end;
    const int64_t end = (page + 1) * s->page < exist ? (page + 1) * s->page : exist;
    score[page] = -(long double)INFINITY;
    for (int64_t g = 0; g < with.heads && !wanted[page]; g++)
      for (int64_t r = 0; r < with.rows; r++)
        score[page] =
            fmaxl(score[page], page_score(in, s->score, b, with.head + g, with.row + r, page * s->page, end));
  }
  const bool exact = !strcmp(s->score, "box") || !strcmp(s->score, "max");
  const long double margin = exact ? 0 : in->problem.dtype == ATTN_F32 ? 1e-5L : 1e-13L;
  for (int64_t page = s->first; page < ranked_end; page++) {
    int64_t surely = 0, perhaps = 0;
    for (int64_t other = s->first; other < ranked_end; other++) {
      const long double above = score[other] - score[page];
      surely += above > margin || (exact && !(above < 0) && other < page);
      perhaps += other != page && above >= -margin && (!exact || above > 0 || other < page);
    }
    wanted[page] = perhaps < left ? 1 : surely >= left ? 0 : -1;
  }
}

static void check_pages(const setting *s, attn_dtype t, bool causal) {
  inputs in = make(t, causal);
  const char *spec = text_of("pages:page=%d,budget=%d,score=%s,first=%d,last=%d,share=%s", (int)s->page,
                             (int)s->budget, s->score, (int)s->first, (int)s->last, s->share);
  note_context("%s%s %s", spec, causal ? " causal" : "", t == ATTN_F64 ? "f64" : "f32");
  picks x = picks_of(spec, &in);
  int64_t wrong = 0, decided = 0, keys[N_KV];
  for (int64_t b = 0; b < BATCH; b++)
    for (int64_t h = 0; h < HEADS; h++)
      for (int64_t i = 0; i < N_Q; i++) {
        int wanted[N_KV];
        expect(s, &in, b, h, i, wanted);
        const int64_t seen = oracle_keys(&in, NULL, b, h, i, keys);
        for (int64_t j = 0; j < seen; j++) {
          if (wanted[j / s->page] < 0) continue;
          decided++;
          wrong += picks_has(&x, (b * HEADS + h) * N_Q + i, keys[j]) != (wanted[j / s->page] == 1);
        }
      }
  if (wrong) note_failure("%d of %d keys", (int)wrong, (int)decided);
  if (decided < HEADS * N_Q * 8) note_failure("only %d keys are decided", (int)decided);
}

Test(variants_pages, keep_what_the_definition_says) {
  static const setting settings[] = {
      {"box", "row", 8, 32, 0, 1},  {"mean", "row", 8, 32, 0, 1},  {"ball", "row", 8, 32, 0, 1},
      {"max", "row", 8, 32, 0, 1},  {"mass", "row", 8, 32, 0, 1},  {"box", "row", 7, 30, 1, 2},
      {"mean", "row", 8, 16, 1, 0}, {"box", "group", 8, 32, 0, 1}, {"ball", "group", 4, 12, 1, 1},
      {"box", "tile", 4, 24, 0, 1}, {"mean", "tile", 4, 24, 2, 1}, {"box", "row", 1, 9, 0, 0},
      {"box", "row", 16, 8, 0, 1},  {"max", "row", 16, 48, 0, 0},
  };
  for (size_t i = 0; i < sizeof settings / sizeof *settings; i++)
    for (size_t t = 0; t < 2; t++)
      for (int causal = 0; causal <= 1; causal++) check_pages(&settings[i], types[t], causal);
}

static void expect_same_output(const char *spec, const char *other, const inputs *in) {
  expect_same_outputs(&in->problem, run_spec(spec, NULL, in), run_spec(other, NULL, in), other);
}

Test(variants_pages, what_covers_everything_is_tiled) {
  const char *specs = "pages:page=16,budget=90 pages:page=7,budget=1024,share=tile "
                      "pages:page=128,budget=1,score=mean,share=group topk:k=90 topk:k=500,by=sparq "
                      "topk:k=500,by=loki topk:k=90,share=group";
  char spec[80];
  for (int size; sscanf(specs, "%79s%n", spec, &size) == 1; specs += size)
    for (size_t t = 0; t < 2; t++)
      for (int causal = 0; causal <= 1; causal++) {
        inputs in = make(types[t], causal);
        note_context("%s%s", spec, causal ? " causal" : "");
        expect_same_output(spec, "tiled", &in);
        inputs_free(&in);
      }
}

/* More keys than the engine takes in one stretch, in pages that stretches cut. */
Test(variants_pages, pages_of_a_long_sequence_are_attended_to) {
  enum { LONG = 20000, ROWS = 5 };
  inputs in = inputs_shaped((case_shape){1, 2, 1, ROWS, LONG, D, D_V, true, false}, ATTN_F32, 29, 1);
  static const char *const specs[] = {"pages:page=4096,budget=12288",
                                      "pages:page=300,budget=9000,share=group", "pages:page=16,budget=256"};
  for (int k = 0; k < 3; k++) {
    picks x = picks_of(specs[k], &in);
    float *o = run_plain(x.plan, &in);
    note_context("%s", specs[k]);
    for (int64_t h = 0; h < 2; h++)
      for (int64_t i = 0; i < ROWS; i++) {
        double sum = 0, want[D_V] = {0};
        for (int64_t j = 0; j <= i + LONG - ROWS; j++) {
          double s = 0;
          if (!picks_has(&x, h * ROWS + i, j)) continue;
          for (int64_t l = 0; l < D; l++)
            s += inputs_get(&in, TENSOR_Q, 0, h, i, l) * inputs_get(&in, TENSOR_K, 0, 0, j, l);
          const double weight = exp(s * in.problem.scale);
          sum += weight;
          for (int64_t l = 0; l < D_V; l++) want[l] += weight * inputs_get(&in, TENSOR_V, 0, 0, j, l);
        }
        for (int64_t l = 0; l < D_V; l++)
          EXPECT(fabs(output_get(&in.problem, o, 0, h, i, l) - want[l] / sum) <= 1e-4);
      }
    free(o);
  }
}

/* Where keys are selected both stages take time; asking for it changes no bit, and what selects nothing
 * reports none. */
Test(variants_pages, stages_of_an_execution) {
  static const char *const specs[] = {"pages:page=8,budget=24", "topk:k=8,share=group", "topk:k=4096",
                                      "tiled"};
  inputs in = inputs_shaped((case_shape){2, 4, 2, N_Q, N_KV, D, D_V, true, false}, ATTN_F32, 31, 1);
  const size_t bytes = output_count(&in.problem) * sizeof(float);
  for (int k = 0; k < 4; k++) {
    attn_stages spent = {-1, -1};
    attn_plan *plan = plan_or_note(&in.problem, specs[k], NULL);
    float *plain = run_plain(plan, &in), *o = malloc(bytes);
    note_context("%s", specs[k]);
    EXPECT_STATUS(
        run_tensors(plan, (attn_tensors){.q = in.q, .k = in.k, .v = in.v, .o = o, .stages = &spent}),
        ATTN_OK);
    EXPECT(memcmp(o, plain, bytes) == 0);
    EXPECT(k < 2 ? spent.select > 0 && spent.attend > 0 : spent.select == 0 && spent.attend == 0);
    free(plain), free(o);
    attn_plan_destroy(plan);
  }
}
