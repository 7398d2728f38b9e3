"""selective_attention, its backward pass and selective_prune by the Triton kernels, from Python (ramp/cuda/call.py)."""

import dataclasses
import math

import torch
import triton

from lapse.ops.attention.cuda.plan import FEW_QUERIES, FOREVER, few_heads, few_parts, plan_lists, plan_ranges, plan_rows, rows_maker, widened
from lapse.ops.attention.cuda.rows import CHUNK, FAR
from lapse.ops.attention.cuda.tiles import heads_together, tile
from lapse.ops.attention.selective.cuda import backward, forward, masking, prune
from lapse.ops.attention.selective.cuda.decode import selective_decode

LOG2E = math.log2(math.e)
CHOICE_PARTS = 4  # programs that share out the rows in selective_choice_queries: kChoiceParts of selective.cpp


@dataclasses.dataclass
class Options:
    """SelectiveOptions of the library, and `until`."""

    masking: torch.Tensor = None
    until: torch.Tensor = None
    first: torch.Tensor = None
    select_q: torch.Tensor = None
    select_k: torch.Tensor = None
    position: torch.Tensor = None
    seed: torch.Tensor = None
    age_bias: torch.Tensor = None
    bias_age: int = 0
    scale: float = None
    max_age: int = FOREVER
    dropout: float = 0.0
    cap: float = 1.0
    shift: bool = True
    mask_first: bool = False
    mask_self: bool = False
    relu: bool = True


