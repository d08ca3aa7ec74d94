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
    """Write a run or a data set as a folder that works without ccr, and upload it to the Hugging Face hub.

    sentence-transformers loads a run with a transformers text encoder; any other needs only numpy. The model card
    holds the results of the given evaluations, or else of all evaluations of the run in the workspace.

    Given a data set, a translation or a diagnosis and no run, it writes captions, pictures, translations and verdicts
    as Parquet files, which the library datasets loads.
    """
    inputs = call.inputs()
    from ccr_cli.stages.export.stage import export as stage

    made = stage(inputs, options)
    which = "model1 and model2" if made.counts.get("models", 1) > 1 else "it"
    by_library = any(entry.path.endswith("modules.json") for entry in made.files)
    reader = f"load {which} with sentence-transformers" if by_library else f"use {which} with encode.py"
    if made.has_parent("dataset"):
        reader = f"load it with datasets.load_dataset({str(made.path)!r})"
    console.say(f"  {reader}; see {made.path / 'README.md'}")
    c.emit(inputs, [made], call.json)


EPILOG = c.examples(
    "ccr export",
    "ccr export runs/noto-emoji-es-uml-seed0 --name emoji-es",
    "ccr evaluate runs/mine | ccr export - --onnx",
    "ccr export datasets/noto-emoji",
    "ccr export diagnoses/mine --to hf:OWNER/NAME",
)
