"""selective_attention, backward. With d = a (dO . v - c), the gradient of logit - F, and

  dF_ti = -sum over heads of d_ti - [F < cap] dM_t / cap        dS_ti = sum of dF_ji over the queries j after t

four passes: over rows and over queries for what is as in any softmax, and twice again for dS, which needs all heads of
a tile: `choice_rows` goes through the blocks of queries from the last to the first, its running sum over later queries
kept for `choice_queries` at each. Nothing is added by atomics.
"""

import triton
import triton.language as tl

from lapse.ops.attention.cuda.rows import INDEX
from lapse.ops.attention.cuda.tiles import entry
from lapse.ops.attention.ramp.cuda.tile import (
    LOG2E, ages_of, dropped, extra_logits, facts_of, features_of, index_of, near_of, places_by_age,
    row_block, rows_at, visible_in)  # fmt: skip
from lapse.ops.attention.selective.cuda.masking import (
    all_read, full_sight, head_of, kind_of, masking_of, read_block, scores_of, selecting)  # fmt: skip


@triton.jit
def _weights(q_block, dout, lse, c, k, v, F, facts, by_age, logit, bias, seed, index, line, query, b, h, K, H,
             G, P, A, bias_age, scale, threshold, kept_scale, D: tl.constexpr, EXTRAS: tl.constexpr,
             PRECISION: tl.constexpr):  # fmt: skip
    """a, and the gradient d of logit - F, of head h in a tile."""
    first = h // (H // G) * D  # of the key head's features
    s = tl.dot(q_block, tl.trans(tl.load(features_of(k, index, first, G * D, D))), input_precision=PRECISION) * scale
    dp = tl.dot(dout, tl.trans(tl.load(features_of(v, index, first, G * D, D))), input_precision=PRECISION)
    if EXTRAS:
        s = extra_logits(s, facts, index, b, h, K, H, by_age, P, logit, 0, bias, A, bias_age, scale, query, False)
        if threshold > 0:
            dp = dropped(dp, seed, line, index, b, h, K, H, query, threshold, kept_scale, False)
    s = tl.where(F == float("inf"), float("-inf"), s - F)  # nothing of a row not seen, or of infinite F
    weight = tl.exp2(s - lse[:, None])
    return weight, weight * (dp - c[:, None])


@triton.jit
def _of_queries(q, grad_out, sums, query, b, h, K, H, D: tl.constexpr):
    """What a pass reads of a block of queries of one head."""
    real = query < K
    line = (b.to(tl.int64) * K + query) * H + h
    place = line[:, None] * D + tl.arange(0, D)[None, :]
    of = sums + (b * H + h) * K + query
    lse = tl.load(of + tl.num_programs(2) * H * K, mask=real, other=0.0)
    return (line, tl.load(q + place, mask=real[:, None], other=0.0), tl.load(grad_out + place, mask=real[:, None],
            other=0.0), lse, tl.load(of, mask=real, other=0.0))  # fmt: skip


@entry
def selective_dots(out, stats, grad_out, sums, K, H, D: tl.constexpr, QUERIES: tl.constexpr):
    """c = dO . out and lse in units of log 2, into sums [2, B, H, K]. Grid: blocks of queries, heads, samples."""
    a, h, b = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    query = a * QUERIES + tl.arange(0, QUERIES)
    real = query < K
    line = (b.to(tl.int64) * K + query) * H + h
    place = line[:, None] * D + tl.arange(0, D)[None, :]
    dout = tl.load(grad_out + place, mask=real[:, None], other=0.0).to(tl.float32)
    c = tl.sum(dout * tl.load(out + place, mask=real[:, None], other=0.0).to(tl.float32), 1)
    lse = tl.load(stats + line, mask=real, other=0.0) * LOG2E
    to = sums + (b * H + h) * K + query
    tl.store(to, c, mask=real)
    tl.store(to + tl.num_programs(2) * H * K, tl.where(lse == float("-inf"), 0.0, lse), mask=real)


