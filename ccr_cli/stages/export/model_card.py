"""The model card of an exported run: what it is, how to use it, what it was trained on, how well it retrieves.

The text is `model_card.md.j2`. Every value that it prints is escaped for Markdown.
"""

import html
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader
from markupsafe import Markup

import ccr_cli
from ccr_cli.artifacts import base, evaluation, translation
from ccr_cli.artifacts.signature import noise_kind
from ccr_cli.artifacts.workspace import Workspace
from ccr_cli.console import plain
from ccr_cli.errors import ArtifactError
from ccr_cli.report.words import signature_words
from ccr_cli.report.words.numbers import metric, percent

_METRICS = ("R@1", "R@5", "R@10")
_LANGUAGE_TAG = re.compile(r"[a-z]{2,3}(-[A-Za-z0-9]{2,8})*")


@dataclass(frozen=True)
class CardFacts:
    """What a model card states about a run."""

    run: base.Artifact
    settings: Mapping[str, Any]
    about_method: str
    text_encoder: str
    """Name of a model on the hub or of a folder, `ngram`, or `given`."""
    on_hub: bool
    data: Mapping[str, Any]
    """The manifest of its data set."""
    langs: Sequence[str]
    """The source language first."""
    translations: Sequence[Mapping[str, Any]]
    """The engine for each language: lang, engine, model, version, licence. Further entries, with `again`, are for an
    engine that translated some captions again, and for corrections by hand (`by_hand`)."""
    encoder: Mapping[str, Any]
    command: str
    """The command that encodes other pictures in the same way."""
    licence: str
    """Licence of the text encoder; empty if unknown."""
    results: Sequence[Mapping[str, Any]]
    onnx: bool


@dataclass(frozen=True)
class ExportedEncoder:
    """One dual encoder of the run, exported to a folder."""

    number: int
    """From 1."""
    of: int
    sentence_transformers: bool
    """Whether its folder has the layout of that library."""
    dim: int
    images: Sequence[Mapping[str, Any]] = ()
    """The encoders of `image.json`."""


def card(facts: CardFacts, model: ExportedEncoder, *, folders: Sequence[str] = ()) -> str:
    """Renders the card of one dual encoder; with `folders`, of a run of several in them, with how to join them."""
    tags = ["cross-lingual", "cross-modal", "image-text-retrieval", "ccr", str(facts.settings["method"])]
    return render(
        "model_card.md.j2",
        facts=facts,
        tags=["sentence-transformers", "feature-extraction", *tags] if model.sentence_transformers else tags,
        languages=facts.langs,
        sentence_transformers=model.sentence_transformers,
        ngram=facts.text_encoder == "ngram",
        given=facts.text_encoder == "given",
        noise=_noise(facts.settings["noise"]),
        results=list(map(_result, facts.results)),
        by_machine=signature_words.ABOUT_MT if any(result.get("queries") for result in facts.results) else "",
        model=None if folders else model,
        folders=list(folders),
    )


@cache
def _environment() -> Environment:
    made = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        autoescape=True,  # for Markdown: `finalize` marks every value as safe once it is escaped
        finalize=lambda value: value if isinstance(value, Markup) else Markup(text(value)),
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    filters = {"json": json.dumps, "fenced": fenced, "code": _code}
    made.filters |= {name: lambda value, write=write: Markup(write(value)) for name, write in filters.items()}
    return made


def render(template: str, *, languages: Sequence[str], **facts: Any) -> str:
    """Renders a card from its template, without language tags that the hub does not know."""
    tags = [lang for lang in languages if _LANGUAGE_TAG.fullmatch(lang) and lang != "und"]
    content = _environment().get_template(template).render(languages=tags, version=ccr_cli.__version__, **facts)
    return re.sub(r"\n{3,}", "\n\n", content)


def translators(workspace: Workspace, made: base.Artifact) -> list[dict[str, Any]]:
    """Returns the engine of a translation, preceded by that of a translation it repairs; corrections come last."""
    engine, lang = made.environment.get("engine.forward") or {}, made.request["lang"]
    own = {"engine": made.request["engine"], **engine, "lang": lang}
    only = made.request.get("only")
    if only is None:
        return [own]
    try:
        before = translators(workspace, workspace.parent(made, "translation"))
    except ArtifactError:  # it is gone: only its request is known
        before = [{"engine": only["of"]["engine"], "lang": lang}]
    again = [own] if own["engine"] != translation.BY_HAND else []
    if "corrected" in only:
        again.append({"engine": translation.BY_HAND, "lang": lang, "by_hand": True})
    return [*before, *(engine | {"again": True} for engine in again)]


def text(value: object) -> str:
    """Escapes a value for Markdown, so that it cannot become markup, HTML or a table cell."""
    safe = html.escape(plain(str(value)), quote=False)
    return re.sub(r"([\\`*_\[\]{}|~#$!])", r"\\\1", safe)


def fenced(value: object) -> str:
    """Formats a value as JSON in a code block that its content cannot end."""
    lines = json.dumps(value, indent=2, ensure_ascii=False).replace("`", "\\u0060").split("\n")
    return "\n".join(["```json", *map(plain, lines), "```"])


def _code(value: str) -> str:
    """A text between backticks."""
    return f"`{plain(value).replace('`', chr(39))}`"


def _noise(mismatch: Mapping[str, Any] | None) -> str:
    if not mismatch:
        return "none"
    kind = signature_words.noise(noise_kind(mismatch))
    return f"{kind}: {percent(mismatch['ratio'])}, seed {mismatch['seed']}"


def _result(result: Mapping[str, Any]) -> dict[str, Any]:
    """A result as the cells of a row, and its signature as code."""
    values = [(result.get(direction) or {}).get(metric) for direction in ("t2v", "v2t") for metric in _METRICS]
    values += [result.get("SumR"), evaluation.mean_ap(result)]
    writer = f", {signature_words.queries(kind)}" if (kind := result.get("queries")) else ""
    lang = f"{result['lang']}{writer}"
    words = [result["data"], result["split"], lang, result["fusion"], result.get("reading") or ""]
    cells = [text(word) for word in words] + ["" if value is None else metric(value) for value in values]
    return {"cells": list(map(Markup, cells)), "signature": Markup(plain(str(result["signature"])))}
