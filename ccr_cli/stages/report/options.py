"""The options of `ccr report`, declared once: a field is a flag."""

from dataclasses import dataclass

from ccr_cli.stages.shared.options import option


@dataclass(frozen=True)
class ReportOptions:
    """The options of `ccr report`: what it shows besides the results, in the order of its help."""

    title: str | None = option(None, "Heading of the page.")
    searches: int = option(0, "Number of example searches per language, by the run with the best validation.", min=0)
    map: int = option(0, "Number of items in a map of embeddings with their captions (t-SNE).", min=0)
    inside: int = option(0, "Number of picture queries, soft targets and attention maps.", min=0)
    split: str = option(
        "test", "Split of the items for --searches, --map and --inside: train, val, test, val-select, val-report."
    )
    published: bool = option(False, "Compare the results with published ones, and list what differs.")
    device: str = "auto"
    name: str | None = None
    force: bool = False
