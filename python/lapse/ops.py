"""The fused operators with keyword arguments and defaults. All work under torch.compile; gradients flow into all floating
inputs but `masking`.

Rows come in one of two forms:

* dense: q [B, T, H, D], k and v [B, N, G, D]. The queries are those of the last T rows unless `start` says otherwise, so
  that N > T is memory and a block. Rows have the times 0 ... N - 1 unless `time` says otherwise.
* packed, with `cu_seqlens`: q [S, H, D] and k, v [N, G, D], sample b's at cu_seqlens[b] ... cu_seqlens[b + 1] - 1;
  `cu_seqlens_k` where a sample has more rows than queries. `max_seqlen`, at least the queries of the longest sample, saves
  a look at the device. What cu_seqlens and max_seqlen must be is checked; of what is on a GPU alone, and under
  torch.compile, by an assertion there.

G divides H: head h of the queries reads head h // (H // G) of the rows. Times, ages and spans are in timesteps; the age
of a row is a = (time of the query) - (time of the row). Times of rows that are seen ascend strictly within a sample:
with two of one time gradients of `position` are wrong,
with it those of q, and on a GPU those of `age_bias`. Under torch.autocast q, k and v are cast as torch's own
attention casts them, and nothing else. torch.func's transforms (vmap, grad, jacrev) are not supported.
"""

from typing import NamedTuple

import torch
from torch import Tensor

import lapse._library  # noqa: F401  registers torch.ops.lapse

NEVER = 2**63 - 1  # as a time or an age: no limit
_WHOSE = "the newest rows are the queries' own; give start"


class RampOutput(NamedTuple):
    """What `ramp_attention` gives."""

    out: Tensor  # as q
    ramp_sum: Tensor  # [B]: sum of r = span - a over queries and rows with 0 < m < 1 (Eq. 7 without alpha / (R K))
    received: Tensor  # dense [B, N, H], packed [N, H]: attention that each row got; empty unless asked for. No gradient
    lse: Tensor  # [B, T, H] or [S, H]: log-sum-exp of the visible logits. A gradient without spans alone


class SelectiveOutput(NamedTuple):
    """What `selective_attention` gives."""

    out: Tensor  # as q
    memory: Tensor  # [B, T] or [S]: M_t, how many tokens are not forgotten (Sec. 4)
    masking: Tensor  # [B, N] or [N]: F of each row for the first query after these. No gradient
    lse: Tensor  # [B, T, H] or [S, H]: log-sum-exp of the masked logits. No gradient


