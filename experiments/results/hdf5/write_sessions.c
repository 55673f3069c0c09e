/* write_sessions.c - /provenance of the results file: what each session of the program ran as. */
#include "experiments/support/names.h"
#include "data/support/json_text.h"
#include "experiments/results/hdf5/groups.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct provenance_column {
  const char *name;
  h5_type type; /* H5_TEXT, H5_F64 or, for true and false (or 1 and 0), H5_I8 */
  const char *units, *long_name;
} provenance_column;

#define EPOCH "seconds since 1970-01-01T00:00:00Z"

static const provenance_column columns[] = {
    {"git_commit", H5_TEXT, NULL, "commit that the program was built from"},
    {"git_dirty", H5_I8, "1", "whether the source differed from that commit"},
    {"build", H5_TEXT, NULL, "identity of the build"},
    {"compiler", H5_TEXT, NULL, "compiler and its version"},
    {"cflags", H5_TEXT, NULL, "compiler flags"},
    {"cpu_model", H5_TEXT, NULL, "processor"},
    {"cpu_flags", H5_TEXT, NULL, "instruction sets of the processor"},
    {"n_cores", H5_F64, "1", "processors that the program may use"},
    {"governor", H5_TEXT, NULL, "frequency governor"},
    {"boost", H5_TEXT, NULL, "whether the processor may boost its clock"},
    {"smt", H5_TEXT, NULL, "whether cores are shared by hardware threads"},
    {"aslr", H5_TEXT, NULL, "address space layout randomisation"},
    {"kernel", H5_TEXT, NULL, "operating system kernel"},
    {"lib_versions", H5_TEXT, NULL, "versions of the libraries"},
    {"argv", H5_TEXT, NULL, "command line"},
    {"env_omp", H5_TEXT, NULL, "OpenMP settings in the environment"},
    {"job_id", H5_TEXT, NULL, "batch job"},
    {"hostname", H5_TEXT, NULL, "machine"},
    {"start_time", H5_F64, EPOCH, "start of the session"},
    {"end_time", H5_F64, EPOCH, "end of the session's last run"},
    {"load_start", H5_F64, "1", "load average over a minute at the session's start"},
    {"load_end", H5_F64, "1", "load average over a minute at the end of the session's last run"},
    {"config_text", H5_TEXT, NULL, "configuration file"},
    {"config_sha256", H5_TEXT, NULL, "SHA-256 of the configuration file"},
};

enum { COLUMNS = sizeof columns / sizeof *columns };

static bool listed(const char *name) {
  for (size_t i = 0; i < COLUMNS; i++)
    if (strcmp(columns[i].name, name) == 0) return true;
  return strcmp(name, "session") == 0;
}

/* A member as text: a string as it is, anything else as JSON. */
static char *member_text(const json_t *member) {
  if (member && !json_is_string(member))
    return json_print(member, JSON_ENCODE_ANY | JSON_COMPACT | JSON_SORT_KEYS | JSON_REAL_PRECISION(17));
  char *text = calloc(json_string_length(member) + 1, 1);
  if (text && member) memcpy(text, json_string_value(member), json_string_length(member));
  return text;
}

static attn_status write_text(hid_t group, const h5_dim *session, h5_variable v, const json_t *sessions) {
  size_t count = json_array_size(sessions);
  char **texts = calloc(count + 1, sizeof *texts);
  attn_status status = texts ? ATTN_OK : ATTN_ENOMEM;
  for (size_t i = 0; !status && i < count; i++) {
    texts[i] = member_text(json_object_get(json_array_get(sessions, i), v.name));
    if (!texts[i]) status = ATTN_ENOMEM;
  }
  v.dims[0] = session;
  v.data = texts;
  if (status)
    attn_fail(status, "out of memory for /provenance/%s", v.name);
  else if (!h5_variable_write(group, &v))
    status = ATTN_EFOREIGN;
  for (size_t i = 0; texts && i < count; i++) free(texts[i]);
  free(texts);
  return status;
}

static attn_status write_number(hid_t group, const h5_dim *session, h5_variable v, const json_t *sessions) {
  size_t count = json_array_size(sessions);
  double *numbers = calloc(count + 1, sizeof *numbers);
  int8_t *flags = calloc(count + 1, sizeof *flags);
  attn_status status = ATTN_OK;
  if (!numbers || !flags) {
    status = attn_fail(ATTN_ENOMEM, "out of memory for /provenance/%s", v.name);
    goto out;
  }
  for (size_t i = 0; i < count; i++) {
    const json_t *member = json_object_get(json_array_get(sessions, i), v.name);
    if (!member || !result_json_read_number(member, &numbers[i])) numbers[i] = (double)NAN;
    flags[i] = json_is_true(member) || json_number_value(member) > 0;
  }
  v.dims[0] = session;
  v.data = v.type == H5_I8 ? (const void *)flags : numbers;
  v.boolean = v.type == H5_I8;
  if (!h5_variable_write(group, &v)) status = ATTN_EFOREIGN;
out:
  free(numbers);
  free(flags);
  return status;
}

attn_status results_write_provenance(hid_t root, const result_set *set) {
  attn_status status = ATTN_OK;
  size_t count = json_array_size(set->sessions), i;
  names extra = {0};
  json_t *about;
  h5_dim session = {.scale = -1, .length = count};
  hid_t group = -1;
  int32_t *numbers = NULL;
  if (count == 0) return ATTN_OK;
  json_array_foreach(set->sessions, i, about) {
    const char *name;
    json_t *value;
    json_object_foreach(about, name, value) if (!listed(name) && (status = names_add(&extra, name))) goto out;
  }
  numbers = calloc(count, sizeof *numbers);
  if (!numbers) {
    status = attn_fail(ATTN_ENOMEM, "out of memory for /provenance");
    goto out;
  }
  for (i = 0; i < count; i++) numbers[i] = (int32_t)i;
  const h5_variable axis = {"session", H5_I32, {0}, numbers, "1", "number of the session", NULL, false, NULL};
  group = h5_group_create(root, "provenance");
  if (group < 0 || !h5_dimension_write(group, &axis, &session)) {
    status = ATTN_EFOREIGN;
    goto out;
  }
  for (i = 0; !status && i < COLUMNS; i++) {
    const h5_variable v = {.name = columns[i].name,
                           .type = columns[i].type,
                           .units = columns[i].units,
                           .long_name = columns[i].long_name};
    status = (v.type == H5_TEXT ? write_text : write_number)(group, &session, v, set->sessions);
  }
  for (i = 0; !status && i < extra.count; i++)
    status =
        write_text(group, &session, (h5_variable){.name = extra.items[i], .type = H5_TEXT}, set->sessions);
out:
  if (session.scale >= 0) H5Dclose(session.scale);
  if (group >= 0) H5Gclose(group);
  names_free(&extra);
  free(numbers);
  return status;
}
