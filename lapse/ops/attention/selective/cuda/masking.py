"""F of selective_attention, without queries x rows: pass one keeps it at the beginning of each block of queries, one
number for each row and block; every tile of pass two makes it anew from there.

Numbers are in units of log 2, as the logits are: `prefix` [blocks of queries + 1, N], line a is F of the packed rows
before block a. S comes from `select_q` and `select_k`, rows of `select_stride_q` and `select_stride_k` numbers, which
without an embedding of their own are head 0 of q and k.
"""

import triton
import triton.language as tl

from lapse.ops.attention.cuda.rows import INDEX, SPAN
from lapse.ops.attention.cuda.tiles import entry
from lapse.ops.attention.ramp.cuda.tile import LOG2E, ages_of, extra_logits, facts_of, features_of, row_block, visible_in


@triton.jit
def selecting(select_q, select_stride_q, query, b, K, D: tl.constexpr):
    """The queries of S, [queries, D]."""
    line = b.to(tl.int64) * K + query
    place = line[:, None] * select_stride_q + tl.arange(0, D)[None, :]
    return tl.load(select_q + place, mask=(query < K)[:, None], other=0.0)


@triton.jit
def read_block(list_at, i, whole, part, blocks):
    """Number i of the row blocks that a block of queries reads: whole ones, then the others."""
    return tl.load(list_at + tl.where(i < whole, i, blocks - part + i - whole), mask=i < whole + part, other=0)


@triton.jit
def kind_of(facts):
    """Of packed rows: 0 where nobody masks the row. selective_prefix leaves it in the place of spans."""
    return facts[3].to(tl.int32, bitcast=True)


@triton.jit
def head_of(group, g: tl.constexpr, heads, HEADS: tl.constexpr):
    """Head g of a group of HEADS that share F. Where the last group has too few, its last head is computed again."""
    return tl.minimum(group * HEADS + g, heads - 1)


@triton.jit
def full_sight(range_at):
    """From and to which query all see every row of a block of rows, at an age of 1 and more (block_ranges)."""
    return tl.load(range_at + 2), tl.load(range_at + 3)


@triton.jit
def all_read(sight, a, QUERIES: tl.constexpr):
    """Whether every query of block a, none beyond the last, sees them so. Most tiles are so; only the others test single
    pairs."""
    begin = a * QUERIES
    return (sight[0] <= begin) & (sight[1] >= begin + QUERIES - 1)


@triton.jit
def scores_of(q_block, index, facts, whole, select_k, select_stride_k, kind, by_age, logit, bias, query, b, K, H, P, A,
              bias_age, select_scale, own, mask_self, relu, D: tl.constexpr, EXTRAS: tl.constexpr,
              PRECISION: tl.constexpr):  # fmt: skip
    """S of a tile, and which pairs are seen. kind [rows]: 0 of rows that nobody masks; whole: every pair is seen, at an age of 1
    and more."""
    keys = tl.load(features_of(select_k, index, 0, select_stride_k, D))
    choice = tl.dot(q_block, tl.trans(keys), input_precision=PRECISION) * select_scale
    if EXTRAS:
        if own == 0:
            choice = extra_logits(choice, facts, index, b, 0, K, H, by_age, P, logit, 0, bias, A, bias_age,
                                  select_scale, query, False)  # fmt: skip
    least = tl.where(relu != 0, 0.0, float("-inf"))
    S = tl.where((kind != 0)[None, :], tl.maximum(choice, least, propagate_nan=tl.PropagateNan.ALL), 0.0)
    if EXTRAS:  # beside them Triton 3.6 fails to compile the choice
        seen = visible_in(facts, query, False)
        S = tl.where(seen & ((ages_of(facts, query, False) > 0) | (mask_self != 0)), S, 0.0)
    else:
        seen = tl.full(S.shape, 1, tl.int1)
        if whole == 0:
            seen = visible_in(facts, query, False)
            S = tl.where(seen & ((ages_of(facts, query, False) > 0) | (mask_self != 0)), S, 0.0)
    return S, seen


@triton.jit
def masking_of(S, seen, prefix, a, at, inside, N, shift):
    """F of a tile of block a; infinite where a query does not see the row, whatever the row holds."""
    before = tl.load(prefix + a * N + at, mask=inside, other=0.0)
    sums = tl.cumsum(S, 0)
    return tl.where(seen, before[None, :] + (sums - tl.where(shift != 0, S, 0.0)), float("inf"))


@entry
def selective_sums(select_q, select_k, packed, by_age, logit, bias, kinds, offsets, count, ranges, prefix, N, K, H,
                   blocks, select_stride_q, select_stride_k, select_scale, own, mask_self, relu, P, A, bias_age,
                   D: tl.constexpr, QUERIES: tl.constexpr, ROWS: tl.constexpr, EXTRAS: tl.constexpr,
                   PRECISION: tl.constexpr):  # fmt: skip
    """S summed over each block of queries, into the line after it. Grid: blocks of rows, blocks of queries, samples."""
    j, a, b = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    rows_count = tl.load(count + b)
    if j * ROWS < rows_count:
        query = a * QUERIES + tl.arange(0, QUERIES)
        at, inside, index = row_block(packed, tl.load(offsets + b), rows_count, j, N, ROWS)
        kind = tl.load(kinds + index)
        sums = tl.zeros([ROWS], tl.float32)
        range_at = ranges + (b * blocks + j) * 4
        if (tl.load(range_at) <= a * QUERIES + QUERIES - 1) & (tl.load(range_at + 1) >= a * QUERIES):
            facts = facts_of(packed, at, inside, N, ROWS)
            q_block = selecting(select_q, select_stride_q, query, b, K, D)
            S, _ = scores_of(q_block, index, facts, all_read(full_sight(range_at), a, QUERIES), select_k, select_stride_k, kind, by_age,
                             logit, bias, query, b, K, H, P, A, bias_age, select_scale, own, mask_self, relu, D, EXTRAS,
                             PRECISION)  # fmt: skip
            sums = tl.sum(S, 0)
        tl.store(prefix + (a + 1) * N + at, sums, mask=inside)


@entry
def selective_prefix(packed, kinds, masking, offsets, count, prefix, received, N, has_masking, queries_blocks,
                     ROWS: tl.constexpr):  # fmt: skip
    """The sums become F, and F after the block goes to `received` [rows of the table]; the rows' kinds become a line of the
    packed rows. Grid: chunks, samples."""
    b = tl.program_id(1)
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    valid = rows < tl.load(count + b)
    at = tl.load(offsets + b) + rows
    index = tl.load(packed + INDEX * N + at, mask=valid, other=0)
    F = tl.load(masking + index, mask=valid & (has_masking != 0), other=0.0) * LOG2E
    tl.store(prefix + at, F, mask=valid)
    tl.store(packed + SPAN * N + at, tl.load(kinds + index, mask=valid, other=0), mask=valid)
    for a in range(0, queries_blocks):
        to = prefix + (a + 1) * N + at
        F += tl.load(to, mask=valid, other=0.0)
        tl.store(to, F, mask=valid)
    tl.store(received + index, F / LOG2E, mask=valid)
