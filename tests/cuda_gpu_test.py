"""On a GPU: PyTorch's operators go to liblapse_cuda.so and its compiled kernels, right by the references on the CPU, by
autograd's rules and by PyTorch's own opcheck."""

import importlib.util
import os
import pathlib
import sys
import unittest

import torch

if not torch.cuda.is_available():
    sys.exit(77)  # skipped
os.environ["LAPSE_GPU"] = "1"
ROOT = pathlib.Path(__file__).resolve().parent.parent
LIBRARIES = pathlib.Path(os.environ.get("LAPSE_OPERATORS", ROOT / "build" / "release"))
if not (LIBRARIES / "lapse_kernels.bin").exists():
    print("there are no compiled kernels; make them: scripts/build.sh release cuda_kernels")
    sys.exit(77)
os.environ["LAPSE_OPS"] = str(LIBRARIES / "liblapse_ops.so")

import ramp_triton_test as ramp  # noqa: E402
import selective_triton_test as selective  # noqa: E402

# Shapes for torch.compile; by its path, since `lapse` is the kernels' folder here.
fake = importlib.util.spec_from_file_location("lapse_fake", ROOT / "python" / "lapse" / "_fake.py")
module = importlib.util.module_from_spec(fake)
fake.loader.exec_module(module)
module.register()

torch.ops.load_library(LIBRARIES / "liblapse_cuda.so")


def with_gradients(args):
    return {n: x.detach().requires_grad_() if torch.is_tensor(x) and x.is_floating_point() and n != "masking" else x
            for n, x in args.items()}  # fmt: skip


