"""What a test may switch off, by name: users have both, so tests/cli and tests/journeys have both, too.

pytestmark = pytest.mark.usefixtures("no_prediction", "no_telemetry")  # why this module needs neither
with prediction_off(), telemetry_off(): ...                            # in a fixture of a wider scope
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from seqfit.strategy.schema import Strategy
from seqfit.telemetry.sampler import SamplerProcess

NO_PREDICTION = {"SEQFIT_PREDICTION": "off"}  # for the environment of a process


@contextmanager
def prediction_off() -> Iterator[None]:
    """Also in processes that are started meanwhile."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in NO_PREDICTION.items():
            patch.setenv(name, value)
        yield


@contextmanager
def telemetry_off() -> Iterator[None]:
    """In this process, and only of runs at the default rate: a rate that a recipe states is sampled."""
    start, default_hz = SamplerProcess._start, Strategy.model_fields["telemetry_hz"].default

    def start_if_stated(self: SamplerProcess) -> None:
        if self._hz != default_hz:
            start(self)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(SamplerProcess, "_start", start_if_stated)
        yield
