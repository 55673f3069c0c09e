/* skipped_blocks.c - in which order blocks of keys have to come, so that those of small weight can be passed
 * over. */
#include "experiments/claims/kept.h"

#include <stdio.h>

/* A block is passed over if its scores are below the maximum so far. Where the mass of a causal row lies at
 * its end, that maximum is found last in ascending order, and first from the diagonal backwards. Hardly ever:
 * at most one key in a hundred; often: one in ten or more. */
static attn_status order(const claim_options *options, claim_report *r) {
  static const char *const orders[] = {"forward", "diagonal"};
  const claim_figure *skipped[2] = {NULL, NULL};
  kept_subject s;
  attn_status status = kept_subject_make(options, &s);
  for (int v = 0; v < 2 && !status; v++) {
    char spec[80];
    double error;
    kept found = {.count = 0};
    snprintf(spec, sizeof spec, "tiled:block_q=64,block_k=64,skip=0.01,order=%s", orders[v]);
    status = kept_make(&s, spec, &found);
    for (int i = 0; i < found.count; i++) found.keys[i] = 1 - found.keys[i] / found.visible[i];
    if (!status) status = claim_causal_error(&s.in, spec, &error);
    if (!status) {
      skipped[v] = figure_mean(claim_add(r, CLAIM_UNSAID,
                                         "share of keys passed over, skip = 0.01, order=%s, %s Q, K, V",
                                         orders[v], claim_tensors_name(options)),
                               found.keys, found.count, "rows");
      figure_exact(claim_add(r, CLAIM_UNSAID, "... relative error"), error);
    }
    region_free(&found.memory);
  }
  kept_subject_free(&s);
  if (status) return status;
  r->telling = 2;
  if (skipped[0]->high <= 0.01 && skipped[1]->low >= 0.1) r->word = CLAIM_DERIVED;
  return ATTN_OK;
}
const claim claim_skip_order = {"skip-order",
                                "blocks of causal attention are hardly ever passed over in ascending order, "
                                "and often from the diagonal backwards",
                                "ours; the rule is BLASST's, arXiv:2512.12087, as recalled", order};
