"""What holds for a job beside its rules' parameters: evaluation, alerts, stops, upper bounds on what it may make."""

from collections.abc import Iterator, Mapping

import msgspec

from trainguard.core.evaluation_interval import EVALUATION_EVERY_S

# Streams beside those of the nodes that SageMaker names: anybody may invent names.
MOST_OTHER_STREAMS = 4_096

# Episodes of a rule that fire on one job: a condition that comes and goes without end starts no more executions.
MOST_ALERTED_EPISODES = 100

# After this episode no other begins.
LAST_EPISODE = MOST_ALERTED_EPISODES - 1

# Names that objects bring and that become jobs within a clock hour.
MOST_NEW_JOBS = 1_000

# Each batch of data that comes after a job's end asks for another report.
MOST_END_REPORTS = 24

MOST_CAPTURE_EXECUTIONS = 512


def reached_limits(*, streams_left_out: bool, episodes: Mapping[str, int]) -> Iterator[str]:
    """Yield a sentence for each limit that a job has reached; ``episodes`` counts those that ended, by rule."""
    if streams_left_out:
        yield (
            f"objects name more than {MOST_OTHER_STREAMS:,} streams of nodes that SageMaker does not name: "
            "the streams beyond these are not evaluated"
        )
    for rule, ended in sorted(episodes.items()):
        if ended >= LAST_EPISODE:
            yield f"{rule} fired {MOST_ALERTED_EPISODES} times: it fires no more on this job"


ALL = "all"

# In the order of ``datetime.weekday``.
DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")

EVERY_JOB = "every job is evaluated unless its stack or its tag says otherwise"


# A larger job is evaluated every third minute: its items are one partition of DynamoDB, with 1,000 write units/s.
MOST_NODES_EACH_MINUTE = 4_000


class QuietHours(msgspec.Struct, frozen=True, kw_only=True):
    """A time without alerts on ``days``, which name its starts; an ``end`` before ``start`` is on the next day."""

    days: tuple[str, ...]
    start: str
    end: str
    timezone: str = "UTC"


class AlertPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """Which rules send alerts. One of ``staged`` is recorded alone; one of ``muted`` may stop the job."""

    staged: tuple[str, ...] = ()
    muted: tuple[str, ...] = ()
    quiet_hours: tuple[QuietHours, ...] = ()

    def is_staged(self, rule: str) -> bool:
        return _named(rule, self.staged)

    def is_muted(self, rule: str) -> bool:
        return _named(rule, self.muted)


class StopPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """What may stop a job; ``rules`` None is every rule. With ``dry_run`` the job runs on after ``grace_s`` seconds."""

    rules: tuple[str, ...] | None = None
    grace_s: float = 0.0
    dry_run: bool = False

    def may_stop(self, rule: str) -> bool:
        return self.rules is None or _named(rule, self.rules)


class JobPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """What holds for one job; ``why`` explains ``evaluated`` in a phrase, ``source`` is empty for none."""

    evaluated: bool = True
    why: str = EVERY_JOB
    alerts: AlertPolicy = AlertPolicy()
    stops: StopPolicy = StopPolicy()
    source: str = ""
    evaluation_every_s: float = EVALUATION_EVERY_S


def _named(rule: str, rules: tuple[str, ...]) -> bool:
    return rule in rules or ALL in rules
