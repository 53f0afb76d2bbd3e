"""One job's profile: its objects in the bucket, and how far they are evaluated."""

from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime

from trainguard.cli.doctor.check import Check, CheckResult, span
from trainguard.cli.doctor.job_case import JobCase, SeenProfile
from trainguard.engine.streams.session import HARMLESS_COUNTERS
from trainguard.records import JobRecord, NodeRecord, RuleRow, Status
from trainguard.rules.units import counted

OBJECTS = Check("objects")
NODES = Check("nodes")
EVALUATION = Check("evaluation")
RULES = Check("rules")

MINUTE_S = 60.0
SILENT_S = 600.0
"""Objects come once a minute, and may take minutes: after ten, something is wrong."""

BEHIND_S = 900.0
"""As the alarm on the messages' age has it."""

_MESSAGES = "See the lines on notifications, event pattern, queue and functions above."


def check_objects(case: JobCase) -> Iterator[CheckResult]:
    """Judge what lies in the bucket."""
    yield from grade_objects(case.profile, case.record, case.place, case.site.now)


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
        yield OBJECTS.warn(found, "Nothing comes any more: has the job ended, or does its profiler hang?")
    else:
        yield OBJECTS.ok(found)
    if profile.foreign:
        others = f"{len(profile.foreign):,} of the first {profile.looked_at:,} keys are of other kinds and not read"
        yield OBJECTS.ok(f"{others}, the first {profile.foreign[0]!r}")


def _grade_nothing(profile: SeenProfile, record: JobRecord, place: str) -> Iterator[CheckResult]:
    if profile.foreign:
        yield OBJECTS.fail(
            f"no key below {place} is of system metrics; the first foreign one is {profile.foreign[0]!r}",
            "Expected …/profiler-output/system/incremental/<YYYYMMDDHH>/<epoch s>.<node>.json.",
        )
    elif profile.looked_at:
        found = f"{counted(profile.looked_at, 'object')} below {place}, and none of system metrics"
        yield OBJECTS.fail(found, "Only the rules on framework metrics can judge: does the system profiler run?")
    elif record.status.is_final:
        yield OBJECTS.fail(f"nothing lies below {place}", "The job wrote no profile, or it has expired.")
    else:
        yield OBJECTS.warn(f"nothing lies below {place} yet", "The first objects come a minute after training begins.")


def check_nodes(case: JobCase) -> Iterator[CheckResult]:
    """Judge whether every node writes."""
    yield from grade_nodes(case.profile.nodes, case.record.instance_count)


def grade_nodes(nodes: frozenset[str], expected: int | None) -> Iterator[CheckResult]:
    """Judge which nodes have written; ``expected`` is how many the job has, None when nobody knows."""
    if expected is None or len(nodes) >= expected or not nodes:
        yield NODES.ok(
            f"{counted(len(nodes), 'node')} with system metrics" + ("" if expected is None else f" of {expected}")
        )
        return
    missing = [name for name in (f"algo-{number}" for number in range(1, expected + 1)) if name not in nodes]
    found = f"{len(nodes)} of {counted(expected, 'node')} with system metrics, missing: {', '.join(missing)}"
    yield NODES.warn(found, "Is the node's container running? See its log stream in /aws/sagemaker/TrainingJobs.")


def check_evaluation(case: JobCase) -> Iterator[CheckResult]:
    """Judge how far the job is evaluated."""
    yield from grade_evaluation(case.stored, case.nodes, case.profile)


def grade_evaluation(job: JobRecord | None, nodes: Sequence[NodeRecord], profile: SeenProfile) -> Iterator[CheckResult]:
    """Judge the items of a job's nodes against the objects that are there."""
    system = {record.key.node: record for record in nodes if record.key.stream == "system"}
    if profile.last_minute is None:
        if not system:
            yield EVALUATION.ok("there is nothing to evaluate yet")
        return
    if job is None or not system:
        lacks = "Jobs has no item of it" if job is None else "no node of it has state"
        yield EVALUATION.fail(
            f"objects are there and not evaluated: {lacks}", f"Their messages did not arrive. {_MESSAGES}"
        )
        return
    unknown = sorted(profile.nodes - system.keys())
    if unknown:
        found = f"{counted(len(unknown), 'node')} not evaluated: {', '.join(unknown)}"
        yield EVALUATION.fail(found, f"Their messages did not arrive, or are dead letters. {_MESSAGES}")
    newest = profile.last_minute + MINUTE_S
    behind = {node: newest - record.watermark_s for node, record in system.items() if record.watermark_s is not None}
    furthest = max(behind, key=behind.__getitem__, default=None)
    if furthest is not None and behind[furthest] > BEHIND_S and not system[furthest].closed:
        found = f"{furthest} is evaluated until {span(behind[furthest])} before the newest object"
        yield EVALUATION.fail(found, f"Messages wait or were lost. {_MESSAGES}")
    elif not unknown:
        worst = max(behind.values(), default=0.0)
        yield EVALUATION.ok(f"{counted(len(system), 'node')} evaluated, {span(worst)} before the newest object")
    yield from _unused(nodes)


def _unused(nodes: Sequence[NodeRecord]) -> Iterator[CheckResult]:
    tally: Counter[str] = Counter()
    for record in nodes:
        tally.update({name: amount for name, amount in record.counters.items() if name not in HARMLESS_COUNTERS})
    if tally:
        named = ", ".join(f"{amount:,} {name.replace('_', ' ')}" for name, amount in sorted(tally.items()))
        yield EVALUATION.warn(f"not used: {named}", "`trainguard report` says of which node, and what was wrong.")


def check_rows(case: JobCase) -> Iterator[CheckResult]:
    """Judge the rules' rows."""
    yield from grade_rows(case.rows)


def grade_rows(rows: Sequence[RuleRow]) -> Iterator[CheckResult]:
    """Judge the rules' rows of a job: a rule in ERROR gives no verdict."""
    faults = [
        RULES.fail(
            f"{row.rule} is in ERROR: {row.finding.reason}", "Its setting is at fault, or the rule raised: report that."
        )
        for row in rows
        if row.status is Status.ERROR
    ]
    tally = Counter(row.status.value for row in rows)
    said = ", ".join(f"{amount} {status}" for status, amount in sorted(tally.items()))
    yield from RULES.unless(faults, said or "no rule has said anything yet")


def _time(epoch_s: float) -> str:
    return datetime.fromtimestamp(epoch_s, UTC).strftime("%Y-%m-%d %H:%M UTC")
