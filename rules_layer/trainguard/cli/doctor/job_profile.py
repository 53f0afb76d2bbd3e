"""Checks of one job's profile: its objects in the bucket, and how far they are evaluated."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from itertools import islice

from trainguard.cli.doctor.check import CheckResult, fail, ok, span, unless, warn
from trainguard.cli.doctor.job_case import JobCase, SeenProfile
from trainguard.core.records import JobRecord, NodeRecord, RuleRow, Status
from trainguard.core.text import one_line
from trainguard.core.units import counted
from trainguard.engine.streams.session import HARMLESS_COUNTERS
from trainguard.stack.polling.delivery import FOLDER, PollStatus, read_status
from trainguard.stack.polling.poll import NAME

MINUTE_S = 60.0
SILENT_S = 600.0
"""Objects come once a minute, and may take minutes: after ten, something is wrong."""

BEHIND_S = 900.0

_MESSAGES = "See the lines on notifications, event pattern, queue and functions above."


def grade_objects(profile: SeenProfile, record: JobRecord, place: str, now: float) -> Iterator[CheckResult]:
    """Judge a profile's objects, by their keys and their times."""
    if profile.first_minute is None or profile.last_minute is None or profile.last_modified is None:
        yield from _grade_nothing(profile, record, place)
        return
    silence = now - profile.last_modified
    late = profile.last_modified - profile.last_minute - MINUTE_S
    found = (
        f"system metrics from {_time(profile.first_minute)} to {_time(profile.last_minute)}; "
        f"the last came {span(silence)} ago, {span(late)} after its minute"
    )
    if silence > SILENT_S and not record.status.is_final:
        yield warn(found, "Nothing comes any more: has the job ended, or does its profiler hang?")
    else:
        yield ok(found)
    if profile.foreign:
        others = f"{len(profile.foreign):,} of the first {profile.looked_at:,} keys are of other kinds and not read"
        yield ok(f"{others}, the first {profile.foreign[0]!r}")


def _grade_nothing(profile: SeenProfile, record: JobRecord, place: str) -> Iterator[CheckResult]:
    if profile.foreign:
        yield fail(
            f"no key below {place} is of system metrics; the first foreign one is {profile.foreign[0]!r}",
            "Expected …/profiler-output/system/incremental/<YYYYMMDDHH>/<epoch s>.<node>.json.",
        )
    elif profile.looked_at:
        found = f"{counted(profile.looked_at, 'object')} below {place}, and none of system metrics"
        yield fail(found, "Only the rules on framework metrics can judge: does the system profiler run?")
    elif record.status.is_final:
        yield fail(f"nothing lies below {place}", "The job wrote no profile, or it has expired.")
    else:
        yield warn(f"nothing lies below {place} yet", "The first objects come a minute after training begins.")


def grade_nodes(nodes: frozenset[str], expected: int | None) -> Iterator[CheckResult]:
    """Judge which nodes have written; ``expected`` is how many the job has, None when unknown."""
    if expected is None or len(nodes) >= expected or not nodes:
        yield ok(f"{counted(len(nodes), 'node')} with system metrics" + ("" if expected is None else f" of {expected}"))
        return
    missing = [name for name in (f"algo-{number}" for number in range(1, expected + 1)) if name not in nodes]
    found = f"{len(nodes)} of {counted(expected, 'node')} with system metrics, missing: {', '.join(missing)}"
    yield warn(found, "Is the node's container running? See its log stream in /aws/sagemaker/TrainingJobs.")


def grade_evaluation(job: JobRecord | None, nodes: Sequence[NodeRecord], profile: SeenProfile) -> Iterator[CheckResult]:
    """Judge the items of a job's nodes against the objects that are there."""
    system = {record.key.node: record for record in nodes if record.key.stream == "system"}
    if profile.last_minute is None:
        if not system:
            yield ok("there is nothing to evaluate yet")
        return
    if job is None or not system:
        lacks = "Jobs has no item of it" if job is None else "no node of it has state"
        yield fail(f"objects are there and not evaluated: {lacks}", f"Their messages did not arrive. {_MESSAGES}")
        return
    unknown = sorted(profile.nodes - system.keys())
    if unknown:
        found = f"{counted(len(unknown), 'node')} not evaluated: {', '.join(unknown)}"
        yield fail(found, f"Their messages did not arrive, or are dead letters. {_MESSAGES}")
    newest = profile.last_minute + MINUTE_S
    behind = {node: newest - record.watermark_s for node, record in system.items() if record.watermark_s is not None}
    furthest = max(behind, key=behind.__getitem__, default=None)
    if furthest is not None and behind[furthest] > BEHIND_S and not system[furthest].closed:
        found = f"{furthest} is evaluated until {span(behind[furthest])} before the newest object"
        yield fail(found, f"Messages wait or were lost. {_MESSAGES}")
    elif not unknown:
        worst = max(behind.values(), default=0.0)
        yield ok(f"{counted(len(system), 'node')} evaluated, {span(worst)} before the newest object")
    yield from _unused(nodes)


