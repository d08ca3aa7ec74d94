"""What the pages show is true: commands and their options exist, links lead somewhere, examples work."""

from __future__ import annotations

import dataclasses
import inspect
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import toy
import typer
from PIL import Image

import ccr_cli
from ccr_cli import registry
from ccr_cli.artifacts import dataset
from ccr_cli.cli import app
from ccr_cli.data import mismatch
from ccr_cli.data.formats import formats
from ccr_cli.stages.data.options import ImportOptions

CHECKOUT = Path(__file__).resolve().parents[1]
PAGES = sorted([*CHECKOUT.glob("*.md"), *(CHECKOUT / "docs").rglob("*.md")])
ROOT: Any = typer.main.get_command(app)
PLUGINS = {"--method": "methods", "--judge": "judges", "--encoder": "encoders", "--engine": "translators"}
SET_GROUPS = {"train": "methods", "extract": "encoders", "translate": "translators"}
_FENCE = re.compile(r"^```([^\n]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")


def blocks(page: Path) -> Iterator[tuple[str, str]]:
    """Info string and content of every fenced block of a page."""
    for match in _FENCE.finditer(page.read_text(encoding="utf-8")):
        yield match[1].strip(), match[2]


def calls(script: str) -> Iterator[list[str]]:
    """Arguments of every `ccr` in a block of shell commands, each side of a pipe for itself."""
    for line in script.replace("\\\n", " ").splitlines():
        if not re.match(r"\s*(\$ )?ccr\b", line):
            continue
        lexer = shlex.shlex(line, posix=True, punctuation_chars="|&;<>()")
        lexer.whitespace_split = True
        words: list[str] = []
        for word in [*lexer, ";"]:
            if word in ("|", "&&", "||", ";", "&", ">", "<", ")"):
                if "ccr" in words[:2]:
                    yield words[words.index("ccr") + 1 :]
                words = []
            else:
                words.append(word)


def documented() -> dict[str, list[list[str]]]:
    """Every call of ccr on a page, and in the epilog of a command, by where it stands."""
    found: dict[str, list[list[str]]] = {}
    for page in PAGES:
        scripts = [text for info, text in blocks(page) if info.split(" ")[0] in ("", "sh", "bash", "console")]
        found[page.relative_to(CHECKOUT).as_posix()] = [call for script in scripts for call in calls(script)]
    for words, command in commands():
        found[f"ccr {' '.join(words)} --help"] = list(calls(command.epilog or ""))
    return {where: shown for where, shown in found.items() if shown}


def commands(group: Any = ROOT, above: tuple[str, ...] = ()) -> list[tuple[tuple[str, ...], Any]]:
    """Every command that does something, with the words that call it."""
    found: list[tuple[tuple[str, ...], Any]] = []
    for name, command in group.commands.items():
        inside = hasattr(command, "commands")
        found += commands(command, (*above, name)) if inside else [((*above, name), command)] * (not command.hidden)
    return found


@pytest.mark.parametrize(("words", "command"), commands(), ids=[" ".join(words) for words, _ in commands()])
def test_every_command_has_help_with_examples(words: tuple[str, ...], command: Any) -> None:
    assert command.help, f"ccr {' '.join(words)} says nothing about itself"
    epilog = str(command.epilog or "")
    assert epilog.startswith("Examples:"), f"ccr {' '.join(words)} shows no examples"
    assert any(call[: len(words)] == list(words) for call in calls(epilog))
    for parameter in command.params:
        silent = getattr(parameter, "hidden", False) or parameter.name == "help"
        assert silent or parameter.help, f"ccr {' '.join(words)}: {parameter.opts[-1]} has no help"


@pytest.mark.parametrize("shown", documented().values(), ids=documented())
def test_commands_shown_exist_with_their_options(shown: list[list[str]]) -> None:
    for call in shown:
        try:
            check_call(call)
        except Exception as error:
            error.add_note(f"ccr {' '.join(call)}")
            raise


