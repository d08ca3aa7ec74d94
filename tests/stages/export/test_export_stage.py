"""What is exported of runs with n-grams, and the model card: all of it works where ccr is not installed.

Shape suffixes: V visual items, T texts, D embedding.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import toy
from huggingface_hub import ModelCard
from numpy.testing import assert_allclose
from safetensors.numpy import load_file
from scipy.io import savemat
from toy import Chain

from ccr_cli.artifacts import base, dataset, evaluation
from ccr_cli.errors import ArtifactError
from ccr_cli.stages.export.encode import Encoder
from ccr_cli.stages.export.model_card import CardFacts, ExportedEncoder, card, fenced, text
from ccr_cli.stages.export.stage import check_similarities
from ccr_cli.stages.shared.embedding import encode_and_embed
from ccr_cli.stages.shared.load_run import load_method
from ccr_cli.stages.shared.triplets import read_visuals

CPU = torch.device("cpu")
TEXTS = ["red circle", "un círculo rojo", "红色的圆", "", "aquí hay un ☂"]
_CODE = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_ALONE = """
import json, sys
sys.modules["ccr_cli"] = None
import numpy as np
features = np.load("features.npy")
{code}
np.savez("found.npz", **{{name: globals()[name] for name in ("x", "text_TD") if name in globals()}})
assert not [name for name in sys.modules if name.startswith("ccr_cli.")]
print(json.dumps([name for name in ("torch", "transformers") if name in sys.modules]))
"""


def export(root: Path, run: base.Artifact, *options: str | Path) -> base.Artifact:
    return toy.ok("export", run.path, *options, workspace=root).made


def snippets(folder: Path) -> list[str]:
    """The blocks of Python in a model card."""
    return _CODE.findall((folder / "README.md").read_text(encoding="utf-8"))


def front_matter(content: str) -> dict[str, Any]:
    """What the hub reads of a model card."""
    data: Any = ModelCard(content).data
    found: dict[str, Any] = data.to_dict()
    return found


def alone(folder: Path, code: str, features: Any) -> tuple[dict[str, Any], list[str]]:
    """Runs code in a folder where ccr cannot be imported: what it found, and which heavy packages it imported."""
    np.save(folder / "features.npy", features, allow_pickle=False)
    call = [sys.executable, "-c", _ALONE.format(code=code)]
    done = subprocess.run(call, cwd=folder, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    with np.load(folder / "found.npz", allow_pickle=False) as found:
        return dict(found), json.loads(done.stdout)


def own(run: base.Artifact, texts: Sequence[str], chain: Chain, ids: Sequence[str]) -> tuple[Any, Any, Any]:
    """The run's vectors of texts (T, D) and of items (V, D), and the features of these."""
    method, tokenizer = load_method(run, CPU)
    visual, _ = read_visuals(chain.find("features"), list(ids), method.config.needs())
    with torch.no_grad():
        visual_VD = method.embed_visual(visual)
    return encode_and_embed(method, tokenizer, texts, CPU).numpy(), visual_VD.numpy(), visual.rows_ND.numpy()


@pytest.mark.slow
@pytest.mark.parametrize("word", ["uml", "infonce"])
def test_the_card_s_own_code_finds_the_run_s_vectors(word: str, chain: Chain, tmp_path: Path) -> None:
    root = tmp_path / "workspace"
    shutil.copytree(chain.root, root)
    run = Chain(chain.folder, root).find("run", word)
    made = export(root, run)
    ids = list(dataset.read(chain.find("dataset")).items["item_id"].head(7))
    text_TD, visual_VD, features = own(run, TEXTS, chain, ids)
    texts, _, pictures = snippets(made.path)
    assert len(pictures.splitlines()) <= 10
    elsewhere = tmp_path / "elsewhere"
    shutil.copytree(made.path, elsewhere)
    found, heavy = alone(elsewhere, texts.replace('["a dog in the snow"]', repr(TEXTS)), features)
    assert_allclose(found["text_TD"], text_TD, atol=1e-6)
    assert heavy == [], "numpy is enough"
    found, heavy = alone(elsewhere, pictures, features)
    assert_allclose(found["x"], visual_VD, atol=1e-6)
    assert heavy == []


_ISOLATED = """
import json, sys
sys.modules["ccr_cli"] = None
sys.path.insert(0, {folder!r})
from encode import Encoder
from safetensors.numpy import load_file

vector_D = Encoder().encode_image({picture!r})
similarity_V = load_file({folder!r} + "/gallery.safetensors")["vectors"] @ vector_D
ids = json.load(open({folder!r} + "/gallery.json"))["ids"]
assert not [name for name in sys.modules if name.startswith("ccr_cli.")]
print(json.dumps([vector_D.tolist(), ids[similarity_V.argmax()], float(similarity_V.max())]))
"""


