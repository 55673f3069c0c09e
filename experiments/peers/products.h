/* products.h - what OpenBLAS's sgemm is compared with. */
#ifndef EXPERIMENTS_PEERS_PRODUCTS_H
#define EXPERIMENTS_PEERS_PRODUCTS_H

#include "experiments/peers/peer.h"

/* O = (Q K^T) V with the n x n matrix in memory and no softmax; fp32, not causal. */
extern const attn_variant products;

#endif
