"""lapse.load: a run that the command `lapse` trained, as a torch.nn.Module. The model is written out below in the terms of
docs/equations.md, "The base model"; it gives the logits of `lapse eval`."""

import json
import pathlib
from dataclasses import dataclass
from numbers import Integral
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from lapse.buckets import bias_by_age, buckets_by_age
from lapse.checkpoint import open_checkpoint
from lapse.methods import ALIASES, METHODS, OPTIONS, Method, Settings, make_method, unknown_method
from lapse.nn import (
    AdaptiveSpanAttention,
    AnyMemory,
    ExpireSpanAttention,
    FixedSpanAttention,
    ForgettingAttention,
    SelectiveAttention,
)
from lapse.vocabulary import Vocabulary


@dataclass
class ModelMemory:
    """What a model remembers of B streams: a memory for each layer, and how many tokens it has read."""

    layers: list[AnyMemory]
    seen: int = 0
    torn: bool = False  # a call failed between the layers, which hold different tokens

    def rows(self) -> list[list[int]]:
        """For each layer and stream, how many rows the next token can read beside its own. Selective attention with a budget
        holds one more, until its newest token has chosen."""
        return [layer.rows().tolist() for layer in self.layers]

    def nbytes(self) -> int:
        return sum(layer.nbytes() for layer in self.layers)


class RuleAttention(ForgettingAttention):
    """Attention by a rule without weights, for reading."""

    def __init__(self, width: int, heads: int, settings: Settings, method: str, **more: Any):
        super().__init__(width, heads, **more)
        self.method, self.settings = method, settings
        self.rule()  # errors now

    def rule(self) -> Method:
        return make_method(self.method, self.settings)


class FeedForward(nn.Module):
    """W2 f(W1 x + b1) + b2 with f = relu or gelu (by tanh), or SwiGLU."""

    def __init__(self, model: dict[str, Any]):
        super().__init__()
        width, inner, biases = model["width"], model["feed_forward"] or 8 * model["width"] // 3, model["biases"]
        self.first, self.second = nn.Linear(width, inner, bias=biases), nn.Linear(inner, width, bias=biases)
        self.gate = nn.Linear(width, inner, bias=False) if model["activation"] == "swiglu" else None
        self.gelu = model["activation"] == "gelu"

    def forward(self, x: Tensor) -> Tensor:
        inner = self.first(x)
        if self.gate is not None:
            return self.second(F.silu(self.gate(x)) * inner)
        return self.second(F.gelu(inner, approximate="tanh") if self.gelu else F.relu(inner))


class Layer(nn.Module):
    """Attention and feed-forward, each with a norm before it or after the sum. With pre-norm the attention's norm is its
    own: it is applied to what is remembered when that is read."""

    def __init__(self, model: dict[str, Any], attention: ForgettingAttention):
        super().__init__()
        self.pre = model["norm"] == "pre"
        self.attention, self.feed_forward = attention, FeedForward(model)
        self.norm1, self.norm2 = make_norm(model), make_norm(model)
        if self.pre:
            attention.norm = self.norm1

    def forward(self, h: Tensor, memory: AnyMemory, position: Tensor | None, age_bias: Tensor | None) -> Tensor:
        attended = h + self.attention(h, memory, position, age_bias)[0]
        if self.pre:
            return attended + self.feed_forward(self.norm2(attended))
        u = self.norm1(attended)
        return self.norm2(u + self.feed_forward(u))


