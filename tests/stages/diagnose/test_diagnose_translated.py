"""A translation is diagnosed without a run: captions of all splits, and everything that reads the diagnosis."""

from __future__ import annotations

import csv
import itertools
import json
from pathlib import Path

import pandas as pd
import pytest
import toy
from toy import Chain

from ccr_cli.artifacts import base, dataset, diagnosis, translation

WRONG = {"a picture of one circle that is red": "una imagen de un barra que es gris"}
"""Of a training item; that of a validation item is added."""


@pytest.fixture(scope="module")
def translated(tmp_path_factory: pytest.TempPathFactory) -> Chain:
    """A workspace with a translation of which a training and a validation caption are wrong; read only."""
    root, folder = tmp_path_factory.mktemp("translated"), toy.toy()
    folder.tables["en-es"] |= WRONG | {"a picture of one square that is red": "una imagen de un anillo que es azul"}
    toy.ok("data", "import", folder.write(root / "source"), workspace=root)
    toy.ok("translate", "--lang", "es", workspace=root)
    return Chain(root / "source", root)


def test_captions_of_all_splits_are_judged_and_the_wrong_ones_come_first(translated: Chain) -> None:
    done = toy.ok("diagnose", workspace=translated.root)
    assert "(ccr diagnose translations/toy/es-recorded --worst 100)" in done.err and done.made.name == "toy-es-recorded"
    assert [parent.kind for parent in done.made.parents] == ["dataset", "translation"]
    assert done.made.request == {"judge": "fusion"}
    pairs = diagnosis.read_pairs(done.made)
    source = dataset.read(translated.find("dataset"))
    english = source.captions[source.captions["lang"] == "en"]
    assert list(pairs["slot_id"]) == list(english["caption_id"]) and sorted(pairs["place"]) == list(range(1, 97))
    split = source.items.set_index("item_id")["split"]
    assert list(pairs["split"]) == list(split[english["item_id"]])
    first = pairs.sort_values("place").head(2)
    assert {*first["source_text"]} == {*WRONG, "a picture of one square that is red"}
    summary = diagnosis.summary(done.made)
    assert [row["slot_id"] for row in summary["most_suspicious"][:2]] == list(first["slot_id"])
    assert {name: part["pairs"] for name, part in summary["splits"].items()} == {"test": 24, "train": 48, "val": 24}
    assert toy.ok("diagnose", workspace=translated.root).made.id == done.made.id


def test_in_a_pipe_the_translation_is_diagnosed_and_a_run_where_there_is_one(chain: Chain, translated: Chain) -> None:
    made = translated.find("translation").path
    lines = f"{translated.find('dataset').path}\n{made}\n"
    done = toy.ok("diagnose", "-", "--worst", "3", "--json", workspace=translated.root, stdin=lines)
    rows = json.loads(done.out)["worst"]
    assert [row["place"] for row in rows] == [1, 2, 3] and "spans_translation" in rows[0]
    with_runs = toy.ccr("diagnose", "--dry-run", workspace=chain.root)
    assert with_runs.code == 4 and "several run" in with_runs.err


@pytest.mark.parametrize(
    "options", [("--judge", "gmm"), ("--judge", "oracle"), ("--judge-side", "both"), ("--share", "2")]
)
def test_what_needs_a_run_is_refused(options: tuple[str, ...], translated: Chain) -> None:
    assert toy.ccr("diagnose", *options, workspace=translated.root).code == 2


@pytest.mark.slow
def test_the_diagnosis_serves_all_that_read_one(workspace: Chain, tmp_path: Path) -> None:
    """The file repairs validation captions too; training reads its training pairs."""
    root, original = workspace.root, workspace.find("translation")
    listed, sheet = tmp_path / "pairs.csv", tmp_path / "worst.html"
    asked = ("--share", "0.1", "--export", listed, "--sheet", sheet)
    made = toy.ok("diagnose", original.path, *asked, workspace=root).made
    assert "<mark>" in sheet.read_text() or "Underlined" in sheet.read_text()
    with listed.open(encoding="utf-8-sig", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["verdict"] for row in rows].count("noisy") == 10 and {row["split"] for row in rows} == {
        "train", "val", "test",
    }  # fmt: skip
    by_hand = next(row for row in rows if row["split"] == "val")
    by_hand["correction"] = "corregido"
    pd.DataFrame(rows).to_csv(listed, index=False)
    mended = toy.ok("translate", original.path, "--only", listed, workspace=root).made
    texts = translation.read(mended).set_index("caption_id")["text"]
    assert texts[f"{by_hand['source_caption_id']}@es"] == "corregido"
    trained = toy.ok(
        "train", original.path, "--method", "infonce", "--epochs", "1", "--verdicts", listed, *toy.SMALL, workspace=root
    ).made
    kept = sum(row["split"] == "train" and row["verdict"] == "clean" for row in rows)
    assert trained.counts["triplets"] == kept
    shown = toy.ok("show", made.path, workspace=root).err
    assert "10 of 96 translated captions" in shown
    assert "toy, es" in toy.ok("show", workspace=root).out
    report = toy.ok("report", original.path, workspace=root).made
    page = (report.path / "report.html").read_text(encoding="utf-8")
    assert "10 of 96 translations wrong" in page
    assert base.load(made.path).id in {parent.id for parent in report.parents}


