"""The line format, version 1: one JSON object a sample, in the order of the managed profiler's fields."""

import json
import math
from collections.abc import Iterable
from typing import NamedTuple

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
