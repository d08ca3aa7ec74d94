"""Building: once, resumable, never half-finished under the final name, one writer at a time."""

from __future__ import annotations

import errno
import json
import os
import re
import resource
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import toy

from ccr_cli.artifacts import base, build
from ccr_cli.artifacts.build import Build, Planned, build_artifact, building
from ccr_cli.artifacts.workspace import Workspace
from ccr_cli.errors import ArtifactError, LockedError, ResourceError, as_user_error

OTHER = """
import sys, time
from pathlib import Path
from ccr_cli.artifacts.build import building
from ccr_cli.artifacts.workspace import Workspace
with building(Workspace(Path(sys.argv[1])), "report", "a", {"x": 1}, force=sys.argv[2:] == ["force"]) as build:
    (build.folder / "half.txt").write_text("half")
    print("inside", flush=True)
    time.sleep(60)
"""


def write(root: Path, text: str = "hello", request: dict[str, Any] | None = None, **options: Any) -> base.Artifact:
    """Builds the artifact `a` with one file."""

    def write_file(site: Build) -> dict[str, int]:
        (site.folder / "text.txt").write_text(text)
        return {}

    return build_artifact(Workspace(root), "report", "a", request or {"x": 1}, write=write_file, **options)


@contextmanager
def other_writer(root: Path, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """Another process in the middle of building `a`."""
    process = toy.python(OTHER, root, *arguments, workspace=root)
    try:
        assert process.stdout is not None and process.stdout.readline() == "inside\n"
        yield process
    finally:
        process.kill()
        process.communicate()


def test_same_request_does_no_work_twice(tmp_path: Path) -> None:
    first = write(tmp_path, "one")
    stamp = (first.path / base.RECORD).stat().st_mtime_ns
    again = write(tmp_path, "two")
    assert again == first
    assert (first.path / "text.txt").read_text() == "one"
    assert (first.path / base.RECORD).stat().st_mtime_ns == stamp
    assert sorted(os.listdir(tmp_path / "reports")) == ["a"]


def test_edited_code_is_not_the_identity_and_not_silent(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    for source, warns in (("one", False), ("one", False), ("two", True), ("", False)):
        with building(Workspace(tmp_path), "report", "a", {"x": 1}, source=source) as site:
            made = site.done or site.finish({})
        assert ("--force" in capfd.readouterr().err) is warns, source
    assert made.about["environment"] == {"source": "one"} and "source" not in made.request
    record = json.loads((made.path / base.RECORD).read_text())
    base.write_json(made.path / base.RECORD, {**record, "versions": {"ccr": "0.0.1"}})
    with building(Workspace(tmp_path), "report", "a", {"x": 1}, source="two") as site:
        assert site.done and not capfd.readouterr().err, "another version may have other code"


def test_a_crash_leaves_nothing_under_the_final_name_and_work_goes_on(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError), building(Workspace(tmp_path), "report", "a", {"x": 1}) as site:
        (site.folder / "first.txt").write_text("kept")
        raise RuntimeError
    assert Workspace(tmp_path).artifacts() == []
    assert not (tmp_path / "reports" / "a").exists()
    with building(Workspace(tmp_path), "report", "a", {"x": 1}) as site:
        assert (site.folder / "first.txt").read_text() == "kept"
        (site.folder / "text.txt").write_text("rest")
        made = site.finish({})
    assert [f.path for f in made.files] == ["first.txt", "text.txt"]
    assert sorted(os.listdir(tmp_path / "reports")) == ["a"]


@pytest.mark.parametrize(
    "error",
    [
        *(OSError(number, "x") for number in (errno.ENOSPC, errno.EROFS, errno.EFBIG)),
        RuntimeError("I/O error: No space (os error 28)"),
    ],
)
def test_errors_of_a_disk_name_the_folder(error: Exception, tmp_path: Path) -> None:
    with pytest.raises(OSError) as raised, building(Workspace(tmp_path), "report", "a", {"x": 1}) as site:
        raise error
    assert raised.value.filename == str(site.folder) and isinstance(as_user_error(raised.value), ResourceError)


def test_stale_temporary_files_do_not_become_part(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError), building(Workspace(tmp_path), "report", "a", {"x": 1}) as site:
        (site.folder / "sub").mkdir()
        (site.folder / "sub" / ".x.npy.123.tmp").write_text("half a shard")
        raise RuntimeError
    assert [f.path for f in write(tmp_path).files] == ["text.txt"]


def test_partial_of_another_request_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError), building(Workspace(tmp_path), "report", "a", {"x": 1}):
        raise RuntimeError
    with pytest.raises(ArtifactError, match=r"\bx: 1\b.*\b2\b"):
        write(tmp_path, request={"x": 2})
    assert write(tmp_path, request={"x": 2}, force=True).request == {"x": 2}


def test_name_taken_by_something_else(tmp_path: Path) -> None:
    parent = write(tmp_path / "w", "parent")
    write(tmp_path, request={"x": 1, "gone": True, "only": {"sha256": "0f0f"}})
    with pytest.raises(ArtifactError) as caught, building(Workspace(tmp_path), "report", "a", {"x": 2}, [parent]):
        pass
    with pytest.raises(ArtifactError, match=r"only: another list.* there") as other:
        write(tmp_path, request={"x": 1, "gone": True, "only": {"sha256": "f0f0"}})
    assert "only: there, not in this request" in caught.value.message
    assert "0f0" not in caught.value.message + other.value.message
    assert "x: 1 there, 2 in this request" in caught.value.message
    assert "gone: True there, None in this request" in caught.value.message
    assert f"parent report: none there, {parent.id[:12]} in this request" in caught.value.message
    assert "--name" in str(caught.value.hint) and "--force" in str(caught.value.hint)
    assert caught.value.exit_code == 4


def test_force_keeps_the_old_one_until_the_new_one_is_complete(tmp_path: Path) -> None:
    old = write(tmp_path, "old")
    with pytest.raises(RuntimeError), building(Workspace(tmp_path), "report", "a", {"x": 2}, force=True) as site:
        (site.folder / "text.txt").write_text("new")
        raise RuntimeError
    assert base.load(old.path) == old and base.verify(old) == []
    new = write(tmp_path, "new", {"x": 2}, force=True)
    assert new.path == old.path and new.id != old.id
    assert (new.path / "text.txt").read_text() == "new"


def test_killed_while_forcing(tmp_path: Path) -> None:
    old = write(tmp_path, "old")
    with other_writer(tmp_path, "force") as process:
        process.send_signal(signal.SIGKILL)
        process.wait()
    assert base.load(old.path) == old and base.verify(old) == []
    assert write(tmp_path, "new", force=True).id != old.id


@pytest.mark.parametrize("exchange", [True, False])
def test_killed_at_any_step_of_an_exchange(exchange: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With RENAME_EXCHANGE an artifact is always there; without it, the next command puts the old one back."""
    swap_in = build._swap_in
    steps = [(os, "rename"), (os, "unlink"), (os, "rmdir"), (build, "_exchange")]
    for number in range(40):
        root = tmp_path / str(number)
        old = write(root, "old")
        left = [number]

        def counted(call: Callable[..., Any], left: list[int] = left) -> Callable[..., Any]:
            def counts(*arguments: Any, **options: Any) -> Any:
                if left[0] == 0:
                    os._exit(9)  # as kill -9: nothing is cleaned up
                left[0] -= 1
                return call(*arguments, **options)

            return counts

        child = os.fork()
        if child == 0:
            if not exchange:
                monkeypatch.setattr(build, "_exchange", lambda one, other: False)

            def watched(partial: Path, final: Path) -> None:
                for module, name in steps:
                    monkeypatch.setattr(module, name, counted(getattr(module, name)))
                swap_in(partial, final)
                os._exit(0)

            monkeypatch.setattr(build, "_swap_in", watched)
            write(root, "new", {"x": 2}, force=True)
        killed = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        assert old.path.exists() or not exchange
        (found,) = Workspace(root).artifacts()
        assert base.verify(found) in ([], ["unexpected: .plan.json"]) and found.request["x"] in (1, 2)
        monkeypatch.setattr(build, "LEASE_SECONDS", 0.05)  # of the lock that the child left behind
        assert (write(root, "new", {"x": 2}, force=True).path / "text.txt").read_text() == "new"
        assert os.listdir(root / "reports") == ["a"]
        monkeypatch.undo()
        if not killed:
            break
    assert 5 < number < 39


def test_stopped_just_before_the_rename(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def dies(partial: Path, final: Path) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(build, "_swap_in", dies)
    with pytest.raises(KeyboardInterrupt):
        write(tmp_path, "complete")
    monkeypatch.undo()
    assert Workspace(tmp_path).artifacts() == []
    assert (write(tmp_path, "not needed").path / "text.txt").read_text() == "complete"


def test_second_writer_is_kept_out_and_a_dead_one_taken_over(tmp_path: Path) -> None:
    with other_writer(tmp_path) as process:
        with pytest.raises(LockedError) as caught:
            write(tmp_path)
        assert str(process.pid) in caught.value.message and socket.gethostname() in caught.value.message
        assert caught.value.exit_code == 7
        assert build.in_work(tmp_path / "reports" / "a")
        process.send_signal(signal.SIGKILL)
        process.wait()
        assert not build.in_work(tmp_path / "reports" / "a"), "the lock has just been refreshed"
        assert "rm -r reports/a.partial" in build.unfinished(Workspace(tmp_path))[0][2]
        started = time.monotonic()
        made = write(tmp_path)
        print(f"taken over after {time.monotonic() - started:.3f} s")
    assert [f.path for f in made.files] == ["half.txt", "text.txt"]


def test_lock_of_a_writer_that_died_on_another_host_is_taken_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(build, "LEASE_SECONDS", 0.5)
    (tmp_path / "reports").mkdir()
    lock = tmp_path / "reports" / "a.lock"
    token, start = "0" * 32, 10**57
    lock.write_text(
        f"filelock/2\npid=4194999\nhost=elsewhere\nmode=lease\ntoken={token}\nduration=0.5\nstart={start}\n"
    )
    with pytest.raises(LockedError, match="pid=4194999 host=elsewhere"):
        write(tmp_path)
    assert build.in_work(tmp_path / "reports" / "a")
    os.utime(lock, (0, 0))
    assert write(tmp_path).has("text.txt")
    assert not lock.exists()


def test_readers_take_no_lock(tmp_path: Path) -> None:
    old = write(tmp_path)
    with other_writer(tmp_path, "force"):
        assert write(tmp_path) == old
        assert Workspace(tmp_path).artifacts() == [old]


def test_dry_run_builds_nothing(tmp_path: Path) -> None:
    with pytest.raises(Planned) as caught, building(Workspace(tmp_path, dry_run=True), "report", "a", {"x": 1}):
        pass
    assert caught.value.state == "to do" and os.listdir(tmp_path) == []
    write(tmp_path)
    with pytest.raises(Planned) as caught, building(Workspace(tmp_path, dry_run=True), "report", "a", {"x": 1}):
        pass
    assert caught.value.state == "done"


def test_moved_workspace(tmp_path: Path) -> None:
    first = Workspace(tmp_path / "first")
    parent = write(first.root, "parent")
    with building(first, "evaluation", "b", {}, [parent]) as site:
        child = site.finish({})
    assert json.loads((child.path / base.RECORD).read_text())["parents"][0]["path"] == "reports/a"
    first.root.rename(tmp_path / "second")
    second = Workspace(tmp_path / "second")
    moved = {a.id: a for a in second.artifacts()}
    assert set(moved) == {parent.id, child.id}
    assert second.parent(moved[child.id], "report").id == parent.id


def test_missing_and_replaced_parent(tmp_path: Path) -> None:
    workspace = Workspace(tmp_path)
    parent = write(tmp_path, "parent")
    with building(workspace, "evaluation", "b", {}, [parent]) as site:
        child = site.finish({})
    new = write(tmp_path, "other", force=True)
    with pytest.raises(ArtifactError, match=f"reports/a .*{parent.id[:12]}.*{new.id[:12]}"):
        workspace.parent(child, "report")
    parent.path.rename(tmp_path / "away")
    with pytest.raises(ArtifactError, match=f"reports/a.*{re.escape(str(parent.path))}"):
        workspace.parent(child, "report")
    with pytest.raises(ArtifactError, match=r"evaluations/b .*\brun\b"):
        workspace.parent(child, "run")


def test_file_size_limit_leaves_no_broken_file(tmp_path: Path) -> None:
    """A full disk, as a limit on the size of files: the write fails in the middle."""
    code = f"""
import resource, signal, sys
from pathlib import Path
sys.path.insert(0, {str(Path(__file__).parent)!r})
from ccr_cli.artifacts import base
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))
try:
    base.write_json(Path(sys.argv[1]) / "x.json", ["long"] * 10000)
except OSError as error:
    print(error.errno)
"""
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, check=True)
    assert int(done.stdout) > 0
    assert os.listdir(tmp_path) == []
    assert resource.getrlimit(resource.RLIMIT_FSIZE)[0] != 4096
