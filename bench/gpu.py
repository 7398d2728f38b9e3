#!/usr/bin/env python3
"""The attention kernels on an NVIDIA GPU: one script, one table, a few minutes. Needs PyTorch with Triton alone.

  bench/gpu.py [--out FILE] [--minutes 8] [--only right|ramp|flex|decode|selective|step|kernels|tiles ...] [--flex 17] [--tune]

First are the kernels right (gpu_right.py). Then times, ours beside compiled FlexAttention (Triton backend; spans are a
captured buffer and get gradients), FlashAttention through scaled_dot_product_attention (no spans: where nothing
expires), and the formulas in eager PyTorch where they fit; and whole training steps of the Expire-Span paper's enwik8
model, beside dense tensors in eager PyTorch. Every time is the median of several runs of a CUDA graph, of the whole
call: plans and masks that a call makes are in it, unless the column says so. --tune times the kernels with other tiles
too: the quickest belong into lapse/ops/attention/cuda/tiles.py. The JSON names the card, the versions and the peaks
measured in this run.

Most of the time goes to compiling, which all do side by side (gpu_jobs.py); then each has the GPU for itself. --flex
says how many of FlexAttention's cases there are, the most telling first: each compiles for half a minute and more. An
error, also of a check, is a line of the table; the rest goes on, and the exit status is 1. Where what we compare with
needs more memory than there is, that is a line alone.
"""

import argparse
import datetime
import json
import pathlib
import signal
import sys
import time

# Before torch: without a GPU it puts Triton's interpreter in its place.
from gpu_formulas import DEVICE, RAMP, ROOT, SMOKE, eager_masking, eager_ramp, eager_selective, flex, flex_ramp, ramp_inputs, selective_arguments  # isort: skip

import gpu_jobs
import gpu_step
import gpu_tiles
import machine
import torch
import triton
from gpu_jobs import Job
from gpu_measure import compare, failures, record, show, table
from gpu_right import LIMITS, check_right
from torch.nn.attention import SDPBackend, sdpa_kernel

from lapse.ops.attention.ramp.cuda import call as ramp
from lapse.ops.attention.selective.cuda import call as selective


# --- cases -----------------------------------------------------------------------------------------------------------
SHAPE = {"B": 3, "K": 20, "rows": 40, "H": 2, "D": 16} if SMOKE else {"B": 8, "K": 1024, "rows": 8192, "H": 16, "D": 64}


def ramp_cases():
    """The most telling first: time may run out. In "unmasked" cases no row fades out within the block."""
    B, K, H = (1, 20, 2) if SMOKE else (4, 1024, 16)
    cases = [
        {"B": B, "K": K, "rows": rows, "H": H, "D": D, "expired": expired}
        for rows in ((40,) if SMOKE else (8192, 32768, 2048, 65536))
        for expired in (0.0, 0.5, 0.9, 0.99)
        for D in ((16,) if SMOKE else (64, 128))
    ]
    unmasked = [case | {"fading": 0.0} for case in cases if case["expired"] == 0]
    return [*cases[:6], SHAPE | {"expired": 0.5, "ragged": True}, *cases[6:], *unmasked]


def ramp_call(case):
    """Functions for forward, and for both passes; the inputs; the floating-point operations of the pairs seen."""
    args, spans, pairs = ramp_inputs(**case, dtype=torch.bfloat16)
    B, H, D = case["B"], case["H"], case["D"]
    forward = lambda: ramp.ramp_attention(**args, row_span=spans, ramp=RAMP)
    grad, zero = torch.randn_like(args["q"]), torch.zeros(B, device=DEVICE)

    def both():
        y = forward()
        return ramp.ramp_attention_backward(grad, zero, y[0], y[3], **args, row_span=spans, ramp=RAMP)

    return forward, both, args, spans, 4 * pairs * H * D


def suffix(case):
    return ", ragged" if case.get("ragged") else ", unmasked" if "fading" in case else ""


def measure_ramp(case):
    forward, both, args, spans, flops = ramp_call(case)
    both()
    yield
    record(f"ramp forward{suffix(case)}", case, forward, flops)
    record(f"ramp both{suffix(case)}", case, both, 3.5 * flops)
    if suffix(case):
        return
    if case["expired"] == 0 and not SMOKE:
        measure_sdpa(case, args)
    if 2 * case["B"] * case["H"] * case["K"] * case["rows"] * 4 < 2e10:
        forward, both = eager_calls(args, spans)
        record("eager forward", case, forward, flops)
        record("eager both", case, both, 3.5 * flops)


