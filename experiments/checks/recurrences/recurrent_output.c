/* recurrent_output.c - REC-1: the output of a variant that carries a state is that of its recursion, taken
 * key by key in fp64 by the law of its gates.
 *
 * What rounding does to a column s of the state enters at two places: a computed u_t is off by at most eta_t,
 * and the state that a chunk of C keys leaves by at most w.z, of magnitudes z that begin with |s| at a chunk
 * and go on as a . z + |k| |u|. From there on the recursion is linear, and the exact adjoint of a query says
 * how much arrives: r_i = c q_i, back over the keys r <- diag(a) (r - (k.r) b . k), without the delta rule
 * diag(a) r, so that
 *   |o^_i - o_i| <= g |c q_i|.z_i + sum_j |k_j.r_ij| eta_j + sum over chunks w |r| |z|.
 * A state that is turned is taken as the engine takes it: keys and queries turned back to the beginning of
 * their chunk, with magnitudes sqrt(2) times the length of each pair, and s on to its end.
 * A state that is rounded to 16 bits at the end of a chunk adds its u |s| to the last. Where outputs are
 * divided by max(|x|, 1), x is one more column, of values 1.
 * eta and g need magnitudes of what is computed: of e, a bound on the norm of the error of s by norms alone,
 * only g-fold parts enter. */
#include "experiments/checks/check_table.h"
#include "experiments/checks/recurrences/gates.h"
#include "experiments/evidence/rows.h"
#include "experiments/mathematics/vector.h"

#include <math.h>
#include <omp.h>
#include <stdlib.h>
#include <string.h>

static const double pass_budget = 0x1p26; /* multiply-adds */
enum { OPERATIONS = 4, SPENT_MOST = 800 };

/* A head, and what all columns of its state share, by key. */
typedef struct pass {
  const evidence *e;
  const attn_recurrence *rule;
  const head_data *head;
  const attn_number *type;
  int64_t width;                 /* of a decay */
  int64_t d_v;                   /* columns of S: the last of values 1, where outputs are divided by its */
  int64_t betas;                 /* numbers of b, w and angles, at least 1 */
  bool vectors;                  /* of b and w */
  double *k, *a, *beta;          /* [n, d_qk], turned back; [n, width], [n, betas] */
  double *mag;                   /* [n, d_qk]: at least |k|, however it is computed */
  double *angles;                /* [n, turns]: of the chunk up to this key */
  double *size, *asks, *most;    /* [n]: |k|, |b . k|, max|a| */
  double *rho;                   /* [n]: at least the norm of I - k (b . k)^T */
  double *read, *write;          /* [n]: g, w */
  double *eta, *rounded;         /* [n, d_v]; [chunks, d_v] w |z| */
  int64_t *first, *next;         /* [n] a row that is read at this key; [judged] another; -1: none */
  double *q, *q_mag;             /* [judged, d_qk], times the scale, turned back; as mag */
  double *o, *bound, *magnitude; /* [judged, d_v] */
  double *peak;                  /* [d_v] */
  double longest;                /* of the keys */
} pass;

