/* haar.c - uniform orthogonal matrices: Q of A = QR with R's diagonal made positive, A Gaussian (Mezzadri
 * 2007). */
#include "core/internal.h"

#include <gsl/gsl_linalg.h>

attn_status attn_orthogonalise(int64_t d, double *a, double *scratch, double *q) {
  if (!a || !scratch || !q) return attn_null("orthogonalise", !a ? "a" : !scratch ? "scratch" : "q");
  gsl_matrix_view view = gsl_matrix_view_array(a, (size_t)d, (size_t)d),
                  out = gsl_matrix_view_array(q, (size_t)d, (size_t)d);
  gsl_vector_view reflectors = gsl_vector_view_array(scratch, (size_t)d);
  if (gsl_linalg_QR_decomp(&view.matrix, &reflectors.vector))
    return attn_fail(ATTN_EFOREIGN, "QR decomposition failed");
  gsl_matrix_set_identity(&out.matrix);
  for (size_t j = 0; j < (size_t)d; j++) {
    gsl_vector_view column = gsl_matrix_column(&out.matrix, j);
    gsl_linalg_QR_Qvec(&view.matrix, &reflectors.vector, &column.vector);
    if (gsl_matrix_get(&view.matrix, j, j) < 0) gsl_vector_scale(&column.vector, -1);
  }
  return ATTN_OK;
}
