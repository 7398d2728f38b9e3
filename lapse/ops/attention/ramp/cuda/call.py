"""ramp_attention and its backward pass by the Triton kernels, for tensors on a GPU, or on the CPU where Triton
interprets. What the C++ library does with the compiled kernels, this does from Python: the tests check the second, and
that the first launches the same."""

import dataclasses
import math

import torch
import triton

from lapse.ops.attention.cuda import rows
from lapse.ops.attention.cuda.plan import FEW_QUERIES, FOREVER, few_heads, few_parts, plan_lists, plan_ranges, plan_rows, rows_maker, widened
from lapse.ops.attention.cuda.tiles import tile
from lapse.ops.attention.ramp.cuda.backward import ramp_backward_queries, ramp_backward_rows
from lapse.ops.attention.ramp.cuda.decode import ramp_decode
from lapse.ops.attention.ramp.cuda.forward import ramp_forward
from lapse.ops.attention.ramp.cuda.received import ramp_received

EPSILON = 1e-8  # of the renormalisation


@dataclasses.dataclass
class Options:
    """RampOptions and CoreOptions of the library."""

    row_span: torch.Tensor = None
    head_span: torch.Tensor = None
    position: torch.Tensor = None
    logit: torch.Tensor = None
    seed: torch.Tensor = None
    ramp: float = 1.0
    min_age: int = 1
    max_age: int = FOREVER
    dropout: float = 0.0
    until: torch.Tensor = None
    age_bias: torch.Tensor = None
    bias_age: int = 0
    scale: float = None
    received: bool = False


class Call:
    """What forward and backward share: contiguous inputs of a width that the kernels have, the plan, the arguments."""

    def __init__(self, q, k, v, offsets, start, time, options):
        o = self.options = options
        self.width = q.shape[3]
        self.D = max(16, triton.next_power_of_2(self.width))
        self.q, self.k, self.v = (self.widened(x) for x in (q, k, v))
        self.B, self.K, self.H = q.shape[:3]
        self.N, self.G = k.shape[:2]
        self.scale = (o.scale or 1 / math.sqrt(self.width)) * math.log2(math.e)
        self.spans = o.row_span is not None or o.head_span is not None
        self.kind = "dropout" if o.dropout > 0 else "" if o.position is None else "positions"
        if o.logit is not None or o.age_bias is not None:
            self.kind = "extras"
        self.seen = plan_rows(offsets, start, time, o.until, self.K, o.row_span, o.head_span, o.ramp, o.min_age, o.max_age,
                              by_age=o.position is not None or o.age_bias is not None)  # fmt: skip
        self.P = 0 if o.position is None else o.position.shape[0]
        self.A = 0 if o.age_bias is None else o.age_bias.shape[1]
        self.by_age = self.q
        if self.P > 0:
            self.by_age = self.q.flatten(0, 2) @ self.widened(o.position).to(q.dtype).t()

    def widened(self, x):
        return widened(x, self.D)

    def narrowed(self, x):
        return x[..., : self.width]

    def meta(self, kernel, kinds=True):
        """Constants of a launch. Kernels of a kind know spans; where a call has none, one infinity stands for them."""
        settings = tile(kernel, self.q.dtype, self.D, self.kind)
        constants = dict(D=self.D, QUERIES=settings.queries, ROWS=settings.rows, PRECISION=settings.precision)
        if kinds:
            kind = self.kind
            constants |= dict(SPAN=self.spans or kind != "", POSITION=kind in ("positions", "dropout"),
                              DROPOUT=kind == "dropout", EXTRAS=kind == "extras")  # fmt: skip
        return settings, constants | dict(num_warps=settings.warps, num_stages=settings.stages)

    def tables(self):
        o = self.options
        of = lambda x: self.seen.spans if x is None else x.float().contiguous()
        return self.by_age, of(o.logit), of(o.age_bias)

    def seed(self):
        return self.seen.count if self.options.seed is None else self.options.seed

    def numbers(self, blocks, dropout=True):
        o = self.options
        numbers = [self.seen.packed.shape[1], self.K, self.H, self.G, blocks, self.scale, float(o.ramp),
                   EPSILON if self.spans else 0.0, self.seen.span_row, self.seen.span_head, self.P,
                   int(o.logit is not None), self.A, o.bias_age]  # fmt: skip
        if not dropout:
            return numbers
        return [*numbers, math.ceil(o.dropout * (1 << 24)), 1 / (1 - o.dropout)]


