"""Passive T-Maze: success against the corridor's length, with a fixed span and with Expire-Span (experiments/t_maze/run.sh)."""

import pathlib
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
import sweep  # noqa: E402

LENGTHS = (50, 100, 250, 500, 1000, 1500)


def runs():
    for length in LENGTHS:
        # A step's reward is 1 / length of an episode's: so are the weights that are set against it.
        world = {"t_maze.length": length, "actor_critic.entropy": 1.5 / length, "train.updates": 2000}
        # Spans begin just short of the longest corridors, and the ramp ends well beyond: alpha shortens only spans that rows outlive, and what
        # still lies on the ramp at the longest corridor's end has a gradient that holds it.
        spans_begin = {"expire_span.loss": 1e-3 / length, "expire_span.initial_fraction": 0.95, "expire_span.ramp": max(16, length // 8)}
        readings = {"greedy": ["--greedy", "--episodes=300", f"--set=t_maze.shortest={length}"]}
        reach = length + 1  # all steps of an episode
        spans = {"expire_span": reach, "fixed_span": reach, "fixed_span_64": 64}
        if reach <= 64:
            del spans["fixed_span_64"]  # reaches as far
        for name, span in spans.items():
            method = name.removesuffix("_64")
            values = world | {"forgetting.method": method, f"{method}.max_span": span} | (spans_begin if method == "expire_span" else {})
            yield sweep.Run(f"{name}-{length}", "examples/t_maze.toml", values, readings)


def main():
    def span(result):
        method = result["values"]["forgetting.method"]
        return str(result["values"][f"{method}.max_span"])

    columns = {
        "length": lambda result: str(result["values"]["t_maze.length"]),
        "L": span,
        "success, %": sweep.measured("success", "{:.1f}", reading="greedy", times=100),
        "mean memory, rows of a layer": sweep.measured("memory_mean", "{:.1f}", reading="greedy"),
    }
    sweep.table(HERE, sweep.main(HERE, list(runs()), __doc__), columns)


if __name__ == "__main__":
    main()
