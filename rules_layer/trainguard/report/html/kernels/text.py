"""Times and sizes of kernel profiles as a page writes them."""

from trainguard.report.html.numbers import NOTHING, number

_TIMES = ((1e9, "s"), (1e6, "ms"), (1e3, "µs"), (1.0, "ns"))
_SIZES = ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB"), (1.0, "B"))


def nanos(value: float | None) -> str:
    """Write a time: ``1.23 s``, ``9.44 ms``, ``480 µs``, ``12 ns``."""
    return _scaled(value, _TIMES)


def size(value: float | None) -> str:
    """Write a number of bytes: ``1.23 GB``."""
    return _scaled(value, _SIZES)


def _scaled(value: float | None, units: tuple[tuple[float, str], ...]) -> str:
    if value is None:
        return NOTHING
    scale, unit = next((each for each in units if abs(value) >= each[0]), units[-1])
    return f"{number(value / scale)} {unit}"
