"""Does any mix of lengths end a run? Data of generated lengths through `seqfit.train`, with everything switched on.

python benchmarks/reliability/length_mixes.py                # 60 mixes, two steps each; `--mixes 3` is a look

Lengths lie on both sides of the thresholds that change a step's path (32, 256, 512 tokens) or anywhere up to 800. Half
of the recipes leave the strategy to the plan; the others state sizes of micro-batches. A run counts as ended by its
prediction if it fails; predictions that were given up or failed are counted apart, by their events. On a busy machine
SEQFIT_PREDICTION_SECONDS=600 lets them all be made.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import tempfile
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Any

os.environ.setdefault("KINETO_LOG_LEVEL", "99")
os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")

_AROUND = (32, 256, 512)
_SHAPE = {"vocab_size": 100, "d_model": 32, "d_kv": 8, "num_heads": 4, "d_ff": 64, "num_layers": 1}
_SHAPE |= {"decoder_start_token_id": 0, "pad_token_id": 0, "eos_token_id": 1}


def main(arguments: Sequence[str] | None = None) -> None:
    """Prints a line for each mix that fails, and the sums."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--mixes", type=int, default=60)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="seqfit-mixes-") as name:
        folder = Path(name)
        os.environ["SEQFIT_CACHE"] = str(folder / "cache")
        _write_model(folder / "model")
        ended, without = 0, 0
        for number in range(given.mixes):
            failed, event = _try(folder, number, random.Random(f"{given.seed}-{number}"))
            ended += failed
            without += event is not None
            print(f"mix {number}: {'FAILED' if failed else 'finished'}{f'; {event}' if event else ''}", flush=True)
    print(f"{given.mixes} mixes: {ended} runs ended by a failure, {without} without a prediction")
    raise SystemExit(ended > 0)


def _try(folder: Path, number: int, draw: random.Random) -> tuple[bool, str | None]:
    import seqfit
    from seqfit.errors import Stopped

    try:
        run = seqfit.train(_write_mix(folder / f"mix{number}", folder / "model", draw), out=folder / f"run{number}")
    except Stopped:  # by whoever stops this benchmark
        raise
    except Exception:
        traceback.print_exc()
        return True, None
    reported = [event["message"] for event in run.events() if event["kind"] == "prediction"]
    return run.status != "finished", reported[0] if reported else None


def _write_mix(folder: Path, model: Path, draw: random.Random) -> dict[str, Any]:
    """Rows, and a recipe for them."""
    folder.mkdir()
    ranges = [_draw_range(draw, most=draw.choice((60, 300, 800))) for _ in range(2)]
    for split, count in (("train", 24), ("validation", 2)):
        rows = [[_draw_text(draw, bounds) for bounds in ranges] for _ in range(count)]
        lines = [json.dumps({"text": source, "answer": target}) for source, target in rows]
        (folder / f"{split}.jsonl").write_text("\n".join(lines), "utf-8")
    print(f"  sources {ranges[0]}, targets {ranges[1]}", flush=True)
    recipe: dict[str, Any] = {
        "model": {"path": str(model)},
        "task": {"name": "qa", "source": "{text}", "target": "{answer}"},
        "data": {"path": str(folder)},
        "train": {"steps": 2, "batch_examples": draw.choice((1, 2, 8, 16))},
        "eval": {"limit": 1, "max_new_tokens": 2},
    }
    if draw.random() < 0.5:
        recipe["strategy"] = draw.choice(
            [{"micro_batch_tokens": 4096}, {"micro_batch_examples": 3}, {"batching": "padded"}, {"attention": "sdpa"}]
        )
    return recipe


def _draw_text(draw: random.Random, bounds: tuple[int, int]) -> str:
    return " ".join(f"w{draw.randrange(3, 99)}" for _ in range(draw.randint(*bounds)))


def _draw_range(draw: random.Random, most: int) -> tuple[int, int]:
    around = draw.choice((*_AROUND, None))
    if around is None:
        low = draw.randint(1, most)
        return low, draw.randint(low, most)
    reach = draw.choice((1, 2, around // 4, around - 1))
    return max(1, around - reach), around + reach


def _write_model(folder: Path) -> None:
    from tokenizers import Tokenizer, models, pre_tokenizers, processors
    from transformers import PreTrainedTokenizerFast, T5Config, T5ForConditionalGeneration

    words = ["<pad>", "</s>", "<unk>", *(f"w{number}" for number in range(3, 100))]
    tokenizer = Tokenizer(models.WordLevel({word: number for number, word in enumerate(words)}, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.post_processor = processors.TemplateProcessing("$A </s>", special_tokens=[("</s>", 1)])
    named = {"pad_token": "<pad>", "eos_token": "</s>", "unk_token": "<unk>"}
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, **named).save_pretrained(folder)
    T5ForConditionalGeneration(T5Config(**_SHAPE)).save_pretrained(folder)


if __name__ == "__main__":
    main()
