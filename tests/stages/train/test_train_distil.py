"""Runs that learn from a teacher: which run that is, what is kept of it, and which are refused."""

import shutil
from pathlib import Path

import pytest
import tinydual
import tinytext
import torch
import toy
from safetensors.torch import load_file
from toy import Chain, Outcome

from ccr_cli.artifacts import base, run
from ccr_cli.artifacts.workspace import Workspace
from ccr_cli.stages.train.naming import of_teacher

QUICK = ("--batch-size", "16", "--device", "cpu", "--epochs", "1", "--set", "buckets=512")


@pytest.fixture(scope="module")
def taught(sources: Chain, tmp_path_factory: pytest.TempPathFactory) -> Chain:
    """A workspace with a `source-only` run."""
    root = tmp_path_factory.mktemp("taught") / "workspace"
    shutil.copytree(sources.root, root)
    toy.ok("train", "--method", "source-only", *QUICK, "--set", "dim=32", "--name", "teacher", workspace=root)
    return Chain(sources.folder, root)


def train(chain: Chain, *options: str, method: str = "distil") -> Outcome:
    words = [word for option in options for word in (("--set", option) if "=" in option else (option,))]
    return chain.ccr("train", "--method", method, *QUICK, *words)


def head(artifact: base.Artifact) -> dict[str, torch.Tensor]:
    weights = load_file(artifact.file("model.safetensors"))
    return {name: weight for name, weight in weights.items() if ".visual_head." in name}


def test_the_only_fitting_run_teaches_and_keeps_its_visual_side(taught: Chain) -> None:
    teacher = taught.find("run", "teacher")
    made = train(taught).made
    assert [p.path for p in made.parents if p.kind == "run"] == ["runs/teacher"]
    assert made.request["teacher"] == teacher.id[:12] and made.request["dim"] == 32
    assert run.config(made)["features"] == run.config(teacher)["features"] == taught.find("features").path.name
    assert head(made).keys() == head(teacher).keys()
    assert all(torch.equal(weight, head(teacher)[name]) for name, weight in head(made).items())
    noisy = train(taught, "--noise", "0.6", "distance=contrast", "judge=two-group", "warmup_epochs=0").made
    assert all(torch.equal(weight, head(teacher)[name]) for name, weight in head(noisy).items())
    assert made.name == "toy-es-distil-" + made.name.rpartition("-distil-")[2] and made.name != noisy.name
    for artifact in (made, noisy):
        assert taught.ccr("verify", "--deep", artifact.path).code == 0
    assert "runs/teacher" in made.rebuild_hint() and "features/" in made.rebuild_hint()
    assert Workspace(taught.root).stale(Workspace(taught.root).artifacts()) == set()


def test_a_word_names_the_teacher_and_the_request_its_content(taught: Chain) -> None:
    made = [train(taught, f"teacher={word}", "--name", "by-word").made for word in ("runs/teacher", "teacher")]
    assert made[0].id == made[1].id
    piped = toy.ok(
        "train", "-", "--method", "distil", *QUICK, workspace=taught.root, stdin=f"{taught.root}/runs/teacher\n"
    )
    assert piped.made.request["teacher"] == taught.find("run", "teacher").id[:12]
    settings = run.config(piped.made)
    assert settings["options"]["teacher"] == "teacher"
    assert settings["features"] == piped.made.json("config.json")["features"] == taught.find("features").name


def test_data_to_test_on_are_not_trained_on(taught: Chain, tmp_path: Path) -> None:
    folder = toy.toy("tested")
    for item in folder.items:
        item[1] = "test"
    toy.ok("data", "import", folder.write(tmp_path / "tested"), workspace=taught.root)
    planned = toy.ok("train", "--method", "source-only", "--lang", "en", "--dry-run", workspace=taught.root).out
    assert f"parent dataset\t{taught.find('dataset', 'toy').id[:12]}" in planned


@pytest.mark.slow
def test_the_usual_teacher_leaves_no_digits_in_the_name(workspace: Chain) -> None:
    toy.ok("train", "--method", "source-only", "--device", "cpu", workspace=workspace.root)
    made = toy.ok("train", "--method", "distil", "--device", "cpu", workspace=workspace.root).made
    assert of_teacher(workspace.find("run", "toy-es-source-only"), made.request) == {}
    name = workspace.find("run", "toy-es-source-only").name
    assert run.config(made)["options"]["teacher"] == name.replace("-seed0", ""), "the same for all seeds"
    other = toy.ok("train", "--method", "source-only", *QUICK, "--set", "lr=0.01", workspace=workspace.root).made
    assert of_teacher(other, made.request) == {"epochs": 1, "batch_size": 16, "buckets": 512, "lr": 0.01}


