"""Queries that do not belong to a gallery beside those that do, against pairs counted one by one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
import toy
from scipy.special import softmax
from toy import Chain

from ccr_cli.artifacts import base, dataset, evaluation
from ccr_cli.artifacts.signature import Signature
from ccr_cli.data.splits import items_of
from ccr_cli.errors import ArtifactError
from ccr_cli.methods.base import Method
from ccr_cli.stages.evaluate.uncertainty import halves
from ccr_cli.stages.shared.embedding import embed_visuals, encode_and_embed
from ccr_cli.stages.shared.load_run import load_method
from ccr_cli.stages.shared.scoring import EmbeddedGallery, Queries
from ccr_cli.stages.shared.triplets import gallery

CPU = ("--device", "cpu")


def sides(chain: Chain, trained: base.Artifact, lang: str) -> tuple[Method, EmbeddedGallery, dataset.Dataset]:
    """A run's test gallery as vectors."""
    data = dataset.read(chain.find("dataset", "toy"))
    method, tokenizer = load_method(trained, torch.device("cpu"))
    captions = data.captions[data.captions["lang"] == lang]
    found = gallery(data, chain.find("features"), "test", captions, "captions", frozenset())
    texts = encode_and_embed(method, tokenizer, found.texts, torch.device("cpu"))
    return method, EmbeddedGallery(found, embed_visuals(method, found.visual, torch.device("cpu")), texts), data


def scores(method: Method, queries: Queries, temperature: float = 0.0) -> Iterator[dict[str, float]]:
    """Of one query after the other, in float64 but for the method's own; that of a softmax where it has none."""
    for query_D in queries.query_QD:
        near = np.sort((queries.gallery_GD.double() @ query_D.double()).numpy())
        own = method.score(query_D[None], queries.gallery_GD)[1]
        stated = 1 - softmax(near / temperature)[-1] if own is None else float(own)
        yield {"uncertainty": stated, "top similarity": -near[-1], "margin": near[-2] - near[-1]}


def counted(known: list[dict[str, float]], unknown: list[dict[str, float]], name: str) -> float:
    """AUROC by pairs."""
    pairs = [(float(a[name]), float(b[name])) for a in known for b in unknown]
    return float(np.mean([(b > a) + 0.5 * (a == b) for a, b in pairs]))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["uml", "infonce"])
def test_half_of_the_items_taken_out_ask_the_others(name: str, finished: Chain) -> None:
    trained = finished.find("run", name)
    done = toy.ok("evaluate", trained.path, "--ood", "half", *CPU, workspace=finished.root)
    everything = evaluation.results(done.made)
    assert [(r["lang"], r["fusion"]) for r in everything if "ood" in r] == [("es", "none"), ("en", "none")]
    method, whole, data = sides(finished, trained, "es")
    known, unknown = halves(whole, data)
    (result,) = (r for r in everything if "ood" in r and r["lang"] == "es")
    ood = result["ood"]
    plain = result["signature"].fields
    changed = {"protocol": "full-ood-half-seed0", "gallery": "2x6"}
    assert Signature.parse(ood["signature"]).fields == plain | changed and ood["of"] == "half-seed0"
    for direction in ("t2v", "v2t"):
        told = ood[direction]
        (fitted,) = result["temperature"]
        before, after = (
            [s for each in kind for s in scores(method, each[direction], fitted)] for kind in (known, unknown)
        )
        assert told["known"] == told["unknown"] == len(before) == len(after)
        for score, found in told["trivial"].items():
            assert found["auroc"] == pytest.approx(counted(before, after, score), abs=1e-9)
            assert found["means"] == pytest.approx([np.mean([s[score] for s in kind]) for kind in (before, after)])
            assert "gap" in found
        assert told["auroc"] == pytest.approx(counted(before, after, "uncertainty"), abs=1e-9)
        assert told["interval"][0] <= told["auroc"] <= told["interval"][1]
    rows = evaluation.read_outside(done.made)
    assert rows is not None and "toy es: T2V out of distribution (half-seed0), AUROC: " in done.err
    share = f"{ood['t2v']['auroc']:.0%} (T2V)"
    assert (
        done.err.startswith("toy es: uncertainty distinguishes a query without a match")
        and share in done.err.splitlines()[0]
    )
    own = rows[(rows["result"] == everything.index(result)) & (rows["direction"] == "v2t")]
    wanted = [
        s["uncertainty"] for kind in (known, unknown) for each in kind for s in scores(method, each["v2t"], fitted)
    ]
    assert own["uncertainty"].to_numpy() == pytest.approx(wanted, rel=1e-4)
    assert own["left_out"].to_list() == [False] * 12 + [True] * 12
    if name == "uml":
        page = toy.ok("report", workspace=finished.root).made
        assert "figures/outside.svg" in {file.path for file in page.files}
        html = page.file("report.html").read_text(encoding="utf-8")
        assert "Without a match: queries whose items were removed" in html


