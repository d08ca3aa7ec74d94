"""One split of a data set: its items and their captions, chosen once."""

from dataclasses import dataclass, replace

import pandas as pd

from ccr_cli.artifacts.dataset import Dataset
from ccr_cli.data.splits import items_of


@dataclass(frozen=True)
class Split:
    """Items of a split, with their captions in all languages; both in the data set's order."""

    data: Dataset
    name: str
    items: pd.DataFrame
    captions: pd.DataFrame

    @classmethod
    def of(cls, data: Dataset, name: str) -> "Split":
        """Chooses the items of a split; UsageError if it is unknown."""
        items = items_of(data.items, name)
        return cls(data, name, items, data.captions[data.captions["item_id"].isin(set(items["item_id"]))])

    def captions_in(self, lang: str) -> pd.DataFrame:
        """The captions in a language."""
        return self.captions[self.captions["lang"] == lang]

    def where(self, chosen: "pd.Series[bool]") -> "Split":
        """The split with only the chosen items, in a data set without the others."""
        if chosen.all():
            return self
        dropped = self.items["item_id"][~chosen]
        data = items_alone(self.data, ~self.data.items["item_id"].isin(dropped))
        captions = self.captions[~self.captions["item_id"].isin(dropped)]
        return replace(self, data=data, items=self.items[chosen].reset_index(drop=True), captions=captions)


def items_alone(data: Dataset, chosen: "pd.Series[bool]") -> Dataset:
    """The data set with only the chosen items and their captions."""
    items = data.items[chosen].reset_index(drop=True)
    return replace(data, items=items, captions=data.captions[data.captions["item_id"].isin(set(items["item_id"]))])
