"""Layers whose memory forgets, in the manner of torch.nn.MultiheadAttention.

    layer = lapse.nn.ExpireSpanAttention(width=128, heads=4, max_span=512, ramp=32, loss=1e-6, positions=64)
    memory = None
    for block in blocks:                    # [B, T, width]: consecutive parts of B streams
        y, memory = layer(block, memory)
        loss = task(y) + layer.cost         # what shortens memory
        loss.backward(); optimiser.step()

With gradients a memory keeps what the layer read: keys, values and spans follow from it with the present weights, and learn
from it. Gradients reach back one block. Without gradients (torch.no_grad) it keeps keys and values, made once, so that
decoding token by token costs a token, and gives the same numbers. Rows that nobody reads any more are deleted, each stream
on its own: `memory.rows()` counts them, `memory.nbytes()` is their storage. Formulas: docs/equations.md.
"""

import math
from typing import Any, Union

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from lapse.memory import Memory, check_streams, wide
from lapse.methods import Everything, HeadSpans, Method, Reading, RowSpans, Selective
from lapse.spans import check_masking, check_spans, span_logit
from lapse.table import DEAD, NEVER, Table


class InputMemory:
    """The memory of training: what the layer read, [B, rows, width], and what its method wrote."""

    def __init__(self, streams: int, device: torch.device):
        self.table = Table()
        self.next = torch.zeros(streams, dtype=torch.long, device=device)

    def rows(self) -> Tensor:
        """How many rows each stream holds: [B] int64."""
        return self.table.held(self.next).sum(1) if self.table.used else torch.zeros_like(self.next)

    def nbytes(self) -> int:
        return self.table.nbytes()

    def select(self, index: Tensor) -> None:
        self.next = self.next.index_select(0, index)
        self.table.select(index)


AnyMemory = Union[InputMemory, Memory]


class _Rows:
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


