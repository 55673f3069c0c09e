/* browser.c - messages are JSON, each ended by a NUL: to the browser on its descriptor 3, from it on 4. */
#include "tests/support/browser.h"

#include <criterion/criterion.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "tests/support/files.h"

static struct {
  pid_t pid;
  int out;
  FILE *in;
  char session[128]; /* empty: the browser itself */
  json_int_t next;
  int errors;
  char error[1024];
} browser;

static void run_child(const int to[2], const int from[2]) {
  char profile[512];
  snprintf(profile, sizeof profile, "--user-data-dir=%s", fixture_path("profile"));
  /* First out of the way of 3 and 4. */
  const int in = fcntl(to[0], F_DUPFD, 10), out = fcntl(from[1], F_DUPFD, 10),
            null = open("/dev/null", O_WRONLY);
  if (in < 0 || out < 0 || null < 0 || dup2(null, 2) < 0 || dup2(in, 3) < 0 || dup2(out, 4) < 0) _exit(127);
  setenv("HOME", fixture_directory, 1);
  execlp(CHROMIUM, CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
         "--no-first-run", "--hide-scrollbars", "--remote-debugging-pipe", profile, "about:blank",
         (char *)NULL);
  _exit(127);
}

static void note_event(const json_t *message) {
  const char *method = json_string_value(json_object_get(message, "method"));
  const json_t *params = json_object_get(message, "params");
  if (!method) return;
  const char *type = json_string_value(json_object_get(params, "type"));
  const char *level = json_string_value(json_object_get(json_object_get(params, "entry"), "level"));
  if (strcmp(method, "Runtime.exceptionThrown") == 0 ||
      (strcmp(method, "Runtime.consoleAPICalled") == 0 && type && strcmp(type, "error") == 0) ||
      (strcmp(method, "Log.entryAdded") == 0 && level && strcmp(level, "error") == 0)) {
    char *text = json_dumps(params, 0);
    snprintf(browser.error, sizeof browser.error, "%s", text ? text : "");
    free(text);
    browser.errors++;
  }
}

json_t *browser_call(const char *method, json_t *params) {
  json_t *request = json_pack("{s:I, s:s, s:o}", "id", ++browser.next, "method", method, "params",
                              params ? params : json_object());
  if (*browser.session) json_object_set_new(request, "sessionId", json_string(browser.session));
  char *text = json_dumps(request, JSON_COMPACT), *line = NULL;
  size_t room = 0, size = strlen(text) + 1;
  json_decref(request);
  for (size_t done = 0; done < size;) {
    const ssize_t count = write(browser.out, text + done, size - done);
    cr_assert_gt(count, 0, "%s: the browser has gone", method);
    done += (size_t)count;
  }
  free(text);
  json_t *result = NULL;
  while (!result) {
    cr_assert_gt(getdelim(&line, &room, '\0', browser.in), 0, "%s: the browser has gone", method);
    json_t *message = json_loads(line, 0, NULL);
    note_event(message);
    if (json_integer_value(json_object_get(message, "id")) == browser.next) {
      result = json_incref(json_object_get(message, "result"));
      cr_assert_not_null(result, "%s: %s", method, line);
    }
    json_decref(message);
  }
  free(line);
  return result;
}

static void call(const char *method, json_t *params) { json_decref(browser_call(method, params)); }

void browser_start(void) {
  int to[2], from[2];
  fixture_begin();
  signal(SIGPIPE, SIG_IGN);
  cr_assert(pipe(to) == 0 && pipe(from) == 0);
  browser.pid = fork();
  cr_assert_geq(browser.pid, 0);
  if (browser.pid == 0) run_child(to, from);
  close(to[0]);
  close(from[1]);
  browser.out = to[1];
  browser.in = fdopen(from[0], "r");
  cr_assert_not_null(browser.in);

  json_t *target = browser_call("Target.createTarget", json_pack("{s:s}", "url", "about:blank"));
  json_t *attached =
      browser_call("Target.attachToTarget",
                   json_pack("{s:O, s:b}", "targetId", json_object_get(target, "targetId"), "flatten", 1));
  snprintf(browser.session, sizeof browser.session, "%s",
           json_string_value(json_object_get(attached, "sessionId")));
  json_decref(target);
  json_decref(attached);
  call("Runtime.enable", NULL);
  call("Log.enable", NULL);
  call("Page.enable", NULL);
  call("Network.enable", NULL);
  call("Network.emulateNetworkConditions", json_pack("{s:b, s:i, s:i, s:i}", "offline", 1, "latency", 0,
                                                     "downloadThroughput", -1, "uploadThroughput", -1));
}

