"""What holds for a job beside its rules' parameters: whether it is evaluated, which alerts it sends, what may stop it.

These are values. Who acts on them asks with a rule's name; a list that names ``ALL`` means every rule.
"""

import msgspec

from trainguard.evaluation_interval import EVALUATION_EVERY_S

ALL = "all"
"""Stands for every rule in a list of rules."""

DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
"""Names of the days in quiet hours, in the order of ``datetime.weekday``."""

EVERY_JOB = "every job is evaluated unless its stack or its tag says otherwise"


MOST_NODES_EACH_MINUTE = 4_000
"""A job of more nodes is evaluated every third minute at most, whatever its rules say: its items are one partition of
DynamoDB, which takes 1,000 write units a second."""


class QuietHours(msgspec.Struct, frozen=True, kw_only=True):
    """A time of the day at which nobody is to be disturbed.

    ``days`` are names of ``DAYS``, those on which it starts. ``start`` and ``end`` are ``HH:MM`` on the clock of
    ``timezone`` (an IANA name, for example ``Europe/Berlin``); an ``end`` that is not after ``start`` lies on the next
    day, so that equal ones are a whole day.
    """

    days: tuple[str, ...]
    start: str
    end: str
    timezone: str = "UTC"


class AlertPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """Which rules send alerts, and when.

    A finding of a ``staged`` rule is recorded, and leads to no alert and no stop; one of a ``muted`` rule may stop the
    job, and alerts nobody but of such a stop.
    """

    staged: tuple[str, ...] = ()
    muted: tuple[str, ...] = ()
    quiet_hours: tuple[QuietHours, ...] = ()

    def is_staged(self, rule: str) -> bool:
        """Whether the rule's findings are recorded and nothing else."""
        return _named(rule, self.staged)

    def is_muted(self, rule: str) -> bool:
        """Whether the rule's findings send no alert."""
        return _named(rule, self.muted)


class StopPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """What may stop a job whose owner has opted in to it.

    ``rules`` None is every rule, and empty none. Between the warning and the stop lie ``grace_s`` seconds. With
    ``dry_run`` the decision is made, recorded and told, and the job runs on.
    """

    rules: tuple[str, ...] | None = None
    grace_s: float = 0.0
    dry_run: bool = False

    def may_stop(self, rule: str) -> bool:
        """Whether a finding of the rule may stop the job."""
        return self.rules is None or _named(rule, self.rules)


class JobPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """What holds for one job; ``why`` says in a phrase where ``evaluated`` comes from.

    ``source`` names where a deployment reads the job's data, beside its profile; empty for nowhere. A node's system
    metrics are evaluated every ``evaluation_every_s`` seconds, and each minute while a rule is near a change.
    """

    evaluated: bool = True
    why: str = EVERY_JOB
    alerts: AlertPolicy = AlertPolicy()
    stops: StopPolicy = StopPolicy()
    source: str = ""
    evaluation_every_s: float = EVALUATION_EVERY_S


def _named(rule: str, rules: tuple[str, ...]) -> bool:
    return rule in rules or ALL in rules
