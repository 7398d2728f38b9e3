"""What models remember that were trained without forgetting: rules of which rows stay, for memories that are read in blocks
or token by token. They are the rules of `lapse eval --method` (lapse/forgetting/; docs/equations.md, "Methods that need no training").

A rule is for one layer. Budgets are absolute: rows that a layer holds for a query, the query's own included where tokens
attend themselves. Heads share rows; H2O's key heads each have a budget of their own.
"""

import difflib
import math
from dataclasses import dataclass, field, replace
from numbers import Integral
from typing import Any, Callable, Iterable, Protocol

import torch
from torch import Tensor

from lapse.ops import ramp_until
from lapse.table import NEVER, Table

FOR_EVER = NEVER // 2  # added to a time this does not overflow
GONE = -1e30  # as a logit: weight 0 beside any other row


@dataclass
class Reading:
    """How queries read, whatever the rule (see lapse.ops); and what the operator said beside its output."""

    scale: float | None = None
    position: Tensor | None = None
    min_age: int = 0  # 1: a token does not attend itself
    dropout: float = 0.0
    ramp_sum: Tensor | None = None  # [B], of rules with spans
    memory: Tensor | None = None  # [B, T], of selective attention
    age_bias: Tensor | None = None  # [H, A]

    def options(self) -> dict[str, Any]:
        named: dict[str, Any] = {"scale": self.scale, "position": self.position, "age_bias": self.age_bias}
        if self.dropout > 0:
            named |= {"dropout": self.dropout, "seed": torch.randint(2**62, (1,))}
        return named


class Rows(Protocol):
    """What rules read: a Table, or the rows of a block in training. Columns are [B, rows, ...] by name."""

    def packed(self) -> tuple[dict[str, Tensor], Tensor, Tensor, Tensor]: ...
    def unpacked(self, values: Tensor) -> Tensor: ...
    def write(self, name: str, values: Tensor) -> None: ...


class Method:
    """A rule: until when each row is read, and how."""

    one_by_one = False  # whether what a query reads decides what the next may
    state: tuple[str, ...] = ()  # columns that reading writes; new rows have 0
    state_by_head = False  # whether these are [B, rows, G], of each key head, or [B, rows]
    max_age = NEVER  # the greatest age that is read
    room = NEVER  # rows that the next query may find
    spare = 0  # rows stay so much longer than they are read, where an update may put off their end

    def fresh(self, time: Tensor, heads: int, dtype: torch.dtype) -> dict[str, Tensor]:
        """The columns `state` of new rows at these times [B, T], which have so many key heads."""
        shape = (*time.shape, heads) if self.state_by_head else time.shape
        return {name: torch.zeros(shape, device=time.device, dtype=dtype) for name in self.state}

    def last_age(self, time: Tensor) -> Tensor | int:
        """The greatest age at which rows of these times are read."""
        return self.max_age

    def until(self, time: Tensor, columns: dict[str, Tensor]) -> Tensor:
        """The time of the first query that no longer reads rows of these times, and with these columns."""
        last, most = self.last_age(time), min(self.max_age, FOR_EVER)
        return time + (last.clamp(max=most) + 1 if isinstance(last, Tensor) else min(last, most) + 1)

    def read(self, table: Rows, q: Tensor, start: Tensor, reading: Reading) -> Tensor:
        """q [B, T, H, D] at times start[b], start[b] + 1, ... read the table, which has their own rows already. Returns
        [B, T, H, D]."""
        columns, offsets, time, until = table.packed()
        named = {"until": until, "min_age": reading.min_age, **reading.options()}
        return torch.ops.lapse.ramp_attention(q, columns["key"], columns["value"], offsets, start, time, **named)[0]

    def weightless_from(self, time: Tensor, until: Tensor) -> Tensor:
        """As `until`, but where a row has no weight any more for any head: for memory sizes."""
        return until

    def free(self, table: Table, now: Tensor) -> int:
        """How many queries may be read at once, before reading decides."""
        return NEVER


class Everything(Method):
    """All rows up to the greatest age."""

    def __init__(self, max_age: int = NEVER):
        self.max_age = max_age


class Local(Method):
    """The newest `window` rows."""

    def __init__(self, window: int, min_age: int = 0, max_age: int = NEVER):
        self.max_age = max_age
        self._last = window - 1 + min_age

    def last_age(self, time: Tensor) -> Tensor | int:
        return self._last


