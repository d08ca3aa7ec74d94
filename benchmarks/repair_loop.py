"""Measure whether diagnosing, repairing and training again helps with real translation errors.

Without a model: the translations of one engine are diagnosed by `fusion`, the other engine's being the witness. The
most suspicious tenth is dropped or translated again by the other engine, or all pairs are weighted by their
probability; compared with no repair, with the same repair of as many random pairs, and with both engines' translations
(one drawn anew each epoch, or the one that the judge trusts more).

With a model: the same with the diagnosis of a run by `two-group`, also with synthetic noise, where errors are known.

Commands: `ccr diagnose --share --export`, `ccr train --verdicts`, `ccr translate --only`. Queries are human captions of
the reported half of validation; machine translations by the first engine choose the epoch in all arms.

    python benchmarks/repair_loop.py --data FOLDER/flickr8kcn --workspace W --seeds 0 1

Runs in the results are skipped; `--table` writes the table of docs/wrong-translations.md.
"""

from __future__ import annotations

import argparse
import json
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from robustness import code, grid, runs, tables
from robustness.collection import Collection
from robustness.recovery import difference

from ccr_cli.artifacts import base, diagnosis, evaluation
from ccr_cli.artifacts.workspace import Workspace
from ccr_cli.data import pairs_file
from ccr_cli.data.seeds import derive
from ccr_cli.judges.base import load_judge
from ccr_cli.stages.diagnose.options import DiagnoseOptions
from ccr_cli.stages.diagnose.stage import diagnose
from ccr_cli.stages.diagnose.translated import diagnose_translation
from ccr_cli.stages.evaluate.options import EvaluationOptions
from ccr_cli.stages.evaluate.stage import evaluate
from ccr_cli.stages.shared.inputs import Inputs
from ccr_cli.stages.train.options import TrainingOptions
from ccr_cli.stages.train.pair_list import PairSelection
from ccr_cli.stages.train.sources import Sources
from ccr_cli.stages.train.stage import train_on
from ccr_cli.stages.translate.options import TranslateOptions
from ccr_cli.stages.translate.stage import translate

CHECKOUT = Path(__file__).resolve().parents[1]
RESULTS = CHECKOUT / "benchmarks" / "results" / "repair_loop.json"
PAGE = CHECKOUT / "docs" / "wrong-translations.md"
NONE = "no repair"
UNJUDGED = (NONE, "drop random", "replace random")
"""Arms that are the same whoever judges."""
REPAIRS = ("drop random", "replace random", "drop worst", "replace worst", "weight")
KNOWN = 0.4
"""Share of switched translations in the arms whose truth is known."""
LOOPS = {
    ("fusion", 0.0): (NONE, "both: draw", *REPAIRS, "both: trusted"),
    ("two-group", 0.0): (NONE, *REPAIRS),
    ("two-group", KNOWN): (NONE, "drop called", "weight"),
}
"""The arms, by judge and share of switched translations."""


def cell(options: argparse.Namespace, noise: float, seed: int) -> grid.Cell:
    """What every arm is trained like."""
    return grid.Cell(
        options.method,
        options.method,
        (("epochs", str(options.epochs)),),
        noise=noise,
        seed=seed,
        translations=options.translations,
    )


