/* attn_tools.h - for programs that read what users write: integers and choices from text, hints for misspelt
 * names, and the readers of files that parameters name. Nothing of it is needed to compute attention.
 * attn_variant.h includes it. */
#ifndef ATTN_TOOLS_H
#define ATTN_TOOLS_H

#include <stdio.h>

#include "attn.h"

#ifdef __cplusplus
extern "C" {
#endif

/* An integer as users write it: 16384, or 16k, 16K or 16Ki for the same (lengths are counted in powers of
 * two), and so M and G. false: it is none, or has no room in 64 bits. */
ATTN_API bool attn_int_parse(const char *text, int64_t *);
/* The index of a text among choices, -1 if it is none; true and false are yes and no where these are
 * choices. */
ATTN_API int attn_choice_find(const char *const *choices, const char *text);

/* Closes a stream of open_memstream, or NULL where there was no memory for one. false: its text is lost and
 * released, *text is NULL. */
ATTN_API bool attn_stream_text(FILE *stream, char **text);

/* The tensors that a call may have besides q, k and v (attn_extra): every list of them is this one. */
typedef enum {
  ATTN_COLUMNS_ONE,
  ATTN_COLUMNS_QK,
  ATTN_COLUMNS_V,
  ATTN_COLUMNS_PAIRS,
  ATTN_COLUMNS_GATES, /* of each gate of a sum 1 or d_v: any number, and files may lack the axis of columns */
  ATTN_COLUMNS_ANY
} attn_extra_columns;
/* Those of queries, of keys or 1; or others of any number; or 1, and files have no axis of heads. */
typedef enum { ATTN_HEADS_OWN, ATTN_HEADS_ANY, ATTN_HEADS_ONE } attn_extra_heads;
typedef struct attn_extra_kind {
  const char *name;
  bool of_queries; /* n is n_q, else n_kv */
  attn_extra_heads heads;
  attn_extra_columns columns; /* besides 1 */
} attn_extra_kind;
enum { ATTN_EXTRA_KINDS = 10 };
ATTN_API extern const attn_extra_kind attn_extra_kinds[ATTN_EXTRA_KINDS];
ATTN_API int attn_extra_find(const char *name); /* its place; -1: there is none of this name */
/* Is it one of these, of a shape that fits the problem? Messages begin with `where`. */
ATTN_API attn_status attn_extra_check(const char *where, const attn_problem *, const attn_extra *);

/* The known name that is nearest to an unknown one: fill in name (and length, if it ends earlier), try all
 * known names, of at most 32 letters, and put the hint behind the name in the message: " (did you mean
 * 'tiled'?)", or "" where none is near. best lives as long as the names that were tried. */
typedef struct attn_nearest {
  const char *name;
  size_t length; /* 0: the whole of name */
  const char *best;
  int distance;
  char hint[56];
} attn_nearest;
ATTN_API void attn_nearest_try(attn_nearest *, const char *known);
ATTN_API const char *attn_nearest_hint(attn_nearest *);

/* The library reads no files. A variant whose parameter names one gets its matrix from the reader that the
 * program sets once, before plans are made. values: row-major, to be released with free. */
typedef attn_status (*attn_matrix_reader)(const char *path, int64_t *rows, int64_t *columns, double **values);
ATTN_API void attn_matrix_reader_set(attn_matrix_reader);

/* A graph says which columns (keys) a row (query) sees: those of row r of head h are the spans from
 * starts[h * rows + r] to starts[h * rows + r + 1], ascending and apart. */
typedef struct attn_range {
  int64_t first, end; /* first ... end - 1 */
} attn_range;
typedef struct attn_graph {
  int64_t heads, rows, columns; /* heads 1: one graph for all */
  int64_t *starts;              /* [heads * rows + 1]; to be released with free, as are the spans */
  attn_range *spans;
} attn_graph;
/* What is wanted: rows, or as many as there are columns, of which the queries are the last; columns, and the
 * heads that there may be instead of one. symmetric: an edge is seen from both ends; self: each row sees the
 * column of its number. Either needs as many rows as columns. */
typedef struct attn_graph_request {
  int64_t heads, rows, columns;
  bool symmetric, self;
} attn_graph_request;
typedef attn_status (*attn_graph_reader)(const char *path, const attn_graph_request *, attn_graph *);
ATTN_API void attn_graph_reader_set(attn_graph_reader);

#ifdef __cplusplus
}
#endif
#endif
