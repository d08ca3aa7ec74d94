"""What is exported of runs with transformers text encoders: other libraries find the run's own vectors.

Shape suffixes: T texts, D embedding.
"""

from __future__ import annotations

import importlib
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnxruntime
import pytest
import tinytext
import torch
import toy
import transformers
from numpy.testing import assert_allclose
from safetensors.torch import load_file
from toy import Chain

from ccr_cli.artifacts import base
from ccr_cli.stages.export.encode import Encoder
from ccr_cli.stages.shared.embedding import encode_and_embed
from ccr_cli.stages.shared.load_run import load_method

CPU, DIM = torch.device("cpu"), 24
TEXTS = [
    "red circle",
    "a picture of one ring that is purple",
    "ANILLO  morado",
    "nobody knows these words",
    " ".join(["a picture of one blue square that is green"] * 9),
]
"""The last one is cut, and some words of another are not known."""

Vectors = npt.NDArray[np.float32]


@pytest.fixture(scope="module")
def space(sources: Chain, tmp_path_factory: pytest.TempPathFactory) -> Chain:
    """A workspace of the module's own."""
    root = tmp_path_factory.mktemp("export") / "workspace"
    shutil.copytree(sources.root, root)
    return Chain(sources.folder, root)


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder a family; read only."""
    root = tmp_path_factory.mktemp("models")
    for family in tinytext.FAMILIES:
        tinytext.save(family, root / family)
    return root


def train(space: Chain, folder: Path, method: str, *options: str, name: str) -> Path:
    """A run with a text encoder of a folder; what it is given once is there already."""
    if not (space.root / "runs" / name).exists():
        sets = [word for option in (f"text_encoder={folder}", f"dim={DIM}", *options) for word in ("--set", option)]
        call = ("train", "--method", method, "--epochs", "1", "--batch-size", "16", "--device", "cpu", "--name", name)
        toy.ok(*call, *sets, workspace=space.root)
    return space.root / "runs" / name


def own(run: Path) -> Vectors:
    """What the run makes of the texts (T, D)."""
    method, tokenizer = load_method(base.load(run), CPU)
    found: Vectors = encode_and_embed(method, tokenizer, TEXTS, CPU).numpy()
    return found


def export(space: Chain, run: Path, *options: str) -> Path:
    return toy.ok("export", run, *options, workspace=space.root).paths[-1]


def sentence_vectors(folder: Path) -> Vectors:
    """What sentence-transformers makes of the texts by an exported folder."""
    library: Any = importlib.import_module("sentence_transformers")
    found: Vectors = library.SentenceTransformer(str(folder), device="cpu").encode(TEXTS)
    return found


def cosines(one_TD: Vectors, two_TD: Vectors) -> Vectors:
    product_T: Vectors = (one_TD * two_TD).sum(1)
    return product_T


@pytest.mark.parametrize(
    ("family", "method", "tokens"),
    [
        ("bert", "infonce", 9),
        pytest.param("t5", "fume", 24, marks=pytest.mark.slow),
        *(pytest.param(family, "infonce", 9, marks=pytest.mark.slow) for family in ("xlm-roberta", "t5", "clip")),
    ],
)
@pytest.mark.slow
def test_sentence_transformers_finds_the_run_s_vectors(
    family: str, method: str, tokens: int, space: Chain, models: Path
) -> None:
    run = train(space, models / family, method, f"max_tokens={tokens}", name=f"{family}-{method}")
    folder = export(space, run)
    found_TD = sentence_vectors(folder)
    assert found_TD.shape == (len(TEXTS), DIM)
    assert cosines(found_TD, own(run)).min() > 0.99999
    assert_allclose(np.linalg.norm(found_TD, axis=1), np.ones(len(TEXTS)), atol=1e-6)


@pytest.mark.parametrize(
    "options",
    [
        ("pooling=cls", "lora_rank=2", "lr=0.1"),
        *(pytest.param((f"pooling={name}",), marks=pytest.mark.slow) for name in ("max", "last")),
    ],
)
@pytest.mark.slow
def test_poolings_and_merged_adapters(options: tuple[str, ...], space: Chain, models: Path) -> None:
    run = train(space, models / "bert", "infonce", "max_tokens=9", *options, name=f"bert-{options[0][8:]}")
    folder = export(space, run)
    assert cosines(sentence_vectors(folder), own(run)).min() > 0.99999
    kept = {key.removeprefix("encoder.text_encoder.model.") for key in load_file(run / "model.safetensors")}
    merged = set(load_file(folder / "model.safetensors"))
    assert any("lora_" in key for key in kept) == ("lora_rank=2" in options) and not any("lora_" in k for k in merged)
    said = json.loads((folder / "1_Pooling" / "config.json").read_text())
    names = {"cls": "pooling_mode_cls_token", "max": "pooling_mode_max_tokens", "last": "pooling_mode_lasttoken"}
    assert [key for key, value in said.items() if value is True] == [names[options[0].removeprefix("pooling=")]]


@pytest.mark.parametrize("pooling", [pytest.param("cls", marks=pytest.mark.slow), "max", "last"])
@pytest.mark.slow
def test_poolings_without_sentence_transformers(pooling: str, space: Chain, models: Path) -> None:
    run = train(space, models / "siglip", "infonce", "max_tokens=9", f"pooling={pooling}", name=f"siglip-{pooling}")
    assert cosines(Encoder(export(space, run)).encode(TEXTS), own(run)).min() > 0.99999


def test_a_model_s_own_pooling_is_refused(space: Chain, models: Path) -> None:
    run = train(space, models / "bert", "infonce", "max_tokens=9", "pooling=own", name="bert-own")
    done = toy.ccr("export", run, workspace=space.root)
    assert (done.code, done.out) == (2, "") and "pooling=own" in done.err


@pytest.mark.parametrize(
    "family", ["bert", "t5", *(pytest.param(name, marks=pytest.mark.slow) for name in ("xlm-roberta", "clip"))]
)
def test_transformers_alone_loads_the_tower(family: str, space: Chain, models: Path) -> None:
    run = train(space, models / family, "infonce", "max_tokens=9", name=f"{family}-infonce")
    folder = export(space, run)
    auto: Any = transformers.T5EncoderModel if family == "t5" else transformers.AutoModel
    model = auto.from_pretrained(folder).eval()
    tokens = transformers.AutoTokenizer.from_pretrained(folder)(
        TEXTS, padding=True, truncation=True, return_tensors="pt"
    )
    assert set(tokens) == {"input_ids", "attention_mask"} and tokens["input_ids"].shape[1] == 9
    with torch.no_grad():
        state_TLD = model(**tokens).last_hidden_state
    there_TL1 = tokens["attention_mask"][..., None]
    pooled_TD = (state_TLD * there_TL1).sum(1) / there_TL1.sum(1)
    dense = load_file(folder / "2_Dense" / "model.safetensors")
    out_TD = torch.nn.functional.normalize(pooled_TD @ dense["linear.weight"].T + dense["linear.bias"], dim=1)
    assert cosines(out_TD.numpy(), own(run)).min() > 0.99999


@pytest.mark.slow
def test_both_models_of_a_run(space: Chain, models: Path) -> None:
    run = train(space, models / "bert", "trine", "max_tokens=9", name="bert-trine")
    folder = export(space, run)
    parts = [folder / "model1", folder / "model2"]
    each = [sentence_vectors(part) for part in parts]
    assert not np.allclose(each[0], each[1], atol=1e-2)
    assert cosines(np.concatenate(each, axis=1) / 2**0.5, own(run)).min() > 0.99999
    assert not (folder / "modules.json").exists()
    assert toy.ccr("verify", folder, workspace=space.root).code == 0


@pytest.mark.parametrize(
    ("family", "method", "options"),
    [
        ("siglip", "infonce", ()),
        ("bert", "nrccr", ("heads=2",)),
        pytest.param("t5", "nrccr", ("heads=2",), marks=pytest.mark.slow),
    ],
)
@pytest.mark.slow
def test_what_sentence_transformers_has_no_modules_for(
    family: str, method: str, options: tuple[str, ...], space: Chain, models: Path
) -> None:
    """SigLIP's text model has no `Auto` class, and nrccr attends to tokens: `encode.py` reads them."""
    run = train(space, models / family, method, "max_tokens=9", *options, name=f"{family}-{method}")
    folder = export(space, run)
    assert not (folder / "modules.json").exists() and not (folder / "config.json").exists()
    assert cosines(Encoder(folder).encode(TEXTS), own(run)).min() > 0.99999


