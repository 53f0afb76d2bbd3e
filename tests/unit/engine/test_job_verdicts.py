"""The verdicts of a whole job from its families', what it has to pay for, and what follows from a look at it."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from tests.support.memory import MemoryWorld
from tests.support.verdicts import fired, over, quiet
from trainguard.core.errors import RuleConfigError, StateCodecError, StateDamagedError, UnreadableKeyError
from trainguard.core.finding import Finding
from trainguard.core.layout import ProfileRoot
from trainguard.core.records import AlertKind, JobRecord, OutboxEntry, Status, StreamKey, StreamRecord
from trainguard.engine.diagnosis.case import assess, job_verdicts, paid_time_of, unit_verdicts
from trainguard.engine.family import ObjectSource
from trainguard.engine.installed import FAMILIES
from trainguard.engine.streams.job_streams import FamilyVerdicts, JobMoment, JobState, JobStreams, LazyStreams
from trainguard.engine.streams.rule_runner import StoredRule
from trainguard.engine.streams.session import emptied, opened
from trainguard.engine.verdicts.episodes import FiringHistory
from trainguard.engine.verdicts.verdict import Fire, RuleOutcome
from trainguard.ledger.bucket import StepShares
from trainguard.ledger.job import Ledger
from trainguard.pricing.cost import PaidTime
from trainguard.rules.rule_result import RuleResult

RULE = "LowGPUUtilization"
JOB = JobRecord("job", "arn", "profiles", "", instance_type="ml.p3.2xlarge", instance_count=2, started_at=50.0)
PLAN = FAMILIES.plan(JOB)
SYSTEM, OTHER = (StreamKey("job", node, "system") for node in ("algo-1", "algo-2"))
LOOK = JobMoment(closed=False)
FIRE = Fire(RuleOutcome(RULE, RuleResult(Status.FIRED, "so."), FiringHistory(is_open=True)), 60.0)


@dataclass
class Family:
    """A family's streams, with set answers."""

    verdicts: tuple[RuleOutcome, ...] = ()
    fires: tuple[Fire, ...] = ()
    near_threshold: bool = False
    nodes: frozenset[str] = frozenset()
    first_at: float | None = None
    unpaid_s: float = 0.0
    watermark_s: float | None = 100.0
    stored_rules: tuple[Mapping[str, StoredRule], ...] = ()
    step_shares: StepShares | None = None
    made: Ledger | None = None
    asked: list[tuple[bool, float | None]] = field(default_factory=list)
    asked_ledger: list[tuple[bool, StepShares | None]] = field(default_factory=list)

    def judge(self, _job: object, _plan: object, _own: object, look: JobMoment) -> FamilyVerdicts:
        self.asked.append((look.closed, look.now))
        return self.verdicts, self.fires

    def ledger(self, _account: PaidTime, *, ended: bool, shares: StepShares | None) -> Ledger | None:
        self.asked_ledger.append((ended, shares))
        return self.made

    def unit_verdicts(self) -> dict[str, dict[str, RuleOutcome]]:
        return {each.rule: {"algo-1": each} for each in self.verdicts}


def of(*families: Family, closed: bool = False, **state: Any) -> JobStreams:
    named: Any = {str(number): each for number, each in enumerate(families)}
    records = {SYSTEM: StreamRecord(SYSTEM, closed=True), OTHER: StreamRecord(OTHER, closed=closed)}
    return JobStreams(named, records, StreamRecord(StreamKey.own("job")), JobState(**state))


@pytest.mark.parametrize(
    ("closing", "closed", "ended"), [(True, True, True), (True, False, False), (False, True, False)]
)
def test_verdicts_of_all_families_count_and_are_final_at_the_end(closing: bool, closed: bool, ended: bool) -> None:
    first, second = Family((quiet(RULE),)), Family((quiet("BatchSize"),), (FIRE,))
    verdicts, fires = job_verdicts(
        replace(JOB, closing=closing), PLAN, of(first, second, closed=closed), moment=JobMoment(closed, 7.0)
    )
    assert [(each.rule, each.ended) for each in verdicts] == [(RULE, ended), ("BatchSize", ended)]
    assert fires == [FIRE]
    assert first.asked == second.asked == [(closed, 7.0)]
    assert list(unit_verdicts(of(first, second))) == [RULE, "BatchSize"]


def test_faulty_disabled_or_gone_rules_have_their_own_verdict() -> None:
    faults = {name: RuleConfigError(name, "a", "b", "c") for name in (RULE, "Unknown", "ProfilerReport", "Straggler")}
    plan = replace(
        FAMILIES.plan(replace(JOB, rule_settings={"rule_to_invoke": "BatchSize"})),
        faults=faults,
        disabled=("Straggler", "IOBottleneck"),
    )
    stored = ({"Gone": StoredRule(), RULE: StoredRule()},)
    verdicts, _ = job_verdicts(
        JOB, plan, of(Family((quiet(RULE),), stored_rules=stored), stored_rules={"Own": StoredRule()}), moment=LOOK
    )
    assert [(each.rule, each.result.status) for each in verdicts] == [
        (RULE, Status.OK),
        ("Unknown", Status.ERROR),
        ("Straggler", Status.ERROR),
        ("IOBottleneck", Status.DISABLED),
        ("Gone", Status.DISABLED),
        ("Own", Status.DISABLED),
    ]
    assert verdicts[1].result.reason == str(faults["Unknown"])
    assert verdicts[3].result.reason == "rule_to_invoke is BatchSize."
    assert all(each.history == FiringHistory() for each in verdicts)


