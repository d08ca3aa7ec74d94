"""The hf engine on tiny Marian, M2M100, NLLB and MADLAD-like models made here; nothing comes from a network."""

from __future__ import annotations

import io
import json
import math
import subprocess
import sys
import time
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
import toy
import transformers

from ccr_cli.errors import ArtifactError, UnavailableError, UsageError
from ccr_cli.translators import hf
from ccr_cli.translators._languages import bcp47, iso3, nllb

SENTENCES = [
    "A dog runs through deep snow.",
    "Two children play with a red ball.",
    "Ein Hund rennt durch tiefen Schnee.",
    "Zwei Kinder spielen mit einem roten Ball.",
    "A woman reads a book on a bench in the park.",
]
SMALL: dict[str, Any] = {
    "d_model": 16, "encoder_layers": 1, "decoder_layers": 1, "encoder_attention_heads": 2,
    "decoder_attention_heads": 2, "encoder_ffn_dim": 32, "decoder_ffn_dim": 32, "max_position_embeddings": 64,
}  # fmt: skip


def sentencepiece_model(symbols: Sequence[str] = ()) -> bytes:
    import sentencepiece

    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(SENTENCES * 4), model_writer=model, vocab_size=80 + len(symbols), minloglevel=2,
        hard_vocab_limit=False, user_defined_symbols=list(symbols), pad_id=3,
    )  # fmt: skip
    return model.getvalue()


def pieces(model: bytes) -> list[str]:
    import sentencepiece

    processor = sentencepiece.SentencePieceProcessor(model_proto=model)
    return [processor.id_to_piece(i) for i in range(processor.get_piece_size())]


def save(folder: Path, network: Any, tokenizer: Any) -> Path:
    network.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def parts(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[str]]:
    folder = tmp_path_factory.mktemp("spm")
    model = sentencepiece_model()
    (folder / "x.spm").write_bytes(model)
    return folder, [piece for piece in pieces(model) if piece not in ("<s>", "</s>", "<unk>", "<pad>")]


def make_marian(folder: Path, parts: tuple[Path, list[str]], languages: Sequence[str] = ()) -> Path:
    spm, words = parts
    vocabulary = ["</s>", "<unk>", *words, *languages, "<pad>"]
    (spm / "vocab.json").write_text(json.dumps({word: i for i, word in enumerate(vocabulary)}))
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Recommended: pip install sacremoses")
        tokenizer = transformers.MarianTokenizer(
            str(spm / "x.spm"), str(spm / "x.spm"), str(spm / "vocab.json"), source_lang="en", target_lang="de"
        )
    torch.manual_seed(0)
    last = len(vocabulary) - 1
    config = transformers.MarianConfig(
        vocab_size=len(vocabulary), pad_token_id=last, eos_token_id=0, decoder_start_token_id=last,
        forced_eos_token_id=0, max_length=512, **SMALL,
    )  # fmt: skip
    return save(folder, transformers.MarianMTModel(config), tokenizer)


@pytest.fixture(scope="module")
def marian(tmp_path_factory: pytest.TempPathFactory, parts: tuple[Path, list[str]]) -> Path:
    return make_marian(tmp_path_factory.mktemp("marian"), parts)


@pytest.fixture(scope="module")
def m2m(tmp_path_factory: pytest.TempPathFactory, parts: tuple[Path, list[str]]) -> Path:
    spm, words = parts
    vocabulary = ["<s>", "<pad>", "</s>", "<unk>", *words]
    (spm / "m2m.json").write_text(json.dumps({word: i for i, word in enumerate(vocabulary)}))
    tokenizer = transformers.M2M100Tokenizer(str(spm / "m2m.json"), str(spm / "x.spm"))
    torch.manual_seed(0)
    config = transformers.M2M100Config(
        vocab_size=len(vocabulary) + 108, pad_token_id=1, eos_token_id=2, bos_token_id=0, decoder_start_token_id=2,
        **SMALL,
    )  # fmt: skip
    network = transformers.M2M100ForConditionalGeneration(config)
    return save(tmp_path_factory.mktemp("m2m"), network, tokenizer)


@pytest.fixture(scope="module")
def nllb_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    letters = sorted(set("".join(SENTENCES).replace(" ", "\u2581")))
    vocabulary = {t: i for i, t in enumerate(["<s>", "<pad>", "</s>", "<unk>", *letters])}
    tokenizer = transformers.NllbTokenizer(vocab=vocabulary, merges=[])
    torch.manual_seed(0)
    config = transformers.M2M100Config(
        vocab_size=len(tokenizer), pad_token_id=1, eos_token_id=2, bos_token_id=0, decoder_start_token_id=2,
        **SMALL,
    )  # fmt: skip
    network = transformers.M2M100ForConditionalGeneration(config)
    return save(tmp_path_factory.mktemp("tiny") / "nllb-tiny", network, tokenizer)


def translator(model: Path, source: str = "en", target: str = "de", **options: Any) -> hf.Translator:
    config = hf.Config(model=str(model), **({"max_new_tokens": 12} | options))
    return hf.Translator(source, target, config, dataset_dir=None, device="cpu")


