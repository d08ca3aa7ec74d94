"""How every training pair fared from epoch to epoch.

Shape suffixes: N pairs, E epochs.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from ccr_cli.artifacts import base, diagnosis, run


def trajectories(trained: base.Artifact, slot_ids: Sequence[str], lang: str) -> pd.DataFrame:
    """Sums up what the run wrote of each pair after every epoch.

    A pair is *forgotten* each time that an epoch calls it noisy after the one before called it clean, as Toneva et al.
    (ICLR 2019) count forgetting events; there what is learned is a class, here that the pair matches.

    Args:
        trained: The run.
        slot_ids: Of N pairs.
        lang: Of their translations.

    Returns:
        `diagnosis.TRAJECTORY`, N rows; null where the run wrote nothing of a pair, as with the judge `none`.
    """
    epochs = [frame for _, frame in run.evidence(trained, lang)]
    empty = pd.DataFrame(np.nan, index=range(len(slot_ids)), columns=diagnosis.TRAJECTORY)
    if not epochs:
        return _counted(empty)
    wanted = list(slot_ids)
    ordered = [f if list(f["slot_id"]) == wanted else f.set_index("slot_id").reindex(wanted) for f in epochs]
    p_EN, sim_EN = (np.stack([frame[name].to_numpy(float) for frame in ordered]) for name in ("p_clean", "sim_vt"))
    noisy_EN = p_EN < diagnosis.THRESHOLD
    found = {
        "p_first": p_EN[0],
        "p_last": p_EN[-1],
        "p_mean": p_EN.mean(axis=0),
        "sim_first": sim_EN[0],
        "sim_last": sim_EN[-1],
        "sim_mean": sim_EN.mean(axis=0),
        "epochs_noisy": noisy_EN.sum(axis=0),
        "forgotten": (noisy_EN[1:] & ~noisy_EN[:-1]).sum(axis=0),
    }
    known_N = np.isfinite(p_EN).all(axis=0)
    return _counted(pd.DataFrame({name: np.where(known_N, column, np.nan) for name, column in found.items()}))


def _counted(frame: pd.DataFrame) -> pd.DataFrame:
    return frame.astype({name: "Int32" if name in ("epochs_noisy", "forgotten") else np.float32 for name in frame})
