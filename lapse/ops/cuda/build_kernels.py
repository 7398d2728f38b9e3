#!/usr/bin/env python3
"""Compiles the attention kernels for NVIDIA GPUs ahead of time, on any machine; no GPU and no CUDA toolkit are needed.

  build_kernels.py OUT [--archs 80 90] [--jobs 2] [--only TEXT ...] [--share I/N]

Writes OUT, which liblapse_cuda.so reads: "LAPSEGPU", what it was compiled of (fingerprint.py), the length
of the index as 8 bytes, the index, one line a kernel, and the code it points into. Beside it OUT.json, the index for people: registers, bytes spilled and shared memory of
each kernel, and a digest of their sources. sm_80's code also runs on sm_86 and sm_89; its PTX is what later GPUs compile when they load it. --only
keeps the kernels whose names contain one of these, --share every N-th of them, from number I (0 to N - 1) on.
"""

import argparse
import concurrent.futures
import hashlib
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT))
os.environ.pop("TRITON_INTERPRET", None)

import triton  # noqa: E402
from triton.backends.compiler import GPUTarget  # noqa: E402
from triton.compiler import ASTSource  # noqa: E402

from lapse.ops.cuda.fingerprint import fingerprint  # noqa: E402
from lapse.ops.cuda.signature import variants  # noqa: E402

PTX_OF = 80  # the architecture whose PTX is kept
CUOBJDUMP = pathlib.Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "cuobjdump"


def compile_one(variant, arch):
    """The kernel with its code, and what the assembler says of it."""
    parameters = variant.parameters()
    place = {name: i for i, (name, _) in enumerate(parameters)}
    # Tensors begin at multiples of 16 bytes, and rows of what selects are multiples of a head's 64 or 128 features.
    whole = lambda name, kind: kind.startswith("*") or name.startswith("select_stride")
    aligned = {(i,): [["tt.divisibility", 16]] for i, parameter in enumerate(parameters) if whole(*parameter)}
    source = ASTSource(variant.kernel, dict(parameters), {(place[n],): v for n, v in variant.constants}, aligned)
    options = {"num_warps": variant.warps, "num_stages": variant.stages}
    return triton.compile(source, target=GPUTarget("cuda", arch, 32), options=options)


def usage(cubin):
    """Registers of a thread, bytes of its stack (what was spilled), from the code itself."""
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        text = subprocess.run([CUOBJDUMP, "--dump-resource-usage", file.name], capture_output=True, text=True,
        check=True)
    found = re.search(r"REG:(\d+) STACK:(\d+)", text.stdout)
    return int(found[1]), int(found[2])


def build(name, arch):
    """An entry of the index, and the code: the cubin, and PTX where it is kept."""
    variant = next(v for v in variants(arch) if v.name == name)
    compiled = compile_one(variant, arch)
    registers, spilled = usage(compiled.asm["cubin"])
    constants = dict(variant.constants)
    entry = {
        "name": name,
        "arch": arch,
        "symbol": compiled.metadata.name,
        "threads": 32 * variant.warps,
        "shared": compiled.metadata.shared,
        "registers": registers,
        "spilled": spilled,
        "queries": constants.get("QUERIES", 0),
        "rows": constants.get("ROWS", 0),
        "heads": constants.get("HEADS", 1),
        "parameters": [list(p) for p in variant.parameters() if p[1] != "constexpr"],
    }
    return entry, compiled.asm["cubin"], compiled.asm["ptx"].encode() if arch == PTX_OF else b""


def digest_of_sources():
    """Of the kernels' code without its comments: a record of what they take is of these sources, or out of date."""
    digest = hashlib.sha256()
    for path in sorted((ROOT / "lapse" / "ops").rglob("cuda/*.py")):
        if path.name in ("call.py", "build_kernels.py", "fingerprint.py"):
            continue
        lines = (line.split("#")[0].rstrip() for line in path.read_text().splitlines())
        digest.update("\n".join([path.relative_to(ROOT).as_posix(), *filter(None, lines)]).encode())
    return digest.hexdigest()


def line(entry):
    """As kernels.cpp reads it: numbers and words, then NAME:TYPE of each parameter."""
    words = [entry[n] for n in "name arch symbol threads shared queries rows heads".split()]
    words += entry["cubin"] + entry["ptx"]
    return " ".join(map(str, words + [":".join(p) for p in entry["parameters"]])) + "\n"


def write(path, built):
    """The file, whole or not at all."""
    code, entries = bytearray(), []
    for entry, cubin, ptx in built:
        entries.append(entry | {"cubin": [len(code), len(cubin)], "ptx": [len(code) + len(cubin), len(ptx)]})
        code += cubin + ptx + b"\0"  # PTX ends with a zero byte
        code += bytes(-len(code) % 16)  # images begin at whole words
    index = "".join(map(line, entries)).encode()
    partial = path.with_suffix(".partial")
    partial.write_bytes(b"LAPSEGPU" + fingerprint().encode() + len(index).to_bytes(8, "little") + index + bytes(code))
    partial.replace(path)
    for entry in entries:
        del entry["parameters"], entry["cubin"], entry["ptx"]
    lines = ",\n".join(json.dumps(e) for e in sorted(entries, key=lambda e: (e["arch"], e["name"])))
    text = f'{{"triton": "{triton.__version__}", "sources": "{digest_of_sources()}", "kernels": [\n{lines}\n]}}\n'
    path.with_suffix(path.suffix + ".json").write_text(text)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("--archs", type=int, nargs="+", default=[80, 90])
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--only", nargs="+", default=[""])
    parser.add_argument("--share", default="0/1")
    args = parser.parse_args()
    first, every = map(int, args.share.split("/"))
    names = [v.name for v in variants(args.archs[0]) if any(part in v.name for part in args.only)][first::every]
    work = [(name, arch) for arch in args.archs for name in names]
    with concurrent.futures.ProcessPoolExecutor(args.jobs) as pool:
        built = []
        for i, result in enumerate(pool.map(build, *zip(*work)), 1):
            built.append(result)
            if sys.stdout.isatty():
                print(f"\r{i} of {len(work)} kernels", end="", flush=True)
    write(args.out, built)
    worst = max((entry["spilled"], entry["name"], entry["arch"]) for entry, _, _ in built)
    print(f"{len(work)} kernels in {args.out}; most spilled: {worst[0]} bytes in {worst[1]} for sm_{worst[2]}")


if __name__ == "__main__":
    main()
