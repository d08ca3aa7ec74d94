"""Signatures of scores: how a score was made, so that only comparable scores are compared.

On disk it is one line, `data:flickr8kcn|split:test|lang:zh|...|ccr:0.1.0`: every key, always in the same order, the
version last (after sacrebleu's signatures). It is parsed once, with the results of an evaluation, into a `Signature`.
Values that hold several facts are also written and parsed here.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass, fields
from functools import cached_property, lru_cache
from typing import Any
from urllib.parse import unquote

from ccr_cli.registry import SOURCE

NONE = "none"
USUAL_NOISE = "caption-translation"
"""The kind of noise of which nothing is said but its ratio."""
FULL, LABELLED, ZERO_SHOT = "full", "labelled", "zero-shot"
COMMON_PROTOCOLS = (FULL, LABELLED)
"""Protocols that every data set has; a data set's manifest may define others."""
SOFTMAX = "softmax"
HUMAN, FILE, MT = KINDS = ("human", "file", "mt")
"""Kinds of queries: human captions, queries from a user's file, and machine-translated captions."""
OWN_SPLIT = "own-split"
SELECTED = "selected-on"
"""In the value of `leak`: some of the searched items selected the epoch."""
TRANSLATE_TEST = "translate-test"
"""Score fusion of weight 0: the query's machine translation into the source language searches in its place."""
HALVES = "half-seed0"
"""Name in signatures for queries that search only the half of the gallery without their item."""

_PARTIAL, _WITHOUT, _FROM = "-partial", "-without-", "-from:"  # no protocol has a colon in its name
_CHANGES = ("-corrupt-", "-ood-")
_WITH = "+"
_COSINE = "cosine"
_NAMED = re.compile("[A-Za-z]{2,8}(?:-[A-Za-z0-9]{1,8})*=")
_OTHER = re.compile(rf"\+(?={_NAMED.pattern})")
# what would break a line or a field: the separator, the escape itself, control characters, line separators
_UNSAFE = re.compile("[|%\x00-\x1f\x7f-\x9f\u2028\u2029]")


@dataclass(frozen=True)
class ScoreProtocol:
    """The value of `protocol`: the rules under which a score was made."""

    name: str
    """`full`, `labelled`, a protocol of the data set's manifest, or the task."""
    zero_shot: bool = False
    """The run was trained on another collection."""
    change: str = ""
    """A change of the rules: `corrupt-drop0.3-seed0`, `ood-half-seed0`; usually empty."""
    left_out: str = ""
    """Categories that were left out of training, separated by commas."""
    trained_on: str = ""
    """The value of `data` for the training data, if that is another data set."""

    @classmethod
    def parse(cls, value: str) -> "ScoreProtocol":
        """Parses the value, such as `zero-shot-labelled-ood-half-seed0-without-3,8-from:multi30k@0a1b2c3d`."""
        rest, _, trained_on = value.partition(_FROM)
        rest, _, left_out = rest.partition(_WITHOUT)
        zero_shot = rest == ZERO_SHOT or rest.startswith(f"{ZERO_SHOT}-")
        rest = rest.removeprefix(ZERO_SHOT).removeprefix("-") if zero_shot else rest
        cut = min((place for mark in _CHANGES if (place := rest.find(mark)) > 0), default=len(rest))
        return cls(rest[:cut] or FULL, zero_shot, rest[cut + 1 :], left_out, trained_on)

    @property
    def rules(self) -> str:
        """The name and the change, without the facts about training."""
        return f"{self.name}-{self.change}" if self.change else self.name

    def __str__(self) -> str:
        text = self.rules
        if self.zero_shot:
            text = ZERO_SHOT if text == FULL else f"{ZERO_SHOT}-{text}"
        text += f"{_WITHOUT}{self.left_out}" if self.left_out else ""
        return text + (f"{_FROM}{self.trained_on}" if self.trained_on else "")


