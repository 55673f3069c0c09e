/* rope_scaling.c - frequencies of rotary positions in a stretched context: f_i = theta^(-2i/d), and with L
 * positions before the stretching and its factor s
 *
 *   linear   f_i / s (position interpolation, Chen et al. 2023, arXiv:2306.15595)
 *   dynamic  theta (s n / L - (s - 1))^(d/(d-2)) in place of theta, in windows of n > L (NTK-aware, length by
 *   length)
 *   yarn     f_i r_i / s + f_i (1 - r_i), r_i a ramp from 0 to 1 over the components between those which turn
 *            beta_fast and beta_slow times in L positions: i(b) = d ln(L / (2 pi b)) / (2 ln theta), down and
 *            up to whole ones; q and k times 0.1 ln s + 1, or as the file says (Peng et al. 2023,
 *            arXiv:2309.00071, equations 17 to 22)
 *   llama3   f_i where L f_i / (2 pi) > high, f_i / s where it is < low, between the two in proportion (Llama
 *   3.1)
 *   longrope f_i / l_i in windows of n > L, f_i / s_i in others, both lists in the file; q and k times
 *   sqrt(1 + ln s / ln L), or as the file says (Ding et al. 2024, arXiv:2402.13753)
 *
 * d: the components that turn. GGUF files of Llama 3 hold divisors of f_i in place of what these follow
 * from. */
#include <math.h>

#include "data/llama/rope.h"

#define TWO_PI 6.283185307179586476925

static double clamp(double x, double low, double high) { return x < low ? low : x > high ? high : x; }

/* The component that turns `turns` times in the original context. */
static double component(const data_rope *r, int64_t d, double turns) {
  return (double)d * log((double)r->original / (TWO_PI * turns)) / (2 * log(r->theta));
}

static void stretch_yarn(const data_rope *r, int64_t d, double *frequency) {
  double first = component(r, d, r->beta_fast), last = component(r, d, r->beta_slow);
  if (!r->exact_range) {
    first = floor(first);
    last = ceil(last);
  }
  first = clamp(first, 0, (double)d - 1);
  last = clamp(last, 0, (double)d - 1);
  if (!(last > first)) last = first + 0.001; /* a step, as others have it */
  for (int64_t i = 0; i < d / 2; i++) {
    const double ramp = clamp(((double)i - first) / (last - first), 0, 1);
    frequency[i] = frequency[i] / r->factor * ramp + frequency[i] * (1 - ramp);
  }
}

static void stretch_llama3(const data_rope *r, int64_t d, double *frequency) {
  for (int64_t i = 0; i < d / 2; i++) {
    const double turns = (double)r->original * frequency[i] / TWO_PI;
    const double kept = clamp((turns - r->low) / (r->high - r->low), 0, 1);
    frequency[i] = (1 - kept) * frequency[i] / r->factor + kept * frequency[i];
  }
}

void data_rope_frequencies(const data_rope *r, int64_t d, int64_t n, double *frequency) {
  double theta = r->theta;
  if (r->kind == DATA_ROPE_DYNAMIC && n > r->original)
    theta *= pow(r->factor * (double)n / (double)r->original - (r->factor - 1), (double)d / (double)(d - 2));
  rope_frequencies(d, theta, frequency);
  if (r->kind == DATA_ROPE_YARN) stretch_yarn(r, d, frequency);
  if (r->kind == DATA_ROPE_LLAMA3) stretch_llama3(r, d, frequency);
  for (int64_t i = 0; r->kind == DATA_ROPE_LINEAR && i < d / 2; i++) frequency[i] /= r->factor;
  const int64_t set = r->kind == DATA_ROPE_LONGROPE && n > r->original ? d / 2 : 0;
  for (int64_t i = 0; r->divisors && i < d / 2; i++) frequency[i] /= r->divisors[set + i];
}
