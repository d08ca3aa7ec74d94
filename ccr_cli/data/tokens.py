"""Texts as flat token ids: n-gram hashing, transformers tokenizers, and tables of both.

A batch of texts is one flat vector of ids and the offsets where each text begins, so nothing is padded
until a model asks for it, and a batch is gathered from a table without touching a text again. A *token* is what
a model may attend to: each id of a transformers tokenizer; a word, symbol or CJK character with all its n-grams.

Shape suffixes: B texts in a batch, T texts in a table, N ids of a batch, M ids of a table.
"""

from __future__ import annotations

import json
import unicodedata
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

import torch

from ccr_cli.data.device import sent
from ccr_cli.errors import ArtifactError, UnavailableError

CONFIG_NAME = "ccr_tokenizer.json"
EMPTY_BUCKET = 0
"""The n-gram bucket of a text without a single word; no feature hashes to it."""

_CHUNK = 4096  # texts per call of a transformers tokenizer
CJK_RANGES = (
    (0x1100, 0x11FF), (0x3005, 0x3007), (0x3040, 0x30FF), (0x3130, 0x318F), (0x31F0, 0x31FF),
    (0x3400, 0x4DBF), (0x4E00, 0x9FFF), (0xA960, 0xA97F), (0xAC00, 0xD7FF), (0xF900, 0xFAFF),
    (0x20000, 0x323AF),
)  # fmt: skip


@dataclass(frozen=True)
class Tokens:
    """A batch of tokenised texts: text b is ``ids_N[offsets_B1[b]:offsets_B1[b + 1]]``."""

    ids_N: torch.Tensor
    """int64 ids of all texts, one after the other."""
    offsets_B1: torch.Tensor
    """int64, B + 1 values from 0 to N."""
    starts_N: torch.Tensor
    """bool, true where an id is the first of a token."""
    lengths_B: torch.Tensor
    """int64, ids of each text; always on the host, so that padding need not wait for the device."""

    def to(self, device: torch.device | str) -> Tokens:
        """Copy the batch to ``device`` asynchronously."""
        return Tokens(
            sent(self.ids_N, device), sent(self.offsets_B1, device), sent(self.starts_N, device), self.lengths_B
        )

    def join(self, other: Tokens) -> Tokens:
        """Return one batch of these texts and then the other's, so that both pass the encoder in one call."""
        return Tokens(
            torch.cat([self.ids_N, other.ids_N]),
            torch.cat([self.offsets_B1, other.offsets_B1[1:] + self.offsets_B1[-1]]),
            torch.cat([self.starts_N, other.starts_N]),
            torch.cat([self.lengths_B, other.lengths_B]),
        )

    def __len__(self) -> int:
        """Return B, the number of texts."""
        return int(self.offsets_B1.shape[0]) - 1


@dataclass(frozen=True)
class TokenTable:
    """All texts of a split, tokenised; rows are gathered into batches by number."""

    ids: torch.Tensor
    """int32 ids of all texts, (M,)."""
    offsets: torch.Tensor
    """int64, (T + 1,)."""
    starts: torch.Tensor
    """bool, (M,)."""

    @classmethod
    def from_lists(cls, lists: Iterable[Sequence[Sequence[int]]]) -> TokenTable:
        """Build a table from one sequence of tokens a text, each the sequence of its ids; none may be empty."""
        flat: list[int] = []
        starts: list[bool] = []
        offsets = [0]
        for tokens in lists:
            assert len(tokens) > 0, "a text has no tokens"
            for ids in tokens:
                flat.extend(ids)
                starts.append(True)
                starts.extend([False] * (len(ids) - 1))
            offsets.append(len(flat))
        return cls(
            torch.tensor(flat, dtype=torch.int32),
            torch.tensor(offsets, dtype=torch.int64),
            torch.tensor(starts, dtype=torch.bool),
        )

    def select(self, rows_B: torch.Tensor) -> Tokens:
        """Gather texts, in the order of the rows, with repetitions.

        Args:
            rows_B: int64 row numbers, (B,), on the table's device.

        Returns:
            The texts as one batch.
        """
        starts_B = self.offsets[rows_B]
        lengths_B = self.offsets[rows_B + 1] - starts_B
        offsets_B1 = torch.zeros(rows_B.shape[0] + 1, dtype=torch.int64, device=self.offsets.device)
        torch.cumsum(lengths_B, 0, out=offsets_B1[1:])
        total = int(offsets_B1[-1])
        shift_N = torch.repeat_interleave(starts_B - offsets_B1[:-1], lengths_B, output_size=total)
        positions_N = shift_N + torch.arange(total, device=self.offsets.device)
        return Tokens(self.ids[positions_N].long(), offsets_B1, self.starts[positions_N], lengths_B.cpu())

    def __len__(self) -> int:
        """Return T, the number of texts."""
        return int(self.offsets.shape[0]) - 1


