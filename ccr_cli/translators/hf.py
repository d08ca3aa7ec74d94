"""Neural models of transformers: OPUS-MT, M2M100, NLLB, MADLAD; local.

Runs on this machine; no caption is sent anywhere. Where no model is named, the pair decides: OPUS-MT
(Tiedemann & Thottingal, EAMT 2020) where it has one, else M2M100 418M (Fan et al., JMLR 2021).

The score of a translation is the mean log-probability of its tokens under the model, a signal of how sure
the model was.

Shapes: B batch, L tokens, V vocabulary.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

from ccr_cli.errors import ArtifactError
from ccr_cli.transformers_loading import transformers_loading
from ccr_cli.translators import _models
from ccr_cli.translators._seq2seq import Decoded, Options, Seq2Seq, identity, pairs

if TYPE_CHECKING:
    import torch
    from torch import Tensor

__all__ = ["Config", "Translator", "identity", "missing", "pairs", "planned"]

_SCORED_FLOATS = 64 * 1024 * 1024  # logits at once when scoring: 256 MB in float32


@dataclass(frozen=True)
class Config(Options):
    """Options of the engine."""

    dtype: str = "auto"
    """float32, float16 or bfloat16; auto is bfloat16 on CUDA, float32 elsewhere."""

    DTYPES: ClassVar[tuple[str, ...]] = ("auto", "float32", "float16", "bfloat16")


def missing() -> tuple[str, str] | None:
    """Says what is missing here and how to get it, for `ccr doctor`; None where nothing is."""
    return _models.missing()


def planned(source: str, target: str, config: Config) -> dict[str, str]:
    """Says which model would translate and under which licence; nothing is fetched or loaded."""
    return _models.planned(config.model, config.revision, source, target)


class Translator(Seq2Seq):
    """A model in torch."""

    ENGINE = "hf"

    def _gpus(self) -> int:
        import torch

        return torch.cuda.device_count() if torch.cuda.is_available() else 0

    def _precision(self) -> str:
        automatic = "bfloat16" if self.device.startswith("cuda") else "float32"
        return automatic if self.config.dtype == "auto" else self.config.dtype

    def _version(self) -> str:
        import transformers

        return f"transformers {transformers.__version__}"

    @cached_property
    def _network(self) -> Any:
        network = load_network(str(self.located.folder), self.dtype).eval().requires_grad_(False).to(self.device)
        self._set_search(network.generation_config)
        return network

    def _set_search(self, settings: Any) -> None:
        """Keeps the model's own settings (start token, what it must not say), with our search and limits.

        They are set in place, since whatever is None in other settings is taken from the model's own. No end is
        forced on a translation that reaches the limit: it is as the model left it.
        """
        settings.update(
            do_sample=False,
            num_beams=self.config.num_beams,
            early_stopping=False,
            length_penalty=1.0,
            max_new_tokens=self._longest_output,
            max_length=None,
            forced_eos_token_id=None,
        )
        if self._route.forced_token is not None:
            settings.forced_bos_token_id = self._route.forced_token
        if self._architecture.model_type == "marian":  # its padding is where a translation starts, and no word
            settings.suppress_tokens = [*(settings.suppress_tokens or []), self._tokenizer.pad_token_id]

    def _decode(self, sentences: list[list[int]]) -> list[Decoded]:
        import torch
        from transformers import LogitsProcessorList

        ids_BL, mask_BL = _padded(sentences, self._tokenizer.pad_token_id, self.device)
        tally = Tally(self._network.generation_config, self._given, len(sentences), self.device)
        greedy = self.config.num_beams == 1
        with torch.inference_mode():
            output_BL = self._network.generate(
                input_ids=ids_BL,
                attention_mask=mask_BL,
                logits_processor=LogitsProcessorList([tally] if greedy else []),
            )
            if not greedy:
                self._read_again(ids_BL, mask_BL, output_BL, tally)
        return list(zip(output_BL[:, 1:].tolist(), tally.means(), strict=True))

    def _read_again(self, ids_BL: Tensor, mask_BL: Tensor, output_BL: Tensor, tally: Tally) -> None:
        """Scores what a beam search found with one pass over encoder and decoder.

        The memory of keeping every step's scores (steps x B x beams x V, gigabytes for NLLB's 256,000 tokens) is
        not needed.
        """
        rows = max(1, _SCORED_FLOATS // (output_BL.shape[1] * self._architecture.vocab_size))
        for first in range(0, len(output_BL), rows):
            part = slice(first, first + rows)
            logits_BLV = self._network(
                input_ids=ids_BL[part],
                attention_mask=mask_BL[part],
                decoder_input_ids=output_BL[part, :-1],
                use_cache=False,
            ).logits
            tally.read(logits_BLV, output_BL[part], part)

    def _free(self) -> None:
        import torch

        if self.device.startswith("cuda"):
            torch.cuda.empty_cache()


class Tally:
    """Adds up the log-probabilities of the tokens of translations.

    As a logits processor of a greedy search it sees every step's logits pass by, so that none are kept and nothing
    is computed twice.

    Args:
        search: Settings of the search: ends of a sentence, tokens that it may not take.
        given: How many tokens are forced on the model first (a language); they are not counted.
        rows: Sentences.
        device: Where the logits are.
    """

    def __init__(self, search: Any, given: int, rows: int, device: str) -> None:
        import torch

        ends = search.eos_token_id if isinstance(search.eos_token_id, list) else [search.eos_token_id]
        self._ends = torch.tensor(ends, device=device)
        banned = [*(search.suppress_tokens or []), *(w[0] for w in search.bad_words_ids or [] if len(w) == 1)]
        self._banned = torch.tensor(banned, dtype=torch.long, device=device)
        self._given = given
        self._sum_B = torch.zeros(rows, device=device)
        self._count_B = torch.zeros(rows, device=device)
        self._open_B = torch.ones(rows, dtype=torch.bool, device=device)

    def __call__(self, ids_BL: Tensor, logits_BV: Tensor) -> Tensor:
        """One step of a greedy search, which takes the most probable token."""
        import torch

        step = ids_BL.shape[1] - 1
        if step:
            self._open_B &= ~torch.isin(ids_BL[:, -1], self._ends)
        if step >= self._given:
            best_B = logits_BV.max(dim=-1).values - logits_BV.logsumexp(dim=-1)
            self._sum_B += torch.where(self._open_B, best_B, 0.0)
            self._count_B += self._open_B
        return logits_BV

    def read(self, logits_BLV: Tensor, output_BL: Tensor, part: slice) -> None:
        """Whole translations; `output_BL` begins with the start token, `logits_BLV` with what follows it."""
        import torch

        logits_BLV = logits_BLV.float().index_fill(-1, self._banned, -torch.inf)
        labels_BL = output_BL[:, 1:]
        ends_BL = torch.isin(labels_BL, self._ends).long()
        counted_BL = ends_BL.cumsum(dim=1) - ends_BL == 0  # up to and with the first end
        counted_BL[:, : self._given] = False
        log_BL = logits_BLV.gather(-1, labels_BL[..., None])[..., 0] - logits_BLV.logsumexp(dim=-1)
        self._sum_B[part] = torch.where(counted_BL, log_BL, 0.0).sum(dim=1)
        self._count_B[part] = counted_BL.sum(dim=1).float()

    def means(self) -> list[float]:
        """Mean by sentence."""
        means: list[float] = (self._sum_B / self._count_B.clamp(min=1)).tolist()
        return means


def load_network(folder: str, dtype: str) -> Any:
    """Reads a model's weights, from safetensors alone.

    Args:
        folder: Where it lies.
        dtype: What its weights become.

    Raises:
        ArtifactError: If they are damaged.
    """
    with transformers_loading():
        from safetensors import SafetensorError
        from transformers import AutoModelForSeq2SeqLM

        try:
            return AutoModelForSeq2SeqLM.from_pretrained(
                folder, dtype=dtype, local_files_only=True, trust_remote_code=False, use_safetensors=True
            )
        except SafetensorError as error:
            raise ArtifactError(f"the weights in {folder} are damaged: {error}", hint="get the model again") from None


def _padded(sentences: list[list[int]], padding: int, device: torch.device | str) -> tuple[Tensor, Tensor]:
    """Tokens and the mask of which ones are there."""
    import torch

    ids_BL = torch.full((len(sentences), max(map(len, sentences))), padding, dtype=torch.long)
    mask_BL = torch.zeros_like(ids_BL)
    for row, sentence in enumerate(sentences):
        ids_BL[row, : len(sentence)] = torch.tensor(sentence)
        mask_BL[row, : len(sentence)] = 1
    return ids_BL.to(device), mask_BL.to(device)
