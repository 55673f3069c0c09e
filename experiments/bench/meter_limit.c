/* meter_limit.c - the limits of the machine as meters: multiply-adds per second and bytes read per second. */
#include "experiments/bench/benchmark.h"

/* More than the last-level caches hold. */
enum { BANDWIDTH_FLOATS = 1 << 26 };

static attn_status measure_peak(bench_meter *m, attn_peak_kind kind, double span, double *seconds) {
  double rate = 0;
  const attn_status status =
      attn_peak(&(attn_options){.isa = m->isa, .threads = m->threads}, kind, span, &rate);
  if (!status) *seconds = m->flops / rate;
  return status;
}

static attn_status measure_f32(bench_meter *m, double span, double *seconds) {
  return measure_peak(m, ATTN_PEAK_F32, span, seconds);
}

static attn_status measure_f64(bench_meter *m, double span, double *seconds) {
  return measure_peak(m, ATTN_PEAK_F64, span, seconds);
}

static attn_status measure_bf16(bench_meter *m, double span, double *seconds) {
  return measure_peak(m, ATTN_PEAK_BF16, span, seconds);
}

static attn_status measure_bandwidth(bench_meter *m, double span, double *seconds) {
  double rate = 0;
  const attn_status status = attn_read_bandwidth(&(attn_options){.isa = m->isa, .threads = m->threads},
                                                 m->owner->in, BANDWIDTH_FLOATS * sizeof(float), span, &rate);
  if (!status) *seconds = m->bytes / rate;
  return status;
}

static const struct {
  const char *name;
  attn_status (*measure)(bench_meter *, double span, double *seconds);
} peaks[] = {[ATTN_PEAK_F32] = {"fp32 multiply-adds", measure_f32},
             [ATTN_PEAK_F64] = {"fp64 multiply-adds", measure_f64},
             [ATTN_PEAK_BF16] = {"bf16 tile products", measure_bf16}};

bench_meter *bench_peak(bench *b, const char *isa, int threads, attn_peak_kind kind) {
  bench_meter *m = bench_meter_add(b, peaks[kind].name);
  if (!m) return NULL;
  if (isa) m->isa = isa;
  if (threads) m->threads = threads;
  m->flops = 1; /* the unit: a limit's rate is flops per second */
  m->measure = peaks[kind].measure;
  return m;
}

bench_meter *bench_bandwidth(bench *b, int threads) {
  bench_meter *m = bench_meter_add(b, "reads");
  if (!m) return NULL;
  if (threads) m->threads = threads;
  m->bytes = 1;
  m->measure = measure_bandwidth;
  bench_need(b, BANDWIDTH_FLOATS, 0, 0);
  return m;
}
