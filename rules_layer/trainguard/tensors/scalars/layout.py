"""Where the numbers of an event lie that holds one scalar and nothing else."""

from collections.abc import Iterable
from dataclasses import dataclass

from trainguard.errors import TelemetryFormatError
from trainguard.tensors.wire import BYTES, FIXED32, FIXED64, VARINT, Field, WireReader

_WALL_TIME, _STEP, _SUMMARY, _VALUE = 1, 2, 5, 1
_TAG, _SIMPLE, _TENSOR, _METADATA = 1, 2, 8, 9
_DTYPE, _SHAPE, _CONTENT, _FLOATS, _DOUBLES = 1, 2, 4, 5, 6
_FLOAT, _DOUBLE = 1, 2
_SIZES = {_FLOAT: 4, _DOUBLE: 8}
_NUMBERS = {_FLOAT: (_CONTENT, _FLOATS), _DOUBLE: (_CONTENT, _DOUBLES)}

Place = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Layout:
    """Where in a payload the time, the step and the value lie: bytes from and to, the end exclusive.

    A step that is 0 is not written: its place is empty.
    """

    time: Place
    step: Place
    value: Place


def find_layout(file: str, payload: bytes) -> Layout | None:
    """Return the layout of an event with one scalar, a float or a double; None of any other."""
    reader = WireReader(file, payload)
    try:
        event = _once(reader.fields(0, len(payload)), {_WALL_TIME: FIXED64, _STEP: VARINT, _SUMMARY: BYTES})
        if event is None or _WALL_TIME not in event or _SUMMARY not in event:
            return None
        summary = _once(_inside(reader, event[_SUMMARY]), {_VALUE: BYTES})
        value = None if not summary else _value(reader, summary[_VALUE])
    except TelemetryFormatError:
        return None
    if value is None:
        return None
    step = event.get(_STEP)
    return Layout(_place(event[_WALL_TIME]), (0, 0) if step is None else _place(step), value)


def _value(reader: WireReader, value: Field) -> Place | None:
    fields = _once(_inside(reader, value), {_TAG: BYTES, _SIMPLE: FIXED32, _TENSOR: BYTES, _METADATA: BYTES})
    if fields is None or (_SIMPLE in fields) == (_TENSOR in fields):
        return None
    return _place(fields[_SIMPLE]) if _SIMPLE in fields else _tensor(reader, fields[_TENSOR])


def _tensor(reader: WireReader, tensor: Field) -> Place | None:
    fields = _once(
        _inside(reader, tensor), {_DTYPE: VARINT, _SHAPE: BYTES, _CONTENT: BYTES, _FLOATS: BYTES, _DOUBLES: BYTES}
    )
    dtype = fields[_DTYPE].value if fields and _DTYPE in fields else 0
    if fields is None or dtype not in _SIZES:
        return None
    held = [number for number in (_CONTENT, _FLOATS, _DOUBLES) if number in fields]
    if len(held) != 1 or held[0] not in _NUMBERS[dtype]:
        return None
    start, end = _place(fields[held[0]])
    return (start, end) if end - start == _SIZES[dtype] else None


def _inside(reader: WireReader, field: Field) -> Iterable[Field]:
    return reader.fields(field.start, field.end)


def _once(fields: Iterable[Field], expected: dict[int, int]) -> dict[int, Field] | None:
    """Return fields by number; None where one is not expected, is of another wire type, or comes twice."""
    found: dict[int, Field] = {}
    for field in fields:
        if expected.get(field.number) != field.wire or field.number in found:
            return None
        found[field.number] = field
    return found


def _place(field: Field) -> Place:
    return field.start, field.end
