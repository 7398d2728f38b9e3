"""ramp_attention of a few queries per sample, before long rows: one launch (attention/cuda/parts.py). Each query reads the
rows anew, the later ones from the cache."""

import triton
import triton.language as tl

from lapse.ops.attention.cuda.parts import STAGES, add_row, add_rows, join_parts, leave_part, no_rows, over_places
from lapse.ops.attention.cuda.tiles import entry
from lapse.ops.attention.ramp.cuda.tile import LOG2E, clamped


@triton.jit
def _facts(rows, end, time, until, spans, has_until, span_row):
    """Time, end and span of rows: read a tile ahead, for which of its keys to read depends on them."""
    valid = rows < end
    stamp = tl.load(time + rows, mask=valid, other=0)
    last = tl.load(until + rows, mask=valid & (has_until != 0), other=0)
    return stamp, last, tl.load(spans + rows * span_row, mask=valid, other=0.0)


@triton.jit
def _seen(facts, rows, end, begin, ramp, min_age, max_age, has_until, row_spans):
    """Which rows are seen; their ages; what is left of their spans; and r of those on the ramp."""
    stamp, last, span = facts
    age = begin - stamp
    left = span - age.to(tl.float32)
    seen = (rows < end) & (age >= min_age) & (age <= max_age) & ((has_until == 0) | (last > begin))
    seen = seen & ((row_spans == 0) | ((left == left) & ((has_until != 0) | (left > -ramp))))
    fading = seen & (row_spans != 0) & (left > -ramp) & (left < 0)
    return seen, age, left, tl.where(fading, left, 0.0)


@triton.jit
def _step(q_block, facts, rows, end, begin, k, v, spans, position, logit, bias, h, heads, g, H, G, scale, ramp, min_age,
          max_age, has_until, row_spans, span_head, P, has_logit, A, bias_age, D: tl.constexpr, HEADS: tl.constexpr,
          EXTRAS: tl.constexpr, PRECISION: tl.constexpr):  # fmt: skip
    """Logits, -inf where a row is not seen; m; values; and r on the ramp. One head: [rows], else [heads, rows]."""
    seen, age, left, on_ramp = _seen(facts, rows, end, begin, ramp, min_age, max_age, has_until, row_spans)
    place = (rows * G + g)[:, None] * D + tl.arange(0, D)[None, :]
    keys = tl.load(k + place, mask=seen[:, None], other=0.0)
    values = tl.load(v + place, mask=seen[:, None], other=0.0)
    if EXTRAS:
        near = seen & (age >= 1) & (age <= P)
        by_age = tl.load(position + (age - 1)[:, None] * D + tl.arange(0, D)[None, :], mask=near[:, None], other=0.0)
        column = tl.minimum(tl.maximum(age - bias_age, 0), A - 1)
    if HEADS == 1:
        q_line = tl.sum(q_block, 0)[None, :]
        key = keys.to(tl.float32)
        if EXTRAS:
            key += by_age.to(tl.float32)
        s = tl.sum(key * q_line, 1) * scale
        if EXTRAS:
            if has_logit != 0:
                s += tl.load(logit + rows * H + g, mask=seen, other=0.0) * LOG2E
            if A > 0:
                s += tl.load(bias + g * A + column) * LOG2E
        left = tl.where(row_spans != 0, left, tl.load(spans + g * span_head, mask=row_spans == 0, other=0.0) - age.to(tl.float32))
        return tl.where(seen, s, float("-inf")), tl.where(seen, clamped(left / ramp + 1), 0.0), values, on_ramp
    else:
        s = tl.dot(q_block, tl.trans(keys), input_precision=PRECISION)
        if EXTRAS:
            if P > 0:
                s += tl.dot(q_block, tl.trans(by_age), input_precision=PRECISION)
        s = s * scale
        if EXTRAS:
            if has_logit != 0:
                at = logit + rows[None, :] * H + h[:, None]
                s += tl.load(at, mask=heads[:, None] & seen[None, :], other=0.0) * LOG2E
            if A > 0:
                s += tl.load(bias + h[:, None] * A + column[None, :], mask=heads[:, None], other=0.0) * LOG2E
        of_head = tl.load(spans + h * span_head, mask=heads & (row_spans == 0), other=0.0)
        of_head = of_head[:, None] - age.to(tl.float32)[None, :]
        fade = clamped(tl.where(row_spans != 0, left[None, :], of_head) / ramp + 1)
        return tl.where(seen[None, :], s, float("-inf")), tl.where(seen[None, :], fade, 0.0), values, on_ramp


