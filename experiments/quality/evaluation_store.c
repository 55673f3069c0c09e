/* evaluation_store.c - journals of evaluations and their files (evaluation_store.h). */
#define _POSIX_C_SOURCE 200809L
#include "experiments/quality/evaluation_store.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "experiments/runner/provenance.h"
#include "experiments/runner/sweep.h"

static void note(const quality_session *session, const char *before, const char *path, const char *after) {
  char line[300];
  snprintf(line, sizeof line, "%s%.200s%s", before, path, after);
  if (session->note) session->note(session->to, line);
}

/* The journal, as soon as no other process has it. */
static attn_status open_journal(quality_store *s, const char *path, const json_t *provenance) {
  attn_status status;
  bool told = false;
  while ((status = journal_open(path, &rows_of_evaluation, s->build, provenance, &s->journal)) ==
         ATTN_EEXIST) {
    if (!told) note(s->session, "", path, ": waiting for the process that writes to it");
    told = true;
    nanosleep(&(struct timespec){0, 200000000}, NULL);
  }
  if (!status && journal_torn(s->journal)) note(s->session, "1 torn line left out of ", path, "");
  return status;
}

static void close_journal(quality_store *s) {
  journal_close(s->journal);
  s->journal = NULL;
}

/* Writes the runs of the file into its journal, those of each session under its own header. */
static attn_status take_over(quality_store *s, const char *path) {
  quality_set set;
  attn_status status = quality_read(s->session->path, &set);
  if (status) return status;
  for (size_t k = 0; !status && k < json_array_size(set.sessions); k++) {
    close_journal(s);
    status = open_journal(s, path, json_array_get(set.sessions, k));
    for (size_t i = 0; !status && i < set.count; i++)
      if (set.records[i].session == (int64_t)k) status = journal_append(s->journal, &set.records[i]);
  }
  result_set_free(&set);
  return status;
}

static attn_status journal_path(const quality_session *session, char **path) {
  *path = NULL;
  return session->path ? sweep_path(session->path, 0, 1, "jsonl", path) : ATTN_OK; /* NAME.jsonl */
}

attn_status quality_store_open(const quality_session *session, quality_store *out) {
  quality_store s = {.session = session};
  char *path;
  attn_status status = journal_path(session, &path);
  if (!status && path)
    status = output_check(session->path, &kind_evaluation, session->inputs, session->input_count);
  if (!status && path) status = output_check(path, &kind_journal, session->inputs, session->input_count);
  if (!status) status = provenance_build(s.build);
  free(path);
  if (!status) *out = s;
  return status;
}

attn_status quality_store_begin(quality_store *s) {
  const quality_session *session = s->session;
  json_t *provenance = NULL;
  char *path;
  if (s->journal) return ATTN_OK;
  attn_status status = journal_path(session, &path);
  if (!status) status = provenance_collect(session->argc, session->argv, "", session->hostname, &provenance);
  if (!status) status = open_journal(s, path, provenance);
  if (!status && path && journal_session(s->journal) == 0 && access(session->path, F_OK) == 0) {
    status = take_over(s, path);
    close_journal(s);
    if (!status) status = open_journal(s, path, provenance);
  }
  json_decref(provenance);
  free(path);
  return status;
}

void quality_store_close(quality_store *s) {
  journal_close(s->journal);
  *s = (quality_store){.journal = NULL};
}

attn_status quality_store_set(const quality_store *s, quality_set *out) {
  return journal_set(s->journal, out);
}

attn_status quality_store_write(const quality_store *s) {
  quality_set set;
  if (!s->session->path) return ATTN_OK;
  attn_status status = quality_store_set(s, &set);
  if (status) return status;
  status = quality_write(s->session->path, &set);
  result_set_free(&set);
  return status;
}