class SinkWindow(Local):
    """The first `sinks` rows for ever and the newest `window` (Xiao et al. 2023). `reach` bounds the window alone."""

    def __init__(self, window: int, sinks: int, min_age: int = 0, max_age: int = NEVER, reach: int = NEVER):
        super().__init__(window, min_age, max_age)
        self.sinks, self.reach, self.bound = sinks, reach, min(max_age, FOR_EVER)

    def last_age(self, time: Tensor) -> Tensor:
        sink = (time >= 0) & (time < self.sinks)  # rows that a stream starts from are none
        return torch.where(sink, self.bound, min(self._last, self.reach))


class Strided(Local):
    """The newest `window` rows, and of the older ones those with time = -1 (mod stride) (Child et al. 2019, 4.3)."""

    def __init__(self, window: int, stride: int, min_age: int, max_age: int):
        super().__init__(window, min_age, max_age)
        self.stride = stride

    def last_age(self, time: Tensor) -> Tensor:
        return torch.where(time % self.stride == self.stride - 1, self.max_age, self._last)


class HeadSpans(Method):
    """A span for each head [H], after which its weights fade out over `ramp` timesteps (Adaptive-Span)."""

    def __init__(self, span: Tensor, ramp: float, max_age: int, spare: int = 0):
        self.span, self.ramp, self.max_age, self.spare = span, ramp, max_age, spare

    def longest(self) -> float:
        """z L of the head with most."""
        return float(self.span.detach().max()) - 1

    def weightless_from(self, time: Tensor, until: Tensor) -> Tensor:
        return torch.minimum(until, time + math.ceil(self.longest() + 1 + self.ramp))

    def read(self, table: Rows, q: Tensor, start: Tensor, reading: Reading) -> Tensor:
        columns, offsets, time, until = table.packed()
        named = {"until": until, "min_age": reading.min_age, **reading.options()}
        out, reading.ramp_sum, _, _ = torch.ops.lapse.ramp_attention(
            q, columns["key"], columns["value"], offsets, start, time, head_span=self.span, ramp=self.ramp, **named
        )
        return out


class RowSpans(Method):
    """A span for each row, the column "span", after which it fades out over `ramp` timesteps (Expire-Span). `cut`: what
    queries read ends as if no span were longer; rows stay."""

    def __init__(self, ramp: float, max_age: int = NEVER, cut: float | None = None):
        self.ramp, self.max_age, self.cut = ramp, max_age, cut

    def until(self, time: Tensor, columns: dict[str, Tensor]) -> Tensor:
        return torch.minimum(ramp_until(time, columns["span"], self.ramp), super().until(time, columns))

    def read(self, table: Rows, q: Tensor, start: Tensor, reading: Reading) -> Tensor:
        columns, offsets, time, until = table.packed()
        span = columns["span"]
        if self.cut is not None:
            span = span.clamp(max=self.cut)
            until = torch.minimum(until, ramp_until(time, span, self.ramp))
        named = {"until": until, "min_age": reading.min_age, **reading.options()}
        out, reading.ramp_sum, _, _ = torch.ops.lapse.ramp_attention(
            q, columns["key"], columns["value"], offsets, start, time, row_span=span, ramp=self.ramp, **named
        )
        return out