class Loop:
    """The arms of one judge and seed; what they share is made once."""

    def __init__(
        self, collection: Collection, options: argparse.Namespace, judge: str, noise: float, seed: int
    ) -> None:
        self.cell, self.options, self.judge = cell(options, noise, seed), options, judge
        self.inputs, self.root = Inputs(collection.workspace), collection.workspace.root
        self.sources = collection.sources(self.cell)
        self.other = collection.sources(replace(self.cell, translations=options.other, noise=0.0)).translated[0]
        self.about: dict[str, Any] = {}
        self.share: float | None = None if noise else options.share
        self.stem = f"known-{seed}" if noise else f"{judge}-{seed}"

    def row(self, arm: str) -> dict[str, Any]:
        """Trains and measures an arm."""
        trained = self.train(arm)
        made = evaluate(self.inputs, trained, EvaluationOptions(split="val-report"), device="cpu", force=True)
        results = evaluation.results(made)
        number, result = next((i, r) for i, r in enumerate(results) if r["role"] == "target" and r["fusion"] == "none")
        row = {
            "judge": self.judge,
            "arm": arm,
            "noise": self.cell.noise,
            "seed": self.cell.seed,
            "SumR": round(result["SumR"], 4),
            "found": runs.per_item(evaluation.read_ranks(made), number),
            "triplets": trained.counts["triplets"],
            "best_epoch": trained.counts["best_epoch"],
            "signature": str(result["signature"]),
            **self.about,
            "code": code.version(),
        }
        shutil.rmtree(made.path)
        if arm != NONE:
            shutil.rmtree(trained.path)
        return row

    def train(self, arm: str) -> base.Artifact:
        """The run of an arm."""
        what, _, which = arm.partition(" ")
        sources, more = self.sources, {}
        if what == "drop":
            sources = replace(sources, pairs=PairSelection(pairs_file.read(self.list(which)), weighted=False))
        elif what == "weight":
            sources = replace(sources, pairs=PairSelection(pairs_file.read(self.list("worst")), weighted=True))
        elif what == "replace":
            sources = replace(sources, translated=(self.mended(which),))
        elif what == "both:":
            sources = replace(sources, translated=(*sources.translated, self.other))
            more = {"translation_mix": which, "judge": self.judge if which == "trusted" else "none"}
        return self._train(sources, "none" if arm == NONE else arm.replace(": ", "-").replace(" ", "-"), **more)

    def _train(self, sources: Sources, name: str, translation_mix: str = "draw", judge: str = "none") -> base.Artifact:
        options = TrainingOptions(
            method=self.cell.method,
            settings={**dict(self.cell.options), "judge": judge},
            seed=self.cell.seed,
            device="cpu",
            translation_mix=translation_mix,
            name=f"repair-{self.stem}-{name}",
        )
        return train_on(self.inputs, sources, options)

    def mended(self, which: str) -> base.Artifact:
        """The translation in which the other engine made some captions."""
        repair = TranslateOptions(
            "zh",
            engine="recorded",
            settings={"engine": self.options.other},
            only=self.list(which),
            name=f"repair-{self.stem}-{which}",
        )
        return translate(replace(self.inputs, named=[self.sources.data, *self.sources.translated]), repair)

    def diagnosis(self) -> base.Artifact:
        """The diagnosis of the translation, or of the run without a repair."""
        if load_judge(self.judge).needs_model:
            how = DiagnoseOptions(self.judge, share=self.share, device="cpu")
            return diagnose(self.inputs, self._train(self.sources, "none"), how)
        how = DiagnoseOptions(self.judge, share=self.share, witness=[self.other.name])
        return diagnose_translation(self.inputs, self.sources.translated[0], how)

    def list(self, which: str) -> Path:
        """The list of pairs: as they were judged, or with as many called noisy at random."""
        path = self.root / f"repair-{self.stem}-{which}.parquet"
        judged = self.diagnosis()
        summary, frame = diagnosis.summary(judged), diagnosis.read_pairs(judged)
        if "split" in frame:
            frame = frame[frame["split"] == "train"].reset_index(drop=True)
        called = int((frame["verdict"] == "noisy").sum())
        self.about = {"called": called, "split": summary["split"], "detection": summary.get("detection")}
        self.about["least_p_clean"] = [float(frame["p_clean"].quantile(q)) for q in (0.01, 0.1)]
        if which == "random":
            rng = np.random.default_rng(derive(self.cell.seed, "random pairs"))
            drawn = rng.choice(len(frame), called, replace=False)
            frame["verdict"] = "clean"
            frame.loc[drawn, "verdict"] = "noisy"
        if not path.exists():
            pairs_file.write(path, frame)
        return path


