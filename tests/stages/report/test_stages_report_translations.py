"""Which translations a report shows, and the page that translations make alone."""

from __future__ import annotations

import copy
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import toy
from standin import Engine
from toy import Chain

from ccr_cli.artifacts.workspace import Workspace
from ccr_cli.report.page import compose
from ccr_cli.stages.report.stage import gather
from ccr_cli.stages.shared.inputs import Inputs


@pytest.fixture(autouse=True)
def coarse(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ccr_cli.report.figures.canvas.PNG_DPI", 40)


@pytest.fixture
def workspace(sources: Chain, tmp_path: Path) -> Chain:
    shutil.copytree(sources.root, tmp_path / "workspace")
    return Chain(sources.folder, tmp_path / "workspace")


@pytest.mark.slow
def test_a_report_of_runs_shows_what_they_were_trained_on(chain: Chain, tmp_path: Path) -> None:
    root = tmp_path / "workspace"
    shutil.copytree(chain.root, root)
    made = toy.ok("report", chain.find("evaluation", "uml").path.relative_to(chain.root), workspace=root).made
    assert {p.kind for p in made.parents} == {"evaluation", "diagnosis", "run", "translation"}
    assert made.has("tables/translations.csv") and made.has("figures/translations.svg")
    text = made.file("report.html").read_text(encoding="utf-8")
    assert 'id="result"' in text and 'id="translations"' in text
    assert "The 12 captions whose round trip is worst" in text and "data:image/png" in text


def test_what_failed_is_said_beside_results_too(chain: Chain) -> None:
    material = gather(Inputs(Workspace(chain.root)))
    assert not any("failed" in sentence for sentence in compose.overview(material).findings.more)
    quality = copy.deepcopy(dict(material.translations[0].quality))
    quality["forward"]["splits"]["train"]["failed"] = 7
    failing = replace(material, translations=[replace(material.translations[0], quality=quality)])
    assert compose.overview(failing).findings.more[-1] == "Translation failed for 7 of 96 captions."


def test_translations_alone(workspace: Chain) -> None:
    path = workspace.find("translation").path
    done = workspace.ccr("report", path)
    assert done.code == 0, done.err
    assert "Of 96 captions translated into es by hand (recorded), 0 (0.0%) are flagged." in done.err
    assert path in done.paths and done.made.parents[0].kind == "translation" and len(done.made.parents) == 1
    text = done.made.file("report.html").read_text(encoding="utf-8")
    assert "toy in es" in text and "The 1 artifact behind this page" in text
    assert "human caption of the item" in text and "aquí hay un" in text
    scores = done.made.file("tables/translation-scores.csv").read_text(encoding="utf-8").splitlines()
    assert scores[0] == "references,translation,captions,BLEU,BLEU_sd,chrF2,chrF2_sd,chrF2++,chrF2++_sd"
    assert [line.partition(":")[0].strip('"') for line in scores[1:]] == ["toy test, es", "toy val, es"]
    assert workspace.ccr("report").made.id == done.made.id, "with nothing named, all that there is"


@pytest.mark.usefixtures("unillustrated")
def test_named_translations_leave_evaluations_out(chain: Chain, tmp_path: Path) -> None:
    root = tmp_path / "workspace"
    shutil.copytree(chain.root, root)
    made = toy.ok("report", chain.find("translation").path.relative_to(chain.root), workspace=root).made
    assert {p.kind for p in made.parents} == {"translation"}


@pytest.mark.usefixtures("unillustrated")
def test_translations_of_one_name_are_told_apart(workspace: Chain) -> None:
    table = workspace.folder / "translations" / "hand-en-es.tsv"
    own = ("--engine", "recorded", "--set", f"table={table}")
    for name, more in (("first", ()), ("second", ("--split", "val"))):
        toy.ok("translate", "--lang", "es", *own, "--name", name, *more, workspace=workspace.root)
    made = toy.ok("report", workspace=workspace.root).made
    rows = made.file("tables/translations.csv").read_text(encoding="utf-8")
    for label in ("hand (recorded)", "hand-en-es.tsv (recorded) [first]"):
        assert f'"toy, es: {label}",train' in rows, rows
    same = "hand-en-es.tsv (recorded) [first] and hand-en-es.tsv (recorded) [second] (the same texts)"
    assert f'"toy, es: {same}",val' in rows, "the other is translated back too, and has a figure more"
    scores = made.file("tables/translation-scores.csv").read_text(encoding="utf-8").splitlines()
    assert len(scores) == 3, "three artifacts, two splits with references, the same texts"
    text = made.file("report.html").read_text(encoding="utf-8")
    assert "Of 96 captions of 3 translations, 0" in text and "Nearest to" not in text and "told apart from" not in text


@pytest.mark.usefixtures("unillustrated")
def test_rounds_are_in_the_name(workspace: Chain) -> None:
    made = toy.ok("translate", "--lang", "es", "--rounds", "2", "--split", "val", workspace=workspace.root).made
    rows = toy.ok("report", made.path, workspace=workspace.root).made.file("tables/translations.csv")
    assert rows.read_text(encoding="utf-8").splitlines()[1].startswith('"toy, es: hand (recorded) (2 rounds)",val,24,')


@pytest.mark.usefixtures("unillustrated")
def test_what_failed_is_on_top_of_the_page_and_in_no_flag(tmp_path: Path, engine: Engine) -> None:
    folder = toy.toy()
    known = dict(folder.tables["en-es"])
    del known["black ring"], known["a picture of one ring that is black"]
    engine.knows(known)
    toy.ok("data", "import", folder.write(tmp_path / "toy"), workspace=tmp_path)
    toy.ccr("translate", "--lang", "es", "--engine", "apertium", workspace=tmp_path)
    made = toy.ok("report", workspace=tmp_path).made
    text = made.file("report.html").read_text(encoding="utf-8")
    assert "2 failed; of the other 94, 0 (0.0%) are flagged." in text
    assert "<b>2</b><span>captions failed</span><small>of 96</small>" in text
    assert '<bdi dir="auto">black ring</bdi>' in text and 'class="tag noisy"' not in text
    heads, *rows = made.file("tables/translations.csv").read_text(encoding="utf-8").splitlines()
    assert heads == "translation,split,captions,failed,flagged,round_trip"
    assert sum(int(row.split(",")[-3]) for row in rows) == 2


def test_a_translation_of_data_that_changed_is_left_out(workspace: Chain) -> None:
    folder = toy.toy()
    folder.captions[0][4] = "a crimson disc"
    shutil.rmtree(workspace.root / "datasets" / "toy")
    source = folder.write(workspace.root / "again")
    toy.ok("data", "import", source, workspace=workspace.root)
    done = workspace.ccr("report")
    assert done.code == 4 and "another state of datasets/toy" in done.err
