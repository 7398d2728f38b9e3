#!/usr/bin/env python3
"""Writes tests/golden/*.safetensors, which `lapse golden` and the tests read: small models of random weights, and what
reference_model.py and selective_reference.py, which share nothing with the C++ code, compute with them.

    .venv/bin/python tests/make_golden.py [FOLDER]      # default: tests/golden
"""

import pathlib
import sys

from reference_model import Sizes, write_golden
from safetensors.torch import save_file
from selective_reference import golden_tensors

SMALL = {"blocks": 5, "batch": 2, "block": 6, "vocabulary": 11, "width": 12, "heads": 2, "head_dim": 6}
SMALL |= {"feed_forward": 20, "max_span": 24, "ramp": 4, "loss": 0.02}

MODELS = {
    "expire_span": Sizes(**SMALL, seed=101),
    "expire_span_pre_norm": Sizes(**SMALL, seed=102, pre_norm=True, divisor=3, random_drop=True),
    "fixed_span": Sizes(**SMALL, seed=103, method="fixed_span"),
}
SELECTIVE = {"shape": (2, 2, 14, 4), "budgets": [10, 6, 3], "loss": 0.1, "cap": 1.0, "seed": 104}


def main():
    folder = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else pathlib.Path(__file__).parent / "golden"
    folder.mkdir(exist_ok=True)
    for name, sizes in MODELS.items():
        write_golden(folder / f"{name}.safetensors", sizes, span_scale=1.5)
    metadata = {"method": "selective_attention", "budgets": str(SELECTIVE["budgets"])}
    metadata |= {"eps": str(SELECTIVE["loss"]), "tau": str(SELECTIVE["cap"]), "seed": str(SELECTIVE["seed"])}
    save_file(golden_tensors(**SELECTIVE), folder / "selective_attention.safetensors", metadata)


if __name__ == "__main__":
    main()
