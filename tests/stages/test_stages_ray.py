"""Work on a Ray cluster of this machine: the bytes of a local run, whatever becomes of the workers."""

from __future__ import annotations

import json
import os
import platform
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import raycluster
import torch
import toy
import transformers
from raycluster import Cluster
from standin import Engine
from toy import Chain, Outcome

import ccr_cli
from ccr_cli.artifacts import base
from ccr_cli.errors import ArtifactError, CcrError, UnavailableError
from ccr_cli.stages.ray_executor import Place, do_part, worker_needs
from ccr_cli.stages.shared.sharding import WorkPart
from ccr_cli.stages.translate import steps

GROUP = steps.GROUP_SENTENCES
CAPTIONS = {f"picture {n}": f"imagen {n}" for n in range(2 * GROUP + 500)}
TRANSLATE = ("translate", "datasets/many", "--lang", "es", "--engine", "apertium", "--name")
SMALL = ("translate", "--lang", "es", "--engine", "apertium")
MAIN = "from ccr_cli.cli import main; main()"


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    """A program that stands in for Apertium, found by the nodes of the cluster."""
    folder = tmp_path_factory.mktemp("engine")
    made = Engine(folder)
    made.knows(CAPTIONS)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", str(folder), prepend=os.pathsep)
        yield made


@pytest.fixture(scope="module")
def cluster(engine: Engine) -> Iterator[Cluster]:
    with raycluster.cluster() as made:
        yield made


