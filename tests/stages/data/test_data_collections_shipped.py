"""Every shipped manifest reads a few items in the official layout: what cannot fit its hashes and counts is partial."""

from __future__ import annotations

import gzip
import io
import json
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import toy
from official import lines

from ccr_cli.artifacts import dataset, translation

Files = Mapping[str, bytes]


def imported(name: str, files: Files, folder: Path) -> dataset.Dataset:
    """What an import makes of files; all that is wrong with them is said to be partial."""
    for path, data in files.items():
        (folder / "files" / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / "files" / path).write_bytes(data)
    call = ("data", "import", name, "--root", folder / "files", "--allow-partial")
    done = toy.ccr(*call, workspace=folder / "space")
    assert done.code in (0, 3), done.err
    read = dataset.read(done.made)
    for line in read.manifest.get("partial", []):
        assert "expected" in line or "missing" in line, line
    return read


def captions(read: dataset.Dataset, lang: str, item: str) -> list[tuple[int, str, str]]:
    """Number, set and text of an item's captions."""
    own = read.captions[(read.captions["lang"] == lang) & (read.captions["item_id"] == item)]
    return list(zip(own["k"], own["caption_set"], own["text"], strict=True))


def splits(read: dataset.Dataset) -> dict[str, str]:
    return dict(zip(read.items["item_id"], read.items["split"], strict=True))


def groups(read: dataset.Dataset) -> set[str]:
    return set(read.items["group"])


def dump(value: object) -> bytes:
    return json.dumps(value, ensure_ascii=False).encode()


def rows(*values: object) -> bytes:
    return b"".join(dump(value) + b"\n" for value in values)


def npy(*names: str) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, np.array(names))
    return buffer.getvalue()


def karpathy(*images: tuple[str, int, str, list[str]]) -> bytes:
    """Images of COCO: folder, number, split and captions."""
    made = []
    for folder, number, split, texts in images:
        sentences = [{"raw": text, "sentid": 100 * number + k} for k, text in enumerate(texts)]
        file = f"COCO_{folder}_{number:012d}.jpg"
        made.append({"filepath": folder, "filename": file, "cocoid": number, "split": split, "sentences": sentences})
    return dump({"images": made, "dataset": "coco"})


COCO = karpathy(
    ("train2014", 9, "train", ["a bowl", "a plate"]),
    ("val2014", 42, "restval", ["a dog"]),
    ("val2014", 73, "val", ["a bike"]),
    ("train2014", 101, "train", ["a train"]),
    ("val2014", 391895, "test", ["a man"]),
)


def test_flickr30k(tmp_path: Path) -> None:
    sentences = [{"raw": f"caption {k}", "tokens": [], "imgid": 0, "sentid": k} for k in range(5)]
    images = [{"filename": "1000092795.jpg", "split": "train", "sentences": sentences}]
    images.append({"filename": "1007129816.jpg", "split": "test", "sentences": [{"raw": "a hat", "sentid": 9}]})
    read = imported("flickr30k", {"dataset_flickr30k.json": dump({"images": images})}, tmp_path)
    assert splits(read) == {"1000092795.jpg": "train", "1007129816.jpg": "test"}
    assert captions(read, "en", "1000092795.jpg")[3] == (3, "flickr30k", "caption 3")
    assert groups(read) == {"flickr:1000092795", "flickr:1007129816"} and read.manifest["id_space"] == ["flickr"]
    assert list(read.captions["caption_id"]) == ["0", "1", "2", "3", "4", "9"]
    folder = "datasets/flickr30k/annotations"
    row = {"sentences": ["one", "two"], "id": "1007129816", "img_path": "1007129816.jpg"}
    other = imported("flickr30k-iglue", {f"{folder}/test_ann.jsonl": rows(row)}, tmp_path / "iglue")
    assert captions(other, "en", "1007129816.jpg") == [(0, "flickr30k", "one"), (1, "flickr30k", "two")]
    assert list(other.items["media"]) == ["1007129816.jpg"]


