"""The canary: a synthetic job that proves once a day that the deployment detects and alerts.

It is four minutes of one node with a low GPU, the same bytes for the same time and run, checked minutes later: was it
found, decided whether to be stopped, alerted, reported, and closed? Both steps can be repeated: the first writes the
same objects again, the second only reads. Whoever may write to the bucket can put folders there with names of canaries:
they neither hide one that passed nor stand for a planted one. `canary_job` plants one that SageMaker knows.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC
from typing import Literal

import msgspec
import numpy as np

from trainguard.core.canary_name import CANARY_PREFIX, canary_name, planted_at
from trainguard.core.errors import PortUnavailableError
from trainguard.core.layout import REPORT_JSON, ProfileRoot
from trainguard.core.ports import Journal, ProfileObjects, ReadableObjects
from trainguard.core.records import JobRecord, RuleRow
from trainguard.core.stores import Jobs, RuleStates
from trainguard.core.timestamps import TimedEvent
from trainguard.formats.profile.keys import system_key
from trainguard.rules.low_gpu_utilization.rule import LOW_GPU

RULE = LOW_GPU.name

NODE = "algo-1"
MINUTES = 4
MINUTE_S = 60

# Whatever the stack's default: one rule, a verdict within minutes, and an alert.
SETTINGS = {
    "rule_to_invoke": RULE,
    f"{RULE}_window": 20,
    f"{RULE}_patience": 20,
    f"{RULE}_threshold_p95": 70,
    f"{RULE}_threshold_p5": 10,
    "evaluate": "on",
    "staged": "none",
    "muted": "none",
    "quiet-hours": "none",
}

_MEAN_PERCENT = 20.0
_SWING_PERCENT = 4.0
_CORE_PERCENT = 35.0
_MEMORY_PERCENT = 12.0


def canary_objects(at: float, run: str, *, in_sagemaker: bool = False) -> list[tuple[str, bytes]]:
    """Return keys and bodies in the order of writing; the last minute ends before ``at``, epoch seconds.

    SageMaker itself describes a job of its own, and says when it ends.
    """
    root = ProfileRoot("", canary_name(at, run))
    last = int(at) // MINUTE_S * MINUTE_S - MINUTE_S
    minutes = range(last - (MINUTES - 1) * MINUTE_S, last + MINUTE_S, MINUTE_S)
    profile = [(system_key(root, NODE, minute), _lines(minute)) for minute in minutes]
    if in_sagemaker:
        return profile
    return [
        (root.job_file, _job_file(root.job, minutes[0])),
        *profile,
        (f"{root.folder}profiler-output/system/training_job_end.ts", b""),
    ]


def _job_file(job: str, started_at: int) -> bytes:
    document = {
        "schema_version": 1,
        "name": job,
        "instance_count": 1,
        "started_at": started_at,
        "profiling_interval_ms": 1_000,
        "settings": SETTINGS,
    }
    return msgspec.json.encode(document)


def _lines(minute: int) -> bytes:
    """Return one minute as JSON lines, a snapshot a second."""
    seconds = np.arange(MINUTE_S)
    busy = np.rint(_MEAN_PERCENT + _SWING_PERCENT * np.sin(seconds / 5.0)).tolist()
    lines = [
        line
        for second, percent in zip(seconds.tolist(), busy, strict=True)
        for line in _snapshot(float(minute + second), percent)
    ]
    return msgspec.json.Encoder().encode_lines(lines)


def _snapshot(time: float, percent: float) -> list[dict[str, str | float]]:
    series = (
        ("gpu", "gpu0", "GPUUtilization", percent),
        ("gpu", "gpu0", "GPUMemoryUtilization", percent),
        ("cpu", "cpu0", "CPUUtilization", _CORE_PERCENT),
        ("cpu", "cpu0", "I/OWaitPercentage", 0.0),
        ("memory", "memory", "", _MEMORY_PERCENT),
    )
    return [
        {"Type": kind, "Name": name, "Dimension": dimension, "Value": value, "NodeId": NODE, "Timestamp": time}
        for kind, name, dimension, value in series
    ]


LOOKED_AFTER_MINUTES, ENDED_AFTER_MINUTES = 15, 30

Step = Literal["plant", "look", "end"]


class CanaryCall(TimedEvent, frozen=True):
    """A step, and the time of the event that asks for it; ``scheduled`` leaves the step to the time."""

    step: Step | Literal["scheduled"]

    @property
    def due(self) -> Step:
        """The step that is due: of a day's calls the first plants, the next checks; a third one checks the end."""
        if self.step != "scheduled":
            return self.step
        minute = self.time.astimezone(UTC).minute
        return "plant" if minute < LOOKED_AFTER_MINUTES else "look" if minute < ENDED_AFTER_MINUTES else "end"


# The canary that is checked was planted within this time, or none was today.
FRESH_S = 3_600.0

# No canary is planted in the future; a look may be asked for in the same minute.
_AHEAD_S = 60.0

_MOST_LOOKED_AT = 10

NOT_PLANTED = (f"no canary was planted in the last {FRESH_S / 60:.0f} min",)


def is_fresh(job: str, at: float) -> bool:
    """Whether a canary of this name was planted within an hour before ``at``, epoch seconds."""
    planted = planted_at(job)
    return planted is not None and -_AHEAD_S <= at - planted <= FRESH_S


# A canary has nothing to stop: its decision names that, or what forbids all stops.
_DECISIONS = ("refused", "dry-run")

_JSON = "application/json"


@dataclass(frozen=True, slots=True)
class CanaryVerdict:
    """Result of a canary, ``job`` None without one; ``missing`` is empty when it passed, ``latency_s`` to the alert."""

    job: str | None
    missing: tuple[str, ...]
    latency_s: float | None

    @property
    def passed(self) -> bool:
        return not self.missing


