/* configuration.h - evaluations from a YAML file, for attnlab run.
 *
 *   schema: 1
 *   eval:
 *     model: build/models/minimind2     # directory or GGUF file
 *     text: README.md                   # or tokens: FILE.npy
 *     bos: none                         # optional
 *     task: [text, "copy:gap=0"]        # what follows may be lists, every combination is run: text
 *     n: [512, 1Ki]                     # 1024
 *     layers: [all, each]               # all
 *     heads: all                        # all
 *     phase: [both, "decode:64"]        # both
 *     seed: 0:2                         # 0
 *     mix: [0.25, 1]                    # 1
 *     windows: 8                        # 16
 *     margin: 0.01                      # nats
 *     kl: 0.01                          # nats
 *   variants:                           # as of sweeps (experiments/grid/config.h)
 *     - topk: {k: [16, 64]} */
#ifndef EXPERIMENTS_QUALITY_CONFIGURATION_H
#define EXPERIMENTS_QUALITY_CONFIGURATION_H

#include "experiments/quality/request.h"

typedef struct quality_configuration quality_configuration;

/* *out is NULL: the file has no section eval. EINVAL names the place. */
attn_status quality_configuration_load(const char *path, quality_configuration **out);
void quality_configuration_free(quality_configuration *);

/* Requests that are answered one after another; what they point to is the configuration's. */
size_t quality_configuration_count(const quality_configuration *);
void quality_configuration_request(const quality_configuration *, size_t index, quality_request *out);

#endif