@pytest.mark.slow
def test_copies_come_first_unknown_words_are_not_judged_and_corrections_come_last(tmp_path: Path) -> None:
    folder = toy.toy()
    items = list(folder.tables["en-es"])
    for item in (items[0], items[-2]):
        folder.tables["en-es"][item] = item
    folder.tables["en-es"][items[3]] += f", {items[-2]}"  # so they are words of the language
    toy.ok("data", "import", folder.write(tmp_path / "source"), workspace=tmp_path)
    original = toy.ok("translate", "--lang", "es", workspace=tmp_path).made
    listed = tmp_path / "pairs.csv"
    toy.ok("diagnose", "--export", listed, workspace=tmp_path)
    rows = pd.read_csv(listed, dtype=str)
    assert rows["source_text"][0] == items[0] and rows["flags"][0] == f"copy, untranslated ({items[0]})"
    assert rows["unmatched_source"][0].split(", ") == items[0].split()
    known = rows.set_index("source_text").loc[items[-2]]
    assert known["flags"] == "copy" and rows["source_text"][1] != items[-2]
    assert toy.ccr("translate", "--only", listed, workspace=tmp_path).code == 2, "nothing is noisy or corrected"
    rows.loc[0, "correction"] = "zyx"
    rows.to_csv(listed, index=False)
    mended = toy.ok("translate", original.path, "--only", listed, workspace=tmp_path).made
    made = toy.ok("diagnose", mended.path, workspace=tmp_path).made
    last = diagnosis.read_pairs(made).sort_values("place").iloc[-1]
    assert last["source_text"] == items[0] and last["verdict"] == "clean"
    rows.loc[0, "correction"] = rows["translation"][0]
    rows.to_csv(listed, index=False)
    same = toy.ccr("translate", original.path, "--only", listed, workspace=tmp_path)
    assert same.code == 2 and len([*(tmp_path / "translations" / "toy").iterdir()]) == 2, "no text would change"


def test_a_translation_of_something_else_comes_before_a_copy(tmp_path: Path) -> None:
    things = {"red dog": "perro rojo", "blue cat": "gato azul", "old car": "coche viejo", "big tree": "árbol grande"}
    deeds = {"sleeps": "duerme", "jumps": "salta", "waits": "espera", "falls": "cae", "shines": "brilla"}
    places = {"by the sea": "junto al mar", "in the snow": "en la nieve", "on a roof": "sobre un techo"}
    rows = [
        [f"{a} {b} {c} {n}", f"{things[a]} {deeds[b]} {places[c]} {n}"]
        for n, (a, b, c) in enumerate(itertools.product(things, deeds, places))
    ]
    rows[7][1] = rows[7][0]
    rows[0][1], rows[-1][1] = rows[-1][1], rows[0][1]
    own = tmp_path / "own.csv"
    pd.DataFrame(rows, columns=["caption", "mt_es"]).assign(id=range(len(rows))).to_csv(own, index=False)
    toy.ok("data", "import", own, workspace=tmp_path)
    toy.ok("translate", "--lang", "es", workspace=tmp_path)
    made = toy.ok("diagnose", workspace=tmp_path).made
    first = diagnosis.read_pairs(made).sort_values("place").head(3)
    assert [*first["verdict"][:2]] == ["noisy", "noisy"] and first["source_text"].iloc[2] == rows[7][0]
    assert {*first["source_text"][:2]} == {rows[0][0], rows[-1][0]}
    toy.ok("diagnose", "--sheet", tmp_path / "worst.html", workspace=tmp_path)
    above, line, below = (tmp_path / "worst.html").read_text(encoding="utf-8").partition('class="boundary"')
    assert line and rows[0][0] in above and rows[0][0] not in below and ">noisy<" not in below


