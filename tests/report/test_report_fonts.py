"""Letters of other scripts in figures: the installed fonts that have them, and what is said where none has."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import matplotlib
import pytest
from fontTools.ttLib import TTFont
from matplotlib import font_manager

from ccr_cli.artifacts.workspace import Workspace
from ccr_cli.report.figures import canvas
from ccr_cli.stages.doctor import examine

DOG = "狗"
FAMILY = "WenQuanYi Zen Hei"


@pytest.fixture
def bare(monkeypatch: pytest.MonkeyPatch) -> Iterator[pytest.MonkeyPatch]:
    """A machine that has matplotlib's own fonts alone."""
    manager = font_manager.fontManager
    own = Path(matplotlib.get_data_path())
    monkeypatch.setattr(manager, "ttflist", [f for f in manager.ttflist if own in Path(f.fname).parents])
    monkeypatch.setattr(font_manager, "findSystemFonts", lambda: [])
    canvas.fonts.cache_clear()
    yield monkeypatch
    monkeypatch.undo()
    canvas.fonts.cache_clear()


def font(path: Path, family: str) -> Path:
    """A font of that family in which the dog looks like an A."""
    made = TTFont(Path(matplotlib.get_data_path()) / "fonts" / "ttf" / "DejaVuSans.ttf")
    for table in made["cmap"].tables:
        table.cmap[ord(DOG)] = "A"
    for record in made["name"].names:
        if record.nameID in (1, 4, 16):
            record.string = family
    made.save(path)
    return path


def draw(*texts: str) -> bytes:
    with canvas.drawing():
        figure = canvas.new_figure(3, 1)
        for place, text in enumerate(texts):
            figure.text(0.1, 0.2 + 0.3 * place, text)
        canvas.settle(figure)
        canvas.to_svg(figure)
        canvas.to_pdf(figure)
        return canvas.to_png(figure)


@pytest.mark.slow
def test_letters_without_a_font_are_said_once(bare: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert canvas.fonts() == ["DejaVu Sans"]
    draw(f"one {DOG}", f"{DOG}雪 and a dog")
    said = capsys.readouterr().err
    assert said.count("warning") == 1
    assert "boxes for 2 letters that no installed font has: 狗 雪; try: apt install" in said
    draw("a dog, un perro, собака")
    assert capsys.readouterr().err == ""
    assert canvas.INSTALL not in canvas.lacking("क") and "..." in canvas.lacking(
        "क" + "".join(map(chr, range(900, 920)))
    )


@pytest.mark.slow
def test_a_font_that_was_installed_since_is_found(
    bare: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Matplotlib's list of fonts does not have it; a damaged one beside it does no harm."""
    boxes = draw(DOG)
    (tmp_path / "damaged.ttf").write_bytes(b"no font")
    files = [str(font(tmp_path / "new.ttf", FAMILY)), str(tmp_path / "damaged.ttf")]
    bare.setattr(font_manager, "findSystemFonts", lambda: files)
    canvas.fonts.cache_clear()
    capsys.readouterr()
    assert canvas.fonts() == ["DejaVu Sans", FAMILY] and canvas.cjk_fonts() == [FAMILY]
    assert draw(DOG) == draw("A") != boxes
    assert capsys.readouterr().err == ""


def test_the_doctor_says_what_to_install(bare: pytest.MonkeyPatch, tmp_path: Path) -> None:
    row = ("fonts zh, ja, ko", "none: boxes in figures", canvas.INSTALL)
    assert row in examine(Workspace(tmp_path))
    font_manager.fontManager.addfont(font(tmp_path / "new.ttf", FAMILY))
    assert (row[0], FAMILY, "") in examine(Workspace(tmp_path))


def test_families_are_tried_in_order(bare: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for family in (FAMILY, "IPAGothic", "Noto Sans CJK JP", "Some Sans"):
        font_manager.fontManager.addfont(font(tmp_path / f"{family}.ttf", family))
    assert canvas.fonts() == ["DejaVu Sans", "Noto Sans CJK JP", FAMILY, "IPAGothic"]
