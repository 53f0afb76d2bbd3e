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


def plural(count: int, one: str) -> str:
    """Write how many there are: ``1 step``, ``2 steps``, ``2 copies``."""
    many = f"{one[:-1]}ies" if one.endswith(("py", "ry")) else f"{one}s"
    return f"{count:,} {one if count == 1 else many}"


def are(count: int, one: str) -> str:
    """Write how many there are with the verb: ``1 step is``, ``2 steps are``."""
    return f"{plural(count, one)} {'is' if count == 1 else 'are'}"


def _scaled(value: float | None, units: tuple[tuple[float, str], ...]) -> str:
    if value is None:
        return NOTHING
    scale, unit = next((each for each in units if abs(value) >= each[0]), units[-1])
    return f"{number(value / scale)} {unit}"