class NgramTokenizer:
    """Hashed words and character n-grams (fastText, Bojanowski et al. 2017), for any script.

    Text is NFKC-normalised and case-folded. A word (letters, digits, marks) gives itself and the
    n-grams of itself between boundary marks; a run of Han, kana or hangul, where spaces do not tell words
    apart, gives the n-grams of one to three characters; any other symbol gives itself; punctuation gives
    nothing. A feature's id is its CRC-32 in one of ``buckets`` - 1 buckets, bucket 0 being kept for texts
    without features.
    """

    kind = "ngram"

    def __init__(self, buckets: int = 1 << 15, ngram_min: int = 3, ngram_max: int = 3, cjk_max: int = 2) -> None:
        """Make the tokenizer.

        Args:
            buckets: number of ids, at least 2.
            ngram_min: shortest n-gram of a word, its boundary marks counted.
            ngram_max: longest; below ``ngram_min`` leaves words alone.
            cjk_max: longest n-gram of a CJK run.
        """
        assert buckets >= 2 and ngram_min >= 1 and cjk_max >= 1, "meaningless n-gram settings"
        self.buckets, self.ngram_min, self.ngram_max, self.cjk_max = buckets, ngram_min, ngram_max, cjk_max
        self._classes: dict[str, str] = {}
        self._pieces: dict[str, list[list[int]]] = {}

    @property
    def vocab_size(self) -> int:
        """Return the number of buckets."""
        return self.buckets

    def features(self, text: str) -> list[str]:
        """Return the features of a text before hashing, in order and with repetitions."""
        return [
            feature for kind, piece in self._split(text) for token in self._tokens(kind, piece) for feature in token
        ]

    def encode(self, texts: Sequence[str]) -> TokenTable:
        """Tokenise each distinct text once; row i of the table is text i."""
        first: dict[str, int] = {}
        rows = [first.setdefault(text, len(first)) for text in texts]
        distinct = TokenTable.from_lists(self._ids(text) for text in first)
        return _expand(distinct, rows)

    def words(self, text: str) -> list[str]:
        """Return each token of a text in readable form."""
        pieces = [token[0] for kind, piece in self._split(text) for token in self._tokens(kind, piece)]
        return [piece[1:-1] if len(piece) > 2 and piece[0] == "<" else piece for piece in pieces] or [""]

    def config(self) -> dict[str, Any]:
        """Return the settings as JSON values."""
        return {
            "kind": self.kind,
            "buckets": self.buckets,
            "ngram_min": self.ngram_min,
            "ngram_max": self.ngram_max,
            "cjk_max": self.cjk_max,
        }

    def save(self, directory: Path) -> None:
        """Write the settings into ``directory``."""
        _write_config(directory, self.config())

    def _ids(self, text: str) -> list[list[int]]:
        ids: list[list[int]] = []
        for kind, piece in self._split(text):
            known = self._pieces.get(piece)
            if known is None:
                known = [[self._hash(feature) for feature in token] for token in self._tokens(kind, piece)]
                if kind == "word":  # words repeat, runs of CJK hardly do
                    self._pieces[piece] = known
            ids.extend(known)
        return ids or [[EMPTY_BUCKET]]

    def _split(self, text: str) -> list[tuple[str, str]]:
        folded = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold())
        runs = ((kind, "".join(run)) for kind, run in groupby(folded, self._class_of))
        return [(kind, run) for kind, run in runs if kind]

    def _class_of(self, char: str) -> str:
        known = self._classes.get(char)
        if known is None:
            code, category = ord(char), unicodedata.category(char)[0]
            if category == "S":
                known = "symbol"
            elif category not in "LNM":
                known = ""
            else:
                known = "cjk" if any(low <= code <= high for low, high in CJK_RANGES) else "word"
            self._classes[char] = known
        return known

    def _tokens(self, kind: str, piece: str) -> list[list[str]]:
        """The features of each token: a word, a symbol, or a character of a CJK run and the n-grams that it begins."""
        if kind == "symbol":
            return [[symbol] for symbol in piece]
        if kind == "cjk":
            return [
                [piece[i:end] for end in range(i + 1, min(i + self.cjk_max, len(piece)) + 1)] for i in range(len(piece))
            ]
        marked = f"<{piece}>"
        return [[marked, *_ngrams(marked, self.ngram_min, min(self.ngram_max, len(marked) - 1))]]

    def _hash(self, feature: str) -> int:
        return 1 + zlib.crc32(feature.encode("utf-8", "surrogatepass")) % (self.buckets - 1)


