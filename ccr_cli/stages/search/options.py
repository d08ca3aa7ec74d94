"""The options of `ccr index` and `ccr serve`, declared once: a field is a flag."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from ccr_cli.stages.shared.options import option


@dataclass(frozen=True)
class IndexOptions:
    """The options of `ccr index`, in the order of its help."""

    split: str = option("test", "Items to search: train, val, test or all.")
    find: str = option("items", "What to search: items or captions.")
    lang: str | None = option(
        None, "Use a run that knows this language; with --find captions, search its captions only."
    )
    kind: str = option("ivf", "Kind of index: ivf (cells) or hnsw (graph).", "--type")
    recall: float = option(0.99, "Fraction of the ten most similar entries that queries must find (above 0, up to 1).")
    device: str = "auto"
    name: str | None = None
    force: bool = False


@dataclass(frozen=True)
class ServerOptions:
    """Where `ccr serve` listens, and its limits, in the order of its help."""

    host: str = option("127.0.0.1", "Address to listen on.")
    port: int = option(8000, "Port to listen on; 0 takes a free one.", min=0, max=65535)
    token_file: Path | None = option(None, "File with the token that requests must send; required with --host.")
    allow_host: tuple[str, ...] = option(
        (), "Also accept this Host name, e.g. a proxy's; repeat for more.", command_line=(list[str] | None, tuple)
    )
    max_upload: int = option(10, "Largest upload, in MiB.", min=1)
    max_requests: int = option(32, "Most requests at once.", min=1)
