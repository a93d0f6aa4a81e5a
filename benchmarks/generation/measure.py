"""Rows per second of generation, and whether the texts are the same: seqfit and transformers' `generate`.

    python benchmarks/generation/measure.py                                     # t5-small's shape, real lengths
    python benchmarks/generation/measure.py --run runs/demo --rows 500          # a trained model, its validation rows
    python benchmarks/generation/measure.py --table                             # README.md from existing results

`generate` is called as `predict_with_generate` calls it: rows in the order of the file, 8 per batch (the Trainer's
default), padded to the longest of the batch. Both sides take turns in one process with one thread, and what counts is
the processor time of the process, so that other programs on the machine change it little.
"""

from __future__ import annotations

import argparse
import gzip
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import LogitsProcessor, LogitsProcessorList

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))  # so that `benchmarks` can be imported as a script, too

from benchmarks.engine.rows import find_data
from benchmarks.engine.table import describe_in_words, describe_machine, read_results, update_readme, write_results
from benchmarks.evaluation import sides
from benchmarks.evaluation.sides import RecordingTokenizer, strip
from seqfit.data import prepare_data
from seqfit.generation import GenerationOptions, Generator, generate_candidates, generate_split
from seqfit.model import Checkpoint
from seqfit.model.load import load_model, load_tokenizer
from seqfit.recipe.load import load_recipe
from seqfit.rundir import Run
from seqfit.step.precision import Precision

HERE = Path(__file__).parent
FP32 = Precision("fp32", torch.device("cpu"), "both sides")
TITLES = {"squad-es": "SQuAD-es", "dialogsum": "DialogSum", "multi30k": "multi30k en-de"}
MUST_REACH = {1: 4.0, 4: 2.0}
TRAINER_ROWS = 8
HEADER = ["model", "data", "search", "rows", "tokens per text", "ratio", "must reach", "", "same text", "score differs"]


@dataclass(frozen=True)
class Case:
    """A model and its rows. Random weights write texts as long as the targets: forced, because they would never end."""

    name: str
    model: Any
    tokenizer: Any
    sources: list[np.ndarray]
    lengths: list[int] | None  # of the texts; None: a trained model ends them
    max_new_tokens: int


def main() -> None:
    """Measure, and write the table."""
    parser = argparse.ArgumentParser(description="Compares generation.")
    parser.add_argument("--data", nargs="+", choices=list(TITLES), default=list(TITLES))
    parser.add_argument("--run", help="a run of seqfit: its model, its validation rows")
    parser.add_argument("--beams", nargs="+", type=int, default=[1, 4])
    parser.add_argument("--rows", type=int, default=64)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--results", type=Path, default=HERE / "results")
    parser.add_argument("--table", action="store_true")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    cases = [] if arguments.table else list_cases(arguments)
    for build in cases:
        case = build()
        for beams in arguments.beams:
            measured = measure(case, beams, arguments.repeats)
            print(json.dumps(measured))
            file = f"{case.name}-{beams}.jsonl".replace(" ", "-")
            write_results(arguments.results / file, describe_machine(1), [measured])
    shown = format_table(arguments.results)
    print(shown)
    if arguments.results == HERE / "results":
        update_readme(HERE / "README.md", shown)


def list_cases(arguments: argparse.Namespace) -> list[Callable[[], Case]]:
    """Each is built when it is its turn."""
    if arguments.run:
        return [lambda: load_run(Path(arguments.run), arguments.rows)]
    return [lambda name=name: load_random(name, arguments.rows) for name in arguments.data]


def load_random(name: str, rows: int) -> Case:
    """t5-small's shape, real texts."""
    work = Path(tempfile.gettempdir()) / "seqfit-evaluation-benchmark"
    if name == "multi30k":
        sides.DATA[name] = ("t5-summarize", str(write_pairs(work)))
    run = sides.Run("ours", name, rows, str(work))
    sides.prepare(run)
    tokenizer, model = load_tokenizer(run.model), load_model(run.model).eval()
    found = sides.load_rows(run, tokenizer)
    pairs = [found.split.token_ids(int(row)) for row in found.rows]
    sources, targets = [np.array(source) for source, _ in pairs], [len(target) for _, target in pairs]
    return Case(f"t5-small {TITLES[name]}", model, tokenizer, sources, targets, found.max_new_tokens)


