"""The models of the Expire-Span paper once more, in dense float64 PyTorch, to judge the program by.

Slow and plain on purpose: every layer keeps every hidden state it has ever seen, and the formulas alone decide what a
query reads. There is no memory table, nothing is deleted, and nothing is shared with the C++ code.

`write_golden` runs a model over random tokens and writes what it computed as a golden file, which `lapse golden` reads.
"""

import dataclasses
import math

import torch
from safetensors.torch import save_file
from torch.nn import functional

# How close to a corner of the mask a span may come: with float32's rounding a memory nearer than this might be alive
# in one implementation and dead in the other.
CORNER = 1e-4


@dataclasses.dataclass
class Sizes:
    """A model and the text it reads. The names are the symbols of the equations, or plain words."""

    method: str = "expire_span"  # or fixed_span
    seed: int = 1
    blocks: int = 5
    batch: int = 3
    block: int = 8  # K
    vocabulary: int = 17
    width: int = 32
    layers: int = 2
    heads: int = 2
    head_dim: int = 16
    feed_forward: int = 64
    pre_norm: bool = False
    max_span: int = 40  # L
    ramp: float = 4  # R
    loss: float = 0.01  # alpha
    divisor: float = 1  # c
    random_drop: bool = False

    @property
    def positions(self):
        return self.max_span if self.method == "fixed_span" else self.block

    @property
    def start_vectors(self):
        return self.max_span if self.method == "fixed_span" else self.block

    def metadata(self):
        values = {
            "method": self.method,
            "seed": self.seed,
            "blocks": self.blocks,
            "batch": self.batch,
            "mem_sz": self.block,
            "vocab_sz": self.vocabulary,
            "hid_sz": self.width,
            "nlayers": self.layers,
            "nheads": self.heads,
            "head_dim": self.head_dim,
            "inner_hid_sz": self.feed_forward,
            "pre_norm": self.pre_norm,
            "attn_lim": self.max_span,
            "expire_span": self.method == "expire_span",
            "expire_span_ramp": self.ramp,
            "expire_span_loss": self.loss,
            "expire_span_pre_div": self.divisor,
            "expire_span_noisy": self.random_drop,
            "dropout": 0.0,
        }
        return {name: str(value) for name, value in values.items()}


def sizes_of(metadata):
    """The sizes that a golden file's metadata give."""
    flag = {"True": True, "False": False}
    return Sizes(
        method=metadata["method"],
        blocks=int(metadata["blocks"]),
        batch=int(metadata["batch"]),
        block=int(metadata["mem_sz"]),
        vocabulary=int(metadata["vocab_sz"]),
        width=int(metadata["hid_sz"]),
        layers=int(metadata["nlayers"]),
        heads=int(metadata["nheads"]),
        head_dim=int(metadata["head_dim"]),
        feed_forward=int(metadata["inner_hid_sz"]),
        pre_norm=flag[metadata["pre_norm"]],
        max_span=int(metadata["attn_lim"]),
        ramp=float(metadata["expire_span_ramp"]),
        loss=float(metadata["expire_span_loss"]),
        divisor=float(metadata["expire_span_pre_div"]),
        random_drop=flag[metadata["expire_span_noisy"]],
    )


def random_parameters(sizes, span_bias=0.0, span_scale=1.0):
    """Random weights under the public code's names. `span_bias` and `span_scale` choose where spans lie in (0, L)."""
    draw = torch.Generator().manual_seed(sizes.seed)

    def normal(*shape, scale=1.0, shift=0.0):
        return torch.randn(*shape, generator=draw, dtype=torch.float64) * scale + shift

    d, inner, ff = sizes.width, sizes.heads * sizes.head_dim, sizes.feed_forward
    parameters = {
        "in_emb.weight": normal(sizes.vocabulary, d),
        "layers.0.attn.attn.key_pe": normal(1, sizes.head_dim, sizes.positions),
        "out.out_emb.weight": normal(sizes.vocabulary, d, scale=d**-0.5),
        "out.out_emb.bias": normal(sizes.vocabulary, scale=0.1),
    }
    for l in range(sizes.layers):
        layer = {
            "attn.proj_query.weight": normal(inner, d, scale=d**-0.5),
            "attn.proj_key.weight": normal(inner, d, scale=d**-0.5),
            "attn.proj_val.weight": normal(inner, d, scale=d**-0.5),
            "attn.proj_out.weight": normal(d, inner, scale=inner**-0.5),
            "ff.fc1.weight": normal(ff, d, scale=d**-0.5),
            "ff.fc1.bias": normal(ff, scale=0.1),
            "ff.fc2.weight": normal(d, ff, scale=ff**-0.5),
            "ff.fc2.bias": normal(d, scale=0.1),
        }
        for norm in ("norm1", "norm2"):
            layer[f"{norm}.weight"] = normal(d, scale=0.1, shift=1)
            layer[f"{norm}.bias"] = normal(d, scale=0.1)
        if sizes.method == "expire_span":
            predictor = "attn.attn.expire_span.span_predictor"
            layer[f"{predictor}.weight"] = normal(1, d, scale=span_scale * sizes.divisor * d**-0.5)
            layer[f"{predictor}.bias"] = normal(1, scale=0.1, shift=span_bias)
        parameters.update({f"layers.{l}.{name}": value for name, value in layer.items()})
    if sizes.pre_norm:
        parameters["out_norm.weight"] = normal(d, scale=0.1, shift=1)
        parameters["out_norm.bias"] = normal(d, scale=0.1)
    # Golden files hold float32: what is computed must belong to the weights that are written.
    return {name: value.float() for name, value in parameters.items()}


