"""A rebuild that was stopped goes on; whoever waits for a lock says so; names keep their end."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import pytest
import toy

from ccr_cli.artifacts import base, build
from ccr_cli.artifacts.build import building
from ccr_cli.artifacts.workspace import Workspace, stem
from ccr_cli.errors import ArtifactError, LockedError


def attempt(root: Path, x: int, *, finish: bool, force: bool = True) -> tuple[list[str], base.Artifact | None]:
    """Builds the report `a`, or is stopped in the middle; returns what lay there before, and the artifact."""
    found: list[str] = []
    try:
        with building(Workspace(root), "report", "a", {"x": x}, force=force) as site:
            found = sorted(p.name for p in site.folder.iterdir() if p.name != build.PLAN)
            (site.folder / f"{len(found)}.txt").write_text("work")
            if not finish:
                raise KeyboardInterrupt
            return found, site.finish({})
    except KeyboardInterrupt:
        return found, None


def test_a_stopped_rebuild_goes_on(tmp_path: Path) -> None:
    _, old = attempt(tmp_path, 1, finish=True)
    assert attempt(tmp_path, 1, finish=False)[0] == []
    assert attempt(tmp_path, 1, finish=False)[0] == ["0.txt"]
    assert old is not None and base.verify(base.load(old.path)) == []
    found, new = attempt(tmp_path, 1, finish=True)
    assert found == ["0.txt", "1.txt"] and new is not None
    assert [f.path for f in new.files] == ["0.txt", "1.txt", "2.txt"]
    assert sorted(os.listdir(tmp_path / "reports")) == ["a"] and not (new.path / build.PLAN).exists()
    assert attempt(tmp_path, 1, finish=True)[0] == [], "the next rebuild starts anew"


def test_what_a_rebuild_must_not_take_over(tmp_path: Path) -> None:
    attempt(tmp_path, 1, finish=False, force=False)
    assert attempt(tmp_path, 1, finish=False)[0] == [], "begun without --force, so it may be old"
    assert attempt(tmp_path, 2, finish=False)[0] == [], "of other options"
    assert attempt(tmp_path, 2, finish=False, force=False)[0] == ["0.txt"]
    with pytest.raises(ArtifactError, match=r"\bx: 2\b.*\b1\b"):
        attempt(tmp_path, 1, finish=False, force=False)


def test_a_rebuild_stopped_just_before_the_rename(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    attempt(tmp_path, 1, finish=True)

    def dies(partial: Path, final: Path) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(build, "_swap_in", dies)
    assert attempt(tmp_path, 2, finish=True) == ([], None)
    monkeypatch.undo()
    with building(Workspace(tmp_path), "report", "a", {"x": 2}, force=True) as site:
        assert site.done is not None and site.done.request == {"x": 2}
    assert sorted(p.name for p in (tmp_path / "reports" / "a").iterdir()) == ["0.txt", base.RECORD]


def test_waiting_for_a_lock_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(build, "LEASE_SECONDS", 0.5)
    (tmp_path / "reports").mkdir()
    lock = tmp_path / "reports" / "a.lock"
    fields = ["filelock/2", "pid=1", "host=elsewhere", "mode=lease", f"token={'0' * 32}", "duration=0.5"]
    lock.write_text("\n".join([*fields, f"start={10**57}", ""]))
    with pytest.raises(LockedError):
        attempt(tmp_path, 1, finish=True)
    assert capsys.readouterr().err == "", "nobody waits for a lock that is refreshed"
    os.utime(lock, (0, 0))
    assert attempt(tmp_path, 1, finish=True)[1] is not None
    assert f"{lock} (pid=1 host=elsewhere) is silent; waiting up to 1 s" in capsys.readouterr().err


@pytest.mark.parametrize("root", ["/proc/nothing", "/dev/null/nothing", "/tmp/" + "n" * 300], ids=lambda r: r[:10])
def test_a_workspace_that_cannot_be(root: str) -> None:
    done = toy.ccr("data", "import", "twemoji", workspace=Path(root))
    assert (done.code, done.out) == (4, "")
    assert root[:40] in done.err and "--workspace" in done.err


@pytest.mark.parametrize("end", ["-test", "-val-report", "-zero-shot"])
def test_a_long_name_keeps_its_end(end: str) -> None:
    options: tuple[dict[str, Any], dict[str, Any]] = ({"x": 1}, {})
    run = "run-" * 28
    made = {stem(f"{run}{number}{end}", *options) for number in (1, 2)}
    assert len(made) == 2, "names that differ in what was cut stay different"
    for name in made:
        assert re.fullmatch(rf"run-.*{end}-[0-9a-f]{{6}}", name) and len(name) <= 120
    assert stem(f"{'r' * 100}{end}"[-110:], {}, {}) == f"{'r' * 100}{end}"[-110:]
