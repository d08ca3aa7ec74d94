"""Fields of a signature in words, for the titles of tables and figures."""

import tomllib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from ccr_cli.artifacts import signature
from ccr_cli.console import counted

FOLLOWING = ("q", "gallery", "dir", "pos")
"""Fields that follow from captions and protocol: named only where nothing else distinguishes results."""

WORDS: dict[str, dict[str, str]] = tomllib.loads(Path(__file__).with_name("words.toml").read_text(encoding="utf-8"))
"""Words for values, by field."""
ABOUT_MT = (
    "Machine-translated queries measure retrieval of the text that a machine wrote, translation errors included; they "
    "cannot say how people's queries fare."
)


def noise(kind: str) -> str:
    """The kind of noise.

    >>> noise("caption-pair")
    'captions and translations switched together'
    """
    return WORDS["noise"].get(kind, f"{kind} noise")


def unusual_noise(kind: str) -> str:
    """The kind of noise; empty without noise, and for the usual one, of which nothing is said but its ratio.

    >>> unusual_noise("caption-pair"), unusual_noise("caption-translation")
    ('captions and translations switched together', '')
    """
    return "" if kind in ("", signature.NONE, signature.USUAL_NOISE) else noise(kind)


def too_few(queries: int) -> str:
    """Says that queries are too few.

    >>> too_few(1), too_few(12)
    ('1 query is too few to measure anything', '12 queries are too few to measure anything')
    """
    return f"{counted(queries, 'query is', 'queries are')} too few to measure anything"


def fusion(value: str) -> str:
    """The weight of the query in a fused similarity; the rest is that of its translation, in translate-test all.

    >>> fusion("0.8raw"), fusion("0.8raw-3alone"), fusion("0.5minmax")
    ('0.8 of the query', '0.8 of the query, 3 queries alone', '0.5 of the query, minmax')
    >>> fusion("translate-test:apertium:spa-eng-3alone")
    'translate-test, by apertium spa-eng, 3 queries alone'
    """
    weight, how, alone = signature.read_fusion(value)
    parts = [f"{weight} of the query", *([how] if how != "raw" else [])]
    if weight == signature.TRANSLATE_TEST:
        parts = [weight, *([f"by {how.replace(':', ' ').replace('&', ' and ')}"] if how else [])]
    return ", ".join([*parts, *([f"{alone} queries alone"] if alone else [])])


def field(key: str, value: str) -> str:
    """One field of a signature, or what else separates results.

    >>> field("caption_set", "keywords+short-name"), field("gallery", "5x1000"), field("select", "human")
    ('captions: keywords and short-name', '5 galleries of 1000 items', 'epoch chosen by human queries')
    >>> field("protocol", "labelled-without-3,8"), field("mt", "recorded:apertium"), field("trained_lang", "fr")
    ('right answers by category, without 3,8', 'translated by recorded apertium', 'trained for fr')
    >>> field("mt", "human:recorded:human.tsv"), field("trained_on", "itself"), field("leak", "own-split-3trained")
    ('trained on human captions', 'trained on the same data set', '3 items of groups that were trained on')
    """
    return WORDS.get(key, {}).get(value) or (_FIELDS[key](value) if key in _FIELDS else _raw(key, value))


def _raw(key: str, value: str) -> str:
    return f"{key.replace('_', ' ')} {value}"


def _protocol(value: str) -> str:
    rules = signature.ScoreProtocol.parse(value)
    words = WORDS["protocol"].get(rules.rules, f"protocol {rules.rules}")
    return f"{words}, without {rules.left_out}" if rules.left_out else words


def _q(value: str) -> str:
    kind, number = signature.read_queries(value)
    checksum = "" if kind == signature.HUMAN else f", checksum {value.rpartition('-')[2]}"
    return f"{number} {queries(kind)}{checksum}"


def queries(kind: str) -> str:
    """The queries of a kind.

    >>> queries("human"), queries("mt")
    ('queries', 'machine-translated queries')
    """
    return WORDS["queries"][kind]


def _gallery(value: str) -> str:
    number, low, high = signature.read_galleries(value)
    size = str(low) if low == high else f"{low}-{high}"
    return f"{number} galleries of {size} items" if number > 1 else f"{size} items searched"


def _mt(value: str) -> str:
    if value.startswith(f"{signature.HUMAN}:"):
        return "trained on human captions"
    return f"translated by {value.replace('&', ' and ').replace(':', ' ').replace('+', ' and ')}"


def _leak(value: str) -> str:
    if shared := signature.read_own_split(value):
        return f"{shared} items of groups that were trained on"
    return f"leaks: {value.replace('-', ' ')}"


def _data(value: str) -> str:
    _, identity, partial = signature.read_data(value)
    return f"data set {identity}{'-partial' * partial}"


_FIELDS: Mapping[str, Callable[[str], str]] = {
    "caption_set": lambda value: f"captions: {' and '.join(value.split('+'))}",
    "q": _q,
    "gallery": _gallery,
    "dir": lambda value: f"directions {value.replace('+', ' and ')}",
    "protocol": _protocol,
    "pos": str,
    "ties": str,
    "sim": lambda value: f"read as {signature.read_reading(value) or 'usual'}",
    "fusion": lambda value: fusion(value) if signature.is_translate_test(value) else f"fused, {fusion(value)}",
    "mt": _mt,
    "select": str,
    "leak": _leak,
    "data": _data,
    "noise": noise,
    "ccr": lambda value: f"measured by ccr {value}",
    "trained_lang": lambda value: f"trained for {value}",
    "trained_on": lambda value: f"trained on {signature.data_name(value)}",
}


def distinction(settings: Sequence[Mapping[str, str]], own: Mapping[str, str]) -> str:
    """What distinguishes one (`own`) of several settings, in words; as raw values where the words are the same."""
    varying = [key for key in settings[0] if len({fields.get(key) for fields in settings}) > 1]
    telling = [key for key in varying if key not in FOLLOWING]
    combinations = {tuple(fields.get(key) for key in telling) for fields in settings}
    shown = telling if len(combinations) == len({tuple(fields.items()) for fields in settings}) else varying
    parts = []
    for key in shown:
        values = {str(fields.get(key)) for fields in settings}
        clear = len({field(key, value) for value in values}) == len(values)
        parts.append((field if clear else _raw)(key, str(own.get(key))))
    return "; ".join(parts)
