"""What every layer with learned spans shares: the predictor's logit, and the range of its options."""

import torch
from torch import Tensor


def span_logit(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """w x + b of x [..., width], in float32 at least, also under autocast: bfloat16 would round spans to many timesteps."""
    kind = torch.promote_types(weight.dtype, torch.float32)
    with torch.autocast(x.device.type, enabled=False):
        return x.to(kind) @ weight.to(kind) + bias.to(kind)


def check_spans(max_span: int, ramp: float, divisor: float, initial_fraction: float) -> None:
    """ValueError that names what is out of its range."""
    if max_span < 1:
        raise ValueError(f"lapse: max_span must be at least 1, got {max_span}")
    for name, value in (("ramp", ramp), ("divisor", divisor)):
        if not value > 0:
            raise ValueError(f"lapse: {name} must be positive, got {value}")
    if not 0 < initial_fraction < 1:
        raise ValueError(f"lapse: initial_fraction must be between 0 and 1, got {initial_fraction}")
