/* function_program.c - see function_program.h, and README.md for the protocol.
 *
 * A forked child may call, too, as long as one process calls at a time. Where it is killed in a call, the
 * next caller waits for the program to catch up before the memory is written again. */
#include "experiments/functions/function_program.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "data/support/file.h"
#include "experiments/functions/function_tensors.h"

static const double start_limit = 120; /* seconds that a program may load its libraries */
/* The beginning of the shared memory. */
typedef struct header {
  uint64_t pending; /* the call whose answer nobody has taken; 0: none */
  char lost[256];   /* why no further call is made, as every process says it; "": they are */
} header;
_Static_assert(sizeof(header) <= FUNCTION_HEADER, "the tensors stand behind it");

/* -- memory -- */

static attn_status reserve(function_program *f, size_t bytes) {
  struct stat about;
  if (bytes <= f->mapped) return ATTN_OK;
  if (fstat(f->file, &about) || ((size_t)about.st_size < bytes && ftruncate(f->file, (off_t)bytes)))
    return attn_fail(ATTN_ENOMEM, "no memory to share with function %s: %s", f->name, strerror(errno));
  if (f->memory) munmap(f->memory, f->mapped);
  f->mapped = 0;
  f->memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, f->file, 0);
  if (f->memory == MAP_FAILED) {
    f->memory = NULL;
    return attn_fail(ATTN_ENOMEM, "no memory to share with function %s: %s", f->name, strerror(errno));
  }
  f->mapped = bytes;
  return ATTN_OK;
}

static attn_status make_memory(function_program *f, char path[PATH_MAX]) {
  const char *directory = getenv("TMPDIR");
  if (access("/dev/shm", W_OK) == 0) directory = "/dev/shm";
  snprintf(path, PATH_MAX, "%s/attnlab-XXXXXX", directory && *directory ? directory : "/tmp");
  f->file = mkstemp(path);
  if (f->file < 0) return attn_fail(ATTN_EFOREIGN, "%s: %s", path, strerror(errno));
  const attn_status status = reserve(f, FUNCTION_HEADER);
  if (status) unlink(path);
  return status;
}

/* -- the declaration -- */

typedef struct word {
  const char *name;
  uint32_t bit;
} word;

/* The bits of words with commas between them. */
static attn_status read_words(char *list, const word *all, uint32_t *bits) {
  char *rest = NULL;
  for (char *item = strtok_r(list, ",", &rest); item; item = strtok_r(NULL, ",", &rest)) {
    const word *x = all;
    while (x->name && strcmp(x->name, item) != 0) x++;
    if (!x->name) return attn_fail(ATTN_EINVAL, "it says '%.40s', which is unknown", item);
    *bits |= x->bit;
  }
  return ATTN_OK;
}

static attn_status read_takes(function_program *f, char *list) {
  static const word all[] = {{"causal", TAKES_CAUSAL},
                             {"full", TAKES_FULL},
                             {"cross", TAKES_CROSS},
                             {"groups", TAKES_GROUPS},
                             {"widths", TAKES_WIDTHS},
                             {"scale", TAKES_SCALE},
                             {"kv_len", TAKES_KV_LEN},
                             {"last", TAKES_LAST},
                             {"f32", TAKES_F32},
                             {"f64", TAKES_F64},
                             {"empty", TAKES_EMPTY},
                             {"f16", TAKES_F16},
                             {"bf16", TAKES_BF16},
                             {"sees", TAKES_SEES},
                             {"sees_heads", TAKES_SEES_HEADS},
                             {"drawn", TAKES_DRAWN},
                             {NULL, 0}};
  const attn_status status = read_words(list, all, &f->takes);
  if (status) return status;
  f->arithmetic = f->takes & TAKES_F16 ? ATTN_F16 : f->takes & TAKES_BF16 ? ATTN_BF16 : ATTN_F32;
  if (!(f->takes & (TAKES_CAUSAL | TAKES_FULL)) || !(f->takes & (TAKES_F32 | TAKES_F64)))
    return attn_fail(ATTN_EINVAL, "it takes neither causal nor full attention, or neither f32 nor f64");
  return ATTN_OK;
}

