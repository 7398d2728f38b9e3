"""Spans that heads learn."""

import math

import torch
from torch import Tensor, nn

from lapse.methods import HeadSpans, Method, Reading
from lapse.nn.attention import ForgettingAttention
from lapse.nn.input_memory import InputRows
from lapse.spans import check_spans, check_whole


class AdaptiveSpanAttention(ForgettingAttention):
    """Every head learns how far back it reads (Sukhbaatar et al. 2019): m = clamp((z L - a + 1) / R + 1, 0, 1) of a learned
    z [heads] in [0, 1]; cost loss L mean(z). Rows stay as long as the longest head needs them, in steps of `trim_step`."""

    def __init__(
        self,
        width: int,
        heads: int,
        *,
        max_span: int,
        ramp: float = 32.0,
        loss: float = 1e-6,
        initial_fraction: float = 0.0,
        trim_step: int = 64,
        per_layer: bool = False,
        positions: int | None = None,
        **more,
    ):
        check_spans(max_span, ramp, loss=loss)
        check_whole("trim_step", trim_step, 1)
        if not 0 <= initial_fraction <= 1:
            raise ValueError(f"lapse: initial_fraction must be in 0 ... 1, got {initial_fraction}")
        super().__init__(width, heads, positions=max_span if positions is None else positions, **more)
        self.max_span, self.ramp, self.loss, self.trim_step = max_span, ramp, loss, trim_step
        self.fraction = nn.Parameter(torch.full((1 if per_layer else heads,), float(initial_fraction)))

    def spans(self) -> Tensor:
        """z L of each head: [heads], in timesteps."""
        return self.fraction.expand(self.heads) * self.max_span

    def rule(self) -> Method:
        with torch.no_grad():
            self.fraction.clamp_(0, 1)  # as after each update
            needed = math.ceil(self.spans().max().item() + self.ramp)
        trim = min(max(self.max_span - needed, 0), self.max_span - 1)
        read = self.max_span - trim // self.trim_step * self.trim_step
        return HeadSpans(self.spans() + 1, self.ramp, read, min(self.max_span - read, self.trim_step))

    def price(self, reading: Reading, steps: int, rows: InputRows) -> Tensor:
        return self.fraction.mean() * (self.loss * self.max_span)
