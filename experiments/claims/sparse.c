/* sparse.c - claims about patterns: the cost of Longformer (Beltagy et al. 2020, arXiv:2004.05150), the graph
 * of BigBird (Zaheer et al. 2020, arXiv:2007.14062). */
#include "experiments/claims/claim.h"

#include <gsl/gsl_matrix.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "attn_variant.h"
#include "experiments/mathematics/block_graph.h"
#include "experiments/mathematics/spectrum.h"

/* Of the operations the claim is exact; the exponent of the time has to lie nearer 1 than 2. */
static attn_status linear(const claim_options *options, claim_report *r) {
  static const char *const specs[] = {"longformer:window=128,global=4", "full"};
  static const int64_t n[] = {1024, 2048, 4096};
  double length[4], flops[4], seconds[2][CLAIM_ROUNDS][3];
  attn_status status = claim_times(options, specs, 2, n, 3, &seconds[0][0][0]);
  for (int i = 0; i < 4 && !status; i++) {
    length[i] = (double)(4096 << i);
    status = claim_operations(specs[0], 4096 << i, &flops[i]);
  }
  if (status) return status;
  const double cost = claim_slope(length, flops, 4);
  figure_exact(claim_add(r, 1, "exponent of n of the operations, window 128, n = 4096 ... 32768"), cost);
  const claim_figure *time = NULL;
  for (int v = 0; v < 2; v++) {
    for (int i = 0; i < 3; i++) length[i] = (double)n[i];
    const claim_figure *f = figure_slope(
        claim_add(r, CLAIM_UNSAID, "exponent of n of %s's processor time, n = 1024 ... 4096, %s Q, K, V",
                  v ? "full" : "longformer", claim_tensors_name(options)),
        length, 3, &seconds[v][0][0], CLAIM_ROUNDS, "rounds");
    if (!v) time = f;
  }
  r->telling = 1;
  r->word = fabs(cost - 1) <= 0.02 && time->value < 1.5 ? CLAIM_REPRODUCED : CLAIM_MISSED;
  return ATTN_OK;
}
const claim claim_longformer_linear = {"longformer-linear", "the cost of longformer grows linearly with n",
                                       "Beltagy et al. 2020, section 3.1", linear};

enum { BLOCKS = 256, RANDOM = 3, GRAPHS = 40, PURPOSE = 0xb16b };

/* |second| / first of the eigenvalues of a symmetric graph's adjacency matrix. */
static attn_status second_of(const bool *edge, double *second) {
  gsl_matrix *m = gsl_matrix_calloc(BLOCKS, BLOCKS);
  double values[BLOCKS];
  attn_status status = m ? ATTN_OK : attn_fail(ATTN_ENOMEM, "no memory for the eigenvalues of a graph");
  for (size_t i = 0; m && i < (size_t)BLOCKS * BLOCKS; i++) m->data[i] = edge[i];
  if (!status) status = spectrum_symmetric(m, values);
  if (!status) *second = fmax(fabs(values[1]), fabs(values[BLOCKS - 1])) / values[0];
  gsl_matrix_free(m);
  return status;
}

/* The graph of bigbird, or of its window alone, and its number of edges between different blocks. */
static attn_status bigbird(int random, uint64_t seed, bool *edge, int64_t *edges) {
  const attn_problem p = attn_problem_make(1, 1, BLOCKS, 8);
  char spec[96];
  snprintf(spec, sizeof spec, "bigbird:block=1,window=3,random=%d,global=0,seed=%llu", random,
           (unsigned long long)seed);
  attn_plan *plan = NULL;
  attn_view view;
  attn_status status = attn_plan_create(&plan, &p, spec, NULL);
  if (!status) status = attn_plan_inspect(plan, &view);
  if (!status) status = graph_build(view.pattern, &p, 0, 1, BLOCKS, edge);
  attn_plan_destroy(plan);
  *edges = 0;
  for (int a = 0; !status && a < BLOCKS; a++) {
    edge[a * BLOCKS + a] = false;
    for (int b = 0; b < a; b++) *edges += edge[a * BLOCKS + b];
  }
  return status;
}

/* So many edges, independently of one another. */
static void erdos_renyi(int64_t edges, uint64_t seed, bool *edge) {
  const double p = (double)edges / (BLOCKS * (BLOCKS - 1) / 2.0);
  attn_rng rng;
  attn_rng_init(&rng, seed, PURPOSE, 0);
  for (int a = 0; a < BLOCKS; a++) {
    edge[a * BLOCKS + a] = false;
    for (int b = 0; b < a; b++) edge[a * BLOCKS + b] = edge[b * BLOCKS + a] = attn_rng_uniform(&rng) < p;
  }
}

/* The paper says of Erdos-Renyi graphs that the second eigenvalue is far from the first, and takes random
 * keys for it. Here both are drawn, with as many edges. */
static attn_status graph(const claim_options *options, claim_report *r) {
  static bool edge[BLOCKS * BLOCKS];
  double drawn[GRAPHS], independent[GRAPHS], ratio[GRAPHS], window;
  int64_t edges;
  for (int s = 0; s < GRAPHS; s++) {
    attn_status status = bigbird(RANDOM, claim_seed(options, s), edge, &edges);
    if (!status) status = second_of(edge, &drawn[s]);
    erdos_renyi(edges, claim_seed(options, s), edge);
    if (!status) status = second_of(edge, &independent[s]);
    if (status) return status;
    ratio[s] = drawn[s] / independent[s];
  }
  attn_status status = bigbird(0, 0, edge, &edges);
  if (!status) status = second_of(edge, &window);
  if (status) return status;
  figure_mean(claim_add(r, CLAIM_UNSAID, "second eigenvalue over the first, bigbird, 256 blocks, 3 random"),
              drawn, GRAPHS, "graphs");
  figure_mean(claim_add(r, CLAIM_UNSAID, "... of Erdos-Renyi graphs with as many edges"), independent, GRAPHS,
              "graphs");
  const claim_figure *f = figure_mean(claim_add(r, CLAIM_UNSAID, "bigbird's over Erdos-Renyi's"), ratio,
                                      GRAPHS, "pairs of graphs");
  r->telling = 2;
  figure_exact(claim_add(r, CLAIM_UNSAID, "second eigenvalue over the first, window alone"), window);
  if (f->low >= 0.95 && f->high <= 1.05) r->word = CLAIM_DERIVED;
  return ATTN_OK;
}
const claim claim_bigbird_graph = {
    "bigbird-graph",
    "the second eigenvalue of BigBird's graph is within 5 % of that of an Erdos-Renyi graph with as many "
    "edges",
    "ours; Zaheer et al. 2020, section 2, has it that an Erdos-Renyi graph's is far from the first", graph};
