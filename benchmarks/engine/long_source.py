"""What a source of 4,096 tokens is held to: the attention's time alone, and stock T5's memory by fake execution.

The time is that of all attention layers of t5-base that see the source, forward and backward: encoder [S, S] and
cross [T, S] (the decoder's own [T, T] is too small to matter at 64). It is measured for torch's SDPA with a learnt
bias, as stock T5 has it, and for ours; the shorter one counts, so that slow attention is no excuse for a slow step.

A stock step can't run on a small machine, so its memory is followed without computing anything: FakeTensorMode runs
the real training step on tensors that have shapes but no data, and each storage counts from its birth to its death.

    a = f(x)  +4 MiB    b = g(a)  +4 MiB    del a  -4 MiB        peak 8 MiB
"""

from __future__ import annotations

import statistics
import time
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from seqfit.kernels.attention import attend_blockwise
from seqfit.kernels.layout import Pairing, Segments

Layer = Callable[[int, int, int, int, bool, float], None]


def measure_attention_seconds(config: dict[str, Any], source: int, target: int) -> dict[str, float]:
    """Of all layers together, for sdpa attention and ours."""
    return {
        "stock": config["num_layers"] * _time_layer(_stock_layer, config, source, target),
        "ours": config["num_layers"] * _time_layer(_our_layer, config, source, target),
    }


def _time_layer(layer: Layer, config: dict[str, Any], source: int, target: int, times: int = 3) -> float:
    """Median seconds of an encoder's attention and of a cross-attention."""
    seconds = []
    for _ in range(times + 1):  # the first is a warm-up
        started = time.perf_counter()
        for queries, has_bias in ((source, True), (target, False)):
            layer(config["num_heads"], config["d_kv"], queries, source, has_bias, config["dropout_rate"])
        seconds.append(time.perf_counter() - started)
    return statistics.median(seconds[1:])


def _stock_layer(heads: int, head_width: int, queries: int, keys: int, has_bias: bool, dropout: float) -> None:
    """SDPA, given a bias of query x key. T5's depends on learnt weights, so it needs a gradient."""
    q, k, v = (torch.randn(1, heads, length, head_width, requires_grad=True) for length in (queries, keys, keys))
    bias = torch.zeros(1, heads, queries, keys, requires_grad=True) if has_bias else None
    out = F.scaled_dot_product_attention(q, k, v, attn_mask=bias, dropout_p=dropout, scale=head_width**-0.5)
    torch.autograd.grad(out, [q, k, v] if bias is None else [q, k, v, bias], torch.ones_like(out))


def _our_layer(heads: int, head_width: int, queries: int, keys: int, has_bias: bool, dropout: float) -> None:
    """One segment, given a bias by distance."""
    pairing = Pairing(Segments((queries,)), Segments((keys,)), causal=False)
    q, k, v = (torch.randn(length, heads, head_width, requires_grad=True) for length in (queries, keys, keys))
    bias = torch.zeros(heads, 2 * pairing.longest - 1, requires_grad=True) if has_bias else None
    out = attend_blockwise(q, k, v, pairing, bias_HR=bias, scale=head_width**-0.5, dropout=dropout)
    torch.autograd.grad(out, [q, k, v] if bias is None else [q, k, v, bias], torch.ones_like(out))


class LiveBytes(TorchDispatchMode):
    """Adds up the storages that operators bring into being, while they live."""

    def __init__(self) -> None:
        super().__init__()
        self.live_bytes: int = 0
        self.peak_bytes: int = 0
        self._known: dict[int, weakref.ref[Any]] = {}

    def __torch_dispatch__(self, func: Any, types: Sequence[Any], args: Any = (), kwargs: Any = None) -> Any:
        """Runs the operator and looks at what came out."""
        out = func(*args, **(kwargs or {}))
        for leaf in tree_leaves(out):
            if isinstance(leaf, torch.Tensor):
                self.add(leaf)
        return out

    def add(self, tensor: torch.Tensor) -> None:
        """Counts a tensor's storage, unless it is known."""
        storage = tensor.untyped_storage()
        key = storage._cdata
        if key in self._known:
            return
        size = storage.nbytes()
        self._known[key] = weakref.ref(storage, lambda _: self._forget(key, size))
        self.live_bytes += size
        self.peak_bytes = max(self.peak_bytes, self.live_bytes)

    def _forget(self, key: int, size: int) -> None:
        del self._known[key]
        self.live_bytes -= size


def estimate_stock_peak_bytes(config: dict[str, Any], source: int, target: int, *, attention: str = "sdpa") -> int:
    """Weights, gradients, AdamW's moments and activations at the highest point of two steps with batch 1, fp32."""
    from transformers import AutoConfig, AutoModelForSeq2SeqLM

    loaded = AutoConfig.for_model(**config)
    memory = LiveBytes()
    with FakeTensorMode(), memory:
        model = AutoModelForSeq2SeqLM.from_config(loaded, attn_implementation=attention, dtype=torch.float32).train()
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
        source_ids = torch.ones(1, source, dtype=torch.long)
        labels = torch.ones(1, target, dtype=torch.long)
        for _ in range(2):
            loss = model(input_ids=source_ids, labels=labels, use_cache=False).loss
            loss.backward()
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
            del loss
    return memory.peak_bytes
