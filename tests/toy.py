"""A data set small enough to train on in a second, and ways to run ccr on it."""

from __future__ import annotations

import functools
import gzip
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import zipfile
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from PIL import Image, ImageDraw
from typer import testing
from typer.main import get_command

from ccr_cli import registry
from ccr_cli.artifacts import base
from ccr_cli.artifacts.workspace import Workspace
from ccr_cli.cli import app
from ccr_cli.data.tsv import write_tsv_line
from ccr_cli.translators.base import Translation, Translator

COLOURS = {
    "red": "rojo",
    "green": "verde",
    "blue": "azul",
    "yellow": "amarillo",
    "black": "negro",
    "orange": "naranja",
    "purple": "morado",
    "gray": "gris",
}
SHAPES = {
    "circle": "círculo",
    "square": "cuadrado",
    "triangle": "triángulo",
    "cross": "cruz",
    "ring": "anillo",
    "bar": "barra",
}
SPLITS = ("train", "val", "train", "test")

# A process builds its commands once; the runner would build them for every call, which takes longer than most calls.
built = testing._get_command = functools.cache(get_command)  # type: ignore[attr-defined]
SMALL = ("--set", "buckets=512", "--set", "dim=32", "--batch-size", "16", "--device", "cpu")
"""Options that make a run small."""
ENCODER = ("--encoder", "efficientnet-lite0", "--set", "image_size=32", "--device", "cpu")

ITEM_HEADER = ("item_id", "split", "kind", "media", "label", "group")
CAPTION_HEADER = ("caption_id", "item_id", "lang", "k", "text", "caption_set")


@dataclass
class Folder:
    """A data set in the folder format, as rows that a test may change before they are written."""

    name: str = "toy"
    items: list[list[str]] = field(default_factory=list)
    captions: list[list[str]] = field(default_factory=list)
    tables: dict[str, dict[str, str]] = field(default_factory=dict)
    extra: str = ""
    """More lines of the manifest."""

    def write(self, path: Path, pictures: bool = True) -> Path:
        """Writes the folder and returns it."""
        (path / "translations").mkdir(parents=True)
        (path / "media").mkdir()
        manifest = f'name = "{self.name}"\nsource_lang = "en"\ndefault_encoder = "efficientnet-lite0"\n{self.extra}\n'
        (path / "manifest.toml").write_text(manifest, encoding="utf-8")
        write_table(path / "items.tsv", ITEM_HEADER, self.items)
        write_table(path / "captions.tsv", CAPTION_HEADER, self.captions)
        for pair, table in self.tables.items():
            write_table(path / "translations" / f"hand-{pair}.tsv", ("source", "target"), table.items())
        if pictures:
            for item in self.items:
                if item[3]:
                    draw(item[0]).save(path / "media" / item[3])
        return path


def some_fast(values: Iterable[object], *fast: object) -> list[object]:
    """Values of a parameter, of which all but `fast` make slow tests."""
    return [value if value in fast else pytest.param(value, marks=pytest.mark.slow) for value in values]


