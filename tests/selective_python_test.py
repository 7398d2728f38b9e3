"""selective_attention and selective_prune as PyTorch sees them: differentiated, inspected and compiled by its tools."""

import os
import pathlib
import unittest

import torch

ROOT = pathlib.Path(__file__).resolve().parent.parent
LIBRARY = os.environ.get("LAPSE_OPS", str(ROOT / "build" / "release" / "liblapse_ops.so"))

torch.ops.load_library(LIBRARY)
selective_attention = torch.ops.lapse.selective_attention
selective_prune = torch.ops.lapse.selective_prune

B, K, H, D, P, E = 2, 4, 2, 4, 3, 3
ROWS = (6, 9)  # of the samples, the first from its stream's beginning on; two more are spare


def inputs(dtype=torch.float64, seed=0):
    """Arguments of a call with masking from earlier blocks and positions, the first six by position."""
    draw = torch.Generator().manual_seed(seed)
    rows = sum(ROWS) + 2

    def normal(*shape):
        return torch.randn(*shape, generator=draw, dtype=torch.float64).to(dtype).requires_grad_()

    starts = torch.tensor([ROWS[0] - K, 40])
    times = torch.cat([starts[b] + K - torch.arange(n, 0, -1) for b, n in enumerate(ROWS)] + [torch.zeros(2).long()])
    positional = [
        normal(B, K, H, D),
        normal(rows, H, D),
        normal(rows, H, D),
        torch.tensor([0, ROWS[0], sum(ROWS)]),
        starts,
        times,
    ]
    return positional, {"masking": normal(rows).detach().abs() / 2, "position": normal(P, D), "first": times == 0}


def plain_inputs():
    return inputs(seed=1)[0], {}


def select_inputs():
    """S from a bilinear form of its own, a window, and rows that are pruned."""
    positional, _ = inputs(seed=2)
    draw = torch.Generator().manual_seed(3)
    rows = sum(ROWS) + 2
    until = torch.full((rows,), 2**63 - 1)
    until[[1, 8, 9]] = torch.tensor([3, 41, 42])
    first = torch.zeros(rows, dtype=torch.bool)
    first[[0, 2, 7]] = True
    select_q = torch.randn(B, K, E, generator=draw, dtype=torch.float64, requires_grad=True)
    select_k = torch.randn(rows, E, generator=draw, dtype=torch.float64, requires_grad=True)
    return positional, {"until": until, "first": first, "select_q": select_q, "select_k": select_k, "max_age": 6}


def ablated_inputs():
    positional, named = inputs(seed=4)
    return positional, {**named, "cap": 2.0, "shift": False, "mask_first": True, "mask_self": True, "relu": False}


def dropout_inputs():
    positional, named = inputs(seed=5)
    return positional, {**named, "dropout": 0.3, "seed": torch.tensor([5])}


def shared_inputs():
    """Keys shared by two heads, a scale, and a bias by age."""
    positional, named = inputs(seed=6)
    draw = torch.Generator().manual_seed(7)
    positional[1:3] = [t.detach()[:, :1].clone().requires_grad_() for t in positional[1:3]]
    bias = torch.randn(H, 3, generator=draw, dtype=torch.float64).requires_grad_()
    return positional, {**named, "age_bias": bias, "bias_age": 1, "scale": 0.7}


KINDS = {
    "masking": inputs,
    "plain": plain_inputs,
    "select": select_inputs,
    "ablated": ablated_inputs,
    "dropout": dropout_inputs,
    "shared keys": shared_inputs,
}


def differentiable(positional, named):
    return [t for t in [*positional, *named.values()] if isinstance(t, torch.Tensor) and t.requires_grad]


def loss(out, memory):
    """Of every output that has a gradient, none with the same weight."""
    weighted = lambda x: (x * torch.linspace(-1, 2, x.numel(), dtype=x.dtype).view_as(x)).sum()
    return weighted(out) + weighted(memory)