static attn_status make_pass(const evidence *e, const head_data *head, pass *w) {
  const attn_problem *p = e->problem;
  const int64_t n = p->n_kv, d = p->d_qk, rows = e->exact->judged;
  *w = (pass){.e = e,
              .rule = e->view->recurrence,
              .head = head,
              .type = &attn_numbers[p->dtype],
              .width = e->view->recurrence->columns ? d : 1,
              .d_v = p->d_v + e->view->recurrence->normalised,
              .betas = recurrent_betas(e->view->recurrence),
              .vectors = recurrent_vectors(e->view->recurrence)};
  w->mag = region_take(e->memory, n * d, sizeof *w->mag);
  w->angles = region_take(e->memory, n * w->rule->turns, sizeof *w->angles);
  w->q_mag = region_take(e->memory, rows * d, sizeof *w->q_mag);
  w->k = region_take(e->memory, n * d, sizeof *w->k);
  w->a = region_take(e->memory, n * w->width, sizeof *w->a);
  w->beta = region_take(e->memory, n * w->betas, sizeof *w->beta);
  w->asks = region_take(e->memory, n, sizeof *w->asks);
  w->size = region_take(e->memory, n, sizeof *w->size);
  w->most = region_take(e->memory, n, sizeof *w->most);
  w->rho = region_take(e->memory, n, sizeof *w->rho);
  w->read = region_take(e->memory, n, sizeof *w->read);
  w->write = region_take(e->memory, n, sizeof *w->write);
  w->eta = region_take(e->memory, n * w->d_v, sizeof *w->eta);
  w->rounded = region_zeros(e->memory, (n / w->rule->chunk + 1) * w->d_v, sizeof *w->rounded);
  w->first = region_take(e->memory, n, sizeof *w->first);
  w->next = region_take(e->memory, rows, sizeof *w->next);
  w->q = region_take(e->memory, rows * d, sizeof *w->q);
  w->o = region_zeros(e->memory, rows * w->d_v, sizeof *w->o);
  w->bound = region_zeros(e->memory, rows * w->d_v, sizeof *w->bound);
  w->magnitude = region_zeros(e->memory, rows * w->d_v, sizeof *w->magnitude);
  w->peak = region_zeros(e->memory, w->d_v, sizeof *w->peak);
  return region_status(e->memory, "for the recursion of a head");
}

/* Roundings of a term in its chunk: its key, its decays, the sum over keys; a read is a sum over elements
 * too. */
static int64_t write_chain(const attn_recurrence *x) {
  return x->chunk + 12 + (x->key_scale ? 3 : 0) + (x->betas > 1 ? 3 : 0) + (x->columns ? 4 * x->chunk : 0) +
         (x->turns ? 24 : 0);
}
static int64_t read_chain(const attn_problem *p, const attn_recurrence *x) {
  return write_chain(x) + p->d_qk + (x->key_scale ? 3 : 0) + (x->query_scale ? 3 : 0) + (x->turns ? 12 : 0);
}

/* to [d] <- at least the magnitudes of a row, turned by whatever angles. */
static void take_magnitudes(const attn_recurrence *x, int64_t d, const double *row, double *to) {
  for (int64_t l = 0; l < d; l++) to[l] = fabs(row[l]);
  for (int64_t l = 0; l < x->turns; l++)
    to[l] = to[l + x->turns] = sqrt(2) * hypot(row[l], row[l + x->turns]);
}

/* Turns key t back to the beginning of its chunk. Returns the largest angle. */
static double turn_key(pass *w, int64_t t) {
  const int64_t d = w->e->problem->d_qk, turns = w->rule->turns;
  double *angles = w->angles + t * turns, *k = w->k + t * d, most = 0;
  for (int64_t l = 0; l < turns; l++) {
    const double own = w->beta[t * w->betas + recurrent_angles(w->rule) + l];
    angles[l] = own + (t % w->rule->chunk ? angles[l - turns] : 0);
    most = fmax(most, fabs(own));
  }
  recurrent_turn(w->rule, angles, -1, k);
  take_magnitudes(w->rule, d, k, w->mag + t * d);
  return most;
}

/* Gates and keys by the law. false: a decay is above 1. */
static bool take_gates(pass *w) {
  const attn_problem *p = w->e->problem;
  const double unit = w->type->unit, of_exponents = w->rule->columns ? unit : 0x1p-53;
  double spent = 0, turned = 0;
  for (int64_t t = 0; t < w->head->keys; t++) {
    recurrent_key key;
    if (!recurrent_key_make(w->e, w->head, t, w->k + t * p->d_qk, w->a + t * w->width, w->beta + t * w->betas,
                            &key))
      return false;
    spent = fmin(SPENT_MOST, (t % w->rule->chunk ? spent : 0) - key.least);
    turned = (t % w->rule->chunk ? turned : 0) + turn_key(w, t);
    const double exponents =
        2 * (of_exponents * (spent + 3 * (double)w->rule->chunk) + 0x1p-52 * (double)w->rule->chunk * turned);
    w->read[t] = gamma_of(read_chain(p, w->rule), unit) + exponents;
    w->write[t] = gamma_of(write_chain(w->rule), unit) + exponents;
    w->size[t] = key.size;
    w->longest = fmax(w->longest, key.size);
    w->asks[t] = key.asks;
    w->most[t] = key.most;
    w->rho[t] = key.norm;
  }
  return true;
}

