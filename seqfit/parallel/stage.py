"""One stage of a pipeline: what it gets from the stage before it, and what it hands on.

Shapes: B examples (1 if packed), S source, T target, N rows of states, D model, W rows of the wire.

Every stage knows all micro-batches of a step: only states go from one to the next, as one tensor of a fixed size.

    micro-batches of 5 + 2 and 3 + 1 states, source + target, on a wire of 8 rows
    wire of the first    s s s s s t t .      computed are the states alone;
    wire of the second   s s s t . . . .      the dots are only sent

So micro-batches may have any lengths, packed or padded, while torch's schedules see one shape. The first stage looks up
the tokens of both sides, for another copy of the embedding would be larger than a few target states on the wire.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from transformers import PreTrainedModel

from seqfit.data.micro_batch import MicroBatch
from seqfit.model.head import find_head
from seqfit.model.loss import LossRule, states_loss_sum
from seqfit.model.ragged import Ragged
from seqfit.model.segments import Layout
from seqfit.parallel.parts import Part, keep_part

Autocast = Callable[[], AbstractContextManager[None]]
Scale = Callable[[torch.Tensor], torch.Tensor]
LEAST_ROWS = 64  # of a wire


@dataclass(frozen=True)
class SharedStep:
    """What every stage knows of a step."""

    micro_batches: Sequence[MicroBatch]
    layouts: dict[int, Layout]  # of packed micro-batches, by their numbers, until their backward is done
    loss_terms: int
    wire_rows: int
    autocast: Autocast
    scale: Scale | None  # what a loss goes through before its backward


class StageModel(nn.Module):
    """A stage's part of a model. Its forward takes the wire (the first stage: nothing) and gives the next one its wire.

    The last stage gives the micro-batch's share of the step's loss.
    """

    def __init__(self, model: PreTrainedModel, part: Part, rule: LossRule, ragged: Ragged | None) -> None:
        super().__init__()
        # Marian's encoder scales what it looks up itself, and not what it is given; its decoder scales both.
        self._source_scale = float(getattr(model.get_encoder(), "embed_scale", 1.0))
        keep_part(model, part)
        self.model = model
        self.part = part
        self._rule = rule
        self._ragged = ragged
        self._head = find_head(model)
        self._step: SharedStep | None = None
        self._number = 0
        self.loss = torch.zeros(())  # of the micro-batches of this step so far

    def begin(
        self, micro_batches: Sequence[MicroBatch], loss_terms: int, autocast: Autocast, scale: Scale | None
    ) -> SharedStep:
        """The next forwards and backwards are of these micro-batches, by their numbers."""
        self.loss = torch.zeros((), device=self.device)
        self._step = SharedStep(
            micro_batches=micro_batches,
            layouts={number: self._layout(batch) for number, batch in enumerate(micro_batches) if batch.source_lengths},
            loss_terms=loss_terms,
            wire_rows=round_rows(max(sum(count_rows(batch)) for batch in micro_batches)),
            autocast=autocast,
            scale=scale,
        )
        return self._step

    @property
    def device(self) -> torch.device:
        """Where its weights are."""
        device: torch.device = next(self.model.parameters()).device
        return device

    @contextmanager
    def running(self, number: int) -> Iterator[None]:
        """Around a forward, and around a backward, in which blocks may compute parts of their forward again."""
        assert self._step is not None
        self._number = number
        layout = self._step.layouts.get(number)
        with nullcontext() if layout is None or self._ragged is None else self._ragged.running(layout):
            yield

    def finish(self, number: int) -> None:
        """After a backward: a layout holds the biases of its longest segments."""
        assert self._step is not None
        self._step.layouts.pop(number, None)

    def forward(self, *received_WD: torch.Tensor) -> torch.Tensor:
        """[W, D], or the loss."""
        assert self._step is not None
        batch, layout = self._step.micro_batches[self._number], self._step.layouts.get(self._number)
        with self._step.autocast():
            source_BSD, target_BTD = _unpack(received_WD[0], batch) if received_WD else self._embed(batch)
            source_BSD, target_BTD = self._run_blocks(source_BSD, target_BTD, batch, layout)
            if self.part.is_last:
                return self._share_of_loss(target_BTD.flatten(0, 1), batch)
            return self._pack(source_BSD, target_BTD)

    def _layout(self, batch: MicroBatch) -> Layout:
        assert self._ragged is not None
        assert batch.source_lengths is not None
        return self._ragged.layout(batch.source_lengths, batch.target_lengths)

    def _embed(self, batch: MicroBatch) -> tuple[torch.Tensor, torch.Tensor]:
        """Both sides in one lookup: each has a gradient of the vocabulary's size."""
        assert batch.decoder_ids is not None
        ids = torch.cat([batch.source_ids, batch.decoder_ids], 1)
        states = self.model.get_input_embeddings()(ids)
        source_BSD, target_BTD = states.split([batch.source_ids.shape[1], batch.decoder_ids.shape[1]], 1)
        return source_BSD if self._source_scale == 1.0 else source_BSD * self._source_scale, target_BTD

    def _run_blocks(
        self, source_BSD: torch.Tensor, target_BTD: torch.Tensor, batch: MicroBatch, layout: Layout | None
    ) -> tuple[torch.Tensor, torch.Tensor]:
        settings: dict[str, Any] = {} if layout is None else {"layout": layout}
        # A mask of four dimensions is handed on as it is; packed attention doesn't look at it.
        seen = batch.source_mask if layout is None else torch.empty(1, 1, 1, 1, device=source_BSD.device)
        stacks = self.model.base_model
        if self.part.encoder:
            source_BSD = stacks.encoder(inputs_embeds=source_BSD, attention_mask=seen, **settings).last_hidden_state
        if self.part.decoder:
            target_BTD = stacks.decoder(
                inputs_embeds=target_BTD,
                attention_mask=None if layout is None else seen,
                encoder_hidden_states=source_BSD,
                encoder_attention_mask=seen,
                use_cache=False,
                **settings,
            ).last_hidden_state
        return source_BSD, target_BTD

    def _pack(self, source_BSD: torch.Tensor, target_BTD: torch.Tensor) -> torch.Tensor:
        """[W, D] in the type of the weights, whatever autocast left."""
        assert self._step is not None
        states = [states.flatten(0, 1).to(self.model.dtype) for states in (source_BSD, target_BTD)]
        empty = self._step.wire_rows - len(states[0]) - len(states[1])
        wire_WD = torch.cat([*states, states[0].new_zeros(empty, source_BSD.shape[2])])
        # The next stage answers with a gradient, also where nothing here learns.
        return wire_WD if wire_WD.requires_grad else wire_WD.requires_grad_()

    def _share_of_loss(self, states_ND: torch.Tensor, batch: MicroBatch) -> torch.Tensor:
        assert self._step is not None
        assert self._head is not None
        labels_N = batch.labels.flatten()
        loss_sum = states_loss_sum(self._head, self._rule, states_ND, labels_N, batch.target_tokens)
        loss = loss_sum / self._step.loss_terms
        self.loss = self.loss + loss.detach()
        return loss if self._step.scale is None else self._step.scale(loss)


def count_rows(batch: MicroBatch) -> tuple[int, int]:
    """States of source and target, padding included."""
    assert batch.decoder_ids is not None
    return batch.source_ids.numel(), batch.decoder_ids.numel()


def round_rows(rows: int) -> int:
    """Up to an eighth more, so that few sizes occur: 100 -> 128, 1,000 -> 1,024, 1,025 -> 1,152."""
    step = max(LEAST_ROWS, (1 << (rows - 1).bit_length()) // 16)
    return -(-rows // step) * step


def _unpack(wire_WD: torch.Tensor, batch: MicroBatch) -> tuple[torch.Tensor, torch.Tensor]:
    assert batch.decoder_ids is not None
    source_rows, target_rows = count_rows(batch)
    empty = len(wire_WD) - source_rows - target_rows
    source_ND, target_ND, _ = wire_WD.split([source_rows, target_rows, empty])
    return source_ND.view(*batch.source_ids.shape, -1), target_ND.view(*batch.decoder_ids.shape, -1)
