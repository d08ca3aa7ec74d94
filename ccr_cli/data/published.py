"""The tables of papers: `data_manifests/published`, described in its README."""

from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path

import pandas as pd

from ccr_cli.artifacts.base import sha256_file, sha256_text
from ccr_cli.data.manifests import bundled_root

COLUMNS = ("paper", "table", "data", "task", "language", "noise", "method", "backbone", "metric", "value", "note")
PROTOCOLS = (
    "full", "zero-shot", "labelled", "coco-5k", "coco-1k-5fold", "coco-1k-single", "coco-cn-1k", "text-to-text",
)  # fmt: skip
"""The protocols of published tables."""
UNTRAINED = "untrained"
"""Start of the note on a pre-trained model that saw no training data of the benchmark."""


@dataclass(frozen=True)
class Published:
    """The tables as frames of texts; a missing text is empty."""

    figures: pd.DataFrame
    """One row per figure: `COLUMNS`, with `noise` (0 if none) and `value` as numbers."""
    tables: pd.DataFrame
    """How each table was measured, one row per data set and language."""
    papers: pd.DataFrame
    misprints: pd.DataFrame
    digest: str
    """sha256 of all the files."""

    @cached_property
    def _names(self) -> dict[str, str]:
        return dict(zip(self.papers["paper"], self.papers["name"], strict=True))

    def source(self, paper: str, table: str) -> str:
        """Names a table: `UML, Table 1`."""
        return f"{self._names[paper]}, Table {table}"


@cache
def read() -> Published:
    """Reads the tables, in the order of the papers."""
    at = bundled_root() / "published"
    papers, tables, misprints = (_read(at / f"{name}.csv") for name in ("papers", "tables", "misprints"))
    figures = pd.concat([_read(at / f"{paper}.csv") for paper in papers["paper"]], ignore_index=True)
    figures["noise"] = figures["noise"].replace("", "0").astype(float)
    figures["value"] = figures["value"].astype(float)
    digest = sha256_text("".join(f"{path.name} {sha256_file(path)}\n" for path in sorted(at.glob("*.csv"))))
    return Published(figures, tables, papers, misprints, digest)


def _read(path: Path) -> pd.DataFrame:
    return pd.read_csv(path, dtype=str, keep_default_na=False, encoding="utf-8")


def row_name(data: str, noise: float, backbone: str, method: str) -> str:
    """The name of a row of a table in `misprints.csv`: `flickr30k / 0.2 / SGRAF / DisNCL`."""
    return " / ".join(part for part in (data, f"{noise:g}" if noise else "", backbone, method) if part)
