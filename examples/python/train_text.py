"""Trains a small transformer on a text, byte by byte, whose layers learn what to forget (Expire-Span), and says what it
remembers. Two minutes on two cores:

    pip install . && scripts/data.sh jargon
    python examples/python/train_text.py data/jargon.txt"""

import argparse
import pathlib

import torch
from torch import nn
from torch.nn import functional as F

import lapse

BATCH, BLOCK = 16, 64


class Model(nn.Module):
    def __init__(self, width=128, layers=3, heads=4):
        super().__init__()
        self.embedding, self.norm, self.output = nn.Embedding(256, width), nn.LayerNorm(width), nn.Linear(width, 256)
        attention = {"max_span": 512, "ramp": 32, "loss": 3e-6, "positions": BLOCK}
        layer = lambda: lapse.nn.Block(lapse.nn.ExpireSpanAttention(width, heads, **attention))
        self.blocks = nn.ModuleList(layer() for _ in range(layers))

    def forward(self, tokens, memory=None):
        """tokens [B, T]. Returns logits [B, T, 256] and the layers' memories, which the next block goes on with."""
        h, memory = self.embedding(tokens), memory or [None] * len(self.blocks)
        for i, block in enumerate(self.blocks):
            h, memory[i] = block(h, memory[i])
        return self.output(self.norm(h)), memory

    def cost(self):
        return sum(block.attention.cost for block in self.blocks)


def remembered(model, text):
    """Reads the text byte by byte, and prints what the last layer still holds of it at the end."""
    memory, tokens = None, torch.tensor([[min(ord(c), 255) for c in text]])
    with torch.no_grad():
        for at in range(tokens.shape[1]):
            _, memory = model(tokens[:, at : at + 1], memory)
    kept = set(memory[-1].times()[0])
    print("still remembered:", "".join(c if i in kept else "·" for i, c in enumerate(text)))
    for i, layer in enumerate(memory):
        print(f"layer {i}: {layer.rows().item()} of {len(text)} rows, {layer.nbytes() / 1e3:.0f} kB")


def main():
    parser = argparse.ArgumentParser(description="Trains a small transformer that learns what to forget.")
    parser.add_argument("text", type=pathlib.Path)
    parser.add_argument("--updates", type=int, default=600)
    arguments = parser.parse_args()
    text = arguments.text.read_bytes()
    if len(text) < BATCH * (BLOCK + 1):
        parser.error(f"{arguments.text} has {len(text)} bytes; {BATCH} streams need at least {BATCH * (BLOCK + 1)}")
    data = torch.frombuffer(bytearray(text), dtype=torch.uint8).long()
    streams = data[: len(data) // BATCH * BATCH].view(BATCH, -1)  # read side by side
    torch.manual_seed(1)
    model, memory, at = Model(), None, 0
    optimiser = torch.optim.Adam(model.parameters(), lr=2e-3)
    for update in range(1, arguments.updates + 1):
        if at + BLOCK + 1 > streams.shape[1]:
            memory, at = None, 0
        logits, memory = model(streams[:, at : at + BLOCK], memory)
        loss = F.cross_entropy(logits.flatten(0, 1), streams[:, at + 1 : at + BLOCK + 1].flatten())
        optimiser.zero_grad()
        (loss + model.cost()).backward()
        optimiser.step()
        at += BLOCK
        if update == 1 or update % 25 == 0:
            rows = lapse.log.scalars(memory)["memory/mean"]
            print(f"update {update}: {loss / 0.6931:.3f} bits per byte, memory {rows:.0f} rows", flush=True)
    remembered(model.eval(), bytes(data[:300].tolist()).decode("ascii", errors="replace"))


if __name__ == "__main__":
    main()
