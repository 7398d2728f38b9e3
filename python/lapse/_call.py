"""What a caller of `lapse.ops` gives, dense or packed, as the operators take it; and the checks of it."""

from numbers import Integral

import torch
from torch import Tensor

_WHOSE = "the newest rows are the queries' own; give start (or are these [B, H, T, D]? Tensors here are [B, T, H, D])"


class Call:
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
        H, G = q.shape[-2], k.shape[-2]
        if G == 0 or H % G != 0:
            raise ValueError(
                f"{op}: k has {G} heads, which do not divide q's {H}; tensors are [B, T, H, D], not [B, H, T, D], and "
                "packed [N, H, D]"
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
        self.time = time
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
        if not isinstance(given, Integral):
            raise ValueError(f"{op}: max_seqlen must be a whole number, got {given!r}")
        given = int(given)  # numpy's
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
