"""What layers that are trained to forget share: the predictor's logit, and the ranges of their options."""

import math
from numbers import Integral

import torch
from torch import Tensor


def span_logit(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """w x + b of x [..., width], in float32 at least, also under autocast: bfloat16 would round spans to many timesteps."""
    kind = torch.promote_types(weight.dtype, torch.float32)
    with torch.autocast(x.device.type, enabled=False):
        return x.to(kind) @ weight.to(kind) + bias.to(kind)


def check_whole(name: str, value: int, least: int) -> None:
    """ValueError unless the option is a whole number, and not less."""
    if not isinstance(value, Integral):
        raise ValueError(f"lapse: {name} must be a whole number, got {value!r}")
    if value < least:
        raise ValueError(f"lapse: {name} must be at least {least}, got {value}")


def check_spans(
    max_span: int, ramp: float, divisor: float = 1.0, initial_fraction: float = 0.5, loss: float = 0.0
) -> None:
    """ValueError that names what is out of its range."""
    check_whole("max_span", max_span, 1)
    if not loss >= 0:
        raise ValueError(f"lapse: loss must be at least 0, got {loss}")
    for name, value in (("ramp", ramp), ("divisor", divisor)):
        if not value > 0:
            raise ValueError(f"lapse: {name} must be positive, got {value}")
        if math.isinf(value):
            raise ValueError(f"lapse: {name} must be finite, got {value}")
    if not 0 < initial_fraction < 1:
        raise ValueError(f"lapse: initial_fraction must be between 0 and 1, got {initial_fraction}")


def check_masking(memory_loss: float, cap: float) -> None:
    """The same of selective attention."""
    if not memory_loss >= 0:
        raise ValueError(f"lapse: memory_loss must be at least 0, got {memory_loss}")
    if not cap > 0:
        raise ValueError(f"lapse: cap must be positive, got {cap}")
