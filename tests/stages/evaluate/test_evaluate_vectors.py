"""`ccr evaluate --zero-shot --text-vectors --visual-vectors`: a model that is known by its vectors alone."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import pytest
import toy
from fastapi import HTTPException
from rows import in_npz
from safetensors.numpy import save_file
from toy import Chain, Outcome

from ccr_cli.artifacts import dataset, diagnosis, evaluation
from ccr_cli.artifacts.workspace import Workspace
from ccr_cli.data.splits import items_of
from ccr_cli.stages.diagnose.suspects import with_words
from ccr_cli.stages.search.options import SearchOptions
from ccr_cli.stages.search.server import Service
from ccr_cli.stages.search.stage import open_searcher
from ccr_cli.stages.shared.inputs import Inputs
from ccr_cli.stages.shared.text_encoders import read_text_vectors

CPU = ("--device", "cpu")
D = 8
Rows = dict[str, npt.NDArray[np.float32]]


def captions_of(chain: Chain) -> pd.DataFrame:
    return dataset.read(chain.find("dataset", "toy")).captions


def items(chain: Chain, split: str = "") -> list[str]:
    table = dataset.read(chain.find("dataset", "toy")).items
    return list((items_of(table, split) if split else table)["item_id"])


def vectors(chain: Chain) -> tuple[Rows, Rows]:
    """Vectors of captions and items by id: a caption's is near its item's; the same text has the same vector."""
    rng = np.random.default_rng(0)
    visual = {item: rng.standard_normal(D).astype(np.float16).astype(np.float32) for item in items(chain)}
    texts: Rows = {}
    by_text: Rows = {}
    for row in captions_of(chain).itertuples():
        noise = rng.standard_normal(D).astype(np.float32)
        texts[str(row.caption_id)] = by_text.setdefault(str(row.text), visual[str(row.item_id)] + noise)
    return texts, visual


def in_npy(path: Path, rows: Rows) -> Path:
    np.save(path.with_suffix(".npy"), np.stack(list(rows.values())))
    path.with_suffix(".txt").write_text("".join(f"{name}\n" for name in rows))
    return path.with_suffix(".npy")


def in_safetensors(path: Path, rows: Rows) -> Path:
    save_file(rows, path.with_suffix(".safetensors"))
    return path.with_suffix(".safetensors")


def in_parquet(path: Path, rows: Rows, column: str = "id") -> Path:
    pd.DataFrame({column: list(rows), "vector": list(rows.values())}).to_parquet(path.with_suffix(".parquet"))
    return path.with_suffix(".parquet")


WRITERS: dict[str, Callable[[Path, Rows], Path]] = {
    "npy": in_npy, "npz": in_npz, "safetensors": in_safetensors, "parquet": in_parquet
}  # fmt: skip


def evaluate(chain: Chain, texts: Path, visual: Path, *options: str | Path) -> Outcome:
    call = ("evaluate", "--zero-shot", "--text-vectors", texts, "--visual-vectors", visual)
    return chain.ccr(*call, *options, *CPU)


def counted(chain: Chain, texts: Rows, visual: Rows, lang: str) -> float:
    """SumR on the test items by float64 cosines."""
    ids, captions = items(chain, "test"), captions_of(chain)
    captions = captions[captions["item_id"].isin(ids) & (captions["lang"] == lang)]
    v_VD = np.stack([visual[i] for i in ids]).astype(np.float64)
    t_TD = np.stack([texts[i] for i in captions["caption_id"]]).astype(np.float64)
    v_VD, t_TD = (x / np.linalg.norm(x, axis=1, keepdims=True) for x in (v_VD, t_TD))
    sim_TV, match_TV = t_TD @ v_VD.T, captions["item_id"].to_numpy()[:, None] == np.array(ids)
    total = 0.0
    for sim, match in ((sim_TV, match_TV), (sim_TV.T, match_TV.T)):
        ranks = [1 + int((row > row[right].max()).sum()) for row, right in zip(sim, match, strict=True)]
        total += sum(100 * float(np.mean([rank <= k for rank in ranks])) for k in (1, 5, 10))
    return total


@pytest.fixture(scope="module")
def imported(sources: Chain, tmp_path_factory: pytest.TempPathFactory) -> Chain:
    """The data set alone."""
    root = tmp_path_factory.mktemp("vectors") / "ws"
    toy.copy_datasets(sources.root, root)
    return Chain(sources.folder, root)


@pytest.fixture
def chain_alone(imported: Chain, tmp_path: Path) -> Chain:
    return Chain(imported.folder, shutil.copytree(imported.root, tmp_path / "ws"))


@pytest.fixture(scope="module")
def evaluated(imported: Chain, tmp_path_factory: pytest.TempPathFactory) -> Chain:
    """A workspace with the run and its evaluation."""
    folder = tmp_path_factory.mktemp("evaluated")
    chain = Chain(imported.folder, shutil.copytree(imported.root, folder / "ws"))
    texts, visual = vectors(chain)
    done = evaluate(chain, in_parquet(folder / "texts", texts, "caption_id"), in_npy(folder / "pictures", visual))
    assert done.code == 0, done.err
    return chain


def test_figures_are_those_of_the_vectors(evaluated: Chain) -> None:
    texts, visual = vectors(evaluated)
    made = evaluated.find("evaluation")
    found = {r["lang"]: r["SumR"] for r in evaluation.results(made)}
    assert found == {lang: pytest.approx(counted(evaluated, texts, visual, lang)) for lang in ("es", "en")}
    run = evaluated.find("run")
    assert {p.id for p in made.parents} >= {run.id, evaluated.find("features").id}
    assert run.counts["steps"] == 0 and len(run.request["text_vectors"]["sha256"]) == 64
    assert toy.ccr("verify", "--deep", run.path, workspace=evaluated.root).code == 0


@pytest.mark.parametrize("form", sorted(WRITERS))
def test_neither_format_nor_order_matters(form: str, chain_alone: Chain, evaluated: Chain, tmp_path: Path) -> None:
    rows = [dict(sorted(side.items(), key=lambda pair: pair[0][::-1])) for side in vectors(chain_alone)]
    files = [WRITERS[form](tmp_path / name, side) for name, side in zip("tv", rows, strict=True)]
    done = evaluate(chain_alone, *files)
    assert done.code == 0, done.err
    both = (evaluation.results(made) for made in (done.made, evaluated.find("evaluation")))
    one, other = ({r["lang"]: (r["t2v"], r["v2t"]) for r in each} for each in both)
    assert one == other
    again = evaluate(chain_alone, *files)
    assert again.made.id == done.made.id and len(Workspace(chain_alone.root).artifacts("features")) == 1


def test_test_items_alone_will_do(chain_alone: Chain, tmp_path: Path) -> None:
    texts, visual = vectors(chain_alone)
    ids, captions = set(items(chain_alone, "test")), captions_of(chain_alone)
    tested = captions[captions["item_id"].isin(ids)]
    some = {name: texts[name] for name in tested["caption_id"]}
    done = evaluate(chain_alone, in_npz(tmp_path / "t", some), in_npz(tmp_path / "v", {i: visual[i] for i in ids}))
    assert done.code == 0, done.err
    found = {r["lang"]: r["SumR"] for r in evaluation.results(done.made)}
    assert found == {lang: pytest.approx(counted(chain_alone, texts, visual, lang)) for lang in ("es", "en")}
    english = {name: texts[name] for name in tested.loc[tested["lang"] == "en", "caption_id"]}
    done = evaluate(chain_alone, in_npz(tmp_path / "t", english), tmp_path / "v.npz")
    assert done.code == 0 and [r["lang"] for r in evaluation.results(done.made)] == ["en"]
    assert "es is not evaluated" in done.err
    spanish = {name: vector for name, vector in some.items() if name not in english}
    done = evaluate(chain_alone, in_npz(tmp_path / "t", spanish), tmp_path / "v.npz")
    assert (done.code, done.out) == (4, "") and "en captions" in done.err


@pytest.mark.slow
def test_every_later_command_reads_the_run(evaluated: Chain, tmp_path: Path) -> None:
    chain = Chain(evaluated.folder, shutil.copytree(evaluated.root, tmp_path / "ws"))
    run, captions = chain.find("run").path, captions_of(chain)
    tested = captions[captions["item_id"].isin(items(chain, "test")) & (captions["lang"] == "es")]
    query = str(tested["text"].iloc[0])
    found = toy.ok("search", query, run, *CPU, workspace=chain.root)
    assert str(tested["item_id"].iloc[0]) in found.out
    assert toy.ok("search", query, run, "--find", "captions", *CPU, workspace=chain.root).out
    unknown = chain.ccr("search", "un texto sin vector", run, *CPU)
    assert (unknown.code, unknown.out) == (4, "") and "un texto sin vector" in unknown.err and "try:" in unknown.err
    picture = chain.ccr("search", "--image", chain.folder / "media" / "red-circle.png", run, *CPU)
    assert (picture.code, picture.out) == (4, "") and "not made by ccr" in picture.err
    judged = toy.ok("diagnose", run, "--judge", "osa", *CPU, workspace=chain.root).made
    pairs = with_words(diagnosis.read_pairs(judged), "en")
    assert set(pairs["flags"]) == set(pairs["unmatched_source"]) == {""}, "nothing was translated"
    assert pd.read_parquet(judged.file("pairs.parquet"))["sim_vs"].to_numpy() == pytest.approx(
        [cosine(*vectors(chain), str(row.slot_id), str(row.item_id)) for row in pairs.itertuples()], abs=1e-3
    )
    toy.ok("report", "--searches", "2", workspace=chain.root)
    toy.ok("export", run, workspace=chain.root)
    service = Service(open_searcher(Inputs(Workspace(chain.root)), SearchOptions(device="cpu")))
    found_by = asyncio.run(service.text(query, "es", 3))["hits"]
    assert found_by[0]["item"] == found.out.splitlines()[1].split("\t")[2]
    for example in asyncio.run(service.about())["examples"]:
        assert asyncio.run(service.text(example, None, 1))["hits"]
    with pytest.raises(HTTPException) as refusal:
        asyncio.run(service.text("un texto sin vector", None, 3))
    assert refusal.value.status_code == 422 and "un texto sin vector" in refusal.value.detail


def cosine(texts: Rows, visual: Rows, caption: str, item: str) -> float:
    t_D, v_D = texts[caption].astype(np.float64), visual[item].astype(np.float64)
    return float(t_D @ v_D / np.linalg.norm(t_D) / np.linalg.norm(v_D))


def test_what_has_no_vector_is_not_searched(chain_alone: Chain, tmp_path: Path) -> None:
    """Vectors of the test items and of their captions alone: as many as `ccr evaluate` needs."""
    chain, ids = chain_alone, set(items(chain_alone, "test"))
    texts, visual = vectors(chain)
    captions = captions_of(chain)
    tested = captions[captions["item_id"].isin(ids)]
    files = (
        in_npz(tmp_path / "t", {name: texts[name] for name in tested["caption_id"]}),
        in_npz(tmp_path / "v", {item: visual[item] for item in ids}),
    )
    assert evaluate(chain, *files).code == 0
    run = chain.find("run").path
    for lang, count in (("", len(tested)), ("es", int((tested["lang"] == "es").sum()))):
        chosen = ("--find", "captions", "--split", "all", *(("--lang", lang) if lang else ()), *CPU)
        found = toy.ok("search", "blue square", run, "--top", "999", *chosen, workspace=chain.root)
        assert len(found.out.splitlines()) == 1 + count and "have no vector" in found.err
        assert toy.ok("index", run, *chosen, workspace=chain.root).made.counts["entries"] == count
    entries = toy.ok("index", run, "--split", "all", *CPU, workspace=chain.root).made.counts["entries"]
    assert entries == len(ids)
    toy.ok("export", run, workspace=chain.root)
    unknown = chain.ccr("search", "blue square", run, "--find", "captions", "--lang", "fr", *CPU)
    assert (unknown.code, unknown.out) == (4, "") and "fr" in unknown.err
    none = chain.ccr("search", "blue square", run, "--find", "captions", "--split", "train", *CPU)
    assert (none.code, none.out) == (4, "") and "--split all" in none.err
    refused = chain.ccr("diagnose", run, *CPU)
    assert (refused.code, refused.out) == (4, "") and "ids such as" in refused.err
    all_items = evaluate(chain, files[0], in_npz(tmp_path / "all", visual))
    assert all_items.code == 0
    refused = chain.ccr("diagnose", next(p for p in all_items.paths if "/runs/" in str(p)), *CPU)
    assert (refused.code, refused.out) == (4, "") and "48 of 48 texts" in refused.err


@pytest.mark.slow
def test_a_translation_and_queries_of_ones_own(workspace: Chain, tmp_path: Path) -> None:
    """Translated captions by their ids, translated queries as texts, and a query that is no caption."""
    texts, visual = vectors(workspace)
    made = workspace.find("translation")
    rng = np.random.default_rng(1)
    table = pd.read_parquet(made.path / "captions.parquet")
    query, known = table["direction"] == "query", set(captions_of(workspace)["text"])
    names = [*table.loc[~query, "caption_id"], *{*table.loc[query, "text"]} - known]
    some = {name: rng.standard_normal(D).astype(np.float32) for name in names}
    own = {"mi propia consulta": visual[items(workspace)[0]]}
    files = in_parquet(tmp_path / "texts", texts | some | own), in_npz(tmp_path / "pictures", visual)
    done = evaluate(workspace, *files, made.path, "--translate-test")
    assert done.code == 0, done.err
    labels = [(r["lang"], r["label"]) for r in evaluation.results(done.made)]
    assert ("es", "pretrained (translate-test)") in labels and "mi propia consulta" in done.err
    run = next(a for a in Workspace(workspace.root).artifacts("run") if a.request["method"] == "pretrained")
    found = toy.ok("search", "mi propia consulta", run.path, "--split", "all", *CPU, workspace=workspace.root)
    assert items(workspace)[0] in found.out.splitlines()[1]
    toy.ok("diagnose", run.path, *CPU, workspace=workspace.root)
    feats = next(a for a in Workspace(workspace.root).artifacts("features") if "from" in a.request)
    call = ("train", "--method", "infonce", "--text-vectors", files[0], made.path, feats.path, "--epochs", "1")
    assert toy.ok(*call, *toy.SMALL, workspace=workspace.root).made.counts["steps"] > 0


def _with(side: Rows, name: str, value: Any) -> Rows:
    return side | {name: np.asarray(value, dtype=np.asarray(value).dtype)}


NAN, BIG = np.full(D, np.nan, np.float32), np.full(D, 1e5, np.float32)
DAMAGE: dict[str, tuple[Callable[[Rows, str], Rows], int, str]] = {
    "another length": (lambda rows, last: {name: row[:5] for name, row in rows.items()}, 2, "numbers"),
    "one of another length": (lambda rows, last: _with(rows, last, np.ones(3, np.float32)), 4, "{last}"),
    "nan": (lambda rows, last: _with(rows, last, NAN), 4, "{last}"),
    "too large": (lambda rows, last: _with(rows, last, BIG), 4, "65504"),
    "too large for float32": (lambda rows, last: _with(rows, last, np.full(D, 1e300)), 4, "65504"),
    "zero": (lambda rows, last: _with(rows, last, np.zeros(D, np.float32)), 4, "{last}"),
    "one missing": (lambda rows, last: {name: row for name, row in rows.items() if name != last}, 4, "{last}"),
    "others": (lambda rows, last: {f"x-{name}": row for name, row in rows.items()}, 4, "x-"),
}  # fmt: skip


@pytest.mark.parametrize("side", [0, 1], ids=["texts", "visual"])
@pytest.mark.parametrize("damage", toy.some_fast(DAMAGE, "nan", "one missing"))
def test_bad_vectors_are_refused(damage: str, side: int, imported: Chain, tmp_path: Path) -> None:
    change, code, named = DAMAGE[damage]
    sides = list(vectors(imported))
    captions, ids = captions_of(imported), items(imported, "test")
    last = [captions.loc[captions["item_id"] == ids[-1], "caption_id"].iloc[-1], ids[-1]][side]
    sides[side] = change(sides[side], last)
    chain = Chain(imported.folder, shutil.copytree(imported.root, tmp_path / "ws"))
    done = evaluate(chain, in_npz(tmp_path / "t", sides[0]), in_npz(tmp_path / "v", sides[1]))
    assert (done.code, done.out) == (code, ""), done.err
    assert named.format(last=last) in done.err
    assert not Workspace(chain.root).artifacts("run")


def test_repaired_vectors_are_taken(imported: Chain, tmp_path: Path) -> None:
    chain = Chain(imported.folder, shutil.copytree(imported.root, tmp_path / "ws"))
    texts, visual = vectors(chain)
    files = in_npz(tmp_path / "t", texts), in_npz(tmp_path / "v", _with(visual, items(chain, "test")[-1], NAN))
    assert evaluate(chain, *files).code == 4
    in_npz(tmp_path / "v", visual)
    assert evaluate(chain, *files).code == 0


@pytest.mark.parametrize("side", [0, 1], ids=["texts", "visual"])
def test_ids_twice_and_empty_or_malformed_files(side: int, imported: Chain, tmp_path: Path) -> None:
    chain = Chain(imported.folder, shutil.copytree(imported.root, tmp_path / "ws"))
    good = vectors(chain)
    files = [in_npy(tmp_path / "t", good[0]), in_npy(tmp_path / "v", good[1])]
    first, listed = next(iter(good[side])), files[side].with_suffix(".txt")
    ids = listed.read_text().splitlines()
    listed.write_text("\n".join([*ids[:-1], first]))
    done = evaluate(chain, *files)
    assert (done.code, done.out) == (4, "") and repr(first) in done.err
    listed.write_text("\n".join(ids[:-1]))
    assert evaluate(chain, *files).code == 4, "a list shorter than the array"
    listed.unlink()
    done = evaluate(chain, *files)
    assert done.code == 2 and listed.name in done.err
    empty = tmp_path / "empty.parquet"
    pd.DataFrame({"id": pd.Series([], dtype=str), "vector": pd.Series([], dtype=object)}).to_parquet(empty)
    gaps, words, plain = tmp_path / "gaps.parquet", tmp_path / "words.parquet", tmp_path / "plain.safetensors"
    rows = [row.tolist() for row in good[side].values()]
    pd.DataFrame({"id": list(good[side]), "vector": [*rows[:-1], None]}).to_parquet(gaps)
    pd.DataFrame({"name": list(good[side]), "vector": rows}).to_parquet(words)
    plain.write_bytes(b"\xff" * 64)
    for bad in (empty, gaps, words, plain, tmp_path / "absent.npz"):
        sides = list(files)
        sides[side] = bad
        other = WRITERS["npz"](tmp_path / "other", good[1 - side])
        sides[1 - side] = other
        done = evaluate(chain, *sides)
        code = 4 if bad.exists() else 2
        assert (done.code, done.out) == (code, "") and bad.name in done.err, (bad.name, done.err)


def test_several_vectors_of_one_text_are_averaged(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    captions = pd.DataFrame({"caption_id": ["a", "b", "c", "d"], "text": ["sun", "sun", "moon", "moon"]})
    one, other = np.array([1, 0], np.float32), np.array([0, 3], np.float32)
    path = in_npz(tmp_path / "t", {"b": other, "c": one, "a": one, "d": one, "a query": other})
    read = read_text_vectors(path, captions)
    assert read.texts == ["a query", "moon", "sun"]
    np.testing.assert_array_equal(read.vector_TD, [[0, 3], [1, 0], [0.5, 1.5]])
    err = capsys.readouterr().err
    assert "1 text with several" in err and "'sun'" in err and "'a query'" in err


@pytest.mark.parametrize(
    "words",
    [
        ("--zero-shot", "--text-vectors", "t.npz"),
        ("--text-vectors", "t.npz", "--visual-vectors", "v.npz"),
        ("--zero-shot", "--text-vectors", "t.npz", "--visual-vectors", "v.npz", "--model", "m"),
    ],
)
def test_what_does_not_go_together(words: tuple[str, ...], imported: Chain) -> None:
    done = imported.ccr("evaluate", *words, *CPU)
    assert (done.code, done.out) == (2, "") and "--" in done.err
