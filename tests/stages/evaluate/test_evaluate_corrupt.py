"""Corrupted queries beside intact ones, against ranks counted in numpy."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import toy
from toy import Chain

from ccr_cli.artifacts import dataset, evaluation
from ccr_cli.data.splits import items_of
from ccr_cli.metrics.corruption import corrupt_texts, mask_features
from ccr_cli.stages.shared.load_run import load_method
from ccr_cli.stages.shared.triplets import read_visuals

CPU = ("--device", "cpu")


def recall_at_5(chain: Chain, lang: str, how: str) -> float:
    """Of text queries, corrupted by half, by sorting; no ties are expected."""
    data = dataset.read(chain.find("dataset", "toy"))
    visual, ids = read_visuals(chain.find("features"), list(items_of(data.items, "test")["item_id"]), frozenset())
    rows = data.captions[data.captions["item_id"].isin(ids) & (data.captions["lang"] == lang)]
    texts = list(rows["text"])
    if how in ("features", "both"):
        visual = type(visual).single(mask_features(visual.rows_ND, 0.5))
    if how != "features":
        texts = corrupt_texts(texts, 0.5, "drop", lang)
    method, tokenizer = load_method(chain.find("run", "uml"), torch.device("cpu"))
    with torch.no_grad():
        t_TD = method.embed_text(tokenizer.encode(texts).select(torch.arange(len(texts))))
        sim_TV = (t_TD @ method.embed_visual(visual).T).double().numpy()
    own_T = np.array([ids.index(item) for item in rows["item_id"]])
    rank_T = 1 + (sim_TV > sim_TV[np.arange(len(own_T)), own_T][:, None]).sum(axis=1)
    return 100 * float((rank_T <= 5).mean())


@pytest.mark.parametrize("how", ["drop", "features", pytest.param("both", marks=pytest.mark.slow)])
@pytest.mark.slow
def test_corruption_stands_beside_what_is_intact(how: str, finished: Chain) -> None:
    run = finished.find("run", "uml").path
    plain = evaluation.results(toy.ok("evaluate", run, *CPU, workspace=finished.root).made)
    done = toy.ok("evaluate", run, "--corrupt", "0.5", "--corruption", how, *CPU, workspace=finished.root)
    made = done.made
    words = {"drop": "words dropped", "features": "features masked", "both": "words dropped and features masked"}[how]
    sentence = done.err.splitlines()[0]
    assert sentence.startswith(f"toy es, 50% of {words}: SumR ") and "mean uncertainty " in sentence
    assert "data:toy" not in done.err and "data:toy" in toy.ok("show", made.path, "-v", workspace=finished.root).err
    ranks, everything = evaluation.read_ranks(made), evaluation.results(made)
    intact, worse = (
        [r for r in everything if r["fusion"] == "none" and ("corrupt" in r) is which] for which in (False, True)
    )
    assert [r["lang"] for r in intact] == [r["lang"] for r in worse] == ["es", "en"]
    for one, other in zip(intact, worse, strict=True):
        same = next(r for r in plain if r["signature"] == one["signature"])
        assert {key: one[key] for key in same} == same
        assert other["signature"].protocol == f"full-corrupt-{how}0.5-seed0"
        assert other["t2v"]["R@5"] == pytest.approx(recall_at_5(finished, other["lang"], how))
        for result in (one, other):
            for side in ("t2v", "v2t"):
                mine = ranks[(ranks["result"] == everything.index(result)) & (ranks["direction"] == side)]
                assert result["uncertainty"][side] == pytest.approx(mine["uncertainty"].mean())
        for side in ("t2v", "v2t"):
            rows = ranks[ranks["direction"] == side]
            before, after = (rows.loc[rows["result"] == everything.index(r), "uncertainty"] for r in (one, other))
            told = other["told_apart"][side]
            assert told["means"] == pytest.approx([before.mean(), after.mean()])
            assert told["auroc"] == pytest.approx(
                np.mean([(b > a) + 0.5 * (a == b) for a in before for b in after]), abs=1e-9
            )
            assert told["rise"][0] <= after.mean() - before.mean() <= told["rise"][1]
            assert set(told["trivial"]) == {"top similarity", "margin"}
        assert "told_apart" not in one


def test_wrong_shares_are_refused(finished: Chain) -> None:
    run = finished.find("run", "uml").path
    done = finished.ccr("evaluate", run, "--corrupt", "30")
    assert done.code == 2 and "--corrupt 30" in done.err
    assert "try: --corrupt 0.3 is 30 %" in done.err
    done = finished.ccr("evaluate", run, "--corrupt", "1")
    assert done.code == 2 and "--corrupt 1 " in done.err
    done = finished.ccr("evaluate", run, "--corrupt", "0.3", "--corruption", "burn")
    assert done.code == 2 and "shuffle" in done.err and "'burn'" in done.err
    done = finished.ccr("evaluate", finished.find("run", "uml").path, "--corruption", "shuffle")
    assert done.code == 2 and "--corruption shuffle" in done.err
