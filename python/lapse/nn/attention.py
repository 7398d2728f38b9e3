"""Attention to a memory: what every method shares."""

from typing import Any

import torch
from torch import Tensor, nn

from lapse.memory import Memory, check_dtypes, check_streams, wide
from lapse.methods import Method, Reading
from lapse.nn.input_memory import AnyMemory, InputMemory, InputRows
from lapse.spans import check_whole
from lapse.table import DEAD, NEVER


class ForgettingAttention(nn.Module):
    """Attention to a memory and a block; subclasses say what is forgotten.

    width, heads, head_dim: features of x, heads, features of a head (width // heads).
    positions: ages 1 ... positions have a learned embedding p_a, as in the logit q . (k + p_a) / sqrt(head_dim); 0: none.
    attend_self: whether a token reads its own row, too; the Expire-Span paper's do not.
    norm: applied to what is remembered when it is read, in pre-norm models; then x is not normed before.
    normed_heads: queries and keys pass an RMSNorm over a head's features.
    dropout: on attention weights, in training.

    `cost`, after each call with gradients: a scalar to add to the loss, already weighted; Expire-Span's is
    by default at most 0 (r is below 0 on the ramp). 0 where no row is on the ramp, or the method has no loss of its own, and
    after a call without gradients; where that was in training, as within a reentrant checkpoint, asking for it with gradients
    is a RuntimeError.
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
        check_whole("positions", positions, 0)
        if not 0 <= dropout < 1:
            raise ValueError(f"lapse: dropout must be at least 0 and below 1, got {dropout}")
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
        self._cost: Tensor = torch.zeros(())
        self._blind = False  # whether the last call in training kept no gradients

    def __getstate__(self) -> dict[str, Any]:
        """For copies: without the graph of the last call."""
        return {**self.__dict__, "_cost": self._cost.detach()}

    @property
    def cost(self) -> Tensor:
        if self._blind and torch.is_grad_enabled():
            raise RuntimeError(
                "lapse: the layer's last call kept no gradients, so its cost teaches nothing; give torch.utils.checkpoint "
                "use_reentrant=False"
            )
        return self._cost

    @property
    def read_from(self) -> int:
        """The least age that is read."""
        return self.min_age

    @property
    def kind(self) -> type:
        """Of the rule: a layer reads memories that were begun with one of the same kind."""
        return type(self.rule())

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

    def price(self, reading: Reading, steps: int, rows: InputRows) -> Tensor:
        """The cost of a block of `steps`."""
        return torch.zeros((), device=rows.time.device)

    # --- reading ------------------------------------------------------------------------------------------------------
    def begin(self, streams: int) -> AnyMemory:
        """An empty memory: of what is read, where gradients flow; else of keys and values."""
        weight = self.query.weight
        learns = torch.is_grad_enabled()
        memory = InputMemory(streams, weight.device, self.kind) if learns else Memory(self.rule())
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
        self,
        x: Tensor,
        memory: AnyMemory | None = None,
        position: Tensor | None = None,
        age_bias: Tensor | None = None,
    ) -> tuple[Tensor, AnyMemory]:
        """x [B, T, width], the next T steps of B streams. Returns [B, T, width] and the memory, which holds the block too:
        the one given, changed. `position` [P, head_dim] takes the place of the layer's own, where layers share one; `age_bias`
        [heads, A] is added to the logits of ages 0 ... A - 1, its last column to those of older rows too."""
        if x.dim() != 3 or x.shape[1] == 0 or x.shape[2] != self.width:
            raise ValueError(f"lapse: x must be [B, T, {self.width}], T at least 1, got {list(x.shape)}")
        memory = self.begin(len(x)) if memory is None else memory
        if memory.kind not in (None, self.kind):
            raise ValueError(f"lapse: this memory was begun with {memory.kind.__name__}, and this layer has {self.kind.__name__}")
        self._cost = torch.zeros((), device=x.device)
        self._blind = self.training and not torch.is_grad_enabled()
        table = self.position if position is None else position
        dropout = self.dropout if self.training else 0.0
        reading = Reading(self.scale, table, self.min_age, dropout, age_bias=age_bias)
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
        """A block with a memory of inputs: everything that follows from them is made anew. A call that fails leaves the memory
        as it was."""
        check_streams(len(memory.next), len(x))
        check_dtypes(memory.table.columns, {"hidden": x})
        rule = self.learning_rule()
        start, saved = memory.next, memory.table.saved(("until", *rule.state))
        try:
            return self._learn_by(rule, x, memory, reading)
        except BaseException:
            memory.next = start
            memory.table.put_back(saved)
            raise

    def _learn_by(self, rule: Method, x: Tensor, memory: InputMemory, reading: Reading) -> Tensor:
        T, table, start = x.shape[1], memory.table, memory.next
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
        rows = InputRows(columns, table.time[:, :used].clone(), until)
        out = rule.read(rows, self._queries(h[:, used - T :]), start, reading)
        if torch.is_grad_enabled():
            self._cost = self.price(reading, T, rows)
        for name, values in rows.written.items():
            if name != "until":
                table.write(name, values)
        memory.next = start + T
        table.write("until", torch.where(until > (memory.next - rule.spare)[:, None], NEVER, DEAD))
        table.release(memory.next, T)
        return out
