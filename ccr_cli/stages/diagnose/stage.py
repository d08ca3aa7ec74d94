"""`ccr diagnose` of a run: the training pairs that its model considers mismatched, and how often that is right.

Shape suffixes: N triplets, V visual items, Q queries, K candidates, D embedding, E epochs, B a block.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import torch
from torch import Tensor

from ccr_cli import registry
from ccr_cli.artifacts import base, dataset, diagnosis, noise, run, translation
from ccr_cli.artifacts.build import Build, build_artifact, recorded_as
from ccr_cli.artifacts.parquet import write_table
from ccr_cli.artifacts.workspace import stem
from ccr_cli.console import counted, progress, say, warn
from ccr_cli.data.frames import Frames, places_of
from ccr_cli.data.seeds import derive
from ccr_cli.data.tokens import word_support
from ccr_cli.errors import UsageError
from ccr_cli.judges.base import Opinion, load_judge
from ccr_cli.judges.config import JudgeConfig
from ccr_cli.losses.evidential import dirichlet
from ccr_cli.stages.diagnose.options import DiagnoseOptions
from ccr_cli.stages.diagnose.rivals import BLOCK, SEARCHES, Search
from ccr_cli.stages.diagnose.verdicts import check_share, figures, with_verdicts, worst_rows
from ccr_cli.stages.shared import judging
from ccr_cli.stages.shared.embedding import choose_device
from ccr_cli.stages.shared.inputs import Inputs, latest, made_from, refuse_unread
from ccr_cli.stages.shared.load_run import load_method, method_label, run_settings, translations_of
from ccr_cli.stages.shared.options import configure
from ccr_cli.stages.shared.other_translations import NONE, find_others, with_others
from ccr_cli.stages.shared.text_encoders import readable_texts
from ccr_cli.stages.shared.triplets import PARTLY, Triplets, training_triplets, without
from ccr_cli.stages.shared.witnesses import judge_config, recorded

MOST_PAIRS = 300_000
"""Training pairs of a translation up to which the search for rivals is exact by default."""
DEFAULT_JUDGE = "two-group"
"""The judge if the run's own does not judge after each epoch."""


def usual_judge(trained: base.Artifact) -> tuple[str, str]:
    """The default judge of a run's pairs and the side that it reads; UsageError if the judge is not known here.

    Without translations, captions are their own translations, so they are compared with the picture.
    """
    options = run.config(trained)["options"]
    own, side = str(options["judge"]), str(options["judge_side"])
    side = side if trained.has_parent("translation") else "cross_modal"
    return own if load_judge(own).speaks == "epoch" else DEFAULT_JUDGE, side


def subjects(inputs: Inputs) -> list[base.Artifact]:
    """Finds what to diagnose: named runs, else named translations, else the workspace's run, else its translation.

    Raises:
        ArtifactError: If there is none, or several fit.
    """
    for kind in ("run", "translation"):
        if len(named := latest(inputs.of_kind(kind))) > 1:
            return named
        if named:
            return [inputs.one(kind, "")]
    if trained := inputs.maybe("run", ""):
        return [trained]
    data = inputs.of_kind("dataset")
    hint = "ccr translate --lang LANG"
    found = inputs.one("translation", "", lambda a: not data or made_from(*data)(a), hint=hint)
    say(f"without a run: diagnosing the translation {inputs.workspace.relative(found.path)}")
    return [found]


