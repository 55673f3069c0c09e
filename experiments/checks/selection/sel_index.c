/* sel_index.c - TK-2: a ranking by an index (attn_index) ranks by what its tensors say, for all heads alike.
 *
 * Drawn tensors index_q, index_k and w, and the same turned by one reflection R = I - 2 x x^T / |x|^2: as
 * R^T R = I no score changes, and both selections are judged by the scores of the first, in fp64. Selections
 * may differ where scores are closer than their rounding: that of a sum of depth + heads + unit terms, whose
 * magnitudes sum to |w_h| |q_h| |k| at most by Cauchy-Schwarz, turned or not. */
#include "experiments/checks/selection/selection_picks.h"

#include "experiments/mathematics/vector.h"

#include <math.h>
#include <stdlib.h>

enum { ROWS = 8, MOST = 1 << 24 };                  /* numbers of index_q */
static const uint64_t purpose_index = 0x696e646578; /* "index" */

typedef struct indexed {
  const evidence *e;
  const attn_selector *x;
  double *q, *k, *w; /* [heads, n_q, width], [n_kv, width], [heads, n_q] */
  void *given[3];    /* the same in the problem's type, turned or not */
  attn_extra extra[3];
  int64_t rows[ROWS], counts[2][ROWS];
  attn_run *runs[2]; /* of two heads */
} indexed;

static attn_status draw(indexed *s) {
  const attn_problem *p = s->e->problem;
  const attn_index *x = &s->x->index;
  region *m = s->e->memory;
  const int64_t sizes[] = {x->heads * p->n_q * x->width, p->n_kv * x->width, x->heads * p->n_q},
                lines[] = {x->heads, 1, x->heads}, n[] = {p->n_q, p->n_kv, p->n_q};
  static const char *const names[] = {"index_q", "index_k", "index_w"};
  double *drawn[3];
  for (int t = 0; t < 3; t++) {
    drawn[t] = region_take(m, sizes[t], sizeof *drawn[t]);
    s->given[t] = region_take(m, sizes[t], attn_dtype_size(p->dtype));
    s->extra[t] = (attn_extra){names[t], p->dtype, s->given[t], 1, lines[t], n[t], t < 2 ? x->width : 1};
  }
  for (int head = 0; head < 2; head++)
    s->runs[head] = region_take(m, ROWS * s->x->max_runs, sizeof(attn_run));
  const attn_status status = region_status(m, "for the tensors of an index");
  for (int t = 0; t < 3 && !status; t++) {
    attn_rng rng;
    attn_rng_init(&rng, s->e->seed, purpose_index, (uint64_t)t);
    for (int64_t i = 0; i < sizes[t]; i++) {
      attn_set(s->given[t], i, p->dtype, 2 * attn_rng_uniform(&rng) - 1);
      drawn[t][i] = attn_get(s->given[t], i, p->dtype);
    }
  }
  s->q = drawn[0], s->k = drawn[1], s->w = drawn[2];
  return status;
}

/* Rows of `count` vectors, turned into what is given. */
static void turn(const indexed *s, int t, const double *x, int64_t count, const double *axis) {
  const int64_t d = s->x->index.width;
  const double square = vector_dot(axis, axis, d);
  for (int64_t i = 0; i < count; i++) {
    const double along = 2 * vector_dot(axis, x + i * d, d) / square;
    for (int64_t l = 0; l < d; l++)
      attn_set(s->given[t], i * d + l, s->e->problem->dtype, x[i * d + l] - along * axis[l]);
  }
}

/* The score of a unit by the definition, and how far a computed one may be off. mean: [width] */
static double score(const indexed *s, int64_t i, int64_t first, int64_t end, double *mean, double *error) {
  const attn_problem *p = s->e->problem;
  const attn_index *x = &s->x->index;
  const int64_t d = x->width, terms = d + x->heads + s->x->grain + 8;
  double sum = 0, size = 0, weights = 0, length = 0;
  for (int64_t l = 0; l < d; l++) mean[l] = 0;
  for (int64_t j = first; j < end; j++) {
    for (int64_t l = 0; l < d; l++) mean[l] += s->k[j * d + l] / (double)(end - first);
    length += vector_norm(s->k + j * d, d) / (double)(end - first);
  }
  for (int64_t h = 0; h < x->heads; h++) {
    const double *q = s->q + (h * p->n_q + i) * d, w = s->w[h * p->n_q + i];
    sum += w * fmax(vector_dot(q, mean, d), 0);
    size += fabs(w) * vector_norm(q, d) * length;
    weights += fabs(w);
  }
  *error = attn_rank_error(p, terms, size) + weights * attn_rank_error(p, terms, 0) +
           16 * (double)terms * 0x1p-53 * size;
  return sum;
}

/* Does the query, or another that shares its selection, see a key of first ... end - 1? */
static bool seen(const indexed *s, const attn_query *of, int64_t first, int64_t end) {
  const attn_problem *p = s->e->problem;
  const int64_t group = s->x->share == ATTN_SHARE_GROUP ? p->heads / p->kv_heads : 1,
                head = of->head / group * group;
  int64_t begin, last;
  attn_visible_keys(of->call, of->batch, of->head, of->i, &begin, &last);
  for (int64_t j = first > begin ? first : begin; j < end && j < last; j++)
    for (int64_t h = head; h < head + group; h++)
      if (!attn_score_hides(p, of->batch, h, of->i, j)) return true;
  return false;
}

