"""The hf engine on tiny models of every family: batches, scores, memory, precision, what is missing."""

from __future__ import annotations

import hashlib
import itertools
import random
import re
import shutil
import subprocess
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tinymt
import torch
import toy
import transformers
from scipy.special import log_softmax
from tinymt import CAPTIONS

from ccr_cli import hub
from ccr_cli.errors import ArtifactError, ResourceError, UnavailableError, UsageError
from ccr_cli.stages.shared.options import configure
from ccr_cli.translators import hf


def translator(model: Path, source: str = "en", target: str = "de", **options: Any) -> hf.Translator:
    config = hf.Config(model=str(model), **({"max_new_tokens": 24} | options))
    return hf.Translator(source, target, config, dataset_dir=None, device="cpu")


def test_it_translates(marian: Path) -> None:
    results = toy.translated(translator(marian), CAPTIONS)
    assert all(result.text and result.error is None for result in results)
    right = sum(result.text == tinymt.german(text) for text, result in zip(CAPTIONS, results, strict=True))
    assert right > len(CAPTIONS) / 4 and len({result.text for result in results}) > len(CAPTIONS) / 3


@pytest.mark.slow
@pytest.mark.parametrize("beams", [1, pytest.param(3, marks=pytest.mark.slow)])
def test_a_translation_does_not_depend_on_its_batch(translation_model: Path, beams: int) -> None:
    engine = translator(translation_model, num_beams=beams)
    texts = [*CAPTIONS[::4], "", "  "]
    expected = toy.translated(engine, texts)
    order = random.Random(0).sample(range(len(texts)), len(texts))
    shuffled = toy.translated(engine, [texts[i] for i in order])
    alone = toy.translated(translator(translation_model, num_beams=beams, batch_tokens=1), texts)
    some = toy.translated(translator(translation_model, num_beams=beams, batch_tokens=60), texts[7:30])
    assert [expected[i].text for i in order] == [result.text for result in shuffled]
    assert [result.text for result in expected] == [result.text for result in alone]
    assert [result.text for result in expected[7:30]] == [result.text for result in some]
    for one, other in zip(expected, alone, strict=True):
        assert one.score == (None if other.score is None else pytest.approx(other.score, abs=2e-6))
    assert [(r.text, r.score) for r in expected[-2:]] == [("", None)] * 2
    assert list(engine.translate([])) == []


@pytest.mark.slow
def test_results_come_batch_by_batch(marian: Path) -> None:
    engine = translator(marian, batch_tokens=30)
    sizes: list[int] = []
    encoder = engine._network.get_encoder()
    hook = encoder.register_forward_pre_hook(lambda *a, **k: sizes.append(len(a[-1]["input_ids"])), with_kwargs=True)
    for number, _ in enumerate(engine.translate(CAPTIONS)):
        if number == 0:
            assert len(sizes) == 1
    hook.remove()
    assert sum(sizes) == len(CAPTIONS) and max(sizes) <= 6 < 24 < len(sizes)


@pytest.mark.slow
def test_a_run_that_goes_on_sees_the_same_batches(marian: Path) -> None:
    engine = translator(marian, batch_tokens=30, dtype="bfloat16")
    whole = dict(engine.translate(CAPTIONS))
    begun = dict(itertools.islice(engine.translate(CAPTIONS), 40))
    rest = dict(engine.translate(CAPTIONS, known=begun.keys()))
    assert not begun.keys() & rest.keys() and begun | rest == whole, "scores too, to the last bit"
    sizes: list[int] = []
    encoder = engine._network.get_encoder()
    encoder.register_forward_pre_hook(lambda *a, **k: sizes.append(len(a[-1]["input_ids"])), with_kwargs=True)
    assert list(engine.translate(CAPTIONS, known=whole.keys())) == [] == sizes
    last = next(reversed(whole))
    assert dict(engine.translate(CAPTIONS, known=whole.keys() - {last})) == {last: whole[last]} and len(sizes) == 1


