"""What `import lapse` does where there is a GPU, seen without one: shapes for torch.compile (lapse._fake) are those of the
operators' outputs, and the GPU's kernels are loaded where they lie beside the library."""

import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "python"))

import operator_python_test as ramp
import selective_python_test as selective
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from lapse import _fake

_fake.register()


def detached(positional, named):
    return [t.detach() for t in positional], {n: t.detach() if torch.is_tensor(t) else t for n, t in named.items()}


class Fake(unittest.TestCase):
    def check(self, operator, positional, named):
        """On fake tensors of a GPU, offsets on the CPU, the outputs are like the real ones on the CPU."""
        real = operator(*positional, **named)
        offsets = positional[-3] if len(positional) > 3 else None
        if offsets is not None:
            self.assertEqual(offsets.dtype, torch.long)
        with FakeTensorMode() as mode:

            def fake(x):
                made = mode.from_tensor(x) if torch.is_tensor(x) else x
                return made if x is offsets or not torch.is_tensor(x) else made.to("cuda")

            found = operator(*map(fake, positional), **{n: fake(x) for n, x in named.items()})
        as_list = lambda y: [y] if torch.is_tensor(y) else list(y)
        for ours, theirs in zip(as_list(found), as_list(real), strict=True):
            self.assertEqual((ours.shape, ours.dtype, ours.stride()), (theirs.shape, theirs.dtype, theirs.stride()))
            self.assertEqual(ours.device.type, "cuda")

    def check_kinds(self, kinds, forward, backward, gradients):
        for kind, make in kinds.items():
            for dtype in (torch.float64, torch.bfloat16):
                with self.subTest(kind=kind, dtype=dtype):
                    positional, named = detached(*make())
                    positional[:3] = [x.to(dtype) for x in positional[:3]]
                    self.check(forward, positional, named)
                    y = forward(*positional, **named)
                    given = [torch.ones_like(y[0]), torch.ones_like(y[1]), y[0], y[gradients]]
                    self.check(backward, given + positional, named)

    def test_ramp(self):
        ops = torch.ops.lapse
        self.check_kinds(ramp.KINDS, ops.ramp_attention, ops.ramp_attention_backward, gradients=3)
        positional, named = detached(*ramp.inputs())
        self.check(ops.ramp_attention, positional, {**named, "received": True})

    def test_selective(self):
        ops = torch.ops.lapse
        self.check_kinds(selective.KINDS, ops.selective_attention, ops.selective_attention_backward, gradients=3)
        positional, named = detached(*selective.inputs())
        self.check(ops.selective_prune, positional, {**named, "budget": 3})

    def test_ramp_until_of_any_strides(self):
        time, span = torch.arange(12).view(3, 4), torch.rand(3, 4)
        for given in ((time, span), (time.t(), span.t()), (time.t(), span.t().double()), (time[:, ::2], span[:, ::2])):
            self.check(torch.ops.lapse.ramp_until, [*given, 3.0], {})

    def test_cpu_still_compiles(self):
        positional, named = detached(*ramp.inputs())
        torch.library.opcheck(torch.ops.lapse.ramp_attention.default, tuple(positional), {**named, "received": True})


class Kernels(unittest.TestCase):
    def imported(self, folder):
        """Whether a process that is told of a GPU has kernels for it after `import lapse`; and what it was warned of."""
        code = (
            "import torch; torch.cuda.is_available = lambda: True; import lapse; "
            "print(torch._C._dispatch_has_kernel_for_dispatch_key('lapse::ramp_attention', 'CUDA'))"
        )
        environment = os.environ | {"LAPSE_OPS": str(folder / "liblapse_ops.so"), "PYTHONPATH": os.pathsep.join(sys.path)}
        run = subprocess.run([sys.executable, "-B", "-c", code], env=environment, capture_output=True, text=True, check=True)
        return run.stdout.strip() == "True", run.stderr

    def test_are_loaded_where_they_were_built(self):
        built = pathlib.Path(os.environ["LAPSE_OPS"]).resolve().parent
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            for library in ("liblapse_ops.so", "liblapse_cuda.so"):
                shutil.copy(built / library, folder)
            found, said = self.imported(folder)
            self.assertFalse(found)
            self.assertIn(f"there is no lapse_kernels.bin in {folder}", said)
            (folder / "lapse_kernels.bin").touch()
            self.assertEqual(self.imported(folder), (True, ""))


if __name__ == "__main__":
    unittest.main()
