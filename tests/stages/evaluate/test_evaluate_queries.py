"""Queries of other kinds than human captions: machine-translated ones, and a table of the user's."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import toy
from toy import Chain

from ccr_cli.artifacts import base, evaluation, translation
from ccr_cli.artifacts.signature import MT
from ccr_cli.artifacts.workspace import Workspace
from ccr_cli.report.page import compose
from ccr_cli.report.tables import comparable
from ccr_cli.stages.report import stage as report
from ccr_cli.stages.shared.inputs import Inputs

CPU = ("--device", "cpu")


def evaluate(chain: Chain, *options: str | Path, word: str = "infonce") -> toy.Outcome:
    return toy.ccr("evaluate", chain.find("run", word).path, *options, *CPU, workspace=chain.root)


def found(done: toy.Outcome) -> list[dict[str, Any]]:
    assert done.code == 0, done.err
    return evaluation.results(done.made)


def forms(entries: list[dict[str, Any]]) -> list[tuple[str, str, str]]:
    return [(entry["lang"], entry["fusion"], entry["signature"].queries) for entry in entries]


def table(path: Path, *lines: str) -> Path:
    path.write_text("\n".join(lines), encoding="utf-8")
    return path


def test_both_kinds_are_results_of_their_own(finished: Chain) -> None:
    usual = evaluation.results(finished.find("evaluation", "infonce"))
    assert "queries" not in finished.find("evaluation", "infonce").request
    entries = found(evaluate(finished, "--queries", "both"))
    kinds = [("es", "none", "human"), ("es", "0.8raw", "human"), ("es", "none", "mt"), ("en", "none", "human")]
    assert forms(entries) == kinds
    assert [entry for entry in entries if "queries" not in entry] == usual
    machine = entries[2]
    captions = translation.read(finished.find("translation"))
    wanted = captions[(captions["split"] == "test") & (captions["direction"] == "forward")]
    ranks = evaluation.read_ranks(evaluate(finished, "--queries", "both").made)
    asked = ranks[(ranks["result"] == 2) & (ranks["direction"] == "t2v")]
    assert dict(zip(asked["query_id"], asked["item_id"], strict=True)) == dict(
        zip(wanted["caption_id"], wanted["item_id"], strict=True)
    )
    assert machine["signature"].q.startswith("mt-24-") and machine["t2v"]["queries"] == 24
    (alone,) = [entry for entry in found(evaluate(finished, "--queries", "mt")) if entry["role"] == "target"]
    assert alone == machine


def test_a_split_without_human_queries_is_measured_by_machine_translation(finished: Chain) -> None:
    done = evaluate(finished, "--split", "train")
    assert forms(found(done)) == [("es", "none", "mt"), ("en", "none", "human")]
    assert done.made.request["queries"] == "mt"
    assert done.made.path == evaluate(finished, "--split", "train", "--queries", "mt").made.path
    assert "mt-48-" in str(found(done)[0]["signature"]) and "machine" in done.err
    card = toy.ok("export", found(done)[0]["run"], workspace=finished.root).made.path / "README.md"
    assert card.read_text("utf-8").count("| es, machine-translated queries |") == 1
    refused = evaluate(finished, "--split", "train", "--queries", "human")
    for shown in ("train", "--queries mt", "--queries FILE"):
        assert refused.code == 4 and shown in refused.err
    refused = evaluate(finished, "--lang", "en", "--queries", "mt")
    assert refused.code == 4 and "en" in refused.err
    refused = evaluate(finished, "--split", "train", "--ood", "toy")
    assert refused.code == 2 and "--ood half" in refused.err


def test_a_table_of_queries_names_items_by_id_or_picture(finished: Chain, tmp_path: Path) -> None:
    rows = (
        "red-cross.png;una cruz",
        "blue-square;un cuadrado",
        "blue-square;otro",
        "red-circle;un disco",
        "x;un disco",
    )
    own = table(tmp_path / "own.csv", "image;caption", *rows)
    done = evaluate(finished, "--queries", own)
    (entry,) = found(done)
    assert forms([entry]) == [("es", "none", "file")] and entry["signature"].q.startswith("file-3-")
    assert "1 of train items" in done.err and "'x' in own.csv, line 6" in done.err
    assert "±" not in done.err and done.made.request["queries"] == {"sha256": base.sha256_file(own)}
    ranks = evaluation.read_ranks(done.made)
    assert list(ranks.loc[ranks["direction"] == "t2v", "item_id"]) == ["red-cross", "blue-square", "blue-square"]
    assert entry["v2t"]["queries"] == 2 and entry["v2t"]["dropped"] == 10
    (entry,) = found(evaluate(finished, "--queries", own, "--split", "all"))
    assert entry["signature"].split == "all" and entry["signature"].q.startswith("file-4-")
    assert entry["v2t"]["queries"] == 3 and entry["signature"].leak == "own-split-24trained"
    assert evaluate(finished, "--split", "all").code == 2
    moved = own.rename(tmp_path / "moved.csv")
    assert evaluate(finished, "--queries", moved).made.path == done.made.path
    table(moved, "image;caption", *rows[:2])
    assert evaluate(finished, "--queries", moved).made.path != done.made.path
    both = table(tmp_path / "langs.csv", "sku,query,lang", "red-cross,a cross,en", "red-cross,una cruz,es")
    assert forms(found(evaluate(finished, "--queries", both))) == [("en", "none", "file"), ("es", "none", "file")]
    assert forms(found(evaluate(finished, "--queries", both, "--lang", "es"))) == [("es", "none", "file")]


@pytest.mark.parametrize(
    ("lines", "options", "code", "said"),
    [
        (("item,text", "nothing,uno"), (), 4, ("line 2", "'nothing'", "red-circle")),
        (("item,text", "red-circle,uno"), (), 4, ("1 of train", "--split all")),
        (("item,text", "red-cross,"), (), 4, ("no queries",)),
        (("a,b", "red-cross,uno"), (), 4, ("a, b", "text and item")),
        (("item,text,lang", "red-cross,uno,fr"), (), 2, ("fr", "--lang fr")),
        (("item,text,lang", "red-cross,uno,fr"), ("--lang", "es"), 4, ("es", "fr")),
        (("item,text", "red-cross,uno"), ("--lang", "es", "--lang", "fr"), 2, ("line 2", "--lang es")),
        (("item,text", "red-cross,uno"), ("--zero-shot",), 2, ("--zero-shot",)),
        (("item,text", "red-cross,uno"), ("--ood", "noto-emoji"), 2, ("--ood half",)),
        (("item,text", "red-cross,uno"), ("--task", "text"), 2, ("--task text",)),
        ((), (), 2, ("own.csv",)),
    ],
)
def test_a_table_that_cannot_be_used_is_named(
    lines: tuple[str, ...], options: tuple[str, ...], code: int, said: tuple[str, ...], chain: Chain, tmp_path: Path
) -> None:
    own = table(tmp_path / "own.csv", *lines) if lines else tmp_path / "own.csv"
    done = evaluate(chain, "--queries", own, *options)
    assert done.code == code and all(word in done.err for word in said), done.err


def test_few_queries_are_warned_of(finished: Chain) -> None:
    made = finished.find("evaluation", "uml").path
    said = toy.ok("show", made, workspace=finished.root).err
    assert "toy es: 12 queries, too few to measure anything" in said and "--queries mt" in said
    assert "too few" not in evaluate(finished, "--queries", "mt").err, "there are 24"
    only = compose.overview(report.gather(Inputs.from_paths(Workspace(finished.root), [str(made)])))
    assert only.findings.headline.startswith("12 queries are too few to measure anything. ")
    other = finished.find("run", "infonce").path
    compared = toy.ok("compare", made, other, "--by", "none", workspace=finished.root)
    assert "12 queries are too few to measure anything" in compared.err


def test_a_report_says_that_its_items_chose_the_epochs(finished: Chain) -> None:
    said = {}
    for split in ("val", "val-report"):
        made = evaluate(finished, "--split", split, "--queries", "mt").made.path
        seen = compose.overview(report.gather(Inputs.from_paths(Workspace(finished.root), [str(made)])))
        said[split] = any("Items that chose the epochs" in sentence for sentence in seen.findings.more)
    assert said == {"val": True, "val-report": False}


def test_kinds_are_never_in_one_comparison_table_or_headline(finished: Chain, monkeypatch: pytest.MonkeyPatch) -> None:
    human = finished.find("evaluation", "uml").path
    machine, other = (evaluate(finished, "--queries", "mt", word=word).made.path for word in ("uml", "infonce"))
    refused = finished.ccr("compare", human, other, "--by", "none")
    assert refused.code == 4 and "q:12" in refused.err and "q:mt-24-" in refused.err
    assert "--queries human" in refused.err and refused.out == ""
    compared = json.loads(finished.ccr("compare", machine, other, "--by", "none", "--json").out)["comparisons"]
    assert len(compared) == 1 and "machine" in compared[0]["what"] and compared[0]["chance"] > 0
    data = report.gather(Inputs(Workspace(finished.root)))
    frame = comparable.results_frame(data.results, data.facts)
    assert comparable.views(frame)[0].queries == MT, "12 human queries are too few to lead"
    monkeypatch.setattr(evaluation, "LEAST_QUERIES", 12)
    views = comparable.views(frame)
    assert views[0].queries == "human" and {view.queries for view in views} == {"human", MT}
    assert all({s.queries for s in view.frame["signed"]} == {view.queries} for view in views)
    only = compose.overview(report.gather(Inputs.from_paths(Workspace(finished.root), [str(machine), str(other)])))
    assert only.views[0].queries == MT and "machine" in only.findings.headline
    assert {"settings", "settings-human"} <= {*only.tables}
    assert all("machine" in str(row.cells[0].value) for row in only.tables["settings"].rows)
    listed = json.loads(finished.ccr("show", "--json").out)["artifacts"]
    figures = {entry["name"]: entry["figure"] for entry in listed if entry["kind"] == "evaluation"}
    assert figures[human.name] == "SumR" and figures[machine.name] != "SumR"


def test_scores_are_in_the_json(finished: Chain) -> None:
    (made,) = json.loads(evaluate(finished, "--json").out)["made"]
    usual = evaluation.results(finished.find("evaluation", "infonce"))
    assert [entry["SumR"] for entry in made["results"]] == [entry["SumR"] for entry in usual]
    for entry in made["results"]:
        assert entry["intervals"]["SumR"] and entry["signature"].startswith("data:toy@")
        assert 0 < entry["chance"]["SumR"] < 600
