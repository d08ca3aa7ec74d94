"""Artifacts whose hashes are right and whose content is malformed: refused with exit 4, or harmless; no traceback."""

from __future__ import annotations

import io
import random
import shutil
from pathlib import Path

import numpy as np
import pytest
import toy
from mutate import Victim
from toy import Chain

from ccr_cli.artifacts import base
from ccr_cli.artifacts.parquet import read_table, write_table
from ccr_cli.artifacts.translation import CAPTIONS
from ccr_cli.errors import ArtifactError
from ccr_cli.stages.verify import malformed

SEED = 21
FRESH = "fresh"
"""Name of what a command makes of a malformed artifact."""


@pytest.fixture(scope="module")
def victim(chain: Chain, tmp_path_factory: pytest.TempPathFactory) -> Victim:
    """A workspace with an artifact of every kind that other stages read."""
    root = tmp_path_factory.mktemp("victim") / "workspace"
    shutil.copytree(chain.root, root)
    for kind in ("ivf", "hnsw"):
        toy.ok("index", "toy-es-infonce", "--split", "all", "--type", kind, "--name", kind, workspace=root)
    return Victim(root)


def commands(folder: Path) -> list[tuple[str | Path, ...]]:
    """The commands that read an artifact of a kind."""
    run = folder if folder.parent.name == "runs" else "toy-es-infonce"
    made = ("--name", FRESH, "--device", "cpu")
    train = ("train", "--method", "infonce", "--epochs", "1", *toy.SMALL, "--name", FRESH)
    search, evaluate = ("search", "rojo", run), ("evaluate", run, *made)
    diagnose = ("diagnose", run, "--judge", "gmm", *made)
    compare, report = ("compare", "--by", "none"), ("report", *made[:2])
    of_kind: dict[str, list[tuple[str | Path, ...]]] = {
        "datasets": [("data", "show", "toy"), train, search, evaluate],
        "translations": [train, diagnose, ("diagnose", folder, *made)],
        "noise": [(*train, "--noise", "0.4")],
        "features": [train, search, evaluate],
        "runs": [search, evaluate, diagnose, compare, ("export", run, *made[:2])],
        "evaluations": [compare, report, ("show", folder)],
        "diagnoses": [report, ("show", folder)],
        "indexes": [("search", "rojo", folder, "--split", "all")],
    }
    kind = folder.parent.name if folder.parent.name in of_kind else folder.parent.parent.name
    return [("show",), *of_kind[kind]]


def attack(victim: Victim, number: int, all_commands: bool) -> bool:
    """Mutates a file chosen by the number; whether it is refused. Any exception but a user's error is raised."""
    rng = random.Random(number)
    folder, name = rng.choice(victim.files())
    victim.change(folder, name, rng)
    try:
        try:
            problem = malformed(base.load(folder))
        except ArtifactError as error:
            problem = error.message
        if all_commands or (problem is None and number % 20 == 0):
            for command in commands(folder):
                outcome = toy.ccr(*command, workspace=victim.root)
                assert outcome.code in (0, 2, 3, 4, 6), (number, folder, name, command, outcome.err)
                for made in (*victim.root.glob(f"*/{FRESH}*"), *victim.root.glob(f"*/*/{FRESH}*")):
                    shutil.rmtree(made)
                shutil.rmtree(victim.root / ".cache", ignore_errors=True)
    except BaseException as error:
        error.add_note(f"input {number}: {name} of {folder}")
        raise
    finally:
        victim.restore()
    return problem is not None


def test_parts_that_do_not_fit_each_other(victim: Victim) -> None:
    """More ids than a model has, a back-translation or intervals of nothing, two data sets, or an unknown index."""
    of_kind = {base.load(path).kind: path for path in victim.artifacts}
    captions = read_table(of_kind["translation"] / "captions.parquet", CAPTIONS)
    captions["source_caption_id"] = captions["source_caption_id"].where(captions["direction"] != "back", "x")
    text = (of_kind["run"] / "tokenizer/ccr_tokenizer.json").read_text()
    metrics = (of_kind["evaluation"] / "metrics.json").read_text()
    index = (of_kind["index"] / "index.json").read_text()
    settings, record = ((of_kind["run"] / name).read_text() for name in ("config.json", base.RECORD))
    for kind, name, content in (
        ("run", "tokenizer/ccr_tokenizer.json", text.replace('"buckets": 512', '"buckets": 513')),
        ("evaluation", "metrics.json", metrics.replace('"drawn"', '"left"')),
        ("run", "config.json", settings.replace('"data": "toy"', '"data": ["toy"]')),
        ("run", "config.json", settings.replace('"text_encoder"', '"text_decoder"')),
        ("run", "config.json", settings.replace('"buckets": 512', '"buckets": "512"')),
        ("translation", "captions.parquet", captions),
        ("index", "index.json", index.replace('"type": "', '"type": "un')),
    ):
        file = of_kind[kind] / name
        old = file.read_bytes()
        if isinstance(content, str):
            assert content.encode() != old
            file.write_text(content)
        else:
            write_table(file, content, CAPTIONS)
        victim.changed(of_kind[kind], name, old)
        assert malformed(base.load(of_kind[kind])) is not None, name
        victim.restore()
    (of_kind["run"] / base.RECORD).write_text(record.replace('"lang": "es"', '"language": "es"'))
    with pytest.raises(ArtifactError, match="'lang'"):
        base.load(of_kind["run"])
    (of_kind["run"] / base.RECORD).write_text(record)


@pytest.mark.filterwarnings("error")
def test_a_history_without_its_epochs_and_features_that_are_not_finite(victim: Victim) -> None:
    folders = {base.load(path).kind: path for path in victim.artifacts}
    array = np.full_like(np.load(next(folders["features"].glob("*.npy"))), np.inf)
    shard, sink = next(folders["features"].glob("*.npy")).name, io.BytesIO()
    np.save(sink, array)
    for kind, name, content in (("run", "history.jsonl", b'{"epoch": 99}\n'), ("features", shard, sink.getvalue())):
        old = (folders[kind] / name).read_bytes()
        (folders[kind] / name).write_bytes(content)
        victim.changed(folders[kind], name, old)
        try:
            problem = malformed(base.load(folders[kind]))
        finally:
            victim.restore()
        assert problem is not None and str(folders[kind]) in problem, problem


def test_a_few_malformed_artifacts(victim: Victim) -> None:
    assert any(attack(victim, SEED + number, False) for number in range(40))


@pytest.mark.slow
def test_malformed_artifacts(victim: Victim) -> None:
    refused = sum(attack(victim, 1000 + number, False) for number in range(500))
    assert refused > 250


@pytest.mark.soak
def test_malformed_artifacts_and_every_command_that_reads_them(victim: Victim) -> None:
    for number in range(100_000):
        attack(victim, 10**6 + number, number % 10 == 0)
