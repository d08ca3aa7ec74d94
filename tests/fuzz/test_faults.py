"""Every stage with every fault of a disk, and with little memory: exit 6, and the same bytes when it goes on.

`make soak` prints the table of docs/reliability.md.
"""

from __future__ import annotations

import errno
import os
import random
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import toy
from forked import LEASE, MARK, STAGES, Server
from toy import Chain

from ccr_cli.artifacts.workspace import Workspace

SEED, TRIALS = 2100, 3
FAULTS: dict[str, str | int] = {
    "disk full": "room", "no inodes": "inodes", "quota": errno.EDQUOT, "EIO, write": errno.EIO, "EIO, read": -errno.EIO,
    "read-only": errno.EROFS, "64 descriptors": "descriptors", "2 GB of memory": "memory",
}  # fmt: skip
"""How each is made: a small tmpfs, a limit, or an error number that calls of the C library return (negative: reads)."""
CALLS = 200
"""A fault begins at a random one of so many calls."""


class Faulty:
    """A workspace in a small file system, and commands that meet a fault there."""

    def __init__(self, chain: Chain, place: Path) -> None:
        self.place, self.folder, self.disk = place, chain.folder, place / "disk"
        self.disk.mkdir()
        mount = ["mount", "-t", "tmpfs", "-o", "size=64m", "tmpfs", str(self.disk)]
        self.mounted = subprocess.run(mount, capture_output=True).returncode == 0
        self.root = self.disk / "workspace"
        shutil.copytree(chain.root, self.root)
        self.there = set(self.root.rglob("*"))
        library = place / "fault.so"
        source = Path(__file__).parents[1] / "fault.c"
        compiler = ["gcc", "-shared", "-fPIC", "-o", str(library), str(source), "-ldl"]
        if shutil.which("gcc") is None or subprocess.run(compiler, capture_output=True).returncode:
            pytest.skip("gcc, which compiles the injected faults, is missing")
        self.server = Server(place, self.root, LD_PRELOAD=str(library))
        self.undisturbed: dict[str, dict[str, dict[str, str]]] = {}

    def close(self) -> None:
        self.server.close()
        if self.mounted:
            subprocess.run(["umount", "-l", self.disk], check=True)

    def clear(self) -> None:
        """Removes what was made."""
        for path in sorted(self.root.rglob("*"), reverse=True):
            if path not in self.there:
                path.unlink() if path.is_file() else path.rmdir()

    def made(self) -> dict[str, dict[str, str]]:
        """The digests of the files of new artifacts."""
        places = [path for _, path in Workspace(self.root).places() if path not in self.there]
        return {str(path.relative_to(self.root)): toy.digests(path) for path in places}

    def run(self, stage: str, **limits: Any) -> tuple[int, str]:
        words = [self.folder if word == "FOLDER" else word for word in STAGES[stage]]
        return self.server.run(words, self.root, **limits)

    def whole(self, stage: str) -> dict[str, dict[str, str]]:
        """What a command makes undisturbed."""
        if stage not in self.undisturbed:
            self.clear()
            code, text = self.run(stage)
            assert code == 0, text
            self.undisturbed[stage] = self.made()
        return self.undisturbed[stage]

    def attack(self, stage: str, fault: str, rng: random.Random) -> str:
        """Runs a command that meets a fault, then the same without it; the first exit code, and what broke."""
        wanted, how = self.whole(stage), FAULTS[fault]
        self.clear()
        limits: dict[str, Any] = {}
        if how in ("room", "inodes"):
            if not self.mounted:
                return "not mounted"
            self.fill(how == "room", rng)
        elif isinstance(how, int):
            limits["fault"] = (abs(how), int(CALLS ** rng.random()) - 1, int(how < 0), str(self.root))
        else:
            limits[how] = 64 if how == "descriptors" else 2 << 30
        code, text = self.run(stage, **limits)
        if how == "inodes":
            self.limit(10**6)
        (self.disk / "filler").unlink(missing_ok=True)
        named = str(self.disk) in text.partition("error: ")[2] or how == "memory" or how in (errno.EIO, -errno.EIO)
        broken = code not in (0, 6) or MARK.decode() in text or (code == 6 and not named)
        if broken:
            print(f"{stage}, {fault}: exit {code}\n{text[-3000:]}", flush=True)
        if any(self.root.rglob("*.lock")):  # of a process that could not write or remove it
            time.sleep(2 * LEASE)
        again, said = self.run(stage)
        if again != 0 or self.made() != wanted or toy.ccr("verify", workspace=self.root).code:
            print(f"{stage}, {fault}: going on: exit {again}\n{said[-2000:]}\n{self.made()}", flush=True)
            return "lost"
        return f"**{code}**" if broken else str(code)

    def fill(self, room: bool, rng: random.Random) -> None:
        """Leaves a little room, or a few files more, on the file system."""
        if room:
            state = os.statvfs(self.disk)
            left = int(4096 * 60 ** rng.random())
            with (self.disk / "filler").open("wb") as handle:
                handle.write(bytes(state.f_bavail * state.f_frsize - left))
            return
        left = rng.randrange(0, 12)
        state = os.statvfs(self.disk)
        self.limit(state.f_files - state.f_ffree + left)

    def limit(self, inodes: int) -> None:
        """Allows so many files on the file system."""
        subprocess.run(["mount", "-o", f"remount,size=64m,nr_inodes={inodes}", self.disk], check=True)


@pytest.fixture(scope="module")
def faulty(chain: Chain, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Faulty]:
    one = Faulty(chain, tmp_path_factory.mktemp("faults"))
    yield one
    one.close()


@pytest.mark.slow
@pytest.mark.parametrize("fault", ["quota", "EIO, read", "64 descriptors"])
def test_a_fault(fault: str, faulty: Faulty) -> None:
    assert faulty.attack("extract", fault, random.Random(SEED)) in ("0", "6")


def table(cells: dict[str, list[str]]) -> list[str]:
    """The lines of the table of the page."""
    rows = [["stage", *FAULTS], ["---"] * (len(FAULTS) + 1), *([stage, *row] for stage, row in cells.items())]
    return ["|" + "|".join(row) + "|" for row in rows]


def test_the_page_has_every_stage_and_every_fault() -> None:
    page = (Path(__file__).parents[2] / "docs/reliability.md").read_text(encoding="utf-8").splitlines()
    start = page.index(table({})[0])
    cells = {row.split("|")[1]: row.split("|")[2:-1] for row in page[start + 2 : start + 2 + len(STAGES)]}
    assert page[start : start + 3 + len(STAGES)] == [*table(cells), ""] and list(cells) == list(STAGES)
    assert {outcome for row in cells.values() for cell in row for outcome in cell.split(", ")} == {"0", "6"}


@pytest.mark.soak
def test_every_stage_with_every_fault(faulty: Faulty) -> None:
    rng, cells = random.Random(SEED + 1), {}
    for stage in STAGES:
        outcomes = [sorted({faulty.attack(stage, fault, rng) for _ in range(TRIALS)}) for fault in FAULTS]
        cells[stage] = [", ".join(found) for found in outcomes]
        print(table(cells)[-1], flush=True)
    print(*table(cells), sep="\n")
    assert {outcome for row in cells.values() for cell in row for outcome in cell.split(", ")} <= {"0", "6"}
