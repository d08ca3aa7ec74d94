"""noise: the deliberately mismatched training triplets, one row per triplet."""

import pandas as pd
import pyarrow as pa

from ccr_cli.artifacts.base import Artifact
from ccr_cli.artifacts.parquet import artifact_table, table_schema

PAIRS = table_schema(
    "slot_id string, given_item_id string, given_source_id string, given_translation_of string, vs_wrong bool, "
    "vt_wrong bool, st_wrong bool"
)
"""`slot_id` is the source caption whose place the triplet takes; `given_*` is what it holds instead."""
WORDS_OF = "words_of"
"""Column of the style `words`: the caption whose translation's words are mixed in; null where none are."""
PARTLY = PAIRS.append(pa.field(WORDS_OF, pa.string()))


def schema(style: str) -> pa.Schema:
    """Returns the columns of a noise style."""
    return PARTLY if style == "words" else PAIRS


def read(artifact: Artifact) -> pd.DataFrame:
    """Reads the pairs of a noise artifact."""
    return artifact_table(artifact, "pairs.parquet", schema(str(artifact.request["style"])))
