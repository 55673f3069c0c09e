/* data.h - sources of queries, keys and values.
 *
 * Part 1  arrays and .npy files
 * Part 2  Q, K, V together: HDF5, safetensors, npy
 * Part 3  datasets for experiments: generators and files behind one spec, "gaussian:std_q=2"
 * Part 4  a Llama-architecture forward pass, and captures of its Q, K, V
 * Part 5  what is computed of Q, K and V: scores and masks by spec
 * Part 6  texts as token ids
 *
 * Conventions are those of attn.h: attn_status, results untouched on failure, one line in attn_last_error()
 * that names the file. ATTN_EINVAL: malformed content or a wrong argument; ATTN_EFOREIGN: a system call
 * failed (a file that does not open, a full disk); ATTN_EUNSUPPORTED: well formed, but not for this request
 * or this program. Files that are read must be regular and must not shrink meanwhile; files that are written
 * appear whole or not at all. */
#ifndef DATA_DATA_H
#define DATA_DATA_H

#include "attn_tools.h"

/* ---- Part 1: arrays and .npy files --------------------------------------------------------------------- */

enum { DATA_RANK_MAX = 4 };

typedef struct data_array {
  attn_dtype dtype;
  int rank;                     /* 1 .. DATA_RANK_MAX */
  int64_t shape[DATA_RANK_MAX]; /* positive; C order */
  void *at;                     /* owned; released by data_array_free */
} data_array;

/* Elements left uninitialised. */
attn_status data_array_make(attn_dtype, int rank, const int64_t *shape, data_array *out);
void data_array_free(data_array *);
/* Number of elements. */
int64_t data_array_count(const data_array *);

/* Reads f2, f4 or f8 (f2 becomes f32) of either order of bytes, in C or Fortran order, header versions 1 to
 * 3. path may name a member of an .npz archive, "qkv.npz:q". */
attn_status data_npy_read(const char *path, data_array *out);
/* Reads i4 or i8, such as token ids, into *out (release with free). Of *shape, rank and shape are set. */
attn_status data_npy_read_ids(const char *path, int64_t **out, int64_t *count, data_array *shape);
attn_status data_npy_write(const char *path, const data_array *);
/* Reads a matrix of either dtype as fp64, row-major (release with free): an attn_matrix_reader. */
attn_status data_matrix_read(const char *path, int64_t *rows, int64_t *columns, double **values);
/* Reads a graph, from npy (a mask, a list of edges or of parents), HDF5 or safetensors (compressed sparse
 * rows): an attn_graph_reader. EINVAL names what does not fit, lies outside or stands there twice;
 * EUNSUPPORTED: weights. */
attn_status data_graph_read(const char *path, const attn_graph_request *, attn_graph *);
/* Writes compressed sparse rows, those of one head after another, as HDF5. */
attn_status data_graph_write(const char *path, const attn_graph *);
/* Writes a '|u1' array. */
attn_status data_npy_write_u8(const char *path, int rank, const int64_t *shape, const uint8_t *at);

/* Names the first element that is NaN or infinite, and how many there are: "q[0,3,17] is nan". false: there
 * is none. */
enum { DATA_PLACE = 160 };
bool data_find_nonfinite(const data_array *, const char *name, char place[DATA_PLACE]);
/* EINVAL names it. */
attn_status data_check_finite(const data_array *, const char *name);

/* ---- Part 2: Q, K, V together -------------------------------------------------------------------------- */

/* Of arrays as the user holds them: [batch, heads, n, d], or [batch, n, heads, d]. */
typedef enum data_layout { DATA_BHND, DATA_BNHD } data_layout;
extern const char *const data_layout_names[]; /* "bhnd", "bnhd", NULL */

/* All contiguous [batch, heads, n, d]; k and v have kv_heads heads, which divides heads. */
typedef struct data_qkv {
  int64_t batch, heads, kv_heads, n_q, n_kv, d_qk, d_v;
  int rank;           /* of the arrays as the user holds them: 2 [n,d], 3 [heads,n,d], 4 [batch,heads,n,d] */
  data_layout layout; /* of the same */
  attn_dtype dtype;
  void *q, *k, *v; /* owned; v is NULL and d_v 0 where no v was asked for */
  data_array
      extra[ATTN_EXTRA_KINDS]; /* attn_extra_kinds, as [batch, heads, n, columns]; of rank 0: not given */
  char *description;           /* owned; one line for people */
  bool scored; /* a capture whose layer's scores are not q k / sqrt(d_qk) of all keys before */
} data_qkv;

