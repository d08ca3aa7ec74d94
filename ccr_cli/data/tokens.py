"""Texts as flat token ids: n-gram hashing, transformers tokenizers, and tables of both.

A batch of texts is one flat vector of ids and the offsets where each text begins, so nothing is padded
until a model asks for it, and a batch is gathered from a table without tokenising again. A *token* is what
a model may attend to: each id of a transformers tokenizer; a word, symbol or CJK character with all its n-grams.

Shape suffixes: B texts in a batch, N ids of all of them.
"""

import json
import unicodedata
import zlib
from abc import ABC, abstractmethod
from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import torch

from ccr_cli.artifacts.base import read_json
from ccr_cli.data.frames import places_of, sent
from ccr_cli.errors import ArtifactError, UnavailableError

CONFIG_NAME = "ccr_tokenizer.json"
EMPTY_BUCKET = 0
"""The n-gram bucket of a text without a single word; no feature hashes to it."""

_CHUNK = 4096  # texts per call of a transformers tokenizer, or copied at once
LONGEST = 512
"""Most tokens of a text where the options set no limit, and the model none or a larger one."""
CJK_RANGES = (
    (0x1100, 0x11FF), (0x3005, 0x3007), (0x3040, 0x30FF), (0x3130, 0x318F), (0x31F0, 0x31FF),
    (0x3400, 0x4DBF), (0x4E00, 0x9FFF), (0xA960, 0xA97F), (0xAC00, 0xD7FF), (0xF900, 0xFAFF),
    (0x20000, 0x323AF),
)  # fmt: skip


@dataclass(frozen=True)
class Tokens:
    """Tokenised texts, a batch or all of a split: text b is ``ids_N[offsets_B1[b]:offsets_B1[b + 1]]``."""

    ids_N: torch.Tensor
    """Ids of all texts, one after the other: int64 in a batch, int32 in a table to save memory."""
    offsets_B1: torch.Tensor
    """int64, B + 1 values from 0 to N."""
    starts_N: torch.Tensor
    """bool, true where an id is the first of a token."""
    lengths_B: torch.Tensor
    """int64, number of ids of each text; always on the host, so that padding need not wait for the device."""

    @classmethod
    def from_lists(cls, lists: Iterable[Sequence[Sequence[int]]]) -> "Tokens":
        """Builds a table: each text is a sequence of tokens, each token a sequence of ids; none may be empty."""
        flat, starts, offsets = array("i"), bytearray(), array("q", [0])
        for tokens in lists:
            assert len(tokens) > 0, "a text has no tokens"
            for ids in tokens:
                flat.extend(ids)
                starts += b"\1" + bytes(len(ids) - 1)
            offsets.append(len(flat))
        ids_N, offsets_B1 = (torch.from_numpy(np.asarray(each)) for each in (flat, offsets))
        return cls(ids_N, offsets_B1, torch.from_numpy(np.frombuffer(starts, bool)), offsets_B1.diff())

    def select(self, rows_B: torch.Tensor) -> "Tokens":
        """Gathers a batch by int64 row numbers on the device of the texts, in their order, with repetitions."""
        starts_B = self.offsets_B1[rows_B]
        lengths_B = self.offsets_B1[rows_B + 1] - starts_B
        place_N, offsets_B1 = places_of(starts_B, lengths_B)
        return Tokens(self.ids_N[place_N].long(), offsets_B1, self.starts_N[place_N], lengths_B.cpu())

    def to(self, device: torch.device | str) -> "Tokens":
        """Copies the batch to a device asynchronously."""
        ids_N, offsets_B1, starts_N = (sent(x, device) for x in (self.ids_N, self.offsets_B1, self.starts_N))
        return Tokens(ids_N, offsets_B1, starts_N, self.lengths_B)

    def join(self, other: "Tokens") -> "Tokens":
        """Returns one batch of these texts followed by the other's, so that one call encodes both."""
        offsets_B1 = torch.cat([self.offsets_B1, other.offsets_B1[1:] + self.offsets_B1[-1]])
        ids_N, starts_N = torch.cat([self.ids_N, other.ids_N]), torch.cat([self.starts_N, other.starts_N])
        return Tokens(ids_N, offsets_B1, starts_N, torch.cat([self.lengths_B, other.lengths_B]))

    def __len__(self) -> int:
        """B, the number of texts."""
        return int(self.offsets_B1.shape[0]) - 1


