"""Translation: odd captions, what is not to be had, failures, stopping and going on."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import toy
from standin import Engine
from toy import Chain, Folder, Outcome

from ccr_cli.artifacts import base, translation

ODD = "[bold]red[/bold] \x1b[31mcircle\x07 <script>&amp; {0} %s \\n $(id) \u202egnp"
ODD_ES = "[/italic]\x9b31m círculo\x00 </script> {} %d"


def imported(folder: Folder, place: Path) -> Path:
    """Imports a data set into a workspace and returns the workspace."""
    done = toy.ccr("data", "import", folder.write(place / "toy"), workspace=place / "workspace")
    assert done.code in (0, 3), done.err
    return place / "workspace"


def translated(root: Path, *options: str | Path) -> Outcome:
    return toy.ccr("translate", "--lang", "es", *options, workspace=root)


def failures(made: base.Artifact) -> list[dict[str, Any]]:
    return [json.loads(line) for line in made.file(base.FAILURES).read_text(encoding="utf-8").splitlines()]


def test_every_caption_is_there_in_all_directions(sources: Chain) -> None:
    frame: Any = translation.read(sources.find("translation"))
    assert frame["direction"].value_counts().to_dict() == {"forward": 96, "back": 96, "query": 24}
    assert frame["caption_id"].is_unique and set(frame["status"]) == {"ok"} and frame["text"].notna().all()
    row = frame.set_index("caption_id").loc["red-circle-en0@es"]
    assert row[["text", "lang", "direction", "source_caption_id", "engine"]].to_list() == [
        "círculo rojo",
        "es",
        "forward",
        "red-circle-en0",
        "recorded",
    ]
    back = frame.set_index("caption_id").loc["red-circle-en0@es@en"]
    assert (back["text"], back["lang"], back["source_caption_id"]) == ("red circle", "en", "red-circle-en0@es")
    query = frame[frame["direction"] == "query"]
    assert set(query["split"]) == {"val", "test"} and set(query["lang"]) == {"en"}


def test_a_line_of_a_table_may_hold_for_one_caption(tmp_path: Path) -> None:
    """Its translation is translated back as it is, and other captions of that text keep the text's."""
    folder = toy.toy()
    one, other = folder.captions[0], folder.captions[2]
    other[4] = one[4]
    folder.tables["es-en"]["circunferencia"] = "circumference"
    place = folder.write(tmp_path / "toy")
    (table,) = (place / "translations").glob("*-en-es.tsv")
    header, *lines = table.read_text(encoding="utf-8").splitlines()
    third = [row for row in folder.captions if row[2] == "en"][-1]
    for_one = [f"{other[4]}\tcircunferencia\t{other[0]}", f"another text\tx\t{one[0]}", f"{third[4]}\t\t{third[0]}"]
    rows = [f"{header}\tcaption_id", *(f"{line}\t" for line in lines), *for_one]
    table.write_text("\n".join(rows) + "\n", encoding="utf-8")
    root = tmp_path / "workspace"
    toy.ok("data", "import", place, workspace=root)
    made = translated(root, "--back").made
    assert [f["message"] for f in failures(made)] == ["recorded as empty"]
    texts = translation.read(made).set_index("caption_id")["text"]
    forward, back = texts[f"{other[0]}@es"], texts[f"{other[0]}@es@en"]
    assert (forward, back) == ("circunferencia", "circumference")
    assert (texts[f"{one[0]}@es"], texts[f"{one[0]}@es@en"]) == ("círculo rojo", "red circle")


def test_an_empty_caption_is_left_out_when_it_is_imported(tmp_path: Path) -> None:
    folder = toy.toy()
    folder.captions[0][4] = "  "
    root = tmp_path / "workspace"
    done = toy.ccr("data", "import", folder.write(tmp_path / "toy"), workspace=root)
    assert done.code == 3
    (found,) = failures(done.made)
    assert (found["id"], found["error"]) == (folder.captions[0][0], "EmptyCaption")
    made = translated(root)
    assert made.code == 0 and made.made.counts["forward"] == 95


