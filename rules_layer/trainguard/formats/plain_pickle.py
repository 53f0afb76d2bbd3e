"""A pickle of plain values, read by its opcodes within bounds: nothing is constructed by name, nothing is run.

The opcodes are those of Python's ``pickletools``, protocols 0 to 5. Values are dict with text keys, list, tuple, str,
int, float, bool and None; all other opcodes, such as GLOBAL and REDUCE, end the reading.
"""

import struct
from collections.abc import Callable, Sequence
from typing import Any

# Values of a pickle; one that stands in several places counts once.
MOST_VALUES = 12_000_000

# Containers that are open at once.
MOST_MARKS = 64

# Values that wait for their container; Python's picklers hand over a thousand at once.
MOST_STACK = 100_000

# Bytes of a whole number.
LONGEST_INT = 16

# Bytes of a value of protocol 0, which ends with its line.
LONGEST_LINE = 1024 * 1024

EXPECTED = "expected plain values: dict, list, tuple, str, int, float, bool, None"

_STOP = ord(".")


class PickleError(ValueError):
    """A pickle that cannot be read, with the place in it and what would be right."""


def read_plain(data: bytes) -> Any:
    """Return the value of a pickle; the same list or dict where the pickle refers to one twice.

    Raises PickleError for an opcode that makes anything else, for damage, and beyond the bounds.
    """
    return _Reader(data).value()


class _Reader:
    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0
        self._values = 0
        self._marks: list[int] = []
        self._stack: list[Any] = []
        self._memo: dict[int, Any] = {}

    def value(self) -> Any:
        data, size = self._data, len(self._data)
        while self._at < size:
            begin = self._at
            code = data[begin]
            if code == _STOP:
                if len(self._stack) != 1 or self._marks:
                    raise PickleError(f"STOP at byte {begin:,} behind {len(self._stack):,} values, expected one")
                return self._stack[0]
            action = _ACTIONS.get(code)
            if action is None:
                raise PickleError(f"opcode {bytes([code])!r} at byte {begin:,}, {EXPECTED}")
            self._at = begin + 1
            try:
                action(self)
            except PickleError as fault:
                raise PickleError(f"opcode {bytes([code])!r} at byte {begin:,}: {fault}") from fault
        raise PickleError(f"it ends at byte {size:,} without STOP, expected a whole pickle")

    def take(self, count: int) -> bytes:
        end = self._at + count
        if end > len(self._data):
            raise PickleError(f"{count:,} bytes, but the file has {len(self._data) - self._at:,} more")
        taken = self._data[self._at : end]
        self._at = end
        return taken

    def size(self, width: int) -> int:
        return int.from_bytes(self.take(width), "little")

    def line(self) -> str:
        end = self._data.find(b"\n", self._at, self._at + LONGEST_LINE)
        if end < 0:
            raise PickleError(f"a line without an end, expected one of at most {LONGEST_LINE:,} bytes")
        taken = self._data[self._at : end]
        self._at = end + 1
        try:
            return taken.decode("raw-unicode-escape")
        except UnicodeDecodeError as fault:
            raise PickleError(f"{fault}, expected text") from fault

    def place(self) -> int:
        """Return the place in the memo that a line names."""
        return int(_number(int, self.line()[:LONGEST_INT]))

    def push(self, value: Any) -> None:
        self._values += 1
        if self._values > MOST_VALUES:
            raise PickleError(f"over {MOST_VALUES:,} values, expected fewer")
        if len(self._stack) >= MOST_STACK:
            raise PickleError(f"over {MOST_STACK:,} values without a container, expected fewer")
        self._stack.append(value)

    def mark(self) -> None:
        if len(self._marks) >= MOST_MARKS:
            raise PickleError(f"over {MOST_MARKS} open containers, expected fewer")
        self._marks.append(len(self._stack))

    def last(self, count: int) -> tuple[Any, ...]:
        """Take the last values of the container that is open."""
        if len(self._stack) - count < (self._marks[-1] if self._marks else 0):
            raise PickleError("a value is missing")
        values = tuple(self._stack[-count:])
        del self._stack[-count:]
        return values

    def marked(self) -> list[Any]:
        """Take the values behind the last mark."""
        if not self._marks:
            raise PickleError("no MARK before it")
        begin = self._marks.pop()
        values = self._stack[begin:]
        del self._stack[begin:]
        return values

    def append(self, values: Sequence[Any]) -> None:
        self._top(list).extend(values)

    def set_items(self, values: Sequence[Any]) -> None:
        target = self._top(dict)
        if len(values) % 2:
            raise PickleError("a key without a value")
        for key in values[::2]:
            # Other keys can be made to collide, so that a small file takes hours.
            if type(key) is not str:
                raise PickleError(f"a key of type {type(key).__name__}, expected text")
        target.update(zip(values[::2], values[1::2], strict=True))

    def new_dict(self, values: Sequence[Any]) -> None:
        self.push({})
        self.set_items(values)

    def new_int(self, width: int) -> None:
        if width > LONGEST_INT:
            raise PickleError(f"an int of {width:,} bytes, expected at most {LONGEST_INT}")
        self.push(int.from_bytes(self.take(width), "little", signed=True))

    def new_int_of_line(self) -> None:
        line = self.line()
        if line in ("00", "01"):
            self.push(line == "01")
            return
        digits = line.removesuffix("L")
        if len(digits) > 3 * LONGEST_INT:
            raise PickleError(f"an int of {len(digits):,} digits, expected at most {3 * LONGEST_INT}")
        self.push(_number(int, digits))

    def new_text(self, size: int) -> None:
        self.push(self.take(size).decode("utf-8", "replace"))

    def keep(self, place: int | None = None) -> None:
        """Remember the last value, at the next place unless it is given one."""
        if not self._stack:
            raise PickleError("no value to remember")
        self._memo[len(self._memo) if place is None else place] = self._stack[-1]

    def recall(self, place: int) -> None:
        if place not in self._memo:
            raise PickleError(f"memo {place:,} is unknown")
        self.push(self._memo[place])

    def check_protocol(self, version: int) -> None:
        if version > _PROTOCOLS:
            raise PickleError(f"protocol {version}, expected 0 to {_PROTOCOLS}")

    def _top(self, kind: type) -> Any:
        if len(self._stack) <= (self._marks[-1] if self._marks else 0) or type(self._stack[-1]) is not kind:
            raise PickleError(f"no {kind.__name__} before its values")
        return self._stack[-1]


