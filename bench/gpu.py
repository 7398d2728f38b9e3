#!/usr/bin/env python3
"""The attention kernels on an NVIDIA GPU: one script, one table, a few minutes. Needs PyTorch with Triton alone.

  bench/gpu.py [--out FILE] [--minutes 8] [--only ramp|selective|decode|step] [--tune]

First are the kernels right: against the formulas written out in float64. Then times, ours beside compiled FlexAttention
(Triton backend; spans are a captured buffer and get gradients), FlashAttention through scaled_dot_product_attention (no
spans: where nothing expires), and the formulas in eager PyTorch where they fit; last whole training steps of the
Expire-Span paper's enwik8 model, beside dense tensors in eager PyTorch. Every time is the median of several runs
of a CUDA graph, of the whole call: plans and masks that a call makes are in it, unless the column says so. --tune tries
other tiles for the forward and backward kernels first. The JSON names the card, the versions and the peaks measured in
this run.
"""

import argparse
import json
import pathlib
import signal
import sys
import time

# Before torch: without a GPU it puts Triton's interpreter in its place.
from gpu_formulas import DEVICE, RAMP, ROOT, SMOKE, eager_masking, eager_ramp, eager_selective, flex, flex_ramp, ramp_inputs, selective_arguments  # isort: skip

import gpu_step
import torch
import triton
from gpu_measure import compare, record, seconds, table
from torch.nn.attention import SDPBackend, sdpa_kernel

from lapse.ops.attention.cuda import tiles
from lapse.ops.attention.ramp.cuda import call as ramp
from lapse.ops.attention.selective.cuda import call as selective


# --- correctness -----------------------------------------------------------------------------------------------------
def check_right():
    """Errors against the formulas in float64, relative to the largest number."""
    limits = {torch.float32: 1e-5, torch.bfloat16: 2e-2, torch.float16: 4e-3}
    B, K, rows, H = (2, 33, 50, 2) if SMOKE else (2, 200, 1500, 3)
    for dtype, limit in limits.items():
        for D in (16,) if SMOKE else (64, 128):
            args, spans, _ = ramp_inputs(B, K, rows, H, D, 0.5, dtype)
            exact = {n: args[n].double().requires_grad_() for n in "qkv"}
            exact_spans = spans.double().requires_grad_()
            out = eager_ramp(**exact, start=args["start"], time=args["time"], row_span=exact_spans)
            grad = torch.randn_like(out.float()).to(dtype)
            out.backward(grad.double())
            y = ramp.ramp_attention(**args, row_span=spans, ramp=RAMP)
            again = [ramp.ramp_attention_backward(grad, torch.zeros(B, device=DEVICE), y[0], y[3], **args,
                                                  row_span=spans, ramp=RAMP) for _ in range(2)]  # fmt: skip
            pairs = [("out", y[0], out), *((n, g, exact[n].grad) for n, g in zip("qkv", again[0]))]
            pairs.append(("span", again[0][3], exact_spans.grad))
            worst = 0.0
            for name, got, expected in pairs:
                error = (got.double() - expected).abs().max().item() / max(1.0, expected.abs().max().item())
                worst = max(worst, error)
                assert error <= 3 * limit, f"ramp_attention {dtype} D {D}: {name} is off by {error:.3g}"
            same = all(torch.equal(a, b) for a, b in zip(*again) if a is not None)
            assert same, f"ramp_attention {dtype} D {D}: two runs differ"
            N = 40 if SMOKE else 400
            q, k, v = (torch.randn(B, N, H, D, device=DEVICE).to(dtype) for _ in range(3))
            line = selective_arguments(B, N)
            got = selective.selective_attention(q, k.flatten(0, 1), v.flatten(0, 1), **line)[0]
            expected = eager_selective(q.double(), k.double(), v.double())[0]
            error = (got.double() - expected).abs().max().item()
            # A score that rounds to the other side of others changes F of all later queries: half precision says little.
            assert error <= 10 * limit, f"selective_attention {dtype} D {D}: off by {error:.3g}"
            table.append({"what": "right", "dtype": str(dtype), "D": D, "ramp_error": worst, "selective_error": error})
            print(f"right: {dtype}, D {D}: ramp {worst:.2g}, selective {error:.2g}; gradients equal at two runs",
            flush=True)


# --- cases -----------------------------------------------------------------------------------------------------------
SHAPE = {"B": 3, "K": 20, "rows": 40, "H": 2, "D": 16} if SMOKE else {"B": 8, "K": 1024, "rows": 8192, "H": 16, "D": 64}
RAGGED = SHAPE | {"expired": 0.5}


