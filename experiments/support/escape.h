/* escape.h - texts from files and plug-ins, made harmless for terminals, tables and logs. */
#ifndef EXPERIMENTS_SUPPORT_ESCAPE_H
#define EXPERIMENTS_SUPPORT_ESCAPE_H

#include <stdbool.h>
#include <stdio.h>

/* Prints a text as one line: control characters (C0, DEL, C1), the marks that reorder bidirectional text,
 * line and paragraph separators and bytes that are not UTF-8 as \x1b or \u202e. */
void escape_put(FILE *, const char *text);

/* Prints a text as one word of the shell: what is more than a name, a path or a simple spec in single
 * quotes. */
void escape_put_word(FILE *, const char *text);

/* Prints a text in double quotes of YAML, which hold no apostrophe: it may stand in single quotes of the
 * shell. */
void escape_put_yaml(FILE *, const char *text);

/* What escape_put prints as a new string, to be freed; NULL without memory. */
char *escape_text(const char *text);

bool escape_is_utf8(const char *text);

#endif
