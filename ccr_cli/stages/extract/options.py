"""The options of `ccr extract`, declared once: a field is a flag."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ccr_cli import registry
from ccr_cli.errors import UsageError
from ccr_cli.stages.shared.options import option


@dataclass(frozen=True)
class ExtractOptions:
    """The options of `ccr extract` with an encoder, in the order of its help."""

    encoder: str | None = option(
        None,
        "{encoders}",
        show_default="the data set's, else clip",
        autocompletion=registry.completion("encoders"),
    )
    settings: Mapping[str, Any] = field(default_factory=dict)
    """The encoder's own options."""
    media_root: Path | None = option(
        None, "Folder of the media.", envvar="CCR_MEDIA_ROOT", show_default="the data set's"
    )
    pool: str = option("none", "Rows per video: none keeps one per frame or clip; mean averages them.")
    batch_size: str = option("auto", "Pictures or clips per batch; auto: as many as fit into memory.")
    workers: int | None = option(None, "Decoding threads.", min=1, show_default="by the processors")
    compiled: bool = option(False, "Compile the encoder with torch.compile (takes about a minute).", "--compile")
    device: str = "auto"
    dtype: str = "float32"
    max_failed: float = 0.2
    name: str | None = None
    force: bool = False
    retry_failed: bool = False

    def check(self) -> None:
        """Checks values that need no data.

        Raises:
            UsageError: If one is not allowed.
        """
        size = self.batch_size
        if size != "auto" and not (size.isdecimal() and 1 <= int(size) <= 1_000_000):
            raise UsageError(f"--batch-size is a positive whole number or auto, not {size!r}")
        for name, choices in {"dtype": ("float32", "bfloat16", "float16"), "pool": ("none", "mean")}.items():
            if getattr(self, name) not in choices:
                raise UsageError(f"--{name} is one of {', '.join(choices)}, not {getattr(self, name)!r}")


@dataclass(frozen=True)
class ReadyFeatures:
    """The options of `ccr extract` for features that exist already, in the order of its help."""

    from_: list[Path] | None = option(
        None,
        "Import ready-made features instead of encoding: .npy, .npz, HDF5, .mat, a BigFile or a folder of .npy files. "
        "Repeatable.",
        "--from",
        metavar="FILE_OR_FOLDER",
        show_default=False,
    )
    ids: list[Path] | None = option(
        None,
        "With --from: file with the ids of a .npy or .mat, one per line. Repeatable, in the order of --from.",
        metavar="FILE",
        show_default=False,
    )
    encoder_name: str | None = option(
        None,
        "With --from: name of the encoder. Features with the same name are comparable (zero-shot).",
        show_default=False,
    )
    concat: bool = option(
        False, "Join the named features artifacts side by side, in their order, instead of encoding.", "--concat"
    )
