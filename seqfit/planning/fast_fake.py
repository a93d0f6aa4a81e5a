"""A cache in front of FakeTensorMode: an operation on tensors of known forms gives tensors of known forms.

In: operations on fake tensors, inside a `FakeTensorMode`. Out: what that mode would return. FakeTensorMode has a cache
of its own, whose key alone takes most of an operation's time (symbolic shapes, sparse and quantized tensors, devices,
none of which a traced step has). This one looks up form and arguments only, and leaves all other cases to it.

    mm of [8, 4] and [4, 6]     the first time: FakeTensorMode      later: a new tensor [8, 6]
    view of [8, 6] as [48]                                          later: the same storage as [48]
    add_ into [8, 6]                                                later: its first argument
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode, in_kernel_invocation_manager
from torch.utils._python_dispatch import TorchDispatchMode

_SIMPLE = (int, float, bool, str, type(None), torch.dtype, torch.layout, torch.memory_format, torch.device)


class _NotSimple(Exception):
    """An argument or a result that the cache does not describe."""


@dataclass(frozen=True, slots=True)
class _Form:
    """Of one result: a new tensor, a view of an argument, or the argument itself."""

    shape: tuple[int, ...]
    stride: tuple[int, ...]
    dtype: torch.dtype
    device: torch.device
    offset: int = 0
    source: int | None = None  # the place of the tensor among the arguments' tensors
    is_source: bool = False


_known: dict[Any, list[_Form] | _Form | None] = {}  # None: FakeTensorMode decides each time


class EagerMode(TorchDispatchMode):
    """Nothing is compiled in it, and torch's guard against that would be entered at every operation."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False


class FastFake(EagerMode):
    """Enter it right after the FakeTensorMode whose work it saves."""

    def __init__(self, fake: FakeTensorMode) -> None:
        super().__init__()
        self._fake = fake
        self._attributes: dict[torch.device, dict[str, Any]] = {}  # of a new tensor

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        tensors: list[FakeTensor] = []
        try:
            key = (func, _describe(args, tensors), _describe(tuple(kwargs.items()), tensors) if kwargs else ())
        except _NotSimple:
            return func(*args, **kwargs)
        if not tensors:
            return func(*args, **kwargs)
        if key in _known:
            forms = _known[key]
            if forms is None:
                return func(*args, **kwargs)
            if isinstance(forms, list):
                return [self._build(form, tensors) for form in forms]
            return self._build(forms, tensors)
        output = func(*args, **kwargs)
        _known[key] = _describe_output(func, output, tensors)
        return output

    def _build(self, form: _Form, tensors: list[FakeTensor]) -> torch.Tensor:
        if form.is_source:
            assert form.source is not None
            return tensors[form.source]
        with in_kernel_invocation_manager(self._fake):
            built = torch.empty_strided(form.shape, form.stride, dtype=form.dtype, device="meta")
            if form.source is not None:
                built.set_(tensors[form.source].untyped_storage(), form.offset, form.shape, form.stride)
        return self._wrap(built, form.device)

    def _wrap(self, built: torch.Tensor, device: torch.device) -> FakeTensor:
        """As FakeTensor's constructor does, whose checks and a dozen attributes take a third of a trace."""
        if device not in self._attributes:
            first = FakeTensor(self._fake, built, device)
            self._attributes[device] = dict(vars(first))
            return first
        wrapped: FakeTensor = torch.Tensor._make_subclass(
            FakeTensor, built, False, dispatch_device=True, device_for_backend_keys=device
        )
        torch._C._set_throw_on_mutable_data_ptr(wrapped)
        vars(wrapped).update(self._attributes[device])
        return wrapped


def _describe(value: Any, tensors: list[FakeTensor]) -> Any:
    """A hashable form of arguments; tensors are appended to `tensors`."""
    kind = type(value)
    if kind is tuple or kind is list:
        return kind, tuple([_describe(item, tensors) for item in value])
    if isinstance(value, FakeTensor):
        if value.constant is not None:
            raise _NotSimple
        tensors.append(value)
        return value.shape, value.stride(), value.dtype, value.storage_offset()
    if isinstance(value, _SIMPLE):
        return kind, value  # 1, 1.0 and True are equal
    raise _NotSimple


def _describe_output(func: Any, output: Any, tensors: list[FakeTensor]) -> list[_Form] | _Form | None:
    try:
        if type(output) is list:
            return [_describe_result(func, item, tensors) for item in output]
        return _describe_result(func, output, tensors)
    except _NotSimple:
        return None


def _describe_result(func: Any, output: Any, tensors: list[FakeTensor]) -> _Form:
    if type(output) is not FakeTensor or output.constant is not None:
        raise _NotSimple
    form = _Form(tuple(output.shape), output.stride(), output.dtype, output.fake_device)
    for place, tensor in enumerate(tensors):
        if output is tensor:
            return _replace(form, place, is_source=True)
    storage = output.untyped_storage()
    for place, tensor in enumerate(tensors):
        if storage._cdata == tensor.untyped_storage()._cdata:
            if not func.is_view:
                raise _NotSimple
            return _replace(form, place, offset=int(output.storage_offset()))
    needed = 1 + sum((size - 1) * step for size, step in zip(form.shape, form.stride, strict=True))
    if output.storage_offset() or storage.nbytes() != (needed if output.numel() else 0) * output.element_size():
        raise _NotSimple
    return form


def _replace(form: _Form, source: int, *, offset: int = 0, is_source: bool = False) -> _Form:
    return _Form(form.shape, form.stride, form.dtype, form.device, offset, source, is_source)