def diagnose(inputs: Inputs, trained: base.Artifact, options: DiagnoseOptions) -> base.Artifact:
    """Judges every training pair of a run with its best model, by default with the run's own judge and side.

    Raises:
        UsageError: If the command line names other data than the run's, or run or judge do not allow the options.
    """
    refuse_unread(inputs, trained)
    settings = run_settings(trained)
    method = settings["method"]
    config = configure(registry.load("methods", method).Config, settings["options"], method)
    if config.unjudged():
        hint = f"train it without that option: ccr train --method {method}"
        raise UsageError(f"{trained.name} cannot be diagnosed: {config.unjudged()}", hint=hint)
    own, own_side = usual_judge(trained)
    judge, judge_side, share = options.judge or own, options.judge_side or own_side, options.share
    if judge_side not in ("cross_lingual", "cross_modal", "both"):
        raise UsageError(f"--judge-side is cross_lingual, cross_modal or both, not {judge_side!r}")
    if options.judge_side == "cross_lingual" and not trained.has_parent("translation"):
        problem = f"{trained.name} has no translation to compare with the captions"
        raise UsageError(problem, hint="--judge-side cross_modal")
    if options.judge_side and not load_judge(judge).takes_side:
        hint = "leave --judge-side out, or name another --judge"
        raise UsageError(f"--judge-side does not apply to the judge {judge}, which chooses what it reads", hint=hint)
    check_share(share)
    request: dict[str, Any] = {"judge": judge, "judge_side": judge_side}
    request |= registry.installed_source("judges", judge)
    request |= {} if share is None else {"share": share}
    witnesses = judge_config(options.settings, judge)
    request |= recorded(witnesses)
    judged, second = translations_of(inputs.workspace, trained)
    others, compared = [], list[str]()
    if load_judge(judge).other_translations and judged:
        named = [*chain(*judged.values()), *([second] if second else [])]
        data = inputs.workspace.parent(trained, "dataset")
        others = find_others(inputs, data, named, options.witness or ([NONE] if witnesses.parallel else None))
        request |= {"witnesses": [other.id[:12] for other in others]} if others else {}
        compared = [inputs.workspace.relative(other.path) for other in others] or [NONE]
    elif options.witness:
        raise UsageError(f"the judge {judge} compares no other translations", hint="leave --witness out")
    pairs = settings["triplets"] // (sum(map(len, judged.values())) or 1)
    rivals = options.rivals or ("exact" if pairs <= MOST_PAIRS else "nearby")
    if rivals not in SEARCHES:
        raise UsageError(f"--rivals is {' or '.join(SEARCHES)}, not {rivals!r}")
    request |= {"rivals": rivals} if rivals != "exact" else {}
    name = options.name or stem(trained.name, request, {"judge": DEFAULT_JUDGE, "judge_side": "cross_lingual"})

    def write(site: Build) -> dict[str, int]:
        return _diagnose(site, inputs, trained, others, choose_device(options.device), witnesses)

    parents = [trained, *others]
    with recorded_as(options.command(inputs.workspace.relative(trained.path), name, compared)):
        return build_artifact(inputs.workspace, "diagnosis", name, request, parents, write=write, force=options.force)


def _diagnose(
    build: Build,
    inputs: Inputs,
    trained: base.Artifact,
    others: list[base.Artifact],
    device: torch.device,
    witnesses: JudgeConfig,
) -> dict[str, int]:
    settings, judge, side = run.config(trained), build.request["judge"], build.request["judge_side"]
    parent = inputs.workspace.parent
    data = without(dataset.read(parent(trained, "dataset")), settings["options"].get("left_out", ""))
    translated, second = translations_of(inputs.workspace, trained)
    translations = {lang: {a.path.name: translation.read(a) for a in each} for lang, each in translated.items()} or {
        data.source_lang: {"": translation.untranslated(data.captions_in(data.source_lang))}
    }
    other = translation.read(second) if second else None
    method, tokenizer = load_method(trained, device)
    data, translations = readable_texts(tokenizer, data, translations, training=True)
    feats, needs, judging_by = parent(trained, "features"), method.config.needs(), load_judge(judge)
    compared = judging_by.compares_texts
    pairs = noise.read(parent(trained, "noise")) if trained.has_parent("noise") else None
    triplets = training_triplets(data, translations, pairs, feats, needs, other, compared=compared)
    names = {lang: list(each) for lang, each in translations.items()}
    del data, translations, pairs, other  # their tables take kilobytes a caption
    unread = triplets.dropped - settings["dropped"]
    if unread > 0:
        warn(f"{counted(unread, 'triplet')} left out, without a text that the judge {judge} could compare")
    embedded = judging.embed_triplets(method, triplets, tokenizer, device, build.folder)
    triplets = replace(triplets, visual=Frames(torch.empty(0, 0), torch.zeros(1, dtype=torch.int64)))  # frees memory
    seed = derive(settings["seed"], "diagnose")
    how: dict[str, Any] = {"seed": seed, "batch_size": settings["options"]["batch_size"], "scores": method.judge_scores}
    how["config"] = witnesses
    search = SEARCHES[rivals := build.request.get("rivals", "exact")]
    if rivals != "exact":
        say(f"{counted(len(triplets), 'pair')}: belief and uncertainty are among {rivals} rivals; all: --rivals exact")
    frames = []
    for rows, part in triplets.by_translation():  # each translation is judged separately
        (lang,), embedded_part = part.langs, embedded if part is triplets else embedded.select(rows)
        name = names[lang][0] if part.alternative_N is None else part.alternative_N[0]
        part = with_others(part, part.source_ids, [lang] * len(part), others)
        opinion = judging.judge_triplets(judging_by, side, embedded_part, part, **how)
        frame = _table(part, embedded_part, opinion, method.evidence, search, build.folder).assign(lang=lang)
        frame = frame if part.alternative_N is None else frame.assign(alternative=name)
        frames.append(frame.join(_trajectories(trained, part.slot_ids, lang, name)))
    frame = with_verdicts(pd.concat(frames, ignore_index=True), build.request.get("share"))
    schema = diagnosis.PAIRS if triplets.alternative_N is None else diagnosis.ALTERNATIVES
    write_table(build.folder / "pairs.parquet", frame, schema)
    base.write_json(build.folder / "summary.json", _summary(frame, trained, build.request))
    return {"pairs": len(frame), "called_noisy": int((frame["verdict"] == "noisy").sum())}


