"""Systems side by side: what each costs, and that validation alone chooses, the cheapest of the best."""

from dataclasses import replace
from functools import partial

import fakes as fake
import numpy as np
import pandas as pd
import pytest

from ccr_cli.artifacts import signature
from ccr_cli.report.tables import comparable
from ccr_cli.report.tables.differences import QueryRanks
from ccr_cli.report.tables.systems import VALIDATION, SystemCost, choice, systems
from ccr_cli.report.words.numbers import MISSING

ITEMS = 100
COSTS = {
    "zero": SystemCost(0.0, 50.0, 2.0, 400e6, 350e6),
    "small": SystemCost(60.0, 2000.0, 2.0, 10e6, 350e6, ("en", "es"), ("cpu",)),
    "large": SystemCost(600.0, 40.0, 2.0, 400e6, 350e6, ("en", "es"), ("cuda",)),
}
Found = dict[str, dict[str, range]]
"""By language and run, the items that are found."""


def made(test: Found, validation: Found) -> tuple[pd.DataFrame, comparable.View, QueryRanks]:
    """Results of runs with the ranks of their queries."""
    rows, rankings = [], {}
    for split, found in (("test", test), (VALIDATION, validation)):
        for lang, runs in found.items():
            for label, right in runs.items():
                sign = fake.signature(lang, 0.0, 0, "none").replace("split:test", f"split:{split}")
                place = np.where(np.isin(np.arange(ITEMS), list(right)), 1.0, 11.0)
                names = [f"i{n}" for n in range(ITEMS)]
                told = {"query_id": names, "item_id": names, "fold": 0, "rank": place, "average_precision": 1 / place}
                ranks = pd.concat([pd.DataFrame({"direction": side, **told}) for side in ("t2v", "v2t")])
                total = 600 * len(right) / ITEMS
                entry: dict[str, object] = {
                    "run": label,
                    "label": label,
                    "method": label,
                    "data": "d",
                    "split": split,
                    "lang": lang,
                }
                entry |= {"caption_set": "c", "role": "target", "fusion": "none", "noise": 0.0, "zero_shot": False}
                ends = {"SumR": [total - 60, total + 60]}
                rows.append((label, entry | {"SumR": total, "seed": 0, "signature": sign, "intervals": ends}))
                rankings[label, sign] = partial(lambda frame: frame, ranks)
    frame = comparable.results_frame(rows)
    main = next(view for view in comparable.views(frame) if view.split == "test" and view.lang == "es")
    return frame, main, QueryRanks(rankings)


TEST: Found = {"es": {"zero": range(20), "small": range(40), "large": range(95)}}


def test_the_table_has_quality_and_cost() -> None:
    frame, main, ranks = made(TEST | {"en": {"zero": range(50)}}, {})
    table = systems(frame, main, COSTS, ranks)
    assert table is not None
    cells = {str(row.cells[0].value): [table.printed(r, c) for c in range(1, 9)] for r, row in enumerate(table.rows)}
    assert cells["zero"] == ["120.0 ± 60.0", "300.0 ± 60.0", MISSING, "none", "50.0", "2.0", "400", "350"]
    assert cells["small"] == ["240.0 ± 60.0", MISSING, "en, es", "60 s", "2,000", "2.0", "10.0", "350"]
    assert [column.title for column in table.columns[1:3]] == ["es", "en"]
    best = {r for (r, c), place in table.places().items() if c == 1 and place == 1}
    assert best == {next(r for r, row in enumerate(table.rows) if row.cells[0].value == "large")}
    assert any("cpu and cuda" in note for note in table.notes)
    assert not any(note.startswith(MISSING) for note in table.notes), "small was not measured in English at all"
    hint = table.notes[0]
    assert choice(frame, main, COSTS, ranks) == "" and all(f"runs/{name}" in hint for name in COSTS)
    assert f"--split {VALIDATION} --lang es --lang en" in hint


def test_a_system_with_other_queries_is_named() -> None:
    frame, main, ranks = made(TEST | {"en": {"zero": range(50)}}, {})
    of_zero = (frame["label"] == "zero") & (frame["lang"] == "es")
    frame.loc[of_zero, "signed"] = frame.loc[of_zero, "signed"].map(lambda signed: replace(signed, q="mt-100-0a1b2c3d"))
    table = systems(frame, main, COSTS, ranks)
    assert table is not None
    (note,) = [note for note in table.notes if note.startswith(f"{MISSING} in es")]
    assert "zero" in note and "small" not in note and "ccr evaluate RUN RUN --lang es" in note
    (row,) = [r for r, row in enumerate(table.rows) if row.cells[0].value == "zero"]
    assert table.printed(row, 1) == MISSING


@pytest.mark.parametrize(
    ("validation", "chosen"),
    [
        ({"zero": range(20), "small": range(40), "large": range(60)}, "large for es (best of 3"),
        ({"zero": range(20), "small": range(1, 60), "large": range(60)}, "small for es (SumR 354.0, level"),
        (
            {"zero": range(1, 60), "small": range(1, 60), "large": range(60)},
            "zero for es (SumR 354.0, level with large",
        ),
        ({"zero": range(80), "small": range(60), "large": range(10)}, "zero for es (best of 3"),
        ({"small": range(40), "large": range(60)}, "large for es (best of 2"),
    ],
)
def test_validation_chooses_the_cheapest_of_the_best(validation: dict[str, range], chosen: str) -> None:
    frame, main, ranks = made(TEST, {"es": validation})
    sentence = choice(frame, main, COSTS, ranks)
    assert f"use {chosen}" in sentence
    table = systems(frame, main, COSTS, ranks)
    assert table is not None and table.notes[0] == sentence and table.title.endswith("d test")


def test_languages_are_chosen_one_by_one_and_costs_may_be_unknown() -> None:
    of_es, of_en = {"zero": range(20), "large": range(60)}, {"zero": range(60), "large": range(1, 60)}
    frame, main, ranks = made(TEST, {"es": of_es, "en": of_en})
    for costs in (COSTS, {}):
        sentence = choice(frame, main, costs, ranks)
        assert "use large for es (best of 2, SumR 360.0) and zero for en (best of 2, SumR 360.0)" in sentence


def test_without_ranks_intervals_decide_and_queries_as_they_are_come_first() -> None:
    frame, main, _ = made(TEST, {"es": {"zero": range(50), "large": range(60)}})
    assert "use zero for es" in choice(frame, main, COSTS, QueryRanks())
    translated = frame.replace({"label": {"large": f"large ({signature.TRANSLATE_TEST})"}})
    equal = {"zero": COSTS["zero"], "large": COSTS["zero"]}
    assert "use zero for es" in choice(translated, main, equal, QueryRanks())


def test_one_system_is_no_choice() -> None:
    frame, main, ranks = made({"es": {"zero": range(20)}}, {"es": {"zero": range(20)}})
    assert systems(frame, main, COSTS, ranks) is None and choice(frame, main, COSTS, ranks) == ""
    noisy = frame.assign(noise=0.4)
    assert systems(noisy, main, COSTS, ranks) is None
