"""The optimizer step inside the backward: each weight is updated as soon as its gradient is complete.

In: an optimizer. Out: the same updates, while at most a few gradients exist at a time. So a step with one micro-batch
never holds a gradient for every weight, 4 of the 16 bytes a weight of fp32 training with AdamW. With several
micro-batches gradients add up until the last one, which updates and frees them one after the other.

    micro-batch      1      2      3 (last)
    arm(last=...)    False  False  True
    gradients        g1     g1+g2  g1+g2+g3, weight by weight: update, free       then finish()

torch calls a hook once in each backward for each weight, after all its uses have added to the gradient; so a table
that is embedding and head at once is updated once. By then no other part of the backward needs the weight's old value.
There is one optimizer with one state, so saving and loading it is the same as without this file.

Not possible with clipping, which needs all gradients before the first update, nor with fp16's loss scaler, which
looks for overflow in all of them; nor in several processes: DDP sums a gradient over them after the hook has run, and
sharded weights are untested. `strategy/conflicts.py` refuses all of it before a step is built. After an error in the
middle of a backward some weights have moved and others have not: `updated` says how many, and only a snapshot brings
back the weights that the step began with.
"""

from __future__ import annotations

from functools import partial

import torch


class InBackward:
    """Hooks on an optimizer's parameters. `optimizer.step()` is not called by anyone else."""

    def __init__(self, optimizer: torch.optim.Optimizer) -> None:
        self.optimizer = optimizer
        self.updated = 0  # weights that this step has updated so far
        self._is_last = False
        self._handles = [
            parameter.register_post_accumulate_grad_hook(partial(self._update, index))
            for index, group in enumerate(optimizer.param_groups)
            for parameter in group["params"]
        ]

    def arm(self, *, last: bool) -> None:
        """Before each backward: whether it is the step's last one."""
        self._is_last = last

    def finish(self) -> None:
        """After the last backward: update what only earlier micro-batches had gradients for."""
        self._is_last = False
        self.optimizer.step()  # passes over weights without a gradient
        self.optimizer.zero_grad(set_to_none=True)
        self.updated = 0

    def remove(self) -> None:
        """Take the hooks off again; gradients then stay until somebody uses them."""
        for handle in self._handles:
            handle.remove()
        self._handles.clear()

    def _update(self, index: int, parameter: torch.Tensor) -> None:
        """Step with one parameter: optimizers walk over their groups, so for a moment there is only one, of one."""
        if not self._is_last:
            return
        self.updated += 1  # before, for an update that fails may have begun
        groups = self.optimizer.param_groups  # read now: loading a state puts new ones in their place
        self.optimizer.param_groups = [{**groups[index], "params": [parameter]}]
        try:
            self.optimizer.step()
        finally:
            self.optimizer.param_groups = groups
        parameter.grad = None