@dataclasses.dataclass
class BlockResult:
    log_prob: torch.Tensor  # [B, K, V]
    aux_loss: torch.Tensor
    spans: list  # per layer [B, K], Expire-Span only
    alive: list  # per layer [B], start vectors left out
    nearest_corner: float  # of any mask value to 0 or 1, in units of the mask


class ReferenceModel:
    def __init__(self, sizes, parameters):
        self.sizes = sizes
        self.parameters = {name: value.double().requires_grad_() for name, value in parameters.items()}
        start = torch.zeros(sizes.batch, sizes.start_vectors, sizes.width, dtype=torch.float64)
        self.hidden = [start for _ in range(sizes.layers)]  # per layer all h_i, [B, start vectors + timesteps, d]
        self.time = 0  # of the next block's first query; memory j has time j - start_vectors

    def parameter(self, name, layer=None):
        return self.parameters[name if layer is None else f"layers.{layer}.{name}"]

    def norm(self, x, name, layer=None):
        weight, bias = self.parameter(f"{name}.weight", layer), self.parameter(f"{name}.bias", layer)
        return functional.layer_norm(x, (self.sizes.width,), weight, bias, 1e-5)

    def forward(self, tokens, noise=None):
        """One block of tokens [B, K]; memories of earlier blocks are detached."""
        h = self.parameter("in_emb.weight")[tokens]
        result = BlockResult(None, torch.zeros((), dtype=torch.float64), [], [], math.inf)
        for l in range(self.sizes.layers):
            h = self.layer(l, h, noise, result)
        if self.sizes.pre_norm:
            h = self.norm(h, "out_norm")
        logits = h @ self.parameter("out.out_emb.weight").T + self.parameter("out.out_emb.bias")
        result.log_prob = torch.log_softmax(logits, -1)
        self.time += tokens.shape[1]
        return result

    def layer(self, l, h, noise, result):
        self.hidden[l] = torch.cat([self.hidden[l].detach(), h], 1)
        pre = self.sizes.pre_norm
        memories = self.norm(self.hidden[l], "norm1", l) if pre else self.hidden[l]
        queries = memories[:, -h.shape[1] :]
        u = h + self.attention(l, queries, memories, noise, result)
        if not pre:
            u = self.norm(u, "norm1", l)
        out = u + self.feed_forward(l, self.norm(u, "norm2", l) if pre else u)
        return out if pre else self.norm(out, "norm2", l)

    def feed_forward(self, l, x):
        inner = torch.relu(x @ self.parameter("ff.fc1.weight", l).T + self.parameter("ff.fc1.bias", l))
        return inner @ self.parameter("ff.fc2.weight", l).T + self.parameter("ff.fc2.bias", l)

    def attention(self, l, queries, memories, noise, result):
        """queries [B, K, d], memories [B, N, d], in order of time; the last K memories are the queries' own."""
        B, K, N = queries.shape[0], queries.shape[1], memories.shape[1]
        H, D = self.sizes.heads, self.sizes.head_dim
        q = (queries @ self.parameter("attn.proj_query.weight", l).T).view(B, K, H, D)
        k = (memories @ self.parameter("attn.proj_key.weight", l).T).view(B, N, H, D)
        v = (memories @ self.parameter("attn.proj_val.weight", l).T).view(B, N, H, D)

        times = torch.arange(N) - self.sizes.start_vectors  # of memories
        ages = self.time + torch.arange(K)[:, None] - times  # [K, N]
        if self.sizes.method == "fixed_span":
            mask = ((ages >= 1) & (ages <= self.sizes.max_span)).double().expand(B, K, N)
            next_ages = self.time + K - times
            result.alive.append(((next_ages <= self.sizes.max_span) & (times >= 0)).sum().expand(B))
        else:
            mask = self.expire(l, memories, ages, times, noise, result)

        # p_a is column P - a of the table; ages beyond the table have no position term.
        P = self.sizes.positions
        table = self.parameter("layers.0.attn.attn.key_pe")[0]
        p = table[:, (P - ages).clamp(0, P - 1)]  # [D, K, N]
        p = torch.where((ages >= 1) & (ages <= P), p, torch.zeros_like(p))
        logits = torch.einsum("bkhd,bnhd->bhkn", q, k) + torch.einsum("bkhd,dkn->bhkn", q, p)
        weights = masked_weights(logits / math.sqrt(D), mask[:, None])
        out = torch.einsum("bhkn,bnhd->bkhd", weights, v).reshape(B, K, H * D)
        return out @ self.parameter("attn.proj_out.weight", l).T

    def expire(self, l, memories, ages, times, noise, result):
        """The mask m [B, K, N], Eqs. 3, 5, 7, 8; writes down spans, survivors and the auxiliary loss."""
        L, R, K = self.sizes.max_span, self.sizes.ramp, ages.shape[0]
        predictor = "attn.attn.expire_span.span_predictor"
        z = (memories @ self.parameter(f"{predictor}.weight", l)[0]) / self.sizes.divisor
        spans = L * torch.sigmoid(z + self.parameter(f"{predictor}.bias", l))  # [B, N]
        result.spans.append(spans[:, -K:])
        next_mask = 1 + (spans - (self.time + K - times)) / R
        result.alive.append(((next_mask > 0) & (times >= 0)).sum(1))
        result.nearest_corner = min(result.nearest_corner, next_mask.abs().min().item())

        used = spans if noise is None else torch.minimum(spans, noise * L)
        remaining = used[:, None, :] - ages  # r_ti
        raw = 1 + remaining / R
        past = ages >= 1
        corner = torch.minimum(raw.abs(), (raw - 1).abs())
        result.nearest_corner = min(result.nearest_corner, corner[past.expand_as(raw)].min().item())
        on_ramp = (raw > 0) & (raw < 1) & past
        result.aux_loss = result.aux_loss + self.sizes.loss * (remaining * on_ramp).sum((1, 2)).mean() / (R * K)
        return raw.clamp(0, 1) * past


