"""A few queries before long rows, in one launch: the rows are shared out among programs, each of which leaves its sums; the
last of a query's key head to finish joins them, always in the same order.

Heads that share keys are the lines of a product's tile, with one running softmax each. A head with keys of its own
would leave such a product nearly empty: its tile is [rows, D], and each place of the tile runs a softmax of its own, so
that nothing is exchanged between threads before the last row.
"""

import triton
import triton.language as tl

STAGES = tl.constexpr(3)  # tiles of rows on their way at once
AT_ONCE = tl.constexpr(16)  # parts that are joined in one step

# What a program leaves: acc [HEADS, D], then largest, total and masked [HEADS], and one number.


@triton.jit
def no_rows(D: tl.constexpr, HEADS: tl.constexpr):
    """The sums before any row."""
    acc, total = tl.zeros([HEADS, D], tl.float32), tl.zeros([HEADS], tl.float32)
    return acc, tl.full([HEADS], float("-inf"), tl.float32), total, total


@triton.jit
def add_rows(s, fade, values, acc, largest, total, masked, PRECISION: tl.constexpr):
    """The sums with some more rows: logits s [HEADS, rows] in units of log 2, -inf where a row is not seen; m is `fade`."""
    most = tl.maximum(largest, tl.max(s, 1))
    base = tl.where(most == float("-inf"), 0.0, most)
    e = tl.exp2(s - base[:, None])
    shrink = tl.exp2(largest - base)
    weight = e * fade
    total = total * shrink + tl.sum(e, 1)
    masked = masked * shrink + tl.sum(weight, 1)
    acc = tl.dot(weight.to(values.dtype), values, acc * shrink[:, None], input_precision=PRECISION)
    return acc, most, total, masked


@triton.jit
def add_row(s, fade, values, acc, largest, total, masked):
    """The same for one head: place by place, acc [rows, D] and s [rows]."""
    most = tl.maximum(largest, s)
    base = tl.where(most == float("-inf"), 0.0, most)
    e = tl.exp2(s - base)
    shrink = tl.exp2(largest - base)
    weight = e * fade
    acc = acc * shrink[:, None] + weight[:, None] * values.to(tl.float32)
    return acc, most, total * shrink + e, masked * shrink + weight


@triton.jit
def over_places(acc, largest, total, masked):
    """The sums of all places, of one head."""
    most = tl.max(largest, 0)
    share = tl.exp2(largest - tl.where(most == float("-inf"), 0.0, most))
    acc = tl.sum(acc * share[:, None], 0)
    zero = tl.zeros([1], tl.float32)
    return acc[None, :], most + zero, tl.sum(total * share, 0) + zero, tl.sum(masked * share, 0) + zero


@triton.jit
def leave_part(partial, line, parts, part, acc, largest, total, masked, number, arrived, D: tl.constexpr,
               HEADS: tl.constexpr):  # fmt: skip
    """Stores the sums of this part; whether the others of the line have stored theirs."""
    lane = tl.arange(0, HEADS)
    mine = partial + (line.to(tl.int64) * parts + part) * (HEADS * D + 3 * HEADS + 1)
    tl.store(mine + lane[:, None] * D + tl.arange(0, D)[None, :], acc)
    tl.store(mine + HEADS * D + lane, largest)
    tl.store(mine + HEADS * D + HEADS + lane, total)
    tl.store(mine + HEADS * D + 2 * HEADS + lane, masked)
    tl.store(mine + HEADS * D + 3 * HEADS, number)
    tl.debug_barrier()
    return tl.atomic_add(arrived + line, 1, sem="acq_rel") == parts - 1


@triton.jit
def join_parts(partial, line, parts, arrived, D: tl.constexpr, HEADS: tl.constexpr):
    """The sums of all parts, in their order."""
    size: tl.constexpr = HEADS * D + 3 * HEADS + 1
    lane = tl.arange(0, HEADS)
    acc, largest, total, masked = no_rows(D, HEADS)
    number = 0.0
    of_line = partial + line.to(tl.int64) * parts * size
    if HEADS == 1:
        for i in range(0, parts, AT_ONCE):
            part = i + tl.arange(0, AT_ONCE)
            of, there = of_line + part * size, part < parts
            its = tl.load(of + D, mask=there, other=float("-inf"), cache_modifier=".cg")
            its_total = tl.load(of + D + 1, mask=there, other=0.0, cache_modifier=".cg")
            its_masked = tl.load(of + D + 2, mask=there, other=0.0, cache_modifier=".cg")
            number += tl.sum(tl.load(of + D + 3, mask=there, other=0.0, cache_modifier=".cg"), 0)
            its_acc = tl.load(of[:, None] + tl.arange(0, D)[None, :], mask=there[:, None], other=0.0, cache_modifier=".cg")
            most = tl.maximum(largest, tl.max(its, 0))
            base = tl.where(most == float("-inf"), 0.0, most)
            old, new = tl.exp2(largest - base), tl.exp2(its - base)
            total = total * old + tl.sum(its_total * new, 0)
            masked = masked * old + tl.sum(its_masked * new, 0)
            acc = acc * old[:, None] + tl.sum(its_acc * new[:, None], 0)[None, :]
            largest = most
    else:
        for i in range(0, parts):
            of = of_line + i * size
            its = tl.load(of + HEADS * D + lane, cache_modifier=".cg")
            most = tl.maximum(largest, its)
            base = tl.where(most == float("-inf"), 0.0, most)
            old, new = tl.exp2(largest - base), tl.exp2(its - base)
            total = total * old + tl.load(of + HEADS * D + HEADS + lane, cache_modifier=".cg") * new
            masked = masked * old + tl.load(of + HEADS * D + 2 * HEADS + lane, cache_modifier=".cg") * new
            inner = lane[:, None] * D + tl.arange(0, D)[None, :]
            acc = acc * old[:, None] + tl.load(of + inner, cache_modifier=".cg") * new[:, None]
            number += tl.load(of + HEADS * D + 3 * HEADS, cache_modifier=".cg")
            largest = most
    tl.store(arrived + line, 0)
    return acc, largest, total, masked, number
