"""A stream of many tokens, written one at a time: resident memory and time per token must not grow.

    .venv/bin/python tests/torture/stream.py [--tokens 10000000] [--json FILE] [METHOD ...]

A small model is trained for each method and writes bytes without end. Resident memory and the processor time of the process are read after
every hundredth of the stream. Compared are means of tenths of it, each with the second tenth; the first is left out, in which memories fill.
"""

import argparse
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
from program import PROGRAM, TINY, english, environment, lapse, merged, toml  # noqa: E402
from record import keep  # noqa: E402
from same_run import METHODS  # noqa: E402

TICK = os.sysconf("SC_CLK_TCK")


def resident(pid):
    """Bytes."""
    return int(pathlib.Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def processor_seconds(pid):
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / TICK


def measure(run, tokens):
    """(resident bytes, processor seconds) after each hundredth."""
    command = [PROGRAM, "generate", run, "--prompt", "the", "--tokens", str(tokens), "--threads", "1"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment())
    points, read, every = [], 0, tokens // 100
    while chunk := process.stdout.read1(1 << 16):
        read += len(chunk)
        if read >= (len(points) + 1) * every and len(points) < 99:
            points.append((resident(process.pid), processor_seconds(process.pid)))
    errors = process.stderr.read().decode()
    assert process.wait() == 0 and len(points) == 99, errors
    return points


def stream(method, tokens):
    with tempfile.TemporaryDirectory() as scratch:
        folder = pathlib.Path(scratch)
        (folder / "text.txt").write_text(english(20000))
        config = merged(TINY, {"data": {"path": "text.txt"}, "forgetting": {"method": method}, "train": {"updates": 100}}, METHODS[method])
        (folder / "config.toml").write_text(toml(config))
        done = lapse("train", "config.toml", "--out", "run", "--quiet", cwd=folder)
        assert done.returncode == 0, done.stderr
        points = measure(folder / "run", tokens)
    memory = [statistics.mean(point[0] for point in points[i : i + 9]) for i in range(10, 99, 10)]
    seconds = [points[i + 8][1] - points[i][1] for i in range(10, 99, 10)]  # of eight hundredths
    return {
        "tokens": tokens,
        "resident_memory": memory[0],
        "memory_change": max(abs(m / memory[0] - 1) for m in memory),
        "microseconds_per_token": seconds[0] / (tokens * 0.08) * 1e6,
        "time_change": max(s / seconds[0] - 1 for s in seconds),
        "memory_of_tenths": memory,
        "seconds_of_tenths": seconds,
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("methods", nargs="*", metavar="METHOD", help=f"of {', '.join(METHODS)}; all without")
    parser.add_argument("--tokens", type=int, default=10_000_000)
    parser.add_argument("--json", type=pathlib.Path, help="what was measured; other methods of the file stay")
    arguments = parser.parse_args()
    failed = False
    for method in arguments.methods or METHODS:
        found = stream(method, arguments.tokens)
        failed |= found["memory_change"] > 0.01 or found["time_change"] > 0.05
        print(f"{method:20} {found['tokens']:.0f} tokens: {found['resident_memory'] / 1e6:.1f} MB, changes by {found['memory_change']:.2%}; "
              f"{found['microseconds_per_token']:.1f} µs a token, grows by {found['time_change']:.1%}", flush=True)
        keep(arguments.json, method, found)
    sys.exit(failed)


if __name__ == "__main__":
    main()
