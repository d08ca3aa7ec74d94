"""The cells of the comparison: method, options, data and mismatch.

A row of results belongs to a cell if both were trained on the same data and agree in every option that both know. So a
cell that occurs in two parts runs once, a new option does not invalidate old runs, and a changed default does.
"""

from __future__ import annotations

import hashlib
import itertools
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache
from typing import Any

from ccr_cli import registry
from ccr_cli.judges.base import load_judge
from ccr_cli.stages.shared.options import configure

Options = tuple[tuple[str, str], ...]

CHINESE = ("baidu-2016", "google-2016", "baidu-20160815", "google-20160816")
FRENCH = ("apertium-1", "apertium-2")
"""en -> fr, and en -> fr -> en -> fr, each hop by way of Catalan."""
SECOND = {CHINESE[i]: CHINESE[i ^ 1] for i in range(4)}
"""Whose translations the judge `translation` compares with: the other engine's of that time. French is compared with
its way back."""

BASELINE = "infonce"
ORACLE = "infonce (oracle)"
PLAIN = ("source-only", "basic", BASELINE)
"""Methods that know nothing of noise."""
RATIOS = (0.0, 0.2, 0.4, 0.6)
TARGETS = ("translation", "pair")
SEEDS = (0, 1, 2)
WHERE = ("noise", "style", "target", "seed", "regime", "translations")
"""What a run was trained on."""

WITHOUT_BACK: dict[str, Options] = {"nrccr": (("cycle_weight", "0"),)}
"""What a method that reads back-translations leaves out where there are none (all Chinese translations)."""
MINILM = "all-MiniLM-L6-v2"
"""A sentence encoder as the teacher of `distil`."""
UNJUDGED = ("source-only",)
"""Methods that train on no translation, so that no judge can help them."""


def usual_side(judge: str) -> str | None:
    """The side that a judge reads where translations are switched, in a batch as the papers do; None without sides."""
    declared = load_judge(judge)
    if declared.speaks == "never" or not declared.takes_side:
        return None
    return "cross_modal" if declared.speaks == "step" else "cross_lingual"


def language(translations: str) -> str:
    """The language of an engine's translations."""
    return "fr" if translations in FRENCH else "zh"


@dataclass(frozen=True)
class Cell:
    """One run."""

    label: str
    method: str
    options: Options = ()
    noise: float = 0.0
    style: str = "caption"
    target: str = "translation"
    seed: int = 0
    regime: str = "given"
    """`given` or `simulated` features."""
    translations: str = CHINESE[0]

    @property
    def where(self) -> tuple[Any, ...]:
        """What the run is trained on; without noise its style and target mean nothing."""
        cell = self if self.noise else replace(self, style="none", target="none")
        return tuple(getattr(cell, name) for name in WHERE)

    @property
    def config(self) -> dict[str, Any]:
        """Every option of the method as it will be."""
        return effective(self.method, self.options)

    @property
    def needs_teacher(self) -> bool:
        """Whether the method learns from another model."""
        return "teacher" in _config(self.method, self.options).needs()

    @property
    def name(self) -> str:
        """A name for files: two cells that are one run have one name."""
        text = json.dumps([self.method, self.where, self.config], sort_keys=True)
        return f"{self.method}-{hashlib.sha256(text.encode()).hexdigest()[:12]}"


@cache
def _config(method: str, options: Options) -> Any:
    return configure(registry.load("methods", method).Config, dict(options), f"method {method}")


def effective(method: str, options: Options) -> dict[str, Any]:
    """Every option of a method: its defaults and what is given.

    Raises:
        UsageError: If the method has no such option.
    """
    return asdict(_config(method, options))


def fulfils(row: Mapping[str, Any], cell: Cell) -> bool:
    """Whether a row of results is the run of a cell."""
    if row["method"] != cell.method or tuple(row[name] for name in WHERE) != cell.where:
        return False
    config = cell.config
    return all(config[key] == value for key, value in row["config"].items() if key in config)


