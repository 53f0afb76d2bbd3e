"""Run files ``<job>/wandb/…/run-<id>.wandb`` of Weights & Biases, each version read behind the last one."""

import re
from dataclasses import dataclass
from io import BytesIO

import msgspec

from trainguard.core.errors import ObjectMissingError, TelemetryFormatError
from trainguard.core.layout import JOB_ROOT, MAX_KEY_LENGTH, RESULTS_FOLDER, ProfileRoot, root_of
from trainguard.core.ports import Journal, ProfileObjects
from trainguard.core.text import is_plain
from trainguard.formats.runs.run import CUT, SourceRun
from trainguard.formats.runs.wandb.run_file import read_run_file
from trainguard.stack.polling.delivery import (
    JobFolder,
    PollStatus,
    between,
    deliver,
    deliver_end,
    failed,
    read_status,
    status_key,
    write_status,
)
from trainguard.stack.polling.poll import MINUTE_S

# A larger run file is not read live: `trainguard analyze` reads it.
MAX_FILE_BYTES = 96 * 1024 * 1024

_KEY = re.compile(rf"{JOB_ROOT}/wandb/(?:[^/]+/){{0,4}}run-(?P<run>[A-Za-z0-9_-]{{1,128}})\.wandb")
_NEVER = 0.0


def run_file_key(key: str) -> tuple[ProfileRoot, str] | None:
    """Return job and run of a run file; None for any other object."""
    if len(key) > MAX_KEY_LENGTH or not is_plain(key) or RESULTS_FOLDER in key.split("/"):
        return None
    match = _KEY.fullmatch(key)
    return None if match is None else (root_of(match), match["run"])


@dataclass(frozen=True, slots=True)
class RunFiles:
    """Reads versions of run files."""

    objects: ProfileObjects
    journal: Journal

    def take(self, bucket: str, key: str, *, at: float) -> PollStatus | None:
        """Read new data of a file; None for a foreign or missing object. Raises PortUnavailableError."""
        named = run_file_key(key)
        if named is None:
            return None
        try:
            body = self.objects.get(bucket, key, MAX_FILE_BYTES)
        except ObjectMissingError:
            return None
        root, run = named
        place = JobFolder(self.objects, bucket, root)
        stored = status_key(root, f"wandb-{run}")
        known = read_status(self.objects, bucket, stored) or PollStatus(source=key, through=_NEVER)
        status = self._read(place, key, body, known, at)
        write_status(self.objects, bucket, stored, status)
        return status

    def _read(self, place: JobFolder, key: str, body: bytes, status: PollStatus, at: float) -> PollStatus:
        try:
            if len(body) > MAX_FILE_BYTES:
                raise TelemetryFormatError(key, f"over {MAX_FILE_BYTES:,} bytes long: it is not read live")
            run = read_run_file(key, BytesIO(body))
        except TelemetryFormatError as fault:
            status = failed(status, fault, at)
            self.journal.count("source_polls_failed", job=place.root.job, key=key, reason=status.fault)
            return status
        run.bad.pop(CUT, None)  # A file that is still written ends anywhere.
        end = _end(run)
        if end > status.through:
            status = deliver(place, _of_run(between(run, status.through, end), key), status)
            status = msgspec.structs.replace(status, through=end)
        ended = run.outcome is not None
        if ended:
            deliver_end(place)
        return msgspec.structs.replace(
            status, polled_at=at, fault="", failed_since=None, ended=ended, bad=dict(run.bad)
        )


def _end(run: SourceRun) -> float:
    """Return the time before which a file has all: that of its last whole minute, and all of a run that has ended."""
    last = run.ended_at or _NEVER
    minute = last // MINUTE_S * MINUTE_S
    return minute + MINUTE_S if run.outcome is not None else minute


def _of_run(run: SourceRun, key: str) -> SourceRun:
    """Give each run of a host its own nodes: two runs write no minute of one node."""
    named = run_file_key(key)
    suffix = "" if named is None else f".{named[1]}"
    run.snapshots = {f"{node}{suffix}": snapshots for node, snapshots in run.snapshots.items()}
    return run
