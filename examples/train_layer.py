"""A PyTorch layer that learns what to forget, trained through lapse's attention: copy it and change it.

The task: in a stream of letters one is marked, early on; at each later "?" the model must say which. It reads blocks of
16 steps, none of which holds both: without memory it could only guess (loss ln 8 = 2.08). A learned span says for how
many steps each row of the memory is kept; what has expired is deleted. Under 20 s on one core."""

import argparse
import math
import pathlib
import sys

import torch
from torch import nn
from torch.nn import functional as F

ROOT = pathlib.Path(__file__).resolve().parent.parent
LETTERS, QUESTION, MARK = 8, 8, 9  # tokens 0 ... 7: letters; 8: "?"; 9 ... 16: marked letters
BATCH, LENGTH, BLOCK = 16, 128, 16


class ExpiringAttention(nn.Module):
    """Attention over a memory whose rows expire (Expire-Span, Sukhbaatar et al. 2021)."""

    def __init__(self, width, heads, block, max_span, ramp, loss):
        super().__init__()
        self.heads, self.max_span, self.ramp, self.loss = heads, max_span, ramp, loss
        self.query, self.key, self.value, self.out = (nn.Linear(width, width, bias=False) for _ in range(4))
        self.position = nn.Parameter(torch.zeros(block, width // heads))  # row a - 1 is for an age of a steps
        self.span = nn.Linear(width, 1)
        nn.init.zeros_(self.span.weight)
        nn.init.constant_(self.span.bias, -1)  # spans begin at 0.44 max_span: first keep, then learn to forget

    def forward(self, x, now, memory):
        """x [B, K, width]: a block whose first step is at time `now`. Returns the output, the loss that shortens spans,
        the memory for the next block, and the spans of this one."""
        B, K, width = x.shape
        # Append the block. Rows are packed: first all of sample 0, sorted by time, then all of sample 1 ...
        fresh = x.reshape(B * K, width), now + torch.arange(K).repeat(B), torch.arange(B).repeat_interleave(K)
        rows = [torch.cat(pair) for pair in zip(memory, fresh)] if memory else fresh
        order = torch.argsort(rows[2], stable=True)
        hidden, time, sample = (column[order] for column in rows)
        offsets = F.pad(torch.bincount(sample, minlength=B).cumsum(0), (1, 0))  # sample b: offsets[b] to offsets[b + 1]

        # Keys, values and spans anew from the hidden states, so that their weights learn from old memories too.
        span = self.max_span * torch.sigmoid(self.span(hidden).squeeze(-1) / 4)  # / 4: spans learn more slowly (Eq. 8)
        q, k, v = (y.unflatten(-1, (self.heads, -1)) for y in (self.query(x), self.key(hidden), self.value(hidden)))
        named = {"row_span": span, "position": self.position, "ramp": self.ramp}
        start = torch.full((B,), now)  # the time of each sample's first query
        out, ramp_sum, _, _ = torch.ops.lapse.ramp_attention(q, k, v, offsets, start, time, **named)
        # What remains (below 0) of the spans of rows that are fading out; minimising it shortens them (Eq. 7).
        cost = self.loss / (self.ramp * K) * ramp_sum.mean()

        # Delete what no later query can read, by the operator's own formula. The rest is detached.
        with torch.no_grad():
            keep = 1 + (span - (now + K - time)) / self.ramp > 0
            memory = hidden[keep], time[keep], sample[keep]
        return self.out(out.flatten(2)), cost, memory, span.detach()[time >= now].view(B, K)


class Model(nn.Module):
    def __init__(self, width=32):
        super().__init__()
        self.embedding, self.mark = nn.Embedding(MARK, width), nn.Embedding(2, width)
        self.attention = ExpiringAttention(width, heads=2, block=BLOCK, max_span=2 * LENGTH, ramp=32.0, loss=1e-4)
        self.norm, self.letter = nn.LayerNorm(width), nn.Linear(width, LETTERS)

    def forward(self, tokens):
        """Scores [B, length, LETTERS], loss of the spans, spans [B, length], mean rows of memory per sample."""
        memory, parts = None, []
        for now in range(0, tokens.shape[1], BLOCK):
            block = tokens[:, now : now + BLOCK]
            x = self.embedding(block % MARK) + self.mark(block // MARK)
            y, cost, memory, span = self.attention(x, now, memory)
            parts.append((self.letter(self.norm(x + y)), cost, span, len(memory[0]) / len(tokens)))
        scores, costs, spans, sizes = zip(*parts)
        return torch.cat(scores, 1), sum(costs), torch.cat(spans, 1), sum(sizes) / len(sizes)


def draw():
    """Tokens [BATCH, LENGTH] and the letters [BATCH] to remember."""
    tokens, letter = torch.randint(LETTERS, (BATCH, LENGTH)), torch.randint(LETTERS, (BATCH,))
    tokens[torch.arange(BATCH), torch.randint(BLOCK, (BATCH,))] = MARK + letter  # in the first block
    ask = torch.rand(BATCH, LENGTH) < 0.1
    ask[:, : 2 * BLOCK] = False
    return tokens.masked_fill(ask, QUESTION), letter


def main():
    parser = argparse.ArgumentParser(description="Trains an attention layer that learns what to forget.")
    parser.add_argument("--library", default=ROOT / "build/release/liblapse_ops.so", help="lapse's operators")
    parser.add_argument("--steps", type=int, default=200)
    arguments = parser.parse_args()
    try:
        torch.ops.load_library(arguments.library)
    except OSError as error:
        sys.exit(f"train_layer: {error} (scripts/build.sh release builds it; --library PATH names another)")

    torch.set_num_threads(1)  # so little work is slower on several threads
    torch.manual_seed(1)
    model, losses = Model(), []
    optimiser = torch.optim.Adam(model.parameters(), lr=1e-2)
    for step in range(1, arguments.steps + 1):
        tokens, letter = draw()
        scores, cost, spans, size = model(tokens)
        asked = tokens == QUESTION
        loss = F.cross_entropy(scores[asked], letter[:, None].expand_as(tokens)[asked])
        optimiser.zero_grad()
        (loss + cost).backward()
        optimiser.step()
        losses.append(loss.item())
        if step == 1 or step % 20 == 0:
            mean = torch.tensor(losses[-20:]).mean()
            marked, noise = spans[tokens >= MARK].mean(), spans[tokens < QUESTION].mean()
            print(f"step {step:3}: loss {mean:.3f} (chance {math.log(LETTERS):.3f}), memory {size:4.1f} rows, ", end="")
            print(f"spans: marked {marked:5.1f}, noise {noise:5.1f}", flush=True)


if __name__ == "__main__":
    main()
