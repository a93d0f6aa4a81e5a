"""Configs of popular models, model_configs.yaml: a name comes in, what its config.json says goes out. Free of torch.

With them a plan needs no network. A name may lack its owner, and case does not matter:

    google/flan-t5-large   flan-t5-large   Flan-T5-Large        the same model
    bert-base-uncased                                           google-bert/bert-base-uncased
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from types import MappingProxyType
from typing import Any

import yaml

_UNITS = {"M": 1e6, "B": 1e9}


@dataclass(frozen=True)
class KnownModel:
    name: str  # on the Hub
    kind: str  # of a recipe's model
    config: Mapping[str, Any]  # as config.json has it
    parameters: int  # as published
    source: str  # of the parameters


@cache
def load_known_models() -> Mapping[str, KnownModel]:
    """By name on the Hub, in the file's order."""
    text = resources.files("seqfit").joinpath("model_configs.yaml").read_text("utf-8")
    return MappingProxyType({model.name: model for group in yaml.safe_load(text) for model in _read_group(group)})


def _read_group(group: Mapping[str, Any]) -> Iterator[KnownModel]:
    for name, model in group["models"].items():
        config = {"model_type": group["type"], **group.get("common", {}), **model.get("config", {})}
        published = str(model["parameters"])
        parameters = round(float(published[:-1]) * _UNITS[published[-1]])
        source = model.get("source", group["source"])
        for each in (name, *model.get("also", ())):
            yield KnownModel(each, group.get("kind", "text-to-text"), MappingProxyType(config), parameters, source)


def find_known_model(name: str) -> KnownModel | None:
    """With or without its owner; None where it is not among them."""
    wanted = name.lower()
    for model in load_known_models().values():
        if wanted in (model.name.lower(), model.name.lower().partition("/")[2]):
            return model
    return None
