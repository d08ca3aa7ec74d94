"""What a run on several languages is trained on, and what judges make of it: language by language."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
import toy
from torch.nn.functional import normalize

from ccr_cli import registry
from ccr_cli.artifacts import arrays, dataset, noise
from ccr_cli.artifacts.workspace import Workspace
from ccr_cli.judges.base import load_judge
from ccr_cli.methods import infonce
from ccr_cli.methods.base import Belief
from ccr_cli.metrics.detection import detection
from ccr_cli.stages.shared import judging
from ccr_cli.stages.shared.inputs import Inputs
from ccr_cli.stages.shared.triplets import Triplets
from ccr_cli.stages.train import step
from ccr_cli.stages.train.options import TrainingOptions
from ccr_cli.stages.train.sources import find_sources, with_noise
from ccr_cli.stages.train.training_data import TrainingData


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A workspace with translations into two languages."""
    place = tmp_path_factory.mktemp("material")
    root = place / "workspace"
    toy.ok("data", "import", toy.bilingual().write(place / "toy"), workspace=root)
    toy.ok("translate", "--lang", "es", "--lang", "fr", "--back", workspace=root)
    toy.ok("extract", *toy.ENCODER, workspace=root)
    return root


def material(root: Path, langs: str = "all", folder: Path | None = None, **settings: Any) -> TrainingData:
    """What the run on both languages is trained on."""
    inputs, options = Inputs(Workspace(root)), TrainingOptions(method="infonce", langs=langs, noise=0.4)
    sources = find_sources(inputs, "es+fr", "infonce")
    sources = with_noise(inputs, sources, options)
    config = infonce.Config(batch_size=16, buckets=512, dim=32, dropout=0.0, text_dropout=0.0, **settings)
    return TrainingData(sources, config, options, folder=folder)


def belief(found: TrainingData) -> Belief[torch.Tensor]:
    return found.first_belief.tensors(torch.device("cpu"), 0.0)


@pytest.mark.slow
def test_an_epoch_of_a_draw_has_each_caption_once(root: Path) -> None:
    whole, drawn = material(root), material(root, "draw")
    assert drawn.per_epoch == 48 and whole.per_epoch == len(whole.triplets) == len(drawn.triplets) == 96
    seen = []
    for epoch in (1, 2, 3, 4):
        rows = drawn.order(torch.Generator().manual_seed(epoch), epoch, belief(drawn))
        again = drawn.order(torch.Generator().manual_seed(epoch), epoch, belief(drawn))
        assert torch.equal(rows, again) and len({drawn.triplets.slot_ids[row] for row in rows}) == len(rows) == 48
        langs = drawn.triplets.lang_N[rows.numpy()]
        assert 10 < langs.sum() < 38, "about half of the captions in each"
        seen.append(set(rows.tolist()))
    assert len(set.union(*seen)) > 80 and len({frozenset(rows) for rows in seen}) == 4
    every = whole.order(torch.Generator().manual_seed(1), 1, belief(whole))
    assert sorted(every.tolist()) == list(range(96))


