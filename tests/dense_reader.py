"""A run's checkpoint read in dense float64 PyTorch, with standard attention over the rows that a rule names.

Slow and plain on purpose: a layer sees the whole stream at once, and a [T, T] mask says which rows each query reads.
Nothing is deleted and nothing is shared with the C++ code. H2O and TOVA make their mask one query after another.
"""

import dataclasses
import math
import tomllib

import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch.nn import functional


@dataclasses.dataclass
class Layer:
    """What a rule may know: ages [T, T] of rows (columns) for queries (rows), and what queries would give them."""

    number: int
    ages: torch.Tensor
    logits: torch.Tensor  # [H, T, T]
    least_age: int  # 0 if tokens attend themselves
    span: int  # the greatest age that is read

    @property
    def times(self):
        return torch.arange(self.ages.shape[1])


class Run:
    def __init__(self, checkpoint):
        with safe_open(checkpoint, "pt") as file:
            self.config = tomllib.loads(file.metadata()["config"])
            names = [name for name in file.keys() if name.startswith("weight.")]
            self.weights = {name.removeprefix("weight."): file.get_tensor(name).double() for name in names}
        self.model = self.config["model"]

    @property
    def span(self):
        """How far back the run's own method can read: the greatest age of a row that stands for one timestep."""
        method = self.config["forgetting"]["method"]
        options = self.config[method]
        span = options["max_span"]
        if method == "expire_span":
            return math.ceil(span + options["ramp"]) - 1  # m > 0 while a < L + R
        return span - 1 if method == "selective_attention" else span  # there L counts the query's own row

    def norm(self, x, name):
        weight, bias = self.weights[f"{name}.weight"], self.weights.get(f"{name}.bias")
        if bias is not None:
            return functional.layer_norm(x, weight.shape, weight, bias, 1e-5)
        return x / torch.sqrt(x.square().mean(-1, keepdim=True) + 1e-5) * weight

    def linear(self, x, name):
        return functional.linear(x, self.weights[f"{name}.weight"], self.weights.get(f"{name}.bias"))

    def losses(self, tokens, targets, rule):
        """Nats of each target of a stream, and per layer the mask [T, T], or [H, T, T], of what was read."""
        T, pre = len(tokens), self.model["norm"] == "pre"
        h = self.weights["embedding"][tokens]
        if self.model["positions"] == "absolute":
            h = h + self.weights["position"][:T]
        masks = []
        for l in range(self.model["layers"]):
            name = f"layers.{l}."
            attended = self.attend(self.norm(h, name + "norm1") if pre else h, l, rule, masks)
            u = h + attended if pre else self.norm(h + attended, name + "norm1")
            more = self.feed_forward(self.norm(u, name + "norm2") if pre else u, name)
            h = u + more if pre else self.norm(u + more, name + "norm2")
        logits = self.linear(self.norm(h, "norm") if pre else h, "output")
        return functional.cross_entropy(logits, targets, reduction="none"), masks

    def feed_forward(self, x, name):
        if self.model["activation"] == "swiglu":
            gate = functional.silu(x @ self.weights[name + "ff.gate"].T)
            return self.linear(gate * self.linear(x, name + "ff1"), name + "ff2")
        inner = self.linear(x, name + "ff1")
        inner = functional.gelu(inner, approximate="tanh") if self.model["activation"] == "gelu" else torch.relu(inner)
        return self.linear(inner, name + "ff2")

    def attend(self, x, l, rule, masks):
        T, name = len(x), f"layers.{l}."
        H = self.model["heads"]
        q, k, v = ((x @ self.weights[name + part].T).view(T, H, -1) for part in ("query", "key", "value"))
        if self.model["normed_heads"]:
            q, k = self.norm(q, name + "query_norm"), self.norm(k, name + "key_norm")
        logits = torch.einsum("thd,ihd->hti", q, k)
        ages = torch.arange(T)[:, None] - torch.arange(T)
        if self.model["positions"] == "relative":
            # Ages 1 ... P have an embedding, and none beyond what the run's own method reads: Compressive's further
            # embeddings are of averages.
            table = self.weights["position"][: self.span]
            by_age = torch.einsum("thd,pd->htp", q, table).gather(2, (ages - 1).clamp(0, len(table) - 1).expand(H, T, T))
            logits = logits + torch.where((ages >= 1) & (ages <= len(table)), by_age, 0)
        layer = Layer(l, ages, logits / math.sqrt(q.shape[2]), 0 if self.model["attend_self"] else 1, self.span)
        mask = rule(layer) & (ages >= layer.least_age)
        masks.append(mask)
        read = torch.einsum("hti,ihd->thd", masked_softmax(layer.logits, mask), v).reshape(T, -1)
        return read @ self.weights[name + "out"].T


