"""Kernels that find which rows each block of queries reads: the plan of a call, made on the device.

Rows that no query of the block sees are left out first, so that everything after costs what the surviving rows cost. Of
the others, packed per sample (with row spans: those that last first, and without positions sorted by when they expire;
else in their order), each block of ROWS rows has a range of queries that see it, and each block of queries a list of the
row blocks it reads. Nothing of the size of
queries x rows is made but these lists, one number for each pair of blocks. All depends on the inputs alone, and nothing
is added by atomics.
"""

import triton
import triton.language as tl

from lapse.ops.attention.cuda.tiles import entry

FAR = tl.constexpr(1 << 30)  # beyond every block; sums of two fit 32 bits
FIRST_TIME, LAST_TIME = tl.constexpr(-(1 << 63)), tl.constexpr((1 << 63) - 1)
CHUNK = 256  # rows that one program packs
PART = tl.constexpr(128)  # chunks whose counts are read at once
BUCKETS = tl.constexpr(16)  # into which rows are sorted
UNSEEN = tl.constexpr(15)  # the bucket of the rows that no query sees

# Lines of the packed rows, [LINES, N] int32; sample b's are at offsets[b] ... offsets[b] + count[b] - 1 of each line.
INDEX = tl.constexpr(0)  # row of the table; from count[b] on of those that no query sees
FIRST = tl.constexpr(1)  # the first and the last query that sees the row
LAST = tl.constexpr(2)
AGE = tl.constexpr(3)  # at the block's first query
SPAN = tl.constexpr(4)  # the bits of a float
FULL = tl.constexpr(5)  # the last query with m = 1
FADING = tl.constexpr(6)  # queries with 0 < m < 1
LINES = 7


@triton.jit
def _narrow(x):
    return tl.minimum(tl.maximum(x, -FAR), FAR).to(tl.int32)


@triton.jit
def _ranges(rows, valid, begin, time, until, span, K, steps, ramp, min_age, max_age, has_until, row_spans, span_stride):
    """Of each row: age, first, last and full query, the sum of r = span - a on the ramp with its count, and whether
    any query sees the row. `span` with stride 0 is the smallest of the heads' spans, which says when all are full."""
    age = begin - tl.load(time + rows, mask=valid, other=0)
    first = tl.maximum(min_age - age, 0)
    last = tl.minimum(max_age - age, K - 1)
    end = tl.load(until + rows, mask=valid & (has_until != 0), other=0)
    ended = (has_until != 0) & (end <= begin + last)
    last = tl.where(ended, tl.maximum(end, begin) - 1 - begin, last)
    e = tl.load(span + rows * span_stride, mask=valid, other=0.0)
    # The last query that m > 0 allows. m falls with age: a search that agrees with ramp_sees() to the bit.
    fades, gone = tl.full(rows.shape, -1, tl.int64), tl.zeros(rows.shape, tl.int64) + K
    for _ in range(steps):
        middle = fades + (gone - fades) // 2
        sees = e - (age + middle).to(tl.float32) > -ramp
        fades, gone = tl.where(sees & (middle > fades), middle, fades), tl.where(sees, gone, middle)
    last = tl.where((row_spans != 0) & (has_until == 0), tl.minimum(last, fades), last)
    seen = valid & (first <= last) & ((row_spans == 0) | (e == e))
    e = tl.where(e == e, e, -1073741824.0)  # where a head's span is NaN no block is full: m is asked for everywhere
    whole = tl.floor(tl.minimum(tl.maximum(e, -1073741824.0), 1073741824.0)).to(tl.int64) - age
    begins = tl.maximum(first, whole + 1)
    count = tl.where(seen & (row_spans != 0), tl.maximum(tl.minimum(last, fades) - begins + 1, 0), 0).to(tl.float32)
    ramp_sum = count * (e - (age + begins).to(tl.float32)) - count * (count - 1) / 2
    return age, first, last, whole, count, tl.where(count > 0, ramp_sum, 0.0), seen


