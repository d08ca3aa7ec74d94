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

import torch

from ccr_cli import registry
from ccr_cli.judges.base import load_judge
from ccr_cli.nets.dual import DualEncoder
from ccr_cli.nets.text import build_text_encoder
from ccr_cli.stages.shared.options import configure
from robustness import code

Options = tuple[tuple[str, str], ...]

CHINESE = ("baidu-2016", "google-2016", "baidu-20160815", "google-20160816")
FRENCH = ("apertium-1", "apertium-2")
"""en -> fr, and en -> fr -> en -> fr, each hop by way of Catalan."""
SECOND = {CHINESE[i]: CHINESE[i ^ 1] for i in range(4)}
"""Whose translations the judge `translation` compares with: the other engine's of that time. French is compared with
its way back."""

BASELINE = "infonce"
ORACLE = "infonce (oracle)"
TWICE = "infonce (S-T, two models)"
"""`infonce` at the cost of `trine`, which it is but for judge and temperature."""
PLAIN = ("source-only", "basic", BASELINE)
"""Methods that know nothing of noise."""
RATIOS = (0.0, 0.2, 0.4, 0.6)
TARGETS = ("translation", "pair")
SEEDS = (0, 1, 2)
EVERY_SEED = (*SEEDS, 3, 4)
BEST = (BASELINE, "infonce (two-group, both)", "infonce (S-T, two models)", "distil", "tcl", "trine", "uml")
"""What runs with more seeds: the methods of the highest means, and their baseline."""
WHERE = ("noise", "style", "target", "seed", "regime", "translations")
"""What a run was trained on."""

WITHOUT_BACK: dict[str, Options] = {"nrccr": (("cycle_weight", "0"),)}
"""What a method that reads back-translations leaves out where there are none (all Chinese translations)."""
MINILM = "all-MiniLM-L6-v2"
"""A sentence encoder as the teacher of `distil`."""
UNJUDGED = ("source-only",)
"""Methods that train on no translation, so that no judge can help them."""
NO_JUDGE, CEILING = "no judge", "oracle"
"""What follows the label of a method that runs without its judge, and with the oracle in its place."""


@cache
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
    by_epoch: bool = False
    """Whether its row must have the figures of every epoch, which the earliest rows lack."""

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
    def models(self) -> int:
        """Dual encoders that are trained and averaged, as the method has them."""
        return _models(self.method, self.options)

    @property
    def sources(self) -> str:
        """A hash of the code of method, judge and teacher."""
        teacher = ["source-only"] if self.needs_teacher and not self.config["teacher"] else []
        return code.sources(self.config["judge"], self.method, *teacher)

    @property
    def name(self) -> str:
        """A name for files: two cells that are one run have one name."""
        text = json.dumps([self.method, self.where, self.config], sort_keys=True)
        return f"{self.method}-{hashlib.sha256(text.encode()).hexdigest()[:12]}"


@cache
def _config(method: str, options: Options) -> Any:
    return configure(registry.load("methods", method).Config, dict(options), f"method {method}")


@cache
def _models(method: str, options: Options) -> int:
    config = _config(method, options)
    with torch.random.fork_rng(devices=[]):
        made = registry.load("methods", method).Method(
            config, 8, build_text_encoder("ngram", buckets=8, dim=config.dim)
        )
    return sum(isinstance(part, DualEncoder) for part in made.modules())


@cache
def effective(method: str, options: Options) -> dict[str, Any]:
    """Every option of a method: its defaults and what is given.

    Raises:
        UsageError: If the method has no such option.
    """
    return asdict(_config(method, options))


def fulfils(row: Mapping[str, Any], cell: Cell) -> bool:
    """Whether a row of results is the run of a cell.

    An option newer than the row had what is its default now. The side of a judge that takes none means nothing.
    """
    if row["method"] != cell.method or tuple(row[name] for name in WHERE) != cell.where:
        return False
    if cell.by_epoch and "epochs" not in row:
        return False
    defaults, config = effective(cell.method, ()), cell.config
    unread = {"judge_side"} if usual_side(config["judge"]) is None else set()
    return all(row["config"].get(key, defaults[key]) == config[key] for key in config.keys() - unread)


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
        ORACLE: ("infonce", (("judge", "oracle"),)),
        "infonce (two-group)": ("infonce", (("judge", "two-group"),)),
        "infonce (two-group, both)": ("infonce", (("judge", "two-group"), ("judge_side", "both"))),
        **{name: (name, ()) for name in others},  # Flickr8k has no categories, which fume needs
        TWICE: ("trine", (("judge", "none"), ("temperature", "0.07"))),
        "distil (MiniLM)": ("distil", (("teacher", MINILM),)),
    }


