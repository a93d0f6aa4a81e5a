from __future__ import annotations

from typing import Any

import pytest
import torch

from seqfit.step import clock as module
from seqfit.step.clock import ClockMoment, StepClock

CPU = torch.device("cpu")


class HostTime:
    """A clock that only a test moves."""

    def __init__(self) -> None:
        self.now = 0.0

    def perf_counter(self) -> float:
        return self.now


@pytest.fixture
def host(monkeypatch: pytest.MonkeyPatch) -> HostTime:
    host = HostTime()
    monkeypatch.setattr(module, "time", host)
    return host


class FakeDevice:
    """A GPU's queue: work and events in the order of their launch; the device is as far as a test lets it run."""

    def __init__(self) -> None:
        self.queue: list[Any] = []
        self.done = 0
        self.seconds = 0.0
        self.waits = 0

    def launch(self, seconds: float) -> None:
        self.queue.append(seconds)

    def run(self, entries: int | None = None) -> None:
        for entry in self.queue[self.done : None if entries is None else self.done + entries]:
            self.done += 1
            if isinstance(entry, float | int):
                self.seconds += entry
            else:
                entry.reached = self.seconds

    def make_event(self) -> type:
        device = self

        class Event:
            reached: float | None = None

            def __init__(self, enable_timing: bool) -> None:
                assert enable_timing

            def record(self) -> None:
                device.queue.append(self)

            def query(self) -> bool:
                return self.reached is not None

            def synchronize(self) -> None:
                device.waits += 1
                device.run()

            def elapsed_time(self, later: Event) -> float:
                assert self.reached is not None
                assert later.reached is not None
                return 1000 * (later.reached - self.reached)

        return Event


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> FakeDevice:
    device = FakeDevice()
    monkeypatch.setattr(torch.cuda, "Event", device.make_event())
    return device


def test_phases_of_one_name_add_up(host: HostTime) -> None:
    clock = StepClock(CPU)
    for seconds in (2.0, 3.0):
        with clock.phase("forward"):
            host.now += seconds
        with clock.phase("backward"):
            host.now += 10
    assert clock.take() == {"forward": 5.0, "backward": 20.0}


def test_a_window_starts_where_the_last_one_was_taken_and_totals_continue(host: HostTime) -> None:
    clock = StepClock(CPU)
    for seconds in (1.0, 4.0):
        with clock.phase("optimizer"):
            host.now += seconds
        assert clock.take() == {"optimizer": seconds}
    assert clock.take() == {}
    assert clock.totals == {"optimizer": 5.0}


def test_waiting_for_items_is_a_phase_and_using_them_is_not(host: HostTime) -> None:
    def slow() -> Any:
        for item in "ab":
            host.now += 1
            yield item
        host.now += 0.5

    clock = StepClock(CPU)
    seen = []
    for item in clock.each("data_wait", slow()):
        seen.append(item)
        host.now += 100
    assert seen == ["a", "b"]
    assert clock.totals == {"data_wait": 2.5}


def test_a_phase_that_raises_is_not_counted(host: HostTime) -> None:
    clock = StepClock(CPU)

    def fail() -> None:
        with clock.phase("forward"):
            host.now += 1
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    assert clock.totals == {}


def test_on_a_gpu_seconds_are_the_devices_and_nobody_waits_for_it(host: HostTime, device: FakeDevice) -> None:
    clock = StepClock(torch.device("cuda"))
    with clock.phase("forward"):
        device.launch(2)
        host.now += 0.001
    with clock.phase("backward"):
        device.launch(4)
    window = clock.take()
    assert window == {}  # the device has not begun
    device.run(3)  # to the end of the forward
    clock.settle()
    assert window == {"forward": 2.0}
    device.run()
    clock.settle()
    assert window == {"forward": 2.0, "backward": 4.0}
    assert device.waits == 0


def test_on_a_gpu_a_late_phase_belongs_to_the_window_in_which_it_was_launched(
    host: HostTime, device: FakeDevice
) -> None:
    clock = StepClock(torch.device("cuda"))
    with clock.phase("forward"):
        device.launch(2)
    first = clock.take()
    with clock.phase("forward"):
        device.launch(3)
    second = clock.take()
    device.run()
    clock.settle()
    assert (first, second) == ({"forward": 2.0}, {"forward": 3.0})


def test_on_a_gpu_waiting_for_data_costs_only_what_the_device_stands_idle(host: HostTime, device: FakeDevice) -> None:
    clock = StepClock(torch.device("cuda"))
    device.launch(5)
    with clock.phase("data_wait"):
        host.now += 3  # while the device is busy with the step before
    device.run()
    assert clock.totals == {"data_wait": 0.0}


def test_a_moment_on_a_gpu_can_be_waited_for(host: HostTime, device: FakeDevice) -> None:
    moment = ClockMoment.mark(torch.device("cuda"))
    assert not moment.is_reached()
    moment.wait()
    assert moment.is_reached()
