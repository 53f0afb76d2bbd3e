"""A report's JSON."""

import math
from typing import Any

import msgspec

from trainguard.report.document import Report

_NO_TIMELINES = b'"timelines": null\n}'


def encode_document(report: Report) -> bytes:
    """Encode a report: indented for people, but its time lines in one line, as their numbers are for machines.

    NaN and infinities are null.
    """
    indented = msgspec.json.format(msgspec.json.encode(msgspec.structs.replace(report, timelines=None)), indent=2)
    head = indented.removesuffix(_NO_TIMELINES)
    return head + b'"timelines": ' + msgspec.json.encode(report.timelines) + b"\n}"


def encode_report(document: dict[str, Any]) -> bytes:
    """Encode a document as JSON that every reader takes: indented, without NaN and infinities."""
    return msgspec.json.format(msgspec.json.encode(_finite(document)), indent=2)


def _finite(value: Any) -> Any:
    """Replace what JSON cannot hold (NaN, infinities) by null, at any depth."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {str(key): _finite(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(each) for each in value]
    return value
