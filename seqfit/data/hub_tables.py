"""Data sets of the Hugging Face Hub as tables.

In: a name such as knkarthick/dialogsum and a configuration. Out: split -> `DataTable`. The one idea: `datasets`
downloads and stores the files; then a Hub data set is read like any other file. Integers of a ClassLabel column become
their names, so that a template or a label list can use them.

    {"text": "Unions ...", "label": 2} -> {"text": "Unions ...", "label": "Business"}
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

from seqfit.data.file_groups import ALL
from seqfit.data.file_tables import DataTable
from seqfit.data.name_words import split_of
from seqfit.data.rows import DataRow
from seqfit.errors import DataError, did_you_mean
from seqfit.hub import use_hub
from seqfit.recipe import SourceRecipe

_CONVERTED = "refs/convert/parquet"  # the Hub's own conversion of data sets that are scripts


class HubSplit:
    """One split of a Hub data set, as `datasets` stores it; `notes` say what is unusual about it."""

    def __init__(self, dataset: Any, *notes: str) -> None:
        self._dataset = dataset
        self.notes = notes

    @property
    def files(self) -> list[Path]:
        """The Arrow files of the split; their content identifies the data set's version."""
        return [Path(file["filename"]) for file in self._dataset.cache_files]

    def rows(self) -> Iterator[DataRow]:
        from datasets import ClassLabel

        labels = {name: kind for name, kind in self._dataset.features.items() if isinstance(kind, ClassLabel)}
        for row in self._dataset:
            for name, kind in labels.items():
                # -1 and None mean "no label" in data sets whose test labels are secret
                if row[name] is not None and row[name] >= 0:
                    row[name] = kind.int2str(row[name])
            yield row


def load_hub_splits(name: str, config: str | None) -> dict[str, HubSplit]:
    """All splits, by the data set's own names."""
    from datasets.exceptions import DatasetsError

    use_hub()
    try:
        loaded, notes = _load(name, config)
    except (OSError, ValueError, RuntimeError, DatasetsError) as error:
        # Offline, an unknown name, an unknown configuration and a script each raise another of these.
        given = f"data.hub is '{name}'" + (f" with data.hub_config '{config}'" if config else "")
        first_line = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise DataError(
            f"{given}: {first_line}",
            "A Hub data set is downloaded once, which needs the network, its exact name and its configuration",
            "Set data.path to a local file or folder, or correct data.hub and data.hub_config",
        ) from error
    return {split: HubSplit(dataset, *notes) for split, dataset in loaded.items()}


def _load(name: str, config: str | None) -> tuple[Any, list[str]]:
    """The data set, with a note if it is the Hub's conversion of a script, which `datasets` no longer runs."""
    from datasets import load_dataset

    try:
        return load_dataset(name, config), []
    except RuntimeError as error:
        if "scripts are no longer supported" not in str(error):
            raise
    return load_dataset(name, config, revision=_CONVERTED), [f"{name} is a script; read from its branch {_CONVERTED}"]


def find_hub_tables(source: SourceRecipe) -> dict[str, DataTable]:
    name = source.hub or ""
    loaded = load_hub_splits(name, source.hub_config)
    wanted = _hub_names(source, name, list(loaded))
    for split, own in wanted.items():
        if own not in loaded:
            raise DataError(
                f"data.splits.{split} is '{own}'",
                f"{name} has the splits {', '.join(loaded)}",
                f"Set data.splits.{split} to one of them",
                hint=did_you_mean(own, loaded),
            )
    return {
        split: DataTable(
            f"{name}, {own}", tuple(loaded[own].files), loaded[own].rows, partial(getattr, loaded[own], "notes")
        )
        for split, own in wanted.items()
    }


def _hub_names(source: SourceRecipe, name: str, own_names: list[str]) -> dict[str, str]:
    """Split -> the data set's own name for it."""
    if source.splits:
        return {str(split): own for split, own in source.splits.items()}
    if len(own_names) == 1:
        return {split_of(own_names[0]) or ALL: own_names[0]}
    found: dict[str, str] = {}
    for own in own_names:
        split = split_of(own)
        if split in found:
            raise DataError(
                f"{name} has several splits that could be {split}: {found[split]}, {own}",
                "A split is read from one of them",
                f"Choose one, for example data.splits.{split}={own} (data.splits then has to name every split)",
            )
        if split is not None:
            found[split] = own
    if not found:
        raise DataError(
            f"{name} has the splits {', '.join(own_names)}",
            "None of these names says train, validation or test",
            f"Say which is which, for example data.splits.train={own_names[0]}",
        )
    return found
