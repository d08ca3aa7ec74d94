"""What a translation says of itself: by caption, and in sum by split; which references are taken, and which are not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import sacrebleu
import toy
from standin import Engine
from toy import Chain, Folder

from ccr_cli.artifacts import base, dataset, translation
from ccr_cli.artifacts.workspace import Workspace
from ccr_cli.stages.translate.quality import assess, references


def made(folder: Folder, place: Path, *options: str) -> base.Artifact:
    """The translation of a data set."""
    toy.ok("data", "import", folder.write(place / "toy"), workspace=place / "workspace")
    return toy.ok("translate", "--lang", "es", *options, workspace=place / "workspace").made


def source_of(artifact: base.Artifact) -> dataset.Dataset:
    return dataset.read(Workspace(artifact.path.parents[2]).parent(artifact, "dataset"))


def split(artifact: base.Artifact, name: str, direction: str = "forward") -> dict[str, Any]:
    found: dict[str, Any] = translation.quality(artifact)[direction]["splits"][name]
    return found


def human(artifact: base.Artifact, name: str, direction: str = "forward") -> dict[str, Any]:
    (found,) = split(artifact, name, direction)["references"]
    assert isinstance(found, dict)
    return found


def test_every_caption_has_its_row(sources: Chain) -> None:
    artifact = sources.find("translation")
    captions, found = translation.read(artifact), translation.read_quality(artifact)
    assert list(found["caption_id"]) == list(captions["caption_id"])
    forward = captions["direction"] == "forward"
    assert (found.loc[forward, "round_trip_chrf"] == 100).all(), "the tables of the toy lead back"
    assert found.loc[~forward, "round_trip_chrf"].isna().all()
    held = forward & (captions["split"] != "train") | (captions["direction"] == "query")
    assert found.loc[held, "reference_chrf"].between(0, 100).all() and set(found.loc[held, "reference_set"]) == {"main"}
    assert found.loc[~held, "reference_chrf"].isna().all() and found.loc[~held, "reference_set"].isna().all()
    assert not found[list(translation.FLAGS)].to_numpy().any()
    told = split(artifact, "train")
    assert (told["captions"], told["flagged"], told["references"]) == (48, 0, [])
    assert told["round_trip"]["chrF2"]["score"] == pytest.approx(100)


@pytest.mark.parametrize("name", ["val", "test"])
def test_scores_are_sacrebleus_over_all_human_captions_of_the_item(name: str, sources: Chain) -> None:
    artifact = sources.find("translation")
    captions = translation.read(artifact)
    rows = captions[(captions["direction"] == "forward") & (captions["split"] == name)]
    written = source_of(artifact).captions.query("lang == 'es'").groupby("item_id")["text"].apply(list)
    streams = [[written[item][0] for item in rows["item_id"]]]
    found = human(artifact, name)
    assert (found["kind"], found["caption_set"], found["source_set"]) == ("caption", "main", "main")
    assert (found["captions"], found["references"], found["note"]) == (24, 24, None)
    assert found["each"] == [1, 1], "the fewest and the most references of a caption"
    texts = list(rows["text"])
    assert found["scores"]["BLEU"]["score"] == pytest.approx(sacrebleu.corpus_bleu(texts, streams).score, abs=1e-4)
    assert found["scores"]["chrF2"]["score"] == pytest.approx(sacrebleu.corpus_chrf(texts, streams).score, abs=1e-4)
    assert "|tok:13a|" in found["scores"]["BLEU"]["signature"]


def test_queries_are_held_against_the_source_captions_of_their_item(sources: Chain) -> None:
    artifact = sources.find("translation")
    captions = translation.read(artifact)
    rows = captions[(captions["direction"] == "query") & (captions["split"] == "test")]
    written = source_of(artifact).captions.query("lang == 'en'").groupby("item_id")["text"].apply(list)
    streams = [[written[item][k] for item in rows["item_id"]] for k in (0, 1)]
    found = human(artifact, "test", "query")
    expected = sacrebleu.corpus_chrf(list(rows["text"]), streams).score
    assert found["references"] == 24 and "nrefs:2" in found["scores"]["chrF2"]["signature"]
    assert found["scores"]["chrF2"]["score"] == pytest.approx(expected, abs=1e-4)


def test_translations_named_in_the_manifest_are_references_of_their_own_caption(tmp_path: Path) -> None:
    folder = toy.toy()
    folder.extra = '[parallel]\nmain = "main"'
    artifact = made(folder, tmp_path, "--with-queries")
    found = human(artifact, "test")
    assert (found["kind"], found["captions"], found["references"]) == ("translation", 12, 12)
    assert human(artifact, "test", "query")["kind"] == "translation"
    table = translation.read_quality(artifact)
    captions = translation.read(artifact)
    scored = captions[table["reference_chrf"].notna() & (captions["direction"] == "forward")]
    assert set(scored["k"]) == {0} and set(scored["split"]) == {"val", "test"}


def sets(folder: Folder, name: dict[tuple[str, str], str]) -> Folder:
    """Puts captions into other sets, by language and k."""
    for caption in folder.captions:
        caption[5] = name.get((caption[2], caption[3]), caption[5])
    return folder


@pytest.mark.parametrize(
    ("names", "extra", "expected"),
    [
        ({}, "", [("main", "main", "caption", 24)]),
        ({("es", "0"): "other"}, "", [("main", "other", "caption", 24)]),
        ({("en", "1"): "second"}, "", [("main", "main", "caption", 12), ("second", "main", "caption", 12)]),
        (
            {("es", "0"): "human"},
            '[parallel]\nhuman = "main"',
            [("main", "human", "translation", 12)],
        ),
        (
            {("en", "1"): "second", ("es", "0"): "human"},
            '[parallel]\nhuman = "main"',
            [("main", "human", "translation", 12), ("second", "human", "caption", 12)],
        ),
    ],
)
def test_each_set_has_one_set_of_references(
    names: dict[tuple[str, str], str], extra: str, expected: list[tuple[str, str, str, int]], tmp_path: Path
) -> None:
    folder = sets(toy.toy(), names)
    folder.extra = extra
    artifact = made(folder, tmp_path)
    keys = ("source_set", "caption_set", "kind", "captions")
    assert [tuple(each[key] for key in keys) for each in split(artifact, "test")["references"]] == expected
    assert translation.quality(artifact)["forward"]["notes"] == []


@pytest.mark.parametrize(
    ("extra", "words"),
    [("", "could be references of main"), ('[parallel]\na = "main"\nb = "main"', "are translations of main")],
)
def test_sets_of_references_are_not_mixed(extra: str, words: str, tmp_path: Path) -> None:
    folder = toy.toy()
    folder.extra = extra
    items = [item[0] for item in folder.items if item[1] == "test"]
    folder.captions = [caption for caption in folder.captions if caption[2] == "en"]
    for item in items:
        folder.captions += [[f"{item}-{name}", item, "es", "0", f"un {name}", name] for name in ("a", "b")]
    artifact = made(folder, tmp_path)
    assert split(artifact, "test")["references"] == []
    (note,) = translation.quality(artifact)["forward"]["notes"]
    assert "es sets a, b" in note and words in note and "not mixed" in note
    assert translation.read_quality(artifact)["reference_chrf"].isna().all()


def test_what_is_wrong_is_counted_where_it_is(tmp_path: Path, engine: Engine) -> None:
    folder = toy.toy()
    known = dict(folder.tables["en-es"])
    known["red circle"] = "red circle"
    known["a picture of one circle that is red"] = "una una una una"
    known["blue bar"] = "蓝色的酒吧"
    del known["black ring"]
    engine.knows(known)
    toy.ok("data", "import", folder.write(tmp_path / "toy"), workspace=tmp_path / "workspace")
    done = toy.ccr("translate", "--lang", "es", "--engine", "apertium", workspace=tmp_path / "workspace")
    assert done.code == 3, done.err
    captions = translation.read(done.made)
    table = translation.read_quality(done.made).set_index(captions["source_caption_id"])
    has = {str(caption): [f for f in translation.FLAGS if row[f]] for caption, row in table.iterrows()}
    flagged = {caption: flags for caption, flags in has.items() if flags}
    assert flagged.pop("red-circle-en0") == ["copy", "untranslated"]
    assert "repetition" in flagged.pop("red-circle-en1")
    assert "script" in flagged.pop("blue-bar-en0")
    assert not flagged, "black ring failed, and is flagged for nothing"
    found = translation.quality(done.made)["forward"]["splits"]
    assert sum(each["flagged"] for each in found.values()) == 3
    for flag in ("copy", "script", "empty", "repetition", "untranslated"):
        assert sum(each["flags"][flag] for each in found.values()) == int(table[flag].sum()), flag
    assert sum(each["failed"] for each in found.values()) == 1
    assert found["train"]["flags"]["truncated"] is None, "no caption of the toy ends in a full stop"


def test_a_caption_corrected_by_hand_has_no_round_trip(tmp_path: Path) -> None:
    first = made(toy.toy(), tmp_path, "--back")
    (tmp_path / "mine.csv").write_text("source_caption_id,correction\nred-circle-en0,algo\n")
    artifact = toy.ok("translate", first.path, "--only", tmp_path / "mine.csv", workspace=tmp_path / "workspace").made
    captions, table = translation.read(artifact), translation.read_quality(artifact).set_index("caption_id")
    forward = table.loc[captions.loc[captions["direction"] == "forward", "caption_id"], "round_trip_chrf"]
    assert list(forward.index[forward.isna()]) == ["red-circle-en0@es"] and (forward.dropna() == 100).all()
    assert split(artifact, "train")["round_trip"]["chrF2"]["score"] == pytest.approx(100)
    failed = captions["caption_id"].isin(["red-circle-en1@es", "red-circle-en1@es@en", "blue-bar-en0@es@en"])
    captions.loc[failed, ["text", "status"]] = None, "failed"
    again, _ = assess(captions[captions["caption_id"] != "red-circle-en1@es@en"], source_of(artifact))
    figures = again.set_index("caption_id")["round_trip_chrf"]
    assert figures["red-circle-en1@es"] == figures["blue-bar-en0@es"] == 0 and pd.isna(figures["red-circle-en0@es"])


@pytest.mark.slow
def test_a_failed_caption_that_is_tried_again_is_judged_again(tmp_path: Path, engine: Engine) -> None:
    folder = toy.toy()
    known = dict(folder.tables["en-es"])
    missing = known.pop("black ring")
    engine.knows(known)
    root = tmp_path / "workspace"
    toy.ok("data", "import", folder.write(tmp_path / "toy"), workspace=root)
    call = ("translate", "--lang", "es", "--engine", "apertium")
    assert translation.read_quality(toy.ccr(*call, workspace=root).made)["length_ratio"].isna().sum() == 1
    engine.knows(known | {"black ring": missing})
    again = toy.ok(*call, "--retry-failed", workspace=root).made
    assert translation.read_quality(again)["length_ratio"].notna().all()


@pytest.mark.slow
def test_a_real_collection(tmp_path: Path) -> None:
    """Apertium's Spanish of the bundled emoji: names and keywords are held against those of their kind."""
    toy.ok("data", "import", "noto-emoji", workspace=tmp_path)
    artifact = toy.ok("translate", "--lang", "es", "--split", "val", "--back", workspace=tmp_path).made
    source = source_of(artifact)
    found, notes = references(source, "en", "es")
    assert [(each.source_set, each.caption_set, each.kind) for each in found] == [
        ("keywords", "keywords", "caption"),
        ("short-name", "short-name", "caption"),
    ]
    assert notes == []
    told = {each["source_set"]: each for each in split(artifact, "val")["references"]}
    assert told["short-name"]["scores"]["chrF2"]["score"] > told["keywords"]["scores"]["chrF2"]["score"] > 20
    table, captions = translation.read_quality(artifact), translation.read(artifact)
    words = dict(zip(source.captions["caption_id"], source.captions["text"], strict=True))
    left = captions[table["untranslated"] & (captions["direction"] == "forward")]
    assert len(left) and all(
        len(set(words[origin].split()) & set(text.split())) >= 2
        for origin, text in zip(left["source_caption_id"], left["text"].str.lower(), strict=True)
    )
    again, _ = assess(captions, source)
    pd.testing.assert_series_equal(again["reference_chrf"].astype("float32"), table["reference_chrf"])
