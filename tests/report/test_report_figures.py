"""Figures: the same bytes each time, nothing global touched, nothing drawn from nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
import pandas as pd
import pytest
from matplotlib.axes import Axes
from PIL import Image

from ccr_cli.report.content import ExampleHit, ExampleSearch, TrainingHistory
from ccr_cli.report.figures import canvas, curves, examples, judges, uncertainty
from ccr_cli.report.tables import comparable
from ccr_cli.report.thumbnails import Embedded, thumbnail


def view(ratios: tuple[float, ...] = (0.0, 0.4), labels: tuple[str, ...] = ("infonce", "uml")) -> comparable.View:
    rows = [(m, n, s, 100 - 50 * n + s) for m in labels for n in ratios for s in (0, 1)]
    frame = pd.DataFrame(rows, columns=["label", "noise", "seed", "SumR"])
    return comparable.View("d test", "d", "test", "es", "target", "none", False, "caption-translation", "es", frame)


def pairs(n: int = 200, known: bool = True) -> pd.DataFrame:
    rng = np.random.default_rng(0)
    wrong = rng.random(n) < 0.4
    p = np.clip(np.where(wrong, 0.2, 0.8) + rng.normal(0, 0.2, n), 0, 1)
    truth = np.where(wrong, "noisy", "clean") if known else np.full(n, None, dtype=object)
    verdict = np.where(p < 0.5, "noisy", "clean")
    return pd.DataFrame({"sim_st": p, "sim_vt": p / 2, "p_clean": p, "truth": truth, "verdict": verdict})


def _settings() -> dict[str, object]:
    """All but the backend, which matplotlib chooses when it is asked for."""
    return {key: matplotlib.rcParams[key] for key in matplotlib.rcParams if key != "backend"}


def test_figures_are_made_without_pyplot() -> None:
    sources = Path(canvas.__file__).parent.glob("*.py")
    assert not [
        path.name for path in sources if "import pyplot" in path.read_text() or "matplotlib.pyplot" in path.read_text()
    ]


@pytest.mark.slow
def test_bytes_are_the_same_each_time_and_settings_stay_as_they_were() -> None:
    before = _settings()
    made = []
    for _ in range(2):
        with canvas.drawing():
            figure = curves.by_noise(view())
            assert figure is not None
            made.append((canvas.to_svg(figure), canvas.to_png(figure), canvas.to_pdf(figure)))
    assert made[0] == made[1]
    assert _settings() == before
    assert "<dc:date>" not in made[0][0] and b"CreationDate" not in made[0][2] and made[0][2][:5] == b"%PDF-"


@pytest.mark.parametrize("ratios", [(0.0,), (0.4,), (0.0, 0.2, 0.4)])
def test_any_number_of_noise_ratios_is_drawn(ratios: tuple[float, ...]) -> None:
    with canvas.drawing():
        assert curves.by_noise(view(ratios, ("basic", "infonce", "uml", "x", "infonce (oracle)"))) is not None


def test_a_band_is_drawn_only_where_there_are_several_runs() -> None:
    def bands(frame: pd.DataFrame) -> int:
        with canvas.drawing():
            figure = curves.by_noise(comparable.View(**{**vars(view()), "frame": frame}))
        assert figure is not None
        return len(
            [path for drawn in figure.axes[0].collections for path in drawn.get_paths() if np.size(path.vertices)]
        )

    frame = view().frame
    assert bands(frame) == 2
    assert bands(frame[(frame["seed"] == 0) | (frame["label"] == "uml")]) == 1
    assert bands(frame[frame["seed"] == 0]) == 0


def test_n_is_the_number_of_runs_behind_the_spread() -> None:
    frame = view(labels=("uml",)).frame.assign(noise_seed=lambda f: f["seed"], seed=0)
    with canvas.drawing():
        figure = curves.by_noise(comparable.View(**{**vars(view()), "frame": frame}))
    assert figure is not None
    assert "band: ± 1 sd\nn = 2" in [text.get_text() for text in figure.axes[0].texts]


def test_a_ceiling_at_one_ratio_is_drawn() -> None:
    frame = view(labels=("infonce", "infonce (oracle)")).frame
    frame = frame[(frame["noise"] > 0) | (frame["label"] == "infonce")]
    with canvas.drawing():
        figure = curves.by_noise(comparable.View(**{**vars(view()), "frame": frame}))
    assert figure is not None
    lone = [line for line in figure.axes[0].lines if np.size(line.get_xdata()) == 1]
    assert [line.get_marker() for line in lone] == ["_"]


def _drawn(points: list[tuple[str, float, float]]) -> Axes:
    frame = pd.DataFrame([(*point, 0) for point in points], columns=["label", "noise", "SumR", "seed"])
    with canvas.drawing():
        figure = curves.by_noise(comparable.View(**{**vars(view()), "frame": frame}))
    assert figure is not None
    return figure.axes[0]


def test_a_method_is_named_where_it_ends() -> None:
    whole = [("uml", 0.0, 90.0), ("uml", 0.4, 50.0)]
    axes = _drawn([*whole, ("tcl", 0.0, 80.0), ("tcl", 0.2, 70.0), ("basic", 0.0, 20.0), ("basic [a=1]", 0.0, 20.1)])
    places = {text.get_text(): text.get_position() for text in axes.texts}
    assert places["uml"][0] > 1 and 0.45 < places["tcl"][0] < 0.6
    assert places["basic"][0] == places["basic [a=1]"][0] < 0.1
    assert places["basic [a=1]"][1] - places["basic"][1] > 0.06, "apart"


def test_a_marker_on_another_is_a_ring() -> None:
    def rings(clean: float, noisy: float) -> list[tuple[float, float]]:
        axes = _drawn([("infonce", 0.0, 90.0), ("infonce", 0.4, 50.0), ("uml", 0.0, clean), ("uml", 0.4, noisy)])
        hollow = [line for line in axes.lines if line.get_markerfacecolor() == "none"]
        assert all(line.get_marker() == "^" and line.get_markersize() > 5.5 for line in hollow)
        (whole,) = (line for line in axes.lines if line.get_marker() == "^" and np.size(line.get_xdata()) == 2)
        filled: object = whole.get_markevery()
        assert isinstance(filled, list) and len(filled) + len(hollow) == 2, "each point once"
        return [(float(np.ravel(line.get_xdata())[0]), float(np.ravel(line.get_ydata())[0])) for line in hollow]

    assert rings(90.2, 60.0) == [(0.0, 90.2)]
    assert rings(85.0, 50.1) == [(40.0, 50.1)] and rings(85.0, 60.0) == []


def test_no_legend_lies_over_the_terms_of_a_loss() -> None:
    names = ["epoch", *(f"loss.term_{n}" for n in range(6)), "loss.total"]
    short = pd.DataFrame(np.arange(3 * len(names)).reshape(3, -1), columns=names)
    with canvas.drawing():
        figure = curves.losses({"uml": short, "infonce": short.iloc[:, :3], "tcl": short, "trine": short})
        assert figure is not None
        canvas.settle(figure)
        for axes in figure.axes:
            legend, label = axes.get_legend(), axes.xaxis.label.get_window_extent()
            assert legend is not None
            assert legend.get_window_extent().y1 <= label.y1 - label.height / 2 < axes.get_window_extent().y0


@pytest.mark.parametrize("ratios", [(0.4,), (0.0, 0.4)])
def test_an_axis_that_leaves_out_zero_says_so(ratios: tuple[float, ...]) -> None:
    def named(frame: pd.DataFrame) -> bool:
        with canvas.drawing():
            figure = curves.by_noise(comparable.View(**{**vars(view()), "frame": frame}))
        assert figure is not None
        axes = figure.axes[0]
        low = (axes.get_ylim() if len(ratios) > 1 else axes.get_xlim())[0]
        assert (low > 0) == (frame["SumR"].min() > 50)
        return "does not start at 0" in axes.get_ylabel() + axes.get_xlabel()

    frame = view(ratios).frame
    assert named(frame) and not named(frame.assign(SumR=frame["SumR"].where(frame["seed"] == 0, 0.0)))


def test_the_axis_of_precision_starts_at_zero() -> None:
    with canvas.drawing():
        figure = judges.roc_and_precision({"uml": pairs()})
    assert figure is not None
    assert figure.axes[1].get_ylabel() == "precision" and figure.axes[1].get_ylim()[0] == 0


def labelled(label: str, history: pd.DataFrame, **facts: Any) -> tuple[str, TrainingHistory]:
    """A run of 40% noise."""
    return label, TrainingHistory(label, 0.4, 0, history, **{"select": "mt", **facts})


def test_runs_that_validated_by_another_figure_are_not_drawn_beside() -> None:
    history = pd.DataFrame({"epoch": [1, 2], "val.SumR": [10.0, 20.0], "val.mAP": [30.0, 40.0], "best": [False, True]})
    both = [labelled("uml", history, criterion="SumR"), labelled("fume", history, criterion="mAP")]
    drawn = {}
    with canvas.drawing():
        for figure in ("SumR", "mAP"):
            made = curves.by_epoch(both, figure)
            assert made is not None and figure in made.axes[0].get_ylabel()
            lines = [np.asarray(line.get_ydata()).tolist() for line in made.axes[0].lines]
            drawn[figure] = [values for values in lines if len(values) == 2]
        assert curves.by_epoch(both[:1], "mAP") is None
    assert drawn == {"SumR": [[10.0, 20.0]], "mAP": [[30.0, 40.0]]}


@pytest.mark.parametrize(("select", "asked"), [("mt", "machine-translated"), ("human", "human")])
def test_the_training_figure_says_which_queries(select: str, asked: str) -> None:
    history = pd.DataFrame({"epoch": [1, 2], "val.SumR": [10.0, 20.0], "best": [False, True]})
    with canvas.drawing():
        figure = curves.by_epoch([labelled("uml", history, select=select)])
    assert figure is not None
    assert figure.axes[0].get_ylabel() == f"validation SumR,\n{asked} queries"


def test_pairs_are_mismatched_whatever_was_moved() -> None:
    with canvas.drawing():
        figure = judges.belief_histograms(pairs())
        assert figure is not None
        svg = canvas.to_svg(figure)
    assert {t.get_text() for t in figure.legends[0].get_texts()} == {"intact", "mismatched"} and "<svg" in svg


def test_nothing_is_drawn_from_nothing() -> None:
    empty = view().frame.iloc[:0]
    with canvas.drawing():
        assert curves.by_noise(comparable.View(**{**vars(view()), "frame": empty})) is None
        assert curves.by_epoch([]) is None
        assert judges.roc_and_precision({"uml": pairs(known=False)}) is None
        assert judges.belief_histograms(pairs(0)) is None
        assert uncertainty.risk_curves({}) is None
        assert examples.strip([]) is None


def test_beliefs_and_judges_are_drawn_with_and_without_a_truth() -> None:
    with canvas.drawing():
        assert judges.belief_histograms(pairs()) is not None
        assert judges.belief_histograms(pairs(known=False)) is not None
        assert judges.roc_and_precision({"uml": pairs(), "infonce": pairs(50)}) is not None


def test_curves_of_judges_agree_with_counting() -> None:
    score = np.array([0.9, 0.9, 0.5, 0.4, 0.1])
    truth = np.array([True, False, True, False, False])
    table = pd.DataFrame({"p_clean": 1 - score, "truth": np.where(truth, "noisy", "clean")})
    with canvas.drawing():
        figure = judges.roc_and_precision({"uml": table})
    assert figure is not None
    roc, pr = (np.asarray(ax.lines[0].get_xydata()) for ax in figure.axes)
    assert roc[0].tolist() == [0, 0] and len(roc) == 5 and len(pr) == 4
    for at, threshold in enumerate([0.9, 0.5, 0.4, 0.1]):
        called = score >= threshold
        recall, false_alarms = (called & truth).sum() / 2, (called & ~truth).sum() / 3
        assert roc[at + 1] == pytest.approx([false_alarms, recall])
        assert pr[at] == pytest.approx([recall, (called & truth).sum() / called.sum()])


def test_labels_are_moved_apart_as_little_as_needed() -> None:
    placed = canvas.spread_apart([0.1, 0.5, 0.51, 0.9], 0.06)
    assert placed == pytest.approx([0.1, 0.475, 0.535, 0.9])
    assert min(np.diff(canvas.spread_apart([0.5] * 6, 0.06))) > 0.0599


def test_oracles_are_dashed_and_methods_keep_their_colours() -> None:
    few, many = canvas.styles(["uml"]), canvas.styles(["basic", "infonce", "other", "uml", "infonce (oracle)"])
    assert few["uml"] == many["uml"] and many["infonce (oracle)"]["linestyle"] != "-"
    assert len({style["color"] for style in many.values()}) == 5


def test_variants_have_the_colour_of_their_method_and_a_line_of_their_own() -> None:
    variants = ["uml", "uml (no S-T)", "uml, no S-T", "uml [beta=0.5]", "uml x3", "uml [judge gmm]"]
    look = canvas.styles(["infonce [epochs=3]", *variants, "infonce + uml", "infonce [beta=1] + uml"])
    assert {look[label]["color"] for label in variants} == {canvas.styles(["uml"])["uml"]["color"]}
    assert len({(repr(look[label]["linestyle"]), look[label]["marker"]) for label in variants}) == len(variants)
    assert look["uml"] == canvas.styles(["uml"])["uml"], "the method itself keeps its line"
    assert look["infonce [epochs=3]"] == canvas.styles(["infonce"])["infonce"], "also where it has options"
    both = look["infonce + uml"], look["infonce [beta=1] + uml"]
    assert both[0]["color"] == both[1]["color"] not in {look["uml"]["color"], look["infonce [epochs=3]"]["color"]}


@pytest.mark.parametrize("ratios", [(0.4,), (0.0, 0.4)])
def test_long_titles_labels_and_legends_stay_within_the_figure(ratios: tuple[float, ...]) -> None:
    long = ("infonce [epochs=3, beta=0.5] + uml [epochs=3, beta=0.5]", "uml [epochs=3, beta=0.5, judge gmm]", "uml")
    seen = view(ratios, long if len(ratios) == 1 else ("infonce", "uml"))
    title = "noto-emoji test, queries in es (captions: keywords and short-name; right answers by item)" * 2
    frames = [labelled(label, pd.DataFrame({"epoch": [1], "val.SumR": [1.0]})) for label in long]
    with canvas.drawing():
        drawn = [curves.by_noise(comparable.View(**{**vars(seen), "title": title})), curves.by_epoch(frames)]
        for figure in drawn:
            assert figure is not None
            canvas.settle(figure)
            all_of_it = figure.get_tightbbox()
            assert all_of_it.x0 > -0.02 and all_of_it.x1 < figure.get_figwidth() + 0.02
    assert drawn[0] is not None and drawn[0].get_suptitle().replace("\n", " ").count("short-name") == 2


def test_scripts_without_a_font_draw_no_warning(tmp_path: Path) -> None:
    Image.new("LA", (64, 20), (9, 128)).save(tmp_path / "a.png")
    found = [ExampleHit("a", "A", 0.5, tmp_path / "a.png", True), ExampleHit("b", "B $x$ <b>", 0.4)]
    queries = ["雪地里的狗", "小さな猫が木の上で眠っている", "कुत्ता", "a very long query " * 9, "x" * 200]
    with canvas.drawing():
        figure = examples.strip([ExampleSearch(q, "zh", found, "a gloss $", "run", 0.1) for q in queries])
        assert figure is not None
        assert canvas.to_png(figure).startswith(b"\x89PNG") and "<svg" in canvas.to_svg(figure)


def test_inline_figures_do_not_share_ids_and_follow_the_page() -> None:
    with canvas.drawing():
        figure = curves.by_noise(view())
        assert figure is not None
        svg = canvas.inline_svg(canvas.to_svg(figure), "one", "A figure")
    assert svg.startswith('<svg role="img" aria-label="A figure"') and "<metadata" not in svg
    assert 'id="one-' in svg and "currentColor" in svg and "#23272e" not in svg
    assert 'href="#' not in svg.replace('href="#one-', "") and "url(#" not in svg.replace("url(#one-", "")


def test_thumbnails_are_small_and_forgiving(tmp_path: Path) -> None:
    Image.new("RGBA", (400, 200), (0, 0, 0, 0)).save(tmp_path / "clear.png")
    (tmp_path / "bad.png").write_bytes(b"\x89PNG\r\n\x1a\nnothing")
    small = thumbnail(tmp_path / "clear.png", 100)
    assert small is not None and small.size == (100, 50) and small.getpixel((5, 5)) == (255, 255, 255)
    images = Embedded(32)
    assert images.address(tmp_path / "bad.png") is None and images.address(None) is None
    assert images.address(tmp_path / "absent.png") is None
    assert str(images.address(tmp_path / "clear.png")).startswith("data:image/png;base64,")


def test_a_thumbnail_stands_as_the_picture_is_shown(tmp_path: Path) -> None:
    """Turned by its EXIF data, and with all levels of deep grey."""
    picture, exif = Image.new("RGB", (60, 20), "red"), Image.Exif()
    picture.paste("blue", (0, 0, 30, 20))
    exif[0x0112] = 6  # the stored left is the top
    picture.save(tmp_path / "turned.png", exif=exif)
    turned = thumbnail(tmp_path / "turned.png", 30)
    assert turned is not None and turned.size == (10, 30)
    assert turned.getpixel((5, 3)) == (0, 0, 255) and turned.getpixel((5, 27)) == (255, 0, 0)
    Image.fromarray(np.full((4, 4), 32768, dtype=np.uint16)).save(tmp_path / "deep.png")
    deep = thumbnail(tmp_path / "deep.png", 30)
    assert deep is not None and deep.getpixel((0, 0)) == (128, 128, 128)


def test_an_image_that_unpacks_to_too_many_pixels_is_not_opened(tmp_path: Path) -> None:
    Image.new("L", (50, 50)).save(tmp_path / "big.png")
    assert thumbnail(tmp_path / "big.png", 10, most=100) is None and thumbnail(tmp_path / "big.png", 10) is not None