def masked_weights(logits, mask):
    """a' of point 6: the softmax over what has mask > 0, times the mask, normalised again."""
    visible = (mask > 0).expand_as(logits)
    some = visible.any(-1, keepdim=True)
    # Where nothing is visible any finite logits do: the weights are zero, and so are their gradients.
    a = torch.softmax(torch.where(visible | ~some, logits, torch.full_like(logits, -math.inf)), -1)
    weighted = a * mask
    return weighted / (weighted.sum(-1, keepdim=True) + 1e-8)


def run_reference(sizes, parameters, inputs, targets, noises):
    """All tensors of a golden file, in float64, but for parameters and inputs; and the nearest corner."""
    model = ReferenceModel(sizes, parameters)
    tensors, nearest = {}, math.inf
    for k, (tokens, target, noise) in enumerate(zip(inputs, targets, noises)):
        y = model.forward(tokens, noise)
        loss = functional.nll_loss(y.log_prob.flatten(0, 1), target.flatten())
        tensors[f"log_prob.{k}"] = y.log_prob.detach()
        tensors[f"task_loss.{k}"] = loss.detach().view(1)
        tensors[f"aux_loss.{k}"] = y.aux_loss.detach().view(1)
        for l, spans in enumerate(y.spans):
            tensors[f"span.{k}.{l}"] = spans.detach()
        for l, alive in enumerate(y.alive):
            tensors[f"alive.{k}.{l}"] = alive
        nearest = min(nearest, y.nearest_corner)
    (loss + y.aux_loss).backward()  # of the last block alone: its memories are detached
    for name, parameter in model.parameters.items():
        tensors[f"grad.{name}"] = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
    return tensors, nearest


def write_golden(path, sizes, dtype=torch.float32, **spans):
    """Writes a golden file of random weights and tokens, its numbers in `dtype`, and returns its tensors. The seed
    moves on until no span is so near a corner of the mask that rounding could decide."""
    for attempt in range(50):
        trial = dataclasses.replace(sizes, seed=sizes.seed + 1000 * attempt)
        draw = torch.Generator().manual_seed(trial.seed + 1)
        shape = (trial.blocks, trial.batch, trial.block + 1)
        tokens = torch.randint(trial.vocabulary, shape, generator=draw)
        inputs, targets = tokens[:, :, :-1], tokens[:, :, 1:]
        uniform = torch.rand(trial.blocks, generator=draw).double()  # float32's, as the file holds them
        noises = uniform if trial.random_drop else [None] * trial.blocks
        parameters = random_parameters(trial, **spans)
        outputs, nearest = run_reference(trial, parameters, inputs, targets, noises)
        if nearest * trial.ramp > CORNER:
            break
    else:
        raise RuntimeError(f"no seed keeps {sizes} off the corners of the mask")
    tensors = {f"param.{name}": value for name, value in parameters.items()}
    tensors.update({n: t if n.startswith("alive") else t.to(dtype) for n, t in outputs.items()})
    for k in range(trial.blocks):
        tensors[f"input.{k}"], tensors[f"target.{k}"] = inputs[k], targets[k]
        if trial.random_drop:
            tensors[f"noise.{k}"] = uniform[k].float().view(1)
    tensors = {name: tensor.contiguous().clone() for name, tensor in tensors.items()}
    save_file(tensors, path, trial.metadata())
    return tensors
