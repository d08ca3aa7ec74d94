"""Models in CTranslate2's format: converted once, kept in the cache folder, safe to delete.

The vocabulary of a converted model is the tokenizer's ids as decimal numbers. So the spelling of tokens does not
matter, and language codes that only the tokenizer's code knows (M2M100's) are entries like any other.
"""

import copy
import errno
import json
import os
import shutil
from pathlib import Path
from typing import Any

import ctranslate2
import filelock
from ctranslate2.converters import TransformersConverter

from ccr_cli import hub
from ccr_cli.artifacts.base import sha256_text
from ccr_cli.artifacts.workspace import slug
from ccr_cli.cache_folder import cache_folder
from ccr_cli.console import say
from ccr_cli.errors import ArtifactError, UsageError
from ccr_cli.hub import Located
from ccr_cli.transformers_loading import transformers_loading
from ccr_cli.translators.hf import load_network

_SCHEME = 1
"""Format version of the converted models; changing it makes ccr convert all models again."""
_RECORD = "ccr.json"


def converted(located: Located, tokenizer: Any, quantization: str) -> Path:
    """Returns the folder of a model in CTranslate2's format, converting the model on the first call.

    `quantization` is CTranslate2's name for the precision of the weights. The folder gets its name when it is complete;
    if several processes need it, one converts the model while the others wait.

    Raises:
        UsageError: If CTranslate2 cannot convert this model.
        ArtifactError: If the cache folder is not writable.
    """
    made_of = {
        "model": hub.identity(located.name).get("model", located.name),
        "revision": located.revision,
        "quantization": quantization,
        "ctranslate2": ctranslate2.__version__,
        "scheme": _SCHEME,
    }
    digest = sha256_text(json.dumps(made_of, sort_keys=True))
    final = cache_folder() / "ct2" / f"{slug(located.label)}-{quantization}-{digest[:12]}"
    if _complete(final):
        return final
    try:
        final.parent.mkdir(parents=True, exist_ok=True)
        lock = filelock.FileLock(final.with_name(f"{final.name}.lock"))
        try:
            held = lock.acquire(timeout=0)
        except filelock.Timeout:
            say(f"another process converts {located.label} for CTranslate2; waiting for it")
            held = lock.acquire()
        with held:
            if not _complete(final):
                _convert(located, tokenizer, quantization, final, made_of)
    except OSError as error:
        if error.errno not in (errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR, errno.EEXIST):
            raise
        message = f"{located.label} cannot be kept in the cache {final.parent}: {error.strerror}"
        raise ArtifactError(message, hint="--cache DIR for another folder") from None
    return final


def _convert(located: Located, tokenizer: Any, quantization: str, final: Path, made_of: dict[str, Any]) -> None:
    say(f"converting {located.label} for CTranslate2 ({quantization}), once, into {final}")
    partial = final.with_name(f"{final.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)  # of a killed process
    try:
        with transformers_loading():
            _Converter(located.folder, tokenizer).convert(str(partial), quantization=quantization)
    except (ValueError, NotImplementedError, KeyError) as error:
        raise UsageError(f"CTranslate2 cannot convert {located.label}: {error}", hint="--engine hf") from error
    sizes = {path.name: path.stat().st_size for path in partial.iterdir()}
    (partial / _RECORD).write_text(json.dumps({**made_of, "files": sizes}, indent=2) + "\n", encoding="utf-8")
    shutil.rmtree(final, ignore_errors=True)  # incomplete
    os.rename(partial, final)


def _complete(folder: Path) -> bool:
    """Whether a folder holds a converted model with all files in full length."""
    try:
        sizes = json.loads((folder / _RECORD).read_text(encoding="utf-8"))["files"]
        return all((folder / name).stat().st_size == size for name, size in sizes.items())
    except (OSError, ValueError, KeyError):
        return False


class _Converter(TransformersConverter):  # type: ignore[misc]  # ctranslate2 has no types
    """CTranslate2's converter with ccr's loading (only safetensors, no code from the hub) and vocabulary."""

    def __init__(self, folder: Path, tokenizer: Any) -> None:
        super().__init__(str(folder))
        self._folder, self._tokenizer, self._own_start = folder, tokenizer, False

    def load_model(self, *_: Any, **__: Any) -> Any:
        network = load_network(str(self._folder), "float32")  # half precision would also round positions
        family = network.config.model_type
        # CTranslate2 reads from `tie_word_embeddings` whether to scale the output, but transformers 5 sets it for every
        # T5; `scale_decoder_outputs` has the value of the model's configuration. An mT5 never scales.
        scaled = {"t5": getattr(network.config, "scale_decoder_outputs", True), "mt5": False}
        network.config.tie_word_embeddings = scaled.get(family, network.config.tie_word_embeddings)
        if family == "marian":
            self._own_start = _give_start(network)
        self._words = _Ids(self._tokenizer, network.config.vocab_size)
        return network

    def load_tokenizer(self, *_: Any, **__: Any) -> Any:
        return self._words

    def _load(self) -> Any:
        spec = super()._load()
        if self._own_start:
            spec.decoder.start_from_zero_embedding = False
        return spec


def _give_start(network: Any) -> bool:
    """Keeps the start embedding of a fine-tuned Marian model; returns whether that was necessary.

    Marian starts decoding from the padding token, whose embedding is zero in OPUS-MT and in CTranslate2. Fine-tuning in
    transformers changes it. If not told to start from zero, CTranslate2 starts from the end token, which the decoder
    reads nowhere else, so the end token gets the embedding of padding.
    """
    decoder, end, padding = network.model.decoder, network.config.eos_token_id, network.config.pad_token_id
    start = decoder.embed_tokens.weight[padding]
    if not start.any():
        return False
    decoder.embed_tokens = copy.deepcopy(decoder.embed_tokens)
    decoder.embed_tokens.weight.data[end] = start
    return True


class _Ids:
    """A tokenizer whose tokens are the ids of another tokenizer, as decimal numbers.

    Marian's padding token, its last one, keeps the name `<pad>`, by which the converter finds and drops it.
    """

    def __init__(self, tokenizer: Any, size: int) -> None:
        self._padding = tokenizer.pad_token_id if tokenizer.pad_token_id == size - 1 else None
        self._size = size
        for name in ("bos_token", "eos_token", "unk_token", "pad_token"):
            setattr(self, name, self.convert_ids_to_tokens(getattr(tokenizer, f"{name}_id")))
        self.special_tokens_map: dict[str, Any] = {}
        self.num_madeup_words = 0

    def convert_ids_to_tokens(self, number: int | None) -> str | None:
        return None if number is None else "<pad>" if number == self._padding else str(number)

    def get_vocab(self) -> dict[str | None, int]:
        return {self.convert_ids_to_tokens(number): number for number in range(self._size)}
