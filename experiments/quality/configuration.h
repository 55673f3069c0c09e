/* configuration.h - evaluations from a YAML file, for attnlab run.
 *
 *   schema: 1
 *   eval:
 *     model: build/models/minimind2     # directory or GGUF file
 *     text: README.md                   # or tokens: FILE.npy
 *     task: [text, "copy:gap=0"]        # every combination of what are lists is run
 *     n: [512, 1Ki]
 *   variants:                           # as of sweeps (experiments/grid/config.h)
 *     - topk: {k: [16, 64]}
 *
 * `attnlab help config' lists all keys, from the table in configuration.c. */
#ifndef EXPERIMENTS_QUALITY_CONFIGURATION_H
#define EXPERIMENTS_QUALITY_CONFIGURATION_H

#include <stdio.h>

#include "experiments/quality/request.h"

typedef struct quality_configuration quality_configuration;

void quality_configuration_print_help(FILE *); /* the keys of the section */

/* *out is NULL: the file has no section eval. EINVAL names the place. */
attn_status quality_configuration_load(const char *path, quality_configuration **out);
void quality_configuration_free(quality_configuration *);

/* Requests that are answered one after another; what they point to is the configuration's. */
size_t quality_configuration_count(const quality_configuration *);
void quality_configuration_request(const quality_configuration *, size_t index, quality_request *out);

#endif
