/* fast_weights.c - linear attention without a denominator as a matrix that is written by outer products, S =
 * sum_j k_j v_j^T, and read by a query, S^T q. With W = S^T:
 *
 * One gradient step of L(W) = 1/2 sum_j |W k_j - v_j|^2 from W = 0 at the rate e gives W = e sum_j v_j k_j^T:
 * the same read (von Oswald et al. 2023, arXiv:2212.07677). Elsewhere the gradient has the term W sum_j k_j
 * k_j^T too. Of normal keys and v = W* k, at e = 1/n, the error is E |(W - W*) q|^2 = (d + 1) / n E |W* q|^2,
 * because E (A - I)^2 = (d + 1) / n I of A = 1/n sum_j k_j k_j^T.
 *
 * The delta rule (Schlag et al. 2021, arXiv:2102.11174) W <- W + (v - W k) k^T is that step for the newest
 * pair alone. With v = W* k, the error's rows are projected along k: |k| = 1 in uniform directions leaves E
 * |W_t - W*|^2 = (1 - 1/d)^t |W*|^2. The sum (d / t) sum_j v_j k_j^T, which is unbiased, has (d - 1) / t in
 * its place.
 *
 * As a memory, S^T k_j - v_j = sum_(i != j) (k_i.k_j) v_i, and E (k_i.k_j)^2 = 1/d of directions that are
 * uniform: E |S^T k_j - v_j|^2 = (n - 1) / d E |v|^2, and 0 of orthonormal keys (at most d). */
#include "experiments/theory/theory.h"

#include <float.h>
#include <string.h>

#include "experiments/mathematics/vector.h"

static const char additive[] = "recurrent:decay=constant,gamma=1";

/* `heads` memories of n pairs, each read by `queries` queries: state (before: what it holds; NULL: zeros)
 * [heads, d, d_v]. zeros: heads queries max(d, d_v) of them. */
typedef struct memories {
  int64_t heads, n, d, d_v, queries;
  const double *k, *v, *q, *before, *zeros;
  double *state, *o;
} memories;

static void recall(theory_report *r, const memories *m) {
  attn_problem write = theory_problem(1, m->n, m->d, m->d_v, 1);
  write.heads = write.kv_heads = m->heads;
  write.causal = true;
  attn_problem read = write;
  read.n_q = read.n_kv = m->queries;
  theory_attend(r, &write, additive,
                &(attn_tensors){
                    .q = m->q, .k = m->k, .v = m->v, .o = m->o, .state = m->before, .state_after = m->state});
  theory_attend(r, &read, additive,
                &(attn_tensors){.q = m->q, .k = m->zeros, .v = m->zeros, .o = m->o, .state = m->state});
}

/* Of one component of two reads whose sums are of n products of sums of d: `size` and `largest` as
 * theory_rounding has them. */
static double rounding(int64_t n, int64_t d, double size, double largest) {
  return 1.01 * 2 * (DBL_EPSILON / 2) * (double)(n + d + 4) * (double)n * size * largest;
}

/* ---- one gradient step --------------------------------------------------------------------------------- */

enum { D = 16, PAIRS = 64, QUERIES = 32, DRAWS = 1024, MOST_PAIRS = 256 };

typedef struct step_room {
  double k[DRAWS * MOST_PAIRS * D], v[DRAWS * MOST_PAIRS * D], q[DRAWS * D], o[DRAWS * D], zeros[DRAWS * D],
      state[DRAWS * D * D];
  double target[D * D], before[D * D], after[D * D], error[DRAWS], scaled[PAIRS * D];
} step_room;

/* to [d_v] = W x of W^T = s [d, d_v] */
static void read_matrix(const double *s, int64_t d, int64_t d_v, const double *x, double *to) {
  memset(to, 0, (size_t)d_v * sizeof *to);
  for (int64_t l = 0; l < d; l++)
    for (int64_t c = 0; c < d_v; c++) to[c] += x[l] * s[l * d_v + c];
}

/* after = before - rate times the gradient at `before`, both transposed. */
static void gradient_step(const step_room *x, double rate, double *after) {
  double miss[D];
  memcpy(after, x->before, sizeof x->before);
  for (int j = 0; j < PAIRS; j++) {
    read_matrix(x->before, D, D, x->k + (ptrdiff_t)j * D, miss);
    for (int c = 0; c < D; c++) miss[c] -= x->v[j * D + c];
    for (int l = 0; l < D; l++)
      for (int c = 0; c < D; c++) after[l * D + c] -= rate * x->k[j * D + l] * miss[c];
  }
}

