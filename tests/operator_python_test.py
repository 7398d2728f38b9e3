"""The operators as PyTorch sees them: loaded, differentiated, inspected and compiled by PyTorch's own tools."""

import os
import pathlib
import unittest

import torch

ROOT = pathlib.Path(__file__).resolve().parent.parent
LIBRARY = os.environ.get("LAPSE_OPS", str(ROOT / "build" / "release" / "liblapse_ops.so"))

torch.ops.load_library(LIBRARY)
ramp_attention = torch.ops.lapse.ramp_attention
ramp_attention_backward = torch.ops.lapse.ramp_attention_backward

B, K, H, D, P = 2, 3, 2, 4, 4
ROWS = (6, 9)  # of the samples; two more are spare
DEAD = 1  # sample 0: a row whose span has run out
RAMP = 4.0


def inputs(dtype=torch.float64, seed=0):
    """Arguments of a call with row spans and positions, the first six by position."""
    draw = torch.Generator().manual_seed(seed)
    rows = sum(ROWS) + 2

    def normal(*shape):
        return torch.randn(*shape, generator=draw, dtype=torch.float64).to(dtype).requires_grad_()

    starts = torch.tensor([10, 4])
    # Consecutive rows that end with the queries' own: ages from 1 - K to the number of rows.
    times = torch.cat([starts[b] + K - torch.arange(n, 0, -1) for b, n in enumerate(ROWS)] + [torch.zeros(2).long()])
    # Off the corners: m is 0 or 1 where the span plus a whole age is a multiple of the ramp, never at a fraction.
    spans = (torch.randint(0, 8, (rows,), generator=draw) + 0.37).to(dtype)
    spans[DEAD] = -RAMP - 0.5
    positional = [
        normal(B, K, H, D),
        normal(rows, H, D),
        normal(rows, H, D),
        torch.tensor([0, ROWS[0], sum(ROWS)]),
        starts,
        times,
    ]
    named = {"row_span": spans.requires_grad_(), "position": normal(P, D), "ramp": RAMP}
    return positional, named


def head_span_inputs():
    """The same with a span for each head, a bias for each row, and limits on the age."""
    positional, named = inputs(seed=1)
    draw = torch.Generator().manual_seed(2)
    logit = torch.randn(sum(ROWS) + 2, H, generator=draw, dtype=torch.float64).requires_grad_()
    spans = torch.tensor([2.3, 5.6], dtype=torch.float64, requires_grad=True)
    limits = {"ramp": 3.0, "min_age": 0, "max_age": 7}
    return positional, {"head_span": spans, "position": named["position"], "logit": logit, **limits}


def plain_inputs():
    positional, named = inputs(seed=3)
    return positional, {"position": named["position"]}


def dropout_inputs():
    positional, named = inputs(seed=4)
    return positional, {**named, "dropout": 0.3, "seed": torch.tensor([5])}


def until_inputs():
    """Rows that stop in the middle of the block, and one that is still visible where m = 0."""
    positional, named = inputs(seed=5)
    until = torch.full((sum(ROWS) + 2,), 2**63 - 1)
    until[[2, 3, 7]] = torch.tensor([11, 0, 6])
    return positional, {**named, "until": until}


def encoder_inputs():
    """Keys shared by two heads, a scale, every row whatever its age, and a bias by age as T5's."""
    positional, named = inputs(seed=6)
    draw = torch.Generator().manual_seed(7)
    positional[1:3] = [t.detach()[:, :1].clone().requires_grad_() for t in positional[1:3]]
    bias = torch.randn(H, 5, generator=draw, dtype=torch.float64).requires_grad_()
    return positional, {"age_bias": bias, "bias_age": -2, "scale": 1.0, "min_age": -(2**63)}


KINDS = {
    "row spans": inputs,
    "head spans": head_span_inputs,
    "no spans": plain_inputs,
    "dropout": dropout_inputs,
    "until": until_inputs,
    "encoder": encoder_inputs,
}


def differentiable(positional, named):
    return [t for t in [*positional, *named.values()] if isinstance(t, torch.Tensor) and t.requires_grad]


def loss(out, ramp_sum):
    """Of every output that has a gradient, none with the same weight."""
    weights = torch.linspace(-1, 2, out.numel(), dtype=out.dtype).view_as(out)
    return (out * weights).sum() + (ramp_sum * torch.tensor([0.3, -0.7], dtype=ramp_sum.dtype)).sum()


