"""ccr evaluate."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Annotated

import typer

from ccr_cli.artifacts.build import Planned
from ccr_cli.commands import common as c
from ccr_cli.console import say
from ccr_cli.errors import UsageError


@c.guarded
def evaluate(
    artifacts: c.Artifacts = None,
    split: Annotated[
        str | None,
        typer.Option(
            "--split", help="train, val, test, or a half of val: val-select, val-report.", show_default="test"
        ),
    ] = None,
    lang: Annotated[
        list[str] | None,
        typer.Option("--lang", help="Query language; repeat for several.", show_default="the run's"),
    ] = None,
    zero_shot: Annotated[
        bool,
        typer.Option("--zero-shot", help="On the other data sets of the workspace, in every language they have."),
    ] = False,
    drop_leaks: Annotated[
        bool, typer.Option("--drop-leaks", help="Zero-shot: leave out the items that the run has seen.")
    ] = False,
    caption_set: Annotated[
        str | None, typer.Option("--caption-set", help="Only the captions of this set.", show_default="all")
    ] = None,
    beta: Annotated[
        float, typer.Option("--beta", help="Weight of the query itself in score fusion with its translation.")
    ] = 0.8,
    fusion: Annotated[str, typer.Option("--fusion", help="raw, or minmax as NRCCR's code normalises.")] = "raw",
    ties: Annotated[str, typer.Option("--ties", help="mid, optimistic or pessimistic.")] = "mid",
    protocol: Annotated[
        str | None,
        typer.Option(
            "--protocol",
            help="full: a query's own item is right; labelled: its whole category; "
            "or a name of the data set's manifest, such as coco-1k-5fold.",
            show_default="what the method learns",
        ),
    ] = None,
    task: Annotated[
        str,
        typer.Option("--task", help="visual; or text: captions search their translations, without pictures (NRCCR)."),
    ] = "visual",
    corrupt: Annotated[
        float, typer.Option("--corrupt", help="Beside it, with this share of words or features corrupted.")
    ] = 0.0,
    corruption: Annotated[
        str | None,
        typer.Option(
            "--corruption",
            help="drop, replace or shuffle words; features, masked; or both, words dropped and features masked.",
            show_default="drop",
        ),
    ] = None,
    ood: Annotated[
        str | None,
        typer.Option(
            "--ood",
            help="Whether uncertainty tells queries that do not belong to the gallery: half (of it, taken out, asks "
            "the rest), or a data set whose captions ask.",
        ),
    ] = None,
    ensemble: Annotated[
        bool, typer.Option("--ensemble", help="The runs given as one: their similarities, averaged.")
    ] = False,
    device: c.Device = "auto",
    name: c.Name = None,
    force: c.Force = False,
    workspace: c.WorkspaceOption = Path("."),
    dry_run: c.DryRun = False,
    json: c.Json = False,
    quiet: c.Quiet = False,
    verbose: c.Verbose = 0,
) -> None:
    """Measure retrieval in both directions, with a signature for every score.

    Reads a run (its parents say the rest) and writes an evaluation: R@1, R@5, R@10, MedR, MeanR, mAP, SumR, in the
    target language and in English; of several runs that are given, one each, or with --ensemble one of all. The table
    goes to standard error, the path to standard output.
    """
    c.setup(quiet, verbose)
    inputs = c.inputs_from(workspace, artifacts, dry_run=dry_run)
    from ccr_cli.commands.show import show_summary
    from ccr_cli.stages.evaluate.measure import Options
    from ccr_cli.stages.evaluate.stage import evaluate as stage

    runs = [artifact for artifact in inputs.given if artifact.kind == "run"]
    if corruption and not corrupt:
        raise UsageError(f"--corruption {corruption} corrupts nothing by itself", hint="add --corrupt 0.3")
    if ensemble and len(runs) < 2:
        raise UsageError(
            f"--ensemble averages several runs, and given: {len(runs)}", hint="ccr evaluate RUN RUN --ensemble"
        )
    if len(runs) < 2:
        runs = [inputs.one("run", "", hint="ccr train --method uml")]
    elif name is not None and not ensemble:
        raise UsageError(f"--name {name} names one evaluation, and {len(runs)} runs are given", hint="leave --name out")
    options = Options(
        split=split,
        langs=tuple(dict.fromkeys(lang or [])),
        zero_shot=zero_shot,
        caption_set=caption_set,
        beta=beta,
        fusion=fusion,
        ties=ties,
        protocol=protocol or "",
        drop_leaks=drop_leaks,
        task=task,
        corrupt=corrupt,
        corruption=corruption or "drop",
        ood=ood or "",
    )
    made = []
    for together in [runs] if ensemble else [[each] for each in runs]:
        for trained in together:
            inputs.note(trained)
            for kind in ("dataset", "translation", "features"):
                if trained.has_parent(kind):
                    inputs.parent(trained, kind)
        with suppress(Planned):
            made.append(stage(inputs, together, options, device=device, name=name, force=force))
            if len(runs) > len(together):
                say(f"{together[0].name}:")
            show_summary(made[-1])
    if dry_run:
        raise inputs.workspace.planned[-1]
    c.emit(inputs, made, json)


EPILOG = c.examples(
    "ccr evaluate",
    "ccr evaluate runs/noto-emoji-es-uml-seed0 --lang es --lang fr",
    "ccr train --method uml --sweep seed=0,1,2 | ccr evaluate -",
    "ccr train --method uml --sweep seed=0,1,2 | ccr evaluate - --ensemble",
    "ccr evaluate --protocol coco-1k-5fold",
    "ccr evaluate --zero-shot --drop-leaks",
    "ccr evaluate --task text",
    "ccr evaluate --corrupt 0.3 --corruption shuffle",
    "ccr evaluate --ood half",
    "ccr evaluate runs/mine --split val-report --ties pessimistic --json",
)
