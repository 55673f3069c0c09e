/* journal.c - the journal: resuming, torn lines, full disks, a second process, foreign and newer files. */

#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "tests/support/results_fixture.h"

static void write_text(const char *path, const char *text) { fixture_write(path, text, strlen(text)); }

static int64_t size_of(const char *path) {
  struct stat about;
  return stat(path, &about) ? -1 : (int64_t)about.st_size;
}

static journal *open_good(const char *path, const char *build) {
  journal *j = NULL;
  json_t *provenance = fixture_provenance(1e9);
  cr_assert_eq(journal_open(path, &rows_of_sweep, build, provenance, &j), ATTN_OK, "%s", attn_last_error());
  json_decref(provenance);
  return j;
}

static void append_good(journal *j, int64_t i) {
  const result_row row = kept_row(fixture_row(i));
  cr_assert_eq(journal_append(j, &row), ATTN_OK, "%s", attn_last_error());
}

static void count_found(void *context, const char *what) {
  cr_expect(strstr(what, ".jsonl:"), "%s", what);
  ++*(size_t *)context;
}

Test(results_journal, rows_come_back_in_order_of_their_keys) {
  const char *path = fixture_path("order.jsonl");
  journal *j = open_good(path, "one");
  for (int64_t i = 9; i >= 0; i--) append_good(j, i);
  journal_close(j);
  result_set set = load_results(path);
  cr_assert_eq(set.count, 10);
  for (int64_t i = 0; i < 10; i++) {
    const result_row row = kept_row(fixture_row(i));
    cr_assert_str_eq(rows_difference(&set.rows[i], &row), "");
  }
}

Test(results_journal, the_last_row_of_a_key_wins_and_sessions_count_up) {
  const char *path = fixture_path("again.jsonl");
  cr_assert_eq(fixture_journal(path, 0, 1, 4, 1e9), ATTN_OK);
  journal *j = open_good(path, "build one");
  cr_assert_eq(journal_session(j), 1);
  result_row row = kept_row(fixture_row(2));
  row.time_median = 42;
  cr_assert_eq(journal_append(j, &row), ATTN_OK);
  journal_close(j);
  result_set set = load_results(path);
  cr_assert(set.count == 4 && set.rows[2].time_median == 42 && set.rows[2].session == 1);
  cr_assert(set.rows[1].session == 0 && json_array_size(set.sessions) == 2);
  /* The first session ended with its own last run, though one of its rows was replaced. */
  cr_assert_eq(json_number_value(json_object_get(json_array_get(set.sessions, 0), "end_time")), 1.7e9 + 3.5);
}

/* Every line ends with a checksum: a byte that changes is seen, wherever it stands, and nothing is lost by
 * repair. */
Test(results_journal, a_damaged_line_is_found_and_moved_apart) {
  const char *path = fixture_path("flip.jsonl"), *aside = fixture_path("flip.jsonl.damaged");
  char *good = NULL;
  for (int flip = 0; flip < 40; flip++) {
    size_t lines, damaged, found = 0;
    result_set set;
    unlink(path), unlink(aside);
    cr_assert_eq(fixture_journal(path, 0, 1, 6, 1e9), ATTN_OK);
    const size_t size = fixture_read(path, &good), header = strcspn(good, "\n") + 1;
    const size_t at = header + (size - header) * (size_t)flip / 40;
    if (good[at] == '\n') continue;
    good[at] ^= 1; /* a digit becomes another */
    fixture_write(path, good, size);
    free(good);
    cr_expect_eq(results_load(&path, 1, &set), ATTN_EINVAL, "flip %d is not seen", flip);
    cr_expect(strstr(attn_last_error(), "flip.jsonl:"), "%s", attn_last_error());
    cr_assert_eq(journal_repair(path, count_found, &found, &lines, &damaged), ATTN_OK, "%s",
                 attn_last_error());
    cr_expect(damaged == found && damaged >= 1 && damaged <= 2 && lines >= 6, "flip %d: %zu", flip, damaged);
    set = load_results(path);
    cr_expect(set.count == lines - 1 - damaged && size_of(path) + size_of(aside) == (int64_t)size);
    cr_expect(journal_repair(path, count_found, &found, &lines, &damaged) == ATTN_OK && damaged == 0);
  }
}

