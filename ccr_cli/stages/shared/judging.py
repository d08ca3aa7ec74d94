"""Judging the training triplets: what a judge reads of them, and how good its opinion is.

Shape suffixes: N triplets, V visual items, D embedding, M shuffled pairs, B a batch.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.nn.functional import embedding_bag, normalize

from ccr_cli.artifacts.diagnosis import THRESHOLD
from ccr_cli.console import say
from ccr_cli.data.dictionary import read_dictionary
from ccr_cli.data.score_file import read_scores
from ccr_cli.data.seeds import derive
from ccr_cli.data.tokens import Tokenizer
from ccr_cli.errors import ArtifactError, UsageError
from ccr_cli.judges.base import Belief, FloatArray, Judge, Opinion
from ccr_cli.judges.config import JudgeConfig
from ccr_cli.losses.masks import negatives_BB
from ccr_cli.methods.base import Method
from ccr_cli.metrics.detection import detection
from ccr_cli.metrics.lexical import Lexicon
from ccr_cli.metrics.margin import crowding, margins
from ccr_cli.metrics.mtscores import sentence_chrf
from ccr_cli.stages.shared.embedding import AT_ONCE, embed_texts, embed_visuals, taken
from ccr_cli.stages.shared.other_translations import parallel_lexicon, witness_lexicon
from ccr_cli.stages.shared.sentences import sentence_vectors
from ccr_cli.stages.shared.triplets import Triplets

SIDES = ("VS", "VT", "ST")
_SHIFTS = (1, 2, 3, 5)
_STRANGERS, _NEAREST, _BLOCK, _PIECE = 500, 2, 4096, 512
_SHUFFLED_TEXTS = 4000


class Kin(NamedTuple):
    """Captions that are believed to show an item."""

    vs_N1: Tensor
    """Weight of each triplet's source caption."""
    vt_N1: Tensor
    """Weight of its translation."""
    total_VD: Tensor
    """Weighted sum of each item's captions."""
    weight_V1: Tensor
    """Sum of their weights."""


