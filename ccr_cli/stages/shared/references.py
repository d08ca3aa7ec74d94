"""The artifact that a word on the command line means: a path, a name or a prefix of it, `latest`, or `best:METRIC`."""

import os
import re
import shlex
import unicodedata
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from ccr_cli.artifacts import base, run
from ccr_cli.artifacts.base import FOLDERS, RECORD
from ccr_cli.artifacts.build import unfinished
from ccr_cli.artifacts.label import ORACLE
from ccr_cli.artifacts.signature import MT
from ccr_cli.artifacts.workspace import Workspace
from ccr_cli.console import counted, say, warn
from ccr_cli.errors import ArtifactError, UsageError, did_you_mean, nearest

LATEST, BEST = "latest", "best:"
LOW_IS_GOOD = ("MedR", "MeanR")
"""Last parts of the names of figures where lower is better."""
_COUNTS = ("dropped", "queries")
_SHOWN = 10


def common_home(words: Sequence[str]) -> Path | None:
    """The workspace of the artifacts whose paths are among the words; None unless there is exactly one."""
    paths = (Path(os.path.abspath(word)) for word in words if (Path(word) / RECORD).is_file())
    homes = {base.home(path) for path in paths}
    return homes.pop() if len(homes) == 1 else None


def find(workspace: Workspace, word: str, kinds: Sequence[str] = ()) -> Path:
    """Returns the folder of the one artifact that a word means; the rest as for `find_all`."""
    (path,) = find_all(workspace, word, kinds, many=False)
    return path


def find_all(workspace: Workspace, word: str, kinds: Sequence[str] = (), *, many: bool = True) -> list[Path]:
    """Returns the folders of the artifacts that a word means; several only for a name or prefix that fits several.

    A path is relative to the current folder, else to the workspace. A name may lack the folder of its kind, and a
    unique prefix is enough. `latest` is the newest artifact of `kinds`; these kinds are also preferred where several
    artifacts fit, the first kind most. `best:METRIC` is the run with the best figure on validation.

    Raises:
        ArtifactError: If nothing fits, or several artifacts do without `many`.
        UsageError: If the word is a number, as in a list of values without commas.
    """
    for path in (Path(word), workspace.root / word):
        if (path / RECORD).is_file():
            return [path]
    if word == LATEST:
        return [_latest(workspace, kinds)]
    if word.startswith(BEST):
        return [_best(workspace, word.removeprefix(BEST))]
    text = unicodedata.normalize("NFKC", word).strip("/")
    places = [(kind, path, path.relative_to(workspace.root).parts) for kind, path in workspace.places()]
    for matches in (str.__eq__, str.startswith):
        for start in (-1, 1, 0):  # the name, with the data set (`mine/es-apertium`), with the folder of its kind
            fitting = [(k, path) for k, path, parts in places if text and matches("/".join(parts[start:]), text)]
            preferred = ([path for kind, path in fitting if kind == first] for first in kinds)
            paths = next(filter(None, preferred), [path for _, path in fitting])
            if len(paths) > 1 and not many:
                raise ArtifactError(f"{word!r} means several artifacts", hint=f"name one: {_listed(workspace, paths)}")
            if len(paths) > 1 or (paths and matches is str.startswith):
                say(f"{word}: {_listed(workspace, paths)}")
            if paths:
                return paths
    raise _unknown(workspace, word, kinds)


def _latest(workspace: Workspace, kinds: Sequence[str]) -> Path:
    artifacts = [a for kind in kinds or FOLDERS for a in workspace.artifacts(kind)]
    if not artifacts:
        raise ArtifactError(
            f"there is no {' or '.join(kinds) or 'artifact'} in {workspace.root}", hint="ccr data import FILE"
        )

    def made(artifact: base.Artifact) -> tuple[str, int]:
        return str(artifact.about.get("created") or ""), (artifact.path / RECORD).stat().st_mtime_ns

    newest = max(artifacts, key=made)
    say(f"{LATEST}: {workspace.relative(newest.path)}")
    return newest.path