def decodes(q, k, options):
    return q.shape[1] <= FEW_QUERIES and q.shape[2] <= 32 * k.shape[1] and options.dropout == 0 and not options.received


def decode(q, k, v, offsets, start, time, o):
    """ramp_attention of a few queries per sample, in one launch."""
    D = max(16, triton.next_power_of_2(q.shape[3]))
    wide = lambda x: widened(x, D)
    new = lambda *shape, dtype=torch.float32: torch.empty(shape, dtype=dtype, device=q.device)
    (B, K, H, width), (N, G) = q.shape, k.shape[:2]
    heads = few_heads(H, G)
    settings = tile("ramp_decode" + ".1" * (heads == 1), q.dtype, D, "extras")  # the only kind that is compiled
    parts, part_rows = few_parts(offsets, B * K * G, settings.rows)
    given = o.head_span if o.row_span is None else o.row_span
    spans = torch.full((1,), math.inf, device=q.device) if given is None else given.float().contiguous()
    of = lambda x: spans if x is None else x.float().contiguous()
    out, ramp_sums, stats = torch.empty_like(wide(q)), new(B, K), new(B, K, H, 2)
    arrived = torch.zeros((B, K, G), dtype=torch.int32, device=q.device)
    P = 0 if o.position is None else o.position.shape[0]
    A = 0 if o.age_bias is None else o.age_bias.shape[1]
    ramp_decode[(parts, G, B * K)](
        wide(q), wide(k), wide(v), offsets.to(q.device, non_blocking=True), start.contiguous(), time.contiguous(),
        time if o.until is None else o.until.contiguous(), spans, q if P == 0 else wide(o.position.to(q.dtype)),
        of(o.logit), of(o.age_bias), new(B, K, G, parts, heads * D + 3 * heads + 1), arrived, out, ramp_sums, stats, K,
        H, G, part_rows, (o.scale or 1 / math.sqrt(width)) * math.log2(math.e), float(o.ramp),
        0.0 if given is None else EPSILON,
        max(o.min_age, -FOREVER), min(o.max_age, FOREVER), int(o.until is not None), int(o.row_span is not None),
        int(o.row_span is not None), int(o.head_span is not None), P, int(o.logit is not None), A, o.bias_age, D=D,
        HEADS=heads, ROWS=settings.rows, EXTRAS=True, PRECISION=settings.precision, num_warps=settings.warps,
        num_stages=settings.stages)  # fmt: skip
    return out[..., :width], ramp_sums[:, 0] if K == 1 else ramp_sums.sum(1), new(0), stats


def ramp_attention(q, k, v, offsets, start, time, **options):
    """out, ramp_sum, received, stats, as ramp_attention.h says."""
    if decodes(q, k, Options(**options)):
        return decode(q, k, v, offsets, start, time, Options(**options))
    c = Call(q, k, v, offsets, start, time, Options(**options))
    s = c.seen
    out = torch.empty_like(c.q)
    stats = torch.empty((c.B, c.K, c.H, 2), dtype=torch.float32, device=q.device)
    settings, constants = c.meta("ramp_forward")
    ranges = plan_ranges(s, settings.rows)
    lists, counts = plan_lists(ranges, c.K, settings.queries)
    blocks = ranges.shape[1]
    ramp_forward[(lists.shape[1], c.H, c.B)](c.q, c.k, c.v, s.packed, s.spans, *c.tables(), c.seed(), s.offsets,
                                             s.count, lists, counts, out, stats, *c.numbers(blocks),
                                             **constants)  # fmt: skip
    received = torch.zeros((c.N, c.H) if c.options.received else 0, dtype=torch.float32, device=q.device)
    if c.options.received:
        settings, constants = c.meta("ramp_received", kinds=False)
        ranges = plan_ranges(s, settings.rows)
        blocks = ranges.shape[1]
        ramp_received[(blocks, c.H, c.B)](c.q, c.k, s.packed, s.spans, *c.tables(), s.offsets, s.count, ranges, stats,
                                          received, *c.numbers(blocks, dropout=False), **constants)  # fmt: skip
    return c.narrowed(out), s.ramp_sum, received, stats


