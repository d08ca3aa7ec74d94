"""The ct2 engine: the same translations as hf, and the conversion into the cache."""

from __future__ import annotations

import ctypes
import json
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import tinymt
import torch
import toy
import transformers
from safetensors.torch import load_file, save_file
from tinymt import CAPTIONS
from toy import Chain

from ccr_cli.artifacts import translation
from ccr_cli.artifacts.workspace import Workspace
from ccr_cli.errors import ArtifactError, UnavailableError, UsageError
from ccr_cli.stages.doctor import examine
from ccr_cli.stages.shared.options import configure
from ccr_cli.translators import ct2, hf
from ccr_cli.translators.base import Translation

ctranslate2 = pytest.importorskip("ctranslate2", reason="ctranslate2 is not installed: pip install 'ccr-cli[ct2]'")


@pytest.fixture(autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """One cache for all these tests: every model is converted once."""
    folder = tmp_path_factory.getbasetemp() / "cache"
    monkeypatch.setenv("CCR_CACHE", str(folder))
    return folder


def translator(model: Path, source: str = "en", target: str = "de", **options: Any) -> ct2.Translator:
    given: dict[str, Any] = {"max_new_tokens": 24, "dtype": "float32"} | options
    config = ct2.Config(model=str(model), **given)
    return ct2.Translator(source, target, config, dataset_dir=None, device="cpu")


def reference(model: Path, texts: list[str], **options: Any) -> list[Translation]:
    given: dict[str, Any] = {"max_new_tokens": 24} | options
    config = hf.Config(model=str(model), **given)
    return toy.translated(hf.Translator("en", "de", config, dataset_dir=None, device="cpu"), texts)


def same(ours: list[Translation], theirs: list[Translation]) -> int:
    """How many texts are the same; their scores are too."""
    pairs = [(a, b) for a, b in zip(ours, theirs, strict=True) if a.text == b.text and a.error == b.error]
    for a, b in pairs:
        assert a.score == (None if b.score is None else pytest.approx(b.score, abs=1e-5))
    return len(pairs)


@pytest.mark.slow
def test_greedy_float32_is_that_of_hf(translation_model: Path) -> None:
    texts = [*CAPTIONS, "", "dog dog a near.", "dog " * 200]
    for limit in (24, 4):
        ours = toy.translated(translator(translation_model, max_new_tokens=limit), texts)
        assert same(ours, reference(translation_model, texts, max_new_tokens=limit)) == len(texts)


@pytest.mark.slow
def test_beams_find_what_those_of_hf_find(translation_model: Path) -> None:
    """Not always: the two end their searches by rules of their own."""
    ours = toy.translated(translator(translation_model, num_beams=3), CAPTIONS)
    assert same(ours, reference(translation_model, CAPTIONS, num_beams=3)) > 0.8 * len(CAPTIONS)


@pytest.mark.slow
def test_a_marian_that_starts_with_zero_as_opus_mt_does(marian: Path, tmp_path: Path) -> None:
    network = transformers.AutoModelForSeq2SeqLM.from_pretrained(marian)
    padding = network.model.shared.weight[network.config.pad_token_id]
    assert padding.any(), "as training left it: the other tests see that"
    with torch.no_grad():
        padding.zero_()
    shutil.copytree(marian, tmp_path / "opus")
    network.save_pretrained(tmp_path / "opus")
    theirs = reference(tmp_path / "opus", CAPTIONS)
    assert same(toy.translated(translator(tmp_path / "opus"), CAPTIONS), theirs) == len(CAPTIONS)
    assert theirs != reference(marian, CAPTIONS)


@pytest.mark.slow
def test_a_t5_whose_output_is_scaled(tmp_path: Path) -> None:
    model = tinymt.t5(tmp_path / "madlad", feed_forward_proj="relu", tie_word_embeddings=True)
    assert transformers.AutoConfig.from_pretrained(model).scale_decoder_outputs
    assert same(toy.translated(translator(model), CAPTIONS), reference(model, CAPTIONS)) == len(CAPTIONS)


def test_a_t5_with_an_output_of_its_own(madlad: Path, tmp_path: Path) -> None:
    """As MADLAD-400's files: the output is not the embedding, and only the old name says that it is not scaled."""
    shutil.copytree(madlad, tmp_path / "madlad")
    weights = load_file(madlad / "model.safetensors")
    weights["lm_head.weight"] = weights["shared.weight"].roll(5, dims=0).contiguous()
    save_file(weights, tmp_path / "madlad" / "model.safetensors", {"format": "pt"})
    config = json.loads((madlad / "config.json").read_text())
    assert config.pop("scale_decoder_outputs") is False
    (tmp_path / "madlad" / "config.json").write_text(json.dumps(config | {"tie_word_embeddings": False}))
    theirs = reference(tmp_path / "madlad", CAPTIONS)
    assert same(toy.translated(translator(tmp_path / "madlad"), CAPTIONS), theirs) == len(CAPTIONS)
    assert theirs != reference(madlad, CAPTIONS)


def test_a_translation_does_not_depend_on_its_batch(nllb: Path) -> None:
    expected = toy.translated(translator(nllb), CAPTIONS)
    few = toy.translated(translator(nllb, batch_tokens=60), CAPTIONS[::-1])[::-1]
    assert same(few, expected) == len(CAPTIONS)
    begun = dict(translator(nllb).translate(CAPTIONS, known=range(100)))
    assert begun == dict(enumerate(expected[100:], start=100))


def test_int8_is_the_default_of_a_cpu(marian: Path) -> None:
    engine = translator(marian, dtype="auto")
    assert engine.dtype == "int8" == engine.identity()["dtype"] and "int8" in engine.describe()["command"]
    found = toy.translated(engine, CAPTIONS)
    full = reference(marian, CAPTIONS)
    # how many are equal depends on the instructions of the processor; with other weights almost none are
    assert sum(a.text == b.text for a, b in zip(found, full, strict=True)) > 0.75 * len(CAPTIONS)
    assert [a.score for a in found] != [b.score for b in full], "it is not float32"


def test_what_cannot_be_computed_here_is_said(marian: Path) -> None:
    with pytest.raises(UsageError, match=r"\bfloat16\b.*\bcpu\b") as caught:
        translator(marian, dtype="float16")
    assert "float32" in (caught.value.hint or "")
    with pytest.raises(UsageError, match=r"dtype=int4.*int8_float32"):
        configure(ct2.Config, {"dtype": "int4"}, "engine ct2")


def test_a_model_is_converted_once(
    marian: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("CCR_CACHE", str(tmp_path / "cache"))
    first = toy.translated(translator(marian), CAPTIONS[:3])
    (folder,) = (path for path in (tmp_path / "cache" / "ct2").iterdir() if path.is_dir())
    assert f"converting opus-mt-tiny for CTranslate2 (float32), once, into {folder}" in capsys.readouterr().err
    record = json.loads((folder / "ccr.json").read_text())
    assert record["ctranslate2"] == ctranslate2.__version__ and record["quantization"] == "float32"
    written = (folder / "model.bin").stat().st_mtime_ns
    moved = shutil.copytree(marian, tmp_path / "moved" / marian.name)
    assert toy.translated(translator(moved), CAPTIONS[:3]) == first
    assert "converting" not in capsys.readouterr().err and (folder / "model.bin").stat().st_mtime_ns == written
    toy.translated(translator(marian, dtype="int8"), CAPTIONS[:3])
    assert "(int8)" in capsys.readouterr().err, "another precision is another conversion"
    edited = transformers.AutoModelForSeq2SeqLM.from_pretrained(marian)
    with torch.no_grad():
        edited.model.shared.weight.mul_(1.5)
    edited.save_pretrained(moved)
    assert toy.translated(translator(moved), CAPTIONS[:3]) != first, "other weights are another model"


def test_a_cache_that_cannot_be_written_to(marian: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    for place in (tmp_path / "file", tmp_path / "file" / "cache"):
        monkeypatch.setenv("CCR_CACHE", str(place))
        with pytest.raises(ArtifactError, match=re.escape(str(place))) as caught:
            list(translator(marian).translate(["a dog runs."]))
        assert "--cache" in (caught.value.hint or "")


def test_a_damaged_conversion_is_made_again(
    marian: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("CCR_CACHE", str(tmp_path))
    first = toy.translated(translator(marian), CAPTIONS[:3])
    (weights,) = (tmp_path / "ct2").glob("*/model.bin")
    weights.write_bytes(weights.read_bytes()[:-100])
    capsys.readouterr()
    assert toy.translated(translator(marian), CAPTIONS[:3]) == first
    assert "converting" in capsys.readouterr().err


_SLOW = """
import sys, time
from pathlib import Path
from ctranslate2.converters import TransformersConverter
from ccr_cli.translators import ct2
convert = TransformersConverter.convert
def slowly(self, folder, **options):
    convert(self, folder, **options)
    print("writing", flush=True)
    while not Path(sys.argv[2]).exists():
        time.sleep(0.05)
TransformersConverter.convert = slowly
config = ct2.Config(model=sys.argv[1], dtype="float32", max_new_tokens=24)
engine = ct2.Translator("en", "de", config, dataset_dir=None, device="cpu")
print(next(engine.translate(["a dog runs."]))[1].text, flush=True)
"""


@pytest.mark.slow
def test_one_process_converts_the_others_wait_and_a_killed_one_is_in_nobodys_way(marian: Path, tmp_path: Path) -> None:
    go, places = tmp_path / "go", tmp_path / "ct2"
    environment = {**os.environ, "CCR_CACHE": str(tmp_path), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", _SLOW, str(marian), str(go)]

    def start(name: str) -> subprocess.Popen[str]:
        with (tmp_path / name).open("w") as said:
            return subprocess.Popen(command, env=environment, text=True, stdout=subprocess.PIPE, stderr=said)

    killed = start("killed")
    assert killed.stdout is not None and killed.stdout.readline() == "writing\n"
    killed.kill()
    killed.communicate()
    assert not list(places.glob("*/ccr.json"))
    both = {name: start(name) for name in ("one", "other")}
    while not (waiting := [name for name in both if "another process converts" in (tmp_path / name).read_text()]):
        assert all(process.poll() is None for process in both.values())
        time.sleep(0.05)
    go.touch()
    expected = reference(marian, ["a dog runs."])[0].text
    for name, process in both.items():
        wrote = "" if [name] == waiting else "writing\n"
        assert process.communicate()[0] == f"{wrote}{expected}\n"
    assert [path.suffix for path in places.iterdir() if path.is_dir()] == [""]


def test_half_precision_weights_are_converted(marian: Path, tmp_path: Path) -> None:
    shutil.copytree(marian, tmp_path / "half")
    network = transformers.AutoModelForSeq2SeqLM.from_pretrained(marian, dtype=torch.bfloat16)
    network.save_pretrained(tmp_path / "half")
    assert same(toy.translated(translator(tmp_path / "half"), CAPTIONS), reference(tmp_path / "half", CAPTIONS)) == 144


@pytest.mark.slow
def test_a_model_that_ctranslate2_cannot_read_leads_back_to_hf(marian: Path, tmp_path: Path) -> None:
    model = tinymt.marian(tmp_path / "odd", activation_function="tanh")
    with pytest.raises(UsageError, match=r"\bodd\b") as caught:
        list(translator(model).translate(["a dog runs."]))
    assert caught.value.hint == "--engine hf"


@pytest.mark.slow
def test_what_is_said_where_it_is_not_installed(marian: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "ctranslate2", None)
    assert ct2.missing() == ("ctranslate2 is not installed", "pip install 'ccr-cli[ct2]'")
    with pytest.raises(UnavailableError, match="ctranslate2") as caught:
        translator(marian)
    assert caught.value.hint == "pip install 'ccr-cli[ct2]'"
    rows = {what: (state, mend) for what, state, mend in examine(Workspace(tmp_path))}
    assert rows["engine ct2"] == ("ctranslate2 is not installed", "pip install 'ccr-cli[ct2]'")
    assert "engine hf" in rows


def test_describe_and_plan(nllb: Path) -> None:
    facts = translator(nllb).describe()
    assert facts["engine"] == "ct2" and facts["warning"] == "not for commercial use"
    assert f"ctranslate2 {ctranslate2.__version__}" in facts["version"]
    assert all(isinstance(value, str) for value in facts.values())
    plan = ct2.planned("en", "de", ct2.Config(model=str(nllb)))
    assert plan["licence"] == "CC-BY-NC-4.0" and plan["here"] == "yes"
    config = hf.Config(model=str(nllb), max_new_tokens=24)
    theirs = hf.Translator("en", "de", config, dataset_dir=None, device="cpu").identity()
    assert translator(nllb).identity() == theirs | {"engine": "ct2", "version": facts["version"]}


def test_both_engines_on_the_command_line(workspace: Chain, marian: Path, capsys: pytest.CaptureFixture[str]) -> None:
    call = ("translate", "--lang", "de", "--set", f"model={marian}", "--set", "dtype=float32", "--set", "num_beams=1")
    tables = {}
    for engine in ("hf", "ct2"):
        plan = toy.ccr(*call, "--engine", engine, "--dry-run", "--json", workspace=workspace.root)
        assert plan.code == 0 and "opus-mt-tiny" in plan.out and "CC-BY-4.0" in plan.out
        made = toy.ccr(*call, "--engine", engine, "--name", engine, workspace=workspace.root).made
        tables[engine] = translation.read(made)
    ours, theirs = tables["ct2"], tables["hf"]
    assert set(ours["model"]) == set(theirs["model"]) == {"opus-mt-tiny"}
    assert list(ours["text"]) == list(theirs["text"]) and len(set(ours["text"])) > 1
    assert list(ours["score"]) == pytest.approx(list(theirs["score"]), abs=1e-5)
    assert (ours["score"] < 0).all()


def test_cublas_is_found_or_asked_for() -> None:
    try:
        ctypes.CDLL("libcublas.so.12")
    except OSError:
        if not any(Path(folder, "nvidia", "cublas").is_dir() for folder in sys.path):
            with pytest.raises(UnavailableError, match=r"libcublas\.so\.12") as caught:
                ct2._open_cublas()
            assert "ccr-cli[ct2]" in (caught.value.hint or "")
            return
    ct2._open_cublas()
