"""Runs the step that `seqfit train` would run, on fake tensors, and records it; and the real one, to compare with.

In: a `StepSpec` (a model's config, a recipe's parts, a strategy, a device's rules) and the micro-batches of a step.
Out: a `Tape`. Fake tensors have shapes, types and storages of the right size, but no memory behind them: a model of 3
billion weights is traced in seconds on a laptop.

The peak of a real step on this machine's CPU comes from torch's own record of what its allocator allocates and frees:

    live before the step     +8 (an activation)   +4   -8   +6
    100                      108                  112  104  110          peak 112
"""

from __future__ import annotations

import copy
import gc
import math
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from transformers import PreTrainedModel

from seqfit.data import GlobalBatch
from seqfit.model import LossRule, ModelConfig, choose_weights, family_of
from seqfit.parallel import BuiltStep, build_step
from seqfit.planning.assembly import Depth, NotAlike, assemble, choose_depth
from seqfit.planning.device_rules import CPU_RULES, DeviceRules, rules_for
from seqfit.planning.fast_fake import EagerMode, FastFake
from seqfit.planning.memory import measure_tape
from seqfit.planning.recorder import TapeRecorder
from seqfit.planning.shape import Shape, build_batch, draw_batch
from seqfit.planning.tape import GRADIENTS, INPUTS, STATE, WEIGHTS, Layer, Tape
from seqfit.recipe import ModelRecipe, TrainRecipe
from seqfit.step import Precision, TrainStep, measure_peak
from seqfit.strategy import Batching, Strategy

_CPU = torch.device("cpu")
_left_old = 0  # how many times `leave_old_objects` is in force
_SOURCES, _TARGETS = (180, 163, 90, 121, 44, 178), (20, 3, 17, 9, 11, 5)  # of the step whose peaks are compared


@dataclass(frozen=True)
class StepSpec:
    """Everything that decides what a step does, except its batch."""

    model_config: ModelConfig
    model: ModelRecipe
    train: TrainRecipe
    strategy: Strategy
    precision: str  # fp32, bf16, fp16
    rules: DeviceRules = CPU_RULES
    weights: str = "float32"  # the type that they are trained in, which only a script of someone's may change

    @property
    def device(self) -> torch.device:
        """The device to choose kernels for."""
        return torch.device("cpu" if self.rules.kind == "cpu" else "cuda")


def build_meta_model(spec: StepSpec) -> PreTrainedModel:
    """The model with its adapters and frozen parts on the meta device: its tensors have shapes and nothing else."""
    with torch.device("meta"):  # where PEFT can still move its adapters, which fake tensors refuse
        return _build_model(spec)


def _build_model(spec: StepSpec) -> PreTrainedModel:
    model_config = replace(spec.model_config, config=copy.deepcopy(spec.model_config.config))  # building writes to it
    model = model_config.build(spec.model.model_copy(update={"weights": "random"})).to(getattr(torch, spec.weights))
    choose_weights(model, spec.model, spec.strategy)
    return model


def import_for_traces(model_config: ModelConfig) -> None:
    """What a first trace imports, which is half of its time: the model's code and what fake tensors need."""
    with suppress(AttributeError, KeyError):  # a class of the model's own folder is imported when it is built
        model_config.auto._model_mapping[type(model_config.config)]
    with FakeTensorMode():
        torch.ones(2).add_(1)


