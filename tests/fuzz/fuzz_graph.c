/* fuzz_graph.c - graphs from .npy and safetensors files: what is accepted lies where it must, and is
 * symmetric if that was asked for. */
#include "tests/fuzz/fuzz.h"

#include <string.h>

#include "attn_variant.h"
#include "data/data.h"

static void check_rows(const attn_graph *g, const attn_graph_request *want) {
  REQUIRE((g->heads == 1 || g->heads == want->heads) && g->columns == want->columns && g->starts[0] == 0);
  REQUIRE(g->rows == want->rows || g->rows == want->columns);
  for (int64_t r = 0; r < g->heads * g->rows; r++) {
    REQUIRE(g->starts[r] <= g->starts[r + 1]);
    for (int64_t i = g->starts[r]; i < g->starts[r + 1]; i++) {
      REQUIRE(g->spans[i].first >= 0 && g->spans[i].first < g->spans[i].end && g->spans[i].end <= g->columns);
      REQUIRE(i == g->starts[r] || g->spans[i - 1].end < g->spans[i].first);
    }
  }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  static const attn_graph_request wanted[] = {
      {.heads = 2, .rows = 3, .columns = 4},
      {.heads = 2, .rows = 3, .columns = 3, .symmetric = true, .self = true}};
  /* libhdf5 is known to crash on damaged files, and is tried in a separate process. */
  if (size >= 4 && memcmp(data, "\x89HDF", 4) == 0) return 0;
  const char *path = fuzz_file("x.npy", data, size);
  for (int k = 0; k < 2; k++) {
    attn_graph g;
    fuzz_prepare(&g, sizeof g);
    if (!fuzz_succeeded(data_graph_read(path, &wanted[k], &g), &g, sizeof g)) continue;
    check_rows(&g, &wanted[k]);
    for (int64_t at = 0; k == 1 && at < g.heads * 9; at++) {
      const int64_t head = at / 9, i = at / 3 % 3, j = at % 3;
      REQUIRE(attn_graph_sees(&g, head, i, j) == attn_graph_sees(&g, head, j, i));
      REQUIRE(i != j || attn_graph_sees(&g, head, i, j));
    }
    attn_graph_free(&g);
  }
  return 0;
}
