"""ramp_attention of a few queries per sample, before long rows: one launch (attention/cuda/parts.py). Each query reads the
rows anew, the later ones from the cache."""

import triton
import triton.language as tl

from lapse.ops.attention.cuda.parts import add_rows, join_parts, leave_part, no_rows
from lapse.ops.attention.cuda.tiles import entry
from lapse.ops.attention.ramp.cuda.tile import LOG2E, clamped


@triton.jit
def _step(q_block, rows, valid, begin, k, v, time, until, spans, position, logit, bias, h, heads, g, N, H, G, scale,
          ramp, min_age, max_age, has_until, row_spans, span_row, span_head, P, has_logit, A, bias_age, D: tl.constexpr,
          EXTRAS: tl.constexpr, PRECISION: tl.constexpr):  # fmt: skip
    """Logits [heads, rows], -inf where a row is not seen; m; and the sum of r on the ramp."""
    age = begin - tl.load(time + rows, mask=valid, other=0)
    seen = valid & (age >= min_age) & (age <= max_age)
    seen = seen & ((has_until == 0) | (tl.load(until + rows, mask=valid & (has_until != 0), other=0) > begin))
    place = spans + rows[None, :] * span_row + h[:, None] * span_head
    real = heads[:, None] & valid[None, :]
    remaining = tl.load(place, mask=real, other=0.0) - age.to(tl.float32)[None, :]
    fade = clamped(remaining / ramp + 1)
    lasts = tl.load(spans + rows * span_row, mask=valid, other=0.0) - age.to(tl.float32)
    seen = seen & ((row_spans == 0) | ((lasts == lasts) & ((has_until != 0) | (lasts > -ramp))))
    fading = seen & (row_spans != 0) & (lasts > -ramp) & (lasts < 0)
    lanes = tl.arange(0, D)[None, :]
    keys = tl.load(k + (rows * G + g)[:, None] * D + lanes, mask=seen[:, None], other=0.0)
    if EXTRAS:
        near = seen & (age >= 1) & (age <= P)
        by_age = tl.load(position + (age - 1)[:, None] * D + lanes, mask=near[:, None], other=0.0)
    s = tl.dot(q_block, tl.trans(keys), input_precision=PRECISION)
    if EXTRAS:
        if P > 0:
            s += tl.dot(q_block, tl.trans(by_age), input_precision=PRECISION)
    s = s * scale
    if EXTRAS:
        if has_logit != 0:
            s += tl.load(logit + rows[None, :] * H + h[:, None], mask=heads[:, None] & seen[None, :], other=0.0) * LOG2E
        if A > 0:
            column = tl.minimum(tl.maximum(age - bias_age, 0), A - 1)
            s += tl.load(bias + h[:, None] * A + column[None, :], mask=real, other=0.0) * LOG2E
    values = tl.load(v + (rows * G + g)[:, None] * D + lanes, mask=seen[:, None], other=0.0)
    s = tl.where(seen[None, :], s, float("-inf"))
    return s, tl.where(seen[None, :], fade, 0.0), values, tl.sum(tl.where(fading, lasts, 0.0), 0)


@entry
def ramp_decode(q, k, v, offsets, start, time, until, spans, position, logit, bias, partial, arrived, out, ramp_sums,
                stats, N, K, H, G, part_rows, scale, ramp, epsilon, min_age, max_age, has_until, row_spans, span_row,
                span_head, P, has_logit, A, bias_age, D: tl.constexpr, HEADS: tl.constexpr, ROWS: tl.constexpr,
                EXTRAS: tl.constexpr, PRECISION: tl.constexpr):  # fmt: skip
    """q [B, K, H, D]; HEADS at least H / G. partial [B, K, G, parts, HEADS D + 3 HEADS + 1]; arrived [B, K, G], zero
    before and after; ramp_sums [B, K]. Grid: parts, key heads, queries; `part_rows`, a multiple of ROWS, for each part."""
    part, g, query = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    b = query // K
    parts = tl.num_programs(0)
    group = H // G
    lane = tl.arange(0, HEADS)
    heads = lane < group
    h = g * group + lane
    place = (query.to(tl.int64) * H + h)[:, None] * D + tl.arange(0, D)[None, :]
    q_block = tl.load(q + place, mask=heads[:, None], other=0.0)
    first, end = tl.load(offsets + b), tl.load(offsets + b + 1)
    begin = tl.load(start + b) + query % K
    acc, largest, total, masked = no_rows(D, HEADS)
    ramp_sum = 0.0
    for i in range(0, part_rows, ROWS):
        rows = first + part * part_rows + i + tl.arange(0, ROWS)
        s, fade, values, on_ramp = _step(q_block, rows, rows < end, begin, k, v, time, until, spans, position, logit,
                                         bias, h, heads, g, N, H, G, scale, ramp, min_age, max_age, has_until,
                                         row_spans, span_row, span_head, P, has_logit, A, bias_age, D, EXTRAS,
                                         PRECISION)  # fmt: skip
        acc, largest, total, masked = add_rows(s, fade, values, acc, largest, total, masked, PRECISION)
        ramp_sum += on_ramp

    line = query * G + g
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