class ForgettingAttention(nn.Module):
    """Attention to a memory and a block; subclasses say what is forgotten.

    width, heads, head_dim: features of x, heads, features of a head (width // heads).
    positions: ages 1 ... positions have a learned embedding p_a, as in the logit q . (k + p_a) / sqrt(head_dim); 0: none.
    attend_self: whether a token reads its own row, too; the Expire-Span paper's do not.
    norm: applied to what is remembered when it is read, in pre-norm models; then x is not normed before.
    normed_heads: queries and keys pass an RMSNorm over a head's features.
    dropout: on attention weights, in training.

    `cost`, after each call with gradients: a scalar to add to the loss, already weighted; 0 where nothing presses.
    """

    def __init__(
        self,
        width: int,
        heads: int,
        *,
        head_dim: int | None = None,
        positions: int = 0,
        attend_self: bool = False,
        norm: nn.Module | None = None,
        normed_heads: bool = False,
        dropout: float = 0.0,
        scaled: bool = True,
    ):
        super().__init__()
        if min(width, heads, 1 if head_dim is None else head_dim) < 1:
            raise ValueError(f"lapse: width, heads and head_dim must be at least 1, got {width}, {heads} and {head_dim}")
        if head_dim is None and width % heads:
            raise ValueError(f"lapse: width {width} does not divide into {heads} heads; give head_dim=")
        self.width, self.heads = width, heads
        self.head_dim = head_dim or width // heads
        inner = heads * self.head_dim
        self.query, self.key, self.value = (nn.Linear(width, inner, bias=False) for _ in range(3))
        self.out = nn.Linear(inner, width, bias=False)
        self.position = nn.Parameter(torch.randn(positions, self.head_dim)) if positions else None
        self.norm = norm or nn.Identity()
        self.query_norm = nn.RMSNorm(self.head_dim, eps=1e-5) if normed_heads else nn.Identity()
        self.key_norm = nn.RMSNorm(self.head_dim, eps=1e-5) if normed_heads else nn.Identity()
        self.dropout = dropout
        self.min_age = 0 if attend_self else 1
        self.scale = None if scaled else 1.0
        self.initial = 0  # zero vectors, at ages n ... 1, that streams begin with (docs/equations.md, 11)
        self.cost: Tensor = torch.zeros(())

    def __getstate__(self) -> dict[str, Any]:
        """For copies: without the graph of the last call."""
        return {**self.__dict__, "cost": self.cost.detach()}

    @property
    def read_from(self) -> int:
        """The least age that is read."""
        return self.min_age

    # --- what subclasses say ------------------------------------------------------------------------------------------
    def rule(self) -> Method:
        """How rows are read, and until when, with the present parameters."""
        raise NotImplementedError

    def learning_rule(self) -> Method:
        """The same where gradients flow. ValueError if it evicts row by row: what is read must not depend on the order."""
        rule = self.rule()
        if rule.one_by_one:
            raise ValueError("lapse: this method evicts row by row; read within torch.no_grad()")
        return rule

    def describe(self, x: Tensor) -> dict[str, Tensor]:
        """Columns [B, rows, ...] that the rule needs, of what is remembered, normed: x [B, rows, width]."""
        return {}

    def price(self, reading: Reading, steps: int, rows: _Rows) -> Tensor:
        """The cost of a block of `steps`."""
        return torch.zeros((), device=rows.time.device)

    # --- reading ------------------------------------------------------------------------------------------------------
    def begin(self, streams: int) -> AnyMemory:
        """An empty memory: of what is read, where gradients flow; else of keys and values."""
        weight = self.query.weight
        learns = torch.is_grad_enabled()
        memory = InputMemory(streams, weight.device) if learns else Memory(self.rule())
        if self.initial == 0:
            return memory
        time = torch.arange(-self.initial, 0, device=weight.device).expand(streams, -1)
        rows = weight.new_zeros(streams, self.initial, self.width)
        with torch.no_grad():
            h = self.norm(rows)
            columns = {"key": self._keys(h), "value": self._heads(self.value(h)), **self.describe(h)}
            until = self.rule().until(time, columns)
        state = self.rule().fresh(time, self.heads, wide(weight.dtype))
        if isinstance(memory, Memory):
            memory.next = torch.zeros(streams, dtype=torch.long, device=weight.device)
        memory.table.append({**({"hidden": rows} if learns else columns), **state}, time, until)
        return memory

    def forward(
        self, x: Tensor, memory: AnyMemory | None = None, position: Tensor | None = None
    ) -> tuple[Tensor, AnyMemory]:
        """x [B, T, width], the next T steps of B streams. Returns [B, T, width] and the memory, which holds the block too:
        the one given, changed. `position` [P, head_dim] takes the place of the layer's own, where layers share one."""
        memory = self.begin(len(x)) if memory is None else memory
        table = self.position if position is None else position
        dropout = self.dropout if self.training else 0.0
        reading = Reading(self.scale, table, self.min_age, dropout)
        if isinstance(memory, InputMemory):
            out = self._learn(x, memory, reading)
        else:
            if torch.is_grad_enabled() and (x.requires_grad or self.query.weight.requires_grad):
                raise RuntimeError(
                    "lapse: this memory keeps keys and values, without gradients; begin anew (memory=None) to train"
                )
            h = self.norm(x)
            q, k, v = self._queries(h), self._keys(h), self._heads(self.value(h))
            out = memory.read(q, k, v, reading, **self.describe(h))
        return self.out(out.flatten(2)), memory

    def _heads(self, x: Tensor) -> Tensor:
        return x.unflatten(-1, (self.heads, self.head_dim))

    def _queries(self, h: Tensor) -> Tensor:
        return self.query_norm(self._heads(self.query(h)))

    def _keys(self, h: Tensor) -> Tensor:
        return self.key_norm(self._heads(self.key(h)))

    def _learn(self, x: Tensor, memory: InputMemory, reading: Reading) -> Tensor:
        """A block with a memory of inputs: everything that follows from them is made anew."""
        check_streams(len(memory.next), len(x))
        T, table, start, rule = x.shape[1], memory.table, memory.next, self.learning_rule()
        time = start[:, None] + torch.arange(T, device=x.device)
        state = rule.fresh(time, self.heads, wide(x.dtype))
        table.append({"hidden": x.detach(), **state}, time, torch.full_like(time, NEVER))
        used = table.used
        hidden = torch.cat([table.columns["hidden"][:, : used - T], x], 1)
        h = self.norm(hidden)
        columns = {"key": self._keys(h), "value": self._heads(self.value(h)), **self.describe(h)}
        columns |= {name: table.columns[name][:, :used].clone() for name in rule.state}
        with torch.no_grad():
            ends = rule.until(table.time[:, :used], columns)
            until = torch.where(table.until[:, :used] == DEAD, DEAD, ends)
        rows = _Rows(columns, table.time[:, :used].clone(), until)
        out = rule.read(rows, self._queries(h[:, used - T :]), start, reading)
        self.cost = self.price(reading, T, rows) if torch.is_grad_enabled() else torch.zeros(())
        for name, values in rows.written.items():
            if name != "until":
                table.write(name, values)
        memory.next = start + T
        table.write("until", torch.where(until > (memory.next - rule.spare)[:, None], NEVER, DEAD))
        table.release(memory.next, T)
        return out


