"""AdamW with 8-bit moments, by a rule: the trace of plain AdamW with a smaller optimizer state.

In: a `StepModel` or `Tape` of AdamW in fp32. Out: the same with 8-bit state. The packages that implement it
(bitsandbytes, torchao) are not traced, because a plan must not need them:

    weights      AdamW keeps          8 bits keep
    4,096 on     2 x 4 bytes each     2 x 1 byte each, and 2 x 4 bytes for each block of 256
    fewer        2 x 4 bytes each     the same: small tensors stay as they are

Time stays the same: the cost of unpacking has not been measured.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from seqfit.planning.step_model import StepModel
from seqfit.planning.tape import STATE, MemoryBlock, Tape
from seqfit.planning.template import Template

_BLOCK, _SCALE_BYTES = 256, 4  # weights that share a scale, and its size
_LEAST_WEIGHTS = 4096  # bitsandbytes' default of min_8bit_size


def shrink_tape(tape: Tape) -> Tape:
    return replace(tape, blocks=[replace(block, bytes=_state_bytes(block)) for block in tape.blocks])


def shrink_model(model: StepModel) -> StepModel:
    return model.changed(shrink_template)


def shrink_template(template: Template) -> Template:
    """State does not depend on the micro-batch, so its polynomials are constants."""
    shares = np.array([_state_bytes(block) / max(block.bytes, 1) for block in template.tape.blocks])
    shares[[block.category != STATE for block in template.tape.blocks]] = 1.0
    block_bytes = template.block_bytes * shares[:, None]
    return replace(template, tape=shrink_tape(template.tape), block_bytes=block_bytes)


def _state_bytes(block: MemoryBlock) -> int:
    weights = math.prod(block.shape)
    if block.category != STATE or weights < _LEAST_WEIGHTS:
        return block.bytes
    return weights + -(-weights // _BLOCK) * _SCALE_BYTES
