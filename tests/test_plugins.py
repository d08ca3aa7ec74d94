"""Plug-ins of installed distributions: found by entry points, listed with what is broken, and part of requests."""

from __future__ import annotations

import importlib
import importlib.metadata
import json
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
import toy

from ccr_cli import registry
from ccr_cli.artifacts import base, features
from ccr_cli.artifacts.workspace import Workspace
from ccr_cli.data import mismatch
from ccr_cli.errors import ArtifactError, CcrError
from ccr_cli.stages.shared.picture_encoder import encoder_of
from ccr_cli.stages.train.sources import make_noise
from ccr_cli.stages.translate.options import MismatchOptions

EXAMPLE = Path(__file__).resolve().parents[1] / "examples" / "plugin"
METHOD = '''"""Mine: InfoNCE by another name."""
from ccr_cli.methods.infonce import Config, Method
'''
ROTATE = '''"""Gives each of the first captions that many captions later."""
import numpy as np

def givers(captions, ratio, rng):
    rows = np.arange(len(captions.items))
    moved = int(ratio * len(rows))
    rows[:moved] = np.roll(rows[:moved], 1)
    return rows
'''
ENGINE = '''"""Upper case."""
from dataclasses import dataclass
from ccr_cli.translators.base import Translation

@dataclass(frozen=True)
class Config:
    """Options."""

class Translator:
    def __init__(self, source, target, config, *, dataset_dir, device):
        pass

    def describe(self):
        return {"engine": "upper", "model": "letters"}

    def identity(self):
        return self.describe()

    def translate(self, texts, known=frozenset()):
        for number, text in enumerate(texts):
            yield number, Translation(text.upper())
'''
ENCODER = '''"""The mean colour."""
from dataclasses import dataclass
import torch
from ccr_cli.encoders.base import PictureConfig

@dataclass(frozen=True)
class Config(PictureConfig):
    """Options."""

class Encoder:
    dim = 3

    def __init__(self, config, device, dtype):
        self.sampling = config.sampling

    def preprocess(self, image):
        return torch.tensor(image.convert("RGB").resize((1, 1)).getpixel((0, 0)), dtype=torch.float32)

    def encode(self, pixels):
        return pixels

    def describe(self):
        return {"encoder": "colour", "model": "mean", "dim": 3}
'''