class Eviction(Method):
    """After each query at most `budget` rows stay for the next one, its own included: the least scores go, of equals the
    oldest; the newest `safe` rows stay. Heads choose together, or with `state_by_head` each key head for itself: then a
    row that it dropped has its logit GONE, and leaves the table when no head holds it any more."""

    one_by_one = True
    state: tuple[str, ...] = ("score",)

    def __init__(self, budget: int, safe: int, min_age: int = 0, max_age: int = NEVER):
        own = 1 if min_age == 0 else 0
        self.max_age = max_age
        self.room = budget - own
        self.newest = min(self.room, safe - own)

    def score(self, before: Tensor, received: Tensor) -> Tensor:
        """Scores from the old ones, both as the column is, and what each head of the newest query gave the rows [B, rows, H]."""
        raise NotImplementedError

    def free(self, table: Table, now: Tensor) -> int:
        held = int(self._held(table, now).sum(1).max()) if table.used else 0
        return max(self.room - held, 0)

    def _held(self, table: Table, now: Tensor) -> Tensor:
        """Which rows each chooser holds: [B, used, choosers]."""
        held = table.held(now)[:, :, None]
        return held & (table.columns["logit"][:, : table.used] == 0) if self.state_by_head else held

    def read(self, table: Table, q: Tensor, start: Tensor, reading: Reading) -> Tensor:  # type: ignore[override]
        columns, offsets, time, until = table.packed()
        named = {"until": until, "min_age": reading.min_age, "received": True, **reading.options()}
        if self.state_by_head:
            named["logit"] = columns["logit"].repeat_interleave(q.shape[2] // columns["key"].shape[1], 1)
        out, _, received, _ = torch.ops.lapse.ramp_attention(
            q, columns["key"], columns["value"], offsets, start, time, **named
        )
        score = self.score(table.unpacked(columns["score"]), table.unpacked(received))
        table.write("score", score)
        self._evict(table, start + q.shape[1], score if self.state_by_head else score[:, :, None])
        return out

    def _evict(self, table: Table, now: Tensor, score: Tensor) -> None:
        """score [B, used, choosers]."""
        held = self._held(table, now)
        excess = held.sum(1, keepdim=True) - self.room  # [B, 1, choosers]
        most = int(excess.max())
        if most <= 0:
            return
        # Rows that are never dropped are the last of the table: they were safe whenever one had to go.
        candidates = table.used - self.newest
        least = score[:, :candidates].masked_fill(~held[:, :candidates], torch.inf)
        if most == 1:
            out = least.argmin(1, keepdim=True)  # the first of equals
        else:
            out = torch.sort(least, dim=1, stable=True).indices[:, :most]
        goes = torch.arange(most, device=now.device)[:, None] < excess
        held.scatter_(1, out, held.gather(1, out) & ~goes)
        if self.state_by_head:
            table.write("logit", torch.where(held, 0.0, GONE).to(table.columns["logit"].dtype))
        until = table.until[:, : table.used]
        table.write("until", torch.where(held.any(2), until, torch.minimum(until, now[:, None])))


class H2O(Eviction):
    """For each key head: half a budget is the newest rows; of the others the one goes that has received least attention since
    it came, summed over queries (and heads that share keys; Zhang et al. 2023)."""

    state = ("score", "logit")
    state_by_head = True

    def __init__(self, budget: int, min_age: int = 0, max_age: int = NEVER):
        super().__init__(budget, max(1, budget // 2), min_age, max_age)

    def score(self, before: Tensor, received: Tensor) -> Tensor:
        return before + received.unflatten(2, (before.shape[2], -1)).sum(3)


class Tova(Eviction):
    """The row goes that the newest query attends least, over the heads together (Oren et al. 2024)."""

    def __init__(self, budget: int, min_age: int = 0, max_age: int = NEVER):
        super().__init__(budget, 1, min_age, max_age)

    def score(self, before: Tensor, received: Tensor) -> Tensor:
        return received.mean(2)


class Selective(Method):
    """Tokens mask others for the tokens after them; before a query reads, the most masked rows beyond the budget go
    (Leviathan et al. 2024, Secs. 3 and 4). Tokens attend themselves; a sequence's first is never masked."""

    state = ("masking",)

    def __init__(self, budget: int = 0, max_age: int = NEVER, cap: float = 1.0, **ablations: bool):
        self.budget, self.max_age = budget, max_age
        self.ablations = {"cap": cap, **ablations}

    def read(self, table: Rows, q: Tensor, start: Tensor, reading: Reading) -> Tensor:
        columns, offsets, time, until = table.packed()
        named = {"masking": columns["masking"], "first": time == 0, **reading.options(), **self.ablations}
        rows = (q, columns["key"], columns["value"], offsets, start, time)
        if self.budget > 0:
            until = torch.ops.lapse.selective_prune(*rows, until=until, **named, budget=self.budget)
            table.write("until", table.unpacked(until))
        out, reading.memory, masking, _ = torch.ops.lapse.selective_attention(*rows, until=until, **named)
        table.write("masking", table.unpacked(masking))
        return out


@dataclass
class Settings:
    """What a rule may be told; `budget` is rows per layer, 0 where the others say it all."""

    layer: int
    layers: int
    budget: int = 0
    min_age: int = 0
    max_age: int = NEVER  # of this layer: a sliding window's, which nothing may exceed
    longest: int = NEVER  # L, how far back the model reads; sinks may lie further back
    options: dict[str, Any] = field(default_factory=dict)
    method: str = "this method"  # as it was named

    @property
    def reach(self) -> int:
        return min(self.max_age, self.longest)

    def take(self, name: str, otherwise: Any = None) -> Any:
        value = self.options.get(name, otherwise)
        if value is None:
            needed = name if name in ("budget", "ramp") else f"budget= or {name}"
            raise ValueError(f"lapse: {self.method} needs {needed}=" + (", at least 1" if name == "budget" else ""))
        return value


def _local(s: Settings) -> Method:
    return Local(s.budget or s.take("window"), s.min_age, s.reach)


def _local_global(s: Settings) -> Method:
    every = s.take("every", 4)
    if s.layers < every:
        raise ValueError(
            f"local_global: the last of every {every} layers is global, and the model has {s.layers}; set every="
        )
    return Everything(s.reach) if s.layer % every == every - 1 else _local(s)


def _sink_window(s: Settings) -> Method:
    sinks = s.take("sinks", 4)
    if 0 < s.budget <= sinks:
        raise ValueError(f"sink_window: budget {s.budget} leaves no row for the window beside {sinks} sinks")
    return SinkWindow(s.budget - sinks if s.budget else s.take("window"), sinks, s.min_age, s.max_age, s.reach)


def _strided(s: Settings) -> Method:
    # Half a budget is the window; the stride is the least that leaves the other half for the rows beyond it.
    span = min(s.options.get("max_span", NEVER), s.reach)
    if not s.budget:
        return Strided(s.take("window"), s.take("stride"), s.min_age, span)
    if s.budget == 1:
        raise ValueError("strided: budget 1; it needs one row for the window and one for the rest")
    if span >= FOR_EVER:
        raise ValueError("strided: a budget needs max_span=, the greatest age that is read")
    rest = s.budget // 2
    window = s.budget - rest
    return Strided(window, max(1, math.ceil((span - (window - 1 + s.min_age)) / rest)), s.min_age, span)


def _evicting(kind: type) -> Callable[[Settings], Method]:
    def make(s: Settings) -> Method:
        budget = s.budget or s.take("budget")
        return kind(budget, s.min_age, s.reach)

    return make


def _selective(s: Settings) -> Method:
    return Selective(s.budget, s.reach)


METHODS: dict[str, Callable[[Settings], Method]] = {
    "full": lambda s: Everything(s.reach),
    "local": _local,
    "local_global": _local_global,
    "strided": _strided,
    "sink_window": _sink_window,
    "h2o": _evicting(H2O),
    "tova": _evicting(Tova),
    "selective_attention": _selective,
    "expire_span": lambda s: RowSpans(s.take("ramp"), s.reach),
}
ALIASES = {"window": "local", "sinks": "sink_window", "selective": "selective_attention"}
OPTIONS: dict[str, set[str]] = {  # that each method takes
    "full": set(),
    "local": {"window"},
    "local_global": {"window", "every"},
    "strided": {"window", "stride", "max_span"},
    "sink_window": {"window", "sinks"},
    "h2o": set(),
    "tova": set(),
    "selective_attention": set(),
    "expire_span": {"ramp"},
}
UNLIMITED = {"full", "expire_span"}  # they take no budget


def did_you_mean(name: str, names: Iterable[str]) -> str:
    near = difflib.get_close_matches(name, names, 1)
    return f" (did you mean {near[0]!r}?)" if near else ""


def unknown_method(name: str) -> ValueError:
    names = [*METHODS, *ALIASES]
    return ValueError(f"no forgetting method {name!r}{did_you_mean(name, names)}; there are: {', '.join(names)}")


def require_options(method: str, options: Iterable[str], known: set[str]) -> None:
    """ValueError for options that a method does not take."""
    unknown = [f"{option!r}{did_you_mean(option, known)}" for option in sorted(set(options) - known)]
    if unknown:
        raise ValueError(f"{method}: no option {', '.join(unknown)}; there are: {', '.join(sorted(known)) or 'none'}")


def make_method(name: str, settings: Settings) -> Method:
    """The rule of one layer. ValueError for unknown names and options, and budgets that leave no row."""
    full = ALIASES.get(name, name)
    maker = METHODS.get(full)
    if maker is None:
        raise unknown_method(name)
    require_options(name, settings.options, OPTIONS[full] | (set() if full in UNLIMITED else {"budget"}))
    for option, value in {"budget": settings.budget, **settings.options}.items():
        least = 0 if option in ("budget", "sinks") else 1
        if option == "ramp":
            if not value > 0:
                raise ValueError(f"{name}: ramp must be positive, got {value}")
        elif not isinstance(value, Integral) or value < least:
            words = "a whole number of at least 0" if option == "sinks" else "a positive whole number"
            raise ValueError(f"{name}: {option} must be {words}, got {value!r}")
    if settings.budget > 0 and full in UNLIMITED:
        raise ValueError(f"{name}: it takes no budget; name a method that does, such as tova")
    both = sorted({"window", "stride"} & set(settings.options)) if settings.budget > 0 else []
    if both:
        raise ValueError(f"{name}: a budget says {' and '.join(both)}; give one or the other")
    return maker(replace(settings, method=name))
