"""`ccr report --published` on runs of a data set with a published name: tables, page, and what the command shows."""

from __future__ import annotations

import csv
import shutil
from pathlib import Path

import numpy as np
import pytest
import toy
from toy import Chain

from ccr_cli.artifacts import base, dataset, evaluation
from ccr_cli.data import published

CPU = ("--device", "cpu")
pytestmark = pytest.mark.usefixtures("unillustrated")


@pytest.fixture(scope="module")
def german(tmp_path_factory: pytest.TempPathFactory) -> Chain:
    """Invented items under the name of Multi30K, a run in German without noise and one with it; read only."""
    root = tmp_path_factory.mktemp("german")
    folder = toy.toy("multi30k")
    for caption in folder.captions:
        caption[2] = "de" if caption[2] == "es" else caption[2]
    folder.tables = {"en-de": folder.tables["en-es"], "de-en": folder.tables["es-en"]}
    path, space = folder.write(root / "source"), root / "workspace"
    toy.ok("data", "import", path, workspace=space)
    toy.ok("translate", "--lang", "de", "--with-queries", workspace=space)
    toy.ok("extract", *toy.ENCODER, workspace=space)
    for noise in ((), ("--noise", "0.4")):
        made = toy.ok("train", "--method", "uml", *noise, "--epochs", "2", *toy.SMALL, workspace=space).paths[-1]
        toy.ok("evaluate", made, *CPU, workspace=space)
    return Chain(path, space)


@pytest.fixture
def copy(german: Chain, tmp_path: Path) -> Chain:
    shutil.copytree(german.root, tmp_path / "copy")
    return Chain(german.folder, tmp_path / "copy")


def read(made: base.Artifact, name: str) -> list[dict[str, str]]:
    with made.file(f"tables/{name}.csv").open(encoding="utf-8", newline="") as handle:
        return list(csv.DictReader(handle))


def test_the_results_stand_beside_the_published_ones(copy: Chain) -> None:
    done = copy.ccr("report", "--published")
    assert done.code == 0, done.err
    rows = read(done.made, "published-multi30k-de")
    mine = {row["method"]: row for row in rows if row["source"] == "yours"}
    assert set(mine) == {"uml, not fused", "uml, fused, 0.8 of the query"}
    (encoders,) = {row["encoders"] for row in mine.values()}
    assert encoders.startswith("efficientnet-lite0-") and encoders.endswith(" + ngram")
    wanted = {
        {"none": "uml, not fused", "0.8raw": "uml, fused, 0.8 of the query"}[result["fusion"]]: result["SumR"]
        for result in evaluation.results(copy.find("evaluation", "uml-seed0"))
        if result["lang"] == "de"
    }
    assert {method: float(row["sumr"]) for method, row in mine.items()} == pytest.approx(wanted)
    theirs = {(row["source"], row["method"]): row["sumr"] for row in rows if row["source"] != "yours"}
    assert theirs["UML, Table 1", "UML"] == "505.6" and theirs["NRCCR, Table 3", "CLIP + Ours"] == "450.8"

    told = {row["what"]: row for row in read(done.made, "published-differences")}
    assert told["items searched"]["yours"] == "12" and told["items searched"]["published"] == "1,000"
    assert told["translation"]["yours"] == "recorded:hand"
    assert {"encoders", "captions", "score fusion"} <= set(told)

    for text in (done.err, done.made.file("tables/published-multi30k-de.md").read_text(encoding="utf-8")):
        assert "| _0%_ | _UML_ | _UML, Table 1_ |  | _505.6_ |" in text
    assert "No published figures for multi30k, queries in de, at 40% noise." in done.err


def test_the_page_has_a_section_that_quotes_and_cites(copy: Chain) -> None:
    page = copy.ccr("report", "--published").made.file("report.html").read_text(encoding="utf-8")
    section = page.partition('<section id="published">')[2].partition("</section>")[0]
    assert '<a href="#published">' in page
    quoted = [row for row in section.split("<tr")[1:] if row.startswith(' class="quoted"')]
    assert quoted and all("yours" not in row and "<b>" not in row for row in quoted)
    assert any("UML, Table 1" in row and "505.6" in row for row in quoted)
    assert section.count("not ranked or averaged") == 1
    assert "doi 10.1007/s11432-024-4696-2" in section and "Differences from the published figures" in section
    assert "FUME:" not in section


@pytest.mark.slow
def test_it_is_another_report_and_the_usual_one_says_nothing_of_it(copy: Chain) -> None:
    usual = copy.ccr("report").made
    beside = copy.ccr("report", "--published").made
    assert usual.name != beside.name and "published" not in usual.request
    assert beside.request["published"] == published.read().digest
    assert 'id="published"' not in usual.file("report.html").read_text(encoding="utf-8")
    assert not [f.path for f in usual.files if "published" in f.path]
    again = copy.ccr("report", "--published").made
    assert again.about["created"] == beside.about["created"]


@pytest.mark.slow
def test_without_anything_published_it_says_of_what_there_is(chain: Chain, tmp_path: Path) -> None:
    shutil.copytree(chain.root, tmp_path / "copy")
    done = toy.ccr("report", "--published", workspace=tmp_path / "copy")
    assert done.code == 0, done.err
    assert "No published figures for toy, queries in es, at 40" not in done.err
    assert "No published figures for toy, queries in es." in done.err and "| multi30k | de, fr, cs |" in done.err
    page = done.made.file("report.html").read_text(encoding="utf-8")
    assert "No published figures for toy, queries in es." in page and "class=quoted" not in page
    assert {row["data"] for row in read(done.made, "published")} >= {"vatex", "wikipedia", "cc152k"}


def test_translations_alone_have_nothing_beside_them(workspace: Chain) -> None:
    done = workspace.ccr("report", workspace.find("translation").path, "--published")
    assert done.code == 0 and "There are no results on test items." in done.err


@pytest.mark.slow
def test_features_made_elsewhere_are_called_by_their_encoder(copy: Chain, tmp_path: Path) -> None:
    items = dataset.read(copy.find("dataset")).items["item_id"]
    rows = np.random.default_rng(0).normal(size=(len(items), 8)).astype(np.float32)
    np.savez(tmp_path / "resnet.npz", **dict(zip(items, rows, strict=True)))
    named = ("extract", "--from", tmp_path / "resnet.npz", "--encoder-name", "ResNet-152", "--name", "mine")
    made = toy.ok(*named, workspace=copy.root).made
    trained = toy.ok("train", "--method", "infonce", "--epochs", "1", *toy.SMALL, made.path, workspace=copy.root).made
    toy.ok("evaluate", trained.path, *CPU, workspace=copy.root)
    rows_of = read(toy.ok("report", "--published", trained.path, workspace=copy.root).made, "published-multi30k-de")
    assert {row["encoders"] for row in rows_of if row["source"] == "yours"} == {"ResNet-152 + ngram"}
