"""The manifests of collections: the shipped ones are of the schema, and broken ones are named with file and key."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from ccr_cli.data import collections, toml
from ccr_cli.data.formats import formats, reader
from ccr_cli.data.manifests import bundled, bundled_root
from ccr_cli.errors import ArtifactError, UsageError

CHECKOUT = Path(__file__).resolve().parents[2]
SHIPPED = collections.variants()
COLLECTIONS = {
    "activitynet", "cc152k", "crossmodal-3600", "didemo", "flickr30k", "flickr30k-cn", "flickr8k-cn", "inria-websearch",
    "mscoco", "msrvtt", "msrvtt-cn", "msvd", "multi-mscoco", "multi30k", "nus-wide-10k", "pascal", "vatex", "wikipedia",
    "xflickrco", "xmedianet", "xtd10",
}  # fmt: skip

SMALL = """
name = "small"
title = "Small"
kind = "image"
source_lang = "en"
query_langs = ["de"]
source_url = "https://example.org"
get = "Ask."
licence = "CC0-1.0"
citation = "Nobody. 2020."
description = "Two pictures."
id_space = ["coco"]

[evidence]
counts = "verified"
splits = "verified"
captions = "verified"
licence = "documented"
citation = "memory"

[[ids]]
pattern = 'COCO_0*(?P<id>\\d+)\\.jpg'
space = "coco"

[[variants]]
name = "one"
title = "the first"
counts.items = { train = 2 }

[[variants]]
name = "two"
title = "the other"
counts.items = { train = 2 }
query_langs = ["cs"]

[[files]]
path = "a/train.en"
role = "captions"
format = "parallel"
options = { ids = "a/train.txt" }
split = "train"
lang = "en"
lines = 2
evidence = "verified"

