"""Of which files the kernels are compiled: liblapse_cuda.so takes those of its own sources alone (cmake/KernelSources.cmake)."""

import hashlib
import pathlib

ROOT = pathlib.Path(__file__).resolve().parents[3]


def fingerprint():
    """What a file of compiled kernels begins with, after its name: 64 hexadecimal digits."""
    paths = sorted(p.relative_to(ROOT).as_posix() for p in (ROOT / "lapse" / "ops").rglob("*.py") if p.name != "call.py")
    lines = (f"{path} {hashlib.sha256((ROOT / path).read_bytes()).hexdigest()}\n" for path in paths)
    return hashlib.sha256("".join(lines).encode()).hexdigest()
