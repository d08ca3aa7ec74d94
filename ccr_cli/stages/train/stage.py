"""train: a data set, its translation and its features become a run."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import torch

from ccr_cli import hub, registry
from ccr_cli.artifacts import base, dataset
from ccr_cli.artifacts.build import building
from ccr_cli.console import say
from ccr_cli.data import pairs_file as pairs
from ccr_cli.errors import ArtifactError, UsageError
from ccr_cli.stages.shared.embedding import choose_device
from ccr_cli.stages.shared.inputs import Inputs
from ccr_cli.stages.shared.options import configure
from ccr_cli.stages.shared.sharding import own_device
from ccr_cli.stages.shared.text_encoders import GIVEN
from ccr_cli.stages.train.loop import Trainer
from ccr_cli.stages.train.pair_list import Chosen
from ccr_cli.stages.train.processes import Ranks, together
from ccr_cli.stages.train.run_name import run_name
from ccr_cli.stages.train.sources import Sources, find_sources, with_noise
from ccr_cli.stages.train.step import ALONE
from ccr_cli.stages.train.tracking import refuse_unknown

LANGS = ("all", "draw")
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


@dataclass(frozen=True)
class Wanted:
    """What is asked of training: the options of `ccr train`, and what they are where nobody gives them."""

    method: str = "uml"
    lang: str | None = None
    """Target language, several with `+` between."""
    langs: str = "all"
    """What an epoch has of several: a triplet of each caption in `all`, or in one that is drawn (`draw`)."""
    noise: float | None = None
    noise_style: str = "caption"
    noise_target: str = "translation"
    noise_seed: int | None = None
    preset: str | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    """What differs from the method's Config, as text or typed."""
    seed: int = 0
    select_on: str = "mt"
    pairs: Path | None = None
    """A list of the pairs to train on."""
    pairs_weight: bool = False
    """Whether its probabilities weight the pairs, in place of leaving out those that it calls noisy."""
    device: str = "auto"
    dtype: str = "float32"
    name: str | None = None
    force: bool = False
    report_to: str | None = None
    compiled: bool = False

    def chosen(self) -> Chosen | None:
        """Reads the list of pairs.

        Raises:
            UsageError: If it is none, or weights are asked for without one.
        """
        if self.pairs is None and self.pairs_weight:
            raise UsageError(
                "--pairs-weight goes with --pairs", hint="ccr diagnose RUN --export FILE writes such a file"
            )
        return Chosen(pairs.read(self.pairs), self.pairs_weight) if self.pairs else None


def mismatched(inputs: Inputs, sources: Sources, wanted: Wanted) -> Sources:
    """Adds the noise that is asked for, if any is."""
    seed = wanted.seed if wanted.noise_seed is None else wanted.noise_seed
    style, target = wanted.noise_style, wanted.noise_target
    return with_noise(inputs, sources, wanted.noise, style=style, target=target, seed=seed)


def make_together(inputs: Inputs, wanted: Wanted) -> base.Artifact | None:
    """As `make`, in all processes that `torchrun` started, if it did.

    Returns:
        The run; None in the processes but the first.
    """
    with together(alone=inputs.workspace.dry_run) as ranks:
        if ranks.size > 1:
            wanted = replace(wanted, device=own_device(wanted.device))
            if wanted.device.startswith("cuda:"):
                torch.cuda.set_device(wanted.device)
        made = make(inputs, wanted, ranks=ranks)
        return made if ranks.first else None


def make(
    inputs: Inputs,
    wanted: Wanted,
    mismatch: Callable[[Inputs, Sources, Wanted], Sources] = mismatched,
    ranks: Ranks = ALONE,
) -> base.Artifact:
    """Finds what to train from, and trains: what `ccr train` does; errors as for `train`.

    Args:
        inputs: Where to look, and where the run goes.
        wanted: What is asked for.
        mismatch: Adds the noise.
        ranks: The processes that train together.
    """
    back = _reads_back(wanted)
    sources = ranks.lead(lambda: mismatch(inputs, find_sources(inputs, wanted.lang, wanted.method, back), wanted))
    sources = replace(sources, pairs=wanted.chosen())
    return train(
        inputs,
        sources,
        wanted.method,
        options=wanted.options,
        langs=wanted.langs,
        preset=wanted.preset,
        seed=wanted.seed,
        select_on=wanted.select_on,
        device=wanted.device,
        dtype=wanted.dtype,
        name=wanted.name,
        force=wanted.force,
        ranks=ranks,
        report_to=wanted.report_to,
        compiled=wanted.compiled,
    )


