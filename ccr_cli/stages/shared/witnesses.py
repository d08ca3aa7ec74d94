"""The files and models that options of a judge name: recorded by content, refused if the judge does not read them."""

import hashlib
from collections.abc import Mapping
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

from ccr_cli import hub
from ccr_cli.artifacts.base import refuse_special
from ccr_cli.data.dictionary import files_of
from ccr_cli.errors import UsageError, no_file
from ccr_cli.judges.base import load_judge
from ccr_cli.judges.config import JudgeConfig
from ccr_cli.stages.shared.options import configure

_NAMES = tuple(field.name for field in fields(JudgeConfig))


def recorded(config: JudgeConfig) -> dict[str, Any]:
    """The options as a request records them: those of the judge only if set, a file or model by its SHA-256.

    An option that earlier versions lack is left out too if it does what they did, so that their runs are found again.
    """
    earlier = {"head": "linear", "prototype": "mean", "drop_below": getattr(type(config), "drop_below", None)}
    given = {name: value for name, value in asdict(config).items() if name not in _NAMES}
    options = {name: value for name, value in given.items() if name not in earlier or value != earlier[name]}
    if teacher := options.get("teacher"):
        options["teacher"] = hub.identity(teacher).get("model", teacher)
    if config.dictionary:
        options["dictionary"] = _sha256(*files_of(Path(config.dictionary)))
    if config.sentence_encoder:
        options["sentence_encoder"] = hub.identity(config.sentence_encoder).get("model", config.sentence_encoder)
    for name in ("parallel", "scores"):
        if path := getattr(config, name):
            options[name] = _sha256(Path(path))
    return options


def judge_config(settings: Mapping[str, Any], judge: str) -> JudgeConfig:
    """Makes the options of a judge from values by name; UsageError on one that is unknown or that it does not read."""
    config = configure(JudgeConfig, settings, f"the judge {judge}")
    refuse_unused(config, judge)
    return config


def refuse_unused(config: JudgeConfig, judge: str) -> None:
    """Refuses an option that the judge does not read (UsageError)."""
    for name in _NAMES:
        if getattr(config, name) and name not in load_judge(judge).reads:
            raise UsageError(f"the judge {judge} reads no {name}", hint=f"leave --set {name}=... out")


def _sha256(*paths: Path) -> str:
    digest = hashlib.sha256()
    for path in paths:
        try:
            digest.update(refuse_special(path).read_bytes())
        except FileNotFoundError:
            raise no_file(path) from None
        except OSError as error:
            raise UsageError(f"{path} cannot be read: {error.strerror}") from None
    return f"sha256:{digest.hexdigest()}"
