"""Neural models of transformers: OPUS-MT, M2M100, NLLB, MADLAD; local.

Runs on this machine; no caption is sent anywhere. Where no model is named, the pair decides: OPUS-MT
(Tiedemann & Thottingal, EAMT 2020) where it has one, else M2M100 418M (Fan et al., JMLR 2021).

The score of a translation is the mean log-probability of its tokens under the model, a signal of how sure
the model was.

Shapes: B batch, L tokens.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ccr_cli import hub
from ccr_cli.console import warn
from ccr_cli.errors import ResourceError
from ccr_cli.hub import locate
from ccr_cli.transformers_loading import transformers_loading
from ccr_cli.translators import recorded
from ccr_cli.translators.base import Translation

if TYPE_CHECKING:
    import torch

FALLBACK = "facebook/m2m100_418M"
_OPUS = """
en-ar en-bg en-cs en-da en-de en-es en-et en-fi en-fr en-hi en-hu en-id en-it en-jap en-nl en-ru en-sv en-uk
en-vi en-zh ar-en bg-en cs-en da-en de-en es-en et-en fi-en fr-en hi-en hu-en id-en it-en ja-en ko-en nl-en
pl-en ru-en sv-en tr-en uk-en vi-en zh-en de-es de-fr es-de es-fr fr-de fr-es
"""
_NON_COMMERCIAL = "CC-BY-NC-4.0"
_LICENCES = {
    "nllb": _NON_COMMERCIAL,
    "madlad": "Apache-2.0",
    "m2m100": "MIT",
    "opus-mt": "Apache-2.0 or CC-BY-4.0, see the model's card",
}


@dataclass(frozen=True)
class Config:
    """Options of the engine."""

    model: str = ""
    """Name on the hub, or a folder; by default OPUS-MT of the pair, else facebook/m2m100_418M."""

    revision: str = "main"
    """Branch, tag or commit on the hub."""

    num_beams: int = 1
    """Beams of the search; 1 is greedy."""

    max_new_tokens: int = 128
    """Most tokens of a translation."""

    batch_tokens: int = 4096
    """Source tokens of one batch, padding included; halved when memory runs out."""

    dtype: str = "auto"
    """float32, float16 or bfloat16; auto is bfloat16 on CUDA, float32 elsewhere."""

    source_code: str = ""
    """The model's own name of the source language; by default made from the BCP 47 tag."""

    target_code: str = ""
    """The model's own name of the target language; by default made from the BCP 47 tag."""

    prefix: str = ""
    """Put before every text, for a T5 such as `translate English to German: `."""

    def __post_init__(self) -> None:
        """Checks the values.

        Raises:
            ValueError: If one of them cannot be.
        """
        if min(self.num_beams, self.max_new_tokens, self.batch_tokens) < 1:
            raise ValueError("num_beams, max_new_tokens and batch_tokens are at least 1")
        if self.dtype not in ("auto", "float32", "float16", "bfloat16"):
            raise ValueError(f"dtype is auto, float32, float16 or bfloat16, not {self.dtype!r}")


def default_model(source: str, target: str) -> str:
    """Returns the model for a pair: OPUS-MT where one is known to exist, else M2M100."""
    from ccr_cli.translators._languages import primary

    pair = f"{primary(source)}-{primary(target)}"
    pair = {"en-ja": "en-jap"}.get(pair, pair)
    return f"Helsinki-NLP/opus-mt-{pair}" if pair in _OPUS.split() else FALLBACK


def licence(model: str) -> str:
    """Returns the licence of a known model, by its name."""
    name = model.lower()
    return next((text for key, text in _LICENCES.items() if key in name), "see the model's card")


def identity(config: Config) -> dict[str, str]:
    """What a request records: a model's folder by its content, wherever it lies."""
    return hub.identity(config.model)


def missing() -> tuple[str, str] | None:
    """Says what is missing here and how to get it, for `ccr doctor`; None where nothing is."""
    usual = [FALLBACK, *(f"Helsinki-NLP/opus-mt-{pair}" for pair in _OPUS.split())]
    if any(hub.missing(model) is None for model in usual):
        return None
    return "none of its default models is on this machine", f"hf download {FALLBACK}, or --set model=FOLDER"


def pairs(dataset_dir: Path | None) -> list[tuple[str, str]] | None:
    """Cannot be said: a model may be anywhere."""
    return None


def _alternatives(dataset_dir: Path | None) -> str:
    """What to do without the model: other engines, and the pairs that need none."""
    text = "or --set model=FOLDER, --engine apertium, or --engine recorded"
    known = ", ".join(f"{a}->{b}" for a, b in recorded.pairs(dataset_dir))
    return f"{text} (recorded in this data set: {known or 'nothing'})" if dataset_dir else text


