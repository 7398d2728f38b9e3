"""The plan of a call, from Python: which rows some query sees, packed, and who reads which block of them."""

import dataclasses
import math

import torch
import triton

from lapse.ops.attention.cuda import rows

FOREVER = 1 << 62  # beyond every age
LIST_CHUNK = 256
FEW_QUERIES = 4  # up to which each query reads the rows by itself, in one launch for all: kFewOnGpu of plan.h


def widened(x, D):
    """Heads of D features, zeros behind their own; x itself where it has so many."""
    return (x if x.shape[-1] == D else torch.nn.functional.pad(x, (0, D - x.shape[-1]))).contiguous()


def rows_maker(offsets, N, device):
    """What makes a tensor [N, ...] of which a kernel writes every row of every sample; of what other rows there are, zeros."""
    owned = offsets.numel() > 1 and int(offsets[0]) == 0 and int(offsets[-1]) == N
    make = torch.empty if owned else torch.zeros
    return lambda *shape, dtype=torch.float32: make((N, *shape), dtype=dtype, device=device)


@dataclasses.dataclass
class Seen:
    """The rows that some query sees; tensors as rows.py says, on the device."""

    packed: torch.Tensor
    spans: torch.Tensor  # of heads [H]; else nothing that is read, or one infinity
    span_row: int  # whether rows have spans, whether heads
    span_head: int
    offsets: torch.Tensor
    count: torch.Tensor
    ramp_sum: torch.Tensor  # [B]
    most: int  # rows of a sample, before any are left out

    def blocks(self, size):
        return max(1, triton.cdiv(self.most, size))


def plan_rows(offsets, start, time, until, K, row_span=None, head_span=None, ramp=1.0, min_age=1, max_age=FOREVER, by_age=False):
    """offsets [B + 1] on the CPU; the rest on one device. by_age: whether numbers are read by age, as those of positions."""
    device, N, B = time.device, time.numel(), start.numel()
    new = lambda shape, dtype: torch.empty(shape, dtype=dtype, device=device)
    most = int((offsets[1:] - offsets[:-1]).max()) if B else 0
    chunks = max(1, triton.cdiv(most, rows.CHUNK))
    there = offsets.to(device, non_blocking=True)
    span = torch.full((1,), math.inf, device=device)
    if row_span is not None:
        span = row_span.float().contiguous()
    elif head_span is not None:
        span = head_span.float().amin(0, keepdim=True)
    counts, ramp_sums, count = new((B, rows.BUCKETS.value, chunks), torch.int32), new((B, chunks), torch.float32), new(B, torch.int32)
    packed = new((rows.LINES, max(N, 1)), torch.int32)
    steps = K.bit_length()
    row_spans = 0 if row_span is None else 1 if by_age else 2
    flags = [int(until is not None), row_spans, int(row_span is not None)]
    until = time if until is None else until.contiguous()
    limits = [float(ramp), max(min_age, -FOREVER), min(max_age, FOREVER), *flags]
    data = [there, start.contiguous(), time.contiguous(), until, span]
    rows.rows_count[(chunks, B)](*data, counts, ramp_sums, K, steps, chunks, *limits, CHUNK=rows.CHUNK)
    rows.rows_pack[(chunks, B)](*data, counts, packed, count, packed.shape[1], K, steps, chunks, *limits,
                                CHUNK=rows.CHUNK)  # fmt: skip
    spans = span if head_span is None else head_span.float().contiguous()
    return Seen(packed, spans, flags[2], int(head_span is not None), there, count, ramp_sums.sum(1), most)


def plan_ranges(seen, size, whole_age=-rows.FAR.value):
    """[B, blocks, 4]: rows.block_ranges of blocks of so many rows."""
    B, blocks = seen.count.numel(), seen.blocks(size)
    ranges = torch.empty((B, blocks, 4), dtype=torch.int32, device=seen.count.device)
    rows.block_ranges[(blocks, B)](seen.offsets, seen.packed, seen.count, ranges, seen.packed.shape[1], blocks,
                                    whole_age, ROWS=size)  # fmt: skip
    return ranges


def plan_lists(ranges, K, size):
    """For blocks of so many queries: [B, blocks of queries, blocks] the row blocks each reads, and how many."""
    B, blocks, _ = ranges.shape
    query_blocks = triton.cdiv(K, size)
    lists = torch.empty((B, query_blocks, blocks), dtype=torch.int32, device=ranges.device)
    counts = torch.empty((B, query_blocks, 2), dtype=torch.int32, device=ranges.device)
    rows.block_lists[(query_blocks, B)](ranges, lists, counts, K, blocks, QUERIES=size, CHUNK=LIST_CHUNK)
    return lists, counts


def few_heads(H, G, single=True):
    """HEADS of the kernels that decode; selective_decode takes one head for single queries alone."""
    return 1 if H == G and single else max(16, triton.next_power_of_2(H // G))


def few_parts(offsets, lines, size):
    """How many programs share out the rows before each of so many queries and key heads, and how many rows each reads. Together
    at most 264 programs: they fill a large GPU twice, and few more would wait for them. The number depends on the call
    alone, and so do the sums."""
    most = int((offsets[1:] - offsets[:-1]).max()) if offsets.numel() > 1 else 0
    parts = max(1, min(264 // lines, triton.cdiv(most, size)))
    return parts, triton.cdiv(max(1, triton.cdiv(most, parts)), size) * size
