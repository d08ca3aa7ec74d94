"""The loop of repair: a list of pairs decides what is translated again, left out, or weighted."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import toy
from standin import Engine
from toy import Chain

from ccr_cli.artifacts import base, diagnosis, noise, run, translation
from ccr_cli.artifacts.workspace import Workspace
from ccr_cli.data import pairs_file as listing
from ccr_cli.errors import UsageError
from ccr_cli.methods.infonce import Config
from ccr_cli.stages.report.stage import gather as gather_report
from ccr_cli.stages.shared.inputs import Inputs
from ccr_cli.stages.shared.options import configure
from ccr_cli.stages.shared.triplets import Triplets
from ccr_cli.stages.train.options import TrainingOptions
from ccr_cli.stages.train.pair_list import PairSelection
from ccr_cli.stages.train.sources import find_sources
from ccr_cli.stages.train.training_data import TrainingData

CPU = ("--device", "cpu")
TRAIN = ("--method", "infonce", "--epochs", "1", *toy.SMALL)


@pytest.fixture
def exported(finished: Chain, tmp_path: Path) -> Path:
    """What the diagnosis of the run without noise says, a quarter of the pairs called noisy."""
    path = tmp_path / "pairs.csv"
    toy.ok(
        "diagnose",
        finished.find("run", "infonce").path,
        "--share",
        "0.25",
        "--export",
        path,
        *CPU,
        workspace=finished.root,
    )
    return path


def noisy(path: Path) -> list[str]:
    frame = listing.read(path).frame
    return list(frame.loc[frame["verdict"] == "noisy", "slot_id"])


def hand_made(path: Path, rows: list[dict[str, Any]]) -> Path:
    pd.DataFrame(rows).to_csv(path, index=False)
    return path


# -- training ----------------------------------------------------------------------------------------------------------


CONFIGURED = (configure(Config, {"judge": "none"}, "infonce"), TrainingOptions())


def material(
    finished: Chain, path: Path, *, weighted: bool = False, judge: str = "none", mismatch: bool = False
) -> Any:
    inputs = Inputs(Workspace(finished.root))
    sources = find_sources(inputs, "es")
    if mismatch:
        sources.noise = finished.find("noise")
    sources.pairs = PairSelection(listing.read(path), weighted)
    return TrainingData(sources, configure(Config, {"judge": judge}, "infonce"), TrainingOptions())


def test_pairs_that_are_called_noisy_are_left_out(finished: Chain, exported: Path) -> None:
    gone = set(noisy(exported))
    assert len(gone) == 12
    found = material(finished, exported)
    whole = set(listing.read(exported).frame["slot_id"])
    assert set(found.triplets.slot_ids) == whole - gone and len(found.source) == len(found.target) == 36
    assert (found.first_belief.VT == 1).all() and found.triplets.wrong is None
    done = toy.ok("train", *TRAIN, "--verdicts", exported, workspace=finished.root)
    assert done.made.counts["triplets"] == 36 and "36 of 48 pairs" in done.err and "--export" not in done.err
    config = run.config(done.made)
    assert config["pairs"] == {"sha256": base.sha256_file(exported), "as": "verdicts"} == done.made.request["pairs"]


def test_probabilities_weight_the_pairs_from_the_first_epoch(finished: Chain, tmp_path: Path, exported: Path) -> None:
    found, said = material(finished, exported, weighted=True), listing.read(exported).frame.set_index("slot_id")
    assert len(found.triplets) == 48
    p = found.first_belief
    for side, column in ((p.VS, "p_vs"), (p.VT, "p_clean"), (p.ST, "p_st")):
        np.testing.assert_array_equal(side, said.loc[found.triplets.slot_ids, column])
    alone = hand_made(tmp_path / "mine.csv", [{"slot_id": s, "p_clean": 0.25} for s in said.index])
    p = material(finished, alone, weighted=True).first_belief
    assert ((p.VS == 1) & (p.VT == 0.25) & (p.ST == 0.25)).all(), "the translation is doubted, and nothing else"
    with pytest.raises(UsageError, match="--weigh-verdicts"):
        material(finished, exported, weighted=True, judge="translation")


def test_few_pairs_and_corrections_in_another_column_are_told(
    finished: Chain, tmp_path: Path, exported: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = listing.read(exported).frame.head(20).assign(verdict="clean")
    rows.loc[3, "translation"] = "nada"
    rows.to_csv(tmp_path / "mine.csv", index=False)
    assert len(material(finished, tmp_path / "mine.csv").triplets) == 20
    told = " ".join(capsys.readouterr().err.split())
    assert all(each in told for each in ("1 pair", repr(rows.loc[3, "slot_id"]), "column correction"))
    assert all(each in told for each in ("20 of 48", "28", "--export")), told
    assert "5 validation items" in told


def test_a_weight_of_zero_is_as_good_as_leaving_a_pair_out(finished: Chain, tmp_path: Path, exported: Path) -> None:
    """Batches hold the doubted pairs too, so the runs differ; but what is doubted is not learned."""
    gone = set(noisy(exported))
    frame = listing.read(exported).frame
    rows = [{"slot_id": s, "p_clean": float(s not in gone)} for s in frame["slot_id"]]
    path = hand_made(tmp_path / "mine.csv", rows)
    options = ("--method", "infonce", "--epochs", "4", "--set", "lr=0.02", *toy.SMALL)
    weighted = toy.ok("train", *options, "--verdicts", path, "--weigh-verdicts", workspace=finished.root).made
    plain = toy.ok("train", *options, workspace=finished.root).made
    assert weighted.request["pairs"]["as"] == "weights" and weighted.name != plain.name
    near = []
    for made in (weighted, plain):
        table = diagnosis.read_pairs(toy.ok("diagnose", made.path, *CPU, workspace=finished.root).made)
        near.append(table.loc[table["slot_id"].isin(gone), "sim_vt"].mean())
    assert near[0] < near[1] - 0.1


def test_the_list_decides_what_the_run_is(finished: Chain, tmp_path: Path, exported: Path) -> None:
    first = toy.ok("train", *TRAIN, "--verdicts", exported, workspace=finished.root).made
    moved = shutil.copy(exported, tmp_path / "elsewhere.csv")
    assert toy.ok("train", *TRAIN, "--verdicts", moved, workspace=finished.root).made.id == first.id
    rows = listing.read(exported).frame.assign(verdict="clean")
    corrected = tmp_path / "corrected.csv"
    rows.to_csv(corrected, index=False)
    other = toy.ok("train", *TRAIN, "--verdicts", corrected, workspace=finished.root).made
    assert other.name != first.name and other.counts["triplets"] == 48
    done = toy.ccr("train", *TRAIN, "--name", first.name, "--verdicts", corrected, workspace=finished.root)
    assert done.code == 4 and "pairs:" in done.err
    evaluated = toy.ok("evaluate", first.path, *CPU, "--json", workspace=finished.root)
    made = json.loads(evaluated.out)["made"][0]["path"]
    label = json.loads((Path(made) / "metrics.json").read_text(encoding="utf-8"))["results"][0]["label"]
    assert label == f"infonce (pairs {base.sha256_file(exported)[:6]})"


def test_pairs_that_are_not_what_was_judged_count_as_never_doubted(finished: Chain, tmp_path: Path) -> None:
    """The list is of the run with synthetic noise, and training is without: what was switched is itself again."""
    path = tmp_path / "pairs.parquet"
    toy.ok(
        "diagnose",
        finished.find("run", "uml").path,
        "--judge",
        "oracle",
        "--export",
        path,
        *CPU,
        workspace=finished.root,
    )
    switched = set(noisy(path))
    drawn = noise.read(finished.find("noise")).set_index("slot_id")
    assert switched == set(drawn.index[drawn["vt_wrong"]]) and len(switched) > 10
    assert set(material(finished, path).triplets.slot_ids) == set(drawn.index)
    assert (material(finished, path, weighted=True).first_belief.VT == 1).all()
    with_noise = material(finished, path, mismatch=True)
    assert set(with_noise.triplets.slot_ids) == set(drawn.index) - switched
    assert not with_noise.triplets.wrong["vt_wrong"].any()
    rows = listing.read(path).frame.assign(translation="nada")
    rows.to_csv(tmp_path / "other.csv", index=False)
    with pytest.raises(UsageError, match=r"other\.csv"):
        material(finished, tmp_path / "other.csv")


def test_a_run_without_some_pairs_is_diagnosed_on_all(finished: Chain, tmp_path: Path) -> None:
    slots = sorted(noise.read(finished.find("noise"))["slot_id"])
    half = hand_made(tmp_path / "half.csv", [{"slot_id": slot} for slot in slots[::2]])
    done = toy.ok("train", "--method", "decl", "--epochs", "2", *toy.SMALL, "--verdicts", half, workspace=finished.root)
    trained = done.made
    judged = diagnosis.read_pairs(toy.ok("diagnose", trained.path, *CPU, workspace=finished.root).made)
    assert sorted(judged["slot_id"]) == slots
    seen = judged["slot_id"].isin(slots[::2])
    assert (judged[diagnosis.TRAJECTORY].notna().all(axis=1) == seen).all()


@pytest.mark.slow
def test_an_engine_that_says_the_same_is_warned_of(workspace: Chain, tmp_path: Path, engine: Engine) -> None:
    path = hand_made(tmp_path / "mine.csv", [{"source_caption_id": "red-circle-en0"}])
    frame = translation.read(workspace.find("translation")).set_index("caption_id")
    same = str(frame.loc["red-circle-en0@es", "text"])
    engine.knows({"red circle": same, same: "red circle"})
    done = toy.ok("translate", "--lang", "es", "--only", path, "--engine", "apertium", workspace=workspace.root)
    assert "0 of 1 caption" in done.err


@pytest.mark.parametrize(
    ("rows", "options", "message"),
    [
        ([{"slot_id": "nobody"}], (), "'nobody' is no source caption of toy"),
        ([{"slot_id": "red-square-en0"}], (), "leaves 0 of 48 pairs"),
        ([{"item_id": "red-circle"}], (), "has no column slot_id"),
        ([{"slot_id": "red-circle-en0"}], ("--weigh-verdicts",), "has no column p_clean"),
        ([{"slot_id": "red-circle-en0", "lang": "fr"}], (), "pairs in fr, and none in es"),
        ([{"slot_id": "red-circle-en0"}], (), "leaves 1 of 48 pairs"),
        ([{"slot_id": "red-circle-en0", "translation": "nada"}], (), "column correction"),
    ],
)
def test_a_list_of_something_else_is_refused(
    rows: list[dict[str, Any]], options: tuple[str, ...], message: str, finished: Chain, tmp_path: Path
) -> None:
    path = hand_made(tmp_path / "pairs.csv", rows)
    done = toy.ccr("train", *TRAIN, "--verdicts", path, *options, workspace=finished.root)
    assert done.code == 2 and message in " ".join(done.err.split()), done.err
    alone = toy.ccr("train", *TRAIN, "--weigh-verdicts", workspace=finished.root)
    assert alone.code == 2 and "goes with --verdicts" in alone.err


def test_triplets_that_are_selected_keep_their_languages() -> None:
    import torch

    from ccr_cli.data.frames import Frames

    triplets = Triplets(
        slot_ids=["a", "b", "a", "b"],
        source_ids=["a", "b", "a", "b"],
        langs=("de", "fr"),
        lang_N=np.array([0, 0, 1, 1]),
        visual=Frames(torch.zeros(2, 3), torch.tensor([0, 1, 2])),
        item_N=torch.tensor([0, 1, 0, 1]),
        item_ids=["x", "y"],
        source=["a", "b", "a", "b"],
        target=["a-de", "b-de", "a-fr", "b-fr"],
        backs=[None] * 4,
        back=None,
        references=[()] * 4,
        label_V=None,
        wrong=None,
        dropped=0,
    )
    chosen = triplets.select(np.array([1, 2, 3]))
    assert chosen.target == ["b-de", "a-fr", "b-fr"] and list(chosen.lang_N) == [0, 1, 1]
    assert [part.target for _, part in chosen.by_translation()] == [["b-de"], ["a-fr", "b-fr"]]
    frame = pd.DataFrame({"slot_id": ["a", "b", "b"], "lang": ["fr", "fr", "de"], "p_clean": [0.1, 0.2, 0.3]})
    chosen, p = PairSelection(listing.PairsFile(Path("x"), frame, ""), True).apply(triplets)
    assert chosen.target == ["b-de", "a-fr", "b-fr"] and p is not None and list(p.VT) == [0.3, 0.1, 0.2]
    frame = pd.DataFrame({"slot_id": ["a", "b"], "lang": ["fr", "de"], "verdict": ["clean", "noisy"]})
    chosen, _ = PairSelection(listing.PairsFile(Path("x"), frame, "", reviewed=True), False).apply(triplets)
    assert chosen.target == ["a-de", "a-fr", "b-fr"], "pairs that nobody has reviewed are kept"


# -- translating again -------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_only_what_is_called_noisy_is_translated_again(finished: Chain, exported: Path, engine: Engine) -> None:
    first = finished.find("translation")
    before = translation.read(first).set_index("caption_id")
    gone = set(noisy(exported))
    words = dict(zip(before["source_caption_id"], before["text"], strict=True))
    english = listing.read(exported).frame.set_index("slot_id")["source_text"]
    engine.knows({english[c]: f"de nuevo {words[c]}" for c in gone} | {f"de nuevo {words[c]}": "again" for c in gone})
    done = toy.ok("translate", first.path, "--only", exported, "--engine", "apertium", workspace=finished.root)
    assert "12 of 12 captions" in done.err and f"ccr train translations/toy/{done.made.name}\n" in done.err
    made, after = done.made, translation.read(done.made).set_index("caption_id")
    assert list(after.index) == list(before.index), "complete, and in the same order"
    anew = after["source_caption_id"].isin(gone) & (after["direction"] == "forward")
    back = (after["direction"] == "back") & after["source_caption_id"].isin(after.index[anew])
    assert anew.sum() == back.sum() == 12
    assert all(after.loc[anew, "text"] == "de nuevo " + before.loc[after.index[anew], "text"])
    assert set(after.loc[back, "text"]) == {"again"} and set(after.loc[anew | back, "engine"]) == {"apertium"}
    pd.testing.assert_frame_equal(after[~(anew | back)], before[~(anew | back)])
    assert sorted(engine.asked()) == sorted({english[c] for c in gone} | {f"de nuevo {words[c]}" for c in gone})
    assert [parent.kind for parent in made.parents] == ["dataset", "translation"]
    assert made.parent("translation").id == first.id and made.request["only"]["of"] == first.request
    again = toy.ok("translate", "--lang", "es", "--only", exported, "--engine", "apertium", workspace=finished.root)
    assert again.made.id == made.id, "one that was mended is not mended again unless it is named"
    trained = toy.ok("train", made.path, *TRAIN, "--verdicts", exported, workspace=finished.root)
    assert trained.made.counts["triplets"] == 48 and "12 pairs, " in trained.err
    shown = toy.ok("evaluate", trained.made.path, "-v", *CPU, workspace=finished.root)
    mt = next(part for part in shown.err.replace("\n", "").split("|") if part.startswith("mt:"))
    assert mt.startswith("mt:recorded:") and "&apertium:" in mt
    exported_as = toy.ok("export", trained.made.path, workspace=finished.root).made.path
    card = (exported_as / "README.md").read_text(encoding="utf-8")
    assert "| translations into es | by machine: recorded hand" in card
    assert "| translations into es, some of them again | by machine: apertium " in card
    assert card.count("translations into es, some of them again |") == 2, "of either licence too"
    material = gather_report(Inputs.from_paths(Workspace(finished.root), [str(trained.made.path)]))
    (fact,) = material.facts.values()
    digest = base.sha256_file(exported)[:6]
    assert fact.label == f"infonce (pairs {digest}) [mended={digest}]"


@pytest.mark.slow
def test_what_fails_again_is_left_untranslated(workspace: Chain, tmp_path: Path, engine: Engine) -> None:
    path = hand_made(tmp_path / "mine.csv", [{"source_caption_id": c} for c in ("red-circle-en0", "red-circle-en1")])
    engine.knows({"red circle": "rojo"})
    options = ("--lang", "es", "--only", path, "--engine", "apertium", "--max-failed", "0.9")
    done = toy.ccr("translate", *options, workspace=workspace.root)
    assert done.code == 3, done.err
    assert "1 of 2 captions" in done.err
    frame = translation.read(done.made).set_index("caption_id")
    assert frame.loc["red-circle-en0@es", "text"] == "rojo" and frame.loc["red-circle-en1@es", "status"] == "failed"
    assert "red-circle-en1@es@en" not in frame.index, "the way back of what is no more there"
    engine.knows({"red circle": "rojo", "a picture of one circle that is red": "un rojo", "un rojo": "a", "rojo": "b"})
    toy.ok("translate", *options, "--retry-failed", workspace=workspace.root)
    frame = translation.read(base.load(done.made.path)).set_index("caption_id")
    assert (frame.loc["red-circle-en1@es", "text"], frame.loc["red-circle-en1@es@en", "text"]) == ("un rojo", "a")
    assert frame.loc["blue-circle-en0@es", "engine"] == "recorded"


@pytest.mark.parametrize(
    ("rows", "options", "message"),
    [
        ([{"source_caption_id": "nobody"}], (), "'nobody' is no source caption of toy"),
        ([{"slot_id": "red-circle-en0"}], (), "has no column source_caption_id"),
        ([{"source_caption_id": "red-circle-en0", "verdict": "clean"}], (), "no noisy pair in es"),
        ([{"source_caption_id": "red-circle-en0", "verdict": "clean", "Correction ES": "a"}], (), "'Correction ES'"),
        ([{"source_caption_id": "red-circle-en0", "lang": "fr"}], (), "has pairs in fr, not in es"),
        (
            [{"source_caption_id": "red-circle-en0", "correction": text} for text in ("uno", "dos")],
            (),
            "'uno' and 'dos'",
        ),
        ([{"source_caption_id": "red-circle-en0", "translation": "nada"}], (), "1 caption in "),
        ([{"source_caption_id": "red-circle-en0", "translation": "nada", "verdict": "clean"}], (), "'red-circle-en0'"),
        ([{"source_caption_id": "red-circle-en0"}], ("--back",), "--back, --with-queries, --rounds and --split"),
        ([{"source_caption_id": "red-circle-en0"}], ("--engine", "recorded"), "same engine"),
        (
            [{"source_caption_id": "red-circle-en0", "source_text": "a", "Mine": "a"}],
            ("--engine", "recorded"),
            "(not read: 'Mine')",
        ),
    ],
)
def test_what_cannot_be_translated_again_is_refused(
    rows: list[dict[str, Any]], options: tuple[str, ...], message: str, finished: Chain, tmp_path: Path
) -> None:
    path = hand_made(tmp_path / "pairs.csv", rows)
    engine = () if "--engine" in options else ("--engine", "apertium")
    done = toy.ccr("translate", "--lang", "es", "--only", path, *engine, *options, workspace=finished.root)
    assert done.code == 2 and message in " ".join(done.err.split()), done.err


def test_without_a_language_or_a_translation_nothing_can_be_mended(finished: Chain, exported: Path) -> None:
    only = hand_made(exported.with_name("mine.csv"), [{"source_caption_id": "red-circle-en0"}])
    done = toy.ccr("translate", "--only", only, workspace=finished.root)
    assert done.code == 2 and "no column lang" in done.err and str(only) in done.err


# -- correcting by hand ------------------------------------------------------------------------------------------------


def corrected(path: Path, corrections: dict[str, str]) -> Path:
    """Saves a list as a spreadsheet does after a person has typed corrections."""
    frame = pd.read_csv(path, dtype=str, keep_default_na=False)
    cells = {slot: f"'{text}" if text.startswith("=") else text for slot, text in corrections.items()}
    frame["correction"] = frame["slot_id"].map(cells).fillna("")
    frame["verdict"] = frame["verdict"].str.upper()
    frame.to_csv(path, index=False, sep=";", encoding="utf-8-sig", lineterminator="\r\n", decimal=",")
    return path


@pytest.fixture
def typed(exported: Path) -> dict[str, str]:
    """Corrections of a pair that is called noisy and of one that is not; the list has them."""
    gone = noisy(exported)
    clean = next(slot for slot in listing.read(exported).frame["slot_id"] if slot not in gone)
    corrections = {gone[0]: "¡otra cosa!", clean: "=algo; más"}
    corrected(exported, corrections)
    return corrections


def test_corrections_become_the_translation(
    finished: Chain, exported: Path, typed: dict[str, str], engine: Engine
) -> None:
    engine.knows({})
    first = finished.find("translation")
    before = translation.read(first).set_index("caption_id")
    done = toy.ok("translate", "--only", exported, workspace=finished.root)
    assert "2 of 2 captions" in done.err and "11 " in done.err, "those that are noisy and not corrected are told"
    assert done.made.request["engine"] == translation.BY_HAND and done.made.request["only"]["corrected"] == 2
    after = translation.read(done.made).set_index("caption_id")
    rows = after[after["engine"] == translation.BY_HAND]
    assert dict(zip(rows["source_caption_id"], rows["text"], strict=True)) == typed
    assert set(rows["model"]) == {base.sha256_file(exported)[:6]} and set(rows["direction"]) == {"forward"}
    backs = [f"{caption}@es@en" for caption in typed]
    assert list(after.index) == [caption for caption in before.index if caption not in backs]
    rest = after.drop(rows.index)
    pd.testing.assert_frame_equal(rest, before.loc[rest.index])
    assert engine.asked() == []
    other = toy.ccr("translate", "--only", exported, "--lang", "fr", workspace=finished.root)
    assert other.code == 2 and "has pairs in es, not in fr" in " ".join(other.err.split())
    texts = after[after["direction"] == "forward"].set_index("source_caption_id")["text"]
    frame = pd.read_csv(exported, dtype=str, keep_default_na=False, sep=";")
    more = next(slot for slot in frame["slot_id"] if slot not in typed)
    frame["translation"], frame["correction"] = frame["slot_id"].map(texts), ""
    frame.loc[frame["slot_id"] == more, "correction"] = "más"
    frame.to_csv(exported, index=False)
    twice = toy.ok("translate", "--only", exported, workspace=finished.root).made
    assert twice.parent("translation").id == done.made.id, "the list has the texts of the corrected translation"
    rows = translation.read(twice).query("engine == @translation.BY_HAND")
    assert dict(zip(rows["source_caption_id"], rows["text"], strict=True)) == {**typed, more: "más"}


def test_captions_of_every_split_can_be_corrected(finished: Chain, tmp_path: Path) -> None:
    caption, first = "red-square-en0", finished.find("translation")
    fields = {"source_caption_id": caption, "lang": "es", "correction": "un cuadrado"}
    listed = hand_made(tmp_path / "mine.csv", [fields, fields | {"source_caption_id": "deleted"}])
    done = toy.ok("translate", "--only", listed, workspace=finished.root)
    assert "'deleted'" in done.err
    texts = translation.read(done.made).set_index("caption_id")["text"]
    before = translation.read(first).set_index("caption_id")
    split = before.loc[f"{caption}@es", "split"]
    assert split != "train" and done.made.request["only"]["evaluated"] == [split]
    assert texts[f"{caption}@es"] == "un cuadrado" != before.loc[f"{caption}@es", "text"]
    assert f"{caption}@es@en" not in texts


def test_corrections_that_another_list_does_not_have_are_told(finished: Chain, tmp_path: Path) -> None:
    fields = {"source_caption_id": "red-square-en0", "lang": "es", "correction": "uno"}
    first = hand_made(tmp_path / "a.csv", [fields])
    second = hand_made(tmp_path / "b.csv", [{**fields, "source_caption_id": "red-circle-en0", "correction": "dos"}])
    old = toy.ok("translate", "--only", first, workspace=finished.root).made
    assert "left out" not in toy.ok("translate", "--only", first, workspace=finished.root).err, "it is the same list"
    alone = toy.ok("translate", "--only", second, workspace=finished.root)
    named = f"ccr translate translations/toy/{old.name} --only {second}"
    assert named in " ".join(alone.err.split())
    added = toy.ok("translate", old.path, "--only", second, workspace=finished.root)
    assert "left out" not in added.err
    for done, texts in ((alone, ["dos"]), (added, ["dos", "uno"])):
        rows = translation.read(done.made).query("engine == @translation.BY_HAND")
        assert sorted(rows["text"]) == texts


@pytest.mark.slow
def test_an_engine_translates_the_noisy_ones_without_a_correction(
    finished: Chain, exported: Path, typed: dict[str, str], engine: Engine
) -> None:
    english = listing.read(exported).frame.set_index("slot_id")["source_text"]
    sent = {english[slot]: f"de nuevo {number}" for number, slot in enumerate(noisy(exported)) if slot not in typed}
    back = {text: "back" for text in (*sent.values(), *typed.values())}
    lacking = next(iter(sent))
    engine.knows({text: made for text, made in (sent | back).items() if text != lacking})
    call = ("translate", "--only", exported, "--engine", "apertium", "--max-failed", "0.5")
    first = toy.ccr(*call, workspace=finished.root)
    assert first.code == 3
    again = toy.ccr(*call, "--retry-failed", workspace=finished.root)
    assert (again.code, again.made.id) == (3, first.made.id)
    engine.knows(sent | back)
    done = toy.ok(*call, "--retry-failed", workspace=finished.root)
    after = translation.read(done.made).set_index("caption_id")
    assert sorted({*engine.asked()}) == sorted([*sent, *sent.values(), *typed.values()])
    for slot, text in typed.items():
        assert (after.loc[f"{slot}@es", "text"], after.loc[f"{slot}@es", "engine"]) == (text, translation.BY_HAND)
        assert (after.loc[f"{slot}@es@en", "text"], after.loc[f"{slot}@es@en", "engine"]) == ("back", "apertium")
    trained = toy.ok("train", done.made.path, *TRAIN, workspace=finished.root)
    card = (toy.ok("export", trained.made.path, workspace=finished.root).made.path / "README.md").read_text("utf-8")
    assert f"by people: {translation.BY_HAND} |" in card and "by machine: apertium " in card


@pytest.mark.slow
def test_a_corrected_pair_is_trained_on_with_full_belief(
    finished: Chain, exported: Path, typed: dict[str, str], tmp_path: Path
) -> None:
    found = material(finished, exported)
    text_of = dict(zip(found.triplets.slot_ids, found.triplets.target, strict=True))
    assert len(text_of) == 48 - 12 + 1 and typed.items() <= text_of.items()
    weighted = material(finished, exported, weighted=True)
    trusted = np.isin(weighted.triplets.slot_ids, list(typed))
    assert trusted.sum() == 2 and not (weighted.first_belief.VT[~trusted] == 1).all()
    for side in (weighted.first_belief.VS, weighted.first_belief.VT, weighted.first_belief.ST):
        assert (side[trusted] == 1).all()
    assert PairSelection(listing.read(exported), False).request()["corrected"] == 2
    with pytest.raises(UsageError, match=exported.name):
        material(finished, exported, judge="translation")
    repaired = toy.ok("translate", "--only", exported, "--name", "es-mended", workspace=finished.root)
    made = repaired.made
    sources = find_sources(Inputs.from_paths(Workspace(finished.root), repaired.out.split()), None)
    assert len(repaired.out.split()) == 3 and sources.translated == (made,) and sources.second is None
    by_list = find_sources(Inputs(Workspace(finished.root)), None, pairs=PairSelection(listing.read(exported), False))
    assert [a.id for a in by_list.translated] == [made.parent("translation").id], "the one that has the list's texts"
    triplets = TrainingData(replace(sources, pairs=PairSelection(listing.read(exported), False)), *CONFIGURED).triplets
    assert typed.items() <= dict(zip(triplets.slot_ids, triplets.target, strict=True)).items()
