"""`ccr index`: what an index finds beside exact search, what its recall says, and what it may not be used for."""

from __future__ import annotations

import json
import re
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import toy
from toy import Chain

from ccr_cli.artifacts import base, translation
from ccr_cli.artifacts import index as artifact
from ccr_cli.artifacts.workspace import Workspace
from ccr_cli.console import counted
from ccr_cli.errors import ArtifactError, UsageError
from ccr_cli.stages.search.build_index import _queries
from ccr_cli.stages.search.faiss_index import Index, estimated_bytes, exact, faiss, fitting, recall, untrained
from ccr_cli.stages.search.options import SearchOptions, parse_bytes
from ccr_cli.stages.search.stage import Searcher, open_searcher
from ccr_cli.stages.shared.inputs import Inputs

CPU = ("--device", "cpu")
ROUNDED = (
    "SQ8",
    "SQfp16",
    "IVF8,SQ8",
    "PCAR8,IVF8,SQ4",
    "HNSW8_SQ8",
    "IVF8,PQ8x4fs,RFlat",
    "RR16,PQ8x4fs",
    "IVF8,PQ8x4",
)
"""Kinds that hold rounded vectors: with cells, a graph, a transform, a refinement, or none of these."""


def unit(rows: int, dim: int = 16, seed: int = 0) -> torch.Tensor:
    """Vectors around thirty centres."""
    rng = np.random.default_rng(seed)
    values = rng.normal(size=(30, dim))[rng.integers(0, 30, rows)] + 0.5 * rng.normal(size=(rows, dim))
    return torch.nn.functional.normalize(torch.tensor(values, dtype=torch.float32), dim=1)


@pytest.mark.parametrize("kind", ["ivf", "hnsw"])
def test_recall_is_the_share_of_the_ten_most_similar_that_are_found(kind: str) -> None:
    rows_VD, query_QD = unit(2000), unit(80, seed=1)
    made = Index.build(rows_VD, kind)
    sim_QV = (query_QD.double() @ rows_VD.double().T).numpy()
    wanted = [set(np.argsort(-row)[:10].tolist()) for row in sim_QV]
    found = []
    for effort in made.efforts():
        made.effort = effort
        at_QK = made.nearest(query_QD, 10)
        share = np.mean([len(set(at.tolist()) & right) / 10 for at, right in zip(at_QK, wanted, strict=True)])
        assert recall(made, query_QD, rows_VD, exact(query_QD, rows_VD, 10)) == pytest.approx(share, abs=1e-9)
        found.append(share)
    assert found[0] < 1 and found[-1] > 0.999, "little effort misses some, much of it nothing"


def test_the_greatest_effort_looks_into_every_cell() -> None:
    rows_VD, query_QD = unit(3000, 32), torch.nn.functional.normalize(torch.ones(1, 32), dim=1)
    made = Index.build(rows_VD, "ivf")
    assert made.efforts() == [1, 2, 4, 8, 16, 32, 64, 76], "3,000 entries, 39 a cell"
    made.effort = made.efforts()[-1]
    assert recall(made, query_QD, rows_VD, exact(query_QD, rows_VD, 3000)) == 1.0
    assert Index.build(rows_VD[:40], "ivf").efforts() == [1] and Index.build(rows_VD[:80], "ivf").efforts() == [1, 2]


def test_equal_vectors_are_all_right() -> None:
    rows_VD = unit(40).repeat(5, 1)
    made = Index.build(rows_VD, "ivf")
    made.effort = made.efforts()[-1]
    query_QD = rows_VD[:40]
    assert recall(made, query_QD, rows_VD, exact(query_QD, rows_VD, 3)) == 1.0