def test_a_tower_is_of_transformers_or_nothing(space: Chain, models: Path, tmp_path: Path) -> None:
    run = train(space, models / "siglip", "infonce", "max_tokens=9", name="siglip-infonce")
    folder = tmp_path / "changed"
    shutil.copytree(export(space, run), folder)
    about = json.loads((folder / "text.json").read_text())
    about["input"]["class"] = "subprocess.Popen"
    (folder / "text.json").write_text(json.dumps(about))
    with pytest.raises(ValueError, match="subprocess"):
        Encoder(folder).encode(TEXTS)


@pytest.mark.slow
def test_a_tokenizer_without_padding_and_special_tokens(space: Chain, tmp_path: Path) -> None:
    folder = tinytext.save("bert", tmp_path / "bare", special=False)
    settings = json.loads((folder / "tokenizer_config.json").read_text())
    del settings["pad_token"]
    (folder / "tokenizer_config.json").write_text(json.dumps({**settings, "padding_side": "left"}))
    run = train(space, folder, "infonce", "max_tokens=9", name="bare")
    assert cosines(sentence_vectors(export(space, run)), own(run)).min() > 0.99999


def test_a_tokenizer_that_gives_token_types(space: Chain, tmp_path: Path) -> None:
    folder, vocabulary = tinytext.save("bert", tmp_path / "typed"), tmp_path / "vocab.txt"
    vocabulary.write_text("\n".join(tinytext.WORDS), encoding="utf-8")
    tokenizer = transformers.BertTokenizer(str(vocabulary), mask_token="[UNK]")
    tokenizer.save_pretrained(folder)
    assert "token_type_ids" in tokenizer("a picture")
    run = train(space, folder, "infonce", "max_tokens=9", name="typed")
    assert cosines(sentence_vectors(export(space, run)), own(run)).min() > 0.99999