void data_qkv_free(data_qkv *); /* and clears it */

/* Those that are given, as a call takes them; they remain the tensors'. Returns how many. */
int64_t data_qkv_extras(const data_qkv *, attn_extra out[ATTN_EXTRA_KINDS]);

/* The problem of these tensors: contiguous, not causal, scale 1/sqrt(d_qk). */
attn_problem data_qkv_problem(const data_qkv *);

/* What is read, and how. f2 and bf16 become f32. */
typedef struct data_reading {
  const char *in;        /* all of them: an HDF5, safetensors or .npz file */
  const char *q, *k, *v; /* or .npy files, or members of .npz archives, each; v may be NULL */
  /* Of each extra tensor another such file, or NULL: an HDF5 file's dataset of its name, if it has one.
   * [heads, n], [heads, n, columns], or a batch axis before them; index_k without an axis of heads. */
  const char *extra[ATTN_EXTRA_KINDS];
  const char *
      names; /* of the three tensors of `in`, with commas or plus signs: "query,key,value"; NULL, "": q,k,v */
  data_layout layout;
  bool bf16; /* two-byte elements of no floating-point type (npy V2, any uint16 or int16) are bfloat16 */
  int64_t
      limit; /* number of leading positions of q, k and v to keep (EUNSUPPORTED if there are fewer); 0: all */
} data_reading;

/* By the content of the file. EUNSUPPORTED: an HDF5 file whose q and k wait for their rotation (attribute
 * rope "pending"), a file of torch.save. */
attn_status data_qkv_read(const data_reading *, data_qkv *out);
/* The same of one format. */
attn_status data_qkv_read_hdf5(const data_reading *, data_qkv *out);
attn_status data_qkv_read_safetensors(const data_reading *, data_qkv *out);

/* Changes the dtype in place (f64 to f32 rounds to nearest). */
attn_status data_qkv_convert(data_qkv *, attn_dtype);

/* The same for q, k and v in this order; the index is [batch,head,position,channel]. */
bool data_qkv_find_nonfinite(const data_qkv *, char place[DATA_PLACE]);
attn_status data_qkv_check_finite(const data_qkv *);

/* ---- Part 3: datasets for experiments ------------------------------------------------------------------ */

typedef struct data_request {
  int64_t batch, heads, kv_heads, n_q, n_kv, d_qk, d_v;
  attn_dtype dtype;
  uint64_t seed;
} data_request;

/* One kind of dataset. */
typedef struct data_source {
  const char *name, *help;
  const attn_param *params; /* ends with a row whose name is NULL; each ATTN_TEXT is the path of a file */
  size_t params_size;
  bool random; /* depends on the seed */
  /* Fills a cleared *out with exactly the requested shapes. */
  attn_status (*generate)(const void *params, const data_request *, data_qkv *out);
  const char *text; /* the ATTN_TEXT that is no path; NULL: all are */
  int named;        /* parameters that the canonical text always has; others only off their default; 0: all */
  /* EUNSUPPORTED: it cannot have these shapes, with the reason. NULL: it can have any, or its file says
   * which. */
  attn_status (*fits)(const void *params, const data_request *);
} data_source;

size_t data_source_count(void);
const data_source *data_source_at(size_t index); /* NULL past the end */
attn_status data_source_find(const char *name, const data_source **);

/* Parses "name:parameter=value,..." and makes no tensors. Either result may be NULL; release canonical
 * with free. */
attn_status data_source_parse(const char *spec, const data_source **, char **canonical);

/* SHA-256 of the files that a dataset reads, one after another, as 64 hexadecimal digits; "" if it reads
 * none. EFOREIGN, EINVAL: a file cannot be read. */
attn_status data_source_digest(const char *spec, char hex[65]);

/* The same of the files that parameters of type ATTN_TEXT name. */
attn_status data_files_digest(const attn_param *table, const void *params, char hex[65]);

/* output_check (support/output.h) against these files. */
struct output_kind;
attn_status data_source_check_output(const char *spec, const char *path, const struct output_kind *);

