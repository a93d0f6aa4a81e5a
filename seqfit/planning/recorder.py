"""Records which storages a step on fake (or real) tensors allocates and frees, and which kernels it runs.

In: a model, and whatever runs inside `with recorder:`. Out: a `Tape`. Every operation passes a dispatch mode; a storage
that was not seen before is a new block, and a weak reference reports when it is freed. Module hooks say where in the
model a forward is, hooks on the nodes of the backward which part of it runs.

Two things that torch does differently while it is observed are corrected, so that the tape shows an unobserved step:
the engine adds a second gradient into the first one's memory, and the first gradient of a weight becomes its `.grad`
without a copy.
"""

from __future__ import annotations

import weakref
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from typing import Any

import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensor
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry

from seqfit.planning.device_rules import CPU_RULES, DeviceRules, noting_kernels
from seqfit.planning.tape import (
    ACTIVATIONS,
    GIVEN,
    GRADIENTS,
    LOSS,
    TEMPORARIES,
    KernelCost,
    Layer,
    MemoryBlock,
    Shares,
    Tape,
)
from seqfit.planning.timing import check_time_limit

_LAST_NUMBER = 2**60
_SAME = object()  # the layer and the module of the node before
_WITHOUT_KERNEL = ("detach", "alias", "lift_fresh", "_unsafe_view", "_record_function")
_WITHOUT_GPU_KERNEL = ("empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided")


