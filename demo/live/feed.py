"""Which object a job uploads next, and when: faster than real time, but never far ahead of its evaluation."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from demo.recording import Recording
from demo.uploads import RecordedObject
from trainguard.formats.profile.keys import FrameworkKey, SystemKey, parse_key
from trainguard.rules.profiler_report import PROFILER_REPORT

# A node's first minute is applied when its third is there, 3 min after the start: less would wait for ever.
AHEAD_S = 240.0


class JobFeed:
    """What one job uploads from ``start``, an epoch second on the minute, until it ends or is stopped."""

    def __init__(self, *, job: str, recording: Recording, start: int) -> None:
        self.job = job
        self.start = start
        self.uploaded: list[str] = []
        self.stopped = False
        self._recording = recording
        self._objects = recording.objects(job, start=start)
        self._last_at = float(start)
        self.upcoming: RecordedObject | None = next(self._objects, None)

    @property
    def nodes(self) -> int:
        return len(self._recording.nodes)

    @property
    def instance_type(self) -> str:
        return self._recording.instance_type

    @property
    def interval_ms(self) -> int:
        return self._recording.interval_ms

    @property
    def minutes(self) -> float:
        return self._recording.ended_s / 60

    @property
    def uploaded_minutes(self) -> float:
        """Event time of the last upload, in minutes since the start."""
        return (self._last_at - self.start) / 60

    def take(self) -> RecordedObject:
        """Return the upcoming object, which is uploaded now; raises StopIteration when there is none."""
        if self.upcoming is None:
            raise StopIteration(self.job)
        taken = self.upcoming
        self.uploaded.append(taken.key)
        self._last_at = taken.appears_at
        self.upcoming = next(self._objects, None)
        return taken

    def stop(self) -> None:
        """Stop the job between its last upload and the next; a job at its end is left as it is.

        A stopped job still writes the open minute of each node, the events so far, and the marks of the end.
        """
        if self.upcoming is None or self.stopped:
            return
        elapsed_s = (self._last_at + self.upcoming.appears_at) / 2 - self.start
        done = set(self.uploaded)
        rest = self._recording.until(elapsed_s).objects(self.job, start=self.start)
        self._objects = (each for each in rest if each.key not in done)
        self.upcoming = next(self._objects, None)
        self.stopped = True


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a job is evaluated: epoch seconds by node, and positions by node and lane, s for ``minute``, else µs."""

    system_through: Mapping[str, float] = field(default_factory=dict)
    cursors: Mapping[str, Mapping[str, int]] = field(default_factory=dict)

    def through(self, nodes: int) -> float | None:
        """Return up to which event time all ``nodes`` are judged; None while one of them is not judged at all."""
        return min(self.system_through.values()) if len(self.system_through) >= nodes else None

    def applied(self, keys: Iterable[str]) -> int:
        """Count those of ``keys`` whose objects have been applied."""
        return sum(self._is_applied(key) for key in keys)

    def _is_applied(self, key: str) -> bool:
        parsed = parse_key(key)
        if isinstance(parsed, SystemKey):
            return parsed.minute <= self.cursors.get(parsed.node, {}).get("minute", -1)
        if isinstance(parsed, FrameworkKey):
            return parsed.end_us <= self.cursors.get(parsed.node, {}).get(parsed.partition, -1)
        return False


def is_fire_under_way(rows: Mapping[str, Mapping[str, object]]) -> bool:
    """Whether a fire's effect is not recorded yet; ProfilerReport has none. ``rows`` are by RuleTarget."""
    fired = {target.partition("#")[0] for target, row in rows.items() if row.get("Status") == "FIRED"}
    return any("Action" not in rows.get(rule, {}) for rule in fired - {PROFILER_REPORT})


def next_feed(feeds: Iterable[JobFeed], progress: Mapping[str, Progress], held: Collection[str] = ()) -> JobFeed | None:
    """Return the feed with the next object of all to be uploaded; None when all must wait or are done.

    ``held`` jobs wait for the outcome of a fire: at the pace of a demonstration they would be at their end before they
    are stopped.
    """
    ready = [
        (feed.upcoming.appears_at, feed.job, feed) for feed in feeds if feed.upcoming and _may(feed, progress, held)
    ]
    return min(ready, key=lambda each: each[:2])[2] if ready else None


def _may(feed: JobFeed, progress: Mapping[str, Progress], held: Collection[str]) -> bool:
    # A stopped job's last objects come at once, as they do when a container gets SIGTERM.
    if feed.stopped:
        return True
    through = progress.get(feed.job, Progress()).through(feed.nodes)
    in_reach = feed.upcoming is not None and feed.upcoming.appears_at <= (through or feed.start) + AHEAD_S
    return in_reach and feed.job not in held