/* Puts the judged rows of the head at the keys behind which they are read, turned back as these are. Returns
 * how many there are. */
static int64_t place_rows(pass *w) {
  const evidence *e = w->e;
  const attn_problem *p = e->problem;
  int64_t count = 0;
  for (int64_t t = 0; t < p->n_kv; t++) w->first[t] = -1;
  for (int64_t r = 0; r < e->exact->judged; r++) {
    const sample_row *row = &e->exact->rows[r];
    const int64_t position = attn_problem_position(p, row->i),
                  at = recurrent_last(w->rule, position, w->head->keys);
    double *q = w->q + r * p->d_qk;
    bool beyond = false; /* in a document without keys */
    for (int64_t t = at + 1; t <= position; t++) beyond = beyond || attn_document_begins(p, t);
    if (row->batch != w->head->batch || row->head != w->head->head || at < 0 || beyond) continue;
    row_widen(e->q, p->dtype, row_offset(p, row, p->d_qk), p->d_qk, q);
    const double scale = recurrent_query_scale(p, w->rule, q);
    for (int64_t l = 0; l < p->d_qk; l++) q[l] *= scale;
    recurrent_turn(w->rule, w->angles + at * w->rule->turns, -1, q);
    take_magnitudes(w->rule, p->d_qk, q, w->q_mag + r * p->d_qk);
    w->next[r] = w->first[at];
    w->first[at] = r;
    count++;
  }
  return count;
}

/* What products below the least normal number may lose of sums of these sizes. */
static double lost(const pass *w, double sizes) {
  return 4 * (double)read_chain(w->e->problem, w->rule) * w->type->normal * (1 + sizes);
}

typedef struct column {
  double *s, *z, e, reach; /* reach: sum of z, and of what was written, at most, in the chunk */
  double gone;             /* as e, of what underflow lost */
} column;

static void read_rows(const pass *w, int64_t t, int64_t l, const column *x) {
  const int64_t d = w->e->problem->d_qk, d_v = w->d_v;
  for (int64_t r = w->first[t]; r >= 0; r = w->next[r]) {
    const double *q = w->q + r * d, norm = vector_norm(q, d);
    double magnitude = norm * x->e;
    for (int64_t m = 0; m < d; m++) {
      w->o[r * d_v + l] += q[m] * x->s[m];
      magnitude += w->q_mag[r * d + m] * x->z[m];
    }
    w->magnitude[r * d_v + l] = magnitude;
    w->bound[r * d_v + l] = w->read[t] * magnitude + norm * x->gone + lost(w, (1 + norm) * (1 + x->reach));
  }
}

static double value_of(const pass *w, int64_t t, int64_t l) {
  const int64_t d_v = w->e->problem->d_v;
  return l < d_v ? w->head->v[t * d_v + l] : 1;
}

