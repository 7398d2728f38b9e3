"""What every kernel of ramp_attention does with one tile of queries x rows: logits in units of log 2, m, and dropout.

A tile is [queries, rows]; the pass over keys works on its transpose, and says so by TURNED. Of what a call can ask for
beside spans (positions, logits, biases by age, dropout), kernels with EXTRAS take all, each by a flag that is the same
for the whole launch; kernels without have no trace of it.
"""

import triton
import triton.language as tl

from lapse.ops.attention.cuda.rows import AGE, FIRST, INDEX, LAST, kept

LOG2E = tl.constexpr(1.4426950408889634)


@triton.jit
def across(rows, queries, TURNED: tl.constexpr):
    """A number of each row, and one of each query, as they lie in the tile."""
    if TURNED:
        return rows[:, None], queries[None, :]
    else:
        return rows[None, :], queries[:, None]


@triton.jit
def row_block(packed, offset, count, j, N, ROWS: tl.constexpr, MASKED: tl.constexpr):
    """Of the rows of block j: where they are packed, which of them there are, and where in the table they lie. What is
    behind the last one reads as the sample's first, so that it is a number; `visible_in` lets no query see it."""
    rows = j * ROWS + tl.arange(0, ROWS)
    at = offset + rows
    inside = rows < count
    if MASKED:
        index = tl.load(packed + INDEX * N + at, mask=inside, other=tl.load(packed + INDEX * N + offset))
    else:
        index = tl.load(packed + INDEX * N + at)
    return at, inside, index.to(tl.int64)


@triton.jit
def visible_in(packed, at, inside, query, N, TURNED: tl.constexpr):
    first = tl.load(packed + FIRST * N + at, mask=inside, other=0)
    last = tl.load(packed + LAST * N + at, mask=inside, other=-1)
    last_of, query_of = across(last, query, TURNED)
    first_of, _ = across(first, query, TURNED)
    return (query_of >= first_of) & (query_of <= last_of)


@triton.jit
def ages_of(packed, at, inside, query, N, TURNED: tl.constexpr):
    age, query_of = across(tl.load(packed + AGE * N + at, mask=inside, other=0), query, TURNED)
    return age + query_of


@triton.jit
def clamped(x):
    """To [0, 1]; NaN stays NaN."""
    nan: tl.constexpr = tl.PropagateNan.ALL
    return tl.minimum(tl.maximum(x, 0.0, propagate_nan=nan), 1.0, propagate_nan=nan)


@triton.jit
def fade_of(packed, spans, at, inside, ramp, h, span_row, span_head, query, N, TURNED: tl.constexpr):
    """m. Spans are those of packed rows (span_row 1, span_head 0) or of heads (0, 1). Ages are added up as float32, whose
    sums are exact up to 2^24: to convert each pair's age would take as long as its exponential."""
    span, query_of = across(tl.load(spans + at * span_row + h * span_head, mask=inside, other=0.0), query.to(tl.float32),
                            TURNED)  # fmt: skip
    age, _ = across(tl.load(packed + AGE * N + at, mask=inside, other=0).to(tl.float32), query, TURNED)
    return clamped((span - (age + query_of)) * (1 / ramp) + 1)


@triton.jit
def extra_logits(s, visible, age, line, index, h, H, by_age, P, logit, has_logit, bias, A, bias_age, scale, query,
                 TURNED: tl.constexpr):  # fmt: skip
    """The logits with what is added to q . k. by_age [B K H, P]: q . p_a; line: of q among B K H."""
    index_of, line_of = across(index, line, TURNED)
    if P > 0:
        near = visible & (age >= 1) & (age <= P)
        s += tl.load(by_age + line_of * P + (age - 1), mask=near, other=0.0).to(tl.float32) * scale
    if has_logit != 0:
        s += tl.load(logit + index_of * H + h) * LOG2E
    if A > 0:
        column = tl.minimum(tl.maximum(age - bias_age, 0), A - 1)
        s += tl.load(bias + h * A + column) * LOG2E
    return s


@triton.jit
def dropped(x, seed, line, index, b, h, K, H, query, threshold, kept_scale, TURNED: tl.constexpr):
    """x where dropout keeps it, scaled, and 0 elsewhere."""
    counter = ((b * H + h).to(tl.int64) * K) + query
    index_of, counter_of = across(index, counter, TURNED)
    factor = tl.where(kept(seed, counter_of, index_of, threshold), kept_scale, 0.0)
    # The largest of one: a barrier to the compiler, which else makes the draws again in the layout of a product's operand,
    # from 130 KiB of constants in shared memory.
    return x * tl.max(factor[:, :, None], 2)
