"""selective_attention of a few queries per sample, before long rows: one launch (attention/cuda/parts.py). Each query reads
the rows anew, and makes S of the queries before it again: of a few that costs less than a second launch."""

import triton
import triton.language as tl

from lapse.ops.attention.cuda.parts import STAGES, add_row, add_rows, join_parts, leave_part, no_rows, over_places
from lapse.ops.attention.cuda.tiles import entry
from lapse.ops.attention.ramp.cuda.tile import LOG2E


@triton.jit
def _by_age(position, near, age, D: tl.constexpr):
    return tl.load(position + (age - 1)[:, None] * D + tl.arange(0, D)[None, :], mask=near[:, None], other=0.0)


@triton.jit
def _facts(rows, end, time, until, first, masking, has_until, has_first, has_masking):
    """Time, end, whether somebody masks them, and F of rows: read a tile ahead, for which keys to read depends on them."""
    valid = rows < end
    stamp = tl.load(time + rows, mask=valid, other=0)
    last = tl.load(until + rows, mask=valid & (has_until != 0), other=0)
    kind = tl.load(first + rows, mask=valid & (has_first != 0), other=0)
    return stamp, last, kind, tl.load(masking + rows, mask=valid & (has_masking != 0), other=0.0) * LOG2E


@triton.jit
def _one_query(q_line, chooser, facts, rows, end, begin, k, v, select_k, position, bias, received, sums, g, G,
               select_stride_k, select_scale, own, mask_self, relu, shift, scale, cap, max_age, has_until, P, A, bias_age,
               D: tl.constexpr, EXTRAS: tl.constexpr):  # fmt: skip
    """One query of one head that has keys of its own, before one more tile of rows: no product, and a running softmax at
    each place (attention/cuda/parts.py). sums: those of add_row, and each place's share of M."""
    acc, largest, total, masked, M = sums
    stamp, last, kind, F = facts
    inner = tl.arange(0, D)[None, :]
    valid = rows < end
    age = begin - stamp
    seen = valid & (age >= 0) & (age <= max_age) & ((has_until == 0) | (last > begin))
    # Where F is of the queries before, S is for the next query, and one head's program is enough to make it.
    makes = valid & ((g == 0) | (shift == 0))
    chooser_key = tl.load(select_k + rows[:, None] * select_stride_k + inner, mask=makes[:, None], other=0.0).to(tl.float32)
    place = (rows * G + g)[:, None] * D + inner
    key = tl.load(k + place, mask=seen[:, None], other=0.0).to(tl.float32)
    values = tl.load(v + place, mask=seen[:, None], other=0.0)
    if EXTRAS:
        by_age = _by_age(position, seen & (age >= 1) & (age <= P), age, D).to(tl.float32)
        key += by_age
        chooser_key += tl.where(own == 0, by_age, 0.0)
    choice = tl.sum(chooser_key * chooser, 1) * select_scale
    s = tl.sum(key * q_line, 1) * scale
    if EXTRAS:
        column = tl.minimum(tl.maximum(age - bias_age, 0), A - 1)
        choice += tl.load(bias + column, mask=valid & (own == 0) & (A > 0), other=0.0) * LOG2E
        s += tl.load(bias + g * A + column, mask=valid & (A > 0), other=0.0) * LOG2E
    opens = seen & (kind == 0) & ((age > 0) | (mask_self != 0)) & ((relu == 0) | ((choice <= 0) == 0))
    S = tl.where(opens & makes, choice, 0.0)
    tl.store(received + rows, (F + S) / LOG2E, mask=valid & (g == 0))
    F += tl.where(shift != 0, 0.0, S)
    M += tl.where(seen, 1 - tl.minimum(F, cap) / cap, 0.0)
    s = tl.where(seen, s - F, float("-inf"))
    acc, largest, total, masked = add_row(s, 1.0, values, acc, largest, total, masked)
    return acc, largest, total, masked, M


