"""How a device's kernels differ, in memory, from the CPU kernels that fake execution runs: a table of rules.

In: the name of a device's kind. Out: rules that a recorder applies while it records a step on fake CPU tensors:

    rule                      on a GPU
    dropout_mask_bytes        dropout keeps one byte per element; a CPU keeps a factor of the input's own type
    autocast_to_fp32          autocast computes softmax, norms and losses in fp32; on a CPU softmax and norms stay
    memory_efficient          attention keeps its output and one number per row, not the scores
    softmax_keeps_input       torch up to 1.10 kept the input of a softmax as well as its output
    gradients_stay            torch before 2.0 filled gradients with zeros between steps; since then they are freed
    workspace_bytes           cuBLAS allocates one for each thread that multiplies: forward and backward
    bias_workspace_bytes      a linear layer with a bias uses cuBLASLt, which allocates a workspace for the call
    sorts_embedding_rows      the gradient of an embedding sorts its rows from 3,072 on

    rule                      on a CPU
    bf16_products_in_fp32     AVX-512 without bf16 instructions: oneDNN computes a bf16 product into an fp32 copy of it

None of it needs a GPU: each rule is documented behaviour of torch's CUDA kernels (file and function next to the rule).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import Any

import torch
import torch.nn.functional as F
from torch.overrides import TorchFunctionMode

from seqfit.step import find_cpu_bf16

SORTED_ROWS = 3072  # of an embedding's gradient, above which they are sorted


@dataclass(frozen=True)
class DeviceRules:
    kind: str = "cpu"
    dropout_mask_bytes: int | None = None
    autocast_to_fp32: bool = False
    memory_efficient: bool = False
    softmax_keeps_input: bool = False
    gradients_stay: bool = False
    workspace_bytes: int = 0
    bias_workspace_bytes: int = 0
    sorts_embedding_rows: bool = False
    bf16_products_in_fp32: bool = False

    def keeps_input(self, kernel: str) -> bool:
        return self.softmax_keeps_input and kernel in ("_softmax", "_log_softmax")

    def mask_bytes(self, kernel: str, shape: tuple[int, ...]) -> int | None:
        """Size of the mask that a kernel has just filled; None: that of its tensor."""
        if self.dropout_mask_bytes is None or kernel != "bernoulli_":
            return None
        return math.prod(shape) * self.dropout_mask_bytes

    def hidden_bytes(self, kernel: str, arguments: tuple[Any, ...]) -> int | None:
        """Memory that a kernel allocates and frees by itself; 0 where that depends on the shape, None where never.

        ATen/native/cuda/Embedding.cu: above 3,072 rows indices are sorted (two copies and their order, int64), and
        sums of parts of equal rows are kept in fp32. ATen/cuda/CUDABlas.cpp: gemm_and_bias. oneDNN's gemm-based matmul
        accumulates a bf16 output in fp32; a batched product does so one matrix at a time, which is too little to count.
        """
        if self.bf16_products_in_fp32 and kernel in ("mm", "addmm"):
            left, right = arguments[-2:] if kernel == "mm" else arguments[1:3]
            return left.shape[0] * right.shape[1] * 4 if left.dtype == torch.bfloat16 else None
        if kernel == "addmm":
            return self.bias_workspace_bytes or None
        if not self.sorts_embedding_rows or kernel != "embedding_dense_backward":
            return None
        gradient, rows, vocabulary = arguments[0], arguments[1].numel(), arguments[2]
        if rows <= SORTED_ROWS:
            return 0
        parts = min(rows, rows // 10 + min(rows, vocabulary))
        return int(4 * 8 * rows + parts * gradient.shape[-1] * 4)

    @contextmanager
    def in_force(self) -> Iterator[None]:
        """Around a forward, and around what gradient checkpointing (recompute) runs of it again in the backward, which
        does not inherit modes."""
        with ExitStack() as stack:
            if self.autocast_to_fp32:
                stack.enter_context(_AutocastToFp32())
            if self.memory_efficient:
                stack.enter_context(_EfficientAttention())
            yield


CPU_RULES = DeviceRules()
GPU_RULES = DeviceRules(
    kind="gpu",
    dropout_mask_bytes=1,
    autocast_to_fp32=True,
    memory_efficient=True,
    workspace_bytes=8_519_680,  # CUDAContextLight: ":4096:2:16:8", 2 x 4 MiB + 8 x 16 KiB
    bias_workspace_bytes=2**20,  # CUDABlas.cpp, CUBLASLT_WORKSPACE_SIZE: 1,024 KiB where nothing is set
    sorts_embedding_rows=True,
)


def rules_for(kind: str, *, compute_capability: float | None = None, torch_version: str | None = None) -> DeviceRules:
    if kind == "cpu":
        return replace(CPU_RULES, bf16_products_in_fp32=True) if find_cpu_bf16() == "emulated" else CPU_RULES
    rules = GPU_RULES
    if compute_capability is not None and compute_capability >= 9:
        rules = replace(rules, workspace_bytes=32 * 2**20)
    version = None if torch_version is None else tuple(map(int, torch_version.split(".")[:2]))
    if version is not None and version <= (1, 10):
        rules = replace(rules, softmax_keeps_input=True)
    if version is not None and version < (2, 0):
        rules = replace(rules, memory_efficient=False, gradients_stay=True)
    return rules


# at::autocast's fp32 lists for CUDA that the models meet (aten/src/ATen/autocast_mode.h, AT_FORALL_FP32)
_IN_FP32: tuple[Callable[..., Any], ...] = (
    F.layer_norm,
    torch.layer_norm,
    torch.pow,
    torch.Tensor.pow,
    torch.rsqrt,
    torch.Tensor.rsqrt,
    torch.exp,
    torch.log,
    torch.sum,
    torch.Tensor.sum,
    F.nll_loss,
    F.cross_entropy,
)
_SOFTMAX: tuple[Callable[..., Any], ...] = (
    F.softmax,
    torch.softmax,
    torch.Tensor.softmax,
    F.log_softmax,
    torch.log_softmax,
    torch.Tensor.log_softmax,
)


class _AutocastToFp32(TorchFunctionMode):
    """Within autocast, what CUDA computes in fp32 gets fp32."""

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if torch.is_autocast_enabled("cpu"):
            if func in _IN_FP32:
                halves = (torch.float16, torch.bfloat16)
                args = tuple(a.float() if isinstance(a, torch.Tensor) and a.dtype in halves else a for a in args)
            elif func in _SOFTMAX and kwargs.get("dtype") is None and args[0].dtype != torch.float32:
                kwargs = {**kwargs, "dtype": torch.float32}
        return func(*args, **kwargs)


class _EfficientAttention(TorchFunctionMode):
    """torch's attention as its memory-efficient CUDA kernel computes it: the scores never exist."""

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if func is not F.scaled_dot_product_attention:
            return func(*args, **kwargs)
        q, k, v = args[:3]
        mask = args[3] if len(args) > 3 else kwargs.get("attn_mask")
        if torch.is_autocast_enabled("cpu"):
            dtype = torch.get_autocast_dtype("cpu")
            q, k, v = q.to(dtype), k.to(dtype), v.to(dtype)
            mask = mask.to(dtype) if mask is not None and mask.is_floating_point() else mask
        return _Efficient.apply(q, k, v, mask)


