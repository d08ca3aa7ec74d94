"""ccr search."""

from __future__ import annotations

import os
import sys
import webbrowser
from collections.abc import Iterable, Iterator
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ccr_cli import console
from ccr_cli.commands import common as c
from ccr_cli.errors import ArtifactError, UsageError, no_file
from ccr_cli.stages.search.options import QueryOptions, SearchOptions, require_picture, require_text
from ccr_cli.stages.shared.options import option

if TYPE_CHECKING:
    from ccr_cli.stages.search.stage import Answer


@c.guarded
def search(
    query: Annotated[
        str | None,
        typer.Argument(
            help="Text to search for, in a language that the run was trained on; not with --image or --query-file.",
            show_default=False,
        ),
    ] = None,
    *,
    picture: QueryOptions,
    queries: Path | None = option(
        None, "Search with every line of a text file; `-` reads standard input.", "--query-file", was="--queries"
    ),
    options: SearchOptions,
    sheet: Path | None = option(None, "Write the results with their pictures to a .html or .png file."),
    open_: bool = option(False, "Open the sheet in the browser (a temporary one without --sheet).", "--open"),
    json: bool = option(False, "Print one JSON object per query, one per line."),
    call: c.Call,
) -> None:
    """Search a run's items, or their captions, with words or a picture.

    Prints the best results with their similarity and, if the run has validation items to fit it to, the probability
    that they are right: a table on a terminal, else TSV. The vectors of the searched items are computed once and cached
    in the workspace's folder .cache.
    """
    image, named = picture.image, None
    if image is not None or queries is not None:
        named, query = query, None
        call = replace(call, artifacts=[*filter(None, [named]), *(call.artifacts or [])])
    if (query is None) + (image is None) + (queries is None) != 2:
        raise UsageError("search with words, --image or --query-file: exactly one of them", hint='ccr search "gato"')
    if queries == Path("-") and "-" in (call.artifacts or []):
        raise UsageError("standard input cannot bring both artifacts and queries")
    if sheet is not None and sheet.suffix not in (".html", ".png"):
        raise UsageError(f"--sheet writes .html or .png, not {sheet.name!r}")
    try:
        inputs = call.inputs()
    except ArtifactError as error:
        if query is not None and call.artifacts and "-" not in call.artifacts and " " not in query:
            quoted = f"{error.hint}; a query of several words is in quotes: ccr search '{query} {call.artifacts[0]}'"
            raise ArtifactError(error.message, quoted) from None
        if named in (None, "-"):
            raise
        problem = f"search with words, --image or --query-file, one of them: {error.message}"
        raise UsageError(problem, error.hint) from None
    if image is not None:
        require_picture(image)
    if queries is not None and queries != Path("-") and not queries.exists():
        raise no_file(queries)
    from ccr_cli.stages.search.stage import answers, for_sheet, open_searcher, warn_of_unknown

    searcher = open_searcher(inputs, options)
    texts = [query or ""] if queries is None else _lines(queries)
    printed = list(_printed(answers(searcher, image or texts, picture.top), json, many=queries is not None))
    warn_of_unknown(printed)
    if sheet is not None or open_:
        from ccr_cli.report.page import contact_sheet

        path = contact_sheet.write(sheet, *for_sheet(printed, searcher))
        console.say(f"  the sheet: {path}")
        if open_ and not webbrowser.open(path.absolute().as_uri()):
            console.warn(f"cannot open a browser here; the sheet is {path}")


def _lines(path: Path) -> Iterator[str]:
    """The queries of a file (`-` is standard input), one per line; empty lines are skipped."""
    name, hint = "standard input" if path == Path("-") else path, "iconv -f ISO-8859-1 -t UTF-8 FILE"
    try:
        with nullcontext(sys.stdin) if path == Path("-") else path.open("r", -1, "utf-8", "surrogateescape") as stream:
            for number, line in enumerate(stream, 1):
                if text := require_text(line, f"line {number} of {name}", hint).removeprefix("\ufeff").strip():
                    yield text
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}") from None


_COLUMNS = ("place", "similarity", "item", "caption", "image", "probability")


def _printed(answers: Iterable[Answer], as_json: bool, *, many: bool) -> Iterator[Answer]:
    """Prints answers as they come; with several queries, each row begins with its query."""
    near = sys.stdout.isatty()
    one_table = many and not near
    columns = (*["query"] * one_table, *_COLUMNS)
    for number, answer in enumerate(answers):
        if as_json:
            c.show_json(facts(answer))
        else:
            rows: list[tuple[object, ...]] = [
                (
                    *[answer.query] * one_table,
                    h.place,
                    f"{h.similarity:.3f}",
                    h.item_id,
                    h.caption,
                    (os.path.relpath(h.image) if near and h.image else h.image) or "",
                    "" if h.probability is None else f"{h.probability:.3f}",
                )
                for h in answer.hits
            ]
            c.show_table(columns, rows, title=answer.query, heading=not (one_table and number))
        sys.stdout.flush()
        yield answer


def facts(answer: Answer) -> dict[str, Any]:
    """An answer as JSON."""
    hits = [
        {k: v for k, v in vars(h).items() if v is not None or k == "image"}
        | {"image": str(h.image) if h.image else None}
        for h in answer.hits
    ]
    key = "image" if answer.picture else "query"
    return {key: answer.query, "uncertainty": answer.uncertainty, "known": answer.known, "hits": hits}


EPILOG = c.examples(
    'ccr search "una cara sonriente"',
    'ccr search "chat" runs/noto-emoji-fr-uml-seed0 --top 10 --split all --json',
    'ccr search "gato" --top 20 --open',
    "ccr search --image cat.jpg --find captions --lang es",
    "ccr search --query-file words.txt --json > answers.jsonl",
)
