"""One layer's memory of keys and values, and the rule that forgets: what caches and trained models read through."""

import torch
from torch import Tensor

from lapse.methods import Method, Reading
from lapse.spans import check_whole
from lapse.table import DEAD, Table

RECORDED = 128  # tokens that `crop` can take back; assisted generation takes back some 20 at most


class Memory:
    """Streams [B] that are read block by block, or token by token, with the same numbers.

    Padding on the left of a stream is no token: it is not read, and times begin after it.
    """

    def __init__(self, method: Method):
        self.method = method
        self.table = Table()
        self.next = torch.zeros(0, dtype=torch.long)  # [B]: the time of each stream's next token; nothing read: []
        self.seen = 0  # tokens of each stream so far, padding included
        self._padded = False  # whether any stream began with padding
        self._log: list[dict[str, Tensor]] | None = None  # states after each token, while recording
        self._recorded = 0  # tokens since then
        self._most = 0  # so many recorded tokens may be taken back; where there are more the record begins anew

    @property
    def kind(self) -> type:
        """Of the rule that it was begun with."""
        return type(self.method)

    # --- reading -----------------------------------------------------------------------------------------------------
    def read(
        self, q: Tensor, k: Tensor, v: Tensor, reading: Reading, valid: Tensor | None = None, **described: Tensor
    ) -> Tensor:
        """q [B, T, H, D] of the next T tokens, with their rows k, v [B, T, G, D] and what else the method needs of each
        row [B, T, ...]; valid [B, T] bool: false is padding. Returns [B, T, H, D]; 0 for padding. A call that fails leaves the
        memory as it was."""
        columns = {"key": k, "value": v, **described}
        check_dtypes(self.table.columns, columns)
        before = self.next, self.seen, self._padded, self._recorded
        log, table = None if self._log is None else list(self._log), self.table.saved(self.method.state)
        try:
            return self._read_all(q, columns, reading, valid)
        except BaseException:
            self.next, self.seen, self._padded, self._recorded = before
            self.table.put_back(table)
            self._log = log
            raise

    def _read_all(self, q: Tensor, columns: dict[str, Tensor], reading: Reading, valid: Tensor | None) -> Tensor:
        B, T = q.shape[:2]
        if len(self.next) == 0:
            self.next = torch.zeros(B, dtype=torch.long, device=q.device)
        check_streams(len(self.next), B)
        start = self.next - self._padding(valid)
        at, parts = 0, []
        while at < T:
            # Within a block only where enough of it follows: its last tokens can be taken back together.
            if self.recording and self._recorded >= self._most and (at == 0 or T - at >= self._most):
                self._record_anew(start + at)
            step = self._step(start + at, T - at)
            part = slice(at, at + step)
            own = columns if step == T else {name: x[:, part] for name, x in columns.items()}
            parts.append(self._read(q[:, part], own, start + at, reading))
            at += step
        self.next = start + T
        self.seen += T
        self.table.release(self.next, T)
        return parts[0] if len(parts) == 1 else torch.cat(parts, 1)

    def _padding(self, valid: Tensor | None) -> Tensor | int:
        if valid is None:
            return 0
        self._padded = True
        if bool((valid[:, 1:] < valid[:, :-1]).any()) or bool(((self.next > 0) & ~valid[:, 0]).any()):
            raise ValueError("lapse: padding must be on the left of each sequence (tokenizer.padding_side = 'left')")
        return (~valid).sum(1)

    def _step(self, now: Tensor, left: int) -> int:
        """How many tokens to read at once."""
        if self._log is not None and self.method.state:
            return 1
        if not self.method.one_by_one or left == 1:
            return left
        return max(1, min(left, self.method.free(self.table, now)))

    def _read(self, q: Tensor, columns: dict[str, Tensor], start: Tensor, reading: Reading) -> Tensor:
        time = start[:, None] + torch.arange(q.shape[1], device=q.device)
        until = self.method.until(time, columns)
        if self._padded:
            until = torch.where(time < 0, DEAD, until)
        state = self.method.fresh(time, columns["key"].shape[2], wide(q.dtype))
        self.table.append({**columns, **state}, time, until)
        out = self.method.read(self.table, q, start, reading)
        if self._log is not None:
            self._log.append(self._state())
            self._recorded += q.shape[1]
        return out

    # --- what is held ------------------------------------------------------------------------------------------------
    def rows(self) -> Tensor:
        """How many rows of each stream the next query can read, beside its own: [B] int64. Selective attention with a budget
        holds one more, until its newest token has chosen."""
        return self._readable().sum(1)

    def times(self) -> list[list[int]]:
        """The times of these rows, stream by stream: 0 is a stream's first token."""
        if not self.table.columns:
            return [[] for _ in self.next]
        return [t[r].tolist() for t, r in zip(self.table.time[:, : self.table.used], self._readable())]

    def _readable(self) -> Tensor:
        """Which rows have a weight for the next query: bool [B, used]."""
        if not self.table.columns:
            return torch.zeros((len(self.next), 0), dtype=torch.bool, device=self.next.device)
        time, until = (x[:, : self.table.used] for x in (self.table.time, self.table.until))
        return self.method.weightless_from(time, until) > self.next[:, None]

    def nbytes(self) -> int:
        """Bytes of storage, of what is recorded too."""
        return self.table.nbytes() + sum(x.nbytes for entry in self._log or () for x in entry.values())

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.rows().tolist()} rows, {self.nbytes()} bytes)"

    def select(self, index: Tensor) -> None:
        """Streams index[0], index[1], ... of these, for beams."""
        if len(self.next) == 0:
            return
        self.next = self.next.index_select(0, index)
        self.table.select(index)
        if self._log is not None:
            self._log = [{name: x.index_select(0, index) for name, x in entry.items()} for entry in self._log]

    # --- going back --------------------------------------------------------------------------------------------------
    @property
    def recording(self) -> bool:
        return self._log is not None

    def record(self, most: int = RECORDED) -> None:
        """From now on `crop` can take back what is read: of the newest block its last `most` tokens, and what was read since
        the last `crop` as long as that is no more. Nothing of it is given back until then."""
        check_whole("tokens", most, 1)
        self._most = most
        if not self.recording:
            self._begin_record()

    def _begin_record(self) -> None:
        self.table.keeps_dead = True
        self._log, self._recorded = [self._state()], 0

    def end_record(self) -> None:
        """Gives back what was recorded."""
        self.table.keeps_dead, self._log, self._recorded = False, None, 0
        if self.table.used:
            self.table.compact(self.next)

    def _record_anew(self, now: Tensor) -> None:
        self.table.keeps_dead = False
        if self.table.used:
            self.table.compact(now)
        self._begin_record()

    def crop(self, tokens: int) -> None:
        """Takes the newest `tokens` tokens back, as if they had never been read. RuntimeError where what they made the
        memory forget is gone: `record` first."""
        if tokens > 0:
            self.check_crop(tokens)
            self._take_back(tokens)
        if self.recording:
            self._record_anew(self.next)
        elif self.table.used and tokens > 0:
            self.table.compact(self.next)

    def check_crop(self, tokens: int) -> None:
        """The errors of `crop`, before anything is changed."""
        if tokens == 0:
            return
        if len(self.next) == 0 or bool((self.next < tokens).any()):
            raise RuntimeError(f"lapse: the memory has not read {tokens} tokens that it could take back")
        if self._log is not None and tokens <= self._recorded:
            return
        few = f"lapse: {tokens} tokens were not recorded, only {self._recorded} since the last crop, or since there were {self._most}"
        why = _GONE if self._log is None else few
        if self.method.state or self.table.columns.keys() - {"key", "value"}:
            raise RuntimeError(why)
        until, earlier = self.method.until(self._all_times(), {}), self.next - tokens
        if bool(((until > earlier[:, None]) & (until <= self.next[:, None])).any()):
            raise RuntimeError(why)

    def _take_back(self, tokens: int) -> None:
        self.table.make_writable()
        self.table.drop_newest(tokens)
        self.next, self.seen = self.next - tokens, self.seen - tokens
        if self._log is not None and self.method.state:
            for name, values in self._log[-1 - tokens].items():
                target = self.table.until if name == "until" else self.table.columns[name]
                target[:, : values.shape[1]] = values

    def _all_times(self) -> Tensor:
        last = int(self.next.max())
        times = torch.arange(last, device=self.next.device).expand(len(self.next), -1)
        return torch.where(times < self.next[:, None], times, last)

    def _state(self) -> dict[str, Tensor]:
        """What reading wrote to rows that were there before."""
        if not self.method.state or not self.table.columns:
            return {}
        used = self.table.used
        kept = {name: self.table.columns[name][:, :used].clone() for name in self.method.state}
        return {**kept, "until": self.table.until[:, :used].clone()}


def check_streams(streams: int, given: int) -> None:
    """ValueError before anything is written: one stream would be broadcast into all."""
    if given != streams:
        raise ValueError(f"lapse: this memory is of {streams} streams, and a block of {given} was given")


def check_dtypes(held: dict[str, Tensor], given: dict[str, Tensor]) -> None:
    """ValueError before anything is written: rows would be rounded to what is held."""
    for name, x in given.items():
        if name in held and held[name].dtype != x.dtype:
            raise ValueError(f"lapse: this memory holds {held[name].dtype}, and the block is {x.dtype} ({name})")


_GONE = "lapse: what these tokens made the memory forget is gone; call activate_past_recording() before reading what may be cropped"


def wide(dtype: torch.dtype) -> torch.dtype:
    """The type of what methods add up: the operators'."""
    return torch.float64 if dtype == torch.float64 else torch.float32
