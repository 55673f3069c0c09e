/* provenance.h - where a session's numbers come from: program, machine, command, configuration. */
#ifndef EXPERIMENTS_RUNNER_PROVENANCE_H
#define EXPERIMENTS_RUNNER_PROVENANCE_H

#include <jansson.h>

#include "attn.h"

/* SHA-256 over the program and the library as they lie on disk. EFOREIGN names the file that cannot be
 * read. */
attn_status provenance_build(char hex[65]);

/* Absolute path of this program, to be freed; EFOREIGN. */
attn_status provenance_program(char **path);

/* A cheap fingerprint of the files of program (at this path), library and plug-ins. EFOREIGN: one is gone. */
enum { PROVENANCE_STAMP = 65 };
attn_status provenance_stamp(const char *program, char text[PROVENANCE_STAMP]);

/* What journal_open wants to know of a session that starts now. hostname: whether to tell it. *result: a new
 * reference. */
attn_status provenance_collect(int argc, char *const *argv, const char *config_text, bool hostname,
                               json_t **result);

#endif