@dataclass(frozen=True)
class Signature:
    """How a score was made. No value is empty: `none` says that there is nothing."""

    data: str
    split: str
    lang: str
    caption_set: str
    q: str
    gallery: str
    dir: str
    protocol: str
    pos: str
    ties: str
    sim: str
    fusion: str
    mt: str
    noise: str
    unc: str
    select: str
    leak: str
    ccr: str

    def __post_init__(self) -> None:
        for field in fields(self):
            object.__setattr__(self, field.name, str(getattr(self, field.name)).strip())
        empty = [key for key, value in self.fields.items() if not value]
        if empty:
            raise ValueError(f"empty value in a signature for {', '.join(empty)}: write 'none'")

    @staticmethod
    @lru_cache(maxsize=4096)
    def parse(text: str) -> "Signature":
        """Parses a line; raises ValueError if it is not a complete signature with its keys in order."""
        values: dict[str, str] = {}
        for part in text.strip().split("|"):
            key, colon, value = part.partition(":")
            if not colon or not value:
                raise ValueError(f"not a field of a signature: {part!r}")
            if key in values:
                raise ValueError(f"a signature names {key!r} twice")
            values[key] = unquote(value, errors="strict")
        if tuple(values) != KEYS:
            wrong = sorted(set(values) ^ set(KEYS)) or "in another order"
            raise ValueError(f"the keys of a signature are {'|'.join(KEYS)}, not {'|'.join(values)}: {wrong}")
        return Signature(**values)

    def __str__(self) -> str:
        def percent(match: re.Match[str]) -> str:
            return "".join(f"%{byte:02X}" for byte in match.group().encode())

        return "|".join(f"{key}:{_UNSAFE.sub(percent, value)}" for key, value in self.fields.items())

    @property
    def fields(self) -> dict[str, str]:
        """Every value by its key, in order."""
        return dict(zip(KEYS, astuple(self), strict=True))

    @property
    def queries(self) -> str:
        """The kind of the queries: `HUMAN`, `MT` or `FILE`."""
        return read_queries(self.q)[0]

    @cached_property
    def rules(self) -> ScoreProtocol:
        """The parsed value of `protocol`."""
        return ScoreProtocol.parse(self.protocol)


KEYS = tuple(field.name for field in fields(Signature))


def signature_of(result: Mapping[str, object]) -> Signature | None:
    """Returns the signature of an entry of `metrics.json`; None if unreadable (from a version with other keys)."""
    value = result.get("signature")
    if isinstance(value, Signature):
        return value
    try:
        return Signature.parse(str(value))
    except ValueError:
        return None


def data_value(name: str, identity: str, partial: bool = False) -> str:
    """Returns `data`, such as `multi30k@0a1b2c3d-partial`: name, eight digits of the id, whether some is missing."""
    return f"{name}@{identity[:8]}{_PARTIAL if partial else ''}"


def read_data(value: str) -> tuple[str, str, bool]:
    """Parses `data` into the name, eight digits of the id, and whether some of it is missing."""
    name, _, identity = value.rpartition("@")
    return name or identity, identity.removesuffix(_PARTIAL), identity.endswith(_PARTIAL)


def data_name(value: str) -> str:
    """Returns the name in a value of `data`, marked if some of it is missing: `multi30k (partial)`."""
    name, _, partial = read_data(value)
    return f"{name} (partial)" if partial else name


def is_partial(value: str) -> bool:
    """Whether a value of `data` says that some of the data set is missing."""
    return read_data(value)[2]


def mt_value(engines: Mapping[str, str], lang: str) -> str:
    """Returns the value of `mt`, such as `hf:opus+de=recorded:ct2`, given engine and model by training language.

    `lang` is the language of the queries; if none of several training languages is, all of them are named.
    """
    if len(engines) < 2:
        return next(iter(engines.values()), NONE)
    others = [f"{other}={engine}" for other, engine in engines.items() if other != lang]
    return _WITH.join([*([engines[lang]] if lang in engines else []), *others])


def read_mt(value: str) -> tuple[str, tuple[str, ...]]:
    """Parses `mt` into the engine and the training languages other than that of the queries."""
    own, *others = _OTHER.split(value)
    if _NAMED.match(own):
        return value, ()
    return own, tuple(other.partition("=")[0] for other in others)


def noise_kind(mismatch: Mapping[str, Any] | None) -> str:
    """Returns the kind of `noise` in a run's config.json, such as `caption-translation`; `none` without noise.

    The style of a plug-in comes with its version: `rotate.67914b-pair`.
    """
    if not mismatch:
        return NONE
    version = f".{mismatch[SOURCE]['sha256'][:6]}" if SOURCE in mismatch else ""
    return f"{mismatch['style']}{version}-{mismatch['target']}"


def noise_value(mismatch: Mapping[str, Any] | None) -> str:
    """Returns the value of `noise`: its kind, ratio and seed, such as `caption-translation-0.4-seed1`."""
    return f"{noise_kind(mismatch)}-{mismatch['ratio']:g}-seed{mismatch['seed']}" if mismatch else NONE


