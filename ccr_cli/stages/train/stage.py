"""train: a data set, its translations and its features become a run."""

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch

from ccr_cli import hub, registry
from ccr_cli.artifacts import base, dataset
from ccr_cli.artifacts.build import building
from ccr_cli.console import say, warn
from ccr_cli.data import pairs_file
from ccr_cli.data.features import with_lists
from ccr_cli.errors import ArtifactError, UsageError, did_you_mean
from ccr_cli.judges.base import load_judge
from ccr_cli.methods.config import Config
from ccr_cli.stages.extract.existing import fingerprint
from ccr_cli.stages.shared.inputs import Inputs
from ccr_cli.stages.shared.options import configure, request_of
from ccr_cli.stages.shared.sharding import own_device
from ccr_cli.stages.shared.text_encoders import GIVEN
from ccr_cli.stages.shared.witnesses import recorded, refuse_unused
from ccr_cli.stages.train.alignment import NGRAM, aligned, require_readable
from ccr_cli.stages.train.loop import Trainer
from ccr_cli.stages.train.naming import run_name
from ccr_cli.stages.train.options import TrainingOptions
from ccr_cli.stages.train.pair_list import PairSelection
from ccr_cli.stages.train.processes import ALONE, ProcessRank, together
from ccr_cli.stages.train.sources import Sources, find_sources, with_noise
from ccr_cli.stages.train.teacher import find_teacher


def train_together(inputs: Inputs, options: TrainingOptions) -> base.Artifact | None:
    """Like `train`, but in all processes that `torchrun` started, if any; returns None in all but the first."""
    with together(alone=inputs.workspace.dry_run) as ranks:
        if ranks.size > 1:
            options = replace(options, device=own_device(options.device))
            if options.device.startswith("cuda:"):
                torch.cuda.set_device(options.device)
        trained = train(inputs, options, ranks=ranks)
        return trained if ranks.first else None


def train(
    inputs: Inputs,
    options: TrainingOptions,
    add_noise: Callable[[Inputs, Sources, TrainingOptions], Sources] = with_noise,
    ranks: ProcessRank = ALONE,
) -> base.Artifact:
    """Finds the artifacts to train on, adds the synthetic mismatch, and trains a run: what `ccr train` does."""
    options.check()
    pairs = PairSelection(pairs_file.read(options.pairs), options.pairs_weight) if options.pairs else None
    how: dict[str, Any] = {"back": _reads_back(options), "compare": options.translation_mix == "first", "pairs": pairs}
    found = partial(find_sources, inputs, options.lang, options.method, **how)
    sources = ranks.lead(lambda: add_noise(inputs, found(), options))
    return train_on(inputs, sources, options, ranks)


def _reads_back(options: TrainingOptions) -> bool:
    """Whether the method or its judge reads back-translations; False for wrong options, which `train_on` refuses."""
    module = registry.load("methods", options.method)
    preset = module.Method.PRESETS.get(options.preset or "", {})
    try:
        config = configure(module.Config, {**preset, **options.config_settings()}, options.method)
    except UsageError:
        return False
    return "back" in config.needs() or load_judge(config.judge).compares_texts


