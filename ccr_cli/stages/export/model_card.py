"""The model card of an exported model: what it is, how it is used, what it was trained on, how it was measured.

Texts out of data, names among them, are escaped; figures and signatures are those of evaluations.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import ccr_cli
from ccr_cli.artifacts import base, evaluation
from ccr_cli.console import plain
from ccr_cli.nets.plain import OF_ROWS

_FIGURES = ("R@1", "R@5", "R@10")
_TAG = re.compile(r"[a-z]{2,3}(-[A-Za-z0-9]{2,8})*")
_NGRAM, _GIVEN = "ngram", "given"


@dataclass(frozen=True)
class Facts:
    """What is known of a run, as far as its card says it."""

    run: base.Artifact
    settings: Mapping[str, Any]
    """Its config.json."""
    about_method: str
    """What the method is, and its paper."""
    text_encoder: str
    """A name: of a model on the hub, of a folder, `ngram` or `given`."""
    on_hub: bool
    data: Mapping[str, Any]
    """The manifest of its data set."""
    langs: Sequence[str]
    """Languages of its texts, the source's first."""
    translations: Sequence[Mapping[str, Any]]
    """What translated the captions, one entry a language: lang, engine, model, version, licence; and one more, with
    `again`, for whatever translated some of them again."""
    encoder: Mapping[str, Any]
    """encoder.json of its features."""
    command: str
    """What encodes other pictures in the same way."""
    licence: str
    """Of the text encoder; empty where it is not known."""
    results: Sequence[Mapping[str, Any]]
    """Of its evaluations."""
    onnx: bool


@dataclass(frozen=True)
class Model:
    """One dual encoder of the run, in a folder."""

    number: int
    """From 1."""
    of: int
    sentence_transformers: bool
    """Whether its folder has that layout."""
    visual: Sequence[Mapping[str, Any]]
    """The layers of `visual.json`."""
    dim: int


def card(facts: Facts, model: Model) -> str:
    """The card of one dual encoder."""
    name = text(facts.run.name) + (f", model {model.number} of {model.of}" if model.of > 1 else "")
    what = _what(facts)
    intro = (
        f"{what[0].upper()}{what[1:]} A vector has {model.dim} numbers. Written by `ccr export` {ccr_cli.__version__}, "
        f"which is not needed to use it; the run's id is `{facts.run.id[:16]}`."
    )
    parts = [_front_matter(facts, model.sentence_transformers), f"# {name}", intro]
    if model.of > 1:
        parts.append(
            f"The run has {model.of} models, each in a folder of its own. This one works alone; the results below are "
            "of all together, whose similarity is the mean of theirs: put their vectors one after the other and divide "
            f"by the square root of {model.of}."
        )
    parts += ["## Use", _texts(facts, model), *_pictures(facts, model)]
    return "\n\n".join(parts + _provenance(facts)) + "\n"


def joint_card(facts: Facts, models: Sequence[Model], folders: Sequence[str]) -> str:
    """The card of a run of several dual encoders: where each is, and how they are joined."""
    layout = models[0].sentence_transformers
    load, each = "from sentence_transformers import SentenceTransformer", "SentenceTransformer(folder).encode(texts)"
    if not layout:
        load = f'import sys\n\nsys.path.append("{folders[0]}")\nfrom encode import Encoder'
        each = "Encoder(folder).encode(texts)"
    code = (
        f"import numpy as np\n{load}\n\ntexts = [{_example(facts)}]\n"
        f"parts = [{each} for folder in {json.dumps(list(folders))}]\n"
        f"text_TD = np.concatenate(parts, axis=1) / {len(models)} ** 0.5"
    )
    parts = [
        _front_matter(facts, layout),
        f"# {text(facts.run.name)}",
        f"{len(models)} models that were trained together; {_what(facts)} Each is complete in a folder of its own:",
        "\n".join(f"- [`{folder}`]({folder}/README.md)" for folder in folders),
        "The run retrieves by the mean of their similarities. Their vectors, one after the other and divided by the "
        "square root of their number, have it as their product; so for texts, and in the same way for pictures:",
        _block(code),
    ]
    return "\n\n".join(parts + _provenance(facts)) + "\n"


def text(value: object) -> str:
    """Escapes a text for Markdown: neither markup, nor HTML, nor the cell of a table comes of it."""
    safe = plain(str(value)).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return re.sub(r"([\\`*_\[\]{}|~#$!])", r"\\\1", safe)


def fenced(value: object) -> str:
    """A value as JSON in a block of code, which nothing in it can end."""
    lines = json.dumps(value, indent=2, ensure_ascii=False).replace("`", "\\u0060").split("\n")
    return _block("\n".join(plain(line) for line in lines), "json")