def test_mscoco(tmp_path: Path) -> None:
    read = imported("mscoco", {"dataset_coco.json": COCO}, tmp_path)
    file = "COCO_val2014_000000000042.jpg"
    assert splits(read)[file] == "train", "restval is trained on"
    assert list(read.items["split"]) == ["train", "train", "val", "train", "test"]
    assert dict(zip(read.items["item_id"], read.items["media"], strict=True))[file] == f"val2014/{file}"
    assert "coco:391895" in groups(read)
    assert {p["name"] for p in read.manifest["protocols"]} == {"coco-5k", "coco-1k-5fold", "coco-1k-single"}


def test_multi_mscoco_in_japanese(tmp_path: Path) -> None:
    notes = [{"id": n, "image_id": image, "caption": f"字幕 {n}"} for n, image in ((900, 391895), (901, 391895))]
    files = {"dataset_coco.json": COCO, "stair_captions_v1.2_val.json": dump({"annotations": notes})}
    files["stair_captions_v1.2_train.json"] = dump({"annotations": [{"id": 1, "image_id": 9, "caption": "丼"}]})
    read = imported("multi-mscoco", files, tmp_path)
    assert splits(read)["391895"] == "test" and len(read.items) == 5
    assert captions(read, "ja", "391895") == [(0, "stair", "字幕 900"), (1, "stair", "字幕 901")]
    assert captions(read, "en", "9") == [(0, "coco", "a bowl"), (1, "coco", "a plate")]
    assert dict(zip(read.captions["text"], read.captions["caption_id"], strict=True))["a bowl"] == "en:900"


def test_multi_mscoco_in_chinese_keeps_to_the_lists_of_coco_cn(tmp_path: Path) -> None:
    folder = "coco-cn-version1805v1.1"
    files = {
        "dataset_coco.json": COCO,
        f"{folder}/coco-cn_val.txt": lines("COCO_val2014_000000391895"),
        f"{folder}/coco-cn_test.txt": lines("COCO_train2014_000000000101"),
        f"{folder}/imageid.human-written-caption.txt": lines(
            "COCO_train2014_000000000101#0\t火车",
            "COCO_train2014_000000000009#0\t碗",
            "COCO_val2014_000000000073#0\t车",
        ),
        f"{folder}/imageid.manually-translated-caption.txt": lines(
            "COCO_train2014_000000000101#0\t一列火车", "COCO_train2014_000000000101#1\t列车"
        ),
    }
    read = imported("multi-mscoco-zh", files, tmp_path)
    assert splits(read) == {"391895": "val", "101": "test", "9": "train", "42": "train"}, "73 is Karpathy's validation"
    assert captions(read, "zh", "101") == [
        (0, "human", "火车"),
        (0, "translated", "一列火车"),
        (1, "translated", "列车"),
    ]
    assert captions(read, "zh", "9") == [(0, "human", "碗")]
    assert dict(zip(read.items["item_id"], read.items["media"], strict=True))["101"].startswith("train2014/")
    sets = {p["name"]: p["caption_set"] for p in read.manifest["protocols"]}
    assert sets == {"coco-cn-1k-human": "human", "coco-cn-1k-translated": "translated"}


VATEX = {
    f"vatex_{part}_v1.0.json": dump(
        [
            {"videoID": n, "enCap": [f"{n} {k}" for k in range(10)], "chCap": [f"视频 {n} {k}" for k in range(10)]}
            for n in names
        ]
    )
    for part, names in (
        ("training", ["-xGskbsBgI0_000055_000065"]),
        ("validation", [f"{c * 11}_000001_000011" for c in "abcd"]),
    )
}


