"""The shared fixtures, and a real Slurm where Debian's packages are installed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from tests.launch.cluster import Cluster, NotStarted, explain_absence
from tests.launch.fixtures import fake_slurm, recipe_file, submitted_run, without_slurm, workplace

__all__ = ["fake_slurm", "recipe_file", "submitted_run", "without_slurm", "workplace"]


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Two nodes on this host, by Debian's Slurm."""
    reason = explain_absence()
    if reason is not None:
        pytest.skip(reason)
    with ExitStack() as stack:
        try:
            started = stack.enter_context(Cluster(tmp_path_factory.mktemp("slurm"), nodes=2))
        except NotStarted as error:
            pytest.skip(str(error))
        yield started