class Translator:
    """A sequence-to-sequence model set up for one pair.

    Args:
        source: Language of the texts, BCP 47.
        target: Language of the translations.
        config: Options.
        dataset_dir: The data set's folder; its recorded pairs are named where the model is missing.
        device: `auto`, or a torch device.

    Raises:
        UnavailableError: If the model is not on this machine and cannot be fetched (said within five
            seconds), or does not know a language.
        UsageError: If the model is of an unknown family.
    """

    def __init__(self, source: str, target: str, config: Config, *, dataset_dir: Path | None, device: str) -> None:
        self.config = config
        name = config.model or default_model(source, target)
        self._located = locate(name, config.revision, _alternatives(dataset_dir))
        import torch

        from ccr_cli.translators._seq2seq import route

        if device == "auto":
            device = "cuda" if torch.cuda.is_available() else "cpu"
        self._device = torch.device(device)
        automatic = "bfloat16" if self._device.type == "cuda" else "float32"
        self._dtype: torch.dtype = getattr(torch, automatic if config.dtype == "auto" else config.dtype)
        folder = str(self._located.folder)
        with transformers_loading(), warnings.catch_warnings():
            from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

            warnings.filterwarnings("ignore", message="Recommended: pip install sacremoses")
            self._tokenizer: Any = AutoTokenizer.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
            network: Any = AutoModelForSeq2SeqLM.from_pretrained(
                folder, dtype=self._dtype, local_files_only=True, trust_remote_code=False, use_safetensors=True
            )
        self._network = network.eval().requires_grad_(False).to(self._device)
        self._route = route(self._located.name, self._network, self._tokenizer, source, target, config)
        self._generation = self._generation_config()
        if licence(self._located.name) == _NON_COMMERCIAL:
            warn(f"{self._located.name} is licensed {_NON_COMMERCIAL}: not for commercial use")

    def translate(self, texts: list[str]) -> Iterator[tuple[int, Translation]]:
        """Translates texts in batches of similar length; one that is too long for the model fails alone."""
        todo = [i for i, text in enumerate(texts) if text.strip()]
        yield from ((i, Translation("")) for i, text in enumerate(texts) if not text.strip())
        if not todo:
            return
        ids = self._tokenizer([self._route.prefix + texts[i].strip() for i in todo], verbose=False)["input_ids"]
        tokens = dict(zip(todo, ids, strict=True))
        limit = self._longest_input()
        for i in todo:
            if len(tokens[i]) > limit:
                yield i, Translation(None, error=f"{len(tokens[i])} tokens, and the model reads {limit}")
        for batch in self._batches([i for i in todo if len(tokens[i]) <= limit], tokens):
            yield from zip(batch, self._generate([tokens[i] for i in batch]), strict=True)

    def describe(self) -> dict[str, str]:
        """Says what translates."""
        import transformers

        search = "greedy" if self.config.num_beams == 1 else f"{self.config.num_beams} beams"
        facts = {
            "engine": "hf",
            "model": self._located.label,
            "version": f"{self._located.revision}; transformers {transformers.__version__}",
            "command": f"{search}, at most {self.config.max_new_tokens} tokens, "
            f"{str(self._dtype).removeprefix('torch.')}, prefix {self._route.prefix!r}",
            "licence": licence(self._located.name),
        }
        if facts["licence"] == _NON_COMMERCIAL:
            facts["warning"] = "not for commercial use"
        return facts

    def identity(self) -> dict[str, Any]:
        """The model by its content, the languages as it is told them, and how it is searched."""
        facts = self.describe()
        return {key: facts[key] for key in ("engine", "model", "version", "command")} | identity(self.config)

    def _generation_config(self) -> Any:
        """The model's own settings (start token, suppressed tokens), with our search and limits."""
        settings = copy.deepcopy(self._network.generation_config)
        settings.update(
            do_sample=False,
            num_beams=self.config.num_beams,
            early_stopping=False,
            length_penalty=1.0,
            max_new_tokens=min(self.config.max_new_tokens, self._positions() - 2),
            max_length=None,
        )
        if self._route.forced_token is not None:
            settings.forced_bos_token_id = self._route.forced_token
        return settings

    def _positions(self) -> int:
        return int(getattr(self._network.config, "max_position_embeddings", None) or 2**31)

    def _longest_input(self) -> int:
        return min(int(self._tokenizer.model_max_length), self._positions())

    def _batches(self, todo: list[int], tokens: dict[int, list[int]]) -> list[list[int]]:
        batches: list[list[int]] = []
        for i in sorted(todo, key=lambda i: (-len(tokens[i]), i)):
            longest = len(tokens[batches[-1][0]]) if batches else 0
            if not batches or (len(batches[-1]) + 1) * longest > self.config.batch_tokens:
                batches.append([])
            batches[-1].append(i)
        return batches

    def _generate(self, tokens: list[list[int]]) -> list[Translation]:
        import torch

        try:
            return self._generate_once(tokens)
        except torch.OutOfMemoryError:
            if len(tokens) == 1:
                raise ResourceError(
                    f"out of memory while translating one text with {self._located.name}",
                    hint="--set num_beams=1, --set dtype=bfloat16, or a smaller model",
                ) from None
        if self._device.type == "cuda":
            torch.cuda.empty_cache()
        half = len(tokens) // 2
        return self._generate(tokens[:half]) + self._generate(tokens[half:])

    def _generate_once(self, tokens: list[list[int]]) -> list[Translation]:
        import torch

        from ccr_cli.translators._seq2seq import mean_log_probability

        longest = max(map(len, tokens))
        ids_BL = torch.full((len(tokens), longest), self._tokenizer.pad_token_id, dtype=torch.long)
        mask_BL = torch.zeros_like(ids_BL)
        for row, sentence in enumerate(tokens):
            ids_BL[row, : len(sentence)] = torch.tensor(sentence)
            mask_BL[row, : len(sentence)] = 1
        ids_BL, mask_BL = ids_BL.to(self._device), mask_BL.to(self._device)
        with torch.inference_mode():
            output_BL = self._network.generate(
                input_ids=ids_BL, attention_mask=mask_BL, generation_config=self._generation
            )
        given = int(self._generation.forced_bos_token_id is not None)
        scores = mean_log_probability(self._network, ids_BL, mask_BL, output_BL, given)
        texts = self._tokenizer.batch_decode(output_BL, skip_special_tokens=True)
        return [
            Translation(text.strip(), score) if text.strip() else Translation(None, error="the model gave nothing")
            for text, score in zip(texts, scores, strict=True)
        ]
