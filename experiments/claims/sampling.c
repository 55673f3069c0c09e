/* sampling.c - claims about keys that are drawn: from the softmax itself, with a budget that a sample sets
 * (vAttention), by hashing (MagicPIG). */
#include "experiments/claims/claim.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "attn_variant.h"
#include "experiments/reference/exact.h"

/* ---- the softmax as the distribution that keys are drawn from ---------------------------------------- */

enum { BUDGETS = 3, MOST_SAMPLED = 256 };
static const int64_t budgets[BUDGETS] = {16, 64, MOST_SAMPLED};

typedef struct weighed {
  double weight;
  int64_t key;
} weighed;

static int heavier(const void *a_, const void *b_) {
  const weighed *a = a_, *b = b_;
  return a->weight < b->weight ? 1 : a->weight > b->weight ? -1 : (a->key > b->key) - (a->key < b->key);
}

/* Of a row with output o, m keys drawn with replacement by their weights p err by sqrt(sum_j p_j |v_j - o|^2
 * / m) in the root mean square, exactly; its m heaviest keys by |o_S - o|. The logarithm of the first over
 * the second, for each m. */
static void compare_row(const data_qkv *in, const sample_row *row, const double *p, const double *o,
                        int64_t keys, weighed *order, double *ratio) {
  const attn_problem problem = data_qkv_problem(in);
  const int64_t d = in->d_v, kv_head = row->head / (in->heads / in->kv_heads);
  const void *v = attn_at(in->v, (row->batch * in->kv_heads + kv_head) * in->n_kv * d, problem.dtype);
  double scatter = 0, mass = 0, *sum = calloc((size_t)d, sizeof *sum);
  int64_t taken = 0;
  for (int64_t j = 0; sum && j < keys; j++) {
    double distance = 0;
    for (int64_t l = 0; l < d; l++) distance += pow(attn_get(v, j * d + l, problem.dtype) - o[l], 2);
    scatter += p[j] * distance;
    order[j] = (weighed){p[j], j};
  }
  qsort(order, (size_t)keys, sizeof *order, heavier);
  for (int b = 0; sum && b < BUDGETS; b++) {
    double off = 0;
    for (; taken < budgets[b]; taken++) {
      const weighed *x = &order[taken];
      mass += x->weight;
      for (int64_t l = 0; l < d; l++) sum[l] += x->weight * attn_get(v, x->key * d + l, problem.dtype);
    }
    for (int64_t l = 0; l < d; l++) off += pow(sum[l] / mass - o[l], 2);
    ratio[b] = log(sqrt(scatter / (double)budgets[b]) / sqrt(off));
  }
  free(sum);
}

/* Of rows that see at least twice as many keys as are drawn. */
static attn_status compare_rows(const data_qkv *in, bool causal, const char *what, uint64_t seed,
                                claim_report *r, const claim_figure **figures) {
  attn_problem p = data_qkv_problem(in);
  exact_rows *x = NULL;
  double *ratios = NULL, own[BUDGETS];
  weighed *order = NULL;
  int count = 0;
  p.causal = causal;
  attn_status status = exact_rows_compute(&p, in->q, in->k, in->v, NULL, seed, &x);
  if (status) return status;
  ratios = calloc((size_t)(x->count * BUDGETS), sizeof *ratios);
  order = calloc((size_t)p.n_kv, sizeof *order);
  if (!ratios || !order) status = attn_fail(ATTN_ENOMEM, "no memory for the rows of a claim");
  for (int64_t i = 0; i < x->count && !status; i++) {
    if (x->keys[i] < 2 * MOST_SAMPLED) continue;
    compare_row(in, &x->rows[i], x->p + i * p.n_kv, x->o + i * p.d_v, x->keys[i], order, own);
    for (int b = 0; b < BUDGETS; b++) ratios[b * x->count + count] = own[b];
    count++;
  }
  for (int b = 0; b < BUDGETS && !status; b++)
    figures[b] =
        figure_mean(claim_add(r, CLAIM_UNSAID, "log of the error of %lld draws over that of the top keys, %s",
                              (long long)budgets[b], what),
                    ratios + b * x->count, count, "rows");
  free(ratios);
  free(order);
  exact_rows_free(x);
  return status;
}

/* As said where draws err less than the top keys at every budget. Of a flat softmax the top keys of values
 * that have nothing to do with the keys are as good as any; of values that go with them they are
 * one-sided. */
static attn_status oracle_sampling(const claim_options *options, claim_report *r) {
  const claim_run flat = {"gaussian:std_q=0.5,std_k=0.5", 256, 2048, 64, NULL};
  enum { CASES = 3 };
  const claim_figure *found[CASES][BUDGETS] = {{NULL}};
  bool below[CASES] = {true, true, true};
  data_qkv in = {0};
  attn_status status = claim_inputs(&flat, claim_seed(options, 0), &in);
  if (!status) status = compare_rows(&in, false, "flat softmax, V apart from K", options->seed, r, found[0]);
  if (!status) memcpy(in.v, in.k, (size_t)(in.n_kv * in.d_v) * sizeof(double));
  if (!status) status = compare_rows(&in, false, "flat softmax, V = K", options->seed, r, found[1]);
  data_qkv_free(&in);
  if (!status) status = claim_tensors(options, 1024, &in);
  if (!status) status = compare_rows(&in, true, claim_tensors_name(options), options->seed, r, found[2]);
  data_qkv_free(&in);
  if (status) return status;
  for (int s = 0; s < CASES; s++)
    for (int b = 0; b < BUDGETS; b++) below[s] = below[s] && found[s][b]->high < 0;
  r->telling = r->count - 2;
  if (below[0] && below[1] && below[2])
    r->word = CLAIM_REPRODUCED;
  else if (below[1])
    claim_holds_under(r, "a flat softmax over values that go with the keys");
  return ATTN_OK;
}
const claim claim_oracle_sampling = {
    "oracle-sampling-vs-topk", "keys drawn from the softmax itself err less than as many of its largest keys",
    "Chen et al. 2024 (arXiv:2410.16179), as recalled", oracle_sampling};