def find(rows: Iterable[Mapping[str, Any]], cell: Cell) -> Mapping[str, Any] | None:
    """The latest row of a cell."""
    return max((row for row in rows if fulfils(row, cell)), key=lambda row: str(row["when"]), default=None)


@cache
def methods() -> dict[str, tuple[str, Options]]:
    """The methods to compare by label, in their defaults, and what they are held against."""
    others = [
        name
        for name in registry.names("methods")
        if name not in PLAIN
        and registry.load("methods", name).Method.TRAINED
        and "labels" not in _config(name, ()).needs()
    ]
    return {
        **{name: (name, ()) for name in PLAIN},
        "infonce (two-group)": ("infonce", (("judge", "two-group"),)),
        "infonce (two-group, both)": ("infonce", (("judge", "two-group"), ("judge_side", "both"))),
        **{name: (name, ()) for name in others},  # Flickr8k has no categories, which fume needs
        "distil (MiniLM)": ("distil", (("teacher", MINILM),)),
        ORACLE: ("infonce", (("judge", "oracle"),)),
    }


def fitted(cell: Cell) -> Cell:
    """The cell with options that fit the data: no oracle without noise, no cycle without back-translations."""
    options = dict(cell.options)
    if not cell.noise and options.get("judge") == "oracle":
        options.pop("judge")  # nothing is switched: the method itself
    if language(cell.translations) == "zh" and cell.method in WITHOUT_BACK:
        options = dict(WITHOUT_BACK[cell.method]) | options
    return replace(cell, options=tuple(sorted(options.items())))


def _cell(label: str, method: str, options: Options = (), **where: Any) -> Cell:
    return fitted(Cell(label, method, options, **where))


def _labels(labels: Sequence[str] | None) -> list[tuple[str, str, Options]]:
    return [(label, *what) for label, what in methods().items() if labels is None or label in labels]


def main_part(labels: Sequence[str] | None = None) -> list[Cell]:
    """Every method under every ratio and target with one seed; three seeds at 40 %."""
    return _grid(_labels(labels), RATIOS, TARGETS)


def clean_part(labels: Sequence[str] | None = None) -> list[Cell]:
    """Two more seeds without noise."""
    return [_cell(*each, seed=seed) for seed in SEEDS[1:] for each in _labels(labels)]


def _grid(
    what: Sequence[tuple[str, str, Options]], ratios: Sequence[float], targets: Sequence[str], **where: Any
) -> list[Cell]:
    cells = []
    for seed in SEEDS:
        for noise in ratios if seed == 0 else (0.4,):
            for target in targets if noise else targets[:1]:
                cells += [_cell(*each, noise=noise, target=target, seed=seed, **where) for each in what]
    return cells


def judges_part(labels: Sequence[str] | None = None) -> list[Cell]:
    """Every judge with every method that takes one, at 40 %; with `infonce` on every side.

    A switched translation is judged on S-T by judges of an epoch, and on the picture by judges of a batch, as the
    papers have it; a switched pair on both. Other judges choose by themselves what they look at.
    """
    named = [(m, options) for label, m, options in _labels(labels) if label == m and m not in UNJUDGED]
    cells = []
    for target in TARGETS:
        for method, options in named:
            for judge in sorted({*registry.names("judges")} - {"fusion", "margin", "scores"}):
                usual = usual_side(judge)
                sides = [None] if usual is None else [usual if target == "translation" else "both"]
                if usual and method == BASELINE:
                    sides = ["cross_lingual", "cross_modal", "both"]
                for side in sides:
                    name = judge if side is None else f"{judge}, {side}"
                    judged = (*options, ("judge", judge), *((("judge_side", side),) if side else ()))
                    cells.append(_cell(f"{method} ({name})", method, judged, **_forty(target)))
    return cells


def _forty(target: str) -> dict[str, Any]:
    return {"noise": 0.4, "target": target}


