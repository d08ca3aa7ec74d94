"""The settings of `ccr train` in a TOML file: read in place of flags, and written from a run."""

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ccr_cli import registry
from ccr_cli.artifacts import run as runs
from ccr_cli.artifacts.base import Artifact
from ccr_cli.data import toml
from ccr_cli.errors import ArtifactError, UsageError
from ccr_cli.stages.shared.options import flag
from ccr_cli.stages.train.options import TrainingOptions


def words(path: Path) -> list[str]:
    """The flags in a file: `batch-size = 64` is `--batch-size 64`, and the table `set` has the keys of `--set`.

    Raises:
        ArtifactError: If there is no such file, or it is not TOML.
        UsageError: If it names another file, or `set` is not a table.
    """
    try:
        content = toml.read(path)
    except OSError as error:
        raise ArtifactError(f"the file of settings {str(path)!r} cannot be read: {error.strerror}") from None
    except ArtifactError as error:
        raise ArtifactError(error.message, hint="ccr show RUN --config > FILE.toml writes such a file") from None
    settings = content.pop("set", {})
    if "config" in content or not isinstance(settings, Mapping):
        raise UsageError(f"{path} has {'the key config' if 'config' in content else 'a key set that is no table'}")
    words = []
    for key, value in content.items():
        name = f"--{key.replace('_', '-')}"
        several = value if isinstance(value, list) else [value] * (value is not False)
        words += [name if each is True else f"{name}={_text(each)}" for each in several]
    return words + [f"--set={key}={_text(value)}" for key, value in settings.items()]


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def of_run(run: Artifact) -> str:
    """The settings of a run as such a file, defaults included; a comment names what it was trained on."""
    request, configured = run.request, runs.config(run)["options"]
    noise = request.get("noise") or {}
    facts = request | configured | {"noise": noise.get("ratio")}
    facts |= {f"noise_{key}": noise.get(key) for key in ("style", "target", "seed")}
    named = {field.name: flag(field)[2:] for field in dataclasses.fields(TrainingOptions)}
    plain = (str, int, float, list)
    flags = {own: facts[name] for name, own in named.items() if isinstance(facts.get(name), plain)}
    known = {field.name for field in dataclasses.fields(registry.load("methods", request["method"]).Config)}
    settings = {key: value for key, value in configured.items() if key in known - named.keys() and value is not None}
    head = f"# trained on {', '.join(parent.id for parent in run.parents)}\n"
    return f"{head}{toml.dumps(flags)}\n[set]\n{toml.dumps(settings)}"
