"""Figure 5's form: bits per byte against mean memory size on Wikipedia, fixed spans against Expire-Span (experiments/text/run.sh)."""

import pathlib
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
import sweep  # noqa: E402

CONFIG = "experiments/text/base.toml"


def runs():
    files = {"data.path": str(pathlib.Path(sweep.given("LAPSE_DATA")) / "wikipedia.txt.gz")}
    run = lambda name, values: sweep.Run(name, CONFIG, values, files=files)
    # First whether memory matters at this size: a span of 512 should be 0.05 bits ahead of one of 64.
    fixed = lambda span: run(f"fixed_span_{span}", {"forgetting.method": "fixed_span", "fixed_span.max_span": span})
    yield from map(fixed, (64, 512))
    yield from (run(f"expire_span_{alpha:g}", {"expire_span.loss": alpha}) for alpha in (1e-6, 1e-5, 1e-7))
    yield from map(fixed, (128, 32))
    # Of the form that learned spans take, but not learned: three layers of few rows and a last one of many, 92 on average.
    form = {"local_global.max_span": 212, "local_global.window": 52, "local_global.every": 4}
    yield run("local_global", {"forgetting.method": "local_global"} | form)
    adaptive = {"adaptive_span.max_span": 1024, "adaptive_span.initial_fraction": 0.1, "adaptive_span.loss": 1e-6}
    yield run("adaptive_span_1e-06", {"forgetting.method": "adaptive_span"} | adaptive)
    yield run("divisor_1", {"expire_span.divisor": 1.0})  # Eq. 3
    # The bias too is divided, and so changes slowly: are spans still there when memory pays?
    yield run("eq_8", {"expire_span.divide": "all"})
    yield run("eq_8_again", {"expire_span.divide": "all"})  # by later code: what does rounding change?
    yield run("eq_8_1e-05", {"expire_span.divide": "all", "expire_span.loss": 1e-5})
    form = {"local_global.max_span": 314, "local_global.window": 83, "local_global.every": 4}  # as many rows as eq_8 holds
    yield run("local_global_141", {"forgetting.method": "local_global"} | form)
    for seed in (2, 3):
        yield run(f"eq_8-{seed}", {"expire_span.divide": "all", "train.seed": seed})
    yield run("local_global_141-2", {"forgetting.method": "local_global", "train.seed": 2} | form)
    # Spans fall before memory pays. Do they survive if they begin longer, or if a longer ramp shows what farther rows would be worth?
    begin = {"expire_span.divide": "all", "expire_span.initial_fraction": 0.5}
    yield run("eq_8_p_0.5", begin)
    yield run("eq_8_p_0.5_1e-05", begin | {"expire_span.loss": 1e-5})
    yield run("eq_8_p_0.5-2", begin | {"train.seed": 2})
    yield run("eq_8_r_128", {"expire_span.divide": "all", "expire_span.ramp": 128})
    for alpha in (1e-6, 1e-7):
        yield run(f"expire_span_{alpha:g}-2", {"expire_span.loss": alpha, "train.seed": 2})
    # What is the ramp's, what the spans'? A cost that leaves no span.
    yield run("only_ramp", {"expire_span.loss": 1e-2, "expire_span.initial_fraction": 0.01})
    # The paper's regularisation, each alone beside eq_8 (A.2: without LayerDrop its large model has 1.00 bits per byte instead of 0.98).
    eq_8 = {"expire_span.divide": "all"}
    yield run("random_drop", eq_8 | {"expire_span.random_drop": True})
    yield run("dropout", eq_8 | {"model.dropout": 0.1})
    yield run("layer_drop", eq_8 | {"model.layer_drop": 0.1})


def main():
    bits = {"bits per byte": sweep.measured("bpb", "{:.3f}")}
    sweep.table(HERE, sweep.main(HERE, list(runs()), __doc__), sweep.UPDATES | bits | sweep.MEMORY)


if __name__ == "__main__":
    main()
