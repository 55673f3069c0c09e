/* page.c - report.html with its style, scripts and data filled in, under a Content-Security-Policy that
 * admits these alone: scripts and style by the SHA-256 of their text, no network. */
#define _POSIX_C_SOURCE 200809L
#include "experiments/report/page.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "data/data.h"
#include "experiments/support/base64.h"

/* How every page begins: report.html does. */
#define MARK "<!DOCTYPE html>\n<!-- attnlab report -->\n"

static const report_asset *asset(const char *name, size_t length) {
  const report_asset *a = report_assets;
  while (a->name && (strlen(a->name) != length || memcmp(a->name, name, length) != 0)) a++;
  return a->name ? a : NULL;
}

/* The source expression 'sha256-...' of a policy. */
static attn_status put_hash(FILE *out, const report_asset *a) {
  char hex[65], digits[3] = "";
  unsigned char bytes[32];
  data_sha256(a->bytes, a->size, hex);
  for (int i = 0; i < 32; i++) {
    memcpy(digits, hex + (ptrdiff_t)2 * i, 2);
    bytes[i] = (unsigned char)strtoul(digits, NULL, 16);
  }
  char *text = base64_encode(bytes, sizeof bytes);
  if (!text) return attn_fail(ATTN_ENOMEM, "out of memory for the policy of the report");
  fprintf(out, " 'sha256-%s'", text);
  free(text);
  return ATTN_OK;
}

static attn_status put_policy(FILE *out) {
  fputs("default-src 'none'; img-src data:; script-src", out);
  attn_status status = put_hash(out, asset("chart.js", 8));
  if (!status) status = put_hash(out, asset("report.js", 9));
  fputs("; style-src", out);
  return status ? status : put_hash(out, asset("report.css", 10));
}

/* '<' occurs only in texts. There it could end the element that holds them, or nest another one. */
static int put_json(const char *text, size_t size, void *file) {
  for (size_t i = 0; i < size; i++)
    if (text[i] == '<')
      fputs("\\u003c", file);
    else
      putc(text[i], file);
  return 0;
}

static void put_escaped(FILE *out, const char *text) {
  for (; *text; text++) switch (*text) {
    case '<':
      fputs("&lt;", out);
      break;
    case '&':
      fputs("&amp;", out);
      break;
    default:
      putc(*text, out);
    }
}

/* Copies the page. {{name}} is replaced by the asset or the value of that name. */
static attn_status put_page(FILE *out, json_t *data, const char *title) {
  const report_asset *page = asset("report.html", 11);
  const char *at = (const char *)page->bytes, *end = at + page->size;
  attn_status status = ATTN_OK;
  while (!status && at < end) {
    if (end - at < 2 || at[0] != '{' || at[1] != '{') {
      putc(*at++, out);
      continue;
    }
    const char *name = at + 2, *close = name;
    while (*close != '}') close++;
    const size_t length = (size_t)(close - name);
    const report_asset *a = asset(name, length);
    if (a)
      fwrite(a->bytes, 1, a->size, out);
    else if (strncmp(name, "policy", length) == 0)
      status = put_policy(out);
    else if (strncmp(name, "title", length) == 0)
      put_escaped(out, title);
    else if (json_dump_callback(data, put_json, out, JSON_COMPACT | JSON_REAL_PRECISION(5)))
      status = attn_fail(ATTN_ENOMEM, "out of memory for the data of the report");
    at = close + 2;
  }
  return status;
}

static bool is_report(const char *path, const file_map *content) {
  (void)path;
  return file_begins(content, MARK);
}

const output_kind kind_report = {"a report of attnlab", is_report};

/* The page in memory (to be freed), whole. */
static attn_status make_page(json_t *data, const char *title, char **text, size_t *size) {
  FILE *stream = open_memstream(text, size);
  attn_status status = stream ? put_page(stream, data, title) : ATTN_ENOMEM;
  const bool lost = !stream || ferror(stream);
  if (((stream && fclose(stream)) || lost) && (!status || status == ATTN_ENOMEM))
    status = attn_fail(ATTN_ENOMEM, "out of memory for the page of the report");
  return status;
}

attn_status report_write(const char *path, const result_set *set, const char *title) {
  results_model model;
  char *text = NULL;
  size_t size = 0;
  attn_status status = model_make(set, &model);
  if (status) return status;
  json_t *data = report_json(&model, title);
  model_free(&model);
  if (!data) return ATTN_ENOMEM;
  status = make_page(data, title, &text, &size);
  if (!status) status = output_write(path, &kind_report, &(file_part){text, size}, 1);
  free(text);
  json_decref(data);
  return status;
}
