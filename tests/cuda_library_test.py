"""liblapse_cuda.so without a GPU: its calls go to a mock of NVIDIA's driver, which runs the kernel that each launch
names by Triton's interpreter, on the memory that the launch points to. So what the library plans, allocates, passes
and adds is compared with the references, number by number; what is left for a GPU is the compiled code itself."""

import ctypes
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest
from unittest.mock import patch

import interpreted  # noqa: F401
import torch
import ramp_triton_test as ramp
import selective_triton_test as selective
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes

from lapse.ops.attention.cuda import tiles
from lapse.ops.cuda import signature
from lapse.ops.cuda.fingerprint import fingerprint

BUILD = pathlib.Path(os.environ.get("LAPSE_BUILD", ramp.ROOT / "build" / "release"))
ARCH = int(os.environ.get("LAPSE_TILES", 0))  # whose tiles kernels have; 0: the small ones of interpreted kernels
if ARCH:
    tiles.INTERPRETED = False
VARIANTS = {v.name: v for v in signature.variants(ARCH or 90)}
CTYPES = {"i32": ctypes.c_int32, "i64": ctypes.c_int64, "fp32": ctypes.c_float}
DTYPES = signature.DTYPES | {"i64": torch.int64, "i32": torch.int32, "u8": torch.uint8}

mock = ctypes.CDLL(BUILD / "mock" / "libcuda.so.1", mode=ctypes.RTLD_GLOBAL)
LAUNCH = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_char_p, ctypes.POINTER(ctypes.c_uint), ctypes.c_uint, ctypes.c_uint,
                          ctypes.POINTER(ctypes.c_void_p))  # fmt: skip
launches = []  # names, grids and numbers of what was launched
failures = []


def value_at(address, kind):
    """An argument as Triton takes it: of a tensor only the address matters."""
    if not kind.startswith("*"):
        return CTYPES[kind].from_address(address).value
    pointer = ctypes.c_void_p.from_address(address).value
    one = torch.empty(0, dtype=DTYPES[kind[1:]])
    if pointer is None:
        return one
    size = one.element_size()
    return torch.frombuffer((ctypes.c_byte * size).from_address(pointer), dtype=one.dtype)


def run(name, grid, threads, shared, arguments):
    """One launch, by the interpreter."""
    try:
        variant = VARIANTS[name.decode()]
        kinds = [(n, k) for n, k in variant.parameters() if k != "constexpr"]
        values = {n: value_at(arguments[i], k) for i, (n, k) in enumerate(kinds)}
        scratch = [ctypes.c_void_p.from_address(arguments[len(kinds) + i]).value for i in range(2)]
        assert scratch == [None, None] and threads == 32 * variant.warps
        launches.append((variant.name, tuple(grid[:3]), {n: x for n, x in values.items() if not torch.is_tensor(x)}))
        with _disable_current_modes():  # what the interpreter itself calls is no read of the library's
            variant.kernel[tuple(grid[:3])](**values, **dict(variant.constants))
        return 0
    except BaseException as error:  # noqa: BLE001: ctypes would print it and go on
        failures.append(error)
        return 1


callback = LAUNCH(run)


def write_kernels(path, archs=(80, 90), image=lambda name: name, skip=(), sources=fingerprint()):
    """A file as build_kernels.py writes it, with names instead of code. sm_80 alone has PTX."""
    lines, code = [], b""
    for arch in archs:
        for v in VARIANTS.values():
            if v.name in skip:
                continue
            constants, text = dict(v.constants), image(v.name).encode() + b"\0"
            words = [v.name, arch, v.name.split(".")[0], 32 * v.warps, 50000, constants.get("QUERIES", 0)]
            words += [constants.get("ROWS", 0), constants.get("HEADS", 1)]
            words += [len(code), len(text), len(code), len(text) if arch == 80 else 0]
            lines.append(" ".join(map(str, words + [f"{n}:{k}" for n, k in v.parameters() if k != "constexpr"])) + "\n")
            code += text
    index = "".join(lines).encode()
    path.write_bytes(b"LAPSEGPU" + sources.encode() + len(index).to_bytes(8, "little") + index + code)


FOLDER = tempfile.TemporaryDirectory()
KERNELS = pathlib.Path(FOLDER.name) / "lapse_kernels.bin"
write_kernels(KERNELS, skip=("selective_dots.fp16.64",))
shutil.copy(BUILD / "liblapse_cuda.so", FOLDER.name)
torch.ops.load_library(pathlib.Path(FOLDER.name) / "liblapse_cuda.so")
ctypes.c_void_p.in_dll(mock, "mock_launch").value = ctypes.cast(callback, ctypes.c_void_p).value
CUDA = torch._C.DispatchKeySet(torch._C.DispatchKey.CUDA)