def write_table(path: Path, header: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Writes a TSV of the dataset format."""
    lines = [write_tsv_line(header), *(write_tsv_line(row) for row in rows)]
    path.write_text("".join(lines), encoding="utf-8", newline="")


def toy(name: str = "toy") -> Folder:
    """24 training, 12 validation and 12 test items: a shape in a colour each, with two English captions.

    Spanish human captions for validation and test only; recorded translations en -> es and es -> en.
    """
    folder = Folder(name, extra='id_space = "toy-shapes"')
    forth: dict[str, str] = {}
    back: dict[str, str] = {}
    pairs = [(colour, shape) for colour in COLOURS for shape in SHAPES]
    for number, (colour, shape) in enumerate(pairs):
        item = f"{colour}-{shape}"
        split = SPLITS[(number + number // 6) % 4]
        folder.items.append([item, split, "image", f"{item}.png", str(number), item])
        spanish = f"{SHAPES[shape]} {COLOURS[colour]}"
        english = [f"{colour} {shape}", f"a picture of one {shape} that is {colour}"]
        machine = [spanish, f"una imagen de un {SHAPES[shape]} que es {COLOURS[colour]}"]
        for k, (text, translated) in enumerate(zip(english, machine, strict=True)):
            folder.captions.append([f"{item}-en{k}", item, "en", str(k), text, "main"])
            forth[text], back[translated] = translated, text
        if split != "train":
            human = f"aquí hay un {spanish}"
            folder.captions.append([f"{item}-es0", item, "es", "0", human, "main"])
            back[human] = f"here is a {colour} {shape}"
    folder.tables = {"en-es": forth, "es-en": back}
    return folder


FRENCH = {
    "red": "rouge",
    "green": "vert",
    "blue": "bleu",
    "yellow": "jaune",
    "black": "noir",
    "orange": "orange",
    "purple": "violet",
    "gray": "gris",
    "circle": "cercle",
    "square": "carré",
    "triangle": "triangle",
    "cross": "croix",
    "ring": "anneau",
    "bar": "barre",
}


def bilingual(name: str = "toy") -> Folder:
    """The toy data set with French beside Spanish: human captions for test alone, recorded translations both ways."""
    folder = toy(name)
    forth: dict[str, str] = {}
    back: dict[str, str] = {}
    for _, item, lang, k, text, _ in list(folder.captions):
        colour, shape = item.split("-")
        french = f"{FRENCH[shape]} {FRENCH[colour]}"
        if lang == "en":
            machine = french if k == "0" else f"une image d'un {FRENCH[shape]} qui est {FRENCH[colour]}"
            forth[text], back[machine] = machine, text
        elif item in {each[0] for each in folder.items if each[1] == "test"}:
            human = f"voici un {french}"
            folder.captions.append([f"{item}-fr0", item, "fr", "0", human, "main"])
            back[human] = f"here is a {colour} {shape}"
    folder.tables |= {"en-fr": forth, "fr-en": back}
    return folder


def draw(item: str) -> Image.Image:
    """Draws `colour-shape`."""
    colour, shape = item.split("-", 1)
    colour = colour if colour in COLOURS else "pink"
    image = Image.new("RGB", (32, 32), "white")
    pen = ImageDraw.Draw(image)
    box = (4, 4, 27, 27)
    if shape == "circle":
        pen.ellipse(box, fill=colour)
    elif shape == "ring":
        pen.ellipse(box, outline=colour, width=5)
    elif shape == "triangle":
        pen.polygon([(16, 3), (28, 28), (3, 28)], fill=colour)
    elif shape == "cross":
        pen.rectangle((13, 3, 19, 28), fill=colour)
        pen.rectangle((3, 13, 28, 19), fill=colour)
    elif shape == "bar":
        pen.rectangle((2, 13, 29, 18), fill=colour)
    else:
        pen.rectangle(box, fill=colour)
    return image


@dataclass(frozen=True)
class Outcome:
    """What a command did."""

    code: int
    out: str
    err: str

    @property
    def paths(self) -> list[Path]:
        """The lines of standard output as paths."""
        return [Path(line) for line in self.out.splitlines()]

    @property
    def made(self) -> base.Artifact:
        """The artifact printed last."""
        return base.load(self.paths[-1])


def teach(method: str, workspace: Path) -> None:
    """Trains the run that a method learns from, if it needs one."""
    if "teacher" in registry.load("methods", method).Config().needs():
        ok("train", "--method", "source-only", "--epochs", "1", *SMALL, workspace=workspace)


def ccr(*arguments: str | Path, workspace: Path | None = None, stdin: str | None = None) -> Outcome:
    """Runs a command inside this process; an exception that no user should see is raised again."""
    where = [] if workspace is None else ["--workspace", str(workspace)]
    result = testing.CliRunner().invoke(app, [*map(str, arguments), *where], input=stdin)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return Outcome(result.exit_code, result.stdout, result.stderr)


def ok(*arguments: str | Path, workspace: Path, stdin: str | None = None) -> Outcome:
    """Runs a command that must succeed."""
    outcome = ccr(*arguments, workspace=workspace, stdin=stdin)
    assert outcome.code == 0, outcome.err
    return outcome


def environment(workspace: Path, **more: str) -> dict[str, str]:
    """The environment of a ccr process of its own: one thread, no network, the programs of this Python."""
    paths = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    return {
        **os.environ,
        "PATH": paths,
        "CCR_WORKSPACE": str(workspace),
        "CCR_DEVICE": "cpu",
        "OMP_NUM_THREADS": "1",
        "HF_ENDPOINT": "http://127.0.0.1:9",
        "HF_HOME": str(workspace / "hf-home"),
        **more,
    }


def torchrun(program: Path, root: Path, *options: str) -> Outcome:
    """Runs a program as two ranks."""
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", str(program)]
    done = subprocess.run(
        [*command, *options], env=environment(root), capture_output=True, text=True, timeout=300, check=False
    )
    return Outcome(done.returncode, done.stdout, done.stderr)


def python(code: str, *arguments: str | Path, workspace: Path) -> subprocess.Popen[str]:
    """Starts Python code in a process of its own."""
    return subprocess.Popen(
        [sys.executable, "-c", code, *map(str, arguments)],
        env=environment(workspace),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def copy_datasets(old: Path, new: Path) -> None:
    """Copies the data sets of a workspace into a new one, with where their media lie."""
    for name in ("datasets", base.LOCAL):
        shutil.copytree(old / name, new / name)


def shell(script: str, workspace: Path) -> Outcome:
    """Runs a shell script in the workspace."""
    done = subprocess.run(
        ["bash", "-o", "pipefail", "-c", script],
        cwd=workspace,
        env=environment(workspace),
        capture_output=True,
        text=True,
        timeout=300,
    )
    return Outcome(done.returncode, done.stdout, done.stderr)


def translated(engine: Translator, texts: list[str]) -> list[Translation]:
    """What an engine makes of texts, in their order; every one exactly once."""
    found = list(engine.translate(texts))
    assert sorted(position for position, _ in found) == list(range(len(texts)))
    return [result for _, result in sorted(found, key=lambda pair: pair[0])]


def digests(folder: Path) -> dict[str, str]:
    """The sha256 of every file of an artifact, apart from its record."""
    files = sorted(p for p in folder.rglob("*") if p.is_file() and p.name != base.RECORD)
    return {p.relative_to(folder).as_posix(): hashlib.sha256(p.read_bytes()).hexdigest() for p in files}


def unpacked(path: Path) -> bytes:
    """The name and the content of a file, with what it holds compressed: columns, members, streams of a PDF."""
    content = path.read_bytes()
    parts = [path.name.encode(), content]
    if path.suffix == ".parquet":
        columns = pq.read_table(path).to_pydict().values()
        parts += [json.dumps([*columns], default=str, ensure_ascii=False).encode(errors="surrogatepass")]
    elif zipfile.is_zipfile(path):
        with zipfile.ZipFile(path) as archive:
            parts += map(archive.read, archive.namelist())
    elif content[:2] == b"\x1f\x8b":
        parts.append(gzip.decompress(content))
    elif path.suffix == ".pdf":
        streams = re.findall(rb"FlateDecode.*?stream\r?\n(.*?)endstream", content, re.DOTALL)
        parts += [zlib.decompressobj().decompress(stream) for stream in streams]
    return b"\n".join(parts)


def holders(root: Path, words: list[str]) -> list[str]:
    """The files below a folder that hold one of the words, but caches and what stays on this machine."""
    files = [p for p in root.rglob("*") if p.is_file() and not {base.LOCAL, ".cache"} & {*p.relative_to(root).parts}]
    assert files
    contents = {str(path.relative_to(root)): unpacked(path) for path in files}
    return [f"{name}: {word}" for name, content in contents.items() for word in words if word.encode() in content]


@dataclass(frozen=True)
class Chain:
    """A workspace in which every stage has run: one run with mismatch (uml), one without (infonce)."""

    folder: Path
    root: Path

    def find(self, kind: str, word: str = "") -> base.Artifact:
        """The one artifact of a kind whose name has a word in it."""
        found = [a for a in Workspace(self.root).artifacts(kind) if word in a.name]
        assert len(found) == 1, [a.name for a in found]
        return found[0]

    def ccr(self, *arguments: str | Path, stdin: str | None = None) -> Outcome:
        """Runs a command in the workspace."""
        return ccr(*arguments, workspace=self.root, stdin=stdin)
