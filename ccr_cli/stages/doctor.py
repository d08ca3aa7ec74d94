"""doctor: what works on this machine, and how to get what is missing."""

import importlib
import importlib.metadata
import os
import platform
import shutil
from collections.abc import Callable

import ccr_cli
from ccr_cli import registry
from ccr_cli.artifacts.workspace import Workspace
from ccr_cli.encoders import clip

_PACKAGES = ("torch", "transformers", "numpy", "pandas", "pyarrow", "scikit-learn", "sacrebleu", "deep-translator")
_OPTIONAL = {
    "av": "video", "h5py": "hdf5", "ctranslate2": "ct2", "peft": "lora", "onnxruntime": "onnx", "ray": "ray",
    "faiss": "index", "fastapi": "serve", "uvicorn": "serve", "openpyxl": "excel", "torchvision": "",
    "py3langid": "language",
}  # fmt: skip
"""Optional packages, and the extra that installs each; without one, ccr does better without the package."""
_DISTRIBUTION = {"faiss": "faiss-cpu"}
"""Name on the package index, if it differs."""

Row = tuple[str, str, str]


def examine(workspace: Workspace) -> list[Row]:
    """Examines the machine: subjects, their state, and the command that fixes it (empty if nothing is wrong)."""
    rows: list[Row] = [("ccr", ccr_cli.__version__, ""), ("python", platform.python_version(), "")]
    rows += [(name, _version(name), "" if _version(name) != "missing" else f"pip install {name}") for name in _PACKAGES]
    rows += _devices()
    rows += [(f"optional {package}", *_optional(package)) for package in _OPTIONAL]
    for group, kind in (("encoders", "encoder"), ("translators", "engine")):
        rows += [(f"{kind} {name}", *_check(group, name)) for name in registry.names(group)]
    rows += _dual_encoders()
    for group in ("methods", "judges"):
        working, broken = registry.loaded(group)
        rows.append((group, ", ".join(working), ""))
        rows += [(f"{group[:-1]} {name}", *_broken(error)) for name, error in broken.items()]
    rows.append(_fonts())
    rows += _space(workspace)
    rows.append(("HF_HUB_OFFLINE", os.environ.get("HF_HUB_OFFLINE", "0"), ""))
    return rows


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "missing"


def _devices() -> list[Row]:
    import torch

    rows: list[Row] = [("cpu threads", str(torch.get_num_threads()), "")]
    if not torch.cuda.is_available():
        return [*rows, ("cuda", "no device", "")]
    for number in range(torch.cuda.device_count()):
        properties = torch.cuda.get_device_properties(number)
        rows.append((f"cuda:{number}", f"{properties.name}, {properties.total_memory / 2**30:.0f} GiB", ""))
    return rows


def _optional(package: str) -> tuple[str, str]:
    """Tries an import; a broken binary can raise anything."""
    extra, distribution = _OPTIONAL[package], _DISTRIBUTION.get(package, package)
    try:
        importlib.import_module(package)
    except Exception as error:
        if isinstance(error, ModuleNotFoundError) and error.name == package:
            return "not installed", f"pip install 'ccr-cli[{extra}]'" if extra else ""
        remedy = f"pip install --force-reinstall {distribution}" if extra else f"pip uninstall {package}"
        reason = next(iter(str(error).splitlines()), "")[:120]
        return f"{_version(package)}, broken: {type(error).__name__}: {reason}", remedy
    return _version(distribution), ""


def _check(group: str, name: str) -> tuple[str, str]:
    try:
        module = registry.load(group, name)
    except registry.BrokenError as error:
        return _broken(error)
    missing: Callable[[], tuple[str, str] | None] | None = getattr(module, "missing", None)
    return (missing and missing()) or ("available", "")


def _dual_encoders() -> list[Row]:
    """The models in the hub's cache that `ccr evaluate --zero-shot --model` can take, and why others cannot."""
    found = clip.usable()
    again = {name: f"hf download {name}" if state.startswith("incomplete") else "" for name, state in found.items()}
    return [(f"model {name}", state or "usable, --zero-shot --model", again[name]) for name, state in found.items()]


def _broken(error: registry.BrokenError) -> tuple[str, str]:
    return f"broken, {error.reason}", error.plugin.remedy


def _fonts() -> Row:
    """Whether figures can show captions in Chinese, Japanese and Korean."""
    from ccr_cli.report.figures.canvas import INSTALL, cjk_fonts

    fonts = cjk_fonts()
    return ("fonts zh, ja, ko", *((fonts[0], "") if fonts else ("none: boxes in figures", INSTALL)))


def _space(workspace: Workspace) -> list[Row]:
    folder = next(p for p in (workspace.root, *workspace.root.parents) if p.exists())
    free = shutil.disk_usage(folder).free / 2**30
    writable = os.access(folder, os.W_OK)
    return [
        ("workspace", f"{workspace.root}, {free:.0f} GiB free", "" if free > 1 else "free some disk space"),
        ("workspace writable", "yes" if writable else "no", "" if writable else "another --workspace"),
    ]
