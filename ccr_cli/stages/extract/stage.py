"""extract: a frozen encoder's features of every item that has media."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from ccr_cli import console, registry
from ccr_cli.artifacts import base, dataset, features
from ccr_cli.artifacts.build import Build, build_artifact, build_state
from ccr_cli.artifacts.workspace import Workspace, slug, stem
from ccr_cli.console import say, warn
from ccr_cli.encoders.base import DTYPES
from ccr_cli.errors import ArtifactError, CcrError, UsageError
from ccr_cli.stages.extract import pieces as extract_pieces
from ccr_cli.stages.extract.encoding import How, encode
from ccr_cli.stages.extract.pieces import Pieces
from ccr_cli.stages.extract.reader import Medium, Reader
from ccr_cli.stages.shared.embedding import choose_device
from ccr_cli.stages.shared.failures import failure, read_failures, refuse_too_many, write_failures
from ccr_cli.stages.shared.inputs import Inputs
from ccr_cli.stages.shared.options import configure, identified
from ccr_cli.stages.shared.sharding import Part, meeting, own_device, rank_and_size

POOLS = ("none", "mean")


@dataclass(frozen=True)
class Wanted:
    """What is asked for."""

    encoder: str | None = None
    """A file of encoders/; by default the one that the data set's manifest names, else `clip`."""
    options: Mapping[str, str] = field(default_factory=dict)
    """The encoder's own options, as text."""
    pool: str = "none"
    """`none`: all rows of an item, one a frame or clip; `mean`: their mean."""
    media_root: Path | None = None
    """Where the media lie, if not where the data set says."""
    batch_size: int | None = None
    """Inputs at once; None: as many as fit. Batches never cross a piece."""
    workers: int | None = None
    """Threads that decode; None: by the processors."""
    compiled: bool = False
    """Compile the encoder first."""
    device: str = "auto"
    """`auto`, `cpu` or `cuda`."""
    dtype: str = "float32"
    """Precision of the encoder: float32, bfloat16 or float16."""
    max_failed: float = 0.2
    """Share of items that may fail."""
    name: str | None = None
    """Name of the artifact."""
    force: bool = False
    """Extract again."""
    retry_failed: bool = False
    """Try failed items again, keep the rest."""


def extract(inputs: Inputs, wanted: Wanted, share: Callable[[Job], object] | None = None) -> base.Artifact | None:
    """Encodes every picture and video of a data set.

    Args:
        inputs: Must lead to one data set.
        wanted: What is asked for.
        share: Has others make the pieces that are not there, such as the workers of a cluster.

    Returns:
        The features artifact; its count `failed` says how many items have none. None in the processes of `torchrun`
        but the first, which have shared its work.

    Raises:
        CcrError: If more than `max_failed` of the items failed.
        UsageError: If there is no such precision, or the options do not fit the data set.
    """
    rank, ranks = rank_and_size()
    if ranks == 1 or inputs.workspace.dry_run:
        job = Job(inputs, wanted)
        return job.make(lambda: share(job) if share else job.work(Part()))
    job = Job(inputs, replace(wanted, device=own_device(wanted.device)))
    with meeting() as wait:
        if rank == 0:
            return job.make(lambda: job.work(Part(rank, ranks)), wait)
        console.verbosity = -1
        wait()  # for the first to make the folder ready
        if job.pieces.folder.is_dir():
            job.work(Part(rank, ranks))
        wait()
        return None


def extract_part(inputs: Inputs, wanted: Wanted, part: Part) -> dict[str, int]:
    """Encodes a part of the pieces; whoever makes the artifact takes them.

    Returns:
        How many items were encoded, and how many of these `failed`.

    Raises:
        CcrError: If more than `max_failed` of them failed.
        UsageError: If all is asked for anew.
    """
    if wanted.force or wanted.retry_failed:
        option = "--force" if wanted.force else "--retry-failed"
        raise UsageError(f"{option} does not go with --shard", hint="leave --shard out, or give another --name")
    job = Job(inputs, wanted)
    if job.state() == "done":
        say(f"{job.name} is made: nothing is left to do")
        return {"items": 0, "failed": 0}
    with job.pieces.opening():
        job.pieces.prepare(job.plan)
    with job.pieces.part(f"{part.number + 1}-of-{part.of}"):
        done, failed = job.work(part)
        bounds = job.pieces.bounds()
        own = part.take(bounds)
        job.refuse_too_many(failed, done, "failures of a part are listed when the artifact is made", own)
    if own:
        say(f"{part}: {done} items are encoded, {failed} failed")
    else:
        groups = "is 1" if len(bounds) == 1 else f"are {len(bounds)}"
        say(f"{part}: 0 items: parts are groups of {job.pieces.size:,} items, and there {groups}; more parts are idle")
    return {"items": done - failed, "failed": failed}


