"""A tiny data set, and the whole chain run on it once through the public commands."""

from __future__ import annotations

import gc
import os
import secrets
import shutil
import signal
import sys
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))

import machine
import toy
from standin import Engine
from toy import Chain

from ccr_cli import console

TRAINED = ("m2m100", "nllb", "madlad")
"""Translation models that the slow tests train; the fast ones have Marian alone."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skips tests whose needs the machine does not meet, and counts those that train several models as slow."""
    for item in items:
        if {*TRAINED} & {*getattr(item, "fixturenames", ())}:
            item.add_marker(pytest.mark.slow)
        for reason in {machine.missing(need) for marker in item.iter_markers("needs") for need in marker.args}:
            if reason:
                item.add_marker(pytest.mark.skip(reason=reason))


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, Any, Any]:
    """What is collected stays to the end: no garbage is looked for in it, which would take time again and again."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.fixture(autouse=True, scope="session")
def _one_thread() -> None:
    import torch  # not above: the process that only hands out the tests needs none

    torch.set_num_threads(1)


@pytest.fixture(autouse=True, scope="session")
def _unsynchronised() -> Iterator[None]:
    """Files of tests need not survive a power failure; waiting for the disk would take much of the time."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda handle: None)
        yield


@pytest.fixture(autouse=True, scope="session")
def _one_encoder() -> Iterator[None]:
    """Reading the weights takes longer than 48 small pictures; `toy.ENCODER` is frozen, and read once."""
    from ccr_cli.encoders.efficientnet_lite0 import Config, Encoder

    read, made = Encoder.__init__, dict[Any, dict[str, Any]]()

    def init(self: Encoder, config: Config, *how: Any) -> None:
        known = (type(self), config, *how)
        if known in made:
            vars(self).update(made[known])
            return
        read(self, config, *how)
        if config.image_size == 32:
            made[known] = vars(self).copy()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Encoder, "__init__", init)
        yield


@pytest.fixture(autouse=True, scope="session")
def _interruptible() -> None:
    """What a shell starts in the background ignores SIGINT, and so would every program that is started here."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True)
def _verbosity() -> Iterator[None]:
    """Commands set how much is said; the next test starts as a new process would."""
    before = console.verbosity
    yield
    console.verbosity = before


@pytest.fixture(autouse=True)
def _cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cache of its own for every test: none finds what another translated."""
    monkeypatch.setenv("CCR_CACHE", str(tmp_path_factory.getbasetemp() / "caches" / secrets.token_hex(8)))


@pytest.fixture
def unillustrated(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reports without figures, where these are not what is tested: drawing takes most of the time of a report."""
    from ccr_cli.report.figures.figure import Drawing
    from ccr_cli.report.page import compose

    monkeypatch.setattr(compose, "FIGURES", ())
    monkeypatch.setattr(compose, "quality_measures", lambda loaded: Drawing(None, ""))


@pytest.fixture
def engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Engine:
    """A program that stands in for Apertium."""
    made = Engine(tmp_path / "bin")
    monkeypatch.setenv("PATH", str(tmp_path / "bin"), prepend=os.pathsep)
    return made


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The toy data set in the folder format; read only."""
    return toy.toy().write(tmp_path_factory.mktemp("source") / "toy")


@pytest.fixture(scope="session")
def sources(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Chain:
    """A workspace with dataset, translation, noise and features; read only."""
    root = tmp_path_factory.mktemp("sources")
    toy.ok("data", "import", folder, workspace=root)
    toy.ok("translate", "--lang", "es", "--back", "--with-queries", "--noise", "0.4", workspace=root)
    toy.ok("extract", *toy.ENCODER, workspace=root)
    return Chain(folder, root)


@pytest.fixture(scope="session")
def chain(sources: Chain, tmp_path_factory: pytest.TempPathFactory) -> Chain:
    """A workspace in which every stage has run; read only."""
    root = tmp_path_factory.mktemp("chain") / "workspace"
    shutil.copytree(sources.root, root)
    for method, noise in (("uml", ("--noise", "0.4")), ("infonce", ())):
        epochs = ("--epochs", "6", "--set", "lr=0.02")
        made = toy.ok("train", "--method", method, *noise, *epochs, *toy.SMALL, workspace=root).paths[-1]
        evaluation = toy.ok("evaluate", made, "--device", "cpu", workspace=root).paths[-1]
        toy.ok("diagnose", made, evaluation, "--device", "cpu", workspace=root)
    return Chain(sources.folder, root)


@pytest.fixture
def workspace(sources: Chain, tmp_path: Path) -> Chain:
    """A copy of the workspace of sources for a test to change."""
    root = tmp_path / "workspace"
    shutil.copytree(sources.root, root)
    return Chain(sources.folder, root)


@pytest.fixture
def finished(chain: Chain, tmp_path: Path) -> Chain:
    """A copy of the workspace in which every stage has run, for a test to change."""
    root = tmp_path / "workspace"
    shutil.copytree(chain.root, root)
    return Chain(chain.folder, root)


@pytest.fixture(scope="session")
def marian(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny translation model of each family, trained once; read only."""
    import tinymt

    return tinymt.marian(tmp_path_factory.mktemp("models") / "opus-mt-tiny")


@pytest.fixture(scope="session")
def m2m100(tmp_path_factory: pytest.TempPathFactory) -> Path:
    import tinymt

    return tinymt.m2m100(tmp_path_factory.mktemp("models") / "m2m100-tiny")


@pytest.fixture(scope="session")
def nllb(tmp_path_factory: pytest.TempPathFactory) -> Path:
    import tinymt

    return tinymt.nllb(tmp_path_factory.mktemp("models") / "nllb-tiny")


@pytest.fixture(scope="session")
def madlad(tmp_path_factory: pytest.TempPathFactory) -> Path:
    import tinymt

    return tinymt.t5(tmp_path_factory.mktemp("models") / "madlad-tiny")


@pytest.fixture(
    params=["marian", *(pytest.param(name, marks=pytest.mark.slow) for name in ("m2m100", "nllb", "madlad"))]
)
def translation_model(request: pytest.FixtureRequest) -> Path:
    """Each family in turn."""
    found: Path = request.getfixturevalue(request.param)
    return found


@pytest.fixture
def space(root: Path, tmp_path: Path) -> Path:
    """A copy of a module's workspace `root` for a test to change."""
    shutil.copytree(root, tmp_path / "workspace")
    return tmp_path / "workspace"
