"""What bench/gpu.py compares with: the formulas written out, and compiled FlexAttention; and the inputs for all of them."""

import functools
import math
import os
import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]
SMOKE = os.environ.get("LAPSE_GPU_SMOKE") == "1"  # a few numbers by the interpreter: whether bench/gpu.py runs at all
if SMOKE:
    import interpreted  # noqa: F401

import torch  # noqa: E402

DEVICE = "cpu" if SMOKE else "cuda"
RAMP = 64.0


# --- the formulas, written out ---------------------------------------------------------------------------------------
def eager_ramp(q, k, v, start, time, row_span, position=None, until=None):
    """One head dimension, equal row counts: q [B, K, H, D], k and v [B n, H, D]; ages from 1."""
    B, K, H, D = q.shape
    q, k, v = (x.view(B, -1, H, D).transpose(1, 2) for x in (q, k, v))
    now = (start[:, None] + torch.arange(K, device=q.device))[:, :, None]
    age = now - time.view(B, 1, -1)
    m = (1 + (row_span.view(B, 1, -1) - age) / RAMP).clamp(0, 1)
    visible = (age >= 1) & (m > 0 if until is None else now < until.view(B, 1, -1))
    logits = q @ k.transpose(2, 3)
    if position is not None:
        table = torch.nn.functional.pad(position, (0, 0, 1, 1))  # of ages 0 ... P + 1, whose ends stand for all others
        logits = logits + (q @ table.t()).gather(3, age.clamp(0, len(table) - 1)[:, None].expand_as(logits))
    logits = logits / math.sqrt(D)
    a = torch.softmax(logits.masked_fill(~visible[:, None], -math.inf), 3).nan_to_num() * m[:, None]
    a = a / (a.sum(3, keepdim=True) + 1e-8)
    return (a.to(v.dtype) @ v).transpose(1, 2)


def eager_masking(logits, causal):
    """F of head 0's logits [B, N, N]."""
    S = torch.relu(logits).masked_fill(~causal.tril(-1), 0)
    S[:, :, 0] = 0
    return torch.cumsum(S, 1) - S


def eager_selective(q, k, v):
    """N queries before N rows, from a stream's beginning: the output, and F."""
    B, N, H, D = q.shape
    q, k, v = (x.reshape(B, N, H, D).transpose(1, 2) for x in (q, k, v))
    logits = (q @ k.transpose(2, 3)).to(torch.promote_types(q.dtype, torch.float32)) / math.sqrt(D)
    causal = torch.ones(N, N, dtype=torch.bool, device=q.device).tril()
    F = eager_masking(logits[:, 0], causal)
    a = torch.softmax((logits - F[:, None]).masked_fill(~causal, -math.inf), 3)
    return (a.to(v.dtype) @ v).transpose(1, 2), F


# --- inputs ----------------------------------------------------------------------------------------------------------
def ramp_inputs(B, K, rows, H, D, expired, dtype, ragged=False, fading=0.1, seed=0):
    """Rows of a memory and of the block itself. Of those of the memory a share `expired`, at random, is gone for good; of the
    others a share `fading` expires within the block, and the rest after it. And how many pairs of queries and rows have m > 0."""
    draw = torch.Generator(DEVICE).manual_seed(seed)
    counts = [rows if not ragged else max(K, rows - b * rows // B // 2) for b in range(B)]
    N = sum(counts)
    new = lambda *shape: torch.randn(*shape, generator=draw, device=DEVICE, dtype=torch.float32).to(dtype)
    uniform = lambda: torch.rand(N, generator=draw, device=DEVICE)
    start = torch.full((B,), rows, device=DEVICE)
    times = torch.cat([rows + K - torch.arange(n, 0, -1, device=DEVICE) for n in counts])
    age = rows - times
    spans = uniform() * 4 * rows + 2 * K
    gone = (uniform() < expired) & (age > 0)
    spans = torch.where(uniform() < fading, uniform() * K, spans)
    spans = torch.where(gone, -2 * RAMP, age.clamp(min=0) + spans)
    offsets = torch.tensor([0, *counts]).cumsum(0)
    offsets = offsets if SMOKE else offsets.pin_memory()
    args = dict(q=new(B, K, H, D), k=new(N, H, D), v=new(N, H, D), offsets=offsets, start=start, time=times)
    # Of ages age, ..., age + K - 1 those from 1 on and below span + RAMP.
    seen = (torch.minimum((spans + RAMP).ceil().long(), age + K) - age.clamp(min=1)).clamp(min=0)
    return args, spans, int(seen.sum())


def selective_arguments(B, N):
    offsets = torch.arange(B + 1) * N
    time_of = torch.arange(N).repeat(B).to(DEVICE)
    return dict(offsets=offsets if SMOKE else offsets.pin_memory(), start=torch.zeros(B, dtype=torch.long,
                device=DEVICE), time=time_of, first=time_of == 0)  # fmt: skip


# --- what others do --------------------------------------------------------------------------------------------------
def flex(**options):
    """FlexAttention and what makes its masks, compiled; `options` of its kernels."""
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    if SMOKE:
        return flex_attention, create_block_mask
    torch._dynamo.config.recompile_limit = 1000  # each shape of a case is one
    by_triton = functools.partial(flex_attention, kernel_options={"BACKEND": "TRITON", **options})
    return torch.compile(by_triton, dynamic=False), torch.compile(create_block_mask)


def flex_ramp(args, spans, ragged=False):
    """(forward, forward and backward, making the mask) by FlexAttention: m as a penalty log m, masked where m = 0. Ragged
    samples are one sequence, in which a query sees its own sample's rows."""
    attention, block_mask = flex()
    B, K, H, D = args["q"].shape
    N, start, times = len(args["time"]), args["start"], args["time"]
    batch, queries, rows = (1, B * K, N) if ragged else (B, K, N // B)
    sample = torch.repeat_interleave(torch.arange(B), args["offsets"].cpu().diff()).to(DEVICE)
    learns = not SMOKE  # on the CPU it has no backward pass
    heads = lambda x, n: x.view(batch, n, H, D).transpose(1, 2).contiguous().requires_grad_(learns)
    q, k, v = heads(args["q"], queries), heads(args["k"], rows), heads(args["v"], rows)
    span = spans.detach().clone().requires_grad_(learns)
    ends = spans.detach()  # a mask takes no buffer that has gradients

    def place(b, i, j):
        """Sample and age of a query and a row, and the row's number."""
        s, t, row = (i // K, i % K, j) if ragged else (b, i, b * rows + j)
        return s, start[s] + t - times[row], row

    def seen(b, h, i, j):
        s, age, row = place(b, i, j)
        visible = (age >= 1) & (ends[row] - age > -RAMP)
        return visible & (sample[row] == s) if ragged else visible

    def faded(score, b, h, i, j):
        _, age, row = place(b, i, j)
        return score + torch.log(torch.clamp(1 + (span[row] - age) / RAMP, 1e-8, 1.0))

    make = lambda: block_mask(seen, batch, None, queries, rows, device=DEVICE)
    mask = make()
    grad = torch.randn_like(q)
    forward = lambda: torch.no_grad()(attention)(q, k, v, score_mod=faded, block_mask=mask)

    def both():
        return torch.autograd.grad(attention(q, k, v, score_mod=faded, block_mask=mask), (q, k, v, span), grad)

    return lambda: forward().transpose(1, 2).reshape(B, K, H, D), both, make
