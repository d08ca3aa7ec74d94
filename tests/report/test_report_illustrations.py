"""The figures that stand for those of papers: what is drawn is what the data say, and nothing without data."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import toy
from matplotlib.container import ErrorbarContainer
from PIL import Image

from ccr_cli.metrics.calibration import reliability
from ccr_cli.report.content import ReportData
from ccr_cli.report.figures import (
    canvas,
    curves,
    examples,
    judges,
    lengths,
    uncertainty,
)
from ccr_cli.report.figures.figure import FigureData
from ccr_cli.report.page import compose
from ccr_cli.report.tables import comparable
from ccr_cli.report.words.findings import Findings


def results(**columns: Any) -> pd.DataFrame:
    return pd.DataFrame({"seed": 0, "noise_seed": -1, "noise": 0.4, **columns})


def view(frame: pd.DataFrame, lang: str = "es") -> comparable.View:
    return comparable.View("d test", "d", "test", lang, "target", "none", False, "caption-translation", lang, frame)


def test_a_curve_is_of_runs_that_differ_in_one_option() -> None:
    frame = results(run_id=list("abcdef"), label=["uml", *["uml [beta=x]"] * 4, "infonce"], SumR=[1.0, 2, 3, 4, 9, 5])
    options: dict[str, dict[str, Any]] = {
        run: {"beta": beta, "dim": 8, "judge": "none", "on": True}
        for run, beta in zip("abcde", (0.1, 0.3, 0.9, 0.9, 0.5), strict=True)
    }
    options["e"]["dim"] = 16
    (curve,) = curves.option_curves(frame, options)
    assert (curve.method, curve.option, curve.noise) == ("uml", "beta", 0.4)
    assert list(curve.frame["value"]) == [0.1, 0.3, 0.9, 0.9] and list(curve.frame["run_id"]) == list("abcd")
    with canvas.drawing():
        figure = curves.sweep([curve], "SumR", "SumR")
    assert figure is not None
    line = figure.axes[0].lines[0]
    assert np.asarray(line.get_xdata()).tolist() == [0.1, 0.3, 0.9] and np.asarray(line.get_ydata()).tolist() == [
        1.0,
        2.0,
        3.5,
    ]
    assert curves.option_curves(frame, {run: options[run] for run in "ab"}) == []
    assert curves.sweep([], "SumR", "SumR") is None


def test_an_option_over_magnitudes_has_a_logarithmic_axis() -> None:
    frame = results(run_id=list("abc"), label="tcl", SumR=[1.0, 2.0, 3.0])
    found = curves.option_curves(frame, {r: {"tau": t} for r, t in zip("abc", (0.01, 0.1, 1.0), strict=True)})
    with canvas.drawing():
        figure = curves.sweep(found, "SumR", "SumR")
        assert figure is not None
        canvas.settle(figure)
    assert figure.axes[0].get_xscale() == "log"
    assert [text.get_text() for text in figure.axes[0].get_xticklabels()] == ["0.01", "0.1", "1"]


def evidence(number: int, sharp: float) -> tuple[int, pd.DataFrame]:
    rng = np.random.default_rng(number)
    wrong = np.arange(100) < 40
    p = np.clip(np.where(wrong, 0.5 - sharp, 0.5 + sharp) + rng.normal(0, 0.1, 100), 0, 1)
    slots = [f"s{i}" for i in range(100)]
    return number, pd.DataFrame({"slot_id": slots, "p_clean": p, "sim_vt": p / 2})


TRUTH = pd.Series(np.arange(100) < 40, index=[f"s{i}" for i in range(100)])


@pytest.mark.parametrize(("count", "drawn"), [(1, [0]), (2, [0, 1]), (3, [0, 1, 2]), (8, [0, 3, 7])])
def test_three_epochs_are_drawn(count: int, drawn: list[int]) -> None:
    told = [evidence(number + 1, 0.1 * number) for number in range(count)]
    with canvas.drawing():
        figure = judges.evidence_by_epoch(told, TRUTH)
    assert figure is not None
    assert [ax.get_title(loc="left") for ax in figure.axes[: len(drawn)]] == [f"epoch {n + 1}" for n in drawn]
    for ax in figure.axes:
        heights = [patch.get_extents().y1 for patch in ax.patches]
        assert max(heights) <= ax.get_window_extent().y1 + 1, "nothing is cut off"


def test_densities_have_area_one_and_say_how_far_both_are_apart() -> None:
    with canvas.drawing():
        figure = judges.evidence_by_epoch([evidence(1, 0.4)], TRUTH)
    assert figure is not None
    assert [text.get_text() for text in figure.axes[0].texts] == ["AUROC 1.00"]
    outline: Any = figure.axes[0].patches[0]
    xy = outline.get_xy()
    assert abs(0.5 * float(np.sum(xy[:-1, 0] * xy[1:, 1] - xy[1:, 0] * xy[:-1, 1]))) == pytest.approx(1.0)
    assert (
        judges.evidence_by_epoch([evidence(1, 0.4)], TRUTH & False) is None
        and judges.evidence_by_epoch([], TRUTH) is None
    )


def test_uncertainties_and_losses_need_their_data() -> None:
    pairs = pd.DataFrame({"uncertainty": np.linspace(0, 1, 100), "truth": np.where(TRUTH, "noisy", "clean")})
    history = pd.DataFrame({"epoch": [1, 2], "loss.a": [1e3, 1.0], "loss.b": [5.0, 2.0], "loss.total": [1005.0, 3.0]})
    with canvas.drawing():
        figure = judges.uncertainties({"tcl": pairs, "uml": pairs.assign(truth=None)})
        terms = curves.losses({"uml": history, "basic": history[["epoch"]]})
        assert terms is not None
        canvas.settle(terms)
    assert figure is not None and [ax.get_title(loc="left") for ax in figure.axes] == ["tcl"]
    assert [line.get_label() for line in terms.axes[0].lines] == ["a", "b", "sum"]
    assert terms.axes[0].get_yscale() == "log" and "$" not in "".join(
        t.get_text() for t in terms.axes[0].get_yticklabels()
    )
    assert judges.uncertainties({"uml": pairs.assign(truth=None)}) is None and curves.losses({}) is None


def test_trivial_scores_stand_beside_the_uncertainty() -> None:
    curve = {"coverage": [0.5, 1.0], "risk": [0.1, 0.4], "aurc": 0.25, "aurc_random": 0.4}
    trivial = {"top similarity": {"coverage": [0.5, 1.0], "risk": [0.3, 0.4], "aurc": 0.35}}
    with canvas.drawing():
        both = uncertainty.risk_curves({"uml": {**curve, "trivial": trivial}, "tcl": curve}, "t")
        one = uncertainty.risk_curves({"uml": curve, "tcl": curve})
    assert both is not None and one is not None
    named = {ax.get_title(loc="left"): ax.get_legend_handles_labels()[1] for ax in both.axes}
    assert named == {"tcl": ["uncertainty (0.250)"], "uml": ["uncertainty (0.250)", "top similarity (0.350)"]}
    assert len(one.axes) == 1 and one.axes[0].get_legend_handles_labels()[1] == ["tcl (0.250)", "uml (0.250)"]


def test_reliability_and_deletion_draw_what_was_measured() -> None:
    rng = np.random.default_rng(0)
    unc = rng.random(500)
    told = reliability(unc, np.where(rng.random(500) < unc, 2.0, 1.0))
    point = {"rate": 0.5, "map_kept": 40.0}
    curves = {"uncertainty": [{"rate": 0.0, "map_kept": 30.0}, point], "similarity": [{"rate": 0.9, "map_kept": None}]}
    with canvas.drawing():
        figure = uncertainty.reliability({"uml": told})
        deleted = uncertainty.deletion_curves({"fume": {"t2v": curves, "v2t": curves}})
    assert figure is not None and deleted is not None
    assert np.allclose(figure.axes[0].lines[1].get_ydata(), told.accuracy) and figure.axes[0].get_ylim() == (0.0, 1.0)
    low = reliability(0.9 + unc / 100, np.where(np.arange(500) % 25 == 0, 1.0, 2.0))
    with canvas.drawing():
        near = uncertainty.reliability({"uml": low})
    assert near is not None and near.axes[0].get_xlim() == near.axes[0].get_ylim() == (0.0, 0.2)
    by_u, by_s = deleted.axes[0].lines
    assert np.asarray(by_u.get_ydata()).tolist() == [30.0, 40.0] and np.isnan(np.asarray(by_s.get_ydata(), float)).all()
    empty = reliability([], [])
    assert uncertainty.reliability({"uml": empty}) is None and uncertainty.deletion_curves({}) is None


def test_only_stated_probabilities_are_held_against_what_happens() -> None:
    frame = results(run_id=["a", "b"], label=["uml", "infonce"], SumR=[1.0, 2.0], signature="s", run="a", noise=0.4)
    ranks = pd.DataFrame({"direction": "t2v", "rank": [1.0, 2.0] * 10, "uncertainty": [0.1, 0.8] * 10})
    known = [
        (
            run,
            {
                "label": label,
                "data": "d",
                "lang": "es",
                "noise": 0.4,
                "signature": "s",
                "calibration": {"t2v": {"auroc": 0.7} | told},
            },
        )
        for run, label, told in (("a", "uml", {}), ("b", "infonce", {"ece": 0.1}))
    ]
    material = ReportData(known, rankings={(run, "s"): lambda: ranks for run in "ab"})
    with canvas.drawing():
        made, _ = compose.figures(FigureData(material, [view(frame)], Findings("", (), (), "uml", 0.4), []))
    figure = made["calibration"].figure
    assert figure is not None
    names = figure.axes[0].get_legend_handles_labels()[1]
    assert len(names) == 1 and names[0].startswith("infonce (ECE ")


def test_precision_is_drawn_against_recall() -> None:
    recalls = [tenth / 10 for tenth in range(11)]
    told = {"recall": recalls, "t2v": [90.0 - 5 * n for n in range(11)], "v2t": [80.0 - 5 * n for n in range(11)]}
    with canvas.drawing():
        figure = uncertainty.precision_curves({"infonce": told, "fume": told})
    assert figure is not None
    for ax, side in zip(figure.axes, ("t2v", "v2t"), strict=True):
        assert [line.get_label() for line in ax.lines] == ["infonce", "fume"]
        for line in ax.lines:
            assert list(np.asarray(line.get_xdata())) == recalls and list(np.asarray(line.get_ydata())) == told[side]
    assert uncertainty.precision_curves({}) is None


def test_categories_left_out_stand_beside_the_others() -> None:
    left_out = np.arange(100) < 30
    unc = np.where(left_out, 0.2, 0.8) + np.linspace(0, 0.1, 100)
    table = pd.DataFrame({"direction": "t2v", "left_out": left_out, "uncertainty": unc, "entropy": unc**2})
    table = pd.concat([table, table.assign(direction="v2t", uncertainty=1 - unc)])
    with canvas.drawing():
        figure, dots = (
            uncertainty.outside_densities({"a": {"fume": table}}),
            uncertainty.entropy({"a": {"fume": table}}),
        )
    assert figure is not None and dots is not None
    said = [[text.get_text() for text in ax.texts] for ax in (*figure.axes, *dots.axes)]
    assert said == [["AUROC 0.00"], ["AUROC 1.00"], ["rank correlation 1.00"], ["rank correlation \u22121.00"]]
    for ax in figure.axes:
        assert max(patch.get_extents().y1 for patch in ax.patches) <= ax.get_window_extent().y1 + 1
    inside, strange = dots.axes[0].lines
    assert np.allclose(np.asarray(strange.get_ydata(), float), unc[left_out] ** 2)
    assert len(np.asarray(inside.get_xdata())) == 70
    with canvas.drawing():
        alone = uncertainty.outside_densities({"a": {"uml": table[table["direction"] == "t2v"]}})
        several = uncertainty.outside_densities({"half": {"fume": table, "uml": table}, "others": {"uml": table}})
    assert alone is not None and [ax.get_visible() for ax in alone.axes] == [True, False]
    assert several is not None and [ax.get_title(loc="left") for ax in several.axes[::2]] == [
        *("fume: text queries\nhalf", "uml: text queries\nhalf", "uml: text queries\nothers")
    ]
    assert (
        uncertainty.outside_densities({}) is None
        and uncertainty.entropy({"a": {"fume": table.assign(entropy=np.nan)}}) is None
    )


def test_every_kind_of_queries_outside_is_drawn() -> None:
    table = pd.DataFrame(
        {"direction": "t2v", "left_out": [True, False] * 5, "uncertainty": np.arange(10.0), "entropy": np.nan}
    )
    known = {("r", "s", kind): lambda: table for kind in ("noto-emoji@0a1b2c3d", "half-seed0")}
    frame = results(run_id=["r"], label=["uml"], SumR=[1.0], signature="s", run="r")
    told = {"data": "d", "lang": "es", "signature": "s", "label": "uml"}
    seen = FigureData(ReportData([("r", told)], outside=known), [view(frame)], Findings("", (), (), "uml", 0.4), [])
    assert {kind: list(tables) for kind, tables in seen.outside.items()} == {
        "half-seed0": ["uml"],
        "noto-emoji@0a1b2c3d": ["uml"],
    }
    with canvas.drawing():
        made = compose.figures(seen)[0]["outside"]
    assert made.figure is not None and len(made.figure.axes) == 4
    assert made.caption.startswith("Without a match: queries whose items were removed; captions of noto-emoji.")
    other = ("q", told | {"label": "fume"})
    later = known | {("q", "s", "noto-emoji@9a1b2c3d"): lambda: table}
    both = FigureData(
        ReportData([("r", told), other], outside=later), [view(frame)], Findings("", (), (), "uml", 0.4), []
    )
    with canvas.drawing():
        again = compose.figures(both)[0]["outside"]
    assert again.figure is not None and len(again.figure.axes) == 6, "two states of a data set leave both their methods"


def test_recall_by_length_is_that_of_each_class() -> None:
    asked = {f"q{i}": n for i, n in enumerate([1] * 10 + [2] * 10 + [3] * 4 + [9] * 1)}
    ids = list(asked)
    one = pd.DataFrame({"query_id": ids, "rank": [5.0] * 10 + [6.0] * 10 + [1.0, 9, 9, 9, 1.0]})
    two = pd.DataFrame({"query_id": ids[::-1], "rank": [9.0] * 25})
    items = pd.Series([f"i{number // 3}" for number in range(len(ids))], ids)
    found = lengths.by_length({"infonce": [one, two], "uml": [one], "gone": []}, pd.Series(asked), items, "infonce")
    assert found is not None and found.names[0] == "1" and sum(found.count) == 25
    direct = one.assign(n=[asked[i] for i in ids])
    low = [int(name.partition("\u2013")[0]) for name in found.names]
    high = [int(name.rpartition("\u2013")[2]) for name in found.names]
    want = [50 * float((direct[direct["n"].between(a, b)]["rank"] <= 5).mean()) for a, b in zip(low, high, strict=True)]
    assert found.recall["infonce"][0] == pytest.approx(want)
    assert list(found.gain) == ["uml"] and found.gain["uml"][0] == pytest.approx(want)
    assert lengths.by_length({"a": [one]}, pd.Series(3, ids), items) is None
    assert lengths.by_length({}, pd.Series(asked), items) is None
    with canvas.drawing():
        figure, alone = (lengths.draw(each, "words", "infonce") for each in (found, replace(found, gain={})))
    assert figure is not None and len(figure.axes) == 2 and alone is not None and len(alone.axes) == 1
    assert [text.get_text().splitlines()[-1] for text in figure.axes[0].get_xticklabels()] == [
        f"n = {count}" for count in found.count
    ]
    spans = [
        part.lines[2][0].get_segments() for part in figure.axes[0].containers if isinstance(part, ErrorbarContainer)
    ]
    ends = np.array(spans)[:, :, :, 1]
    assert np.allclose(ends[0], found.recall["infonce"][1:].T)
    outside_its_own = found.recall["uml"].copy()
    outside_its_own[1] = outside_its_own[0] + 1e-14
    with canvas.drawing():
        assert lengths.draw(replace(found, recall={"uml": outside_its_own}, gain={}), "words", None) is not None


def test_intervals_by_length_are_of_items_drawn_with_all_their_queries() -> None:
    rng = np.random.default_rng(3)
    ids = [f"q{i}" for i in range(240)]
    asked, items = {q: 1 + i % 2 for i, q in enumerate(ids)}, {q: f"i{i // 6}" for i, q in enumerate(ids)}
    easy = np.repeat(rng.random(40) < 0.5, 6)  # an item is found by all its queries, or by none
    ranks = {"infonce": np.where(easy, 1.0, 9.0), "uml": np.where(easy | (rng.random(240) < 0.2), 1.0, 9.0)}
    frames = {label: [pd.DataFrame({"query_id": ids, "rank": rank})] for label, rank in ranks.items()}
    found = lengths.by_length(frames, pd.Series(asked), pd.Series(items), "infonce")
    assert found is not None and found.names == ["1", "2"]
    for place in (0, 1):
        hits = {k: 100.0 * (rank.reshape(40, 6)[:, place::2] <= 5) for k, rank in ranks.items()}
        drawn = np.random.default_rng(9).integers(0, 40, (4000, 40))
        for told, value in ((found.recall["uml"], hits["uml"]), (found.gain["uml"], hits["uml"] - hits["infonce"])):
            low, high = np.percentile(value[drawn].mean(axis=(1, 2)), [2.5, 97.5])
            assert told[0][place] == pytest.approx(value.mean())
            assert tuple(told[1:, place]) == pytest.approx((low, high), abs=3.0)
    spread = np.ptp(found.recall["infonce"][1:], axis=0)
    assert (spread > 25).all(), "queries of one item are not independent: by query it would be 18"
    narrow = np.ptp(found.gain["uml"][1:], axis=0)
    assert (narrow < 0.7 * spread).all(), "the same items are drawn for both"


def judged(p: list[float]) -> pd.DataFrame:
    n = len(p)
    return pd.DataFrame(
        {
            "slot_id": [f"s{i}" for i in range(n)],
            "lang": "es",
            "translation": [f"t{i}" for i in range(n)],
            "item_id": [f"i{i}" for i in range(n)],
            "source_text": "a <b>dog</b> $x^2$ \u202e" * 40,
            "back": None,
            "truth": "noisy",
            "p_clean": p,
            "sim_vt": p,
        }
    )


def test_pairs_are_chosen_by_rule() -> None:
    tables = {"infonce": judged([0.9, 0.8, 0.1, 0.7, 0.9]), "uml": judged([0.9, 0.1, 0.0, 0.7, 0.9]).iloc[::-1]}
    chosen = examples.choose(tables)
    assert [(each.why, each.texts["slot_id"]) for each in chosen] == [
        ("believed by all", "s4"),
        ("where the runs differ most", "s1"),
        ("least believed by all", "s2"),
    ]
    assert chosen[1].p_clean == {"infonce": 0.8, "uml": 0.1}
    assert examples.choose({"uml": judged([0.5])}) == []


def test_a_pair_without_picture_and_with_odd_texts_is_drawn(tmp_path: Path) -> None:
    Image.new("RGB", (30, 10), "red").save(tmp_path / "a.png")
    chosen = examples.choose({"infonce": judged([0.9, 0.1]), "uml": judged([0.9, 0.2])})
    with canvas.drawing():
        figure = examples.draw_pairs(chosen, lambda item: tmp_path / "a.png" if item == "i0" else None, "t", "de")
        assert figure is not None
        svg = canvas.to_svg(figure)
    assert svg.count("<image ") == 1 and {"no image", "de", "es"} <= {text.get_text() for text in figure.axes[0].texts}
    assert examples.draw_pairs([], lambda item: None) is None
    with canvas.drawing():
        bare = examples.draw_pairs(chosen, lambda item: None)
    assert bare is not None and "no image" not in [text.get_text() for text in bare.axes[0].texts]
    assert bare.get_figheight() < figure.get_figheight(), "no room is left for what none of them has"
    long = "uml [epochs=3, cross_lingual_weight=0.5, judge two-group, first 5 %]"
    several = examples.choose({"infonce": judged([0.9, 0.1]), long: judged([0.9, 0.2])})
    with canvas.drawing():
        named = examples.draw_pairs(several, lambda item: None)
    assert named is not None and named.get_figheight() > bare.get_figheight()
    assert long in {text.get_text().replace("\n", " ") for text in named.axes[0].texts}, "no name is cut"


def test_a_panel_a_language() -> None:
    frame = results(run_id=list("abcd"), label=["uml", "uml", "infonce", "infonce"], SumR=[1.0, 2.0, 3.0, 4.0])
    frame["noise"] = [0.0, 0.4] * 2
    with canvas.drawing():
        figure = curves.by_language([view(frame, "de"), view(frame, "fr")])
    assert figure is not None and [ax.get_title(loc="left") for ax in figure.axes] == ["de", "fr"]
    assert curves.by_language([view(frame)]) is None


def test_what_is_not_there_is_named_with_its_command() -> None:
    frame = results(run_id=["a"], label=["uml"], SumR=[1.0], signature="s", run="a")
    seen = FigureData(ReportData([]), [view(frame)], Findings("", (), (), "uml", 0.4), [])
    with canvas.drawing():
        made, missing = compose.figures(seen)
    assert set(made) == {"sumr"}
    assert len(missing) == len(compose.FIGURES) - 1 and all(kind.command.startswith("ccr ") for kind in missing)


def test_the_commands_that_are_named_exist() -> None:
    known: dict[str, str] = {}
    for kind in compose.FIGURES:
        for part in re.split(r", then | \| ", kind.command):
            name, flags = part.split()[1], re.findall(r"--[a-z-]+", part)
            if name not in known:
                done = toy.ccr(name, "--help")
                assert done.code == 0, part
                known[name] = done.out
            assert all(flag in known[name] for flag in flags), part
