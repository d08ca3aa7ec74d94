"""The contract of a judge: what every file of this folder defines.

A judge gives the probability that training pairs match. It is one file: the first line of its docstring is its help,
and its ``JUDGE`` is a ``Judge``, whose attributes declare what it can do and whose ``judge`` judges the triplets. Two
kinds that several judges share are defined here:

- ``BatchJudge(clean_probability)``: ``clean_probability(score_BB, mask_BB=None) -> Tensor (B,)``, without gradient. The
  scores are evidence or similarities of one batch, the training pairs on the diagonal; rows and columns are
  the two sides of the pair. ``mask_BB`` is True where an entry takes part (entries of one item do not).
- ``EpochJudge(clean_probability)``: ``clean_probability(score_N, null_M) -> ndarray (N,)``. ``score_N`` holds the
  similarity of each training pair in evaluation mode, ``null_M`` that of randomly shuffled pairs (of different
  items). Scores that are not finite raise ValueError, higher scores never give lower probabilities, and the answer
  depends on the values alone, not on their order.

A judge of another kind derives from ``Judge`` in its own file; no other code has to change.

A pair is presumed to match: where nothing distinguishes the pairs (all scores equal, whatever the null sample; a
tie; no rival) the answer is 1.

Shapes: B pairs in the batch, N training pairs, M pairs of the null sample.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Generic, Literal, Protocol, TypeVar

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from ccr_cli import registry

FloatArray = npt.NDArray[np.float64]
ROUNDING = 1e-5
"""Rounding error of cosines in float32."""
P = TypeVar("P", Tensor, FloatArray)
Q = TypeVar("Q", Tensor, FloatArray)


@dataclass(frozen=True)
class Belief(Generic[P]):
    """Probability (N,) or (B,) that the sides of each triplet match."""

    VS: P
    VT: P
    ST: P

    def map(self, change: Callable[[P], Q]) -> "Belief[Q]":
        """Applies a function to the probabilities of each side."""
        return Belief(change(self.VS), change(self.VT), change(self.ST))

    def tensors(self: "Belief[FloatArray]", device: torch.device, least: float) -> "Belief[Tensor]":
        """Converts the probabilities to float32 on a device, raised to at least `least`."""
        return self.map(lambda p_N: torch.from_numpy(p_N).float().clamp(min=least).to(device))


def believe(side: str, probability: Callable[[str], P], ones: P) -> Belief[P]:
    """Derives the belief in all three sides from those that the judge reads.

    `cross_lingual` reads S-T, gives V-T the same probability and trusts V-S. `cross_modal` reads V-S and V-T
    separately; S-T then matches where both match or neither does (a wrong picture leaves its two captions in
    agreement). `both` reads V-S and S-T; V-T gets the probability of S-T times that of V-S and V-T judged together.

    `probability` is the judge's, for `VS`, `VT`, `ST`, or `both`: V-S and V-T together; `ones` is for trusted pairs.
    """
    if side == "cross_lingual":
        p = probability("ST")
        return Belief(ones, p, p)
    vs = probability("VS")
    if side == "cross_modal":
        vt = probability("VT")
        return Belief(vs, vt, vs * vt + (1 - vs) * (1 - vt))
    st = probability("ST")
    return Belief(vs, st * probability("both"), st)


@dataclass(frozen=True)
class Opinion:
    """A judge's belief in every triplet."""

    p: Belief[FloatArray]
    shares: dict[str, float] = field(default_factory=dict)
    """Share of each kind of error, from a judge that tells them apart."""
    by_lang: "list[Opinion]" = field(default_factory=list)
    """One opinion per translation, if several (by language, or by name) were judged separately."""

    def select(self, rows: npt.NDArray[np.int64]) -> "Opinion":
        """Selects the belief in some of the triplets, by row number."""
        return Opinion(Belief(self.p.VS[rows], self.p.VT[rows], self.p.ST[rows]))


