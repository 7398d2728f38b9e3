"""lapse.show: what a model remembers of a text, as a page in a notebook: the one that `lapse inspect` writes."""

import contextlib
import html
import json
import math
import pathlib
from dataclasses import dataclass, field
from typing import Any, Callable, Iterator

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from lapse.memory import Memory

TOLD = ("span", "score", "masking")  # columns of rows that are worth seeing


class Page:
    """One HTML page that needs nothing else. A notebook shows it; `save` writes it."""

    def __init__(self, text: str, height: int = 720):
        self.html, self.height = text, height

    def save(self, path: str | pathlib.Path) -> None:
        try:
            pathlib.Path(path).write_text(self.html, encoding="utf-8")
        except OSError as error:  # of a full disk, without the name
            raise OSError(error.errno, error.strerror, str(path)) from None

    def _repr_html_(self) -> str:
        return (
            f'<iframe srcdoc="{html.escape(self.html)}" sandbox="allow-scripts" '
            f'style="width: 100%; height: {self.height}px; border: 0"></iframe>'
        )


@dataclass
class LayerRecord:
    """One layer's memory, one element per token that was read (lapse/observe/memory_record.h)."""

    held: list[int] = field(default_factory=list)  # how many later queries could read the token's row
    there: list[int] = field(default_factory=list)  # 1: a query after the last could, still
    sizes: list[int] = field(default_factory=list)  # how many rows the token's query could read
    told: dict[str, list[float]] = field(default_factory=dict)  # what the method said of the row last
    begin: int = 0  # of the present window

    def add(self, memory: Memory, min_age: int) -> None:
        """The newest token's query has been answered."""
        now = int(memory.next[0]) - 1
        time, until = self._rows(memory)
        readable = until > now
        self.held.append(0)
        self.there.append(0)
        self.sizes.append(int((readable & (time <= now - min_age)).sum()))
        for t in time[readable & (time < now) & (time >= 0)].tolist():
            self.held[self.begin + t] += 1
        for name in TOLD:
            values = self._told(memory, name, time)
            if values is None:
                continue
            known = self.told.setdefault(name, [math.nan] * (len(self.held) - 1))
            known.append(math.nan)
            for t, value in zip(time.tolist(), values.tolist()):
                if t >= 0:
                    known[self.begin + t] = value

    def end(self, memory: Memory) -> None:
        time, until = self._rows(memory)
        for t in time[(until > memory.next[0]) & (time >= 0)].tolist():
            self.there[self.begin + t] = 1

    @staticmethod
    def _rows(memory: Memory) -> tuple[Tensor, Tensor]:
        table = memory.table
        time = table.time[0, : table.used]
        return time, memory.method.weightless_from(time, table.until[0, : table.used])

    @staticmethod
    def _told(memory: Memory, name: str, time: Tensor) -> Tensor | None:
        if name == "span" and hasattr(memory.method, "longest"):  # of heads: the same for all rows
            return torch.full(time.shape, float(memory.method.longest()))
        column = memory.table.columns.get(name)
        if column is None:
            return None
        values = column[0, : memory.table.used]
        return values.sum(1) if memory.method.state_by_head and name in memory.method.state else values


@dataclass
class Reader:
    """How a model is read token by token: parts that begin with empty memory, each a list of tokens to read and the one
    after; `begin` gives step(token) -> logits [tokens], and the layers' memories."""

    parts: list[tuple[list[int], int]]
    begin: Callable[[], tuple[Callable[[int], Tensor], Callable[[], list[Memory]]]]
    min_age: int
    pieces: Callable[[list[int]], list[bytes]]  # the text of each token
    facts: list[tuple[str, str]]
    configuration: str
    bos: bool