def check_call(call: list[str]) -> None:
    """A command, and its options with the plug-ins that they name, exist."""
    command, rest = ROOT, list(call)
    words: list[str] = []
    while hasattr(command, "commands"):
        if not rest or rest[0].startswith("-"):
            assert set(rest) <= {"--help", "-h", "--version"}, rest
            return
        assert rest[0] in command.commands, f"there is no ccr {' '.join([*words, rest[0]])}"
        command = command.commands[rest[0]]
        words.append(rest.pop(0))
    if {"--help", "-h"} & set(rest):
        return
    rest = [re.sub(r"^[A-Z]+$", "1", word) for word in rest]  # --searches N
    with command.make_context(" ".join(words), rest) as context:
        given = context.params
    for option, group in PLUGINS.items():
        name = given.get(option.removeprefix("--"))
        for each in name if isinstance(name, list) else [name]:
            assert each in (None, "auto", "1", *registry.names(group)), f"{option} {each}"
    check_set(words[0], given)


def check_set(command: str, given: dict[str, Any]) -> None:
    """Keys of `--set` belong to the plug-in named, or to one of its group; presets are the method's."""
    group = SET_GROUPS.get(command)
    if group is None:
        return
    named = given.get(group[:-1]) or next(iter(given.get("engine") or []), None)
    modules = [registry.load(group, name) for name in registry.names(group) if named in (None, "auto", "1", name)]
    known = {field.name for module in modules for field in dataclasses.fields(module.Config)}
    assert {item.partition("=")[0].replace("-", "_") for item in given.get("options") or []} <= known
    preset = given.get("preset")
    assert preset is None or any(preset in module.Method.PRESETS for module in modules)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(CHECKOUT).as_posix())
def test_links_lead_somewhere(page: Path) -> None:
    text = _FENCE.sub("", page.read_text(encoding="utf-8"))
    for link in _LINK.findall(text):
        if not re.match(r"[a-z]+:", link):
            path, _, anchor = link.partition("#")
            target = (page.parent / path).resolve() if path else page
            assert target.exists(), f"{page.name} links to {link}"
            assert not anchor or anchor in anchors(target), f"{page.name} links to {link}"


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as code hosts make them."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}


def test_every_page_is_in_the_index() -> None:
    index = CHECKOUT / "docs" / "index.md"
    linked = {(index.parent / link.partition("#")[0]).resolve() for link in _LINK.findall(index.read_text())}
    assert {page for page in PAGES if page.is_relative_to(index.parent)} - linked == {index}


def test_every_plugin_is_on_its_page() -> None:
    pages = {
        "methods": (CHECKOUT / "docs" / "train.md").read_text(),
        "judges": (CHECKOUT / "docs" / "judges.md").read_text(),
        "encoders": (CHECKOUT / "docs" / "extract.md").read_text(),
        "translators": (CHECKOUT / "docs" / "translate.md").read_text(),
    }
    readme = (CHECKOUT / "README.md").read_text()
    for group, page in pages.items():
        for text in (page, readme):
            assert not [name for name in registry.names(group) if f"`{name}`" not in text], group
    written = {path.stem for path in (CHECKOUT / "docs" / "methods").glob("*.md")}
    assert set(registry.names("methods")) <= written


def table(page: Path, heading: str) -> dict[str, str]:
    """The rows of the first table under a heading, by each of the names in their first cell."""
    text = page.read_text(encoding="utf-8").split(f"\n## {heading}\n")[1].split("\n## ")[0]
    rows = [re.split(r"\s*(?<!\\)\|\s*", line.strip("| ")) for line in text.splitlines() if line.startswith("|")]
    return {name: " | ".join(row[1:]) for row in rows for name in re.findall(r"`([^`]+)`", row[0])}


def test_every_file_format_is_in_the_help_and_on_its_page() -> None:
    told = ImportOptions.__dataclass_fields__["form"].metadata["shown"]["help"]
    page = (CHECKOUT / "docs" / "data.md").read_text()
    assert not set(formats()) - set(re.findall(r"[\w-]+", told))
    assert not [name for name in formats() if f"`{name}`" not in page]


def own_options(config: Any) -> set[str]:
    """The fields that a class adds."""
    return set(inspect.get_annotations(config))


def stale_defaults(config: Any, rows: Mapping[str, str]) -> list[str]:
    """The options that a class adds whose default is not among the cells of their row."""

    def forms(value: Any) -> set[str]:
        number = type(value) in (float, int)
        return {f"{value:g}", f"{value:.0e}".replace("e-0", "e-")} if number else {str(value), str(value).lower()}

    defaults = {name: forms(getattr(config(), name)) for name in own_options(config)}
    return [name for name, shown in defaults.items() if not any(form in rows[name] for form in shown)]