@pytest.mark.parametrize(
    ("job", "families", "expected"),
    [
        (JOB, [Family(first_at=70.0, nodes=frozenset("abc"), unpaid_s=9.0), Family(unpaid_s=4.0)], (50.0, 3, 9.0)),
        (JOB, [Family(first_at=20.0, nodes=frozenset("a"))], (20.0, 2, 0.0)),
        (replace(JOB, started_at=None, instance_count=None), [Family()], (None, 0, 0.0)),
        (replace(JOB, started_at=None), [], (None, 2, 0.0)),
    ],
)
def test_job_is_billed_from_its_first_sign_for_all_known_nodes(
    job: JobRecord, families: list[Family], expected: tuple[float | None, int, float]
) -> None:
    started_at, nodes, unpaid_s = expected
    paid_time = paid_time_of(job, PLAN, of(*families))
    watermark_s = 100.0 if families else None
    assert paid_time == PaidTime("ml.p3.2xlarge", started_at, watermark_s, nodes, None, unpaid_s)


@pytest.mark.parametrize(
    ("family", "near_threshold"),
    [
        (Family((quiet(RULE),)), False),
        (Family((quiet(RULE),), near_threshold=True), True),
        (Family((replace(quiet(RULE), result=RuleResult(Status.OK, "so.", near_threshold=True)),)), True),
    ],
)
def test_job_is_near_a_change_where_a_stream_or_joint_rule_is(family: Family, near_threshold: bool) -> None:
    found = assess(JOB, PLAN, of(Family(), family), now=7.0)
    assert found.near_threshold is near_threshold
    assert (found.follow_ups, found.ended, len(found.case.verdicts)) == ((), {}, 1)
    assert family.asked == [(False, 7.0)]


@pytest.mark.parametrize(("episode", "ended"), [(0, {RULE: 0}), (98, {RULE: 98}), (99, {})])
def test_ended_finding_is_told_once_and_ends_its_episode(episode: int, ended: dict[str, int]) -> None:
    verdict = over(RULE)
    verdict.history.alerted = episode
    job = replace(JOB, episodes={RULE: episode})
    streams = of(Family((verdict, fired("BatchSize")), (FIRE,)))
    found = assess(job, FAMILIES.plan(job), streams, now=7.0)
    assert [(each.kind, each.episode) for each in found.follow_ups] == [(AlertKind.CLEARED, episode)] * len(ended)
    assert (found.ended, found.fires) == (ended, (FIRE,))
    assert assess(job, FAMILIES.plan(job), streams, now=7.0).follow_ups == ()


def test_late_opened_streams_are_opened_once_in_any_order() -> None:
    made: list[StreamKey] = []

    def open_stream(key: StreamKey) -> Any:
        made.append(key)
        return [key]

    streams = LazyStreams([SYSTEM, OTHER], open_stream)
    assert (list(streams), len(streams), made) == ([SYSTEM, OTHER], 2, [])
    assert streams[OTHER] is streams[OTHER]
    assert made == [OTHER]
    again = streams.opener(OTHER)()
    assert again is not streams[OTHER]
    assert made == [OTHER, OTHER]
    other: Any = streams.in_order([OTHER, SYSTEM])
    assert list(other) == [OTHER, SYSTEM]
    assert other[SYSTEM] == [SYSTEM]
    with pytest.raises(KeyError):
        streams[StreamKey.own("job")]


def test_damaged_item_is_emptied_and_a_newer_version_is_kept() -> None:
    entry = OutboxEntry("fire", 0, 1.0, Finding(RULE, None, "so."))
    record = StreamRecord(
        SYSTEM, 7, {"a": 1}, {"k": 1}, b"s", 1, {"c": 1}, {"fire": entry}, 5.0, closed=True, expires_at=9, generation=2
    )
    empty = StreamRecord(SYSTEM, 7, codec=1, outbox={"fire": entry}, generation=2)
    assert emptied(record) == empty
    world = MemoryWorld()

    def damaged(given: StreamRecord) -> StreamRecord:
        if given.state:
            raise StateDamagedError("item", 1, "short")
        return given

    assert opened(record, damaged, world.journal) == empty
    assert opened(empty, damaged, world.journal) == empty
    assert [each.what for each in world.journal.entries] == ["items_rebuilt"]

    def later(_: StreamRecord) -> StreamRecord:
        raise StateCodecError("item", 2, "later")

    with pytest.raises(StateCodecError):
        opened(record, later, world.journal)


def test_object_read_is_limited_to_one_byte_over_its_cap() -> None:
    world = MemoryWorld()
    world.objects.put("profiles", "k", b"0123456789", "application/json")
    source = ObjectSource(world.objects, "profiles", ProfileRoot("", "job"), 4)
    assert source.get("k") == b"01234"
    assert source.place_of("job") is None
    with pytest.raises(UnreadableKeyError, match="2000 characters long"):
        FAMILIES.parse_key("a" * 2_000, lambda _: ProfileRoot("", "job"))
