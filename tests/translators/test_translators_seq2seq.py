"""What the engines of neural models share: languages of every family, default models, licences."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import huggingface_hub
import pytest
import tinymt
import torch
import toy
import transformers
from tinymt import CAPTIONS
from toy import Chain

from ccr_cli.artifacts import translation
from ccr_cli.data.languages import bcp47, iso3, nllb, primary, usual
from ccr_cli.errors import ArtifactError, UnavailableError, UsageError, out_of_memory
from ccr_cli.translators import ct2, hf
from ccr_cli.translators._seq2seq import OPUS_PAIRS, default_model, licence, non_commercial


def translator(model: Path, source: str = "en", target: str = "de", **options: Any) -> hf.Translator:
    return hf.Translator(source, target, hf.Config(model=str(model), **options), dataset_dir=None, device="cpu")


def test_m2m100_is_told_both_languages(m2m100: Path) -> None:
    engine = translator(m2m100, "de", "zh-Hans")
    assert engine._tokenizer.src_lang == "de"
    assert engine._tokenizer.convert_ids_to_tokens(engine._route.forced_token) == "__zh__"
    ids = engine._tokenizer([CAPTIONS[2]])["input_ids"][0]
    assert engine._tokenizer.convert_ids_to_tokens(ids[0]) == "__de__"
    texts = [result.text for result in toy.translated(translator(m2m100), CAPTIONS)]
    assert all(text and "__" not in text for text in texts), "the language is no part of the translation"


def test_nllb_is_told_both_languages(nllb: Path) -> None:
    engine = translator(nllb, "en", "zh-TW")
    assert engine._tokenizer.src_lang == "eng_Latn"
    assert engine._tokenizer.convert_ids_to_tokens(engine._route.forced_token) == "zho_Hant"
    assert engine._tokenizer([CAPTIONS[2]])["input_ids"][0][0] == engine._tokenizer.convert_tokens_to_ids("eng_Latn")
    override = translator(nllb, "en", "xx", source_code="fra_Latn", target_code="zho_Hans")
    assert override._tokenizer.src_lang == "fra_Latn"


def test_a_language_that_the_model_does_not_know(m2m100: Path, nllb: Path) -> None:
    with pytest.raises(UnavailableError, match="tlh"):
        translator(m2m100, "en", "tlh")
    with pytest.raises(UnavailableError, match="tlh"):
        translator(nllb, "tlh", "de")


@pytest.mark.slow
def test_marian_with_several_target_languages(tmp_path: Path) -> None:
    model = tinymt.marian(tmp_path, [">>cmn_Hans<<", ">>cmn_Hant<<", ">>deu<<"])
    assert translator(model, "en", "zh")._route.prefix == ">>cmn_Hans<< "
    assert translator(model, "en", "zh-TW")._route.prefix == ">>cmn_Hant<< "
    assert translator(model, "en", "de")._route.prefix == ">>deu<< "
    tokenizer = translator(model, "en", "de")._tokenizer
    assert tokenizer.convert_ids_to_tokens(tokenizer([">>deu<< A dog."])["input_ids"][0][0]) == ">>deu<<"
    with pytest.raises(UnavailableError, match="fra"):
        translator(model, "en", "fr")


def test_a_marian_of_one_pair_is_not_asked_the_other_way(marian: Path) -> None:
    assert translator(marian, "en-GB", "de")._route.prefix == ""
    for source, target in (("de", "en"), ("en", "fr")):
        with pytest.raises(UnavailableError, match=rf"\ben\b.*\bde\b.*\b{source}\b.*\b{target}\b") as caught:
            translator(marian, source, target)
        assert "back_model" in (caught.value.hint or "")


def test_the_way_back_has_its_model_and_the_names_of_the_languages_change_places(
    workspace: Chain, m2m100: Path, marian: Path
) -> None:
    call = ("translate", "--split", "val", "--back", "--engine", "hf", "--device", "cpu")
    many = ("--set", f"model={m2m100}", "--set", "source_code=en", "--set", "target_code=de")
    made = toy.ok(*call, "--lang", "xx", *many, workspace=workspace.root).made
    questions = [json.loads(path.read_text()) for path in Path(os.environ["CCR_CACHE"]).rglob("question.json")]
    assert sorted(question["engine"]["codes"] for question in questions) == [["de", "en"], ["en", "de"]]
    assert (translation.read(made)["status"] == "ok").all()
    one = ("--lang", "de", "--set", f"model={marian}")
    refused = toy.ccr(*call, *one, workspace=workspace.root)
    assert refused.code == 5 and "not de into en" in refused.err
    mixed = toy.ok(*call, *one, "--set", f"back_model={m2m100}", workspace=workspace.root).made
    assert mixed.request["set.back_model"].startswith("sha256:") and str(m2m100) not in str(mixed.request)
    rows = translation.read(mixed)
    assert set(rows.loc[rows["direction"] == "forward", "model"]) == {marian.name}
    assert set(rows.loc[rows["direction"] == "back", "model"]) == {m2m100.name}


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("es", "es"), ("ES", "es"), ("spa", "es"), ("es_ES", "es-ES"), ("zh_hant_tw", "zh-Hant-TW"), ("PT-br", "pt-BR"),
        ("yue", "yue"), ("xx", "xx"), ("../es", "../es"),
    ],
)  # fmt: skip
def test_tags_are_written_as_usual(given: str, expected: str) -> None:
    assert usual(given) == expected


def test_a_script_is_never_lost_in_silence(m2m100: Path, nllb: Path, madlad: Path, tmp_path: Path) -> None:
    marian = tinymt.marian(tmp_path, [">>zho<<", ">>deu<<"])
    for model, lang, code, told in (
        (m2m100, "zh-TW", "zh", ""),
        (m2m100, "zh-Hant", "zh", ""),
        (marian, "zh-TW", "zho", ">>zho<< "),
        (madlad, "de-Cyrl", "de", "<2de> "),
    ):
        plain = lang.partition("-")[0]
        with pytest.raises(UnavailableError, match=rf"\b{lang}\b.*\b{plain}\b") as caught:
            translator(model, "en", lang)
        assert f"--set target_code={code}" in (caught.value.hint or "")
        assert translator(model, "en", lang, target_code=code)._route.prefix == told
        assert translator(model, "en", plain)._route.prefix == told
    assert translator(m2m100, "en", "zh-CN")._route.codes == ("en", "zh")
    assert translator(m2m100, "zh-TW", "en")._route.codes == ("zh", "en"), "nothing is lost of what is read"
    assert translator(nllb, "en", "zh-TW")._route.codes == ("eng_Latn", "zho_Hant")


def test_t5_wants_a_language_token_or_a_prefix(madlad: Path, tmp_path: Path) -> None:
    engine = translator(madlad)
    assert engine._route.prefix == "<2de> " and engine.describe()["licence"] == "Apache-2.0"
    with pytest.raises(UnavailableError, match="<2fr>"):
        translator(madlad, "en", "fr")
    words = [(p, -float(i)) for i, p in enumerate(tinymt.pieces(tinymt.sentencepiece_model()))]
    tokenizer = transformers.T5Tokenizer(vocab=words, extra_ids=0)
    network = transformers.AutoModelForSeq2SeqLM.from_pretrained(madlad)
    network.save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    with pytest.raises(UsageError, match="T5"):
        translator(tmp_path)
    assert translator(tmp_path, prefix="translate: ")._route.prefix == "translate: "


def test_a_model_of_another_family(tmp_path: Path, marian: Path) -> None:
    sizes = {key: value for key, value in tinymt.SIZE.items() if key != "max_position_embeddings"}
    transformers.BartForConditionalGeneration(transformers.BartConfig(vocab_size=90, **sizes)).save_pretrained(tmp_path)
    transformers.AutoTokenizer.from_pretrained(marian).save_pretrained(tmp_path)
    with pytest.raises(UsageError, match="'bart'"):
        translator(tmp_path)


def test_defaults_of_the_pairs() -> None:
    assert default_model("en", "zh") == default_model("en", "zh-Hant") == "Helsinki-NLP/opus-mt-en-zh"
    assert default_model("ja", "en-GB") == "Helsinki-NLP/opus-mt-ja-en"
    assert default_model("en", "ja") == default_model("cs", "ja") == "facebook/m2m100_418M"
    assert len(set(OPUS_PAIRS)) == len(OPUS_PAIRS)


def test_the_licence_is_what_the_card_says(tmp_path: Path) -> None:
    def card(text: str) -> str:
        (tmp_path / "README.md").write_text(text)
        return licence("opus-mt-en-de", tmp_path)

    known = "Apache-2.0 or CC-BY-4.0, see the model's card"
    assert licence("Helsinki-NLP/opus-mt-en-de") == licence("opus-mt-en-de", tmp_path) == known
    assert card("---\nlanguage:\n- en\nlicense: cc-by-4.0\n---\n# A model\n") == "CC-BY-4.0"
    assert card("---\nlicense:\n- apache-2.0\n- mit\n---\n") == "apache-2.0"
    assert card("---\nlicense: 'mit'\n---\n") == "mit"
    assert card("# A model\n\nlicense: mit\n") == card("---\ntags: []\n---\nlicense: mit\n") == known
    assert licence("someone/unknown") == "see the model's card"
    assert licence("facebook/nllb-200-distilled-600M") == "CC-BY-NC-4.0"


def test_non_commercial_licences_are_told_from_the_others() -> None:
    assert all(map(non_commercial, ("CC-BY-NC-4.0", "cc-by-nc-sa-3.0", "some Non-Commercial licence")))
    assert not any(map(non_commercial, ("CC-BY-4.0", "Apache-2.0", "mit", "see the model's card")))


def test_a_card_that_forbids_commercial_use_is_warned_about(
    marian: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for path in marian.iterdir():
        (tmp_path / path.name).symlink_to(path)
    (tmp_path / "README.md").write_text("---\nlicense: cc-by-nc-sa-4.0\n---\n")
    assert translator(tmp_path).describe()["warning"] == "not for commercial use"
    assert "is licensed CC-BY-NC-SA-4.0: not for commercial use" in capsys.readouterr().err
    plan = hf.planned("en", "de", hf.Config(model=str(tmp_path)))
    assert plan["licence"] == "CC-BY-NC-SA-4.0" and plan["here"] == "yes"


def test_errors_that_say_that_memory_ran_out() -> None:
    assert out_of_memory(RuntimeError("CUDA failed with error out of memory")), "as CTranslate2 says it"
    assert out_of_memory(MemoryError())
    with pytest.raises(RuntimeError) as caught:
        torch.empty(2**60)
    assert out_of_memory(caught.value), "as torch says it of a CPU"
    assert not out_of_memory(RuntimeError("CUBLAS_STATUS_NOT_SUPPORTED"))


@pytest.mark.parametrize("engine", [hf, ct2], ids=["hf", "ct2"])
def test_a_device_that_is_none_and_one_that_is_not_there(engine: Any, marian: Path) -> None:
    def on(device: str) -> Any:
        return engine.Translator("en", "de", engine.Config(model=str(marian)), dataset_dir=None, device=device)

    for device in ("gpu", "cuda:", "cuda:x", "cpu:0"):
        with pytest.raises(UsageError, match=f"{device!r}.*auto.*cpu.*cuda"):
            on(device)
    with pytest.raises(UnavailableError, match="cuda:99"):
        on("cuda:99")
    assert on("auto").device in ("cpu", "cuda")


@pytest.mark.parametrize("engine", [hf, ct2], ids=["hf", "ct2"])
def test_a_damaged_model_is_said_to_be_one(engine: Any, marian: Path, tmp_path: Path) -> None:
    def broken(name: str, content: bytes | None) -> Any:
        folder = tmp_path / name
        folder.mkdir()
        for path in marian.iterdir():
            if path.is_file():
                (folder / path.name).write_bytes(path.read_bytes())
        (folder / name).unlink()
        if content is not None:
            (folder / name).write_bytes(content)
        return engine.Translator("en", "de", engine.Config(model=str(folder)), dataset_dir=None, device="cpu")

    with pytest.raises(UsageError, match=r"config\.json"):
        broken("config.json", b"{")
    with pytest.raises(ArtifactError, match=r"source\.spm"):
        broken("source.spm", None)
    with pytest.raises(ArtifactError, match=r"model\.safetensors"):
        list(broken("model.safetensors", (marian / "model.safetensors").read_bytes()[:3000]).translate(["a dog"]))


def test_language_codes() -> None:
    assert [nllb(x) for x in ("de", "zh", "zh-Hant", "zh-HK", "ar", "sr", "sr-Latn", "fa")] == [
        "deu_Latn", "zho_Hans", "zho_Hant", "zho_Hant", "arb_Arab", "srp_Cyrl", "srp_Latn", "pes_Arab",
    ]  # fmt: skip
    assert [iso3("fr"), iso3("pt-BR"), bcp47("fra"), bcp47("fr"), bcp47("xyz")] == [
        "fra", "por", "fr", "fr", "xyz",
    ]  # fmt: skip
    assert [primary(x) for x in ("pt-BR", "por", "POR-BR", "ES", "tlh", "zlm")] == [
        "pt",
        "pt",
        "pt",
        "es",
        "tlh",
        "zlm",
    ]


@pytest.mark.parametrize("engine", [hf, ct2], ids=["hf", "ct2"])
def test_a_folder_that_is_not_there_and_the_ways_out(
    engine: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "apertium"
    program.write_text("#!/bin/sh\necho eng-spa\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    for target, offered in (("es", True), ("spa", True), ("ja", False)):
        with pytest.raises(UnavailableError, match="models/my-marian") as caught:
            engine.Translator("en", target, engine.Config(model="models/my-marian"), dataset_dir=tmp_path, device="cpu")
        hint = caught.value.hint or ""
        assert "--set model=FOLDER" in hint and ("--engine apertium" in hint) == offered
        assert "--engine recorded (recorded in this data set: nothing)" in hint
