/* grid.c - from a configuration to blocks, runs and keys; shards. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "attn_variant.h"
#include "experiments/runner/job.h"
#include "experiments/runner/settled_properties.h"
#include "experiments/evidence/null.h"
#include "tests/support/basics/kept.h"
#include "tests/support/basics/text.h"

static config *parse(const char *text) {
  config *c = NULL;
  cr_assert_eq(config_parse("x.yaml", text, strlen(text), NULL, 0, &c), ATTN_OK, "%s", attn_last_error());
  return c;
}

static void release_grid(void *of) { grid_free(of); }

/* Kept. */
static grid *expand(const char *text) {
  config *c = parse(text);
  grid g = {0};
  cr_assert_eq(grid_expand(c, "scalar", 3, &g), ATTN_OK, "%s", attn_last_error());
  config_free(c);
  return keep_copy(&g, sizeof g, release_grid);
}

static bool has_key(const grid *g, const char *key) {
  for (size_t b = 0; b < g->count; b++)
    for (size_t r = 0; r < g->blocks[b].count; r++)
      if (strcmp(g->blocks[b].runs[r].key, key) == 0) return true;
  return false;
}

static size_t count_runs(const grid *g, const char *part) {
  size_t count = 0;
  for (size_t b = 0; b < g->count; b++)
    for (size_t r = 0; r < g->blocks[b].count; r++) count += strstr(g->blocks[b].runs[r].key, part) != NULL;
  return count;
}

static void expect_distinct_keys(const grid *g) {
  for (size_t b = 0; b < g->count; b++)
    for (size_t r = 0; r < g->blocks[b].count; r++)
      for (size_t s = 0; s < r; s++) cr_expect_str_neq(g->blocks[b].runs[r].key, g->blocks[b].runs[s].key);
}

/* Up to the length asked for, of the first seed of the data and of the draws, never of a null baseline; and
 * the job has the flag. */
Test(grid, maps_of_the_first_seed) {
  grid *g = expand("schema: 1\ngrid: {n: [64, 128, 256], d: 8, seed: [3, 4], data_seed: [1, 2]}\nmaps: 128\n"
                   "variants: [full, performer, \"linformer:k=8,seed=9\"]\ndatasets: [gaussian]\n");
  size_t maps = 0;
  for (size_t b = 0; b < g->count; b++) {
    job j = {.block = g->blocks[b]}, back;
    json_t *json = job_to_json(&j);
    cr_assert_eq(job_from_json(json, &back), ATTN_OK);
    for (size_t r = 0; r < g->blocks[b].count; r++) {
      const grid_run *run = &g->blocks[b].runs[r];
      cr_expect_eq(run->map,
                   g->blocks[b].n <= 128 && g->blocks[b].data_seed == 1 && !null_find(run->variant) &&
                       (run->seed == 3 || strcmp(run->variant, "performer") != 0),
                   "%s", run->key);
      cr_expect_eq(run->map, back.block.runs[r].map);
      cr_expect(*run->variant == 'p' || *run->variant == 'l' || run->seed == g->blocks[b].data_seed);
      maps += run->map;
    }
    grid_block_free(&back.block);
    json_decref(json);
  }
  cr_expect_eq(maps, 6);
}

/* Of the settings that earlier jobs had runs of, and of no others: whether a property is violated. */
Test(grid, jobs_tell_what_is_settled) {
  grid *g = expand("schema: 1\ngrid: {n: 64, d: 8}\nvariants: [full, tiled, longformer]\n"
                   "datasets: gaussian\nnulls: no\n");
  result_properties *found[3];
  properties_found all = {.count = 0};
  result_row rows[3];
  for (int i = 0; i < 3; i++) {
    found[i] = calloc(1, sizeof *found[i] + 2 * sizeof *found[i]->cells);
    found[i]->count = 2;
    found[i]->cells[0].verdict = i == 1 ? VERDICT_VIOLATED : VERDICT_PASS;
    result_row_init(&rows[i]);
    cr_assert_eq(grid_row(&g->blocks[0], &g->blocks[0].runs[i], &rows[i]), ATTN_OK);
    rows[i].properties = i < 2 ? found[i] : NULL;
    cr_assert_eq(properties_keep(&all, &rows[i]), ATTN_OK);
  }
  job j = {.block = g->blocks[0], .settled = properties_found_json(&all)}, back;
  json_t *json = job_to_json(&j);
  cr_assert_eq(job_from_json(json, &back), ATTN_OK);
  for (int i = 0; i < 3; i++) {
    bool known, violated;
    cr_assert_eq(properties_settled(back.settled, &rows[i], &known, &violated), ATTN_OK);
    cr_expect(known == (i < 2) && violated == (i == 1), "%s", rows[i].label);
    result_row_free(&rows[i]);
    free(found[i]);
  }
  json_decref(json);
  json_decref(back.settled);
  json_decref(j.settled);
  properties_found_free(&all);
  grid_block_free(&back.block);
}

