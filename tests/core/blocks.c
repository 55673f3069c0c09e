/* blocks.c - block sizes: the precedence of variant, options and caches, the sizes derived from caches, the
 * reading of cache sizes, and equal bits for equal sizes. */
#include "tests/support/core.h"
#include "core/internal.h"

#include <sys/stat.h>
#include <unistd.h>

static attn_blocks blocks_of(const attn_options *options, attn_dtype dtype, int64_t d_qk, int64_t d_v) {
  attn_options filled;
  cr_assert(!attn_options_fill(options, dtype, d_qk, d_v, &filled), "%s", attn_last_error());
  return filled.blocks;
}

static void expect_blocks(attn_blocks b, int64_t query, int64_t key) {
  cr_expect(b.query == query && b.key == key, "%lld x %lld instead of %lld x %lld", (long long)b.query,
            (long long)b.key, (long long)query, (long long)key);
}

/* ---- caches ---- */

static void write_file(const char *path, const char *text) {
  FILE *file = fopen(path, "w");
  cr_assert(file && fputs(text, file) >= 0 && fclose(file) == 0);
}

typedef struct index_files {
  const char *level, *type, *size;
} index_files;

/* A directory of the form of cpu0/cache, in the current one. */
static void make_indexes(const index_files *list, int count) {
  for (int i = 0; i < count; i++) {
    const char *const names[] = {"level", "type", "size"}, *const texts[] = {list[i].level, list[i].type,
                                                                             list[i].size};
    cr_assert(mkdir(text_of("index%d", i), 0700) == 0);
    for (int j = 0; j < 3; j++)
      if (texts[j]) write_file(text_of("index%d/%s", i, names[j]), texts[j]);
  }
}

static char directory[] = "/tmp/attnlab-cache-XXXXXX";
static void enter(void) { cr_assert(mkdtemp(directory) && chdir(directory) == 0); }
static void leave(void) {
  for (int i = 0; i < 8; i++) {
    static const char *const names[] = {"/level", "/type", "/size", ""};
    for (int j = 0; j < 4; j++) remove(text_of("index%d%s", i, names[j]));
  }
  cr_assert(chdir("/") == 0 && rmdir(directory) == 0);
}

static void expect_cache(int level, int64_t told, int64_t bytes, const char *from) {
  attn_cache c = attn_cache_decide(level, told, directory);
  cr_expect(c.bytes == bytes && !strcmp(c.from, from), "level %d, told %lld: %lld (%s)", level,
            (long long)told, (long long)c.bytes, c.from);
}

Test(core_blocks, caches) {
  enter();
  expect_cache(1, 49152, 49152, "sysconf");
  expect_cache(1, 0, 32768, "assumed");
  expect_cache(2, -1, 524288, "assumed");
  expect_cache(3, INT64_MAX, 8388608, "assumed");
  const index_files good[] = {{"1\n", "Instruction\n", "64K\n"},
                              {"1\n", "Data\n", "48K\n"},
                              {"2\n", "Unified\n", "2048K\n"},
                              {"3\n", "Unified\n", "105M\n"}};
  make_indexes(good, 4);
  expect_cache(1, -1, 49152, "/sys");
  expect_cache(2, 0, 2097152, "/sys");
  expect_cache(3, 12, INT64_C(105) << 20, "/sys");
  expect_cache(3, 1 << 25, 1 << 25, "sysconf");
  leave();
}

Test(core_blocks, hostile_caches) {
  enter();
  static const char *const sizes[] = {
      "",  "K", "-32K", "32", "32KK", "0x8000", "32 K", "999G", "1e5K", "99999M", "999999999999999999999K",
      NULL};
  for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
    make_indexes(&(index_files){"1\n", "Data\n", sizes[i]}, 1);
    expect_cache(1, 0, 32768, "assumed");
    remove("index0/level");
    remove("index0/type");
    remove("index0/size");
    remove("index0");
  }
  leave();
}

Test(core_blocks, this_machine) {
  for (int level = 1; level <= 3; level++) {
    attn_cache c = attn_cache_size(level);
    cr_expect(c.bytes >= 4096 && c.from, "level %d: %lld", level, (long long)c.bytes);
  }
}

/* ---- sizes from caches ---- */

