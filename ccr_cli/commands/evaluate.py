"""ccr evaluate."""

from __future__ import annotations

from typing import Any

from ccr_cli.artifacts.base import Artifact
from ccr_cli.commands import common as c
from ccr_cli.console import say
from ccr_cli.stages.evaluate.options import EvaluatedSystems, EvaluationOptions


@c.guarded
def evaluate(
    *,
    options: EvaluationOptions,
    systems: EvaluatedSystems,
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
    from ccr_cli.stages.evaluate.systems import evaluate_systems

    runs = len(inputs.of_kind("run"))
    evaluations = []
    for made in evaluate_systems(inputs, options, systems):
        evaluations.append(made)
        if systems.flag or (runs > 1 and not systems.ensemble):
            say(f"{made.name}:" if systems.flag else f"{inputs.parent(made, 'run').name}:")
        show_summary(made)
    if call.dry_run:
        raise inputs.workspace.planned[-1]
    c.emit(inputs, evaluations, call.json, lambda artifact: {"results": _results(artifact)})


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