def _table(
    triplets: Triplets,
    embedded: judging.TripletEmbeddings,
    opinion: Opinion,
    form: Callable[[Tensor], Tensor],
    search: Search,
    folder: Path,
) -> pd.DataFrame:
    v_VD, t_ND, item_N = embedded.v_VD, embedded.t_ND, embedded.item_N
    similarity = embedded.similarities()
    items_V, every_N = (torch.arange(len(side), device=item_N.device) for side in (v_VD, t_ND))
    item_Q, row_N = torch.unique(item_N, return_inverse=True)  # the pairs of an item share its picture as the query
    query_QD = v_VD if len(item_Q) == len(v_VD) else v_VD[item_Q]
    own_v2t = _opinions(search(query_QD, t_ND, item_Q, item_N, folder), row_N, similarity["VT"], form)
    own_t2v = _opinions(search(t_ND, v_VD, item_N, items_V, folder), every_N, similarity["VT"], form)
    numbers = {
        **{f"sim_{side.lower()}": similarity[side] for side in ("VS", "VT", "ST")},
        **{"evidence_v2t": own_v2t[0], "evidence_t2v": own_t2v[0]},
        **{"belief": (own_v2t[1] + own_t2v[1]) / 2, "uncertainty": (own_v2t[2] + own_t2v[2]) / 2},
        **{"p_vs": opinion.p.VS, "p_clean": opinion.p.VT, "p_st": opinion.p.ST},
    }
    items, wrong = triplets.item_N.tolist(), triplets.wrong
    truth: Any = None if wrong is None else np.where(wrong["vt_wrong"], "noisy", "clean").astype(object)
    if wrong is not None and PARTLY in wrong:
        truth[wrong[PARTLY].to_numpy(bool)] = "partly"
    return pd.DataFrame(numbers, dtype=np.float32).assign(
        slot_id=triplets.slot_ids,
        source_caption_id=triplets.source_ids,
        back=pd.Series(triplets.backs, dtype=object),
        item_id=[triplets.item_ids[i] for i in items],
        source_text=triplets.source,
        translation=triplets.target,
        support=np.minimum(*(word_support(texts, items) for texts in (triplets.source, triplets.target))),
        truth=pd.Series(truth, index=range(len(triplets)), dtype=object),
    )


