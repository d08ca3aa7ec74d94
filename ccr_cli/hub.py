"""Locating a transformers model: a folder, the hub's cache, else a download; fails within seconds without a network.

`from_pretrained` needs 25 seconds to notice that there is no network, and then complains about missing files. This
module looks into the cache first and contacts the hub once, with a limit of a few seconds.

Weights are only read from safetensors: a `.bin` is a pickle. If `main` has only pickles, the pull request with the
conversion by the hub's own bot is used (as transformers does); a conversion is never requested.
"""

import hashlib
import json
import re
import threading
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TypeVar

from ccr_cli.console import say
from ccr_cli.errors import ArtifactError, UnavailableError, UsageError, redact

T = TypeVar("T")
PROBE_SECONDS = 3.5
LOCAL = "local folder"
_WEIGHTS = "model.safetensors"
_PICKLES = "pytorch_model*.bin"
_OTHER_FILES = ["*.json", "*.txt", "*.model", "*.spm", "*.jinja"]
_FILES = [*_OTHER_FILES, "*.safetensors", "README.md"]
"""Files to download. README.md is the model's card, which names the licence."""
_CONVERTER = "SFconvertbot"
_CONVERSION = "Adding `safetensors` variant of this model"
_CONVERTED = "ccr/safetensors"
"""A ref that ccr writes into the cache: the commit of the conversion that replaces `main`, for use offline."""

_FRONT_MATTER = re.compile(r"\A---\n(.*?)^---$", re.DOTALL | re.MULTILINE)
_LICENCE = re.compile(r"^license:\s*(?:- +)?['\"]?([\w.+-]+)", re.MULTILINE)


@dataclass(frozen=True)
class Located:
    """A complete model on this machine."""

    name: str
    """The user's name for it."""
    folder: Path
    revision: str
    """Commit on the hub, or `LOCAL`."""
    weights: tuple[Path, ...]

    @property
    def label(self) -> str:
        """Its name in results: the name on the hub, or the folder's own name."""
        return self.folder.resolve().name if self.revision == LOCAL else self.name


def locate(model: str, revision: str, alternatives: str = "") -> Located:
    """Finds a model (a folder, or a name on the hub), downloading it if necessary.

    If `main` has no safetensors, the hub's own conversion is used. `alternatives` says, for the hint, what else to do.

    Raises:
        ArtifactError: If a folder of that name has no complete model.
        UsageError: If it is neither a folder nor a valid name.
        UnavailableError: If the model is neither on this machine nor available from the hub, or has no safetensors.
    """
    from huggingface_hub import snapshot_download

    conversion = None
    try:
        if located := find(model, revision):
            return located
        _check_hub(model, revision, alternatives)
    except _PickledError:
        if revision == "main" and not Path(model).expanduser().is_dir():
            conversion = _conversion(model)
        if conversion is None:
            raise
        say(f"{model} has no safetensors on main: using revision {conversion}, the hub's own conversion of it")
    try:
        folder = Path(snapshot_download(model, revision=conversion or revision, allow_patterns=_FILES))
    except Exception as error:  # whatever the client raises; a second run resumes the download
        reason = f"its download stopped ({redact(str(error))})"
        raise _unavailable(model, conversion or revision, reason, alternatives) from error
    weights = weights_of(folder)
    if not weights:
        raise UnavailableError(f"{model} on the hub has no weights that transformers can read", alternatives or None)
    if conversion:
        ref = folder.parents[1] / "refs" / _CONVERTED
        with suppress(OSError):  # a shared cache may be read-only
            ref.parent.mkdir(parents=True, exist_ok=True)
            ref.write_text(folder.name, encoding="utf-8")
    return Located(model, folder, folder.name, weights)


