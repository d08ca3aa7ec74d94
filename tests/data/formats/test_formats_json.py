"""Files of JSON in their official layouts, and what is said of those that are not."""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from ccr_cli.data.formats import base
from ccr_cli.data.formats.base import Record
from ccr_cli.data.formats.json_files import activitynet, coco, didemo, karpathy, msrvtt, vatex
from ccr_cli.errors import ArtifactError

OFFICIAL = Path(__file__).parents[2] / "fixtures" / "formats"
KARPATHY = "dataset_coco.json"
STAIR = "stair_captions_v1.2_val.json"
VATEX = "vatex_training_v1.0.json"
MSRVTT = "train_val_videodatainfo.json"
ACTIVITY = "activitynet_val_1.json"
DIDEMO = "didemo_test_data.json"
RAW = ("images", 1, "sentences", 0, "raw")
PICTURE = "COCO_val2014_000000990001.jpg"
CLIP = "-Qx7_abcd0A_000010_000020"
Reader = Callable[..., Iterator[Record]]
FILES: dict[str, Reader] = {
    KARPATHY: karpathy,
    STAIR: coco,
    VATEX: vatex,
    MSRVTT: msrvtt,
    ACTIVITY: activitynet,
    DIDEMO: didemo,
}


def changed(name: str, path: tuple[str | int, ...], value: Any, target: Path) -> Path:
    """A copy of an official file with one value replaced."""
    content = json.loads((OFFICIAL / name).read_text("utf-8"))
    at = content
    for step in path[:-1]:
        at = at[step]
    at[path[-1]] = value
    target.write_text(json.dumps(content), "utf-8")
    return target


def brief(records: Iterator[Record]) -> list[tuple[str, int | None, str]]:
    return [(r.item, r.k, r.text) for r in records]


# ---- official layouts


def test_karpathy() -> None:
    read = list(karpathy(OFFICIAL / "dataset_coco.json", item="cocoid"))
    assert read[1] == Record(
        item="990001",
        text="Somebody flies a kite",
        where="dataset_coco.json, images[0].sentences[1]",
        k=1,
        split="test",
        media="val2014/COCO_val2014_000000990001.jpg",
        caption_id="9",
    )
    assert [(r.item, r.k, r.split, r.text) for r in read] == [
        ("990001", 0, "test", "A red kite above a field."),
        ("990001", 1, "test", "Somebody flies a kite"),
        ("990007", 0, "restval", "Two cups on a shelf. "),
        ("990010", 0, "train", "An old tram"),
    ]
    read = list(karpathy(OFFICIAL / "dataset_flickr30k.json"))
    assert [(r.item, r.media, r.k, r.split) for r in read] == [
        ("9900000001.jpg", "9900000001.jpg", 0, "train"),
        ("9900000001.jpg", "9900000001.jpg", 1, "train"),
        ("9900000002.jpg", "9900000002.jpg", 0, "val"),
    ]


def test_coco() -> None:
    read = list(coco(OFFICIAL / "stair_captions_v1.2_val.json"))
    assert read[0] == Record(
        item="990007",
        text="棚にカップが二つある",
        where="stair_captions_v1.2_val.json, annotations[0]",
        media="COCO_val2014_000000990007.jpg",
        caption_id="31",
    )
    assert [(r.item, r.caption_id) for r in read] == [("990007", "31"), ("990001", "12"), ("990001", "13")]
    words = coco(OFFICIAL / "stair_captions_v1.2_val.json", text="tokenized_caption")
    assert next(words).text == "棚 に カップ が 二つ ある"


def test_coco_without_a_list_of_images(tmp_path: Path) -> None:
    path = tmp_path / "captions.json"
    path.write_text('{"annotations": [{"image_id": 5, "id": 1, "caption": "a"}]}')
    assert brief(coco(path)) == [("5", None, "a")]