[[protocols]]
name = "small-2"
variants = ["one"]
split = "test"
note = "Both."
evidence = "documented"
"""


def write(folder: Path, text: str, name: str = "small") -> Path:
    path = folder / f"{name}.toml"
    path.write_text(text, encoding="utf-8")
    return path


def test_every_collection_of_the_field_is_there() -> None:
    assert {variant.collection for variant in SHIPPED.values()} == COLLECTIONS
    assert not set(SHIPPED) & set(bundled())


@pytest.mark.parametrize("name", SHIPPED)
def test_a_shipped_manifest_is_whole(name: str) -> None:
    variant = SHIPPED[name]
    paths = {spec.path for spec in variant.files}
    sets = {spec.caption_set for spec in variant.files if spec.role == "captions"} | {"independent", "parallel"}
    langs = {spec.lang for spec in variant.files if spec.role == "captions" and spec.lang}
    for spec in variant.files:
        named = {str(spec.options[key]) for key in spec.path_options()}
        assert named <= paths, "a list that is not itself a file of the collection is never checked"
        assert spec.role != "captions" or spec.lang or spec.format in ("vatex", "jsonl")
    assert variant.counts["items"] and langs <= set(variant.langs)
    for protocol in variant.protocols:
        assert protocol.get("caption_set", "independent") in sets
        assert set(protocol.get("langs", [])) <= set(variant.langs)
        assert protocol["split"] in variant.counts["items"]
    assert {*variant.parallel, *variant.parallel.values()} <= sets
    spaces = {space for _, space in variant.ids if space}
    assert spaces <= set(variant.about.get("id_space", []))


def test_protocols_have_one_meaning_each() -> None:
    found: dict[str, dict[str, object]] = {}
    for variant in SHIPPED.values():
        for protocol in variant.protocols:
            meaning = {key: value for key, value in protocol.items() if key != "variants"}
            assert found.setdefault(protocol["name"], meaning) == meaning
    expected = {"coco-5k", "coco-1k-5fold", "coco-1k-single", "coco-cn-1k-human", "coco-cn-1k-translated", "f30k-1k"}
    expected |= {"msrvtt-1ka", "msrvtt-1kb", "msrvtt-full", "msvd-multi", "multi30k-task1", "multi30k-task2"}
    assert expected | {"vatex-hgr", "vatex-halves-seed0", "xtd10-1k"} <= set(found)


@pytest.mark.parametrize(
    ("name", "official", "item", "group"),
    [
        ("multi30k", "1000092795.jpg", "1000092795.jpg", "flickr:1000092795"),
        ("multi30k-test2017", "22439193117_4183a49ec2.jpg", "22439193117_4183a49ec2.jpg", "flickr:22439193117"),
        ("multi30k-test2017-coco", "COCO_train2014_000000117071.jpg#367178", None, "coco:117071"),
        ("flickr8k-cn", "1000268201_693b08cb0e.jpg", "1000268201_693b08cb0e", "flickr:1000268201"),
        ("mscoco", "COCO_val2014_000000391895.jpg", None, "coco:391895"),
        ("multi-mscoco", "391895", "391895", "coco:391895"),
        ("multi-mscoco-zh", "COCO_train2014_000000000101", "101", "coco:101"),
        ("vatex", "-xGskbsBgI0_000055_000065", None, "youtube:-xGskbsBgI0"),
        ("msvd", "-4wsuPCjDBc_5_15", None, "youtube:-4wsuPCjDBc"),
        ("activitynet", "v_QOlSCBRmfWY", None, "youtube:QOlSCBRmfWY"),
        ("didemo", "1@N01_6060447507_dc1a90b8ef.mov", "1@N01_6060447507_dc1a90b8ef", "flickr:6060447507"),
        ("crossmodal-3600", "000411001ff7dd4f", None, "openimages:000411001ff7dd4f"),
        ("xflickrco", "1007129816.jpg", None, "flickr:1007129816"),
    ],
)
def test_official_ids_are_kept_and_grouped(name: str, official: str, item: str | None, group: str) -> None:
    from ccr_cli.data.assemble import Assembly

    named = Assembly(SHIPPED[name], lambda path: None).name(official)
    assert (named.item, named.group) == (item or official, group)


def test_variants_are_found_by_name_the_default_by_two(tmp_path: Path) -> None:
    write(tmp_path, SMALL)
    write(tmp_path, SMALL.replace('"small"', '"small-one-more"'), "small-one-more")
    assert list(collections.variants(tmp_path)) == ["small-one-more", "small-one-more-two", "small", "small-two"]
    for name, short in (("small", "one"), ("small-one", "one"), ("small-two", "two")):
        found = collections.find(name, tmp_path)
        assert found is not None and (found.collection, found.short) == ("small", short)
    more = collections.find("small-one-more", tmp_path)
    assert more is not None and more.collection == "small-one-more"
    assert collections.find("smaller", tmp_path) is None and collections.find("small-three", tmp_path) is None
    other = collections.variants(tmp_path)["small-two"]
    assert other.langs == ("en", "cs") and other.protocols == ()
    with pytest.raises(ArtifactError, match="'small-one-more'"):
        write(tmp_path, SMALL.replace('"two"', '"one-more"'))
        collections.variants(tmp_path)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('name = "small"', "name = small", "is not valid TOML"),
        ('name = "small"', 'name = "other"', "is one of small, not 'other'"),
        ('title = "Small"\n', "", "small.toml lacks the key 'title'"),
        ('title = "Small"', "title = 7", "small.toml: 'title' is a text, not 7"),
        ('kind = "image"', 'kind = "sound"', "kind is one of image, video, features, not 'sound'"),
        ('kind = "image"', 'kind = "image"\ncolour = "red"', "small.toml: there is no key 'colour'"),
        ('query_langs = ["de"]', 'query_langs = ["German!"]', "'German!' is not a language tag"),
        ('query_langs = ["de"]', 'query_langs = "de"', "'query_langs' is a list of texts"),
        ('counts = "verified"', 'counts = "sure"', "evidence.counts is one of verified, documented, memory"),
        ('citation = "memory"\n', "", "evidence.citation is one of"),
        (r"(?P<id>\d+)", r"(?P<id>\d+", "pattern 'COCO_0*"),
        (r"(?P<id>\d+)", r"\d+", "has no group (?P<id>...)"),
        ('space = "coco"', 'space = "flickr"', "[[ids]] space of"),
        ('name = "two"', 'name = "one"', "each of the [[variants]] has a name of its own"),
        ("train = 2 }\n\n[[variants]]", 'train = "2" }\n\n[[variants]]', "counts of one: 'items' is a table of whole"),
        ("train = 2 }\n\n[[variants]]", "dev = 2 }\n\n[[variants]]", "counts.items of one is one of train, val, test"),
        ("counts.items = { train = 2 }\n\n[[variants]]", "\n[[variants]]", "[[variants]] 1 lacks the key 'counts'"),
        ('title = "the other"', 'title = "x"\nhalve = { split = "val" }', "halve of two has the keys split and seed"),
        ('title = "the other"', 'title = "x"\nhalve = { split = "dev", seed = 1 }', "a split of two is one of"),
        ('title = "the other"', 'title = "x"\nunlisted = ["dev"]', "a split of two is one of train, val, test"),
        ('title = "the other"', 'title = "x"\nvalidation = "none"', "validation of two is one of hash"),
        ('lang = "en"\nlines', 'lang = "en"\nkeep = ["dev"]\nlines', "split of a/train.en is one of train"),
        ('role = "captions"', 'role = "features"', "format of a/train.en is one of labelled, svcl"),
        ('role = "captions"', 'role = "caption"', "role of a/train.en is one of captions, ids"),
        ('format = "parallel"', 'format = "pickle"', "format of a/train.en is one of"),
        ("{ ids =", "{ list =", "an option of a/train.en is one of ids"),
        ('split = "train"\nlang', 'split = "dev"\nlang', "split of a/train.en is one of"),
        ("lines = 2", 'lines = "2"', "[[files]] 1: 'lines' is a whole number, not '2'"),
        ('lines = 2\nevidence = "verified"', "lines = 2", "evidence of a/train.en is one of"),
        ("lines = 2", 'sha256 = "12"', "sha256 of a/train.en is 64 digits"),
        ('"a/train.en"', '"../train.en"', "leads out of the folder"),
        ('variants = ["one"]', 'variants = ["three"]', "variants of small-2 is one of one, two"),
        (
            'note = "Both."',
            'positives = "none"\nnote = "Both."',
            "positives of the protocol 'small-2' is one of all, single",
        ),
        ('counts = "verified"', 'counts = "verified"\nread = 2026-01-31', "small.toml: 'evidence' is a table of texts"),
        ('title = "Small"', "title = 12:30:00", "small.toml: 'title' is a text"),
        ('counts = "verified"', 'counts = "verified"\nread = "yes"', "a key of [evidence] is one of counts, splits"),
        ('"a/train.en"', '""', "the path of a file is that of a file, not ''"),
        ('"a/train.en"', '"."', "the path of a file is that of a file, not '.'"),
        ('{ ids = "a/train.txt" }', "{ ids = 7 }", "option 'ids' of a/train.en is a text, not 7"),
        ('role = "captions"\nformat = "parallel"', 'role = "splits"', None),
        ('split = "train"\nlang = "en"\nlines', 'lang = "en"\nlines', None),
        ('role = "captions"', 'role = "translations"', "needs the keys source, target and engine"),
    ],
)
def test_what_is_wrong_is_named(old: str, new: str, message: str | None, tmp_path: Path) -> None:
    assert SMALL.count(old) >= 1
    path = write(tmp_path, SMALL.replace(old, new, 1))
    if message is None:
        assert len(collections.read(path)) == 2
        return
    with pytest.raises(ArtifactError) as caught:
        collections.read(path)
    assert message in caught.value.message and path.name in caught.value.message


@pytest.mark.parametrize(
    ("option", "wanted"),
    [
        ("columns = 7", r"'columns' .*a/train\.en .*\b7$"),
        ("columns = [1]", r"'columns' .*a/train\.en .*\[1\]$"),
        ("header = { text = 1 }", r"'header' .*a/train\.en .*{'text': 1}$"),
        ("quoted = 1", r"'quoted' .*a/train\.en .*\b1$"),
        ("delimiter = true", r"'delimiter' .*a/train\.en .*\bTrue$"),
        ('columns = ["item_id", "text"], quoted = false, delimiter = "tab"', None),
        ('header = { item_id = "a", text = "b" }', None),
    ],
)
def test_an_option_is_of_its_type(option: str, wanted: str | None, tmp_path: Path) -> None:
    text = SMALL.replace('format = "parallel"', 'format = "captions-csv"')
    path = write(tmp_path, text.replace('{ ids = "a/train.txt" }', f"{{ {option} }}"))
    if wanted is None:
        assert len(collections.read(path)) == 2
        return
    with pytest.raises(ArtifactError, match=rf"small\.toml: .*{wanted}"):
        collections.read(path)


def test_a_list_of_a_split_says_of_which(tmp_path: Path) -> None:
    text = SMALL.replace('role = "captions"\nformat = "parallel"', 'role = "splits"')
    with pytest.raises(ArtifactError, match=r"a/train\.en .*\bsplit$"):
        collections.read(write(tmp_path, text.replace('split = "train"\nlang', "lang")))


def test_formats_are_found_in_their_folder() -> None:
    assert {"captions-csv", "karpathy", "coco", "jsonl", "hashtag", "vatex", "parallel"} <= set(formats())
    assert not {"base", "read-ids", "labelled"} & set(formats())
    with pytest.raises(UsageError) as caught:
        reader("pickle")
    assert "'pickle'" in caught.value.message


def test_toml_is_read_back_as_it_was() -> None:
    content = {
        "text": 'a "quoted" \\ line\nbreak, \x7f, \x00, 一只狗, \U0001f600',
        "numbers": [1, -2, 0.5],
        "yes": True,
        "nested": {"items": {"train": 3}, "two words": ["a", {"b": 1}]},
        "empty": {},
        "tables": [{"name": "one", "langs": []}, {"name": "two", "deep": {"x": False}}],
        "after": "a table",
    }
    assert tomllib.loads(toml.dumps(content)) == content
    with pytest.raises(TypeError, match="None"):
        toml.dumps({"nothing": None})


def test_the_page_is_made_of_the_manifests(tmp_path: Path) -> None:
    made = tmp_path / "datasets.md"
    script = CHECKOUT / "data_manifests" / "build" / "datasets_page.py"
    subprocess.run([sys.executable, script, "--out", made], check=True, cwd=CHECKOUT)
    text = made.read_text(encoding="utf-8")
    assert text == (CHECKOUT / "docs" / "datasets.md").read_text(encoding="utf-8"), f"run {script.name} again"
    for variant in SHIPPED.values():
        assert f"|`{variant.name}`|" in text
        assert all(f"`{protocol['name']}`" in text for protocol in variant.protocols)


def test_nothing_is_called_better_known_than_it_is() -> None:
    for variant in SHIPPED.values():
        lists = [spec for spec in variant.files if spec.role == "splits"]
        if variant.evidence["splits"] == "verified":
            assert all(spec.sha256 for spec in lists), f"{variant.name}: nobody has read its lists"
        if variant.evidence["counts"] == "memory":
            known = [spec.path for spec in variant.files if spec.lines is not None and not spec.sha256]
            assert not known, f"{variant.name}: where the counts are from memory, so are these lines"
    memory = {
        fact: {v.collection for v in SHIPPED.values() if v.evidence[fact] == "memory"} for fact in collections.FACTS
    }
    assert {"cc152k", "flickr30k-cn"} <= memory["counts"] and {"flickr30k-cn", "vatex"} <= memory["splits"]
    assert "multi-mscoco" in memory["licence"] and SHIPPED["flickr30k"].evidence["splits"] == "documented"


def test_the_docs_name_the_collections_without_validation_items() -> None:
    text = " ".join((CHECKOUT / "docs" / "data.md").read_text(encoding="utf-8").split())
    drawn = [f"`{name}`" for name, variant in sorted(SHIPPED.items()) if variant.validation]
    assert f"{' and '.join(drawn)} have no validation rows" in text


def test_manifests_lie_where_the_package_finds_them() -> None:
    assert {path.stem for path in bundled_root().glob("*.toml")} == COLLECTIONS
