"""The line that says how a score was made, so that two scores are compared only if they are comparable.

`data:flickr8kcn|split:test|lang:zh|...|ccr:0.1.0`: every key, always in the same order, the version last
(after sacrebleu's signatures).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from urllib.parse import unquote

KEYS = (
    "data",
    "split",
    "lang",
    "caption_set",
    "q",
    "gallery",
    "dir",
    "protocol",
    "pos",
    "ties",
    "sim",
    "fusion",
    "mt",
    "noise",
    "unc",
    "select",
    "leak",
    "ccr",
)

_PARTIAL = "-partial"
_FROM = "-from:"
"""No protocol has a colon in its name."""
_WITH = "+"
_COSINE = "cosine"
_NAMED = re.compile("[A-Za-z]{2,8}(?:-[A-Za-z0-9]{1,8})*=")
_OTHER = re.compile(rf"\+(?={_NAMED.pattern})")
# what would break a line or a field: the separator, the escape itself, control characters, line separators
_UNSAFE = re.compile("[|%\x00-\x1f\x7f-\x9f\u2028\u2029]")


def build(fields: Mapping[str, object]) -> str:
    """Write a signature.

    Args:
        fields: A value for each of `KEYS`, in any order. `|`, `%` and control characters are percent-encoded.

    Raises:
        ValueError: If a key is missing, unknown or empty.

    >>> build(dict.fromkeys(KEYS, "x"))[:24]
    'data:x|split:x|lang:x|ca'
    """
    missing = [key for key in KEYS if key not in fields]
    unknown = [key for key in fields if key not in KEYS]
    if missing or unknown:
        raise ValueError(_complaint(missing, unknown))
    values = {key: _escape(str(fields[key]).strip()) for key in KEYS}
    empty = [key for key, value in values.items() if not value]
    if empty:
        raise ValueError(f"empty value in a signature for {', '.join(empty)}: write 'none'")
    return "|".join(f"{key}:{value}" for key, value in values.items())


def parse(text: str) -> dict[str, str]:
    """Read a signature back: every key of `KEYS`, in order, with its value as a string.

    Raises:
        ValueError: If it is not a complete signature with its keys in order.
    """
    fields: dict[str, str] = {}
    for part in text.strip().split("|"):
        key, colon, value = part.partition(":")
        if not colon or not value:
            raise ValueError(f"not a field of a signature: {part!r}")
        if key in fields:
            raise ValueError(f"a signature names {key!r} twice")
        fields[key] = unquote(value, errors="strict")
    missing = [key for key in KEYS if key not in fields]
    unknown = [key for key in fields if key not in KEYS]
    if missing or unknown:
        raise ValueError(_complaint(missing, unknown))
    if tuple(fields) != KEYS:
        raise ValueError(f"the keys of a signature come in the order {'|'.join(KEYS)}")
    return fields


def differences(first: str, second: str) -> dict[str, tuple[str, str]]:
    """The fields in which two signatures differ; empty if the scores are comparable.

    Raises:
        ValueError: If either is not a signature.
    """
    one, two = parse(first), parse(second)
    return {key: (one[key], two[key]) for key in KEYS if one[key] != two[key]}


def data_value(name: str, identity: str, partial: bool = False) -> str:
    """The value of `data`: a data set's name, with the first eight digits of its id, and whether some of it is missing.

    >>> data_value("multi30k", "0a1b2c3d4e5f"), data_value("multi30k", "0a1b2c3d4e5f", partial=True)
    ('multi30k@0a1b2c3d', 'multi30k@0a1b2c3d-partial')
    """
    return f"{name}@{identity[:8]}{_PARTIAL if partial else ''}"


def data_name(value: str) -> str:
    """The name in a value of `data`, with a word where some of it is missing.

    >>> data_name("multi30k@0a1b2c3d"), data_name("multi30k@0a1b2c3d-partial")
    ('multi30k', 'multi30k (partial)')
    """
    name, _, rest = value.rpartition("@")
    return f"{name} (partial)" if is_partial(value) else name or rest


def is_partial(value: str) -> bool:
    """Whether a value of `data` says that some of the data set is missing.

    >>> is_partial("my-partial@0a1b2c3d"), is_partial("my@0a1b2c3d-partial")
    (False, True)
    """
    return value.rpartition("@")[2].endswith(_PARTIAL)


def protocol_value(name: str, trained_on: str = "") -> str:
    """The value of `protocol`: its name, and what was trained on (a value of `data`) where that is another data set.

    >>> protocol_value("full"), protocol_value("zero-shot", "multi30k@0a1b2c3d")
    ('full', 'zero-shot-from:multi30k@0a1b2c3d')
    """
    return f"{name}{_FROM}{trained_on}" if trained_on else name


def read_protocol(value: str) -> tuple[str, str]:
    """What `protocol` says: the name, and the other data set that was trained on; empty if there is none.

    >>> read_protocol("labelled"), read_protocol("zero-shot-from:multi30k@0a1b2c3d")
    (('labelled', ''), ('zero-shot', 'multi30k@0a1b2c3d'))
    """
    name, _, trained_on = value.partition(_FROM)
    return name, trained_on


def mt_value(engines: Mapping[str, str], lang: str) -> str:
    """The value of `mt`: what translated into the language of the queries, and into what else was trained on.

    Args:
        engines: Engine and model by language; empty where nothing was translated.
        lang: Of the queries. Where it is none of several languages, all of them are said.

    >>> mt_value({"de": "recorded:ct2"}, "de"), mt_value({"de": "recorded:ct2"}, "en"), mt_value({}, "en")
    ('recorded:ct2', 'recorded:ct2', 'none')
    >>> engines = {"de": "recorded:ct2", "fr": "hf:opus"}
    >>> mt_value(engines, "fr"), mt_value(engines, "en")
    ('hf:opus+de=recorded:ct2', 'de=recorded:ct2+fr=hf:opus')
    """
    if len(engines) < 2:
        return next(iter(engines.values()), "none")
    others = [f"{each}={engine}" for each, engine in engines.items() if each != lang]
    return _WITH.join([*([engines[lang]] if lang in engines else []), *others])


def read_mt(value: str) -> tuple[str, tuple[str, ...]]:
    """What `mt` says: the engine, and the languages beside that of the queries that were trained on.

    >>> read_mt("hf:opus+de=recorded:ct2"), read_mt("recorded:ct2")
    (('hf:opus', ('de',)), ('recorded:ct2', ()))
    >>> read_mt("de=recorded:ct2+fr=hf:opus")
    ('de=recorded:ct2+fr=hf:opus', ())
    """
    own, *others = _OTHER.split(value)
    if _NAMED.match(own):
        return value, ()
    return own, tuple(other.partition("=")[0] for other in others)


def sim_value(reading: str = "", runs: int = 1) -> str:
    """The value of `sim`: by which reading of a model, or of how many runs the mean is taken.

    >>> sim_value(), sim_value("exclusive"), sim_value(runs=3)
    ('cosine', 'cosine-exclusive', 'cosine-mean3')
    """
    if runs > 1:
        return f"{_COSINE}-mean{runs}"
    return f"{_COSINE}-{reading}" if reading else _COSINE


def read_runs(value: str) -> int:
    """Of how many runs `sim` says that it is the mean.

    >>> read_runs("cosine-mean3"), read_runs("cosine"), read_runs("cosine-exclusive")
    (3, 1, 1)
    """
    found = re.fullmatch(rf"{_COSINE}-mean(\d+)", value)
    return int(found[1]) if found else 1


def galleries(sizes: Sequence[int]) -> str:
    """The value of `gallery`: the number of items; of several folds also how many there are.

    >>> galleries([352]), galleries([1000] * 5), galleries([1000, 998])
    ('352', '5x1000', '2x998-1000')
    """
    low, high = min(sizes), max(sizes)
    each = str(low) if low == high else f"{low}-{high}"
    return each if len(sizes) == 1 else f"{len(sizes)}x{each}"


def read_galleries(value: str) -> tuple[int, int, int]:
    """What `gallery` says: how many galleries, the size of the smallest, and of the largest.

    >>> read_galleries("352"), read_galleries("2x998-1000")
    ((1, 352, 352), (2, 998, 1000))

    Raises:
        ValueError: If it is no such value.
    """
    found = re.fullmatch(r"(?:(\d+)x)?(\d+)(?:-(\d+))?", value)
    if found is None:
        raise ValueError(f"no gallery of a signature: {value!r}")
    return int(found[1] or 1), int(found[2]), int(found[3] or found[2])


def _escape(value: str) -> str:
    return _UNSAFE.sub(lambda match: "".join(f"%{byte:02X}" for byte in match.group().encode()), value)


def _complaint(missing: list[str], unknown: list[str]) -> str:
    parts = []
    if missing:
        parts.append(f"missing {', '.join(missing)}")
    if unknown:
        parts.append(f"unknown {', '.join(unknown)}")
    return f"keys of a signature: {'; '.join(parts)}"
