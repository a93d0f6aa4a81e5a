"""Models that can be loaded without a network: in the Hub's cache, or in a folder of models.

In: a folder, or nothing for the cache. Out: `LocalModel`s: those with a config, weights and a tokenizer. Of the cache
only models are looked for whose config comes with seqfit, because the others' languages and tasks are not known.

    ~/.cache/huggingface/hub/models--google--flan-t5-small/snapshots/d7d2/config.json, model.safetensors, ...
    models/flan-t5-small/config.json, model.safetensors, tokenizer.json
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

from seqfit.model_configs import KnownModel, find_known_model, load_known_models

_WEIGHTS = ("model.safetensors", "model.safetensors.index.json", "pytorch_model.bin", "pytorch_model.bin.index.json")
_TOKENIZERS = ("tokenizer.json", "spiece.model", "source.spm", "vocab.txt", "vocab.json", "tokenizer_config.json")
_INDEX_BYTES = 1 << 26  # more is no safetensors header
_FP32_BYTES = 4


@dataclass(frozen=True)
class LocalModel:
    """`location` is what --model takes: a name on the Hub, or a folder."""

    location: str
    config: Mapping[str, Any]
    parameters: int
    known: KnownModel | None


def is_folder_of_models(folder: Path) -> bool:
    """No model itself, but with some in it."""
    return folder.is_dir() and not (folder / "config.json").is_file() and any(folder.glob("*/config.json"))


def list_local_models(folder: Path | None) -> Iterator[LocalModel]:
    """In the table's order, or in the folder's."""
    if folder is not None:
        for config in sorted(folder.glob("*/config.json")):
            if (found := _read_folder(config.parent, find_known_model(config.parent.name))) is not None:
                yield found
        return
    from huggingface_hub import try_to_load_from_cache

    for name, known in load_known_models().items():
        place = try_to_load_from_cache(name, "config.json")
        if isinstance(place, str) and (found := _read_folder(Path(place).parent, known)) is not None:
            yield LocalModel(name, found.config, found.parameters, known)


def is_tokenizer_cached(name: str) -> bool:
    from huggingface_hub import try_to_load_from_cache

    try:
        return any(isinstance(try_to_load_from_cache(name, file), str) for file in _TOKENIZERS)
    except ValueError:  # not a valid name on the Hub: loading it reports that
        return True


def _read_folder(folder: Path, known: KnownModel | None) -> LocalModel | None:
    """None if anything is missing: planning alone leaves a config in the cache."""
    if not all(any((folder / name).is_file() for name in names) for names in (_WEIGHTS, _TOKENIZERS)):
        return None
    try:
        config = json.loads((folder / "config.json").read_text("utf-8"))
    except (OSError, ValueError):
        return None
    if not isinstance(config, dict) or "model_type" not in config:
        return None
    return LocalModel(str(folder), config, _count_parameters(folder), known)


def _count_parameters(folder: Path) -> int:
    """From the headers of safetensors files; else from the size of the weights, taken for fp32."""
    headers = [header for file in folder.glob("*.safetensors") if (header := _read_header(file)) is not None]
    if headers:
        return sum(prod(entry["shape"]) for header in headers for name, entry in header.items() if "shape" in entry)
    return sum(file.stat().st_size for file in folder.glob("pytorch_model*.bin")) // _FP32_BYTES


def _read_header(file: Path) -> dict[str, Any] | None:
    """A safetensors file begins with the size of its header, which has name, type and shape of each tensor."""
    with file.open("rb") as opened:
        start = opened.read(8)
        size = struct.unpack("<Q", start)[0] if len(start) == 8 else 0
        if not 0 < size < _INDEX_BYTES:
            return None
        try:
            header = json.loads(opened.read(size))
        except ValueError:
            return None
    return header if isinstance(header, dict) else None