/* reasons: of each in turn, behind tabs. */
static attn_status read_exempt(function_program *f, char *list, const char *reasons) {
  static const word all[] = {{"lookahead", ATTN_EXEMPT_LOOKAHEAD}, {"prefix", ATTN_EXEMPT_PREFIX},
                             {"rows", ATTN_EXEMPT_ROWS},           {"batch", ATTN_EXEMPT_BATCH},
                             {"length", ATTN_EXEMPT_LENGTH},       {"groups", ATTN_EXEMPT_GROUPS},
                             {"causal", ATTN_EXEMPT_CAUSAL},       {"values", ATTN_EXEMPT_VALUES},
                             {"heads", ATTN_EXEMPT_HEADS},         {NULL, 0}};
  char *rest = NULL, *next = NULL;
  int count = 0;
  if (!(f->reasons = strdup(reasons))) return attn_fail(ATTN_ENOMEM, "no memory for exemptions");
  for (char *item = strtok_r(list, ",", &rest); item; item = strtok_r(NULL, ",", &rest)) {
    if (count == PROPERTIES) return attn_fail(ATTN_EINVAL, "it is exempt from more than there is");
    const attn_status status = read_words(item, all, &f->exempt[count].properties);
    if (status) return status;
    const char *why = strtok_r(count ? NULL : f->reasons, "\t", &next);
    f->exempt[count++].reason = why ? why : "the function declares that it cannot keep this";
  }
  return ATTN_OK;
}

/* "function name=NAME takes=LIST [digest=HEX] [exempt=LIST] [spec=SPEC]", the spec up to the end of the line
 * or a tab, behind which reasons stand; or "failed WHY". */
static attn_status read_declaration(function_program *f, char *line) {
  char takes[256], exempt[128] = "", *reasons = line + strcspn(line, "\t");
  int end = 0, more = 0;
  if (strncmp(line, "failed ", 7) == 0) return attn_fail(ATTN_EINVAL, "%s", line + 7);
  if (*reasons) *reasons++ = '\0';
  if (sscanf(line, "function name=%46s takes=%255s%n", f->name, takes, &end) < 2 || !end)
    return attn_fail(ATTN_EFOREIGN, "expected \"function name=... takes=...\", got '%.80s'", line);
  if (sscanf(line + end, " digest=%64[0-9a-f]%n", f->digest, &more) == 1) end += more;
  if (sscanf(line + end, " exempt=%127s%n", exempt, &more) == 1) end += more;
  const char *spec = line + end;
  if (*spec && strncmp(spec, " spec=", 6) != 0)
    return attn_fail(ATTN_EFOREIGN, "expected \" spec=...\" at '%.80s'", spec);
  snprintf(f->spec, sizeof f->spec, "%s", *spec ? spec + 6 : "");
  const attn_status status = read_takes(f, takes);
  return status ? status : read_exempt(f, exempt, reasons);
}

/* -- start and end -- */

static const char serving[] =
    "import sys\n"
    "try: from attnlab.serve import main\n"
    "except ImportError as error: sys.exit(print(f'failed {sys.executable} (ATTNLAB_PYTHON names another) '\n"
    " f'cannot import attnlab (PYTHONPATH has its directory): {error}'))\n"
    "main()";

static attn_status start(const char *operand, function_program *f) {
  const char *named = getenv("ATTNLAB_PYTHON"), *rest = strchr(operand, ':') + 1;
  if (strncmp(operand, "socket:", 7) == 0) {
    char *end;
    const long number = strtol(rest, &end, 10);
    if (!*rest || *end || number < 3 || number > INT_MAX)
      return attn_fail(ATTN_EINVAL, "expected the number of a descriptor, got '%s'", rest);
    f->talk = (dialogue){.socket = (int)number};
    return ATTN_OK;
  }
  const bool python = strncmp(operand, "python:", 7) == 0;
  char *command = python ? strdup(rest) : text_format("exec %s", rest);
  if (!command) return attn_fail(ATTN_ENOMEM, "no memory for a command");
  const char *by_python[] = {named && *named ? named : "python3", "-c", serving, command, NULL},
             *by_shell[] = {"/bin/sh", "-c", command, NULL};
  const attn_status status = dialogue_start((char **)(uintptr_t)(python ? by_python : by_shell), &f->talk);
  free(command);
  return status;
}

