"""What a comparison measures: one line for each quantity, with its label, its format and which direction is better.

In: a quantity's name. Out: a `Quantity`. Scores of a recipe's metrics are quantities, too, and are made on demand:

    find_quantity("step_seconds").format(0.412)   '412 ms'        find_quantity("accuracy").format(91.25)   '91.25'
    find_quantity("step_seconds").higher_is_better   False        find_quantity("accuracy").higher_is_better   True

`floor` is the smallest relative change that is called significant: below it, two trials of the same thing differ
without a cause that anybody would act on.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Literal

from seqfit.metrics import format_score, higher_is_better, metric_of_score
from seqfit.units import format_bytes, format_count, format_seconds, format_share

STEP_SECONDS = "step_seconds"
TOKENS_PER_SECOND = "tokens_per_second"
CALIBRATED_STEP = "calibrated_step"  # not a quantity: step_seconds by the calibrated clock (statistics.py)
EVALUATION_LOSS = "evaluation_loss"
FINAL_LOSS = "final_loss"
PairedTrials = Literal[
    "steps",  # step by step, because both trials of a pair have the same rows
    "trials",  # one value per trial
    "derived",  # from the time per step
    "seeds",  # one value per seed: repeats of a seed are the same training
]
_ROW_MEANS = ("accuracy", "subset_accuracy", "exact_match", "numeric", "rouge")
_LOOKED_AT_FIRST = ("accuracy", "micro_f1", "pearson", "f1", "em", "numeric_em", "bleu", "chrf")
_TIME_FLOOR = 0.025
_BYTES_FLOOR = 0.01


@dataclass(frozen=True)
class Quantity:
    name: str
    label: str  # in the heading of a table
    about: str  # its definition
    unit: str  # of the number in files
    format: Callable[[float], str]
    higher_is_better: bool | None  # None: neither
    pairing: PairedTrials = "trials"
    floor: float = 0.0

    @property
    def is_exact(self) -> bool:
        """Bytes of tensors are counted, not sampled, and the same in every repeat: one value is enough."""
        return self.name == "allocated_bytes"

    @property
    def noise_is_shared(self) -> bool:
        """Times vary with the machine, which is the same for all candidates; bytes with the candidate."""
        return self.unit != "B"


def _format_energy(joules: float) -> str:
    """'740 J', '12.5 kJ', '1.30 kWh'."""
    if joules >= 3.6e6:
        return f"{joules / 3.6e6:.2f} kWh"
    return f"{joules / 1000:.1f} kJ" if joules >= 999.5 else f"{joules:.0f} J"


_timed = partial(Quantity, higher_is_better=None, floor=_TIME_FLOOR)
_bytes = partial(
    Quantity, unit="B", format=partial(format_bytes, precise=True), higher_is_better=False, floor=_BYTES_FLOOR
)
_loss = partial(Quantity, unit="", format="{:.4f}".format, higher_is_better=False, pairing="seeds")
_TABLE = (
    _timed(
        STEP_SECONDS,
        "time per step",
        "of the baseline the median over the steps after warm-up; of other candidates that, times the ratio measured "
        "pair by pair",
        unit="s",
        format=partial(format_seconds, precise=True),
        higher_is_better=False,
        pairing="steps",
    ),
    _timed(
        TOKENS_PER_SECOND,
        "tokens/s",
        "real source and target tokens per step, divided by the time per step",
        unit="1/s",
        format=format_count,
        higher_is_better=True,
        pairing="derived",
    ),
    _bytes("allocated_bytes", "peak memory", "of tensors; on a CPU measured in the largest steps"),
    _bytes("reserved_bytes", "reserved memory", "peak memory that torch's allocator reserves on a GPU"),
    _bytes("resident_bytes", "resident memory", "peak resident memory of the run's processes on the host, whole run"),
    _timed(
        "gpu_busy_share",
        "GPU busy",
        "share of the time with a running kernel, mean over the GPUs, after warm-up",
        unit="share",
        format=format_share,
    ),
    _timed(
        "cores_used", "cores used", "by the run's processes, mean after warm-up", unit="cores", format="{:.2f}".format
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
        "GPU temperature",
        "highest of all GPUs, after warm-up",
        unit="°C",
        format="{:.0f} °C".format,
    ),
    _loss(FINAL_LOSS, "training loss", "mean over the last tenth of the steps"),
    _loss(EVALUATION_LOSS, "validation loss", "of the last evaluation"),
)
QUANTITIES: dict[str, Quantity] = {quantity.name: quantity for quantity in _TABLE}


def find_quantity(name: str) -> Quantity:
    """A name that is not in the table is that of a metric's score."""
    if name in QUANTITIES:
        return QUANTITIES[name]
    better = None if metric_of_score(name) is None else higher_is_better(name)
    label, written = name.replace("_", " "), partial(format_score, name)
    return Quantity(name, label, "score of the last evaluation", "", written, better, pairing="seeds")


def format_ratio(share: float) -> str:
    """In whole per cent: it is the ratio of two numbers with three digits."""
    return f"{100 * share:.0f}%"


def is_row_mean(name: str) -> bool:
    """Whether a score is a mean over rows of values from 0 to 100, so that the number of rows bounds its error."""
    return name in ("em", "f1") or metric_of_score(name) in _ROW_MEANS


def in_display_order(names: Iterable[str]) -> list[str]:
    """Those of the table, then scores by name."""
    given = set(names)
    return [name for name in QUANTITIES if name in given] + sorted(given - set(QUANTITIES))


def choose_memory(figures: Iterable[Collection[str]]) -> str | None:
    """Allocated if all candidates that have figures have it, else that of the process."""
    given = [set(names) for names in figures if names]
    shared, any_has = (set.intersection(*given), set.union(*given)) if given else (set(), set())
    kinds = ("allocated_bytes", "resident_bytes")
    return next((name for names in (shared, any_has) for name in kinds if name in names), None)


def choose_score(names: Iterable[str]) -> str | None:
    """The score to look at first: that of a metric, else the validation loss."""
    scores = [name for name in in_display_order(names) if metric_of_score(name) is not None]
    preferred = [name for name in _LOOKED_AT_FIRST if name in scores]
    return next(iter((*preferred, *scores)), EVALUATION_LOSS if EVALUATION_LOSS in set(names) else None)