def test_a_deleted_teacher_leaves_the_run_usable(taught: Chain, tmp_path: Path) -> None:
    root = tmp_path / "workspace"
    shutil.copytree(taught.root, root)
    made = train(Chain(taught.folder, root)).made
    shutil.rmtree(root / "runs" / "teacher")
    toy.ok("evaluate", made.path, "--device", "cpu", workspace=root)


@pytest.mark.slow
def test_a_dual_encoder_teaches_as_the_run_pretrained(sources: Chain, tmp_path: Path) -> None:
    root = tmp_path / "workspace"
    shutil.copytree(sources.root, root)
    shutil.rmtree(root / "features")
    chain = Chain(sources.folder, root)
    model = tinydual.save("clip", tmp_path / "clip", 3)
    toy.ok("extract", "--encoder", "clip", "--device", "cpu", "--set", f"model={model}", workspace=root)
    for lang in ("en", "es"):  # one model, of which the first run teaches
        toy.ok("train", "--method", "pretrained", "--lang", lang, "--device", "cpu", workspace=root)
    made = train(chain).made
    assert made.request["head"] == "identity" and not head(made)
    other = tinytext.save("bert", tmp_path / "bert")
    student = train(chain, f"text_encoder={other}", "lora_rank=2", "max_tokens=16").made
    assert any("lora" in name for name in load_file(student.file("model.safetensors")))
    toy.ok("evaluate", student.path, "--device", "cpu", workspace=root)


def test_a_sentence_encoder_teaches_and_is_recorded_by_content(workspace: Chain, tmp_path: Path) -> None:
    one, copy = tinytext.save("bert", tmp_path / "one"), tmp_path / "copy"
    shutil.copytree(one, copy)
    made = train(workspace, f"teacher={one}").made
    assert made.request["teacher"].startswith("sha256:") and made.request["dim"] == 16
    assert run.history(made)["loss.infonce_vs"].notna().all()
    again = train(workspace, f"teacher={copy}")
    assert again.made.id == made.id and "already" in again.err
    toy.ok("evaluate", made.path, "--device", "cpu", workspace=workspace.root)


@pytest.mark.parametrize(
    ("options", "code", "value"),
    [
        (("teacher=runs/nobody",), 4, "runs/nobody"),
        (("teacher=no/encoder",), 5, "no/encoder"),
        (("teacher=features/toy/efficientnet-lite0",), 4, "features"),
        (("dim=16",), 2, "dim=16"),
        (("head=residual",), 2, "head=residual"),
        (("visual=gpo",), 2, "visual=gpo"),
        (("finetune=true",), 2, "finetune=true"),
        (("--noise", "0.4", "--noise-target", "pair", "teacher=teacher"), 2, "0.4 pairs switched"),
    ],
)
def test_teachers_and_options_that_do_not_fit(
    options: tuple[str, ...], code: int, value: str, taught: Chain, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    runs = len(list((taught.root / "runs").iterdir()))
    done = train(taught, *options)
    assert done.code == code and value in done.err, done.err
    assert len(list((taught.root / "runs").iterdir())) == runs


def test_runs_that_cannot_teach(workspace: Chain) -> None:
    done = train(workspace)
    assert done.code == 4 and "ccr train --method source-only" in done.err
    toy.ok("train", "--method", "infonce", *QUICK, "--name", "bilingual", workspace=workspace.root)
    done = train(workspace, "teacher=bilingual")
    assert done.code == 2 and "infonce" in done.err
    assert train(workspace).code == 4
    train(workspace, "--name", "tuned", "finetune=true", "head=residual", method="source-only")
    other = ("--encoder", "efficientnet-lite0", "--set", "image_size=48", "--device", "cpu", "--name", "larger")
    toy.ok("extract", *other, workspace=workspace.root)
    larger = f"{workspace.root}/features/toy/larger"
    toy.ok("train", larger, "--method", "source-only", *QUICK, "--name", "elsewhere", workspace=workspace.root)
    smaller = next(str(p) for p in (workspace.root / "features" / "toy").iterdir() if p.name != "larger")
    done = workspace.ccr("train", smaller, "--method", "distil", *QUICK, "--set", "teacher=elsewhere")
    assert done.code == 4 and "larger" in done.err


def test_switched_pairs_need_a_teacher_that_saw_the_same(workspace: Chain) -> None:
    pairs = ("--noise", "0.4", "--noise-target", "pair")
    for name, noise in (("clean", ()), ("wrong", pairs)):
        toy.ok("train", "--method", "source-only", *QUICK, *noise, "--name", name, workspace=workspace.root)
    assert [p.path for p in train(workspace, *pairs).made.parents if p.kind == "run"] == ["runs/wrong"]
    assert [p.path for p in train(workspace).made.parents if p.kind == "run"] == ["runs/clean"]
    assert train(workspace, "teacher=wrong").code == 2
