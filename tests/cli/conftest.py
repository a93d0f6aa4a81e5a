"""What the commands for clusters are tested with."""

from __future__ import annotations

from tests.launch.fixtures import fake_slurm, recipe_file, submitted_run, without_slurm, workplace

__all__ = ["fake_slurm", "recipe_file", "submitted_run", "without_slurm", "workplace"]
