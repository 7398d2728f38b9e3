"""Layers whose memory forgets, in the manner of torch.nn.MultiheadAttention.

    layer = lapse.nn.ExpireSpanAttention(width=128, heads=4, max_span=512, ramp=32, loss=1e-6, positions=64)
    memory = None
    for block in blocks:                    # [B, T, width]: consecutive parts of B streams
        y, memory = layer(block, memory)
        loss = task(y) + layer.cost         # what shortens memory
        loss.backward(); optimiser.step()

With gradients a memory keeps what the layer read: keys, values and spans follow from it with the present weights, and learn
from it. Gradients reach back one block. Without gradients (torch.no_grad) it keeps keys and values, made once, so that
decoding token by token costs a token, and gives the same numbers. Rows that nobody reads any more are deleted, each stream
on its own: `memory.rows()` counts them, `memory.nbytes()` is their storage. Formulas: docs/equations.md.
"""

from lapse.nn.adaptive_span import AdaptiveSpanAttention
from lapse.nn.attention import ForgettingAttention
from lapse.nn.block import Block
from lapse.nn.expire_span import ExpireSpanAttention
from lapse.nn.fixed_span import FixedSpanAttention
from lapse.nn.input_memory import AnyMemory, InputMemory
from lapse.nn.selective import SelectiveAttention

__all__ = [
    "AdaptiveSpanAttention",
    "AnyMemory",
    "Block",
    "ExpireSpanAttention",
    "FixedSpanAttention",
    "ForgettingAttention",
    "InputMemory",
    "SelectiveAttention",
]
