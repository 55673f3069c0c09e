/* write_columns.c - /columns of a results file: a line for each variable, in the order of the file, from the
 * variables themselves, so that none is left out and none is described otherwise than it is. */
#include "experiments/results/hdf5/groups.h"

#include <stdlib.h>
#include <string.h>

#include "data/support/file.h"

enum { FIELDS = 5, ATTRIBUTE_SIZE = 4096 };

static const struct {
  const char *name, *long_name;
} fields[FIELDS] = {{"column", "variable, behind the group that it is in"},
                    {"type", "type of its elements"},
                    {"units", "unit of its elements; empty of texts"},
                    {"long_name", "what it is"},
                    {"meaning", "what its numbers stand for, where they are names"}};

typedef struct listing {
  char **texts[FIELDS];
  size_t count, room;
} listing;

static void listing_free(listing *l) {
  for (int f = 0; f < FIELDS; f++) h5_texts_free(l->texts[f], l->count);
}

/* Room for a line more, of NULL. */
static bool listing_grow(listing *l) {
  const size_t room = l->count < l->room ? l->room : 2 * l->room + 64;
  for (int f = 0; f < FIELDS; f++) {
    char **texts = room > l->room ? realloc(l->texts[f], room * sizeof *texts) : l->texts[f];
    if (!texts) return false;
    l->texts[f] = texts;
    texts[l->count] = NULL;
  }
  l->room = room;
  l->count++;
  return true;
}

static const char *type_name(hid_t variable) {
  const hid_t type = H5Dget_type(variable);
  const bool real = type >= 0 && H5Tget_class(type) == H5T_FLOAT;
  const size_t size = type >= 0 && H5Tget_class(type) != H5T_STRING ? H5Tget_size(type) : 0;
  if (type >= 0) H5Tclose(type);
  switch (size) {
  case 1:
    return "int8";
  case 4:
    return real ? "float32" : "int32";
  case 8:
    return real ? "float64" : "int64";
  default:
    return "text";
  }
}

static char *attribute_text(const h5_source *s, const char *name) {
  char text[ATTRIBUTE_SIZE] = "";
  if (H5Aexists(s->group, name) > 0 && h5_read_attribute_text(s, name, text, sizeof text)) *text = '\0';
  return strdup(text);
}

/* "0 ok, 1 failed, ..." of flag_meanings; "0 no, 1 yes" of a truth value. To be freed. */
static char *meaning_of(const h5_source *s) {
  char *names = attribute_text(s, "flag_meanings"), *rest = NULL, *out = strdup("");
  size_t i = 0;
  for (char *name = names ? strtok_r(names, " ", &rest) : NULL; name && out;
       name = strtok_r(NULL, " ", &rest), i++) {
    char *longer = text_format("%s%s%zu %s", out, i ? ", " : "", i, name);
    free(out);
    out = longer;
  }
  if (out && !*out && H5Aexists(s->group, "dtype") > 0) {
    free(out);
    out = strdup("0 no, 1 yes");
  }
  if (!names) {
    free(out);
    out = NULL;
  }
  free(names);
  return out;
}

static bool describe(listing *l, const char *group, const char *name, hid_t variable) {
  const h5_source s = {.group = variable, .path = "", .name = ""};
  if (!listing_grow(l)) return false;
  const size_t i = l->count - 1;
  l->texts[0][i] = text_format("%s%s%s", group, *group ? "/" : "", name);
  l->texts[1][i] = strdup(type_name(variable));
  l->texts[2][i] = attribute_text(&s, "units");
  l->texts[3][i] = attribute_text(&s, "long_name");
  l->texts[4][i] = meaning_of(&s);
  bool good = true;
  for (int f = 0; f < FIELDS; f++) good = good && l->texts[f][i];
  return good;
}

/* The variables of a group, and those of the groups in it. */
static bool list_group(listing *l, hid_t group, const char *path) {
  H5G_info_t about;
  char name[256];
  bool good = H5Gget_info(group, &about) >= 0;
  for (hsize_t i = 0; good && i < about.nlinks; i++) {
    hid_t object = -1;
    const ssize_t length =
        H5Lget_name_by_idx(group, ".", H5_INDEX_CRT_ORDER, H5_ITER_INC, i, name, sizeof name, H5P_DEFAULT);
    good = length > 0 && (size_t)length < sizeof name && (object = H5Oopen(group, name, H5P_DEFAULT)) >= 0 &&
           (H5Iget_type(object) == H5I_GROUP ? list_group(l, object, name) : describe(l, path, name, object));
    if (object >= 0) H5Oclose(object);
  }
  return good;
}

attn_status results_write_columns(hid_t root) {
  listing l = {0};
  h5_dim own = {.scale = -1};
  hid_t group = -1;
  bool good = list_group(&l, root, "");
  own.length = l.count;
  good = good && (group = h5_group_create(root, "columns")) >= 0;
  for (int f = 0; good && f < FIELDS; f++) {
    const h5_variable v = {.name = fields[f].name,
                           .type = H5_TEXT,
                           .dims = {&own},
                           .data = l.texts[f],
                           .long_name = fields[f].long_name};
    good = f ? h5_variable_write(group, &v) : h5_dimension_write(group, &v, &own);
  }
  if (own.scale >= 0) H5Dclose(own.scale);
  if (group >= 0) H5Gclose(group);
  listing_free(&l);
  return good ? ATTN_OK : attn_fail(ATTN_EFOREIGN, "/columns cannot be written");
}