class FixedSpanAttention(ForgettingAttention):
    """The newest `max_span` steps (Transformer-XL): C_t = {t - L ... t - 1}. Unless told otherwise every age that is read
    has a position embedding."""

    def __init__(self, width: int, heads: int, *, max_span: int, positions: int | None = None, **more):
        if max_span < 1:
            raise ValueError(f"lapse: max_span must be at least 1, got {max_span}")
        super().__init__(width, heads, positions=max_span if positions is None else positions, **more)
        self.max_span = max_span

    def rule(self) -> Method:
        return Everything(self.max_span)


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
        if not 0 <= initial_fraction <= 1 or trim_step < 1:
            raise ValueError(
                f"lapse: initial_fraction must be in 0 ... 1 and trim_step at least 1, got {initial_fraction} and {trim_step}"
            )
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

    def price(self, reading: Reading, steps: int, rows: _Rows) -> Tensor:
        return self.fraction.mean() * (self.loss * self.max_span)


class ExpireSpanAttention(ForgettingAttention):
    """Every row predicts its own span and expires after it (Sukhbaatar et al. 2021): e = L sigmoid((w x + b) / c), Eqs. 3
    and 8; m = clamp(1 + (e - a) / R, 0, 1), Eq. 5; cost, Eq. 7: loss / (R T) times the sum of e - a on the ramp, the mean over
    streams.

    max_span, ramp: L and R in timesteps. divisor: c; divide: "input" divides w x alone, "all" also b. initial_fraction:
    spans begin at p L. random_drop: in training all spans are read as if cut at u L, one u from U(0, 1) per layer and block
    (Sec. 4.2); rows are deleted by their whole spans.
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
        self.loss_at = "ramp"  # where rows cost; lapse.load knows runs with another
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
        dropped = self.training and self.random_drop and torch.is_grad_enabled()
        return RowSpans(self.ramp, cut=torch.rand(()).item() * self.max_span if dropped else None)

    def describe(self, x: Tensor) -> dict[str, Tensor]:
        return {"span": self.spans(x)}

    def price(self, reading: Reading, steps: int, rows: _Rows) -> Tensor:
        assert reading.ramp_sum is not None
        if self.loss_at != "ramp":
            raise ValueError(f'lapse: the cost of expire_span.loss_at = "{self.loss_at}" is not computed here')
        return reading.ramp_sum.mean() * (self.loss / (self.ramp * steps))


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
        if max_span < 1 or budget < 0:
            raise ValueError(f"lapse: max_span must be at least 1 and budget at least 0, got {max_span} and {budget}")
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

    def price(self, reading: Reading, steps: int, rows: _Rows) -> Tensor:
        if self.memory_loss == 0:
            return super().price(reading, steps, rows)
        assert reading.memory is not None
        last = rows.time[:, -1:]
        read = ((rows.time <= last) & (rows.until > last)).sum(1)
        return (reading.memory.amax(1) / read).mean() * (self.memory_loss / self.layers)


class Block(nn.Module):
    """One layer of a transformer around an attention: pre-norm, feed-forward of 4 times the width. For examples and short
    experiments; the command `lapse` trains whole models."""

    def __init__(self, attention: ForgettingAttention):
        super().__init__()
        width = attention.width
        self.attention = attention
        attention.norm = nn.LayerNorm(width)
        self.norm, self.up, self.down = nn.LayerNorm(width), nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor, memory: AnyMemory | None = None) -> tuple[Tensor, AnyMemory]:
        y, memory = self.attention(x, memory)
        x = x + y
        return x + self.down(F.gelu(self.up(self.norm(x)))), memory
