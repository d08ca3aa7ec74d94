"""Sentences that search their translations, against ranks by sorting; and which pairs are taken.

Shape suffixes: T sentences of the target language, S of the source, D embedding.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
import toy
from toy import Chain

from ccr_cli.artifacts import dataset, evaluation, translation
from ccr_cli.data.protocols import Protocol
from ccr_cli.stages.evaluate.measure import pairs_of
from ccr_cli.stages.evaluate.targets import Target
from ccr_cli.stages.shared.load_run import load_method
from ccr_cli.stages.shared.splits import Split

CPU = ("--device", "cpu")


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Chain:
    """A run on data whose test items have two Spanish captions each; read only."""
    folder = toy.toy()
    for item in folder.items:
        if item[1] == "test":
            colour, shape = item[0].split("-")
            text = f"se ve un {toy.SHAPES[shape]} de color {toy.COLOURS[colour]}"
            folder.captions.append([f"{item[0]}-es1", item[0], "es", "1", text, "main"])
            folder.tables["es-en"][text] = f"a {colour} {shape} can be seen"
    path = tmp_path_factory.mktemp("two")
    chain = Chain(path / "toy", path / "ws")
    toy.ok("data", "import", folder.write(chain.folder), workspace=chain.root)
    toy.ok("translate", "--lang", "es", "--with-queries", workspace=chain.root)
    toy.ok("extract", *toy.ENCODER, workspace=chain.root)
    toy.ok("train", "--method", "infonce", "--epochs", "2", *toy.SMALL, workspace=chain.root)
    return chain


def embedded(chain: Chain, texts: list[str]) -> np.ndarray:
    method, tokenizer = load_method(chain.find("run"), torch.device("cpu"))
    with torch.no_grad():
        return np.asarray(method.embed_text(tokenizer.encode(texts).select(torch.arange(len(texts)))).double())


def counted(sim_QG: np.ndarray, right_QG: np.ndarray) -> dict[str, Any]:
    ranks, precisions = [], []
    for sim_G, right_G in zip(sim_QG, right_QG, strict=True):
        assert len(set(sim_G)) == len(sim_G), "this reference knows no ties"
        places = np.flatnonzero(right_G[np.argsort(-sim_G)]) + 1
        ranks.append(int(places[0]))
        precisions.append(float(np.mean([(n + 1) / place for n, place in enumerate(places)])))
    found: dict[str, Any] = {f"R@{k}": 100 * float(np.mean([rank <= k for rank in ranks])) for k in (1, 5, 10)}
    return found | {"MedR": float(np.median(ranks)), "mAP": 100 * float(np.mean(precisions)), "ranks": ranks}


def test_figures_are_those_of_sorted_sentences(two: Chain) -> None:
    done = toy.ok("evaluate", "--task", "text", *CPU, workspace=two.root)
    by_caption, by_item = evaluation.results(done.made)
    frame = translation.read(two.find("translation"))
    data = dataset.read(two.find("dataset"))
    tested = set(data.items.loc[data.items["split"] == "test", "item_id"])
    asked = data.captions[(data.captions["lang"] == "es") & data.captions["item_id"].isin(tested)]
    english = dict(zip(frame["source_caption_id"], frame["text"], strict=True))
    sim_TS = embedded(two, list(asked["text"])) @ embedded(two, [english[c] for c in asked["caption_id"]]).T
    items = asked["item_id"].to_numpy()
    assert len(items) == 24
    ranks = evaluation.read_ranks(done.made)
    for number, (result, right_TS) in enumerate(
        ((by_caption, np.eye(24, dtype=bool)), (by_item, items[:, None] == items[None]))
    ):
        for direction, sim, right in (("t2v", sim_TS, right_TS), ("v2t", sim_TS.T, right_TS.T)):
            expected = counted(sim, right)
            found = {key: result[direction][key] for key in ("R@1", "R@5", "R@10", "MedR", "mAP")}
            assert found == pytest.approx({key: expected[key] for key in found}), (number, direction)
            table = ranks[(ranks["result"] == number) & (ranks["direction"] == direction)]
            assert table["rank"].tolist() == expected["ranks"] and table["item_id"].tolist() == list(items)
        low, high = result["intervals"]["SumR"]
        assert low <= result["SumR"] <= high
    assert by_item["t2v"]["R@1"] >= by_caption["t2v"]["R@1"]


def test_the_interval_draws_items_with_all_their_sentences(two: Chain) -> None:
    made = toy.ok("evaluate", "--task", "text", *CPU, workspace=two.root).made
    ranks = evaluation.read_ranks(made)
    mine = ranks[(ranks["result"] == 1) & (ranks["direction"] == "t2v")]
    code = np.unique(mine["item_id"], return_inverse=True)[1]
    total_I = np.bincount(code, weights=mine["average_precision"])
    drawn = np.random.default_rng(0).integers(0, 12, (1000, 12))
    expected = np.percentile(100 * total_I[drawn].sum(axis=1) / 24, [2.5, 97.5])
    assert evaluation.results(made)[1]["intervals"]["t2v"]["mAP"] == pytest.approx(list(expected))


@pytest.mark.slow
def test_the_signature_says_so_and_the_visual_evaluation_is_another(two: Chain) -> None:
    text = toy.ok("evaluate", "--task", "text", *CPU, workspace=two.root)
    plain = toy.ok("evaluate", *CPU, workspace=two.root)
    assert text.made.id != plain.made.id and text.made.name.startswith(f"{two.find('run').name}-text-")
    fields = [result["signature"].fields for result in evaluation.results(text.made)]
    assert [each["pos"] for each in fields] == ["caption", "item"]
    for each in fields:
        told = {key: each[key] for key in ("protocol", "dir", "q", "gallery", "lang", "fusion", "unc")}
        values = ("text-query-mt", "t2s+s2t", "24", "24", "es", "none", "none")
        assert told == dict(zip(told, values, strict=True))
    assert "toy es, sentences by caption: SumR" in text.err and "T2S R@1" in text.err and "S2T R@1" in text.err
    report = toy.ok("report", workspace=two.root).made
    page = (report.path / "report.html").read_text(encoding="utf-8")
    assert "dir:t2v+v2t" in page and "t2s+s2t" not in page


def target(chain: Chain, **changes: Any) -> Target:
    data = dataset.read(chain.find("dataset"))
    frame = translation.read(chain.find("translation"))
    made = Target(
        Split.of(data, "test"),
        (chain.find("features"),),
        frame,
        (("es", "human"),),
        "none",
        Protocol("full", split="test"),
        {},
    )
    return replace(made, **changes)


def test_the_first_relation_that_there_is(two: Chain) -> None:
    data, frame = dataset.read(two.find("dataset")), translation.read(two.find("translation"))
    relation, pairs = pairs_of(target(two), "es")
    assert relation == "query-mt" and pairs["query_id"].str.contains("-es").all() and len(pairs) == 24
    declared = replace(data, manifest=data.manifest | {"parallel": {"main": "main"}})
    relation, pairs = pairs_of(target(two, split=Split.of(declared, "test")), "es")
    assert relation == "parallel" and len(pairs) == 24
    assert (pairs["query_id"].str.replace("-es", "-en") == pairs["source_id"]).all()
    text_of = dict(zip(data.captions["caption_id"], data.captions["text"], strict=True))
    assert pairs["source"].tolist() == [text_of[i] for i in pairs["source_id"]]
    relation, pairs = pairs_of(target(two, translations=frame[frame["direction"] == "forward"]), "es")
    forward = frame[(frame["direction"] == "forward") & (frame["split"] == "test")]
    assert relation == "mt" and sorted(pairs["query_id"]) == sorted(forward["caption_id"])
    assert all(text_of[i] == text for i, text in zip(pairs["source_id"], pairs["source"], strict=True))
    by_query: pd.Series[str] = forward.set_index("caption_id")["source_caption_id"]
    assert [by_query[i] for i in pairs["query_id"]] == pairs["source_id"].tolist()
    assert pairs_of(target(two, translations=None), "es")[1].empty


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--task", "sound"), "'sound'"),
        (("--task", "text", "--protocol", "labelled"), "--protocol labelled"),
    ],
)
def test_wrong_options(options: tuple[str, ...], message: str, two: Chain) -> None:
    done = toy.ccr("evaluate", *options, *CPU, workspace=two.root)
    assert done.code == 2 and message in done.err


def test_without_pairs_it_is_refused(tmp_path: Path) -> None:
    root = tmp_path / "ws"
    toy.ok("data", "import", toy.toy().write(tmp_path / "toy"), workspace=root)
    toy.ok("extract", *toy.ENCODER, workspace=root)
    toy.ok("train", "--method", "source-only", "--epochs", "1", *toy.SMALL, workspace=root)
    done = toy.ccr("evaluate", "--task", "text", "--lang", "es", *CPU, workspace=root)
    assert done.code == 4 and "paired with sentences" in done.err, done.err
    assert not list(root.glob("evaluations/*/metrics.json"))
