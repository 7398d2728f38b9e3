"""lapse.ops as users call it: against plain formulas in float64, packed against sample by sample, and PyTorch's tools."""

import math
import unittest

import numpy
import torch

import lapse
from lapse import ops

B, T, N, H, G, D = 2, 3, 7, 4, 2, 5
RAMP = 4.0


def draw(*shape, seed=0, dtype=torch.float64):
    generator = torch.Generator().manual_seed(seed + sum(shape))
    return torch.randn(*shape, generator=generator, dtype=torch.float64).to(dtype).requires_grad_()


def inputs(dtype=torch.float64):
    return (
        draw(B, T, H, D, seed=1, dtype=dtype),
        draw(B, N, G, D, seed=2, dtype=dtype),
        draw(B, N, G, D, seed=3, dtype=dtype),
    )


def spans(dtype=torch.float64):
    generator = torch.Generator().manual_seed(4)  # off the ramp's corners
    return (torch.randint(-3, 6, (B, N), generator=generator) + 0.37).to(dtype).requires_grad_()


def plain_logits(q, k, scale=None):
    """[B, H, T, N] and ages [T, N]; nothing is hidden yet."""
    heads = k.repeat_interleave(q.shape[2] // k.shape[2], 2)
    logits = torch.einsum("bthd,bnhd->bhtn", q, heads) * (q.shape[-1] ** -0.5 if scale is None else scale)
    n, t = k.shape[1], q.shape[1]
    return logits, (torch.arange(n - t, n)[:, None] - torch.arange(n))


def plain_ramp(q, k, v, span, ramp, min_age=1):
    """Eqs. 2, 4, 5 with whole matrices."""
    logits, ages = plain_logits(q, k)
    mask = (1 + (span[:, None] - ages) / ramp).clamp(0, 1) * (ages >= min_age)  # [B, T, N]
    seen = (mask > 0)[:, None]
    some = seen.any(-1, keepdim=True)
    weights = torch.softmax(logits.masked_fill(~seen & some, -torch.inf), -1) * mask[:, None]
    weights = weights / (weights.sum(-1, keepdim=True) + 1e-8)
    return torch.einsum("bhtn,bnhd->bthd", weights, v.repeat_interleave(q.shape[2] // v.shape[2], 2)), weights


def plain_selective(q, k, v, first):
    """Secs. 3 and 4, all tokens in one block."""
    logits, ages = plain_logits(q, k)
    logits = logits.masked_fill(ages < 0, -torch.inf)
    selection = torch.relu(logits[:, 0]) * ~first[:, None] * (ages > 0)
    masking = selection.cumsum(1) - selection
    weights = torch.softmax(logits - masking[:, None], -1)
    memory = ((1 - masking.clamp(max=1)) * (ages >= 0)).sum(-1)
    return torch.einsum("bhtn,bnhd->bthd", weights, v.repeat_interleave(q.shape[2] // v.shape[2], 2)), memory, masking


class OnDevice(torch.Tensor):
    """A tensor that says that it is on a GPU."""

    is_cuda = True

    def cpu(self):
        return self.as_subclass(torch.Tensor)


class Ramp(unittest.TestCase):
    def test_is_the_formula(self):
        q, k, v = inputs()
        span = spans()
        for min_age in (0, 1):
            got = ops.ramp_attention(q, k, v, row_span=span, ramp=RAMP, min_age=min_age, received=True)
            out, weights = plain_ramp(q, k, v, span, RAMP, min_age)
            torch.testing.assert_close(got.out, out, rtol=1e-9, atol=1e-12)
            torch.testing.assert_close(got.received, weights.sum(2).transpose(1, 2), rtol=1e-7, atol=1e-9)
            single = [x.detach().float() for x in (q, k, v, span)]
            fast = ops.ramp_attention(*single[:3], row_span=single[3], ramp=RAMP, min_age=min_age)
            torch.testing.assert_close(fast.out, out.float(), rtol=2e-5, atol=2e-6)  # float32: some 100 roundings

    def test_without_spans_is_causal_attention(self):
        q, k, v = inputs()
        mask = torch.ones(T, N, dtype=torch.bool).tril(N - T)
        there = [x.transpose(1, 2) for x in (q, k, v)]
        expected = torch.nn.functional.scaled_dot_product_attention(*there, attn_mask=mask, enable_gqa=True).transpose(
            1, 2
        )
        torch.testing.assert_close(ops.ramp_attention(q, k, v, min_age=0).out, expected, rtol=1e-9, atol=1e-12)

    def test_packed_is_each_sample_alone(self):
        lengths, memory = [3, 1, 5], [2, 4, 0]
        cu_q = torch.tensor([0, 3, 4, 9])
        cu_k = torch.tensor([0, 5, 10, 15])
        q, k, v = draw(9, H, D, seed=5), draw(15, G, D, seed=6), draw(15, G, D, seed=7)
        span = (torch.arange(15) % 6 - 1.63).double().requires_grad_()
        named = {"cu_seqlens": cu_q, "cu_seqlens_k": cu_k, "row_span": span, "ramp": RAMP}
        got = ops.ramp_attention(q, k, v, **named, received=True)
        for b, (n, m) in enumerate(zip(lengths, memory)):
            own, rows = slice(cu_q[b], cu_q[b] + n), slice(cu_k[b], cu_k[b] + n + m)
            one = ops.ramp_attention(
                q[None, own], k[None, rows], v[None, rows], row_span=span[None, rows], ramp=RAMP, received=True
            )
            torch.testing.assert_close(got.out[own], one.out[0], rtol=1e-12, atol=1e-12)
            torch.testing.assert_close(got.received[rows], one.received[0], rtol=1e-12, atol=1e-12)
            torch.testing.assert_close(got.ramp_sum[b], one.ramp_sum[0], rtol=1e-12, atol=1e-12)
            self.assertTrue(torch.equal(got.lse[own], one.lse[0]))

        def function(q, k, v, span):
            y = ops.ramp_attention(q, k, v, **{**named, "row_span": span})
            return y.out, y.ramp_sum

        self.assertTrue(torch.autograd.gradcheck(function, (q, k, v, span)))

    def test_the_last_query_has_the_time_of_the_last_row(self):
        q, k, v = inputs()
        time = torch.tensor([[3, 7, 8, 20, 30, 31, 32], [0, 1, 2, 3, 4, 5, 6]])
        start = torch.tensor([30, 4])
        for op in (ops.ramp_attention, ops.selective_attention):
            for x, y in zip(op(q, k, v, time=time), op(q, k, v, time=time, start=start)):
                self.assertTrue(torch.equal(x, y))
        late = ops.selective_prune(q, k, budget=2, time=time + 100)
        self.assertTrue(torch.equal(late, ops.selective_prune(q, k, budget=2, time=time + 100, start=start + 100)))

    def test_packed_samples_have_times_of_their_own(self):
        """Also samples without queries, and without rows."""
        cu = {"cu_seqlens": torch.tensor([0, 2, 2, 5, 5]), "cu_seqlens_k": torch.tensor([0, 4, 6, 9, 9])}
        q, k, v = draw(5, H, D, seed=5), draw(9, G, D, seed=6), draw(9, G, D, seed=7)
        time = torch.tensor([1, 5, 8, 9, 4, 6, 50, 51, 52])
        for op in (ops.ramp_attention, ops.selective_attention):
            for x, y in zip(op(q, k, v, time=time, **cu), op(q, k, v, time=time, start=torch.tensor([8, 7, 50, 0]), **cu)):
                self.assertTrue(torch.equal(x, y))
        for given in ({}, {"max_seqlen": 4}):
            with self.assertRaisesRegex(ValueError, "a sample has more queries than rows: .* give start"):
                ops.ramp_attention(q, k, v, cu_seqlens=torch.tensor([0, 1, 5]), cu_seqlens_k=torch.tensor([0, 6, 9]), **given)

    def test_gradients(self):
        def function(q, k, v, span):
            return ops.ramp_attention(q, k, v, row_span=span, ramp=RAMP)[:2]

        self.assertTrue(torch.autograd.gradcheck(function, (*inputs(), spans())))

    def test_until_agrees_with_m(self):
        span = torch.cat(
            [torch.linspace(-9, 9, 73), torch.randn(200, generator=torch.Generator().manual_seed(8)) * 1e5]
        )
        for ramp in (1.0, 3.7, 32.0):
            until = ops.ramp_until(torch.zeros(len(span), dtype=torch.long), span, ramp)
            ages = until.float()
            self.assertTrue(torch.all(~(span - ages > -ramp)) and torch.all(span - (ages - 1) > -ramp))

    def test_until_of_other_shapes(self):
        span, time = torch.randn(3, 5) * 100, torch.arange(5)
        expected = torch.stack([ops.ramp_until(time, row, 7.0) for row in span])
        self.assertTrue(torch.equal(ops.ramp_until(time, span, 7.0), expected))
        self.assertTrue(torch.equal(ops.ramp_until(time.expand(3, 5).t(), span.t(), 7.0), expected.t()))
        ends = ops.ramp_until(torch.zeros(3, dtype=torch.long), torch.tensor([math.inf, -math.inf, math.nan]), 7.0)
        self.assertEqual(ends.tolist(), [ops.NEVER, -ops.NEVER - 1, -ops.NEVER - 1])
        needed = torch.zeros(5, requires_grad=True)
        self.assertFalse(ops.ramp_until(time, needed, 7.0).requires_grad)

    def test_dropout_draws_anew_and_with_a_seed_the_same(self):
        q, k, v = inputs()
        run = lambda **named: ops.ramp_attention(q, k, v, dropout=0.5, **named).out
        self.assertFalse(torch.equal(run(), run()))
        seed = torch.tensor([3])
        self.assertTrue(torch.equal(run(seed=seed), run(seed=seed)))

    def test_autocast_casts_rows_but_not_spans(self):
        q, k, v = inputs(torch.float32)
        span = spans(torch.float32)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            got = ops.ramp_attention(q, k, v.bfloat16(), row_span=span, ramp=RAMP)
        self.assertEqual(got.out.dtype, torch.bfloat16)
        expected, _ = plain_ramp(q, k, v, span, RAMP)
        torch.testing.assert_close(got.out.float(), expected, rtol=0.05, atol=0.05)  # bfloat16: 8 bits
        got.out.float().sum().backward()
        self.assertEqual((q.grad.dtype, span.grad.dtype), (torch.float32, torch.float32))

    def test_autocast_leaves_float64_alone(self):
        rows = inputs()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            self.assertTrue(torch.equal(ops.ramp_attention(*rows).out, ops.ramp_attention(*rows).out.double()))
            with self.assertRaisesRegex(RuntimeError, "must share one floating dtype"):
                ops.ramp_attention(*(x.detach().long() for x in rows))

    def test_errors_name_the_input(self):
        q, k, v = inputs()
        with self.assertRaisesRegex(ValueError, r"q must be \[B, T, H, D\]"):
            ops.ramp_attention(q[0], k, v)
        with self.assertRaisesRegex(ValueError, r"with cu_seqlens q must be \[S, H, D\]"):
            ops.ramp_attention(q, k, v, cu_seqlens=torch.tensor([0, 3]))
        with self.assertRaisesRegex(ValueError, "max_seqlen is 3, but a sample has 6 queries"):
            packed = draw(6, H, D, seed=5), draw(6, G, D, seed=6), draw(6, G, D, seed=7)
            ops.ramp_attention(*packed, cu_seqlens=torch.tensor([0, 6]), max_seqlen=3)
        of = lambda most: ops.ramp_attention(*packed, cu_seqlens=torch.tensor([0, 6]), max_seqlen=most).out
        self.assertTrue(torch.equal(of(numpy.int64(6)), of(6)))
        for bad in (6.0, numpy.float64(6), torch.tensor(6)):
            with self.assertRaisesRegex(ValueError, "max_seqlen must be a whole number, got"):
                of(bad)
        with self.assertRaisesRegex(RuntimeError, "row_span must be floating"):
            ops.ramp_attention(q, k, v, row_span=spans().detach().long())

    def test_errors_name_what_does_not_fit(self):
        q, k, v = inputs()
        packed = [x.flatten(0, 1) for x in (q[:, :1], k[:, :1], v[:, :1])]
        given = lambda *cuts, **more: ops.ramp_attention(*packed, cu_seqlens=torch.tensor(cuts), **more)
        for words, call in {
            r"row_span must be \[2, 7\], got \[7, 2\]": lambda: ops.ramp_attention(q, k, v, row_span=spans().t()),
            r"v must be \[2, 7, 2, 5\], got \[7, 2, 2, 5\]": lambda: ops.ramp_attention(q, k, v.reshape(N, B, G, D)),
            r"first must be \[2, 7\], got \[14\]": lambda: ops.selective_attention(
                q, k, v, first=torch.zeros(B * N, dtype=torch.bool)
            ),
            r"cu_seqlens must ascend from 0 to the 2 rows, got \[1, 2\]": lambda: given(1, 2),
            r"cu_seqlens must ascend from 0 to the 2 rows, got \[0, 1\]": lambda: given(0, 1),
            r"cu_seqlens must ascend from 0 to the 2 rows, got \[0, 2, 1, 2\]": lambda: given(0, 2, 1, 2),
            "cu_seqlens is of 1 samples, cu_seqlens_k of 2": lambda: given(0, 2, cu_seqlens_k=torch.tensor([0, 1, 2])),
            r"cu_seqlens must be a tensor \[B \+ 1\] of whole numbers": lambda: ops.ramp_attention(*packed, cu_seqlens=[0, 2]),
            r"logit must be \[2, 7, 4\], got \[2, 7, 3\]": lambda: ops.ramp_attention(q, k, v, logit=draw(B, N, 3)),
            r"k must be \[2, 7, 2, 5\], got \[2, 7, 2, 4\]": lambda: ops.ramp_attention(q, k[..., :4], v),
            "time must be torch.int64, got torch.int32": lambda: ops.ramp_attention(q, k, v, time=torch.zeros(B, N).int()),
            r"start must be int64 \[2\], got torch.int64 \[3\]": lambda: ops.ramp_attention(
                q, k, v, start=torch.zeros(3).long()
            ),
            "9 queries and 7 rows": lambda: ops.ramp_attention(draw(B, 9, H, D), k, v),
            "9 queries and 7 rows: .* give start": lambda: ops.ramp_attention(
                draw(B, 9, H, D), k, v, time=torch.arange(N).repeat(B, 1)
            ),
            r"4 heads, which do not divide q's 3; tensors are \[B, T, H, D\]": lambda: ops.ramp_attention(
                draw(B, 2, 3, D), draw(B, N, 4, D), draw(B, N, 4, D)
            ),
            "start must be a tensor, got 4": lambda: ops.ramp_attention(q, k, v, start=4),
            r"time must be a tensor, got \[0, 1\]": lambda: ops.ramp_attention(q, k, v, time=[0, 1]),
            "row_span must be a tensor, got 3.0": lambda: ops.ramp_attention(q, k, v, row_span=3.0),
            "cu_seqlens_k and max_seqlen go with cu_seqlens": lambda: ops.ramp_attention(q, k, v, max_seqlen=3),
        }.items():
            with self.assertRaisesRegex(ValueError, words):
                call()

    def test_errors_of_packed_calls_name_what_does_not_fit(self):
        rows = draw(3, H, D, seed=5), draw(3, G, D, seed=6), draw(3, G, D, seed=7)
        cu = torch.tensor([0, 3])
        select = lambda n: {"select_q": draw(n, 2), "select_k": draw(3, 2)}
        for words, op, more in (
            (r"row_span must be \[3\], got \[4\]", ops.ramp_attention, {"row_span": draw(4)}),
            (r"until must be \[3\], got \[2\]", ops.ramp_attention, {"until": torch.ones(2).long()}),
            (r"until must be \[3\], got \[1\]", ops.ramp_attention, {"until": torch.ones(1).long()}),
            ("until must be torch.int64, got torch.int32", ops.ramp_attention, {"until": torch.ones(3).int()}),
            (r"start must be int64 \[1\], got torch.int64 \[3\]", ops.ramp_attention, {"start": torch.zeros(3).long()}),
            ("max_seqlen must be a whole number, got 3.0", ops.ramp_attention, {"max_seqlen": 3.0}),
            (r"select_q must be \[3, ...\], got \[2, 2\]", ops.selective_attention, select(2)),
            (r"select_q must be \[3, ...\], got \[4, 2\]", ops.selective_attention, select(4)),
        ):
            with self.assertRaisesRegex(ValueError, words):
                op(*rows, cu_seqlens=cu, **more)

    def test_offsets_on_a_device_are_checked(self):
        """Where they are copied to the CPU anyway, there; else by an assertion."""
        rows = draw(6, H, D, seed=5), draw(6, G, D, seed=6), draw(6, G, D, seed=7)
        whole, on_device = [0, 3, 6], lambda x: torch.tensor(x).as_subclass(OnDevice)

        def given(cu, cu_k=None, most=None):
            with torch.no_grad():
                own = None if cu_k is None else on_device(cu_k)
                ops.ramp_attention(*rows, cu_seqlens=on_device(cu), cu_seqlens_k=own, max_seqlen=most)

        for bad in ([0, 3, 5], [0, 3, 9], [1, 3, 6], [0, 4, 3, 6]):
            fits = [0, 2, 4, 6][: len(bad) - 1] + [6]
            words = lambda name: rf"{name} must ascend from 0 to the 6 rows, got \[{', '.join(map(str, bad))}\]"
            for most in (None, 6):
                with self.assertRaisesRegex(ValueError, words("cu_seqlens")):
                    given(bad, most=most)
                with self.assertRaisesRegex(ValueError, words("cu_seqlens_k")):
                    given(fits, bad, most)
            with self.assertRaisesRegex(ValueError, words("cu_seqlens")):
                given(bad, fits)
            with self.assertRaisesRegex(RuntimeError, "cu_seqlens must ascend from 0 to the number of rows"):
                given(bad, fits, 6)
        with self.assertRaisesRegex(ValueError, "max_seqlen is 2, but a sample has 3 queries"):
            given(whole, most=2)
        with self.assertRaisesRegex(RuntimeError, "a sample has more queries than max_seqlen"):
            given(whole, whole, 2)
        given(whole), given(whole, most=3), given(whole, whole), given(whole, whole, 3)

    def test_without_samples(self):
        rows = torch.zeros(0, H, D), torch.zeros(0, G, D), torch.zeros(0, G, D)
        for cu in (torch.tensor([0]), torch.tensor([0, 0])):
            for most in (None, 2):
                named = {"cu_seqlens": cu, "max_seqlen": most}
                got = ops.ramp_attention(*rows, row_span=torch.zeros(0), **named)
                self.assertEqual((got.out.shape, got.ramp_sum.shape), (rows[0].shape, cu[1:].shape))
                self.assertEqual(ops.selective_attention(*rows, **named).masking.shape, (0,))
                self.assertEqual(ops.selective_prune(*rows[:2], budget=2, **named).shape, (0,))

    def test_second_derivatives_are_refused(self):
        for call in (ops.ramp_attention, ops.selective_attention):
            q, k, v = inputs()
            with self.assertRaisesRegex(RuntimeError, "no second derivatives"):
                torch.autograd.grad(call(q, k, v).out.square().sum(), q, create_graph=True)


class Selective(unittest.TestCase):
    def first(self, n=N):
        return torch.arange(n).expand(B, n) == 0

    def test_is_the_formula(self):
        q, k, v = draw(B, N, H, D, seed=9), *inputs()[1:]
        out, memory, masking = plain_selective(q, k, v, self.first())
        got = ops.selective_attention(q, k, v, first=self.first())
        torch.testing.assert_close(got.out, out, rtol=1e-9, atol=1e-12)
        torch.testing.assert_close(got.memory, memory, rtol=1e-9, atol=1e-12)

    def test_block_by_block_is_the_whole(self):
        q, k, v = draw(B, N, H, D, seed=9), *inputs()[1:]
        whole = ops.selective_attention(q, k, v, first=self.first())
        early = ops.selective_attention(q[:, :4], k[:, :4], v[:, :4], first=self.first(4))
        masking = torch.cat([early.masking, torch.zeros(B, N - 4, dtype=torch.float64)], 1)
        late = ops.selective_attention(q[:, 4:], k, v, masking=masking, first=self.first())
        torch.testing.assert_close(torch.cat([early.out, late.out], 1), whole.out, rtol=1e-9, atol=1e-12)
        torch.testing.assert_close(late.masking, whole.masking, rtol=1e-9, atol=1e-12)

    def test_pruning_sees_the_bias_by_age(self):
        """S comes from logits with their bias: one that lets rows of age 3 and more alone be masked makes the oldest go."""
        q, k, first = draw(1, 30, H, D, seed=5), draw(1, 30, G, D, seed=6), torch.arange(30)[None] == 0
        bias = torch.tensor([-99.0] * 3 + [99.0], dtype=q.dtype).expand(H, 4)
        got = ops.selective_prune(q, k, budget=5, first=first, age_bias=bias)
        self.assertEqual(got[0, 1:26].tolist(), list(range(5, 30)))
        self.assertFalse(torch.equal(got, ops.selective_prune(q, k, budget=5, first=first)))
        later = ops.selective_prune(q, k, budget=5, first=first, age_bias=bias[:, 1:], bias_age=1)
        self.assertTrue(torch.equal(got, later))

    def test_packed_is_each_sample_alone(self):
        cu = torch.tensor([0, 3, 4, 9])
        q, k, v = draw(9, H, D, seed=5), draw(9, G, D, seed=6), draw(9, G, D, seed=7)
        first = torch.zeros(9, dtype=torch.bool)
        first[cu[:-1]] = True
        got = ops.selective_attention(q, k, v, cu_seqlens=cu, first=first)
        until = ops.selective_prune(q, k, budget=2, cu_seqlens=cu, first=first)
        for b in range(3):
            own = slice(cu[b], cu[b + 1])
            one = ops.selective_attention(q[None, own], k[None, own], v[None, own], first=first[None, own])
            for name in ("out", "memory", "masking", "lse"):
                torch.testing.assert_close(getattr(got, name)[own], getattr(one, name)[0], rtol=1e-12, atol=1e-12)
            alone = ops.selective_prune(q[None, own], k[None, own], budget=2, first=first[None, own])
            self.assertEqual(until[own].tolist(), alone[0].tolist())
        self.assertTrue((until < ops.NEVER).any() and (until == ops.NEVER).any())

    def test_gradients(self):
        def function(q, k, v):
            return ops.selective_attention(q, k, v, first=self.first())[:2]

        self.assertTrue(torch.autograd.gradcheck(function, (draw(B, N, H, D, seed=9), *inputs()[1:])))


class Tools(unittest.TestCase):
    def test_opcheck(self):
        """Schema, autograd, shapes without data, and what torch.compile needs."""
        q, k, v = inputs()
        offsets, start, time = torch.tensor([0, N, 2 * N]), torch.full((B,), N - T), torch.arange(N).repeat(B)
        rows = (q, k.flatten(0, 1), v.flatten(0, 1), offsets, start, time)
        torch.library.opcheck(
            torch.ops.lapse.ramp_attention.default, rows, {"row_span": spans().flatten(), "ramp": RAMP}
        )
        torch.library.opcheck(torch.ops.lapse.selective_attention.default, rows)
        torch.library.opcheck(torch.ops.lapse.selective_prune.default, rows, {"budget": 3})
        torch.library.opcheck(torch.ops.lapse.ramp_until.default, (torch.arange(5), torch.randn(5), 7.0))

    def test_version(self):
        self.assertRegex(lapse.__version__, r"^\d+\.\d+\.\d+$")


if __name__ == "__main__":
    unittest.main()
