"""The Triton kernels of selective_attention and selective_prune against the references; see ramp_triton_test.py, whose
tolerances these are, with more roundings: F is a sum over all queries before, and its gradient over all after."""

import math
import os
import pathlib
import sys
import unittest
from unittest import mock

GPU = os.environ.get("LAPSE_GPU") == "1"
if not GPU:
    import interpreted  # noqa: F401
else:
    sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))

import torch  # noqa: E402
from ramp_triton_test import draw_options, draw_shape, drawn, few_queries, given, last_queries, some_of  # noqa: E402

from lapse.ops.attention.selective.cuda import call  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parent.parent
torch.ops.load_library(os.environ.get("LAPSE_OPS", str(ROOT / "build" / "release" / "liblapse_ops.so")))
DEVICE = torch.device("cuda" if GPU else "cpu")
TOLERANCE = {torch.float32: 4e-6, torch.bfloat16: 3e-2, torch.float16: 4e-3}
SPARE = 2

CASES = {
    "one of everything": dict(rows=(1,), K=1, H=1, D=1),
    "ragged": dict(rows=(61, 37, 0), K=37),
    "from a stream's beginning": dict(rows=(43, 70), K=43, H=3, G=1, D=7, P=5, masking=True),
    "own selection": dict(rows=(41, 29), K=23, E=5, masking=True, until=True, max_age=19),
    "ablations": dict(rows=(45,), K=40, masking=True, shift=False, mask_first=True, mask_self=True, relu=False,
    cap=2.0), "dropout": dict(rows=(40, 21), K=19, dropout=0.3),
    "bias by age": dict(rows=(45, 33), K=33, H=4, G=2, bias=6, bias_age=1, scale=0.7),
    "empty memory": dict(rows=(0, 0), K=5),
    # Blocks of rows that all queries of one block see, of the next some, and that end with a block of queries or one beside it.
    "blocks that end": dict(rows=(160, 97), K=72, ends=(40, 64, 31, 32, 33, 1, 72, 65, 63), mask_self=True),
    "every row a sample's": dict(rows=(30, 0, 21), K=21, G=1, masking=True, until=True, spare=0),
    "own keys, rows before the first sample": dict(rows=(30,), K=21, E=5, max_age=9, lead=2, spare=0),
    "own rows at blocks' ends": dict(rows=(111, 79), K=64, H=4, G=2),  # which are seen by all, but masked by all queries but the first
    # Weights of queries beyond the last would be infinite: F is far below 0.
    "F below zero": dict(rows=(61,), K=40, negative=True, relu=False),
}

if GPU:  # several blocks of queries at every tile, both widths; sums of some thousand
    LARGE = {
        "large": dict(rows=(600, 330), K=330, H=4, G=2, D=128, scale=0.05),
        "large, extras": dict(rows=(410,), K=300, D=64, P=40, masking=True, until=True, scale=0.05),
        "large, own selection": dict(rows=(350, 290), K=260, D=80, E=24, masking=True),
    }
    CASES |= LARGE
else:
    LARGE = {}


def tolerance(name, dtype):
    """Four times where sums are of thousands, or F of a hundred is rounded to some 1e-5."""
    return TOLERANCE[dtype] * (4 if name in LARGE or name == "F below zero" else 1)


def make(name, dtype):
    c = dict(H=2, D=16, G=None, P=0, spare=SPARE, lead=0) | CASES[name]
    draw = torch.Generator().manual_seed(sum(map(ord, name)))
    rows, K, H, D = c["rows"], c["K"], c["H"], c["D"]
    G, B, N = c["G"] or H, len(rows), c["lead"] + sum(rows) + c["spare"]
    normal = lambda *shape: torch.randn(*shape, generator=draw).to(dtype)
    zeros = torch.zeros(SPARE, dtype=torch.long)
    starts = torch.tensor([max(0, n - K) for n in rows])
    times = [starts[b] + K - torch.arange(n, 0, -1) for b, n in enumerate(rows)]
    args = dict(q=normal(B, K, H, D), k=normal(N, G, D), v=normal(N, G, D),
                offsets=torch.tensor((c["lead"], *rows)).cumsum(0), start=starts,
                time=torch.cat([zeros[: c["lead"]], *times, zeros[: c["spare"]]]))  # fmt: skip
    args["first"] = args["time"] == 0
    if c.get("masking"):
        args["masking"] = torch.rand(N, generator=draw)
    if c.get("E"):
        args |= dict(select_q=normal(B, K, c["E"]), select_k=normal(N, c["E"]))
    if c["P"]:
        args["position"] = normal(c["P"], D).float()
    if c.get("until"):
        args["until"] = args["time"] + torch.randint(1, 40, (N,), generator=draw)
    if c.get("ends"):
        args["until"] = torch.cat([torch.full((16,), args["start"][0] + end) for end in c["ends"]] * 2)[:N]
        args["until"] = torch.cat([args["until"], torch.full((N - args["until"].numel(),), 2**62)])
    if c.get("negative"):
        args |= dict(q=args["q"].abs(), k=-args["k"].abs())
    if c.get("dropout"):
        args |= dict(dropout=c["dropout"], seed=torch.tensor([5]))
    if c.get("bias"):
        args |= dict(age_bias=torch.randn(H, c["bias"], generator=draw), bias_age=c["bias_age"])
    known = "max_age scale shift mask_first mask_self relu cap".split()
    return args | {n: c[n] for n in known if n in c}


def draw_case(r):
    case = draw_shape(r) | dict(budget=r.choice((1, 3, 9)))
    more = dict(masking=True, E=r.choice((1, 5, 20)), shift=False, mask_first=True, mask_self=True, relu=False,
                cap=r.choice((0.5, 3.0, math.inf)))  # fmt: skip
    return case | some_of(r, draw_options(r, case["D"]) | more)


