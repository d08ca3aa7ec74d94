"""The settings of a run in a file: read, overridden, written, and read again."""

from __future__ import annotations

import json
import tomllib
from dataclasses import replace
from pathlib import Path

import pytest
import toy
from toy import Chain

from ccr_cli.artifacts import base
from ccr_cli.artifacts.build import recorded_words
from ccr_cli.artifacts.workspace import Workspace
from ccr_cli.commands import config_file

FILE = """
method = "infonce"
epochs = 2
batch_size = 16
noise = 0.4
noise-target = "pair"
compile = false
device = "cpu"

[set]
buckets = 512
dim = 32
finetune = false
judge = "two-group"
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "infonce.toml"
    path.write_text(FILE, encoding="utf-8")
    return path


def test_a_file_is_as_its_flags_and_the_command_line_overrides_it(workspace: Chain, file: Path) -> None:
    made = toy.ok("train", "--config", file, "--epochs", "1", "--set", "dim=16", workspace=workspace.root).made
    options = base.read_json(made.file("config.json"))["options"]
    assert (options["epochs"], options["batch_size"], options["buckets"], options["dim"]) == (1, 16, 512, 16)
    assert options["judge"] == "two-group" and options["finetune"] is False
    assert made.request["method"] == "infonce" and made.request["noise"]["target"] == "pair"
    command = base.read_json(made.path / base.RECORD)["command"]
    assert "--config" not in command and "--set=dim=32" in command, "a record needs no file"
    flags = ("--method", "infonce", "--noise", "0.4", "--noise-target", "pair", "--batch-size", "16", "--epochs", "1")
    settings = [word for key in ("buckets=512", "dim=16", "judge=two-group") for word in ("--set", key)]
    again = toy.ok("train", *flags, *settings, "--device", "cpu", workspace=workspace.root)
    assert again.made.id == made.id and "trained already" in again.err


@pytest.mark.parametrize("method", ["uml", "infonce"])
def test_the_settings_of_a_run_make_the_same_run(method: str, finished: Chain, tmp_path: Path) -> None:
    run = finished.find("run", method)
    written = toy.ok("show", run.path, "--config", workspace=finished.root).out
    content = tomllib.loads(written)
    assert content["method"] == method and content["seed"] == 0 and content["epochs"] == 6
    assert content["set"]["lr"] == 0.02 and content.get("noise") == (0.4 if method == "uml" else None)
    named = [Path(word).name for word in written.splitlines()[0].split()]
    assert all(Path(parent.path).name in named for parent in run.parents if parent.kind != "noise")
    path = tmp_path / "run.toml"
    path.write_text(written, encoding="utf-8")
    parents = [parent.path for parent in run.parents if parent.kind != "noise"]
    done = toy.ok("train", *parents, f"--config={path}", "--device", "cpu", workspace=finished.root)
    assert done.made.id == run.id and "trained already" in done.err


@pytest.mark.parametrize(
    ("content", "code", "word"),
    [
        ("epochs = ", 4, "TOML"),
        ('config = "other.toml"', 2, "config"),
        ("set = 3", 2, "set"),
        ("epoch = 3", 2, "--epoch"),
        ('epochs = "three"', 2, "epochs"),
        ("[set]\nlearning = 3", 2, "learning"),
        (None, 2, "infonce.toml"),
    ],
)
def test_a_wrong_file(content: str | None, code: int, word: str, file: Path, sources: Chain) -> None:
    if content is None:
        file.unlink()
    else:
        file.write_text(content, encoding="utf-8")
    before, words = len(Workspace(sources.root).artifacts()), recorded_words()
    done = sources.ccr("train", "--config", file)
    assert recorded_words() == words, "an artifact made later in this process records its own command"
    assert (done.code, done.out) == (code, "") and word in done.err and "Traceback" not in done.err
    assert len(Workspace(sources.root).artifacts()) == before


def test_a_flag_without_a_file(sources: Chain) -> None:
    done = sources.ccr("train", "--config")
    assert (done.code, done.out) == (2, "") and "there is no" in done.err


def test_a_sweep_over_a_file(workspace: Chain, file: Path) -> None:
    done = toy.ok("train", "--config", file, "--sweep", "seed=1,2", "--json", workspace=workspace.root)
    seeds = [base.load(Path(fact["path"])).request["seed"] for fact in json.loads(done.out)["made"]]
    assert seeds[-2:] == [1, 2]


def test_the_command_line_replaces_languages_and_swept_settings(file: Path) -> None:
    file.write_text('lang = "de"\nseed = 3\nnoise_seed = 4\n[set]\nlayer_decay = 1.0\ndim = 32\n', encoding="utf-8")
    assert config_file.words(file) == [
        "--lang=de",
        "--seed=3",
        "--noise-seed=4",
        "--set=layer_decay=1.0",
        "--set=dim=32",
    ]
    others = ["--lang", "es", "--sweep", "seed=0,1", "--sweep=layer-decay=0.5,1"]
    assert config_file.words(file, others) == ["--noise-seed=4", "--set=dim=32"]


def test_a_sweep_over_what_the_file_sets(workspace: Chain, file: Path) -> None:
    file.write_text(f"seed = 3\n{FILE}", encoding="utf-8")
    axes = ("--sweep", "seed=1,2", "--sweep", "dim=16")
    done = toy.ok("train", "--config", file, *axes, "--dry-run", "--json", workspace=workspace.root)
    seeds = [fact["request"]["seed"] for fact in json.loads(done.out)["made"] if fact["kind"] == "run"]
    assert seeds == [1, 2]


def test_two_files_are_refused(sources: Chain, file: Path) -> None:
    done = sources.ccr("train", "--config", file, f"--config={file}")
    assert (done.code, done.out) == (2, "") and "--config" in done.err


def test_a_written_file_names_the_verdicts_and_leaves_the_usual_noise_seed_out(finished: Chain) -> None:
    run = finished.find("run", "uml")
    assert "noise-seed" not in tomllib.loads(config_file.of_run(run))
    pairs = {"sha256": "0123abcd", "as": "weights"}
    other = replace(run, request=run.request | {"pairs": pairs, "noise": run.request["noise"] | {"seed": 7}})
    written = config_file.of_run(other)
    assert "0123abcd" in written and "--weigh-verdicts" in written
    assert tomllib.loads(written)["noise-seed"] == 7
