/* ask.c - a model's numbers, for published.py:
 *   ask MODEL COUNT TOKEN...   the logits after these tokens, and the COUNT tokens that it generates greedily
 *   ask MODEL all TOKEN...     the logits after each of these tokens, a line each, from one pass
 *   ask MODEL TEXT N           the first N tokens of a text with the model's first one, and their mean
 *                              negative log-likelihood in nats, all but the first
 *   ask MODEL ids FILE         the model's first token, and the ids of each text of a file, a line each; the
 *                              texts end with a NUL */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>

#include "data/data.h"

static int64_t most_likely(const float *logits, int64_t vocab) {
  int64_t top = 0;
  for (int64_t t = 1; t < vocab; t++)
    if (logits[t] > logits[top]) top = t;
  return top;
}

static attn_status go_on(const data_llama *m, const int64_t *tokens, int64_t n, int64_t count,
                         float *logits) {
  const int64_t vocab = data_llama_get_config(m)->vocab;
  data_llama_decoder *d = NULL;
  attn_status status = data_llama_decoder_make(m, 1, n + count, &d);
  for (int64_t i = 0; !status && i < n; i++) status = data_llama_decoder_step(d, tokens + i, logits);
  for (int64_t t = 0; !status && t < vocab; t++) printf(t ? " %.9g" : "%.9g", (double)logits[t]);
  printf("\n");
  for (int64_t i = 0; !status && i < count; i++) {
    const int64_t next = most_likely(logits, vocab);
    printf(i ? " %lld" : "%lld", (long long)next);
    status = data_llama_decoder_step(d, &next, logits);
  }
  printf("\n");
  data_llama_decoder_free(d);
  return status;
}

static attn_status print_all(const data_llama *m, const int64_t *tokens, int64_t n, float *logits) {
  const int64_t vocab = data_llama_get_config(m)->vocab;
  attn_status status = data_llama_logits(m, tokens, n, logits);
  for (int64_t i = 0; !status && i < n * vocab; i++)
    printf("%.9g%c", (double)logits[i], i % vocab == vocab - 1 ? '\n' : ' ');
  return status;
}

static attn_status read_text(const char *model, const char *text, int64_t n, const data_llama *m,
                             float *logits) {
  const data_llama_config *c = data_llama_get_config(m);
  data_ids ids = {0};
  double sum = 0;
  attn_status status = data_ids_read(&(data_ids_request){.model = model, .text = text}, c, &ids);
  if (status) return status;
  int64_t *tokens = calloc((size_t)n, sizeof *tokens);
  for (int64_t i = 0, first = ids.bos >= 0; i < n; i++)
    tokens[i] = first && i == 0 ? ids.bos : ids.id[i - first];
  status = data_llama_logits(m, tokens, n, logits);
  for (int64_t i = 0; !status && i + 1 < n; i++) {
    const float *z = logits + i * c->vocab;
    double total = 0;
    const double most = (double)z[most_likely(z, c->vocab)];
    for (int64_t t = 0; t < c->vocab; t++) total += exp((double)z[t] - most);
    sum += log(total) + most - (double)z[tokens[i + 1]];
  }
  for (int64_t i = 0; !status && i < n; i++) printf(i ? " %lld" : "%lld", (long long)tokens[i]);
  printf("\n%.9g\n", sum / (double)(n - 1));
  free(tokens);
  free(ids.id);
  return status;
}

static attn_status print_ids(const char *model, const char *path) {
  data_tokenizer *t = NULL;
  char *text = NULL;
  size_t room = 0;
  FILE *in = fopen(path, "rb");
  attn_status status =
      in ? data_tokenizer_open(model, &t) : attn_fail(ATTN_EINVAL, "%s: cannot be read", path);
  if (!status) printf("%lld\n", (long long)data_tokenizer_bos(t));
  for (ssize_t length; !status && (length = getdelim(&text, &room, '\0', in)) > 0;) {
    int64_t *ids = NULL, count = 0;
    status = data_tokenizer_encode(t, path, text, (size_t)length - 1, &ids, &count);
    for (int64_t i = 0; !status && i < count; i++) printf(i ? " %lld" : "%lld", (long long)ids[i]);
    printf("\n");
    free(ids);
  }
  free(text);
  if (in) fclose(in);
  data_tokenizer_close(t);
  return status;
}

int main(int argc, char **argv) {
  if (argc < 4) return 2;
  if (strcmp(argv[2], "ids") == 0) {
    if (!print_ids(argv[1], argv[3])) return 0;
    fprintf(stderr, "%s\n", attn_last_error());
    return 1;
  }
  char *end;
  const int64_t count = strtoll(argv[2], &end, 10);
  const bool all = strcmp(argv[2], "all") == 0, text = *end && !all;
  const int64_t n = text ? strtoll(argv[3], NULL, 10) : argc - 3;
  data_llama *m = NULL;
  attn_status status = data_llama_open(argv[1], &m);
  const size_t vocab = status ? 0 : (size_t)data_llama_get_config(m)->vocab;
  float *logits = calloc((size_t)n * vocab + 1, sizeof *logits);
  int64_t *tokens = calloc((size_t)n + 1, sizeof *tokens);
  for (int64_t i = 0; !text && i < n; i++) tokens[i] = strtoll(argv[3 + i], NULL, 10);
  if (!status)
    status = all    ? print_all(m, tokens, n, logits)
             : text ? read_text(argv[1], argv[2], n, m, logits)
                    : go_on(m, tokens, n, count, logits);
  if (status) fprintf(stderr, "%s\n", attn_last_error());
  free(logits);
  free(tokens);
  data_llama_close(m);
  return status ? 1 : 0;
}
