"""Faults that tests order at the ports of the in-memory twins."""

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import Enum, auto

from trainguard.core.errors import PortUnavailableError, StateConflictError
from trainguard.core.ports import (
    ByteStream,
    ExecutionRecords,
    Executions,
    ProfileObjects,
    ReadableObjects,
    ReconcileRequests,
    SettingDocuments,
    TaskQueue,
    TrainingJobs,
)
from trainguard.core.stores import Bookkeeping, Jobs, NodeStates, RuleStates, StopBudget
from trainguard.stack.canary_job import CanaryJobs
from trainguard.stack.organisation.stop_limit import StopLimit

# For example ``NodeStates.save``.
OPERATIONS = frozenset(
    f"{port.__name__}.{name}"
    for port in (
        NodeStates,
        RuleStates,
        Jobs,
        Bookkeeping,
        ReadableObjects,
        ProfileObjects,
        ByteStream,
        Executions,
        ExecutionRecords,
        TrainingJobs,
        TaskQueue,
        ReconcileRequests,
        SettingDocuments,
        StopBudget,
        StopLimit,
        CanaryJobs,
    )
    for name, member in vars(port).items()
    if not name.startswith("_") and callable(member)
)


class Crash(BaseException):
    """The process dies here: like SystemExit, no ``except Exception`` survives it."""


class Fault(Enum):
    """What goes wrong with a call: before its effect, after it (the answer is lost), or as a conflict."""

    FAIL_BEFORE = auto()
    FAIL_AFTER = auto()
    CRASH_BEFORE = auto()
    CRASH_AFTER = auto()
    CONFLICT = auto()


@dataclass(slots=True)
class _Order:
    operation: str
    first: int
    last: int
    what: Fault | Callable[[], object]
    met: int = 0


@dataclass(slots=True)
class _Call:
    operation: str
    item: str
    version: int
    index: int
    faults: list[Fault] = field(default_factory=list)


class Faults:
    """The switchboard that all twins of one world share; thread-safe.

    A call is one request that the AWS adapter would make: ``publish`` counts once a row, ``mark_sent`` once an entry,
    ``TaskQueue.send`` once for ten tasks, ``ReconcileRequests.send`` once a request, ``list`` once a page.

    Examples
    --------
    >>> faults = Faults()
    >>> faults.schedule("NodeStates.save", Fault.CONFLICT, nth=2)
    >>> with faults.call("NodeStates.save"):
    ...     pass
    >>> faults.calls
    ('NodeStates.save',)
    """

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._orders: list[_Order] = []
        self._calls: list[str] = []
        self._counts: Counter[str] = Counter()
        self._last_call: int | None = None

    @property
    def calls(self) -> tuple[str, ...]:
        """Operations called so far, in order."""
        with self._lock:
            return tuple(self._calls)

    @property
    def pending(self) -> tuple[str, ...]:
        """Operations whose faults have not all been met: empty at the end of a test."""
        with self._lock:
            waiting = [order.operation for order in self._orders if order.met <= order.last - order.first]
            return (*waiting, *(["any"] if self._last_call is not None else []))

    def schedule(self, operation: str, fault: Fault, *, nth: int = 1, times: int = 1) -> None:
        """Order a fault for the ``nth`` call of the operation from now, and for ``times`` calls in a row."""
        if fault is Fault.CONFLICT and operation != "NodeStates.save":
            raise ValueError(f"operation {operation!r} cannot conflict, only NodeStates.save can")
        self._order(operation, fault, nth, times)

    def interleave(self, operation: str, action: Callable[[], object], *, nth: int = 1) -> None:
        """Let another process act just before the ``nth`` call of the operation from now takes effect."""
        self._order(operation, action, nth, 1)

    def crash_after(self, calls: int) -> None:
        """Let the process die when ``calls`` more port calls, of any kind, have taken effect; 0: before the next."""
        if calls < 0:
            raise ValueError(f"calls is {calls}, expected 0 or more")
        with self._lock:
            self._last_call = len(self._calls) + calls

    def clear(self) -> None:
        with self._lock:
            self._orders.clear()
            self._last_call = None

    @contextmanager
    def call(self, operation: str, *, item: str = "", version: int = 0) -> Iterator[None]:
        """Surround one call's effect; twins alone use this."""
        call = self._begin(operation, item, version)
        try:
            yield
        except Exception:
            # A call that raises has been answered: the process may die right after it like after any other.
            self._die_if_due(call)
            raise
        self._die_if_due(call)
        _raise_first(call, (Fault.FAIL_AFTER, Fault.CRASH_AFTER))

    def _order(self, operation: str, what: Fault | Callable[[], object], nth: int, times: int) -> None:
        if operation not in OPERATIONS:
            raise ValueError(f"operation {operation!r} is unknown, expected one of {', '.join(sorted(OPERATIONS))}")
        if nth < 1 or times < 1:
            raise ValueError(f"nth is {nth} and times is {times}, expected 1 or more")
        with self._lock:
            first = self._counts[operation] + nth
            self._orders.append(_Order(operation, first, first + times - 1, what))

    def _begin(self, operation: str, item: str, version: int) -> _Call:
        actions: list[Callable[[], object]] = []
        with self._lock:
            if self._last_call is not None and len(self._calls) >= self._last_call:
                self._last_call = None
                raise Crash(f"before {operation}")
            self._calls.append(operation)
            self._counts[operation] += 1
            call = _Call(operation, item, version, len(self._calls))
            nth = self._counts[operation]
            for order in self._orders:
                if order.operation == operation and order.first <= nth <= order.last:
                    order.met += 1
                    if isinstance(order.what, Fault):
                        call.faults.append(order.what)
                    else:
                        actions.append(order.what)
        for action in actions:
            action()
        _raise_first(call, (Fault.FAIL_BEFORE, Fault.CRASH_BEFORE, Fault.CONFLICT))
        return call

    def _die_if_due(self, call: _Call) -> None:
        with self._lock:
            due = self._last_call is not None and call.index >= self._last_call
            if due:
                self._last_call = None
        if due:
            raise Crash(f"after {call.operation}")


def _raise_first(call: _Call, kinds: tuple[Fault, ...]) -> None:
    for fault in call.faults:
        if fault not in kinds:
            continue
        if fault is Fault.CONFLICT:
            raise StateConflictError(call.item, call.version)
        if fault in {Fault.CRASH_BEFORE, Fault.CRASH_AFTER}:
            raise Crash(f"{fault.name} at {call.operation}")
        service, _, operation = call.operation.partition(".")
        raise PortUnavailableError(service, operation, f"ordered {fault.name}")
