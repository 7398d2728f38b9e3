"""The tasks of A.1 and A.2 further than experiments/tasks goes: Variable Assignment with 10 variables and 10 values, copy and parity, until all is
right; standard attention with 3 variables and 1,000 values for 20,000 updates (experiments/long_tasks/run.sh).
"""

import pathlib
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
import sweep  # noqa: E402

METHODS = {"selective": {}, "standard": {"forgetting.method": "fixed_span"}}
ASSIGNMENT, COPY, PARITY = (f"experiments/tasks/{task}.toml" for task in ("variable_assignment", "copy", "parity"))
TEN = {"variable_assignment.variables": 10, "variable_assignment.values": 10}
LONG = {"train.updates": 20000, "train.validate_every": 500, "train.checkpoint_every": 500, "train.log_every": 100}
UNSEEN = {"test": [], "unseen": ["--ood-values=2", "--test-seed=1"]}  # out of distribution: two values of their own


def runs():
    for seed in (1, 2, 3):
        for name, method in METHODS.items():
            yield sweep.Run(f"copy-{name}-{seed}", COPY, {"train.seed": seed, "train.updates": 5000} | method)
    # Selective attention needs some 50 updates for parity; how many does standard attention with learned positions need?
    long = {"train.updates": 1000, "train.validate_every": 50, "train.log_every": 50}
    for seed in (1, 2, 3):
        yield sweep.Run(f"parity-standard-{seed}", PARITY, {"train.seed": seed} | long | METHODS["standard"])
    for name, method in METHODS.items():
        yield sweep.Run(f"10_variables_10_values-{name}-1", ASSIGNMENT, TEN | {"train.updates": 5000} | method, UNSEEN)
    yield sweep.Run("3_variables_1000_values-standard-1", ASSIGNMENT, LONG | METHODS["standard"], UNSEEN)


def all_right(result):
    """The update of the first validation without a mistake."""
    right = [line["update"] for line in result["validation"] if line["accuracy"] == 1]
    return str(right[0]) if right else "none"


def unseen(result):
    found = result["evaluation"].get("unseen")
    return f"{100 * found['accuracy']:.1f}" if found else ""


def main():
    columns = {
        "first validation all right, update": all_right,
        "test loss, nats": sweep.measured("loss", "{:.2g}"),
        "test accuracy, %": sweep.measured("accuracy", "{:.3f}", times=100),
        "test answers right, %": sweep.measured("answer_accuracy", "{:.2f}", times=100),
        "out of distribution, %": unseen,
    }
    sweep.table(HERE, sweep.main(HERE, list(runs()), __doc__), sweep.UPDATES | columns)


if __name__ == "__main__":
    main()
