"""Where a transformers model lies: a folder, the hub's cache, else a download; if nowhere, said in seconds.

`from_pretrained` takes 25 seconds to find out that there is no network, and its message then speaks of
missing files. Here the cache is asked first, and the hub once, with a limit of a few seconds.

Weights are read from safetensors alone: a `.bin` is a pickle.
"""

from __future__ import annotations

import hashlib
import json
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ccr_cli.errors import ArtifactError, UnavailableError, UsageError, redact

PROBE_SECONDS = 3.5
LOCAL = "local folder"
_WEIGHTS = "model.safetensors"
_OTHER_FILES = ["*.json", "*.txt", "*.model", "*.spm", "*.jinja"]


@dataclass(frozen=True)
class Located:
    """A complete model on this machine."""

    name: str
    """As the user gave it."""
    folder: Path
    """Holds config.json and the weights."""
    revision: str
    """Commit on the hub, or `LOCAL`."""
    weights: tuple[Path, ...]
    """The files of weights."""

    @property
    def label(self) -> str:
        """What results call it: its name on the hub, or its folder's own name, wherever that lies."""
        return self.folder.resolve().name if self.revision == LOCAL else self.name


def locate(model: str, revision: str, alternatives: str = "") -> Located:
    """Finds a model, downloading it where the hub can be reached.

    Args:
        model: A folder, or a name on the hub such as `openai/clip-vit-base-patch32`.
        revision: Branch, tag or commit on the hub.
        alternatives: What else the user could do, for the hint.

    Raises:
        ArtifactError: If a folder of that name has no complete model.
        UsageError: If it is neither a folder nor a possible name.
        UnavailableError: If the model is not here and the hub does not give it, within five seconds, or if it
            has no safetensors.
    """
    found = find(model, revision)
    if found is not None:
        return found
    _ask_hub(model, revision, alternatives)
    folder = _download(model, revision, alternatives)
    return Located(model, folder, folder.name, weights_of(folder))


def find(model: str, revision: str = "main") -> Located | None:
    """Finds a model on this machine; None where it would have to be downloaded.

    Raises:
        ArtifactError: If a folder of that name has no complete model.
        UsageError: If it is neither a folder nor a possible name.
        UnavailableError: If it is here without safetensors.
    """
    folder = Path(model).expanduser()
    if folder.is_dir():
        weights = weights_of(folder)
        if not weights:
            raise ArtifactError(f"{folder} holds no complete model (config.json and all weights)")
        return Located(model, folder, LOCAL, weights)
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HFValidationError, LocalEntryNotFoundError

    try:
        cached = Path(snapshot_download(model, revision=revision, local_files_only=True))
    except HFValidationError:
        raise UsageError(f"{model!r} is neither a folder nor a model's name (owner/name)") from None
    except LocalEntryNotFoundError:
        return None
    weights = weights_of(cached)
    return Located(model, cached, cached.name, weights) if weights else None


def identity(model: str) -> dict[str, str]:
    """What a request records of a model beside its name: for a folder the digest of what a model is read from.

    Nothing for a name on the hub: there `revision` says which, and what it led to is recorded with the results.
    """
    if not model or not Path(model).expanduser().is_dir():
        return {}
    located = find(model)
    assert located is not None
    files = {*located.weights, *(path for pattern in _OTHER_FILES for path in located.folder.glob(pattern))}
    whole = hashlib.sha256()
    for path in sorted(files):
        with path.open("rb") as handle:
            whole.update(f"{path.name} {hashlib.file_digest(handle, 'sha256').hexdigest()}\n".encode())
    return {"model": f"sha256:{whole.hexdigest()}"}


def missing(model: str) -> tuple[str, str] | None:
    """Says what is wrong with a model on this machine and how to get it, for `ccr doctor`; None where nothing is."""
    try:
        found = find(model)
    except (ArtifactError, UnavailableError) as error:
        return error.message, error.hint or ""
    return None if found else (f"the default model {model} is not on this machine", f"hf download {model}")


def weights_of(folder: Path) -> tuple[Path, ...]:
    """Returns the files of weights of a model, none where the model is not complete.

    Raises:
        UnavailableError: If it is there, but without safetensors.
    """
    if not (folder / "config.json").is_file():
        return ()
    single, index = folder / _WEIGHTS, folder / f"{_WEIGHTS}.index.json"
    if single.is_file():
        return (single,)
    if index.is_file():
        table = json.loads(index.read_text(encoding="utf-8"))["weight_map"]
        shards = tuple(folder / name for name in sorted(set(table.values())))
        return shards if all(shard.is_file() for shard in shards) else ()
    if any(folder.glob("pytorch_model*.bin")):
        raise _pickled(str(folder))
    return ()


def _pickled(model: str) -> UnavailableError:
    return UnavailableError(
        f"{model} has its weights as a pickle (.bin) alone, which is never opened; ccr reads safetensors",
        hint="--set revision=refs/pr/N where its page on the hub offers a conversion, or convert it once: "
        "docs/troubleshooting.md, 'A model without safetensors'",
    )


def _ask_hub(model: str, revision: str, alternatives: str) -> None:
    """Asks whether the hub has the model. In a thread, as no timeout of a client covers name resolution."""
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
        suffixes = {Path(name).suffix for name in answer["files"]}
        if ".bin" in suffixes and ".safetensors" not in suffixes:
            raise _pickled(model)
        return
    error = answer.get("error")
    if isinstance(error, HfHubHTTPError) and error.response is not None and error.response.status_code < 500:
        reason = f"the hub answered {error.response.status_code} (no such model or revision, or not for you)"
    else:
        reason = f"the hub cannot be reached ({type(error).__name__ if error else 'no answer'})"
    raise _unavailable(model, revision, reason, alternatives)


def _download(model: str, revision: str, alternatives: str) -> Path:
    from huggingface_hub import snapshot_download

    try:
        folder = Path(snapshot_download(model, revision=revision, allow_patterns=[*_OTHER_FILES, "*.safetensors"]))
    except Exception as error:  # whatever the client raises; a second run goes on where this one stopped
        raise _unavailable(model, revision, f"its download stopped ({redact(str(error))})", alternatives) from error
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