def find(model: str, revision: str = "main") -> Located | None:
    """Finds a model on this machine; None if it would have to be downloaded.

    Raises:
        ArtifactError: If a folder of that name has no complete model.
        UsageError: If it is neither a folder nor a valid name.
        UnavailableError: If it is on this machine without safetensors.
    """
    folder = Path(model).expanduser()
    local = folder.is_dir()
    refs = [revision, _CONVERTED] if revision == "main" else [revision]
    places = [folder] if local else [place for ref in refs if (place := _cached(model, ref))]
    for place in places:
        if weights := weights_of(place):
            return Located(model, place, LOCAL if local else place.name, weights)
    if any(any(place.glob(_PICKLES)) for place in places):
        raise _PickledError(model)
    if local:
        raise ArtifactError(f"{folder} holds no complete model (config.json and all weights)")
    return None


def _cached(model: str, revision: str) -> Path | None:
    """A revision's folder in the hub's cache, if it is complete."""
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HFValidationError, LocalEntryNotFoundError

    try:
        return Path(snapshot_download(model, revision=revision, allow_patterns=_FILES, local_files_only=True))
    except HFValidationError:
        raise UsageError(f"{model!r} is neither a folder nor the name of a model (owner/name)") from None
    except LocalEntryNotFoundError:
        return None


def identity(model: str) -> dict[str, str]:
    """Returns what a request records instead of a model's folder: the digest of its files.

    Empty for a name on the hub: the request has its `revision`, and results record the commit.
    """
    if not model or not Path(model).expanduser().is_dir():
        return {}
    located = find(model)
    assert located is not None
    files = {*located.weights, *(path for pattern in _OTHER_FILES for path in located.folder.glob(pattern))}
    facts = ((path, path.stat()) for path in sorted(files))
    lines = (f"{path.name} {_digest(path.absolute(), at.st_size, at.st_mtime_ns)}\n" for path, at in facts)
    return {"model": f"sha256:{hashlib.sha256(''.join(lines).encode()).hexdigest()}"}


@cache
def _digest(path: Path, size: int, changed: int) -> str:
    """A file's digest, read again only if its size or modification time changes."""
    with path.open("rb") as handle:
        return hashlib.file_digest(handle, "sha256").hexdigest()


def cached() -> dict[str, dict[str, object]]:
    """Returns the content of config.json by model, for the models whose `main` is in the hub's cache."""
    from huggingface_hub import constants

    found = {}
    for place in sorted(Path(constants.HF_HUB_CACHE).glob("models--*")):
        with suppress(OSError, RecursionError, ValueError):
            commit = (place / "refs" / "main").read_text(encoding="utf-8").strip()
            config = json.loads((place / "snapshots" / commit / "config.json").read_text(encoding="utf-8"))
            if isinstance(config, dict):
                found[place.name.removeprefix("models--").replace("--", "/")] = config
    return found


def missing(model: str) -> tuple[str, str] | None:
    """Returns what a model lacks on this machine and how to get it, for `ccr doctor`; None if nothing."""
    try:
        located = find(model)
    except (ArtifactError, UnavailableError) as error:
        return error.message, error.hint or ""
    return None if located else (f"the default model {model} is not on this machine", f"hf download {model}")


def licence(folder: Path) -> str | None:
    """Returns the licence in a model's card (README.md), or None."""
    card = folder / "README.md"
    front = _FRONT_MATTER.match(card.read_text(encoding="utf-8", errors="replace")) if card.is_file() else None
    match = _LICENCE.search(front[1]) if front else None
    if not match:
        return None
    return match[1].upper() if match[1].lower().startswith("cc") else match[1]


def weights_of(folder: Path) -> tuple[Path, ...]:
    """Returns a model's weight files; none if the model is incomplete or has no safetensors."""
    single, index = folder / _WEIGHTS, folder / f"{_WEIGHTS}.index.json"
    weights = (single,)
    if index.is_file() and not single.is_file():
        try:
            table = json.loads(index.read_text(encoding="utf-8"))["weight_map"]
            weights = tuple(folder / name for name in sorted(set(table.values())))
        except (AttributeError, LookupError, RecursionError, TypeError, ValueError):  # the file is damaged
            return ()
    return weights if all(path.is_file() for path in (folder / "config.json", *weights)) else ()


class _PickledError(UnavailableError):
    def __init__(self, model: str) -> None:
        super().__init__(
            f"{model} has its weights only as a pickle (.bin), which ccr does not open; it reads safetensors",
            hint="--set revision=refs/pr/N if its page on the hub offers a conversion, or convert it once: "
            "docs/troubleshooting.md, 'A model without safetensors'",
        )