static attn_status greet(function_program *f, const char *path) {
  char question[PATH_MAX + 64], answer[FUNCTION_LINE];
  snprintf(question, sizeof question, "hello 1 limit=%g memory=%s\n", f->limit, path);
  const attn_status status = dialogue_ask(&f->talk, question, start_limit, answer, sizeof answer);
  return status ? status : read_declaration(f, answer);
}

attn_status function_program_start(const char *operand, double limit, function_program *out) {
  function_program f = {.file = -1, .limit = limit, .name = "?"};
  char path[PATH_MAX], why[FUNCTION_LINE];
  attn_status status = start(operand, &f);
  if (!status) {
    status = make_memory(&f, path);
    if (!status) {
      status = greet(&f, path);
      unlink(path);
    }
    if (status) {
      snprintf(why, sizeof why, "%s", attn_last_error());
      const int code = function_program_end(&f);
      char known[64] = "";
      if (code)
        snprintf(known, sizeof known, " (exit code %d%s)", code,
                 code == 127 ? ": there is no such command" : "");
      status = attn_fail(status, "%s%s", why, known);
    }
  }
  if (!status) {
    *out = f;
    return ATTN_OK;
  }
  snprintf(why, sizeof why, "%s", attn_last_error());
  return attn_fail(status, "%s: %s", operand, why);
}

int function_program_end(function_program *f) {
  const int code = dialogue_end(&f->talk);
  free(f->reasons);
  if (f->memory) munmap(f->memory, f->mapped);
  if (f->file >= 0) close(f->file);
  *f = (function_program){.file = -1};
  return code;
}

/* -- calls -- */

static void write_question(const attn_call *call, const function_places *x, bool scaled, uint64_t number,
                           char line[FUNCTION_LINE]) {
  const attn_problem *p = call->context->problem;
  snprintf(line, FUNCTION_LINE,
           "call %" PRIu64 " dtype=%s causal=%d scale=%.17g batch=%" PRId64 " heads=%" PRId64
           " kv_heads=%" PRId64 " n_q=%" PRId64 " n_kv=%" PRId64 " d_qk=%" PRId64 " d_v=%" PRId64
           " q=%zu k=%zu v=%zu o=%zu kv_len=%zu padded=%d bytes=%zu\n",
           number, attn_numbers[p->dtype].name, p->causal, scaled ? p->scale : function_usual_scale(p),
           p->batch, p->heads, p->kv_heads, p->n_q, p->n_kv, p->d_qk, p->d_v, x->q, x->k, x->v, x->o,
           x->kv_len, call->kv_len != NULL, x->end);
}

/* The answer to a call, past those of calls that were given up. */
static attn_status take_answer(function_program *f, uint64_t number, const char *question, char *answer) {
  for (;;) {
    uint64_t of = 0;
    char kind[16] = "";
    int end = 0;
    const attn_status status = dialogue_ask(&f->talk, question, 2 * f->limit, answer, FUNCTION_LINE);
    question = NULL;
    if (status) return status;
    if (sscanf(answer, "%15s %" SCNu64 "%n", kind, &of, &end) < 2)
      return attn_fail(ATTN_EFOREIGN, "it wrote '%.80s', which is no answer", answer);
    if (of != number) continue;
    const char *why = answer + end + (answer[end] == ' ');
    if (strcmp(kind, "done") == 0) return ATTN_OK;
    if (strcmp(kind, "refused") == 0) return attn_fail(ATTN_EUNSUPPORTED, "%s", why);
    return attn_fail(strcmp(kind, "endless") == 0 ? ATTN_EFOREIGN : ATTN_EINVAL, "%s", why);
  }
}

static uint64_t new_number(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (uint64_t)t.tv_sec * UINT64_C(1000000000) + (uint64_t)t.tv_nsec;
}

static header *header_of(const function_program *f) { return (header *)(void *)f->memory; }

static attn_status note_lost(function_program *f, attn_status status) {
  if (status == ATTN_EFOREIGN)
    snprintf(header_of(f)->lost, sizeof header_of(f)->lost, "%s", attn_last_error());
  return status;
}

/* After a call whose caller was killed, wherever it was: whatever the program still answers comes before the
 * answer to this. The empty line ends a question that was sent in part. */
