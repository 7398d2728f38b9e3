"""lapse.ops under torch.compile: the same numbers, no graph breaks, and assertions that stay."""

import traceback
import unittest
from unittest import mock

import torch
from ops_test import B, D, G, H, N, RAMP, draw, inputs, spans
from torch.fx.experimental.proxy_tensor import make_fx

from lapse import _fake, ops


class Compiled(unittest.TestCase):
    def check_compiled(self, function, *leaves):
        torch.compiler.reset()
        results = []
        for run in (function, torch.compile(function, backend="aot_eager", fullgraph=True)):
            copies = [x.detach().clone().requires_grad_() for x in leaves]
            value = run(*copies)
            value.sum().backward()
            results.append([value, *[x.grad for x in copies]])
        for eager, compiled in zip(*results, strict=True):
            torch.testing.assert_close(compiled, eager, rtol=1e-12, atol=1e-12)

    def test_compile_without_graph_breaks(self):
        q, k, v = inputs()
        self.check_compiled(
            lambda q, k, v, s: ops.ramp_attention(q, k, v, row_span=s, ramp=RAMP).out.sin(), q, k, v, spans()
        )
        first = torch.zeros(B, N, dtype=torch.bool)
        self.check_compiled(
            lambda q, k, v: ops.selective_attention(
                q, k, v, first=first, until=ops.selective_prune(q, k, budget=4, first=first)
            ).out.sin(),
            q,
            k,
            v,
        )
        cu = torch.tensor([0, 3, 4, 9])
        self.check_compiled(
            lambda q, k, v: ops.ramp_attention(q, k, v, cu_seqlens=cu, max_seqlen=5).out.sin(),
            draw(9, H, D, seed=5),
            draw(9, G, D, seed=6),
            draw(9, G, D, seed=7),
        )

    def test_packed_calls_compile_as_on_a_gpu(self):
        """Inductor makes searchsorted itself there, from a tensor that has a place in memory, which a slice has not. Here that
        ends where it would be written for a CPU."""
        rows = draw(9, H, D, seed=5), draw(9, G, D, seed=6), draw(9, G, D, seed=7)
        run = lambda q, k, v, cu: ops.ramp_attention(q, k, v, cu_seqlens=cu, max_seqlen=5).out
        for kind in (torch.int64, torch.int32):
            torch.compiler.reset()
            there = mock.patch("torch._inductor.graph.GraphLowering.has_feature", lambda *_: True)
            compiled = torch.compile(run, options={"fx_graph_cache": False})
            with there, torch.no_grad():
                try:
                    compiled(*rows, torch.tensor([0, 3, 4, 9], dtype=kind))
                    frames = []
                except torch._inductor.exc.InductorError as error:
                    frames = traceback.extract_tb(error.__traceback__)
            self.assertEqual([frame.name for frame in frames][-1:], ["bucketize"], kind)

    def test_shapes_on_a_gpu_stay_symbols(self):
        """A new number of rows must not be a new graph."""
        both = lambda q, k: (
            *_fake.ramp_attention(q, k, k, None, None, None, received=True),
            *_fake.selective_attention(q, k, k),
        )
        graph = make_fx(both, tracing_mode="symbolic")(torch.empty(3, 5, H, D), torch.empty(24, G, D))
        self.assertEqual([str(guard.expr) for guard in graph.shape_env.guards], [])

    def test_compiled_with_a_small_max_seqlen(self):
        q, k, v = draw(9, H, D, seed=5), draw(9, G, D, seed=6), draw(9, G, D, seed=7)
        torch.compiler.reset()
        run = lambda q, k, v, cu: ops.ramp_attention(q, k, v, cu_seqlens=cu, max_seqlen=4).out
        compiled = torch.compile(run, backend="aot_eager", fullgraph=True)
        with torch.no_grad(), self.assertRaisesRegex(RuntimeError, "a sample has more queries than max_seqlen"):
            compiled(q, k, v, torch.tensor([0, 3, 4, 9]))

    def test_compiled_with_offsets_that_do_not_fit(self):
        rows = draw(6, H, D, seed=5), draw(6, G, D, seed=6), draw(6, G, D, seed=7)
        run = lambda q, k, v, cu, cu_k: ops.ramp_attention(q, k, v, cu_seqlens=cu, cu_seqlens_k=cu_k, max_seqlen=6).out
        for dynamic in (None, True):
            torch.compiler.reset()
            compiled = torch.compile(run, backend="aot_eager", fullgraph=True, dynamic=dynamic)
            for name, cu, cu_k in (
                ("cu_seqlens", [0, 3, 5], None),
                ("cu_seqlens", [0, 3, 9], None),
                ("cu_seqlens", [1, 3, 6], None),
                ("cu_seqlens", [4, 3, 6], [0, 3, 6]),
                ("cu_seqlens_k", [0, 3, 6], [0, 3, 5]),
            ):
                given = [None if x is None else torch.tensor(x) for x in (cu, cu_k)]
                with self.assertRaisesRegex(RuntimeError, f"{name} must ascend from 0 to the number of rows"):
                    compiled(*rows, *given)  # with gradients: no partition may drop the assertion
            self.assertEqual(compiled(*rows, torch.tensor([0, 3, 6]), None).shape, rows[0].shape)


if __name__ == "__main__":
    unittest.main()