def style_image_part(labels: Sequence[str] | None = None) -> list[Cell]:
    """All captions of an item moved together: the methods named, and what they are held against."""
    named = None if labels is None else [*labels, BASELINE, ORACLE]
    return [
        _cell(*each, noise=noise, target=target, style="image")
        for noise in RATIOS[1:]
        for target in TARGETS
        for each in _labels(named)
    ]


def accurate_part(labels: Sequence[str] | None = None) -> list[Cell]:
    """Every method where in-batch retrieval is accurate: simulated features, translated queries.

    The features are made from the vectors of MiniLM, which therefore is no fair teacher.
    """
    fair = [each for each in _labels(labels) if ("teacher", MINILM) not in each[2]]
    return _grid(fair, (0.0, 0.4, 0.6), TARGETS, regime="simulated")


def real_part(labels: Sequence[str] | None = None) -> list[Cell]:
    """No synthetic noise: engines, dates and round trips against each other, three seeds."""
    named = [*_labels(labels), ("infonce (translation)", "infonce", (("judge", "translation"),))]
    cells = [
        _cell(*each, seed=seed, translations=engine)
        for seed in SEEDS
        for engine in (*CHINESE, *FRENCH)
        for each in named
        if labels is None or each[0] in labels
    ]
    return [cell for cell in cells if cell.label != ORACLE and not cell.label.endswith("both)")]


_UML_PRINTED: Options = (
    ("anchor_weight", "0"),
    ("beta", "0.6"),
    ("candidates", "0"),
    ("cross_lingual_weight", "0"),
    ("evidence", "paper"),
    ("judge", "argmax"),
    ("judge_side", "cross_modal"),
    ("noisy_target", "zero"),
    ("phi", "0.01"),
    ("warmup_epochs", "0"),
)


_UNANCHORED: Options = (("anchor_weight", "0"), ("cross_lingual_weight", "0"))
"""What leaves `uml` its evidential terms."""
_ALONE: Options = (*_UNANCHORED, ("beta", "0"), ("judge", "none"))
"""The first of them, L_u, and every pair taken for clean."""
_ONE_MODEL: Options = (("cross_lingual_weight", "0.5"), ("temperature", "0.1"))
"""What makes `infonce` one model of `trine`, but for the judge."""


def _off(**options: str) -> Options:
    return tuple(options.items())


@dataclass(frozen=True)
class Ablations:
    """A table of ablations."""

    rows: Sequence[tuple[str, str, Options]]
    """Label, method, options; rows of methods that are not there are left out."""
    translations: str = CHINESE[0]
    conditions: Sequence[tuple[float, str]] = ((0.4, "translation"),)
    """Noise and its target."""
    common: Options = ()
    """Options of all rows, unless a row has its own."""


