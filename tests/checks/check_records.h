/* check_records.h - for each check but properties a variant of which it holds, and an input on which it can
 * reject the null approximations. */
#ifndef TESTS_CHECKS_CHECK_RECORDS_H
#define TESTS_CHECKS_CHECK_RECORDS_H

#include "tests/support/checks_case.h"

extern const attn_variant attn_variant_planted_sample; /* plugins/planted_sample.c */

typedef enum { GAUSSIAN, POSITIVE, MATCHING, BLOCKS, TWO_KINDS, CAUSAL } input_kind;

typedef struct record {
  const char *check, *variant, *parameters;
  input_kind input;
  double std; /* of queries and keys; TWO_KINDS: their norm */
  /* A hard bound is at most 2^loose times what it is held against, to tell something. Roundings are
   * far from the worst, and those that grow with a condition grow as they like. */
  int loose;
} record;

static const record records[] = {
    {"FP-0", "full", "", GAUSSIAN, 1, 4},
    {"FP-1", "full", "", GAUSSIAN, 1, 7},
    {"FP-2", "tiled", "path=fma", GAUSSIAN, 1, 7},
    {"FP-3", "tiled", "path=fma", GAUSSIAN, 1, 9},
    {"FP-4", "tiled", "precision=bf16", GAUSSIAN, 0.5, 4},
    {"FP-5", "tiled", "path=fma", GAUSSIAN, 1, 0},
    {"FP-6", "performer", "features=16", GAUSSIAN, 0.7, 11},
    {"SP-0", "longformer", "window=8", GAUSSIAN, 1, 0},
    {"SP-1", "longformer", "window=8", GAUSSIAN, 1, 7},
    {"SP-2", "longformer", "window=8", MATCHING, 0.05, 3},
    {"SP-3", "bigbird", "block=16,random=0,global=0", BLOCKS, 0.05, 3},
    {"SP-4", "bigbird", "block=8,random=2", GAUSSIAN, 1, 0},
    {"SP-5", "bigbird", "block=8,random=2", GAUSSIAN, 1, 1},
    {"SP-6", "longformer", "window=8", GAUSSIAN, 1, 0},
    {"GR-1", "longformer", "window=8", GAUSSIAN, 1, 8},
    {"STR-0", "streaming", "sink=2,window=8", CAUSAL, 1, 0},
    {"POS-1", "streaming_cache", "sink=2,window=8", CAUSAL, 1, 7},
    {"POOL-1", "pooled", "block=8,window=8", CAUSAL, 1, 9},
    {"TOEP", "toeplitz", "block=16", GAUSSIAN, 1, 11},
    {"REC-1", "recurrent", "chunk=16", CAUSAL, 1, 6},
    {"REC-1", "recurrent", "rule=gated_delta2,chunk=5", CAUSAL, 1, 8},
    {"REC-1", "recurrent", "rule=delta,chunk=40,state=bf16", CAUSAL, 1, 3},
    {"REC-1", "recurrent", "rule=mamba3,chunk=9", CAUSAL, 1, 8},
    {"REC-1", "recurrent", "rule=ssd,chunk=7", CAUSAL, 1, 6},
    {"REC-1", "recurrent", "normaliser=rows,chunk=9", CAUSAL, 4, 7},
    {"REC-3", "recurrent", "chunk=16", CAUSAL, 1, 2},
    {"REC-3", "recurrent", "rule=gla,chunk=7", CAUSAL, 1, 2},
    {"ENT-0", "normaliser", "kind=sparsemax", GAUSSIAN, 1, 7},
    {"ENT-1", "normaliser", "kind=entmax15", GAUSSIAN, 1, 3},
    {"ENT-2", "normaliser", "kind=sparsemax", GAUSSIAN, 2, 0},
    {"SEL-0", "topk", "k=8", GAUSSIAN, 1, 0},
    {"SEL-1", "topk", "k=8", GAUSSIAN, 1, 0},
    {"SEL-2", "pages", "page=4,budget=12", GAUSSIAN, 1, 0},
    {"SEL-3", "pages", "page=4,budget=12", GAUSSIAN, 1, 1},
    {"LAW-1", "planted_sample", "", GAUSSIAN, 1, 0},
    {"LAW-2", "planted_sample", "window=88,sample=4", CAUSAL, 1, 0},
    {"LAW-3", "planted_sample", "window=88,sample=4", CAUSAL, 1, 0},
    {"LAW-4", "planted_sample", "", GAUSSIAN, 1, 0},
    {"LAW-5", "planted_sample", "", GAUSSIAN, 1, 35},
    {"VA-1", "planted_sample", "promise=2", GAUSSIAN, 1, 0},
    {"LN-1", "longnet", "segments=12+48,dilations=1+3", GAUSSIAN, 1, 6},
    {"LSH-1", "lsh", "rounds=2,buckets=8", GAUSSIAN, 1, 0},
    {"TK-1", "topk", "k=8,by=sparq,r=4", GAUSSIAN, 1, 0},
    {"TK-2", "topk", "k=8,by=index", GAUSSIAN, 1, 0},
    {"SEL-5", "topk", "k=8", GAUSSIAN, 1, 7},
    {"SEL-6", "topk", "k=8", GAUSSIAN, 1, 0},
    {"EVICT-1", "evict", "budget=24,recent=4", CAUSAL, 1, 0},
    {"EVICT-2", "evict", "budget=24,recent=4", CAUSAL, 1, 0},
    {"QNT-0", "store", "", GAUSSIAN, 1, 1},
    {"QNT-0", "kivi", "bits=3,group=8,residual=16", CAUSAL, 1, 8},
    {"QNT-1", "store", "", GAUSSIAN, 1, 1},
    {"QNT-1", "kivi", "bits=3,group=8,residual=16", CAUSAL, 1, 1},
    {"QNT-1", "sage", "bits=4,group=7", GAUSSIAN, 1, 1},
    {"QNT-1", "turbo", "", GAUSSIAN, 1, 16},
    {"QNT-2", "store", "", GAUSSIAN, 1, 4},
    {"QNT-2", "kivi", "bits=3,group=8,residual=16", CAUSAL, 1, 4},
    {"QNT-2", "sage", "", GAUSSIAN, 1, 4},
    {"QNT-3", "turbo", "", GAUSSIAN, 1, 0},
    {"QNT-4", "sage", "", GAUSSIAN, 1, 9},
    {"CACHE-1", "tiled", "", CAUSAL, 1, 8},
    {"CACHE-1", "latent", "rank=28,prompt=40", CAUSAL, 1, 14},
    {"CACHE-2", "tiled", "", CAUSAL, 1, 0},
    {"CACHE-3", "evict", "budget=24,recent=4", CAUSAL, 1, 8},
    {"CACHE-5", "evict", "budget=24,recent=4", CAUSAL, 1, 0},
    {"MLA-1", "latent", "rank=16", GAUSSIAN, 1, 12},
    {"MLA-2", "latent", "rank=16", GAUSSIAN, 1, 1},
    {"MLA-3", "latent", "", GAUSSIAN, 1, 13},
    {"MLA-1", "latent", "rank=9,path=naive,prompt=40", CAUSAL, 1, 12},
    {"MLA-2", "latent", "rank=5,shared=2,prompt=40", CAUSAL, 1, 6},
    {"MLA-3", "latent", "rank=28,shared=2,prompt=40", CAUSAL, 1, 5},
    {"SKIP-1", "tiled", "skip=0.3,block_q=2,block_k=4", GAUSSIAN, 1, 2},
    {"FAV-1", "performer", "features=64", GAUSSIAN, 0.3, 0},
    {"FAV-3", "performer", "features=16", GAUSSIAN, 0.7, 0},
    {"FAV-4a", "performer", "features=64", GAUSSIAN, 0.7, 0},
    {"FAV-4b", "performer", "features=262144,orthogonal=no", TWO_KINDS, 0.7, 0},
    {"FAV-5", "performer", "features=32768", TWO_KINDS, 1.4, 2},
    {"FAV-6", "performer", "features=16", GAUSSIAN, 1, 9},
    {"FAV-7", "performer", "features=8192,orthogonal=no,kernel=trig", TWO_KINDS, 1.4, 0},
    {"FAV-8", "performer", "features=64,orthogonal=no,kernel=relu,eps=0", GAUSSIAN, 0.7, 0},
    {"FAV-9", "performer", "features=16", GAUSSIAN, 0.7, 9},
    {"FAV-10", "performer", "features=16", GAUSSIAN, 0.7, 13},
    {"PHI-1", "linear", "", GAUSSIAN, 1, 11},
    {"TAY-1", "linear", "feature=taylor", GAUSSIAN, 0.3, 7},
    {"AS-1", "linear", "feature=taylor", GAUSSIAN, 0.3, 0},
    {"LIN-1", "linformer", "k=16", GAUSSIAN, 1, 0},
    {"LIN-2", "linformer", "k=16", GAUSSIAN, 1, 0},
    {"LIN-3", "linformer", "k=16", GAUSSIAN, 1, 11},
    {"RES-1", "scatterbrain", "window=8,features=64", GAUSSIAN, 0.5, 9},
    {"RES-2", "scatterbrain", "window=8,features=64", GAUSSIAN, 0.5, 11},
    {"RES-1", "scatterbrain_lsh", "rounds=2,buckets=4,features=64", CAUSAL, 0.5, 10},
    {"LOW-1", "svd", "r=16", GAUSSIAN, 0.7, 1},
    {"LOW-2", "svd", "r=8,of=scores", GAUSSIAN, 0.7, 1},
    {"NYS-1", "nystrom", "landmarks=8", GAUSSIAN, 0.7, 21},
    {"NYS-2", "nystrom", "landmarks=8,middle=pinv", GAUSSIAN, 0.7, 34},
    {"LOW-3", "cluster", "clusters=4,topk=3", GAUSSIAN, 1, 21},
    {"LOW-3", "coreset", "keys=9", GAUSSIAN, 1, 20},
    {"LOW-3", "skyformer", "landmarks=20", GAUSSIAN, 1, 21},
    {"CL-1", "cluster", "clusters=96,topk=0", GAUSSIAN, 1, 0},
    {"CL-2", "cluster", "clusters=96,topk=3", GAUSSIAN, 1, 20},
    {"COR-1", "coreset", "keys=96", GAUSSIAN, 1, 39},
    {"SKY-1", "skyformer", "landmarks=192", GAUSSIAN, 1, 29},
    {"NYS-3", "nystrom", "landmarks=8,middle=agents", GAUSSIAN, 0.7, 13},
    {"LIN-5", "linformer", "k=12,projection=pool", GAUSSIAN, 1, 6},
    {"LIN-6", "linformer", "k=16", GAUSSIAN, 1, 11},
    {"LIN-7", "linformer", "k=16", GAUSSIAN, 1, 0},
    {"SUM-1", "0.5*(tiled) + 0.5*topk", "", GAUSSIAN, 1, 4},
    {"DYA-1", "dyadic(tiled,base=16)", "", CAUSAL, 1, 4},
    {"PROP-ONES", "full", "", GAUSSIAN, 1, 7},
    {"PROP-HULL", "full", "", POSITIVE, 1, 1},
    {"PROP-PERM", "full", "", GAUSSIAN, 1, 8},
    {"PROP-SHIFT", "full", "", GAUSSIAN, 1, 9},
    {"PROP-DOB", "full", "", GAUSSIAN, 1, 1},
};

