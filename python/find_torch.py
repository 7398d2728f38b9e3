"""Prints the folder of the torch to build for: what this interpreter imports, or, within pip's isolated build, what lies in
its environment. Exits 1 with one line if there is none that fits."""

import importlib.util
import pathlib
import re
import sys
import sysconfig

LEAST = (2, 7)  # earlier wheels have the old C++ ABI


def folders():
    """Where torch may lie, the likeliest first."""
    found = importlib.util.find_spec("torch")
    if found and found.submodule_search_locations:
        yield from map(pathlib.Path, found.submodule_search_locations)
    site = pathlib.Path(sysconfig.get_path("purelib"))
    yield site / "torch"
    for link in sorted(site.glob("*.pth")):  # as an environment names folders of another one
        for line in link.read_text(encoding="utf-8", errors="replace").splitlines():
            path = re.search(r"(/[^'\"]+)", line)
            if path:
                yield pathlib.Path(path[1].strip()) / "torch"


def release(folder):
    """(2, 11) of torch 2.11.0+cu130; None where there is no torch."""
    version = folder / "version.py"
    if not version.is_file() or not (folder / "lib" / "libtorch_cpu.so").exists():
        return None
    match = re.search(r"__version__ = '(\d+)\.(\d+)", version.read_text(encoding="utf-8"))
    return tuple(map(int, match.groups())) if match else None


def main():
    old = []
    for folder in folders():
        found = release(folder)
        if found and found >= LEAST:
            print(folder)
            return 0
        if found:
            old.append(f"torch {found[0]}.{found[1]} in {folder} does not fit: ")
    print(
        f"lapse: {''.join(old)}torch {LEAST[0]}.{LEAST[1]} or later must be installed before lapse is built: pip install torch "
        "(if it is, and pip builds elsewhere: pip install --no-build-isolation scikit-build-core . , or LAPSE_TORCH=python)",
        file=sys.stderr,
    )
    return 1


if __name__ == "__main__":
    sys.exit(main())
