"""ramp_attention, backward: a pass over queries for dq and one over rows for dk, dv and the columns' sums.

With c = dO . out (less the gradient of the log-sum-exp), Z' = Z + eps, and a = exp(logit - lse):

  d(m a) = (dO . v - c) / Z'       dspan = a d(m a) / R on the ramp       dlogit = a (m d(m a) - c eps / Z')

1 / Z' is taken into a: exp(logit - lse - log Z').

Each sum is one program's, in a fixed order: no atomics, the same gradients at every run.
"""

import triton
import triton.language as tl

from lapse.ops.attention.cuda.rows import FADING, INDEX
from lapse.ops.attention.cuda.tiles import entry
from lapse.ops.attention.ramp.cuda.tile import (
    LOG2E, across, ages_of, dropped, extra_logits, facts_of, fade_of, features_of, index_of, listed, near_of, part_of,
    places_by_age, row_block, rows_at, visible_in, whole_index_of)  # fmt: skip


@triton.jit
def _gradients(s, dp, lse, c, visible, facts, spans, ramp, epsilon, h, span_row, span_head, query,
               SPAN: tl.constexpr, MASKED: tl.constexpr, TURNED: tl.constexpr):  # fmt: skip
    """Of a tile: the weights before dropout, the gradient of the logits, and ramp times that of the spans where they
    fade. lse: with log Z' in it, so that a is a / Z'."""
    _, lse_of = across(query, lse, TURNED)
    _, c_of = across(query, c, TURNED)
    a = tl.exp2(s - lse_of)
    if MASKED:
        a = tl.where(visible, a, 0.0)
    if SPAN and MASKED:
        d = dp - c_of
        fade, on_ramp = fade_of(facts, spans, ramp, h, span_row, span_head, query, TURNED)
        dspan = tl.where(on_ramp, a * d, 0.0)
        return a * fade, a * (d * fade - c_of * epsilon), dspan
    else:
        return a, a * (dp - c_of * (1 + epsilon)), a


@triton.jit
def _query_step(state, q_block, dout, lse, c, j, index, k, v, packed, spans, by_age, logit, bias, seed, dby_age,
                dbias, offset, count, query, line, h, b, N, K, H, G, scale, ramp, epsilon, span_row, span_head, P,
                has_logit, A, bias_age, threshold, kept_scale, D: tl.constexpr, ROWS: tl.constexpr,
                SPAN: tl.constexpr, POSITION: tl.constexpr, DROPOUT: tl.constexpr, EXTRAS: tl.constexpr,
                MASKED: tl.constexpr, PRECISION: tl.constexpr):  # fmt: skip
    dq, young, old = state
    at, inside = rows_at(offset, count, j, ROWS)
    first = h // (H // G) * D  # of the key head's features
    keys = tl.load(features_of(k, index, first, G * D, D))
    visible, facts = 0, ()  # of a whole tile nobody asks
    if MASKED or POSITION:
        facts = facts_of(packed, at, inside, N, ROWS)
    if POSITION:
        near = near_of(facts, query, P, K)
        q_p = tl.trans(tl.load(places_by_age(by_age, facts, b, h, query, K, H, P), mask=near, other=0.0))
    s = tl.dot(q_block, tl.trans(keys), input_precision=PRECISION)
    dp = tl.dot(dout, tl.trans(tl.load(features_of(v, index, first, G * D, D))), input_precision=PRECISION)
    if MASKED:
        visible = visible_in(facts, query, False)
    if POSITION:
        s += q_p.to(tl.float32)
    s *= scale
    if EXTRAS:
        s = extra_logits(s, facts, index, b, h, K, H, by_age, P, logit, has_logit, bias, A, bias_age, scale, query,
                         False)  # fmt: skip
    if DROPOUT:
        dp = dropped(dp, seed, line, index, b, h, K, H, query, threshold, kept_scale, False)
    if EXTRAS:
        if threshold > 0:
            dp = dropped(dp, seed, line, index, b, h, K, H, query, threshold, kept_scale, False)
    _, ds, _ = _gradients(s, dp, lse, c, visible, facts, spans, ramp, epsilon, h, span_row, span_head, query, SPAN,
                          MASKED, False)  # fmt: skip
    dq = tl.dot(ds.to(keys.dtype), keys, dq, input_precision=PRECISION)
    if POSITION or EXTRAS:  # ages of the rows that a query sees differ: each place is written once
        near = near_of(facts, query, P, K)
        if MASKED:
            near = near & visible_in(facts, query, True)
        places = places_by_age(dby_age, facts, b, h, query, K, H, P)
        tl.store(places, tl.trans(ds.to(dby_age.dtype.element_ty)), mask=near)
    if EXTRAS:
        if A > 0:
            column = ages_of(facts, query, False) - bias_age
            tl.store(dbias + line[:, None] * A + column, ds, mask=visible & (column >= 1) & (column <= A - 2))
            young += tl.sum(tl.where(column <= 0, ds, 0.0), 1)
            old += tl.sum(tl.where(column >= tl.maximum(A - 1, 1), ds, 0.0), 1)
    return dq, young, old