def _block(code: str, language: str = "python") -> str:
    return f"```{language}\n{code}\n```"


def _code(value: str) -> str:
    """A text between backticks."""
    return f"`{plain(value).replace('`', chr(39))}`"


def _table(rows: Iterable[tuple[str, str]]) -> str:
    return "\n".join(["| | |", "|---|---|", *(f"| {what} | {value} |" for what, value in rows)])


def _front_matter(facts: Facts, layout: bool) -> str:
    """YAML; every value is a JSON string, which YAML reads as that string."""
    library, task = ("sentence-transformers", "sentence-similarity") if layout else ("numpy", "feature-extraction")
    tags = ["sentence-transformers", "feature-extraction"] if layout else []
    tags += ["cross-lingual", "cross-modal", "image-text-retrieval", "ccr", str(facts.settings["method"])]
    langs = [lang for lang in facts.langs if _TAG.fullmatch(lang) and lang != "und"]
    lines = [*_listed("language", langs), f"library_name: {json.dumps(library)}", f"pipeline_tag: {json.dumps(task)}"]
    lines += _listed("tags", tags)
    lines += [f"base_model: {json.dumps(facts.text_encoder)}"] if facts.on_hub else []
    return "\n".join(["---", *lines, "---"])


def _listed(key: str, values: Sequence[str]) -> list[str]:
    return [f"{key}:", *(f"- {json.dumps(value)}" for value in values)] if values else []


def _what(facts: Facts) -> str:
    return (
        f"texts ({text(', '.join(facts.langs))}) and pictures or videos become unit vectors, whose product is their "
        "similarity."
    )


def _example(facts: Facts) -> str:
    return "features" if facts.text_encoder == _GIVEN else '"a dog in the snow"'


def _texts(facts: Facts, model: Model) -> str:
    load, call = "from encode import Encoder", "Encoder()"
    if model.sentence_transformers:
        said = "Texts, in this folder, with sentence-transformers:"
        load, call = "from sentence_transformers import SentenceTransformer", 'SentenceTransformer(".")'
    elif facts.text_encoder == _GIVEN:
        said = "Texts, in this folder, by the features that they came with; of no other text anything is known:"
    else:
        needs = "numpy and safetensors" if facts.text_encoder == _NGRAM else "torch and transformers"
        said = f"Texts, in this folder, with {needs} (`text.json` says in words what `encode.py` does):"
    parts = [said, _block(f"{load}\n\ntext_TD = {call}.encode([{_example(facts)}])")]
    if facts.onnx:
        parts.append(
            "Or with onnxruntime, on the padded `input_ids` and `attention_mask` of the tokenizer (int64), any number "
            "of texts of any length:"
        )
        run = 'session.run(None, {"input_ids": input_ids, "attention_mask": attention_mask})'
        session = 'session = onnxruntime.InferenceSession("text.onnx")'
        parts.append(_block(f"import onnxruntime\n\n{session}\n(text_TD,) = {run}"))
    return "\n\n".join(parts)


def _pictures(facts: Facts, model: Model) -> list[str]:
    dim = facts.settings["visual_dim"]
    if any(step["layer"] in OF_ROWS for step in model.visual):
        code = "from encode import Encoder\n\nx = Encoder().encode_visual(features)"
        given = f"`features` an array an item: {dim} numbers, or a row of {dim} a frame"
    else:
        code = (
            "import torch\nfrom safetensors.torch import load_file\nfrom torch.nn import functional\n\n"
            'w = load_file("visual.safetensors")\nx = torch.as_tensor(features).float()\n'
        )
        code += "\n".join(line for step in model.visual if (line := _line(step)))
        given = f"`features` an array of {dim} numbers a picture; of a video the mean over its frames"
    return [
        f"Pictures, in this folder, with {given} (`visual.json` says the same in words):",
        _block(code),
        "The features are those of this frozen encoder:",
        fenced(facts.encoder),
        f"ccr makes them of the pictures of a data set by {_code(facts.command)}, in float16. The product of `x` and a "
        "text's vector is their similarity.",
    ]


def _line(step: Mapping[str, Any]) -> str:
    """A layer in torch; the mean has been taken before."""
    match step["layer"]:
        case "layer_norm":
            return f"x = functional.layer_norm(x, x.shape[-1:], eps={step['eps']!r})"
        case "linear":
            return f'x = functional.linear(x, w["{step["weight"]}"], w["{step["bias"]}"])'
        case "leaky_relu":
            return f"x = functional.leaky_relu(x, {step['slope']!r})"
        case "unit":
            return "x = functional.normalize(x, dim=-1)"
        case "mean":
            return ""
        case function:
            return f"x = functional.{function}(x)"


