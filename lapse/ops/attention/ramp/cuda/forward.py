"""ramp_attention, forward: one program for a block of queries of one head, over the row blocks of its list.

The softmax runs online in base 2. With total = sum e, masked = sum m e (e without m), out = sum m e v / (masked + eps
total): the division by Z + eps, with Z = masked / total, put off to the end.
"""

import triton
import triton.language as tl

from lapse.ops.attention.cuda.rows import INDEX
from lapse.ops.attention.cuda.tiles import entry
from lapse.ops.attention.ramp.cuda.tile import (
    LOG2E, dropped, extra_logits, facts_of, fade_of, features_of, index_of, listed, near_of, part_of, places_by_age,
    rows_at, visible_in, whole_index_of)  # fmt: skip


@triton.jit
def _step(state, q_block, j, index, k, v, packed, spans, by_age, logit, bias, seed, offset, count, query, line, h, b, N,
          K, H, G, scale, ramp, span_row, span_head, P, has_logit, A, bias_age, threshold, kept_scale, D: tl.constexpr,
          ROWS: tl.constexpr, SPAN: tl.constexpr, POSITION: tl.constexpr, DROPOUT: tl.constexpr, EXTRAS: tl.constexpr,
          MASKED: tl.constexpr, PRECISION: tl.constexpr):  # fmt: skip
    acc, largest, total, masked = state
    at, inside = rows_at(offset, count, j, ROWS)
    first = h // (H // G) * D  # of the key head's features
    if MASKED or POSITION:
        facts = facts_of(packed, at, inside, N, ROWS)
    if POSITION:  # read before the product, which takes as long as they need to come
        near = near_of(facts, query, P, K)
        q_p = tl.trans(tl.load(places_by_age(by_age, facts, b, h, query, K, H, P), mask=near, other=0.0))
    s = tl.dot(q_block, tl.trans(tl.load(features_of(k, index, first, G * D, D))), input_precision=PRECISION)
    unit = scale  # of s, until the exponential: one multiplication and addition a pair
    if EXTRAS:
        s, unit = s * scale, 1.0
    if POSITION:
        s += q_p.to(tl.float32)
    if MASKED:
        visible = visible_in(facts, query, False)
        if EXTRAS:
            s = extra_logits(s, facts, index, b, h, K, H, by_age, P, logit, has_logit, bias, A, bias_age, scale, query,
                             False)  # fmt: skip
        s = tl.where(visible, s, float("-inf"))
        most = tl.maximum(largest, tl.max(s, 1))
        base = tl.where(most == float("-inf"), 0.0, most)  # nothing seen yet: every weight is 0
    else:
        most = tl.maximum(largest, tl.max(s, 1))
        base = most
    e = tl.exp2(s * unit - (base * unit)[:, None])
    shrink = tl.exp2((largest - base) * unit)
    total = total * shrink + tl.sum(e, 1)
    if SPAN:
        if MASKED:
            fade, _ = fade_of(facts, spans, ramp, h, span_row, span_head, query, False)
            e = e * fade
        masked = masked * shrink + tl.sum(e, 1)
    if DROPOUT:
        e = dropped(e, seed, line, index, b, h, K, H, query, threshold, kept_scale, False)
    if EXTRAS:
        if threshold > 0:
            e = dropped(e, seed, line, index, b, h, K, H, query, threshold, kept_scale, False)
    values = tl.load(features_of(v, index, first, G * D, D))
    acc = tl.dot(e.to(values.dtype), values, acc * shrink[:, None], input_precision=PRECISION)
    return acc, most, total, masked


