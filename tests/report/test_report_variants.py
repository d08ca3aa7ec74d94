"""Runs of one method on several languages, beside those on one of them."""

from __future__ import annotations

from typing import Any

from fakes import variant_labels

from ccr_cli.artifacts.signature import KEYS, Signature
from ccr_cli.report.tables import comparable


def test_runs_on_several_languages_stand_beside_those_on_one() -> None:
    def config(lang: object, beta: float = 0.5, **more: object) -> dict[str, Any]:
        return {"data": "d", "lang": lang, "options": {"beta": beta}, **more}

    both = config(["de", "fr"], translations={"de": "de-a", "fr": "fr-a"})
    runs = {
        "both": ("uml", both),
        "drawn": ("uml", both | {"langs": "draw", "human": ["fr"]}),
        "de": ("uml", config("de")),
        "it": ("uml", config("it", 0.9)),
    }
    labels = {
        "both": "uml [lang=de+fr]",
        "drawn": "uml [lang=de+fr, drawn, captions=human]",
        "de": "uml",
        "it": "uml",
    }
    assert variant_labels(runs) == labels, "Italian stands in no table with the others"
    runs["fr"] = ("uml", config("fr", 0.1))
    found = variant_labels(runs)
    assert found["both"] == "uml [lang=de+fr, beta=0.5]" and found["fr"] == "uml [beta=0.1]" and found["it"] == "uml"
    other = ("uml", both | {"translations": {"de": "de-a", "fr": "fr-b"}})
    told = variant_labels({"both": runs["both"], "other": other})
    assert told == {"both": "uml [lang=de+fr, fr=fr-a]", "other": "uml [lang=de+fr, fr=fr-b]"}


def test_a_result_stands_with_those_of_its_language() -> None:
    def result(lang: str, mt: str) -> dict[str, Any]:
        keys = dict.fromkeys(KEYS, "x") | {"lang": lang, "mt": mt, "protocol": "full", "noise": "none"}
        return {"run": "r", "label": "uml", "lang": lang, "signature": str(Signature(**keys))}

    facts = {
        "one": comparable.RunFacts("one", "uml", lang="de"),
        "two": comparable.RunFacts("two", "uml", lang="de+fr"),
    }
    results = [
        ("one", result("de", "hf:a")),
        ("two", result("de", "hf:a+fr=hf:b")),
        ("two", result("en", "de=hf:a+fr=hf:b")),
        ("gone", result("fr", "hf:b+de=human:hf:a")),
    ]
    frame = comparable.results_frame(results, facts)
    assert list(frame["trained_lang"]) == ["de", "de", "de+fr", ""]
    assert frame["key"][0] == frame["key"][1] and frame["key"].nunique() == 3
    assert frame["label"][3] == "uml [lang=de+fr, captions=human]"


def test_a_version_of_ones_own_method_is_named_where_there_are_several() -> None:
    def config(version: str) -> dict[str, Any]:
        return {"data": "d", "lang": "es", "options": {}, "source": {"sha256": version * 64}}

    runs = {"old": ("gce", config("a")), "new": ("gce", config("b")), "other": ("mine", config("c"))}
    labels = {"old": "gce [source=aaaaaa]", "new": "gce [source=bbbbbb]", "other": "mine"}
    assert variant_labels(runs) == labels


def test_what_one_label_says_no_other_label_leaves_out() -> None:
    def config(epochs: int, lang: str = "es", data: str = "d", **more: object) -> dict[str, Any]:
        return {"data": data, "lang": lang, "options": {"epochs": epochs, **more}}

    runs = {
        "short": ("uml", config(3, beta=0.5)),
        "long": ("uml", config(12, beta=0.3)),
        "plain": ("infonce", config(3)),
        "oracle": ("infonce (oracle)", config(12)),
        "german": ("infonce", config(3, lang="de")),
        "other": ("infonce", config(3, data="e")),
        "weighted": ("infonce (beta=0.5)", config(12, beta=0.5)),
    }
    usual = {run: {"epochs": 12} for run in runs} | {run: {"epochs": 12, "beta": 0.3} for run in ("short", "long")}
    assert variant_labels(runs, usual | {"weighted": {"epochs": 12, "beta": 0.0}}) == {
        "short": "uml [beta=0.5, epochs=3]",
        "long": "uml",
        "plain": "infonce [epochs=3]",
        "oracle": "infonce (oracle)",
        "german": "infonce",
        "other": "infonce",
        "weighted": "infonce (beta=0.5)",
    }
    del runs["long"]
    assert variant_labels(runs, usual)["plain"] == "infonce", "no label says it"


def test_runs_without_translations_belong_to_the_tables_of_all_languages() -> None:
    """A pretrained model and one trained on English, beside runs of two languages."""

    def result(run: str, lang: str, mt: str, select: str, noise: str = "none") -> tuple[str, dict[str, Any]]:
        keys = dict.fromkeys(KEYS, "x") | {"lang": lang, "mt": mt, "select": select, "protocol": "full", "noise": noise}
        keys |= {"fusion": "none"}
        ratio = 0.4 if noise != "none" else 0.0
        entry = {"run": run, "label": run, "data": "d", "split": "test", "lang": lang, "role": "target"}
        return run, entry | {"fusion": "none", "noise": ratio, "SumR": 1.0, "signature": str(Signature(**keys))}

    switched = "caption-translation-0.4-seed0"
    trained = [result("es", "es", "a:x", "mt"), result("noisy", "es", "a:x", "mt", switched)]
    trained += [result("fr", "fr", "a:y", "mt"), result("human", "es", "a:x", "human")]
    untrained = [result("pretrained", lang, "none", "last") for lang in ("es", "fr")]
    untrained += [result("translated", "es", "a:x", "last"), result("source-only", "es", "none", "human")]
    langs = {"fr": "fr", "pretrained": "en", "source-only": "en"}
    facts = {
        run: comparable.RunFacts(run, run, lang=langs.get(run, "es"), trained=run not in ("pretrained", "translated"))
        for run in ("es", "noisy", "fr", "human", "pretrained", "translated", "source-only")
    }
    free = {"pretrained", "translated", "source-only"}
    views = comparable.views(comparable.results_frame(trained + untrained, facts))
    found = {frozenset(view.frame["label"]): view.lang for view in views}
    assert found == {
        frozenset({"es", "noisy"} | free): "es",
        frozenset({"human"} | free): "es",
        frozenset({"fr", "pretrained"}): "fr",
    }
    assert len(views) == 3 and views[0].setting.fields["mt"] == "a:x"
    alone = comparable.views(comparable.results_frame(untrained, facts))
    assert {frozenset(view.frame["label"]): view.lang for view in alone} == {
        frozenset(free): "es",
        frozenset({"pretrained"}): "fr",
    }
    assert len({view.title for view in views}) == 3
    assert [view.lang for view in comparable.same_but_language(alone)] == ["es", "fr"]
    assert comparable.is_plain("pretrained (translate-test)")

    def config(lang: str, model: str, alone: bool = True) -> dict[str, Any]:
        return {"data": "d", "lang": lang, "options": {"text_encoder": model}, "alone": alone}

    runs = {"en": ("pretrained", config("en", "one")), "es": ("pretrained", config("es", "one"))}
    assert variant_labels(runs) == dict.fromkeys(runs, "pretrained"), "one model, whatever was translated"
    runs["other"] = ("pretrained", config("fr", "two"))
    one, other = "pretrained [text_encoder=one]", "pretrained [text_encoder=two]"
    assert variant_labels(runs) == {"en": one, "es": one, "other": other}
