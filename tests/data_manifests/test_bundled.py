"""The bundled data sets are what their manifests say, and their splits are clean."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import struct
import subprocess
import sys
import tomllib
import unicodedata
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
MANIFESTS = ROOT / "data_manifests"
NAMES = ("noto-emoji", "twemoji")
PACKAGES = "CCR_NPM_PACKAGES"


def table(name: str, file: str) -> list[dict[str, str]]:
    """Read a table; none of the bundled ones needs unescaping, which is checked."""
    text = (MANIFESTS / name / file).read_bytes().decode()
    assert text.endswith("\n") and "\r" not in text and "\\" not in text
    header, *lines = text[:-1].split("\n")
    return [dict(zip(header.split("\t"), line.split("\t"), strict=True)) for line in lines]


def manifest(name: str) -> dict[str, Any]:
    return tomllib.loads((MANIFESTS / name / "manifest.toml").read_text(encoding="utf-8"))


def translation(name: str, source: str, target: str) -> dict[str, str]:
    rows = table(name, f"translations/apertium-{source}-{target}.tsv")
    assert len({row["source"] for row in rows}) == len(rows)
    assert all(row["source"].strip() and row["target"].strip() for row in rows)
    return {row["source"]: row["target"] for row in rows}


def texts(name: str, lang: str) -> list[str]:
    return [row["text"] for row in table(name, "captions.tsv") if row["lang"] == lang]


@pytest.mark.parametrize("name", NAMES)
def test_files_have_the_size_lines_and_digest_of_the_manifest(name: str) -> None:
    listed = manifest(name)["files"]
    for entry in listed:
        path = MANIFESTS / name / entry["path"]
        if entry["role"] == "media":
            contents = {picture.name: picture.read_bytes() for picture in path.iterdir()}
            digests = {file: hashlib.sha256(data).hexdigest() for file, data in contents.items()}
            data = "".join(f"{file} {digests[file]}\n" for file in sorted(digests)).encode()
            assert entry["bytes"] == sum(map(len, contents.values()))
        else:
            data = path.read_bytes()
            assert entry["bytes"] == len(data) < 2_000_000
        assert entry["lines"] == data.count(b"\n")
        assert entry["sha256"] == hashlib.sha256(data).hexdigest()
    found = {
        file.relative_to(MANIFESTS / name).as_posix()
        for file in (MANIFESTS / name).rglob("*")
        if file.is_file() and file.parent.name != "media"
    }
    assert found == {entry["path"] for entry in listed if entry["role"] != "media"} | {"manifest.toml"}


@pytest.mark.parametrize("name", NAMES)
def test_counts_agree_with_the_manifest(name: str) -> None:
    about, items = manifest(name), table(name, "items.tsv")
    splits = Counter(item["split"] for item in items)
    assert about["counts"]["items"] == {split: splits[split] for split in ("train", "val", "test")}
    assert about["counts"]["groups"] == len({item["group"] for item in items})
    captions = Counter(row["lang"] for row in table(name, "captions.tsv"))
    assert about["counts"]["captions"] == captions
    assert set(captions) == {about["source_lang"], *about["query_langs"]}
    assert about["name"] == name
    assert splits["test"] >= 300


@pytest.mark.parametrize("name", NAMES)
def test_ids_are_unique_and_refer_to_what_exists(name: str) -> None:
    items, captions = table(name, "items.tsv"), table(name, "captions.tsv")
    ids = [item["item_id"] for item in items]
    assert len(set(ids)) == len(ids)
    assert len({row["caption_id"] for row in captions}) == len(captions)
    assert {row["item_id"] for row in captions} == set(ids)
    assert {path.name for path in (MANIFESTS / name / "media").iterdir()} == {item["media"] for item in items}
    for row in captions:
        assert row["caption_id"] == f"{row['item_id']}#{row['lang']}#{row['k']}"
        assert (row["caption_set"] == "short-name") == (row["k"] == "0")


@pytest.mark.parametrize("name", NAMES)
def test_labels_are_the_groups_of_unicode(name: str) -> None:
    groups = manifest(name)["labels"]
    of = {item["item_id"]: groups[int(item["label"])] for item in table(name, "items.tsv")}
    assert set(of.values()) == {*groups} - {"Flags"}
    known = {
        "1f605": "Smileys & Emotion",
        "1f44b": "People & Body",
        "1f42f": "Animals & Nature",
        "1f34f": "Food & Drink",
        "1f30d": "Travel & Places",
        "1f3bf": "Activities",
        "1f455": "Objects",
        "1f6ae": "Symbols",
    }
    found = {item: group for item, group in known.items() if item in of}
    assert len(found) >= 1 and {item: of[item] for item in found} == found


@pytest.mark.parametrize("name", NAMES)
def test_captions_are_clean_and_none_belongs_to_two_items(name: str) -> None:
    captions = table(name, "captions.tsv")
    for row in captions:
        assert row["text"] == " ".join(unicodedata.normalize("NFC", row["text"]).split()) != ""
    assert len({(row["lang"], row["text"].casefold()) for row in captions}) == len(captions)


@pytest.mark.parametrize("name", NAMES)
def test_only_english_captions_train_and_every_held_out_item_has_a_name_in_every_language(name: str) -> None:
    items, captions = table(name, "items.tsv"), table(name, "captions.tsv")
    train = {item["item_id"] for item in items if item["split"] == "train"}
    assert {row["lang"] for row in captions if row["item_id"] in train} <= {"en"}
    named = {(row["item_id"], row["lang"]) for row in captions if row["caption_set"] == "short-name"}
    langs = {"en", *manifest(name)["query_langs"]}
    expected = {(i["item_id"], lang) for i in items for lang in langs if lang == "en" or i["split"] != "train"}
    assert named == expected


def test_groups_never_cross_splits() -> None:
    splits: dict[str, set[str]] = {}
    for item in table("noto-emoji", "items.tsv"):
        splits.setdefault(item["group"], set()).add(item["split"])
    assert all(len(found) == 1 for found in splits.values())


def test_variants_of_one_concept_are_in_one_group() -> None:
    group = {item["item_id"]: item["group"] for item in table("noto-emoji", "items.tsv")}
    for variants in (
        ["1f468-200d-1f692", "1f469-200d-1f692", "1f9d1-200d-1f692"],  # firefighters
        ["1f57a", "1f483"],  # man, woman dancing
        ["1f468", "1f469", "1f9d1", "1f468-200d-1f9b0", "1f471-200d-2640-fe0f"],  # adults, hair
        ["1f46a", "1f468-200d-1f469-200d-1f467", "1f9d1-200d-1f9d1-200d-1f9d2"],  # families
        ["1f3c3", "1f3c3-200d-2642-fe0f", "1f3c3-200d-2640-fe0f-200d-27a1-fe0f"],  # running
        ["1f934", "1f478", "1fac5"],  # prince, princess, person with crown
        ["1f408", "1f408-200d-2b1b"],  # cat, black cat
    ):
        assert len({group[item] for item in variants}) == 1, variants
    apart = ["1f692", "1f9d1-200d-1f692", "1f9d1", "1f46a", "2764-fe0f", "2764-fe0f-200d-1f525"]
    assert len({group[item] for item in apart}) == len(apart)


def test_siblings_are_found_from_the_names_alone() -> None:
    """An oracle beside the code points: ``man X``, ``woman X``, ``person X`` and ``X`` share a split."""
    names = {r["item_id"]: r["text"] for r in table("noto-emoji", "captions.tsv") if r["caption_id"].endswith("#en#0")}
    roles: dict[str, set[str]] = {}
    for item in table("noto-emoji", "items.tsv"):
        role = re.sub(r"^(wo)?m[ae]n:? |^person:? |^people |: facing right$", "", names[item["item_id"]])
        roles.setdefault(role, set()).add(item["split"])
    assert [role for role, splits in roles.items() if len(splits) > 1] == []


@pytest.mark.parametrize("name", NAMES)
def test_no_flags_key_caps_or_skin_tones(name: str) -> None:
    for item in table(name, "items.tsv"):
        for code in (int(part, 16) for part in item["item_id"].split("-")):
            assert not 0x1F1E6 <= code <= 0x1F1FF and code not in {
                0x1F3F3,
                0x1F3F4,
                0x1F6A9,
                0x1F38C,
                0x1F3C1,
            }
            assert not 0x1F3FB <= code <= 0x1F3FF
            assert code != 0x20E3


@pytest.mark.parametrize("name", NAMES)
def test_pictures_are_png_files_of_64_pixels(name: str) -> None:
    for path in (MANIFESTS / name / "media").iterdir():
        head = path.read_bytes()[:24]
        assert head[:8] == b"\x89PNG\r\n\x1a\n"
        assert struct.unpack(">II", head[16:24]) == (64, 64)


def test_twemoji_is_the_test_split_of_noto_emoji() -> None:
    noto, twemoji = table("noto-emoji", "items.tsv"), table("twemoji", "items.tsv")
    concepts = {item["item_id"]: item["group"] for item in noto if item["split"] == "test"}
    assert {item["split"] for item in twemoji} == {"test"}
    assert {item["item_id"]: item["group"] for item in twemoji}.items() <= concepts.items()
    shared = {item["item_id"] for item in twemoji}
    captions = [row for row in table("noto-emoji", "captions.tsv") if row["item_id"] in shared]
    assert table("twemoji", "captions.tsv") == captions


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("lang", ["es", "fr"])
def test_english_captions_and_queries_are_translated_there_and_back(name: str, lang: str) -> None:
    there, back = translation(name, "en", lang), translation(name, lang, "en")
    assert set(there) == set(texts(name, "en"))
    assert set(back) == {*there.values(), *texts(name, lang)}
    assert 0.5 < sum(source != target for source, target in there.items()) / len(there) < 1.0


def test_both_data_sets_record_the_same_translations() -> None:
    for source, target in (("en", "es"), ("es", "en"), ("en", "fr"), ("fr", "en")):
        assert translation("twemoji", source, target).items() <= translation("noto-emoji", source, target).items()


@pytest.mark.parametrize("name", NAMES)
def test_the_manifest_says_where_the_translations_come_from(name: str) -> None:
    entries = manifest(name)["translations"]
    pairs = {(entry["source"], entry["target"]) for entry in entries}
    assert pairs == {("en", "es"), ("es", "en"), ("en", "fr"), ("fr", "en")}
    for entry in entries:
        assert entry["engine"] == "apertium"
        assert entry["version"].startswith("apertium 3.")
        assert entry["command"].startswith("apertium -u ")
        assert (MANIFESTS / name / entry["file"]).is_file()


@pytest.mark.parametrize("name", NAMES)
def test_licence_texts_are_shipped(name: str) -> None:
    first_words = {
        "Apache-2.0": "Apache License",
        "CC-BY-4.0": "Attribution 4.0 International",
        "Unicode-3.0": "UNICODE LICENSE V3",
    }
    licences = manifest(name)["licences"]
    assert len(licences) == 2
    for entry in licences:
        assert (ROOT / entry["file"]).read_text(encoding="utf-8").lstrip().startswith(first_words[entry["licence"]])


def run_in_build_folder(code: str, text: str) -> str:
    """Run Python where the build scripts are importable, text in, text out."""
    command = [sys.executable, "-B", "-c", code]
    folder = MANIFESTS / "build"
    return subprocess.run(command, input=text, cwd=folder, check=True, stdout=subprocess.PIPE, encoding="utf-8").stdout


def test_shipped_groups_and_splits_are_those_of_the_rule() -> None:
    code = (
        "import sys; from collections import Counter; from emoji_groups import group_of, split_of\n"
        "groups = {line: group_of(line) for line in sys.stdin.read().split()}\n"
        "sizes = Counter(groups.values())\n"
        "for item, group in groups.items(): print(item, group, split_of(group, sizes[group]))"
    )
    items = table("noto-emoji", "items.tsv")
    found = run_in_build_folder(code, "\n".join(item["item_id"] for item in items)).splitlines()
    assert found == [f"{item['item_id']} {item['group']} {item['split']}" for item in items]


@pytest.mark.needs("apertium")
def test_apertium_still_says_what_is_recorded() -> None:
    """Spanish only: a table that goes through Catalan repeats as a whole, which takes too long here."""
    if not shutil.which("dpkg-query"):
        pytest.skip("apertium is not installed from Debian packages")
    for entry in manifest("noto-emoji")["translations"][:2]:
        for package, version in (part.split(" ") for part in entry["version"].split("; ")):
            query = ["dpkg-query", "-W", "-f", "${Version}", package]
            if subprocess.run(query, capture_output=True, encoding="utf-8").stdout != version:
                pytest.skip(f"{package} {version} is not installed")
        recorded = translation("noto-emoji", entry["source"], entry["target"])
        sentences = list(recorded)[:300]
        mode = entry["command"].split()[-1]
        code = (
            "import sys; from apertium_pipe import translate\n"
            f"print('\\n'.join(translate(sys.stdin.read().splitlines(), ['{mode}'])))"
        )
        found = run_in_build_folder(code, "\n".join(sentences)).splitlines()
        assert found == [recorded[sentence] for sentence in sentences]


def test_rebuilds_byte_for_byte(tmp_path: Path) -> None:
    packages = os.environ.get(PACKAGES)
    if not packages:
        pytest.skip(f"{PACKAGES} does not name a folder with the four npm packages")
    for name in NAMES:  # what is recorded, not rebuilt
        (tmp_path / name).mkdir()
        shutil.copy(MANIFESTS / name / "manifest.toml", tmp_path / name)
        shutil.copytree(MANIFESTS / name / "translations", tmp_path / name / "translations")
    script = MANIFESTS / "build" / "build_emoji.py"
    subprocess.run(
        [sys.executable, "-B", str(script), "--packages", packages, "--out", str(tmp_path)],
        check=True,
        capture_output=True,
    )
    for name in NAMES:
        built, shipped = (
            {p.relative_to(root).as_posix(): p.read_bytes() for p in (root / name).rglob("*") if p.is_file()}
            for root in (tmp_path, MANIFESTS)
        )
        assert built == shipped