def in_time(call: Callable[[], T], seconds: float = PROBE_SECONDS) -> T:
    """Runs `call` in a thread, since no client timeout covers name resolution; raises its error or TimeoutError."""
    reply: Future[T] = Future()

    def run() -> None:
        try:
            reply.set_result(call())
        except Exception as error:  # network, proxy, TLS, refusal: the caller distinguishes them
            reply.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    return reply.result(seconds)


def _check_hub(model: str, revision: str, alternatives: str) -> None:
    """Checks that the hub has the model, with weights in safetensors."""
    from huggingface_hub import HfApi

    try:
        info = in_time(lambda: HfApi().model_info(model, revision=revision, timeout=PROBE_SECONDS))
        suffixes = {Path(entry.rfilename).suffix for entry in info.siblings or []}
    except Exception as error:  # whatever the client raises
        raise _unavailable(model, revision, refusal(error, "no such model or revision"), alternatives) from error
    if ".bin" in suffixes and ".safetensors" not in suffixes:
        raise _PickledError(model)


def refusal(error: Exception, lacking: str) -> str:
    """Describes an error of the hub's client: the hub's answer, with `lacking` as a likely reason, or no connection."""
    from huggingface_hub.errors import HfHubHTTPError

    if isinstance(error, HfHubHTTPError) and error.response is not None and error.response.status_code < 500:
        return f"the hub answered {error.response.status_code} ({lacking}, or no access)"
    return f"the hub cannot be reached ({type(error).__name__})"


def repository(target: str) -> str:
    """The OWNER/NAME in `hf:OWNER/NAME`; UsageError if the target has another form."""
    if not re.fullmatch(r"hf:[\w.-]+/[\w.-]+", target):
        raise UsageError(f"--to {target}: expected hf:OWNER/NAME")
    return target.removeprefix("hf:")


def upload(folder: Path, name: str, kind: str) -> None:
    """Uploads a folder to a repository of the hub (`kind` model or dataset), which is private if it is new.

    The token is the user's own: `HF_TOKEN`, or that of `hf auth login`.

    Raises:
        UnavailableError: If the hub cannot be reached or refuses; the same call again continues the upload.
    """
    from huggingface_hub import HfApi, constants

    what = f"{name} on {constants.ENDPOINT.partition('://')[2]}"
    say(f"uploading {folder.name} to {what}, a third party")
    try:
        in_time(lambda: HfApi().create_repo(name, repo_type=kind, private=True, exist_ok=True), 10 * PROBE_SECONDS)
        done = HfApi().upload_folder(repo_id=name, folder_path=folder, repo_type=kind, commit_message="ccr export")
    except Exception as error:  # whatever the client raises
        hint = "hf auth login, or HF_TOKEN, with a token that may write there; then the same command again"
        problem = f"{folder.name} was not uploaded to {what}: {refusal(error, 'no such owner')}"
        raise UnavailableError(problem, hint) from error
    say(f"uploaded: {done}")


def _conversion(model: str) -> str | None:
    """The newest pull request in which the hub's own bot adds safetensors; those of others are ignored."""
    from huggingface_hub import HfApi

    pulls = HfApi().get_repo_discussions(model, author=_CONVERTER, discussion_type="pull_request")
    try:
        candidates = in_time(lambda: list(pulls))
    except Exception:  # no network, a mirror without pull requests, or they are disabled
        return None
    own = [p for p in candidates if (p.author, p.title) == (_CONVERTER, _CONVERSION) and p.status in ("open", "merged")]
    return max(own, key=lambda pull: pull.num).git_reference if own else None


def _unavailable(model: str, revision: str, reason: str, alternatives: str) -> UnavailableError:
    command = f"hf download {model}" + (f" --revision {revision}" if revision != "main" else "")
    hint = f"on a machine with a network: {command}" + (f"; {alternatives}" if alternatives else "")
    where = f"there is no folder {model} and no model of that name in the hub's cache"
    return UnavailableError(f"{where}, and {reason}", hint)
