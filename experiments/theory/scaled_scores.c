/* scaled_scores.c - why scores are divided by sqrt(d): Vaswani et al. 2017 (arXiv:1706.03762), section 3.2.1.
 *
 * q.k is a sum of d products of mean 0 and variance 1, so E (q.k)^2 = d. With k = (q + z) / sqrt(2), z
 * independent, its entries keep their variance and E (q.k)^2 = d (d + 3) / 2.
 *
 * Normal scores of variance v leave n weights p the entropy H with E H >= ln n - v (1 - 1/n): ln n - H =
 * sum_j p_j s_j - ln mean_j e^s_j; E sum_j p_j s_j = v E (1 - sum_j p_j^2) by parts, and E ln mean_j e^s_j >=
 * E mean_j s_j = 0. The scale 1/sqrt(d) gives v = |q|^2 / d, of mean 1.
 *
 * The softmax's Jacobian J = diag(p) - p p^T has |J|_F^2 = S2 - 2 S3 + S2^2, S_m = sum_j p_j^m. By Cauchy and
 * Schwarz S2^2 = (sum p^(1/2) p^(3/2))^2 <= S3, so |J|_F^2 <= S2 - S2^2 <= 1/4. One-hot weights have J = 0:
 * nothing is learned through them. */
#include "experiments/theory/theory.h"

#include "experiments/mathematics/vector.h"

enum { PAIRS = 1 << 14, HEADS = 256, KEYS = 16, WIDEST = 1024 };

typedef struct room {
  double q[HEADS * WIDEST], k[HEADS * KEYS * WIDEST], v[HEADS * KEYS * KEYS], p[HEADS * KEYS];
  double squares[PAIRS], entropy[2][HEADS], jacobian[2][HEADS];
} room;

/* (q.k)^2 / d of independent pairs. */
static void draw_squares(theory_report *r, room *x, int64_t d, bool correlated) {
  double *q = x->q, *k = x->k;
  for (int i = 0; i < PAIRS; i++) {
    theory_normals(r, d, 1, q);
    theory_normals(r, d, 1, k);
    for (int64_t l = 0; correlated && l < d; l++) k[l] = (q[l] + k[l]) / sqrt(2);
    x->squares[i] = pow(vector_dot(q, k, d), 2) / (double)d;
  }
}

/* Of HEADS queries, each with KEYS keys. */
static void measure_softmax(theory_report *r, room *x, int64_t d) {
  attn_problem p = theory_problem(1, KEYS, d, KEYS, 1);
  p.heads = p.kv_heads = HEADS;
  theory_normals(r, HEADS * d, 1, x->q);
  theory_normals(r, HEADS * KEYS * d, 1, x->k);
  for (int i = 0; i < HEADS * KEYS * KEYS; i++) x->v[i] = i % (KEYS * KEYS) % (KEYS + 1) == 0;
  for (int scaled = 0; scaled < 2; scaled++) {
    if (scaled) p.scale = 1 / sqrt((double)d);
    theory_attend(r, &p, "full", &(attn_tensors){.q = x->q, .k = x->k, .v = x->v, .o = x->p});
    for (int h = 0; h < HEADS; h++) {
      double entropy = 0, s2 = 0, s3 = 0;
      for (int j = 0; j < KEYS; j++) {
        const double w = x->p[h * KEYS + j];
        if (w > 0) entropy -= w * log(w);
        s2 += w * w;
        s3 += w * w * w;
      }
      x->entropy[scaled][h] = entropy;
      x->jacobian[scaled][h] = sqrt(theory_larger(0, s2 - 2 * s3 + s2 * s2));
    }
  }
}

static void measure(theory_report *r, void *at) {
  room *x = at;
  double largest = 0;
  for (int64_t d = 16; d <= WIDEST; d *= 4) {
    draw_squares(r, x, d, false);
    figure_mean(
        theory_promise(r, false, THEORY_EQUAL, 1, 0, "E (q.k)^2 / d, independent entries, d = %d", (int)d),
        x->squares, PAIRS, "pairs");
    measure_softmax(r, x, d);
    for (int scaled = 0; scaled < 2; scaled++) {
      const char *entropy = scaled ? "entropy, 1/sqrt(d)" : "entropy, unscaled",
                 *norm = scaled ? "|J|, 1/sqrt(d)" : "|J|, unscaled";
      largest = theory_larger(largest, theory_largest(x->jacobian[scaled], HEADS));
      figure_mean(theory_point(r, entropy, (double)d), x->entropy[scaled], HEADS, "queries");
      figure_mean(theory_point(r, norm, (double)d), x->jacobian[scaled], HEADS, "queries");
      if (d < WIDEST) continue;
      figure_mean(theory_promise(r, !scaled, THEORY_AT_LEAST, log(KEYS) - 1 + 1. / KEYS, 0,
                                 "mean %s, %d keys, d = %d", entropy, KEYS, WIDEST),
                  x->entropy[scaled], HEADS, "queries");
      figure_mean(theory_show(r, "mean %s", norm), x->jacobian[scaled], HEADS, "queries");
    }
  }
  draw_squares(r, x, 64, true);
  figure_mean(theory_promise(r, true, THEORY_EQUAL, 1, 0, "E (q.k)^2 / d, k = (q + z) / sqrt(2), d = 64"),
              x->squares, PAIRS, "pairs");
  /* S2, S3 and the root lose at most 40 roundings of numbers up to 1. */
  figure_exact(theory_promise(r, false, THEORY_AT_MOST, 0.5, 40 * 0x1p-53, "largest |J|_F of all"), largest);
}

THEORY_DEFINE(variance, .name = "variance",
              .statement = "q.k has variance d, so that 1/sqrt(d) keeps the softmax as soft at every width",
              .assumption = "entries of q and k are independent, of mean 0 and variance 1",
              .otherwise = "keys that resemble their query, and scores that are not scaled",
              .source = "Vaswani et al. 2017 (arXiv:1706.03762), section 3.2.1", .x = "d", .y = "nats; norm",
              .room = sizeof(room), .measure = measure);
