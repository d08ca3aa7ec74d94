"""export: writes a run or a data set as a folder that works without ccr.

Shape suffixes: V visual items, T texts, D embedding.
"""

import os
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ccr_cli import hub, registry
from ccr_cli.artifacts import base, dataset, diagnosis, evaluation, features, run
from ccr_cli.artifacts.build import Build, build_artifact, recorded_as, recorded_words, without_option
from ccr_cli.artifacts.signature import MT
from ccr_cli.artifacts.workspace import Workspace, stem
from ccr_cli.data.tokens import Tokenizer
from ccr_cli.errors import ArtifactError, CcrError, UsageError
from ccr_cli.methods.base import Method
from ccr_cli.nets.dual import DualEncoder
from ccr_cli.nets.plain import Plain, PlainText
from ccr_cli.nets.text import GivenTextEncoder
from ccr_cli.stages.export import onnx_text
from ccr_cli.stages.export.dataset_folder import export_dataset
from ccr_cli.stages.export.encode import Array, Encoder
from ccr_cli.stages.export.image_side import image_networks, write_gallery, write_networks
from ccr_cli.stages.export.model_card import CardFacts, ExportedEncoder, card, translators
from ccr_cli.stages.export.options import ExportOptions
from ccr_cli.stages.export.text_side import tokenizer_of, write_layers, write_text
from ccr_cli.stages.shared.embedding import embed_visuals, encode_and_embed
from ccr_cli.stages.shared.inputs import Inputs, refuse_unread, require_parent
from ccr_cli.stages.shared.load_run import load_method
from ccr_cli.stages.shared.text_encoders import GIVEN
from ccr_cli.stages.shared.triplets import read_visuals
from ccr_cli.transformers_loading import transformers_loading

SAMPLE = 16
"""Texts per language, and items, on which the export is compared with the run."""
TOLERANCE, TRAINED_TOLERANCE = 1e-4, 1e-3
"""Limit for the difference of a similarity; the second with a trained image encoder, whose rounding adds to it."""
PICTURES, ALIKE = 4, 0.999
"""Pictures to encode again, and the least cosine with the run's vectors, whose features are in half precision."""


def export(inputs: Inputs, options: ExportOptions) -> base.Artifact:
    """Exports the run among the inputs; or a data set, if they name no run but a data set, translation or diagnosis.

    With `options.to`, the folder is also uploaded to the hub.

    Raises:
        UnavailableError: If the hub does not take the upload.
        UsageError: If an option does not apply. Other errors as for `export_run` and `export_dataset`.
    """
    repository = options.to and hub.repository(options.to)
    kinds = {artifact.kind for artifact in inputs.named}
    of_data = "run" not in kinds and bool(kinds & {"dataset", "translation", "diagnosis"})
    if of_data and options.onnx:
        raise UsageError("--onnx needs a run, and only data is named", hint="leave --onnx out, or name a run")
    with recorded_as(without_option(recorded_words(), "--to")):  # ccr rebuild uploads nothing
        if of_data:
            made = export_dataset(inputs, options)
        else:
            trained = inputs.one("run", "", hint="ccr train --method uml")
            made = export_run(inputs, trained, options)
            for parent in trained.parents:
                inputs.parent(trained, parent.kind)
    if repository:
        hub.upload(made.path, repository, "dataset" if of_data else "model")
    return made


def export_run(inputs: Inputs, trained: base.Artifact, options: ExportOptions) -> base.Artifact:
    """Exports a run; the model card holds its evaluations among the inputs, or else all in the workspace.

    The export is read back and compared with the run on some of its data before the artifact is complete.

    Raises:
        ArtifactError: If the export does not reproduce the run's similarities.
        UnavailableError: If ONNX needs packages that are not installed.
        UsageError: If the text encoder's own pooling cannot be exported, or for ONNX it is no transformers model, or a
            SigLIP; or if an evaluation is of several runs.
    """
    settings, onnx = run.config(trained), options.onnx
    if onnx:
        onnx_text.require(settings["text_encoder"]["kind"])
        if settings["text_encoder"].get("pad_id") is not None:
            raise UsageError("ONNX pads texts to equal length, which a SigLIP reads as text", hint="leave --onnx out")
    refuse_unread(inputs, trained)
    for artifact in inputs.of_kind("evaluation", "diagnosis"):
        if artifact.kind == "evaluation" or diagnosis.of_run(artifact):
            require_parent(artifact, trained)
        if artifact.kind == "evaluation" and evaluation.run_id(artifact) != trained.id:
            problem = f"{artifact.name} evaluates several runs as one"
            raise UsageError(problem, hint="leave it out: an export is of one run")
    evaluations = inputs.all("evaluation", lambda a: evaluation.run_id(a) == trained.id)
    name = options.name or stem(trained.name + ("-onnx" if onnx else ""), {}, {})

    def write(site: Build) -> dict[str, int]:
        site.clear()
        try:
            return _write(site.folder, inputs.workspace, trained, evaluations, onnx)
        except CcrError:
            site.clear()
            raise

    parents = [trained, *evaluations]
    return build_artifact(inputs.workspace, "export", name, {"onnx": onnx}, parents, write=write, force=options.force)