def ramp_attention_backward(grad_out, grad_ramp_sum, out, stats, q, k, v, offsets, start, time, grad_lse=None,
**options):
    """Gradients of q, k, v, row_span, head_span, position, logit, age_bias; None where an input is absent."""
    o = Options(**options)
    c = Call(q, k, v, offsets, start, time, o)
    s = c.seen
    new = lambda *shape, dtype=torch.float32: torch.zeros(shape, dtype=dtype, device=q.device)
    of_rows = rows_maker(offsets, c.N, q.device)
    grad_out, out, stats = c.widened(grad_out.to(q.dtype)), c.widened(out), stats.contiguous()
    grad_q, grad_k, grad_v = torch.empty_like(c.q), of_rows(c.G, c.D, dtype=q.dtype), of_rows(c.G, c.D, dtype=q.dtype)
    sums = torch.empty((2, c.B, c.H, c.K), dtype=torch.float32, device=q.device)
    lse = sums if grad_lse is None else grad_lse.float().contiguous()
    dby_age, dbias = new(c.B * c.K * c.H, c.P, dtype=q.dtype), new(c.B * c.K * c.H, c.A)

    settings, constants = c.meta("ramp_backward_queries")
    ranges = plan_ranges(s, settings.rows)
    lists, counts = plan_lists(ranges, c.K, settings.queries)
    ramp_backward_queries[(lists.shape[1], c.H, c.B)](
        c.q, c.k, c.v, s.packed, s.spans, *c.tables(), c.seed(), s.offsets, s.count, lists, counts, out, stats,
        grad_out, lse, grad_q, sums, dby_age, dbias, *c.numbers(ranges.shape[1]), int(grad_lse is not None),
        **constants)  # fmt: skip

    settings, constants = c.meta("ramp_backward_rows")
    ranges = plan_ranges(s, settings.rows)
    blocks = ranges.shape[1]
    grad_span = of_rows(c.H if c.spans or c.kind else 0)
    grad_logit = of_rows(c.H if o.logit is not None else 0)
    ramp_backward_rows[(blocks, c.G, c.B)](
        c.q, c.k, c.v, s.packed, s.spans, *c.tables(), c.seed(), s.offsets, s.count, ranges, grad_out,
        grad_ramp_sum.float().contiguous(), sums, grad_k, grad_v, grad_span, grad_logit, *c.numbers(blocks),
        **constants)  # fmt: skip

    position = None
    if c.P > 0:
        scale = c.scale / math.log2(math.e)
        table = c.widened(o.position).to(q.dtype)
        grad_q += (dby_age @ table).view_as(grad_q) * scale
        position = (c.narrowed(dby_age.t() @ c.q.flatten(0, 2)) * scale).to(o.position.dtype)
    elif o.position is not None:
        position = torch.zeros_like(o.position)
    bias = None if o.age_bias is None else dbias.view(-1, c.H, c.A).sum(0).to(o.age_bias.dtype)
    row_span = None if o.row_span is None else grad_span.sum(1).to(o.row_span.dtype)
    head_span = None if o.head_span is None else grad_span.sum(0).to(o.head_span.dtype)
    logit = None if o.logit is None else grad_logit.to(o.logit.dtype)
    return (c.narrowed(grad_q), c.narrowed(grad_k), c.narrowed(grad_v), row_span, head_span, position, logit, bias)


def ramp_until(time, span, ramp):
    until = torch.empty(time.shape, dtype=torch.int64, device=time.device)
    grid = (triton.cdiv(time.numel(), rows.CHUNK),)
    rows.rows_until[grid](time.contiguous(), span.float().contiguous(), until, time.numel(), ramp, CHUNK=rows.CHUNK)
    return until