/* A torn end, a row above every header, and a file that is no journal at all. */
Test(results_journal, repair_says_what_it_cannot_keep) {
  const char *path = fixture_path("torn.jsonl"), *aside = fixture_path("torn.jsonl.damaged");
  size_t lines, damaged, found = 0;
  cr_assert_eq(fixture_journal(path, 0, 1, 3, 1e9), ATTN_OK);
  FILE *file = fopen(path, "ab");
  fputs("{\"key\":\"torn", file);
  fclose(file);
  cr_assert_eq(journal_repair(path, count_found, &found, &lines, &damaged), ATTN_OK, "%s", attn_last_error());
  cr_expect(damaged == 1 && found == 1 && lines == 5 && size_of(aside) == 12);
  result_set set = load_results(path);
  cr_expect_eq(set.count, 3);
  write_text(path, "not a journal\n");
  cr_expect_eq(journal_repair(path, count_found, &found, &lines, &damaged), ATTN_EINVAL);
  cr_expect_eq(size_of(path), 14);
  journal *j = open_good(fixture_path("held.jsonl"), "one");
  append_good(j, 1);
  cr_expect_eq(journal_repair(fixture_path("held.jsonl"), count_found, &found, &lines, &damaged),
               ATTN_EEXIST);
  journal_close(j);
}

Test(results_journal, known_keys_have_status_and_age) {
  const char *path = fixture_path("known.jsonl");
  journal_entry entry;
  cr_assert_eq(fixture_journal(path, 0, 1, 7, 1e9), ATTN_OK);
  journal *same = open_good(path, "build one");
  cr_assert(journal_find(same, "run 00000006", &entry) && entry.status == RUN_UNSUPPORTED);
  cr_assert_str_eq(entry.made.build, journal_build(same));
  cr_assert(!journal_find(same, "run 00000007", &entry));
  append_good(same, 7);
  cr_assert(journal_find(same, "run 00000007", NULL));
  journal_close(same);
  journal *other = open_good(path, "build two");
  cr_assert(journal_find(other, "run 00000000", &entry));
  cr_assert_str_neq(entry.made.build, journal_build(other));
  append_good(other, 0);
  cr_assert(journal_find(other, "run 00000000", &entry));
  cr_assert_str_eq(entry.made.build, journal_build(other));
  journal_close(other);
}

Test(results_journal, a_session_that_finds_nothing_to_do_changes_nothing) {
  const char *path = fixture_path("idle.jsonl");
  cr_assert_eq(fixture_journal(path, 0, 1, 3, 1e9), ATTN_OK);
  const int64_t before = size_of(path);
  journal_close(open_good(path, "build two"));
  cr_assert_eq(size_of(path), before);
}

/* Cut after every byte of the last line, as a crash may. */
Test(results_journal, a_torn_last_line_is_cut_off_wherever_it_ends) {
  const char *path = fixture_path("torn.jsonl");
  cr_assert_eq(fixture_journal(path, 0, 1, 2, 1e9), ATTN_OK);
  const int64_t whole = size_of(path);
  journal *j = open_good(path, "build one");
  append_good(j, 2);
  journal_close(j);
  char *bytes;
  const size_t all = fixture_read(path, &bytes);
  const int64_t step = ((int64_t)all - whole) / 40;
  for (int64_t cut = whole; cut < (int64_t)all; cut += step) {
    fixture_write(path, bytes, (size_t)cut);
    result_set set = load_results(path); /* reading does not need the repair, and does not make it */
    cr_assert(size_of(path) == cut && set.count == 2 && set.torn == (cut > whole));
    j = open_good(path, "build one");
    int64_t lines = cut;
    while (bytes[lines - 1] != '\n') lines--;
    cr_assert(journal_torn(j) == (cut > whole) && size_of(path) == lines);
    append_good(j, 2);
    journal_close(j);
    set = load_results(path);
    cr_assert_eq(set.count, 3);
  }
  free(bytes);
}

Test(results_journal, a_torn_header_is_cut_off_and_other_text_is_not) {
  const char *path = fixture_path("header.jsonl");
  write_text(path, "{\"schema\":\"attnlab-jou");
  journal_close(open_good(path, "one"));
  cr_assert_eq(size_of(path), 0);
  write_text(path, "my precious notes");
  journal *j = NULL;
  cr_assert(journal_open(path, &rows_of_sweep, "one", NULL, &j) == ATTN_EINVAL && !j && size_of(path) == 17);
}