@pytest.mark.parametrize("kind", ["ivf", "hnsw"])
def test_an_index_is_read_as_it_was_written(kind: str, tmp_path: Path) -> None:
    made = Index.build(unit(200), kind)
    made.write(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["index.faiss"]
    (tmp_path / "index.faiss").rename(tmp_path / "a.faiss")
    again = Index.read(tmp_path / "a.faiss", kind, 32, (200, unit(1).shape[1]))
    made.effort = 32
    assert again.effort == 32 and again._index.ntotal == 200
    query_QD = unit(9, seed=2)
    assert np.array_equal(again.nearest(query_QD, 7), made.nearest(query_QD, 7))
    assert torch.equal(again.vectors(np.array([3, 199])), unit(200)[[3, 199]])
    (tmp_path / "b.faiss").write_bytes(b"IwFl nothing of the kind")
    with pytest.raises(ArtifactError, match=re.escape(str(tmp_path / "b.faiss"))):
        Index.read(tmp_path / "b.faiss", kind, 1, (200, 8))


@pytest.mark.parametrize("ids", [[0, 1, 2, 2], [0, 1, 2, -1], [0, 1, 2, 4]], ids=["twice", "removed", "beyond"])
def test_entries_that_are_not_there_once_each(ids: list[int], tmp_path: Path) -> None:
    """A search would skip an item, or find one that is not there."""
    package, vectors = faiss(), unit(4)
    made = package.IndexIVFFlat(package.IndexFlatIP(vectors.shape[1]), vectors.shape[1], 1, 0)
    made.train(vectors)
    made.add_with_ids(vectors, np.array(ids))
    package.write_index(made, str(tmp_path / "a.faiss"))
    with pytest.raises(ArtifactError, match="do not fit"):
        Index.read(tmp_path / "a.faiss", "ivf", 1, (4, vectors.shape[1]))


@pytest.fixture(scope="module")
def rows_VD() -> torch.Tensor:
    return unit(1000)


def alone(query_QD: torch.Tensor, made: Index) -> list[list[int]]:
    """The ten most similar of the candidates, by their exact vectors."""
    found = []
    for query_D, at_K in zip(query_QD, made.nearest(query_QD, 10), strict=True):
        sim_K = made.vectors(at_K[at_K >= 0]).double() @ query_D.double()
        found.append(at_K[at_K >= 0][sim_K.argsort(descending=True).numpy()][:10].tolist())
    return found


@pytest.mark.parametrize("kind", ROUNDED)
def test_rounded_vectors_find_candidates_and_exact_ones_order_them(
    kind: str, rows_VD: torch.Tensor, tmp_path: Path
) -> None:
    query_QD = unit(40, seed=1)
    made = Index.build(rows_VD, kind)
    reached = made.tune(query_QD, rows_VD, exact(query_QD, rows_VD, 10), 0.99)
    wanted = [np.argsort(-row)[:10].tolist() for row in (query_QD.double() @ rows_VD.double().T).numpy()]
    found = alone(query_QD, made)
    share = np.mean([len(set(a) & set(b)) / 10 for a, b in zip(found, wanted, strict=True)])
    assert share == pytest.approx(reached, abs=1e-9) and reached >= 0.99
    made.write(tmp_path)
    shape, files = tuple(rows_VD.shape), (tmp_path / "index.faiss", tmp_path / "vectors.npy")
    again = Index.read(files[0], kind, made.effort, shape, files[1])  # type: ignore[arg-type]
    again.depth = made.depth
    assert alone(query_QD, again) == found and torch.equal(again.vectors(np.array([3, 999])), rows_VD[[3, 999]])
    whole = files[0].stat().st_size
    assert estimated_bytes(untrained(kind, *shape), 1000) == pytest.approx(whole, abs=0.03 * whole + 3000)
    second = tmp_path / "second"
    second.mkdir()
    twin = Index.build(rows_VD, kind)
    twin.effort = made.effort
    twin.write(second)
    assert (second / "index.faiss").read_bytes() == files[0].read_bytes(), "a seed"
    for vectors in (None, tmp_path / "none.npy", tmp_path / "other.npy"):
        np.save(tmp_path / "other.npy", rows_VD[:999].numpy())
        with pytest.raises(ArtifactError, match="vectors"):
            Index.read(files[0], kind, made.effort, shape, vectors)  # type: ignore[arg-type]
    for other in {"SQ8", "IVF8,SQ8", "IVF8,SQ6", "ivf"} - {kind}:
        with pytest.raises(ArtifactError, match=re.escape(str(tmp_path))):
            Index.read(files[0], other, 1, shape, files[1])  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", ["SQ8", "IVF8,SQ8", "IVF8,PQ8x4fs,RFlat", "PCAR8,IVF8,SQ4", "HNSW8_SQ8", "ivf"])
def test_a_damaged_index_does_not_end_the_process(kind: str, rows_VD: torch.Tensor, tmp_path: Path) -> None:
    made = Index.build(rows_VD, kind)
    made.write(tmp_path)
    path, shape = tmp_path / "index.faiss", tuple(rows_VD.shape)
    vectors = None if made.exact else tmp_path / "vectors.npy"
    whole, rng = path.read_bytes(), np.random.default_rng(5)
    refused = 0
    for number in range(12):
        data = bytearray(whole)
        if number < 4:
            del data[int(rng.integers(0, len(data))) :]
        else:
            data[int(rng.integers(0, 200))] ^= 1 << int(rng.integers(8))
        path.write_bytes(data)
        try:
            Index.read(path, kind, 4, shape, vectors).nearest(rows_VD[:5], 10)  # type: ignore[arg-type]
        except ArtifactError:
            refused += 1
    assert refused >= 4


def test_a_sample_trains_and_batches_are_added(rows_VD: torch.Tensor, monkeypatch: pytest.MonkeyPatch) -> None:
    module = sys.modules[Index.__module__]
    whole = Index.build(rows_VD, "ivf")
    monkeypatch.setattr(module, "BATCH", 64)
    query_QD = unit(40, seed=1)
    assert np.array_equal(Index.build(rows_VD, "ivf").nearest(query_QD, 10), whole.nearest(query_QD, 10))
    monkeypatch.setattr(module, "SAMPLE", 400)
    monkeypatch.setattr(module, "MOST", 39)
    sampled = Index.build(rows_VD, "IVF8,Flat")
    monkeypatch.setattr(module, "SAMPLE", 1 << 20)
    every = Index.build(rows_VD, "IVF8,Flat")
    for made in (sampled, every):
        made.effort = 8
        best_QK = exact(query_QD, rows_VD, 10)
        assert recall(made, query_QD, rows_VD, best_QK) == 1.0
    centres = [made._index.quantizer.reconstruct_n(0, 8) for made in (sampled, every)]
    assert not np.allclose(*centres)


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("Bogus", "Bogus"),
        ("", "''"),
        ("PQ7", "PQ7"),
        ("LSH", "LSH"),
        ("IVF16,PQ8+4", "IVF16,PQ8+4"),
        ("NSG16,Flat", "IndexNSGFlat"),
        ("IDMap,Flat", "IndexIDMap"),
        ("IVF16,RaBitQ", "IndexIVFRaBitQ"),
        ("L2norm,Flat", "L2norm"),
        ("IVF64,Flat", "2,496"),
        ("IVF4_HNSW8,PQ8", "9,984"),
        ("PQ8", "9,984"),
        ("OPQ8,SQ8", "9,984"),
    ],
)
def test_strings_that_make_no_index_here(kind: str, value: str) -> None:
    with pytest.raises(UsageError) as refusal:
        untrained(kind, 1000, 16)
    assert value in refusal.value.message and (kind in refusal.value.message) and refusal.value.hint