/* The sizes of a dataset that is read from files, of which a request may have fewer positions; *known: it is
 * one. As data_source_make. */
attn_status data_source_sizes(const char *spec, data_request *out, bool *known);
/* As data_source_make of a dataset that is drawn, without its tensors. */
attn_status data_source_fits(const char *spec, const data_request *);
/* EUNSUPPORTED: a dataset of this name that has these sizes cannot have those that are wanted, with the
 * reason. */
attn_status data_sizes_fit(const char *source, const data_request *file, const data_request *wanted);

/* Makes a dataset. Draws depend on (seed, tensor, batch, head) alone, row after row, so that the first rows
 * of a longer request are those of a shorter one (needle, whose target wraps at n_kv, and queries that are
 * placed at the end of the keys excepted); they are rounded to f32 for both dtypes, so that f32 and f64 runs
 * see the same inputs. EUNSUPPORTED: the dataset cannot have these shapes, with the reason. canonical may be
 * NULL, else free it. */
attn_status data_source_make(const char *spec, const data_request *, data_qkv *out, char **canonical);

/* How far components turn with their position: theta^(-2i/d), or less where a model's context was
 * stretched. */
typedef enum data_rope_kind {
  DATA_ROPE_PLAIN,
  DATA_ROPE_LINEAR,  /* frequencies / factor (Chen et al. 2023) */
  DATA_ROPE_DYNAMIC, /* beyond `original` positions a larger base (NTK-aware, by the length of the window) */
  DATA_ROPE_YARN,    /* low ones / factor, high ones kept (Peng et al. 2023) */
  DATA_ROPE_LLAMA3,  /* the same by wavelength (Llama 3.1) */
  DATA_ROPE_LONGROPE /* by lists of divisors, to `original` positions and beyond (Ding et al. 2024) */
} data_rope_kind;

typedef struct data_rope {
  data_rope_kind kind;
  double theta, factor;
  int64_t original; /* positions before stretching: all but linear */
  double beta_fast,
      beta_slow;    /* yarn: turns in `original` positions of the last kept, and the first stretched */
  bool exact_range; /* yarn: the ends of that range are not rounded to whole components */
  double low, high; /* llama3: original / wavelength, stretched below low, kept above high */
  double attention; /* q and k are multiplied by it, scores by its square; 1 except for yarn and longrope */
  /* What frequencies are divided by, the last step: [d/2]; of longrope [2][d/2], the second in windows of
   * more than `original` positions. NULL: nothing. */
  double *divisors;
} data_rope;

/* d/2 frequencies of the d components that turn, in a window of n positions. theta > 1; d > 2 for dynamic;
 * factor >= 1. */
void data_rope_frequencies(const data_rope *, int64_t d, int64_t n, double *frequency);

/* Rotates the first d components (d even) of n rows in Hugging Face's Llama convention, pairs (i, i + d/2),
 * row r at position first + r: angle position * frequency[i] in fp64, times `attention`, each result rounded
 * once. row_stride in elements. */
void data_rope_f32(float *x, int64_t n, int64_t d, int64_t row_stride, int64_t first, const double *frequency,
                   double attention);

/* ---- Part 4: Llama ------------------------------------------------------------------------------------- */

typedef struct data_llama data_llama;

/* What a layer does otherwise than most: bits. */
typedef enum data_llama_layer {
  DATA_LLAMA_WINDOW = 1,
  DATA_LLAMA_UNTURNED = 2, /* q and k do not turn */
  DATA_LLAMA_EXPERTS = 4,  /* a mixture of experts in place of the MLP */
} data_llama_layer;