def test_vatex(tmp_path: Path) -> None:
    a, b, c, d = (f"{c * 11}_000001_000011" for c in "abcd")
    lists = {"public_split/val_names.npy": npy(d, b), "public_split/tst_names.npy": npy(c, a)}
    lists["public_split/trn_names.npy"] = npy("-xGskbsBgI0_000055_000065")
    read = imported("vatex", {**VATEX, **lists}, tmp_path)
    assert list(read.items["item_id"])[1:] == [d, b, c, a], "in the order of the lists"
    assert splits(read)[a] == "test" and splits(read)[d] == "val"
    chinese = captions(read, "zh", a)
    assert chinese[4] == (4, "independent", f"视频 {a} 4") and chinese[5] == (5, "parallel", f"视频 {a} 5")
    assert read.manifest["parallel"] == {"parallel": "parallel"} and "youtube:-xGskbsBgI0" in groups(read)
    assert set(read.items["kind"]) == {"video"}
    refused = toy.ccr("data", "import", "vatex", "--root", tmp_path / "files", workspace=tmp_path / "space")
    assert refused.code == 4 and "57,319,458 bytes expected" in refused.err


def test_vatex_in_halves_of_its_own(tmp_path: Path) -> None:
    read = imported("vatex-halves-seed0", VATEX, tmp_path)
    assert read.name == "vatex-halves-seed0"
    assert sorted(read.items["split"]) == ["test", "test", "train", "val", "val"]
    other = imported("vatex-halves-seed0", VATEX, tmp_path / "again")
    assert splits(other) == splits(read), "the same halves everywhere"


def test_msrvtt(tmp_path: Path) -> None:
    def info(*names: str, split: str) -> bytes:
        videos = [
            {"video_id": n, "split": split, "url": f"https://www.youtube.com/watch?v={n[-1] * 11}"} for n in names
        ]
        said = [{"sen_id": 10 * int(n[5:]) + k, "video_id": n, "caption": f"{n} {k}"} for k in (0, 1) for n in names]
        return dump({"videos": videos, "sentences": said})

    files = {
        "train_val_videodatainfo.json": info("video1", "video2", split="train"),
        "test_videodatainfo.json": info("video7", "video8", split="test"),
        "MSRVTT_JSFUSION_test.csv": lines("key,vid_key,video_id,sentence", 'ret0,msr8,video8,"one, given"'),
    }
    lists = {"train_list_full": "video1", "val_list_full": "video2", "test_list_full": "video7"}
    lists |= {"train_list_jsfusion": "video7", "val_list_jsfusion": "video8", "train_list_miech": "video2"}
    lists |= {"test_list_miech": "video7"}
    files |= {f"misc/datasets/msrvtt/{name}.txt": lines(video, end="") for name, video in lists.items()}
    full = imported("msrvtt", files, tmp_path)
    assert splits(full) == {"video1": "train", "video2": "val", "video7": "test"}
    assert captions(full, "en", "video7") == [(0, "msrvtt", "video7 0"), (1, "msrvtt", "video7 1")]
    assert "youtube:77777777777" in groups(full)
    first = imported("msrvtt-1ka", files, tmp_path / "1ka")
    assert splits(first) == {"video7": "train", "video8": "test"}
    assert captions(first, "en", "video8") == [(0, "jsfusion", "one, given")], "its other captions are no queries"
    assert len(captions(first, "en", "video7")) == 2
    assert splits(imported("msrvtt-1kb", files, tmp_path / "1kb")) == {"video2": "train", "video7": "test"}
    chinese = {**files, "TextData/msrvttcntest_zh.caption.txt": lines("video8#zh#0 给定的", end="")}
    read = imported("msrvtt-cn", chinese, tmp_path / "cn")
    assert captions(read, "zh", "video8") == [(0, "msrvtt-cn", "给定的")]
    assert read.manifest["parallel"] == {"msrvtt-cn": "jsfusion"} and groups(read) == groups(first)


def test_msvd(tmp_path: Path) -> None:
    names = {"train": "-4wsuPCjDBc_5_15", "val": "abcdefghijk_1_2", "test": "abcdefghijk_7_9"}
    files = {f"misc/datasets/msvd/{split}_list.txt": lines(name) for split, name in names.items()}
    files["raw-captions.jsonl"] = rows(*({"item_id": n, "text": [f"{n} one", "two"]} for n in names.values()))
    read = imported("msvd", files, tmp_path)
    assert splits(read) == {name: split for split, name in names.items()}
    assert captions(read, "en", names["train"])[1] == (1, "msvd", "two")
    done = toy.ccr(
        "data", "import", "msvd", "--root", tmp_path / "files", "--allow-partial", workspace=tmp_path / "space"
    )
    assert "1 groups of msvd lie in more than one split, e.g. 'youtube:abcdefghijk'" in done.err