def block(measured: dict[str, Any]) -> str:
    """The table of the page."""
    rows = measured["rows"]
    lines = []
    for (judge, noise), arms in LOOPS.items():
        for arm in arms:
            own, base_ = (
                {
                    r["seed"]: r
                    for r in rows
                    if (r["arm"], r["noise"]) == (each, noise) and (r["judge"] == judge or each in UNJUDGED)
                }
                for each in (arm, NONE)
            )
            seeds = sorted(own.keys() & base_.keys())
            if not seeds:
                continue
            values = [own[seed]["SumR"] for seed in seeds]
            spread = f" ± {np.std(values, ddof=1):.1f}" if len(values) > 1 else ""
            gain = ""
            if arm != NONE:
                paired = [np.array([runs.values(each[seed]["found"]) for seed in seeds]) for each in (own, base_)]
                found = difference(*paired)
                gain = f"{found.value:+.1f} [{found.low:+.1f}, {found.high:+.1f}]"
            what = f"`{judge}`" if not noise else f"`{judge}`, {noise:.0%} switched"
            if not noise and arm in (*UNJUDGED, "both: draw"):
                what = "as they are"
            triplets = f"{round(np.mean([own[seed]['triplets'] for seed in seeds])):,}"
            lines.append([f"{what}: {arm}", triplets, str(len(seeds)), f"{np.mean(values):.1f}{spread}", gain])
    lines = list({tuple(line): line for line in lines}.values())  # arms without a judge once
    return tables.markdown(["judge, repair", "pairs", "seeds", "SumR", "against no repair"], lines)


def work(options: argparse.Namespace) -> None:
    """Makes what is not there yet, the arms of one seed after the other."""
    measured: dict[str, Any] = json.loads(options.out.read_text("utf-8")) if options.out.exists() else {}
    settings = {
        "what": "SumR on the reported half of Flickr8k-CN validation, human Chinese queries",
        "method": options.method,
        "config": cell(options, 0.0, 0).config,
        "translations": options.translations,
        "other": options.other,
        "share": options.share,
        "torch": torch.__version__,
    }
    known = {**settings, "config": {k: v for k, v in settings["config"].items() if k in measured.get("config", {})}}
    if measured and any(measured[k] != known[k] for k in settings if k != "torch"):
        raise SystemExit(f"{options.out} is of other settings")
    measured = {**settings, "rows": measured.get("rows", [])}
    collection = Collection(Workspace(options.workspace.absolute()), options.data)
    done = {(r["judge"], r["arm"], r["noise"], r["seed"]) for r in measured["rows"]}
    for seed in options.seeds:
        for (judge, noise), arms in LOOPS.items():
            own = judge == options.judge and noise == options.noise
            todo = [a for a in arms if own and a in options.arms and (judge, a, noise, seed) not in done]
            loop = Loop(collection, options, judge, noise, seed) if todo else None
            for arm in todo:
                assert loop is not None
                measured["rows"].append(loop.row(arm))
                base.write_json(options.out, measured)
                print(json.dumps({k: v for k, v in measured["rows"][-1].items() if k != "found"}), flush=True)


def main(words: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="folder of the collection, which is not part of this project")
    parser.add_argument("--workspace", type=Path, help="where artifacts go; not into the checkout")
    parser.add_argument("--method", default="infonce")
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--translations", default="google-2016", choices=grid.CHINESE)
    parser.add_argument("--other", default="baidu-2016", choices=grid.CHINESE, help="who translates again")
    parser.add_argument("--judge", default="fusion", choices=[judge for judge, _ in LOOPS])
    parser.add_argument("--noise", type=float, default=0.0, choices=[0.0, KNOWN])
    arms = list(dict.fromkeys(arm for each in LOOPS.values() for arm in each))
    parser.add_argument("--arms", nargs="+", default=arms, choices=arms, metavar="ARM")
    parser.add_argument("--share", type=float, default=0.1)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--table", action="store_true", help="write the table of the page and nothing else")
    options = parser.parse_args(words)
    torch.set_num_threads(1)
    if options.table:
        page = PAGE.read_text("utf-8")
        measured = json.loads(options.out.read_text("utf-8"))
        PAGE.write_text(tables.fill(page, {"repair": block(measured)}), encoding="utf-8")
        return
    if options.data is None or options.workspace is None:
        parser.error("--data and --workspace are needed")
    work(options)


if __name__ == "__main__":
    main()
