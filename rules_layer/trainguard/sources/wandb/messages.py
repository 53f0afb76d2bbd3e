"""The protobuf messages of run files: the fields that TrainGuard reads, with the numbers that W&B gave them."""

from typing import Any

from trainguard.message_classes import (
    BOOL,
    BYTES,
    DOUBLE,
    INT32,
    INT64,
    MESSAGE,
    SINT64,
    UINT32,
    MessageTable,
    message_classes,
)

_MESSAGES: MessageTable = {
    "Record": [
        ("history", 2, MESSAGE, "History"),
        ("stats", 7, MESSAGE, "Stats"),
        ("run", 17, MESSAGE, "Run"),
        ("exit", 18, MESSAGE, "Exit"),
        ("environment", 26, MESSAGE, "Environment"),
    ],
    "History": [("item", 1, MESSAGE, "Item*"), ("step", 2, MESSAGE, "Step")],
    "Step": [("num", 1, INT64, "")],
    "Item": [
        ("key", 1, BYTES, ""),
        ("nested_key", 2, BYTES, "*"),
        ("boolean", 4, BOOL, ""),
        ("integer", 5, SINT64, ""),
        ("number", 6, DOUBLE, ""),
        ("value_json", 16, BYTES, ""),
    ],
    "Stats": [("timestamp", 2, MESSAGE, "Time"), ("item", 3, MESSAGE, "StatsItem*")],
    "StatsItem": [("key", 1, BYTES, ""), ("value_json", 16, BYTES, "")],
    "Time": [("seconds", 1, INT64, ""), ("nanos", 2, INT32, "")],
    "Run": [
        ("run_id", 1, BYTES, ""),
        ("entity", 2, BYTES, ""),
        ("project", 3, BYTES, ""),
        ("display_name", 8, BYTES, ""),
        ("host", 13, BYTES, ""),
        ("start_time", 17, MESSAGE, "Time"),
    ],
    "Exit": [("exit_code", 1, INT32, ""), ("runtime", 2, INT32, "")],
    "Environment": [("gpu_type", 18, BYTES, ""), ("gpu_count", 19, UINT32, "")],
}

Record: Any = message_classes("trainguard.wandb", _MESSAGES)["Record"]
