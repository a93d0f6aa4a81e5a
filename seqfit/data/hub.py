"""Data sets of the Hugging Face Hub as rows.

In: a name such as knkarthick/dialogsum and a configuration. Out: per split the rows and the Arrow files they lie in.
The one idea: `datasets` downloads and keeps the files; from there on a Hub data set is read like any other file.
Integers of a ClassLabel column become their names, so that a template or a label list can use them.

    {"text": "Unions ...", "label": 2} -> {"text": "Unions ...", "label": "Business"}
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from seqfit.data.rows import Row
from seqfit.errors import DataError, complain
from seqfit.hub import use_hub

_CONVERTED = "refs/convert/parquet"  # where the Hub keeps its own conversion of a data set that is a script


class HubSplit:
    """One split of a Hub data set, as `datasets` keeps it on disk; `notes` say what is not as usual."""

    def __init__(self, dataset: Any, *notes: str) -> None:
        self._dataset = dataset
        self.notes = notes

    @property
    def files(self) -> list[Path]:
        """The Arrow files of the split; their content stands for the data set's version."""
        return [Path(file["filename"]) for file in self._dataset.cache_files]

    def rows(self) -> Iterator[Row]:
        """Rows with the names of class labels."""
        from datasets import ClassLabel

        labels = {name: kind for name, kind in self._dataset.features.items() if isinstance(kind, ClassLabel)}
        for row in self._dataset:
            for name, kind in labels.items():
                # -1 and None mean "no label" in data sets whose test labels are held back
                if row[name] is not None and row[name] >= 0:
                    row[name] = kind.int2str(row[name])
            yield row


def load_hub_splits(name: str, config: str | None) -> dict[str, HubSplit]:
    """All splits by the names the data set gives them."""
    from datasets.exceptions import DatasetsError

    use_hub()
    try:
        loaded, notes = _load(name, config)
    except (OSError, ValueError, RuntimeError, DatasetsError) as error:
        # Offline, an unknown name, an unknown configuration and a script each arrive as another of these.
        given = f"data.hub is '{name}'" + (f" with data.hub_config '{config}'" if config else "")
        raise DataError(
            complain(
                f"{given}: {_first_line(error)}",
                "A Hub data set is downloaded once, which needs the network, its exact name and its configuration",
                "Set data.path to a local file or folder, or correct data.hub and data.hub_config",
            )
        ) from error
    return {split: HubSplit(dataset, *notes) for split, dataset in loaded.items()}


def _load(name: str, config: str | None) -> tuple[Any, list[str]]:
    """The data set, and notes where it is the Hub's conversion of a script, which `datasets` no longer runs."""
    from datasets import load_dataset

    try:
        return load_dataset(name, config), []
    except RuntimeError as error:
        if "scripts are no longer supported" not in str(error):
            raise
    return load_dataset(name, config, revision=_CONVERTED), [f"{name} is a script; read from its {_CONVERTED}"]


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