class Call:
    """What the passes share: contiguous inputs of one width, the plan, F at the blocks' beginnings, the arguments."""

    def __init__(self, q, k, v, offsets, start, time, options):
        o = self.options = options
        self.width = q.shape[3]
        self.select_width = self.width if o.select_q is None else o.select_q.shape[2]
        self.D = max(16, triton.next_power_of_2(max(self.width, self.select_width)))
        self.q, self.k, self.v = (self.widened(x) for x in (q, k, v))
        self.B, self.K, self.H = q.shape[:3]
        self.N, self.G = k.shape[:2]
        self.scale = (o.scale or 1 / math.sqrt(self.width)) * LOG2E
        self.own = o.select_q is not None
        self.select_q, self.select_k, self.select_scale = self.q, self.k, self.scale
        if self.own:
            self.select_q, self.select_k = (self.widened(x.to(q.dtype)) for x in (o.select_q, o.select_k))
            self.select_scale = LOG2E / math.sqrt(self.select_width)
        self.P = 0 if o.position is None else o.position.shape[0]
        self.A = 0 if o.age_bias is None else o.age_bias.shape[1]
        self.extras = self.P > 0 or self.A > 0 or o.dropout > 0
        self.by_age = self.q
        if self.P > 0:
            self.by_age = self.q.flatten(0, 2) @ self.widened(o.position).to(q.dtype).t()
        self.seen = plan_rows(offsets, start, time, o.until, self.K, min_age=0, max_age=o.max_age)
        self.settings = tile("selective", q.dtype, self.D, "extras" if self.extras else "")
        self.ranges = plan_ranges(self.seen, self.settings.rows, whole_age=1)
        self.blocks = self.ranges.shape[1]
        self.query_blocks = triton.cdiv(self.K, self.settings.queries)
        self.kinds = torch.ones(max(self.N, 1), dtype=torch.int32, device=q.device)
        if o.first is not None and not o.mask_first:
            self.kinds = (~o.first).int()

    def new(self, *shape, dtype=torch.float32):
        return torch.zeros(shape, dtype=dtype, device=self.q.device)

    def widened(self, x):
        return widened(x, self.D)

    def constants(self, kernel):
        s = tile(kernel, self.q.dtype, self.D, "extras" if self.extras else "")
        return dict(D=self.D, QUERIES=s.queries, ROWS=s.rows, EXTRAS=self.extras, PRECISION=s.precision,
                    num_warps=s.warps, num_stages=s.stages)  # fmt: skip

    def heads_together(self, kernel):
        return heads_together(kernel, self.q.dtype, self.D, self.extras)

    def tables(self):
        bias = self.options.age_bias
        return self.by_age, self.seen.spans, self.seen.spans if bias is None else bias.float().contiguous()

    def selection(self):
        o = self.options
        stride_q, stride_k = (self.D, self.D) if self.own else (self.H * self.D, self.G * self.D)
        return [stride_q, stride_k, self.select_scale, int(self.own), int(o.mask_self), int(o.relu)]

    def by_ages(self):
        return [self.P, self.A, self.options.bias_age]

    def numbers(self, cap=True):
        """Those of the kernels that attend."""
        o = self.options
        caps = [o.cap * LOG2E] if cap else []
        return [self.seen.packed.shape[1], self.K, self.H, self.G, self.blocks, *self.selection(), int(o.shift),
                *self.by_ages(), self.scale, *caps, math.ceil(o.dropout * (1 << 24)), 1 / (1 - o.dropout)]  # fmt: skip

    def inputs(self):
        """Their tensors up to the offsets."""
        seed = self.seen.count if self.options.seed is None else self.options.seed
        return [self.q, self.k, self.v, self.select_q, self.select_k, self.seen.packed, *self.tables(), seed,
                self.seen.offsets, self.seen.count]  # fmt: skip

    def masking(self):
        """F at the beginning of each block of queries, and F after the call for each row of the table."""
        s, o, N = self.seen, self.options, self.seen.packed.shape[1]
        prefix = torch.empty((self.query_blocks + 1, N), dtype=torch.float32, device=self.q.device)
        masking.selective_sums[(self.blocks, self.query_blocks, self.B)](
            self.select_q, self.select_k, s.packed, *self.tables(), self.kinds, s.offsets, s.count, self.ranges, prefix, N, self.K,
            self.H, self.blocks, *self.selection(), *self.by_ages(), **self.constants("selective_sums"))  # fmt: skip
        after = self.new(self.N)
        given = after
        if o.masking is not None:
            given = o.masking.float().contiguous()
            owned = torch.arange(self.N, device=after.device)
            owned = (owned >= s.offsets[0]) & (owned < s.offsets[-1])
            after = torch.where(owned, given, 0)
        masking.selective_prefix[(max(1, triton.cdiv(s.most, CHUNK)), self.B)](
            s.packed, self.kinds, given, s.offsets, s.count, prefix, after, N, int(o.masking is not None), self.query_blocks,
            ROWS=CHUNK)  # fmt: skip
        return prefix, after


def decodes(q, k, options):
    return q.shape[1] <= FEW_QUERIES and q.shape[2] <= 32 * k.shape[1] and options.dropout == 0