def test_markup_and_control_characters_are_text(tmp_path: Path) -> None:
    folder = toy.toy()
    folder.captions[0][4] = ODD
    folder.tables["en-es"][ODD] = ODD_ES
    root = imported(folder, tmp_path)
    done = translated(root)
    assert done.code == 0, done.err
    frame = translation.read(done.made).set_index("source_caption_id")
    assert frame.loc[folder.captions[0][0], "text"] == ODD_ES


def test_captions_that_fail_are_recorded_and_tried_again(tmp_path: Path, engine: Engine) -> None:
    folder = toy.toy()
    root = imported(folder, tmp_path)
    known = dict(folder.tables["en-es"])
    missing = known.pop("red circle"), known.pop("blue bar")
    engine.knows(known)
    options = ("--engine", "apertium")
    done = translated(root, *options)
    assert done.code == 3 and "2 failed" in done.err and "--retry-failed" in done.err
    assert done.made.counts["failed"] == 2
    found = {f["id"]: f for f in failures(done.made)}
    assert set(found) == {"red-circle-en0@es", "blue-bar-en0@es"}
    assert all(f["stage"] == "translate" and f["attempt"] == 1 and f["message"] for f in found.values())
    frame = translation.read(done.made).set_index("caption_id")
    assert frame.loc[list(found), "text"].isna().all() and set(frame.loc[list(found), "status"]) == {"failed"}

    known = {source: "another" for source in known} | {"red circle": missing[0]}
    engine.knows(known)
    again = translated(root, *options, "--retry-failed")
    assert again.code == 3
    assert [(f["id"], f["attempt"]) for f in failures(again.made)] == [("blue-bar-en0@es", 2)]
    now = translation.read(again.made).set_index("caption_id")
    assert now.loc["red-circle-en0@es", "text"] == missing[0]
    rest = [i for i in frame.index if i not in found]
    assert now.loc[rest, "text"].equals(frame.loc[rest, "text"]), "what succeeded is kept"
    assert translated(root, *options, "--retry-failed").made.id == again.made.id, "nothing gained, nothing stale"
    engine.knows(known | {"blue bar": missing[1]})
    last = translated(root, *options, "--retry-failed")
    assert last.code == 0 and not last.made.has(base.FAILURES)


def test_too_many_failures_stop_and_what_succeeded_is_kept(tmp_path: Path, engine: Engine) -> None:
    folder = toy.toy()
    root = imported(folder, tmp_path)
    whole = folder.tables["en-es"]
    half = dict(list(whole.items())[:60])
    engine.knows(half)
    done = translated(root, "--engine", "apertium")
    assert (done.code, done.out) == (1, "")
    assert "36 of 96 captions failed, more than --max-failed 0.2" in done.err
    engine.knows({source: text if source not in half else "another" for source, text in whole.items()})
    done = translated(root, "--engine", "apertium")
    assert done.code == 0, done.err
    assert list(translation.read(done.made)["text"]) == list(whole.values())