@pytest.mark.slow
def test_pictures_where_there_is_no_ccr(finished: Chain, tmp_path: Path) -> None:
    run = finished.find("run", "uml")
    folder, picture = tmp_path / "elsewhere", finished.folder / "media" / "red-ring.png"
    shutil.copytree(export(finished.root, run).path, folder)
    assert {path.stat().st_mode & 0o777 for path in folder.rglob("*") if path.is_file()} == {0o644}
    code = _ISOLATED.format(folder=str(folder), picture=str(picture))
    call = [sys.executable, "-I", "-c", code]
    done = subprocess.run(call, cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    vector_D, item, similarity = json.loads(done.stdout)
    _, visual_VD, _ = own(run, TEXTS, finished, ["red-ring"])
    assert np.dot(vector_D, visual_VD[0]) > 0.9999 and (item, similarity > 0.9999) == ("red-ring", True)


@pytest.mark.slow
@pytest.mark.parametrize("method", ["tcl", pytest.param("trine", marks=pytest.mark.slow)])
def test_a_run_of_two_models(method: str, workspace: Chain, tmp_path: Path) -> None:
    run = toy.ok("train", "--method", method, "--epochs", "1", *toy.SMALL, workspace=workspace.root).made
    toy.ok("evaluate", run.path, "--device", "cpu", workspace=workspace.root)
    made = export(workspace.root, run)
    assert made.counts["models"] == 2
    ids = list(dataset.read(workspace.find("dataset")).items["item_id"].head(7))
    text_TD, visual_VD, features = own(run, TEXTS, workspace, ids)
    (code,) = snippets(made.path)
    found, _ = alone(made.path, code.replace('["a dog in the snow"]', repr(TEXTS)), features)
    assert_allclose(found["text_TD"], text_TD, atol=1e-6)
    each = [Encoder(made.path / name).encode_visual(features) for name in ("model1", "model2")]
    assert_allclose(np.concatenate(each, axis=1) / 2**0.5, visual_VD, atol=1e-6)
    picture = workspace.folder / "media" / f"{ids[0]}.png"
    sides = [Encoder(made.path / name).encode_image(picture) for name in ("model1", "model2")]
    assert np.concatenate(sides) @ load_file(made.path / "gallery.safetensors")["vectors"][0] > 0.9999 * 2**0.5
    first = (made.path / "model1" / "README.md").read_text(encoding="utf-8")
    assert f"{run.name}, model 1 of 2" in first and "## Results" in first
    assert "use model1 and model2 with encode.py" in toy.ok("export", run.path, workspace=workspace.root).err


def test_the_card_says_where_it_comes_from(chain: Chain, tmp_path: Path) -> None:
    root = tmp_path / "workspace"
    shutil.copytree(chain.root, root)
    run, measured = (Chain(chain.folder, root).find(kind, "uml") for kind in ("run", "evaluation"))
    made = export(root, run)
    assert {(p.kind, p.id) for p in made.parents} == {("run", run.id), ("evaluation", measured.id)}
    content = (made.path / "README.md").read_text(encoding="utf-8")
    data = front_matter(content)
    assert data["language"] == ["en", "es"] and "uml" in data["tags"] and "license" not in data
    assert (data["library_name"], data["pipeline_tag"]) == ("numpy", "feature-extraction")
    for result in evaluation.results(measured):
        assert str(result["signature"]) in content
        assert f"| {result['SumR']:.1f} |" in content
    assert "doi 10.1007/s11432-024-4696-2" in content
    assert "translations switched: 40%, seed 0" in content
    assert "by machine: recorded hand" in content and "machine-translated validation captions" in content
    encoder = base.read_json(chain.find("features").file("encoder.json"))
    assert fenced(encoder) in content and encoder["weights_sha256"] in content
    assert "ccr extract datasets/DATA --encoder efficientnet-lite0 --set image_size=32" in content


def test_a_run_that_nobody_evaluated(workspace: Chain) -> None:
    run = toy.ok("train", "--method", "infonce", "--epochs", "1", *toy.SMALL, workspace=workspace.root).made
    made = export(workspace.root, run)
    content = (made.path / "README.md").read_text(encoding="utf-8")
    assert made.counts["results"] == 0 and "SumR" not in content
    assert "| synthetic noise | none |" in content


HOSTILE = '<script>alert(1)</script> | `x` [a](javascript:b) *c* _d_\n# e\n---\n"""'


def test_strings_of_the_user_are_no_markup(tmp_path: Path) -> None:
    folder = toy.toy("hostile")
    folder.extra = f"title = {json.dumps(HOSTILE)}\nlicence = {json.dumps(HOSTILE)}\ncitation = {json.dumps(HOSTILE)}"
    root = tmp_path / "workspace"
    toy.ok("data", "import", folder.write(tmp_path / "source"), workspace=root)
    toy.ok("extract", *toy.ENCODER, workspace=root)
    run = toy.ok("train", "--method", "source-only", "--epochs", "1", *toy.SMALL, workspace=root).made
    content = (export(root, run).path / "README.md").read_text(encoding="utf-8")
    assert content.count("alert(1)") == 3 and "<script" not in content
    for line in content.splitlines():
        if "alert(1)" in line:
            assert len(re.findall(r"(?<!\\)\|", line)) == 3, "one row of a table, of two cells"
            assert r"\[a\](javascript:b) \*c\* \_d\_ \# e" in line and not re.search(r"(?<!\\)`", line)
    assert content.splitlines().count("---") == 2, "the front matter's"
    assert front_matter(content)["language"] == ["en"]


def test_what_stands_in_a_card_is_plain() -> None:
    assert text("a\x1b[2J|b\u202e$x$") == "a\ufffd\\[2J\\|b\ufffd\\$x\\$"
    assert fenced({"a": "```\n# b\x07"}).count("```") == 2
    assert json.loads(fenced({"a": "```\n# b"}).split("\n", 1)[1].rsplit("\n", 1)[0]) == {"a": "```\n# b"}


def test_texts_that_came_as_features(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    label = np.arange(60) % 3
    rows = {side: rng.normal(size=(60, size)) + label[:, None] for side, size in (("X1", 8), ("X2", 5))}
    split = {"ind_train": np.arange(1, 46), "ind_test": np.arange(46, 61)}
    content = {**{side: each.T for side, each in rows.items()}, "Y": np.eye(3)[label].T, "split": split}
    savemat(tmp_path / "some.mat", {"data": content})
    toy.ok("data", "import", tmp_path / "some.mat", workspace=tmp_path)
    sizes = ("--set", "hidden=8", "--set", "dim=6", "--epochs", "1", "--device", "cpu")
    run = toy.ok("train", "--method", "fume", *sizes, workspace=tmp_path).made
    made = export(tmp_path, run)
    keys = [f"some-{number:02d}" for number in range(1, 61)]
    text_TD, visual_VD, features = own(run, keys, Chain(tmp_path, tmp_path), keys)
    texts, _ = snippets(made.path)
    found, heavy = alone(made.path, texts.replace("[features]", "features"), rows["X2"].astype(np.float32))
    assert_allclose(found["text_TD"], text_TD, atol=1e-6)
    assert heavy == []
    assert_allclose(Encoder(made.path).encode_visual(features), visual_VD, atol=1e-6)


@pytest.mark.parametrize("wrong", [1e-3, np.nan])
def test_similarities_that_differ_from_the_run_s_are_refused(wrong: float) -> None:
    sim_VT = np.eye(3, dtype=np.float32)
    check_similarities(sim_VT + np.float32(1e-6), sim_VT, "mine")
    other_VT = sim_VT.copy()
    other_VT[0, 2] += wrong
    with pytest.raises(ArtifactError, match="mine"):
        check_similarities(other_VT, sim_VT, "mine")


def test_what_a_card_can_say(chain: Chain) -> None:
    run = chain.find("run", "infonce")
    settings = {**base.read_json(run.file("config.json")), "select": "human", "visual_dim": 12}
    settings["noise"] = {"ratio": 0.25, "style": "image", "target": "pair", "seed": 3}
    licences = [{"what": "pictures", "licence": "CC-BY-4.0"}, {"what": "captions", "licence": "Unicode-3.0"}]
    result = {"data": "toy", "split": "test", "lang": "de", "fusion": "none", "signature": "data:x|split:`y"}
    facts = CardFacts(
        run=run,
        settings=settings,
        about_method="One.",
        text_encoder="google-bert/bert-base-multilingual-cased",
        on_hub=True,
        data={"name": "toy", "licences": licences},
        langs=("en", "und", "zh-Hant"),
        translations=[{"lang": "zh-Hant", "engine": "hf", "model": "opus|mt", "licence": "CC-BY-4.0"}],
        encoder={"parts": [{"encoder": "clip", "licence": "MIT"}, {"encoder": "vision"}]},
        command="ccr extract --set 'model=`x`'",
        licence="apache-2.0",
        results=[{**result, "SumR": None, "t2v": {"R@1": 1.25, "mAP": 50.0}, "v2t": None}],
        onnx=True,
    )
    content = card(facts, ExportedEncoder(1, 1, True, 12))
    data = front_matter(content)
    assert data["base_model"] == facts.text_encoder and data["language"] == ["en", "zh-Hant"]
    assert (data["library_name"], data["pipeline_tag"]) == ("sentence-transformers", "sentence-similarity")
    for row in (
        "| data: pictures | CC-BY-4.0 |",
        "| data: captions | Unicode-3.0 |",
        "| translations into zh-Hant | CC-BY-4.0 |",
        "| translations into zh-Hant | by machine: hf opus\\|mt |",
        "| encoder of pictures, clip | MIT |",
        "| encoder of pictures, vision | not named |",
        "| text encoder, google-bert/bert-base-multilingual-cased | apache-2.0 |",
        "| synthetic noise | captions and translations switched together by item: 25%, seed 3 |",
        "| epoch selected by | validation captions written by people |",
        "| 1 | toy | test | de | none |  | 1.2 |  |  |  |  |  |  |  |",
    ):
        assert row in content.splitlines(), row
    assert "`ccr extract --set 'model='x''`" in content and "1  data:x|split:`y\n```" in content
    assert 'SentenceTransformer(".")' in content and "text.onnx" in content
