"""Values as hostile as the stores must take them."""

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from trainguard.core.finding import WHOLE_JOB, Episode, Fact, Finding, Patience, Severity
from trainguard.core.job_policy import AlertPolicy, JobPolicy, QuietHours, StopPolicy
from trainguard.core.records import (
    AlertKind,
    JobRecord,
    JobStatus,
    OutboxEntry,
    RuleRow,
    Status,
    StreamKey,
    StreamRecord,
    TunedJob,
)

on_each_world = settings(
    # Examples share the world of their test and keep apart by the job's name.
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=30)
names = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=30)
floats = st.floats(allow_nan=False, allow_infinity=False) | st.sampled_from(
    [0.1 + 0.2, 5e-324, -5e-324, 1.7976931348623157e308, 1e-130, 9.999999999999999e-131, 1e126, 1e22, 1e23, -0.0]
)
integers = st.integers(-(2**63), 2**63)
times = st.floats(min_value=0, max_value=4e9, allow_nan=False)
times_ms = st.integers(-62_135_596_800_000, 253_402_300_799_999).map(lambda milliseconds: milliseconds / 1000)
epochs = st.integers(0, 2**40)
generations = st.integers(0, 3)
scalars = st.none() | floats | st.integers(-(2**80), 2**80) | texts | st.booleans()


def counters() -> st.SearchStrategy[dict[str, int]]:
    """Return maps of integers."""
    return st.dictionaries(names, integers, max_size=4)


def episodes() -> st.SearchStrategy[tuple[Episode, ...]]:
    """Return episodes of a finding."""
    some = st.lists(texts, max_size=3).map(tuple)
    maybe = st.none() | floats
    each = st.builds(
        Episode,
        start=times_ms,
        end=st.none() | times_ms,
        nodes=some,
        gpus=some,
        measured=maybe,
        wasted_s=maybe,
        cost=maybe,
        currency=st.none() | texts,
    )
    return st.lists(each, max_size=3).map(tuple)


def facts() -> st.SearchStrategy[tuple[Fact, ...]]:
    """Return facts of a finding, with names and units that act nowhere."""
    plain = st.text(st.characters(categories=["L", "N", "P"]), max_size=20)
    maybe = st.none() | plain
    common = {"name": plain, "series": maybe, "node": maybe, "device": maybe}
    spans = {"start": st.none() | times_ms, "end": st.none() | times_ms}
    values = floats | st.integers(-(2**80), 2**80) | plain
    units = plain.filter(lambda unit: unit != "time")
    some = st.builds(Fact, value=values, unit=units, threshold=st.none() | floats, **common, **spans)
    moments = st.builds(Fact, value=times_ms, unit=st.just("time"), threshold=st.none() | times_ms, **common, **spans)
    return st.lists(some | moments, max_size=3).map(tuple)


@st.composite
def outboxes(draw: st.DrawFn) -> dict[str, OutboxEntry]:
    """Return outboxes by alert id."""
    fire_ids = draw(st.lists(names, unique=True, max_size=3))
    entries = [
        OutboxEntry(
            fire_id=fire_id,
            episode=draw(integers),
            enqueued_at=draw(floats),
            finding=Finding(
                rule=draw(texts),
                node=draw(st.none() | texts.filter(lambda node: node != WHOLE_JOB)),
                reason=draw(texts),
                measured=draw(st.none() | floats),
                threshold=draw(st.none() | floats),
                severity=draw(st.none() | st.sampled_from(Severity)),
                advice=draw(st.none() | texts),
                cost=draw(st.none() | texts),
                episodes=draw(episodes()),
                finding_kind=draw(texts),
                facts=draw(facts()),
            ),
            sent=draw(st.booleans()),
            kind=draw(st.sampled_from(AlertKind)),
            previous_severity=draw(st.none() | texts),
            lasted_s=draw(st.none() | floats),
        )
        for fire_id in fire_ids
    ]
    return {entry.alert_id: entry for entry in entries}


@st.composite
def node_records(draw: st.DrawFn) -> StreamRecord:
    """Return items of NodeState that are not stored yet; the job's name is a prefix that a test makes unique."""
    return StreamRecord(
        key=StreamKey(draw(texts), draw(names), draw(st.sampled_from(("system", "framework", "job")))),
        cursors=draw(counters()),
        pending=draw(counters()),
        state=draw(st.binary(max_size=200)),
        codec=draw(st.integers(0, 255)),
        counters=draw(counters()),
        outbox=draw(outboxes()),
        watermark_s=draw(st.none() | floats),
        closed=draw(st.booleans()),
        expires_at=draw(st.none() | epochs),
        generation=draw(generations),
    )


def progresses() -> st.SearchStrategy[Patience]:
    """Return how far patience is."""
    counts, maybe = st.integers(0, 2**40), st.none() | st.integers(0, 2**40)
    at = st.none() | times_ms
    points = {"streak": maybe, "window_points": maybe}
    return st.builds(Patience, seen=counts, needed=counts, counts=texts, window_start=at, window_end=at, **points)


