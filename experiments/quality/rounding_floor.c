/* rounding_floor.c - EV-5: a replacement that is exact attention up to rounding (evaluation_checks.h).
 *
 * Three streams over a short window: the exact model, the replacement, and the dial, exact attention with a
 * small share of the mean of the values in the same heads. While a model answers in proportion, KL = s e^2, e
 * the error of the replaced attention over all layers. The dial's KL and error give s; FP-2 (FP-1
 * where sums have no steps) gives the largest e that rounding makes, of the replacement and of the exact
 * stream. s depends on the error's direction and on its layers, rounding comes nowhere near its bound, and
 * neither is proved to outweigh the other: the check is a model. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "experiments/evidence/rounding/declared.h"
#include "experiments/evidence/support_row.h"
#include "experiments/quality/evaluation_checks.h"

enum { LENGTH = 128, SELF = 0, DIAL, STREAMS };
static const double SHARE = 0x1p-6; /* of the dial */

typedef struct floor_pass {
  const data_llama_swap *swap;
  int64_t vocab, rows;
  double kl[STREAMS];    /* sums over rows */
  double error[STREAMS]; /* squares, over layers; SELF: what rounding allows */
  double *p;             /* [vocab] */
  row_verdict verdict;   /* of the first row whose rounding is not bounded */
} floor_pass;

/* The rounding of one row of a head: by how much the replacement and the exact stream may differ, squared. */
static double row_floor(floor_pass *f, const head_data *h, const attn_rounding *own, row_space *s) {
  const attn_problem *p = h->problem;
  const attn_rounding exact = rounding_textbook(p);
  double sum = 0;
  f->verdict = row_bound(h, own, false, NULL, s);
  if (f->verdict != ROW_OK) return 0;
  memcpy(s->kept, s->bound, (size_t)p->d_v * sizeof *s->kept);
  f->verdict = row_bound(h, &exact, false, NULL, s);
  for (int64_t l = 0; l < p->d_v; l++) sum += (s->kept[l] + s->bound[l]) * (s->kept[l] + s->bound[l]);
  return sum;
}

static attn_status add_head(floor_pass *f, const data_llama_attention *a, const attn_rounding *own,
                            int64_t head, row_space *s) {
  const attn_problem *p = attn_plan_problem(a->plan);
  const int64_t kv_head = head / (p->heads / p->kv_heads);
  head_data h;
  attn_status status = head_data_alloc(p, &h);
  if (status) return status;
  h.head = head;
  for (int64_t j = 0; j < p->n_kv; j++) {
    row_widen(a->k, ATTN_F32, (j * p->kv_heads + kv_head) * p->d_qk, p->d_qk, h.k + j * p->d_qk);
    row_widen(a->v, ATTN_F32, (j * p->kv_heads + kv_head) * p->d_v, p->d_v, h.v + j * p->d_v);
  }
  head_data_measure(&h);
  for (int64_t i = 0; f->verdict == ROW_OK && i < a->count; i++) {
    row_widen(a->q, ATTN_F32, ((a->first + i) * p->heads + head) * p->d_qk, p->d_qk, s->q);
    row_support(&h, NULL, i, s);
    f->error[SELF] += f->swap->mix * f->swap->mix * row_floor(f, &h, own, s);
  }
  head_data_free(&h);
  return ATTN_OK;
}

static attn_status take_attention(void *to, const data_llama_attention *a) {
  floor_pass *f = to;
  const attn_problem *p = attn_plan_problem(a->plan);
  const int64_t row = p->heads * p->d_v, end = (a->first + a->count) * row;
  attn_view view;
  row_space s;
  if (a->stream - 1 == DIAL) {
    for (int64_t x = a->first * row; x < end; x++)
      f->error[DIAL] += pow((double)a->output[x] - (double)a->exact[x], 2);
    return ATTN_OK;
  }
  attn_status status = attn_plan_inspect(a->plan, &view);
  if (!status) status = row_space_make(p, NULL, &s);
  if (status) return status;
  for (int64_t h = 0; !status && h < p->heads; h++)
    if (!f->swap->where || f->swap->where[a->layer * p->heads + h])
      status = add_head(f, a, &view.rounding, h, &s);
  row_space_free(&s);
  return status;
}

static attn_status take_logits(void *to, const data_llama_rows *r) {
  floor_pass *f = to;
  for (int64_t row = 0; row < r->rows; row++, f->rows++) {
    const float *z = r->logits[0] + row * f->vocab;
    exact_token exact;
    divergence x;
    divergence_exact(f->vocab, z, 0, f->p, &exact);
    for (int s = 0; s < STREAMS; s++) {
      divergence_of(f->vocab, z, f->p, &exact, r->logits[s + 1] + row * f->vocab, 0, &x);
      f->kl[s] += x.kl;
    }
  }
  return ATTN_OK;
}

static bool is_exact(const quality_checked *c, const data_llama_swap *swap) {
  const data_llama_config *m = data_llama_get_config(c->model);
  const attn_problem p = attn_problem_make(1, m->heads, c->windows->n, m->head_dim);
  attn_plan *plan = NULL;
  attn_view view;
  const bool exact = !swap->next && !(swap->scale > 0) &&
                     !attn_plan_create_spec(&plan, &p, swap->spec, NULL) && !attn_plan_inspect(plan, &view) &&
                     view.caps & ATTN_CAP_EXACT && view.rounding.unit > 0;
  attn_plan_destroy(plan);
  return exact;
}

attn_status quality_floor(const quality_checked *c, const data_llama_swap *swap, result_bound *cell) {
  const int64_t n = c->windows->n < LENGTH ? c->windows->n : LENGTH;
  data_llama_swap swaps[STREAMS] = {*swap, *swap};
  floor_pass f = {.swap = &swaps[SELF], .vocab = data_llama_get_config(c->model)->vocab, .verdict = ROW_OK};
  if (swap->decode > n / 2) swaps[SELF].decode = swaps[DIAL].decode = n / 2;
  swaps[DIAL].mix = SHARE;
  swaps[DIAL].scale = 0x1p-100; /* all scores are the same */
  if (!is_exact(c, swap)) return bound_not_applicable(cell, "the replacement is not exact attention");
  attn_status status = data_llama_try(c->model, n, &swaps[SELF]);
  if (status) return status == ATTN_ENOMEM ? status : bound_not_applicable(cell, attn_last_error());
  if (!(f.p = malloc((size_t)f.vocab * sizeof *f.p)))
    return attn_fail(ATTN_ENOMEM, "no memory for a distribution over %lld tokens", (long long)f.vocab);
  status = data_llama_run(c->model, &(data_llama_pass){.tokens = c->windows->tokens,
                                                       .windows = 1,
                                                       .n = n,
                                                       .swaps = swaps,
                                                       .count = STREAMS,
                                                       .to = &f,
                                                       .attention = take_attention,
                                                       .logits = take_logits});
  free(f.p);
  if (status) return status;
  if (f.verdict != ROW_OK) return bound_uncertifiable(cell, row_reason(f.verdict));
  if (!(f.error[DIAL] > 0)) return bound_not_applicable(cell, "nothing is replaced");
  return bound_model(cell, f.kl[SELF] / (double)f.rows,
                     f.kl[DIAL] / f.error[DIAL] * f.error[SELF] / (double)f.rows);
}