@pytest.mark.slow
@pytest.mark.parametrize(("method", "options"), [("infonce", ()), ("nrccr", ("heads=2",))])
def test_onnx(method: str, options: tuple[str, ...], space: Chain, models: Path) -> None:
    run = train(space, models / "bert", method, "max_tokens=9", *options, name=f"bert-{method}")
    folder = export(space, run, "--onnx")
    place = folder / "tower" if (folder / "tower").exists() else folder
    tokenizer = transformers.AutoTokenizer.from_pretrained(place)
    session = onnxruntime.InferenceSession(str(folder / "text.onnx"), providers=["CPUExecutionProvider"])
    assert [(i.name, i.type, i.shape) for i in session.get_inputs()] == [
        (name, "tensor(int64)", ["batch", "length"]) for name in ("input_ids", "attention_mask")
    ]
    for rows in (slice(0, 5), slice(0, 1), slice(1, 3)):
        tokens = dict(tokenizer(TEXTS[rows], padding=True, truncation=True, return_tensors="np"))
        (found_TD,) = session.run(None, tokens)
        assert_allclose(found_TD, own(run)[rows], atol=1e-4)
    content = (folder / "text.onnx").read_bytes()
    assert str(Path(transformers.__file__).parent).encode() not in content and b"plain.py" not in content
    assert "onnxruntime.InferenceSession" in (folder / "README.md").read_text(encoding="utf-8")


def test_equal_exports_have_equal_bytes_and_no_paths(space: Chain, models: Path) -> None:
    run = train(space, models / "bert", "infonce", "max_tokens=9", name="bert-infonce")
    folder = export(space, run)
    before = toy.digests(folder)
    assert toy.digests(export(space, run, "--force")) == before
    for path in (p for p in folder.rglob("*") if p.is_file() and p.name != base.RECORD):
        content = path.read_bytes()
        assert str(models).encode() not in content and str(space.root).encode() not in content, path
    about = json.loads((folder / "sentence_bert_config.json").read_text())
    assert about["max_seq_length"] == 9
    card = (folder / "README.md").read_text(encoding="utf-8")
    assert "| text encoder | bert |" in card and "base_model" not in card


@pytest.mark.slow
def test_a_model_that_torch_does_not_write_as_onnx(space: Chain, tmp_path: Path) -> None:
    folder = tinytext.save("bert", tmp_path / "xlnet")
    size = {"vocab_size": len(tinytext.WORDS), "d_model": 16, "n_layer": 1, "n_head": 2, "d_inner": 24}
    transformers.XLNetModel(transformers.XLNetConfig(**size, pad_token_id=0)).save_pretrained(folder)
    run = train(space, folder, "infonce", "max_tokens=9", name="xlnet")
    done = toy.ccr("export", run, "--onnx", workspace=space.root)
    assert (done.code, done.out) == (1, ""), done.err
    assert "torch cannot write this text encoder as ONNX" in done.err and "leave --onnx out" in done.err
    assert not list((space.root / "exports").glob("xlnet*"))
    assert cosines(sentence_vectors(export(space, run)), own(run)).min() > 0.99999
