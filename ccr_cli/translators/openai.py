"""Language models behind a chat-completions server: vLLM, Ollama, llama.cpp.

The protocol is OpenAI's (https://developers.openai.com/api/reference), which these servers and most providers speak.
`_http.py` sends the requests. An answer counts only if it is a translation: `translation_in` removes what models put
around one, and refuses anything else. The key comes from the environment only.
"""
# ruff: noqa: RUF001

import importlib.util
import ipaddress
import json
import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import requests

from ccr_cli.artifacts.base import sha256_text
from ccr_cli.console import counted, say
from ccr_cli.data.languages import code_of, primary
from ccr_cli.errors import UnavailableError, UsageError, require_packages
from ccr_cli.metrics.scripts import expected_scripts, is_wrong_script
from ccr_cli.metrics.word_flags import in_other_language
from ccr_cli.translators._http import (
    Client,
    Connection,
    Failure,
    Limits,
    check_address,
    environment_key,
    masker,
    outage,
)
from ccr_cli.translators.base import Translation

_PROMPT = """\
Translate the following image caption from {source} into {target}. Translate all of it and add nothing. \
Answer with the translation alone.

{text}"""
_BATCH = """\


The text above is a JSON object with {count} captions by number. Translate each caption on its own. Answer with one \
JSON object that has the same numbers and the translation of each caption."""
_KEYS_OF = {"api.openai.com": "OPENAI_API_KEY"}
"""Default environment variable for a host's key; no other host gets that key by default."""
_PORTS = "vLLM listens at port 8000, llama.cpp at 8080, Ollama at 11434, LM Studio at 1234"


@dataclass(frozen=True)
class Config(Limits):
    """Options of the engine."""

    url: str = "http://localhost:8000/v1"
    """Address of the server; captions are sent there."""

    model: str = ""
    """Name of the model on the server (required)."""

    batch: int = 1
    """Number of captions per request; several are sent and answered as JSON."""

    prompt: str = ""
    """Text file with a prompt of your own, in which {text}, {source} and {target} (languages) are replaced."""

    temperature: float | None = 0.0
    """Sampling temperature; none: the server's default."""

    seed: int | None = 0
    """Sampling seed; none: the server's default."""

    max_tokens: int | None = 1024
    """Longest answer in tokens, including the reasoning before it; none: the server's default."""

    body: str = ""
    """Further fields of the request as a JSON object, such as {"reasoning_effort": "low"}."""

    key_variable: str = ""
    """Environment variable with the key; by default OPENAI_API_KEY for api.openai.com, none for other servers."""

    input_price: float | None = None
    """Price of a million prompt tokens, for the cost in `quality.json`."""

    output_price: float | None = None
    """Price of a million completion tokens."""

    rate: float = 50.0
    """Largest number of requests per second."""

    timeout: float = 120.0
    """Timeout of a request in seconds."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_address(self.url, "http://localhost:11434/v1", "see key_variable")
        if self.key_variable and not re.fullmatch("[A-Z][A-Z0-9_]*", self.key_variable):
            raise ValueError("key_variable is the name of an environment variable in capitals, not the key itself")
        if self.batch < 1 or (self.max_tokens is not None and self.max_tokens < 1):
            raise ValueError("batch and max_tokens must be at least 1")
        if min(self.temperature or 0, self.input_price or 0, self.output_price or 0) < 0:
            raise ValueError("temperature and prices must be at least 0")
        try:
            body = self.fields()
        except (ValueError, TypeError):
            raise ValueError(f"body must be a JSON object, and is {self.body!r}") from None
        if wrong := body.keys() & {"messages", "stream", "n"}:
            raise ValueError(f"body must not have {' or '.join(sorted(wrong))}")

    def fields(self) -> dict[str, Any]:
        """The fields of a request, without the messages."""
        usual = {name: getattr(self, name) for name in ("model", "temperature", "seed", "max_tokens")}
        return {**{name: value for name, value in usual.items() if value is not None}, **json.loads(self.body or "{}")}


_NO_EFFECT = (*(field.name for field in fields(Limits)), "key_variable", "input_price", "output_price")
"""Options that change no translation."""


def identity(config: Config) -> dict[str, Any]:
    """What a request records: the prompt by its content, and defaults for the options that change no translation."""
    usual = asdict(Config())
    prompt = f"sha256:{sha256_text(_prompt(config))}" if config.prompt else ""
    return {name: usual[name] for name in _NO_EFFECT} | {"prompt": prompt, "url": _address(config)}


def missing() -> tuple[str, str] | None:
    """What `ccr doctor` shows: whether the language of answers can be checked."""
    if importlib.util.find_spec("py3langid") is None:
        return "py3langid is not installed", "pip install 'ccr-cli[language]'"
    return "available; sends captions to the server that --set url= names, on this machine by default", ""


def planned(source: str, target: str, config: Config) -> dict[str, str]:
    """Names the model and whose terms apply; sends no request, and a missing key is a warning."""
    if not config.model:
        raise _no_model([])
    _prompt(config)
    variable = _key_variable(config)
    facts = {"model": config.model, "licence": _licence(config), "here": "yes"}
    if variable and not environment_key(variable):
        facts |= {"warning": f"{variable} is not set", "here": "no"}
    return facts


def _licence(config: Config) -> str:
    return f"the model's licence and the terms of whoever runs {urlsplit(config.url).netloc}"


def _key_variable(config: Config) -> str:
    return config.key_variable or _KEYS_OF.get(urlsplit(config.url).hostname or "", "")


def _address(config: Config) -> str:
    return config.url.rstrip("/").removesuffix("/chat/completions")


def _is_loopback(config: Config) -> bool:
    """Whether captions stay on this machine."""
    host = urlsplit(config.url).hostname or ""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _prompt(config: Config) -> str:
    """The prompt template; UnavailableError or UsageError if the user's file does not hold a valid one."""
    if not config.prompt:
        return _PROMPT
    path = Path(config.prompt).expanduser()
    try:
        prompt = path.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not UTF-8"
        raise UnavailableError(f"the prompt {path} cannot be read: {reason}", hint="--set prompt=FILE.txt") from None
    if prompt.count("{text}") != 1:
        hint = "write {text} where the caption belongs; {source} and {target} are the names of the languages"
        raise UsageError(f"{path} must have {{text}} once, and has it {prompt.count('{text}')} times", hint=hint)
    return prompt


