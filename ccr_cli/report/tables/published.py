"""Results next to the figures that papers print for the same data set, language and noise, and what differs.

Published figures are quoted: they are never ranked, averaged or bold.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

import pandas as pd

from ccr_cli.artifacts import signature
from ccr_cli.data.published import PROTOCOLS, UNTRAINED, Published, row_name
from ccr_cli.report.tables import comparable
from ccr_cli.report.tables.retrieval import DIRECTION_TITLES, METHOD, NOISE, NUMBER, means, noise_row
from ccr_cli.report.tables.table import Cell, Column, Row, Table
from ccr_cli.report.words import signature_words
from ccr_cli.report.words.numbers import listed, percent

YOURS = "yours"
QUOTED = (
    "Figures of papers are quoted as printed and were measured with other code; further known differences are listed "
    "with each. They are for orientation only and are not ranked or averaged with yours."
)

_TABLE = ["paper", "table", "data", "language"]
_ROW = [*_TABLE, "noise", "task", "method", "backbone", "note"]
_OTHER_NAMES = {"coco": "mscoco", "multicoco": "multimscoco", "wiki": "wikipedia", "pascal": "pascalsentence"}
_OTHER = re.compile("cn|test20[0-9]{2}")
_UNDETERMINED = "und"
"""The language of texts that are features alone."""
_ENCODER = re.compile(
    "mbert|bert-base-multilingual|(?<![a-z])bert|butd|clip|efficientnet|gru|glove|i3d|resnext|resnet|sgraf|swin|vgg|"
    "xlm-?r|ngram|word2vec"
)
"""Encoders that the backbone of a published row, or an encoder of ours, can name."""
Manifests = Mapping[str, Mapping[str, Any]]


@dataclass(frozen=True)
class PublishedMatch:
    """Results and published rows of one data set, language and protocol."""

    data: str
    """The name in publications; empty if nothing is published."""
    lang: str
    protocol: str
    ours: pd.DataFrame
    """Rows of a results frame, with the fields of their signatures as `sign.KEY`."""
    theirs: pd.DataFrame
    """A row for each row of a published table, with the columns of `tables.csv` and a column for each figure."""

    @property
    def title(self) -> str:
        """The data sets and languages of the results, in words."""
        how = "" if self.protocol == "full" else f", protocol {self.protocol}"
        how = ", zero-shot" if self.protocol.startswith("zero-shot") else how
        return f"{listed(sorted(set(self.ours['data'])))}, queries in {listed(sorted(set(self.ours['lang'])))}{how}"

    @property
    def shared(self) -> list[float]:
        """The noise ratios that both have."""
        return sorted(set(self.ours["noise"]) & set(self.theirs["noise"]))


@dataclass(frozen=True)
class PublishedDifference:
    """A difference between a published table and the results, in words."""

    what: str
    ours: str
    theirs: str


def match(frame: pd.DataFrame, published: Published, manifests: Manifests) -> tuple[list[PublishedMatch], list[str]]:
    """Finds published figures for the data sets, languages and noise of results on test items.

    Returns the matches; and, in words, the results without any. Manifests are those of data sets, by name.
    """
    if frame.empty:
        return [], []
    rows, ours = published_rows(published), _signed(frame)
    known = {_plain(data): data for data in rows["data"].unique()}
    names = {data: str(manifest.get("name") or "") for data, manifest in manifests.items()}
    ours["benchmark"] = [_benchmark((data, names.get(data, "")), known) for data in ours["data"]]
    ours["training_data"] = [_training_data(on, names, known) for on in ours["trained_on"]]
    ours["own_split"] = [bool(manifests.get(data, {}).get("own_split")) for data in ours["data"]]
    ours["protocol"] = ours["signed"].map(_protocol)
    matches: list[PublishedMatch] = []
    alone: list[tuple[PublishedMatch, str]] = []
    for key, mine in ours.groupby(["benchmark", "lang", "protocol"]):
        data, lang, protocol = cast(tuple[str, str, str], key)
        fits = (rows["protocol"] == protocol) | (rows["protocol"].str.startswith("coco") & (protocol == signature.FULL))
        theirs = rows[(rows["data"] == data) & fits]
        theirs = theirs[(theirs["language"] == lang) | (lang == _UNDETERMINED)]
        one = PublishedMatch(data, lang, protocol, mine, theirs)
        for noise in sorted(set(mine["noise"]) - set(one.shared)):
            alone.append((one, "" if theirs.empty else f", at {percent(noise)} noise"))
        if one.shared:
            mine, theirs = (side[side["noise"].isin(one.shared)] for side in (mine, theirs))
            matches.append(PublishedMatch(data, lang, protocol, mine, theirs))
    # a title leaves out the protocol `full`: it is named where figures are published for another one
    others = {(one.data, one.lang) for one in matches if one.protocol != signature.FULL}
    notes = [", protocol full" * (o.protocol == signature.FULL and (o.data, o.lang) in others) for o, _ in alone]
    unmatched = [f"{one.title}{note}{ratio}" for (one, ratio), note in zip(alone, notes, strict=True)]
    return matches, list(dict.fromkeys(unmatched))


def published_rows(published: Published) -> pd.DataFrame:
    """The rows of the published tables, a column for each figure.

    Leaves out untrained models and figures that no report has; a row that a paper repeats is listed once.
    """
    figures = published.figures
    figures = figures[figures["metric"].isin(comparable.METRICS) & ~figures["note"].str.startswith(UNTRAINED)]
    wide = figures.pivot(index=_ROW, columns="metric", values="value").reset_index()
    rows = figures[_ROW].drop_duplicates().merge(wide, on=_ROW).merge(published.tables, on=_TABLE)
    metrics = [column for column in wide if column not in _ROW]
    return rows.drop_duplicates(["paper", "data", "language", "noise", "noise_style", "protocol", "method", *metrics])


def _signed(frame: pd.DataFrame) -> pd.DataFrame:
    """The results on test items for human queries, with the fields of their signatures."""
    signatures = frame["signed"].dropna()  # that of a version with other keys is not readable
    fields = {position: {f"sign.{key}": value for key, value in s.fields.items()} for position, s in signatures.items()}
    columns = [f"sign.{key}" for key in signature.KEYS]
    signed = frame.join(pd.DataFrame.from_dict(fields, orient="index", columns=columns), how="inner")
    human = signed["asked"] == signature.HUMAN
    return signed[human & (signed["sign.split"] == "test")].copy()


def _plain(name: str) -> str:
    return re.sub("[^a-z0-9]", "", name.lower())


def _benchmark(names: Iterable[str], known: Mapping[str, str]) -> str:
    """The name of a data set in publications; empty if nothing is published.

    A suffix is a variant (`multi30k-task2`), unless it has other items (`-cn`, `-test2017`).
    """
    for name in names:
        parts = re.split("[-_. ]+", name.lower())
        for end in range(len(parts), 0, -1):
            plain = _plain("".join(parts[:end]))
            plain = _OTHER_NAMES.get(plain, plain)
            if plain in known and not any(_OTHER.fullmatch(part) for part in parts[end:]):
                return known[plain]
    return ""


def _training_data(value: str, names: Mapping[str, str], known: Mapping[str, str]) -> str:
    """The name of the training data in publications; empty for the evaluated data set itself."""
    name = signature.data_name(value)
    if name == comparable.ITSELF:
        return ""
    return name if signature.is_partial(value) else _benchmark((name, names.get(name, "")), known) or name


def _protocol(signed: signature.Signature) -> str:
    """The protocol of a signature; an unpublished one counts as the full test split."""
    rules = replace(signed.rules, trained_on="")
    if rules.name == signature.LABELLED:
        return str(rules)
    if rules.zero_shot:
        return signature.ZERO_SHOT
    coco = (known for known in PROTOCOLS if known.startswith("coco"))
    return next((known for known in coco if rules.name.startswith(known)), signature.FULL)


def differences(pair: PublishedMatch) -> dict[tuple[str, str], list[PublishedDifference]]:
    """The differences, by paper and table."""
    tables = pair.theirs.groupby(["paper", "table"], sort=False)
    return {cast(tuple[str, str], key): list(_differences(pair, rows)) for key, rows in tables}


def _differences(pair: PublishedMatch, rows: pd.DataFrame) -> Iterator[PublishedDifference]:
    ours, about = pair.ours[pair.ours["noise"].isin(rows["noise"])], rows.iloc[0]
    yours, theirs = _texts(ours["encoder"]), _texts(rows["backbone"])
    if not theirs or _encoders(yours) != _encoders(theirs):
        yield PublishedDifference("encoders", "; ".join(yours) or "not known", "; ".join(theirs) or "not named")
    runs = sorted({signature.read_runs(text) for text in ours["sign.sim"]} - {1})
    if runs:
        yield PublishedDifference("models", "; ".join(f"{number} runs averaged" for number in runs), "not stated")
    yield from _captions(ours, about, _texts(rows["task"]))
    engines = _texts(ours["sign.mt"])
    if any(about["translation"].split()[0].lower() not in engine.lower() for engine in engines):
        *mine, other = ("none, only English" if text == "none" else text for text in (*engines, about["translation"]))
        yield PublishedDifference("translation", "; ".join(mine), other)
    fusions = _texts(ours["sign.fusion"])
    if any(not fusion.startswith(about["fusion"]) for fusion in fusions):
        texts = (*fusions, about["fusion"])
        *mine, other = (text if text == "none" else f"{text}, with the query in English" for text in texts)
        yield PublishedDifference("score fusion", "; ".join(mine), other)
    if own := _texts(ours.loc[ours["own_split"], "data"]):
        yield PublishedDifference("split", f"that of {'; '.join(own)}: another choice of items", "the paper's")
    if partial := _texts(signature.data_name(data) for data in ours["sign.data"] if signature.is_partial(data)):
        yield PublishedDifference("data", "; ".join(partial), "complete")
    if set(ours["training_data"]) != {about["trained_on"]}:
        others = _texts(map(signature.data_name, ours["trained_on"]))
        yield PublishedDifference("training data", "; ".join(others), about["trained_on"] or comparable.ITSELF)
    if about["protocol"] != pair.protocol:
        yield PublishedDifference("protocol", pair.protocol, about["protocol"])
    searched = {signature.read_galleries(text)[1:] for text in ours["sign.gallery"]}
    if about["gallery"] and searched != {(int(about["gallery"]),) * 2}:
        mine = [" to ".join(f"{count:,}" for count in dict.fromkeys(sizes)) for sizes in sorted(searched)]
        yield PublishedDifference("items searched", "; ".join(mine), f"{int(about['gallery']):,}")
    kinds = _texts(ours.loc[ours["noise"] > 0, "noise_kind"])
    if any(kind != about["noise_style"] for kind in kinds):
        words = signature_words.WORDS["noise_of_papers"]
        other = words.get(about["noise_style"], "not stated")
        yield PublishedDifference("kind of noise", "; ".join(words.get(kind, kind) for kind in kinds), other)


def _captions(ours: pd.DataFrame, about: "pd.Series[str]", tasks: list[str]) -> Iterator[PublishedDifference]:
    """The captions that are queries: how many per item, and of which task."""
    galleries = map(signature.read_galleries, ours["sign.gallery"])
    items = (folds * (low + high) / 2 for folds, low, high in galleries)
    per_item = [f"{int(queries) / number:.3g}" for queries, number in zip(ours["sign.q"], items, strict=True)]
    sets = [re.split("[-+]", f"{name}+{own}") for name, own in zip(ours["data"], ours["sign.caption_set"], strict=True)]
    if {about["captions"].split(" ")[0]} != set(per_item) or any(task not in own for task in tasks for own in sets):
        mine = (f"{n} an item ({own})" for own, n in zip(ours["sign.caption_set"], per_item, strict=True))
        yield PublishedDifference("captions", "; ".join(dict.fromkeys(mine)), about["captions"] or "not stated")


def _texts(values: Iterable[str]) -> list[str]:
    """The distinct non-empty texts, in order."""
    return list(dict.fromkeys(str(value) for value in values if value))


def _encoders(texts: Iterable[str]) -> set[str]:
    """The encoders that texts name; without BERT where the multilingual one is named too."""
    found = {name.replace("-", "") for text in texts for name in _ENCODER.findall(text.lower())}
    names = {"mbert" if name == "bertbasemultilingual" else name for name in found}
    return names - ({"bert"} if "mbert" in names else set())


_Differing = Mapping[tuple[str, str], Sequence[PublishedDifference]]


def compare(frame: pd.DataFrame, published: Published, manifests: Manifests) -> dict[str, Table]:
    """Makes the tables of results and published figures; arguments as for `match`.

    Returns by name: the figures, a table for each data set and language of which there are any, and
    `published-differences`; without any match, `published` lists what there is.
    """
    matches, unmatched = match(frame, published, manifests)
    if not matches:
        return {"published": _available(published, unmatched)}
    differing = [differences(one) for one in matches]
    tables = [_figures(one, differing[i], published) for i, one in enumerate(matches)]
    tables.append(_difference_table(matches, differing, published, unmatched))
    return {table.name: table for table in tables}


def cited(tables: Iterable[Table], published: Published) -> list[str]:
    """The papers quoted in tables, a line each."""
    texts = {str(cell.value) for table in tables for row in table.rows for cell in row.cells}
    papers = published.papers.to_dict("records")
    shown = [p for p in papers if any(text.startswith(f"{p['name']}, Table") for text in texts)]
    dois = (f" doi {p['doi']}" if p["doi"] else "" for p in shown)
    return [f"{p['name']}: {p['citation']}.{doi}" for p, doi in zip(shown, dois, strict=True)]


def _figures(pair: PublishedMatch, differing: _Differing, published: Published) -> Table:
    """Yours and published figures, a block for each noise ratio; only metrics that a paper prints."""
    metrics = [m for m in comparable.METRICS if m in pair.theirs and pair.theirs[m].notna().any()]
    source, encoders = Column("source", "from", text=True), Column("encoders", "encoders", text=True)
    figures = [*map(_column, metrics), encoders, Column("differs", "differs in", text=True)]
    both = ((_ours(pair, n, metrics), _theirs(pair, n, metrics, differing, published)) for n in pair.shared)
    rows = [row for ours, theirs in both for row in (*ours, *theirs)]
    name = "-".join(["published", pair.data, pair.lang, *([] if pair.protocol == signature.FULL else [pair.protocol])])
    title = f"Compared with published figures: {pair.title}"
    return Table(name, title, [NOISE, METHOD, source, NUMBER, *figures], rows, [QUOTED])


def _column(metric: str) -> Column:
    direction, _, name = metric.rpartition(".")
    key = metric.lower().replace(".", "_").replace("r@", "r")
    title = name if direction else comparable.HEADLINES[metric][0]
    return Column(key, title, group=DIRECTION_TITLES.get(direction, ""))


def _ours(pair: PublishedMatch, noise: float, metrics: Sequence[str]) -> Iterator[Row]:
    mine = pair.ours[pair.ours["noise"] == noise]
    distinctions = _distinctions(mine)
    for key, figures, n in means(mine, ["key", "noise_kind", "label", "encoder"], metrics):
        own, kind, label, encoder = key
        method = label + distinctions[own, kind]
        yield replace(noise_row(noise, method, Cell(YOURS), n, *figures, _encoder(encoder), Cell("")), ceiling=False)


def _encoder(named: str) -> Cell:
    return Cell(named, shown=named or "not named")


def _distinctions(mine: pd.DataFrame) -> dict[tuple[comparable.ViewSetting, str], str]:
    """By setting and kind of noise, what distinguishes our own settings."""
    pairs = dict.fromkeys(zip(mine["key"], mine["noise_kind"], strict=True))
    fields = {(key, kind): {**key.fields, "noise": kind} for key, kind in pairs}
    words = {pair: signature_words.distinction(list(fields.values()), own) for pair, own in fields.items()}
    return {pair: f", {text}" if text else "" for pair, text in words.items()}


def _theirs(
    pair: PublishedMatch, noise: float, metrics: Sequence[str], differing: _Differing, published: Published
) -> Iterator[Row]:
    misprints = {(m["paper"], m["table"], m["row"]): m for m in published.misprints.to_dict("records")}
    above = None
    for row in pair.theirs[pair.theirs["noise"] == noise].to_dict("records"):
        table = (row["paper"], row["table"])
        misprint = misprints.get((*table, row_name(row["data"], noise, row["backbone"], row["method"])))
        same = ", ".join(difference.what for difference in differing[table]) or "nothing known"
        own = [text for text in (row["note"], _misprint(misprint)) if text]
        note = Cell("; ".join([same, *own]), shown="; ".join(["as above" if table == above else same, *own]))
        figures = [Cell(None if pd.isna(row[metric]) else row[metric]) for metric in metrics]
        cells = [Cell(published.source(*table)), Cell(shown=""), *figures, _encoder(row["backbone"]), note]
        yield replace(noise_row(noise, row["method"], *cells), ceiling=False, quoted=True)
        above = table


def _misprint(misprint: Mapping[Any, Any] | None) -> str:
    if misprint is None:
        return ""
    if misprint["same_as"]:
        return f"the same figures are in Table {misprint['same_as'].replace(' / ', ', ')}"
    return f"prints {misprint['printed']}; its parts add up to {misprint['computed']}"


def _difference_table(
    matches: Sequence[PublishedMatch], differing: Sequence[_Differing], published: Published, unmatched: Sequence[str]
) -> Table:
    """The differences in words; those shared by several tables or languages are listed once."""
    sources: dict[tuple[str, PublishedDifference], dict[str, list[str]]] = {}
    for one, tables in zip(matches, differing, strict=True):
        for table, known in tables.items():
            for difference in known:
                by_lang = sources.setdefault((one.data, difference), {})
                by_lang.setdefault(one.lang, []).append(published.source(*table))
    rows = []
    for (data, difference), by_lang in sources.items():
        for where in dict.fromkeys(map(tuple, by_lang.values())):
            of = f"{data} {listed([lang for lang, known in by_lang.items() if tuple(known) == where])}"
            rows.append((of, difference.what, difference.ours, difference.theirs, "; ".join(where)))
    blocks, whats = (list(dict.fromkeys(row[place] for row in rows)) for place in (0, 1))
    rows.sort(key=lambda row: (blocks.index(row[0]), whats.index(row[1])))
    columns = [Column(key, key, text=True) for key in ("of", "what", YOURS, "published", "in")]
    notes = [f"No published figures for {text}." for text in unmatched]
    blocked = [Row(list(map(Cell, row)), block=row[0]) for row in rows]
    return Table("published-differences", "Differences from the published figures", columns, blocked, notes)


def _available(published: Published, unmatched: Sequence[str]) -> Table:
    rows = []
    for data, part in published_rows(published).groupby("data", sort=False):
        ratios = [percent(noise) for noise in sorted(part["noise"].unique())]
        papers = dict.fromkeys(published.source(p, t) for p, t in zip(part["paper"], part["table"], strict=True))
        texts = [", ".join(dict.fromkeys(text)) for text in (part["language"], ratios, part["protocol"])]
        rows.append(Row(list(map(Cell, (str(data), *texts, "; ".join(papers))))))
    columns = [Column(key, key, text=True) for key in ("data", "queries", "noise", "protocol", "source")]
    notes = [f"No published figures for {text}." for text in unmatched] or ["There are no results on test items."]
    title = "No published figures for these results; available figures" if unmatched else "Published figures"
    return Table("published", title, columns, rows, notes)
