"""Spans that rows predict (Expire-Span)."""

import math

import torch
from torch import Tensor, nn

from lapse.methods import Method, Reading, RowSpans
from lapse.nn.attention import ForgettingAttention
from lapse.nn.input_memory import InputRows
from lapse.spans import check_spans, span_logit


class ExpireSpanAttention(ForgettingAttention):
    """Every row predicts its own span and expires after it (Sukhbaatar et al. 2021): e = L sigmoid((w x + b) / c), Eqs. 3
    and 8; m = clamp(1 + (e - a) / R, 0, 1), Eq. 5; cost, Eq. 7: loss / (R T) times the sum of e - a on the ramp, the mean over
    streams.

    max_span, ramp: L and R in timesteps. divisor: c; divide: "input" divides w x alone, "all" also b. initial_fraction:
    spans begin at p L. random_drop: in training all spans are read as if cut at u L, one u from U(0, 1) per block (Sec. 4.2);
    rows are deleted by their whole spans. A layer draws its own u unless `uniform` is set: the paper's is the same for all
    layers, as `lapse.load` has it. positions (0): the layer does not know the order of what it reads, but for the ramp; the
    paper's have as many as a block has steps. Leave it 0 if the model adds positions to x.
    """

    def __init__(
        self,
        width: int,
        heads: int,
        *,
        max_span: int,
        ramp: float = 32.0,
        loss: float = 1e-6,
        divisor: float = 1.0,
        divide: str = "input",
        initial_fraction: float = 0.1,
        random_drop: bool = False,
        **more,
    ):
        check_spans(max_span, ramp, divisor, initial_fraction, loss)
        super().__init__(width, heads, **more)
        if divide not in ("input", "all"):
            raise ValueError(f'lapse: divide must be "input" or "all", got {divide!r}')
        self.max_span, self.ramp, self.loss = max_span, float(ramp), loss
        self.divisor, self.shift, self.random_drop = divisor, (1 / divisor if divide == "all" else 1.0), random_drop
        self.uniform: float | None = None
        self.loss_at = "ramp"  # when rows cost; "creation": once, when they are made, which the paper tried (Sec. 4.2)
        self.span_weight = nn.Parameter(torch.zeros(width))
        odds = math.log(initial_fraction / (1 - initial_fraction))
        self.span_bias = nn.Parameter(torch.full((1,), odds / self.shift))

    def spans(self, x: Tensor) -> Tensor:
        """e of rows x [..., width], normed, in timesteps: [...]."""
        logit = span_logit(x, self.span_weight / self.divisor, self.span_bias * self.shift)
        return self.max_span * torch.sigmoid(logit)

    def rule(self) -> Method:
        return RowSpans(self.ramp)

    def learning_rule(self) -> Method:
        if not (self.training and self.random_drop and torch.is_grad_enabled()):
            return RowSpans(self.ramp)
        u = torch.rand(()).item() if self.uniform is None else self.uniform
        return RowSpans(self.ramp, cut=u * self.max_span)

    def describe(self, x: Tensor) -> dict[str, Tensor]:
        return {"span": self.spans(x)}

    def price(self, reading: Reading, steps: int, rows: InputRows) -> Tensor:
        if self.loss_at == "creation":  # spans of the block's own rows
            return rows.columns["span"][:, -steps:].sum(1).mean() * (self.loss / steps)
        assert reading.ramp_sum is not None
        return reading.ramp_sum.mean() * (self.loss / (self.ramp * steps))
