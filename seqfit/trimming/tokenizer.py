"""A tokenizer with fewer tokens: tokenizer.json is rewritten, and the new tokenizer loaded from it.

In: a tokenizer and the tokens to keep. Out: a tokenizer of the same class with consecutive ids from 0, in the old
order; plain `AutoTokenizer` loads its saved folder. Text of kept tokens is tokenized as before:

    Unigram     the best sum of scores is still there, and no better one was added
    WordPiece   the longest token that fitted still fits
    BPE         the merges that lead to a kept token are kept, in order

A sentencepiece file is not written: the JSON has everything that transformers reads.
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from transformers import AutoTokenizer, PreTrainedTokenizerBase

from seqfit.errors import ModelError
from seqfit.system import quiet_transformers
from seqfit.trimming.choose import KeptTokens
from seqfit.trimming.vocabulary import merged, read_tokenizer_json, to_merge

_JSON = "tokenizer.json"
_CONFIG = "tokenizer_config.json"


def trim_tokenizer(tokenizer: PreTrainedTokenizerBase, kept: KeptTokens) -> PreTrainedTokenizerBase:
    """The same tokenizer with only the kept tokens; the given one is not changed."""
    content = trim_json(read_tokenizer_json(tokenizer), kept.remap, kept.old_ids)
    with quiet_transformers(), tempfile.TemporaryDirectory() as folder:
        tokenizer.save_pretrained(folder)
        for file in Path(folder).iterdir():  # a vocabulary in another format would still have all tokens
            if file.name not in (_JSON, _CONFIG):
                file.unlink()
        (Path(folder) / _JSON).write_text(json.dumps(content, ensure_ascii=False), "utf-8")
        trimmed: PreTrainedTokenizerBase = AutoTokenizer.from_pretrained(folder)
    trimmed.name_or_path = tokenizer.name_or_path
    # Some classes rebuild their vocabulary when loaded: the result must be what was written.
    pieces = tokenizer.convert_ids_to_tokens(kept.old_ids.tolist())
    expected = {piece: number for number, piece in enumerate(pieces)}
    roles = ("pad_token", "eos_token", "unk_token", "bos_token", "cls_token", "sep_token", "mask_token")
    if trimmed.get_vocab() != expected or any(getattr(tokenizer, role) != getattr(trimmed, role) for role in roles):
        raise ModelError(
            f"The {type(tokenizer).__name__} has other tokens or ids after loading its trimmed files",
            "A trimmed tokenizer must give every kept token the id of its embedding",
            "Remove model.trim_vocabulary",
        )
    return trimmed


def trim_json(content: dict[str, Any], remap: NDArray[np.integer], old_ids: NDArray[np.integer]) -> dict[str, Any]:
    kept = set(old_ids.tolist())
    padding = content["padding"]
    return content | {
        "model": _trim_model(content["model"], remap, kept),
        "added_tokens": [
            token | {"id": int(remap[token["id"]])} for token in content["added_tokens"] if token["id"] in kept
        ],
        "post_processor": _renumber(content["post_processor"], remap),
        "padding": padding and padding | {"pad_id": int(remap[padding["pad_id"]])},
    }


def _trim_model(model: dict[str, Any], remap: NDArray[np.integer], kept: set[int]) -> dict[str, Any]:
    if model["type"] == "Unigram":
        tokens = [pair for number, pair in enumerate(model["vocab"]) if number in kept]
        unknown = model["unk_id"]
        return model | {"vocab": tokens, "unk_id": None if unknown is None else int(remap[unknown])}
    by_id = sorted(model["vocab"].items(), key=lambda item: item[1])
    vocabulary = {piece: int(remap[number]) for piece, number in by_id if number in kept}
    if model["type"] != "BPE":
        return model | {"vocab": vocabulary}
    prefix = model.get("continuing_subword_prefix") or ""
    merges = [
        merge
        for merge in model["merges"]
        for first, second in [to_merge(merge)]
        if first in vocabulary and second in vocabulary and merged(first, second, prefix) in vocabulary
    ]
    return model | {"vocab": vocabulary, "merges": merges}


def _renumber(processor: Any, remap: NDArray[np.integer]) -> Any:
    """New ids in a post-processor, which has one of three forms or is a sequence of them."""
    if processor is None:
        return None
    changed = dict(processor)
    match processor["type"]:
        case "Sequence":
            changed["processors"] = [_renumber(inner, remap) for inner in processor["processors"]]
        case "TemplateProcessing":
            changed["special_tokens"] = {
                name: token | {"ids": [int(remap[number]) for number in token["ids"]]}
                for name, token in processor["special_tokens"].items()
            }
        case "BertProcessing" | "RobertaProcessing":
            changed |= {name: [processor[name][0], int(remap[processor[name][1]])] for name in ("sep", "cls")}
    return changed
