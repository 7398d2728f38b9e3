"""The Triton kernels of ramp_attention against the reference: interpreted on the CPU, or on a GPU where LAPSE_GPU=1.

Errors are relative to the largest number of each tensor. The reference computes in float64 from the same inputs, so a
tolerance is some roundings of the kernels' precision: 2^-24 (float32, sums of some hundred), 2^-9 (bfloat16) and 2^-12
(float16) for weights and gradients rounded before a product.

LAPSE_CASES more cases are drawn, numbers LAPSE_SEED and on: a case that fails is drawn again by its number alone.
"""

import contextlib
import math
import os
import pathlib
import random
import sys
import unittest
from unittest import mock

GPU = os.environ.get("LAPSE_GPU") == "1"
if not GPU:
    import interpreted  # noqa: F401
else:
    sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))

import torch  # noqa: E402

from lapse.ops.attention.cuda import plan, rows as lines, tiles  # noqa: E402
from lapse.ops.attention.ramp.cuda import call  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parent.parent
torch.ops.load_library(os.environ.get("LAPSE_OPS", str(ROOT / "build" / "release" / "liblapse_ops.so")))
DEVICE = torch.device("cuda" if GPU else "cpu")
NEVER = 2**63 - 1
TOLERANCE = {torch.float32: 2e-6, torch.bfloat16: 2e-2, torch.float16: 3e-3}
SPARE = 3  # rows behind the last sample's, of which nothing is read
SEED = int(os.environ.get("LAPSE_SEED", 6945))  # eight cases from there on have every option
DRAWN = range(SEED, SEED + int(os.environ.get("LAPSE_CASES", 8)))
SUMMED = ("head_span", "position", "logit", "age_bias")  # whose gradients are sums over queries
TILES = ((32, 16), (16, 16), (16, 32), (64, 32), (32, 64))  # queries and rows: more, as many, fewer

CASES = {
    "one of everything": dict(rows=(1,), K=1, H=1, D=1),
    "row spans, ragged": dict(spans="row", rows=(61, 7, 0), K=37, G=1),
    "row spans, primes": dict(spans="row", rows=(83, 41), K=31, H=3, D=7, P=5),
    "row spans, positions": dict(spans="row", rows=(53, 70), K=34, P=11),
    "row spans, all expired": dict(spans="row", rows=(20, 33), K=9, shift=-400.0),
    "row spans, until": dict(spans="row", rows=(50, 66), K=33, until=True, P=4),
    "row spans, dropout": dict(spans="row", rows=(40, 21), K=19, dropout=0.3),
    "head spans": dict(spans="head", rows=(64, 35), K=33, H=4, G=2, P=6, min_age=0, max_age=29, logit=True),
    "head spans that end at whole ages": dict(spans="head", rows=(60, 90), K=17, whole=True, ramp=41.0),
    "no spans": dict(rows=(48, 77), K=48, G=1, H=3),
    "no spans, window": dict(rows=(90, 64), K=40, max_age=17, P=17, until=True),
    "empty memory": dict(rows=(0, 0), K=5),
    "later rows, bias by age": dict(rows=(45, 33), K=33, min_age=-(2**63), bias=9, bias_age=-4, scale=1.0),
    "one column of bias": dict(rows=(20,), K=17, bias=1, bias_age=2, logit=True),
    "heads of more than 64": dict(spans="row", rows=(21, 9), K=7, D=72, P=3),
    "every row a sample's": dict(spans="row", rows=(40, 0, 33), K=21, G=1, until=True, logit=True, spare=0),
    "bias, every row a sample's": dict(spans="row", rows=(60,), K=20, bias=5, bias_age=1, spare=0),
    "rows before the first sample": dict(spans="row", rows=(33, 20), K=20, until=True, lead=3, spare=0),
}

