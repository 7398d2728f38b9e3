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
def eager_ramp(q, k, v, start, time, row_span):
    """One head dimension, equal row counts: q [B, K, H, D], k and v [B n, H, D]; ages from 1."""
    B, K, H, D = q.shape
    k, v = (x.view(B, -1, H, D).transpose(1, 2) for x in (k, v))
    age = (start[:, None] + torch.arange(K, device=q.device))[:, :, None] - time.view(B, 1, -1)
    m = (1 + (row_span.view(B, 1, -1) - age) / RAMP).clamp(0, 1)
    visible = (age >= 1) & (m > 0)
    logits = (q.transpose(1, 2) @ k.transpose(2, 3)) / math.sqrt(D)
    a = torch.softmax(logits.masked_fill(~visible[:, None], -math.inf), 3).nan_to_num() * m[:, None]
    a = a / (a.sum(3, keepdim=True) + 1e-8)
    return (a.to(v.dtype) @ v).transpose(1, 2)


def eager_masking(logits, causal):
    """F of head 0's logits [B, N, N]."""
    S = torch.relu(logits).masked_fill(~causal.tril(-1), 0)
    S[:, :, 0] = 0
    return torch.cumsum(S, 1) - S


def eager_selective(q, k, v):
    """N queries before N rows, from a stream's beginning."""
    B, N, H, D = q.shape
    q, k, v = (x.reshape(B, N, H, D).transpose(1, 2) for x in (q, k, v))
    logits = (q @ k.transpose(2, 3)).float() / math.sqrt(D)
    causal = torch.ones(N, N, dtype=torch.bool, device=q.device).tril()
    F = eager_masking(logits[:, 0], causal)
    a = torch.softmax((logits - F[:, None]).masked_fill(~causal, -math.inf), 3)
    return (a.to(v.dtype) @ v).transpose(1, 2), F


# --- inputs ----------------------------------------------------------------------------------------------------------
def ramp_inputs(B, K, rows, H, D, expired, dtype, ragged=False, seed=0):
    """Rows of a memory and of the block itself, the oldest `expired` of them at random gone for good; the rest fade out
    somewhere within or after the block."""
    draw = torch.Generator().manual_seed(seed)
    counts = [rows if not ragged else max(K, rows - b * rows // B // 2) for b in range(B)]
    N = sum(counts)
    new = lambda *shape: torch.randn(*shape, generator=draw).to(dtype).to(DEVICE)
    start = torch.full((B,), rows)
    times = torch.cat([rows + K - torch.arange(n, 0, -1) for n in counts])
    age = rows - times
    spans = torch.rand(N, generator=draw) * 4 * rows + 2 * K
    gone = (torch.rand(N, generator=draw) < expired) & (age > 0)
    spans = torch.where(gone, torch.full((N,), -2 * RAMP), age.clamp(min=0) + spans)
    offsets = torch.tensor([0, *counts]).cumsum(0)
    offsets = offsets if SMOKE else offsets.pin_memory()
    args = dict(q=new(B, K, H, D), k=new(N, H, D), v=new(N, H, D), offsets=offsets, start=start.to(DEVICE),
                time=times.to(DEVICE))  # fmt: skip
    pairs = sum(int((((times[o : o + n, None] < rows + torch.arange(K)) & (~gone)[o : o + n, None]).sum()))
                for o, n in zip(offsets.tolist(), counts))  # fmt: skip
    return args, spans.to(DEVICE), pairs


def selective_arguments(B, N):
    offsets = torch.arange(B + 1) * N
    time_of = torch.arange(N).repeat(B).to(DEVICE)
    return dict(offsets=offsets if SMOKE else offsets.pin_memory(), start=torch.zeros(B, dtype=torch.long,
                device=DEVICE), time=time_of, first=time_of == 0)  # fmt: skip


# --- what others do --------------------------------------------------------------------------------------------------
@functools.cache
def flex():
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    by_triton = functools.partial(flex_attention, kernel_options={"BACKEND": "TRITON"})
    return torch.compile(by_triton, dynamic=False), torch.compile(create_block_mask)


def flex_ramp(args, spans):
    """(forward, forward and backward, making the mask) by FlexAttention: m as a penalty log m, masked where m = 0."""
    attention, block_mask = flex()
    B, K, H, D = args["q"].shape
    rows = args["k"].shape[0] // B
    q = args["q"].transpose(1, 2).contiguous().requires_grad_()
    k, v = (args[n].view(B, rows, H, D).transpose(1, 2).contiguous().requires_grad_() for n in "kv")
    span = spans.view(B, rows).contiguous().requires_grad_()
    ends = span.detach()  # a mask takes no buffer that has gradients
    start, times = args["start"], args["time"].view(B, rows)

    def seen(b, h, i, j):
        age = start[b] + i - times[b, j]
        return (age >= 1) & (ends[b, j] - age > -RAMP)

    def faded(score, b, h, i, j):
        age = start[b] + i - times[b, j]
        return score + torch.log(torch.clamp(1 + (span[b, j] - age) / RAMP, 1e-8, 1.0))

    make = lambda: block_mask(seen, B, None, K, rows, device=DEVICE)
    mask = make()
    forward = lambda: attention(q, k, v, score_mod=faded, block_mask=mask)
    grad = torch.randn_like(q)

    def both():
        out = forward()
        return torch.autograd.grad(out, (q, k, v, span), grad)

    return lambda: torch.no_grad()(forward)(), both, make