/* How far the read of linear attention to values rate v is from that of a gradient step. */
static double distance_to_step(theory_report *r, step_room *x) {
  static const double rate = 1. / PAIRS;
  double largest = 0, read[D];
  for (int i = 0; i < PAIRS * D; i++) x->scaled[i] = rate * x->v[i];
  recall(r, &(memories){1, PAIRS, D, D, QUERIES, x->k, x->scaled, x->q, x->before, x->zeros, x->state, x->o});
  gradient_step(x, rate, x->after);
  for (int i = 0; i < QUERIES; i++) {
    read_matrix(x->after, D, D, x->q + (ptrdiff_t)i * D, read);
    largest = theory_larger(largest, theory_distance(read, x->o + (ptrdiff_t)i * D, D));
  }
  return largest;
}

static void measure_step(theory_report *r, void *at) {
  step_room *x = at;
  theory_normals(r, PAIRS * D, 1, x->k);
  theory_normals(r, PAIRS * D, 1, x->v);
  theory_normals(r, QUERIES * D, 1, x->q);
  const double tolerance = rounding(PAIRS, D, theory_score_size(QUERIES, PAIRS, D, 1, x->q, x->k),
                                    theory_largest(x->v, PAIRS * D) / PAIRS);
  theory_vanishes(r, false, distance_to_step(r, x), tolerance, "|read - gradient step|, largest, from W = 0");
  theory_normals(r, D * D, 1, x->before);
  theory_vanishes(r, true, distance_to_step(r, x), tolerance,
                  "|read - gradient step|, largest, from a random W");
  theory_normals(r, D * D, 1, x->target);
  const double scale = pow(vector_norm(x->target, D * D), 2);
  for (int64_t n = 16; n <= MOST_PAIRS; n *= 2) {
    theory_normals(r, DRAWS * n * D, 1, x->k);
    theory_normals(r, DRAWS * D, 1, x->q);
    for (int64_t i = 0; i < DRAWS * n; i++) {
      read_matrix(x->target, D, D, x->k + i * D, x->v + i * D);
      for (int64_t c = 0; c < D; c++) x->v[i * D + c] /= (double)n;
    }
    recall(r, &(memories){DRAWS, n, D, D, 1, x->k, x->v, x->q, NULL, x->zeros, x->state, x->o});
    for (int64_t i = 0; i < DRAWS; i++) {
      double want[D];
      read_matrix(x->target, D, D, x->q + i * D, want);
      x->error[i] = pow(vector_distance(want, x->o + i * D, D), 2) / scale;
    }
    const double promised = (D + 1) / (double)n;
    if (n == 16 || n == MOST_PAIRS)
      figure_mean(theory_promise(r, false, THEORY_EQUAL, promised, 0,
                                 "E |(W - W*) q|^2 / E |W* q|^2 of one step, d = %d, n = %d", D, (int)n),
                  x->error, DRAWS, "draws");
    figure_mean(theory_point(r, "one step = linear attention", (double)n), x->error, DRAWS, "draws");
    figure_exact(theory_point(r, "promised (d + 1) / n", (double)n), promised);
  }
}

THEORY_DEFINE(
    gradient_step, .name = "gradient-step",
    .statement = "reading linear attention is one gradient step of least squares on the pairs of the context",
    .assumption = "the step begins at W = 0", .otherwise = "a state that is not zero before the context",
    .source = "von Oswald et al. 2023 (arXiv:2212.07677), Proposition 1; the error is ours", .x = "pairs n",
    .y = "relative squared error", .room = sizeof(step_room), .measure = measure_step);

/* ---- the delta rule ------------------------------------------------------------------------------------ */

enum { LEARNERS = 2048, STEPS = 4 * D, D_V = 4 };

typedef struct delta_room {
  double target[LEARNERS * D * D_V], k[LEARNERS * STEPS * D], v[LEARNERS * STEPS * D_V], q[LEARNERS * D];
  double state[LEARNERS * D * D_V], o[LEARNERS * D_V], error[LEARNERS];
} delta_room;

static void draw_pairs(theory_report *r, delta_room *x, double noise) {
  theory_normals(r, LEARNERS * D * D_V, 1, x->target);
  theory_directions(r, LEARNERS * STEPS, D, 0, x->k);
  for (int i = 0; i < LEARNERS * STEPS; i++) {
    double *v = x->v + (ptrdiff_t)i * D_V, off[D_V];
    read_matrix(x->target + (ptrdiff_t)(i / STEPS) * D * D_V, D, D_V, x->k + (ptrdiff_t)i * D, v);
    theory_normals(r, D_V, noise, off);
    for (int c = 0; c < D_V; c++) v[c] += off[c];
  }
}

