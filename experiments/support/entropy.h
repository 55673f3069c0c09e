/* entropy.h - numbers that nobody can foresee, and that no result may depend on. */
#ifndef EXPERIMENTS_SUPPORT_ENTROPY_H
#define EXPERIMENTS_SUPPORT_ENTROPY_H

#include <stdint.h>

uint64_t entropy_bits(void);
int64_t entropy_below(int64_t bound); /* bound > 0 */

#endif
