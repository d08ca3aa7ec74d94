"""What models do within, by example, as a report shows it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ccr_cli.report.searches import Search


@dataclass(frozen=True)
class Inside:
    """Examples from within trained models."""

    targets: Sequence[Search] = ()
    """Captions with the shares that soft targets give to pictures, in place of similarities (DisNCL Figure 5)."""

    def request(self) -> dict[str, Any]:
        """What of it can change a report."""
        return {"targets": [each.request() for each in self.targets]}
