"""A pickle of plain values, read by its opcodes within bounds: nothing is constructed by name, nothing is run.

The opcodes are those of Python's ``pickletools``, protocols 0 to 5. Values are dict with text keys, list, tuple, str,
int, float, bool and None; all other opcodes, such as GLOBAL and REDUCE, end the reading.
"""

import struct
from collections.abc import Callable
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
        self._actions: dict[int, Callable[[], None]] = {code: getattr(self, name) for code, name in _ACTIONS.items()}

    def value(self) -> Any:
        data, size, actions = self._data, len(self._data), self._actions
        while self._at < size:
            begin = self._at
            code = data[begin]
            if code == _STOP:
                if len(self._stack) != 1 or self._marks:
                    raise PickleError(f"STOP at byte {begin:,} behind {len(self._stack):,} values, expected one")
                return self._stack[0]
            action = actions.get(code)
            if action is None:
                raise PickleError(f"opcode {bytes([code])!r} at byte {begin:,}, {EXPECTED}")
            self._at = begin + 1
            try:
                action()
            except PickleError as fault:
                raise PickleError(f"opcode {bytes([code])!r} at byte {begin:,}: {fault}") from fault
        raise PickleError(f"it ends at byte {size:,} without STOP, expected a whole pickle")

    def _take(self, count: int) -> bytes:
        end = self._at + count
        if end > len(self._data):
            raise PickleError(f"{count:,} bytes, but the file has {len(self._data) - self._at:,} more")
        taken = self._data[self._at : end]
        self._at = end
        return taken

    def _size(self, width: int) -> int:
        return int.from_bytes(self._take(width), "little")

    def _line(self) -> str:
        end = self._data.find(b"\n", self._at, self._at + LONGEST_LINE)
        if end < 0:
            raise PickleError(f"a line without an end, expected one of at most {LONGEST_LINE:,} bytes")
        taken = self._data[self._at : end]
        self._at = end + 1
        try:
            return taken.decode("raw-unicode-escape")
        except UnicodeDecodeError as fault:
            raise PickleError(f"{fault}, expected text") from fault

    def _push(self, value: Any) -> None:
        self._values += 1
        if self._values > MOST_VALUES:
            raise PickleError(f"over {MOST_VALUES:,} values, expected fewer")
        if len(self._stack) >= MOST_STACK:
            raise PickleError(f"over {MOST_STACK:,} values without a container, expected fewer")
        self._stack.append(value)

    def _pop(self) -> Any:
        if len(self._stack) <= (self._marks[-1] if self._marks else 0):
            raise PickleError("a value is missing")
        return self._stack.pop()

    def _marked(self) -> list[Any]:
        if not self._marks:
            raise PickleError("no MARK before it")
        begin = self._marks.pop()
        values = self._stack[begin:]
        del self._stack[begin:]
        return values

    def _top(self, kind: type) -> Any:
        if len(self._stack) <= (self._marks[-1] if self._marks else 0) or type(self._stack[-1]) is not kind:
            raise PickleError(f"no {kind.__name__} before its values")
        return self._stack[-1]

    def _proto(self) -> None:
        version = self._size(1)
        if version > _PROTOCOLS:
            raise PickleError(f"protocol {version}, expected 0 to {_PROTOCOLS}")

    def _frame(self) -> None:
        self._take(8)

    def _mark(self) -> None:
        if len(self._marks) >= MOST_MARKS:
            raise PickleError(f"over {MOST_MARKS} open containers, expected fewer")
        self._marks.append(len(self._stack))

    def _none(self) -> None:
        self._push(None)

    def _true(self) -> None:
        self._push(True)

    def _false(self) -> None:
        self._push(False)

    def _int1(self) -> None:
        self._push(self._take(1)[0])

    def _int2(self) -> None:
        self._push(self._size(2))

    def _int4(self) -> None:
        self._push(int.from_bytes(self._take(4), "little", signed=True))

    def _long1(self) -> None:
        self._long(self._size(1))

    def _long4(self) -> None:
        self._long(self._size(4))

    def _long(self, width: int) -> None:
        if width > LONGEST_INT:
            raise PickleError(f"an int of {width:,} bytes, expected at most {LONGEST_INT}")
        self._push(int.from_bytes(self._take(width), "little", signed=True))

    def _int_line(self) -> None:
        line = self._line()
        if line in ("00", "01"):
            self._push(line == "01")
            return
        digits = line.removesuffix("L")
        if len(digits) > 3 * LONGEST_INT:
            raise PickleError(f"an int of {len(digits):,} digits, expected at most {3 * LONGEST_INT}")
        self._push(_number(int, digits))

    def _float_line(self) -> None:
        self._push(_number(float, self._line()[:LONGEST_LINE]))

    def _float8(self) -> None:
        self._push(struct.unpack(">d", self._take(8))[0])

    def _text1(self) -> None:
        self._text(self._size(1))

    def _text4(self) -> None:
        self._text(self._size(4))

    def _text8(self) -> None:
        self._text(self._size(8))

    def _text(self, size: int) -> None:
        self._push(self._take(size).decode("utf-8", "replace"))

    def _text_line(self) -> None:
        self._push(self._line())

    def _new_dict(self) -> None:
        self._push({})

    def _new_list(self) -> None:
        self._push([])

    def _new_tuple(self) -> None:
        self._push(())

    def _tuple1(self) -> None:
        self._push((self._pop(),))

    def _tuple2(self) -> None:
        last = self._pop()
        self._push((self._pop(), last))

    def _tuple3(self) -> None:
        last, middle = self._pop(), self._pop()
        self._push((self._pop(), middle, last))

    def _marked_tuple(self) -> None:
        self._push(tuple(self._marked()))

    def _marked_list(self) -> None:
        self._push(self._marked())

    def _marked_dict(self) -> None:
        values = self._marked()
        made: dict[str, Any] = {}
        self._push(made)
        _fill(made, values)

    def _append(self) -> None:
        value = self._pop()
        self._top(list).append(value)

    def _appends(self) -> None:
        values = self._marked()
        self._top(list).extend(values)

    def _set_item(self) -> None:
        value = self._pop()
        key = self._pop()
        _fill(self._top(dict), [key, value])

    def _set_items(self) -> None:
        values = self._marked()
        _fill(self._top(dict), values)

    def _memoize(self) -> None:
        self._keep(len(self._memo))

    def _put1(self) -> None:
        self._keep(self._size(1))

    def _put4(self) -> None:
        self._keep(self._size(4))

    def _put_line(self) -> None:
        self._keep(_number(int, self._line()[:LONGEST_INT]))

    def _keep(self, place: int) -> None:
        if not self._stack:
            raise PickleError("no value to remember")
        self._memo[place] = self._stack[-1]

    def _get1(self) -> None:
        self._get(self._size(1))

    def _get4(self) -> None:
        self._get(self._size(4))

    def _get_line(self) -> None:
        self._get(_number(int, self._line()[:LONGEST_INT]))

    def _get(self, place: int) -> None:
        if place not in self._memo:
            raise PickleError(f"memo {place:,} is unknown")
        self._push(self._memo[place])


