/* ready.h - the probe of a run with all that its rounding bounds need. */
#ifndef EXPERIMENTS_CHECKS_WEIGHTS_READY_H
#define EXPERIMENTS_CHECKS_WEIGHTS_READY_H

#include "experiments/evidence/probe.h"

/* The probe, ready for probe_bound. *out stays NULL, with a verdict, where no bound is known. */
attn_status probe_ready(const evidence *, result_bound *, probe **out);

#endif
