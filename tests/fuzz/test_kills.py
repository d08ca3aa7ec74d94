"""Commands killed at random moments: the next one goes on, and its bytes are those of an undisturbed one."""

from __future__ import annotations

import random
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import toy
from forked import STAGES, Server
from toy import Chain

from ccr_cli.artifacts import base
from ccr_cli.artifacts.workspace import Workspace

SEED = 211
_TRAIN = ("train", "--epochs", "8", *toy.SMALL, "--name", "mine")
CALLS = {
    **STAGES,
    **{f"train {m}": (*_TRAIN, "--method", m) for m in ("decl", "fume", "nrccr", "tcl")},
    "train uml": (*_TRAIN, "--method", "uml", "--noise", "0.4"),
    "sweep": ("train", "--method", "infonce", "--epochs", "4", *toy.SMALL, "--sweep", "seed=7,8"),
    "force": (*STAGES["train"], "--force"),
}
Made = dict[str, dict[str, str]]


class Killed:
    """A workspace in which commands are killed, and what each of them makes undisturbed."""

    def __init__(self, chain: Chain, place: Path) -> None:
        self.root, self.chain = place / "workspace", chain
        shutil.copytree(chain.root, self.root)
        self.server = Server(place, self.root)
        self.there = self._paths()
        self.undisturbed: dict[str, tuple[float, Made]] = {}

    def _paths(self) -> set[Path]:
        """Every file and folder, but of the cache and of what only this machine knows."""
        return {path for path in self.root.rglob("*") if not {".cache", base.LOCAL} & {*path.parts}}

    def words(self, name: str) -> list[str | Path]:
        return [self.chain.folder if word == "FOLDER" else word for word in CALLS[name]]

    def made(self) -> Made:
        """The digests of the new artifacts' files; asserts that nothing else is left of building them."""
        new = self._paths() - self.there
        artifacts = [path for _, path in Workspace(self.root).places() if path in new]
        left = {p for p in new if not any(p == a or a in p.parents or p in a.parents for a in artifacts)}
        assert all(path.suffix == ".lock" for path in left), left  # a lock of a dead process is taken over
        assert all(base.verify(base.load(path)) == [] for path in artifacts)
        return {str(path.relative_to(self.root)): toy.digests(path) for path in artifacts}

    def clear(self) -> None:
        """Removes what was made."""
        for path in sorted(self._paths() - self.there, reverse=True):
            path.unlink() if path.is_file() else path.rmdir()
        shutil.rmtree(self.root / ".cache", ignore_errors=True)

    def whole(self, name: str) -> tuple[float, Made]:
        """How long a command takes, and what it makes."""
        if name not in self.undisturbed:
            self.clear()
            if name == "force":
                self.server.run(self.words("train"), self.root)
            start = time.monotonic()
            code, text = self.server.run(self.words(name), self.root)
            assert code == 0, text
            self.undisturbed[name] = time.monotonic() - start, self.made()
        return self.undisturbed[name]

    def attack(self, name: str, rng: random.Random, kills: int = 1) -> int:
        """Kills a command, lets it go on, and compares; how many kills came before its end."""
        seconds, wanted = self.whole(name)
        self.clear()
        if name == "force":
            self.server.run(self.words("train"), self.root)
        met = 0
        for _ in range(kills):
            running = self.server.start(self.words(name), self.root)
            time.sleep(rng.uniform(0, seconds))
            met += running.kill() < 0
            if name == "force":
                assert toy.digests(self.root / "runs/mine") == wanted["runs/mine"], "neither the old run nor the new"
        code, text = self.server.run(self.words(name), self.root)
        assert code == 0, text
        assert self.made() == wanted
        return met


@pytest.fixture(scope="module")
def killed(chain: Chain, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Killed]:
    one = Killed(chain, tmp_path_factory.mktemp("kills"))
    yield one
    one.server.close()


@pytest.mark.slow
def test_a_few_kills(killed: Killed) -> None:
    rng = random.Random(SEED)
    assert sum(killed.attack(name, rng) for name in ("import", "train", "force")) > 0


@pytest.mark.soak
def test_two_hundred_kills(killed: Killed) -> None:
    rng = random.Random(SEED + 1)
    names, met = list(CALLS), dict.fromkeys(CALLS, 0)
    while sum(met.values()) < 200:
        name = min(names, key=lambda n: met[n])
        met[name] += killed.attack(name, rng, rng.choice((1, 1, 2, 3)))
        print(sum(met.values()), name, flush=True)
    print(met)
