"""A run file of Weights & Biases as a `SourceRun`. Importing this module imports protobuf."""

import json
import math
import struct
import zlib
from collections.abc import Iterator
from typing import Any, BinaryIO

from google.protobuf import message

from trainguard.core.errors import TelemetryFormatError
from trainguard.formats.git_lfs import refuse_pointer
from trainguard.formats.protobuf import MessageTable, message_classes
from trainguard.formats.runs.length import is_length, total_steps
from trainguard.formats.runs.run import CUT, WORDS, RunOutcome, SourceRun
from trainguard.formats.runs.wandb.system_metrics import SystemMetrics
from trainguard.formats.tensors.scalars.rows import LARGEST_STEP, Recording

_MESSAGES: MessageTable = {
    "Record": [
        ("history", 2, "History"),
        ("stats", 7, "Stats"),
        ("config", 5, "Config"),
        ("run", 17, "Run"),
        ("exit", 18, "Exit"),
        ("environment", 26, "Environment"),
    ],
    "History": [("item", 1, "Item*"), ("step", 2, "Step")],
    "Step": [("num", 1, "int64")],
    "Item": [
        ("key", 1, "bytes"),
        ("nested_key", 2, "bytes*"),
        ("boolean", 4, "bool"),
        ("integer", 5, "sint64"),
        ("number", 6, "double"),
        ("value_json", 16, "bytes"),
    ],
    "Stats": [("timestamp", 2, "Time"), ("item", 3, "StatsItem*")],
    "StatsItem": [("key", 1, "bytes"), ("value_json", 16, "bytes")],
    "Time": [("seconds", 1, "int64"), ("nanos", 2, "int32")],
    "Run": [
        ("run_id", 1, "bytes"),
        ("entity", 2, "bytes"),
        ("project", 3, "bytes"),
        ("config", 4, "Config"),
        ("display_name", 8, "bytes"),
        ("host", 13, "bytes"),
        ("start_time", 17, "Time"),
    ],
    "Config": [("update", 1, "Setting*")],
    "Setting": [("key", 1, "bytes"), ("nested_key", 2, "bytes*"), ("value_json", 16, "bytes")],
    "Exit": [("exit_code", 1, "int32"), ("runtime", 2, "int32")],
    "Environment": [("gpu_type", 18, "bytes"), ("gpu_count", 19, "uint32")],
}

Record: Any = message_classes("trainguard.wandb", _MESSAGES)["Record"]


MAGIC = b":W&B"
_FILE_HEADER = struct.Struct("<4sHB")
_PART_HEADER = struct.Struct("<IHB")
_IDENTITY = 0xBEE1
_VERSION = 0
_BLOCK = 32 * 1024
_WHOLE, _FIRST, _MIDDLE, _LAST = 1, 2, 3, 4
_TYPES = range(_WHOLE, _LAST + 1)
_TYPE_CRC = {each: zlib.crc32(bytes((each,))) for each in _TYPES}
MAX_RECORD_BYTES = 64 * 1024 * 1024

WRONG_CHECKSUM = "a block of the file does not agree with its checksum"
WITHOUT_START = "a part of a record whose first part is missing"
TOO_LARGE = f"a record is larger than {MAX_RECORD_BYTES:,} bytes"


