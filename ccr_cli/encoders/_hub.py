"""Where a transformers model lies: a folder, the hub's cache, else a download; if nowhere, said in seconds.

`from_pretrained` takes 25 seconds to find out that there is no network, and its message then speaks of
missing files. Here the cache is asked first, and the hub once, with a limit of a few seconds.
"""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ccr_cli.errors import ArtifactError, UnavailableError, UsageError

PROBE_SECONDS = 3.5
_WEIGHTS = (
    ("model.safetensors.index.json", "model.safetensors"),
    ("pytorch_model.bin.index.json", "pytorch_model.bin"),
)
_OTHER_FILES = ["*.json", "*.txt", "*.model", "*.spm", "*.jinja"]


@dataclass(frozen=True)
class Located:
    """A complete model on this machine."""

    name: str
    """As the user gave it."""
    folder: Path
    """Holds config.json and the weights."""
    revision: str
    """Commit on the hub, or `local folder`."""
    weights: tuple[Path, ...]
    """The files of weights, safetensors where there are any."""


def locate(model: str, revision: str, alternatives: str = "") -> Located:
    """Finds a model, downloading it where the hub can be reached.

    Args:
        model: A folder, or a name on the hub such as `openai/clip-vit-base-patch32`.
        revision: Branch, tag or commit on the hub.
        alternatives: What else the user could do, for the hint.

    Raises:
        ArtifactError: If a folder of that name has no complete model.
        UsageError: If it is neither a folder nor a possible name.
        UnavailableError: If the model is not here and the hub does not give it, within five seconds.
    """
    folder = Path(model).expanduser()
    if folder.is_dir():
        weights = weights_of(folder)
        if not weights:
            raise ArtifactError(f"{folder} holds no complete model (config.json and all weights)")
        return Located(model, folder, "local folder", weights)
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HFValidationError, LocalEntryNotFoundError

    try:
        cached = Path(snapshot_download(model, revision=revision, local_files_only=True))
    except HFValidationError:
        raise UsageError(f"{model!r} is neither a folder nor a model's name (owner/name)") from None
    except LocalEntryNotFoundError:
        cached = None
    if cached is None or not weights_of(cached):
        files = _ask_hub(model, revision, alternatives)
        cached = _download(model, revision, files, alternatives)
    return Located(model, cached, cached.name, weights_of(cached))


def weights_of(folder: Path) -> tuple[Path, ...]:
    """Returns the files of weights of a model, none where the model is not complete."""
    if not (folder / "config.json").is_file():
        return ()
    for index, single in _WEIGHTS:
        if (folder / single).is_file():
            return (folder / single,)
        if (folder / index).is_file():
            table = json.loads((folder / index).read_text(encoding="utf-8"))["weight_map"]
            shards = tuple(folder / name for name in sorted(set(table.values())))
            if all(shard.is_file() for shard in shards):
                return shards
    return ()


def _ask_hub(model: str, revision: str, alternatives: str) -> list[str]:
    """Lists a model's files on the hub. In a thread, as no timeout of a client covers name resolution."""
    from huggingface_hub import HfApi
    from huggingface_hub.errors import HfHubHTTPError

    answer: dict[str, Any] = {}

    def ask() -> None:
        try:
            info = HfApi().model_info(model, revision=revision, timeout=PROBE_SECONDS)
            answer["files"] = [entry.rfilename for entry in info.siblings or []]
        except Exception as error:  # network, proxy, TLS, refusal: told apart below
            answer["error"] = error

    thread = threading.Thread(target=ask, daemon=True)
    thread.start()
    thread.join(PROBE_SECONDS)
    if "files" in answer:
        return list(answer["files"])
    error = answer.get("error")
    if isinstance(error, HfHubHTTPError) and error.response is not None and error.response.status_code < 500:
        reason = f"the hub answered {error.response.status_code} (no such model or revision, or not for you)"
    else:
        reason = f"the hub cannot be reached ({type(error).__name__ if error else 'no answer'})"
    raise _unavailable(model, revision, reason, alternatives)


def _download(model: str, revision: str, files: list[str], alternatives: str) -> Path:
    from huggingface_hub import snapshot_download

    kind = "*.safetensors" if any(name.endswith(".safetensors") for name in files) else "pytorch_model*.bin"
    try:
        folder = Path(snapshot_download(model, revision=revision, allow_patterns=[*_OTHER_FILES, kind]))
    except Exception as error:  # whatever the client raises; a second run goes on where this one stopped
        raise _unavailable(model, revision, f"its download stopped ({error})", alternatives) from error
    if not weights_of(folder):
        raise UnavailableError(f"{model} on the hub has no weights that transformers reads", alternatives or None)
    return folder


def _unavailable(model: str, revision: str, reason: str, alternatives: str) -> UnavailableError:
    command = f"hf download {model}" + (f" --revision {revision}" if revision != "main" else "")
    where = f"where there is a network: {command}"
    return UnavailableError(
        f"the model {model} is not on this machine, and {reason}",
        hint=f"{where}; {alternatives}" if alternatives else where,
    )


@contextmanager
def transformers_loading() -> Iterator[None]:
    """Around every import of transformers and every `from_pretrained`: no torchvision, no progress bars.

    Where torchvision is installed, transformers imports it, and where it does not fit torch (a CUDA build beside
    a CPU build of torch) even a text model then fails to import. Nothing here needs it, so transformers is told
    that there is none, unless the program itself has loaded it already.
    """
    hidden = "torchvision" not in sys.modules
    if hidden:
        sys.modules["torchvision"] = None  # type: ignore[assignment]  # find_spec then says: not installed
    try:
        from transformers.utils import import_utils, logging

        if hidden:
            import_utils.is_torchvision_available.cache_clear()
            import_utils.is_torchvision_v2_available.cache_clear()
            import_utils.is_torchvision_available()
        shown = logging.is_progress_bar_enabled()
        logging.disable_progress_bar()
        try:
            yield
        finally:
            if shown:
                logging.enable_progress_bar()
    finally:
        if hidden:
            del sys.modules["torchvision"]