typedef struct data_llama_config {
  const char *architecture; /* the model_type of config.json: "llama", "gemma3_text" */
  int64_t vocab, hidden, intermediate, layers, heads, kv_heads, head_dim, max_positions;
  double norm_eps;
  data_rope rope;      /* its divisors belong to the model */
  double window_theta; /* the base in layers with a window, where nothing is stretched; 0: rope's */
  int64_t rotary_dim;  /* components of each head of q and k that turn, the first; 0: positions are learned */
  int64_t window;      /* queries see the last `window` keys, their own with them (an encoder: as many behind
                        * it), in layers with DATA_LLAMA_WINDOW */
  unsigned char *layer; /* [layers] of data_llama_layer; belongs to the model */
  bool qkv_bias, output_bias, mlp_bias;
  /* In layers with DATA_LLAMA_EXPERTS: how many experts, and by how many of them each token is seen. */
  int64_t experts, experts_used, expert_intermediate, shared_intermediate;
  bool experts_normed;           /* the weights of those used add up to 1; else those of all */
  double gate_limit, gate_slope; /* 0, or what the gate is clipped at, and its factor: gpt-oss */
  bool qk_norms;                 /* where it is a key whether q and k are normalised: they are */
  bool parallel;                 /* attention and MLP are both of the layer's input */
  bool tied;                     /* the output layer is the embedding */
  double score_scale, score_cap; /* of the scores; cap 0: none */
  double embedding_scale, residual_scale, logit_scale, logit_cap;
  float (*activation)(float);
  bool scaled;             /* matrices of 8 bits have scales */
  int64_t scale_block[2];  /* rows and columns of a matrix of 8 bits that share a scale */
  int64_t image_tokens[2]; /* ids that stand for images and videos, which are not read; -1: none */
  int64_t bos; /* what config.json names as the first token of a text; -1: nothing, or a GGUF file */
} data_llama_config;

/* Opens a GGUF file, or the first of several (data/formats/gguf.c lists the formats of elements), or a
 * directory in Hugging Face layout: config.json and model.safetensors, or model.safetensors.index.json with
 * its shards (F32, F16, BF16, F64; F8_E4M3 and F8_E5M2 with their scales), of an architecture of
 * data/llama/architectures.c that is no encoder. EUNSUPPORTED names what this forward pass does not
 * compute. */
attn_status data_llama_open(const char *path, data_llama **);
void data_llama_close(data_llama *);
const data_llama_config *data_llama_get_config(const data_llama *);
/* Of the files of the weights, one after another in the order of their names. */
void data_llama_sha256(const data_llama *, char hex[65]);
/* Of the file that says how the weights are used: config.json, or the GGUF file itself. */
void data_llama_config_sha256(const data_llama *, char hex[65]);

/* logits: [n, vocab]. Beyond max_positions the tokens are cut into independent windows of max_positions. */
attn_status data_llama_logits(const data_llama *, const int64_t *tokens, int64_t n, float *logits);

/* What each token takes: multiply-adds with matrices of weights, and the bytes of these as they are
 * stored. */
typedef struct data_llama_work {
  double multiply_adds, bytes;
} data_llama_work;
data_llama_work data_llama_token_work(const data_llama *);

/* A stream of a pass: the model with the attention of some heads computed by a variant. */
typedef enum data_llama_phase {
  DATA_LLAMA_BOTH,    /* every query */
  DATA_LLAMA_PREFILL, /* the queries before the last `decode`, on the keys before them */
  DATA_LLAMA_DECODE   /* the last `decode` queries, on all keys */
} data_llama_phase;

typedef struct data_llama_swap {
  const attn_spec *spec;
  const unsigned char *where; /* [layers, heads], not 0: this head is replaced; NULL: all are */
  data_llama_phase phase;
  int64_t decode;
  double scale;                       /* of the scores; 0: the model's */
  double mix;                         /* o = o_exact + mix (o_variant - o_exact); 0 is exact, bitwise */
  const struct data_llama_swap *next; /* in layers where this one replaces no head; NULL: nothing does */
} data_llama_swap;

/* What a layer's attention gives in stream 1 ..., from the same q, k and v: rows of n positions, heads side
 * by side. */
typedef struct data_llama_attention {
  int64_t layer, stream, window;
  const attn_plan *plan; /* the variant's, of queries first ... first + count - 1 */
  int64_t first, count;
  double seconds;              /* of its execution */
  const float *q, *k, *v;      /* rotated; [n, heads * d], [n, kv_heads * d] twice */
  const float *exact, *output; /* [n, heads * d] */
  const float *state; /* [n, hidden], output Wo^T added, before the rest of the layer; where a norm or
                                * a factor comes before the sum, output Wo^T alone */
} data_llama_attention;

/* The logits of all streams at positions first ... first + rows - 1 of a window: logits[stream][rows,
 * vocab]. */
typedef struct data_llama_rows {
  int64_t window, first, rows, streams;
  const float *const *logits;
} data_llama_rows;