Test(grid, keys_are_canonical) {
  grid *g =
      expand("schema: 1\ngrid: {n: 1Ki, heads: 4, kv_heads: 2, d: 32, d_v: 16, causal: yes, dtype: f64}\n"
             "variants: [tiled: {block_k: 1Ki}]\ndatasets: [gaussian: {std_k: 2.50}]\nnulls: no\n");
  cr_assert_eq(g->count, 1);
  cr_assert_eq(g->blocks[0].count, 1);
  cr_expect_str_eq(
      g->blocks[0].runs[0].key,
      "dataset=gaussian:std_q=1,std_k=2.5,std_v=1 data_seed=0 n=1024 n_kv=1024 d=32 d_v=16 heads=4 "
      "kv_heads=2 batch=1 causal=yes dtype=f64 threads=3 isa=scalar blocks=256x96 cache=warm "
      "variant=tiled:precision=f32,path=auto,block_q=0,block_k=1024,skip=0,order=forward");
  cr_expect_str_eq(g->blocks[0].runs[0].variant, "tiled");
  const attn_problem p = grid_problem(&g->blocks[0]);
  cr_expect(p.n_q == 1024 && p.n_kv == 1024 && p.d_qk == 32 && p.d_v == 16 && p.kv_heads == 2 && p.causal);
  cr_expect_eq(p.dtype, ATTN_F64);
}

Test(grid, seeds_multiply_random_variants_alone_and_share_a_block) {
  grid *g = expand("schema: 1\ngrid: {n: 64, seed: 0:2}\nvariants: [full, performer: {features: [16, 32]}]\n"
                   "datasets: gaussian\nnulls: no\n");
  cr_assert_eq(g->count, 1);
  cr_expect_eq(g->blocks[0].count, 1 + 2 * 3);
  cr_expect_eq(count_runs(g, "seed=2"), 2);
  for (size_t r = 0; r < g->blocks[0].count; r++) {
    const grid_run *run = &g->blocks[0].runs[r];
    const char *seed = text_of("seed=%lld", (long long)run->seed);
    cr_expect(strcmp(run->variant, "full") == 0 ? run->seed == 0 : strstr(run->spec->text, seed) != NULL);
  }
  expect_distinct_keys(g);
}

/* The seed is the parameter that the variant names; seeds in an item are the only ones. */
Test(grid, seeds_by_another_name) {
  static attn_param table[8];
  static attn_variant strange;
  const attn_variant *real;
  cr_assert_eq(attn_variant_find("bigbird", &real), ATTN_OK);
  strange = *real;
  for (int i = 0; real->params[i].name; i++) {
    table[i] = real->params[i];
    if (strcmp(table[i].name, real->seed) == 0) table[i].name = "r";
  }
  strange.name = "strange";
  strange.params = table;
  strange.seed = "r";
  cr_assert_eq(attn_variant_register(&strange), ATTN_OK);
  grid *g = expand(
      "schema: 1\ngrid: {n: 64, seed: 5:6}\nvariants: [strange, 'strange:r=9', strange: {r: [7, 9, 8]}]\n"
      "datasets: gaussian\nnulls: no\n");
  cr_assert_eq(g->blocks[0].count, 5);
  for (size_t r = 0; r < 5; r++) {
    const int64_t want = (int64_t[]){5, 6, 9, 7, 8}[r];
    const char *seed = text_of(",r=%lld", (long long)want);
    cr_expect(g->blocks[0].runs[r].seed == want && strstr(g->blocks[0].runs[r].spec->text, seed));
    result_row row;
    result_row_init(&row);
    cr_assert_eq(grid_row(&g->blocks[0], &g->blocks[0].runs[r], &row), ATTN_OK);
    cr_expect(!strstr(row.params, "\"r\"") && strstr(row.params, "\"window\"") && row.seed == want,
              "params group the runs of all seeds: %s", row.params);
    result_row_free(&row);
  }
}

