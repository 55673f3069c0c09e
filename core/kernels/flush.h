/* flush.h - x86: a stretch of arithmetic that treats subnormals as zeros (MXCSR: denormals are zero, flush to
 * zero). The statements also keep the compiler from moving loads and stores across them. */
#ifndef ATTN_CORE_KERNELS_FLUSH_H
#define ATTN_CORE_KERNELS_FLUSH_H

#define flush_begin()                                           \
  unsigned mxcsr_outer, mxcsr_flush;                            \
  __asm__ volatile("stmxcsr %0" : "=m"(mxcsr_outer)::"memory"); \
  mxcsr_flush = mxcsr_outer | 1u << 15 | 1u << 6;               \
  __asm__ volatile("ldmxcsr %0" ::"m"(mxcsr_flush) : "memory")
#define flush_end() __asm__ volatile("ldmxcsr %0" ::"m"(mxcsr_outer) : "memory")

#endif
