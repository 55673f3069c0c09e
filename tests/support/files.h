/* files.h - a directory for a test's files, and whole files as bytes. A step that fails ends the test. */
#ifndef TESTS_SUPPORT_FILES_H
#define TESTS_SUPPORT_FILES_H

#include <stddef.h>

extern char fixture_directory[64];

/* Makes the directory; it is removed at the end of the process, or before by fixture_end. */
void fixture_begin(void);
void fixture_end(void);

/* Entries of the directory: nothing half-written may stay. */
int fixture_entries(void);

/* A path in the directory, which is made if need be. It lives until the eighth call after. */
const char *fixture_path(const char *name);

void fixture_write(const char *path, const void *at, size_t bytes);

/* An .npy file in the directory, with a shape such as "2, 3"; its path. */
const char *fixture_npy(const char *name, const char *descr, const char *shape, const void *at, size_t bytes);

/* Lines of a file; 0: there is none. */
size_t fixture_lines(const char *path);

/* A whole file, followed by a NUL; to be freed. */
void *fixture_bytes(const char *path, size_t *size);

/* A file as text, which lives as long as the program. */
char *fixture_text(const char *path);

#endif
