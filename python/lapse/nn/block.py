"""One layer of a transformer, for examples."""

from torch import Tensor, nn
from torch.nn import functional as F

from lapse.nn.attention import ForgettingAttention
from lapse.nn.input_memory import AnyMemory


class Block(nn.Module):
    """One layer of a transformer around an attention: pre-norm, feed-forward of 4 times the width. For examples and short
    experiments; the command `lapse` trains whole models."""

    def __init__(self, attention: ForgettingAttention):
        super().__init__()
        width = attention.width
        self.attention = attention
        attention.norm = nn.LayerNorm(width)
        self.norm, self.up, self.down = nn.LayerNorm(width), nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor, memory: AnyMemory | None = None) -> tuple[Tensor, AnyMemory]:
        y, memory = self.attention(x, memory)
        x = x + y
        return x + self.down(F.gelu(self.up(self.norm(x)))), memory
