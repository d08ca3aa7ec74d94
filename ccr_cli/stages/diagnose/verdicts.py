"""The verdicts of a diagnosis of a run or a translation: the order of the pairs, and their split with its quality."""

from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from ccr_cli.artifacts import diagnosis
from ccr_cli.errors import UsageError
from ccr_cli.judges.base import load_judge
from ccr_cli.metrics.detection import belief_calibration, detection

CALLED, FLAGGED, JUDGED, UNJUDGED, RIGHT = range(5)
"""Tiers of translated captions, the most suspicious first: not believed, plainly wrong, other judged ones, without
known words, corrected by a person."""
SUSPICIOUS = 20
"""Pairs that a summary lists."""
_READ = {"cross_lingual": "sim_st", "cross_modal": "sim_vt"}


def check_share(share: float | None) -> None:
    """Refuses a share that is not between 0 and 1 (UsageError)."""
    if share is not None and not 0 < share < 1:
        raise UsageError(f"--share is a fraction between 0 and 1, not {share:g}", hint="--share 0.05 calls 5 % noisy")


def with_verdicts(frame: pd.DataFrame, share: float | None) -> pd.DataFrame:
    """Adds `place` and `verdict`: noisy for pairs not believed or, with `share`, for that first fraction instead.

    Other pairs that are marked in the column `unknown`, if there is one, are not judged.
    """
    frame["place"] = places(frame)
    noisy = frame["p_clean"] < diagnosis.THRESHOLD if share is None else frame["place"] <= round(share * len(frame))
    other = np.where(frame["unknown"], diagnosis.NOT_JUDGED, "clean") if "unknown" in frame else "clean"
    frame["verdict"] = np.where(noisy, "noisy", other).astype(object)
    return frame


def places(frame: pd.DataFrame) -> npt.NDArray[np.int32]:
    """The place of each pair, 1 for the most suspicious: by P(clean) and, where that is equal, by `sim_st` if known.

    Noisy pairs with rare words, of which a model knows little, come after all other noisy pairs. A lower `tier`, if
    there is that column, comes before all higher ones.
    """
    believed = frame["p_clean"] >= diagnosis.THRESHOLD
    rare = ~believed & (frame["support"] < diagnosis.RARE)
    ties = [frame["sim_st"]] if "sim_st" in frame else []
    tiers = [frame["tier"]] if "tier" in frame else []
    order = np.lexsort([*ties, frame["p_clean"], rare, believed, *tiers])
    return (np.argsort(order) + 1).astype(np.int32)


def split_facts(frame: pd.DataFrame, judge: str, side: str, share: float | None) -> dict[str, Any]:
    """Describes how pairs were split: by `mixture`, `votes` (judges of a batch), `truth` or `share`.

    Has the threshold on `p_clean` (for a share: the largest value called noisy); the threshold on `sim_st` or `sim_vt`,
    if the judge reads only that similarity and one threshold divides all pairs; and for a mixture the fraction `wrong`
    and the `expected` precision and recall. A value is null if nothing is called noisy or nothing is wrong.
    """
    declared = load_judge(judge)
    noisy, p_noisy = frame["verdict"] == "noisy", 1.0 - frame["p_clean"].astype(float)
    called = frame.loc[noisy]
    by = "mixture" if declared.mixture else "truth" if declared.knows_truth else "votes"
    facts: dict[str, Any] = {"by": by} if share is None else {"by": "share", "share": share}
    facts["p_clean"] = diagnosis.THRESHOLD if share is None else float(called["p_clean"].max()) if len(called) else None
    if declared.mixture and declared.takes_side and side in _READ and share is None:
        name = _READ[side]
        below, above = called[name].max(), frame.loc[~noisy, name].min()
        facts[name] = float(below + above) / 2 if below <= above else None  # each language has its own
    if declared.mixture:
        facts["wrong"] = float(p_noisy.mean())
        facts["expected"] = {
            "precision": float(p_noisy[noisy].mean()) if len(called) else None,
            "recall": float(p_noisy[noisy].sum() / p_noisy.sum()) if p_noisy.sum() else None,
        }
    return facts


def figures(frame: pd.DataFrame, request: dict[str, Any]) -> dict[str, Any]:
    """The figures of all pairs, or of those of one language or split."""
    truth = frame.get("truth", pd.Series(None, index=frame.index, dtype=object))
    noisy, share, known = frame["verdict"] == "noisy", request.get("share"), bool(truth.notna().all())
    called = diagnosis.THRESHOLD if share is None else noisy
    by_verdict: Any = frame.groupby("verdict")["uncertainty"].mean() if "uncertainty" in frame else {}
    return {
        "split": split_facts(frame, request["judge"], request.get("judge_side", ""), share),
        "pairs": len(frame),
        "called_noisy": int(noisy.sum()),
        "called_noisy_rare": int((noisy & (frame["support"] < diagnosis.RARE)).sum()),
        "share_noisy": float(noisy.mean()),
        "detection": detection(frame["p_clean"], truth != "clean", called) if known else None,
        "calibration": belief_calibration(frame["p_clean"], truth != "clean") if known else None,
        "uncertainty": {v: float(by_verdict[v]) if v in by_verdict else None for v in ("clean", "noisy")},
    }


def worst_rows(pairs: pd.DataFrame, columns: list[str], count: int = SUSPICIOUS) -> list[dict[str, Any]]:
    """Lists some columns of the `count` most suspicious pairs, by default as many as a summary has; null is None."""
    shown = pairs.sort_values("place").head(count)[columns]
    rows: Any = shown.astype(object).where(shown.notna(), None).to_dict("records")
    return list(rows)