class Records:
    """The records of a file, one after the other; ``stream`` is at its start.

    ``bad`` counts what could not be read, by the reason. After a wrong checksum reading goes on at the next block.
    """

    def __init__(self, file: str, stream: BinaryIO) -> None:
        self._stream = stream
        self.bad: dict[str, int] = {}
        header = stream.read(_FILE_HEADER.size)
        refuse_pointer(file, header)
        if len(header) < _FILE_HEADER.size or header[: len(MAGIC)] != MAGIC:
            raise TelemetryFormatError(file, f"it begins with {header[:4]!r}, expected a run file of W&B, {MAGIC!r}")
        _, identity, version = _FILE_HEADER.unpack(header)
        if (identity, version) != (_IDENTITY, _VERSION):
            raise TelemetryFormatError(file, f"version {version} of run files of W&B, expected {_VERSION}")

    def __iter__(self) -> Iterator[bytes]:
        begun: list[bytes] | None = None
        size = 0
        for kind, content in self._parts():
            if kind in (_WHOLE, _FIRST):
                if begun is not None:
                    self._refuse(CUT)
                begun, size = [], 0
            if begun is None:
                if kind:
                    self._refuse(WITHOUT_START)
                continue
            if not kind or size + len(content) > MAX_RECORD_BYTES:
                if kind:
                    self._refuse(TOO_LARGE)
                begun = None
                continue
            begun.append(content)
            size += len(content)
            if kind in (_WHOLE, _LAST):
                yield b"".join(begun)
                begun = None
        if begun is not None:
            self._refuse(CUT)

    def _parts(self) -> Iterator[tuple[int, bytes]]:
        """Iterate over types and contents; type 0 says that something is missing here."""
        start = _FILE_HEADER.size
        while block := self._stream.read(_BLOCK - start):
            yield from self._parts_of(block, _BLOCK - start)
            start = 0

    def _parts_of(self, block: bytes, size: int) -> Iterator[tuple[int, bytes]]:
        place = 0
        while len(block) - place >= _PART_HEADER.size:
            check, length, kind = _PART_HEADER.unpack_from(block, place)
            if not kind and not length:
                return  # The rest of a block that was set aside and not written.
            place += _PART_HEADER.size
            content = block[place : place + length]
            if len(content) < length:
                self._refuse(CUT)
                yield 0, b""
                return
            if kind not in _TYPES or zlib.crc32(content, _TYPE_CRC[kind]) != check:
                self._refuse(WRONG_CHECKSUM)
                yield 0, b""
                return
            place += length
            yield kind, content
        if place < len(block) < size:
            self._refuse(CUT)
            yield 0, b""

    def _refuse(self, why: str) -> None:
        self.bad[why] = self.bad.get(why, 0) + 1


TOOL = "Weights & Biases"
# Under these names trainers log the step that they count: W&B's own counts what was logged.
_OWN_STEPS = ("train/global_step", "trainer/global_step")

_TIME, _STEP = "_timestamp", "_step"
_LONGEST_NAME, _LONGEST_NUMBER = 1_024, 64
_MOST_NAMES = 10_000
NO_RECORD = "a record that is no message of W&B"
NO_NUMBER = "a system metric that is no number"
TOO_MANY_NAMES = f"scalars beyond the first {_MOST_NAMES:,} names of a step"
_HTTPS = "https://wandb.ai"
_NOTHING = (
    "is a run of W&B without a number in its history, and without a system metric that is read: gpu.<n>.…, tpu.<n>.…, "
    "trn.<n>.…, cpu.<n>.cpu_percent, memory_percent, network.recv or network.sent"
)


def read_run_file(name: str, stream: BinaryIO) -> SourceRun:
    """Read a run file; one that is still written ends anywhere. Raises TelemetryFormatError when it is none."""
    records = Records(name, stream)
    reading = _Reading()
    for body in records:
        try:
            record = Record.FromString(body)
        except message.DecodeError:
            reading.run.refuse(NO_RECORD)
            continue
        reading.take(record)
    for why, count in records.bad.items():
        reading.run.refuse(why, count)
    return reading.finished()


