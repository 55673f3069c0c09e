/* remote.c - a variant as another build of the program executes it, as a meter: two builds side by side.
 *
 * The other program runs as `attnlab bench SPEC --n N --d D --threads T --serve`, with the options of a score
 * or mask, and fills its tensors with the same numbers. It answers every line on its standard input, the
 * seconds that a measurement may take, with a line: the seconds of one execution, in full, or "error: " and
 * the reason. Its first answer comes after its output was judged. The end of its input ends it. */
#include "experiments/bench/benchmark.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "data/support/file.h"
#include "experiments/instruments/dialogue.h"

enum { LINE = 512, TARGET_ARGUMENTS = 16 };
static const char refusal[] = "error: ";

/* ---- the client ---------------------------------------------------------------------------------------- */

static attn_status measure(bench_meter *m, double span, double *seconds) {
  char question[LINE], answer[LINE], *end;
  snprintf(question, sizeof question, "%.17g\n", span);
  if (dialogue_ask(m->state, question, (double)INFINITY, answer, sizeof answer))
    return attn_fail(ATTN_EFOREIGN, "%s: %s", m->name, attn_last_error());
  if (strncmp(answer, refusal, strlen(refusal)) == 0)
    return attn_fail(ATTN_EFOREIGN, "%s: %s", m->name, answer + strlen(refusal));
  const double value = strtod(answer, &end);
  if (end == answer || *end || !(value > 0) || value > 1e9)
    return attn_fail(ATTN_EFOREIGN, "%s: expected seconds, got '%s'", m->name, answer);
  *seconds = value;
  return ATTN_OK;
}

static void release(void *state) {
  dialogue_end(state);
  free(state);
}

/* The options of score and mask: each part of a score is one, without its dashes. */
static attn_status target_arguments(const bench_options *o, char *out[TARGET_ARGUMENTS]) {
  size_t count = 0;
  bool room = true;
  for (const char *at = o->score; *at && count < TARGET_ARGUMENTS - 2;) {
    const int length = (int)strcspn(at, ",");
    room = (out[count++] = text_format("--%.*s", length, at)) && room;
    at += length + (at[length] == ',');
  }
  if (*o->mask) room = (out[count] = text_format("--mask=%s", o->mask)) && room;
  return room ? ATTN_OK : attn_fail(ATTN_ENOMEM, "out of memory for arguments");
}

bench_meter *bench_remote(bench *b, const char *program, const char *spec, const bench_meter *like) {
  if (b->status || !like) return NULL;
  char name[sizeof like->name], n[24], d[24], threads[24];
  snprintf(name, sizeof name, "%s of %s", spec, program);
  snprintf(n, sizeof n, "%" PRId64, like->n);
  snprintf(d, sizeof d, "%" PRId64, like->d);
  snprintf(threads, sizeof threads, "%d", like->threads);
  const char *arguments[14 + TARGET_ARGUMENTS] = {program, "bench", spec, "--serve",   "--n",
                                                  n,       "--d",   d,    "--threads", threads};
  char *own[TARGET_ARGUMENTS] = {NULL};
  size_t count = 10;
  if (b->options.causal) arguments[count++] = "--causal";
  if (b->options.one_isa) arguments[count++] = "--isa", arguments[count++] = b->options.isa;
  b->status = target_arguments(&b->options, own);
  for (size_t i = 0; own[i]; i++) arguments[count++] = own[i];
  dialogue *r = calloc(1, sizeof *r);
  if (!r) b->status = attn_fail(ATTN_ENOMEM, "out of memory to measure %s", name);
  if (!b->status) b->status = dialogue_start((char **)(uintptr_t)arguments, r);
  for (size_t i = 0; i < TARGET_ARGUMENTS; i++) free(own[i]);
  bench_meter *m = b->status ? NULL : bench_meter_add(b, name);
  if (!m) {
    if (r && r->pid)
      release(r);
    else
      free(r);
    return NULL;
  }
  m->threads = like->threads;
  m->n = like->n;
  m->d = like->d;
  m->flops = like->flops;
  m->bytes = like->bytes;
  m->tokens = like->tokens;
  m->measure = measure;
  m->release = release;
  m->state = r;
  return m;
}

/* ---- the server ---------------------------------------------------------------------------------------- */

static attn_status answer_one(bench_meter *m, bool first, double span, double *seconds) {
  if (!(span > 0)) return attn_fail(ATTN_EINVAL, "expected the seconds of a measurement");
  if (first) m->clear(m);
  const attn_status status = m->measure(m, span, seconds);
  return !status && first ? m->verify(m) : status;
}

attn_status bench_serve(bench *b, FILE *in, FILE *out) {
  char question[LINE];
  if (b->options.others.count != 1 || b->options.n.count != 1 || b->options.d.count != 1)
    return attn_fail(ATTN_EINVAL, "expected one variant, one length and one head size to serve");
  const attn_problem p = bench_compare_problem(b, b->options.n.items[0], b->options.d.items[0]);
  bench_meter *m = bench_plan(b, b->options.others.items[0], &p, NULL, 0);
  attn_status status = b->status;
  if (!status && !m) status = attn_fail(ATTN_EUNSUPPORTED, "%s", attn_last_error());
  if (!status) status = bench_room(b);
  for (bool first = true; fgets(question, sizeof question, in); first = false) {
    double seconds = 0;
    attn_status now = status ? status : answer_one(m, first, strtod(question, NULL), &seconds);
    if (!now)
      fprintf(out, "%.17g\n", seconds);
    else
      fprintf(out, "%s%s\n", refusal, attn_last_error());
    if (fflush(out)) return attn_fail(ATTN_EFOREIGN, "cannot answer: %s", strerror(errno));
  }
  return status;
}
