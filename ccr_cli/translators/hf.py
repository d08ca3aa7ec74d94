"""Neural models of transformers: OPUS-MT, M2M100, NLLB, MADLAD; local.

Runs on this machine; no caption is sent anywhere. The default model depends on the pair: OPUS-MT (Tiedemann &
Thottingal, EAMT 2020) if it has the pair, else M2M100 418M (Fan et al., JMLR 2021).

The score of a translation is the mean log-probability of its tokens under the model.

Shapes: B batch, L tokens, V vocabulary.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

from ccr_cli.errors import ArtifactError
from ccr_cli.transformers_loading import transformers_loading
from ccr_cli.translators._seq2seq import Decoded, Options, Seq2Seq, identity, missing, planned

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["Config", "Translator", "identity", "missing", "planned"]

_SCORED_FLOATS = 64 * 1024 * 1024  # logits per pass when scoring: 256 MB in float32


@dataclass(frozen=True)
class Config(Options):
    """Options of the engine."""

    dtype: Literal["auto", "float32", "float16", "bfloat16"] = "auto"
    """float32, float16 or bfloat16; auto is bfloat16 on CUDA, float32 elsewhere."""


class Translator(Seq2Seq):
    """A model in torch."""

    ENGINE = "hf"

    def _gpus(self) -> int:
        import torch

        return torch.cuda.device_count() if torch.cuda.is_available() else 0

    def _precision(self) -> str:
        automatic = "bfloat16" if self.device.startswith("cuda") else "float32"
        return automatic if self.config.dtype == "auto" else self.config.dtype

    @cached_property
    def _network(self) -> Any:
        """The network, with ccr's search and limits in its generation settings.

        They are changed in place, since None in separate settings would mean the model's own value; its start and
        forbidden tokens are kept. A translation that reaches the limit gets no forced end token.
        """
        network = load_network(str(self.located.folder), self.dtype).eval().requires_grad_(False).to(self.device)
        settings = network.generation_config
        settings.update(do_sample=False, early_stopping=False, length_penalty=1.0, forced_eos_token_id=None)
        settings.update(num_beams=self.config.num_beams, max_new_tokens=self._longest_output, max_length=None)
        if self._forced:
            settings.forced_bos_token_id = self._route.forced_token
        if self._architecture.model_type == "marian":  # padding starts a translation and must not be generated
            settings.suppress_tokens = [*(settings.suppress_tokens or []), self._tokenizer.pad_token_id]
        return network

    def _decode(self, sentences: list[list[int]]) -> list[Decoded]:
        import torch
        from torch.nn.utils.rnn import pad_sequence
        from transformers import LogitsProcessorList

        rows = [torch.tensor(sentence) for sentence in sentences]
        padding, masks = self._tokenizer.pad_token_id, [torch.ones_like(row) for row in rows]
        ids_BL = pad_sequence(rows, batch_first=True, padding_value=padding).to(self.device)
        mask_BL = pad_sequence(masks, batch_first=True).to(self.device)
        tally = Tally(self._network.generation_config, self._forced, len(sentences), self.device)
        greedy = self.config.num_beams == 1
        with torch.inference_mode():
            output_BL = self._network.generate(
                input_ids=ids_BL,
                attention_mask=mask_BL,
                logits_processor=LogitsProcessorList([tally] if greedy else []),
            )
            if not greedy:
                self._score(ids_BL, mask_BL, output_BL, tally)
        return list(zip(output_BL[:, 1:].tolist(), tally.means(), strict=True))

    def _score(self, ids_BL: Tensor, mask_BL: Tensor, output_BL: Tensor, tally: Tally) -> None:
        """Scores the result of a beam search with one more pass.

        Keeping every step's scores would take gigabytes (steps x B x beams x V, with NLLB's 256,000 tokens).
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


class Tally:
    """Sums the log-probabilities of the tokens of each translation, except the first `forced` ones (the language).

    As a logits processor of a greedy search it sees the logits of every step, so that none are kept or computed
    twice. `search` holds the generation settings, which name end tokens and forbidden tokens.
    """

    def __init__(self, search: Any, forced: int, rows: int, device: str) -> None:
        import torch

        ends = search.eos_token_id if isinstance(search.eos_token_id, list) else [search.eos_token_id]
        self._ends = torch.tensor(ends, device=device)
        banned = [*(search.suppress_tokens or []), *(w[0] for w in search.bad_words_ids or [] if len(w) == 1)]
        self._banned = torch.tensor(banned, dtype=torch.long, device=device)
        self._forced = forced
        self._sum_B = torch.zeros(rows, device=device)
        self._count_B = torch.zeros(rows, device=device)
        self._open_B = torch.ones(rows, dtype=torch.bool, device=device)

    def __call__(self, ids_BL: Tensor, logits_BV: Tensor) -> Tensor:
        """Adds one step of a greedy search."""
        import torch

        step = ids_BL.shape[1] - 1
        if step:
            self._open_B &= ~torch.isin(ids_BL[:, -1], self._ends)
        if step >= self._forced:
            best_B = logits_BV.max(dim=-1).values - logits_BV.logsumexp(dim=-1)
            self._sum_B += torch.where(self._open_B, best_B, 0.0)
            self._count_B += self._open_B
        return logits_BV

    def read(self, logits_BLV: Tensor, output_BL: Tensor, part: slice) -> None:
        """Adds whole translations; `output_BL` begins with the start token, `logits_BLV` with the one after it."""
        import torch

        logits_BLV = logits_BLV.float().index_fill(-1, self._banned, -torch.inf)
        labels_BL = output_BL[:, 1:]
        ends_BL = torch.isin(labels_BL, self._ends).long()
        counted_BL = ends_BL.cumsum(dim=1) - ends_BL == 0  # up to and including the first end
        counted_BL[:, : self._forced] = False
        log_BL = logits_BLV.gather(-1, labels_BL[..., None])[..., 0] - logits_BLV.logsumexp(dim=-1)
        self._sum_B[part] = torch.where(counted_BL, log_BL, 0.0).sum(dim=1)
        self._count_B[part] = counted_BL.sum(dim=1).float()

    def means(self) -> list[float]:
        """The mean log-probability of the tokens of each translation."""
        means: list[float] = (self._sum_B / self._count_B.clamp(min=1)).tolist()
        return means


def load_network(folder: str, dtype: str) -> Any:
    """Reads a model's weights, only from safetensors; ArtifactError if they are damaged."""
    with transformers_loading():
        from safetensors import SafetensorError
        from transformers import AutoModelForSeq2SeqLM

        try:
            return AutoModelForSeq2SeqLM.from_pretrained(
                folder, dtype=dtype, local_files_only=True, trust_remote_code=False, use_safetensors=True
            )
        except SafetensorError as error:
            raise ArtifactError(f"the weights in {folder} are damaged: {error}", hint="fetch the model again") from None
