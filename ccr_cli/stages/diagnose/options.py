"""The options of `ccr diagnose`: each field is a flag."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ccr_cli import registry
from ccr_cli.stages.shared.options import option


@dataclass(frozen=True)
class DiagnoseOptions:
    """The options of `ccr diagnose` that can change the diagnosis, in the order of its help."""

    judge: str | None = option(
        None,
        "{judges}",
        show_default="the run's if it judges after each epoch, else two-group",
        autocompletion=registry.completion("judges"),
    )
    judge_side: str | None = option(
        None,
        "Sides that the judge compares: cross_lingual (caption and translation), cross_modal (item and text) or both.",
        show_default="the run's",
    )
    witness: list[str] | None = option(
        None,
        "Another translation of the captions to compare with (none: without); repeat for several.",
        show_default="all of the workspace",
    )
    share: float | None = option(
        None,
        "Call this fraction of the pairs noisy, the most suspicious ones (0 to 1).",
        show_default="P(clean) below 0.5",
    )
    rivals: str | None = option(
        None,
        "Search for the rivals of each pair, for belief and uncertainty: exact, or nearby (approximate, linear time).",
        show_default="exact up to 300,000 training pairs",
    )
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Options of the judge (`judges.config.JudgeConfig`), as text or typed."""
    device: str = "auto"
    name: str | None = None
    force: bool = False

    def command(self, judged: str, name: str, witnesses: Sequence[str]) -> list[str]:
        """The words of the command, without `ccr`, that makes a diagnosis again under its name, with its witnesses.

        Args:
            judged: The path of the run or translation in the workspace.
            name: The name of the diagnosis.
            witnesses: The paths of the translations that were compared, or `none`; empty if the judge compares none.
        """
        given = {"judge": self.judge, "judge-side": self.judge_side, "share": self.share, "rivals": self.rivals}
        given |= {"device": None if self.device == "auto" else self.device, "name": name}
        words = ["diagnose", judged, *(f"--{flag}={value}" for flag, value in given.items() if value is not None)]
        words += [f"--set={key}={value}" for key, value in self.settings.items()]
        return words + [f"--witness={witness}" for witness in witnesses]