static attn_blocks fitting(attn_dtype dtype, int64_t key_bytes, int64_t d_qk, int64_t d_v, int64_t l1,
                           int64_t l2) {
  return attn_blocks_for(&(attn_kernels){.dtype = dtype, .key_bytes = key_bytes}, d_qk, d_v, l1, l2);
}

Test(core_blocks, what_fits) {
  expect_blocks(fitting(ATTN_F32, 256, 64, 64, 32 << 10, 1 << 20), 256, 96);
  expect_blocks(fitting(ATTN_F32, 256, 64, 64, 1 << 20, 1 << 30), 256, 96); /* more gains nothing */
  expect_blocks(fitting(ATTN_F32, 256, 64, 64, 16 << 10, 1 << 20), 256, 48);
  expect_blocks(fitting(ATTN_F32, 64, 64, 64, 4 << 10, 1 << 20), 256, 48);
  expect_blocks(fitting(ATTN_F32, 256, 128, 128, 32 << 10, 256 << 10), 128, 96);
  expect_blocks(fitting(ATTN_F64, 256, 256, 256, 32 << 10, 1 << 20), 128, 96);
  expect_blocks(fitting(ATTN_F32, 1 << 20, INT64_MAX, INT64_MAX, 4 << 10, 32 << 10), 64, 12);
}

/* Variant over options over caches. */
Test(core_blocks, precedence) {
  const char *isa = attn_isa_list()[0];
  const attn_options plain = {.isa = isa}, half = {.isa = isa, .blocks = {.key = 24}};
  attn_blocks own = blocks_of(&plain, ATTN_F32, 64, 64);
  cr_expect(own.query >= ATTN_TILE && own.key >= 12);
  expect_blocks(blocks_of(&half, ATTN_F32, 64, 64), own.query, 24);

  attn_problem p = attn_problem_make(1, 1, 500, 64);
  const struct {
    const char *spec;
    const attn_options *options;
    int64_t block;
  } cases[] = {{"tiled:path=fma", &plain, own.key},
               {"tiled:path=fma", &half, 24},
               {"tiled:path=fma,block_k=36", &half, 36}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    attn_plan *plan = plan_or_note(&p, cases[i].spec, cases[i].options);
    attn_view view;
    cr_assert(plan && !attn_plan_inspect(plan, &view));
    cr_expect(view.rounding.block == cases[i].block, "%s: %lld", cases[i].spec,
              (long long)view.rounding.block);
    attn_plan_destroy(plan);
  }
}

Test(core_blocks, sizes_out_of_range) {
  attn_options filled;
  static const attn_blocks wrong[] = {{-1, 0}, {0, -1}, {ATTN_BLOCK_MAX + 1, 0}, {0, INT64_MAX}};
  for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
    attn_problem p = attn_problem_make(1, 1, 5, 4);
    attn_plan *plan = NULL;
    attn_options options = {.blocks = wrong[i]};
    cr_expect(attn_plan_create(&plan, &p, "tiled", &options) == ATTN_EINVAL && !plan);
    cr_expect(strstr(attn_last_error(), "blocks"), "%s", attn_last_error());
    cr_expect(attn_options_fill(&options, ATTN_F32, 4, 4, &filled) == ATTN_EINVAL);
  }
  cr_expect(attn_options_fill(NULL, ATTN_F32, 0, 4, &filled) == ATTN_EINVAL);
}

/* Sizes named in the options or in the spec give the same bits; other sizes give others. */
Test(core_blocks, named_sizes_reproduce) {
  for (const char *const *isa = isas_under_test(); *isa; isa++) {
    inputs in = inputs_shaped((case_shape){1, 2, 2, 300, 300, 16, 16, false, false}, ATTN_F32, 3, 1);
    attn_options plain = {.isa = *isa}, named = {.isa = *isa, .blocks = {128, 36}};
    float *unnamed = run_spec("tiled:path=fma", &plain, &in);
    float *by_options = run_spec("tiled:path=fma", &named, &in);
    void *by_spec = run_spec("tiled:path=fma,block_q=128,block_k=36", &plain, &in);
    note_context("%s", *isa);
    expect_same(&in.problem, by_options, by_spec, "sizes named in the spec");
    cr_expect(memcmp(unnamed, by_options, sizeof *unnamed * 2 * 300 * 16) != 0, "%s: sizes do not matter",
              *isa);
    free(unnamed);
    free(by_options);
    free(by_spec);
    inputs_free(&in);
  }
}