@entry
def ramp_decode(q, k, v, offsets, start, time, until, spans, position, logit, bias, partial, arrived, out, ramp_sums,
                stats, K, H, G, part_rows, scale, ramp, epsilon, min_age, max_age, has_until, row_spans, span_row,
                span_head, P, has_logit, A, bias_age, D: tl.constexpr, HEADS: tl.constexpr, ROWS: tl.constexpr,
                EXTRAS: tl.constexpr, PRECISION: tl.constexpr):  # fmt: skip
    """q [B, K, H, D]; HEADS at least H / G, or 1 where each head has its keys. partial [B, K, G, parts, HEADS D + 3 HEADS
    + 1]; arrived [B, K, G], zero before and after; ramp_sums [B, K]. Grid: parts, key heads, queries; `part_rows`, a
    multiple of ROWS, for each part."""
    part, g, query = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    b = query // K
    parts = tl.num_programs(0)
    group = H // G
    lane = tl.arange(0, HEADS)
    heads = lane < group
    h = g * group + lane
    place = (query.to(tl.int64) * H + h)[:, None] * D + tl.arange(0, D)[None, :]
    q_block = tl.load(q + place, mask=heads[:, None], other=0.0)
    if HEADS == 1:
        q_block = q_block.to(tl.float32)
    first, end = tl.load(offsets + b), tl.load(offsets + b + 1)
    begin = tl.load(start + b) + query % K
    acc, largest, total, masked = no_rows(D, ROWS if HEADS == 1 else HEADS)
    ramp_sum = tl.zeros([ROWS], tl.float32)
    rows = first + part * part_rows + tl.arange(0, ROWS)
    facts = _facts(rows, end, time, until, spans, has_until, span_row)
    for i in tl.range(0, part_rows, ROWS, num_stages=STAGES):
        rows = first + part * part_rows + i + tl.arange(0, ROWS)
        s, fade, values, on_ramp = _step(q_block, facts, rows, end, begin, k, v, spans, position, logit, bias, h, heads,
                                         g, H, G, scale, ramp, min_age, max_age, has_until, row_spans, span_head, P,
                                         has_logit, A, bias_age, D, HEADS, EXTRAS, PRECISION)  # fmt: skip
        if HEADS == 1:
            acc, largest, total, masked = add_row(s, fade, values, acc, largest, total, masked)
        else:
            acc, largest, total, masked = add_rows(s, fade, values, acc, largest, total, masked, PRECISION)
        ramp_sum += on_ramp
        facts = _facts(rows + ROWS, end, time, until, spans, has_until, span_row)
    if HEADS == 1:
        acc, largest, total, masked = over_places(acc, largest, total, masked)

    line = query * G + g
    ramp_sum = tl.sum(ramp_sum, 0)
    if leave_part(partial, line, parts, part, acc, largest, total, masked, ramp_sum, arrived, D, HEADS):
        acc, largest, total, masked, ramp_sum = join_parts(partial, line, parts, arrived, D, HEADS)
        weight = masked + epsilon * total
        sees = total != 0
        acc = tl.where(sees[:, None], acc / tl.where(weight == 0, 1.0, weight)[:, None], 0.0)
        tl.store(out + place, acc.to(out.dtype.element_ty), mask=heads[:, None])
        tl.store(stats + (query * H + h) * 2, tl.where(sees, (largest + tl.log2(total)) / LOG2E, float("-inf")), mask=heads)
        tl.store(stats + (query * H + h) * 2 + 1, masked / tl.where(sees, total, 1.0), mask=heads)
        if g == 0:
            tl.store(ramp_sums + query, ramp_sum)