def _write(
    folder: Path, workspace: Workspace, trained: base.Artifact, evaluations: Sequence[base.Artifact], onnx: bool
) -> dict[str, int]:
    settings, data = run.config(trained), dataset.read(workspace.parent(trained, "dataset"))
    feats = workspace.parent(trained, "features")
    links = [link for link in trained.parents if link.kind == "translation"]
    translations = [entry for link in links for entry in translators(workspace, workspace.linked(trained, link))]
    encoder, on_hub, licence = _text_encoder(trained, settings)
    results = [result for artifact in evaluations for result in evaluation.results(artifact)]
    results = [r for r in results if not (r.get("task") or r.get("corrupt") or r.get("queries", MT) != MT)]
    human = {(r["data"], r["split"], r["lang"]) for r in results if not r.get("queries")}
    results = [r for r in results if not r.get("queries") or (r["data"], r["split"], r["lang"]) not in human]
    facts = CardFacts(
        run=trained,
        settings={**settings, "options": {**settings["options"], "text_encoder": encoder}},
        about_method=_about(settings["method"]),
        text_encoder=encoder,
        on_hub=on_hub,
        data=data.manifest,
        langs=tuple(dict.fromkeys([data.source_lang, *(str(entry["lang"]) for entry in translations)])),
        translations=translations,
        encoder=feats.json("encoder.json"),
        command=_command(feats),
        licence=licence,
        results=list({str(result["signature"]): result for result in results}.values()),
        onnx=onnx,
    )
    method, tokenizer = load_method(trained, torch.device("cpu"))
    plains = method.plain()
    encoders = [part for part in method.modules() if isinstance(part, DualEncoder)]
    folders = [folder / f"model{i}" for i in range(1, len(plains) + 1)] if len(plains) > 1 else [folder]
    sample = _Sample(method, tokenizer, data, feats, facts.langs)
    models, sims, seen = [], [], []
    for number, (plain, dual, place) in enumerate(zip(plains, encoders, folders, strict=True), 1):
        place.mkdir(exist_ok=True)
        networks = image_networks(feats, dual.tower)
        layout = write_text(plain, tokenizer, place)
        source = {"kind": "features", "dim": settings["visual_dim"], "encoder": facts.encoder, "what": _VISUAL}
        write_layers(place, "visual", plain, source, {})
        if networks:
            write_networks(networks, place)
            local = {network.about["weights"]["model"]: network.folder for network in networks if network.folder}
            images = Encoder(place, local)
            seen.append([images.encode_image(path) for path in sample.pictures])
        models.append(ExportedEncoder(number, len(plains), layout, plain.dim, [n.about for n in networks]))
        (place / "README.md").write_text(card(facts, models[-1]), encoding="utf-8")
        sims.append(Encoder(place).encode_visual(sample.rows(dual)) @ sample.text(place, plain, layout).T)
        if onnx:
            onnx_text.write(plain, place, sample.texts)
    tolerance = TRAINED_TOLERANCE if "visual_tower" in settings else TOLERANCE
    check_similarities(np.mean(sims, axis=0), sample.sim_VT, settings["method"], tolerance)
    if sample.pictures and len(seen) == len(plains):
        check_pictures(np.concatenate(seen, axis=1) / len(plains) ** 0.5, sample.picture_VD, sample.pictures)
    visual, ids = read_visuals(feats, list(data.items["item_id"]), method.config.needs())
    write_gallery(ids, embed_visuals(method, visual, torch.device("cpu")), folder)
    if len(plains) > 1:
        joint = card(facts, models[0], folders=[place.name for place in folders])
        (folder / "README.md").write_text(joint, encoding="utf-8")
    for path in (path for path in folder.rglob("*") if path.is_file()):
        path.chmod(0o644)  # safetensors writes files for their owner alone
    return {"models": len(plains), "dim": plains[0].dim, "results": len(facts.results)}


_VISUAL = "One row per picture, or per frame or clip of a video, by the frozen encoder named here."


