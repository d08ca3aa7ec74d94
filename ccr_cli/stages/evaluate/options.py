"""The options of `ccr evaluate`: each field is a flag and, where marked, an entry of the evaluation's request."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ccr_cli.artifacts.base import sha256_file
from ccr_cli.artifacts.signature import COMMON_PROTOCOLS, FULL, HUMAN, MT
from ccr_cli.errors import UsageError, no_share
from ccr_cli.stages.shared.options import option, request_of

HALF = "half"
"""The value of `--ood` that removes half of the gallery."""
BOTH = "both"
"""The value of `--queries` for human and machine-translated captions."""
KINDS = (HUMAN, MT, BOTH)
"""Values of `--queries` that name no file."""
SPLIT = "test"
CHOICES = {
    "ties": ("mid", "optimistic", "pessimistic"),
    "fusion": ("raw", "minmax"),
    "task": ("visual", "text"),
    "corruption": ("drop", "replace", "shuffle", "features", "both"),
}
"""Allowed values by option."""


def _own_split(options: "EvaluationOptions") -> bool:
    """Whether the options decide on split and caption set; a protocol of a manifest has its own."""
    return options.protocol in COMMON_PROTOCOLS


@dataclass(frozen=True)
class EvaluationOptions:
    """The options of `ccr evaluate` that can change the result, in the order of its help."""

    split: str | None = option(
        None,
        "Split to evaluate: train, val, test, val-select or val-report (halves of val); with a table of your own "
        "queries also all.",
        request=_own_split,
        show_default=SPLIT,
    )
    langs: tuple[str, ...] = option(
        (),
        "Query language; repeat for several.",
        "--lang",
        request=True,
        command_line=(list[str] | None, lambda langs: tuple(dict.fromkeys(langs))),
        show_default="the run's",
    )
    zero_shot: bool = option(
        False, "Evaluate on the other data sets of the workspace, in every language they have.", request=True
    )
    drop_leaks: bool = option(
        False, "With --zero-shot: leave out items that the run was trained on.", request=lambda o: o.drop_leaks
    )
    caption_set: str | None = option(
        None, "Use only the captions of this set as queries.", request=_own_split, show_default="all sets"
    )
    queries: str = option(
        "",
        "Queries: human (captions), mt (the split's machine-translated captions), both, or a table of your own with "
        "the columns text and item.",
        request=lambda o: o.queries not in ("", HUMAN),
        show_default="human, or mt where nobody wrote captions in the language",
    )
    beta: float = option(
        0.8,
        "Weight of the query in score fusion with its translation (0 to 1).",
        "--fusion-weight",
        was="--beta",
        request=True,
    )
    fusion: str = option("raw", "Score fusion: raw, or minmax (normalised as in NRCCR's code).", request=True)
    translate_test: bool = option(
        False,
        "Also search with the translation of each query into the source language in its place: fusion weight 0, with "
        "the queries that `ccr translate --with-queries` translated.",
    )
    ties: str = option("mid", "How tied similarities count: mid, optimistic or pessimistic.", request=True)
    protocol: str = option(
        "",
        "What counts as right: full (the query's own item), labelled (its whole category), or a protocol of the "
        "data set's manifest, such as coco-1k-5fold.",
        request=True,
        show_default="full, or labelled for a method that learns categories",
    )
    task: str = option(
        "visual",
        "visual; or text: captions search their translations, without pictures (NRCCR).",
        request=lambda o: o.task != "visual",
    )
    corrupt: float = option(
        0.0, "Also evaluate with this fraction of words (or features) corrupted.", request=lambda o: o.corrupt
    )
    corruption: str = option(
        "",
        "How to corrupt: drop, replace or shuffle words; features (mask them); or both (drop words, mask features).",
        request=lambda o: o.corrupt,
        show_default="drop",
    )
    ood: str = option(
        "",
        "Test whether uncertainty detects queries without a match: `half` removes half of the gallery; a data set "
        "name uses its captions as queries.",
        request=lambda o: o.ood,
        show_default=False,
    )

    def check(self) -> None:
        """Checks what needs no data; UsageError if a value is not allowed, or options contradict each other."""
        from ccr_cli.data.splits import ALL

        for name, choices in CHOICES.items():
            value = getattr(self, name)
            if value not in choices and (name, value) != ("corruption", ""):
                raise UsageError(f"--{name} is {', '.join(choices[:-1])} or {choices[-1]}, not {value!r}")
        if not 0 <= self.beta <= 1:
            raise UsageError(f"--fusion-weight is a weight from 0 to 1, not {self.beta:g}")
        if not 0 <= self.corrupt <= 1:
            raise no_share("--corrupt ", self.corrupt)
        if self.corrupt == 1:
            raise UsageError("--corrupt 1 leaves nothing: the fraction is below 1", hint="--corrupt 0.9 is 90 %")
        if self.corruption and not self.corrupt:
            raise UsageError(f"--corruption {self.corruption} has no effect by itself", hint="add --corrupt 0.3")
        text = self.task == "text"
        if self.translate_test and self.beta not in (EvaluationOptions.beta, 0):
            raise UsageError(f"--translate-test is fusion of weight 0, not {self.beta:g}", hint="leave one out")
        if self.translate_test and self.fusion != EvaluationOptions.fusion:
            problem = f"--fusion {self.fusion} has no effect on --translate-test: it keeps the order of the scores"
            raise UsageError(problem, hint="leave one out")
        if self.translate_test and (text or self.queries not in ("", HUMAN, BOTH)):
            other = "--task text" if text else f"--queries {self.queries}"
            raise UsageError(f"--translate-test searches with people's queries, translated; {other} has others")
        if text and self.corrupt:
            raise UsageError("--corrupt goes with pictures, not with --task text")
        if text and self.protocol not in ("", FULL):
            raise UsageError(f"--task text compares sentences only, so --protocol {self.protocol} does not apply")
        if self.split == ALL and not self.file:
            problem = "--split all searches the items of training too, so it needs queries of your own"
            raise UsageError(problem, hint="--queries FILE, a table with the columns text and item; or --split test")
        if self.file and self.caption_set is not None:
            problem = f"--queries {self.queries} brings its own captions, and --caption-set {self.caption_set} has none"
            raise UsageError(problem, hint="leave one out")
        if self.queries and text:
            raise UsageError(f"--queries {self.queries} does not go with --task text, which chooses its sentences")
        if self.queries not in ("", HUMAN) and self.zero_shot:
            problem = f"--queries {self.queries} is for a run's own data set, and --zero-shot evaluates others"
            raise UsageError(problem, hint=self.elsewhere)
        if self.queries not in ("", HUMAN) and self.ood not in ("", HALF):
            raise mixed_ood(self.ood, self.queries)
        if self.ood and (text or self.zero_shot):
            raise UsageError(f"--ood does not go with {'--task text' if text else '--zero-shot'}")
        if self.drop_leaks and not self.zero_shot:
            raise UsageError("--drop-leaks goes with --zero-shot: on a run's own data set the splits are separate")

    @property
    def weight(self) -> float:
        """The query's own weight in score fusion."""
        return 0.0 if self.translate_test else self.beta

    @property
    def fusion_flag(self) -> str:
        """The flag that changes score fusion; empty if none does."""
        usual = EvaluationOptions
        weight = f"--fusion-weight {self.beta:g}" if self.beta != usual.beta else ""
        return weight or (f"--fusion {self.fusion}" if self.fusion != usual.fusion else "")

    @property
    def file(self) -> Path | None:
        """The table of queries that `queries` names."""
        return None if self.queries in ("", *KINDS) else Path(self.queries)

    @property
    def elsewhere(self) -> str:
        """The hint for evaluating on a data set other than the run's."""
        if not self.file:
            return "--zero-shot, without --queries" if self.queries else "add --zero-shot"
        made = f"ccr data import test={self.file} --lang LANG"
        return f"import the table as captions, each with its picture: {made}; then --zero-shot, without --queries"

    def request(self) -> dict[str, Any]:
        """The fields that belong to the artifact's request; the protocol must be known."""
        queries = {"sha256": sha256_file(self.file)} if self.file else self.queries
        facts = {"split": self.split or SPLIT, "langs": list(self.langs), "queries": queries}
        return request_of(self, **facts, beta=self.weight, corruption=self.corruption or "drop")


