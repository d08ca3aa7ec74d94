"""What is named is read, or refused: nothing that was given is passed over silently."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import toy
from toy import Chain

from ccr_cli import registry
from ccr_cli.artifacts import base, features

CPU = ("--device", "cpu")
OTHER = ("--encoder", "efficientnet-lite0", "--set", "image_size=64", "--device", "cpu")


def test_what_a_run_was_not_made_from_is_refused(finished: Chain) -> None:
    trained = finished.find("run", "infonce").path
    rows = toy.ok("extract", *OTHER, "--name", "another", workspace=finished.root).made
    words = toy.ok("translate", "--lang", "es", "--name", "another", workspace=finished.root).made
    for given in (rows, words):
        for command in (("evaluate",), ("diagnose",), ("search", "rojo")):
            done = finished.ccr(*command, trained, given.path, *CPU)
            assert (done.code, done.out) == (2, ""), command
            assert "toy/another" in done.err and "try: leave it out" in done.err
    own = [finished.root / parent.path for parent in base.load(trained).parents]
    toy.ok("evaluate", trained, *own, *CPU, workspace=finished.root)
    toy.ok("search", "rojo", trained, *own, *CPU, workspace=finished.root)


def test_the_file_of_a_runs_method_is_gone(chain: Chain, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = chain.find("run", "uml")
    monkeypatch.setattr(registry, "_ROOT", tmp_path)
    for command in ("evaluate", "diagnose"):
        done = chain.ccr(command, run.path, "--force")
        assert done.code == 4 and run.name in done.err and f"{tmp_path / 'methods' / 'uml.py'}" in done.err


def test_zero_shot_takes_the_features_that_are_named(finished: Chain, tmp_path: Path) -> None:
    folder = toy.toy("other")
    folder.extra = 'id_space = "other"'
    data = toy.ok("data", "import", folder.write(tmp_path / "other"), workspace=finished.root).made
    trained = finished.find("run", "infonce")
    first, _ = [
        toy.ok("extract", data.path, *toy.ENCODER, *more, workspace=finished.root).made
        for more in (("--name", "aaa"), ("--name", "zzz", "--pool", "mean"))
    ]
    zero_shot = ("evaluate", trained.path, data.path, "--zero-shot", *CPU)
    done = finished.ccr(*zero_shot)
    assert (done.code, done.out) == (4, "") and "several features artifacts fit" in done.err
    assert "features/other/aaa" in done.err and "name one, such as features/other/zzz" in done.err
    for name in ("aaa", "zzz"):
        made = toy.ok(*zero_shot, f"features/other/{name}", "--name", name, workspace=finished.root).made
        assert [p.path for p in made.parents if p.kind == "features"] == [f"features/other/{name}"]
    toy.ok(
        "diagnose",
        *toy.ok(*zero_shot, first.path, "--name", "aaa", workspace=finished.root).paths,
        *CPU,
        workspace=finished.root,
    )
    third = toy.ok("extract", data.path, *OTHER, "--name", "third", workspace=finished.root).made
    done = finished.ccr(*zero_shot, third.path)
    assert done.code == 4 and "third" in done.err and "image_size=32" in done.err


def test_each_of_several_runs_may_bring_its_own(finished: Chain) -> None:
    runs = [finished.find("run", word) for word in ("uml", "infonce")]
    own = [finished.root / parent.path for each in runs for parent in each.parents]
    toy.ok("evaluate", *(each.path for each in runs), *own, *CPU, workspace=finished.root)


def test_a_table_is_no_artifact(finished: Chain, tmp_path: Path) -> None:
    table = tmp_path / "few captions.csv"
    table.write_text("item_id,text_en\n")
    done = finished.ccr("train", table)
    assert done.code == 4 and "is a file, not an artifact" in done.err and f"ccr data import '{table}'" in done.err


def artifact(place: Path, name: str, about: object) -> base.Artifact:
    folder = place / name
    folder.mkdir()
    (folder / "encoder.json").write_text(json.dumps(about))
    size, digest = (folder / "encoder.json").stat().st_size, base.sha256_file(folder / "encoder.json")
    files = (base.FileEntry("encoder.json", size, digest),)
    return base.Artifact(folder, "features", 1, name, name, {}, (), files, {})


ONCE, OFTEN, STILL = (
    {"model": "m", "dim": 8, **more}
    for more in ({"sampling": {"fps": 1.0}, "pool": "none"}, {"sampling": {"fps": 4.0}, "pool": "none"}, {})
)


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        (ONCE, ONCE, True),
        (ONCE, OFTEN, False),
        (ONCE, {**ONCE, "pool": "mean"}, False),
        (ONCE, STILL, True),
        (STILL, OFTEN, True),
        (STILL, {**STILL, "model": "n"}, False),
        ({"parts": [ONCE, STILL]}, {"parts": [STILL, STILL]}, True),
        ({"parts": [ONCE, STILL]}, {"parts": [OFTEN, STILL]}, False),
        ({"parts": [ONCE]}, {"parts": [ONCE, ONCE]}, False),
        ({"parts": [ONCE]}, ONCE, False),
    ],
)
def test_frames_count_where_both_have_videos(one: object, other: object, same: bool, tmp_path: Path) -> None:
    pair = [artifact(tmp_path, name, about) for name, about in (("one", one), ("other", other))]
    assert features.comparable(*pair) is features.comparable(*reversed(pair)) is same


@pytest.mark.slow
def test_what_is_named_narrows_the_choice_of_translations(workspace: Chain, tmp_path: Path) -> None:
    train = ("train", "--dry-run")
    other, untranslated = (
        toy.ok("data", "import", toy.toy(name).write(tmp_path / name), workspace=workspace.root).made
        for name in ("other", "untranslated")
    )
    toy.ok("translate", other.path, "--lang", "es", workspace=workspace.root)
    rows = toy.ok("extract", other.path, *toy.ENCODER, workspace=workspace.root).made
    done = workspace.ccr(*train, "--method", "infonce")
    assert done.code == 4 and "several translation artifacts fit" in done.err
    for given in (other, rows):
        for method in ("infonce", "fume"):
            done = workspace.ccr(*train, "--method", method, given.path)
            assert done.code == 0 and f"/runs/other-es-{method}-" in done.out, done.err
    more = toy.ok("extract", untranslated.path, *toy.ENCODER, workspace=workspace.root).made
    for paths in ((untranslated.path,), (more.path,), (untranslated.path, more.path)):
        done = workspace.ccr(*train, "--method", "infonce", *paths)
        assert done.code == 4 and "there is no translation of untranslated in " in done.err, done.err
        assert "ccr translate datasets/untranslated --lang LANG" in done.err
        done = workspace.ccr(*train, "--method", "source-only", *paths)
        assert done.code == 0 and "/runs/untranslated-en-source-only-" in done.out, done.err