class Compiled(unittest.TestCase):
    assert_near = ramp.Kernels.assert_near

    def check_outputs(self, operator, args, tolerance, what):
        """Without gradients, and where a kernel of its own reads few queries."""
        expected = operator(**ramp.doubled(args))
        got = operator(**ramp.there(args))
        for i, (x, y) in enumerate(zip(got, expected, strict=True)):
            self.assert_near(x, y, tolerance, f"{what}, output {i}")

    def check(self, operator, args, tolerance, outputs):
        """Two outputs and every gradient of a weighted sum of them."""
        results = []
        for given in (with_gradients(ramp.doubled(args)), with_gradients(ramp.there(args))):
            y = operator(**given)
            weights = [torch.sin(torch.arange(x.numel(), dtype=torch.float64)).view(x.shape).to(x) for x in y[:2]]
            sum((x * w).sum() for x, w in zip(y[:2], weights)).backward()
            leaves = {n: x.grad for n, x in given.items() if torch.is_tensor(x) and x.requires_grad}
            results.append({**dict(zip(outputs, y)), **leaves})
        for name, expected in results[0].items():
            self.assert_near(results[1][name], expected, tolerance, name)

    def test_ramp_attention(self):
        for name in ramp.CASES:
            for dtype in ramp.TOLERANCE:
                with self.subTest(name, dtype=dtype):
                    self.check(torch.ops.lapse.ramp_attention, ramp.make(name, dtype), 4 * ramp.tolerance(name, dtype),
                               ("out", "ramp_sum"))  # fmt: skip

    def test_selective_attention(self):
        for name in selective.CASES:
            for dtype in selective.TOLERANCE:
                with self.subTest(name, dtype=dtype):
                    self.check(torch.ops.lapse.selective_attention, selective.make(name, dtype),
                               8 * selective.tolerance(name, dtype), ("out", "memory"))  # fmt: skip

    def test_what_rows_receive_and_few_queries(self):
        for module, operator in ((ramp, torch.ops.lapse.ramp_attention), (selective, torch.ops.lapse.selective_attention)):
            for name in module.CASES:
                for dtype in module.TOLERANCE:
                    args = module.make(name, dtype)
                    more = {"received": True} if module is ramp else {}
                    with self.subTest(name, operator=str(operator), dtype=dtype):
                        self.check_outputs(operator, args | more, 2 * module.tolerance(name, dtype), name)
                        for few in (1, 3):
                            if "dropout" not in args and args["q"].shape[1] >= few:
                                last = ramp.last_queries(args, few)  # what rows receive is not summed there
                                self.check_outputs(operator, last, 2 * module.tolerance(name, dtype), f"{name}, {few}")

    def test_budgets_drop_the_same_rows(self):
        for name in ("ragged", "own selection", "ablations", "empty memory", *selective.LARGE):
            args = selective.make(name, torch.float32)
            expected = torch.ops.lapse.selective_prune(**selective.doubled(args), budget=7)
            got = torch.ops.lapse.selective_prune(**selective.there(args), budget=7).cpu()
            self.assertTrue(torch.equal(got, expected), name)

    def test_rows_expire_at_the_same_times(self):
        for size in (3.3, 65536.0):
            for dtype in (*ramp.TOLERANCE, torch.float64):
                span = ramp.awkward_spans(size).to(dtype)
                time = torch.arange(span.numel()) * 11 - 100
                got = torch.ops.lapse.ramp_until(time.cuda(), span.cuda(), size).cpu()
                self.assertTrue(torch.equal(got, torch.ops.lapse.ramp_until(time, span, size)), (size, dtype))

    def test_a_seed_of_the_cpu_goes_there_without_waiting(self):
        args = ramp.make("row spans, dropout", torch.float32)
        expected = torch.ops.lapse.ramp_attention(**ramp.there(args))
        given = ramp.there(args) | {"seed": args["seed"]}
        torch.cuda.set_sync_debug_mode("error")
        try:
            got = torch.ops.lapse.ramp_attention(**given)
        finally:
            torch.cuda.set_sync_debug_mode("default")
        for x, y in zip(got, expected, strict=True):
            self.assertTrue(torch.equal(x, y))

    def test_autocast_does_not_reach_into_the_kernels(self):
        for operator, args in ((torch.ops.lapse.ramp_attention, ramp.make("row spans, positions", torch.float32)),
                               (torch.ops.lapse.selective_attention, selective.make("from a stream's beginning", torch.float32))):  # fmt: skip
            expected = operator(**ramp.there(args))
            with torch.autocast("cuda", torch.bfloat16):
                got = operator(**ramp.there(args))
            for x, y in zip(got, expected, strict=True):
                self.assertTrue(torch.equal(x, y))

    def test_a_call_in_a_cuda_graph_gives_the_same_bits(self):
        """Shapes stay, so a graph can hold both passes: nothing in them asks the device for a number."""
        for operator, args in ((torch.ops.lapse.ramp_attention, ramp.make("row spans, positions", torch.float32)),
                               (torch.ops.lapse.selective_attention, selective.make("own selection", torch.float32))):  # fmt: skip
            given = with_gradients(ramp.there(args))
            given["offsets"] = given["offsets"].pin_memory()  # a copy from other memory waits
            leaves = [x for x in given.values() if torch.is_tensor(x) and x.requires_grad]

            def both():
                out = operator(**given)[0]
                return out, *torch.autograd.grad(out.square().sum(), leaves, allow_unused=True)

            side = torch.cuda.Stream()
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side):  # loads the kernels
                expected = [x if x is None else x.clone() for x in both()]
            torch.cuda.current_stream().wait_stream(side)
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                got = both()
            graph.replay()
            torch.cuda.synchronize()
            for x, y in zip(got, expected, strict=True):
                self.assertTrue(x is y is None or torch.equal(x, y))

    def test_opcheck(self):
        args = with_gradients(ramp.there(ramp.make("row spans, positions", torch.float32)))
        torch.library.opcheck(torch.ops.lapse.ramp_attention.default, (), args)
        args = with_gradients(ramp.there(selective.make("own selection", torch.float32)))
        torch.library.opcheck(torch.ops.lapse.selective_attention.default, (), args)


if __name__ == "__main__":
    unittest.main()
