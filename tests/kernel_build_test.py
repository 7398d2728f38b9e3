"""The kernels as NVIDIA's assembler sees them: some of each kind are compiled here for sm_80 and sm_90, and what all of
them took when they were last compiled (bench/gpu_kernels.json) stays within what the processors have. What is compiled
here takes what the record says.

LAPSE_KERNELS=I/N compiles every N-th of all instead, from number I on: 0/1 compiles all of them, which takes minutes.
scripts/test.sh does at its end, or a share where the machine is slow."""

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

import triton  # noqa: E402

from lapse.ops.cuda.build_kernels import digest_of_sources  # noqa: E402
from lapse.ops.cuda.fingerprint import fingerprint  # noqa: E402
from lapse.ops.cuda.signature import variants  # noqa: E402

RECORD = ROOT / "bench" / "gpu_kernels.json"
SHARED = {80: 163 << 10, 90: 227 << 10}  # bytes a program can ask for
SHARED_OF_86 = 99 << 10  # sm_86 and sm_89 run sm_80's code
# Bytes that a thread may keep in memory for want of registers. In half precision few; float32's products of three parts
# need many more; kernels that multiply nothing (rows_pack, block_lists, selective_prefix, ...) have no element type, and none to keep.
SPILLED = {"bf16": 384, "fp16": 384, "fp32": 1300, None: 0}
NAMES = ["rows_pack", "block_lists.64", "ramp_forward.bf16.64", "ramp_backward_rows.bf16.128.spans",
         "ramp_decode.bf16.64.16", "ramp_decode.bf16.128.1", "selective_decode.bf16.64.16", "selective_forward.fp16.128.extras",
         "ramp_backward_queries.fp32.64.spans", "ramp_backward_queries.bf16.64.positions"]  # fmt: skip
SHARE = os.environ.get("LAPSE_KERNELS")
WHICH = ["--share", SHARE] if SHARE else ["--only", *NAMES]


class Build(unittest.TestCase):
    def check(self, kernel):
        element = next((e for e in SPILLED if f".{e}." in kernel["name"]), None)
        what = f"{kernel['name']} for sm_{kernel['arch']}"
        self.assertLessEqual(kernel["spilled"], SPILLED[element], what)
        self.assertLessEqual(kernel["shared"], SHARED[kernel["arch"]], what)
        if kernel["arch"] == 80:
            self.assertLessEqual(kernel["shared"], SHARED_OF_86, what)

    def test_some_of_each_kind(self):
        with tempfile.TemporaryDirectory() as folder:
            out = pathlib.Path(folder) / "kernels.bin"
            script = ROOT / "lapse" / "ops" / "cuda" / "build_kernels.py"
            done = subprocess.run([sys.executable, "-B", script, out, "--jobs", "2", *WHICH],
                                  capture_output=True, text=True)  # fmt: skip
            self.assertEqual(done.returncode, 0, done.stderr)
            kernels = json.loads((out.parent / "kernels.bin.json").read_text())["kernels"]
            code = out.read_bytes()
        self.assertEqual({k["arch"] for k in kernels}, {80, 90})
        recorded = {(k["name"], k["arch"]): k for k in json.loads(RECORD.read_text())["kernels"]}
        for kernel in kernels:
            with self.subTest(kernel["name"], arch=kernel["arch"]):
                self.check(kernel)
                self.assertEqual(kernel, recorded[kernel["name"], kernel["arch"]])
        head = b"LAPSEGPU" + fingerprint().encode()
        self.assertEqual(code[: len(head)], head)
        begin = len(head) + 8
        end = begin + int.from_bytes(code[len(head) : begin], "little")
        lines, rest = code[begin:end].decode().splitlines(), code[end:]
        self.assertEqual(len(lines), len(kernels))
        for line in lines:
            words = line.split()
            offset, size, ptx, ptx_size = map(int, words[8:12])
            self.assertEqual(rest[offset : offset + 4], b"\x7fELF", line)
            self.assertEqual(len(rest[offset : offset + size]), size)
            self.assertEqual(ptx_size > 0, words[1] == "80", line)
            self.assertTrue(ptx_size == 0 or b".target sm_80" in rest[ptx : ptx + ptx_size])

    def test_all_when_they_were_last_compiled(self):
        record = json.loads(RECORD.read_text())
        kernels = record["kernels"]
        anew = f"`lapse/ops/cuda/build_kernels.py FILE` compiles them, FILE.json goes to {RECORD.relative_to(ROOT)}"
        self.assertEqual(record["sources"], digest_of_sources(), f"kernels have changed; {anew}")
        self.assertEqual(record["triton"], triton.__version__, f"they were compiled by another Triton; {anew}")
        self.assertEqual({(k["name"], k["arch"]) for k in kernels}, {(v.name, a) for a in (80, 90) for v in variants(a)})
        for kernel in kernels:
            with self.subTest(kernel["name"], arch=kernel["arch"]):
                self.check(kernel)


if __name__ == "__main__":
    unittest.main()