class FakeStep:
    """A step on fake tensors that can be traced at many shapes; its weights are built once."""

    def __init__(self, spec: StepSpec) -> None:
        self.spec = spec
        self._fake = FakeTensorMode(allow_non_fake_inputs=True)
        self._fast = FastFake(self._fake)
        self._is_irregular = False  # its layers are not alike

    @cached_property
    def built(self) -> BuiltStep:
        """The step with optimizer state, as after its first update."""
        spec = self.spec
        model = build_meta_model(spec)
        with self._fake, self._fast, _AnyValue():
            _materialise(model)
            built = build_step(
                model.train(),
                spec.train,
                spec.strategy.model_copy(update={"compile": False}),
                _FakePrecision(spec.precision, _CPU, "planned"),
                device=spec.device,
            )
            for module in model.modules():  # the device's rules also apply to recomputed forwards
                usual = module.__dict__.get("_gradient_checkpointing_func")
                if usual is not None:
                    contexts = lambda: (nullcontext(), spec.rules.in_force())  # noqa: E731
                    module.__dict__["_gradient_checkpointing_func"] = partial(usual, context_fn=contexts)
            optimizer = built.step.optimizer
            for parameter in built.step.model.parameters():
                parameter.grad = torch.zeros_like(parameter) if parameter.requires_grad else None
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        return built

    @property
    def batching(self) -> Batching:
        return (self if self._shallow is None else self._shallow[0]).built.batching

    def trace(self, shapes: Sequence[Shape]) -> Tape:
        """Of a model with few layers, assembled to all of them; where layers are not alike, of the whole model."""
        if self._shallow is not None and not self._is_irregular:
            fake, depths = self._shallow
            try:
                return assemble(fake.trace_whole(shapes), depths)
            except NotAlike:
                self._is_irregular = True
        return self.trace_whole(shapes)

    @cached_property
    def _shallow(self) -> tuple[FakeStep, dict[str, Depth]] | None:
        """The same step of a model with few layers, and how its layers repeat; None where that saves nothing."""
        config = self.spec.model_config.config
        family = family_of(config)
        period = math.lcm(family.layer_period(config), 2 if self.spec.strategy.recompute == "alternate" else 1)
        planned = family.count_layers(config)
        traced = [choose_depth(count, period) for count in planned]
        if sum(traced) == sum(planned):
            return None
        model_config = replace(self.spec.model_config, config=family.with_layers(config, *traced))
        fake = FakeStep(replace(self.spec, model_config=model_config))
        depths: dict[str, Depth] = {}
        for layer in fake.layers.values():
            side = 1 if fake.is_decoders(layer.stack) else 0
            depths[layer.stack] = Depth(planned[side], traced[side], period)
        return fake, depths

    @cached_property
    def layers(self) -> dict[nn.Module, Layer]:
        """The blocks that the model repeats, by the names that they have within the step's model."""
        step = self.built.step
        blocks = set(family_of(step.parallel.model.model).blocks(step.parallel.model.model).values())
        named = {module: name.rpartition(".") for name, module in step.model.named_modules() if module in blocks}
        return {module: Layer(stack, int(index)) for module, (stack, _, index) in named.items()}

    def is_decoders(self, stack: str) -> bool:
        model = self.built.step.parallel.model.model
        if not model.config.is_encoder_decoder:
            return False
        inside = set(model.get_decoder().modules())
        return any(module in inside for module, layer in self.layers.items() if layer.stack == stack)

    def trace_whole(self, shapes: Sequence[Shape]) -> Tape:
        step = self.built.step
        recorder = TapeRecorder(step.model, self.spec.rules, self.layers)
        recorder.register([*step.model.parameters(), *step.model.buffers()], WEIGHTS)
        for parameter, state in step.optimizer.state.items():
            recorder.register([value for value in state.values() if isinstance(value, torch.Tensor)], STATE, parameter)
        with self._faking() as stack:
            if self.spec.rules.gradients_stay:
                for parameter in step.model.parameters():
                    parameter.grad = torch.zeros_like(parameter) if parameter.requires_grad else None
                    recorder.register([] if parameter.grad is None else [parameter.grad], GRADIENTS, parameter)
            batch = build_batch(shapes, LossRule.blank_label(step.parallel.model.model.config))
            for micro_batch in batch.micro_batches:
                recorder.register(
                    [value for value in vars(micro_batch).values() if isinstance(value, torch.Tensor)], INPUTS
                )
            stack.enter_context(recorder)
            step.run(batch)
        return recorder.tape

    @contextmanager
    def recording(self) -> Iterator[TapeRecorder]:
        """Around whatever runs on the step's model, where there is nothing but its weights, as in an evaluation."""
        step = self.built.step
        recorder = TapeRecorder(step.model, self.spec.rules)
        recorder.register([*step.model.parameters(), *step.model.buffers()], WEIGHTS)
        step.model.eval()
        with self._faking() as stack, torch.no_grad(), step.precision.autocast():
            if torch.is_autocast_enabled("cpu"):  # inference mode, which evaluations use, casts weights each time
                torch.set_autocast_cache_enabled(False)
            stack.enter_context(recorder)
            yield recorder
        step.model.train()

    @contextmanager
    def _faking(self) -> Iterator[ExitStack]:
        with ExitStack() as stack:
            stack.enter_context(_no_collection())  # a collection would free things at arbitrary points
            stack.enter_context(self._fake)
            stack.enter_context(self._fast)
            stack.enter_context(_AnyValue())
            stack.enter_context(self.spec.rules.in_force())
            yield stack


