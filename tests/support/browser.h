/* browser.h - drives headless Chromium through its DevTools protocol on a pair of pipes, for tests of the
 * pages. */
#ifndef TESTS_SUPPORT_BROWSER_H
#define TESTS_SUPPORT_BROWSER_H

#include <jansson.h>

#include "tests/support/basics/text.h"

/* Starts the browser with a fresh profile in the fixture's directory, without a network. Fails the test if it
 * cannot. */
void browser_start(void);
void browser_stop(void);

/* Opens a page in a window of this width and waits until its script has finished. */
void browser_open(const char *path, int width, int height);

/* A method of the protocol; its result (a new reference). params is released; NULL is {}. */
json_t *browser_call(const char *method, json_t *params);

/* The value of a JavaScript expression as text, which lives as long as the program. */
const char *browser_value(const char *expression);

/* A real click on the middle of the element that a CSS selector finds first; a real key in whatever has the
 * focus. */
void browser_click(const char *selector);
void browser_key(const char *key, int code);

/* Errors on the console and uncaught exceptions since the start, and the text of the last. */
int browser_errors(void);
const char *browser_error(void);

/* Fails unless the expression has this value, or if the page has reported an error. */
void browser_expect(const char *expression, const char *value);
void browser_expect_quiet(void);

/* Pixels with a hue: axes and text are grey, marks are not. */
#define BROWSER_PAINTED                                                                                  \
  "(c => { const p = c.getContext('2d').getImageData(0, 0, c.width, c.height).data; let n = 0;"          \
  " for (let i = 0; i < p.length; i += 4)"                                                               \
  " n += p[i + 3] > 99 && Math.max(p[i], p[i + 1], p[i + 2]) - Math.min(p[i], p[i + 1], p[i + 2]) > 40;" \
  " return n; })"
/* The ids of plots and pictures without marks, or with marks outside, once all are drawn. */
#define BROWSER_BARE_PLOTS                                                                                   \
  "(drawAll(), [...document.querySelectorAll('.plot, canvas')].filter(c => !(c.dataset.marks > 0 && "        \
  "(c.tagName === 'CANVAS' ? " BROWSER_PAINTED "(c) > 50 : (({marks, picture: {viewBox: {baseVal: b}}}) => " \
  "marks.length == c.dataset.marks && marks.every(m => m.px > 0 && m.px < b.width && m.py > 0 && m.py < "    \
  "b.height))(plots.get(c.id))))).map(c => c.id).join())"

#endif
