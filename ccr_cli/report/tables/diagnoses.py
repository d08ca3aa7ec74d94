"""What many diagnoses found, side by side."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import pandas as pd

from ccr_cli.report.tables import judge_choice, results

DETECTION = ("recall", "false_alarms", "precision", "f1", "auroc", "average_precision")
FIGURES = (*DETECTION, "ece", "share_noisy", "uncertainty.clean", "uncertainty.noisy")
"""Columns of a diagnoses frame that hold a figure."""


def diagnoses_frame(
    summaries: Iterable[tuple[str, Mapping[str, Any]]], facts: Mapping[str, results.RunFacts] | None = None
) -> pd.DataFrame:
    """Puts the summaries of diagnoses in one frame, a row a diagnosis; of several languages one each.

    Args:
        summaries: The id of the run and the content of `summary.json`.
        facts: What is known of the runs, by id.

    Returns:
        Columns run_id, run, label, noise, seed, noise_seed, lang, data, noise_kind, judge, judge_side, pairs and
        `FIGURES` (shares in [0, 1], nan where the truth is not known).
    """
    rows = []
    for run_id, lang, summary in _by_language(summaries):
        fact = (facts or {}).get(run_id) or results.RunFacts(str(summary.get("run")), str(summary["label"]))
        found, uncertainty = summary.get("detection") or {}, summary.get("uncertainty") or {}
        rows.append(
            {
                "run_id": run_id,
                "run": summary.get("run"),
                "label": fact.label,
                "noise": round(float(summary.get("noise") or 0.0), 6),
                "seed": int(summary.get("seed") or 0),
                "noise_seed": results.NO_NOISE if fact.noise_seed is None else fact.noise_seed,
                "lang": lang,
                "data": fact.data,
                "noise_kind": fact.noise_kind,
                "judge": judge_choice.judge(summary),
                "judge_side": summary.get("judge_side"),
                "pairs": summary.get("pairs"),
                "share_noisy": summary.get("share_noisy"),
                **{name: found.get(name) for name in DETECTION},
                "ece": (summary.get("calibration") or {}).get("ece"),
                **{f"uncertainty.{side}": uncertainty.get(side) for side in ("clean", "noisy")},
            }
        )
    names = ["run_id", "run", "label", "noise", *results.REPLICATE, "judge", "judge_side", *FIGURES]
    frame = pd.DataFrame(rows, columns=None if rows else names)
    for name in FIGURES:
        frame[name] = pd.to_numeric(frame[name], errors="coerce").astype(float)
    return frame.drop_duplicates([name for name in _TOLD if name in frame], ignore_index=True)


_TOLD = ("run_id", "lang", "judge", "judge_side")


def _by_language(
    summaries: Iterable[tuple[str, Mapping[str, Any]]],
) -> Iterator[tuple[str, Any, Mapping[str, Any]]]:
    for run_id, summary in summaries:
        each_of = summary.get("langs") or {summary.get("lang"): {}}
        for lang, figures in each_of.items():
            yield run_id, lang, {**summary, **figures}