def test_the_most_exact_index_that_fits(capfd: pytest.CaptureFixture[str]) -> None:
    budgets = (10**9, 1_000_000, 700_000, 400_000, 200_000)
    found = [fitting(budget, 10_500, 32) for budget in budgets]
    assert [kind.partition(",")[2] for kind, _ in found] == ["Flat", "SQfp16", "SQ8", "PQ32x4fs", "PQ8x4fs"]
    assert all(size <= budget for (_, size), budget in zip(found, budgets, strict=True))
    with pytest.raises(UsageError, match="100,000") as refusal:
        fitting(100_000, 10_500, 32)
    assert "--memory" in str(refusal.value.hint)
    with pytest.raises(UsageError):
        fitting(20_000, 623, 32)  # too few to train products
    assert "PQ" in fitting(20_000, 624, 32)[0]
    assert Index.build(unit(30), fitting(10**6, 30, 16)[0])._index.ntotal == 30
    assert "WARNING" not in capfd.readouterr().err


@pytest.mark.parametrize(
    ("text", "size"), [("4GB", 4 * 10**9), ("4g", 4 * 10**9), ("1.5 GiB", 3 << 29), ("200MB", 2 * 10**8), ("1K", 1000)]
)
def test_sizes(text: str, size: int) -> None:
    assert parse_bytes("--memory", text) == size