def test_activitynet(tmp_path: Path) -> None:
    said = {"duration": 82.7, "timestamps": [[0, 9], [9, 20]], "sentences": ["A woman stands. ", " She runs."]}
    files = {
        "train.json": dump({"v_QOlSCBRmfWY": said, "v_notinlist01": said}),
        "val_1.json": dump({"v_uqiMw7tQ1Cc": said}),
    }
    files["misc/datasets/activity-net/train_list.txt"] = lines("v_QOlSCBRmfWY")
    files["misc/datasets/activity-net/val_1_list.txt"] = lines("v_uqiMw7tQ1Cc")
    read = imported("activitynet", files, tmp_path)
    assert splits(read) == {"v_QOlSCBRmfWY": "train", "v_uqiMw7tQ1Cc": "test"}
    assert captions(read, "en", "v_uqiMw7tQ1Cc") == [(0, "paragraph", "A woman stands. She runs.")]


def test_didemo(tmp_path: Path) -> None:
    names = {split: f"35034348999@N01_60604475{n}7_dc1a90b8ef.mov" for n, split in enumerate(("train", "val", "test"))}
    files = {f"misc/datasets/didemo/{split}_list.txt": lines(name, end="") for split, name in names.items()}
    for split, name in names.items():
        said = [{"annotation_id": f"{split}{n}", "video": name, "description": f"part {n}"} for n in range(2)]
        files[f"data/{split}_data.json"] = dump(
            [*said, {"annotation_id": "x", "video": "1_2_3.avi", "description": "no"}]
        )
    read = imported("didemo", files, tmp_path)
    assert list(read.items["split"]) == ["train", "val", "test"]
    stem = names["test"].removesuffix(".mov")
    assert captions(read, "en", stem) == [(0, "paragraph", "part 0 part 1")]
    assert "flickr:6060447527" in groups(read) and list(read.items["media"]) == list(names.values())


def test_cc152k(tmp_path: Path) -> None:
    files = {f"cc152k_precomp/{s}_caps.tsv": lines(f'{s}_1\ta "quoted dog') for s in ("train", "dev", "test")}
    read = imported("cc152k", files, tmp_path)
    assert splits(read) == {"train_1": "train", "dev_1": "val", "test_1": "test"}
    assert captions(read, "en", "dev_1") == [(0, "cc152k", 'a "quoted dog')]
    urls = {"cc152k/test_caps_img_urls.csv": lines("1102_11\tlittle boy, smiling\thttps://example.org/1.jpg")}
    other = imported("cc152k-urls", urls, tmp_path / "urls")
    assert captions(other, "en", "1102_11") == [(0, "cc152k", "little boy, smiling")]
    assert "id_space" not in other.manifest and groups(other) == {"1102_11"}


def test_flickr30k_cn(tmp_path: Path) -> None:
    def folder(name: str) -> tuple[str, str]:
        return f"{name}/ImageSets/{name}.txt", f"{name}/TextData/seg.{name}.caption.txt"

    train, val, test = map(folder, ("flickr30kzhbbosontrain", "flickr30kzhbbosonval", "flickr30kzhmbosontest"))
    english = [f"{n}.jpg#{k}\tEnglish {n} {k}" for n in (11, 22, 33) for k in (0, 1)]
    files = {
        train[0]: lines("11"), val[0]: lines("22"), test[0]: lines("33"), "results_20130124.token": lines(*english),
        train[1]: lines("11#zhb#0 一个 男孩  在 跑", "11#zhb#1 男孩"), val[1]: lines("22#zhb#0 狗"),
        test[1]: lines("33#zhm#0 一:m 只:q 狗:n", "33#zhm#1 狗:n"),
    }  # fmt: skip
    read = imported("flickr30k-cn", files, tmp_path)
    assert splits(read) == {"11": "train", "22": "val", "33": "test"} and "flickr:33" in groups(read)
    assert captions(read, "zh", "33") == [(0, "translated", "一只狗"), (1, "translated", "狗")]
    assert captions(read, "zh", "11") == [], "machine translations are no captions"
    table = read.artifact.file("translations/baidu-en-zh.tsv").read_text(encoding="utf-8").splitlines()
    assert table[1:] == ["English 11 0\t一个男孩\uff0c在跑", "English 11 1\t男孩", "English 22 0\t狗"]


