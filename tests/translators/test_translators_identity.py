"""A request records what a file holds, not where it lies."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
import toy
import transformers
from toy import Chain

from ccr_cli.artifacts import translation
from ccr_cli.errors import UsageError
from ccr_cli.translators import hf, recorded


def translated(root: Path, table: Path, *options: str) -> toy.Outcome:
    call = ("translate", "--lang", "es", "--engine", "recorded", "--set", f"table={table}", *options)
    return toy.ccr(*call, workspace=root)


def test_an_edited_table_is_another_request_and_a_moved_one_is_not(workspace: Chain, tmp_path: Path) -> None:
    known = toy.toy().tables["en-es"]
    mine, moved = tmp_path / "mine.tsv", tmp_path / "elsewhere" / "theirs.tsv"
    toy.write_table(mine, ("source", "target"), known.items())
    first = translated(workspace.root, mine).made
    assert str(tmp_path) not in str(first.request)
    moved.parent.mkdir()
    mine.rename(moved)
    assert translated(workspace.root, moved).made == first
    toy.write_table(moved, ("source", "target"), {**known, "red circle": "otro"}.items())
    second = translated(workspace.root, moved).made
    assert second.path != first.path and translation.read(second)["text"].to_list().count("otro") == 1
    done = translated(workspace.root, moved, "--name", first.name)
    assert done.code == 4 and "set.table: 'sha256:" in done.err, "nor does it pass for the old one under its name"


def test_a_table_that_is_not_there() -> None:
    with pytest.raises(UsageError, match="nowhere"):
        recorded.identity(recorded.Config(table="nowhere"))
    assert recorded.identity(recorded.Config()) == {} == hf.identity(hf.Config(model="no-folder/of-this-name"))
    assert hf.identity(hf.Config()) == {}, "an empty name is not the current folder"


def test_an_edited_text_encoder_is_another_request(workspace: Chain, tmp_path: Path) -> None:
    folder = tmp_path / "bert"
    vocabulary = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abcdefghijklmnopqrstuvwxyz"]
    folder.mkdir()
    tokenizer = transformers.BertTokenizer(vocab={word: i for i, word in enumerate(vocabulary)})
    tokenizer.save_pretrained(folder)
    size = {"hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2}
    config = transformers.BertConfig(vocab_size=len(vocabulary), **size)

    def trained() -> Path:
        call = ("train", "--method", "infonce", "--epochs", "1", *toy.SMALL, "--set", f"text_encoder={folder}")
        return toy.ok(*call, workspace=workspace.root).paths[-1]

    torch.manual_seed(0)
    transformers.BertModel(config).save_pretrained(folder)
    first = trained()
    folder = folder.rename(tmp_path / "moved")
    assert trained() == first
    torch.manual_seed(1)
    transformers.BertModel(config).save_pretrained(folder)
    second = trained()
    assert second != first
    (folder / "tokenizer_config.json").write_text((folder / "tokenizer_config.json").read_text() + "\n")
    assert trained() not in (first, second), "what a text becomes matters as much as the weights"
