"""The translations of a report, with source, back-translation and human references of every caption."""

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
    """Reads the given translations and those of runs; without given artifacts, all of the workspace.

    Args:
        inputs: The given artifacts.
        runs: The runs of the report.

    Returns:
        The translations, and their artifacts.

    Raises:
        ArtifactError: If a given one does not fit its data set any more.
    """
    chosen = {a.id: a for a in inputs.named if a.kind == "translation"}
    explicit = set(chosen)
    if not inputs.named:
        chosen |= {a.id: a for a in inputs.all("translation")}
    for run in runs:
        for link in run.parents:
            if link.kind == "translation" and link.id not in chosen:
                try:
                    chosen[link.id] = inputs.workspace.linked(run, link)
                except ArtifactError as error:
                    warn(f"{link.path} is left out: {error.message}")
    translations, artifacts = [], []
    for artifact in sorted(chosen.values(), key=lambda a: a.path):
        try:
            translations.append(_translation(inputs, artifact))
        except ArtifactError as error:
            if artifact.id in explicit:
                raise
            warn(f"{artifact.name} is left out: {error.message}")
            continue
        inputs.note(artifact)
        artifacts.append(artifact)
    names = [(t.data, t.lang, t.label) for t in translations]
    unique = [
        replace(t, label=f"{t.label} [{artifact.name}]") if names.count(name) > 1 else t
        for t, name, artifact in zip(translations, names, artifacts, strict=True)
    ]
    return sorted(unique, key=lambda t: (t.data, t.lang, t.label)), artifacts


def _translation(inputs: Inputs, artifact: base.Artifact) -> ReportTranslation:
    if not translation.has_quality(artifact):
        raise ArtifactError(
            f"{artifact.path} was made by an older ccr, which did not measure quality",
            hint="make it again: ccr translate --force",
        )
    source = inputs.parent(artifact, "dataset")
    engine = str(artifact.request["engine"])
    environment = (artifact.about.get("environment") or {}).get("engine.forward") or {}
    model = str(environment.get("model") or "")
    label = model if engine == "recorded" and model else f"{engine} {model}".strip()
    rounds = int(artifact.request.get("rounds", 1))
    label += f" ({rounds} rounds)" if rounds > 1 else ""
    label += " (of some captions)" if "only" in artifact.request else ""
    lang, load = translation.language(artifact), partial(_captions, artifact, source)
    return ReportTranslation(label, source.name, lang, translation.quality(artifact), load, _texts(artifact))


def _texts(artifact: base.Artifact) -> dict[str, str]:
    """Hash of the forward captions of each split."""
    frame = artifact_table(artifact, "captions.parquet", translation.CAPTIONS, _TEXTS)
    rows = frame[frame["direction"] == "forward"].sort_values("source_caption_id")
    return {
        str(split): base.sha256_text(base.canonical_json([list(part["source_caption_id"]), list(part["text"])]))
        for split, part in rows.groupby("split")
    }


def _captions(artifact: base.Artifact, data: base.Artifact) -> pd.DataFrame:
    """The forward captions as `ReportTranslation.load` returns them."""
    source = dataset.read(data)
    frame = translation.read(artifact)
    back = frame[frame["direction"] == "back"].set_index("source_caption_id")["text"]
    rows = frame[frame["direction"] == "forward"].merge(translation.read_quality(artifact), on="caption_id")
    human, _ = references(source, source.source_lang, translation.language(artifact))
    reference_of = {caption: texts[0] for known in human for caption, texts in known.of.items()}
    text_of = source.captions.set_index("caption_id")["text"]
    known = {"back": rows["caption_id"].map(back), "human": rows["source_caption_id"].map(reference_of)}
    texts = {name: column.astype(object).where(column.notna(), None) for name, column in known.items()}
    return rows.assign(source=rows["source_caption_id"].map(text_of), **texts)