/* Key t enters column l. */
static void step(const pass *w, int64_t t, int64_t l, column *x) {
  const attn_problem *p = w->e->problem;
  const bool delta = w->rule->delta, vectors = w->vectors;
  const double *mag = w->mag + t * p->d_qk, *k = w->k + t * p->d_qk, *a = w->a + t * w->width,
               *b = w->beta + t * w->betas, v = b[vectors ? p->d_qk + l : 0] * value_of(w, t, l),
               size = w->size[t];
  double said = 0, reach = 0, most = 0;
  for (int64_t m = 0; m < p->d_qk; m++) {
    const double by = a[w->width > 1 ? m : 0], asked = delta ? b[vectors ? m : 0] * k[m] : 0;
    reach += x->z[m];
    x->s[m] *= by;
    x->z[m] *= by;
    said += asked * x->s[m];
    most += delta ? fabs(b[vectors ? m : 0]) * mag[m] * x->z[m] : 0;
  }
  x->e *= w->most[t];
  const double u = v - said, before = delta ? w->asks[t] * x->e : 0,
               eta = delta                                 ? w->read[t] * (fabs(v) + most + before)
                     : w->rule->betas && !w->rule->carries ? 3 * w->type->unit * fabs(u)
                                                           : 0,
               written = fabs(u) + eta + before;
  x->reach = fmax(x->reach, reach) + (1 + size) * written;
  x->gone = w->rho[t] * w->most[t] * x->gone + lost(w, (1 + size) * x->reach);
  x->e = w->rho[t] * x->e + size * eta + lost(w, (1 + size) * x->reach);
  w->eta[t * w->d_v + l] = eta;
  for (int64_t m = 0; m < p->d_qk; m++) {
    x->s[m] += k[m] * u;
    x->z[m] += mag[m] * written;
  }
}

/* Key t enters column l once more, as the key behind it says. */
static void carry(const pass *w, int64_t t, int64_t l, column *x) {
  const attn_problem *p = w->e->problem;
  const double by = w->beta[(t + 1) * w->betas + 1] * value_of(w, t, l);
  for (int64_t m = 0; m < p->d_qk; m++) {
    x->s[m] += by * w->k[t * p->d_qk + m];
    x->z[m] += fabs(by) * w->mag[t * p->d_qk + m];
  }
  x->reach += (1 + w->size[t]) * fabs(by);
}

/* What a state of this norm loses between chunks, in the type in which it is kept. */
static double stored_loss(const pass *w, double norm) {
  const attn_number *kept = &attn_numbers[w->rule->stored];
  return w->rule->rounds ? kept->unit * norm + sqrt((double)w->e->problem->d_qk) * kept->subnormal : 0;
}

static void pass_column(const pass *w, int64_t l, double *room) {
  const int64_t d = w->e->problem->d_qk, d_v = w->d_v;
  column x = {.s = room, .z = room + d};
  memset(room, 0, 2 * (size_t)d * sizeof *room);
  for (int64_t t = 0; t < w->head->keys; t++) {
    const bool begins = t % w->rule->chunk == 0;
    for (int64_t m = 0; m < d && begins; m++) x.z[m] = fabs(x.s[m]) + x.e;
    if (begins) x.reach = 0;
    step(w, t, l, &x);
    read_rows(w, t, l, &x);
    if (w->rule->carries && t + 1 < w->head->keys) carry(w, t, l, &x);
    if ((t + 1) % w->rule->chunk == 0) {
      x.e += w->rounded[t / w->rule->chunk * d_v + l] =
          w->write[t] * vector_norm(x.z, d) + stored_loss(w, vector_norm(x.s, d) + x.e);
      recurrent_turn(w->rule, w->angles + t * w->rule->turns, 1, x.s);
    }
    if (!(x.reach + x.e <= w->peak[l])) w->peak[l] = x.reach + x.e;
  }
}

/* Adds to the bound of a row, read at key t, what arrives of all that was off before. r: [d_qk]. */
static void add_arrivals(const pass *w, int64_t row, int64_t t, double *r) {
  const int64_t d = w->e->problem->d_qk, d_v = w->d_v, chunk = w->rule->chunk;
  const int64_t position = attn_problem_position(w->e->problem, w->e->exact->rows[row].i) - w->rule->before;
  double *bound = w->bound + row * d_v;
  memcpy(r, w->q + row * d, (size_t)d * sizeof *r);
  for (int64_t j = t; j >= 0; j--) {
    const double *k = w->k + j * d, *a = w->a + j * w->width, *eta = w->eta + j * d_v,
                 *rounded = w->rounded + j / chunk * d_v;
    const bool ended = j < position && (j + 1) % chunk == 0;
    if (j < t && (j + 1) % chunk == 0) recurrent_turn(w->rule, w->angles + j * w->rule->turns, -1, r);
    const double met = w->rule->betas || w->rule->delta ? vector_dot_fast(k, r, d) : 0,
                 size = ended ? vector_norm(r, d) : 0, *b = w->beta + j * w->betas;
    for (int64_t l = 0; l < d_v && met != 0; l++) bound[l] += fabs(met) * eta[l];
    for (int64_t l = 0; l < d_v && ended; l++) bound[l] += size * rounded[l];
    for (int64_t m = 0; m < d; m++)
      r[m] = a[w->width > 1 ? m : 0] * (r[m] - (w->rule->delta ? b[w->vectors ? m : 0] * met * k[m] : 0));
  }
}