@pytest.fixture(scope="module")
def clip_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny CLIP with random weights."""
    folder = tmp_path_factory.mktemp("clip")
    torch.manual_seed(0)
    vision = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2}
    config = transformers.CLIPConfig(
        text_config={**vision, "vocab_size": 64}, vision_config={**vision, "image_size": 32, "patch_size": 8}
    )
    transformers.CLIPModel(config).save_pretrained(folder)
    size = {"size": {"shortest_edge": 32}, "crop_size": {"height": 32, "width": 32}}
    transformers.CLIPImageProcessorPil(**size).save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory, engine: Engine) -> Path:
    """A workspace with some thousand captions, and what a local run makes of them."""
    folder = toy.Folder("many")
    for number, caption in enumerate(CAPTIONS):
        item = f"item-{number}"
        folder.items.append([item, toy.SPLITS[number % 4], "image", "", "", item])
        folder.captions.append([f"{item}-en0", item, "en", "0", caption, "main"])
    place = tmp_path_factory.mktemp("ray")
    toy.ok("data", "import", folder.write(place / "many", pictures=False), workspace=place / "workspace")
    toy.ok(*TRANSLATE, "local", "--no-cache", workspace=place / "workspace")
    return place / "workspace"


def on_ray(*call: str | Path, workspace: Path) -> Outcome:
    """Runs a command whose work a cluster does."""
    return finished(toy.python(MAIN, *call, "--executor", "ray", workspace=workspace))


def finished(process: subprocess.Popen[str]) -> Outcome:
    out, err = process.communicate(timeout=120)
    return Outcome(process.returncode, out, err)


def local(root: Path, kind: str) -> base.Artifact:
    """What a local run made."""
    (found,) = (root / kind).glob("*/local")
    return base.load(found)


def results() -> list[Path]:
    """The files of the cache, one a process that wrote."""
    return list(Path(os.environ["CCR_CACHE"]).rglob("*.jsonl"))


def lines() -> int:
    return sum(path.read_bytes().count(b"\n") for path in results())


def until(met: Callable[[], bool], otherwise: str) -> None:
    deadline = time.monotonic() + 100
    while not met():
        assert time.monotonic() < deadline, otherwise
        time.sleep(0.01)


@pytest.mark.slow
def test_workers_and_nodes_that_come_and_go(cluster: Cluster, root: Path, engine: Engine) -> None:
    """Of three parts the first node has room for two, the third is for the node that joins; what is killed goes on."""
    engine.forget()
    engine.holds("picture 1024", f"picture {GROUP + 1024}", f"picture {2 * GROUP}")
    process = toy.python(MAIN, *TRANSLATE, "shared", "--executor", "ray", workspace=root)
    until(lambda: len(results()) == 2, "two workers do not write")
    killed = cluster.kill_worker()
    cluster.add()
    until(lambda: len(cluster.workers()) == 3, "nobody is at work on the node that joined")
    cluster.kill()
    engine.holds()
    done = finished(process)
    assert done.code == 0, done.err
    assert [path.name for path in done.paths] == ["many", "shared"], "nothing else on standard output"
    assert "3 parts, each with 1 CPU; there is room for 2 at once" in done.err
    assert f"{len(CAPTIONS)} captions done, 0 failed" in done.err
    assert "retries remaining" in done.err and "\x1b" not in done.err
    assert done.made.files == local(root, "translations").files
    writers = {path.name.split("-")[-2] for path in results()}
    assert str(killed) in writers and len(writers) > 2
    assert set(engine.asked()) == set(CAPTIONS)
    assert not list(root.glob(".ray-*")) and not list(Path(os.environ["CCR_CACHE"]).glob(".ray-*"))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("sent", "code"), [(signal.SIGINT, 130), pytest.param(signal.SIGTERM, 143, marks=pytest.mark.soak)]
)
def test_interrupted(sent: int, code: int, cluster: Cluster, root: Path, engine: Engine) -> None:
    engine.takes(1.0)
    process = toy.python(MAIN, *TRANSLATE, f"stopped-{code}", "--executor", "ray", workspace=root)
    until(lambda: lines() > 0, "nobody translates")
    process.send_signal(sent)
    done = finished(process)
    assert (done.code, done.out) == (code, "") and "same command" in done.err, done.err
    assert "Traceback" not in done.err and cluster.workers() == []
    kept = lines()
    engine.forget()
    engine.takes(0.0)
    made = toy.ok(*TRANSLATE, f"stopped-{code}", workspace=root).made
    assert made.files == local(root, "translations").files
    assert len(engine.asked()) == len(CAPTIONS) - kept, "what was finished is not done twice"


@pytest.mark.slow
def test_pieces_of_features(cluster: Cluster, root: Path, clip_model: Path) -> None:
    """Made anew by two workers of which one is killed: the bytes of a local run."""
    call = ("extract", "datasets/noto-emoji", "--encoder", "clip", "--set", f"model={clip_model}", "--name", "mine")
    toy.ok("data", "import", "noto-emoji", workspace=root)
    wanted = toy.ok(*call, workspace=root).made
    again = ("--force", "--json", "--executor", "ray", "--parts", "9")
    process = toy.python(MAIN, *call, *again, workspace=root)
    until(lambda: any(root.glob("features/*/mine.parts/*.f2")), "nobody encodes")
    cluster.kill_worker()
    done = finished(process)
    assert done.code == 0, done.err
    assert "2 parts, each with 1 CPU" in done.err, "there are no more pieces"
    assert "retries remaining" in done.err and f"{wanted.counts['items']} items done, 0 failed" in done.err
    assert json.loads(done.out)["made"][0]["name"] == "mine"
    made = base.load(wanted.path)
    assert made.files == wanted.files and made.about["command"] != wanted.about["command"], "made anew"
    assert [path.name for path in wanted.path.parent.iterdir()] == ["mine"]


@pytest.mark.slow
def test_an_error_of_the_users_is_not_tried_again(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a Ray that is started for the command alone, and ends with it."""
    with tempfile.TemporaryDirectory(prefix="ccr-ray-", dir="/tmp") as folder:
        monkeypatch.setenv("RAY_TMPDIR", folder)
        monkeypatch.delenv("RAY_ADDRESS", raising=False)
        call = ("translate", "datasets/many", "--lang", "de", "--engine", "hf", "--set", "model=no/such-model")
        done, usual = on_ray(*call, workspace=root), toy.ccr(*call, workspace=root)
        assert (done.code, done.out) == (usual.code, "") == (5, "")
        assert done.err.splitlines()[-2:] == usual.err.splitlines()[-2:], "the same message, the same remedy"
        assert "1 CPU" in done.err and "retries" not in done.err and "Traceback" not in done.err
        assert [title for _, title in raycluster.titles() if folder in title] == []