static void judge_row(const indexed *s, const attn_query *of, int head, int64_t r, double *mean,
                      outcome *worst) {
  const attn_selector *x = s->x;
  const int64_t keys = attn_call_keys(of->call, of->batch);
  const attn_run *runs = s->runs[head] + r * x->max_runs;
  double least = (double)INFINITY, most = -(double)INFINITY, error, least_error = 0, most_error = 0;
  int64_t kept = 0, units = 0;
  for (int64_t first = 0; first < keys; first += x->grain) {
    const int64_t end = first + x->grain < keys ? first + x->grain : keys;
    if ((x->always && x->always(x->state, of, first / x->grain)) || !seen(s, of, first, end)) continue;
    const double own = score(s, of->i, first, end, mean, &error);
    units++;
    if (picks_have(runs, s->counts[head][r], end - 1) || picks_have(runs, s->counts[head][r], first)) {
      kept++;
      if (own + error < least + least_error) least = own, least_error = error;
    } else if (own - error > most - most_error) {
      most = own, most_error = error;
    }
  }
  const int64_t due = units < x->kept ? units : x->kept;
  outcome_worsen(worst, kept != due && !(x->mass > 0)
                            ? (outcome){.measured = fabs((double)(kept - due))}
                            : (outcome){.measured = kept && kept < units ? fmax(0, most - least) : 0,
                                        .value = least_error + most_error});
}

/* The first and the last head of a batch entry select the same where no bias hides keys from one. */
static bool alike(const indexed *s) {
  for (int64_t r = 0; r < ROWS; r++) {
    if (s->counts[0][r] != s->counts[1][r]) return false;
    for (int64_t a = r * s->x->max_runs; a < r * s->x->max_runs + s->counts[0][r]; a++)
      if (s->runs[0][a].first != s->runs[1][a].first || s->runs[0][a].count != s->runs[1][a].count)
        return false;
  }
  return true;
}

static attn_status judge(indexed *s, double *mean, outcome *worst) {
  const attn_problem *p = s->e->problem;
  attn_tensors in = evidence_tensors(s->e);
  attn_call call = evidence_call(s->e);
  int64_t count = 0;
  attn_status status = ATTN_OK;
  in.extra = call.extra = s->extra;
  in.extras = call.extras = 3;
  for (int64_t r = 0; r < ROWS; r++) {
    const int64_t i = (r + 1) * p->n_q / ROWS - 1;
    if (i >= 0 && (!count || s->rows[count - 1] < i)) s->rows[count++] = i;
  }
  for (int head = 0; head < 2 && !status; head++) {
    const attn_row_set set = {p->batch - 1, head ? p->heads - 1 : 0, count, s->rows};
    attn_picks picks = {.max_runs = s->x->max_runs, .runs = s->runs[head], .counts = s->counts[head]};
    status = attn_plan_select(s->e->plan, &in, &set, &picks);
    for (int64_t r = 0; r < count && !status; r++)
      judge_row(s, &(attn_query){.call = &call, .batch = set.batch, .head = set.head, .i = s->rows[r]}, head,
                r, mean, worst);
  }
  if (!status && !p->score.dense.at && !alike(s)) outcome_worsen(worst, (outcome){.measured = 1});
  return status;
}

static attn_status index_evaluate(const evidence *e, result_bound *bound) {
  const attn_problem *p = e->problem;
  indexed s = {.e = e, .x = e->view->selector};
  const attn_index *x = &s.x->index;
  outcome worst = OUTCOME_NONE;
  if ((double)x->heads * (double)x->width * (double)(p->n_q + p->n_kv) > MOST)
    return bound_not_applicable(bound, "its tensors would take more than 2^24 numbers");
  double *room = region_take(e->memory, 2 * x->width, sizeof *room);
  attn_status status = draw(&s);
  if (!status) status = region_status(e->memory, "for a reflection");
  if (!status) status = judge(&s, room, &worst);
  if (status) return status;
  attn_rng rng;
  attn_rng_init(&rng, e->seed, purpose_index, 3);
  for (int64_t l = 0; l < x->width; l++) room[x->width + l] = attn_rng_uniform(&rng) + 0x1p-10;
  turn(&s, 0, s.q, x->heads * p->n_q, room + x->width);
  turn(&s, 1, s.k, p->n_kv, room + x->width);
  status = judge(&s, room, &worst);
  return status ? status : outcome_to_verdict(&worst, bound);
}

const check check_tk2 = {
    .name = "TK-2",
    .of = &of_indexes,
    .kind = KIND_HARD,
    .statement = "a ranking by an index ranks by its tensors, alike for all heads, and as well when queries "
                 "and keys of the index are turned together",
    .source = "definition of the lightning indexer of DeepSeek-V3.2; derived: (R q).(R k) = q.k",
    .formula =
        "With drawn tensors I_iu = sum_h w_ih max(index_q_ih . m_u, 0), m_u the mean of index_k over the "
        "keys "
        "of unit u: min over kept (I + e) >= max over dropped (I - e) of 8 rows of the first and the last "
        "head, min(kept, units seen) kept; both heads select the same. Again with R index_q and R index_k, R "
        "= 1 - 2 x x^T / |x|^2, by the same I. e: the rounding of a sum of width + heads + unit terms whose "
        "magnitudes sum to sum_h |w_ih| |index_q_ih| |index_k|.",
    .assumes = "The selector names its index (attn_selector.index) and a law with units. The tensors are the "
               "check's own; what the run's own select is judged by SEL-2.",
    .cause = "weights of another index head, products without their sign, or an index for each head",
    .nulls = CHECK_BLIND("it judges what is selected, and looks at no output"),
    .evaluate = index_evaluate,
};
