"""What training reads and what it does not, and what a run consists of."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest
import toy
from toy import Chain, Folder

from ccr_cli import registry
from ccr_cli.artifacts import base, dataset, noise, run
from ccr_cli.artifacts.parquet import read_table
from ccr_cli.artifacts.workspace import Workspace
from ccr_cli.data.splits import items_of

TRAIN = ("train", "--method", "uml", "--epochs", "3", "--set", "warmup_epochs=1", "--set", "lr=0.02", *toy.SMALL)


def trained_on(folder: Folder, place: Path, *options: str) -> base.Artifact:
    """Imports, translates, extracts and trains."""
    root = place / "workspace"
    toy.ok("data", "import", folder.write(place / "toy"), workspace=root)
    toy.ok("translate", "--lang", "es", "--with-queries", workspace=root)
    toy.ok("extract", *toy.ENCODER, workspace=root)
    return toy.ok(*TRAIN, *options, workspace=root).made


def reworded(chooses: Callable[[list[str]], bool]) -> Folder:
    """The toy data set with other captions and queries for some of its items (rows of items.tsv)."""
    folder = toy.toy()
    chosen = {item[0] for item in folder.items if chooses(item)}
    for caption in folder.captions:
        if caption[1] in chosen:
            caption[4] = f"nonsense of {caption[0]}"
            pair = "en-es" if caption[2] == "en" else "es-en"
            folder.tables[pair][caption[4]] = f"tontería de {caption[0]}"
    return folder


@pytest.fixture(scope="module")
def halves(sources: Chain) -> dict[str, set[str]]:
    items = dataset.read(sources.find("dataset")).items
    return {half: set(items_of(items, half)["item_id"]) for half in ("val-select", "val-report")}


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], base.Artifact]:
    """Trains once for each way to select."""
    return cache(lambda how: trained_on(toy.toy(), tmp_path_factory.mktemp(how), "--select-on", how))


@pytest.mark.parametrize("select_on", ["mt", pytest.param("human", marks=pytest.mark.slow)])
def test_test_and_the_reporting_half_of_validation_choose_nothing(
    select_on: str, plain: Callable[[str], base.Artifact], halves: dict[str, set[str]], tmp_path: Path
) -> None:
    folder = reworded(lambda item: item[1] == "test" or item[0] in halves["val-report"])
    made = trained_on(folder, tmp_path, "--select-on", select_on)
    assert made.parents != plain(select_on).parents
    assert made.files == plain(select_on).files


def test_the_selecting_half_of_validation_chooses(
    plain: Callable[[str], base.Artifact], halves: dict[str, set[str]], tmp_path: Path
) -> None:
    made = trained_on(reworded(lambda item: item[0] in halves["val-select"]), tmp_path)
    assert not run.history(made)["val.SumR"].equals(run.history(plain("mt"))["val.SumR"])
    losses = [c for c in run.history(made) if str(c).startswith("loss.")]
    assert losses and run.history(made)[losses].equals(run.history(plain("mt"))[losses])


@pytest.mark.slow
def test_human_captions_of_the_target_language_never_train(
    plain: Callable[[str], base.Artifact], tmp_path: Path
) -> None:
    """The toy data set has none for training; here it gets some, and nothing changes."""
    folder = toy.toy()
    for item in [item for item in folder.items if item[1] == "train"]:
        folder.captions.append([f"{item[0]}-es9", item[0], "es", "9", f"humano {item[0]}", "main"])
    assert trained_on(folder, tmp_path).files == plain("mt").files


def test_an_oracle_without_noise_is_the_plain_method(workspace: Chain) -> None:
    """Once with no noise at all, once with a noise artifact in which nothing is moved."""
    clean = ("train", "--method", "infonce", "--epochs", "2", *toy.SMALL)
    weights = "model.safetensors"
    plain = toy.ok(*clean, workspace=workspace.root).made
    oracle = toy.ok(*clean, "--set", "judge=oracle", "--noise", "0", workspace=workspace.root).made
    drawn = toy.ok("translate", "--noise", "0.01", workspace=workspace.root).made
    assert drawn.kind == "noise" and drawn.counts["mismatched"] == 0
    given = toy.ok(*clean, "--set", "judge=oracle", drawn.path, workspace=workspace.root).made
    assert not oracle.has_parent("noise") and given.has_parent("noise")
    assert len({a.id for a in (plain, oracle, given)}) == 3
    assert len({a.file(weights).read_bytes() for a in (plain, oracle, given)}) == 1
    noisy = toy.ok(*clean, "--set", "judge=oracle", "--noise", "0.4", workspace=workspace.root).made
    unaware = toy.ok(*clean, "--noise", "0.4", workspace=workspace.root).made
    assert len({a.file(weights).read_bytes() for a in (plain, noisy, unaware)}) == 3


def test_the_oracle_s_runs_keep_every_pair_with_its_truth(workspace: Chain) -> None:
    noisy = ("train", "--method", "infonce", "--epochs", "2", "--noise", "0.4", *toy.SMALL)
    unaware = toy.ok(*noisy, workspace=workspace.root).made
    assert not any(f.path.startswith("evidence/") for f in unaware.files)
    made = toy.ok(*noisy, "--set", "judge=oracle", workspace=workspace.root).made
    assert "judge.auroc" not in run.history(made), "who knows the truth is not measured against it"
    pairs = read_table(workspace.find("noise").file("pairs.parquet"), noise.PAIRS).set_index("slot_id")
    similarities = []
    for epoch in (1, 2):
        kept = read_table(made.file(f"evidence/epoch-{epoch:03d}.parquet"), run.EVIDENCE).set_index("slot_id")
        assert set(kept.index) == set(pairs.index)
        assert (kept["p_clean"] == 1 - pairs.loc[kept.index, "vt_wrong"].astype(int)).all()
        similarities.append(kept["sim_vt"])
    assert not similarities[0].equals(similarities[1])


def test_training_is_clean_whatever_lies_in_the_workspace(workspace: Chain) -> None:
    assert workspace.find("noise")
    made = toy.ok("train", "--method", "infonce", "--epochs", "1", *toy.SMALL, workspace=workspace.root).made
    assert made.request["noise"] is None and not made.has_parent("noise")


@pytest.mark.parametrize("flag", [("--noise-style", "image"), ("--noise-target", "pair"), ("--noise-seed", "0")])
def test_options_of_a_mismatch_that_is_not_drawn_are_refused(flag: tuple[str, str], sources: Chain) -> None:
    train = ("train", "--method", "infonce", "--dry-run", *flag)
    done = sources.ccr(*train)
    assert (done.code, done.out) == (2, "") and f"{' '.join(flag)} has no effect" in done.err
    assert "try: add --noise 0.4" in done.err
    drawn = sources.find("noise").path
    done = sources.ccr(*train, drawn)
    assert (done.code, done.out) == (2, "") and f"{drawn} and {' '.join(flag)} both set the mismatch" in done.err
    assert sources.ccr(*train, "--noise", "0").code == 0, "one value of several that a script tries"


def test_a_sweep_brings_the_noise_of_a_mismatch(sources: Chain) -> None:
    done = toy.ok("train", "--noise-target", "pair", "--sweep", "noise=0,0.4", "--dry-run", workspace=sources.root)
    assert "2 to do" in done.err


def test_artifacts_hold_no_pickle_and_no_archive(chain: Chain) -> None:
    kinds = {".json", ".jsonl", ".toml", ".tsv", ".parquet", ".npy", ".safetensors", ".txt"}
    for artifact in Workspace(chain.root).artifacts():
        assert {Path(f.path).suffix for f in artifact.files} <= kinds, artifact.name
        for entry in artifact.files:
            start = (artifact.path / entry.path).read_bytes()[:128]
            assert not start.startswith((b"\x80", b"PK", b"\x1f\x8b")), entry.path
            if entry.path.endswith(".npy"):
                assert b"'|O'" not in start, entry.path


def test_a_run_consists_of_what_is_promised(chain: Chain) -> None:
    made = chain.find("run", "uml")
    names = {f.path for f in made.files}
    evidence = {f"evidence/epoch-{epoch:03d}.parquet" for epoch in range(1, 7)}
    assert evidence | {"config.json", "history.jsonl", "model.safetensors"} <= names
    assert any(name.startswith("tokenizer/") for name in names)
    history = run.history(made)
    assert list(history["epoch"]) == [1, 2, 3, 4, 5, 6]
    assert {"judge.auroc", "judge.share_noisy", "loss.total", "lr"} <= set(history.columns)
    assert {"seconds", "triplets_per_second", "device"} <= set(made.about["environment"])


@pytest.mark.parametrize(
    ("judge", "warmup", "first"),
    [
        ("two-group", 0, 2),  # it reads a whole epoch, and weights the next
        pytest.param("two-group", 1, 2, marks=pytest.mark.slow),
        ("two-group", 2, 3),
        ("argmax", 0, 1),  # it reads each batch as it is trained on
        pytest.param("argmax", 1, 2, marks=pytest.mark.slow),
        ("argmax", 2, 3),
        ("oracle", 2, 1),  # it knows
    ],
)
def test_a_judge_speaks_from_the_end_of_the_warm_up(judge: str, warmup: int, first: int, workspace: Chain) -> None:
    common = ("train", "--method", "infonce", "--noise", "0.4", "--epochs", "3", "--set", "lr=0.02", *toy.SMALL)
    judged = ("--set", f"judge={judge}", "--set", f"warmup_epochs={warmup}")
    trusting, doubting = (
        run.history(toy.ok(*common, *options, workspace=workspace.root).made)["loss.infonce_vt"].tolist()
        for options in ((), judged)
    )
    differ = [epoch for epoch, (a, b) in enumerate(zip(trusting, doubting, strict=True), start=1) if a != b]
    assert differ == list(range(first, 4))


def test_what_needs_a_judge_waits_for_it(workspace: Chain) -> None:
    made = toy.ok(*TRAIN, "--set", "warmup_epochs=2", "--noise", "0.4", workspace=workspace.root).made
    assert run.history(made)["loss.disentangle"].notna().tolist() == [False, False, True]


def test_a_preset_that_does_not_train_says_so_before_it_starts(workspace: Chain) -> None:
    for name in registry.names("methods"):
        assert set(registry.load("methods", name).Method.CAVEATS) <= set(registry.load("methods", name).Method.PRESETS)
    small = ("--method", "uml", "--preset", "paper", "--set", "text_encoder=ngram", "--epochs", "1", *toy.SMALL)
    done = toy.ccr("train", *small, workspace=workspace.root)
    assert "warning: --preset paper: " in done.err and "docs/methods/uml.md" in done.err
