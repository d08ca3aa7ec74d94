"""Breakdowns of an evaluation, against the ranks that it keeps and the captions of the data set."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
import toy
from toy import Chain

from ccr_cli.artifacts import dataset, evaluation, translation
from ccr_cli.data.protocols import Protocol
from ccr_cli.metrics.ranks import Positives, matrix_sim, rank_queries
from ccr_cli.stages.evaluate.measure import breakdowns
from ccr_cli.stages.evaluate.targets import Target


def test_groups_are_those_of_the_ranks(chain: Chain) -> None:
    made = chain.find("evaluation", "uml")
    ranks: Any = evaluation.read_ranks(made)
    data = dataset.read(chain.find("dataset"))
    text = dict(zip(data.captions["caption_id"], data.captions["text"], strict=True))
    known = chain.find("translation")
    quality = translation.read(known).merge(translation.read_quality(known), on="caption_id")
    quality = quality[quality["direction"] == "query"].set_index("source_caption_id")
    for number, result in enumerate(evaluation.results(made)):
        rows = ranks[(ranks["result"] == number) & (ranks["direction"] == "t2v")]
        told = result["breakdown"]
        assert told["length"]["unit"] == "words"
        words = rows["query_id"].map(lambda i: len(text[i].split()))
        assert sum(g["queries"] for g in told["length"]["groups"]) == len(rows)
        for group in told["length"]["groups"]:
            mine = rows[words.between(group["low"], group["high"])]
            assert group["queries"] == len(mine) and group["share"] == pytest.approx(len(mine) / len(rows))
            assert group["R@5"] == pytest.approx(100 * (mine["rank"] <= 5).mean())
            assert group["mAP"] == pytest.approx(100 * mine["average_precision"].mean())
        assert ("translation" in told) == (result["lang"] == "es")
        if result["lang"] == "es":
            flagged = rows["query_id"].map(lambda i: bool(quality.loc[i, list(translation.FLAGS)].any()))
            found = told["translation"]
            assert (found["flagged"]["queries"], found["not_flagged"]["queries"]) == (flagged.sum(), (~flagged).sum())
            assert found["not_flagged"]["MedR"] == rows[~flagged]["rank"].median()
            chrf = rows["query_id"].map(quality["reference_chrf"].to_dict())
            for group in found["groups"]:
                assert group["queries"] == chrf.between(group["low"] - 1e-4, group["high"] + 1e-4).sum()


def test_a_query_without_a_translation_is_neither_flagged_nor_not() -> None:
    sim_TV = torch.tensor([[0.9, 0.1], [0.2, 0.8], [0.7, 0.3], [0.6, 0.1]])
    own = Positives.from_lists([[0], [1], [1], [0]])
    ranks = rank_queries(matrix_sim(sim_TV), 4, 2, own)
    queries = pd.DataFrame({"query_id": ["a", "b", "c", "d"], "rank": ranks.rank(), "average_precision": ranks.ap()})
    made = pd.DataFrame({"source_caption_id": ["a", "b", "c"], "direction": "query", "status": ["ok", "ok", "failed"]})
    made = made.assign(text="x", reference_chrf=[50.0, np.nan, 10.0], flagged=[False, True, False])
    nothing: Any = None
    target = Target(nothing, (), made, (("es", "human"),), "none", Protocol("full"), {})
    told = breakdowns(queries, ["x", "x y", "x y z", "x"], "es", target.translated_queries)["translation"]
    assert (told["flagged"]["queries"], told["not_flagged"]["queries"]) == (1, 1)
    assert [(g["low"], g["high"], g["queries"]) for g in told["groups"]] == [(50.0, 50.0, 1)]
    assert told["not_flagged"]["share"] == 0.25


def test_more_is_said_where_it_is_asked_for(chain: Chain) -> None:
    made = chain.find("evaluation", "uml").path
    assert " words: " not in toy.ok("show", made, workspace=chain.root).err
    told = toy.ok("show", made, "-v", workspace=chain.root).err
    assert " words: " in told and "translated, not flagged: " in told and "T2V R@1 " in told
