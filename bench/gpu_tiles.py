"""Times of single kernels, and of ramp_attention's with other tiles, for bench/gpu.py --only kernels and --tune: what belongs into tiles.py is a line of its table."""

from gpu_formulas import DEVICE, RAMP, SMOKE, ramp_inputs  # isort: skip

import statistics

import torch
from gpu_measure import show, table

from lapse.ops.attention.cuda import tiles
from lapse.ops.attention.ramp.cuda import call as ramp

KERNELS = ("ramp_forward", "ramp_backward_queries", "ramp_backward_rows")
SHAPES = ((64, 128, 4, 3), (64, 64, 4, 2), (64, 64, 4, 3), (64, 32, 4, 3), (32, 64, 4, 3), (128, 64, 4, 3), (128, 64, 8, 3),
          (128, 128, 8, 3), (64, 64, 8, 3), (64, 128, 8, 3))  # fmt: skip


def cases():
    """For each kernel, plain, with positions, and with dropout too, at both widths."""
    widths = (16,) if SMOKE else (64, 128)
    return [{"kernel": k, "kind": kind, "D": D} for k in KERNELS for kind in ("", "positions", "dropout") for D in widths]


def inputs(case):
    """Functions for both passes."""
    B, K, rows, H = (1, 20, 40, 2) if SMOKE else (4, 1024, 8192, 16) if case["kind"] == "" else (8, 512, 2560, 8)
    args, spans, _ = ramp_inputs(B, K, rows, H, case["D"], 0.5, torch.bfloat16)
    options = {"row_span": spans, "ramp": RAMP}
    if case["kind"] == "dropout":
        options |= {"dropout": 0.3, "seed": torch.ones(1, dtype=torch.long, device=DEVICE)}
    if case["kind"]:
        options["position"] = torch.randn(rows, case["D"], device=DEVICE, dtype=torch.bfloat16)
    y = ramp.ramp_attention(**args, **options)
    grad, zero = torch.randn_like(args["q"]), torch.zeros(B, device=DEVICE)
    return (lambda: ramp.ramp_attention(**args, **options),
            lambda: ramp.ramp_attention_backward(grad, zero, y[0], y[3], **args, **options))  # fmt: skip


def put(case, tile):
    """From now on the case's kernel has this tile, on every architecture; the others keep theirs."""
    ramp.tile = lambda kernel, *rest: tile if kernel == case["kernel"] else tiles.tile(kernel, *rest)


def kernel_times(call):
    """{kernel: median time in ms} of ours in the call, by PyTorch's profiler."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA], acc_events=True) as profile:
        for _ in range(5):
            call()
        torch.cuda.synchronize()
    times = {}
    for event in profile.events():
        if event.name.startswith(("ramp_", "selective_", "rows_", "block_")):
            times.setdefault(event.name, []).append(event.device_time)
    return {name: statistics.median(each) / 1e3 for name, each in times.items()}


def measure(case):
    forward, backward = inputs(case)
    call = forward if case["kernel"] == "ramp_forward" else backward
    fit = []
    for tile in (tiles.Tile(*shape) for shape in (SHAPES[:1] if SMOKE else SHAPES)):
        put(case, tile)
        try:
            call()
            fit.append(tile)
        except Exception as error:  # more shared memory than there is
            table.append({"what": "tile", **case, "tile": str(tile), "left_out": str(error)[:80]})
    yield
    if SMOKE:
        return
    for tile in fit:
        put(case, tile)
        table.append({"what": "tile", **case, "tile": f"{tile.queries}, {tile.rows}, {tile.warps}, {tile.stages}"})
        table[-1]["ms"] = kernel_times(call)[case["kernel"]]
        show(table[-1])
