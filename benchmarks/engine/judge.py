"""Answers the questions from what the processes measured: results in, rows of the table out.

    ours     repeats of 1200, 1180, 1210 tokens/s   median 1200
    Trainer  repeats of  500,  490,  510            median  500      ratio 2.40, must reach 2.3: reached

A rate is the real tokens of a repeat's measured steps by their seconds, warm-up left out, the same count on both
sides. Ratios are those of the medians; the spread beside a median is the lowest and highest repeat.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from seqfit.units import format_bytes, format_count, format_seconds, format_share

Result = dict[str, Any]
LOSS_TOLERANCE = 1e-4
STOCK_PEAK_BYTES = int(34.4 * 1024**3)  # the figure, by fake execution


@dataclass(frozen=True)
class Answer:
    """One row of the table."""

    question: str
    runs: str
    ours: str
    baseline: str
    measured: str
    target: str
    reached: bool | None  # None: there to compare with


def judge(name: str, results: Sequence[Result]) -> list[Answer]:
    """The rows of one question."""
    return JUDGES[name](results)


def take(results: Iterable[Result], side: str, workload: str | None = None) -> list[Result]:
    """The results of one side."""
    return [result for result in results if result["side"] == side and workload in (None, result["workload"])]


def rate(result: Result) -> float:
    """Real tokens a second over the measured steps."""
    first = result["warmup"]
    return float(sum(result["real_tokens"][first:]) / sum(result["seconds"][first:]))


def median_rate(results: Sequence[Result]) -> float:
    """Over the repeats."""
    return statistics.median(map(rate, results))


def peak_bytes(results: Sequence[Result]) -> float:
    """Median peak over the repeats."""
    return float(statistics.median(result["peak_bytes"] for result in results))


def show_rates(results: Sequence[Result]) -> str:
    """'1200 tokens/s (1180 to 1210)'."""
    rates = [rate(result) for result in results]
    low, high = format_count(min(rates)), format_count(max(rates))
    return f"{format_count(statistics.median(rates))} tokens/s ({low} to {high})"


def show_peaks(results: Sequence[Result]) -> str:
    """'2.1 GiB (1.6 GiB without what there was before the model)'."""
    own = statistics.median(result["peak_bytes"] - result["before_bytes"] for result in results)
    return f"{format_bytes(peak_bytes(results))} ({format_bytes(own)} from the model on)"


def show_runs(results: Sequence[Result]) -> str:
    """'5 x 2 steps of 16': repeats, measured steps of each, examples of a global batch."""
    return f"{len(results)} x {results[0]['steps']} steps of {results[0]['examples']}"


def best_baseline(results: Sequence[Result]) -> list[Result]:
    """Of several ways to run the Trainer, the fastest."""
    sides = [name for name in dict.fromkeys(result["side"] for result in results) if name != "ours"]
    return max((take(results, side) for side in sides), key=median_rate)


def judge_speed(title: str, least: float) -> Callable[[Sequence[Result]], list[Answer]]:
    """At least so many times the Trainer's rate."""

    def answer(results: Sequence[Result]) -> list[Answer]:
        ours, baseline = take(results, "ours"), best_baseline(results)
        ratio = median_rate(ours) / median_rate(baseline)
        return [
            Answer(
                title,
                show_runs(ours),
                show_rates(ours),
                show_rates(baseline),
                f"{ratio:.2f}x",
                f"{least:g}x",
                ratio >= least,
            ),
            *judge_flops(title, ours),
        ]

    return answer


def judge_flops(title: str, ours: Sequence[Result]) -> list[Answer]:
    """Where torch.mm was measured between the steps: the share of its rate that the model's operations reach."""
    if not ours[0]["matmul"]:
        return []
    shares, matmul = [], []
    for result in ours:
        first = result["warmup"]
        rates = result["matmul"][first:]
        sizes = zip(*(list(step.values()) for step in rates), strict=True)  # the micro-batch's size, and 4,096
        matmul.append(max(statistics.median(size) for size in sizes))
        shares.append(sum(result["flops"][first:]) / sum(result["seconds"][first:]) / matmul[-1])
    share = statistics.median(shares)
    spread = f"{format_share(min(shares))} to {format_share(max(shares))}"
    rate_shown = f"torch.mm: {format_count(statistics.median(matmul))} FLOP/s"
    name = f"model FLOPs of it as a share of torch.mm's ({title.split(',')[0]})"
    return [Answer(name, show_runs(ours), spread, rate_shown, format_share(share), "75%", share >= 0.75)]


def judge_memory(
    title: str, most: float, *, speed: float, speed_title: str
) -> Callable[[Sequence[Result]], list[Answer]]:
    """At most so much of the Trainer's peak, at so many times its speed."""

    def answer(results: Sequence[Result]) -> list[Answer]:
        ours, baseline = take(results, "ours"), best_baseline(results)
        share = peak_bytes(ours) / peak_bytes(baseline)
        memory = Answer(
            title,
            show_runs(ours),
            show_peaks(ours),
            show_peaks(baseline),
            f"{share:.2f}x",
            f"{most:g}x at most",
            share <= most,
        )
        return [*judge_speed(speed_title, speed)(results), memory]

    return answer