def fitted(cell: Cell) -> Cell:
    """The cell with options that fit the data: no oracle without noise, no cycle without back-translations."""
    options = dict(cell.options)
    if not cell.noise and options.get("judge") == "oracle":
        options["judge"] = "none"  # nothing is switched
    if language(cell.translations) == "zh" and cell.method in WITHOUT_BACK:
        options = dict(WITHOUT_BACK[cell.method]) | options
    return replace(cell, options=tuple(sorted(options.items())))


def judged_by(cell: Cell, judge: str) -> Cell:
    """The same method with `none` or `oracle` as its judge."""
    options = tuple((key, value) for key, value in cell.options if key not in ("judge", "judge_side"))
    label = f"{cell.label}, {NO_JUDGE if judge == 'none' else CEILING}"
    return fitted(replace(cell, label=label, options=(*options, ("judge", judge))))


def judged(cell: Cell) -> bool:
    """Whether the method has a judge that can err."""
    return cell.config["judge"] not in ("none", "oracle")


def matched(cell: Cell) -> list[Cell]:
    """What a method is held against: itself without a judge, if it has one, and with the oracle."""
    against = [judged_by(cell, "none")] if judged(cell) else []
    if cell.noise and cell.method not in UNJUDGED and cell.config["judge"] != "oracle":
        against.append(judged_by(cell, "oracle"))
    return against


def _cell(label: str, method: str, options: Options = (), **where: Any) -> Cell:
    return fitted(Cell(label, method, options, **where))


def _labels(labels: Sequence[str] | None) -> list[tuple[str, str, Options]]:
    return [(label, *what) for label, what in methods().items() if labels is None or label in labels]


def main_part(labels: Sequence[str] | None = None) -> list[Cell]:
    """Every method under every ratio and target with one seed; three seeds at 40 %."""
    return _grid(_labels(labels), RATIOS, TARGETS)


NEAR: dict[str, Any] = {"noise": 0.4, "style": "near", "target": "any"}
"""Noise that no judge assumes: T, V or S, a third each, is that of one of the nearest captions."""


def near_part(labels: Sequence[str] | None = None) -> list[Cell]:
    """Every method where captions are exchanged with near ones."""
    return [_cell(*each, **NEAR) for each in _labels(labels)]


OTHER_STYLES = (
    ("image", "translation"),
    ("image", "pair"),
    ("mixed", "any"),
    ("words", "translation"),
    ("instance", "translation"),
)
"""Noise styles that only some methods are measured under, and their targets."""


def styles_part(labels: Sequence[str] | None = None) -> list[Cell]:
    """The best methods at 40 % of every other noise style."""
    return [
        _cell(*each, noise=0.4, style=style, target=target)
        for style, target in OTHER_STYLES
        for each in _labels(labels)
        if each[0] in (*BEST, ORACLE)
    ]


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


def accurate_part(labels: Sequence[str] | None = None) -> list[Cell]:
    """Every method where in-batch retrieval is accurate: simulated features, translated queries.

    The features are made from the vectors of MiniLM, which therefore is no fair teacher.
    """
    fair = [each for each in _labels(labels) if ("teacher", MINILM) not in each[2]]
    return _grid(fair, (0.0, 0.4, 0.6), TARGETS, regime="simulated")


BY_TRANSLATION = Cell("infonce (translation)", "infonce", (("judge", "translation"),))
"""`infonce` without the pairs that a second translation contradicts."""


