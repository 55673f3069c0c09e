/* moments.h - a run against the exact second moments of its draws: of rows that random features estimate, and
 * of the product that a random projection estimates. */
#ifndef EXPERIMENTS_EVIDENCE_MOMENTS_H
#define EXPERIMENTS_EVIDENCE_MOMENTS_H

#include "experiments/evidence/cache.h"
#include "experiments/evidence/probe.h"
#include "experiments/mathematics/sketch.h"

/* Moments of up to MOMENT_ROWS rows of the probe, kept in e->cache for all variants of a block that draw such
 * features. EUNSUPPORTED: they cost more than `work` multiply-adds. Of the kinds of feature_law_is_favor. */
attn_status row_moments(const evidence *e, const probe *, const feature_law *, double work,
                        const moment_entry **);
static const double row_moments_work = 0x1.4p30; /* what a check may spend: n_kv up to 4096 at d = d_v = 64 */

/* The product of exact rows of the probe's (batch, head), under the law of the probe's projection. The
 * evidence and the probe must live as long. Release with sketch_free. */
attn_status sketch_of_run(const evidence *, const probe *, sketch *);
/* A E^T F B - A B, [rows, d_v], of the probe's own projection. */
attn_status projected_error(const probe *, const sketch *, double *error);

#endif
