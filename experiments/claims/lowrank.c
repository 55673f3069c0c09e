/* lowrank.c - claims about methods that take weights for matrices of low rank: what is between
 * Nystroemformer's landmarks, and how low the rank is. */
#include "experiments/claims/claim.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "attn_variant.h"
#include "experiments/mathematics/spectrum.h"

enum { N = 512, RANK = 64, SAMPLES = 64, DRAWN = 5 };

/* Heads of the capture, or draws. */
static int draws_of(const claim_options *o) { return o->captured ? 1 : DRAWN; }

static attn_status tensors(const claim_options *o, int draw, data_qkv *in) {
  claim_options own = *o;
  own.seed = claim_seed(o, draw);
  return claim_tensors(&own, N, in);
}

/* -- Nystroemformer -- */

/* |o - exact| / |exact| of each head, appended to errors. */
static attn_status head_errors(const data_qkv *in, const char *spec, const void *exact, double *errors,
                               int *count) {
  const attn_problem p = data_qkv_problem(in);
  const int64_t size = p.n_q * p.d_v;
  void *o = NULL;
  const attn_status status = claim_output(in, spec, &o);
  for (int64_t h = 0; !status && h < p.heads && *count < SAMPLES; h++) {
    double off = 0, all = 0;
    for (int64_t i = h * size; i < (h + 1) * size; i++) {
      const double want = attn_get(exact, i, p.dtype), diff = attn_get(o, i, p.dtype) - want;
      off += diff * diff;
      all += want * want;
    }
    errors[(*count)++] = sqrt(off / all);
  }
  free(o);
  return status;
}

/* Z_t is published in the place of A^+, to which it converges. Its six steps err less than the pseudo-inverse
 * itself on a head where the log of the errors' ratio is above 0; what is derived, on every head or draw. */
static attn_status pseudo_inverse(const claim_options *options, claim_report *r) {
  static const int steps[] = {2, 4, 6, 10, 15, 20, 30, 0};
  enum { STEPS = sizeof steps / sizeof *steps, SIX = 2, INVERSE = STEPS - 1 };
  double errors[STEPS][SAMPLES], ratio[SAMPLES];
  int count[STEPS] = {0};
  for (int draw = 0; draw < draws_of(options); draw++) {
    data_qkv in = {0};
    void *exact = NULL;
    attn_status status = tensors(options, draw, &in);
    if (!status) status = claim_output(&in, "full", &exact);
    for (int s = 0; s < STEPS && !status; s++) {
      char spec[64] = "nystrom:middle=pinv";
      if (steps[s]) snprintf(spec, sizeof spec, "nystrom:iterations=%d", steps[s]);
      status = head_errors(&in, spec, exact, errors[s], &count[s]);
    }
    free(exact);
    data_qkv_free(&in);
    if (status) return status;
  }
  const char *unit = options->captured ? "heads" : "draws", *name = claim_tensors_name(options);
  for (int s = 0; s < STEPS; s++) {
    claim_figure *f =
        s == INVERSE
            ? claim_add(r, CLAIM_UNSAID, "error with the pseudo-inverse, %s, n = 512", name)
            : claim_add(r, CLAIM_UNSAID, "error after %d steps, 64 landmarks, %s, n = 512", steps[s], name);
    figure_mean(f, errors[s], count[s], unit);
  }
  for (int i = 0; i < count[SIX]; i++) ratio[i] = log(errors[INVERSE][i] / errors[SIX][i]);
  r->telling = r->count;
  figure_mean(claim_add(r, CLAIM_UNSAID, "log of the pseudo-inverse's error over that of 6 steps, %s", name),
              ratio, count[SIX], unit);
  int worse = 0;
  for (int i = 0; i < count[SIX]; i++) worse += ratio[i] > 0;
  if (worse == count[SIX])
    r->word = CLAIM_DERIVED;
  else if (worse)
    claim_holds_under(r, "the choice of the head: %d of %d", worse, count[SIX]);
  return ATTN_OK;
}
const claim claim_nystrom_pinv = {
    "nystrom-pinv",
    "six steps of the iteration err less than the pseudo-inverse that they stand for: that they stop early "
    "regularises",
    "derived; Xiong et al. 2021, eq. 13 and 14, has the steps approximate the pseudo-inverse, as recalled",
    pseudo_inverse};

/* -- Linformer -- */

/* Of a head of the problem: |P - P_64|_F / |P|_F of its exact weights. */
static attn_status tail_of(const attn_problem *p, const data_qkv *in, int64_t head, double *tail) {
  double *weights = malloc((size_t)(N * N + 2 * N) * sizeof *weights), size = 0, left = 0;
  const double **rows = malloc((size_t)N * sizeof *rows);
  attn_status status = weights && rows ? ATTN_OK : attn_fail(ATTN_ENOMEM, "no memory for weights");
  double *squares = weights + N * N, *scratch = squares + N;
  for (int64_t i = 0; i < N && !status; i++) {
    rows[i] = weights + i * N;
    if (attn_reference_row(p, NULL, in->q, in->k, in->v, NULL, 0, head, i, weights + i * N, NULL, scratch) <
        0)
      status = attn_fail(ATTN_ENOMEM, "no memory for a row of weights");
  }
  if (!status) status = spectrum_squares(rows, N, N, squares);
  for (int64_t j = 0; j < N && !status; j++) {
    size += squares[j];
    if (j >= RANK) left += squares[j];
  }
  *tail = sqrt(left / size);
  free(rows);
  free(weights);
  return status;
}

/* "Self-attention is low rank": by the rule it is on a head whose 64 largest singular values leave less than
 * a tenth of its norm. As the source says if all heads are so. */
static attn_status rank(const claim_options *options, claim_report *r) {
  double tails[SAMPLES], least = (double)INFINITY, most = 0;
  int count = 0, low = 0;
  for (int draw = 0; draw < draws_of(options); draw++) {
    data_qkv in = {0};
    attn_status status = tensors(options, draw, &in);
    attn_problem p = data_qkv_problem(&in);
    p.causal = options->captured != NULL;
    if (!status) status = attn_problem_resolve(&p);
    for (int64_t h = 0; !status && h < p.heads && count < SAMPLES; h++)
      status = tail_of(&p, &in, h, &tails[count++]);
    data_qkv_free(&in);
    if (status) return status;
  }
  for (int i = 0; i < count; i++) {
    low += tails[i] < 0.1;
    least = fmin(least, tails[i]);
    most = fmax(most, tails[i]);
  }
  const char *name = claim_tensors_name(options);
  figure_mean(claim_add(r, CLAIM_UNSAID, "|P - P_64| / |P|, Frobenius norms, %s, n = 512", name), tails,
              count, options->captured ? "heads" : "draws");
  figure_exact(claim_add(r, CLAIM_UNSAID, "... the least"), least);
  figure_exact(claim_add(r, CLAIM_UNSAID, "... the largest"), most);
  if (low == count)
    r->word = CLAIM_REPRODUCED;
  else if (low)
    claim_holds_under(r, "the choice of the head: %d of %d", low, count);
  return ATTN_OK;
}
const claim claim_linformer_rank = {
    "linformer-rank",
    "the weights of attention are of low rank: 64 of 512 singular values leave less than a tenth of their "
    "norm",
    "Wang et al. 2020, section 3 and Theorem 1 (self-attention is low rank), as recalled; the tenth is ours",
    rank};