def decode(q, k, v, offsets, start, time, o):
    """selective_attention of a few queries per sample, in one launch."""
    own = o.select_q is not None
    (B, K, H, width), (N, G) = q.shape, k.shape[:2]
    D = max(16, triton.next_power_of_2(max(width, o.select_q.shape[2] if own else 0)))
    heads = few_heads(H, G, single=K == 1)
    settings = tile("selective_decode" + ".1" * (heads == 1), q.dtype, D, "extras")  # the only kind that is compiled
    parts, part_rows = few_parts(offsets, B * K * G, settings.rows)
    wide = lambda x: widened(x.to(q.dtype), D)
    new = lambda *shape, dtype=torch.float32: torch.zeros(shape, dtype=dtype, device=q.device)
    empty = lambda *shape: torch.empty(shape, dtype=torch.float32, device=q.device)
    out, memory, stats = torch.empty_like(wide(q)), empty(B, K), empty(B, K, H)
    received = rows_maker(offsets, N, q.device)()
    arrived, scale = new(B, K, G, dtype=torch.int32), o.scale or 1 / math.sqrt(width)
    masks = o.first is not None and not o.mask_first
    select_scale = 1 / math.sqrt(o.select_q.shape[2]) if own else scale
    P = 0 if o.position is None else o.position.shape[0]
    A = 0 if o.age_bias is None else o.age_bias.shape[1]
    of = lambda x: memory if x is None else x.float().contiguous()
    selects = (o.select_q, o.select_k, D, D) if own else (q, k, H * D, G * D)
    selective_decode[(parts, G, B * K)](
        wide(q), wide(k), wide(v), wide(selects[0]), wide(selects[1]), offsets.to(q.device, non_blocking=True),
        start.contiguous(), time.contiguous(), time if o.until is None else o.until.contiguous(),
        o.first.contiguous().view(torch.uint8) if masks else new(1, dtype=torch.uint8), of(o.masking),
        q if P == 0 else wide(o.position), of(o.age_bias), empty(B, K, G, parts, heads * D + 3 * heads + 1), arrived, out,
        memory, received, stats, K, H, G, part_rows, *selects[2:], select_scale * LOG2E, int(own), int(o.mask_self),
        int(o.relu), int(o.shift), scale * LOG2E, o.cap * LOG2E, min(o.max_age, FOREVER), int(o.until is not None),
        int(masks), int(o.masking is not None), P, A, o.bias_age, D=D, HEADS=heads, ROWS=settings.rows,
        EXTRAS=True, PRECISION=settings.precision, num_warps=settings.warps,
        num_stages=settings.stages)  # fmt: skip
    return out[..., :width], memory, received, stats


def selective_attention(q, k, v, offsets, start, time, **options):
    """out, memory, masking, stats, as selective_attention.h says."""
    if decodes(q, k, Options(**options)):
        return decode(q, k, v, offsets, start, time, Options(**options))
    c = Call(q, k, v, offsets, start, time, Options(**options))
    prefix, after = c.masking()
    out, memory, stats = torch.empty_like(c.q), c.new(c.B, c.K), c.new(c.B, c.K, c.H)
    lists, counts = plan_lists(c.ranges, c.K, c.settings.queries)
    together = c.heads_together("selective_forward")
    forward.selective_forward[(c.query_blocks, triton.cdiv(c.H, together), c.B)](
        *c.inputs(), lists, counts, prefix, out, memory, stats, *c.numbers(), HEADS=together,
        **c.constants("selective_forward"))  # fmt: skip
    return out[..., : c.width], memory, after, stats


