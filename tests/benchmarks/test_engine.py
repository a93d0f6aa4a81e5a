"""The harness: that both sides do the same work, and that the table says what was measured."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils.flop_counter import FlopCounterMode
from transformers import T5Config, T5ForConditionalGeneration

from benchmarks.engine import sides, table, workloads
from benchmarks.engine.flops import count_step_flops
from benchmarks.engine.judge import JUDGES, judge
from benchmarks.engine.long_source import LiveBytes, estimate_stock_peak_bytes, measure_attention_seconds
from benchmarks.engine.questions import QUESTIONS, list_runs
from benchmarks.engine.sides import Run, load_run, measure_side, prepare
from benchmarks.engine.workloads import Workload
from benchmarks.trainer import choose_grouped_batches, to_feature

SHAPE = {"vocab_size": 100, "d_model": 32, "d_kv": 8, "num_heads": 4, "d_ff": 64, "num_layers": 2}
SHAPE |= {"feed_forward_proj": "gated-gelu", "dropout_rate": 0.1, "decoder_start_token_id": 0}


@pytest.fixture
def tiny_run(
    tmp_path: Path, tiny_model: Callable[[str], Path], tiny_tokenizer: Path, monkeypatch: pytest.MonkeyPatch
) -> Run:
    """A run of a tiny model over 40 short rows, without dropout."""
    rows = [{"text": " ".join(f"w{3 + (row * word) % 90}" for word in range(1, 3 + row % 9))} for row in range(40)]
    data = tmp_path / "rows.jsonl"
    data.write_text("".join(json.dumps(row | {"answer": row["text"][:6]}) + "\n" for row in rows))
    task = {"name": "qa", "source": "{text}", "target": "{answer}"}
    tiny = Workload("tiny", task, "rows.jsonl", (12, 4), batch_examples=4, make=lambda *_: None)
    monkeypatch.setitem(workloads.WORKLOADS, "tiny", tiny)
    monkeypatch.setattr(workloads, "locate_tokenizer", lambda *_: tiny_tokenizer)
    (tmp_path / "tiny").symlink_to(tiny_model("t5"))
    return Run("ours", "tiny", 1, 3, 1, str(tmp_path), strategy=("batching=grouped",), dropout=0.0)


@pytest.mark.parametrize("side", ["dynamic", "dynamic-8", "max_length"])
def test_both_sides_have_the_same_rows_and_losses_at_every_step(tiny_run: Run, side: str) -> None:
    theirs_run = replace(tiny_run, side=side)
    prepare([tiny_run, theirs_run])
    ours, theirs = measure_side(tiny_run), measure_side(theirs_run)
    assert ours["real_tokens"] == theirs["real_tokens"]
    assert ours["losses"] == pytest.approx(theirs["losses"], rel=1e-5)
    assert len(ours["seconds"]) == len(theirs["seconds"]) == 4
    if side == "max_length":
        padded = [real + more for real, more in zip(theirs["real_tokens"], theirs["padded_tokens"], strict=True)]
        assert padded == [4 * (12 + 4)] * 4


def test_both_sides_agree_past_the_smaller_last_batch_of_an_epoch(tiny_run: Run) -> None:
    ours_run = replace(tiny_run, repeat=0, warmup=0, steps=5, batch_examples=12)  # 40 rows: 12 12 12 4, then 12
    theirs_run = replace(ours_run, side="dynamic")
    prepare([ours_run, theirs_run])
    ours, theirs = measure_side(ours_run), measure_side(theirs_run)
    assert ours["real_tokens"] == theirs["real_tokens"]
    assert ours["losses"] == pytest.approx(theirs["losses"], rel=1e-5)


def test_repeats_take_different_batches(tiny_run: Run) -> None:
    first, second = (replace(tiny_run, side="dynamic", repeat=repeat) for repeat in (0, 1))
    prepare([first, second])
    rows = [[row for batch in json.loads(run.batches_path().read_text()) for row in batch] for run in (first, second)]
    assert len(rows[0]) == len(rows[1]) == 16
    assert rows[0] != rows[1]


def test_matmul_is_measured_after_every_step_at_two_sizes(tiny_run: Run) -> None:
    measured = measure_side(replace(tiny_run, warmup=0, steps=2, matmul=True))
    assert len(measured["matmul"]) == 2
    assert all(len(sizes) == 2 and min(sizes.values()) > 0 for sizes in measured["matmul"])


def test_a_run_survives_its_way_to_another_process(tiny_run: Run) -> None:
    assert load_run(tiny_run.to_json()) == tiny_run


def test_a_vocabulary_that_was_not_trimmed_is_no_result(tiny_run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    job, data = sides.build(tiny_run)
    monkeypatch.setattr(sides, "build", lambda _: (job, data))
    monkeypatch.setitem(workloads.MODELS, "tiny", {"vocab_size": 100})
    with pytest.raises(SystemExit, match="left the vocabulary as it was"):
        measure_side(replace(tiny_run, trim=True))


def test_max_length_features_are_padded_on_both_sides() -> None:
    feature = to_feature(([5, 6, 1], [8, 1]), (5, 3), 0)
    assert feature == {"input_ids": [5, 6, 1, 0, 0], "attention_mask": [1, 1, 1, 0, 0], "labels": [8, 1, -100]}


def test_grouped_batches_are_of_like_lengths_and_cover_all_of_them() -> None:
    lengths = [10 + (row * 37) % 400 for row in range(4000)]
    warmup, *batches = choose_grouped_batches(lengths, 16, warmup=1, steps=5, seed=0)
    means = [sum(lengths[row] for row in batch) / 16 for batch in batches]
    assert means == sorted(means, reverse=True)
    assert means[0] > 330
    assert means[-1] < 90
    assert all(max(lengths[row] for row in batch) - min(lengths[row] for row in batch) < 20 for batch in batches)
    assert len(warmup) == 16


def test_the_operations_counted_are_those_that_torch_counts() -> None:
    model = T5ForConditionalGeneration(T5Config(**SHAPE))
    source_ids, labels = torch.ones(1, 11, dtype=torch.long), torch.ones(1, 1, dtype=torch.long)
    with FlopCounterMode(display=False) as counter:
        model(input_ids=source_ids, labels=labels, use_cache=False).loss.backward()
    assert count_step_flops(SHAPE, [(11, 1)]) == counter.get_total_flops()


def test_live_bytes_fall_when_a_tensor_dies() -> None:
    memory = LiveBytes()
    with FakeTensorMode(), memory:
        first = torch.empty(1024)
        second = first + 1
        del first
        third = second + 1
        assert memory.live_bytes == second.nbytes + third.nbytes
    assert memory.peak_bytes == 2 * 4096


def test_stock_memory_grows_with_the_square_of_the_source() -> None:
    config = {"model_type": "t5", **SHAPE}
    short, middle, long = (estimate_stock_peak_bytes(config, source, 4) for source in (512, 1024, 2048))
    assert 3.5 < (long - middle) / (middle - short) < 4.1


def test_attention_alone_is_timed_for_both() -> None:
    seconds = measure_attention_seconds(SHAPE, 600, 4)
    assert seconds.keys() == {"stock", "ours"}
    assert min(seconds.values()) > 0


def make_result(side: str, seconds: list[float], **more: Any) -> dict[str, Any]:
    settings = {"workload": "squad-es", "warmup": 1, "steps": 2, "examples": 16, "matmul": [], "learning_rate": 1e-4}
    return settings | {"side": side, "seconds": seconds, "real_tokens": [100] * len(seconds)} | more


def test_warm_up_is_left_out_and_medians_are_compared() -> None:
    ours = [make_result("ours", [50.0, each, each]) for each in (1.0, 1.1, 9.0)]
    theirs = [make_result("dynamic", [1.0, each, each]) for each in (2.2, 2.75, 2.75)]
    (answer,) = judge("squad-dynamic", [*ours, *theirs])
    assert answer.measured == "2.50x"
    assert answer.reached
    assert answer.runs == "3 x 2 steps of 16"


def test_the_faster_of_two_baselines_counts() -> None:
    results = [
        make_result("ours", [1.0, 1.0]),
        make_result("dynamic", [1.0, 3.0]),
        make_result("dynamic-8", [1.0, 2.0]),
    ]
    assert judge("gsm8k-dynamic", results)[0].measured == "2.00x"


def test_flops_are_a_share_of_the_best_matmul_rate() -> None:
    matmul = [{"900": 50.0, "4096": 100.0}] * 3
    ours = make_result("ours", [9.0, 2.0, 2.0], flops=[999, 160, 160], matmul=matmul)
    _, share = judge("squad-dynamic", [ours, make_result("dynamic", [9.0, 4.0, 4.0])])
    assert share.measured == "80.0%"
    assert share.reached


def test_memory_that_is_slower_than_the_baseline_is_reported() -> None:
    peaks = {"before_bytes": 0}
    ours = make_result("ours", [1.0, 2.0], peak_bytes=400, **peaks)
    speed, memory = judge("memory-512", [ours, make_result("dynamic", [1.0, 1.0], peak_bytes=1000, **peaks)])
    assert (memory.measured, memory.reached) == ("0.40x", True)
    assert (speed.measured, speed.reached) == ("0.50x", False)


def test_losses_on_other_tokens_do_not_agree() -> None:
    ours = make_result("ours", [1.0, 1.0], losses=[2.0, 1.0])
    theirs = make_result("dynamic", [1.0, 1.0], losses=[2.0, 1.00001])
    assert judge("losses", [ours, theirs])[0].reached
    assert not judge("losses", [ours, theirs | {"real_tokens": [100, 99]}])[0].reached
    assert not judge("losses", [ours, theirs | {"losses": [2.0, 1.001]}])[0].reached


def test_the_baseline_against_itself_has_no_target() -> None:
    one, two = (make_result(side, [1.0], losses=[2.0]) for side in ("dynamic", "dynamic-8"))
    (answer,) = judge("losses", [one, two])
    assert answer.reached is None
    assert table.format_row(answer).endswith("|  |  |")


def test_growth_is_the_largest_change_from_the_fewest_rows() -> None:
    results = [
        make_result("ours", [1.0, each], workload=f"rows-{rows}")
        for rows, each in ((1_000, 1.0), (10_000, 0.94), (100_000, 1.02))
    ]
    (answer,) = judge("growth", results)
    assert (answer.measured, answer.reached) == ("6.0%", False)


def test_a_long_source_is_held_to_short_rows_and_the_attention() -> None:
    sizes = {"before_bytes": 0, "peak_bytes": 6 * 1024**3}
    long = make_result("ours", [90.0, 60.0], workload="base-4096", real_tokens=[4160] * 2, **sizes)
    short = make_result("ours", [90.0, 30.0], workload="base-512", real_tokens=[4096] * 2, **sizes)
    other = {"workload": "base-4096"}
    stock, attention = (
        {"side": "stock", "peak_bytes": 34 * 1024**3} | other,
        {"side": "attention", "attention_seconds": {"stock": 99.0, "ours": 20.0}} | other,
    )
    memory, seconds = judge("long-source", [long, short, attention, stock])
    assert (memory.measured, memory.reached) == ("0.17x", True)
    assert (seconds.measured, seconds.reached) == ("1.20x", True)


def test_every_question_has_a_judge_and_its_sides_take_turns() -> None:
    assert QUESTIONS.keys() == JUDGES.keys()
    runs = list_runs(QUESTIONS["squad-dynamic"], work="w", strategy=())
    assert [(run.side, run.repeat) for run in runs[:4]] == [("ours", 0), ("dynamic", 0), ("ours", 1), ("dynamic", 1)]


def test_the_table_replaces_what_is_between_the_markers(tmp_path: Path) -> None:
    results = [make_result("ours", [1.0, 1.0]), make_result("dynamic", [1.0, 2.0])]
    machine = table.describe_machine(threads=2) | {"took_seconds": 90.0}
    table.write_results(tmp_path / "squad-dynamic.jsonl", machine, results)
    readme = tmp_path / "README.md"
    readme.write_text(f"before\n{table.BEGIN}\nold\n{table.END}\nafter\n")
    table.update_readme(readme, table.format_table(tmp_path))
    text = readme.read_text()
    assert "2.00x | 2.3x | **not reached** |" in text
    assert "It took 1 min 30 s in all" in text
    assert "old" not in text
    assert text.startswith("before\n")
    assert text.endswith("after\n")
