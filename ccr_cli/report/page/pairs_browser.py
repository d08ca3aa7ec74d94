"""The part of the page in which one looks through training pairs: filters, sorts, compares runs.

The pairs lie in the page as data, and the script writes them as text alone; the page's policy names the script by its
hash, so that nothing else can run, whatever a caption holds.
"""

from __future__ import annotations

import base64
import hashlib
import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from ccr_cli.artifacts.diagnosis import RARE
from ccr_cli.console import plain
from ccr_cli.report.content import ReportData, RunDiagnosis
from ccr_cli.report.page import markup
from ccr_cli.report.page.pairs_browser_script import SCRIPT
from ccr_cli.report.tables import judge_choice, results
from ccr_cli.report.thumbnails import Embedded
from ccr_cli.report.words import signature_words
from ccr_cli.report.words.findings import Findings
from ccr_cli.report.words.numbers import percent

WORST, DIFFERENT, OTHERS = 150, 50, 50
"""Of each run, the pairs that it doubts most; those that runs differ on most; others, evenly through all."""
SIDE = 72
HASH = base64.b64encode(hashlib.sha256(SCRIPT.encode()).digest()).decode()
POLICY = f"script-src 'sha256-{HASH}'"
"""What a page's policy says beside."""
_KEYS = ["slot_id", "translation"]
_TEXTS = ["item_id", "lang", "source_text", "back", "truth", "support", "verdict"]
_FIGURES = {"p": "p_clean", "place": "place", "uncertainty": "uncertainty", "similarity": "sim_vt"}
_READ = [*_KEYS, *_TEXTS, *_FIGURES.values()]


@dataclass(frozen=True)
class Group:
    """The same pairs as several runs judge them."""

    name: str
    pairs: Mapping[str, pd.DataFrame]
    """By method, in one order."""
    runs: Mapping[str, str]
    """By method, what its run is called: with the judge where that is not its own."""
    lang: str
    data: str


def groups(material: ReportData, main: results.View, found: Findings) -> Iterator[Group]:
    """Diagnoses of the main view's runs, together where the triplets are the same; one a method (`judges.by_choice`).

    Those of the headline noise come first; tables are read as they are asked for, since there may be many.
    """
    runs = set(main.frame["run_id"])
    alike: dict[tuple[Any, ...], dict[str, RunDiagnosis]] = {}
    for each in judge_choice.by_choice(material.diagnoses):
        label = material.label(each.run_id, str(each.summary["label"]))
        if each.run_id in runs and each.summary.get("judge") != "oracle" and not results.is_oracle(label):
            fact = material.facts.get(each.run_id)
            noise = round(float(each.summary.get("noise") or 0.0), 6)
            kind = (noise, fact.noise_kind, fact.noise_seed, fact.data) if fact else (noise, "", None, "")
            alike.setdefault(kind, {}).setdefault(label, each)
    for key in sorted(alike, key=lambda key: (key[0] != found.noise, str(key))):
        noise, kind, seed, data = key
        told = [f"noise seed {seed}"] if seed else []
        told += [signature_words.noise(kind)] if kind not in ("", "none", "caption-translation") else []
        tables = {k: alike[key][k].load_pairs()[_READ] for k in sorted(alike[key], key=results.method_order)}
        langs = {lang for table in tables.values() for lang in table["lang"].unique()}
        for lang in sorted(langs, key=lambda lang: (lang != main.lang, lang)):
            name = ", ".join([f"{percent(noise)} noise", lang, *told])
            here = {k: t[t["lang"] == lang] for k, t in tables.items() if (t["lang"] == lang).any()}
            named = {label: judge_choice.named(label, each) for label, each in alike[key].items()}
            yield from (Group(name, part, named, lang, str(data)) for part in _aligned(here))


