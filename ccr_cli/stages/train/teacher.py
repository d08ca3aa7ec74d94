"""The teacher of a run (a sentence encoder, or a run without translations) and its vectors of source captions."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

import torch
from safetensors.torch import load_file
from torch import Tensor

from ccr_cli import hub, registry
from ccr_cli.artifacts import base, run
from ccr_cli.cache_folder import cache_folder
from ccr_cli.errors import ArtifactError, CcrError, UsageError
from ccr_cli.methods.base import Method
from ccr_cli.methods.config import Config
from ccr_cli.stages.shared.embedding import encode_and_embed
from ccr_cli.stages.shared.inputs import Inputs
from ccr_cli.stages.shared.load_run import load_method, run_settings
from ccr_cli.stages.shared.references import find
from ccr_cli.stages.shared.sentences import sentence_vectors
from ccr_cli.stages.train.sources import Sources
from ccr_cli.stages.train.state import save_tensors
from ccr_cli.transformers_loading import transformers_loading

C = TypeVar("C", bound=Config)
USUAL = "source-only"
HINT = f"ccr train --method {USUAL}"
VISUAL = ("dim", "head", "hidden", "dropout", "visual", "visual_layers", "visual_heads", "visual_drop")
"""Options that describe the visual side."""


@dataclass(frozen=True)
class Teacher:
    """The teacher of a run: another run, or a sentence encoder."""

    model: str
    """The sentence encoder; for a run, the first digits of its id."""
    run: base.Artifact | None = None

    def followed(self, start: C, configured: Callable[[C], C]) -> tuple[C, C]:
        """The start options with the teacher's visual side (or encoder's dimension), without and with the user's.

        Raises:
            UnavailableError: If the sentence encoder is not on this machine and cannot be downloaded.
            UsageError: If the user set another visual side.
        """
        start = replace(start, **self._visual_side())
        config = configured(start)
        for name in VISUAL if self.run else ("dim",):
            own, its = getattr(config, name), getattr(start, name)
            if own != its:
                raise UsageError(f"{name}={own}: the teacher has {its}", hint=f"leave {name} out")
        if self.run:  # the request names a run by content
            start, config = (replace(options, teacher=self.model) for options in (start, config))  # type: ignore[call-arg]
        return start, config

    def _visual_side(self) -> dict[str, Any]:
        if self.run:
            options = run.config(self.run)["options"]
            return {name: options.get(name, getattr(Config, name)) for name in VISUAL}
        located = hub.locate(self.model, "main")
        with transformers_loading():
            from transformers import AutoConfig

            size = AutoConfig.from_pretrained(located.folder, local_files_only=True).hidden_size
        return {"dim": int(size)}

    def vectors(self, texts: Sequence[str], device: torch.device) -> tuple[Method | None, Tensor]:
        """The model (None for a sentence encoder) and unit vectors of texts (N, D); each distinct text is encoded once.

        Raises:
            ArtifactError: If a vector is not finite.
        """
        different = sorted(set(texts), key=lambda text: (len(text), text))
        row_of = {text: row for row, text in enumerate(different)}
        rows_N = torch.tensor([row_of[text] for text in texts])
        method = None
        if self.run:
            method, tokenizer = load_method(self.run, device)
            vector_UD = encode_and_embed(method, tokenizer, different, device)
        else:
            vector_UD = _encoded(self.model, different)
        if not vector_UD.isfinite().all():
            who = self.run.path if self.run else self.model
            raise ArtifactError(f"the teacher {who} has vectors that are not finite", hint="another teacher")
        return method, vector_UD.cpu()[rows_N]


def find_teacher(inputs: Inputs, sources: Sources, word: str, seed: int) -> Teacher:
    """Finds the teacher: the one that `word` names, else the run on the command line, else the only run that can teach.

    If several in the workspace can teach, one of the same seed is preferred; of equal models only the first counts.

    Raises:
        ArtifactError: If no run or several runs can teach, or the named run was trained on other features.
        UsageError: If the named run cannot teach.
    """
    if word and _is_encoder(inputs, word):
        return Teacher(word)
    named = [base.load(find(inputs.workspace, word, ("run",)), "run")] if word else []
    named = named or inputs.of_kind("run")
    if len(named) == 1:
        _refuse_unfit(named[0], sources)
        inputs.note(named[0])
        return Teacher(named[0].id[:12], named[0])

    seen: set[str] = set()

    def fits(artifact: base.Artifact) -> bool:
        try:
            _refuse_unfit(artifact, sources)
        except CcrError:
            return False
        (weights,) = (file.sha256 for file in artifact.files if file.path == "model.safetensors")
        again = weights in seen  # `ccr evaluate --zero-shot` and `ccr train --method pretrained` make the same model
        seen.add(weights)
        return not again

    described = f"without translations on {inputs.workspace.relative(sources.features.path)}, to teach"
    found = inputs.one("run", described, fits, hint=HINT, better=lambda run: run.request["seed"] == seed)
    return Teacher(found.id[:12], found)


def _is_encoder(inputs: Inputs, word: str) -> bool:
    if any((place / base.RECORD).is_file() for place in (Path(word), inputs.workspace.root / word)):
        return False
    folder, slash, _ = word.partition("/")
    return (Path(word).expanduser() / "config.json").is_file() or bool(slash and folder not in base.FOLDERS.values())


def _refuse_unfit(artifact: base.Artifact, sources: Sources) -> None:
    """Refuses a run that cannot teach a run on these sources."""
    name, settings = artifact.path.name, run_settings(artifact)
    kind: type[Method] = registry.load("methods", settings["method"]).Method
    if kind.TRANSLATED:
        raise UsageError(f"{name} cannot teach: {settings['method']} trains on translations", hint=HINT)
    if kind.embed_visual is not Method.embed_visual or kind.embed_text is not Method.embed_text:
        raise UsageError(f"{name} cannot teach: {settings['method']} is not one dual encoder", hint=HINT)
    if "visual_tower" in settings:
        raise UsageError(f"{name} cannot teach: it has an image encoder of its own (finetune=true)", hint=HINT)
    features = artifact.parent("features")
    if features.id != sources.features.id:
        problem = f"{name} was trained on {features.path} ({features.id[:8]}), not on {sources.features.path.name}"
        raise ArtifactError(f"{problem} ({sources.features.id[:8]})", hint=f"{HINT}, on the same features")
    noise = sources.noise.request if sources.noise else None
    if kind.TRAINED and (mine := _switched_pictures(noise)) != (its := _switched_pictures(artifact.request["noise"])):
        problem = f"{name} learned from {its or 'intact pairs'}, and this run has {mine or 'intact pairs'}"
        raise UsageError(problem, hint=f"{HINT} --noise RATIO --noise-target pair, with the same seed")


def _switched_pictures(noise: Mapping[str, Any] | None) -> str:
    """The synthetic noise of pictures and source captions, in words; empty if there is none."""
    if noise is None or noise["target"] != "pair":
        return ""
    return f"{noise['ratio']:g} pairs switched ({noise['style']}, seed {noise['seed']})"


def _encoded(model: str, texts: Sequence[str]) -> Tensor:
    """The vectors of a sentence encoder, kept in the cache folder because encoding is slow."""
    about = hub.identity(model) or {"model": model, "revision": hub.locate(model, "main").revision}
    key = base.sha256_text(base.canonical_json([about, list(texts)]))
    place = cache_folder() / "sentences" / f"{key}.safetensors"
    if place.is_file():
        return load_file(place)["vectors"]
    (vector_UD,) = sentence_vectors(model, texts)
    place.parent.mkdir(parents=True, exist_ok=True)
    save_tensors(place, {"vectors": vector_UD})
    return vector_UD