class Readings(Protocol):
    """What a judge can read about the training triplets; sides are `VS`, `VT` and `ST`."""

    def __len__(self) -> int:
        """Number of triplets."""

    def similarities(self) -> Mapping[str, FloatArray]:
        """The model's cosine similarity (N,) of each side."""

    def null(self) -> Mapping[str, FloatArray]:
        """The same for shuffled triplets, (M,)."""

    def batches(self, side: str) -> Iterator[tuple[npt.NDArray[np.int64], Tensor, Tensor]]:
        """Random batches: row numbers (B,), scores (B, B) of a side, and the mask (B, B) of entries that take part."""

    def ends(self, side: str) -> Iterator[tuple[npt.NDArray[np.int64], Tensor, Tensor, Tensor]]:
        """The same batches: row numbers (B,), the vectors (B, D) of both ends of a side, and the mask (B, B)."""

    @property
    def memory(self) -> dict[str, Tensor] | None:
        """State that the judge keeps from epoch to epoch, and may change; None outside of training."""

    def leads(self, believed: Belief[FloatArray] | None = None) -> tuple[FloatArray, FloatArray]:
        """Similarities minus crowding, of the triplets (N, 3) and of shuffled ones (M, 3), see `stages.shared.judging`.

        `believed` adds the mean of an item's other captions to its picture, each weighted by the belief in it.
        """

    def agreement(self) -> tuple[FloatArray, FloatArray]:
        """ChrF (0 to 100) between the captions of the triplets (N,) and of shuffled ones (M,), without any model.

        Raises ArtifactError without back-translations or other translations to compare with.
        """

    def coverage(self) -> tuple[FloatArray, FloatArray]:
        """Lexical coverage (0 at best) of the captions of the triplets (N,) and of shuffled ones (M,); no model."""

    def margin(self) -> tuple[FloatArray, FloatArray]:
        """Margin of the captions of the triplets (N,) and of shuffled ones (M,) by a sentence encoder.

        Raises UsageError if no encoder is named.
        """

    def sentence_similarities(self) -> tuple[FloatArray, FloatArray] | None:
        """Cosine similarity of the captions of the triplets (N,) and of shuffled ones (M,) by it; None without one."""

    def file_scores(self) -> FloatArray:
        """Scores (N,) from a file, NaN where it has no score; raises UsageError if no file is named."""

    def witness_scores(self) -> Mapping[str, tuple[FloatArray, FloatArray]]:
        """Scores by every available witness, of the triplets (N,) and of shuffled ones (M,), the same ones for all.

        NaN where a witness has no score; minus infinity if it cannot score shuffled triplets.
        """

    def wrong(self) -> Mapping[str, npt.NDArray[np.bool_]] | None:
        """Which sides (N,) synthetic noise mismatched; None without synthetic noise."""


class Judge(ABC):
    """A judge, and what it declares about itself."""

    speaks: Literal["never", "step", "epoch", "first", "start"] = "epoch"
    """When it judges for training: `step`, each batch; `epoch`, all triplets after each epoch; `first`, all before the
    first step, with the model as it is then; `start`, all at the start, without a model; or `never`. `step` is only for
    `BatchJudge`. Judges of the other kinds judge each translation separately: those into one language can be nearer to
    their captions than those into another without being right more often."""
    takes_side: bool = False
    """Whether `--judge-side` sets which similarity it reads; other judges choose themselves."""
    mixture: bool = False
    """Whether it fits a mixture of right and wrong pairs, so that its probability is a posterior."""
    compares_texts: bool = False
    """Whether it reads back-translations or a second translation."""
    reads: frozenset[str] = frozenset()
    """The options of `judges.config.JudgeConfig` that it reads."""
    other_translations: bool = False
    """Whether it also reads the workspace's other translations of the captions (`ccr diagnose --witness`)."""
    knows_truth: bool = False
    """Whether it reads the truth about synthetic noise: an upper bound, never a result."""

    @property
    def needs_model(self) -> bool:
        """Whether it reads a model's similarities."""
        return self.speaks != "start"

    @abstractmethod
    def judge(self, readings: Readings, side: str) -> Opinion:
        """Judges all training triplets; `side` is cross_lingual, cross_modal or both, for a judge that takes one."""


class BatchJudge(Judge):
    """Judges each pair against the others of its batch."""

    takes_side = True

    def __init__(self, clean_probability: Callable[..., Tensor], speaks: Literal["never", "step"] = "step") -> None:
        self.clean_probability, self.speaks = clean_probability, speaks

    def judge(self, readings: Readings, side: str) -> Opinion:
        """Judges random batches."""

        def probability(name: str) -> FloatArray:
            p_N = np.ones(len(readings))
            for rows, score_BB, mask_BB in readings.batches("VT" if name == "both" else name):
                p_N[rows] = self.clean_probability(score_BB, mask_BB).double().cpu().numpy()
            return p_N

        return Opinion(believe(side, probability, np.ones(len(readings))))


