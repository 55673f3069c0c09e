/* codes.c - claims about codes of keys and values: TurboQuant (Zandieh et al. 2025, arXiv:2504.19874), signs
 * of random products (Zandieh et al. 2024, QJL, arXiv:2406.03482), and codes by channel (Liu et al. 2024,
 * KIVI, arXiv:2402.02750). A call with one key a batch entry gives the value as it is stored, and of its
 * log-sum-exp the product of the query with the key as it is stored. */
#include "experiments/claims/estimators.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "attn_variant.h"

/* `rows` independent queries, keys and values of d normal elements. */
static attn_status single_keys(uint64_t seed, int64_t rows, int64_t d, data_qkv *in) {
  const claim_run run = {"gaussian", rows, rows, d, NULL};
  const attn_status status = claim_inputs(&run, seed, in);
  if (!status) {
    in->batch = rows;
    in->n_q = in->n_kv = 1;
  }
  return status;
}

/* -- TurboQuant: the error of a code -- */

enum { CODE_D = 128, CODE_ROWS = 32 };

/* The mean of |x - x^|^2 / |x|^2 over rows, for one draw of the rotation. */
static attn_status code_error(uint64_t seed, int bits, double *error) {
  char spec[64];
  data_qkv in = {0};
  estimate e = {NULL, NULL};
  attn_status status = single_keys(seed, CODE_ROWS, CODE_D, &in);
  snprintf(spec, sizeof spec, "turbo:bits=%d,of=v,seed=%llu", bits, (unsigned long long)seed);
  if (!status) status = estimate_make(&in, true, spec, &e);
  *error = 0;
  for (int64_t r = 0; !status && r < CODE_ROWS; r++) {
    double off = 0, size = 0;
    for (int64_t i = r * CODE_D; i < (r + 1) * CODE_D; i++) {
      const double x = attn_get(in.v, i, in.dtype);
      off += pow(x - attn_get(e.o, i, in.dtype), 2);
      size += x * x;
    }
    *error += off / size / CODE_ROWS;
  }
  estimate_free(&e);
  data_qkv_free(&in);
  return status;
}

/* What is printed beside the theorem for few bits; readers take it for bounds. */
static attn_status turbo_error(const claim_options *options, claim_report *r) {
  static const double said[] = {0.36, 0.117, 0.03, 0.009};
  bool above = false, below = true;
  for (int bits = 1; bits <= 4; bits++) {
    double error[CLAIM_SEEDS];
    for (int s = 0; s < CLAIM_SEEDS; s++) {
      const attn_status status = code_error(claim_seed(options, s), bits, &error[s]);
      if (status) return status;
    }
    const claim_figure *f =
        figure_mean(claim_add(r, said[bits - 1], "E |x - x^|^2 / |x|^2, %d bits, d = 128", bits), error,
                    CLAIM_SEEDS, "draws");
    if (f->low > said[bits - 1]) r->telling = r->count - 1;
    above = above || f->low > said[bits - 1];
    below = below && f->high <= said[bits - 1];
  }
  if (below)
    r->word = CLAIM_REPRODUCED;
  else if (above)
    claim_holds_under(r, "figures that are rounded, for an error, and not as bounds");
  return ATTN_OK;
}
const claim claim_turbo_error = {
    "turbo-error",
    "codes of 1, 2, 3 and 4 bits have a mean square error of at most 0.36, 0.117, 0.03 and 0.009",
    "Zandieh et al. 2025, Theorem 1, as others quote it; the theorem's own (sqrt(3) pi / 2) 4^-b is larger",
    turbo_error};

/* -- errors of two settings on the same tensors -- */

enum { N = 512, DRAWS = 8 };

/* Tensors of 32 bits, which codes by channel are of. */
static attn_status narrow(data_qkv *in) {
  void **const tensors[] = {&in->q, &in->k, &in->v};
  for (int t = 0; t < 3; t++) {
    const int64_t count = (int64_t)N * 64;
    float *to = malloc((size_t)count * sizeof *to);
    if (!to) return attn_fail(ATTN_ENOMEM, "no memory for tensors");
    attn_convert(*tensors[t], ATTN_F64, count, ATTN_F32, to);
    free(*tensors[t]);
    *tensors[t] = to;
  }
  in->dtype = ATTN_F32;
  return ATTN_OK;
}

/* log of one's error over the other's, causal; of the capture a single number. */
static attn_status compare(const claim_options *options, const char *data, const char *more, const char *less,
                           claim_report *r, const claim_figure **out) {
  double ratio[DRAWS];
  const int draws = options->captured ? 1 : DRAWS;
  for (int s = 0; s < draws; s++) {
    const claim_run run = {data, N, N, 64, NULL};
    data_qkv in = {0};
    double a = 0, b = 0;
    attn_status status =
        options->captured ? claim_tensors(options, N, &in) : claim_inputs(&run, claim_seed(options, s), &in);
    if (!status && !options->captured) status = narrow(&in);
    if (!status) status = claim_causal_error(&in, more, &a);
    if (!status) status = claim_causal_error(&in, less, &b);
    data_qkv_free(&in);
    if (status) return status;
    ratio[s] = log(a / b);
  }
  claim_figure *f = claim_add(r, CLAIM_UNSAID, "log of the error of %s over that of %s, %s", more, less,
                              options->captured ? claim_tensors_name(options) : data);
  *out = draws > 1 ? figure_mean(f, ratio, draws, "draws") : figure_exact(f, *ratio);
  return ATTN_OK;
}

