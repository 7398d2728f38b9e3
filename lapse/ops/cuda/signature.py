"""What is compiled ahead of time: every kernel's variants, with the types of its parameters. A parameter's name means the
same in every kernel, and so has one type; the C++ side passes arguments by the same names (kernels.h)."""

import dataclasses
import inspect

import torch

from lapse.ops.attention.cuda import rows
from lapse.ops.attention.cuda.plan import LIST_CHUNK
from lapse.ops.attention.cuda.tiles import heads_together, tile
from lapse.ops.attention.ramp.cuda import backward, decode, forward, received
from lapse.ops.attention.selective.cuda import backward as selective_backward
from lapse.ops.attention.selective.cuda import decode as selective_decode
from lapse.ops.attention.selective.cuda import forward as selective_forward
from lapse.ops.attention.selective.cuda import masking, prune

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
WIDTHS = (64, 128)  # of heads; narrower ones are padded
ROWS = (16, 32, 64, 128)  # of the blocks that the tiles ask for
DECODE_HEADS = (1, 16, 32)  # that share a key

_TYPES = {
    "*{}": "q k v out grad_out grad_q grad_k grad_v by_age dby_age select_q select_k position",
    "*fp32": "spans span logit bias stats sums grad_lse grad_ramp_sum grad_span grad_logit dbias ramp_sums received "
    "partial masking memory grad_memory prefix grad_prefix grad_select_q grad_select_k scores",
    "*i64": "offsets start time until seed",
    "*i32": "packed count counts ranges lists list_counts arrived kinds spared ends",
    "*u8": "first",
    "i64": "min_age max_age",
    "fp32": "scale select_scale ramp epsilon kept_scale cap",
}  # all else is i32
_TYPE_OF = {name: kind for kind, names in _TYPES.items() for name in names.split()}


@dataclasses.dataclass(frozen=True)
class Variant:
    """One compiled kernel. `name` is what the C++ side asks for."""

    kernel: object
    name: str
    element: str
    constants: tuple  # of (name, value)
    warps: int
    stages: int

    def parameters(self):
        """(name, type) in order; "constexpr" for constants."""
        fixed = dict(self.constants)
        names = inspect.signature(self.kernel.fn).parameters
        return [(n, "constexpr" if n in fixed else _TYPE_OF.get(n, "i32").format(self.element)) for n in names]


def _attention(arch, kernel, name, element, width, kind, **more):
    plain = kind in ("spans", "grouped")  # for tiles
    t = tile(name + ".1" * (more.get("HEADS") == 1), DTYPES[element], width, "" if plain else kind, arch)
    constants = {"D": width, "ROWS": t.rows, "PRECISION": t.precision, **more}
    if "QUERIES" in kernel.arg_names:
        constants["QUERIES"] = t.queries
    if "HEADS" in kernel.arg_names:
        constants.setdefault("HEADS", heads_together(name, DTYPES[element], width, kind == "extras"))
    constants |= {"SPAN": kind != "", "POSITION": kind in ("positions", "dropout"), "DROPOUT": kind == "dropout",
                  "GROUPED": kind in ("grouped", "extras"), "EXTRAS": kind == "extras"}  # fmt: skip
    label = f"{name}.{element}.{width}"
    label += f".{more['HEADS']}" if more else f".{kind}" if kind else ""
    constants = {n: v for n, v in constants.items() if n in kernel.arg_names}
    return Variant(kernel, label, element, tuple(constants.items()), t.warps, t.stages)


def _plans():
    one = lambda kernel, name, **constants: Variant(kernel, name, "fp32", tuple(constants.items()), 4, 1)
    yield one(rows.rows_count, "rows_count", CHUNK=rows.CHUNK)
    yield one(rows.rows_pack, "rows_pack", CHUNK=rows.CHUNK)
    yield one(rows.rows_until, "rows_until", CHUNK=rows.CHUNK)
    for size in ROWS:
        yield one(rows.block_ranges, f"block_ranges.{size}", ROWS=size)
        yield one(rows.block_lists, f"block_lists.{size}", QUERIES=size, CHUNK=LIST_CHUNK)
    yield one(masking.selective_prefix, "selective_prefix", ROWS=rows.CHUNK)
    for size in (16, 32, 64):
        yield one(prune.selective_drop, f"selective_drop.{size}", QUERIES=size, CHUNK=prune.CHUNK)


def variants(arch):
    """All of them, for an architecture."""
    yield from _plans()
    for element in DTYPES:
        for width in WIDTHS:
            for kernel, name in ((forward.ramp_forward, "ramp_forward"),
                                 (backward.ramp_backward_queries, "ramp_backward_queries"),
                                 (backward.ramp_backward_rows, "ramp_backward_rows")):  # fmt: skip
                for kind in ("", "spans", "positions", "dropout", "extras"):
                    yield _attention(arch, kernel, name, element, width, kind)
            yield _attention(arch, received.ramp_received, "ramp_received", element, width, "extras")
            for kernel in (decode.ramp_decode, selective_decode.selective_decode):
                for heads in DECODE_HEADS:
                    yield _attention(arch, kernel, kernel.fn.__name__, element, width, "extras", HEADS=heads)
            yield _attention(arch, selective_backward.selective_dots, "selective_dots", element, width, "")
            for kernel in (masking.selective_sums, selective_forward.selective_forward,
                           selective_backward.selective_backward_queries, selective_backward.selective_choice_rows,
                           selective_backward.selective_choice_queries, prune.selective_scores):  # fmt: skip
                for kind in ("", "extras"):
                    yield _attention(arch, kernel, kernel.fn.__name__, element, width, kind)
            backward_rows = selective_backward.selective_backward_rows
            # To read ahead at 128 features takes more shared memory than leaves room for two programs.
            for kind in ("", "grouped", "extras") if width == 64 else ("grouped", "extras"):
                yield _attention(arch, backward_rows, "selective_backward_rows", element, width, kind)