if GPU:  # several blocks of queries at every tile, both widths; sums of some thousand
    LARGE = {
        "large, row spans": dict(spans="row", rows=(700, 301, 0), K=300, H=4, G=2, D=128),
        "large, extras": dict(spans="row", rows=(520, 390), K=270, D=64, P=90, logit=True, until=True),
        "large, wide extras": dict(spans="head", rows=(460,), K=333, H=3, D=80, P=50, bias=40, bias_age=0),
    }
    CASES |= LARGE
else:
    LARGE = {}


def tolerance(name, dtype):
    return TOLERANCE[dtype] * (4 if name in LARGE else 1)


def make(name, dtype):
    """Arguments of the case, by name; of float32 where the operator lets another dtype be."""
    c = dict(H=2, D=16, G=None, P=0, spare=SPARE, spans=None, shift=0.0, lead=0) | CASES[name]
    draw = torch.Generator().manual_seed(sum(map(ord, name)))
    rows, K, H, D = c["rows"], c["K"], c["H"], c["D"]
    G, B, N = c["G"] or H, len(rows), c["lead"] + sum(rows) + c["spare"]
    normal = lambda *shape: torch.randn(*shape, generator=draw).to(dtype)
    uniform = lambda *shape: torch.rand(*shape, generator=draw)
    zeros = torch.zeros(SPARE, dtype=torch.long)
    starts = torch.tensor([1000 * (b + 1) for b in range(B)])
    times = [starts[b] + K - torch.arange(n, 0, -1) - torch.arange(n, 0, -1) // 7 * (b % 2) for b, n in enumerate(rows)]
    args = dict(q=normal(B, K, H, D), k=normal(N, G, D), v=normal(N, G, D),
                offsets=torch.tensor((c["lead"], *rows)).cumsum(0), start=starts,
                time=torch.cat([zeros[: c["lead"]], *times, zeros[: c["spare"]]]), ramp=7.0)  # fmt: skip
    if c["spans"] == "row":  # some long gone, some for ever, the corners of the ramp left out
        args["row_span"] = torch.floor(uniform(N) * 2 * max(rows)) - max(rows) / 4 + 0.37 + c["shift"]
    if c["spans"] == "head":
        args["head_span"] = uniform(H) * 30 + 0.4
    if c.get("whole"):  # r = -R at some pairs, where m is 0 and yet may be rounded to more
        args["head_span"] = args["head_span"].floor()
    if c["P"]:
        args["position"] = normal(c["P"], D).float()
    if c.get("logit"):
        args["logit"] = torch.randn(N, H, generator=draw)
    if c.get("until"):
        ends = args["time"] + torch.randint(1, 2 * max(1, *rows), (N,), generator=draw)
        args["until"] = torch.where(uniform(N) < 0.3, torch.full((N,), NEVER), ends)
    if c.get("dropout"):
        args |= dict(dropout=c["dropout"], seed=torch.tensor([5]))
    if c.get("bias"):
        args |= dict(age_bias=torch.randn(H, c["bias"], generator=draw), bias_age=c["bias_age"])
    return args | {n: c[n] for n in ("min_age", "max_age", "scale", "ramp") if n in c}


def draw_shape(r):
    """Heads that share keys or not; rows of each sample: none, one, fewer than queries, as many, more."""
    H, K = r.choice((1, 2, 2, 3, 4)), r.choice((1, 2, 3, 7, 16, 17, 31, 40, 53, 64, 67, 71))
    count = lambda: r.choice((0, 1, K, K + r.randrange(40), K + r.randrange(40), r.randrange(80)))
    rows = tuple(count() for _ in range(r.choice((1, 1, 2, 3))))
    G = r.choice([g for g in range(1, H + 1) if H % g == 0])
    return dict(rows=rows, K=K, H=H, G=G, D=r.choice((1, 3, 8, 16, 24, 72)), bias_age=r.choice((-5, 0, 1, 4)))


def draw_options(r, D):
    """What both operators have. Logits stay as large as in the cases above: a tolerance holds for their roundings too."""
    return dict(P=r.choice((1, 2, 9, 40, 200)), until=True, dropout=r.choice((0.1, 0.5, 0.9)),
                bias=r.choice((1, 2, 3, 20)), max_age=r.choice((0, 1, 7, 29, 60)),
                scale=r.choice((0.5, 1.2)) / math.sqrt(D))  # fmt: skip


def some_of(r, options):
    return {name: value for name, value in options.items() if r.random() < 0.4}


def draw_case(r):
    case = draw_shape(r) | dict(spans=r.choice((None, "row", "row", "head")), shift=r.choice((0.0, 0.0, -40.0, 30.0)))
    more = dict(logit=True, min_age=r.choice((-(2**63), -3, 0, 2, 5)))
    case |= some_of(r, draw_options(r, case["D"]) | more)
    if "max_age" in case:  # a window of at least one age
        case["max_age"] = max(case["max_age"], case.get("min_age", 1))
    return case


def drawn(draw):
    """Names, cases and tiles; any five in a row have every tile."""
    for number in DRAWN:
        yield f"drawn {number}", draw(random.Random(str(number))), tiles.Tile(*TILES[number % len(TILES)], 4, 1)


@contextlib.contextmanager
def given(cases, call, name, case, tile):
    """The case is there by its name, and kernels have the tile; on a GPU those that they are compiled with."""
    with contextlib.ExitStack() as stack:
        stack.enter_context(mock.patch.dict(cases, {name: case}))
        if not GPU:
            stack.enter_context(mock.patch.object(call, "tile", return_value=tile))
        yield


def last_queries(args, few):
    """The arguments with the last queries alone."""
    own = {n: args[n][:, -few:] for n in ("q", "select_q") if n in args}
    return args | own | {"start": args["start"] + args["q"].shape[1] - few}


def few_queries(args):
    """The last query alone, then the last three, which a kernel that shares out the rows reads; but for dropout."""
    for few in (1, 3):
        if "dropout" not in args and args["q"].shape[1] >= few:
            yield last_queries(args, few)


@contextlib.contextmanager
def uninitialised_is_nan():
    """torch.empty is NaN: what nobody writes shows."""
    before = torch.are_deterministic_algorithms_enabled()
    torch.use_deterministic_algorithms(True, warn_only=True)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(before, warn_only=before)


def gradients_of(args, dtype):
    draw = torch.Generator().manual_seed(3)
    grad = torch.randn(args["q"].shape, generator=draw).to(dtype)
    return grad, torch.randn(args["q"].shape[0], generator=draw)


def doubled(args):
    return {n: x.double() if torch.is_tensor(x) and x.is_floating_point() else x for n, x in args.items()}


def there(args):
    return {n: x.to(DEVICE) if torch.is_tensor(x) and n != "offsets" else x for n, x in args.items()}


def awkward_spans(ramp):
    """Of expiry_test.cpp: at and beside the corners of the ramp, huge, negative, infinite and NaN; then drawn ones."""
    spans = [0.0, -0.0, 1e-8, 16777217, 1e7, -1e7, 2e9, -2e9, 1e30, -1e30, math.inf, -math.inf, math.nan, 0.3, 2.0**30 - ramp, -(2.0**30) - ramp]
    corners = torch.tensor([-3, 0, 1, 7, 40, 1000, 65536, 2.0**30, -(2.0**30)]) - ramp
    for off in (-1, -1e-3, -1e-6, 0, 1e-6, 1e-3, 1):
        spans += (corners + off).tolist()
    near = [torch.nextafter(corners, torch.full_like(corners, end)) for end in (-1e9, 1e9)]
    draw = torch.Generator().manual_seed(1)
    uniform = lambda n, size: (torch.rand(n, generator=draw) * 2 - 1) * size
    return torch.cat([torch.tensor(spans), *near, uniform(600, 2e9), uniform(600, 4e3)])


class Kernels(unittest.TestCase):
    def assert_near(self, got, expected, tolerance, what, least=1.0):
        self.assertEqual(tuple(got.shape), tuple(expected.shape), what)
        got, expected = got.detach().cpu().double(), expected.detach()
        infinite = torch.isinf(expected)
        self.assertTrue(torch.equal(got[infinite], expected[infinite]), what)
        error = (got - expected)[~infinite].abs().max().item() if (~infinite).any() else 0.0
        largest = max(least, expected[~infinite].abs().max().item()) if (~infinite).any() else least
        self.assertLessEqual(error / largest, tolerance, what)

    def check(self, name, dtype, terms=1):
        """`terms`: how many queries the gradients in SUMMED are summed over. Where the terms cancel, what is left is their
        roundings, which grow like the root of their number; and with dropout the terms are 1 / (1 - p) times as large."""
        args = make(name, dtype)
        reference = doubled(args)
        expected = torch.ops.lapse.ramp_attention(**reference, received=True)
        got = call.ramp_attention(**there(args), received=True)
        for which, x, y in zip(("out", "ramp_sum", "received", "stats"), got, expected, strict=True):
            self.assert_near(x, y, tolerance(name, dtype), f"{name}, {which}")

        grad, grad_sum = gradients_of(args, dtype)
        out, stats = expected[0], expected[3]
        lse = None if "row_span" in args or "head_span" in args else torch.cos(torch.arange(stats[..., 0].numel()))
        if lse is not None:
            lse = lse.view(stats.shape[:3]).double() * (stats[..., 1] > 0)
        expected = torch.ops.lapse.ramp_attention_backward(grad.double(), grad_sum.double(), out, stats, **reference,
                                                           grad_lse=lse)  # fmt: skip
        move = lambda x: None if x is None else x.to(DEVICE)
        got = call.ramp_attention_backward(move(grad), move(grad_sum), move(out.to(dtype)), move(stats.float()),
                                           grad_lse=move(lse), **there(args))  # fmt: skip
        names = "q k v row_span head_span position logit age_bias".split()
        for which, x, y in zip(names, got, expected, strict=True):
            if x is None:
                self.assertEqual(y.numel(), 0)
            else:
                least = (math.sqrt(terms) if which in SUMMED else 1.0) / (1 - args.get("dropout", 0.0))
                self.assert_near(x, y, 2 * tolerance(name, dtype), f"{name}, gradient of {which}", least)

    def check_few_queries(self, name, dtype):
        for args in few_queries(make(name, dtype)):
            with self.subTest(name, dtype=dtype, queries=args["q"].shape[1]):
                expected = torch.ops.lapse.ramp_attention(**doubled(args))
                got = call.ramp_attention(**there(args))
                for which, x, y in zip("out ramp_sum received stats".split(), got, expected, strict=True):
                    self.assert_near(x, y, tolerance(name, dtype), f"{name}, {which}")

    def test_float32(self):
        for name in CASES:
            with self.subTest(name):
                self.check(name, torch.float32)

    def test_few_queries(self):
        for name in CASES:
            for dtype in TOLERANCE if "primes" in name or name in LARGE else (torch.float32,):
                self.check_few_queries(name, dtype)

    def test_drawn_cases_and_tiles(self):
        for name, case, tile in drawn(draw_case):
            with self.subTest(name, case=case, tile=tile), given(CASES, call, name, case, tile):
                self.check(name, torch.float32, terms=len(case["rows"]) * case["K"])
                self.check_few_queries(name, torch.float32)

    def test_a_head_span_of_nan_is_shown_in_its_head_and_a_row_span_of_nan_is_seen_by_nobody(self):
        for few in (False, True):
            for name in ("head spans", "row spans, until"):
                args = make(name, torch.float32)
                if few:
                    args = last_queries(args, 1)
                spans = args["head_span"] if "head_span" in args else args["row_span"]
                spans[1] = math.nan
                expected = torch.ops.lapse.ramp_attention(**args)[0].isnan()
                got = call.ramp_attention(**there(args))[0].cpu().isnan()
                self.assertTrue(torch.equal(got, expected), (name, few))
                self.assertEqual(bool(expected[:, -1, 1].all()), name == "head spans")

    def test_until(self):
        for ramp in (1.0, 0.1, 3.3, 32.0, 1000.7, 65536.0):
            spans = awkward_spans(ramp)
            for dtype in TOLERANCE:
                for n in (1, 1024, spans.numel()):
                    span, time = spans.to(dtype)[-n:], torch.arange(n) * 11 - 100
                    expected = torch.ops.lapse.ramp_until(time, span, ramp)
                    got = call.ramp_until(time.to(DEVICE), span.to(DEVICE), ramp).cpu()
                    self.assertTrue(torch.equal(got, expected), (ramp, dtype, n))
            self.assertEqual({-(2**63), NEVER} - set(expected.tolist()), set())

    def test_half_precision(self):
        halves = (torch.bfloat16, torch.float16)
        chosen = {"row spans, primes": halves, "row spans, dropout": halves[:1], "head spans": halves[1:]}
        for name, dtypes in (chosen | dict.fromkeys(LARGE, halves)).items():
            for dtype in dtypes:
                with self.subTest(name, dtype=dtype):
                    self.check(name, dtype)

    def test_the_same_at_every_run_and_from_any_strides(self):
        args = there(make("row spans, positions", torch.float32))
        out, _, _, stats = call.ramp_attention(**args)
        grad, grad_sum = (x.to(DEVICE) for x in gradients_of(args, torch.float32))
        strided = dict(args)
        for name in ("q", "k", "v"):
            strided[name] = args[name].transpose(0, 1).contiguous().transpose(0, 1)
        expanded = grad[:, :1, :1].expand_as(grad)
        first = call.ramp_attention_backward(expanded, grad_sum, out, stats, **args)
        second = call.ramp_attention_backward(expanded.contiguous(), grad_sum, out, stats, **strided)
        for x, y in zip(first, second, strict=True):
            self.assertTrue(x is y is None or torch.equal(x, y))

    def test_unseen_rows_are_not_read(self):
        args = make("row spans, positions", torch.float32)
        start = args["start"].repeat_interleave(args["offsets"].diff())
        gone = args["row_span"][:-SPARE] - (start - args["time"][:-SPARE]).clamp(min=1) <= -args["ramp"]
        unseen = torch.cat([gone, torch.ones(SPARE, dtype=torch.bool)])
        self.assertGreater(int(unseen.sum()), SPARE)
        out, ramp_sum, _, stats = call.ramp_attention(**there(args))
        grad, grad_sum = (x.to(DEVICE) for x in gradients_of(args, torch.float32))
        for name in ("k", "v", "row_span"):
            args[name] = args[name].masked_fill(unseen.view(-1, *[1] * (args[name].dim() - 1)), math.nan)
        again = call.ramp_attention(**there(args))
        self.assertTrue(torch.equal(out, again[0]) and torch.equal(ramp_sum, again[1]))
        gradients = call.ramp_attention_backward(grad, grad_sum, out, stats, **there(args))
        for gradient in gradients[1:4]:
            self.assertEqual(gradient[unseen].abs().sum().item(), 0)
            self.assertTrue(torch.isfinite(gradient).all())

    def test_the_gradient_of_every_row_is_written(self):
        """Where all rows are some sample's, gradients begin as what happens to be in memory: here NaN."""
        chosen = ("row spans, ragged", "row spans, all expired", "row spans, until", "head spans", "heads of more than 64")
        for args in [make(name, torch.float32) for name in chosen] + [self.many_rows(700)]:
            args = there(args)
            out, _, _, stats = call.ramp_attention(**args)
            grads = [x.to(DEVICE) for x in gradients_of(args, torch.float32)]
            expected = call.ramp_attention_backward(*grads, out, stats, **args)
            of_rows = ("k", "v", "time", "row_span", "until", "logit")
            own = {n: args[n][: args["offsets"][-1]] for n in of_rows if n in args}
            with uninitialised_is_nan():
                got = call.ramp_attention_backward(*grads, out, stats, **(args | own))
            for name, x, y in zip("k v row_span logit".split(), (*got[1:4], got[6]), (*expected[1:4], expected[6]), strict=True):
                self.assertTrue(x is y is None or torch.equal(x, y[: len(x)]), name)

    def test_rows_are_packed_by_when_they_expire(self):
        """Those that last, then by their last query, the latest first; behind them those that nobody sees. Others, and those of a
        bucket, are in the table's order; with positions all that do not last are one bucket."""
        chosen = ("row spans, positions", "row spans, ragged", "row spans, until", "rows before the first sample", "head spans", "no spans, window")
        packed_into = set()
        for args in [make(name, torch.float32) for name in chosen] + [self.many_rows()]:
            K, spans = args["q"].shape[1], args.get("row_span")
            inputs = there({n: args.get(n) for n in ("offsets", "start", "time", "until")})
            of_rows = there({"row_span": spans, "head_span": args.get("head_span")})
            ages = {n: args[n] for n in ("ramp", "min_age", "max_age") if n in args}
            seen = plan.plan_rows(*inputs.values(), K, **of_rows, **ages, by_age="position" in args)
            packed, count = seen.packed.cpu().long(), seen.count.cpu()
            for b, (begin, end) in enumerate(zip(args["offsets"].tolist(), args["offsets"][1:].tolist())):
                middle = begin + int(count[b])
                index = packed[lines.INDEX.value, begin:end]
                self.assertEqual(sorted(index.tolist()), list(range(begin, end)))
                first, last, full = (packed[line.value, begin:middle] for line in (lines.FIRST, lines.LAST, lines.FULL))
                bucket = 1 + (K - 1 - last) * (lines.UNSEEN.value - 1) // K * ("position" not in args)
                bucket[(first <= 0) & (last == K - 1) & (full >= K - 1)] = 0
                if spans is None:
                    bucket.zero_()
                packed_into |= set(bucket.tolist())
                places = list(zip(bucket.tolist(), index[: middle - begin].tolist()))
                self.assertEqual(places, sorted(places))
                self.assertEqual(index[middle - begin :].tolist(), sorted(index[middle - begin :].tolist()))
        self.assertGreater(len(packed_into), 10)

    def many_rows(self, rows=2900):
        """More rows than a program packs, some of them seen by no query."""
        K = plan.FEW_QUERIES + 1
        draw = torch.Generator().manual_seed(1)
        normal = lambda *shape: torch.randn(*shape, generator=draw)
        return dict(q=normal(2, K, 1, 16), k=normal(2 * rows, 1, 16), v=normal(2 * rows, 1, 16), offsets=torch.arange(3) * rows,
                    start=torch.tensor([rows, rows]), time=torch.arange(rows).repeat(2), row_span=normal(2 * rows) * 3000 + 0.3,
                    ramp=7.0)  # fmt: skip

    def test_many_blocks(self):
        """More rows than a program packs, and lists of more blocks than a program looks at."""
        args = make("no spans", torch.float32)
        rows, K = 17000, plan.FEW_QUERIES + 1
        draw = torch.Generator().manual_seed(1)
        normal = lambda *shape: torch.randn(*shape, generator=draw)
        args |= dict(q=normal(1, K, 1, 16), k=normal(rows, 1, 16), v=normal(rows, 1, 16), offsets=torch.tensor([0,
                     rows]), start=torch.tensor([rows]), time=torch.arange(rows),
                     row_span=normal(rows) * 3000 + 0.3)  # fmt: skip
        expected = torch.ops.lapse.ramp_attention(**doubled(args))
        for which, x, y in zip(("out", "ramp_sum"), call.ramp_attention(**there(args)), expected):
            self.assert_near(x, y, 4e-6, which)


if __name__ == "__main__":
    if GPU and not torch.cuda.is_available():
        sys.exit(77)  # skipped
    unittest.main()
