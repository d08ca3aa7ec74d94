"""What all engines of sequence-to-sequence models share: the model, its languages, batches, scores, memory.

Texts go through the model in batches of similar length, the longest first. When memory runs out, batches are
half as large from there on. The score of a translation is the mean log-probability of its tokens, the end of
the sentence included, what was forced on the model (a language) not; only over tokens that the search may take,
so that it does not depend on the program that computes it.
"""

from __future__ import annotations

import re
import warnings
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from ccr_cli import hub
from ccr_cli.console import say, warn
from ccr_cli.errors import ArtifactError, ResourceError, UnavailableError, UsageError
from ccr_cli.transformers_loading import transformers_loading
from ccr_cli.translators import apertium, recorded
from ccr_cli.translators._models import default_model, licence, non_commercial
from ccr_cli.translators._routes import route
from ccr_cli.translators.base import Translation

_TOO_MUCH = "(?i)out ?of ?memory|can't allocate memory"
"""How torch (on a GPU, on a CPU) and CTranslate2 say that memory ran out."""

Decoded = tuple[list[int], float]
"""Tokens of a translation, special ones included, and its score."""


@dataclass(frozen=True)
class Options:
    """Options that all of these engines have."""

    model: str = ""
    """Name on the hub, or a folder; by default OPUS-MT of the pair, else facebook/m2m100_418M."""

    back_model: str = ""
    """Model of the ways back (`--back`, `--queries`, `--rounds 2`); by default `model`."""

    revision: str = "main"
    """Branch, tag or commit on the hub, of `model` and `back_model`."""

    num_beams: int = 1
    """Beams of the search; 1 is greedy."""

    max_new_tokens: int = 128
    """Most tokens of a translation."""

    batch_tokens: int = 4096
    """Source tokens of one batch, padding included, once a beam; halved when memory runs out."""

    dtype: str = "auto"
    """Precision of the weights; auto depends on the device."""

    source_code: str = ""
    """The model's own name of the source language; by default made from the BCP 47 tag."""

    target_code: str = ""
    """The model's own name of the target language; by default made from the BCP 47 tag."""

    prefix: str = ""
    """Put before every text, for a T5 such as `translate English to German: `."""

    DTYPES: ClassVar[tuple[str, ...]] = ("auto",)

    def __post_init__(self) -> None:
        """Checks the values.

        Raises:
            ValueError: If one of them cannot be.
        """
        if min(self.num_beams, self.max_new_tokens, self.batch_tokens) < 1:
            raise ValueError("num_beams, max_new_tokens and batch_tokens are at least 1")
        if self.dtype not in self.DTYPES:
            raise ValueError(f"dtype is one of {', '.join(self.DTYPES)}, not {self.dtype!r}")