@entry
def ramp_backward_queries(q, k, v, packed, spans, by_age, logit, bias, seed, offsets, count, lists, list_counts, out,
                          stats, grad_out, grad_lse, grad_q, sums, dby_age, dbias, N, K, H, G, blocks, scale, ramp,
                          epsilon, span_row, span_head, P, has_logit, A, bias_age, threshold, kept_scale, has_lse,
                          D: tl.constexpr, QUERIES: tl.constexpr, ROWS: tl.constexpr, SPAN: tl.constexpr,
                          POSITION: tl.constexpr, DROPOUT: tl.constexpr, EXTRAS: tl.constexpr, PRECISION: tl.constexpr):  # fmt: skip
    """dq without what comes from positions; c and lse + log Z' into `sums` [2, B, H, K], which the pass over rows reads.
    dby_age [B K H, P] and dbias [B K H, A]: gradients of the logits by age, zero before. Grid: blocks of queries, heads,
    samples."""
    a, h, b = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    query = a * QUERIES + tl.arange(0, QUERIES)
    line = (b.to(tl.int64) * K + query) * H + h
    inside = query < K
    place = line[:, None] * D + tl.arange(0, D)[None, :]
    q_block = tl.load(q + place, mask=inside[:, None], other=0.0)
    dout = tl.load(grad_out + place, mask=inside[:, None], other=0.0)
    o = tl.load(out + place, mask=inside[:, None], other=0.0)
    c = tl.sum(dout.to(tl.float32) * o.to(tl.float32), 1)
    c -= tl.load(grad_lse + line, mask=inside & (has_lse != 0), other=0.0)
    lse = tl.load(stats + line * 2, mask=inside, other=0.0) * LOG2E
    lse = tl.where(lse == float("-inf"), 0.0, lse)
    Z = tl.load(stats + line * 2 + 1, mask=inside, other=1.0) + epsilon
    lse += tl.log2(tl.where(Z > 0, Z, 1.0))
    plane = tl.num_programs(2) * H * K
    to = sums + (b * H + h) * K + query
    tl.store(to, c, mask=inside)
    tl.store(to + plane, lse, mask=inside)
    offset = tl.load(offsets + b)
    rows_count = tl.load(count + b)
    block = b * tl.num_programs(0) + a
    whole = tl.load(list_counts + block * 2)
    part = tl.load(list_counts + block * 2 + 1)
    list_at = lists + block.to(tl.int64) * blocks
    dq = tl.zeros([QUERIES, D], tl.float32)
    young = tl.zeros([QUERIES], tl.float32)
    old = tl.zeros([QUERIES], tl.float32)
    other = tl.load(packed + INDEX * N + offset)
    # As in forward.py, but the number of the block after next is loaded at the beginning of a step, because its rows are looked up
    # at the beginning of the next. On an H200 this is faster here, and slower there.
    j, following = listed(list_at, 0, whole), listed(list_at, 1, whole)
    index = index_of(packed, offset, rows_count, j, other, N, ROWS)
    for i in range(0, whole):
        coming = listed(list_at, i + 2, whole)
        dq, young, old = _query_step(
            (dq, young, old), q_block, dout, lse, c, j, index, k, v, packed, spans, by_age, logit, bias, seed,
            dby_age, dbias, offset, rows_count, query, line, h, b, N, K, H, G, scale, ramp, epsilon, span_row,
            span_head, P, has_logit, A, bias_age, threshold, kept_scale, D, ROWS, SPAN, POSITION, DROPOUT, EXTRAS, EXTRAS,
            PRECISION)  # fmt: skip
        index = whole_index_of(packed, offset, following, N, ROWS)
        j, following = listed(list_at, i + 1, whole), coming
    PART: tl.constexpr = ROWS if EXTRAS or ROWS < 64 else ROWS // 2
    PARTS: tl.constexpr = ROWS // PART
    begin, end = (blocks - part) * PARTS, blocks * PARTS
    j, following = part_of(list_at, begin, end, PARTS), part_of(list_at, begin + 1, end, PARTS)
    index = index_of(packed, offset, rows_count, j, other, N, PART)
    for i in range(begin, end):
        coming = part_of(list_at, i + 2, end, PARTS)
        dq, young, old = _query_step(
            (dq, young, old), q_block, dout, lse, c, j, index, k, v, packed, spans, by_age, logit, bias, seed,
            dby_age, dbias, offset, rows_count, query, line, h, b, N, K, H, G, scale, ramp, epsilon, span_row,
            span_head, P, has_logit, A, bias_age, threshold, kept_scale, D, PART, SPAN, POSITION, DROPOUT, EXTRAS,
            True, PRECISION)  # fmt: skip
        index = index_of(packed, offset, rows_count, following, other, N, PART)
        j, following = part_of(list_at, i + 1, end, PARTS), coming
    tl.store(grad_q + place, (dq * (scale / LOG2E)).to(grad_q.dtype.element_ty), mask=inside[:, None])
    if EXTRAS:
        if A > 0:
            tl.store(dbias + line * A, tl.where(A == 1, young + old, young), mask=inside)
            tl.store(dbias + line * A + A - 1, old, mask=inside & (A > 1))


