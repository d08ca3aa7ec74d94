"""ccr diagnose."""

import itertools
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

from ccr_cli import console
from ccr_cli.artifacts.build import Planned
from ccr_cli.commands import common as c
from ccr_cli.errors import UsageError
from ccr_cli.stages.diagnose.options import DiagnoseOptions
from ccr_cli.stages.shared.options import option


@c.guarded
def diagnose(
    *,
    options: DiagnoseOptions,
    worst: int | None = option(None, "Print this many of the most suspicious pairs instead of paths.", min=1),
    sheet: Path | None = option(None, "Write these pairs (20 without --worst) with their pictures to a .html file."),
    export: Path | None = option(
        None,
        "Write all pairs with their verdicts to a .csv, .xlsx or .parquet file, to be corrected; ccr train --verdicts "
        "and ccr translate --only read it. For other tools: .labelstudio.json, .fiftyone.json or .cleanlab.csv.",
    ),
    call: c.BuildCall,
) -> None:
    """Find the training pairs that a model considers mismatched, or wrong translations without a model.

    Judges the training pairs of a run and writes a diagnosis: evidence, belief, uncertainty and P(clean) of every pair,
    its values after each epoch, the most suspicious pairs first, and precision and recall where synthetic noise gives
    the truth. Given a translation, or without any run, it judges every caption of the translation, of all splits, by a
    judge that needs no model (fusion). Given several, it writes a diagnosis of each.
    """
    inputs = call.inputs()
    from ccr_cli.artifacts import dataset
    from ccr_cli.commands.show import show_summary
    from ccr_cli.data import pairs_file
    from ccr_cli.stages.diagnose import suspects
    from ccr_cli.stages.diagnose.stage import subjects
    from ccr_cli.stages.diagnose.translated import diagnose_subject
    from ccr_cli.stages.shared.load_run import translations_of

    judged = subjects(inputs)
    kind = judged[0].kind
    if len(judged) > 1 and options.name is not None:
        problem = f"--name {options.name} names one diagnosis, not those of {len(judged)} {kind}s"
        raise UsageError(problem, hint="leave --name out")
    if len(judged) > 1 and (worst, sheet, export) != (None, None, None):
        raise UsageError(f"--worst, --sheet and --export need one {kind}, not {len(judged)}", hint="name one")
    if sheet is not None:
        suspects.check_sheet(sheet)
    if export is not None:
        pairs_file.check(export)
    made = []
    for artifact in judged:
        with suppress(Planned):
            made.append(diagnose_subject(inputs, artifact, options))
            show_summary(made[-1])
        for parent in artifact.parents:
            inputs.parent(artifact, parent.kind)
    if call.dry_run:
        raise inputs.workspace.planned[-1]
    inputs.note(*inputs.named)
    shown = (worst or 20) if worst or sheet else 0
    if shown or export is not None:
        most, parallel = None if export is not None else shown, options.settings.get("parallel", "")
        pairs, data = suspects.judged_pairs(inputs.workspace, made[0], most, parallel)
    if export is not None:
        pairs_file.write(export, pairs, dataset.image_finder(data), dataset.media_root(data))
        console.say(f"  every pair with its verdict: {export}")
        translated = translations_of(inputs.workspace, judged[0])[0] if kind == "run" else {"": judged}
        for each in itertools.zip_longest(*translated.values()):  # a call mends one translation of each language
            paths = " ".join(inputs.workspace.relative(artifact.path) for artifact in each if artifact)
            console.say(f"  type corrections, then: ccr translate {paths} --only {export}")
    rows = suspects.most_suspicious(pairs, data, shown) if shown else []
    if sheet is not None:
        suspects.write_sheet(sheet, rows, made[0], data)
        console.say(f"  the sheet: {sheet}")
    if worst is None:
        c.emit(inputs, made, call.json)
    elif call.json:
        c.show_json({"diagnosis": str(made[0].path), "worst": [_facts(row) for row in rows]})
    else:
        columns = suspects.terminal_columns(rows) if sys.stdout.isatty() else suspects.SHOWN
        c.show_table(columns, [[_cell(row.get(name)) for name in columns] for row in rows])


def _facts(row: dict[str, Any]) -> dict[str, Any]:
    return {name: str(value) if isinstance(value, Path) else value for name, value in row.items()}


def _cell(value: object) -> object:
    return f"{value:.3f}" if isinstance(value, float) else ("", "yes")[value] if isinstance(value, bool) else value


EPILOG = c.examples(
    "ccr diagnose",
    "ccr diagnose runs/noto-emoji-es-uml-noise0.4-seed0 --judge gmm --judge-side both",
    "ccr diagnose runs/mine --share 0.05",
    "ccr diagnose runs/mine --worst 50 --sheet worst.html",
    "ccr diagnose translations/mine/es-hf --worst 50",
    "ccr diagnose runs/mine --export pairs.csv",
    "ccr evaluate runs/mine | ccr diagnose -",
    "ccr train --method uml --sweep seed=0,1,2 | ccr diagnose -",
)