/* And repeated values are one. */
Test(grid, nulls_come_once_for_each_block) {
  grid *g = expand("schema: 1\ngrid: {n: [64, 128, 64], seed: 0:4, heads: 4, kv_heads: [0, 4]}\n"
                   "threads: [0, 3]\nvariants: [full, 'tiled', tiled: {block_q: [0, 16]}]\n"
                   "datasets: [gaussian, 'gaussian:std_q=1']\n");
  size_t baselines = 0;
  while (null_baselines[baselines].name) baselines++;
  cr_expect_eq(g->count, 2);
  cr_expect_eq(grid_run_count(g), 2 * (3 + baselines));
  cr_expect_eq(count_runs(g, "variant=null_"), 2 * baselines);
}

/* Cross attention: numbers of keys that differ from those of queries; 0 is as many. */
Test(grid, numbers_of_keys_are_an_axis) {
  grid *g = expand("schema: 1\ngrid: {n: [64, 128], n_kv: [0, 64, 300]}\nvariants: full\n"
                   "datasets: gaussian\nnulls: no\n");
  cr_expect_eq(g->count, 5); /* 64 keys for 64 queries are said twice */
  cr_expect_eq(count_runs(g, " n=128 n_kv=300 "), 1);
  cr_expect_eq(count_runs(g, " n=128 n_kv=128 "), 1);
  for (size_t b = 0; b < g->count; b++) cr_expect_eq(grid_problem(&g->blocks[b]).n_kv, g->blocks[b].n_kv);
}

Test(grid, exclude_by_column_and_parameter) {
  grid *g = expand(
      "schema: 1\ngrid: {n: [64, 128, 256], causal: [no, yes]}\n"
      "variants: [full, tiled: {block_k: [1Ki, 2Ki]}]\ndatasets: [gaussian, lowrank]\nnulls: no\n"
      "exclude:\n  - {variant: full, n: 128:256:x2}\n  - {variant: tiled, block_k: 1024, causal: yes}\n"
      "  - {dataset: lowrank, n: 64}\n");
  cr_expect_eq(count_runs(g, "variant=full"), 2);     /* gaussian, n = 64, both masks */
  cr_expect_eq(count_runs(g, "block_k=1024"), 3 + 2); /* not causal */
  cr_expect_eq(count_runs(g, "block_k=2048"), 2 * (3 + 2));
  cr_expect_eq(g->count, 2 * (3 + 2));
  cr_expect_eq(count_runs(g, "dataset=lowrank:rank=8,std=1 data_seed=0 n=64 "), 0);
}

Test(grid, warm_and_cold_caches_make_blocks) {
  grid *g = expand("schema: 1\ngrid: {n: 64}\nvariants: [full, tiled]\ndatasets: gaussian\nnulls: no\n"
                   "cache: [warm, cold]\nexclude: [{variant: full, cache: cold}]\n");
  cr_expect_eq(g->count, 2);
  cr_expect_eq(count_runs(g, " cache=warm "), 2);
  cr_expect_eq(count_runs(g, " cache=cold variant=tiled"), 1);
  cr_expect_eq(count_runs(g, " cache=cold "), 1);
  for (size_t b = 0; b < g->count; b++)
    cr_expect_eq(g->blocks[b].cache == CACHE_COLD, strstr(g->blocks[b].runs[0].key, "cache=cold") != NULL);
}

Test(grid, shapes_that_cannot_be_are_refused_unless_excluded) {
#define ODD "schema: 1\ngrid: {n: 64, heads: [4, 6], kv_heads: 4}\nvariants: full\ndatasets: gaussian\n"
  config *c = parse(ODD);
  cr_expect_eq(grid_expand(c, "scalar", 1, &(grid){0}), ATTN_EINVAL);
  cr_expect(strstr(attn_last_error(), "heads"));
  config_free(c);
  const grid *g = expand(ODD "exclude: [{heads: 6, variant: full}]\n");
  cr_expect_eq(g->count, 1);
}

Test(grid, too_many_runs_are_refused_before_they_are_made) {
  config *c = parse("schema: 1\ngrid: {n: 1:4000, d: 1:4000}\nvariants: full\ndatasets: gaussian\n");
  cr_expect_eq(grid_expand(c, "scalar", 1, &(grid){0}), ATTN_EINVAL);
  config_free(c);
}

#define SHARDED                                                                                  \
  "schema: 1\ngrid: {n: 64:1Ki:x2, heads: [1, 2], causal: [no, yes]}\nvariants: [full, tiled]\n" \
  "datasets: [gaussian, lowrank]\n"

