"""The options of `ccr export`, declared once: a field is a flag."""

from dataclasses import dataclass

from ccr_cli.stages.shared.options import option


@dataclass(frozen=True)
class ExportOptions:
    """The options of `ccr export`, in the order of its help."""

    onnx: bool = option(False, "Also write the text side as ONNX (transformers text encoders only).")
    to: str | None = option(
        None,
        "Also upload it to the Hugging Face hub; a new repository is private.",
        metavar="hf:OWNER/NAME",
        show_default=False,
    )
    name: str | None = None
    force: bool = False