class _Call:
    """A call's rows and queries as the operator takes them: packed rows, and equally many queries of each sample."""

    def __init__(self, op, q, k, v, cu_seqlens, cu_seqlens_k, max_seqlen, start, time, until):
        self.op, self.packed = op, cu_seqlens is not None
        if not self.packed:
            if q.dim() != 4 or k.dim() != 4 or v.dim() != 4 or q.shape[0] != k.shape[0]:
                raise ValueError(
                    f"{op}: q must be [B, T, H, D] and k, v [B, N, G, D], or packed with cu_seqlens; got {tuple(q.shape)}, "
                    f"{tuple(k.shape)} and {tuple(v.shape)}"
                )
            if cu_seqlens_k is not None or max_seqlen is not None:
                raise ValueError(f"{op}: cu_seqlens_k and max_seqlen go with cu_seqlens")
            self.samples, self.rows_each = k.shape[0], k.shape[1]
            self.offsets = torch.arange(self.samples + 1) * self.rows_each
        elif q.dim() != 3 or k.dim() != 3 or v.dim() != 3:
            raise ValueError(
                f"{op}: with cu_seqlens q must be [S, H, D] and k, v [N, G, D]; got {tuple(q.shape)}, {tuple(k.shape)} and "
                f"{tuple(v.shape)}"
            )
        for name, x in (("start", start), ("time", time), ("until", until)):
            _require_tensor(op, name, x)
        if self.packed:
            q = self._pack(op, q, k, cu_seqlens, cu_seqlens_k, max_seqlen, newest=start is None)
        self.shape = (k.shape[0],) if self.packed else (self.samples, self.rows_each)
        q, k, v = autocast(q, self.rows(k, "k", (k.shape[-2], q.shape[-1])), self.rows(v, "v", k.shape[-2:]))
        B, T, N = q.shape[0], q.shape[1], k.shape[0]
        if start is not None and (start.dtype != torch.int64 or start.shape != (B,)):
            raise ValueError(f"{op}: start must be int64 [{B}], got {start.dtype} {list(start.shape)}")
        if time is None:
            if self.packed:
                time = torch.arange(N, device=q.device) - self.offsets.to(q.device)[self.sample]
            else:
                time = torch.arange(self.rows_each, device=q.device).repeat(B)
        else:
            time = self.rows(time, "time", (), torch.int64)
        if start is None:
            start = self._start(time, T)
        until = self.rows(until, "until", (), torch.int64)
        if self.packed:  # the queries that pad short samples see nothing, and count nowhere
            self.end = (start + self.lengths)[self.sample]
            until = self.end if until is None else torch.minimum(until, self.end)
        self.arguments = (q, k, v, self.offsets, start, time)
        self.bounds = until

    def _start(self, time, T):
        """So that the last query of each sample has the time of its last row; without rows the query after it has time 0."""
        if not self.packed:
            if 0 < self.rows_each < T:
                raise ValueError(f"{self.op}: {T} queries and {self.rows_each} rows: {_WHOSE}")
            return time.unflatten(0, self.shape)[:, -1] - (T - 1) if time.shape[0] else time.new_full((self.samples,), -T)
        if time.shape[0] == 0:
            return -self.lengths
        return torch.where(self.empty, 0, time[self.last] + 1) - self.lengths

    def _pack(self, op, q, k, cu_seqlens, cu_seqlens_k, max_seqlen, newest):
        """newest: whether the queries are those of each sample's last rows."""
        cu_q = cu_k = _offsets(op, "cu_seqlens", cu_seqlens)
        if cu_seqlens_k is not None:
            cu_k = _offsets(op, "cu_seqlens_k", cu_seqlens_k)
        if cu_q.shape != cu_k.shape:
            raise ValueError(f"{op}: cu_seqlens is of {len(cu_q) - 1} samples, cu_seqlens_k of {len(cu_k) - 1}")
        self.samples = cu_q.shape[0] - 1
        self.offsets = cu_k.cpu()  # the operator wants them there
        # There they are checked too. The queries' own offsets are copied only where the longest sample must be known. A
        # trace knows no numbers: its assertions look where the caller's tensor is.
        seen_k = cu_k if torch.compiler.is_compiling() else self.offsets
        seen_q = seen_k if cu_seqlens_k is None else cu_q.cpu() if max_seqlen is None else cu_q
        _require_ascent(op, "cu_seqlens", seen_q, q.shape[0])
        if cu_seqlens_k is not None or k.shape[0] != q.shape[0]:
            _require_ascent(op, "cu_seqlens_k", seen_k, k.shape[0])
        if newest and cu_seqlens_k is not None:
            rows, queries = seen_k[1:] - seen_k[:-1], (seen_q[1:] - seen_q[:-1]).to(seen_k.device)
            few = f"{op}: a sample has more queries than rows: {_WHOSE}"
            _require(((rows == 0) | (rows >= queries)).all(), few, lambda: few)
        self.lengths = (cu_q[1:] - cu_q[:-1]).to(q.device)
        longest = _longest(op, max_seqlen, seen_q[1:] - seen_q[:-1]) if q.shape[0] > 0 else 0
        self.last = (cu_k[1:] - 1).clamp(min=0).to(q.device)  # rows
        self.empty = (cu_k[1:] == cu_k[:-1]).to(q.device)
        steps = torch.arange(longest, device=q.device)
        self.real = steps < self.lengths[:, None]
        at = cu_q[:-1].to(q.device)[:, None] + steps
        self.sample = _sample_of(cu_k, torch.arange(k.shape[0], device=k.device))
        own = torch.arange(q.shape[0], device=q.device)
        owner = _sample_of(cu_q, own)
        self.place = owner * longest + own - cu_q.to(q.device)[owner]
        self.gather = torch.where(self.real, at, 0)
        return q[self.gather]

    def ends(self, until, span, ramp):
        """`until` of rows with spans: the operator takes it in place of m > 0, so that packed samples' ends join m > 0."""
        if not self.packed or until is not None or span is None:
            return self.bounds
        return torch.minimum(self.bounds, ramp_until(self.arguments[5], span, ramp))

    def rows(self, x, name, rest=None, dtype=None):
        """A column of the rows, packed: [B, N, *rest] or [N, *rest]; None: whatever the operator takes."""
        _require_tensor(self.op, name, x)
        if x is None:
            return x
        there = len(self.shape)
        if x.shape[:there] != self.shape or (rest is not None and x.shape[there:] != tuple(rest)):
            sizes = ", ".join(map(str, [*self.shape, *(["..."] if rest is None else rest)]))
            raise ValueError(f"{self.op}: {name} must be [{sizes}], got {list(x.shape)}")
        if dtype is not None and x.dtype != dtype:
            raise ValueError(f"{self.op}: {name} must be {dtype}, got {x.dtype}")
        return x if self.packed else x.flatten(0, 1)

    def per_query(self, x, name):
        """[B, T, ...] of the padded queries, padded still."""
        if x is None or not self.packed:
            return x
        if x.shape[0] != self.place.shape[0]:
            raise ValueError(f"{self.op}: {name} must be [{self.place.shape[0]}, ...], got {list(x.shape)}")
        return x[self.gather]

    def of_rows(self, x):
        return x if self.packed else x.unflatten(0, (self.samples, self.rows_each))

    def of_queries(self, x):
        return x.flatten(0, 1)[self.place] if self.packed else x


