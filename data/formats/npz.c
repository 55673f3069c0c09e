/* npz.c - arrays in NumPy's .npz archives, zip archives of .npy files; and the archives of torch.save, whose
 * pickles would have to be executed. */
#include <stdlib.h>
#include <string.h>

#include "data/formats/npy.h"

const char *npz_find_separator(const char *path) {
  const char *colon = strrchr(path, ':');
  return colon && colon - path > 4 && strncmp(colon - 4, ".npz", 4) == 0 ? colon : NULL;
}

char *npz_file(const char *path) {
  const char *colon = npz_find_separator(path);
  return colon ? text_format("%.*s", (int)(colon - path), path) : text_format("%s", path);
}

/* The header says how much there must be before anything is inflated. */
static attn_status check_declared(const char *path, const npy_header *h, size_t declared) {
  uint64_t elements = 1;
  for (int i = 0; i < h->rank; i++) {
    if (elements > declared / (uint64_t)h->shape[i])
      return ATTN_OK; /* more than there is: npy_open reports it */
    elements *= (uint64_t)h->shape[i];
  }
  if (declared - h->offset <= 8 * elements) return ATTN_OK;
  return attn_fail(ATTN_EINVAL, "%s: %zu bytes declared of an array of %llu elements", path, declared,
                   (unsigned long long)elements);
}

attn_status npz_member(const char *path, const file_map *map, npy_header *header, uint8_t **to,
                       const uint8_t **at, size_t *bytes) {
  zip z;
  zip_member m = {0};
  npy_header h = {.rank = 0};
  uint8_t *content = NULL;
  char *file = npz_file(path), *name = text_format("%s.npy", npz_find_separator(path) + 1);
  attn_status status = file && name ? zip_open(file, map, &z) : ATTN_ENOMEM;
  if (!status) status = zip_find(z, name, &m);
  if (!status) status = zip_check(&z, &m);
  if (status) goto out;
  const size_t first = m.bytes < NPY_HEADER_MAX ? m.bytes : NPY_HEADER_MAX;
  if (m.deflated && !(content = malloc(first + 1))) {
    status = attn_fail(ATTN_ENOMEM, "%s: no memory for its header", path);
    goto out;
  }
  if (m.deflated) status = zip_read(&z, &m, content, first);
  if (!status) status = npy_header_parse(path, m.deflated ? content : m.at, first, &h);
  if (!status) status = check_declared(path, &h, m.bytes);
  if (status) goto out;
  if (m.deflated) {
    free(content);
    content = malloc(m.bytes);
    status = content ? zip_read(&z, &m, content, m.bytes)
                     : attn_fail(ATTN_ENOMEM, "%s: no memory for %zu bytes", path, m.bytes);
    if (status) goto out;
  }
  if ((status = zip_verify(&z, &m, content ? content : m.at))) goto out;
  *header = h;
  *to = content;
  *at = content ? content : m.at;
  *bytes = m.bytes;
  content = NULL;
out:
  free(content);
  free(file);
  free(name);
  return status;
}

/* -- files of torch.save -- */

/* A zip archive with a pickle in it, or (before PyTorch 1.6) a pickle. */
static bool is_pickle(const char *path, const file_map *map) {
  zip z;
  zip_member m;
  bool more = true;
  if (map->bytes > 2 && map->at[0] == 0x80 && map->at[1] >= 2 && map->at[1] <= 5) return true;
  if (!zip_is(map) || zip_open(path, map, &z)) return false;
  while (!zip_next(&z, &m, &more) && more)
    if (m.length >= 8 && memcmp(m.name + m.length - 8, "data.pkl", 8) == 0) return true;
  return false;
}

attn_status npz_refuse_pickle(const char *path, const file_map *map, bool single) {
  if (!is_pickle(path, map)) return ATTN_OK;
  if (single)
    return attn_fail(
        ATTN_EUNSUPPORTED,
        "%s: a pickle, as of torch.save, would have to be executed; in Python: import numpy, torch; "
        "numpy.save(\"x.npy\", torch.load(\"%s\").detach().cpu().float().numpy())",
        path, path);
  return attn_fail(
      ATTN_EUNSUPPORTED,
      "%s: a pickle, as of torch.save, would have to be executed; in Python: import numpy, torch; "
      "numpy.savez(\"x.npz\", **{n: t.detach().cpu().float().numpy() for n, t in "
      "torch.load(\"%s\").items()})",
      path, path);
}
