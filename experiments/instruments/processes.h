/* processes.h - a process with all that it started, as Linux's /proc knows them; elsewhere its process
 * group. */
#ifndef EXPERIMENTS_INSTRUMENTS_PROCESSES_H
#define EXPERIMENTS_INSTRUMENTS_PROCESSES_H

#include <stdint.h>
#include <sys/types.h>

/* A child of this process that leads a process group, its descendants, and those of them that lost their
 * parents to this process: their environment has the mark, NAME=VALUE. */
typedef struct process_tree {
  pid_t root;
  const char *mark;
} process_tree;

/* Whether this process becomes the parent of its orphaned descendants. */
void processes_adopt(int wanted);

/* Resident bytes, shared pages divided among those who share them; 0 if none lives or the system does not
 * say. */
int64_t processes_memory(const process_tree *);

/* Kills all of them, and reaps those that this process adopted. The root is left to be waited for. */
void processes_kill(const process_tree *);

#endif
