/* cpu.c - what the processor has and the system saves: CPUID and XGETBV (Intel SDM vol. 2A, vol. 1 ch.
 * 13). */
#define _DEFAULT_SOURCE /* syscall */
#include "core/kernels/kernels.h"

#if defined(__x86_64__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>

static uint64_t saved_registers(void) {
  unsigned a, b, c, d;
  if (!__get_cpuid(1, &a, &b, &c, &d) || !(c >> 27 & 1)) return 0; /* OSXSAVE */
  unsigned low, high;
  __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return (uint64_t)high << 32 | low;
}

static bool leaf7(unsigned bits) {
  unsigned a, b, c, d;
  return __get_cpuid_count(7, 0, &a, &b, &c, &d) && (b & bits) == bits;
}

bool attn_cpu_has_avx2(void) {
  unsigned a, b, c, d;
  enum { SSE_AVX = 6, FMA_F16C = 1 << 12 | 1 << 29 };
  return __get_cpuid(1, &a, &b, &c, &d) && (c & FMA_F16C) == FMA_F16C && leaf7(1u << 5) &&
         (saved_registers() & SSE_AVX) == SSE_AVX;
}

bool attn_cpu_has_avx512(void) {
  enum { SSE_AVX_512 = 0xe6 }; /* xmm, ymm, opmask, upper zmm */
  unsigned f_dq_bw_vl = 1u << 16 | 1u << 17 | 1u << 30 | 1u << 31;
  return attn_cpu_has_avx2() && leaf7(f_dq_bw_vl) && (saved_registers() & SSE_AVX_512) == SSE_AVX_512;
}

bool attn_cpu_has_avx512_bf16(void) {
  unsigned a, b, c, d;
  return attn_cpu_has_avx512() && __get_cpuid_count(7, 1, &a, &b, &c, &d) && (a >> 5 & 1);
}

/* Linux grants the tiles' 8 KiB a thread only on request (Documentation/arch/x86/xstate.rst). */
static bool tiles_granted(void) {
#if defined(SYS_arch_prctl)
  enum { ARCH_REQ_XCOMP_PERM = 0x1023, XFEATURE_XTILEDATA = 18 };
  return !syscall(SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA);
#else
  return false;
#endif
}

bool attn_cpu_has_amx(void) {
  enum { XTILECFG_XTILEDATA = 3 << 17 };
  const unsigned bf16_tile = 1u << 22 | 1u << 24;
  unsigned a, b, c, d;
  return attn_cpu_has_avx512() && __get_cpuid_count(7, 0, &a, &b, &c, &d) && (d & bf16_tile) == bf16_tile &&
         (saved_registers() & XTILECFG_XTILEDATA) == XTILECFG_XTILEDATA && tiles_granted();
}
#endif
