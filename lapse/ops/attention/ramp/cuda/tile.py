"""What every kernel of ramp_attention does with one tile of queries x rows: logits in units of log 2, m, and dropout.

A tile is [queries, rows]; the pass over keys works on its transpose, and says so by TURNED. Of what a call can ask for
beside spans (positions, logits, biases by age, dropout), kernels with EXTRAS take all, each by a flag that is the same
for the whole launch. What the paper's models need has its own: POSITION takes positions, DROPOUT dropout, and others
have no trace of either.
"""

import triton
import triton.language as tl

from lapse.ops.attention.cuda.rows import FAR, FIRST, INDEX, kept

LOG2E = tl.constexpr(1.4426950408889634)


@triton.jit
def across(rows, queries, TURNED: tl.constexpr):
    """A number of each row, and one of each query, as they lie in the tile."""
    if TURNED:
        return rows[:, None], queries[None, :]
    else:
        return rows[None, :], queries[:, None]


@triton.jit
def index_of(packed, offset, count, j, other, N, ROWS: tl.constexpr):
    """Where the rows of block j lie in the table. What is behind the last one reads as `other`, the sample's first, so
    that it is a number; `visible_in` lets no query see it."""
    rows = j * ROWS + tl.arange(0, ROWS)
    return tl.load(packed + INDEX * N + offset + rows, mask=rows < count, other=other)


@triton.jit
def whole_index_of(packed, offset, j, N, ROWS: tl.constexpr):
    """index_of, where all rows of the block are there."""
    return tl.load(packed + INDEX * N + offset + j * ROWS + tl.arange(0, ROWS))


@triton.jit
def features_of(x, index, first, stride, D: tl.constexpr):
    """Where D features of rows lie in x, from number `first` on, where a row has `stride` numbers: [rows, D]. The row's place is
    counted in pieces of 16 numbers, for which 32 bits are enough (check_places in plan.cpp): a product of two numbers of 64 bits
    takes six instructions, once for each row."""
    # stride is a multiple of 16, and index * stride / 16 below 2^31: widths are padded, and check_places refuses more.
    piece = (index.to(tl.int32) * (stride // 16)).to(tl.uint32).to(tl.int64)
    return (x + (first + tl.arange(0, D)))[None, :] + (piece * 16)[:, None]


@triton.jit
def rows_at(offset, count, j, ROWS: tl.constexpr):
    """Of the rows of block j: where they are packed, and which of them there are."""
    rows = j * ROWS + tl.arange(0, ROWS)
    return offset + rows, rows < count


@triton.jit
def row_block(packed, offset, count, j, N, ROWS: tl.constexpr):
    at, inside = rows_at(offset, count, j, ROWS)
    index = index_of(packed, offset, count, j, tl.load(packed + INDEX * N + offset), N, ROWS)
    return at, inside, index.to(tl.int64)


@triton.jit
def listed(list_at, i, end):
    """The number of a row block on the list of what a block of queries reads."""
    return tl.load(list_at + i, mask=i < end, other=0)


@triton.jit
def part_of(list_at, i, end, PARTS: tl.constexpr):
    """The number of part i of the listed blocks, each of PARTS parts."""
    return listed(list_at, i // PARTS, end // PARTS) * PARTS + i % PARTS


@triton.jit
def facts_of(packed, at, inside, N, ROWS: tl.constexpr):
    """Of packed rows: the first and the last query that sees each, its age and its span. They come by one load: one of
    fewer numbers than threads would be made by every thread for itself, into as many registers as a tile has columns."""
    lines = FIRST + tl.arange(0, 4)
    x = tl.load(packed + lines[:, None] * N + at[None, :], mask=inside[None, :], other=-1)  # seen by query -1: by none
    first_and_age, last_and_span = tl.split(tl.reshape(tl.trans(x), (ROWS, 2, 2)))
    first, age = tl.split(first_and_age)
    last, span = tl.split(last_and_span)
    return first, last, age, tl.where(inside, span, 0).to(tl.float32, bitcast=True)


@triton.jit
def visible_in(facts, query, TURNED: tl.constexpr):
    first, query_of = across(facts[0], query, TURNED)
    last, _ = across(facts[1], query, TURNED)
    return (query_of >= first) & (query_of <= last)


@triton.jit
def ages_of(facts, query, TURNED: tl.constexpr):
    age, query_of = across(facts[2], query, TURNED)
    return age + query_of


@triton.jit
def clamped(x):
    """To [0, 1]; NaN stays NaN."""
    nan: tl.constexpr = tl.PropagateNan.ALL
    return tl.minimum(tl.maximum(x, 0.0, propagate_nan=nan), 1.0, propagate_nan=nan)


@triton.jit
def fade_of(facts, spans, ramp, h, span_row, span_head, query, TURNED: tl.constexpr):
    """m, and where it is on the ramp, asked of r = span - age itself: m is rounded. Spans are those of rows (span_row 1,
    span_head 0) or of heads (0, 1), or one infinity. Ages are added up as float32, whose sums are exact up to 2^24: to
    convert each pair's age would take as long as its exponential."""
    span, query_of = across(facts[3], query.to(tl.float32), TURNED)
    span = tl.where(span_row != 0, span, tl.load(spans + h * span_head))
    age, _ = across(facts[2].to(tl.float32), query, TURNED)
    r = span - (age + query_of)
    return clamped(r * (1 / ramp) + 1), (r > -ramp) & (r < 0)


@triton.jit
def near_of(facts, query, P, K):
    """[rows, queries]: pairs of a query that is there and a row whose age has a position."""
    age, first = across(facts[2], tl.where(query < K, 1 - query, FAR), True)
    _, last = across(facts[2], P - query, True)
    return (age >= first) & (age <= last)


@triton.jit
def places_by_age(by_age, facts, b, h, query, K, H, P):
    """[rows, queries]: where what belongs to a query and an age lies in by_age [B, K, H, P]. Rows come first in every
    pass: neighbours in memory are neighbouring rows, and threads that are neighbours get neighbours of the first
    dimension, where the compiler knows of no better one."""
    first = by_age + (b.to(tl.int64) * K * H + h) * P - 1
    age, of_query = across(facts[2], first + query.to(tl.int64) * (H * P + 1), True)  # the age grows by 1 a query
    return of_query + age


@triton.jit
def extra_logits(s, facts, index, b, h, K, H, by_age, P, logit, has_logit, bias, A, bias_age, scale, query,
                 TURNED: tl.constexpr):  # fmt: skip
    """The logits with what is added to q . k. by_age [B, K, H, P]: q . p_a."""
    if P > 0:
        near = near_of(facts, query, P, K)
        q_p = tl.load(places_by_age(by_age, facts, b, h, query, K, H, P), mask=near, other=0.0).to(tl.float32)
        if TURNED:
            s += q_p * scale
        else:
            s += tl.trans(q_p) * scale
    if has_logit != 0:
        of_row, _ = across(index, query, TURNED)
        s += tl.load(logit + of_row.to(tl.int64) * H + h) * LOG2E
    if A > 0:
        column = tl.minimum(tl.maximum(ages_of(facts, query, TURNED) - bias_age, 0), A - 1)
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
