from __future__ import annotations

import pytest
from pydantic import ValidationError

from seqfit.strategy import Strategy


@pytest.mark.parametrize(("precision", "lossy"), [("auto", []), ("fp32", []), ("bf16", ["bf16"]), ("fp16", ["fp16"])])
def test_only_half_precision_is_lossy(precision: str, lossy: list[str]) -> None:
    assert Strategy.model_validate({"precision": precision}).lossy == lossy


def test_a_strategy_is_frozen() -> None:
    with pytest.raises(ValidationError, match="frozen"):
        Strategy().threads = 2  # type: ignore[misc]


@pytest.mark.parametrize("name", Strategy.model_fields)
def test_every_field_has_a_sentence(name: str) -> None:
    assert (Strategy.model_fields[name].description or "").endswith(".")
