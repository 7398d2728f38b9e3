#!/usr/bin/env python3
"""Where selective and standard attention differ: on tokens whose pair with the token before was in the document already, and elsewhere;
and how much selective attention masks tokens of ages 32 to 63, in nats.

  experiments/documents/repeated.py [--runs DIR]      # reads the pairs of runs that are complete: a minute each

A model that has learned to look for what followed the same token before (an induction head) predicts such a token. Writes
results/repeated.json and results/repeated.md.
"""

import argparse
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
import sweep  # noqa: E402


def losses(selective, standard):
    """A dictionary for each token of the test part, in the order of the text."""
    with tempfile.TemporaryDirectory() as folder:
        file = pathlib.Path(folder) / "losses.jsonl"
        options = ["--against", standard, "--losses", file, "--streams=1", "--json"]
        subprocess.run([sweep.LAPSE, "eval", selective, *options], check=True, stdout=subprocess.DEVNULL)
        return [json.loads(line) for line in file.read_text().splitlines()]


def compare(tokens):
    """Tokens and mean losses of both models, on repeated pairs and elsewhere."""
    sums = {True: [0, 0.0, 0.0], False: [0, 0.0, 0.0]}
    pairs, before = set(), None
    for token in tokens:
        if token["memory"][0] == 1:  # a document begins
            pairs, before = set(), None
        pair = (before, token["token"])
        sum_ = sums[pair in pairs]
        sum_[0] += 1
        sum_[1] += token["nats"]
        sum_[2] += token["against_nats"]
        pairs.add(pair)
        before = token["token"]
    return {name: {"tokens": n, "selective": ours / n, "standard": theirs / n}
            for name, (n, ours, theirs) in (("repeated", sums[True]), ("elsewhere", sums[False]))}


def masking(run):
    """The mean F of ages 32 to 63 in each layer, over documents that fill the window."""
    with tempfile.TemporaryDirectory() as folder:
        file = pathlib.Path(folder) / "masking.json"
        options = ["--matrix=masking", "--documents=200", "--min-fill=1", "--out", file]
        subprocess.run([sweep.LAPSE, "inspect", run, *options], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        layers = json.loads(file.read_text())["layers"]
    lines = [list(enumerate(layer["heads"][0])) for layer in layers]  # of each query: F of the rows up to its own
    return [statistics.mean(line[t - age] for t, line in layer for age in range(32, 64) if t - age > 0) for layer in lines]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=pathlib.Path, default=sweep.ROOT / "runs" / HERE.name)
    arguments = parser.parse_args()
    out = HERE / "results" / "repeated.json"
    found = json.loads(out.read_text()) if out.exists() else {}
    for selective in sorted(arguments.runs.glob("*-selective*")):
        standard = arguments.runs / selective.name.replace("-selective", "-standard")
        if selective.is_dir() and all(run.exists() and sweep.trained(run) for run in (selective, standard)):
            found[selective.name] = compare(losses(selective, standard)) | {"masking_of_layers": masking(selective)}
    out.write_text(json.dumps(dict(sorted(found.items())), indent=1) + "\n")
    mean = lambda part, model: lambda each: f"{each[part][model]:.3f}"
    share = lambda each: each["repeated"]["tokens"] / (each["repeated"]["tokens"] + each["elsewhere"]["tokens"])
    columns = {"repeated pairs, share of tokens": lambda each: f"{100 * share(each):.0f} %"}
    for part in ("repeated", "elsewhere"):
        columns |= {f"{part}: selective": mean(part, "selective"), f"{part}: standard": mean(part, "standard")}
    columns["mean F at ages 32 to 63, by layer"] = lambda each: ", ".join(f"{F:.1f}" for F in each["masking_of_layers"])
    sweep.table(HERE, found, columns, name="repeated")


if __name__ == "__main__":
    main()