@pytest.mark.parametrize("stage", [("translate", "--lang", "es"), ("extract",)], ids=["translate", "extract"])
@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--executor", "spark"), "--executor is local or ray, not 'spark'"),
        (("--parts", "3"), "--parts goes with --executor ray"),
        (("--executor", "ray", "--shard", "1/2"), "--shard and --executor ray"),
    ],
)
def test_what_does_not_go_together(
    stage: tuple[str, ...], options: tuple[str, ...], message: str, tmp_path: Path
) -> None:
    done = toy.ccr(*stage, *options, workspace=tmp_path)
    assert (done.code, done.out) == (2, "") and message in done.err


def test_parts_meet_in_the_cache(workspace: Chain) -> None:
    done = workspace.ccr(*SMALL, "--executor", "ray", "--no-cache")
    assert (done.code, done.out) == (2, "") and "meet in the cache" in done.err


def test_without_ray(workspace: Chain, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    for call in (SMALL, ("extract", *toy.ENCODER, "--name", "again")):
        done = workspace.ccr(*call, "--executor", "ray")
        assert (done.code, done.out) == (5, "") and "pip install 'ccr-cli[ray]'" in done.err
    assert not list(workspace.root.glob(".ray-*"))
    assert not list((workspace.root / "features" / "toy").glob("again*"))


@pytest.mark.needs("apertium")
def test_what_needs_no_cluster(workspace: Chain, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    assert "to do" in workspace.ccr(*SMALL, "--executor", "ray", "--dry-run").out
    done = workspace.ccr("translate", "--lang", "es", "--executor", "ray")
    assert done.code == 0 and "there is no work to share" in done.err
    made = workspace.find("features")
    done = workspace.ccr("extract", *toy.ENCODER, "--executor", "ray")
    assert done.code == 0 and done.made == made


@pytest.mark.parametrize(("version", "kind"), [("", ArtifactError), ("9.9", UnavailableError)])
def test_a_worker_that_is_none(version: str, kind: type[CcrError], workspace: Chain) -> None:
    """Its file system is another one, or its ccr."""
    seen = (workspace.root / "artifact.json",)
    place = Place(workspace.root, workspace.root, workspace.root, workspace.root, seen, version or ccr_cli.__version__)
    found = do_part(lambda inputs, part, threads: {"captions": 1}, place, WorkPart(), 1)
    assert type(found) is kind and platform.node() in found.message
    values = [version, ccr_cli.__version__] if version else [str(workspace.root)]
    assert all(value in found.message for value in values)


NODES = [
    {"Alive": True, "Resources": {"CPU": 16.0, "GPU": 4.0}},
    {"Alive": True, "Resources": {"CPU": 6.0, "GPU": 2.0}},
    {"Alive": True, "Resources": {"CPU": 7.0}},
    {"Alive": False, "Resources": {"CPU": 64.0, "GPU": 8.0}},
]


@pytest.mark.parametrize(
    ("device", "threads", "wanted"),
    [
        ("cuda", "8", ({"num_cpus": 3, "num_gpus": 1}, 6)),
        ("cpu", "4", ({"num_cpus": 4}, 6)),
        ("cpu", None, ({"num_cpus": 1}, 29)),
        ("cpu", "32", ({"num_cpus": 32}, 0)),
    ],
)
def test_what_a_worker_needs(
    device: str, threads: str | None, wanted: tuple[dict[str, int], int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    if threads is not None:
        monkeypatch.setenv("OMP_NUM_THREADS", threads)
    assert worker_needs(NODES, torch.device(device)) == wanted