def test_xtd10(tmp_path: Path) -> None:
    files = {"XTD10/test_image_names.txt": lines("COCO_train2014_000000000101.jpg", "COCO_val2014_000000000042.jpg")}
    for lang in ("en", "es", "it", "ko", "pl", "ru", "tr", "zh"):
        files[f"XTD10/test_1kcaptions_{lang}.txt"] = lines(f"{lang} 1", f"{lang} 2", end="")
    files |= {f"MIC/test_1kcaptions_{lang}.txt": lines(f"{lang} 1", f"{lang} 2") for lang in ("de", "fr")}
    files["STAIR/test_1kcaptions_jp.txt"] = lines("日本 1", "日本 2", end="")
    read = imported("xtd10", files, tmp_path)
    assert set(read.items["split"]) == {"test"} and len(read.languages()) == 11
    assert captions(read, "ja", "COCO_train2014_000000000101.jpg") == [(0, "stair", "日本 1")]
    assert captions(read, "de", "COCO_val2014_000000000042.jpg") == [(0, "mic", "de 2")]


def test_leaks_of_xtd10_into_coco_are_found_by_number(tmp_path: Path) -> None:
    imported("mscoco", {"dataset_coco.json": COCO}, tmp_path)
    names = lines("COCO_train2014_000000000101.jpg", "COCO_val2014_000000000042.jpg", "COCO_val2014_000000391895.jpg")
    files = {"XTD10/test_image_names.txt": names, "XTD10/test_1kcaptions_en.txt": lines("a", "b", "c")}
    for path, data in files.items():
        (tmp_path / "xtd" / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "xtd" / path).write_bytes(data)
    call = ("data", "import", "xtd10", "--root", tmp_path / "xtd", "--allow-partial")
    done = toy.ccr(*call, workspace=tmp_path / "space")
    assert "2 of 3 test groups of xtd10 are training data in mscoco, e.g. 'coco:101'" in done.err


def test_crossmodal_3600(tmp_path: Path) -> None:
    said = {"caption": ["eine Stadt", "Häuser"], "caption/tokenized": [["eine"], ["H"]]}
    row = {"image/key": "000411001ff7dd4f", "image/locale": "de", "de": said, "quz": {"caption": ["llaqta"]}}
    read = imported("crossmodal-3600", {"captions.jsonl": rows(row)}, tmp_path)
    assert captions(read, "de", "000411001ff7dd4f") == [(0, "xm3600", "eine Stadt"), (1, "xm3600", "Häuser")]
    assert read.languages() == ["de", "quz"] and groups(read) == {"openimages:000411001ff7dd4f"}
    assert list(read.items["media"]) == ["000411001ff7dd4f.jpg"]


def test_xflickrco(tmp_path: Path) -> None:
    def test_rows(word: str) -> bytes:
        flickr = {"sentences": [f"{word} 1"], "id": "1007129816", "img_path": "1007129816.jpg"}
        return rows(flickr, {"sentences": [f"{word} 2"], "id": 391895, "img_path": "COCO_val2014_000000391895.jpg"})

    langs = ("en", "de", "es", "id", "ja", "ru", "tr", "zh")
    files = {f"datasets/xFlickrCO/annotations/{lang}/test.jsonl": test_rows(lang) for lang in langs}
    read = imported("xflickrco", files, tmp_path)
    assert groups(read) == {"flickr:1007129816", "coco:391895"} and len(read.languages()) == 8
    assert captions(read, "tr", "COCO_val2014_000000391895.jpg") == [(0, "xflickrco", "tr 2")]
    refused = toy.ccr("data", "verify", "xflickrco", "--root", tmp_path)
    assert refused.code == 4 and "datasets/xFlickrCO/annotations/de/test.jsonl: missing" in refused.err


