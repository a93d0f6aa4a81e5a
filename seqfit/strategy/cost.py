"""What an example costs to train on, as a function of its lengths: a frozen value that balances batches over ranks.

In: a few numbers that somebody who knows the model has filled in. Out: the cost of each example, in whatever unit those
have, for only shares matter.

    CostModel(source_token=1, target_token=3, source_pair=0.01)
    sources 100, 10; targets 5, 5     ->     100 + 15 + 100, 10 + 15 + 1   =   215, 26
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt


@dataclass(frozen=True)
class CostModel:
    """Cost of a token, of a pair of tokens that attention compares, and of an example whatever its length."""

    source_token: float = 1.0
    target_token: float = 1.0
    source_pair: float = 0.0
    target_pair: float = 0.0
    cross_pair: float = 0.0
    example: float = 0.0

    def costs(self, source_lengths: npt.ArrayLike, target_lengths: npt.ArrayLike) -> npt.NDArray[np.float64]:
        """Of each example."""
        source, target = np.asarray(source_lengths, np.float64), np.asarray(target_lengths, np.float64)
        tokens = self.source_token * source + self.target_token * target + self.example
        pairs = self.source_pair * source**2 + self.target_pair * target**2 + self.cross_pair * source * target
        return np.asarray(tokens + pairs, np.float64)


TOKENS = CostModel()  # where nothing is known of a model