def _trajectories(trained: base.Artifact, slot_ids: Sequence[str], lang: str, name: str) -> pd.DataFrame:
    """Summarises the run's records of each of N pairs over its E epochs, in the columns `diagnosis.TRAJECTORY`.

    A pair is *forgotten* each time that an epoch calls it noisy after the previous one called it clean: the forgetting
    events of Toneva et al. (ICLR 2019), where a class is learned; here it is that the pair matches. Values are null for
    a pair without records, as with the judge `none`.
    """
    epochs, ids = [frame for _, frame in run.evidence(trained, lang, name)], list(slot_ids)
    if not epochs:
        return pd.DataFrame(np.nan, index=range(len(ids)), columns=diagnosis.TRAJECTORY)
    ordered = [f if list(f["slot_id"]) == ids else f.set_index("slot_id").reindex(ids) for f in epochs]
    p_EN, sim_EN = (np.stack([frame[name].to_numpy(float) for frame in ordered]) for name in ("p_clean", "sim_vt"))
    noisy_EN = p_EN < diagnosis.THRESHOLD
    values = (
        *(x_EN for part_EN in (p_EN, sim_EN) for x_EN in (part_EN[0], part_EN[-1], part_EN.mean(axis=0))),
        noisy_EN.sum(axis=0),
        (noisy_EN[1:] & ~noisy_EN[:-1]).sum(axis=0),
    )
    columns = zip(diagnosis.TRAJECTORY, values, strict=True)
    known_N = np.isfinite(p_EN).all(axis=0)
    return pd.DataFrame({name: np.where(known_N, column, np.nan) for name, column in columns})


@torch.no_grad()
def _opinions(
    found: Iterator[tuple[Tensor, Tensor]],
    row_N: Tensor,
    own_N: npt.NDArray[np.float64],
    form: Callable[[Tensor], Tensor],
) -> tuple[npt.NDArray[np.float64], ...]:
    """Evidence of each pair, belief in it and uncertainty (UML eq. (1), (2)).

    The candidates are the pair itself (similarity `own_N`) and the rivals of its query `row_N`. `found` yields these in
    blocks (`rivals.Search`), so they are never all in memory. `form` turns similarities into evidence.
    """
    own_sim_N = torch.from_numpy(own_N).to(row_N.device, torch.float32)
    order_N, size_Q = row_N.argsort(stable=True), row_N.bincount()
    first_Q = size_Q.cumsum(0) - size_Q
    evidence_N, belief_N, uncertainty_N = out = tuple(np.empty(len(row_N)) for _ in range(3))
    with progress(len(row_N), "compare with rivals", "pairs") as advance:
        for rows_B, near_BK in found:
            size_B = size_Q[rows_B]
            pairs = order_N[places_of(first_Q[rows_B], size_B)[0]]
            near_of = torch.repeat_interleave(torch.arange(len(rows_B), device=pairs.device), size_B)
            for some, near in zip(torch.split(pairs, BLOCK), torch.split(near_of, BLOCK), strict=True):
                sim_BK = torch.cat([own_sim_N[some][:, None], near_BK[near]], dim=1)
                opinion, at = dirichlet(form(sim_BK), sim_BK > -torch.inf), some.cpu().numpy()
                evidence_N[at] = form(own_sim_N[some]).double().cpu().numpy()
                belief_N[at] = opinion.belief_BK[:, 0].double().cpu().numpy()
                uncertainty_N[at] = opinion.uncertainty_B.double().cpu().numpy()
            advance(len(pairs))
    return out


def _summary(frame: pd.DataFrame, trained: base.Artifact, request: dict[str, Any]) -> dict[str, Any]:
    settings = run.config(trained)
    langs, mismatch = run.langs(settings), settings["noise"]
    doubted = frame[(frame["p_clean"] < 1) | (frame["verdict"] == "noisy")]
    shown = ["slot_id", "item_id", "source_text", "translation", "back", "p_clean", "support", "uncertainty", "truth"]
    by = {"langs": "lang"} if len(langs) > 1 else {}
    by |= {"translations": "alternative"} if "alternative" in frame else {}
    shown += by.values()
    return {
        "run": trained.name,
        "method": settings["method"],
        "label": str(method_label(settings)),
        "noise": mismatch["ratio"] if mismatch else 0.0,
        "seed": settings["seed"],
        "lang": settings["lang"],
        "judge": request["judge"],
        "judge_side": request["judge_side"] if load_judge(request["judge"]).takes_side else "",
        **figures(frame, request),
        **{key: {name: figures(part, request) for name, part in frame.groupby(by[key])} for key in by},
        "most_suspicious": worst_rows(doubted, shown),
    }