@pytest.mark.parametrize("text", ["", "4", "GB", "-4GB", "4 EB", "0GB", "nanGB"])
def test_texts_that_are_no_size(text: str) -> None:
    with pytest.raises(UsageError, match="--memory"):
        parse_bytes("--memory", text)


def search(chain: Chain, *options: str | Path) -> Any:
    return json.loads(toy.ok("search", *options, "--json", *CPU, workspace=chain.root).out)


def alike(one: Any, other: Any) -> bool:
    key = "caption_id" if "caption_id" in one["hits"][0] else "item_id"
    return (
        [hit[key] for hit in one["hits"]] == [hit[key] for hit in other["hits"]]
        and [hit["similarity"] for hit in one["hits"]]
        == pytest.approx([hit["similarity"] for hit in other["hits"]], abs=1e-5)
        and one["uncertainty"] == pytest.approx(other["uncertainty"], abs=1e-4)
    )


@pytest.mark.slow
def test_the_chain_with_an_index(finished: Chain) -> None:
    run = finished.find("run", "uml").path
    planned = toy.ok("index", run, "--split", "all", "--recall", "1", "--dry-run", *CPU, workspace=finished.root)
    assert "to do" in planned.out and not (finished.root / "indexes").exists()
    done = toy.ok("index", run, "--split", "all", "--recall", "1", *CPU, workspace=finished.root)
    made = done.made
    assert done.paths == [run, finished.find("dataset").path, finished.find("features").path, made.path]
    assert made.kind == "index" and made.name == f"{run.name}-all-ivf-{made.name[-6:]}"
    assert made.counts == {"entries": 48, "dim": 32} and base.verify(made) == []
    about = artifact.about(made)
    assert about["recall"]["at"] == 10 and about["recall"]["value"] == 1.0
    assert about["measured_on"] == "captions in es" and about["recall"]["queries"] == 12
    assert all(
        text in done.err
        for text in ("recall@10 1.000", "12 queries", "captions in es", f"{counted(about['effort'], 'cell')} a query")
    )
    for query in ("círculo rojo", "a blue bar"):
        plain = search(finished, query, run, "--split", "all")
        assert alike(search(finished, query, made.path), plain)
        assert alike(search(finished, query, run, made.path, "--split", "all"), plain)
        assert alike(search(finished, query, run, "--index"), plain)
    picture = finished.folder / "media" / "red-ring.png"
    assert search(finished, "--image", picture, made.path)["hits"][0]["item_id"] == "red-ring"
    for lang in ((), ("--lang", "es")):  # it chooses the run; items have no language
        again = toy.ok("index", run, "--split", "all", "--recall", "1", *lang, *CPU, workspace=finished.root)
        assert again.made.id == made.id
    for options, said in (
        (("--split", "test"), "not --split test"),
        (("--find", "captions"), "not --find captions"),
        (("--lang", "fr"), " fr"),
    ):
        refused = finished.ccr("search", "rojo", made.path, *options, *CPU)
        assert refused.code == 2 and said in refused.err
    toy.ok("index", run, *CPU, workspace=finished.root)
    several = finished.ccr("search", "rojo", run, "--index", *CPU)
    assert several.code == 4 and several.err.count("indexes/") >= 2
    assert alike(search(finished, "rojo", run, "--index", "--split", "all"), search(finished, "rojo", made.path))
    absent = finished.ccr("search", "rojo", run, "--index", "--find", "captions", *CPU)
    assert absent.code == 4 and f"ccr index {run} --find captions" in absent.err.replace("\n", "")
    other = finished.ccr("search", "rojo", finished.find("run", "infonce").path, made.path, *CPU)
    assert other.code == 4
    missing = finished.ccr("search", "rojo", finished.find("run", "infonce").path, "--index", *CPU)
    assert missing.code == 4 and "ccr index" in missing.err


