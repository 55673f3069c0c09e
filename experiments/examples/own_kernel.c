/* own_kernel.c - which bounds does an output keep? Exact attention by plain loops, as any kernel of yours, is
 * judged as an output of "tiled"; then with one wrong element:
 *   cc own_kernel.c $(pkg-config --cflags --libs attn_check) -lm -o own_kernel */
#include <attn_check.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { HEADS = 2, N = 256, D = 32, COUNT = HEADS * N * D };
static float q[COUNT], k[COUNT], v[COUNT], o[COUNT];

static void attend(const float *query, const float *keys, const float *values, float *out) {
  float weight[N], sum = 0;
  for (int j = 0; j < N; j++) {
    float score = 0;
    for (int l = 0; l < D; l++) score += query[l] * keys[j * D + l];
    sum += weight[j] = expf(score / sqrtf(D));
  }
  for (int l = 0; l < D; l++) {
    out[l] = 0;
    for (int j = 0; j < N; j++) out[l] += weight[j] / sum * values[j * D + l];
  }
}

static attn_status judge(const attn_plan *plan) {
  attn_checked *found;
  const attn_status status = attn_check(plan, &(attn_tensors){.q = q, .k = k, .v = v, .o = o}, NULL, &found);
  if (status) return status;
  printf("%s: relative error %.2g of %d rows\n", found->verdict, found->error, (int)found->rows);
  for (size_t i = 0; i < found->count; i++) {
    const attn_bound *b = &found->bounds[i];
    if (isnan(b->measured) || !strcmp(b->verdict, "not_applicable")) continue;
    printf("  %-10s %-13s %8.2g of %-8.2g %s\n", b->name, b->verdict, b->measured, b->value, b->message);
  }
  attn_checked_free(found);
  return ATTN_OK;
}

int main(void) {
  for (int i = 0; i < COUNT; i++) q[i] = (float)(rand() % 2001 - 1000) / 1000;
  for (int i = 0; i < COUNT; i++) k[i] = (float)(rand() % 2001 - 1000) / 1000;
  for (int i = 0; i < COUNT; i++) v[i] = (float)(rand() % 2001 - 1000) / 1000;
  for (int i = 0; i < COUNT; i += D) attend(q + i, k + i / (N * D) * N * D, v + i / (N * D) * N * D, o + i);
  attn_problem problem = attn_problem_make(1, HEADS, N, D); /* batch, heads, n, d */
  attn_plan *plan = NULL;
  attn_status status = attn_plan_create(&plan, &problem, "tiled", NULL);
  if (!status) status = judge(plan);
  o[COUNT / 2] += 0.001f;
  if (!status) status = judge(plan);
  attn_plan_destroy(plan);
  if (status) return fprintf(stderr, "%s\n", attn_last_error()), 1;
}
