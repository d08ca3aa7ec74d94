"""The models of hf through CTranslate2, faster on a CPU; needs the extra ct2.

CTranslate2 (Klein et al., AMTA 2020) reads its own format: a model is converted once, into the cache folder.
Options, languages, batches and scores are those of `hf`. Greedy float32 translations equal those of `hf`; with int8,
the default on a CPU, a few differ by a word, and beam searches sometimes end differently.
"""

import ctypes
import importlib.util
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, get_args

from ccr_cli.errors import UnavailableError, UsageError
from ccr_cli.translators import _seq2seq
from ccr_cli.translators._seq2seq import Decoded, Options, Seq2Seq, identity, planned

__all__ = ["Config", "Translator", "identity", "missing", "planned"]

Precision = Literal[
    "auto", "int8", "float32", "float16", "bfloat16", "int8_float32", "int8_float16", "int8_bfloat16"
]  # fmt: skip
_INSTALL = "pip install 'ccr-cli[ct2]'"
_CUBLAS = "libcublas.so.12"
_THREADS = 4
"""Threads per batch: more do not make it faster, but another batch in parallel does."""


@dataclass(frozen=True)
class Config(Options):
    """Options of the engine."""

    dtype: Precision = "auto"
    """int8, float32, float16, bfloat16, int8_float32, int8_float16 or int8_bfloat16; auto is int8 on a CPU, bfloat16
    (or float16, without bfloat16) on CUDA."""


def missing() -> tuple[str, str] | None:
    """Tells `ccr doctor` what is missing and how to get it; None if nothing is."""
    try:
        library = _library()
        if library.get_cuda_device_count():
            _open_cublas()
    except UnavailableError as error:
        return error.message, error.hint or ""
    return _seq2seq.missing()


class Translator(Seq2Seq):
    """A model in CTranslate2."""

    ENGINE = "ct2"

    def _gpus(self) -> int:
        return int(_library().get_cuda_device_count())

    def _precision(self) -> str:
        library = _library()
        if self.device.startswith("cuda"):
            _open_cublas()
        kind, _, number = self.device.partition(":")
        able = library.get_supported_compute_types(kind, int(number or 0))
        usual = ("int8", "float32") if kind == "cpu" else ("bfloat16", "float16", "float32")
        dtype = next(t for t in usual if t in able) if self.config.dtype == "auto" else self.config.dtype
        if dtype not in able:
            hint = f"--set dtype=auto, or one of {', '.join(t for t in get_args(Precision) if t in able)}"
            raise UsageError(f"CTranslate2 does not compute in {dtype} on {self.device}", hint=hint)
        return dtype

    def _version(self) -> str:
        return f"ctranslate2 {_library().__version__}, {super()._version()}"

    @cached_property
    def _engine(self) -> Any:
        import torch

        from ccr_cli.translators._conversion import converted

        kind, _, number = self.device.partition(":")
        threads = torch.get_num_threads()
        folder = converted(self.located, self._tokenizer, self.dtype)
        return _library().Translator(
            str(folder),
            device=kind,
            device_index=int(number or 0),
            compute_type=self.dtype,
            intra_threads=min(threads, _THREADS),
            inter_threads=max(1, threads // _THREADS) if kind == "cpu" else 1,
        )

    def _decode(self, sentences: list[list[int]]) -> list[Decoded]:
        forced = self._route.forced_token
        results = self._engine.translate_batch(
            [list(map(str, sentence)) for sentence in sentences],
            target_prefix=None if forced is None else [[str(forced)]] * len(sentences),
            max_batch_size=max(1, -(-len(sentences) // self._engine.num_translators)),
            beam_size=self.config.num_beams,
            length_penalty=1.0,
            max_input_length=0,
            max_decoding_length=self._longest_output,
            min_decoding_length=0,
            return_scores=True,
            return_end_token=True,
        )
        decoded = []
        for result in results:
            tokens = [int(token) for token in result.hypotheses[0]]
            counted = max(1, len(tokens) - self._forced)  # CTranslate2's mean counts the forced language token
            decoded.append((tokens, result.scores[0] * len(tokens) / counted))
        return decoded


def _library() -> Any:
    try:
        import ctranslate2
    except ImportError:
        raise UnavailableError("ctranslate2 is not installed", _INSTALL) from None
    return ctranslate2


def _open_cublas() -> None:
    """Loads CUDA 12's cuBLAS, so that CTranslate2 finds it by name; torch may have installed only CUDA 13's."""
    package = importlib.util.find_spec("nvidia")
    for root in (package.submodule_search_locations or []) if package else []:
        folder = Path(root) / "cublas" / "lib"
        for name in ("libcublasLt.so.12", _CUBLAS):  # the second needs the first
            if (folder / name).is_file():
                ctypes.CDLL(str(folder / name), mode=ctypes.RTLD_GLOBAL)
    try:
        ctypes.CDLL(_CUBLAS)
    except OSError:
        problem = f"CTranslate2 needs {_CUBLAS} (of CUDA 12) on a GPU"
        raise UnavailableError(problem, f"{_INSTALL}; or --device cpu") from None