def real_part(labels: Sequence[str] | None = None) -> list[Cell]:
    """No synthetic noise: engines, dates and round trips against each other, three seeds."""
    named = [*_labels(labels), (BY_TRANSLATION.label, BY_TRANSLATION.method, BY_TRANSLATION.options)]
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
    "Noisy pairs as rivals": Ablations(
        [
            (f"{method}, {words}", method, (*options, ("drop_below", least)))
            for method, options in (
                ("infonce", _off(judge="two-group", judge_side="both")),
                ("uml", ()),
                ("tcl", ()),
                ("trine", ()),
            )
            for words, least in (("rivals", "0"), ("none", "0.5"))
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


def matched_part(labels: Sequence[str] | None = None) -> list[Cell]:
    """Wherever a method runs, the same without its judge and with the oracle."""
    parts = (main_part, near_part, clean_part, accurate_part, real_part, styles_part)
    cells = [cell for part in parts for cell in part(labels)]
    known = {cell.name for part in parts for cell in part(None)}
    against = {each.name: each for cell in cells for each in matched(cell) if each.name not in known}
    return list(against.values())


def seeds_part(labels: Sequence[str] | None = None) -> list[Cell]:
    """Five seeds without noise and at 40 %, three elsewhere: the best methods, and what they are held against.

    Runs without judge and with the oracle come last.
    """
    cells = []
    for each in _labels(labels):
        if each[0] in BEST:
            for noise in RATIOS:
                for target in TARGETS if noise else TARGETS[:1]:
                    for seed in EVERY_SEED if noise in (0.0, 0.4) else SEEDS:
                        cells.append(_cell(*each, noise=noise, target=target, seed=seed))
    own = {cell.name for cell in cells}
    against = {each.name: each for cell in cells for each in matched(cell) if each.name not in own}
    return [*cells, *against.values()]


FACTORS: dict[str, Options] = {
    "none": (("judge", "none"),),
    "two-group, both": (("judge", "two-group"), ("judge_side", "both")),
    "triangle": (("judge", "triangle"),),
    "oracle": (("judge", "oracle"),),
}
"""The judges of the factorial."""


def factorial_cell(models: int, cross_lingual: bool, judge: str, **where: Any) -> Cell:
    """One or two models, with or without S-T, and a judge: `trine` less some of its parts.

    One model is `infonce` with the temperature of `trine`, or `trine` with one model, which are the same: what was
    measured under either name is not run again.
    """
    options = (*FACTORS[judge], ("cross_lingual_weight", "0.5" if cross_lingual else "0"), ("temperature", "0.1"))
    method = "infonce" if models == 1 and judge in ("none", "oracle") else "trine"
    if method == "trine":
        options += (("models", str(models)),)
    label = f"{models} x infonce{', S-T' if cross_lingual else ''} ({judge})"
    return _cell(label, method, options, **where)


def factorial_part(labels: Sequence[str] | None = None) -> list[Cell]:
    """What `trine` is made of: models, S-T and judge, each with each, five seeds; every label counts as `trine`."""
    if labels is not None and "trine" not in labels:
        return []
    places = itertools.product(EVERY_SEED, TARGETS, (1, 2), (False, True), FACTORS)
    return [
        factorial_cell(models, cross_lingual, judge, seed=seed, **_forty(target))
        for seed, target, models, cross_lingual, judge in places
    ]


LEARNING_RATES = (0.5, 1.0, 2.0)
"""Factors of all learning rates."""
EPOCHS = (6, 12, 24)
SOFTNESS = {"temperature": (0.05, 0.07, 0.1), "tau": (0.05, 0.07, 0.1), "margin": (0.1, 0.2, 0.4)}
"""The option that says how much the hardest negatives count, and its values: a method's first."""
OWN_SOFTNESS = {"nrccr": "margin", "distil": ""}
"""That of other methods: `nrccr`'s temperature is of its distillation, and `distil` reads its own not by default."""


def settings(method: str, options: Options = ()) -> dict[str, Options]:
    """The settings that are tried for a method: seven, the default among them, each of one option."""
    config = effective(method, options)
    softness = OWN_SOFTNESS.get(method, next((name for name in SOFTNESS if name in config), ""))
    tried: dict[str, Options] = {"default": ()}
    for value in SOFTNESS.get(softness, ()):
        if value != config[softness]:
            tried[f"{softness} {value}"] = ((softness, str(value)),)
    for factor in LEARNING_RATES:
        if factor != 1:
            rates = tuple((name, str(factor * config[name])) for name in ("lr", "table_lr"))
            tried[f"learning rates x {factor:g}"] = rates
    for epochs in EPOCHS:
        if epochs != config["epochs"]:
            tried[f"{epochs} epochs"] = (("epochs", str(epochs)),)
    return tried


def tuning_part(labels: Sequence[str] | None = None) -> list[Cell]:
    """The same number of settings of every method, without noise and at 40 %; the selecting half decides."""
    return [
        _cell(f"{label}: {name}", method, (*options, *setting), noise=noise, by_epoch=True)
        for label, method, options in _labels(labels)
        if label not in (ORACLE, *UNJUDGED) and ("teacher", MINILM) not in options
        for name, setting in settings(method, options).items()
        for noise in (0.0, 0.4)
    ]


PARTS: dict[str, Callable[[Sequence[str] | None], list[Cell]]] = {
    "main": main_part,
    "near": near_part,
    "clean": clean_part,
    "matched": matched_part,
    "seeds": seeds_part,
    "factorial": factorial_part,
    "judges": judges_part,
    "styles": styles_part,
    "accurate": accurate_part,
    "real": real_part,
    "ablations": ablations_part,
    "tuning": tuning_part,
}