@entry
def selective_decode(q, k, v, select_q, select_k, offsets, start, time, until, first, masking, position, bias, partial,
                     arrived, out, memory, received, stats, K, H, G, part_rows, select_stride_q, select_stride_k,
                     select_scale, own, mask_self, relu, shift, scale, cap, max_age, has_until, has_first, has_masking, P,
                     A, bias_age, D: tl.constexpr, HEADS: tl.constexpr, ROWS: tl.constexpr, EXTRAS: tl.constexpr,
                     PRECISION: tl.constexpr):  # fmt: skip
    """As ramp_decode, but that HEADS is 1 for single queries (K = 1) alone; S as scores_of. first [N]: rows that nobody
    masks; received [N]: F after the call; scales and cap in units of log 2. Grid: parts, key heads, queries; `part_rows`,
    a multiple of ROWS, for each part."""
    part, g, query = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    b, t = query // K, query % K
    parts = tl.num_programs(0)
    group = H // G
    lane = tl.arange(0, HEADS)
    heads = lane < group
    h = g * group + lane
    inner = tl.arange(0, D)
    place = (query.to(tl.int64) * H + h)[:, None] * D + inner[None, :]
    q_block = tl.load(q + place, mask=heads[:, None], other=0.0)
    from_row, end = tl.load(offsets + b), tl.load(offsets + b + 1)
    begin = tl.load(start + b)
    acc, largest, total, masked = no_rows(D, ROWS if HEADS == 1 else HEADS)
    M = tl.zeros([ROWS], tl.float32)
    begin_row = from_row + part * part_rows + tl.arange(0, ROWS)
    if HEADS == 1:
        q_line = tl.sum(q_block.to(tl.float32), 0)[None, :]
        chooser = tl.load(select_q + query.to(tl.int64) * select_stride_q + inner).to(tl.float32)[None, :]
        facts = _facts(begin_row, end, time, until, first, masking, has_until, has_first, has_masking)
        for i in tl.range(0, part_rows, ROWS, num_stages=STAGES):
            rows = begin_row + i
            acc, largest, total, masked, M = _one_query(
                q_line, chooser, facts, rows, end, begin, k, v, select_k, position, bias, received,
                (acc, largest, total, masked, M), g, G, select_stride_k, select_scale, own, mask_self, relu, shift,
                scale, cap, max_age, has_until, P, A, bias_age, D, EXTRAS)  # fmt: skip
            facts = _facts(rows + ROWS, end, time, until, first, masking, has_until, has_first, has_masking)
        acc, largest, total, masked = over_places(acc, largest, total, masked)
    else:
        for i in range(0, part_rows, ROWS):
            rows = from_row + part * part_rows + i + tl.arange(0, ROWS)
            valid = rows < end
            stamp = tl.load(time + rows, mask=valid, other=0)
            last = tl.load(until + rows, mask=valid & (has_until != 0), other=0)
            open_row = valid & (tl.load(first + rows, mask=valid & (has_first != 0), other=0) == 0)
            choosers = tl.load(select_k + rows[:, None] * select_stride_k + inner[None, :], mask=valid[:, None], other=0.0)
            F = tl.load(masking + rows, mask=valid & (has_masking != 0), other=0.0) * LOG2E
            S = tl.zeros([ROWS], tl.float32)
            for j in range(0, t + 1):
                F += S  # of the query before
                age = begin + j - stamp
                seen = valid & (age >= 0) & (age <= max_age) & ((has_until == 0) | (last > begin + j))
                chooser = tl.load(select_q + (query - t + j).to(tl.int64) * select_stride_q + inner).to(tl.float32)[None, :]
                choice = tl.sum(choosers.to(tl.float32) * chooser, 1)
                if EXTRAS:
                    if (own == 0) & (P > 0):
                        near = seen & (age >= 1) & (age <= P)
                        choice += tl.sum(_by_age(position, near, age, D).to(tl.float32) * chooser, 1)
                choice = choice * select_scale
                if EXTRAS:
                    if (own == 0) & (A > 0):
                        choice += tl.load(bias + tl.minimum(tl.maximum(age - bias_age, 0), A - 1)) * LOG2E
                opens = open_row & seen & ((age > 0) | (mask_self != 0)) & ((relu == 0) | ((choice <= 0) == 0))
                S = tl.where(opens, choice, 0.0)
            if (g == 0) & (t == K - 1):
                tl.store(received + rows, (F + S) / LOG2E, mask=valid)
            F += tl.where(shift != 0, 0.0, S)

            age = begin + t - stamp
            seen = valid & (age >= 0) & (age <= max_age) & ((has_until == 0) | (last > begin + t))
            M += tl.where(seen, 1 - tl.minimum(F, cap) / cap, 0.0)
            keys = tl.load(k + (rows * G + g)[:, None] * D + inner[None, :], mask=seen[:, None], other=0.0)
            s = tl.dot(q_block, tl.trans(keys), input_precision=PRECISION)
            if EXTRAS:
                if P > 0:
                    by_age = _by_age(position, seen & (age >= 1) & (age <= P), age, D)
                    s += tl.dot(q_block, tl.trans(by_age), input_precision=PRECISION)
            s = s * scale
            if EXTRAS:
                if A > 0:
                    column = tl.minimum(tl.maximum(age - bias_age, 0), A - 1)
                    s += tl.load(bias + h[:, None] * A + column[None, :], mask=heads[:, None], other=0.0) * LOG2E
            s = tl.where(seen[None, :], s - F[None, :], float("-inf"))
            values = tl.load(v + (rows * G + g)[:, None] * D + inner[None, :], mask=seen[:, None], other=0.0)
            acc, largest, total, masked = add_rows(s, 1.0, values, acc, largest, total, masked, PRECISION)

    line = query * G + g
    M = tl.sum(M, 0)
    if leave_part(partial, line, parts, part, acc, largest, total, masked, M, arrived, D, HEADS):
        acc, largest, total, masked, M = join_parts(partial, line, parts, arrived, D, HEADS)
        sees = total != 0
        acc = tl.where(sees[:, None], acc / tl.where(sees, total, 1.0)[:, None], 0.0)
        tl.store(out + place, acc.to(out.dtype.element_ty), mask=heads[:, None])
        tl.store(stats + query * H + h, tl.where(sees, (largest + tl.log2(total)) / LOG2E, float("-inf")), mask=heads)
        if g == 0:
            tl.store(memory + query, M)
