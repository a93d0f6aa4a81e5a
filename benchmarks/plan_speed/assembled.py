"""Whether assembled tapes equal traced ones for every family and strategy, and what a trace of few layers saves.

    python benchmarks/plan_speed/assembled.py [FAMILY ...]

In: nothing; tiny models of 8 + 7 layers of every family. Out: one line for each family and strategy: equal, not alike
(such a model is traced as a whole), or different, which is a defect and ends with exit code 1.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))  # so that `tests` can be imported

from seqfit.planning.shape import uniform
from tests.planning.test_assembly import build_step, facts
from tests.tiny_families import ENCODER_CASES, FAMILY_CASES

STRATEGIES = (
    {},
    {"recompute": "blocks"},
    {"optimizer_in_backward": True},
    {"optimizer_kernel": "loop"},
    {"optimizer": "adafactor"},
    {"batching": "grouped"},
    {"lora_rank": 4},
    {"loss": "full"},
)


def main() -> int:
    """Every family with every strategy, on a CPU in fp32 and on a GPU in bf16."""
    different = 0
    for family in sys.argv[1:] or [*FAMILY_CASES, *ENCODER_CASES]:
        for fields in STRATEGIES:
            for rules, precision in (("cpu", "fp32"), ("gpu", "bf16")):
                layers = (8, 0 if family in ENCODER_CASES else 7)
                try:
                    fake = build_step(family, layers, fields, rules, precision)
                    packed = fake.batching == "packed"
                    shape = uniform(2, 24, 9 if layers[1] else None, packed=packed)
                    shapes = [shape] * (1 if fields.get("optimizer_in_backward") else 2)
                    started = time.perf_counter()
                    assembled, seconds = fake.trace(shapes), time.perf_counter() - started
                    started = time.perf_counter()
                    is_equal, whole = facts(assembled) == facts(fake.trace_whole(shapes)), time.perf_counter() - started
                    different += not is_equal
                    verdict = "not alike" if fake._is_irregular else "equal" if is_equal else "DIFFERENT"
                except Exception as error:  # a model that cannot be built or trained like this
                    verdict, seconds, whole = f"not available: {type(error).__name__}: {error}"[:160], 0.0, 0.0
                print(f"{family} {fields} {rules} {precision}: {verdict} ({seconds:.1f} s, {whole:.1f} s)", flush=True)
    return 1 if different else 0


if __name__ == "__main__":
    sys.exit(main())