static attn_status catch_up(function_program *f) {
  char question[FUNCTION_LINE], answer[FUNCTION_LINE];
  const uint64_t number = new_number();
  snprintf(question, sizeof question, "\nsync %" PRIu64 "\n", number);
  const attn_status status = take_answer(f, number, question, answer);
  header_of(f)->pending = 0;
  return note_lost(f, status);
}

/* Makes room for `bytes` in the memory, and waits until the program no longer uses it. */
static attn_status begin(function_program *f, size_t bytes) {
  if (bytes > PTRDIFF_MAX) return attn_fail(ATTN_ENOMEM, "too large a problem");
  attn_status status = reserve(f, bytes);
  if (status) return status;
  if (*header_of(f)->lost) return attn_fail(ATTN_EFOREIGN, "%s", header_of(f)->lost);
  return header_of(f)->pending ? catch_up(f) : ATTN_OK;
}

static attn_status ask(function_program *f, uint64_t number, const char *question) {
  char answer[FUNCTION_LINE];
  header_of(f)->pending = number;
  const attn_status status = take_answer(f, number, question, answer);
  header_of(f)->pending = 0;
  return note_lost(f, status);
}

/* Is a value, as it is written, beyond the type that the function rounds to? */
static bool is_beyond(const function_program *f, const attn_problem *p, const void *v) {
  const double most = attn_numbers[f->arithmetic].largest;
  for (int64_t i = 0; i < p->batch * p->kv_heads * p->n_kv * p->d_v; i++)
    if (fabs(attn_get(v, i, p->dtype)) > most) return true;
  return false;
}

/* A call that cannot be made, though calls of its kind of problem can. */
static attn_status refuse_call(const function_program *f, const attn_call *call, const void *v) {
  const attn_problem *p = call->context->problem;
  for (int64_t b = 0; !(f->takes & TAKES_EMPTY) && b < p->batch; b++)
    if (call->kv_len && !call->kv_len[b])
      return attn_fail(ATTN_EUNSUPPORTED, "it takes no batch entry without keys");
  if (p->dtype == ATTN_F32 && is_beyond(f, p, v))
    return attn_fail(ATTN_EUNSUPPORTED, "it takes no values beyond %s", attn_numbers[f->arithmetic].name);
  return ATTN_OK;
}

static attn_status call_within(function_program *f, const attn_call *call) {
  const function_places x = function_places_of(call->context->problem);
  const bool scaled = f->takes & TAKES_SCALE || *f->spec;
  const uint64_t number = new_number();
  char question[FUNCTION_LINE];
  attn_status status = begin(f, x.end);
  if (status) return status;
  function_operands_write(call, &x, scaled, f->memory);
  if ((status = refuse_call(f, call, f->memory + x.v))) return status;
  write_question(call, &x, scaled, number, question);
  status = ask(f, number, question);
  if (!status) function_output_read(call, f->memory + x.o);
  return status;
}

static attn_status see_within(function_program *f, int64_t n, int64_t head, uint8_t *out) {
  const size_t each = attn_size_times((size_t)n, (size_t)n), end = attn_size_sum(FUNCTION_HEADER, each);
  const uint64_t number = new_number();
  char question[FUNCTION_LINE];
  attn_status status = begin(f, end);
  if (status) return status;
  snprintf(question, sizeof question, "sees %" PRIu64 " head=%" PRId64 " n=%" PRId64 " at=%d bytes=%zu\n",
           number, head, n, FUNCTION_HEADER, end);
  status = ask(f, number, question);
  if (!status) memcpy(out, f->memory + FUNCTION_HEADER, each);
  return status;
}

/* What went wrong, of this function; a contract that was broken is a fault of the foreign program. */
static attn_status name_failure(const function_program *f, attn_status status) {
  char why[FUNCTION_LINE];
  if (!status) return ATTN_OK;
  snprintf(why, sizeof why, "%s", attn_last_error());
  return attn_fail(status == ATTN_EINVAL ? ATTN_EFOREIGN : status, "function %s: %s", f->name, why);
}

attn_status function_program_call(function_program *f, const attn_call *call) {
  return name_failure(f, call_within(f, call));
}

attn_status function_program_sees(function_program *f, int64_t n, int64_t head, uint8_t *out) {
  return name_failure(f, see_within(f, n, head, out));
}

bool function_program_lost(const function_program *f) { return *header_of(f)->lost; }
