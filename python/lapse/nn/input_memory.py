"""The memory of training, and its rows as a rule reads them."""

from typing import Union

import torch
from torch import Tensor

from lapse.memory import Memory
from lapse.table import Table


class InputMemory:
    """The memory of training: what the layer read, [B, rows, width], and what its method wrote."""

    def __init__(self, streams: int, device: torch.device, kind: type | None = None):
        self.kind = kind  # of the rule that it was begun with; None: not known
        self.table = Table()
        self.next = torch.zeros(streams, dtype=torch.long, device=device)

    def rows(self) -> Tensor:
        """How many rows each stream holds: [B] int64."""
        return self.table.held(self.next).sum(1) if self.table.used else torch.zeros_like(self.next)

    def nbytes(self) -> int:
        return self.table.nbytes()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.rows().tolist()} rows, {self.nbytes()} bytes)"

    def select(self, index: Tensor) -> None:
        self.next = self.next.index_select(0, index)
        self.table.select(index)


AnyMemory = Union[InputMemory, Memory]


class InputRows:
    """The rows of a block in training as a rule reads them: with gradients."""

    def __init__(self, columns: dict[str, Tensor], time: Tensor, until: Tensor):
        self.columns, self.time, self.until = columns, time, until
        self.written: dict[str, Tensor] = {}

    def packed(self) -> tuple[dict[str, Tensor], Tensor, Tensor, Tensor]:
        B, rows = self.time.shape
        columns = {name: x.flatten(0, 1) for name, x in self.columns.items()}
        return columns, torch.arange(B + 1) * rows, self.time.flatten(), self.until.flatten()

    def unpacked(self, values: Tensor) -> Tensor:
        return values.unflatten(0, tuple(self.time.shape))

    def write(self, name: str, values: Tensor) -> None:
        self.written[name] = values
