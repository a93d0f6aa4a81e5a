"""What a comparison measures: one line for each quantity, with its label, how it is printed and what is better.

In: a quantity's name. Out: a `Quantity`. The scores of a recipe's metrics are quantities, too, and are made as they
are asked for:

    find_quantity("step_seconds").format(0.412)   '412 ms'        find_quantity("accuracy").format(91.25)   '91.25'
    find_quantity("step_seconds").higher_is_better   False        find_quantity("accuracy").higher_is_better   True

`floor` is the least relative change that is ever called one. Below it a difference may be real and still means
nothing: two trials of the same thing differ by so much without a cause that anybody would act on.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Literal

from seqfit.metrics.registry import format_score, higher_is_better, metric_of_score
from seqfit.units import format_bytes, format_count, format_seconds, format_share

STEP_SECONDS = "step_seconds"
TOKENS_PER_SECOND = "tokens_per_second"
STEP_YARDSTICKS = "step_yardsticks"  # no quantity of its own: the calibrated clock of the same step (noise.py)
EVALUATION_LOSS = "evaluation_loss"
FINAL_LOSS = "final_loss"
PairedTrials = Literal[
    "steps",  # step by step, because both trials of a pair saw the same rows
    "trials",  # one value per trial
    "derived",  # from the step time
    "seeds",  # one value per seed: the repeats of a seed are the same training
]
_ROW_MEANS = ("accuracy", "subset_accuracy", "exact_match", "numeric", "rouge")
_LOOKED_AT_FIRST = ("accuracy", "micro_f1", "pearson", "f1", "em", "numeric_em", "bleu", "chrf")
_TIME_FLOOR = 0.025
_BYTES_FLOOR = 0.01


@dataclass(frozen=True)
class Quantity:
    """One thing that is measured of every trial."""

    name: str
    label: str  # in a table's head
    about: str  # what exactly it is
    unit: str  # of the plain number, in files
    format: Callable[[float], str]
    higher_is_better: bool | None  # None where neither is
    pairing: PairedTrials = "trials"
    floor: float = 0.0

    @property
    def is_exact(self) -> bool:
        """Tensors are counted, not sampled: a repeat has the same bytes, and one of them is enough."""
        return self.name == "allocated_bytes"

    @property
    def noise_is_shared(self) -> bool:
        """Times scatter with the machine, which is the same for all entrants; bytes with what an entrant does."""
        return self.unit != "B"


def _format_energy(joules: float) -> str:
    """'740 J', '12.5 kJ', '1.30 kWh'."""
    if joules >= 3.6e6:
        return f"{joules / 3.6e6:.2f} kWh"
    return f"{joules / 1000:.1f} kJ" if joules >= 999.5 else f"{joules:.0f} J"


_timed = partial(Quantity, floor=_TIME_FLOOR)
_bytes = partial(
    Quantity, unit="B", format=partial(format_bytes, precise=True), higher_is_better=False, floor=_BYTES_FLOOR
)
_loss = partial(Quantity, unit="", format="{:.4f}".format, higher_is_better=False, pairing="seeds")
_score = partial(Quantity, unit="", pairing="seeds")
_TABLE = (
    _timed(
        STEP_SECONDS,
        "step",
        "time per step: of the baseline the median over the steps after warm-up, of a candidate the baseline's times "
        "the ratio that was measured pair by pair",
        unit="s",
        format=partial(format_seconds, precise=True),
        higher_is_better=False,
        pairing="steps",
    ),
    _timed(
        TOKENS_PER_SECOND,
        "tokens/s",
        "real source and target tokens per step, over the time per step",
        unit="1/s",
        format=format_count,
        higher_is_better=True,
        pairing="derived",
    ),
    _bytes("allocated_bytes", "allocated", "peak of what tensors take; on a CPU that of the largest steps, watched"),
    _bytes("reserved_bytes", "reserved", "peak of what torch's allocator holds on a GPU"),
    _bytes("resident_bytes", "resident", "peak resident memory of the run's processes on the host, whole run"),
    _timed(
        "gpu_busy_share",
        "GPU busy",
        "share of the time in which a kernel ran, mean over the GPUs, after warm-up",
        unit="share",
        format=format_share,
        higher_is_better=None,
    ),
    _timed(
        "cores_used",
        "cores used",
        "by the run's processes, mean after warm-up",
        unit="cores",
        format="{:.2f}".format,
        higher_is_better=None,
    ),
    _timed(
        "energy_joules",
        "energy",
        "of the GPUs, over the steps after warm-up",
        unit="J",
        format=_format_energy,
        higher_is_better=False,
    ),
    _timed(
        "temperature_celsius",
        "hottest",
        "highest temperature of a GPU, after warm-up",
        unit="°C",
        format="{:.0f} °C".format,
        higher_is_better=None,
    ),
    _loss(FINAL_LOSS, "loss", "training loss, mean over the last tenth of the steps"),
    _loss(EVALUATION_LOSS, "eval. loss", "loss of the last evaluation"),
)
QUANTITIES: dict[str, Quantity] = {quantity.name: quantity for quantity in _TABLE}


def find_quantity(name: str) -> Quantity:
    """Of this name; a name that is not in the table is that of a metric's score."""
    if name in QUANTITIES:
        return QUANTITIES[name]
    better = None if metric_of_score(name) is None else higher_is_better(name)
    written = partial(format_score, name)
    label = name.replace("_", " ")
    return _score(name, label, "score of the last evaluation", format=written, higher_is_better=better)


def format_ratio(share: float) -> str:
    """In whole per cent: the numbers next to it have three digits, and it is their ratio."""
    return f"{100 * share:.0f}%"


def is_row_mean(name: str) -> bool:
    """Whether a score is a mean over all rows of something from 0 to 100, so that their number bounds its error."""
    return name in ("em", "f1") or metric_of_score(name) in _ROW_MEANS


def in_display_order(names: Iterable[str]) -> list[str]:
    """As the table has them, then the scores by name."""
    given = set(names)
    return [name for name in QUANTITIES if name in given] + sorted(given - set(QUANTITIES))


def choose_memory(figures: Iterable[Collection[str]]) -> str | None:
    """The figure of memory that ways are compared by: what is allocated where all have it, else the process's.

    In: the names of each way's figures. A way that has none has no say.
    """
    given = [set(names) for names in figures if names]
    shared, any_has = (set.intersection(*given), set.union(*given)) if given else (set(), set())
    kinds = ("allocated_bytes", "resident_bytes")
    return next((name for names in (shared, any_has) for name in kinds if name in names), None)


def choose_score(names: Iterable[str]) -> str | None:
    """The score to look at first: one of a metric, else the loss of the evaluation."""
    scores = [name for name in in_display_order(names) if metric_of_score(name) is not None]
    preferred = [name for name in _LOOKED_AT_FIRST if name in scores]
    return next(iter((*preferred, *scores)), EVALUATION_LOSS if EVALUATION_LOSS in set(names) else None)
