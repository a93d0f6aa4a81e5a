"""The output layer and its cross-entropy in one function that never holds the logits of all rows.

Shapes: N target tokens, C of them in one chunk, D model, V vocabulary.

    1,000 rows of mt5-small (V = 250,112, D = 512), fp32, measured on a CPU above what is given:
    all logits      954 MiB, as much for the log-softmax, as much for its gradient      2,879 MiB at the peak
    in chunks       319 MiB of 334 rows, overwritten in place, 489 of weight gradient     827 MiB at the peak

The loss is a sum over rows, so the gradient of a chunk's logits is known as soon as they are: the forward turns them
into their own gradient in place, multiplies that with the weight and with the hidden rows, and the next chunk takes
the same buffer. That is three matrix products in all, as without chunks. The backward only scales what is there.

What is kept from forward to backward is the gradient of the hidden rows [N, D] and that of the weight [V, D]. The
latter is a new tensor for each micro-batch (66 MB in t5-small, 512 MB in mt5-small), which autograd adds to
`weight.grad`; a frozen weight has none.

    loss of a row = logsumexp - (1 - s) logit[label] - s mean(logits) + z logsumexp^2      s: smoothing, z: z-loss
    its gradient  = (1 + 2 z logsumexp) softmax - (1 - s) onehot(label) - s / V
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch.autograd.function import once_differentiable

IGNORED_INDEX = -100  # the label of rows that don't count, as in torch's cross-entropy
CHUNK_BYTES = 64 * 2**20
LEAST_CHUNK_ROWS = 256  # a product reads the whole weight however few its rows: those of 32 take 2.4x the time per row


@dataclass(frozen=True)
class _Rule:
    label_smoothing: float
    z_loss: float
    chunk_bytes: int
    product_dtype: torch.dtype  # of the matrix products: autocast's, or the weight's
    gradient_dtype: torch.dtype  # of those in the backward: fp32 for fp16, in which unscaled gradients are zero
    sum_dtype: torch.dtype  # of logits, losses and sums over chunks: at least fp32
    with_gradients: bool  # False under no_grad, where needs_input_grad is still True


def linear_loss_sum(
    hidden_ND: torch.Tensor,
    weight_VD: torch.Tensor,
    labels_N: torch.Tensor,
    *,
    bias_V: torch.Tensor | None = None,
    label_smoothing: float = 0.0,
    z_loss: float = 0.0,
    counted_rows: int | None = None,
    chunk_bytes: int = CHUNK_BYTES,
) -> torch.Tensor:
    """Sum of the losses of the rows whose label is not -100, in fp32. No other row is multiplied with the weight.

    `counted_rows` says how many they are, which the host knows from the lengths. Without it the host asks the device:
    on a GPU this waits for everything launched before, and it fails with fake tensors and in a compiled graph.
    """
    if counted_rows != len(labels_N):
        rows_N = _find_counted(labels_N, counted_rows)
        hidden_ND, labels_N = hidden_ND.index_select(0, rows_N), labels_N.index_select(0, rows_N)
    device = hidden_ND.device.type
    dtype = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else weight_VD.dtype
    sum_dtype = torch.promote_types(dtype, torch.float32)
    backward_dtype = sum_dtype if dtype == torch.float16 else dtype
    rule = _Rule(label_smoothing, z_loss, chunk_bytes, dtype, backward_dtype, sum_dtype, torch.is_grad_enabled())
    with torch.autocast(device, enabled=False):  # the rule says which type is used where
        loss: torch.Tensor = _LinearLoss.apply(hidden_ND, weight_VD, bias_V, labels_N, rule)
    return loss


def _find_counted(labels_N: torch.Tensor, count: int | None) -> torch.Tensor:
    counted_N = labels_N != IGNORED_INDEX
    found_N1 = torch.nonzero(counted_N) if count is None else torch.nonzero_static(counted_N, size=count)
    return found_N1.squeeze(1)


@dataclass(frozen=True)
class _Gradients:
    """Summed over the chunks; None where it is not needed."""

    hidden_ND: torch.Tensor | None
    weight_VD: torch.Tensor | None
    bias_V: torch.Tensor | None

    @property
    def are_needed(self) -> bool:
        return not (self.hidden_ND is None and self.weight_VD is None and self.bias_V is None)

    def add(self, start: int, gradient_CV: torch.Tensor, hidden_ND: torch.Tensor, weight_VD: torch.Tensor) -> None:
        """What the chunk from row `start` contributes; the first one fills what is still empty."""
        rows = slice(start, start + len(gradient_CV))
        if self.bias_V is not None:
            gradient_V = gradient_CV.sum(0)
            self.bias_V.copy_(gradient_V if start == 0 else self.bias_V + gradient_V)
        gradient_CV = gradient_CV.to(weight_VD.dtype)
        if self.hidden_ND is not None:
            _set_product(self.hidden_ND[rows], gradient_CV, weight_VD)
        if self.weight_VD is not None:
            (_set_product if start == 0 else _add_product)(self.weight_VD, gradient_CV.t(), hidden_ND[rows])


class _LinearLoss(torch.autograd.Function):
    """Forward: the loss and its gradients, chunk by chunk. Backward: the gradients, scaled."""

    @staticmethod
    def forward(
        ctx: Any,
        hidden_ND: torch.Tensor,
        weight_VD: torch.Tensor,
        bias_V: torch.Tensor | None,
        labels_N: torch.Tensor,
        rule: _Rule,
    ) -> torch.Tensor:
        allocate = torch.empty_like if len(hidden_ND) else torch.zeros_like  # filling 65 MB with zeros takes time
        gradients = [
            None if given is None or not (needed and rule.with_gradients) else allocate(given, dtype=rule.sum_dtype)
            for given, needed in zip((hidden_ND, weight_VD, bias_V), ctx.needs_input_grad[:3], strict=True)
        ]
        summed = _Gradients(*gradients)
        factors = hidden_ND.to(rule.gradient_dtype), weight_VD.to(rule.gradient_dtype)
        hidden_ND, weight_VD = hidden_ND.to(rule.product_dtype), weight_VD.to(rule.product_dtype)
        chunk_rows = count_chunk_rows(len(hidden_ND), len(weight_VD) * rule.sum_dtype.itemsize, rule.chunk_bytes)
        buffer_CV = hidden_ND.new_empty((chunk_rows, len(weight_VD)), dtype=rule.sum_dtype)
        loss = hidden_ND.new_zeros((), dtype=rule.sum_dtype)
        for start in range(0, len(hidden_ND), chunk_rows):
            hidden_CD, labels_C = hidden_ND[start : start + chunk_rows], labels_N[start : start + chunk_rows]
            logits_CV = buffer_CV[: len(hidden_CD)]
            _set_product(logits_CV, hidden_CD, weight_VD.t())
            if bias_V is not None:
                logits_CV += bias_V
            losses_C, log_normaliser_C = _reduce_rows(logits_CV, labels_C, rule)
            loss += losses_C.sum()
            if summed.are_needed:
                _turn_into_gradient(logits_CV, labels_C, log_normaliser_C, rule)
                summed.add(start, logits_CV, *factors)
        ctx.save_for_backward(*gradients)
        return loss

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, scale: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        # In place, and `scale` stays on the device. A second backward raises, because it would find them changed.
        # Autograd casts each to the type of what was given.
        scaled = [None if gradient is None else gradient.mul_(scale) for gradient in ctx.saved_tensors]
        return *scaled, None, None


def count_chunk_rows(rows: int, row_bytes: int, chunk_bytes: int) -> int:
    """Rows of a chunk: within the bytes where that is at least LEAST_CHUNK_ROWS, and all chunks about equal.

    700 rows of which 500 fit: two chunks of 350. Of which 100 fit: still two, because three would be of 234.
    """
    within_bytes = math.ceil(rows * row_bytes / chunk_bytes)
    of_least_rows = rows // LEAST_CHUNK_ROWS
    return max(1, math.ceil(rows / max(1, min(within_bytes, of_least_rows))))


def _reduce_rows(logits_CV: torch.Tensor, labels_C: torch.Tensor, rule: _Rule) -> tuple[torch.Tensor, torch.Tensor]:
    """Losses and logsumexp of the rows. Leaves log-probabilities in the place of the logits."""
    labels_C1 = labels_C.unsqueeze(1)
    label_logits_C1 = logits_CV.gather(1, labels_C1)
    torch.log_softmax(logits_CV, 1, out=logits_CV)  # each element is read for the last time where it is written
    log_probabilities_C1 = logits_CV.gather(1, labels_C1)
    log_normaliser_C = (label_logits_C1 - log_probabilities_C1).squeeze(1)
    losses_C = (rule.label_smoothing - 1) * log_probabilities_C1.squeeze(1)
    if rule.label_smoothing:
        losses_C -= rule.label_smoothing * logits_CV.mean(1)
    if rule.z_loss:
        losses_C += rule.z_loss * log_normaliser_C**2
    return losses_C, log_normaliser_C


def _turn_into_gradient(
    log_probabilities_CV: torch.Tensor, labels_C: torch.Tensor, log_normaliser_C: torch.Tensor, rule: _Rule
) -> None:
    """In place: log-probabilities become the gradient of the logits."""
    gradient_CV = log_probabilities_CV.exp_()
    if rule.z_loss:
        gradient_CV *= (1 + 2 * rule.z_loss * log_normaliser_C).unsqueeze(1)
    if rule.label_smoothing:
        gradient_CV -= rule.label_smoothing / gradient_CV.shape[1]
    labels_C1 = labels_C.unsqueeze(1)
    gradient_CV.scatter_add_(1, labels_C1, gradient_CV.new_full(labels_C1.shape, rule.label_smoothing - 1))


def _set_product(out: torch.Tensor, left: torch.Tensor, right: torch.Tensor) -> None:
    """Without a temporary tensor where the types agree; half-precision factors have a half-precision product."""
    if out.dtype == left.dtype:
        torch.mm(left, right, out=out)
    else:
        out.copy_(left @ right)


def _add_product(total: torch.Tensor, left: torch.Tensor, right: torch.Tensor) -> None:
    if total.dtype == left.dtype:
        total.addmm_(left, right)
    else:
        total.add_(left @ right)
