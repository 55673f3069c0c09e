/* dispatch.c - the one place that chooses an instruction set: the best usable one, or the named one. */
#include "core/kernels/kernels.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool always(void) { return true; }

#if defined(__x86_64__)
/* Does the processor multiply as its manual specifies? Tested on random tiles: half of them of exponents near
 * that of 1, half of any that the products keep, subnormal ones among them. */
static bool multiplies(const attn_products *by,
                       void (*emulated)(float *, const uint32_t *, const uint32_t *)) {
  enum { WORDS = 256, TILES = 16 };
  uint32_t a[WORDS], b[WORDS];
  float sum[WORDS], expected[WORDS];
  bool same = true;
  attn_rng rng;
  attn_rng_init(&rng, 0, 0x7113, 0);
  for (int tile = 0; tile < TILES && same; tile++) {
    const uint32_t kept = tile % 2 ? 0xbfffbfff : 0x87ff87ff, set = tile % 2 ? 0 : 0x38003800;
    for (int i = 0; i < WORDS; i++) {
      a[i] = ((uint32_t)attn_rng_bits(&rng) & kept) | set;
      b[i] = ((uint32_t)attn_rng_bits(&rng) & kept) | set;
      sum[i] = expected[i] = (float)attn_rng_uniform(&rng);
    }
    if (by->split.enter) by->split.enter();
    by->one(sum, a, b);
    if (by->split.leave) by->split.leave();
    emulated(expected, a, b);
    same = !memcmp(sum, expected, sizeof sum);
  }
  return same;
}

static bool amx_multiplies(void) { return multiplies(&attn_products_amx, attn_emulated_product); }
static bool avx512_bf16_multiplies(void) {
  return multiplies(&attn_products_avx512_bf16, attn_emulated_dots);
}

static attn_kernels amx_f32, avx512_bf16_f32;
static void compose(void) {
  amx_f32 = avx512_bf16_f32 = attn_kernels_avx512_f32;
  amx_f32.isa = "amx";
  amx_f32.products = &attn_products_amx;
  avx512_bf16_f32.isa = "avx512_bf16";
  avx512_bf16_f32.products = &attn_products_avx512_bf16;
}
#else
static void compose(void) {}
#endif

static const attn_isa isas[] = {
#if defined(__x86_64__)
    {"amx", attn_cpu_has_amx, amx_multiplies, {&amx_f32, &attn_kernels_avx512_f64}},
    {"avx512_bf16",
     attn_cpu_has_avx512_bf16,
     avx512_bf16_multiplies,
     {&avx512_bf16_f32, &attn_kernels_avx512_f64}},
    {"avx512", attn_cpu_has_avx512, NULL, {&attn_kernels_avx512_f32, &attn_kernels_avx512_f64}},
    {"avx2", attn_cpu_has_avx2, NULL, {&attn_kernels_avx2_f32, &attn_kernels_avx2_f64}},
#elif defined(__aarch64__)
    {"neon", always, NULL, {&attn_kernels_neon_f32, &attn_kernels_neon_f64}},
#endif
    {"scalar", always, NULL, {&attn_kernels_scalar_f32, &attn_kernels_scalar_f64}},
};
enum { ISAS = sizeof isas / sizeof *isas };

/* Asked once: a hypervisor answers the instruction that asks the processor, in the time of a small plan. */
typedef enum { UNKNOWN, USABLE, ABSENT, WRONG } isa_state;
static isa_state state_of(int i) {
  static atomic_int known[ISAS];
  if (known[i] == UNKNOWN)
    known[i] = !isas[i].has() ? ABSENT : !isas[i].correct || isas[i].correct() ? USABLE : WRONG;
  return (isa_state)known[i];
}

static const char *const *those(isa_state state, const char **names) {
  int n = 0;
  for (int i = 0; i < ISAS; i++)
    if (state_of(i) == state) names[n++] = isas[i].name;
  names[n] = NULL;
  return names;
}

const char *const *attn_isa_list(void) {
  static _Thread_local const char *names[ISAS + 1];
  return those(USABLE, names);
}

const char *const *attn_isa_wrong(void) {
  static _Thread_local const char *names[ISAS + 1];
  return those(WRONG, names);
}

attn_status attn_kernels_select(const char *name, attn_dtype dtype, const attn_kernels **out) {
  static pthread_once_t composed = PTHREAD_ONCE_INIT;
  pthread_once(&composed, compose);
  if (!*name) name = getenv("ATTN_ISA");
  for (int i = 0; i < ISAS; i++)
    if ((!name || !*name || !strcmp(name, isas[i].name)) && state_of(i) == USABLE) {
      *out = isas[i].kernels[attn_numbers[dtype].arithmetic];
      return ATTN_OK;
    }
  char names[64] = "";
  for (const char *const *isa = attn_isa_list(); *isa; isa++) {
    size_t used = strlen(names);
    snprintf(names + used, sizeof names - used, "%s%s", used ? ", " : "", *isa);
  }
  return attn_fail(ATTN_EINVAL, "instruction set '%s' is unknown or not usable here, usable: %s", name,
                   names);
}
