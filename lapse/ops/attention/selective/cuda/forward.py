"""selective_attention, forward: one program for a block of queries of HEADS heads, which share F of each tile; the
program of head 0 also counts the memory M."""

import triton
import triton.language as tl

from lapse.ops.attention.cuda.rows import INDEX
from lapse.ops.attention.cuda.tiles import entry
from lapse.ops.attention.ramp.cuda.tile import (
    LOG2E, dropped, extra_logits, facts_of, features_of, index_of, rows_at)  # fmt: skip
from lapse.ops.attention.selective.cuda.masking import head_of, kind_of, masking_of, read_block, scores_of, selecting


@triton.jit
def _attend(sums, q_block, k, v, F, facts, by_age, logit, bias, seed, index, line, query, b, h, K, H, G, P, A,
            bias_age, scale, threshold, kept_scale, D: tl.constexpr, EXTRAS: tl.constexpr,
            PRECISION: tl.constexpr):  # fmt: skip
    """The running softmax of head h after one more tile: sums = (weighted values, largest logit, total)."""
    acc, largest, total = sums
    first = h // (H // G) * D  # of the key head's features
    s = tl.dot(q_block, tl.trans(tl.load(features_of(k, index, first, G * D, D))), input_precision=PRECISION) * scale
    if EXTRAS:
        s = extra_logits(s, facts, index, b, h, K, H, by_age, P, logit, 0, bias, A, bias_age, scale, query, False)
    s = tl.where(F == float("inf"), float("-inf"), s - F)  # nothing of a row not seen, or of infinite F
    most = tl.maximum(largest, tl.max(s, 1))
    base = tl.where(most == float("-inf"), 0.0, most)
    e = tl.exp2(s - base[:, None])
    shrink = tl.exp2(largest - base)
    total = total * shrink + tl.sum(e, 1)
    if EXTRAS:
        if threshold > 0:
            e = dropped(e, seed, line, index, b, h, K, H, query, threshold, kept_scale, False)
    values = tl.load(features_of(v, index, first, G * D, D))
    acc = tl.dot(e.to(values.dtype), values, acc * shrink[:, None], input_precision=PRECISION)
    return acc, most, total


@entry
def selective_forward(q, k, v, select_q, select_k, packed, by_age, logit, bias, seed, offsets, count, lists,
                      list_counts, prefix, out, memory, stats, N, K, H, G, blocks, select_stride_q, select_stride_k,
                      select_scale, own, mask_self, relu, shift, P, A, bias_age, scale, cap, threshold, kept_scale,
                      D: tl.constexpr, QUERIES: tl.constexpr, ROWS: tl.constexpr, HEADS: tl.constexpr,
                      EXTRAS: tl.constexpr, PRECISION: tl.constexpr):  # fmt: skip
    """memory [B, K], stats [B, K, H]: log-sum-exp; scales and cap in units of log 2. Grid: blocks of queries, groups of
    heads, samples."""
    a, group, b = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    query = a * QUERIES + tl.arange(0, QUERIES)
    real = query < K
    q_blocks = ()
    sums = ()
    for g in tl.static_range(HEADS):
        line = (b.to(tl.int64) * K + query) * H + head_of(group, g, H, HEADS)
        place = line[:, None] * D + tl.arange(0, D)[None, :]
        q_blocks = q_blocks + (tl.load(q + place, mask=real[:, None], other=0.0),)
        none = (tl.zeros([QUERIES, D], tl.float32), tl.full([QUERIES], float("-inf"), tl.float32),
                tl.zeros([QUERIES], tl.float32))  # fmt: skip
        sums = sums + (none,)
    chooser = selecting(select_q, select_stride_q, query, b, K, D)
    offset = tl.load(offsets + b)
    rows_count = tl.load(count + b)
    block = b * tl.num_programs(0) + a
    list_at = lists + block.to(tl.int64) * blocks
    whole = tl.load(list_counts + block * 2)
    part = tl.load(list_counts + block * 2 + 1)
    M = tl.zeros([QUERIES], tl.float32)
    other = tl.load(packed + INDEX * N + offset)
    # A block's number and its rows' are read while those before it are computed.
    j, following = read_block(list_at, 0, whole, part, blocks), read_block(list_at, 1, whole, part, blocks)
    index = index_of(packed, offset, rows_count, j, other, N, ROWS)
    for i in range(0, whole + part):
        coming = read_block(list_at, i + 2, whole, part, blocks)
        at, inside = rows_at(offset, rows_count, j, ROWS)
        facts = facts_of(packed, at, inside, N, ROWS)
        S, seen = scores_of(chooser, index, facts, i < whole, select_k, select_stride_k, kind_of(facts), by_age, logit, bias, query,
                         b, K, H, P, A, bias_age, select_scale, own, mask_self, relu, D, EXTRAS, PRECISION)  # fmt: skip
        F = masking_of(S, seen, prefix, a, at, inside, N, shift)
        if group == 0:
            M += tl.sum(tl.where(F >= cap, 0.0, 1 - F * (1 / cap)), 1)
        after = ()
        for g in tl.static_range(HEADS):
            h = head_of(group, g, H, HEADS)
            line = (b.to(tl.int64) * K + query) * H + h
            after = after + (_attend(sums[g], q_blocks[g], k, v, F, facts, by_age, logit, bias, seed, index,
                                     line, query, b, h, K, H, G, P, A, bias_age, scale, threshold, kept_scale, D,
                                     EXTRAS, PRECISION),)  # fmt: skip
        sums = after
        index = index_of(packed, offset, rows_count, following, other, N, ROWS)
        j, following = read_block(list_at, i + 1, whole, part, blocks), coming
    for g in tl.static_range(HEADS):
        line = (b.to(tl.int64) * K + query) * H + head_of(group, g, H, HEADS)
        acc, largest, total = sums[g]
        sees = total != 0
        acc = tl.where(sees[:, None], acc / tl.where(sees, total, 1.0)[:, None], 0.0)  # 0, whatever others read
        place = line[:, None] * D + tl.arange(0, D)[None, :]
        tl.store(out + place, acc.to(out.dtype.element_ty), mask=real[:, None])
        tl.store(stats + line, tl.where(sees, (largest + tl.log2(total)) / LOG2E, float("-inf")), mask=real)
    if group == 0:
        tl.store(memory + b.to(tl.int64) * K + query, M, mask=real)
