"""What the JSON of a benchmark says of the machine and the code."""

import datetime
import importlib.metadata
import pathlib
import re
import shutil
import subprocess

ROOT = pathlib.Path(__file__).resolve().parent.parent


def commit():
    """Of a checkout; a copy of the sources has none."""
    if shutil.which("git") is None or not (ROOT / ".git").exists():
        return "unknown"
    return subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=False).stdout.strip()


def about(threads, quick=False):
    processor = re.search(r"model name\s*: (.*)", pathlib.Path("/proc/cpuinfo").read_text())
    return {
        "processor": processor[1] if processor else "unknown", "threads": threads, "libtorch": importlib.metadata.version("torch").split("+")[0],
        "date": datetime.date.today().isoformat(), "commit": commit(), "quick": quick,
    }  # fmt: skip