/* Squared errors of factor times the states behind the first t pairs, over those of zero. */
static void learn(theory_report *r, delta_room *x, const char *spec, int t, double factor) {
  attn_problem p = theory_problem(1, t, D, D_V, 1);
  p.heads = p.kv_heads = LEARNERS;
  p.causal = true;
  p.k = (attn_stride){LEARNERS * STEPS * D, STEPS * D, D, 0};
  p.v = (attn_stride){LEARNERS * STEPS * D_V, STEPS * D_V, D_V, 0};
  theory_attend(r, &p, spec,
                &(attn_tensors){.q = x->q, .k = x->k, .v = x->v, .o = x->o, .state_after = x->state});
  for (int i = 0; i < LEARNERS; i++) {
    double *s = x->state + (ptrdiff_t)i * D * D_V, *target = x->target + (ptrdiff_t)i * D * D_V;
    for (int l = 0; l < D * D_V; l++) s[l] *= factor;
    x->error[i] = pow(vector_distance(s, target, D * D_V) / vector_norm(target, D * D_V), 2);
  }
}

static void measure_delta(theory_report *r, void *at) {
  static const char delta[] = "recurrent:rule=delta,beta=one";
  delta_room *x = at;
  draw_pairs(r, x, 0);
  for (int t = D / 4; t <= STEPS; t *= 2)
    for (int rule = 0; rule < 2; rule++) {
      const char *name = rule ? "the sum, times d / t" : "the delta rule";
      const double promised = rule ? (D - 1) / (double)t : pow(1 - 1. / D, t);
      learn(r, x, rule ? additive : delta, t, rule ? D / (double)t : 1);
      if (t == D || t == STEPS)
        figure_mean(theory_promise(r, false, THEORY_EQUAL, promised, 0,
                                   "E |W_t - W*|^2 / |W*|^2, %s, d = %d, t = %d", name, D, t),
                    x->error, LEARNERS, "draws");
      figure_mean(theory_point(r, name, t), x->error, LEARNERS, "draws");
      figure_exact(theory_point(r, rule ? "promised (d - 1) / t" : "promised (1 - 1/d)^t", t), promised);
    }
  draw_pairs(r, x, 1);
  learn(r, x, delta, STEPS, 1);
  figure_mean(theory_promise(r, true, THEORY_EQUAL, pow(1 - 1. / D, STEPS), 0,
                             "E |W_t - W*|^2 / |W*|^2, the delta rule, values with noise, t = %d", STEPS),
              x->error, LEARNERS, "draws");
}

THEORY_DEFINE(
    delta_rule, .name = "delta-rule",
    .statement =
        "the delta rule solves least squares online: its error falls as (1 - 1/d)^t, that of the sum as 1/t",
    .assumption = "values are linear in their keys, whose directions are uniform",
    .otherwise = "values with noise, which the newest pair is fitted to",
    .source = "Schlag et al. 2021 (arXiv:2102.11174), section 4.2; the rates are ours", .x = "pairs t",
    .y = "relative squared error", .room = sizeof(delta_room), .measure = measure_delta);

/* ---- a memory of n pairs ------------------------------------------------------------------------------- */

enum { N = 64, WIDEST = 256, SETS = 512, VALUE = 16 };

typedef struct recall_room {
  double k[SETS * N * WIDEST], v[SETS * N * VALUE], q[SETS * WIDEST], zeros[SETS * WIDEST],
      state[SETS * WIDEST * VALUE], o[2][SETS * VALUE], error[2][SETS];
  double many_k[2 * N * N], many_v[2 * N * VALUE], many_o[2 * N * VALUE];
} recall_room;

