"""The fusion of witnesses against loops, and judges whose witnesses are named."""

from __future__ import annotations

import statistics
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import tinytext
import torch
import toy
from toy import Chain
from transformers import AutoModel, AutoTokenizer

from ccr_cli.artifacts import diagnosis
from ccr_cli.data.score_file import read_scores
from ccr_cli.errors import UsageError
from ccr_cli.judges import fusion, lexical, scores
from ccr_cli.judges.base import FloatArray
from ccr_cli.stages.shared.sentences import pooling_of, sentence_vectors

NORMAL = statistics.NormalDist()


def by_hand(given: list[FloatArray], null: list[FloatArray]) -> list[list[float]]:
    """The fused scores of given and shuffled pairs, in lists of witnesses."""
    rank: list[list[list[float]]] = [[[], []] for _ in given]
    for w, (own, other) in enumerate(zip(given, null, strict=True)):
        known = [x for x in own if x == x]
        for s, side in enumerate((own, other)):
            for x in side:
                place = sum(y < x for y in known) + sum(y == x for y in known) / 2
                place = min(max(place, 0.25), len(known) - 0.25)
                rank[w][s].append(NORMAL.inv_cdf(place / len(known)) if x == x else float("nan"))
    z = [[0.0 if x != x else x for x in rank[w][0]] for w in range(len(given))]
    dot = [[sum(a * b for a, b in zip(one, other, strict=True)) for other in z] for one in z]
    r = [[dot[i][j] / (dot[i][i] * dot[j][j]) ** 0.5 for j in range(len(z))] for i in range(len(z))]
    weight = [max(0.0, sum(row)) for row in r]
    out: list[list[float]] = [[], []]
    for s in (0, 1):
        for n in range(len(rank[0][s])):
            used = [w for w in range(len(z)) if rank[w][s][n] == rank[w][s][n]]
            variance = sum(weight[i] * weight[j] * r[i][j] for i in used for j in used)
            total = sum(weight[w] * rank[w][s][n] for w in used)
            out[s].append(total / variance**0.5 if variance else 0.0)
    return out


def test_fused_scores_are_those_by_hand() -> None:
    rng = np.random.default_rng(0)
    truth, shuffled = rng.normal(size=40), rng.normal(-3, 1, 15)
    given = [np.round(truth + rng.normal(0, width, 40), 1) for width in (0.5, 1, 4)]
    null = [shuffled + rng.normal(0, 0.5, 15) for _ in given]
    given[1][3:9], given[0][5], given[2][5], null[2][:] = np.nan, np.nan, np.nan, -np.inf
    for got, expected in zip(fusion.fused(zip(given, null, strict=True)), by_hand(given, null), strict=True):
        assert got == pytest.approx(expected, abs=1e-9)


def test_one_witness_decides_as_it_does_alone_and_more_decide_better() -> None:
    rng = np.random.default_rng(1)
    wrong = rng.random(2000) < 0.2
    sides = [(rng.normal(np.where(wrong, -2, 0), 1), rng.normal(-2, 1, 400)) for _ in range(3)]
    alone = lexical.clean_probability(*sides[0])
    assert fusion.clean_probability(*fusion.fused(sides[:1])) == pytest.approx(alone, abs=1e-9)
    p = fusion.clean_probability(*fusion.fused(sides))
    assert ((p < 0.5) == wrong).mean() > ((alone < 0.5) == wrong).mean() + 0.02
    assert (p < 0.5).mean() == pytest.approx(0.2, abs=0.03)


def test_scores_are_an_order() -> None:
    assert list(scores.clean_probability(np.array([0.2, np.nan, 0.9, 0.2, -4]))) == [0.875, 1, 1, 0.875, 0.625]


