"""Search: what comes first is what is most similar."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
import toy
from toy import Chain

from ccr_cli.artifacts import dataset
from ccr_cli.artifacts.workspace import Workspace
from ccr_cli.data.splits import items_of
from ccr_cli.stages.search.options import SearchOptions
from ccr_cli.stages.search.stage import Searcher
from ccr_cli.stages.shared.inputs import Inputs
from ccr_cli.stages.shared.load_run import load_method
from ccr_cli.stages.shared.triplets import read_visuals

CPU = ("--device", "cpu")


def search(chain: Chain, query: str, *options: str | Path, word: str = "uml") -> dict[str, Any]:
    done = toy.ok("search", query, chain.find("run", word).path, "--json", *options, *CPU, workspace=chain.root)
    found: dict[str, Any] = json.loads(done.out)
    return found


def similarities(chain: Chain, query: str, split: str | None) -> dict[str, float]:
    """Every item with its similarity, most similar first."""
    items = dataset.read(chain.find("dataset")).items
    chosen = items if split is None else items_of(items, split)
    visual, ids = read_visuals(chain.find("features"), list(chosen["item_id"]), frozenset())
    method, tokenizer = load_method(chain.find("run", "uml"), torch.device("cpu"))
    with torch.no_grad():
        sim_V = method.embed_visual(visual) @ method.embed_text(
            tokenizer.encode([query]).select(torch.arange(1))
        ).squeeze(0)
    return dict(sorted(zip(ids, sim_V.tolist(), strict=True), key=lambda pair: -pair[1]))


@pytest.mark.parametrize("query", ["cuadrado azul", "a red square", "??", "一只狗 círculo 🐕", "x" * 5000])
def test_the_order_is_that_of_similarity(query: str, chain: Chain) -> None:
    wanted = list(similarities(chain, query, "test").items())
    found = search(chain, query)
    assert found["query"] == query
    assert [(hit["item_id"], hit["place"]) for hit in found["hits"]] == [
        (item, place) for place, (item, _) in enumerate(wanted[:5], 1)
    ]
    assert [hit["similarity"] for hit in found["hits"]] == pytest.approx([value for _, value in wanted[:5]], abs=1e-6)
    assert 0 <= found["uncertainty"] <= 1


def test_a_known_caption_finds_its_item(chain: Chain) -> None:
    """The training captions in the other language, which no human wrote, over the training items."""
    inputs = Inputs(Workspace(chain.root))
    trained = list(items_of(dataset.read(chain.find("dataset")).items, "train")["item_id"])
    parts = [item.split("-") for item in trained]
    queries = [f"{toy.SHAPES[shape]} {toy.COLOURS[colour]}" for colour, shape in parts]
    options = SearchOptions(split="train", device="cpu").filled()
    answers = list(Searcher(inputs, chain.find("run", "infonce"), options).texts(queries, 5))
    assert [answer.query for answer in answers] == queries
    found = sum(item in [hit.item_id for hit in a.hits] for item, a in zip(trained, answers, strict=True))
    assert found > len(trained) / 2, "chance finds 5 of 24"


def test_split_and_number_of_results(chain: Chain) -> None:
    items = dataset.read(chain.find("dataset")).items
    for split, expected in (("val", "val"), ("val-report", "val-report"), ("all", None)):
        hits = search(chain, "rojo", "--split", split, "--top", "100")["hits"]
        wanted = items if expected is None else items_of(items, expected)
        assert {hit["item_id"] for hit in hits} == set(wanted["item_id"]) and len(hits) == len(wanted)
    assert len(search(chain, "rojo", "--top", "2")["hits"]) == 2


def test_the_searched_part_is_named(chain: Chain) -> None:
    items = dataset.read(chain.find("dataset")).items
    part = f"{len(items_of(items, 'test'))} test items of {len(items)}"
    for options, named in (([], True), (["-q"], False), (["--split", "all"], False)):
        done = toy.ok("search", "rojo", chain.find("run", "uml").path, *options, *CPU, workspace=chain.root)
        assert (part in done.err and "--split all" in done.err) == named


def test_examples_are_in_the_language_of_training(chain: Chain) -> None:
    options = SearchOptions(split="train", device="cpu").filled()
    searcher = Searcher(Inputs(Workspace(chain.root)), chain.find("run", "uml"), options)
    words = {*" ".join(searcher.examples(6)).split()}
    assert words & {*toy.SHAPES.values()} and not words & {*toy.SHAPES}, "no Spanish captions by people are there"
    of_test = SearchOptions(device="cpu").filled()
    by_people = Searcher(Inputs(Workspace(chain.root)), chain.find("run", "uml"), of_test).examples(24)
    assert len(by_people) == 12 and all(text.startswith("aquí hay un ") for text in by_people)


def test_results_carry_caption_and_picture(chain: Chain) -> None:
    for hit in search(chain, "rojo")["hits"]:
        colour, shape = hit["item_id"].split("-")
        assert hit["caption"] == f"{colour} {shape}"
        assert Path(hit["image"]).is_file() and Path(hit["image"]).name == f"{hit['item_id']}.png"


def test_more_similar_results_are_more_probable(chain: Chain) -> None:
    hits = search(chain, "aquí hay un cuadrado azul", "--top", "12")["hits"]
    probabilities = [hit["probability"] for hit in hits]
    assert probabilities == sorted(probabilities, reverse=True) and 0 < probabilities[-1] < probabilities[0] < 1
    among_captions = search(chain, "rojo", "--find", "captions")["hits"]
    assert not any("probability" in hit for hit in among_captions), "nothing was fitted between texts"
    unknown = search(chain, "xyzzy qqq")
    assert not unknown["known"] and not any("probability" in hit for hit in unknown["hits"])


def test_a_method_without_uncertainty_says_none(chain: Chain) -> None:
    assert search(chain, "rojo", word="infonce")["uncertainty"] is None


def test_table_and_json_say_the_same(chain: Chain) -> None:
    done = toy.ok("search", "rojo", chain.find("run", "uml").path, *CPU, workspace=chain.root)
    header, *rows = [line.split("\t") for line in done.out.splitlines()]
    found = search(chain, "rojo")
    assert header[:4] == ["place", "similarity", "item", "caption"]
    assert [(row[2], row[1]) for row in rows] == [(h["item_id"], f"{h['similarity']:.3f}") for h in found["hits"]]


@pytest.mark.parametrize("query", ["", "  \t"])
def test_an_empty_query(query: str, chain: Chain) -> None:
    done = chain.ccr("search", query, chain.find("run", "uml").path, *CPU)
    assert (done.code, done.out) == (2, "") and "empty" in done.err


def test_another_data_set_with_the_run_s_encoder(finished: Chain, tmp_path: Path) -> None:
    folder = toy.toy("other")
    for item in folder.items:
        item[1] = "train"
    made = toy.ok("data", "import", folder.write(tmp_path / "other"), workspace=finished.root).made
    done = finished.ccr("search", "rojo", finished.find("run", "uml").path, made.path, *CPU)
    assert done.code == 4 and "ccr extract" in done.err
    toy.ok("extract", made.path, *toy.ENCODER, workspace=finished.root)
    hits = search(finished, "rojo", made.path, "--top", "100")["hits"]
    assert len(hits) == 48, "all items, as none is of the test split"