def masked_softmax(logits, mask):
    """Weights over what is visible; zeros where nothing is."""
    some = mask.any(-1, keepdim=True)
    return torch.softmax(torch.where(mask | ~some, logits, -math.inf), -1) * mask


# --- rules: which rows a query reads ---------------------------------------------------------------------------------


def window_of(layer, rows):
    """The newest `rows`, the query's own included where tokens attend themselves."""
    return layer.ages < rows + layer.least_age


def full(layer):
    return layer.ages <= layer.span


def local(window):
    return lambda layer: full(layer) & window_of(layer, window)


def local_global(window, every):
    return lambda layer: full(layer) if layer.number % every == every - 1 else local(window)(layer)


def strided(window, stride):
    return lambda layer: full(layer) & (window_of(layer, window) | (layer.times % stride == stride - 1))


def strided_within(budget):
    """Half the budget is the window; the stride is the least that leaves the other half for all ages beyond it."""

    def rule(layer):
        rest = budget // 2
        window = budget - rest
        beyond = layer.span - (window - 1 + layer.least_age)  # so many ages
        stride = next(s for s in range(1, layer.span + 1) if beyond <= rest * s)
        return strided(window, stride)(layer)

    return rule


def sink_window(sinks, window):
    return lambda layer: (layer.times < sinks) | local(window)(layer)


class Evicting:
    """A cache that drops rows after each query, so that the next sees at most `budget`, its own included where tokens
    attend themselves. `nearest` is how close a candidate's score has come to the one that went, relative to it: if
    nearer than float32's rounding, the program may have dropped the other."""

    def __init__(self, budget, protected, sums, by_head):
        self.budget = budget
        self.protected = protected  # so many of the newest rows that a query sees cannot go
        self.sums = sums  # whether a row's score is all that it has received, or what the newest query gives it
        self.by_head = by_head  # whether each head has a cache of its own: then the mask is [H, T, T]
        self.nearest = math.inf

    def __call__(self, layer):
        if self.by_head:
            return torch.stack([self.mask(layer, one[None]) for one in layer.logits])
        return self.mask(layer, layer.logits)

    def mask(self, layer, logits):
        T = layer.ages.shape[0]
        mask = torch.zeros(T, T, dtype=torch.bool)
        held, score = [], [0.0] * T
        for t in range(T):
            if layer.least_age == 0:
                held.append(t)
            mask[t, held] = True
            if held:
                given = torch.softmax(logits[:, t, held], 1).sum(0).tolist()
                for i, weight in zip(held, given):
                    score[i] = weight + (score[i] if self.sums else 0)
            if layer.least_age == 1:
                held.append(t)
            next_own = 1 - layer.least_age  # the row that the next query brings with it
            held = [i for i in held if t + 1 - i <= layer.span]
            while len(held) + next_own > self.budget:
                candidates = held[: len(held) - (self.protected - next_own)]
                least = min(candidates, key=lambda i: score[i])  # of equals the oldest
                for i in candidates:
                    if score[i] > score[least]:
                        self.nearest = min(self.nearest, 1 - score[least] / score[i])
                held.remove(least)
        return mask


def h2o(budget):
    return Evicting(budget, protected=max(1, budget // 2), sums=True, by_head=True)


def tova(budget):
    return Evicting(budget, protected=1, sums=False, by_head=False)


# --- a run with weights that any machine draws alike -----------------------------------------------------------------


def redraw(checkpoint, path, seed=1):
    """Writes the checkpoint anew, with random weights: sharp attention, so that what is forgotten matters."""
    draw = torch.Generator().manual_seed(seed)
    with safe_open(checkpoint, "pt") as file:
        tensors = {name: file.get_tensor(name) for name in file.keys()}
        metadata = {key: value for key, value in file.metadata().items() if key != "lapse.checksum"}
    for name, old in tensors.items():
        if not name.startswith("weight."):
            continue
        new = torch.randn(old.shape, generator=draw)
        if "norm" in name:
            new = 1 + 0.2 * new
        elif name.endswith(("query", "key", "out", "value")):
            new = new * 2 * old.shape[1] ** -0.5
        elif old.dim() == 2 and name not in ("weight.embedding", "weight.position"):
            new = new * old.shape[1] ** -0.5
        tensors[name] = new
    save_file(tensors, path, metadata)