def oracle(engine: hf.Translator, text: str, result: str, banned: list[int]) -> float:
    """Mean log-probability of a token in float64: of the search's own logits, greedy, one text alone."""
    network, tokenizer, given = engine._network, engine._tokenizer, engine._forced
    inputs = tokenizer([engine._route.prefix + text], return_tensors="pt")
    network.double()
    tokens = [network.config.decoder_start_token_id, *([engine._route.forced_token] if given else [])]
    logs: list[float] = []
    while len(tokens) - 1 < engine._longest_output and (not logs or tokens[-1] != tokenizer.eos_token_id):
        logits = network(**inputs, decoder_input_ids=torch.tensor([tokens])).logits[0, -1].detach().numpy()
        assert logits.dtype == np.float64
        logits[banned] = -np.inf
        tokens.append(int(logits.argmax()))
        logs.append(float(log_softmax(logits)[tokens[-1]]))
    network.float()
    assert tokenizer.decode(tokens[1 + given :], skip_special_tokens=True).strip() == result
    return sum(logs) / len(logs)


def test_the_score_is_the_mean_log_probability_of_a_token(translation_model: Path) -> None:
    engine = translator(translation_model)
    banned = [engine._tokenizer.pad_token_id] if "opus" in translation_model.name else []
    texts = [CAPTIONS[0], CAPTIONS[77], CAPTIONS[143], "dog dog a near."]
    for text, result in zip(texts, toy.translated(engine, texts), strict=True):
        assert result.text is not None
        assert result.score == pytest.approx(oracle(engine, text, result.text, banned), abs=1e-5)


def test_beams_are_scored_as_greedy_search_is(translation_model: Path) -> None:
    greedy = toy.translated(translator(translation_model), CAPTIONS)
    beams = toy.translated(translator(translation_model, num_beams=4), CAPTIONS)
    pairs = list(zip(greedy, beams, strict=True))
    same = [(one.score, other.score) for one, other in pairs if one.text == other.text]
    assert len(same) > 30
    assert [one for one, _ in same] == pytest.approx([other for _, other in same], abs=1e-5)
    better = [other.score - one.score for one, other in pairs if one.text != other.text]  # type: ignore[operator]
    assert sum(better) >= 0, "a wider search finds what is more probable"


def test_a_translation_that_reaches_the_limit_is_left_as_it_is(marian: Path) -> None:
    (whole,) = toy.translated(translator(marian), [CAPTIONS[143]])
    (short,) = toy.translated(translator(marian, max_new_tokens=3), [CAPTIONS[143]])
    tokens = translator(marian)._tokenizer(text_target=short.text)["input_ids"]
    assert len(tokens) == 3 + 1 and whole.text is not None and whole.text.startswith(str(short.text))


def test_a_text_that_is_too_long_fails_alone(marian: Path) -> None:
    good, bad = toy.translated(translator(marian), ["A dog.", "dog " * 200])
    assert good.text and good.error is None
    assert bad.text is None and bad.error is not None and "64" in bad.error


@pytest.mark.slow
def test_memory_runs_out_and_the_batches_are_halved(marian: Path) -> None:
    expected = toy.translated(translator(marian), CAPTIONS)
    engine = translator(marian)
    sizes: list[int] = []

    def small_card(module: Any, positional: Any, named: dict[str, Any]) -> None:
        sizes.append(named["input_ids"].numel())
        if sizes[-1] > limit:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB")

    limit = 150
    engine._network.get_encoder().register_forward_pre_hook(small_card, with_kwargs=True)
    found = toy.translated(engine, CAPTIONS)
    assert [r.text for r in found] == [r.text for r in expected]
    failed = [size for size in sizes if size > limit]
    assert failed == sizes[: len(failed)] and len(failed) >= 3, "what was too much is not tried again"
    assert min(sizes[:-1]) > limit / 4
    limit = 0
    with pytest.raises(ResourceError, match="opus-mt-tiny") as caught:
        list(engine.translate(["A dog."]))
    assert caught.value.exit_code == 6 and "num_beams=1" in (caught.value.hint or "")