@dataclass(frozen=True)
class EvaluatedSystems:
    """What `ccr evaluate` evaluates, and where and how, in the order of its help."""

    model: str | None = option(
        None,
        "With --zero-shot: a dual encoder (CLIP, SigLIP, ...) instead of a run, by hub name or folder.",
        metavar="NAME_OR_FOLDER",
        show_default=False,
    )
    text_vectors: Path | None = option(
        None,
        "With --zero-shot and --visual-vectors: vectors of the captions by id, made by any model: Parquet, "
        ".safetensors, .npz, HDF5, or .npy with NAME.txt.",
        show_default=False,
    )
    visual_vectors: Path | None = option(
        None, "With --text-vectors: vectors of the items by id, of the same dimension.", show_default=False
    )
    ensemble: bool = option(False, "Evaluate the given runs as one ensemble (mean of their similarities).")
    device: str = "auto"
    name: str | None = None
    force: bool = False

    @property
    def flag(self) -> str:
        """The flag that names a pretrained model or its vectors; empty where runs are evaluated.

        Raises:
            UsageError: If the vectors of one side are missing, or both a model and vectors are named.
        """
        if bool(self.text_vectors) != bool(self.visual_vectors):
            raise UsageError("--text-vectors and --visual-vectors go together: both sides of one model")
        if self.model is not None and self.text_vectors:
            raise UsageError("--model has vectors of its own, so --text-vectors does not go with it")
        return "--model" if self.model is not None else "--text-vectors" if self.text_vectors else ""


@dataclass(frozen=True)
class ComparisonOptions:
    """The options of `ccr compare`."""

    every: bool = option(
        False,
        "Also compare queries in the source language, queries fused with their translations, and the other embeddings "
        "of methods that have several.",
        "--all",
    )
    by: list[str] | None = option(
        None,
        "Compare only systems trained under the same condition: noise, mt (engine), or none (any with any); repeat for "
        "several.",
        show_default="noise, where it differs",
    )


def mixed_ood(ood: str, queries: str) -> UsageError:
    """The error for `--ood` with a data set, whose captions are human, if the queries are not human captions."""
    problem = f"--ood {ood} compares with human captions, and the queries are not: --queries {queries}"
    return UsageError(problem, hint=f"--ood {HALF}")
