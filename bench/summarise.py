#!/usr/bin/env python3
"""Prints the results of the benchmarks as Markdown: bench/summarise.py [FILE...], by default bench/results/*.json."""
import json
import pathlib
import sys


def table(heading: list[str], rows: list[list[str]]) -> str:
    lines = [heading, ["---"] + ["---:"] * (len(heading) - 1), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n"


def megabytes(path: dict, key: str = "peak_memory") -> str:
    return f"{path[key] / 1e6:.0f} MB" if key in path else ""


def machine(data: dict) -> str:
    if "machine" in data:  # of bench/gpu.py
        m = data["machine"]
        peak = f" Peak of dense bfloat16 products: {m['bf16_peak_tflops']:.0f} TFLOP/s." if m.get("bf16_peak_tflops") else ""
        return f"{m['card']}, PyTorch {m['torch']}, Triton {m['triton']}, CUDA {m['cuda']}.{peak}\n"
    commit = f", commit {data['commit']}" if data["commit"] else ""
    quick = " **A --quick run: these are no measurements.**" if data["quick"] else ""
    build = f"libtorch {data['libtorch']}, {data['date']}{commit}"
    text = f"{data['processor']}, {data['threads']} threads, {build}.{quick}"
    for precision, peak in data.get("peak", {}).items():
        text += f" Peak {precision}: {peak['gflops']:.0f} GFLOP/s ({peak['by']})."
    return text + "\n"


def paths(data: dict) -> str:
    """attention and step: a line for each path of each case."""
    tokens = any("tokens_per_second" in p for r in data["results"] for p in r["paths"].values())
    visible = any("visible_pairs" in r for r in data["results"])
    rows = []
    for result in data["results"]:
        for name, path in result["paths"].items():
            first = name == next(iter(result["paths"]))
            row = [
                f"`{result['case']}` {result['precision']}" if first else "",
                name,
                f"{path['ms']:.1f}",
                f"{path['gflops']:.0f}" if path["gflops"] else "",
                f"{path['of_peak'] * 100:.0f} %" if path["gflops"] else "",
                f"{path['fused_over_this']:.2f}" if "fused_over_this" in path else "",
                megabytes(path),
            ]
            if tokens:
                row.append(f"{path['tokens_per_second']:,.0f}")
            elif visible:
                share, of_peak = result["visible_pairs"], result["of_peak_over_visible_pairs"]
                row.append(f"{share * 100:.0f} % ({of_peak * 100:.0f} %)" if first else "")
            rows.append(row)
    last = ["tokens/s"] if tokens else ["visible pairs (of peak over them)"] if visible else []
    return table(["case", "path", "ms", "GFLOP/s", "of peak", "fused/this", "peak memory", *last], rows)


def generation(data: dict) -> str:
    rows = [[r["path"], f"{r['seen']:,}" if r["seen"] else "", f"{r['ms']:.2f}", f"{r['over_eager']:.3f}"] for r in data["results"]]
    text = table(["path", "tokens seen", "ms per token", "time / eager"], rows)
    ratios = ", ".join(f"{name} {ratio:.3f}" for name, ratio in data["slowest_over_fastest"].items())
    return f"{text}\n|C_t| = {data['memory']}, {data['megabytes_read']:.1f} MB to read for a token in float32; slowest / fastest point: {ratios}\n"


def memory(data: dict) -> str:
    rows = [[str(point["update"]), megabytes(point, "resident_memory")] for point in data["results"]]
    r = data["rows"]
    return (
        table(["update", "resident"], rows)
        + f"\nLargest after update {data['first']} / at it: {data['largest_over_first']:.3f}; "
        f"tables of {r['least']} to {r['most']} rows, {r['distinct']} sizes, {data['precision']}\n"
    )


def methods(data: dict) -> str:
    step, budget = data["adaptive_step"], data["budget"]
    rows = [[f"all {budget['rows']} rows", "full"], [f"at most {budget['budget_rows']}", "budget"], ["a window of 2", "none"]]
    lines = [[name, f"{budget[key]['ms']:.2f}", megabytes(budget[key], "memory_bytes")] for name, key in rows]
    return (
        f"Adaptive-Span's step {step['adaptive_span_ms']:.0f} ms, fixed span's {step['fixed_span_ms']:.0f} ms: "
        f"{step['adaptive_over_fixed']:.2f}\n\n"
        + table(["rows that selective attention reads", "ms per token", "memory"], lines)
        + f"\nMemory under the budget / all: {budget['memory_over_full']:.2f}\n\n"
        + baselines(data["baselines"])
    )


def rl(data: dict) -> str:
    alone = [[r["environment"], f"{r['steps_per_second'] / 1e6:.0f} million"] for r in data["environments"]]
    rows = []
    for result in data["results"]:
        for name, path in result["paths"].items():
            first = name == next(iter(result["paths"]))
            parts = [f"{path[key]:.0f}" for key in ("ms", "acting_ms", "learning_ms")]
            ratio = f"{path['fused_over_this']:.2f}" if "fused_over_this" in path else ""
            held = f"{result['rows'][0]:.0f} to {result['rows'][1]:.0f}" if first else ""
            case = f"`{result['case']}`" if first else ""
            rows.append([case, name, *parts, f"{path['steps_per_second']:,.0f}", ratio, megabytes(path), held])
    heading = ["case", "path", "ms", "acting", "learning", "steps/s", "fused/this", "peak memory", "rows held"]
    return table(["environment alone, one core", "steps/s"], alone) + "\n" + table(heading, rows)


def choices(data: dict) -> str:
    rows = [[name, f"{r['questions_per_minute']:,.0f}", f"{r['one_by_one_per_minute']:,.0f}"] for name, r in data["results"].items()]
    return table(["method", "questions/min", "each candidate after a context of its own"], rows)


def t5(data: dict) -> str:
    rows = [
        ["lapse", f"{1000 * data['lapse_seconds']:,.0f}", f"{data['share_of_peak'] * 100:.0f} %"],
        ["transformers, eager", f"{1000 * data['transformers_seconds']:,.0f}", ""],
    ]
    return table(["T5-small, 8 x 512 → 114", "ms", "of peak"], rows)


def parallel(data: dict) -> str:
    W, memory = data["ranks"], "/".join(f"{bytes / 1e6:.0f}" for bytes in data["memory_of_processes"])
    rows = [
        [f"one process of {W} threads", f"{data['one_process_ms']:.0f}", "", "", f"{data['memory_of_one'] / 1e6:.0f} MB"],
        [f"{W} processes of 1 thread", f"{data['ranks_ms']:.0f}", f"{data['efficiency']:.2f}", f"{data['exchange_ms']:.0f}", f"{memory} MB"],
    ]
    return table([f"{data['gradient_bytes'] / 1e6:.0f} MB of gradients", "ms an update", "efficiency", "of which exchange, ms", "resident memory"], rows)


def python_decode(data: dict) -> str:
    rows = []
    for r in data["results"]:
        first = r["method"] == "DynamicCache"
        sizes = [f"{r['cache_bytes'] / 1e6:.0f} MB", f"{r['resident'] / 1e6:.0f} MB"]
        rows.append([f"{r['context']:,}" if first else "", f"`{r['method']}`", f"{r['ms']:.0f}", f"{r['of_dynamic']:.2f}", *sizes])
    return table([f"rows of context, budget {data['budget']}", "cache", "ms", "time / DynamicCache", "size of the cache", "growth of resident memory"], rows)


def matrix(data: dict) -> str:
    row = [f"{data['documents']:,} of {data['model']['window']} tokens", f"{data['eval_seconds']:.1f}", f"{data['matrix_seconds']:.1f}", f"{data['readings']:.2f}"]
    return table(["documents", "s to read them", "s for the mean F", "ratio"], [row])


def serve(data: dict) -> str:
    runs, long = data["watched"], data.get("long", {"points": []})
    rows = [
        [f"a {r['viewer']}", f"{one['run']['parameters']:,}", f"{r['watched_tokens_per_second']:,.0f}", f"{r['generate_tokens_per_second']:,.0f}", f"{r['ratio']:.2f}",
         f"{r['late_ms']['median']:.0f}", f"{r['late_ms']['p99']:.0f}", f"{r['late_ms']['most']:.0f}", f"{r['within_20_ms'] * 100:.1f} %"]
        for one in runs
        for r in one["results"]
    ]  # fmt: skip
    points = [[f"{p['token']:,}", *(megabytes(p, f"{key}_bytes") for key in ("server", "page", "browser"))] for p in long["points"]]
    about = [f"{one['run']['parameters']:,} parameters: {one['run']['layers']} layers, {one['run']['rows']:.0f} rows in each; medians of {one['repeats']} times {one['tokens']:,} tokens" for one in runs]
    return (
        table(["watched by", "parameters", "tokens/s", "`lapse generate`", "ratio", "ms to the viewer, median", "99th percentile", "largest", "within 20 ms"], rows)
        + "\n" + ". ".join(about) + ".\n\n"
        + (table(["tokens of a stream", "server", "the page's script", "all of the browser"], points) if points else "")
    )


def baselines(data: dict) -> str:
    budgets = list(next(iter(data.values())))
    cells = [[name, *(f"{at[b]['ms']:.2f} ms, {megabytes(at[b], 'memory_bytes')}" for b in budgets)] for name, at in data.items()]
    return table(["time of a token, and memory, by rows held", *budgets], cells)


def gpu(data: dict) -> str:
    """bench/gpu.py: cases of some lengths, each a line; what was not measured is empty."""
    lines = [line for line in data["table"] if "error" not in line and "left_out" not in line]

    def find(what: str, **case) -> dict:
        return next((x for x in lines if x["what"] == what and case.items() <= x.items() and all(x.get(n) == case.get(n) for n in ("ragged", "dropout"))), {})

    def ms(line: dict) -> str:
        share = f" ({line['share_of_peak'] * 100:.0f} %)" if "share_of_peak" in line else ""
        return f"{line['ms']:.3g}{share}" if "ms" in line else ""

    def times(line: dict) -> str:
        return f"{line['times']:.1f}" if "times" in line else ""

    rows = []
    for case in [x for x in lines if x["what"] in ("ramp both", "ramp both, unmasked") and x["rows"] in (2048, 8192, 32768, 65536)]:
        key = {n: case[n] for n in ("B", "K", "rows", "H", "D", "expired", "fading") if n in case}
        kind = case["what"].removeprefix("ramp both")
        columns = [ms(find(what + kind, **key)) for what in ("ramp forward", "ramp both", "sdpa both", "eager both", "flex both")]
        by_line = f"{case['time_by_line']:.2f}" if 0 < case["expired"] < 0.99 and "time_by_line" in case else ""
        rows.append([f"{key['rows']:,}", str(key["D"]), f"{key['expired'] * 100:.0f} %{kind}", *columns[:2], by_line, *columns[2:], times(find("ramp both over flex", **key))])
    heads = ["rows", "D", "expired", "forward", "both passes", "of the line", "`sdpa`", "eager", "FlexAttention", "times"]
    there = [i for i in range(len(heads)) if any(row[i] for row in rows)]
    text = table([heads[i] for i in there], [[row[i] for i in there] for row in rows])
    rows = []
    for case in sorted((x for x in lines if x["what"] == "selective both"), key=lambda x: x["N"]):
        key = {n: case[n] for n in ("B", "N", "H", "D")}
        flex, eager, over = (find(what, **key) for what in ("flex selective both, F in memory", "eager selective both", "selective both over flex"))
        memory = f"{over['memory']:.2f}" if over else ""
        rows.append([f"{key['N']:,}", ms(find("selective forward", **key)), ms(case), ms(eager), ms(flex), times(over), memory])
    text += "\n" + table(["N", "forward", "both passes", "eager", "FlexAttention, F in memory", "times", "of its memory"], rows)
    rows = []
    for case in [x for x in lines if x["what"] == "decode"]:
        key = {n: case[n] for n in ("B", "rows", "H", "D")}
        found = [find(what, **key) for what in ("decode over reading", "decode, selective over reading")]
        rows.append([str(key["B"]), f"{key['rows']:,}", f"{case['ms']:.3g}", *(f"{x['times']:.2f}" if x else "" for x in found)])
    text += "\n" + table(["streams", "rows", "a token's ramp attention", "of reading", "selective, of reading"], rows)
    rows = []
    for case in [x for x in lines if x["what"] == "step"]:
        key = {n: case[n] for n in ("B", "dropout") if n in case}
        eager, over = find("step, eager", **key), find("step over eager", **key)
        rows.append([str(case["B"]) + (f", dropout {case['dropout']}" if "dropout" in case else ""), f"{case['ms']:.0f}", ms(eager), times(over), f"{case['bytes'] / 1e9:.1f} GB", f"{over['memory']:.2f}" if over else ""])
    return text + "\n" + table(["enwik8's model, batch", "step", "eager", "times", "memory", "of eager's memory"], rows)


def gpu_generation(data: dict) -> str:
    rows = []
    for line in data["results"]:
        method = line["method"] if line["graphs"] else ""
        rows.append([f"`{method}`" if method else "", "yes" if line["graphs"] else "no", f"{line['tokens']:,}", f"{line['rows_in_a_layer']:,}", f"{line['ms_per_token']:.2f}"])
    return table(["method", "graphs", "tokens", "rows in a layer at the end", "ms a token"], rows)


def gpu_kernel_times(data: dict) -> str:
    """A line for each kernel and case, a column for each sitting."""
    sittings = [{json.dumps(x | {"ms": 0}): x["ms"] for x in s["table"]} for s in data["sittings"]]
    rows = []
    for case in {x: None for s in sittings for x in s}:
        x = json.loads(case)
        length = f"{x.get('rows', x.get('N')):,}"
        rows.append([f"`{x['kernel']}`", length, str(x["D"]), *(f"{s[case]:.3g}" if case in s else "" for s in sittings)])
    return table(["kernel", "rows", "D", *(s["code"] for s in data["sittings"])], rows)


def gpu_expired(data: dict) -> str:
    """Two ways of one thing beside each other, for each of two things: both passes in ms. And how time follows the rows that survive."""

    def beside(pair: list[dict], columns: list[str], cells) -> str:
        rows = [[*cells(x), f"{x['both_ms']:.3g}", f"{y['both_ms']:.3g}", f"{y['both_ms'] / x['both_ms']:.2f}"] for x, y in zip(*(p["table"] for p in pair), strict=True)]
        return table([*columns, *(p["code"] for p in pair), "ratio"], rows)

    share = lambda x: f"{x * 100:.0f} %"
    zeros = beside(data["zeros"], ["rows", "D", "expired"], lambda x: [f"{x['rows']:,}", str(x["D"]), share(x["expired"])])
    full = {(x["rows"], x["D"]): x["both_ms"] for x in data["zeros"][1]["table"] if x["expired"] == 0}
    rows = []
    for x in (x for x in data["zeros"][1]["table"] if x["expired"] > 0):
        surviving = (x["K"] + (1 - x["expired"]) * (x["rows"] - x["K"])) / x["rows"]
        took = x["both_ms"] / full[x["rows"], x["D"]]
        rows.append([f"{x['rows']:,}", str(x["D"]), share(x["expired"]), f"{surviving:.3f}", f"{took:.3f}", f"{took / surviving:.2f}"])
    zeros += "\n" + table(["rows", "D", "expired", "rows that survive", "time", "ratio"], rows)
    return zeros + "\n" + beside(data["buckets"], ["call with", "D", "fading"], lambda x: [f"`{x['kind']}`", str(x["D"]), share(x["fading"])])


def step_pairs(data: dict) -> str:
    """Two commits side by side, a core each, in pairs of runs."""
    heads = ["case", f"ms, {data['before']}", f"ms, {data['after']}", "ratio"]
    rows = [[case, f"{p['before']:.0f}", f"{p['after']:.0f}", f"{p['after'] / p['before']:.2f}"] for case, pairs in data["median_ms"].items() for p in pairs]
    if "peak_memory" in data:
        heads += ["peak memory", "then"]
        for row, p in zip(rows, (p for pairs in data["peak_memory"].values() for p in pairs)):
            row += [f"{p[when] / 1e6:.0f} MB" for when in ("before", "after")]
    return table(heads, rows)


SECTIONS = {"methods": methods, "selective": paths, "attention": paths, "step": paths, "step_linear": step_pairs, "step_in_place": step_pairs, "generation": generation, "memory": memory, "rl": rl, "choices": choices, "t5": t5, "matrix": matrix, "parallel": parallel, "python_decode": python_decode, "serve": serve, "gpu": gpu, "gpu_expired": gpu_expired, "gpu_generation": gpu_generation, "gpu_kernel_times": gpu_kernel_times}


def main() -> int:
    if any(argument.startswith("-") for argument in sys.argv[1:]):
        print(__doc__)
        return 0 if sys.argv[1:] in (["--help"], ["-h"]) else 2
    results = pathlib.Path(__file__).resolve().parent / "results"
    files = [pathlib.Path(a) for a in sys.argv[1:]] or sorted(results.glob("*.json"))
    if not files:
        print(f"summarise.py: no results in {results}; bench/run.sh writes them", file=sys.stderr)
        return 1
    for file in files:
        try:
            data = json.loads(file.read_text(encoding="utf-8"))
            section = SECTIONS[data["benchmark"]]
            print(f"### {file.stem}\n\n{machine(data)}\n{section(data)}")
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            print(f"summarise.py: {file}: no results of a benchmark: {error!r}", file=sys.stderr)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
