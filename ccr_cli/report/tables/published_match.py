"""Which published rows are of the same data set, language and noise as results, and what differs between them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, cast

import pandas as pd

from ccr_cli.artifacts.signature import (
    FULL,
    KEYS,
    LABELLED,
    ZERO_SHOT,
    Signature,
    data_name,
    is_partial,
    read_galleries,
    read_runs,
)
from ccr_cli.data.published import PROTOCOLS, UNTRAINED, Published
from ccr_cli.report.tables import results
from ccr_cli.report.tables.translation_scores import listed
from ccr_cli.report.words.numbers import percent

_TABLE = ["paper", "table", "data", "language"]
_ROW = [*_TABLE, "noise", "task", "method", "backbone", "note"]
_OTHER_NAMES = {"coco": "mscoco", "multicoco": "multimscoco", "wiki": "wikipedia", "pascal": "pascalsentence"}
_OTHER = re.compile("cn|test20[0-9]{2}")
_UNDETERMINED = "und"
"""The language of texts that are features alone."""
_ENCODERS = {
    name: re.compile(pattern, re.IGNORECASE)
    for name, pattern in {
        "BERT": "(?<![a-z])bert",
        "BUTD": "butd",
        "CLIP": "clip",
        "EfficientNet": "efficientnet",
        "GRU": "gru",
        "GloVe": "glove",
        "I3D": "i3d",
        "ResNeXt": "resnext",
        "ResNet": "resnet",
        "SGRAF": "sgraf",
        "Swin": "swin",
        "VGG": "vgg",
        "XLM-R": "xlm-?r",
        "mBERT": "mbert|bert-base-multilingual",
        "n-grams": "ngram",
        "word2vec": "word2vec",
    }.items()
}
Manifests = Mapping[str, Mapping[str, Any]]
_STYLES = {
    "caption-translation": "translations switched singly, the English captions intact",
    "image-translation": "all translations of an item switched together, the English captions intact",
    "caption-pair": "captions switched singly",
    "image-pair": "all captions of an item switched together",
}


@dataclass(frozen=True)
class Match:
    """Results and published rows of one data set and language, measured alike as far as one can tell."""

    data: str
    """As it is published; empty if it is not."""
    lang: str
    protocol: str
    ours: pd.DataFrame
    """Rows of a results frame, with the fields of their signatures as `sign.KEY`."""
    theirs: pd.DataFrame
    """A row a row of a published table, with the columns of `tables.csv` and a column a figure."""

    @property
    def title(self) -> str:
        """The data sets and languages of the results, in words."""
        how = "" if self.protocol == "full" else f", protocol {self.protocol}"
        how = ", zero-shot" if self.protocol.startswith("zero-shot") else how
        return f"{listed(sorted(set(self.ours['data'])))}, queries in {listed(sorted(set(self.ours['lang'])))}{how}"

    @property
    def shared(self) -> list[float]:
        """The ratios of noise that both have."""
        return sorted(set(self.ours["noise"]) & set(self.theirs["noise"]))


@dataclass(frozen=True)
class Difference:
    """One thing in which a published table and the results beside it differ, in words."""

    what: str
    ours: str
    theirs: str


def match(frame: pd.DataFrame, published: Published, manifests: Manifests) -> tuple[list[Match], list[str]]:
    """Finds what is published of the data sets, languages and noise of results on test items.

    Args:
        frame: A results frame.
        published: What is published.
        manifests: The manifests of data sets, by the name that these have here.

    Returns:
        The matches; and in words, what nothing published fits.
    """
    if frame.empty:
        return [], []
    rows, ours = published_rows(published), _signed(frame)
    known = {_plain(data): data for data in rows["data"].unique()}
    names = {data: str(manifest.get("name") or "") for data, manifest in manifests.items()}
    ours["benchmark"] = [_benchmark((data, names.get(data, "")), known) for data in ours["data"]]
    ours["taught"] = [_taught(on, names, known) for on in ours["trained_on"]]
    ours["own_split"] = [bool(manifests.get(data, {}).get("own_split")) for data in ours["data"]]
    ours["protocol"] = ours["signed"].map(_protocol)
    found: list[Match] = []
    alone: list[tuple[Match, str]] = []
    for key, mine in ours.groupby(["benchmark", "lang", "protocol"]):
        data, lang, protocol = cast(tuple[str, str, str], key)
        protocols = {theirs for theirs in rows["protocol"] if _fits(protocol, theirs)}
        theirs = rows[(rows["data"] == data) & rows["protocol"].isin(protocols)]
        theirs = theirs[(theirs["language"] == lang) | (lang == _UNDETERMINED)]
        one = Match(data, lang, protocol, mine, theirs)
        for noise in sorted(set(mine["noise"]) - set(one.shared)):
            alone.append((one, "" if theirs.empty else f", at {percent(noise)} noise"))
        if one.shared:
            ratios = one.shared
            kept = (mine["noise"].isin(ratios), theirs["noise"].isin(ratios))
            found.append(Match(data, lang, protocol, mine[kept[0]], theirs[kept[1]]))
    lonely = [f"{one.title}{_beside(one, found)}{ratio}" for one, ratio in alone]
    return found, list(dict.fromkeys(lonely))


def _beside(one: Match, found: Iterable[Match]) -> str:
    """The protocol that a title leaves out, where something is published by another one."""
    others = any((each.data, each.lang) == (one.data, one.lang) and each.protocol != "full" for each in found)
    return ", protocol full" if others and one.protocol == "full" else ""


def published_rows(published: Published) -> pd.DataFrame:
    """The tables, a row a row.

    Without models that were not trained and figures that no report has; what a paper prints again stands once.
    """
    figures = published.figures
    figures = figures[figures["metric"].isin(results.METRICS) & ~figures["note"].str.startswith(UNTRAINED)]
    wide = figures.pivot(index=_ROW, columns="metric", values="value").reset_index()
    rows = figures[_ROW].drop_duplicates().merge(wide, on=_ROW).merge(published.tables, on=_TABLE)
    metrics = [column for column in wide if column not in _ROW]
    return rows.drop_duplicates(["paper", "data", "language", "noise", "noise_style", "protocol", "method", *metrics])


def _signed(frame: pd.DataFrame) -> pd.DataFrame:
    """The results on test items, with the fields of their signatures."""
    signatures = frame["signed"].dropna()  # that of a version with other keys is not readable
    fields = {position: {f"sign.{key}": value for key, value in s.fields.items()} for position, s in signatures.items()}
    columns = [f"sign.{key}" for key in KEYS]
    signed = frame.join(pd.DataFrame.from_dict(fields, orient="index", columns=columns), how="inner")
    return signed[signed["sign.split"] == "test"].copy()


def _plain(name: str) -> str:
    return re.sub("[^a-z0-9]", "", name.lower())


def _benchmark(names: Iterable[str], known: Mapping[str, str]) -> str:
    """What a data set is called where it is published; empty if it is not.

    What follows the name is a variant (`multi30k-task2`), unless other items are meant (`-cn`, `-test2017`).
    """
    for name in names:
        parts = re.split("[-_. ]+", name.lower())
        for end in range(len(parts), 0, -1):
            plain = _plain("".join(parts[:end]))
            plain = _OTHER_NAMES.get(plain, plain)
            if plain in known and not any(_OTHER.fullmatch(part) for part in parts[end:]):
                return known[plain]
    return ""


def _taught(value: str, names: Mapping[str, str], known: Mapping[str, str]) -> str:
    """What was trained on is called where it is published; empty if it is the data set that is measured."""
    name = data_name(value)
    if name == results.ITSELF:
        return ""
    return name if is_partial(value) else _benchmark((name, names.get(name, "")), known) or name


def _protocol(signature: Signature) -> str:
    """The protocol of a signature; one of which nothing is published is that of the test split as it is."""
    rules = replace(signature.rules, trained_on="")
    if rules.name == LABELLED:
        return str(rules)
    if rules.zero_shot:
        return ZERO_SHOT
    return next((known for known in PROTOCOLS if known.startswith("coco") and rules.name.startswith(known)), FULL)


def _fits(own: str, theirs: str) -> bool:
    return own == theirs or (own == "full" and theirs.startswith("coco"))


def differences(found: Match) -> dict[tuple[str, str], list[Difference]]:
    """What differs, by paper and table."""
    tables = found.theirs.groupby(["paper", "table"], sort=False)
    return {cast(tuple[str, str], key): list(_differences(found, rows)) for key, rows in tables}


def _differences(found: Match, rows: pd.DataFrame) -> Iterator[Difference]:
    ours, about = found.ours[found.ours["noise"].isin(rows["noise"])], rows.iloc[0]
    yours, theirs = _texts(ours["encoder"]), _texts(rows["backbone"])
    if not theirs or _encoders(yours) != _encoders(theirs):
        yield Difference("encoders", "; ".join(yours) or "not known", "; ".join(theirs) or "not named")
    runs = sorted({read_runs(text) for text in ours["sign.sim"]} - {1})
    if runs:
        yield Difference("models", "; ".join(f"{number} runs averaged" for number in runs), "not stated")
    yield from _captions(ours, about, _texts(rows["task"]))
    engines = _texts(ours["sign.mt"])
    if any(about["translation"].split()[0].lower() not in engine.lower() for engine in engines):
        *mine, other = ("none, English alone" if text == "none" else text for text in (*engines, about["translation"]))
        yield Difference("translation", "; ".join(mine), other)
    fusions = _texts(ours["sign.fusion"])
    if any(not fusion.startswith(about["fusion"]) for fusion in fusions):
        *mine, other = map(_fusion, (*fusions, about["fusion"]))
        yield Difference("score fusion", "; ".join(mine), other)
    if ours["own_split"].any():
        own = "; ".join(_texts(ours.loc[ours["own_split"], "data"]))
        yield Difference("split", f"of {own} alone: another choice of items", "the paper's")
    partial = _texts(data_name(data) for data in ours["sign.data"] if is_partial(data))
    if partial:
        yield Difference("data", "; ".join(partial), "all of it")
    others = _texts(map(data_name, ours["trained_on"]))
    if set(ours["taught"]) != {about["trained_on"]}:
        yield Difference("training data", "; ".join(others), about["trained_on"] or results.ITSELF)
    if about["protocol"] != found.protocol:
        yield Difference("protocol", found.protocol, about["protocol"])
    searched = {read_galleries(text)[1:] for text in ours["sign.gallery"]}
    if about["gallery"] and searched != {(int(about["gallery"]),) * 2}:
        mine = [" to ".join(f"{count:,}" for count in dict.fromkeys(sizes)) for sizes in sorted(searched)]
        yield Difference("items searched", "; ".join(mine), f"{int(about['gallery']):,}")
    kinds = _texts(ours.loc[ours["noise"] > 0, "noise_kind"])
    if any(kind != about["noise_style"] for kind in kinds):
        other = _STYLES.get(about["noise_style"], "not stated")
        yield Difference("kind of noise", "; ".join(_STYLES.get(kind, kind) for kind in kinds), other)


def _captions(ours: pd.DataFrame, about: pd.Series[str], tasks: list[str]) -> Iterator[Difference]:
    """The captions that are queries: how many an item, and where there are tasks, of which."""
    each = [f"{int(q) / _items(g):.3g}" for q, g in zip(ours["sign.q"], ours["sign.gallery"], strict=True)]
    sets = [re.split("[-+]", f"{name}+{own}") for name, own in zip(ours["data"], ours["sign.caption_set"], strict=True)]
    if {about["captions"].split(" ")[0]} != set(each) or any(task not in own for task in tasks for own in sets):
        mine = (f"{n} an item ({own})" for own, n in zip(ours["sign.caption_set"], each, strict=True))
        yield Difference("captions", "; ".join(dict.fromkeys(mine)), about["captions"] or "not stated")


def _items(gallery: str) -> float:
    """How many items there are in all folds."""
    folds, low, high = read_galleries(gallery)
    return folds * (low + high) / 2


def _texts(values: Iterable[str]) -> list[str]:
    """Each text once, in order, without empty ones."""
    return list(dict.fromkeys(str(value) for value in values if value))


def _encoders(texts: Iterable[str]) -> set[str]:
    found = {name for text in texts for name, pattern in _ENCODERS.items() if pattern.search(text)}
    return found - ({"BERT"} if "mBERT" in found else set())


def _fusion(text: str) -> str:
    return "none" if text == "none" else f"{text}, with the query in English"
