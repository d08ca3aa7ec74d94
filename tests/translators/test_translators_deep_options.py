"""Providers on the web: their names of languages, and options that cannot be. Nobody is asked."""

from __future__ import annotations

import deep_translator
import pytest

from ccr_cli.data.languages import code_of
from ccr_cli.errors import CcrError
from ccr_cli.stages.shared.options import configure
from ccr_cli.translators import deep_translator as engine

KEY = "1234abcd-key/of+mine==:fx"


@pytest.mark.parametrize(
    ("lang", "google", "deepl", "mymemory", "baidu"),
    [
        ("zh", "zh-CN", "zh", "zh-CN", "zh"),
        ("zh-Hans", "zh-CN", "zh", "zh-CN", "zh"),
        ("zh-TW", "zh-TW", None, "zh-TW", "cht"),
        ("zh-Hant-HK", "zh-TW", None, "zh-TW", "cht"),
        ("he", "iw", None, "he-IL", None),
        ("jv", "jw", None, "jv-ID", None),
        ("nb", "no", None, "nb-NO", None),
        ("ja", "ja", "ja", "ja-JP", "jp"),
        ("de-AT", "de", "de", "de-AT", "de"),
        ("de", "de", "de", "de-DE", "de"),
        ("pt-BR", "pt", "pt", "pt-BR", "pt"),
        ("sr", "sr", None, "sr-Cyrl-RS", None),
        ("sr-Latn", None, None, "sr-Latn-RS", None),
        ("en", "en", "en", "en-GB", "en"),
        ("tlh", None, None, None, None),
    ],
)
def test_names_of_languages(
    lang: str, google: str | None, deepl: str | None, mymemory: str | None, baidu: str | None
) -> None:
    constants = deep_translator.constants
    tables = (
        constants.GOOGLE_LANGUAGES_TO_CODES,
        constants.DEEPL_LANGUAGE_TO_CODE,
        constants.MY_MEMORY_LANGUAGES_TO_CODES,
        constants.BAIDU_LANGUAGE_TO_CODE,
    )
    assert [code_of(lang, table) for table in tables] == [google, deepl, mymemory, baidu]


def test_every_language_of_google_and_deepl_is_found_by_its_own_name() -> None:
    for table in (
        deep_translator.constants.GOOGLE_LANGUAGES_TO_CODES,
        deep_translator.constants.DEEPL_LANGUAGE_TO_CODE,
    ):
        assert {code: code_of(code, table) for code in table.values()} == {code: code for code in table.values()}


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"provider": "gogle"}, "'gogle'; choose from google, deepl, libretranslate"),
        ({"provider": "google", "url": "http://localhost:5000"}, "libretranslate; google has"),
        ({"provider": "libretranslate", "url": "localhost:5000"}, "such as http://localhost:5000"),
        ({"provider": "libretranslate", "url": f"https://a.example/?api_key={KEY}"}, "keys come from the environment"),
        ({"provider": "libretranslate", "url": f"https://me:{KEY}@a.example/"}, "keys come from the environment"),
        ({"retries": "9", "breaker": "9"}, "breaker"),
        ({"rate": "0"}, "rate"),
        ({"workers": "0"}, "workers"),
        *[({name: KEY}, "environment") for name in ("api_key", "apikey", "DEEPL_API_KEY", "auth_key")],
        *[({name: KEY}, "environment") for name in ("token", "secret_key", "client_secret", "appkey")],
        ({"tokens": "9"}, "options: backoff, breaker"),
    ],
)
def test_options_that_cannot_be(options: dict[str, str], words: str) -> None:
    with pytest.raises(CcrError) as caught:
        configure(engine.Config, options, "engine deep-translator")
    shown = f"{caught.value.message} {caught.value.hint}"
    assert words in shown and KEY not in shown
