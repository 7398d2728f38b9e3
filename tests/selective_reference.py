"""Selective Attention once more, dense and in float64 PyTorch, to judge the program by: the formulas of Leviathan et al.
2024, section 3 and 4, with whole N x N matrices. Nothing is shared with the C++ code.

Queries n and keys m count from 0; head 0 selects; F[n, m] is how much m is masked for query n.
"""

import math

import torch


def logits(q, k):
    n = q.shape[-2]
    later = torch.ones(n, n, dtype=torch.bool).triu(1)
    return (q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])).masked_fill(later, -math.inf)


def masking(scores, shift=True, mask_first=False, mask_self=False):
    """F [B, N, N] of the logits [B, H, N, N]."""
    s = torch.relu(scores[:, 0])  # relu(-inf) is 0: no query masks what comes later
    if not mask_first:
        s = s * (torch.arange(s.shape[-1]) > 0)
    if not mask_self:
        s = s * (1 - torch.eye(s.shape[-1], dtype=s.dtype))
    sums = s.cumsum(1)
    return sums - s if shift else sums


def attend(q, k, v, held=None, **options):
    scores = logits(q, k)
    masked = scores - masking(scores, **options)[:, None]
    if held is not None:
        masked = masked.masked_fill(~held[:, None], -math.inf)
    return torch.softmax(masked, -1) @ v


def memory_per_token(f, cap):
    """M_i: how many of the tokens up to i are not forgotten yet."""
    past = torch.ones_like(f).tril()
    return ((1 - f.clamp(max=cap) / cap) * past).sum(-1)


def prune(f, budget):
    """Which keys each query may read [B, N, N] if at most `budget` are held, its own included: when there is one too
    many, the most masked goes for good; of equals the oldest, but the first token last."""
    batch, n, _ = f.shape
    held = torch.zeros(batch, n, n, dtype=torch.bool)
    for b in range(batch):
        alive = []
        for i in range(n):
            if len(alive) + 1 > budget:
                alive.remove(max(alive, key=lambda m: (f[b, i, m].item(), m > 0, -m)))
            alive.append(i)
            held[b, i, alive] = True
    return held


def golden_tensors(shape, budgets, loss, cap, seed):
    """What a golden file of this method holds, in float64. `shape`: batch, heads, tokens, features."""
    draw = torch.Generator().manual_seed(seed)
    normal = lambda scale: torch.randn(*shape, generator=draw, dtype=torch.float64) * scale
    q, k, v, weight = normal(1.5), normal(1.5), normal(1.0), normal(1.0)
    for leaf in (q, k, v):
        leaf.requires_grad_()
    f = masking(logits(q, k))
    memory = memory_per_token(f, cap)
    largest = memory.amax(1).mean()
    out = attend(q, k, v)
    ((weight * out).sum() + loss * largest / shape[2]).backward()
    tensors = {"q": q, "k": k, "v": v, "weight": weight, "out": out, "masking": f, "memory_per_token": memory}
    tensors |= {"memory_max": largest.view(1), "grad_q": q.grad, "grad_k": k.grad, "grad_v": v.grad}
    tensors["out_no_shift"] = attend(q, k, v, shift=False)
    tensors["out_mask_bos"] = attend(q, k, v, mask_first=True)
    tensors["out_mask_self"] = attend(q, k, v, mask_self=True)
    for budget in budgets:
        held = prune(f, budget)
        tensors[f"held.{budget}"] = held.long()
        tensors[f"out_budget.{budget}"] = attend(q, k, v, held)
    return {name: tensor.detach().contiguous().clone() for name, tensor in tensors.items()}