def test_order_length_and_empty_texts(marian: Path) -> None:
    engine = translator(marian)
    texts = [SENTENCES[4], "", "A dog.", "   ", SENTENCES[0]]
    results = toy.translated(engine, texts)
    assert len(results) == 5
    assert [results[1].text, results[3].text] == ["", ""]
    alone = [toy.translated(engine, [text])[0] for text in texts]
    assert [r.text for r in results] == [r.text for r in alone]
    for together, single in zip(results, alone, strict=True):
        assert (together.score is None) == (single.score is None)
        if together.score is not None and single.score is not None:
            assert together.score == pytest.approx(single.score, abs=1e-5)
    assert toy.translated(engine, []) == []


def test_small_batches_change_nothing(marian: Path) -> None:
    one = toy.translated(translator(marian, batch_tokens=1), SENTENCES)
    all_at_once = toy.translated(translator(marian), SENTENCES)
    assert [r.text for r in one] == [r.text for r in all_at_once]


def oracle_score(engine: hf.Translator, text: str, skip: int) -> float:
    """Mean log-probability of a token from the scores of the search itself, in float64."""
    network, tokenizer = engine._network, engine._tokenizer
    inputs = tokenizer([text], return_tensors="pt")
    output = network.generate(
        **inputs, generation_config=engine._generation, return_dict_in_generate=True, output_logits=True
    )
    tokens = output.sequences[0, 1:].tolist()
    eos = network.generation_config.eos_token_id
    tokens = tokens[: tokens.index(eos) + 1] if eos in tokens else tokens
    logs = [
        float(torch.log_softmax(logits[0].double(), dim=-1)[token])
        for token, logits in zip(tokens, output.logits, strict=False)
    ]
    return sum(logs[skip:]) / len(logs[skip:])


def test_score_is_the_mean_log_probability_of_a_token(marian: Path) -> None:
    engine = translator(marian)
    found = toy.translated(engine, [SENTENCES[0]])[0].score
    assert found == pytest.approx(oracle_score(engine, SENTENCES[0], 0), abs=1e-4)


def test_the_forced_language_token_is_not_scored(m2m: Path) -> None:
    engine = translator(m2m)
    found = toy.translated(engine, [SENTENCES[0]])[0].score
    assert found == pytest.approx(oracle_score(engine, SENTENCES[0], 1), abs=1e-4)


def test_m2m100_is_told_both_languages(m2m: Path) -> None:
    engine = translator(m2m, "de", "zh-Hans")
    assert engine._tokenizer.src_lang == "de"
    forced = engine._route.forced_token
    assert engine._tokenizer.convert_ids_to_tokens(forced) == "__zh__"
    ids = engine._tokenizer([SENTENCES[2]])["input_ids"][0]
    assert engine._tokenizer.convert_ids_to_tokens(ids[0]) == "__de__"
    assert all(r.text is not None or r.error for r in toy.translated(engine, SENTENCES))


