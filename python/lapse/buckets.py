"""T5's relative positions: a bias of attention logits for each bucket of ages, learned per head (docs/equations.md, "Relative
buckets"; lapse/nn/buckets.h)."""

import math

import torch
from torch import Tensor
from torch.nn import functional as F

BUCKETS = 32  # rows of the table


def bucket_of(age: int, farthest: int) -> int:
    """One for each age below 16, then wider and wider ones; from the age `farthest` on, above 16, the last."""
    exact = BUCKETS // 2
    if age < exact:
        return age
    share = math.log(age / exact) / math.log(farthest / exact)
    return min(BUCKETS - 1, exact + int(share * (BUCKETS - exact)))


def buckets_by_age(farthest: int) -> Tensor:
    """[farthest + 1]: of the ages 0 ... farthest."""
    return torch.tensor([bucket_of(age, farthest) for age in range(farthest + 1)])


def bias_by_age(table: Tensor, buckets: Tensor) -> Tensor:
    """Of a table [BUCKETS, H] the bias [H, A] of ages 0 ... A - 1 in these buckets [A]; the last is that of older rows too."""
    return F.embedding(buckets, table).t().contiguous()
