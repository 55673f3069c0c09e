/* attention.c - exact attention and a sliding window on random tensors, and the distance between their
 * outputs:
 *   cc attention.c $(pkg-config --cflags --libs attn) -lm -o attention */
#include <attn.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { HEADS = 2, N = 1024, D = 64, COUNT = HEADS * N * D };

static attn_status compute(const char *spec, const float *q, const float *k, const float *v, float *o) {
  attn_problem problem = attn_problem_make(1, HEADS, N, D); /* batch, heads, n, d */
  problem.causal = true;
  attn_plan *plan = NULL;
  attn_status status = attn_plan_create(&plan, &problem, spec, NULL);
  if (status) return status;
  void *work = malloc(attn_plan_work_size(plan) + 1); /* a plan may need none */
  status = work ? attn_plan_execute(plan, q, k, v, NULL, o, work)
                : attn_fail(ATTN_ENOMEM, "no memory for %s", spec);
  free(work);
  attn_plan_destroy(plan);
  return status;
}

static void fill(float *x) {
  for (int i = 0; i < COUNT; i++) x[i] = 2 * (float)rand() / (float)RAND_MAX - 1;
}

static double norm_of_difference(const float *x, const float *y) {
  double sum = 0;
  for (int i = 0; i < COUNT; i++) sum += pow((double)x[i] - (y ? (double)y[i] : 0), 2);
  return sqrt(sum);
}

int main(void) {
  static float q[COUNT], k[COUNT], v[COUNT], exact[COUNT], window[COUNT];
  fill(q);
  fill(k);
  fill(v);
  if (compute("tiled", q, k, v, exact) || compute("longformer:window=256", q, k, v, window)) {
    fprintf(stderr, "%s\n", attn_last_error());
    return 1;
  }
  printf("relative error of the window: %.3f\n",
         norm_of_difference(window, exact) / norm_of_difference(exact, NULL));
}