def _no_model(names: Sequence[str]) -> UsageError:
    known = f"; the server has {', '.join(names[:20])}" if names else ", as the server calls it"
    return UsageError("which model? the engine openai needs a name", hint=f"--set model=NAME{known}")


def language_name(lang: str) -> str:
    """The English name of a language for a prompt: `Spanish`, `Portuguese (pt-BR)`, `Chinese (Simplified)`."""
    from deep_translator.constants import GOOGLE_LANGUAGES_TO_CODES as NAMES

    code = code_of(lang, NAMES)
    name = next((name.title() for name, known in NAMES.items() if known == code), "")
    if not name:
        return f"the language {lang} (BCP 47)"
    return name if "-" not in lang or primary(lang) == "zh" else f"{name} ({lang})"


@dataclass(frozen=True)
class Answer:
    """A model's answer to one request."""

    text: str
    is_cut: bool
    """Whether it was cut off at `max_tokens`."""
    tokens: tuple[int, int] | None
    """Tokens read and written; None if the server does not count them."""

    def share(self, part: int, parts: int) -> tuple[int, int] | None:
        """The tokens of caption `part` (from 0) of `parts`: equal shares, the first of which get the remainder."""
        if self.tokens is None:
            return None
        read, written = (number // parts + (part < number % parts) for number in self.tokens)
        return read, written


class Translator:
    """A model on a server, set up for one language pair; no request is sent before the first caption.

    Raises:
        UnavailableError: If a key, the prompt's file or the package that detects languages is missing.
        UsageError: If the options name no model.
    """

    def __init__(self, source: str, target: str, config: Config, *, dataset_dir: Path | None, device: str) -> None:
        require_packages("engine openai", "language", "py3langid")
        self.config = config
        self.host = urlsplit(config.url).netloc
        variable = _key_variable(config)
        self._key = environment_key(variable) if variable else ""
        if variable and not self._key:
            raise UnavailableError(f"{self.host} needs a key, and {variable} is not set", f"export {variable}=...")
        self._client = Client(config, masker({variable: self._key} if self._key else {}))
        self._url = _address(config)
        self._source, self._target = source, target
        prompt = _prompt(config)
        self._identity = f"sha256:{sha256_text(prompt + _BATCH if config.batch > 1 else prompt)}"
        for name, lang in (("{source}", source), ("{target}", target)):
            prompt = prompt.replace(name, language_name(lang))
        self._prompt = prompt
        if not config.model:
            raise _no_model(self._models())
        self._announced = _is_loopback(config)
        self._translated = self._unusable = 0
        self._tokens: dict[int, tuple[int, int]] = {}

    def translate(self, texts: list[str], known: Collection[int] = ()) -> Iterator[tuple[int, Translation]]:
        """Yields translations as they arrive, except those of `known`; text without a letter or digit stays as it is.

        A caption for which the answer to its batch has no translation is sent again on its own.

        Raises:
            UnavailableError: If the server keeps failing, or its first answers are all unusable; results yielded
                before that are valid.
        """
        sent = [position for position, text in enumerate(texts) if any(map(str.isalnum, text))]
        for position in sorted({*range(len(texts))} - {*sent} - {*known}):
            yield position, Translation(texts[position].strip())
        size = self.config.batch
        batches = [sent[first : first + size] for first in range(0, len(sent), size)]
        todo = [batch for batch in batches if not all(position in known for position in batch)]
        if todo and not self._announced:
            self._announced = True
            unencrypted = ", unencrypted" if urlsplit(self.config.url).scheme == "http" else ""
            say(f"captions ({self._source} -> {self._target}) are sent to {self.host}{unencrypted}")
        self._tokens = {}
        single = []
        for batch, answer in self._answers([[texts[position].strip() for position in batch] for batch in todo]):
            for position, result in self._read(texts, todo[batch], answer):
                if position in known:
                    continue
                if result.text is None and len(todo[batch]) > 1:
                    single.append(position)
                else:
                    yield position, self._counted(result, bool(known))
        if single:
            single.sort()
            say(f"{counted(len(single), 'caption')} without a translation in a batch, sent again one by one")
        for place, answer in self._answers([[texts[position].strip()] for position in single]):
            for position, result in self._read(texts, [single[place]], answer):
                yield position, self._counted(result, bool(known))

    def describe(self) -> dict[str, str]:
        """Names the model, its server and whose terms apply."""
        return {
            "engine": "openai",
            "model": self.config.model,
            "version": "chat completions",
            "command": f"{self.host}, {self._source} -> {self._target}",
            "licence": _licence(self.config),
            **({} if _is_loopback(self.config) else {"warning": f"captions are sent to {self.host}"}),
        }

    def identity(self) -> dict[str, Any]:
        """What determines the translations: server, model, prompt (by its hash), batch size and request fields."""
        facts = {"engine": "openai", "server": self._url, "batch": self.config.batch, "prompt": self._identity}
        return {**facts, "fields": self.config.fields()}

    def usage(self, results: Iterable[Translation]) -> dict[str, Any]:
        """The number of results with token counts, their tokens and, if a price is set, the cost; {} without counts."""
        tokens = [result.tokens for result in results if result.tokens]
        if not tokens:
            return {}
        read, written = (sum(numbers) for numbers in zip(*tokens, strict=True))
        usage: dict[str, Any] = {"sentences": len(tokens), "prompt_tokens": read, "completion_tokens": written}
        prices = self.config.input_price, self.config.output_price
        if any(price is not None for price in prices):
            usage["cost"] = round((read * (prices[0] or 0.0) + written * (prices[1] or 0.0)) / 1e6, 6)
        return usage

    def _answers(self, batches: list[list[str]]) -> Iterator[tuple[int, Answer | Failure]]:
        """Yields the position of each request and its answer or failure; UnavailableError if the server is given up."""

        def error(last: Failure) -> UnavailableError:
            where = f"{self.config.url} ({_PORTS})" if _is_loopback(self.config) else self.config.url
            return outage(last, self.host, self._translated, self.config, where, self._remedy(last))

        return self._client.map(enumerate(batches), self._ask, error)

    def _remedy(self, refusal: Failure) -> str:
        """The hint for a server that refuses all requests."""
        if refusal.kind != "fatal":
            return ""
        variable = _key_variable(self.config)
        if str(refusal).startswith("HTTP 401") and not variable:
            return "--set key_variable=NAME names the environment variable with the server's key"
        names = self._models()
        has = f"the server has {', '.join(names[:20])}" if names else "an address usually ends in /v1"
        return f"check {' and '.join(filter(None, ['url', 'model', variable]))} ({has})"

    def _ask(self, connection: Connection, captions: list[str]) -> Answer:
        """Sends one request; Failure, with a safe message, if the reply holds no answer."""
        text = captions[0]
        batch = ""
        if len(captions) > 1:
            text = json.dumps({str(i): caption for i, caption in enumerate(captions, 1)}, ensure_ascii=False)
            batch = _BATCH.replace("{count}", str(len(captions)))
        prompt = self._prompt.replace("{text}", text) + batch
        body = {**self.config.fields(), "messages": [{"role": "user", "content": prompt}], "stream": False}
        reply = connection.send("POST", f"{self._url}/chat/completions", json=body, **self._request())
        try:
            answer = _answer(reply)
        except (ValueError, TypeError, LookupError, AttributeError):
            answer = None
        if answer is None:
            raise Failure(f"the reply is no chat completion{self._reason(reply)}")
        if len(self._key) > 7 and self._key in answer.text:
            raise Failure("the answer holds the key")
        return answer

    def _request(self) -> dict[str, Any]:
        headers = {"Authorization": f"Bearer {self._key}"} if self._key else {}
        direct = {"proxies": {"http": "", "https": ""}} if _is_loopback(self.config) else {}
        return {"headers": headers, **direct}

    def _reason(self, reply: requests.Response) -> str:
        """The message of an error that was sent with a success status, made safe to show."""
        try:
            error = reply.json()["error"]
            words = error["message"] if isinstance(error, dict) else error
        except (ValueError, TypeError, LookupError):
            return ""
        return f": {self._client.mask(str(words))}"

    def _models(self) -> list[str]:
        """The names of the server's models, none if it does not list them."""
        try:
            with closing(Connection(min(5.0, self.config.timeout), self._client.mask)) as connection:
                listed = connection.send("GET", f"{self._url}/models", **self._request()).json()["data"]
            return [self._client.mask(str(model["id"])) for model in listed]
        except (Failure, ValueError, TypeError, LookupError):
            return []

    def _read(self, texts: list[str], batch: list[int], answer: Answer | Failure) -> Iterator[tuple[int, Translation]]:
        """Yields position and result of each caption in a request: a translation or an error, with its tokens."""
        parts: list[str] | Failure
        try:
            if isinstance(answer, Failure):
                raise answer
            plain = _without_thoughts(answer)
            parts = [plain] if len(batch) == 1 else _captions_in(plain, len(batch))
        except Failure as failure:
            parts = failure
        for part, position in enumerate(batch):
            share = None if isinstance(answer, Failure) else answer.share(part, len(batch))
            earlier = self._tokens.get(position)
            tokens = (earlier[0] + share[0], earlier[1] + share[1]) if earlier and share else share or earlier
            if tokens:
                self._tokens[position] = tokens
            try:
                if isinstance(parts, Failure):
                    raise parts
                text = translation_in(parts[part], texts[position].strip(), self._target)
                yield position, Translation(text, tokens=tokens)
            except Failure as failure:
                yield position, Translation(None, error=self._client.mask(str(failure)), tokens=tokens)

    def _counted(self, result: Translation, known: bool) -> Translation:
        """Counts a result; UnavailableError if all of the first answers are unusable."""
        self._translated += result.text is not None
        self._unusable += result.text is None
        if self._unusable >= self.config.breaker and not self._translated and not known:
            problem = f"{self.host}: none of the first {self._unusable} captions has a translation"
            names = self._models()
            has = f" (the server has {', '.join(names[:20])})" if names and self.config.model not in names else ""
            hint = f"--set model=NAME for another model{has}, or --set prompt=FILE for a prompt of your own"
            raise UnavailableError(f"{problem}, the last one because: {result.error}", hint=hint)
        return result


def _answer(reply: requests.Response) -> Answer | None:
    """The answer in a chat completion; None, or the error of a look-up, if there is none; Failure for a refusal."""
    value = reply.json()
    choice = value["choices"][0]
    content, refusal = choice["message"].get("content"), choice["message"].get("refusal")
    if isinstance(content, list):  # parts, some of them thoughts
        content = "".join(part["text"] for part in content if part.get("type") == "text")
    reason = choice.get("finish_reason")
    if refusal or reason == "content_filter":
        raise Failure(f"the model refuses: {_shown(refusal or 'content filter')}", "rejected")
    if reason == "error" or not isinstance(content, str | None):
        return None
    used = value.get("usage") or {}
    read, written = used.get("prompt_tokens"), used.get("completion_tokens")
    tokens = (read, written) if isinstance(read, int) and isinstance(written, int) else None
    return Answer(content or "", reason == "length", tokens)


_THOUGHTS = re.compile(r"<(think|thinking|thought|reasoning)>.*?</\1>", re.I | re.S)
_THOUGHT_END = re.compile(r"</(?:think|thinking|thought|reasoning)>", re.I)
_THOUGHT_BEGIN = re.compile(r"<(?:think|thinking|thought|reasoning)>", re.I)
_FENCE = re.compile(r"```\w*\s*\n?(.*?)\n?\s*```", re.S)


def _without_thoughts(answer: Answer) -> str:
    """Removes reasoning blocks and code fences from an answer; Failure if it was cut off or is empty."""
    if answer.is_cut:
        raise Failure(f"the answer is cut at max_tokens: {_shown(answer.text)}")
    text = _THOUGHT_END.split(_THOUGHTS.sub("", answer.text))[-1]  # some templates leave the opening tag out
    if _THOUGHT_BEGIN.search(text):
        raise Failure("the answer ends while the model is thinking")
    text = text.strip()
    fenced = _FENCE.fullmatch(text)
    text = fenced[1].strip() if fenced else text
    if not text:
        raise Failure("the answer is empty")
    return text


def _captions_in(text: str, count: int) -> list[str]:
    """The translations of a batch, in order; Failure unless there is one for every number.

    >>> _captions_in('Here you are: {"1": "un perro", "2": "un gato"}', 2)
    ['un perro', 'un gato']
    """
    match = re.search(r"[\[{].*[\]}]", text, re.S)
    try:
        value = json.loads(match[0] if match else text)
    except ValueError:
        raise Failure("the answer is not JSON") from None
    if isinstance(value, dict) and len(value) == 1 and count > 1:
        value = next(iter(value.values()))
    if isinstance(value, dict) and value.keys() == {str(i) for i in range(1, count + 1)}:
        value = [value[str(i)] for i in range(1, count + 1)]
    if not isinstance(value, list) or len(value) != count:
        raise Failure(f"the answer does not have {count} translations")
    return [item if isinstance(item, str) else "" for item in value]


_SAYS_TRANSLATION = (
    "translat|traduc|traduz|traduit|tradutt|übersetz|vertal|vertaald|översätt|oversett|oversæt|překlad|preklad|tłumacz"
    "|перевод|переклад|превод|fordít|çeviri|terjemah|bản dịch|翻译|翻譯|译文|譯文|訳|번역|ترجم|अनुवाद|μετάφρα|תרגום|แปล"
)
_PREAMBLE = re.compile(
    rf"[\W_]*(?:(?:sure|certainly|of course|okay|absolutely|here(?:['’]s| is| are| you|:))\b[^:：\n]{{0,80}}"
    rf"|[^:：\n]{{0,80}}(?:{_SAYS_TRANSLATION})[^:：\n]{{0,60}})[*_]*[:：][*_]*\s*",
    re.I,
)
_INTERJECTION = re.compile(r"(?:sure|certainly|of course|okay|absolutely)\b[^\n]{0,40}\n\s*", re.I)
_AFTERWORD = re.compile(
    r"\n\s*[*_(（\[]*(?:note|explanation|literal|let me know|i hope|please|this translation|in this translation"
    r"|nota|hinweis|anmerkung|remarque|注|说明|說明|解释|備考).*",
    re.I | re.S,
)
_QUOTES = {'"': '"', "'": "'", "“": "”", "‘": "’", "„": "“”", "«": "»", "»": "«", "‹": "›", "「": "」", "『": "』"}
_REFUSAL = re.compile(
    r"\W*(?:(?:i['’]m|i am|we['’]re) (?:(?:very|really|so) )?sorry\b|sorry[,;.!]|i apologi[sz]e|unfortunately,? i\b"
    r"|i (?:cannot|can['’]t|can not|won['’]t|am unable|am not able)\b|i['’]m (?:unable|not able)"
    r"|as an? (?:ai|language model|artificial)"
    r"|lo siento\b|no puedo (?:ayudar|traducir|cumplir|proporcionar)|desculpe\b|sinto muito\b|não posso\b"
    r"|(?:je suis )?désolée?\b|je ne peux pas\b|(?:es )?tut mir leid\b|ich kann (?:dabei|ihnen|dir|diese|dies) "
    r"|mi dispiace\b|non posso\b|het spijt me\b|omlouvám se|přepáčte|przepraszam\b|извините\b|к сожалению\b"
    r"|я не могу\b|(?:很|非常)?抱歉[，,。！]|对不起[，,。！]|對不起[，,。！]|我(?:无法|無法|不能)"
    r"|作为(?:一个)?(?:人工智能|AI)|申し訳|ごめんなさい|죄송(?:합니다|하지만)|üzgünüm\b|xin lỗi\b)",
    re.I,
)


def translation_in(answer: str, text: str, target: str) -> str:
    r"""Extracts the translation of a text from an answer, without what surrounds it.

    >>> translation_in('Sure! Here is the translation:\n\n"Un perro corre"', "A dog runs", "es")
    'Un perro corre'

    Raises:
        Failure: If the answer is empty, a refusal, the text itself, in another language or script, or several lines.
    """
    found = answer.strip()
    label = re.compile(rf"\W*{re.escape(language_name(target))}\W*[:：]\W*", re.I)
    for preamble in (_INTERJECTION, _PREAMBLE, label):
        if (match := preamble.match(found)) and not preamble.match(text):
            found = found[match.end() :].strip()
    if is_line := len(text.splitlines()) == 1:
        found = _AFTERWORD.sub("", found).strip()
    if not text.startswith(("*", "_", "`", *_QUOTES)):
        found = found.strip("*_`")
        inner = found[1:-1].strip()
        if inner and found[-1] in _QUOTES.get(found[0], ()) and (found[0] == "'" or found[0] not in inner):
            found = inner
    if not any(map(str.isalnum, found)):
        raise Failure("the answer is empty")
    if _REFUSAL.match(found) and not _REFUSAL.match(text) and not re.search("sorry|apolog|pardon", text, re.I):
        raise Failure(f"the model refuses: {_shown(found)}")
    if is_line and len(found.splitlines()) > 1:
        raise Failure(f"the answer has several lines for a caption of one: {_shown(found)}")
    scripts = expected_scripts(target)
    if scripts is not None and is_wrong_script(found, scripts):
        raise Failure(f"the answer is in another script than {target}: {_shown(found)}")
    if other := in_other_language(found, target):
        raise Failure(f"the answer is in {other}, not {target}: {_shown(found)}")
    if len(text.split()) > 2 and _kernel(found) == _kernel(text):
        raise Failure(f"the answer is the caption itself: {_shown(found)}")
    return found


def _kernel(text: str) -> str:
    return "".join(filter(str.isalnum, text.casefold()))


def _shown(text: str) -> str:
    """The beginning of an answer, for a message."""
    return repr(" ".join(text.split())[:80])
