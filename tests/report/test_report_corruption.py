"""Corrupted queries beside intact ones: which belong together, the table, the densities."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import fakes as fake
import numpy as np
import pandas as pd
import pytest

from ccr_cli.artifacts.signature import Signature
from ccr_cli.report.content import ReportData
from ccr_cli.report.figures import canvas, uncertainty
from ccr_cli.report.figures.uncertainty import shown_levels
from ccr_cli.report.tables import comparable
from ccr_cli.report.tables.corruption import CorruptionLevel, intact, table


def result(corrupt: str, total: float, uncertainty: float | None, seed: int = 0, label: str = "uml") -> Any:
    """A result of one run, as `ccr evaluate --corrupt` writes it."""
    signed = fake.signature("es", 0.4, seed, "none")
    if corrupt:
        signed = signed.replace("protocol:full|", f"protocol:full-corrupt-{corrupt}|")
    figures = {"R@1": 1.0, "R@5": 2.0, "R@10": 3.0, "MedR": 4.0, "MeanR": 5.0, "mAP": 6.0, "MRR": 7.0, "queries": 9}
    entry: dict[str, Any] = {
        "run": f"{label}{seed}",
        "data": "toy-emoji",
        "split": "test",
        "lang": "es",
        "caption_set": "names",
    }
    entry |= {"role": "target", "fusion": "none", "method": label, "label": label, "noise": 0.4, "seed": seed}
    entry |= {"signature": signed, "t2v": figures, "v2t": figures, "SumR": total, "zero_shot": False}
    entry |= {"uncertainty": {"t2v": uncertainty, "v2t": uncertainty / 2}} if uncertainty is not None else {}
    entry |= {"corrupt": corrupt} if corrupt else {}
    return f"{label}{seed}", entry


def material() -> ReportData:
    """Two seeds of uml, of which one was corrupted by 60% too; infonce has no uncertainty; basic was left intact."""
    whole = [result("", 200.0, 0.1), result("", 204.0, 0.3, seed=1), result("", 150.0, None, label="infonce")]
    worse = [result("drop0.3-seed0", 150.0, 0.4), result("drop0.3-seed0", 160.0, 0.6, seed=1)]
    worse += [result("drop0.6-seed0", 99.0, 0.9), result("drop0.3-seed0", 110.0, None, label="infonce")]
    return ReportData(results=[*whole, result("", 120.0, None, label="basic")], corrupted=worse)


@pytest.mark.parametrize(
    ("plain", "worse"),
    [
        ("full", "full-corrupt-drop0.3-seed0"),
        ("coco-1k-5fold", "coco-1k-5fold-corrupt-shuffle1e-05-seed0"),
        ("labelled-without-3,8", "labelled-corrupt-features0.3-seed0-without-3,8"),
        ("zero-shot", "zero-shot-full-corrupt-drop0.3-seed0"),
        ("zero-shot-from:a@0a1b2c3d", "zero-shot-full-corrupt-drop0.3-seed0-from:a@0a1b2c3d"),
        ("zero-shot-coco-5k", "zero-shot-coco-5k-corrupt-replace0.3-seed0"),
    ],
)
def test_a_corrupted_result_belongs_to_the_intact_one(plain: str, worse: str) -> None:
    """The names are those that `ccr evaluate` gives."""
    signed = Signature.parse(fake.signature("es", 0.4, 0, "none", data="x-corrupt-1-seed0"))
    one, other = ({"signature": str(replace(signed, protocol=name))} for name in (plain, worse))
    assert intact(other) == one["signature"] == intact(one) and one != other


def test_levels_are_read_and_chosen() -> None:
    assert CorruptionLevel.of({}) == CorruptionLevel() and CorruptionLevel.of(
        {"corrupt": "drop0.3-seed0"}
    ) == CorruptionLevel("drop", 0.3)
    assert CorruptionLevel.of({"corrupt": "shuffle1e-05-seed0"}) == CorruptionLevel("shuffle", 1e-5)
    assert [CorruptionLevel().name, CorruptionLevel("drop", 0.3).name] == ["intact", "drop 30%"]
    many = [CorruptionLevel("drop", share) for share in (0.9, 0.1, 0.3, 0.5, 0.7)]
    assert [each.share for each in shown_levels([CorruptionLevel(), CorruptionLevel("features", 0.3), *many])] == [
        0,
        0.1,
        0.5,
        0.9,
    ]
    assert shown_levels([CorruptionLevel()]) == [] and shown_levels(
        [CorruptionLevel(), CorruptionLevel("shuffle", 0.3)]
    ) == [CorruptionLevel(), CorruptionLevel("shuffle", 0.3)]


def test_the_table_has_levels_as_columns_and_means_over_seeds() -> None:
    told = material()
    (view,) = comparable.views(comparable.results_frame(told.results))
    made = table(told, view)
    assert made is not None
    keys = [column.key for column in made.columns]
    names = ["intact", "drop0.3", "drop0.6"]
    assert keys == ["noise", "method", "n"] + [
        f"{figure}_{name}" for figure in ("sumr", "t2v_uncertainty", "v2t_uncertainty") for name in names
    ]
    rows = {str(row.cells[1].value): dict(zip(keys, row.cells, strict=True)) for row in made.rows}
    assert list(rows) == ["infonce", "uml"], "nothing was corrupted of basic"
    values = {key: cell.value for key, cell in rows["uml"].items()}
    assert [values[f"sumr_{name}"] for name in names] == [202.0, 155.0, 99.0]
    assert [values[f"t2v_uncertainty_{name}"] for name in names] == pytest.approx([0.2, 0.5, 0.9])
    assert [values[f"v2t_uncertainty_{name}"] for name in names] == pytest.approx([0.1, 0.25, 0.45])
    assert rows["uml"]["n"].shown == "1 to 2" and rows["uml"]["sumr_drop0.3"].sd == pytest.approx(50**0.5)
    assert rows["infonce"]["sumr_drop0.6"].value is None and rows["infonce"]["t2v_uncertainty_intact"].value is None
    best = {(made.rows[r].cells[1].value, keys[c]) for r, c in fake.best_cells(made)}
    assert best == {("uml", "sumr_intact"), ("uml", "sumr_drop0.3")}, "uncertainties do not compete"
    assert "may be due to chance" in " ".join(made.notes)
    assert table(ReportData(results=told.results), view) is None


def test_densities_are_of_the_queries_of_each_level() -> None:
    rng = np.random.default_rng(0)
    found = {}
    for share in (0.0, 0.3, 0.6):
        t2v, v2t = rng.normal(1 + share, 0.1, 400), rng.normal(2 + share, 0.1, 300)
        frame = pd.DataFrame({"direction": ["t2v"] * 400 + ["v2t"] * 300, "uncertainty": np.r_[t2v, v2t]})
        found[CorruptionLevel("drop", share) if share else CorruptionLevel()] = frame
    found[CorruptionLevel()].loc[0, "uncertainty"] = 1e6  # one far out does not press the others together
    with canvas.drawing():
        figure = uncertainty.corruption_densities({"uml": found})
        assert figure is not None and uncertainty.corruption_densities({}) is None
        assert canvas.to_png(figure).startswith(b"\x89PNG")
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["intact", "drop 30%", "drop 60%"]
    for ax, direction in zip(figure.axes, ("t2v", "v2t"), strict=True):
        low, high = ax.get_xlim()
        assert high < 10
        for patch, frame in zip(ax.patches[1::2], found.values(), strict=True):
            x, y = np.asarray(patch.get_path().vertices).T
            values = frame.loc[frame["direction"] == direction, "uncertainty"].clip(low, high)
            counts, edges = np.histogram(values, np.linspace(low, high, uncertainty.BINS + 1), density=True)
            heights = [y[np.isclose(x, middle, atol=1e-9)].max(initial=0) for middle in edges[:-1]]
            assert np.all(np.asarray(heights) >= counts - 1e-9) and max(heights) == pytest.approx(counts.max())
        means = [frame.loc[frame["direction"] == direction, "uncertainty"].mean() for frame in found.values()]
        assert ax.texts[0].get_text() == f"mean {' → '.join(f'{mean:.3g}' for mean in means)}"