@st.composite
def rule_rows(draw: st.DrawFn) -> RuleRow:
    """Return rows of RuleState with times that fall on a millisecond."""
    return RuleRow(
        job=draw(texts),
        finding=Finding(
            rule=draw(
                st.text(st.characters(exclude_categories=["Cs"], exclude_characters="#"), min_size=1, max_size=30)
            ),
            node=draw(st.none() | texts),
            reason=draw(texts),
            measured=draw(st.none() | floats),
            threshold=draw(st.none() | floats),
            severity=draw(st.none() | st.sampled_from(Severity)),
            advice=draw(st.none() | texts),
            cost=draw(st.none() | texts),
            episodes=draw(episodes()),
            finding_kind=draw(texts),
            facts=draw(facts()),
        ),
        status=draw(st.sampled_from(Status)),
        quantity=draw(st.none() | texts),
        unit=draw(st.none() | texts),
        worst=draw(st.none() | texts),
        data_points=draw(integers),
        progress=draw(st.none() | progresses()),
        affected_percent=draw(st.none() | floats),
        wasted_percent=draw(st.none() | floats),
        violations=draw(integers),
        times_fired=draw(integers),
        evaluated_through=draw(st.none() | times_ms),
        fired_at=draw(st.none() | times_ms),
        counters=draw(counters()),
        parameters=draw(st.dictionaries(names, scalars, max_size=4)),
        expires_at=draw(st.none() | epochs),
        generation=draw(generations),
        earlier_episodes=draw(st.integers(0, 1_000)),
    )


def policies() -> st.SearchStrategy[JobPolicy]:
    """Return what may hold for a job, in words that nobody checked."""
    some = st.lists(texts, max_size=3).map(tuple)
    hours = st.builds(QuietHours, days=some, start=texts, end=texts, timezone=texts)
    return st.builds(
        JobPolicy,
        evaluated=st.booleans(),
        why=texts,
        alerts=st.builds(AlertPolicy, staged=some, muted=some, quiet_hours=st.lists(hours, max_size=2).map(tuple)),
        stops=st.builds(StopPolicy, rules=st.none() | some, grace_s=floats, dry_run=st.booleans()),
    )


@st.composite
def job_records(draw: st.DrawFn) -> JobRecord:
    """Return items of Jobs with times that fall on a millisecond."""
    return JobRecord(
        job=draw(texts),
        arn=draw(texts),
        bucket=draw(texts),
        prefix=draw(texts),
        status=draw(st.sampled_from(JobStatus)),
        secondary_status=draw(st.none() | texts),
        instance_type=draw(st.none() | texts),
        instance_count=draw(st.none() | integers),
        created_at=draw(st.none() | times_ms),
        started_at=draw(st.none() | times_ms),
        ended_at=draw(st.none() | times_ms),
        profiling_interval_ms=draw(st.none() | integers),
        framework_expected=draw(st.booleans()),
        rule_settings=draw(st.dictionaries(names, texts, max_size=4)),
        stop_allowed=draw(st.booleans()),
        episodes=draw(counters()),
        active=draw(st.booleans()),
        closing=draw(st.booleans()),
        last_object_at=draw(st.none() | times_ms),
        expires_at=draw(st.none() | epochs),
        policy=draw(policies()),
        setting_sources=draw(st.dictionaries(names, texts, max_size=3)),
        setting_faults=draw(st.lists(texts, max_size=3).map(tuple)),
        rules_elsewhere=draw(st.dictionaries(names, texts, max_size=3)),
        rule_places=draw(st.dictionaries(names, texts, max_size=3)),
        owners=draw(st.dictionaries(names, texts, max_size=3)),
        run_links=draw(st.dictionaries(names, texts, max_size=3)),
        resources=tuple(draw(st.lists(texts, max_size=3))),
        platform=draw(st.none() | texts),
        queue=draw(st.none() | texts),
        tuning_job=draw(st.none() | texts),
        file_fault=draw(st.none() | texts),
        close_asks=draw(st.integers(0, 100)),
        close_asked_at=draw(st.none() | times_ms),
        left_at=draw(st.none() | times_ms),
        generation=draw(generations),
        asked_at=draw(st.none() | times_ms),
        other_streams=draw(st.integers(0, 5_000)),
        streams_left_out=draw(st.booleans()),
        outlook=draw(st.none() | texts),
        time_limit_s=draw(st.none() | epochs.map(float)),
        total_steps=draw(st.none() | integers),
    )


def tuned_jobs() -> st.SearchStrategy[TunedJob]:
    """Return what a tuning job's item may say about a job."""
    return st.builds(
        TunedJob,
        status=st.sampled_from(JobStatus),
        finished=st.booleans(),
        findings=integers,
        rule=st.none() | texts,
        severity=st.none() | st.sampled_from(Severity),
    )