def _best(workspace: Workspace, metric: str) -> Path:
    """The run with the best figure on validation, at the epoch that was kept.

    Stale runs, and runs whose judge knows the truth, are left out.
    """
    figures: dict[str, list[tuple[float, str, Path]]] = {}
    known: set[str] = set()
    artifacts = workspace.artifacts()
    stale = workspace.stale(artifacts)
    for trained in artifacts:
        if trained.kind == "run" and trained.id in stale:
            warn(f"{trained.name} is left out, because its data was rebuilt since; {trained.rebuild_hint()}")
        if trained.kind != "run" or trained.id in stale or trained.request.get("judge") == ORACLE:
            continue
        history = run.history(trained)
        kept = history.loc[history["epoch"] == trained.counts["best_epoch"]].dropna(axis="columns")
        columns = {str(name).removeprefix("val."): kept[name] for name in kept if str(name).startswith("val.")}
        own = {name.lower(): name for name in columns if not name.startswith("langs.") and not name.endswith(_COUNTS)}
        known |= set(own.values())
        if name := own.get(metric.lower()):
            value, (queries, key) = float(columns[name].iloc[0]), _queries(workspace, trained)
            order = -value if name.endswith(LOW_IS_GOOD) else value
            words = f"{workspace.relative(trained.path)}: {name} {value:.1f} on validation ({queries}"
            figures.setdefault(key, []).append((order, words, trained.path))
    if not metric:
        names = f"figures: {', '.join(sorted(known))}" if known else "ccr train --method uml"
        raise ArtifactError(f"{BEST} needs the name of a figure, such as {BEST}SumR", hint=names)
    if not figures:
        longer = [name for name in sorted(known) if name.lower().endswith(f".{metric.lower()}")]
        near = did_you_mean(metric, known, BEST) if not longer else f"did you mean {BEST}{longer[0]}? "
        hint = f"{near}figures: {', '.join(sorted(known))}" if known else "ccr train --method uml"
        raise ArtifactError(f"no run in {workspace.root} has {metric!r} on validation", hint=hint)
    best = [max(runs) for runs in figures.values()]
    counts = [counted(len(runs), "run") for runs in figures.values()]
    lines = [f"{words}; the best of {n})" for (_, words, _), n in zip(best, counts, strict=True)]
    if len(best) > 1:
        problem = "\n  ".join(["figures on different validation queries cannot be compared:", *lines])
        raise ArtifactError(problem, hint=f"name the one you mean, such as {workspace.relative(best[0][-1])}")
    say(f"{BEST}{metric}: {lines[0]}")
    return best[0][-1]


def _queries(workspace: Workspace, trained: base.Artifact) -> tuple[str, str]:
    """The validation queries of a run, in words, and as a key that is the same for the same queries."""
    config, data, langs = run.config(trained), trained.parent("dataset"), run.langs(trained.request)
    kind, made = config["select"], []
    for link, *_ in run.translation_links(trained)[0].values() if kind == MT else ():
        with suppress(ArtifactError):  # a translation that is gone
            request = workspace.linked(trained, link).request
            while "only" in request and "val" not in request["only"].get("evaluated", ()):  # they are the original's
                request = request["only"]["of"]
            made.append({k: v for k, v in request.items() if k in ("engine", "rounds", "only") or k.startswith("set.")})
            continue
        made.append({"engine": link.path, "id": link.id})
    engines = " by " + "+".join(str(request["engine"]) for request in made) if made else ""
    key = base.canonical_json([data.id, list(langs), kind, config.get("validation"), made])
    return f"{Path(data.path).name}, {'+'.join(langs)}, {kind} queries{engines}", key


def _unknown(workspace: Workspace, word: str, kinds: Sequence[str]) -> ArtifactError:
    """The error for a word that means no artifact: says what it is instead, or lists similar names."""
    partial = unfinished(workspace)
    for place in (Path(word.removesuffix(".partial")), workspace.root / word.removesuffix(".partial")):
        if (place / "captions.tsv").is_file():
            problem = f"{word} is a folder in the dataset format, not imported yet"
            return ArtifactError(problem, hint=f"ccr data import {shlex.quote(word)}")
        for further in (how for _, path, how in partial if path.absolute() == Path(os.path.abspath(place))):
            return ArtifactError(f"{word} is unfinished", hint=further)
        if place.is_dir() and place != workspace.root and place.name not in FOLDERS.values():
            return ArtifactError(f"{word} has no {RECORD}, so it is not an artifact", hint="list artifacts: ccr show")
    if Path(word).is_file():
        hint = f"ccr data import {shlex.quote(word)}, if it is a table of captions"
        return ArtifactError(f"{word} is a file, not an artifact", hint)
    folder = [kind for kind, name in FOLDERS.items() if name == word.split("/")[0]]
    places = workspace.places()
    paths = [path for _, path in places]
    first = [path for kind, path in places if kind in (folder or kinds)] or paths
    if re.fullmatch(r"[\d.]+", word) and not Path(word).exists():
        raise UsageError(f"{word} is no artifact", hint="commas join the values of an option: --sweep noise=0.2,0.4")
    name = Path(word).name
    inside = [path for path in first if name and name in path.name]
    near = nearest(name, [path.name for path in first], _SHOWN)
    paths = inside or [path for path in first if path.name in near] or first
    problem = f"{word} does not exist: neither a path nor the name of an artifact in {workspace.root}"
    meant = f"{BEST}SumR" if word == "best" else next(iter(nearest(word, (LATEST, f"{BEST}SumR"), 1)), "")
    there = f"there are: {_listed(workspace, paths)}" if paths else "ccr data import FILE"
    return ArtifactError(problem, hint=f"did you mean {meant!r}?" if meant else there)


def _listed(workspace: Workspace, paths: Sequence[Path]) -> str:
    more = f" and {len(paths) - _SHOWN} more (ccr show)" if len(paths) > _SHOWN else ""
    return ", ".join(map(workspace.relative, paths[:_SHOWN])) + more
