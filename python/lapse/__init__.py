"""Lapse: attention that learns what to forget, for PyTorch.

    lapse.ops    the fused operators: ramp_attention, selective_attention, selective_prune
    lapse.nn     layers whose memory forgets, in the manner of torch.nn
    lapse.hf     forgetting for models of `transformers`: a cache for generate, and attn_implementation="lapse"
    lapse.load   a trained run of the command `lapse` as a torch.nn.Module
    lapse.show   what a model remembers of a text, as a page in a notebook
    lapse.log    memory sizes for TensorBoard and Weights & Biases

docs/python.md is the guide; docs/equations.md has the formulas, numbered as in the docstrings.
"""

import importlib
from typing import TYPE_CHECKING

from lapse import ops

if TYPE_CHECKING:
    from lapse import hf, log, nn
    from lapse.page_view import show
    from lapse.run import load

__version__ = "0.1.0"
__all__ = ["__version__", "hf", "load", "log", "nn", "ops", "show"]

_MODULES = {"hf", "log", "nn"}
_FUNCTIONS = {"load": "lapse.run", "show": "lapse.page_view"}


def __getattr__(name: str):
    """What needs more than torch is imported when it is asked for."""
    if name in _MODULES:
        return importlib.import_module(f"lapse.{name}")
    if name in _FUNCTIONS:
        return getattr(importlib.import_module(_FUNCTIONS[name]), name)
    raise AttributeError(f"module 'lapse' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