def train_on(inputs: Inputs, sources: Sources, options: TrainingOptions, ranks: ProcessRank = ALONE) -> base.Artifact:
    """Trains a run on given artifacts, which replace the options `lang`, `noise*` and `pairs*`.

    Raises:
        ArtifactError: If the method needs translations, and there are none.
        CcrError: If training collapses before an epoch is complete.
        UsageError: If an option is unknown or does not fit the others.
    """
    options.check()
    if options.langs != "all" and len(sources.langs) < 2:
        raise UsageError(f"--language-mix {options.langs} goes with several languages", hint="--lang es --lang fr")
    mix = options.translation_mix
    if mix != "draw" and not (sources.second if mix == "first" else sources.alternatives):
        many = "two translations into the only" if mix == "first" else "several translations into one"
        raise UsageError(f"--translation-mix {mix} goes with {many} language", hint="name them: ccr train ONE TWO")
    module = registry.load("methods", options.method)
    if "judge" in options.settings:
        registry.check("judges", str(options.settings["judge"]))
    if options.preset is not None and options.preset not in module.Method.PRESETS:
        known = ", ".join(module.Method.PRESETS) or "none"
        raise UsageError(
            f"{options.method} has no preset {options.preset!r}",
            hint=f"{did_you_mean(options.preset, module.Method.PRESETS)}presets: {known}",
        )
    if not sources.translated and module.Method.TRANSLATED:
        raise ArtifactError(f"{options.method} needs translations; there are none", hint="ccr translate --lang LANG")
    data, pairs = dataset.read(sources.data), sources.pairs
    if pairs:
        pairs.table.require("slot_id", *(["p_clean"] if pairs.weighted or options.trusts else []))
        pairs.table.refuse_others(data, "slot_id", sources.langs)
    start = configure(module.Config, module.Method.PRESETS.get(options.preset or "", {}), options.method)
    if data.text_features() is not None or options.text_vectors:
        start = replace(start, text_encoder=GIVEN)
    configured = partial(configure, module.Config, options.config_settings(), f"method {options.method}")
    config, teacher = configured(start), None
    if config.aligned:
        start, config = aligned(start, configured, sources.features)
    if options.text_vectors and config.text_encoder != GIVEN:
        problem = f"--text-vectors takes the place of text_encoder={config.text_encoder}"
        raise UsageError(problem, hint="leave one out")
    if "teacher" in config.needs():
        teacher = find_teacher(inputs, sources, config.teacher, options.seed)
        start, config = teacher.followed(start, configured)
    refuse_unused(config, config.judge)
    _refuse_without_effect(config, module.Method.TRANSLATED)
    require_readable(config)
    if options.trusts and not pairs and load_judge(config.judge).speaks in ("never", "step"):
        problem = f"--translation-mix {options.translation_mix} needs the probability that a translation is right"
        raise UsageError(problem, hint="a judge, such as --set judge=lexical, or --verdicts FILE")
    files = registry.sources(("methods", options.method), ("judges", config.judge))
    request = _request(sources, options, config, registry.own(files))
    usual = asdict(start)
    if config.text_encoder == start.text_encoder:
        usual["text_encoder"] = request["text_encoder"]
    taught_by = teacher.run if teacher else None
    name = options.name or run_name(sources, taught_by, data, request, usual)
    del data  # it takes 200 bytes a caption
    parents = [*sources.parents, *([taught_by] if taught_by else [])]
    source = registry.source_sha256(files)
    site = building(inputs.workspace, "run", name, request, parents, force=options.force, source=source)
    with ExitStack() as open_sites:
        build = ranks.lead(lambda: open_sites.enter_context(site))  # the others get no lock, only its facts
        if build.done is None:
            caveat = module.Method.CAVEATS.get(options.preset or "")
            if caveat and ranks.first:
                warn(f"--preset {options.preset}: {caveat}")
            Trainer(build, sources, options, config, teacher, ranks).train()
            build.done = ranks.of_first(build.done)
        else:
            say(f"{name} is trained already; --force trains it again")
        return build.artifact


def _refuse_without_effect(config: Config, translated: bool) -> None:
    """Refuses options that nothing reads (UsageError); runs that have them, from earlier versions, can be read."""
    blind = not translated and config.judge != "none" and config.judge_side == "cross_lingual"
    if blind and load_judge(config.judge).takes_side:
        problem = f"without translations judge={config.judge} has no S-T to read"
        raise UsageError(problem, hint="--set judge_side=cross_modal")
    if config.lora_rank and config.text_encoder in (NGRAM, GIVEN):
        problem = f"lora_rank needs a transformers encoder, and text_encoder={config.text_encoder} is none"
        raise UsageError(problem, hint="set text_encoder too, for example --set text_encoder=xlm-roberta-base")
    if config.visual_frozen_layers and not config.finetune:
        problem = "visual_frozen_layers needs a visual encoder that is trained"
        raise UsageError(problem, hint="--set finetune=true")


def _request(sources: Sources, options: TrainingOptions, config: Any, own: Sequence[Path]) -> dict[str, Any]:
    """The run's request: every option that can change the model, and the content of the user's `own` source files."""
    several = len(sources.langs) > 1
    facts = {
        "lang": list(sources.langs) if several else sources.langs[0],
        "pairs": sources.pairs.request() if sources.pairs else None,
        "noise": sources.noise.request if sources.noise else None,
    }
    if options.text_vectors:
        facts["text_vectors"] = {"sha256": fingerprint(with_lists([options.text_vectors], []))}
    request = request_of(options, **facts) | recorded(config)
    if own:
        request[registry.SOURCE] = {"sha256": registry.source_sha256(own)}
    if not several:
        del request["langs"]
    if sources.alternatives:
        request["alternatives"] = {lang: [a.id for a in each] for lang, each in sources.by_language.items()}
    else:
        del request["translation_mix"]
    if not sources.pairs:
        del request["pairs"]
    if config.text_encoder not in ("ngram", GIVEN):
        request["text_encoder"] = hub.identity(config.text_encoder).get("model", config.text_encoder)
    return request