def test_a_training_run_leaves_untranslated_captions_out(tmp_path: Path) -> None:
    folder = toy.toy()
    del folder.tables["en-es"]["red circle"]
    root = imported(folder, tmp_path)
    made = translated(root).made
    toy.ok("extract", *toy.ENCODER, workspace=root)
    done = toy.ok("train", "--epochs", "1", *toy.SMALL, made.path, workspace=root)
    assert "1 triplet left out" in done.err and done.made.counts["triplets"] == 47


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--lang", "zh"), ("Helsinki-NLP/opus-mt-en-zh", "hf download", "en->es, es->en")),
        (("--lang", "tlh"), ("facebook/m2m100_418M", "hf download", "en->es, es->en")),
        (("--lang", "zh", "--engine", "recorded"), ("no translations en->zh", "en->es, es->en")),
        (("--lang", "es", "--engine", "recorded", "--set", "engine=nobody"), ("en->es by nobody", "en->es (hand)")),
    ],
)
def test_what_is_not_to_be_had(
    options: tuple[str, ...], words: tuple[str, ...], workspace: Chain, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a model and without a network it says at once what is missing and what there is."""
    for name, value in toy.environment(workspace.root).items():
        monkeypatch.setenv(name, value)
    before = toy.digests(workspace.root)
    done = workspace.ccr("translate", *options)
    assert (done.code, done.out) == (5, "")
    for word in words:
        assert word in done.err
    after = toy.digests(workspace.root)
    assert {
        name: digest for name, digest in after.items() if "/.plan.json" not in name and "hf-home" not in name
    } == before


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ((), "which language?"),
        (("--lang", "en"), "'en'"),
        (("--lang", "en"), "--lang LANG --with-queries"),
        (("--lang", "../../es"), "'../../es'"),
        (("--lang", "../../es"), "--lang es"),
        (("--noise", "1.5"), "--noise 0.015"),
        (("--noise", "0.2", "--noise-style", "foo"), "noise style 'foo'\n  try: --noise-style caption or image"),
        (("--noise", "0.2", "--noise-style", "foo", "--dry-run"), "try: --noise-style caption or image"),
        (("--noise", "0.2", "--noise-target", "foo"), "'foo'\n  try: --noise-target translation or pair"),
        (("--lang", "es", "--noise-seed", "0"), "--noise-seed 0 has no effect without --noise\n  try: add --noise 0.4"),
        (("--lang", "es", "--noise-target", "pair"), "--noise-target pair has no effect"),
        (("--lang", "es", "--engine", "deep-translator", "--set", "provider=foo"), "'foo'; choose from google"),
        (("--lang", "de", "--set", "table=ok.tsv"), "no option 'table'\n  try: --engine recorded; "),
        (("--lang", "es", "--set", "num_beams=4"), "try: --engine ct2 or --engine hf; "),
        (("--lang", "es", "--engine", "apertium", "--set", "modes"), "--set help lists the keys"),
        (("--lang", "es", "--split", "dev"), "splits: train, val, test"),
        (("--lang", "es", "--engine", "google"), "known translators: apertium, "),
        (("--lang", "es", "--engine", "recorded", "--set", "tabel=x"), "options: engine, table"),
        (("--lang", "es", "--engine", "recorded", "--set", "table=no.tsv"), "--set table: there is no no.tsv"),
    ],
)
def test_wrong_options(options: tuple[str, ...], message: str, sources: Chain) -> None:
    done = sources.ccr("translate", *options)
    assert (done.code, done.out) == (2, "") and message in done.err


def test_one_artifact_a_language(tmp_path: Path) -> None:
    folder = toy.toy()
    folder.tables["en-fr"] = {source: f"fr {text}" for source, text in folder.tables["en-es"].items()}
    root = imported(folder, tmp_path)
    done = toy.ok("translate", "--lang", "es", "--lang", "fr", "--lang", "es", workspace=root)
    made = [base.load(path) for path in done.paths if path.parent.parent.name == "translations"]
    assert [translation.language(a) for a in made] == ["es", "fr"]
    assert [a.name for a in made] == ["es-recorded", "fr-recorded"]


@pytest.mark.parametrize("options", [("--back", "--with-queries"), (), ("--rounds", "2")])
def test_a_caption_that_is_called_like_a_translation_is_refused(options: tuple[str, ...], tmp_path: Path) -> None:
    folder = toy.toy()
    human = next(row for row in folder.captions if row[2] == "es")
    human[0] = f"{folder.captions[0][0]}@es"
    root = imported(folder, tmp_path)
    for more in (options, (*options, "--dry-run")):
        done = translated(root, *more)
        assert (done.code, done.out) == (4, "")
        for word in ("captions.parquet", f"'{human[0]}'", "captions.tsv", "ccr data import"):
            assert word in done.err
    assert not list((root / "translations").glob("*/*/artifact.json"))


@pytest.mark.parametrize(
    ("options", "installed"), [(("--rounds", "2"), True), (("--back",), True), (("--back",), False)]
)
def test_auto_takes_recorded_only_where_the_tables_answer(
    options: tuple[str, ...], installed: bool, tmp_path: Path, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = toy.toy()
    table = folder.tables["en-es"]
    folder.tables["es-en"] = {text: f"{text} 2" for text in list(table.values())[: 96 if "--rounds" in options else 9]}
    root = imported(folder, tmp_path)
    for name, value in toy.environment(root).items():
        monkeypatch.setenv(name, value)
    if not installed:
        monkeypatch.setenv("PATH", str(tmp_path))
    plain = translated(root)
    assert plain.code == 0 and plain.made.name == "es-recorded"
    planned = translated(root, *options, "--dry-run")
    assert planned.code == 0 and "forward model\tHelsinki-NLP/opus-mt-en-es" in planned.out
    done = translated(root, *options)
    assert (done.code, done.out) == (5, "")
    assert all("not recorded): hf" in outcome.err for outcome in (done, planned))
    assert ("try: --engine apertium" in done.err) == installed == (done.err.count("--engine apertium") == 1)
    for more in ((), ("--dry-run",)):
        asked = translated(root, "--engine", "recorded", *options, *more)
        assert (asked.code, asked.out) == (1, "") and "captions failed, more than --max-failed 0.2" in asked.err


def test_a_dry_run_of_recorded_says_how_many_are_not(tmp_path: Path) -> None:
    folder = toy.toy()
    del folder.tables["en-es"]["red circle"]
    done = translated(imported(folder, tmp_path), "--dry-run")
    assert done.code == 0 and "forward not recorded\t1" in done.out.splitlines()


@pytest.mark.parametrize(("langs", "code"), [(("tlh", "es", "it"), 5), (("it", "es", "tlh"), 1), (("es", "it"), 1)])
def test_what_stops_one_language_does_not_stop_the_others(langs: tuple[str, ...], code: int, tmp_path: Path) -> None:
    folder = toy.toy()
    folder.tables["en-it"] = dict(list(folder.tables["en-es"].items())[:9])
    root = imported(folder, tmp_path)
    options = [f"--lang={lang}" for lang in langs]
    done = toy.ccr("translate", *options, "--engine", "recorded", workspace=root)
    assert done.code == code
    assert [path.name for path in done.paths] == ["toy", "es-recorded"]
    lines = done.err.splitlines()
    missed = [lang for lang in langs if lang != "es"]
    assert lines[-2].startswith(f"error: not made: {', '.join(missed)} ")
    assert "give the same command again" in lines[-1]
    assert all(any(line.startswith(f"error: --lang {lang}: ") for line in lines) for lang in missed)
    planned = toy.ccr("translate", *options, "--engine", "recorded", "--dry-run", workspace=root)
    assert planned.code == code and planned.out.count("artifact\t") == 1 and "es-recorded" in planned.out
    told = toy.ccr("translate", *options, "--engine", "recorded", "--json", workspace=root)
    assert told.code == code and [each["name"] for each in json.loads(told.out)["made"]] == ["es-recorded"]


@pytest.mark.slow
def test_several_engines_make_a_translation_each(tmp_path: Path, engine: Engine) -> None:
    folder, engines = toy.toy(), ("--engine", "recorded", "--engine", "apertium", "--engine", "recorded")
    root = imported(folder, tmp_path)
    failed = toy.ccr("translate", "--lang", "es", *engines, workspace=root)
    assert failed.code == 1 and [path.name for path in failed.paths] == ["toy", "es-recorded"]
    assert "error: not made: es --engine apertium " in failed.err
    engine.knows({text: f"otra vez {made}" for text, made in folder.tables["en-es"].items()})
    done = toy.ok("translate", "--lang", "es", *engines, workspace=root)
    assert [path.name for path in done.paths] == ["toy", "es-recorded", "es-apertium"]
    assert [base.load(path).request["engine"] for path in done.paths[1:]] == ["recorded", "apertium"]
    toy.ok("extract", *toy.ENCODER, workspace=root)
    train = ("train", "-", "--method", "infonce", "--epochs", "1", *toy.SMALL)
    trained = toy.ok(*train, workspace=root, stdin=done.out).made
    assert trained.name.startswith("toy-es-infonce-seed0-") and trained.counts["triplets"] == 96
    named = toy.ccr("translate", "--lang", "es", *engines, "--name", "x", workspace=root)
    assert named.code == 2 and "--name x" in named.err


def test_a_wrong_option_stops_all_languages(sources: Chain) -> None:
    done = sources.ccr("translate", "--lang", "en", "--lang", "es", "--name", "x")
    assert done.code == 2 and "--name x" in done.err
    done = sources.ccr("translate", "--lang", "en", "--lang", "es")
    assert (done.code, done.out) == (2, "") and "not made: en, es" in done.err


def test_a_name_for_a_language_and_a_mismatch(sources: Chain) -> None:
    done = sources.ccr("translate", "--lang", "es", "--noise", "0.4", "--name", "mine")
    assert done.code == 2 and "ccr translate --noise 0.4 --name NAME" in done.err


@pytest.mark.parametrize(
    ("options", "licence"),
    [
        (("--engine", "apertium"), "GPL-2.0"),
        (("--engine", "hf"), "CC-BY-4.0"),
        (("--engine", "deep-translator"), "Google's terms"),
    ],
)
def test_a_dry_run_shows_the_licence(
    options: tuple[str, ...], licence: str, tmp_path: Path, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = imported(toy.toy(), tmp_path)
    for name, value in toy.environment(root).items():
        monkeypatch.setenv(name, value)
    shown = translated(root, *options, "--dry-run")
    (line,) = [line for line in shown.out.splitlines() if line.startswith("forward licence")]
    assert licence in line


def tabled(folder: Folder, place: Path, split: str | None = None) -> tuple[str, ...]:
    """Writes a table of the English captions, of one split or all, and returns the options that take it."""
    split_of = {row[0]: row[1] for row in folder.items}
    rows = [row for row in folder.captions if row[2] == "en" and split in (None, split_of[row[1]])]
    place.write_text("source\ttarget\n" + "".join(f"{row[4]}\tde {row[4]}\n" for row in rows), encoding="utf-8")
    return ("--lang", "de", "--engine", "recorded", "--set", f"table={place}")


@pytest.mark.parametrize("name", [(), ("--name", "mine")])
def test_a_table_that_was_mended(name: tuple[str, ...], tmp_path: Path) -> None:
    folder = toy.toy()
    root = imported(folder, tmp_path)
    table = tmp_path / "mine.tsv"
    options = (*tabled(folder, table), *name)
    whole = table.read_text()
    table.write_text(whole.replace("red circle\t", "nobody\t"))
    done = toy.ccr("translate", *options, workspace=root)
    assert done.code == 3 and "repeat the command with --force" in done.err
    assert "95 of the 96 lines of mine.tsv" in done.err and "--retry-failed" not in done.err
    table.write_text(whole)
    if name:
        again = toy.ccr("translate", *options, "--retry-failed", workspace=root)
        assert again.code == 4 and "set.table" in again.err and "try: --force" in again.err
        options += ("--force",)
    assert toy.ok("translate", *options, workspace=root).made.counts["failed"] == 0


def test_a_data_sets_table_is_mended_where_it_came_from(tmp_path: Path) -> None:
    folder = toy.toy()
    del folder.tables["en-es"]["red circle"]
    done = translated(imported(folder, tmp_path))
    assert done.code == 3 and "import a data set again" in done.err


@pytest.mark.parametrize(("asked", "hint"), [((), "--split test"), (("--split", "val"), "another split: --split test")])
def test_a_table_for_another_split(asked: tuple[str, ...], hint: str, tmp_path: Path) -> None:
    folder = toy.toy()
    root = imported(folder, tmp_path)
    options = tabled(folder, tmp_path / "mine.tsv", "test")
    for more in ((), ("--dry-run",)):
        done = toy.ccr("translate", *options, *asked, *more, workspace=root)
        assert done.code == 1 and f"{hint}\n" in done.err
        assert "24 of the 24 lines of mine.tsv" in done.err
        assert "0 of 48 captions of train, 0 of 24" in done.err
    assert toy.ok("translate", *options, "--split", "test", workspace=root).made.counts["forward"] == 24


def test_a_split_without_source_captions(tmp_path: Path) -> None:
    data = toy.ok("data", "import", "twemoji", workspace=tmp_path).made
    for more in ((), ("--dry-run",)):
        done = translated(tmp_path, data.path, "--engine", "recorded", "--split", "train", *more)
        assert (done.code, done.out) == (4, "")
        assert "twemoji has no en captions in train\n" in done.err and "try: --split test\n" in done.err


def test_rows_of_a_spreadsheet_are_counted(tmp_path: Path) -> None:
    folder = toy.toy()
    root, table = imported(folder, tmp_path), tmp_path / "mine.xlsx"
    options = tabled(folder, tmp_path / "mine.tsv", "test")
    pd.read_csv(tmp_path / "mine.tsv", sep="\t").to_excel(table, index=False)
    done = toy.ccr("translate", *options[:-1], f"table={table}", workspace=root)
    assert done.code == 1 and "24 of the 24 lines of mine.xlsx" in done.err


def test_a_table_for_another_data_set(tmp_path: Path) -> None:
    folder = toy.toy()
    root = imported(folder, tmp_path)
    table = tmp_path / "mine.tsv"
    options = tabled(folder, table)
    table.write_text("source\ttarget\na dog\tein Hund\n")
    done = toy.ccr("translate", *options, workspace=root)
    assert done.code == 1 and "0 of the 1 lines of mine.tsv" in done.err
    assert "another data set?" in done.err


def test_a_folder_that_was_not_imported(tmp_path: Path) -> None:
    root = imported(toy.toy(), tmp_path)
    done = toy.ccr("translate", tmp_path / "toy", "--lang", "es", workspace=root)
    assert done.code == 4 and "not imported yet" in done.err and f"try: ccr data import {tmp_path / 'toy'}" in done.err
    for path in ("datasets/nothere", "nothere"):
        done = toy.ccr("translate", path, "--lang", "es", workspace=root)
        assert done.code == 4 and "nothere does not exist" in done.err and "there are: datasets/toy" in done.err


@pytest.mark.slow
def test_a_translation_stands_for_its_data_set(tmp_path: Path) -> None:
    folder = toy.toy()
    folder.tables["en-fr"] = {source: f"fr {text}" for source, text in folder.tables["en-es"].items()}
    root = imported(folder, tmp_path)
    other = toy.toy("second")
    other.tables = folder.tables
    toy.ok("data", "import", other.write(tmp_path / "second"), workspace=root)
    made = [toy.ok("translate", f"datasets/{name}", "--lang", "es", workspace=root).made for name in ("toy", "second")]
    done = toy.ok("translate", made[1].path, "--lang", "fr", "--noise", "0.4", workspace=root)
    assert [path.parent.name for path in done.paths] == ["datasets", "second", "second"]
    both = toy.ccr("translate", *(each.path for each in made), "--lang", "fr", workspace=root)
    assert both.code == 4 and "\n  datasets/toy\n  datasets/second\n" in both.err
    first = toy.ok("translate", made[1].path, "datasets/toy", "--lang", "fr", workspace=root)
    assert [path.parent.name for path in first.paths] == ["datasets", "toy"], "a data set that is named counts"


@pytest.mark.slow
def test_whose_recording_is_taken_is_said(tmp_path: Path) -> None:
    place = toy.toy().write(tmp_path / "toy")
    (place / "translations/zeta-en-es.tsv").write_bytes((place / "translations/hand-en-es.tsv").read_bytes())
    root = tmp_path / "workspace"
    toy.ok("data", "import", place, workspace=root)
    assert "recorded translations by hand; there are also zeta: --set engine=zeta\n" in translated(root).err
    assert "recorded translations by zeta; there are also hand: --set engine=hand\n" in (
        translated(root, "--set", "engine=zeta").err
    )
    made = translated(imported(toy.toy(), tmp_path / "one"))
    assert made.code == 0 and "recorded translations by" not in made.err
    table = translated(root, "--set", f"table={place / 'translations/zeta-en-es.tsv'}")
    assert table.code == 0 and "recorded translations by" not in table.err
