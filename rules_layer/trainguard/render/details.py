"""What a rule shows of its numbers: typed in the code, plain in JSON."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import msgspec

if TYPE_CHECKING:
    from trainguard.state.histogram import DurationHistogram

D = TypeVar("D", bound="Details")
NodeDetails: TypeAlias = "Details | Mapping[str, Any]"


class Details(msgspec.Struct, frozen=True, omit_defaults=True):
    """Numbers of a rule on a node, or on a job; its fields are the report's JSON, in their order.

    A field that has its default is left out. A number that is none (NaN) is null in JSON, and None in what is read
    back.
    """

    def plain(self) -> dict[str, Any]:
        plain: dict[str, Any] = msgspec.to_builtins(self)
        return plain

    @classmethod
    def read(cls: type[D], held: Mapping[str, Any]) -> D:
        """Return details that were plain; raises msgspec.ValidationError when they are of another shape."""
        return msgspec.json.decode(msgspec.json.encode(held), type=cls, strict=False)


class SeriesDetails(Details, frozen=True, omit_defaults=True):
    """Details of one series each, by name, which in JSON stand beside the other fields."""

    def plain(self) -> dict[str, Any]:
        """Return the series by their names, and then the other fields."""
        plain = msgspec.to_builtins(self)
        return {**plain.pop("series"), **plain}

    @classmethod
    def read(cls: type[D], held: Mapping[str, Any]) -> D:
        """Return details that were plain; raises msgspec.ValidationError when they are of another shape."""
        named = msgspec.convert(held, dict[str, Any])
        others = {name: named.pop(name) for name in cls.__struct_fields__ if name in named}
        return msgspec.json.decode(msgspec.json.encode({**others, "series": named}), type=cls, strict=False)


class Durations(msgspec.Struct, frozen=True):
    """A histogram of durations in microseconds."""

    lower_us: list[float]
    upper_us: list[float]
    counts: list[int]

    @classmethod
    def of(cls, histogram: "DurationHistogram") -> "Durations":
        lower, upper = histogram.edges()
        return cls(lower.tolist(), upper.tolist(), list(histogram.counts))


def plain(details: Details | Mapping[str, Any]) -> dict[str, Any]:
    """Return a rule's details, or those of several nodes by their names, as JSON has them."""
    if isinstance(details, Details):
        return details.plain()
    return {name: each.plain() if isinstance(each, Details) else each for name, each in details.items()}


def encode_report(document: dict[str, Any]) -> bytes:
    """Encode a document as JSON that every reader takes: indented, without NaN and infinities."""
    return msgspec.json.format(msgspec.json.encode(document), indent=2)