ABLATIONS: dict[str, Ablations] = {
    "UML, Table 4": Ablations(
        [
            ("0 basic", "basic", ()),
            ("1 L_T-MSE", "uml", _off(beta="0")),
            ("2 L_T-MSE, log det", "uml", _off(beta="0", phi="0.01")),
            ("3 L_T-MSE, L_c", "uml", _off(disentangle_weight="0")),
            ("4 L_T-MSE, log det, L_c", "uml", _off(disentangle_weight="0", phi="0.01")),
            ("5 L_T-MSE, log det, L_n", "uml", _off(consistency_weight="0", phi="0.01")),
            ("6 all", "uml", _off(phi="0.01")),
            ("default (6 without log det)", "uml", ()),
            ("default, no judge", "uml", _off(judge="none")),
            ("default, judge of eq. (4)", "uml", _off(judge="argmax", judge_side="cross_modal")),
            ("default, target 0 for noisy rows", "uml", _off(noisy_target="zero")),
            ("default, no S-T", "uml", _off(cross_lingual_weight="0")),
            ("default, no S-T, no anchor", "uml", _UNANCHORED),
            ("default, no S-T, no anchor, log det", "uml", (*_UNANCHORED, ("phi", "0.01"))),
            ("L_T-MSE alone, no judge", "uml", _ALONE),
            ("L_T-MSE alone, no judge, log det", "uml", (*_ALONE, ("phi", "0.01"))),
            ("as printed", "uml", _UML_PRINTED),
        ],
    ),
    "NRCCR, Table 4": Ablations(
        [
            ("basic model", "nrccr", _off(**dict.fromkeys(("similarity_weight", "feature_weight"), "0"))),
            ("L_sim", "nrccr", _off(feature_weight="0")),
            ("L_feat", "nrccr", _off(similarity_weight="0")),
            ("L_sim, L_feat", "nrccr", ()),
            ("L_sim, L_feat, L_cyc", "nrccr", _off(cycle_weight="0.5")),
            ("L_sim, L_feat, L_cyc, L_adv", "nrccr", _off(cycle_weight="0.5", adversarial_weight="0.001")),
        ],
        translations=FRENCH[0],
        common=_off(cycle_weight="0", adversarial_weight="0"),
    ),
    "TCL, Table IV": Ablations(
        [
            ("with L_c", "tcl", ()),
            ("without L_c", "tcl", _off(consistency_weight="0")),
        ],
    ),
    "DisNCL, Table V": Ablations(
        [
            ("L_align", "disncl", _off(dis_weight="0", soft_weight="0", reg_weight="0")),
            ("L_align, L_Dis", "disncl", _off(soft_weight="0", reg_weight="0")),
            ("L_align, L_Dis, L_soft", "disncl", _off(reg_weight="0")),
            ("all", "disncl", ()),
            ("L_align, L_soft", "disncl", _off(dis_weight="0", reg_weight="0")),
        ],
    ),
    "Plain methods, tuned": Ablations(
        [
            ("infonce, temperature 0.07 (default)", "infonce", ()),
            *((f"infonce, temperature {t}", "infonce", _off(temperature=t)) for t in ("0.05", "0.1", "0.2")),
            ("infonce, oracle", "infonce", _off(judge="oracle")),
            ("infonce, temperature 0.1, oracle", "infonce", _off(temperature="0.1", judge="oracle")),
            ("basic, margin 0.2 (default)", "basic", ()),
            *((f"basic, margin {m}", "basic", _off(margin=m)) for m in ("0.1", "0.4")),
        ],
        conditions=((0.0, "translation"), (0.4, "translation")),
    ),
    "trine": Ablations(
        [
            ("default", "trine", ()),
            ("one model: infonce, S-T, triangle", "trine", _off(models="1")),
            ("no S-T", "trine", _off(cross_lingual_weight="0")),
            ("judge two-group on S-T", "trine", _off(judge="two-group")),
            ("judge two-group on both", "trine", _off(judge="two-group", judge_side="both")),
            ("judge gmm on S-T", "trine", _off(judge="gmm")),
            ("no judge", "trine", _off(judge="none")),
            ("oracle", "trine", _off(judge="oracle")),
            ("infonce, S-T, no judge", "infonce", _ONE_MODEL),
            ("infonce, S-T, oracle", "infonce", (*_ONE_MODEL, ("judge", "oracle"))),
        ],
        conditions=((0.0, "translation"), (0.4, "translation"), (0.4, "pair")),
    ),
}


def ablations_part(labels: Sequence[str] | None = None) -> list[Cell]:
    """The rows of the papers' tables of ablations, and ours, three seeds."""
    cells = []
    for name, table in ABLATIONS.items():
        for seed, (noise, target) in itertools.product(SEEDS, table.conditions):
            for label, method, options in table.rows:
                if method in registry.names("methods") and (labels is None or method in labels):
                    settings = tuple((dict(table.common) | dict(options)).items())
                    where = {"noise": noise, "target": target, "seed": seed, "translations": table.translations}
                    cells.append(_cell(f"{name}: {label}", method, settings, **where))
    return cells


PARTS: dict[str, Callable[[Sequence[str] | None], list[Cell]]] = {
    "main": main_part,
    "clean": clean_part,
    "judges": judges_part,
    "style-image": style_image_part,
    "accurate": accurate_part,
    "real": real_part,
    "ablations": ablations_part,
}
