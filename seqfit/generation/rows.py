"""The rows whose texts are being generated, in any order, with the decoder's caches of them.

Shapes: B rows, W open texts of each (beams or samples), T new tokens, S source, D model.

What a row has once (its source) is stored once; what its texts have, W times, next to each other.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch
from torch import nn
from transformers import EncoderDecoderCache
from transformers.cache_utils import Cache

from seqfit.generation.cache import Move, RowLayer, Sources

DROPPED_SHARE = 8  # rows leave when they are one in so many: fewer are not worth the call


class OpenRows:
    def __init__(self, sources: Sources, width: int, device: torch.device) -> None:
        self._source_lengths = np.array(sources.lengths)
        self._width = width
        self._device = device
        self._self_layers = [RowLayer() for _ in sources.layers]
        self._cross_layers = [RowLayer.of(keys, values) for keys, values in sources.layers]
        self._cache = EncoderDecoderCache(Cache(layers=self._self_layers), Cache(layers=self._cross_layers))
        self._mask_HS = self._build_mask()

    def __len__(self) -> int:
        return len(self._source_lengths)

    @property
    def length(self) -> int:
        """Tokens that the caches hold of each text."""
        length: int = self._self_layers[0].get_seq_length()
        return length

    def lengthen(self, length: int, room: int) -> None:
        """As if all texts had so many tokens, with room for more."""
        for layer, cross in zip(self._self_layers, self._cross_layers, strict=True):
            rows, heads, _, head_width = cross.keys.shape
            sizes = rows * self._width, heads, length + room, head_width
            layer.fill(cross.keys.new_empty(sizes), cross.values.new_empty(sizes), length)

    def shorten(self, length: int) -> None:
        for layer in self._self_layers:
            layer.shorten(length)

    def advance(self, decoder: nn.Module, tokens_HT: torch.Tensor) -> torch.Tensor:
        """The decoder's states [B*W, T, D] after these tokens."""
        keys_BHSK = self._cross_layers[0].keys
        # Of the encoder's states only the shape is read: what attention needs of them is in the cache.
        states_HSD = keys_BHSK.new_empty(1, dtype=torch.float32).expand(len(tokens_HT), keys_BHSK.shape[2], 1)
        output = decoder(
            input_ids=tokens_HT,
            past_key_values=self._cache,
            encoder_hidden_states=states_HSD,
            encoder_attention_mask=self._mask_HS,
            use_cache=True,
        )
        states_HTD: torch.Tensor = output.last_hidden_state
        return states_HTD

    def copy_texts(self, to: torch.Tensor, of: torch.Tensor) -> None:
        """Some texts [places among B*W] become copies of others."""
        for layer in self._self_layers:
            layer.copy_rows(to, of)

    def drop(self, ended_B: npt.NDArray[np.bool_]) -> Move | None:
        """Ended rows leave, if there are enough of them. The same move is to be made with all that rows have."""
        left = int((~ended_B).sum())
        if left == 0 or len(ended_B) - left < max(1, len(ended_B) // DROPPED_SHARE):
            return None
        holes, movers = np.flatnonzero(ended_B[:left]), left + np.flatnonzero(~ended_B[left:])
        self._source_lengths[holes] = self._source_lengths[movers]
        self._source_lengths = self._source_lengths[:left]
        move = Move(torch.from_numpy(holes).to(self._device), torch.from_numpy(movers).to(self._device), left)
        longest = int(self._source_lengths.max())
        for layer in self._self_layers:
            layer.move(move, self._width)
        for layer in self._cross_layers:
            layer.move(move)
            layer.truncate(longest)
        self._mask_HS = self._build_mask()
        return move

    def _build_mask(self) -> torch.Tensor | None:
        """None where no source is padded."""
        padded = self._cross_layers[0].keys.shape[2]
        if self._source_lengths.min() == padded:
            return None
        mask_BS = np.arange(padded)[None, :] < self._source_lengths[:, None]
        return torch.from_numpy(mask_BS.repeat(self._width, axis=0)).to(self._device)
