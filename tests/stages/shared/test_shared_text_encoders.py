"""Text encoders that options ask for: what a model of a folder cannot read is said before anything is trained."""

from __future__ import annotations

from pathlib import Path

import pytest
import toy
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import BertConfig, BertModel, PreTrainedTokenizerFast

from ccr_cli.artifacts import run


@pytest.fixture
def bert(tmp_path: Path) -> Path:
    """A tiny BERT with random weights that knows three words and reads 40 tokens."""
    words = ("[PAD]", "[UNK]", "red", "green", "circle")
    tokenizer = Tokenizer(models.WordLevel({word: i for i, word in enumerate(words)}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    folder = tmp_path / "bert"
    made = PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="[UNK]", pad_token="[PAD]")
    made.save_pretrained(folder)
    size = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 24}
    BertModel(BertConfig(vocab_size=len(words), max_position_embeddings=40, **size)).save_pretrained(folder)
    return folder


def test_texts_longer_than_a_model_reads(workspace: toy.Chain, bert: Path) -> None:
    call = ("train", "--method", "infonce", "--epochs", "1", "--device", "cpu", "--set", f"text_encoder={bert}")
    refused = toy.ccr(*call, workspace=workspace.root)
    assert refused.code == 2 and f"{bert} reads 40 tokens at most, and max_tokens is 64" in refused.err
    assert "--set max_tokens=40" in refused.err
    made = toy.ok(*call, "--set", "max_tokens=40", workspace=workspace.root).made
    assert run.config(made)["text_encoder"]["kind"] == "transformers"


def test_options_of_the_text_encoder_are_in_the_run(workspace: toy.Chain, bert: Path) -> None:
    options = {"max_tokens": 40, "pooling": "cls", "lora_rank": 2, "frozen_layers": 1, "encoder_lr": 1e-4}
    sets = [word for key, value in options.items() for word in ("--set", f"{key}={value}")]
    call = ("train", "--method", "infonce", "--epochs", "1", "--device", "cpu", "--set", f"text_encoder={bert}")
    made = toy.ok(*call, *sets, workspace=workspace.root).made
    told = run.config(made)
    assert told["text_encoder"]["pooling"] == "cls" and options.items() <= told["options"].items()
    assert told["text_encoder"]["lora"] == {"rank": 2, "alpha": 4, "targets": ["query", "value"], "first": 1}
    toy.ok("evaluate", made.path, "--device", "cpu", workspace=workspace.root)


@pytest.mark.parametrize("option", ["pooling=own", "pooling=sum", "lora_rank=-1", "encoder_lr=0", "layer_decay=0"])
def test_options_that_make_no_sense(option: str, workspace: toy.Chain, bert: Path) -> None:
    call = ("train", "--method", "nrccr" if option == "pooling=own" else "infonce", "--device", "cpu")
    refused = toy.ccr(
        *call, "--set", f"text_encoder={bert}", "--set", "max_tokens=9", "--set", option, workspace=workspace.root
    )
    assert refused.code == 2 and option.split("=")[0] in refused.err
