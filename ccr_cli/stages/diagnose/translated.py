"""`ccr diagnose` of a translation: finds wrongly translated captions with a judge that needs no model.

Captions of all splits are judged: a wrong translation of a validation caption is a wrong query.
"""

from typing import Any

import numpy as np
import pandas as pd

from ccr_cli import registry
from ccr_cli.artifacts import base, dataset, diagnosis, translation
from ccr_cli.artifacts.build import Build, build_artifact, recorded_as
from ccr_cli.artifacts.parquet import write_table
from ccr_cli.artifacts.workspace import stem
from ccr_cli.console import counted, say, warn
from ccr_cli.data.seeds import derive
from ccr_cli.data.tokens import word_support
from ccr_cli.errors import UsageError
from ccr_cli.judges.base import load_judge
from ccr_cli.judges.config import JudgeConfig
from ccr_cli.metrics.mtquality import evidence
from ccr_cli.stages.diagnose.options import DiagnoseOptions
from ccr_cli.stages.diagnose.stage import diagnose
from ccr_cli.stages.diagnose.suspects import with_words
from ccr_cli.stages.diagnose.verdicts import (
    CALLED,
    FLAGGED,
    JUDGED,
    RIGHT,
    SUSPICIOUS,
    UNJUDGED,
    check_share,
    figures,
    with_verdicts,
    worst_rows,
)
from ccr_cli.stages.shared import judging
from ccr_cli.stages.shared.inputs import Inputs
from ccr_cli.stages.shared.other_translations import NONE, find_others, with_others
from ccr_cli.stages.shared.triplets import training_triplets
from ccr_cli.stages.shared.witnesses import judge_config, recorded

DEFAULT_JUDGE = "fusion"
PLAINLY_WRONG = ("copy", "empty", "repetition", "untranslated")
"""Flags (`metrics.mtquality`) that put a caption right behind those not believed; a copy of names, or of words that the
engine also writes elsewhere, does not count."""


def diagnose_subject(inputs: Inputs, judged: base.Artifact, options: DiagnoseOptions) -> base.Artifact:
    """Diagnoses a run or a translation; errors as for `diagnose` and `diagnose_translation`."""
    return (diagnose if judged.kind == "run" else diagnose_translation)(inputs, judged, options)


def diagnose_translation(inputs: Inputs, translated: base.Artifact, options: DiagnoseOptions) -> base.Artifact:
    """Judges every caption of a translation, by default with `DEFAULT_JUDGE`.

    Raises:
        UsageError: If the judge needs a model, or does not allow the options.
    """
    judge = options.judge or DEFAULT_JUDGE
    declared = load_judge(judge)
    if declared.needs_model or declared.knows_truth:
        able = [n for n in registry.names("judges") if not (j := load_judge(n)).needs_model and not j.knows_truth]
        hint = f"judges of a translation: {', '.join(able)}"
        raise UsageError(f"the judge {judge} needs a run, and {translated.name} is a translation", hint=hint)
    if options.judge_side is not None:
        raise UsageError("--judge-side goes with a run: of a translation only texts are compared", hint="leave it out")
    if options.rivals is not None:
        raise UsageError("--rivals goes with a run: captions of a translation have no rivals", hint="leave it out")
    check_share(options.share)
    request: dict[str, Any] = {"judge": judge} | ({} if options.share is None else {"share": options.share})
    request |= registry.installed_source("judges", judge)
    witnesses = judge_config(options.settings, judge)
    request |= recorded(witnesses)
    data = inputs.parent(translated, "dataset")
    others, compared = [], list[str]()
    back = (translation.read(translated)["direction"] == "back").any()
    if declared.other_translations or (declared.compares_texts and not back):
        others = find_others(inputs, data, [translated], options.witness or ([NONE] if witnesses.parallel else None))
        compared = [inputs.workspace.relative(other.path) for other in others] or [NONE]
    elif options.witness:
        raise UsageError(f"the judge {judge} reads no other translations here", hint="leave --witness out")
    request |= {"witnesses": [other.id[:12] for other in others]} if others else {}
    name = options.name or stem(f"{data.name}-{translated.name}", request, {"judge": DEFAULT_JUDGE})

    def write(site: Build) -> dict[str, int]:
        return _diagnose(site, data, translated, others, witnesses)

    parents = [data, translated, *others]
    with recorded_as(options.command(inputs.workspace.relative(translated.path), name, compared)):
        return build_artifact(inputs.workspace, "diagnosis", name, request, parents, write=write, force=options.force)