Test(grid, blocks_come_by_falling_cost) {
  grid *g = expand(SHARDED);
  cr_expect_eq(g->count, 5 * 2 * 2 * 2);
  for (size_t b = 1; b < g->count; b++) cr_expect(g->blocks[b].cost <= g->blocks[b - 1].cost);
  cr_expect_eq(g->blocks[0].n, 1024);
}

Test(grid, shards_partition_the_work) {
  for (int64_t count = 1; count <= 7; count++) {
    grid *all = expand(SHARDED);
    size_t dealt = 0, largest = 0, smallest = SIZE_MAX;
    for (int64_t i = 0; i < count; i++) {
      grid *g = expand(SHARDED);
      grid_shard(g, i, count);
      for (size_t b = 0; b < g->count; b++)
        for (size_t r = 0; r < g->blocks[b].count; r++) cr_expect(has_key(all, g->blocks[b].runs[r].key));
      dealt += grid_run_count(g);
      largest = g->count > largest ? g->count : largest;
      smallest = g->count < smallest ? g->count : smallest;
    }
    /* Every key is in the whole and none can be in two shards, since the numbers add up and keys are
     * distinct. */
    cr_expect(dealt == grid_run_count(all) && largest - smallest <= 1);
    expect_distinct_keys(all);
  }
}

/* Tiled attention, or nothing. */
static bool is_wanted(const grid_block *block, const grid_run *run, void *tiled) {
  return block && tiled && strcmp(run->variant, "tiled") == 0;
}

Test(grid, filter) {
  grid *g = expand(SHARDED);
  const size_t blocks = g->count;
  grid_filter(g, is_wanted, g);
  cr_expect(g->count == blocks && grid_run_count(g) == blocks);
  grid_filter(g, is_wanted, NULL);
  cr_expect_eq(g->count, 0);
}

/* What a user would type: no seed, no preset but that of the parameter that buys accuracy. Choices, lists and
 * files are texts; the whole of them is kept. */
Test(runner_grid, row_of_a_run_has_its_label_and_texts) {
  const char *list = "3";
  for (int i = 4; i < 300; i++) list = text_of("%s+%d", list, i);
  grid *g =
      expand(text_of("schema: 1\ngrid: {n: 512, seed: 3}\nvariants: [linformer: {k: 64, projection: srht, "
                     "share: kv}, longformer: {global_at: %s}, full]\ndatasets: gaussian\nnulls: yes\n",
                     list));
  static const char *const labels[] = {"linformer:k=64,projection=srht",
                                       "longformer:window=256,global_at=",
                                       "full",
                                       "null_zeros",
                                       "null_mean_v",
                                       "null_random_keys:keys=256"};
  cr_assert_eq(g->blocks[0].count, 6);
  for (size_t i = 0; i < 6; i++) {
    result_row row;
    result_row_init(&row);
    cr_assert_eq(grid_row(&g->blocks[0], &g->blocks[0].runs[i], &row), ATTN_OK);
    if (i == 1)
      cr_expect(strncmp(row.label, labels[i], strlen(labels[i])) == 0 &&
                    strcmp(row.label + strlen(labels[i]), list) == 0,
                "%s", row.label);
    else
      cr_expect_str_eq(row.label, labels[i]);
    for (int p = 0; p < row.p_count; p++) {
      const char *value = row.p[p].text, *name = row.p[p].name;
      const char *wanted = strcmp(name, "projection") == 0        ? "srht"
                           : strcmp(name, "projection_file") == 0 ? ""
                           : strcmp(name, "global_at") == 0       ? list
                                                                  : NULL;
      cr_expect(!wanted || (value && strcmp(value, wanted) == 0 && isnan(row.p[p].value)), "%s", name);
      cr_expect(strcmp(name, "seed") != 0 || (!value && row.p[p].value == 3), "%s", name);
    }
    cr_expect(i != 1 || strstr(row.params, list), "%s", row.params);
    cr_expect(i != 0 || (strstr(row.params, "\"k\":64") && row.p[0].value == 64), "%s", row.params);
    cr_expect(!strcmp(row.variant, g->blocks[0].runs[i].variant) &&
              !strcmp(row.key, g->blocks[0].runs[i].key));
    for (axis_id a = 0; a < AXES; a++)
      cr_expect_eq(row.axis[a], a == AXIS_seed ? g->blocks[0].runs[i].seed : g->blocks[0].axis[a]);
    result_row_free(&row);
  }
}
