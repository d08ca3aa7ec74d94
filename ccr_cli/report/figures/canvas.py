"""What all figures share: colours, fonts, wrapped text, panels, and saving with the same bytes every time.

Figures are drawn without pyplot, so no global state is touched. Ink and grid have colours of their own that the
page replaces, so that a figure on it follows light and dark mode.
"""

import io
import itertools
import logging
import re
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from typing import Any

import matplotlib
import numpy as np
from matplotlib import font_manager
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.backend_bases import FigureCanvasBase
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.backends.backend_pdf import FigureCanvasPdf
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter

from ccr_cli.artifacts.label import Label
from ccr_cli.console import plain, warn
from ccr_cli.report.tables.comparable import BASELINE, is_oracle, method_order

INK = "#23272e"
FAINT = "#6b7280"
GRID = "#dfe3e8"
PNG_DPI = 200
PAGE_SCALE = 1.28
"""Pixels a point on the page, where there is room."""

# Okabe and Ito's palette, which people with any colour vision can tell apart; markers differ too
BLUE, ORANGE, GREEN, PINK, YELLOW, SKY = "#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9"
GREY, VIOLET, BROWN, WHITE = "#737a85", "#8c6bb1", "#7a5c3d", "#ffffff"
CLEAN, NOISY = BLUE, ORANGE
"""Colours of intact and of mismatched pairs."""
RIGHT = GREEN
"""The colour of right answers."""
ON_DARK, ON_LIGHT = "#fefefe", "#22262d"
"""Colours of letters on a coloured area, the same in light and dark mode."""

_FIXED = {"basic": (GREY, "o"), BASELINE: (BLUE, "s"), "uml": (ORANGE, "^"), "trine": (GREEN, "D")}
"""Colours and markers of the methods that most figures show; the others take the next of `_FREE`."""
_FREE = ((PINK, "v"), (YELLOW, "P"), (SKY, "X"), (VIOLET, "*"), (BROWN, "h"))
_DASHES: Sequence[Any] = ((0, (5, 1.6)), (0, (1.2, 1.2)), (0, (5, 1.2, 1.2, 1.2)), (0, (2.5, 1)))
TERMS = (BLUE, ORANGE, GREEN, PINK, VIOLET, BROWN, SKY, YELLOW)
DASHES: tuple[Any, ...] = ("-", (0, (4, 1.5)), (0, (1, 1)), (0, (5, 1, 1, 1)))
"""Colours and dashes of other lines than those of methods."""
_VARIANT_MARKS = ("o", "v", "P", "X", "s", "*", "h")
"""Markers of the variants of a method, except the one that is drawn like the method."""

_CJK = (
    *("Noto Sans CJK SC", "Noto Sans CJK JP", "Noto Sans CJK TC", "Noto Sans CJK KR"),
    *("Noto Sans SC", "Noto Sans JP", "Noto Sans TC", "Noto Sans KR"),
    *("Source Han Sans SC", "Source Han Sans CN", "Source Han Sans JP", "Source Han Sans"),
    *("WenQuanYi Micro Hei", "WenQuanYi Zen Hei", "Droid Sans Fallback", "AR PL UMing CN", "AR PL UKai CN"),
    *("IPAexGothic", "IPAGothic", "TakaoPGothic", "VL Gothic", "NanumGothic", "Baekmuk Gulim"),
    *("Hiragino Sans", "Hiragino Sans GB", "PingFang SC", "Heiti SC", "STHeiti", "Apple SD Gothic Neo"),
    *("Microsoft YaHei", "SimHei", "SimSun", "Yu Gothic", "Meiryo", "MS Gothic", "Malgun Gothic"),
    *("Noto Serif CJK SC", "Noto Serif CJK JP", "Unifont", "Arial Unicode MS"),
)
"""Font families with Chinese, Japanese or Korean letters on Linux, macOS and Windows, the most complete first."""
INSTALL = "apt install fonts-noto-cjk"
"""Installs all of these letters on Debian and its derivatives."""
_SCRIPTS = ("Noto Sans Arabic", "Noto Sans Hebrew", "Noto Sans Devanagari", "Noto Sans Thai")

