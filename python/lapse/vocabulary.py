"""The tokens of a trained run: bytes, characters, words, the tokens of a task, or subwords (lapse/data/vocabulary.cpp)."""

import base64
import json
import re

OTHER, END_OF_LINE = 0, 1  # of characters and words


class Vocabulary:
    """Text to numbers and back. `bos` begins each window, -1: there is none; `size` counts it."""

    def __init__(self, text: str):
        told = json.loads(text)
        self.unit: str = told["unit"]
        if told.get("sentinels"):
            raise ValueError(
                "lapse.load: runs with sentinels (data.objective) are encoder-decoders, which it does not read"
            )
        if "outputs" in told:
            raise ValueError("lapse.load: it does not read runs of a task whose answers are no tokens; the command lapse does")
        self._pieces = None
        if self.unit == "byte":
            self.tokens: list = [bytes([i]) for i in range(256)]
        elif self.unit == "subword":
            self._pieces = Subwords(base64.b64decode(told["model"]))
            self.tokens = self._pieces.tokens
        else:
            self.tokens = told["tokens"]
        self._ids = {token: i for i, token in enumerate(self.tokens)}
        self.bos = len(self.tokens) if told.get("bos") else -1
        self.size = len(self.tokens) + (self.bos >= 0)

    def encode(self, text: str | bytes) -> list[int]:
        """The text's tokens, without BOS. Unknown characters and words become the token for others; unknown tokens of a
        task are a ValueError. The `<bos>` that `lapse task show` begins a sequence with is passed over."""
        if self.unit == "byte":
            return list(text.encode() if isinstance(text, str) else text)
        if self._pieces is not None:
            return self._pieces.encode(text)
        text = text if isinstance(text, str) else text.decode()
        if self.unit == "character":
            return [self._ids.get(c, OTHER) for c in text]
        words = re.findall(r"\n|[^ \t\n\v\f\r]+", text)
        if self.unit == "word":
            return [END_OF_LINE if w == "\n" else self._ids.get(w, OTHER) for w in words]
        words = [w for w in words if w != "\n"]
        while self.bos >= 0 and words and words[0] == "<bos>":
            del words[0]
        unknown = [w for w in words if w not in self._ids]
        if unknown:
            raise ValueError(f"lapse: the task has no token {unknown[0]!r}")
        return [self._ids[w] for w in words]

    def bytes_of(self, token: int) -> bytes:
        """What the token stands for in the text. ValueError where there is none."""
        if not 0 <= token < self.size:
            raise ValueError(f"lapse: no token {int(token)}: this vocabulary has {self.size}")
        if token == self.bos:
            return b""
        if self.unit == "byte":
            return bytes([token])
        if self._pieces is not None:
            return self._pieces.bytes[token]
        if self.unit == "character":
            return self.tokens[token].encode()
        if self.unit == "word" and token == END_OF_LINE:
            return b"\n"
        return (self.tokens[token] + " ").encode()

    def decode(self, tokens: list[int]) -> str:
        """The text of these tokens; bytes that are no UTF-8 are replaced."""
        return b"".join(map(self.bytes_of, tokens)).decode(errors="replace")


class Subwords:
    """A SentencePiece model that gives every text back: what it would change is read byte by byte (lapse/data/subword.cpp)."""

    def __init__(self, model: bytes):
        self._model = _sentencepiece(model)
        ids = range(self._model.get_piece_size())
        self.tokens = [self._model.id_to_piece(i) for i in ids]
        self.bytes = [self._bytes_of(i) for i in ids]
        self._byte_ids = {self.bytes[i]: i for i in ids if self._model.is_byte(i)}
        # Line ends, zeros, SentencePiece's own sign for a space, bytes that are no UTF-8; spaces, if there is no piece for them.
        spaces = "" if self._model.piece_to_id("\u2581") != self._model.unk_id() else " "
        self._changed = re.compile(f"([\n\0\u2581\udc80-\udcff{spaces}])")

    def _bytes_of(self, i: int) -> bytes:
        if self._model.is_byte(i):
            return bytes([int(self.tokens[i][3:5], 16)])  # "<0x0A>"
        silent = self._model.is_control(i) or self._model.is_unknown(i)
        return b"" if silent else self.tokens[i].replace("\u2581", " ").encode()

    def encode(self, text: str | bytes) -> list[int]:
        text = text if isinstance(text, str) else text.decode(errors="surrogateescape")
        ids = []
        for i, stretch in enumerate(self._changed.split(text)):
            if i % 2 == 0:
                ids += self._model.encode(stretch) if stretch else []
            else:
                ids += [self._byte_ids[bytes([byte])] for byte in stretch.encode(errors="surrogateescape")]
        return ids


def _sentencepiece(model: bytes):
    try:
        import sentencepiece
    except ImportError:
        raise ImportError("lapse.load: this run has subwords: pip install sentencepiece") from None
    return sentencepiece.SentencePieceProcessor(model_proto=model)
