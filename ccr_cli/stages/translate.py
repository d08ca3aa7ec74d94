"""translate: machine translation of a data set's captions into one language, and back, and of queries."""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import pandas as pd

from ccr_cli import registry
from ccr_cli.artifacts import base, dataset, translation
from ccr_cli.artifacts.build import Build, building
from ccr_cli.artifacts.tables import read_table, write_table
from ccr_cli.artifacts.workspace import stem
from ccr_cli.console import progress, say
from ccr_cli.data.manifests import LANG
from ccr_cli.data.splits import SPLITS, items_of
from ccr_cli.errors import ArtifactError, UsageError
from ccr_cli.metrics.mtquality import quality
from ccr_cli.stages.failures import failure, read_failures, refuse_too_many, write_failures
from ccr_cli.stages.options import configure, identified
from ccr_cli.stages.select import Inputs

SHARD_CAPTIONS = 4096


def translate(
    inputs: Inputs,
    lang: str,
    *,
    engine: str = "auto",
    options: Mapping[str, str] | None = None,
    back: bool = False,
    queries: bool = False,
    split: str | None = None,
    name: str | None = None,
    device: str = "auto",
    max_failed: float = 0.2,
    force: bool = False,
    retry_failed: bool = False,
) -> base.Artifact:
    """Translates the source captions of a data set into `lang`.

    Args:
        inputs: Must lead to one data set with training captions.
        lang: Target language, BCP 47.
        engine: A translator, or `auto`: recorded translations where the data set ships the pair, else `hf`.
        options: The engine's own options, as text.
        back: Translate the result back into the source language too.
        queries: Translate the human captions in `lang` of val and test into the source language too.
        split: Only this split; by default all of them.
        name: Name of the artifact.
        device: `auto`, `cpu` or `cuda`.
        max_failed: Share of captions that may fail.
        force: Translate again.
        retry_failed: Try again what failed before, keep the rest.

    Returns:
        The translation artifact; its count `failed` says how many captions have none.

    Raises:
        UnavailableError: If the engine, its model or the pair is not to be had.
        CcrError: If more than `max_failed` of the captions failed.
    """
    data = training_data(inputs)
    source = dataset.read(data)
    if not LANG.fullmatch(lang):
        raise UsageError(f"{lang!r} is no language tag (BCP 47, such as es, zh or pt-BR)")
    if lang == source.source_lang:
        raise UsageError(f"{data.name} is written in {lang!r}; choose another --lang")
    if split is not None and split not in SPLITS:
        raise UsageError(f"there is no split {split!r}", hint=f"splits: {', '.join(SPLITS)}")
    if source.source_lang not in source.languages()[:1]:
        raise ArtifactError(
            f"there is nothing to translate: {data.name} has no captions in its source language {source.source_lang!r}"
        )
    engine = usual_engine(source, lang) if engine == "auto" else engine
    module = registry.load("translators", engine)
    config = configure(module.Config, options or {}, f"engine {engine}")
    request = {"lang": lang, "engine": engine, "split": split or "all", "back": back, "queries": queries}
    request |= _options(identified(module, config))
    name = name or stem(f"{lang}-{engine}", request, usual_request(lang, engine))
    with building(
        inputs.workspace,
        "translation",
        name,
        request,
        [data],
        data=data.name,
        force=force,
        redo_failed=retry_failed,
    ) as build:
        if build.done is None:
            job = _Job(build, source, lang, module, config, device, request)
            frame = job.forward(split)
            if back:
                frame = pd.concat([frame, job.back(frame)], ignore_index=True)
            if queries:
                frame = pd.concat([frame, job.queries(split)], ignore_index=True)
            _finish(build, frame, source, lang, max_failed, retry_failed)
        assert build.done is not None
        return build.done


def training_data(inputs: Inputs) -> base.Artifact:
    """The data set given, or the one of the workspace that has training items."""

    def fits(artifact: base.Artifact) -> bool:
        return artifact.counts.get("items.train", 0) > 0 or artifact in inputs.given

    return inputs.one("dataset", "with training items", fits, hint="ccr data import noto-emoji")


def usual_engine(data: dataset.Dataset, lang: str) -> str:
    """The engine that `auto` takes."""
    recorded = registry.load("translators", "recorded").pairs(data.artifact.path) or []
    return "recorded" if (data.source_lang, lang) in recorded else "hf"


def usual_request(lang: str, engine: str) -> dict[str, Any]:
    """What is asked of an engine if nobody sets any option."""
    options = asdict(registry.load("translators", engine).Config())
    return {"lang": lang, "engine": engine, "split": "all", "back": False, "queries": False, **_options(options)}


def _options(options: Mapping[str, Any]) -> dict[str, Any]:
    """An engine's own options in a request, apart from the others: `recorded` has an option `engine`."""
    return {f"set.{key}": value for key, value in options.items()}