/* A forward pass of several windows and streams at once, layer by layer. Stream 0 is exact (tiled), stream s
 * is swaps[s - 1]; up to the first layer it replaces heads in, a stream is the exact one. Memory: (count + 1)
 * windows n hidden floats, twice that with experts, a layer's weights (of one expert at a time), and the
 * logits of about 512 rows. */
typedef struct data_llama_pass {
  const int64_t *tokens; /* [windows, n], n at most max_positions */
  int64_t windows, n;
  int64_t scored; /* logits are computed at positions scored ... n - 1 */
  const data_llama_swap *swaps;
  int64_t count;
  void *to;
  attn_status (*attention)(void *to, const data_llama_attention *); /* or NULL */
  attn_status (*logits)(void *to, const data_llama_rows *);
} data_llama_pass;

/* The matrix Wo of a layer, [hidden, heads * d]. */
attn_status data_llama_output(const data_llama *, int64_t layer, float *);

/* Whether the model has windows of n positions, and these tokens. */
attn_status data_llama_check(const data_llama *, const int64_t *tokens, int64_t windows, int64_t n);
/* Whether a pass could have this swap, windows of n positions. EUNSUPPORTED: a variant that cannot compute
 * the model's attention, which is causal. */
attn_status data_llama_try(const data_llama *, int64_t n, const data_llama_swap *);
attn_status data_llama_run(const data_llama *, const data_llama_pass *);

/* The exact model, a token at a time, of several texts at once. Weights are read in the format and at the
 * place of their file, except matrices that are stored transposed (GPT-2's), which are held in fp32, of
 * gpt-oss's experts one at a time; the numbers are those of fp32 up to the order of sums. Holds keys and
 * values of n positions. */
typedef struct data_llama_decoder data_llama_decoder;
attn_status data_llama_decoder_make(const data_llama *, int64_t texts, int64_t n, data_llama_decoder **);
void data_llama_decoder_free(data_llama_decoder *);
/* Given the next token of each text, the logits of those that follow, [texts, vocab]. EINVAL: n have been
 * given. */
attn_status data_llama_decoder_step(data_llama_decoder *, const int64_t *tokens, float *logits);

/* Q, K and V of one layer, [heads, n, d] f32. Beyond max_positions the forward pass runs in independent
 * windows at local positions. Q and K are rotated at their global positions, unless pre_rope. */
attn_status data_llama_capture(const data_llama *, const int64_t *tokens, int64_t n, int64_t layer,
                               bool pre_rope, data_qkv *out);

/* Token ids for a model. */
typedef struct data_ids_request {
  const char *model; /* directory or GGUF file */
  /* Exactly one of two files: a text, which the model's tokenizer encodes, or whose bytes are the ids if the
   * vocabulary is 256; or ids, an .npy of int32 or int64. */
  const char *text, *tokens;
  /* The id that windows begin with, or "none". NULL: the model's before a text that a tokenizer encodes, none
   * before bytes and ids. */
  const char *bos;
} data_ids_request;

typedef struct data_ids {
  int64_t *id, count; /* release id with free */
  int64_t bos;        /* what windows begin with, and not among them; -1: nothing */
  char sha256[65];    /* of the file */
  char shape[140];    /* of an array with several axes: "[2,8], flattened in C order"; else "" */
} data_ids;

/* EINVAL names the file and the first id that is not in the vocabulary. */
attn_status data_ids_read(const data_ids_request *, const data_llama_config *, data_ids *out);

typedef struct data_capture_request {
  data_ids_request ids; /* every window of max_positions begins with bos */
  int64_t layer;        /* from 0 */
  int64_t n;            /* positions; 0: the whole text */
  bool pre_rope;        /* Q and K before their rotation */
  const char *output;   /* .h5 */
} data_capture_request;

/* Captures into an HDF5 file: root datasets q, k, v [heads, n, d] f4 and attributes that say where they come
 * from. With pre_rope the attribute rope is "pending", and the first rotary_dim components of row r of q and
 * k are to be rotated (data_rope_f32) at position first_position + r before its scores are those of the
 * model: with base rope_theta, or where its positions are stretched with rope_frequencies, rotary_dim/2
 * numbers as a text, and rope_attention_factor. out: what was written, unless NULL. */
attn_status data_capture(const data_capture_request *, data_qkv *out);

