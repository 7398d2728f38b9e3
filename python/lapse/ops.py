"""The fused operators with keyword arguments and defaults. All work under torch.compile; gradients flow into all floating
inputs but `masking`.

Rows come in one of two forms:

* dense: q [B, T, H, D], k and v [B, N, G, D], not [B, H, T, D]; x.transpose(1, 2) turns one into the other. The queries
  are those of the last T rows unless `start` says otherwise, so that N > T is memory and a block. Rows have the times
  0 ... N - 1 unless `time` says otherwise.
* packed, with `cu_seqlens`: q [S, H, D] and k, v [N, G, D], sample b's at cu_seqlens[b] ... cu_seqlens[b + 1] - 1;
  `cu_seqlens_k` where a sample has more rows than queries. `max_seqlen`, at least the queries of the longest sample, saves
  a look at the device. What cu_seqlens and max_seqlen must be is checked; of what is on a GPU alone, and under
  torch.compile, by an assertion there.

G divides H: head h of the queries reads head h // (H // G) of the rows. Times, ages and spans are in timesteps; the age
of a row is a = (time of the query) - (time of the row). Times of rows that are seen ascend strictly within a sample. If a
query sees two rows of one time, some gradients are wrong, without an error: that of `position`, with it that of q, and on a
GPU that of `age_bias`. Under torch.autocast q, k and v are cast as torch's own attention casts them, and nothing else.
torch.func's grad, jvp and what is made of them are not supported; vmap runs sample by sample.
"""

from typing import NamedTuple

import torch
from torch import Tensor

import lapse._library  # noqa: F401  registers torch.ops.lapse
from lapse._call import Call

NEVER = 2**63 - 1  # as a time or an age: no limit


class RampOutput(NamedTuple):
    """What `ramp_attention` gives."""

    out: Tensor  # as q
    ramp_sum: Tensor  # [B]: with row spans the sum of r = span - a over queries and rows with 0 < m < 1 (Eq. 7 without
    # alpha / (R K)); with head spans, and without spans, 0
    received: Tensor  # dense [B, N, H], packed [N, H]: attention that each row got; empty unless asked for. No gradient
    lse: Tensor  # [B, T, H] or [S, H]: log-sum-exp of the visible logits. A gradient without spans alone


class SelectiveOutput(NamedTuple):
    """What `selective_attention` gives."""

    out: Tensor  # as q
    memory: Tensor  # [B, T] or [S]: M_t, how many tokens are not forgotten (Sec. 4)
    masking: Tensor  # [B, N] or [N]: F of each row for the first query after these. No gradient
    lse: Tensor  # [B, T, H] or [S, H]: log-sum-exp of the masked logits. No gradient


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
        out_t = sum_i m a v_i / (sum_i m a + 1e-8), without spans sum_i a v_i; 0 where nothing is visible

    A row is visible if min_age <= a <= max_age and t < until; with `row_span` and without `until`, m > 0 stands in the place
    of t < until. Columns of rows are [B, N], packed [N]: `time` and `until` int64, `row_span` in timesteps, `logit` [..., H]. `start` [B] int64 is the time
    of each sample's first query, by default such that its last query has the time of its last row; `head_span` [H],
    `position` [P, D] for ages 1 ... P, `age_bias` [H, A]. `scale` is 1 / sqrt(D) unless given. With the default min_age = 1 a
    query does not read its own row, with 0 it does; below 0 it reads later rows too. A row whose span is NaN is seen by
    nobody, and the output of a head whose span is NaN is NaN. Logits below -1e28 may count as -inf. `dropout` draws from `seed` [1] int64. RuntimeError or ValueError names what is ill-shaped.
    """
    call = Call("ramp_attention", q, k, v, cu_seqlens, cu_seqlens_k, max_seqlen, start, time, until)
    row_span, bounds = call.rows(row_span, "row_span", ()), call.bounds
    if call.packed and until is None and row_span is not None:  # `until` is in place of m > 0: samples' ends join m > 0
        bounds = torch.minimum(bounds, ramp_until(call.time, row_span, ramp))
    out, ramp_sum, got, stats = torch.ops.lapse.ramp_attention(
        *call.arguments,
        row_span=row_span,
        head_span=head_span,
        position=position,
        logit=call.rows(logit, "logit", q.shape[-2:-1]),
        seed=_seed(dropout, seed, q),
        ramp=ramp,
        min_age=min_age,
        max_age=max_age,
        dropout=dropout,
        until=bounds,
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
    call = Call("selective_attention", q, k, v, cu_seqlens, cu_seqlens_k, max_seqlen, start, time, until)
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
    the one with the largest F goes, never the query's own: of equals the oldest, and `first` rows after the others. F is
    without S_t, whatever `shift` says. Pass the result as `until` to `selective_attention`."""
    call = Call("selective_prune", q, k, k, cu_seqlens, cu_seqlens_k, max_seqlen, start, time, until)
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
