/* shared_heads.c - what keys and values that query heads share save, and what they cost.
 *
 * H query heads of width d over a model of H d: queries and outputs have 2 (H d)^2 parameters; g kv heads
 * have 2 H d g d, and 2 g d numbers a token in a cache (g = H: multi-head; 1: Shazeer 2019, arXiv:1911.02150;
 * between: Ainslie et al. 2023, arXiv:2305.13245, who begin with the means of a group's heads). A latent
 * vector of r numbers (DeepSeek-V2, arXiv:2405.04434) has r H d + 2 r H d. Grouping changes nothing where a
 * group's heads agree. */
#include "experiments/theory/theory.h"

#include <stdio.h>
#include <string.h>

#include "experiments/mathematics/vector.h"

enum { N = 256, D = 16, HEADS = 8, HEAD = N * D, ALL = HEADS * HEAD };

typedef struct heads_room {
  double q[ALL], k[ALL], v[ALL], mean_k[ALL], mean_v[ALL], o[ALL], near[ALL];
} heads_room;

static void attend(theory_report *r, heads_room *x, const char *spec, int kv_heads, const double *k,
                   const double *v, double *o) {
  attn_problem p = theory_problem(N, N, D, D, 1 / sqrt(D));
  p.heads = HEADS;
  p.kv_heads = kv_heads;
  theory_attend(r, &p, spec, &(attn_tensors){.q = x->q, .k = k, .v = v, .o = o});
}

/* The means of kv_heads groups of heads. */
static void pool(int kv_heads, const double *from, double *to) {
  memset(to, 0, ALL * sizeof *to);
  for (int i = 0; i < ALL; i++)
    to[i / HEAD * kv_heads / HEADS * HEAD + i % HEAD] += from[i] * kv_heads / HEADS;
}

static void measure(theory_report *r, void *at) {
  static const char *const names[] = {"MHA", "GQA, 4 kv heads", "GQA, 2 kv heads", "MQA"};
  heads_room *x = at;
  theory_normals(r, ALL, 1, x->q);
  theory_normals(r, ALL, 1, x->k);
  theory_normals(r, ALL, 1, x->v);
  const double tolerance = theory_rounding(
      N, D, theory_score_size(HEADS * N, HEADS * N, D, 1 / sqrt(D), x->q, x->k), theory_largest(x->v, ALL));
  attend(r, x, "full", HEADS, x->k, x->v, x->o);
  for (int m = 0; m < 4; m++) {
    const int g = HEADS >> m, numbers = 2 * g * D;
    char spec[32];
    const double width = HEADS * D, norm = vector_norm(x->o, ALL);
    pool(g, x->k, x->mean_k);
    pool(g, x->v, x->mean_v);
    attend(r, x, "full", g, x->mean_k, x->mean_v, x->near);
    const double error = vector_distance(x->near, x->o, ALL) / norm;
    figure_exact(theory_point(r, "means of heads", numbers), error);
    figure_exact(theory_show(r, "%s: parameters, H = %d, d = %d", names[m], HEADS, D),
                 2 * width * (width + g * D));
    figure_exact(theory_show(r, "%s: numbers a token in a cache", names[m]), numbers);
    figure_exact(theory_show(r, "%s: relative error, means of independent heads", names[m]), error);
    snprintf(spec, sizeof spec, "latent:rank=%d", numbers);
    attend(r, x, spec, HEADS, x->k, x->v, x->near);
    const double latent = vector_distance(x->near, x->o, ALL) / norm;
    figure_exact(theory_point(r, "latent vectors of as many numbers", numbers), latent);
    figure_exact(theory_show(r, "MLA, rank %d: parameters", numbers),
                 2 * width * width + 3 * numbers * width);
    figure_exact(theory_show(r, "MLA, rank %d: relative error, fitted to independent heads", numbers),
                 latent);
  }
  /* Heads of one group that agree, and those that do not. */
  for (int differ = 0; differ < 2; differ++) {
    pool(2, x->k, x->mean_k);
    pool(2, x->v, x->mean_v);
    attend(r, x, "full", 2, x->mean_k, x->mean_v, x->near);
    for (int h = 0; h < HEADS && !differ; h++) {
      memcpy(x->k + h * HEAD, x->mean_k + h / 4 * HEAD, HEAD * sizeof *x->k);
      memcpy(x->v + h * HEAD, x->mean_v + h / 4 * HEAD, HEAD * sizeof *x->v);
    }
    if (differ) theory_normals(r, ALL, 1, x->k);
    attend(r, x, "full", HEADS, x->k, x->v, x->o);
    theory_vanishes(r, differ, theory_distance(x->near, x->o, ALL), tolerance,
                    "|grouped - multi-head|, 2 groups whose heads %s", differ ? "differ" : "agree");
  }
}

THEORY_DEFINE(heads, .name = "heads",
              .statement = "g kv heads that H query heads share take g / H of a cache, and change nothing",
              .assumption = "the heads of a group agree",
              .otherwise = "independent heads, which their means do not represent",
              .source = "Shazeer 2019; Ainslie et al. 2023, section 2; DeepSeek-AI 2024, Table 1",
              .x = "numbers a token in a cache", .y = "relative error", .room = sizeof(heads_room),
              .measure = measure);
