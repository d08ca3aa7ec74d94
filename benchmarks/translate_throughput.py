"""Measure captions per second of the engines hf and ct2 against a loop of `generate`, one sentence at a time.

Translates captions with a Marian of OPUS-MT's base size (6 + 6 layers of 512, 58,101 words) by `Translator.translate`
with scores, against the simple script: tokenise one caption, `generate`, decode. Reading and converting the model do
not count. All run in float32, `ct2` also in int8 (its default on a CPU), greedy and with 4 beams.

The model has random weights, so nothing is downloaded; only its speed means anything. Its output row for the end of a
sentence is fitted (ridge regression on the decoder's states) so that translations are about as long as their sources;
otherwise all would reach the limit. `tokens` in the results is their length, `equal` how many equal the loop's word for
word.

Captions are those of a collection (`--data`, a folder with captions.parquet), else of the bundled data. The loop gets a
sample of them in order of length, the engines all. Variants take turns in each run, and a ratio is taken within a run
(captions per second, engine / loop: above 1, the engine is faster), by wall clock and by CPU seconds; the latter hardly
depend on other load. One thread by default. On a GPU (`--device cuda`) `ct2` runs in float16 beside float32.

    OMP_NUM_THREADS=1 python benchmarks/translate_throughput.py --output benchmarks/results/translate_throughput.json
"""

from __future__ import annotations

import argparse
import io
import json
import os
import platform
import random
import statistics
import tempfile
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import ctranslate2
import pandas as pd
import sentencepiece
import torch
import transformers
from torch import Tensor

from ccr_cli.data.tsv import read_tsv
from ccr_cli.translators import ct2, hf

BUNDLED = Path(__file__).resolve().parents[1] / "data_manifests" / "noto-emoji" / "captions.tsv"
VOCABULARY = 58101  # of opus-mt-en-de
SIZE: dict[str, Any] = {
    "d_model": 512, "encoder_layers": 6, "decoder_layers": 6, "encoder_ffn_dim": 2048, "decoder_ffn_dim": 2048,
    "encoder_attention_heads": 8, "decoder_attention_heads": 8, "max_position_embeddings": 512,
}  # fmt: skip
LIMIT = 64
FITTED_STEPS = 32
STEEP = 50.0
"""How much the logit of the end changes from one word too early to one word too late."""

Run = Callable[[int, list[str]], list[str]]
"""Translates texts with so many beams."""


def read_captions(folder: Path | None) -> list[str]:
    """Different English captions of a collection by people, or of the bundled data."""
    if folder is None:
        rows = read_tsv(BUNDLED, ("caption_id", "item_id", "lang", "k", "text", "caption_set"))
        return list(dict.fromkeys(text for _, (_, _, lang, _, text, _) in rows if lang == "en"))
    table = pd.read_parquet(folder / "captions.parquet")
    return list(dict.fromkeys(table[(table["lang"] == "en") & (table["source"] == "human")]["text"]))


def make_model(folder: Path, captions: list[str]) -> Any:
    """Saves a Marian with random weights that ends its sentences; returns its tokenizer."""
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(captions), model_writer=model, vocab_size=4000, hard_vocab_limit=False, minloglevel=2
    )
    pieces = sentencepiece.SentencePieceProcessor(model_proto=model.getvalue())
    words = [pieces.id_to_piece(i) for i in range(3, pieces.get_piece_size())]
    filled = ["</s>", "<unk>", *words, *(f"unused{i}" for i in range(VOCABULARY - 3 - len(words))), "<pad>"]
    (folder / "both.spm").write_bytes(model.getvalue())
    (folder / "vocab.json").write_text(json.dumps({word: i for i, word in enumerate(filled)}))
    tokenizer = transformers.MarianTokenizer(*[str(folder / "both.spm")] * 2, str(folder / "vocab.json"))
    config = transformers.MarianConfig(
        vocab_size=VOCABULARY, pad_token_id=VOCABULARY - 1, decoder_start_token_id=VOCABULARY - 1, eos_token_id=0,
        forced_eos_token_id=None, scale_embedding=True, activation_function="swish", tie_word_embeddings=False, **SIZE,
    )  # fmt: skip
    network = transformers.MarianMTModel(config).eval()
    network.generation_config.update(bad_words_ids=[[VOCABULARY - 1]], max_length=None)
    teach_to_end(network, tokenizer(captions[-128:], padding=True, return_tensors="pt"))
    network.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return tokenizer


@torch.inference_mode()
def teach_to_end(network: Any, batch: Any) -> None:
    """Makes translations about as long as their sources, by what the end of a sentence is multiplied with."""
    settings = {"do_sample": False, "max_new_tokens": FITTED_STEPS, "suppress_tokens": [0]}
    output_BL = network.generate(**batch, **settings)
    states_BLD = network.model(**batch, decoder_input_ids=output_BL[:, :-1]).last_hidden_state
    highest_BL = network.lm_head(states_BLD).amax(dim=-1)
    length_B1 = batch["attention_mask"].sum(dim=1, keepdim=True) - 1
    goal_BL = torch.where(torch.arange(states_BLD.shape[1]) >= length_B1, 0.5, -0.5)
    x_ND = torch.nn.functional.pad(states_BLD, (0, 1), value=1.0).flatten(0, 1).double()
    ridge_DD = 1e-3 * len(x_ND) * torch.eye(x_ND.shape[1], dtype=torch.double)
    row_D: Tensor = torch.linalg.solve(x_ND.T @ x_ND + ridge_DD, x_ND.T @ goal_BL.flatten().double()).float() * STEEP
    network.lm_head.weight[0] = row_D[:-1]
    network.final_logits_bias[0, 0] = row_D[-1] + highest_BL.mean()


