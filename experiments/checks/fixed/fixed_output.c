/* fixed_output.c - PHI-1: the output of features that are not drawn is the quotient of sums that their kernel
 * defines.
 *
 * The law states the kernel of a pair from the definition of the features, and never maps anything: a column
 * that is missing, has another factor or stands at another position shows, and so does whatever the engine
 * does with the sums. It rejects zeros, the mean of V and random keys wherever they are not that output. */
#include "experiments/checks/check_table.h"

#include "experiments/evidence/probe.h"
#include "experiments/evidence/rows.h"

enum { ROWS = 8 };

static outcome judge_row(void *context, int64_t place, int64_t row, row_space *s) {
  const probe *p = context;
  const row_verdict verdict = probe_kernel(p, ATTN_F64, row, s);
  (void)place;
  return verdict == ROW_OK ? outcome_components(s->given, s->o, s->bound, p->problem.d_v)
                           : (outcome){.why = row_reason(verdict)};
}

static attn_status kernel_evaluate(const evidence *e, result_bound *bound) {
  probe *p;
  const attn_status status = probe_get(e, &p);
  return status ? status : probe_check(p, ROWS, judge_row, p, bound);
}

const check check_phi1 = {
    .name = "PHI-1",
    .of = &of_fixed_features,
    .kind = KIND_HARD,
    .statement = "the fp64 output is that of the kernel which the features stand for, evaluated pair by pair",
    .source = "definition of the features (the head of the variant's file names their papers)",
    .formula =
        "|o^_l - o_l| <= sum_j err_j (|v_jl| + |o_l|) / (|sum_j k_j| - sum_j err_j), o = sum_j k_j v_j / "
        "sum_j k_j, k_j = phi(q).phi(k_j) from its definition, err_j = gamma of 2 n + columns + 2 d + 64 "
        "roundings of what the law says that k_j's rounding is relative to. Component by component, over up "
        "to 8 rows.",
    .cause =
        "a factor or a column of the features is missing, positions of queries and keys are not counted from "
        "one origin, or the sums over keys are not those of the row",
    .assumes =
        "The denominator is not lost to cancellation and no feature exceeds the range; in fp64 on a probe. "
        "FP-6 compares the run itself with the same sums.",
    .nulls = CHECK_REJECTS_ALL("Gaussian inputs of std 1, d = 16, elu"),
    .evaluate = kernel_evaluate,
};
