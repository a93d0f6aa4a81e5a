"""Site settings, what one cluster needs for every job, in a YAML file that is written once; and a job's resources.

In: a profile, given by --profile, by $SEQFIT_PROFILE, or at ~/.config/seqfit/cluster.yaml. Out: a frozen `Site`.

    account: def-ada                      #SBATCH --account=def-ada
    modules: [python/3.11, cuda]    ->    module load python/3.11 cuda
    offline: true                         export HF_HUB_OFFLINE=1

The resources of a job are the options of `seqfit submit`, and the site's settings for the others: frozen `Resources`,
checked, with one process per GPU, or --processes-per-node on CPUs.

    --nodes 2 --gpus-per-node 4                                   2 nodes x 4 processes, one per GPU
    --nodes 2 --gpus-per-node 0 --processes-per-node 2            2 nodes x 2 processes on CPUs
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal, Self

import yaml
from pydantic import AfterValidator, Field, field_validator

from seqfit.errors import RecipeError
from seqfit.recipe import report_mistakes, schema, validate_part
from seqfit.yaml_text import read_yaml

DEFAULT_PROFILE = Path("~/.config/seqfit/cluster.yaml")
VARIABLE = "SEQFIT_PROFILE"
_TIME = re.compile(r"\d+|\d+:\d{1,2}|\d+:\d{1,2}:\d{1,2}|\d+-\d{1,2}(:\d{1,2}){0,2}")


def check_slurm_time(text: str) -> str:
    """A duration in one of Slurm's formats; ValueError otherwise."""
    if not _TIME.fullmatch(text):
        raise ValueError(f"'{text}' is not a Slurm duration; write 90 (minutes), 4:00:00 or 2-12:00:00 (days first)")
    return text


def _check_word(text: str) -> str:
    """It goes into an #SBATCH line as it is."""
    if not text or text != "".join(text.split()):
        raise ValueError(f"'{text}' is not one word; write it without spaces")
    return text


def _check_line(text: str) -> str:
    if not text.strip() or "\n" in text:
        raise ValueError(f"{text!r} is not one line of the shell; give several as a list, one line each")
    return text


def _check_option(text: str) -> str:
    if not text.startswith("-"):
        raise ValueError(f"'{text}' is no option of sbatch; write it with its dashes, such as --mail-type=END")
    return _check_line(text)


OneWord = Annotated[str, AfterValidator(_check_word)]
ShellLine = Annotated[str, AfterValidator(_check_line)]
Time = Annotated[str, AfterValidator(check_slurm_time)]
Folder = Literal["SEQFIT_CACHE", "HF_HOME", "HF_HUB_CACHE", "HF_DATASETS_CACHE"]


class Scratch(schema.RecipePart):
    """A local disk of each node, and what is copied there before training."""

    directory: ShellLine = Field(description="Its path, as in the shell of a node, such as $SLURM_TMPDIR.")
    folders: list[Folder] = Field(
        default=["SEQFIT_CACHE"],
        description="Variables that name folders: each folder is copied, and the variable then names the copy.",
    )


class Site(schema.RecipePart):
    """What a cluster needs for every job."""

    account: OneWord | None = Field(None, description="Account to charge.")
    partition: OneWord | None = Field(None, description="Partition; --partition overrides it.")
    qos: OneWord | None = Field(None, description="Quality of service.")
    constraint: OneWord | None = Field(None, description="Features that nodes must have.")
    gpu_type: OneWord | None = Field(None, description="GPU type, such as a100, where the cluster requires one.")
    time: Time | None = Field(None, description="Time limit of a job, such as 4:00:00; --time overrides it.")
    memory: OneWord | None = Field(None, description="Memory of a node, such as 64G; 0 is all of it.")
    cpus_per_process: Annotated[int, Field(ge=1)] | None = Field(
        None, description="CPU cores per process; --cpus-per-process overrides it."
    )
    grace_seconds: Annotated[int, Field(ge=30, le=65535)] = Field(
        120,
        description="Training gets a signal to stop so long before the time limit; Slurm may send it a minute earlier.",
    )
    max_restarts: Annotated[int, Field(ge=0)] = Field(
        0, description="How often torchrun restarts failed processes on the same nodes, before the job is requeued."
    )
    modules: list[OneWord] = Field(default_factory=list, description="Modules to load.")
    setup: list[ShellLine] = Field(
        default_factory=list, description="Shell lines that each node runs first, such as activating a venv."
    )
    container: ShellLine | None = Field(
        None, description="Command that runs another one inside a container: apptainer exec --nv image.sif."
    )
    python: ShellLine | None = Field(
        None, description="The Python that has seqfit; default: this one, or python where setup or container is given."
    )
    scratch: Scratch | None = Field(None, description="A fast local disk of each node.")
    offline: bool = Field(False, description="The nodes have no network; run 'seqfit prefetch' before.")
    environment: dict[str, str] = Field(default_factory=dict, description="Environment variables.")
    sbatch: list[Annotated[str, AfterValidator(_check_option)]] = Field(
        default_factory=list, description="Further options of sbatch, such as --mail-type=END."
    )

    @classmethod
    def load(cls, given: Path | None) -> Site:
        """Of --profile or the usual place; the defaults where there is no profile."""
        place = find_profile(given)
        return cls() if place is None else read_site(place)

    @property
    def uses_this_python(self) -> bool:
        """Whether the nodes run the submitting Python, with its packages."""
        return not (self.python or self.setup or self.modules or self.container)

    @field_validator("environment")
    @classmethod
    def _named(cls, environment: dict[str, str]) -> dict[str, str]:
        wrong = [name for name in environment if not re.fullmatch(r"[A-Za-z_]\w*", name)]
        if wrong:
            raise ValueError(f"'{wrong[0]}' is not a variable name; use letters, digits and _")
        return environment


