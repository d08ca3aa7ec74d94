"""The settings of `ccr train` in a TOML file: read in place of flags, and written from a run."""

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from itertools import zip_longest
from pathlib import Path
from typing import Any

from ccr_cli import registry
from ccr_cli.artifacts import run as runs
from ccr_cli.artifacts.base import Artifact, read_toml
from ccr_cli.data import toml
from ccr_cli.errors import ArtifactError, UsageError, no_file
from ccr_cli.stages.shared.options import flag
from ccr_cli.stages.train.options import TrainingOptions


def words(path: Path, others: Sequence[str] = ()) -> list[str]:
    """Reads a file as flags: `batch-size = 64` is `--batch-size 64`, and the table `set` has the keys of `--set`.

    Flags that `others`, the rest of the command line, sets or sweeps over are left out: a second `--lang` would add a
    language.

    Raises:
        ArtifactError: If the file cannot be read or is not TOML.
        UsageError: If the file does not exist, has a key `config`, or its `set` is not a table.
    """
    try:
        content = read_toml(path)
    except FileNotFoundError:
        raise no_file(path) from None
    except OSError as error:
        raise ArtifactError(f"the file of settings {str(path)!r} cannot be read: {error.strerror}") from None
    except ArtifactError as error:
        raise ArtifactError(error.message, hint="ccr show RUN --config > FILE.toml writes such a file") from None
    settings = content.pop("set", {})
    if "config" in content or not isinstance(settings, Mapping):
        raise UsageError(f"{path} has {'the key config' if 'config' in content else 'a key set that is no table'}")
    swept = {_key(axis) for axis in _sweeps(others)}
    overridden = {word.partition("=")[0] for word in others} | {f"--{key}" for key in swept}
    words = []
    for key, value in content.items():
        if (name := f"--{_key(key)}") in overridden:
            continue
        several = value if isinstance(value, list) else [value] * (value is not False)
        words += [name if each is True else f"{name}={_text(each)}" for each in several]
    return words + [f"--set={key}={_text(value)}" for key, value in settings.items() if _key(key) not in swept]


def _key(text: str) -> str:
    return text.replace("_", "-")


def _sweeps(words: Sequence[str]) -> Iterator[str]:
    """The options that `--sweep` varies."""
    for word, after in zip_longest(words, words[1:], fillvalue=""):
        flag, _, value = word.partition("=")
        if flag == "--sweep":
            yield (value or after).partition("=")[0].strip()


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def of_run(run: Artifact) -> str:
    """The content of such a file for a run, including defaults; comments name what the run was trained on."""
    request, configured = run.request, runs.config(run)["options"]
    noise = request.get("noise") or {}
    facts = request | configured | {"noise": noise.get("ratio")}
    facts |= {f"noise_{key}": noise.get(key) for key in ("style", "target", "seed")}
    named = {field.name: flag(field)[2:] for field in dataclasses.fields(TrainingOptions)}
    plain = (str, int, float, list)
    if facts["noise_seed"] == request["seed"]:  # the default, which follows --seed
        del facts["noise_seed"]
    flags = {own: facts[name] for name, own in named.items() if isinstance(facts.get(name), plain)}
    known = {field.name for field in dataclasses.fields(registry.load("methods", request["method"]).Config)}
    settings = {key: value for key, value in configured.items() if key in known - named.keys() and value is not None}
    weighted = ", with --weigh-verdicts" if (request.get("pairs") or {}).get("as") == "weights" else ""
    head = f"# trained on {' '.join(parent.path for parent in run.parents if parent.kind != 'noise')}\n"
    head += "".join(
        f"# and --{named[name]} FILE, sha256 {request[name]['sha256']}{weighted * (name == 'pairs')}\n"
        for name in ("pairs", "text_vectors")
        if request.get(name)
    )
    return f"{head}{toml.dumps(flags)}\n[set]\n{toml.dumps(settings)}"