def write_pairs(work: Path) -> Path:
    """multi30k's test rows under the names that the summarization recipe reads."""
    folder = work / "multi30k"
    folder.mkdir(parents=True, exist_ok=True)
    sides_of = [
        gzip.decompress(find_data(f"multi30k/test_2016_flickr.{language}.gz").read_bytes()).decode("utf-8").splitlines()
        for language in ("en", "de")
    ]
    rows = [{"dialogue": english, "summary": german} for english, german in zip(*sides_of, strict=True)]
    for split in ("train", "validation", "test"):
        (folder / f"{split}.jsonl").write_text("\n".join(map(json.dumps, rows)) + "\n", "utf-8")
    return folder


def load_run(path: Path, rows: int) -> Case:
    """A trained model, on validation rows of its data."""
    run = Run(path)
    checkpoint, recipe = Checkpoint.load(run.checkpoint), load_recipe(run.recipe)
    data = prepare_data(recipe, checkpoint.tokenizer, ("train", "validation"), allow_bad_rows=True)
    split = data.splits["validation"]
    if len(split) < rows:
        split = data.splits["train"]
    chosen = np.linspace(0, len(split) - 1, min(rows, len(split))).round().astype(np.int64)
    sources = [np.array(split.token_ids(int(row))[0]) for row in chosen]
    limit = checkpoint.metadata.max_new_tokens
    return Case(f"trained {path.name}", checkpoint.model.eval(), checkpoint.tokenizer, sources, None, limit)


def measure(case: Case, beams: int, repeats: int) -> dict[str, Any]:
    """Both sides in turn."""
    ours, theirs = build_ours(case, beams), build_theirs(case, beams)
    short = replace(case, sources=case.sources[:8], lengths=case.lengths and case.lengths[:8])
    build_ours(short, beams)(), build_theirs(short, beams)()
    seconds: dict[str, list[float]] = {"ours": [], "theirs": []}
    for _ in range(repeats):
        for name, side in (("ours", ours), ("theirs", theirs)):
            started = time.process_time()
            found = side()
            seconds[name].append(time.process_time() - started)
            if name == "ours":
                own = found
    texts = [text for text, _ in own]
    gaps = [abs(one - other) for (_, one), (_, other) in zip(own, found, strict=True) if None not in (one, other)]
    return {
        "case": case.name,
        "beams": beams,
        "rows": len(texts),
        "tokens": statistics.fmean(map(len, texts)),
        "seconds": seconds,
        "same": sum(one == other for (one, _), (other, _) in zip(own, found, strict=True)),
        "gap": max(gaps, default=None),
    }


def build_ours(case: Case, beams: int) -> Callable[[], list[tuple[list[int], float | None]]]:
    """Ids of each row's best text, with its score."""
    recorder = RecordingTokenizer(case.tokenizer)
    generator = Generator(case.model, recorder, FP32, beams, case.max_new_tokens, 8192)
    if beams > 1:
        generator = generator.with_options(
            GenerationOptions(beams=beams, early_stopping=case.lengths is not None), scored=True
        )
    if case.lengths is not None:
        generator = replace(generator, force_lengths=True)
        split, rows = _Split(case.sources, case.lengths), np.arange(len(case.sources))
        found = lambda: generate_split(generator, split, rows)  # noqa: E731
        if beams == 1:
            return lambda: [(recorder.ids[text], None) for text in found().texts]
        return lambda: [(recorder.ids[own[0].text], own[0].score) for own in found().candidates]
    assert generator.fallback is None
    if beams == 1:
        return lambda: [(recorder.ids[text], None) for text in _texts(generator, case.sources)]
    return lambda: [(recorder.ids[own[0].text], own[0].score) for own in generate_candidates(generator, case.sources)]


def _texts(generator: Generator, sources: list[np.ndarray]) -> list[str]:
    from seqfit.generation import generate_sources

    return generate_sources(generator, sources)