@pytest.mark.parametrize(
    ("name", "content", "expected"),
    [
        ("a.csv", "caption_id,score\nx,0.5\nz,-1\n", [0.5, None, -1]),
        ("a.tsv", "Score\tslot_id\tlang\n1\tx\tde\n2\tx\tes\n", [2, None, None]),
        ("a.jsonl", '{"source_caption_id": "y", "score": 3}\n', [None, 3, None]),
        ("a.txt", "1\n2.5\n-3\n", [1, 2.5, -3]),
    ],
)
def test_files_of_scores(name: str, content: str, expected: list[float | None], tmp_path: Path) -> None:
    (tmp_path / name).write_text(content)
    got = read_scores(tmp_path / name, ["x", "y", "z"], "es")
    assert [None if x != x else x for x in got] == expected
    pd.DataFrame({"caption_id": ["z"], "score": [7.0]}).to_parquet(tmp_path / "a.parquet")
    assert read_scores(tmp_path / "a.parquet", ["z"], "es") == [7.0]


@pytest.mark.parametrize(
    "content", ["1\n2\n", "caption_id,points\nx,1\n", "caption_id,score\nx,good\n", "caption_id,score\nq,1\n", "\x00"]
)
def test_what_are_no_scores_is_refused(content: str, tmp_path: Path) -> None:
    (tmp_path / "scores.csv").write_text(content)
    with pytest.raises(UsageError):
        read_scores(tmp_path / "scores.csv", ["x", "y", "z"], "es")


def test_sentences_are_pooled_as_their_settings_say(tmp_path: Path) -> None:
    folder = tinytext.save("bert", tmp_path / "model")
    texts = ["a picture of one red circle", "una imagen"]
    tokens = AutoTokenizer.from_pretrained(folder)(texts, padding=True, return_tensors="pt")
    with torch.no_grad():
        out = AutoModel.from_pretrained(folder).double()(**tokens)
    mask = tokens["attention_mask"].unsqueeze(2)
    expected = {
        "mean": (out.last_hidden_state * mask).sum(1) / mask.sum(1),
        "cls": out.last_hidden_state[:, 0],
        "own": out.pooler_output,
    }
    (folder / "1_Pooling").mkdir()
    for name, vector in expected.items():
        if name != "mean":
            (folder / "1_Pooling" / "config.json").write_text('{"pooling_mode_cls_token": true}')
        if name == "own":
            (folder / "modules.json").write_text('[{"type": "sentence_transformers.models.Dense"}]')
        assert pooling_of(folder) == name
        (got,) = sentence_vectors(str(folder), texts)
        assert got.numpy() == pytest.approx(torch.nn.functional.normalize(vector, dim=1).numpy(), abs=1e-5)


@pytest.mark.slow
def test_diagnoses_with_named_witnesses(workspace: Chain, tmp_path: Path) -> None:
    folder, table = tinytext.save("bert", tmp_path / "model"), tmp_path / "scores.csv"
    translated = workspace.find("translation").path
    how = ("diagnose", translated, "--judge")
    for judge, hint in (("margin", "sentence_encoder="), ("scores", "scores=FILE")):
        assert (done := workspace.ccr(*how, judge)).code == 2 and hint in done.err
    plain = toy.ok(*how, "fusion", workspace=workspace.root)
    pairs = diagnosis.read_pairs(plain.made)
    values = np.where(np.arange(len(pairs)) % 7, 0.0, -np.arange(len(pairs)) - 1.0)
    pd.DataFrame({"caption_id": pairs["slot_id"], "score": values}).to_csv(table, index=False)
    ordered = toy.ok(*how, "scores", "--set", f"scores={table}", workspace=workspace.root).made
    worst = diagnosis.read_pairs(ordered).sort_values("place")
    assert list(worst["slot_id"].head(3)) == list(pairs["slot_id"].iloc[np.argsort(values, kind="stable")[:3]])
    assert ordered.counts["called_noisy"] == 0 and ordered.request["scores"].startswith("sha256:")
    named = ("--set", f"sentence_encoder={folder}", "--set", f"scores={table}")
    done = toy.ok(*how, "fusion", *named, workspace=workspace.root)
    assert "margin" in done.err and "scores" in done.err and "way back" in plain.err and "margin" not in plain.err
    assert done.made.request["sentence_encoder"].startswith("sha256:") and done.made.id != plain.made.id
    toy.ok(*how, "margin", *named[:2], workspace=workspace.root)