NoteKernel = Callable[[str, int, Sequence[torch.Tensor]], None]  # name, FLOPs, what it reads and writes
_notes: list[NoteKernel] = []


@contextmanager
def noting_kernels(note: NoteKernel) -> Iterator[None]:
    """Calls it for kernels that a device's rules put in the place of others, and which fake execution never runs."""
    _notes.append(note)
    try:
        yield
    finally:
        _notes.remove(note)


def _note_attention(q: torch.Tensor, k: torch.Tensor, products: int, tensors: Sequence[torch.Tensor]) -> None:
    flops = products * 2 * math.prod(q.shape) * k.shape[2]
    for note in _notes:
        note("attention", flops, tensors)


class _Efficient(torch.autograd.Function):
    """What `_scaled_dot_product_efficient_attention` allocates; its numbers do not matter to a plan."""

    @staticmethod
    def forward(ctx: Any, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, mask: torch.Tensor | None) -> torch.Tensor:
        output = q.new_empty(q.shape[0], q.shape[2], q.shape[1], v.shape[3]).transpose(1, 2)
        rows = math.ceil(q.shape[2] / 32) * 32
        sums = q.new_empty(q.shape[0], q.shape[1], rows, dtype=torch.float32)
        bias = None
        if mask is not None:
            bias = mask if mask.is_floating_point() else torch.zeros_like(mask, dtype=q.dtype)
            if bias.shape[-1] % 8:  # the kernel wants aligned rows: a padded copy
                bias = F.pad(bias, (0, 8 - bias.shape[-1] % 8))
        _note_attention(q, k, 2, [q, k, v, output])
        ctx.save_for_backward(q, k, v, bias, output, sums)
        ctx.mask_needs_gradient = mask is not None and ctx.needs_input_grad[3]
        ctx.mask_shape = None if mask is None else mask.shape
        return output

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        q, k, v, _bias, output, _sums = ctx.saved_tensors
        delta = torch.empty(output.shape[:3], dtype=torch.float32)
        dq, dk, dv = torch.empty_like(q), torch.empty_like(k), torch.empty_like(v)
        dmask = None
        _note_attention(q, k, 5, [q, k, v, output, gradient, dq, dk, dv])  # scores again, and four gradients
        if ctx.mask_needs_gradient:
            whole = q.new_empty(q.shape[0], q.shape[1], q.shape[2], math.ceil(k.shape[2] / 8) * 8)
            dmask = whole[..., : k.shape[2]].sum_to_size(ctx.mask_shape)
        del delta
        return dq, dk, dv, dmask