@entry
def ramp_forward(q, k, v, packed, spans, by_age, logit, bias, seed, offsets, count, lists, list_counts, out, stats, N,
                 K, H, G, blocks, scale, ramp, epsilon, span_row, span_head, P, has_logit, A, bias_age, threshold,
                 kept_scale, D: tl.constexpr, QUERIES: tl.constexpr, ROWS: tl.constexpr, SPAN: tl.constexpr,
                 POSITION: tl.constexpr, DROPOUT: tl.constexpr, EXTRAS: tl.constexpr, PRECISION: tl.constexpr):  # fmt: skip
    """Grid: blocks of queries, heads, samples. q [B, K, H, D], k and v [N, G, D], contiguous; `scale` in units of
    log 2; stats [B, K, H, 2]: log-sum-exp, Z."""
    a, h, b = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    query = a * QUERIES + tl.arange(0, QUERIES)
    line = (b.to(tl.int64) * K + query) * H + h
    inside = query < K
    lanes = tl.arange(0, D)
    q_block = tl.load(q + line[:, None] * D + lanes[None, :], mask=inside[:, None], other=0.0)
    offset = tl.load(offsets + b)
    rows_count = tl.load(count + b)
    block = b * tl.num_programs(0) + a
    whole = tl.load(list_counts + block * 2)
    part = tl.load(list_counts + block * 2 + 1)
    acc = tl.zeros([QUERIES, D], tl.float32)
    largest = tl.full([QUERIES], float("-inf"), tl.float32)
    total = tl.zeros([QUERIES], tl.float32)
    masked = tl.zeros([QUERIES], tl.float32)
    list_at = lists + block.to(tl.int64) * blocks
    other = tl.load(packed + INDEX * N + offset)
    # A block's number and its rows' are read while those before it are computed.
    j, following = listed(list_at, 0, whole), listed(list_at, 1, whole)
    index = index_of(packed, offset, rows_count, j, other, N, ROWS)
    for i in range(0, whole):
        acc, largest, total, masked = _step(
            (acc, largest, total, masked), q_block, j, index, k, v, packed, spans, by_age, logit, bias, seed, offset,
            rows_count, query, line, h, b, N, K, H, G, scale, ramp, span_row, span_head, P, has_logit, A, bias_age,
            threshold, kept_scale, D, ROWS, SPAN, POSITION, DROPOUT, EXTRAS, EXTRAS, PRECISION)  # fmt: skip
        index = whole_index_of(packed, offset, following, N, ROWS)
        j, following = listed(list_at, i + 1, whole), listed(list_at, i + 2, whole)
    # The others by halves: what is asked of each row takes registers, and fewer of them let more programs run at once.
    PART: tl.constexpr = ROWS if EXTRAS or ROWS < 64 else ROWS // 2
    PARTS: tl.constexpr = ROWS // PART
    begin, end = (blocks - part) * PARTS, blocks * PARTS
    j, following = part_of(list_at, begin, end, PARTS), part_of(list_at, begin + 1, end, PARTS)
    index = index_of(packed, offset, rows_count, j, other, N, PART)
    for i in range(begin, end):
        acc, largest, total, masked = _step(
            (acc, largest, total, masked), q_block, j, index, k, v, packed, spans, by_age, logit, bias, seed, offset,
            rows_count, query, line, h, b, N, K, H, G, scale, ramp, span_row, span_head, P, has_logit, A, bias_age,
            threshold, kept_scale, D, PART, SPAN, POSITION, DROPOUT, EXTRAS, True, PRECISION)  # fmt: skip
        index = index_of(packed, offset, rows_count, following, other, N, PART)
        j, following = part_of(list_at, i + 1, end, PARTS), part_of(list_at, i + 2, end, PARTS)
    if not EXTRAS:
        largest *= scale
    sees = total != 0
    if SPAN:
        weight = masked + epsilon * total
    else:
        weight = total
    acc = tl.where(sees[:, None], acc / tl.where(weight == 0, 1.0, weight)[:, None], 0.0)  # 0, whatever others read
    tl.store(out + line[:, None] * D + lanes[None, :], acc.to(out.dtype.element_ty), mask=inside[:, None])
    tl.store(stats + line * 2, tl.where(sees, (largest + tl.log2(total)) / LOG2E, float("-inf")), mask=inside)
    if SPAN:
        Z = masked / tl.where(sees, total, 1.0)
    else:
        Z = sees.to(tl.float32)
    tl.store(stats + line * 2 + 1, Z, mask=inside)
