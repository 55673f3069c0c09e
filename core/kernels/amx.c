/* amx.c - AVX-512 in fp32 with the processor's own tile products (AMX-BF16; Intel SDM vol. 1 ch. 18).
 *
 * In assembly, because compilers' intrinsics do not declare that a tile load reads memory that was just
 * written. */
#include <stdint.h>

#define PRODUCTS attn_products_amx
#define OTHERS attn_kernels_avx512_f32
#define EMULATED false
#define SPLIT_PAYS true

/* Palette 1: eight tiles of 16 rows of 64 bytes. */
static void tiles_enter(void) {
  static const struct {
    uint8_t palette, start_row, reserved[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
  } shape = {
      .palette = 1, .row_bytes = {64, 64, 64, 64, 64, 64, 64, 64}, .rows = {16, 16, 16, 16, 16, 16, 16, 16}};
  __asm__ volatile("ldtilecfg %0" ::"m"(shape));
}

static void tiles_leave(void) { __asm__ volatile("tilerelease" ::: "memory"); }

#define t_room (void)0
#define t_enter() tiles_enter()
#define t_leave() tiles_leave()
#define t_zero(i) __asm__ volatile("tilezero %%tmm" #i ::)
#define t_load(i, p) __asm__ volatile("tileloadd (%0,%1,1), %%tmm" #i ::"r"(p), "r"(INT64_C(64)) : "memory")
#define t_store(i, p, row)                                                                           \
  __asm__ volatile("tilestored %%tmm" #i ", (%0,%1,1)" ::"r"(p), "r"((int64_t)sizeof(float) * (row)) \
                   : "memory")
#define t_product(c, a, b) __asm__ volatile("tdpbf16ps %%tmm" #b ", %%tmm" #a ", %%tmm" #c ::)

#include "core/kernels/avx512.inc"