/* Queries and keys of one direction per group of `width` positions. */
static inline void group_rows(run_case *c, void *at, int64_t rows, int64_t width, double length) {
  const attn_problem *p = &c->problem;
  for (int64_t r = 0; r < rows; r++) {
    attn_rng rng = rng_of(17, 17, (uint64_t)(r % p->n_kv / width));
    double direction[64], norm = 0;
    for (int64_t l = 0; l < p->d_qk; l++) {
      direction[l] = attn_rng_normal(&rng);
      norm += direction[l] * direction[l];
    }
    for (int64_t l = 0; l < p->d_qk; l++)
      case_set(c, at, r * p->d_qk + l, case_get(c, at, r * p->d_qk + l) + length * direction[l] / sqrt(norm));
  }
}

static inline run_case *make_shaped(const record *x, attn_problem p) {
  if (x->input == TWO_KINDS) {
    p = attn_problem_make(1, 1, 24, 4);
    p.n_q = p.d_v = 1;
  }
  p.causal = p.causal || x->input == CAUSAL;
  run_case *c = case_make(p, x->input == TWO_KINDS ? 0.01 : x->std, 100);
  for (int64_t i = 0; i < case_count_v(&p) && x->input == POSITIVE; i++)
    case_set(c, c->v, i, 1 + fabs(case_get(c, c->v, i)));
  if (x->input == MATCHING || x->input == BLOCKS) {
    int64_t width = x->input == BLOCKS ? 16 : 1;
    group_rows(c, c->q, p.batch * p.heads * p.n_q, width, 16);
    group_rows(c, c->k, p.batch * p.kv_heads * p.n_kv, width, 16);
  }
  /* Keys for and against the query, told apart by their values. */
  for (int64_t j = 0; j < p.n_kv && x->input == TWO_KINDS; j++) {
    double kind = j % 3 == 0 ? 1 : -1;
    for (int64_t l = 0; l < 4 && j == 0; l++) case_set(c, c->q, l, x->std / 2);
    for (int64_t l = 0; l < 4; l++) case_set(c, c->k, 4 * j + l, x->std / 2 * kind);
    case_set(c, c->v, j, 2 + kind);
  }
  return c;
}

static inline run_case *make_input(const record *x) {
  return make_shaped(x, case_problem(1, 2, 2, 96, 16, 16, false, ATTN_F32));
}

#endif