@dataclass(frozen=True, slots=True)
class Canary:
    """Plants and checks, in one bucket."""

    bucket: str
    objects: ProfileObjects
    rows: RuleStates
    jobs: Jobs
    journal: Journal

    def plant(self, at: float, run: str) -> str | None:
        """Write the canary of ``at``, epoch seconds, and delete earlier ones; nobody could guess ``run`` before."""
        job = canary_name(at, run)
        self._write(job, canary_objects(at, run))
        return job

    def look(self, at: float) -> CanaryVerdict:
        """Return the verdict, until ``at``, of the newest canary that passed, or else of the newest, and count it."""
        verdicts = self._verdicts(at)
        verdict = next((each for each in verdicts if each.passed), verdicts[0])
        self._count(verdict)
        return verdict

    def end(self, at: float) -> CanaryVerdict:
        """Return the verdict on the end of the canary, which `look` gives as well."""
        return self.look(at)

    def _write(self, job: str, written: Sequence[tuple[str, bytes]]) -> None:
        earlier = [key for key in self._keys() if _job_of(key) != job]
        self.objects.delete(self.bucket, earlier)
        for key, body in written:
            self.objects.put(self.bucket, key, body, _JSON)

    def _verdicts(self, at: float) -> list[CanaryVerdict]:
        """Judge the canaries of the last hour, the newest first."""
        keys = self._keys()
        planted = {job: planted_at(job) or 0.0 for job in map(_job_of, keys)}
        newest_first = sorted(planted, key=lambda job: (planted[job], job), reverse=True)
        recent = [job for job in newest_first if is_fresh(job, at)]
        if not recent:
            return [CanaryVerdict(next(iter(newest_first), None), NOT_PLANTED, None)]
        return [
            grade_canary(job, planted[job], self.rows.load(job, RULE), self.jobs.load(job), keys)
            for job in recent[:_MOST_LOOKED_AT]
        ]

    def _count(self, verdict: CanaryVerdict) -> None:
        self.journal.count("canary_passed", int(verdict.passed), job=verdict.job)
        if verdict.missing:
            self.journal.count("canary_failed", job=verdict.job, reason="; ".join(verdict.missing))
        if verdict.latency_s is not None:
            self.journal.measure("canary_latency_seconds", verdict.latency_s)

    def _keys(self) -> list[str]:
        return _canary_keys(self.objects, self.bucket)


def _canary_keys(objects: ReadableObjects, bucket: str) -> list[str]:
    """Return the keys of all canaries; a job with a similar name stays."""
    listed = objects.list(bucket, CANARY_PREFIX, "")
    return [each.key for each in listed if planted_at(_job_of(each.key)) is not None]


# A day, and a quarter of one.
_SILENT_S = 30 * 3_600.0
_DAY_S, _HOUR_S, _MINUTE_OF_LOOK = 86_400.0, 3_600.0, 30


def watch_canary(
    objects: ReadableObjects, bucket: str, journal: Journal, *, deployed_at: Callable[[], float], now: float
) -> None:
    """Count once a day that no canary was planted for 30 hours, nor the stack deployed; look once an hour.

    ``now`` is that of a call each minute; a question that nobody answers is counted.
    """
    if int(now // MINUTE_S) % 60 != _MINUTE_OF_LOOK:
        return
    try:
        times = [planted_at(_job_of(key)) or 0.0 for key in _canary_keys(objects, bucket)]
        since = max([deployed_at(), *(at for at in times if at <= now + _AHEAD_S)])
    except PortUnavailableError as fault:
        journal.count("port_failures", reason=str(fault))
        return
    silent_s = now - since - _SILENT_S
    if silent_s >= 0.0 and silent_s % _DAY_S < _HOUR_S:
        journal.count("canary_silent", reason=f"no canary for {(silent_s + _SILENT_S) / _HOUR_S:.0f} hours")


def _not_closed(record: JobRecord | None) -> list[str]:
    return ["its job was not closed, though its profile has ended"] if record is None or record.active else []


def grade_canary(
    job: str,
    planted: float,
    stored: RuleRow | None,
    record: JobRecord | None,
    keys: Sequence[str],
    *,
    decisions: Sequence[str] = _DECISIONS,
    of_job: Callable[[JobRecord | None], list[str]] = _not_closed,
) -> CanaryVerdict:
    """Return whether a canary, ``planted`` at epoch seconds, was found, decided on, alerted, reported and closed.

    ``decisions`` are those expected about a stop; ``of_job`` names what the job's item lacks.
    """
    missing = of_job(record)
    if stored is None:
        missing.insert(0, f"{RULE} has no row of it: it was not evaluated, or did not fire")
        return CanaryVerdict(job, tuple(missing), None)
    if stored.debugger_status != "IssuesFound":
        missing.append(f"{RULE} says {stored.status.value} of it, not FIRED: {stored.finding.reason}")
    if stored.stop is None:
        missing.append("nothing was decided about a stop")
    elif stored.stop.decision not in decisions or stored.stop.made:
        missing.append(f"the decision about a stop is {stored.stop.decision}: {stored.stop.why}")
    if stored.alert_id is None:
        missing.append(f"its alert was not sent: {stored.action or 'no execution has recorded an action'}")
    report = f"{ProfileRoot('', job).report}{REPORT_JSON}"
    if stored.report_uri is None or report not in keys:
        missing.append(f"its report is not there: {report}")
    sent = None if stored.alert_id is None else stored.action_at
    return CanaryVerdict(job, tuple(missing), None if sent is None else sent - planted)


def _job_of(key: str) -> str:
    return key.partition("/")[0]
