"""A training step of the Expire-Span paper's enwik8 model on a GPU, for bench/gpu.py: by the kernels, and written out as dense
tensors in eager PyTorch. Memories are the oldest rows of each layer, as many at every step, so that shapes stay the same."""

import torch
from gpu_formulas import DEVICE, RAMP, SMOKE
from torch import nn
from torch.nn import functional

from lapse.ops.attention.ramp.cuda import call as ramp

LAYERS, WIDTH, HEADS, INNER = (2, 32, 2, 64) if SMOKE else (12, 512, 8, 2048)
BLOCK, MEMORY = (17, 20) if SMOKE else (512, 2048)
LONGEST = 16384  # L
BIAS = 2  # of spans before the sigmoid: so long that no row expires, since dense tensors compute expired rows too
VOCABULARY = 256


class Kernels(torch.autograd.Function):
    """ramp_attention with its backward pass, by the kernels."""

    @staticmethod
    def forward(ctx, q, k, v, span, position, places, drop):
        out, _, _, stats = ramp.ramp_attention(q, k, v, *places, row_span=span, position=position, ramp=RAMP, **drop)
        ctx.save_for_backward(q, k, v, span, position, out, stats)
        ctx.places, ctx.drop = places, drop
        return out

    @staticmethod
    def backward(ctx, grad):
        q, k, v, span, position, out, stats = ctx.saved_tensors
        none = torch.zeros(len(q), device=q.device)
        found = ramp.ramp_attention_backward(grad, none, out, stats, q, k, v, *ctx.places, row_span=span,
                                             position=position, ramp=RAMP, **ctx.drop)  # fmt: skip
        return *found[:4], found[5], None, None


def by_kernels(q, k, v, span, position, places, dropout):
    B, K, H, D = q.shape
    rows = lambda x: x.reshape(-1, H, D)
    drop = {"dropout": dropout, "seed": torch.randint(1 << 62, (1,), device=q.device)} if dropout else {}
    return Kernels.apply(q, rows(k), rows(v), span.reshape(-1), position, places, drop)


def skewed(by_age, n):
    """[B, H, K, P], columns the ages P ... 1, as [B, H, K, n], columns the rows: each query's line moves one to the right."""
    B, H, K, P = by_age.shape
    line = functional.pad(by_age, (0, K)).flatten(2)[..., :-K].view(B, H, K, P + K - 1)
    return functional.pad(line, (n - K - P, 1))


def dense(q, k, v, span, position, places, dropout):
    """The same with a mask and logits of queries x rows: the age of row j for query i is M + i - j."""
    K, n = q.shape[1], k.shape[1]
    age = (n - K + torch.arange(K, device=q.device))[:, None] - torch.arange(n, device=q.device)
    m = (1 + (span[:, None] - age) / RAMP).clamp(0, 1) * (age >= 1)
    by_age = torch.einsum("bihd,pd->bhip", q, position.flip(0))  # the oldest first
    s = (torch.einsum("bihd,bjhd->bhij", q, k) + skewed(by_age, n)) / q.shape[3] ** 0.5
    a = torch.softmax(s.float().masked_fill(m[:, None] == 0, -torch.inf), 3).nan_to_num() * m[:, None]
    a = a / (a.sum(3, keepdim=True) + 1e-8)
    return torch.einsum("bhij,bjhd->bihd", functional.dropout(a, dropout).to(v.dtype), v)


class Model(nn.Module):
    def __init__(self, attend, dropout):
        super().__init__()
        self.attend, self.dropout = attend, dropout
        linear = lambda n, m: nn.Linear(n, m, bias=False)
        self.embedding = nn.Embedding(VOCABULARY, WIDTH)
        self.position = nn.Parameter(torch.randn(BLOCK, WIDTH // HEADS))
        self.layers = nn.ModuleList(
            nn.ModuleDict(dict(q=linear(WIDTH, WIDTH), k=linear(WIDTH, WIDTH), v=linear(WIDTH, WIDTH),
                               out=linear(WIDTH, WIDTH), span=nn.Linear(WIDTH, 1), norm1=nn.LayerNorm(WIDTH),
                               up=nn.Linear(WIDTH, INNER), down=nn.Linear(INNER, WIDTH),
                               norm2=nn.LayerNorm(WIDTH))) for _ in range(LAYERS))  # fmt: skip
        self.output = nn.Linear(WIDTH, VOCABULARY)

    def forward(self, tokens, memory, places):
        h = self.embedding(tokens)
        heads = lambda x: x.unflatten(-1, (HEADS, WIDTH // HEADS)).to(torch.bfloat16)
        for layer, rows in zip(self.layers, memory):
            x = torch.cat([rows, h], 1)
            span = LONGEST * torch.sigmoid(layer.span(x)[..., 0].float() + BIAS)
            out = self.attend(heads(layer.q(h)), heads(layer.k(x)), heads(layer.v(x)), span, self.position.to(torch.bfloat16),
            places, self.dropout)
            h = layer.norm1(h + layer.out(out.flatten(2).to(h.dtype)))
            h = layer.norm2(h + layer.down(torch.relu(layer.up(h))))
        return self.output(h)


def make(attend, B, dropout=0.0, seed=0):
    """(a training step, its model's loss without one): bfloat16 products by autocast, Adam. dropout: of attention weights."""
    torch.manual_seed(seed)
    model = Model(attend, dropout).to(DEVICE)
    optimiser = torch.optim.Adam(model.parameters(), 7e-4, fused=not SMOKE, capturable=not SMOKE)
    tokens = torch.randint(VOCABULARY, (B, BLOCK + 1), device=DEVICE)
    memory = torch.randn(LAYERS, B, MEMORY, WIDTH, device=DEVICE)
    n = BLOCK + MEMORY
    offsets = torch.arange(B + 1) * n
    places = (offsets if SMOKE else offsets.pin_memory(), torch.full((B,), MEMORY, device=DEVICE),
              torch.arange(n).repeat(B).to(DEVICE))  # fmt: skip

    def loss():
        with torch.autocast(DEVICE, torch.bfloat16):
            logits = model(tokens[:, :-1], memory, places)
        return functional.cross_entropy(logits.float().flatten(0, 1), tokens[:, 1:].flatten())

    def step():
        optimiser.zero_grad(set_to_none=False)
        loss().backward()
        optimiser.step()

    return step, loss