class Transformer(nn.Module):
    """A trained model. `config` is the run's configuration, section by section; `vocabulary` its tokens.

    forward(tokens [B, T] int64, memory) -> logits [B, T, tokens], memory. Without a memory streams begin; within
    torch.no_grad() it keeps keys and values, so that texts can be read token by token; with gradients it keeps inputs, and
    `cost` is what the method adds to the loss. Windows (data.windows) begin with vocabulary.bos and an empty memory.
    """

    def __init__(self, config: dict[str, Any], vocabulary: Vocabulary, attentions: list[ForgettingAttention]):
        super().__init__()
        model = config["model"]
        self.config, self.vocabulary = config, vocabulary
        self.reading: dict[str, Any] = {"method": config["forgetting"]["method"]}  # what the model is read with
        self.embedding = nn.Embedding(vocabulary.size, model["width"])
        self.position_kind = model["positions"]
        self.position = nn.Parameter(torch.empty(0))  # embeddings of ages, or of times; or a bias of each bucket of ages and head
        self.positions: int | None = None  # ages beyond have no embedding
        if self.position_kind == "buckets":
            self.register_buffer("buckets", buckets_by_age(model["bucket_distance"]), persistent=False)
        self.layers = nn.ModuleList(Layer(model, attention) for attention in attentions)
        self.norm = make_norm(model) if model["norm"] == "pre" else nn.Identity()
        self.tied = model["output"] == "tied"
        self.output = None if self.tied else nn.Linear(model["width"], vocabulary.size, bias=model["biases"])

    def begin(self, streams: int) -> ModelMemory:
        return ModelMemory([attention.begin(streams) for attention in self.attentions()])

    def attentions(self) -> list[ForgettingAttention]:
        return [layer.attention for layer in self.layers if isinstance(layer, Layer)]

    def forward(self, tokens: Tensor, memory: ModelMemory | None = None) -> tuple[Tensor, ModelMemory]:
        if tokens.dim() != 2 or tokens.shape[1] == 0:
            raise ValueError(f"lapse: tokens must be [B, T], T at least 1, got {list(tokens.shape)}")
        if tokens.is_cpu and tokens.numel() > 0 and not torch.compiler.is_compiling():
            (least, most), size = map(int, tokens.aminmax()), self.vocabulary.size
            if least < 0 or most >= size:
                raise ValueError(f"lapse: tokens must be 0 ... {size - 1}, as the vocabulary has them, got {least} ... {most}")
        memory = self.begin(len(tokens)) if memory is None else memory
        if len(memory.layers) != len(self.layers):
            raise ValueError(f"lapse: this memory has {len(memory.layers)} layers, and the model {len(self.layers)}")
        if memory.torn:
            raise RuntimeError(
                "lapse: an earlier call failed between the layers, which now hold different tokens; begin a new memory"
            )
        h = self.embedding(tokens)
        position = self.position[: self.positions] if self.position_kind == "relative" else None
        bias = bias_by_age(self.position, self.buckets) if self.position_kind == "buckets" else None
        if self.position_kind == "absolute":
            end = memory.seen + tokens.shape[1]
            if end > len(self.position):
                raise ValueError(
                    f"lapse: this model reads windows of at most {len(self.position)} tokens; begin a new memory"
                )
            h = h + self.position[memory.seen : end]
        u = torch.rand(()).item() if self.training else None
        for attention in self.attentions():
            if isinstance(attention, ExpireSpanAttention):
                attention.uniform = u
        try:
            for layer, own in zip(self.layers, memory.layers):
                h = layer(h, own, position, bias)
        except BaseException:
            memory.torn = any(bool((own.next != memory.seen).any()) for own in memory.layers)
            raise
        memory.seen += tokens.shape[1]
        h = self.norm(h)
        if self.output is not None:
            return self.output(h), memory
        return F.linear(h * h.shape[-1] ** -0.5, self.embedding.weight), memory

    @property
    def cost(self) -> Tensor:
        """What the last call with gradients adds to the loss."""
        return torch.stack([attention.cost for attention in self.attentions()]).sum()


def make_norm(model: dict[str, Any]) -> nn.Module:
    kind = nn.LayerNorm if model["norm_kind"] == "layer" else nn.RMSNorm
    return kind(model["width"], eps=model["norm_epsilon"])


# --- which attention a method is ---------------------------------------------------------------------------------------
# Each entry: how a layer is made, how far back the method reads (for rules that take its place), the rows it starts from.
def _fixed(own: dict[str, Any], common: dict[str, Any], layer: int, config: dict[str, Any]) -> ForgettingAttention:
    return FixedSpanAttention(max_span=own["max_span"], **common)


def _adaptive(own: dict[str, Any], common: dict[str, Any], layer: int, config: dict[str, Any]) -> ForgettingAttention:
    named = {name: own[name] for name in ("max_span", "ramp", "loss", "per_layer", "trim_step")}
    return AdaptiveSpanAttention(**named, **common)