/* Runs the columns, then the rows; *fits: every number is within the range of the type. */
static attn_status run_pass(const pass *w, bool *fits) {
  const attn_problem *p = w->e->problem;
  const int threads = omp_get_max_threads();
  double *rooms = region_take(w->e->memory, threads * 2 * p->d_qk, sizeof *rooms);
  const attn_status status = region_status(w->e->memory, "for a state");
  if (status) return status;
#pragma omp parallel num_threads(threads)
  {
    double *room = rooms + 2 * p->d_qk * omp_get_thread_num();
#pragma omp for schedule(static)
    for (int64_t l = 0; l < w->d_v; l++) pass_column(w, l, room);
#pragma omp for schedule(dynamic, 1)
    for (int64_t t = 0; t < w->head->keys; t++)
      for (int64_t r = w->first[t]; r >= 0; r = w->next[r]) add_arrivals(w, r, t, room);
  }
  *fits = true;
  const double largest =
      fmin(w->type->largest, w->rule->rounds ? attn_numbers[w->rule->stored].largest : (double)INFINITY);
  for (int64_t l = 0; l < w->d_v; l++) *fits = *fits && w->peak[l] < largest / 4;
  return ATTN_OK;
}

/* The quotients of a row by m = max(|x|, 1) and their bound: of o = y / m that of y, and |o| that of x, over
 * m less that of x, which is at least 1 as it is computed; three roundings, and what underflows. */
static void divide_row(const pass *w, int64_t r) {
  const int64_t d_v = w->d_v - 1;
  double *o = w->o + r * w->d_v, *bound = w->bound + r * w->d_v, *magnitude = w->magnitude + r * w->d_v;
  const double m = fmax(fabs(o[d_v]), 1), least = fmax(m - bound[d_v], 1);
  for (int64_t l = 0; l < d_v; l++) {
    o[l] /= m;
    magnitude[l] /= m;
    bound[l] = (bound[l] + fabs(o[l]) * bound[d_v]) / least;
    bound[l] += 4 * w->type->unit * (fabs(o[l]) + bound[l]) + w->type->normal;
  }
}

static outcome judge_row(const pass *w, int64_t r, double *given) {
  const attn_problem *p = w->e->problem;
  const double *bound = w->bound + r * w->d_v;
  double most = 0, far = vector_norm(w->q + r * p->d_qk, p->d_qk) * w->longest;
  for (int64_t l = 0; l < w->d_v; l++) far = fmax(far, w->magnitude[r * w->d_v + l]);
  if (!(far < w->type->largest / 4)) return (outcome){.why = row_reason(ROW_OVERFLOW)};
  if (w->rule->normalised) divide_row(w, r);
  row_widen(w->e->o, p->dtype, row_offset(p, &w->e->exact->rows[r], p->d_v), p->d_v, given);
  for (int64_t l = 0; l < p->d_v; l++) most = fmax(most, w->magnitude[r * w->d_v + l]);
  return outcome_rounded(given, w->o + r * w->d_v, bound, p->d_v, most);
}

