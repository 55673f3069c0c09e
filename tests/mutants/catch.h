/* catch.h - runs one check, property or test against the library in this process. */
#ifndef TESTS_MUTANTS_CATCH_H
#define TESTS_MUTANTS_CATCH_H

#include <stdbool.h>

typedef enum { CATCH_SILENT, CATCH_REPORTS, CATCH_UNABLE } catch_answer; /* exit codes of a child that asks */

/* catcher: a bound check ("FP-2"), a property of tests/support/properties.h ("threads"), a test
 * ("core_patterns/longformer"), commands of tests/cli/ ("cases/declared:Costs"), or a bound check as an
 * evaluation of the bundled model asks it ("eval:EVICT-2"). setting: what the check judges
 * ("tiled:block_k=16"), or the variant that the property looks at; "" for others. UNABLE, with the reason on
 * stderr: there is no such catcher, or it could not run. *problems: of a bound check, the most that are
 * judged of those that the setting admits (0: all), and then as many as were judged: it ends with the first
 * that settles the answer. */
catch_answer catch_ask(const char *catcher, const char *setting, int *problems);

/* Is most of its time that of large products: a model's, or those of a statement of theory? */
bool catch_multiplies(const char *catcher);

#endif