@dataclass(frozen=True)
class TripletEmbeddings:
    """The training triplets as a model sees them, in evaluation mode."""

    v_VD: Tensor
    s_ND: Tensor
    t_ND: Tensor
    item_N: Tensor
    kin: Kin | None = None
    """Captions whose mean is added to the picture of the other triplets of their item."""

    def __getitem__(self, rows_B: Tensor | slice) -> Tensor:
        """The visual side of some triplets: their pictures, with the items' other captions if they were added."""
        item_B = self.item_N[rows_B]
        if self.kin is None:
            return self.v_VD[item_B]
        own_BD, weight_B1 = self._captions(self.kin, rows_B)
        out_BD = torch.empty_like(own_BD)
        for first in range(0, len(out_BD), _BLOCK):
            here = slice(first, first + _BLOCK)
            others_BD = self.kin.total_VD[item_B[here]] - own_BD[here]
            weight = (self.kin.weight_V1[item_B[here]] - weight_B1[here]).clamp(min=1)
            out_BD[here] = normalize(self.v_VD[item_B[here]] + others_BD / weight, dim=1)
        return out_BD

    def __len__(self) -> int:
        """N, the number of triplets."""
        return len(self.item_N)

    def end(self, name: str, rows_B: Tensor | slice) -> Tensor:
        """One end (B, D) of some triplets: V, S or T."""
        if name == "V":
            return self[rows_B]
        x_ND = self.s_ND if name == "S" else self.t_ND
        return x_ND[rows_B] if isinstance(rows_B, slice) else taken(x_ND, rows_B)

    def select(self, rows: npt.NDArray[np.int64]) -> "TripletEmbeddings":
        """Some of the triplets, without added captions."""
        at = torch.from_numpy(rows).to(self.item_N.device)
        return TripletEmbeddings(self.v_VD, self.s_ND[at], self.t_ND[at], self.item_N[at])

    def with_kin(self, p: Belief[FloatArray]) -> "TripletEmbeddings":
        """Adds the mean of an item's other captions to its picture, each weighted by the belief in it.

        Captions of one item resemble each other. The mean leaves the triplet's own captions out and is at most as long
        as the picture's vector; an item with one caption stays as it is.
        """
        vs_N1, vt_N1 = (torch.from_numpy(x).to(self.s_ND)[:, None] for x in (p.VS, p.VT))
        kin = Kin(vs_N1, vt_N1, torch.zeros_like(self.v_VD), vs_N1.new_zeros(len(self.v_VD), 1))
        for first in range(0, len(self), AT_ONCE):
            here = slice(first, first + AT_ONCE)
            items_U, of_B = torch.unique(self.item_N[here], return_inverse=True)
            for total, x in zip((kin.total_VD, kin.weight_V1), self._captions(kin, here), strict=True):
                total[items_U] += sum_by_item(x, of_B, len(items_U))
        return replace(self, kin=kin)

    def _captions(self, kin: Kin, rows_B: Tensor | slice) -> tuple[Tensor, Tensor]:
        """Weighted sum (B, D) of the two captions of some triplets, and the sum of the weights (B, 1)."""
        vs_B1, vt_B1 = kin.vs_N1[rows_B], kin.vt_N1[rows_B]
        sum_BD = vs_B1 * self.end("S", rows_B)
        sum_BD += vt_B1 * self.end("T", rows_B)
        return sum_BD, vs_B1 + vt_B1

    @property
    def sides(self) -> dict[str, tuple["Vectors", "Vectors"]]:
        """The two ends of each side, by name (VS, VT, ST); the visual end is computed as it is read."""
        return {"VS": (self, self.s_ND), "VT": (self, self.t_ND), "ST": (self.s_ND, self.t_ND)}

    def similarities(self) -> dict[str, FloatArray]:
        """Cosine similarity of each side."""
        return {name: _cosine(a, b) for name, (a, b) in self.sides.items()}

    def shuffled(self, seed: int) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Rows of pairs of triplets of different items, so that nothing in one can match the other."""
        order_N, differ_M = self._shuffle(seed)
        left_M = np.concatenate([order_N] * len(_SHIFTS))
        right_M = np.concatenate([np.roll(order_N, shift) for shift in _SHIFTS])
        return left_M[differ_M], right_M[differ_M]

    def _shuffle(self, seed: int) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.bool_]]:
        """A random order of the triplets, and whether each is of another item than its partner (M).

        The partner is some places earlier in the order, which is a circle: each of `_SHIFTS`, one after the other.
        """
        order_N = np.random.default_rng(seed).permutation(len(self.item_N))
        items_N = self.item_N.cpu().numpy()[order_N]
        return order_N, np.concatenate([items_N != np.roll(items_N, shift) for shift in _SHIFTS])

    def null(self, seed: int) -> dict[str, FloatArray]:
        """The similarities of shuffled triplets, which are read many at a time because vectors may be in files."""
        order_N, differ_M = self._shuffle(seed)
        size, most = len(order_N), max(_SHIFTS)
        sim = {name: np.empty((len(_SHIFTS), size)) for name in SIDES}
        for first in range(0, size, AT_ONCE):
            last = min(first + AT_ONCE, size)
            rows_B = torch.from_numpy(order_N[np.arange(first - most, last) % size]).to(self.item_N.device)
            for name, sim_KB in self._shifted(rows_B).items():
                sim[name][:, first:last] = sim_KB
        return {name: sim.pop(name).reshape(-1)[differ_M] for name in SIDES}

    def _shifted(self, rows_B: Tensor) -> dict[str, FloatArray]:
        """Similarities of each side between triplets in an order and those `_SHIFTS` places before them.

        The first ones of the order, which have no such partners, are left out.
        """
        vectors, most = {end: self.end(end, rows_B) for end in "VST"}, max(_SHIFTS)
        partner = [slice(most - shift, len(rows_B) - shift) for shift in _SHIFTS]
        return {
            name: np.stack([_cosine(vectors[name[0]][most:], vectors[name[1]][here]) for here in partner])
            for name in SIDES
        }

    def crowding(self, seed: int) -> dict[str, tuple[FloatArray, FloatArray]]:
        """How similar the nearest other items are to each end of VS and VT, as in CSLS (Conneau et al., 2018).

        This is the mean similarity to the nearest few entries in a random sample of other items. A picture shows more
        than a caption tells, and a vague caption is near many pictures, so what a pair has in common shows in its lead
        over other items. A caption and its translation say the same, so S-T needs no such correction.
        """
        order = np.random.default_rng(seed).permutation(len(self.item_N))[:_STRANGERS]
        some = torch.from_numpy(order).to(self.item_N.device)

        def near(a_ND: Vectors, b_ND: Vectors) -> FloatArray:
            parts, others_RD = [], b_ND[some]
            for first in range(0, len(a_ND), _BLOCK):
                here = slice(first, first + _BLOCK)
                sim_BR = a_ND[here] @ others_RD.T
                sim_BR.masked_fill_(self.item_N[here][:, None] == self.item_N[some], -1.0)
                parts.append(sim_BR.topk(min(_NEAREST, len(some)), dim=1).values.mean(dim=1))
            return np.asarray(torch.cat(parts).double().cpu().numpy())

        return {name: (near(a, b), near(b, a)) for name, (a, b) in self.sides.items() if name != "ST"}

    def leads(self, seed: int) -> tuple[FloatArray, FloatArray]:
        """Similarity minus crowding of given (N, 3) and shuffled triplets (M, 3), for the judge `triangle`."""
        given, null, (left, right) = self.similarities(), self.null(seed), self.shuffled(seed)
        for name, (a_N, b_N) in self.crowding(seed).items():
            given[name] -= (a_N + b_N) / 2
            null[name] -= (a_N[left] + b_N[right]) / 2
        return _columns(given), _columns(null)


Vectors = Tensor | TripletEmbeddings
"""A vector per triplet, read some rows at a time."""


def embed_triplets(
    method: Method, triplets: Triplets, tokenizer: Tokenizer, device: torch.device, folder: Path | None = None
) -> TripletEmbeddings:
    """Embeds all training triplets; large tables of text vectors are kept in files of `folder`, if given."""
    return TripletEmbeddings(
        embed_visuals(method, triplets.visual, device, folder=folder),
        embed_texts(method, tokenizer.encode(triplets.source), device, folder=folder),
        embed_texts(method, tokenizer.encode(triplets.target), device, folder=folder),
        triplets.item_N.to(device),
    )


@dataclass(frozen=True)
class TripletReadings:
    """What a judge can read of the triplets (`judges.base.Readings`)."""

    triplets: Triplets
    seed: int
    """Seed of shuffles and batches."""
    embedded: TripletEmbeddings | None
    """None without a model, for a judge that needs none."""
    batch_size: int
    scores: Callable[[Tensor], Tensor]
    """Turns similarities (B, B) into the scores that a judge of a batch reads: `Method.judge_scores`."""
    config: JudgeConfig = field(default_factory=JudgeConfig)
    """Names the files and models that the judge reads too."""
    memory: dict[str, Any] | None = None
    """What the judge keeps from epoch to epoch."""

    def __len__(self) -> int:
        return len(self.triplets) if self.embedded is None else len(self.embedded.item_N)

    @property
    def _embedded(self) -> TripletEmbeddings:
        assert self.embedded is not None, "this judge declared that it needs no model"
        return self.embedded

    def similarities(self) -> dict[str, FloatArray]:
        """Cosine similarity (N,) of each side."""
        return self._embedded.similarities()

    def null(self) -> dict[str, FloatArray]:
        """Cosine similarity (M,) of each side of shuffled triplets."""
        return self._embedded.null(self.seed)

    def leads(self, believed: Belief[FloatArray] | None = None) -> tuple[FloatArray, FloatArray]:
        """Similarities minus crowding of given (N, 3) and shuffled triplets (M, 3)."""
        return (self._embedded if believed is None else self._embedded.with_kin(believed)).leads(self.seed)

    def agreement(self) -> tuple[FloatArray, FloatArray]:
        """Sentence chrF (0 to 100) of every triplet's two captions (N,), and of captions of different items (M,).

        Compares the back-translation with the given source caption; without back-translations, the given translation
        with other translations of that source caption. ArtifactError if there are neither.
        """
        triplets = self.triplets
        if triplets.back is not None:
            texts, references = triplets.back, [tuple([text]) for text in triplets.source]
        elif all(triplets.references):
            texts, references = triplets.target, triplets.references
        else:
            languages = " ".join(f"--lang {lang}" for lang in triplets.langs)
            problem = "the judge translation has no back-translations and no second translation to compare"
            second = "or also name a second engine's translation of the same captions"
            raise ArtifactError(problem, hint=f"ccr translate {languages} --back, {second}")
        left, right = self._strangers(_SHUFFLED_TEXTS)
        null = sentence_chrf([texts[i] for i in right], [references[i] for i in left])
        return sentence_chrf(texts, references), null

    def coverage(self) -> tuple[FloatArray, FloatArray]:
        """Lexical coverage of every triplet's two captions (N,), and of captions of different items (M,).

        The lexicon is learned from the triplets and, since wrong ones are among these, from the shuffled ones too.
        Other translations of the source captions and back-translations make a second lexicon, a dictionary a third;
        the scores are added. Parallel text, if named, replaces the triplets and the back-translations.
        """
        score, number = np.add.reduce(list(self._lexical().values())), len(self.triplets)
        return score[:number], score[number:]

    def _lexical(self) -> dict[str, FloatArray]:
        """The scores of each lexicon, of the triplets and of shuffled ones (N + M)."""
        triplets = self.triplets
        left, right = self._few_strangers()
        source = triplets.source + [triplets.source[i] for i in left]
        target = triplets.target + [triplets.target[i] for i in right]
        if self.config.parallel:
            path = Path(self.config.parallel)
            lexicons = {"parallel text": parallel_lexicon(path, triplets.source, triplets.target)}
        else:
            lexicons = {"words": Lexicon(source, target)}
        if witness := witness_lexicon(triplets.source, triplets.target, self._backs, triplets.references):
            lexicons["words of other translations"] = witness
        if self.config.dictionary:
            lexicons["dictionary"] = Lexicon(source, target, read_dictionary(Path(self.config.dictionary)))
            if lexicons["dictionary"].empty:
                problem = f"no entry of {self.config.dictionary} has words of the captions and of their translations"
                raise UsageError(problem, hint=f"a dictionary of {triplets.langs[0]} is needed")
        return {name: lexicon.scores(source, target) for name, lexicon in lexicons.items()}

    @property
    def _backs(self) -> list[str | None]:
        """The back-translations (N), None where missing; all None if parallel text replaces them."""
        return [None] * len(self.triplets) if self.config.parallel else self.triplets.backs

    def witness_scores(self) -> dict[str, tuple[FloatArray, FloatArray]]:
        """Scores of each available witness, by name, of the triplets (N,) and of the same shuffled ones (M,)."""
        triplets, number = self.triplets, len(self.triplets)
        left, right = self._few_strangers()
        found = {name: (score[:number], score[number:]) for name, score in self._lexical().items()}
        backs = self._backs + [self._backs[i] for i in right]
        sources = triplets.source + [triplets.source[i] for i in left]
        if known := {row: text for row, text in enumerate(backs) if text is not None}:
            chrf = np.full(len(backs), np.nan)
            chrf[list(known)] = sentence_chrf(list(known.values()), [[sources[row]] for row in known])
            found["way back"] = chrf[:number], chrf[number:]
        if self.config.sentence_encoder:
            found["margin"] = self.margin()
        if self.config.scores:
            found["scores"] = self.file_scores(), np.full(len(left), -np.inf)
        for side in ("ST", "VT") if self.embedded else ():
            a_ND, b_ND = self._embedded.sides[side]
            left_M, right_M = (torch.from_numpy(each).to(self._embedded.item_N.device) for each in (left, right))
            found[f"similarity {side}"] = _cosine(a_ND, b_ND), _cosine(a_ND[left_M], b_ND[right_M])
        say(f"fusing: {', '.join(found)}")
        return found

    def margin(self) -> tuple[FloatArray, FloatArray]:
        """Margin of every triplet's two captions (N,), and of captions of different items (M,)."""
        triplets = self.triplets
        if not self.config.sentence_encoder:
            hint = "--set sentence_encoder=sentence-transformers/LaBSE, or the folder of another one"
            raise UsageError("the judge margin needs a sentence encoder", hint=hint)
        s_ND, t_ND = sentence_vectors(self.config.sentence_encoder, triplets.source, triplets.target)
        item_N = triplets.item_N.to(s_ND.device)
        same_S, same_T = (
            torch.from_numpy(np.unique(texts, return_inverse=True)[1]).to(s_ND.device)
            for texts in (triplets.source, triplets.target)
        )
        of_s, of_t = crowding(s_ND, t_ND, item_N, same_T), crowding(t_ND, s_ND, item_N, same_S)
        left, right = self._few_strangers()
        null = _cosine(s_ND[torch.from_numpy(left)], t_ND[torch.from_numpy(right)])
        return margins(_cosine(s_ND, t_ND), of_s, of_t), margins(null, of_s[left], of_t[right])

    def sentence_similarities(self) -> tuple[FloatArray, FloatArray] | None:
        """Cosine similarity of every triplet's two captions (N,), and of captions of different items (M,).

        The sentence encoder is that of the options; None without one.
        """
        if not self.config.sentence_encoder:
            return None
        s_ND, t_ND = sentence_vectors(self.config.sentence_encoder, self.triplets.source, self.triplets.target)
        left, right = map(torch.from_numpy, self._strangers(_SHUFFLED_TEXTS))
        return _cosine(s_ND, t_ND), _cosine(s_ND[left], t_ND[right])

    def file_scores(self) -> FloatArray:
        """Scores (N,) from a file of the source captions in `slot_ids`, NaN where it has none."""
        if not self.config.scores:
            raise UsageError("the judge scores needs a file of scores", hint="--set scores=FILE")
        triplets = self.triplets
        return np.array(read_scores(Path(self.config.scores), triplets.slot_ids, triplets.langs[0]))

    def _few_strangers(self) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Shuffled rows, few enough not to spoil what a lexicon learns."""
        return self._strangers(min(_SHUFFLED_TEXTS, len(self.triplets) // 5))

    def _strangers(self, most: int) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Rows of at most `most` triplets, and for each the row of a triplet of another item."""
        left = np.random.default_rng(self.seed).permutation(len(self.triplets))[:most]
        right, items = np.roll(left, 1), self.triplets.item_N.cpu().numpy()
        differ = items[left] != items[right]
        return left[differ], right[differ]

    def wrong(self) -> dict[str, npt.NDArray[np.bool_]] | None:
        """Which sides (N,) synthetic noise mismatched."""
        table = self.triplets.wrong
        return None if table is None else {s: table[f"{s.lower()}_wrong"].to_numpy(bool) for s in SIDES}

    def batches(self, side: str) -> Iterator[tuple[npt.NDArray[np.int64], Tensor, Tensor]]:
        """Rows, scores and mask of random batches."""
        for rows, one_BD, two_BD, mask_BB in self.ends(side):
            yield rows, self.scores(one_BD @ two_BD.T), mask_BB

    def ends(self, side: str) -> Iterator[tuple[npt.NDArray[np.int64], Tensor, Tensor, Tensor]]:
        """Rows, the vectors of both ends of the side, and mask of random batches.

        A rest of less than a quarter of a batch joins the last one: alone it would have next to no rivals.
        """
        embedded, size = self._embedded, self.batch_size
        order_N = torch.from_numpy(np.random.default_rng(derive(self.seed, "judge")).permutation(len(embedded)))
        cuts = range(size, len(order_N) - max(2, size // 4) + 1, size)
        batches, together = torch.tensor_split(order_N.to(embedded.item_N.device), [*cuts]), max(1, AT_ONCE // size)
        for first in range(0, len(batches), together):  # vectors may be in files
            part = batches[first : first + together]
            ends = (torch.split(embedded.end(name, torch.cat(part)), [*map(len, part)]) for name in side)
            for rows, one_BD, two_BD in zip(part, *ends, strict=True):
                items = embedded.item_N[rows]
                yield rows.cpu().numpy(), one_BD, two_BD, negatives_BB(items, items)


def judge_triplets(
    judge: Judge,
    side: str,
    embedded: TripletEmbeddings | None,
    triplets: Triplets,
    *,
    seed: int,
    batch_size: int = 0,
    scores: Callable[[Tensor], Tensor] = lambda sim_BB: sim_BB,
    config: JudgeConfig | None = None,
    memory: dict[str, Any] | None = None,
) -> Opinion:
    """Judges every triplet; without embeddings, the judge must need no model.

    `side` is cross_lingual, cross_modal or both (`judges.base.believe`); `seed` is that of shuffles and batches. A
    judge of batches reads `batch_size` triplets at a time, and the `scores` of their similarities
    (`Method.judge_scores`). `config` names witnesses to read as well. `memory` is what the judge keeps between epochs,
    separately for each translation.
    """
    parts = triplets.by_translation()
    if len(parts) == 1 or judge.speaks in ("step", "never"):
        readings = TripletReadings(triplets, seed, embedded, batch_size, scores, config or JudgeConfig(), memory)
        return judge.judge(readings, side)
    how: dict[str, Any] = {"seed": seed, "batch_size": batch_size, "scores": scores, "config": config}
    opinions = [
        judge_triplets(
            judge,
            side,
            embedded and embedded.select(rows),
            part,
            **how,
            memory=None if memory is None else memory.setdefault(str(number), {}),
        )
        for number, (rows, part) in enumerate(parts)
    ]
    return _joined(opinions, [rows for rows, _ in parts])


def _joined(parts: Sequence[Opinion], rows: Sequence[npt.NDArray[np.int64]]) -> Opinion:
    """Joins the opinions of each translation into one."""
    order, weights = np.argsort(np.concatenate(rows), kind="stable"), [len(part) for part in rows]
    sides = [np.concatenate([getattr(part.p, side) for part in parts])[order] for side in SIDES]
    kinds = parts[0].shares
    shares = {kind: float(np.average([part.shares[kind] for part in parts], weights=weights)) for kind in kinds}
    return Opinion(Belief(*sides), shares, list(parts))


def columns(opinions: Sequence[Opinion]) -> Belief[FloatArray]:
    """The belief of one opinion (N,), or those of several models (N, models)."""
    if len(opinions) == 1:
        return opinions[0].p
    return Belief(*(np.stack([getattr(each.p, side) for each in opinions], axis=1) for side in SIDES))


def by_model(p: Belief[Tensor]) -> list[Opinion]:
    """Splits what `columns` joined into the opinion of each model."""
    sides = [getattr(p, side).double().cpu().numpy() for side in SIDES]
    parts = zip(*(x.reshape(len(x), -1).T for x in sides), strict=True)
    return [Opinion(Belief(*part)) for part in parts]


def mean_opinion(opinions: Sequence[Opinion]) -> Opinion:
    """The mean opinion of several models, also by translation if these were judged one by one."""
    if len(opinions) == 1:
        return opinions[0]
    p = columns(opinions).map(lambda p_NM: p_NM.mean(axis=1))
    shares = {kind: float(np.mean([each.shares[kind] for each in opinions])) for kind in opinions[0].shares}
    return Opinion(p, shares, [mean_opinion(parts) for parts in zip(*(each.by_lang for each in opinions), strict=True)])


def quality(opinion: Opinion, triplets: Triplets) -> dict[str, Any]:
    """The fraction of pairs called noisy and, with synthetic noise, how well it is detected; also by translation.

    Figures by language are in `langs`; if a language has several translations, `translations` has them by name instead.
    """
    figures: dict[str, Any] = {
        "share_noisy": float((opinion.p.VT < THRESHOLD).mean()),
        "mean_p_clean": float(opinion.p.VT.mean()),
    }
    figures |= {f"wrong_{kind}": share for kind, share in opinion.shares.items()}
    if triplets.wrong is not None:
        figures |= detection(opinion.p.VT, triplets.wrong["vt_wrong"].to_numpy(bool), THRESHOLD)
    parts, names = triplets.by_translation(), triplets.alternative_N
    if len(parts) > 1 or len(triplets.langs) > 1:
        opinions = opinion.by_lang or [opinion.select(rows) for rows, _ in parts]
        figures["langs" if names is None else "translations"] = {
            part.langs[0] if names is None else names[rows[0]]: quality(part_opinion, part)
            for part_opinion, (rows, part) in zip(opinions, parts, strict=True)
        }
    return figures


def sum_by_item(x_ND: Tensor, item_N: Tensor, items: int) -> Tensor:
    """Sums (V, D) of the rows of each item, added in a fixed order, which `index_add_` does not have on a GPU."""
    offsets_V1 = torch.zeros(items + 1, dtype=torch.int64, device=item_N.device)
    torch.cumsum(item_N.bincount(minlength=items), 0, out=offsets_V1[1:])
    return embedding_bag(item_N.argsort(stable=True), x_ND, offsets_V1, mode="sum", include_last_offset=True)


def _columns(scores: dict[str, FloatArray]) -> FloatArray:
    """Moves the scores of each side into a column of one array (N, 3), so that they are never all in memory twice."""
    scores_N3 = np.empty((len(scores[SIDES[0]]), len(SIDES)))
    for column, name in enumerate(SIDES):
        scores_N3[:, column] = scores.pop(name)
    return scores_N3


def _cosine(a_ND: Vectors, b_ND: Vectors) -> FloatArray:
    """Cosine similarity of each row of both, in pieces that fit a processor's cache.

    Results go into one vector, because small ones kept between large ones would fragment the memory.
    """
    sim_N = np.empty(len(a_ND))
    for first in range(0, len(a_ND), _PIECE):
        here = slice(first, first + _PIECE)
        sim_N[here] = (a_ND[here] * b_ND[here]).sum(dim=1).double().cpu().numpy()
    return sim_N
