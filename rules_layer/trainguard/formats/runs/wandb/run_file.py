"""A run file of Weights & Biases as a `SourceRun`. Importing this module imports protobuf."""

import json
import math
from typing import Any, BinaryIO

from google.protobuf import message

from trainguard.formats.runs.length import is_length, total_steps
from trainguard.formats.runs.run import LARGEST_STEP, WORDS, Outcome, ScalarsOfStep, SourceRun
from trainguard.formats.runs.wandb.log_file import Record, Records
from trainguard.formats.runs.wandb.system_metrics import SystemMetrics

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
            run.outcome = Outcome.FAILED if self._exit.exit_code else Outcome.COMPLETED
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
            self.run.scalars.append(ScalarsOfStep(step, at, values))


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
