"""Prints the least versions that pyproject.toml accepts, as a file of requirements: `make floors` installs them."""

import re
import tomllib
from pathlib import Path

EXTRAS = ("ct2", "demo", "excel", "hdf5", "index", "language", "lora", "onnx", "serve", "video")
"""The extras that are installed with them."""


def floors(pyproject: Path) -> list[str]:
    """The least version of each direct dependency, e.g. `numpy==2`; those without one, and for GPUs, are left out."""
    project = tomllib.loads(pyproject.read_text(encoding="utf-8"))["project"]
    names = project["dependencies"] + [line for extra in EXTRAS for line in project["optional-dependencies"][extra]]
    return [re.sub("[>=]=", "==", line) for line in sorted({*names}) if "=" in line.partition(";")[0]]


if __name__ == "__main__":
    print("\n".join(floors(Path(__file__).parents[1] / "pyproject.toml")))