class EpochJudge(Judge):
    """Judges the similarities of all pairs against those of shuffled pairs."""

    takes_side = True
    mixture = True

    def __init__(self, clean_probability: Callable[..., FloatArray]) -> None:
        self.clean_probability = clean_probability

    def judge(self, readings: Readings, side: str) -> Opinion:
        """Judges all pairs at once."""
        similarities, null = readings.similarities(), readings.null()

        def probability(name: str) -> FloatArray:
            score_N, null_M = (x["VS"] + x["VT"] if name == "both" else x[name] for x in (similarities, null))
            return np.asarray(self.clean_probability(score_N, null_M), dtype=float)

        return Opinion(believe(side, probability, np.ones(len(readings))))


def load_judge(name: str) -> Judge:
    """Loads a judge by its name.

    Raises:
        UsageError: If no judge has that name, or it does not load.
    """
    judge: Judge = registry.load("judges", name).JUDGE
    return judge


def batch_scores(score_BB: Tensor, mask_BB: Tensor | None) -> tuple[Tensor, Tensor]:
    """Checks scores; returns them detached in float32 or better, and the mask of the rivals off the diagonal."""
    score_BB = score_BB.detach()
    if score_BB.ndim != 2 or score_BB.shape[0] != score_BB.shape[1]:
        raise ValueError(f"scores of a batch are a square matrix, not of shape {tuple(score_BB.shape)}")
    if score_BB.dtype in (torch.float16, torch.bfloat16):
        score_BB = score_BB.float()
    off_BB = ~torch.eye(len(score_BB), dtype=torch.bool, device=score_BB.device)
    if mask_BB is None:
        return score_BB, off_BB
    if mask_BB.shape != score_BB.shape or mask_BB.dtype != torch.bool:
        got = f"{mask_BB.dtype} {tuple(mask_BB.shape)}"
        raise ValueError(f"expected a boolean mask of shape {tuple(score_BB.shape)}, not {got}")
    return score_BB, off_BB & mask_BB


def beaten_share_B(score_BB: Tensor, rival_BB: Tensor) -> Tensor:
    """Share of each row's rivals that score strictly higher than the row's own pair; 0 without rivals."""
    higher_BB = rival_BB & (score_BB > score_BB.diagonal()[:, None])
    return higher_BB.sum(dim=1) / rival_BB.sum(dim=1).clamp(min=1)


def epoch_scores(values: npt.ArrayLike, name: str, columns: tuple[int, ...] = ()) -> FloatArray:
    """Copies scores as float64, (N,) or (N, *columns); ValueError if they have another shape or are not finite."""
    array = np.array(values, dtype=np.float64)
    if array.ndim == 0 or array.shape[1:] != columns:
        raise ValueError(f"{name}: expected rows of shape {columns}, not an array of shape {array.shape}")
    if not np.isfinite(array).all():
        bad = np.count_nonzero(~np.isfinite(array))
        raise ValueError(f"{name}: {bad} of {array.size} scores are not finite")
    return array


def all_equal(values: FloatArray) -> bool:
    """Whether the values (at least one) differ by no more than rounding of cosines in float32."""
    return bool(np.ptp(values) <= ROUNDING * max(1.0, float(np.abs(values).max())))


def rising_interval(low: tuple[float, float], high: tuple[float, float]) -> tuple[float, float]:
    """The interval in which the log-odds of the upper of two Gaussians rise with the score.

    Gaussians of unequal width cross twice; beyond the turning point of the log-odds, quadratic in the score, a
    higher score would give a lower probability.

    Each Gaussian is given as mean and standard deviation. At least one end of the interval is infinite.
    """
    (low_mean, low_width), (high_mean, high_width) = low, high
    curvature = low_width**-2 - high_width**-2  # of the log-odds
    if abs(curvature) < 1e-12:
        return -np.inf, np.inf
    turn = float((low_mean * low_width**-2 - high_mean * high_width**-2) / curvature)
    return (turn, np.inf) if curvature > 0 else (-np.inf, turn)
