"""ccr search."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TextIO

import typer

from ccr_cli import console
from ccr_cli.commands import common as c
from ccr_cli.errors import UsageError

if TYPE_CHECKING:
    from ccr_cli.stages.search.stage import Answer, Searcher


@c.guarded
def search(
    query: Annotated[
        str | None,
        typer.Argument(
            help="What to look for, in a language that the run was trained on; with --image or --queries left out.",
            show_default=False,
        ),
    ] = None,
    artifacts: c.Artifacts = None,
    image: Annotated[
        Path | None,
        typer.Option("--image", help="Search with a picture, by the encoder of the run's features."),
    ] = None,
    queries: Annotated[
        Path | None,
        typer.Option("--queries", help="Search with every line of a text file; `-` is standard input."),
    ] = None,
    find: c.Find = None,
    lang: c.SearchedLang = None,
    split: c.SearchedSplit = None,
    index: c.ByIndex = False,
    top: Annotated[int, typer.Option("--top", min=1, help="Results.")] = 5,
    sheet: Annotated[
        Path | None,
        typer.Option("--sheet", help="Write the results with their pictures to a file, .html or .png."),
    ] = None,
    open_: Annotated[
        bool, typer.Option("--open", help="Show that file, without --sheet a temporary one, in the browser.")
    ] = False,
    device: c.Device = "auto",
    workspace: c.WorkspaceOption = Path("."),
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object a query, a line each.")] = False,
    quiet: c.Quiet = False,
    verbose: c.Verbose = 0,
) -> None:
    """Search a run's items, or their captions, with words or a picture.

    Prints the best ones with similarity and the query's uncertainty: a table on a terminal, else TSV. What is
    searched is embedded once and kept in the workspace's folder .cache.
    """
    c.setup(quiet, verbose)
    if image is not None or queries is not None:
        if query not in (None, "-") and not any(Path(folder, str(query)).exists() for folder in (".", workspace)):
            other = "--image" if image is not None else "--queries"
            raise UsageError(f"{query!r} and {other}: one of them is searched with, and {query!r} is no artifact")
        artifacts, query = [*([] if query is None else [query]), *(artifacts or [])], None
    if (query is None) + (image is None) + (queries is None) != 2:
        raise UsageError("search with words, --image or --queries, one of them", hint='ccr search "gato"')
    if queries == Path("-") and "-" in (artifacts or []):
        raise UsageError("standard input brings artifacts or queries, not both")
    if sheet is not None and sheet.suffix not in (".html", ".png"):
        raise UsageError(f"--sheet writes .html or .png, not {sheet.name!r}")
    inputs = c.inputs_from(workspace, artifacts)
    with ExitStack() as stack:
        lines = None if queries is None else _lines(_opened(queries, stack), queries)
        from ccr_cli.stages.search.choice import choose

        searcher = choose(inputs, split=split, find=find, lang=lang, device=device, index=index)
        if image is not None:
            answers: Iterable[Answer] = iter([searcher.file(image, top)])
        elif lines is not None:
            answers = searcher.texts(lines, top)
        else:
            answers = searcher.texts([query or ""], top)
        kept = list(_printed(answers, json, many=queries is not None))
    _say_doubts(kept)
    if sheet is not None or open_:
        _show_sheet(kept, searcher, sheet, open_)


def _say_doubts(answers: list[Answer]) -> None:
    """Says on which scale an uncertainty is, and which queries mean nothing to the text encoder."""
    if any(answer.uncertainty is not None for answer in answers):
        console.say("uncertainty is of the query: from 0 to 1, higher is more doubt", style="dim")
    lost = [answer.query for answer in answers if not answer.known]
    if lost:
        shown = ", ".join(map(repr, lost[:5])) + (", ..." if len(lost) > 5 else "")
        several = f"{len(lost)} of {len(answers)} queries ({shown}) {'has' if len(lost) == 1 else 'have'}"
        which = f"{shown}: it has" if len(answers) == 1 else several
        console.warn(f"{which} no word that the text encoder was trained on, so what is found means little")


def _opened(path: Path, stack: ExitStack) -> TextIO:
    """A file of queries, open, before anything is loaded that searches."""
    try:
        return sys.stdin if path == Path("-") else stack.enter_context(path.open(encoding="utf-8"))
    except FileNotFoundError:
        raise UsageError(f"there is no file {path}") from None
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}") from None


def _lines(stream: TextIO, path: Path) -> Iterator[str]:
    """The queries of a file, a line each; empty lines are none."""
    try:
        yield from (line.strip() for line in stream if line.strip())
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise UsageError(f"{path} is not UTF-8") from None


_COLUMNS = ("place", "similarity", "item", "caption", "image", "uncertainty")


def _printed(answers: Iterable[Answer], as_json: bool, *, many: bool) -> Iterator[Answer]:
    """Prints answers as they come; of many, each row begins with its query."""
    header = [*(["query"] if many else []), *_COLUMNS]
    for number, answer in enumerate(answers):
        if many and not (number or as_json or sys.stdout.isatty()):
            print("\t".join(header))
        if as_json:
            c.show_json(facts(answer))
        else:
            unsure = "" if answer.uncertainty is None else f"{answer.uncertainty:.3f}"
            rows: list[tuple[object, ...]] = [
                (h.place, f"{h.similarity:.3f}", h.item_id, h.caption, h.image or "", unsure) for h in answer.hits
            ]
            if sys.stdout.isatty() or not many:
                c.show_table(_COLUMNS, rows, title=answer.query)
            else:
                for row in rows:
                    print("\t".join(console.plain(str(cell)) for cell in (answer.query, *row)))
        sys.stdout.flush()
        yield answer


def facts(answer: Answer) -> dict[str, Any]:
    """An answer as JSON."""
    hits = [
        {k: v for k, v in vars(h).items() if v is not None or k == "image"}
        | {"image": str(h.image) if h.image else None}
        for h in answer.hits
    ]
    asked = "image" if answer.picture else "query"
    return {asked: answer.query, "uncertainty": answer.uncertainty, "known": answer.known, "hits": hits}


def _show_sheet(answers: list[Answer], searcher: Searcher, path: Path | None, open_: bool) -> None:
    from ccr_cli.stages.search.sheet import write_sheet

    made = write_sheet(answers, searcher, path)
    console.say(f"  the sheet: {made}")
    if open_:
        import webbrowser

        if not webbrowser.open(made.absolute().as_uri()):
            console.warn(f"no browser opens here; look at {made}")


EPILOG = c.examples(
    'ccr search "una cara sonriente"',
    'ccr search "chat" runs/noto-emoji-fr-uml-seed0 --top 10 --split all --json',
    'ccr search "gato" --top 20 --open',
    "ccr search --image cat.jpg --find captions --lang es",
    "ccr search --queries words.txt --json > answers.jsonl",
)
