#!/usr/bin/env python3
"""What it costs to watch: `lapse serve` against `lapse generate`, how late tokens are, and the memory of a long stream.

  bench/serve.py RUN... [--tokens 2500] [--repeat 9] [--threads 1] [--json FILE]     with a client, and with the page
  bench/serve.py RUN --long 1000000 [--json FILE]                                 the memory of server and page

The page is opened in a headless browser. Watched and unwatched take turns. --json adds what was measured to the file.
"""

import argparse
import contextlib
import json
import os
import pathlib
import statistics
import subprocess
import sys
import time

import machine

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests"))
from browser_tab import Tab  # noqa: E402
from program import PROGRAM  # noqa: E402
from serve_client import Server, Session  # noqa: E402


def generated(run, tokens, threads):
    """Tokens a second of `lapse generate`."""
    command = [PROGRAM, "generate", run, *threads, "--tokens", str(tokens), "--json", "--temperature", "0.8"]
    return 1000 / json.loads(subprocess.run(command, capture_output=True, check=True).stdout)["ms_per_token"]


WATCH = """window.measured = { stamps: [], late: [] }; window.unwatched = receivers.steps;
receivers.steps = (steps) => { const time = Date.now(); for (const step of steps) measured.late.push(time - step.ms); measured.stamps.push([steps[0].ms, now]); unwatched(steps); }"""


def in_page(server, tokens):
    """(tokens a second as they were computed, milliseconds of each from there to the page)."""
    tab = Tab()
    try:
        tab.open(f"http://127.0.0.1:{server.port}/")
        tab.wait("typeof about !== 'undefined' && about !== null")
        tab.run(WATCH)
        tab.run(f"command('play', {{ steps: {tokens} }})")
        tab.wait(f"now >= {tokens} && !playing", 600)
        first, last = tab.run("[measured.stamps[0], measured.stamps.at(-1)]")
        return 1000 * (last[1] - first[1]) / (last[0] - first[0]), tab.run("measured.late")
    finally:
        tab.close()


def in_client(server, tokens):
    with Session(server) as session:
        session.play(tokens)
        late = [came - step["ms"] for came, step in zip(session.came, session.steps)]
        seconds = (session.steps[-1]["ms"] - session.steps[0]["ms"]) / 1000
        return (len(session.steps) - 1) / seconds, late


def watched(run, options):
    """Medians of the repeats; all tokens' latencies together."""
    found = {"client": [], "page": []}
    threads = ["--threads", options.threads] if options.threads else []
    with contextlib.ExitStack() as stack:
        server = Server(run, *threads, env=os.environ)
        stack.callback(server.stop)
        for _ in range(options.repeat):
            for viewer, read in (("client", in_client), ("page", in_page)):
                alone = generated(run, options.tokens, threads)
                found[viewer].append((alone, *read(server, options.tokens)))
    results = []
    for viewer, repeats in found.items():
        late = sorted(ms for *_, all_late in repeats for ms in all_late)
        results.append({
            "viewer": viewer,
            "generate_tokens_per_second": statistics.median(alone for alone, *_ in repeats),
            "watched_tokens_per_second": statistics.median(rate for _, rate, _ in repeats),
            "ratio": statistics.median(rate / alone for alone, rate, _ in repeats),
            "ratios": [rate / alone for alone, rate, _ in repeats],
            "late_ms": {"median": late[len(late) // 2], "p99": late[len(late) * 99 // 100], "most": late[-1]},
            "within_20_ms": sum(ms <= 20 for ms in late) / len(late),
        })  # fmt: skip
    return results


def long_stream(options):
    """Bytes of server and page at some points of a long stream."""
    points = []
    with contextlib.ExitStack() as stack:
        server = Server(options.run[0], env=os.environ)
        stack.callback(server.stop)
        tab = Tab()
        stack.callback(tab.close)
        tab.open(f"http://127.0.0.1:{server.port}/")
        tab.wait("typeof about !== 'undefined' && about !== null")
        tab.run("command('play', {})")
        begin = time.monotonic()
        for at in [options.long // 100, *(options.long // 10 * k for k in range(1, 11))]:
            while (now := tab.run("now")) < at:
                time.sleep(0.2)
            tab.send("HeapProfiler.collectGarbage")
            page = tab.send("Runtime.getHeapUsage")["usedSize"]
            points.append({"token": now, "seconds": time.monotonic() - begin, "server_bytes": server.memory(), "page_bytes": page,
                           "browser_bytes": resident_below(tab.process.pid), "elements": tab.run("document.querySelectorAll('*').length")})  # fmt: skip
            print(points[-1], file=sys.stderr)
        late = tab.run("[latency.sum / latency.count, latency.max]")
    return {"points": points, "late_ms": {"mean": late[0], "most": late[1]}}


def resident_below(pid):
    """Resident bytes of a process and of all that it started: a browser is many."""
    page, total, parents = os.sysconf("SC_PAGESIZE"), 0, {}
    for path in pathlib.Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            parents[int(path.parent.name)] = int(path.read_text().rsplit(")", 1)[1].split()[1])
    for one in parents:
        above = one
        while above not in (0, pid):
            above = parents.get(above, 0)
        with contextlib.suppress(OSError):
            total += page * int(pathlib.Path(f"/proc/{one}/statm").read_text().split()[1]) if above == pid else 0
    return total


def about_run(run):
    said = json.loads(subprocess.run([PROGRAM, "info", run, "--json"], capture_output=True, check=True).stdout)
    return {
        "parameters": said["parameters"],
        "layers": len(said["layers"]),
        "method": said["method"],
        "updates": said["update"],
        "rows": statistics.mean(layer["memory_mean"] for layer in said["layers"]),
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", nargs="+")
    parser.add_argument("--tokens", type=int, default=2500)
    parser.add_argument("--repeat", type=int, default=9)
    parser.add_argument("--long", type=int, default=0)
    parser.add_argument("--threads", default="")
    parser.add_argument("--json", type=pathlib.Path)
    options = parser.parse_args()
    if options.long:
        if len(options.run) > 1:
            parser.error("--long measures one run")
        found = {"run": about_run(options.run[0]), **long_stream(options)}
    else:
        found = [{"run": about_run(run), "tokens": options.tokens, "repeats": options.repeat, "results": watched(run, options)} for run in options.run]
    print(json.dumps(found, indent=1))
    if options.json:
        known = json.loads(options.json.read_text()) if options.json.exists() else {}
        known |= {"benchmark": "serve", **machine.about(int(options.threads or os.cpu_count()))} if not options.long or not known else {}
        if options.long:
            found["commit"] = machine.commit()
        known["long" if options.long else "watched"] = found
        options.json.write_text(json.dumps(known, indent=1) + "\n")


if __name__ == "__main__":
    main()