Style = dict[str, Any]


@cache
def fonts() -> list[str]:
    """Font families in order of preference: matplotlib's own, then installed families for further scripts.

    A letter is drawn with the first family that has it.
    """
    return ["DejaVu Sans", *cjk_fonts(), *(name for name in _SCRIPTS if name in _installed())]


def cjk_fonts() -> list[str]:
    """The installed families for Chinese, Japanese and Korean.

    If Matplotlib lists none, the font folders are searched: its list lacks fonts installed since it was made.
    """
    if not (known := [name for name in _CJK if name in _installed()]):
        manager = font_manager.fontManager
        files = {font.fname for font in manager.ttflist}
        for path in sorted(set(font_manager.findSystemFonts()) - files):
            with suppress(OSError, RuntimeError, ValueError):  # no font, or a damaged one
                manager.addfont(path)
        known = [name for name in _CJK if name in _installed()]
    return known


def _installed() -> set[str]:
    return {font.name for font in font_manager.fontManager.ttflist}


def lacking(letters: Iterable[str]) -> str:
    """A message about letters that no installed font has, and what to install."""
    missing = sorted(set(letters))
    some = " ".join(missing[:8]) + (" ..." if len(missing) > 8 else "")
    message = f"figures show boxes for {len(missing)} letters that no installed font has: {some}"
    cjk = any("\u2e80" <= letter <= "\u9fff" or "\uac00" <= letter <= "\ud7ff" for letter in missing)
    return f"{message}; try: {INSTALL}" if cjk else message


def styles(labels: Iterable[str]) -> dict[str, Style]:
    """Colour, marker and line of each method, as far as possible the same in every figure; in the order of tables.

    Variants of a method have its colour, with their own dashes and markers; one of them is drawn like the method: that
    without options, else the first.
    """
    free = itertools.cycle(_FREE)
    methods: dict[str, list[str]] = {}
    out: dict[str, Style] = {label: {} for label in sorted(labels, key=method_order)}
    for label in out:
        if is_oracle(label):
            out[label] = {"color": INK, "linestyle": (0, (4, 2)), "marker": "", "linewidth": 1.6}
        else:
            methods.setdefault(Label.parse(label).method, []).append(label)
    for name, variants in methods.items():
        color, marker = _FIXED.get(name) or next(free)
        others = (mark for mark in _VARIANT_MARKS if mark != marker)
        looks = itertools.chain([("-", marker)], zip(itertools.cycle(_DASHES), itertools.cycle(others)))
        for label, (dash, mark) in zip(sorted(variants, key=lambda label: label != name), looks, strict=False):
            out[label] = {"color": color, "linestyle": dash, "marker": mark, "linewidth": 2.0}
    return out


@contextmanager
def drawing() -> Iterator[None]:
    """The Matplotlib settings under which figures are made and saved; restored afterwards.

    Warns once, at the end, about letters that no installed font has.
    """
    settings: dict[Any, Any] = {
        "font.family": fonts(),
        "font.size": 10.5,
        **dict.fromkeys(("text.color", "axes.labelcolor", "xtick.labelcolor", "ytick.labelcolor"), INK),
        **dict.fromkeys(("axes.edgecolor", "xtick.color", "ytick.color"), FAINT),
        "grid.color": GRID,
        **dict.fromkeys(("axes.linewidth", "grid.linewidth"), 0.8),
        "axes.titlesize": 11,
        "axes.titleweight": "bold",
        "axes.titlelocation": "left",
        **dict.fromkeys(("axes.grid", "axes.axisbelow", "axes.unicode_minus"), True),
        **dict.fromkeys(("axes.spines.top", "axes.spines.right", "legend.frameon"), False),
        **dict.fromkeys(("text.usetex", "text.parse_math"), False),
        "svg.hashsalt": "ccr",
        "svg.fonttype": "path",
        "pdf.fonttype": 42,
    }
    log = logging.getLogger("matplotlib.font_manager")
    level = log.level
    boxes: set[str] = set()
    with matplotlib.rc_context(settings), warnings.catch_warnings():
        show = warnings.showwarning

        def note(message: Warning | str, *about: Any, **more: Any) -> None:
            if absent := re.match(r"Glyph (\d+) .*missing from", str(message)):
                boxes.add(chr(int(absent[1])))
            else:
                show(message, *about, **more)

        warnings.showwarning = note
        warnings.filterwarnings("always", message="Glyph .* missing from")
        warnings.filterwarnings("ignore", message="Matplotlib currently does not support .* natively")
        log.setLevel(logging.ERROR)
        try:
            yield
        finally:
            log.setLevel(level)
    if boxes:
        warn(lacking(boxes))