static attn_status judge_head(const evidence *e, int64_t line, outcome *worst) {
  const attn_problem *p = e->problem;
  double *given = region_take(e->memory, p->d_v, sizeof *given);
  head_data head;
  pass w;
  bool fits = false;
  attn_status status = head_data_borrow(e, line / p->heads, line % p->heads, &head);
  if (status) return status;
  if (!head.finite) {
    outcome_worsen(worst, (outcome){.why = row_reason(ROW_INFINITE)});
    goto out;
  }
  status = make_pass(e, &head, &w);
  if (status) goto out;
  if (!take_gates(&w)) {
    outcome_worsen(worst, (outcome){.why = "the law states a decay above 1"});
    goto out;
  }
  if (!place_rows(&w)) goto out;
  status = run_pass(&w, &fits);
  if (status) goto out;
  if (!fits) outcome_worsen(worst, (outcome){.why = row_reason(ROW_OVERFLOW)});
  for (int64_t t = 0; fits && t < head.keys; t++)
    for (int64_t r = w.first[t]; r >= 0; r = w.next[r]) outcome_worsen(worst, judge_row(&w, r, given));
out:
  head_data_return(e, &head);
  return status;
}

/* As many heads as the budget allows, others for another seed of the evidence. */
static attn_status judge(const evidence *e, result_bound *bound) {
  const attn_problem *p = e->problem;
  const int64_t lines = p->batch * p->heads;
  const double cost = OPERATIONS * (double)(p->n_kv * p->d_qk) * (double)p->d_v;
  const int64_t count = (int64_t)fmin((double)lines, fmax(1, pass_budget / fmax(1, cost)));
  outcome worst = OUTCOME_NONE;
  if (!e->view->recurrence->law) return stated_demand(e, bound);
  attn_status status = ATTN_OK;
  for (int64_t i = 0; i < count && !status; i++)
    status = judge_head(e, (int64_t)((e->seed + (uint64_t)i) % (uint64_t)lines), &worst);
  return status ? status : outcome_to_verdict(&worst, bound);
}

const check check_rec1 = {
    .name = "REC-1",
    .of = &of_recurrences,
    .kind = KIND_HARD,
    .statement = "the output is that of the recurrence, taken key by key",
    .source = "Sun et al. 2023, arXiv:2307.08621; Yang et al. 2024, arXiv:2406.06484; derived",
    .formula =
        "S' = diag(a_t) R_t S_t-1, u_t = w_t . v_t or w_t . v_t - S'^T (b_t . k_t), S_t = S' + k_t u_t^T, "
        "o_t = c "
        "S_t^T q_t by the law. For a column s of S: |o^_i - o_i| <= g |c q_i|.z_i + sum_j |k_j.r_ij| "
        "eta_j + sum "
        "over chunks w |r| |z|, and what underflow may lose. z begins a chunk of C keys with |s| and "
        "goes on as "
        "a . z + |k| |u|; eta = 3 u |w v|, under the delta rule g (|w v| + |b . k|.z); r is the "
        "adjoint, c q at "
        "the query, diag(a) (r - (k.r) b . k) or diag(a) r from key to key back. g = gamma(d + C + "
        "21) + x, w = "
        "gamma(C + 18) + x, 4 C more where decays are vectors; x = 2 u' (sum |ln a| + 3 C); gamma(k) "
        "= k u / (1 "
        "- k u); 24 more in w and 36 in g, and 2^-51 C times the sum of angles, where the state is turned; a "
        "state "
        "kept in 16 bits adds their u |s| to w |z|. Outputs that are divided by m = max(|x|, 1), x the "
        "column of values 1: (the "
        "bound of y + |y / m| that of x) / m, and 4 u |y / m| more.",
    .cause =
        "a decay is applied before or after its key, that of another head, where there is no key or from "
        "one sequence to the next, a value is written without its beta, or the state is that of another "
        "chunk",
    .assumes = "Finite inputs, decays of at most 1, and sums within the range of the type; of some heads, "
               "where all would take too long. Where b |k|^2 > 2 the state grows, and the bound.",
    .nulls = CHECK_REJECTS_ALL("causal, Gaussian inputs of std 1, retention"),
    .evaluate = judge,
};
