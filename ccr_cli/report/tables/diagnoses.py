"""Diagnoses side by side: which one represents a run, what its judge is called, and the table of detection."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import pandas as pd

from ccr_cli.artifacts.label import ORACLE, Label
from ccr_cli.report.content import ReportData, RunDiagnosis
from ccr_cli.report.tables import comparable
from ccr_cli.report.tables.retrieval import BEST_NOTE, METHOD, NOISE, NUMBER, SPREAD_NOTE, means
from ccr_cli.report.tables.table import Cell, Column, Row, Table
from ccr_cli.report.words import signature_words
from ccr_cli.report.words.numbers import percent

DETECTION = ("recall", "false_alarms", "precision", "f1", "auroc", "average_precision")
FIGURES = (*DETECTION, "ece", "share_noisy", "uncertainty.clean", "uncertainty.noisy")
"""Columns of a diagnoses frame that hold a figure."""
_USUAL_SIDES = ("", "cross_lingual")


def judge_name(summary: Mapping[str, Any]) -> str:
    """The judge, and the share of pairs it was asked to call noisy instead of using its own threshold."""
    share = _share(summary)
    return f"{summary.get('judge')}" + ("" if share is None else f", first {percent(share)}")


def by_choice(diagnoses: Iterable[RunDiagnosis]) -> list[RunDiagnosis]:
    """Diagnoses in the order in which one of them represents its run, or its method.

    The lowest seed first; then the judge and side that the run uses itself; then judges with their own threshold
    before those with a requested share; then by name.
    """

    def order(diagnosis: RunDiagnosis) -> tuple[Any, ...]:
        share, side = _share(diagnosis.summary), _other_side(diagnosis)
        judge = str(diagnosis.summary.get("judge"))
        seed = int(diagnosis.summary.get("seed") or 0)
        return (seed, judge != diagnosis.usual[0], side != "", share is not None, judge, side, share or 0)

    return sorted(diagnoses, key=order)


def competing(data: ReportData, main: comparable.View) -> Iterator[tuple[str, RunDiagnosis]]:
    """Labels and diagnoses of the main view's runs, as `by_choice` has them; none that know the truth."""
    runs = set(main.frame["run_id"])
    for diagnosis in by_choice(data.diagnoses):
        label = data.label(diagnosis.run_id, str(diagnosis.summary["label"]))
        if diagnosis.run_id in runs and diagnosis.summary.get("judge") != ORACLE and not comparable.is_oracle(label):
            yield label, diagnosis


def label_with_judge(label: str, diagnosis: RunDiagnosis) -> str:
    """The label of a method, with the judge if it is not the run's own.

    >>> gmm = RunDiagnosis("r", {"judge": "gmm", "judge_side": "both"}, load_pairs=None, usual=("two-group", "both"))
    >>> label_with_judge("uml", gmm), label_with_judge("uml [beta=0.5]", gmm)
    ('uml [judge gmm]', 'uml [beta=0.5, judge gmm]')
    """
    side = _other_side(diagnosis)
    own_judge = str(diagnosis.summary.get("judge")) == diagnosis.usual[0]
    if own_judge and not side and _share(diagnosis.summary) is None:
        return label
    judge = ", ".join(part for part in (judge_name(diagnosis.summary), side) if part)
    return str(Label.parse(label).with_options([f"judge {judge}"]))


def _other_side(diagnosis: RunDiagnosis) -> str:
    """The side that the judge read, if it is not the run's own; empty for a judge that chooses by itself."""
    side = str(diagnosis.summary.get("judge_side") or "")
    return "" if side == diagnosis.usual[1] else side


def _share(summary: Mapping[str, Any]) -> float | None:
    share = (summary.get("split") or {}).get("share")
    return None if share is None else float(share)


