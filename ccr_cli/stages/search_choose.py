"""Which run is searched with, over what, by which index: from what was given on a command line."""

from __future__ import annotations

from collections.abc import Callable

from ccr_cli.artifacts import base
from ccr_cli.errors import UsageError
from ccr_cli.stages.search import Searcher, Wanted, languages, searched_by
from ccr_cli.stages.select import Inputs, made_from, require_parent


def chosen_run(inputs: Inputs, lang: str | None) -> base.Artifact:
    """Takes the run that was given, or the workspace's, that knows a language."""

    def knows(run: base.Artifact) -> bool:
        return lang in languages(inputs.workspace, run)

    fits: Callable[[base.Artifact], bool] = knows if lang else lambda run: True
    return inputs.one("run", f"that knows {lang}" if lang else "", fits, hint="ccr train --method uml")


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
        found = inputs.one("index", f"of {run.name}", made_from(run), hint=f"ccr index {run.path}")
    require_parent(found, run)
    own = searched_by(found, device)
    asked = {"--split": (split, own.split or "all"), "--find": (find, own.find)}
    if own.find == "captions":
        asked["--lang"] = (lang, own.lang or "any language")
    for option, (value, there) in asked.items():
        if value not in (None, there):
            raise UsageError(f"{found.path} is of {there}, not of {option} {value}", hint="leave one of them out")
    if lang and lang not in languages(inputs.workspace, run):
        raise UsageError(f"{run.name} does not know {lang}")
    return Searcher(inputs, run, own, found)