def test_multi30k_without_its_hashes(tmp_path: Path) -> None:
    """Task 2 relates languages by item alone; French and Czech are task 1's."""
    files = {
        f"data/task{n}/image_splits/{s}.txt": lines("1.jpg", "2.jpg") for n, s in ((1, "train"), (2, "train_images"))
    }
    for lang in ("en", "de", "fr", "cs"):
        files[f"data/task1/raw/train.{lang}.gz"] = gzip.compress(lines(f"{lang} 1", f"{lang} 2"), mtime=0)
    for lang in ("en", "de"):
        files |= {f"data/task2/raw/train.{n}.{lang}.gz": lines(f"{lang} 1 {n}", f"{lang} 2 {n}") for n in range(1, 6)}
    first = imported("multi30k", files, tmp_path)
    assert captions(first, "cs", "2.jpg") == [(0, "task1", "cs 2")] and first.manifest["parallel"] == {"task1": "task1"}
    second = imported("multi30k-task2", files, tmp_path / "second")
    assert captions(second, "de", "1.jpg") == [(k, "task2", f"de 1 {k + 1}") for k in range(5)]
    assert captions(second, "fr", "1.jpg") == [(0, "task1", "fr 1")] and "parallel" not in second.manifest


def test_flickr8k_cn_with_four_machines(tmp_path: Path) -> None:
    names = {"train": "11_ab", "val": "22_cd", "test": "33_ef"}
    every = [f"{name}.jpg#{{}}#{k} {{}} {name} {k}" for name in (*names.values(), "44_ff") for k in range(2)]

    def said(tag: str, word: str) -> bytes:
        return lines(*(line.format(tag, word) for line in every))

    files = {f"data/flickr8k{split}.txt": lines(name) for split, name in names.items()}
    files["data/flickr8kenc.caption.txt"] = said("enc", "a picture of")
    files["data/flickr8kzhc.caption.txt"] = said("zhc", "图")
    files["data/flickr8kzhmtest.captions.txt"] = lines("33_ef.jpg#zhm#0 译 0", "33_ef.jpg#zhm#1 译 1")
    files["data/flickr8kzhb.caption.txt"] = said("zhb", "百度")
    files["data/flickr8kzhb.caption.txt.v20160815"] = said("zhb", "百度 8")
    files["data/flickr8kzhg.caption.txt"] = said("zhg", "谷歌")
    files["data/flickr8kzhg.caption.txt.v20160816"] = said("zhg", "谷歌 8")
    read = imported("flickr8k-cn", files, tmp_path)
    assert splits(read) == {name: split for split, name in names.items()}, "the fourth picture is in no list"
    expected = [
        (0, "human", "图 33_ef 0"),
        (1, "human", "图 33_ef 1"),
        (0, "translated", "译 0"),
        (1, "translated", "译 1"),
    ]
    assert captions(read, "zh", "33_ef") == expected and read.manifest["parallel"] == {"translated": "flickr8k"}
    engines = {"baidu-2016": "百度", "baidu-20160815": "百度 8", "google-2016": "谷歌", "google-20160816": "谷歌 8"}
    for engine, word in engines.items():
        call = ("translate", read.artifact.path, "--lang", "zh", "--engine", "recorded", "--set", f"engine={engine}")
        done = toy.ok(*call, workspace=tmp_path / "space")
        assert set(translation.read(done.made)["text"]) == {
            f"{word} {name} {k}" for name in names.values() for k in (0, 1)
        }
    wrong = {**files, "data/flickr8kzhc.caption.txt": files["data/flickr8kzhb.caption.txt"]}
    swapped = imported("flickr8k-cn", wrong, tmp_path / "swapped")
    (tagged,) = [line for line in swapped.manifest["partial"] if "the tag is 'zhb', expected 'zhc'" in line]
    assert tagged.startswith("data/flickr8kzhc.caption.txt: ")
