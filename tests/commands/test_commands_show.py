"""What stages say of what they made, and `ccr show`, which says it again."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import toy
from standin import Engine
from toy import Chain

from ccr_cli import console
from ccr_cli.artifacts import base, evaluation, translation
from ccr_cli.artifacts.base import FOLDERS
from ccr_cli.artifacts.build import building
from ccr_cli.artifacts.workspace import Workspace

REFERENCES = " against 1 human caption of the same item (main; 24 captions)"


def test_one_of_a_kind_is_singular() -> None:
    assert console.tally({"models": 1, "dim": 256, "items.val": 1_000}) == "1 model, 256 dim, 1,000 val items"


def test_a_translation_says_how_good_it_is(sources: Chain) -> None:
    made = sources.find("translation")
    done = sources.ccr("show", made.path)
    assert (done.code, done.paths) == (0, [made.path])
    lines = [line.strip() for line in done.err.splitlines()]
    assert lines[0].startswith("en -> es, forward, train: 48 captions, 0 flagged; length ratio ")
    assert lines[0].endswith("round-trip chrF2 100.0")
    at = next(i for i, line in enumerate(lines) if line.startswith("en -> es, forward, test: 24 captions"))
    found = translation.quality(made)["forward"]["splits"]["test"]["references"][0]["scores"]
    low, high = found["BLEU"]["interval"]
    assert lines[at + 1].startswith(f"BLEU {found['BLEU']['score']:.1f} ± {(high - low) / 2:.1f}, chrF2 ")
    assert lines[at + 1].endswith(REFERENCES)
    for name, figures in found.items():
        (line,) = (line for line in lines if line.startswith(f"{name} nrefs"))
        assert line == f"{name} {figures['signature']}; also nrefs:2", (
            "once for all splits; queries have two references"
        )


def test_translating_says_the_same_also_when_it_was_done_before(sources: Chain) -> None:
    done = sources.ccr("translate", "--lang", "es", "--back", "--with-queries")
    assert done.code == 0 and REFERENCES in done.err
    assert done.err.strip() == sources.ccr("show", done.paths[-1]).err.strip()


def test_a_signature_is_said_once_for_all_translations(tmp_path: Path) -> None:
    toy.ok("data", "import", toy.toy().write(tmp_path / "toy"), workspace=tmp_path)
    call = ("translate", "--lang", "es", "--with-queries", "--split")
    paths = [toy.ok(*call, split, workspace=tmp_path).made.path for split in ("val", "test")]
    done = toy.ok("show", *paths, workspace=tmp_path)
    assert done.err.count("BLEU nrefs:1|") == 1 and done.err.count("forward, ") == 2


def test_captions_that_failed_have_a_figure_of_their_own(
    tmp_path: Path, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = toy.toy()
    known = dict(folder.tables["en-es"])
    del known["black ring"]
    engine.knows(known)
    toy.ok("data", "import", folder.write(tmp_path / "toy"), workspace=tmp_path)
    done = toy.ccr("translate", "--lang", "es", "--engine", "apertium", workspace=tmp_path)
    assert done.code == 3 and "1 failed, 0 flagged" in done.err
    monkeypatch.setattr(console, "brief", True)
    brief = toy.ok("show", done.paths[-1], workspace=tmp_path)
    assert brief.err.count("\n") == 1 and re.findall(r"\d+", brief.err) == ["0", "95", "1"]


def test_in_brief_it_is_a_line(sources: Chain, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(console, "brief", True)
    done = sources.ccr("show", sources.find("translation").path)
    assert done.err.count("\n") == 1 and re.findall(r"\d+", done.err) == ["0", "120"]


def test_references_that_were_not_taken_are_named(tmp_path: Path) -> None:
    folder = toy.toy()
    for caption in folder.captions:
        caption[5] = {"es": caption[1][0], "en": "main"}[caption[2]]
    toy.ok("data", "import", folder.write(tmp_path / "toy"), workspace=tmp_path)
    done = toy.ok("translate", "--lang", "es", workspace=tmp_path)
    assert "es sets b, g, o, p, r, y " in done.err and "BLEU" not in done.err


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("run", "on validation (half of it: 10 machine-translated queries, 5 items; not comparable with test"),
        ("evaluation", "SumR"),
        ("diagnosis", "mismatched"),
        ("dataset", "24 train items"),
    ],
)
def test_other_artifacts_say_what_their_stage_said(kind: str, words: str, chain: Chain) -> None:
    made = chain.find(kind, "uml" if kind != "dataset" else "")
    done = chain.ccr("show", made.path)
    assert (done.code, done.paths) == (0, [made.path]) and words in done.err


def test_without_a_name_it_lists_the_workspace(chain: Chain) -> None:
    header, *rows = [line.split("\t") for line in toy.ok("show", workspace=chain.root).out.splitlines()]
    assert header == ["kind", "artifact", "asked", "found", "made"]
    kinds = [row[0] for row in rows]
    assert kinds == sorted(kinds, key=list(FOLDERS).index) and len(rows) == len(Workspace(chain.root).places())
    for kind in set(kinds):
        made = [row[4] for row in rows if row[0] == kind]
        assert made == sorted(made, reverse=True)
    by_path = {row[1]: row for row in rows}
    trained, result = chain.find("run", "uml"), chain.find("evaluation", "uml")
    run, evaluated = by_path[f"runs/{trained.name}"], by_path[f"evaluations/{result.name}"]
    assert run[2] == "toy, uml, es, noise 0.4, seed 0, epochs 6"
    assert run[3].startswith("SumR ") and run[3].endswith(" of 6")
    assert evaluated[2] == f"{run[2]}: test"
    assert evaluated[3] == f"SumR es {evaluation.results(result)[0]['SumR']:.1f}"
    assert by_path[f"runs/{chain.find('run', 'infonce').name}"][2] == "toy, infonce, es, seed 0, epochs 6"
    assert by_path["datasets/toy"][3] == "48 items, captions in en, es"
    (noise,) = (row for row in rows if row[0] == "noise")
    assert noise[2] == "toy, ratio 0.4, caption, translation, seed 0" and noise[3].endswith("triplets mismatched")


def test_the_list_as_json(chain: Chain) -> None:
    told = json.loads(toy.ok("show", "--json", workspace=chain.root).out)["artifacts"]
    assert {each["id"] for each in told} == {artifact.id for artifact in Workspace(chain.root).artifacts()}
    result = chain.find("evaluation", "infonce")
    (same,) = (each for each in told if each["id"] == result.id)
    assert (same["figure"], same["value"]) == ("SumR", evaluation.results(result)[0]["SumR"])
    assert same["request"] == result.request and Path(same["path"]) == result.path
    assert json.loads(toy.ok("show", result.path, "--json", workspace=chain.root).out)["artifacts"] == [same]


def test_what_cannot_be_read_is_in_the_list(workspace: Chain) -> None:
    noise = workspace.find("noise")
    (noise.path / "artifact.json").write_text("{}", encoding="utf-8")
    rows = [line.split("\t") for line in toy.ok("show", workspace=workspace.root).out.splitlines()]
    (found,) = (row for row in rows if row[0] == "noise")
    assert "'kind'" in found[3]


def test_what_was_interrupted_is_in_the_list(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", ["ccr", "train", "latest", "--method", "uml", "-"])
    with (
        pytest.raises(KeyboardInterrupt),
        building(Workspace(tmp_path), "run", "x", {"method": "uml", "lang": "es"}) as build,
    ):
        base.write_json(build.folder / "config.json", {})
        found = toy.ok("show", workspace=tmp_path).out
        assert "ccr train" not in found and "another process" in found, "it is locked"
        raise KeyboardInterrupt
    (row,) = [line.split("\t") for line in toy.ok("show", workspace=tmp_path).out.splitlines()[1:]]
    assert row[:2] == ["run", "runs/x"] and "unfinished: ccr train --method uml" in row[3], "without `latest` and `-`"
    for word in ("runs/x", "runs/x.partial"):
        refused = toy.ccr("evaluate", word, workspace=tmp_path)
        assert refused.code == 4 and "try: ccr train --method uml" in refused.err
        assert "rm -r runs/x.partial" in refused.err and "rm -r runs/x.partial" in row[3], "its method may be another"
    with building(Workspace(tmp_path), "run", "x", {"method": "uml", "lang": "es"}) as build:
        assert (build.folder / "config.json").exists(), "it goes on"
        build.finish({"epochs": 1, "best_epoch": 1})
    assert "unfinished" not in toy.ok("show", workspace=tmp_path).out


def test_of_an_empty_workspace_it_says_what_to_type(tmp_path: Path) -> None:
    done = toy.ok("show", workspace=tmp_path)
    assert done.out == "" and str(tmp_path) in done.err and "try: ccr data import" in done.err
    assert json.loads(toy.ok("show", "--json", workspace=tmp_path).out) == {"artifacts": []}


def test_what_was_corrupted_is_said_as_it_was(tmp_path: Path) -> None:
    figures = {"R@1": 1.0, "R@5": 2.0, "R@10": 3.0, "MedR": 9.0, "mAP": 1.0, "queries": 3}
    trained = {"run": "r", "method": "uml", "label": "uml", "noise": 0.0, "seed": 0, "split": "test"}
    about = {
        **trained,
        "data": "d",
        "role": "target",
        "fusion": "none",
        "signature": "|pos:any|",
        "t2v": figures,
        "v2t": figures,
    }
    intact = [{**about, "lang": lang, "SumR": 12.0} for lang in ("es", "zh")]
    worse = [{**each, "SumR": 6.0, "corrupt": "drop0.125-seed0"} for each in intact]
    worse.append({**intact[0], "corrupt": "both1e-05-seed0"})
    with building(Workspace(tmp_path), "evaluation", "x", {}, []) as build:
        base.write_json(build.folder / "metrics.json", {"results": [*intact, *worse]})
        build.finish({})
    said = toy.ok("show", "evaluations/x", workspace=tmp_path).err.splitlines()
    assert said[:3] == [
        "d es, 12.5% of words dropped: SumR falls from 12.0 to 6.0",
        "d zh, 12.5% of characters dropped: SumR falls from 12.0 to 6.0",
        "d es, 0.001% of words dropped and features masked: SumR stays at 12.0",
    ]
