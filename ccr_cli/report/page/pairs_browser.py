"""The data of the pairs browser of a report: training pairs to filter, sort and compare between runs.

The page holds the pairs as JSON; its script writes them as text only, and the page's policy allows that script alone.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from ccr_cli.artifacts.diagnosis import RARE
from ccr_cli.console import plain
from ccr_cli.report.content import ReportData, RunDiagnosis
from ccr_cli.report.tables import comparable
from ccr_cli.report.tables.diagnoses import competing, label_with_judge
from ccr_cli.report.thumbnails import Embedded
from ccr_cli.report.words import signature_words
from ccr_cli.report.words.findings import Findings
from ccr_cli.report.words.numbers import percent

WORST, DIFFERENT, OTHERS = 150, 50, 50
"""Pairs on the page: the most suspicious of each run, those on which runs differ most, and others spread evenly."""
SIDE = 72
_KEYS = ["slot_id", "translation"]
_TEXTS = ["item_id", "lang", "source_text", "back", "truth", "support", "verdict"]
_FIGURES = {"p": "p_clean", "place": "place", "uncertainty": "uncertainty", "similarity": "sim_vt"}
_COLUMNS = [*_KEYS, *_TEXTS, *_FIGURES.values()]


@dataclass(frozen=True)
class Group:
    """The same pairs as several runs judge them."""

    name: str
    pairs: Mapping[str, pd.DataFrame]
    """By method, in one order."""
    runs: Mapping[str, str]
    """By method, the label of its run: with the judge where that is not its own."""
    lang: str
    data: str


def groups(material: ReportData, main: comparable.View, findings: Findings) -> Iterator[Group]:
    """Groups diagnoses of the main view's runs by their triplets; one per method (`by_choice`).

    Those of the headline noise come first; tables are read one group at a time, since there may be many.
    """
    groups: dict[tuple[Any, ...], dict[str, RunDiagnosis]] = {}
    for label, diagnosis in competing(material, main):
        fact, noise = material.facts.get(diagnosis.run_id), diagnosis.noise
        key = (noise, fact.noise_kind, fact.noise_seed, fact.data) if fact else (noise, "", None, "")
        groups.setdefault(key, {}).setdefault(label, diagnosis)
    for key in sorted(groups, key=lambda key: (key[0] != findings.noise, str(key))):
        noise, kind, seed, data = key
        diagnoses = {label: groups[key][label] for label in sorted(groups[key], key=comparable.method_order)}
        details = [f"noise seed {seed}"] if seed else []
        details += filter(None, [signature_words.unusual_noise(kind)])
        tables = {label: diagnosis.load_pairs(_COLUMNS) for label, diagnosis in diagnoses.items()}
        langs = {lang for table in tables.values() for lang in table["lang"].unique()}
        labels = {label: label_with_judge(label, diagnosis) for label, diagnosis in diagnoses.items()}
        for lang in sorted(langs, key=lambda lang: (lang != main.lang, lang)):
            name = ", ".join([f"{percent(noise)} noise", lang, *details])
            of_lang = {k: t[t["lang"] == lang] for k, t in tables.items() if (t["lang"] == lang).any()}
            yield from (Group(name, pairs, labels, lang, str(data)) for pairs in _aligned(of_lang))


def _aligned(tables: Mapping[str, pd.DataFrame]) -> Iterator[dict[str, pd.DataFrame]]:
    """Puts tables of the same pairs into the order of the first; a table of other pairs stands alone."""
    left = {label: table.drop_duplicates(_KEYS) for label, table in tables.items()}
    if len(left) == 1:
        yield left
        return
    left = {label: table.set_index(_KEYS) for label, table in left.items()}
    while left:
        first = next(iter(left.values())).index
        same = {k: t.loc[first] for k, t in left.items() if len(t) == len(first) and t.index.isin(first).all()}
        left = {label: table for label, table in left.items() if label not in same}
        yield {label: table.reset_index() for label, table in same.items()}


def chosen(group: Group) -> list[int]:
    """Rows of a group that the page holds, the most suspicious first."""
    p_RN = np.stack([table["p_clean"].to_numpy(float) for table in group.pairs.values()])
    place_RN = np.stack([table["place"].to_numpy(int) for table in group.pairs.values()])
    rows: list[int] = [int(row) for order in place_RN.argsort(axis=1, kind="stable") for row in order[:WORST]]
    if len(p_RN) > 1:
        rows += (-np.ptp(p_RN, axis=0)).argsort(kind="stable")[:DIFFERENT].tolist()
    by_place = place_RN[0].argsort(kind="stable")
    rows += by_place[np.linspace(0, len(by_place) - 1, min(OTHERS, len(by_place))).astype(int)].tolist()
    best_N = place_RN.min(axis=0)
    return sorted(dict.fromkeys(rows), key=lambda row: (int(best_N[row]), row))


def content(material: ReportData, main: comparable.View, findings: Findings) -> dict[str, Any] | None:
    """What the script reads; None without a diagnosis."""
    images, numbers = Embedded(SIDE), {"": -1}
    out = []
    for group in groups(material, main, findings):
        dataset, tables, pairs = material.dataset(group.data), list(group.pairs.values()), []
        for row in chosen(group):
            pair = tables[0].iloc[row]
            address = images.address(dataset.image(str(pair["item_id"]))) or ""
            texts = {"item": "item_id", "source": "source_text", "text": "translation"}
            figures = {key: [float(table[column].iloc[row]) for table in tables] for key, column in _FIGURES.items()}
            pairs.append(
                {
                    "image": numbers.setdefault(address, len(numbers) - 1),
                    **{key: plain(str(pair[column])) for key, column in texts.items()},
                    "back": plain(pair["back"]) if isinstance(pair["back"], str) else None,
                    "truth": pair["truth"] if isinstance(pair["truth"], str) else None,
                    "rare": bool(pair["support"] < RARE),
                    **{k: [round(v, 4) if math.isfinite(v) else None for v in values] for k, values in figures.items()},
                    "noisy": [str(table["verdict"].iloc[row]) == "noisy" for table in tables],
                }
            )
        about = {
            "name": group.name,
            "lang": group.lang,
            "runs": [plain(group.runs[label]) for label in group.pairs],
            "first": next((i for i, label in enumerate(group.pairs) if label == findings.method), 0),
            "source": dataset.source_lang,
            "total": len(tables[0]),
        }
        out.append({**about, "pairs": pairs})
    return {"groups": out, "images": [address for address in numbers if address]} if out else None
