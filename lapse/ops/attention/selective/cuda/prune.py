"""selective_prune: which rows a budget drops. Scores of a block of queries at a time, then one program for each sample,
query by query, for each drop changes what the next one holds."""

import triton
import triton.language as tl

from lapse.ops.attention.cuda.rows import AGE, FAR, FIRST, INDEX, LAST
from lapse.ops.attention.cuda.tiles import entry
from lapse.ops.attention.ramp.cuda.tile import LOG2E, facts_of, row_block
from lapse.ops.attention.selective.cuda.masking import scores_of, selecting

CHUNK = 1024  # rows that a step of selective_drop looks at


@entry
def selective_scores(select_q, select_k, packed, by_age, logit, bias, kinds, offsets, count, scores, N, K, H, a,
                     select_stride_q, select_stride_k, select_scale, own, mask_self, relu, P, A, bias_age,
                     D: tl.constexpr, QUERIES: tl.constexpr, ROWS: tl.constexpr, EXTRAS: tl.constexpr,
                     PRECISION: tl.constexpr):  # fmt: skip
    """S of block a of the queries: scores [QUERIES, N], of packed rows. Grid: blocks of rows, 1, samples."""
    j, b = tl.program_id(0), tl.program_id(2)
    rows_count = tl.load(count + b)
    if j * ROWS < rows_count:
        lanes = tl.arange(0, QUERIES)
        query = a * QUERIES + lanes
        at, inside, index = row_block(packed, tl.load(offsets + b), rows_count, j, N, ROWS)
        facts = facts_of(packed, at, inside, N, ROWS)
        q_block = selecting(select_q, select_stride_q, query, b, K, D)
        kind = tl.load(kinds + index)
        S, _ = scores_of(q_block, index, facts, 0, select_k, select_stride_k, kind, by_age, logit, bias, query, b, K, H, P, A,
                         bias_age, select_scale, own, mask_self, relu, D, EXTRAS, PRECISION)  # fmt: skip
        tl.store(scores + lanes[:, None].to(tl.int64) * N + at[None, :], S, mask=inside[None, :])


@triton.jit
def _held(packed, ends, at, valid, t, N):
    last = tl.minimum(tl.load(packed + LAST * N + at, mask=valid, other=-1), tl.load(ends + at, mask=valid,
    other=0) - 1)
    return (tl.load(packed + FIRST * N + at, mask=valid, other=FAR) <= t) & (t <= last)


@entry
def selective_drop(packed, spared, masking, offsets, start, count, scores, sums, ends, until, N, K, a, budget,
                   has_masking, QUERIES: tl.constexpr, CHUNK: tl.constexpr):  # fmt: skip
    """Goes on after block a - 1 with F [N] in `sums` and the query that ended each packed row in `ends` (FAR: none);
    `spared`: rows that go after others of the same F. Grid: samples."""
    b = tl.program_id(0)
    rows_count = tl.load(count + b)
    base = tl.load(offsets + b)
    begin = tl.load(start + b)
    if a == 0:
        for i in range(0, rows_count, CHUNK):
            rows = i + tl.arange(0, CHUNK)
            valid = rows < rows_count
            index = tl.load(packed + INDEX * N + base + rows, mask=valid, other=0)
            F = tl.load(masking + index, mask=valid & (has_masking != 0), other=0.0) * LOG2E
            tl.store(sums + base + rows, F, mask=valid)
            tl.store(ends + base + rows, tl.zeros([CHUNK], tl.int32) + FAR, mask=valid)
        tl.debug_barrier()
    for lane in range(0, tl.minimum(QUERIES, K - a * QUERIES)):
        t = a * QUERIES + lane
        over = -budget
        for i in range(0, rows_count, CHUNK):
            rows = i + tl.arange(0, CHUNK)
            over += tl.sum(_held(packed, ends, base + rows, rows < rows_count, t, N).to(tl.int32), 0)
        last_over = over + 1
        # One row a turn: the largest F, of equals those that are not spared, of those the oldest; never the query's own.
        while (over > 0) & (over < last_over):
            most, which = float("-inf"), FAR + FAR - 1
            for i in range(0, rows_count, CHUNK):
                rows = i + tl.arange(0, CHUNK)
                valid = rows < rows_count
                at = base + rows
                may = _held(packed, ends, at, valid, t, N)
                may = may & (tl.load(packed + AGE * N + at, mask=valid, other=1) + t != 0)
                F = tl.load(sums + at, mask=valid, other=0.0)
                index = tl.load(packed + INDEX * N + at, mask=valid, other=0)
                rank = rows + tl.where(tl.load(spared + index, mask=valid, other=0) != 0, FAR, 0)
                here = tl.max(tl.where(may, F, float("-inf")), 0)
                first = tl.min(tl.where(may & (F == here), rank, FAR + FAR - 1), 0)
                better = (here > most) | ((here == most) & (first < which))
                most = tl.where(better, here, most)
                which = tl.where(better, first, which)
            last_over = over
            if which < FAR + FAR - 1:
                row = base + tl.where(which >= FAR, which - FAR, which)
                tl.store(ends + row, t)
                tl.store(until + tl.load(packed + INDEX * N + row), begin + t)
                over -= 1
            tl.debug_barrier()
        for i in range(0, rows_count, CHUNK):
            rows = i + tl.arange(0, CHUNK)
            valid = rows < rows_count
            at = base + rows
            F = tl.load(sums + at, mask=valid, other=0.0) + tl.load(scores + lane * N.to(tl.int64) + at, mask=valid, other=0.0)
            tl.store(sums + at, F, mask=valid)
        tl.debug_barrier()