/* ---- Part 5: scores and masks ------------------------------------------------------------------------ */

/* attn_problem.score as a text: "none", or of softcap=50 | leaky=0.2, alibi | t5=STEP or t5=FILE.npy (a
 * number for each of T5's 32 buckets of the distance, the last from 128 on: -STEP times how far away the
 * bucket is, or the file's, [32, heads] or [32, 1]; causal queries have all buckets for keys behind them,
 * others half), bias=FILE.npy (added to the scores; [n_q,n_kv], heads or 1 and batch or 1 before them; -Inf
 * masks), sink=NUMBER or sink=FILE.npy ([heads]) any with commas between them. attn_problem.mask: "none",
 * prefix:SIZE, block_causal:SIZE, documents:SIZE (SIZE keys each), documents:0+30+64 (where each begins), or
 * a file, FILE.npy or any name with a dot or slash, as data_graph_read takes it: rows are queries, or, in a
 * file as high as wide, positions. canonical: "" of none; to be freed. EINVAL. */
attn_status data_score_parse(const char *text, char **canonical);
attn_status data_mask_parse(const char *text, char **canonical);

/* The arrays that a problem's score and mask are made of. */
typedef struct data_target data_target;

/* Sets score and mask of a problem of these shapes; *out owns what they point to, free it after the problem's
 * last plan. EINVAL names the file, or the text, and what was expected of it. */
attn_status data_target_make(const char *score, const char *mask, attn_problem *, data_target **out);
void data_target_free(data_target *);

/* SHA-256 of the files that both name, one after another; "" if they name none. EFOREIGN, EINVAL. */
attn_status data_target_digest(const char *score, const char *mask, char hex[65]);

/* ---- Part 6: texts as token ids ---------------------------------------------------------------------- */

typedef struct data_tokenizer data_tokenizer;

/* Opens the tokenizer of a model: DIRECTORY/tokenizer.json (BPE, WordPiece or Unigram, with what their files
 * say of a text before and of added tokens), or that of a GGUF file (SentencePiece's BPE, which it calls
 * llama, and byte-level BPE, gpt2). ENOTFOUND: the directory has none. EUNSUPPORTED names what this program
 * does not compute. */
attn_status data_tokenizer_open(const char *path, data_tokenizer **);

typedef struct data_piece {
  const char *text; /* UTF-8, with U+2581 for a blank */
  size_t bytes;
} data_piece;

/* SentencePiece's BPE as a GGUF file has it; piece i has id i. */
typedef struct data_sentencepiece {
  const char *file; /* for messages */
  int64_t count;
  const data_piece *pieces;
  const float *scores; /* a higher one merges first */
  /* 1 normal, 2 unknown, 3 control, 4 user-defined, 5 unused, 6 byte; NULL: from names and ids */
  const int32_t *types;
  int64_t bos, unknown; /* ids; negative: none */
  bool prefix;          /* a blank stands before each text */
} data_sentencepiece;

/* What *s points to may go afterwards. */
attn_status data_tokenizer_make(const data_sentencepiece *s, data_tokenizer **);
void data_tokenizer_close(data_tokenizer *);

int64_t data_tokenizer_size(const data_tokenizer *); /* the largest id + 1 */
/* The token that stands before each text; -1: none is named. */
int64_t data_tokenizer_bos(const data_tokenizer *);

/* The ids of a text, without that first token; release with free. name: of the text, for messages. EINVAL:
 * nothing is left of the text, it is not UTF-8 (the message has the offset of the byte), or it has a
 * character for which there is no token. */
attn_status data_tokenizer_encode(const data_tokenizer *, const char *name, const void *text, size_t bytes,
                                  int64_t **ids, int64_t *count);

/* The bytes that the ids encode, followed by a NUL that is not counted; release with free. They are the text
 * that was encoded, except for what the tokenizer itself changes: U+2581, which comes back as a blank, a
 * first blank that it adds, unknown characters, what its normaliser rewrites, and what its pre-tokeniser
 * drops. */
attn_status data_tokenizer_decode(const data_tokenizer *, const int64_t *ids, int64_t count, char **text,
                                  size_t *bytes);

/* SHA-256 (FIPS 180-4) as 64 hexadecimal digits. */
void data_sha256(const void *at, size_t bytes, char hex[65]);

#endif
