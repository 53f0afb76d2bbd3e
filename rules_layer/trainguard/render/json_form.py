"""Documents as JSON that every reader takes."""

import math
from typing import Any

import msgspec


def encode_report(document: dict[str, Any]) -> bytes:
    """Encode a document as JSON that every reader takes: indented, without NaN and infinities."""
    return msgspec.json.format(msgspec.json.encode(_finite(document)), indent=2)


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {str(key): _finite(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(each) for each in value]
    return value