def _reads_back(wanted: Wanted) -> bool:
    """Whether the method, or its judge, reads back-translations; of options that are wrong `train` says it."""
    module = registry.load("methods", wanted.method)
    preset = module.Method.PRESETS.get(wanted.preset or "", {})
    try:
        config = configure(module.Config, {**preset, **wanted.options}, wanted.method)
    except UsageError:
        return False
    return "back" in config.needs() or registry.load("judges", config.judge).SCOPE == "text"


def train(
    inputs: Inputs,
    sources: Sources,
    method: str,
    *,
    options: Mapping[str, Any] | None = None,
    langs: str = "all",
    preset: str | None = None,
    seed: int = 0,
    select_on: str = "mt",
    device: str = "auto",
    dtype: str = "float32",
    name: str | None = None,
    force: bool = False,
    ranks: Ranks = ALONE,
    report_to: str | None = None,
    compiled: bool = False,
) -> base.Artifact:
    """Trains one method.

    Args:
        inputs: Where the run goes.
        sources: What to train from; its noise, if any, decides the mismatch, and its list of pairs which are left.
        method: A file of methods/.
        options: What differs from the method's Config (or the preset), as text or typed.
        langs: Of several languages, whether an epoch has every caption in `all` or in one that is drawn (`draw`).
        preset: A named setting of the method.
        seed: Of initialisation, order and dropout.
        select_on: Which validation queries choose the best epoch: machine-translated (`mt`) or `human`.
        device: `auto`, `cpu` or `cuda`.
        dtype: float32, or bfloat16/float16 autocast.
        name: Name of the run.
        force: Train again.
        ranks: The processes that train together.
        report_to: Who gets curves while it goes on: `tensorboard`, or nobody.
        compiled: Let `torch.compile` make transformers encoders faster.

    Returns:
        The run.

    Raises:
        ArtifactError: If the method needs translations, and there are none.
        CcrError: If the loss stops being finite.
    """
    if dtype not in DTYPES:
        raise UsageError(f"--dtype is one of {', '.join(DTYPES)}, not {dtype!r}")
    if select_on not in ("mt", "human"):
        raise UsageError(f"--select-on is mt or human, not {select_on!r}")
    if langs not in LANGS:
        raise UsageError(f"--langs is {' or '.join(LANGS)}, not {langs!r}")
    several = len(sources.translated) > 1
    if langs != LANGS[0] and not several:
        raise UsageError(f"--langs {langs} goes with several languages", hint="--lang es --lang fr")
    refuse_unknown(report_to)
    module = registry.load("methods", method)
    if preset is not None and preset not in module.Method.PRESETS:
        known = ", ".join(module.Method.PRESETS) or "none"
        raise UsageError(f"{method} has no preset {preset!r}", hint=f"presets: {known}")
    if not sources.translated and module.Method.TRANSLATED:
        raise ArtifactError(f"{method} trains on translations, and there are none", hint="ccr translate --lang LANG")
    standard = module.Config()
    start = configure(module.Config, module.Method.PRESETS[preset], method) if preset else standard
    data = dataset.read(sources.data)
    if data.text_features() is not None:
        standard, start = (replace(each, text_encoder=GIVEN) for each in (standard, start))
    config = configure(module.Config, options or {}, f"method {method}", start)
    if sources.pairs:
        sources.pairs.check(data, sources.langs)
    mismatch = sources.noise.request if sources.noise else None
    request = {
        "method": method,
        "lang": list(sources.langs) if several else sources.langs[0],
        **({"langs": langs} if several else {}),
        **({"pairs": sources.pairs.request()} if sources.pairs else {}),
        "seed": seed,
        "noise": mismatch,
        "preset": preset,
        "select_on": select_on,
        "dtype": dtype,
        **asdict(config),
    }
    if config.text_encoder not in ("ngram", GIVEN):
        request["text_encoder"] = hub.identity(config.text_encoder).get("model", config.text_encoder)
    defaults = {
        **request,
        "langs": LANGS[0],
        "pairs": None,
        "preset": None,
        "select_on": "mt",
        "dtype": "float32",
        **asdict(standard),
    }
    if mismatch and (mismatch["style"], mismatch["target"]) == ("caption", "translation") and mismatch["seed"] == seed:
        defaults["noise"] = mismatch
    else:
        defaults["noise"] = None
    if preset:
        defaults |= asdict(start) | {"preset": preset}
    name = name or run_name(sources, data, request, defaults)
    site = building(inputs.workspace, "run", name, request, sources.parents, force=force)
    with ExitStack() as open_sites:
        build = ranks.lead(lambda: open_sites.enter_context(site))  # the others get what it is, and no lock
        if build.done is None:
            where = choose_device(device)
            Trainer(build, sources, module, config, request, where, DTYPES[dtype], ranks, report_to, compiled).train()
            build.done = ranks.told(build.done)
        else:
            say(f"{name} is trained already; --force trains it again")
        return build.artifact
