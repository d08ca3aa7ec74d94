"""Text of data sets on its way to the terminal, and the help of every command."""

from __future__ import annotations

import json
import os
import pty
import re
import sys
from pathlib import Path

import pytest
import toy
import typer
from toy import Chain

from ccr_cli.cli import app
from ccr_cli.commands import common
from ccr_cli.report.page import compose

ODD = "[bold]red[/bold] \x1b]0;title\x07\x1b[31mcircle <b> {0} %s \x9b2J \u202egnp\u2066 \x00\x7f fin"
FORBIDDEN = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
CPU = ("--device", "cpu")


@pytest.fixture(scope="module")
def odd(tmp_path_factory: pytest.TempPathFactory) -> Chain:
    """A data set all of whose captions, groups and caption sets are odd, through every stage."""
    place = tmp_path_factory.mktemp("odd")
    folder = toy.toy()
    quoted = json.dumps(ODD).replace("\x7f", "\\u007f")
    folder.extra += f"\ntitle = {quoted}\nlicence = {quoted}\n"
    for item in folder.items:
        item[5] = f"{item[0]} {ODD}"
    for caption in folder.captions:
        caption[4], caption[5] = f"{caption[4]} {ODD}", ODD
    tables = folder.tables.items()
    folder.tables = {pair: {f"{a} {ODD}": f"{b} {ODD}" for a, b in table.items()} for pair, table in tables}
    root = place / "workspace"
    toy.ok("data", "import", folder.write(place / "toy"), workspace=root)
    toy.ok("translate", "--lang", "es", "--back", "--with-queries", workspace=root)
    toy.ok("extract", *toy.ENCODER, workspace=root)
    toy.ok("train", "--epochs", "1", *toy.SMALL, workspace=root)
    return Chain(place / "toy", root)


CALLS = [
    ("search", ODD.replace("\x00", "")),
    ("search", "rojo", "--json"),
    ("data", "describe", "toy"),
    pytest.param(("data", "list"), marks=pytest.mark.slow),
    ("data", "list", "--json"),
    ("evaluate",),
    pytest.param(("evaluate", "--json"), marks=pytest.mark.slow),
    ("evaluate", "--caption-set", ODD.replace("\x00", ""), "--name", ODD.replace("\x00", "")),
    ("diagnose",),
    pytest.param(("report", "--searches", "2", "--title", ODD.replace("\x00", "")), marks=pytest.mark.slow),
    ("verify",),
    ("train", "--set", ODD.replace("\x00", "")),
    pytest.param(("translate", "--lang", ODD.replace("\x00", "")), marks=pytest.mark.slow),
    ("translate", "--lang", "es", "--engine", "recorded", "--set", f"engine={ODD}".replace("\x00", "")),
    pytest.param(("extract", "--encoder", ODD.replace("\x00", "")), marks=pytest.mark.slow),
    ("extract", ODD.replace("\x00", "").replace("/", "")),
    ("train", "--dry-run", "--name", ODD.replace("\x00", "")),
]


@pytest.mark.parametrize("call", CALLS, ids=lambda call: " ".join(call[:2]).encode("ascii", "ignore").decode()[:20])
def test_nothing_that_steers_a_terminal_is_printed(
    call: tuple[str, ...], odd: Chain, monkeypatch: pytest.MonkeyPatch
) -> None:
    if call[0] == "report":  # of its figures only the one with these texts
        only = [kind for kind in compose.FIGURES if kind.name == "searches"]
        monkeypatch.setattr(compose, "FIGURES", only)
    more = CPU if call[0] in ("search", "evaluate", "diagnose", "report") else ()
    done = odd.ccr(*call, *more)
    assert done.out or done.err
    assert not FORBIDDEN.search(done.out), done.out
    assert not FORBIDDEN.search(done.err), done.err


def test_text_is_shown_as_it_is_otherwise(odd: Chain) -> None:
    """Markup stays as text, and JSON still holds every character."""
    done = odd.ccr("search", "rojo", *CPU)
    assert "[bold]red[/bold]" in done.out and "\ufffd[31mcircle <b> {0} %s" in done.out
    hits = json.loads(odd.ccr("search", "rojo", "--json", *CPU).out)["hits"]
    assert all(hit["caption"].endswith(f" {ODD}") for hit in hits)


def on_terminal(workspace: Path, *words: str) -> str:
    """Runs a command in a process whose three streams are a terminal without colours."""
    pid, screen = pty.fork()
    if pid == 0:  # pragma: no cover - the new process
        os.environ.update(toy.environment(workspace), TERM="dumb", COLUMNS="200", NO_COLOR="1")
        os.execv(sys.executable, [sys.executable, "-m", "ccr_cli", *words])
    said = b""
    while True:
        try:
            part = os.read(screen, 65536)
        except OSError:
            break
        if not part:
            break
        said += part
    os.close(screen)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0, said.decode(errors="replace")
    return said.decode()


@pytest.mark.slow
@pytest.mark.parametrize(
    "words", [("data", "describe", "toy"), ("search", "[/x] rojo"), ("evaluate", "-v")], ids=lambda w: w[0]
)
def test_a_table_on_a_terminal(words: tuple[str, ...], odd: Chain) -> None:
    said = on_terminal(odd.root, *words)
    assert not FORBIDDEN.search(said), said
    assert "─" in said or "━" in said, "a table is drawn"
    assert "[bold]red[/bold]" in said


def test_names_and_paths_are_not_broken() -> None:
    columns, rows = ("name", "title", "path"), [("a" * 22, "two words", "/p" * 15), ("b", "", "")]
    assert [sorted(common._unbroken(columns, rows, width)) for width in (72, 71, 52, 51)] == [[0, 2], [0], [0], []]
    assert common._unbroken(("name",), [("商" * 10,)], 23) == set()


def commands() -> list[tuple[str, ...]]:
    """Every command and group, as the words that call it."""
    group = typer.main.get_command(app)
    found: list[tuple[str, ...]] = [()]
    for name, command in group.commands.items():  # type: ignore[attr-defined]
        found.append((name,))
        found += [(name, inner) for inner in getattr(command, "commands", {})]
    return found


@pytest.mark.parametrize("words", commands(), ids=" ".join)
def test_help(words: tuple[str, ...]) -> None:
    long, short = toy.ccr(*words, "--help"), toy.ccr(*words, "-h")
    assert (long.code, long.err) == (0, "") and long.out == short.out
    assert " ".join(("ccr" if not words else words[-1], "")).strip() in long.out
    assert "Options" in long.out and "--help" in long.out


def test_options_that_do_not_exist() -> None:
    for words in (("nothing",), ("train", "--nothing"), ("train", "--epochs", "many"), ("data", "nothing")):
        done = toy.ccr(*words)
        assert (done.code, done.out) == (2, "") and done.err
