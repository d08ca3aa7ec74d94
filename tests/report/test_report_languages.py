"""Methods x languages x noise, from results of several languages."""

from __future__ import annotations

from typing import Any

import pandas as pd
import pytest

from ccr_cli.report.tables import comparable, retrieval


def view(lang: str, rows: list[tuple[str, float, int, float]], **other: object) -> comparable.View:
    frame = pd.DataFrame(rows, columns=["label", "noise", "seed", "SumR"]).assign(noise_seed=-1)
    frame["key"] = pd.Series([comparable.ViewSetting((("protocol", "full"),))] * len(frame), dtype=object)
    told: dict[str, Any] = {
        "split": "test",
        "role": "target",
        "fusion": "none",
        "zero_shot": False,
        "noise_kind": "caption-translation",
    }
    return comparable.View(f"d test, {lang}", "d", lang=lang, trained_lang=lang, frame=frame, **(told | other))


def views() -> list[comparable.View]:
    german = [("infonce", 0.4, 0, 100.0), ("infonce", 0.4, 1, 110.0), ("uml", 0.4, 0, 200.0), ("uml", 0.4, 1, 204.0)]
    french = [("infonce", 0.4, 0, 50.0), ("uml", 0.4, 0, 80.0), ("uml", 0.4, 1, 90.0), ("basic", 0.0, 0, 10.0)]
    return [view("fr", french), view("de", german)]


def test_a_column_a_language_and_the_mean_of_runs_that_have_all() -> None:
    table = retrieval.languages(comparable.same_but_language(views()))
    assert table is not None
    shown = [[table.printed(r, c) for c in range(len(table.columns))] for r in range(len(table.rows))]
    assert [column.title for column in table.columns] == ["noise", "method", "de", "fr", "mean", "n"]
    assert shown == [
        ["0%", "basic", "\u2013", "10.0", "\u2013", "1"],
        ["40%", "infonce", "105.0 ± 7.1", "50.0", "75.0", "1 to 2"],
        ["40%", "uml", "202.0 ± 2.8", "85.0 ± 7.1", "143.5 ± 4.9", "2"],
    ]
    assert table.places() == {(2, 2): 1, (2, 3): 1, (2, 4): 1}


@pytest.mark.parametrize(
    "other",
    [{"role": "source"}, {"fusion": "0.8raw"}, {"split": "val"}, {"zero_shot": True}, {"trained_lang": "de"}],
)
def test_other_settings_are_not_mixed_in(other: dict[str, object]) -> None:
    first, second = views()
    different = comparable.View(**{**vars(second), "lang": "cs", "trained_lang": "cs", **other})
    assert [each.lang for each in comparable.same_but_language([first, different])] == ["fr"]
    assert retrieval.languages(comparable.same_but_language([first, different])) is None
    assert comparable.same_but_language([]) == []
