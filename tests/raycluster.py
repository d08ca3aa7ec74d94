"""A Ray cluster of this machine for tests: real nodes, each a raylet of its own, all of whose processes end with it."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

_KEEPER = """
import sys
from ray.cluster_utils import Cluster
cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": int(sys.argv[1]), "include_dashboard": False})
nodes = []
print(cluster.address, flush=True)
for line in sys.stdin:
    if line == "add\\n":
        nodes.append(cluster.add_node(num_cpus=1))
    elif line == "kill\\n":
        cluster.remove_node(nodes.pop(0), allow_graceful=False)
    else:
        break
    print("done", flush=True)
cluster.shutdown()
"""
"""A process of its own keeps the cluster: Ray leaves files open, and warnings are errors here."""


class Cluster:
    """Nodes that come and go; the first one stays.

    Args:
        cpus: Processors that the first node offers.
        folder: Where its files lie.
    """

    def __init__(self, cpus: int, folder: Path) -> None:
        self.folder = folder
        command = [sys.executable, "-c", _KEEPER, str(cpus)]
        self._log = (folder / "keeper.log").open("w")
        self._keeper = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._log, text=True
        )
        self.address = self._said()
        assert ":" in self.address, (folder / "keeper.log").read_text()

    def add(self) -> None:
        """Adds a node of one processor."""
        self._tell("add")
        assert self._said() == "done"

    def kill(self) -> None:
        """Kills the node that was added first, with all of its processes."""
        self._tell("kill")
        assert self._said() == "done"

    def end(self) -> None:
        """Ends all nodes."""
        self._keeper.communicate("end\n", timeout=60)
        self._log.close()

    def workers(self) -> list[int]:
        """The processes that are at a part of ccr's."""
        return [pid for pid, title in titles() if title.startswith("ray::ccr part")]

    def kill_worker(self) -> int:
        """Kills a process that is at a part, as soon as there is one."""
        deadline = time.monotonic() + 100
        while time.monotonic() < deadline:
            for pid in self.workers():
                os.kill(pid, signal.SIGKILL)
                return pid
            time.sleep(0.01)
        raise AssertionError("nobody is at a part")

    def _tell(self, what: str) -> None:
        assert self._keeper.stdin is not None
        self._keeper.stdin.write(f"{what}\n")
        self._keeper.stdin.flush()

    def _said(self) -> str:
        assert self._keeper.stdout is not None
        return self._keeper.stdout.readline().strip()


@contextmanager
def cluster(cpus: int = 2) -> Iterator[Cluster]:
    """A cluster, whose address is in the environment, and which tells nobody of itself."""
    folder = Path(tempfile.mkdtemp(prefix="ccr-ray-", dir="/tmp"))  # the paths of its sockets must be short
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_TMPDIR", str(folder))
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        patch.setenv("OMP_NUM_THREADS", "1")
        made = Cluster(cpus, folder)
        patch.setenv("RAY_ADDRESS", made.address)
        try:
            yield made
        finally:
            made.end()
            left = [title for _, title in titles() if str(folder) in title]
            shutil.rmtree(folder, ignore_errors=True)
            assert left == [], "processes of the cluster are left"


def titles() -> list[tuple[int, str]]:
    """Number and command line of every process that is not dead."""
    found = []
    for place in Path("/proc").glob("[0-9]*"):
        try:
            found.append((int(place.name), (place / "cmdline").read_bytes().replace(b"\0", b" ").decode()))
        except (OSError, UnicodeDecodeError):
            continue
    return found
