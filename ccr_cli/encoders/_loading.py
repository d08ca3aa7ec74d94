"""Loading a model of transformers from a folder that may hold anything: what does not load is said in a line."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError

from ccr_cli.errors import ArtifactError, UsageError

_DAMAGED = (ArithmeticError, AttributeError, ImportError, LookupError, OSError, TypeError, ValueError)
"""What readers raise whose file holds something else than they expect."""


def read_settings(folder: Path, name: str) -> Any:
    """Reads a model's `config.json`; goes into `transformers_loading`, as `read_network` does.

    Args:
        folder: Where the model lies.
        name: What the user calls it.

    Raises:
        ArtifactError: If the file cannot be read.
        UsageError: If the model is of no family that transformers knows.
    """
    import transformers

    try:
        return transformers.AutoConfig.from_pretrained(str(folder), local_files_only=True, trust_remote_code=False)
    except OSError as error:
        raise ArtifactError(f"the config.json of {name} cannot be read ({first_line(error)})") from None
    except (AttributeError, ImportError, LookupError, TypeError, ValueError) as error:
        raise UsageError(f"{name} is of no family that transformers loads ({first_line(error)})") from None


def read_network(network: Any, folder: Path, name: str, **options: Any) -> tuple[Any, list[str]]:
    """Reads a model's weights, from safetensors alone.

    Returns:
        The model, and the names of the weights that its files lack.

    Raises:
        ArtifactError: If they cannot be read, or are those of another model.
    """
    import transformers

    shown = transformers.logging.get_verbosity()
    transformers.logging.set_verbosity_error()  # what is missing the caller says, the rest is of no use here
    try:
        model, report = network.from_pretrained(
            str(folder),
            local_files_only=True,
            trust_remote_code=False,
            use_safetensors=True,
            output_loading_info=True,
            **options,
        )
    except torch.OutOfMemoryError:
        raise
    except (*_DAMAGED, RuntimeError, SafetensorError) as error:
        raise ArtifactError(f"{name} does not load as {network.__name__} ({first_line(error)})") from None
    finally:
        transformers.logging.set_verbosity(shown)
    return model, sorted(report["missing_keys"])


@contextmanager
def preparing(name: str, what: str) -> Iterator[None]:
    """Goes around reading how a model's pictures are prepared, from files that say it in many ways.

    Raises:
        ArtifactError: For whatever that raises where a file is damaged or says something else.
    """
    try:
        yield
    except _DAMAGED as error:
        raise ArtifactError(
            f"{name} does not say how its {what} are prepared ({first_line(error)})",
            hint="its folder needs the preprocessor_config.json that was published with it",
        ) from None


def first_line(error: Exception) -> str:
    """What an error says, without the advice that follows; its kind, where it says nothing of use."""
    first = str(error).strip().split("\n", 1)[0]
    return first if len(first) > 12 else f"{type(error).__name__}: {first}"  # KeyError says the key alone