def ramp_cases():
    """The most telling first: time may run out."""
    B, K, H = (1, 20, 2) if SMOKE else (4, 1024, 16)
    for rows in (40,) if SMOKE else (8192, 32768, 2048, 65536):
        for D in (16,) if SMOKE else (64, 128):
            for expired in (0.0, 0.5, 0.9, 0.99):
                yield {"B": B, "K": K, "rows": rows, "H": H, "D": D, "expired": expired}


def ramp_call(case, **more):
    """Functions for forward, and for both passes; the inputs; the floating-point operations of the pairs seen."""
    args, spans, pairs = ramp_inputs(**{**case, **more}, dtype=torch.bfloat16)
    B, H, D = case["B"], case["H"], case["D"]
    forward = lambda: ramp.ramp_attention(**args, row_span=spans, ramp=RAMP)
    grad, zero = torch.randn_like(args["q"]), torch.zeros(B, device=DEVICE)

    def both():
        y = forward()
        return ramp.ramp_attention_backward(grad, zero, y[0], y[3], **args, row_span=spans, ramp=RAMP)

    return forward, both, args, spans, 4 * pairs * H * D


def run_ramp(deadline):
    for case in ramp_cases():
        if time.time() > deadline:
            return table.append({"what": "ramp", "error": "out of time; the rest was left out"})
        forward, both, args, spans, flops = ramp_call(case)
        record("ramp forward", case, forward, flops)
        record("ramp both", case, both, 3.5 * flops)
        B, K, rows, H, D, expired = case.values()
        if expired == 0 and not SMOKE:
            q = args["q"].transpose(1, 2).contiguous().requires_grad_()
            k, v = (args[n].view(B, rows, H, D).transpose(1, 2).contiguous().requires_grad_() for n in "kv")


            def sdpa():
                with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
                    return torch.nn.functional.scaled_dot_product_attention(q, k, v)

            grad = torch.randn_like(q)
            full = 4 * B * K * rows * H * D  # every row: it has no causal form for these shapes
            record("sdpa forward", case, lambda: torch.no_grad()(sdpa)(), full)
            record("sdpa both", case, lambda: torch.autograd.grad(sdpa(), (q, k, v), grad), 3.5 * full)
        if 2 * B * H * K * rows * 4 < 2e10:
            forward, both = eager_calls(args, spans)
            record("eager forward", case, forward, flops)
            record("eager both", case, both, 3.5 * flops)
    forward, both, _, _, flops = ramp_call(RAGGED, ragged=True)
    record("ramp forward, ragged", RAGGED, forward, flops)
    record("ramp both, ragged", RAGGED, both, 3.5 * flops)


def surviving():
    """Time by pair that is seen, against that where nothing has expired: 1 where it follows the rows that survive."""
    for line in [x for x in table if x["what"] in ("ramp forward", "ramp both") and x.get("expired") and "tflops" in x]:
        same = {n: line[n] for n in ("what", "B", "K", "rows", "H", "D")}
        full = next((x for x in table if x.get("expired") == 0 and same.items() <= x.items() and "tflops" in x), None)
        if full:
            line["time_by_pair"] = full["tflops"] / line["tflops"]


def eager_calls(args, spans):
    """Functions for the formulas' forward, and for both passes."""
    places = {n: args[n] for n in ("start", "time")}
    learned = {n: args[n].detach().requires_grad_() for n in "qkv"} | {"row_span": spans.detach().requires_grad_()}
    grad = torch.randn_like(args["q"])
    forward = lambda: eager_ramp(**learned, **places)
    return torch.no_grad()(forward), lambda: torch.autograd.grad(forward(), tuple(learned.values()), grad)


def run_flex(deadline):
    """After all else, for each of its shapes compiles for a minute or so."""
    torch._dynamo.config.recompile_limit = 1000
    cases = [(case, False) for case in ramp_cases()]
    cases.insert(2, (RAGGED, True))  # among the first: time may run out
    for case, ragged in cases:
        if time.time() > deadline:
            return table.append({"what": "flex", "error": "out of time; the rest was left out"})
        ours, _, args, spans, flops = ramp_call(case, ragged=ragged)
        suffix = ", ragged" if ragged else ""
        try:
            one, two, make = flex_ramp(args, spans, ragged)
            theirs, mine = one().float(), ours()[0].float()
            error = ((theirs - mine).abs().max() / theirs.abs().max()).item()
        except Exception as failed:
            if SMOKE:
                raise
            table.append({"what": f"flex{suffix}", **case, "error": str(failed).splitlines()[0][:160]})
            continue
        assert error <= 0.05, f"FlexAttention and ramp_attention differ by {error:.3g} of the largest output: not the same"
        if SMOKE:  # not compiled, and without a backward pass
            continue
        record(f"flex mask{suffix}", case, make)
        for name, run, work in (("forward", one, flops), ("both", two, 3.5 * flops)):
            name += suffix
            record(f"flex {name}", case, run, work)
            compare(f"ramp {name} over flex", case, f"ramp {name}", f"flex {name}")


