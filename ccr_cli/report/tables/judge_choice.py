"""Which of several diagnoses of a run is shown, and how one that another judge made is called."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ccr_cli.report.content import RunDiagnosis


def judge(summary: Mapping[str, Any]) -> str:
    """The judge, and how many it was asked to call where its own threshold did not decide."""
    share = _share(summary)
    return f"{summary.get('judge')}" + ("" if share is None else f", first {100 * share:g}%")


def by_choice(diagnoses: Iterable[RunDiagnosis]) -> list[RunDiagnosis]:
    """Diagnoses in the order in which one of them stands for its run, or for its method.

    The lowest seed; then the judge and side that the run itself is diagnosed with; then those whose own threshold
    decided, and no share that was asked for; then by name.
    """

    def order(each: RunDiagnosis) -> tuple[Any, ...]:
        told, share = each.summary, _share(each.summary)
        judge, side = str(told.get("judge")), _other_side(each)
        return (
            int(told.get("seed") or 0),
            judge != each.usual[0],
            side != "",
            share is not None,
            judge,
            side,
            share or 0,
        )

    return sorted(diagnoses, key=order)


def named(label: str, diagnosis: RunDiagnosis) -> str:
    """The label of a method, with the judge where that is not its own.

    >>> gmm = RunDiagnosis("r", {"judge": "gmm", "judge_side": "both"}, load_pairs=None, usual=("two-group", "both"))
    >>> named("uml", gmm), named("uml [beta=0.5]", gmm)
    ('uml [judge gmm]', 'uml [beta=0.5, judge gmm]')
    """
    told = diagnosis.summary
    side = _other_side(diagnosis)
    if str(told.get("judge")) == diagnosis.usual[0] and not side and _share(told) is None:
        return label
    said = ", ".join(each for each in (judge(told), side) if each)
    method, _, options = label.partition(" [")
    return f"{method} [{', '.join([*([options.rstrip(']')] if options else []), f'judge {said}'])}]"


def _other_side(diagnosis: RunDiagnosis) -> str:
    """The side that was read where the run's own is another; empty also of a judge that chooses by itself."""
    side = str(diagnosis.summary.get("judge_side") or "")
    return "" if side == diagnosis.usual[1] else side


def _share(summary: Mapping[str, Any]) -> float | None:
    share = (summary.get("split") or {}).get("share")
    return None if share is None else float(share)