def test_another_error_is_not_taken_for_memory(marian: Path) -> None:
    engine = translator(marian)

    def broken(*_: Any) -> None:
        raise RuntimeError("expected all tensors on one device")

    engine._network.get_encoder().register_forward_pre_hook(broken)
    with pytest.raises(RuntimeError, match="one device"):
        list(engine.translate(["A dog."]))


def test_half_precision_is_what_it_is_told_to_be(marian: Path) -> None:
    engine = translator(marian, dtype="bfloat16")
    assert engine._network.dtype == torch.bfloat16 and "bfloat16" in engine.describe()["command"]
    full = toy.translated(translator(marian), CAPTIONS)
    half = toy.translated(engine, CAPTIONS)
    assert sum(a.text == b.text for a, b in zip(full, half, strict=True)) > 100
    assert [r.score for r in half] != [r.score for r in full]
    assert [r.score for r in half] == pytest.approx([r.score for r in full], abs=0.05)


def test_nothing_is_loaded_before_the_first_text(marian: Path, nllb: Path, capsys: pytest.CaptureFixture[str]) -> None:
    engine = translator(nllb, "en", "de", num_beams=2)
    assert engine.describe()["licence"] == "CC-BY-NC-4.0"
    assert engine.describe()["warning"] == "not for commercial use"
    captured = capsys.readouterr()
    assert "nllb-tiny is licensed CC-BY-NC-4.0: not for commercial use" in captured.err and captured.out == ""
    assert engine.identity()["model"].startswith("sha256:")
    assert "_network" not in vars(engine)
    assert len(list(engine.translate(CAPTIONS[:3]))) == 3
    assert "_network" in vars(engine)


def test_describe_names_model_search_and_licence(marian: Path, capsys: pytest.CaptureFixture[str]) -> None:
    facts = translator(marian, num_beams=3).describe()
    assert facts["engine"] == "hf" and facts["model"] == marian.name and facts["revision"] == "local folder"
    assert facts["command"] == "3 beams, at most 24 tokens, float32, prefix ''"
    assert transformers.__version__ in facts["version"]
    assert all(isinstance(value, str) for value in facts.values())
    known = "Apache-2.0 or CC-BY-4.0, see the model's card"
    assert "warning" not in facts and capsys.readouterr().err == f"en -> de: opus-mt-tiny, licence: {known}\n"


def test_what_decides_the_text_is_the_key_of_the_cache(marian: Path, tmp_path: Path) -> None:
    one = translator(marian).identity()
    assert one == translator(marian, batch_tokens=7).identity() == translator(marian, dtype="float32").identity()
    changes: list[dict[str, Any]] = [
        {"num_beams": 2}, {"max_new_tokens": 5}, {"dtype": "bfloat16"}, {"prefix": "x "},
    ]  # fmt: skip
    others = [translator(marian, **change).identity() for change in changes]
    assert len({str(each) for each in [one, *others]}) == 5
    assert one["version"] == f"transformers {transformers.__version__}"
    elsewhere = tmp_path / "elsewhere"
    elsewhere.symlink_to(marian)
    assert translator(elsewhere).identity() == one


def test_the_key_of_the_cache_has_the_models_own_names_of_the_languages(
    m2m100: Path, nllb: Path, madlad: Path, tmp_path: Path
) -> None:
    for model, codes in ((m2m100, ["en", "de"]), (nllb, ["eng_Latn", "deu_Latn"])):
        usual = translator(model).identity()
        given = translator(model, "xx", "yy", source_code=codes[0], target_code=codes[1])
        assert usual["codes"] == codes and given.identity() == usual
        assert translator(model, "de", "en").identity()["codes"] == codes[::-1]
    assert translator(madlad).identity()["prefix"] == "<2de> "
    several = tinymt.marian(tmp_path, [">>cmn_Hans<<", ">>deu<<"])
    assert translator(several).identity()["prefix"] == ">>deu<< "
    assert translator(several, target_code="cmn_Hans").identity()["prefix"] == ">>cmn_Hans<< "