/* A bit of each coordinate goes to the signs that take the bias away. */
static attn_status turbo_product(const claim_options *options, claim_report *r) {
  bool more = true;
  for (int bits = 2; bits <= 4; bits++) {
    char spec[64], without[64];
    const claim_figure *f = NULL;
    snprintf(spec, sizeof spec, "turbo:bits=%d,prod=yes,of=k", bits);
    snprintf(without, sizeof without, "turbo:bits=%d,of=k", bits);
    const attn_status status = compare(options, "gaussian", spec, without, r, &f);
    if (status) return status;
    more = more && f->low > 0;
  }
  if (more) r->word = CLAIM_DERIVED;
  return ATTN_OK;
}
const claim claim_turbo_product = {
    "turbo-product",
    "keys in codes whose products are unbiased lose more of the output than in codes of least square error",
    "ours; users of either report it", turbo_product};

/* Groups of keys share the step of a channel, elements of a token theirs. */
static attn_status axis(const claim_options *options, claim_report *r) {
  static const char *const data[] = {"gaussian", "outlier"};
  double level[2] = {0};
  const int count = options->captured ? 1 : 2;
  for (int c = 0; c < count; c++) {
    const claim_figure *f = NULL;
    const attn_status status =
        compare(options, data[c], "store:k=int2,v=int2", "kivi:bits=2,residual=32", r, &f);
    if (status) return status;
    level[c] = f->low;
  }
  const double least = log(1.1);
  if (level[0] > least && level[count - 1] > least)
    r->word = CLAIM_REPRODUCED;
  else if (level[count - 1] > least)
    claim_holds_under(r, "channels of keys that are larger than others");
  return ATTN_OK;
}
const claim claim_kivi_axis = {
    "kivi-axis", "in 2 bits keys by channel lose less than keys by token",
    "Liu et al. 2024 (KIVI), section 3.1, as recalled; that it is a tenth at least is ours", axis};

/* -- QJL: how often a product is far off -- */

enum { SIGNS = 100, QJL_D = 50, QJL_ROWS = 64, QJL_DRAWS = 160 };

/* The share of products with |q.k^ - q.k| > 0.3 |q| |k|, q at right angles to k, for one S. */
static attn_status far_products(uint64_t seed, double *share) {
  char spec[64];
  data_qkv in = {0};
  estimate e = {NULL, NULL};
  attn_status status = single_keys(seed, QJL_ROWS, QJL_D, &in);
  double *q = in.q, *k = in.k;
  for (int64_t r = 0; !status && r < QJL_ROWS; r++, q += QJL_D, k += QJL_D) {
    double product = 0, square = 0;
    for (int l = 0; l < QJL_D; l++) {
      product += q[l] * k[l];
      square += k[l] * k[l];
    }
    for (int l = 0; l < QJL_D; l++) q[l] -= product / square * k[l];
  }
  snprintf(spec, sizeof spec, "qjl:bits=%d,seed=%llu", SIGNS / QJL_D, (unsigned long long)seed);
  if (!status) status = estimate_make(&in, true, spec, &e);
  *share = 0;
  q = in.q;
  k = in.k;
  for (int64_t r = 0; !status && r < QJL_ROWS; r++, q += QJL_D, k += QJL_D) {
    double of_q = 0, of_k = 0;
    for (int l = 0; l < QJL_D; l++) {
      of_q += q[l] * q[l];
      of_k += k[l] * k[l];
    }
    *share += fabs(e.lse[r]) * sqrt(QJL_D) > 0.3 * sqrt(of_q * of_k) ? 1.0 / QJL_ROWS : 0;
  }
  estimate_free(&e);
  data_qkv_free(&in);
  return status;
}

/* m >= 4/3 (1 + eps) / eps^2 ln(2 / delta), solved for delta. */
static attn_status signs(const claim_options *options, claim_report *r) {
  double share[QJL_DRAWS];
  for (int s = 0; s < QJL_DRAWS; s++) {
    const attn_status status = far_products(claim_seed(options, s), &share[s]);
    if (status) return status;
  }
  const double eps = 0.3, said = 2 * exp(-0.75 * SIGNS * eps * eps / (1 + eps));
  const claim_figure *f = figure_mean(claim_add(r, said, "P(|q.k^ - q.k| > 0.3 |q| |k|), 100 signs, q.k = 0"),
                                      share, QJL_DRAWS, "draws of 64 products");
  r->word = f->high <= said ? CLAIM_REPRODUCED : CLAIM_MISSED;
  return ATTN_OK;
}
const claim claim_qjl_signs = {
    "qjl-signs",
    "4/3 (1 + eps) / eps^2 ln(2 / delta) signs give a product within eps |q| |k| with probability 1 - delta",
    "Zandieh et al. 2024, Lemma 3.5, as others quote it", signs};
