/* cold.c - cold caches: what empties them, samples of one execution, rows of their own. */
#include "experiments/instruments/cold_cache.h"
#include "tests/support/sweep_fixture.h"
#include "experiments/instruments/timing.h"

TestSuite(cold, .init = command_enter, .fini = command_leave, .timeout = 120);

Test(cold, every_line_of_more_than_the_caches_is_written) {
  for (int threads = 1; threads <= 3; threads++) {
    evictor e = {0};
    cr_assert_eq(evict_open(&e, threads), ATTN_OK);
    for (int level = 1; level <= 3; level++) cr_expect(e.bytes >= 2 * (size_t)attn_cache_size(level).bytes);
    cr_expect(e.bytes / (size_t)threads >= 4 * (size_t)attn_cache_size(2).bytes);
    evict(&e);
    evict(&e);
    size_t written = 0;
    for (size_t i = 0; i < e.bytes; i += EVICT_LINE) written += e.buffer[i] == 2;
    cr_expect_eq(written * EVICT_LINE, e.bytes);
    evict_close(&e);
  }
}

/* What happened, in order: b(egin), p(repare), x (execute), e(nd). */
typedef struct diary {
  char text[256];
  size_t length;
} diary;

static void note(void *context, char what) {
  diary *d = context;
  if (d->length + 1 < sizeof d->text) d->text[d->length++] = what;
}

static attn_status begin(void *context) { return note(context, 'b'), ATTN_OK; }
static void prepare(void *context) { note(context, 'p'); }
static attn_status execute(void *context) { return note(context, 'x'), ATTN_OK; }
static void end(void *context) { note(context, 'e'); }

Test(cold, each_sample_is_one_prepared_execution) {
  diary d = {.length = 0};
  timing_subject subject = {
      .begin = begin, .prepare = prepare, .execute = execute, .end = end, .context = &d, .first = 1e-6};
  timing_options options = timing_defaults();
  options.samples = 5;
  options.target = 0;
  cr_assert_eq(timing_rounds(&subject, 1, &options, 5), ATTN_OK);
  cr_expect_str_eq(d.text, "bxpxpxebxpxpxebxpxe");
  cr_expect(subject.count == 5 && subject.iterations == 1);
  timing_subject_free(&subject);
}

Test(cold, rows_of_their_own) {
  /* One thread: where others use the machine, two wait for each other as long as a sample takes. */
  const result_set *set = sweep("-q --threads=1", 0,
                                "schema: 1\ngrid: {n: 32, heads: 2, d: 16}\nvariants: [full, tiled]\n"
                                "datasets: gaussian\ncache: [warm, cold]\nnulls: no\n"
                                "exclude: [{variant: full, cache: cold}]\n" TIMING);
  cr_expect_eq(set->count, 3);
  for (size_t i = 0; i < set->count; i++) expect_measured(&set->rows[i]);
  const result_row *warm = find_row(set, "cache=warm variant=tiled"),
                   *cold = find_row(set, "cache=cold variant=tiled");
  cr_expect_eq(find_row(set, "variant=full")->cache, CACHE_WARM);
  cr_expect(warm->cache == CACHE_WARM && warm->iters_per_sample > 1);
  cr_expect(cold->cache == CACHE_COLD && cold->iters_per_sample == 1);
  cr_expect_eq(warm->err_rel_fro, cold->err_rel_fro);
  cr_assert_eq(run("check x.h5"), 0);
  expect_says(result.out, "thread, ");
  expect_says(result.out, ", cold cache, ");
  /* An execution longer than max_time is its own verification, which had cold caches too. */
  cr_assert_eq(run("run x.yaml -o y.h5 -q --set cache=cold --set timing.max_time=0 --set timing.min_time=0"),
               0);
  result_set single = read_results("y.h5");
  cr_assert_eq(single.count, 1);
  const result_row *row = single.rows;
  cr_expect(row->n_samples == 1 && row->iters_per_sample == 1 && row->time_median > 0);
}