def measure_sdpa(case, args):
    B, K, rows, H, D = (case[n] for n in ("B", "K", "rows", "H", "D"))
    q = args["q"].transpose(1, 2).contiguous().requires_grad_()
    k, v = (args[n].view(B, rows, H, D).transpose(1, 2).contiguous().requires_grad_() for n in "kv")

    def sdpa():
        with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
            return torch.nn.functional.scaled_dot_product_attention(q, k, v)

    grad = torch.randn_like(q)
    full = 4 * B * K * rows * H * D  # every row: it has no causal form for these shapes
    record("sdpa forward", case, lambda: torch.no_grad()(sdpa)(), full)
    record("sdpa both", case, lambda: torch.autograd.grad(sdpa(), (q, k, v), grad), 3.5 * full)


def surviving():
    """Whether time follows the rows that survive. time_by_pair: by pair that is seen, against that where nothing has
    expired. time_by_line: against the straight line from nothing expired to 99 %, for a call also has what the block's
    own rows and the plan cost."""
    for line in [x for x in table if x["what"] in ("ramp forward", "ramp both") and x.get("expired") and "tflops" in x]:
        same = {n: line[n] for n in ("what", "B", "K", "rows", "H", "D")}
        of = {x["expired"]: x for x in table if same.items() <= x.items() and "tflops" in x and not x.get("ragged")}
        if 0 in of:
            line["time_by_pair"] = of[0]["tflops"] / line["tflops"]
        if 0 in of and 0.99 in of and not line.get("ragged"):
            least, share = of[0.99]["ms"], 1 - line["expired"] / 0.99
            line["time_by_line"] = line["ms"] / (least + share * (of[0]["ms"] - least))


def eager_calls(args, spans):
    """Functions for the formulas' forward, and for both passes."""
    places = {n: args[n] for n in ("start", "time")}
    learned = {n: args[n].detach().requires_grad_() for n in "qkv"} | {"row_span": spans.detach().requires_grad_()}
    grad = torch.randn_like(args["q"])
    forward = lambda: eager_ramp(**learned, **places)
    return torch.no_grad()(forward), lambda: torch.autograd.grad(forward(), tuple(learned.values()), grad)


def measure_flex(case):
    """For each of its shapes it compiles for half a minute or more."""
    ours, _, args, spans, flops = ramp_call(case)
    one, two, make = flex_ramp(args, spans, case.get("ragged", False))
    theirs, mine = one().float(), ours()[0].float()
    error = ((theirs - mine).abs().max() / theirs.abs().max()).item()
    assert error <= 0.05, f"FlexAttention and ramp_attention differ by {error:.3g} of the largest output: not the same"
    if not SMOKE:
        two()
    yield
    if SMOKE:  # not compiled, and without a backward pass
        return
    record(f"flex mask{suffix(case)}", case, make)
    for name, run, work in (("forward", one, flops), ("both", two, 3.5 * flops)):
        name += suffix(case)
        record(f"flex {name}", case, run, work)


def flex_selective(q, k, v):
    """(forward, forward and backward) by FlexAttention with F in memory. Its own choice of tiles asks for more shared
    memory than a GPU has, for F is a part of them; of those that fit these were the quickest on an H100."""
    attention, block_mask = flex(BLOCK_M=64, BLOCK_N=64)
    N, D = q.shape[1], q.shape[3]
    heads = [x.transpose(1, 2).contiguous().requires_grad_(not SMOKE) for x in (q, k, v)]
    mask = block_mask(lambda b, h, i, j: i >= j, None, None, N, N, device=DEVICE)  # once: it is always the same
    causal = torch.ones(N, N, dtype=torch.bool, device=DEVICE).tril()

    def forward():
        F = eager_masking((heads[0][:, 0] @ heads[1][:, 0].transpose(1, 2)).float() / D**0.5, causal)
        return attention(*heads, score_mod=lambda s, b, h, i, j: s - F[b, i, j], block_mask=mask)

    grad = torch.randn_like(heads[0])
    return torch.no_grad()(forward), lambda: torch.autograd.grad(forward(), heads, grad)


def selective_cases():
    B, H, D = (1, 2, 16) if SMOKE else (2, 8, 64)
    return [{"B": B, "N": N, "H": H, "D": D} for N in ((40,) if SMOKE else (4096, 8192, 512, 1024, 2048))]


def selective_call(case):
    """Functions for forward, and for both passes; the inputs."""
    B, N, H, D = case.values()
    q, k, v = (torch.randn(B, N, H, D, device=DEVICE, dtype=torch.bfloat16) for _ in range(3))
    rest = selective_arguments(B, N)
    forward = lambda: selective.selective_attention(q, k.flatten(0, 1), v.flatten(0, 1), **rest)

    def both():
        y = forward()
        return selective.selective_attention_backward(q, y[1], y[0], y[3], q, k.flatten(0, 1), v.flatten(0, 1), **rest)

    return forward, both, (q, k, v)


