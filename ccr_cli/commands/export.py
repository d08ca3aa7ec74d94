"""ccr export."""

from ccr_cli import console
from ccr_cli.commands import common as c
from ccr_cli.stages.export.options import ExportOptions


@c.guarded
def export(
    *,
    options: ExportOptions,
    call: c.BuildCall,
) -> None:
    """Write a run as a folder that works without ccr.

    sentence-transformers loads a run with a transformers text encoder; any other needs only numpy. The model card
    holds the results of the given evaluations, or else of all evaluations of the run in the workspace.
    """
    inputs = call.inputs()
    from ccr_cli.stages.export.stage import export as stage

    trained = inputs.one("run", "", hint="ccr train --method uml")
    made = stage(inputs, trained, **vars(options))
    for parent in trained.parents:
        inputs.parent(trained, parent.kind)
    layout = any(entry.path.endswith("modules.json") for entry in made.files)
    reader = "load it with sentence-transformers" if layout else "use it with its encode.py"
    console.say(f"  {reader}; see {made.path / 'README.md'}")
    c.emit(inputs, [made], call.json)


EPILOG = c.examples(
    "ccr export",
    "ccr export runs/noto-emoji-es-uml-seed0 --name emoji-es",
    "ccr evaluate runs/mine | ccr export - --onnx",
)
