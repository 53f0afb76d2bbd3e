"""The line format, version 1: a JSON object a sample, in the order of the managed profiler's fields."""

import json
import math
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple, Optional

FORMAT_VERSION = 1


class Sample(NamedTuple):
    """A value of one series; ``dimension`` is empty for series that the managed profiler does not have per device."""

    type: str
    name: str
    dimension: str
    value: float


def encode(samples: Iterable[Sample], node: str, at: float) -> bytes:
    """Return one snapshot, taken at epoch second ``at``, as lines; what is no finite number is left out."""
    tail = f',"NodeId":{json.dumps(node)},"Timestamp":{at:.6f}}}\n'
    return "".join(
        [
            f'{{"Type":"{kind}","Name":"{name}","Dimension":"{dimension}","Value":{float(value):.2f}{tail}'
            for kind, name, dimension, value in samples
            if math.isfinite(value)
        ]
    ).encode()


# What an error means: for the device, for the metric, or for this reading alone.
LOST, NEVER, PASSING = "lost", "never", "passing"

# Passing errors in a row after which a metric is given up.
_PATIENCE = 20

# Name after the device's, dimension and value; a managed series has the device's own name.
Values = Iterator[tuple[str, str, float]]

# Gets the time in seconds.
Read = Callable[[float], Values]


def reading(*series: "tuple[str, str, Callable[[], Any]]") -> Read:
    """Return a reader of series of one call each: name, dimension, and what gives the value."""

    def read(_: float) -> Values:
        for name, dimension, value in series:
            yield name, dimension, float(value())

    return read


class NotMeasuredError(Exception):
    """The device does not measure this."""


class Device:
    """One accelerator: `fast` metrics are read each time, `slow` ones when asked, `always` ones also after its loss.

    ``knows_loss`` says that its library has an error for a device that is gone.
    """

    def __init__(
        self, name: str, faults: dict[str, str], judge: Callable[[Exception], str], *, knows_loss: bool = True
    ) -> None:
        self.name = name
        self._knows_loss = knows_loss
        self.is_lost = False
        # Attributes of OpenTelemetry: id, vendor, model.
        self.about: dict[str, str] = {}
        self.fast: dict[str, Read] = {}
        self.slow: dict[str, Read] = {}
        self.always: dict[str, Read] = {}
        self._faults, self._judge = faults, judge
        self._errors: dict[str, int] = {}

    def read(self, at: float, *, with_slow: bool) -> list[Sample]:
        samples: list[Sample] = []
        for table in (self.fast, self.slow) if with_slow else (self.fast,):
            for metric in list(table):
                if self.is_lost:
                    break
                samples += self._try(table, metric, at)
        if with_slow:
            for metric in list(self.always):
                samples += self._try(self.always, metric, at)
            if self._knows_loss:
                samples.append(Sample("gpu", f"{self.name}.Lost", "", float(self.is_lost)))
        return samples

    def lose(self, fault: object) -> None:
        self.is_lost = True
        self._faults[self.name] = f"lost: {fault}"[:200]

    def lack(self, metric: str, fault: object) -> None:
        self._faults[f"{self.name}.{metric}"] = str(fault)[:200]

    def _try(self, table: dict[str, Read], metric: str, at: float) -> list[Sample]:
        samples: list[Sample] = []
        try:
            for name, dimension, value in table[metric](at):
                samples.append(Sample("gpu", f"{self.name}.{name}" if name else self.name, dimension, value))
        except Exception as fault:
            meaning = NEVER if isinstance(fault, (AttributeError, NotMeasuredError)) else self._judge(fault)
            self._errors[metric] = self._errors.get(metric, 0) + 1
            if meaning == LOST:
                self.lose(fault)
            elif meaning == NEVER or self._errors[metric] >= _PATIENCE:
                table.pop(metric)
                self.lack(metric, fault)
        else:
            self._errors.pop(metric, None)
        return samples


class Rates:
    def __init__(self) -> None:
        self._last: dict[str, tuple[float, float]] = {}

    def rate(self, name: str, at: float, count: float) -> Optional[float]:
        """Return units a second since the last call; None for the first, and when the counter went back."""
        was_at, was = self._last.get(name, (at, count))
        self._last[name] = at, count
        return (count - was) / (at - was_at) if at > was_at and count >= was else None
