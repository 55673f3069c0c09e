/* fftw_planner.h - the lock under which FFTW makes and destroys plans, since its planner is not
 * thread-safe. */
#ifndef ATTN_CORE_ENGINES_FFTW_PLANNER_H
#define ATTN_CORE_ENGINES_FFTW_PLANNER_H

#include <pthread.h>

extern pthread_mutex_t attn_fftw_planner;

#endif
