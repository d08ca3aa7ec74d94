"""Noise that no judge was built for: what training, the oracle, the logs, the diagnosis and the report make of it."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import toy
from toy import Chain

from ccr_cli.artifacts import dataset, diagnosis, evaluation, noise, run
from ccr_cli.artifacts.parquet import read_table
from ccr_cli.artifacts.workspace import Workspace
from ccr_cli.data.mismatch import STYLES, TARGETS_OF
from ccr_cli.data.seeds import derive
from ccr_cli.metrics.corruption import mix_words
from ccr_cli.stages.shared.inputs import Inputs
from ccr_cli.stages.shared.triplets import Triplets, training_triplets
from ccr_cli.stages.train.sources import find_sources, make_noise
from ccr_cli.stages.translate.options import MismatchOptions

KINDS = [(style, target) for style in STYLES for target in TARGETS_OF[style] if style not in ("caption", "image")]


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A workspace with translations into two languages, and their ways back."""
    place = tmp_path_factory.mktemp("styles")
    root = place / "workspace"
    toy.ok("data", "import", toy.bilingual().write(place / "toy"), workspace=root)
    toy.ok("translate", "--lang", "es", "--lang", "fr", "--back", workspace=root)
    toy.ok("extract", *toy.ENCODER, workspace=root)
    return root


@pytest.mark.parametrize(("style", "target"), KINDS)
def test_the_triplets_are_those_of_the_artifact_in_every_language(style: str, target: str, root: Path) -> None:
    sources = find_sources(Inputs(Workspace(root)), "es+fr", "infonce")
    made = make_noise(Workspace(root), sources.data, 0.5, MismatchOptions(noise_style=style, noise_target=target))
    drawn, data = noise.read(made), dataset.read(sources.data)
    facts = made.json("noise.json")
    assert facts["effective"] == made.counts["mismatched"] / len(drawn) and 0.3 < facts["effective"] <= 0.5
    assert [parent.kind for parent in made.parents] == ["dataset"]
    found: Triplets = training_triplets(data, sources.translations(), drawn, sources.features)
    english = data.captions[data.captions["lang"] == "en"].set_index("caption_id")["text"]
    for (_, part), lang in zip(found.by_translation(), ("es", "fr"), strict=True):
        table = toy.bilingual().tables[f"en-{lang}"]
        assert part.wrong is not None and part.back is not None
        for number, row in enumerate(drawn.to_dict("records")):
            text = table[english[row["given_translation_of"]]]
            if row.get("words_of"):
                seed = derive(0, "words", row["slot_id"], row["words_of"])
                other = english[row["words_of"]]
                back = mix_words(english[row["slot_id"]], other, lang, seed)
                assert part.back[number] == back != part.source[number], "its way back is as wrong"
                text = mix_words(text, table[other], lang, seed)
                assert text != table[english[row["slot_id"]]]
            assert part.target[number] == text
            assert part.source[number] == english[row["given_source_id"]]
            assert found.item_ids[int(part.item_N[number])] == row["given_item_id"]
        flags = ["vs_wrong", "vt_wrong", "st_wrong"]
        pd.testing.assert_frame_equal(part.wrong[flags], drawn[flags])
        assert ("partly" in part.wrong) == (style == "words")


@pytest.fixture(scope="module")
def trained(sources: Chain, tmp_path_factory: pytest.TempPathFactory) -> Chain:
    """Runs with the oracle on pairs that are wrong in a part, and on pairs of which V, S or T alone moved."""
    workspace = Chain(sources.folder, tmp_path_factory.mktemp("noise styles") / "workspace")
    shutil.copytree(sources.root, workspace.root)
    for style in ("words", "mixed"):
        options = ("--noise", "0.5", "--noise-style", style, "--set", "judge=oracle", "--epochs", "1", "--name", style)
        toy.ok("train", "--method", "infonce", *options, *toy.SMALL, workspace=workspace.root)
    return workspace


@pytest.mark.parametrize("style", ["words", "mixed"])
def test_oracle_logs_and_diagnosis_know_the_truth(style: str, trained: Chain) -> None:
    made = trained.find("run", style)
    (artifact,) = (a for a in Workspace(trained.root).artifacts("noise") if a.request["style"] == style)
    drawn = noise.read(artifact).set_index("slot_id")
    kept = read_table(made.file("evidence/epoch-001.parquet"), run.EVIDENCE).set_index("slot_id")
    assert (kept["p_clean"] == 1 - drawn.loc[kept.index, "vt_wrong"].astype(int)).all()
    found = toy.ok("diagnose", made.path, "--judge", "oracle", "--device", "cpu", workspace=trained.root).made
    pairs: Any = diagnosis.read_pairs(found).set_index("slot_id")
    rows = drawn.loc[pairs.index]
    for column, flag in (("p_vs", "vs_wrong"), ("p_clean", "vt_wrong"), ("p_st", "st_wrong")):
        assert (pairs[column] == 1 - rows[flag].astype(int)).all()
    called = "partly" if style == "words" else "noisy"
    assert (pairs["truth"] == rows["vt_wrong"].map({True: called, False: "clean"})).all()
    assert (pairs["source_caption_id"] == rows["given_source_id"]).all()
    assert (pairs["item_id"] == rows["given_item_id"]).all()
    assert diagnosis.summary(found)["detection"]["auroc"] == 1.0


@pytest.mark.slow
@pytest.mark.usefixtures("unillustrated")
def test_the_report_and_the_signature_name_the_noise(trained: Chain) -> None:
    for style, target in (("words", "translation"), ("mixed", "any")):
        path = trained.find("run", style).path
        made = toy.ok("evaluate", path, "--device", "cpu", workspace=trained.root).made
        results = evaluation.results(made)
        assert all(f"noise:{style}-{target}-0.5-seed0" in str(result["signature"]) for result in results)
    page = toy.ok("report", workspace=trained.root).made.file("report.html").read_text(encoding="utf-8")
    assert "partly wrong" in page and "translations, pictures or captions switched" in page