def _number(kind: Callable[[str], Any], text: str) -> Any:
    try:
        return kind(text)
    except ValueError as fault:
        raise PickleError(f"{text[:40]!r}, expected a number") from fault


_PROTOCOLS = 5

_ACTIONS: dict[int, Callable[[_Reader], object]] = {
    0x80: lambda reader: reader.check_protocol(reader.size(1)),
    0x95: lambda reader: reader.take(8),  # the length of a frame
    ord("("): _Reader.mark,
    ord("N"): lambda reader: reader.push(None),
    0x88: lambda reader: reader.push(True),
    0x89: lambda reader: reader.push(False),
    ord("K"): lambda reader: reader.push(reader.size(1)),
    ord("M"): lambda reader: reader.push(reader.size(2)),
    ord("J"): lambda reader: reader.new_int(4),
    0x8A: lambda reader: reader.new_int(reader.size(1)),
    0x8B: lambda reader: reader.new_int(reader.size(4)),
    ord("I"): _Reader.new_int_of_line,
    ord("L"): _Reader.new_int_of_line,
    ord("F"): lambda reader: reader.push(_number(float, reader.line())),
    ord("G"): lambda reader: reader.push(struct.unpack(">d", reader.take(8))[0]),
    0x8C: lambda reader: reader.new_text(reader.size(1)),
    ord("X"): lambda reader: reader.new_text(reader.size(4)),
    0x8D: lambda reader: reader.new_text(reader.size(8)),
    ord("V"): lambda reader: reader.push(reader.line()),
    ord("}"): lambda reader: reader.push({}),
    ord("]"): lambda reader: reader.push([]),
    ord(")"): lambda reader: reader.push(()),
    0x85: lambda reader: reader.push(reader.last(1)),
    0x86: lambda reader: reader.push(reader.last(2)),
    0x87: lambda reader: reader.push(reader.last(3)),
    ord("t"): lambda reader: reader.push(tuple(reader.marked())),
    ord("l"): lambda reader: reader.push(reader.marked()),
    ord("d"): lambda reader: reader.new_dict(reader.marked()),
    ord("a"): lambda reader: reader.append(reader.last(1)),
    ord("e"): lambda reader: reader.append(reader.marked()),
    ord("s"): lambda reader: reader.set_items(reader.last(2)),
    ord("u"): lambda reader: reader.set_items(reader.marked()),
    0x94: _Reader.keep,
    ord("q"): lambda reader: reader.keep(reader.size(1)),
    ord("r"): lambda reader: reader.keep(reader.size(4)),
    ord("p"): lambda reader: reader.keep(reader.place()),
    ord("h"): lambda reader: reader.recall(reader.size(1)),
    ord("j"): lambda reader: reader.recall(reader.size(4)),
    ord("g"): lambda reader: reader.recall(reader.place()),
}
