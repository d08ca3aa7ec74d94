"""What is on standard output: every plan of a dry run, one JSON object, UTF-8; names that do not collide."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import toy
from toy import Chain

from ccr_cli.artifacts import base, diagnosis

CPU = ("--device", "cpu")


def plans(out: str) -> list[dict[str, str]]:
    """The plans that a dry run shows."""
    found: list[dict[str, str]] = []
    for line in out.splitlines()[1:]:
        key, value = line.split("\t")
        if key == "artifact":
            found.append({})
        found[-1][key] = value
    return found


def test_a_dry_run_of_several_artifacts_shows_them_all(workspace: Chain) -> None:
    call = ("translate", "--engine", "recorded", "--set", f"table={workspace.folder / 'translations/hand-en-es.tsv'}")
    many = ("--lang", "fr", "--lang", "de", "--noise", "0.4", "--noise", "0.2", "--dry-run")
    shown = plans(toy.ok(*call, *many, workspace=workspace.root).out)
    assert [(Path(plan["artifact"]).parent.parent.name, plan["state"]) for plan in shown] == [
        ("noise", "done"),
        ("noise", "to do"),
        ("translations", "to do"),
        ("translations", "to do"),
    ]
    assert [plan.get("lang") for plan in shown] == [None, None, '"fr"', '"de"']
    assert sorted(p.name for p in (workspace.root / "translations" / "toy").iterdir() if p.is_dir()) == [
        workspace.find("translation").name
    ]


@pytest.mark.parametrize(("ratio", "state"), [("0.3", "to do"), ("0.4", "done")])
def test_a_dry_run_of_training_shows_the_run_whose_noise_is_not_drawn(ratio: str, state: str, workspace: Chain) -> None:
    call = ("train", "--noise", ratio, "--epochs", "1", *toy.SMALL)
    noise, run = plans(toy.ok(*call, "--dry-run", workspace=workspace.root).out)
    assert (Path(noise["artifact"]).parent.parent.name, noise["state"]) == ("noise", state)
    assert run["state"] == "to do" and Path(noise["artifact"]).exists() == (state == "done")
    made = toy.ok(*call, workspace=workspace.root).made
    assert run["artifact"] == str(made.path) and made.parent("noise").id.startswith(run["parent noise"])


def test_a_dry_run_in_json_has_the_keys_of_what_was_made(workspace: Chain) -> None:
    call = ("train", "--method", "infonce", "--noise", "0.3", "--epochs", "1", *toy.SMALL, "--json")
    planned = json.loads(toy.ok(*call, "--dry-run", workspace=workspace.root).out)
    noise, run = planned["made"]
    assert [noise["state"], run["state"]] == ["to do", "to do"] and not Path(run["path"]).exists()
    assert (run["id"], run["counts"], run["request"]["method"]) == (None, {}, "infonce")
    assert {p["kind"] for p in run["parents"]} == {"dataset", "translation", "noise", "features"}
    made = json.loads(toy.ok(*call, workspace=workspace.root).out)
    assert set(planned) == set(made) and all(set(made["made"][0]) < set(plan) for plan in planned["made"])
    assert made["made"][0]["path"] == run["path"]
    read = {a["path"]: a for a in made["read"]}
    assert planned["read"] == [read[a["path"]] for a in planned["read"]] and len(read) == len(planned["read"]) + 1
    noise, run = json.loads(toy.ok(*call, "--dry-run", workspace=workspace.root).out)["made"]
    assert [noise["state"], run["state"]] == ["done", "done"]
    assert {key: run[key] for key in made["made"][0]} == made["made"][0]


@pytest.mark.parametrize(("call", "key"), [(("data", "list"), "datasets"), (("doctor",), "checks")])
def test_json_is_one_object(call: tuple[str, ...], key: str, sources: Chain) -> None:
    found = json.loads(toy.ok(*call, "--json", workspace=sources.root).out)
    assert list(found) == [key] and all(isinstance(row, dict) for row in found[key]) and len(found[key]) > 1


def test_doctor_says_that_no_model_is_there(sources: Chain, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    rows = json.loads(toy.ok("doctor", "--json", workspace=sources.root).out)["checks"]
    found = {row["what"]: row for row in rows}
    for what in ("encoder clip", "engine hf"):
        assert "on this machine" in found[what]["state"] and "hf download" in found[what]["mend"]
    assert found["engine recorded"]["state"] == "available"


@pytest.mark.parametrize(
    "encoding",
    [
        pytest.param("ascii", marks=pytest.mark.slow),
        *(pytest.param(name, marks=pytest.mark.soak) for name in ("latin-1", "utf-8")),
    ],
)
def test_paths_are_utf8_in_every_locale(encoding: str, folder: Path, tmp_path: Path) -> None:
    root = tmp_path / "Bücher 中文"
    environment = {**toy.environment(root), "PYTHONIOENCODING": encoding}

    def ccr(*words: str | Path, stdin: bytes = b"") -> bytes:
        command = [sys.executable, "-m", "ccr_cli", *words, "--workspace", root]
        done = subprocess.run(command, input=stdin, capture_output=True, env=environment, timeout=120)
        assert done.returncode == 0, done.stderr.decode(errors="replace")
        return done.stdout

    printed = ccr("data", "import", folder)
    assert printed == os.fsencode(root / "datasets" / "toy") + b"\n"
    assert ccr("translate", "-", "--lang", "es", stdin=printed).startswith(printed)
    assert ccr("verify").count(b"ok\n") == 2


@pytest.mark.slow
def test_nobody_reads_the_messages_and_the_work_is_done(finished: Chain, tmp_path: Path) -> None:
    pairs, run = tmp_path / "pairs.csv", finished.find("run", "infonce").path
    words = ("diagnose", run, "--export", pairs, "--workspace", finished.root)
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "wb") as unread:
        command = [sys.executable, "-m", "ccr_cli", *map(str, words)]
        done = subprocess.run(
            command, stdout=subprocess.PIPE, stderr=unread, env=toy.environment(tmp_path), timeout=120
        )
    assert done.returncode == 0 and len(pairs.read_text(encoding="utf-8").splitlines()) > 2


def test_a_path_that_is_not_utf8(folder: Path, tmp_path: Path) -> None:
    odd = tmp_path / os.fsdecode(b"caf\xe9")
    shutil.copytree(folder, odd)
    made = toy.ok("data", "import", odd, workspace=tmp_path / "w").made
    assert made.about["environment"]["media_root"] == str(odd / "media") and base.verify(made) == []
    done = toy.ccr("data", "import", folder, workspace=odd)
    assert (done.code, done.out) == (2, "") and "UTF-8" in done.err


@pytest.mark.slow
def test_another_collection_is_another_zero_shot_evaluation(finished: Chain) -> None:
    run = finished.find("run", "uml").path

    def collection(name: str) -> Path:
        folder = toy.toy(name).write(finished.root.parent / name)
        manifest = folder / "manifest.toml"
        manifest.write_text(manifest.read_text().replace("toy-shapes", f"{name}-shapes"))
        place = toy.ok("data", "import", folder, workspace=finished.root).paths[-1]
        toy.ok("extract", place, *toy.ENCODER, workspace=finished.root)
        return place

    def evaluated(*words: str | Path) -> base.Artifact:
        return toy.ok("evaluate", run, "--zero-shot", *words, *CPU, workspace=finished.root).made

    collection("second")
    alone = evaluated()
    assert alone.name == f"{run.name}-zero-shot"
    third = collection("third")
    both, named = evaluated(), evaluated(third)
    assert len({alone.path, both.path, named.path, evaluated("--split", "val").path}) == 4
    assert evaluated() == both and both.name.startswith(f"{alone.name}-")
    piped = toy.ok("evaluate", run, finished.find("dataset", "toy").path, *CPU, workspace=finished.root).made
    assert piped.name == f"{run.name}-test", "the run's own data set changes no name"


def test_a_judge_that_believes_everything_suspects_nothing(finished: Chain) -> None:
    made = toy.ok("diagnose", finished.find("run", "uml").path, "--judge", "none", *CPU, workspace=finished.root)
    summary = diagnosis.summary(made.made)
    assert summary["most_suspicious"] == [] and summary["called_noisy"] == 0
    assert "1.00  " not in made.err
