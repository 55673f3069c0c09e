/* page.c - a page of a report with its style, scripts and data filled in, under a Content-Security-Policy
 * that admits these alone: scripts and style by the SHA-256 of their text, no network. */
#include "experiments/report/page.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "attn_tools.h"
#include "data/data.h"
#include "data/support/file.h"
#include "experiments/report/page_parts.h"
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

enum { PARTS_MAX = 64 };

/* The page in pieces: {{name}} is replaced by the asset or the value of that name. */
typedef struct page {
  file_part parts[PARTS_MAX];
  size_t count;
  char *policy, *title;
  const char *script, *data;
} page;

static void add_part(page *p, const void *at, size_t bytes) {
  if (p->count < PARTS_MAX) p->parts[p->count++] = (file_part){at, bytes};
}

static void add_named(page *p, const char *name, size_t length) {
  const bool script = strncmp(name, "script", length) == 0;
  const report_asset *a = script ? asset(p->script, strlen(p->script)) : asset(name, length);
  const char *text = strncmp(name, "policy", length) == 0  ? p->policy
                     : strncmp(name, "title", length) == 0 ? p->title
                                                           : p->data;
  if (a)
    add_part(p, a->bytes, a->size);
  else
    add_part(p, text, strlen(text));
}

static attn_status make_page(const char *data, const char *title, report_page kind, page *p) {
  static const char *const templates[] = {"report.html", "model.html", "plain.html", "plain.html"};
  static const char *const scripts[] = {"report.js", "model.js", "theory.js", "training.js"};
  const report_asset *template = asset(templates[kind], strlen(templates[kind]));
  const char *at = (const char *)template->bytes, *end = at + template->size, *start = at;
  *p = (page){.policy = make_policy(scripts[kind]),
              .title = replace(title, '<', "&lt;", '&', "&amp;"),
              .script = scripts[kind],
              .data = data};
  if (!p->policy || !p->title) return attn_fail(ATTN_ENOMEM, "out of memory for the page of the report");
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
}

static bool is_report(const char *path, const file_map *content) {
  (void)path;
  return file_begins(content, MARK);
}

const output_kind kind_report = {"a report of attnlab", is_report};

static attn_status write_page(const char *path, report_page kind, const char *data, const char *title) {
  page p;
  attn_status status = make_page(data, title, kind, &p);
  if (!status) status = output_write(path, &kind_report, p.parts, p.count);
  page_free(&p);
  return status;
}

/* What `put` writes, as a text. */
static attn_status make_data(page_writer put, const void *context, char **out) {
  size_t size;
  json_stream data = {.out = open_memstream(out, &size), .ok = true};
  if (data.out) put(&data, context);
  if (attn_stream_text(data.out, out) && data.ok) return ATTN_OK;
  if (data.out) free(*out);
  return attn_fail(ATTN_ENOMEM, "out of memory for the data of the report");
}

attn_status report_write_page(const char *path, report_page kind, page_writer put, const void *context,
                              const char *title) {
  char *data;
  attn_status status = make_data(put, context, &data);
  if (status) return status;
  status = write_page(path, kind, data, title);
  free(data);
  return status;
}

typedef struct sweep_page {
  const results_model *model;
  json_t *head;
} sweep_page;

/* The members of the head, and the runs, of which there may be many. */
static void put_sweep(json_stream *data, const void *context) {
  const sweep_page *x = context;
  const char *name;
  json_t *value;
  json_stream_open(data, '{');
  json_object_foreach(x->head, name, value) {
    json_stream_name(data, name);
    json_stream_value(data, json_incref(value));
  }
  json_stream_name(data, "runs");
  runs_put(data, x->model);
  json_stream_close(data, '}');
}

attn_status report_write(const char *path, const result_set *set, const char *title,
                         const report_limits *limits) {
  results_model model;
  attn_status status = model_make(set, &model);
  if (status) return status;
  json_t *head = report_json(&model, title, limits);
  status = head ? report_write_page(path, REPORT_SWEEP, put_sweep, &(sweep_page){&model, head}, title)
                : ATTN_ENOMEM;
  json_decref(head);
  model_free(&model);
  return status;
}
