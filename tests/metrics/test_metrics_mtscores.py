"""BLEU and chrF against direct calls of sacrebleu, and by hand."""

from __future__ import annotations

import importlib.util
import json

import pytest
import sacrebleu
from sacrebleu.metrics.chrf import CHRF

from ccr_cli.metrics import mtscores
from ccr_cli.metrics.mtscores import corpus_chrf, corpus_scores, sentence_chrf, tokenizer

SOURCES = ["A dog runs in the snow.", "Two men on a bench", "red car"]
BACK = ["A dog is running in the snow.", "Two men on a bench", "green bottle"]
CHINESE = ["一只狗在雪地里跑。", "两个男人坐在长椅上"]
HUMAN = [["一只狗在雪中奔跑", "狗在雪地里跑"], ["长椅上坐着两个男人", "两个男人在长椅上"]]


def test_chrf_is_sacrebleus() -> None:
    each, (corpus, signature) = sentence_chrf(BACK, [[source] for source in SOURCES]), corpus_chrf(BACK, SOURCES)
    expected = [sacrebleu.sentence_chrf(back, [source]).score for back, source in zip(BACK, SOURCES, strict=True)]
    assert each.tolist() == pytest.approx(expected)
    assert corpus == pytest.approx(sacrebleu.corpus_chrf(BACK, [SOURCES]).score)
    assert each[1] == pytest.approx(100.0)
    assert "nc:6" in signature and "nw:0" in signature and "case:mixed" in signature


def test_chrf_by_hand() -> None:
    # "abc" for "abd". 1-grams 2/3 and 2/3, 2-grams 1/2 and 1/2, 3-grams 0/1 and 0/1; there are no
    # longer ones. Mean precision = mean recall = 7/18, so F2 = 7/18 as well.
    assert sentence_chrf(["abc"], [["abd"]])[0] == pytest.approx(100 * 7 / 18, abs=1e-6)
    assert corpus_chrf(["abc"], ["abd"])[0] == pytest.approx(100 * 7 / 18, abs=1e-6)


def test_of_several_references_the_nearest_counts() -> None:
    found = sentence_chrf(["a dog", ""], [["a cat", "a dog", "dogs"], ["a dog"]])
    assert found.tolist() == pytest.approx([100.0, 0.0])


def test_corpus_scores_are_sacrebleus() -> None:
    found, note = corpus_scores(BACK, [[source] for source in SOURCES], "en")
    assert note == "" and list(found) == ["BLEU", "chrF2", "chrF2++"]
    assert found["BLEU"]["score"] == pytest.approx(sacrebleu.corpus_bleu(BACK, [SOURCES]).score, abs=1e-4)
    assert found["chrF2"]["score"] == pytest.approx(sacrebleu.corpus_chrf(BACK, [SOURCES]).score, abs=1e-4)
    expected = sacrebleu.corpus_chrf(BACK, [SOURCES], word_order=2).score
    assert found["chrF2++"]["score"] == pytest.approx(expected, abs=1e-4)
    version = sacrebleu.__version__
    signature = f"nrefs:1|bs:1000|seed:12345|case:mixed|eff:no|tok:13a|smooth:exp|version:{version}"
    assert found["BLEU"]["signature"] == signature
    for name, figures in found.items():
        low, high = figures["interval"]
        assert 0 <= low < figures["score"] < high <= 100, name


@pytest.mark.parametrize("block", [8192, 7])
def test_the_interval_is_sacrebleus(block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mtscores, "_BLOCK", block)
    metric = CHRF()
    direct = metric.corpus_score(BACK * 9, [SOURCES * 9], n_bootstrap=1000)
    told = json.loads(direct.format(width=4, is_json=True, signature=str(metric.get_signature())))
    found, _ = corpus_scores(BACK * 9, [[source] for source in SOURCES * 9], "en")
    low, high = found["chrF2"]["interval"]
    assert (low + high) / 2 == pytest.approx(told["confidence_mean"], abs=1e-4)
    assert (high - low) / 2 == pytest.approx(told["confidence_var"], abs=1e-4) and high > low


@pytest.mark.parametrize("lang", ["zh", "zh-TW", "yue"])
def test_chinese_is_cut_into_characters(lang: str) -> None:
    found, note = corpus_scores(CHINESE, HUMAN, lang)
    assert note == "" and list(found) == ["BLEU", "chrF2"], "it has no spaces, so no words for chrF2++"
    streams = [list(stream) for stream in zip(*HUMAN, strict=True)]
    expected = sacrebleu.corpus_bleu(CHINESE, streams, tokenize="zh").score
    assert found["BLEU"]["score"] == pytest.approx(expected, abs=1e-4) and expected > 10
    assert "nrefs:2" in found["BLEU"]["signature"] and "tok:zh" in found["BLEU"]["signature"]


def test_japanese_without_mecab_is_cut_into_characters_and_says_so() -> None:
    name, note = tokenizer("ja")
    if importlib.util.find_spec("MeCab") and importlib.util.find_spec("ipadic"):
        assert (name, note) == ("ja-mecab", "")
        return
    assert name == "char" and "pip install 'sacrebleu[ja]'" in note
    found, said = corpus_scores(["犬が雪の中を走る"], [["犬が雪の上を走る"]], "ja")
    assert said == note and "tok:char" in found["BLEU"]["signature"]
    assert found["BLEU"]["score"] == pytest.approx(
        sacrebleu.corpus_bleu(["犬が雪の中を走る"], [["犬が雪の上を走る"]], tokenize="char").score, abs=1e-4
    )
    assert found["BLEU"]["interval"] is None, "there is one sentence"


def test_references_need_not_be_equally_many() -> None:
    found, _ = corpus_scores(["a dog runs in snow", "a cat"], [["a dog runs in snow", "x"], ["a cat"]], "en")
    assert found["BLEU"]["score"] == pytest.approx(100.0)
    assert "nrefs:var" in found["BLEU"]["signature"]
    for wrong in ([["a"], []], [["a"]]):
        with pytest.raises(ValueError, match=r"^2\b.*\b1\b"):
            corpus_scores(["a", "b"], wrong, "en")
    with pytest.raises(ValueError, match=r"^0\b.*\b0\b"):
        corpus_scores([], [], "en")
