"""Are the kernels right on this GPU? bench/gpu.py asks before it times them: outputs and gradients against the formulas in
float64 and autograd, a single query too, and that a backward pass gives the same bits twice.

An error is relative to the largest number of its tensor, or to 1. Ramp attention is checked with row spans, and with
positions and `until`; every other option is left to tests/ramp_triton_test.py and tests/cuda_gpu_test.py, as are
gradients through selective attention's `memory`. So are some widths: kernels compile for a second or more each, and
there are times to take.
"""

import torch
from gpu_formulas import DEVICE, RAMP, SMOKE, eager_ramp, eager_selective, ramp_inputs, selective_arguments
from gpu_measure import errors_as_lines, table

from lapse.ops.attention.ramp.cuda import call as ramp
from lapse.ops.attention.selective.cuda import call as selective

# Some roundings of inputs, weights and gradients: 2^-9, 2^-12; of float32 as many as sums of some thousand need, at 2^-24.
# What is timed comes first.
LIMITS = {torch.bfloat16: 6e-2, torch.float32: 3e-5, torch.float16: 1.2e-2}
SHAPE = (1, 33, 40, 2) if SMOKE else (2, 200, 1500, 3)  # samples, queries, rows, heads
STREAM = 33 if SMOKE else 400  # of selective attention
WIDTHS = (16,) if SMOKE else (64, 128)
ONE_WIDTH = ("ramp_extras", "float16")  # the check, and the precision, of the first width alone


def expected(formula, learned, grad):
    """The formula's output in float64, then its gradients by autograd, by the names of the inputs."""
    exact = {n: x.double().requires_grad_() for n, x in learned.items()}
    out = formula(**exact)
    out.backward(grad.double())
    return {"out": out.detach()} | {n: x.grad for n, x in exact.items()}


def twice(backward):
    first, second = backward(), backward()
    assert all(x is y is None or torch.equal(x, y) for x, y in zip(first, second)), "two backward passes differ"
    return first


def check_ramp(dtype, D, extras=False):
    B, K, rows, H = SHAPE
    args, spans, _ = ramp_inputs(B, K, rows, H, D, 0.5, dtype)
    options, places = {"row_span": spans}, {n: args[n] for n in ("start", "time")}
    if extras:  # ages beyond the table have no position
        options["position"] = torch.randn(rows // 2, D, device=DEVICE).to(dtype)
        places["until"] = args["until"] = args["time"] + torch.randint(1, 2 * rows, args["time"].shape, device=DEVICE)
    learned = {n: args[n] for n in "qkv"} | options
    grad, zero = torch.randn_like(args["q"]), torch.zeros(B, device=DEVICE)
    y = ramp.ramp_attention(**args, **options, ramp=RAMP)
    found = twice(lambda: ramp.ramp_attention_backward(grad, zero, y[0], y[3], **args, **options, ramp=RAMP))
    names = "q k v row_span head_span position logit age_bias".split()
    return {"out": y[0]} | dict(zip(names, found)), expected(lambda **x: eager_ramp(**x, **places), learned, grad)


def check_ramp_extras(dtype, D):
    return check_ramp(dtype, D, extras=True)


def check_ramp_decode(dtype, D):
    B, _, rows, H = SHAPE
    args, spans, _ = ramp_inputs(B, 1, rows, H, D, 0.5, dtype)
    exact = {n: args[n].double() for n in "qkv"}
    out = eager_ramp(**exact, start=args["start"], time=args["time"], row_span=spans.double())
    return {"out": ramp.ramp_attention(**args, row_span=spans, ramp=RAMP)[0]}, {"out": out}


def selective_inputs(dtype, D):
    """q, k and v. What scores is in steps of a quarter: sums of such products are exact in every precision, so that each
    score lies on the same side of the ReLU; one that did not would change F of all queries after it."""
    new = lambda: torch.randn(SHAPE[0], STREAM, SHAPE[3], D, device=DEVICE)
    q, k, v = ((4 * new()).round() / 4, (4 * new()).round() / 4, new())
    return {"q": q.to(dtype), "k": k.to(dtype), "v": v.to(dtype)}


def check_selective(dtype, D):
    inputs, line = selective_inputs(dtype, D), selective_arguments(SHAPE[0], STREAM)
    q, k, v = inputs["q"], inputs["k"].flatten(0, 1), inputs["v"].flatten(0, 1)
    grad, zero = torch.randn_like(q), torch.zeros(q.shape[:2], device=DEVICE)
    y = selective.selective_attention(q, k, v, **line)
    found = twice(lambda: selective.selective_attention_backward(grad, zero, y[0], y[3], q, k, v, **line))
    right = expected(lambda **x: eager_selective(**x)[0], inputs, grad)
    return {"out": y[0]} | dict(zip("qkv", found)), right


def check_selective_decode(dtype, D):
    """The last query of a stream, with F as the queries before it left it."""
    inputs, line = selective_inputs(dtype, D), selective_arguments(SHAPE[0], STREAM)
    out, F = eager_selective(*(x.double() for x in inputs.values()))
    line |= {"start": line["start"] + STREAM - 1, "masking": F[:, -1].flatten().float()}
    k, v = inputs["k"].flatten(0, 1), inputs["v"].flatten(0, 1)
    return {"out": selective.selective_attention(inputs["q"][:, -1:], k, v, **line)[0]}, {"out": out[:, -1:]}


CHECKS = (check_ramp, check_ramp_decode, check_selective, check_selective_decode, check_ramp_extras)


def errors_of(got, right, limit):
    """Errors by name; all are in the message if one is beyond the limit, or is no number."""
    errors = {}
    for name, y in right.items():
        x = got[name].double().view_as(y)
        errors[name] = (x - y).abs().max().item() / max(1.0, y.abs().max().item())
    words = ", ".join(f"{n} {e:.2g}" for n, e in errors.items())
    assert all(e <= limit for e in errors.values()), f"off by {words}; {limit:.2g} is allowed"
    return errors, words


def check_right(dtypes=tuple(LIMITS), checks=CHECKS):
    """Every check is a line of the table; so is what fails."""
    for dtype in dtypes:
        for D in WIDTHS:
            for check in checks:
                case = {"check": check.__name__.removeprefix("check_"), "dtype": str(dtype).split(".")[1], "D": D}
                if D != WIDTHS[0] and any(name in case.values() for name in ONE_WIDTH):
                    continue
                torch.manual_seed(0)
                with errors_as_lines("right", case):
                    errors, words = errors_of(*check(dtype, D), LIMITS[dtype])
                    table.append({"what": "right", **case, "errors": errors})
                    print("right:", *case.values(), "off by", words, flush=True)
