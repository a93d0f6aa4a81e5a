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
from collections.abc import Iterable
from contextlib import ExitStack
from functools import partial
from typing import Any

import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensor
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry

from seqfit.planning.device_rules import CPU_RULES, DeviceRules
from seqfit.planning.tape import ACTIVATIONS, GIVEN, GRADIENTS, LOSS, TEMPORARIES, KernelCost, MemoryBlock, Tape
from seqfit.planning.timing import check_time_limit

_WITHOUT_KERNEL = ("detach", "alias", "lift_fresh", "_unsafe_view", "_record_function")


class TapeRecorder(TorchDispatchMode):
    def __init__(self, model: nn.Module, rules: DeviceRules = CPU_RULES) -> None:
        super().__init__()
        self.tape = Tape()
        self.tape.mark(GIVEN, "")
        self.rules = rules
        self.phase = "forward"
        self._names = {module: name for name, module in model.named_modules()}
        self._root = model
        self._places: list[str] = []
        self._node: str | None = None
        self._numbers: dict[int, int] = {}  # storage -> block
        self._watched: dict[int, weakref.ref[Any]] = {}
        self._held: dict[int, list[int]] = {}  # block -> blocks that a device keeps as long as it
        self._late: set[int] = set()  # blocks that torch has freed, but the device's rule keeps
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
        super().__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)
        self._hooks.close()
        self._settle_sum()
        self._watched.clear()  # what is freed from now on is no longer part of the step
        self.tape.order_frees()

    def register(self, tensors: Iterable[torch.Tensor], category: str) -> None:
        """Blocks that exist already, or whose category is known by now."""
        for tensor in tensors:
            number = self._add(tensor, GIVEN)
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
        taken = [self._add(tensor, name) for tensor in _tensors_of(output)]
        if not func.is_view and not name.startswith(_WITHOUT_KERNEL):
            self._note_kernel(func, name, args, kwargs, output)
        self._apply_rules(name, args, taken)
        if self.phase == "backward" and self._node is None and name == "add" and taken and not args[0]._is_view():
            self._sum = self._numbers[_storage_key(args[0])], len(self.tape.events) - 1
        return output

    def _add(self, tensor: torch.Tensor, kernel: str) -> int:
        storage = tensor.untyped_storage()
        key = storage._cdata
        known = self._numbers.get(key)
        if known is not None:
            return known
        category = TEMPORARIES
        if self.phase == "forward":
            category = LOSS if len(self._places) <= 1 else ACTIVATIONS
        place = self._places[-1] if self._places else self._node or ""
        block = MemoryBlock(storage.nbytes(), category, place, kernel, tuple(tensor.shape))
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
        count = flop_registry.get(func._overloadpacket)
        flops = int(count(*args, **kwargs, out_val=output)) if count is not None else 0
        tensors = [*_tensors_of(args), *_tensors_of(output)]
        moved = sum(tensor.numel() * tensor.element_size() for tensor in tensors)
        dtype = str(tensors[0].dtype).removeprefix("torch.") if tensors else ""
        self.tape.kernels.append(KernelCost(name, len(self.tape.spans) - 1, dtype, flops, moved))

    def _apply_rules(self, name: str, args: tuple[Any, ...], taken: list[int]) -> None:
        if taken:
            block = self.tape.blocks[taken[0]]
            block.bytes = self.rules.mask_bytes(name, block.shape) or block.bytes
        hidden_bytes = self.rules.hidden_bytes(name, args)
        if hidden_bytes is not None:
            self.tape.free(self.tape.allocate(MemoryBlock(hidden_bytes, TEMPORARIES, self._node or "", name)))
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
            self.tape.mark(self.phase, place)

    def _leave_module(self, module: nn.Module, _inputs: Any, output: Any) -> None:
        if module not in self._names:
            return
        self._places.pop()
        self.tape.mark(self.phase, self._places[-1] if self._places else "")
        if module is self._root and isinstance(output, torch.Tensor) and output.grad_fn is not None:
            self._watch_nodes(output.grad_fn)
            self.phase = "backward"
            self._waits_for_end = True

    def _watch_nodes(self, root: Any) -> None:
        """Hooks before and after each node of the backward. They are freed with the graph."""
        seen, waiting = set(), [root]
        while waiting:
            node = waiting.pop()
            if node in seen:
                continue
            seen.add(node)
            node.register_prehook(partial(self._node_begins, node.name()))
            node.register_hook(self._node_ends)
            waiting.extend(following for following, _ in node.next_functions if following is not None)

    def _node_begins(self, name: str, _gradients: Any) -> None:
        if self._waits_for_end:
            self._waits_for_end = False
            torch.autograd.Variable._execution_engine.queue_callback(self._backward_ends)
        self._settle_sum()
        self._node = name
        self.tape.mark("backward", name)

    def _node_ends(self, _outputs: Any, _gradients: Any) -> None:
        self._node = None
        self.tape.mark("backward", "")

    def _backward_ends(self) -> None:
        self._settle_sum()
        self.phase, self._node = "update", None
        self.tape.update_from = len(self.tape.events)
        self.tape.mark("update", "")

    def _name_gradient(self, parameter: torch.Tensor) -> None:
        if parameter.grad is not None:
            self.register([parameter.grad], GRADIENTS)


def _device_of(tensor: FakeTensor) -> torch.device:
    """As FakeTensorMode returns it; real tensors never get here."""
    return torch.device("meta") if tensor.fake_mode.in_kernel_invocation else tensor.fake_device


def _storage_key(tensor: torch.Tensor) -> int:
    key: int = tensor.untyped_storage()._cdata
    return key


def _tensors_of(value: Any) -> list[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, (list, tuple)):
        return [tensor for part in value for tensor in _tensors_of(part)]
    return []
