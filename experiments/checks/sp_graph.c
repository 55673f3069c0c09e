/* sp_graph.c - SP-5: the graph of blocks that see one another in a BigBird pattern, symmetrised.
 *
 * With a global block every two blocks are at most 2 apart. Without one, let N = D^{-1/2} A D^{-1/2} and
 * lambda the largest modulus of its other eigenvalues: (N^t)_ij >= sqrt(d_i d_j) / vol - lambda^t, so the
 * diameter is at most the smallest t with lambda^t < d_min / vol. It judges the pattern and never sees an
 * output: blind to zeros, the mean of V and random keys. */
#include "experiments/checks/check_table.h"

#include "experiments/evidence/rows.h"
#include "experiments/mathematics/block_graph.h"

#include <math.h>
#include <stdlib.h>

enum { BLOCKS_MAX = 512 }; /* for the eigenvalues: 512^3 operations */

static attn_status graph_judge(const evidence *e, int64_t blocks, outcome *worst) {
  int64_t heads = e->view->pattern->per_head ? e->problem->heads : 1;
  bool global = e->view->pattern->global, *edge = region_zeros(e->memory, blocks * blocks, sizeof *edge);
  int64_t *queue = region_zeros(e->memory, blocks, sizeof *queue),
          *depth = region_zeros(e->memory, blocks, sizeof *depth);
  attn_status status = region_status(e->memory, "for a block graph");
  for (int64_t head = 0; head < heads && !status; head++) {
    status = graph_build(e->view->pattern, e->problem, head, e->view->pattern->grain, blocks, edge);
    if (status) break;
    double bound = 2;
    if (!global) status = graph_spectral_bound(edge, blocks, &bound);
    if (status) break;
    const double found = graph_diameter(edge, blocks, queue, depth);
    outcome_worsen(worst, isfinite(bound)
                              ? (outcome){found, bound, NULL}
                              : (outcome){.why = "the block graph is not connected, or is bipartite"});
  }
  return status;
}

static attn_status graph_evaluate(const evidence *e, result_bound *bound) {
  const attn_problem *p = e->problem;
  const attn_pattern *pattern = e->view->pattern;
  if (pattern->grain < 1)
    return bound_not_applicable(bound, "the variant describes no blocks of its pattern");
  int64_t blocks = (p->n_kv - 1) / pattern->grain + 1;
  if (p->n_q != p->n_kv)
    bound_not_applicable(bound, "queries and keys are not the same positions");
  else if (blocks < 2)
    bound_not_applicable(bound, "there is one block");
  else if (blocks > BLOCKS_MAX)
    bound_uncertifiable(bound, "more than 512 blocks: eigenvalues would cost too much");
  else {
    outcome worst = OUTCOME_NONE;
    attn_status status = graph_judge(e, blocks, &worst);
    if (status) return status;
    outcome_to_verdict(&worst, bound);
  }
  return ATTN_OK;
}

const check check_sp5 = {
    .name = "SP-5",
    .of = &of_patterns,
    .kind = KIND_HARD,
    .statement =
        "the block graph's diameter is at most 2 with a global block, else at most what its spectrum allows",
    .source = "derived: powers of the normalised adjacency matrix",
    .formula =
        "With a global block the diameter is <= 2. Without: N = D^-1/2 A D^-1/2 of the symmetrised block "
        "graph, lambda the largest modulus of its eigenvalues but the first; (N^t)_ij >= sqrt(d_i d_j)/vol - "
        "lambda^t, so that the diameter is at most the least t with lambda^t < d_min/vol.",
    .assumes = "A pattern of blocks, n_q = n_kv, 2 to 512 blocks; the graph is connected and not bipartite "
               "(else uncertifiable). With a global block it says no more than that this block is one: SP-0 "
               "and SP-4 judge the others.",
    .nulls = CHECK_BLIND("the graph is the pattern's; no output is looked at"),
    .evaluate = graph_evaluate,
};
