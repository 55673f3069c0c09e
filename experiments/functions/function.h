/* function.h - a function of another program as a variant: its outputs are judged as any variant's are.
 *
 *   python:MODULE.FUNCTION   a function of Python, called by attnlab/serve.py in python3, or ATTNLAB_PYTHON
 *   command:PROGRAM          a program of the shell that speaks the protocol of README.md
 *   socket:N                 whoever has the other end of this descriptor, a socket, speaks it */
#ifndef EXPERIMENTS_FUNCTIONS_FUNCTION_H
#define EXPERIMENTS_FUNCTIONS_FUNCTION_H

#include "attn_variant.h"

/* Is this the name of such a function, not a spec? */
bool function_named(const char *operand);

/* Starts the program, asks it what it takes and what it claims to be, and registers a variant for the rest of
 * the process. *spec: the variant's name. limit: seconds of a call, after which it
 * counts as endless. EINVAL, EFOREIGN with what the program answered or did not. */
attn_status function_register(const char *operand, double limit, const char **spec);

/* attn_plugin_load, or function_register of what has such a name: what `--plugin` does. */
attn_status function_load(const char *plugin);
/* The name under which the variant was registered, and the digest that its program gives of it, or ""; NULL:
 * it is no function. */
const char *function_operand(const attn_variant *, const char **digest);

/* Is this a function whose program has ended, or did not come to the end of a call? */
bool function_lost(const attn_variant *);

#endif
