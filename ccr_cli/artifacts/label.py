"""Labels that name a run's method wherever methods are compared: `uml (paper, oracle) [beta=0.5]`.

Evaluations and diagnoses keep the text; `Label.parse` reads it, and nothing else takes it apart.
"""

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import lru_cache

from ccr_cli.artifacts.signature import TRANSLATE_TEST

ORACLE = "oracle"
MENDED = "mended"
_AND = " + "
_REPAIR = re.compile(rf"(?:(?:pairs|weights) |{MENDED}=)[0-9a-f]{{6}}(?:\+[0-9a-f]{{6}})*")
_RUN = re.compile(
    r"(?P<method>.*?)(?: \((?P<extras>.*?)\))?(?P<more>, .*?)?(?: x(?P<number>\d+))?(?: \[(?P<options>.*)\])?"
)


@dataclass(frozen=True)
class RunLabel:
    """The label of one run, or of several runs of one label whose similarities are averaged."""

    method: str
    extras: tuple[str, ...] = ()
    """Preset, a judge that is not the method's own, loss terms switched on (`st_weight=1`), a list of pairs."""
    options: tuple[str, ...] = ()
    """Options that tell this run from others of the same label, as `key=value`."""
    number: int = 1
    """How many runs are averaged."""
    more: str = ""
    """Text that an older version wrote after the extras."""

    @property
    def own_extras(self) -> tuple[str, ...]:
        """The extras that say how the run was trained."""
        return tuple(extra for extra in self.extras if not extra.startswith(TRANSLATE_TEST))

    @property
    def terms(self) -> frozenset[str]:
        """Names of the options that the extras give with a value."""
        return frozenset(extra.partition("=")[0] for extra in self.extras if "=" in extra)

    @property
    def base(self) -> str:
        """The label without the options that tell variants apart."""
        extras = f" ({', '.join(self.extras)})" if self.extras else ""
        return f"{self.method}{extras}{self.more}" + (f" x{self.number}" if self.number > 1 else "")

    def __str__(self) -> str:
        return f"{self.base} [{', '.join(self.options)}]" if self.options else self.base


@dataclass(frozen=True)
class Label:
    """The label of a run; or of an ensemble, with its runs in order."""

    runs: tuple[RunLabel, ...]

    @staticmethod
    @lru_cache(maxsize=4096)
    def parse(text: str) -> "Label":
        """Reads a label, such as `uml (paper, oracle) x2 [beta=1] + infonce`."""
        runs = []
        for part in text.split(_AND):
            match = _RUN.fullmatch(part)
            assert match is not None  # every group may be empty
            extras, options = (tuple((match[group] or "").split(", ")) for group in ("extras", "options"))
            extras, options = (values if values != ("",) else () for values in (extras, options))
            runs.append(RunLabel(match["method"], extras, options, int(match["number"] or 1), match["more"] or ""))
        return Label(tuple(runs))

    @classmethod
    def of(cls, method: str, extras: Iterable[str] = ()) -> "Label":
        """The label of one run."""
        return cls((RunLabel(method, tuple(extras)),))

    @classmethod
    def ensemble(cls, labels: "Iterable[Label]") -> "Label":
        """The label of runs whose similarities are averaged: `uml x2 [beta=1] + infonce`; of one run, its own."""
        counts = Counter(run for label in labels for run in label.runs)
        return cls(tuple(replace(run, number=number) for run, number in counts.items()))

    def __str__(self) -> str:
        return _AND.join(map(str, self.runs))

    @property
    def terms(self) -> frozenset[str]:
        """Names of the options that the label gives with a value."""
        return frozenset(term for run in self.runs for term in run.terms)

    def with_options(self, options: Iterable[str]) -> "Label":
        """The label with more options that tell its variants apart."""
        (run,) = self.runs
        return Label((replace(run, options=(*run.options, *options)),))

    def translate_test(self, engine: str = "") -> "Label":
        """Returns the label of the same runs with translated queries, with the name of the engine if given."""
        extra = f"{TRANSLATE_TEST} by {engine}" if engine else TRANSLATE_TEST
        return Label(tuple(replace(run, extras=(*run.own_extras, extra)) for run in self.runs))

    @property
    def is_translate_test(self) -> bool:
        """Whether the queries were translated and then searched in place of the originals."""
        return any(run.own_extras != run.extras for run in self.runs)

    @property
    def base(self) -> str:
        """The label without the options that tell its variants apart; unchanged for an ensemble of several labels."""
        return self.runs[0].base if len(self.runs) == 1 else str(self)

    @property
    def members(self) -> list[str]:
        """The labels of the runs of an ensemble, each once; for one run, its own."""
        return [str(replace(run, number=1)) for run in self.runs]

    @property
    def method(self) -> str:
        """The method without preset, judge, options and number of runs; it has one colour in every figure."""
        return _AND.join(dict.fromkeys(run.method for run in self.runs))

    @property
    def is_ensemble(self) -> bool:
        """Whether several runs are measured as one."""
        return len(self.runs) > 1 or self.runs[0].number > 1

    @property
    def is_oracle(self) -> bool:
        """Whether a run, or one of an ensemble, knows the truth: an upper bound, not a competitor."""
        return any(ORACLE in run.extras for run in self.runs)

    @property
    def is_repaired(self) -> bool:
        """Whether a list of suspicious pairs changed the training data: a variant of a method, not a method."""
        return any(_REPAIR.fullmatch(part) for run in self.runs for part in (*run.extras, *run.options))

    @property
    def unrepaired(self) -> "Label":
        """The label of the same method without the repair."""

        def kept(parts: tuple[str, ...]) -> tuple[str, ...]:
            return tuple(part for part in parts if not _REPAIR.fullmatch(part))

        return Label(tuple(replace(run, extras=kept(run.extras), options=kept(run.options)) for run in self.runs))
