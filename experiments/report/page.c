/* page.c - a page of a report with its style, scripts and data filled in, under a Content-Security-Policy
 * that admits these alone: scripts and style by the SHA-256 of their text, no network. */
#define _POSIX_C_SOURCE 200809L
#include "experiments/report/page.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "data/support/json_text.h"
#include "data/data.h"
#include "data/support/file.h"
#include "experiments/support/base64.h"

/* How every page begins. */
#define MARK "<!DOCTYPE html>\n<!-- attnlab report -->\n"

static const report_asset *asset(const char *name, size_t length) {
  const report_asset *a = report_assets;
  while (a->name && (strlen(a->name) != length || memcmp(a->name, name, length) != 0)) a++;
  return a->name ? a : NULL;
}

/* The source expression 'sha256-...' of a policy, to be freed. */
static char *hash_of(const report_asset *a) {
  char hex[65], digits[3] = "";
  unsigned char bytes[32];
  data_sha256(a->bytes, a->size, hex);
  for (int i = 0; i < 32; i++) {
    memcpy(digits, hex + (ptrdiff_t)2 * i, 2);
    bytes[i] = (unsigned char)strtoul(digits, NULL, 16);
  }
  char *text = base64_encode(bytes, sizeof bytes);
  char *hash = text ? text_format("'sha256-%s'", text) : NULL;
  free(text);
  return hash;
}

static char *make_policy(const char *script) {
  char *own = hash_of(asset(script, strlen(script))), *style = hash_of(asset("report.css", 10)),
       *policy = NULL;
  if (own && style)
    policy = text_format("default-src 'none'; img-src data:; script-src %s; style-src %s", own, style);
  free(own);
  free(style);
  return policy;
}

/* A copy in which two characters are written otherwise; to be freed. */
static char *replace(const char *text, char first, const char *by_first, char second, const char *by_second) {
  const size_t longest = strlen(by_first) > strlen(by_second) ? strlen(by_first) : strlen(by_second);
  size_t count = 0;
  for (const char *c = text; *c; c++) count += (size_t)(*c == first || *c == second);
  char *made = malloc(strlen(text) + count * longest + 1), *end = made;
  for (; made && *text; text++) {
    const char *by = *text == first ? by_first : *text == second ? by_second : NULL;
    if (by) {
      strcpy(end, by);
      end += strlen(by);
    } else {
      *end++ = *text;
    }
  }
  if (made) *end = '\0';
  return made;
}

/* '<' occurs only in texts. There it could end the element that holds them, or nest another one. */
static char *make_data(const json_t *data) {
  char *text = json_print(data, JSON_COMPACT | JSON_REAL_PRECISION(5));
  char *made = text ? replace(text, '<', "\\u003c", '<', "\\u003c") : NULL;
  free(text);
  return made;
}

enum { PARTS_MAX = 64 };

/* The page in pieces: {{name}} is replaced by the asset or the value of that name. */
typedef struct page {
  file_part parts[PARTS_MAX];
  size_t count;
  char *policy, *title, *data;
} page;

static void add_part(page *p, const void *at, size_t bytes) {
  if (p->count < PARTS_MAX) p->parts[p->count++] = (file_part){at, bytes};
}

static void add_named(page *p, const char *name, size_t length) {
  const report_asset *a = asset(name, length);
  const char *text = strncmp(name, "policy", length) == 0  ? p->policy
                     : strncmp(name, "title", length) == 0 ? p->title
                                                           : p->data;
  if (a)
    add_part(p, a->bytes, a->size);
  else
    add_part(p, text, strlen(text));
}

static attn_status make_page(const json_t *data, const char *title, report_page kind, page *p) {
  static const char *const templates[] = {"report.html", "model.html"};
  static const char *const scripts[] = {"report.js", "model.js"};
  const report_asset *template = asset(templates[kind], strlen(templates[kind]));
  const char *at = (const char *)template->bytes, *end = at + template->size, *start = at;
  *p = (page){.policy = make_policy(scripts[kind]),
              .title = replace(title, '<', "&lt;", '&', "&amp;"),
              .data = make_data(data)};
  if (!p->policy || !p->title || !p->data)
    return attn_fail(ATTN_ENOMEM, "out of memory for the page of the report");
  while (at < end) {
    if (end - at < 2 || at[0] != '{' || at[1] != '{') {
      at++;
      continue;
    }
    const char *name = at + 2, *close = name;
    while (*close != '}') close++;
    add_part(p, start, (size_t)(at - start));
    add_named(p, name, (size_t)(close - name));
    start = at = close + 2;
  }
  add_part(p, start, (size_t)(end - start));
  return ATTN_OK;
}

static void page_free(page *p) {
  free(p->policy);
  free(p->title);
  free(p->data);
}

static bool is_report(const char *path, const file_map *content) {
  (void)path;
  return file_begins(content, MARK);
}

const output_kind kind_report = {"a report of attnlab", is_report};

attn_status report_write_page(const char *path, report_page kind, const json_t *data, const char *title) {
  page p;
  attn_status status = make_page(data, title, kind, &p);
  if (!status) status = output_write(path, &kind_report, p.parts, p.count);
  page_free(&p);
  return status;
}

attn_status report_write(const char *path, const result_set *set, const char *title,
                         const report_limits *limits) {
  results_model model;
  attn_status status = model_make(set, &model);
  if (status) return status;
  json_t *data = report_json(&model, title, limits);
  model_free(&model);
  if (!data) return ATTN_ENOMEM;
  status = report_write_page(path, REPORT_SWEEP, data, title);
  json_decref(data);
  return status;
}
