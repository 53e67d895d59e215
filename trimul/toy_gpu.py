"""A GPU whose time is a number: it queues, compiles and waits as a real one does, at once.

It has no caches and no memory; it is there to show what a clock sees. The same program gives the
same microseconds on every machine.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Span:
    """What took time on "host" or "device", from ``start`` to ``end`` in microseconds."""

    where: str
    what: str
    start: float
    end: float


class ToyGPU:
    """A device that works through a queue of kernels while the host goes on.

    ``now`` is the host's clock in microseconds: read it as ``time.perf_counter``. A launch
    costs the host ``launch_us``, and ``compile_us`` more the first time that a kernel is used. A
    kernel starts once it is launched and the one before it is done. ``log`` holds every Span.
    """

    def __init__(self, launch_us: float = 5, compile_us: float = 50_000):
        self.launch_us, self.compile_us = launch_us, compile_us
        self.now = 0.0
        self.log: list[Span] = []
        self._idle_from = 0.0
        self._compiled: set[str] = set()

    def launch(self, kernel: str, us: float) -> None:
        """Put a kernel that runs for ``us`` microseconds into the queue, and return at once."""
        if kernel not in self._compiled:
            self._compiled.add(kernel)
            self._spend("compile", self.compile_us)
        self._spend("launch", self.launch_us)
        start = max(self.now, self._idle_from)
        self._idle_from = start + us
        self.log.append(Span("device", kernel, start, self._idle_from))

    def synchronize(self) -> None:
        """Let the host wait until the queue is empty."""
        self._spend("wait", max(0.0, self._idle_from - self.now))

    def event(self) -> Event:
        """A mark that travels through the queue, like ``torch.cuda.Event(enable_timing=True)``."""
        return Event(self)

    def _spend(self, what: str, us: float) -> None:
        if us:
            self.log.append(Span("host", what, self.now, self.now + us))
            self.now += us


class Event:
    """Notes the time at which the device comes to it: after what was launched before ``record``."""

    def __init__(self, gpu: ToyGPU):
        self._gpu = gpu
        self._at = None

    def record(self) -> None:
        self._at = max(self._gpu.now, self._gpu._idle_from)

    def elapsed_us(self, end: Event) -> float:
        """Microseconds from this event to ``end``.

        Raises RuntimeError for an event that was not recorded, or that the device has yet to reach.
        """
        if self._at is None or end._at is None:
            raise RuntimeError("record both events before you ask for the time between them")
        if end._at > self._gpu.now:
            raise RuntimeError("the device has not come to the event yet: synchronize first")
        return end._at - self._at