@cache
def _class_of(char: str) -> str:
    """Returns the class of a character: `word`, `cjk` or `symbol`; empty for punctuation and space.

    `_kind` in `stages/export/encode.py`, which runs without ccr, follows the same rule.
    """
    category = unicodedata.category(char)[0]
    if category not in "LNM":
        return "symbol" if category == "S" else ""
    return "cjk" if any(low <= ord(char) <= high for low, high in CJK_RANGES) else "word"


class Tokenizer(ABC):
    """Tokenises texts into ids below `vocab_size` (added tokens included); shows its tokens, saves its settings."""

    kind: str

    def __init__(self, vocab_size: int, settings: dict[str, Any]) -> None:
        """Takes the settings as JSON values."""
        self.vocab_size, self._settings = vocab_size, settings

    def encode(self, texts: Sequence[str]) -> Tokens:
        """Tokenises each distinct text once; row i is text i. ArtifactError if `GivenTokenizer` lacks a text."""
        rows, first = pd.factorize(np.array(texts, dtype=object))
        distinct = Tokens.from_lists(self._ids(first.tolist()))
        if len(distinct) == len(rows):  # all texts differ: the rows are in order already
            return distinct
        rows_B = torch.from_numpy(rows)
        lengths_B = distinct.lengths_B[rows_B]
        offsets_B1 = torch.cat([lengths_B.new_zeros(1), lengths_B.cumsum(0)])
        ids_N, starts_N = (x.new_empty(int(offsets_B1[-1])) for x in (distinct.ids_N, distinct.starts_N))
        for first, some_B in zip(offsets_B1[::_CHUNK], torch.split(rows_B, _CHUNK), strict=False):
            part = distinct.select(some_B)
            here = slice(int(first), int(first) + len(part.ids_N))
            ids_N[here], starts_N[here] = part.ids_N, part.starts_N
        return Tokens(ids_N, offsets_B1, starts_N, lengths_B)

    def readable(self, captions: pd.DataFrame) -> pd.DataFrame:
        """Returns the rows of a table whose `text` can be encoded; by default all."""
        return captions

    def words(self, text: str) -> list[str]:
        """Returns each token of a text in readable form; by default the whole text."""
        return [text]

    def config(self) -> dict[str, Any]:
        """Returns the settings as JSON values."""
        return {"kind": self.kind, **self._settings}

    def save(self, directory: Path) -> None:
        """Writes the settings into a folder."""
        text = json.dumps(self.config(), indent=2, sort_keys=True) + "\n"
        (directory / CONFIG_NAME).write_text(text, encoding="utf-8")

    @abstractmethod
    def _ids(self, texts: list[str]) -> Iterable[Sequence[Sequence[int]]]:
        """Yields the ids of each token, for every text."""


