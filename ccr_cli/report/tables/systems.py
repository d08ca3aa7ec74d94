"""Systems side by side: quality in every language, what each costs, and which one to use.

A system is what a user can choose between: the runs of one label, or their search with translated queries. Validation
alone chooses (`VALIDATION`), never the split of the table.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Self

import numpy as np
import pandas as pd

from ccr_cli.artifacts.label import Label
from ccr_cli.artifacts.signature import FILE, HUMAN, NONE
from ccr_cli.report.tables import comparable
from ccr_cli.report.tables.differences import QueryRanks, intervals_overlap
from ccr_cli.report.tables.table import Cell, Column, Row, Table
from ccr_cli.report.words.numbers import MISSING, decimal, duration, listed, metric, with_interval

VALIDATION = "val-report"
"""The split that chooses: the half of validation by which no epoch was chosen."""
_SHARED = ("caption_set", "q", "gallery", "dir", "pos", "ties")
"""Fields of signatures in which results of a language agree, whatever the systems were trained on."""


@dataclass(frozen=True)
class SystemCost:
    """What a run costs; not-a-number where it was not recorded."""

    seconds: float = math.nan
    """Training time."""
    texts_per_second: float = math.nan
    items_per_second: float = math.nan
    """Pictures or videos from file to vector."""
    run_bytes: float = math.nan
    """Model and tokenizer on disk."""
    encoder_bytes: float = math.nan
    """Weights of the image encoder."""
    langs: tuple[str, ...] = ()
    """Languages of the training captions; none for a model that was not trained."""
    devices: tuple[str, ...] = ()

    @classmethod
    def mean(cls, costs: Sequence[Self]) -> Self:
        """The mean of several runs; without any, nothing is known."""
        if not costs:
            return cls()
        names = ("seconds", "texts_per_second", "items_per_second", "run_bytes", "encoder_bytes")
        known = {name: [v for c in costs if math.isfinite(v := getattr(c, name))] for name in names}
        langs, devices = (tuple(sorted({v for c in costs for v in getattr(c, name)})) for name in ("langs", "devices"))
        return cls(**{n: float(np.mean(v)) for n, v in known.items() if v}, langs=langs, devices=devices)


Costs = Mapping[str, SystemCost]
"""By run."""


def systems(frame: pd.DataFrame, main: comparable.View, costs: Costs, ranks: QueryRanks) -> Table | None:
    """The systems on the main view's data without synthetic noise; None if there are fewer than two.

    Args:
        frame: A results frame of everything.
        main: The main view.
        costs: What the runs cost.
        ranks: The ranks of the runs.
    """
    by_lang = _by_lang(frame, main, main.split)
    labels = comparable.methods(pd.concat(by_lang.values())) if by_lang else []
    if len(labels) < 2:
        return None
    columns = [
        Column("system", "system", text=True),
        *(Column(f"{main.figure.lower()}_{lang}", lang, "high", group=main.named) for lang in by_lang),
        Column("trained_on", "trained on", text=True),
        Column("training_seconds", "training"),
        Column("texts_per_second", "texts/s"),
        Column("items_per_second", "items/s"),
        Column("run_mb", "run, MB"),
        Column("encoder_mb", "image encoder, MB"),
    ]
    rows, devices = [], set[str]()
    for label in labels:
        cost = _cost(pd.concat(by_lang.values()), label, costs)
        devices |= set(cost.devices)
        training = Cell(cost.seconds, shown="none" if cost.seconds == 0 else duration(cost.seconds))
        cells = [
            *(_quality(part[part["label"] == label], main.figure) for part in by_lang.values()),
            Cell(", ".join(cost.langs) or None),
            training if math.isfinite(cost.seconds) else Cell(),
            *(_rounded(value) for value in (cost.texts_per_second, cost.items_per_second)),
            *(_rounded(value / 1e6) for value in (cost.run_bytes, cost.encoder_bytes)),
        ]
        rows.append(Row([Cell(label), *cells]))
    chosen, everywhere = choice(frame, main, costs, ranks), _results(frame, main, main.split)
    elsewhere = {lang: {*rows["label"]} & {*labels} for lang, rows in everywhere.groupby("lang")}
    others = {lang: sorted(elsewhere[lang] - {*part["label"]}) for lang, part in by_lang.items()}
    notes = [
        chosen or _lacking(by_lang, main.queries),
        f"{main.named} with half of its 95% interval over items; of several seeds the means. Training is the time of a "
        "run alone, after translation and extraction. Texts per second are those of its evaluation, without the "
        "translation of queries; items per second include decoding.",
        *(_not_comparable(lang, missing) for lang, missing in others.items() if missing),
        *([f"Devices: {listed(sorted(devices))}."] if devices else []),
    ]
    return Table("systems", f"Which system to use: {main.data} {main.split}", columns, rows, notes)


def choice(frame: pd.DataFrame, main: comparable.View, costs: Costs, ranks: QueryRanks) -> str:
    """Which system to use in which language, in a sentence; empty without results on validation.

    Of those that validation cannot tell from the best (the interval of the paired difference contains 0; if queries
    cannot be paired, their intervals overlap), the one with the least training; if equal, one that searches with the
    queries as they are, then the smaller.
    """
    chosen: dict[tuple[str, str], list[str]] = {}
    for lang, rows in _by_lang(frame, main, VALIDATION).items():
        means = rows.groupby("label")[main.figure].mean().sort_values(ascending=False)
        if len(means) < 2:
            continue
        best = str(means.index[0])
        level = [label for label in map(str, means.index) if _is_level(rows, label, best, main.figure, ranks)]
        name = min(level, key=lambda label: _price(label, _cost(rows, label, costs)))
        reason = f"best of {len(means)}, {main.named} {metric(means[best])}"
        if name != best:
            reason = f"{main.named} {metric(means[name])}, level with {best} at {metric(means[best])}, and cheaper"
        chosen.setdefault((name, reason), []).append(lang)
    parts = [f"{name} for {listed(langs)} ({reason})" for (name, reason), langs in chosen.items()]
    return f"By validation, use {listed(parts)}." if parts else ""


def _not_comparable(lang: str, labels: Sequence[str]) -> str:
    """Why systems have no result in a column, though they were measured in the language."""
    same = f"ccr evaluate RUN RUN --lang {lang} --queries FILE measures all with the same."
    return f"{MISSING} in {lang}: not comparable, since other queries or items were used: {listed(labels)}. {same}"


def _results(frame: pd.DataFrame, main: comparable.View, split: str) -> pd.DataFrame:
    """The results of a split that may be compared, with their setting."""
    at = (frame["data"] == main.data) & (frame["split"] == split) & (frame["figure"] == main.figure)
    at &= (frame["fusion"] == NONE) & (frame["noise"] == 0) & (frame["zero_shot"] == main.zero_shot)
    at &= frame["signed"].notna() & ~frame["label"].map(comparable.is_oracle)
    at &= frame[main.figure].notna() & ~frame["label"].map(lambda label: Label.parse(label).is_ensemble)
    rows = frame[at]
    settings = [
        (*(signed.fields[key] for key in _SHARED), str(replace(signed.rules, trained_on="")))
        for signed in rows["signed"]
    ]
    return rows.assign(setting=pd.Series(settings, index=rows.index, dtype=object))


def _by_lang(frame: pd.DataFrame, main: comparable.View, split: str) -> dict[str, pd.DataFrame]:
    """The comparable results of a split by language, those of the main view's first.

    Of several settings of a language (captions, gallery), that of the most systems counts.
    """
    chosen = {}
    for lang, part in _results(frame, main, split).groupby("lang", sort=True):
        by_setting = {setting: some for setting, some in part.groupby("setting", sort=True)}
        setting = max(
            by_setting, key=lambda s: (by_setting[s]["label"].nunique(), (by_setting[s]["asked"] == HUMAN).all())
        )
        chosen[str(lang)] = by_setting[setting]
    return {lang: chosen[lang] for lang in sorted(chosen, key=lambda lang: (lang != main.lang, lang))}


def _rounded(value: float) -> Cell:
    return Cell(value, shown=decimal(value, 0 if value >= 100 else 1))


def _quality(rows: pd.DataFrame, figure: str) -> Cell:
    if rows.empty:
        return Cell()
    value, ends = float(rows[figure].mean()), rows[["low", "high"]].mean(skipna=False)
    interval = None if ends.isna().any() else (float(ends["low"]), float(ends["high"]))
    return Cell(value, shown=with_interval(value, interval), interval=interval)


def _is_level(rows: pd.DataFrame, label: str, best: str, figure: str, ranks: QueryRanks) -> bool:
    """Whether results do not tell a system from the best one."""
    if label == best:
        return True
    one, other = (rows[rows["label"] == name] for name in (label, best))
    interval = ranks.interval(one, other, figure, float(other[figure].mean() - one[figure].mean()))
    return intervals_overlap(one, other, figure) if interval is None else interval[0] <= 0 <= interval[1]


def _price(label: str, cost: SystemCost) -> tuple[float, bool, float]:
    known = [value if math.isfinite(value) else math.inf for value in (cost.seconds, cost.run_bytes)]
    return known[0], Label.parse(label).is_translate_test, known[1]


def _cost(rows: pd.DataFrame, label: str, costs: Costs) -> SystemCost:
    runs = rows.loc[rows["label"] == label, "run_id"].unique()
    return SystemCost.mean([costs[run] for run in runs if run in costs])


def _lacking(by_lang: Mapping[str, pd.DataFrame], queries: str) -> str:
    rows = pd.concat(by_lang.values()).sort_values("seed").drop_duplicates(["run_id", "label"])
    rows = rows.drop_duplicates("label")
    translated = rows["label"].map(lambda label: Label.parse(label).is_translate_test)
    with_both = {*rows.loc[translated, "run"]}  # such an evaluation also has the queries as they are
    commands = []
    for names, flag in ([name for name in rows["run"] if name not in with_both], ""), (with_both, " --translate-test"):
        runs = " ".join(f"runs/{name}" for name in dict.fromkeys(names))
        langs = " ".join(f"--lang {lang}" for lang in by_lang)
        langs += {HUMAN: "", FILE: " --queries FILE"}.get(queries, f" --queries {queries}")
        commands += [f"ccr evaluate {runs} --split {VALIDATION} {langs}{flag}"] if runs else []
    return f"Test results do not choose a system. For a choice by validation: {', '.join(commands)}, then ccr report."