class _Reading:
    def __init__(self) -> None:
        self.run = SourceRun("", TOOL)
        self._system = SystemMetrics()
        self._exit: Any = None
        self._last_at: float | None = None
        self._host = ""
        self._lengths: dict[str, object] = {}

    def take(self, record: Any) -> None:
        if record.HasField("stats"):
            self._stats(record.stats)
        elif record.HasField("history"):
            self._history(record.history)
        elif record.HasField("run"):
            self._described(record.run)
            self._configured(record.run.config)
        elif record.HasField("config"):
            self._configured(record.config)
        elif record.HasField("exit"):
            self._exit = record.exit
        elif record.HasField("environment") and record.environment.gpu_type:
            self.run.gpu_type = _text(record.environment.gpu_type)

    def finished(self) -> SourceRun:
        run = self.run
        self._system.put(run, self._host)
        if not run.snapshots and not run.scalars:
            run.nothing = _NOTHING
        times = [each[-1][0] for each in run.snapshots.values() if each] + [row.at for row in run.scalars[-1:]]
        run.ended_at = max(times, default=None)
        run.total_steps = total_steps(self._lengths, run.scalars)
        if self._exit is not None:
            run.outcome = RunOutcome.FAILED if self._exit.exit_code else RunOutcome.COMPLETED
        return run

    def _described(self, described: Any) -> None:
        run = self.run
        parts = [_text(each) for each in (described.entity, described.project)]
        identity = _text(described.run_id)
        run.name = _text(described.display_name) or identity
        if all(parts) and identity:
            run.link = "/".join((_HTTPS, *parts, "runs", identity))
        run.owners = dict(zip(("team", "project"), parts, strict=True))
        self._host = _text(described.host)
        if described.HasField("start_time"):
            run.started_at = _seconds(described.start_time)

    def _configured(self, config: Any) -> None:
        for each in config.update:
            name = _text(each.key) if each.key else ".".join(map(_text, each.nested_key))
            if is_length(name):
                self._lengths[name] = _short(each.value_json)

    def _stats(self, stats: Any) -> None:
        values = {}
        for item in stats.item:
            value = _number(item.value_json)
            if value is None:
                self.run.refuse(NO_NUMBER)
            elif math.isfinite(value):
                values[_text(item.key)] = value
        self._system.add(_seconds(stats.timestamp), values)

    def _history(self, history: Any) -> None:
        values: dict[str, float] = {}
        at, step = None, history.step.num
        for item in history.item:
            name = _text(item.key) if item.key else ".".join(map(_text, item.nested_key))
            value = _value(item)
            if value is None or len(name) > _LONGEST_NAME:
                continue  # Texts, pictures and tables are no scalars.
            if name == _TIME:
                at = value
            elif name == _STEP:
                step = _whole(value, step)
            elif not name.startswith("_"):
                if len(values) >= _MOST_NAMES:
                    self.run.refuse(TOO_MANY_NAMES)
                    break
                values[name] = value
        own = next((values[name] for name in _OWN_STEPS if name in values), None)
        step = step if own is None else _whole(own, step)
        at = self._last_at if at is None or not math.isfinite(at) else at
        at = self.run.started_at if at is None else at
        if values and at is not None and 0 <= step <= LARGEST_STEP:
            self._last_at = at
            self.run.scalars.append(Recording(step, at, values))


def _value(item: Any) -> float | None:
    for kind in ("number", "integer", "boolean"):
        if item.HasField(kind):
            return float(getattr(item, kind))
    return _number(item.value_json)


def _number(text: bytes) -> float | None:
    """Return a number in JSON, or one of the words that W&B writes for what is none; None of anything else."""
    try:
        return float(text)
    except ValueError:
        pass
    if len(text) > len('"-Infinity"'):
        return None
    try:
        value = json.loads(text)
    except ValueError:
        return None
    if isinstance(value, bool):
        return float(value)
    return WORDS.get(value) if isinstance(value, str) else None


def _short(text: bytes) -> object:
    """Return a short value in JSON; None of anything else."""
    try:
        return json.loads(text) if len(text) <= _LONGEST_NUMBER else None
    except ValueError:
        return None


def _whole(value: float, otherwise: int) -> int:
    return int(value) if math.isfinite(value) and 0 <= value <= LARGEST_STEP else otherwise


def _seconds(time: Any) -> float:
    return float(time.seconds) + float(time.nanos) / 1e9


def _text(content: bytes) -> str:
    return content.decode("utf-8", "replace")