def diagnoses_frame(
    summaries: Iterable[tuple[str, Mapping[str, Any]]], facts: Mapping[str, comparable.RunFacts] | None = None
) -> pd.DataFrame:
    """Puts the summaries of diagnoses, with the ids of their runs, in one frame: a row a diagnosis and language.

    Columns run_id, run, label, noise, seed, noise_seed, lang, data, noise_kind, judge, judge_side, pairs and `FIGURES`
    (shares in [0, 1], nan where the truth is unknown).
    """
    rows = []
    for run_id, whole in summaries:
        fact = (facts or {}).get(run_id) or comparable.RunFacts(str(whole.get("run")), str(whole["label"]))
        for lang, figures in (whole.get("langs") or {whole.get("lang"): {}}).items():
            summary = {**whole, **figures}
            detected, uncertainty = summary.get("detection") or {}, summary.get("uncertainty") or {}
            rows.append(
                {
                    "run_id": run_id,
                    **{name: summary.get(name) for name in ("run", "judge_side", "pairs", "share_noisy")},
                    "label": fact.label,
                    "noise": round(float(summary.get("noise") or 0.0), 6),
                    "seed": int(summary.get("seed") or 0),
                    "noise_seed": comparable.NO_NOISE if fact.noise_seed is None else fact.noise_seed,
                    "lang": lang,
                    "data": fact.data,
                    "noise_kind": fact.noise_kind,
                    "judge": judge_name(summary),
                    **{name: detected.get(name) for name in DETECTION},
                    "ece": (summary.get("calibration") or {}).get("ece"),
                    **{f"uncertainty.{side}": uncertainty.get(side) for side in ("clean", "noisy")},
                }
            )
    names = ["run_id", "run", "label", "noise", *comparable.REPLICATE, "judge", "judge_side", *FIGURES]
    frame = pd.DataFrame(rows, columns=None if rows else names)
    for name in FIGURES:
        frame[name] = pd.to_numeric(frame[name], errors="coerce").astype(float)
    keys = [name for name in ("run_id", "lang", "judge", "judge_side") if name in frame]
    return frame.drop_duplicates(keys, ignore_index=True)


def detection(frame: pd.DataFrame) -> Table:
    """How well judges find the mismatched pairs: at the threshold, over all thresholds, and as probabilities."""
    several = frame[["data", "lang"]].drop_duplicates().shape[0] > 1
    figures = {
        "recall": Column("found", "found, %", "high", scale=100),
        "false_alarms": Column("false_alarms", "false alarms, %", "low", scale=100),
        "precision": Column("precision", "precision, %", "high", scale=100),
        "f1": Column("f1", "F1, %", "high", scale=100),
        "auroc": Column("auroc", "AUROC", "high", 3),
        "average_precision": Column("average_precision", "AUPRC", "high", 3),
        "ece": Column("ece", "calibration error", "low", 3),
        "share_noisy": Column("called_noisy", "called noisy, %", scale=100),
        "uncertainty.clean": Column("uncertainty_clean", "uncertainty if called clean", digits=3),
        "uncertainty.noisy": Column("uncertainty_noisy", "if called noisy", digits=3),
    }
    language = [Column("lang", "language", text=True)] * several
    known = bool(frame[list(DETECTION)].notna().any(axis=None))
    figures = {name: column for name, column in figures.items() if known or frame[name].notna().any()}
    columns = [NOISE, *language, METHOD, Column("judge", "judge", text=True), NUMBER, *figures.values()]
    by = ["data", "lang", "noise", "noise_kind", "label", "judge", "judge_side"]
    rows = []
    for key, cells, n in means(frame, by, list(figures), counted="share_noisy"):
        data, lang, noise, kind, label, judge, side = key
        shown = f"{percent(noise)} {data}" if several else percent(noise)
        shown = ", ".join(filter(None, [shown, signature_words.unusual_noise(kind)]))
        named = str(judge) if side in _USUAL_SIDES else f"{judge}, {side}"
        head = [Cell(float(noise), shown=shown), *[Cell(lang)] * several, Cell(label), Cell(named), n]
        rows.append(Row([*head, *cells], block=f"{shown} {lang}", ceiling=judge == ORACLE))
    if not known:
        return Table("detection", "Training pairs called noisy", columns, rows, [SPREAD_NOTE])
    notes = [
        "Found: share of the mismatched pairs that the judge calls noisy. False alarms: share of the intact pairs that "
        "it calls noisy; a genuinely bad translation counts as intact here. Calibration error: mean gap between "
        "P(clean) and the share of intact pairs, over ten bins.",
        SPREAD_NOTE,
        BEST_NOTE,
    ]
    return Table("detection", "Detection of mismatched training pairs", columns, rows, notes)