def test_vatex() -> None:
    read = list(vatex(OFFICIAL / "vatex_training_v1.0.json", sets=True))
    assert len(read) == 40
    assert read[13] == Record(
        item="-Qx7_abcd0A_000010_000020",
        text="一个女人在削第3个苹果。",
        where="vatex_training_v1.0.json, [0].chCap[3]",
        lang="zh",
        k=3,
        caption_set="independent",
    )
    assert [r.k for r in read[:10]] == list(range(10)) and read[9].lang == "en"
    assert {(r.k, r.caption_set) for r in read if r.caption_set == "parallel"} == {
        (k, "parallel") for k in range(5, 10)
    }
    assert {r.caption_set for r in vatex(OFFICIAL / "vatex_training_v1.0.json")} == {""}
    assert {r.lang for r in vatex(OFFICIAL / "vatex_public_test_english_v1.1.json")} == {"en"}


def test_vatex_without_annotations_is_said(tmp_path: Path) -> None:
    path = tmp_path / "vatex_private_test_without_annotations.json"
    path.write_text('[{"videoID": "zz_Yy-12345_000003_000013"}]')
    with pytest.raises(ArtifactError, match=r"\[0\]: .*'zz_Yy-12345_000003_000013'.*enCap.*chCap"):
        list(vatex(path))


def test_msrvtt() -> None:
    read = list(msrvtt(OFFICIAL / "train_val_videodatainfo.json"))
    assert read[0] == Record(
        item="video1",
        text="a man folds a paper plane",
        where="train_val_videodatainfo.json, sentences[0]",
        split="train",
        caption_id="0",
        group="youtube:-Qx7_abcd0A",
    )
    assert [(r.item, r.split, r.group) for r in read[1:]] == [
        ("video0", "validate", "youtube:zz_Yy-12345"),
        ("video1", "train", "youtube:-Qx7_abcd0A"),
    ]


@pytest.mark.parametrize("url", [None, "", "https://example.org/watch?v=short", "https://youtu.be/-Qx7_abcd0AAA"])
def test_msrvtt_without_a_video_of_youtube_has_no_group(tmp_path: Path, url: str | None) -> None:
    path = changed("train_val_videodatainfo.json", ("videos", 0, "url"), url, tmp_path / "a.json")
    assert [r.group for r in msrvtt(path)] == ["", "youtube:zz_Yy-12345", ""]


def test_activitynet_joins_sentences() -> None:
    assert list(activitynet(OFFICIAL / "activitynet_val_1.json")) == [
        Record(
            item="v_-Qx7_abcd0A",
            text="A man paints a fence. He then washes the brush in a bucket.",
            where="activitynet_val_1.json, ['v_-Qx7_abcd0A']",
            k=0,
        ),
        Record("v_zz_Yy-12345", "Two girls dance.", "activitynet_val_1.json, ['v_zz_Yy-12345']", k=0),
    ]


def test_didemo_joins_descriptions() -> None:
    assert list(didemo(OFFICIAL / "didemo_test_data.json")) == [
        Record(
            item="99000000001@N01_9900000001_0a1b2c3d4e.mov",
            text="a bird lands on the roof the bird flies away",
            where="didemo_test_data.json, [0]",
            k=0,
            media="99000000001@N01_9900000001_0a1b2c3d4e.mov",
        ),
        Record(
            item="99000000002@N07_9900000002_ffee001122.avi",
            text="the train leaves",
            where="didemo_test_data.json, [1]",
            k=0,
            media="99000000002@N07_9900000002_ffee001122.avi",
        ),
    ]


# ---- what does not fit