def test_the_effort_is_the_least_that_reaches_the_recall_asked_for(finished: Chain) -> None:
    run, efforts = finished.find("run", "uml").path, {}
    for asked in ("0.3", "1"):  # 120 captions, three cells
        options = ("--split", "all", "--find", "captions", "--recall", asked)
        efforts[asked] = artifact.about(toy.ok("index", run, *options, *CPU, workspace=finished.root).made)["effort"]
    assert efforts["0.3"] == 1 < efforts["1"] <= 3, efforts


def test_a_cell_with_too_few_entries_is_not_all_that_is_looked_into(finished: Chain) -> None:
    run = finished.find("run", "uml").path
    made = toy.ok("index", run, "--split", "all", *CPU, workspace=finished.root).made
    searcher = open_searcher(Inputs.from_paths(Workspace(finished.root), [str(made.path)]), SearchOptions(device="cpu"))
    assert searcher._index is not None and searcher._candidates == 2
    rows_VD = searcher._index.vectors(np.arange(48))
    cells = faiss().IndexIVFFlat(faiss().IndexFlatIP(32), 32, 24, faiss().METRIC_INNER_PRODUCT)
    cells.train(rows_VD.numpy())
    cells.add(rows_VD.numpy())
    cells.make_direct_map()
    searcher._index = made_of_cells = Index(cells)  # one cell of 24 is looked into: of some queries it has one entry
    texts = list(searcher.data.captions["text"])
    found = (cells.search(searcher.vectors(texts).numpy(), 10)[1] >= 0).sum(axis=1)
    assert found.min() == 1 < found.max()
    for top in (1, 10, 100):
        answers = list(searcher.texts(texts, top))
        assert {len(answer.hits) for answer in answers} == {min(top, 48)}
        assert all(answer.uncertainty is not None for answer in answers) and made_of_cells.effort == 1
    exactly = Searcher(Inputs(Workspace(finished.root)), finished.find("run", "uml"), searcher.options)
    plain = [[hit.item_id for hit in answer.hits] for answer in exactly.texts(texts, 48)]
    assert [[hit.item_id for hit in answer.hits] for answer in answers] == plain


def test_an_index_over_other_data_is_not_searched_for_the_run_s_own(finished: Chain, tmp_path: Path) -> None:
    run = finished.find("run", "uml").path
    data = toy.ok("data", "import", toy.toy("other").write(tmp_path / "other"), workspace=finished.root).made
    toy.ok("extract", data.path, *toy.ENCODER, workspace=finished.root)
    over = toy.ok("index", run, data.path, *CPU, workspace=finished.root).made
    refused = finished.ccr("search", "rojo", run, "--index", *CPU)
    assert (refused.code, refused.out) == (4, "") and f"over toy in {finished.root}" in refused.err.replace("\n", "")
    assert refused.err.endswith(f"ccr index {run}\n")
    other = open_searcher(
        Inputs.from_paths(Workspace(finished.root), [str(run), str(data.path)]), SearchOptions(index=True, device="cpu")
    )
    assert other.index is not None and other.index.id == over.id
    own = toy.ok("index", run, *CPU, workspace=finished.root).made
    inputs = Inputs.from_paths(Workspace(finished.root), [str(run)])
    chosen = open_searcher(inputs, SearchOptions(index=True, device="cpu")).index
    assert chosen is not None and chosen.id == own.id
    refused = finished.ccr("search", "rojo", run, data.path, "--index", "--find", "captions", *CPU)
    assert refused.code == 4 and f"ccr index {run} {data.path} --find captions" in refused.err.replace("\n", "")


