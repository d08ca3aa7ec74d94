"""Runs from other translations, features or mismatches have other names, and those of the usual ones are short."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest
import toy

from ccr_cli import registry
from ccr_cli.artifacts import base

CPU = ("--device", "cpu")
DIGITS = "[0-9a-f]{6}"


@pytest.fixture(scope="module")
def space(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data set, translations and features of several kinds; read only."""
    root = tmp_path_factory.mktemp("names") / "workspace"
    folder = toy.toy()
    folder.items = folder.items[::6]  # the usual size of pictures takes its time
    folder.captions = [caption for caption in folder.captions if caption[1] in {item[0] for item in folder.items}]
    source = folder.write(root.parent / "toy")
    shutil.copy(source / "translations/hand-en-es.tsv", source / "translations/other-en-es.tsv")
    toy.ok("data", "import", source, workspace=root)
    table = source / "translations/hand-en-es.tsv"
    made: dict[str, tuple[str, ...]] = {
        "usual": ("--lang", "es"),
        "more": ("--lang", "es", "--back", "--with-queries"),
        "other": ("--lang", "es", "--set", "engine=other"),
        "french": ("--lang", "fr", "--engine", "recorded", "--set", f"table={table}"),
    }
    for name, options in made.items():
        toy.ok("translate", *options, "--name", name, workspace=root)
    toy.ok("extract", *CPU, "--name", "usual", workspace=root)
    toy.ok("extract", *toy.ENCODER, "--name", "small", workspace=root)
    return root


def planned(root: Path, translations: str, features: str, *options: str) -> str:
    """The name that a run would have."""
    given = [root / "translations/toy" / name for name in translations.split()]
    call: tuple[str | Path, ...] = ("train", "--method", "infonce", *given, root / "features/toy" / features, *options)
    shown = json.loads(toy.ok(*call, "--dry-run", "--json", workspace=root).out)
    return str(shown["made"][-1]["name"])


@pytest.mark.slow
def test_the_usual_run_has_a_short_name(space: Path) -> None:
    assert planned(space, "usual", "usual") == "toy-es-infonce-seed0"
    assert planned(space, "usual", "usual", "--noise", "0.4") == "toy-es-infonce-noise0.4-seed0"
    assert planned(space, "usual", "usual", "--method", "uml", "--preset", "paper") == "toy-es-uml-paper-seed0"


@pytest.mark.slow
def test_other_sources_make_another_name(space: Path) -> None:
    given = {
        planned(space, *call)
        for call in (
            ("usual", "usual"),
            ("more", "usual"),
            ("other", "usual"),
            ("usual other", "usual"),
            ("other usual", "usual"),
            ("usual more", "usual"),
            ("usual", "small"),
            ("other", "small"),
            ("usual", "usual", "--noise", "0.4"),
            ("usual", "usual", "--noise", "0.4", "--noise-seed", "1"),
            ("usual", "usual", "--noise", "0.4", "--noise-seed", "2"),
        )
    }
    assert len(given) == 11
    assert all(re.fullmatch(rf"toy-es-infonce(-noise0\.4)?-seed0(-{DIGITS})?", name) for name in given)


def test_a_method_of_one_s_own_is_named_by_its_source(space: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usual = planned(space, "usual", "usual")
    monkeypatch.setitem(registry.BUNDLED, "methods", registry.BUNDLED["methods"] - {"infonce"})
    assert re.fullmatch(f"{usual}-{DIGITS}", planned(space, "usual", "usual"))


def test_an_engine_that_is_not_the_usual_one_is_named(space: Path) -> None:
    """For French nothing is recorded, so that `auto` would take hf."""
    assert re.fullmatch(f"toy-fr-recorded-infonce-seed0-{DIGITS}", planned(space, "french", "usual"))


def test_an_encoder_that_is_not_the_usual_one_is_named(tmp_path: Path) -> None:
    source = toy.toy().write(tmp_path / "toy")
    manifest = source / "manifest.toml"
    manifest.write_text(manifest.read_text().replace('default_encoder = "efficientnet-lite0"', ""))
    toy.ok("data", "import", source, workspace=tmp_path)
    toy.ok("translate", "--lang", "es", "--name", "usual", workspace=tmp_path)
    toy.ok("extract", *toy.ENCODER, "--name", "small", workspace=tmp_path)
    name = planned(tmp_path, "usual", "small")
    assert re.fullmatch(f"toy-efficientnet-lite0-es-infonce-seed0-{DIGITS}", name)


def test_what_else_lies_in_the_workspace_changes_no_name(space: Path, tmp_path: Path) -> None:
    wanted = planned(space, "other", "small")
    root = tmp_path / "workspace"
    shutil.copytree(space, root)
    for unused in ("translations/toy/usual", "translations/toy/more", "translations/toy/french", "features/toy/usual"):
        shutil.rmtree(root / unused)
    (root / "translations/toy/other").rename(root / "translations/toy/renamed")
    assert planned(root, "renamed", "small") == wanted


def test_runs_of_two_engines_stand_side_by_side(space: Path, tmp_path: Path) -> None:
    root = tmp_path / "workspace"
    shutil.copytree(space, root)
    made: list[base.Artifact] = []
    for name in ("usual", "other"):
        sources = [root / "translations/toy" / name, root / "features/toy/small"]
        done = toy.ok("train", *sources, "--method", "infonce", "--epochs", "1", *toy.SMALL, workspace=root)
        made.append(done.made)
    assert made[0].path != made[1].path
    for run in made:
        toy.ok("evaluate", run.path, *CPU, workspace=root)
        toy.ok("diagnose", run.path, *CPU, workspace=root)
    assert len(list((root / "evaluations").iterdir())) == len(list((root / "diagnoses").iterdir())) == 2