def test_large_tables_of_tokens_are_in_files_without_a_name(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usual = material(root)
    monkeypatch.setattr(arrays, "LARGE", 0)
    found = material(root, folder=tmp_path)
    rows = torch.tensor([5, 0, 95])
    for one, other in ((found.source, usual.source), (found.target, usual.target)):
        assert torch.equal(one.select(rows).ids_N, other.select(rows).ids_N)
        assert torch.equal(one.starts_N, other.starts_N) and torch.equal(one.offsets_B1, other.offsets_B1)
    assert not list(tmp_path.iterdir()) and str(tmp_path) in Path("/proc/self/maps").read_text()


def test_one_mismatch_moves_the_same_captions_in_each_language(root: Path) -> None:
    triplets = material(root).triplets
    (_, spanish), (_, french) = triplets.by_translation()
    assert spanish.langs == ("es",) and french.langs == ("fr",)
    assert spanish.wrong is not None and french.wrong is not None and spanish.wrong["vt_wrong"].sum() == 19
    pd.testing.assert_frame_equal(spanish.wrong, french.wrong)
    given = noise.read(next(iter(Workspace(root).artifacts("noise")))).set_index("slot_id")["given_translation_of"]
    data = dataset.read(next(iter(Workspace(root).artifacts("dataset"))))
    english = data.captions.set_index("caption_id")["text"]
    for part, lang in ((spanish, "es"), (french, "fr")):
        table = toy.bilingual().tables[f"en-{lang}"]
        assert part.target == [table[english[given[slot]]] for slot in part.slot_ids]
        assert part.back == [english[given[slot]] for slot in part.slot_ids]


def test_another_language_of_an_item_is_no_negative(root: Path) -> None:
    m = material(root)
    torch.manual_seed(0)
    method = infonce.Method(m.config, m.triplets.visual.dim, m.text_encoder)
    made = step.Engine(method, m, torch.device("cpu"), TrainingOptions())
    first = m.triplets.item_N == m.triplets.item_N[0]
    own = torch.arange(len(first))[first]
    assert len(own) == 4, "two captions in two languages"
    terms = made.step([own], belief(m), judged=False)
    assert all(float(value) == 0.0 for value in terms.values()), "where all are of one item, there is nothing to learn"
    other = torch.arange(len(first))[~first][:1]
    assert float(made.step([torch.cat([own, other])], belief(m), judged=False)["infonce_vt"]) > 0


def seen(triplets: Triplets) -> judging.TripletEmbeddings:
    """Random vectors in which translations into the second language are far nearer to their captions."""
    generator = torch.Generator().manual_seed(0)
    n = len(triplets)
    v_VD = normalize(torch.randn(len(triplets.item_ids), 16, generator=generator), dim=1)
    s_ND = normalize(v_VD[triplets.item_N] + 0.3 * torch.randn(n, 16, generator=generator), dim=1)
    wrong_N1 = torch.from_numpy(triplets.wrong["vt_wrong"].to_numpy(np.float32))[:, None]  # type: ignore[index]
    near_N1 = torch.from_numpy(np.where(triplets.lang_N == 1, 4.0, 1.0)).float()[:, None]
    t_ND = normalize((1 - wrong_N1) * near_N1 * s_ND + torch.randn(n, 16, generator=generator), dim=1)
    return judging.TripletEmbeddings(v_VD, s_ND, t_ND, triplets.item_N)


@pytest.mark.parametrize("judge", ["gmm", "two-group"])
def test_a_mixture_is_fitted_to_each_language(judge: str, root: Path) -> None:
    triplets = material(root).triplets
    embedded = seen(triplets)
    how: dict[str, Any] = {"seed": 3, "batch_size": 16}
    opinion = judging.judge_triplets(load_judge(judge), "cross_lingual", embedded, triplets, **how)
    fit = registry.load("judges", judge).clean_probability
    s_ND, t_ND = embedded.s_ND.double().numpy(), embedded.t_ND.double().numpy()
    expected = np.empty(len(triplets))
    for number in (0, 1):
        rows = np.flatnonzero(triplets.lang_N == number)
        left, right = embedded.select(rows).shuffled(3)
        null = (s_ND[rows][left] * t_ND[rows][right]).sum(axis=1)
        expected[rows] = fit((s_ND[rows] * t_ND[rows]).sum(axis=1), null)
    np.testing.assert_allclose(opinion.p.ST, expected, atol=1e-4)
    left, right = embedded.shuffled(3)
    together = fit((s_ND * t_ND).sum(axis=1), (s_ND[left] * t_ND[right]).sum(axis=1))
    assert np.abs(together - expected).max() > 0.1, "one fit for both says something else"


def test_a_language_that_lost_all_its_triplets_is_not_asked(root: Path) -> None:
    triplets = material(root).triplets
    embedded, rows = seen(triplets), np.flatnonzero(triplets.lang_N == 1)
    left = triplets.select(rows)
    how: dict[str, Any] = {"seed": 3, "batch_size": 16}
    opinion = judging.judge_triplets(load_judge("two-group"), "cross_lingual", embedded.select(rows), left, **how)
    assert [part.langs for _, part in left.by_translation()] == [("fr",)] and len(opinion.p.VT) == len(rows) == 48
    assert list(judging.quality(opinion, left)["langs"]) == ["fr"]


def test_the_triangle_sees_one_language_after_the_other(root: Path) -> None:
    triplets = material(root).triplets
    embedded = seen(triplets)
    how: dict[str, Any] = {"seed": 3, "batch_size": 16}
    opinion = judging.judge_triplets(load_judge("triangle"), "", embedded, triplets, **how)
    quality = judging.quality(opinion, triplets)
    for number, (rows, part) in enumerate(triplets.by_translation()):
        alone = judging.judge_triplets(load_judge("triangle"), "", embedded.select(rows), part, **how)
        for side in ("VS", "VT", "ST"):
            np.testing.assert_array_equal(getattr(opinion.p, side)[rows], getattr(alone.p, side))
        assert quality["langs"][triplets.langs[number]] == judging.quality(alone, part)
    for what, share in opinion.shares.items():
        mean = np.mean([quality["langs"][lang][f"wrong_{what}"] for lang in ("es", "fr")])
        assert quality[f"wrong_{what}"] == share == pytest.approx(mean)


def test_round_trips_are_compared_language_by_translation(root: Path) -> None:
    triplets = material(root, judge="translation").triplets
    judge = load_judge("translation")
    belief = judging.judge_triplets(judge, "", None, triplets, seed=0).p
    for rows, part in triplets.by_translation():
        np.testing.assert_array_equal(belief.VT[rows], judging.judge_triplets(judge, "", None, part, seed=0).p.VT)
        assert part.wrong is not None and detection(belief.VT[rows], part.wrong["vt_wrong"], 0.5)["auroc"] == 1.0


@pytest.mark.parametrize(
    ("judge", "warmup", "silent"),
    [("mutual", 3, True), ("triangle", 50, True), ("triangle", 2, False), ("oracle", 3, False), ("none", 3, False)],
)
def test_a_judge_that_never_speaks_is_told_of(
    judge: str, warmup: int, silent: bool, root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    material(root, judge=judge, epochs=3, warmup_epochs=warmup)
    said = f"warmup_epochs={warmup} of 3 epochs"
    assert (said in capsys.readouterr().err) is silent
