"""`seqfit schema`: the JSON schema of recipes."""

from __future__ import annotations

import json

from seqfit.recipe.load import to_json_schema


def command() -> None:
    """Print the JSON schema of recipes, with which an editor completes and checks them."""
    print(json.dumps(to_json_schema(), indent=2, ensure_ascii=False))