def flex_selective(q, k, v):
    """(forward, forward and backward) by FlexAttention with F in memory."""
    attention, block_mask = flex()
    N, D = q.shape[1], q.shape[3]
    heads = [x.transpose(1, 2).contiguous().requires_grad_(not SMOKE) for x in (q, k, v)]
    mask = block_mask(lambda b, h, i, j: i >= j, None, None, N, N, device=DEVICE)  # once: it is always the same
    causal = torch.ones(N, N, dtype=torch.bool, device=DEVICE).tril()

    def forward():
        F = eager_masking((heads[0][:, 0] @ heads[1][:, 0].transpose(1, 2)).float() / D**0.5, causal)
        return attention(*heads, score_mod=lambda s, b, h, i, j: s - F[b, i, j], block_mask=mask)

    grad = torch.randn_like(heads[0])
    return torch.no_grad()(forward), lambda: torch.autograd.grad(forward(), heads, grad)


def run_selective(deadline):
    H, D = (2, 16) if SMOKE else (8, 64)
    for N in (40,) if SMOKE else (4096, 8192, 512, 1024, 2048):
        if time.time() > deadline:
            return table.append({"what": "selective", "error": "out of time; the rest was left out"})
        B = 1 if SMOKE else 2
        q, k, v = (torch.randn(B, N, H, D, device=DEVICE, dtype=torch.bfloat16) for _ in range(3))
        rest = selective_arguments(B, N)
        case = {"B": B, "N": N, "H": H, "D": D}
        flops = 4 * B * H * D * N * (N + 1) // 2  # of pairs that are seen; that F costs a product more counts nothing
        forward = lambda: selective.selective_attention(q, k.flatten(0, 1), v.flatten(0, 1), **rest)

        def both():
            y = forward()
            return selective.selective_attention_backward(q, y[1], y[0], y[3], q, k.flatten(0, 1), v.flatten(0, 1), **rest)

        record("selective forward", case, forward, flops)
        record("selective both", case, both, 3.5 * flops)
        learned = [x.detach().requires_grad_() for x in (q, k, v)]
        grad = torch.randn_like(q)
        record("eager selective forward", case, lambda: torch.no_grad()(eager_selective)(q, k, v), flops)
        record("eager selective both", case, lambda: torch.autograd.grad(eager_selective(*learned)[0], learned, grad), 3.5 * flops)
        one, two = flex_selective(q, k, v)
        try:
            error = (one().transpose(1, 2).float() - eager_selective(q, k, v)[0].float()).abs().max().item()
        except Exception as failed:
            if SMOKE:
                raise
            table.append({"what": "flex selective", **case, "error": str(failed).splitlines()[0][:160]})
            continue
        assert error <= 0.1, f"FlexAttention and selective attention's formulas differ by {error:.3g}"
        if SMOKE:
            continue
        record("flex selective forward, F in memory", case, one, flops)
        record("flex selective both, F in memory", case, two, 3.5 * flops)
        for passes in ("forward", "both"):
            compare(f"selective {passes} over flex", case, f"selective {passes}", f"flex selective {passes}, F in memory")


def run_decode(deadline):
    H, D = (2, 16) if SMOKE else (16, 64)
    for B in (1,) if SMOKE else (1, 32):
        for rows in (50,) if SMOKE else (1024, 4096, 16384, 65536):
            if time.time() > deadline:
                return table.append({"what": "decode", "error": "out of time; the rest was left out"})
            args, spans, _ = ramp_inputs(B, 1, rows, H, D, 0.0, torch.bfloat16)
            size = 2 * B * rows * H * D * 2
            case = {"B": B, "rows": rows, "H": H, "D": D}
            line = selective_arguments(B, rows) | {"start": torch.full((B,), rows - 1, device=DEVICE)}
            record("decode, selective", case, lambda: selective.selective_attention(
                args["q"], args["k"][: B * rows], args["v"][: B * rows], **line), size=size)  # fmt: skip
            ours = record("decode", case, lambda: ramp.ramp_attention(**args, row_span=spans, ramp=RAMP), size=size)
            both = torch.cat([args["k"].flatten(), args["v"].flatten()])
            read = record("read the rows", case, lambda: both.sum(dtype=torch.float32), size=size)
            if ours and read:
                table.append({"what": "decode over reading", **case, "times": ours / read})