def _offsets(op, name, given):
    """Where samples begin: int64."""
    if not isinstance(given, Tensor) or given.dim() != 1 or given.is_floating_point() or len(given) < 1:
        raise ValueError(f"{op}: {name} must be a tensor [B + 1] of whole numbers")
    return given.long()


def _sample_of(cu, places):
    """Of which sample each place is. cu whole, from its 0 on: in the part after it torch.compile's search on a GPU fails."""
    return (torch.searchsorted(cu.to(places.device), places, right=True) - 1).clamp(0, cu.shape[0] - 2)


def _require_tensor(op, name, x):
    if x is not None and not isinstance(x, Tensor):
        raise ValueError(f"{op}: {name} must be a tensor, got {x!r}")


def _require(sound, message, seen):
    """ValueError with what seen() says unless the tensor `sound` is true. Of what is on a GPU, where a look would wait, or traced,
    an assertion there, with `message`."""
    if sound.is_cuda or torch.compiler.is_compiling():
        torch._assert_async(sound, message)
    elif not sound:
        raise ValueError(seen())


def _require_ascent(op, name, cu, rows):
    """Offsets into so many rows."""
    sound = (cu[0] == 0) & (cu[-1] == rows) & (cu[1:] >= cu[:-1]).all()
    seen = lambda: f"{op}: {name} must ascend from 0 to the {rows} rows, got {cu.tolist()}"
    _require(sound, f"{op}: {name} must ascend from 0 to the number of rows", seen)


def _longest(op, given, lengths):
    """How many queries the longest sample has; or max_seqlen, which saves a look at the device: for lengths that are there,
    and under torch.compile, an assertion checks it."""
    if given is None:
        return int(lengths.max())
    if not isinstance(given, (int, torch.SymInt)):
        raise ValueError(f"{op}: max_seqlen must be a whole number, got {given!r}")
    seen = lambda: f"{op}: max_seqlen is {given}, but a sample has {int(lengths.max())} queries"
    _require((lengths <= given).all(), f"{op}: a sample has more queries than max_seqlen", seen)
    return given


def autocast(*tensors):
    """In the type of the autocast that they are within, if any, but for float64 and whole numbers, which it leaves alone.
    For meta tensors there is none."""
    device = tensors[0].device.type
    if device == "meta" or not torch.is_autocast_enabled(device):
        return tensors
    kind = torch.get_autocast_dtype(device)
    return tuple(x.to(kind) if x.is_floating_point() and x.dtype != torch.float64 else x for x in tensors)