def show(
    model: "str | pathlib.Path | nn.Module",
    text: str,
    tokenizer: Any = None,
    method: str | None = None,
    budget: int = 0,
    title: str = "",
    height: int = 720,
    **options: Any,
) -> Page:
    """Reads `text` token by token and shows how long each token was held, layer by layer.

    model: a run of the command `lapse` (its folder, a checkpoint, or what `lapse.load` gave); or a decoder of
    `transformers` with its tokenizer, a method and a budget, as `lapse.hf.Cache` takes them (by default "full").
    """
    if not isinstance(text, (str, bytes)):
        raise ValueError(f"lapse.show: text must be a str, got a {type(text).__name__}; of a file: pathlib.Path(...).read_text()")
    if isinstance(model, (str, pathlib.Path)):
        from lapse.run import load

        name = str(model)
        reader = _of_run(load(model, method, budget, **options), text)
        reader.facts.insert(0, ("run", name))
    elif hasattr(model, "vocabulary"):
        if method or budget or options:
            raise ValueError("lapse.show: this model was loaded already; give method, budget and options to lapse.load")
        name = "the model"
        reader = _of_run(model, text)
    elif tokenizer is not None:
        name = type(model).__name__
        told = getattr(model.config, "lapse", None)  # by lapse.hf.forget
        own = told["method"] if told else "full"
        reader = _of_transformers(model, tokenizer, text, method or own, budget, options)
    else:
        raise ValueError("lapse.show: a model of transformers needs tokenizer=")
    with _without_dropout(model):
        read = record(reader)
    return Page(page(read, title or f"What {name} remembers"), height)


@contextlib.contextmanager
def _without_dropout(model: Any) -> Iterator[None]:
    """Of a module that is being trained, with its modes restored."""
    modes = [(one, one.training) for one in model.modules()] if isinstance(model, nn.Module) else []
    if modes:
        model.eval()
    try:
        yield
    finally:
        for one, training in modes:
            one.training = training


def _cut(tokens: list[int]) -> list[tuple[list[int], int]]:
    return [(tokens[:-1], tokens[-1])] if tokens else []


def _documents(text: bytes, kind: str) -> list[bytes]:
    """The documents of a text as `data.documents` finds them (find_documents in lapse/data/text.cpp). A text in which no line
    begins with a marker is one document."""
    lines = text.split(b"\n")
    if kind != "lines":
        markers = tuple(marker.encode() for marker in kind.split())
        ends = [i for i, line in enumerate(lines) if line.startswith(markers)]
        lines = [b"\n".join(lines[a + 1 : b]) for a, b in zip([-1, *ends], [*ends, len(lines)])]
    return [found for line in lines if (found := line.strip(b" \t\n\v\f\r"))]


def _parts(model: Any, text: str | bytes) -> list[tuple[list[int], int]]:
    """What is read from empty memory: a stream, windows one after another, or the beginning of each document."""
    encode, bos, block = model.vocabulary.encode, model.vocabulary.bos, model.config["train"]["block"]
    if bos < 0:
        return _cut(encode(text))
    documents = model.config["data"].get("documents", "none")  # older runs lack it
    if documents == "none":
        tokens = encode(text)
        parts = [tokens[i : i + block] for i in range(0, len(tokens), block)]
    else:
        parts = [encode(one)[:block] for one in _documents(text.encode() if isinstance(text, str) else text, documents)]
    return [([bos, *part[:-1]], part[-1]) for part in parts]


def _of_run(model: Any, text: str | bytes) -> Reader:
    device = model.embedding.weight.device

    def begin():
        state = model.begin(1)

        def step(token: int) -> Tensor:
            return model(torch.tensor([[token]], device=device), state)[0][0, 0].cpu()

        return step, lambda: state.layers

    attention = model.layers[0].attention
    facts = [(name, str(value)) for name, value in model.reading.items()]
    configuration = "\n".join(
        f"[{section}]\n" + "".join(f"{key} = {json.dumps(value)}\n" for key, value in keys.items())
        for section, keys in model.config.items()
    )
    bos = model.vocabulary.bos >= 0
    pieces = lambda tokens: [model.vocabulary.bytes_of(token) for token in tokens]
    return Reader(_parts(model, text), begin, attention.read_from, pieces, facts, configuration, bos)


def _of_transformers(
    model: Any, tokenizer: Any, text: str, method: str, budget: int, options: dict[str, Any]
) -> Reader:
    from lapse.hf import Cache

    tokens = tokenizer.encode(text)

    def begin():
        cache = Cache(model, method, budget, **options)

        def step(token: int) -> Tensor:
            return model(torch.tensor([[token]], device=model.device), past_key_values=cache).logits[0, 0].cpu()

        return step, cache.memories

    facts = [("model", type(model).__name__), ("method", method), ("budget", str(budget))]
    pieces = lambda tokens: _pieces(tokenizer, tokens)
    return Reader(_cut(tokens), begin, 0, pieces, facts, str(model.config), bos=False)


