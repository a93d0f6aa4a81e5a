from __future__ import annotations

from typing import Any

import pytest

from seqfit.errors import RecipeError
from seqfit.launch.site import Resources, Site


def test_each_gpu_has_a_process() -> None:
    asked = Resources.choose(Site(), nodes=2, gpus_per_node=4)
    assert (asked.processes_per_node, asked.cpus_per_process, asked.cpus_per_node) == (4, 4, 16)


def test_a_cluster_without_gpus_has_as_many_processes_as_are_asked_for() -> None:
    asked = Resources.choose(Site(), gpus_per_node=0, processes_per_node=3, cpus_per_process=2)
    assert (asked.gpus_per_node, asked.processes_per_node, asked.cpus_per_node) == (0, 3, 6)


def test_an_option_goes_before_the_profile() -> None:
    site = Site(time="1:00:00", partition="slow", memory="8G", cpus_per_process=3)
    asked = Resources.choose(site, time="2:00:00", partition="fast")
    assert (asked.time, asked.partition, asked.memory, asked.cpus_per_process) == ("2:00:00", "fast", "8G", 3)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"nodes": 0}, r"--nodes is 0\. It is at least 1\. Give --nodes 1\."),
        ({"gpus_per_node": -1}, r"--gpus-per-node is -1\. It is at least 0\."),
        ({"cpus_per_process": 0}, r"--cpus-per-process is 0\."),
        ({"gpus_per_node": 4, "processes_per_node": 2}, r"Each GPU has one process\. Omit --processes-per-node"),
        ({"time": "4h"}, r"--time is '4h'\. '4h' is not a Slurm duration\. Write 90 \(minutes\)"),
        ({"partition": "a b"}, r"--partition is 'a b'\. It is one word\. Write it without spaces\."),
    ],
)
def test_contradictory_resources_are_errors_in_three_parts(options: dict[str, Any], said: str) -> None:
    with pytest.raises(RecipeError, match=said):
        Resources.choose(Site(), **options)
