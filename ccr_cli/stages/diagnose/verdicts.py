"""Which pairs come first among the suspicious, which are called noisy, and by what threshold: all without the truth."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from ccr_cli.artifacts import diagnosis
from ccr_cli.judges.base import load_judge

DEFAULT_JUDGE = "two-group"
"""Who judges where the run's own judge reads no whole epoch."""
_READ = {"cross_lingual": "sim_st", "cross_modal": "sim_vt"}


def usual(options: Mapping[str, Any]) -> tuple[str, str]:
    """The judge of a run's pairs and the side that it reads, where nobody names others.

    Args:
        options: The options of the run.

    Raises:
        UsageError: If the run's judge is not known here.
    """
    own = str(options["judge"])
    return own if load_judge(own).speaks == "epoch" else DEFAULT_JUDGE, str(options["judge_side"])


def places(frame: pd.DataFrame) -> npt.NDArray[np.int32]:
    """The place of each pair, 1 for the most suspicious.

    Ascending by P(clean) and, where that is equal, by the similarity of caption and translation; but pairs that are
    called noisy for words that are too rare to be known come behind all others that are.

    Args:
        frame: p_clean, sim_st and support.
    """
    believed = frame["p_clean"] >= diagnosis.THRESHOLD
    rare = ~believed & (frame["support"] < diagnosis.RARE)
    order = np.lexsort([frame["sim_st"], frame["p_clean"], rare, believed])
    place = np.empty(len(order), dtype=np.int32)
    place[order] = np.arange(1, len(order) + 1)
    return place


def verdicts(frame: pd.DataFrame, share: float | None) -> npt.NDArray[np.object_]:
    """Calls pairs noisy: P(clean) below the threshold, or the first of them by place.

    Args:
        frame: p_clean and place.
        share: How many to call; None: the threshold decides.
    """
    noisy = frame["p_clean"] < diagnosis.THRESHOLD if share is None else frame["place"] <= round(share * len(frame))
    return np.where(noisy, "noisy", "clean").astype(object)


def split(frame: pd.DataFrame, judge: str, side: str, share: float | None) -> dict[str, Any]:
    """States how pairs were split, and what the mixture itself expects of that.

    Args:
        frame: The judged pairs.
        judge: Who judged.
        side: What it read.
        share: The share that was asked for.

    Returns:
        `by`: `mixture`, `votes` (judges of a batch), `truth` or `share`, and which `share`; the threshold on `p_clean`
        (of a share: the largest that was called); the threshold on the similarity, `sim_st` or `sim_vt`, where the
        judge reads one of them alone and one threshold divides all; and of a mixture `wrong`, the share that it takes
        for wrong, with the precision and recall that it `expected` of the calls. Null where nothing is called or
        nothing is wrong.
    """
    declared = load_judge(judge)
    noisy, doubt = frame["verdict"] == "noisy", 1.0 - frame["p_clean"].astype(float)
    called = frame.loc[noisy]
    found: dict[str, Any] = {
        "by": "share"
        if share is not None
        else "mixture"
        if declared.mixture
        else "truth"
        if declared.knows_truth
        else "votes"
    }
    found |= {} if share is None else {"share": share}
    found["p_clean"] = diagnosis.THRESHOLD if share is None else float(called["p_clean"].max()) if len(called) else None
    if declared.mixture and declared.takes_side and side in _READ and share is None:
        name = _READ[side]
        below, above = called[name].max(), frame.loc[~noisy, name].min()
        found[name] = float(below + above) / 2 if below <= above else None  # of languages each has its own
    if declared.mixture:
        found["wrong"] = float(doubt.mean())
        found["expected"] = {
            "precision": float(doubt[noisy].mean()) if len(called) else None,
            "recall": float(doubt[noisy].sum() / doubt.sum()) if doubt.sum() else None,
        }
    return found