void browser_stop(void) {
  browser.session[0] = '\0';
  call("Browser.close", NULL);
  close(browser.out);
  fclose(browser.in);
  waitpid(browser.pid, NULL, 0);
}

const char *browser_value(const char *expression) {
  json_t *result =
      browser_call("Runtime.evaluate", json_pack("{s:s, s:b}", "expression", expression, "returnByValue", 1));
  const json_t *value = json_object_get(json_object_get(result, "result"), "value");
  char *other = json_is_string(value) ? NULL : json_dumps(value, JSON_ENCODE_ANY);
  const char *text = text_of("%s", json_is_string(value) ? json_string_value(value)
                                   : other               ? other
                                                         : "undefined");
  free(other);
  json_decref(result);
  return text;
}

void browser_open(const char *path, int width, int height) {
  call("Emulation.setDeviceMetricsOverride", json_pack("{s:i, s:i, s:i, s:b}", "width", width, "height",
                                                       height, "deviceScaleFactor", 1, "mobile", 0));
  call("Page.navigate", json_pack("{s:s}", "url", text_of("file://%s", path)));
  const struct timespec pause = {0, 20000000};
  bool ready = false;
  for (int i = 0;
       i < 3000 && !(ready = !strcmp(browser_value("document.documentElement.dataset.ready"), "yes")); i++)
    nanosleep(&pause, NULL);
  cr_assert(ready, "%s: the script did not finish: %s", path, browser.error);
}

/* Presses where the element is once nothing waits to be drawn, which would move it, and nothing covers it,
 * and waits until the page has taken the click. */
void browser_click(const char *selector) {
  double x, y;
  const char *expression =
      text_of("(() => { const e = document.querySelector('%s'); if (!e || (typeof waiting === 'object' && "
              "waiting.size)) return ''; e.scrollIntoView({block: 'center', behavior: 'instant'}); const r = "
              "e.getBoundingClientRect(), x = r.x + r.width / 2, y = r.y + r.height / 2; if "
              "(!e.contains(document.elementFromPoint(x, y))) return ''; window.clicked = false; "
              "e.addEventListener('click', () => { window.clicked = true; }, {once: true, capture: true}); "
              "return `${x} ${y}`; })()",
              selector);
  const struct timespec pause = {.tv_nsec = 20000000};
  const char *place = browser_value(expression);
  for (int i = 0; i < 500 && !*place; i++) {
    nanosleep(&pause, NULL);
    place = browser_value(expression);
  }
  cr_assert_eq(sscanf(place, "%lf %lf", &x, &y), 2, "nothing is '%s', or what is cannot be clicked",
               selector);
  static const char *const types[] = {"mousePressed", "mouseReleased"};
  for (int i = 0; i < 2; i++)
    call("Input.dispatchMouseEvent", json_pack("{s:s, s:f, s:f, s:s, s:i}", "type", types[i], "x", x, "y", y,
                                               "button", "left", "clickCount", 1));
  browser_expect("window.clicked", "true");
}

void browser_key(const char *key, int code) {
  static const char *const types[] = {"keyDown", "keyUp"};
  const char *text = strcmp(key, "Enter") == 0 ? "\r" : strlen(key) == 1 ? key : "";
  for (int i = 0; i < 2; i++)
    call("Input.dispatchKeyEvent", json_pack("{s:s, s:s, s:s, s:i}", "type", types[i], "key", key, "text",
                                             i == 0 ? text : "", "windowsVirtualKeyCode", code));
}

int browser_errors(void) { return browser.errors; }
const char *browser_error(void) { return browser.error; }

void browser_expect_quiet(void) { cr_expect_eq(browser_errors(), 0, "%s", browser_error()); }

/* A page answers a click when it has drawn itself, which takes longer on a busy machine: up to 5 s. */
void browser_expect(const char *expression, const char *value) {
  const char *got = browser_value(expression);
  for (int i = 0; i < 50 && strcmp(got, value) != 0; i++) {
    nanosleep(&(struct timespec){.tv_nsec = 100000000}, NULL);
    got = browser_value(expression);
  }
  cr_expect_str_eq(got, value, "%s: %s, not %s", expression, got, value);
  browser_expect_quiet();
}
