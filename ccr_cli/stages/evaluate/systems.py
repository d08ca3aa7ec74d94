"""The systems that `ccr evaluate` evaluates: runs, an ensemble of them, or a pretrained model."""

from collections.abc import Iterator

from ccr_cli.artifacts.base import FOLDERS, Artifact, load
from ccr_cli.artifacts.build import Planned
from ccr_cli.errors import UsageError
from ccr_cli.stages.evaluate.options import HALF, EvaluatedSystems, EvaluationOptions
from ccr_cli.stages.evaluate.stage import evaluate
from ccr_cli.stages.evaluate.zero_shot import evaluate_pretrained
from ccr_cli.stages.shared.inputs import Inputs
from ccr_cli.stages.shared.references import find


def evaluate_systems(inputs: Inputs, options: EvaluationOptions, systems: EvaluatedSystems) -> Iterator[Artifact]:
    """Evaluates each run, all of them as one ensemble, or a pretrained model on every data set.

    Yields each evaluation as soon as it is made; none in a dry run, which only plans them.

    Raises:
        CcrError: As for `evaluate` and `evaluate_pretrained`.
        UsageError: If options contradict each other or the artifacts.
    """
    if systems.flag:
        _refuse_with_model(inputs, options, systems)
        yield from evaluate_pretrained(inputs, options, systems)
        return
    foreign, name = None, systems.name
    if options.ood not in ("", HALF):
        word = options.ood if "/" in options.ood else f"{FOLDERS['dataset']}/{options.ood}"
        foreign = load(find(inputs.workspace, word), "dataset")
    runs = inputs.of_kind("run")
    if systems.ensemble and len(runs) < 2:
        raise UsageError(f"--ensemble needs several runs, not {len(runs)}", hint="ccr evaluate RUN RUN --ensemble")
    if len(runs) < 2:
        runs = [inputs.one("run", "", hint="ccr train --method uml")]
    elif name is not None and not systems.ensemble:
        raise UsageError(f"--name {name} names one evaluation, not those of {len(runs)} runs", hint="leave --name out")
    for members in [runs] if systems.ensemble else [[run] for run in runs]:
        for run in members:
            inputs.note(run)
            for kind in ("dataset", "translation", "features"):
                if run.has_parent(kind):
                    inputs.parent(run, kind)
        try:
            made = evaluate(
                inputs, members, options, foreign=foreign, device=systems.device, name=name, force=systems.force
            )
        except Planned:
            continue
        yield made


def _refuse_with_model(inputs: Inputs, options: EvaluationOptions, systems: EvaluatedSystems) -> None:
    """Refuses options and artifacts that do not go with `--model` or vectors."""
    flag = systems.flag
    if not options.zero_shot:
        raise UsageError(f"{flag} goes with --zero-shot: a run has its own model", hint="add --zero-shot")
    runs = inputs.of_kind("run")
    if runs or systems.ensemble:
        raise UsageError(f"{flag} takes the place of {runs[0].name if runs else '--ensemble'}", hint="leave one out")
    if systems.name is not None:
        problem = f"--name {systems.name} does not go with {flag}, which evaluates on several data sets"
        raise UsageError(problem)
