/* wisdom.h - the program's wisdom (attn.h): the file that `attnlab tune` writes and every command reads that
 * makes plans.
 *
 * The file is $ATTNLAB_WISDOM (none if that is empty), else attnlab/wisdom in $XDG_CACHE_HOME or ~/.cache. */
#ifndef EXPERIMENTS_RUNNER_WISDOM_H
#define EXPERIMENTS_RUNNER_WISDOM_H

#include "attn.h"

/* Path of a file that is kept between runs of the program, to be freed: what the variable says (NULL if that
 * is empty), else attnlab/NAME in $XDG_CACHE_HOME or ~/.cache; NULL if there is none, or, recorded, without
 * memory. */
char *cache_path(const char *variable, const char *name);

/* Makes the directories above a path. One that cannot be made shows when the file is written. ENOMEM. */
attn_status cache_directories(const char *path);

/* Its path, to be freed; NULL if there is none, or, recorded, without memory. */
char *wisdom_path(void);

/* Imports the file if it exists. EUNSUPPORTED: it is another processor's; EINVAL names its line. Messages
 * begin with the path. */
attn_status wisdom_load(void);

/* Replaces the file by one of this processor and these lines, atomically. directories: make those above
 * it. */
attn_status wisdom_save(const char *path, bool directories, const char *lines);

#endif
