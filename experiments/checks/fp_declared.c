/* fp_declared.c - FP-0: how much more rounding a variant declares than the textbook form has in the
 * tensors' precision.
 *
 * Every bound on rounding grows with what is declared, so that an error may hide behind a descriptor that
 * is generous. attn_plan_inspect refuses what no arithmetic does; the rest is reported here, and judged by
 * nothing. */
#include "experiments/checks/check_table.h"
#include "experiments/evidence/rounding/declared.h"

#include <stdio.h>
#include <string.h>

static attn_status declared_evaluate(const evidence *e, result_bound *bound) {
  const attn_rounding *r = &e->view->rounding, most = rounding_textbook(e->problem);
  const struct {
    const char *name;
    double declared, most;
  } members[] = {{"unit", r->unit, most.unit},
                 {"score", (double)r->score, (double)most.score},
                 {"value", (double)r->value, (double)most.value},
                 {"sum", (double)r->sum, (double)most.sum},
                 {"exp_error", r->exp_error, most.exp_error},
                 {"kappa_s", r->kappa_s, most.kappa_s},
                 {"kappa_d", r->kappa_d, most.kappa_d},
                 {"map", r->map, most.map},
                 {"operand", r->operand, most.operand},
                 {"weight", r->weight, most.weight},
                 {"underflow", r->underflow, most.underflow}};
  char text[192] = "";
  if (!(r->unit > 0)) return bound_not_applicable(bound, "the variant describes no rounding");
  bound_report(bound, rounding_size(r), rounding_size(&most));
  for (size_t m = 0; m < sizeof members / sizeof *members; m++) {
    const size_t used = strlen(text);
    if (members[m].declared <= members[m].most) continue;
    snprintf(text + used, sizeof text - used, "%s %s = %.3g (%.3g)", used ? "," : "", members[m].name,
             members[m].declared, members[m].most);
  }
  if (!*text) return bound_not_applicable(bound, "it declares no more rounding than the textbook form has");
  bound->verdict = VERDICT_UNCERTIFIABLE;
  bound_say(bound, "declares more rounding than the textbook's %s:%s", attn_numbers[e->problem->dtype].name,
            text);
  return ATTN_OK;
}

const check check_fp0 = {
    .name = "FP-0",
    .of = &of_softmax,
    .kind = KIND_REPORT,
    .statement = "the declared rounding is that of the textbook form in the tensors' precision; else by how "
                 "much it is looser",
    .source = "derived: the first-order terms of FP-1",
    .formula =
        "measured: (D_s + D_N + D_Z + kappa_s + kappa_d) u + exp_error + map + 3 operand + weight as "
        "declared; value: the same with the type's u, chains of 4 d + 64 and 4 n + 64, kappa 4, exp_error "
        "8 u, map 16 u under a soft cap, operand and weight 0. Members above the textbook's are named, "
        "with its own in brackets.",
    .assumes = "The variant describes its rounding. More is no fault: bf16 operands have it. Every bound on "
               "rounding is looser by it, and says less.",
    .nulls = CHECK_BLIND("it looks at the descriptor alone"),
    .evaluate = declared_evaluate,
};