def _seed(dropout, seed, like):
    return torch.randint(2**62, (1,), device=like.device) if dropout > 0 and seed is None else seed


def ramp_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    cu_seqlens: Tensor | None = None,
    cu_seqlens_k: Tensor | None = None,
    max_seqlen: int | None = None,
    start: Tensor | None = None,
    time: Tensor | None = None,
    until: Tensor | None = None,
    row_span: Tensor | None = None,
    head_span: Tensor | None = None,
    ramp: float = 1.0,
    position: Tensor | None = None,
    logit: Tensor | None = None,
    age_bias: Tensor | None = None,
    bias_age: int = 0,
    scale: float | None = None,
    min_age: int = 1,
    max_age: int = NEVER,
    dropout: float = 0.0,
    seed: Tensor | None = None,
    received: bool = False,
) -> RampOutput:
    """Softmax attention over rows that fade out on a ramp (Expire-Span, Eqs. 2, 4, 5; docs/equations.md, 2 to 8):

        logit_ti = scale (q_t . k_i + q_t . position[a - 1]) + logit_i + age_bias[clamp(a - bias_age, 0, A - 1)]
        m_ti = clamp(1 + (span - a) / ramp, 0, 1), or 1 without spans;  a = softmax of the visible logits
        out_t = sum_i m a v_i / (sum_i m a + 1e-8), 0 where nothing is visible

    A row is visible if min_age <= a <= max_age and t < until, or, with `row_span` and without `until`, m > 0. Columns of rows
    are [B, N], packed [N]: `time` and `until` int64, `row_span` in timesteps, `logit` [..., H]. `start` [B] int64 is the time
    of each sample's first query, by default such that its last query has the time of its last row; `head_span` [H],
    `position` [P, D] for ages 1 ... P, `age_bias` [H, A]. `scale` is 1 / sqrt(D) unless given. With the default min_age = 1 a
    query does not read its own row, with 0 it does; below 0 it reads later rows too. A row whose span is NaN is seen by
    nobody. `dropout` draws from `seed` [1] int64. RuntimeError or ValueError names what is ill-shaped.
    """
    call = _Call("ramp_attention", q, k, v, cu_seqlens, cu_seqlens_k, max_seqlen, start, time, until)
    out, ramp_sum, got, stats = torch.ops.lapse.ramp_attention(
        *call.arguments,
        row_span=call.rows(row_span, "row_span", ()),
        head_span=head_span,
        position=position,
        logit=call.rows(logit, "logit", q.shape[-2:-1]),
        seed=_seed(dropout, seed, q),
        ramp=ramp,
        min_age=min_age,
        max_age=max_age,
        dropout=dropout,
        until=call.ends(until, row_span, ramp),
        age_bias=age_bias,
        bias_age=bias_age,
        scale=scale,
        received=received,
    )
    return RampOutput(
        call.of_queries(out), ramp_sum, call.of_rows(got) if received else got, call.of_queries(stats[..., 0])
    )


def ramp_until(time: Tensor, span: Tensor, ramp: float) -> Tensor:
    """The time of the first query for which a row of this time and span has m = 0 (Eq. 5), int64: the least whole age a with
    not (span - a > -ramp), in float64 for float64 spans, else in float32; NEVER for spans beyond 2**30. On a GPU one
    kernel."""
    return torch.ops.lapse.ramp_until(*torch.broadcast_tensors(time, span.detach()), ramp)


