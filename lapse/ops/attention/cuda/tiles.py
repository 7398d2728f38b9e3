"""How large the kernels' tiles are: the one table, for the calls from Python and for what is compiled ahead of time."""

import dataclasses
import functools
import os

import torch
import triton

# Numbers of the kernels. None is compiled in: a call's lengths differ from one to the next.
_NUMBERS = (
    "N K H G P A B a blocks chunks steps scale select_scale ramp epsilon kept_scale cap min_age max_age has_until row_spans "
    "span_stride span_row span_head has_logit bias_age threshold has_lse select_stride_q select_stride_k own mask_self relu "
    "shift whole_age queries_blocks has_masking has_first budget part_rows"
).split()
entry = functools.partial(triton.jit, do_not_specialize=_NUMBERS)  # a kernel that is launched, not called by others
INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"


@dataclasses.dataclass(frozen=True)
class Tile:
    queries: int
    rows: int
    warps: int
    stages: int
    precision: str = "ieee"  # of products in float32: never plain TF32


def _single(queries, rows, warps, stages):
    """float32: products of three parts in TF32 each, whose error is a few of float32's roundings."""
    return Tile(queries, rows, warps, stages, "tf32x3")


# Kernel -> plain and with extras, each: half precision at D <= 64 and D <= 128, float32 at both. Chosen by what the
# compiler says: no spills, or few, and no more shared memory than sm_86 has.
_TILES = {
    "ramp_forward": (
        (Tile(128, 64, 8, 3), Tile(64, 64, 4, 2), _single(64, 32, 8, 2), _single(32, 32, 8, 2)),
        (Tile(64, 32, 8, 2), Tile(64, 32, 8, 2), _single(32, 32, 8, 2), _single(32, 32, 8, 2)),
    ),
    "ramp_decode.1": (  # one head with keys of its own: a running softmax for each row of the tile
        (Tile(1, 128, 8, 3), Tile(1, 64, 8, 3), _single(1, 64, 8, 3), _single(1, 32, 8, 3)),
        (Tile(1, 128, 8, 3), Tile(1, 64, 8, 3), _single(1, 64, 8, 3), _single(1, 32, 8, 3)),
    ),
    "ramp_decode": (  # as many heads as share a key, at least 16, instead of queries
        (Tile(16, 64, 4, 3), Tile(16, 64, 4, 3), _single(16, 64, 4, 2), _single(16, 32, 4, 2)),
        (Tile(16, 64, 4, 2), Tile(16, 32, 4, 2), _single(16, 16, 4, 2), _single(16, 16, 4, 1)),
    ),
    "selective_decode.1": (
        (Tile(1, 64, 8, 3), Tile(1, 32, 8, 3), _single(1, 32, 8, 3), _single(1, 16, 8, 3)),
        (Tile(1, 64, 8, 3), Tile(1, 32, 8, 3), _single(1, 32, 8, 3), _single(1, 16, 8, 3)),
    ),
    "selective_decode": (  # beside a tile of keys that of what selects
        (Tile(16, 64, 4, 2), Tile(16, 32, 4, 2), _single(16, 16, 4, 2), _single(16, 16, 4, 1)),
        (Tile(16, 64, 4, 2), Tile(16, 32, 4, 2), _single(16, 16, 4, 2), _single(16, 16, 4, 1)),
    ),
    "ramp_received": (
        (Tile(32, 64, 4, 2), Tile(32, 64, 4, 2), _single(32, 32, 8, 2), _single(32, 32, 8, 2)),
        (Tile(32, 64, 4, 2), Tile(32, 64, 4, 2), _single(32, 32, 8, 2), _single(32, 32, 8, 2)),
    ),
    "ramp_backward_queries": (
        (Tile(64, 64, 8, 3), Tile(64, 64, 8, 2), _single(32, 32, 8, 2), _single(32, 32, 8, 2)),
        (Tile(64, 32, 8, 2), Tile(64, 32, 8, 2), _single(32, 32, 8, 2), _single(32, 16, 8, 2)),
    ),
    "ramp_backward_rows": (
        (Tile(32, 128, 8, 2), Tile(32, 64, 8, 2), _single(32, 32, 8, 2), _single(16, 32, 8, 2)),
        (Tile(32, 64, 8, 2), Tile(32, 64, 8, 2), _single(32, 32, 8, 2), _single(16, 16, 4, 2)),
    ),
}
# All kernels of one call of selective_attention share their blocks of queries, at whose beginnings F is kept.
_SELECTIVE = (Tile(64, 32, 8, 2), Tile(64, 32, 8, 2), _single(16, 16, 4, 2), _single(16, 16, 4, 1))


