/* shard.c - the part of a process, from --shard or from the variables of Slurm and MPI. */
#include "experiments/grid/shard.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "attn_tools.h"
#include "experiments/grid/value_texts.h"

enum { SHARDS_MAX = 1000000 };

typedef char *lookup(const char *name);

/* A variable that is set must be an integer in [min, max]. */
static attn_status read_variable(lookup *look, const char *name, int64_t min, int64_t max, int64_t *out) {
  const char *text = look(name);
  int64_t value;
  if (!text) return attn_fail(ATTN_EINVAL, "--shard auto: %s is not set", name);
  if (!attn_int_parse(text, &value) || value < min || value > max)
    return attn_fail(ATTN_EINVAL, "--shard auto: %s '%s': expected an integer from %lld to %lld", name, text,
                     (long long)min, (long long)max);
  *out = value;
  return ATTN_OK;
}

static attn_status read_pair(lookup *look, const char *rank, const char *size, int64_t *index,
                             int64_t *count) {
  attn_status status = read_variable(look, size, 1, SHARDS_MAX, count);
  return status ? status : read_variable(look, rank, 0, *count - 1, index);
}

static attn_status read_array(lookup *look, int64_t *index, int64_t *count) {
  int64_t id = 0, min = 0, step = 1;
  attn_status status = read_variable(look, "SLURM_ARRAY_TASK_COUNT", 1, SHARDS_MAX, count);
  if (!status) status = read_variable(look, "SLURM_ARRAY_TASK_MIN", 0, INT32_MAX, &min);
  if (!status && look("SLURM_ARRAY_TASK_STEP"))
    status = read_variable(look, "SLURM_ARRAY_TASK_STEP", 1, INT32_MAX, &step);
  if (!status) status = read_variable(look, "SLURM_ARRAY_TASK_ID", min, INT32_MAX, &id);
  if (status) return status;
  *index = (id - min) / step;
  /* An array such as 1,5,6 has no step that its indices follow. */
  if ((id - min) % step == 0 && *index < *count) return ATTN_OK;
  return attn_fail(ATTN_EINVAL,
                   "--shard auto: SLURM_ARRAY_TASK_ID %lld is not MIN + i STEP with i below COUNT %lld; "
                   "number the array from 0 without gaps",
                   (long long)id, (long long)*count);
}

static attn_status ask_environment(lookup *look, int64_t *index, int64_t *count) {
  int64_t task = 0, tasks = 1;
  attn_status status = ATTN_OK;
  const bool array = look("SLURM_ARRAY_TASK_ID") != NULL;
  *index = 0;
  *count = 1;
  /* They are set in a batch script, too, but distinguish processes only within a step. */
  if (look("SLURM_STEP_NUM_TASKS") && look("SLURM_PROCID"))
    status = read_pair(look, "SLURM_PROCID", "SLURM_STEP_NUM_TASKS", &task, &tasks);
  if (!status && array) status = read_array(look, index, count);
  if (!status && *count > SHARDS_MAX / tasks)
    status = attn_fail(ATTN_EINVAL, "--shard auto: more than %d shards", SHARDS_MAX);
  if (status || array || tasks > 1) {
    *index = *index * tasks + task;
    *count *= tasks;
    return status;
  }
  if (look("OMPI_COMM_WORLD_SIZE"))
    return read_pair(look, "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", index, count);
  if (look("PMI_SIZE")) return read_pair(look, "PMI_RANK", "PMI_SIZE", index, count);
  return ATTN_OK;
}

attn_status shard_parse(const char *text, lookup *look, int64_t *index, int64_t *count) {
  int64_t i = 0, n = 1;
  char first[24];
  const size_t length = strcspn(text, "/");
  attn_status status = ATTN_OK;
  if (strcmp(text, "auto") == 0) {
    status = ask_environment(look, &i, &n);
  } else {
    snprintf(first, sizeof first, "%.*s", (int)(length < sizeof first ? length : 0), text);
    if (!text[length] || !attn_int_parse(first, &i) || !attn_int_parse(text + length + 1, &n) ||
        n > SHARDS_MAX || i < 0 || i >= n)
      status =
          attn_fail(ATTN_EINVAL, "--shard '%s': expected I/N with 0 <= I < N, such as 0/4, or auto", text);
  }
  if (status) return status;
  *index = i;
  *count = n;
  return ATTN_OK;
}
