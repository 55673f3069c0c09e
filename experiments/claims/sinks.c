/* sinks.c - claims about keys and logits that take what mass is left over: the first tokens (Xiao et al.
 * 2023, arXiv:2309.17453), and a separate logit in the softmax, as in gpt-oss. */
#include "experiments/claims/claim.h"

#include <math.h>
#include <stdlib.h>

#include "experiments/reference/exact.h"

/* ---- the first keys ------------------------------------------------------------------------------------ */

enum { N = 4096, WINDOW = 1024, SINKS = 4 };

/* Of the rows whose window has left the first keys: the mass on these, and on as many others beyond the
 * window. */
static int64_t beyond(const exact_rows *x, double *first, double *others) {
  int64_t rows = 0;
  for (int64_t r = 0; r < x->count; r++) {
    const int64_t i = x->rows[r].i, end = i - WINDOW + 1;
    const double *p = x->p + r * N;
    double sinks = 0, sum = 0;
    if (end < 2 * SINKS) continue;
    for (int64_t j = 0; j < end; j++) *(j < SINKS ? &sinks : &sum) += p[j];
    first[rows] = sinks;
    others[rows++] = sum * SINKS / (double)(end - SINKS);
  }
  return rows;
}

/* "Strong attention scores towards initial tokens": ten times what as many keys elsewhere beyond the window
 * have. That keeping them "will largely recover" a window: half of its error at least, at as many keys. */
static attn_status first_keys(const claim_options *options, claim_report *r) {
  static const char *const specs[] = {"streaming:sink=0,window=1024", "streaming:sink=4,window=1020"};
  const char *name = claim_tensors_name(options);
  data_qkv in = {0};
  exact_rows *x = NULL;
  double *first = NULL, *others = NULL, error[2];
  attn_status status = claim_tensors(options, N, &in);
  attn_problem p = data_qkv_problem(&in);
  p.causal = true;
  if (!status) status = exact_rows_compute(&p, in.q, in.k, in.v, NULL, options->seed, &x);
  if (!status) {
    first = malloc((size_t)x->count * sizeof *first);
    others = malloc((size_t)x->count * sizeof *others);
    if (!first || !others) status = attn_fail(ATTN_ENOMEM, "no memory for the mass of first keys");
  }
  for (int v = 0; v < 2 && !status; v++) status = claim_causal_error(&in, specs[v], &error[v]);
  if (!status) {
    const int rows = (int)beyond(x, first, others);
    const claim_figure *sinks = figure_mean(
        claim_add(r, CLAIM_UNSAID, "mass on the first 4 keys, beyond a window of 1024, %s Q, K, V", name),
        first, rows, "rows");
    const claim_figure *rest = figure_mean(
        claim_add(r, CLAIM_UNSAID, "mass on 4 other keys beyond it, on average"), others, rows, "rows");
    for (int v = 0; v < 2; v++)
      figure_exact(claim_add(r, CLAIM_UNSAID, "relative error, %s", specs[v]), error[v]);
    const bool strong = sinks->low > 10 * rest->high, recovers = error[1] <= error[0] / 2;
    r->word = strong && recovers ? CLAIM_REPRODUCED : CLAIM_MISSED;
    if (recovers && !strong) claim_holds_under(r, "no mass of theirs that stands out");
  }
  free(first);
  free(others);
  exact_rows_free(x);
  data_qkv_free(&in);
  return status;
}
const claim claim_streaming_sinks = {
    "streaming-sinks",
    "the first tokens draw strong attention, and keeping 4 of them largely recovers a window",
    "Xiao et al. 2023, abstract and section 3.1", first_keys};

/* ---- a separate logit -------------------------------------------------------------------------------- */

enum { ROWS = 256, WIDTH = 64, LOGITS = 5 };

static attn_status run(const data_qkv *in, const double *sink, double *o, double *lse) {
  attn_problem p = data_qkv_problem(in);
  attn_plan *plan = NULL;
  p.score.sink = sink;
  attn_status status = attn_plan_create(&plan, &p, "tiled", NULL);
  void *work = status ? NULL : malloc(attn_plan_work_size(plan) + 1);
  if (!status && !work) status = attn_fail(ATTN_ENOMEM, "no memory to execute tiled");
  if (!status) status = attn_plan_execute_lse(plan, in->q, in->k, in->v, NULL, o, lse, work);
  free(work);
  attn_plan_destroy(plan);
  return status;
}

static double largest(const double *x, int64_t count) {
  double most = 0;
  for (int64_t i = 0; i < count; i++) most = fmax(most, fabs(x[i]));
  return most;
}

static double longest(const double *x, int64_t rows, int64_t d) {
  double most = 0;
  for (int64_t i = 0; i < rows; i++) {
    double sum = 0;
    for (int64_t l = 0; l < d; l++) sum += x[i * d + l] * x[i * d + l];
    most = fmax(most, sqrt(sum));
  }
  return most;
}

/* Both runs have the same scores, bit by bit. They differ in the sums over n keys, at most n roundings each,
 * in the rounding of s - max, where max may be that of the sink, and in the last product. */
static double rounding(const data_qkv *in, double z) {
  const double score = longest(in->q, ROWS, WIDTH) * longest(in->k, ROWS, WIDTH) / sqrt(WIDTH);
  return (2 * ROWS + 32 + 4 * (score + fabs(z))) * 0x1p-53 * largest(in->v, ROWS * WIDTH);
}

/* o_sink = sum e^s v / (sum e^s + e^z) = o e^lse / (e^lse + e^z) = o sigmoid(lse - z): the same function. */
static attn_status sigmoid(const claim_options *options, claim_report *r) {
  static const double logits[LOGITS] = {-20, 0, 5, 20, 40};
  static double plain[ROWS * WIDTH], sunk[ROWS * WIDTH], lse[ROWS], unused[ROWS];
  const claim_run shape = {"gaussian", ROWS, ROWS, WIDTH, NULL};
  data_qkv in = {0};
  double worst = 0, clamped = 0;
  attn_status status = claim_inputs(&shape, claim_seed(options, 0), &in);
  if (!status) status = run(&in, NULL, plain, lse);
  for (int t = 0; t < LOGITS && !status; t++) {
    const double z = logits[t], bound = rounding(&in, z);
    if ((status = run(&in, &z, sunk, unused))) break;
    for (int64_t i = 0; i < ROWS; i++) {
      const double share = 1 / (1 + exp(z - lse[i])), log_share = -log1p(exp(z - lse[i]));
      clamped = fmax(clamped, fabs(fmax(log_share, -20) - log_share));
      for (int64_t l = 0; l < WIDTH; l++)
        worst = fmax(worst, fabs(share * plain[i * WIDTH + l] - sunk[i * WIDTH + l]) / bound);
    }
  }
  data_qkv_free(&in);
  if (status) return status;
  figure_exact(
      claim_add(r, CLAIM_UNSAID,
                "sigmoid(lse - z) o against the softmax with z, over fp64's rounding, z = -20 ... 40"),
      worst);
  figure_exact(claim_add(r, 0, "log of the clamped renormalisation over the sink's share, at z = 40"),
               clamped);
  if (worst <= 1) r->word = CLAIM_REFUTED;
  return ATTN_OK;
}
const claim claim_sink_sigmoid = {"sink-sigmoid",
                                  "sigmoid(lse - z) times the output is no sink of logit z; the share has to "
                                  "be exp(lse - logaddexp(lse, z)), clamped "
                                  "at e^-20",
                                  "pytorch/torchtitan, pull request 2211 (2026-01)", sigmoid};
