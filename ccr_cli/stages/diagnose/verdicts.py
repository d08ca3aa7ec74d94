"""The order of the suspicious pairs, which of them are called noisy, and by what threshold: all without the truth."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from ccr_cli.artifacts import diagnosis
from ccr_cli.judges.base import load_judge

DEFAULT_JUDGE = "two-group"
"""The judge where the run's own does not judge after each epoch."""
_READ = {"cross_lingual": "sim_st", "cross_modal": "sim_vt"}


def usual(options: Mapping[str, Any]) -> tuple[str, str]:
    """The default judge of a run's pairs and the side that it reads; UsageError if the judge is not known here."""
    own = str(options["judge"])
    return own if load_judge(own).speaks == "epoch" else DEFAULT_JUDGE, str(options["judge_side"])


def places(frame: pd.DataFrame) -> npt.NDArray[np.int32]:
    """The place of each pair, 1 for the most suspicious, from p_clean, sim_st and support.

    Ascending by P(clean) and, where that is equal, by the similarity of caption and translation; but noisy pairs with
    rare words, of which a model knows little, come after all other noisy pairs.
    """
    believed = frame["p_clean"] >= diagnosis.THRESHOLD
    rare = ~believed & (frame["support"] < diagnosis.RARE)
    order = np.lexsort([frame["sim_st"], frame["p_clean"], rare, believed])
    place = np.empty(len(order), dtype=np.int32)
    place[order] = np.arange(1, len(order) + 1)
    return place


def verdicts(frame: pd.DataFrame, share: float | None) -> npt.NDArray[np.object_]:
    """Calls pairs noisy: P(clean) below the threshold, or this share of them, the first by place."""
    noisy = frame["p_clean"] < diagnosis.THRESHOLD if share is None else frame["place"] <= round(share * len(frame))
    return np.where(noisy, "noisy", "clean").astype(object)


def split(frame: pd.DataFrame, judge: str, side: str, share: float | None) -> dict[str, Any]:
    """Describes how pairs were split, and the precision and recall that a mixture expects of that.

    Returns:
        `by`: `mixture`, `votes` (judges of a batch), `truth` or `share`, with the `share`; the threshold on `p_clean`
            (for a share: the largest value called noisy); the threshold on the similarity, `sim_st` or `sim_vt`, if the
            judge reads one of them alone and one threshold divides all; and for a mixture `wrong`, the fraction that it
            considers wrong, with the `expected` precision and recall of the calls. Null if nothing is called noisy or
            nothing is wrong.
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
        facts[name] = float(below + above) / 2 if below <= above else None  # of languages each has its own
    if declared.mixture:
        facts["wrong"] = float(p_noisy.mean())
        facts["expected"] = {
            "precision": float(p_noisy[noisy].mean()) if len(called) else None,
            "recall": float(p_noisy[noisy].sum() / p_noisy.sum()) if p_noisy.sum() else None,
        }
    return facts
