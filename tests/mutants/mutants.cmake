# The mutants: deliberate faults, and which check, property or test catches each.
#
#   mutant(NAME FILE CATCHER SETTING WHAT ORIGINAL BROKEN)
#
# CATCHER  a bound check by name (FP-2; SETTING: the setting of a variant that it judges), or as an evaluation of the bundled
#          model asks it (eval:EVICT-2), a property of tests/support/properties*.c (SETTING: the variant), a test as
#          suite/name, one of each suite, of theory_statements one of each test, or commands of tests/cli/cases/ as
#          "cases/FILE:BEGINNING" of a remark (SETTING: empty). A check has one in a file at most, and another only of a variant
#          that it has no other of; two if all are in one file. They show that it can fail, random ones (mutate.sh) what
#          tests notice
# ORIGINAL an expression, or statements that end in ; or }, that stand in FILE exactly once; BROKEN replaces them,
#          or the part of them between two @ alone, if there are. Texts do not overlap; two mutants may share one.
# FILE     of core/ or variants/, or a .c of experiments/ or data/: the instruments are tested, too

# -- softmax: scores, maximum, weights, sums --

mutant(scale-missing core/engines/softmax/softmax.c FP-2 "tiled:path=fma" "1/sqrt(d) is missing"
  [[p->scale * ATTN_LOG2E]] [[ATTN_LOG2E]])
mutant(full-scale-missing variants/full.c FP-1 full "1/sqrt(d) is missing in the textbook form"
  [[attn_softmax_row(c->kernels, keys, attn_at(s, r * p->n_kv, t), p->scale);]]
  [[attn_softmax_row(c->kernels, keys, attn_at(s, r * p->n_kv, t), 1);]])
mutant(max-over-queries core/kernels/tile.inc PROP-ROW tiled "the maximum runs over the wrong axis"
  [[max[j] = v_max(s, max[j]);]]
  [[{ for (int r = 0; r < NR; r++) max[r] = v_max(s, max[r]); }]])
mutant(rescale-missing core/kernels/tile.inc FP-2 "tiled:path=fma,block_k=16"
  "O is not rescaled when the maximum rises"
  [[v_store(at, v_fma(v_load(a + j * VL), v_load(at), sum[i][j]));]] [[v_store(at, v_add(v_load(at), sum[i][j]));]])
mutant(normaliser-rescale-missing core/kernels/tile.inc FP-3 "tiled:path=fma,block_k=16"
  "the sum of weights is not rescaled when the maximum rises"
  [[v_store(at, v_fma(v_load(a + j * VL), v_load(at), v_load(sum + j * VL)));]]
  [[v_store(at, v_add(v_load(at), v_load(sum + j * VL)));]])
mutant(normaliser-of-previous-row core/kernels/tile.inc PROP-ONES "tiled:path=fma"
  "a row is divided by its predecessor's sum"
  [[v_load((const REAL *)tile->sum + lane)]] [[v_load((const REAL *)tile->sum + (lane ? lane - VL : 0))]])
mutant(normaliser-missing core/kernels/tile.inc SP-2 "longformer:window=8,global=2" "the weights are not normalised"
  [[v_select(v_below(v_set(-REAL_MAX), max), sum, v_set((REAL)NAN))]] [[v_set(1)]])
mutant(normaliser-inverted core/kernels/tile.inc SP-3 "longformer:window=8" "O is multiplied by the sum of weights"
  [[v_div(v_load(in + (i < width ? i : 0) * GROUP), divisor)]]
  [[v_mul(v_load(in + (i < width ? i : 0) * GROUP), divisor)]])
mutant(last-key-lost core/engines/softmax/softmax.c PROP-PERM tiled "a tile stops one key short"
  [[(t->keys - seg.first - 1) / seg.step + 1]] [[(t->keys - seg.first - 1) / seg.step]])
mutant(split-merged-backwards core/kernels/decode.inc FP-2 tiled "the factors of two merged splits change places"
  [[*sum_at = lanes[1][0] * *sum_at + lanes[2][0] * ((const REAL *)from->sum)[r];]]
  [[*sum_at = lanes[2][0] * *sum_at + lanes[1][0] * ((const REAL *)from->sum)[r];]])
mutant(exp-coefficient core/kernels/body.inc core_numerics/exponentials_keep_their_error ""
  "one coefficient of 2^x is off by 1e-5 of itself"
  [[y = v_fma(y, f, v_set(g[i]));]]
  [[y = v_fma(y, f, v_set(i == 1 ? (REAL)((double)g[i] * 1.00001) : g[i]));]])
mutant(nan-swallowed-by-max core/kernels/body.inc core_special/nan_in_k ""
  "the maximum with the least exponent drops a NaN"
  [[v_max(v_set(EXP_LOW), exact)]] [[v_max(exact, v_set(EXP_LOW))]])
mutant(softmax-of-rectified-scores core/kernels/rows.inc PROP-SHIFT full "negative scores count as zero"
  [[NAME(exp2)(v_sub(v_mul(v_load(x + i), s), max))]]
  [[NAME(exp2)(v_sub(v_max(v_mul(v_load(x + i), s), v_set(0)), v_max(max, v_set(0))))]])
mutant(bf16-cut-off core/kernels/bf16.inc FP-4 "tiled:precision=bf16" "bf16 keeps four bits"
  [[& nan)) & @0xffff0000@;]] [[0xfff80000]])

mutant(first-key-doubled core/kernels/tile.inc PROP-PERM tiled "the first key of a step counts twice"
  [[NAME(weight)(v_sub(v_load(p + key * GROUP + j * VL), max[j]))]]
  [[v_mul(v_set(key ? 1 : 2), NAME(weight)(v_sub(v_load(p + key * GROUP + j * VL), max[j])))]])
mutant(scores-squared core/kernels/tile.inc PROP-SHIFT tiled "scores enter by their squares"
  [[VEC s = @v_mul(sum[i][j], scale)@;]] [[v_mul(v_mul(sum[i][j], sum[i][j]), scale)]])
mutant(normaliser-off core/kernels/rows.inc PROP-ONES full "the sum of weights is off by 1e-4 of itself"
  [[v_store(lanes, sum);
  for (int i = 0; i < VL; i++) @total += lanes[i];@]] [[total += lanes[i] * (REAL)1.0001;]])
mutant(outputs-clipped core/kernels/tile.inc linear tiled "outputs below -1 are cut off"
  [[v_div(v_load(in + (i < width ? i : 0) * GROUP), divisor)]]
  [[v_max(v_set(-1), v_div(v_load(in + (i < width ? i : 0) * GROUP), divisor))]])

# -- the backward pass of the softmax --

mutant(backward-mask-forgotten core/kernels/backward.inc core_gradients/special_numbers ""
  "gradients of masked pairs are what multiplies them"
  [[if (@masked@) {]] [[false]])
mutant(backward-sink-sign core/engines/softmax/backward.c core_gradient_values/slopes ""
  "the gradient by the sink has the other sign"
  [[sum -= @exp(p->score.sink[h] - lse)@]] [[-exp(p->score.sink[h] - lse)]])

# -- problems: masks, padding, heads, strides, threads --

mutant(causal-mask-shifted core/score.c PROP-CAUSAL tiled "a query sees its successor"
  [[to = attn_min(to, position + 1)]] [[to = attn_min(to, position + 2)]])
mutant(mask-of-next-key core/engines/softmax/softmax.c SP-1 "longformer:window=8,global=2" "the mask of a run ends one key late"
  [[attn_min(offset + run->count, s->count)]] [[attn_min(offset + run->count + 1, s->count)]])
mutant(mask-ignored core/engines/softmax/softmax.c SP-0 "longformer:window=8,global=2" "a tile's queries see the union of their keys"
  [[if (masks) seen = find_seen(w, count, used);]] [[;]])
mutant(padding-key-included core/problem.c PROP-PAD full "one key of the padding is seen"
  [[call->kv_len ? call->kv_len[batch] : call->context->problem->n_kv]]
  [[call->kv_len ? attn_min(call->kv_len[batch] + 1, call->context->problem->n_kv) : call->context->problem->n_kv]])
mutant(padding-of-first-entry core/engines/softmax/softmax.c PROP-LEN tiled "every batch entry has the length of the first"
  [[attn_call_keys(call, batch)]] [[attn_call_keys(call, 0)]])
mutant(unseen-row-divided core/kernels/decode.inc PROP-EMPTY tiled "a query that sees no key is 0/0"
  [[tile->seen >> r & 1 ? in[l] / sum : 0]] [[in[l] / sum]])
mutant(kv-head-wrong core/engines/softmax/softmax.c PROP-GQA tiled "a query head reads the next key head"
  [[attn_rows(call->k, p->k, batch, kv_head, p->dtype)]]
  [[attn_rows(call->k, p->k, batch, (kv_head + 1) % p->kv_heads, p->dtype)]])
mutant(causal-clip-of-windows core/score.c SP-1 "longformer:window=8,global=2"
  "a window looks one key into the future" [[to = attn_min(to, position + 1)]] [[to = attn_min(to, position + 2)]])
mutant(causal-clip-of-blocks core/score.c SP-1 "bigbird:block=8,random=2" "a block looks one key into the future"
  [[to = attn_min(to, position + 1)]] [[to = attn_min(to, position + 2)]])
mutant(causal-clip-short core/score.c FP-2 "longformer:window=8,global=2" "a query does not see itself"
  [[to = attn_min(to, position + 1)]] [[to = attn_min(to, position)]])
mutant(linear-first-state-for-all core/engines/linear/linear_engine.c FP-6 "performer:features=16"
  "every head reads the state of the first"
  [[linear_state_before(s, @h.batch * p->kv_heads + h.head@, linear_summed(s))]] [[0]])
mutant(linear-stale-weights core/engines/linear/causal_segment.c FP-6 "performer:features=16"
  "weights of a chunk keep the maximum that they were made with" [[before == max ? done : 0]] [[done]])
mutant(linear-kv-head-wrong core/engines/linear/linear_engine.c PROP-GQA performer "query heads take states in turn, not in groups"
  [[head / (p->heads / p->kv_heads)]] [[head % p->kv_heads]])
mutant(row-stride-ignored core/engines/softmax/softmax.c PROP-STRIDES tiled "queries are taken as contiguous"
  [[w->q[at] = attn_at(q, row * @p->q.row@, stored);]] [[p->d_qk]])
mutant(steps-by-thread core/engines/softmax/tiling.c threads tiled "the length of a step depends on the number of threads"
  [[attn_min(tiling.blocks.key ? tiling.blocks.key : keys, p->n_kv)]]
  [[attn_max(attn_min(tiling.blocks.key ? tiling.blocks.key : keys, p->n_kv) / c->threads, 1)]])
mutant(state-not-cleared core/engines/linear/state.c PROP-REPEAT performer "a state starts from what the work memory held"
  [[memset(x.sums, 0, linear_state_bytes(s));]] [[;]])

mutant(work-memory-overrun core/plan/plan.h alignment tiled "aligning the work memory skips what was asked for"
  [[(uintptr_t)work + PLAN_ALIGNMENT - 1]] [[(uintptr_t)work + 3 * PLAN_ALIGNMENT - 1]])
mutant(estimate-too-small core/plan/plan_make.c estimate tiled "an estimate forgets the room for alignment"
  [[if (!status && work_size) status = estimate_work_size(&c, work_size);]]
  [[if (!status && work_size) status = estimate_work_size(&c, work_size);
  if (!status && work_size && *work_size) *work_size -= PLAN_ALIGNMENT;]])

# -- selections --

set(columns "vslash:vertical=8,slash=6,last=12,sink=2,window=2")
mutant(vslash-column-of-the-first variants/vslash.c SEL-2 "${columns}" "all weights of a query are the first key's"
  [[w->column[j] += w->p[j] / sum;]] [[w->column[first] += w->p[j] / sum;]])
mutant(vslash-padding-chooses variants/vslash.c variants_vslash/columns_and_diagonals_of_the_largest_sums ""
  "queries at no key choose" [[*end = attn_min(*end, p->n_q);]] [[*end = p->n_q;]])
set(branches "longnet:segments=8+24+64,dilations=1+3+5")
mutant(longnet-counted-once variants/longnet.c LN-1 "${branches}" "a key of several branches counts once"
  [[attn_picks_add(picks, i, key, key + 1, @log((double)times)@);]] [[0]])
mutant(longnet-law-unheeded experiments/checks/selection/multiplicity.c checks_nulls/the_table ""
  "LN-1 judges nothing" [[if (@!count@) return (outcome)OUTCOME_NONE;]] [[1]])
mutant(pages-box-inverted variants/pages.c SEL-2 "pages:page=8,budget=24"
  "positive elements of a query take the least elements of a page" [[x->score == BOX ? most : sum / (double)keys]]
  [[x->score == BOX ? least : sum / (double)keys]])
mutant(pages-padding-enters variants/pages.c SEL-0 "pages:page=8,budget=24"
  "keys of the padding enter a page's statistics" [[smaller(x->page, @all@ - page * x->page)]] [[p->n_kv]])
mutant(pages-last-page-lost variants/pages.c variants_pages/keep_what_the_definition_says ""
  "a short last page is not ranked" [[whole_end == keys && !p->causal ? @pages_of(keys, x->page)@]] [[keys / x->page]])
mutant(means-of-the-block core/engines/softmax/block_means.c SEL-2 "pages:page=8,budget=40,score=weight,block=4,overlap=4"
  "means divide by the block, whatever overlaps" [[sum / (double)@keys@);]] [[x->means.block]])
mutant(means-ahead core/engines/softmax/block_means.c PROP-CAUSAL "pages:page=8,budget=40,score=weight,block=4,overlap=4"
  "entries that end behind the query have weights" [[count = attn_means_entries(x, @end@);]] [[end + 64 < attn_call_keys(c->call, c->block->batch) ? end + 64 : attn_call_keys(c->call, c->block->batch)]])
mutant(index-sign-kept core/engines/softmax/index.c TK-2 "topk:k=8,by=index" "negative products count"
  [[sums[j] += w * @(x[j] < 0 ? 0.0f : x[j])@;]] [=[x[j]]=])