def _provenance(facts: Facts) -> list[str]:
    """Where it comes from and how good it is."""
    return ["## Training", *_training(facts), "## Results", *_results(facts), "## Licences", *_licences(facts)]


def _training(facts: Facts) -> list[str]:
    settings, data = facts.settings, facts.data
    rows = [("data", text(data.get("title") or data.get("name") or settings["data"]))]
    rows += [("cite the data as", text(data["citation"]))] if data.get("citation") else []
    captions = "features of texts" if facts.text_encoder == _GIVEN else f"{text(facts.langs[0])} captions"
    rows.append(("learned from", f"{settings['triplets']} pairs of a picture or video and {captions}"))
    for each in facts.translations:
        made = " ".join(str(each[key]) for key in ("engine", "model", "version") if each.get(key))
        by = "people" if each["lang"] in settings.get("human", []) else "machine"
        rows.append((f"translations into {text(each['lang'])}{_again(each)}", f"by {by}: {text(made)}"))
    rows.append(("switched on purpose", _noise(settings["noise"])))
    rows.append(("method", f"{_code(str(settings['method']))}: {text(facts.about_method)}"))
    named = {_NGRAM: "hashed words and character n-grams, from scratch", _GIVEN: "none, the features are given"}
    rows.append(("text encoder", named.get(facts.text_encoder, text(facts.text_encoder))))
    chosen = {"mt": "machine-translated validation captions", "human": "validation captions that people wrote"}
    rows.append(("epoch chosen by", chosen.get(settings["select"], "nothing: the last one was kept")))
    rows.append(("seed", str(settings["seed"])))
    return [_table(rows), "All options:", fenced(settings["options"])]


def _again(translated: Mapping[str, Any]) -> str:
    return ", some of them again" if translated.get("again") else ""


def _noise(mismatch: Mapping[str, Any] | None) -> str:
    if not mismatch:
        return "nothing"
    target = {"translation": "translations", "pair": "captions with their translations"}[mismatch["target"]]
    style = {"caption": "singly", "image": "all of an item together"}[mismatch["style"]]
    return f"{100 * mismatch['ratio']:g} % of the {target}, {style}, seed {mismatch['seed']}"


def _results(facts: Facts) -> list[str]:
    if not facts.results:
        return ["No evaluation of this run was there when it was exported."]
    head = ["", "data", "split", "queries", "score fusion", "reading"]
    head += [f"{way} {figure}" for way in ("text to item", "item to text") for figure in _FIGURES] + ["SumR", "mAP"]
    lines, signatures = [f"| {' | '.join(head)} |", f"|{'---|' * len(head)}"], []
    for number, result in enumerate(facts.results, 1):
        ways = [result.get(direction) or {} for direction in ("t2v", "v2t")]
        figures = [way.get(figure) for way in ways for figure in _FIGURES]
        figures += [result.get("SumR"), evaluation.mean_ap(result)]
        shown = [result["data"], result["split"], result["lang"], result["fusion"], result.get("reading") or ""]
        cells = [str(number), *map(text, shown), *("" if value is None else f"{value:.1f}" for value in figures)]
        lines.append(f"| {' | '.join(cells)} |")
        signatures.append(plain(f"{number}  {result['signature']}"))
    says = "R@K and mAP are in per cent; of every score its signature says how it was made:"
    return ["\n".join(lines), says, _block("\n".join(signatures), "text")]


def _licences(facts: Facts) -> list[str]:
    unnamed = "not named"
    rows = [(f"data: {text(e.get('what', ''))}", text(e.get("licence", ""))) for e in facts.data.get("licences") or []]
    rows = rows or [("data", text(facts.data.get("licence") or unnamed))]
    rows += [("data, attribution", text(facts.data["attribution"]))] if facts.data.get("attribution") else []
    for each in facts.translations:
        what = f"translations into {text(each['lang'])}{_again(each)}"
        rows.append((what, text(each.get("licence") or unnamed)))
    for part in facts.encoder.get("parts") or [facts.encoder]:
        rows.append((f"encoder of pictures, {text(part['encoder'])}", text(part.get("licence") or unnamed)))
    if facts.text_encoder not in (_NGRAM, _GIVEN):
        rows.append((f"text encoder, {text(facts.text_encoder)}", text(facts.licence or unnamed)))
    return [
        "No licence is stated for this model: whoever passes it on states one (`license:` above) that goes with those "
        "of what it was made from.",
        _table(rows),
    ]
