"""A few queries before long rows, in one launch: the rows are shared out among programs, each of which leaves its sums; the
last of a query's key head to finish joins them, always in the order of the rows."""

import triton
import triton.language as tl

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
    lane = tl.arange(0, HEADS)
    acc, largest, total, masked = no_rows(D, HEADS)
    number = 0.0
    for i in range(0, parts):
        of = partial + (line.to(tl.int64) * parts + i) * (HEADS * D + 3 * HEADS + 1)
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
