from __future__ import annotations

import dataclasses

import pytest

from seqfit.tasks import Example


def test_an_example_is_frozen() -> None:
    example = Example("q7", "Who?", "Ada", ("Ada", "Ada L."), "Ada did.")
    with pytest.raises(dataclasses.FrozenInstanceError):
        example.target = "Bob"  # type: ignore[misc]