class NgramTokenizer(Tokenizer):
    """Hashed words and character n-grams (fastText, Bojanowski et al. 2017), for any script.

    Text is NFKC-normalised and case-folded. A word (letters, digits, marks) is put between boundary marks; it and its
    n-grams are features. A run of Han, kana or hangul, where spaces do not separate words, has the n-grams of one to
    `cjk_max` characters; any other symbol is itself a feature; punctuation has none. A feature's id is its CRC-32 in
    one of `buckets` - 1 buckets; bucket 0 is reserved for texts without features.

    Args:
        buckets: Number of ids, at least 2.
        ngram_min: Length of a word's shortest n-gram, including boundary marks.
        ngram_max: Length of its longest n-gram; below `ngram_min`, only whole words are features.
        cjk_max: Length of the longest n-gram of a CJK run.
    """

    kind = "ngram"

    def __init__(self, buckets: int = 1 << 15, ngram_min: int = 3, ngram_max: int = 3, cjk_max: int = 2) -> None:
        assert buckets >= 2 and ngram_min >= 1 and cjk_max >= 1, "meaningless n-gram settings"
        sizes = {"ngram_min": ngram_min, "ngram_max": ngram_max, "cjk_max": cjk_max}
        super().__init__(buckets, {"buckets": buckets, **sizes})
        self.buckets, self.ngram_min, self.ngram_max, self.cjk_max = buckets, ngram_min, ngram_max, cjk_max
        self._pieces: dict[str, list[list[int]]] = {}

    def features(self, text: str) -> list[str]:
        """Returns the features of a text before hashing, in order and with repetitions."""
        return [feature for run in self._split(text) for token in self._tokens(*run) for feature in token]

    def words(self, text: str) -> list[str]:
        """Returns each token of a text in readable form."""
        pieces = [token[0] for run in self._split(text) for token in self._tokens(*run)]
        return [piece[1:-1] if len(piece) > 2 and piece[0] == "<" else piece for piece in pieces] or [""]

    def _ids(self, texts: list[str]) -> Iterable[list[list[int]]]:
        for text in texts:
            ids: list[list[int]] = []
            for kind, piece in self._split(text):
                known = self._pieces.get(piece)
                if known is None:
                    tokens = [
                        [f.encode("utf-8", "surrogatepass") for f in token] for token in self._tokens(kind, piece)
                    ]
                    known = [[1 + zlib.crc32(f) % (self.buckets - 1) for f in token] for token in tokens]
                    if kind == "word":  # words repeat, runs of CJK hardly do
                        self._pieces[piece] = known
                ids.extend(known)
            yield ids or [[EMPTY_BUCKET]]

    def _split(self, text: str) -> list[tuple[str, str]]:
        folded = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold())
        runs = ((kind, "".join(run)) for kind, run in groupby(folded, _class_of))
        return [(kind, run) for kind, run in runs if kind]

    def _tokens(self, kind: str, piece: str) -> list[list[str]]:
        """Returns the features of each token: a word, a symbol, or a CJK character with the n-grams it starts."""
        if kind == "symbol":
            return [[symbol] for symbol in piece]
        if kind == "cjk":
            return [
                [piece[i:end] for end in range(i + 1, min(i + self.cjk_max, len(piece)) + 1)] for i in range(len(piece))
            ]
        marked = f"<{piece}>"
        sizes = range(self.ngram_min, min(self.ngram_max, len(marked) - 1) + 1)
        return [[marked, *(marked[i : i + n] for n in sizes for i in range(len(marked) - n + 1))]]


class HFTokenizer(Tokenizer):
    """A transformers tokenizer without padding: special tokens as the model expects them, truncated.

    Args:
        name_or_dir: Folder or cached hub name.
        max_length: Most tokens of a text, special tokens included. 0: the tokenizer's own limit, at most `LONGEST`.

    Raises:
        UnavailableError: If it is not on this machine.
    """

    kind = "transformers"

    def __init__(self, name_or_dir: str | Path, max_length: int = 64) -> None:
        from transformers import AutoTokenizer

        self.name = str(name_or_dir)
        try:
            self._tokenizer: Any = AutoTokenizer.from_pretrained(self.name, local_files_only=True)
        except ImportError as error:  # SigLIP's reads its vocabulary with protobuf
            reason = str(error).strip().split("\n")[0]
            problem = f"the tokenizer of '{self.name}' needs a package that is not installed ({reason})"
            raise UnavailableError(problem, "pip install protobuf sentencepiece") from error
        except (OSError, ValueError) as error:
            a_place = self.name.startswith(("/", ".", "~"))
            hint = "there is no such folder, or no tokenizer in it" if a_place else f"hf download {self.name}"
            raise UnavailableError(f"no tokenizer of model '{self.name}' on this machine", hint) from error
        self.max_length = max_length or int(min(self._tokenizer.model_max_length, LONGEST))
        super().__init__(len(self._tokenizer), {"max_length": self.max_length})

    def limit(self, longest: int | None) -> None:
        """Lowers the limit to `longest` tokens, if that is less."""
        self.max_length = self._settings["max_length"] = min(self.max_length, longest or self.max_length)

    def unknown(self, table: Tokens) -> float:
        """Returns the fraction of unknown tokens in a table, not counting special tokens such as end marks."""
        own = self._tokenizer
        number = own.unk_token_id
        if number in (None, own.eos_token_id):  # CLIP's is its end mark, as it knows every byte
            return 0.0
        marks = torch.tensor([i for i in own.all_special_ids if i != number], dtype=table.ids_N.dtype)
        words_N = table.ids_N[~torch.isin(table.ids_N, marks)]
        return float((words_N == number).float().mean()) if len(words_N) else 0.0

    def knows(self, text: str) -> bool:
        """Whether the vocabulary has at least one token of a text."""
        return bool(set(self._tokenizer(text, add_special_tokens=False)["input_ids"]) - {self._tokenizer.unk_token_id})

    def words(self, text: str) -> list[str]:
        """Returns each token of a text in readable form."""
        ids = self.encode([text]).ids_N.tolist()
        return [str(token) for token in self._tokenizer.convert_ids_to_tokens(ids)]

    def save(self, directory: Path) -> None:
        """Writes the tokenizer's own files and the settings into a folder."""
        self._tokenizer.save_pretrained(str(directory))
        super().save(directory)

    def _ids(self, texts: list[str]) -> Iterable[list[list[int]]]:
        own = self._tokenizer
        candidates = (own.unk_token_id, own.eos_token_id, own.pad_token_id)
        filler = next((int(token) for token in candidates if token is not None), 0)
        for start in range(0, len(texts), _CHUNK):
            chunk = texts[start : start + _CHUNK]
            out = own(chunk, truncation=True, max_length=self.max_length, padding=False)
            yield from ([[i] for i in ids or [filler]] for ids in out["input_ids"])


