"""run: a trained model, how it was trained, and its belief in every training pair.

Files: `config.json`, `history.jsonl` (one line per epoch), `model.safetensors` (best epoch on validation),
`tokenizer/`, `last/` (the state to resume from), `evidence/epoch-NNN.parquet`, `stopped.json` (training ended early).
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any

import pandas as pd
import pyarrow as pa

from ccr_cli.artifacts.base import Artifact, Parent, portable_values
from ccr_cli.artifacts.parquet import read_table, table_schema
from ccr_cli.errors import ArtifactError

STOPPED = "stopped.json"
"""Why training ended early and which epoch was kept; absent otherwise."""
EVIDENCE = table_schema("slot_id string, sim_vs float32, sim_vt float32, sim_st float32, p_clean float32")
"""Cosine similarities of each training triplet's sides and the judge's probability that V and T match."""
_SEED = re.compile(r"-seed\d+(?=-|$)")
LANG, ALTERNATIVE = (pa.field(name, pa.string(), nullable=False) for name in ("lang", "alternative"))
"""Language and name of the translation: columns of a table of triplets if a run has several languages, or several
translations of one."""


def evidence_schema(request: Mapping[str, Any]) -> pa.Schema:
    """The schema of a run's evidence: `EVIDENCE`, with `lang` and `alternative` as far as there are several."""
    schema = EVIDENCE.insert(1, ALTERNATIVE) if "alternatives" in request else EVIDENCE
    return schema.insert(1, LANG) if len(langs(request)) > 1 else schema


def translation_links(artifact: Artifact) -> tuple[dict[str, list[Parent]], Parent | None]:
    """Returns a run's training translations by language, and the second one that its judge compared, if any."""
    links, languages = [p for p in artifact.parents if p.kind == "translation"], langs(artifact.request)
    if "alternatives" in artifact.request:
        link_of = {link.id: link for link in links}
        return {lang: [link_of[i] for i in ids] for lang, ids in artifact.request["alternatives"].items()}, None
    second = links[-1] if len(links) > len(languages) else None
    return {lang: [link] for lang, link in zip(languages, links, strict=False)}, second


def langs(config: Mapping[str, Any]) -> tuple[str, ...]:
    """The target languages of a run, in alphabetical order, by its config.json or its request."""
    lang = config["lang"]
    return (lang,) if isinstance(lang, str) else tuple(lang)


def config(artifact: Artifact) -> dict[str, Any]:
    """Reads the effective configuration of a run; local models are given by the names of their folders alone.

    Features and a teacher run are given by name, the teacher's without its seed, because each seed has its own teacher.
    """
    settings: dict[str, Any] = portable_values(artifact.json("config.json"), artifact.path)
    for link in artifact.parents:
        name = link.path.rpartition("/")[2]
        if link.kind == "features":
            settings["features"] = name
        elif link.kind == "run" and "teacher" in settings.get("options", {}):
            settings["options"]["teacher"] = _SEED.sub("", name)
    return settings


def stopped(artifact: Artifact) -> str:
    """Why training ended early; empty if it did not."""
    return str(artifact.json(STOPPED)["why"]) if artifact.has(STOPPED) else ""


def history(artifact: Artifact) -> pd.DataFrame:
    """Reads the training history, one row per epoch; loss terms are columns `loss.NAME`.

    Raises:
        ArtifactError: If it is malformed, or lacks the epoch that was kept.
    """
    frame = pd.json_normalize(artifact.jsonl("history.jsonl"))
    epochs, best = frame.get("epoch", pd.Series(dtype=int)), artifact.counts.get("best_epoch", 0)
    if best and best not in set(epochs):
        raise ArtifactError(f"{artifact.path / 'history.jsonl'} lacks epoch {best}", hint=artifact.rebuild_hint())
    return frame.assign(epoch=epochs)


def evidence(artifact: Artifact, lang: str = "", alternative: str = "") -> Iterator[tuple[int, pd.DataFrame]]:
    """Reads what a run recorded of every training pair after each epoch; nothing if its judge is `none`.

    Yields the epoch and its table (`evidence_schema`): of one language or translation, or of all.
    """
    schema = evidence_schema(artifact.request)
    for name in sorted(entry.path for entry in artifact.files if entry.path.startswith("evidence/epoch-")):
        number = int(name.removeprefix("evidence/epoch-").removesuffix(".parquet"))
        frame = read_table(artifact.file(name), schema)
        for column, value in (("lang", lang), ("alternative", alternative)):
            if value and column in frame:
                frame = frame[frame[column] == value].reset_index(drop=True)
        yield number, frame