def run_step(deadline):
    """The largest batch first: what does not fit is a line that says so."""
    for B in (2,) if SMOKE else (32, 16, 4):
        if time.time() > deadline:
            return table.append({"what": "step", "error": "out of time; the rest was left out"})
        case = {"B": B, "layers": gpu_step.LAYERS, "block": gpu_step.BLOCK, "memory": gpu_step.MEMORY}
        measured = []
        for what, attend in (("step", gpu_step.by_kernels), ("step, eager", gpu_step.dense)):
            step, loss = gpu_step.make(attend, B)
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


def tune():
    """Times of some tiles for the plain bfloat16 kernels; prints, and keeps the quickest for the rest of the run."""
    for D in (64, 128):
        args, spans, _ = ramp_inputs(4, 1024, 8192, 16, D, 0.5, torch.bfloat16)
        y = ramp.ramp_attention(**args, row_span=spans, ramp=RAMP)
        grad, zero = torch.randn_like(args["q"]), torch.zeros(4, device=DEVICE)
        forward = lambda: ramp.ramp_attention(**args, row_span=spans, ramp=RAMP)
        backward = lambda: ramp.ramp_attention_backward(grad, zero, y[0], y[3], **args, row_span=spans, ramp=RAMP)
        for kernel, run in (("ramp_forward", forward), ("ramp_backward_queries", backward), ("ramp_backward_rows",
        backward)):
            best = None
            plain, extras = tiles._TILES[kernel]
            for queries, rows, warps, stages in ((128, 64, 8, 3), (128, 64, 4, 3), (128, 128, 8, 2), (64, 64, 4, 3),
                                                 (64, 64, 8, 2), (64, 128, 8, 2), (32, 128, 8, 2), (32, 64, 4,
                                                 2)):  # fmt: skip
                candidate = tiles.Tile(queries, rows, warps, stages)
                changed = list(plain)
                changed[int(D > 64)] = candidate
                tiles._TILES[kernel] = (tuple(changed), extras)
                try:
                    took = seconds(run)
                except Exception:
                    continue
                table.append({"what": "tile", "kernel": kernel, "D": D, "tile": str(candidate), "ms": took * 1e3})
                best = min(best, (took, changed), key=lambda x: x[0]) if best else (took, changed)
            tiles._TILES[kernel] = (tuple(best[1]) if best else plain, extras)
            print("tile:", kernel, D, tiles._TILES[kernel][0][int(D > 64)], flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "build" / "gpu.json")
    parser.add_argument("--minutes", type=float, default=8)
    parser.add_argument("--only", choices=("ramp", "selective", "decode", "step"))
    parser.add_argument("--tune", action="store_true")
    options = parser.parse_args()
    if not SMOKE and not torch.cuda.is_available():
        sys.exit("gpu: there is no NVIDIA GPU here that PyTorch can use")
    options.out.parent.mkdir(parents=True, exist_ok=True)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("gpu: stopped"))  # `timeout`: what was measured is written
    begin = time.time()
    deadline = begin + 60 * options.minutes
    card = "interpreter" if SMOKE else torch.cuda.get_device_name()
    info = {"card": card, "torch": torch.__version__, "triton": triton.__version__, "cuda": torch.version.cuda, "flex": "Triton"}
    print(", ".join(f"{n} {x}" for n, x in info.items()), flush=True)
    try:
        check_right()
        if not SMOKE:
            a = torch.randn(8192, 8192, device=DEVICE, dtype=torch.bfloat16)
            info["bf16_peak_tflops"] = 2 * 8192**3 / seconds(lambda: a @ a) / 1e12
            print(f"dense bfloat16 products: {info['bf16_peak_tflops']:.0f} TFLOP/s", flush=True)
            if options.tune:
                tune()
        sections = {"ramp": run_ramp, "decode": run_decode, "selective": run_selective, "step": run_step, "flex": run_flex}
        for name, section in sections.items():
            if options.only in (None, name) or (options.only == "ramp" and name == "flex"):
                section(deadline)
    finally:
        surviving()
        for line in table:
            if "tflops" in line and "bf16_peak_tflops" in info:
                line["share_of_peak"] = line["tflops"] / info["bf16_peak_tflops"]
        info["seconds"] = time.time() - begin
        options.out.write_text(json.dumps({"machine": info, "table": table}, indent=1) + "\n")
        print(f"{len(table)} lines in {options.out} after {info['seconds']:.0f} s")


if __name__ == "__main__":
    main()