@triton.jit
def _sums_of(sums, h, b, query, K, H, QUERIES: tl.constexpr):
    """c and lse + log Z' of queries, by one load (facts_of says why; of its four lines two are there)."""
    plane = tl.arange(0, 4)
    of = sums + ((plane[:, None] * tl.num_programs(2) + b) * H + h) * K + query[None, :]
    x = tl.load(of, mask=(plane < 2)[:, None] & (query < K)[None, :], other=0.0)
    c, lse = tl.split(tl.reshape(tl.trans(x), (QUERIES, 2, 2)))
    c, _ = tl.split(c)
    lse, _ = tl.split(lse)
    return c, lse


@triton.jit
def _row_step(state, keys, values, a, facts, index, q, spans, by_age, logit, bias, seed, grad_out, sums, h, b, N,
              K, H, scale, ramp, epsilon, span_row, span_head, P, has_logit, A, bias_age, threshold,
              kept_scale, D: tl.constexpr, QUERIES: tl.constexpr, ROWS: tl.constexpr, SPAN: tl.constexpr,
              POSITION: tl.constexpr, DROPOUT: tl.constexpr, EXTRAS: tl.constexpr, MASKED: tl.constexpr,
              PRECISION: tl.constexpr):  # fmt: skip
    dk, dv, dspan, dlogit = state
    query = a * QUERIES + tl.arange(0, QUERIES)
    real = query < K
    line = (b.to(tl.int64) * K + query) * H + h
    place = line[:, None] * D + tl.arange(0, D)[None, :]
    q_block = tl.load(q + place, mask=real[:, None], other=0.0)
    dout = tl.load(grad_out + place, mask=real[:, None], other=0.0)
    c, lse = _sums_of(sums, h, b, query, K, H, QUERIES)
    if POSITION:
        near = near_of(facts, query, P, K)
        q_p = tl.load(places_by_age(by_age, facts, b, h, query, K, H, P), mask=near, other=0.0)
    s = tl.dot(keys, tl.trans(q_block), input_precision=PRECISION)
    dp = tl.dot(values, tl.trans(dout), input_precision=PRECISION)
    visible = 0  # of a whole tile nobody asks
    if MASKED:
        visible = visible_in(facts, query, True)
    if POSITION:
        s += q_p.to(tl.float32)
    s *= scale
    if EXTRAS:
        s = extra_logits(s, facts, index, b, h, K, H, by_age, P, logit, has_logit, bias, A, bias_age, scale, query,
                         True)  # fmt: skip
    if DROPOUT:
        dp = dropped(dp, seed, line, index, b, h, K, H, query, threshold, kept_scale, True)
    if EXTRAS:
        if threshold > 0:
            dp = dropped(dp, seed, line, index, b, h, K, H, query, threshold, kept_scale, True)
    weight, ds, fading = _gradients(s, dp, lse, c, visible, facts, spans, ramp, epsilon, h, span_row, span_head, query,
                                    SPAN, MASKED, True)  # fmt: skip
    if SPAN and MASKED:
        dspan += tl.sum(fading, 1)
    if DROPOUT:
        weight = dropped(weight, seed, line, index, b, h, K, H, query, threshold, kept_scale, True)
    if EXTRAS:
        dlogit += tl.sum(ds, 1)
        if threshold > 0:
            weight = dropped(weight, seed, line, index, b, h, K, H, query, threshold, kept_scale, True)
    dv = tl.dot(weight.to(dout.dtype), dout, dv, input_precision=PRECISION)
    dk = tl.dot(ds.to(q_block.dtype), q_block, dk, input_precision=PRECISION)
    return dk, dv, dspan, dlogit


