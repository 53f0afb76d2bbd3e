"""Where in a frame the entries of its tensor lie: read from its beginning, so that the entries need not be held.

The payload is an Event, which holds a Summary, which holds one Value, which holds a tag and a TensorProto: five
messages, each inside the one before. This module steps into them in turn and stops at ``tensor_content``. What comes
before it takes a few hundred bytes. Each message must end where the one around it ends, or before.
"""

from dataclasses import dataclass

from google.protobuf import message

from trainguard.errors import TelemetryFormatError
from trainguard.tensors.messages import TensorShape, text
from trainguard.tensors.wire import BYTES, VARINT, Field, WireReader

_SUMMARY, _VALUE, _TAG, _TENSOR, _DTYPE, _SHAPE, _CONTENT = 5, 1, 1, 8, 1, 2, 4


@dataclass(frozen=True, slots=True)
class Content:
    """Entries of a tensor: their place in the payload and their number of bytes, their type and shape."""

    tag: str
    dtype: int
    shape: tuple[int, ...]
    offset: int
    size: int


def find_content(file: str, head: bytes, size: int) -> Content:
    """Return where the entries of the tensor of a frame lie.

    Parameters
    ----------
    file : str
        Named in errors.
    head : bytes
        The beginning of the payload.
    size : int
        Length of the whole payload.

    Raises
    ------
    TelemetryFormatError
        When the entries do not begin in ``head``, or a message does not end within the one around it.
    """
    reader = WireReader(file, head)
    summary = reader.enter(0, size, _SUMMARY, "summary")
    value = reader.enter(summary.start, summary.end, _VALUE, "value")
    tag = b""
    for field in reader.fields(value.start, value.end):
        if field.number == _TAG and field.wire == BYTES:
            tag = reader.bytes_of(field)
        elif field.number == _TENSOR and field.wire == BYTES:
            return _tensor(reader, field, text(file, tag))
    raise TelemetryFormatError(file, "a frame's value holds no tensor")


def _tensor(reader: WireReader, tensor: Field, tag: str) -> Content:
    dtype, shape = 0, b""
    for field in reader.fields(tensor.start, tensor.end):
        if field.number == _DTYPE and field.wire == VARINT:
            dtype = field.value
        elif field.number == _SHAPE and field.wire == BYTES:
            shape = reader.bytes_of(field)
        elif field.number == _CONTENT and field.wire == BYTES:
            return Content(tag, dtype, _sizes(reader.file, shape), field.start, field.end - field.start)
    raise TelemetryFormatError(reader.file, f"tensor {tag} has no tensor_content, expected its entries there")


def _sizes(file: str, shape: bytes) -> tuple[int, ...]:
    try:
        return tuple(each.size for each in TensorShape.FromString(shape).dim)
    except message.DecodeError as fault:
        raise TelemetryFormatError(file, f"a tensor's shape cannot be read: {fault}") from fault