static void same_file_as_the_journal(journal *j, const char *path) {
  const char *live = fixture_path("live.h5"), *merged = fixture_path("merged.h5");
  result_set set;
  cr_assert_eq(journal_set(j, &set), ATTN_OK, "%s", attn_last_error());
  cr_assert_eq(results_write(live, &set), ATTN_OK);
  result_set_free(&set);
  cr_assert_eq(results_merge(merged, &path, 1, NULL), ATTN_OK, "%s", attn_last_error());
  expect_same_bytes(live, merged);
}

/* After every row, of keys that return, with texts that are no UTF-8 and p-values that Holm's correction
 * rejects and, when there are more, does not. */
Test(results_journal, the_table_of_an_open_journal_gives_the_bytes_of_its_file) {
  const char *path = kept_memory(strdup(fixture_path("live.jsonl")));
  cr_assert_eq(fixture_journal(path, 0, 1, 3, 1e9), ATTN_OK);
  journal *j = open_good(path, "build two");
  same_file_as_the_journal(j, path);
  for (int64_t i = 1; i < 7; i++) {
    result_row row = fixture_row(i % 5);
    fixture_add_bound(&row, "SURPRISE", KIND_PROB, VERDICT_CONSISTENT, 1)->p_value = i == 1 ? 4e-6 : 0.5;
    if (i == 3) row.params = "{\xff}";
    cr_assert_eq(journal_append(j, &row), ATTN_OK, "%s", attn_last_error());
    result_row_free(&row);
    same_file_as_the_journal(j, path);
  }
  journal_close(j);
}

#define JOURNAL "{\"schema\":\"attnlab-journal\",\"version\":"
#define HEADER JOURNAL "1,\"build\":\"b\",\"provenance\":{}}\n"

static const struct {
  const char *text, *line, *why;
} foreign[] = {
    {"a,b,c\n1,2,3\n", ":1: ", "not an attnlab journal"},
    {"\n", ":1: ", "not an attnlab journal"},
    {"{\"key\":\"k\"}\n", ":1: ", "not an attnlab journal"},
    {"{\"schema\":\"other\",\"version\":1}\n", ":1: ", "not an attnlab journal"},
    {JOURNAL "4,\"build\":\"b\",\"provenance\":{}}\n", ":1: ", "version 4"},
    {JOURNAL "3,\"build\":\"b\",\"provenance\":{},\"rows\":\"evaluation\"}\n",
     ":1: ", "of kind 'evaluation'"},
    {JOURNAL "\"1\",\"build\":\"b\",\"provenance\":{}}\n", ":1: ", "version"},
    {JOURNAL "0,\"build\":\"b\",\"provenance\":{}}\n", ":1: ", "version"},
    {JOURNAL "1,\"provenance\":{}}\n", ":1: ", "build"},
    {JOURNAL "1,\"build\":\"b\"}\n", ":1: ", "provenance"},
    {HEADER "{\"key\":\"k\",\n", ":2: ", ""},
    {HEADER "{\"n\":1}\n", ":2: ", "key"},
    {HEADER "{\"key\":\"k\",\"n\":\"1\"}\n{}\n", ":2: ", "n: expected an integer"},
    {HEADER "{\"key\":\"k\",\"n\":-5}\n", ":2: ", "n: expected a number from 0 to 1073741824"},
    {HEADER "{\"key\":\"k\",\"time_median\":-1e-9}\n", ":2: ", "time_median: expected"},
};

Test(results_journal, foreign_newer_and_malformed_files_are_refused_with_their_line) {
  const char *path = fixture_path("foreign.jsonl");
  for (size_t i = 0; i < sizeof foreign / sizeof *foreign; i++) {
    journal *j = NULL;
    result_set set;
    write_text(path, foreign[i].text);
    cr_assert_eq(journal_open(path, &rows_of_sweep, "b", NULL, &j), ATTN_EINVAL, "case %zu", i);
    cr_assert(strstr(attn_last_error(), "foreign.jsonl") && strstr(attn_last_error(), foreign[i].line) &&
                  strstr(attn_last_error(), foreign[i].why),
              "case %zu: %s", i, attn_last_error());
    cr_assert_eq(results_load(&path, 1, &set), ATTN_EINVAL, "case %zu", i);
    cr_assert_eq(size_of(path), (int64_t)strlen(foreign[i].text), "case %zu", i);
  }
}