@triton.jit
def _clear_unseen(grad_k, grad_v, grad_span, grad_logit, packed, offset, count, length, j, g, N, H, G, has_logit,
                  D: tl.constexpr, ROWS: tl.constexpr, SPAN: tl.constexpr, EXTRAS: tl.constexpr):  # fmt: skip
    """Zero gradients of the rows of block j that no query sees. The block's programs, one for each key head, share them by rows
    and not by heads: what a program writes lies in one piece of memory. On an H200 with 90 to 99 % expired, that is faster."""
    pair = g * ROWS + tl.arange(0, ROWS)
    rows, head = j * ROWS + pair // G, pair % G
    unseen = (rows >= count) & (rows < length)
    line = tl.load(packed + INDEX * N + offset + rows, mask=unseen, other=0).to(tl.int64) * G + head
    place = line[:, None] * D + tl.arange(0, D)[None, :]
    zero = tl.zeros([ROWS, D], grad_k.dtype.element_ty)
    tl.store(grad_k + place, zero, mask=unseen[:, None])
    tl.store(grad_v + place, zero, mask=unseen[:, None])
    for i in range(0, H // G):
        if SPAN:
            tl.store(grad_span + line * (H // G) + i, tl.zeros([ROWS], tl.float32), mask=unseen)
        if EXTRAS:
            tl.store(grad_logit + line * (H // G) + i, tl.zeros([ROWS], tl.float32), mask=unseen & (has_logit != 0))


@entry
def ramp_backward_rows(q, k, v, packed, spans, by_age, logit, bias, seed, offsets, count, ranges, grad_out,
                       grad_ramp_sum, sums, grad_k, grad_v, grad_span, grad_logit, N, K, H, G, blocks, scale, ramp,
                       epsilon, span_row, span_head, P, has_logit, A, bias_age, threshold, kept_scale, D: tl.constexpr,
                       QUERIES: tl.constexpr, ROWS: tl.constexpr, SPAN: tl.constexpr, POSITION: tl.constexpr,
                       DROPOUT: tl.constexpr, EXTRAS: tl.constexpr, PRECISION: tl.constexpr):  # fmt: skip
    """dk and dv of a block of rows, for all heads that share its keys; grad_span and grad_logit [N, H]. Of every row of a
    sample all are written. Grid: blocks of rows, key heads, samples."""
    j, g, b = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    offset = tl.load(offsets + b)
    rows_count = tl.load(count + b)
    if (j + 1) * ROWS > rows_count:
        _clear_unseen(grad_k, grad_v, grad_span, grad_logit, packed, offset, rows_count, tl.load(offsets + b + 1) - offset, j,
                      g, N, H, G, has_logit, D, ROWS, SPAN, EXTRAS)  # fmt: skip
    if j * ROWS < rows_count:
        at, inside, index = row_block(packed, offset, rows_count, j, N, ROWS)
        facts = facts_of(packed, at, inside, N, ROWS)
        place = (index * G + g)[:, None] * D + tl.arange(0, D)[None, :]
        keys = tl.load(k + place)
        values = tl.load(v + place)
        range_at = ranges + (b * blocks + j) * 4
        begin = tl.load(range_at) // QUERIES
        end = tl.load(range_at + 1) // QUERIES + 1
        # Whole tiles: from the first block of queries that begins with all rows in full sight to the last that ends so.
        whole = tl.minimum((tl.load(range_at + 2) + QUERIES - 1) // QUERIES, end)
        last_whole = tl.load(range_at + 3)
        whole_end = tl.maximum(tl.where(last_whole >= K - 1, end, (last_whole + 1) // QUERIES), whole)
        PART: tl.constexpr = QUERIES if EXTRAS or QUERIES < 32 else QUERIES // 2  # of blocks that are not whole
        PARTS: tl.constexpr = QUERIES // PART
        dk = tl.zeros([ROWS, D], tl.float32)
        dv = tl.zeros([ROWS, D], tl.float32)
        fading = tl.load(packed + FADING * N + at, mask=inside, other=0).to(tl.float32) * tl.load(grad_ramp_sum + b)
        for h in range(g * (H // G), (g + 1) * (H // G)):
            dspan = tl.zeros([ROWS], tl.float32)
            dlogit = tl.zeros([ROWS], tl.float32)
            for a in range(whole, whole_end):
                dk, dv, dspan, dlogit = _row_step(
                    (dk, dv, dspan, dlogit), keys, values, a, facts, index, q, spans, by_age, logit, bias, seed,
                    grad_out, sums, h, b, N, K, H, scale, ramp, epsilon, span_row, span_head, P, has_logit, A,
                    bias_age, threshold, kept_scale, D, QUERIES, ROWS, SPAN, POSITION, DROPOUT, EXTRAS, EXTRAS,
                    PRECISION)  # fmt: skip
            for i in range(begin * PARTS, (end - (whole_end - whole)) * PARTS):
                a = tl.where(i < whole * PARTS, i, i + (whole_end - whole) * PARTS)
                dk, dv, dspan, dlogit = _row_step(
                    (dk, dv, dspan, dlogit), keys, values, a, facts, index, q, spans, by_age, logit, bias, seed,
                    grad_out, sums, h, b, N, K, H, scale, ramp, epsilon, span_row, span_head, P, has_logit, A,
                    bias_age, threshold, kept_scale, D, PART, ROWS, SPAN, POSITION, DROPOUT, EXTRAS, True,
                    PRECISION)  # fmt: skip
            if SPAN:
                dspan = dspan / ramp + tl.where(h == 0, fading, 0.0)
                tl.store(grad_span + index * H + h, dspan, mask=inside)
            if EXTRAS:
                tl.store(grad_logit + index * H + h, dlogit, mask=inside & (has_logit != 0))
        tl.store(grad_k + place, (dk * (scale / LOG2E)).to(grad_k.dtype.element_ty), mask=inside[:, None])
        tl.store(grad_v + place, dv.to(grad_v.dtype.element_ty), mask=inside[:, None])