def test_a_models_files_are_hashed_once(marian: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = shutil.copytree(marian, tmp_path / "model")
    hashed: list[str] = []
    digest = hashlib.file_digest

    def counted(file: Any, name: str) -> Any:
        hashed.append(file.name)
        return digest(file, name)

    monkeypatch.setattr(hashlib, "file_digest", counted)
    first = [translator(folder).identity()["model"], hub.identity(str(folder))["model"]]
    assert len(set(first)) == 1 and len(hashed) == len(set(hashed)) > 3
    (folder / "config.json").write_text((folder / "config.json").read_text() + "\n")
    assert hub.identity(str(folder))["model"] != first[0] and hashed[-1] == str(folder / "config.json")


@pytest.mark.parametrize("offline", [True, False])
def test_no_model_and_no_network_is_said_at_once(
    offline: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import huggingface_hub

    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", offline)

    def hang(*args: Any, **kwargs: Any) -> Any:
        time.sleep(30)

    monkeypatch.setattr(hub, "in_time", partial(hub.in_time, seconds=0.2))
    if not offline:
        monkeypatch.setattr(huggingface_hub.HfApi, "model_info", hang)
    folder = tmp_path / "data"
    (folder / "translations").mkdir(parents=True)
    (folder / "translations" / "apertium-en-es.tsv").write_text("source\ttarget\n")
    start = time.monotonic()
    with pytest.raises(UnavailableError) as caught:
        hf.Translator("en", "zh", hf.Config(), dataset_dir=folder, device="cpu")
    assert time.monotonic() - start < 5
    assert "Helsinki-NLP/opus-mt-en-zh" in caught.value.message
    assert "hf download Helsinki-NLP/opus-mt-en-zh" in (caught.value.hint or "")
    assert "--engine recorded (recorded in this data set: en->es)" in (caught.value.hint or "")
    plan = hf.planned("en", "zh", hf.Config())
    assert plan == {
        "model": "Helsinki-NLP/opus-mt-en-zh",
        "revision": "main",
        "licence": "Apache-2.0 or CC-BY-4.0, see the model's card",
        "here": "no",
    }


@pytest.mark.slow
def test_a_broken_torchvision_does_no_harm(marian: Path, tmp_path: Path) -> None:
    (tmp_path / "torchvision").mkdir()
    (tmp_path / "torchvision" / "__init__.py").write_text("raise RuntimeError('no operator torchvision::nms')")
    code = (
        "import sys; sys.path.insert(0, sys.argv[1])\n"
        "from ccr_cli.translators import hf\n"
        "t = hf.Translator('en', 'de', hf.Config(model=sys.argv[2]), dataset_dir=None, device='cpu')\n"
        "assert len(list(t.translate(['A dog.']))) == 1 and 'torchvision' not in sys.modules\n"
    )
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path), str(marian)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_folders_and_names_that_cannot_be(tmp_path: Path, marian: Path) -> None:
    with pytest.raises(ArtifactError, match=re.escape(str(tmp_path))):
        translator(tmp_path)
    with pytest.raises(UsageError, match="no such/place/at all"):
        translator(Path("no such/place/at all"))
    broken = tmp_path / "broken"
    broken.mkdir()
    for path in marian.iterdir():
        if path.is_file():
            (broken / path.name).write_bytes(path.read_bytes())
    (broken / "config.json").write_text('{"model_type": "no-such-family"}')
    with pytest.raises(UsageError, match=r"\bbroken\b"):
        translator(broken)


def test_options_are_checked() -> None:
    with pytest.raises(ValueError, match=r"num_beams .*\b0$"):
        hf.Config(num_beams=0)
    with pytest.raises(UsageError, match=r"dtype=int8.*bfloat16"):
        configure(hf.Config, {"dtype": "int8"}, "engine hf")
    assert hf.Config().num_beams == 1
