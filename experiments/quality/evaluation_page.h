/* evaluation_page.h - an evaluation as a page for a browser. */
#ifndef EXPERIMENTS_QUALITY_EVALUATION_PAGE_H
#define EXPERIMENTS_QUALITY_EVALUATION_PAGE_H

#include "experiments/quality/evaluation_file.h"

/* Writes the page, as report_write_page (experiments/report/page.h) does. ENOMEM */
attn_status quality_write_page(const char *path, const quality_set *, const char *title);

#endif
