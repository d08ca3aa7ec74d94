"""extract: a frozen encoder's features of every item with media."""

import os
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from ccr_cli import console, registry
from ccr_cli.artifacts import base, dataset, features
from ccr_cli.artifacts.build import Build, build_state, building
from ccr_cli.artifacts.workspace import Workspace, slug, stem
from ccr_cli.console import say
from ccr_cli.encoders.base import DTYPES, weights_bytes
from ccr_cli.errors import ArtifactError, CcrError, UsageError
from ccr_cli.stages.extract import write_features
from ccr_cli.stages.extract.encoding import Resources, encode
from ccr_cli.stages.extract.options import ExtractOptions
from ccr_cli.stages.extract.write_features import Bounds, Pieces, write_outcome
from ccr_cli.stages.shared.embedding import choose_device
from ccr_cli.stages.shared.failures import refuse_too_many
from ccr_cli.stages.shared.inputs import Inputs
from ccr_cli.stages.shared.media import MediaReader, Medium, existing_root
from ccr_cli.stages.shared.options import configure, identified
from ccr_cli.stages.shared.sharding import WorkPart, meeting, own_device, rank_and_size


def extract(
    inputs: Inputs, options: ExtractOptions, delegate: "Callable[[ExtractJob], object] | None" = None
) -> base.Artifact | None:
    """Encodes every picture and video of a data set.

    `delegate` has others make the missing pieces, such as the workers of a cluster. The count `failed` of the artifact
    is the number of items without features. Under `torchrun`, all processes but the first return None.

    Raises:
        CcrError: If more than `max_failed` of the items failed.
        UsageError: If the precision is unknown, or the options do not fit the data set.
    """
    rank, ranks = rank_and_size()
    if ranks == 1 or inputs.workspace.dry_run:
        job = ExtractJob(inputs, options)
        return job.make(lambda: delegate(job) if delegate else job.work(WorkPart()))
    job = ExtractJob(inputs, replace(options, device=own_device(options.device)))
    with meeting() as wait:
        if rank == 0:
            return job.make(lambda: job.work(WorkPart(rank, ranks)), wait)
        console.verbosity = -1
        wait()  # until the first has prepared the folder
        if job.state() != "done" and job.pieces.folder.is_dir():
            job.work(WorkPart(rank, ranks))
        wait()
        return None


def extract_part(inputs: Inputs, options: ExtractOptions, part: WorkPart) -> dict[str, int]:
    """Encodes one part of the pieces; returns how many `items` were encoded, and how many `failed`.

    Raises:
        CcrError: If more than `max_failed` of them failed.
        UsageError: If the options would rebuild an artifact (`force`, `retry_failed`).
    """
    if options.force or options.retry_failed:
        option = "--force" if options.force else "--retry-failed"
        raise UsageError(f"{option} does not go with --shard", hint="leave --shard out, or use another --name")
    job = ExtractJob(inputs, options)
    if job.state() == "done":
        say(f"{job.name} is complete: nothing is left to do")
        return {"items": 0, "failed": 0}
    with job.pieces.opening():
        job.pieces.prepare(job.plan)
    with job.pieces.claim_part(f"{part.number + 1}-of-{part.of}"):
        tried, failed = job.work(part)
        bounds = job.pieces.bounds()
        own = part.take(bounds)
        job.refuse_too_many(failed, tried, "failures of a part are listed when the artifact is made", own)
    if own:
        say(f"{part}: {tried} items are encoded, {failed} failed")
    else:
        count = "1 group" if len(bounds) == 1 else f"{len(bounds)} groups"
        say(f"{part}: 0 items: there are {count} of {job.pieces.size:,} items; more parts than groups are idle")
    return {"items": tried - failed, "failed": failed}


def default_encoder(data: dataset.Dataset) -> str:
    """Returns the encoder for a data set if the user names none."""
    return str(data.manifest.get("default_encoder", "clip"))


def default_request(encoder: str) -> dict[str, Any]:
    """Returns the request of an encoder with default options."""
    return {"encoder": encoder, "dtype": "float32", **asdict(registry.load("encoders", encoder).Config())}