def _fill(target: dict[str, Any], values: list[Any]) -> None:
    if len(values) % 2:
        raise PickleError("a key without a value")
    for key in values[::2]:
        # Other keys can be made to collide, so that a small file takes hours.
        if type(key) is not str:
            raise PickleError(f"a key of type {type(key).__name__}, expected text")
    target.update(zip(values[::2], values[1::2], strict=True))


def _number(kind: Callable[[str], Any], text: str) -> Any:
    try:
        return kind(text)
    except ValueError as fault:
        raise PickleError(f"{text[:40]!r}, expected a number") from fault


_PROTOCOLS = 5

_ACTIONS = {
    0x80: "_proto",
    0x95: "_frame",
    ord("("): "_mark",
    ord("N"): "_none",
    0x88: "_true",
    0x89: "_false",
    ord("K"): "_int1",
    ord("M"): "_int2",
    ord("J"): "_int4",
    0x8A: "_long1",
    0x8B: "_long4",
    ord("I"): "_int_line",
    ord("L"): "_int_line",
    ord("F"): "_float_line",
    ord("G"): "_float8",
    0x8C: "_text1",
    ord("X"): "_text4",
    0x8D: "_text8",
    ord("V"): "_text_line",
    ord("}"): "_new_dict",
    ord("]"): "_new_list",
    ord(")"): "_new_tuple",
    0x85: "_tuple1",
    0x86: "_tuple2",
    0x87: "_tuple3",
    ord("t"): "_marked_tuple",
    ord("l"): "_marked_list",
    ord("d"): "_marked_dict",
    ord("a"): "_append",
    ord("e"): "_appends",
    ord("s"): "_set_item",
    ord("u"): "_set_items",
    0x94: "_memoize",
    ord("q"): "_put1",
    ord("r"): "_put4",
    ord("p"): "_put_line",
    ord("h"): "_get1",
    ord("j"): "_get4",
    ord("g"): "_get_line",
}
