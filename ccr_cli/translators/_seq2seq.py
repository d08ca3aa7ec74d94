"""What hf and ct2 share: models and their licences, languages, batches, scores and memory.

Texts go through the model in batches of similar length, longest first. When memory runs out, batches are halved
from there on. The score of a translation is the mean log-probability of its tokens: including the end of the sentence,
excluding a forced language token, and normalised over the tokens that the search may choose. So both engines agree.
"""

import re
import warnings
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from ccr_cli import hub
from ccr_cli.console import say, warn
from ccr_cli.data.languages import has_code, iso3, nllb, primary, script, usually_written
from ccr_cli.errors import ArtifactError, ResourceError, UnavailableError, UsageError, out_of_memory
from ccr_cli.transformers_loading import transformers_loading
from ccr_cli.translators import apertium, recorded
from ccr_cli.translators.base import Translation

FALLBACK = "facebook/m2m100_418M"
"""Default model for pairs without an OPUS-MT model, or (English to Japanese) with one evaluated only on the Bible."""
_OPUS = """
en-ar en-bg en-cs en-da en-de en-es en-et en-fi en-fr en-hi en-hu en-id en-it en-nl en-ru en-sv en-uk en-vi en-zh
ar-en bg-en cs-en da-en de-en es-en et-en fi-en fr-en hi-en hu-en id-en it-en ja-en ko-en nl-en pl-en ru-en sv-en
tr-en uk-en vi-en zh-en de-es de-fr es-de es-fr fr-de fr-es
"""
OPUS_PAIRS = tuple(_OPUS.split())
"""Pairs whose default model is `Helsinki-NLP/opus-mt-SOURCE-TARGET`."""
_LICENCES = {
    "nllb": "CC-BY-NC-4.0",
    "madlad": "Apache-2.0",
    "m2m100": "MIT",
    "opus-mt": "Apache-2.0 or CC-BY-4.0, see the model's card",
}
"""Licences, by a part of the model's name."""

Decoded = tuple[list[int], float]
"""Tokens of a translation, special ones included, and its score."""