def _pieces(tokenizer: Any, tokens: list[int]) -> list[bytes]:
    """What each token adds to the text. A token alone would lose its space, or show a part of a character: it is decoded after
    those before it, and what is not whole yet waits for the next tokens, which share its bytes out."""
    pieces: list[bytes] = []
    begin = end = 0  # of the tokens before, which belong to whole characters
    for i in range(len(tokens)):
        before, now = tokenizer.decode(tokens[begin:end]), tokenizer.decode(tokens[begin : i + 1])
        if now.endswith("\ufffd") and i + 1 < len(tokens):
            continue
        data, waited = now[len(before) :].encode(), i - end
        pieces += [data[k : k + 1] for k in range(waited)] + [data[waited:]]
        begin, end = end, i + 1
    return pieces


def record(reader: Reader) -> dict[str, Any]:
    """What the page is told: the keys that lapse/observe/report.cpp writes."""
    if not reader.parts or not reader.parts[0][0]:
        raise ValueError("lapse.show: the text must have two tokens or more")
    layers: list[LayerRecord] = []
    nats: list[float] = []
    begins: list[int] = []
    cells: list[list[list[Any]]] = []
    with torch.no_grad():
        for tokens, last in reader.parts:
            begins.append(len(nats))
            step, memories = reader.begin()
            for token, target in zip(tokens, [*tokens[1:], last]):
                logits = step(token)
                nats.append(F.cross_entropy(logits.float(), torch.tensor(target)).item())
                layers = layers or [LayerRecord() for _ in memories()]
                for layer, memory in zip(layers, memories()):
                    layer.begin = begins[-1]
                    layer.add(memory, reader.min_age)
            for layer, memory in zip(layers, memories()):
                layer.end(memory)
            cells.append(_cells(reader.pieces([*tokens, last]), len(tokens)))
    facts = [*reader.facts, ("tokens read", str(len(nats))), ("loss", f"{sum(nats) / len(nats):.4f} nats")]
    return {
        "facts": facts,
        "configuration": reader.configuration,
        "unit": "token",
        "part": "window",
        "bos": reader.bos,
        "count": len(nats),
        "begins": begins,
        "headings": [f"window {i}" for i in range(len(begins))] if len(begins) > 1 else [],
        "cells": cells,
        "nats": _rounded(nats),
        "numbers": {},
        "layers": [
            {
                "held": layer.held,
                "there": layer.there,
                "sizes": layer.sizes,
                "told": {name: _rounded(values) for name, values in layer.told.items()},
                "mean": sum(layer.sizes) / len(layer.sizes),
                "max": max(layer.sizes),
            }
            for layer in layers
        ],
    }


def _rounded(values: list[float]) -> list[float | None]:
    return [float(f"{x:.4g}") if math.isfinite(x) else None for x in values]


def _cells(pieces: list[bytes], read: int) -> list[list[Any]]:
    """[text, tokens that were read]: the fewest neighbouring tokens that are whole characters; other bytes as \\xNN."""
    cells: list[list[Any]] = []
    pending, count = b"", 0
    for piece in pieces:
        pending, count = pending + piece, count + 1
        text, rest = _whole(pending)
        if rest:
            continue
        cells.append([text, min(count, read)])
        read -= cells[-1][1]
        pending, count = b"", 0
    if pending:
        cells.append(["".join(f"\\x{byte:02X}" for byte in pending), min(count, read)])
    return cells


def _whole(data: bytes) -> tuple[str, bool]:
    """The text, and whether its last bytes begin a character that is not whole."""
    try:
        return data.decode(), False
    except UnicodeDecodeError as error:
        if error.reason == "unexpected end of data":
            return "", True
        before = data[: error.start].decode()
        text, rest = _whole(data[error.start + 1 :])
        return before + f"\\x{data[error.start]:02X}" + text, rest


def page(data: dict[str, Any], title: str) -> str:
    """The page, filled in as lapse/observe/report.cpp does."""
    folder = pathlib.Path(__file__).resolve().parent / "page"
    if not folder.is_dir():  # not installed
        folder = pathlib.Path(__file__).resolve().parent.parent.parent / "lapse" / "observe"
    read = lambda name: (folder / name).read_text(encoding="utf-8")
    told = json.dumps({"title": title, **data})
    for character in "<>&":  # so that no text breaks out of the script element
        told = told.replace(character, f"\\u{ord(character):04x}")
    text, rest = "", read("report.html")
    style, script = read("draw.css") + read("report.css"), read("draw.js") + read("report.js")
    parts = {"title": html.escape(title), "style": style, "data": told, "script": script}
    for mark, part in parts.items():
        before, rest = rest.split("{{" + mark + "}}", 1)
        text += before + part
    return text + rest
