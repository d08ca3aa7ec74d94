"""How each family of translation models is told the languages: a prefix, a first token, the tokenizer's setting."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ccr_cli.errors import UnavailableError, UsageError
from ccr_cli.translators._languages import has_code, iso3, nllb, primary, script, usually_written


@dataclass(frozen=True)
class Route:
    """How a model is told the languages."""

    prefix: str = ""
    """Put before every source text."""
    forced_token: int | None = None
    """Id of the first token of every translation."""
    codes: tuple[str, ...] = ()
    """The model's names of both languages, where it is told them by tokens of its own."""


def route(model: str, family: str, tokenizer: Any, source: str, target: str, config: Any) -> Route:
    """Finds out how a model wants its languages, and sets the tokenizer's source language.

    Args:
        model: Its name, for messages.
        family: The `model_type` of its configuration.
        tokenizer: Its tokenizer.
        source: BCP 47.
        target: BCP 47.
        config: The engine's Config: source_code, target_code and prefix override.

    Raises:
        UnavailableError: If the model does not know one of the languages, or not in that script.
        UsageError: If the model is of a family that is not known here.
    """
    if family == "marian":
        return Route(config.prefix or _marian_token(model, tokenizer, source, target, config.target_code))
    if family == "m2m_100":
        if hasattr(tokenizer, "lang_code_to_token"):  # M2M100 and WMT21: de, zh, ...
            codes = [config.source_code or primary(source), config.target_code or primary(target)]
            known = set(tokenizer.lang_code_to_token)
        else:  # NLLB: deu_Latn, zho_Hans, ...
            codes = [config.source_code or nllb(source), config.target_code or nllb(target)]
            known = {token for token in codes if _token_id(tokenizer, token) is not None}
        for code in codes:
            if code not in known:
                raise _unknown(model, code)
        if hasattr(tokenizer, "lang_code_to_token") and not config.target_code:
            _refuse_script(model, target, codes[1])
        tokenizer.src_lang = codes[0]
        token = codes[1] if codes[1] not in getattr(tokenizer, "lang_code_to_token", {}) else f"__{codes[1]}__"
        return Route(config.prefix, tokenizer.convert_tokens_to_ids(token), tuple(codes))
    if family in ("t5", "umt5", "mt5"):
        if config.prefix:
            return Route(config.prefix)
        code = config.target_code or primary(target)
        if _token_id(tokenizer, f"<2{code}>") is not None:  # MADLAD-400
            if not config.target_code:
                _refuse_script(model, target, code)
            return Route(f"<2{code}> ")
        if _token_id(tokenizer, "<2en>") is not None:
            raise _unknown(model, f"<2{code}>")
        raise UsageError(
            f"{model} is a T5 without language tokens; it needs to be told what to do",
            hint="--set 'prefix=translate English to German: '",
        )
    raise UsageError(
        f"{model} is of the family {family!r}; ccr knows how to ask marian, m2m_100 (M2M100, NLLB) and t5 (MADLAD)"
    )


def _marian_token(model: str, tokenizer: Any, source: str, target: str, override: str) -> str:
    """`>>deu<< ` where a Marian model has several target languages, nothing where it has one."""
    known = set(getattr(tokenizer, "supported_language_codes", []))
    if not known:
        _refuse_pair(model, tokenizer, source, target)
        return ""
    code, writing = iso3(target), script(target)
    scripted, plain = [f"{code}_{writing}"], [code, primary(target)]
    if primary(target) == "zh":
        scripted, plain = [f"cmn_{writing}", f"zho_{writing}"], ["zho", "cmn", "zh"]
    for candidate in [override] if override else scripted + plain:
        if f">>{candidate}<<" in known:
            if candidate in plain and not override:
                _refuse_script(model, target, candidate)
            return f">>{candidate}<< "
    raise _unknown(model, override or scripted[0])


def _refuse_pair(model: str, tokenizer: Any, source: str, target: str) -> None:
    """Refuses the wrong direction of a model that knows one, as far as its tokenizer says which."""
    for side, lang in (("source_lang", source), ("target_lang", target)):
        named = str(getattr(tokenizer, side, None) or "")
        if has_code(named) and primary(named) != primary(lang):
            raise UnavailableError(
                f"{model} translates {tokenizer.source_lang} into {tokenizer.target_lang}, not {source} into {target}",
                hint="--set model=NAME is for the way out, --set back_model=NAME for the ways back",
            )


def _refuse_script(model: str, lang: str, code: str) -> None:
    """Refuses a language in another script than the usual one, where the model has but one code for both."""
    if not usually_written(lang):
        raise UnavailableError(
            f"{model} does not tell {lang} from {primary(lang)}: the script would be lost",
            hint=f"--set target_code={code} takes the plain one, --set model=NAME another model",
        )


def _token_id(tokenizer: Any, token: str) -> int | None:
    found = tokenizer.convert_tokens_to_ids(token)
    return None if found is None or found == tokenizer.unk_token_id else int(found)


def _unknown(model: str, code: str) -> UnavailableError:
    return UnavailableError(
        f"{model} does not know the language {code}",
        hint="--set model=NAME for another model, --set target_code=CODE for its own name of the language",
    )