class _Split:
    """Sources with the lengths of their texts, and no targets: nothing is scored on either side."""

    def __init__(self, sources: list[np.ndarray], lengths: list[int]) -> None:
        self._sources = sources
        self.weights = [1.0]
        self.source_lengths = np.array(list(map(len, sources)), dtype=np.int32)
        self.target_lengths = np.array(lengths, dtype=np.int32)
        self.source_index = np.zeros_like(self.source_lengths)

    def token_ids(self, row: int) -> tuple[np.ndarray, np.ndarray]:
        """No target."""
        return self._sources[row], np.array([], dtype=np.int64)

    def label(self, _row: int) -> int:
        """No class."""
        return -1

    def target_language(self, _row: int) -> None:
        """No language."""


class _ForcedLengths(LogitsProcessor):
    """The end token at each row's length with the log-probability 0, and not before."""

    def __init__(self, lengths_H: torch.Tensor) -> None:
        self._lengths_H = lengths_H

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        """The next token is number input_ids.shape[1], because the start token does not count."""
        scores[:, sides.END] = -torch.inf
        ending_H = self._lengths_H == input_ids.shape[1]
        scores[ending_H] = -torch.inf
        scores[ending_H, sides.END] = 0.0
        return scores


@torch.inference_mode()
def _generate_batch(case: Case, beams: int, first: int) -> list[tuple[list[int], float | None]]:
    sources = case.sources[first : first + TRAINER_ROWS]
    longest = max(map(len, sources))
    ids = torch.zeros((len(sources), longest), dtype=torch.long)
    mask = torch.zeros_like(ids)
    for row, source in enumerate(sources):
        ids[row, : len(source)], mask[row, : len(source)] = torch.from_numpy(source.astype(np.int64)), 1
    settings: dict[str, Any] = {"num_beams": beams, "do_sample": False, "max_new_tokens": case.max_new_tokens}
    if case.lengths is not None:
        forced = _ForcedLengths(torch.tensor(case.lengths[first : first + TRAINER_ROWS]).repeat_interleave(beams))
        settings |= {"logits_processor": LogitsProcessorList([forced])}
        settings |= {"early_stopping": True} if beams > 1 else {}
    out = case.model.generate(
        input_ids=ids, attention_mask=mask, return_dict_in_generate=True, output_scores=beams > 1, **settings
    )
    scores = out.sequences_scores.tolist() if beams > 1 else [None] * len(sources)
    return [(strip(own), score) for own, score in zip(out.sequences.tolist(), scores, strict=True)]


def build_theirs(case: Case, beams: int) -> Callable[[], list[tuple[list[int], float | None]]]:
    """In the order of the file."""

    def run() -> list[tuple[list[int], float | None]]:
        starts = range(0, len(case.sources), TRAINER_ROWS)
        return [one for first in starts for one in _generate_batch(case, beams, first)]

    return run


def format_table(results: Path) -> str:
    """The rows of all cases."""
    lines = ["| " + " | ".join(HEADER) + " |", "|" + "---|" * len(HEADER)]
    machine: dict[str, Any] | None = None
    for file in sorted(results.glob("*.jsonl")):
        machine, (one,) = read_results(file)
        model, data = one["case"].split(" ", 1)
        ratios = [theirs / ours for ours, theirs in zip(one["seconds"]["ours"], one["seconds"]["theirs"], strict=True)]
        ratio, least = statistics.median(ratios), MUST_REACH[one["beams"]]
        search = "greedy" if one["beams"] == 1 else f"{one['beams']} beams"
        cells = [model, data, search, str(one["rows"]), f"{one['tokens']:.1f}"]
        cells += [f"{ratio:.2f} ({min(ratios):.2f}-{max(ratios):.2f})", f"{least:g}"]
        cells += ["reached" if ratio >= least else "not reached", f"{one['same']} of {one['rows']}"]
        cells += ["" if one["gap"] is None else f"{one['gap']:.1e}"]
        lines.append("| " + " | ".join(cells) + " |")
    described = "nothing yet" if machine is None else describe_in_words(machine)
    return "\n".join([*lines, "", f"On: {described}, shared with other work while this was measured."])


if __name__ == "__main__":
    main()
