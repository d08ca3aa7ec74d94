"""A sentence is translated once: the cache across data sets, without it the journal; dry runs; two rounds."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
import toy
from standin import Engine
from toy import Folder, Outcome

from ccr_cli.artifacts import base, noise, translation
from ccr_cli.stages.translate import steps

APERTIUM = ("translate", "--lang", "es", "--engine", "apertium")


def imported(folder: Folder, place: Path) -> Path:
    """Imports a data set into a workspace of its own and returns that."""
    toy.ok("data", "import", folder.write(place / folder.name), workspace=place / "workspace")
    return place / "workspace"


def known(folder: Folder) -> dict[str, str]:
    return folder.tables["en-es"] | folder.tables["es-en"]


@pytest.fixture
def root(tmp_path: Path, engine: Engine) -> Path:
    folder = toy.toy()
    engine.knows(known(folder))
    return imported(folder, tmp_path / "first")


def cached() -> list[Path]:
    return sorted(Path(os.environ["CCR_CACHE"]).rglob("*.jsonl"))


def done(*options: str, workspace: Path) -> base.Artifact:
    return toy.ok(*APERTIUM, *options, workspace=workspace).made


def test_a_sentence_is_translated_once_across_data_sets(root: Path, tmp_path: Path, engine: Engine) -> None:
    first = done("--back", workspace=root)
    asked = engine.asked()
    assert len(asked) == 192 == len(set(asked))
    folder = toy.toy("second")
    folder.captions = [row for row in folder.captions if row[2] == "en"]
    folder.captions[0][4] = folder.captions[1][4] = "one new caption"
    new = {"one new caption": "un pie nuevo", "un pie nuevo": "one new foot"}
    engine.knows(dict.fromkeys(known(folder), "another") | new)
    engine.forget()
    other = imported(folder, tmp_path / "second")
    second = done("--back", workspace=other)
    assert engine.asked() == list(new)
    theirs, ours = (translation.read(made).set_index("caption_id") for made in (first, second))
    rest = theirs.index[~theirs.index.str.startswith("red-circle")]
    assert ours.loc[rest, "text"].equals(theirs.loc[rest, "text"])


@pytest.mark.slow
def test_a_rebuild_takes_the_cache_unless_told_not_to(root: Path, engine: Engine) -> None:
    first = done(workspace=root)
    engine.knows({text: "another" for text in known(toy.toy())})
    engine.forget()
    assert done("--force", workspace=root).files == first.files and engine.asked() == []
    before = cached()
    again = done("--force", "--no-cache", workspace=root)
    assert set(translation.read(again)["text"]) == {"another"} and len(engine.asked()) == 96
    assert cached() == before, "nor is it kept there"
    assert not (again.path / "journal").exists() and base.verify(again) == []
    assert done("--force", workspace=root).files == first.files


def test_where_the_cache_is(root: Path, tmp_path: Path, engine: Engine) -> None:
    elsewhere = tmp_path / "elsewhere"
    first = done("--cache", str(elsewhere), workspace=root)
    assert len(list(elsewhere.glob("translations/*/*.jsonl"))) == 1
    engine.forget()
    assert done("--force", "--cache", str(elsewhere), workspace=root).files == first.files
    assert engine.asked() == []


def test_a_recorded_translation_is_not_cached(root: Path) -> None:
    toy.ok("translate", "--lang", "es", "--back", "--with-queries", workspace=root)
    assert cached() == []


def test_what_failed_is_asked_again(root: Path, engine: Engine) -> None:
    whole = known(toy.toy())
    engine.knows({source: text for source, text in whole.items() if source != "red circle"})
    assert toy.ccr(*APERTIUM, workspace=root).code == 3
    engine.knows(whole)
    engine.forget()
    assert toy.ccr(*APERTIUM, workspace=root).code == 3 and engine.asked() == [], "only when told to"
    made = done("--retry-failed", workspace=root)
    assert engine.asked() == ["red circle"] and made.counts["failed"] == 0


@pytest.mark.slow
def test_trying_again_needs_no_cache(root: Path, engine: Engine) -> None:
    """A cache is safe to delete: what succeeded is in the artifact."""
    whole = known(toy.toy())
    options = ("--back", "--with-queries", "--no-cache")
    engine.knows({source: text for source, text in whole.items() if source not in ("red circle", "círculo azul")})
    failing = toy.ccr(*APERTIUM, *options, workspace=root)
    assert failing.code == 3 and failing.made.counts["failed"] == 2
    engine.knows(dict.fromkeys(whole, "another") | {key: whole[key] for key in ("red circle", "círculo azul")})
    engine.forget()
    made = done(*options, "--retry-failed", workspace=root)
    assert sorted(engine.asked()) == ["círculo azul", "círculo rojo", "red circle"]
    engine.knows(whole | {"círculo rojo": "another"})
    assert made.files == done(*options, "--name", "whole", workspace=root).files


@pytest.mark.parametrize("options", [(), ("--no-cache",)])
@pytest.mark.slow
def test_a_text_in_two_forms_of_unicode_is_one_sentence(
    options: tuple[str, ...], tmp_path: Path, engine: Engine
) -> None:
    folder = toy.toy()
    folder.captions[0][4], folder.captions[1][4] = "cafe\u0301", "caf\u00e9"
    engine.knows({**known(folder), "caf\u00e9": "un cafe\u0301"})
    made = done(*options, workspace=imported(folder, tmp_path / "unicode"))
    assert [text for text in engine.asked() if "caf" in text] == ["caf\u00e9"]
    assert list(translation.read(made)["text"][:2]) == ["un caf\u00e9"] * 2


def test_a_cache_that_cannot_be(root: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    failed = toy.ccr(*APERTIUM, "--cache", str(tmp_path / "file"), workspace=root)
    assert (failed.code, failed.out) == (4, "") and "--no-cache" in failed.err
    assert toy.ok(*APERTIUM, "--cache", str(tmp_path / "file"), "--no-cache", workspace=root)


def plan(outcome: Outcome) -> dict[str, Any]:
    (made,) = json.loads(outcome.out)["made"]
    found: dict[str, Any] = made
    return found


def test_a_dry_run_counts_sentences(root: Path, engine: Engine) -> None:
    options = ("--back", "--with-queries", "--dry-run")
    found = plan(toy.ok(*APERTIUM, *options, "--json", workspace=root))
    assert found["sentences"] == {"forward": 96, "back": 96, "query": 24}
    assert found["cached"] == {"forward": 0, "back": 0, "query": 0}
    assert found["forward model"] == "eng-spa" and found["back model"] == "spa-eng" and "GPL" in found["back licence"]
    assert engine.asked() == [] and not (root / "translations").exists()
    engine.knows({source: text for source, text in known(toy.toy()).items() if source != "red circle"})
    toy.ccr(*APERTIUM, "--split", "train", workspace=root)
    shown = toy.ok(*APERTIUM, *options, workspace=root).out.splitlines()
    assert "sentences forward\t96" in shown and "cached forward\t47" in shown
    assert "sentences back\t96" in shown and "cached back\t0" in shown and "forward model\teng-spa" in shown
    toy.ccr(*APERTIUM, "--back", "--max-failed", "0.5", workspace=root)
    found = plan(toy.ok(*APERTIUM, *options, "--json", workspace=root))
    assert found["sentences"] == {"forward": 96, "back": 96, "query": 24}
    assert found["cached"] == {"forward": 95, "back": 95, "query": 0}


def test_a_dry_run_of_what_is_done_counts_nothing(root: Path) -> None:
    done(workspace=root)
    found = plan(toy.ok(*APERTIUM, "--dry-run", "--json", workspace=root))
    assert found["state"] == "done" and "sentences" not in found


def test_a_dry_run_without_the_model(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in toy.environment(root).items():
        monkeypatch.setenv(name, value)
    found = plan(toy.ok("translate", "--lang", "zh", "--dry-run", "--json", workspace=root))
    assert found["forward model"] == "Helsinki-NLP/opus-mt-en-zh" and found["forward licence"]
    assert found["sentences"] == {"forward": 96} and found["cached"] == {"forward": None}
    assert "cached forward\tunknown" in toy.ok("translate", "--lang", "zh", "--dry-run", workspace=root).out


@pytest.mark.slow
def test_what_is_known_is_said(root: Path, engine: Engine) -> None:
    done("--split", "train", workspace=root)
    assert "en -> es (forward): 48 of 96 captions known already" in toy.ok(*APERTIUM, workspace=root).err
    err = toy.ok(*APERTIUM, "--rounds", "2", workspace=root).err
    assert "en -> es (round1): 96 of 96" in err and "en -> es (forward): 96 of 96" in err


@pytest.mark.slow
def test_two_rounds_go_through_the_pair_twice(tmp_path: Path, engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(steps, "GROUP_SENTENCES", 7)
    folder = toy.toy()
    whole = folder.tables["en-es"]
    there = {text: f"{text} 1" for text in whole} | {f"{text} 1 2": f"{text} 3" for text in whole}
    back = {f"{text} 1": f"{text} 1 2" for text in whole} | {f"{text} 3": f"{text} 4" for text in whole}
    there["blue bar"], back["azul"] = "azul", "blue bar"  # comes back as it was: the second time needs no asking
    del there["red circle"], back["green circle 1"], there["yellow circle 1 2"]
    engine.knows(there | back)
    root = imported(folder, tmp_path)
    made = toy.ccr(*APERTIUM, "--rounds", "2", "--back", workspace=root).made
    assert made.name.startswith("es-apertium-rounds2-") and made.request["rounds"] == 2
    assert len(engine.asked()) == len(set(engine.asked()))
    frame: Any = translation.read(made).set_index("caption_id")
    forward = frame[frame["direction"] == "forward"]
    assert len(forward) == 96 and forward["source_caption_id"].is_unique
    row = forward.loc["orange-bar-en0@es@en@es"]
    assert (row["text"], row["source_caption_id"], row["lang"]) == ("orange bar 3", "orange-bar-en0", "es")
    assert frame.loc["orange-bar-en0@es", ["text", "direction", "source_caption_id"]].to_list() == [
        "orange bar 1",
        "round1",
        "orange-bar-en0",
    ]
    assert frame.loc["orange-bar-en0@es@en", ["text", "direction", "source_caption_id"]].to_list() == [
        "orange bar 1 2",
        "round1-back",
        "orange-bar-en0@es",
    ]
    assert frame.loc["orange-bar-en0@es@en@es@en", ["text", "direction", "source_caption_id"]].to_list() == [
        "orange bar 4",
        "back",
        "orange-bar-en0@es@en@es",
    ]
    assert forward.loc["blue-bar-en0@es@en@es", "text"] == "azul"
    failed = forward[forward["status"] == "failed"]
    assert sorted(failed["source_caption_id"]) == ["green-circle-en0", "red-circle-en0", "yellow-circle-en0"]
    assert made.counts == {"forward": 96, "back": 93, "round1": 95, "round1-back": 94, "failed": 3}
    reasons = [json.loads(line) for line in made.file(base.FAILURES).read_text(encoding="utf-8").splitlines()]
    messages = {reason["id"]: reason["message"] for reason in reasons}
    assert messages["red-circle-en0@es@en@es"] == "round1: Apertium gave nothing"
    assert messages["green-circle-en0@es@en@es"] == "round1-back: Apertium gave nothing"
    assert messages["yellow-circle-en0@es@en@es"] == "Apertium gave nothing"

    once = toy.ccr(*APERTIUM, "--back", workspace=root).made
    assert once.path != made.path and "rounds" not in once.request
    there["red circle"], back["green circle 1"], there["yellow circle 1 2"] = "azul", "blue bar", "azul"
    engine.knows(there | back)
    again = toy.ok(*APERTIUM, "--rounds", "2", "--back", "--retry-failed", workspace=root).made
    assert again.counts == {"forward": 96, "back": 96, "round1": 96, "round1-back": 96, "failed": 0}


@pytest.mark.slow
def test_training_reads_the_last_round(tmp_path: Path, engine: Engine) -> None:
    folder = toy.toy()
    engine.knows(known(folder) | {"red circle": "azul", "azul": "blue bar"})
    root = imported(folder, tmp_path)
    made = toy.ok(*APERTIUM, "--rounds", "2", workspace=root).made
    assert made.name == "es-apertium-rounds2"
    toy.ok("extract", *toy.ENCODER, workspace=root)
    run = toy.ok("train", "--epochs", "1", *toy.SMALL, made.path, workspace=root).made
    assert run.counts["triplets"] == 48


def test_the_seed_of_a_mismatch(root: Path) -> None:
    names = []
    for options in (("--noise-seed", "3"), ("--seed", "3"), ("--seed", "3", "--noise-seed", "4"), ()):
        names.append(
            toy.ok("translate", "--noise", "0.2", "--noise-style", "image", *options, workspace=root).made.name
        )
    assert names == [f"image-translation-0.2-seed{seed}" for seed in (3, 3, 4, 0)]


def test_shares_of_a_mismatch(root: Path) -> None:
    ratios = ("--noise", "0.2", "--noise", "0.4", "--noise", "0.6")
    done = toy.ok("translate", *ratios, "--noise-target", "pair", "--noise-seed", "1", workspace=root)
    made = [base.load(path) for path in done.paths if path.parent.parent.name == "noise"]
    wrong = []
    for artifact, ratio in zip(made, (0.2, 0.4, 0.6), strict=True):
        pairs = noise.read(artifact)
        wrong.append(set(pairs.loc[pairs["vt_wrong"], "slot_id"]))
        facts = json.loads(artifact.file("noise.json").read_text())
        assert facts["nominal"] == ratio and facts["effective"] == int(ratio * 48 + 1e-9) / 48 == len(wrong[-1]) / 48
        assert (facts["style"], facts["target"], facts["seed"]) == ("caption", "pair", 1)
    assert wrong[0] < wrong[1] < wrong[2]
