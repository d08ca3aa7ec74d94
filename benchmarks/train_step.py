"""Time a training step: ours, a plain loop as in published code, and the encoder alone.

On one model, batch and device, with the same texts and the same loss (InfoNCE of pictures with captions, translations
and back-translations):

- `ours`: texts tokenised beforehand, selected from a table, through the encoder in one call and without padding;
  features in memory; fused AdamW.
- `plain`: the three texts of each item are tokenised in Python and the feature is read from a file; each side is padded
  to its longest text (`--pad-to`: to a fixed length) and passes the encoder separately; Adam.
- `encoder`: forward and backward of the encoder on the same texts, without padding, and nothing else: the floor.
- `groups`: the same in groups of texts of equal length, one call each, which need no padding either.
- `shared`: the step of `ours` by all processes of `torchrun`: each embeds its share of the batch, as in `ccr train`.
  All other variants run in the first process alone, on the whole batch, while the others wait.

The model is a BERT of `--layers` and `--hidden` with random weights, by default of multilingual BERT's size: only its
speed means anything. Captions are bundled ones, or lines of files (`--captions EN DE`, parallel; back-translations are
the first file's own lines in another order). Word pieces are learned from the captions.

Variants take turns. `seconds` is wall time, `cpu` processor time, which hardly depends on other load; `memory` is the
peak of the process above its level before the step.

    python benchmarks/train_step.py --captions train.en train.de --out benchmarks/results/train_step.json
    python benchmarks/train_step.py --device cuda --dtype bfloat16 --rounds 10
    torchrun --nproc-per-node 2 benchmarks/train_step.py --device cuda --variants ours shared
"""

from __future__ import annotations

import argparse
import csv
import ctypes
import gzip
import json
import os
import platform
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tokenizers import BertWordPieceTokenizer
from torch import Tensor
from transformers import BertConfig, BertModel
from transformers.models.bert.tokenization_bert_legacy import BertTokenizerLegacy

from ccr_cli.data.frames import Frames
from ccr_cli.data.tokens import HFTokenizer, Tokens
from ccr_cli.losses.contrastive import infonce
from ccr_cli.losses.precision import no_autocast
from ccr_cli.methods import infonce as method_module
from ccr_cli.methods.base import Batch, Belief
from ccr_cli.nets import text_transformer
from ccr_cli.nets.text import TransformerTextEncoder
from ccr_cli.stages.shared.sharding import own_device
from ccr_cli.stages.train.processes import ALONE, ProcessRank, together
from ccr_cli.stages.train.step import parameter_groups

VARIANTS = ("ours", "plain", "encoder", "groups", "shared")
BUNDLED = Path(__file__).resolve().parents[1] / "data_manifests" / "noto-emoji" / "captions.tsv"
FEATURE = 512
OVERHEAD = text_transformer.OVERHEAD_CPU
PIECES = 8000
"""So that a word has 1.2 pieces or so, as with a vocabulary that serves a hundred languages."""


def read_captions(files: list[Path]) -> list[list[str]]:
    """Captions, translations and back-translations, one each a line."""
    if files:
        lines = [(gzip.decompress(f.read_bytes()) if f.suffix == ".gz" else f.read_bytes()) for f in files]
        sides = [each.decode("utf-8").splitlines() for each in lines]
        return [*sides, sides[0][1:] + sides[0][:1]][:3] if len(sides) > 1 else [sides[0], sides[0][::-1], sides[0]]
    with BUNDLED.open(encoding="utf-8", newline="") as handle:
        rows = list(csv.DictReader(handle, delimiter="\t", quoting=csv.QUOTE_NONE))
    by_lang = {lang: [row["text"] for row in rows if row["lang"] == lang] for lang in ("en", "de")}
    count = min(map(len, by_lang.values()))
    return [by_lang["en"][:count], by_lang["de"][:count], by_lang["en"][:count][::-1]]


def make_tokenizer(texts: list[str], folder: Path, pieces: int) -> BertTokenizerLegacy:
    """Learns pieces of words; the folder then has them for a fast tokenizer and for the one in Python."""
    learned = BertWordPieceTokenizer(lowercase=False)
    learned.train_from_iterator(texts, vocab_size=pieces, show_progress=False)
    learned.save_model(str(folder))
    slow = BertTokenizerLegacy(str(folder / "vocab.txt"), do_lower_case=False)
    BertConfig().save_pretrained(folder)
    from transformers import BertTokenizer

    BertTokenizer(str(folder / "vocab.txt"), do_lower_case=False).save_pretrained(folder)
    return slow