@triton.jit
def _by_age(d, facts, line, b, h, query, K, H, dby_age, dbias, P, A, bias_age):
    """Gradients by age of a tile: stored where a column belongs to one row, else the sums of both ends."""
    visible = visible_in(facts, query, False)
    near = near_of(facts, query, P, K) & visible_in(facts, query, True)
    tl.store(places_by_age(dby_age, facts, b, h, query, K, H, P), tl.trans(d.to(dby_age.dtype.element_ty)), mask=near)
    column = ages_of(facts, query, False) - bias_age
    tl.store(dbias + line[:, None] * A + column, d, mask=visible & (column >= 1) & (column <= A - 2))
    return tl.sum(tl.where(column <= 0, d, 0.0), 1), tl.sum(tl.where(column >= tl.maximum(A - 1, 1), d, 0.0), 1)


@triton.jit
def _store_ends(dbias, line, A, young, old, real):
    tl.store(dbias + line * A, tl.where(A == 1, young + old, young), mask=real & (A > 0))
    tl.store(dbias + line * A + A - 1, old, mask=real & (A > 1))


@entry
def selective_backward_queries(q, k, v, select_q, select_k, packed, by_age, logit, bias, seed, offsets, count,
                               lists, list_counts, prefix, grad_out, sums, grad_q, dby_age, dbias, N, K, H, G, blocks,
                               select_stride_q, select_stride_k, select_scale, own, mask_self, relu, shift, P, A,
                               bias_age, scale, threshold, kept_scale, D: tl.constexpr, QUERIES: tl.constexpr,
                               ROWS: tl.constexpr, HEADS: tl.constexpr, EXTRAS: tl.constexpr,
                               PRECISION: tl.constexpr):  # fmt: skip
    """dq without what comes from S and from positions. Grid: blocks of queries, groups of heads, samples."""
    a, group, b = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    query = a * QUERIES + tl.arange(0, QUERIES)
    given = ()
    grads = ()
    for g in tl.static_range(HEADS):
        given = given + (_of_queries(q, grad_out, sums, query, b, head_of(group, g, H, HEADS), K, H, D),)
        zero = tl.zeros([QUERIES], tl.float32)
        grads = grads + ((tl.zeros([QUERIES, D], tl.float32), zero, zero),)
    chooser = selecting(select_q, select_stride_q, query, b, K, D)
    offset = tl.load(offsets + b)
    rows_count = tl.load(count + b)
    block = b * tl.num_programs(0) + a
    list_at = lists + block.to(tl.int64) * blocks
    whole = tl.load(list_counts + block * 2)
    part = tl.load(list_counts + block * 2 + 1)
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
        after = ()
        for g in tl.static_range(HEADS):
            h = head_of(group, g, H, HEADS)
            line, q_block, dout, lse, c = given[g]
            dq, young, old = grads[g]
            _, d = _weights(q_block, dout, lse, c, k, v, F, facts, by_age, logit, bias, seed, index, line,
                            query, b, h, K, H, G, P, A, bias_age, scale, threshold, kept_scale, D, EXTRAS,
                            PRECISION)  # fmt: skip
            keys = tl.load(features_of(k, index, h // (H // G) * D, G * D, D))
            dq = tl.dot(d.to(keys.dtype), keys, dq, input_precision=PRECISION)
            if EXTRAS:
                left, right = _by_age(d, facts, line, b, h, query, K, H, dby_age, dbias, P, A, bias_age)
                young += left
                old += right
            after = after + ((dq, young, old),)
        grads = after
        index = index_of(packed, offset, rows_count, following, other, N, ROWS)
        j, following = read_block(list_at, i + 1, whole, part, blocks), coming
    for g in tl.static_range(HEADS):
        line = given[g][0]
        dq, young, old = grads[g]
        place = line[:, None] * D + tl.arange(0, D)[None, :]
        tl.store(grad_q + place, (dq * (scale / LOG2E)).to(grad_q.dtype.element_ty), mask=(query < K)[:, None])
        if EXTRAS:
            _store_ends(dbias, line, A, young, old, query < K)


@triton.jit
def _add_rows(sums, h, q, grad_out, q_sums, k, v, F, facts, by_age, logit, bias, seed, index, query, b, K, H, G, P, A,
              bias_age, scale, threshold, kept_scale, D: tl.constexpr, EXTRAS: tl.constexpr,
              PRECISION: tl.constexpr):  # fmt: skip
    """sums = (dk, dv) of a block of rows, with what a block of head h's queries gives them."""
    dk, dv = sums
    line, q_block, dout, lse, c = _of_queries(q, grad_out, q_sums, query, b, h, K, H, D)
    weight, d = _weights(q_block, dout, lse, c, k, v, F, facts, by_age, logit, bias, seed, index, line, query, b, h, K, H, G, P,
                         A, bias_age, scale, threshold, kept_scale, D, EXTRAS, PRECISION)  # fmt: skip
    if EXTRAS:
        if threshold > 0:
            weight = dropped(weight, seed, line, index, b, h, K, H, query, threshold, kept_scale, False)
    dv = tl.dot(tl.trans(weight.to(dout.dtype)), dout, dv, input_precision=PRECISION)
    dk = tl.dot(tl.trans(d.to(q_block.dtype)), q_block, dk, input_precision=PRECISION)
    return dk, dv


@entry
def selective_backward_rows(q, k, v, select_q, select_k, packed, by_age, logit, bias, seed, offsets, count,
                            ranges, prefix, grad_out, sums, grad_k, grad_v, N, K, H, G, blocks, select_stride_q,
                            select_stride_k, select_scale, own, mask_self, relu, shift, P, A, bias_age, scale,
                            threshold, kept_scale, D: tl.constexpr, QUERIES: tl.constexpr, ROWS: tl.constexpr,
                            HEADS: tl.constexpr, GROUPED: tl.constexpr, EXTRAS: tl.constexpr,
                            PRECISION: tl.constexpr):  # fmt: skip
    """dk and dv without what comes from S; zero before. Without GROUPED each head has keys of its own: then nothing is looped
    over within a step, and the compiler reads the next step's queries ahead. Grid: blocks of rows, groups of key heads,
    samples."""
    j, group, b = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    rows_count = tl.load(count + b)
    if j * ROWS < rows_count:
        at, inside, index = row_block(packed, tl.load(offsets + b), rows_count, j, N, ROWS)
        facts = facts_of(packed, at, inside, N, ROWS)
        range_at = ranges + (b * blocks + j) * 4
        sight = full_sight(range_at)
        grads = ()
        for g in tl.static_range(HEADS):
            grads = grads + ((tl.zeros([ROWS, D], tl.float32), tl.zeros([ROWS, D], tl.float32)),)
        for a in range(tl.load(range_at) // QUERIES, tl.load(range_at + 1) // QUERIES + 1):
            query = a * QUERIES + tl.arange(0, QUERIES)
            chooser = selecting(select_q, select_stride_q, query, b, K, D)
            S, seen = scores_of(chooser, index, facts, all_read(sight, a, QUERIES), select_k, select_stride_k, kind_of(facts),
                                by_age, logit, bias, query, b, K, H, P, A, bias_age, select_scale, own, mask_self, relu, D,
                                EXTRAS, PRECISION)  # fmt: skip
            F = masking_of(S, seen, prefix, a, at, inside, N, shift)
            after = ()
            for g in tl.static_range(HEADS):
                dk, dv = grads[g]
                first = head_of(group, g, G, HEADS) * (H // G)
                if GROUPED:
                    for h in range(first, first + H // G):
                        dk, dv = _add_rows((dk, dv), h, q, grad_out, sums, k, v, F, facts, by_age, logit, bias, seed, index,
                                           query, b, K, H, G, P, A, bias_age, scale, threshold, kept_scale, D, EXTRAS,
                                           PRECISION)  # fmt: skip
                else:
                    dk, dv = _add_rows((dk, dv), first, q, grad_out, sums, k, v, F, facts, by_age, logit, bias, seed, index,
                                       query, b, K, H, G, P, A, bias_age, scale, threshold, kept_scale, D, EXTRAS,
                                       PRECISION)  # fmt: skip
                after = after + ((dk, dv),)
            grads = after
        for g in tl.static_range(HEADS):
            dk, dv = grads[g]
            place = (index * G + head_of(group, g, G, HEADS))[:, None] * D + tl.arange(0, D)[None, :]
            tl.store(grad_k + place, (dk * (scale / LOG2E)).to(grad_k.dtype.element_ty), mask=inside[:, None])
            tl.store(grad_v + place, dv.to(grad_v.dtype.element_ty), mask=inside[:, None])


@triton.jit
def _choice(later, chooser, index, whole, at, inside, a, q, k, v, select_k, by_age, logit, bias, facts, seed,
            prefix, grad_out, grad_memory, sums, query, b, N, K, H, G, select_stride_k, select_scale, own, mask_self,
            relu, shift, P, A, bias_age, scale, cap, threshold, kept_scale, D: tl.constexpr, QUERIES: tl.constexpr,
            ROWS: tl.constexpr, EXTRAS: tl.constexpr, PRECISION: tl.constexpr):  # fmt: skip
    """dS of a tile where it passes on, and dF summed over its queries. later [rows]: dF of the queries after it."""
    kind = kind_of(facts)
    S, seen = scores_of(chooser, index, facts, whole, select_k, select_stride_k, kind, by_age, logit, bias, query, b, K, H, P, A,
                        bias_age, select_scale, own, mask_self, relu, D, EXTRAS, PRECISION)  # fmt: skip
    F = masking_of(S, seen, prefix, a, at, inside, N, shift)
    dM = tl.load(grad_memory + b.to(tl.int64) * K + query, mask=query < K, other=0.0)
    dF = tl.where(F < cap, dM[:, None] * (-LOG2E / cap), 0.0)
    for h in range(0, H):
        line, q_block, dout, lse, c = _of_queries(q, grad_out, sums, query, b, h, K, H, D)
        _, d = _weights(q_block, dout, lse, c, k, v, F, facts, by_age, logit, bias, seed, index, line, query,
                        b, h, K, H, G, P, A, bias_age, scale, threshold, kept_scale, D, EXTRAS, PRECISION)  # fmt: skip
        dF -= d
    sums_of_rows = tl.sum(dF, 0)
    upto = tl.cumsum(dF, 0)
    dS = (later + sums_of_rows)[None, :] - upto + tl.where(shift != 0, 0.0, dF)
    # With relu S passes a gradient on where it is positive or NaN; without, at every row that may be masked.
    dS = tl.where(((relu == 0) & (kind != 0))[None, :] | ((S <= 0) == 0), dS, 0.0)
    if whole == 0:
        dS = tl.where(seen & ((ages_of(facts, query, False) > 0) | (mask_self != 0)), dS, 0.0)
    return dS, sums_of_rows


@entry
def selective_choice_rows(q, k, v, select_q, select_k, packed, by_age, logit, bias, seed, offsets, count, ranges,
                          prefix, grad_out, grad_memory, sums, grad_prefix, grad_select_k, N, K, H, G, blocks,
                          select_stride_q, select_stride_k, select_scale, own, mask_self, relu, shift, P, A, bias_age,
                          scale, cap, threshold, kept_scale, D: tl.constexpr, QUERIES: tl.constexpr, ROWS: tl.constexpr,
                          EXTRAS: tl.constexpr, PRECISION: tl.constexpr):  # fmt: skip
    """grad_select_k [N, D], zero before, and grad_prefix [blocks of queries, N]: dF summed over the queries after each
    block that reads the row. Grid: blocks of rows, 1, samples."""
    j, b = tl.program_id(0), tl.program_id(2)
    rows_count = tl.load(count + b)
    if j * ROWS < rows_count:
        at, inside, index = row_block(packed, tl.load(offsets + b), rows_count, j, N, ROWS)
        facts = facts_of(packed, at, inside, N, ROWS)
        range_at = ranges + (b * blocks + j) * 4
        sight = full_sight(range_at)
        begin = tl.load(range_at) // QUERIES
        end = tl.load(range_at + 1) // QUERIES + 1
        later = tl.zeros([ROWS], tl.float32)
        dk = tl.zeros([ROWS, D], tl.float32)
        for i in range(0, end - begin):
            a = end - 1 - i
            query = a * QUERIES + tl.arange(0, QUERIES)
            tl.store(grad_prefix + a * N + at, later, mask=inside)
            chooser = selecting(select_q, select_stride_q, query, b, K, D)
            whole = all_read(sight, a, QUERIES)
            dS, more = _choice(later, chooser, index, whole, at, inside, a, q, k, v, select_k, by_age, logit,
                                bias, facts, seed, prefix, grad_out, grad_memory, sums, query, b, N, K, H, G,
                                select_stride_k, select_scale, own, mask_self, relu, shift, P, A, bias_age, scale,
                                cap, threshold, kept_scale, D, QUERIES, ROWS, EXTRAS, PRECISION)  # fmt: skip
            later += more
            dk = tl.dot(tl.trans(dS.to(chooser.dtype)), chooser, dk, input_precision=PRECISION)
        place = index[:, None] * D + tl.arange(0, D)[None, :]
        tl.store(grad_select_k + place, dk * (select_scale / LOG2E), mask=inside[:, None])


@entry
def selective_choice_queries(q, k, v, select_q, select_k, packed, by_age, logit, bias, seed, offsets, count,
                             lists, list_counts, prefix, grad_out, grad_memory, sums, grad_prefix, grad_select_q,
                             dby_age, dbias, N, K, H, G, blocks, select_stride_q, select_stride_k, select_scale, own,
                             mask_self, relu, shift, P, A, bias_age, scale, cap, threshold, kept_scale,
                             D: tl.constexpr, QUERIES: tl.constexpr, ROWS: tl.constexpr, EXTRAS: tl.constexpr,
                             PRECISION: tl.constexpr):  # fmt: skip
    """grad_select_q [parts, B, K, D], and dby_age and dbias [B K, P or A] of head 0 where it selects. Grid: blocks of
    queries, parts, samples: programs share out the rows that a block of queries reads (with extras there is one part),
    for all heads are one program's, and a few samples would leave a GPU idle."""
    a, mine, b = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    parts = tl.num_programs(1)
    query = a * QUERIES + tl.arange(0, QUERIES)
    line = b.to(tl.int64) * K + query
    chooser = selecting(select_q, select_stride_q, query, b, K, D)
    offset = tl.load(offsets + b)
    rows_count = tl.load(count + b)
    block = b * tl.num_programs(0) + a
    list_at = lists + block.to(tl.int64) * blocks
    whole_count = tl.load(list_counts + block * 2)
    part = tl.load(list_counts + block * 2 + 1)
    # Sums over queries must not have those beyond the last, which may be anything.
    all_seen = tl.where((a + 1) * QUERIES <= K, whole_count, 0)
    dq = tl.zeros([QUERIES, D], tl.float32)
    young = tl.zeros([QUERIES], tl.float32)
    old = tl.zeros([QUERIES], tl.float32)
    other = tl.load(packed + INDEX * N + offset)
    # A block's number and its rows' are read while those before it are computed.
    j = read_block(list_at, mine, whole_count, part, blocks)
    following = read_block(list_at, mine + parts, whole_count, part, blocks)
    index = index_of(packed, offset, rows_count, j, other, N, ROWS)
    for i in range(mine, whole_count + part, parts):
        coming = read_block(list_at, i + 2 * parts, whole_count, part, blocks)
        at, inside = rows_at(offset, rows_count, j, ROWS)
        facts = facts_of(packed, at, inside, N, ROWS)
        later = tl.load(grad_prefix + a * N + at, mask=inside, other=0.0)
        dS, _ = _choice(later, chooser, index, i < all_seen, at, inside, a, q, k, v, select_k, by_age, logit, bias,
                        facts, seed, prefix, grad_out, grad_memory, sums, query, b, N, K, H, G, select_stride_k,
                        select_scale, own, mask_self, relu, shift, P, A, bias_age, scale, cap, threshold, kept_scale,
                        D, QUERIES, ROWS, EXTRAS, PRECISION)  # fmt: skip
        keys = tl.load(features_of(select_k, index, 0, select_stride_k, D))
        dq = tl.dot(dS.to(keys.dtype), keys, dq, input_precision=PRECISION)
        if EXTRAS:
            if own == 0:
                left, right = _by_age(dS, facts, line, b, 0, query, K, 1, dby_age, dbias, P, A, bias_age)
                young += left
                old += right
        index = index_of(packed, offset, rows_count, following, other, N, ROWS)
        j, following = read_block(list_at, i + parts, whole_count, part, blocks), coming
    place = (mine.to(tl.int64) * tl.num_programs(2) * K + line)[:, None] * D + tl.arange(0, D)[None, :]
    tl.store(grad_select_q + place, dq * (select_scale / LOG2E), mask=(query < K)[:, None])
    if EXTRAS:
        if own == 0:
            _store_ends(dbias, line, A, young, old, query < K)