class Operator(unittest.TestCase):
    def test_gradients_are_those_of_the_function(self):
        for kind, make in KINDS.items():
            with self.subTest(kind=kind):
                positional, named = make()
                leaves = differentiable(positional, named)
                place = {id(t): i for i, t in enumerate(leaves)}

                def function(*values):
                    pick = lambda t: values[place[id(t)]] if id(t) in place else t
                    return selective_attention(*map(pick, positional), **{n: pick(t) for n, t in named.items()})[:2]

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
                    torch.library.opcheck(selective_attention.default, tuple(positional), named)
                    torch.library.opcheck(selective_prune.default, tuple(positional), {**named, "budget": 3})

    def test_opcheck_of_backward(self):
        for kind, make in KINDS.items():
            with self.subTest(kind=kind):
                positional, named = make()
                positional = [t.detach() for t in positional]
                named = {n: t.detach() if isinstance(t, torch.Tensor) else t for n, t in named.items()}
                out, memory, _, stats = selective_attention(*positional, **named)
                given = (torch.ones_like(out), torch.ones_like(memory), out, stats, *positional)
                torch.library.opcheck(torch.ops.lapse.selective_attention_backward.default, given, named)

    def check_compiled(self, make, **options):
        def function(positional, named):
            until = selective_prune(*positional, **named, budget=3)
            out, memory, masking, _ = selective_attention(*positional, **{**named, "until": until})
            return loss(out.sin(), memory), out, masking

        results = []
        for run in (function, torch.compile(function, backend="aot_eager", fullgraph=True, **options)):
            positional, named = make()
            value, out, masking = run(positional, named)
            value.backward()
            results.append([value, out, masking, *[t.grad for t in differentiable(positional, named)]])
        for eager, compiled in zip(*results, strict=True):
            torch.testing.assert_close(compiled, eager, rtol=1e-12, atol=1e-12)

    def test_compiled(self):
        for kind, make in KINDS.items():
            with self.subTest(kind=kind):
                torch.compiler.reset()
                self.check_compiled(make)

    def test_compiled_for_any_shape(self):
        torch.compiler.reset()
        self.check_compiled(inputs, dynamic=True)

    def test_without_gradients(self):
        for dtype in (torch.float64, torch.float32):
            positional, named = inputs(dtype)
            expected = selective_attention(*positional, **named)
            for mode in (torch.no_grad, torch.inference_mode):
                with mode():
                    given = selective_attention(*positional, **named)
                for ours, theirs in zip(given, expected):
                    self.assertFalse(ours.requires_grad)
                    self.assertTrue(torch.equal(ours, theirs))
            self.assertTrue(expected[0].requires_grad and expected[1].requires_grad)
            self.assertFalse(expected[2].requires_grad or expected[3].requires_grad)

    def test_gradients_of_one_output_or_input_alone(self):
        for which in (0, 1):
            positional, named = inputs()
            selective_attention(*positional, **named)[which].sum().backward()
            self.assertGreater(positional[1].grad.abs().sum(), 0)
        positional, named = inputs()
        rest = [t.detach() for t in positional[1:]]
        selective_attention(positional[0], *rest)[0].sum().backward()
        self.assertGreater(positional[0].grad.abs().sum(), 0)

    def test_masking_reaches_head_zero_alone(self):
        """The memory used depends on no other head, nor on the values."""
        positional, named = inputs()
        selective_attention(*positional, **named)[1].sum().backward()
        for tensor in positional[:2]:
            self.assertGreater(tensor.grad[..., 0, :].abs().sum(), 0)
            self.assertEqual(tensor.grad[..., 1, :].abs().sum(), 0)
        self.assertEqual(positional[2].grad.abs().sum(), 0)

    def test_spare_rows_change_nothing(self):
        positional, named = inputs()
        out, memory, _, _ = selective_attention(*positional, **named)
        loss(out, memory).backward()
        for tensor in positional[1:3]:
            self.assertEqual(tensor.grad[-2:].abs().sum(), 0)
            tensor.data[-2:] = 1e9
        again = selective_attention(*positional, **named)
        self.assertTrue(torch.equal(out, again[0]) and torch.equal(memory, again[1]))

    def test_bad_inputs_are_named(self):
        positional, named = inputs()
        cases = {
            "q must be": lambda p, n: ([p[0][0]] + p[1:], n),
            "v must have the shape of k": lambda p, n: (p[:2] + [p[2][:3]] + p[3:], n),
            "offsets": lambda p, n: (p[:3] + [p[3].int()] + p[4:], n),
            "masking": lambda p, n: (p, {**n, "masking": n["masking"][:3]}),
            "first": lambda p, n: (p, {**n, "first": p[5]}),
            "cap": lambda p, n: (p, {**n, "cap": -1.0}),
            "seed": lambda p, n: (p, {**n, "dropout": 0.5}),
        }
        for words, change in cases.items():
            bad_positional, bad_named = change(positional, named)
            with self.assertRaisesRegex(RuntimeError, words):
                selective_attention(*bad_positional, **bad_named)
            with torch.inference_mode(), self.assertRaisesRegex(RuntimeError, words):
                selective_attention(*bad_positional, **bad_named)


if __name__ == "__main__":
    unittest.main()
