"""What a signature says, in words: for the titles of tables and figures."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from ccr_cli.artifacts import signature

FOLLOWING = ("q", "gallery", "dir", "pos")
"""Fields that follow from others, from captions and protocol: they are said where nothing else tells results apart."""

_NOISE = {
    "none": "no noise",
    "caption-translation": "translations switched",
    "image-translation": "translations switched by item",
    "caption-pair": "captions and translations switched together",
    "image-pair": "captions and translations switched together by item",
}
_PROTOCOL = {
    "full": "right answers by item",
    "labelled": "right answers by category",
}
_POSITIVES = {
    "any": "any caption of an item is right",
    "label": "all of a category are right",
    "single": "an item finds its first caption alone",
}
_TIES = {"mid": "ties count half", "optimistic": "ties count for the right one", "pessimistic": "ties count against it"}
_SELECT = {
    "mt": "epoch chosen by machine-translated queries",
    "human": "epoch chosen by human queries",
    "last": "last epoch kept",
}
_LEAK = {
    "own-split": "splits of the data set",
    "selected-on": "items that chose the epoch among them",
    "trained-on": "items that were trained on",
    "unchecked": "leaks not checked",
}


def noise(kind: str) -> str:
    """What was switched.

    >>> noise("caption-pair")
    'captions and translations switched together'
    """
    return _NOISE.get(kind, f"{kind} noise")


def fusion(value: str) -> str:
    """How much of the similarity is the query's own; the rest is that of its translation.

    >>> fusion("0.8raw"), fusion("0.8raw-3alone"), fusion("0.5minmax")
    ('0.8 of the query', '0.8 of the query, 3 queries alone', '0.5 of the query, minmax')
    """
    weight, how, alone = signature.read_fusion(value)
    parts = [f"{weight} of the query", *([how] if how != "raw" else [])]
    return ", ".join([*parts, *([f"{alone} queries alone"] if alone else [])])


def field(key: str, value: str) -> str:
    """One field of a signature, or what else divides results.

    >>> field("caption_set", "keywords+short-name"), field("gallery", "5x1000"), field("select", "human")
    ('captions: keywords and short-name', '5 galleries of 1000 items', 'epoch chosen by human queries')
    >>> field("protocol", "labelled-without-3,8"), field("mt", "recorded:apertium"), field("trained_lang", "fr")
    ('right answers by category, without 3,8', 'translated by recorded apertium', 'trained for fr')
    >>> field("mt", "human:recorded:human.tsv"), field("trained_on", "itself"), field("leak", "own-split-3trained")
    ('trained on captions that people wrote', 'trained on the same data set', '3 items of groups that were trained on')
    """
    return _FIELDS[key](value) if key in _FIELDS else _raw(key, value)


def _raw(key: str, value: str) -> str:
    return f"{key.replace('_', ' ')} {value}"


def _protocol(value: str) -> str:
    rules = signature.ScoreProtocol.parse(value)
    words = _PROTOCOL.get(rules.rules, f"protocol {rules.rules}")
    return f"{words}, without {rules.left_out}" if rules.left_out else words


def _gallery(value: str) -> str:
    number, low, high = signature.read_galleries(value)
    size = str(low) if low == high else f"{low}-{high}"
    return f"{number} galleries of {size} items" if number > 1 else f"{size} items searched"


def _mt(value: str) -> str:
    if value == signature.NONE:
        return "trained without translations"
    if value.startswith(f"{signature.HUMAN}:"):
        return "trained on captions that people wrote"
    return f"translated by {value.replace('&', ' and ').replace(':', ' ').replace('+', ' and ')}"


def _sim(value: str) -> str:
    reading = signature.read_reading(value)
    return f"read as {reading}" if reading else "read as usual"


def _leak(value: str) -> str:
    if shared := signature.read_own_split(value):
        return f"{shared} items of groups that were trained on"
    return _LEAK.get(value, f"leaks: {value.replace('-', ' ')}")


def _data(value: str) -> str:
    _, identity, partial = signature.read_data(value)
    return f"data set {identity}{'-partial' * partial}"


def _trained_on(value: str) -> str:
    if value in ("itself", "not known"):
        return "trained on the same data set" if value == "itself" else "trained on data that are not known"
    return f"trained on {signature.data_name(value)}"


_FIELDS: Mapping[str, Callable[[str], str]] = {
    "caption_set": lambda value: f"captions: {' and '.join(value.split('+'))}",
    "q": lambda value: f"{value} queries",
    "gallery": _gallery,
    "dir": lambda value: f"directions {value.replace('+', ' and ')}",
    "protocol": _protocol,
    "pos": lambda value: _POSITIVES.get(value, value),
    "ties": lambda value: _TIES.get(value, value),
    "sim": _sim,
    "fusion": lambda value: "not fused" if value == "none" else f"fused, {fusion(value)}",
    "mt": _mt,
    "select": lambda value: _SELECT.get(value, value),
    "leak": _leak,
    "data": _data,
    "noise": noise,
    "ccr": lambda value: f"measured by ccr {value}",
    "trained_lang": lambda value: f"trained for {value}",
    "trained_on": _trained_on,
}


def apart(keys: Sequence[Mapping[str, str]], own: Mapping[str, str]) -> str:
    """What tells one of several settings from the others: in words, or as it stands where words are the same.

    Args:
        keys: The fields of all of them.
        own: Those of the one.
    """
    varying = [key for key in keys[0] if len({each.get(key) for each in keys}) > 1]
    telling = [key for key in varying if key not in FOLLOWING]
    told = {tuple(each.get(key) for key in telling) for each in keys}
    shown = telling if len(told) == len({tuple(each.items()) for each in keys}) else varying
    values = {key: {str(each.get(key)) for each in keys} for key in shown}
    clear = {key for key in shown if len({field(key, value) for value in values[key]}) == len(values[key])}
    return "; ".join((field if key in clear else _raw)(key, str(own.get(key))) for key in shown)
