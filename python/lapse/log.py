"""Memory sizes as scalars, for TensorBoard, Weights & Biases, or whatever takes a dictionary.

    lapse.log.scalars(memory)                       {"memory/mean": 31.5, "memory/layer0": 12.0, ..., "memory/bytes": 81920}
    lapse.log.to_tensorboard(writer, memory, step)  torch.utils.tensorboard.SummaryWriter
    lapse.log.to_wandb(run, memory, step)           what wandb.init gave

`memory` is a lapse.hf.Cache, what lapse.load's models give, a layer's memory, or a list of these."""

from collections.abc import Iterable
from typing import Any


def _rows(memory: Any) -> list[list[int]]:
    rows = memory.rows()
    return rows if isinstance(rows, list) else [rows.tolist()]


def scalars(memory: Any, prefix: str = "memory") -> dict[str, float]:
    """The mean over streams of the rows that each layer holds, their mean and largest over the layers, and the bytes of
    storage. The names are the prefix and /mean, /max, /bytes, /layer0, ..."""
    memories = list(memory) if isinstance(memory, Iterable) else [memory]
    layers = [rows for one in memories for rows in _rows(one)]
    means = [sum(rows) / max(len(rows), 1) for rows in layers]
    told = {f"{prefix}/layer{i}": mean for i, mean in enumerate(means)}
    told[f"{prefix}/mean"] = sum(means) / max(len(means), 1)
    told[f"{prefix}/max"] = float(max((max(rows, default=0) for rows in layers), default=0))
    told[f"{prefix}/bytes"] = float(sum(one.nbytes() for one in memories))
    return told


def to_tensorboard(writer: Any, memory: Any, step: int, prefix: str = "memory") -> None:
    for name, value in scalars(memory, prefix).items():
        writer.add_scalar(name, value, step)


def to_wandb(run: Any, memory: Any, step: int | None = None, prefix: str = "memory") -> None:
    run.log(scalars(memory, prefix), step=step)
