"""Tokens that mask others (Selective Attention)."""

import torch
from torch import Tensor

from lapse.methods import Method, Reading, Selective
from lapse.nn.attention import ForgettingAttention
from lapse.nn.input_memory import InputRows
from lapse.spans import check_masking, check_whole
from lapse.table import NEVER


class SelectiveAttention(ForgettingAttention):
    """Tokens mask others for the tokens after them (Leviathan et al. 2024, Secs. 3 and 4). Head 0 selects; a stream's first
    token is never masked; tokens attend themselves.

    max_span: how many of the newest steps are read. memory_loss: epsilon; cost epsilon / (layers n) max_t M_t, the mean over
    streams, n how many rows the last query reads. cap: tau. budget: rows held by memories that begin within torch.no_grad();
    0: no limit.
    """

    def __init__(
        self,
        width: int,
        heads: int,
        *,
        max_span: int = NEVER,
        memory_loss: float = 0.0,
        cap: float = 1.0,
        budget: int = 0,
        layers: int = 1,
        **more,
    ):
        check_whole("max_span", max_span, 1)
        check_whole("budget", budget, 0)
        check_whole("layers", layers, 1)
        check_masking(memory_loss, cap)
        if not more.setdefault("attend_self", True):
            raise ValueError("lapse: in selective attention tokens attend themselves; leave out attend_self")
        super().__init__(width, heads, **more)
        self.max_span, self.memory_loss, self.cap, self.budget, self.layers = max_span, memory_loss, cap, budget, layers
        self.ablations: dict[str, bool] = {}

    @property
    def read_from(self) -> int:
        return 0  # tokens attend themselves, whatever the rest of the model does

    def rule(self) -> Method:
        return Selective(self.budget, self.max_span - 1, cap=self.cap, **self.ablations)

    def learning_rule(self) -> Method:
        if self.budget > 0 and not self.training and not torch.is_grad_enabled():
            raise ValueError(
                "lapse: this memory was begun with gradients, and so has no budget; begin anew (memory=None) within torch.no_grad()"
            )
        return Selective(0, self.max_span - 1, cap=self.cap, **self.ablations)

    def price(self, reading: Reading, steps: int, rows: InputRows) -> Tensor:
        if self.memory_loss == 0:
            return super().price(reading, steps, rows)
        assert reading.memory is not None
        last = rows.time[:, -1:]
        read = ((rows.time <= last) & (rows.until > last)).sum(1).clamp(min=steps)
        return (reading.memory.amax(1) / read).mean() * (self.memory_loss / self.layers)
