"""What scripts/fuzz.sh prints of its runs: report.py LOGS COMMIT JSON TARGET...; JSON may be "". Exits 1 after a crash."""

import json
import pathlib
import re
import sys

INTERRUPTED = 72  # libFuzzer's status after Ctrl-C


def last(pattern, text, default=0):
    found = re.findall(pattern, text)
    return found[-1] if found else default


def read(log, target, commit):
    text = log.read_text(errors="replace")
    status, microseconds = map(int, re.findall(r"^fuzz\.sh: (\d+) (\d+)$", text, re.M)[-1])
    # Without final statistics (after a crash) the last of libFuzzer's own lines counts.
    executions = int(last(r"stat::number_of_executed_units: *(\d+)", text) or last(r"(?m)^#(\d+)\t", text))
    seconds = microseconds / 1e6
    return {
        "target": target,
        "executions": executions,
        "seconds": round(seconds, 1),
        "executions_per_second": round(executions / seconds),
        "coverage": int(last(r"\bcov: (\d+)", text)),
        "peak_memory": int(last(r"stat::peak_rss_mb: *(\d+)", text) or last(r"\brss: (\d+)Mb", text)) << 20,
        "crashes": int(status not in (0, INTERRUPTED)),
        "commit": commit,
    }, text


def show_crash(target, text, log):
    print(f"fuzz: {target} FAILED; its log: {log}", file=sys.stderr)
    for line in text.splitlines():
        if re.search(r"ERROR:|runtime error|^fuzz: |what\(\):|SUMMARY:", line):
            print(f"  {line.strip()}", file=sys.stderr)
    if artifact := last(r"Test unit written to (\S+)", text, ""):
        print(f"  to repeat it: build/fuzz/fuzz_{target} {artifact}", file=sys.stderr)


def write(path, results):
    old = json.loads(path.read_text())["targets"] if path.exists() else []
    merged = {result["target"]: result for result in old + results}
    targets = [merged[name] for name in sorted(merged)]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"targets": targets}, indent=1) + "\n")


def main(logs, commit, out, *targets):
    results = []
    print(f"{'target':<14}{'executions':>12}{'seconds':>10}{'per second':>12}{'coverage':>10}{'peak MB':>9}")
    for target in targets:
        log = pathlib.Path(logs) / f"{target}.log"
        result, text = read(log, target, commit)
        results.append(result)
        print(
            f"{target:<14}{result['executions']:>12,}{result['seconds']:>10.1f}{result['executions_per_second']:>12,}"
            f"{result['coverage']:>10,}{result['peak_memory'] >> 20:>9,}"
        )
        if result["crashes"]:
            show_crash(target, text, log)
    if out:
        write(pathlib.Path(out), results)
    return any(result["crashes"] for result in results)


sys.exit(main(*sys.argv[1:]))