class Seq2Seq(ABC):
    """A model set up for one pair. Its weights are read when the first text is to be translated.

    Args:
        source: Language of the texts, BCP 47.
        target: Language of the translations.
        config: Options.
        dataset_dir: The data set's folder; its recorded pairs are named where the model is missing.
        device: `auto`, or a device.

    Raises:
        UnavailableError: If the model is not on this machine and cannot be fetched (said within five
            seconds), or does not know a language.
        UsageError: If the model is of an unknown family.
    """

    ENGINE: ClassVar[str]

    def __init__(self, source: str, target: str, config: Options, *, dataset_dir: Path | None, device: str) -> None:
        self.config = config
        self.device = self._found(device)
        self.dtype = self._precision()
        name = config.model or default_model(source, target)
        self.located = hub.locate(name, config.revision, _alternatives(dataset_dir, source, target))
        folder = str(self.located.folder)
        with transformers_loading(), warnings.catch_warnings():
            from transformers import AutoConfig, AutoTokenizer

            warnings.filterwarnings("ignore", message="Recommended: pip install sacremoses")
            try:
                self._architecture: Any = AutoConfig.from_pretrained(folder, trust_remote_code=False)
            except (OSError, ValueError) as error:  # a family that transformers does not know, code of its own, no JSON
                raise UsageError(f"transformers cannot read {name}: {str(error).splitlines()[0]}") from None
            try:
                self._tokenizer: Any = AutoTokenizer.from_pretrained(
                    folder, local_files_only=True, trust_remote_code=False
                )
            except Exception as error:  # of files that are missing or damaged every family says something else
                reason = f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
                raise ArtifactError(f"the tokenizer of {name} cannot be read ({reason})") from None
        self._route = route(name, self._architecture.model_type, self._tokenizer, source, target, config)
        self._given = int(self._route.forced_token is not None)
        positions = int(getattr(self._architecture, "max_position_embeddings", None) or 2**31)
        self._longest_source = min(int(self._tokenizer.model_max_length), positions)
        self._longest_output = min(config.max_new_tokens + self._given, positions - 2)
        self._batch_tokens = config.batch_tokens
        self._licence = licence(self.located.label, self.located.folder)
        if non_commercial(self._licence):
            warn(f"{self.located.label} is licensed {self._licence}: not for commercial use")
        else:
            say(f"{source} -> {target}: {self.located.label}, licence: {self._licence}")

    def translate(self, texts: list[str], known: Collection[int] = ()) -> Iterator[tuple[int, Translation]]:
        """Yields translations batch by batch; a text that is too long for the model fails alone.

        Batches are formed over all texts, known or not, and one with an unknown text is translated whole: so a run
        that was stopped and goes on sees the same batches, and gives the same bytes, as one that was not.
        """
        done = set(known)
        yield from (entry for entry in self._results(texts, done) if entry[0] not in done)

    def _results(self, texts: list[str], known: set[int]) -> Iterator[tuple[int, Translation]]:
        todo = [i for i, text in enumerate(texts) if text.strip()]
        yield from ((i, Translation("")) for i, text in enumerate(texts) if not text.strip())
        if not todo:
            return
        ids = self._tokenizer([self._route.prefix + texts[i].strip() for i in todo], verbose=False)["input_ids"]
        queue = []
        for i, sentence in zip(todo, ids, strict=True):
            if len(sentence) > self._longest_source:
                error = f"{len(sentence)} tokens, and the model reads {self._longest_source}"
                yield i, Translation(None, error=error)
            else:
                queue.append((i, sentence))
        queue.sort(key=lambda entry: (-len(entry[1]), entry[0]))
        while queue:
            batch = queue[: max(1, self._batch_tokens // (len(queue[0][1]) * self.config.num_beams))]
            if known.issuperset(i for i, _ in batch):
                queue = queue[len(batch) :]
                continue
            found = self._try([sentence for _, sentence in batch])
            if found is None:
                self._batch_tokens = len(batch) // 2 * len(batch[0][1]) * self.config.num_beams
                continue
            queue = queue[len(batch) :]
            said = self._tokenizer.batch_decode(
                [tokens[self._given :] for tokens, _ in found], skip_special_tokens=True
            )
            for (i, _), text, (_, score) in zip(batch, said, found, strict=True):
                text = text.strip()
                yield i, Translation(text, score) if text else Translation(None, error="the model gave nothing")

    def describe(self) -> dict[str, str]:
        """Says what translates."""
        search = "greedy" if self.config.num_beams == 1 else f"{self.config.num_beams} beams"
        facts = {
            "engine": self.ENGINE,
            "model": self.located.label,
            "revision": self.located.revision,
            "version": self._version(),
            "command": f"{search}, at most {self.config.max_new_tokens} tokens, {self.dtype}, "
            f"prefix {self._route.prefix!r}",
            "licence": self._licence,
        }
        if non_commercial(self._licence):
            facts["warning"] = "not for commercial use"
        return facts

    def identity(self) -> dict[str, Any]:
        """The model by its commit or its content, its precision, the search, how it is told the languages, versions."""
        local = hub.identity(self.config.model)
        return {
            "engine": self.ENGINE,
            "version": self._version(),
            "model": local.get("model", self.located.label),
            "revision": self.located.revision,
            "dtype": self.dtype,
            "num_beams": self.config.num_beams,
            "max_new_tokens": self.config.max_new_tokens,
            "prefix": self._route.prefix,
            "codes": list(self._route.codes),
        }

    def _try(self, sentences: list[list[int]]) -> list[Decoded] | None:
        """Translates a batch; None where that took more memory than there is."""
        try:
            return self._decode(sentences)
        except (RuntimeError, MemoryError) as error:
            if not _out_of_memory(error):
                raise
        # Only here, outside of the handler, has the error let go of what the batch occupied.
        if len(sentences) == 1:
            raise ResourceError(
                f"out of memory while translating one text with {self.located.label}",
                hint="--set num_beams=1, --set dtype=bfloat16, or a smaller model",
            )
        say(f"out of memory on {len(sentences)} texts of up to {len(sentences[0])} tokens: half as many", level=1)
        self._free()
        return None

    def _found(self, device: str) -> str:
        """The device, `auto` decided; one that is not there is refused."""
        if not re.fullmatch(r"auto|cpu|cuda(:\d{1,4})?", device):
            raise UsageError(f"--device is auto, cpu or cuda, not {device!r}")
        if device == "cpu":
            return device
        gpus = self._gpus()
        if device == "auto":
            return "cuda" if gpus else "cpu"
        if int(device.partition(":")[2] or 0) >= gpus:
            count = f"{gpus} CUDA devices" if gpus else "no CUDA device"
            raise UnavailableError(f"there is no device {device} here: {self.ENGINE} sees {count}", hint="--device cpu")
        return device

    @abstractmethod
    def _gpus(self) -> int:
        """How many GPUs the engine sees."""

    @abstractmethod
    def _precision(self) -> str:
        """Decides the precision, `auto` by the device."""

    @abstractmethod
    def _version(self) -> str:
        """Names the libraries that compute, with their versions."""

    @abstractmethod
    def _decode(self, sentences: list[list[int]]) -> list[Decoded]:
        """Translates a batch of tokenised texts, the longest first."""

    def _free(self) -> None:
        """Gives memory back that is kept for later."""
        return


def identity(config: Options) -> dict[str, str]:
    """What a request records: a model's folder by its content, wherever it lies."""
    found = {"model": hub.identity(config.model), "back_model": hub.identity(config.back_model)}
    return {option: content["model"] for option, content in found.items() if content}


def pairs(dataset_dir: Path | None) -> list[tuple[str, str]] | None:
    """Cannot be said: a model may be anywhere."""
    return None


def _out_of_memory(error: Exception) -> bool:
    """Whether an error of torch, CTranslate2 or Python says that memory ran out."""
    return isinstance(error, MemoryError) or re.search(_TOO_MUCH, f"{type(error).__name__}: {error}") is not None


def _alternatives(dataset_dir: Path | None, source: str, target: str) -> str:
    """What to do without the model: other engines, and the pairs that need none."""
    ways = ["--set model=FOLDER"]
    if apertium.reaches(source, target):
        ways.append("--engine apertium")
    if dataset_dir:
        known = ", ".join(f"{a}->{b}" for a, b in recorded.pairs(dataset_dir))
        ways.append(f"--engine recorded (recorded in this data set: {known or 'nothing'})")
    return "or " + ", or ".join(ways)
