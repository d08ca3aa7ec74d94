"""The cache of translations: what was written is read, whoever wrote it and however it ended."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ccr_cli.errors import ArtifactError
from ccr_cli.stages.translate.steps import TranslationCache, normal
from ccr_cli.translators.base import Translation

IDENTITY = {"engine": "hf", "model": "someone/tiny", "revision": "1234", "num_beams": 1}
ODD = ["", " ", "a\nb\tc", '"quoted" \\n', "\x00\x1b[31m", "\u202egnp", "\U0001f600", "\ud800", "{}", "[1, 2]", "null"]


def cache(root: Path, **changes: object) -> TranslationCache:
    return TranslationCache(root, {**IDENTITY, **changes}, "en", "es")


def written(root: Path, entries: dict[str, Translation]) -> Path:
    """Writes entries as a process would; returns its file."""
    before = set(root.glob("*/*.jsonl"))
    writer = cache(root)
    for text, result in entries.items():
        writer.write(text, result)
    writer.close()
    (made,) = set(root.glob("*/*.jsonl")) - before
    return made


def test_what_was_written_is_read(tmp_path: Path) -> None:
    entries = {
        text: Translation(f"{text} es", score) for text, score in zip(ODD, [None, -0.1, -1 / 3] * 4, strict=False)
    }
    written(tmp_path, entries)
    assert cache(tmp_path).read([*ODD, "unknown"]) == entries
    assert cache(tmp_path).read(["a\nb\tc"]) == {"a\nb\tc": entries["a\nb\tc"]}


def test_nothing_is_there_before_something_is_written(tmp_path: Path) -> None:
    empty = cache(tmp_path / "nowhere")
    assert empty.read(["a"]) == {}
    empty.close()
    assert not (tmp_path / "nowhere").exists()


def test_another_engine_or_pair_is_another_question(tmp_path: Path) -> None:
    written(tmp_path, {"a dog": Translation("un perro")})
    others = [cache(tmp_path, revision="5678"), cache(tmp_path, num_beams=4), cache(tmp_path, more=None)]
    others += [TranslationCache(tmp_path, IDENTITY, "en", "pt"), TranslationCache(tmp_path, IDENTITY, "es", "en")]
    assert len({other.folder for other in [cache(tmp_path), *others]}) == 6
    assert all(other.read(["a dog"]) == {} for other in others)
    reordered = TranslationCache(tmp_path, dict(reversed(IDENTITY.items())), "en", "es")
    assert reordered.read(["a dog"]) == {"a dog": Translation("un perro")}


def test_one_sentence_in_two_forms_of_unicode_is_one() -> None:
    assert normal("cafe\u0301") == normal("caf\u00e9") == "caf\u00e9"


@pytest.mark.slow
@settings(max_examples=50, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(
    made=st.dictionaries(
        st.text(), st.tuples(st.text(min_size=1), st.floats(allow_nan=False) | st.none()), min_size=1, max_size=6
    ),
    data=st.data(),
)
def test_a_file_cut_off_anywhere_loses_the_torn_line_alone(
    made: dict[str, tuple[str, float | None]], data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    root = tmp_path_factory.mktemp("cut")
    entries = {text: Translation(*result) for text, result in made.items()}
    path = written(root, entries)
    whole = path.read_bytes()
    length = data.draw(st.integers(0, len(whole)))
    path.write_bytes(whole[:length])
    complete = dict(list(entries.items())[: whole[:length].count(b"\n")])
    assert cache(root).read(entries) == complete
    later = {text: Translation("later") for text in entries}
    written(root, later)
    assert cache(root).read(entries) == later | complete, "who comes next adds what is missing"


@pytest.mark.parametrize("junk", [b"\xff\xfe\n", b"\0" * 500, b"key [\n", b" \n\n", b'["a", "b"]\n'])
def test_junk_is_passed_over(junk: bytes, tmp_path: Path) -> None:
    entries = {"a dog": Translation("un perro", -0.5), "a cat": Translation("un gato")}
    path = written(tmp_path, entries)
    first, second = path.read_bytes().splitlines(keepends=True)
    key = first.split(b" ")[0]
    bad = [b' ["a"]\n', b" 7\n", b' ["a", "b"]\n', b" [null, null]\n", b' {"a": 1, "b": 2}\n', b" ...\n"]
    path.write_bytes(junk + b"\n" + b"".join(key + line for line in bad) + first + junk + b"\n" + second)
    assert cache(tmp_path).read(entries) == entries


def test_the_first_to_write_is_right(tmp_path: Path) -> None:
    """As it was in the artifacts that were made of it."""
    for number in range(3):
        written(tmp_path, {"a dog": Translation(f"perro {number}")})
    assert cache(tmp_path).read(["a dog"]) == {"a dog": Translation("perro 0")}


WRITER = """
import sys
from pathlib import Path
from ccr_cli.stages.translate.steps import TranslationCache
from ccr_cli.translators.base import Translation
cache = TranslationCache(Path(sys.argv[1]), {"engine": "x"}, "en", "es")
for number in range(400):
    cache.write(f"{sys.argv[2]} {number}", Translation("x" * number, -float(number)))
    cache.write(f"shared {number}", Translation("same"))
"""


def test_many_processes_write_at_once(tmp_path: Path) -> None:
    processes = [subprocess.Popen([sys.executable, "-c", WRITER, tmp_path, name]) for name in "abc"]
    assert [process.wait() for process in processes] == [0, 0, 0]
    own = {f"{name} {n}": Translation("x" * n, -float(n)) for name in "abc" for n in range(400)}
    shared = {f"shared {n}": Translation("same") for n in range(400)}
    reader = TranslationCache(tmp_path, {"engine": "x"}, "en", "es")
    assert reader.read([*own, *shared]) == own | shared
    assert len(list(reader.folder.glob("*.jsonl"))) == 3 and (reader.folder / "question.json").is_file()
    assert not list(reader.folder.glob(".*"))


@pytest.mark.parametrize("place", ["file", "file/below", "/proc/nowhere"])
def test_a_place_where_no_cache_can_be(place: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ArtifactError, match=re.escape(str(tmp_path / place))) as caught:
        cache(tmp_path / place).write("a", Translation("b"))
    assert "--cache DIR" in (caught.value.hint or "")