class _AnyValue(EagerMode):
    """A value where a model reads one (is any infinite? how large is a weight?): false, or one half."""

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if func is not torch.ops.aten._local_scalar_dense.default:
            return func(*args, **(kwargs or {}))
        dtype = args[0].dtype
        return False if dtype == torch.bool else 0.5 if dtype.is_floating_point else 1


def _materialise(model: nn.Module) -> None:
    """Replace meta tensors by (fake) CPU tensors; ties stay ties."""
    made: dict[torch.Tensor, torch.Tensor] = {}

    def make(tensor: torch.Tensor) -> torch.Tensor:
        if tensor not in made:
            empty = torch.empty_like(tensor, device=_CPU)
            is_parameter = isinstance(tensor, nn.Parameter)
            made[tensor] = nn.Parameter(empty, requires_grad=tensor.requires_grad) if is_parameter else empty
        return made[tensor]

    for module in model.modules():
        for tensors in (module._parameters, module._buffers):
            for name, tensor in tensors.items():
                if tensor is not None:
                    tensors[name] = make(tensor)  # type: ignore[assignment]


@contextmanager
def _no_collection() -> Iterator[None]:
    gc.disable()
    try:
        with leave_old_objects():
            yield
            gc.collect()
    finally:
        gc.enable()


@contextmanager
def leave_old_objects() -> Iterator[None]:
    """Only new objects are collected: scanning all of torch and transformers takes a third of a second each time."""
    global _left_old
    gc.freeze()
    _left_old += 1
    try:
        yield
    finally:
        _left_old -= 1
        if not _left_old:
            gc.unfreeze()


class _FakePrecision(Precision):
    """fp16's loss scaler reads values, which fake tensors lack; its memory is negligible."""

    @property
    def needs_scaler(self) -> bool:
        return False


def compare_peaks(
    model_config: ModelConfig, strategy: Strategy, precision: str, device: torch.device
) -> tuple[int, int]:
    """Peak bytes of one step of a small model with random weights, predicted and measured."""
    rules = rules_for("cpu" if device.type == "cpu" else "gpu")
    spec = StepSpec(model_config, ModelRecipe(path="selftest"), TrainRecipe(), strategy, precision, rules)
    shape = Shape(_SOURCES, _TARGETS, packed=strategy.batching == "packed")
    tape = FakeStep(spec).trace([shape])
    step, batch = build_real_step(spec, device).step, draw_batch([shape])
    step.run(batch)
    if device.type == "cpu":
        return tape.peak_bytes, measure_peak_bytes(step, batch)
    torch.cuda.reset_peak_memory_stats(device)
    step.run(batch)
    torch.cuda.synchronize(device)
    return measure_tape(tape, rules).allocated_bytes, torch.cuda.max_memory_allocated(device)


def build_real_step(spec: StepSpec, device: torch.device = _CPU) -> BuiltStep:
    """With random weights."""
    precision = Precision(spec.precision, device, "as planned")
    return build_step(_build_model(spec).to(device).train(), spec.train, spec.strategy, precision)


def measure_peak_bytes(step: TrainStep, batch: GlobalBatch) -> int:
    """Allocated bytes at the peak of one step, after an earlier one, which makes the optimizer's state."""
    with measure_peak(step, batch) as peak:
        step.run(batch)
    return peak.bytes