@pytest.mark.slow
def test_captions_and_another_data_set(finished: Chain, tmp_path: Path) -> None:
    run = finished.find("run", "uml").path
    made = toy.ok("index", run, "--find", "captions", "--type", "hnsw", *CPU, workspace=finished.root).made
    assert artifact.about(made)["measured_on"] == "pictures"
    picture = finished.folder / "media" / "red-ring.png"
    plain = search(finished, "--image", picture, run, "--find", "captions", "--top", "3")
    assert alike(search(finished, "--image", picture, made.path, "--top", "3"), plain)
    folder = toy.toy("other")
    for item in folder.items:
        item[1] = "test"
    data = toy.ok("data", "import", folder.write(tmp_path / "other"), workspace=finished.root).made
    toy.ok("extract", data.path, *toy.ENCODER, workspace=finished.root)
    over = toy.ok("index", run, data.path, "--recall", "1", *CPU, workspace=finished.root).made
    assert "-other-test-" in over.name and over.counts["entries"] == 48
    assert alike(search(finished, "rojo", over.path), search(finished, "rojo", run, data.path))
    refused = finished.ccr("search", "rojo", made.path, data.path, *CPU)
    assert refused.code == 2 and "toy, not other" in refused.err


def test_a_factory_string_and_a_budget(finished: Chain) -> None:
    run = finished.find("run", "uml").path
    options = ("index", run, "--split", "all", "--find", "captions")
    plain = toy.ok(*options, *CPU, workspace=finished.root).made
    assert "memory" not in plain.request and plain.request["type"] == "ivf"
    again = toy.ok(*options, "--type", "ivf", *CPU, workspace=finished.root)
    assert again.made.id == plain.id and "--factory" in again.err
    chosen = toy.ok(*options, "--memory", "12KB", *CPU, workspace=finished.root)
    assert chosen.made.request == {**plain.request, "type": "auto", "memory": 12_000}
    about = artifact.about(chosen.made)
    assert about["type"] == "IVF3,SQfp16" and about["bytes"] < 12_000 and about["depth"] >= 1
    assert "IVF3,SQfp16" in chosen.err and "12,000" in chosen.err
    named = toy.ok(*options, "--factory", "SQ8", "--memory", "4KB", "--recall", "1", *CPU, workspace=finished.root).made
    assert "memory" not in named.request and named.name.startswith(f"{run.name}-all-SQ8-")
    assert base.verify(named) == [] and {file.path for file in named.files} >= {"index.faiss", "vectors.npy"}
    picture = finished.folder / "media" / "red-ring.png"
    found = search(finished, "--image", picture, named.path)
    assert alike(found, search(finished, "--image", picture, run, "--split", "all", "--find", "captions"))
    for more, value in (
        (("--memory", "4KB"), "4,000"),
        (("--memory", "lots"), "lots"),
        (("--factory", "SQfp16", "--memory", "4KB"), "SQfp16"),
        (("--factory", "IVF4096,Flat"), "159,744"),
    ):
        refused = finished.ccr(*options, *more, *CPU)
        assert refused.code == 2 and value in refused.err, refused.err


@pytest.mark.parametrize(
    ("option", "value", "hint"),
    [
        ("--factory", "Bogus", "--factory IVF16,SQ8\n"),
        ("--factory", "ivff", "--factory ivf\n"),
        ("--recall", "0", ""),
        ("--recall", "1.1", ""),
        ("--split", "tests", ""),
    ],
)
def test_what_there_is_none_of(option: str, value: str, hint: str, chain: Chain) -> None:
    done = chain.ccr("index", chain.find("run", "uml").path, option, value, *CPU)
    assert done.code == 2 and option.strip("-") in done.err and done.err.endswith(hint)


def test_sample_queries_are_in_the_language_of_training(chain: Chain) -> None:
    options = SearchOptions(split="all", device="cpu").filled()
    searcher = Searcher(Inputs(Workspace(chain.root)), chain.find("run", "uml"), options)
    assert _queries(searcher)[1] == "captions in es"
    captions = searcher.data.captions
    searcher.data = replace(searcher.data, captions=captions[captions["lang"] == "en"])
    query_QD, source = _queries(searcher)
    assert source == "translations into es" and len(query_QD) == 48, "two captions of each validation or test item"
    machine = translation.translated(translation.read(chain.find("translation")))
    own_QD = searcher.vectors(list(machine.loc[machine["split"] != "train", "text"]))
    assert torch.allclose((query_QD @ own_QD.T).max(dim=1).values, torch.ones(48), atol=1e-5)


def test_without_the_package(chain: Chain, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "faiss", None)
    done = chain.ccr("index", chain.find("run", "uml").path, *CPU)
    assert done.code == 5 and "pip install 'ccr-cli[index]'" in done.err
