"""The options of `ccr review`: a field is a flag, in the order of the help."""

from dataclasses import dataclass
from pathlib import Path

from ccr_cli.stages.shared.options import option


@dataclass(frozen=True)
class ReviewOptions:
    """What is reviewed, by whom, and where the verdicts go."""

    to: Path | None = option(
        None, "CSV file for the verdicts; an existing one is continued.", show_default="reviews/DIAGNOSIS.csv"
    )
    reviewer: str | None = option(None, "Your name in the file.", show_default="the user's")
    second: bool = option(False, "Judge what other reviewers have judged, to measure how far you agree.")
    worst: int = option(500, "Number of pairs to review, the most suspicious ones.", min=1)
    lang: str | None = option(None, "Review pairs in this language only.")
    parallel: Path | None = option(None, "Human translations of other captions, by which words are underlined.")