class _Job:
    """The translation of one artifact, shard by shard; finished shards in the building folder are kept."""

    def __init__(
        self,
        build: Build,
        source: dataset.Dataset,
        lang: str,
        module: Any,
        config: Any,
        device: str,
        request: Mapping[str, Any],
    ) -> None:
        self.build, self.source, self.lang = build, source, lang
        self._module, self._config, self._device, self._request = module, config, device, request
        self._done = self._earlier()

    def _earlier(self) -> dict[str, dict[str, Any]]:
        """Captions that an earlier attempt translated before it came to its end."""
        path = self.build.folder / "captions.parquet"
        if not path.is_file():
            return {}
        frame = read_table(path, translation.CAPTIONS)
        good = frame[frame["status"] == "ok"]
        return {str(row["caption_id"]): dict(row) for row in good.to_dict("records")}  # type: ignore[arg-type]

    def forward(self, split: str | None) -> pd.DataFrame:
        work = self._captions(self.source.source_lang, split)
        return self._run(work, "forward", self.source.source_lang, self.lang)

    def back(self, forward: pd.DataFrame) -> pd.DataFrame:
        work = forward[forward["status"] == "ok"]
        return self._run(work, "back", self.lang, self.source.source_lang)

    def queries(self, split: str | None) -> pd.DataFrame:
        work = self._captions(self.lang, split)
        work = work[work["split"] != "train"]
        if work.empty:
            say(f"no human {self.lang} captions outside training: no queries to translate")
        return self._run(work, "query", self.lang, self.source.source_lang)

    def _captions(self, lang: str, split: str | None) -> pd.DataFrame:
        items = self.source.items if split is None else items_of(self.source.items, split)
        captions = self.source.captions[self.source.captions["lang"] == lang]
        return captions.merge(items[["item_id", "split"]], on="item_id")

    def _run(self, work: pd.DataFrame, direction: str, source: str, target: str) -> pd.DataFrame:
        shards = self.build.folder / "shards"
        shards.mkdir(exist_ok=True)
        frames = []
        engine: Any = None
        with progress(len(work), f"translate {source} -> {target}", "captions") as advance:
            for number, first in enumerate(range(0, len(work), SHARD_CAPTIONS)):
                path = shards / f"{direction}-{number:05d}.parquet"
                part = work.iloc[first : first + SHARD_CAPTIONS]
                if not path.is_file():
                    if engine is None:
                        engine = self._module.Translator(
                            source,
                            target,
                            self._config,
                            dataset_dir=self.source.artifact.path,
                            device=self._device,
                        )
                        self.build.environment[f"engine.{direction}"] = engine.describe()
                    write_table(path, self._shard(part, direction, target, engine), translation.CAPTIONS)
                frames.append(read_table(path, translation.CAPTIONS))
                advance(len(part))
        return pd.concat(frames, ignore_index=True) if frames else pd.DataFrame(columns=translation.CAPTIONS.names)

    def _shard(self, part: pd.DataFrame, direction: str, target: str, engine: Any) -> pd.DataFrame:
        facts = engine.describe()
        ids = [f"{caption}@{target}" for caption in part["caption_id"]]
        todo = [i for i, caption in enumerate(ids) if caption not in self._done]
        texts = list(dict.fromkeys(part["text"].iloc[todo]))
        results = {texts[position]: result for position, result in engine.translate(texts)}
        rows = []
        for caption_id, row in zip(ids, part.to_dict("records"), strict=True):
            if caption_id in self._done:
                rows.append(self._done[caption_id])
                continue
            result = results[row["text"]]
            text = unicodedata.normalize("NFC", result.text.strip()) if result.text else ""
            rows.append(
                {
                    "caption_id": caption_id,
                    "item_id": row["item_id"],
                    "split": row["split"],
                    "lang": target,
                    "direction": direction,
                    "k": row["k"],
                    "text": text or None,
                    "source_caption_id": row["caption_id"],
                    "engine": facts["engine"],
                    "model": facts["model"],
                    "score": result.score,
                    "status": "ok" if text else f"failed: {result.error or 'empty translation'}",
                }
            )
        return pd.DataFrame(rows, columns=translation.CAPTIONS.names)


def _finish(
    build: Build, frame: pd.DataFrame, source: dataset.Dataset, lang: str, max_failed: float, retried: bool
) -> None:
    failed = frame[frame["status"] != "ok"]
    attempts = {r["id"]: r["attempt"] for r in read_failures(build.folder)} if retried else {}
    records = [
        failure(
            row["caption_id"],
            "translate",
            "NotTranslated",
            row["status"].removeprefix("failed: "),
            attempts.get(row["caption_id"], 0) + 1,
        )
        for row in failed.to_dict("records")
    ]
    write_table(
        build.folder / "captions.parquet",
        frame.assign(status=frame["status"].where(frame["status"] == "ok", "failed")),
        translation.CAPTIONS,
    )
    for shard in (build.folder / "shards").iterdir():
        shard.unlink()
    (build.folder / "shards").rmdir()
    refuse_too_many(
        len(records),
        len(frame),
        max_failed,
        "captions",
        f"{records[0]['id']}: {records[0]['message']}" if records else "",
    )
    write_failures(build.folder, records)
    base.write_json(build.folder / "quality.json", _quality(frame, source, lang))
    counts = {str(k): int(n) for k, n in frame["direction"].value_counts(sort=False).items()}
    build.finish({**counts, "failed": len(records)})


def _quality(frame: pd.DataFrame, source: dataset.Dataset, lang: str) -> dict[str, Any]:
    """Evidence of quality by direction; the forward one with its round trip where there is one."""
    text_of = dict(zip(source.captions["caption_id"], source.captions["text"], strict=True))
    text_of |= dict(zip(frame["caption_id"], frame["text"], strict=True))
    back = frame[frame["direction"] == "back"]
    returned = dict(zip(back["source_caption_id"], back["text"], strict=True))
    report = {}
    for direction, part in frame.groupby("direction", sort=True):
        trips = [returned.get(c) for c in part["caption_id"]] if direction == "forward" and returned else None
        sources = [text_of[c] for c in part["source_caption_id"]]
        target = lang if direction == "forward" else source.source_lang
        report[str(direction)] = quality(sources, list(part["text"]), target, trips).summary
    return report
