"""A report's JSON."""

import math
from typing import Any

import msgspec

from trainguard.report.document import Report

_NO_SERIES = b'"training": null,\n  "timelines": null\n}'


def encode_document(report: Report) -> bytes:
    """Encode a report: indented for people, but training and time lines in a line each: numbers for machines.

    NaN and infinities are null.
    """
    bare = msgspec.structs.replace(report, training=None, timelines=None)
    head = msgspec.json.format(msgspec.json.encode(bare), indent=2).removesuffix(_NO_SERIES)
    training, timelines = msgspec.json.encode(report.training), msgspec.json.encode(report.timelines)
    return head + b'"training": ' + training + b',\n  "timelines": ' + timelines + b"\n}"


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