def test_the_page_of_training_has_every_method_and_common_option() -> None:
    page = CHECKOUT / "docs" / "train.md"
    assert set(table(page, "Methods")) == set(registry.names("methods"))
    base = registry.load("methods", "basic").Config.__mro__[1]
    common = table(page, "Options of every method")
    assert set(common) == own_options(base)
    assert not stale_defaults(base, common)


@pytest.mark.parametrize("name", registry.names("methods"))
def test_the_page_of_a_method_has_its_options(name: str) -> None:
    config = registry.load("methods", name).Config
    shown = table(CHECKOUT / "docs" / "methods" / f"{name}.md", "Options")
    assert own_options(config) <= set(shown)
    assert not stale_defaults(config, shown)


def test_the_page_of_judges_says_whose_default_each_is() -> None:
    rows = table(CHECKOUT / "docs" / "judges.md", "Which one to use")
    assert set(rows) == set(registry.names("judges"))
    methods = registry.names("methods")
    for judge, cells in rows.items():
        whose = {name for name in methods if registry.load("methods", name).Config().judge == judge}
        said = re.findall(r"`([^`]+)`", cells.partition("The default of")[2])
        assert {name for name in said if name in methods} == whose, judge


def test_the_example_of_the_dataset_format_can_be_imported(tmp_path: Path) -> None:
    folder = tmp_path / "fruit"
    files = {info.split(" ")[1]: text for info, text in blocks(CHECKOUT / "docs/dataset-format.md") if " " in info}
    assert set(files) == {"manifest.toml", "items.tsv", "captions.tsv", "translations/by-hand-en-es.tsv"}
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")
    (folder / "media").mkdir()
    for line in files["items.tsv"].splitlines()[1:]:
        Image.new("RGB", (8, 8), "red").save(folder / "media" / line.split("\t")[3])

    assert toy.ccr("data", "verify", folder).code == 0
    made = toy.ok("data", "import", folder, workspace=tmp_path / "workspace").made
    read = dataset.read(made)
    assert read.languages() == ["en", "es"]
    assert set(read.items["split"]) == {"train", "val", "test"}
    toy.ok("translate", made.path, "--lang", "es", workspace=tmp_path / "workspace")


def python_example(path: str) -> str:
    """The Python block of CONTRIBUTING.md for a file."""
    (example,) = [text for info, text in blocks(CHECKOUT / "CONTRIBUTING.md") if info == f"python {path}"]
    return example


def test_the_example_of_a_noise_style_draws_a_mismatch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mismatch, "STYLES", dict(mismatch.STYLES))
    exec(python_example("ccr_cli/data/mismatch.py"), vars(mismatch) | {"__annotations__": {}})
    assert "rotate" in mismatch.STYLES
    captions = pd.DataFrame(
        {"caption_id": list("abcd"), "item_id": list("1234"), "text": ["red", "green", "blue", "grey"]}
    )
    drawn = mismatch.mismatch(captions, 0.5, "rotate", "translation", seed=0)
    assert drawn["vt_wrong"].tolist() == [True, True, False, False]
    assert drawn["given_translation_of"].tolist() == ["b", "a", "c", "d"]


@pytest.mark.slow
def test_the_example_of_a_method_can_be_trained(sources: Any, tmp_path: Path) -> None:
    name = "ccr_cli/methods/sigmoid.py"
    example = python_example(name)
    package = tmp_path / "ccr_cli"
    shutil.copytree(Path(ccr_cli.__file__).parent, package, ignore=shutil.ignore_patterns("__pycache__"))
    assert not (tmp_path / name).exists()
    (tmp_path / name).write_text(example, encoding="utf-8")
    workspace = tmp_path / "workspace"
    shutil.copytree(sources.root, workspace)

    def run(*arguments: str) -> str:
        command = [sys.executable, "-m", "ccr_cli", *arguments]
        done = subprocess.run(
            command,
            cwd=tmp_path,
            env=toy.environment(workspace, PYTHONPATH=str(tmp_path)),
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    method = Path(name).stem
    trained = run("train", "--method", method, "--epochs", "1", *toy.SMALL).splitlines()[-1]
    assert f"-{method}-" in Path(trained).name
    history = (Path(trained) / "history.jsonl").read_text(encoding="utf-8")
    assert "sigmoid_vt" in history
    assert method in run("train", "--help")