class Reads(TorchDispatchMode):
    """What reads a tensor's numbers on the host, or makes a tensor whose shape depends on them: on a GPU the host would wait."""

    NAMES = ("_local_scalar_dense", "nonzero", "masked_select", "unique", "_to_copy", "copy_")

    def __init__(self):
        super().__init__()
        self.found = []

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        name = function._schema.name.split("::")[1]
        moves = name in ("_to_copy", "copy_")
        if name.startswith(self.NAMES) and not (moves and (kwargs or {}).get("device") is None):
            self.found.append(name)
        return function(*args, **(kwargs or {}))


def on_cuda(operator, args):
    """The kernel that tensors of a GPU would go to, with these. Where kernels are launched, the host must read nothing."""
    failures.clear()
    launches.clear()
    schema = getattr(torch.ops.lapse, operator).default
    order = [a.name for a in schema._schema.arguments if not a.kwarg_only]
    given = [args[n] if n in args else a.default_value for n, a in
             ((a.name, a) for a in schema._schema.arguments) if n in order]  # fmt: skip
    extra = {n: x for n, x in args.items() if n not in order}
    with Reads() as reads:
        result = schema.redispatch(CUDA, *given, **extra)
    if failures:
        raise failures[0]
    assert not (launches and reads.found), f"{operator} waits for {reads.found}"
    several = result if isinstance(result, tuple) else (result,)
    assert len({x.untyped_storage()._cdata for x in several}) == len(several), f"{operator} returns a tensor twice"
    return result


# Several blocks of queries and of rows at the tiles that are compiled: of spans, positions, dropout, extras, both widths.
REAL_RAMP = (
    (torch.bfloat16, dict(rows=(130,), K=130, spans="row", H=1, D=64)),
    (torch.bfloat16, dict(rows=(70, 9), K=70, H=2, G=1, D=72)),
    (torch.bfloat16, dict(rows=(130,), K=70, P=40, spans="row", H=1, D=64)),
    (torch.bfloat16, dict(rows=(70,), K=70, P=40, spans="row", H=1, D=64, dropout=0.2)),
    (torch.float16, dict(rows=(130,), K=70, spans="head", H=1, D=128, logit=True)),
    (torch.float32, dict(rows=(70,), K=40, spans="row", H=1, D=64)),
)
REAL_SELECTIVE = (
    (torch.bfloat16, dict(rows=(70,), K=70, H=2, D=64)),
    (torch.float32, dict(rows=(24,), K=20, H=1, D=24, P=9, masking=True)),
)
REAL_TOLERANCE = {torch.float32: 8e-6, torch.bfloat16: 4e-2, torch.float16: 6e-3}


def gradients_of(operator, args):
    """Of the two outputs that have some, by the names that the backward operator takes."""
    shape, draw = args["q"].shape, torch.Generator().manual_seed(1)
    of_ramp = operator == "ramp_attention"
    second = torch.randn(shape[:1] if of_ramp else shape[:2], generator=draw)
    return {"grad_out": torch.randn(shape, generator=draw).to(args["q"].dtype),
            "grad_ramp_sum" if of_ramp else "grad_memory": second}  # fmt: skip