def variants(folder: Path, tokenizer: Any, device: str) -> dict[str, Run]:
    """The loop and the engines."""
    network: Any = transformers.AutoModelForSeq2SeqLM.from_pretrained(folder, dtype=torch.float32).to(device)

    def loop(beams: int, texts: list[str]) -> list[str]:
        translations = []
        for text in texts:
            batch = tokenizer(text, return_tensors="pt").to(device)
            output = network.generate(**batch, num_beams=beams, do_sample=False, max_new_tokens=LIMIT)
            translations.append(tokenizer.decode(output[0], skip_special_tokens=True))
        return translations

    def engine(module: Any, dtype: str) -> Run:
        @cache
        def made(beams: int) -> Any:
            config = module.Config(model=str(folder), dtype=dtype, num_beams=beams, max_new_tokens=LIMIT)
            return module.Translator("en", "de", config, dataset_dir=None, device=device)

        def run(beams: int, texts: list[str]) -> list[str]:
            found = dict(made(beams).translate(texts))
            return [found[i].text or "" for i in range(len(texts))]

        return run

    ct2_dtypes = ("float32", "int8") if device == "cpu" else ("float32", "float16")
    return {
        "loop": loop,
        "hf float32": engine(hf, "float32"),
        **{f"ct2 {dtype}": engine(ct2, dtype) for dtype in ct2_dtypes},
    }


def spread(values: list[float]) -> dict[str, float]:
    """Least, middle and greatest of several runs."""
    return {"min": round(min(values), 3), "median": round(statistics.median(values), 3), "max": round(max(values), 3)}


def measure(runs: dict[str, Run], every: list[str], few: list[str], beams: int, repeats: int) -> dict[str, Any]:
    """Captions per second of every variant, and their ratio to the loop's."""
    clocks = {"wall": time.perf_counter, "cpu": time.process_time}
    rates: dict[str, dict[str, list[float]]] = {clock: {name: [] for name in runs} for clock in clocks}
    texts_of: dict[str, list[str]] = {}
    for run in runs.values():
        run(beams, few[:2])  # reads and converts the model
    for _ in range(repeats):
        for name, run in runs.items():
            start = {clock: now() for clock, now in clocks.items()}
            texts = run(beams, few if name == "loop" else every)
            for clock, now in clocks.items():
                rates[clock][name].append(len(texts) / (now() - start[clock]))
            texts_of[name] = texts if name == "loop" else [texts[every.index(text)] for text in few]
    characters = {name: statistics.mean(map(len, texts)) for name, texts in texts_of.items()}
    return {
        "captions_per_second": {
            clock: {name: spread(values) for name, values in of.items()} for clock, of in rates.items()
        },
        "ratio_to_loop": {
            clock: {
                name: spread([ours / theirs for ours, theirs in zip(values, of["loop"], strict=True)])
                for name, values in of.items()
                if name != "loop"
            }
            for clock, of in rates.items()
        },
        "equal": {
            name: sum(a.strip() == b.strip() for a, b in zip(texts, texts_of["loop"], strict=True)) / len(few)
            for name, texts in texts_of.items()
        },
        "length_to_loop": {name: round(n / characters["loop"], 3) for name, n in characters.items()},
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="folder of a collection, with captions.parquet")
    parser.add_argument("--captions", type=int, default=96, help="for the engines")
    parser.add_argument("--loop-captions", type=int, default=24, help="of these, for the loop")
    parser.add_argument("--beams", type=int, nargs="+", default=[1, 4])
    parser.add_argument("--repeats", type=int, default=4)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--output", type=Path)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    torch.manual_seed(args.seed)
    transformers.utils.logging.disable_progress_bar()
    captions = read_captions(args.data)
    random.Random(args.seed).shuffle(captions)
    every = captions[: args.captions]
    few = sorted(every, key=len)[args.captions // args.loop_captions // 2 :: args.captions // args.loop_captions]

    with tempfile.TemporaryDirectory() as folder:
        os.environ["CCR_CACHE"] = f"{folder}/cache"
        model = Path(folder) / "marian-base"
        model.mkdir()
        tokenizer = make_model(model, captions[:4096])
        runs = variants(model, tokenizer, args.device)
        searches = {
            "greedy" if beams == 1 else f"{beams} beams": measure(runs, every, few, beams, args.repeats)
            for beams in args.beams
        }
    lengths = [len(ids) for ids in tokenizer(every)["input_ids"]]
    result = {
        "what": "captions per second; ratio = engine / loop within a run",
        "captions": {
            "of": args.data.name if args.data else "noto-emoji",
            "engines": len(every),
            "loop": len(few),
            "source_tokens": {"mean": round(statistics.mean(lengths), 1), "min": min(lengths), "max": max(lengths)},
        },
        "model": {**SIZE, "vocabulary": VOCABULARY, "weights": "random"},
        "repeats": args.repeats,
        "seed": args.seed,
        "searches": searches,
        "machine": {
            "device": torch.cuda.get_device_name() if args.device == "cuda" else "cpu",
            "cores": os.cpu_count(),
            "threads": torch.get_num_threads(),
            "architecture": platform.machine(),
            "python": platform.python_version(),
            "torch": torch.__version__,
            "transformers": transformers.__version__,
            "ctranslate2": ctranslate2.__version__,
        },
    }
    text = json.dumps(result, indent=2)
    print(text)
    if args.output:
        args.output.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