@pytest.mark.slow
def test_a_list_tells_its_data_set(tmp_path: Path) -> None:
    """By its captions, by their texts where another data set has the same ids, or by what was translated."""
    folder, twin = toy.toy(), toy.toy()
    twin.captions = [[*row[:4], f"{row[4]}!", row[5]] for row in twin.captions]
    for name, each in (("toy", folder), ("twin", twin), ("untranslated", folder)):
        toy.ok("data", "import", each.write(tmp_path / name), "--name", name, workspace=tmp_path)
    made = toy.ok("translate", "datasets/toy", "--lang", "es", workspace=tmp_path).made
    listed = tmp_path / "pairs.csv"
    toy.ok("diagnose", made.path, "--export", listed, workspace=tmp_path)
    rows = pd.read_csv(listed, dtype=str).assign(verdict="clean")
    rows.loc[0, "correction"] = "zyx"
    rows.to_csv(listed, index=False)
    mended = toy.ok("translate", "--only", listed, workspace=tmp_path).made
    assert mended.parent("translation").id == made.id
    rows.drop(columns="translation").assign(source_text="").to_csv(listed, index=False)
    several = toy.ccr("translate", "--only", listed, workspace=tmp_path)
    assert several.code == 4 and all(f"datasets/{name}" in several.err for name in ("toy", "twin", "untranslated"))
    rows.assign(source_caption_id="nowhere").drop(columns="slot_id").to_csv(listed, index=False)
    unknown = toy.ccr("translate", "--only", listed, workspace=tmp_path)
    assert unknown.code == 4 and str(listed) in unknown.err and "DATASET" in unknown.err


def test_a_word_that_too_few_others_have_is_not_judged(tmp_path: Path) -> None:
    folder = toy.toy()
    first = next(iter(folder.tables["en-es"]))
    folder.tables["en-es"][first] = "ewe"
    toy.ok("data", "import", folder.write(tmp_path / "source"), workspace=tmp_path)
    toy.ok("translate", "--lang", "es", workspace=tmp_path)
    made = toy.ok("diagnose", workspace=tmp_path).made
    pairs = diagnosis.read_pairs(made).set_index("source_text")
    unknown = pairs[pairs["verdict"] == diagnosis.NOT_JUDGED]
    assert {*unknown.index} <= {first} and diagnosis.summary(made)["not_judged"] == len(unknown)
    assert pairs.loc[first, "verdict"] != "clean" and pairs.loc[first, "support"] == 0


@pytest.mark.slow
def test_other_translations_of_the_captions_are_witnesses(workspace: Chain) -> None:
    root, original = workspace.root, workspace.find("translation")
    alone = toy.ok("diagnose", original.path, workspace=root).made
    again = toy.ok("translate", "--lang", "es", "--name", "again", workspace=root)
    assert toy.ok("diagnose", original.path, workspace=root).made.id == alone.id, "the same texts are no witness"
    frame = translation.read(again.made)
    path = root / "other.csv"
    rows = frame[frame["direction"] == "forward"]
    noted = "imagen: " + rows["text"]
    columns = {"slot_id": rows["source_caption_id"], "source_caption_id": rows["source_caption_id"], "lang": "es"}
    pd.DataFrame({**columns, "translation": rows["text"], "correction": noted, "verdict": "clean"}).to_csv(path)
    other = toy.ok("translate", again.made.path, "--only", path, "--name", "other", workspace=root).made
    done = toy.ok("diagnose", original.path, workspace=root)
    assert "translations/toy/other" in done.err and done.made.request["witnesses"] == [other.id[:12]]
    assert [parent.id for parent in done.made.parents][1:] == [original.id, other.id] and done.made.name != alone.name
    assert str(other.path) not in done.out, "what comes next in a pipe would train on it"
    command = done.made.rebuild_command()
    assert command[-2] == "--witness=translations/toy/other" and "translations/toy/other" not in command, command
    assert toy.ok(*command[1:], workspace=root).made.id == done.made.id
    assert toy.ok(*alone.rebuild_command()[1:], workspace=root).made.id == alone.id, "it had no witness"
    several = toy.ok("diagnose", original.path, other.path, workspace=root).paths
    made = [each for each in map(base.load, several) if each.kind == "diagnosis"]
    assert len(made) == 2
    for each in made:
        assert toy.ok(*each.rebuild_command()[1:], workspace=root).made.id == each.id
    assert toy.ok("diagnose", original.path, "--witness", "none", workspace=root).made.id == alone.id
    assert toy.ok("diagnose", original.path, "--witness", "other", workspace=root).made.id == done.made.id
    for options in (("--witness", "toy/es-recorded"), ("--witness", "toy")):
        assert toy.ccr("diagnose", original.path, *options, workspace=root).code in (2, 4)
    trained = toy.ok("train", original.path, "--method", "infonce", "--epochs", "1", *toy.SMALL, workspace=root).made
    of_run = toy.ok("diagnose", trained.path, "--judge", "lexical", "--device", "cpu", workspace=root).made
    assert of_run.request["witnesses"] == [other.id[:12]] and of_run.parents[1].id == other.id
    assert toy.ccr("diagnose", trained.path, "--witness", "other", workspace=root).code == 2, "two-group reads none"
    compared = toy.ok("diagnose", other.path, "--judge", "translation", "--witness", "again", workspace=root).made
    assert diagnosis.summary(compared)["pairs"] == 96 and len(compared.parents) == 3