class Operator(unittest.TestCase):
    def test_gradients_are_those_of_the_function(self):
        for kind, make in KINDS.items():
            with self.subTest(kind=kind):
                positional, named = make()
                leaves = differentiable(positional, named)
                place = {id(t): i for i, t in enumerate(leaves)}

                def function(*values):
                    pick = lambda t: values[place[id(t)]] if id(t) in place else t
                    return ramp_attention(*map(pick, positional), **{n: pick(t) for n, t in named.items()})[:2]

                self.assertTrue(torch.autograd.gradcheck(function, leaves))

    def test_opcheck(self):
        """Schema, autograd, shapes without data, and what torch.compile needs, also with dynamic shapes."""
        for kind, make in KINDS.items():
            for gradients in (True, False):
                with self.subTest(kind=kind, gradients=gradients):
                    positional, named = make()
                    if not gradients:
                        positional = [t.detach() for t in positional]
                        named = {n: t.detach() if isinstance(t, torch.Tensor) else t for n, t in named.items()}
                    torch.library.opcheck(ramp_attention.default, tuple(positional), {**named, "received": True})

    def backward_arguments(self, make):
        """Of the operator that autograd calls: gradients, outputs, and then the arguments of the call."""
        positional, named = make()
        out, ramp_sum, _, stats = ramp_attention(*positional, **named)
        return [torch.ones_like(out), torch.ones_like(ramp_sum), out.detach(), stats, *positional], named

    def test_opcheck_of_backward(self):
        for kind, make in KINDS.items():
            with self.subTest(kind=kind):
                positional, named = self.backward_arguments(make)
                positional = [t.detach() for t in positional]
                named = {n: t.detach() if isinstance(t, torch.Tensor) else t for n, t in named.items()}
                torch.library.opcheck(ramp_attention_backward.default, tuple(positional), named)

    def test_backward_called_directly_has_no_derivatives(self):
        positional, named = self.backward_arguments(plain_inputs)
        gradients = ramp_attention_backward(*positional, **named)
        with self.assertRaisesRegex(RuntimeError, "not implemented"):
            gradients[0].sum().backward()

    def check_compiled(self, backend, make, **options):
        def function(positional, named):
            out, ramp_sum, received, _ = ramp_attention(*positional, **named, received=True)
            return loss(out.sin(), ramp_sum), out, received

        results = []
        for run in (function, torch.compile(function, backend=backend, fullgraph=True, **options)):
            positional, named = make()
            value, out, received = run(positional, named)
            value.backward()
            results.append([value, out, received, *[t.grad for t in differentiable(positional, named)]])
        for eager, compiled in zip(*results, strict=True):
            torch.testing.assert_close(compiled, eager, rtol=1e-12, atol=1e-12)

    def test_compiled(self):
        for kind, make in KINDS.items():
            with self.subTest(kind=kind):
                torch.compiler.reset()
                self.check_compiled("aot_eager", make)

    def test_compiled_for_any_shape(self):
        torch.compiler.reset()
        self.check_compiled("aot_eager", inputs, dynamic=True)

    def test_without_gradients(self):
        positional, named = inputs()
        expected = ramp_attention(*positional, **named)
        for mode in (torch.no_grad, torch.inference_mode):
            with mode():
                given = ramp_attention(*positional, **named)
            for ours, theirs in zip(given, expected):
                self.assertFalse(ours.requires_grad)
                self.assertTrue(torch.equal(ours, theirs))
        self.assertTrue(expected[0].requires_grad and expected[1].requires_grad)
        self.assertFalse(expected[2].requires_grad or expected[3].requires_grad)

    def test_gradients_of_one_output_or_input_alone(self):
        for which in (0, 1):
            positional, named = inputs()
            ramp_attention(*positional, **named)[which].sum().backward()
            self.assertGreater(named["row_span"].grad.abs().sum(), 0)
        positional, named = inputs()
        q = positional[0]
        rest = [t.detach() for t in positional[1:]]
        named = {n: t.detach() if isinstance(t, torch.Tensor) else t for n, t in named.items()}
        ramp_attention(q, *rest, **named)[0].sum().backward()
        self.assertGreater(q.grad.abs().sum(), 0)

    def test_dead_rows_and_spare_rows_change_nothing(self):
        positional, named = inputs()
        out, ramp_sum, _, _ = ramp_attention(*positional, **named)
        loss(out, ramp_sum).backward()
        for row in (DEAD, -1, -2):
            self.assertEqual(positional[1].grad[row].abs().sum(), 0)
            self.assertEqual(named["row_span"].grad[row], 0)
        for tensor in positional[1:3]:
            tensor.data[[DEAD, -1, -2]] = 1e9
        again = ramp_attention(*positional, **named)
        self.assertTrue(torch.equal(out, again[0]) and torch.equal(ramp_sum, again[1]))

    def test_bad_inputs_are_named(self):
        positional, named = inputs()
        cases = {
            "q must be": lambda p, n: (p[:0] + [p[0][0]] + p[1:], n),
            "v must have the shape of k": lambda p, n: (p[:2] + [p[2][:3]] + p[3:], n),
            "offsets": lambda p, n: (p[:3] + [p[3].int()] + p[4:], n),
            "row_span": lambda p, n: (p, {**n, "row_span": n["row_span"][:3]}),
            "until": lambda p, n: (p, {**n, "until": n["row_span"]}),
            "k must be": lambda p, n: (p[:1] + [p[1][:, :0], p[2][:, :0]] + p[3:], n),
            "age_bias": lambda p, n: (p, {**n, "age_bias": torch.zeros(H + 1, 3)}),
            "scale": lambda p, n: (p, {**n, "scale": 0.0}),
            "ramp": lambda p, n: (p, {**n, "ramp": -1.0}),
            "seed": lambda p, n: (p, {**n, "dropout": 0.5}),
        }
        for words, change in cases.items():
            bad_positional, bad_named = change(positional, named)
            with self.assertRaisesRegex(RuntimeError, words):
                ramp_attention(*bad_positional, **bad_named)
            with torch.inference_mode(), self.assertRaisesRegex(RuntimeError, words):
                ramp_attention(*bad_positional, **bad_named)


if __name__ == "__main__":
    unittest.main()