@dataclass(frozen=True)
class Options:
    """Options of both engines."""

    model: str = ""
    """Name on the hub, or a folder; default: OPUS-MT for the pair, else facebook/m2m100_418M."""

    back_model: str = ""
    """Model for translating back (`--back`, `--with-queries`, `--rounds 2`); default: `model`."""

    revision: str = "main"
    """Branch, tag or commit on the hub, of `model` and `back_model`."""

    num_beams: int = 1
    """Number of beams; 1 is greedy search."""

    max_new_tokens: int = 128
    """Largest number of tokens in a translation."""

    batch_tokens: int = 4096
    """Source tokens per batch, with padding, times the number of beams; halved when memory runs out."""

    dtype: str = "auto"
    """Precision of the weights; auto depends on the device."""

    source_code: str = ""
    """The model's code for the source language; by default derived from the BCP 47 tag."""

    target_code: str = ""
    """The model's code for the target language; by default derived from the BCP 47 tag."""

    prefix: str = ""
    """Text before every source text; a T5 may need `translate English to German: `."""

    def __post_init__(self) -> None:
        for name in ("num_beams", "max_new_tokens", "batch_tokens"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, not {getattr(self, name)}")


class Seq2Seq(ABC):
    """A model set up for one language pair. Its weights are loaded with the first text.

    Raises:
        UnavailableError: If the model is not on this machine and cannot be fetched within five seconds, or does
            not know a language.
        UsageError: If the model is of an unknown family.
        ArtifactError: If its folder holds no complete model, or its tokenizer cannot be read.
    """

    ENGINE: ClassVar[str]

    def __init__(self, source: str, target: str, config: Options, *, dataset_dir: Path | None, device: str) -> None:
        self.config = config
        self.device = self._checked(device)
        self.dtype = self._precision()
        name = config.model or default_model(source, target)
        self.located = hub.locate(name, config.revision, _alternatives(dataset_dir, source, target))
        folder = str(self.located.folder)
        with transformers_loading(), warnings.catch_warnings():
            from transformers import AutoConfig, AutoTokenizer

            warnings.filterwarnings("ignore", message="Recommended: pip install sacremoses")
            try:
                self._architecture: Any = AutoConfig.from_pretrained(folder, trust_remote_code=False)
            except (OSError, ValueError) as error:  # an unknown family, code of its own, no JSON
                raise UsageError(f"transformers cannot read {name}: {str(error).splitlines()[0]}") from None
            local = {"local_files_only": True, "trust_remote_code": False}
            try:
                self._tokenizer: Any = AutoTokenizer.from_pretrained(folder, **local)
            except Exception as error:  # each family raises another one
                reason = f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
                raise ArtifactError(f"the tokenizer of {name} cannot be read ({reason})") from None
        self._route = route(name, self._architecture.model_type, self._tokenizer, source, target, config)
        self._forced = int(self._route.forced_token is not None)
        positions = int(getattr(self._architecture, "max_position_embeddings", None) or 2**31)
        self._longest_source = min(int(self._tokenizer.model_max_length), positions)
        self._longest_output = min(config.max_new_tokens + self._forced, positions - 2)
        self._batch_tokens = config.batch_tokens
        self._licence = licence(self.located.label, self.located.folder)
        if non_commercial(self._licence):
            warn(f"{self.located.label} is licensed {self._licence}: not for commercial use")
        else:
            say(f"{source} -> {target}: {self.located.label}, licence: {self._licence}")

    def translate(self, texts: list[str], known: Collection[int] = ()) -> Iterator[tuple[int, Translation]]:
        """Yields translations batch by batch; a text that is too long for the model fails alone.

        Batches are formed over all texts, known or not, and a batch with an unknown text is translated whole: so a
        resumed run has the same batches, and gives the same bytes, as an uninterrupted one.
        """
        positions = set(known)
        yield from (entry for entry in self._results(texts, positions) if entry[0] not in positions)

    def _results(self, texts: list[str], known: set[int]) -> Iterator[tuple[int, Translation]]:
        yield from ((i, Translation("")) for i, text in enumerate(texts) if not text.strip())
        if not (todo := [i for i, text in enumerate(texts) if text.strip()]):
            return
        ids = self._tokenizer([self._route.prefix + texts[i].strip() for i in todo], verbose=False)["input_ids"]
        queue = []
        for i, sentence in zip(todo, ids, strict=True):
            if len(sentence) > self._longest_source:
                error = f"{len(sentence)} tokens are more than the {self._longest_source} that the model reads"
                yield i, Translation(None, error=error)
            else:
                queue.append((i, sentence))
        queue.sort(key=lambda entry: (-len(entry[1]), entry[0]))
        while queue:
            batch = queue[: max(1, self._batch_tokens // (len(queue[0][1]) * self.config.num_beams))]
            if known.issuperset(i for i, _ in batch):
                queue = queue[len(batch) :]
                continue
            decoded = self._try([sentence for _, sentence in batch])
            if decoded is None:
                self._batch_tokens = len(batch) // 2 * len(batch[0][1]) * self.config.num_beams
                continue
            queue = queue[len(batch) :]
            outputs = [tokens[self._forced :] for tokens, _ in decoded]
            translations = self._tokenizer.batch_decode(outputs, skip_special_tokens=True)
            for (i, _), text, (_, score) in zip(batch, translations, decoded, strict=True):
                text = text.strip()
                yield i, Translation(text, score) if text else Translation(None, error="the model returned nothing")

    def describe(self) -> dict[str, str]:
        """Names the model, its revision, the libraries and the search."""
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
        """The model by its commit or its content, its precision, the search, the languages and the versions."""
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
        """Translates a batch; None if memory ran out."""
        try:
            return self._decode(sentences)
        except (RuntimeError, MemoryError) as error:
            if not out_of_memory(error):
                raise
        # Outside the handler, in which the error would still hold the memory of the batch.
        if len(sentences) == 1:
            hint = "--set num_beams=1, --set dtype=bfloat16, or a smaller model"
            raise ResourceError(f"out of memory while translating one text with {self.located.label}", hint=hint)
        say(f"out of memory on {len(sentences)} texts of up to {len(sentences[0])} tokens: half as many", level=1)
        if self.device.startswith("cuda"):
            import torch

            torch.cuda.empty_cache()
        return None

    def _checked(self, device: str) -> str:
        """The device, with `auto` resolved; UnavailableError if it does not exist."""
        if not re.fullmatch(r"auto|cpu|cuda(:\d{1,4})?", device):
            raise UsageError(f"unknown device {device!r}; choose auto, cpu or cuda")
        if device == "cpu":
            return device
        gpus = self._gpus()
        if device == "auto":
            return "cuda" if gpus else "cpu"
        if int(device.partition(":")[2] or 0) >= gpus:
            count = f"{gpus} CUDA devices" if gpus else "no CUDA device"
            raise UnavailableError(f"no device {device}: {self.ENGINE} sees {count}", hint="--device cpu")
        return device

    @abstractmethod
    def _gpus(self) -> int:
        """Number of GPUs that the engine sees."""

    @abstractmethod
    def _precision(self) -> str:
        """The precision, with `auto` resolved by the device."""

    def _version(self) -> str:
        import transformers

        return f"transformers {transformers.__version__}"

    @abstractmethod
    def _decode(self, sentences: list[list[int]]) -> list[Decoded]:
        """Translates a batch of tokenised texts, the longest first."""


def identity(config: Options) -> dict[str, str]:
    """What a request records: models in folders by their content."""
    contents = {"model": hub.identity(config.model), "back_model": hub.identity(config.back_model)}
    return {option: content["model"] for option, content in contents.items() if content}


def _alternatives(dataset_dir: Path | None, source: str, target: str) -> str:
    """The hint for a missing model: other engines, and the pairs that need no model."""
    options = ["--set model=FOLDER"]
    if apertium.reaches(source, target):
        options.append("--engine apertium")
    if dataset_dir:
        recorded_pairs = ", ".join(f"{a}->{b}" for a, b in recorded.pairs(dataset_dir))
        options.append(f"--engine recorded (recorded in this data set: {recorded_pairs or 'nothing'})")
    return "or " + ", or ".join(options)


def default_model(source: str, target: str) -> str:
    """Returns the model for a pair: OPUS-MT where one is known to exist, else M2M100."""
    pair = f"{primary(source)}-{primary(target)}"
    return f"Helsinki-NLP/opus-mt-{pair}" if pair in OPUS_PAIRS else FALLBACK


def licence(model: str, folder: Path | None = None) -> str:
    """Returns the licence of a model: from the card in its folder, if that was fetched, else by its name."""
    if folder and (stated := hub.licence(folder)):
        return stated
    name = model.lower()
    return next((text for key, text in _LICENCES.items() if key in name), "see the model's card")


def non_commercial(licence: str) -> bool:
    """Whether a licence forbids commercial use: CC-BY-NC and its kin."""
    return re.search(r"\bnc\b|non-?commercial", licence.lower()) is not None


def planned(source: str, target: str, config: Options) -> dict[str, str]:
    """Names the model of a pair without fetching or loading it; `here` is no if it would have to be fetched."""
    name = config.model or default_model(source, target)
    located = hub.find(name, config.revision)
    label = located.label if located else name
    return {
        "model": label,
        "revision": located.revision if located else config.revision,
        "licence": licence(label, located.folder if located else None),
        "here": "yes" if located else "no",
    }


def missing() -> tuple[str, str] | None:
    """Tells `ccr doctor` that no default model is on this machine, and how to get one; None if one is."""
    models = [FALLBACK, *(f"Helsinki-NLP/opus-mt-{pair}" for pair in OPUS_PAIRS)]
    if any(hub.missing(model) is None for model in models):
        return None
    return "none of its default models is on this machine", f"hf download {FALLBACK}, or --set model=FOLDER"


@dataclass(frozen=True)
class Route:
    """How a model receives the languages."""

    prefix: str = ""
    """Text before every source text."""
    forced_token: int | None = None
    """Id of the first token of every translation."""
    codes: tuple[str, ...] = ()
    """The model's codes of both languages, if they are tokens."""


def route(model: str, family: str, tokenizer: Any, source: str, target: str, config: Any) -> Route:
    """Determines how a model receives the languages, and sets the tokenizer's source language.

    The options source_code, target_code and prefix take precedence.

    Raises:
        UnavailableError: If the model does not know one of the languages or its script.
        UsageError: If the family is unknown.
    """
    if family == "marian":
        return Route(config.prefix or _marian_token(model, tokenizer, source, target, config.target_code))
    if family == "m2m_100":
        named = getattr(tokenizer, "lang_code_to_token", None)  # M2M100 and WMT21: de, zh, ...; NLLB: deu_Latn, ...
        code_of = nllb if named is None else primary
        codes = config.source_code or code_of(source), config.target_code or code_of(target)
        for code in codes:
            if _token_id(tokenizer, code) is None if named is None else code not in named:
                raise _unknown(model, code)
        if named is not None and not config.target_code:
            _refuse_script(model, target, codes[1])
        tokenizer.src_lang = codes[0]
        token = codes[1] if named is None else named[codes[1]]
        return Route(config.prefix, tokenizer.convert_tokens_to_ids(token), codes)
    if family in ("t5", "umt5", "mt5"):
        if config.prefix:
            return Route(config.prefix)
        code = config.target_code or primary(target)
        if _token_id(tokenizer, f"<2{code}>") is not None:  # MADLAD-400
            if not config.target_code:
                _refuse_script(model, target, code)
            return Route(f"<2{code}> ")
        if _token_id(tokenizer, "<2en>") is not None:
            raise _unknown(model, f"<2{code}>")
        hint = "--set 'prefix=translate English to German: '"
        raise UsageError(f"{model} is a T5 without language tokens; it needs a prefix", hint=hint)
    problem = f"{model} is of the family {family!r}; ccr translates with marian, m2m_100 (M2M100, NLLB) and t5 (MADLAD)"
    raise UsageError(problem)


def _marian_token(model: str, tokenizer: Any, source: str, target: str, override: str) -> str:
    """`>>deu<< ` for a Marian model with several target languages, "" for one with a single target."""
    known = set(getattr(tokenizer, "supported_language_codes", []))
    if not known:  # the model has one pair, which must be the requested one if the tokenizer names it
        for side, lang in (("source_lang", source), ("target_lang", target)):
            named = str(getattr(tokenizer, side, None) or "")
            if has_code(named) and primary(named) != primary(lang):
                pair = f"{tokenizer.source_lang} into {tokenizer.target_lang}"
                hint = "--set model=NAME translates out of the source language, --set back_model=NAME back into it"
                raise UnavailableError(f"{model} translates {pair}, not {source} into {target}", hint)
        return ""
    code, writing = iso3(target), script(target)
    scripted, plain = [f"{code}_{writing}"], [code, primary(target)]
    if primary(target) == "zh":
        scripted, plain = [f"cmn_{writing}", f"zho_{writing}"], ["zho", "cmn", "zh"]
    for candidate in [override] if override else scripted + plain:
        if f">>{candidate}<<" in known:
            if candidate in plain and not override:
                _refuse_script(model, target, candidate)
            return f">>{candidate}<< "
    raise _unknown(model, override or scripted[0])


def _refuse_script(model: str, lang: str, code: str) -> None:
    """Refuses a language in an unusual script, which the model's only code for the language would lose."""
    if not usually_written(lang):
        hint = f"--set target_code={code} accepts that, --set model=NAME uses another model"
        raise UnavailableError(f"{model} has one code for {lang} and {primary(lang)}: the script would be lost", hint)


def _token_id(tokenizer: Any, token: str) -> int | None:
    number = tokenizer.convert_tokens_to_ids(token)
    return None if number is None or number == tokenizer.unk_token_id else int(number)


def _unknown(model: str, code: str) -> UnavailableError:
    hint = "--set model=NAME for another model, --set target_code=CODE for its code of the language"
    return UnavailableError(f"{model} does not know the language {code}", hint=hint)