class SitePackages:
    """A folder on the path, into which a test installs distributions."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def install(
        self, name: str, points: Mapping[str, str], files: Mapping[str, str], version: str = "1.0", raw: str = ""
    ) -> None:
        """Writes a distribution: its entry points by `GROUP:NAME`, and its files."""
        about = self.folder / f"{name.replace('-', '_')}-{version}.dist-info"
        about.mkdir(parents=True)
        (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
        by_group: dict[str, list[str]] = {}
        for point, value in points.items():
            group, _, point_name = point.partition(":")
            by_group.setdefault(group, []).append(f"{point_name} = {value}")
        lines = [line for group, own in by_group.items() for line in (f"[ccr.{group}]", *own)]
        (about / "entry_points.txt").write_text("\n".join([*lines, raw]))
        self.write(files)

    def write(self, files: Mapping[str, str]) -> None:
        """Writes files; ccr sees them as a new process would."""
        for path, text in files.items():
            (self.folder / path).parent.mkdir(parents=True, exist_ok=True)
            (self.folder / path).write_text(text)
        self.forget()

    def forget(self) -> None:
        """Forgets what was imported from here, and which distributions there are."""
        toy.built.cache_clear()
        registry.installed.cache_clear()
        registry.summaries.cache_clear()
        importlib.invalidate_caches()
        for name, module in list(sys.modules.items()):
            if str(getattr(module, "__file__", None)).startswith(str(self.folder)):
                del sys.modules[name]


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[SitePackages]:
    packages = SitePackages(tmp_path / "site")
    monkeypatch.syspath_prepend(str(packages.folder))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)  # an edit within a second is seen
    yield packages
    packages.forget()


def rows(outcome: toy.Outcome) -> dict[tuple[str, str], dict[str, str]]:
    """The rows of `ccr plugins --json`, by kind and name."""
    assert outcome.code == 0, outcome.err
    return {(row["kind"], row["name"]): row for row in json.loads(outcome.out)["plugins"]}


def test_a_module_of_a_distribution_is_a_plugin(site: SitePackages) -> None:
    files = {"my_pkg/__init__.py": "", "my_pkg/mine.py": METHOD}
    site.install("my-pkg", {"methods:my_loss": "my_pkg.mine"}, files, version="2.1")
    assert "my-loss" in registry.names("methods") and registry.completion("methods")("my-") == ["my-loss"]
    assert registry.summary("methods", "my-loss") == "Mine: InfoNCE by another name."
    assert "my_pkg" not in sys.modules
    assert registry.find("methods", "my-loss").path == site.folder / "my_pkg" / "mine.py"
    assert registry.load("methods", "my-loss").__name__ == "my_pkg.mine"
    assert "my-loss: Mine: InfoNCE by another name" in registry.with_summaries("{methods}")
    assert rows(toy.ccr("plugins", "--json"))["method", "my-loss"] == {
        **{"kind": "method", "name": "my-loss", "from": "my-pkg 2.1", "state": "ok", "mend": ""}
    }


BROKEN = {
    "methods:gone": ("broken_pkg.gone", "no file of the module broken_pkg.gone"),
    "methods:elsewhere": ("no_such_pkg.gone", "no file of the module no_such_pkg.gone"),
    "methods:object": ("broken_pkg.fine:Method", "'broken_pkg.fine:Method'"),
    "methods:bad name": ("broken_pkg.fine", "'bad name'"),
    "methods:syntax": ("broken_pkg.syntax", "line 1: "),
    "methods:exits": ("broken_pkg.exits", "line 1: SystemExit: 3"),
    "methods:needs": ("broken_pkg.needs", "No module named 'no_such_library'"),
    "methods:refuses": ("broken_pkg.refuses", "not on this machine"),
    "judges:empty": ("broken_pkg.empty", "JUDGE"),
    "encoders:empty": ("broken_pkg.empty", "Encoder"),
    "translators:empty": ("broken_pkg.empty", "Translator"),
    "noise:empty": ("broken_pkg.empty", "givers"),
    "noise:two-words": ("broken_pkg.empty", "'two-words'"),
    "method:typo": ("broken_pkg.fine", "ccr.methods"),
}
"""Entry points: the value, and what the reason names."""
FILES = {
    "broken_pkg/__init__.py": "",
    "broken_pkg/fine.py": METHOD,
    "broken_pkg/empty.py": '"""Empty."""\n',
    "broken_pkg/syntax.py": "def f(:\n",
    "broken_pkg/exits.py": "raise SystemExit(3)\n",
    "broken_pkg/needs.py": "import no_such_library\n",
    "broken_pkg/refuses.py": "from ccr_cli import errors\nraise errors.UnavailableError('not on this machine')\n",
}


def test_what_is_broken_is_listed_with_the_reason(site: SitePackages) -> None:
    site.install("broken-pkg", {point: value for point, (value, _) in BROKEN.items()}, FILES)
    site.install("odd", {}, {}, raw="[ccr.methods]\nno value\n")
    listed = rows(toy.ccr("plugins", "--json"))
    for point, (_, reason) in BROKEN.items():
        group, _, name = point.partition(":")
        row = listed[registry.KINDS.get(group, group), name]
        assert row["from"] == "broken-pkg 1.0" and "pip uninstall" in row["mend"]
        assert row["state"].startswith("broken, ") and reason in row["state"], row
    assert listed["", ""]["from"] == "odd 1.0" and "entry_points.txt" in listed["", ""]["state"]
    assert listed["method", "uml"] == {"kind": "method", "name": "uml", "from": "ccr", "state": "ok", "mend": ""}
    assert all(row["state"] == "ok" for row in listed.values() if row["from"] == "ccr")
    assert listed["noise style", "caption"]["from"] == listed["engine", "hf"]["from"] == "ccr"


@pytest.mark.parametrize("name", ["syntax", "exits", "gone"])
def test_a_broken_one_is_an_error_only_where_it_is_used(name: str, site: SitePackages, tmp_path: Path) -> None:
    site.install("broken-pkg", {point: value for point, (value, _) in BROKEN.items()}, FILES)
    done = toy.ccr("train", "--method", name, workspace=tmp_path)
    assert (
        (done.code, done.out) == (2, "") and "broken-pkg 1.0" in done.err and BROKEN[f"methods:{name}"][1] in done.err
    )
    assert "Traceback" not in done.err
    for words in (["--help"], ["data", "list"]):
        assert toy.ccr(*words).code == 0
    page = toy.ccr("train", "--help")
    assert page.code == 0 and "broken, " in page.out
    assert registry.load("methods", "infonce") and registry.load("judges", "gmm")


def test_a_name_is_of_ccr_or_of_one_distribution(site: SitePackages) -> None:
    one = {"methods:uml": "one_pkg", "methods:both": "one_pkg", "noise:caption": "one_pkg"}
    site.install("one-pkg", one, {"one_pkg.py": METHOD})
    site.install("two-pkg", {"methods:both": "two_pkg"}, {"two_pkg.py": METHOD})
    assert registry.load("methods", "uml").__name__ == "ccr_cli.methods.uml"
    with pytest.raises(registry.BrokenError) as caught:
        registry.load("methods", "both")
    assert caught.value.exit_code == 2 and all(f"{name} 1.0" in caught.value.message for name in ("one-pkg", "two-pkg"))
    states = [(r["from"], r["name"], r["state"]) for r in json.loads(toy.ccr("plugins", "--json").out)["plugins"]]
    mine = {(source, name): state for source, name, state in states if source != "ccr"}
    assert mine["one-pkg 1.0", "uml"].startswith("not used") and mine["one-pkg 1.0", "caption"].startswith("not used")
    assert "two-pkg 1.0" in mine["one-pkg 1.0", "both"] and "one-pkg 1.0" in mine["two-pkg 1.0", "both"]
    assert ("ccr", "uml", "ok") in states


def test_the_first_of_two_versions_on_the_path_counts(site: SitePackages, tmp_path: Path) -> None:
    site.install("twice", {"methods:mine": "twice"}, {"twice.py": METHOD}, version="2.0")
    other = SitePackages(tmp_path / "other")
    other.install("twice", {"methods:mine": "twice"}, {"twice.py": METHOD}, version="1.0")
    sys.path.append(str(other.folder))
    try:
        toy.built.cache_clear()
        registry.installed.cache_clear()
        assert (
            registry.find("methods", "mine").distribution == "twice 2.0"
            and not registry.find("methods", "mine").problem
        )
    finally:
        sys.path.remove(str(other.folder))


def test_distributions_are_searched_only_for_names_that_are_no_file(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> None:
        raise AssertionError("distributions are searched")

    toy.built.cache_clear()
    registry.installed.cache_clear()
    monkeypatch.setattr(importlib.metadata, "distributions", refuse)
    assert toy.ccr("--help").code == toy.ccr("evaluate", "--help").code == 0
    assert registry.load("methods", "uml") and registry.load("judges", "gmm")
    assert mismatch.target_of("caption", None) == "translation"
    with pytest.raises(AssertionError):
        registry.names("methods")


SOURCE = {
    "lib/__init__.py": "x = 1\n",
    "lib/mine.py": '"""Mine."""\nfrom . import near\nfrom ccr_cli.losses import contrastive\nimport other.far\n',
    "lib/near.py": "from .deep.down import f\n",
    "lib/deep/__init__.py": "",
    "lib/deep/down.py": "def f():\n    import numpy\n",
    "lib/unused.py": "",
    "other/__init__.py": "",
    "other/far.py": "",
}


def test_the_source_is_all_that_the_module_imports_from_packages_with_plugins(
    site: SitePackages, tmp_path: Path
) -> None:
    site.install("lib", {"methods:mine": "lib.mine"}, SOURCE)
    site.install("other", {"judges:far": "other.far"}, {})
    own = registry.own(registry.sources(("methods", "mine"), ("judges", "gmm")))
    assert {path.relative_to(site.folder).as_posix() for path in own} == {*SOURCE} - {"lib/unused.py"}
    (recorded,) = registry.installed_source("methods", "mine").values()
    for path in sorted({*SOURCE} - {"lib/unused.py"}):
        site.write({path: f"{SOURCE[path]}\ny = 2\n"})
        assert registry.installed_source("methods", "mine")["source"] != recorded, path
        site.write({path: f"# a comment\n{SOURCE[path]}"})
        assert registry.installed_source("methods", "mine")["source"] == recorded, path
    site.write({"lib/unused.py": "y = 2\n"})
    assert registry.installed_source("methods", "mine")["source"] == recorded
    assert registry.installed_source("methods", "uml") == {}
    moved = shutil.move(site.folder, tmp_path / "another")
    sys.path.insert(0, str(moved))
    site.forget()
    try:
        assert registry.installed_source("methods", "mine")["source"] == recorded
    finally:
        sys.path.remove(str(moved))


def test_a_failure_in_an_installed_method_names_its_line(site: SitePackages) -> None:
    site.install("my-pkg", {"methods:mine": "my_pkg.mine"}, {"my_pkg/mine.py": "def f():\n    return 1 / 0\n"})
    module = importlib.import_module("my_pkg.mine")
    with pytest.raises(ZeroDivisionError) as caught:
        module.f()
    failure = registry.own_failure(caught.value)
    assert failure is not None and f"{site.folder / 'my_pkg' / 'mine.py'}, line 2, in f" in failure.message


CAPTIONS = pd.DataFrame({"caption_id": list("abcd"), "item_id": list("1234"), "text": ["red", "green", "blue", "grey"]})


def test_a_noise_style_of_a_distribution_draws(site: SitePackages, workspace: toy.Chain) -> None:
    site.install("spin", {"noise:rotate": "spin"}, {"spin.py": ROTATE})
    assert mismatch.target_of("rotate", None) == "translation" and mismatch.target_of("rotate", "pair") == "pair"
    drawn = mismatch.mismatch(CAPTIONS, 0.5, "rotate", "translation", seed=0)
    assert drawn["given_translation_of"].tolist() == ["b", "a", "c", "d"]
    assert "rotate: Gives each of the first" in registry.with_summaries("{noise}")
    data = workspace.find("dataset")

    def draw() -> base.Artifact:
        return make_noise(Workspace(workspace.root), data, 0.5, MismatchOptions(noise_style="rotate"))

    made = draw()
    assert made.request["source"]["sha256"] and made.counts["mismatched"] == made.counts["triplets"] // 4
    assert draw().path == made.path
    site.write({"spin.py": ROTATE.replace("rows[:moved], 1", "rows[:moved], 2")})
    other = draw()
    assert other.path != made.path and toy.digests(other.path) != toy.digests(made.path)


@pytest.mark.parametrize("wrong", ["rows[:2]", "rows + 1", "rows / 2", "rows[:, None]", "rows - 1"])
def test_a_noise_style_that_gives_no_captions_is_refused(wrong: str, site: SitePackages) -> None:
    site.install("spin", {"noise:rotate": "spin"}, {"spin.py": ROTATE.replace("return rows", f"return {wrong}")})
    with pytest.raises(CcrError) as caught:
        mismatch.mismatch(CAPTIONS, 0.5, "rotate", "translation", seed=0)
    assert str(site.folder / "spin.py") in caught.value.message and "givers()" in caught.value.message


def test_a_noise_style_may_restrict_its_targets(site: SitePackages) -> None:
    site.install("spin", {"noise:rotate": "spin"}, {"spin.py": f'{ROTATE}TARGETS = ("pair",)\n'})
    assert mismatch.target_of("rotate", None) == "pair"
    with pytest.raises(CcrError):
        mismatch.target_of("rotate", "translation")
    site.write({"spin.py": f'{ROTATE}TARGETS = ("pairs",)\n'})
    with pytest.raises(registry.BrokenError) as caught:
        mismatch.target_of("rotate", None)
    assert "'pairs'" in caught.value.message and "spin 1.0" in caught.value.message


def test_an_edited_engine_translates_again(site: SitePackages, workspace: toy.Chain) -> None:
    site.install("loud", {"translators:upper": "loud"}, {"loud.py": ENGINE})

    def texts() -> tuple[Path, set[str]]:
        made = toy.ok("translate", "--lang", "de", "--engine", "upper", workspace=workspace.root).made
        return made.path, set(pd.read_parquet(made.file("captions.parquet"))["text"])

    first, loud = texts()
    assert "RED CIRCLE" in loud
    site.write({"loud.py": f"# a comment\n{ENGINE}"})
    assert texts()[0] == first
    site.write({"loud.py": ENGINE.replace("upper()", "lower()")})
    second, quiet = texts()
    assert second != first and "red circle" in quiet and "RED CIRCLE" not in quiet


def test_an_edited_encoder_encodes_again(site: SitePackages, workspace: toy.Chain) -> None:
    site.install("colour", {"encoders:colour": "colour"}, {"colour.py": ENCODER})
    first = toy.ok("extract", "--encoder", "colour", "--device", "cpu", workspace=workspace.root).made
    site.write({"colour.py": ENCODER.replace("return pixels\n", "return 2 * pixels\n")})
    second = toy.ok("extract", "--encoder", "colour", "--device", "cpu", workspace=workspace.root).made
    assert second.path != first.path
    one, two = (np.load(made.file(features.shard_name(0))) for made in (first, second))
    assert np.array_equal(2 * one, two) and one.any()
    assert "source" not in features.command(second, Path("DATA"))
    loaded = [(made, part) for made in (first, second) for part in features.parts(made)]
    cpu = torch.device("cpu")
    assert encoder_of(second, loaded[1][1], second.json("encoder.json"), cpu).dim == 3
    with pytest.raises(ArtifactError) as caught:
        encoder_of(first, loaded[0][1], first.json("encoder.json"), cpu)
    assert "source" in caught.value.message


@pytest.fixture(scope="module")
def example(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder into which pip installed the example."""
    source, target = tmp_path_factory.mktemp("example"), tmp_path_factory.mktemp("installed")
    shutil.copytree(EXAMPLE, source / "plugin")
    call = [sys.executable, "-m", "pip", "install", "--no-deps", "--no-build-isolation", "--no-index", "--quiet"]
    done = subprocess.run([*call, "--target", target, source / "plugin"], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return target


@pytest.mark.slow
def test_the_example_is_installed_trains_and_an_edit_makes_another_run(
    example: Path, workspace: toy.Chain, tmp_path: Path
) -> None:
    place = shutil.copytree(example, tmp_path / "site")

    def ccr(*words: str) -> str:
        environment = toy.environment(workspace.root, PYTHONPATH=f"{place}:{Path(registry.__file__).parents[1]}")
        call = [sys.executable, "-m", "ccr_cli", *words]
        done = subprocess.run(call, env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stderr
        return done.stdout

    listed = {row["name"]: row for row in json.loads(ccr("plugins", "--json"))["plugins"] if row["from"] != "ccr"}
    assert {name: (row["kind"], row["from"], row["state"]) for name, row in listed.items()} == {
        "gce": ("method", "ccr-robust 0.1.0", "ok"),
        "shuffled": ("judge", "ccr-robust 0.1.0", "ok"),
    }
    call = ("train", "--method", "gce", "--set", "judge=shuffled", "--noise", "0.4", "--epochs", "2", *toy.SMALL)
    first = Path(ccr(*call).splitlines()[-1])
    history: list[dict[str, Any]] = [json.loads(line) for line in (first / "history.jsonl").read_text().splitlines()]
    assert {"gce_vs", "gce_vt"} <= history[0]["loss"].keys()
    assert json.loads((first / "config.json").read_text())["options"]["judge"] == "shuffled"
    assert Path(ccr("diagnose", str(first), "--device", "cpu").splitlines()[-1]).parent.name == "diagnoses"
    assert "gce" in ccr("evaluate", str(first), "--device", "cpu")
    method = place / "ccr_robust" / "gce.py"
    code = method.read_text()
    method.write_text(f"# a comment\n{code}")
    assert Path(ccr(*call).splitlines()[-1]) == first
    method.write_text(code.replace("/ 2\n", "/ 4\n"))
    second = Path(ccr(*call).splitlines()[-1])
    assert second != first and (second / "config.json").is_file()
    shutil.rmtree(place)
    environment = toy.environment(workspace.root)
    gone = subprocess.run(
        [sys.executable, "-m", "ccr_cli", "evaluate", str(second)],
        env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert gone.returncode == 4 and "'gce'" in gone.stderr and "Traceback" not in gone.stderr
