/* command.c - the program in a child process. A step of the set-up that fails aborts the test. */
#include "tests/support/command.h"

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

enum { ARGUMENTS_MAX = 64 };

command_result result;

static void require(int ok, const char *what) {
  if (ok) return;
  perror(what);
  abort();
}

void command_enter(void) {
  fixture_begin();
  require(chdir(fixture_directory) == 0, fixture_directory);
}

void command_leave(void) {
  require(chdir("/") == 0, "/");
  fixture_end();
}

static void read_back(FILE *file, char *text, size_t size) {
  rewind(file);
  text[fread(text, 1, size - 1, file)] = '\0';
  fclose(file);
}

int command_exit_of(pid_t child) {
  int status;
  require(waitpid(child, &status, 0) == child, "waitpid");
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

static pid_t start(const char *arguments, int out, int err) {
  char copy[2048], *argv[ARGUMENTS_MAX] = {"attnlab"}, *rest = copy;
  require(snprintf(copy, sizeof copy, "%s", arguments) < (int)sizeof copy, "arguments");
  int argc = 1;
  for (char *word; (word = strtok_r(rest, " ", &rest)) && argc < ARGUMENTS_MAX - 1;) argv[argc++] = word;
  const pid_t child = fork();
  require(child >= 0, "fork");
  if (child == 0) {
    const int null = open("/dev/null", O_RDONLY);
    dup2(null, STDIN_FILENO);
    dup2(out, STDOUT_FILENO);
    dup2(err, STDERR_FILENO);
#ifdef LEAKS
    /* A leak ends in exit code 23. Not of sweeps and benchmarks, whose workers are timed; and children that
     * judge a case leave their memory to the system. */
    if (strncmp(arguments, "run ", 4) != 0 && strncmp(arguments, "bench ", 6) != 0)
      setenv("LD_PRELOAD", strncmp(arguments, "test ", 5) == 0 ? LEAKS : LEAKS CHILDREN, 1);
#endif
    execv(TEST_BINARY_DIR "/experiments/attnlab", argv);
    _exit(127);
  }
  return child;
}

pid_t command_start(const char *arguments) {
  const int null = open("/dev/null", O_WRONLY);
  require(null >= 0, "/dev/null");
  const pid_t child = start(arguments, null, null);
  close(null);
  return child;
}

void command_run(const char *arguments, command_result *to) {
  FILE *out = tmpfile(), *err = tmpfile();
  require(out && err, "tmpfile");
  const pid_t child = start(arguments, fileno(out), fileno(err));
  to->exit_code = command_exit_of(child);
  read_back(out, to->out, sizeof to->out);
  read_back(err, to->err, sizeof to->err);
}

int command_diagnostics(const command_result *to) {
  int count = 0;
  for (const char *line = to->err; *line;) {
    const char *end = strchr(line, '\n'), *read = strstr(line, " read as [");
    count += strncmp(line, "Try ", 4) != 0 && !(read && (!end || read < end));
    if (!end) break;
    line = end + 1;
  }
  return count;
}

void command_write_text(const char *name, const char *text) { fixture_write(name, text, strlen(text)); }

void command_write_npy(const char *name, const char *dictionary, const void *bytes, size_t size) {
  /* Format version 1.0: magic, version, little-endian header length, header padded with blanks to 64. */
  FILE *file = fopen(name, "wb");
  require(file != NULL, name);
  fprintf(file, "%s%c%c%c%c%-117s\n", "\x93NUMPY", 1, 0, 118, 0, dictionary);
  require(size == 0 || fwrite(bytes, 1, size, file) == size, name);
  require(fclose(file) == 0, name);
}

void command_write_safetensors(const char *name, const char *header, size_t size) {
  FILE *file = fopen(name, "wb");
  require(file != NULL, name);
  uint64_t length = strlen(header);
  for (int i = 0; i < 8; i++) fputc((int)(length >> (8 * i) & 255), file);
  fputs(header, file);
  for (size_t i = 0; i < size; i++) fputc(0, file);
  require(fclose(file) == 0, name);
}