def _expire(own: dict[str, Any], common: dict[str, Any], layer: int, config: dict[str, Any]) -> ForgettingAttention:
    named = {name: own[name] for name in ("max_span", "ramp", "loss", "divisor", "divide", "random_drop")}
    attention = ExpireSpanAttention(**named, **common)
    attention.loss_at = own["loss_at"]
    return attention


def _selective(own: dict[str, Any], common: dict[str, Any], layer: int, config: dict[str, Any]) -> ForgettingAttention:
    if own["separate"]:
        raise ValueError("lapse.load: selective_attention.separate is not read")
    named = {name: own[name] for name in ("max_span", "memory_loss", "cap")}
    budget = own["budgets"][layer] if own["budgets"] else 0
    attention = SelectiveAttention(**named, budget=budget, layers=config["model"]["layers"], **common)
    attention.ablations = {name: own[name] for name in ("shift", "mask_first", "mask_self", "relu")}
    return attention


def _ceil(x: float) -> int:
    return -int(-x // 1)


TRAINED = {
    "fixed_span": (_fixed, lambda own: own["max_span"], lambda own, block: own["max_span"]),
    "adaptive_span": (_adaptive, lambda own: own["max_span"], lambda own, block: own["max_span"]),
    "expire_span": (_expire, lambda own: own["max_span"] + _ceil(own["ramp"]) - 1, lambda own, block: block),
    "selective_attention": (_selective, lambda own: own["max_span"] - 1, lambda own, block: 0),
}
OLDER: dict[str, dict[str, Any]] = {  # keys that older runs lack, with what these runs were
    "model": {"encoder_layers": 0, "input": "tokens", "output": "softmax", "norm_epsilon": 1e-5, "scaled_logits": True},
    "expire_span": {"loss_at": "ramp"},
}
UNREAD: dict[tuple[str, str], set[Any]] = {  # what the command has and this module has not
    ("model", "encoder_layers"): {0},
    ("model", "input"): {"tokens"},
    ("model", "output"): {"softmax", "tied"},
    ("model", "positions"): {"relative", "absolute", "buckets"},
}


def longest_of(config: dict[str, Any]) -> int:
    """L of rules that take the trained method's place: how far back that one reads."""
    trained = config["forgetting"]["method"]
    return TRAINED[trained][1](config[trained]) if trained in TRAINED else config[trained]["max_span"]


def _attention(
    config: dict[str, Any], layer: int, method: str, budget: int, options: dict[str, Any]
) -> ForgettingAttention:
    model, trained = config["model"], config["forgetting"]["method"]
    own_row = model["attend_self"] or trained == "selective_attention"
    common = {
        "width": model["width"],
        "heads": model["heads"],
        "head_dim": model["head_dim"] or None,
        "positions": 0,
        "attend_self": own_row,
        "normed_heads": model["normed_heads"],
        "scaled": model["scaled_logits"],
        "dropout": model["dropout"],
    }
    if method == trained and method in TRAINED:
        if options or (budget and method != "selective_attention"):
            raise ValueError(f"lapse.load: budget and options are for other methods than the run's own, {trained}")
        make, _, initial = TRAINED[method]
        own = config[method] | ({"budgets": [budget] * model["layers"]} if budget else {})
        attention = make(own, common, layer, config)
        if own.get("initial_memory") == "zeros":
            attention.initial = initial(own, config["train"]["block"])
        return attention
    if method in TRAINED:
        raise ValueError(
            f"lapse.load: a model trained with {trained} cannot be read with {method}, which must be trained"
        )
    longest = longest_of(config)
    own = config.get(method, {}) if method == trained else {}
    taken = OPTIONS[method] - {"max_span"} - ({"window", "stride"} if budget else set())  # which a budget says
    given = {name: value for name, value in own.items() if name in taken} | options
    settings = Settings(
        layer,
        model["layers"],
        budget or own.get("budget", 0),
        min_age=0 if own_row else 1,
        longest=longest,
        options=given,
    )
    attention = RuleAttention(settings=settings, method=method, **common)
    if config[trained].get("initial_memory") == "zeros":
        _, _, initial = TRAINED[trained]
        attention.initial = min(initial(config[trained], config["train"]["block"]), attention.rule().room)
    return attention


# --- the file ----------------------------------------------------------------------------------------------------------
def load(run: str | pathlib.Path, method: str | None = None, budget: int = 0, **options: Any) -> Transformer:
    """A trained run, or one of its checkpoints, as a module in evaluation mode.

    method, budget, options: read it with another method, as `lapse eval --method h2o --budget 64` does: "local",
    "local_global", "strided", "sink_window", "h2o", "tova".

    ValueError for what this module does not have: compressive memory, encoders, adaptive ends, agents; and for a damaged
    checkpoint. Of a run's folder the newest that is not damaged is read, with a warning of each that is.
    """
    method = ALIASES.get(method, method) if method else None
    if not isinstance(budget, Integral) or budget < 0:
        raise ValueError(f"lapse.load: budget must be a positive whole number, got {budget!r}")
    if method and method not in METHODS and method not in TRAINED:
        raise unknown_method(method)
    path, told, weights = open_checkpoint(pathlib.Path(run))
    config = _toml(told["config"])
    for section, values in OLDER.items():
        config[section] = values | config.get(section, {})
    if "weight.input.weight" in weights:  # of what an agent sees
        raise ValueError(f"{path}: lapse.load does not read agents; the command lapse does")
    for (section, key), known in UNREAD.items():
        if config[section][key] not in known:
            raise ValueError(
                f"{path}: lapse.load does not read {section}.{key} = {json.dumps(config[section][key])}; the command lapse does"
            )
    trained = config["forgetting"]["method"]
    if trained not in TRAINED and trained not in METHODS:
        raise ValueError(f"{path}: lapse.load does not read {trained}; the command lapse does")
    vocabulary = Vocabulary(told["vocabulary"])
    layers = range(config["model"]["layers"])
    attentions = [_attention(config, i, method or trained, budget, dict(options)) for i in layers]
    model = Transformer(config, vocabulary, attentions)
    model.reading = {"method": method or trained, **({"budget": budget} if budget else {}), **options}
    model.position = nn.Parameter(weights["weight.position"])
    if (method or trained) not in TRAINED:
        model.positions = longest_of(config)
    _fill(model, weights, path, others=(method or trained) != trained)
    return model.eval()


def _toml(text: str) -> dict[str, Any]:
    try:
        import tomllib
    except ImportError:  # Python 3.10
        import tomli as tomllib  # type: ignore
    return tomllib.loads(text)


NAMES = {  # of a layer, there and here
    "query": "attention.query.weight",
    "key": "attention.key.weight",
    "value": "attention.value.weight",
    "out": "attention.out.weight",
    "query_norm.weight": "attention.query_norm.weight",
    "key_norm.weight": "attention.key_norm.weight",
    "span.weight": "attention.span_weight",
    "span.bias": "attention.span_bias",
    "span.fraction": "attention.fraction",
    "ff1.weight": "feed_forward.first.weight",
    "ff1.bias": "feed_forward.first.bias",
    "ff.gate": "feed_forward.gate.weight",
    "ff2.weight": "feed_forward.second.weight",
    "ff2.bias": "feed_forward.second.bias",
}
METHODS_OWN = {"span.weight", "span.bias", "span.fraction"}


def _fill(model: Transformer, weights: dict[str, Tensor], path: pathlib.Path, others: bool) -> None:
    """Copies the weights. `others`: the trained method's own have no place."""
    there = {id(p): n for n, p in reversed(list(model.named_parameters(remove_duplicate=False)))}
    places = dict(model.named_parameters(remove_duplicate=False))
    filled = set()
    for full, value in weights.items():
        name = full.removeprefix("weight.")
        if name == "embedding":
            name = "embedding.weight"
        elif name.startswith("layers."):
            layer, inner = name.split(".", 2)[1:]
            if others and inner in METHODS_OWN:
                continue
            name = f"layers.{layer}.{NAMES.get(inner, inner)}"
        if name not in places or places[name].shape != value.shape:
            raise ValueError(
                f"{path}: there is no place in the model for its tensor '{full}' of shape {tuple(value.shape)}"
            )
        places[name].data.copy_(value)
        filled.add(there[id(places[name])])
    missing = set(there.values()) - filled
    if missing:
        raise ValueError(f"{path}: no weights for {', '.join(sorted(missing))}")
