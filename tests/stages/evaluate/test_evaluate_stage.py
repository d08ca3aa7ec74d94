"""Evaluation against ranks counted in numpy, and what every score says of itself.

Shape suffixes: V visual items, T texts, D embedding.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
import toy
from toy import Chain

from ccr_cli.artifacts import base, dataset, evaluation, run, translation
from ccr_cli.artifacts.signature import KEYS
from ccr_cli.data.splits import items_of
from ccr_cli.methods import infonce
from ccr_cli.metrics.calibration import calibration
from ccr_cli.metrics.ranks import TIES, Positives, matrix_sim, rank_both
from ccr_cli.nets.text import build_text_encoder
from ccr_cli.stages.evaluate.uncertainty import QUERY_BLOCK, query_uncertainty
from ccr_cli.stages.shared.load_run import load_method
from ccr_cli.stages.shared.triplets import read_visuals

Array = npt.NDArray[np.float64]
CPU = ("--device", "cpu")
SIGNATURE = "data|split|lang|caption_set|q|gallery|dir|protocol|pos|ties|sim|fusion|mt|noise|unc|select|leak|ccr"


@dataclass
class Model:
    """A run with its parents, as vectors in float64."""

    chain: Chain
    artifact: base.Artifact

    @cached_property
    def data(self) -> dataset.Dataset:
        return dataset.read(self.chain.find("dataset", "toy"))

    def texts(self, texts: list[str]) -> Array:
        method, tokenizer = load_method(self.artifact, torch.device("cpu"))
        with torch.no_grad():
            return method.embed_text(tokenizer.encode(texts).select(torch.arange(len(texts)))).double().numpy()

    def items(self, split: str) -> tuple[list[str], Array]:
        wanted = list(items_of(self.data.items, split)["item_id"])
        visual, ids = read_visuals(self.chain.find("features"), wanted, frozenset())
        method, _ = load_method(self.artifact, torch.device("cpu"))
        with torch.no_grad():
            return ids, method.embed_visual(visual).double().numpy()

    def captions(self, lang: str, items: list[str]) -> tuple[list[str], list[str], list[str]]:
        """Ids, items and texts of the human captions of some items."""
        rows = self.data.captions[self.data.captions["item_id"].isin(items) & (self.data.captions["lang"] == lang)]
        return list(rows["caption_id"]), list(rows["item_id"]), list(rows["text"])


def counted(sim_VT: Array, match_VT: npt.NDArray[np.bool_]) -> dict[str, Any]:
    """Figures of the rows as queries, by sorting each row."""
    ranks, precisions = [], []
    for sim_T, match_T in zip(sim_VT, match_VT, strict=True):
        assert len(set(sim_T)) == len(sim_T), "this reference knows no ties"
        places = np.flatnonzero(match_T[np.argsort(-sim_T)]) + 1
        ranks.append(int(places[0]))
        precisions.append(float(np.mean([(n + 1) / place for n, place in enumerate(places)])))
    found: dict[str, Any] = {f"R@{k}": 100 * float(np.mean([rank <= k for rank in ranks])) for k in (1, 5, 10)}
    found |= {"MedR": float(np.median(ranks)), "MeanR": float(np.mean(ranks)), "mAP": 100 * float(np.mean(precisions))}
    return found | {"ranks": ranks}


def assert_same(result: dict[str, Any], v_VD: Array, t_TD: Array, match_VT: npt.NDArray[np.bool_], more: Any) -> None:
    """Compares both directions with the counted figures; `more` is added to the similarities."""
    sim_VT = v_VD @ t_TD.T if more is None else 0.8 * (v_VD @ t_TD.T) + 0.2 * (v_VD @ more.T)
    wanted = {"v2t": counted(sim_VT, match_VT), "t2v": counted(sim_VT.T, match_VT.T)}
    for direction, figures in wanted.items():
        for name in ("R@1", "R@5", "R@10", "MedR", "MeanR", "mAP"):
            assert result[direction][name] == pytest.approx(figures[name]), (direction, name)
        assert result[direction]["queries"] == len(figures["ranks"])
    assert result["SumR"] == pytest.approx(sum(w[f"R@{k}"] for w in wanted.values() for k in (1, 5, 10)))


def evaluate(chain: Chain, word: str, *options: str) -> base.Artifact:
    return toy.ok("evaluate", chain.find("run", word).path, *options, *CPU, workspace=chain.root).made


def results(chain: Chain, word: str, *options: str) -> list[dict[str, Any]]:
    return evaluation.results(evaluate(chain, word, *options))


@pytest.mark.parametrize("method", ["uml", "infonce"])
def test_figures_are_those_of_numpy(method: str, chain: Chain) -> None:
    model = Model(chain, chain.find("run", method))
    found = results(chain, method)
    ranks = evaluation.read_ranks(chain.find("evaluation", method))
    ids, v_VD = model.items("test")
    human = {lang: model.captions(lang, ids) for lang in ("es", "en")}
    forms = [(r["lang"], r["fusion"]) for r in found]
    assert forms == [("es", "none"), ("es", "0.8raw"), ("en", "none")]
    queries = translation.read(chain.find("translation"))
    english = dict(zip(queries["source_caption_id"], queries["text"], strict=True))
    for number, (lang, fusion) in enumerate(forms):
        captions, owners, texts = human[lang]
        match_VT = np.array([[item == owner for owner in owners] for item in ids])
        more = None if fusion == "none" else model.texts([english[c] for c in captions])
        t_TD = model.texts(texts)
        assert_same(found[number], v_VD, t_TD, match_VT, more)
        if more is None:
            table = ranks[(ranks["result"] == number) & (ranks["direction"] == "t2v")]
            assert list(table["query_id"]) == captions
            assert table["rank"].to_list() == counted(t_TD @ v_VD.T, match_VT.T)["ranks"]


def test_the_weights_are_those_of_the_best_epoch_on_val_select(chain: Chain) -> None:
    """Recomputed from the weights: the queries are machine translations, the items one half of validation."""
    model = Model(chain, chain.find("run", "uml"))
    history = run.history(model.artifact)
    best: Any = history.iloc[int(np.argmax(history["val.SumR"]))]
    assert model.artifact.counts["best_epoch"] == best["epoch"]
    assert history.loc[history["best"], "epoch"].max() == best["epoch"]
    ids, v_VD = model.items("val-select")
    assert 0 < len(ids) < len(items_of(model.data.items, "val"))
    machine = translation.read(chain.find("translation"))
    chosen = machine[(machine["direction"] == "forward") & machine["item_id"].isin(ids)]
    match_VT = np.array([[item == owner for owner in chosen["item_id"]] for item in ids])
    figures = {f"{d}.{k}": best[f"val.{d}.{k}"] for d in ("t2v", "v2t") for k in ("R@1", "R@5", "R@10", "MedR", "mAP")}
    sim_VT = v_VD @ model.texts(list(chosen["text"])).T
    wanted = {"v2t": counted(sim_VT, match_VT), "t2v": counted(sim_VT.T, match_VT.T)}
    assert figures == pytest.approx({name: wanted[name[:3]][name[4:]] for name in figures})


@pytest.mark.parametrize("options", [(), ("--lang", "es"), ("--lang", "en")])
def test_the_source_language_is_always_beside(options: tuple[str, ...], finished: Chain) -> None:
    found = results(finished, "infonce", *options)
    assert [r["lang"] for r in found if r["role"] == "source"] == ["en"]
    assert {r["lang"] for r in found} == ({"en"} if "en" in options else {"es", "en"})


def test_signatures_are_complete(chain: Chain) -> None:
    assert "|".join(KEYS) == SIGNATURE
    for method, noise in (("uml", "caption-translation-0.4-seed0"), ("infonce", "none")):
        for result in results(chain, method):
            fields = result["signature"].fields
            assert "|".join(part.split(":")[0] for part in str(result["signature"]).split("|")) == SIGNATURE
            data = chain.find("dataset")
            expected = {
                "data": f"toy@{data.id[:8]}",
                "split": "test",
                "lang": result["lang"],
                "caption_set": "main",
                "q": "24" if result["lang"] == "en" else "12",
                "gallery": "12",
                "fusion": result["fusion"],
                "mt": "recorded:hand",
                "noise": noise,
                "unc": {"uml": "top2", "infonce": "softmax"}[method] if result["fusion"] == "none" else "none",
                "leak": "own-split",
                "select": "mt",
            }
            assert {key: fields[key] for key in expected} == expected


def test_uncertainty_of_every_query_but_fused_ones(chain: Chain) -> None:
    for method in ("uml", "infonce"):
        ranks = evaluation.read_ranks(chain.find("evaluation", method))
        plain = [n for n, r in enumerate(results(chain, method)) if r["fusion"] == "none"]
        values = ranks.loc[ranks["result"].isin(plain), "uncertainty"]
        assert values.between(0, 1).all()
        assert ranks.loc[~ranks["result"].isin(plain), "uncertainty"].isna().all()


def test_trivial_uncertainties_stand_beside_and_the_verdict_is_said(chain: Chain) -> None:
    for method, said in (("uml", "uncertainty 0."), ("infonce", "softmax at temperature 0.")):
        done = toy.ok("evaluate", chain.find("run", method).path, "--force", "-v", *CPU, workspace=chain.root)
        for result in evaluation.results(done.made):
            if result["fusion"] == "none":
                trivial = result["calibration"]["t2v"]["trivial"]
                assert list(trivial) == ["top similarity", "margin", *["softmax"] * (method == "uml")]
                assert all("gaps" in each for each in trivial.values())
                assert len(result["temperature"]) == 1
            else:
                assert result["calibration"] is None
        assert f"AUROC: {said}" in done.err and "beaten:" in done.err


@pytest.mark.slow
def test_a_source_language_without_the_caption_set_stands_beside_with_its_own(tmp_path: Path) -> None:
    """Spanish test captions are of two sets, `human` and `more`; English ones are all of `main`."""
    root = tmp_path / "ws"
    for name in ("toy", "other"):
        folder = toy.toy(name)
        if name == "other":
            folder.extra = ""
        spanish = [caption for caption in folder.captions if caption[2] == "es"]
        more = [[f"{c[0]}-more", c[1], "es", "1", f"{c[4]} otra vez", "more"] for c in spanish]
        for caption in spanish:
            caption[5] = "human"
        folder.captions += more
        made = toy.ok("data", "import", folder.write(tmp_path / name), workspace=root).made
        toy.ok("extract", made.path, *toy.ENCODER, workspace=root)
    toy.ok("translate", root / "datasets/toy", "--lang", "es", workspace=root)
    trained = toy.ok("train", "--method", "infonce", "--epochs", "1", *toy.SMALL, workspace=root).made

    def of(*options: str) -> list[tuple[str, str, int]]:
        done = toy.ok("evaluate", trained.path, *options, *CPU, workspace=root)
        told = "en has no captions of the set 'human'" in done.err
        assert told == ("human" in options)
        found = evaluation.results(done.made)
        return [(r["lang"], r["signature"].caption_set, r["t2v"]["queries"]) for r in found]

    assert of("--caption-set", "human") == [("es", "human", 12), ("en", "main", 24)]
    assert of() == [("es", "human+more", 24), ("en", "main", 24)]
    assert of("--caption-set", "main", "--lang", "en") == [("en", "main", 24)]
    assert of("--zero-shot", "--caption-set", "human") == [("es", "human", 12), ("en", "main", 24)]
    assert of("--zero-shot", "--caption-set", "main") == [("en", "main", 24)]
    for options in (("human", "--lang", "en"), ("none",), ("none", "--zero-shot")):
        done = toy.ccr("evaluate", trained.path, "--caption-set", *options, *CPU, workspace=root)
        assert (done.code, done.out) == (4, "") and f"captions of the set '{options[0]}'" in done.err
        there = {"none": "human or more", "none --zero-shot": "human or main or more"}.get(" ".join(options), "main")
        assert f"try: --caption-set {there}" in done.err


@pytest.mark.parametrize("fusion", ["raw", "minmax"])
def test_fusion_with_beta_1_is_the_target_alone(fusion: str, finished: Chain) -> None:
    made = evaluate(finished, "uml", "--fusion-weight", "1", "--fusion", fusion)
    plain, fused, _ = evaluation.results(made)
    assert (plain["lang"], fused["lang"], fused["fusion"]) == ("es", "es", f"1{fusion}")
    for key in ("t2v", "v2t", "SumR", "intervals"):
        assert fused[key] == plain[key]
    ranks = evaluation.read_ranks(made).drop(columns="uncertainty")
    first, second = (ranks[ranks["result"] == n].drop(columns="result").reset_index(drop=True) for n in (0, 1))
    assert first.equals(second)


@pytest.mark.parametrize("options", [("--queries", "mt"), ("--lang", "en"), ("--task", "text"), ("--split", "train")])
@pytest.mark.parametrize("fusion", [("--fusion-weight", "0.5"), ("--fusion", "minmax")])
def test_fusion_of_queries_that_nothing_is_fused_with_is_refused(
    options: tuple[str, str], fusion: tuple[str, str], chain: Chain
) -> None:
    run = chain.find("run", "uml").path
    assert chain.ccr("evaluate", run, *options, "--dry-run").code == 0
    done = chain.ccr("evaluate", run, *options, *fusion, "--dry-run")
    assert (done.code, done.out) == (2, "") and f"{' '.join(fusion)} has no effect" in done.err
    assert "leave it out" in done.err


@pytest.mark.slow
def test_a_query_without_translation_stands_alone(tmp_path: Path) -> None:
    """One of the twelve Spanish test queries cannot be translated; the others are fused as ever."""
    folder = toy.toy()
    tested = {item[0] for item in folder.items if item[1] == "test"}
    missing = next(caption for caption in folder.captions if caption[2] == "es" and caption[1] in tested)
    del folder.tables["es-en"][missing[4]]
    root = tmp_path / "ws"
    toy.ok("data", "import", folder.write(tmp_path / "toy"), workspace=root)
    done = toy.ccr("translate", "--lang", "es", "--with-queries", workspace=root)
    assert done.code == 3, done.err
    toy.ok("extract", *toy.ENCODER, workspace=root)
    toy.ok("train", "--method", "infonce", "--epochs", "2", *toy.SMALL, workspace=root)
    done = toy.ok("evaluate", *CPU, workspace=root)
    assert "1 of 12 es queries have no translation" in done.err
    plain, fused, _ = evaluation.results(done.made)
    assert (plain["fusion"], fused["fusion"]) == ("none", "0.8raw")
    assert fused["signature"].fusion == "0.8raw-1alone"
    chain = Chain(tmp_path / "toy", root)
    model = Model(chain, chain.find("run"))
    ids, v_VD = model.items("test")
    captions, owners, texts = model.captions("es", ids)
    queries = translation.read(chain.find("translation"))
    english = dict(zip(queries["source_caption_id"], queries["text"], strict=True))
    assert [c for c in captions if not english.get(c)] == [missing[0]]
    stand_in = [english.get(c) or text for c, text in zip(captions, texts, strict=True)]
    match_VT = np.array([[item == owner for owner in owners] for item in ids])
    assert_same(fused, v_VD, model.texts(texts), match_VT, model.texts(stand_in))
    ranks: Any = evaluation.read_ranks(done.made)
    mine = ranks[(ranks["query_id"] == missing[0]) & ranks["result"].isin([0, 1])]
    assert mine["rank"].nunique() == 1 and len(mine) == 2


@pytest.mark.parametrize("tie", TIES)
def test_calibration_follows_the_tie_rule(tie: str) -> None:
    """Every query ties with one competitor: a failure under two of the three rules."""
    both = rank_both(matrix_sim(torch.ones(2, 2)), 2, 2, Positives.from_lists([[0], [1]]))
    failing = 0.0 if tie == "optimistic" else 1.0
    for ranks in both:
        found = calibration(np.array([0.1, 0.2]), ranks.rank(tie))
        assert found["aurc_random"] == failing and set(found["curve"]["risk"]) == {failing}


def test_a_method_without_uncertainty_is_asked_once() -> None:
    asked = []

    class Plain(infonce.Method):
        def score(self, query_QD: torch.Tensor, gallery_GD: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor | None]:
            asked.append(len(query_QD))
            return super().score(query_QD, gallery_GD)

    method = Plain(infonce.Config(dim=4), 3, build_text_encoder("ngram", buckets=8, dim=4))
    assert query_uncertainty(method, torch.ones(3 * QUERY_BLOCK, 4), torch.ones(5, 4)) is None
    assert asked == [QUERY_BLOCK]


def test_the_interval_is_that_of_a_thousand_resamples(chain: Chain) -> None:
    """Drawn anew from the ranks that were written."""
    ranks: Any = evaluation.read_ranks(chain.find("evaluation", "uml"))
    data = dataset.read(chain.find("dataset"))
    owner = dict(zip(data.captions["caption_id"], data.captions["item_id"], strict=True))
    first = results(chain, "uml")[0]
    sides = [ranks[(ranks["result"] == 0) & (ranks["direction"] == d)] for d in ("t2v", "v2t")]
    items = list(sides[1]["query_id"])
    groups = [np.array([items.index(owner[c]) for c in sides[0]["query_id"]]), np.arange(len(items))]
    rank = [side["rank"].to_numpy() for side in sides]
    rng = np.random.default_rng(0)
    values = []
    for _ in range(1000):
        drawn = np.bincount(rng.integers(0, len(items), len(items)), minlength=len(items))
        shares = [[np.average(r <= k, weights=drawn[g]) for k in (1, 5, 10)] for r, g in zip(rank, groups, strict=True)]
        values.append(100 * float(np.sum(shares)))
    assert first["intervals"]["SumR"] == pytest.approx(list(np.percentile(values, [2.5, 97.5])))


def test_of_several_runs_each_is_named_before_its_figures(finished: Chain) -> None:
    runs = [finished.find("run", word) for word in ("uml", "infonce")]
    done = toy.ok("evaluate", *(each.path for each in runs), *CPU, workspace=finished.root)
    at = [done.err.index(f"{each.name}:\n") for each in runs]
    assert len(at) == 2 and sorted(at) == at and at[0] < done.err.index("SumR") < at[1]
    assert f"{runs[0].name}:\n" not in toy.ok("evaluate", runs[0].path, *CPU, workspace=finished.root).err


@pytest.mark.parametrize(("split", "leak"), [("val", "selected-on"), ("val-select", "selected-on")])
def test_what_chose_the_epoch_is_said(split: str, leak: str, finished: Chain) -> None:
    for result in results(finished, "uml", "--split", split):
        assert result["signature"].leak == leak


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--fusion-weight", "1.5"), "not 1.5"),
        (("--ties", "none"), "not 'none'"),
        (("--fusion", "max"), "not 'max'"),
        (("--split", "dev"), "splits: train, val, test"),
    ],
)
def test_wrong_options(options: tuple[str, str], message: str, chain: Chain) -> None:
    done = chain.ccr("evaluate", chain.find("run", "uml").path, *options, *CPU)
    assert (done.code, done.out) == (2, "") and message in done.err


@pytest.mark.usefixtures("unillustrated")
@pytest.mark.parametrize(
    ("select", "mark"), [("human", "infonce [select=human]"), pytest.param("mt", "infonce", marks=pytest.mark.slow)]
)
def test_a_run_that_human_queries_chose_is_marked(select: str, mark: str, workspace: Chain) -> None:
    asked = () if select == "mt" else ("--select-on", select)
    done = toy.ok("train", "--method", "infonce", "--epochs", "2", *asked, *toy.SMALL, workspace=workspace.root)
    config = run.config(done.made)
    assert config["select"] == select
    made = toy.ok("evaluate", done.made.path, *CPU, workspace=workspace.root).made
    assert {r["signature"].select for r in evaluation.results(made)} == {select}
    report = toy.ok("report", made.path, workspace=workspace.root).made
    tables = [f.path for f in report.files if f.path.startswith("tables/") and f.path.endswith(".csv")]
    told = [report.file(path).read_text(encoding="utf-8") for path in tables]
    named = [text for text in told if "infonce" in text]
    assert named and all((mark in text) and ("select=human" in text) == (select == "human") for text in named)
    assert f"{mark} reaches" in report.file("report.html").read_text(encoding="utf-8")


@pytest.mark.slow
def test_human_queries_in_the_source_language_are_no_more_than_is_allowed(workspace: Chain) -> None:
    """Without a translation the queries that choose are captions of the language that is trained on."""
    options = ("--method", "source-only", "--lang", "en", "--epochs", "1", *toy.SMALL)
    done = toy.ok("train", *options, workspace=workspace.root)
    made = toy.ok("evaluate", done.made.path, *CPU, workspace=workspace.root).made
    (result,) = evaluation.results(made)
    told = result["signature"].fields
    assert (told["select"], told["mt"]) == ("human", "none")
    page = toy.ok("report", made.path, workspace=workspace.root).made.file("report.html").read_text(encoding="utf-8")
    assert "source-only" in page and "select=human" not in page


def test_no_more_similarities_are_held_than_are_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A large gallery is asked by fewer queries together, and says the same of each."""
    from ccr_cli.methods import uml
    from ccr_cli.stages.evaluate import uncertainty

    asked = []

    class Watched(uml.Method):
        def score(self, query_QD: torch.Tensor, gallery_GD: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor | None]:
            asked.append(len(query_QD) * len(gallery_GD))
            return super().score(query_QD, gallery_GD)

    method = Watched(uml.Config(dim=4), 3, build_text_encoder("ngram", buckets=8, dim=4))
    queries, gallery = (torch.randn(n, 4, generator=torch.Generator().manual_seed(n)) for n in (50, 30))
    whole = uncertainty.query_uncertainty(method, queries, gallery)
    monkeypatch.setattr(uncertainty, "LARGEST", 100)
    parts = uncertainty.query_uncertainty(method, queries, gallery)
    assert whole is not None and parts is not None
    np.testing.assert_allclose(parts, whole, rtol=1e-6)
    assert asked[0] == 1500 and max(asked[1:]) <= 100