def selective_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    cu_seqlens: Tensor | None = None,
    cu_seqlens_k: Tensor | None = None,
    max_seqlen: int | None = None,
    start: Tensor | None = None,
    time: Tensor | None = None,
    until: Tensor | None = None,
    masking: Tensor | None = None,
    first: Tensor | None = None,
    select_q: Tensor | None = None,
    select_k: Tensor | None = None,
    position: Tensor | None = None,
    age_bias: Tensor | None = None,
    bias_age: int = 0,
    scale: float | None = None,
    max_age: int = NEVER,
    dropout: float = 0.0,
    seed: Tensor | None = None,
    cap: float = 1.0,
    shift: bool = True,
    mask_first: bool = False,
    mask_self: bool = False,
    relu: bool = True,
) -> SelectiveOutput:
    """Attention in which tokens mask others for the tokens after them (Leviathan et al. 2024, Secs. 3 and 4):

        S_ti = relu(logit_ti of head 0), or of select_q_t . select_k_i / sqrt(E); 0 for rows that are `first`, and for a = 0
        F_ti = masking_i + sum of S_ji over these queries j < t;  out_t = sum_i softmax_i(logit_ti - F_ti) v_i
        M_t = sum over visible i of 1 - min(F_ti, cap) / cap

    Visible are rows with 0 <= a <= max_age and t < until. `masking` [B, N] is F before these queries, without gradient;
    `first` [B, N] bool marks rows that nothing masks (a stream's first); `select_q` [B, T, E] and `select_k` [B, N, E];
    packed without the B. `shift`, `mask_first`, `mask_self`, `relu` are the ablations of A.4 and A.5. The rest is as in
    `ramp_attention`.
    """
    call = _Call("selective_attention", q, k, v, cu_seqlens, cu_seqlens_k, max_seqlen, start, time, until)
    out, memory, after, stats = torch.ops.lapse.selective_attention(
        *call.arguments,
        masking=call.rows(masking, "masking", ()),
        until=call.bounds,
        select_q=call.per_query(select_q, "select_q"),
        select_k=call.rows(select_k, "select_k"),
        position=position,
        seed=_seed(dropout, seed, q),
        max_age=max_age,
        dropout=dropout,
        cap=cap,
        shift=shift,
        mask_first=mask_first,
        mask_self=mask_self,
        relu=relu,
        first=call.rows(first, "first", ()),
        age_bias=age_bias,
        bias_age=bias_age,
        scale=scale,
    )
    return SelectiveOutput(call.of_queries(out), call.of_queries(memory), call.of_rows(after), call.of_queries(stats))


def selective_prune(
    q: Tensor,
    k: Tensor,
    *,
    budget: int,
    cu_seqlens: Tensor | None = None,
    cu_seqlens_k: Tensor | None = None,
    max_seqlen: int | None = None,
    start: Tensor | None = None,
    time: Tensor | None = None,
    until: Tensor | None = None,
    masking: Tensor | None = None,
    first: Tensor | None = None,
    select_q: Tensor | None = None,
    select_k: Tensor | None = None,
    position: Tensor | None = None,
    age_bias: Tensor | None = None,
    bias_age: int = 0,
    scale: float | None = None,
    max_age: int = NEVER,
    shift: bool = True,
    mask_first: bool = False,
    mask_self: bool = False,
    relu: bool = True,
) -> Tensor:
    """Context pruning (Sec. 4): the time of the first query that no longer sees each row, int64, [B, N] or packed [N];
    NEVER for rows that all queries see. Before a query reads, while it would see more than `budget` rows, itself included,
    the one with the largest F goes: of equals the oldest, `first` rows last, never the query's own. Pass the result as
    `until` to `selective_attention`."""
    call = _Call("selective_prune", q, k, k, cu_seqlens, cu_seqlens_k, max_seqlen, start, time, until)
    found = torch.ops.lapse.selective_prune(
        *call.arguments,
        masking=call.rows(masking, "masking", ()),
        until=call.bounds,
        select_q=call.per_query(select_q, "select_q"),
        select_k=call.rows(select_k, "select_k"),
        position=position,
        max_age=max_age,
        shift=shift,
        mask_first=mask_first,
        mask_self=mask_self,
        age_bias=age_bias,
        bias_age=bias_age,
        relu=relu,
        first=call.rows(first, "first", ()),
        scale=scale,
        budget=budget,
    )
    if call.packed:  # a sample's end is no limit of the caller's
        found = torch.where(found < call.end, found, NEVER if until is None else until)
    return call.of_rows(found)
