"""Which run is searched with, over what, by which index: from what was given on a command line."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from ccr_cli.artifacts import base
from ccr_cli.errors import UsageError
from ccr_cli.stages.search.stage import Searcher, Wanted, languages, searched_by
from ccr_cli.stages.shared.inputs import Inputs, made_from, require_parent


def chosen_run(inputs: Inputs, lang: str | None) -> base.Artifact:
    """Takes the run that was given, or the workspace's, that knows a language."""

    def knows(run: base.Artifact) -> bool:
        return lang in languages(inputs.workspace, run)

    fits: Callable[[base.Artifact], bool] = knows if lang else lambda run: True
    hint = f"ccr translate --lang {lang} | ccr train - --method uml" if lang else "ccr train --method uml"
    return inputs.one("run", f"that knows {lang}" if lang else "", fits, hint=hint)


def choose(
    inputs: Inputs,
    *,
    split: str | None = None,
    find: str | None = None,
    lang: str | None = None,
    device: str = "auto",
    index: bool = False,
) -> Searcher:
    """Opens what was asked for.

    Args:
        inputs: May have a run, an index, a data set.
        split: Items of it, `all` for all; None: the index's, else `test`.
        find: `items` or `captions`; None: what the index finds, else items.
        lang: A language that the run shall know; of captions that are searched.
        device: `auto`, `cpu` or `cuda`.
        index: Search by the workspace's index of the run, where none was given.

    Raises:
        ArtifactError: If there is no such run, or index.
        UsageError: If an index is of something else.
    """
    given = [a for a in inputs.given if a.kind == "index"]
    if not (given or index):
        wanted = Wanted(None if split == "all" else split or "test", find or "items", lang, device)
        return Searcher(inputs, chosen_run(inputs, lang), wanted)
    if given and not any(a.kind == "run" for a in inputs.given):
        found = inputs.one("index", "")
        run = inputs.parent(found, "run")
    else:
        run = chosen_run(inputs, lang)

        def fits(index: base.Artifact) -> bool:
            return made_from(run)(index) and (bool(given) or not any(_others(index, split, find, lang)))

        options = {"--split": split, "--find": find, "--lang": lang if find == "captions" else None}
        told = " ".join(f"{option} {value}" for option, value in options.items() if value)
        what = " with ".join([f"of {run.name}", *([told] if told else [])])
        found = inputs.one("index", what, fits, hint=f"ccr index {run.path} {told}".rstrip())
    require_parent(found, run)
    for option, value, there in _others(found, split, find, lang):
        raise UsageError(f"{found.path} is of {there}, not of {option} {value}", hint="leave one of them out")
    if lang and lang not in languages(inputs.workspace, run):
        raise UsageError(f"{run.name} does not know {lang}")
    return Searcher(inputs, run, searched_by(found, device), found)


def _others(
    index: base.Artifact, split: str | None, find: str | None, lang: str | None
) -> Iterator[tuple[str, str, str]]:
    """The options that ask for something else than an index is of: name, value, and what the index is of."""
    own = searched_by(index)
    asked = [("--split", split, own.split or "all"), ("--find", find, own.find)]
    if own.find == "captions":
        asked.append(("--lang", lang, own.lang or "any language"))
    yield from ((option, value, there) for option, value, there in asked if value not in (None, there))
