"""Breakdowns of a result: by the length of the query, and by how well the query itself was translated.

Shape suffix: Q queries.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from ccr_cli.artifacts import base, translation
from ccr_cli.metrics import breakdown
from ccr_cli.metrics.ranks import Ranks
from ccr_cli.stages.shared.scoring import Scores
from ccr_cli.stages.shared.triplets import Gallery

CHRF, FLAGGED = "reference_chrf", "flagged"


def with_quality(artifact: base.Artifact) -> pd.DataFrame:
    """The captions of a translation with what is known of each: `reference_chrf`, and whether it is `flagged`."""
    frame = translation.read(artifact)
    if not translation.has_quality(artifact):
        return frame.assign(**{CHRF: np.nan, FLAGGED: False})
    known = translation.read_quality(artifact)
    known[FLAGGED] = known[list(translation.FLAGS)].any(axis=1)
    return frame.merge(known[["caption_id", CHRF, FLAGGED]], on="caption_id", how="left")


def breakdowns(
    folds: Sequence[tuple[Gallery, Scores]], lang: str, translations: pd.DataFrame | None, tie: str
) -> dict[str, Any]:
    """The figures of groups of captions as queries; those of all folds together, each with its rank in its own.

    Args:
        folds: Each fold with its scores.
        lang: Language of the queries.
        translations: What `with_quality` gives of translated queries, where there are any.
        tie: mid, optimistic or pessimistic.

    Returns:
        `length`: `unit` and `groups`; `translation`, where queries were translated: `flagged`, `not_flagged`, and by
        chrF against human captions, where that is known, `groups`.
    """
    ranks: list[Ranks] = [scores.ranks_t2v for _, scores in folds]
    valid_Q = np.concatenate([each.valid for each in ranks])
    rank_Q = np.concatenate([each.rank(tie) for each in ranks])[valid_Q]
    ap_Q = np.concatenate([each.ap(tie) for each in ranks])[valid_Q]
    length_Q, unit = breakdown.lengths([text for found, _ in folds for text in found.texts], lang)
    out: dict[str, Any] = {
        "length": {"unit": unit, "groups": breakdown.by_value(length_Q[valid_Q], rank_Q, ap_Q)},
    }
    if translations is None or CHRF not in translations:
        return out
    mine = translations[(translations["direction"] == "query") & (translations["status"] == "ok")]
    mine = mine.drop_duplicates("source_caption_id").set_index("source_caption_id")
    mine = mine.reindex([caption for found, _ in folds for caption in found.caption_ids])[valid_Q]
    known_Q = mine["status"].notna().to_numpy()
    if known_Q.any():
        flagged_Q = (mine[FLAGGED].eq(True)).to_numpy()
        out["translation"] = {
            "flagged": breakdown.figures(rank_Q, ap_Q, known_Q & flagged_Q),
            "not_flagged": breakdown.figures(rank_Q, ap_Q, known_Q & ~flagged_Q),
            "groups": breakdown.by_value(mine[CHRF].to_numpy(np.float64), rank_Q, ap_Q, 4),
        }
    return out