def test_parallel_text_finds_what_every_translation_has_wrong(tmp_path: Path) -> None:
    """In either order of the languages, and not by the judged translations themselves."""
    folder, path = toy.toy(), tmp_path / "parallel.tsv"
    right = dict(folder.tables["en-es"])
    folder.tables["en-es"] = {en: es.replace("círculo", "rueda") for en, es in right.items()}
    root, judged = tmp_path / "w", ("diagnose", "translations/toy/es-recorded")
    toy.ok("data", "import", folder.write(tmp_path / "source"), workspace=root)
    for name in ("recorded", "other"):
        toy.ok("translate", "--lang", "es", "--name", f"es-{name}", workspace=root)
    starts = {"there is a": "hay un", "we see a": "vemos un", "look at a": "mira un"}
    others = [(f"{a} {en}", f"{b} {es}") for en, es in right.items() for a, b in starts.items()]
    wheels = [("wheels and one wheel", "ruedas y una rueda"), ("here is one wheel", "aquí hay una rueda")]
    others += wheels
    leaks = [(f"{en.upper()}.", es) for en, es in folder.tables["en-es"].items()]

    def first(pairs: list[tuple[str, str]], *options: str) -> tuple[float, pd.DataFrame, base.Artifact]:
        """The share of circles among the first twelve, all pairs, and the diagnosis."""
        path.write_text("".join(f"{a}\t{b}\n" for a, b in pairs), encoding="utf-8")
        how = (*judged, "--set", f"parallel={path}", "--name", f"d{len(list(root.rglob('pairs.parquet')))}", *options)
        made = toy.ok(*how, workspace=root).made
        pairs_of = diagnosis.read_pairs(made).sort_values("place")
        return pairs_of["source_text"].head(12).str.contains("circle").mean(), pairs_of, made

    share, alone, made = first(others)
    assert share == 1 and made.request["parallel"].startswith("sha256:") and "witnesses" not in made.request
    assert {row["unmatched_source"] for row in diagnosis.summary(made)["most_suspicious"]} == {"", "circle"}
    plain = diagnosis.read_pairs(toy.ok(*judged, "--witness", "none", workspace=root).made).sort_values("place")
    assert plain["source_text"].head(12).str.contains("circle").mean() < 0.5, "they are right by their own words"
    for pairs in (others + leaks, [(b, a) for a, b in others]):
        assert first(pairs)[1]["p_clean"].equals(alone["p_clean"])
    assert first([*right.items(), *wheels])[0] == 1, "right translations of the same captions"
    assert first(others, "--judge", "lexical")[1]["p_clean"].equals(alone["p_clean"])
    for pairs in (leaks, [("ein Kreis", "un cercle")]):
        path.write_text("".join(f"{a}\t{b}\n" for a, b in pairs), encoding="utf-8")
        refused = toy.ccr(*judged, "--set", f"parallel={path}", workspace=root)
        assert refused.code == 2 and str(path) in refused.err
    path.rename(path.with_suffix(".txt"))
    refused = toy.ccr(*judged, "--set", f"parallel={path}", workspace=root)
    assert refused.code == 2 and str(path.with_suffix(".txt")) in refused.err
