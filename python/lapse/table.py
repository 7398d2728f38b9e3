"""The memory of one layer: a table with one row per remembered timestep; forgetting deletes rows.

As in the C++ library (docs/architecture.md), the table knows no method. Here sample b's rows lie at [b, 0 : used], by
ascending time, in buffers with some room for new rows. A row that nobody reads any more (`until` has come) is dead: it
is skipped, and its storage is given back when room is needed or when many rows died at once.
"""

import torch
from torch import Tensor

NEVER = 2**63 - 1
DEAD = -(2**63)  # as `until`: no query reads the row
LEAST_ROOM = 16


def _room(rows: int) -> int:
    """Spare rows beside so many: an eighth, so that a row is copied 8 times in its life, and buffers stay near their rows."""
    return min(max(rows // 8, LEAST_ROOM), 1024)


class Table:
    """Columns [B, capacity, ...] by name; `time` and `until` int64 [B, capacity]."""

    def __init__(self) -> None:
        self.columns: dict[str, Tensor] = {}
        self.time = torch.zeros((0, 0), dtype=torch.long)
        self.until = torch.zeros((0, 0), dtype=torch.long)
        self.used = 0
        self.keeps_dead = False  # while what was forgotten may have to come back

    @property
    def samples(self) -> int:
        return self.time.shape[0]

    @property
    def capacity(self) -> int:
        return self.time.shape[1]

    def nbytes(self) -> int:
        """Bytes of storage, spare rows included."""
        return sum(x.untyped_storage().nbytes() for x in (self.time, self.until, *self.columns.values()))

    def saved(self, written: tuple[str, ...]) -> tuple[dict[str, Tensor], Tensor, Tensor, int]:
        """The table as it is, for `put_back`; of what `written` names, and then of `until`, reading changes rows too."""
        columns = {name: x.clone() if name in written else x for name, x in self.columns.items()}
        return columns, self.time, self.until.clone() if written else self.until, self.used

    def put_back(self, saved: tuple[dict[str, Tensor], Tensor, Tensor, int]) -> None:
        self.columns, self.time, until, self.used = saved
        self.until = until.clone()
        self.until[:, self.used :] = DEAD

    def held(self, now: Tensor) -> Tensor:
        """Rows that a query at time now[b] or later can still read: bool [B, used]."""
        return self.until[:, : self.used] > now[:, None]

    def append(self, columns: dict[str, Tensor], time: Tensor, until: Tensor) -> None:
        """Adds rows: columns [B, T, ...], time and until [B, T]. What is dead at time[b, 0] may be given back."""
        T = time.shape[1]
        if not self.columns:
            self._allocate(columns, time.shape[0], T + _room(T))
        elif self.used + T > self.capacity or (self.time.is_inference() and not torch.is_inference_mode_enabled()):
            self.compact(time[:, 0], T)  # tensors of inference mode cannot be written to outside it
        new = slice(self.used, self.used + T)
        for name, values in columns.items():
            self.columns[name][:, new] = values
        self.time[:, new] = time
        self.until[:, new] = until
        self.used += T

    def compact(self, now: Tensor, extra: int = 0) -> None:
        """Deletes the rows that are dead at time now[b]; leaves room for `extra` rows and some more. Samples that hold
        fewer rows than the one with most keep as many dead ones."""
        if self.keeps_dead:
            index = torch.arange(self.used, device=now.device).expand(self.samples, -1)
        else:
            held = self.held(now)
            most = int(held.sum(1).max()) if held.numel() else 0
            # those held last, in their order
            index = torch.sort(held.to(torch.uint8), dim=1, stable=True).indices[:, self.used - most :]
        rows = index.shape[1]
        sample = torch.arange(self.samples, device=now.device)[:, None]
        columns = {name: values[sample, index] for name, values in self.columns.items()}
        time, until = self.time[sample, index], self.until[sample, index]
        self._allocate(columns, self.samples, rows + extra + _room(rows + extra))
        for name, values in columns.items():
            self.columns[name][:, :rows] = values
        self.time[:, :rows], self.until[:, :rows] = time, until
        self.used = rows

    def release(self, now: Tensor, read: int) -> None:
        """After a block of `read` queries: gives storage back where much of it is of dead rows."""
        if read > LEAST_ROOM and not self.keeps_dead:
            self.compact(now)

    def make_writable(self) -> None:
        """Outside inference mode its tensors cannot be written to."""
        if not self.time.is_inference() or torch.is_inference_mode_enabled():
            return
        self.columns = {name: values.clone() for name, values in self.columns.items()}
        self.time, self.until = self.time.clone(), self.until.clone()

    def drop_newest(self, rows: int) -> None:
        self.used -= rows
        self.until[:, self.used :] = DEAD

    def select(self, index: Tensor) -> None:
        """Samples index[0], index[1], ... of these (a sample may come several times, or not at all)."""
        self.columns = {name: values.index_select(0, index) for name, values in self.columns.items()}
        if self.columns:
            self.time, self.until = self.time.index_select(0, index), self.until.index_select(0, index)

    def packed(self) -> tuple[dict[str, Tensor], Tensor, Tensor, Tensor]:
        """What the operators take: columns [N, ...], offsets [B + 1], time [N], until [N]."""
        B, C = self.time.shape
        if B == 1:
            columns = {name: values[0, : self.used] for name, values in self.columns.items()}
            return columns, torch.tensor([0, self.used]), self.time[0, : self.used], self.until[0, : self.used]
        columns = {name: values.flatten(0, 1) for name, values in self.columns.items()}
        return columns, torch.arange(B + 1) * C, self.time.flatten(), self.until.flatten()

    def unpacked(self, values: Tensor) -> Tensor:
        """A new column's values [N, ...], as `packed` has rows, as [B, used, ...]."""
        if self.samples == 1:
            return values[None]
        return values.unflatten(0, (self.samples, self.capacity))[:, : self.used]

    def write(self, name: str, values: Tensor) -> None:
        """New values [B, used, ...] of a column, or of "until"."""
        (self.until if name == "until" else self.columns[name])[:, : self.used] = values

    def _allocate(self, like: dict[str, Tensor], samples: int, rows: int) -> None:
        """Empty buffers for columns as `like` has them: [., ., ...]."""
        self.columns = {name: x.new_zeros((samples, rows, *x.shape[2:])) for name, x in like.items()}
        device = next(iter(like.values())).device
        self.time = torch.zeros((samples, rows), dtype=torch.long, device=device)
        self.until = torch.full((samples, rows), DEAD, dtype=torch.long, device=device)