class HFTokenizer:
    """A transformers tokenizer without padding: special tokens as the model expects them, truncated."""

    kind = "transformers"

    def __init__(self, name_or_dir: str | Path, max_length: int = 64) -> None:
        """Load a tokenizer that is on this machine.

        Args:
            name_or_dir: folder or cached hub name.
            max_length: longest text in tokens, special tokens included; the rest is cut.

        Raises:
            UnavailableError: it is not here, or transformers is not installed.
        """
        self.name, self.max_length = str(name_or_dir), max_length
        try:
            from transformers import AutoTokenizer
        except ImportError as error:
            raise UnavailableError(
                f"tokenizer '{self.name}' needs the package transformers", "pip install transformers"
            ) from error
        try:
            self._tokenizer: Any = AutoTokenizer.from_pretrained(self.name, local_files_only=True)
        except (OSError, ValueError) as error:
            a_place = self.name.startswith(("/", ".", "~"))
            hint = "there is no such folder, or no tokenizer in it" if a_place else f"hf download {self.name}"
            raise UnavailableError(f"no tokenizer of model '{self.name}' on this machine", hint) from error

    @property
    def vocab_size(self) -> int:
        """Return the number of ids, added tokens included."""
        return len(self._tokenizer)

    def unknown(self, table: TokenTable) -> float:
        """Return the fraction of a table's tokens that are unknown to the vocabulary."""
        number = self._tokenizer.unk_token_id
        return 0.0 if number is None or not len(table.ids) else float((table.ids == number).float().mean())

    def knows(self, text: str) -> bool:
        """Whether the vocabulary has a token of a text."""
        return bool(set(self._tokenizer(text, add_special_tokens=False)["input_ids"]) - {self._tokenizer.unk_token_id})

    def encode(self, texts: Sequence[str]) -> TokenTable:
        """Tokenise each distinct text once; row i of the table is text i."""
        first: dict[str, int] = {}
        rows = [first.setdefault(text, len(first)) for text in texts]
        distinct = list(first)
        lists: list[list[int]] = []
        for start in range(0, len(distinct), _CHUNK):
            chunk = distinct[start : start + _CHUNK]
            out = self._tokenizer(chunk, truncation=True, max_length=self.max_length, padding=False)
            lists += out["input_ids"]
        return _expand(TokenTable.from_lists([[i] for i in ids or [self._filler()]] for ids in lists), rows)

    def words(self, text: str) -> list[str]:
        """Return each token of a text in readable form."""
        ids = self.encode([text]).ids.tolist()
        return [str(token) for token in self._tokenizer.convert_ids_to_tokens(ids)]

    def config(self) -> dict[str, Any]:
        """Return the settings as JSON values; the vocabulary has its own files."""
        return {"kind": self.kind, "max_length": self.max_length}

    def save(self, directory: Path) -> None:
        """Write the tokenizer's own files and the settings into ``directory``."""
        self._tokenizer.save_pretrained(str(directory))
        _write_config(directory, self.config())

    def _filler(self) -> int:
        tokenizer = self._tokenizer
        candidates = (tokenizer.unk_token_id, tokenizer.eos_token_id, tokenizer.pad_token_id)
        return next((int(token) for token in candidates if token is not None), 0)


