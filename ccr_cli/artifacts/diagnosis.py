"""diagnosis: the belief in every training pair of a run, or in every caption pair of a translation."""

from collections.abc import Mapping
from typing import Any

import pandas as pd

from ccr_cli.artifacts.base import Artifact
from ccr_cli.artifacts.parquet import artifact_table, table_schema
from ccr_cli.artifacts.run import ALTERNATIVE

PAIRS = table_schema(
    "slot_id string, source_caption_id string, item_id string, lang string, source_text string, translation string, "
    "back string?, sim_vs float32, sim_vt float32, sim_st float32, evidence_v2t float32, evidence_t2v float32, "
    "belief float32, uncertainty float32, p_vs float32, p_clean float32, p_st float32, place int32, support int32, "
    "verdict string, truth string?, p_first float32?, p_last float32?, p_mean float32?, sim_first float32?, "
    "sim_last float32?, sim_mean float32?, epochs_noisy int32?, forgotten int32?"
)
"""`slot_id` is the caption whose place the pair takes in training, `source_caption_id` the caption used there: the same
unless synthetic noise switched it. `place` 1 is the most suspicious pair. `support` is the number of other items that
share the most common word of each text, the lesser of the two: below `RARE` there is little evidence either way.
`verdict` is clean or noisy; `truth`, that of the picture and the translation, may also be `partly` (wrong, noise style
`words`). `truth` is null without synthetic noise, `back` without a back-translation."""
TRANSLATED = table_schema(
    "slot_id string, source_caption_id string, item_id string, split string, lang string, source_text string, "
    "translation string, back string?, p_vs float32, p_clean float32, p_st float32, place int32, support int32, "
    "verdict string"
)
"""Columns for a translation judged without a run: captions of every split, and nothing that needs a model."""
ALTERNATIVES = PAIRS.insert(PAIRS.names.index("lang") + 1, ALTERNATIVE)
"""`PAIRS` with the name of each pair's translation, for runs with several translations of one language."""
TRAJECTORY = PAIRS.names[-8:]
"""Summary of the pair's values after each epoch of training; null if the run recorded none."""

THRESHOLD = 0.5
"""A pair is noisy if its P(clean) is below: its score is then more probable under the mixture's wrong component."""
WITHOUT_SIDE = ("oracle", "translation", "triangle")
"""Judges that take no `judge_side`, because they choose what they read."""
NOT_JUDGED = "not judged"
"""The verdict on a translated caption with too few known words."""
RARE = 3


def summary(artifact: Artifact) -> dict[str, Any]:
    """Reads the summary of a diagnosis; early versions name a side for judges that take none."""
    value = artifact.json("summary.json")
    return value | {"judge_side": ""} if value.get("judge") in WITHOUT_SIDE else value


def subject(summary: dict[str, Any]) -> str:
    """Returns the name of the run or the translation that was judged."""
    return str(summary["run"] if "run" in summary else summary["translation"])


def judge(summary: Mapping[str, Any]) -> str:
    """Returns the judge with the side that it read, and the other translations and options that it used."""
    side, witnesses = summary["judge_side"], ", ".join(summary.get("witnesses") or ())
    return f"{summary['judge']}{f' ({side})' if side else ''}{f' with {witnesses}' if witnesses else ''}"


def judged(summary: dict[str, Any]) -> str:
    """Returns what the pairs of a diagnosis are called."""
    return "training pair" if "run" in summary else "translated caption"


def read_pairs(artifact: Artifact, columns: list[str] | None = None) -> pd.DataFrame:
    """Reads the judged pairs: the columns of `PAIRS`, `ALTERNATIVES` or `TRANSLATED`, or some of them."""
    of_one = ALTERNATIVES if "translations" in artifact.json("summary.json") else PAIRS
    return artifact_table(artifact, "pairs.parquet", of_one if of_run(artifact) else TRANSLATED, columns)


def of_run(artifact: Artifact) -> bool:
    """Whether a run's pairs were judged; else those of a translation."""
    return artifact.has_parent("run")
