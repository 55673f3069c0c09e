/* attention.c - exact attention in one call, a sliding window by a plan, and the distance between their
 * outputs:
 *   cc attention.c $(pkg-config --cflags --libs attn) -lm -o attention */
#include <attn.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { HEADS = 2, N = 1024, D = 64, COUNT = HEADS * N * D };
static float q[COUNT], k[COUNT], v[COUNT], exact[COUNT], window[COUNT];

int main(void) {
  for (int i = 0; i < COUNT; i++) q[i] = (float)(rand() % 2001 - 1000) / 1000;
  for (int i = 0; i < COUNT; i++) k[i] = (float)(rand() % 2001 - 1000) / 1000;
  for (int i = 0; i < COUNT; i++) v[i] = (float)(rand() % 2001 - 1000) / 1000;
  attn_problem problem = attn_problem_make(1, HEADS, N, D); /* batch, heads, n, d */
  problem.causal = true;
  attn_status status = attn_attention(q, k, v, exact, &problem, "tiled");

  attn_plan *plan = NULL; /* made once, executed any number of times, also by several threads at a time */
  void *work = NULL;
  if (!status) status = attn_plan_create(&plan, &problem, "longformer:window=256", NULL);
  if (!status) work = malloc(attn_plan_work_size(plan));
  if (!status) status = attn_plan_execute(plan, q, k, v, NULL, window, work);
  free(work);
  attn_plan_destroy(plan);
  if (status) return fprintf(stderr, "%s\n", attn_last_error()), 1;

  double distance = 0, norm = 0;
  for (int i = 0; i < COUNT; i++) {
    distance += pow((double)window[i] - (double)exact[i], 2);
    norm += pow((double)exact[i], 2);
  }
  printf("relative error of the window: %.3f\n", sqrt(distance / norm));
}