class TapeRecorder(TorchDispatchMode):
    def __init__(
        self, model: nn.Module, rules: DeviceRules = CPU_RULES, layers: Mapping[nn.Module, Layer] | None = None
    ) -> None:
        """`layers`: the blocks that the model repeats, so that each part of the tape is known to be one layer's."""
        super().__init__()
        self.tape = Tape()
        self.tape.mark(GIVEN, "")
        self.rules = rules
        self.phase = "forward"
        self._names = {module: name for name, module in model.named_modules()}
        self._root = model
        self._layers = layers or {}
        self._owners = {
            tensor: layer
            for module, layer in self._layers.items()
            for tensor in (*module.parameters(), *module.buffers())
        }
        self._places: list[str] = []
        self._inside: list[Layer | None] = []  # the layer of each place
        self._node: str | None = None
        self._node_layer: Layer | None = None  # of the node, or of the last one
        self._node_place = ""  # the module whose forward made it
        # Nodes are numbered as the forward makes them: from which number on they are of which layer.
        self._first_numbers: list[int] = [0]
        self._numbered: list[tuple[Layer | None, str]] = [(None, "")]  # and of which module
        self._numbers: dict[int, int] = {}  # storage -> block
        self._watched: dict[int, weakref.ref[Any]] = {}
        self._held: dict[int, list[int]] = {}  # block -> blocks that a device keeps as long as it
        self._late: set[int] = set()  # blocks that torch has freed, but the device's rule keeps
        self._masks: set[int] = set()  # blocks of dropout's masks
        # A gradient's block, and the event that allocated its sum with another.
        self._sum: tuple[int, int] | None = None
        self._waits_for_end = False  # a backward is due, and no callback for its end is registered yet
        self._hooks = ExitStack()

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Nothing is compiled here, and the guard against it would be entered at every operation."""
        return False

    def __enter__(self) -> TapeRecorder:
        enter = register_module_forward_pre_hook(self._enter_module)
        for hook in (enter, register_module_forward_hook(self._leave_module, always_call=True)):
            self._hooks.callback(hook.remove)
        for parameter in self._root.parameters():
            if parameter.requires_grad:
                hook = parameter.register_post_accumulate_grad_hook(self._name_gradient)
                self._hooks.callback(hook.remove)
        self._hooks.enter_context(noting_kernels(self._note_product))
        super().__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)
        self._hooks.close()
        self._settle_sum()
        self._watched.clear()  # what is freed from now on is no longer part of the step
        self.tape.order_frees()

    def register(self, tensors: Iterable[torch.Tensor], category: str, owner: torch.Tensor | None = None) -> None:
        """Blocks that exist already, or whose category is known by now; `owner`: the weight that they belong to."""
        for tensor in tensors:
            number = self._add(tensor, GIVEN, self._owners.get(tensor if owner is None else owner))
            self.tape.blocks[number].category = category

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if func is torch.ops.prim.device.default:  # called twice per operation: the modes below would return the same
            return _device_of(args[0])
        check_time_limit()
        self._settle_sum()
        output = func(*args, **kwargs)
        name = func._overloadpacket.__name__
        taken = self._add_outputs(_tensors_of(output), name, args)
        if not func.is_view and not name.startswith(_WITHOUT_KERNEL):
            self._note_kernel(func, name, args, kwargs, output)
        self._apply_rules(name, args, taken)
        if self.phase == "backward" and self._node is None and name == "add" and taken and not args[0]._is_view():
            self._sum = self._numbers[_storage_key(args[0])], len(self.tape.events) - 1
        return output

    def _layer(self) -> Layer | None:
        return self._inside[-1] if self._inside else self._node_layer

    def _add_outputs(self, tensors: list[torch.Tensor], name: str, args: tuple[Any, ...]) -> list[int]:
        """In the update, what is computed from a layer's weights is that layer's, one by one or as lists of all."""
        if self.phase != "update" or not self._layers:
            return [self._add(tensor, name, self._layer()) for tensor in tensors]
        lists = [argument for argument in args if isinstance(argument, (list, tuple)) and _tensors_of(argument)]
        if not lists:
            layer = next(filter(None, map(self._layer_of, _tensors_of(args))), None)
            return [self._add(tensor, name, layer) for tensor in tensors]
        layers = [self._layer_of(tensor) for tensor in _tensors_of(lists[0])]
        if len(tensors) == len(layers):
            return [self._add(tensor, name, layer) for tensor, layer in zip(tensors, layers, strict=True)]
        taken = [self._add(tensor, name) for tensor in tensors]
        for tensor, number in zip(tensors, taken, strict=True):
            if tensor.ndim and tensor.shape[0] == len(layers):
                each = self.tape.blocks[number].bytes // len(layers)
                self.tape.blocks[number].shares = _sum_shares((layer, each) for layer in layers)
        return taken

    def _layer_of(self, tensor: torch.Tensor) -> Layer | None:
        number = self._numbers.get(_storage_key(tensor))
        return None if number is None else self.tape.blocks[number].layer

    def _add(self, tensor: torch.Tensor, kernel: str, layer: Layer | None = None) -> int:
        storage = tensor.untyped_storage()
        key = storage._cdata
        known = self._numbers.get(key)
        if known is not None:
            return known
        category = TEMPORARIES
        if self.phase == "forward":
            category = LOSS if len(self._places) <= 1 else ACTIVATIONS
        place = self._places[-1] if self._places else self._node or ""
        block = MemoryBlock(storage.nbytes(), category, place, kernel, tuple(tensor.shape), layer)
        number = self._numbers[key] = self.tape.allocate(block)
        self._watched[key] = weakref.ref(storage, partial(self._gone, key))
        return number

    def _gone(self, key: int, _reference: Any) -> None:
        number = self._numbers.pop(key)
        del self._watched[key]
        if any(number in held for held in self._held.values()):
            self._late.add(number)
        else:
            self._free(number)

    def _free(self, number: int) -> None:
        self.tape.free(number)
        for held in self._held.pop(number, ()):
            if held in self._late:
                self._late.discard(held)
                self._free(held)

    def _settle_sum(self) -> None:
        """The engine adds in place unless it is observed: a sum that outlives its first part has that part's memory.

        Not if that part is a view, such as the transposed gradient of a tied head: its base holds on to the memory, so
        the engine allocates new memory for the sum (`can_accumulate_inplace` in autograd's input_buffer.cpp).
        """
        if self._sum is None:
            return
        first, taken_at = self._sum
        self._sum = None
        events = self.tape.events
        if ~first in events[taken_at + 1 :]:
            del events[events.index(~first, taken_at + 1)]
            events.insert(taken_at, ~first)

    def _note_kernel(self, func: Any, name: str, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> None:
        inputs, outputs = _tensors_of(args), _tensors_of(output)
        if self._is_fused(name, inputs):
            return
        count = flop_registry.get(func._overloadpacket)
        flops = int(count(*args, **kwargs, out_val=output)) if count is not None else 0
        if name == "embedding":
            inputs[0] = outputs[0]  # as many rows of the table are read as are written
        sizes = tuple(map(self._moved_bytes, [*inputs, *outputs]))
        dtype = str((*inputs, *outputs)[0].dtype).removeprefix("torch.") if sizes else ""
        is_update = self.phase == "update"
        shares = self._find_shares([*args, output]) if is_update and self._layers else ()
        each = () if is_update else sizes
        span = len(self.tape.spans) - 1
        self.tape.kernels.append(KernelCost(name, span, dtype, flops, sum(sizes), shares=shares, tensors=each))

    def _note_product(self, name: str, flops: int, tensors: Sequence[torch.Tensor]) -> None:
        """One that a rule of the device stands for."""
        sizes = tuple(map(self._moved_bytes, tensors))
        dtype = str(tensors[0].dtype).removeprefix("torch.")
        self.tape.kernels.append(KernelCost(name, len(self.tape.spans) - 1, dtype, flops, sum(sizes), tensors=sizes))

    def _is_fused(self, name: str, inputs: list[torch.Tensor]) -> bool:
        """Whether another kernel does it on this device, or none.

        CUDA's dropout is one kernel, which reads its input and writes the output and the mask (native_dropout); on a
        CPU a mask is filled and scaled before the input is multiplied by it.
        """
        if self.rules.dropout_mask_bytes is None:
            return False
        number = self._numbers.get(_storage_key(inputs[0])) if inputs else None
        if name == "bernoulli_" and number is not None:
            self._masks.add(number)
        return name in _WITHOUT_GPU_KERNEL or (name in ("bernoulli_", "div_") and number in self._masks)

    def _moved_bytes(self, tensor: torch.Tensor) -> int:
        is_mask = bool(self._masks) and self._numbers.get(_storage_key(tensor)) in self._masks
        each = self.rules.dropout_mask_bytes if is_mask else None
        return tensor.numel() * (each or tensor.element_size())

    def _find_shares(self, values: list[Any]) -> Shares:
        """Elements of lists belong to the layers of the first list's: `_foreach_sub_(steps, [found, found, ...])`."""
        found: list[tuple[Layer | None, int]] = []
        layers: list[Layer | None] = []
        for value in values:
            tensors = _tensors_of(value)
            is_list = not isinstance(value, torch.Tensor)
            if is_list and not layers:
                layers = [self._layer_of(tensor) for tensor in tensors]
            for place, tensor in enumerate(tensors):
                number = self._numbers.get(_storage_key(tensor))
                block = None if number is None else self.tape.blocks[number]
                layer = layers[place] if is_list and len(tensors) == len(layers) else block.layer if block else None
                moved = tensor.numel() * tensor.element_size()
                found += block.shares if block and block.shares else [(layer, moved)]
        return _sum_shares(found)

    def _apply_rules(self, name: str, args: tuple[Any, ...], taken: list[int]) -> None:
        if taken:
            block = self.tape.blocks[taken[0]]
            block.bytes = self.rules.mask_bytes(name, block.shape) or block.bytes
        hidden_bytes = self.rules.hidden_bytes(name, args)
        if hidden_bytes is not None:
            block = MemoryBlock(hidden_bytes, TEMPORARIES, self._node or "", name, layer=self._layer())
            self.tape.free(self.tape.allocate(block))
        if taken and self.phase == "forward" and self.rules.keeps_input(name):
            source = self._numbers.get(_storage_key(args[0]))
            if source is not None and source != taken[0]:
                self._held.setdefault(taken[0], []).append(source)

    def _enter_module(self, module: nn.Module, _inputs: Any) -> None:
        place = self._names.get(module)
        if place is not None:
            if module is self._root:
                self.phase = "forward"
                self.tape.parts.append(len(self.tape.events))
            self._places.append(place)
            self._inside.append(self._layers.get(module, self._inside[-1] if self._inside else None))
            self._note_layer()
            self.tape.mark(self.phase, place, self._layer())

    def _leave_module(self, module: nn.Module, _inputs: Any, output: Any) -> None:
        if module not in self._names:
            return
        self._places.pop()
        self._inside.pop()
        self._note_layer()
        self.tape.mark(self.phase, self._places[-1] if self._places else "", self._layer())
        if module is self._root and isinstance(output, torch.Tensor) and output.grad_fn is not None:
            self._watch_nodes(output.grad_fn)
            self.phase = "backward"
            self._waits_for_end = True

    def _note_layer(self) -> None:
        if self._layers and self.phase == "forward":
            self._first_numbers.append(torch._C._autograd._get_sequence_nr())
            here = (self._inside[-1], self._places[-1]) if self._inside else (None, "")
            self._numbered.append(here)

    def _watch_nodes(self, root: Any) -> None:
        """Hooks before and after each node of the backward. They are freed with the graph."""
        seen, waiting = set(), [root]
        while waiting:
            node = waiting.pop()
            if node in seen:
                continue
            seen.add(node)
            number = node._sequence_nr()
            # A weight's node has the largest number: it runs behind the node that computes the weight's gradient.
            made_in = self._numbered[bisect_right(self._first_numbers, number) - 1] if number < _LAST_NUMBER else _SAME
            node.register_prehook(partial(self._node_begins, node.name(), made_in))
            node.register_hook(self._node_ends)
            waiting.extend(following for following, _ in node.next_functions if following is not None)

    def _node_begins(self, name: str, made_in: Any, _gradients: Any) -> None:
        if self._waits_for_end:
            self._waits_for_end = False
            torch.autograd.Variable._execution_engine.queue_callback(self._backward_ends)
        self._settle_sum()
        self._node = name
        if made_in is not _SAME:
            self._node_layer, self._node_place = made_in
        self.tape.mark("backward", name, self._layer(), self._node_place)

    def _node_ends(self, _outputs: Any, _gradients: Any) -> None:
        self._node = None
        self.tape.mark("backward", "", self._layer(), self._node_place)

    def _backward_ends(self) -> None:
        self._settle_sum()
        self.phase, self._node, self._node_layer = "update", None, None
        self.tape.update_from = len(self.tape.events)
        self.tape.mark("update", "")

    def _name_gradient(self, parameter: torch.Tensor) -> None:
        if parameter.grad is not None:
            self.register([parameter.grad], GRADIENTS)


def _device_of(tensor: FakeTensor) -> torch.device:
    """As FakeTensorMode returns it; real tensors never get here."""
    return torch.device("meta") if tensor.fake_mode.in_kernel_invocation else tensor.fake_device


def _sum_shares(pairs: Iterable[tuple[Layer | None, int]]) -> Shares:
    sums: dict[Layer | None, int] = {}
    for layer, size in pairs:
        sums[layer] = sums.get(layer, 0) + size
    return tuple(sums.items())


def _storage_key(tensor: torch.Tensor) -> int:
    key: int = tensor.untyped_storage()._cdata
    return key


def _tensors_of(value: Any) -> list[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, (list, tuple)):
        return [tensor for part in value for tensor in _tensors_of(part)]
    return []
