"""Messages of ``xplane.proto`` of the OpenXLA project, as far as they are read."""

from typing import Any

from trainguard.message_classes import BYTES, DOUBLE, INT64, MESSAGE, UINT64, MessageTable, message_classes

_MESSAGES: MessageTable = {
    "Line": [
        ("name", 2, BYTES, ""),
        ("timestamp_ns", 3, INT64, ""),
        ("events", 4, MESSAGE, "Event*"),
        ("display_name", 11, BYTES, ""),
    ],
    "Event": [
        ("metadata_id", 1, INT64, ""),
        ("offset_ps", 2, INT64, ""),
        ("duration_ps", 3, INT64, ""),
        ("stats", 4, MESSAGE, "Stat*"),
    ],
    "Stat": [
        ("metadata_id", 1, INT64, ""),
        ("double_value", 2, DOUBLE, ""),
        ("uint64_value", 3, UINT64, ""),
        ("int64_value", 4, INT64, ""),
        ("str_value", 5, BYTES, ""),
        ("ref_value", 7, UINT64, ""),
    ],
    "EventMetadataEntry": [("key", 1, INT64, ""), ("value", 2, MESSAGE, "EventMetadata")],
    "EventMetadata": [("name", 2, BYTES, ""), ("stats", 5, MESSAGE, "Stat*")],
    "StatMetadataEntry": [("key", 1, INT64, ""), ("value", 2, MESSAGE, "StatMetadata")],
    "StatMetadata": [("name", 2, BYTES, "")],
}
_CLASSES = message_classes("trainguard.xplane", _MESSAGES)

Line: Any = _CLASSES["Line"]
Event: Any = _CLASSES["Event"]
Stat: Any = _CLASSES["Stat"]
EventMetadataEntry: Any = _CLASSES["EventMetadataEntry"]
StatMetadataEntry: Any = _CLASSES["StatMetadataEntry"]

SPACE_PLANE = 1
PLANE_NAME, PLANE_LINE, PLANE_EVENT_METADATA, PLANE_STAT_METADATA, PLANE_STAT = 2, 3, 4, 5, 6
LINE_NAME, LINE_TIMESTAMP, LINE_EVENT, LINE_DISPLAY_NAME = 2, 3, 4, 11
"""Numbers of fields that are streamed: a plane and a line can be as large as the file."""