def doubled(args):
    return {n: x.double() if torch.is_tensor(x) and x.is_floating_point() else x for n, x in args.items()}


def there(args):
    return {n: x.to(DEVICE) if torch.is_tensor(x) and n != "offsets" else x for n, x in args.items()}


class Kernels(unittest.TestCase):
    def assert_near(self, got, expected, tolerance, what):
        self.assertEqual(tuple(got.shape), tuple(expected.shape), what)
        got, finite = got.detach().cpu().double(), torch.isfinite(expected)
        self.assertTrue(torch.equal(got[~finite], expected[~finite]), what)
        if finite.any():
            error = (got - expected)[finite].abs().max().item() / max(1.0, expected[finite].abs().max().item())
            self.assertLessEqual(error, tolerance, what)

    def check(self, name, dtype):
        args = make(name, dtype)
        reference = doubled(args)
        expected = torch.ops.lapse.selective_attention(**reference)
        got = call.selective_attention(**there(args))
        for which, x, y in zip(("out", "memory", "masking", "stats"), got, expected, strict=True):
            self.assert_near(x, y, tolerance(name, dtype), f"{name}, {which}")
        draw = torch.Generator().manual_seed(3)
        out, stats = expected[0], expected[3]
        grad = torch.randn(out.shape, generator=draw).to(dtype)
        grad_memory = torch.randn(stats.shape[:2], generator=draw)
        expected = torch.ops.lapse.selective_attention_backward(grad.double(), grad_memory.double(), out, stats,
        **reference)
        got = call.selective_attention_backward(grad.to(DEVICE), grad_memory.to(DEVICE), out.to(dtype).to(DEVICE),
                                                stats.float().to(DEVICE), **there(args))  # fmt: skip
        for which, x, y in zip("q k v select_q select_k position age_bias".split(), got, expected, strict=True):
            if x is None:
                self.assertEqual(y.numel(), 0)
            else:
                self.assert_near(x, y, 4 * tolerance(name, dtype), f"{name}, gradient of {which}")

    def check_few_queries(self, name, dtype):
        for args in few_queries(make(name, dtype)):
            with self.subTest(name, dtype=dtype, queries=args["q"].shape[1]):
                expected = torch.ops.lapse.selective_attention(**doubled(args))
                got = call.selective_attention(**there(args))
                for which, x, y in zip("out memory masking stats".split(), got, expected, strict=True):
                    self.assert_near(x, y, tolerance(name, dtype), f"{name}, {which}")

    def check_budget(self, name, budget):
        with self.subTest(name, budget=budget):
            args = make(name, torch.float32)
            expected = torch.ops.lapse.selective_prune(**doubled(args), budget=budget)
            got = call.selective_prune(**there(args), budget=budget).cpu()
            self.assertTrue(torch.equal(got, expected), f"{(got != expected).nonzero().flatten()}")

    def test_float32(self):
        for name in CASES:
            with self.subTest(name):
                self.check(name, torch.float32)

    def test_few_queries(self):
        for name in CASES:
            for dtype in TOLERANCE if name == "from a stream's beginning" or name in LARGE else (torch.float32,):
                self.check_few_queries(name, dtype)

    def test_drawn_cases_and_tiles(self):
        for name, case, tile in drawn(draw_case):
            heads = 1 + int(name.split()[-1]) % (2 if GPU else 3)  # of a program: also more than there are
            together = mock.patch.object(call, "heads_together", lambda *_, heads=heads: heads)
            with self.subTest(name, case=case, tile=tile, heads=heads), given(CASES, call, name, case, tile), together:
                self.check(name, torch.float32)
                self.check_few_queries(name, torch.float32)
                self.check_budget(name, case["budget"])

    def test_nan_is_shown(self):
        for few in (False, True):
            args = make("ragged", torch.float32)
            args["k"][70] = float("nan")  # a row of the second sample
            if few:
                args = last_queries(args, 1)
            out, _, masking, _ = call.selective_attention(**there(args))
            self.assertTrue(bool(out[1, -1].isnan().all()), few)
            self.assertFalse(bool(out[0].isnan().any()), few)
            self.assertTrue(bool(masking[70].isnan()), few)

    def test_a_key_that_ended_is_not_shown(self):
        args = make("blocks that end", torch.float32)
        expected = call.selective_attention(**there(args))[0]
        args["k"][5] = float("nan")  # until query 40
        out = call.selective_attention(**there(args))[0]
        self.assertTrue(bool(out[0, :40].isnan().all()))
        self.assertTrue(torch.equal(out[0, 40:], expected[0, 40:]))

    def test_half_precision(self):
        for name in ("dropout", *LARGE):
            for dtype in (torch.bfloat16, torch.float16):
                with self.subTest(name, dtype=dtype):
                    self.check(name, dtype)

    def test_budgets_drop_the_same_rows(self):
        for name in ("ragged", "own selection", "ablations", "one of everything", "empty memory", *LARGE):
            for budget in (3, 11) if name == "ragged" else (7,):
                self.check_budget(name, budget)

    def test_the_same_at_every_run(self):
        args = there(make("own selection", torch.float32))
        out, _, _, stats = call.selective_attention(**args)
        grads = [call.selective_attention_backward(out, stats[..., 0].clamp(-1, 1), out, stats,
        **args) for _ in range(2)]
        for x, y in zip(*grads, strict=True):
            self.assertTrue(x is y is None or torch.equal(x, y))


if __name__ == "__main__":
    if GPU and not torch.cuda.is_available():
        sys.exit(77)  # skipped
    unittest.main()