@triton.jit
def _buckets(first, last, whole, seen, K, row_spans):
    """[BUCKETS, rows]: 1 in the bucket of each row. With row spans: first the rows that all queries see with m = 1, then those
    that expire last, and so on. So a block's rows expire at about the same query: until shortly before it is a whole block,
    which takes the quicker steps, and soon after it nobody reads it. With row_spans 1 all of these others are in one bucket:
    where numbers are read by age, neighbours are to be of similar ages."""
    lasting = (first <= 0) & (last >= K - 1) & (whole >= K - 1)
    bucket = tl.where(lasting, 0, 1 + (K - 1 - last) * (UNSEEN - 1) // K * (row_spans - 1))
    bucket = tl.where(row_spans != 0, bucket, 0)
    bucket = tl.where(seen, bucket, UNSEEN)
    return (bucket.to(tl.int32)[None, :] == tl.arange(0, BUCKETS)[:, None]).to(tl.int32)


@entry
def rows_count(offsets, start, time, until, span, counts, ramp_sums, K, steps, chunks, ramp, min_age, max_age,
               has_until, row_spans, span_stride, CHUNK: tl.constexpr):  # fmt: skip
    """How many rows of each chunk are in each bucket; and the sum of r over them. Grid: chunks, samples."""
    c, b = tl.program_id(0), tl.program_id(1)
    rows = tl.load(offsets + b) + c * CHUNK + tl.arange(0, CHUNK)
    valid = rows < tl.load(offsets + b + 1)
    _, first, last, whole, _, ramp_sum, seen = _ranges(rows, valid, tl.load(start + b), time, until, span, K, steps,
                                                       ramp, min_age, max_age, has_until, row_spans,
                                                       span_stride)  # fmt: skip
    member = tl.where(valid[None, :], _buckets(first, last, whole, seen, K, row_spans), 0)
    tl.store(counts + (b * BUCKETS + tl.arange(0, BUCKETS)) * chunks + c, tl.sum(member, 1))
    tl.store(ramp_sums + b * chunks + c, tl.sum(ramp_sum, 0))


@entry
def rows_until(time, span, until, N, ramp, CHUNK: tl.constexpr):
    """ramp_until (expiry.h) of N rows: the greatest age at which a row is seen, by a search that agrees with ramp_sees()
    to the bit, since e - a > -R holds up to some age and not beyond. Grid: chunks."""
    rows = tl.program_id(0) * CHUNK + tl.arange(0, CHUNK)
    valid = rows < N
    e = tl.load(span + rows, mask=valid, other=0.0)
    old = e > -ramp  # seen at age 0
    sees, gone = tl.where(old, 0, -FAR), tl.where(old, FAR, 0)
    for _ in range(30):
        middle = (sees + gone) // 2
        seen = e - middle.to(tl.float32) > -ramp
        sees, gone = tl.where(seen, middle, sees), tl.where(seen, gone, middle)
    end = tl.load(time + rows, mask=valid, other=0) + sees + 1
    end = tl.where(e - FAR > -ramp, tl.full(rows.shape, LAST_TIME, tl.int64), end)  # seen at every age
    end = tl.where(e + FAR > -ramp, end, tl.full(rows.shape, FIRST_TIME, tl.int64))  # at none, as where e is NaN
    tl.store(until + rows, end, mask=valid)


@entry
def rows_pack(offsets, start, time, until, span, counts, packed, count, N, K, steps, chunks, ramp, min_age,
              max_age, has_until, row_spans, span_stride, CHUNK: tl.constexpr):  # fmt: skip
    """The rows of each chunk, in each bucket behind those of the chunks before it: the seen ones with all their lines, and behind
    them the indices of the others, whose gradients somebody has to set to zero. Grid: chunks, samples."""
    c, b = tl.program_id(0), tl.program_id(1)
    base = tl.load(offsets + b)
    rows = base + c * CHUNK + tl.arange(0, CHUNK)
    valid = rows < tl.load(offsets + b + 1)
    age, first, last, whole, fading, _, seen = _ranges(rows, valid, tl.load(start + b), time, until, span, K, steps,
                                                       ramp, min_age, max_age, has_until, row_spans,
                                                       span_stride)  # fmt: skip
    bucket = tl.arange(0, BUCKETS)
    earlier, each = tl.zeros([BUCKETS, PART], tl.int32), tl.zeros([BUCKETS, PART], tl.int32)
    for i in range(0, chunks, PART):
        chunk = i + tl.arange(0, PART)[None, :]
        those = tl.load(counts + (b * BUCKETS + bucket[:, None]) * chunks + chunk, mask=chunk < chunks, other=0)
        earlier += tl.where(chunk < c, those, 0)
        each += those
    before, all_rows = tl.sum(earlier, 1), tl.sum(each, 1)
    begin = before + tl.cumsum(all_rows, 0) - all_rows  # in each bucket, of this chunk's rows
    member = _buckets(first, last, whole, seen, K, row_spans)
    to = base - 1 + tl.sum(member * (begin[:, None] + tl.cumsum(member, 1)), 0)
    tl.store(packed + INDEX * N + to, rows.to(tl.int32), mask=valid)
    tl.store(packed + AGE * N + to, _narrow(age), mask=seen)
    tl.store(packed + FIRST * N + to, _narrow(first), mask=seen)
    tl.store(packed + LAST * N + to, _narrow(last), mask=seen)
    tl.store(packed + FULL * N + to, _narrow(whole), mask=seen)
    tl.store(packed + FADING * N + to, fading.to(tl.int32), mask=seen)
    e = tl.load(span + rows * span_stride, mask=valid, other=0.0)
    tl.store(packed + SPAN * N + to, e.to(tl.int32, bitcast=True), mask=seen)
    if c == chunks - 1:
        tl.store(count + b, tl.sum(tl.where(bucket < UNSEEN, all_rows, 0), 0))


@entry
def block_ranges(offsets, packed, count, ranges, N, blocks, whole_age, ROWS: tl.constexpr):
    """Of each block of rows: the first and the last query that sees any, and those from and to which all see every
    row with m = 1 and an age of at least `whole_age`. Grid: blocks, samples."""
    j, b = tl.program_id(0), tl.program_id(1)
    rows = j * ROWS + tl.arange(0, ROWS)
    valid = rows < tl.load(count + b)
    at = tl.load(offsets + b) + rows
    first = tl.load(packed + FIRST * N + at, mask=valid, other=FAR)
    last = tl.load(packed + LAST * N + at, mask=valid, other=-1)
    whole = tl.load(packed + FULL * N + at, mask=valid, other=-1)
    old = whole_age - tl.load(packed + AGE * N + at, mask=valid, other=0)  # the query for which the row has that age
    to = ranges + (b * blocks + j) * 4
    tl.store(to, tl.min(first, 0))
    tl.store(to + 1, tl.max(last, 0))
    tl.store(to + 2, tl.max(tl.maximum(first, old), 0))  # FAR where the block is not full
    tl.store(to + 3, tl.min(tl.minimum(last, whole), 0))


@entry
def block_lists(ranges, lists, counts, K, blocks, QUERIES: tl.constexpr, CHUNK: tl.constexpr):
    """The row blocks that each block of queries reads: whole ones from the front of its list, others from the back.
    Grid: blocks of queries, samples."""
    a, b = tl.program_id(0), tl.program_id(1)
    line = b * tl.num_programs(0) + a
    begin = a * QUERIES
    end = tl.minimum(begin + QUERIES, K) - 1
    to = lists + line.to(tl.int64) * blocks
    whole_count, part_count = 0, 0
    for i in range(0, blocks, CHUNK):
        j = i + tl.arange(0, CHUNK)
        valid = j < blocks
        at = ranges + (b * blocks + j) * 4
        reads = valid & (tl.load(at, mask=valid, other=0) <= end) & (tl.load(at + 1, mask=valid, other=-1) >= begin)
        whole = reads & (tl.load(at + 2, mask=valid, other=0) <= begin) & (tl.load(at + 3, mask=valid, other=0) >= end)
        ones, others = whole.to(tl.int32), (reads & (whole == 0)).to(tl.int32)
        tl.store(to + whole_count + tl.cumsum(ones, 0) - 1, j, mask=ones != 0)
        tl.store(to + blocks - part_count - tl.cumsum(others, 0), j, mask=others != 0)
        whole_count += tl.sum(ones, 0)
        part_count += tl.sum(others, 0)
    tl.store(counts + line * 2, whole_count)
    tl.store(counts + line * 2 + 1, part_count)


@triton.jit
def mix64(x):
    """mix64 of core/random.h."""
    x = x.to(tl.uint64) + 0x9E3779B97F4A7C15
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9
    x = (x ^ (x >> 27)) * 0x94D049BB133111EB
    return x ^ (x >> 31)


@triton.jit
def kept(seed, query, row, threshold):
    """Whether dropout keeps the weight of (query of all heads, row of the table): the same draws on every device."""
    counter = (query.to(tl.uint64) << 32) + row.to(tl.uint64)
    bits = (mix64(counter + mix64(tl.load(seed))) ^ 0x8000000000000000) >> 40
    return bits.to(tl.int32) >= threshold