def test_nllb_is_told_both_languages_and_warns(nllb_model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    engine = translator(nllb_model, "en", "zh-TW", num_beams=2)
    assert engine._tokenizer.src_lang == "eng_Latn"
    assert engine._tokenizer.convert_ids_to_tokens(engine._route.forced_token) == "zho_Hant"
    assert len(toy.translated(engine, SENTENCES)) == len(SENTENCES)
    assert engine.describe()["licence"] == "CC-BY-NC-4.0"
    assert engine.describe()["warning"] == "not for commercial use"
    captured = capsys.readouterr()
    assert "not for commercial use" in captured.err and captured.out == ""


def test_a_language_that_the_model_does_not_know(m2m: Path, nllb_model: Path) -> None:
    with pytest.raises(UnavailableError, match="tlh"):
        translator(m2m, "en", "tlh")
    with pytest.raises(UnavailableError, match="tlh"):
        translator(nllb_model, "tlh", "de")


def test_marian_with_several_target_languages(tmp_path: Path, parts: tuple[Path, list[str]]) -> None:
    model = make_marian(tmp_path, parts, [">>cmn_Hans<<", ">>cmn_Hant<<", ">>deu<<"])
    assert translator(model, "en", "zh")._route.prefix == ">>cmn_Hans<< "
    assert translator(model, "en", "zh-TW")._route.prefix == ">>cmn_Hant<< "
    assert translator(model, "en", "de")._route.prefix == ">>deu<< "
    ids = translator(model, "en", "de")._tokenizer([">>deu<< A dog."])["input_ids"][0]
    assert translator(model, "en", "de")._tokenizer.convert_ids_to_tokens(ids[0]) == ">>deu<<"
    with pytest.raises(UnavailableError, match="fra"):
        translator(model, "en", "fr")


def test_t5_wants_a_language_token_or_a_prefix(tmp_path: Path) -> None:
    model = sentencepiece_model(["<2de>", "<2en>"])
    (tmp_path / "spiece.model").write_bytes(model)
    vocabulary = [(piece, -float(i)) for i, piece in enumerate(pieces(model))]
    for name, words in (("madlad", vocabulary), ("plain", [v for v in vocabulary if v[0][:2] != "<2"])):
        tokenizer = transformers.T5Tokenizer(vocab=words, extra_ids=0)
        torch.manual_seed(0)
        config = transformers.T5Config(
            vocab_size=len(tokenizer), d_model=16, d_kv=8, d_ff=32, num_layers=1, num_heads=2,
            decoder_start_token_id=tokenizer.pad_token_id, pad_token_id=tokenizer.pad_token_id,
            eos_token_id=tokenizer.eos_token_id,
        )  # fmt: skip
        save(tmp_path / name, transformers.T5ForConditionalGeneration(config), tokenizer)
    engine = translator(tmp_path / "madlad")
    assert engine._route.prefix == "<2de> "
    assert len(toy.translated(engine, SENTENCES)) == 5
    assert engine.describe()["licence"] == "Apache-2.0"
    with pytest.raises(UnavailableError, match="<2fr>"):
        translator(tmp_path / "madlad", "en", "fr")
    with pytest.raises(UsageError, match="needs to be told"):
        translator(tmp_path / "plain")
    assert translator(tmp_path / "plain", prefix="translate: ")._route.prefix == "translate: "


def test_a_text_that_is_too_long_fails_alone(marian: Path) -> None:
    good, bad = toy.translated(translator(marian), ["A dog.", "dog " * 200])
    assert good.error is None or good.error == "the model gave nothing"
    assert bad.text is None and bad.error is not None and "the model reads 64" in bad.error


def test_memory_runs_out_and_the_batch_is_halved(marian: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = translator(marian)
    expected = toy.translated(engine, SENTENCES)
    once = hf.Translator._generate_once
    sizes: list[int] = []

    def greedy(self: hf.Translator, tokens: list[list[int]]) -> Any:
        sizes.append(len(tokens))
        if len(tokens) > 2:
            raise torch.OutOfMemoryError("as on a small card")
        return once(self, tokens)

    monkeypatch.setattr(hf.Translator, "_generate_once", greedy)
    assert [r.text for r in toy.translated(engine, SENTENCES)] == [r.text for r in expected]
    assert sizes[0] == 5 and max(sizes[1:]) < 5


def test_describe_names_model_search_and_licence(marian: Path) -> None:
    facts = translator(marian, num_beams=3).describe()
    assert facts["engine"] == "hf" and facts["model"] == marian.name
    assert "3 beams" in facts["command"] and "float32" in facts["command"]
    assert all(isinstance(value, str) for value in facts.values())
    assert hf.licence("Helsinki-NLP/opus-mt-en-de").startswith("Apache-2.0 or CC-BY")


def test_defaults_of_the_pairs() -> None:
    assert hf.default_model("en", "zh") == "Helsinki-NLP/opus-mt-en-zh"
    assert hf.default_model("en", "ja") == "Helsinki-NLP/opus-mt-en-jap"
    assert hf.default_model("ja", "en-GB") == "Helsinki-NLP/opus-mt-ja-en"
    assert hf.default_model("cs", "ja") == "facebook/m2m100_418M"
    assert hf.pairs(None) is None


def test_language_codes() -> None:
    assert [nllb(x) for x in ("de", "zh", "zh-Hant", "zh-HK", "ar", "sr", "sr-Latn", "fa")] == [
        "deu_Latn", "zho_Hans", "zho_Hant", "zho_Hant", "arb_Arab", "srp_Cyrl", "srp_Latn", "pes_Arab",
    ]  # fmt: skip
    assert [iso3("fr"), iso3("pt-BR"), bcp47("fra"), bcp47("fr"), bcp47("xyz")] == [
        "fra", "por", "fr", "fr", "xyz",
    ]  # fmt: skip


@pytest.mark.parametrize("offline", [True, False])
def test_no_model_and_no_network_is_said_at_once(
    offline: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import huggingface_hub

    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", offline)

    def hang(*args: Any, **kwargs: Any) -> Any:
        time.sleep(30)

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


def test_folders_and_names_that_cannot_be(tmp_path: Path) -> None:
    with pytest.raises(ArtifactError, match="no complete model"):
        translator(tmp_path)
    with pytest.raises(UsageError, match="neither a folder nor"):
        translator(Path("no such/place/at all"))


def test_a_model_of_another_family(tmp_path: Path, parts: tuple[Path, list[str]], marian: Path) -> None:
    config = transformers.BartConfig(vocab_size=90, **SMALL)
    tokenizer = transformers.AutoTokenizer.from_pretrained(marian)
    save(tmp_path, transformers.BartForConditionalGeneration(config), tokenizer)
    with pytest.raises(UsageError, match="'bart'"):
        translator(tmp_path)


def test_options_are_checked() -> None:
    with pytest.raises(ValueError, match="at least 1"):
        hf.Config(num_beams=0)
    with pytest.raises(ValueError, match="int8"):
        hf.Config(dtype="int8")
    assert math.isclose(hf.Config().num_beams, 1)