class Library(unittest.TestCase):
    assert_near = ramp.Kernels.assert_near

    def compare(self, got, expected, tolerance, what):
        for i, (x, y) in enumerate(zip(got, expected, strict=True)):
            self.assert_near(x, y.double(), tolerance, f"{what}, tensor {i}")

    def check(self, operator, args, grads, tolerance):
        reference = getattr(torch.ops.lapse, operator)
        expected = reference(**ramp.doubled(args))
        self.compare(on_cuda(operator, args), expected, tolerance, operator)
        passed = {n: x for n, x in args.items() if n != "received"}
        saved = dict(out=expected[0], stats=expected[3])
        single = {n: x.to(args["q"].dtype if n == "out" else torch.float32) for n, x in saved.items()}
        backward = operator + "_backward"
        want = getattr(torch.ops.lapse, backward)(**ramp.doubled(grads), **saved, **ramp.doubled(passed))
        self.compare(on_cuda(backward, grads | single | passed), want, 4 * tolerance, backward)

    def test_ramp_attention(self):
        for name in ("row spans, positions", "head spans", "later rows, bias by age", "row spans, dropout", "every row a sample's", "rows before the first sample"):
            with self.subTest(name):
                args = ramp.make(name, torch.float32)
                grad, grad_sum = ramp.gradients_of(args, torch.float32)
                self.check("ramp_attention", args | {"received": True}, dict(grad_out=grad, grad_ramp_sum=grad_sum),
                4e-6)

    def test_ramp_attention_of_a_few_queries_is_one_launch(self):
        for case, few, heads in (("row spans, positions", 1, 1), ("row spans, positions", 4, 1), ("head spans", 1, 16)):
            args = ramp.make(case, torch.bfloat16)
            args = ramp.last_queries(args, few)
            got = on_cuda("ramp_attention", args)
            self.assertEqual([name for name, _, _ in launches], [f"ramp_decode.bf16.64.{heads}"])
            self.compare(got, torch.ops.lapse.ramp_attention(**ramp.doubled(args)), 2e-2, f"{case}, {few} queries")

    def test_selective_attention(self):
        kinds = {"from a stream's beginning": ".extras", "own selection": "", "own rows at blocks' ends": ".grouped"}
        for name, kind in kinds.items():
            with self.subTest(name):
                args = selective.make(name, torch.float32)
                self.check("selective_attention", args, gradients_of("selective_attention", args), 8e-6)
                self.assertIn("selective_backward_rows.fp32.64" + kind, [name for name, _, _ in launches])

    def test_selective_attention_of_a_few_queries_is_one_launch(self):
        beginning = "from a stream's beginning"  # whose heads share keys
        every, before = "every row a sample's", "own keys, rows before the first sample"
        for name, few, heads in ((beginning, 1, 16), (beginning, 4, 16), ("own selection", 1, 1), ("own selection", 3, 16), (every, 1, 16), (before, 1, 1)):
            with self.subTest(name, queries=few):
                args = selective.make(name, torch.bfloat16)
                args = ramp.last_queries(args, few)
                got = on_cuda("selective_attention", args)
                self.assertEqual([name for name, _, _ in launches], [f"selective_decode.bf16.64.{heads}"])
                self.compare(got, torch.ops.lapse.selective_attention(**ramp.doubled(args)), 3e-2, name)

    def test_tensors_that_begin_anywhere(self):
        """Slices, of which no kernel can read 16 bytes at a time."""

        def sliced(x):
            if not torch.is_tensor(x) or x.numel() == 0:
                return x
            flat = torch.empty(x.numel() + 1, dtype=x.dtype)
            flat[1:] = x.flatten()
            return flat[1:].view(x.shape)

        for operator, args in (("ramp_attention", ramp.make("row spans, until", torch.float32)),
                               ("ramp_attention", ramp.make("head spans", torch.float32)),
                               ("selective_attention", selective.make("own selection", torch.float32))):  # fmt: skip
            grads = gradients_of(operator, args)
            given = {n: x if n == "offsets" else sliced(x) for n, x in args.items()}
            few = {n: x if n == "offsets" else sliced(x) for n, x in ramp.last_queries(args, 1).items()}
            with self.subTest(operator):
                self.check(operator, given, {n: sliced(x) for n, x in grads.items()}, 8e-6)
                self.compare(on_cuda(operator, few), getattr(torch.ops.lapse, operator)(**ramp.doubled(few)), 8e-6, "few")
                self.assertEqual(len(launches), 1)

    def test_strides_in_any_order(self):
        """As convolutions give q and take the output; heads that are widened keep such an order."""

        def turned(x):
            return x.permute(0, 2, 3, 1).contiguous().permute(0, 3, 1, 2) if torch.is_tensor(x) and x.dim() == 4 else x

        shape = dict(rows=(15, 9), K=9, H=2, D=24)
        for operator, module, case in (("ramp_attention", ramp, shape | {"spans": "row"}),
                                       ("selective_attention", selective, shape)):  # fmt: skip
            with self.subTest(operator), patch.dict(module.CASES, turned=case):
                args = module.make("turned", torch.float32)
                grads = gradients_of(operator, args)
                self.assertEqual(turned(args["q"]).stride(1), 1)
                self.check(operator, *({n: turned(x) for n, x in given.items()} for given in (args, grads)), 8e-6)
                self.assertTrue(launches)

    def test_selective_prune(self):
        args = selective.make("ragged", torch.float32)
        got = on_cuda("selective_prune", args | {"budget": 11})
        self.assertTrue(torch.equal(got, torch.ops.lapse.selective_prune(**ramp.doubled(args), budget=11)))

    def test_ramp_until_is_one_launch(self):
        span = ramp.awkward_spans(3.3)
        args = dict(time=torch.arange(span.numel()) * 11 - 100, span=span, ramp=3.3)
        expected = torch.ops.lapse.ramp_until(**args)
        for dtype in (torch.float32, torch.bfloat16, torch.float64):
            given = args | dict(span=span.to(dtype))
            self.assertTrue(torch.equal(on_cuda("ramp_until", given), torch.ops.lapse.ramp_until(**given)), dtype)
            self.assertEqual([name for name, _, _ in launches], [] if dtype == torch.float64 else ["rows_until"])
        strided = {n: x[:1000].view(-1, 2)[::3] if torch.is_tensor(x) else x for n, x in args.items()}
        self.assertTrue(torch.equal(on_cuda("ramp_until", strided), expected[:1000].view(-1, 2)[::3]))
        empty = dict(time=args["time"][:0], span=span[:0], ramp=3.3)
        self.assertEqual(on_cuda("ramp_until", empty).shape, (0,))
        with self.assertRaisesRegex(RuntimeError, "time must be int64 of span's shape"):
            on_cuda("ramp_until", args | dict(time=args["time"][1:]))

        turned = dict(time=args["time"][:12].view(3, 4).t(), span=span[:12].view(3, 4).t(), ramp=3.3)
        for dtype in (torch.float32, torch.float64):  # the kernel, and the reference
            given = turned | dict(span=turned["span"].to(dtype))
            there = torch.ops.lapse.ramp_until(given["time"].to("meta"), given["span"].to("meta"), 3.3)
            self.assertEqual(on_cuda("ramp_until", given).stride(), (3, 1))
            self.assertEqual(there.stride(), (3, 1))

    def test_autocast_does_not_reach_into_the_kernels(self):
        """Products of positions, and the reference's for heads that the kernels do not take: the same bits."""
        positions, wide = dict(rows=(15, 9), K=9, P=5), dict(rows=(61, 37), K=37, D=160)
        cases = (("ramp_attention", ramp, positions | {"spans": "row"}, torch.float32),
                 ("ramp_attention", ramp, wide | {"spans": "row"}, torch.float32),
                 ("ramp_attention", ramp, wide | {"spans": "row"}, torch.bfloat16),
                 ("selective_attention", selective, positions, torch.float32),
                 ("selective_attention", selective, wide, torch.float16))  # fmt: skip
        for operator, module, case, dtype in cases:
            with self.subTest(operator, dtype=dtype, **case), patch.dict(module.CASES, case=case):
                args = module.make("case", dtype)
                results = []
                for within in (False, True):
                    with torch.autocast("cpu", torch.bfloat16, enabled=within):
                        y = on_cuda(operator, args)
                        saved = gradients_of(operator, args) | dict(out=y[0], stats=y[3])
                        results.append([*y, *on_cuda(operator + "_backward", saved | args)])
                self.assertEqual(bool(launches), case.get("D") != 160)
                for i, (x, expected) in enumerate(zip(results[1], results[0], strict=True)):
                    self.assertEqual(x.dtype, expected.dtype)
                    self.assertTrue(torch.equal(x, expected), f"tensor {i}")

    def test_autocast_does_not_reach_into_the_references(self):
        """On the CPU float16 has no other kernels."""
        for operator, module, name in (("ramp_attention", ramp, "row spans, positions"),
                                       ("selective_attention", selective, "from a stream's beginning")):  # fmt: skip
            results = []
            for within in (False, True):
                args = module.make(name, torch.float16)
                leaves = [x.requires_grad_() for n, x in args.items() if n in ("q", "k", "v", "row_span", "position")]
                grads = list(gradients_of(operator, args).values())
                with torch.autocast("cpu", torch.bfloat16, enabled=within):
                    y = getattr(torch.ops.lapse, operator)(**args)
                    results.append([*y, *torch.autograd.grad(y[:2], leaves, grads)])
            for i, (x, expected) in enumerate(zip(results[1], results[0], strict=True)):
                self.assertTrue(torch.equal(x, expected), f"{operator}, tensor {i}")

    def test_as_many_blocks_as_32_bits_count(self):
        """One sample of 8,193 blocks of rows, and so many others that each block's four numbers are too many."""
        samples, rows, few = 65535, 8193 * 16, 5
        q, k = torch.empty(samples, few, 1, 64, dtype=torch.bfloat16), torch.empty(rows, 1, 64, dtype=torch.bfloat16)
        offsets = torch.full((samples + 1,), rows).index_fill(0, torch.tensor([0]), 0)
        start, time = torch.zeros(samples, dtype=torch.long), torch.zeros(rows, dtype=torch.long)
        args = dict(q=q, k=k, v=k, offsets=offsets, start=start, time=time)
        launch = ctypes.c_void_p.in_dll(mock, "mock_launch")
        self.addCleanup(torch.use_deterministic_algorithms, True, warn_only=True)
        torch.use_deterministic_algorithms(False)  # to fill the counts would take 2 GB
        nothing = LAUNCH(lambda *_: 0)
        launch.value = ctypes.cast(nothing, ctypes.c_void_p).value
        try:
            with self.assertRaisesRegex(RuntimeError, "65535 samples of up to 131088 rows in one call are too many"):
                on_cuda("ramp_attention", args)
        finally:
            launch.value = ctypes.cast(callback, ctypes.c_void_p).value

    def real_tiles(self):
        """By name, in a process of its own: kernels are read once."""
        self.assertGreater(len({dict(v.constants).get("QUERIES") for v in VARIANTS.values()}), 4)
        for operator, module, cases in (("ramp_attention", ramp, REAL_RAMP),
                                        ("selective_attention", selective, REAL_SELECTIVE)):  # fmt: skip
            for dtype, case in cases:
                with self.subTest(operator, dtype=dtype, **case), patch.dict(module.CASES, real=case):
                    args = module.make("real", dtype)
                    self.check(operator, args, gradients_of(operator, args), REAL_TOLERANCE[dtype])
                    if "dropout" not in args:
                        last = ramp.last_queries(args, 2)
                        expected = getattr(torch.ops.lapse, operator)(**ramp.doubled(last))
                        self.compare(on_cuda(operator, last), expected, REAL_TOLERANCE[dtype], "few queries")
        got = on_cuda("selective_prune", args | {"budget": 11})
        self.assertTrue(torch.equal(got, torch.ops.lapse.selective_prune(**ramp.doubled(args), budget=11)))

    def test_tiles_that_are_compiled(self):
        for arch in (80, 90):
            done = subprocess.run([sys.executable, "-B", __file__, "Library.real_tiles"], capture_output=True, text=True,
                                  env=os.environ | {"LAPSE_TILES": str(arch)})  # fmt: skip
            self.assertEqual(done.returncode, 0, f"tiles of sm_{arch}:\n{done.stderr}")

    def test_kernels_are_loaded_once(self):
        args = ramp.make("no spans", torch.float32)
        on_cuda("ramp_attention", args)
        loads = ctypes.c_int.in_dll(mock, "mock_loads").value
        on_cuda("ramp_attention", args)
        self.assertEqual(ctypes.c_int.in_dll(mock, "mock_loads").value, loads)
        self.assertEqual(ctypes.c_int.in_dll(mock, "mock_shared").value, 50000)
        names = [name for name, _, _ in launches]
        self.assertEqual(names, ["rows_count", "rows_pack", "block_ranges.16", "block_lists.32",
        "ramp_forward.fp32.64"])

    def test_what_the_kernels_do_not_take_runs_the_reference(self):
        args = ramp.doubled(ramp.make("row spans, positions", torch.float32))
        self.compare(on_cuda("ramp_attention", args), torch.ops.lapse.ramp_attention(**args), 1e-12, "float64")
        self.assertEqual(launches, [])

    def test_errors_are_the_drivers(self):
        args = ramp.make("no spans", torch.float32)
        failing = LAUNCH(lambda *_: 700)
        launch = ctypes.c_void_p.in_dll(mock, "mock_launch")
        launch.value = ctypes.cast(failing, ctypes.c_void_p).value
        try:
            with self.assertRaisesRegex(RuntimeError, r"CUDA: launching a kernel: a mock's error \(700\)"):
                on_cuda("ramp_attention", args)
        finally:
            launch.value = ctypes.cast(callback, ctypes.c_void_p).value
        args = selective.make("ragged", torch.float16)
        y = on_cuda("selective_attention", args)
        grads = dict(grad_out=y[0], grad_memory=y[1], out=y[0], stats=y[3])
        with self.assertRaisesRegex(RuntimeError,
        "no kernel selective_dots.fp16.64 for sm_90; make all: scripts/build.sh"):
            on_cuda("selective_attention_backward", grads | args)

    def test_kernels_of_other_sources_are_refused(self):
        """In a process of its own: they are read once."""
        script = """
import cuda_library_test as test
test.write_kernels(test.KERNELS, sources="0" * 64)
test.on_cuda("ramp_attention", test.ramp.make("no spans", test.torch.float32))
"""
        done = subprocess.run([sys.executable, "-B", "-c", script], capture_output=True, text=True,
                              cwd=pathlib.Path(__file__).parent)  # fmt: skip
        self.assertEqual(done.returncode, 1)
        self.assertIn("was compiled of other sources than this library; make it anew", done.stderr)


if __name__ == "__main__":
    unittest.main()
