/* peer.h - the side of a peer written in C: serves the protocol of experiments/peers/README.md. */
#ifndef EXPERIMENTS_PEERS_PEER_H
#define EXPERIMENTS_PEERS_PEER_H

#include "data/data.h"

typedef struct peer_problem {
  data_qkv in;
  bool causal;
  int threads;
  float *o; /* [heads, n_q, d_v] */
} peer_problem;

enum { PEER_TEXT = 256 }; /* bytes of a description */

typedef struct peer_methods {
  /* Prepares for a problem, fp32 and one batch entry, that stays as it is until unload. description: one
   * line, what computes it. */
  attn_status (*load)(const peer_problem *, char description[PEER_TEXT]);
  attn_status (*run)(const peer_problem *); /* what is timed: o from q, k, v */
  void (*unload)(void);                     /* also after a load that failed */
} peer_methods;

/* Serves standard input until its end; the exit code. */
int peer_serve(const peer_methods *);

#endif