def _unused(nodes: Sequence[NodeRecord]) -> Iterator[CheckResult]:
    tally: Counter[str] = Counter()
    for record in nodes:
        tally.update({name: amount for name, amount in record.counters.items() if name not in HARMLESS_COUNTERS})
    if tally:
        named = ", ".join(f"{amount:,} {name.replace('_', ' ')}" for name, amount in sorted(tally.items()))
        yield warn(f"not used: {named}", "`trainguard report` names the node, and what was wrong.")


def grade_rows(rows: Sequence[RuleRow]) -> Iterable[CheckResult]:
    """Judge the rules' rows of a job: a rule in ERROR gives no verdict."""
    faults = [
        fail(
            f"{row.rule} is in ERROR: {row.finding.reason}", "Its setting is at fault, or the rule raised: report that."
        )
        for row in rows
        if row.status is Status.ERROR
    ]
    tally = Counter(row.status.value for row in rows)
    text = ", ".join(f"{amount} {status}" for status, amount in sorted(tally.items()))
    return unless(faults, text or "no rule has said anything yet")


def _time(epoch_s: float) -> str:
    return datetime.fromtimestamp(epoch_s, UTC).strftime("%Y-%m-%d %H:%M UTC")


MOST_FILES = 64

_LONGEST = 300
_SUFFIX = ".json"


def check_source(case: JobCase) -> Iterator[CheckResult]:
    """Judge how far a job's sources are read."""
    record = case.record
    prefix = f"{case.root.folder}{FOLDER}/"
    statuses: dict[str, PollStatus | None] = {}
    for each in islice(case.objects.list(record.bucket, prefix, ""), MOST_FILES):
        name = each.key.removeprefix(prefix).removesuffix(_SUFFIX)
        statuses[name] = read_status(case.objects, record.bucket, each.key)
    if record.policy.source and NAME not in statuses:
        yield fail(
            f"{record.policy.source} is not polled",
            "Deploy with -c live_sources, which lists the services that may be read: see docs/sources.md.",
        )
    if not statuses and not record.policy.source:
        yield ok("the job names no source, and no run file lies in its folder")
    for name, status in statuses.items():
        yield from grade_source(name, status, now=case.site.now, final=record.status.is_final)


def grade_source(name: str, status: PollStatus | None, *, now: float, final: bool) -> Iterator[CheckResult]:
    """Judge one status; ``final`` says that the job has ended."""
    if status is None:
        yield warn(f"{FOLDER}/{name}{_SUFFIX} is no status object", "Did something else write it?")
        return
    what = one_line(status.source, _LONGEST)
    if status.fault:
        since = "" if status.failed_since is None else f" for {span(now - status.failed_since)}"
        yield fail(f"{what} is not read{since}: {one_line(status.fault, _LONGEST)}", _ADVICE)
    elif not final and not status.ended and now - status.through > BEHIND_S:
        yield warn(f"{what} is read up to {span(now - status.through)} ago", "Does the source still have data?")
    else:
        wrote = f"{counted(status.minutes, 'minute')} of metrics, {counted(status.scalars, 'row')} of scalars"
        yield ok(f"{what}: {wrote}")
    if status.bad:
        listed = "; ".join(f"{one_line(why, _LONGEST)} ({count:,})" for why, count in islice(status.bad.items(), 3))
        yield warn(f"{what}: not read: {listed}", "See docs/sources.md for what each source has.")


_ADVICE = "May the function reach the service, and does the job's setting `source` name it as live_sources does?"
