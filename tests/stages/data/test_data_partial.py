"""A data set of which some is missing: every figure on it, and of runs that were trained on it, says so."""

from __future__ import annotations

from pathlib import Path

import pytest
import toy
from toy import Chain

from ccr_cli.artifacts import evaluation

CPU = ("--device", "cpu")
LACKING = 'partial = ["a.de.gz: missing", "b.de.gz: missing"]'


@pytest.fixture(scope="module")
def cut(tmp_path_factory: pytest.TempPathFactory) -> Chain:
    """A run on such data, and another data set; read only but for evaluations."""
    root = tmp_path_factory.mktemp("partial")
    space = root / "space"
    for name, extra in (("cut", LACKING), ("whole", "")):
        folder = toy.toy(name)
        folder.extra = extra
        made = toy.ok("data", "import", folder.write(root / name), workspace=space).made
        toy.ok("extract", made.path, *toy.ENCODER, workspace=space)
    toy.ok("translate", space / "datasets/cut", "--lang", "es", workspace=space)
    toy.ok("train", space / "datasets/cut", "--method", "infonce", "--epochs", "1", *toy.SMALL, workspace=space)
    return Chain(root / "cut", space)


@pytest.mark.parametrize(
    ("options", "data", "protocol"),
    [((), "cut@{cut}-partial", "full"), (("--zero-shot",), "whole@{whole}", "zero-shot-from:cut@{cut}-partial")],
)
def test_the_signature_says_so(options: tuple[str, ...], data: str, protocol: str, cut: Chain) -> None:
    done = cut.ccr("evaluate", cut.find("run").path, *options, *CPU)
    ids = {name: cut.find("dataset", name).id[:8] for name in ("cut", "whole")}
    told = [result["signature"].fields for result in evaluation.results(done.made)]
    assert {(each["data"], each["protocol"]) for each in told} == {(data.format(**ids), protocol.format(**ids))}
    said = "results on cut are not comparable" in done.err and "a.de.gz: missing and 1 more" in done.err
    assert said == (not options)


@pytest.mark.usefixtures("unillustrated")
def test_the_page_says_so(cut: Chain) -> None:
    cut.ccr("evaluate", cut.find("run").path, *CPU)
    done = cut.ccr("report", "--name", "page")
    page = done.made.file("report.html").read_text(encoding="utf-8")
    assert "Partial: a.de.gz: missing; b.de.gz: missing." in page and "cut (partial) test, queries in es" in page


def test_a_partial_target_warns_in_zero_shot(finished: Chain, tmp_path: Path) -> None:
    folder = toy.toy("cut")
    folder.extra = LACKING
    made = toy.ok("data", "import", folder.write(tmp_path / "cut"), workspace=finished.root).made
    toy.ok("extract", made.path, *toy.ENCODER, workspace=finished.root)
    done = finished.ccr("evaluate", finished.find("run", "uml").path, "--zero-shot", *CPU)
    assert done.code == 0 and "warning: results on cut are not comparable" in done.err
    told = {result["signature"].data for result in evaluation.results(done.made)}
    assert told == {f"cut@{made.id[:8]}-partial"}


def test_a_split_without_human_captions_names_another(tmp_path: Path) -> None:
    folder = toy.toy("cut")
    folder.extra = LACKING
    tested = {item[0] for item in folder.items if item[1] == "test"}
    folder.captions = [each for each in folder.captions if each[2] == "en" or each[1] not in tested]
    space = tmp_path / "space"
    toy.ok("data", "import", folder.write(tmp_path / "cut"), workspace=space)
    toy.ok("extract", *toy.ENCODER, workspace=space)
    toy.ok("translate", "--lang", "es", workspace=space)
    toy.ok("train", "--method", "infonce", "--epochs", "1", *toy.SMALL, workspace=space)
    done = toy.ccr("evaluate", "--queries", "human", *CPU, workspace=space)
    assert done.code == 4 and "no human es captions for its test items: the data set is partial" in done.err, done.err
    assert "try: --split val-report or val" in done.err
    toy.ok("evaluate", "--split", "val-report", *CPU, workspace=space)


def test_data_without_test_items_name_another_split(tmp_path: Path) -> None:
    folder = toy.toy("small")
    tested = {item[0] for item in folder.items if item[1] == "test"}
    folder.items = [each for each in folder.items if each[0] not in tested]
    folder.captions = [each for each in folder.captions if each[1] not in tested]
    space = tmp_path / "space"
    toy.ok("data", "import", folder.write(tmp_path / "small"), workspace=space)
    toy.ok("extract", *toy.ENCODER, workspace=space)
    toy.ok("translate", "--lang", "es", workspace=space)
    toy.ok("train", "--method", "infonce", "--epochs", "1", *toy.SMALL, workspace=space)
    done = toy.ccr("evaluate", *CPU, workspace=space)
    assert done.code == 4 and "small has no test items" in done.err, done.err
    assert "try: --split val-report or val" in done.err