class _Sample:
    """Some of the run's data, and the run's similarities on it."""

    def __init__(
        self, method: Method, tokenizer: Tokenizer, data: dataset.Dataset, feats: base.Artifact, langs: Sequence[str]
    ) -> None:
        captions = tokenizer.readable(data.captions[data.captions["lang"].isin(langs)])
        self.texts = list(captions.groupby("lang").head(SAMPLE)["text"])
        encoder = method.encoder.text_encoder
        self.features: Any = None
        if isinstance(encoder, GivenTextEncoder):
            self.features = encoder.table_TD[tokenizer.encode(self.texts).ids_N.long()].numpy()
        else:
            self.texts.append(" ".join(self.texts))  # a text that is too long
        items = features.encoded_items(feats)[:SAMPLE]
        self._visual = visual = read_visuals(feats, items, method.config.needs())[0]
        with torch.no_grad():
            text_TD = encode_and_embed(method, tokenizer, self.texts, torch.device("cpu"))
            visual_VD = method.embed_visual(visual).float()
            self.sim_VT: Array = (visual_VD @ text_TD.T).numpy()
        media = data.items[data.items["kind"] == "image"].set_index("item_id")["media"]
        paths = [dataset.media_path(dataset.media_root(data.artifact), media.get(item)) for item in items]
        there = [row for row, path in enumerate(paths) if path and os.path.isfile(path)][:PICTURES]
        self.pictures = [path for path in (paths[row] for row in there) if path]
        self.picture_VD: Array = visual_VD[there].numpy()

    @torch.no_grad()
    def rows(self, encoder: DualEncoder) -> list[Array]:
        """The features of the items, made by the encoder if it reads pictures."""
        rows_ND, offsets_V1 = encoder.see(self._visual)
        return [rows_ND[first:last].float().numpy() for first, last in pairwise(offsets_V1.tolist())]

    def text(self, folder: Path, plain: Plain, layout: bool) -> Array:
        """Embeds the texts with the exported model in a folder."""
        with transformers_loading():
            if not layout:
                return Encoder(folder).encode(self.texts if self.features is None else self.features)
            import transformers

            architecture = base.read_json(folder / "config.json")["architectures"][0]
            model = getattr(transformers, architecture).from_pretrained(folder, local_files_only=True)
            tokens = tokenizer_of(folder)
        whole = PlainText(plain).eval()
        whole.model = model.eval()
        with torch.no_grad():
            out_TD: Array = whole(**tokens(self.texts, padding=True, truncation=True, return_tensors="pt")).numpy()
        return out_TD


def check_similarities(exported_VT: Array, run_VT: Array, method: str, tolerance: float = TOLERANCE) -> None:
    """Raises ArtifactError if the similarities of an export differ from the run's by `tolerance` or more."""
    difference = float(np.abs(exported_VT - run_VT).max())
    if not difference < tolerance:
        problem = f"the export of {method} does not reproduce the run's similarities"
        hint = "a method whose vectors do not come from its encoder and heads alone describes them in `plain`"
        raise ArtifactError(f"{problem}: they differ by up to {difference:.2g}", hint=hint)


def check_pictures(exported_VD: Array, run_VD: Array, paths: Sequence[Path]) -> None:
    """Raises ArtifactError if an export's unit vectors of pictures (V, D) differ from the run's."""
    cosine_V = (exported_VD * run_VD).sum(1)
    if not cosine_V.min() >= ALIKE:
        path = paths[int(cosine_V.argmin())]
        problem = f"the export encodes {path} otherwise than the run: the cosine is {cosine_V.min():.4f}"
        raise ArtifactError(problem, hint="extract the features again if the picture has changed")


def _text_encoder(trained: base.Artifact, settings: dict[str, Any]) -> tuple[str, bool, str]:
    """Returns the text encoder's name (of a folder, the last part), whether it is on the hub, and its licence or ''."""
    name = str(settings["options"]["text_encoder"])
    if name in ("ngram", GIVEN):
        return name, False, ""
    local = str(trained.request["text_encoder"]).startswith("sha256:")
    try:
        model = hub.find(str(trained.environment.get("text_encoder") or name))
    except CcrError:  # a folder that is gone or has changed
        model = None
    return (Path(name).name if local else name), not local, (hub.licence(model.folder) if model else None) or ""


def _about(method: str) -> str:
    """Returns the first paragraph of a method's docstring, and the first further one that cites a paper."""
    paragraphs = [" ".join(part.split()) for part in (registry.load("methods", method).__doc__ or "").split("\n\n")]
    return " ".join([paragraphs[0], *[part for part in paragraphs[1:] if "et al." in part][:1]])


def _command(feats: base.Artifact) -> str:
    command = features.command(feats, Path("datasets/DATA"))
    for part in features.parts(feats):
        for value in map(str, part.given.values()):
            command = command.replace(value, Path(value).name)
    return command
