"""Times and memory of functions on a GPU, as lines of one table; for bench/gpu.py. An error is a line too."""

import contextlib
import statistics
import time
import traceback

from gpu_formulas import SMOKE  # isort: skip

import torch

table = []  # rows of what was measured


def show(line):
    words = [f"{n} {x:.4g}" if isinstance(x, float) else f"{n} {x}" for n, x in line.items() if n != "what"]
    print(f"{line['what']:28}", "  ".join(words), flush=True)


def add_error(line, error):
    """A line for what was raised."""
    first = str(error).splitlines()[0] if str(error) else ""
    line = {n: x if isinstance(x, (int, float, str)) else str(x) for n, x in line.items()}
    table.append(line | {"error": f"{type(error).__name__}: {first}"[:300]})
    show(table[-1])
    if not SMOKE:
        with contextlib.suppress(Exception):  # after a fault on the GPU every call raises
            torch.cuda.empty_cache()


@contextlib.contextmanager
def errors_as_lines(what, case):
    """What is raised inside becomes a line of the table, and the rest goes on."""
    try:
        yield
    except Exception as error:
        traceback.print_exc()
        add_error({"what": what, **case}, error)


def failures():
    """Lines of errors, but where what we compare with needs more memory than the card has."""
    errors = [line for line in table if "error" in line]
    ours = lambda line: not any(name in line["what"] for name in ("eager", "flex", "sdpa"))
    return [line for line in errors if ours(line) or not line["error"].startswith("OutOfMemoryError")]


def seconds(function, repeat=7):
    return timed(function, repeat)[0]


def timed(function, repeat=7):
    """Seconds of one call, from a CUDA graph; where it cannot be captured, from the stream. And whether it could. A graph holds as
    many calls as take half a millisecond, at most 20: else a call of some microseconds would be timed with the graph's launch."""
    if SMOKE:
        begin = time.perf_counter()
        function()
        return time.perf_counter() - begin, False
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            function()
    torch.cuda.current_stream().wait_stream(stream)
    torch.cuda.synchronize()
    calls = 1
    try:
        run = replayed(function, 1)
        calls = max(1, min(20, int(5e-4 / between_events(run))))
        run, captured = replayed(function, calls), True
    except Exception:  # what is inside synchronises, or allocates in a way that a graph cannot hold
        torch.cuda.synchronize()
        run, captured, calls = function, False, 1
    run()
    return statistics.median(between_events(run) for _ in range(repeat)) / calls, captured


def replayed(function, calls):
    """A function that replays a graph of so many calls."""
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(calls):
            function()
    graph.replay()
    return graph.replay


def between_events(function):
    """Seconds on the GPU."""
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record()
    function()
    end.record()
    end.synchronize()
    return begin.elapsed_time(end) / 1e3


def peak_bytes(function):
    if SMOKE:
        return 0
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    function()
    torch.cuda.synchronize()
    return torch.cuda.max_memory_allocated() - before


def record(what, case, function, flops=0, size=0):
    """A line of the table, and the milliseconds in it; an error, such as too little memory, is a line too."""
    line = {"what": what, **case}
    try:
        line["bytes"] = peak_bytes(function)
        took, line["graph"] = timed(function)  # without a graph Python's time is in it
    except Exception as error:
        return add_error(line, error)
    line["ms"] = took * 1e3
    if flops:
        line["tflops"] = flops / line["ms"] / 1e9
    if size:
        line["gbs"] = size / line["ms"] / 1e6
    table.append(line)
    show(line)
    return line["ms"]


def compare(what, case, ours, theirs):
    """How many times as fast as another line of the table the first is, and what share of its memory it takes."""
    mine, other = ({line["what"]: line for line in table if case.items() <= line.items()}.get(name, {}) for name in (ours, theirs))
    if mine.get("ms") and other.get("ms"):
        ratios = {"times": other["ms"] / mine["ms"], "memory": mine["bytes"] / max(1, other["bytes"])}
        table.append({"what": what, **case, **ratios})
        print(f"  {what}: {ratios['times']:.2f} x as fast, {ratios['memory']:.2f} of its memory", flush=True)
