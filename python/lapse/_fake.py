"""Shapes of the operators' outputs for torch.compile on a GPU. PyTorch does not take the library's own there, because `offsets`
are on the CPU and all else is on the GPU. Sizes are read by `shape`, which may be symbols: len() makes them numbers, and
each would be compiled anew."""

import inspect

import torch
from torch import Tensor

WIDE = {torch.float16: torch.float32, torch.bfloat16: torch.float32}  # what sums are kept in


def like(x: Tensor | None, q: Tensor) -> Tensor:
    return q.new_empty(0) if x is None else torch.empty_like(x, memory_format=torch.contiguous_format)


def ramp_attention(q, k, v, offsets, start, time, *rest, received=False, **named):
    wide = {"dtype": WIDE.get(q.dtype, q.dtype)}
    got = (k.shape[0], q.shape[2]) if (rest[13] if len(rest) > 13 else received) else (0,)
    return like(q, q), q.new_empty(q.shape[0], **wide), q.new_empty(got, **wide), q.new_empty((*q.shape[:3], 2), **wide)


def ramp_attention_backward(
    grad_out, grad_ramp_sum, out, stats, q, k, v, offsets, start, time,
    row_span=None, head_span=None, position=None, logit=None, seed=None, ramp=1.0, min_age=1, max_age=0, dropout=0.0,
    until=None, age_bias=None, *rest, **named,
):  # fmt: skip
    return tuple(like(x, q) for x in (q, k, v, row_span, head_span, position, logit, age_bias))


def selective_attention(q, k, v, *rest, **named):
    wide = {"dtype": WIDE.get(q.dtype, q.dtype)}
    return like(q, q), q.new_empty(q.shape[:2], **wide), q.new_empty(k.shape[0], **wide), q.new_empty(q.shape[:3], **wide)


def selective_attention_backward(
    grad_out, grad_memory, out, stats, q, k, v, offsets, start, time, masking=None, until=None, select_q=None, select_k=None,
    position=None, seed=None, max_age=0, dropout=0.0, cap=1.0, shift=True, mask_first=False, mask_self=False, relu=True,
    first=None, age_bias=None, *rest, **named,
):  # fmt: skip
    return tuple(like(x, q) for x in (q, k, v, select_q, select_k, position, age_bias))


def selective_prune(q, k, v, offsets, start, time, *rest, **named):
    return like(time, time)


def register() -> None:
    """In place of the library's own. Not before torch 2.8 or so, whose register_fake has no allow_override; there
    torch.compile on a GPU refuses the operators, and all else works."""
    if "allow_override" not in inspect.signature(torch.library.register_fake).parameters:
        return
    for shapes in (
        ramp_attention,
        ramp_attention_backward,
        selective_attention,
        selective_attention_backward,
        selective_prune,
    ):
        torch.library.register_fake(f"lapse::{shapes.__name__}", shapes, allow_override=True)
