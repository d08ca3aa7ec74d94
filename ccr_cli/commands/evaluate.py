"""ccr evaluate."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ccr_cli.artifacts.base import FOLDERS, Artifact, load
from ccr_cli.artifacts.build import Planned
from ccr_cli.commands import common as c
from ccr_cli.console import say
from ccr_cli.errors import UsageError
from ccr_cli.stages.evaluate.options import HALF, EvaluationOptions
from ccr_cli.stages.shared.options import option

if TYPE_CHECKING:
    from ccr_cli.stages.shared.inputs import Inputs


@c.guarded
def evaluate(
    *,
    options: EvaluationOptions,
    model: str | None = option(
        None,
        "With --zero-shot: a dual encoder (CLIP, SigLIP, ...) instead of a run, by hub name or folder.",
        metavar="NAME_OR_FOLDER",
        show_default=False,
    ),
    text_vectors: Path | None = option(
        None,
        "With --zero-shot and --visual-vectors: vectors of the captions by id, made by any model: Parquet, "
        ".safetensors, .npz, HDF5, or .npy with NAME.txt.",
        show_default=False,
    ),
    visual_vectors: Path | None = option(
        None, "With --text-vectors: vectors of the items by id, of the same dimension.", show_default=False
    ),
    ensemble: bool = option(False, "Evaluate the given runs as one ensemble (mean of their similarities)."),
    device: str = "auto",
    name: str | None = None,
    force: bool = False,
    call: c.BuildCall,
) -> None:
    """Measure retrieval in both directions, with a signature for every score.

    Evaluates a run on its own data set, translation and features, and writes an evaluation: R@1, R@5, R@10, MedR,
    MeanR, mAP and SumR, in the target language and in English. Given several runs, it writes an evaluation of each, or
    with --ensemble a single one. With --zero-shot --model it evaluates a pretrained model on every data set, in every
    language; with --text-vectors and --visual-vectors, the vectors of any other. The table goes to standard error, the
    path to standard output.
    """
    options.check()
    inputs = call.inputs()
    from ccr_cli.commands.show import show_summary
    from ccr_cli.stages.evaluate.stage import evaluate as stage
    from ccr_cli.stages.shared.references import find

    if model is not None or text_vectors or visual_vectors:
        flag = "--model" if model is not None else "--text-vectors"
        if bool(text_vectors) != bool(visual_vectors):
            raise UsageError("--text-vectors and --visual-vectors go together: both sides of one model")
        if model is not None and text_vectors:
            raise UsageError("--model has vectors of its own, so --text-vectors does not go with it")
        _refuse_with_model(inputs, flag, options, ensemble, name)
        from ccr_cli.stages.evaluate.zero_shot import VectorFiles, evaluate_pretrained

        pretrained = VectorFiles(text_vectors, visual_vectors) if text_vectors and visual_vectors else str(model)
        made = evaluate_pretrained(inputs, pretrained, options, device=device, force=force)
        for artifact in made:
            say(f"{artifact.name}:")
            show_summary(artifact)
        if call.dry_run:
            raise inputs.workspace.planned[-1]
        c.emit(inputs, made, call.json, lambda artifact: {"results": _results(artifact)})
        return
    foreign = None
    if options.ood not in ("", HALF):
        word = options.ood if "/" in options.ood else f"{FOLDERS['dataset']}/{options.ood}"
        foreign = load(find(inputs.workspace, word), "dataset")
    runs = [artifact for artifact in inputs.named if artifact.kind == "run"]
    if ensemble and len(runs) < 2:
        raise UsageError(f"--ensemble needs several runs, not {len(runs)}", hint="ccr evaluate RUN RUN --ensemble")
    if len(runs) < 2:
        runs = [inputs.one("run", "", hint="ccr train --method uml")]
    elif name is not None and not ensemble:
        raise UsageError(f"--name {name} names one evaluation, not those of {len(runs)} runs", hint="leave --name out")
    evaluations = []
    for members in [runs] if ensemble else [[run] for run in runs]:
        for run in members:
            inputs.note(run)
            for kind in ("dataset", "translation", "features"):
                if run.has_parent(kind):
                    inputs.parent(run, kind)
        with suppress(Planned):
            evaluations.append(stage(inputs, members, options, foreign=foreign, device=device, name=name, force=force))
            if len(runs) > len(members):
                say(f"{members[0].name}:")
            show_summary(evaluations[-1])
    if call.dry_run:
        raise inputs.workspace.planned[-1]
    c.emit(inputs, evaluations, call.json, lambda artifact: {"results": _results(artifact)})


def _refuse_with_model(inputs: Inputs, flag: str, options: EvaluationOptions, ensemble: bool, name: str | None) -> None:
    """Refuses what does not go with `--model` or vectors."""
    if not options.zero_shot:
        raise UsageError(f"{flag} goes with --zero-shot: a run has its own model", hint="add --zero-shot")
    runs = [artifact for artifact in inputs.named if artifact.kind == "run"]
    if runs or ensemble:
        raise UsageError(f"{flag} takes the place of {runs[0].name if runs else '--ensemble'}", hint="leave one out")
    if name is not None:
        raise UsageError(f"--name {name} does not go with {flag}, which evaluates on several data sets")


def _results(artifact: Artifact) -> list[dict[str, Any]]:
    """The entries of `metrics.json`, each with its chance level."""
    from ccr_cli.artifacts import evaluation
    from ccr_cli.report.tables.chance import levels

    pairs = zip(evaluation.results(artifact), levels(artifact), strict=True)
    return [result | {"signature": str(result["signature"]), "chance": {"SumR": level}} for result, level in pairs]


EPILOG = c.examples(
    "ccr evaluate",
    "ccr evaluate runs/noto-emoji-es-uml-seed0 --lang es --lang fr",
    "ccr train --method uml --sweep seed=0,1,2 | ccr evaluate -",
    "ccr train --method uml --sweep seed=0,1,2 | ccr evaluate - --ensemble",
    "ccr evaluate --queries both",
    "ccr evaluate --protocol coco-1k-5fold",
    "ccr evaluate --zero-shot --drop-leaks",
    "ccr evaluate --zero-shot --model google/siglip2-base-patch16-224",
    "ccr evaluate --zero-shot --text-vectors texts.parquet --visual-vectors pictures.parquet",
    "ccr evaluate --translate-test",
    "ccr evaluate --task text",
    "ccr evaluate --corrupt 0.3 --corruption shuffle",
    "ccr evaluate --ood half",
    "ccr evaluate runs/mine --split val-report --ties pessimistic --json",
)
