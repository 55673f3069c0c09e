/* describe.h - what is described as a JSON object, a sheet, and sheets as text. */
#ifndef EXPERIMENTS_COMMANDS_DESCRIBE_H
#define EXPERIMENTS_COMMANDS_DESCRIBE_H

#include <jansson.h>

#include "experiments/checks/check.h"

/* A member of a sheet. Texts of plug-ins may hold anything: they are escaped. False without memory. */
bool sheet_put(json_t *to, const char *name, const char *text);
const char *sheet_get(const json_t *, const char *name);
/* A label and its paragraph, wrapped at blanks. */
void sheet_print_paragraph(const char *name, const char *text);

/* describe_check.c */

/* The check at a place of the list of all, those of whole models last, and its family; NULL behind the
 * last. */
const check *listed_check(size_t place, const char **family);
/* New sheets, or NULL without memory. */
json_t *sheet_of_check(const check *);
bool check_family_exists(const char *name);
/* Of all checks of a family, which exists. */
json_t *sheet_of_family(const char *name);
void print_check(json_t *sheet);
void print_family(json_t *sheet);

#endif
