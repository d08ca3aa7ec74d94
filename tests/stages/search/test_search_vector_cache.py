"""Vectors that are searched are made once: kept beside no artifact, never stale, safe to delete."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
import toy
from safetensors import safe_open
from toy import Chain

from ccr_cli.artifacts import base, features
from ccr_cli.stages.search import stage

CPU = ("--device", "cpu")


@pytest.fixture
def fresh(finished: Chain) -> Chain:
    """A workspace in which nothing was searched yet."""
    shutil.rmtree(finished.root / ".cache", ignore_errors=True)
    return finished


def search(chain: Chain, *options: str | Path, word: str = "uml", code: int = 0) -> Any:
    done = chain.ccr("search", "rojo", chain.find("run", word).path, "--json", *options, *CPU)
    assert done.code == code, done.err
    return json.loads(done.out) if code == 0 else done.err


def same(one: Any, other: Any) -> bool:
    """Whether two answers are one but for rounding, which depends on where numbers lie in memory."""

    def figures(answer: Any) -> list[float]:
        numbers = [hit.pop(name) for hit in answer["hits"] for name in ("similarity", "probability")]
        return [answer["uncertainty"], *numbers]

    return figures(one) == pytest.approx(figures(other), abs=1e-5) and one["hits"] == other["hits"]


def files(chain: Chain) -> list[Path]:
    """The files of vectors, without those of what probabilities were fitted to."""
    kept = sorted((chain.root / ".cache" / "search").rglob("*.safetensors"))
    return [path for path in kept if b"probability" not in path.read_bytes()]


def without_features(chain: Chain) -> None:
    """Takes the rows of the features away, so that nothing can be embedded."""
    (chain.find("features").path / features.shard_name(0)).unlink()


def test_the_second_search_reads_no_features(fresh: Chain) -> None:
    first = search(fresh)
    assert len(files(fresh)) == 1
    without_features(fresh)
    assert same(search(fresh), first)
    assert "is missing" in search(fresh, "--split", "val", code=4), "of another split nothing is kept"
    files(fresh)[0].unlink()
    assert "is missing" in search(fresh, code=4)


def test_no_artifact_changes(fresh: Chain) -> None:
    run = fresh.find("run", "uml")
    before = toy.digests(run.path)
    search(fresh)
    search(fresh, "--find", "captions")
    assert len(files(fresh)) == 2
    assert toy.digests(run.path) == before and base.load(run.path).id == run.id
    assert fresh.ccr("verify").code == 0


@pytest.mark.parametrize("damage", ["cut", "other"])
def test_a_damaged_file_is_made_again(damage: str, fresh: Chain) -> None:
    first = search(fresh)
    (path,) = files(fresh)
    whole = path.read_bytes()
    if damage == "other":
        search(fresh, "--split", "val")
        (other,) = [p for p in files(fresh) if p != path]
        path.write_bytes(other.read_bytes())
    else:
        path.write_bytes(whole[: len(whole) // 2])
    assert same(search(fresh), first)
    assert len(path.read_bytes()) == len(whole) and len(files(fresh)) in (1, 2)
    without_features(fresh)
    search(fresh)


def test_a_run_that_was_trained_again_is_embedded_again(fresh: Chain) -> None:
    before = search(fresh)
    (old,) = files(fresh)
    run = fresh.find("run", "uml")
    toy.ok(
        "train",
        *("--method", "uml", "--name", run.name, "--force", "--epochs", "2", "--seed", "3", *toy.SMALL),
        workspace=fresh.root,
    )
    after = search(fresh)
    assert files(fresh) != [old] and len(files(fresh)) == 1
    assert [hit["similarity"] for hit in after["hits"]] != [hit["similarity"] for hit in before["hits"]]


def test_where_nothing_can_be_kept_it_is_searched_all_the_same(fresh: Chain) -> None:
    wanted = search(fresh)
    shutil.rmtree(fresh.root / ".cache" / "search")
    (fresh.root / ".cache" / "search").write_text("a file in the way")
    assert same(search(fresh), wanted)


def test_vectors_are_embedded_in_parts(fresh: Chain, monkeypatch: pytest.MonkeyPatch) -> None:
    for find in ("items", "captions"):
        options = ("--split", "all", "--find", find)
        whole = search(fresh, *options)
        (path,) = files(fresh)
        with safe_open(path, framework="pt") as handle:
            ids, rows_VD = json.loads(handle.metadata()["ids"]), handle.get_tensor("vectors")
        path.unlink()
        monkeypatch.setattr(stage, "EMBEDDED", 7)
        assert matches(search(fresh, *options), whole)
        with safe_open(path, framework="pt") as handle:
            assert json.loads(handle.metadata()["ids"]) == ids and path.stat().st_size % 8 == 0
            torch.testing.assert_close(handle.get_tensor("vectors"), rows_VD, rtol=0, atol=1e-6)
        monkeypatch.undo()
        path.unlink()
        monkeypatch.setattr(base, "atomic_open", full)
        monkeypatch.setattr(stage, "EMBEDDED", 7)
        assert matches(search(fresh, *options), whole) and not files(fresh), "there is no room"
        monkeypatch.undo()
        shutil.rmtree(path.parent)


def full(path: Path) -> Any:
    raise OSError(28, "No space left on device")


def matches(answer: Any, whole: Any) -> bool:
    """Whether two answers have the same hits, but for rounding."""
    named = [[hit.get("caption_id", hit["item_id"]) for hit in each["hits"]] for each in (answer, whole)]
    figures = [[hit["similarity"] for hit in each["hits"]] for each in (answer, whole)]
    return named[0] == named[1] and figures[0] == pytest.approx(figures[1], abs=1e-5)
