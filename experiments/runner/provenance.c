/* provenance.c - the stamp of this build, and the facts of a session as JSON. */
#define _GNU_SOURCE /* dladdr */
#include "experiments/runner/provenance.h"

#include "attn_tools.h"
#include "data/data.h"
#include "data/support/file.h"
#include "data/support/sha256.h"
#include "experiments/instruments/machine.h"
#include "experiments/instruments/timing.h"
#include "experiments/results/row_json.h"
#include "git_info.h"

#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

extern char **environ;

attn_status provenance_program(char **path) {
  char text[PATH_MAX];
  const ssize_t length = readlink("/proc/self/exe", text, sizeof text - 1);
  if (length < 0) return attn_fail(ATTN_EFOREIGN, "/proc/self/exe: %s", strerror(errno));
  text[length] = '\0';
  *path = strdup(text);
  return *path ? ATTN_OK : attn_fail(ATTN_ENOMEM, "no memory for the path of this program");
}

static attn_status add_file(const char *path, sha256 *digest) {
  file_map map;
  const attn_status status = file_map_open(path, &map);
  if (status) return status;
  sha256_add(digest, map.at, map.bytes);
  file_map_close(&map);
  return ATTN_OK;
}

/* The object that holds the registry: libattn, or again the program where that is linked in; NULL:
 * unknown. */
static const char *library_path(void) {
  Dl_info library;
  return dladdr(attn_variant_at(0), &library) ? library.dli_fname : NULL;
}

static attn_status add_stamp(const char *path, FILE *out) {
  struct stat file;
  if (stat(path, &file) != 0) return attn_fail(ATTN_EFOREIGN, "%s: %s", path, strerror(errno));
  fprintf(out, "%ju:%ju:%jd:%jd.%09ld ", (uintmax_t)file.st_dev, (uintmax_t)file.st_ino,
          (intmax_t)file.st_size, (intmax_t)file.st_mtim.tv_sec, file.st_mtim.tv_nsec);
  return ATTN_OK;
}

attn_status provenance_stamp(const char *program, char text[PROVENANCE_STAMP]) {
  char *files = NULL;
  size_t size;
  FILE *out = open_memstream(&files, &size);
  if (!out) return attn_fail(ATTN_ENOMEM, "no memory to identify this program");
  attn_status status = add_stamp(program, out);
  const char *last = NULL;
  for (size_t i = 0; !status && attn_variant_at(i); i++) {
    Dl_info object;
    if (!dladdr(attn_variant_at(i), &object) || (last && strcmp(last, object.dli_fname) == 0)) continue;
    last = object.dli_fname;
    status = add_stamp(last, out);
  }
  if (!attn_stream_text(out, &files) && !status)
    status = attn_fail(ATTN_ENOMEM, "no memory to identify this program");
  if (!status) data_sha256(files, size, text);
  free(files);
  return status;
}

attn_status provenance_build(char hex[65]) {
  sha256 digest;
  sha256_begin(&digest);
  attn_status status = add_file("/proc/self/exe", &digest);
  const char *library = library_path();
  if (!status && library) status = add_file(library, &digest);
  if (!status) sha256_end(&digest, hex);
  return status;
}

/* Name=value pairs of the environment that control threads and kernels. */
static json_t *environment(void) {
  static const char *const prefixes[] = {"OMP_", "GOMP_", "KMP_", "ATTN_"};
  char *text = NULL;
  size_t size;
  FILE *stream = open_memstream(&text, &size);
  if (!stream) return NULL;
  for (char **entry = environ; *entry; entry++)
    for (size_t i = 0; i < sizeof prefixes / sizeof *prefixes; i++)
      if (strncmp(*entry, prefixes[i], strlen(prefixes[i])) == 0) fprintf(stream, "%s ", *entry);
  json_t *value = attn_stream_text(stream, &text) ? result_json_text(text) : NULL;
  free(text);
  return value;
}

static json_t *command_line(int argc, char *const *argv) {
  char *text = NULL;
  size_t size;
  FILE *stream = open_memstream(&text, &size);
  if (!stream) return NULL;
  for (int i = 0; i < argc; i++) fprintf(stream, "%s%s", i ? " " : "", argv[i]);
  json_t *value = attn_stream_text(stream, &text) ? result_json_text(text) : NULL;
  free(text);
  return value;
}

static json_t *batch_job(void) {
  static const char *const names[] = {"SLURM_ARRAY_JOB_ID", "SLURM_JOB_ID", "PBS_JOBID", "LSB_JOBID"};
  for (size_t i = 0; i < sizeof names / sizeof *names; i++)
    if (getenv(names[i])) return result_json_text(getenv(names[i]));
  return json_string("");
}

attn_status provenance_collect(int argc, char *const *argv, const char *config_text, bool hostname,
                               json_t **result) {
  char digest[65];
  json_t *object = machine_facts();
  data_sha256(config_text, strlen(config_text), digest);
  bool complete = object != NULL;
  const struct {
    const char *name;
    json_t *value;
  } facts[] = {{"git_commit", json_string(ATTNLAB_GIT_COMMIT)},
               {"git_dirty", json_integer(ATTNLAB_GIT_DIRTY)},
               {"argv", command_line(argc, argv)},
               {"env_omp", environment()},
               {"job_id", batch_job()},
               {"start_time", result_json_number(timing_wall())},
               {"load_start", result_json_number(machine_load())},
               {"config_text", result_json_text(config_text)},
               {"config_sha256", json_string(digest)}};
  for (size_t i = 0; i < sizeof facts / sizeof *facts; i++)
    complete = object && json_object_set_new(object, facts[i].name, facts[i].value) == 0 && complete;
  if (complete && !hostname) complete = json_object_set_new(object, "hostname", json_string("")) == 0;
  if (!complete) {
    json_decref(object);
    return attn_fail(ATTN_ENOMEM, "no memory for the session's provenance");
  }
  *result = object;
  return ATTN_OK;
}