def _aligned(tables: Mapping[str, pd.DataFrame]) -> Iterator[dict[str, pd.DataFrame]]:
    """Tables of the same pairs in the order of the first; one of other pairs stands alone."""
    left = {label: table.drop_duplicates(_KEYS).set_index(_KEYS) for label, table in tables.items()}
    while left:
        first = next(iter(left.values())).index
        same = {k: t.loc[first] for k, t in left.items() if len(t) == len(first) and t.index.isin(first).all()}
        left = {label: table for label, table in left.items() if label not in same}
        yield {label: table.reset_index() for label, table in same.items()}


def chosen(group: Group) -> list[int]:
    """Rows of a group that the page holds, the most doubted first."""
    p_RN = np.stack([table["p_clean"].to_numpy(float) for table in group.pairs.values()])
    place_RN = np.stack([table["place"].to_numpy(int) for table in group.pairs.values()])
    rows: list[int] = [int(row) for order in place_RN.argsort(axis=1, kind="stable") for row in order[:WORST]]
    if len(p_RN) > 1:
        rows += (-np.ptp(p_RN, axis=0)).argsort(kind="stable")[:DIFFERENT].tolist()
    through = place_RN[0].argsort(kind="stable")
    rows += through[np.linspace(0, len(through) - 1, min(OTHERS, len(through))).astype(int)].tolist()
    best_N = place_RN.min(axis=0)
    return sorted(dict.fromkeys(rows), key=lambda row: (int(best_N[row]), row))


def content(material: ReportData, main: results.View, found: Findings) -> dict[str, Any] | None:
    """All that the script reads; None where there is no diagnosis."""
    images, numbers = Embedded(SIDE), {"": -1}
    told = []
    for group in groups(material, main, found):
        collection = material.dataset(group.data)
        rows, first = chosen(group), next(iter(group.pairs.values()))
        pairs = []
        for row in rows:
            pair = first.iloc[row]
            address = (images.address(collection.image(str(pair["item_id"]))) if collection else None) or ""
            truth, back = pair["truth"], pair["back"]
            pairs.append(
                {
                    "image": numbers.setdefault(address, len(numbers) - 1),
                    "item": plain(str(pair["item_id"])),
                    "source": plain(str(pair["source_text"])),
                    "text": plain(str(pair["translation"])),
                    "back": plain(back) if isinstance(back, str) else None,
                    "truth": truth if isinstance(truth, str) else None,
                    "rare": bool(pair["support"] < RARE),
                    **{key: _each(group, column, row) for key, column in _FIGURES.items()},
                    "noisy": [str(table["verdict"].iloc[row]) == "noisy" for table in group.pairs.values()],
                }
            )
        runs = [plain(group.runs[label]) for label in group.pairs]
        start = next((i for i, label in enumerate(group.pairs) if label == found.method), 0)
        known = {"name": group.name, "lang": group.lang, "runs": runs, "first": start}
        known |= {"source": collection.source_lang if collection else ""}
        told.append({**known, "total": len(first), "pairs": pairs})
    return {"groups": told, "images": [each for each in numbers if each]} if told else None


def _each(group: Group, column: str, row: int) -> list[float | None]:
    values = [float(table[column].iloc[row]) for table in group.pairs.values()]
    return [round(value, 4) if math.isfinite(value) else None for value in values]


def section(told: Mapping[str, Any] | None) -> str:
    """The part of the page, with its data and its script; empty where there are none."""
    if not told:
        return ""
    data = json.dumps(told, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    for char in "<>&\u2028\u2029":
        data = data.replace(char, f"\\u{ord(char):04x}")
    intro = markup.paragraph(
        "Each run's most doubted training pairs, those that runs differ on, and some from all through the rest. "
        "The lower P(clean), the more suspicious."
    )
    quiet = "<noscript><p class=note>Sorting and filtering need JavaScript; the lists above do not.</p></noscript>"
    parts = [intro, quiet, '<div id="explorer" hidden></div>']
    parts.append(f'<script type="application/json" id="explorer-data">{data}</script>\n<script>{SCRIPT}</script>')
    return markup.section("pairs", "Look through the pairs", parts)