/* Squared errors of the value of each set's first key, and how often the nearest value is its own. */
static void recall_sets(theory_report *r, recall_room *x, int64_t d, double mean, int right[2]) {
  attn_problem p = theory_problem(1, N, d, VALUE, 16);
  p.heads = p.kv_heads = SETS;
  theory_directions(r, SETS * N, d, mean, x->k);
  theory_normals(r, SETS * N * VALUE, 1, x->v);
  for (int64_t s = 0; s < SETS; s++) memcpy(x->q + s * d, x->k + s * N * d, (size_t)d * sizeof *x->q);
  recall(r, &(memories){SETS, N, d, VALUE, 1, x->k, x->v, x->q, NULL, x->zeros, x->state, x->o[0]});
  theory_attend(r, &p, "full", &(attn_tensors){.q = x->q, .k = x->k, .v = x->v, .o = x->o[1]});
  for (int rule = 0; rule < 2; rule++) {
    right[rule] = 0;
    for (int64_t s = 0; s < SETS; s++) {
      const double *v = x->v + s * N * VALUE, *o = x->o[rule] + s * VALUE;
      const double off = vector_distance(o, v, VALUE);
      int nearest = 1;
      for (int64_t j = 1; j < N; j++) nearest &= off < vector_distance(o, v + j * VALUE, VALUE);
      right[rule] += nearest;
      x->error[rule][s] = off * off / VALUE;
    }
  }
}

/* Of n keys, rows of a Hadamard matrix and then unit vectors, the largest error, and its rounding. */
static double recall_orthonormal(theory_report *r, recall_room *x, int64_t n, double *tolerance) {
  for (int64_t i = 0; i < n * N; i++) {
    int bits = 0;
    for (int64_t both = i / N & i % N; both; both &= both - 1) bits++;
    x->many_k[i] = i < N * N ? (bits % 2 ? -1 : 1) / sqrt(N) : i % (N + 1) == 0;
  }
  theory_normals(r, n * VALUE, 1, x->many_v);
  recall(r, &(memories){1, n, N, VALUE, n, x->many_k, x->many_v, x->many_k, NULL, x->zeros, x->state,
                        x->many_o});
  *tolerance = rounding(n, N, theory_score_size(n, n, N, 1, x->many_k, x->many_k),
                        theory_largest(x->many_v, n * VALUE));
  return theory_distance(x->many_o, x->many_v, n * VALUE);
}

static void measure_recall(theory_report *r, void *at) {
  recall_room *x = at;
  double tolerance;
  int right[2];
  for (int64_t d = 16; d <= WIDEST; d *= 2) {
    recall_sets(r, x, d, 0, right);
    const double promised = (N - 1) / (double)d;
    if (d == 16 || d == N || d == WIDEST)
      figure_mean(theory_promise(r, false, THEORY_EQUAL, promised, 0,
                                 "E |S k_j - v_j|^2 / E |v|^2, random keys, n = %d, d = %d", N, (int)d),
                  x->error[0], SETS, "draws");
    figure_mean(theory_point(r, "error of the sum", (double)d), x->error[0], SETS, "draws");
    figure_exact(theory_point(r, "promised (n - 1) / d", (double)d), promised);
    figure_share(theory_point(r, "recalled from the sum", (double)d), right[0], SETS, "draws");
    figure_share(theory_point(r, "recalled by softmax", (double)d), right[1], SETS, "draws");
    if (d != N) continue;
    figure_mean(theory_show(r, "the same of softmax attention, scale 16, d = %d", N), x->error[1], SETS,
                "draws");
    figure_share(theory_show(r, "recalled from the sum, d = %d: its value is the nearest", N), right[0], SETS,
                 "draws");
    figure_share(theory_show(r, "recalled by softmax"), right[1], SETS, "draws");
  }
  recall_sets(r, x, WIDEST, 0.5, right);
  figure_mean(theory_promise(r, true, THEORY_EQUAL, (N - 1) / (double)WIDEST, 0,
                             "E |S k_j - v_j|^2 / E |v|^2, keys with a common mean, d = %d", WIDEST),
              x->error[0], SETS, "draws");
  double error = recall_orthonormal(r, x, N, &tolerance);
  theory_vanishes(r, false, error, tolerance, "largest error, n = d = %d orthonormal keys", N);
  error = recall_orthonormal(r, x, 2 * N, &tolerance);
  theory_vanishes(r, true, error, tolerance, "largest error, n = 2 d keys of two such bases");
}

THEORY_DEFINE(
    recall, .name = "recall",
    .statement =
        "a state of width d recalls one of n pairs with squared error (n - 1) / d, and d orthonormal keys "
        "exactly",
    .assumption = "keys are unit vectors in independent, uniform directions, or orthonormal",
    .otherwise = "keys with a common mean, or more keys than dimensions",
    .source = "Schlag et al. 2021 (arXiv:2102.11174), section 4.1; the error is ours", .x = "width d",
    .y = "relative squared error; share recalled", .room = sizeof(recall_room), .measure = measure_recall);
