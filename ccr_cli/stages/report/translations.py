"""The translations that a report shows, with their English, their way back and what people wrote."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from functools import partial

import pandas as pd

from ccr_cli.artifacts import base, dataset, translation
from ccr_cli.artifacts.parquet import artifact_table
from ccr_cli.console import warn
from ccr_cli.errors import ArtifactError
from ccr_cli.report.content import ReportTranslation
from ccr_cli.stages.shared.inputs import Inputs
from ccr_cli.stages.translate.quality import references

_TEXTS = ["source_caption_id", "split", "direction", "text"]


def gather_translations(
    inputs: Inputs, runs: Iterable[base.Artifact]
) -> tuple[list[ReportTranslation], list[base.Artifact]]:
    """Takes the translations given, and those that runs were trained on; with nothing given, all of the workspace.

    Args:
        inputs: What was given.
        runs: The runs that the report is on.

    Returns:
        What to show, and the artifacts that it is from.

    Raises:
        ArtifactError: If one that was given does not fit its data set any more.
    """
    found = {a.id: a for a in inputs.given if a.kind == "translation"}
    given = set(found)
    if not inputs.given:
        found |= {a.id: a for a in inputs.all("translation")}
    for run in runs:
        for link in run.parents:
            if link.kind == "translation" and link.id not in found:
                try:
                    found[link.id] = inputs.workspace.linked(run, link)
                except ArtifactError as error:
                    warn(f"{link.path} is left out: {error.message}")
    made, kept = [], []
    for artifact in sorted(found.values(), key=lambda a: a.path):
        try:
            made.append(_translation(inputs, artifact))
        except ArtifactError as error:
            if artifact.id in given:
                raise
            warn(f"{artifact.name} is left out: {error.message}")
            continue
        inputs.note(artifact)
        kept.append(artifact)
    made = sorted(_told_apart(made, kept), key=lambda each: (each.data, each.lang, each.label))
    return made, kept


def _translation(inputs: Inputs, artifact: base.Artifact) -> ReportTranslation:
    if not translation.has_quality(artifact):
        raise ArtifactError(
            f"{artifact.path} was made before ccr said of every caption what is wrong with it",
            hint="make it again: ccr translate --force",
        )
    source = inputs.parent(artifact, "dataset")
    engine, model = str(artifact.request["engine"]), _model(artifact)
    label = model if engine == "recorded" and model else f"{engine} {model}".strip()
    rounds = int(artifact.request.get("rounds", 1))
    label += f" ({rounds} rounds)" if rounds > 1 else ""
    label += " (of some captions)" if "only" in artifact.request else ""
    lang, load = translation.language(artifact), partial(_captions, artifact, source)
    return ReportTranslation(label, source.name, lang, translation.quality(artifact), load, _texts(artifact))


def _texts(artifact: base.Artifact) -> dict[str, str]:
    """What the forward captions of each split hash to."""
    frame = artifact_table(artifact, "captions.parquet", translation.CAPTIONS, _TEXTS)
    rows = frame[frame["direction"] == "forward"].sort_values("source_caption_id")
    return {
        str(split): base.sha256_text(base.canonical_json([list(part["source_caption_id"]), list(part["text"])]))
        for split, part in rows.groupby("split")
    }


def _model(artifact: base.Artifact) -> str:
    """The model that made the forward translation, as the engine named it."""
    told = (artifact.about.get("environment") or {}).get("engine.forward") or {}
    return str(told.get("model") or "")


def _told_apart(made: list[ReportTranslation], artifacts: list[base.Artifact]) -> list[ReportTranslation]:
    """Adds the artifact's name where two of one data set and language are called the same."""
    names = [(each.data, each.lang, each.label) for each in made]
    return [
        replace(each, label=f"{each.label} [{artifact.name}]") if names.count(name) > 1 else each
        for each, name, artifact in zip(made, names, artifacts, strict=True)
    ]


def _captions(artifact: base.Artifact, data: base.Artifact) -> pd.DataFrame:
    """The forward captions as `material.Translation.load` gives them."""
    source = dataset.read(data)
    frame = translation.read(artifact)
    back = frame[frame["direction"] == "back"].set_index("source_caption_id")["text"]
    rows = frame[frame["direction"] == "forward"].merge(translation.read_quality(artifact), on="caption_id")
    human, _ = references(source, source.source_lang, translation.language(artifact))
    wrote = {caption: texts[0] for each in human for caption, texts in each.of.items()}
    text_of = source.captions.set_index("caption_id")["text"]
    known = {"back": rows["caption_id"].map(back), "human": rows["source_caption_id"].map(wrote)}
    texts = {name: each.astype(object).where(each.notna(), None) for name, each in known.items()}
    return rows.assign(source=rows["source_caption_id"].map(text_of), **texts)