mutant(index-for-each-head core/engines/softmax/ranker.c TK-2 "topk:k=8,by=index"
  "heads rank by other vectors of the index" [[attn_index_query(x, call, b->batch, @r % l.pool@,]] [[(b->head + r) % l.pool]])
mutant(index-of-one-kv-head core/engines/softmax/index.c SEL-2 "topk:k=8,by=index"
  "without tensors the keys are those of the first kv head" [[attn_row(s->call->k, p->k, s->batch, @line % heads@, key, p->dtype)]]
  [[0]])
mutant(index-shapes-unseen core/extra_tensors.c variants_index/tensors_that_do_not_fit_are_refused ""
  "heads of an index are not counted" [[((!queries && !weights) || @x->heads == index->heads@)]] [[true]])
mutant(index-cut-as-keys data/formats/extra.c data_qkv/index_tensors_have_their_own_axes ""
  "queries of an index are cut to the number of keys" [[@attn_extra_kinds[which].of_queries@ ? x->n_q : x->n_kv]] [[false]])
mutant(topk-smallest variants/topk.c variants_select/topk_ranks_all_keys "" "sparq takes the least coordinates"
  [[ahead += @other > own@]] [[other < own]])
mutant(half-cut-off core/kernels/half.h core_number/roundings_are_to_nearest_and_even "" "f16 is cut off, not rounded"
  [[x - 0x38000000u + @0xfffu + (x >> 13 & 1)@]] [[0u]])
mutant(stored-values-of-the-first-key core/engines/softmax/softmax.c variants_stored/oracle ""
  "values that are stored in 16 bits are those of a step's first key" [[load[v](step->count, p->d_v, x->v, @x->v_at.row@, step->keys]] [[0]])
mutant(stored-errors-before-rounding experiments/evidence/errors.c runner_stored/errors_are_those_of_what_is_stored ""
  "outputs of fp32 are read as if they had 16 bits" [[@c->e->stored@ ? c->e->stored : c->e->o]] [[NULL]])
mutant(ranking-mass-off-by-one core/engines/softmax/ranking.c SEL-1 "topk:p=0.8"
  "one key fewer than the mass needs" [[leave(r, most, @equal@);]] [[equal - 1]])
mutant(ranking-group-of-first core/engines/softmax/ranker.c SEL-2 "topk:k=8,share=group"
  "heads that share take the ranking of the first" [[for (int64_t r = 1; r < @pool@; r++)]] [[1]])

# -- patterns --

mutant(window-one-short variants/longformer.c SP-0 "longformer:window=8,global=2"
  "the window is one key short on each side"
  [[step = p->dilation, half = @p->window / 2@;]] [[p->window / 2 - 1]])
mutant(window-one-long variants/longformer.c SP-6 "longformer:window=8" "the window is one key long on each side"
  [[step = p->dilation, half = @p->window / 2@;]] [[p->window / 2 + 1]])
mutant(random-block-in-window variants/bigbird.c core_patterns/bigbird ""
  "random blocks may repeat those of the window"
  [[end + out[k] - before]] [[first + out[k] - before]])
mutant(random-blocks-of-future variants/bigbird.c SP-0 "bigbird:block=4,random=2,global=1"
  "causal rows draw blocks they cannot see"
  [[s->causal ? 0 : s->blocks - end]] [[s->blocks - end]])
mutant(random-blocks-by-position variants/bigbird.c SP-4 "bigbird:block=4,random=2,global=1"
  "the first blocks are drawn more often"
  [[attn_rng_below(&rng, j + 1)]] [[attn_rng_below(&rng, j / 2 + 1)]])
mutant(draws-of-heads-overlap variants/bigbird.c SP-4 "bigbird:block=4,random=2,global=1"
  "a head begins with the draws of its predecessor's later blocks"
  [[((uint64_t)head << 32) + (uint64_t)i]] [[(uint64_t)(5 * head + i)]])
mutant(seed-from-address variants/bigbird.c PROP-BATCH "bigbird:block=8,random=2,global=0" "draws depend on where the plan lies in memory"
  [[(uint64_t)s->p.seed]] [[(uint64_t)(uintptr_t)s]])
mutant(global-blocks-missing variants/bigbird.c SP-5 "bigbird:block=4,random=0,global=1" "no block is global"
  [[s->blocks = (s->n + s->p.block - 1) / s->p.block;]]
  [[s->blocks = (s->n + s->p.block - 1) / s->p.block; s->p.global = 0;]])
mutant(topk-by-magnitude core/engines/softmax/ranker.c SEL-1 "topk:k=8" "scores are ranked without their sign"
  [[attn_ranking_offer(&ranked[s], scores, from, to - from);]]
  [[for (int64_t j = 0; j < to - from; j++) attn_set(scores, j, t, fabs(attn_get(scores, j, t)));
    attn_ranking_offer(&ranked[s], scores, from, to - from);]])
mutant(topk-classes-by-k core/engines/softmax/ranker.c SEL-6 "topk:k=8" "which keys are ranked depends on k"
  [[attn_ranking_offer(&ranked[s], scores, from, to - from);]]
  [[for (int64_t j = 0; j < to - from; j++)
      if ((from + j + ranked[s].kept) % 16 == 0) attn_set(scores, j, t, -(double)INFINITY);
    attn_ranking_offer(&ranked[s], scores, from, to - from);]])

# -- steps of keys that queries pass over --

mutant(skip-if-any core/kernels/tile.inc SKIP-1 "tiled:skip=0.3,block_q=2,block_k=4"
  "a step is passed over where some query has no use of it" [=[lanes[lane] > 0]=]
  [=[({ bool all = true; for (int64_t r = 0; r < GROUP && lane0 + r < tile->rows; r++) all = all && lanes[r] > 0; all; })]=])
mutant(skip-sign core/engines/softmax/skip.c SKIP-1 "tiled:skip=0.3,block_q=2,block_k=4"
  "the limit lies above the maximum" [=[log2(tiling.skip)]=] [=[-log2(tiling.skip)]=])
mutant(skip-by-final-maximum core/engines/softmax/skip.c core_skip/visits_what_the_rule_says ""
  "scores are compared with the maximum of all keys"
  [=[attn_softmax_walk(t, w, tiles, 0, INT64_MAX);]=]
  [=[attn_softmax_walk(t, w, tiles, 0, INT64_MAX);
    if (w->visits) w->visits->count = 0;
    for (int64_t i = 0; i * ATTN_LANES < softmax_rows(t); i++) {
      double held[ATTN_LANES];
      for (int64_t r = 0; r < ATTN_LANES; r++) held[r] = attn_get(tiles[i].max, r, p->dtype);
      t->s->shape.kernels->begin(&tiles[i], w->q + i * ATTN_LANES, p->d_qk, p->d_v);
      for (int64_t r = 0; r < ATTN_LANES; r++) attn_set(tiles[i].max, r, p->dtype, held[r]);
    }
    attn_softmax_walk(t, w, tiles, 0, INT64_MAX);]=])
mutant(skip-taken-all-the-same core/kernels/tile.inc SP-1 "tiled:skip=0.3,block_q=2,block_k=4"
  "what is passed over is taken all the same" [=[@taken && lane0 < tile->rows@; lane0 += GROUP]=] [=[lane0 < tile->rows]=])
mutant(skip-not-recorded core/engines/softmax/skip.c SP-1 "tiled:skip=0.3,block_q=2,block_k=4"
  "what is passed over is told as visited" [=[taken && w->visits]=] [=[w->visits]=])

mutant(selection-shifted-run core/engines/softmax/selected.c SEL-5 "topk:k=8" "the first key of the third run is lost"
  [[const int64_t from = attn_max(@run->first@, first) - first]] [[run->first + (s->next[i] == 2)]])
mutant(streaming-window-without-itself variants/streaming.c SP-0 "streaming:sink=2,window=8"
  "the window has as many keys beside the query's own"
  [[first = @position - s->p.window + 1@]] [[position - s->p.window]])
mutant(streaming-sinks-twice variants/streaming.c core_causal_patterns/streaming ""
  "sinks count twice as long as the window covers them" [[if (first < sinks) first = sinks;]] [[if (first < 0) first = 0;]])
mutant(strided-key-lost variants/sparse_transformer.c SP-0 "sparse_transformer:stride=8"
  "the nearest of the far keys is not seen" [[far = @position / l - 1@]] [[position / l - 2]])

# -- tensors as their owners have them, and what is advised on them --

mutant(npy-fortran-as-c data/formats/npy.c data_npy/every_type_order_of_bytes_and_order_of_axes_is_the_same_numbers ""
  "an array in Fortran order is read as if it were in C order" [[const int axis = @fortran ? i : a->rank - 1 - i@;]] [[a->rank - 1 - i]])
mutant(layout-ignored data/formats/qkv.c cli_apply/positions_before_heads "" "positions are taken for heads"
  [[if (@layout == DATA_BHND || from->rank < 3@) {]] [[true]])
mutant(zip-checksum-ignored data/support/zip.c data_npz/what_is_wrong_is_named "" "a damaged member is read"
  [[if (@crc32_z(crc32_z(0, NULL, 0), content, m->bytes) == m->crc@) return ATTN_OK;]] [[true]])
mutant(advice-of-half-the-error experiments/advice/attempt.c cli_advise/what_is_said_is_what_apply_does ""
  "the error is half of what was measured" [[t->error[t->draws++] = @error@;]] [[error / 2]])

# -- texts as token ids --

mutant(bucket-not-sorted data/tokens/merge_pairs.c data_tokens_pieces/merges_are_those_of_the_definition ""
  "pairs of one rank merge in the order in which they were found"
  [[falls = @falls && (!count || w->place[count].left < w->place[count - 1].left)@;]] [[true]])
mutant(merge-of-what-has-grown data/tokens/merge_pairs.c data_tokens/merges_are_those_of_the_definition ""
  "a pair merges after one of it has grown" [[if (@right < 0 || merge_end(w, right, bytes) != e.end@) continue;]] [[right < 0]])
mutant(matches-all-join data/tokens/steps.c data_tokens_models/pieces_are_those_of_each_rule ""
  "a match joins a piece that is a match" [[rule == CUT_WITH_PREVIOUS ? @now && !before@]] [[now]])
mutant(first-token-of-the-model-ignored data/tokens/ids.c data_capture_text/a_text_is_what_its_ids_are ""
  "config.json does not say what a text begins with" [[s->bos = @c->bos >= 0 ? c->bos : data_tokenizer_bos(t)@;]]
  [[data_tokenizer_bos(t)]])

# -- graphs --

mutant(document-of-one-length-late variants/graph.c SP-0 "graph:size=20" "documents begin one position late"
  [[*first = @position / p->size * p->size@;]] [[(position ? position - 1 : 0) / p->size * p->size]])
mutant(natten-window-leaves-the-canvas variants/graph.c variants_graph/natten ""
  "the window is not moved at the right and lower edge" [[attn_min(first, @length - count@)]] [[length]])
mutant(graph-transposed data/formats/graph_file.c data_graphs/every_format_gives_the_same_graph "" "rows and columns are swapped"
  [[code_of(e, head, row, column)]] [[code_of(e, head, column, row)]])
mutant(mask-row-of-another-query data/sources/target_arrays.c data_target/masks_from_files ""
  "rows of a mask are taken for positions where they are queries" [=[g->rows == g->columns ? 0 : @attn_problem_position(p, 0)@]=] [=[0]=])

# -- models: GGUF files, their blocks, their rotary pairs --
mutant(gguf-pairs-kept data/weights/product.c data_gguf_models/captures_and_logits_are_those_of_the_model_in_safetensors ""
  "the rows of q and k stay neighbouring pairs"
  [[i < m->turned / 2 ? 2 * i : 2 * i - m->turned + 1]] [[i]])
mutant(yarn-range-rounded-up data/llama/rope_scaling.c data_rotation/stretched_frequencies_are_those_of_the_papers ""
  "the first component that yarn stretches is rounded up" [[floor(first)]] [[ceil(first)]])
mutant(yarn-attention-missing data/llama/llama_config.c data_architectures/logits_and_captures_are_those_of_numpy ""
  "q and k are not multiplied by yarn's factor" [[0.1 * log(factor) + 1]] [[1]])
set(recurrent_engine core/engines/recurrent/recurrent_engine.c)
set(recurrent_rows core/engines/recurrent/recurrent_rows.c)
set(recurrent_chunk core/engines/recurrent/recurrent_chunk.c)
set(retention "recurrent:chunk=16")
set(gated_delta "recurrent:rule=gated_delta,chunk=32")
set(kda "recurrent:rule=kda")
mutant(state-decays-its-own-key ${recurrent_chunk} REC-1 "${retention}"
  "a key is decayed at its own position" [[r->row[i] = @1@;]] [[a]])
mutant(sums-with-their-sign ${recurrent_engine} REC-1 "recurrent:chunk=16,normaliser=rows"
  "a negative sum of weights divides nothing" [[? @fabs(attn_get(row, p->d_v, s->t))@ : 0]] [[attn_get(row, p->d_v, s->t)]])
mutant(sums-of-the-first-chunk ${recurrent_rows} REC-1 "recurrent:chunk=16,normaliser=rows"
  "weights of the first chunk alone are summed" [[attn_set(to, p->d_v, s->t, @1@)]] [[x->first == 0]])
mutant(state-read-from-the-chunk ${recurrent_chunk} PROP-LEN "${retention}"
  "queries in the middle of a chunk read the state as its first one does"
  [[@r->before + from@, 1, out]] [[r->before]])
mutant(state-not-taken-up ${recurrent_engine} variants_recurrent/parts_hand_their_state_on ""
  "a part begins without the state of the one before it" [[l < p->d_qk && @given@; l++]] [[false]])
set(entmax "normaliser:kind=entmax15")
set(normaliser_engine core/engines/normaliser/normaliser_engine.c)
mutant(entmax-threshold-early variants/normaliser.c ENT-0 "normaliser:kind=sparsemax" "Newton's method stops after its first step"
  [[if (!(sum > 1 + 0x1p-52 * (double)n) || @!(next > tau)@) break;]] [[step > 0]])
mutant(entmax-slope-halved variants/normaliser.c ENT-1 "${entmax}" "steps are twice as long, beyond the threshold"
  [[slope += power == 1 ? 1 : @2 * d@;]] [[d]])
mutant(entmax-half-of-nothing variants/normaliser.c ENT-0 "${entmax}" "scores of entmax are not halved"
  [[top, by = @1 / (double)power@;]] [[1]])
mutant(entmax-softens variants/normaliser.c ENT-2 "normaliser:kind=sparsemax" "keys below the threshold keep a little weight"
  [[room[j] = d <= 0 ? @0@ : d;]] [[1e-12]])
mutant(sigmoid-of-the-sequence variants/normaliser.c PROP-LEN normaliser "n of sigmoid is one more than the keys seen"
  [[const double shift = p->bias - log(@count_of(p, n)@);]] [[count_of(p, n + 1)]])
mutant(normaliser-nan-of-the-future ${normaliser_engine} PROP-CAUSAL normaliser "a weight of zero multiplies a NaN"
  [[attn_min(end, @finite@),]] [[end]])
mutant(normaliser-weights-left-over ${normaliser_engine} ENT-0 "${entmax}" "keys that a row does not see keep their scores as weights"
  [[memset(s, 0, (size_t)b->p.n_kv * attn_dtype_size(t));]] [[;]])
mutant(forget-own-gate ${normaliser_engine} variants_normaliser/gates_dim_keys_whatever_they_sum_to "" "a key is dimmed by its own gate, too"
  [[for (; at > @keys[j]@; at--) sum]] [[keys[j] - 1]])
mutant(forget-slopes-doubled variants/forget.c ENT-0 forget "without gates keys are dimmed twice as fast"
  [[const double all = x ? (double)NAN : @gate(state, call, batch, head, first)@;]] [[2 * gate(state, call, batch, head, first)]])
mutant(columns-scale-of-all ${normaliser_engine} ENT-0 columns "scores are those of twice as many columns"
  [[attn_scale_row(kernels, by->columns, @by->gain@,]] [[1]])
mutant(ent-no-rounding experiments/evidence/rounding/normaliser_bound.c checks_normalisers/correct_weights_pass ""
  "scores are taken for exact" [[s->slack[a] = @2@ * s->slack[a] + (isinf]] [[0]])
set(toeplitz "toeplitz:block=16")
mutant(toeplitz-distance-off core/engines/toeplitz/toeplitz_engine.c TOEP "${toeplitz}"
  "transforms have the bias of the next distance, products have not" [[factor_of(s, x, @m + offset@)]] [[m + offset + 1]])
mutant(toeplitz-middle-of-a-block core/engines/toeplitz/toeplitz_engine.c PROP-LEN "${toeplitz}"
  "queries that begin in the middle of a block are read from its start" [[.behind = @from - first@}]] [[0]])
mutant(toeplitz-nan-of-the-future core/engines/toeplitz/toeplitz_engine.c PROP-CAUSAL "${toeplitz}" "a weight of zero multiplies a NaN"
  [[const bool finite = @attn_all_finite(r->values + first, s->k_row, s->width, keys, ATTN_F64)@;]] [[true]])
mutant(toeplitz-divides-by-rounding core/engines/toeplitz/toeplitz_engine.c variants_toeplitz/a_denominator_of_rounding_is_nan ""
  "a row is divided by what rounding left of nothing" [[fabs(sum) > @r->lost[i]@]] [[0]])
mutant(toeplitz-slope-of-all variants/toeplitz.c TOEP "toeplitz:slope=0.1" "a slope is taken twice"
  [[bias[at] = @-p->slope@ * fabs]] [[-2 * p->slope]])
mutant(retention-next-head variants/recurrent.c REC-1 "${retention}"
  "decays are those of the next head" [[log1p(-exp2(-@5@ - (double)head))]] [[6]])
mutant(state-adds-what-it-reads ${recurrent_rows} REC-3 "recurrent:rule=delta,chunk=32"
  "what the state says of a key is added" [[combine_rows(d, b, attn_at(v.at, i * v.row, s->t), @-b@]] [[b]])
set(mamba3 "recurrent:rule=mamba3")
mutant(carries-within-a-chunk ${recurrent_chunk} REC-1 "${mamba3}"
  "the last key of a chunk enters once" [[attn_min(x->count + @s->rule->carries@, x->keys - x->first)]] [[0]])
mutant(queries-of-any-length ${recurrent_rows} REC-1 "${gated_delta}"
  "queries keep their length" [[if (@s->rule->query_scale@) {]] [[false]])
mutant(pooled-entry-ahead core/engines/pooling/pooling_engine.c POOL-1 "pooled:block=8,window=8"
  "an entry is seen from its first key on" [[s->positions[e] = @(e + x->first + 1) * x->block - 1@;]] [[e * x->block]])
mutant(pooled-keys-from-the-first core/engines/pooling/pooling_engine.c PROP-LEN "pooled:block=8,window=8"
  "the key of an entry is the mean of the keys two before it, too"
  [[average(attn_row(call->k, p->k, batch, head, @first@, p->dtype)]] [[(first > 2 ? first - 2 : 0)]])
mutant(pooled-whole-from-the-first core/engines/pooling/pooling.h POOL-1 "pooled:block=4,overlap=6,window=0,whole=yes"
  "entries of fewer keys are left out behind their places" [[block = (entry + @x->first@) * x->block]] [[0]])
mutant(cache-turns-away variants/streaming_cache.c eval:POS-1 "streaming_cache:sink=3,window=13"
  "sinks go further away where keys are given up" [[turn(s, @-gone@, row)]] [[gone]])
mutant(cache-counts-its-sinks variants/streaming_cache.c POS-1 "streaming_cache:sink=3,window=13"
  "sinks count as keys that are given up" [[s->p.window + 1 - @s->p.sink@]] [[0]])
mutant(cache-frequency-of-components variants/streaming_cache.c
  variants_streaming_cache/outputs_are_those_of_a_cache_that_turns_late ""
  "neighbouring pairs have the frequencies of every second one" [[-2 * (double)l / (double)s->p.dims]]
  [[-(double)l / (double)s->p.dims]])
mutant(q2-k-minimum-unscaled data/formats/quantised.c data_blocks/every_element_is_its_definition_rounded_once ""
  "the minimum of 16 elements is not scaled"
  [[m * (float)(s[g] >> 4)]] [[m]])
mutant(gguf-tensor-beyond-the-file data/formats/gguf.c data_gguf/hostile_fields_are_refused_with_their_place ""
  "a tensor may begin in the file and end beyond it" [[t->bytes > data - offset]] [[t->bytes > data]])

# -- random features --

mutant(sign-step-missing core/haar.c FAV-3 "performer:features=64" "R's diagonal keeps its signs"
  [[if (gsl_matrix_get(&view.matrix, j, j) < 0) gsl_vector_scale(&column.vector, -1);]] [[;]])
mutant(features-not-orthogonal variants/performer.c FAV-3 "performer:features=64" "the Gaussian block is used as drawn"
  [[rows = q;]] [[for (int64_t i = 0; i < d * d; i++) q[i] = attn_rng_normal(&rng); rows = q;]])
mutant(features-two-percent-long variants/performer.c FAV-1 "performer:features=64" "vectors are 2 % too long"
  [[(double)(float)(w * root)]] [[(double)(float)(1.02 * w * root)]])
mutant(features-eight-percent-long variants/performer.c FAV-4a "performer:features=64" "vectors are 8 % too long"
  [[(double)(float)(w * root)]] [[(double)(float)(1.08 * w * root)]])
mutant(norm-term-off-far-out variants/performer.c FAV-9 "performer:features=64" "|x|^2 / 2 is cut off at 3"
  [[scale[i] - @half_norm@]] [[(half_norm > 3 ? 3 : half_norm)]])
mutant(sharing-not-asked variants/performer.c FAV-10 "performer:features=16,share_heads=no"
  "heads share a draw that are declared to have their own"
  [[s->draws = @s->p.share_heads == YES ? 1 : x->kv_heads@;]] [[1]])
mutant(query-of-another-head core/engines/linear/linear_engine.c FAV-10 "performer:features=16,share_heads=no"
  "queries are mapped by the draw of the first head"
  [[(attn_feature_rows){@x->h->head@, ATTN_QUERY,]] [[0]])
mutant(query-stabiliser-kept core/engines/linear/state.c FAV-5 "performer:features=512"
  "the scale of a query's features does not cancel"
  [[s->simd->divide_row(s->p->d_v, row, @w->sums[i]@, row);]]
  [[w->sums[i] * exp(attn_get(w->fq, i * s->f_row, s->t))]])
mutant(linear-normaliser-doubled core/engines/linear/state.c FAV-10 "performer:features=16"
  "denominators are twice what they are"
  [[s->simd->dot_row(s->columns, attn_at(w->fq, i * s->f_row, s->t), x.z)]]
  [[2 * s->simd->dot_row(s->columns, attn_at(w->fq, i * s->f_row, s->t), x.z)]])
mutant(key-scale-lost core/engines/linear/state.c FAV-6 "performer:features=64" "keys of unlike scales are summed as they are"
  [[linear_rescale(s, w->scale_k[j], reference)]] [[1]])
mutant(eps-keys-not-counted core/engines/linear/state.c FAV-6 "performer:features=64,eps=0.01"
  "eps is missing in the denominator"
  [[w->sums[i] += attn_get(w->eps_term, i, s->t) * *x.keys;]] [[;]])
mutant(key-maximum-of-future core/engines/linear/causal_segment.c PROP-CAUSAL performer "the stabiliser of keys looks ahead"
  [[i ? attn_min(c->before + i, c->keys) : 0; @j < seen@;]] [[j < c->keys]])
mutant(products-in-bf16 core/kernels/product.inc FP-6 "performer:features=64" "products of features are kept in bf16"
  [[v_store(at, add ? v_add(v_load(at), sum[i][j]) : sum[i][j]);]]
  [[VEC x = add ? v_add(v_load(at), sum[i][j]) : sum[i][j], y = v_mul(v_set(65537), x);
    v_store(at, v_sub(y, v_sub(y, x)));]])
mutant(relu-is-modulus core/kernels/features.inc FAV-8 "performer:kernel=relu,features=64"
  "negative products count by their magnitude"
  [=[x[i] < 0 ? 0 : x[i]]=] [=[x[i] < 0 ? -x[i] : x[i]]=])
mutant(half-periods-alike core/kernels/features.inc FAV-7 "performer:kernel=trig,orthogonal=no,features=1024"
  "cosines and sines keep their sign beyond a half period"
  [[v_fma(v_mul(odd, odd), v_set(-2), v_set(1))]] [[v_set(1)]])
mutant(eps-in-numerator core/kernels/features.inc PROP-VALUES performer "a constant is added before the division"
  [[out[i] = x[i] / divisor;]] [[out[i] = (x[i] + (REAL)1e-6) / divisor;]])
mutant(hull-overstated variants/performer.c PROP-HULL "performer:kernel=trig,orthogonal=no" "trigonometric features are declared convex"
  [[if (p->kernel == TRIG) return ATTN_CAP_CONVEX;]] [[;]])
mutant(dot-tail-lost core/kernels/features.inc oracle performer
  "a denominator lacks the last of an odd number of features"
  [[for (; i < count; i++) sum += x[i] * y[i];]] [[;]])
mutant(optimal-vectors-short variants/performer.c FAV-1 "performer:kernel=optimal,features=64"
  "vectors of FAVOR++ have variance 1, not 1 - 4a"
  [[sqrt(x->scale * (1 - 4 * s->a))]] [[sqrt(x->scale)]])
mutant(optimal-weight-inverted variants/performer.c FAV-4a "performer:kernel=optimal,features=64"
  "a |w|^2 has the other sign"
  [[attn_set(s->bias, index * s->w_row + r0 + r, x->dtype, @s->a * square@);]] [[-s->a * square]])
mutant(optimal-weight-of-scaled-rows variants/performer.c FAV-9 "performer:kernel=optimal,features=64,norm=sqrt_d"
  "|w|^2 is that of the vectors times sqrt(scale)"
  [[square += rounded * rounded / (root * root);]] [[square += rounded * rounded;]])

# -- exact keys and features of the rest --

mutant(residual-left-in core/engines/linear/residual_rows.c RES-2 "scatterbrain:window=8,features=64"
  "half of the features of the head's keys stay in the sums"
  [[-linear_rescale(s, slot->scales[j], *all->reference)]] [[-linear_rescale(s, slot->scales[j], *all->reference) / 2]])
mutant(residual-stabiliser-apart core/engines/linear/residual_rows.c RES-1 "scatterbrain:window=8,features=64"
  "what is taken out refers to another maximum than the sums"
  [[-linear_rescale(s, slot->scales[j], *all->reference)]] [[-linear_rescale(s, slot->scales[j], slot->scales[0])]])
mutant(residual-clamped core/engines/linear/residual_rows.c RES-2 "longformer:window=8 + performer:features=8,kernel=trig"
  "a denominator below 0 is divided by"
  [[if (@!(sum > own->rounding * (head + rest * r->size[i]))@) {]] [[isnan(sum)]])
mutant(residual-draw-of-another-head core/engines/linear/residual_rows.c PROP-LEN
  "longformer:window=8 + performer:features=64,share_heads=no" "what is taken out is of the first head's draws"
  [[(attn_feature_rows){@h->head@, ATTN_KEY,]] [[0]])

# -- low rank --

mutant(svd-rank-above variants/svd.c LOW-1 "svd:r=8" "one singular value more than the rank is kept"
  [[found = project(@y->r@, p->n_q]] [[y->r + 1]])
mutant(svd-scores-rank-above variants/svd.c LOW-2 "svd:r=4,of=scores" "one singular value of the scores more than the rank is kept"
  [[for (int64_t e = 0; @e < r@; e++)
      attn_add_times(attn_inner(x->vectors]] [[e <= r]])
mutant(svd-scores-without-queries variants/svd.c PROP-LEN "svd:r=4,of=scores" "directions are those of the keys, whatever the queries are"
  [[gram_of(x->q, n_q, d, c);]] [[for (int64_t l = 0; l < d * d; l++) c[l] = l / d == l % d;]])
mutant(eigenvalues-unsorted core/engines/lowrank/eigen.c LOW-1 "svd:r=8" "eigenvectors stand in the order in which they were found"
  [[sort(n, values, vectors);]] [[;]])

mutant(joint-moment-unweighted experiments/mathematics/pair_moments.c checks_entries/joint_moments_of_two_entries ""
  "the vectors' variance under two weights stays 1 - 4a"
  [[2 * a / (1 - 8 * a)]] [[0]])

mutant(nystrom-start-not-transposed core/engines/lowrank/inverse.c NYS-1 "nystrom:landmarks=8" "the iteration starts from A"
  [[to[j * row + i] = @x[i * row + j]@;]] [[x[j * row + i] ]])
mutant(nystrom-wrong-axis core/engines/lowrank/landmarks.c NYS-1 "nystrom:landmarks=8" "A is normalised along the landmarks of the queries"
  [[row[j] = scale * inner(q + i * d, k + j * d, d);]] [[row[j] = scale * inner(k + i * d, q + j * d, d);]])
mutant(nystrom-landmarks-of-padding core/engines/lowrank/landmark_engine.c PROP-PAD "nystrom:landmarks=8" "padding is averaged into landmarks"
  [[n = @keys ? exist : p->n_q@,]] [[keys ? p->n_kv : p->n_q]])
mutant(nystrom-inverse-transposed core/engines/lowrank/inverse.c NYS-2 "nystrom:landmarks=8,middle=pinv"
  "the pseudo-inverse is transposed"
  [[2 * @v[i] / singular[e] * u[j]@;]] [[u[i] / singular[e] * v[j] ]])
mutant(nystrom-inverse-cut core/engines/lowrank/inverse.c NYS-2 "nystrom:landmarks=8,middle=pinv"
  "singular values above rcond are left out"
  [[singular[e] > @rcond@ * singular]] [[(rcond + 0.3)]])
mutant(nystrom-factors-swapped core/engines/lowrank/landmark_engine.c NYS-3 "nystrom:landmarks=8,middle=agents" "queries meet landmarks of keys"
  [[ATTN_MIDDLE_AGENTS ? @w.q_rows@ : w.k_rows;]] [[w.k_rows]])
mutant(nystrom-queries-meet-queries core/engines/lowrank/landmark_engine.c NYS-1 "nystrom:landmarks=8" "F is taken with the landmarks of B"
  [[: @w.k_rows@;]] [[w.q_rows]])
mutant(nystrom-segments-of-one-length variants/nystrom.c variants_landmarks/segments_cover_the_rows "" "what a division leaves over is in no segment"
  [[*count = @edge(n, landmarks, l + 1) - *first@;]] [[n / landmarks]])

# -- rows that are picked --

mutant(cluster-mass-of-all core/engines/lowrank/picked_clusters.c CL-2 "cluster:clusters=4,topk=3"
  "a query's own keys have all of the weight" [[o[l] += @mass@ * (x->scores]] [[1]])
mutant(cluster-mass-of-own-scores core/engines/lowrank/picked_clusters.c LOW-3 "cluster:clusters=4,topk=3"
  "the mass of a query's own keys is from its own scores"
  [[for (int64_t t = 0; t < x->own; t++) sum += x->scores[t] = exp(x->scores[t] - top);]]
  [[for (int64_t t = 0; t < x->own; t++) sum += x->scores[t] = exp(x->scores[t] - top);
    mass = 0;
    for (int64_t j = 0; j < h->keys; j++) {
      double score = 0;
      for (int64_t l = 0; l < h->d; l++) score += h->q[i * h->d + l] * h->k[j * h->d + l];
      mass += exp(h->context->problem->scale * score - top);
    }
    mass = sum / mass;]])
mutant(cluster-of-a-neighbour core/engines/lowrank/picked_clusters.c CL-1 "cluster:clusters=4096,topk=0"
  "a query has the weights of the cluster after its own" [[x.shared + @h->picked[i]@ * h->v_row]] [[(h->picked[i] + 1) % count]])
mutant(cluster-padding core/engines/lowrank/picked_engine.c PROP-PAD "cluster:clusters=4,topk=3" "padding is attended to"
  [[h.keys = attn_call_keys(call, batch);]] [[h.keys = p->n_kv;]])
mutant(coreset-values-unweighted core/engines/lowrank/picked_points.c COR-1 "coreset:keys=9"
  "keys enter without the kernel's diagonal" [[const double by = @exp(x->raise[h->n_q + j] - top)@;]] [[1]])
mutant(coreset-not-centred core/engines/lowrank/picked_points.c LOW-3 "coreset:keys=9" "keys are not less their mean"
  [[h->k[j * h->d + l] - @sum / (double)h->keys@) / t;]] [[0]])
mutant(gauss-root-missing core/engines/lowrank/picked_points.c SKY-1 "skyformer:landmarks=9" "a column is not divided by its pivot's root"
  [[to[i] /= @root@;]] [[1]])
mutant(gauss-scale-twice core/engines/lowrank/picked_points.c COR-1 "skyformer:landmarks=9" "the distance is not halved"
  [[scale * distance(x + i * d, x + at * d, d) / @2@);]] [[1]])

# -- features that are not drawn --

mutant(sums-divided core/engines/linear/linear_engine.c PHI-1 "linear:normalise=no" "sums are divided though the map says they are not"
  [[!s->map->unnormalised]] [[true]])
mutant(sums-said-to-be-means core/engines/linear/fixed_features.c PROP-ONES "linear:normalise=no" "weights are declared to add up to 1 without a denominator"
  [[if (p->normalise == NO) lost |= ATTN_CAP_STOCHASTIC | ATTN_CAP_CONVEX;]] [[;]])
mutant(taylor-diagonal-doubled core/kernels/features.inc PHI-1 "linear:feature=taylor" "squares count as much as products of two"
  [[at[0] *= (REAL)0.70710678118654752440;]] [[;]])
mutant(taylor-constant-missing core/engines/linear/fixed_features.c TAY-1 "linear:feature=taylor" "the polynomial has no constant"
  [[attn_set(row, 0, t, 1);]] [[attn_set(row, 0, t, 0);]])
mutant(taylor-of-scores-unscaled core/engines/linear/fixed_features.c FP-6 "linear:feature=taylor" "the products of q and k are not scaled"
  [[if (!s->w || s->factor != 1) attn_scale_row(c->kernels, s->inner, s->factor, from, to);]]
  [[if (!s->w || s->factor != 1) attn_scale_row(c->kernels, s->inner, 1, from, to);]])
mutant(cos-from-zero-for-queries core/engines/linear/fixed_features.c PHI-1 "linear:feature=cos" "positions of queries begin at 0, of keys at 1"
  [[finish_row(s, c->kernels, t, x->first + i, attn_at(f, i * f_row, t));]]
  [[finish_row(s, c->kernels, t, x->first + i - (x->side == ATTN_QUERY), attn_at(f, i * f_row, t));]])
mutant(positions-of-a-chunk core/engines/linear/causal_segment.c PHI-1 "linear:feature=cos"
  "causal queries are told their place in the chunk, not in the sequence" [[s->p->q.row, @c->first + c->before@, x->count]] [[c->before]])
mutant(cosine-is-permutable core/engines/linear/fixed_features.c PROP-PERM "linear:feature=cos" "features of positions are declared permutable"
  [[uint32_t lost = @of == COS ? ATTN_CAP_PERMUTATION : 0@;]] [[0]])
mutant(length-not-declared core/engines/linear/fixed_features.c PROP-PREFIX "linear:feature=cos" "angles in lengths of the sequence are no exemption"
  [[if (@p->feature == COS && !p->length@) out->exempt = own_length;]] [[false]])
mutant(degree-one-more experiments/checks/fixed/taylor.c checks_fixed/features_that_a_polynomial_needs ""
  "one degree more than what is needed" [[while (relative_error(g, b) > tolerated) g++;]]
  [[while (relative_error(g++, b) > tolerated) {}]])

# -- projections --

mutant(projection-scale-missing variants/linformer.c LIN-1 "linformer:k=64" "entries are N(0, 1), not N(0, 1/k)"
  [[1 / sqrt((double)s->p.k)]] [[1]])
mutant(signs-unscaled variants/linformer.c LIN-7 "linformer:projection=rademacher,k=64" "entries are +-1, not +-1/sqrt(k)"
  [[1 / sqrt((double)s->p.k)]] [[s->p.projection == RADEMACHER ? 1 : 1 / sqrt((double)s->p.k)]])
mutant(columns-draw-alike variants/linformer.c LIN-2 "linformer:k=64" "all columns of a projection are one draw"
  [[PURPOSE_MATRIX + ((uint64_t)draw << 32), @(uint64_t)j@]] [[0]])
mutant(dct-scale core/engines/compression/fast_transform.c LIN-7 "linformer:projection=dct,k=64" "the DCT lacks the factor sqrt(2)"
  [[(r ? 2 : 1)]] [[1]])
mutant(pool-shifted variants/linformer.c LIN-5 "linformer:projection=pool,k=20"
  "blocks overlap by a key, and the last key is in none"
  [[attn_at(x->x, @first@ * x->x_row, t)]] [[(first - (first > 0))]])
mutant(pool-unnormalised variants/linformer.c PROP-HULL "linformer:projection=pool,k=20"
  "pooled keys and values are sums, not means"
  [[1 / (double)count]] [[1]])
mutant(slot-lost core/engines/compression/compression.c LIN-5 "linformer:projection=pool,k=20" "the last slot is not attended to"
  [[l->used[b] = used;]] [[l->used[b] = used - 1;]])
mutant(part-lost core/engines/compression/compression.c LIN-6 "linformer:k=16"
  "the last part of a long sequence is not projected"
  [[part * by->rows < attn_call_keys(call, b)]] [[(part + 1) * by->rows < attn_call_keys(call, b)]])

mutant(slices-not-summed variants/linformer.c LIN-6 "linformer:k=16" "slices of keys overwrite each other's slots"
  [[x->accumulate || at]] [[at]])

# -- what a variant does to memory, and the contract of a pattern --

mutant(redzones-unread core/plan/verify.c core_verify/executions "" "what is written behind a piece of the work memory is not seen"
  [[if (verify_painted(z->piece + z->bytes, z->whole - z->bytes)) return;]] [[return;]])
mutant(overlap-unseen core/contract.c core_descriptors/rows_that_repeat_keys "" "runs may have keys of one another"
  [[if (run.count > 1) x->open[kept++] = r;]] [[;]])
mutant(fork-unnoticed core/threads.c core_fork/after_threads "" "a forked process waits for threads that it does not have"
  [[atomic_store(&forked, true);]] [[;]])
mutant(null-unchecked core/problem.c core_null/arguments "" "a problem that is NULL is read"
  [[if (!problem) return attn_null("problem", "problem");]] [[;]])

# -- parts of the keys --

mutant(lse-maximum-in-base-2 core/engines/softmax/softmax.c core_lse/as_fp64_says ""
  "the maximum of a log-sum-exp stays in units of log 2"
  [[max / ATTN_LOG2E + log(sum)]] [[max + log(sum)]])
mutant(nan-is-deaf experiments/properties/repeat.c checks_properties/equal_patterns_of_nan_are_equal ""
  "a head of NaN is taken for one that does not look at its inputs"
  [[!found.count && @has_numbers(t, other, *batch, *head)@]] [[true]])
mutant(nan-without-a-cause experiments/evidence/rounding/nonfinite.c runner_nonfinite/what_reaches_where ""
  "a NaN that no input explains passes" [[if (nan && @finite@)]] [[false]])
mutant(lse-of-a-sink-alone core/engines/softmax/softmax.c PROP-LSE tiled
  "the log-sum-exp of a row without keys leaves its sink out"
  [[unseen = @p->score.sink@ ? p->score.sink]] [[false]])
mutant(eigen-against-neighbours core/engines/lowrank/eigen.c core_eigen/low_ranks_and_tiny_elements_converge ""
  "an element is zero only where it is small against its neighbours on the diagonal"
  [[fabs(e[to + 1]) <= DBL_EPSILON / 2 * @norm@]] [[(fabs(d[to]) + fabs(d[to + 1]))]])

# -- gradients --

mutant(grad-d-missing core/kernels/backward.inc GRAD-FP tiled "the row's mean of d_o.v is not taken off"
  [[v_mul(p, @v_sub(v_load(dp), delta)@)]] [[v_load(dp)]])
mutant(grad-cap-unsloped core/kernels/backward.inc GRAD-FD tiled "the slope of the soft cap is its share"
  [[v_sub(one, @v_mul(c, c)@)]] [[c]])
mutant(grad-bias-sign core/engines/softmax/bias_back.c GRAD-FD tiled "the gradients by biases have the other sign"
  [[weight * (@product - delta@)]] [[delta - product]])
mutant(grad-bias-sloped core/engines/softmax/backward.c GRAD-FD tiled "a pair's product is that of its weight and the gradient"
  [[if (b->biases) memcpy(b->products, @b->gradients@,]] [[b->scores]])
mutant(grad-bias-slice-kept core/engines/softmax/bias_back.c GRAD-FD "longformer:window=8" "a head's sums over distances begin with those of the one before"
  [[s->relative[slice * row + at] = 0;]] [[;]])
mutant(grad-columns-of-their-own experiments/evidence/gradient_columns.c "cases/gradients:How far" ""
  "the exact gradients of a run are its own" [[const double a = attn_get(x, i, type), b = @y[i]@;]] [[a]])
mutant(grad-file-unturned experiments/commands/apply.c "cases/gradients:The type is" "" "gradients are written head by head whatever the layout"
  [[if (a->to[i]) @status = turn(&g->of[i])@;]] [[status]])
mutant(grad-gate-own core/engines/normaliser/row_gradients.c GRAD-FD forget "the gate at the query's own key has no gradient"
  [[for (; at <= last && @at <= keys[j]@; at++)]] [=[at < keys[j]]=])
mutant(grad-gate-last-head variants/forget.c GRAD-FD forget "a gate that heads share has the last one's gradient"
  [[*(double *)attn_call_extra_row(call, &to, batch, head, first + i) += d[i];]]
  [[*(double *)attn_call_extra_row(call, &to, batch, head, first + i) = d[i];]])
mutant(grad-masked-scores core/kernels/backward.inc GRAD-FP "longformer:window=8" "masked scores have gradients"
  [[g = v_select(v_mask(step->mask[j] >> lane), g, @v_set(0)@);]] [[g]])
mutant(grad-lse-in-nats core/engines/softmax/backward.c GRAD-FP tiled "lse is of base e where weights are of base 2"
  [[lse == -(double)INFINITY ? (double)INFINITY : @lse * ATTN_LOG2E@]] [[lse]])
mutant(grad-dk-unscaled core/engines/softmax/back_sums.c GRAD-FP tiled "dk lacks the scale"
  [[add_slices(s, call, at / blocks, at % blocks, g->dk, s->k, p->d_qk, @p->scale@);]] [[1]])
mutant(grad-selection-skipped core/engines/softmax/select.c GRAD-FP "topk:k=8" "a slice begins at its second block"
  [[for (int64_t at = @slice@; at < line_blocks]] [[slice + l->sums.slices]])
set(chunk_back core/engines/recurrent/recurrent_chunk_back.c)
set(pairs_back core/engines/recurrent/recurrent_pairs_back.c)
set(recurrent_back core/engines/recurrent/recurrent_backward.c)
mutant(back-decay-lost ${chunk_back} GRAD-FD "${mamba3}" "decays have no gradient"
  [[attn_convert(recurrent_row(s, r->falls, j, width), s->t, @width@,]] [[0]])
mutant(back-angle-of-rows ${pairs_back} GRAD-FD "${mamba3}" "pairs of a chunk give angles no gradient"
  [[if (@falls && s->rule->turns@)]] [[false]])
mutant(back-gates-of-the-first-chunk core/engines/recurrent/recurrent_chunk.c GRAD-FD "recurrent:rule=gla"
  "all chunks of a segment have the gates of the first"
  [[const int64_t at = @x->first - r->kept_first@, count]] [[0]])
mutant(back-chunks-of-the-one-before ${recurrent_back} GRAD-FD "recurrent:rule=retention"
  "a segment's chunks begin with the state of the segment before"
  [[memcpy(r->own.sums, recurrent_state(s, sums->edges, h * sums->segments + @segment@)]] [[(segment ? segment - 1 : 0)]])
mutant(back-gates-of-the-last variants/recurrent.c GRAD-FD "recurrent:rule=ssd"
  "gates that heads share have the gradient of the last" [[row[to.columns > 1 ? l : 0] += from[l];]]
  [[row[to.columns > 1 ? l : 0] = from[l];]])

mutant(grad-features-of-one-head core/engines/linear/linear_back_block.c GRAD-FD linear
  "keys have the gradients of the first head of those that share them"
  [[k->queries && @head < (k->h->head + 1) * group@; head++)]] [[head == k->h->head * group]])
mutant(grad-features-padding core/engines/linear/linear_back.c GRAD-FD linear "padding has gradients"
  [[.keys = attn_max(0, attn_min(rows, @h->keys - key@)),]] [[rows]])
mutant(grad-features-segment-lost core/engines/linear/linear_back.c core_linear_gradients/segments ""
  "the last segment of queries is not added to those before it"
  [[for (int64_t g = @query_segments(s) - 2@; g >= first_summed(s); g--) {]] [[query_segments(s) - 3]])
mutant(grad-stabiliser-of-later-rows core/engines/linear/linear_back_block.c GRAD-FD performer:eps=0.01
  "the stabiliser of later chunks has no gradient"
  [[if (row[i].reference == *to.reference) @*to.keys += row[i].pull@;]] [[*to.keys = 0]])
mutant(grad-largest-constant core/kernels/kernels.c GRAD-FD performer:eps=0.01
  "the maximum that is taken out of features has no gradient"
  [[attn_set(df, largest, t, attn_get(df, largest, t) + @rest@);]] [[0]])
mutant(grad-performer-length variants/performer.c GRAD-FD performer "the square of the length has the other sign"
  [[const double by = s->p.kernel == TRIG ? c->problem->scale : @-c->problem->scale@;]] [[c->problem->scale]])
mutant(grad-fixed-elu core/engines/linear/fixed_features.c GRAD-FD linear "elu has the slope 1 below 0"
  [=[f64[c] = @f64[c] < 1 ? f64[c] : 1@;]=] [[1]])
mutant(grad-slots-of-keys variants/linformer.c GRAD-FD "linformer:k=16,share=none"
  "values have the transpose of the keys' projection"
  [[s->p.k,
                draw = draw_index(s, x->head, @x->side@);]] [[ATTN_KEY]])
mutant(grad-slots-of-first-entry core/engines/compression/slot_gradients.c GRAD-FD "linformer:k=16"
  "slots of all batch entries are the first one's"
  [[slab.x = attn_at(slab.x, @line@ * e->slots * d + column, p->dtype);]] [[slab.head]])
mutant(grad-spectrum-twice core/engines/compression/fast_transform.c GRAD-FD "linformer:k=16,projection=dct"
  "numbers of the spectrum count in its upper half, too"
  [[attn_get(x, i * in->x_row + c, type) / @(double)parts@;]] [[1]])
mutant(grad-newton-term core/engines/lowrank/inverse.c GRAD-FD "nystrom:landmarks=16"
  "the last term of a step's derivative is dropped"
  [[dx[i] -= (t[i] + @room[i]@) / 4;]] [[0]])
mutant(grad-landmarks-sums core/engines/lowrank/landmarks.c GRAD-FD "nystrom:landmarks=16"
  "rows of a mean have its whole gradient"
  [[attn_get(to, i, t) + from[l * d + i % d] / @(double)count@);]] [[1]])
mutant(grad-landmarks-last-head core/engines/lowrank/landmark_back.c GRAD-FD "nystrom:landmarks=16"
  "the last query head alone gives the gradients of landmark keys"
  [[for (int64_t h = @line * group@; to && h]] [[(line + 1) * group - 1]])
mutant(grad-weights-tau variants/normaliser.c GRAD-FD "normaliser:kind=sparsemax" "tau does not move with the scores"
  [[for (int64_t j = 0; @sums(p)@ && j < n; j++)]] [[false]])
mutant(grad-rows-slope core/score.c GRAD-FD full "the slope of a soft cap is left out"
  [[(@1 - capped * capped@) *]] [[1]])

# -- the meter: certificates, intervals and p-values of the laboratory itself --

mutant(serfling-no-union experiments/evidence/certify.c checks_meter/strata_share_the_probability ""
  "every stratum takes the whole probability of failure" [[alpha / 2 / sampled]] [[alpha / 2]])
mutant(tail-level experiments/evidence/certify.c checks_certify/the_tail_is_covered ""
  "the share of rows beyond the maximum is certified at another level" [[pow(alpha, 1 / drawn)]]
  [[pow(4 * alpha, 1 / drawn)]])
mutant(errors-of-the-sample experiments/evidence/errors.c reference_census/errors_are_of_all_rows ""
  "errors are of sampled rows where all are known" [[const bool all = @e->exact->all@;]] [[false]])
mutant(changes-uncorrected experiments/analysis/change.c results_changes/what_is_settled_is_no_longer_counted ""
  "each run is compared at the whole level" [[all[i].p <= @CHANGE_LEVEL / (double)(count - i)@; i++]] [[CHANGE_LEVEL]])
mutant(label-with-seed experiments/grid/grid_row.c runner_grid/row_of_a_run_has_its_label_and_texts ""
  "a label names the seed of the draws" [[label_make(run->spec, @false@, &label)]] [[true]])

# -- properties of every variant, by texts of mutants above --

mutant(property-groups variants/full.c PROP-GQA full
  "query heads take key heads in turn, not in groups"
  [[view_of(call, l, b, @kv_head@)]] [[head % p->kv_heads]])
mutant(property-lse core/engines/softmax/softmax.c PROP-LSE tiled
  "the maximum in a log-sum-exp stays in units of log 2" [[max / ATTN_LOG2E + log(sum)]] [[max + log(sum)]])
mutant(cost-of-one-head core/engines/softmax/softmax.c PROP-COST tiled "the cost is that of one head"
  [[(double)p->batch * (double)p->heads * pairs]] [[pairs]])
mutant(cost-unheld experiments/properties/cost.c "cases/declared:Costs" ""
  "a cost may be any multiple of what is counted" [[(double)INFINITY, @factor_most@)]] [[1e9]])
mutant(lawless-pattern-passes experiments/checks/checks.c "cases/declared:A pattern" ""
  "a pattern without a law passes" [[!p || @p->sees@]] [[true]])
mutant(lawless-run-passes experiments/results/bound.c "cases/declared:A pattern" ""
  "a run passes although nothing holds its keys" [=[[VERDICT_UNCHECKED] = @4@,]=] [[0]])
mutant(nan-in-range experiments/properties/extreme.c "cases/declared:Costs" ""
  "weights of 0/0 pass" [[isnan(y) ? @(double)INFINITY@ : fmax(fmax(low - y, y - high), 0)]] [[0]])
mutant(softmax-without-maximum core/kernels/rows.inc PROP-EXTREME full "the exponentials of a row overflow"
  [[max = @NAME(row_max)(count, x, s)@;]] [[v_set(0)]])
mutant(relu-claims-weights core/engines/linear/fixed_features.c PROP-EXTREME "linear:feature=relu"
  "rectified features say that their weights sum to 1" [[of == COS) && @!(p->eps > 0)@]] [[p->eps > 1e9]])
mutant(lse-output-unread experiments/properties/lse.c "cases/declared:Outputs" ""
  "an output that changes when the log-sum-exp is wanted passes" [[if (@found.count@) difference_settle]] [[false]])
mutant(rounding-without-ceiling core/descriptors.c core_descriptor_bounds/of_every_member ""
  "any error may be declared as rounding" [[errors[i].value >= 0 && @errors[i].value <= errors[i].most@]] [[true]])
mutant(vacuous-bound-passes experiments/evidence/rows.c checks_bf16/a_bound_that_says_nothing_is_vacuous ""
  "a bound that says nothing passes" [[bound[l] > vacuous * size && @size > 0@]] [[false]])
mutant(generous-rounding-untold experiments/checks/fp_declared.c "cases/declared:An error" ""
  "a descriptor looser than the textbook's is not told" [[if (@members[m].declared <= members[m].most@) continue;]]
  [[true]])
mutant(watch-lse experiments/runner/measure_watch.c runner_log_sum/is_judged_in_a_sweep ""
  "the log-sum-exp of a run's own rows passes unseen" [[if (!status && @lse@) status = judge_sums(r, lse);]] [[lse && !p]])
mutant(property-strides variants/full.c PROP-STRIDES full
  "rows of V are taken to be contiguous" [[head, p->dtype), @stride.row@, h.keys,]] [[(i % 2 ? p->d_v : stride.row)]])
mutant(property-half variants/full.c PROP-HALF full "16-bit outputs of a block are all those of its first row"
  [[attn_store_row(c->kernels, p->o.stored, p->d_v, attn_at(o.at, @r * o.row@, t),]] [[0]])
mutant(property-bounds core/problem.c PROP-BOUNDS full
  "one key of the padding is read"
  [[call->kv_len ? call->kv_len[batch] : call->context->problem->n_kv]]
  [[call->kv_len ? attn_min(call->kv_len[batch] + 1, call->context->problem->n_kv) : call->context->problem->n_kv]])
mutant(property-long core/problem.c PROP-LONG full
  "keys from 2000 on are not seen"
  [[call->kv_len ? call->kv_len[batch] : call->context->problem->n_kv]]
  [[attn_min(call->kv_len ? call->kv_len[batch] : call->context->problem->n_kv, 2000)]])
mutant(property-touch experiments/properties/place.c "cases/faults:Tensors" ""
  "an access to a forbidden page passes" [[touch.block >= 0]] [[touch.block > 9]])
mutant(test-norms experiments/commands/test_case.c "cases/faults:Particular" ""
  "large norms are left out" [=[deviations[c->input]]=] [=[fmin(deviations[c->input], 3)]=])
mutant(test-isa experiments/commands/test_case.c "cases/faults:Under one" ""
  "every case runs under the best instruction set" [[.isa = @c->isa@]] [[NULL]])
mutant(property-stale experiments/properties/repeat.c "cases/test:Each planted" ""
  "an output that is kept from an earlier run passes" [[if (!status) status = trial_execute(t->memory, @fresh@, &in,]]
  [[t->plan]])
mutant(property-deaf experiments/properties/repeat.c "cases/test:What says nothing" ""
  "an output that depends on nothing passes" [[!found.count && @has_numbers(t, other, *batch, *head)@]] [[false]])
mutant(test-left-early data/support/forked_probe.c "cases/test:What breaks" ""
  "a variant that ends its process passes" [[if (got <= 0) return;]] [[if (got <= 0) { r->end = PROBE_WHOLE; return; }]])
mutant(drawn-any-output experiments/conformance/judge.c "cases/drawn:The command" ""
  "any output is that of the definition" [[if (fabs(got - expected[l]) <= most) continue;]] [[(void)most; continue;]])
mutant(drawn-usual experiments/conformance/drawn.c cli_drawn/usual_sizes_and_plain_problems_are_there ""
  "usual lengths and widths are left out" [[status ? 0 : @add_usual(scope, list + small)@]] [[0]])
mutant(exact-by-its-pattern experiments/conformance/judge.c "cases/declared:Exact" ""
  "what is exact is held to the pattern that it describes" [[if (@!status && j.view.caps & ATTN_CAP_EXACT@) j.view.pattern]] [[false]])
mutant(property-threads core/engines/softmax/tiling.c PROP-THREADS tiled
  "the length of a step depends on the number of threads"
  [[attn_min(tiling.blocks.key ? tiling.blocks.key : keys, p->n_kv)]]
  [[attn_max(attn_min(tiling.blocks.key ? tiling.blocks.key : keys, p->n_kv) / c->threads, 1)]])
mutant(property-length variants/full.c PROP-LEN full
  "query heads take key heads in turn, not in groups"
  [[view_of(call, l, b, @kv_head@)]] [[head % p->kv_heads]])
mutant(property-prefix variants/bigbird.c PROP-PREFIX "bigbird:block=8,random=2,global=0"
  "random blocks of causal rows depend on the length of the sequence"
  [[((uint64_t)head << 32) + (uint64_t)i]] [[(uint64_t)(head * s->blocks + i)]])
mutant(property-batch core/engines/compression/compression.c PROP-BATCH "linformer:k=16"
  "a batch entry's slots are those of the first"
  [[inner.n_kv = slots;
  inner.k = (attn_stride){@p->kv_heads * slots * p->d_qk@,]] [[0]])

# -- targets: transforms of scores, masks, sinks --

mutant(relative-off-by-one core/engines/softmax/score_maps.c FP-2 "tiled:path=fma" "the table of distances is read one further"
  [[line + i + p->n_kv - 1]] [[line + i + p->n_kv]])
mutant(leaky-wrong-side core/kernels/score.inc FP-2 "tiled:path=fma" "positive scores are made smaller"
  [[v_max(t, v_mul(t, map->leaky))]] [[v_select(v_below(t, v_set(0)), t, v_mul(t, map->leaky))]])
mutant(positions-of-queries-lost core/problem.c core_query_positions/entries_of_different_lengths ""
  "queries stand at the bottom right whatever the call says"
  [[attn_call_position(call, batch, 0) - attn_problem_position(&p, 0)]] [[0]])
mutant(positions-of-the-first-kv-head core/problem.c core_key_positions/keys_that_are_left ""
  "every kv head has the keys of the first" [[head / (p.heads / p.kv_heads) * k->head]] [[0]])
mutant(cap-after-bias core/score.c FP-1 full "the soft cap is applied after the biases"
  [[call->context->kernels->map_row(count, x, biases.scale, (attn_score_map){s->softcap, s->leaky});
  if (!s->relative && !s->dense.at) return;
  s->softcap = s->leaky = 0;
  for (int64_t j = 0; j < count; j++) {
    const double y = attn_score_of(&biases, batch, head, i, first + j, attn_get(x, j, biases.dtype)),
                 most = ATTN_SCORE_MOST * attn_numbers[biases.dtype].largest;
    attn_set(x, j, biases.dtype, isfinite(y) ? fmin(fmax(y, -most), most) : y);
  }]]
  [[const double softcap = s->softcap, leaky = s->leaky;
  call->context->kernels->map_row(count, x, biases.scale, (attn_score_map){0, 0});
  s->softcap = s->leaky = 0;
  for (int64_t j = 0; j < count; j++)
    attn_set(x, j, biases.dtype,
             attn_score_of(&biases, batch, head, i, first + j, attn_get(x, j, biases.dtype)));
  call->context->kernels->map_row(count, x, 1, (attn_score_map){softcap, leaky});]])
mutant(sink-of-first-head core/engines/softmax/score_maps.c SINK-1 "tiled:path=fma" "every head has the sink of the first"
  [[p->score.sink[t->head + at / t->tile->row_count] * ATTN_LOG2E]] [[p->score.sink[0] * ATTN_LOG2E]])
mutant(sink-clamped variants/full.c SINK-1 full "sinks are cut at 20"
  [[if (p->score.sink) attn_set(room->x, count, t, p->score.sink[head]);]]
  [[if (p->score.sink) attn_set(room->x, count, t, p->score.sink[head] > 20 ? 20 : p->score.sink[head]);]])
mutant(sink-joined-by-maximum experiments/properties/sink.c SINK-1 "tiled:path=fma"
  "the log-sum-exp with a sink is taken for the larger of the two"
  [[fmax(sum, z) + log1p(exp(-fabs(sum - z)))]] [[fmax(sum, z)]])

# -- weights: scales, contractions --

mutant(mixing-of-two-rows core/kernels/tile.inc PROP-DOB "tiled:path=fma"
  "a row is divided by its predecessor's sum"
  [[v_load((const REAL *)tile->sum + lane)]] [[v_load((const REAL *)tile->sum + (lane ? lane - VL : 0))]])
mutant(mixing-of-columns core/kernels/features.inc PROP-DOB "performer:features=32"
  "every second column is divided by more" [[out[i] = x[i] / divisor;]]
  [[out[i] = x[i] / (i % 2 ? (REAL)1.25 * divisor : divisor);]])
mutant(variation-of-both-signs experiments/checks/weights/mixing.c checks_weights/sound_variants_violate_nothing ""
  "the total variation is half of what it is" [[fabs(a[g] - b[g]) / 2]] [[fabs(a[g] - b[g]) / 4]])

# -- patterns under other numbers, and as caches --

mutant(edge-of-run-lost core/engines/softmax/softmax.c GR-1 "graph:size=20" "the last key of a run is not taken"
  [[(t->keys - seg.first - 1) / seg.step + 1]] [[(t->keys - seg.first - 1) / seg.step]])
mutant(queries-not-renumbered experiments/checks/patterns/relabel.c checks_patterns/those_of_the_library ""
  "queries keep their numbers where their rows do not" [[gather(p->q, x->query, from->n_q, wide, x->q);]]
  [[memcpy(x->q, p->q, n_q * wide);]])
mutant(rolling-window-short variants/streaming.c STR-0 "streaming:sink=2,window=8" "the window is one key short"
  [[first = @position - s->p.window + 1@]] [[position - s->p.window + 2]])

# -- what a selection knows of scores --

mutant(box-of-first-key variants/pages.c TK-1 "pages:page=8,budget=16" "the box of a page is its first key"
  [[a.most = fmax(a.most, own);]] [[if (j == 0) a.most = own;]])
mutant(rest-of-one-coordinate variants/topk.c TK-1 "topk:k=8,by=sparq,r=4" "of the other coordinates the last alone counts"
  [[if (!ranked) norm += own * own;]] [[if (!ranked) norm = own * own;]])
mutant(certificate-of-first-key variants/pages.c SEL-3 "pages:page=8,budget=16"
  "the box of a page, as it is stated, is its first key" [[a.most = fmax(a.most, own);]] [[if (j == 0) a.most = own;]])
mutant(certificate-of-one-key experiments/checks/selection/sel_certificate.c checks_selections/a_certificate_by_hand ""
  "a page that is left out counts as one key" [[z += log(out);]] [[;]])
mutant(hash-one-rotation variants/lsh.c LSH-1 "lsh:rounds=4,buckets=8" "all rounds have the rotation of the first"
  [[(uint64_t)(@round@ << 32 | column)]] [[(int64_t)0 * round]])
mutant(hash-seedless variants/lsh.c LSH-1 "lsh:rounds=4,buckets=8" "rotations do not depend on the seed"
  [[attn_rng_init(&rng, @(uint64_t)s->p.seed@, 0x15b]] [[0]])

# -- whole models --

mutant(distribution-not-normalised experiments/mathematics/divergence.c EV-1 "streaming:sink=0,window=8"
  "the exact distribution does not add up to 1" [=[p[t] /= sum;]=] [=[p[t] *= 1;]=])
mutant(another-token-follows experiments/mathematics/divergence.c EV-2 "streaming:sink=0,window=8"
  "the changed likelihood is of another token" [=[((double)@changed[y]@ - (double)z[y])]=] [=[changed[y ? y - 1 : 1]]=])
mutant(margin-of-an-earlier-token experiments/mathematics/divergence.c EV-3 "streaming:sink=0,window=8"
  "the margin leaves out what comes after the most likely token" [[at > second]] [[at > second && second < first - 100]])
mutant(layer-skipped experiments/quality/evaluation_probe.c EV-4 "streaming:sink=0,window=8"
  "a layer is not replaced again" [[if (@step > 0@) memcpy(where, where - size, (size_t)size);]] [[step > 1]])
mutant(head-in-another-slot data/llama/pass.c EV-6 full "a head's output takes the place of the next one's"
  [[float *to = p->window.mixed + (i * heads + @h@) * d;]] [[(h + 1) % heads]])
mutant(exact-scale-off variants/full.c EV-5 full "the scale of exact attention is a tenth of a percent too large"
  [[attn_softmax_row(c->kernels, keys, attn_at(s, r * p->n_kv, t), p->scale);]]
  [[attn_softmax_row(c->kernels, keys, attn_at(s, r * p->n_kv, t), 1.001 * p->scale);]])
mutant(model-not-causal data/llama/reach.c EV-7 tiled "queries see later tokens" [[p.causal = @!m->kind->encoder@;]] [[false]])
mutant(unnamed-head-replaced data/llama/pass.c data_passes/only_the_heads_and_queries_that_are_named_change ""
  "heads that were not named are replaced"
  [=[!s->swap->where || @s->swap->where[layer * p->model->config.heads + head]@]=] [[true]])
mutant(answer-one-late experiments/quality/evaluate.c EV-10 "streaming:sink=0,window=8"
  "the most likely token is compared with the one before" [[.right = x.top == @y@]] [=[c->text->tokens[r->window * c->text->n + i]]=])
mutant(drawn-too-hot experiments/quality/tasks/sampled_text.c EV-9 "streaming:sink=0,window=1" "text is drawn at twice the temperature"
  [[left -= exp(((double)z[t] - (double)z[top]) / @temperature@);]] [[(2 * temperature)]])
mutant(question-seen experiments/quality/tasks/sentences.c quality_asked/a_cache_is_cut_after_the_question_or_before_it ""
  "a cache is cut one token into the question"
  [[const int64_t question = @w->first[window] + 1@ - all[count].count;]] [[w->first[window] + 2]])
mutant(cache-cut-late experiments/quality/request.c cli_eval/a_policy_sees_the_question_or_not ""
  "a cache holds all keys of a window"
  [[.prompt = @quality_windows_prompt(w)@,]] [[w->n]])
mutant(left-of-first-queries experiments/quality/density.c quality_evaluate/what_is_left_out_is_what_log_sum_exps_say ""
  "the weight that is left out is that of queries before the replaced ones"
  [[@(a->first + row->i)@ * p->heads]] [[row->i]])
mutant(share-too-narrow experiments/mathematics/intervals.c quality_intervals/known_values ""
  "the lower end counts one miss fewer"
  [[beta_quantile(tail, hit, @missed + 1@)]] [[missed]])
mutant(config-forgotten experiments/quality/passes.c cli_eval_identity/a_model_is_more_than_its_weights ""
  "runs of another configuration are taken for those of this one"
  [[{&r.config_sha256, @j->about->config_sha256@}]] [[""]])
mutant(merge-of-anything experiments/results/identity.c cli_merge/journals_that_disagree_are_refused ""
  "rows that differ are said to agree" [[if (@!(x == y) && !(isnan(x) && isnan(y))@) return c;]] [[false]])
mutant(range-unheld experiments/results/column.c
  results_journal/foreign_newer_and_malformed_files_are_refused_with_their_line ""
  "numbers may be outside of their column's range" [[isnan(x) || @(x >= c->least && x <= c->most)@]] [[true]])
mutant(words-for-nothing experiments/quality/relate.c quality_relate/words_pay_for_being_many ""
  "words do not pay for being many" [=[fmax(i ? out[i - 1].p : 0, @(double)(count - i)@ * out[i].p)]=] [[1]])

# -- expressions --

mutant(grad-sum-of-the-first core/expression/sum.c GRAD-FD "0.25*tiled + 0.75*longformer:window=8" "terms are given the first one's share"
  [[gate_rows(s, call, @t@, g->d_o, g->d_o_at]] [[0]])
mutant(grad-sum-term-lost core/expression/sum.c GRAD-SUM "0.25*tiled + 0.75*topk:k=9" "the first term alone has gradients"
  [[if (@status || !t@) return status;]] [[true]])
mutant(grad-sum-gates-in-one core/expression/sum.c GRAD-FD "gate*tiled + gate*longformer:window=8" "a row's gates have one gradient"
  [=[[gate.width > 1 ? @l@ : 0] += gate.value]=] [[0]])
mutant(grad-sum-gates-of-the-first core/expression/sum.c GRAD-SUM "gate*tiled + gate*topk:k=9" "gates of all terms have one gradient"
  [[i * x->columns + @gate.first@;]] [[0]])
mutant(grad-pooled-share core/engines/pooling/pooling_back.c GRAD-FD "pooled:block=16,window=16" "each key has the whole gradient of a mean"
  [[@(double)(end - first)@);]] [[1]])
mutant(grad-dyadic-unweighed core/expression/dyadic_backward.c GRAD-FD "dyadic(tiled,base=16)" "each part is given the whole"
  [[? @weight * x@ : 0]] [[x]])
mutant(grad-store-of-given core/engines/stored/stored_engine.c GRAD-FP "store:k=q8_0,v=q8_0" "gradients read fp32 numbers as codes"
  [[return attn_call_backward(@&inner@, s->reader]] [[call]])

mutant(sum-number-of-the-next core/expression/sum.c SUM-1 "0.25*tiled + 0.75*topk:k=8" "a term is multiplied by the number of the first"
  [[: @s->gates[t]@};]] [=[s->gates[0]]=])
mutant(gate-without-its-sign core/expression/sum.c SUM-1 "gate*tiled - gate*topk:k=8" "a gate that is subtracted is added"
  [[given ? @copysign(1, s->gates[t])@]] [[1]])
mutant(gate-shapes-unseen core/expression/sum.c checks_library/sums_read_the_tensors_of_a_call ""
  "gates of any number of columns are read" [[x && @x->columns != s->given@ && x->columns != s->given * d_v]] [[false]])
mutant(gate-columns-mapped experiments/evidence/attention_map.c checks_evidence/weights_of_each_column_are_none ""
  "weights of each column are taken for those of all" [[(write && @write->columns > 1@)]] [[write->columns > 99]])
mutant(dyadic-keys-of-the-row core/expression/dyadic.c DYA-1 "dyadic(topk:k=8,base=16)" "a rectangle reads values from the wrong key on"
  [[attn_row_behind(call->v, p->v, @part->key@, p->dtype)]] [[(part->exact ? part->key : 0)]])
mutant(dyadic-join-unweighed core/score.c DYA-1 "dyadic(tiled,base=16)" "the parts of a row have the same share"
  [[other = @exp(more_lse - most)@,]] [[own]])
mutant(sum-of-large-gates core/expression/caps.c expression_grammar/variants_of_expressions ""
  "gates of 1e20 are taken to add up to 1"
  [[(@fabs(sum - 1) <= rounding && rounding <= 0x1p-32@)]] [[fabs(sum - 1) <= rounding]])
mutant(join-takes-what-is-owned core/expression/join.c expression_lies/of_one_term ""
  "a selector that draws from keys of others goes unseen"
  [[run_sets_intersect(owned, &own)]] [[false]])

# -- keys that are drawn and weighed --

mutant(law-weights-dropped variants/sample.c LAW-2 "sample:count=9" "drawn keys have weight 1"
  [[all ? 0 : log((double)r.n / (double)budget)]] [[0 * (double)budget]])
mutant(law-one-draw-more variants/sample.c LAW-4 "sample:count=9" "weights are those of one draw more"
  [[all ? 0 : log((double)r.n / (double)budget)]] [[all ? 0 : log((double)r.n / (double)(budget + 1))]])
mutant(law-certain-keys-heavier variants/sample.c LAW-3 "streaming:sink=2,window=8 + sample:count=40"
  "where every key is taken they weigh more"
  [[all ? 0 : log((double)r.n / (double)budget)]] [[all ? 0.5 : log((double)r.n / (double)budget)]])
mutant(law-times-forgotten variants/sample.c LAW-5 "sample:count=40,replacement=yes" "a key that is drawn twice counts once"
  [[times > 1 ? each + log(times) : each]] [[times > 1 ? each : each]])
mutant(law-draws-seedless variants/sample.c LAW-1 "sample:count=9" "draws do not depend on the seed"
  [[@(uint64_t)s->p.seed@, purpose,]] [[0]])
mutant(law-claim-as-proof variants/sample.c variants_sample/a_promise_is_stated_as_what_it_is ""
  "a claim of large samples passes for a proof" [[.claimed = @x->guarantee == CLT@]] [[false]])
mutant(law-one-hit variants/lsh_tail.c LAW-4 "lsh_tail:k=3,l=10" "the weight is that of keys which one table has"
  [[1 - miss * (1 - p) - (@hits == 2@ ? one : 0)]] [[hits == 3]])
mutant(picks-of-other-weights core/engines/softmax/picks.c LAW-4 "hyper:exact_below=0,block=20,sample=40"
  "a key has the weight of its neighbour" [[!(weights && (weights[last] < log_weight || weights[last] > log_weight))]] [[true]])
mutant(picks-of-padding core/score.c SEL-0 "sample:count=9" "keys that do not exist are drawn from, too"
  [[*end = @attn_min(*end, attn_call_keys(call, batch))@;]] [[*end]])
mutant(law-tables-again core/engines/hashing/tables.c LAW-1 "lsh_tail:k=6,l=40" "later tables have the vectors of the first"
  [=[x->packed[@first / GROUP@],]=] [=[0]=])
mutant(law-head-drawn-again variants/hyper.c LAW-5 "hyper:exact_below=0,block=8,sample=20"
  "drawn keys of the own block count twice" [[else if (@!s->p.exclude@)]] [[true]])
mutant(law-weight-of-the-first-run core/engines/softmax/score_maps.c FP-2 "sample:count=9,replacement=yes"
  "every run has the weight of the first" [=[bias = weights[@r@] * ATTN_LOG2E]=] [=[0]=])
mutant(law-weights-unknown experiments/reference/transform.c FP-2 "sample:count=9"
  "the exact row of a selection leaves the weights out" [[x->score += @log_weight@;]] [[0 * log_weight]])
mutant(law-pairs-apart experiments/evidence/weights/law.c LAW-1 "lsh_tail:k=3,l=10" "two keys are taken for independent"
  [[(1 + @excess@) * exp(-log_weight - other)]] [[0 * excess]])

mutant(tail-window-weighted variants/lsh_tail.c LAW-5 "lsh_tail:k=3,l=10,window=5"
  "keys that are always taken have weights, too" [=[if (weights && @w.hits[j] != ALWAYS@)]=] [[true]])
mutant(tail-pairs-independent variants/lsh_tail.c LAW-1 "lsh_tail:k=3,l=10"
  "two keys are kept as if their tables were independent"
  [[both = a == b ? p_a : @power(fmax(0, 1 - (to_a + to_b + between) / (2 * pi)), x->k)@;]] [[p_a * p_b]])
mutant(tail-window-counts-the-hidden core/score.c variants_lsh_tail/a_window_counts_no_hidden_keys ""
  "keys that a bias hides have places in the window" [[count -= @!attn_score_hides(p, batch, head, i, --end)@;]]
  [[(--end, 1)]])
mutant(lsh-empty-rows-sum-to-one variants/lsh.c variants_lsh/without_a_window_rows_may_be_empty ""
  "weights of rows that no key shares a bucket with are said to sum to 1" [[if (!x->window) out->caps &= @~(uint32_t)(ATTN_CAP_STOCHASTIC | ATTN_CAP_CONVEX)@;]]
  [[~(uint32_t)0]])
mutant(sample-quantile-of-one-side variants/sample.c VA-1 "sample:guarantee=clt,base=60,eps=0.2,replacement=yes"
  "an event of two sides has the quantile of one" [[.z = quantile(x->delta / @(x->quantile ? 2 : 1)@)]] [[1]])
mutant(sample-accuracy-in-percent variants/sample.c VA-1 "sample:guarantee=bernstein,base=48,eps=0.05"
  "the error that is asked for is read as percent" [[a = @x->eps@ * (owned / n + least),]] [[100 * x->eps]])
mutant(hyper-binary-order core/engines/hashing/order.c LAW-4 "hyper:exact_below=0,block=20,sample=40"
  "buckets are sorted by their number, and neighbours differ in many bits" [[code ^= @code >> shift@;]] [[0]])
mutant(hyper-queries-by-place variants/hyper.c LAW-4 "hyper:exact_below=0,block=20,sample=40"
  "queries are taken as they come" [[return @head_of(call->context, &own).order + head % (p->heads / p->kv_heads) * p->n_q@;]]
  [[NULL]])
mutant(hyper-padding-sorted variants/hyper.c oracle hyper
  "keys that do not exist are hashed and sorted among the others"
  [[keys = @attn_call_keys(call, batch)@, blocks = blocks_of(&s->p, keys);]] [[p->n_kv]])
mutant(hyper-multiplicity-lost variants/hyper.c LAW-2 "hyper:exact_below=0,block=20,sample=40"
  "a key that is drawn again has no more weight" [=[@log((double)w->times[key])@ - log((double)m * pi)]=] [[0]])
mutant(hyper-seedless variants/hyper.c LAW-1 "hyper:exact_below=0,block=20,sample=40" "draws do not depend on the seed"
  [[(uint64_t)s->p.seed]] [[0]])
mutant(bigbird-candidates-of-all variants/bigbird.c LAW-4 "bigbird:block=8,random=2,tail=uniform"
  "drawn blocks represent all blocks, the window's included" [[log((double)@attn_max(all, 1)@ / (double)]] [[s->blocks]])
mutant(bigbird-blocks-independent variants/bigbird.c LAW-1 "bigbird:block=8,random=2,tail=uniform"
  "the law takes two drawn blocks for independent" [[all * (drawn - 1) / (drawn * (all - 1))]] [[1]])

mutant(law-certain-drawn-again experiments/evidence/weights/means.c checks_tails/heads_that_depend_on_the_seed ""
  "a key that is always taken is thought to be drawn" [[@weight_always(law->m, l->end, a)@ ? 1 : inclusion_probability(]] [[false]])

# -- caches of keys and values --

mutant(evict-largest core/cache/kv_head.c eval:EVICT-2 "evict:score=knorm,budget=24,recent=4" "the keys of the largest score go"
  [[if (@x->score < y->score@) return -1;]] [[x->score > y->score]])
mutant(evict-recent core/cache/kv_head.c eval:EVICT-1 "evict:score=knorm,budget=24,recent=4" "one recent key fewer is safe"
  [[const int64_t recent = (@position - r->recent + 1@) / r->chunk]] [[position - r->recent + 2]])
mutant(evict-budget core/cache/kv_head.c core_policies/counts_keys_and_pairs_in_closed_form "" "one key more is held"
  [[@h->count < r->budget@]] [[h->count <= r->budget]])
mutant(evict-prompt core/cache/kv_head.c eval:CACHE-1 "evict:score=knorm,budget=24,recent=4,prompt=40" "keys go before the prompt is over"
  [[position < @r->prompt@]] [[0]])
mutant(evict-returns core/cache/eviction.c EVICT-1 "evict:score=h2o,budget=24,recent=4" "a key is missed for one step alone"
  [[@went[j] == HELD@ || went[j] > t]] [[went[j] == HELD && j % 5 != t % 5]])
mutant(evict-seen-stay core/cache/kv_head.c EVICT-2 "evict:score=h2o_mean,budget=24,recent=4"
  "numbers of queries stay where they are as keys go" [[if (h->seen) h->seen[kept] = h->seen[j];]] [[;]])
mutant(evict-three-sinks core/cache/kv_scores.c EVICT-2 "evict:score=streaming,budget=24,recent=4" "the fourth key is no sink"
  [[score[j] = h->position[j] < @SINKS@ ? (double)INFINITY]] [[SINKS - 1]])
mutant(evict-lag-values core/cache/kv_scores.c eval:EVICT-2 "evict:score=lagkv,budget=24,recent=4" "values are not read"
  [[score[first + j] += next[j];]] [[;]])
mutant(cache-wide-values-stay core/cache/kv_memory.c CACHE-1 "evict:score=lagkv,budget=20,recent=3" "values that scores read stay as keys go"
  [[for (kv_field f = 0; f < @KV_POSITIONS@; f++)]] [[KV_WIDE_VALUES]])
mutant(cache-copy-filters core/cache/kv_cache.c core_kv_cache/a_copy_is_the_cache_that_is_gone "" "a copy has no filters"
  [[if (own) @memcpy(own, c.rule.filters, (size_t)count * sizeof *own)@;]] [[memset(own, 0, (size_t)count * sizeof *own)]])
mutant(evict-one-at-a-time core/cache/kv_head.c EVICT-1 "evict:score=knorm,budget=24,recent=4,every=5" "one key fewer goes at a time"
  [[open - @attn_kv_kept(r) * r->chunk@]] [[(attn_kv_kept(r) + (r->every > 1)) * r->chunk]])
mutant(evict-oracle-late core/cache/eviction.c EVICT-2 "evict:score=exact,budget=24,recent=4" "the oracle misses the next query"
  [[return w->later + @(t - first)@ * n;]] [[(t - first + (t % w->part + 1 < w->part))]])
mutant(evict-safeguard core/cache/kv_rule.c EVICT-1 "evict:score=h2o,budget=24,recent=4,prompt=48,shared=0.05" "nothing of a budget is a head's alone"
  [[pooled = @attn_kv_pooled(r)@]] [[attn_kv_kept(r)]])
mutant(evict-share-least core/cache/kv_rule.c EVICT-2 "evict:score=knorm,budget=24,recent=4,prompt=48,shared=0.8" "the pool goes to the head of the smaller score"
  [=[@scores[h * row + budget[h]] > scores[next * row + budget[next]]@]=] [=[scores[h * row + budget[h]] < scores[next * row + budget[next]]]=])
mutant(cache-admits-evenly core/cache/kv_memory.h CACHE-1 "evict:score=random,budget=64,recent=4,admit=0.5" "rows that are no keys have no place in a full cache"
  [[(c->evicts && @attn_kv_admits(&c->rule)@)]] [[false]])
mutant(cache-share-late core/cache/kv_append.c CACHE-1 "evict:score=snapkv,budget=24,recent=4,prompt=48,shared=0.8"
  "budgets are divided after the append in which the prompt ends" [[kv_shares(c) && left >= 0 ? @attn_min(left, n)@ : n]] [[n]])
mutant(cache-share-first core/cache/kv_append.c eval:CACHE-1 "evict:score=knorm,budget=24,recent=4,prompt=48,shared=0.8"
  "all kv heads have the budget of the first" [[rule.budget = c->budget[@h@];]] [[0]])
mutant(cache-share-reads-rest core/cache/kv_cache.c CACHE-3 "evict:score=knorm,budget=24,recent=4,prompt=48,shared=0.8"
  "rows that are no keys stand before the queries" [[position[j] = @c->length[batch] + j - count@;]] [[c->length[batch] - c->held[batch] + j]])
mutant(cache-share-copied core/cache/kv_memory.c CACHE-5 "evict:score=knorm,budget=12,recent=4,prompt=24,shared=0.8"
  "a copy has the budgets of a cache whose kv heads share none" [[@to->head[line].rule.budget = from->head[line].rule.budget@;]] [[0]])
mutant(cache-share-uncounted core/cache/kv_memory.c CACHE-2 "evict:score=knorm,budget=24,recent=4,prompt=48,shared=0.8"
  "scores of kv heads that share are not given back" [[kv_give(c, @c->scores@, score_elements(c)]] [[NULL]])
mutant(cache-decoded-short experiments/checks/caches/decoding.c quality_checks/caches_are_decoded_beyond_the_prompt ""
  "caches are decoded no further than an evaluation's prompt" [[sqrt(@work_most@ / (double)]] [[0x1p25]])
mutant(cache-values-stay core/cache/kv_memory.c eval:CACHE-3 "evict:score=knorm,budget=24,recent=4,prompt=40" "values stay where they are as keys go"
  [[g < n && @c->field[f].at@; g++]] [=[c->field[f].at && f != KV_VALUES]=])
mutant(cache-gap-too-long core/cache/kv_memory.c CACHE-3 "evict:score=knorm,budget=24,recent=4" "a gap is closed one row too early"
  [[(size_t)(@end - gone[g] - 1@) * c->field]] [[end - gone[g] - 2 + (end == gone[g] + 1)]])
mutant(cache-queries-late core/cache/kv_cache.c CACHE-1 tiled
  "queries stand where the longest sequence ends" [[c->first[b] = c->length[@b@] - n;]] [[0]])
mutant(cache-truncate-keeps core/cache/kv_cache.c eval:CACHE-5 tiled "keys of steps that are taken back stay"
  [[c->problem.batch; b++) @c->length[b] = length[b]@;]] [[0]])
mutant(cache-copy-shares core/cache/kv_memory.c CACHE-5 tiled "a copy lacks the values"
  [[if (@to->field[f].at@) memcpy(]] [=[to->field[f].at && (f != KV_VALUES || !memset(to->field[f].at, 0, rows * to->field[f].bytes))]=])
mutant(cache-truncate-head core/cache/kv_cache.c CACHE-5 "evict:score=knorm,budget=64,recent=4" "a head keeps the count of keys that were taken back"
  [[c->head[line].count -= c->length[b] - length[b];]] [[;]])
mutant(cache-plan-uncounted core/cache/kv_cache.c CACHE-2 tiled "the plan's memory is not counted"
  [[c->bytes += attn_plan_bytes(plan);]] [[;]])
mutant(cache-wide-rows core/cache/kv_memory.c CACHE-2 "store:k=q8_0,v=q4_0" "rows of codes have the room of the numbers that they stand for"
  [[attn_row_bytes(p->d_v, @attn_stored(p->v, p->dtype)@);]] [[p->dtype]])

# -- stores --

mutant(store-truncates core/kernels/codes.h eval:QNT-1 "store:k=q8_0,v=q8_0" "codes of q8_0 are cut off"
  [[@roundf@(isfinite(inverse)]] [[truncf]])
mutant(store-code-beyond core/kernels/codes.h QNT-1 "store:k=int4,v=int4" "the range has 2^bits steps"
  [[(float)(@(1 << bits) - 1@)]] [[1 << bits]])
mutant(store-least-missing core/kernels/convert.inc QNT-1 "store:k=int4,v=int4" "the least value is not added"
  [[v_fma(scale, codes_numbers(at + 4, bits, l), @least@)]] [[v_set(0)]])
mutant(store-values-doubled core/kernels/convert.inc QNT-2 "store:k=q8_0,v=q8_0" "numbers of q8_0 are twice as large"
  [[v_mul(@scale@, v_signed(at + 2 + l))]] [[v_add(scale, scale)]])
mutant(store-not-finite core/kernels/codes.h variants_codes/what_is_no_number_makes_its_block_one "" "an infinite number is the scale of its block"
  [[if (@!codes_finite(x) || !codes_set_half(at, (most - least) / top)@ ||]] [[!codes_set_half(at, (most - least) / top)]])
mutant(store-row-before core/engines/stored/stored_engine.c eval:QNT-0 "store:k=q8_0,v=q8_0" "rows are those before"
  [[line % p->kv_heads, @at % p->n_kv@, p->dtype), own)]] [[(at % p->n_kv + p->n_kv - 1) % p->n_kv]])
mutant(store-type-of-keys core/engines/stored/stored_engine.c QNT-0 "store:k=q4_0,v=q8_0" "values are stored as keys are"
  [[s->residual ? p->dtype : @s->v@, &s->v_scheme]] [[s->k]])
mutant(store-reader-lost core/expression/stored_kind.c QNT-0 "topk:k=8 | store:k=int8,v=int8" "what reads the store reads every key"
  [[out->reader = @e->terms[0]->text@;]] [[NULL]])
mutant(latent-head-before core/engines/lowrank/latents.c MLA-1 "latent:rank=6" "queries meet the keys of another head"
  [[w + (key ? @h@ * p->d_qk]] [[(h + 1) % p->kv_heads]])
mutant(latent-scale-of-rank core/engines/lowrank/latents.c eval:MLA-1 "latent:rank=6" "the scale is that of the latents' width"
  [[p.d_qk = l->rank;]] [[p.d_qk = l->rank; p.scale = 1 / sqrt((double)l->rank);]])
mutant(latent-values-of-keys core/engines/lowrank/latents.c MLA-3 latent "outputs are expanded by what makes keys"
  [[: @p->kv_heads * p->d_qk + h * p->d_v@)};]] [[h * p->d_v]])
mutant(latent-rank-below core/engines/lowrank/latents.c eval:MLA-2 "latent:rank=6" "one triplet fewer than the rank is kept"
  [[e < (found ? attn_min(@free@, f.side) : 0)]] [[free - 1]])
mutant(latent-values-unmoved variants/latent.c MLA-1 "latent:rank=6,path=naive" "expanded values are those of the first head"
  [[const int64_t d = key ? p->d_qk : p->d_v, place = @key ? at : at - of_keys@,]] [[key ? at : (at - of_keys) % p->d_v]])
mutant(latent-gram-of-one-side core/engines/lowrank/latents.c MLA-2 "latent:rank=6"
  "vectors are those of a matrix that is not symmetric"
  [[@attn_inner(f->a + i * f->length, f->a + j * f->length, f->length)@;]]
  [[attn_inner(f->a + i * f->length, f->a + j * f->length, f->length / 2)]])
mutant(latent-not-finite core/engines/lowrank/latents.c variants_latents/what_is_not_finite_stays_in_its_entry ""
  "an entry that is not finite has latents of zeros" [[to_c[i] = @(double)NAN@;]] [[0]])
mutant(latent-prompt-of-all core/engines/lowrank/latents.c PROP-CAUSAL "latent:rank=6,prompt=12" "later keys enter the factors, too"
  [[rows = l->prompt ? @attn_min(l->prompt, keys)@ : keys;]] [[keys]])
mutant(latent-shared-first core/engines/lowrank/latents.c MLA-2 "latent:rank=6,shared=2" "the first columns are left out of the factors"
  [[at / d * p->d_qk + @at % d@]] [[at % d + l->shared]])
mutant(latent-cache-first-factors core/cache/kv_latents.c CACHE-1 "latent:rank=6,prompt=12"
  "later keys of every sequence are projected by the factors of the first"
  [[attn_latent_project(&x->law, &x->given, @factors_of(c, batch)@, own, 0, row, 1);]] [[x->w]])
mutant(latent-cache-copy-unfitted core/cache/kv_latents.c CACHE-5 "latent:rank=6,prompt=12" "a copy has other factors"
  [[memcpy(to->latents.w, from->latents.w, @(size_t)factor_numbers(to)@ * sizeof *to->latents.w);]]
  [[(size_t)factor_numbers(to) / 2]])
mutant(latent-cache-keeps-prompt core/cache/kv_latents.c CACHE-2 "latent:rank=6,prompt=12"
  "a prompt that is factored is held as it was given, too" [[if (status || @rests@) return status;]] [[true]])
mutant(code-toward-zero core/engines/stored/kv_codes.c QNT-3 turbo "a coordinate takes the level below it"
  [[return copysign(c->level[@k@], t);]] [[k > 0 ? k - 1 : 0]])
mutant(code-bounds-at-levels core/engines/stored/kv_codes.c QNT-1 turbo "a cell ends at its level"
  [[last ? 1 : @(c->level[k] + c->level[k + 1]) / 2@]] [=[c->level[k]]=])
mutant(code-gain-inverted core/engines/stored/kv_codes.c QNT-3 qjl "sqrt(2/pi) in place of sqrt(pi/2)"
  [[sqrt(@acos(0)@)]] [[1 / acos(0)]])
mutant(code-bits-uncounted core/engines/stored/kv_codes.c checks_stores/bits_are_all_that_is_stored "" "norms are not counted"
  [[(double)(@16@ + bits * d + signs]] [[0]])
mutant(rotated-not-back variants/rotated.c QNT-1 "rotated:k=q4_0,v=q8_0" "the rotation is not taken back"
  [[turn(c, d, kept);]] [[;]])
mutant(kivi-top-code core/engines/stored/stored_engine.c QNT-1 "kivi:bits=2,group=8,residual=16" "codes go up to 2^bits"
  [[(float)(@(1 << bits) - 1@);]] [[1 << bits]])
mutant(kivi-residual-coded core/engines/stored/stored_engine.c eval:QNT-0 "kivi:bits=2,group=8,residual=16" "the newest values are coded"
  [[m - m % s->residual : @m - s->residual@;]] [[m]])
mutant(kivi-flushed-early core/engines/stored/stored_engine.c PROP-CAUSAL "kivi:bits=2,group=8,residual=16" "groups go before they are complete"
  [[s->group ? @m - m % s->residual@ :]] [[m - m % s->residual + s->residual]])
mutant(kivi-way-lost core/engines/softmax/settled.c QNT-0 "kivi:bits=2,group=8,residual=16" "keys whose values are not coded are left out"
  [=[return (@some[V] & 1 ? some[K] : 0@) |]=] [=[some[V] & 1 ? some[K] & 1 : 0]=])
mutant(kivi-mask-lost core/engines/softmax/softmax.c QNT-0 "evict:budget=24,recent=8 | kivi:bits=2,group=4,residual=8" "the first way of a step takes the masks of the second"
  [[if (@mixed && t->picks@) memcpy(w->mask,]] [[false]])
mutant(sage-not-smoothed core/engines/stored/kv_groups.c QNT-4 sage "nothing is taken from the keys"
  [[i < (@s->smooth ? keys * d : 0@); i++) mean]] [[0]])
mutant(sage-top-code core/engines/stored/kv_groups.c QNT-1 sage "the range is 2^(bits-1) steps"
  [[const double top = (double)(@(1 << (s->k - ATTN_INT1)) - 1@);]] [[1 << (s->k - ATTN_INT1)]])
mutant(sage-scale-of-keys core/engines/stored/kv_groups.c QNT-4 "sage:bits=4,group=8" "the scale is that of the keys with their mean"
  [[most = fmax(most, fabs(@apart@));]] [[attn_get(x, i, t)]])
mutant(sage-of-padding core/engines/stored/stored_engine.c PROP-PAD sage "padding is in the mean"
  [[keys = @attn_call_keys(call, line / p->kv_heads)@, first]] [[p->n_kv]])
mutant(sage-line-behind core/engines/stored/stored_engine.c QNT-0 sage "keys are those of the neighbouring head"
  [[store_row(call, given, call->k, @first + i@, rows, room);]] [[(first + p->n_kv + i) % (p->batch * p->kv_heads * p->n_kv)]])

# -- statements of attnlab theory: each must see its own promise break, and miss what should break it --

mutant(theory-interval-half experiments/theory/theory_run.c theory_statements/judge "" "the near end of an interval is judged"
  [[return f->breaks ? least > said : @f->figure.high@ <= said + f->tolerance;]] [[f->figure.low]])
mutant(theory-uncorrelated experiments/theory/scaled_scores.c theory_statements/variance "" "keys do not resemble their query"
  [[for (int64_t l = 0; @correlated && l < d@; l++)]] [[false]])
mutant(theory-ascent experiments/theory/fast_weights.c theory_statements/gradient_step "" "the step goes up the gradient"
  [[after[l * D + c] -= @rate@ * x->k[j * D + l] * miss[c];]] [[-rate]])
mutant(theory-sum-for-delta experiments/theory/fast_weights.c theory_statements/delta_rule "" "the delta rule is a sum, too"
  [[learn(r, x, @rule ? additive : delta@, t,]] [[additive]])
mutant(theory-state-lost experiments/theory/fast_weights.c theory_statements/recall "" "memories are read before they are written"
  [[.v = m->zeros, .o = m->o, .state = @m->state@}]] [[NULL]])
mutant(theory-drift-forgets experiments/theory/drift.c theory_statements/drift "" "the bound is a thousandth of itself"
  [[/ (1 - e * g) / @most@;]] [[(1000 * most)]])
mutant(theory-tail-short experiments/theory/rank_of_weights.c theory_statements/low_rank "" "the tail lacks its largest singular value"
  [[e-- > @r@;]] [[r + 1]])
mutant(theory-delta-small experiments/theory/rank_of_weights.c theory_statements/rank_collapse "" "total variation is a quarter of itself"
  [[theory_larger(largest, sum / @2@);]] [[8]])
mutant(theory-keys-unweighted experiments/theory/smoothing.c theory_statements/smoothing "" "the smoother's keys have no weights"
  [[(@weighted@ ? vector_dot(k, k, D) : 0)]] [[false]])
mutant(theory-separation-twice experiments/theory/smoothing.c theory_statements/lookup "" "the bound of retrieval has twice the scale"
  [[exp(@-scale@ * (1 - other]] [[-2 * scale]])
mutant(theory-turns-squared experiments/theory/positions.c theory_statements/distance_alone "" "rotary angles grow as the square of the position"
  [[rope_rotate(D, frequency, @i@, row);]] [[i * i]])
mutant(theory-mask-lost experiments/theory/positions.c theory_statements/order "" "there is no causal mask"
  [[p.causal = @how == CAUSAL@;]] [[false]])
mutant(theory-lengths-linear experiments/theory/complexity.c theory_statements/complexity "" "work is fitted to equally spaced lengths"
  [[lengths[l] = @(double)n[l]@;]] [[l + 1]])
mutant(theory-heads-alone experiments/theory/shared_heads.c theory_statements/heads "" "query heads share no kv heads"
  [[p.kv_heads = @kv_heads@;]] [[HEADS]])

# -- attnlab train: gradients, steps, tasks, files --

mutant(train-rms-radial experiments/training/differentiable.c training_differentiable/rms "" "the norm's own derivative is missing"
  [[factor * (dy[j] * gain[j] - @along@ * x[j])]] [[0]])
mutant(train-head-untied experiments/training/small_model.c training_small_model/gradient "" "the embedding learns from the logits alone"
  [[attn_add_times(@1@, m->dx + i * d, g.tokens]] [[0]])
mutant(train-bias-correction experiments/training/adamw.c training_adamw/steps "" "second moments are not corrected for their zeros"
  [[second = @1 - pow(SECOND, (double)a->step)@;]] [[1]])
mutant(train-listops-modulus experiments/training/train_tasks.c training_train_tasks/solved "" "sums are modulo 9"
  [[return sum % @10@;]] [[9]])
mutant(train-swapped-own experiments/training/train_study.c training_train_study/learns_what_it_sees "" "swapped is the model that was trained with the variant"
  [[(uint64_t)seed, @exact@, &made.swapped)]] [[weights]])
mutant(empty-set-of-heads-filled experiments/quality/evaluation_probe.c EV-8 "streaming:sink=0,window=8"
  "the replacement of no heads replaces those of the run" [[to[NOWHERE].where = @p->where + p->steps * size@;]] [[to[SELF].where]])