def selective_attention_backward(grad_out, grad_memory, out, stats, q, k, v, offsets, start, time, **options):
    """Gradients of q, k, v, select_q, select_k, position, age_bias; None where an input is absent."""
    o = Options(**options)
    c = Call(q, k, v, offsets, start, time, o)
    prefix, _ = c.masking()
    N, lines = c.seen.packed.shape[1], c.B * c.K
    grad_out, out, stats = c.widened(grad_out.to(q.dtype)), c.widened(out), stats.float().contiguous()
    grad_memory = grad_memory.float().contiguous()
    sums = c.new(2, c.B, c.H, c.K)
    backward.selective_dots[(c.query_blocks, c.H, c.B)](out, stats, grad_out, sums, c.K, c.H, D=c.D,
                                                        QUERIES=c.settings.queries)  # fmt: skip
    lists, counts = plan_lists(c.ranges, c.K, c.settings.queries)
    grad_q, grad_k, grad_v = torch.empty_like(c.q), torch.zeros_like(c.k), torch.zeros_like(c.v)
    dby_age, dbias = c.new(lines * c.H, c.P, dtype=q.dtype), c.new(lines * c.H, c.A)
    together = c.heads_together("selective_backward_queries")
    backward.selective_backward_queries[(c.query_blocks, triton.cdiv(c.H, together), c.B)](
        *c.inputs(), lists, counts, prefix, grad_out, sums, grad_q, dby_age, dbias, *c.numbers(cap=False),
        HEADS=together, **c.constants("selective_backward_queries"))  # fmt: skip
    together = c.heads_together("selective_backward_rows")
    backward.selective_backward_rows[(c.blocks, triton.cdiv(c.G, together), c.B)](
        *c.inputs(), c.ranges, prefix, grad_out, sums, grad_k, grad_v, *c.numbers(cap=False), HEADS=together,
        GROUPED=c.extras or c.H != c.G or c.D > 64, **c.constants("selective_backward_rows"))  # fmt: skip

    # What comes from S.
    grad_prefix = torch.empty((c.query_blocks, N), dtype=torch.float32, device=q.device)
    parts = 1 if c.extras else CHOICE_PARTS
    grad_select_q, grad_select_k = c.new(parts, c.B, c.K, c.D), c.new(c.N, c.D)
    first_by_age, first_bias = c.new(lines, c.P, dtype=q.dtype), c.new(lines, c.A)
    backward.selective_choice_rows[(c.blocks, 1, c.B)](
        *c.inputs(), c.ranges, prefix, grad_out, grad_memory, sums, grad_prefix, grad_select_k, *c.numbers(),
        **c.constants("selective_choice_rows"))  # fmt: skip
    backward.selective_choice_queries[(c.query_blocks, parts, c.B)](
        *c.inputs(), lists, counts, prefix, grad_out, grad_memory, sums, grad_prefix, grad_select_q, first_by_age,
        first_bias, *c.numbers(), **c.constants("selective_choice_queries"))  # fmt: skip
    grad_select_q = grad_select_q.sum(0)
    if not c.own:
        grad_q[:, :, 0] += grad_select_q
        grad_k[:, 0] += grad_select_k
        dby_age.view(lines, c.H, c.P)[:, 0] += first_by_age
        dbias.view(lines, c.H, c.A)[:, 0] += first_bias

    position = None
    if o.position is not None:
        scale = c.scale / LOG2E
        grad_q += (dby_age @ c.widened(o.position).to(q.dtype)).view_as(grad_q) * scale
        position = ((dby_age.t() @ c.q.flatten(0, 2))[:, : c.width] * scale).to(o.position.dtype)
    bias = None if o.age_bias is None else dbias.view(lines, c.H, c.A).sum(0).to(o.age_bias.dtype)
    of = lambda x, like: None if like is None else x[..., : c.select_width].to(like.dtype)
    return (*(x[..., : c.width] for x in (grad_q, grad_k, grad_v)), of(grad_select_q, o.select_q),
            of(grad_select_k, o.select_k), position, bias)  # fmt: skip


def selective_prune(q, k, v, offsets, start, time, *, budget, **options):
    """Until when each row is seen, as selective_attention.h says."""
    o = Options(**options)
    o.dropout = 0.0
    c = Call(q, k, v, offsets, start, time, o)
    s, N = c.seen, c.seen.packed.shape[1]
    until = torch.full_like(time, 2**63 - 1) if o.until is None else o.until.clone()
    spared = c.new(max(c.N, 1), dtype=torch.int32) if o.first is None else o.first.int()
    given = s.spans if o.masking is None else o.masking.float().contiguous()
    scores = torch.empty((c.settings.queries, N), dtype=torch.float32, device=q.device)
    sums, ends = c.new(N), torch.full((N,), FAR.value, dtype=torch.int32, device=q.device)
    for a in range(c.query_blocks):
        prune.selective_scores[(c.blocks, 1, c.B)](
            c.select_q, c.select_k, s.packed, *c.tables(), c.kinds, s.offsets, s.count, scores, N, c.K, c.H, a, *c.selection(),
            *c.by_ages(), **c.constants("selective_scores"))  # fmt: skip
        prune.selective_drop[(c.B,)](
            s.packed, spared, given, s.offsets, start.contiguous(), s.count, scores, sums, ends, until, N, c.K, a,
            budget, int(o.masking is not None), QUERIES=c.settings.queries, CHUNK=prune.CHUNK)  # fmt: skip
    return until
