"""ramp_attention: the attention that each row received, sum over queries of a', once the queries' sums are known."""

import triton.language as tl

from lapse.ops.attention.cuda.tiles import entry
from lapse.ops.attention.ramp.cuda.tile import LOG2E, across, extra_logits, facts_of, fade_of, row_block, visible_in


@entry
def ramp_received(q, k, packed, spans, by_age, logit, bias, offsets, count, ranges, stats, received, N, K, H, G, blocks,
                  scale, ramp, epsilon, span_row, span_head, P, has_logit, A, bias_age, D: tl.constexpr,
                  QUERIES: tl.constexpr, ROWS: tl.constexpr, PRECISION: tl.constexpr):  # fmt: skip
    """received [N, H], zero before. Grid: blocks of rows, heads, samples."""
    j, h, b = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    rows_count = tl.load(count + b)
    if j * ROWS < rows_count:
        at, inside, index = row_block(packed, tl.load(offsets + b), rows_count, j, N, ROWS)
        facts = facts_of(packed, at, inside, N, ROWS)
        lanes = tl.arange(0, D)[None, :]
        keys = tl.load(k + (index * G + h // (H // G))[:, None] * D + lanes)
        range_at = ranges + (b * blocks + j) * 4
        sums = tl.zeros([ROWS], tl.float32)
        for a in range(tl.load(range_at) // QUERIES, tl.load(range_at + 1) // QUERIES + 1):
            query = a * QUERIES + tl.arange(0, QUERIES)
            line = (b.to(tl.int64) * K + query) * H + h
            q_block = tl.load(q + line[:, None] * D + lanes, mask=(query < K)[:, None], other=0.0)
            lse = tl.load(stats + line * 2, mask=query < K, other=0.0) * LOG2E
            Z = tl.load(stats + line * 2 + 1, mask=query < K, other=1.0) + epsilon
            _, lse_of = across(query, tl.where(lse == float("-inf"), 0.0, lse), True)
            _, Z_of = across(query, tl.where(Z > 0, Z, 1.0), True)
            visible = visible_in(facts, query, True)
            s = tl.dot(keys, tl.trans(q_block), input_precision=PRECISION) * scale
            s = extra_logits(s, facts, index, b, h, K, H, by_age, P, logit, has_logit, bias, A, bias_age, scale, query,
                             True)  # fmt: skip
            weight = tl.exp2(tl.where(visible, s, float("-inf")) - lse_of) / Z_of
            fade, _ = fade_of(facts, spans, ramp, h, span_row, span_head, query, True)
            sums += tl.sum(weight * fade, 1)
        tl.store(received + index * H + h, sums, mask=inside)