def read_noise(value: str) -> tuple[str, int] | None:
    """Parses `noise` into kind (style and target) and seed; None without noise, or for runs with different seeds."""
    match = re.fullmatch(r"([^-]+-[^-]+)-.*-seed(-?\d+)", value)
    return (match[1], int(match[2])) if match else None


def fusion_value(beta: float, how: str, alone: int = 0, engine: str = "") -> str:
    """Returns `fusion`, such as `0.5minmax-3alone`: the query's own weight, rule, and number of untranslated queries.

    With weight 0, it names the engine that translated the queries: `translate-test:apertium:spa-eng`.
    """
    value = f"{beta:g}{how}" if beta else ":".join(filter(None, [TRANSLATE_TEST, engine]))
    return f"{value}-{alone}alone" if alone else value


def read_fusion(value: str) -> tuple[str, str, int]:
    """Parses `fusion`: weight, rule (or `translate-test`, engine), untranslated queries' number; empty without fusion.

    >>> read_fusion("0.5minmax-3alone"), read_fusion("translate-test:hf:opus")
    (('0.5', 'minmax', 3), ('translate-test', 'hf:opus', 0))
    """
    match = re.fullmatch(rf"(?:({TRANSLATE_TEST}):?(.*?)|(.*?)(raw|minmax))(?:-(\d+)alone)?", value)
    if match is None:
        return "", "", 0
    if match[1] or match[3] == "0":  # written by an older version
        return TRANSLATE_TEST, match[2] or "", int(match[5] or 0)
    return match[3], match[4], int(match[5] or 0)


def is_translate_test(value: str) -> bool:
    """Whether `fusion`, of a signature or a result, means that only translations of the queries search."""
    return read_fusion(value)[0] == TRANSLATE_TEST


def sim_value(reading: str = "", runs: int = 1) -> str:
    """Returns the value of `sim`: the reading of a model (`cosine-exclusive`), or the number of averaged runs."""
    if runs > 1:
        return f"{_COSINE}-mean{runs}"
    return f"{_COSINE}-{reading}" if reading else _COSINE


def read_runs(value: str) -> int:
    """Parses `sim` into the number of runs whose mean it is."""
    match = re.fullmatch(rf"{_COSINE}-mean(\d+)", value)
    return int(match[1]) if match else 1


def read_reading(value: str) -> str:
    """Parses `sim` into the reading of a model; empty for the usual one."""
    return value.removeprefix(_COSINE).removeprefix("-")


def query_value(number: int, kind: str = HUMAN, digest: str = "") -> str:
    """Returns the value of `q`: the number of queries, with kind and checksum if they are not human captions.

    >>> query_value(24), query_value(24, MT, "0a1b2c3d4e")
    ('24', 'mt-24-0a1b2c3d')
    """
    return str(number) if kind == HUMAN else f"{kind}-{number}-{digest[:8]}"


def read_queries(value: str) -> tuple[str, str]:
    """Parses `q` into the kind and the number of queries.

    >>> read_queries("24"), read_queries("mt-24-0a1b2c3d")
    (('human', '24'), ('mt', '24'))
    """
    kind, _, number = value.rpartition("-")[0].partition("-")
    return (kind, number) if kind else (HUMAN, value)


def galleries(sizes: Sequence[int]) -> str:
    """Returns the value of `gallery`: the number of items; for several folds, also that of folds: `2x998-1000`."""
    low, high = min(sizes), max(sizes)
    size = str(low) if low == high else f"{low}-{high}"
    return size if len(sizes) == 1 else f"{len(sizes)}x{size}"


def read_galleries(value: str) -> tuple[int, int, int]:
    """Parses `gallery` into the number of galleries and the smallest and largest size; ValueError if malformed."""
    match = re.fullmatch(r"(?:(\d+)x)?(\d+)(?:-(\d+))?", value)
    if match is None:
        raise ValueError(f"no gallery of a signature: {value!r}")
    return int(match[1] or 1), int(match[2]), int(match[3] or match[2])


def own_split_value(shared: int) -> str:
    """Returns `leak` for a run's own data set: `own-split-3trained` if 3 items have a group that was trained on."""
    return f"{OWN_SPLIT}-{shared}trained" if shared else OWN_SPLIT


def read_own_split(value: str) -> int:
    """Parses `leak` into the number of items of a run's own data set with a group that was trained on."""
    match = re.fullmatch(rf"{OWN_SPLIT}-(\d+)trained", value)
    return int(match[1]) if match else 0