def measure_selective(case):
    B, N, H, D = case.values()
    flops = 4 * B * H * D * N * (N + 1) // 2  # of pairs that are seen; that F costs a product more counts nothing
    forward, both, (q, k, v) = selective_call(case)
    both()
    yield
    record("selective forward", case, forward, flops)
    record("selective both", case, both, 3.5 * flops)
    learned = [x.detach().requires_grad_() for x in (q, k, v)]
    grad = torch.randn_like(q)
    record("eager selective forward", case, lambda: torch.no_grad()(eager_selective)(q, k, v), flops)
    record("eager selective both", case, lambda: torch.autograd.grad(eager_selective(*learned)[0], learned, grad), 3.5 * flops)


def measure_flex_selective(case):
    B, N, H, D = case.values()
    q, k, v = (torch.randn(B, N, H, D, device=DEVICE, dtype=torch.bfloat16) for _ in range(3))
    flops = 4 * B * H * D * N * (N + 1) // 2
    one, two = flex_selective(q, k, v)
    ours = selective.selective_attention(q, k.flatten(0, 1), v.flatten(0, 1), **selective_arguments(B, N))[0]
    error = (one().transpose(1, 2).float() - ours.float()).abs().max().item()
    assert error <= 0.1, f"FlexAttention and selective_attention differ by {error:.3g}"
    if not SMOKE:
        two()
    yield
    if SMOKE:
        return
    record("flex selective forward, F in memory", case, one, flops)
    record("flex selective both, F in memory", case, two, 3.5 * flops)


def decode_cases():
    H, D = (2, 16) if SMOKE else (16, 64)
    lengths = (50,) if SMOKE else (1024, 4096, 16384, 65536)
    return [{"B": B, "rows": rows, "H": H, "D": D} for B in ((1,) if SMOKE else (1, 32)) for rows in lengths]


def measure_decode(case):
    B, rows, H, D = case.values()
    args, spans, _ = ramp_inputs(B, 1, rows, H, D, 0.0, torch.bfloat16)
    size = 2 * B * rows * H * D * 2
    line = selective_arguments(B, rows) | {"start": torch.full((B,), rows - 1, device=DEVICE)}
    selects = lambda: selective.selective_attention(args["q"], args["k"][: B * rows], args["v"][: B * rows], **line)
    expires = lambda: ramp.ramp_attention(**args, row_span=spans, ramp=RAMP)
    both = torch.cat([args["k"].flatten(), args["v"].flatten()])
    selects(), expires()
    yield
    times = {"decode, selective": record("decode, selective", case, selects, size=size), "decode": record("decode", case, expires, size=size)}
    read = record("read the rows", case, lambda: both.sum(dtype=torch.float32), size=size)
    for what, ms in times.items():
        if ms and read:
            table.append({"what": f"{what} over reading", **case, "times": ms / read})


def step_cases():
    """The largest batch first: what does not fit is a line that says so."""
    sizes = {"layers": gpu_step.LAYERS, "block": gpu_step.BLOCK, "memory": gpu_step.MEMORY}
    sizes_of = lambda B, dropout=0.0: {"B": B, **sizes} | ({"dropout": dropout} if dropout else {})
    return [sizes_of(2), sizes_of(2, 0.3)] if SMOKE else [sizes_of(32), sizes_of(16), sizes_of(16, 0.3), sizes_of(4)]


def measure_step(case):
    dropout = case.get("dropout", 0.0)
    gpu_step.make(gpu_step.by_kernels, 1, dropout)[0]()
    yield
    measured = []
    for what, attend in (("step", gpu_step.by_kernels), ("step, eager", gpu_step.dense)):
        step, loss = gpu_step.make(attend, case["B"], dropout)
        try:
            first = loss().item()
        except torch.cuda.OutOfMemoryError:
            first = None
        measured.append((record(what, case, step), first, table[-1]))
        del step, loss
    (ours, first, line), (theirs, other, other_line) = measured
    if first is not None and other is not None:
        assert abs(first - other) <= 0.02 * other, f"step: loss {first} by the kernels, {other} eager"
    if ours and theirs:
        ratios = {"times": theirs / ours, "memory": line["bytes"] / max(1, other_line["bytes"])}
        table.append({"what": "step over eager", **case, **ratios})


def kernel_cases():
    some = [case for case in ramp_cases() if case["expired"] == 0 and "fading" not in case]
    return [*some, *selective_cases()]