# The same in half precision for sm_90, by the clock of an H100: bench/gpu.py --tune, and by hand those of decode at 64
# features; ramp_backward_queries and ramp_decode.1 at 64 features by that of an H200. Not yet timed: extras of the others, and decode at 128 features.
_HOPPER = {
    "ramp_forward": {
        "": (Tile(128, 64, 4, 3), Tile(128, 128, 8, 3)),
        "positions": (Tile(64, 64, 4, 2), Tile(64, 32, 4, 3)),
        "dropout": (Tile(64, 32, 4, 3), Tile(64, 32, 4, 3)),
        "extras": (Tile(64, 32, 4, 2), Tile(64, 32, 8, 2)),
    },
    "ramp_backward_queries": {
        "": (Tile(64, 64, 4, 3), Tile(64, 64, 4, 2)),
        "positions": (Tile(32, 64, 4, 3), Tile(32, 64, 4, 3)),
        "dropout": (Tile(32, 64, 4, 3), Tile(32, 64, 4, 3)),
        "extras": (Tile(64, 32, 8, 2), Tile(64, 32, 8, 2)),
    },
    "ramp_backward_rows": {
        "": (Tile(64, 64, 4, 3), Tile(32, 64, 4, 3)),
        "positions": (Tile(64, 64, 4, 3), Tile(32, 64, 4, 3)),
        "dropout": (Tile(32, 64, 4, 3), Tile(32, 64, 8, 2)),
        "extras": (Tile(32, 64, 4, 2), Tile(32, 64, 8, 2)),
    },
    "ramp_decode.1": dict.fromkeys(("", "extras"), (Tile(1, 128, 4, 3), Tile(1, 64, 8, 3))),
    "selective_decode.1": dict.fromkeys(("", "extras"), (Tile(1, 128, 4, 3), Tile(1, 32, 8, 3))),
    "selective": {"": (Tile(64, 32, 4, 2), Tile(64, 32, 4, 2))},  # of all that share their blocks; these beside it:
    "selective_choice_queries": {"": (Tile(64, 32, 4, 3), Tile(64, 32, 4, 2))},
    "selective_choice_rows": {"": (Tile(64, 32, 4, 3), Tile(64, 32, 4, 2))},
}


@functools.cache
def architecture():
    """Of the GPU that there is: those whose code is compiled, 80 and 90."""
    return 90 if torch.cuda.is_available() and torch.cuda.get_device_capability()[0] == 9 else 80


def tile(kernel, dtype, D, kind="", arch=None):
    """The tile of a kernel; `kind`: "positions", "dropout" (with positions or not), "extras", or none. Interpreted ones are small, so that tests of few
    numbers still have several."""
    if INTERPRETED:
        return Tile(32, 16, 4, 1)
    selects = kernel.startswith("selective") and not kernel.startswith("selective_decode")
    hopper = _HOPPER.get(kernel, _HOPPER["selective"] if selects else {}) if (arch or architecture()) == 90 else {}
    if kind in hopper and dtype != torch.float32:
        return hopper[kind][D > 64]
    if selects:
        t = _SELECTIVE[2 * (dtype == torch.float32) + (D > 64)]
        if not kind:
            return t
        # The tables by age would be buffered too, and for more rows there are too few registers.
        return dataclasses.replace(t, stages=1, rows=16)
    return _TILES[kernel][bool(kind)][2 * (dtype == torch.float32) + (D > 64)]


def heads_together(kernel, dtype, D, extras=False):
    """How many heads a program of selective attention takes, so that they share F of each tile. A second one with extras
    spills what it saves, and one in half precision at 128 features asks in dq for more shared memory than sm_86 has."""
    large = kernel == "selective_backward_queries" and D > 64 and dtype != torch.float32
    return 2 if INTERPRETED or not (extras or large) else 1