def test_a_query_meets_its_item_once_and_once_not(chain: Chain) -> None:
    _, whole, data = sides(chain, chain.find("run", "uml"), "en")
    data.items["group"] = (data.items["label"] // 8).astype(str)
    groups = dict(zip(data.items["item_id"], data.items["group"], strict=True))
    known, unknown = halves(whole, data)
    parts = [set(each["v2t"].ids) for each in known]
    assert parts[0] | parts[1] == set(whole.gallery.item_ids) and not parts[0] & parts[1]
    assert not {groups[i] for i in parts[0]} & {groups[i] for i in parts[1]}
    row_of = {item: whole.visual_VD[row] for row, item in enumerate(whole.gallery.item_ids)}
    for kind, belongs in ((known, True), (unknown, False)):
        assert sorted(i for each in kind for i in each["t2v"].ids) == sorted(whole.gallery.caption_ids)
        for each in kind:
            for item in each["t2v"].items:
                assert (each["t2v"].gallery_GD == row_of[item]).all(dim=1).any() == belongs
    data.items["group"] = "one"
    with pytest.raises(ArtifactError, match=r"\b1 item\b"):
        halves(whole, data)


def test_an_item_without_captions_has_no_match_anywhere_but_stays_in_the_gallery(tmp_path: Path) -> None:
    root, mute = tmp_path, "red-cross"
    folder = toy.toy()
    assert [mute, "test"] in [item[:2] for item in folder.items]
    folder.captions = [caption for caption in folder.captions if caption[1] != mute or caption[2] != "es"]
    toy.ok("data", "import", folder.write(root / "source"), workspace=root)
    toy.ok("translate", "--lang", "es", workspace=root)
    toy.ok("extract", *toy.ENCODER, workspace=root)
    toy.ok("train", "--method", "infonce", "--epochs", "1", *toy.SMALL, workspace=root)
    options = ("--ood", "half", "--lang", "es", "--queries", "human", *CPU)
    result, *_ = evaluation.results(toy.ok("evaluate", *options, workspace=root).made)
    told = result["ood"]
    assert [(told[d]["known"], told[d]["unknown"]) for d in ("t2v", "v2t")] == [(11, 11), (11, 11)]
    assert Signature.parse(told["signature"]).gallery == "2x6" and result["signature"].gallery == "12"


def test_captions_of_another_data_set_ask(finished: Chain) -> None:
    other = toy.toy("other")
    other.extra = ""
    other.captions = [[c[0], c[1], c[2], c[3], f"{c[4]} auf dem Mond", c[5]] for c in other.captions if c[2] == "es"]
    toy.ok("data", "import", other.write(finished.root / "source"), workspace=finished.root)
    trained = finished.find("run", "uml")
    done = toy.ok("evaluate", trained.path, "--ood", "other", *CPU, workspace=finished.root)
    assert "other has no en captions for its test items" in done.err
    everything = evaluation.results(done.made)
    (result,) = (r for r in everything if "ood" in r)
    method, whole, _ = sides(finished, trained, "es")
    strange = dataset.read(finished.find("dataset", "other"))
    assert [p.id for p in done.made.parents if p.kind == "dataset"][-1] == strange.artifact.id
    tested = set(items_of(strange.items, "test")["item_id"])
    texts = list(strange.captions.loc[strange.captions["item_id"].isin(tested), "text"])
    tokenizer = load_method(trained, torch.device("cpu"))[1]
    text_TD = encode_and_embed(method, tokenizer, texts, torch.device("cpu"))
    unknown = list(scores(method, Queries([], [], text_TD, whole.visual_VD)))
    known = list(scores(method, Queries([], [], whole.text_TD, whole.visual_VD)))
    assert set(result["ood"]) == {"of", "signature", "t2v"}
    told = result["ood"]["t2v"]
    assert (told["known"], told["unknown"]) == (len(known), len(unknown))
    assert told["auroc"] == pytest.approx(counted(known, unknown, "uncertainty"), abs=1e-9)
    assert told["trivial"]["margin"]["auroc"] == pytest.approx(counted(known, unknown, "margin"), abs=1e-9)
    named = f"full-ood-other@{strange.artifact.id[:8]}"
    assert Signature.parse(result["ood"]["signature"]).fields["protocol"] == named
    # its path is the same request
    again = toy.ok("evaluate", trained.path, "--ood", "datasets/other", *CPU, workspace=finished.root)
    assert again.made.id == done.made.id


@pytest.mark.parametrize(
    ("options", "code", "said"),
    [
        (("--ood", "half", "--task", "text"), 2, "--ood does not go with --task text"),
        (("--ood", "half", "--zero-shot"), 2, "--ood does not go with --zero-shot"),
        (("--ood", "half", "--protocol", "labelled"), 2, "--ood does not go with --protocol labelled"),
        (("--ood", "toy"), 2, "--ood toy"),
        (("--ood", "nothing"), 4, "nothing"),
    ],
)
def test_what_cannot_be_asked_is_refused(options: tuple[str, ...], code: int, said: str, finished: Chain) -> None:
    done = finished.ccr("evaluate", finished.find("run", "uml").path, *options)
    assert done.code == code and said in done.err


def test_items_of_the_gallery_are_no_strangers(finished: Chain) -> None:
    same = toy.toy("same")
    toy.ok("data", "import", same.write(finished.root / "source"), workspace=finished.root)
    done = finished.ccr("evaluate", finished.find("run", "uml").path, "--ood", "same")
    assert done.code == 4 and "same (test) shares 12 groups with toy" in done.err


@pytest.mark.slow
def test_folds_and_single_answers(tmp_path: Path) -> None:
    folder = toy.toy("cut")
    folder.extra = '[[protocols]]\nname = "cut"\nfolds = 3\npositives = "single"'
    toy.ok("data", "import", folder.write(tmp_path / "cut"), workspace=tmp_path)
    toy.ok("translate", "--lang", "es", workspace=tmp_path)
    toy.ok("extract", *toy.ENCODER, workspace=tmp_path)
    toy.ok("train", "--method", "uml", "--epochs", "1", *toy.SMALL, workspace=tmp_path)
    options = ("--protocol", "cut", "--lang", "en", "--ood", "half", "--corrupt", "0.5")
    intact, worse = evaluation.results(toy.ok("evaluate", *options, *CPU, workspace=tmp_path).made)
    assert [Signature.parse(str(r["signature"])).gallery for r in (intact, intact["ood"], worse)] == [
        "3x4",
        "2x6",
        "3x4",
    ]
    for told in (intact["ood"], worse["told_apart"]):
        # two captions an item ask; an item asks once and finds one caption of each
        assert [(told[d]["known"], told[d]["unknown"]) for d in ("t2v", "v2t")] == [(24, 24), (12, 12)]
    assert "ood" not in worse and "told_apart" not in intact
