/* named_graph.c - graphs that a parameter names: read by the program's reader, kept in a plan, asked for
 * edges, for the runs of a row, and, where rows have one column at most, for the way from a row over its
 * column up to the root. */
#include "core/internal.h"

#include <stdlib.h>
#include <string.h>

static attn_graph_reader reader;

void attn_graph_reader_set(attn_graph_reader r) { reader = r; }

attn_status attn_graph_read(const char *path, const attn_graph_request *wanted, attn_graph *out) {
  if (!path) return attn_null("graph", "path");
  if (!wanted) return attn_null("graph", "request");
  if (!out) return attn_null("graph", "graph");
  if (!reader) return attn_fail(ATTN_EUNSUPPORTED, "%s: this program has no reader for graphs", path);
  return reader(path, wanted, out);
}

void attn_graph_free(attn_graph *g) {
  if (!g) return;
  free(g->starts);
  free(g->spans);
  *g = (attn_graph){.starts = NULL};
}

bool attn_graph_sees(const attn_graph *g, int64_t head, int64_t row, int64_t column) {
  if (!g || row < 0 || row >= g->rows) return false;
  const int64_t at = (g->heads > 1 ? head : 0) * g->rows + row;
  int64_t low = g->starts[at], high = g->starts[at + 1];
  while (low < high) {
    const int64_t middle = low + (high - low) / 2;
    if (g->spans[middle].end <= column)
      low = middle + 1;
    else
      high = middle;
  }
  return low < g->starts[at + 1] && g->spans[low].first <= column;
}

attn_status attn_graph_keep(attn_builder *b, attn_graph *g) {
  if (!b) return attn_null("graph", "builder");
  if (!g) return attn_null("graph", "graph");
  const int64_t rows = g->heads * g->rows, spans = g->starts[rows];
  attn_graph kept = *g;
  kept.starts = attn_builder_alloc(b, rows + 1, sizeof *kept.starts);
  kept.spans = attn_builder_alloc(b, spans + 1, sizeof *kept.spans);
  const bool room = kept.starts && kept.spans;
  if (room) {
    memcpy(kept.starts, g->starts, (size_t)(rows + 1) * sizeof *kept.starts);
    memcpy(kept.spans, g->spans, (size_t)spans * sizeof *kept.spans);
  }
  attn_graph_free(g);
  if (room) *g = kept;
  return room ? ATTN_OK : ATTN_ENOMEM;
}

int64_t attn_graph_row(const attn_graph *g, int64_t head, int64_t row, int64_t block, int64_t n,
                       attn_run *runs) {
  if (!g || !runs || row < 0 || row >= g->rows) return 0;
  const int64_t at = (g->heads > 1 ? head : 0) * g->rows + row, from = g->starts[at];
  const int64_t count = g->starts[at + 1] - from;
  for (int64_t i = 0; i < count; i++) {
    const int64_t first = g->spans[from + i].first * block;
    runs[i] = (attn_run){first, attn_min(g->spans[from + i].end * block, n) - first, 1};
  }
  return count;
}

int64_t attn_graph_parent(const attn_graph *g, int64_t row) {
  if (!g) return -1;
  return g->starts[row + 1] > g->starts[row] ? g->spans[g->starts[row]].first : -1;
}

attn_status attn_graph_forest(const char *path, const attn_graph *g) {
  if (!path) return attn_null("graph", "path");
  if (!g) return attn_null("graph", "graph");
  for (int64_t i = 0; i < g->heads * g->rows; i++) {
    const int64_t count = g->starts[i + 1] - g->starts[i];
    const attn_range *up = &g->spans[g->starts[i]];
    if (count > 1 || (count && (up->first >= i || up->end > up->first + 1)))
      return attn_fail(ATTN_EINVAL, "%s: row %lld, expected at most one parent, below %lld", path,
                       (long long)i, (long long)i);
  }
  return ATTN_OK;
}

int64_t attn_graph_ancestors(const attn_graph *g, int64_t row, attn_run *runs) {
  int64_t count = 0;
  if (!g || !runs) return 0;
  for (int64_t i = row; i >= 0; i = attn_graph_parent(g, i)) {
    if (!count || runs[count - 1].first != i + 1) runs[count++] = (attn_run){i, 0, 1};
    runs[count - 1].first = i;
    runs[count - 1].count++;
  }
  for (int64_t a = 0, b = count - 1; a < b; a++, b--) {
    const attn_run kept = runs[a];
    runs[a] = runs[b];
    runs[b] = kept;
  }
  return count;
}