class GivenTokenizer(Tokenizer):
    """Maps texts that exist only as vectors to the row of their vector; `keys` are the texts in row order."""

    kind = "given"

    def __init__(self, keys: Sequence[str]) -> None:
        self.row_of = {key: row for row, key in enumerate(keys)}
        super().__init__(len(self.row_of), {"keys": list(self.row_of)})

    def readable(self, captions: pd.DataFrame) -> pd.DataFrame:
        """Returns the rows whose text has a vector."""
        return captions[captions["text"].isin(self.row_of)]

    def _ids(self, texts: list[str]) -> Iterable[list[list[int]]]:
        unknown = next((text for text in texts if text not in self.row_of), None)
        if unknown is not None:
            some = ", ".join(map(repr, list(self.row_of)[:3]))
            hint = f"one of the {len(self.row_of):,} texts that this model has vectors of, such as {some}"
            raise ArtifactError(f"there is no vector of the text {unknown!r}", hint)
        return ([[self.row_of[text]]] for text in texts)


def load_tokenizer(directory: Path) -> Tokenizer:
    """Reads the tokenizer that `save` wrote into a folder; ArtifactError if its settings are missing or unreadable."""
    path = directory / CONFIG_NAME
    try:
        config = read_json(path)
        kind = config.pop("kind")
        if kind == NgramTokenizer.kind:
            return NgramTokenizer(**{name: int(value) for name, value in config.items()})
        if kind == GivenTokenizer.kind:
            return GivenTokenizer(config["keys"])
        if kind == HFTokenizer.kind:
            return HFTokenizer(directory, int(config["max_length"]))
    except (OSError, LookupError, ValueError, TypeError, AttributeError, AssertionError, ArithmeticError) as error:
        raise ArtifactError(f"cannot read the tokenizer in {path}: {error}", "train the model again") from error
    raise ArtifactError(f"unknown tokenizer '{kind}' in {path}", "upgrade ccr")


def word_support(texts: Sequence[str], items: Sequence[int]) -> npt.NDArray[np.int32]:
    """Counts, for each of N texts in one language, the other items that share its most frequent word.

    At 0, no other item has any of the text's words, so no other pair shows whether its pair matches. Words are those
    of the n-gram tokenizer; in Han, kana and hangul, pairs of characters.
    """
    tokenizer = NgramTokenizer(ngram_min=3, ngram_max=2, cjk_max=2)  # whole words only
    number_of: dict[str, int] = {}
    words, lengths = array("i"), array("i")
    for text in texts:
        features = tokenizer.features(text)
        features = [f for f in features if len(f) > 1] or features
        words.extend(number_of.setdefault(word, len(number_of)) for word in features)
        lengths.append(len(features))
    word_W, length_N = np.asarray(words), np.asarray(lengths)
    item_N = np.unique(np.asarray(items, dtype=np.int64), return_inverse=True)[1]
    pair_W = word_W * np.int64(len(item_N)) + np.repeat(item_N, length_N)
    pair_W.sort()
    word_P = pair_W[np.diff(pair_W, prepend=-1) > 0] // max(len(item_N), 1)  # each word once per item
    others_W = np.bincount(word_P, minlength=1).astype(np.int32)[word_W] - 1
    most_N, some_N = np.zeros(len(item_N), dtype=np.int32), length_N > 0
    most_N[some_N] = np.maximum.reduceat(others_W, (np.cumsum(length_N) - length_N)[some_N])
    return most_N
