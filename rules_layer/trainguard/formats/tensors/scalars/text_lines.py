"""The whole lines of a text file in any common encoding, with any ends of lines."""

import codecs
import csv
import io
from collections.abc import Iterator

MOST_LINE = 1024 * 1024

# UTF-32 before UTF-16, whose mark begins alike.
_MARKS = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)

_LOOKED_AT = 4_096
_PIECE = 1024 * 1024
_OTHER = "cp1252"
_CONTROLS = bytes(set(range(32)) - set(b"\t\n\r\f\v\x1b"))


def encoding_of(body: bytes) -> str:
    """Return the encoding of a text; raises UnicodeDecodeError for what is no text.

    Without a mark, zeros in every second byte are UTF-16; what is not UTF-8, and has no control characters, is of
    Windows: its digits are the same.
    """
    for mark, encoding in _MARKS:
        if body.startswith(mark):
            return encoding
    beginning = body[:_LOOKED_AT]
    if len(beginning) >= 4:
        even, odd = beginning[::2].count(0), beginning[1::2].count(0)
        if max(even, odd) * 5 >= len(beginning) * 2 and min(even, odd) == 0:
            return "utf-16-le" if odd else "utf-16-be"
    decoder = codecs.getincrementaldecoder("utf-8")()
    try:
        for start in range(0, len(body), _PIECE):
            decoder.decode(body[start : start + _PIECE])
    except UnicodeDecodeError:
        if beginning.translate(None, _CONTROLS) != beginning:
            raise
        return _OTHER
    return "utf-8"


def first_line(beginning: bytes) -> str:
    """Return the first line of a text of which ``beginning`` is a part; raises UnicodeDecodeError."""
    encoding = encoding_of(beginning)
    text = codecs.getincrementaldecoder(encoding)("strict" if encoding == _OTHER else "replace").decode(beginning)
    return next(iter(text.splitlines()), "")


class WholeLines(Iterator[str]):
    """The whole lines of a text; one that is too long is counted in ``too_long``, and empty.

    ``number`` is that of the line that was returned last, from 1 on. Raises UnicodeDecodeError when the text has no
    known encoding; csv.Error when quotes make one line of more than may be.
    """

    def __init__(self, body: bytes, most: int) -> None:
        encoding = encoding_of(body)
        self._text = io.TextIOWrapper(io.BytesIO(body), encoding=encoding, errors="replace", newline="")
        self.most = most
        self._kept: list[str] = []
        self._taken = 0
        self.number = 0
        self.too_long = 0

    def peek(self, count: int) -> list[str]:
        """Return the next lines, which are still to come."""
        while len(self._kept) < count and (line := self._read()) is not None:
            self._kept.append(line)
        return self._kept[:count]

    def begin_row(self) -> None:
        self._taken = 0

    def __next__(self) -> str:
        line = self._kept.pop(0) if self._kept else self._read()
        if line is None:
            raise StopIteration
        self.number += 1
        self._taken += len(line)
        if self._taken > self.most:
            raise csv.Error(f"a row has over {self.most:,} characters")
        return line

    def _read(self) -> str | None:
        """Return None at the end, and for a line that is still being written."""
        line = self._text.readline(self.most)
        is_long = False
        while line and not line.endswith(("\n", "\r")):
            more = self._text.readline(self.most)
            if not more:
                return None
            line, is_long = more, True
        if is_long:
            self.too_long += 1
            return "\n"
        return line or None