def new_figure(width: float, height: float) -> Figure:
    """An empty figure; sizes in inches. Only inside `drawing`."""
    return Figure(figsize=(width, height), layout="constrained", facecolor="white")


def across(count: int) -> int:
    """Columns of a grid of panels: three, or two for two or four panels."""
    return 2 if count in (2, 4) else min(count, 3)


def panel_grid(
    count: int, width: float, height: float, *, least: float = 0.0, extra: float = 0.0, sharey: bool = False
) -> tuple[Figure, list[Axes]]:
    """A figure with `count` panels in a grid; the places that are left over stay empty. Only inside `drawing`.

    Sizes in inches: width and height of a panel, the least width of the figure, extra height for titles and legends.
    """
    columns = across(count)
    rows = -(-count // columns)
    figure = new_figure(max(width * columns, least), height * rows + extra)
    axes = list(figure.subplots(rows, columns, squeeze=False, sharey=sharey).flat)
    for ax in axes[count:]:
        ax.set_visible(False)
    return figure, axes[:count]


def name_rows(axes: Sequence[Axes], name: str) -> None:
    """Names the vertical axis of the first panel of each row of a grid."""
    for ax in axes[:: across(len(axes))]:
        ax.set_ylabel(name)


def blank(width: float, height: float) -> tuple[Figure, Axes]:
    """A figure whose only axes are in inches. Only inside `drawing`."""
    figure = new_figure(width, height)
    figure.set_layout_engine("none")
    axes = figure.add_axes((0, 0, 1, 1), xlim=(0, width), ylim=(0, height))
    axes.axis("off")
    return figure, axes


def note(ax: Axes, x: float, y: float, text: str, **look: Any) -> None:
    """Writes small grey words into a panel; 0 and 1 are the ends of its axes."""
    ax.text(x, y, text, transform=ax.transAxes, **{"fontsize": 8.5, "color": FAINT, **look})


def percent_axis(*axes: Axis, whole: float = 1) -> None:
    """Labels axes in percent of the whole."""
    for axis in axes:
        axis.set_major_formatter(PercentFormatter(whole, decimals=0))


def spread_apart(places: Sequence[float], gap: float) -> list[float]:
    """Moves sorted places as little as needed so that neighbours are at least `gap` apart (isotonic regression)."""
    from scipy.optimize import isotonic_regression

    offset = gap * np.arange(len(places))
    return [float(place) for place in isotonic_regression(np.asarray(places) - offset).x + offset]


TITLE, TITLE_LETTER = 11, 0.112
"""The size of a title in points, and the width of one of its letters in inches."""
LEGEND_COLUMNS = 5


def heading(figure: Figure, title: str) -> None:
    """Writes a title over a whole figure, in at most four lines."""
    if title:
        text = wrapped(title, figure.get_figwidth() - 0.2, TITLE_LETTER, 4)
        figure.suptitle(text, x=0.01, ha="left", fontsize=TITLE, fontweight="bold")


def panel_title(ax: Axes, title: str, width: float) -> None:
    """Writes the title of a panel, in at most three lines; width in inches."""
    ax.set_title(wrapped(title, width, TITLE_LETTER, 3))


def legend_size(names: Sequence[str], width: float, size: float) -> tuple[int, int]:
    """Columns and lines of a legend in a figure of a width in inches; size of its letters in points."""
    entry = max(map(_letters, names)) * size * 0.0088 + 5 * size / 72
    columns = max(1, min(LEGEND_COLUMNS, len(names), int(width / entry)))
    return columns, -(-len(names) // columns)


def wrapped(text: str, width: float, per_letter: float, lines: int) -> str:
    """Breaks a text into lines of a width in inches and truncates the rest; CJK letters count as wider."""
    out = [""]
    room = width / per_letter
    for word in re.findall(r"[\u2e80-\uffff]|[^\s\u2e80-\uffff]+|\s+", plain(text).strip()):
        if out[-1] and _letters(out[-1] + word.rstrip()) > room:
            out.append("")
        out[-1] += word if out[-1] else word.lstrip()
    cut = len(out) > lines
    out = out[:lines]
    while _letters(out[-1] + "…" * cut) > room:
        out[-1], cut = out[-1][:-1], True
    return "\n".join(line.rstrip() for line in out) + "…" * cut


def _letters(text: str) -> float:
    return sum(1.5 if ord(char) > 0x2E80 else 1.0 for char in text)


def settle(figure: Figure) -> None:
    """Lays a figure out once, so that every format has the same layout; only inside `drawing`."""
    FigureCanvasAgg(figure)
    figure.draw_without_rendering()
    figure.set_layout_engine("none")


def to_svg(figure: Figure) -> str:
    """The figure as SVG text, the same bytes for the same figure; only inside `drawing`."""
    return _printed(FigureCanvasSVG(figure), "svg", Date=None, Creator=None).decode()


def to_png(figure: Figure) -> bytes:
    """The figure as PNG bytes; only inside `drawing`."""
    figure.set_dpi(PNG_DPI)
    return _printed(FigureCanvasAgg(figure), "png", Software=None)


def to_pdf(figure: Figure) -> bytes:
    """The figure as PDF, its letters as fonts that editors can read; only inside `drawing`."""
    return _printed(FigureCanvasPdf(figure), "pdf", CreationDate=None, Creator=None, Producer=None)


def _printed(canvas: FigureCanvasBase, suffix: str, **metadata: None) -> bytes:
    out = io.BytesIO()
    getattr(canvas, f"print_{suffix}")(out, metadata=metadata)
    return out.getvalue()


WIDE = 680
"""Pixels from which a figure scrolls on a phone, where its letters would be too small."""


def inline_svg(svg: str, name: str, alternative: str) -> str:
    """Prepares an SVG for an HTML page with others: ids that begin with `name`, and the colours of the page.

    The alternative text is already escaped.
    """
    body = svg[svg.index("<svg") :]
    body = re.sub(r"<metadata>.*?</metadata>\s*", "", body, flags=re.S)
    body = re.sub(r'\bid="([^"]+)"', rf'id="{name}-\1"', body)
    body = re.sub(r'xlink:href="#([^"]+)"', rf'href="#{name}-\1"', body)
    body = re.sub(r"url\(#([^)]+)\)", rf"url(#{name}-\1)", body)
    body = re.sub(r'(<g id="[^"]*-patch_1">\s*<path [^>]*style=")[^"]*', r"\1fill: none", body, count=1)
    for color, variable in _REPLACED.items():
        body = re.sub(color, variable, body, flags=re.I)
    size = re.search(r' width="([\d.]+)pt" height="[\d.]+pt"', body)
    assert size is not None, "matplotlib writes its sizes in points"
    width = float(size[1]) * PAGE_SCALE
    shown = ' class="wide"' * (width > WIDE) + f' style="width: {width:.0f}px"'
    body = body.replace(size[0], shown, 1)
    return body.replace("<svg ", f'<svg role="img" aria-label="{alternative}" ', 1)


_REPLACED: Mapping[str, str] = {
    INK: "currentColor",
    FAINT: "var(--faint)",
    GRID: "var(--grid)",
    WHITE: "var(--card)",
    BLUE: "var(--blue)",
    ORANGE: "var(--orange)",
    GREY: "var(--grey)",
    GREEN: "var(--green)",
    VIOLET: "var(--violet)",
    BROWN: "var(--brown)",
}
"""The variable of `page.css` that stands for a colour on the page, so that dark mode has its own. A colour that is not
listed is the same in both."""