@pytest.mark.parametrize("name", FILES)
def test_gzip_and_mark_of_order_make_no_difference(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.write_bytes(gzip.compress(b"\xef\xbb\xbf" + (OFFICIAL / name).read_bytes().replace(b"\n", b"\r\n"), mtime=0))
    assert list(FILES[name](path)) == list(FILES[name](OFFICIAL / name))


@pytest.mark.parametrize("name", FILES)
def test_a_file_that_is_cut_off_is_refused(tmp_path: Path, name: str) -> None:
    whole = (OFFICIAL / name).read_bytes()
    path = tmp_path / name
    for length in (0, 1, len(whole) // 3, len(whole) // 2, len(whole) - 4):
        path.write_bytes(whole[:length])
        with pytest.raises(ArtifactError, match=re.escape(str(path))) as caught:
            list(FILES[name](path))
        assert caught.value.hint
    path.write_bytes(gzip.compress(whole, mtime=0)[:-30])
    with pytest.raises(ArtifactError, match=re.escape(str(path))):
        list(FILES[name](path))


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("content", [[], {}, None, 3, "text", [1], [None], {"a": 1}, {"images": 1}, {"videos": {}}])
def test_another_layout_is_refused_or_empty(tmp_path: Path, name: str, content: object) -> None:
    path = tmp_path / name
    path.write_text(json.dumps(content))
    fits = (content == [] and name.startswith(("vatex", "didemo"))) or (content == {} and name.startswith("activ"))
    if fits:
        assert list(FILES[name](path)) == []
    else:
        with pytest.raises(ArtifactError, match=re.escape(str(path))):
            list(FILES[name](path))


@pytest.mark.parametrize(
    ("name", "place", "value", "message"),
    [
        (KARPATHY, RAW, float("nan"), r"images\[1\]\.sentences\[0\]\.raw: .*\bnan\b"),
        (KARPATHY, RAW, None, r"images\[1\]\.sentences\[0\]: .*'raw'.*'tokens'"),
        (KARPATHY, RAW, "half \ud83d", r"images\[1\]\.sentences\[0\]\.raw: .*ud83d"),
        (KARPATHY, RAW, "a\0b", r"images\[1\]\.sentences\[0\]\.raw: .*x00"),
        (KARPATHY, ("images", 0, "sentences"), {"raw": "a"}, r"images\[0\]\.sentences: .*'raw'"),
        (KARPATHY, ("images", 2, "filename"), ["a.jpg"], r"images\[2\]\.filename: .*'a\.jpg'"),
        (KARPATHY, ("images", 2, "filename"), " ", r"images\[2\]\.filename: "),
        (KARPATHY, ("images", 2, "split"), 3, r"images\[2\]\.split: .*\b3\b"),
        (KARPATHY, ("images", 2, "filename"), PICTURE, r"0001\.jpg'"),
        (KARPATHY, ("images", 2, "sentences", 0, "sentid"), 9, "'9'"),
        (STAIR, ("annotations", 2, "image_id"), 99, r"annotations\[2\]\.image_id: .*'99'"),
        (STAIR, ("annotations", 2, "id"), 31, r"annotations\[2\]\.id: .*'31'"),
        (STAIR, ("annotations", 2, "id"), 1.5, r"annotations\[2\]\.id: .*1\.5"),
        (STAIR, ("annotations", 2, "image_id"), True, r"annotations\[2\]\.image_id: .*True"),
        (STAIR, ("images", 1, "id"), 990001, r"images\[1\]\.id: .*'990001'"),
        (VATEX, (1, "videoID"), CLIP, r"\[1\]\.videoID: .*'-Qx7_.*'"),
        (VATEX, (1, "chCap", 7), 7, r"\[1\]\.chCap\[7\]: .*\b7$"),
        (VATEX, (1, "chCap"), "text", r"\[1\]\.chCap: .*'text'"),
        (MSRVTT, ("sentences", 1, "video_id"), "video7", r"sentences\[1\]\.video_id: .*'video7'"),
        (MSRVTT, ("sentences", 1, "sen_id"), 0, r"sentences\[1\]\.sen_id: .*'0'"),
        (MSRVTT, ("videos", 1, "video_id"), "video1", r"videos\[1\]\.video_id: .*'video1'"),
        (ACTIVITY, ("v_zz_Yy-12345", "sentences", 0), None, r"sentences\[0\]: .*null"),
        (ACTIVITY, ("v_zz_Yy-12345",), [], r"\['v_zz_Yy-12345'\]: .*\[\]"),
        (ACTIVITY, ("",), {"sentences": []}, r"\[''\]"),
        (DIDEMO, (2, "annotation_id"), 8, r"\[2\]\.annotation_id: .*'8'"),
        (DIDEMO, (2, "video"), None, r"\[2\]: .*'video'"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_said_with_its_place(
    tmp_path: Path, name: str, place: tuple[str | int, ...], value: Any, message: str
) -> None:
    path = changed(name, place, value, tmp_path / name)
    with pytest.raises(ArtifactError, match=message) as caught:
        list(FILES[name](path))
    assert str(path) in caught.value.message


def test_values_that_nobody_reads_may_be_anything(tmp_path: Path) -> None:
    path = changed("train_val_videodatainfo.json", ("videos", 0, "start time"), float("nan"), tmp_path / "a.json")
    assert len(list(msrvtt(path))) == 3


@pytest.mark.parametrize("name", FILES)
def test_other_files_are_no_json(tmp_path: Path, name: str) -> None:
    for content, message in (
        (b"[" * 200_000, "JSON"),
        (b'{"a":' * 200_000, "JSON"),
        (b"[1" + b"0" * 5000 + b"]", "JSON"),
        (b'{"v": {}, "v": {}}', "'v'"),
        (b'{"a": 1}\n{"a": 2}\n', "line 2"),
        ('{"a":\n "zwölf"}'.encode("latin-1"), r"line 2: .*UTF-8.*\b5\b"),
        ('{"a": 1}'.encode("utf-16"), r"line 1: .*UTF-8.*\b1\b"),
        (b"<html><title>404</title></html>", "line 1"),
    ):
        path = tmp_path / name
        path.write_bytes(content)
        with pytest.raises(ArtifactError, match=f"{re.escape(str(path))}.*{message}"):
            list(FILES[name](path))


def test_a_message_does_not_repeat_a_whole_file(tmp_path: Path) -> None:
    key = "key " * 10_000
    path = tmp_path / "a.json"
    for text in (
        json.dumps({"images": {key: list(range(10_000))}}),
        json.dumps({"images": [{"filename": key}, {"filename": "x", "split": "x", "sentences": []}] * 2}),
        json.dumps({key: 1}),
        f'{{"{key}": 1, "{key}": 2}}',
    ):
        path.write_text(text)
        with pytest.raises(ArtifactError) as caught:
            list(karpathy(path))
        assert len(caught.value.message) < 700
    path.write_text(json.dumps({key: []}))
    with pytest.raises(ArtifactError, match=r"\['key key") as caught:
        list(activitynet(path))
    assert len(caught.value.message) < 300


def test_a_gzip_of_more_than_any_json_is_not_read_to_its_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(base, "LARGEST_JSON", 2**20)
    path = tmp_path / "dataset.json"
    path.write_bytes(gzip.compress(b"[" + b" " * 2**20 + b"]", mtime=0))
    with pytest.raises(ArtifactError, match=r"dataset\.json .*\b1 MiB"):
        base.read_json(path)
    path.write_bytes(gzip.compress(b"[" + b" " * (2**20 - 2) + b"]", mtime=0))
    assert base.read_json(path).value == []


@pytest.mark.slow
def test_rows_that_repeat_are_read_only_as_far_as_the_size_allows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "rows.tsv.gz"
    path.write_bytes(gzip.compress(b"a\ta.jpg\ttrain\ten\tx\n" * 10**6, mtime=0))
    with pytest.raises(ArtifactError, match=r"rows\.tsv\.gz .*\b16 MiB") as caught:
        list(base.lines(path))
    assert caught.value.hint is not None
    monkeypatch.setattr(base, "SMALL_TEXT", 1000)
    path.write_bytes(gzip.compress("\n".join(map(str, range(10**5))).encode(), mtime=0))
    assert sum(1 for _ in base.lines(path)) == 10**5