def usual_encoder(data: dataset.Dataset) -> str:
    """The encoder that is taken if nobody names one."""
    return str(data.manifest.get("default_encoder", "clip"))


def usual_request(encoder: str) -> dict[str, Any]:
    """What is asked of an encoder if nobody sets any option."""
    return {"encoder": encoder, "dtype": "float32", **asdict(registry.load("encoders", encoder).Config())}


class Job:
    """What is wanted, understood: data set, encoder, request, pieces."""

    def __init__(self, inputs: Inputs, wanted: Wanted) -> None:
        if wanted.dtype not in DTYPES:
            raise UsageError(f"--dtype is one of {', '.join(DTYPES)}")
        if wanted.pool not in POOLS:
            raise UsageError(f"--pool is one of {', '.join(POOLS)}, not {wanted.pool!r}")
        self.wanted, self._workspace = wanted, inputs.workspace
        self.data = inputs.one("dataset", "", hint="ccr data import noto-emoji")
        source = dataset.read(self.data)
        items = source.items
        self._media = [Medium(kind, media) for kind, media in zip(items["kind"], items["media"], strict=True)]
        encoder = wanted.encoder or usual_encoder(source)
        self._module = registry.load("encoders", encoder)
        self._config = configure(self._module.Config, wanted.options, f"encoder {encoder}")
        with_videos = self._with_videos = bool((items["kind"] == "video").any())
        self._recorded = identified(self._module, self._config)
        if not with_videos:
            self._refuse_sampling()
            self._recorded = {key: value for key, value in self._recorded.items() if key not in features.FRAMES}
        self.request = {"encoder": encoder, "dtype": wanted.dtype, **self._recorded}
        if wanted.pool != "none":
            self.request["pool"] = wanted.pool
        self.name = wanted.name or stem(encoder, self.request, usual_request(encoder))
        self.plan = {"request": self.request, "parents": [self.data.id]}
        final = self._workspace.place("features", slug(self.name), self.data.name)
        folder = final.with_name(f"{final.name}.parts")
        size = extract_pieces.VIDEOS if with_videos else extract_pieces.PICTURES
        self.pieces = Pieces(folder, final, list(items["item_id"]), size)

    def make(self, work: Callable[[], object], wait: Callable[[], None] | None = None) -> base.Artifact:
        """Makes the artifact.

        Args:
            work: Makes the pieces that are not there, or this process's part of them.
            wait: Waits for those with whom the work is shared.
        """
        waits = 0  # the other processes wait twice: for the folder of pieces, and until all pieces are there

        def meet() -> None:
            nonlocal waits
            waits += 1
            if wait is not None:
                wait()

        def write(site: Build) -> dict[str, int]:
            self._prepare(site)
            meet()
            try:
                with self.pieces.all_parts():
                    if self.pieces.todo():
                        work()
                    meet()
                    return self._finish(site)
            except CcrError:
                self.pieces.remove_if_empty()
                raise

        artifact = self._build(self._workspace, write)
        self.pieces.remove()
        while waits < 2:
            meet()
        return artifact

    def state(self) -> str:
        """How far the artifact is: done, unfinished or to do."""
        return build_state(lambda workspace: self._build(workspace, lambda site: {}), self._workspace)

    def work(self, part: Part) -> tuple[int, int]:
        """Makes the pieces of a part that are not there.

        Returns:
            The number of items that were tried, and of those that failed.

        Raises:
            ArtifactError: If the media or the encoder do not fit.
            ResourceError: If memory or disk do not suffice.
        """
        own = set(part.take(self.pieces.bounds()))
        todo = [each for each in self.pieces.todo() if each in own]
        if not todo:
            return 0, 0
        root = self._root()
        if part.of == 1:
            self.media_of(todo)
        device = choose_device(self.wanted.device)
        model = self._module.Encoder(self._config, device, DTYPES[self.wanted.dtype])
        self._refuse_pictures(model)
        how = How(device, self.wanted.batch_size, self.wanted.workers, self.wanted.compiled)
        with self.pieces.present():
            pieces = self.pieces.by(self._about(model))
            pieces.require_space()
            told = encode(pieces, todo, self._media, Reader(root, model), how, pooled=self.wanted.pool == "mean")
        return len(told), sum(error is not None for error in told)

    def refuse_too_many(self, failed: int, total: int, first: str, bounds: Sequence[tuple[int, int]]) -> None:
        """Stops where most items of some pieces fail; they are tried again the next time.

        Raises:
            CcrError: If more than `max_failed` of them failed.
        """
        try:
            refuse_too_many(failed, total, self.wanted.max_failed, "items", first)
        except CcrError:
            self.pieces.try_again(bounds)
            raise

    def _build(self, workspace: Workspace, write: Callable[[Build], dict[str, int]]) -> base.Artifact:
        return build_artifact(
            workspace,
            "features",
            self.name,
            self.request,
            [self.data],
            write=write,
            force=self.wanted.force,
            redo_failed=self.wanted.retry_failed,
        )

    def _prepare(self, build: Build) -> None:
        """Makes the folder of pieces ready, with what an artifact to be mended holds."""
        earlier = base.load(build.final) if self.wanted.retry_failed and (build.final / base.RECORD).is_file() else None
        if earlier is None or self.wanted.force:
            self.pieces.prepare(self.plan, purpose="force" if self.wanted.force else "")
        else:
            self.pieces.prepare(self.plan, purpose=f"retry {earlier.id}")
            self.pieces.take_from(earlier)

    def _finish(self, build: Build) -> dict[str, int]:
        index = self.pieces.finish(build.folder)
        failed = index[index["status"] == "failed"].to_dict("records")
        cause = str(failed[0]["error"]) if failed else ""
        self.refuse_too_many(len(failed), len(index), cause, self.pieces.bounds())
        attempts = {r["id"]: r["attempt"] for r in read_failures(build.folder)} if self.wanted.retry_failed else {}
        records = []
        for row in failed:
            kind, _, message = str(row["error"]).partition(": ")
            records.append(failure(row["item_id"], "extract", kind, message, attempts.get(row["item_id"], 0) + 1))
        write_failures(build.folder, records)
        base.write_json(build.folder / "encoder.json", self.pieces.about())
        build.environment["device"] = str(choose_device(self.wanted.device))
        given = asdict(self._config).items()
        build.environment["given"] = {k: v for k, v in given if self._recorded.get(k, v) != v}
        if hasattr(self._module, "recipe"):
            with suppress(CcrError):  # who merges may not have the model
                build.environment["recipe"] = asdict(self._module.recipe(self._config))
        counts = {"items": len(index), "rows": int(index["n_rows"].sum()), "failed": len(failed)}
        if damaged := int((index["status"] == "damaged").sum()):
            counts["damaged"] = damaged
            warn(f"{damaged} videos are damaged; what decodes of them is there (index.parquet says how much)")
        return counts

    def _about(self, model: Any) -> dict[str, Any]:
        """Who encodes; where there are videos, which of their frames and what is kept of these."""
        if not self._with_videos:
            return dict(model.describe())
        return {**model.describe(), "sampling": asdict(model.sampling), "pool": self.wanted.pool}

    def _root(self) -> Path:
        root = self.wanted.media_root or dataset.media_root(self.data)
        if root is None or not root.is_dir():
            where = f"its media root {root} is not there" if root else "no media lie beside it"
            raise ArtifactError(f"{self.data.name} has no media: {where}", hint="say where: --media-root FOLDER")
        return root.resolve()

    def media_of(self, todo: Sequence[tuple[int, int]]) -> list[Path]:
        """The media of pieces, as far as they are there.

        Raises:
            ArtifactError: If there is no folder of media.
            CcrError: If so many are not there that the end would be refused, before anything is encoded.
        """
        root = self._root()
        named = [each.media for start, stop in todo for each in self._media[start:stop] if each.media]
        absent = [name for name in named if not (root / name).exists()]
        total = len(self._media)
        mended = self.wanted.retry_failed  # an artifact that is mended holds what need not be there
        if not mended and len(absent) > self.wanted.max_failed * total:
            raise CcrError(
                f"{len(absent)} of {total} media are not there, more than --max-failed {self.wanted.max_failed:g}; "
                f"the first: {absent[0]}, below {root}",
                hint="say where they are: --media-root FOLDER; or raise --max-failed",
            )
        missing = set(absent)
        return [root / name for name in named if name not in missing]

    def _refuse_sampling(self) -> None:
        """Options that choose frames, where there are none."""
        for key in self.wanted.options:
            if key in features.FRAMES:
                raise UsageError(f"{key} is for videos, and {self.data.name} has none", hint="leave it out")

    def _refuse_pictures(self, model: Any) -> None:
        if model.sampling.clip_frames > 1 and not any(medium.kind == "video" for medium in self._media):
            raise ArtifactError(
                f"{self.data.name} has no videos, and {self.request['encoder']} encodes clips of them",
                hint="an encoder of pictures, such as --encoder clip",
            )
