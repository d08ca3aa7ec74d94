"""A run measured by the protocols of its data set's manifest, against figures counted from its vectors.

Shape suffixes: V visual items, T texts, D embedding.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
import toy
from toy import Chain

from ccr_cli.artifacts import dataset, evaluation
from ccr_cli.artifacts.workspace import Workspace
from ccr_cli.data.splits import items_of
from ccr_cli.stages.shared.inputs import made_from
from ccr_cli.stages.shared.load_run import load_method
from ccr_cli.stages.shared.triplets import read_visuals

Array = npt.NDArray[np.float64]
CPU = ("--device", "cpu")
PROTOCOLS = """
id_space = "toy-shapes"

[[protocols]]
name = "toy-3fold"
folds = 3
captions = 2
note = "four items at a time"
evidence = "documented"

[[protocols]]
name = "toy-5fold"
folds = 5

[[protocols]]
name = "toy-single"
positives = "single"

[[protocols]]
name = "toy-more"
caption_set = "more"
langs = ["es"]

[[protocols]]
name = "toy-first"
items = 8
folds = 2

[[protocols]]
name = "toy-val"
split = "val-report"
folds = 1
"""


def varied(name: str, protocols: str = PROTOCOLS) -> toy.Folder:
    """The toy data set, whose items have one to four Spanish captions, out of order, some of the set `more`."""
    folder = toy.toy(name)
    folder.extra = protocols
    human = [caption for caption in folder.captions if caption[2] == "es"]
    for number, caption in enumerate(human):
        for k in range(number % 4, 0, -1):
            text = f"{caption[4]}, vez {k}"
            folder.captions.insert(0, [f"{caption[1]}-es{k}", caption[1], "es", str(k), text, "more" if k > 1 else ""])
            folder.tables["es-en"][text] = f"{folder.tables['es-en'][caption[4]]}, time {k}"
    return folder


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Chain:
    """A run of a method with an uncertainty on such data; read only."""
    path = tmp_path_factory.mktemp("protocols")
    root = path / "ws"
    source = varied("toy").write(path / "toy")
    toy.ok("data", "import", source, workspace=root)
    toy.ok("translate", "--lang", "es", "--with-queries", workspace=root)
    toy.ok("extract", *toy.ENCODER, workspace=root)
    toy.ok("train", "--method", "uml", "--epochs", "3", "--set", "lr=0.02", *toy.SMALL, workspace=root)
    return Chain(source, root)


@pytest.fixture
def own(measured: Chain, tmp_path: Path) -> Chain:
    """A copy of it for a test to change."""
    root = tmp_path / "ws"
    shutil.copytree(measured.root, root)
    return Chain(measured.folder, root)


def figures(sim_QG: Array, right_QG: npt.NDArray[np.bool_], queries: list[str]) -> dict[str, Any]:
    """One direction, with middle ranks; queries without an answer are left out."""
    rank, precision = {}, []
    for sim_G, right_G, query in zip(sim_QG, right_QG, queries, strict=True):
        wrong = sim_G[~right_G]
        before = sorted(float((wrong > s).sum() + (wrong == s).sum() / 2) for s in sim_G[right_G])
        if before:
            rank[query] = 1 + before[0]
            precision.append(np.mean([n / (n + b) for n, b in enumerate(before, 1)]))
    ranks = list(rank.values())
    out: dict[str, Any] = {f"R@{k}": 100 * np.mean([r <= k for r in ranks]) for k in (1, 5, 10)}
    out |= {"MedR": np.median(ranks), "MeanR": np.mean(ranks), "mAP": 100 * np.mean(precision)}
    return out | {"MRR": 100 * np.mean([1 / r for r in ranks]), "rank": rank}


def expected(
    chain: Chain,
    lang: str,
    split: str,
    folds: int,
    captions: int = 99,
    sets: str = "",
    items: int = 99,
    *,
    single: bool = False,
) -> dict[str, dict[str, Any]]:
    """Figures of both directions, and the rank of each query by its id, from vectors of single texts and items."""
    data = dataset.read(chain.find("dataset", "toy"))
    method, tokenizer = load_method(chain.find("run"), torch.device("cpu"))
    feats = next(f for f in Workspace(chain.root).artifacts("features") if made_from(data.artifact)(f))
    visual, ids = read_visuals(feats, list(items_of(data.items, split)["item_id"])[:items], frozenset())
    chosen: dict[str, list[tuple[int, str, str]]] = {item: [] for item in ids}
    for row in data.captions.to_dict("records"):
        if row["lang"] == lang and row["item_id"] in chosen and sets in ("", row["caption_set"]):
            chosen[row["item_id"]].append((row["k"], row["caption_id"], row["text"]))
    rows = [(item, *caption) for item, found in chosen.items() for caption in sorted(found)[:captions]]
    with torch.no_grad():
        texts = tokenizer.encode([row[3] for row in rows]).select(torch.arange(len(rows)))
        sim_VT = (method.embed_visual(visual) @ method.embed_text(texts).T).double().numpy()
    right_VT = np.array([[row[0] == item for row in rows] for item in ids])
    size, parts = len(ids) // folds, []
    for fold in range(folds):
        at = list(range(fold * size, (fold + 1) * size))
        asked = [t for t, row in enumerate(rows) if row[0] in ids[fold * size : (fold + 1) * size]]
        found_by = [t for t in asked if not single or rows[t][1] == min(chosen[rows[t][0]])[0]]
        texts_T, items_V = [rows[t][2] for t in asked], [ids[v] for v in at]
        parts.append(
            {
                "t2v": figures(sim_VT[at][:, asked].T, right_VT[at][:, asked].T, texts_T),
                "v2t": figures(sim_VT[at][:, found_by], right_VT[at][:, found_by], items_V),
            }
        )
    out: dict[str, dict[str, Any]] = {}
    for side in ("t2v", "v2t"):
        sides = [part[side] for part in parts]
        out[side] = {key: float(np.mean([s[key] for s in sides])) for key in sides[0] if key != "rank"}
        out[side]["rank"] = {query: rank for s in sides for query, rank in s["rank"].items()}
    return out


def evaluate(chain: Chain, *options: str | Path) -> tuple[list[dict[str, Any]], Any, toy.Outcome]:
    done = toy.ok("evaluate", chain.find("run").path, *options, *CPU, workspace=chain.root)
    return evaluation.results(done.made), evaluation.read_ranks(done.made), done


def fields(result: dict[str, Any]) -> dict[str, str]:
    return dict(result["signature"].fields)


@pytest.mark.parametrize(
    ("name", "how", "signed"),
    [
        ("toy-3fold", {"split": "test", "folds": 3, "captions": 2}, {"gallery": "3x4", "pos": "any"}),
        ("toy-single", {"split": "test", "folds": 1, "single": True}, {"gallery": "12", "pos": "single"}),
        ("toy-more", {"split": "test", "folds": 1, "sets": "more"}, {"gallery": "12", "caption_set": "more"}),
        pytest.param(
            "toy-first",
            {"split": "test", "folds": 2, "items": 8},
            {"gallery": "2x4", "pos": "any"},
            marks=pytest.mark.slow,
        ),
        pytest.param(
            "toy-val",
            {"split": "val-report", "folds": 1},
            {"split": "val-report", "pos": "any"},
            marks=pytest.mark.slow,
        ),
    ],
)
def test_figures_are_those_of_the_protocol(
    name: str, how: dict[str, Any], signed: dict[str, str], measured: Chain
) -> None:
    found, ranks, done = evaluate(measured, "--protocol", name)
    plain = [n for n, result in enumerate(found) if result["fusion"] == "none"]
    assert [found[n]["lang"] for n in plain] == (["es"] if name == "toy-more" else ["es", "en"])
    assert done.made.name == f"{measured.find('run').name}-{name}"
    for number in plain:
        result = found[number]
        wanted = expected(measured, result["lang"], **how)
        told = fields(result)
        assert {key: told[key] for key in signed} == signed
        assert (told["protocol"], told["leak"]) == (name, "own-split")
        assert int(told["q"]) == len(wanted["t2v"]["rank"]) == result["t2v"]["queries"]
        for side in ("t2v", "v2t"):
            rank = wanted[side].pop("rank")
            assert {key: result[side][key] for key in wanted[side]} == pytest.approx(wanted[side])
            mine = ranks[(ranks["result"] == number) & (ranks["direction"] == side)]
            assert dict(zip(mine["query_id"], mine["rank"], strict=True)) == pytest.approx(rank)
            assert mine["uncertainty"].notna().all()
            assert result["calibration"][side]["queries"] == len(mine)
            assert result["calibration"][side]["aurc_random"] == pytest.approx((mine["rank"] > 1).mean())
        assert result["SumR"] == pytest.approx(sum(wanted[s][f"R@{k}"] for s in ("t2v", "v2t") for k in (1, 5, 10)))
        low, high = result["intervals"]["SumR"]
        assert low <= result["SumR"] <= high
    assert any("0.8raw" in result["fusion"] for result in found), "translated queries are fused here too"


def test_the_uncertainty_is_that_of_the_fold(measured: Chain) -> None:
    """UML's looks at the gallery, so a fold's is that of its own four items."""
    found, ranks, _ = evaluate(measured, "--protocol", "toy-3fold")
    number = next(n for n, r in enumerate(found) if (r["lang"], r["fusion"]) == ("en", "none"))
    data = dataset.read(measured.find("dataset"))
    method, tokenizer = load_method(measured.find("run"), torch.device("cpu"))
    items = list(items_of(data.items, "test")["item_id"])[4:8]
    captions = data.captions[(data.captions["lang"] == "en") & data.captions["item_id"].isin(items)]
    visual, _ = read_visuals(measured.find("features"), items, frozenset())
    with torch.no_grad():
        texts = tokenizer.encode(list(captions["text"])).select(torch.arange(len(captions)))
        unc_T = method.score(method.embed_text(texts), method.embed_visual(visual))[1]
    mine = ranks[(ranks["result"] == number) & (ranks["direction"] == "t2v")].set_index("query_id")["uncertainty"]
    assert unc_T is not None
    assert mine.loc[list(captions["caption_id"])].to_numpy() == pytest.approx(unc_T.numpy(), rel=1e-5)


def test_full_is_what_it_was(measured: Chain) -> None:
    usual, _, first = evaluate(measured)
    same, _, second = evaluate(measured, "--protocol", "full", "--split", "test")
    assert first.made.id == second.made.id and usual == same
    assert "drop_leaks" not in first.made.request and first.made.request["split"] == "test"
    assert fields(usual[0])["protocol"] == "full"


def test_options_that_say_the_same_change_nothing(measured: Chain) -> None:
    _, _, first = evaluate(measured, "--protocol", "toy-more")
    _, _, second = evaluate(measured, "--protocol", "toy-more", "--split", "test", "--caption-set", "more")
    assert first.made.id == second.made.id


@pytest.mark.parametrize(
    ("options", "code", "message"),
    [
        (("toy-3fold", "--split", "val"), 2, "toy-3fold uses the split test, not val"),
        (("toy-3fold", "--caption-set", "more"), 2, "captions of all sets, not --caption-set more"),
        (("toy-more", "--caption-set", "main"), 2, "the caption set more, not --caption-set main"),
        (("toy-more", "--lang", "en"), 2, "toy-more has queries in es, not in en"),
        (("toy-5fold",), 4, "toy-5fold is a mean over 5 folds of equal size, and toy has 12 test items"),
        (("toy-4fold",), 2, "of its manifest: toy-3fold, toy-5fold, toy-single"),
        (("toy-3fold", "--zero-shot"), 4, "there is no other data set"),
        (("toy-3fold", "--drop-leaks"), 2, "--drop-leaks goes with --zero-shot"),
        (("full", "--translate-test", "--fusion", "minmax"), 2, "--fusion minmax has no effect on --translate-test"),
    ],
)
def test_contradictions_are_refused(options: tuple[str, ...], code: int, message: str, measured: Chain) -> None:
    done = measured.ccr("evaluate", measured.find("run").path, "--protocol", *options, *CPU)
    assert (done.code, done.out) == (code, "") and message in done.err, done.err


def test_a_wrong_protocol_is_refused_at_the_import(tmp_path: Path) -> None:
    source = varied("toy", '[[protocols]]\nname = "mine"\nfold = 5').write(tmp_path / "toy", pictures=False)
    for done in (toy.ccr("data", "verify", source), toy.ccr("data", "import", source, workspace=tmp_path / "ws")):
        assert done.code == 4 and "manifest.toml: protocol 'mine' has the key 'fold'" in done.err


def test_the_card_lists_the_protocols(measured: Chain) -> None:
    for shown in (measured.ccr("data", "describe", "toy"), toy.ccr("data", "describe", measured.folder)):
        assert shown.code == 0
        rows = [line.split("\t") for line in shown.out.splitlines()]
        assert [row[1] for row in rows if row[0] == "protocol"] == [
            "toy-3fold: four items at a time (documented)",
            *(f"toy-{name}" for name in ("5fold", "single", "more", "first", "val")),
        ]


@pytest.mark.slow
def test_folds_keep_their_items_where_features_are_missing(tmp_path: Path) -> None:
    """The second test item cannot be read: its fold has three items, and the others are not moved on."""
    folder, root = varied("toy"), tmp_path / "ws"
    tested = [item for item in folder.items if item[1] == "test"]
    source = folder.write(tmp_path / "toy")
    (source / "media" / tested[1][3]).write_bytes(b"not a picture")
    toy.ok("data", "import", source, workspace=root)
    toy.ok("translate", "--lang", "es", workspace=root)
    assert toy.ccr("extract", *toy.ENCODER, workspace=root).code == 3
    toy.ok("train", "--method", "infonce", "--epochs", "1", *toy.SMALL, workspace=root)
    done = toy.ok("evaluate", "--protocol", "toy-3fold", *CPU, workspace=root)
    assert "1 test item of toy" in done.err
    found, ranks = evaluation.results(done.made), evaluation.read_ranks(done.made)
    assert {fields(result)["gallery"] for result in found} == {"3x3-4"}
    v2t = ranks[(ranks["result"] == 0) & (ranks["direction"] == "v2t")]
    assert list(v2t["query_id"]) == [item[0] for item in tested if item is not tested[1]]
    assert v2t["rank"].iloc[:3].max() <= len([c for c in folder.captions if c[2] == "es"])


def protocol(result: dict[str, Any]) -> str:
    return fields(result)["protocol"].partition("@")[0]


def other(chain: Chain, path: Path, name: str, protocols: str) -> None:
    folder = varied(name, protocols)
    made = toy.ok("data", "import", folder.write(path / name), workspace=chain.root).made
    toy.ok("extract", made.path, *toy.ENCODER, workspace=chain.root)


@pytest.mark.slow
def test_zero_shot_goes_by_each_collections_own_protocol(own: Chain, tmp_path: Path) -> None:
    other(own, tmp_path, "folded", '[[protocols]]\nname = "mine"\nfolds = 2\nlangs = ["es"]')
    other(own, tmp_path, "single", '[[protocols]]\nname = "mine"\npositives = "single"')
    other(own, tmp_path, "without", '[[protocols]]\nname = "theirs"')
    other(own, tmp_path, "uneven", '[[protocols]]\nname = "mine"\nfolds = 7')
    found, _, done = evaluate(own, "--zero-shot", "--protocol", "mine")
    told = [(r["data"], r["lang"], protocol(r), *(fields(r)[k] for k in ("gallery", "pos"))) for r in found]
    assert told == [
        ("folded", "es", "zero-shot-mine-from:toy", "2x6", "any"),
        ("single", "en", "zero-shot-mine-from:toy", "12", "single"),
        ("single", "es", "zero-shot-mine-from:toy", "12", "single"),
    ]
    assert "left out: without has no protocol 'mine'" in done.err and "of its manifest: theirs" in done.err
    assert "left out: mine is a mean over 7 folds of equal size, and uneven has 12 test items" in done.err
    assert "-zero-shot-mine-" in done.made.name
    for result in found:  # the same pictures, captions and protocol as on the run's own data, by another name
        folded = result["data"] == "folded"
        wanted = expected(own, result["lang"], "test", 2 if folded else 1, single=not folded)
        for side in ("t2v", "v2t"):
            del wanted[side]["rank"]
            assert {key: result[side][key] for key in wanted[side]} == pytest.approx(wanted[side])


@pytest.mark.slow
def test_a_variant_of_the_same_collection_is_measured_if_it_is_named_as_no_transfer(tmp_path: Path) -> None:
    root = tmp_path / "ws"
    for name, collection in (("toy", "c"), ("toy-more", "c"), ("other", "d")):
        made = toy.ok(
            "data", "import", varied(name, f'collection = "{collection}"').write(tmp_path / name), workspace=root
        ).made
        toy.ok("extract", made.path, *toy.ENCODER, workspace=root)
    chain = Chain(tmp_path / "toy", root)
    toy.ok("translate", root / "datasets/toy", "--lang", "es", workspace=root)
    toy.ok("train", root / "datasets/toy", "--method", "infonce", "--epochs", "1", *toy.SMALL, workspace=root)
    found, _, done = evaluate(chain, "--zero-shot")
    assert {(r["data"], r["zero_shot"], protocol(r)) for r in found} == {("other", True, "zero-shot-from:toy")}
    assert "left out: toy-more is of the collection that the run was trained on, c" in done.err
    named, _, _ = evaluate(chain, "--zero-shot", root / "datasets/toy-more")
    assert {(r["data"], r["zero_shot"], protocol(r)) for r in named} == {("toy-more", False, "full-from:toy")}


def test_what_fits_nowhere_is_refused_with_all_reasons(own: Chain, tmp_path: Path) -> None:
    other(own, tmp_path, "one", '[[protocols]]\nname = "mine"\nlangs = ["es"]')
    arguments = ("evaluate", own.find("run").path, *CPU)
    done = own.ccr(*arguments, "--zero-shot", "--protocol", "theirs")
    assert done.code == 2 and "one has no protocol 'theirs'" in done.err and "its manifest: mine" in done.err
    other(own, tmp_path, "two", "")
    done = own.ccr(*arguments, "--zero-shot", "--protocol", "mine", "--lang", "en")
    assert (done.code, done.out) == (2, "")
    assert "mine has queries in es, not in en" in done.err and "two has no protocol 'mine'" in done.err
    named = own.ccr(*arguments, "--zero-shot", own.root / "datasets/two", "--protocol", "mine")
    assert named.code == 2 and "two has no protocol 'mine'" in named.err and "one" not in named.err


@pytest.mark.slow
def test_a_collection_without_the_language_is_left_out(own: Chain, tmp_path: Path) -> None:
    folder = varied("french")
    for caption in folder.captions:
        caption[2] = {"es": "fr"}.get(caption[2], caption[2])
    made = toy.ok("data", "import", folder.write(tmp_path / "french"), workspace=own.root).made
    toy.ok("extract", made.path, *toy.ENCODER, workspace=own.root)
    other(own, tmp_path, "spanish", "")
    found, _, done = evaluate(own, "--zero-shot", "--lang", "es")
    assert [(r["data"], r["lang"]) for r in found] == [("spanish", "es"), ("spanish", "en")]
    assert "left out: french has no captions in es for its test items" in done.err
    found, _, done = evaluate(own, "--zero-shot", "--lang", "es", "--lang", "fr")
    assert {(r["data"], r["lang"]) for r in found} == {
        (name, lang) for name in ("french", "spanish") for lang in ("en", {"french": "fr"}.get(name, "es"))
    }
    assert "french has no captions in es" in done.err and "spanish has no captions in fr" in done.err


def test_a_collection_without_categories_is_left_out_by_category(own: Chain, tmp_path: Path) -> None:
    folder = varied("unlabelled")
    next(item for item in folder.items if item[1] == "test")[4] = ""
    made = toy.ok("data", "import", folder.write(tmp_path / "unlabelled"), workspace=own.root).made
    toy.ok("extract", made.path, *toy.ENCODER, workspace=own.root)
    other(own, tmp_path, "labelled", "")
    found, _, done = evaluate(own, "--zero-shot", "--protocol", "labelled")
    told = ("labelled", "zero-shot-labelled-from:toy", "label")
    assert {(r["data"], protocol(r), fields(r)["pos"]) for r in found} == {told}
    assert "left out: unlabelled has test items without a category (a label)" in done.err


def test_a_source_language_without_captions_is_not_beside(own: Chain, tmp_path: Path) -> None:
    folder = varied("bare")
    tested = {item[0] for item in folder.items if item[1] == "test"}
    folder.captions = [c for c in folder.captions if c[2] == "es" or c[1] not in tested]
    made = toy.ok("data", "import", folder.write(tmp_path / "bare"), workspace=own.root).made
    toy.ok("extract", made.path, *toy.ENCODER, workspace=own.root)
    found, _, done = evaluate(own, "--zero-shot")
    assert [r["lang"] for r in found] == ["es"]
    assert "bare has no captions in en for its test items" in done.err


def test_a_protocol_can_be_asked_for_in_json(measured: Chain) -> None:
    done = measured.ccr("evaluate", measured.find("run").path, "--protocol", "toy-val", *CPU, "--json")
    assert done.code == 0 and json.loads(done.out)
