/* browser.h - drives headless Chromium through its DevTools protocol on a pair of pipes, for
 * tests/report/browser.c. */
#ifndef TESTS_SUPPORT_BROWSER_H
#define TESTS_SUPPORT_BROWSER_H

#include <jansson.h>

/* Starts the browser with a profile of its own below `directory`, without a network. Fails the test if it
 * cannot. */
void browser_start(const char *program, const char *directory);
void browser_stop(void);

/* Opens a page in a window of this width and waits until its script has finished. */
void browser_open(const char *path, int width, int height);

/* A method of the protocol; its result (a new reference). params is released; NULL is {}. */
json_t *browser_call(const char *method, json_t *params);

/* The value of a JavaScript expression as text, in a buffer that the next call overwrites. */
const char *browser_value(const char *expression);

/* A real click on the middle of the element that a CSS selector finds first; a real key in whatever has the
 * focus. */
void browser_click(const char *selector);
void browser_key(const char *key, int code);

/* Errors on the console and uncaught exceptions since the start, and the text of the last. */
int browser_errors(void);
const char *browser_error(void);

#endif