def find_profile(given: Path | None) -> Path | None:
    """--profile, then $SEQFIT_PROFILE, then the file in the home directory, if it is there."""
    named = given or (Path(os.environ[VARIABLE]) if os.environ.get(VARIABLE) else None)
    if named is None:
        usual = DEFAULT_PROFILE.expanduser()
        return usual if usual.is_file() else None
    if not named.expanduser().is_file():
        raise RecipeError(
            f"{'--profile' if given else VARIABLE} is '{named}', and there is no such file",
            "a profile is a YAML file with a cluster's settings",
            "Correct the path, or start from one of examples/clusters",
        )
    return named.expanduser()


def read_site(place: Path) -> Site:
    """One profile file, checked; all its mistakes are reported together."""
    try:
        values, repeated = read_yaml(place.read_text("utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        problem = " ".join(str(error).split())
        raise RecipeError(f"{place}: {problem}", "a profile is YAML text in UTF-8", "Correct the file there") from error
    if repeated:
        raise RecipeError(f"{place}, {repeated[0]}", "a field is given once", "Remove one of the two")
    if not isinstance(values, dict):
        raise RecipeError(
            f"{place} holds no fields",
            "a profile is a mapping such as account: def-ada",
            "Start from one of examples/clusters",
        )
    site, mistakes = validate_part(Site, values)
    if site is None:
        raise RecipeError(report_mistakes(str(place), mistakes))
    return site


DEFAULT_CPUS = 4  # per process: one computes, the others tokenize, prefetch and write


@dataclass(frozen=True)
class Resources:
    nodes: int
    gpus_per_node: int
    processes_per_node: int
    cpus_per_process: int
    time: str | None
    partition: str | None
    memory: str | None

    @property
    def cpus_per_node(self) -> int:
        return self.processes_per_node * self.cpus_per_process

    @classmethod
    def choose(
        cls,
        site: Site,
        *,
        nodes: int = 1,
        gpus_per_node: int = 1,
        processes_per_node: int | None = None,
        cpus_per_process: int | None = None,
        time: str | None = None,
        partition: str | None = None,
        memory: str | None = None,
    ) -> Self:
        least = {
            "--nodes": (nodes, 1),
            "--gpus-per-node": (gpus_per_node, 0),
            "--processes-per-node": (processes_per_node, 1),
            "--cpus-per-process": (cpus_per_process, 1),
        }
        for option, (given, smallest) in least.items():
            if given is not None and given < smallest:
                change = f"Give {option} {max(smallest, 1)}"
                raise RecipeError(f"{option} is {given}", f"it is at least {smallest}", change)
        if gpus_per_node and processes_per_node not in (None, gpus_per_node):
            raise RecipeError(
                f"--processes-per-node is {processes_per_node} and --gpus-per-node {gpus_per_node}",
                "each GPU has one process",
                "Omit --processes-per-node, or give --gpus-per-node 0 to train on CPUs",
            )
        return cls(
            nodes=nodes,
            gpus_per_node=gpus_per_node,
            processes_per_node=gpus_per_node or processes_per_node or 1,
            cpus_per_process=cpus_per_process or site.cpus_per_process or DEFAULT_CPUS,
            time=_checked_time(time) or site.time,
            partition=_checked_word("--partition", partition) or site.partition,
            memory=_checked_word("--memory", memory) or site.memory,
        )


def _checked_time(time: str | None) -> str | None:
    try:
        return None if time is None else check_slurm_time(time)
    except ValueError as error:
        rule, _, change = str(error).partition("; ")
        raise RecipeError(f"--time is '{time}'", rule, f"{change[0].upper()}{change[1:]}") from error


def _checked_word(option: str, text: str | None) -> str | None:
    if text is not None and (not text or len(text.split()) != 1):
        raise RecipeError(f"{option} is '{text}'", "it is one word", "Write it without spaces")
    return text