class ExtractJob:
    """One extraction: data set, encoder, request and pieces, derived from inputs and options."""

    def __init__(self, inputs: Inputs, options: ExtractOptions) -> None:
        options.check()
        self.options, self._workspace = options, inputs.workspace
        self.data = inputs.one("dataset", "", hint="ccr data import noto-emoji")
        content = dataset.read(self.data)
        items = content.items
        self._media = [Medium(kind, media) for kind, media in zip(items["kind"], items["media"], strict=True)]
        self._with_videos = any(medium.kind == "video" for medium in self._media)
        encoder = options.encoder or default_encoder(content)
        self._module = registry.load("encoders", encoder)
        self._config = configure(self._module.Config, options.settings, f"encoder {encoder}")
        self._recorded = identified(self._module, self._config)
        if not self._with_videos:
            for key in options.settings:
                if key in features.FRAMES:
                    raise UsageError(f"{key} is for videos, and {self.data.name} has none", hint="leave it out")
            self._recorded = {key: value for key, value in self._recorded.items() if key not in features.FRAMES}
        self.request = {"encoder": encoder, "dtype": options.dtype, **self._recorded}
        self.request |= registry.installed_source("encoders", encoder)
        if options.pool != "none":
            self.request["pool"] = options.pool
        self.name = options.name or stem(encoder, self.request, default_request(encoder))
        self.plan = {"request": self.request, "parents": [self.data.id]}
        final = self._workspace.place("features", slug(self.name), self.data.name)
        size = write_features.VIDEOS if self._with_videos else write_features.PICTURES
        self._measured: dict[str, Any] = {}
        self.pieces = Pieces(final.with_name(f"{final.name}.parts"), final, list(items["item_id"]), size)

    def make(self, work: Callable[[], object], wait: Callable[[], None] = lambda: None) -> base.Artifact:
        """Makes the artifact, after `work` has made the missing pieces, or this process's part of them.

        `wait` waits for the processes that share the work. They meet twice: when the folder of pieces is ready, and
        when all pieces exist.
        """
        with self._building(self._workspace) as site:
            if site.done is None:
                self._prepare(site)
                wait()
                try:
                    with self.pieces.claim_all():
                        if self.pieces.todo():
                            work()
                        wait()
                        site.finish(self._write(site))
                except CcrError:
                    self.pieces.remove_if_empty()
                    raise
                self.pieces.remove()
                return site.artifact
        self.pieces.remove_unneeded()
        wait()
        wait()
        return site.artifact

    def state(self) -> str:
        """Returns the state of the artifact: done, unfinished or to do."""

        def rehearse(workspace: Workspace) -> None:
            with self._building(workspace):
                pass

        return build_state(rehearse, self._workspace)

    def work(self, part: WorkPart) -> tuple[int, int]:
        """Makes the missing pieces of a part; returns the number of items that were tried, and of those that failed."""
        own = set(part.take(self.pieces.bounds()))
        todo = [bounds for bounds in self.pieces.todo() if bounds in own]
        if not todo:
            return 0, 0
        root = self._media_root()
        if part.of == 1:
            self.media_of(todo)
        device = choose_device(self.options.device)
        model = self._module.Encoder(self._config, device, DTYPES[self.options.dtype])
        if model.sampling.clip_frames > 1 and not self._with_videos:
            message = f"{self.data.name} has no videos, and {self.request['encoder']} encodes clips of videos"
            raise ArtifactError(message, hint="use a picture encoder, such as --encoder clip")
        about = dict(model.describe())
        if self._with_videos:
            about |= {"sampling": asdict(model.sampling), "pool": self.options.pool}
        size = None if self.options.batch_size == "auto" else int(self.options.batch_size)
        resources = Resources(device, size, self.options.workers, self.options.compiled)
        reader = MediaReader(root, model)
        with self.pieces.present():
            pieces = self.pieces.by(about)
            pieces.require_space()
            begun = time.monotonic()
            errors = encode(pieces, todo, self._media, reader, resources, pooled=self.options.pool == "mean")
        rate = round(len(errors) / (time.monotonic() - begun), 2)
        self._measured = {"items_per_second": rate, "weights_bytes": weights_bytes(model)}
        return len(errors), sum(error is not None for error in errors)

    def refuse_too_many(self, failed: int, total: int, first: str, bounds: Sequence[Bounds]) -> None:
        """Raises CcrError if too many items failed; the next run retries the failed items of the pieces in `bounds`."""
        try:
            refuse_too_many(failed, total, self.options.max_failed, "items", first)
        except CcrError:
            self.pieces.try_again(bounds)
            raise

    def media_of(self, todo: Sequence[Bounds]) -> list[Path]:
        """Returns the existing media of pieces; CcrError if more than `max_failed` are missing, except in a retry."""
        root = self._media_root()
        names = [medium.media for first, end in todo for medium in self._media[first:end] if medium.media]
        absent = {name: None for name in names if not os.path.exists(root / name)}
        count, total = sum(name in absent for name in names), len(self._media)
        if not self.options.retry_failed and count > self.options.max_failed * total:  # a retry needs few of them
            most, first = f"--max-failed {self.options.max_failed:g}", f"the first: {next(iter(absent))}, in {root}"
            problem = f"{count} of {total} media files do not exist, more than {most}; {first}"
            raise CcrError(problem, hint="their folder: --media-root FOLDER; or features that you have: --from FILE")
        return [root / name for name in names if name not in absent]

    def _building(self, workspace: Workspace) -> AbstractContextManager[Build]:
        force, retry = self.options.force, self.options.retry_failed
        return building(workspace, "features", self.name, self.request, [self.data], force=force, redo_failed=retry)

    def _prepare(self, site: Build) -> None:
        """Prepares the folder of pieces; if failures are retried, takes over the content of the existing artifact."""
        retried = self.options.retry_failed and not self.options.force and (site.final / base.RECORD).is_file()
        earlier = base.load(site.final) if retried else None
        purpose = self.pieces.replacing("force" if self.options.force else "retry")
        self.pieces.prepare(self.plan, purpose if self.options.force or earlier else "")
        if earlier:
            self.pieces.take_from(earlier)

    def _write(self, site: Build) -> dict[str, int]:
        index = self.pieces.write_shards(site.folder)
        errors = index.loc[index["status"] == "failed", "error"]
        self.refuse_too_many(len(errors), len(index), next(iter(errors), ""), self.pieces.bounds())
        counts = write_outcome(site.folder, index, self.pieces.about(), retried=self.options.retry_failed)
        site.environment |= {"device": str(choose_device(self.options.device)), **self._measured}
        typed = asdict(self._config).items()
        site.environment["given"] = {k: v for k, v in typed if self._recorded.get(k, v) != v}
        if hasattr(self._module, "recipe"):
            with suppress(CcrError):  # the machine that merges may lack the model
                site.environment["recipe"] = asdict(self._module.recipe(self._config))
        return counts

    def _media_root(self) -> Path:
        return existing_root(self.data, self.options.media_root, "--media-root FOLDER")