def judge_long_source(results: Sequence[Result]) -> list[Answer]:
    """Memory against stock T5's by fake execution, time against 8 rows of 512 plus the attention alone."""
    long, short = take(results, "ours", "base-4096"), take(results, "ours", "base-512")
    stock = take(results, "stock")[0]["peak_bytes"]
    share = peak_bytes(long) / STOCK_PEAK_BYTES
    measured = [result["attention_seconds"] for result in take(results, "attention")]
    attention = min(statistics.median(kinds[kind] for kinds in measured) for kind in ("stock", "ours"))
    expected = 4096 / median_rate(short) + attention
    taken = statistics.median(sum(result["seconds"][result["warmup"] :]) for result in long)
    return [
        Answer(
            "peak memory of a t5-base step, source 4,096, target 64",
            show_runs(long),
            show_peaks(long),
            f"{format_bytes(STOCK_PEAK_BYTES)} (counted here: {format_bytes(stock)})",
            f"{share:.2f}x",
            "0.2x at most",
            share <= 0.2,
        ),
        Answer(
            "its time, against 4,096 tokens in rows of 512 plus the attention alone",
            show_runs(long),
            format_seconds(taken),
            f"{format_seconds(expected)}, of it attention {format_seconds(attention)}",
            f"{taken / expected:.2f}x",
            "1.5x at most",
            taken / expected <= 1.5,
        ),
    ]


def judge_growth(results: Sequence[Result]) -> list[Answer]:
    """Time per real token at each number of rows; loading is in it."""
    workloads = list(dict.fromkeys(result["workload"] for result in results))
    seconds = {name: 1 / median_rate(take(results, "ours", name)) for name in workloads}
    shown = [f"{format_count(int(name.removeprefix('rows-')))}: {1e6 * seconds[name]:.0f} µs" for name in workloads]
    change = max(abs(value / seconds[workloads[0]] - 1) for value in seconds.values())
    title = "time per real token by the number of rows"
    runs = show_runs(take(results, "ours", workloads[0]))
    return [Answer(title, runs, ", ".join(shown[1:]), shown[0], format_share(change), "5% at most", change <= 0.05)]


def judge_losses(results: Sequence[Result]) -> list[Answer]:
    """Ours against the Trainer's, and where it ran padded in two ways, the Trainer against itself.

    The latter changes nothing but rounding. It says how far AdamW carries two equal runs apart.
    """
    pairs = [
        (one, two)
        for one in results
        for two in results
        if one["workload"] == two["workload"] and (one["side"], two["side"]) in _COMPARED
    ]
    return [_compare_losses(one, two) for one, two in pairs]


_COMPARED = (("ours", "dynamic"), ("ours", "max_length"), ("dynamic-8", "dynamic"), ("max_length", "dynamic"))


def _compare_losses(one: Result, two: Result) -> Answer:
    pairs = list(zip(one["losses"], two["losses"], strict=True))
    difference = max(abs(left - right) / abs(right) for left, right in pairs)
    same_tokens = one["real_tokens"] == two["real_tokens"]
    is_ours = one["side"] == "ours"
    left = "" if is_ours else f"the Trainer against itself: {one['side']} and "
    exact = " in float64" if one.get("float64") else ""
    return Answer(
        f"losses{exact} without dropout, {one['workload']}, {left}{two['side']} padding, rate {one['learning_rate']:g}",
        show_runs([one]),
        f"{pairs[0][0]:.4f} to {pairs[-1][0]:.4f}",
        f"{pairs[0][1]:.4f} to {pairs[-1][1]:.4f}",
        f"{difference:.1e} apart" + ("" if same_tokens else ", on other tokens"),
        f"{LOSS_TOLERANCE:g} at most" if is_ours else "",
        difference <= LOSS_TOLERANCE and same_tokens if is_ours else None,
    )


JUDGES: dict[str, Callable[[Sequence[Result]], list[Answer]]] = {
    "squad-dynamic": judge_speed("SQuAD-es (T5's tokenizer), dynamic padding", 2.3),
    "squad-grouped": judge_speed("SQuAD-es (T5's tokenizer), grouped by length", 1.3),
    "squad-max-length": judge_speed("SQuAD-es (T5's tokenizer), padded to 512/128", 3.5),
    "words-dynamic": judge_speed("SQuAD-es (mT5's lengths), dynamic padding", 2.3),
    "words-grouped": judge_speed("SQuAD-es (mT5's lengths), grouped by length", 1.3),
    "words-max-length": judge_speed("SQuAD-es (mT5's lengths), padded to 512/128", 3.5),
    "gsm8k-max-length": judge_speed("GSM8K, padded to 512/512", 8),
    "gsm8k-dynamic": judge_speed("GSM8K, dynamic padding", 1.8),
    "dialogsum-dynamic": judge_speed("DialogSum, dynamic padding", 1.8),
    "mt5-trimmed": judge_memory(
        "its peak memory", 0.3, speed=4, speed_title="mt5-small, SQuAD-es, trimmed, dynamic padding"
    ),
    "memory-512": judge_memory(
        "peak memory, t5-small, 16 x 512", 0.5, speed=1, speed_title="speed of it, 16 x 512, no padding"
    ),
    "long-source": judge_long_source,
    "growth": judge_growth,
    "losses": judge_losses,
    "words-losses": judge_losses,
    "exact-losses": judge_losses,
}
