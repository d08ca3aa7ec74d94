"""The queries of an evaluation: human captions, machine-translated captions, or a table of the user's."""

from collections import Counter
from pathlib import Path, PurePosixPath

import pandas as pd

from ccr_cli.artifacts import translation
from ccr_cli.artifacts.dataset import Dataset
from ccr_cli.artifacts.signature import NONE
from ccr_cli.console import say, warn
from ccr_cli.data.formats.base import Record, stem
from ccr_cli.data.formats.layout import look
from ccr_cli.data.languages import usual
from ccr_cli.data.protocols import Protocol
from ccr_cli.errors import ArtifactError, CcrError, UsageError, did_you_mean
from ccr_cli.stages.shared.splits import Split

COLUMNS = "name the columns text and item; with several languages also lang"


def captions_of(split: Split, lang: str, protocol: Protocol) -> pd.DataFrame:
    """The human captions of a split in a language, as far as a protocol uses them."""
    return protocol.take(split.captions_in(lang))


def machine_captions(split: Split, translations: pd.DataFrame | None, lang: str) -> pd.DataFrame:
    """The machine-translated captions of a split; caption set and `k` are those of the captions they were made from."""
    source = split.captions_in(split.data.source_lang)
    if translations is None or lang == split.data.source_lang:
        return source.iloc[:0]
    made = translation.translated(translations[translations["lang"] == lang])
    made = made.drop_duplicates("source_caption_id").set_index("source_caption_id")
    source = source[source["caption_id"].isin(made.index)].reset_index(drop=True)
    ids, texts = (made.loc[source["caption_id"], name].to_numpy() for name in ("caption_id", "text"))
    return source.assign(caption_id=ids, text=texts, lang=lang)


def read_queries(path: Path, split: Split, langs: tuple[str, ...], trained: tuple[str, ...]) -> pd.DataFrame:
    """Reads a table of queries: each is a text, with the item that answers it and perhaps its language.

    Args:
        path: A table whose columns are guessed as by `ccr data import`; it names items by id or by picture.
        split: The split that is searched.
        langs: The languages of `--lang`; other rows are left out.
        trained: The languages of the run; queries without a language are in the only one of `langs`, else of these.

    Returns:
        The columns of a data set's captions, in the order of the file, without queries for items outside the split.

    Raises:
        UsageError: If the file does not exist, or does not name its languages.
        ArtifactError: If it is damaged or empty, or no query is left.
    """
    if not path.is_file():
        meant = did_you_mean(str(path), ("human", "mt", "both"))
        raise UsageError(f"--queries {path}: there is no such file", f"{meant}--queries human, mt, both, or a table")
    try:
        layout = look(path)
        records = list(layout.records())
    except CcrError as error:
        error.hint = COLUMNS if "--columns" in (error.hint or "") else error.hint
        raise
    for note in layout.notes:
        say(note.partition("; otherwise")[0])
    item_of = _items_by_name(split.data)
    split_of = dict(zip(split.data.items["item_id"], split.data.items["split"], strict=True))
    searched, lang_of = set(split.items["item_id"]), langs or trained
    rows, elsewhere, unknown = [], Counter[str](), list[Record]()
    for number, record in enumerate(records, 1):
        name = record.item or record.media
        item = item_of.get(name) or item_of.get(stem(name))
        if item is None:
            unknown.append(record)
            continue
        if not record.lang and len(lang_of) > 1:
            problem = f"{record.where} names no language, and there are several: {', '.join(lang_of)}"
            raise UsageError(problem, hint=f"--lang {lang_of[0]}, or a column lang")
        lang, text = usual(record.lang) if record.lang else lang_of[0], record.text.strip()
        if text and item in searched:
            rows.append((f"query-{number}", item, lang, text))
        elif text:
            elsewhere[split_of[item]] += 1
    frame = pd.DataFrame(rows, columns=["caption_id", "item_id", "lang", "text"])
    others = [f"{count} of {other} items" for other, count in elsewhere.items()]
    if unknown:
        first = f"{unknown[0].item or unknown[0].media!r} in {unknown[0].where}"
        others.append(f"{len(unknown)} of items that {split.data.name} does not have, the first {first}")
    if others:
        message = f"{path.name}: queries for items outside {split.name} are left out: {', '.join(others)}"
        if frame.empty:
            ids = f"an item_id, such as {next(iter(split_of))!r}, or the name of a picture"
            raise ArtifactError(
                f"{message}; none is left", hint="--split all searches every item" if elsewhere else ids
            )
        warn(f"{message}; --split all has them" if elsewhere else message)
    if frame.empty:
        raise ArtifactError(f"{path} has no queries", hint=COLUMNS)
    known = {*lang_of, split.data.source_lang}
    if not langs and (strange := sorted(set(frame["lang"]) - known)):
        problem = f"{path.name} has queries in {', '.join(strange)}, and the run was trained for {', '.join(trained)}"
        raise UsageError(problem, hint=f"--lang {strange[0]} to try them; other rows are then left out")
    if langs and (absent := sorted(set(langs) - set(frame["lang"]))):
        has = ", ".join(sorted(set(frame["lang"])))
        raise ArtifactError(f"{path.name} has no queries in {', '.join(absent)}", hint=f"it has: {has}")
    frame = frame[frame["lang"].isin(langs)] if langs else frame
    return frame.assign(caption_set=NONE, k=frame.groupby(["lang", "item_id"]).cumcount())


def _items_by_name(data: Dataset) -> dict[str, str]:
    """Items by their id, by the path of their picture, and by its file name where that is unique."""
    media = data.items[data.items["media"].notna()]
    names = Counter(PurePosixPath(path).name for path in media["media"])
    by_path = dict(zip(media["media"], media["item_id"], strict=True))
    by_name = {name: item for path, item in by_path.items() if names[name := PurePosixPath(path).name] == 1}
    return by_name | by_path | {item: item for item in data.items["item_id"]}
