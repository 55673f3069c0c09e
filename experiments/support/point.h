/* point.h - the decimal point of this program. */
#ifndef EXPERIMENTS_SUPPORT_POINT_H
#define EXPERIMENTS_SUPPORT_POINT_H

/* From now on the calling thread reads and writes numbers with a decimal point, whatever locale a plug-in
 * sets for the process; what it set for the thread is undone. */
void point_fix(void);

#endif