def _diagnose(
    build: Build,
    data: base.Artifact,
    translated: base.Artifact,
    others: list[base.Artifact],
    witnesses: JudgeConfig,
) -> dict[str, int]:
    source, texts, lang = dataset.read(data), translation.read(translated), translation.language(translated)
    judge = load_judge(build.request["judge"])
    triplets = training_triplets(source, {lang: {"": texts}}, None, None, compared=judge.compares_texts)
    triplets = with_others(triplets, triplets.slot_ids, [lang] * len(triplets), others)
    if judge.compares_texts and others:
        triplets = triplets.select(np.flatnonzero([bool(texts) for texts in triplets.references]))
    if triplets.dropped:
        captions = source.captions_in(source.source_lang)["caption_id"]
        first = captions[~captions.isin(triplets.slot_ids)].iloc[0]
        left_out = f"{counted(triplets.dropped, 'caption')}, such as {first!r}, left out"
        warn(f"{left_out}, without a text that the judge could compare")
    say(f"{build.request['judge']}: comparing {counted(len(triplets), 'caption')} with their translations")
    opinion = judging.judge_triplets(judge, "", None, triplets, seed=derive(0, "diagnose"), config=witnesses)
    items = triplets.item_N.tolist()
    frame = pd.DataFrame({"p_vs": opinion.p.VS, "p_clean": opinion.p.VT, "p_st": opinion.p.ST}).assign(
        slot_id=triplets.slot_ids,
        source_caption_id=triplets.slot_ids,
        item_id=[triplets.item_ids[item] for item in items],
        split=source.items["split"].to_numpy()[items],
        lang=lang,
        source_text=triplets.source,
        translation=triplets.target,
        back=pd.Series(triplets.backs, dtype=object),
        support=np.minimum(*(word_support(each, items) for each in (triplets.source, triplets.target))),
    )
    by_hand = texts.loc[texts["engine"] == translation.BY_HAND, "source_caption_id"]
    plain = evidence(triplets.source, triplets.target, source.source_lang, lang)
    kinds = ((name == "copy", plain.flags[name]) for name in PLAINLY_WRONG)
    flagged = np.any([of & (plain.left_in > 0) if copy else of for copy, of in kinds if of is not None], axis=0)
    words_alone = "dictionary" in judge.reads and not {"parallel", "sentence_encoder", "scores"} & build.request.keys()
    right, rare = frame["slot_id"].isin(by_hand), frame["support"] < diagnosis.RARE
    believed = frame["p_clean"] >= diagnosis.THRESHOLD
    frame["unknown"] = rare & words_alone & believed & ~right
    tiers = {RIGHT: right, CALLED: ~believed, FLAGGED: flagged, UNJUDGED: frame["unknown"]}
    frame["tier"] = np.select([*tiers.values()], [*tiers], JUDGED)
    frame = with_verdicts(frame, build.request.get("share"))
    write_table(build.folder / "pairs.parquet", frame, diagnosis.TRANSLATED)
    worst = with_words(frame, source.source_lang, SUSPICIOUS, others, witnesses.parallel).drop(
        columns=["tier", "unknown"]
    )
    options = sorted(build.request.keys() & {"dictionary", "parallel", "sentence_encoder", "scores"})
    summary = {
        "translation": translated.name,
        "data": source.name,
        "lang": lang,
        "judge": build.request["judge"],
        "judge_side": "",
        "noise": 0.0,
        "witnesses": [other.name for other in others] + options,
        "not_judged": int((frame["verdict"] == diagnosis.NOT_JUDGED).sum()),
        **figures(frame, build.request),
        "splits": {split: figures(part, build.request) for split, part in frame.groupby("split")},
        "most_suspicious": worst_rows(worst, worst.columns.drop(["p_vs", "p_st"]).tolist()),
    }
    base.write_json(build.folder / "summary.json", summary)
    return {"pairs": len(frame), "called_noisy": summary["called_noisy"]}
