"""The text side of an exported model as ONNX: padded ids to unit vectors, for any number of texts of any length.

Shape suffixes: B texts, L tokens of the longest, D embedding.
"""

import logging
import warnings
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch

from ccr_cli.errors import CcrError, UsageError, require_packages
from ccr_cli.nets.plain import Plain, PlainText
from ccr_cli.stages.export.text_side import tokenizer_of
from ccr_cli.transformers_loading import transformers_loading

NAME = "text.onnx"
TOLERANCE = 1e-4
_INLINE = 1_500_000_000
"""Most bytes of weights in the file itself (protobuf's limit is 2 GiB); more go to a second file."""


def require(kind: str) -> None:
    """Raises UsageError if a kind of text encoder cannot become ONNX, UnavailableError if a package is missing."""
    if kind != "transformers":
        problem = f"--onnx needs a transformers text encoder, not {kind}"
        raise UsageError(problem, hint="leave --onnx out: the export's encode.py needs only numpy")
    require_packages("--onnx", "onnx", "onnx", "onnxscript", "onnxruntime")


def write(plain: Plain, folder: Path, texts: Sequence[str]) -> None:
    """Writes `text.onnx` next to the exported text side; raises CcrError if its vectors differ from torch's."""
    import onnxruntime

    whole = PlainText(plain).eval()
    with transformers_loading():
        tokenizer = tokenizer_of(folder)
    ids_BL, mask_BL = tokenizer(list(texts), padding=True, truncation=True, return_tensors="pt").values()
    log, level = logging.getLogger("torch.onnx"), logging.getLogger("torch.onnx").level
    log.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings(), torch.no_grad():
            warnings.simplefilter("ignore")
            program = torch.onnx.export(
                whole,
                (ids_BL, mask_BL),
                input_names=["input_ids", "attention_mask"],
                output_names=["sentence_embedding"],
                dynamic_shapes=({0: "batch", 1: "length"}, {0: "batch", 1: "length"}),
                dynamo=True,
                verbose=False,
            )
    except torch.onnx.OnnxExporterError as error:
        why = str(error).split("\n", 1)[0].split("\x1b", 1)[0].strip()  # the rest is coloured, for programmers
        raise CcrError(f"torch cannot write this text encoder as ONNX: {why}", hint="leave --onnx out") from None
    finally:
        log.setLevel(level)
    assert program is not None
    program.model.graph.metadata_props.clear()
    for node in program.model.graph.all_nodes():
        node.metadata_props.clear()  # stack traces, with the paths of this machine
    size = sum(weight.numel() * weight.element_size() for weight in whole.parameters())
    program.save(folder / NAME, external_data=size > _INLINE)
    session = onnxruntime.InferenceSession(str(folder / NAME), providers=["CPUExecutionProvider"])
    for first in (0, len(texts) - 1):  # the whole batch, and one text
        feeds = {"input_ids": ids_BL[first:].numpy(), "attention_mask": mask_BL[first:].numpy()}
        with torch.no_grad():
            torch_BD = whole(ids_BL[first:], mask_BL[first:]).numpy()
        difference = float(np.abs(session.run(None, feeds)[0] - torch_BD).max())
        if not difference < TOLERANCE:
            problem = f"the vectors of {NAME} differ from torch's by up to {difference:.2g}"
            raise CcrError(problem, hint="leave --onnx out")