class GivenTokenizer:
    """Row numbers of texts of which only features exist; a text is the key of its feature."""

    kind = "given"

    def __init__(self, keys: Sequence[str]) -> None:
        """Make the tokenizer.

        Args:
            keys: the texts, in the order of their features.
        """
        self.row_of = {key: row for row, key in enumerate(keys)}

    @property
    def vocab_size(self) -> int:
        """Return the number of texts."""
        return len(self.row_of)

    def encode(self, texts: Sequence[str]) -> TokenTable:
        """Look texts up; row i of the table is text i.

        Raises:
            ArtifactError: a text has no feature.
        """
        unknown = next((text for text in texts if text not in self.row_of), None)
        if unknown is not None:
            some = ", ".join(list(self.row_of)[:3])
            raise ArtifactError(
                f"there is no feature of the text {unknown!r}", f"texts of this model are keys: {some}, ..."
            )
        return TokenTable.from_lists([[self.row_of[text]]] for text in texts)

    def words(self, text: str) -> list[str]:
        """Return the text, which is one token."""
        return [text]

    def config(self) -> dict[str, Any]:
        """Return the settings as JSON values."""
        return {"kind": self.kind, "keys": list(self.row_of)}

    def save(self, directory: Path) -> None:
        """Write the keys into ``directory``."""
        _write_config(directory, self.config())


Tokenizer = NgramTokenizer | HFTokenizer | GivenTokenizer


def load_tokenizer(directory: Path) -> Tokenizer:
    """Read the tokenizer that ``save`` wrote into ``directory``.

    Raises:
        ArtifactError: the settings are missing or cannot be read.
        UnavailableError: transformers is needed and not installed.
    """
    path = directory / CONFIG_NAME
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
        kind = config.pop("kind")
        if kind == NgramTokenizer.kind:
            return NgramTokenizer(**{name: int(value) for name, value in config.items()})
        if kind == GivenTokenizer.kind:
            return GivenTokenizer(config["keys"])
        if kind == HFTokenizer.kind:
            return HFTokenizer(directory, int(config["max_length"]))
    except (OSError, ValueError, KeyError, TypeError, AttributeError, AssertionError) as error:
        raise ArtifactError(f"cannot read the tokenizer in {path}: {error}", "train the model again") from error
    raise ArtifactError(f"unknown tokenizer '{kind}' in {path}", "upgrade ccr")


def _ngrams(text: str, low: int, high: int) -> list[str]:
    return [text[i : i + n] for n in range(low, high + 1) for i in range(len(text) - n + 1)]


def _expand(distinct: TokenTable, rows: Sequence[int]) -> TokenTable:
    if len(distinct) == len(rows):  # all texts differ: the rows are in order already
        return distinct
    tokens = distinct.select(torch.tensor(rows, dtype=torch.int64))
    return TokenTable(tokens.ids_N.int(), tokens.offsets_B1, tokens.starts_N)


def _write_config(directory: Path, config: dict[str, Any]) -> None:
    text = json.dumps(config, indent=2, sort_keys=True) + "\n"
    (directory / CONFIG_NAME).write_text(text, encoding="utf-8")