/* To 64 MiB; what follows is read, too. */
Test(results_journal, a_line_may_be_long, .timeout = 300) {
  const char *path = fixture_path("long.jsonl");
  char *rows;
  cr_assert_eq(fixture_journal(path, 0, 1, 3, 1e9), ATTN_OK);
  const size_t size = fixture_read(path, &rows), begin = strcspn(rows, "\n") + 1;
  for (int blanks = 5 << 20; blanks < 100 << 20; blanks *= 13) {
    FILE *file = fopen(path, "w");
    result_set set;
    cr_assert(file);
    fwrite(rows, 1, size, file);
    fprintf(file, "%*s", blanks, HEADER);
    fwrite(rows + begin, 1, size - begin, file);
    cr_assert_eq(fclose(file), 0);
    const attn_status status = results_load(&path, 1, &set);
    cr_expect_eq(status, blanks > 64 << 20 ? ATTN_EINVAL : ATTN_OK, "%d: %s", blanks, attn_last_error());
    cr_expect(status ? strstr(attn_last_error(), ":5: a line of more than 64 MiB") != NULL : set.count == 3);
    if (!status) result_set_free(&set);
  }
  free(rows);
}

Test(results_journal, a_second_process_finds_it_busy) {
  const char *path = fixture_path("busy.jsonl");
  journal *j = open_good(path, "one");
  const pid_t child = fork();
  if (child == 0) {
    journal *second = NULL;
    _exit(journal_open(path, &rows_of_sweep, "one", NULL, &second) == ATTN_EEXIST && !second ? 0 : 1);
  }
  int code;
  cr_assert(waitpid(child, &code, 0) == child && WIFEXITED(code) && WEXITSTATUS(code) == 0);
  journal_close(j);
  journal_close(open_good(path, "one"));
}

/* In a child, since the limit stays. 0: as it should be. */
static int append_to_full_disk(const char *path) {
  journal *j = NULL;
  const result_row row = kept_row(fixture_row(1));
  struct stat about;
  signal(SIGXFSZ, SIG_IGN);
  if (journal_open(path, &rows_of_sweep, "build one", NULL, &j) || stat(path, &about)) return 1;
  const off_t before = about.st_size;
  const rlim_t room[] = {(rlim_t)before, (rlim_t)before + 40, (rlim_t)before + 1000};
  for (size_t i = 0; i < 3; i++) {
    const struct rlimit limit = {room[i], RLIM_INFINITY};
    if (setrlimit(RLIMIT_FSIZE, &limit)) return 2;
    if (journal_append(j, &row) != ATTN_EFOREIGN) return 3;
    if (stat(path, &about)) return 4;
    /* What is there ends with a whole line: of the earlier rows, or of this session's header. */
    char *bytes;
    const size_t size = fixture_read(path, &bytes);
    if (size < (size_t)before || bytes[size - 1] != '\n') return 5;
    free(bytes);
    if (journal_find(j, "run 00000001", NULL)) return 6;
  }
  const struct rlimit none = {RLIM_INFINITY, RLIM_INFINITY};
  if (setrlimit(RLIMIT_FSIZE, &none) || journal_append(j, &row)) return 7;
  journal_close(j);
  result_set set;
  if (results_load(&path, 1, &set) || set.count != 2) return 8;
  return 0;
}

Test(results_journal, a_full_disk_leaves_whole_lines_and_appending_goes_on_when_there_is_room) {
  const char *path = fixture_path("full.jsonl");
  cr_assert_eq(fixture_journal(path, 0, 1, 1, 1e9), ATTN_OK);
  const pid_t child = fork();
  if (child == 0) _exit(append_to_full_disk(path));
  int code;
  cr_assert_eq(waitpid(child, &code, 0), child);
  cr_assert(WIFEXITED(code) && WEXITSTATUS(code) == 0, "step %d", WEXITSTATUS(code));
}

Test(results_journal, what_cannot_be_opened_is_named) {
  journal *j = NULL;
  result_set set;
  const char *missing = fixture_path("missing.jsonl");
  cr_assert_eq(results_load(&missing, 1, &set), ATTN_EFOREIGN);
  cr_assert_eq(journal_open("/proc/no/such/place.jsonl", &rows_of_sweep, "b", NULL, &j), ATTN_EFOREIGN);
  cr_assert(strstr(attn_last_error(), "/proc/no/such/place.jsonl"));
  cr_assert_eq(journal_open("/dev/null", &rows_of_sweep, "b", NULL, &j), ATTN_EINVAL);
  journal_close(NULL);
}