def measure_kernels(case):
    """What each kernel of both passes takes."""
    both = ramp_call(case)[1] if "rows" in case else selective_call(case)[1]
    both()
    yield
    for kernel, ms in ({} if SMOKE else gpu_tiles.kernel_times(both)).items():
        table.append({"what": "kernel", **case, "kernel": kernel, "ms": ms})
        show(table[-1])


def check(case):
    check_right((case["dtype"],))
    yield


def peak(_):
    yield
    if not SMOKE:
        a = torch.randn(8192, 8192, device=DEVICE, dtype=torch.bfloat16)
        record("peak", {"n": 8192}, lambda: a @ a, 2 * 8192**3)


def jobs(options):
    """In the order in which they get the GPU."""
    one = lambda name, cases, measure, needed=False: [Job(name, [case], measure, needed) for case in cases]
    flex_cases = ramp_cases()[: options.flex]
    if SMOKE:
        flex_cases = flex_cases[:4]
    made = [*one("right", [{"dtype": dtype} for dtype in LIMITS], check, needed=True), Job("peak", [{}], peak), Job("ramp", ramp_cases(), measure_ramp),
            Job("kernels", kernel_cases(), measure_kernels), Job("decode", decode_cases(), measure_decode), Job("selective", selective_cases(), measure_selective),
            *one("selective", selective_cases(), measure_flex_selective), Job("step", step_cases(), measure_step),
            *one("flex", flex_cases, measure_flex)]  # fmt: skip
    if options.tune:
        made += one("tiles", gpu_tiles.cases(), gpu_tiles.measure)
    return [job for job in made if job.name == "peak" or not options.only or job.name in options.only]


def ratios():
    """Lines of ours over FlexAttention's."""
    for case in [line for line in table if line["what"].startswith("flex ") and "tflops" in line]:
        shape = {n: case[n] for n in ("B", "K", "N", "rows", "H", "D", "expired", "ragged") if n in case}
        name = case["what"].removeprefix("flex ").removesuffix(", F in memory")
        ours = name if name.startswith("selective") else f"ramp {name}"
        compare(f"{ours} over flex", shape, ours, case["what"])


def write(path, info):
    surviving()
    ratios()
    info["bf16_peak_tflops"] = next((line["tflops"] for line in table if line["what"] == "peak" and "tflops" in line), None)
    for line in table:
        if "tflops" in line and info["bf16_peak_tflops"]:
            line["share_of_peak"] = line["tflops"] / info["bf16_peak_tflops"]
    path.write_text(json.dumps({"benchmark": "gpu", "quick": SMOKE, "machine": info, "table": table}, indent=1) + "\n")
    print(f"{len(table)} lines in {path} after {info['seconds']:.0f} s")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "build" / "gpu.json")
    parser.add_argument("--minutes", type=float, default=8)
    parser.add_argument("--only", nargs="+", choices=("right", "ramp", "flex", "decode", "selective", "step", "kernels", "tiles"))
    parser.add_argument("--flex", type=int, default=len(ramp_cases()))
    parser.add_argument("--tune", action="store_true")
    parser.add_argument("--job", nargs=2, help=argparse.SUPPRESS)  # number and file: the process of one job
    options = parser.parse_args()
    if not SMOKE and not torch.cuda.is_available():
        sys.exit("gpu: there is no NVIDIA GPU here that PyTorch can use")
    if options.job:
        return gpu_jobs.work(jobs(options)[int(options.job[0])], options.job[1])
    options.out.parent.mkdir(parents=True, exist_ok=True)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("gpu: stopped"))  # `timeout`: what was measured is written
    begin = time.time()
    card = "interpreter" if SMOKE else torch.cuda.get_device_name()
    info = {"card": card, "torch": torch.__version__, "triton": triton.__version__, "cuda": torch.version.cuda, "flex": "Triton"}
    info |= {"date": datetime.date.today().isoformat(), "commit": machine.commit()}
    print(", ".join(f"{n} {x}" for n, x in info.items()), flush=True)
    given = [x for name in ("only", "flex") if getattr(options, name) is not None for x in (f"--{name}", *map(str, listed(getattr(options, name))))]
    try:
        gpu_jobs.run(jobs(options), given + ["--tune"] * options.tune, begin + 60 * options.minutes)
    finally:
        info["seconds"] = time.time() - begin
        write(options.out, info)
    if failed := failures():
        sys.exit("gpu: there were errors: " + ", ".join(sorted({line["what"] for line in failed})))


def listed(x):
    return x if isinstance(x, list) else [x]


if __name__ == "__main__":
    main()