class ThreeTexts(method_module.Method):
    """InfoNCE of pictures with captions, translations and back-translations."""

    def losses(self, batch: Batch) -> dict[str, Tensor]:
        """Returns the loss on the whole batch, of which each process embeds its share."""
        assert batch.back is not None
        visual_bD = self.embed_visual(batch.visual).float()
        text_3bD = self.embed_text(batch.source.join(batch.target).join(batch.back)).float()
        visual_BD, text_3BD = batch.whole(visual_bD), batch.whole_texts(text_3bD, 3)
        with no_autocast(visual_BD):
            return {"infonce": total_loss(visual_BD, torch.split(text_3BD, len(visual_BD)))}


def total_loss(visual_BD: Tensor, sides: tuple[Tensor, ...]) -> Tensor:
    """The loss, the same for all."""
    return torch.stack([infonce(visual_BD @ side_BD.float().T, 0.07) for side_BD in sides]).sum()


class Job:
    """The variants, on one model."""

    def __init__(self, arguments: argparse.Namespace, folder: Path, ranks: ProcessRank = ALONE) -> None:
        a = self.arguments = arguments
        self.ranks = ranks
        self.device = torch.device(own_device(a.device))
        if self.device.type == "cuda":
            torch.cuda.set_device(self.device)
        self.dtype = getattr(torch, a.dtype)
        self.sides = read_captions(a.captions)
        self.slow = make_tokenizer([text for side in self.sides for text in side], folder, a.pieces)
        fast = HFTokenizer(folder, a.max_tokens)
        self.tables = [fast.encode(side) for side in self.sides]
        self.file = folder / "features.bin"
        count = len(self.sides[0])
        self.features_VD = torch.randn(count, FEATURE, generator=torch.Generator().manual_seed(0))
        self.features_VD.numpy().tofile(self.file)
        torch.manual_seed(0)
        size = {"vocab_size": a.vocabulary, "hidden_size": a.hidden, "intermediate_size": 4 * a.hidden}
        bert = BertConfig(**size, num_hidden_layers=a.layers, num_attention_heads=max(1, a.hidden // 64))
        encoder = TransformerTextEncoder(BertModel(bert))
        config = method_module.Config(text_encoder="bert", batch_size=a.batch)
        self.method = ThreeTexts(config, FEATURE, encoder).to(self.device).train()
        self.losses = ranks.wrap(self.method)
        self.encoder = encoder
        dense, _ = parameter_groups(self.method, config)
        self.ours_optimizer = torch.optim.AdamW(dense, fused=True)
        weights = [w for w in self.method.parameters() if w.requires_grad]
        self.plain_optimizer = torch.optim.Adam(weights, lr=2e-5)
        self.dice = torch.Generator().manual_seed(1)
        self.rows = torch.zeros(0, dtype=torch.int64)
        self.resident_VD = self.features_VD.to(self.device)

    def draw(self, size: int | None = None) -> None:
        """The next batch: any rows."""
        self.rows = torch.randint(len(self.sides[0]), (size or self.arguments.batch,), generator=self.dice)

    def texts(self) -> Tokens:
        """Its texts, all sides after each other."""
        source, target, back = (table.select(self.rows).to(self.device) for table in self.tables)
        return source.join(target).join(back)

    def move(self, optimizer: torch.optim.Optimizer, visual_BD: Tensor, sides: tuple[Tensor, ...]) -> None:
        """The loss and the step."""
        self.descend(optimizer, total_loss(visual_BD, sides))

    def descend(self, optimizer: torch.optim.Optimizer, loss: Tensor) -> None:
        """The backward pass and the step, the same for all."""
        optimizer.zero_grad(set_to_none=True)
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()

    def autocast(self) -> torch.autocast:
        """Where half precision is wanted."""
        return torch.autocast(self.device.type, self.dtype, enabled=self.dtype is not torch.float32)

    def ours(self) -> None:
        """A step of ours."""
        texts = self.texts()
        visual = self.resident_VD[self.rows.to(self.device, non_blocking=True)]
        with self.autocast():
            offsets = torch.arange(len(visual) + 1, device=self.device)
            visual_BD = self.method.encoder.embed_visual(Frames(visual, offsets)).float()
            text_BD = self.method.embed_text(texts)
        self.move(self.ours_optimizer, visual_BD, torch.split(text_BD, len(visual)))

    def plain(self) -> None:
        """A step as it is written without a tool."""
        items = [self.item(int(row)) for row in self.rows]
        visual = torch.stack([item[0] for item in items]).to(self.device)
        offsets = torch.arange(len(visual) + 1, device=self.device)
        sides = []
        with self.autocast():
            visual_BD = self.method.encoder.embed_visual(Frames(visual, offsets)).float()
            for side in range(3):
                ids = [item[1][side] for item in items]
                width = self.arguments.pad_to or max(map(len, ids))
                ids_BL = torch.zeros(len(ids), width, dtype=torch.int64)
                mask_BL = torch.zeros(len(ids), width, dtype=torch.int64)
                for b, text in enumerate(ids):
                    ids_BL[b, : len(text)] = torch.tensor(text[:width])
                    mask_BL[b, : len(text)] = 1
                mask_BL = mask_BL.to(self.device)
                state_BLD = self.encoder.model(ids_BL.to(self.device), attention_mask=mask_BL).last_hidden_state
                mean_BD = (state_BLD * mask_BL[..., None]).sum(1) / mask_BL.sum(1, keepdim=True)
                assert self.method.encoder.text_head is not None
                sides.append(torch.nn.functional.normalize(self.method.encoder.text_head(mean_BD), dim=-1))
        self.move(self.plain_optimizer, visual_BD, tuple(sides))

    def item(self, row: int) -> tuple[Tensor, list[list[int]]]:
        """One item: its feature off the disk, its texts through a tokenizer in Python."""
        with self.file.open("rb") as handle:
            handle.seek(row * FEATURE * 4)
            feature = torch.Tensor(np.frombuffer(handle.read(FEATURE * 4), np.float32).tolist())
        most = self.arguments.max_tokens - 2
        ids = [self.slow.convert_tokens_to_ids(self.slow.tokenize(side[row])[:most]) for side in self.sides]
        ends = self.slow.cls_token_id, self.slow.sep_token_id
        return feature, [[ends[0], *text, ends[1]] for text in ids]

    def alone(self, texts: Tokens) -> None:
        """Forward and backward of the encoder."""
        self.method.zero_grad(set_to_none=True)
        with self.autocast():
            out_BD = self.encoder(texts)
        out_BD.float().square().mean().backward()

    def shared(self) -> None:
        """A step of all processes."""
        row_b = self.ranks.part_of(self.rows)
        source, target, back = (table.select(row_b).to(self.device) for table in self.tables)
        visual = self.resident_VD[row_b.to(self.device, non_blocking=True)]
        frames = Frames(visual, torch.arange(len(visual) + 1, device=self.device))
        ones = torch.ones(len(self.rows), device=self.device)
        batch = Batch(frames, source, target, self.rows, Belief(ones, ones, ones), back=back, gather=self.ranks.gather)
        with self.autocast():
            loss = self.losses(batch)["infonce"]
        self.descend(self.ours_optimizer, loss)

    def timed(self, variant: str) -> dict[str, float]:
        """Runs a variant on the batch that was drawn; empty in a process that has no part in it."""
        self.ranks.agree(None, due=False)  # waits for the other processes
        if variant != "shared" and not self.ranks.first:
            return {}
        self.encoder.packs = variant != "groups"
        text_transformer.OVERHEAD_CPU = text_transformer.OVERHEAD_CUDA = 0  # so that no two lengths share a group
        run: Callable[[], None]
        if variant in ("encoder", "groups"):
            texts = self.texts()

            def run() -> None:
                self.alone(texts)

        else:
            run = getattr(self, variant)
        self.method.zero_grad(set_to_none=True)
        before = self.reset_memory()
        start = time.perf_counter(), time.process_time()
        run()
        if self.device.type == "cuda":
            torch.cuda.synchronize()
        figures = {"seconds": time.perf_counter() - start[0], "cpu": time.process_time() - start[1]}
        figures["memory"] = self.most_memory() - before
        figures["tokens"] = float(sum(int(table.select(self.rows).lengths_B.sum()) for table in self.tables))
        self.method.zero_grad(set_to_none=True)
        return figures

    def reset_memory(self) -> float:
        """Forgets the most memory so far; returns what is held now, MB."""
        if self.device.type == "cuda":
            torch.cuda.synchronize()
            torch.cuda.reset_peak_memory_stats()
            return torch.cuda.memory_allocated() / 2**20
        ctypes.CDLL(None).malloc_trim(0)
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
        return self.status("VmRSS")

    def most_memory(self) -> float:
        """The most memory since then, MB."""
        return torch.cuda.max_memory_allocated() / 2**20 if self.device.type == "cuda" else self.status("VmHWM")

    def status(self, key: str) -> float:
        """What the kernel says of this process (Linux), MB."""
        lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
        return next(int(line.split()[1]) / 1024 for line in lines if line.startswith(key))

    def padding(self) -> dict[str, float]:
        """Share of padding among what goes through the encoder, over 200 batches."""
        lengths = [np.diff(table.offsets_B1.numpy()) for table in self.tables]
        dice, size = np.random.default_rng(0), self.arguments.batch
        batches = [[side[dice.integers(0, len(side), size)] for side in lengths] for _ in range(200)]
        real = sum(int(side.sum()) for batch in batches for side in batch)
        width = self.arguments.pad_to
        plain = sum(size * (width or int(side.max())) for batch in batches for side in batch)
        grouped = 0
        for batch in batches:
            together = np.concatenate(batch)
            parts = text_transformer.length_groups(together, OVERHEAD)
            grouped += sum(len(part) * int(together[part].max()) for part in parts)
        return {
            "plain": round(1 - real / plain, 3),
            "grouped by length": round(1 - real / grouped, 3),
            "ours": 0.0,
            "tokens a text": round(real / (200 * 3 * size), 1),
        }


def spread(values: list[float], digits: int = 2) -> dict[str, float]:
    """Least, median and most."""
    rounded = [round(each, digits) for each in (min(values), statistics.median(values), max(values))]
    return dict(zip(("min", "median", "max"), rounded, strict=True))


def summarise(rounds: list[dict[str, dict[str, float]]]) -> dict[str, Any]:
    """Ratios within the rounds, and what each variant took."""
    figures: dict[str, Any] = {}
    for key, suffix in (("seconds", ""), ("cpu", "_by_cpu")):
        for name, over, under in (
            ("times_the_plain_loop", "plain", "ours"),
            ("share_of_the_encoder_alone", "encoder", "ours"),
            ("share_of_equal_lengths", "groups", "ours"),
        ):
            if {over, under} <= rounds[0].keys():
                figures[name + suffix] = spread([r[over][key] / r[under][key] for r in rounds])
    if {"ours", "shared"} <= rounds[0].keys():
        figures["times_one_process"] = spread([r["ours"]["seconds"] / r["shared"]["seconds"] for r in rounds])
    for variant, measured in rounds[0].items():
        figures[variant] = {key: spread([r[variant][key] for r in rounds], 2) for key in measured if key != "tokens"}
        figures[variant]["steps_a_second"] = spread([1 / r[variant]["seconds"] for r in rounds], 3)
        figures[variant]["tokens_a_second"] = spread([r[variant]["tokens"] / r[variant]["seconds"] for r in rounds], 1)
    return figures


def main() -> None:
    """Prints the figures, and writes them with --out."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--captions", nargs="+", type=Path, default=[], help="files of captions, a line each")
    parser.add_argument("--variants", nargs="+", choices=VARIANTS, default=list(VARIANTS[:-1]))
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--hidden", type=int, default=768)
    parser.add_argument("--vocabulary", type=int, default=119547)
    parser.add_argument("--pieces", type=int, default=PIECES, help="that captions are cut into")
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--max-tokens", type=int, default=64)
    parser.add_argument("--pad-to", type=int, default=0, help="what the plain loop pads to; 0: the longest text")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--dtype", choices=("float32", "bfloat16"), default="float32")
    parser.add_argument("--compile", action="store_true", help="our encoder by torch.compile")
    parser.add_argument("--out", type=Path, help="file for the figures")
    a = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, together() as ranks:
        job = Job(a, Path(folder), ranks)
        if a.compile:
            job.encoder.compile()
        for variant in a.variants:  # what is done once: states of the optimisers, imports, kernels
            for size in (8, 12, a.batch) if a.device == "cuda" or a.compile else (8,):
                job.draw(min(size, a.batch))
                job.timed(variant)
        rounds: list[dict[str, dict[str, float]]] = []
        for number in range(a.rounds):
            job.draw()
            turn = [*a.variants][number % len(a.variants) :] + [*a.variants][: number % len(a.variants)]
            timed = {variant: job.timed(variant) for variant in turn}
            rounds.append({variant: timed[variant] for variant in a.variants})
            if ranks.first:
                print(json.dumps(rounds[-1]), file=sys.stderr, flush=True)
        about = {
            "model": f"BERT, {a.layers} layers of {a.hidden}, vocabulary {a.vocabulary}, random weights",
            "batch": f"{a.batch} triplets: three texts each",
            "captions": "files" if a.captions else "bundled",
            "padding": job.padding(),
            "pad_to": a.pad_to or "the longest text of a side",
            "device": torch.cuda.get_device_name() if a.device == "cuda" else platform.machine(),
            "threads": torch.get_num_threads(),
            "processes": ranks.size,
            "processors": len(os.sched_getaffinity(0)),
            "dtype": a.dtype,
            "compile": a.compile,
            "rounds": a.rounds,
            "torch": torch.__version__,
        }
    if not ranks.first:
        return
    text = json.dumps({**about, "found": summarise(rounds)}, indent=1) + "\n"
    print(text, end="")
    if a.out:
        a.out.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
