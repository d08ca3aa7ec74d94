"""ccr rebuild."""

import os
import shlex
import subprocess
import sys
from pathlib import Path

from ccr_cli import console
from ccr_cli.artifacts import base
from ccr_cli.artifacts.build import without_option
from ccr_cli.artifacts.workspace import Workspace
from ccr_cli.commands import common as c
from ccr_cli.errors import ArtifactError


@c.guarded
def rebuild(*, call: c.ListCall) -> None:
    """Make stale artifacts again: those made from an earlier state of a data set or of another artifact.

    Repeats the command of each one (of the named, or of all in the workspace), parents first, and prints its path.
    """
    inputs = call.inputs()
    chosen, made = {artifact.path for artifact in inputs.named}, list[Path]()
    while stale := [a for a in _stale(inputs.workspace) if not chosen or a.path in chosen]:
        artifact = stale[0]
        command = without_option(artifact.rebuild_command(), "--workspace")  # its path may count from elsewhere
        name = inputs.workspace.relative(artifact.path)
        if artifact.path in made:
            problem = f"{name} is stale still: its command makes another artifact, perhaps as a file has changed"
            named = [] if any(word.partition("=")[0] == "--name" for word in command) else ["--name", artifact.name]
            raise ArtifactError(problem, hint=f"under its name: {shlex.join([*command, *named])}")
        if not command:
            raise ArtifactError(f"{name} is stale still", hint=artifact.rebuild_hint())
        console.say(f"rebuild {name}: {' '.join(command)}")
        made.append(artifact.path)
        env = os.environ | {"CCR_WORKSPACE": str(inputs.workspace.root)}
        code = subprocess.run(
            [sys.executable, "-m", "ccr_cli", *command[1:]], env=env, stdout=subprocess.DEVNULL
        ).returncode
        if code not in (0, 3):  # 3: done, but some items failed
            raise ArtifactError(f"{name} could not be made again (exit code {code})", hint=artifact.rebuild_hint())
    if call.json:
        c.show_json({"made": [c.artifact_facts(base.load(path)) for path in made]})
        return
    for path in made:
        print(path)
    if not made:
        console.say("nothing is stale")


def _stale(workspace: Workspace) -> list[base.Artifact]:
    """The stale artifacts, parents first, without mismatches, which `ccr train` makes again."""
    artifacts = workspace.artifacts()
    ids = workspace.stale(artifacts)
    return workspace.parents_first([a for a in artifacts if a.id in ids and a.kind != "noise"])


EPILOG = c.examples("ccr rebuild", "ccr data import products.csv --force && ccr rebuild", "ccr rebuild latest")
